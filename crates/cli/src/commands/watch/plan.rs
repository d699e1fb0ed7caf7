//! Options of `weir watch`: parses texts of flags to values and reports every problem at once.

use record::problem::InputProblem;
use record::units::{MILLISECOND_NS, SECOND_NS};
use runner::watch::plan::{WatchPlan, duplicate_targets};

use crate::flags::{CommandArgs, CommandFlags, FlagReader, WATCH_DURATION, WATCH_INTERVAL, WatchFlags};

const INTERVAL_NS_MIN: u64 = 100 * MILLISECOND_NS;
const INTERVAL_NS_MAX: u64 = 60 * SECOND_NS;
/// Length of the sample with `--once`.
const ONCE_NS: u64 = SECOND_NS;

pub(in crate::commands) fn parse_plan(args: CommandArgs<'_>) -> Result<WatchPlan, Vec<InputProblem>> {
    let mut reader = FlagReader::new(args);
    let flags = WatchFlags::read(&mut reader);
    let targets = [flags.pids, flags.ports, flags.urls].concat();
    reader.problems.extend(duplicate_targets(&targets));
    if flags.duration_ns.is_some_and(|length| length < INTERVAL_NS_MIN) {
        reader.add_problem(WATCH_DURATION.long, "below the minimum of 100ms");
    }
    if !(INTERVAL_NS_MIN..=INTERVAL_NS_MAX).contains(&flags.interval_ns) {
        reader.add_problem(WATCH_INTERVAL.long, "not within 100ms to 1m");
    }
    let once = flags.once;
    let duration_ns = flags.duration_ns.or_else(|| once.then_some(ONCE_NS));
    // An interval ends with the watch at the latest.
    let interval_ns = flags.interval_ns.min(duration_ns.unwrap_or(u64::MAX));
    reader.finish(WatchPlan { interval_ns, targets, once, duration_ns, json: flags.json.path })
}
