//! Threads that check passwords: a check takes milliseconds on purpose, so no core does one. The queue in front of them
//! is bounded. They live as long as the process, beside the cores, at a lower priority.

#![expect(clippy::disallowed_types, reason = "only the threads take these locks, never a core")]

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rt::clock::{MonotonicTime, SECOND_NS};
use rt::tokio::sync::oneshot;

use super::failures::{FailureLimit, Failures, Offender};
use super::{AuthResult, BasicCredentials, PasswordHash};

/// Maximum time that a check waits in the queue.
const WAIT_MAX_NS: u64 = 10 * SECOND_NS;

/// `password-threads` and `password-queue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordThreads {
    pub threads: usize,
    pub queue_max: usize,
}

/// A password to check.
pub struct PasswordCheck {
    pub credentials: BasicCredentials,
    /// Hash that the password is compared with; `None`: there are no users.
    pub hash: Option<PasswordHash>,
    /// False if the user is unknown, and the hash a decoy.
    pub is_known: bool,
    pub source: Option<IpAddr>,
    pub source_limit: Option<FailureLimit>,
    pub user_limit: Option<FailureLimit>,
}

/// Result of a check.
pub struct CheckedPassword {
    pub result: AuthResult,
    /// Time until the next check for this source or user.
    pub retry_after_s: u64,
}

struct Job {
    check: PasswordCheck,
    queued_at: MonotonicTime,
    done: oneshot::Sender<CheckedPassword>,
}

struct Pool {
    queue: SyncSender<Job>,
    queued: Arc<AtomicUsize>,
}

static POOL: OnceLock<Pool> = OnceLock::new();

/// Starts the threads, unless they run: a plan with passwords needs them. The first plan decides their number.
///
/// # Errors
/// No thread could be started.
pub fn start(plan: PasswordThreads) -> io::Result<()> {
    if POOL.get().is_some() {
        return Ok(());
    }
    let (queue, jobs) = sync_channel(plan.queue_max);
    let (jobs, failures) = (Arc::new(Mutex::new(jobs)), Arc::new(Mutex::new(Failures::default())));
    let queued = Arc::new(AtomicUsize::new(0));
    for _ in 0..plan.threads {
        let (jobs, failures, queued) = (Arc::clone(&jobs), Arc::clone(&failures), Arc::clone(&queued));
        std::thread::Builder::new().name("password".to_owned()).spawn(move || {
            rt::cores::lower_thread_priority();
            run(&jobs, &failures, &queued);
        })?;
    }
    // The owner of the proxy is the only caller.
    let _ = POOL.set(Pool { queue, queued });
    Ok(())
}

pub fn are_running() -> bool {
    POOL.get().is_some()
}

/// Adds a check to the queue. `None`: it is full, or there are no threads.
pub fn submit(check: PasswordCheck, now: MonotonicTime) -> Option<oneshot::Receiver<CheckedPassword>> {
    let pool = POOL.get()?;
    let (done, result) = oneshot::channel();
    pool.queued.fetch_add(1, Ordering::Relaxed);
    match pool.queue.try_send(Job { check, queued_at: now, done }) {
        Ok(()) => Some(result),
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
            pool.queued.fetch_sub(1, Ordering::Relaxed);
            None
        }
    }
}

/// Returns the number of checks that wait or run.
pub fn pending() -> usize {
    POOL.get().map_or(0, |pool| pool.queued.load(Ordering::Relaxed))
}

fn run(jobs: &Mutex<Receiver<Job>>, failures: &Mutex<Failures>, queued: &AtomicUsize) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        // The queue lives as long as the process.
        let Ok(Job { check, queued_at, done }) = job else { return };
        // A client that has left needs no result.
        if !done.is_closed() {
            let is_late = MonotonicTime::now().since(queued_at) > WAIT_MAX_NS;
            let (result, wait_ns) = match is_late {
                true => (AuthResult::Busy, SECOND_NS),
                false => decide(&check, failures),
            };
            let checked = CheckedPassword { result, retry_after_s: wait_ns.div_ceil(SECOND_NS) };
            // Fails if the client has left meanwhile.
            let _ = done.send(checked);
        }
        queued.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Checks a password, unless its source or its user has had too many failures. Returns the time until the next check.
fn decide(check: &PasswordCheck, failures: &Mutex<Failures>) -> (AuthResult, u64) {
    let source = check.source.map(Offender::source).zip(check.source_limit);
    let user = check.user_limit.map(|limit| (Offender::User(check.credentials.name()), limit));
    let limits = || source.iter().chain(&user);
    let lock = || failures.lock().unwrap_or_else(PoisonError::into_inner);
    let now = MonotonicTime::now();
    {
        // Counted before the check: those that run at the same time count, too.
        let mut failures = lock();
        let wait_ns = limits().map(|(whose, limit)| failures.wait_ns(*whose, *limit, now)).max().unwrap_or(0);
        if wait_ns > 0 {
            return (AuthResult::Limited, wait_ns);
        }
        limits().for_each(|(whose, limit)| failures.add(*whose, *limit, now));
    }
    let is_right = check.hash.as_ref().is_some_and(|hash| hash.verify(check.credentials.password()));
    if !(is_right && check.is_known) {
        return (AuthResult::WrongPassword, 0);
    }
    let mut failures = lock();
    limits().for_each(|(whose, limit)| failures.take_back(*whose, *limit));
    (AuthResult::Allowed, 0)
}
