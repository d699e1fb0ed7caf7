//! Machines that share a kernel: containers, or network namespaces of one host. Each of them sees the CPU time of
//! all, and the processes of the others only as foreign ones. Together they are one machine with several roles.

use serde::{Deserialize, Serialize};

use super::{MachineObservation, MachineSample};

/// Process, as every PID namespace of its kernel can name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KernelProcess {
    /// Innermost PID namespace of the process (the inode of `/proc/PID/ns/pid`).
    pub namespace: u64,
    pub pid: i32,
}

impl MachineSample {
    /// Returns the busy CPUs that belong to no role of any observation in `all`, of which `own` has this sample:
    /// without the roles of other observations of the same kernel while they were sampled, each process
    /// once, and without the observation itself if that is another process than the generator. The times of
    /// all observations have one zero. `None` if the sample does not have the figure.
    pub fn foreign_cpus_among(&self, own: &MachineObservation, all: &[MachineObservation]) -> Option<f64> {
        let is_generator = own.role_index("generator").is_some();
        let foreign = self.foreign_cpus? - if is_generator { 0.0 } else { own.cost_cpus };
        if own.kernel.is_none() || all.len() < 2 {
            return Some(foreign.max(0.0));
        }
        let mut counted: Vec<KernelProcess> =
            own.roles.iter().flat_map(|role| role.processes.iter().copied()).collect();
        let mut roles_cpus = 0.0;
        let others = all
            .iter()
            .filter(|observation| observation.kernel == own.kernel && !std::ptr::eq(*observation, own));
        for other in others {
            for (index, role) in other.roles.iter().enumerate() {
                // A process that cannot be identified may be one of the own roles.
                if role.processes.is_empty() || role.processes.iter().any(|process| counted.contains(process))
                {
                    continue;
                }
                counted.extend(&role.processes);
                roles_cpus += self.role_cpus_meanwhile(other, index);
            }
        }
        Some((foreign - roles_cpus).max(0.0))
    }

    /// Returns the mean CPUs that a role of another observation used during this sample.
    fn role_cpus_meanwhile(&self, other: &MachineObservation, role: usize) -> f64 {
        let (from_s, to_s) = (self.time_s - self.length_s, self.time_s);
        let cpu_s = other.samples.iter().filter_map(|sample| {
            let common_s = sample.time_s.min(to_s) - (sample.time_s - sample.length_s).max(from_s);
            let used = sample.roles.get(role)?;
            (common_s > 0.0).then_some(used.cpus() * common_s)
        });
        cpu_s.sum::<f64>() / self.length_s.max(1e-3)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Role, RoleUse};
    use super::*;

    fn observation(role: &str, pid: i32, cpus: f64, foreign: f64) -> MachineObservation {
        let roles = vec![RoleUse { user_cpus: cpus, ..RoleUse::default() }];
        let sample = |at: u32| MachineSample {
            time_s: f64::from(at),
            length_s: 1.0,
            foreign_cpus: Some(foreign),
            roles: roles.clone(),
            ..MachineSample::default()
        };
        MachineObservation {
            kernel: Some("boot-a".to_owned()),
            roles: vec![Role {
                name: role.to_owned(),
                processes: vec![KernelProcess { namespace: 1, pid }],
                ..Role::default()
            }],
            samples: (1..=4).map(sample).collect(),
            ..MachineObservation::default()
        }
    }

    fn foreign(all: &[MachineObservation], sample: usize) -> f64 {
        let figure = all[0].samples[sample].foreign_cpus_among(&all[0], all).unwrap();
        (figure * 1000.0).round() / 1000.0
    }

    #[test]
    fn roles_of_the_same_kernel_are_not_foreign() {
        let mut all = [
            observation("subject", 7, 0.5, 1.5),
            observation("generator", 8, 0.9, 1.1),
            observation("cache", 9, 0.2, 1.8),
        ];
        assert_eq!(foreign(&all, 1), 0.4);
        // Another kernel, as of a virtual machine, has CPUs of its own.
        all[1].kernel = Some("boot-b".to_owned());
        assert_eq!(foreign(&all, 1), 1.3);
        all[0].kernel = None;
        assert_eq!(foreign(&all, 1), 1.5);
    }

    #[test]
    fn a_process_counts_once_and_an_unknown_one_does_not() {
        let mut all = [
            observation("subject", 7, 0.5, 1.5),
            observation("generator", 8, 0.9, 1.1),
            observation("generator", 8, 0.9, 1.1),
            // The same process in two observations: it is already a role of the first one.
            observation("subject", 7, 0.5, 1.5),
        ];
        assert_eq!(foreign(&all, 1), 0.6);
        all[1].roles[0].processes.clear();
        all[2].roles[0].processes.clear();
        assert_eq!(foreign(&all, 1), 1.5);
    }

    #[test]
    fn use_counts_for_the_common_time() {
        let mut all = [observation("subject", 7, 0.5, 1.5), observation("generator", 8, 0.8, 1.1)];
        all[1].shift_times(0.25);
        assert_eq!(foreign(&all, 0), 0.9);
        assert_eq!(foreign(&all, 1), 0.7);
        // Before its first sample nothing is known about it.
        all[1].shift_times(1.75);
        assert_eq!(foreign(&all, 1), 1.5);
        all[0].samples[0].foreign_cpus = None;
        assert_eq!(all[0].samples[0].foreign_cpus_among(&all[0], &all), None);
    }
}
