//! One process, or each of its threads: CPU time, time spent waiting for a CPU, resident memory,
//! open descriptors, page faults. [`stats`] has the other figures.
//!
//! [`crate::cpu`] covers the complete machine, and `crate::sockets` finds processes.
//!
//! Sources: `/proc/PID/stat` and `/proc/PID/task/TID/stat` (proc_pid_stat(5)), `…/schedstat`
//! (`Documentation/scheduler/sched-stats.rst`), `…/wchan` (proc_pid_wchan(5)), `/proc/PID/statm`
//! (proc_pid_statm(5)), `/proc/PID/task/TID/fd`, kcmp(2).

pub mod stats;

use crate::kernel_file::{KernelFile, NotObservable, read_once};

/// CPU time of a process: all its threads, including ended ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessTimes {
    pub pid: i32,
    /// Name as the kernel keeps it: at most 15 arbitrary bytes.
    pub name: String,
    /// User space, in ticks of [`crate::cpu::ticks_per_s`].
    pub user_ticks: u64,
    /// Kernel, in ticks. Where the kernel accounts by timer tick, this includes the software
    /// interrupts that ran on top of the process, its peer's receive path among them on loopback.
    pub system_ticks: u64,
    /// CPU time of children that have ended and were waited for, in ticks, with that of their children.
    pub children_ticks: u64,
    pub threads: u64,
    /// Start time, in ticks after boot; with the process ID it identifies a process uniquely.
    pub start_ticks: u64,
    /// Page faults without disk access.
    pub minor_faults: u64,
    /// Page faults with disk access.
    pub major_faults: u64,
    /// Resident memory, in pages. The kernel counts it in parts per CPU, so it is accurate to some
    /// hundred kilobytes.
    pub resident_pages: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    pub tid: i32,
    /// Name: at most 15 bytes.
    pub name: String,
    /// User space, in ticks of [`crate::cpu::ticks_per_s`].
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// Time on a CPU, in nanoseconds; `None` if the kernel has no `schedstat`.
    pub run_ns: Option<u64>,
    /// Time ready to run but waiting for a CPU, in nanoseconds.
    pub wait_ns: Option<u64>,
    /// CPU that it ran on last.
    pub cpu: u32,
}

/// Contents of one `stat` line, of a process or of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatLine<'a> {
    /// Number of the process or thread.
    pub id: i32,
    /// Name, between the first `(` and the last `)`.
    pub name: &'a str,
    /// Field 3.
    pub state: char,
    /// Field 4: the parent process, or the process that adopted it.
    pub parent: i32,
    /// Field 10.
    pub minor_faults: u64,
    /// Field 12.
    pub major_faults: u64,
    /// Field 14, in ticks.
    pub user_ticks: u64,
    /// Field 15, in ticks.
    pub system_ticks: u64,
    /// Fields 16 and 17: CPU time of children that have ended and were waited for, in ticks.
    pub children_ticks: u64,
    /// Field 20.
    pub threads: u64,
    /// Field 22, in ticks after boot.
    pub start_ticks: u64,
    /// Field 24, in pages.
    pub resident_pages: u64,
    /// Field 39: the CPU that it ran on last.
    pub cpu: u32,
}

/// Parses one `stat` file. The name may hold spaces and parentheses.
pub fn parse_stat(text: &str) -> Option<StatLine<'_>> {
    let (id, rest) = text.split_once(" (")?;
    let (name, figures) = rest.rsplit_once(") ")?;
    // Field 3 (the state) comes first now; `nth` counts on from the fields taken before.
    let mut fields = figures.split_ascii_whitespace();
    Some(StatLine {
        id: id.parse().ok()?,
        name,
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        minor_faults: fields.nth(5)?.parse().ok()?,
        major_faults: fields.nth(1)?.parse().ok()?,
        user_ticks: fields.nth(1)?.parse().ok()?,
        system_ticks: fields.next()?.parse().ok()?,
        children_ticks: {
            let user: i64 = fields.next()?.parse().ok()?;
            let system: i64 = fields.next()?.parse().ok()?;
            u64::try_from(user.saturating_add(system)).unwrap_or(0)
        },
        threads: fields.nth(2)?.parse().ok()?,
        start_ticks: fields.nth(1)?.parse().ok()?,
        // A kernel thread has none, written as 0; a negative one was seen on old kernels.
        resident_pages: fields.nth(1)?.parse().unwrap_or(0),
        cpu: fields.nth(14)?.parse().ok()?,
    })
}

/// Parses one `schedstat` file: (time on a CPU, time waiting for one), in nanoseconds.
pub fn parse_schedstat(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace();
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Parses one `wchan` file: the kernel function in which a thread sleeps, without the suffixes of the compiler
/// (`do_poll.constprop.0`). `None` if it is awake, or if the reader may not know.
pub fn parse_wchan(text: &str) -> Option<&str> {
    let function = text.trim_end().split('.').next()?;
    (!matches!(function, "" | "0")).then_some(function)
}

/// Parses one `statm` file: resident pages.
pub fn parse_statm_resident_pages(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Replaces control characters, which a terminal would obey: every process chooses its own names.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// `/proc/PID/stat`, kept open. Once the process has ended every sample fails, even if its process
/// ID is reused.
#[derive(Debug)]
pub struct ProcessReader {
    stat: KernelFile,
    last: ProcessTimes,
}

impl ProcessReader {
    pub fn open(pid: i32) -> Result<Self, NotObservable> {
        let stat = KernelFile::open("CPU time of a process", format!("/proc/{pid}/stat"))?;
        Ok(Self { stat, last: ProcessTimes::default() })
    }

    /// Reads the process. The value lives until the next sample.
    pub fn sample(&mut self) -> Result<&ProcessTimes, NotObservable> {
        let text = self.stat.read()?;
        let Some(line) = parse_stat(&text) else {
            drop(text);
            return Err(self.stat.bad_format());
        };
        set_name(&mut self.last.name, line.name);
        self.last.pid = line.id;
        self.last.user_ticks = line.user_ticks;
        self.last.system_ticks = line.system_ticks;
        self.last.children_ticks = line.children_ticks;
        self.last.threads = line.threads;
        self.last.start_ticks = line.start_ticks;
        self.last.minor_faults = line.minor_faults;
        self.last.major_faults = line.major_faults;
        self.last.resident_pages = line.resident_pages;
        Ok(&self.last)
    }
}

/// `/proc/PID/task/TID/{stat,schedstat}`, kept open.
#[derive(Debug)]
pub struct ThreadReader {
    stat: KernelFile,
    schedstat: Result<KernelFile, NotObservable>,
    last: ThreadTimes,
}

impl ThreadReader {
    /// Opens the files of thread `tid` of process `pid`. A kernel without `schedstat` is no error.
    pub fn open(pid: i32, tid: i32) -> Result<Self, NotObservable> {
        let directory = format!("/proc/{pid}/task/{tid}");
        Ok(Self {
            stat: KernelFile::open("CPU time of a thread", format!("{directory}/stat"))?,
            schedstat: KernelFile::open("run-queue wait of a thread", format!("{directory}/schedstat")),
            last: ThreadTimes::default(),
        })
    }

    /// Reads the thread. The value lives until the next sample.
    pub fn sample(&mut self) -> Result<&ThreadTimes, NotObservable> {
        let text = self.stat.read()?;
        let Some(line) = parse_stat(&text) else {
            drop(text);
            return Err(self.stat.bad_format());
        };
        set_name(&mut self.last.name, line.name);
        self.last.tid = line.id;
        self.last.user_ticks = line.user_ticks;
        self.last.system_ticks = line.system_ticks;
        self.last.cpu = line.cpu;
        let scheduled = match &mut self.schedstat {
            Ok(source) => parse_schedstat(&source.read()?),
            Err(_) => None,
        };
        self.last.run_ns = scheduled.map(|(run, _)| run);
        self.last.wait_ns = scheduled.map(|(_, wait)| wait);
        Ok(&self.last)
    }

    /// Reads only the scheduling state: `R`, `S`, `D`… (proc_pid_stat(5)).
    pub fn state(&mut self) -> Result<char, NotObservable> {
        let text = self.stat.read()?;
        let Some(line) = parse_stat(&text) else {
            drop(text);
            return Err(self.stat.bad_format());
        };
        Ok(line.state)
    }

    /// Returns the reason if `run_ns` and `wait_ns` are missing.
    pub fn not_observable(&self) -> Option<&NotObservable> {
        self.schedstat.as_ref().err()
    }
}

/// Returns the IDs of all threads of process `pid`, in the kernel's order.
pub fn thread_ids(pid: i32) -> Result<Vec<i32>, NotObservable> {
    let path = format!("/proc/{pid}/task");
    let entries =
        std::fs::read_dir(&path).map_err(|error| NotObservable::io("threads of a process", &path, &error))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Reads all threads of process `pid` once. A thread that ends meanwhile is left out.
pub fn threads(pid: i32) -> Result<Vec<ThreadTimes>, NotObservable> {
    let read = |tid| ThreadReader::open(pid, tid)?.sample().cloned();
    Ok(thread_ids(pid)?.into_iter().filter_map(|tid| read(tid).ok()).collect())
}

/// Returns the resident memory of process `pid`, in bytes. The kernel counts it in parts per CPU:
/// it is accurate to some hundred kilobytes.
pub fn resident_bytes(pid: i32) -> Result<u64, NotObservable> {
    const FIGURE: &str = "resident memory of a process";
    let path = format!("/proc/{pid}/statm");
    let pages = parse_statm_resident_pages(&read_once(FIGURE, &path)?)
        .ok_or_else(|| NotObservable::bad_format(FIGURE, &path))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Returns the number of descriptors in the fullest table of process `pid`, for comparison with its
/// limit. `fd_table_tids` is a recent result of [`fd_tables`].
pub fn max_open_fds(pid: i32, fd_table_tids: &[i32]) -> Result<u64, NotObservable> {
    let mut fullest = Err(NotObservable::new("open descriptors of a process", "it has ended"));
    for tid in fd_table_tids {
        match (count_open_fds(pid, *tid), &fullest) {
            (Ok(count), Ok(max)) if count <= *max => {}
            (Err(_), Ok(_)) => {}
            (count, _) => fullest = count,
        }
    }
    fullest
}

/// Returns a thread for each descriptor table of a process. Threads may have their own tables
/// (unshare(2) with `CLONE_FILES`), as in weir's proxy; `/proc/PID/fd` is only the first thread's.
pub fn fd_tables(pid: i32) -> Vec<i32> {
    let mut tables = vec![pid];
    // An unreadable process has no threads to distinguish.
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let tids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for tid in tids.collect::<Vec<i32>>() {
        if tables.iter().all(|&known| has_different_fd_table(known, tid)) {
            tables.push(tid);
        }
    }
    tables
}

/// Returns true if two threads have different tables (kcmp(2)); false if the kernel does not report it.
#[allow(unsafe_code)]
fn has_different_fd_table(first_tid: i32, second_tid: i32) -> bool {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: the call compares two numbers of threads in the kernel and touches no memory of ours.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, first_tid, second_tid, KCMP_FILES, 0, 0) };
    order > 0
}

/// Returns the size of the directory since Linux 6.2; before, counts its entries.
fn count_open_fds(pid: i32, tid: i32) -> Result<u64, NotObservable> {
    let path = format!("/proc/{pid}/task/{tid}/fd");
    let failed = |error| NotObservable::io("open descriptors of a process", &path, &error);
    let size = std::fs::metadata(&path).map_err(failed)?.len();
    if size > 0 {
        return Ok(size);
    }
    Ok(std::fs::read_dir(&path).map_err(failed)?.count() as u64)
}

fn set_name(current: &mut String, name: &str) {
    if current != name {
        current.clear();
        // Control characters as in [`printable`].
        current.extend(name.chars().map(|character| if character.is_control() { '?' } else { character }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NGINX: &str = "6933 (nginx) S 6931 6931 6256 0 -1 4194304 99 0 0 0 412 1307 25 8 20 0 \
        3 0 84782 3133440 348 18446744073709551615 94370543755264 94370543775145 140728779720752 \
        0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94370543791152 94370543792768 94370544431104 \
        140728779729581 140728779729621 140728779729621 140728779730923 0\n";

    #[test]
    fn a_stat_line_is_read() {
        let line = parse_stat(NGINX).unwrap();
        let expected = StatLine {
            id: 6933,
            name: "nginx",
            state: 'S',
            parent: 6931,
            minor_faults: 99,
            major_faults: 0,
            user_ticks: 412,
            system_ticks: 1307,
            children_ticks: 33,
            threads: 3,
            start_ticks: 84782,
            resident_pages: 348,
            cpu: 1,
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn a_sleeping_thread_has_a_function_without_the_suffixes_of_the_compiler() {
        assert_eq!(parse_wchan("hrtimer_nanosleep"), Some("hrtimer_nanosleep"));
        assert_eq!(parse_wchan("poll_schedule_timeout.constprop.0\n"), Some("poll_schedule_timeout"));
        assert!([parse_wchan("0"), parse_wchan("")].iter().all(Option::is_none));
    }

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        for name in ["a b", "x) R 1 (y", "(", ")", "((sd-pam))", "tmux: server", "", "kworker/0:1-"] {
            let text = NGINX.replacen("nginx", name, 1);
            let line = parse_stat(&text).unwrap();
            assert_eq!((line.name, line.user_ticks, line.start_ticks), (name, 412, 84782));
        }
    }

    #[test]
    fn short_or_foreign_text_is_refused() {
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("12 (a) S 1 2 3"), None);
        assert_eq!(parse_stat(&NGINX.replace("412", "-4")), None);
        assert_eq!(parse_schedstat("12"), None);
    }

    #[test]
    fn schedstat_and_statm_are_read() {
        assert_eq!(parse_schedstat("1303351 20458 17\n"), Some((1_303_351, 20_458)));
        assert_eq!(parse_statm_resident_pages("765 407 379 5 0 123 0\n"), Some(407));
    }

    #[test]
    fn this_process_is_read_live() {
        let pid = std::process::id() as i32;
        assert_eq!(ProcessReader::open(pid).unwrap().sample().unwrap().pid, pid);
        assert!(resident_bytes(pid).unwrap() > 0);
        // A thread that ended after the listing has none.
        assert!(max_open_fds(pid, &[i32::MAX, pid]).unwrap() > 0);
        let all = threads(pid).unwrap();
        assert!(all.iter().any(|thread| thread.tid == pid), "{all:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_not_observable() {
        let error = ProcessReader::open(i32::MAX).unwrap_err();
        assert!(error.reason.contains("/proc/2147483647/stat"), "{error}");
        assert!(threads(i32::MAX).is_err() && max_open_fds(i32::MAX, &[i32::MAX]).is_err());
    }
}
