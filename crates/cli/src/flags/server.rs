//! Flags that all servers have: `weir serve` and `weir proxy`.

use super::{Flag, flag, switch};

pub(super) const LISTEN: Flag = flag("listen", "ADDRESS")
    .short('l')
    .repeatable()
    .values(&["127.0.0.1:0", "unix:/tmp/weir.sock", ":8001"], &["8000", "127.0.0.1:99999", "unix:"])
    .doc(
        "Address to listen on, repeatable: 127.0.0.1:8080, [::1]:8080, :8080 or \
         unix:/path; port 0: chosen by the kernel",
    );
pub(super) const THREADS: Flag =
    flag("threads", "N").short('t').default("one per CPU").values(&["1"], &["0", "x"]).doc("Worker threads");
pub(super) const PIN: Flag = flag("pin", "CPUS")
    .default("not pinned")
    .values(&["0", "all"], &["x", "3-1"])
    .doc("CPUs to pin threads to, round-robin: 0,2 or 0-3, or all");
pub(super) const TLS_CERT: Flag =
    flag("tls-cert", "FILE").repeatable().default("none").values(&[], &["/no/such/file"]).doc(
        "Speak TLS on all listeners, with this certificate chain (PEM); the client's server \
         name selects one of several; may contain its key; repeatable",
    );
pub(super) const TLS_KEY: Flag = flag("tls-key", "FILE")
    .repeatable()
    .default("the files of --tls-cert")
    .values(&[], &["/no/such/file"])
    .doc("Private keys of the certificates, in the order of --tls-cert");
pub(super) const TLS_SELF_SIGNED: Flag = switch("tls-self-signed").doc(
    "Speak TLS on all listeners, with a new self-signed certificate for localhost, \
     127.0.0.1 and ::1",
);
pub(super) const ACCESS_LOG: Flag = flag("access-log", "FILE|-")
    .default("off")
    .values(&["-"], &[])
    .doc("Access log, one line per request; if the disk is too slow, lines are dropped and counted");
pub(super) const CONNECTIONS_MAX: Flag = flag("connections-max", "N")
    .values(&["1k"], &["0", "x"])
    .doc("Max client connections; at the limit weir stops accepting until one closes");
pub(super) const DRAIN_TIMEOUT: Flag = flag("drain-timeout", "TIME")
    .default("30s")
    .values(&["5"], &["0", "x"])
    .doc("Max time for requests in flight after SIGTERM; default unit: s");
pub(super) const UNTIL_STDIN_CLOSES: Flag =
    switch("until-stdin-closes").doc("Stop as on SIGTERM when stdin closes; for parent processes");
pub(super) const XDP: Flag = flag("xdp", "INTERFACE").default("the kernel's TCP").doc(
    "TCP in user space over AF_XDP, for private networks only: the packets of the connections are taken from \
     the kernel on this interface, until the process ends. Less CPU time for small messages, more for bodies \
     above 2 kB. A thread for each receiving queue (-t), 1 by default; root, or CAP_NET_ADMIN, CAP_NET_RAW and \
     CAP_BPF. --check of load, edge and serve says what would be taken",
);
pub(super) const XDP_EXPOSED: Flag = switch("xdp-exposed").doc(
    "Let --xdp use an interface with a default route: the TCP in user space has no defence against \
     strangers, so only where none can reach it",
);
