//! Groups of flags in the help: the headings of the commands with many flags, and their essential
//! flags.

use super::{CommandInfo, Flag};

/// Group of flags under a heading.
#[derive(Debug)]
pub(super) struct FlagGroup {
    pub(super) heading: &'static str,
    pub(super) flags: Vec<&'static Flag>,
    /// Number of essential flags, which come first.
    pub(super) essential: usize,
}

/// Heading, essential flags, other flags; names with spaces between them.
type GroupRow = (&'static str, &'static str, &'static str);

// Groups that `edge` and `fleet edge` share.
const SEARCH_OF_AN_EDGE: GroupRow = (
    "Search",
    "find slo from to quick",
    "precision trial thorough confirm search-only direct target baseline",
);
const LOAD_OF_AN_EDGE: GroupRow = (
    "Load",
    "connections threads timeout",
    "arrivals requests-per-connection source xdp xdp-exposed pin seed no-baseline",
);
const TLS_OF_AN_EDGE: GroupRow =
    ("TLS", "", "insecure cacert cert key tls-min tls-max tls-resume tls-new tls-ciphers tls-groups");
const HTTP_OF_AN_EDGE: GroupRow = ("HTTP versions", "http streams", "window connection-window grpc");
// Group of the commands of a fleet with few flags of their own.
const NATS_SERVER: GroupRow = ("NATS server", "nats", "creds nkey nats-ca nats-cert nats-key nats-token");
// Groups that `load` and `fleet load` share.
const REQUESTS: GroupRow = ("Requests", "", "data method data-file targets weights values cookies capture");
const CHECKS_OF_RESPONSES: GroupRow =
    ("Checks of responses", "", "expect-status expect-bytes expect-hash expect-body expect-header");
const COURSE_OF_THE_LOAD: GroupRow = ("Course of the load", "", "file stages replay speed strict har-hosts");
const TLS_OF_A_LOAD: GroupRow = (
    "TLS",
    "",
    "insecure cacert cert key tls-min tls-max tls-resume tls-new tls-ciphers tls-groups \
     tls-key-log tls",
);
const LIVE: GroupRow = ("WebSocket and server-sent events", "", "ws message-size binary sse");
const HTTP2: GroupRow = ("HTTP/2", "", "window connection-window mix grpc");
const OUTPUT_OF_A_LOAD: GroupRow = (
    "Output",
    "verbose json html",
    "live brief tui check format quiet csv markdown junit openmetrics metrics-listen hdr \
     percentiles",
);
const CONNECTIONS_AND_MACHINE: GroupRow = (
    "Connections and machine",
    "",
    "unix connect-to addresses source xdp xdp-exposed proxy-protocol proxy-source pin spin seed slice \
     control",
);

/// Groups of the commands with many flags. Flags in no group are listed last.
const GROUPS: &[(&str, &[GroupRow])] = &[
    (
        "calibrate",
        &[
            (
                "Load",
                "connections size requests-per-connection method header data timeout tls http streams",
                "xdp tls-min tls-max tls-resume tls-new tls-ciphers tls-groups",
            ),
            ("Trials", "trials trial-time target pin json", ""),
        ],
    ),
    (
        "plan",
        &[
            (
                "Load and servers",
                "rate service servers maxconn backend slo",
                "client-timeout retries server-rate server-connections queue-time service-cv \
                 arrival-cv spare headroom stall overload",
            ),
            (
                "Connections and TLS",
                "",
                "requests-per-connection connections keep-alive tls tls-resume handshake-cpu \
                 resumption-cpu server-requests",
            ),
            (
                "Machines",
                "scaling",
                "cores memory utilisation request-cpu idle-memory request-memory tls-memory \
                 socket-memory fd-limit ports source-addresses time-wait link request-size \
                 response-size client-rate",
            ),
            (
                "Plan",
                "file check config verify json verbose",
                "subject subject-config subject-queue subject-url origin-listen quick markdown",
            ),
        ],
    ),
    (
        "load",
        &[
            (
                "Load",
                "connections rate duration requests threads timeout http streams header",
                "timeout-from requests-per-connection arrivals ramp think max-pending drain pipeline",
            ),
            REQUESTS,
            CHECKS_OF_RESPONSES,
            COURSE_OF_THE_LOAD,
            (
                "Objectives and checks",
                "slo confirm",
                "baseline fail-if max-error-rate on-invalid subject no-watch no-baseline",
            ),
            LIVE,
            TLS_OF_A_LOAD,
            HTTP2,
            OUTPUT_OF_A_LOAD,
            CONNECTIONS_AND_MACHINE,
        ],
    ),
    (
        "fleet load",
        &[
            (
                "Fleet",
                "nats agents on-loss output",
                "store run-name wait creds nkey nats-ca nats-cert nats-key nats-token",
            ),
            (
                "Load",
                "connections rate duration requests timeout http header",
                "threads streams timeout-from requests-per-connection arrivals ramp think max-pending \
                 drain pipeline",
            ),
            REQUESTS,
            CHECKS_OF_RESPONSES,
            COURSE_OF_THE_LOAD,
            (
                "Objectives and checks",
                "slo",
                "confirm baseline fail-if max-error-rate on-invalid subject no-watch no-baseline",
            ),
            LIVE,
            TLS_OF_A_LOAD,
            HTTP2,
            OUTPUT_OF_A_LOAD,
            CONNECTIONS_AND_MACHINE,
        ],
    ),
    (
        "edge",
        &[
            SEARCH_OF_AN_EDGE,
            LOAD_OF_AN_EDGE,
            ("Requests", "method header", "data expect-status"),
            TLS_OF_AN_EDGE,
            HTTP_OF_AN_EDGE,
            ("Output", "json html", "check keep brief markdown junit"),
        ],
    ),
    (
        "fleet edge",
        &[
            ("Fleet", "nats agents", "wait creds nkey nats-ca nats-cert nats-key nats-token"),
            SEARCH_OF_AN_EDGE,
            LOAD_OF_AN_EDGE,
            ("Requests", "", "method header data expect-status"),
            TLS_OF_AN_EDGE,
            HTTP_OF_AN_EDGE,
            ("Output", "json", "html check keep brief markdown junit"),
        ],
    ),
    (
        "proxy",
        &[
            (
                "Config",
                "listen to config check explain",
                "mode balance reuse to-http schema header source certificate",
            ),
            (
                "Operation",
                "control admin access-log",
                "log-format reload-on-change upgrade-from drain-timeout until-stdin-closes",
            ),
            ("TLS", "", "tls-cert tls-key tls-self-signed"),
            ("Resources", "threads", "pin connections-max"),
        ],
    ),
    (
        "serve",
        &[
            (
                "Server",
                "listen threads access-log",
                "access-log-format stats-listen proxy-protocol check pin spin xdp xdp-exposed until-stdin-closes",
            ),
            (
                "Files",
                "list compress spa cors cache-control basic-auth",
                "index header hidden no-symlinks no-precompressed compress-min compress-memory etag \
                 file-cache file-cache-valid",
            ),
            ("TLS", "tls-self-signed", "tls-cert tls-key tls-ciphers tls-groups tls-key-log"),
            ("HTTP/2", "http", "h2-streams-max h2-stream-window h2-connection-window"),
            (
                "Limits",
                "connections-max idle-timeout",
                "head-timeout body-timeout write-timeout drain-timeout head-bytes-max",
            ),
        ],
    ),
    ("fleet agent", &[NATS_SERVER, ("Agent", "name label allow calibrate state", "")]),
    ("fleet ls", &[NATS_SERVER, ("Output", "json", "")]),
    ("fleet runs", &[NATS_SERVER, ("Runs", "store fetch verbose", "brief")]),
    (
        "fleet run",
        &[
            NATS_SERVER,
            ("Run", "check", ""),
            ("Output", "verbose json output store", "run-name markdown junit metrics-listen"),
        ],
    ),
    ("lab serve", &[("Server", "listen store", ""), NATS_SERVER]),
    (
        "lab run",
        &[
            ("Experiment", "list check set resume output", "print json junit"),
            ("Trials", "blocks duration quick", "discard reruns seed allow-changed-environment allow-global"),
            ("Machines of a fleet", "nats", "creds nkey nats-ca nats-cert nats-key nats-token"),
        ],
    ),
    (
        "lab faulty-server",
        &[
            ("Server", "listen threads body", "backlog"),
            ("CPU", "burn syscalls lock allocations", "pages"),
            ("Latency and errors", "delay accept-delay", "error-fraction drop-fraction"),
            ("Files", "data log", "data-bytes log-dsync log-pipe"),
            ("Connections", "", "close-after-response ignore-close split-write"),
        ],
    ),
];

/// Returns the groups of a command's flags. A command with few flags has one group.
pub(super) fn flag_groups(row: &'static CommandInfo) -> Vec<FlagGroup> {
    let rows = GROUPS.iter().find(|(name, _)| *name == row.name).map_or(&[][..], |(_, rows)| rows);
    let find = |name: &str| row.listed_flags().find(|flag| flag.long == name);
    let mut groups: Vec<FlagGroup> = Vec::new();
    for (heading, essential, others) in rows {
        let mut flags: Vec<_> = essential.split_whitespace().filter_map(find).collect();
        let count = flags.len();
        flags.extend(others.split_whitespace().filter_map(find));
        if !flags.is_empty() {
            groups.push(FlagGroup { heading, flags, essential: count });
        }
    }
    let is_grouped =
        |flag: &Flag| groups.iter().any(|group| group.flags.iter().any(|grouped| grouped.long == flag.long));
    let rest: Vec<_> = row.listed_flags().filter(|flag| !is_grouped(flag)).collect();
    if !rest.is_empty() {
        let (heading, essential) = if groups.is_empty() { ("Options", rest.len()) } else { ("Other", 0) };
        groups.push(FlagGroup { heading, flags: rest, essential });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::super::COMMANDS;
    use super::*;

    #[test]
    fn groups_name_existing_flags_once_and_leave_none() {
        for (name, rows) in GROUPS {
            let row = COMMANDS.iter().find(|row| row.name == *name).unwrap();
            let names: Vec<_> = rows
                .iter()
                .flat_map(|(_, essential, others)| essential.split(' ').chain(others.split(' ')))
                .filter(|name| !name.is_empty())
                .collect();
            for (at, name) in names.iter().enumerate() {
                assert!(row.flags.iter().any(|flag| flag.long == *name), "{}: {name}", row.name);
                assert!(!names[..at].contains(name), "{}: {name} twice", row.name);
            }
            for flag in row.flags {
                assert!(names.contains(&flag.long), "{}: --{} has no group", row.name, flag.long);
            }
        }
    }
}
