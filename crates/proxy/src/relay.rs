//! One direction of one message: decodes a body as it arrives, frames it again, and sends it, with
//! the head in front of the first piece. The same for requests and responses.
//!
//! ```text
//! received bytes -> take: find the content -> send: framing, content, framing in one write
//!                                               | bytes that the socket does not accept
//!                                               v
//!                                            pending -> flush, before anything more is taken
//! ```
//! So one direction holds at most the bytes of one read.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rt::stream::Stream;
use wire::{BodyDecoder, Framing, Limits, Refusal, encode};

use crate::forward::ClientFraming;

/// One direction of one message.
#[derive(Debug)]
pub(crate) struct Relay {
    decoder: BodyDecoder,
    framing: ClientFraming,
    /// Bytes that the receiver's socket has not accepted yet. While `keeps_sent` is set, also the
    /// accepted ones.
    pending: Vec<u8>,
    sent: usize,
    /// True if sent bytes stay in `pending`, so that a retry can send everything again.
    keeps_sent: bool,
    has_prefix: bool,
    /// True if the last write was partial. A slow receiver gets less at a time.
    stalled: bool,
    pub(crate) content_bytes: u64,
}

/// Result of [`Relay::take`] for the bytes of one read.
#[derive(Debug)]
pub(crate) struct Batch {
    ranges: [(u32, u32); RANGES_MAX],
    count: usize,
    content_bytes: usize,
    /// Number of bytes that belong to this message.
    pub(crate) consumed: usize,
    /// True if the message is complete.
    pub(crate) is_last: bool,
}

/// Maximum number of content pieces in one batch; the rest comes with the next.
const RANGES_MAX: usize = 8;
/// Maximum number of pieces that [`Relay::poll_send_pieces`] sends in one write.
pub(crate) const PIECES_MAX: usize = 8;
/// Maximum size of content that is copied behind its framing and sent as one piece, which is
/// cheaper than a vectored write.
pub(crate) const COPIED_BYTES_MAX: usize = 4 * 1024;
/// Maximum size of a request that is kept for a retry; a longer one is sent once.
const REPLAY_BYTES_MAX: usize = 16 * 1024;
/// Maximum capacity of a buffer that is reused. A larger one is freed after its message.
const RECYCLED_BYTES_MAX: usize = 16 * 1024;
/// Read size for a receiver that does not keep up, in bytes.
const STALLED_READ_BYTES: usize = 16 * 1024;

impl Batch {
    /// Returns the pieces of content in the bytes that the batch was decoded from.
    pub(crate) fn pieces<'i>(&self, input: &'i [u8]) -> impl Iterator<Item = &'i [u8]> {
        self.ranges[..self.count].iter().map(|&(start, end)| &input[start as usize..end as usize])
    }
}

impl Relay {
    /// Returns the capacity of the pending bytes.
    #[inline]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.pending.capacity()
    }

    pub(crate) fn new() -> Self {
        Self {
            decoder: BodyDecoder::new(Framing::None, &Limits::default()),
            framing: ClientFraming::None,
            pending: Vec::new(),
            sent: 0,
            keeps_sent: false,
            has_prefix: false,
            stalled: false,
            content_bytes: 0,
        }
    }

    /// Begins a message whose body is received with `received_framing` and sent with
    /// `sent_framing`.
    pub(crate) fn begin(&mut self, received_framing: Framing, sent_framing: ClientFraming, limits: &Limits) {
        self.decoder = BodyDecoder::new(received_framing, limits);
        self.framing = sent_framing;
        self.content_bytes = 0;
        self.stalled = false;
    }

    /// Receives the body up to the end of its source, whatever its length.
    pub(crate) fn receive_until_close(&mut self) {
        self.decoder = BodyDecoder::new(Framing::UntilClose, &Limits::default());
    }

    /// Resets the state, but keeps a buffer of moderate size for the next message.
    pub(crate) fn reset(&mut self) {
        self.pending.clear();
        if self.pending.capacity() > RECYCLED_BYTES_MAX {
            self.pending = Vec::new();
        }
        self.sent = 0;
        self.keeps_sent = false;
        self.has_prefix = false;
        self.stalled = false;
        self.decoder = BodyDecoder::new(Framing::None, &Limits::default());
    }

    /// Returns the buffer for a head or for the proxy's own response, which is sent first.
    pub(crate) fn head_buffer(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// Uses `scratch`, which is warm in the cache, instead of a buffer of its own.
    pub(crate) fn borrow_scratch(&mut self, scratch: &mut Vec<u8>) {
        debug_assert!(self.pending.is_empty() && scratch.is_empty());
        std::mem::swap(&mut self.pending, scratch);
    }

    /// Returns `scratch`, and keeps only the unsent bytes.
    #[inline(always)]
    pub(crate) fn return_scratch(&mut self, scratch: &mut Vec<u8>) {
        if !self.is_flushed() {
            scratch.extend_from_slice(&self.pending[self.sent..]);
        }
        std::mem::swap(&mut self.pending, scratch);
        scratch.clear();
        self.sent = 0;
    }

    /// Inserts something before the unsent bytes, such as the PROXY header of a new connection.
    /// Works only once: it stays in front when everything is sent again.
    pub(crate) fn insert_prefix(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.has_prefix {
            return;
        }
        self.has_prefix = true;
        let mut prefixed = Vec::new();
        write(&mut prefixed);
        prefixed.append(&mut self.pending);
        self.pending = prefixed;
    }

    /// Starts to keep sent bytes for [`Relay::rewind`], up to a maximum size.
    pub(crate) fn keep_sent(&mut self) {
        self.keeps_sent = true;
    }

    /// Drops sent bytes that are not needed for a retry any more.
    pub(crate) fn forget_sent(&mut self) {
        self.keeps_sent = false;
        if self.sent == self.pending.len() {
            self.pending.clear();
            self.sent = 0;
        }
    }

    /// Returns whether all bytes sent so far are still kept.
    pub(crate) fn can_rewind(&self) -> bool {
        self.keeps_sent
    }

    /// Returns the bytes that [`Relay::rewind`] would send again.
    pub(crate) fn held_bytes(&self) -> &[u8] {
        &self.pending
    }

    /// Notes that a receiver has this many of the held bytes.
    pub(crate) fn set_sent(&mut self, bytes: usize) {
        self.sent = bytes;
    }

    /// Restarts sending from the first byte.
    pub(crate) fn rewind(&mut self) {
        self.sent = 0;
    }

    pub(crate) fn has_sent(&self) -> bool {
        self.sent > 0 || !self.keeps_sent
    }

    /// Returns the number of sent bytes that [`Relay::rewind`] would send again.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent as u64
    }

    /// Returns the number of taken bytes that are not sent yet.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        (self.pending.len() - self.sent) as u64
    }

    /// Returns whether all taken bytes have been sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.sent == self.pending.len()
    }

    /// Returns whether the data is partially sent: sending anything but the rest would corrupt the
    /// stream.
    pub(crate) fn is_partially_sent(&self) -> bool {
        self.sent > 0 && !self.is_flushed()
    }

    /// Returns whether the complete body was taken.
    pub(crate) fn is_received(&self) -> bool {
        self.decoder.is_done()
    }

    /// Returns whether the message is complete and entirely sent.
    pub(crate) fn is_done(&self) -> bool {
        self.is_received() && self.is_flushed()
    }

    /// Returns whether the connection may change its protocol: the message was taken, or the rest
    /// of it is forwarded unchanged.
    pub(crate) fn may_switch(&self) -> bool {
        self.is_received() || self.length_left().is_some()
    }

    pub(crate) fn take_unsent(&mut self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.sent);
        std::mem::take(&mut self.pending).split_off(sent)
    }

    /// Returns the number of bytes still to come, for a body of known length that is forwarded
    /// unchanged.
    pub(crate) fn length_left(&self) -> Option<u64> {
        self.decoder.remaining_length().filter(|_| self.framing == ClientFraming::Length)
    }

    /// Counts content bytes that were spliced past this relay. Returns whether the body is complete
    /// with them.
    pub(crate) fn count_spliced(&mut self, bytes: u64) -> bool {
        self.content_bytes += bytes;
        self.decoder.record_bypassed(bytes)
    }

    /// Returns the number of bytes to read at a time, up to `max`.
    pub(crate) fn read_bytes(&self, max: usize) -> usize {
        if self.stalled { max.min(STALLED_READ_BYTES) } else { max }
    }

    /// Finds the content in `input`, up to [`RANGES_MAX`] pieces of it.
    ///
    /// # Errors
    /// The framing is malformed or over a limit.
    #[inline]
    pub(crate) fn decode_batch(&mut self, input: &[u8]) -> Result<Batch, Refusal> {
        let mut batch = Batch {
            ranges: [(0, 0); RANGES_MAX],
            count: 0,
            content_bytes: 0,
            consumed: 0,
            is_last: self.decoder.is_done(),
        };
        while !batch.is_last && batch.consumed < input.len() && batch.count < RANGES_MAX {
            let step = self.decoder.decode(&input[batch.consumed..])?;
            if !step.data.is_empty() {
                let start = batch.consumed + step.data.start;
                // A read has at most some 64 KiB, so its positions fit 32 bits.
                batch.ranges[batch.count] = (start as u32, (start + step.data.len()) as u32);
                batch.count += 1;
                batch.content_bytes += step.data.len();
            }
            batch.consumed += step.consumed;
            batch.is_last = step.end;
        }
        self.content_bytes += batch.content_bytes as u64;
        Ok(batch)
    }

    /// Drops trailer fields whose names `is_kept` rejects. Must be called between the batch that
    /// ends the message and its sending.
    pub(crate) fn retain_trailers(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.decoder.retain_trailers(is_kept);
    }

    /// Handles the end of the sender's stream: the end of the message, or its truncation.
    ///
    /// # Errors
    /// The message is incomplete.
    pub(crate) fn take_eof(&mut self) -> Result<(), Refusal> {
        self.decoder.handle_eof()
    }

    /// Sends a batch, behind the bytes of [`Relay::head`]; `input` contains the batch's content.
    /// Ready: everything is sent. Pending: the rest is kept, see [`Relay::poll_flush`].
    ///
    /// # Errors
    /// The receiver is gone.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Stream,
        input: &[u8],
        batch: &Batch,
        sent_bytes: &mut u64,
    ) -> Poll<io::Result<()>> {
        let pieces = &batch.ranges[..batch.count];
        let total = batch.content_bytes;
        let keeps_sent = self.keeps_sent && self.pending.len() + total <= REPLAY_BYTES_MAX;
        self.keeps_sent = keeps_sent;
        if total <= COPIED_BYTES_MAX || keeps_sent {
            self.open_chunk(total);
            for &(start, end) in pieces {
                self.pending.extend_from_slice(&input[start as usize..end as usize]);
            }
            self.close_chunk(total, batch.is_last);
            return self.poll_flush(cx, to, sent_bytes);
        }
        self.forget_sent();
        self.open_chunk(total);
        let opened = self.pending.len();
        self.close_chunk(total, batch.is_last);
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
        *sent_bytes += written as u64;
        let total_bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        if written == total_bytes {
            self.pending.clear();
            self.sent = 0;
            self.stalled = false;
            return Poll::Ready(Ok(()));
        }
        self.pending = rest_of(slices, written);
        self.sent = 0;
        self.stalled = true;
        self.poll_flush(cx, to, sent_bytes)
    }

    /// Sends pieces of a body of known length that is forwarded unchanged, behind the pending bytes, and keeps nothing of
    /// what the receiver does not accept. Returns the number of content bytes that were sent; the caller repeats the rest.
    ///
    /// # Errors
    /// The receiver is gone.
    pub(crate) fn poll_send_pieces<'p>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Stream,
        pieces: impl Iterator<Item = &'p [u8]>,
        sent_bytes: &mut u64,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX + 1];
        slices[0] = IoSlice::new(&self.pending[self.sent..]);
        let head_bytes = slices[0].len();
        let mut count = 1;
        for (slice, piece) in slices[1..].iter_mut().zip(pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        let first = usize::from(head_bytes == 0);
        let written = ready!(to.poll_write_vectored(cx, &slices[first..count]))?;
        *sent_bytes += written as u64;
        self.sent += written.min(head_bytes);
        self.forget_sent();
        let content_bytes = written.saturating_sub(head_bytes);
        self.count_spliced(content_bytes as u64);
        Poll::Ready(Ok(content_bytes))
    }

    /// Sends the pending bytes ahead of content that follows at once, so that the kernel waits for that.
    ///
    /// # Errors
    /// The receiver is gone.
    pub(crate) fn poll_flush_before_content(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Stream,
        sent_bytes: &mut u64,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.pending.len() {
            let written = ready!(to.poll_write_more(cx, &self.pending[self.sent..]))?;
            self.sent += written;
            *sent_bytes += written as u64;
        }
        self.forget_sent();
        Poll::Ready(Ok(()))
    }

    /// Keeps a batch for later, behind the bytes of [`Relay::head`].
    pub(crate) fn buffer_batch(&mut self, input: &[u8], batch: &Batch) {
        self.open_chunk(batch.content_bytes);
        for &(start, end) in &batch.ranges[..batch.count] {
            self.pending.extend_from_slice(&input[start as usize..end as usize]);
        }
        self.close_chunk(batch.content_bytes, batch.is_last);
        self.keeps_sent &= self.pending.len() <= REPLAY_BYTES_MAX;
    }

    /// Takes content in another coding than it was received in, behind the pending bytes.
    pub(crate) fn push_recoded(&mut self, content: &[u8], is_last: bool) {
        self.open_chunk(content.len());
        self.pending.extend_from_slice(content);
        self.close_chunk(content.len(), is_last);
    }

    /// Ends a message without further content, such as one that the sender ended by closing.
    pub(crate) fn end(&mut self) {
        self.close_chunk(0, true);
    }

    /// Sends the pending bytes.
    ///
    /// # Errors
    /// The receiver is gone.
    #[inline]
    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut Stream,
        sent_bytes: &mut u64,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.pending.len() {
            let Poll::Ready(written) = to.poll_write(cx, &self.pending[self.sent..]) else {
                self.stalled = true;
                return Poll::Pending;
            };
            let written = written?;
            self.sent += written;
            *sent_bytes += written as u64;
        }
        if !self.keeps_sent {
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

/// Returns the rest of `slices` after their first `written` bytes.
#[cold]
fn rest_of(slices: &[IoSlice<'_>], mut written: usize) -> Vec<u8> {
    let total_bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    let mut rest = Vec::with_capacity(total_bytes - written);
    for slice in slices {
        let skipped = written.min(slice.len());
        written -= skipped;
        rest.extend_from_slice(&slice[skipped..]);
    }
    rest
}

#[cfg(test)]
mod tests;
