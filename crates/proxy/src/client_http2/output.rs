//! Output of a connection: frames, and content of DATA frames that is written from its channel without a
//! copy.
//!
//! ```text
//! frames:   [head][DATA header]      [DATA header]      [head] ...   Connection::output
//! content:                     [16 KiB]           [16 KiB]           segments, in the channels
//! ```
//! Segments exist only from the turns of the streams to the write that follows: what the socket does not
//! accept then is copied behind its frames.

use std::cell::Ref;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rt::stream::Stream;
use wire::h2::{Connection, StreamKey};

use super::stream_channels::StreamChannels;

/// Minimum content that is not copied.
const SEGMENT_BYTES_MIN: usize = 4 * 1024;
const SEGMENTS_MAX: usize = 16;
/// Written bytes at the start of the output at which the rest is moved.
const WRITTEN_BYTES_MAX: usize = 64 * 1024;

/// Content of a DATA frame that is still in its channel.
#[derive(Clone, Copy, Debug)]
struct Segment {
    channel: u32,
    /// Position in the received bytes of the channel.
    start: usize,
    len: usize,
    /// Length of the output before it.
    output_len: usize,
}

#[derive(Debug, Default)]
pub(super) struct Output {
    /// Number of written bytes at the start of the connection's output.
    written: usize,
    segments: Vec<Segment>,
    segment_bytes: usize,
    /// Number of bytes that the socket has accepted since the begin of the connection.
    total_written: u64,
}

impl Output {
    /// Returns the number of bytes that the socket has accepted.
    pub(super) fn total_written(&self) -> u64 {
        self.total_written
    }

    /// Returns the number of bytes of the connection so far.
    #[inline]
    pub(super) fn total_queued(&self, connection: &mut Connection) -> u64 {
        self.total_written + self.unwritten_bytes(connection) as u64
    }

    /// Returns the number of bytes that are to be written.
    #[inline]
    pub(super) fn unwritten_bytes(&self, connection: &mut Connection) -> usize {
        connection.output().len() - self.written + self.segment_bytes
    }

    /// Sends content that begins at `start` in the received bytes of a channel, and does not end the message.
    /// Returns true if it is written from there.
    pub(super) fn send_data(
        &mut self,
        connection: &mut Connection,
        stream: StreamKey,
        (channel, start): (u32, usize),
        bytes: &[u8],
    ) -> bool {
        if bytes.len() < SEGMENT_BYTES_MIN || self.segments.len() == SEGMENTS_MAX {
            if !bytes.is_empty() {
                connection.send_data(stream, bytes, false);
            }
            return false;
        }
        let len = connection.send_data_header(stream, bytes.len());
        // A turn is not longer than the smallest frame that a client may allow, nor than its window.
        debug_assert_eq!(len, bytes.len());
        self.segments.push(Segment { channel, start, len, output_len: connection.output().len() });
        self.segment_bytes += len;
        true
    }

    /// Writes the output. Pending: the socket does not accept all of it.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        connection: &mut Connection,
        channels: &mut StreamChannels,
    ) -> Poll<io::Result<()>> {
        if !self.segments.is_empty() {
            let result = self.write_segments(cx, stream, connection.output(), channels);
            for segment in self.segments.drain(..) {
                channels.consume_deferred(segment.channel);
            }
            self.segment_bytes = 0;
            ready!(result)?;
        }
        let output = connection.output();
        while self.written < output.len() {
            let Poll::Ready(written) = stream.poll_write(cx, &output[self.written..]) else {
                if self.written >= WRITTEN_BYTES_MAX {
                    output.drain(..std::mem::take(&mut self.written));
                }
                return Poll::Pending;
            };
            let written = written?;
            self.written += written;
            self.total_written += written as u64;
        }
        output.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Writes the output with its segments once, and copies the rest into the output. Pending: nothing
    /// was accepted.
    fn write_segments(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        output: &mut Vec<u8>,
        channels: &StreamChannels,
    ) -> Poll<io::Result<()>> {
        let contents: [Option<Ref<'_, [u8]>>; SEGMENTS_MAX] =
            std::array::from_fn(|at| channels.received(self.segments.get(at)?.channel));
        let mut slices = [IoSlice::new(&[]); 2 * SEGMENTS_MAX + 1];
        let mut position = self.written;
        for (at, (segment, content)) in self.segments.iter().zip(&contents).enumerate() {
            let content = content.as_deref().unwrap_or_default();
            slices[2 * at] = IoSlice::new(&output[position..segment.output_len]);
            slices[2 * at + 1] = IoSlice::new(&content[segment.start..segment.start + segment.len]);
            position = segment.output_len;
        }
        slices[2 * self.segments.len()] = IoSlice::new(&output[position..]);
        let slices = &slices[..=2 * self.segments.len()];
        let result = stream.poll_write_vectored(cx, slices);
        let mut written = match &result {
            Poll::Ready(Ok(written)) => *written,
            _ => 0,
        };
        self.total_written += written as u64;
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        let mut rest = Vec::with_capacity(total - written);
        for slice in slices {
            let skipped = written.min(slice.len());
            written -= skipped;
            rest.extend_from_slice(&slice[skipped..]);
        }
        drop(contents);
        self.written = 0;
        if rest.is_empty() {
            output.clear();
        } else {
            *output = rest;
        }
        result.map_ok(|_| ())
    }
}
