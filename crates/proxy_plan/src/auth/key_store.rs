//! Sources of the keys of tokens: a file that is watched, or a URL that is read again at an interval. The requests to
//! URLs run in threads of their own. Keys stay in use while a URL does not respond.

#![expect(clippy::disallowed_types, reason = "for reads of the keys; lookups of the cores take no lock")]

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use record::problem::printable;
use rt::clock::{MonotonicTime, SECOND_NS, unix_ns};

use super::jwks::{KEYS_BYTES_MAX, KeySet};
use super::watched_file::{Watched as _, WatchedFile};
use crate::http_client::http_get;

/// Interval at which the thread checks which URLs are due.
const TICK: Duration = Duration::from_millis(250);
/// Maximum time of a request.
const REQUEST_TIMEOUT_NS: u64 = 10 * SECOND_NS;
/// Times until a failed request is made again: the first, and the longest.
const RETRY_NS: [u64; 2] = [SECOND_NS, 60 * SECOND_NS];
const ERROR_BYTES_MAX: usize = 512;

/// Source of the keys of a route.
#[derive(Clone, Debug, PartialEq)]
pub enum KeySource {
    File(FileKeys),
    Url(UrlKeys),
}

/// Keys of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileKeys(pub Arc<WatchedFile<KeySet>>);

/// Keys of a URL.
#[derive(Clone, Debug, PartialEq)]
pub struct UrlKeys(pub Arc<RemoteKeys>);

/// URL of a set of keys, with the times of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSpec {
    pub url: Box<str>,
    /// PEM file of the authorities of its server; `None`: those that this host trusts.
    pub ca: Option<PathBuf>,
    /// Time between two requests.
    pub interval_ns: u64,
    /// Minimum time between two requests because of an unknown key.
    pub unknown_key_interval_ns: u64,
}

/// Keys of a URL, which the process reads once for all plans.
pub struct RemoteKeys {
    pub spec: RemoteSpec,
    keys: ArcSwapOption<KeySet>,
    /// True if a token has named an unknown key since the last request.
    is_wanted: AtomicBool,
    /// True while a request runs.
    is_busy: AtomicBool,
    /// Time of the next request, and of the begin of the last one.
    due_at_ns: AtomicU64,
    began_at_ns: AtomicU64,
    pub statistics: RemoteStatistics,
}

/// Counters of the requests of a URL.
#[derive(Default)]
pub struct RemoteStatistics {
    pub loads: AtomicU64,
    pub failures: AtomicU64,
    /// Time of the last request that succeeded in seconds since 1970; 0: none.
    pub loaded_unix_s: AtomicU64,
    failures_in_a_row: AtomicU64,
    last_error: Mutex<String>,
}

/// URLs of all plans.
static OPEN: Mutex<Vec<Weak<RemoteKeys>>> = Mutex::new(Vec::new());

impl KeySource {
    /// Returns the keys; `None`: none have been read yet.
    pub fn keys(&self) -> Option<Arc<KeySet>> {
        match self {
            Self::File(FileKeys(file)) => Some(file.content()),
            Self::Url(UrlKeys(remote)) => remote.keys.load_full(),
        }
    }

    /// Notes that a token has named a key that is not there.
    pub fn note_unknown_key(&self) {
        if let Self::Url(UrlKeys(remote)) = self {
            remote.is_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the name for logs and metrics.
    pub fn name(&self) -> String {
        match self {
            Self::File(FileKeys(file)) => file.path().display().to_string(),
            Self::Url(UrlKeys(remote)) => remote.spec.url.to_string(),
        }
    }
}

impl RemoteKeys {
    /// Returns the keys of a URL, those of the process if another plan has the same.
    pub fn open(spec: RemoteSpec) -> Arc<Self> {
        let mut open = lock(&OPEN);
        open.retain(|remote| remote.strong_count() > 0);
        if let Some(known) = open.iter().filter_map(Weak::upgrade).find(|known| known.spec == spec) {
            return known;
        }
        let remote = Arc::new(Self {
            spec,
            keys: ArcSwapOption::empty(),
            is_wanted: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            due_at_ns: AtomicU64::new(0),
            began_at_ns: AtomicU64::new(0),
            statistics: RemoteStatistics::default(),
        });
        open.push(Arc::downgrade(&remote));
        remote
    }

    pub fn last_error(&self) -> String {
        lock(&self.statistics.last_error).clone()
    }

    pub fn key_count(&self) -> usize {
        self.keys.load().as_ref().map_or(0, |keys| keys.keys.len())
    }

    /// Returns whether a request is due.
    fn is_due(&self, now_ns: u64) -> bool {
        let may_follow = now_ns
            >= self.began_at_ns.load(Ordering::Relaxed).saturating_add(self.spec.unknown_key_interval_ns);
        let is_wanted = self.is_wanted.load(Ordering::Relaxed) && may_follow;
        (is_wanted || now_ns >= self.due_at_ns.load(Ordering::Relaxed))
            && !self.is_busy.load(Ordering::Acquire)
    }

    fn fetch(&self) {
        let result =
            http_get(&self.spec.url, self.spec.ca.as_deref(), REQUEST_TIMEOUT_NS).and_then(|content| {
                match content.len() {
                    0..=KEYS_BYTES_MAX => KeySet::parse_remote(&content).map_err(io::Error::other),
                    _ => Err(io::Error::other(format!("the keys are longer than {KEYS_BYTES_MAX} bytes"))),
                }
            });
        let statistics = &self.statistics;
        let wait_ns = match result {
            Ok(keys) => {
                self.keys.store(Some(Arc::new(keys)));
                statistics.loads.fetch_add(1, Ordering::Relaxed);
                statistics.loaded_unix_s.store(unix_ns() / SECOND_NS, Ordering::Relaxed);
                if statistics.failures_in_a_row.swap(0, Ordering::Relaxed) > 0 {
                    eprintln!("weir: notice: keys of {}: read again", self.spec.url);
                }
                lock(&statistics.last_error).clear();
                self.spec.interval_ns
            }
            Err(error) => {
                // The server chooses a part of the text.
                let error = printable(&error.to_string(), ERROR_BYTES_MAX);
                statistics.failures.fetch_add(1, Ordering::Relaxed);
                let failures = statistics.failures_in_a_row.fetch_add(1, Ordering::Relaxed);
                if failures == 0 {
                    let rest =
                        if self.key_count() > 0 { "the previous keys stay" } else { "there are no keys yet" };
                    eprintln!("weir: keys of {}: {error}; {rest}", self.spec.url);
                }
                *lock(&statistics.last_error) = error;
                (RETRY_NS[0] << failures.min(6)).min(RETRY_NS[1]).min(self.spec.interval_ns)
            }
        };
        self.due_at_ns.store((MonotonicTime::now() + wait_ns).as_ns(), Ordering::Relaxed);
        self.is_busy.store(false, Ordering::Release);
    }
}

/// Starts the thread that reads the keys of URLs, unless it runs. It lives as long as the process.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let thread = std::thread::Builder::new().name("jwks".to_owned()).spawn(|| {
            loop {
                start_due_requests();
                std::thread::sleep(TICK);
            }
        });
        if let Err(error) = thread {
            eprintln!("weir: cannot read the keys of URLs: no thread: {error}");
        }
    });
}

fn start_due_requests() {
    let now_ns = MonotonicTime::now().as_ns();
    let remotes: Vec<_> = lock(&OPEN).iter().filter_map(Weak::upgrade).collect();
    for remote in remotes.into_iter().filter(|remote| remote.is_due(now_ns)) {
        remote.is_busy.store(true, Ordering::Release);
        remote.is_wanted.store(false, Ordering::Relaxed);
        remote.began_at_ns.store(now_ns, Ordering::Relaxed);
        let busy = Arc::clone(&remote);
        // A server that does not respond holds up only its own keys.
        let thread = std::thread::Builder::new().name("jwks-request".to_owned());
        if thread.spawn(move || remote.fetch()).is_err() {
            // Without a thread, the next check tries again.
            busy.is_busy.store(false, Ordering::Release);
        }
    }
}

/// Locks a value that is valid after every statement, so also after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for RemoteKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteKeys").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl PartialEq for RemoteKeys {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}
