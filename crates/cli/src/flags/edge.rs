//! The flags of `weir edge`: the load, its objectives, and the duration of the search.

use load::plan::{ExpectFlags, LoadFlags};

use super::http::{CONNECTION_WINDOW, GRPC, HTTP, STREAMS, WINDOW, http_flags};
use super::load::{
    ARRIVALS, BRIEF, CONNECTIONS, DATA, HEADER, JSON, METHOD, PIN, REQUESTS_PER_CONNECTION, SEED, SOURCE,
    THREADS, TIMEOUT, request_body, xdp_flags,
};
use super::load_output::{HTML, JUNIT, MARKDOWN};
use super::load_requests::EXPECT_STATUS;
use super::server::{XDP, XDP_EXPOSED};
use super::tls::{
    CACERT, CERT, INSECURE, KEY, TLS_CIPHERS, TLS_GROUPS, TLS_MAX, TLS_MIN, TLS_NEW, TLS_RESUME, tls_flags,
};
use super::{CommandArgs, CommandInfo, Flag, flag, switch};

pub(crate) const EDGE: CommandInfo = CommandInfo {
    name: "edge",
    about: "Find the maximum load at which an objective holds",
    doc: "Searches in an open loop: it doubles a low rate until the objective is missed, bisects \
          with short and then with long trials, and verifies the result: two of three trials must \
          hold, at 100, 95 or 90 % of it. Bisection assumes that a rate below one that holds \
          holds too, so both bounds are tried again, and at the end the result is checked once \
          more. If it no longer holds, the edge is the rate that holds then, down to 80 % of it; \
          below that no edge is reported (exit code 4). A trial that the generator limited is no \
          evidence about the server: it is repeated twice, and then the search ends with a \
          partial result (exit code 4).\n\nIt then drives a ladder of twelve rates up to 110 % \
          of the edge (or to --to), with an observer: a load of 1 % on connections of its own. It \
          reports the knee (two lines fitted to the logarithm of p99), the recommended rates (50 \
          to 80 % of the knee), and how throughput scales with connections (Universal Scalability \
          Law, closed loop, 1 to -c connections). It does not extrapolate beyond twice the \
          measured range, and skips scaling with --to, because a closed loop has no rate limit. \
          The server's threads cannot be changed from here, so scaling is over the generator's \
          connections.\n\nAt last it tests the limit: a closed loop with all -c connections brings the server to \
          full throughput, and short loads in turn, without and with one change (twice or half the connections, \
          a pause, keep-alive), show whether the limit moves as predicted. Only --confirm allows to limit \
          the CPU time of a local server for that. The result has the proof, the first change to make with its \
          expected gain, sizes for a target (those of weir plan) and the command that compares a repetition \
          (--baseline). By default all of it takes at most two minutes.\n\nWithout --slo a rate holds if less than 0.1 % of the requests fail, \
          99 % of the offered requests are answered in time, and p99 is at most ten times that of \
          the first, low rate (or 1 ms, if that is more). The edge depends on the load: -c \
          connections carry up to -c requests at a time.",
    values: Some(("URL", "Target, http[s]://host[:port][/path]; several are used round-robin")),
    flags: EDGE_FLAGS,
    examples: &[
        (
            "weir edge --trial 200ms --from 500 --slo 'p99<2s,errors<5%' --html page.html http://127.0.0.1:8000/?s=100",
            "find the ceiling, test what stops it, and write the page with the first change to make",
        ),
        (
            "weir edge --quick --trial 200ms --from 500 --to 1000 --slo 'p99<2s,errors<5%' \
             http://127.0.0.1:8000/?s=100",
            "check up to 1,000 requests per second, in short trials",
        ),
        (
            "weir edge --quick --trial 200ms --find connections --from 8 --to 16 --slo 'errors<5%' \
             --json edge.json http://127.0.0.1:8000/",
            "check up to sixteen concurrent connections; store the record",
        ),
    ],
};

pub(super) const EDGE_FLAGS: &[Flag] = &[
    flag("find", "QUANTITY")
        .default("rate")
        .values(
            &["rate", "connections-per-second", "connections", "bandwidth"],
            &["handshakes", "streams", "x", ""],
        )
        .doc(
            "Quantity to maximize. rate: requests per second; connections-per-second: a new connection \
             per request; connections: concurrent connections with an occasional request; bandwidth: \
             bytes per second of the URL's body; handshakes: TLS handshakes per second, a new connection \
             per request of an https URL: full ones with --tls-resume off, else resumed ones (--tls-new \
             mixes them); streams: concurrent streams of each of the -c HTTP/2 connections, in a closed \
             loop: the most for which the objectives still hold",
        ),
    flag("slo", "LIST")
        .repeatable()
        .default("errors<0.1%, and p99 at most ten times that of the first rate or 1 ms")
        .values(&["p99<5ms,errors<0.1%", "max<1s"], &["p99", "q<1ms", "rate>=10k"])
        .doc("Objectives, e.g. 'p99<5ms,errors<0.1%'; as of weir load, without a rate"),
    CONNECTIONS,
    Flag { doc: "Generator threads", ..THREADS },
    flag("from", "N")
        .default("100/s; 50 connections/s; 64 connections; 10/s for bandwidth; 20 handshakes/s; 1 stream")
        .values(&["10", "2k"], &["0", "x"])
        .doc("First level; keep it low, its latencies are the reference"),
    flag("to", "N")
        .default("no limit; for connections the limit of this process; 10,000 streams")
        .values(&["200", "2M"], &["0", "x", "5"])
        .doc("Highest level that is tried; if it holds, the edge is reported as at least that"),
    flag("direct", "URL").values(&["http://127.0.0.1:1/"], &["ftp://x/", "x y"]).doc(
        "URL of the server behind the first; it gets the same rates, alternating, and the latency \
         that the first URL adds is reported",
    ),
    switch("quick").doc(
        "Result within 90 s, without the test of the limit; with --trial above 1s it takes longer in \
         proportion",
    ),
    switch("thorough").doc(
        "Verify with trials thirty times as long as short ones instead of three times, decide with \
         five times as long instead of once, and search without a limit of time: some ten minutes",
    ),
    switch("confirm").doc(
        "Allow the test of the limit to reduce the CPU time of a local server to three quarters, for \
         a few seconds at a time; needs root or a writable control group",
    ),
    flag("target", "RATE")
        .default("twice the held rate")
        .values(&["5k", "200"], &["0", "x"])
        .doc("Rate that the sizes of the result are for: servers, maxconn, queue, timeouts"),
    flag("baseline", "FILE").doc(
        "Compare the result with this record of weir edge: the held level, the throughput at full \
         load, and the gain that it predicted",
    ),
    flag("trial", "TIME")
        .default("1s, or 2s with --thorough")
        .values(&["1", "500ms"], &["0", "10ms", "2m", "x"])
        .doc(
            "Duration of a short trial; longer at low rates, until there are 100 requests, up to 10 s; \
             default unit: s",
        ),
    flag("precision", "FRACTION")
        .default("2%")
        .values(&["1%", "0.05"], &["0", "60%", "x"])
        .doc("Max gap between the two bounds at the end of the search"),
    switch("search-only").doc("Skip the ladder and the scaling law"),
    switch("no-baseline").doc(
        "Skip the baseline before the search: requests sent one at a time, up to 1 s and 500 \
         requests, with --direct to that URL too; without it, queueing cannot be distinguished from \
         service time, nor a limit inside the server from a delay",
    ),
    Flag { doc: "Distribution of arrivals", valid: &["poisson"], ..ARRIVALS },
    REQUESTS_PER_CONNECTION,
    METHOD,
    HEADER,
    DATA,
    TIMEOUT,
    SOURCE,
    XDP,
    XDP_EXPOSED,
    PIN,
    CACERT,
    INSECURE,
    CERT,
    KEY,
    TLS_MIN,
    TLS_MAX,
    TLS_RESUME,
    TLS_NEW,
    HTTP,
    STREAMS,
    WINDOW,
    CONNECTION_WINDOW,
    GRPC,
    TLS_CIPHERS,
    TLS_GROUPS,
    EXPECT_STATUS,
    Flag {
        doc: "Seed of the random numbers; used for Poisson arrivals and for bootstrap resampling",
        ..SEED
    },
    flag("keep", "DIR")
        .values(&["trials"], &[])
        .doc("Directory for the complete record of every trial; created if missing"),
    switch("check").doc(
        "Print the search in words and exit; with --xdp also what would be taken from the kernel, with each \
         problem (exit code 1)",
    ),
    BRIEF,
    JSON,
    Flag {
        doc: "Write the result as one self-contained page, at most 600 kB: the answer, the ladder, the limit and its \
              proof; without --json the record goes beside it (page.json), for the command that proves a change",
        ..HTML
    },
    Flag {
        doc: "Write the answer, the decision and the ladder as Markdown; - writes it to stdout, and nothing else",
        ..MARKDOWN
    },
    Flag {
        doc: "Write the result as a JUnit test report: a case for the objectives, one for the end of the search, and \
              the answer and the decision as properties; - writes it to stdout, and nothing else",
        ..JUNIT
    },
];

/// Returns the texts of the base load of every trial, for requests to `urls`.
pub(crate) fn edge_flags(args: CommandArgs<'_>, urls: Vec<String>) -> LoadFlags {
    let mut problems = Vec::new();
    let (data, data_file) = request_body(args, &mut problems);
    LoadFlags {
        urls,
        connections: args.text("connections"),
        // Each trial sets its own rate; common to all is that the loop is open.
        rate: Some("1".to_owned()),
        arrivals: args.text("arrivals"),
        threads: args.text("threads"),
        requests_per_connection: args.text("requests-per-connection"),
        timeout: args.text("timeout"),
        method: args.text("method"),
        headers: args.texts("header"),
        data,
        data_file,
        problems,
        tls: tls_flags(args),
        http: http_flags(args),
        sources: args.texts("source"),
        xdp: xdp_flags(args),
        pin: args.text("pin"),
        expect: ExpectFlags { status: args.text("expect-status"), ..ExpectFlags::default() },
        slo: args.texts("slo"),
        seed: args.text("seed"),
        ..LoadFlags::default()
    }
}
