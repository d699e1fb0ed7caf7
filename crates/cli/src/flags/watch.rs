//! The flags of `weir watch`.

use record::invalid_value;
use record::problem::InvalidValue;
use record::units::{DurationUnit, SECOND_NS, parse_duration_ns};
use runner::watch::plan::{WatchTarget, parse_pid, parse_port, parse_url};

use super::load::JSON;
use super::{CommandFlags, CommandInfo, Destination, Flag, command_flags, flag, switch};

pub(crate) const WATCH: CommandInfo = CommandInfo {
    name: "watch",
    about: "Show live metrics of the machine and its processes",
    doc: "Shows CPUs, threads, quotas, file descriptors, links, TCP counters, listen queues and \
          sockets of the selected processes. Alerts are on top, each with a sentence that \
          explains it. Without a process it shows the machine and its busiest processes. On a \
          terminal it is a full screen (? is the help); otherwise it prints a block of text per \
          interval. Metrics that the machine does not provide are listed with the reason, and so \
          is the cost of sampling.\n\nA process gets the role `subject`, or its command and PID \
          if there are several. A name can be set as in --port origin=9000. Child processes \
          belong to it.",
    values: None,
    flags: WatchFlags::FLAGS,
    examples: &[
        ("weir watch --once", "one second of the machine and its busiest processes"),
        (
            "weir watch --once --port 8000 -d 2s",
            "two seconds of the process that listens on a port, and of the servers behind it",
        ),
        (
            "weir watch --url http://127.0.0.1:8000/ -d 2s --json watch.json",
            "store the samples for a later diagnosis",
        ),
    ],
};

/// Length of a sample, without `--interval`.
const INTERVAL_NS_DEFAULT: u64 = SECOND_NS;

pub(crate) const WATCH_DURATION: Flag = flag("duration", "TIME")
    .short('d')
    .default("until Ctrl-C, or 1s with --once")
    .values(&["10", "1m"], &["0", "10ms", "1d", "long"])
    .doc("Duration, 100 ms or more; default unit: s");
pub(crate) const WATCH_INTERVAL: Flag = flag("interval", "TIME")
    .default("1s")
    .values(&["2", "500ms"], &["0", "10ms", "2m", "often"])
    .doc("Sampling interval, 100 ms to 1 min; default unit: s");

command_flags! {
    pub(crate) struct WatchFlags {
        pids: Vec<WatchTarget> = flag("pid", "[NAME=]PID")
            .repeatable()
            .values(&["1", "origin=1"], &["0", "nginx", "=1", "4294967296"])
            .doc("Process to watch, with its children; repeatable")
            .list(parse_pid),
        ports: Vec<WatchTarget> = flag("port", "[NAME=]PORT")
            .repeatable()
            .values(&["8000", "origin=9000"], &["0", "65536", "http", "=1"])
            .doc(
                "TCP port whose listening process is watched; servers behind it on this machine too; \
                 repeatable",
            )
            .list(parse_port),
        urls: Vec<WatchTarget> = flag("url", "URL")
            .repeatable()
            .values(&["http://127.0.0.1:8000/"], &["127.0.0.1", "ftp://x/", ""])
            .doc("URL whose server on this machine is watched; servers behind it too; repeatable")
            .list(parse_url),
        duration_ns: Option<u64> = WATCH_DURATION.parsed(parse_length_ns),
        interval_ns: u64 = WATCH_INTERVAL.parsed_or(parse_length_ns, INTERVAL_NS_DEFAULT),
        once: bool = switch("once").doc("Print one sample as text and exit").is_given(),
        json: Destination = JSON.destination(),
    }
}

fn parse_length_ns(text: &str) -> Result<u64, InvalidValue> {
    match parse_duration_ns(text, DurationUnit::Seconds)? {
        0 => Err(invalid_value!("must be above 0")),
        ns => Ok(ns),
    }
}
