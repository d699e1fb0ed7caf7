//! CPU use of the machine between two samples: by user, with interrupts and the receive path.
//!
//! Processes and network namespaces are elsewhere: all of this is the same wherever it is read.

use crate::cpu::{self, CpuTimes, MachineCpu};
use crate::interrupts::{InterruptReader, SoftIrqReader};
use crate::kernel_file::NotObservable;
use crate::pressure;
use crate::softnet::{self, SoftnetRow};
use record::observed::{CpuUse, Pressure};

/// Maximum number of CPUs for reading `/proc/interrupts`, which costs one figure per interrupt and
/// CPU.
const INTERRUPTS_CPUS_MAX: usize = 64;

/// Open files of the machine, with the last two readings.
#[derive(Debug)]
pub(super) struct Machine {
    cpu: Result<cpu::CpuReader, NotObservable>,
    softirqs: Result<SoftIrqReader, NotObservable>,
    interrupts: Result<InterruptReader, NotObservable>,
    softnet: Result<softnet::SoftnetReader, NotObservable>,
    pressure: Result<pressure::PressureReader, NotObservable>,
    now: MachineReadings,
    then: MachineReadings,
}

/// Readings of all files at one moment. Unreadable ones are empty.
#[derive(Debug, Clone, Default)]
struct MachineReadings {
    cpu: MachineCpu,
    net_rx: Vec<(u32, u64)>,
    net_tx: Vec<(u32, u64)>,
    interrupts: Vec<(u32, u64)>,
    softnet: Vec<SoftnetRow>,
}

/// Differences between two moments.
#[derive(Debug, Clone, Default)]
pub(super) struct MachineUse {
    pub(super) cpu_delta: MachineCpu,
    pub(super) cpus: Vec<CpuUse>,
    pub(super) pressure: Option<Pressure>,
}

impl Machine {
    pub(super) fn open() -> Self {
        let mut cpu = cpu::CpuReader::open();
        let cpus = cpu.as_mut().ok().and_then(|cpu| Some(cpu.sample().ok()?.cpu_ids.len()));
        let interrupts = match cpus {
            Some(cpus) if cpus > INTERRUPTS_CPUS_MAX => Err(NotObservable::new(
                "hardware interrupts per CPU",
                format!("reading /proc/interrupts of {cpus} CPUs each second uses too much CPU time"),
            )),
            _ => InterruptReader::open(),
        };
        Self {
            cpu,
            softirqs: SoftIrqReader::open(),
            interrupts,
            softnet: softnet::SoftnetReader::open(),
            pressure: pressure::PressureReader::open(),
            now: MachineReadings::default(),
            then: MachineReadings::default(),
        }
    }

    pub(super) fn cpus(&mut self) -> Vec<u32> {
        let sample = self.cpu.as_mut().ok().and_then(|cpu| cpu.sample().ok());
        sample.map(|machine| machine.cpu_ids.clone()).unwrap_or_default()
    }

    pub(super) fn not_observable(&self) -> Vec<NotObservable> {
        let all = [
            self.cpu.as_ref().err(),
            self.softirqs.as_ref().err(),
            self.interrupts.as_ref().err(),
            self.softnet.as_ref().err(),
            self.pressure.as_ref().err(),
        ];
        all.into_iter().flatten().cloned().collect()
    }

    /// Reads everything, and returns the use in the `seconds` since the last reading.
    pub(super) fn sample(&mut self, seconds: f64) -> MachineUse {
        std::mem::swap(&mut self.now, &mut self.then);
        self.read();
        let cpu_delta = self.now.cpu.delta(&self.then.cpu);
        let pressure = self.pressure.as_mut().ok();
        MachineUse {
            cpus: cpu_uses(&cpu_delta, &self.then, &self.now, seconds),
            cpu_delta,
            pressure: pressure.and_then(|files| files.sample(seconds).ok().flatten()),
        }
    }

    /// Returns true if hardware interrupts have their own time here, charged to no process. Where
    /// the kernel accounts by timer tick there is none, because a tick never meets one.
    pub(super) fn has_separate_irq_time(&self) -> bool {
        self.now.cpu.total.irq > 0
    }

    fn read(&mut self) {
        let now = &mut self.now;
        match self.cpu.as_mut().map(cpu::CpuReader::sample) {
            Ok(Ok(machine)) => now.cpu.clone_from(machine),
            _ => now.cpu = MachineCpu::default(),
        }
        now.net_rx.clear();
        now.net_tx.clear();
        if let Ok(Ok(counts)) = self.softirqs.as_mut().map(SoftIrqReader::sample) {
            now.net_rx.extend(counts.cpu_ids.iter().copied().zip(counts.net_rx.iter().copied()));
            now.net_tx.extend(counts.cpu_ids.iter().copied().zip(counts.net_tx.iter().copied()));
        }
        now.interrupts.clear();
        if let Ok(Ok(counts)) = self.interrupts.as_mut().map(InterruptReader::sample) {
            now.interrupts.extend(counts.cpu_ids.iter().copied().zip(counts.counts.iter().copied()));
        }
        now.softnet.clear();
        if let Ok(Ok(rows)) = self.softnet.as_mut().map(softnet::SoftnetReader::sample) {
            now.softnet.extend_from_slice(rows);
        }
    }
}

fn cpu_uses(
    cpu_delta: &MachineCpu,
    then: &MachineReadings,
    now: &MachineReadings,
    seconds: f64,
) -> Vec<CpuUse> {
    let cpus = cpu_delta.cpu_ids.iter().zip(&cpu_delta.per_cpu);
    cpus.map(|(&cpu, times)| {
        let mut cpu_use = cpu_fractions(cpu, times);
        let count = |list: &[(u32, u64)]| list.iter().find(|(id, _)| *id == cpu).map(|(_, n)| *n);
        let rate = |now: &[(u32, u64)], then: &[(u32, u64)]| {
            Some(count(now)?.saturating_sub(count(then)?) as f64 / seconds)
        };
        cpu_use.net_rx_per_s = rate(&now.net_rx, &then.net_rx).unwrap_or(0.0);
        cpu_use.net_tx_per_s = rate(&now.net_tx, &then.net_tx);
        cpu_use.interrupts_per_s = rate(&now.interrupts, &then.interrupts).unwrap_or(0.0);
        let row = |moment: &MachineReadings| moment.softnet.iter().find(|row| row.cpu == cpu).copied();
        if let (Some(now), Some(then)) = (row(now), row(then)) {
            let delta = now.since(&then);
            cpu_use.packets_per_s = f64::from(delta.processed) / seconds;
            cpu_use.backlog_drops_per_s = f64::from(delta.dropped) / seconds;
            cpu_use.time_squeezes_per_s = f64::from(delta.time_squeeze) / seconds;
            cpu_use.received_rps_per_s = f64::from(delta.received_rps) / seconds;
            cpu_use.flow_limit_drops_per_s = delta.flow_limited.map(|packets| f64::from(packets) / seconds);
            cpu_use.backlog_packets = delta.backlog;
        }
        cpu_use
    })
    .collect()
}

fn cpu_fractions(cpu: u32, times: &CpuTimes) -> CpuUse {
    let total = times.total().max(1) as f64;
    let fraction = |ticks: u64| ticks as f64 / total;
    CpuUse {
        cpu,
        user: fraction(times.user + times.nice),
        system: fraction(times.system),
        irq: fraction(times.irq),
        softirq: fraction(times.softirq),
        steal: fraction(times.steal),
        idle: fraction(times.idle + times.iowait),
        ..CpuUse::default()
    }
}

/// Returns the busy CPUs that belong neither to a role nor to interrupts of no process, at least 0.
///
/// If the kernel accounts by timer tick, the time of an interrupt is charged to the process that it
/// met, and to none on an idle CPU. So the idle fraction of each CPU's interrupts is taken to
/// belong to no process, without those that [started in a task](MachineCpu::softirqs_in_interrupts).
/// If the kernel accounts interrupts separately, all of them do.
pub(crate) fn foreign_cpus(
    cpu_delta: &MachineCpu,
    role_cpus: f64,
    has_separate_irq_time: bool,
    ticks: f64,
) -> f64 {
    let in_interrupts = cpu_delta.softirqs_in_interrupts();
    let unowned_interrupts = |times: &CpuTimes| {
        let interrupts = (times.irq + times.softirq) as f64;
        let idle = (times.idle + times.iowait) as f64;
        let tasks = (times.user + times.nice + times.system) as f64;
        match has_separate_irq_time {
            true => interrupts,
            false if idle + tasks > 0.0 => interrupts * in_interrupts * idle / (idle + tasks),
            false => 0.0,
        }
    };
    let busy = cpu_delta.total.busy() as f64;
    let interrupts: f64 = cpu_delta.per_cpu.iter().map(unowned_interrupts).sum();
    ((busy - interrupts) / ticks - role_cpus).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::SoftIrqTotals;

    fn machine(per_cpu: &[CpuTimes]) -> MachineCpu {
        let mut total = CpuTimes::default();
        for times in per_cpu {
            total.user += times.user;
            total.system += times.system;
            total.irq += times.irq;
            total.softirq += times.softirq;
            total.idle += times.idle;
        }
        MachineCpu {
            total,
            per_cpu: per_cpu.to_vec(),
            cpu_ids: (0..per_cpu.len() as u32).collect(),
            ..MachineCpu::default()
        }
    }

    #[test]
    fn a_cpus_time_is_divided_and_its_events_are_rates() {
        let times = CpuTimes {
            user: 20,
            nice: 10,
            system: 30,
            softirq: 10,
            idle: 20,
            iowait: 5,
            steal: 5,
            ..CpuTimes::default()
        };
        let readings = |packets, interrupts| MachineReadings {
            net_rx: vec![(0, 5), (1, packets)],
            net_tx: vec![(1, packets * 2)],
            interrupts: vec![(1, interrupts)],
            softnet: vec![SoftnetRow {
                cpu: 1,
                processed: packets as u32,
                flow_limited: Some(packets as u32 / 50),
                backlog: Some(7),
                ..SoftnetRow::default()
            }],
            ..MachineReadings::default()
        };
        let mut cpu_delta = machine(&[times]);
        cpu_delta.cpu_ids = vec![1];
        let cpu = cpu_uses(&cpu_delta, &readings(100, 10), &readings(300, 11), 2.0)[0];
        let expected = CpuUse {
            cpu: 1,
            user: 0.3,
            system: 0.3,
            softirq: 0.1,
            steal: 0.05,
            idle: 0.25,
            net_rx_per_s: 100.0,
            net_tx_per_s: Some(200.0),
            packets_per_s: 100.0,
            flow_limit_drops_per_s: Some(2.0),
            backlog_packets: Some(7),
            interrupts_per_s: 0.5,
            ..CpuUse::default()
        };
        assert_eq!(cpu, expected);
    }

    #[test]
    fn the_rest_of_busy_cpu_time_is_foreign() {
        let busy = CpuTimes { user: 50, system: 30, softirq: 20, ..CpuTimes::default() };
        let calm = CpuTimes { user: 10, softirq: 10, idle: 80, ..CpuTimes::default() };
        let both = machine(&[busy, calm]);
        let foreign = |roles, apart| foreign_cpus(&both, roles, apart, 100.0);
        // Softirqs on the busy CPU met a process; on the calm one eight of nine met none.
        assert!((foreign(0.6, false) - (1.2 - 0.8 / 9.0 - 0.6)).abs() < 1e-9);
        assert!((foreign(0.6, true) - 0.3).abs() < 1e-9);
        assert_eq!(foreign(1.9, false), 0.0);
        let softirqs = Some(SoftIrqTotals { network: 9_000, other: 0 });
        let virtual_link = MachineCpu { device_interrupts: Some(0), softirqs, ..both.clone() };
        assert!((foreign_cpus(&virtual_link, 0.6, false, 100.0) - 0.6).abs() < 1e-9);
        assert!((foreign_cpus(&virtual_link, 0.6, true, 100.0) - 0.3).abs() < 1e-9);
        assert_eq!(foreign_cpus(&MachineCpu::default(), 0.0, false, 100.0), 0.0);
    }

    #[test]
    fn the_live_machine_is_read() {
        let mut machine = Machine::open();
        machine.sample(1.0);
        let machine_use = machine.sample(1.0);
        assert!(!machine_use.cpus.is_empty());
        assert!(machine_use.cpu_delta.forks.is_some());
    }
}
