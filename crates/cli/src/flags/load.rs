//! The flags of `weir load`. The letters are h1load's where their meaning
//! is the same.

use std::io;

use load::plan::{LoadFlags, TlsFlags, XdpFlags};
use record::problem::InputProblem;

use super::http::{CONNECTION_WINDOW, GRPC, HTTP, MIX, STREAMS, WINDOW, http_flags};
use super::load_examples::EXAMPLES;
use super::load_output::{
    BASELINE, CHECK, CONFIRM, CONTROL, CSV, FAIL_IF, FORMAT, HDR, HTML, JUNIT, MARKDOWN, NO_BASELINE,
    ON_INVALID, PERCENTILES, SLICE, SUBJECT, TUI,
};
use super::load_requests::{
    ADDRESSES, BINARY, CAPTURE, CONNECT_TO, COOKIES, EXPECT_BODY, EXPECT_BYTES, EXPECT_HASH, EXPECT_HEADER,
    EXPECT_STATUS, FILE, HAR_HOSTS, MESSAGE_SIZE, METRICS_LISTEN, OPENMETRICS, PIPELINE, PROXY_PROTOCOL,
    PROXY_SOURCE, REPLAY, SPEED, SSE, STAGES, STRICT, TARGETS, VALUES, WEIGHTS, WS, expect_flags, replay,
    requests_of_files, values,
};
use super::server::{XDP, XDP_EXPOSED};
use super::tls::{
    CACERT, CERT, INSECURE, KEY, TLS_CIPHERS, TLS_GROUPS, TLS_KEY_LOG, TLS_MAX, TLS_MIN, TLS_NEW, TLS_RESUME,
    tls_flags,
};
use super::{CommandArgs, CommandInfo, Flag, flag, switch};
use crate::input_file;

pub(crate) const LOAD: CommandInfo = CommandInfo {
    name: "load",
    about: "Generate load, and check that the result is valid",
    doc: "Sends requests in a closed loop (each connection sends its next request after the \
          response to the previous one) or, with --rate, in an open loop (requests are due at \
          fixed times, independent of the server). Each latency is measured twice: from the send \
          (service time) and from the due time (response time, as a user sees it). After a failed \
          connect a connection backs off for 10 ms, then twice as long each time, up to 1 s. In a \
          closed loop the next request is due after the back-off, so no latency includes it. In \
          an open loop requests stay due, and the latency of those that waited for the back-off \
          includes it (generator.back_off). Every result has a validity (valid, suspect or \
          invalid) with its reasons, and a diagnosis: the limit of the run, with evidence from \
          the machine's metrics.\n\nWithout a URL it starts an embedded origin, calibrates the \
          generator, and drives the origin at a quarter of that rate.",
    values: Some(("URL", "Target(s), round-robin [embedded test origin]: http[s]://host[:port][/path]")),
    flags: LOAD_FLAGS,
    examples: EXAMPLES,
};

/// Flags that shape the requests; `calibrate` has them too.
pub(super) const CONNECTIONS: Flag = flag("connections", "N")
    .short('c')
    .default("64")
    .values(&["1", "10k"], &["0", "-1", "ten", "5M"])
    .doc("Number of concurrent connections");
pub(super) const REQUESTS_PER_CONNECTION: Flag = flag("requests-per-connection", "N")
    .short('r')
    .default("unlimited")
    .values(&["1", "100"], &["0", "x"])
    .doc("Max requests per connection; then it is closed and a new one opened");
pub(super) const METHOD: Flag = flag("method", "METHOD")
    .short('X')
    .default("GET, or POST with a body")
    .values(&["HEAD", "DELETE"], &["GE T", "", "CONNECT"])
    .doc("Request method");
pub(super) const HEADER: Flag = flag("header", "'NAME: VALUE'")
    .short('H')
    .repeatable()
    .values(&["Accept: */*", "X-Empty:"], &["no colon", "A b: c", "Content-Length: 3"])
    .doc("Request header field; repeatable");
pub(super) const DATA: Flag = flag("data", "TEXT|@FILE")
    .aliases(&["--body"])
    .values(&["hello"], &["@/no/such/file"])
    .doc("Request body, or @ and the name of a file with it; the default method is then POST");
pub(super) const TIMEOUT: Flag = flag("timeout", "TIME")
    .short('w')
    .default("5s")
    .values(&["500ms", "2s"], &["0", "500", "soon", "1d"])
    .doc(
        "Request timeout; later responses are errors. A bare number is rejected: it would be \
         milliseconds in h1load, and seconds in wrk and hey",
    );
pub(super) const PIN: Flag = flag("pin", "CPUS")
    .default("not pinned")
    .values(&["0", "0,1", "0-0"], &["x", "3-1", "0-9999"])
    .doc("CPUs to pin threads to, round-robin: 0,2 or 0-3");
pub(super) const ARRIVALS: Flag = flag("arrivals", "constant|poisson")
    .default("constant")
    .values(&[], &["bursty"])
    .doc("Distribution of arrivals in an open loop");
pub(super) const THREADS: Flag = flag("threads", "N")
    .short('t')
    .default("all CPUs, half if the server is local")
    .values(&["1", "2"], &["0", "two", "65"])
    .doc("Generator threads; they share the connections and the rate");
pub(super) const SOURCE: Flag = flag("source", "ADDRESS")
    .repeatable()
    .default("the kernel's choice")
    .values(
        &["127.0.0.2", "127.0.0.2-127.0.0.9,127.0.1.0/28"],
        &["localhost", "127.0.0.1/33", "127.0.0.9-127.0.0.2"],
    )
    .doc("Source addresses, round-robin: one, a range a-b, or a network a/n");
pub(super) const SEED: Flag = flag("seed", "N")
    .default("1")
    .values(&["42"], &["x", "-1"])
    .doc("Seed of the random numbers; used for Poisson arrivals, think times and templates");
pub(super) const JSON: Flag = flag("json", "FILE|-")
    .short('o')
    .doc("Write the record of the run as JSON; - writes it to stdout, and nothing else");

/// Flag for the complete summary; a stored record has it too.
pub(super) const VERBOSE: Flag = switch("verbose").short('v').doc(
    "Print everything: connect and first byte latencies, generator, calibration, CPU use, \
     ruled-out limits, cost of the observation",
);

pub(super) const BRIEF: Flag = switch("brief")
    .doc("Print the result in one line: rate, p50 and p99, failures, and the limit in a sentence");

pub(super) const LOAD_FLAGS: &[Flag] = &[
    CONNECTIONS,
    flag("rate", "N")
        .short('R')
        .default("no rate, closed loop")
        .values(&["0.5", "10k", "2M/s"], &["0", "fast", "-3", "nan", "inf"])
        .doc("Total requests per second (open loop)"),
    ARRIVALS,
    flag("duration", "TIME")
        .short('d')
        .aliases(&["-z"])
        .default("10s, or 1h with -n")
        .values(&["10", "1m30s", "500ms"], &["0", "1d", "long", "30s1m"])
        .doc("Duration of the load; requests in flight are then drained; default unit: s"),
    flag("requests", "N")
        .short('n')
        .values(&["1", "10k"], &["0", "many"])
        .doc("Stop after this number of requests"),
    THREADS,
    REQUESTS_PER_CONNECTION,
    flag("ramp", "TIME")
        .short('s')
        .default("none")
        .values(&["2", "500ms"], &["x", "10s"])
        .doc("Ramp-up time of connections and rate; not part of the percentiles; default unit: s"),
    TIMEOUT,
    flag("timeout-from", "due|send").default("due").values(&["send"], &["now"]).doc(
        "Start of the timeout. due: when the request was due, as a user experiences it; a \
         request that waits for a connection until less time is left than a response usually \
         takes is not sent but counted as too_late, so that overload does not keep the \
         server busy with responses that come too late. send: when the request was sent, \
         however long it was pending; --max-pending limits the queue",
    ),
    flag("think", "TIME")
        .short('T')
        .default("0")
        .values(
            &["5", "1s", "exp:50ms", "uniform:10ms-90ms", "lognormal:50ms:0.5"],
            &["x", "normal:5ms", "uniform:9ms-1ms"],
        )
        .doc(
            "Pause between a response and the next request; closed loop only; default unit: ms; \
             exp:TIME, uniform:MIN-MAX and lognormal:TIME:SIGMA are random",
        ),
    METHOD,
    HEADER,
    DATA,
    flag("data-file", "FILE")
        .short('D')
        .values(&[], &["/no/such/file"])
        .doc("Request body from a file, a pipe or stdin (-); 64 MiB or less"),
    flag("unix", "PATH")
        .values(&["/run/weir.sock"], &[])
        .doc("Unix socket to connect to; replaces the URL's host and port"),
    CACERT,
    INSECURE,
    CERT,
    KEY,
    TLS_MIN,
    TLS_MAX,
    TLS_RESUME,
    TLS_NEW,
    switch("tls").doc(
        "Use TLS with the embedded origin, which is loaded if there is no URL; with a URL its \
         scheme decides",
    ),
    HTTP,
    STREAMS,
    WINDOW,
    CONNECTION_WINDOW,
    MIX,
    GRPC,
    TLS_KEY_LOG,
    TLS_CIPHERS,
    TLS_GROUPS,
    SOURCE,
    XDP,
    XDP_EXPOSED,
    PIN,
    switch("spin").doc(
        "Busy-poll instead of sleeping; latencies then exclude the wake-up latency of an idle \
         CPU; each thread uses a complete core",
    ),
    flag("max-pending", "N").default("rate x timeout").values(&[], &["x", "11M"]).doc(
        "Max requests waiting for a free connection; open loop only; more are dropped and \
         counted",
    ),
    flag("drain", "TIME")
        .default("the timeout")
        .values(&["0", "1s"], &["x"])
        .doc("Max time for requests in flight after the end; default unit: s"),
    EXPECT_STATUS,
    EXPECT_BYTES,
    EXPECT_HASH,
    EXPECT_BODY,
    EXPECT_HEADER,
    TARGETS,
    WEIGHTS,
    VALUES,
    COOKIES,
    CAPTURE,
    CONNECT_TO,
    ADDRESSES,
    PROXY_PROTOCOL,
    PROXY_SOURCE,
    REPLAY,
    SPEED,
    STRICT,
    HAR_HOSTS,
    STAGES,
    FILE,
    PIPELINE,
    WS,
    MESSAGE_SIZE,
    BINARY,
    SSE,
    flag("slo", "LIST")
        .repeatable()
        .values(&["p99<5ms,errors<0.1%,rate>=10k", "max<1s"], &["p99", "q<1ms", "errors<2", "p50<x"])
        .doc(
            "Objectives, e.g. 'p99<5ms,errors<0.1%,rate>=10k'; latency is any percentile \
             (p50, p99.9), mean or max of the response time; exit code 3 if one is missed",
        ),
    flag("max-error-rate", "FRACTION").default("0.1%").values(&["1%", "0.5", "100%"], &["x", "101%"]).doc(
        "Max fraction of failed requests in a valid result; --slo errors<1% sets it too, \
         unless it is given here",
    ),
    ON_INVALID,
    SEED,
    JSON,
    CSV,
    MARKDOWN,
    JUNIT,
    HTML,
    BASELINE,
    FAIL_IF,
    FORMAT,
    OPENMETRICS,
    METRICS_LISTEN,
    CHECK,
    HDR,
    PERCENTILES,
    switch("live").default("on a terminal").doc("Print a line per second"),
    TUI,
    switch("quiet").short('q').doc("Do not print a line per second"),
    VERBOSE,
    BRIEF,
    SUBJECT,
    switch("no-watch")
        .doc("Do not sample the machine, its sockets and the server; there is no diagnosis then"),
    NO_BASELINE,
    CONFIRM,
    CONTROL,
    SLICE,
];

/// Returns the texts of a load's flags; the body's file is read here, because parsing does no I/O.
pub(crate) fn load_flags(args: CommandArgs<'_>) -> LoadFlags {
    let mut problems = Vec::new();
    let (data, data_file) = request_body(args, &mut problems);
    let requests_of_files = requests_of_files(args, &mut problems);
    let values = values(args, &mut problems);
    let replay = replay(args, &mut problems);
    problems.extend(subject_pids(args).err().unwrap_or_default());
    let tls = checked_tls_flags(args, &mut problems);
    LoadFlags {
        urls: args.values(),
        connections: args.text("connections"),
        rate: args.text("rate"),
        arrivals: args.text("arrivals"),
        duration: args.text("duration"),
        requests: args.text("requests"),
        threads: args.text("threads"),
        requests_per_connection: args.text("requests-per-connection"),
        ramp: args.text("ramp"),
        timeout: args.text("timeout"),
        timeout_from: args.text("timeout-from"),
        think: args.text("think"),
        drain: args.text("drain"),
        max_pending: args.text("max-pending"),
        method: args.text("method"),
        headers: args.texts("header"),
        data,
        data_file,
        unix: args.text("unix"),
        xdp: xdp_flags(args),
        tls,
        http: http_flags(args),
        sources: args.texts("source"),
        pin: args.text("pin"),
        spin: args.is_set("spin"),
        expect: expect_flags(args),
        weights: args.text("weights"),
        requests_of_files,
        values,
        cookies: args.is_set("cookies"),
        captures: args.texts("capture"),
        connect_to: args.texts("connect-to"),
        addresses: args.text("addresses"),
        proxy_protocol: args.text("proxy-protocol"),
        proxy_sources: args.texts("proxy-source"),
        replay,
        speed: args.text("speed"),
        har_hosts: args.text("har-hosts"),
        stages: args.text("stages"),
        pipeline: args.text("pipeline"),
        ws: args.text("ws"),
        message_size: args.text("message-size"),
        binary: args.is_set("binary"),
        sse: args.is_set("sse"),
        slo: args.texts("slo"),
        max_error_rate: args.text("max-error-rate"),
        seed: args.text("seed"),
        slice: args.text("slice"),
        problems,
    }
}

fn checked_tls_flags(args: CommandArgs<'_>, problems: &mut Vec<InputProblem>) -> TlsFlags {
    let tls = tls_flags(args);
    problems.extend(tls.file_problems());
    tls
}

/// Returns the texts of TCP in user space.
pub(super) fn xdp_flags(args: CommandArgs<'_>) -> XdpFlags {
    XdpFlags { interface: args.text("xdp"), exposed: args.is_set("xdp-exposed") }
}

/// Returns a URL that stands for the embedded origin in checks: its port is not known yet.
pub(crate) fn embedded_placeholder_url(args: CommandArgs<'_>) -> &'static str {
    if args.is_set("tls") { "https://127.0.0.1:1/" } else { "http://127.0.0.1:1/" }
}

/// Returns the processes that `--subject` names.
pub(crate) fn subject_pids(args: CommandArgs<'_>) -> Result<Vec<i32>, Vec<InputProblem>> {
    let (mut pids, mut problems) = (Vec::new(), Vec::new());
    for text in args.texts("subject") {
        match text.parse::<i32>() {
            Ok(pid) if pid > 0 => pids.push(pid),
            _ => {
                let why = format!("'{text}' is not a PID");
                problems.push(InputProblem::new("--subject", why));
            }
        }
    }
    if problems.is_empty() { Ok(pids) } else { Err(problems) }
}

/// Returns the text of `--data`, and the content of the file that it or `--data-file` names.
pub(super) fn request_body(
    args: CommandArgs<'_>,
    problems: &mut Vec<InputProblem>,
) -> (Option<String>, Option<Vec<u8>>) {
    body_of(args.text("data"), args.text("data-file"), problems)
}

/// Returns the body of the values of `--data` and `--data-file`, as [`request_body`] does.
pub(super) fn body_of(
    data: Option<String>,
    file: Option<String>,
    problems: &mut Vec<InputProblem>,
) -> (Option<String>, Option<Vec<u8>>) {
    let mut read = |flag: &str, path: &str| match read_body(path) {
        Ok(body) => Some(body),
        Err(why) => {
            problems.push(InputProblem::new(flag, format!("{path}: {why}")));
            None
        }
    };
    let file = file.and_then(|path| read("--data-file", &path));
    match data.as_deref().and_then(|data| data.strip_prefix('@')) {
        // With both, the plan reports that they are exclusive.
        Some(path) if file.is_none() => (None, read("--data", path)),
        _ => (data, file),
    }
}

pub(super) fn read_body(path: &str) -> io::Result<Vec<u8>> {
    input_file::read_bytes(path, load::plan::BODY_BYTES_MAX)
}
