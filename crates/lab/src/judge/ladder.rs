//! The answer of an experiment that compares nothing: one arm under loads that are a ladder.
//!
//! Not for the law behind it, which is fitted elsewhere.

use record::experiment::{Plan, ScalingLine};
use record::units::format_count;

/// So much of the most is nearly as much.
const NEARLY: f64 = 0.95;

/// What a ladder says where there is nothing else to compare: where the most is, how much of it is there
/// before, and what is left at the end.
#[must_use]
pub fn ladder(plan: &Plan, scalings: &[ScalingLine]) -> Option<String> {
    if plan.arms.iter().filter(|arm| arm.again.is_none()).count() > 1 {
        return None;
    }
    let (line, metric) = (scalings.first()?, plan.primary()?);
    let (factor, points) = (&line.factor, &line.points);
    let most = points.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let enough = points.iter().find(|point| point.1 >= NEARLY * most.1)?;
    let last = points.last()?;
    let share = |value: f64| value / most.1 * 100.0;
    let mut text =
        format!("Most {} with {factor} at {} ({}/s)", metric.title, most.0, format_count(most.1));
    if enough.0 < most.0 {
        text.push_str(&format!("; {:.0} % of that with {} already", share(enough.1), enough.0));
    }
    if last.0 > most.0 {
        text.push_str(&format!("; {:.0} % of it with {}", share(last.1), last.0));
    }
    text.push('.');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::experiment::{Arm, Metric};

    fn told(points: &[(f64, f64)]) -> Option<String> {
        let metric = Metric { title: "responses per second".to_owned(), ..Metric::default() };
        let plan = Plan { arms: vec![Arm::default()], metrics: vec![metric], ..Plan::default() };
        let line = ScalingLine {
            factor: "threads".to_owned(),
            points: points.to_vec(),
            ..ScalingLine::default()
        };
        ladder(&plan, &[line])
    }

    #[test]
    fn the_most_is_said_with_what_is_before_and_behind_it() {
        let text = told(&[(1.0, 1e3), (2.0, 1.96e3), (4.0, 2e3), (8.0, 1.5e3)]).unwrap();
        let expected = "Most responses per second with threads at 4 (2.00k/s); 98 % of that with 2 already; \
                        75 % of it with 8.";
        assert_eq!(text, expected);
        let text = told(&[(1.0, 1e3), (2.0, 2e3)]).unwrap();
        assert_eq!(text, "Most responses per second with threads at 2 (2.00k/s).");
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn where_arms_are_compared_it_says_nothing() {
        let own = |name: &str| Arm { name: name.to_owned(), ..Arm::default() };
        let plan = Plan { arms: vec![own("a"), own("b")], ..Plan::default() };
        assert_eq!(ladder(&plan, &[ScalingLine::default()]), None);
    }
}
