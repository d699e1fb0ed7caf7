//! Events of a running experiment as values, most of them with a line of text. Not for their
//! display.

use std::fmt;

use record::experiment::{Comparison, StopReason};
use record::trial::{DiscardReason, TrialKind, TrialPosition};
use record::units::format_duration_ns;

use super::experiment_dir::BrokenFile;
use super::warm_up::WarmUp;
use crate::format::{count, count_range, duration_estimate};

/// Estimate of the number of trials and of the time left.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Eta {
    /// Number of the last trial if the minimum number of blocks is enough.
    pub trials_min: u32,
    /// The same with the maximum number of blocks. Reruns come on top.
    pub trials_max: u32,
    /// Time left for the minimum and the maximum number of blocks, from the durations of earlier
    /// trials.
    pub remaining_s: (f64, f64),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The experiment starts or resumes.
    Started {
        resumed: u32,
        /// Number of trials that had run before.
        trials: u32,
        /// Estimate of what is left.
        eta: Eta,
    },
    /// A file of an earlier session is broken. It is renamed, and its trial runs again.
    FileSetAside(BrokenFile),
    /// The environment differs from that at the experiment's start, and the user has allowed it.
    EnvironmentDiffers(Vec<String>),
    TrialStarted {
        position: TrialPosition,
        /// Estimate of what is left, this trial included.
        eta: Eta,
    },
    TrialFinished {
        position: TrialPosition,
        /// Reason for its failure, if it failed.
        failed: Option<String>,
    },
    /// A trial could not remove something that it created. The next start tries again.
    CleanupFailed(Vec<String>),
    /// A trial does not count: its block runs again.
    TrialDiscarded { position: TrialPosition, reason: DiscardReason },
    /// The engine pauses, because the disturbance of a trial may last.
    Paused { pause_ns: u64 },
    /// The pilots have determined the warm-up.
    WarmUpChosen(WarmUp),
    BlockCompleted {
        block: u32,
        /// Comparison of every arm with the baseline so far, in the deciding metric.
        so_far: Vec<Comparison>,
    },
    /// The experiment is over.
    Stopped(StopReason),
}

impl Event {
    /// Formats the event as text. `None` for events that each display formats itself from the
    /// trial's position.
    pub fn text(&self) -> Option<String> {
        let words = match self {
            Self::TrialStarted { .. } | Self::TrialFinished { .. } | Self::BlockCompleted { .. } => {
                return None;
            }
            Self::Started { resumed: 0, eta: outlook, .. } => outlook.to_string(),
            Self::Started { resumed, trials, eta: outlook } => {
                format!("resumed ({resumed}) after {}; {outlook}", count(*trials as usize, "trial"))
            }
            Self::FileSetAside(it) => {
                format!("{} is broken and was renamed: {}", it.file, it.problem)
            }
            Self::EnvironmentDiffers(what) => {
                let differences = what.join("; ");
                format!(
                    "changed since the start of the experiment: {differences}; an incomplete block starts again"
                )
            }
            Self::CleanupFailed(what) => format!("cannot remove: {}", what.join("; ")),
            Self::TrialDiscarded { position, reason } => {
                format!("block {} runs again: {}, {}", position.block, PositionText(position), reason.text)
            }
            Self::Paused { pause_ns: rest_ns } => {
                format!("waits {} for an idle machine", format_duration_ns(*rest_ns))
            }
            Self::WarmUpChosen(it) => {
                let text = format!("warm-up {} s: {}", it.warm_up_s, it.text);
                it.unsteady.iter().fold(text, |text, cell| format!("{text}\n  {cell}"))
            }
            Self::Stopped(stopped) => format!("stopped ({}): {}", stopped.code, stopped.text),
        };
        Some(words)
    }
}

impl fmt::Display for Eta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = self.remaining_s;
        let trials = count_range((self.trials_min, self.trials_max), "trial");
        let (min, max) = (duration_estimate(min), duration_estimate(max));
        write!(f, "{trials}, {min} left")?;
        if min == max { Ok(()) } else { write!(f, " at least, {max} at most") }
    }
}

/// Formats a trial's position in the plan.
struct PositionText<'a>(&'a TrialPosition);

impl fmt::Display for PositionText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrialPosition { block, attempt, arm, load, kind, .. } = self.0;
        match kind {
            TrialKind::Judged => write!(f, "block {block}")?,
            TrialKind::Pilot => f.write_str("pilot")?,
            TrialKind::Probe => f.write_str("probe")?,
        }
        if *attempt > 1 {
            write!(f, " (try {attempt})")?;
        }
        write!(f, ", {arm} under {load}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> TrialPosition {
        TrialPosition {
            number: 7,
            block: 2,
            attempt: 1,
            arm: "jemalloc".to_owned(),
            load: "c10".to_owned(),
            kind: TrialKind::Judged,
        }
    }

    #[test]
    fn events_are_lines() {
        let eta = Eta { trials_min: 40, trials_max: 120, remaining_s: (600.0, 8000.0) };
        let line = |event: Event| event.text().unwrap_or_default();
        let started = line(Event::Started { resumed: 0, trials: 0, eta });
        assert!(["40 to 120", "10 min", "2 h 13 min"].iter().all(|part| started.contains(part)), "{started}");
        // A session that has nothing left to run.
        let over = Eta { trials_min: 1, trials_max: 1, remaining_s: (0.0, 0.0) };
        let resumed = line(Event::Started { resumed: 1, trials: 1, eta: over });
        assert!(["(1)", "1 trial; 1 trial, 0 s"].iter().all(|part| resumed.contains(part)), "{resumed}");
        assert_eq!(Event::TrialStarted { position: place(), eta }.text(), None);
        let reason =
            DiscardReason { code: "steal_fraction".to_owned(), text: "steal: 3 %; bound 2 %".to_owned() };
        let discarded = Event::TrialDiscarded { position: TrialPosition { attempt: 2, ..place() }, reason };
        let text = line(discarded);
        for part in ["block 2 (try 2)", "jemalloc under c10", "steal: 3 %; bound 2 %"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
