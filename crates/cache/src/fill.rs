//! A response that arrives and may be stored, and the requests that wait for it.

#![expect(clippy::disallowed_types, reason = "cores share a fill; a lock is held to change its state")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rt::file_memory::FileMemory;
use wire::Header;

use crate::body::{Body, CHUNK_BYTES, FILE_BYTES_MIN};
use crate::chunk::Chunk;
use crate::file_body::BodyError;
use crate::head::StoredHead;
use crate::key::Key;
use crate::memory::MemoryBudget;
use crate::object::Object;
use crate::policy::NotStored;
use crate::storable::Storable;
use crate::variant::{Selection, VARIANT_BYTES_MAX, secondary_key};

/// Bytes of a body that stay for the readers of a response that became too large to be stored.
const WINDOW_BYTES: u64 = 1024 * 1024;

/// Length up to which the pieces of a stored body are joined.
const JOINED_BYTES_MAX: usize = 256 * 1024;

/// The cache, as a fill sees it.
pub(crate) trait FillOwner: Send + Sync + std::fmt::Debug {
    fn memory(&self) -> &Arc<MemoryBudget>;

    /// Returns the memory from which the kernel can send.
    fn file_memory(&self) -> Option<&Arc<FileMemory>>;

    /// Returns the maximum size of a body.
    fn object_bytes_max(&self) -> u64;

    /// Evicts until the memory is below its bound. False: there is nothing left to evict.
    fn make_room(&self) -> bool;

    /// Stores a complete response, and ends its fill.
    fn store(&self, object: &Arc<Object>, fill: &Arc<FillShared>);

    /// Ends a fill without a stored object; `reason` is that of a response that was not stored.
    fn remove_fill(&self, fill: &Arc<FillShared>, reason: Option<NotStored>);

    fn add_waiters(&self, count: u64);

    fn remove_waiters(&self, count: u64);
}

/// Result of a fill for a request that waited.
#[derive(Clone, Debug)]
pub enum FillResult {
    /// The response; its body may still arrive.
    Object(Arc<Object>),
    /// The response is not stored, or was not received: the request goes to the server on its own.
    NotStored(NotStored),
    /// The response is one for other requests (`Vary`): the request goes to the server on its own.
    OtherVariant,
}

/// State of a fill, of its leader and of the waiting requests.
#[derive(Debug)]
pub(crate) struct FillShared {
    pub(crate) key: Key,
    /// Secondary key of the leader by the known `Vary`, if the key has been stored before.
    expected: Option<Selection>,
    state: Mutex<FillState>,
    /// The key was purged: a response is outdated before it is stored.
    is_purged: AtomicBool,
}

#[derive(Debug, Default)]
struct FillState {
    result: Option<Result<Arc<Object>, NotStored>>,
    /// The response is too large, so that later requests do not wait for it.
    is_closed: bool,
    waiters: usize,
    next_number: u64,
    wakers: HashMap<u64, Waker>,
}

impl FillShared {
    pub(crate) fn new(key: Key, expected: Option<Selection>) -> Self {
        Self { key, expected, state: Mutex::default(), is_purged: AtomicBool::new(false) }
    }

    /// Returns whether a request should wait for this fill, as far as that is known.
    pub(crate) fn fits(&self, headers: &[Header<'_>]) -> bool {
        if self.is_purged() {
            return false;
        }
        let state = lock(&self.state);
        match &state.result {
            _ if state.is_closed => false,
            Some(Ok(object)) => secondary_key(&object.storable.vary, headers) == object.variant,
            Some(Err(_)) => false,
            None => match &self.expected {
                Some(expected) => expected.covers(headers),
                None => true,
            },
        }
    }

    /// Returns whether a purge of some responses covers this one, which it does while its head is unknown.
    pub(crate) fn head_or_unknown(&self, fits: impl Fn(&Object) -> bool) -> bool {
        match &lock(&self.state).result {
            Some(Ok(object)) => fits(object),
            Some(Err(_)) => false,
            None => true,
        }
    }

    /// Keeps its response from being stored, and later requests from waiting for it.
    pub(crate) fn set_purged(&self) {
        self.is_purged.store(true, Ordering::Release);
    }

    pub(crate) fn is_purged(&self) -> bool {
        self.is_purged.load(Ordering::Acquire)
    }

    fn set_result(&self, result: Result<Arc<Object>, NotStored>) {
        let wakers = {
            let mut state = lock(&self.state);
            state.result = Some(result);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }
}

/// The right to store the response to one request. Dropping it without [`Fill::finish`] abandons it.
#[derive(Debug)]
pub struct Fill {
    cache: Arc<dyn FillOwner>,
    shared: Arc<FillShared>,
    object: Option<Arc<Object>>,
    /// The response cannot be stored any more, but others read it.
    refused: Option<NotStored>,
    is_done: bool,
}

impl Fill {
    pub(crate) fn new(cache: Arc<dyn FillOwner>, shared: Arc<FillShared>) -> Self {
        Self { cache, shared, object: None, refused: None, is_done: false }
    }

    pub fn key(&self) -> &Key {
        &self.shared.key
    }

    /// Takes the head of a response that may be stored. The waiting requests get the object that it returns.
    /// `request_headers` are those with which later requests are compared; `body_bytes` is the length, if it
    /// is known.
    ///
    /// # Errors
    /// It is too large; the waiting requests go on by themselves.
    pub fn store_head(
        &mut self,
        head: StoredHead,
        storable: Storable,
        request_headers: &[Header<'_>],
        body_bytes: Option<u64>,
    ) -> Result<Arc<Object>, NotStored> {
        let variant = secondary_key(&storable.vary, request_headers);
        let result = match variant.len() {
            ..=VARIANT_BYTES_MAX => {
                match body_bytes.is_some_and(|bytes| bytes > self.cache.object_bytes_max()) {
                    true => Err(NotStored::TooLarge),
                    false => Ok(()),
                }
            }
            _ => Err(NotStored::VaryTooLong),
        };
        if let Err(reason) = result {
            self.end(Err(reason));
            return Err(reason);
        }
        let budget = self.cache.memory();
        let body = Arc::new(Body::growing(body_bytes, budget, self.cache.file_memory()));
        let object = Arc::new(Object::new(budget, self.shared.key.clone(), variant, head, storable, body));
        self.object = Some(Arc::clone(&object));
        self.shared.set_result(Ok(Arc::clone(&object)));
        Ok(object)
    }

    /// Appends bytes of the body. Its readers learn of them by [`Fill::wake_readers`].
    ///
    /// # Errors
    /// It will not be stored any more. The requests that read it get the rest nevertheless: the caller goes on.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), NotStored> {
        let Some(object) = &self.object else { return Err(NotStored::Incomplete) };
        let length = object.body.push(bytes);
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let reason = match length > self.cache.object_bytes_max() {
            true => Some(NotStored::TooLarge),
            // Nothing is left to be evicted: the memory is full of bodies that arrive, or are being sent.
            false => (!self.cache.make_room()).then_some(NotStored::Busy),
        };
        let Some(reason) = reason else { return Ok(()) };
        object.body.keep_only(WINDOW_BYTES);
        self.refused = Some(reason);
        lock(&self.shared.state).is_closed = true;
        Err(reason)
    }

    /// Wakes the requests that wait for more of the body: a few at once, and many only if `bytes_min` bytes have arrived
    /// since the last time. Returns false if they do not know of all bytes: the caller calls this again within a short time.
    pub fn wake_readers(&self, bytes_min: u64) -> bool {
        self.object.as_ref().is_none_or(|object| object.body.wake_readers(bytes_min))
    }

    /// Stores the complete response. Returns the stored object.
    ///
    /// # Errors
    /// The reason for which it was not stored.
    pub fn finish(mut self) -> Result<Arc<Object>, NotStored> {
        self.is_done = true;
        let object = self.object.take().ok_or(NotStored::Incomplete)?;
        let is_short =
            matches!((object.body.declared(), object.body.received()), (Some(all), now) if all != now);
        if is_short {
            object.body.end(Err(BodyError::Incomplete));
            self.cache.remove_fill(&self.shared, Some(NotStored::Incomplete));
            return Err(NotStored::Incomplete);
        }
        let chunks = object.body.end(Ok(()));
        let refused = match self.shared.is_purged() {
            true => Some(NotStored::Purged),
            false => self.refused,
        };
        let (None, Some(chunks)) = (refused, chunks) else {
            let reason = refused.unwrap_or(NotStored::TooLarge);
            self.cache.remove_fill(&self.shared, Some(reason));
            return Err(reason);
        };
        let budget = self.cache.memory();
        let stored = Arc::new(Object::new(
            budget,
            object.key.clone(),
            object.variant.clone(),
            object.head.clone(),
            object.storable.clone(),
            Arc::new(Body::memory(stored_pieces(chunks, &*self.cache))),
        ));
        // Those that come late read the complete body, and the arriving one is freed with its last reader.
        self.shared.set_result(Ok(Arc::clone(&stored)));
        drop(object);
        self.cache.store(&stored, &self.shared);
        Ok(stored)
    }

    /// Ends the fill with an object that was validated: the waiting requests get it.
    pub fn finish_with(mut self, object: &Arc<Object>) {
        self.is_done = true;
        self.shared.set_result(Ok(Arc::clone(object)));
        self.cache.remove_fill(&self.shared, None);
    }

    /// Ends the fill without storing: the waiting requests go on by themselves.
    pub fn abandon(mut self, reason: NotStored) {
        self.end(Err(reason));
    }

    fn end(&mut self, result: Result<(), NotStored>) {
        if std::mem::replace(&mut self.is_done, true) {
            return;
        }
        let reason = result.err().unwrap_or(NotStored::Incomplete);
        match &self.object {
            Some(object) => drop(object.body.end(Err(BodyError::Incomplete))),
            None => self.shared.set_result(Err(reason)),
        }
        self.cache.remove_fill(&self.shared, Some(reason));
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.end(Err(NotStored::Incomplete));
    }
}

/// A request that waits for the head of a fill.
#[derive(Debug)]
pub struct FillWaiter {
    cache: Arc<dyn FillOwner>,
    shared: Arc<FillShared>,
    number: u64,
}

impl FillWaiter {
    /// Registers a request. `None`: the fill has the maximum number of waiting requests.
    pub(crate) fn new(
        cache: Arc<dyn FillOwner>,
        shared: Arc<FillShared>,
        waiters_max: usize,
    ) -> Option<Self> {
        let number = {
            let mut state = lock(&shared.state);
            if state.waiters >= waiters_max {
                return None;
            }
            state.waiters += 1;
            state.next_number += 1;
            state.next_number
        };
        cache.add_waiters(1);
        Some(Self { cache, shared, number })
    }

    /// Returns the result for a request with these headers. Wakes the task when there is one.
    pub fn poll_result(&mut self, headers: &[Header<'_>], context: &mut Context<'_>) -> Poll<FillResult> {
        let mut state = lock(&self.shared.state);
        let result = match &state.result {
            None => {
                state.wakers.insert(self.number, context.waker().clone());
                return Poll::Pending;
            }
            Some(Err(reason)) => FillResult::NotStored(*reason),
            Some(Ok(object)) if state.is_closed && object.body().chunks().is_none() => {
                FillResult::NotStored(NotStored::TooLarge)
            }
            Some(Ok(object)) => match secondary_key(&object.storable.vary, headers) == object.variant {
                true => FillResult::Object(Arc::clone(object)),
                false => FillResult::OtherVariant,
            },
        };
        Poll::Ready(result)
    }
}

impl Drop for FillWaiter {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared.state);
            state.waiters -= 1;
            state.wakers.remove(&self.number);
        }
        self.cache.remove_waiters(1);
    }
}

/// Returns the pieces of a body as they are kept: a long one in one piece, from which the kernel can send.
fn stored_pieces(chunks: Vec<Chunk>, cache: &dyn FillOwner) -> Vec<Chunk> {
    let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    if let [only] = &*chunks
        && only.file_offset().is_some()
    {
        return chunks;
    }
    let memory = cache.file_memory().filter(|_| length >= FILE_BYTES_MIN);
    match memory.and_then(|memory| memory.store(chunks.iter().map(|chunk| &**chunk))) {
        Some(extent) => vec![Chunk::in_file(extent, cache.memory())],
        None => joined(chunks, cache.memory()),
    }
}

/// Joins the pieces of a small body, and those of a body that came in small pieces.
fn joined(chunks: Vec<Chunk>, budget: &Arc<MemoryBudget>) -> Vec<Chunk> {
    let length: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    if chunks.len() <= 1 || (length > JOINED_BYTES_MAX && length / chunks.len() >= CHUNK_BYTES / 2) {
        return chunks;
    }
    let mut joined = Vec::with_capacity(length.div_ceil(JOINED_BYTES_MAX));
    let mut buffer = Vec::with_capacity(length.min(JOINED_BYTES_MAX));
    for chunk in chunks {
        let mut rest: &[u8] = &chunk;
        while !rest.is_empty() {
            let (now, after) = rest.split_at(rest.len().min(JOINED_BYTES_MAX - buffer.len()));
            buffer.extend_from_slice(now);
            rest = after;
            if buffer.len() == JOINED_BYTES_MAX {
                joined.push(Chunk::new(std::mem::take(&mut buffer), budget));
            }
        }
    }
    if !buffer.is_empty() {
        joined.push(Chunk::new(buffer, budget));
    }
    joined
}

/// Locks a fill; each statement under the lock leaves it valid.
fn lock(state: &Mutex<FillState>) -> MutexGuard<'_, FillState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
