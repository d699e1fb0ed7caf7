//! Table of all metrics: name, kind, labels and meaning. The export, its `HELP` lines and the
//! reference are generated from it.

use std::fmt::Write;

use super::histogram::BOUNDS_NS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// Returns the divisor for display, because numbers are kept as integers.
    pub(super) fn divisor(self) -> u64 {
        match self {
            Self::ServerWeight => 100,
            Self::Uptime | Self::ReloadTime | Self::MapLoadTime | Self::ProcessCpu | Self::ProcessStart => {
                1_000_000_000
            }
            _ => 1,
        }
    }
}

#[derive(Debug)]
pub(super) struct MetricSpec {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
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

            pub(super) fn row(self) -> &'static MetricSpec {
                const ROWS: &[MetricSpec] = &[$(MetricSpec {
                    name: $name,
                    kind: MetricKind::$kind,
                    labels: &[$($label),*],
                    doc: $doc,
                },)*];
                &ROWS[self as usize]
            }
        }
    };
}

metrics! {
    Requests, "weir_requests_total", Counter, ["listener", "end"], "Ended requests (mode tcp: connections), by end code.";
    Responses, "weir_responses_total", Counter, ["listener", "code"], "Responses to clients by status code; none: requests that ended without a response.";
    MessagesRejected, "weir_messages_rejected_total", Counter, ["from", "reason"], "Messages rejected as malformed or over a limit, by sender (client, server) and reason.";
    RequestSeconds, "weir_request_seconds", Histogram, ["route", "class"], "Time of requests from the first byte of the head to the end, by route (-: no route) and class of the response status (none, 1xx to 5xx). Connections of mode tcp are not included.";
    QueueSeconds, "weir_pool_queue_seconds", Histogram, ["pool", "class"], "Time of requests in the queue, including requests that left it without a server.";
    ConnectSeconds, "weir_server_connect_seconds", Histogram, ["pool", "server"], "Time to connect to a server.";
    FirstByteSeconds, "weir_server_first_byte_seconds", Histogram, ["pool", "server", "class"], "Time from the end of the request to the response head.";
    ServerSeconds, "weir_server_request_seconds", Histogram, ["pool", "server", "class"], "Time of requests to a server from the first byte of the head to the end; the class tcp has the connections of mode tcp.";
    Subrequests, "weir_subrequests_total", Counter, ["pool", "end"], "Ended requests of the proxy's own (subrequests) to a pool, by end code. The metrics of listeners and routes, and the access logs, do not include them; those of pools and servers do.";
    SubrequestsRefused, "weir_subrequests_refused_total", Counter, [], "Subrequests that were not made, because 1024 were in flight on their core.";
    SubrequestsInFlight, "weir_subrequests_in_flight", Gauge, [], "Subrequests in flight.";
    MirroredRequests, "weir_mirrored_requests_total", Counter, ["route", "mirror", "original", "mirrored"], "Requests that were copied to a pool (mirror), when both have ended, by class of the status of the original response and of the copy's (none: no response).";
    MirrorComparisons, "weir_mirror_comparisons_total", Counter, ["route", "mirror", "result"], "These requests by result: equal or different status, or unanswered (the copy has no response in time).";
    MirrorSeconds, "weir_mirror_seconds", Histogram, ["route", "mirror", "from"], "Time from the end of a copied request to the response head, from the original and from the mirror.";
    MirrorsDropped, "weir_mirrors_dropped_total", Counter, ["route", "mirror", "reason"], "Requests that were not copied although they were selected, by reason: body_too_large (body-max), in_flight (in-flight, or 1024 subrequests of the core), memory (16 MiB of copies of the core), incomplete (the request ended before its body).";
    MirrorsInFlight, "weir_mirrors_in_flight", Gauge, [], "Copies of requests in flight, of all mirrors.";
    MirrorMemory, "weir_mirrors_memory_bytes", Gauge, [], "Memory that these copies may use now.";
    CacheRequests, "weir_cache_requests_total", Counter, ["cache", "route", "result"], "Requests of routes with `cache` by result: hit, stale, stale_if_error, revalidated, coalesced, miss, bypass, unsatisfied (see \"Caching\" of the config).";
    CacheNotStored, "weir_cache_not_stored_total", Counter, ["cache", "route", "reason"], "Responses of routes with `cache` that were not stored, by reason (see \"Caching\" of the config).";
    CacheResponses, "weir_cache_responses", Gauge, ["cache", "in"], "Stored responses in memory and on disk.";
    CacheBytes, "weir_cache_bytes", Gauge, ["cache", "in"], "Memory of the stored responses and of those that arrive, and size of the files on disk.";
    CacheStored, "weir_cache_stored_total", Counter, ["cache"], "Responses that were stored, or validated.";
    CacheEvicted, "weir_cache_evicted_total", Counter, ["cache", "in"], "Stored responses that were removed for others, from memory and from disk.";
    CachePurged, "weir_cache_purged_total", Counter, ["cache"], "Stored responses that were removed by `weir ctl cache purge`, or by a response to an unsafe method.";
    CacheFills, "weir_cache_fills", Gauge, ["cache"], "Responses that arrive and may be stored.";
    CacheWaiters, "weir_cache_waiting_requests", Gauge, ["cache"], "Requests that wait for the response to an equal one.";
    CacheDiskJobs, "weir_cache_disk_total", Counter, ["cache", "result"], "Files of stored responses by result: written, read, queue_full (not written, because 1024 jobs waited for the threads), no_space (not written), error (a failed call), damaged (torn or foreign, and removed).";
    CacheDiskQueue, "weir_cache_disk_queued", Gauge, ["cache"], "Jobs that wait for a thread of the disk.";
    CacheDiskReady, "weir_cache_disk_ready", Gauge, ["cache"], "1 once this process uses the directory and knows all its files, 0 while another process uses it or a scan reads them.";
    CacheRefreshes, "weir_cache_refreshes_total", Counter, ["cache", "route", "result"], "Requests in the background that validate a stale response (`stale-while-revalidate`) or fetch the whole of one of which a part was asked for, by result: started, or refused because 64 of the core were in progress.";
    Hedges, "weir_hedges_total", Counter, ["route", "result"], "Requests whose response was late (hedge): sent (to a second server, too), of which each is later won (its response was forwarded), lost (the first server's was, or the client left) or failed (no response, or one with 5xx while the first server still worked); no_budget (the retry budget was exhausted), no_server (no other server had a free slot).";
    Retries, "weir_retries_total", Counter, ["pool"], "Retries.";
    RetriesDenied, "weir_retries_denied_total", Counter, ["pool"], "Retries that were not made, because the retry budget was exhausted.";
    ServerConnections, "weir_server_requests_total", Counter, ["pool", "server", "connection"], "Requests with an established connection to the server, by connection: new or reused.";
    Wasted, "weir_wasted_responses_total", Counter, ["pool"], "Responses that a server completed after their clients had left.";
    Sticky, "weir_sticky_requests_total", Counter, ["pool", "cookie"], "Requests of pools with sticky clients, by their cookie, or the entry of their session: hit (sent to its server), missing (a request without the text of a session is not counted), unknown (the server no longer exists), invalid (not from this proxy), down (the server is not up). All but hit were balanced again.";
    HashOverflow, "weir_hash_overflow_total", Counter, ["pool"], "Requests of pools with consistent-hash that were not sent to the server of their key, because that server had reached its load factor, was full or had just failed.";
    SplitFallbacks, "weir_split_fallbacks_total", Counter, ["pool"], "Requests of a `split` with `fallback` that this pool got because the chosen one had no usable server; absent while there is none.";
    Abandoned, "weir_abandoned_requests_total", Counter, ["pool"], "Requests whose client left while a limited server processed them; the server keeps their slot until the response or the connection ends.";
    BytesIn, "weir_bytes_in_total", Counter, ["listener"], "Bytes received from clients for ended requests, including heads.";
    BytesOut, "weir_bytes_out_total", Counter, ["listener"], "Bytes sent to clients for ended requests, including heads.";
    Accepted, "weir_connections_accepted_total", Counter, ["listener"], "Accepted client connections.";
    Closed, "weir_connections_closed_total", Counter, ["listener"], "Closed client connections.";
    Open, "weir_connections_open", Gauge, ["listener"], "Open client connections.";
    TlsHandshakes, "weir_tls_handshakes_total", Counter, ["listener", "result"], "TLS handshakes of clients by result: full, resumed (from a ticket of an earlier connection), failed (also those that took too long). Connections that ended before they sent a byte are not included.";
    H2Connections, "weir_http2_connections_total", Counter, ["listener"], "Client connections that began HTTP/2, by ALPN or with prior knowledge.";
    H2Streams, "weir_http2_streams_total", Counter, ["listener"], "HTTP/2 streams that clients opened; each is one request.";
    H2Resets, "weir_http2_resets_total", Counter, ["listener", "from", "code"], "HTTP/2 streams that were reset, by sender (client, proxy) and error code of RFC 9113 §7.";
    H2GoAways, "weir_http2_goaways_total", Counter, ["listener", "from", "code"], "HTTP/2 connections whose end was announced with GOAWAY, by sender (client, proxy) and error code.";
    H2Faults, "weir_http2_faults_total", Counter, ["listener", "fault"], "Violations of HTTP/2 by clients, which ended a stream or the connection, by kind.";
    H2PingsLost, "weir_http2_pings_lost_total", Counter, ["listener"], "HTTP/2 connections of clients that were reset because no byte followed a PING frame in time.";
    H2StreamsOpen, "weir_http2_streams_open", Gauge, [], "HTTP/2 streams of clients in progress.";
    ClientHellos, "weir_client_hellos_total", Counter, ["listener", "result"], "ClientHellos on listeners with sni by result: matched (an entry of sni), default (none; forwarded to the default pool), unknown (none; rejected), invalid (no valid ClientHello in time).";
    RevocationListExpiry, "weir_tls_crl_expiry_timestamp_seconds", Gauge, ["listener", "file", "issuer"], "Time of the next update of a revocation list (`client-crl`), in seconds since 1970: from then on, clients of its issuer are rejected.";
    CertificateExpiry, "weir_acme_certificate_expiry_timestamp_seconds", Gauge, ["domain"], "End of the validity of an automatic certificate, in seconds since 1970; 0: there is none yet.";
    AcmeOrders, "weir_acme_orders_total", Counter, ["domain", "result"], "Orders of automatic certificates by result: issued, failed.";
    Refused, "weir_connections_refused_total", Counter, ["reason"], "Client connections that were closed before they were served, by reason. For process_full and listener_full, this includes connections that had to wait for the limit. Connections counted as source_table were served.";
    LongTexts, "weir_long_texts_total", Counter, [], "Texts with values that were longer than 64 KiB. A request with such a field, location or body gets 431; such a field of a response is left out.";
    BandwidthWaits, "weir_limit_rate_waits_total", Counter, [], "Waits of messages and tunnels for bytes that `limit-rate`, `limit-rate-total` or `limit-rate-upload` did not allow yet.";
    Auth, "weir_auth_total", Counter, ["kind", "result"], "Authentications of requests by kind (basic, jwt, request) and result (see \"Authentication\" of the config).";
    AuthFileFailures, "weir_auth_file_failures_total", Counter, ["file"], "Reads of a file with users or keys that failed; its previous content stays.";
    PasswordChecks, "weir_password_checks_pending", Gauge, [], "Checks of passwords that wait or run, on all threads.";
    JwksKeys, "weir_jwks_keys", Gauge, ["url"], "Keys of a URL that are in use.";
    JwksRequests, "weir_jwks_requests_total", Counter, ["url", "result"], "Requests for the keys of a URL by result: loaded, failed (the previous keys stay).";
    JwksLoadTime, "weir_jwks_loaded_timestamp_seconds", Gauge, ["url"], "Time of the last request for the keys of a URL that succeeded, in seconds since 1970; 0: none.";
    Compressed, "weir_compressed_responses_total", Counter, ["coding"], "Responses of servers that got a content coding (`compression`).";
    Uncompressed, "weir_uncompressed_responses_total", Counter, [], "Responses of servers that kept their coding, or got none, because the encoders and decoders of their thread used the memory of encoders-max.";
    Decompressed, "weir_decompressed_responses_total", Counter, ["coding"], "Responses of servers whose content was decoded for clients that do not accept its coding (`decode`).";
    CompressionIn, "weir_compression_in_bytes_total", Counter, [], "Content of servers that was compressed, in bytes before.";
    CompressionOut, "weir_compression_out_bytes_total", Counter, [], "Content of servers that was compressed, in bytes after.";
    EncoderMemory, "weir_encoders_memory_bytes", Gauge, [], "Memory that the encoders and decoders of responses may use now, as counted for encoders-max.";
    Idle, "weir_pool_idle_connections", Gauge, ["pool", "server"], "Idle connections to a server; of HTTP/2 those without a stream in progress.";
    ServerTlsHandshakes, "weir_server_tls_handshakes_total", Counter, ["pool", "server", "result"], "TLS handshakes with a server for requests by result: full, resumed, failed; those of active checks are not included.";
    ServerH2Connections, "weir_server_http2_connections_total", Counter, ["pool", "server"], "Connections to a server that began HTTP/2.";
    ServerH2ConnectionsOpen, "weir_server_http2_connections_open", Gauge, ["pool", "server"], "Open HTTP/2 connections to a server.";
    ServerH2StreamsOpen, "weir_server_http2_streams_open", Gauge, ["pool", "server"], "HTTP/2 streams in progress at a server; each is one request.";
    ServerH2Resets, "weir_server_http2_resets_total", Counter, ["pool", "server", "from", "code"], "HTTP/2 streams to a server that were reset, by sender (server, proxy) and error code of RFC 9113 §7; those above the last stream of GOAWAY count as refused_stream.";
    ServerH2Faults, "weir_server_http2_faults_total", Counter, ["pool", "server", "fault"], "Violations of HTTP/2 by a server, which ended a stream or the connection, by kind.";
    ServerH2Unprocessed, "weir_server_http2_unprocessed_total", Counter, ["pool", "server"], "Requests that a server reported as not processed: with REFUSED_STREAM, or by the last stream of GOAWAY.";
    ServerH2GoAways, "weir_server_http2_goaways_total", Counter, ["pool", "server"], "HTTP/2 connections whose end a server announced with GOAWAY.";
    ServerH2PingsLost, "weir_server_http2_pings_lost_total", Counter, ["pool", "server"], "HTTP/2 connections that were closed because a PING frame got no response in time.";
    RequestsMax, "weir_server_requests_max", Gauge, ["pool", "server"], "Maximum number of concurrent requests of a server; 0: no limit.";
    Slots, "weir_server_slots", Gauge, ["pool", "server"], "Used slots of a server with a maximum number of requests, on all threads; 0: no limit.";
    InFlight, "weir_server_requests_in_flight", Gauge, ["pool", "server"], "Requests (mode tcp: connections) in flight at a server.";
    Queued, "weir_pool_queued_requests", Gauge, ["pool"], "Requests in the queue.";
    ServerState, "weir_server_state", Gauge, ["pool", "server", "state"], "1 for the current state of a server, 0 for the others: maintenance, down (failed checks), ejected (until a probe request succeeds), drain, up.";
    ServerWeight, "weir_server_weight", Gauge, ["pool", "server"], "Effective weight of a server: the weight from the operator or the config, multiplied by the percentage from the agent.";
    LastCheck, "weir_server_last_check", Gauge, ["pool", "server", "result"], "1 for the result of the last active check of a server, 0 for the others; the results are those of weir_checks_total.";
    Checks, "weir_checks_total", Counter, ["pool", "server", "result"], "Active checks by result: passed, unreachable, timeout, tls (the TLS handshake failed), closed, malformed, status, body, agent (the agent reports the server down), skipped (no free descriptor, port or memory in this process).";
    CheckChanges, "weir_check_changes_total", Counter, ["pool", "server", "to"], "Changes of a server's check state, by new state.";
    Ejections, "weir_ejections_total", Counter, ["pool", "server", "reason"], "Ejections of servers by reason: failures and errors (consecutive ones), error_rate, latency, probe (the probe request after an ejection failed).";
    EjectionsSuppressed, "weir_ejections_suppressed_total", Counter, ["pool", "server"], "Ejections suppressed by max-ejected, or because no other server was left.";
    DnsQueries, "weir_dns_queries_total", Counter, ["name", "result"], "DNS queries by result: answered, empty, no_name, refused, timeout, malformed, network.";
    DnsFailing, "weir_dns_failing", Gauge, ["name"], "Pools whose last lookup of this name failed; the previous addresses stay in use.";
    LogLines, "weir_log_lines_total", Counter, ["target", "result"], "Log lines by result: written, or lost: overflow (the target was too slow), failed (the target rejected them), backoff (the target was not tried again yet after a failure).";
    TraceSpans, "weir_trace_spans_total", Counter, ["result"], "Spans of `[tracing]` by result: exported, or lost: overflow (the export thread was too slow), failed (the collector did not take them); and requests over `requests-rate`, which have none: rate.";
    LogRotations, "weir_log_rotations_total", Counter, ["target", "result"], "Log files of `rotate-size` by result: rotated, failed (the file grows).";
    MapEntries, "weir_map_entries", Gauge, ["map"], "Entries of a map, or of a list of networks, which has the name of its file.";
    MapMemory, "weir_map_memory_bytes", Gauge, ["map"], "Memory of a map.";
    MapChanges, "weir_map_changes", Gauge, ["map"], "Changes of a map by operators (`weir ctl map`) since its file was read.";
    MapLoads, "weir_map_loads_total", Counter, ["map", "result"], "Reads of the file of a map by result: loaded, failed (the previous content stays).";
    MapLoadTime, "weir_map_loaded_timestamp_seconds", Gauge, ["map"], "Time of the last read that was loaded, in seconds since 1970; 0: the map has no file.";
    MapLoadSucceeded, "weir_map_last_load_successful", Gauge, ["map"], "1 if the last read of the file was loaded, 0 if it failed.";
    BuffersInUse, "weir_buffers_in_use", Gauge, [], "Buffers in use.";
    BuffersExhausted, "weir_buffers_exhausted_total", Counter, [], "Requests for a buffer while none was free.";
    RequestsInFlight, "weir_requests_in_flight", Gauge, [], "Requests (mode tcp: connections) in flight.";
    AbandonedRequests, "weir_abandoned_requests", Gauge, [], "Requests whose clients have left and that still occupy slots of servers.";
    IdleClients, "weir_idle_connections", Gauge, [], "Client connections between two requests.";
    IdleMemory, "weir_idle_connections_memory_bytes", Gauge, [], "User-space memory of all idle client connections, without TLS sessions.";
    IdleMemoryAverage, "weir_idle_connection_bytes", Gauge, [], "Average user-space memory of an idle client connection, without a TLS session; 0 if there is none.";
    SeriesDropped, "weir_series_dropped_total", Counter, [], "Series dropped because there were too many of names that the config no longer contains.";
    BuildInfo, "weir_build_info", Gauge, ["version"], "Constant 1, with the version of weir.";
    Uptime, "weir_uptime_seconds", Gauge, [], "Time since the process started.";
    Threads, "weir_threads", Gauge, [], "Threads that serve connections, one per core.";
    Generations, "weir_config_generations", Gauge, [], "Config generations in use: the current one of each thread, and replaced ones with requests in flight. A changed DNS result creates none.";
    Reloads, "weir_reloads_total", Counter, ["result"], "Reloads of the config by result: applied, refused.";
    ReloadTime, "weir_last_reload_timestamp_seconds", Gauge, ["result"], "Time of the last reload with this result, in seconds since 1970; 0: none.";
    ReloadSucceeded, "weir_last_reload_successful", Gauge, [], "1 if the last reload was applied or there was none, 0 if it was refused.";
    ProcessCpu, "process_cpu_seconds_total", Counter, [], "User and system CPU time of the process.";
    ProcessStart, "process_start_time_seconds", Gauge, [], "Start time of the process, in seconds since 1970.";
    ProcessResident, "process_resident_memory_bytes", Gauge, [], "Resident memory of the process.";
    ProcessVirtual, "process_virtual_memory_bytes", Gauge, [], "Virtual memory of the process.";
    ProcessOpen, "process_open_fds", Gauge, [], "Open file descriptors in all descriptor tables; each core has its own table.";
    ProcessMax, "process_max_fds", Gauge, [], "Maximum number of file descriptors of each descriptor table.";
    ProcessThreads, "process_threads", Gauge, [], "Threads of the process, including those that serve no connections.";
}

pub fn reference() -> String {
    let mut text = "| Metric | Kind | Labels | Meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for row in Metric::ALL.iter().map(|metric| metric.row()) {
        let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (row.name, row.kind.name());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {} |", labels.join(", "), row.doc);
    }
    let bounds: Vec<String> = BOUNDS_NS.iter().map(|&bound| (bound as f64 / 1e9).to_string()).collect();
    let _ = writeln!(
        text,
        "\nBucket bounds of all histograms, in seconds: {}. The percentiles of the status page and of \
         `weir ctl top` come from finer buckets, with an error of at most 3.2 % from 50 µs.\n\n\
         A client of `/metrics` that prefers `application/openmetrics-text` in `Accept`, as Prometheus does, gets \
         OpenMetrics 1.0.0, with the same names and bounds. With `[tracing]`, each bucket of \
         `weir_request_seconds` has an exemplar there: `trace_id` of the last request in it whose spans were \
         recorded, its time and its end. Each thread keeps one for each bucket of a route and class, and the newest is shown.",
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
            let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(name.bytes().all(is_allowed), "{name}");
            assert_eq!(name.ends_with("_total"), row.kind == MetricKind::Counter, "{name}");
            let is_time = name.ends_with("_seconds") && row.kind != MetricKind::Gauge;
            assert_eq!(is_time, row.kind == MetricKind::Histogram, "{name}");
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
