//! Caches of responses: the open ones of the process, and the use of one by a request. The crate `cache` decides what
//! may be stored and used; `exchange::cache_lookup` and `exchange::cache_response` follow its decisions.

#![expect(
    clippy::disallowed_types,
    reason = "for the list of open caches, which only the owner of the proxy locks"
)]

mod answer_head;
mod file_memory;
mod piece_rest;
mod status_field;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;

use cache::{BodyReader, Cache, DiskOpen, DiskPlan, Fill, FillWaiter, Key, Object, RequestPolicy, UnixTime};
use rt::clock::{MonotonicTime, unix_ns};

pub(crate) use answer_head::AnswerHead;
pub use file_memory::{file_memory_fd, open_file_memory};
pub(crate) use piece_rest::PieceRest;
pub(crate) use status_field::{Forwarded, StatusField};

use crate::plan::{CachePlan, Plan, PoolId, RouteCachePlan};
use crate::recoding::Recoding;
use crate::suspended_request::SuspendedRequest;

/// Maximum number of jobs that wait for a thread of a disk.
const DISK_QUEUE_MAX: usize = 1024;
/// Maximum number of requests in the background, of a core at a time, that validate a response or fetch the whole of one.
pub(crate) const REFRESHES_MAX: usize = 64;
/// Bytes by which a server may be ahead of the client of a response that is too large to be stored.
pub(crate) const AHEAD_BYTES_MAX: u64 = 256 * 1024;

/// Caches that the process has open. One is closed with the last plan that has it.
static OPEN: Mutex<Vec<Weak<Cache>>> = Mutex::new(Vec::new());

/// Opens the caches of a plan: those of the process, unless their settings differ.
///
/// # Errors
/// A directory cannot be used, or is that of a cache with other settings; or a thread could not be started.
pub fn open_caches(plan: &Plan) -> io::Result<()> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|cache| cache.strong_count() > 0);
    for plan in plan.caches.iter().filter(|plan| plan.store.get().is_none()) {
        let settings = settings_of(plan);
        let known: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
        let same = known.iter().find(|cache| *cache.plan() == settings);
        let directory = |plan: &cache::CachePlan| plan.disk.as_ref().map(|disk| disk.directory.clone());
        let is_in_use = |cache: &&Arc<Cache>| {
            directory(&settings).is_some() && directory(cache.plan()) == directory(&settings)
        };
        let store = match (same, known.iter().find(is_in_use)) {
            (Some(same), _) => Arc::clone(same),
            (None, Some(other)) => {
                let text = format!(
                    "cache '{}': its directory is in use by cache '{}' with other settings; choose another directory, \
                     or restart the proxy",
                    plan.name,
                    other.plan().name
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            (None, None) => {
                let store = Cache::with_file_memory(settings, file_memory::get())
                    .map_err(|error| named(&plan.name, &error))?;
                open.push(Arc::downgrade(&store));
                store
            }
        };
        plan.store.set(store);
    }
    Ok(())
}

/// Prints the first failure of each disk on stderr, and the next one only after a success; metrics count all of them.
pub fn report_disk_faults(plan: &Plan) {
    for cache in &*plan.caches {
        let fault = cache.store.get().and_then(|store| store.take_disk_fault());
        if let Some((fault, disk)) = fault.zip(cache.disk.as_ref()) {
            let directory = disk.directory.display();
            eprintln!(
                "weir: cache '{}': {directory}: {fault}; its responses stay in memory only",
                cache.name
            );
        }
    }
}

fn named(name: &str, error: &cache::CacheError) -> io::Error {
    io::Error::other(format!("cache '{name}': {error}"))
}

fn settings_of(plan: &CachePlan) -> cache::CachePlan {
    cache::CachePlan {
        name: plan.name.to_string(),
        memory_bytes_max: plan.memory_bytes_max,
        object_bytes_max: plan.object_bytes_max,
        waiters_max: plan.waiters_max,
        fills_max: plan.fills_max,
        disk: plan.disk.as_ref().map(|disk| DiskPlan {
            directory: disk.directory.clone(),
            bytes_max: disk.bytes_max,
            threads: disk.threads,
            files_max: disk.files_max,
            queue_max: DISK_QUEUE_MAX,
        }),
    }
}

pub fn unix_now() -> UnixTime {
    UnixTime::from_ns(unix_ns())
}

/// Use of a cache by a request that is forwarded.
#[derive(Debug)]
pub(crate) struct CacheUse {
    pub plan: Arc<RouteCachePlan>,
    pub(crate) route: usize,
    pub(crate) policy: RequestPolicy,
    pub(crate) role: CacheRole,
    /// Reason in `Cache-Status`.
    pub(crate) forwarded: Forwarded,
    pub(crate) requested_at: UnixTime,
}

/// Effect of a response on the cache.
#[derive(Debug)]
pub(crate) enum CacheRole {
    /// None.
    Forward,
    /// It is not stored because of a rule of the route.
    ForbiddenByRule,
    /// A successful one removes the responses of this key, and of the same origin.
    Invalidate(Box<Invalidation>),
    /// It may be stored, or validates a stored one.
    Fill(Box<CacheFill>),
}

/// Keys that a response invalidates.
#[derive(Debug)]
pub(crate) struct Invalidation {
    pub(crate) key: Key,
    /// Text of the key before the target, to find the keys of `Location` and `Content-Location`; `None`: the route has
    /// a key of its own.
    pub(crate) default_key: Option<Vec<u8>>,
    pub(crate) scheme: &'static str,
    pub(crate) authority: Box<str>,
}

/// A response that may be stored.
#[derive(Debug)]
pub(crate) struct CacheFill {
    pub(crate) fill: Fill,
    pub(crate) request: SuspendedRequest,
    /// Stored response that this one validates, or that is used if there is none.
    pub(crate) stale: Option<Arc<Object>>,
    /// True if the request has the validators of that response.
    pub(crate) validates: bool,
    /// True if the stale response answers if the server fails.
    pub(crate) may_answer_errors: bool,
    /// True if no client waits for the response.
    pub(crate) is_background: bool,
}

/// Stage of a request whose response is stored.
#[expect(clippy::large_enum_variant, reason = "it is in a box, and one that waits becomes one that sends")]
#[derive(Debug)]
pub(crate) enum CacheStage {
    Waiting(CacheWait),
    Sending(CachedBody),
}

/// A request that waits for a stored response.
#[derive(Debug)]
pub(crate) struct CacheWait {
    pub(crate) request: SuspendedRequest,
    pub pool: PoolId,
    pub(crate) source: WaitSource,
    /// Time until which it may wait for other requests.
    pub(crate) due: MonotonicTime,
    /// True if the request that it waits for was made for it: the whole of a response of which it wants a part.
    pub(crate) is_own: bool,
}

#[derive(Debug)]
pub(crate) enum WaitSource {
    /// The head of a stored response, which is being read.
    Disk(DiskOpen),
    /// The response to an equal request.
    Fill(FillWaiter),
}

/// The content of a stored response that is being sent.
pub(crate) struct CachedBody {
    pub(crate) reader: BodyReader,
    pub(crate) rest: PieceRest,
    pub(crate) codec: Option<Recoding>,
    /// False while the head waits for the first piece, to be sent with it.
    pub(crate) has_begun: bool,
    /// The request, if its file may turn out to be damaged: it goes to the server then, unless something was sent.
    pub(crate) request: Option<SuspendedRequest>,
    /// Progress of the client whose request fills the cache.
    pub(crate) progress: Option<Rc<ClientProgress>>,
}

impl std::fmt::Debug for CachedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedBody").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl CachedBody {
    pub(crate) fn note_sent(&self, bytes: u64) {
        if let Some(progress) = &self.progress {
            progress.sent_bytes.set(progress.sent_bytes.get() + bytes);
            progress.waker.take().into_iter().for_each(Waker::wake);
        }
    }
}

/// Bytes that a client has got of a response that is being stored. A response that becomes too large to be stored is
/// received as fast as this client takes it.
#[derive(Debug, Default)]
pub(crate) struct ClientProgress {
    pub(crate) sent_bytes: Cell<u64>,
    pub(crate) waker: RefCell<Option<Waker>>,
}

#[cfg(test)]
mod tests;
