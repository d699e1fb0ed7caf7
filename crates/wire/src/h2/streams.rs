//! Streams of a connection: slots that are used again, and the slot of an identifier.

use std::collections::VecDeque;

use super::config::StreamKey;

/// Progress of one direction of a stream (RFC 9113 §5.1 and §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Before the final head.
    Head,
    /// After the head: content and trailers.
    Body,
    /// After `END_STREAM`.
    Done,
}

/// One stream. A slot without one has the identifier 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) receive: Progress,
    pub(super) send: Progress,
    /// Send window; negative after a reduction of the peer's initial window (RFC 9113 §6.9.2).
    pub(super) send_window: i32,
    /// Bytes that the peer may still send.
    pub(super) receive_window: i32,
    /// Content that the caller has and did not return.
    pub(super) unconsumed: u32,
    /// Content that must still follow; `None` without `content-length`.
    pub(super) content_left: Option<u64>,
    pub(super) interim_responses: u16,
    /// Size of the heads of the interim responses.
    pub(super) interim_bytes: usize,
    /// The request is HEAD: its response has no content.
    pub(super) is_head: bool,
    /// The request is CONNECT: its successful response has no length.
    pub(super) is_connect: bool,
    /// The caller was told that it cannot send because of this stream's window.
    pub(super) is_blocked: bool,
    /// The rest of the request is discarded.
    pub(super) is_rejected: bool,
    /// Regularly over; the slot waits for its content to be consumed.
    pub(super) is_over: bool,
}

/// Maximum interim responses before the final one, as [`crate::Limits::interim_responses_max`].
const INTERIM_RESPONSES_MAX: u16 = 16;

/// Maximum size of the heads of all interim responses of a stream, as a multiple of the limit of one head.
const INTERIM_HEADS_MAX: usize = 2;

impl Stream {
    /// Counts an interim response with a head of this size. Returns false if there are too many.
    pub(super) fn count_interim(&mut self, head_bytes: usize, head_bytes_max: usize) -> bool {
        self.interim_responses += 1;
        self.interim_bytes += head_bytes;
        self.interim_responses <= INTERIM_RESPONSES_MAX
            && self.interim_bytes <= INTERIM_HEADS_MAX.saturating_mul(head_bytes_max)
    }
}

/// Number of streams whose reset by this end is remembered.
const RESETS_MAX: usize = 1_024;

/// Streams that are not over.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    /// Slots by identifier, open addressing; 0 is empty. Identifiers of one initiator are consecutive
    /// odd numbers, which are spread.
    index: Vec<(u32, u32)>,
    open: usize,
    /// Identifiers that this end has reset, oldest first: the peer's frames on their way are ignored.
    resets: VecDeque<u32>,
}

impl Streams {
    /// Number of streams that are not over.
    #[inline]
    pub(super) fn open(&self) -> usize {
        self.open
    }

    #[inline]
    pub(super) fn insert(&mut self, stream: Stream) -> StreamKey {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = stream;
                slot
            }
            None => {
                self.slots.push(stream);
                // Each slot belongs to one of fewer than 2^31 identifiers.
                (self.slots.len() - 1) as u32
            }
        };
        self.open += 1;
        if self.open * 2 > self.index.len() {
            self.grow_index();
        }
        self.index_insert(stream.id, slot);
        StreamKey { slot, id: stream.id }
    }

    /// Returns the slot of an identifier of a stream that is not over.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<StreamKey> {
        let mask = self.index.len().checked_sub(1)?;
        let mut at = Self::home(id, mask);
        loop {
            let (candidate, slot) = self.index[at];
            if candidate == id {
                return Some(StreamKey { slot, id });
            }
            // At least half of the index is empty.
            if candidate == 0 {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns a stream by its key, also one that only waits to be consumed.
    #[inline]
    pub(super) fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.slots.get_mut(key.slot as usize).filter(|stream| stream.id == key.id)
    }

    /// Returns a stream that is not over.
    #[inline]
    pub(super) fn get_open(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.get_mut(key).filter(|stream| !stream.is_over)
    }

    /// Ends a stream. Its slot stays until its content is consumed.
    #[inline]
    pub(super) fn finish(&mut self, key: StreamKey) {
        let Some(stream) = self.get_open(key) else { return };
        let is_consumed = stream.unconsumed == 0;
        stream.is_over = true;
        self.open -= 1;
        self.index_remove(key.id);
        if is_consumed {
            self.free_slot(key);
        }
    }

    /// Makes the slot of a stream that is over available.
    #[inline]
    pub(super) fn free_slot(&mut self, key: StreamKey) {
        if let Some(stream) = self.get_mut(key) {
            stream.id = 0;
            self.free.push(key.slot);
        }
    }

    pub(super) fn remember_reset(&mut self, id: u32) {
        if self.resets.len() == RESETS_MAX {
            self.resets.pop_front();
        }
        self.resets.push_back(id);
    }

    /// Returns whether this end has reset the stream recently.
    pub(super) fn was_reset(&self, id: u32) -> bool {
        let (older, newer) = self.resets.as_slices();
        newer.contains(&id) || older.contains(&id)
    }

    /// Returns all streams that are not over.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamKey, &mut Stream)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter(|(_, stream)| stream.id != 0 && !stream.is_over)
            .map(|(slot, stream)| (StreamKey { slot: slot as u32, id: stream.id }, stream))
    }

    /// Content that callers have and did not return, of all streams, for fuzz targets.
    #[cfg(any(test, fuzzing))]
    pub(super) fn unconsumed(&self) -> u64 {
        let streams = self.slots.iter().filter(|stream| stream.id != 0);
        streams.map(|stream| u64::from(stream.unconsumed)).sum()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Stream>()
            + (self.free.capacity() + self.resets.capacity()) * size_of::<u32>()
            + self.index.capacity() * size_of::<(u32, u32)>()
    }

    /// Frees memory if there are no streams.
    pub(super) fn release(&mut self) {
        if self.free.len() == self.slots.len() {
            self.slots = Vec::new();
            self.free = Vec::new();
            self.index = Vec::new();
        }
    }

    #[inline]
    fn home(id: u32, mask: usize) -> usize {
        // Consecutive identifiers side by side would be one long chain, which each removal follows to
        // its end: Fibonacci hashing spreads them.
        ((id >> 1).wrapping_mul(0x9e37_79b9) >> 16) as usize & mask
    }

    fn index_insert(&mut self, id: u32, slot: u32) {
        let mask = self.index.len() - 1;
        let mut at = Self::home(id, mask);
        while self.index[at].0 != 0 {
            at = (at + 1) & mask;
        }
        self.index[at] = (id, slot);
    }

    /// Removes an identifier, and moves later ones back so that no gap stops their search.
    fn index_remove(&mut self, id: u32) {
        let mask = self.index.len() - 1;
        let mut gap = Self::home(id, mask);
        while self.index[gap].0 != id {
            if self.index[gap].0 == 0 {
                return;
            }
            gap = (gap + 1) & mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let (other, _) = self.index[at];
            if other == 0 {
                break;
            }
            let distance = at.wrapping_sub(Self::home(other, mask)) & mask;
            if distance >= (at.wrapping_sub(gap) & mask) {
                self.index[gap] = self.index[at];
                gap = at;
            }
        }
        self.index[gap] = (0, 0);
    }

    #[cold]
    fn grow_index(&mut self) {
        let len = (self.index.len() * 2).max(8);
        let old = std::mem::replace(&mut self.index, vec![(0, 0); len]);
        for (id, slot) in old {
            if id != 0 {
                self.index_insert(id, slot);
            }
        }
    }
}
