//! Plan of each trial, from the common plan. No I/O.

use record::units::SECOND_NS;

use super::{SearchQuantity, SearchSettings};
use crate::pace::{Arrivals, Pace};
use crate::plan::{Objective, PENDING_MAX, RunPlan};

/// Minimum and maximum total rate of idle connections. Each has about one request in a trial, so
/// that a connection that is open but not served is found. Trials become longer, up to
/// `TRICKLE_NS_MAX`, to stay below the maximum.
const TRICKLE_RATE_PER_S: (f64, f64) = (10.0, 1_000.0);
const TRICKLE_NS_MAX: f64 = 60e9;
/// Minimum length of a trial with idle connections. Shorter ones have no complete second. Requests
/// that are answered only after other connections close could then not be distinguished.
const IDLE_TRIAL_NS_MIN: u64 = SECOND_NS;
/// Requests of each connection: a little more than one, because the first and the last of a trial
/// are at its edges.
const TRICKLE_REQUESTS_PER_CONNECTION: f64 = 1.1;
const OBSERVER_CONNECTIONS_MAX: u64 = 16;
/// Minimum length of the queue: a burst must fit.
const PENDING_MIN: u64 = 1_000;

/// Returns the plan of a trial of `level`, with the objectives of `base`.
pub fn trial_plan(base: &RunPlan, quantity: SearchQuantity, level: f64, length_ns: u64) -> RunPlan {
    let mut plan = base.clone();
    let mut rate_per_s = level;
    match quantity {
        SearchQuantity::Rate | SearchQuantity::Bandwidth => {}
        SearchQuantity::ConnectionsPerSecond | SearchQuantity::Handshakes => {
            plan.requests_per_connection = Some(1);
        }
        SearchQuantity::Streams => return stream_trial_plan(plan, level, length_ns),
        SearchQuantity::Connections => {
            plan.connections = (level as u64).max(1);
            plan.threads = plan.threads.min(usize::try_from(plan.connections).unwrap_or(1));
            rate_per_s = (TRICKLE_REQUESTS_PER_CONNECTION * level * 1e9
                / idle_trial_ns(level, length_ns) as f64)
                .max(TRICKLE_RATE_PER_S.0);
        }
    }
    set_rate(&mut plan, rate_per_s);
    plan.end.duration_ns = match quantity {
        SearchQuantity::Connections => idle_trial_ns(level, length_ns),
        _ => SearchSettings::stretched_ns(length_ns, rate_per_s),
    };
    plan
}

/// Returns a closed loop with so many streams on each connection.
fn stream_trial_plan(mut plan: RunPlan, level: f64, length_ns: u64) -> RunPlan {
    if let Some(http2) = &mut plan.http2 {
        http2.streams = (level as u64).max(1);
    }
    plan.pace = Pace::Closed { think_ns: 0 };
    plan.max_pending = 0;
    plan.end.duration_ns = length_ns.max(IDLE_TRIAL_NS_MIN);
    plan
}

/// Returns the length of a trial with `level` idle connections, at least `length_ns`.
pub(super) fn idle_trial_ns(level: f64, length_ns: u64) -> u64 {
    let needed_ns =
        (TRICKLE_REQUESTS_PER_CONNECTION * level / TRICKLE_RATE_PER_S.1 * 1e9).min(TRICKLE_NS_MAX);
    length_ns.max(needed_ns as u64).max(IDLE_TRIAL_NS_MIN)
}

/// Returns the plan of a small load beside `main`, at `rate_per_s`, and reduces `main` by that
/// rate.
#[must_use]
pub fn observer_plan(main: &mut RunPlan, rate_per_s: f64) -> RunPlan {
    let mut plan = main.clone();
    plan.connections = plan.connections.min(OBSERVER_CONNECTIONS_MAX);
    plan.threads = 1;
    set_rate(&mut plan, rate_per_s);
    if let Pace::Open { rate_per_s: total_per_s, .. } = main.pace {
        set_rate(main, total_per_s - rate_per_s);
    }
    plan
}

/// Returns the plan of a closed loop of `connections`, for the scaling law. It has only the
/// objectives of errors: the response rate is what it measures.
pub fn closed_loop_plan(base: &RunPlan, connections: u64, length_ns: u64) -> RunPlan {
    let mut plan = base.clone();
    plan.connections = connections;
    plan.threads = plan.threads.min(usize::try_from(connections).unwrap_or(1));
    plan.pace = Pace::Closed { think_ns: 0 };
    plan.end.duration_ns = length_ns;
    plan.objectives.retain(Objective::is_error_rate);
    plan
}

fn set_rate(plan: &mut RunPlan, rate_per_s: f64) {
    let arrivals = match plan.pace {
        Pace::Open { arrivals, .. } => arrivals,
        Pace::Closed { .. } => Arrivals::Constant,
    };
    plan.pace = Pace::Open { rate_per_s, arrivals };
    let within_timeout = rate_per_s * plan.timeout_ns as f64 / 1e9;
    plan.max_pending = (within_timeout.ceil() as u64).clamp(PENDING_MIN, PENDING_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Http2Plan, LoadFlags};

    fn base() -> RunPlan {
        let text = LoadFlags {
            urls: vec!["http://127.0.0.1:1/".to_owned()],
            connections: Some("100".to_owned()),
            threads: Some("2".to_owned()),
            rate: Some("1".to_owned()),
            arrivals: Some("poisson".to_owned()),
            slo: vec!["p99<5ms".to_owned()],
            ..LoadFlags::default()
        };
        RunPlan::parse(&text, 2).unwrap()
    }

    fn rate(plan: &RunPlan) -> f64 {
        match plan.pace {
            Pace::Open { rate_per_s, arrivals: Arrivals::Poisson } => rate_per_s,
            _ => panic!("{:?}", plan.pace),
        }
    }

    #[test]
    fn a_level_is_what_is_searched_for() {
        let plan = |quantity, level| trial_plan(&base(), quantity, level, SECOND_NS);
        let rate_plan = plan(SearchQuantity::Rate, 50.0);
        assert_eq!((rate(&rate_plan), rate_plan.end.duration_ns), (50.0, 2 * SECOND_NS));
        assert_eq!((rate_plan.max_pending, rate_plan.objectives.len()), (1000, 1));
        assert_eq!(plan(SearchQuantity::Rate, 1e4).max_pending, 50_000);
        assert_eq!(plan(SearchQuantity::ConnectionsPerSecond, 1e4).requests_per_connection, Some(1));
        let idle = plan(SearchQuantity::Connections, 3000.0);
        assert_eq!((idle.connections, idle.end.duration_ns), (3000, 3_300_000_000));
        assert!((rate(&idle) - 1000.0).abs() < 1e-6 && rate(&plan(SearchQuantity::Connections, 2.0)) == 10.0);
        assert_eq!(plan(SearchQuantity::Connections, 1.0).threads, 1);
        assert_eq!(plan(SearchQuantity::Handshakes, 50.0).requests_per_connection, Some(1));
    }

    #[test]
    fn a_level_of_streams_is_a_closed_loop() {
        let http2 = Http2Plan {
            fraction: 1.0,
            streams: 1,
            window_bytes: 1 << 20,
            connection_window_bytes: 1 << 20,
            grpc: false,
        };
        let base = RunPlan { http2: Some(http2), ..base() };
        let plan = trial_plan(&base, SearchQuantity::Streams, 32.0, SECOND_NS / 2);
        assert_eq!((plan.concurrency(), plan.is_open_loop()), (3_200, false));
        assert_eq!((plan.end.duration_ns, plan.objectives.len()), (SECOND_NS, 1));
    }

    #[test]
    fn the_observer_takes_its_rate_from_the_load() {
        let mut main = trial_plan(&base(), SearchQuantity::Rate, 1000.0, SECOND_NS);
        let observer = observer_plan(&mut main, 10.0);
        assert_eq!((rate(&main), rate(&observer)), (990.0, 10.0));
        assert_eq!((main.connections, observer.connections, observer.threads), (100, 16, 1));
    }

    #[test]
    fn a_closed_loop_has_objectives_of_errors_only() {
        let mut base = base();
        base.objectives.extend(Objective::parse_list("errors<1%").0);
        let plan = closed_loop_plan(&base, 1, SECOND_NS);
        assert!(!plan.is_open_loop());
        assert_eq!(plan.objectives.iter().map(Objective::text).collect::<Vec<_>>(), ["errors<1%"]);
        assert_eq!((plan.connections, plan.threads), (1, 1));
    }
}
