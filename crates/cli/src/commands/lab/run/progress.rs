//! Progress of an experiment on stderr: a bar on a terminal, else a line per trial. It never shows a
//! result, which would tempt the user to stop at it.

use experiment::engine::events::{Eta, Event};
use experiment::format::{duration_estimates, int_range};
use record::experiment::{Comparison, ExperimentPlan};
use record::trial::{TrialKind, TrialPosition};

use crate::progress_bar::ProgressBar;

#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    blocks_min: u32,
    blocks_max: u32,
}

impl Progress {
    pub(super) fn from_plan(plan: &ExperimentPlan) -> Self {
        Self { bar: ProgressBar::start(), blocks_min: plan.blocks_min, blocks_max: plan.blocks_max }
    }

    pub(super) fn report(&self, event: &Event) {
        match event {
            Event::TrialStarted { position: place, eta: outlook } => {
                let trial = self.trial_label(place);
                match self.bar.is_visible() {
                    true => self.bar.set(trial, outlook.remaining_s),
                    false => warn!("{trial}, {}", format_eta(*outlook)),
                }
            }
            Event::TrialFinished { position: place, failed: Some(why), .. } => {
                self.write(&format!("{}: failed: {why}", self.trial_label(place)));
            }
            Event::TrialFinished { .. } => {}
            Event::BlockCompleted { block, so_far } => {
                if let Some(width) = widest_interval(so_far) {
                    let width = width * 100.0;
                    self.write(&format!("block {block} is complete; widest interval: {width:.1} %"));
                }
            }
            // The other events contain no figures.
            other => {
                if let Some(words) = other.text() {
                    self.write(&words);
                }
            }
        }
    }

    fn trial_label(&self, position: &TrialPosition) -> String {
        let phase = match position.kind {
            TrialKind::Judged => {
                format!("block {} of {}", position.block, int_range((self.blocks_min, self.blocks_max)))
            }
            TrialKind::Pilot => "pilot".to_owned(),
            TrialKind::Probe => "probe".to_owned(),
        };
        let attempt_note = if position.attempt > 1 { ", again" } else { "" };
        format!(
            "trial {:4}  {phase}{attempt_note}  {} under {}",
            position.number, position.arm, position.load
        )
    }

    /// Writes a line that stays, above the bar.
    fn write(&self, text: &str) {
        self.bar.print_above(|| warn!("{}", text.replace('\n', " ")));
    }
}

fn format_eta(outlook: Eta) -> String {
    format!("{} left", duration_estimates(outlook.remaining_s))
}

/// Returns the width of the widest interval, as a fraction. The positions of intervals stay hidden
/// until the end.
fn widest_interval(so_far: &[Comparison]) -> Option<f64> {
    let width = |comparison: &Comparison| comparison.interval.map(|(low, high)| high / low - 1.0);
    let widths: Option<Vec<f64>> = so_far.iter().map(width).collect();
    widths?.into_iter().reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_shown_with_its_position() {
        let progress = Progress { bar: ProgressBar::start(), blocks_min: 10, blocks_max: 30 };
        let position = TrialPosition {
            number: 7,
            block: 2,
            attempt: 2,
            arm: "b".to_owned(),
            load: "c10".to_owned(),
            ..TrialPosition::default()
        };
        assert_eq!(progress.trial_label(&position), "trial    7  block 2 of 10 to 30, again  b under c10");
        let exact_progress = Progress { blocks_min: 30, ..progress };
        assert!(exact_progress.trial_label(&position).contains("block 2 of 30, again"));
        let pilot = TrialPosition { kind: TrialKind::Pilot, block: 0, attempt: 1, ..position };
        assert!(exact_progress.trial_label(&pilot).contains("  pilot  b under c10"));
        let eta = Eta { remaining_s: (61.0, 61.0), ..Eta::default() };
        assert_eq!(format_eta(eta), "61 s left");
        assert_eq!(format_eta(Eta { remaining_s: (61.0, 599.0), ..eta }), "61 s to 10 min left");
        assert_eq!(format_eta(Eta::default()), "0 s left");
    }

    #[test]
    fn only_the_widths_of_intervals_are_shown() {
        let comparison =
            |low: f64, high: f64| Comparison { interval: Some((low, high)), ..Comparison::default() };
        let width = widest_interval(&[comparison(1.0, 1.1), comparison(2.0, 2.5)]).unwrap();
        assert!((width - 0.25).abs() < 1e-9);
        assert_eq!(widest_interval(&[comparison(1.0, 1.1), Comparison::default()]), None);
        assert_eq!(widest_interval(&[]), None);
    }
}
