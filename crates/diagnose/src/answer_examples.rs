//! Example of the three sentences for each verdict that can be observed, for the documentation. A test writes the file
//! from synthetic records, and compares it.

/// Lines of code, limit, reason and next step, separated by tabs.
pub(crate) const EXAMPLES: &str = include_str!("answer_examples.tsv");

/// Returns the limit, the reason and the next step of an example; `None` for a verdict that cannot be observed.
#[must_use]
pub fn example(code: &str) -> Option<[&'static str; 3]> {
    let line = EXAMPLES.lines().find_map(|line| line.strip_prefix(code)?.strip_prefix('\t'))?;
    let mut sentences = line.split('\t');
    Some([sentences.next()?, sentences.next()?, sentences.next()?])
}
