//! Every metric: its name, kind, labels and meaning, once. What is exported, its `HELP` and the
//! reference are made from this.

use std::fmt::Write;

use super::histogram::BOUNDS_NS;

/// What a metric is, as Prometheus names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// What a number of it is divided by when it is shown: numbers are kept as integers.
    pub(super) fn divisor(self) -> u64 {
        match self {
            Self::ServerWeight => 100,
            Self::Uptime | Self::ReloadTime | Self::ProcessCpu | Self::ProcessStart => {
                1_000_000_000
            }
            _ => 1,
        }
    }
}

/// One metric.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    pub(super) doc: &'static str,
}

macro_rules! metrics {
    ($($variant:ident, $name:literal, $kind:ident, [$($label:literal),*], $doc:literal;)*) => {
        /// A metric; the order is that of the table, and of the export.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Metric {
            $(#[doc = $doc] $variant,)*
        }

        impl Metric {
            pub(super) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(super) fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$(Row {
                    name: $name,
                    kind: Kind::$kind,
                    labels: &[$($label),*],
                    doc: $doc,
                },)*];
                &ROWS[self as usize]
            }
        }
    };
}

metrics! {
    Requests, "weir_requests_total", Counter, ["listener", "end"], "Requests (in mode tcp: connections) that have ended, by how.";
    Responses, "weir_responses_total", Counter, ["listener", "code"], "Responses that were sent to clients, by status code; none where a request ended without one.";
    Refusals, "weir_refusals_total", Counter, ["from", "kind"], "Messages refused as malformed or over a limit, by who sent them (client, server) and why.";
    RequestSeconds, "weir_request_seconds", Histogram, ["route", "class"], "Time of requests from the first byte of the head to the end, by route (- without one) and class of the status that the client was sent (none, 1xx to 5xx). Connections of mode tcp are not in it.";
    QueueSeconds, "weir_pool_queue_seconds", Histogram, ["pool", "class"], "Time that requests waited for a server to have room, those that gave up included.";
    ConnectSeconds, "weir_server_connect_seconds", Histogram, ["pool", "server"], "Time of new connections to servers until they stood.";
    FirstByteSeconds, "weir_server_first_byte_seconds", Histogram, ["pool", "server", "class"], "Time from the request's being sent to the response's head.";
    ServerSeconds, "weir_server_request_seconds", Histogram, ["pool", "server", "class"], "Time of requests that went to a server from the first byte of the head to the end; the class tcp has the connections of mode tcp.";
    Retries, "weir_retries_total", Counter, ["pool"], "How often requests were sent again.";
    RetriesDenied, "weir_retries_denied_total", Counter, ["pool"], "How often a request was not sent again because the budget of retries was used up.";
    ServerConnections, "weir_server_requests_total", Counter, ["pool", "server", "connection"], "Requests for which a connection to the server stood: a new one or a reused one.";
    Wasted, "weir_wasted_responses_total", Counter, ["pool"], "Answers that a server finished when nobody was there to take them any more.";
    Sticky, "weir_sticky_requests_total", Counter, ["pool", "cookie"], "Requests of pools with a sticky cookie, by what it said: hit (to its server), missing, unknown (of a server that is gone), invalid (none of ours), down (of a server that is not up). All but hit were balanced anew.";
    Elsewhere, "weir_hash_elsewhere_total", Counter, ["pool"], "Requests of pools with consistent-hash that did not go to the server that their key belongs to, because it had more than its share, was full or had just failed.";
    Abandoned, "weir_abandoned_requests_total", Counter, ["pool"], "Requests whose client left while a bounded server had them; the server keeps their slot until it ends its response or its connection.";
    BytesIn, "weir_bytes_in_total", Counter, ["listener"], "Bytes received from clients for requests that have ended, heads included.";
    BytesOut, "weir_bytes_out_total", Counter, ["listener"], "Bytes sent to clients for requests that have ended, heads included.";
    Accepted, "weir_connections_accepted_total", Counter, ["listener"], "Connections of clients that were taken on.";
    Closed, "weir_connections_closed_total", Counter, ["listener"], "Connections of clients that have ended.";
    Open, "weir_connections_open", Gauge, ["listener"], "Connections of clients that are open.";
    Refused, "weir_connections_refused_total", Counter, ["reason"], "Connections of clients that were closed before they were served, by why; with process_full and listener_full, also how often some had to wait because the limit was reached. Those of source_table were served.";
    Idle, "weir_pool_idle_connections", Gauge, ["pool", "server"], "Idle connections kept to a server.";
    Bound, "weir_server_bound_requests", Gauge, ["pool", "server"], "Requests that a server may have at a time; 0: any number.";
    Slots, "weir_server_slots", Gauge, ["pool", "server"], "Requests that count toward a server's bound now, on all threads; 0 without a bound.";
    InFlight, "weir_server_requests_in_flight", Gauge, ["pool", "server"], "Requests (in mode tcp: connections) that a server has now.";
    Queued, "weir_pool_queued_requests", Gauge, ["pool"], "Requests that wait for a server to have room.";
    ServerState, "weir_server_state", Gauge, ["pool", "server", "state"], "1 for the state that a server is in, 0 for the others: maintenance, down (by its checks), ejected (until a request that tries it goes well), drain, up.";
    ServerWeight, "weir_server_weight", Gauge, ["pool", "server"], "The weight of a server that is in force: the operator's or the config's, times the percentage of its agent.";
    LastCheck, "weir_server_last_check", Gauge, ["pool", "server", "result"], "1 for the result of the last active check of a server, 0 for the others; the results are those of weir_checks_total.";
    Checks, "weir_checks_total", Counter, ["pool", "server", "result"], "Active checks by what came of them: passed, unreachable, timeout, closed, malformed, status, body, agent (it says that its server is down), not_made (no descriptor, port or memory was left here).";
    CheckChanges, "weir_check_changes_total", Counter, ["pool", "server", "to"], "How often checks found a server up that was down, or down that was up.";
    Ejections, "weir_ejections_total", Counter, ["pool", "server", "reason"], "Ejections of servers by why: failures and errors (so many in a row), error_rate, latency, trial (the request that tried it afterwards failed).";
    Spared, "weir_ejections_spared_total", Counter, ["pool", "server"], "Ejections that were not made, because of max-ejected or because no other server was left.";
    DnsQueries, "weir_dns_queries_total", Counter, ["name", "result"], "Questions to nameservers by what came of them: answered, empty, no_name, refused, timeout, malformed, network.";
    DnsFailing, "weir_dns_failing", Gauge, ["name"], "How many pools have this name and no answer for it just now; what was known last holds.";
    LogLines, "weir_log_lines_total", Counter, ["target", "result"], "Log lines by what became of them: written; lost: behind (the target was too slow), failed (it refused them), waiting (it had refused others and was not tried again yet).";
    BuffersLent, "weir_buffers_lent", Gauge, [], "Buffers in use.";
    BuffersRefused, "weir_buffers_refused_total", Counter, [], "How often no buffer was left.";
    RequestsInFlight, "weir_requests_in_flight", Gauge, [], "Requests (in mode tcp: connections) that are in flight now.";
    AbandonedNow, "weir_abandoned_requests", Gauge, [], "Requests whose clients have left and whose slots servers still have.";
    IdleClients, "weir_idle_connections", Gauge, [], "Connections of clients that are between two requests.";
    IdleMemory, "weir_idle_connections_memory_bytes", Gauge, [], "User-space memory of all of those.";
    IdleEach, "weir_idle_connection_bytes", Gauge, [], "User-space memory of one of those on average; 0 when there is none.";
    SeriesDropped, "weir_series_dropped_total", Counter, [], "Series of names that the config no longer has which were forgotten because there were too many.";
    BuildInfo, "weir_build_info", Gauge, ["version"], "1, with the version of weir.";
    Uptime, "weir_uptime_seconds", Gauge, [], "Time since the process started.";
    Threads, "weir_threads", Gauge, [], "Threads that serve connections, a core each.";
    Reloads, "weir_reloads_total", Counter, ["result"], "Reloads of the config by result: applied, refused.";
    ReloadTime, "weir_last_reload_timestamp_seconds", Gauge, ["result"], "Time of the last reload with this result, in seconds since 1970; 0: there was none.";
    ReloadSucceeded, "weir_last_reload_successful", Gauge, [], "1 when the last reload was applied, or there was none; 0 when it was refused.";
    ProcessCpu, "process_cpu_seconds_total", Counter, [], "User and system CPU time of the process.";
    ProcessStart, "process_start_time_seconds", Gauge, [], "Start time of the process, in seconds since 1970.";
    ProcessResident, "process_resident_memory_bytes", Gauge, [], "Resident memory of the process.";
    ProcessVirtual, "process_virtual_memory_bytes", Gauge, [], "Virtual memory of the process.";
    ProcessOpen, "process_open_fds", Gauge, [], "Open file descriptors, of all descriptor tables: each core has its own.";
    ProcessMax, "process_max_fds", Gauge, [], "The limit of file descriptors of each descriptor table.";
    ProcessThreads, "process_threads", Gauge, [], "Threads of the process, those that serve no connections included.";
}

/// The metrics, as a chapter of the reference in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = "| Metric | Kind | Labels | Meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for row in Metric::ALL.iter().map(|metric| metric.row()) {
        let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (row.name, row.kind.name());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {} |", labels.join(", "), row.doc);
    }
    let bounds: Vec<String> =
        BOUNDS_NS.iter().map(|&bound| (bound as f64 / 1e9).to_string()).collect();
    let _ = writeln!(
        text,
        "\nBounds of all histograms, in seconds: {}. The percentiles of the status page and of \
         `weir ctl top` come from finer buckets, and are right to 3.2 % from 50 µs.",
        bounds.join(", ")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        let mut names = std::collections::BTreeSet::new();
        for row in Metric::ALL.iter().map(|metric| metric.row()) {
            let name = row.name;
            assert!(names.insert(name), "{name} twice");
            assert!(name.starts_with("weir_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), row.kind == Kind::Counter, "{name}");
            let is_time = name.ends_with("_seconds") && row.kind != Kind::Gauge;
            assert_eq!(is_time, row.kind == Kind::Histogram, "{name}");
            assert!(row.doc.ends_with('.') && !row.doc.contains(['|', '\n']), "{name}");
        }
    }

    #[test]
    fn the_reference_has_every_metric_and_bound() {
        let text = reference();
        assert!(Metric::ALL.iter().all(|metric| text.contains(metric.row().name)));
        assert!(text.contains("in seconds: 0.00005, 0.0001, ") && text.contains(", 50, 60."));
    }
}
