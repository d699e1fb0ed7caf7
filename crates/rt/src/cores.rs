//! One thread a core, each with its own tokio `current_thread` runtime, pinned on request.
//!
//! A core's state never leaves its thread, so it needs no lock and no `Send`. What a core has to
//! say at its end is the value that its future returns.

use std::future::Future;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// How many cores to run, under which name, and where.
#[derive(Clone, Debug)]
pub struct Cores {
    /// How many threads; at least 1.
    pub count: usize,
    /// Name of the threads: `NAME-0`, `NAME-1`… (15 bytes at most are kept by the kernel).
    pub name: &'static str,
    /// The processors to pin to, thread *i* to entry *i* modulo their number; empty: not pinned.
    pub pin: Vec<usize>,
    /// Whether a core that has nothing to do looks again at once instead of sleeping: no wake-up
    /// costs anything then, and the core is always fully used.
    pub spin: bool,
    /// Whether cores have tables of descriptors of their own.
    pub table: Table,
}

/// Which table of descriptors a core uses.
///
/// In a table that threads share, the kernel counts who uses a file during each system call, in
/// memory that is cold when there are many connections. Measured with the proxy at 1,000 connections:
/// 23.1 microseconds a request in a shared table, 19.5 in one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Table {
    /// The process's.
    Shared,
    /// Its own, in which only these, the standard streams and the runtimes' own are left of the
    /// process's. A core must not be given any other descriptor ([`crate::mail`] brings others), and
    /// no runtime can be made after such cores were started: they could not wake it. Without `/proc`
    /// the table is shared after all.
    Own(Vec<RawFd>),
}

/// One core's own place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Which core, from 0.
    pub index: usize,
    /// How many cores there are.
    pub count: usize,
}

/// Cores that are at work.
#[derive(Debug)]
pub struct Running<T> {
    handles: Vec<JoinHandle<io::Result<T>>>,
    thread_ids: Vec<i32>,
}

/// Why a core did not bring a result.
#[derive(Debug)]
pub enum CoreFailure {
    /// Its runtime or its sockets could not be set up, or its body failed.
    Io(io::Error),
    /// It panicked: a defect of ours.
    Panicked(usize),
}

impl std::fmt::Display for CoreFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Panicked(core) => write!(f, "core {core} panicked; this is a defect of weir"),
        }
    }
}

impl std::error::Error for CoreFailure {}

/// Starts `cores.count` threads; each runs the future that `body` makes for its seat.
///
/// # Errors
/// As [`start_with`].
pub fn start<T, B, F>(cores: &Cores, body: B) -> io::Result<Running<T>>
where
    T: Send + 'static,
    B: Fn(Seat) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<T>>,
{
    start_with(cores, vec![(); cores.count], move |seat, ()| body(seat))
}

/// Starts a thread for each of `luggage`, which it takes with it: what a core owns from the start,
/// like its end of a channel.
///
/// # Errors
/// A thread could not be started, pinned, or given a runtime. None is left behind: the others end
/// when their channels close.
pub fn start_with<L, T, B, F>(cores: &Cores, luggage: Vec<L>, body: B) -> io::Result<Running<T>>
where
    L: Send + 'static,
    T: Send + 'static,
    B: Fn(Seat, L) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<T>>,
{
    let count = luggage.len();
    let spin = cores.spin;
    let mut handles = Vec::with_capacity(count);
    let (announce, announced) = mpsc::channel();
    let all_ready = Arc::new(Barrier::new(count));
    for (index, luggage) in luggage.into_iter().enumerate() {
        let seat = Seat { index, count };
        let body = body.clone();
        let announce = announce.clone();
        let cpu = (!cores.pin.is_empty()).then(|| cores.pin[index % cores.pin.len()]);
        let table = cores.table.clone();
        let all_ready = Arc::clone(&all_ready);
        let thread = std::thread::Builder::new().name(format!("{}-{index}", cores.name));
        handles.push(thread.spawn(move || {
            let ready = cpu.map_or(Ok(()), pin_to).and_then(|()| runtime());
            let id = ready.as_ref().map(|_| gettid().as_raw_nonzero().get());
            let announcement = id.map(|id| (index, id)).map_err(io::Error::kind);
            // The receiver is gone only when another core failed first; nothing to tell then.
            let _ = announce.send(announcement);
            if let Table::Own(kept) = table {
                // All runtimes are there: from now on tables may differ.
                all_ready.wait();
                own_table(&kept);
            }
            // The wait for all announcements ends when the last sender is gone.
            drop(announce);
            ready?.block_on(async move {
                if spin {
                    tokio::task::spawn_local(spin_for_ever());
                }
                body(seat, luggage).await
            })
        })?);
    }
    drop(announce);
    let mut thread_ids = vec![0; count];
    for announcement in announced {
        let (index, id) = announcement.map_err(io::Error::from)?;
        thread_ids[index] = id;
    }
    if cores.table != Table::Shared {
        SEALED.store(true, Ordering::SeqCst);
    }
    Ok(Running { handles, thread_ids })
}

impl<T> Running<T> {
    /// The kernel's ids of the threads, in the order of the cores.
    #[must_use]
    pub fn thread_ids(&self) -> &[i32] {
        &self.thread_ids
    }

    /// Whether every core has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handles.iter().all(JoinHandle::is_finished)
    }

    /// Waits for all cores and returns what each brought.
    pub fn join(self) -> Vec<Result<T, CoreFailure>> {
        let wait = |(core, handle): (usize, JoinHandle<io::Result<T>>)| match handle.join() {
            Ok(result) => result.map_err(CoreFailure::Io),
            Err(_) => Err(CoreFailure::Panicked(core)),
        };
        self.handles.into_iter().enumerate().map(wait).collect()
    }
}

/// The processors that this process may run on, in order.
#[must_use]
pub fn available() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Reads a list of processors, `0,2-3` or `all`, of which this process may use each.
///
/// # Errors
/// What is wrong with the first part that is.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let available = available();
    if text == "all" {
        return Ok(available);
    }
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let wrong = |_| format!("'{part}' is not a processor (write 0,2-3 or all)");
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) =
            (first.parse().map_err(wrong)?, last.parse().map_err(wrong)?);
        if first > last {
            return Err(format!("'{part}' ends before it starts"));
        }
        if let Some(cpu) = (first..=last).find(|cpu| !available.contains(cpu)) {
            return Err(format!("this process may not use processor {cpu}"));
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Runs one future on a core's runtime in the calling thread, for tests and small tools.
///
/// # Panics
/// When the kernel gives no epoll descriptor, or after cores with a [`Table::Own`] were started.
#[allow(clippy::expect_used)]
pub fn block_on<F: Future>(future: F) -> F::Output {
    // Invariant: only a process without descriptors fails here; its callers have just started.
    runtime().expect("a runtime needs one epoll descriptor").block_on(future)
}

/// Keeps the runtime from sleeping: after each yield it looks at its sockets without waiting.
async fn spin_for_ever() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Gives the calling thread a table of descriptors of its own, with the standard streams, `kept`, and
/// what runtimes are woken through: an eventfd has to have one number in all tables, because whoever
/// wakes a runtime writes to that number in his own.
fn own_table(kept: &[RawFd]) {
    const LAST_STANDARD_STREAM: RawFd = 2;
    let Some(numbers) = open_numbers() else { return };
    if !unshare_table() {
        return;
    }
    for (number, what) in numbers {
        let wakes = what.contains("[eventfd]") || what.contains("[eventpoll]");
        if number > LAST_STANDARD_STREAM && !wakes && !kept.contains(&number) {
            close_number(number);
        }
    }
}

/// The open descriptors of this thread's table, and what each is, as proc(5) has it.
fn open_numbers() -> Option<Vec<(RawFd, String)>> {
    let entries = std::fs::read_dir("/proc/thread-self/fd").ok()?;
    let number = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        // One that is gone already was the folder itself.
        let what = std::fs::read_link(entry.path()).ok()?;
        Some((number, what.to_string_lossy().into_owned()))
    };
    Some(entries.filter_map(number).collect())
}

#[allow(unsafe_code)]
fn unshare_table() -> bool {
    // SAFETY: it copies this thread's table; every number stays what it is.
    unsafe { libc::unshare(libc::CLONE_FILES) == 0 }
}

#[allow(unsafe_code)]
fn close_number(number: RawFd) {
    // SAFETY: the table is this thread's alone, and it has no owner for this number: a core is given
    // no descriptor but those that are kept, as the callers of `start_with` promise with `Table::Own`.
    unsafe { libc::close(number) };
}

fn pin_to(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// How many tasks run between two looks at the sockets. High, because a look is a system call and
/// a core's tasks are short.
const TASKS_BETWEEN_POLLS: u32 = 256;

/// Whether there are cores with tables of their own, so that no runtime can be added any more.
static SEALED: AtomicBool = AtomicBool::new(false);

fn runtime() -> io::Result<LocalRuntime> {
    if SEALED.load(Ordering::SeqCst) {
        let text = "a runtime after cores with their own descriptors; this is a defect of weir";
        return Err(io::Error::other(text));
    }
    Builder::new_current_thread()
        .enable_io()
        .event_interval(TASKS_BETWEEN_POLLS)
        .build_local(LocalOptions::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_core_runs_in_its_seat_and_returns_its_value() {
        let pin = available();
        let cores = Cores { count: 3, name: "test", pin, spin: false, table: Table::Shared };
        let running = start(&cores, |seat| async move { Ok(seat.index * 10) }).unwrap();
        assert!(running.thread_ids().iter().all(|&id| id > 0));
        let values: Vec<_> = running.join().into_iter().map(Result::unwrap).collect();
        assert_eq!(values, [0, 10, 20]);
    }

    #[test]
    fn a_panic_is_reported_and_not_passed_on() {
        let cores =
            Cores { count: 1, name: "test", pin: vec![], spin: false, table: Table::Shared };
        let failing = |_| async { panic!("on purpose") };
        let running = start::<(), _, _>(&cores, failing).unwrap();
        assert!(matches!(running.join()[0], Err(CoreFailure::Panicked(0))));
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!(parse_cpus("all"), Ok(available()));
        let first = available()[0];
        assert_eq!(parse_cpus(&format!("{first},{first}-{first}")), Ok(vec![first, first]));
        for (text, why) in [
            ("x", "not a processor"),
            ("", "not a processor"),
            ("1-0", "ends before"),
            ("0-9999", "may not use processor"),
        ] {
            let error = parse_cpus(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_processor_that_does_not_exist_is_an_error() {
        let cores =
            Cores { count: 1, name: "test", pin: vec![1000], spin: false, table: Table::Shared };
        assert!(start(&cores, |_| async { Ok(()) }).is_err());
    }
}
