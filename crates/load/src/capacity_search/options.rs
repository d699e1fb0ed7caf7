//! Options of a search, from the flags to its end. A value without decisions.

use std::path::PathBuf;

use super::{SearchQuantity, SearchSettings};
use crate::plan::RunPlan;

/// Everything that a search was asked for.
#[derive(Debug)]
pub struct SearchOptions {
    pub quantity: SearchQuantity,
    /// Settings that all trials share.
    pub base: RunPlan,
    /// The same load, sent directly to the server behind the subject.
    pub direct: Option<RunPlan>,
    /// Levels and lengths of its trials.
    pub settings: SearchSettings,
    /// Maximum duration of everything, in ns; `None`: that of the settings.
    pub duration_ns_max: Option<u64>,
    /// Factor for the announced durations: above 1 if trials take longer than their loads.
    pub stretch: f64,
    pub has_max_level: bool,
    /// True without the ladder and the scaling law.
    pub search_only: bool,
    /// True if requests are sent one at a time before the search.
    pub baseline: bool,
    /// Directory that keeps the record of each trial.
    pub records_directory: Option<PathBuf>,
}
