//! Loads that are levels of a number (connections, a rate), grouped by their other differences.

use std::collections::BTreeSet;

use record::experiment::{Arm, Experiment, ExperimentMetric, LoadPlan, ValueDistribution};
use record::sorted::CollectSorted;

use super::trials::{cell, level};
use crate::data_table::DataTable;

/// A factor with its loads as levels, and the loads of one panel by level.
pub(crate) struct LevelPanel<'a> {
    pub(crate) factor: &'a str,
    /// The other levels of these loads; empty if there are none.
    pub(crate) title: String,
    /// Loads by level, the lowest first.
    pub(crate) loads: Vec<(f64, &'a LoadPlan)>,
}

impl LevelPanel<'_> {
    /// Returns the spread of a metric at each level that has it.
    pub(crate) fn spreads<'a>(
        &self,
        experiment: &'a Experiment,
        arm: &Arm,
        metric: &ExperimentMetric,
    ) -> Vec<(f64, &'a ValueDistribution)> {
        let spread = |load: &LoadPlan| cell(experiment, &arm.name, &load.name)?.metrics.get(&metric.name);
        self.loads.iter().filter_map(|(level, load)| Some((*level, spread(load)?))).collect()
    }

    /// Adds the figures of a metric: arm, load, level, metric, median and its interval.
    pub(crate) fn add_rows(&self, data: &mut DataTable, experiment: &Experiment, metric: &ExperimentMetric) {
        for arm in &experiment.plan.arms {
            for (level, load) in &self.loads {
                let cell = cell(experiment, &arm.name, &load.name);
                let Some(spread) = cell.and_then(|cell| cell.metrics.get(&metric.name)) else { continue };
                let (low, high) = spread.median_interval.unzip();
                data.add(&[&arm.name, &load.name, level, &metric.name, &spread.median, &low, &high]);
            }
        }
    }
}

/// Returns the factor with the most numeric levels, and the loads grouped by their other
/// differences.
pub(crate) fn level_panels(experiment: &Experiment) -> Vec<LevelPanel<'_>> {
    let loads = &experiment.plan.loads;
    let names: BTreeSet<&String> = loads.iter().flat_map(|load| load.levels.keys()).collect_set();
    let levels = |factor: &&String| -> usize {
        let levels: Option<Vec<f64>> = loads.iter().map(|load| level(load, factor)).collect();
        levels.unwrap_or_default().iter().map(|level| level.to_bits()).collect_set().len()
    };
    let Some(factor) = names.into_iter().max_by_key(levels).filter(|name| levels(name) >= 2) else {
        return Vec::new();
    };
    let mut panels: Vec<LevelPanel<'_>> = Vec::new();
    for load in loads {
        let Some(level) = level(load, factor) else { continue };
        let others = load.levels.iter().filter(|(name, _)| *name != factor);
        let title: Vec<String> = others.map(|(name, level)| format!("{name} {level}")).collect();
        let title = title.join(", ");
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.loads.push((level, load)),
            None => panels.push(LevelPanel { factor, title, loads: vec![(level, load)] }),
        }
    }
    panels.iter_mut().for_each(|panel| panel.loads.sort_by(|a, b| a.0.total_cmp(&b.0)));
    panels.retain(|panel| panel.loads.len() >= 2);
    panels
}
