//! CPU time of the machine (`/proc/stat`), and of the calling thread.
//!
//! [`crate::process`] reads other processes and threads.
//!
//! Source: `Documentation/filesystems/proc.rst` ("Miscellaneous kernel statistics in /proc/stat")
//! and proc_stat(5). The unit is the tick of [`ticks_per_s`], independent of the kernel's timer
//! frequency. Where the kernel accounts by timer tick, a figure is a count of samples: over a
//! second it is accurate to about one tick per CPU.

use rustix::time::{ClockId, clock_gettime};

use crate::kernel_file::{KernelFile, NotObservable};

/// Ticks a second in `/proc`: `sysconf(_SC_CLK_TCK)`, 100 on Linux.
pub fn ticks_per_s() -> u64 {
    rustix::param::clock_ticks_per_second()
}

/// CPU time of one CPU (or of all), in ticks since boot.
///
/// `user` includes `guest`, and `nice` includes `guest_nice`; they are not stored separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// User space at normal priority, in ticks.
    pub user: u64,
    /// User space at lowered priority, in ticks.
    pub nice: u64,
    /// Kernel, on behalf of a process, in ticks.
    pub system: u64,
    /// Nothing to run, in ticks.
    pub idle: u64,
    /// Nothing to run while something waits for a disk, in ticks. It is idle time. It belongs to no
    /// particular CPU, can run backwards, and says nothing about a network server.
    pub iowait: u64,
    /// Hardware interrupts, in ticks.
    pub irq: u64,
    /// Software interrupts (most of the network's receive path), in ticks.
    pub softirq: u64,
    /// Wanted to run, but the hypervisor ran something else, in ticks.
    pub steal: u64,
}

impl CpuTimes {
    /// Returns the ticks since `earlier`. A field that ran backwards (the kernel documents it for
    /// `iowait`) counts as zero.
    #[must_use]
    pub fn delta(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            nice: self.nice.saturating_sub(earlier.nice),
            system: self.system.saturating_sub(earlier.system),
            idle: self.idle.saturating_sub(earlier.idle),
            iowait: self.iowait.saturating_sub(earlier.iowait),
            irq: self.irq.saturating_sub(earlier.irq),
            softirq: self.softirq.saturating_sub(earlier.softirq),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    /// Returns the ticks in which this machine ran something: user, nice, system, irq and softirq.
    /// Neither `iowait` (idle) nor `steal` (work of other guests) counts.
    pub fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    pub fn total(&self) -> u64 {
        self.busy() + self.idle + self.iowait + self.steal
    }

    /// Returns the busy fraction of all ticks, 0 to 1; 0 if no tick passed. Call it on a
    /// [`delta`](Self::delta).
    pub fn busy_fraction(&self) -> f64 {
        fraction(self.busy(), self.total())
    }

    /// Returns the stolen fraction of all ticks, 0 to 1; 0 if no tick passed.
    pub fn steal_fraction(&self) -> f64 {
        fraction(self.steal, self.total())
    }
}

/// Times of all CPUs at one moment, or between two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineCpu {
    /// Sum over all CPUs, as reported by the kernel.
    pub total: CpuTimes,
    /// Times of each online CPU, in the order of the file.
    pub per_cpu: Vec<CpuTimes>,
    /// Number of each CPU in `per_cpu`; offline CPUs are skipped.
    pub cpu_ids: Vec<u32>,
    pub context_switches: Option<u64>,
    /// Processes and threads created since boot. While it stays the same, no process is new.
    pub forks: Option<u64>,
    /// Tasks that run or are ready to run, now.
    pub runnable: Option<u64>,
    /// Interrupts of devices since boot: those with a number, without timers and calls between CPUs.
    pub device_interrupts: Option<u64>,
    /// Software interrupts since boot.
    pub softirqs: Option<SoftIrqTotals>,
}

/// Software interrupts of all CPUs, by their cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoftIrqTotals {
    /// Packets received and sent (`NET_RX`, `NET_TX`).
    pub network: u64,
    /// All others: timers, the scheduler, RCU, block devices.
    pub other: u64,
}

impl SoftIrqTotals {
    /// Parses the figures of the line `softirq`: the sum, then HI, TIMER, NET_TX, NET_RX and others.
    fn parse(figures: &str) -> Option<Self> {
        let mut fields = figures.split_ascii_whitespace().map_while(|field| field.parse::<u64>().ok());
        let total = fields.next()?;
        let network = fields.nth(2)? + fields.next()?;
        Some(Self { network, other: total.saturating_sub(network) })
    }
}

impl MachineCpu {
    /// Returns the times since `earlier`, and the runnable tasks of now. A CPU that was not online
    /// then is left out.
    #[must_use]
    pub fn delta(&self, earlier: &Self) -> Self {
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let mut delta = Self {
            total: self.total.delta(&earlier.total),
            context_switches: since(self.context_switches, earlier.context_switches),
            forks: since(self.forks, earlier.forks),
            runnable: self.runnable,
            device_interrupts: since(self.device_interrupts, earlier.device_interrupts),
            softirqs: self.softirqs.zip(earlier.softirqs).map(|(now, then)| SoftIrqTotals {
                network: now.network.saturating_sub(then.network),
                other: now.other.saturating_sub(then.other),
            }),
            ..Self::default()
        };
        for (id, now) in self.cpu_ids.iter().zip(&self.per_cpu) {
            if let Some(at) = earlier.cpu_ids.iter().position(|other| other == id) {
                delta.cpu_ids.push(*id);
                delta.per_cpu.push(now.delta(&earlier.per_cpu[at]));
            }
        }
        delta
    }

    /// Returns the largest fraction of the software interrupts that can have run in the context of an
    /// interrupt, and so perhaps on an idle CPU. A packet of a virtual link or of the loopback interface is
    /// received in the context of the task that sends it; only the interrupt of a device starts a network
    /// softirq otherwise. Call it on a [`delta`](Self::delta).
    pub fn softirqs_in_interrupts(&self) -> f64 {
        let Some((devices, softirqs)) = self.device_interrupts.zip(self.softirqs) else { return 1.0 };
        let total = softirqs.network + softirqs.other;
        if total == 0 { 1.0 } else { fraction(devices + softirqs.other, total).min(1.0) }
    }

    /// Parses the text of `/proc/stat` into `self`, reusing its memory. `None` if the first line is
    /// not the sum, or a CPU's line lacks one of its first four figures.
    pub fn parse_into(&mut self, text: &str) -> Option<()> {
        self.per_cpu.clear();
        self.cpu_ids.clear();
        let mut lines = text.lines();
        self.total = parse_times(lines.next()?.strip_prefix("cpu ")?)?;
        (self.context_switches, self.forks, self.runnable) = (None, None, None);
        (self.device_interrupts, self.softirqs) = (None, None);
        for line in lines {
            let (name, figures) = line.split_once(' ').unwrap_or((line, ""));
            match name {
                "intr" => {
                    let numbered = figures.split_ascii_whitespace().skip(1);
                    self.device_interrupts = numbered.map(|count| count.parse::<u64>().ok()).sum();
                }
                "softirq" => self.softirqs = SoftIrqTotals::parse(figures),
                "ctxt" => self.context_switches = figures.trim().parse().ok(),
                "processes" => self.forks = figures.trim().parse().ok(),
                "procs_running" => self.runnable = figures.trim().parse().ok(),
                _ => {
                    if let Some(id) = name.strip_prefix("cpu") {
                        self.cpu_ids.push(id.parse().ok()?);
                        self.per_cpu.push(parse_times(figures)?);
                    }
                }
            }
        }
        Some(())
    }
}

/// Returns the CPU time of the calling thread in nanoseconds: the cost of a piece of monitoring,
/// not a time of day.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Returns the CPU time of a process in nanoseconds, including its ended threads
/// (clock_getcpuclockid(3)). `None` if the process does not exist.
#[allow(unsafe_code)]
pub fn process_cpu_ns(pid: i32) -> Option<u64> {
    /// `CPUCLOCK_SCHED` of a process: run time of its threads, as the scheduler counts it.
    const PROCESS_SCHEDULED: i32 = 2;
    let clock = !Some(pid).filter(|pid| (1..1 << 28).contains(pid))? << 3;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time` only, and rejects a clock that does not exist.
    let result = unsafe { libc::clock_gettime(clock | PROCESS_SCHEDULED, &raw mut time) };
    (result == 0).then(|| time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// `/proc/stat`, kept open.
#[derive(Debug)]
pub struct CpuReader {
    file: KernelFile,
    last: MachineCpu,
}

impl CpuReader {
    /// Opens `/proc/stat`.
    pub fn open() -> Result<Self, NotObservable> {
        let file = KernelFile::open("CPU time of the machine", "/proc/stat")?;
        Ok(Self { file, last: MachineCpu::default() })
    }

    /// Reads all CPUs. The value lives until the next sample; clone it to keep it.
    pub fn sample(&mut self) -> Result<&MachineCpu, NotObservable> {
        let parsed = self.last.parse_into(&self.file.read()?);
        parsed.ok_or_else(|| self.file.bad_format())?;
        Ok(&self.last)
    }
}

/// Parses the figures of one line, without its name. Fields that an old kernel lacks are zero.
fn parse_times(figures: &str) -> Option<CpuTimes> {
    let mut fields = figures.split_ascii_whitespace().map_while(|field| field.parse().ok());
    Some(CpuTimes {
        user: fields.next()?,
        nice: fields.next()?,
        system: fields.next()?,
        idle: fields.next()?,
        iowait: fields.next().unwrap_or(0),
        irq: fields.next().unwrap_or(0),
        softirq: fields.next().unwrap_or(0),
        steal: fields.next().unwrap_or(0),
    })
}

fn fraction(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
cpu  30079 0 5039 128081 772 0 61 22 0 0
cpu0 12003 0 1978 67953 86 0 13 6 0 0
cpu1 18076 0 3060 60127 685 0 48 15 0 0
intr 257850 0 0 0 0 164 97 0 26
ctxt 348743
btime 1763702853
processes 7013
procs_running 2
procs_blocked 0
softirq 52341 0 9721 1 1204 0 0 3 21044 0 20368
";
    const AFTER: &str = "\
cpu  30179 10 5089 128181 700 2 71 52 0 0
cpu0 12103 10 1978 67953 86 0 13 6 0 0
cpu1 18076 0 3110 60227 613 2 58 45 0 0
intr 257990
";

    fn parse(text: &str) -> MachineCpu {
        let mut machine = MachineCpu::default();
        machine.parse_into(text).unwrap();
        machine
    }

    #[test]
    fn the_sum_and_each_cpu_are_read() {
        let machine = parse(BEFORE);
        assert_eq!(machine.cpu_ids, [0, 1]);
        assert_eq!(machine.total.user, 30079);
        assert_eq!(machine.total.steal, 22);
        let last = CpuTimes {
            user: 18076,
            system: 3060,
            idle: 60127,
            iowait: 685,
            softirq: 48,
            steal: 15,
            ..CpuTimes::default()
        };
        assert_eq!(machine.per_cpu[1], last);
        assert_eq!(machine.context_switches, Some(348_743));
        assert_eq!((machine.forks, machine.runnable), (Some(7013), Some(2)));
    }

    #[test]
    fn network_softirqs_without_device_interrupts_run_in_tasks() {
        let machine = parse(BEFORE);
        assert_eq!(machine.device_interrupts, Some(164 + 97 + 26));
        assert_eq!(machine.softirqs, Some(SoftIrqTotals { network: 1205, other: 51136 }));
        let later = |interrupts: u64, network: u64, other: u64| MachineCpu {
            device_interrupts: machine.device_interrupts.map(|before| before + interrupts),
            softirqs: machine.softirqs.map(|before| SoftIrqTotals {
                network: before.network + network,
                other: before.other + other,
            }),
            ..MachineCpu::default()
        };
        let in_interrupts = |interrupts, network, other| {
            later(interrupts, network, other).delta(&machine).softirqs_in_interrupts()
        };
        // The loopback interface, a network card, and one that polls.
        assert!((in_interrupts(10, 99_000, 1_000) - 0.0101).abs() < 1e-9);
        assert_eq!(in_interrupts(90_000, 80_000, 1_000), 1.0);
        assert_eq!(in_interrupts(30_000, 59_000, 1_000), 31_000.0 / 60_000.0);
        assert_eq!(MachineCpu::default().softirqs_in_interrupts(), 1.0);
    }

    #[test]
    fn lines_after_the_cpus_may_be_missing() {
        let machine = parse(AFTER);
        assert_eq!(machine.context_switches, None);
        assert_eq!(machine.delta(&parse(BEFORE)).context_switches, None);
        let later = parse(&BEFORE.replace("ctxt 348743", "ctxt 348800"));
        assert_eq!(later.delta(&parse(BEFORE)).context_switches, Some(57));
    }

    #[test]
    fn busy_is_work_and_neither_waiting_nor_stolen() {
        let between = parse(AFTER).delta(&parse(BEFORE));
        // user 100, nice 10, system 50, irq 2, softirq 10; idle 100; iowait ran backwards.
        assert_eq!(between.total.busy(), 172);
        assert_eq!(between.total.iowait, 0);
        assert_eq!(between.total.total(), 172 + 100 + 30);
        assert!((between.total.busy_fraction() - 172.0 / 302.0).abs() < 1e-12);
        assert!((between.total.steal_fraction() - 30.0 / 302.0).abs() < 1e-12);
        assert_eq!(between.per_cpu[0].busy(), 110);
    }

    #[test]
    fn no_elapsed_time_is_a_fraction_of_zero() {
        let machine = parse(BEFORE);
        assert_eq!(machine.delta(&machine).total.busy_fraction(), 0.0);
    }

    #[test]
    fn a_cpu_that_was_offline_is_left_out() {
        let before = parse("cpu  5 0 0 5\ncpu3 5 0 0 5\n");
        let after = parse("cpu  9 0 0 9\ncpu1 4 0 0 4\ncpu3 7 0 0 6\n");
        let between = after.delta(&before);
        assert_eq!(between.cpu_ids, [3]);
        assert_eq!(between.per_cpu[0].user, 2);
    }

    #[test]
    fn text_of_another_form_is_refused() {
        for text in ["", "intr 5\n", "cpu  1 2 3\n", "cpu  1 2 3 4\ncpuX 1 2 3 4\n"] {
            assert_eq!(MachineCpu::default().parse_into(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_clock_of_a_process_counts_in_nanoseconds() {
        let own = std::process::id() as i32;
        let before = process_cpu_ns(own).unwrap();
        let thread = thread_cpu_ns();
        while thread_cpu_ns() < thread + 300_000 {}
        let used = process_cpu_ns(own).unwrap() - before;
        assert!(used >= 300_000, "{used}");
        assert_eq!((process_cpu_ns(i32::MAX), process_cpu_ns(0), process_cpu_ns(-1)), (None, None, None));
    }

    #[test]
    fn the_live_file_is_read_twice() {
        assert!(ticks_per_s() > 0);
        let mut reader = CpuReader::open().unwrap();
        let first = reader.sample().unwrap().clone();
        assert_eq!(first.per_cpu.len(), first.cpu_ids.len());
        assert!(reader.sample().unwrap().total.user >= first.total.user);
    }
}
