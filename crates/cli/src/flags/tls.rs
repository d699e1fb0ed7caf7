//! The flags of TLS of the commands that generate load. Names are those of curl where their meaning
//! is the same.

use load::plan::TlsFlags;

use super::{CommandArgs, FLAG_DEFAULTS, Flag};

pub(super) const CACERT: Flag = Flag {
    long: "cacert",
    value: "FILE",
    default: "the certificate authorities that this host trusts",
    doc: "PEM file of the certificate authorities for https servers, which prove the host of \
          the URL",
    invalid: &["/no/such/file"],
    ..FLAG_DEFAULTS
};
pub(super) const INSECURE: Flag = Flag {
    long: "insecure",
    short: Some('k'),
    doc: "Accept any certificate of an https server",
    ..FLAG_DEFAULTS
};
pub(super) const CERT: Flag = Flag {
    long: "cert",
    value: "FILE",
    default: "none",
    doc: "PEM file of the client's own certificate chain; may contain its key",
    invalid: &["/no/such/file"],
    ..FLAG_DEFAULTS
};
pub(super) const KEY: Flag = Flag {
    long: "key",
    value: "FILE",
    default: "the file of --cert",
    doc: "PEM file of the private key of --cert",
    invalid: &["/no/such/file"],
    ..FLAG_DEFAULTS
};
pub(super) const TLS_MIN: Flag = Flag {
    long: "tls-min",
    value: "1.2|1.3",
    default: "1.2",
    doc: "Oldest version of TLS",
    valid: &["1.3"],
    invalid: &["1.1", "x"],
    ..FLAG_DEFAULTS
};
pub(super) const TLS_MAX: Flag = Flag {
    long: "tls-max",
    value: "1.2|1.3",
    default: "1.3",
    doc: "Newest version of TLS",
    valid: &["1.2"],
    invalid: &["1.1", "x"],
    ..FLAG_DEFAULTS
};
pub(super) const TLS_RESUME: Flag = Flag {
    long: "tls-resume",
    value: "on|off|FRACTION",
    default: "on",
    doc: "Resumption of TLS sessions: a new connection resumes the session of an earlier one. off: \
          every handshake is a full one; a fraction, such as 90%: so many of the connections \
          resume, evenly distributed, and the others make a full handshake",
    valid: &["90%", "off", "on"],
    invalid: &["x", "101%"],
    ..FLAG_DEFAULTS
};

pub(super) const TLS_CIPHERS: Flag = Flag {
    long: "tls-ciphers",
    value: "LIST",
    default: "all",
    doc: "Cipher suites by their names at IANA or in OpenSSL, separated by commas or colons, the \
          preferred one first",
    valid: &["TLS_AES_128_GCM_SHA256,ECDHE-RSA-AES128-GCM-SHA256"],
    invalid: &["AES128-SHA", ""],
    ..FLAG_DEFAULTS
};
pub(super) const TLS_GROUPS: Flag = Flag {
    long: "tls-groups",
    value: "LIST",
    default: "X25519,secp256r1,secp384r1,X25519MLKEM768",
    doc: "Groups of the key exchange by their names at IANA or in OpenSSL, separated by commas or \
          colons, the preferred one first",
    valid: &["P-256:X25519"],
    invalid: &["ffdhe2048"],
    ..FLAG_DEFAULTS
};

pub(super) const TLS_NEW: Flag = Flag {
    long: "tls-new",
    value: "FRACTION",
    default: "0%",
    doc: "Share of the new TLS connections that make a full handshake, evenly distributed; the \
          others resume: the same as --tls-resume with the rest",
    valid: &["20%", "0.5"],
    invalid: &["x", "101%"],
    ..FLAG_DEFAULTS
};

/// Returns the texts of the flags of TLS.
pub(super) fn tls_flags(args: CommandArgs<'_>) -> TlsFlags {
    TlsFlags {
        cacert: args.text("cacert"),
        insecure: args.is_set("insecure"),
        cert: args.text("cert"),
        key: args.text("key"),
        tls_min: args.text("tls-min"),
        tls_max: args.text("tls-max"),
        tls_resume: args.text("tls-resume"),
        tls_ciphers: args.text("tls-ciphers"),
        tls_groups: args.text("tls-groups"),
        tls_new: args.text("tls-new"),
    }
}
