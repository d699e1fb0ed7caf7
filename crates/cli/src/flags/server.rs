//! Flags that all servers have: `weir serve` and `weir proxy`.

use super::{FLAG_DEFAULTS, Flag};

pub(super) const LISTEN: Flag = Flag {
    long: "listen",
    short: Some('l'),
    value: "ADDRESS",
    repeatable: true,
    doc: "Address to listen on, repeatable: 127.0.0.1:8080, [::1]:8080, :8080 or \
          unix:/path; port 0: chosen by the kernel",
    valid: &["127.0.0.1:0", "unix:/tmp/weir.sock", ":8001"],
    invalid: &["8000", "127.0.0.1:99999", "unix:"],
    ..FLAG_DEFAULTS
};
pub(super) const THREADS: Flag = Flag {
    long: "threads",
    short: Some('t'),
    value: "N",
    default: "one per CPU",
    doc: "Worker threads",
    valid: &["1"],
    invalid: &["0", "x"],
    ..FLAG_DEFAULTS
};
pub(super) const PIN: Flag = Flag {
    long: "pin",
    value: "CPUS",
    default: "not pinned",
    doc: "CPUs to pin threads to, round-robin: 0,2 or 0-3, or all",
    valid: &["0", "all"],
    invalid: &["x", "3-1"],
    ..FLAG_DEFAULTS
};
pub(super) const TLS_CERT: Flag = Flag {
    long: "tls-cert",
    value: "FILE",
    repeatable: true,
    default: "none",
    doc: "Speak TLS on all listeners, with this certificate chain (PEM); the client's server \
          name selects one of several; may contain its key; repeatable",
    invalid: &["/no/such/file"],
    ..FLAG_DEFAULTS
};
pub(super) const TLS_KEY: Flag = Flag {
    long: "tls-key",
    value: "FILE",
    repeatable: true,
    default: "the files of --tls-cert",
    doc: "Private keys of the certificates, in the order of --tls-cert",
    invalid: &["/no/such/file"],
    ..FLAG_DEFAULTS
};
pub(super) const TLS_SELF_SIGNED: Flag = Flag {
    long: "tls-self-signed",
    doc: "Speak TLS on all listeners, with a new self-signed certificate for localhost, \
          127.0.0.1 and ::1",
    ..FLAG_DEFAULTS
};
pub(super) const XDP: Flag = Flag {
    long: "xdp",
    value: "INTERFACE",
    default: "the kernel's TCP",
    doc: "TCP in user space over AF_XDP, for private networks only: the packets of the connections are taken from \
          the kernel on this interface, until the process ends. Less CPU time for small messages, more for bodies \
          above 2 kB. One queue and one thread, IPv4, no TLS; root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF. \
          --check says what would be taken",
    valid: &[],
    ..FLAG_DEFAULTS
};
pub(super) const XDP_EXPOSED: Flag = Flag {
    long: "xdp-exposed",
    doc: "Let --xdp use an interface with a default route: the TCP in user space has no defence against strangers, \
          so only where none can reach it",
    ..FLAG_DEFAULTS
};
pub(super) const ACCESS_LOG: Flag = Flag {
    long: "access-log",
    value: "FILE|-",
    default: "off",
    doc: "Access log, one line per request; if the disk is too slow, lines are dropped and counted",
    valid: &["-"],
    ..FLAG_DEFAULTS
};
pub(super) const CONNECTIONS_MAX: Flag = Flag {
    long: "connections-max",
    value: "N",
    doc: "Max client connections; at the limit weir stops accepting until one closes",
    valid: &["1k"],
    invalid: &["0", "x"],
    ..FLAG_DEFAULTS
};
pub(super) const DRAIN_TIMEOUT: Flag = Flag {
    long: "drain-timeout",
    value: "TIME",
    default: "30s",
    doc: "Max time for requests in flight after SIGTERM; default unit: s",
    valid: &["5"],
    invalid: &["0", "x"],
    ..FLAG_DEFAULTS
};
pub(super) const UNTIL_STDIN_CLOSES: Flag = Flag {
    long: "until-stdin-closes",
    doc: "Stop as on SIGTERM when stdin closes; for parent processes",
    ..FLAG_DEFAULTS
};
