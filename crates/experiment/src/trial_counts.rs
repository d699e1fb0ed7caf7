//! Status of each trial, and counts by status: one count for the terminal, the page and the
//! Markdown. It reads the marks of `crate::engine::blocks::mark_discarded`, which alone decides
//! which trials count.

use std::fmt;

use record::experiment::TrialSummary;
use record::trial::{BLOCK_INCOMPLETE, BLOCK_RESTARTED, TrialKind};

use crate::format::count;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialStatus {
    /// It is compared with others.
    Counts,
    /// It has no figures.
    Failed,
    /// Something disturbed it.
    Discarded,
    /// Nothing disturbed it, but its block is incomplete.
    BlockIncomplete,
    /// Nothing disturbed it, but its block was, or has to be, run again.
    BlockRerun,
    /// It determined the length of the warm-up.
    Pilot,
    /// It counted calls.
    Probe,
}

impl TrialStatus {
    #[must_use]
    pub fn from_line(line: &TrialSummary) -> Self {
        match (&line.failed, &line.discarded) {
            (Some(_), _) => Self::Failed,
            (None, Some(why)) if why.code == BLOCK_INCOMPLETE => Self::BlockIncomplete,
            (None, Some(why)) if why.is_block_only() || why.code == BLOCK_RESTARTED => Self::BlockRerun,
            (None, Some(_)) => Self::Discarded,
            (None, None) if line.position.kind == TrialKind::Probe => Self::Probe,
            (None, None) if line.position.block == 0 => Self::Pilot,
            (None, None) => Self::Counts,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Failed => "failed",
            Self::Discarded => "discarded",
            Self::BlockIncomplete | Self::BlockRerun => "not compared",
            Self::Pilot => "pilot",
            Self::Probe => "probe",
        }
    }
}

/// Counts of the trials that were left out, by reason:
/// `1 discarded, 2 not compared: their block is incomplete`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOutCounts {
    /// Trials with [`TrialStatus::Discarded`].
    pub discarded: usize,
    /// Trials with [`TrialStatus::Failed`].
    pub failed: usize,
    /// Trials with [`TrialStatus::BlockIncomplete`].
    pub block_incomplete: usize,
    /// Trials with [`TrialStatus::BlockRerun`].
    pub block_rerun: usize,
}

impl LeftOutCounts {
    #[must_use]
    pub fn count(lines: &[TrialSummary]) -> Self {
        let mut all = Self::default();
        for line in lines {
            match TrialStatus::from_line(line) {
                TrialStatus::Discarded => all.discarded += 1,
                TrialStatus::Failed => all.failed += 1,
                TrialStatus::BlockIncomplete => all.block_incomplete += 1,
                TrialStatus::BlockRerun => all.block_rerun += 1,
                TrialStatus::Counts | TrialStatus::Pilot | TrialStatus::Probe => {}
            }
        }
        all
    }

    pub fn total(self) -> usize {
        self.discarded + self.failed + self.block_incomplete + self.block_rerun
    }
}

impl fmt::Display for LeftOutCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} discarded, {} failed", count(self.discarded, "trial"), self.failed)?;
        let describe_not_compared = |number: usize, reason: &str| match number {
            0 => String::new(),
            1 => format!(", 1 not compared: its block {reason}"),
            many => format!(", {many} not compared: their block {reason}"),
        };
        f.write_str(&describe_not_compared(self.block_incomplete, "is incomplete"))?;
        f.write_str(&describe_not_compared(self.block_rerun, "was run again"))
    }
}

#[cfg(test)]
mod tests {
    use record::experiment::{Arm, ExperimentPlan, LoadPlan};
    use record::trial::TrialPosition;

    use super::*;
    use crate::engine::blocks::mark_discarded;

    fn line(number: u32, block: u32, attempt: u32, arm: &str) -> TrialSummary {
        let (arm, load) = (arm.to_owned(), "x".to_owned());
        let position = TrialPosition { number, block, attempt, arm, load, ..TrialPosition::default() };
        TrialSummary { position, ..TrialSummary::default() }
    }

    #[test]
    fn undisturbed_trials_of_unfinished_blocks_are_not_discarded() {
        let plan = ExperimentPlan {
            arms: ["a", "b", "c"].map(|name| Arm { name: name.to_owned(), ..Arm::default() }).to_vec(),
            loads: vec![LoadPlan { name: "x".to_owned(), ..LoadPlan::default() }],
            discard: [("steal_fraction".to_owned(), 0.02)].into(),
            ..ExperimentPlan::default()
        };
        let mut lines = vec![line(1, 0, 1, "a"), line(2, 1, 1, "a"), line(3, 1, 1, "b")];
        lines.extend([line(4, 1, 2, "a"), line(5, 1, 2, "b"), line(6, 1, 2, "c")]);
        lines.extend([line(7, 2, 1, "a"), line(8, 2, 1, "b")]);
        lines[0].position.kind = TrialKind::Pilot;
        lines[2].covariates.steal_fraction = Some(0.5);
        mark_discarded(&plan, &mut lines, &[]);
        let fates: Vec<&str> = lines.iter().map(|line| TrialStatus::from_line(line).as_str()).collect();
        let (counts, not_compared) = ("counts", "not compared");
        assert_eq!(
            fates,
            ["pilot", not_compared, "discarded", counts, counts, counts, not_compared, not_compared]
        );
        let left_out = LeftOutCounts::count(&lines);
        assert_eq!(left_out.total(), 4);
        assert_eq!(
            left_out.to_string(),
            "1 trial discarded, 0 failed, 2 not compared: their block is incomplete, 1 not compared: its \
             block was run again"
        );
    }
}
