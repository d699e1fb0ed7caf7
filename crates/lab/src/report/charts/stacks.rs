//! Folded stacks of all counting trials of an arm, added up, as a tree and by function; and what the
//! processor time of a response is, so that arms of different rates can be compared. Not for drawing.

use std::collections::{BTreeMap, HashSet};

use record::experiment::Experiment;

use super::data::counting;
use crate::report::Raw;

/// Different stacks of an arm that are kept.
const STACKS_MAX: usize = 100_000;
/// Trials of an arm whose stacks are read: far more than make a picture steady.
const TRIALS_MAX: usize = 400;
/// Frames of a stack that are kept, from the outermost on.
pub(super) const DEPTH_MAX: usize = 48;
/// What marks functions of the kernel, as `stackcollapse-perf.pl --kernel` writes them.
const KERNEL: &str = "_[k]";
/// The metric that samples are turned into time with.
pub(super) const US_PER_RESPONSE: &str = "subject_us_per_response";

/// What an arm had on processors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stacks {
    /// Samples by stack: `outer;inner`, without the process.
    pub(super) stacks: BTreeMap<String, u64>,
    /// All samples.
    pub(super) samples: u64,
    /// Trials that had any.
    pub(super) trials: usize,
    /// Processor time of the subject for a response, in µs: the median of these trials.
    pub(super) us_per_response: Option<f64>,
}

impl Stacks {
    /// Adds a text of lines `process;outer;inner COUNT`; a line that is none is passed over.
    fn add(&mut self, text: &str) {
        for line in text.lines() {
            let Some((stack, count)) = line.trim_end().rsplit_once(' ') else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            let frames = stack.split_once(';').map_or("", |(_, frames)| frames);
            let end = frames.match_indices(';').nth(DEPTH_MAX - 1).map(|(at, _)| at);
            let frames = &frames[..end.unwrap_or(frames.len())];
            if frames.is_empty() || count == 0 {
                continue;
            }
            self.samples = self.samples.saturating_add(count);
            if let Some(known) = self.stacks.get_mut(frames) {
                *known = known.saturating_add(count);
            } else if self.stacks.len() < STACKS_MAX {
                self.stacks.insert(frames.to_owned(), count);
            }
        }
    }

    /// What a share of all samples is: µs for a response where that is known, or else the share.
    pub(super) fn weight(&self, samples: u64, us: bool) -> f64 {
        let share = samples as f64 / self.samples.max(1) as f64;
        if us { share * self.us_per_response.unwrap_or(0.0) } else { share }
    }

    /// Samples by function: with it on top, and with it anywhere.
    pub(super) fn functions(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut seen = HashSet::new();
        for (stack, count) in &self.stacks {
            seen.clear();
            let mut frames = stack.split(';').peekable();
            while let Some(frame) = frames.next() {
                let entry = counts.entry(frame).or_default();
                let (own, total) = (frames.peek().is_none(), seen.insert(frame));
                entry.0 = entry.0.saturating_add(if own { *count } else { 0 });
                entry.1 = entry.1.saturating_add(if total { *count } else { 0 });
            }
        }
        counts
    }
}

/// A function's name without the kernel's mark, and whether it had it.
pub(super) fn plain(frame: &str) -> (&str, bool) {
    frame.strip_suffix(KERNEL).map_or((frame, false), |name| (name, true))
}

/// The stacks of an arm; none where nothing was sampled.
pub(super) fn of_arm(experiment: &Experiment, raw: &dyn Raw, arm: &str) -> Option<Stacks> {
    let mut stacks = Stacks::default();
    let mut us: Vec<f64> = Vec::new();
    let loads = &experiment.plan.loads;
    let lines = loads.iter().flat_map(|load| counting(experiment, arm, &load.name));
    for line in lines.take(TRIALS_MAX) {
        let Some(text) = raw.folded(&line.file) else { continue };
        let before = stacks.samples;
        stacks.add(&text);
        if stacks.samples > before {
            stacks.trials += 1;
            let cost = line.metrics.get(US_PER_RESPONSE).copied();
            us.extend(cost.filter(|us| us.is_finite() && *us > 0.0));
        }
    }
    stacks.us_per_response = crate::statistics::median(&us);
    (stacks.samples > 0).then_some(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::{ARMS, BLOCKS, LOADS, NoRaw, sample};

    #[test]
    fn the_stacks_of_all_counting_trials_are_added_up() {
        let (experiment, raw) = sample();
        let stacks = of_arm(&experiment, &raw, ARMS[0]).unwrap();
        let trials = BLOCKS as usize * LOADS.len();
        assert_eq!((stacks.trials, stacks.samples), (trials, 520 * trials as u64));
        assert!((20.0..26.0).contains(&stacks.us_per_response.unwrap()));
        assert!(of_arm(&experiment, &NoRaw, ARMS[0]).is_none());
        assert!(of_arm(&experiment, &raw, "unknown").is_none());
    }

    #[test]
    fn functions_count_once_in_a_stack() {
        let mut stacks = Stacks::default();
        stacks.add("a;f;f;g 3\na;f 2\nno count\na 9\na;h x\n\n");
        assert_eq!(stacks.samples, 5);
        let functions = stacks.functions();
        assert_eq!((functions["f"], functions["g"]), ((2, 5), (3, 3)));
        assert_eq!(plain("x_[k]"), ("x", true));
        assert_eq!(plain("x"), ("x", false));
    }

    #[test]
    fn deep_stacks_are_cut_and_counts_do_not_overflow() {
        let mut stacks = Stacks::default();
        let deep = vec!["f"; 500].join(";");
        stacks.add(&format!("a;{deep} {}\na;{deep};g {}\n", u64::MAX, u64::MAX));
        assert_eq!(stacks.stacks.len(), 1);
        assert_eq!(stacks.stacks.keys().next().unwrap().split(';').count(), DEPTH_MAX);
        assert_eq!(stacks.samples, u64::MAX);
    }
}
