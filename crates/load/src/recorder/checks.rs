//! Samples of responses that failed a check.

use record::sorted::sort_by_key;

use crate::plan::{CHECK_NAMES, CheckKind};

/// Response that failed a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSample {
    /// End of the response, in ns after the start.
    pub at_ns: u64,
    pub check: CheckKind,
    pub request: usize,
    pub status: u16,
    pub body_bytes: u64,
    pub found: String,
    /// Begin of the body; empty if nothing but status and length is inspected.
    pub body_start: String,
}

/// Maximum number of samples of a run, and of one check on one core.
pub const CHECK_SAMPLES_MAX: usize = 5;

impl CheckSample {
    /// Selects the samples of a run: the first of each check, then others, in the order of their times.
    pub(crate) fn select<'a>(samples: impl Iterator<Item = &'a Self>) -> Vec<Self> {
        let mut all: Vec<&Self> = samples.collect();
        sort_by_key(&mut all, |sample| sample.at_ns);
        let mut seen = [0usize; CHECK_NAMES.len()];
        let mut ranked: Vec<_> = all
            .into_iter()
            .map(|sample| {
                let rank = seen[sample.check as usize];
                seen[sample.check as usize] += 1;
                (rank, sample)
            })
            .collect();
        sort_by_key(&mut ranked, |(rank, sample)| (*rank, sample.at_ns));
        let mut selected: Vec<Self> =
            ranked.into_iter().take(CHECK_SAMPLES_MAX).map(|(_, sample)| sample.clone()).collect();
        sort_by_key(&mut selected, |sample| sample.at_ns);
        selected
    }
}
