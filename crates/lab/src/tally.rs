//! What became of each trial, and how many of each there are: one count for the terminal, the page and the
//! Markdown. Reads the marks of [`crate::engine::blocks::mark`], which alone says which trials count.

use std::fmt;

use record::experiment::TrialLine;
use record::trial::{BEGUN_ANEW, BLOCK_NOT_WHOLE, Kind};

use crate::words::count;

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is held against others.
    Counts,
    /// It has no figures.
    Failed,
    /// Something disturbed it.
    Discarded,
    /// Nothing disturbed it; its block has not been run to its end.
    BlockNotWhole,
    /// Nothing disturbed it; its block was, or has to be, run again.
    BlockRerun,
    /// It found out how long a warm-up has to be.
    Pilot,
    /// Calls were counted in it.
    Probe,
}

impl Fate {
    /// Of a marked trial.
    #[must_use]
    pub fn of(line: &TrialLine) -> Self {
        match (&line.failed, &line.discarded) {
            (Some(_), _) => Self::Failed,
            (None, Some(why)) if why.code == BLOCK_NOT_WHOLE => Self::BlockNotWhole,
            (None, Some(why)) if why.is_of_its_block() || why.code == BEGUN_ANEW => {
                Self::BlockRerun
            }
            (None, Some(_)) => Self::Discarded,
            (None, None) if line.place.kind == Kind::Probe => Self::Probe,
            (None, None) if line.place.block == 0 => Self::Pilot,
            (None, None) => Self::Counts,
        }
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Failed => "failed",
            Self::Discarded => "discarded",
            Self::BlockNotWhole | Self::BlockRerun => "not compared",
            Self::Pilot => "pilot",
            Self::Probe => "probe",
        }
    }
}

/// How many trials were left out, and why: `1 discarded, 2 not compared: their block is not whole`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// [`Fate::Discarded`].
    pub discarded: usize,
    /// [`Fate::Failed`].
    pub failed: usize,
    /// [`Fate::BlockNotWhole`].
    pub block_not_whole: usize,
    /// [`Fate::BlockRerun`].
    pub block_rerun: usize,
}

impl LeftOut {
    /// Of marked trials.
    #[must_use]
    pub fn of(lines: &[TrialLine]) -> Self {
        let mut all = Self::default();
        for line in lines {
            match Fate::of(line) {
                Fate::Discarded => all.discarded += 1,
                Fate::Failed => all.failed += 1,
                Fate::BlockNotWhole => all.block_not_whole += 1,
                Fate::BlockRerun => all.block_rerun += 1,
                Fate::Counts | Fate::Pilot | Fate::Probe => {}
            }
        }
        all
    }

    /// How many these are in all.
    #[must_use]
    pub fn total(self) -> usize {
        self.discarded + self.failed + self.block_not_whole + self.block_rerun
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} discarded, {} failed", count(self.discarded, "trial"), self.failed)?;
        let of_block = |number: usize, why: &str| match number {
            0 => String::new(),
            1 => format!(", 1 not compared: its block {why}"),
            many => format!(", {many} not compared: their block {why}"),
        };
        f.write_str(&of_block(self.block_not_whole, "is not whole"))?;
        f.write_str(&of_block(self.block_rerun, "was run again"))
    }
}

#[cfg(test)]
mod tests {
    use record::experiment::{Arm, LoadPlan, Plan};
    use record::trial::Place;

    use super::*;
    use crate::engine::blocks::mark;

    fn line(number: u32, block: u32, attempt: u32, arm: &str) -> TrialLine {
        let (arm, load) = (arm.to_owned(), "x".to_owned());
        let place = Place { number, block, attempt, arm, load, ..Place::default() };
        TrialLine { place, ..TrialLine::default() }
    }

    #[test]
    fn undisturbed_trials_of_unfinished_blocks_are_not_discarded() {
        let plan = Plan {
            arms: ["a", "b", "c"]
                .map(|name| Arm { name: name.to_owned(), ..Arm::default() })
                .to_vec(),
            loads: vec![LoadPlan { name: "x".to_owned(), ..LoadPlan::default() }],
            discard: [("steal_share".to_owned(), 0.02)].into(),
            ..Plan::default()
        };
        let mut lines = vec![line(1, 0, 1, "a"), line(2, 1, 1, "a"), line(3, 1, 1, "b")];
        lines.extend([line(4, 1, 2, "a"), line(5, 1, 2, "b"), line(6, 1, 2, "c")]);
        lines.extend([line(7, 2, 1, "a"), line(8, 2, 1, "b")]);
        lines[0].place.kind = Kind::Pilot;
        lines[2].covariates.steal_share = Some(0.5);
        mark(&plan, &mut lines, &[]);
        let fates: Vec<&str> = lines.iter().map(|line| Fate::of(line).word()).collect();
        let (counts, left) = ("counts", "not compared");
        assert_eq!(fates, ["pilot", left, "discarded", counts, counts, counts, left, left]);
        let left_out = LeftOut::of(&lines);
        assert_eq!(left_out.total(), 4);
        assert_eq!(
            left_out.to_string(),
            "1 trial discarded, 0 failed, 2 not compared: their block is not whole, 1 not compared: its \
             block was run again"
        );
    }
}
