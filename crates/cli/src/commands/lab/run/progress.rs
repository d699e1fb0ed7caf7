//! How far an experiment is, on stderr: one line that is written over on a terminal, else a line a trial.
//! It never shows a result: who sees one is tempted to stop at it.

use std::io::{IsTerminal, Write};

use record::experiment::{Plan, TrialLine};

/// Clears the line of a terminal (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[2K";

/// What is written, and how.
#[derive(Debug)]
pub(super) struct Progress {
    is_terminal: bool,
    blocks_min: u32,
    blocks_max: u32,
}

impl Progress {
    /// For an experiment of this plan.
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            blocks_min: plan.blocks_min,
            blocks_max: plan.blocks_max,
        }
    }

    /// A trial has ended.
    pub(super) fn trial(&self, line: &TrialLine) {
        self.write(&self.words(line), line.failed.is_some() || line.discarded.is_some());
    }

    /// A block has ended; `width` is how wide the widest interval of the primary metric is, as a share.
    pub(super) fn block(&self, block: u32, width: Option<f64>) {
        let Some(width) = width else { return };
        let text = format!(
            "block {block} is done; the widest interval of the primary metric is {:.1} % wide",
            width * 100.0
        );
        self.write(&text, false);
    }

    /// Something to be said, which stays.
    pub(super) fn say(&self, text: &str) {
        self.write(text, true);
    }

    /// Leaves the line that was written over.
    pub(super) fn end(&self) {
        if self.is_terminal {
            eprint!("{CLEAR}");
        }
    }

    fn words(&self, line: &TrialLine) -> String {
        let place = &line.place;
        let what = match (&line.failed, &line.discarded) {
            (Some(why), _) => format!(": failed: {why}"),
            (None, Some(why)) => format!(": does not count: {}", why.text),
            (None, None) => String::new(),
        };
        let block = match place.block {
            0 => "before the blocks".to_owned(),
            block if self.blocks_min == self.blocks_max => {
                format!("block {block} of {}", self.blocks_max)
            }
            block => format!("block {block} of {} to {}", self.blocks_min, self.blocks_max),
        };
        let again = if place.attempt > 1 { ", again" } else { "" };
        format!(
            "trial {:4}  {block}{again}  {} under {}{what}",
            place.number, place.arm, place.load
        )
    }

    /// What stays gets a line of its own on a terminal too.
    fn write(&self, text: &str, stays: bool) {
        let mut stderr = std::io::stderr().lock();
        let text = text.replace('\n', " ");
        // Nobody may be there to read it, which is no error of the experiment.
        let _ = match (self.is_terminal, stays) {
            (true, true) => writeln!(stderr, "{CLEAR}{text}"),
            (true, false) => write!(stderr, "{CLEAR}{text}"),
            (false, _) => writeln!(stderr, "{text}"),
        };
        let _ = stderr.flush();
    }
}

#[cfg(test)]
mod tests {
    use record::trial::{Discarded, Place};

    use super::*;

    #[test]
    fn a_trial_is_told_with_its_place_and_without_a_figure() {
        let progress = Progress { is_terminal: false, blocks_min: 10, blocks_max: 30 };
        let place = Place {
            number: 7,
            block: 2,
            attempt: 2,
            arm: "b".to_owned(),
            load: "c10".to_owned(),
            ..Place::default()
        };
        let mut line = TrialLine {
            place,
            metrics: [("responses_per_s".to_owned(), 12345.0)].into(),
            ..TrialLine::default()
        };
        let text = progress.words(&line);
        assert_eq!(text, "trial    7  block 2 of 10 to 30, again  b under c10");
        line.discarded = Some(Discarded { text: "steal".to_owned(), ..Discarded::default() });
        assert!(progress.words(&line).ends_with(": does not count: steal"));
        line.failed = Some("no".to_owned());
        line.place.block = 0;
        assert!(progress.words(&line).contains("before the blocks"));
        assert!(progress.words(&line).ends_with(": failed: no"));
    }
}
