//! The flags of `weir load` for its outputs, and for what it observes.

use super::{FLAG_DEFAULTS, Flag};

pub(super) const CSV: Flag = Flag {
    long: "csv",
    value: "FILE|-",
    doc: "Write one CSV line per second; - writes it to stdout, and nothing else",
    ..FLAG_DEFAULTS
};
pub(super) const MARKDOWN: Flag = Flag {
    long: "markdown",
    value: "FILE|-",
    doc: "Write the result as Markdown tables; - writes it to stdout, and nothing else",
    ..FLAG_DEFAULTS
};
pub(super) const JUNIT: Flag = Flag {
    long: "junit",
    value: "FILE|-",
    doc: "Write the objectives, the validity and each condition of --fail-if as a JUnit test report; - writes it to \
          stdout, and nothing else",
    ..FLAG_DEFAULTS
};
pub(crate) const HTML: Flag = Flag {
    long: "html",
    value: "FILE",
    doc: "Write the result as one self-contained page, at most 600 kB: the answer, resources, findings and charts",
    ..FLAG_DEFAULTS
};
pub(super) const BASELINE: Flag = Flag {
    long: "baseline",
    value: "FILE",
    doc: "Compare the result with this record: each change with its 95 % interval, from the seconds of both runs",
    ..FLAG_DEFAULTS
};
pub(super) const FAIL_IF: Flag = Flag {
    long: "fail-if",
    value: "LIST",
    repeatable: true,
    doc: "Regressions that give exit code 3, e.g. 'p99>+10%,rate<-5%'; figures are p50, p99, rate, and errors in \
          percentage points; a change counts if its interval is beyond the limit; a condition that the records cannot \
          decide, such as below 8 complete seconds, gives exit code 4, and one within the noise a warning",
    valid: &["p99>+10%,rate<-5%", "errors>+0.1%"],
    invalid: &["p99>10%", "p99<-1%", "p99.9>+1%", "x>+1%", ""],
    ..FLAG_DEFAULTS
};
pub(super) const ON_INVALID: Flag = Flag {
    long: "on-invalid",
    value: "fail|warn",
    default: "fail",
    doc: "Exit code of a result that is not valid: 4, or that of its objectives with a warning",
    valid: &["warn", "fail"],
    invalid: &["", "ignore"],
    ..FLAG_DEFAULTS
};
pub(super) const FORMAT: Flag = Flag {
    long: "format",
    value: "FORM",
    default: "text",
    doc: "Form of the result on stdout: text, or that of ab, wrk, h2load or h1load for scripts that parse it; \
          its latencies count from the send",
    ..FLAG_DEFAULTS
};
pub(super) const CHECK: Flag = Flag {
    long: "check",
    doc: "Print the plan in words and exit; reports every problem of the flags and files",
    ..FLAG_DEFAULTS
};
pub(super) const HDR: Flag = Flag {
    long: "hdr",
    value: "FILE",
    doc: "Write an HdrHistogram interval log; an interval per second, with every latency phase",
    ..FLAG_DEFAULTS
};
pub(super) const PERCENTILES: Flag = Flag {
    long: "percentiles",
    aliases: &["--latency"],
    short: Some('P'),
    doc: "Print all percentiles of the latencies; of the first and the last byte, service and \
          response time, up to 99.9999 %",
    ..FLAG_DEFAULTS
};
pub(super) const TUI: Flag = Flag {
    long: "tui",
    doc: "Show a full screen while the load runs; + and - change the rate of an open loop, q ends the load",
    ..FLAG_DEFAULTS
};
pub(super) const CONFIRM: Flag = Flag {
    long: "confirm",
    doc: "Verify the diagnosis in short loads with the suspected limit changed; the limit is \
          connections, think time, generator threads or the server's CPU time; the throughput is \
          compared with the prediction; a refuted verdict becomes unknown, and a limit that cannot be \
          tested is reported with the reason",
    ..FLAG_DEFAULTS
};
pub(super) const NO_BASELINE: Flag = Flag {
    long: "no-baseline",
    doc: "Skip the baseline before the load: requests sent one at a time, up to 1 s and 500 \
          requests, for loads of 3 s and more without -n; without it, queueing cannot be \
          distinguished from service time",
    ..FLAG_DEFAULTS
};
pub(super) const SUBJECT: Flag = Flag {
    long: "subject",
    value: "PID",
    repeatable: true,
    default: "the process that listens on the target port",
    doc: "PID of the server under load; for a server that cannot be found by its port, such as \
          behind a port forwarder; its children belong to it; repeatable",
    valid: &["1"],
    invalid: &["x", "0"],
    ..FLAG_DEFAULTS
};
pub(super) const CONTROL: Flag = Flag {
    long: "control",
    doc: "Open the connections and wait for commands on stdin, one a line: 'start NS' (a time of \
          CLOCK_MONOTONIC), 'rate FACTOR' and 'stop'; write events to stdout as JSON, one a line: connected, \
          started and second; the end of stdin stops the load",
    ..FLAG_DEFAULTS
};
pub(super) const SLICE: Flag = Flag {
    long: "slice",
    value: "FROM-TO/TOTAL",
    default: "all of it",
    doc: "Slice of the load: connections, rate, requests, stages and source addresses are divided into \
          TOTAL parts, of which this process drives those from FROM to TO; the slices of several \
          processes add up exactly",
    valid: &["0-3/8"],
    invalid: &["1/2", "2-2/8", "0-9/8", "0-1/1000"],
    ..FLAG_DEFAULTS
};
