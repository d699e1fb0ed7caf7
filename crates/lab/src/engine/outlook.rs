//! How many trials are to come, and how long they take. Pure. Not for what decides it: that is
//! [`super::next`]'s.

use record::experiment::{Plan, TrialLine};
use record::trial::Kind;

use super::events::Outlook;
use super::next::{blocks, reruns_max};
use super::warm_up::PILOT_EXTRA_S;

/// What a trial takes besides its load and its warm-up until one has shown it: scenario, programs, looking.
const AROUND_S: f64 = 2.5;
/// The warm-up that is reckoned with as long as pilots have not found it.
const WARM_UP_S: f64 = 2.0;

/// What trials took beyond their loads: starting programs, waiting, removing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overhead {
    sum_s: f64,
    trials: u32,
}

impl Overhead {
    /// Adds one trial's.
    pub(super) fn add(&mut self, overhead_s: f64) {
        self.sum_s += overhead_s.max(0.0);
        self.trials += 1;
    }

    fn mean_s(self) -> f64 {
        if self.trials == 0 { AROUND_S } else { self.sum_s / f64::from(self.trials) }
    }
}

/// What is to come after `lines`, from the trial `number_next` on. What is run again comes on top.
pub(super) fn outlook(
    plan: &Plan,
    lines: &[TrialLine],
    number_next: u32,
    overhead: Overhead,
) -> Outlook {
    let cells = (plan.arms.len() * plan.loads.len()) as u32;
    let ran = |kind: Kind| {
        lines.iter().filter(|it| it.place.kind == kind && it.failed.is_none()).count() as u32
    };
    let pilots = match plan.warm_up_s {
        None => cells.saturating_sub(ran(Kind::Pilot)),
        Some(_) => 0,
    };
    let probes = match &plan.calls {
        Some(_) => {
            let arms = plan.arms.iter().filter(|arm| arm.again.is_none()).count();
            ((arms * plan.loads.len()) as u32).saturating_sub(ran(Kind::Probe))
        }
        None => 0,
    };
    let blocks = blocks(plan, lines);
    let to_run =
        |most: u32| (most.max(blocks.begun_count()) * cells).saturating_sub(blocks.done()) + probes;
    let trial_s = trial_s(plan, overhead);
    let pilots_s = f64::from(pilots) * (plan.duration_s + PILOT_EXTRA_S + overhead.mean_s());
    let (least, most) = (to_run(plan.blocks_min), to_run(plan.blocks_max));
    let before = number_next - 1 + pilots;
    Outlook {
        at_least: before + least,
        at_most: before + most,
        left_s: (pilots_s + f64::from(least) * trial_s, pilots_s + f64::from(most) * trial_s),
    }
}

fn trial_s(plan: &Plan, overhead: Overhead) -> f64 {
    plan.duration_s + plan.warm_up_s.unwrap_or(WARM_UP_S) + overhead.mean_s()
}

/// How long a plan takes: with the fewest blocks and nothing run again, and with the most and all that may
/// be run again.
#[must_use]
pub fn expected_s(plan: &Plan) -> (f64, f64) {
    let overhead = Overhead::default();
    let (least_s, most_s) = outlook(plan, &[], 1, overhead).left_s;
    let again = f64::from(reruns_max(plan, plan.blocks_max)) * plan.arms.len() as f64;
    (least_s, most_s + again * trial_s(plan, overhead))
}

#[cfg(test)]
mod tests {
    use super::super::blocks::mark;
    use super::super::simulated::{line, plan};
    use super::*;

    #[test]
    fn what_ran_is_taken_off_and_time_follows_from_what_trials_took() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut overhead = Overhead::default();
        let before = outlook(&plan, &[], 1, overhead);
        assert_eq!((before.at_least, before.at_most), (9, 15));
        assert_eq!(before.left_s, (9.0 * 11.5, 15.0 * 11.5));
        // Three groups of three arms may be run again.
        assert_eq!(expected_s(&plan), (9.0 * 11.5, 24.0 * 11.5));
        // Pilots run longer, and have no warm-up.
        let unknown = Plan { warm_up_s: None, ..plan.clone() };
        assert_eq!(expected_s(&unknown), (3.0 * 20.5 + 9.0 * 12.5, 3.0 * 20.5 + 24.0 * 12.5));
        overhead.add(1.0);
        overhead.add(-5.0);
        let mut lines: Vec<_> = [("a", 1), ("b", 2), ("a-again", 3)]
            .map(|(arm, number)| line(number, 1, 1, arm, "x"))
            .to_vec();
        lines.push(line(4, 2, 1, "a", "x"));
        mark(&plan, &mut lines, &[]);
        let meanwhile = outlook(&plan, &lines, 5, overhead);
        assert_eq!((meanwhile.at_least, meanwhile.at_most), (9, 15));
        assert_eq!(meanwhile.left_s, (5.0 * 9.5, 11.0 * 9.5));
        // A try that is spoiled comes on top.
        lines[3].failed = Some("no".to_owned());
        mark(&plan, &mut lines, &[]);
        assert_eq!(outlook(&plan, &lines, 5, overhead).at_least, 10);
    }
}
