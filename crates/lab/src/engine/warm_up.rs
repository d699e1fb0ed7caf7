//! How long a load runs unrecorded before each trial: found out by pilots, fixed before the first block,
//! and the same for all arms, because a warm-up of its own would be an advantage. Pure.
//!
//! Not for when a rate is steady: that is in each pilot's record.

use record::experiment::{Plan, TrialLine};
use record::trial::Kind;
use serde::{Deserialize, Serialize};

/// By how much a pilot's load is longer than a trial's, in seconds: so that it shows when a rate becomes
/// steady late.
pub const PILOT_EXTRA_S: f64 = 10.0;
/// The shortest warm-up that is found: connections are set up in it.
pub const WARM_UP_S_MIN: f64 = 1.0;
/// The longest, if the trials are as long: longer ones cost more than they are worth.
pub const WARM_UP_S_MAX: f64 = 30.0;
/// The name of the record's form.
pub const SCHEMA: &str = "weir.warm-up/1";

/// The warm-up that was chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmUp {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its length.
    pub warm_up_s: f64,
    /// Why, in words.
    pub text: String,
    /// The cells that were never steady, or did not tell, in words; the longest warm-up was taken then.
    pub unsteady: Vec<String>,
    /// The cells that were steady only after the longest warm-up: it was cut for them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub late: Vec<Late>,
}

/// A cell that was steady after the longest warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// Its arm.
    pub arm: String,
    /// Its load.
    pub load: String,
    /// The second from which on it was steady.
    pub from_s: f64,
}

/// The warm-up that fits all pilots: that of the cell that was steady last.
#[must_use]
pub fn choose(plan: &Plan, lines: &[TrialLine]) -> WarmUp {
    let longest_s = WARM_UP_S_MAX.min(plan.duration_s).max(WARM_UP_S_MIN);
    let mut slowest: Option<(f64, &TrialLine)> = None;
    let (mut unsteady, mut late) = (Vec::new(), Vec::new());
    let pilots = lines.iter().filter(|line| line.place.kind == Kind::Pilot);
    for line in pilots.filter(|line| line.failed.is_none()) {
        if let Some(from_s) = line.steady.from_s.filter(|from_s| *from_s > longest_s) {
            let (arm, load) = (line.place.arm.clone(), line.place.load.clone());
            late.push(Late { arm, load, from_s });
        }
        match line.steady.from_s {
            Some(from_s) if slowest.as_ref().is_none_or(|(most_s, _)| from_s > *most_s) => {
                slowest = Some((from_s, line));
            }
            Some(_) => {}
            None => unsteady.push(format!("{}: {}", cell(line), line.steady.text)),
        }
    }
    let (warm_up_s, text) = match slowest {
        _ if !unsteady.is_empty() => {
            let text = format!("not every pilot became steady: the longest, {longest_s} s");
            (longest_s, text)
        }
        Some((from_s, line)) => {
            let warm_up_s = from_s.clamp(WARM_UP_S_MIN, longest_s);
            let bound = if from_s > longest_s { ", more than is taken" } else { "" };
            let cell = cell(line);
            (
                warm_up_s,
                format!("the slowest pilot, {cell}, was steady from second {from_s}{bound}"),
            )
        }
        None => (longest_s, format!("no pilot ran: the longest, {longest_s} s")),
    };
    WarmUp { schema: SCHEMA.to_owned(), warm_up_s, text, unsteady, late }
}

fn cell(line: &TrialLine) -> String {
    format!("{} under {}", line.place.arm, line.place.load)
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{line, plan};
    use super::*;

    fn pilots(steady: &[Option<f64>]) -> Vec<TrialLine> {
        let pilot = |(number, from_s): (u32, &Option<f64>)| {
            let mut line = line(number, 0, 1, &format!("arm{number}"), "x");
            line.place.kind = Kind::Pilot;
            line.steady.from_s = *from_s;
            line.steady.text = "the rate never settled".to_owned();
            line
        };
        (1..).zip(steady).map(pilot).collect()
    }

    #[test]
    fn the_slowest_pilot_decides_within_bounds() {
        let short = plan(&["a"], &["x"]);
        let chosen = |plan: &Plan, steady: &[Option<f64>]| choose(plan, &pilots(steady)).warm_up_s;
        assert_eq!(chosen(&short, &[Some(0.0), Some(0.0)]), 1.0);
        assert_eq!(chosen(&short, &[Some(2.0), Some(3.0), Some(1.0)]), 3.0);
        let cut = choose(&short, &pilots(&[Some(2.0), Some(17.0), Some(8.0), Some(8.5), None]));
        assert_eq!(cut.warm_up_s, 8.0, "a trial takes 8 s");
        let late: Vec<(&str, f64)> = cut.late.iter().map(|it| (&*it.arm, it.from_s)).collect();
        assert_eq!(late, [("arm2", 17.0), ("arm4", 8.5)]);
        let long = Plan { duration_s: 60.0, ..short.clone() };
        assert_eq!(chosen(&long, &[Some(50.0)]), 30.0);
        let tiny = Plan { duration_s: 0.2, ..short.clone() };
        assert_eq!(chosen(&tiny, &[Some(0.0)]), 1.0);
        let found = choose(&short, &pilots(&[Some(2.0), Some(3.0)]));
        assert!(found.text.contains("arm2 under x, was steady from second 3"), "{}", found.text);
    }

    #[test]
    fn what_never_was_steady_is_said_and_takes_the_longest() {
        let found = choose(&plan(&["a"], &["x"]), &pilots(&[Some(2.0), None]));
        assert_eq!(found.warm_up_s, 8.0);
        assert_eq!(found.unsteady, ["arm2 under x: the rate never settled"]);
    }
}
