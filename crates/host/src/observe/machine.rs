//! The machine's processors between two looks: who used them, which interrupts they had, what the
//! receive path did.
//!
//! Not for processes, nor for network namespaces: all of this is the same wherever it is read.

use crate::cpu::{self, CpuTimes, MachineCpu};
use crate::interrupts::{InterruptReader, SoftIrqReader};
use crate::pressure;
use crate::softnet::{self, SoftnetRow};
use crate::source::NotObservable;
use record::observed::{CpuUse, Pressure};

/// Reading `/proc/interrupts` takes a figure for each interrupt and processor, so it is left alone on
/// machines with more processors than this.
const INTERRUPTS_CPUS_MAX: usize = 64;

/// The files of the machine, kept open, with the last two readings.
#[derive(Debug)]
pub(super) struct Machine {
    cpu: Result<cpu::Reader, NotObservable>,
    softirqs: Result<SoftIrqReader, NotObservable>,
    interrupts: Result<InterruptReader, NotObservable>,
    softnet: Result<softnet::Reader, NotObservable>,
    pressure: Result<pressure::Reader, NotObservable>,
    now: Moment,
    then: Moment,
}

/// What the files said at one moment. What could not be read is empty.
#[derive(Debug, Clone, Default)]
struct Moment {
    cpu: MachineCpu,
    /// `NET_RX` by processor.
    net_rx: Vec<(u32, u64)>,
    /// `NET_TX` by processor.
    net_tx: Vec<(u32, u64)>,
    interrupts: Vec<(u32, u64)>,
    softnet: Vec<SoftnetRow>,
}

/// What passed between two moments.
#[derive(Debug, Clone, Default)]
pub(super) struct MachineUse {
    pub(super) between: MachineCpu,
    pub(super) cpus: Vec<CpuUse>,
    pub(super) pressure: Option<Pressure>,
}

impl Machine {
    pub(super) fn open() -> Self {
        let mut cpu = cpu::Reader::open();
        let cpus = cpu.as_mut().ok().and_then(|cpu| Some(cpu.sample().ok()?.cpu_ids.len()));
        let interrupts = match cpus {
            Some(cpus) if cpus > INTERRUPTS_CPUS_MAX => Err(NotObservable::new(
                "hardware interrupts by processor",
                format!("reading /proc/interrupts of {cpus} processors each second costs too much"),
            )),
            _ => InterruptReader::open(),
        };
        Self {
            cpu,
            softirqs: SoftIrqReader::open(),
            interrupts,
            softnet: softnet::Reader::open(),
            pressure: pressure::Reader::open(),
            now: Moment::default(),
            then: Moment::default(),
        }
    }

    /// The processors online.
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

    /// Reads everything, and says what passed in the `seconds` since the last reading.
    pub(super) fn sample(&mut self, seconds: f64) -> MachineUse {
        std::mem::swap(&mut self.now, &mut self.then);
        self.read();
        let between = self.now.cpu.delta(&self.then.cpu);
        let pressure = self.pressure.as_mut().ok();
        MachineUse {
            cpus: uses(&between, &self.then, &self.now, seconds),
            between,
            pressure: pressure.and_then(|files| files.shares(seconds).ok().flatten()),
        }
    }

    /// Hardware interrupts have time of their own here, which no process is charged for: where the
    /// kernel accounts by timer tick there is none, because a tick never meets one.
    pub(super) fn interrupts_are_apart(&self) -> bool {
        self.now.cpu.total.irq > 0
    }

    fn read(&mut self) {
        let now = &mut self.now;
        match self.cpu.as_mut().map(cpu::Reader::sample) {
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
            now.interrupts.extend(counts.cpu_ids.iter().copied().zip(counts.sums.iter().copied()));
        }
        now.softnet.clear();
        if let Ok(Ok(rows)) = self.softnet.as_mut().map(softnet::Reader::sample) {
            now.softnet.extend_from_slice(rows);
        }
    }
}

fn uses(between: &MachineCpu, then: &Moment, now: &Moment, seconds: f64) -> Vec<CpuUse> {
    let cpus = between.cpu_ids.iter().zip(&between.per_cpu);
    cpus.map(|(&cpu, times)| {
        let mut cpu_use = shares(cpu, times);
        let count = |list: &[(u32, u64)]| list.iter().find(|(id, _)| *id == cpu).map(|(_, n)| *n);
        let rate = |now: &[(u32, u64)], then: &[(u32, u64)]| {
            Some(count(now)?.saturating_sub(count(then)?) as f64 / seconds)
        };
        cpu_use.net_rx_per_s = rate(&now.net_rx, &then.net_rx).unwrap_or(0.0);
        cpu_use.net_tx_per_s = rate(&now.net_tx, &then.net_tx);
        cpu_use.interrupts_per_s = rate(&now.interrupts, &then.interrupts).unwrap_or(0.0);
        let row = |moment: &Moment| moment.softnet.iter().find(|row| row.cpu == cpu).copied();
        if let (Some(now), Some(then)) = (row(now), row(then)) {
            let passed = now.since(&then);
            cpu_use.packets_per_s = f64::from(passed.processed) / seconds;
            cpu_use.backlog_drops_per_s = f64::from(passed.dropped) / seconds;
            cpu_use.time_squeezes_per_s = f64::from(passed.time_squeeze) / seconds;
            cpu_use.received_rps_per_s = f64::from(passed.received_rps) / seconds;
            cpu_use.flow_limit_drops_per_s =
                passed.flow_limited.map(|packets| f64::from(packets) / seconds);
            cpu_use.backlog_packets = passed.backlog;
        }
        cpu_use
    })
    .collect()
}

fn shares(cpu: u32, times: &CpuTimes) -> CpuUse {
    let total = times.total().max(1) as f64;
    let share = |ticks: u64| ticks as f64 / total;
    CpuUse {
        cpu,
        user: share(times.user + times.nice),
        system: share(times.system),
        irq: share(times.irq),
        softirq: share(times.softirq),
        steal: share(times.steal),
        idle: share(times.idle + times.iowait),
        ..CpuUse::default()
    }
}

/// Busy processors that are neither a role's nor interrupts of no process, at least 0.
///
/// What an interrupt takes is charged to the process that it met, where the kernel accounts by timer
/// tick, and to nobody where it met an idle processor: so the idle share of each processor's
/// interrupts is taken to be nobody's. Where the kernel accounts interrupts apart all of them are.
pub(crate) fn foreign_cpus(
    between: &MachineCpu,
    role_cpus: f64,
    interrupts_are_apart: bool,
    ticks: f64,
) -> f64 {
    let nobodys = |times: &CpuTimes| {
        let interrupts = (times.irq + times.softirq) as f64;
        let idle = (times.idle + times.iowait) as f64;
        let tasks = (times.user + times.nice + times.system) as f64;
        match interrupts_are_apart {
            true => interrupts,
            false if idle + tasks > 0.0 => interrupts * idle / (idle + tasks),
            false => 0.0,
        }
    };
    let busy = between.total.busy() as f64;
    let interrupts: f64 = between.per_cpu.iter().map(nobodys).sum();
    ((busy - interrupts) / ticks - role_cpus).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_processors_time_is_shared_out_and_its_events_are_rates() {
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
        let moment = |packets, interrupts| Moment {
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
            ..Moment::default()
        };
        let mut between = machine(&[times]);
        between.cpu_ids = vec![1];
        let cpu = uses(&between, &moment(100, 10), &moment(300, 11), 2.0)[0];
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
    fn what_is_left_of_busy_processors_is_foreign() {
        let busy = CpuTimes { user: 50, system: 30, softirq: 20, ..CpuTimes::default() };
        let calm = CpuTimes { user: 10, softirq: 10, idle: 80, ..CpuTimes::default() };
        let both = machine(&[busy, calm]);
        let foreign = |roles, apart| foreign_cpus(&both, roles, apart, 100.0);
        // Softirqs on the busy processor met a process; on the calm one eight of nine met nobody.
        assert!((foreign(0.6, false) - (1.2 - 0.8 / 9.0 - 0.6)).abs() < 1e-9);
        assert!((foreign(0.6, true) - 0.3).abs() < 1e-9);
        assert_eq!(foreign(1.9, false), 0.0);
        assert_eq!(foreign_cpus(&MachineCpu::default(), 0.0, false, 100.0), 0.0);
    }

    #[test]
    fn the_live_machine_is_read() {
        let mut machine = Machine::open();
        machine.sample(1.0);
        let passed = machine.sample(1.0);
        assert!(!passed.cpus.is_empty());
        assert!(passed.between.created.is_some());
    }
}
