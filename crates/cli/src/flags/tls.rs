//! The flags of TLS of the commands that generate load. Names are those of curl where their meaning
//! is the same.

use load::plan::TlsFlags;

use super::{CommandArgs, Flag, command_flags, flag, switch};

pub(super) const CACERT: Flag = flag("cacert", "FILE")
    .default("the certificate authorities that this host trusts")
    .values(&[], &["/no/such/file"])
    .doc(
        "PEM file of the certificate authorities for https servers, which prove the host of \
         the URL",
    );
pub(super) const INSECURE: Flag =
    switch("insecure").short('k').doc("Accept any certificate of an https server");
pub(super) const CERT: Flag = flag("cert", "FILE")
    .default("none")
    .values(&[], &["/no/such/file"])
    .doc("PEM file of the client's own certificate chain; may contain its key");
pub(super) const KEY: Flag = flag("key", "FILE")
    .default("the file of --cert")
    .values(&[], &["/no/such/file"])
    .doc("PEM file of the private key of --cert");
pub(super) const TLS_MIN: Flag =
    flag("tls-min", "1.2|1.3").default("1.2").values(&["1.3"], &["1.1", "x"]).doc("Oldest version of TLS");
pub(super) const TLS_MAX: Flag =
    flag("tls-max", "1.2|1.3").default("1.3").values(&["1.2"], &["1.1", "x"]).doc("Newest version of TLS");
pub(super) const TLS_RESUME: Flag =
    flag("tls-resume", "on|off|FRACTION").default("on").values(&["90%", "off", "on"], &["x", "101%"]).doc(
        "Resumption of TLS sessions: a new connection resumes the session of an earlier one. off: \
         every handshake is a full one; a fraction, such as 90%: so many of the connections \
         resume, evenly distributed, and the others make a full handshake",
    );

pub(super) const TLS_NEW: Flag =
    flag("tls-new", "FRACTION").default("0%").values(&["20%", "0.5"], &["x", "101%"]).doc(
        "Share of the new TLS connections that make a full handshake, evenly distributed; the \
         others resume: the same as --tls-resume with the rest",
    );
pub(super) const TLS_CIPHERS: Flag = flag("tls-ciphers", "LIST")
    .default("all")
    .values(&["TLS_AES_128_GCM_SHA256,ECDHE-RSA-AES128-GCM-SHA256"], &["AES128-SHA", ""])
    .doc(
        "Cipher suites by their names at IANA or in OpenSSL, separated by commas or colons, the \
         preferred one first",
    );
pub(super) const TLS_GROUPS: Flag = flag("tls-groups", "LIST")
    .default("X25519,secp256r1,secp384r1,X25519MLKEM768")
    .values(&["P-256:X25519"], &["ffdhe2048"])
    .doc(
        "Groups of the key exchange by their names at IANA or in OpenSSL, separated by commas or \
         colons, the preferred one first",
    );

pub(super) const TLS_KEY_LOG: Flag = flag("tls-key-log", "FILE")
    .default("none; the environment (SSLKEYLOGFILE) is not read")
    .values(&[], &["/no/such/directory/keys.log"])
    .doc(
        "Write the secrets of all TLS sessions to this file (mode 0600), to decrypt captured \
         connections",
    );

pub(super) fn tls_flags(args: CommandArgs<'_>) -> TlsFlags {
    TlsFlags {
        cacert: args.text("cacert"),
        insecure: args.is_set("insecure"),
        cert: args.text("cert"),
        key: args.text("key"),
        tls_min: args.text("tls-min"),
        tls_max: args.text("tls-max"),
        tls_resume: args.text("tls-resume"),
        tls_new: args.text("tls-new"),
        tls_ciphers: args.text("tls-ciphers"),
        tls_groups: args.text("tls-groups"),
        tls_key_log: args.text("tls-key-log"),
    }
}

command_flags! {
    /// Versions of TLS, and the resumption of its sessions.
    pub(crate) struct TlsHandshakeFlags {
        min: Option<String> = TLS_MIN.text(),
        max: Option<String> = TLS_MAX.text(),
        resume: Option<String> = TLS_RESUME.text(),
        new: Option<String> = TLS_NEW.text(),
    }
}

command_flags! {
    /// Cipher suites and groups of the key exchange.
    pub(crate) struct TlsSuiteFlags {
        ciphers: Option<String> = TLS_CIPHERS.text(),
        groups: Option<String> = TLS_GROUPS.text(),
    }
}

impl TlsHandshakeFlags {
    pub(super) fn add_to(&self, texts: &mut TlsFlags) {
        texts.tls_min.clone_from(&self.min);
        texts.tls_max.clone_from(&self.max);
        texts.tls_resume.clone_from(&self.resume);
        texts.tls_new.clone_from(&self.new);
    }
}

impl TlsSuiteFlags {
    pub(super) fn add_to(&self, texts: &mut TlsFlags) {
        texts.tls_ciphers.clone_from(&self.ciphers);
        texts.tls_groups.clone_from(&self.groups);
    }
}
