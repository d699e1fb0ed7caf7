//! The plan of each trial, from the plan that they have in common. Pure.

use record::units::SECOND_NS;

use super::{Find, Settings};
use crate::pace::Pace;
use crate::plan::{Arrivals, LINE_MAX, Objective, Plan};

/// With idle connections each has about one request in a trial, so that one which stands and is served by
/// nobody is found; trials become so much longer that the rate of all stays below this, up to a bound.
const TRICKLE_PER_S: (f64, f64) = (10.0, 1_000.0);
const TRICKLE_NS_MAX: f64 = 60e9;
/// Shorter ones have no whole second, and what is answered only when others close would not be told from
/// what is answered.
const IDLE_NS_MIN: u64 = SECOND_NS;
/// A little more than one, because the first and the last of a trial are at its edges.
const TRICKLE_EACH: f64 = 1.1;
/// Connections of the observer.
const OBSERVER_CONNECTIONS_MAX: u64 = 16;
/// The shortest line: a burst must find room.
const LINE_MIN: u64 = 1_000;

/// A trial of `level`, with the objectives of `base`.
#[must_use]
pub fn trial_plan(base: &Plan, find: Find, level: f64, length_ns: u64) -> Plan {
    let mut plan = base.clone();
    let mut rate_per_s = level;
    match find {
        Find::Rate | Find::Bandwidth => {}
        Find::ConnectionsPerSecond => plan.requests_per_connection = Some(1),
        Find::Connections => {
            plan.connections = (level as u64).max(1);
            plan.threads = plan.threads.min(usize::try_from(plan.connections).unwrap_or(1));
            rate_per_s = (TRICKLE_EACH * level * 1e9 / idle_ns(level, length_ns) as f64)
                .max(TRICKLE_PER_S.0);
        }
    }
    set_rate(&mut plan, rate_per_s);
    plan.end.duration_ns = match find {
        Find::Connections => idle_ns(level, length_ns),
        _ => Settings::stretched_ns(length_ns, rate_per_s),
    };
    plan
}

/// Length of a trial with so many idle connections, which is at least `length_ns`.
pub(super) fn idle_ns(level: f64, length_ns: u64) -> u64 {
    let needed_ns = (TRICKLE_EACH * level / TRICKLE_PER_S.1 * 1e9).min(TRICKLE_NS_MAX);
    length_ns.max(needed_ns as u64).max(IDLE_NS_MIN)
}

/// The load of few requests beside `main`, at `rate_per_s`; `main` has that much less from now on.
#[must_use]
pub fn observer_plan(main: &mut Plan, rate_per_s: f64) -> Plan {
    let mut plan = main.clone();
    plan.connections = plan.connections.min(OBSERVER_CONNECTIONS_MAX);
    plan.threads = 1;
    set_rate(&mut plan, rate_per_s);
    if let Pace::Open { rate_per_s: whole, .. } = main.pace {
        set_rate(main, whole - rate_per_s);
    }
    plan
}

/// A closed loop of so many connections, for the law of scaling. Of the objectives it has those of errors:
/// how fast it gets answers is what it is run for.
#[must_use]
pub fn closed_plan(base: &Plan, connections: u64, length_ns: u64) -> Plan {
    let mut plan = base.clone();
    plan.connections = connections;
    plan.threads = plan.threads.min(usize::try_from(connections).unwrap_or(1));
    plan.pace = Pace::Closed { think_ns: 0 };
    plan.end.duration_ns = length_ns;
    plan.objectives.retain(Objective::is_of_errors);
    plan
}

fn set_rate(plan: &mut Plan, rate_per_s: f64) {
    let arrivals = match plan.pace {
        Pace::Open { arrivals, .. } => arrivals,
        Pace::Closed { .. } => Arrivals::Constant,
    };
    plan.pace = Pace::Open { rate_per_s, arrivals };
    let within_timeout = rate_per_s * plan.timeout_ns as f64 / 1e9;
    plan.line_max = (within_timeout.ceil() as u64).clamp(LINE_MIN, LINE_MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PlanText;

    fn base() -> Plan {
        let text = PlanText {
            urls: vec!["http://127.0.0.1:1/".to_owned()],
            connections: Some("100".to_owned()),
            threads: Some("2".to_owned()),
            rate: Some("1".to_owned()),
            arrivals: Some("poisson".to_owned()),
            slo: vec!["p99<5ms".to_owned()],
            ..PlanText::default()
        };
        Plan::parse(&text, 2).unwrap()
    }

    fn rate(plan: &Plan) -> f64 {
        match plan.pace {
            Pace::Open { rate_per_s, arrivals: Arrivals::Poisson } => rate_per_s,
            _ => panic!("{:?}", plan.pace),
        }
    }

    #[test]
    fn a_level_is_what_is_searched_for() {
        let plan = |find, level| trial_plan(&base(), find, level, SECOND_NS);
        let of_rate = plan(Find::Rate, 50.0);
        assert_eq!((rate(&of_rate), of_rate.end.duration_ns), (50.0, 2 * SECOND_NS));
        assert_eq!((of_rate.line_max, of_rate.objectives.len()), (1000, 1));
        assert_eq!(plan(Find::Rate, 1e4).line_max, 50_000);
        assert_eq!(plan(Find::ConnectionsPerSecond, 1e4).requests_per_connection, Some(1));
        let idle = plan(Find::Connections, 3000.0);
        assert_eq!((idle.connections, idle.end.duration_ns), (3000, 3_300_000_000));
        assert!((rate(&idle) - 1000.0).abs() < 1e-6 && rate(&plan(Find::Connections, 2.0)) == 10.0);
        assert_eq!(plan(Find::Connections, 1.0).threads, 1);
    }

    #[test]
    fn the_observer_takes_its_rate_from_the_load() {
        let mut main = trial_plan(&base(), Find::Rate, 1000.0, SECOND_NS);
        let observer = observer_plan(&mut main, 10.0);
        assert_eq!((rate(&main), rate(&observer)), (990.0, 10.0));
        assert_eq!((main.connections, observer.connections, observer.threads), (100, 16, 1));
    }

    #[test]
    fn a_closed_loop_has_objectives_of_errors_only() {
        let mut base = base();
        base.objectives.extend(Objective::parse_list("errors<1%").0);
        let plan = closed_plan(&base, 1, SECOND_NS);
        assert!(!plan.is_open_loop());
        assert_eq!(plan.objectives.iter().map(Objective::text).collect::<Vec<_>>(), ["errors<1%"]);
        assert_eq!((plan.connections, plan.threads), (1, 1));
    }
}
