//! Output of a connection: frames of the protocol, and between them content that is sent from the
//! blocks of the core without being copied.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::task::{Context, Poll};

use crate::body::RemainingBody;
use crate::core::{OriginCore, ScratchBuffers};
use crate::stats::{CloseReason, add};

use super::Http2Conn;

/// State of the output beside its bytes, which are in [`wire::h2::Connection::output`].
#[derive(Debug)]
pub(super) struct OutputQueue {
    sent: usize,
    /// Content between the bytes of the frames, in their order.
    inserts: VecDeque<InsertedContent>,
    inserted_bytes: u64,
    /// True if the bytes of the frames are in a pooled buffer.
    is_pooled: bool,
    /// True if the last write left something.
    has_unsent: bool,
    /// Number of responses that began in the unsent output.
    pub(super) responses: u64,
    /// Number of bytes that do not count as sent.
    pub(super) uncounted_bytes: u64,
    /// Maximum number of bytes per write; 0: unlimited.
    write_bytes_max: u64,
    /// Number of bytes of a write that is pending: TLS must be offered no less of them again.
    pending_bytes: u64,
    poll_bytes: u64,
    /// Bytes that the socket accepted, and those of them and of the output that are no responses.
    pub(super) written_bytes: u64,
    pub(super) control_bytes: u64,
}

/// Content that follows the first `position` bytes of the frames.
#[derive(Debug)]
struct InsertedContent {
    position: usize,
    body: RemainingBody,
}

/// Size at which the output is written before more is added.
const OUTPUT_BYTES: u64 = 256 * 1024;
/// Maximum size of the frames in the output, without inserted content.
const FRAMES_BYTES: usize = 48 * 1024;
/// Maximum number of bytes written per poll, so that others get their turn.
const POLL_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of pieces per writev(2).
const SLICES_MAX: usize = 64;

impl Default for OutputQueue {
    fn default() -> Self {
        Self {
            sent: 0,
            inserts: VecDeque::new(),
            inserted_bytes: 0,
            is_pooled: false,
            has_unsent: true,
            responses: 0,
            uncounted_bytes: 0,
            write_bytes_max: 0,
            pending_bytes: 0,
            poll_bytes: 0,
            written_bytes: 0,
            control_bytes: 0,
        }
    }
}

impl OutputQueue {
    /// Adds content after the first `position` bytes of the frames.
    pub(super) fn insert(&mut self, position: usize, body: RemainingBody) {
        self.inserted_bytes += body.remaining;
        self.inserts.push_back(InsertedContent { position, body });
    }

    /// Returns whether the last write sent everything.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_unsent
    }

    /// Returns whether the output, with frames of this size, must be written before more is added.
    pub(super) fn is_full_with(&self, frames_bytes: usize) -> bool {
        let unsent = frames_bytes - self.sent;
        unsent >= FRAMES_BYTES || unsent as u64 + self.inserted_bytes >= OUTPUT_BYTES
    }

    /// Returns the number of bytes of the connection so far, with frames of this size in the output.
    pub(super) fn total_queued(&self, frames_bytes: usize) -> u64 {
        self.written_bytes + (frames_bytes - self.sent) as u64 + self.inserted_bytes
    }

    /// Limits the size of writes until everything is sent.
    pub(super) fn limit_writes(&mut self, bytes_max: u64) {
        let unlimited = |bytes: u64| if bytes == 0 { u64::MAX } else { bytes };
        self.write_bytes_max = unlimited(self.write_bytes_max).min(bytes_max);
    }

    /// Counts work as written bytes, so that the poll ends sooner.
    pub(super) fn spend_poll_budget(&mut self, bytes: u64) {
        self.poll_bytes = self.poll_bytes.saturating_add(bytes);
    }

    /// Returns whether a poll has written as much as it may.
    pub(super) fn is_poll_budget_used(&self) -> bool {
        self.poll_bytes >= POLL_BYTES_MAX
    }

    /// Releases memory that an idle connection does not need.
    pub(super) fn release_memory(&mut self) {
        if self.inserts.is_empty() {
            self.inserts = VecDeque::new();
        }
    }

    /// Removes `written` bytes from the front; `frames_bytes` is the size of the frames.
    fn advance(&mut self, mut written: u64, frames_bytes: usize) {
        loop {
            let until = self.inserts.front().map_or(frames_bytes, |insert| insert.position);
            let frames = written.min((until - self.sent) as u64);
            self.sent += frames as usize;
            written -= frames;
            let Some(insert) = self.inserts.front_mut().filter(|_| written > 0) else { return };
            let content = written.min(insert.body.remaining);
            insert.body.advance(content);
            self.inserted_bytes -= content;
            written -= content;
            if insert.body.remaining == 0 {
                self.inserts.pop_front();
            }
        }
    }

    /// Fills `slices` with the unsent bytes in their order, at most `bytes_max`; returns their number.
    fn fill_slices<'b>(
        &self,
        core: &'b OriginCore,
        frames: &'b [u8],
        bytes_max: u64,
        slices: &mut [IoSlice<'b>; SLICES_MAX],
    ) -> usize {
        let (mut count, mut position, mut remaining) = (0, self.sent, bytes_max);
        let mut push = |bytes: &'b [u8]| {
            let length = remaining.min(bytes.len() as u64) as usize;
            if length > 0 && count < SLICES_MAX {
                slices[count] = IoSlice::new(&bytes[..length]);
                count += 1;
                remaining -= length as u64;
            }
            length > 0 || bytes.is_empty()
        };
        for insert in &self.inserts {
            if !push(&frames[position..insert.position]) {
                break;
            }
            position = insert.position;
            if !insert.body.pieces(&core.body_blocks).all(&mut push) {
                break;
            }
        }
        push(&frames[position..]);
        count
    }
}

impl Http2Conn<'_> {
    /// Prepares the output of a poll: an empty one is in the scratch buffer of the core.
    pub(super) fn begin_output(&mut self, scratch: &mut ScratchBuffers) {
        self.output.poll_bytes = 0;
        if !self.output.is_pooled {
            let begun = std::mem::take(self.wire.output());
            std::mem::swap(self.wire.output(), &mut scratch.out);
            self.wire.output().clear();
            self.wire.output().extend_from_slice(&begun);
        }
    }

    /// Keeps the unsent output in a pooled buffer. Returns false if there is none.
    pub(super) fn end_output(&mut self, scratch: &mut ScratchBuffers) -> bool {
        let output = &mut self.output;
        if self.wire.output().is_empty() && output.inserts.is_empty() {
            if std::mem::take(&mut output.is_pooled) {
                self.conn.core.buffers.put_back(std::mem::take(self.wire.output()));
            } else {
                std::mem::swap(self.wire.output(), &mut scratch.out);
            }
            return true;
        }
        if output.is_pooled {
            self.wire.output().drain(..output.sent);
        } else {
            let Some(mut buffer) = self.conn.core.buffers.take() else { return false };
            buffer.extend_from_slice(&self.wire.output()[output.sent..]);
            // The empty output of the connection was left in the scratch buffers.
            std::mem::swap(self.wire.output(), &mut scratch.out);
            *self.wire.output() = buffer;
            output.is_pooled = true;
        }
        for insert in &mut output.inserts {
            insert.position -= output.sent;
        }
        output.sent = 0;
        true
    }

    /// Returns the buffer of unsent output to the pool.
    pub(super) fn release_output(&mut self) {
        if std::mem::take(&mut self.output.is_pooled) {
            self.conn.core.buffers.put_back(std::mem::take(self.wire.output()));
        }
    }

    /// Writes the output, as far as the socket accepts it.
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        core: &OriginCore,
    ) -> Poll<Result<(), CloseReason>> {
        loop {
            let frames = self.wire.output();
            let output = &mut self.output;
            if output.sent == frames.len() && output.inserts.is_empty() {
                frames.clear();
                output.sent = 0;
                output.responses = 0;
                output.has_unsent = false;
                output.uncounted_bytes = 0;
                output.write_bytes_max = 0;
                return Poll::Ready(Ok(()));
            }
            output.has_unsent = true;
            if output.is_poll_budget_used() {
                return Poll::Pending;
            }
            let bytes_max = if output.write_bytes_max == 0 { POLL_BYTES_MAX } else { output.write_bytes_max };
            let bytes_max = bytes_max.max(output.pending_bytes);
            let result = if output.inserts.is_empty() {
                let unsent = &frames[output.sent..];
                let length = unsent.len().min(bytes_max as usize);
                self.conn.stream.poll_write(cx, &unsent[..length])
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = output.fill_slices(core, frames, bytes_max, &mut slices);
                self.conn.stream.poll_write_vectored(cx, &slices[..count])
            };
            let written = match result {
                Poll::Ready(Ok(written)) if written > 0 => written as u64,
                Poll::Ready(_) => return Poll::Ready(Err(CloseReason::Broken)),
                Poll::Pending => {
                    output.pending_bytes = bytes_max;
                    return Poll::Pending;
                }
            };
            output.pending_bytes = 0;
            output.written_bytes += written;
            output.poll_bytes += written;
            output.advance(written, frames.len());
            let uncounted = written.min(output.uncounted_bytes);
            output.uncounted_bytes -= uncounted;
            add(&core.counters.bytes_out, written - uncounted);
        }
    }
}
