//! CPU time of TLS: handshakes and bulk encryption, by function names; by the libraries of TLS where these
//! are stripped. Thresholds are elsewhere.

use record::observed::FunctionUse;

use super::functions::{KERNEL, contains_any};
use crate::run_view::RunView;
use crate::window::SUBJECT;

/// Maximum number of bytes per handshake for work that is all handshake: their encryption takes less
/// than a tenth of the time of a signature or a key exchange, also without AES instructions.
const HANDSHAKE_BYTES_MAX: f64 = 32e3;
/// Minimum number of bytes per handshake for work that is all encryption: it takes ten times as long as
/// an RSA signature of 2,048 bits, also with AES instructions.
const BULK_BYTES_MIN: f64 = 16e6;
/// Minimum size of a response whose encryption is more than the fixed costs of a record.
const BULK_RESPONSE_BYTES_MIN: f64 = 8e3;

/// Work of the TLS libraries of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TlsWork {
    Handshakes,
    BulkEncryption,
    Mixed,
}

/// Returns the samples of the subject in handshakes.
///
/// A library without symbols has no function names. Then its work follows from the bytes per
/// handshake, if these leave no doubt.
pub(super) fn handshake_fraction(view: &RunView<'_>) -> Option<f64> {
    let is_all = tls_work(view) == TlsWork::Handshakes;
    view.function_fraction(SUBJECT, |function| {
        is_handshake(function) || (is_all && is_tls_library(function) && !is_bulk_crypto(function))
    })
}

/// Returns the samples of the subject in the encryption of content, as [`handshake_fraction`] does.
pub(super) fn bulk_crypto_fraction(view: &RunView<'_>) -> Option<f64> {
    let is_all = tls_work(view) == TlsWork::BulkEncryption;
    view.function_fraction(SUBJECT, |function| {
        is_bulk_crypto(function) || (is_all && is_tls_library(function) && !is_handshake(function))
    })
}

fn tls_work(view: &RunView<'_>) -> TlsWork {
    let Some(tls) = &view.run.tls else { return TlsWork::Mixed };
    let totals = &view.run.totals;
    let bytes = (totals.bytes_in + totals.bytes_out) as f64;
    let handshakes = tls.full + tls.resumed;
    let bytes_per_handshake = bytes / (handshakes.max(1) as f64);
    let bytes_per_response = bytes / (totals.responses.max(1) as f64);
    if handshakes > 0 && bytes_per_handshake <= HANDSHAKE_BYTES_MAX {
        TlsWork::Handshakes
    } else if bytes_per_handshake >= BULK_BYTES_MIN && bytes_per_response >= BULK_RESPONSE_BYTES_MIN {
        TlsWork::BulkEncryption
    } else {
        TlsWork::Mixed
    }
}

/// Returns true for a function of a library of TLS: of OpenSSL and its kin by their files, and of
/// rustls, AWS-LC and Go, which are in the program, by their names.
fn is_tls_library(function: &FunctionUse) -> bool {
    const FILES: &[&str] = &[
        "libcrypto",
        "libssl",
        "libgnutls",
        "libnettle",
        "libhogweed",
        "libgcrypt",
        "libmbed",
        "libwolfssl",
    ];
    const NAMES: &[&str] = &["rustls", "webpki", "aws_lc_", "crypto/tls", "crypto/internal"];
    function.module != KERNEL
        && (FILES.iter().any(|file| function.module.starts_with(file))
            || contains_any(&function.function, NAMES))
}

pub(super) fn is_bulk_crypto(function: &FunctionUse) -> bool {
    // In the kernel it is the random number generator, or the file system's encryption.
    function.module != KERNEL
        && contains_any(&function.function, &["aes", "ghash", "gcm", "chacha", "poly1305"])
}

pub(super) fn is_handshake(function: &FunctionUse) -> bool {
    const NAMES: &[&str] = &[
        "bn_mul",
        "bn_mod",
        "bn_sqr",
        "bn_exp",
        "bn_from_mont",
        "ecdsa",
        "ecp_",
        "ec_gf",
        "x25519",
        "p256",
        "p384",
        "ed25519",
        "mlkem",
    ];
    // "traversal" is not RSA.
    contains_any(&function.function, NAMES) || has_word_with_prefix(&function.function, "rsa")
}

/// Returns true if a word of a function's name begins with `start`: `rsaz_mul` and
/// `crypto::rsa::sign` do with `rsa`.
fn has_word_with_prefix(function: &str, start: &str) -> bool {
    let lower = function.to_ascii_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_ascii_alphabetic());
    words.any(|word| word.starts_with(start))
}
