//! The flags of `weir load` for its outputs, and for what it observes.

use super::{Flag, flag, switch};

pub(super) const CSV: Flag =
    flag("csv", "FILE|-").doc("Write one CSV line per second; - writes it to stdout, and nothing else");
pub(super) const MARKDOWN: Flag = flag("markdown", "FILE|-")
    .doc("Write the result as Markdown tables; - writes it to stdout, and nothing else");
pub(super) const JUNIT: Flag = flag("junit", "FILE|-").doc(
    "Write the objectives, the validity and each condition of --fail-if as a JUnit test report; - \
     writes it to stdout, and nothing else",
);
pub(crate) const HTML: Flag = flag("html", "FILE").doc(
    "Write the result as one self-contained page, at most 600 kB: the answer, resources, findings and charts",
);
pub(super) const BASELINE: Flag = flag("baseline", "FILE").doc(
    "Compare the result with this record: each change with its 95 % interval, from the seconds of both runs",
);
pub(super) const FAIL_IF: Flag = flag("fail-if", "LIST")
    .repeatable()
    .values(&["p99>+10%,rate<-5%", "errors>+0.1%"], &["p99>10%", "p99<-1%", "p99.9>+1%", "x>+1%", ""])
    .doc(
        "Regressions that give exit code 3, e.g. 'p99>+10%,rate<-5%'; figures are p50, p99, rate, and \
         errors in percentage points; a change counts if its interval is beyond the limit; a condition \
         that the records cannot decide, such as below 8 complete seconds, gives exit code 4, and one \
         within the noise a warning",
    );
pub(super) const ON_INVALID: Flag = flag("on-invalid", "fail|warn")
    .default("fail")
    .values(&["warn", "fail"], &["", "ignore"])
    .doc("Exit code of a result that is not valid: 4, or that of its objectives with a warning");
pub(super) const FORMAT: Flag = flag("format", "FORM").default("text").doc(
    "Form of the result on stdout: text, or that of ab, wrk, h2load or h1load for scripts that parse it; \
     its latencies count from the send",
);
pub(super) const CHECK: Flag =
    switch("check").doc("Print the plan in words and exit; reports every problem of the flags and files");
pub(super) const HDR: Flag = flag("hdr", "FILE")
    .doc("Write an HdrHistogram interval log; an interval per second, with every latency phase");
pub(super) const PERCENTILES: Flag = switch("percentiles").short('P').aliases(&["--latency"]).doc(
    "Print all percentiles of the latencies; of the first and the last byte, service and \
     response time, up to 99.9999 %",
);
pub(super) const TUI: Flag = switch("tui")
    .doc("Show a full screen while the load runs; + and - change the rate of an open loop, q ends the load");
pub(super) const CONFIRM: Flag = switch("confirm").doc(
    "Verify the diagnosis in short loads with the suspected limit changed; the limit is \
     connections, think time, generator threads or the server's CPU time; the throughput is \
     compared with the prediction; a refuted verdict becomes unknown, and a limit that cannot be \
     tested is reported with the reason",
);
pub(super) const NO_BASELINE: Flag = switch("no-baseline").doc(
    "Skip the baseline before the load: requests sent one at a time, up to 1 s and 500 \
     requests, for loads of 3 s and more without -n; without it, queueing cannot be \
     distinguished from service time",
);
pub(super) const SUBJECT: Flag = flag("subject", "PID")
    .repeatable()
    .default("the process that listens on the target port")
    .values(&["1"], &["x", "0"])
    .doc(
        "PID of the server under load; for a server that cannot be found by its port, such as \
         behind a port forwarder; its children belong to it; repeatable",
    );
pub(super) const CONTROL: Flag = switch("control").doc(
    "Open the connections and wait for commands on stdin, one a line: 'start NS' (a time of \
     CLOCK_MONOTONIC), 'rate FACTOR' and 'stop'; write events to stdout as JSON, one a line: connected, \
     started and second; the end of stdin stops the load",
);
pub(super) const SLICE: Flag = flag("slice", "FROM-TO/TOTAL")
    .default("all of it")
    .values(&["0-3/8"], &["1/2", "2-2/8", "0-9/8", "0-1/1000"])
    .doc(
        "Slice of the load: connections, rate, requests, stages and source addresses are divided into \
         TOTAL parts, of which this process drives those from FROM to TO; the slices of several \
         processes add up exactly",
    );
