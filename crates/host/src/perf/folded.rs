//! Folded stacks: the input of flame graphs, `process;outer;inner count`
//! (<https://github.com/brendangregg/FlameGraph>), from our own sampler or other tools; and the
//! difference of two of them.
//!
//! Kernel functions end in `_[k]`, as `stackcollapse-perf.pl --kernel` writes them.

use record::sorted::sort_by;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

const KERNEL_SUFFIX: &str = "_[k]";
/// Maximum number of distinct stacks kept from a text.
const STACKS_MAX: usize = 1_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedStacks {
    stacks: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedParseError {
    /// Line, from 1.
    pub line: usize,
}

impl fmt::Display for FoldedParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: folded stacks are lines of 'outer;inner COUNT'", self.line)
    }
}

impl std::error::Error for FoldedParseError {}

impl FoldedStacks {
    /// Adds a stack, the outermost function first, each with a flag that is true for kernel
    /// functions.
    pub(super) fn add<'a>(
        &mut self,
        process: &str,
        frames: impl Iterator<Item = (&'a str, bool)>,
        samples: u64,
    ) {
        let mut line = replace_separators(process);
        for (name, is_kernel) in frames {
            line.push(';');
            line.push_str(&replace_separators(name));
            line.push_str(if is_kernel { KERNEL_SUFFIX } else { "" });
        }
        *self.stacks.entry(line).or_default() += samples;
    }

    /// Parses a text; empty lines are skipped.
    ///
    /// # Errors
    /// A line has no count at its end, or there are more than a million distinct stacks.
    pub fn parse(text: &str) -> Result<Self, FoldedParseError> {
        let mut folded = Self::default();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let error = FoldedParseError { line: at + 1 };
            let Some((stack, count)) = line.rsplit_once(' ') else { return Err(error) };
            let Ok(count) = count.parse::<u64>() else { return Err(error) };
            if folded.stacks.len() >= STACKS_MAX {
                return Err(error);
            }
            *folded.stacks.entry(stack.to_owned()).or_default() += count;
        }
        Ok(folded)
    }

    pub fn samples(&self) -> u64 {
        self.stacks.values().sum()
    }

    /// Returns the counts by function: on top of the stack, and anywhere in it.
    fn counts(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut seen = HashSet::new();
        for (stack, count) in &self.stacks {
            seen.clear();
            // The first part is the process.
            let mut frames = stack.split(';').skip(1).peekable();
            while let Some(frame) = frames.next() {
                let entry = counts.entry(frame).or_default();
                entry.0 += if frames.peek().is_none() { *count } else { 0 };
                entry.1 += if seen.insert(frame) { *count } else { 0 };
            }
        }
        counts
    }
}

impl fmt::Display for FoldedStacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stacks.iter().try_for_each(|(stack, count)| writeln!(f, "{stack} {count}"))
    }
}

fn replace_separators(name: &str) -> String {
    name.replace(';', ":").replace('\n', " ")
}

/// Change of a function between two runs. Fractions are of each run's own samples, so that runs of
/// different lengths are comparable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionChange {
    pub function: String,
    /// Fraction of samples with it on top of the stack, before.
    pub self_before: f64,
    pub self_after: f64,
    /// Fraction of samples with it anywhere in the stack, before.
    pub total_before: f64,
    pub total_after: f64,
}

impl FunctionChange {
    /// Returns the growth of the function's own fraction.
    pub fn self_delta(&self) -> f64 {
        self.self_after - self.self_before
    }

    /// Returns the growth of the function's fraction including its callees.
    pub fn total_delta(&self) -> f64 {
        self.total_after - self.total_before
    }
}

/// Returns the changes between two runs, the largest differences first.
pub fn diff(before: &FoldedStacks, after: &FoldedStacks) -> Vec<FunctionChange> {
    let (samples_before, samples_after) = (before.samples().max(1) as f64, after.samples().max(1) as f64);
    let mut changes: BTreeMap<&str, FunctionChange> = BTreeMap::new();
    for (function, (own, total)) in before.counts() {
        let change = changes.entry(function).or_default();
        change.self_before = own as f64 / samples_before;
        change.total_before = total as f64 / samples_before;
    }
    for (function, (own, total)) in after.counts() {
        let change = changes.entry(function).or_default();
        change.self_after = own as f64 / samples_after;
        change.total_after = total as f64 / samples_after;
    }
    let named = |(function, change): (&str, FunctionChange)| FunctionChange {
        function: function.to_owned(),
        ..change
    };
    let mut changes: Vec<FunctionChange> = changes.into_iter().map(named).collect();
    sort_by(&mut changes, |a, b| {
        let by_self = b.self_delta().abs().total_cmp(&a.self_delta().abs());
        by_self.then_with(|| b.total_delta().abs().total_cmp(&a.total_delta().abs()))
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_and_written() {
        let text = "app;main;operator new(unsigned long) 3\napp;main;x_[k] 1\n";
        let folded = FoldedStacks::parse(text).unwrap();
        assert_eq!((folded.samples(), folded.to_string()), (4, text.to_owned()));
        assert_eq!(FoldedStacks::parse("a;b 1\n\na;b\n"), Err(FoldedParseError { line: 3 }));
        assert_eq!(FoldedStacks::parse("a;b x").unwrap_err().line, 1);
        assert_eq!(FoldedStacks::parse("").unwrap(), FoldedStacks::default());
    }

    #[test]
    fn two_runs_of_different_length_are_compared_by_fractions() {
        let before = FoldedStacks::parse("a;main;f 50\na;main;g 50\n").unwrap();
        let after = FoldedStacks::parse("a;main;f 2\na;main;f;f 1\na;main;h 1\n").unwrap();
        let changes = diff(&before, &after);
        let short: Vec<_> = changes
            .iter()
            .map(|change| (&*change.function, change.self_delta(), change.total_delta()))
            .collect();
        let expected = [("g", -0.5, -0.5), ("f", 0.25, 0.25), ("h", 0.25, 0.25), ("main", 0.0, 0.0)];
        assert_eq!(short, expected);
        assert!(diff(&before, &before).iter().all(|change| change.self_delta() == 0.0));
    }
}
