//! How much of a peer's bytes one message may cost us.
//!
//! These bound memory and work, and nothing else: no time is in here, since nothing in this crate
//! waits.

use super::head::HEADERS_CAP;
use super::refusal::{Refusal, RefusalKind};

/// The bounds of one message. All of them are inclusive, and all of them are in bytes or in pieces.
///
/// [`Default`] is the tuned set. `..Limits::default()` keeps code compiling when a bound is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one head, from its first byte to its empty line: 16,384. More is 431 (RFC 6585 §5).
    pub head_bytes_max: usize,
    /// Field lines in one head, and in one trailer section: 100; never more than
    /// [`HEADERS_CAP`]. More is 431.
    pub headers_max: usize,
    /// Bytes of a request target: 8,192. More is 414 (RFC 9110 §15.5.15).
    pub target_bytes_max: usize,
    /// Bytes of one chunk-size line with its extensions and its CRLF: 1,024. More is 400.
    pub chunk_line_bytes_max: usize,
    /// Bytes of all chunk extensions of one body: 16,384. More is 400. Without it a body of
    /// one-byte chunks makes us read a thousand bytes for each one that counts.
    pub chunk_extension_bytes_max: usize,
    /// Bytes of one body's trailer section, without its last empty line: 8,192. More is 431.
    pub trailer_bytes_max: usize,
    /// Interim (1xx) responses before the final one: 16. See [`Limits::check_interim`].
    pub interim_responses_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            target_bytes_max: TARGET_BYTES_MAX,
            chunk_line_bytes_max: 1_024,
            chunk_extension_bytes_max: 16_384,
            trailer_bytes_max: 8_192,
            interim_responses_max: 16,
        }
    }
}

const HEAD_BYTES_MAX: usize = 16_384;
const TARGET_BYTES_MAX: usize = 8_192;
const HEADERS_MAX: usize = 100;

const _: () = {
    // A target that is allowed must fit into a head that is allowed, with a few fields beside it.
    assert!(TARGET_BYTES_MAX + 1_024 <= HEAD_BYTES_MAX);
    assert!(HEADERS_MAX <= HEADERS_CAP);
};

impl Limits {
    /// Whether one more interim response is fine, `seen` being the interim responses so far with
    /// this one.
    ///
    /// # Errors
    /// [`RefusalKind::TooManyInterim`] when a server goes on sending 1xx and never answers (RFC
    /// 9110 §15.2).
    pub fn check_interim(&self, seen: u32) -> Result<(), Refusal> {
        if seen > self.interim_responses_max {
            return Err(Refusal::of_server(RefusalKind::TooManyInterim));
        }
        Ok(())
    }
}
