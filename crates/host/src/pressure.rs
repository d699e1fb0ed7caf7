//! How long tasks waited for a processor, for memory or for a disk: `/proc/pressure`, and the same
//! files of a control group.
//!
//! Source: `Documentation/accounting/psi.rst`. Only the totals are used, in microseconds: a share is
//! the difference of two by the time between them, so it belongs to a sample and not to the last ten
//! seconds.

use crate::source::{NotObservable, Source};
use record::observed::Pressure;

/// One file: time in which some task waited, and in which all did, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalled {
    /// Some task waited.
    pub some_us: u64,
    /// All tasks waited; 0 where the kernel does not say (processors, before Linux 5.13).
    pub full_us: u64,
}

/// Parses one pressure file.
#[must_use]
pub fn parse(text: &str) -> Option<Stalled> {
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.rsplit_once("total=")?.1.trim().parse().ok()
    };
    Some(Stalled { some_us: total("some ")?, full_us: total("full ").unwrap_or(0) })
}

/// The three files of the machine, or of a control group, kept open.
#[derive(Debug)]
pub struct Reader {
    files: [Source; 3],
    last: Option<[Stalled; 3]>,
}

impl Reader {
    /// Opens those of the machine.
    pub fn open() -> Result<Self, NotObservable> {
        Self::open_at("/proc/pressure", "")
    }

    /// Opens those of the control group whose folder in the unified hierarchy is `folder`.
    pub fn open_cgroup(folder: &str) -> Result<Self, NotObservable> {
        Self::open_at(folder, ".pressure")
    }

    fn open_at(folder: &str, suffix: &str) -> Result<Self, NotObservable> {
        let open = |name| {
            Source::open("time that tasks waited (pressure)", format!("{folder}/{name}{suffix}"))
        };
        Ok(Self { files: [open("cpu")?, open("memory")?, open("io")?], last: None })
    }

    /// Reads them, and gives the shares of the time since the last reading; none the first time.
    pub fn shares(&mut self, seconds: f64) -> Result<Option<Pressure>, NotObservable> {
        let mut now = [Stalled::default(); 3];
        for (file, stalled) in self.files.iter_mut().zip(&mut now) {
            let parsed = parse(&file.read()?);
            *stalled = parsed.ok_or_else(|| file.bad_form())?;
        }
        let earlier = self.last.replace(now);
        Ok(earlier.map(|earlier| shares(&earlier, &now, seconds)))
    }
}

fn shares(earlier: &[Stalled; 3], now: &[Stalled; 3], seconds: f64) -> Pressure {
    let share =
        |now: u64, then: u64| (now.saturating_sub(then) as f64 / 1e6 / seconds).clamp(0.0, 1.0);
    let some = |at: usize| share(now[at].some_us, earlier[at].some_us);
    let full = |at: usize| share(now[at].full_us, earlier[at].full_us);
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
        assert_eq!(parse(text), Some(Stalled { some_us: 49_418_582, full_us: 7 }));
        // Before Linux 5.13 there is no second line for processors.
        let old = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse(old), Some(Stalled { some_us: 5, full_us: 0 }));
        for text in ["", "full avg10=0.00 total=5\n", "some total=x\n", "some\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn shares_are_of_the_time_between() {
        let stalled = |some_us, full_us| Stalled { some_us, full_us };
        let earlier = [stalled(0, 0), stalled(10, 10), stalled(100, 100)];
        let now = [stalled(1_000_000, 0), stalled(500_010, 10), stalled(100 + 9_000_000, 50)];
        let expected =
            Pressure { cpu_some: 0.5, memory_some: 0.25, io_some: 1.0, ..Pressure::default() };
        assert_eq!(shares(&earlier, &now, 2.0), expected);
    }

    #[test]
    fn the_live_files_are_read() {
        match Reader::open() {
            Ok(mut reader) => {
                assert_eq!(reader.shares(1.0).unwrap(), None);
                assert!(reader.shares(1.0).unwrap().is_some());
            }
            Err(missing) => println!("skipped: {missing}"),
        }
    }
}
