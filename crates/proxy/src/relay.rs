//! One direction of one message: decodes a body as it comes, frames it anew, and sends it, with the
//! head in front of the first piece. The same for requests and responses.
//!
//! ```text
//! received bytes -> take: which of them are content -> send: framing, content, framing in one write
//!                                                        | what the socket does not take
//!                                                        v
//!                                                     pending -> flush, before anything more is taken
//! ```
//! So the bound of what one direction holds is one read.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use rt::stream::Stream;
use wire::{BodyDecoder, Framing, Limits, Refusal, encode};

use crate::forward::ClientFraming;

/// One direction of one message.
#[derive(Debug)]
pub(crate) struct Relay {
    decoder: BodyDecoder,
    framing: ClientFraming,
    /// Bytes for the receiver that its socket did not take yet, and, while `keeps`, those that it
    /// took.
    pending: Vec<u8>,
    sent: usize,
    /// Whether what was sent stays in `pending`, so that all of it can be sent again elsewhere.
    keeps: bool,
    prefixed: bool,
    /// Whether the last write took everything: who does not is given less at a time.
    stalled: bool,
    pub(crate) content_bytes: u64,
}

/// What [`Relay::take`] found in the bytes of one read.
#[derive(Debug)]
pub(crate) struct Batch {
    ranges: [(u32, u32); RANGES_MAX],
    count: usize,
    content_bytes: usize,
    /// How many bytes belong to this message.
    pub(crate) consumed: usize,
    /// Whether the message is over.
    pub(crate) end: bool,
}

/// Pieces of content that one batch has at most; the rest comes with the next.
const RANGES_MAX: usize = 8;
/// Content up to this is copied behind its framing and sent as one piece, which is cheaper than
/// having the kernel gather it.
const COPIED_BYTES_MAX: usize = 4 * 1024;
/// What a relay keeps for sending again; a longer request is sent once.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// A buffer that grew beyond this is given back to the allocator after its message.
const RECYCLED_BYTES_MAX: usize = 16 * 1024;
/// Bytes that are read at a time for a receiver that does not keep up.
const STALLED_READ_BYTES: usize = 16 * 1024;

impl Relay {
    pub(crate) fn new() -> Self {
        Self {
            decoder: BodyDecoder::new(Framing::None, &Limits::default()),
            framing: ClientFraming::None,
            pending: Vec::new(),
            sent: 0,
            keeps: false,
            prefixed: false,
            stalled: false,
            content_bytes: 0,
        }
    }

    /// Begins a message whose body comes with `came` and goes on with `goes`.
    pub(crate) fn begin(&mut self, came: Framing, goes: ClientFraming, limits: &Limits) {
        self.decoder = BodyDecoder::new(came, limits);
        self.framing = goes;
        self.content_bytes = 0;
        self.stalled = false;
    }

    /// Forgets everything, and keeps a buffer of moderate size for the next message.
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        if self.pending.capacity() > RECYCLED_BYTES_MAX {
            self.pending = Vec::new();
        }
        self.sent = 0;
        self.keeps = false;
        self.prefixed = false;
        self.stalled = false;
        self.decoder = BodyDecoder::new(Framing::None, &Limits::default());
    }

    /// Where a head, or an answer of our own, is written to be sent first.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// Works on `scratch`, which is warm in the cache, instead of a buffer of its own.
    pub(crate) fn borrow(&mut self, scratch: &mut Vec<u8>) {
        debug_assert!(self.pending.is_empty() && scratch.is_empty());
        std::mem::swap(&mut self.pending, scratch);
    }

    /// Gives `scratch` back, and keeps only what is not sent yet.
    pub(crate) fn give_back(&mut self, scratch: &mut Vec<u8>) {
        if !self.is_flushed() {
            scratch.extend_from_slice(&self.pending[self.sent..]);
        }
        std::mem::swap(&mut self.pending, scratch);
        scratch.clear();
        self.sent = 0;
    }

    /// Puts something in front of what was not sent yet, like the header of a new connection.
    /// Only once: it stays in front when everything is sent again.
    pub(crate) fn prefix(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.prefixed {
            return;
        }
        self.prefixed = true;
        let mut whole = Vec::new();
        write(&mut whole);
        whole.append(&mut self.pending);
        self.pending = whole;
    }

    /// From now on what is sent can be sent again by [`Relay::rewind`], unless it becomes too long.
    pub(crate) fn keep(&mut self) {
        self.keeps = true;
    }

    /// What was sent need not be sent again.
    pub(crate) fn forget_sent(&mut self) {
        self.keeps = false;
        if self.sent == self.pending.len() {
            self.pending.clear();
            self.sent = 0;
        }
    }

    /// Whether all that was sent so far is still here.
    pub(crate) fn is_kept(&self) -> bool {
        self.keeps
    }

    /// Sends everything again from its start.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
    }

    /// Whether any byte was sent.
    pub(crate) fn has_sent(&self) -> bool {
        self.sent > 0 || !self.keeps
    }

    /// How many bytes were sent of those that [`Relay::rewind`] sends again.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent as u64
    }

    /// How many bytes are to be sent of what was taken.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        (self.pending.len() - self.sent) as u64
    }

    /// Whether everything that was taken has been sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.sent == self.pending.len()
    }

    /// Whether something was sent in part: anything but its rest would break it.
    pub(crate) fn is_cut(&self) -> bool {
        self.sent > 0 && !self.is_flushed()
    }

    /// Whether the whole body was taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.decoder.is_done()
    }

    /// Whether the message is over, and all of it sent.
    pub(crate) fn is_done(&self) -> bool {
        self.is_taken() && self.is_flushed()
    }

    /// Whether the connection may change its protocol: the message was taken, or what is left of it
    /// goes as it comes.
    pub(crate) fn may_switch(&self) -> bool {
        self.is_taken() || self.length_left().is_some()
    }

    /// What was taken and not sent.
    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.sent);
        std::mem::take(&mut self.pending).split_off(sent)
    }

    /// How many bytes are still to come of a body that is sent as it comes, if that is known.
    pub(crate) fn length_left(&self) -> Option<u64> {
        self.decoder.length_left().filter(|_| self.framing == ClientFraming::Length)
    }

    /// So many of them went another way; whether the body is over with them.
    pub(crate) fn pass(&mut self, bytes: u64) -> bool {
        self.content_bytes += bytes;
        self.decoder.pass(bytes)
    }

    /// How many bytes to read at a time, of the `most` that there is room for.
    pub(crate) fn read_bytes(&self, most: usize) -> usize {
        if self.stalled { most.min(STALLED_READ_BYTES) } else { most }
    }

    /// Finds the content in `input`, up to [`RANGES_MAX`] pieces of it.
    ///
    /// # Errors
    /// The framing is malformed or over a limit.
    #[inline]
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<Batch, Refusal> {
        let mut batch = Batch {
            ranges: [(0, 0); RANGES_MAX],
            count: 0,
            content_bytes: 0,
            consumed: 0,
            end: self.decoder.is_done(),
        };
        while !batch.end && batch.consumed < input.len() && batch.count < RANGES_MAX {
            let step = self.decoder.decode(&input[batch.consumed..])?;
            if !step.data.is_empty() {
                let start = batch.consumed + step.data.start;
                // A read has at most some 64 KiB, so its places fit 32 bits.
                batch.ranges[batch.count] = (start as u32, (start + step.data.len()) as u32);
                batch.count += 1;
                batch.content_bytes += step.data.len();
            }
            batch.consumed += step.consumed;
            batch.end = step.end;
        }
        self.content_bytes += batch.content_bytes as u64;
        Ok(batch)
    }

    /// Sends on only the trailer fields whose name `keeps` accepts. To be called between the batch
    /// that ends the message and its sending.
    pub(crate) fn retain_trailers(&mut self, keeps: impl Fn(&str) -> bool) {
        self.decoder.retain_trailers(keeps);
    }

    /// The sender ended its side: the end of the message, or its truncation.
    ///
    /// # Errors
    /// The message is not whole.
    pub(crate) fn take_eof(&mut self) -> Result<(), Refusal> {
        self.decoder.handle_eof()
    }

    /// Sends a batch, behind what [`Relay::head`] was given; `input` is what it was taken from.
    /// Ready: all is sent. Pending: the rest is kept, see [`Relay::poll_flush`].
    ///
    /// # Errors
    /// The receiver is gone.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Stream,
        input: &[u8],
        batch: &Batch,
        moved: &mut u64,
    ) -> Poll<io::Result<()>> {
        let pieces = &batch.ranges[..batch.count];
        let total = batch.content_bytes;
        let keeps = self.keeps && self.pending.len() + total <= KEPT_BYTES_MAX;
        self.keeps = keeps;
        if total <= COPIED_BYTES_MAX || keeps {
            self.open_chunk(total);
            for &(start, end) in pieces {
                self.pending.extend_from_slice(&input[start as usize..end as usize]);
            }
            self.close_chunk(total, batch.end);
            return self.poll_flush(cx, to, moved);
        }
        self.forget_sent();
        self.open_chunk(total);
        let opened = self.pending.len();
        self.close_chunk(total, batch.end);
        let mut slices = [IoSlice::new(&[]); RANGES_MAX + 2];
        slices[0] = IoSlice::new(&self.pending[self.sent..opened]);
        for (slice, &(start, end)) in slices[1..].iter_mut().zip(pieces) {
            *slice = IoSlice::new(&input[start as usize..end as usize]);
        }
        slices[batch.count + 1] = IoSlice::new(&self.pending[opened..]);
        let slices = &slices[..batch.count + 2];
        let written = match to.poll_write_vectored(cx, slices) {
            Poll::Ready(Ok(written)) => written,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => 0,
        };
        *moved += written as u64;
        let whole: usize = slices.iter().map(|slice| slice.len()).sum();
        if written == whole {
            self.pending.clear();
            self.sent = 0;
            self.stalled = false;
            return Poll::Ready(Ok(()));
        }
        self.pending = rest_of(slices, written);
        self.sent = 0;
        self.stalled = true;
        self.poll_flush(cx, to, moved)
    }

    /// Keeps a batch to be sent later, behind what [`Relay::head`] was given.
    pub(crate) fn buffer(&mut self, input: &[u8], batch: &Batch) {
        self.open_chunk(batch.content_bytes);
        for &(start, end) in &batch.ranges[..batch.count] {
            self.pending.extend_from_slice(&input[start as usize..end as usize]);
        }
        self.close_chunk(batch.content_bytes, batch.end);
        self.keeps &= self.pending.len() <= KEPT_BYTES_MAX;
    }

    /// Sends the body of a message that ends here without further content, like one that was ended
    /// by the sender's closing.
    pub(crate) fn end(&mut self) {
        self.close_chunk(0, true);
    }

    /// Sends what is pending.
    ///
    /// # Errors
    /// The receiver is gone.
    #[inline]
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Stream,
        moved: &mut u64,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.pending.len() {
            let Poll::Ready(written) = to.poll_write(cx, &self.pending[self.sent..]) else {
                self.stalled = true;
                return Poll::Pending;
            };
            let written = written?;
            self.sent += written;
            *moved += written as u64;
        }
        if !self.keeps {
            self.pending.clear();
            self.sent = 0;
        }
        Poll::Ready(Ok(()))
    }

    fn open_chunk(&mut self, content_bytes: usize) {
        if self.framing == ClientFraming::Chunked && content_bytes > 0 {
            encode::chunk_head(&mut self.pending, content_bytes as u64);
        }
    }

    fn close_chunk(&mut self, content_bytes: usize, end: bool) {
        if self.framing != ClientFraming::Chunked {
            return;
        }
        if content_bytes > 0 {
            encode::chunk_end(&mut self.pending);
        }
        if end {
            self.pending.extend_from_slice(b"0\r\n");
            let trailers = self.decoder.trailers();
            self.pending.extend_from_slice(trailers);
            self.pending.extend_from_slice(b"\r\n");
        }
    }
}

/// What is left of `slices` after their first `written` bytes.
#[cold]
fn rest_of(slices: &[IoSlice<'_>], mut written: usize) -> Vec<u8> {
    let whole: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut rest = Vec::with_capacity(whole - written);
    for slice in slices {
        let skipped = written.min(slice.len());
        written -= skipped;
        rest.extend_from_slice(&slice[skipped..]);
    }
    rest
}
