//! Options of `weir watch`: parses texts of flags to values and reports every problem at once.

use record::invalid_value;
use record::problem::InputProblem;
use record::units::{DurationUnit, MILLISECOND_NS, SECOND_NS, parse_duration_ns};
use runner::watch::plan::{WatchPlan, duplicate_targets, parse_pid, parse_port, parse_url};

use crate::flags::{CommandArgs, FlagReader};

const INTERVAL_NS_MIN: u64 = 100 * MILLISECOND_NS;
const INTERVAL_NS_MAX: u64 = 60 * SECOND_NS;
/// Length of the sample with `--once`.
const ONCE_NS: u64 = SECOND_NS;

pub(in crate::commands) fn parse_plan(args: CommandArgs<'_>) -> Result<WatchPlan, Vec<InputProblem>> {
    let mut flags = FlagReader::new(args);
    let mut targets = flags.parse_all("pid", parse_pid);
    targets.extend(flags.parse_all("port", parse_port));
    targets.extend(flags.parse_all("url", parse_url));
    flags.problems.extend(duplicate_targets(&targets));
    let nonzero = |text: &str| match parse_duration_ns(text, DurationUnit::Seconds)? {
        0 => Err(invalid_value!("must be above 0")),
        ns => Ok(ns),
    };
    let duration_ns = flags.parse("duration", nonzero);
    let every_ns = flags.parse("interval", nonzero).unwrap_or(SECOND_NS);
    if duration_ns.is_some_and(|length| length < INTERVAL_NS_MIN) {
        flags.add_problem("duration", "below the minimum of 100ms");
    }
    if !(INTERVAL_NS_MIN..=INTERVAL_NS_MAX).contains(&every_ns) {
        flags.add_problem("interval", "not within 100ms to 1m");
    }
    let once = args.is_set("once");
    let duration_ns = duration_ns.or_else(|| once.then_some(ONCE_NS));
    // An interval ends with the watch at the latest.
    let interval_ns = every_ns.min(duration_ns.unwrap_or(u64::MAX));
    flags.finish(WatchPlan { interval_ns, targets, once, duration_ns, json: args.text("json") })
}
