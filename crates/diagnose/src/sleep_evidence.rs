//! Evidence of a limit without CPU time: where the subject's threads sleep.

use std::collections::BTreeMap;

use record::sorted::sort_by;

use crate::run_view::RunView;
use crate::sleeps::{WaitsFor, waits_for};
use crate::window::SUBJECT;

/// Maximum number of functions in a text.
const FUNCTIONS_SHOWN: usize = 3;
/// Minimum mean number of threads of a function in a text.
const THREADS_SHOWN_MIN: f64 = 0.05;

/// Minimum fraction of the threads asleep that is more than a thread which did nothing for a moment, such as the first
/// one of a server of event loops.
const MAIN_SLEEP_FRACTION_MIN: f64 = 0.2;

/// Function in which threads of the subject sleep.
pub(crate) struct Sleep<'a> {
    pub(crate) event: WaitsFor,
    pub(crate) function: &'a str,
    threads: f64,
}

/// Describes where the subject's threads sleep: "working threads of the subject asleep: 7.0 for a timer (hrtimer_nanosleep),
/// 1.0 for events (do_epoll_wait)". Threads without work come last. `None` if nothing is known.
pub(crate) fn describe_sleeps(view: &RunView<'_>) -> Option<String> {
    let texts: Vec<String> = sleeps(view)?
        .iter()
        .take(FUNCTIONS_SHOWN)
        .map(|sleep| format!("{:.1} for {} ({})", sleep.threads, sleep.event.description(), sleep.function))
        .collect();
    (!texts.is_empty())
        .then(|| format!("working threads of the subject asleep: {} (PID/task/wchan)", texts.join(", ")))
}

/// Returns the function in which most of the subject's threads sleep that have work. `None` if nearly all wait for
/// events.
pub(crate) fn main_sleep<'a>(view: &RunView<'a>) -> Option<Sleep<'a>> {
    let sleeps = sleeps(view)?;
    let all: f64 = sleeps.iter().map(|sleep| sleep.threads).sum();
    let has_work = |sleep: &Sleep<'_>| sleep.event != WaitsFor::Work;
    sleeps
        .into_iter()
        .next()
        .filter(|sleep| has_work(sleep) && sleep.threads >= MAIN_SLEEP_FRACTION_MIN * all)
}

/// Returns the functions in which the subject's threads sleep, those with most threads first, and those without
/// work last.
fn sleeps<'a>(view: &RunView<'a>) -> Option<Vec<Sleep<'a>>> {
    let samples = view.machine(SUBJECT)?.role(SUBJECT);
    let (mut by_function, mut length_s) = (BTreeMap::<&str, f64>::new(), 0.0);
    for (sample_s, role) in samples.weighted() {
        length_s += sample_s;
        for (function, threads) in role.threads_asleep.iter().flatten() {
            *by_function.entry(function).or_default() += threads * sample_s;
        }
    }
    let sleeps = by_function.into_iter().map(|(function, sum)| Sleep {
        event: waits_for(function),
        function,
        threads: sum / length_s,
    });
    let mut sleeps: Vec<_> = sleeps.filter(|sleep| sleep.threads >= THREADS_SHOWN_MIN).collect();
    sort_by(&mut sleeps, |left, right| {
        let idle = |sleep: &Sleep<'_>| sleep.event == WaitsFor::Work;
        idle(left).cmp(&idle(right)).then(right.threads.total_cmp(&left.threads))
    });
    Some(sleeps)
}
