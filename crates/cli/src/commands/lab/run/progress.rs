//! How far an experiment is, on stderr: one line that is written over on a terminal, else a line a trial.
//! It never shows a result: who sees one is tempted to stop at it.

use std::io::{IsTerminal, Write};

use lab::engine::events::{Event, Outlook};
use lab::words::{estimates, range};
use record::experiment::{Comparison, Plan};
use record::trial::{Kind, Place};

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

    /// Shows what happens.
    pub(super) fn tell(&self, event: &Event) {
        match event {
            Event::Begins { place, outlook } => {
                self.write(&format!("{}, {}", self.at(place), left(*outlook)), false);
            }
            Event::Ran { place, failed: Some(why), .. } => {
                self.write(&format!("{}: failed: {why}", self.at(place)), true);
            }
            Event::Ran { .. } => {}
            Event::BlockDone { block, so_far } => {
                if let Some(width) = widest(so_far) {
                    let width = width * 100.0;
                    let text = format!("block {block} is whole; the widest interval: {width:.1} %");
                    self.write(&text, !self.is_terminal);
                }
            }
            // The others have no figures in them.
            other => {
                if let Some(words) = other.words() {
                    self.write(&words, true);
                }
            }
        }
    }

    /// Leaves the line that was written over.
    pub(super) fn end(&self) {
        if self.is_terminal {
            crate::streams::write_stderr(format_args!("{CLEAR}"));
        }
    }

    /// Where a trial stands.
    fn at(&self, place: &Place) -> String {
        let what = match place.kind {
            Kind::Judged => {
                format!("block {} of {}", place.block, range((self.blocks_min, self.blocks_max)))
            }
            Kind::Pilot => "pilot".to_owned(),
            Kind::Probe => "probe".to_owned(),
        };
        let again = if place.attempt > 1 { ", again" } else { "" };
        format!("trial {:4}  {what}{again}  {} under {}", place.number, place.arm, place.load)
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

/// How long it will still take.
fn left(outlook: Outlook) -> String {
    format!("{} left", estimates(outlook.left_s))
}

/// How wide the widest interval is, as a share. Where intervals lie is not told before the end.
fn widest(so_far: &[Comparison]) -> Option<f64> {
    let width = |one: &Comparison| one.interval.map(|(low, high)| high / low - 1.0);
    let widths: Option<Vec<f64>> = so_far.iter().map(width).collect();
    widths?.into_iter().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_told_with_its_place() {
        let progress = Progress { is_terminal: false, blocks_min: 10, blocks_max: 30 };
        let place = Place {
            number: 7,
            block: 2,
            attempt: 2,
            arm: "b".to_owned(),
            load: "c10".to_owned(),
            ..Place::default()
        };
        assert_eq!(progress.at(&place), "trial    7  block 2 of 10 to 30, again  b under c10");
        let exact = Progress { blocks_min: 30, ..progress };
        assert!(exact.at(&place).contains("block 2 of 30, again"));
        let pilot = Place { kind: Kind::Pilot, block: 0, attempt: 1, ..place };
        assert!(exact.at(&pilot).contains("  pilot  b under c10"));
        let outlook = Outlook { left_s: (61.0, 61.0), ..Outlook::default() };
        assert_eq!(left(outlook), "61 s left");
        assert_eq!(left(Outlook { left_s: (61.0, 599.0), ..outlook }), "61 s to 10 min left");
        assert_eq!(left(Outlook::default()), "0 s left");
    }

    #[test]
    fn of_intervals_only_the_width_is_told() {
        let one = |low: f64, high: f64| Comparison {
            interval: Some((low, high)),
            ..Comparison::default()
        };
        let width = widest(&[one(1.0, 1.1), one(2.0, 2.5)]).unwrap();
        assert!((width - 0.25).abs() < 1e-9);
        assert_eq!(widest(&[one(1.0, 1.1), Comparison::default()]), None);
        assert_eq!(widest(&[]), None);
    }
}
