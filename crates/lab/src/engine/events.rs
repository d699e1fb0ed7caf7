//! What is told while an experiment runs, as values, and most of them in a line of words. Not for where and
//! how it is shown.

use std::fmt;

use record::experiment::{Comparison, Stopped};
use record::trial::{Discarded, Kind, Place};
use record::units::format_duration_ns;

use super::folder::SetAside;
use super::warm_up::WarmUp;
use crate::words::{count, counts, estimate};

/// How many trials there will be, and how long they take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outlook {
    /// The number of the last trial, if no more blocks are needed than the fewest.
    pub at_least: u32,
    /// The same with the most blocks; what is run again comes on top.
    pub at_most: u32,
    /// Time left, fewest and most blocks, from how long trials took so far.
    pub left_s: (f64, f64),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It begins, or goes on.
    Started {
        /// How often it was taken up again.
        resumed: u32,
        /// Trials that had run before.
        trials: u32,
        /// How many are to come.
        outlook: Outlook,
    },
    /// A file of an earlier session is broken; it keeps another name, and its trial runs again.
    SetAside(SetAside),
    /// Something is other than when the experiment began, which was allowed.
    Differs(Vec<String>),
    /// A trial begins.
    Begins {
        /// Where it stands.
        place: Place,
        /// How many are to come, with it.
        outlook: Outlook,
    },
    /// A trial ran.
    Ran {
        /// Where it stands.
        place: Place,
        /// Why it failed, if it did.
        failed: Option<String>,
    },
    /// A trial made something that could not be removed; it is tried again at the next start.
    Left(Vec<String>),
    /// A trial does not count: its block runs again.
    Discarded {
        /// Where it stands.
        place: Place,
        /// Why.
        why: Discarded,
    },
    /// Nothing runs for so long, because what disturbed a trial may last.
    Rests {
        /// How long, in ns.
        rest_ns: u64,
    },
    /// The warm-up is known.
    WarmUp(WarmUp),
    /// A block counts.
    BlockDone {
        /// Its number.
        block: u32,
        /// Every arm against the baseline so far, in the metric that decides.
        so_far: Vec<Comparison>,
    },
    /// It is over.
    Stopped(Stopped),
}

impl Event {
    /// It in words; none of those that whoever shows them says in its own way, by where the trial stands.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let words = match self {
            Self::Begins { .. } | Self::Ran { .. } | Self::BlockDone { .. } => return None,
            Self::Started { resumed: 0, outlook, .. } => outlook.to_string(),
            Self::Started { resumed, trials, outlook } => {
                format!(
                    "taken up again ({resumed}) after {}; {outlook}",
                    count(*trials as usize, "trial")
                )
            }
            Self::SetAside(it) => format!("{} is set aside as broken: {}", it.file, it.why),
            Self::Differs(what) => {
                let what = what.join("; ");
                format!(
                    "other than when the experiment began: {what}; a block that is open begins anew"
                )
            }
            Self::Left(what) => format!("could not be removed: {}", what.join("; ")),
            Self::Discarded { place, why } => {
                format!("block {} runs again: {}, {}", place.block, At(place), why.text)
            }
            Self::Rests { rest_ns } => {
                format!("waits {} for a quieter machine", format_duration_ns(*rest_ns))
            }
            Self::WarmUp(it) => {
                let text = format!("warm-up {} s: {}", it.warm_up_s, it.text);
                it.unsteady.iter().fold(text, |text, cell| format!("{text}\n  {cell}"))
            }
            Self::Stopped(stopped) => format!("stopped ({}): {}", stopped.code, stopped.text),
        };
        Some(words)
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.left_s;
        let trials = counts((self.at_least, self.at_most), "trial");
        let (least, most) = (estimate(least), estimate(most));
        write!(f, "{trials}, {least} left")?;
        if least == most { Ok(()) } else { write!(f, " at least, {most} at most") }
    }
}

/// Where a trial stands, in words.
struct At<'a>(&'a Place);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { block, attempt, arm, load, kind, .. } = self.0;
        match kind {
            Kind::Judged => write!(f, "block {block}")?,
            Kind::Pilot => f.write_str("pilot")?,
            Kind::Probe => f.write_str("probe")?,
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

    fn place() -> Place {
        Place {
            number: 7,
            block: 2,
            attempt: 1,
            arm: "jemalloc".to_owned(),
            load: "c10".to_owned(),
            kind: Kind::Judged,
        }
    }

    #[test]
    fn events_are_lines() {
        let outlook = Outlook { at_least: 40, at_most: 120, left_s: (600.0, 8000.0) };
        let line = |event: Event| event.words().unwrap_or_default();
        assert_eq!(
            line(Event::Started { resumed: 0, trials: 0, outlook }),
            "40 to 120 trials, 10 min left at least, 2 h 13 min at most"
        );
        // What was through when it was taken up again has nothing left.
        let over = Outlook { at_least: 1, at_most: 1, left_s: (0.0, 0.0) };
        assert_eq!(
            line(Event::Started { resumed: 1, trials: 1, outlook: over }),
            "taken up again (1) after 1 trial; 1 trial, 0 s left"
        );
        assert_eq!(Event::Begins { place: place(), outlook }.words(), None);
        let why =
            Discarded { code: "steal_share".to_owned(), text: "steal: 3 %; bound 2 %".to_owned() };
        assert_eq!(
            line(Event::Discarded { place: Place { attempt: 2, ..place() }, why }),
            "block 2 runs again: block 2 (try 2), jemalloc under c10, steal: 3 %; bound 2 %"
        );
    }
}
