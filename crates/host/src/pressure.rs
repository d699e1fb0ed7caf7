//! Pressure stall information: waiting times of tasks for a CPU, for memory or for a disk. Read
//! from `/proc/pressure`, and from the same files of a control group.
//!
//! Source: `Documentation/accounting/psi.rst`. Only the totals are used, in microseconds. A
//! fraction is the difference of two totals divided by the time between them, so it belongs to a
//! sample and not to the last ten seconds.

use crate::kernel_file::{KernelFile, NotObservable};
use record::observed::Pressure;

/// One file: time in which some task waited, and in which all did, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PressureTotals {
    /// Some task waited.
    pub some_us: u64,
    /// All tasks waited; 0 if the kernel does not report it (CPU, before Linux 5.13).
    pub full_us: u64,
}

pub fn parse(text: &str) -> Option<PressureTotals> {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.rsplit_once("total=")?.1.trim().parse().ok()
    };
    Some(PressureTotals { some_us: total("some ")?, full_us: total("full ").unwrap_or(0) })
}

/// Open files of the machine, or of a control group.
#[derive(Debug)]
pub struct PressureReader {
    files: [KernelFile; 3],
    last: Option<[PressureTotals; 3]>,
}

impl PressureReader {
    pub fn open() -> Result<Self, NotObservable> {
        Self::open_at("/proc/pressure", "")
    }

    /// Opens the files of the control group whose directory in the unified hierarchy is `directory`.
    pub fn open_cgroup(directory: &str) -> Result<Self, NotObservable> {
        Self::open_at(directory, ".pressure")
    }

    fn open_at(directory: &str, suffix: &str) -> Result<Self, NotObservable> {
        let open = |name| {
            KernelFile::open("time that tasks waited (pressure)", format!("{directory}/{name}{suffix}"))
        };
        Ok(Self { files: [open("cpu")?, open("memory")?, open("io")?], last: None })
    }

    /// Reads the files, and returns the fractions of the time since the last reading; `None` the
    /// first time.
    pub fn sample(&mut self, seconds: f64) -> Result<Option<Pressure>, NotObservable> {
        let mut now = [PressureTotals::default(); 3];
        for (file, totals) in self.files.iter_mut().zip(&mut now) {
            let parsed = parse(&file.read()?);
            *totals = parsed.ok_or_else(|| file.bad_format())?;
        }
        let earlier = self.last.replace(now);
        Ok(earlier.map(|earlier| fractions(&earlier, &now, seconds)))
    }
}

fn fractions(earlier: &[PressureTotals; 3], now: &[PressureTotals; 3], seconds: f64) -> Pressure {
    let fraction = |now: u64, then: u64| (now.saturating_sub(then) as f64 / 1e6 / seconds).clamp(0.0, 1.0);
    let some = |at: usize| fraction(now[at].some_us, earlier[at].some_us);
    let full = |at: usize| fraction(now[at].full_us, earlier[at].full_us);
    Pressure {
        cpu_some: some(0),
        memory_some: some(1),
        memory_full: full(1),
        io_some: some(2),
        io_full: full(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        let text = "some avg10=0.08 avg60=7.71 avg300=6.47 total=49418582\n\
            full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse(text), Some(PressureTotals { some_us: 49_418_582, full_us: 7 }));
        // Before Linux 5.13 there is no second line for the CPU.
        let old = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse(old), Some(PressureTotals { some_us: 5, full_us: 0 }));
        for text in ["", "full avg10=0.00 total=5\n", "some total=x\n", "some\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn fractions_are_of_the_elapsed_time() {
        let totals = |some_us, full_us| PressureTotals { some_us, full_us };
        let earlier = [totals(0, 0), totals(10, 10), totals(100, 100)];
        let now = [totals(1_000_000, 0), totals(500_010, 10), totals(100 + 9_000_000, 50)];
        let expected = Pressure { cpu_some: 0.5, memory_some: 0.25, io_some: 1.0, ..Pressure::default() };
        assert_eq!(fractions(&earlier, &now, 2.0), expected);
    }

    #[test]
    fn the_live_files_are_read() {
        match PressureReader::open() {
            Ok(mut reader) => {
                assert_eq!(reader.sample(1.0).unwrap(), None);
                assert!(reader.sample(1.0).unwrap().is_some());
            }
            Err(missing) => test_needs::skip(test_needs::KERNEL, missing),
        }
    }
}
