//! States of the CPUs over time in one trial.

use std::collections::BTreeMap;

use experiment::format;
use record::observed::CpuUse;
use record::sorted::{sort_by, sort_by_key};

use super::typical::TypicalTrial;
use crate::data_table::{DataTable, cells, six_digits};

/// Maximum number of columns of one trial; more seconds are merged.
const COLUMNS_MAX: usize = 60;
/// Maximum number of columns of all trials, each with its tip.
const COLUMNS_TOTAL_MAX: usize = 300;
/// Maximum number of cells of all trials: columns times drawn CPUs.
const CELLS_TOTAL_MAX: usize = 5_000;
/// Maximum number of CPUs that get a panel each with their states; more get a row each, by how busy
/// they are.
pub(crate) const PANELS_MAX: usize = 8;
/// Maximum number of CPUs with a row, the busiest first.
pub(crate) const ROWS_MAX: usize = 64;

/// State of a CPU: its name, its class of the style sheet, and its fraction.
pub(crate) struct CpuState {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    read: fn(&CpuUse) -> f64,
}

/// States from bottom to top.
pub(crate) const CPU_STATES: &[CpuState] = &[
    CpuState { name: "user", class: "k-user", read: |cpu| cpu.user },
    CpuState { name: "system", class: "k-system", read: |cpu| cpu.system },
    CpuState { name: "softirq", class: "k-softirq", read: |cpu| cpu.softirq },
    CpuState { name: "irq", class: "k-irq", read: |cpu| cpu.irq },
    CpuState { name: "steal", class: "k-steal", read: |cpu| cpu.steal },
];

pub(crate) type StateFractions = [f64; CPU_STATES.len()];

/// CPUs of one trial.
pub(crate) struct CpuTimeline {
    pub(crate) step_s: f64,
    pub(crate) columns: usize,
    /// Fractions by machine and CPU number, then by column.
    cpus: BTreeMap<(String, u32), Vec<Option<StateFractions>>>,
}

impl CpuTimeline {
    /// Reads the samples of a trial; more seconds than columns are merged.
    pub(crate) fn read(trial: &TypicalTrial<'_>, columns_max: usize) -> Self {
        let samples = || {
            let all =
                trial.observed().flat_map(|observed| observed.samples.iter().map(move |s| (observed, s)));
            all.filter(|(_, sample)| sample.time_s > 0.0 && sample.time_s.is_finite())
        };
        let longest_s = samples().map(|(_, sample)| sample.time_s).fold(0.0, f64::max);
        let step_s = (longest_s / columns_max as f64).ceil().max(1.0);
        let columns = ((longest_s / step_s).round() as usize).clamp(1, columns_max + 1);
        let mut sums: BTreeMap<(String, u32), Vec<(StateFractions, f64)>> = BTreeMap::new();
        for (machine, sample) in samples().filter(|(_, sample)| sample.length_s.is_finite()) {
            let column = ((sample.time_s / step_s).round() as usize).clamp(1, columns) - 1;
            let length_s = sample.length_s.max(1e-6);
            for cpu in &sample.cpus {
                let fractions: StateFractions = std::array::from_fn(|index| (CPU_STATES[index].read)(cpu));
                if fractions.iter().all(|fraction| fraction.is_finite()) {
                    let name = (machine.host.clone(), cpu.cpu);
                    let all = sums.entry(name).or_insert_with(|| vec![Default::default(); columns]);
                    let (sum, sum_s) = &mut all[column];
                    for (sum, fraction) in sum.iter_mut().zip(fractions) {
                        *sum += fraction.clamp(0.0, 1.0) * length_s;
                    }
                    *sum_s += length_s;
                }
            }
        }
        let mean = |(sum, sum_s): (StateFractions, f64)| (sum_s > 0.0).then(|| sum.map(|sum| sum / sum_s));
        let means = |all: Vec<_>| all.into_iter().map(mean).collect();
        Self { step_s, columns, cpus: sums.into_iter().map(|(name, all)| (name, means(all))).collect() }
    }

    pub(crate) fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    pub(crate) fn end_s(&self, column: usize) -> f64 {
        (column + 1) as f64 * self.step_s
    }

    pub(crate) fn edges_s(&self, column: usize) -> (f64, f64) {
        (column as f64 * self.step_s, self.end_s(column))
    }

    /// Returns the CPUs with their names: the number, with the machine if there are several.
    pub(crate) fn named(&self) -> impl Iterator<Item = (String, &[Option<StateFractions>])> {
        let several = self.cpus.keys().zip(self.cpus.keys().skip(1)).any(|((a, _), (b, _))| a != b);
        self.cpus.iter().map(move |((host, cpu), columns)| {
            let name = if several { format!("{host} {cpu}") } else { format!("CPU {cpu}") };
            (name, columns.as_slice())
        })
    }

    /// Returns the busiest CPUs, in the order of their numbers.
    pub(crate) fn busiest(&self, count_max: usize) -> Vec<(String, &[Option<StateFractions>])> {
        let busy =
            |columns: &[Option<StateFractions>]| columns.iter().flatten().map(busy_fraction).sum::<f64>();
        let mut cpus: Vec<_> = self.named().enumerate().collect();
        sort_by(&mut cpus, |a, b| busy(b.1.1).total_cmp(&busy(a.1.1)));
        cpus.truncate(count_max);
        sort_by_key(&mut cpus, |(position, _)| *position);
        cpus.into_iter().map(|(_, cpu)| cpu).collect()
    }

    /// Returns a tip for each column, with its busiest CPUs.
    pub(crate) fn column_tips(&self, cpus_max: usize) -> impl Iterator<Item = ((f64, f64), String)> {
        let tip = move |column| Some((self.edges_s(column), self.column_text(column, cpus_max)?));
        (0..self.columns).filter_map(tip)
    }

    fn column_text(&self, column: usize, cpus_max: usize) -> Option<String> {
        let fractions_in_column =
            |(name, columns): (String, &[Option<StateFractions>])| Some((name, columns[column]?));
        let mut cpus: Vec<(String, StateFractions)> = self.named().filter_map(fractions_in_column).collect();
        sort_by(&mut cpus, |a, b| busy_fraction(&b.1).total_cmp(&busy_fraction(&a.1)));
        let lines = cpus.iter().take(cpus_max).map(|(name, fractions)| {
            let states = CPU_STATES.iter().zip(fractions).filter(|(_, fraction)| **fraction >= 0.005);
            let states = states.map(|(state, fraction)| format!("{} {:.0}", state.name, fraction * 100.0));
            let states: Vec<String> = states.collect();
            format!("\n{name}: {:.0} % ({})", busy_fraction(fractions) * 100.0, states.join(", "))
        });
        let time = format::value(self.end_s(column), "s");
        (!cpus.is_empty()).then(|| time + &lines.collect::<String>())
    }

    /// Adds the figures: host, CPU, time and fractions.
    pub(crate) fn add_rows(&self, data: &mut DataTable, trial: &TypicalTrial<'_>) {
        for ((host, cpu), columns) in &self.cpus {
            for (column, fractions) in columns.iter().enumerate() {
                let Some(fractions) = fractions else { continue };
                let [user, system, softirq, irq, steal] = fractions.map(six_digits);
                let mut row = trial.key_cells();
                row.extend(cells(&[host, cpu, &self.end_s(column), &user, &system, &softirq, &irq, &steal]));
                data.add_row(row);
            }
        }
    }
}

pub(crate) fn busy_fraction(fractions: &StateFractions) -> f64 {
    fractions.iter().sum()
}

/// Returns the maximum number of columns of each trial that keeps all of them together small.
pub(crate) fn columns_max(trials: &[&TypicalTrial<'_>]) -> usize {
    let samples = trials.iter().flat_map(|trial| trial.observed()).flat_map(|observed| &observed.samples);
    let cpus = samples.map(|sample| sample.cpus.len()).max().unwrap_or(1).clamp(1, ROWS_MAX);
    // A panel has a cell for each state.
    let cells = if cpus <= PANELS_MAX { cpus * CPU_STATES.len() } else { cpus };
    let columns_by_cells = CELLS_TOTAL_MAX / (cells * trials.len().max(1));
    (COLUMNS_TOTAL_MAX / trials.len().max(1)).min(columns_by_cells).clamp(8, COLUMNS_MAX)
}
