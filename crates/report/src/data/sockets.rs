//! Sockets in TIME_WAIT over time within a trial, by network namespace, with the port range of the subject's
//! namespace.

use std::collections::{BTreeMap, BTreeSet};

use experiment::format;
use record::observed::{MachineObservation, NamespaceUse};
use record::sorted::CollectSorted;

use super::typical::{LoadGroup, TypicalTrial};
use crate::data_table::{DataTable, cells};
use crate::plot::extent;

const POINTS_MAX: f64 = 80.0;
/// Number of sockets in TIME_WAIT from which a namespace is shown, and the fraction of its port range.
const SHOWN_MIN: u64 = 1_000;
const SHOWN_RANGE_FRACTION_MIN: f64 = 0.1;

/// Sockets of a network namespace in one trial.
pub(crate) struct TrialSockets<'a> {
    pub(crate) trial: &'a TypicalTrial<'a>,
    /// Number of ports for new connections; `None` if the record has no port range of this namespace.
    pub(crate) port_range: Option<u64>,
    /// Maximum number of sockets in TIME_WAIT by step.
    time_wait: BTreeMap<i64, u64>,
}

impl TrialSockets<'_> {
    pub(crate) fn max(&self) -> u64 {
        self.time_wait.values().copied().max().unwrap_or(0)
    }

    fn has_many(&self) -> bool {
        let range_min = self.port_range.map(|ports| (ports as f64 * SHOWN_RANGE_FRACTION_MIN) as u64);
        self.max() >= range_min.unwrap_or(SHOWN_MIN).clamp(1, SHOWN_MIN)
    }
}

/// A network namespace that has many sockets in TIME_WAIT in a trial.
pub(crate) struct NamespaceSockets<'a> {
    /// Roles of its processes, and the machine if there are several.
    pub(crate) name: String,
    /// Trials in the order of the arms.
    pub(crate) trials: Vec<TrialSockets<'a>>,
}

/// The typical trials of a load on their common grid.
pub(crate) struct SocketGrid<'a> {
    pub(crate) step_s: f64,
    /// Namespaces in the order of their roles.
    pub(crate) namespaces: Vec<NamespaceSockets<'a>>,
}

impl<'a> SocketGrid<'a> {
    /// Reads the trials of a load. Namespaces with few sockets in TIME_WAIT are left out.
    pub(crate) fn read(group: &'a LoadGroup<'a>) -> Self {
        let samples = || group.trials.iter().flat_map(TypicalTrial::observed).flat_map(|of| &of.samples);
        let longest_s = extent(samples().map(|sample| sample.time_s)).map_or(0.0, |(_, longest)| longest);
        let mut grid = Self { step_s: (longest_s / POINTS_MAX).ceil().max(1.0), namespaces: Vec::new() };
        for trial in &group.trials {
            let has_several_machines = trial.observed().count() > 1;
            for machine in trial.observed() {
                let host = has_several_machines.then_some(machine.host.as_str());
                grid.add(trial, machine, host);
            }
        }
        grid.namespaces.retain(|namespace| namespace.trials.iter().any(TrialSockets::has_many));
        grid
    }

    fn add(&mut self, trial: &'a TypicalTrial<'a>, machine: &MachineObservation, host: Option<&str>) {
        for sample in machine.samples.iter().filter(|sample| sample.time_s > 0.0 && sample.time_s.is_finite())
        {
            let step = ((sample.time_s / self.step_s).round() as i64).max(1);
            for namespace in &sample.namespaces {
                let sockets = self.trial_sockets(trial, namespace_name(namespace, host));
                if has_settings_of(machine, namespace) {
                    sockets.port_range = machine.local_port_range_size();
                }
                let max = sockets.time_wait.entry(step).or_default();
                *max = namespace.time_wait.max(*max);
            }
        }
    }

    fn trial_sockets(&mut self, trial: &'a TypicalTrial<'a>, name: String) -> &mut TrialSockets<'a> {
        let index = self.namespaces.iter().position(|namespace| namespace.name == name);
        let index = index.unwrap_or_else(|| {
            self.namespaces.push(NamespaceSockets { name, trials: Vec::new() });
            self.namespaces.len() - 1
        });
        let trials = &mut self.namespaces[index].trials;
        if trials.last().is_none_or(|last| !std::ptr::eq(last.trial, trial)) {
            trials.push(TrialSockets { trial, port_range: None, time_wait: BTreeMap::new() });
        }
        let last = trials.len() - 1;
        &mut trials[last]
    }

    /// Returns the end of the last step.
    pub(crate) fn longest_s(&self) -> f64 {
        self.steps().last().map_or(1.0, |last| *last as f64 * self.step_s)
    }

    pub(crate) fn points(&self, sockets: &TrialSockets<'_>) -> Vec<(f64, f64)> {
        let point = |(step, count): (&i64, &u64)| (*step as f64 * self.step_s, *count as f64);
        sockets.time_wait.iter().map(point).collect()
    }

    fn steps(&self) -> BTreeSet<i64> {
        let trials = self.namespaces.iter().flat_map(|namespace| &namespace.trials);
        trials.flat_map(|sockets| sockets.time_wait.keys()).copied().collect_set()
    }

    pub(crate) fn step_tips(&self) -> impl Iterator<Item = ((f64, f64), String)> {
        self.steps().into_iter().map(|step| {
            let at_s = step as f64 * self.step_s;
            let mut tip = format::value(at_s, "s");
            for namespace in &self.namespaces {
                for sockets in &namespace.trials {
                    let Some(count) = sockets.time_wait.get(&step) else { continue };
                    tip += &format!("\n{}, {}: {count}", sockets.trial.arm(), namespace.name);
                    tip += &sockets
                        .port_range
                        .map_or_else(String::new, |ports| format!(" (range: {ports} ports)"));
                }
            }
            ((at_s - self.step_s / 2.0, at_s + self.step_s / 2.0), tip)
        })
    }

    /// Adds the figures: namespace, time, sockets in TIME_WAIT and port range.
    pub(crate) fn add_rows(&self, data: &mut DataTable) {
        for namespace in &self.namespaces {
            for sockets in &namespace.trials {
                for (step, count) in &sockets.time_wait {
                    let mut row = sockets.trial.key_cells();
                    let time_s = *step as f64 * self.step_s;
                    row.extend(cells(&[&namespace.name, &time_s, count, &sockets.port_range]));
                    data.add_row(row);
                }
            }
        }
    }
}

fn namespace_name(namespace: &NamespaceUse, host: Option<&str>) -> String {
    let roles = match namespace.roles.is_empty() {
        true => "machine".to_owned(),
        false => namespace.roles.join(", "),
    };
    host.map_or_else(|| roles.clone(), |host| format!("{roles} on {host}"))
}

/// Returns whether the settings of an observation are those of this namespace: settings are read in the
/// subject's namespace, or in weir's own without a subject.
fn has_settings_of(machine: &MachineObservation, namespace: &NamespaceUse) -> bool {
    machine.role_index("subject").is_none() || namespace.roles.iter().any(|role| role == "subject")
}

/// Returns the fraction of a trial's sockets in TIME_WAIT that are client ends of the subject's connections, at
/// the last snapshot; `None` if the record has none in TIME_WAIT.
pub(crate) fn client_end_fraction(trial: &TypicalTrial<'_>) -> Option<f64> {
    trial.observed().find_map(|machine| {
        let time_waits = machine.queues.iter().rev().map(|snapshot| {
            let ends = [machine.client_ends("subject", snapshot), machine.server_ends("subject", snapshot)];
            ends.map(|ends| ends.count_in_state("time-wait") as f64)
        });
        let [client, server] = time_waits.into_iter().find(|[client, server]| client + server > 0.0)?;
        Some(client / (client + server))
    })
}
