//! Evidence of a limit without CPU time: where the subject's threads sleep.

use std::collections::BTreeMap;

use crate::run_view::RunView;
use crate::sleeps::{WaitsFor, waits_for};
use crate::window::SUBJECT;

/// Maximum number of functions in a text.
const FUNCTIONS_SHOWN: usize = 3;
/// Minimum mean number of threads of a function in a text.
const THREADS_SHOWN_MIN: f64 = 0.05;

/// Describes where the subject's threads sleep: "working threads of the subject asleep: 7.0 for a timer (hrtimer_nanosleep),
/// 1.0 for events (do_epoll_wait)". Threads without work come last. `None` if nothing is known.
pub(crate) fn describe_sleeps(view: &RunView<'_>) -> Option<String> {
    let samples = view.machine(SUBJECT)?.role(SUBJECT);
    let (mut by_function, mut length_s) = (BTreeMap::<&str, f64>::new(), 0.0);
    for (sample_s, role) in samples.weighted() {
        length_s += sample_s;
        for (function, threads) in role.threads_asleep.iter().flatten() {
            *by_function.entry(function).or_default() += threads * sample_s;
        }
    }
    let means =
        by_function.into_iter().map(|(function, sum)| (waits_for(function), function, sum / length_s));
    let mut sleeps: Vec<_> = means.filter(|(_, _, threads)| *threads >= THREADS_SHOWN_MIN).collect();
    sleeps.sort_by(|one, other| {
        let idle = |sleep: &(WaitsFor, &str, f64)| sleep.0 == WaitsFor::Work;
        idle(one).cmp(&idle(other)).then(other.2.total_cmp(&one.2))
    });
    let shown = sleeps.iter().take(FUNCTIONS_SHOWN);
    let texts: Vec<String> = shown
        .map(|(event, function, threads)| format!("{threads:.1} for {} ({function})", event.description()))
        .collect();
    (!texts.is_empty())
        .then(|| format!("working threads of the subject asleep: {} (PID/task/wchan)", texts.join(", ")))
}
