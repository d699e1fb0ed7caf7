//! Folded stacks of all counting trials of an arm, added up, as a tree and by function. Also the
//! CPU time of a response, so that arms of different rates can be compared.

use std::collections::{BTreeMap, HashSet};

use record::experiment::Experiment;

use super::trials::counted_trials;
use crate::TrialRecords;

/// Maximum number of different stacks of an arm.
const STACKS_MAX: usize = 100_000;
/// Maximum number of trials of an arm whose stacks are read: far more than a stable result needs.
const TRIALS_MAX: usize = 400;
/// Maximum number of frames of a stack in a report, from the outermost on.
const DEPTH_MAX: usize = 48;
const FILE_DEPTH_MAX: usize = 400;
/// Suffix of kernel functions, as `stackcollapse-perf.pl --kernel` writes them.
const KERNEL: &str = "_[k]";
/// Metric that converts samples into time.
pub(crate) const US_PER_RESPONSE: &str = "subject_us_per_response";

/// CPU samples of an arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stacks {
    /// Samples by stack: `outer;inner`.
    pub(crate) stacks: BTreeMap<String, u64>,
    pub(crate) samples: u64,
    /// Number of trials that had samples.
    pub(crate) trials: usize,
    /// CPU time of the subject for a response, in µs: the median of these trials.
    pub(crate) us_per_response: Option<f64>,
}

impl Stacks {
    /// Reads a text of lines `process;outer;inner COUNT`, with the processes.
    pub(crate) fn parse(text: &str) -> Self {
        let mut stacks = Self::default();
        stacks.add_lines(text, |stack| stack, FILE_DEPTH_MAX);
        stacks
    }

    /// Adds such a text without the processes.
    fn add(&mut self, text: &str) {
        self.add_lines(text, |stack| stack.split_once(';').map_or("", |(_, frames)| frames), DEPTH_MAX);
    }

    /// Adds lines `stack COUNT`; invalid ones are skipped.
    fn add_lines(&mut self, text: &str, frames_of: fn(&str) -> &str, depth_max: usize) {
        for line in text.lines() {
            let Some((stack, count)) = line.trim_end().rsplit_once(' ') else { continue };
            let Ok(count) = count.parse::<u64>() else { continue };
            let frames = frames_of(stack);
            let end = frames.match_indices(';').nth(depth_max - 1).map(|(at, _)| at);
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

    /// Returns the weight of samples: µs for a response if known, or else their fraction of all.
    pub(crate) fn weight(&self, samples: u64, us: bool) -> f64 {
        let fraction = samples as f64 / self.samples.max(1) as f64;
        if us { fraction * self.us_per_response.unwrap_or(0.0) } else { fraction }
    }

    /// Returns the samples by function: with it on top of the stack, and with it anywhere.
    pub(crate) fn functions(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut counted = HashSet::new();
        for (stack, count) in &self.stacks {
            counted.clear();
            let mut frames = stack.split(';').peekable();
            while let Some(frame) = frames.next() {
                let entry = counts.entry(frame).or_default();
                let (own, total) = (frames.peek().is_none(), counted.insert(frame));
                entry.0 = entry.0.saturating_add(if own { *count } else { 0 });
                entry.1 = entry.1.saturating_add(if total { *count } else { 0 });
            }
        }
        counts
    }
}

/// Returns a function's name without the kernel suffix, and whether it had the suffix.
pub(crate) fn split_kernel_suffix(frame: &str) -> (&str, bool) {
    frame.strip_suffix(KERNEL).map_or((frame, false), |name| (name, true))
}

/// Returns the stacks of an arm; `None` if there are no samples.
pub(crate) fn arm_stacks(experiment: &Experiment, raw: &dyn TrialRecords, arm: &str) -> Option<Stacks> {
    let mut stacks = Stacks::default();
    let mut us: Vec<f64> = Vec::new();
    let loads = &experiment.plan.loads;
    let lines = loads.iter().flat_map(|load| counted_trials(experiment, arm, &load.name));
    for line in lines.take(TRIALS_MAX) {
        let Some(text) = raw.folded_stacks(&line.file) else { continue };
        let before = stacks.samples;
        stacks.add(&text);
        if stacks.samples > before {
            stacks.trials += 1;
            let cost = line.metrics.get(US_PER_RESPONSE).copied();
            us.extend(cost.filter(|us| us.is_finite() && *us > 0.0));
        }
    }
    stacks.us_per_response = stats::median(&us);
    (stacks.samples > 0).then_some(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{ARMS, BLOCKS, LOADS, NoRecords, synthetic_experiment};

    #[test]
    fn the_stacks_of_all_counting_trials_are_added_up() {
        let (experiment, raw) = synthetic_experiment();
        let stacks = arm_stacks(&experiment, &raw, ARMS[0]).unwrap();
        let trials = BLOCKS as usize * LOADS.len();
        assert_eq!((stacks.trials, stacks.samples), (trials, 520 * trials as u64));
        assert!((20.0..26.0).contains(&stacks.us_per_response.unwrap()));
        assert!(arm_stacks(&experiment, &NoRecords, ARMS[0]).is_none());
        assert!(arm_stacks(&experiment, &raw, "unknown").is_none());
    }

    #[test]
    fn functions_count_once_in_a_stack() {
        let mut stacks = Stacks::default();
        stacks.add("a;f;f;g 3\na;f 2\nno count\na 9\na;h x\n\n");
        assert_eq!(stacks.samples, 5);
        let functions = stacks.functions();
        assert_eq!((functions["f"], functions["g"]), ((2, 5), (3, 3)));
        assert_eq!(split_kernel_suffix("x_[k]"), ("x", true));
        assert_eq!(split_kernel_suffix("x"), ("x", false));
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
