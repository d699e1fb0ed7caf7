//! What is told while an experiment runs, as values, and each in a line of words. Not for where and how
//! it is shown.

use std::fmt;

use record::experiment::{Comparison, Metric, Stopped};
use record::trial::{Discarded, Kind, Place};
use record::units::{SECOND_NS, format_bytes, format_count, format_duration_ns};

use super::folder::SetAside;
use super::warm_up::WarmUp;

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
        /// The metric that decides, and its figure, where there is one.
        headline: Option<(Metric, f64)>,
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

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { resumed: 0, outlook, .. } => write!(f, "{outlook}"),
            Self::Started { resumed, trials, outlook } => {
                write!(f, "taken up again ({resumed}) after {trials} trials; {outlook}")
            }
            Self::SetAside(it) => write!(f, "{} is set aside as broken: {}", it.file, it.why),
            Self::Differs(what) => {
                write!(f, "other than when the experiment began: {}", what.join("; "))
            }
            Self::Begins { place, outlook } => {
                write!(f, "trial {} of {}: {}", place.number, outlook.range(), At(place))
            }
            Self::Ran { place, headline, failed } => {
                ran(f, place, headline.as_ref(), failed.as_ref())
            }
            Self::Left(what) => write!(f, "could not be removed: {}", what.join("; ")),
            Self::Discarded { place, why } => {
                write!(f, "block {} runs again: {}, {}", place.block, At(place), why.text)
            }
            Self::Rests { rest_ns } => {
                write!(f, "waits {} for a quieter machine", format_duration_ns(*rest_ns))
            }
            Self::WarmUp(it) => {
                write!(f, "warm-up {} s: {}", it.warm_up_s, it.text)?;
                it.unsteady.iter().try_for_each(|cell| write!(f, "\n  {cell}"))
            }
            Self::BlockDone { block, so_far } => {
                write!(f, "block {block} done")?;
                so_far.iter().try_for_each(|one| write!(f, "\n  {}", comparison(one)))
            }
            Self::Stopped(stopped) => write!(f, "stopped ({}): {}", stopped.code, stopped.text),
        }
    }
}

impl Outlook {
    /// `40 to 120`.
    fn range(self) -> String {
        match (self.at_least, self.at_most) {
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        }
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.left_s;
        write!(f, "{} trials, {} left", self.range(), length(least))?;
        if length(least) == length(most) {
            Ok(())
        } else {
            write!(f, " at least, {} at most", length(most))
        }
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

fn ran(
    f: &mut fmt::Formatter<'_>,
    place: &Place,
    headline: Option<&(Metric, f64)>,
    failed: Option<&String>,
) -> fmt::Result {
    match (failed, headline) {
        (Some(why), _) => write!(f, "{} failed: {why}", At(place)),
        (None, Some((metric, value))) => {
            write!(f, "{}: {}, {}", At(place), figure(*value, &metric.unit), metric.title)
        }
        (None, None) => write!(f, "{}: done", At(place)),
    }
}

/// An arm against the baseline, in a line.
fn comparison(one: &Comparison) -> String {
    let name = format!("{} under {}, {}", one.arm, one.load, one.metric);
    match (one.ratio, one.interval) {
        (Some(ratio), Some((low, high))) => {
            let outcome = if one.noise { "the noise" } else { one.outcome.word() };
            format!("{name}: {ratio:.4} of {} ({low:.4} to {high:.4}), {outcome}", one.baseline)
        }
        (Some(ratio), None) => format!("{name}: {ratio:.4} of {}, too few blocks", one.baseline),
        (None, _) => format!("{name}: no figures"),
    }
}

/// A figure in its unit, for a reader.
fn figure(value: f64, unit: &str) -> String {
    match unit {
        "ns" => format_duration_ns(value.max(0.0) as u64),
        "us" => format!("{value:.2} us"),
        "bytes" => format_bytes(value),
        "share" => format!("{:.2} %", value * 100.0),
        "cpus" => format!("{value:.2} processors"),
        "1" => format_count(value),
        "1/s" => format!("{}/s", format_count(value)),
        other => format!("{value} {other}"),
    }
}

/// A length of time, in minutes when it is long.
fn length(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match seconds {
        0..120 => format_duration_ns(seconds * SECOND_NS),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::experiment::Outcome;

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
        let line = |event: Event| event.to_string();
        assert_eq!(
            line(Event::Started { resumed: 0, trials: 0, outlook }),
            "40 to 120 trials, 10 min left at least, 2 h 13 min at most"
        );
        assert_eq!(
            line(Event::Begins { place: place(), outlook }),
            "trial 7 of 40 to 120: block 2, jemalloc under c10"
        );
        let metric = Metric {
            name: "subject_us_per_response".to_owned(),
            title: "processor time of the subject per response".to_owned(),
            unit: "us".to_owned(),
            ..Metric::default()
        };
        let again = Place { attempt: 2, ..place() };
        assert_eq!(
            line(Event::Ran { place: again, headline: Some((metric, 12.5)), failed: None }),
            "block 2 (try 2), jemalloc under c10: 12.50 us, processor time of the subject per response"
        );
        let why =
            Discarded { code: "steal_share".to_owned(), text: "steal: 3 %; bound 2 %".to_owned() };
        assert_eq!(
            line(Event::Discarded { place: place(), why }),
            "block 2 runs again: block 2, jemalloc under c10, steal: 3 %; bound 2 %"
        );
    }

    #[test]
    fn a_comparison_is_a_line() {
        let mut one = Comparison {
            arm: "jemalloc".to_owned(),
            baseline: "glibc".to_owned(),
            load: "c10".to_owned(),
            metric: "p99_ns".to_owned(),
            ..Comparison::default()
        };
        assert_eq!(comparison(&one), "jemalloc under c10, p99_ns: no figures");
        one.ratio = Some(0.93);
        assert!(comparison(&one).ends_with("0.9300 of glibc, too few blocks"));
        one.interval = Some((0.91, 0.95));
        one.outcome = Outcome::Faster;
        assert!(comparison(&one).ends_with("0.9300 of glibc (0.9100 to 0.9500), faster"));
        one.noise = true;
        assert!(comparison(&one).ends_with(", the noise"));
    }

    #[test]
    fn figures_have_their_units() {
        for (value, unit, text) in [
            (0.021, "share", "2.10 %"),
            (1.5, "cpus", "1.50 processors"),
            (3.0, "furlongs", "3 furlongs"),
        ] {
            assert_eq!(figure(value, unit), text);
        }
        assert!(figure(41_200.0, "1/s").ends_with("k/s"));
    }
}
