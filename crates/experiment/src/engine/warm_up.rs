//! Length of the unrecorded load before each trial. Pilots determine it, and it is fixed before the
//! first block. It is the same for all arms, because a separate warm-up would be an advantage.
//! No I/O.
//!
//! Not for detecting when a rate is steady: each pilot's record has that.

use record::experiment::{ExperimentPlan, TrialSummary};
use record::trial::TrialKind;
use serde::{Deserialize, Serialize};

/// Additional length of a pilot's load in comparison with a trial's, in seconds, to detect a rate
/// that becomes steady late.
pub const PILOT_EXTRA_S: f64 = 10.0;
/// Minimum warm-up: connections are set up in it.
pub const WARM_UP_S_MIN: f64 = 1.0;
/// Maximum warm-up, unless the trials are shorter: the cost of a longer one exceeds its benefit.
pub const WARM_UP_S_MAX: f64 = 30.0;
pub const SCHEMA: &str = "weir.warm-up/1";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    pub schema: String,
    pub warm_up_s: f64,
    pub text: String,
    /// Descriptions of the cells that never became steady, or for which it is unknown. They cause
    /// the maximum warm-up.
    pub unsteady: Vec<String>,
    /// Cells that became steady only after the maximum warm-up, which was cut for them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub late: Vec<LateCell>,
}

/// Cell that became steady after the maximum warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LateCell {
    pub arm: String,
    pub load: String,
    /// Second from which on it was steady.
    pub from_s: f64,
}

/// Returns the warm-up that fits all pilots: that of the cell that became steady last.
pub fn choose_warm_up(plan: &ExperimentPlan, lines: &[TrialSummary]) -> WarmUp {
    let longest_s = WARM_UP_S_MAX.min(plan.duration_s).max(WARM_UP_S_MIN);
    let mut slowest: Option<(f64, &TrialSummary)> = None;
    let (mut unsteady, mut late) = (Vec::new(), Vec::new());
    let pilots = lines.iter().filter(|line| line.position.kind == TrialKind::Pilot);
    for line in pilots.filter(|line| line.failed.is_none()) {
        if let Some(from_s) = line.steady.from_s.filter(|from_s| *from_s > longest_s) {
            let (arm, load) = (line.position.arm.clone(), line.position.load.clone());
            late.push(LateCell { arm, load, from_s });
        }
        match line.steady.from_s {
            Some(from_s) if slowest.as_ref().is_none_or(|(max_s, _)| from_s > *max_s) => {
                slowest = Some((from_s, line));
            }
            Some(_) => {}
            None => unsteady.push(format!("{}: {}", describe_cell(line), line.steady.text)),
        }
    }
    let (warm_up_s, text) = match slowest {
        _ if !unsteady.is_empty() => {
            let text = format!("not every pilot became steady: maximum of {longest_s} s");
            (longest_s, text)
        }
        Some((from_s, line)) => {
            let warm_up_s = from_s.clamp(WARM_UP_S_MIN, longest_s);
            let bound = if from_s > longest_s { ", above the maximum" } else { "" };
            let cell = describe_cell(line);
            (warm_up_s, format!("the slowest pilot, {cell}, was steady from second {from_s}{bound}"))
        }
        None => (longest_s, format!("no pilot ran: maximum of {longest_s} s")),
    };
    WarmUp { schema: SCHEMA.to_owned(), warm_up_s, text, unsteady, late }
}

fn describe_cell(line: &TrialSummary) -> String {
    format!("{} under {}", line.position.arm, line.position.load)
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{plan, trial_line};
    use super::*;

    fn pilots(steady: &[Option<f64>]) -> Vec<TrialSummary> {
        let pilot = |(number, from_s): (u32, &Option<f64>)| {
            let mut line = trial_line(number, 0, 1, &format!("arm{number}"), "x");
            line.position.kind = TrialKind::Pilot;
            line.steady.from_s = *from_s;
            line.steady.text = "the rate never settled".to_owned();
            line
        };
        (1..).zip(steady).map(pilot).collect()
    }

    #[test]
    fn the_slowest_pilot_decides_within_bounds() {
        let short = plan(&["a"], &["x"]);
        let chosen =
            |plan: &ExperimentPlan, steady: &[Option<f64>]| choose_warm_up(plan, &pilots(steady)).warm_up_s;
        assert_eq!(chosen(&short, &[Some(0.0), Some(0.0)]), 1.0);
        assert_eq!(chosen(&short, &[Some(2.0), Some(3.0), Some(1.0)]), 3.0);
        let cut = choose_warm_up(&short, &pilots(&[Some(2.0), Some(17.0), Some(8.0), Some(8.5), None]));
        assert_eq!(cut.warm_up_s, 8.0, "a trial takes 8 s");
        let late: Vec<(&str, f64)> = cut.late.iter().map(|it| (&*it.arm, it.from_s)).collect();
        assert_eq!(late, [("arm2", 17.0), ("arm4", 8.5)]);
        let long = ExperimentPlan { duration_s: 60.0, ..short.clone() };
        assert_eq!(chosen(&long, &[Some(50.0)]), 30.0);
        let tiny = ExperimentPlan { duration_s: 0.2, ..short.clone() };
        assert_eq!(chosen(&tiny, &[Some(0.0)]), 1.0);
        let warm_up = choose_warm_up(&short, &pilots(&[Some(2.0), Some(3.0)]));
        assert!(warm_up.text.contains("arm2") && warm_up.text.contains(" 3"), "{}", warm_up.text);
    }

    #[test]
    fn unsteady_pilots_are_reported_and_take_the_maximum() {
        let warm_up = choose_warm_up(&plan(&["a"], &["x"]), &pilots(&[Some(2.0), None]));
        assert_eq!(warm_up.warm_up_s, 8.0);
        assert_eq!(warm_up.unsteady.len(), 1, "{:?}", warm_up.unsteady);
        assert!(warm_up.unsteady[0].starts_with("arm2 ") && warm_up.unsteady[0].ends_with("never settled"));
    }
}
