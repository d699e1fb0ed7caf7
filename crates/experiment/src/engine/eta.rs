//! Estimates the number of trials to come and their duration. No I/O. Not for the decision about
//! them: see [`super::next_step`].

use record::experiment::{ExperimentPlan, TrialSummary};
use record::trial::TrialKind;

use super::events::Eta;
use super::next_step::{collect_attempts, reruns_max};
use super::warm_up::PILOT_EXTRA_S;

/// Duration of a trial besides its load and its warm-up, until one has been measured: scenario,
/// programs, checks.
const OVERHEAD_DEFAULT_S: f64 = 2.5;
/// Assumed warm-up until the pilots have determined it.
const WARM_UP_DEFAULT_S: f64 = 2.0;

/// Time that trials took beyond their loads: starting programs, waiting, cleanup.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overhead {
    sum_s: f64,
    trials: u32,
}

impl Overhead {
    pub(super) fn add(&mut self, overhead_s: f64) {
        self.sum_s += overhead_s.max(0.0);
        self.trials += 1;
    }

    fn mean_s(self) -> f64 {
        if self.trials == 0 { OVERHEAD_DEFAULT_S } else { self.sum_s / f64::from(self.trials) }
    }
}

/// Estimates the trials after `lines`, from number `number_next` on. Reruns come on top.
pub(super) fn estimate_eta(
    plan: &ExperimentPlan,
    lines: &[TrialSummary],
    number_next: u32,
    overhead: Overhead,
) -> Eta {
    let cells = (plan.arms.len() * plan.loads.len()) as u32;
    let ran = |kind: TrialKind| {
        lines.iter().filter(|it| it.position.kind == kind && it.failed.is_none()).count() as u32
    };
    let pilots = match plan.warm_up_s {
        None => cells.saturating_sub(ran(TrialKind::Pilot)),
        Some(_) => 0,
    };
    let probes = match &plan.calls {
        Some(_) => {
            let arms = plan.arms.iter().filter(|arm| arm.repeats.is_none()).count();
            ((arms * plan.loads.len()) as u32).saturating_sub(ran(TrialKind::Probe))
        }
        None => 0,
    };
    let blocks = collect_attempts(plan, lines);
    let to_run = |block_count: u32| {
        (block_count.max(blocks.started_count()) * cells).saturating_sub(blocks.done_trials()) + probes
    };
    let trial_s = trial_s(plan, overhead);
    let pilots_s = f64::from(pilots) * (plan.duration_s + PILOT_EXTRA_S + overhead.mean_s());
    let (min, max) = (to_run(plan.blocks_min), to_run(plan.blocks_max));
    let before = number_next - 1 + pilots;
    Eta {
        trials_min: before + min,
        trials_max: before + max,
        remaining_s: (pilots_s + f64::from(min) * trial_s, pilots_s + f64::from(max) * trial_s),
    }
}

fn trial_s(plan: &ExperimentPlan, overhead: Overhead) -> f64 {
    plan.duration_s + plan.warm_up_s.unwrap_or(WARM_UP_DEFAULT_S) + overhead.mean_s()
}

/// Returns the minimum and the maximum duration of a plan: with the minimum number of blocks and no
/// rerun, and with the maximum number of blocks and all permitted reruns.
pub fn expected_duration_s(plan: &ExperimentPlan) -> (f64, f64) {
    let overhead = Overhead::default();
    let (min_s, max_s) = estimate_eta(plan, &[], 1, overhead).remaining_s;
    let rerun_trials = f64::from(reruns_max(plan, plan.blocks_max)) * plan.arms.len() as f64;
    (min_s, max_s + rerun_trials * trial_s(plan, overhead))
}

#[cfg(test)]
mod tests {
    use super::super::blocks::mark_discarded;
    use super::super::simulated::{plan, trial_line};
    use super::*;

    #[test]
    fn finished_trials_are_subtracted_and_times_follow_from_their_durations() {
        let plan = plan(&["a", "b"], &["x"]);
        let mut overhead = Overhead::default();
        let before = estimate_eta(&plan, &[], 1, overhead);
        assert_eq!((before.trials_min, before.trials_max), (9, 15));
        assert_eq!(before.remaining_s, (9.0 * 11.5, 15.0 * 11.5));
        // Three groups of three arms may be run again.
        assert_eq!(expected_duration_s(&plan), (9.0 * 11.5, 24.0 * 11.5));
        // Pilots run longer, and have no warm-up.
        let unknown = ExperimentPlan { warm_up_s: None, ..plan.clone() };
        assert_eq!(expected_duration_s(&unknown), (3.0 * 20.5 + 9.0 * 12.5, 3.0 * 20.5 + 24.0 * 12.5));
        overhead.add(1.0);
        overhead.add(-5.0);
        let mut lines: Vec<_> = [("a", 1), ("b", 2), ("a-repeat", 3)]
            .map(|(arm, number)| trial_line(number, 1, 1, arm, "x"))
            .to_vec();
        lines.push(trial_line(4, 2, 1, "a", "x"));
        mark_discarded(&plan, &mut lines, &[]);
        let meanwhile = estimate_eta(&plan, &lines, 5, overhead);
        assert_eq!((meanwhile.trials_min, meanwhile.trials_max), (9, 15));
        assert_eq!(meanwhile.remaining_s, (5.0 * 9.5, 11.0 * 9.5));
        // A spoiled attempt comes on top.
        lines[3].failed = Some("no".to_owned());
        mark_discarded(&plan, &mut lines, &[]);
        assert_eq!(estimate_eta(&plan, &lines, 5, overhead).trials_min, 10);
    }
}
