//! The flags of `weir load` and `weir load report`. The letters are h1load's where their meaning
//! is the same.

use load::plan::{Plan, PlanText};
use record::problem::Problem;

use super::{CommandRow, FLAG, Flag, Typed};

pub(crate) const LOAD: CommandRow = CommandRow {
    name: "load",
    about: "Drive load, and tell the truth about it",
    doc: "Sends requests in a closed loop (each connection sends the next one when the last has \
          been answered) or, with --rate, in an open loop (requests are due by the clock, whatever \
          the server does). Latencies are measured twice: from the send (service: what the server \
          did) and from the due time (response: what a user saw). After a failed connect a connection \
          pauses for 10 ms, then twice as long each time, up to 1 s. In a closed loop the next request \
          is due behind the pause, so no latency contains it. In an open loop requests go on being due, \
          and those that waited for the pause are counted with their time (generator.back_off). Every \
          result carries a verdict: \
          valid, suspect or invalid, with the reasons; and a diagnosis: what limited it, with the \
          evidence, from what was seen of the machine meanwhile.\n\nWithout a URL it starts an origin of its \
          own, calibrates the generator, and drives the origin at a quarter of that rate.",
    values: Some(("URL", "What to ask for: http://host[:port][/path]; several are taken in turn")),
    flags: LOAD_FLAGS,
    examples: &[
        ("weir load", "measure this machine with the embedded origin"),
        (
            "weir load -c 10 -d 2s http://127.0.0.1:8000/?s=100",
            "ten connections, closed loop, two seconds",
        ),
        (
            "weir load -c 50 -R 2k -d 2s --slo 'p99<500ms,errors<1%' http://127.0.0.1:8000/",
            "2,000 requests per second whatever happens, with objectives",
        ),
        (
            "weir load -c 4 -d 3s --confirm 'http://127.0.0.1:8000/?t=20'",
            "what limits this service, and proof of it",
        ),
        (
            "weir load -n 1000 -r 10 --json run.json http://127.0.0.1:8000/",
            "1,000 requests, ten on a connection; keep the record",
        ),
    ],
};

/// Flags that shape the requests; `calibrate` has them too.
pub(super) const CONNECTIONS: Flag = Flag {
    long: "connections",
    short: Some('c'),
    value: "N",
    default: "64",
    doc: "Connections at a time",
    right: &["1", "10k"],
    wrong: &["0", "-1", "ten", "5M"],
    ..FLAG
};
pub(super) const REQUESTS_PER_CONNECTION: Flag = Flag {
    long: "requests-per-connection",
    short: Some('r'),
    value: "N",
    default: "as many as the server allows",
    doc: "Requests on a connection before it is closed and opened anew",
    right: &["1", "100"],
    wrong: &["0", "x"],
    ..FLAG
};
pub(super) const METHOD: Flag = Flag {
    long: "method",
    value: "METHOD",
    default: "GET, or POST with a body",
    doc: "Request method",
    right: &["HEAD", "DELETE"],
    wrong: &["GE T", "", "CONNECT"],
    ..FLAG
};
pub(super) const HEADER: Flag = Flag {
    long: "header",
    short: Some('H'),
    value: "'NAME: VALUE'",
    many: true,
    doc: "A header field to send; may be given several times",
    right: &["Accept: */*", "X-Empty:"],
    wrong: &["no colon", "A b: c", "Content-Length: 3"],
    ..FLAG
};
pub(super) const DATA: Flag =
    Flag { long: "data", value: "TEXT", doc: "Request body", right: &["hello"], ..FLAG };
pub(super) const TIMEOUT: Flag = Flag {
    long: "timeout",
    short: Some('w'),
    value: "TIME",
    default: "5s",
    doc: "A request that is older than this, from its due time, is an error; bare: ms",
    right: &["500", "2s"],
    wrong: &["0", "soon", "1d"],
    ..FLAG
};
pub(super) const PIN: Flag = Flag {
    long: "pin",
    value: "CPUS",
    default: "not pinned",
    doc: "Processors to pin the threads to, in turn: 0,2 or 0-3",
    right: &["0", "0,1", "0-0"],
    wrong: &["x", "3-1", "0-9999"],
    ..FLAG
};
pub(super) const JSON: Flag = Flag {
    long: "json",
    value: "FILE|-",
    doc: "Write the record of the run as JSON; with - to stdout, and nothing else there",
    ..FLAG
};

const LOAD_FLAGS: &[Flag] = &[
    CONNECTIONS,
    Flag {
        long: "rate",
        short: Some('R'),
        value: "N",
        default: "closed loop",
        doc: "Open loop: requests per second in all, due by the clock",
        right: &["0.5", "10k", "2M/s"],
        wrong: &["0", "fast", "-3", "nan", "inf"],
        ..FLAG
    },
    Flag {
        long: "arrivals",
        value: "constant|poisson",
        default: "constant",
        doc: "Open loop: how requests are spread over time",
        wrong: &["bursty"],
        ..FLAG
    },
    Flag {
        long: "duration",
        short: Some('d'),
        value: "TIME",
        default: "10s, or 1h with -n",
        doc: "Length of the load; what is in flight then is drained; bare: s",
        right: &["10", "1m", "500ms"],
        wrong: &["0", "1d", "long"],
        ..FLAG
    },
    Flag {
        long: "requests",
        short: Some('n'),
        value: "N",
        doc: "End after this many requests",
        right: &["1", "10k"],
        wrong: &["0", "many"],
        ..FLAG
    },
    Flag {
        long: "threads",
        short: Some('t'),
        value: "N",
        default: "all processors, or half of them when the server is on this machine",
        doc: "Threads, a core each; connections and rate are shared between them",
        right: &["1", "2"],
        wrong: &["0", "two", "65"],
        ..FLAG
    },
    REQUESTS_PER_CONNECTION,
    Flag {
        long: "ramp",
        short: Some('s'),
        value: "TIME",
        default: "none",
        doc: "Bring connections and rate up from nothing over this time, which counts in no \
              percentile; bare: s",
        right: &["2", "500ms"],
        wrong: &["x", "10s"],
        ..FLAG
    },
    TIMEOUT,
    Flag {
        long: "timeout-from",
        value: "due|send",
        default: "due",
        doc: "Where the time-out starts. due: when the request was due, as a user's patience does; a \
              request that waited for a connection until less time is left than a response usually \
              takes is not sent but counted as too_late, so that too much load does not keep the server \
              busy with responses that nobody waits for. send: when it was sent, however long it had \
              waited in the queue, which --line bounds",
        wrong: &["now"],
        right: &["send"],
        ..FLAG
    },
    Flag {
        long: "think",
        short: Some('T'),
        value: "TIME",
        default: "0",
        doc: "Closed loop: pause of a connection between a response and its next request; bare: ms",
        right: &["5", "1s"],
        wrong: &["x"],
        ..FLAG
    },
    METHOD,
    HEADER,
    DATA,
    Flag {
        long: "data-file",
        value: "FILE",
        doc: "Request body from a file (not a pipe or a device), 64 MiB at the most",
        wrong: &["/no/such/file"],
        ..FLAG
    },
    Flag {
        long: "unix",
        value: "PATH",
        doc: "Connect to this unix socket instead of the URL's host and port",
        right: &["/run/weir.sock"],
        ..FLAG
    },
    Flag {
        long: "source",
        value: "ADDRESS",
        many: true,
        default: "the kernel's choice",
        doc: "Connect from these addresses in turn: one, a range a-b, or a network a/n",
        right: &["127.0.0.2", "127.0.0.2-127.0.0.9,127.0.1.0/28"],
        wrong: &["localhost", "127.0.0.1/33", "127.0.0.9-127.0.0.2"],
        ..FLAG
    },
    PIN,
    Flag {
        long: "spin",
        doc: "Never sleep: threads look for work without a pause, so that no latency contains the \
              time that a sleeping processor takes to wake up; each uses a whole core",
        ..FLAG
    },
    Flag {
        long: "line",
        value: "N",
        default: "rate x time-out",
        doc: "Open loop: requests that may wait for a free connection; more are dropped and counted",
        wrong: &["x", "11M"],
        ..FLAG
    },
    Flag {
        long: "drain",
        value: "TIME",
        default: "the time-out",
        doc: "How long requests may go on after the end before they are given up; bare: s",
        right: &["0", "1s"],
        wrong: &["x"],
        ..FLAG
    },
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
        long: "expect-bytes",
        value: "SIZE",
        default: "any",
        doc: "Size of body that is right; any other is an error",
        right: &["0", "64k"],
        wrong: &["x"],
        ..FLAG
    },
    Flag {
        long: "slo",
        value: "LIST",
        many: true,
        doc: "Objectives, of response latency (p50 to p99.999, mean, max), errors and rate: \
              'p99<5ms,errors<0.1%,rate>=10k'; exit code 3 when one is missed",
        right: &["p99<5ms,errors<0.1%,rate>=10k", "max<1s"],
        wrong: &["p99", "q<1ms", "errors<2", "p50<x"],
        ..FLAG
    },
    Flag {
        long: "error-share-max",
        value: "SHARE",
        default: "0.1%",
        doc: "The result is invalid when a larger share of requests had no good response; an objective of \
              errors (--slo errors<1%) sets this bound too, unless it is given here",
        right: &["1%", "0.5", "100%"],
        wrong: &["x", "101%"],
        ..FLAG
    },
    Flag {
        long: "seed",
        value: "N",
        default: "1",
        doc: "Seed of all randomness (Poisson arrivals)",
        right: &["42"],
        wrong: &["x", "-1"],
        ..FLAG
    },
    JSON,
    Flag {
        long: "csv",
        value: "FILE|-",
        doc: "Write a line a second as CSV; with - to stdout, and nothing else there",
        ..FLAG
    },
    Flag {
        long: "hdr",
        value: "FILE",
        doc: "Write an HdrHistogram interval log (.hlog): every phase, every second",
        ..FLAG
    },
    Flag {
        long: "percentiles",
        short: Some('P'),
        doc: "Print the percentiles of first and last byte, service and response, up to 99.9999 %",
        ..FLAG
    },
    Flag { long: "live", doc: "Print a line a second even when stdout is not a terminal", ..FLAG },
    Flag { long: "quiet", short: Some('q'), doc: "Print no line a second", ..FLAG },
    Flag {
        long: "subject",
        value: "PID",
        many: true,
        default: "who listens where the load goes",
        doc: "A process of the server under load, where it cannot be found by its port (behind a \
              forwarder, say); its children are watched with it",
        right: &["1"],
        wrong: &["x", "0"],
        ..FLAG
    },
    Flag {
        long: "no-watch",
        doc: "Do not look at the machine, its sockets and the subject meanwhile: no diagnosis then",
        ..FLAG
    },
    Flag {
        long: "no-baseline",
        doc: "Send no requests one at a time before the load (1 s and 500 requests at most, for loads of \
              3 s and more without -n): then waiting cannot be told from service in the latencies",
        ..FLAG
    },
    Flag {
        long: "confirm",
        doc: "Prove the diagnosis: change what is said to be the limit (connections, pauses, \
              generator threads, the subject's processor time) in short trials, and see whether \
              the throughput answers as it predicts; a verdict that is refuted becomes unknown, \
              and where nothing can be tested the reason is said",
        ..FLAG
    },
];

pub(crate) const REPORT: CommandRow = CommandRow {
    name: "load report",
    about: "Show, compare or merge records of runs",
    doc: "One record is shown as at the end of its run. Several are compared side by side with the \
          first, or, with --merge, made into one: counts and histograms are added, percentiles are \
          read off the sum and never averaged.",
    values: Some(("FILE", "Records that weir load --json wrote")),
    flags: &[
        Flag {
            long: "merge",
            doc: "Merge the records, of one plan driven from several places, into one",
            ..FLAG
        },
        Flag {
            long: "json",
            value: "FILE|-",
            doc: "With --merge: write the merged record",
            ..FLAG
        },
    ],
    examples: &[
        ("weir load report run.json", "show a record"),
        ("weir load report run.json run.json", "compare two records"),
        (
            "weir load report --merge --json both.json one.json two.json",
            "add up two at the same time",
        ),
    ],
};

/// The texts of a load's flags; the body's file is read here, because parsing does no I/O.
pub(crate) fn load_text(typed: Typed<'_>) -> Result<PlanText, Vec<Problem>> {
    let mut problems = Vec::new();
    let data_file = typed.text("data-file").and_then(|path| {
        let read = read_body(&path);
        read.map_err(|why| problems.push(Problem::new("--data-file", format!("{path}: {why}"))))
            .ok()
    });
    problems.extend(subject_pids(typed).err().unwrap_or_default());
    let mut text = PlanText {
        urls: typed.values(),
        connections: typed.text("connections"),
        rate: typed.text("rate"),
        arrivals: typed.text("arrivals"),
        duration: typed.text("duration"),
        requests: typed.text("requests"),
        threads: typed.text("threads"),
        requests_per_connection: typed.text("requests-per-connection"),
        ramp: typed.text("ramp"),
        timeout: typed.text("timeout"),
        timeout_from: typed.text("timeout-from"),
        think: typed.text("think"),
        drain: typed.text("drain"),
        line: typed.text("line"),
        method: typed.text("method"),
        headers: typed.texts("header"),
        data: typed.text("data"),
        data_file,
        unix: typed.text("unix"),
        sources: typed.texts("source"),
        pin: typed.text("pin"),
        spin: typed.is_set("spin"),
        expect_status: typed.text("expect-status"),
        expect_bytes: typed.text("expect-bytes"),
        slo: typed.texts("slo"),
        error_share_max: typed.text("error-share-max"),
        seed: typed.text("seed"),
    };
    if problems.is_empty() {
        return Ok(text);
    }
    // What else is wrong is told together with it; that there is no URL is not wrong.
    if text.urls.is_empty() {
        text.urls = vec!["http://127.0.0.1:1/".to_owned()];
    }
    let cores = rt::cores::available().len();
    problems.extend(Plan::parse(&text, cores).err().unwrap_or_default());
    Err(problems)
}

/// The processes that were named with `--subject`.
pub(crate) fn subject_pids(typed: Typed<'_>) -> Result<Vec<i32>, Vec<Problem>> {
    let (mut pids, mut problems) = (Vec::new(), Vec::new());
    for text in typed.texts("subject") {
        match text.parse::<i32>() {
            Ok(pid) if pid > 0 => pids.push(pid),
            _ => {
                let why = format!("'{text}' is no number of a process");
                problems.push(Problem::new("--subject", why));
            }
        }
    }
    if problems.is_empty() { Ok(pids) } else { Err(problems) }
}

fn read_body(path: &str) -> Result<Vec<u8>, String> {
    let about = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() {
        // A pipe may never end, or never begin.
        return Err("it is no file; a body is read from a file, 64 MiB at the most".to_owned());
    }
    let length = about.len();
    if length > load::plan::BODY_BYTES_MAX {
        return Err(format!(
            "{length} bytes are more than the {} allowed",
            load::plan::BODY_BYTES_MAX
        ));
    }
    std::fs::read(path).map_err(|error| error.to_string())
}
