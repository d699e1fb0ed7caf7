//! The flags of `weir edge`: what the load is like, what it has to hold, and how long to look.

use load::plan::PlanText;

use super::load::{CONNECTIONS, DATA, HEADER, JSON, METHOD, PIN, REQUESTS_PER_CONNECTION, TIMEOUT};
use super::{CommandRow, FLAG, Flag, Typed};

pub(crate) const EDGE: CommandRow = CommandRow {
    name: "edge",
    about: "Find the most that a server takes and still holds an objective",
    doc: "Tries rates in an open loop: it doubles a low rate until the objective is missed, halves the \
          interval with short trials and then with long ones, and verifies what it found: of three \
          trials two have to hold, at 100, 95 or 90 % of it. Bisection takes for granted that what \
          holds at a rate holds below it, so both bounds are tried again, and at the end it looks \
          whether what was found still holds: if not, the edge is what holds then, down to 80 % of it, \
          and below that none is named (exit code 4). A trial in which the generator was the limit says nothing \
          of the server: it is repeated twice, and then the search ends with what is known (exit code \
          4).\n\n\
          Behind that it drives a ladder of twelve rates up to 110 % of the edge (or to --to), with a load of 1 % \
          beside it on connections of its own (the observer), and says where the knee is (two lines \
          fitted to the logarithm of p99), at which rates to run (50 to 80 % of the knee), and how \
          throughput grows with connections (the Universal Scalability Law, closed loop, 1 to -c \
          connections; nothing is said of more than twice what was measured, nor with --to, because a \
          closed loop has no bound of its rate). Threads of the server \
          cannot be changed from here, so scaling is over the generator's connections.\n\n\
          Without --slo a rate holds when less than 0.1 % of the requests fail, 99 % of what is offered \
          is answered in time, and p99 is at most ten times that of the first, low rate (1 ms at the \
          least). The edge is that of the load as it is: -c connections carry -c requests at a time.",
    values: Some(("URL", "What to ask for: http://host[:port][/path]; several are taken in turn")),
    flags: EDGE_FLAGS,
    examples: &[
        (
            "weir edge --quick --trial 200ms --from 500 --to 1000 --slo 'p99<2s,errors<5%' \
             http://127.0.0.1:8000/?s=100",
            "whether it holds 1,000 requests per second, in short trials",
        ),
        (
            "weir edge --quick --trial 200ms --find connections --from 8 --to 16 --slo 'errors<5%' \
             --json edge.json http://127.0.0.1:8000/",
            "whether it takes sixteen connections at a time; keep the record",
        ),
    ],
};

const EDGE_FLAGS: &[Flag] = &[
    Flag {
        long: "find",
        value: "WHAT",
        default: "rate",
        doc: "What to find the most of: rate (requests per second), connections-per-second (a new \
              connection for each request), connections (at a time, with a request now and then) or \
              bandwidth (bytes per second of the URL's body)",
        right: &["rate", "connections-per-second", "connections", "bandwidth"],
        wrong: &["handshakes", "x", ""],
        ..FLAG
    },
    Flag {
        long: "slo",
        value: "LIST",
        many: true,
        default: "errors<0.1% and p99 at most ten times that of the first rate, or 1 ms",
        doc: "What has to hold, as of weir load, without a rate: 'p99<5ms,errors<0.1%'",
        right: &["p99<5ms,errors<0.1%", "max<1s"],
        wrong: &["p99", "q<1ms", "rate>=10k"],
        ..FLAG
    },
    CONNECTIONS,
    Flag {
        long: "threads",
        short: Some('t'),
        value: "N",
        default: "all processors, or half of them when the server is on this machine",
        doc: "Threads of the generator",
        right: &["1", "2"],
        wrong: &["0", "two", "65"],
        ..FLAG
    },
    Flag {
        long: "from",
        value: "N",
        default: "100/s; 50 connections/s; 64 connections; 10/s for bandwidth",
        doc: "The first level, which should be low: latencies there are the reference",
        right: &["10", "2k"],
        wrong: &["0", "x"],
        ..FLAG
    },
    Flag {
        long: "to",
        value: "N",
        default: "no bound; for connections what this process may open",
        doc: "No level above this is tried, in no trial; when it holds, the edge is at least that",
        right: &["200", "2M"],
        wrong: &["0", "x", "5"],
        ..FLAG
    },
    Flag {
        long: "direct",
        value: "URL",
        doc: "Drive this URL, of the server behind the first, at the same rates in turn, and say what \
              the first adds",
        right: &["http://127.0.0.1:1/"],
        wrong: &["ftp://x/", "x y"],
        ..FLAG
    },
    Flag {
        long: "quick",
        doc: "Verify for five times a short trial instead of thirty, and decide in two instead of five",
        ..FLAG
    },
    Flag {
        long: "trial",
        value: "TIME",
        default: "2s, or 1s with --quick",
        doc: "Length of a short trial; longer at low rates, until there are 100 requests, 10 s at the \
              most; bare: s",
        right: &["1", "500ms"],
        wrong: &["0", "10ms", "2m", "x"],
        ..FLAG
    },
    Flag {
        long: "width",
        value: "SHARE",
        default: "2%",
        doc: "The search is done when what held and what did not are so near",
        right: &["1%", "0.05"],
        wrong: &["0", "60%", "x"],
        ..FLAG
    },
    Flag { long: "search-only", doc: "No ladder and no law of scaling", ..FLAG },
    Flag {
        long: "arrivals",
        value: "constant|poisson",
        default: "constant",
        doc: "How requests are spread over time",
        right: &["poisson"],
        wrong: &["bursty"],
        ..FLAG
    },
    REQUESTS_PER_CONNECTION,
    METHOD,
    HEADER,
    DATA,
    TIMEOUT,
    Flag {
        long: "source",
        value: "ADDRESS",
        many: true,
        default: "the kernel's choice",
        doc: "Connect from these addresses in turn: one, a range a-b, or a network a/n",
        right: &["127.0.0.2"],
        wrong: &["localhost"],
        ..FLAG
    },
    PIN,
    Flag {
        long: "expect-status",
        value: "LIST",
        default: "any; 400 and above count as bad",
        doc: "Statuses that are right: 200, 2xx or 200,404; any other is an error",
        right: &["200", "2xx,304"],
        wrong: &["2x", "99"],
        ..FLAG
    },
    Flag {
        long: "seed",
        value: "N",
        default: "1",
        doc: "Seed of all randomness: Poisson arrivals, and the resampling of intervals",
        right: &["42"],
        wrong: &["x", "-1"],
        ..FLAG
    },
    Flag {
        long: "keep",
        value: "DIR",
        doc: "Keep the whole record of every trial in this folder, which is made if need be",
        right: &["trials"],
        ..FLAG
    },
    JSON,
];

/// The texts of the load that every trial starts from, for requests to `urls`.
pub(crate) fn edge_text(typed: Typed<'_>, urls: Vec<String>) -> PlanText {
    PlanText {
        urls,
        connections: typed.text("connections"),
        // Each trial sets its own; what is common is that it is open.
        rate: Some("1".to_owned()),
        arrivals: typed.text("arrivals"),
        threads: typed.text("threads"),
        requests_per_connection: typed.text("requests-per-connection"),
        timeout: typed.text("timeout"),
        method: typed.text("method"),
        headers: typed.texts("header"),
        data: typed.text("data"),
        sources: typed.texts("source"),
        pin: typed.text("pin"),
        expect_status: typed.text("expect-status"),
        slo: typed.texts("slo"),
        seed: typed.text("seed"),
        ..PlanText::default()
    }
}
