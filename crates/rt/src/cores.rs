//! One thread per core, each with its own tokio `current_thread` runtime, pinned on request.
//!
//! A core's state never leaves its thread, so it needs no lock and no `Send`. The return value of a
//! core's future is its result.

use std::future::Future;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::Context;
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// Number, name and CPUs of the cores.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// Number of threads; at least 1.
    pub count: usize,
    /// Name of the threads: `NAME-0`, `NAME-1`… (the kernel keeps at most 15 bytes).
    pub name: &'static str,
    /// CPUs to pin to, thread *i* to entry *i* modulo their number; empty: not pinned.
    pub pin: Vec<usize>,
    /// True if an idle core polls again at once instead of sleeping. Then wake-ups cost nothing,
    /// and the core is always fully used.
    pub spin: bool,
    pub fd_table: FdTable,
}

/// Descriptor table of a core.
///
/// In a shared table, the kernel counts the users of a file during each system call, in memory that
/// is not in the cache if there are many connections. Measured with the proxy at 1,000 connections:
/// 23.1 microseconds per request in a shared table, 19.5 in a separate one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FdTable {
    Shared,
    /// Separate table. It keeps only these descriptors, the standard streams and the runtimes' own.
    /// A core must not be given any other descriptor ([`crate::fd_channel`] delivers others). No runtime
    /// can be created after such cores were started: they could not wake it. Without `/proc` the
    /// table stays shared.
    Unshared(Vec<RawFd>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreId {
    /// Index of the core, from 0.
    pub index: usize,
    pub count: usize,
}

impl CoreId {
    /// Returns this core's part of a maximum for all cores; at least one. So no core has to ask another.
    pub fn part_of(self, max: usize) -> usize {
        (max / self.count + usize::from(self.index < max % self.count)).max(1)
    }
}

#[derive(Debug)]
pub struct RunningCores<T> {
    handles: Vec<JoinHandle<io::Result<T>>>,
    thread_ids: Vec<i32>,
}

/// Reason why a core returned no result.
#[derive(Debug)]
pub enum CoreError {
    /// Its runtime or its sockets could not be set up, or its body failed.
    Io(io::Error),
    /// The core panicked: a bug in weir.
    Panicked(usize),
}

impl std::fmt::Display for CoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Panicked(core) => write!(f, "core {core} panicked; this is a bug in weir"),
        }
    }
}

impl std::error::Error for CoreError {}

/// Starts `cores.count` threads; each runs the future that `body` creates for its core.
///
/// # Errors
/// Those of [`start_with_init`].
pub fn start<T, B, F>(cores: &CoreConfig, body: B) -> io::Result<RunningCores<T>>
where
    T: Send + 'static,
    B: Fn(CoreId) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<T>>,
{
    start_with_init(cores, vec![(); cores.count], move |core_id, ()| body(core_id))
}

/// Starts a thread for each element of `inits`, which becomes its own: initial values of a core,
/// such as its end of a channel.
///
/// # Errors
/// A thread could not be started, pinned, or given a runtime. None remains: the others end when
/// their channels close.
pub fn start_with_init<L, T, B, F>(cores: &CoreConfig, inits: Vec<L>, body: B) -> io::Result<RunningCores<T>>
where
    L: Send + 'static,
    T: Send + 'static,
    B: Fn(CoreId, L) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<T>>,
{
    let count = inits.len();
    let spin = cores.spin;
    let mut handles = Vec::with_capacity(count);
    let (ready_sender, ready_receiver) = mpsc::channel();
    let all_ready = Arc::new(Barrier::new(count));
    for (index, init) in inits.into_iter().enumerate() {
        let core_id = CoreId { index, count };
        let body = body.clone();
        let ready_sender = ready_sender.clone();
        let cpu = (!cores.pin.is_empty()).then(|| cores.pin[index % cores.pin.len()]);
        let fd_table = cores.fd_table.clone();
        let all_ready = Arc::clone(&all_ready);
        let thread = std::thread::Builder::new().name(format!("{}-{index}", cores.name));
        handles.push(thread.spawn(move || {
            let new_runtime = cpu.map_or(Ok(()), pin_to_cpu).and_then(|()| build_runtime());
            let id = new_runtime.as_ref().map(|_| gettid().as_raw_nonzero().get());
            let ready_message = id.map(|id| (index, id)).map_err(io::Error::kind);
            // The receiver is gone only if another core failed first; then nobody needs the
            // message.
            let _ = ready_sender.send(ready_message);
            if let FdTable::Unshared(keep_fds) = fd_table {
                // All runtimes exist: from now on tables may differ.
                all_ready.wait();
                isolate_fd_table(&keep_fds);
            }
            // The wait for all announcements ends when the last sender is dropped.
            drop(ready_sender);
            new_runtime?.block_on(async move {
                if spin {
                    tokio::task::spawn_local(busy_poll());
                }
                body(core_id, init).await
            })
        })?);
    }
    drop(ready_sender);
    let mut thread_ids = vec![0; count];
    for ready_message in ready_receiver {
        let (index, id) = ready_message.map_err(io::Error::from)?;
        thread_ids[index] = id;
    }
    if cores.fd_table != FdTable::Shared {
        RUNTIMES_SEALED.store(true, Ordering::SeqCst);
    }
    Ok(RunningCores { handles, thread_ids })
}

impl<T> RunningCores<T> {
    /// Returns the kernel's thread IDs, in the order of the cores.
    pub fn thread_ids(&self) -> &[i32] {
        &self.thread_ids
    }

    pub fn is_finished(&self) -> bool {
        self.handles.iter().all(JoinHandle::is_finished)
    }

    pub fn join(self) -> Vec<Result<T, CoreError>> {
        let wait = |(core, handle): (usize, JoinHandle<io::Result<T>>)| match handle.join() {
            Ok(result) => result.map_err(CoreError::Io),
            Err(_) => Err(CoreError::Panicked(core)),
        };
        self.handles.into_iter().enumerate().map(wait).collect()
    }
}

/// Returns the CPUs that this process may run on, in order.
pub fn available_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Part of a list of CPUs that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// The part is neither a number nor a range.
    #[error("'{0}' is not a CPU (write 0,2-3 or all)")]
    NotACpu(String),
    /// The range is in descending order.
    #[error("'{0}' ends before it starts")]
    Reversed(String),
    /// This process may not run on the CPU.
    #[error("CPU {cpu} is not available to this process (available: {available})")]
    NotAvailable {
        cpu: usize,
        /// List of the available CPUs.
        available: String,
    },
}

/// Parses a list of CPUs, `0,2-3` or `all`, that this process may all use.
///
/// # Errors
/// The first invalid part, with the reason.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, CpuListError> {
    let available = available_cpus();
    if text == "all" {
        return Ok(available);
    }
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let invalid = |_| CpuListError::NotACpu(range.to_owned());
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().map_err(invalid)?, last.parse().map_err(invalid)?);
        if first > last {
            return Err(CpuListError::Reversed(range.to_owned()));
        }
        if let Some(cpu) = (first..=last).find(|cpu| !available.contains(cpu)) {
            return Err(CpuListError::NotAvailable { cpu, available: format_cpus(&available) });
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}

/// Formats CPUs in ascending order as a list of ranges: `0-1,3`.
fn format_cpus(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let format_range = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(format_range).collect::<Vec<_>>().join(",")
}

/// Runs one future on a core's runtime in the calling thread, for tests and small tools.
///
/// # Panics
/// If the kernel provides no epoll descriptor, or after cores with a [`FdTable::Unshared`] were started.
#[allow(clippy::expect_used)]
pub fn block_on<F: Future>(future: F) -> F::Output {
    // Invariant: only a process without free descriptors fails here; its callers have just started.
    build_runtime().expect("a runtime needs one epoll descriptor").block_on(future)
}

/// Lowers the priority of the calling thread, so that the cores come first on a busy machine.
pub fn lower_thread_priority() {
    const NICE: i32 = 10;
    // On Linux the priority is that of the thread. Without it, the thread only competes.
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Polls the task of `cx` again after all other ready tasks of the core, and after the sockets were
/// checked for events: for a poll that has worked enough in one turn. A plain wake would put it before
/// the next check.
pub fn yield_turn(cx: &mut Context<'_>) {
    let yielding = std::pin::pin!(tokio::task::yield_now());
    // Pending at the first poll, which schedules the wake.
    let _ = yielding.poll(cx);
}

/// Keeps the runtime from sleeping: after each yield it polls its sockets without waiting.
async fn busy_poll() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Gives the calling thread its own descriptor table, with the standard streams, `kept`, and the
/// runtimes' wake-up descriptors. An eventfd must have the same number in all tables, because a
/// thread that wakes a runtime writes to that number in its own table.
fn isolate_fd_table(keep_fds: &[RawFd]) {
    const LAST_STANDARD_STREAM: RawFd = 2;
    let Some(fds) = open_fds() else { return };
    if !unshare_fd_table() {
        return;
    }
    for (fd, target) in fds {
        let is_wakeup_fd = target.contains("[eventfd]") || target.contains("[eventpoll]");
        if fd > LAST_STANDARD_STREAM && !is_wakeup_fd && !keep_fds.contains(&fd) {
            close_fd(fd);
        }
    }
}

/// Returns the open descriptors of this thread's table, with their targets in proc(5).
fn open_fds() -> Option<Vec<(RawFd, String)>> {
    let entries = std::fs::read_dir("/proc/thread-self/fd").ok()?;
    let parse_entry = |entry: io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let fd = entry.file_name().to_str()?.parse().ok()?;
        // A descriptor that no longer exists was the directory itself.
        let target = std::fs::read_link(entry.path()).ok()?;
        Some((fd, target.to_string_lossy().into_owned()))
    };
    Some(entries.filter_map(parse_entry).collect())
}

#[allow(unsafe_code)]
fn unshare_fd_table() -> bool {
    // SAFETY: it copies this thread's table; every number keeps its meaning.
    unsafe { libc::unshare(libc::CLONE_FILES) == 0 }
}

#[allow(unsafe_code)]
fn close_fd(fd: RawFd) {
    // SAFETY: the table belongs to this thread alone, and it has no owner for this number: a core
    // is given no descriptor but the kept ones, as the callers of `start_with_init` promise with
    // `FdTable::Unshared`.
    unsafe { libc::close(fd) };
}

fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Number of tasks between two polls of the sockets. High, because a poll is a system call and a
/// core's tasks are short.
const TASKS_BETWEEN_POLLS: u32 = 256;

/// True if there are cores with their own tables, so that no runtime can be added any more.
static RUNTIMES_SEALED: AtomicBool = AtomicBool::new(false);

fn build_runtime() -> io::Result<LocalRuntime> {
    if RUNTIMES_SEALED.load(Ordering::SeqCst) {
        let text = "runtime built after cores with their own descriptor tables; this is a bug in weir";
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
    fn every_core_runs_with_its_id_and_returns_its_value() {
        let pin = available_cpus();
        let cores = CoreConfig { count: 3, name: "test", pin, spin: false, fd_table: FdTable::Shared };
        let running = start(&cores, |core_id| async move { Ok(core_id.index * 10) }).unwrap();
        assert!(running.thread_ids().iter().all(|&id| id > 0));
        let values: Vec<_> = running.join().into_iter().map(Result::unwrap).collect();
        assert_eq!(values, [0, 10, 20]);
    }

    #[test]
    fn a_panic_is_reported_and_not_passed_on() {
        let cores =
            CoreConfig { count: 1, name: "test", pin: vec![], spin: false, fd_table: FdTable::Shared };
        let failing = |_| async { panic!("on purpose") };
        let running = start::<(), _, _>(&cores, failing).unwrap();
        assert!(matches!(running.join()[0], Err(CoreError::Panicked(0))));
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpus("all"), Ok(available_cpus()));
        let first = available_cpus()[0];
        assert_eq!(parse_cpus(&format!("{first},{first}-{first}")), Ok(vec![first, first]));
        for (text, expected) in
            [("x", "not a CPU"), ("", "not a CPU"), ("1-0", "ends before"), ("0-9999", "not available")]
        {
            let error = parse_cpus(text).unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
        assert_eq!(format_cpus(&[0, 1, 3, 5, 6, 7]), "0-1,3,5-7");
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error() {
        let cores =
            CoreConfig { count: 1, name: "test", pin: vec![1000], spin: false, fd_table: FdTable::Shared };
        assert!(start(&cores, |_| async { Ok(()) }).is_err());
    }
}
