//! Heads that are sent again without being encoded again.

use super::config::StreamKey;
use super::connection::Connection;
use super::encoder::{FieldEncoder, WrittenHead};
use super::frame::{self, HEADER_BYTES, flag, frame_type};
use super::streams::Progress;

/// A final response head that consists of references to the tables only. It may be sent again on the
/// same connection while the table of the encoder is unchanged.
#[derive(Clone, Copy, Debug)]
pub struct RepeatableHead {
    block: [u8; BLOCK_BYTES_MAX],
    len: u8,
    status: u16,
    version: u32,
}

/// Maximum size of a block: the status and a dozen fields.
const BLOCK_BYTES_MAX: usize = 16;

impl Connection {
    /// Does the same as [`Connection::send_headers`] for a final response, and returns the head if it
    /// can be sent again with [`Connection::repeat_headers`].
    pub fn send_repeatable_headers(
        &mut self,
        stream: StreamKey,
        is_end: bool,
        write: impl FnOnce(&mut FieldEncoder<'_>),
    ) -> Option<RepeatableHead> {
        let (start, before) = (self.output.len(), self.encoder.version());
        let mut status = 0;
        self.send_headers(stream, is_end, |fields| {
            write(fields);
            status = fields.head.status;
        });
        let block = self.output.get(start + HEADER_BYTES..)?;
        let version = self.encoder.version()?;
        // Bytes of indexed fields have this bit (RFC 7541 §6.1).
        let is_indexed = block.iter().all(|byte| byte & 0x80 != 0);
        if before != Some(version) || !is_indexed || block.len() > BLOCK_BYTES_MAX || status < 200 {
            return None;
        }
        let mut head =
            RepeatableHead { block: [0; BLOCK_BYTES_MAX], len: block.len() as u8, status, version };
        head.block[..block.len()].copy_from_slice(block);
        Some(head)
    }

    /// Sends a head again. Returns false, with nothing sent, if its encoding is no longer valid.
    /// Does nothing, successfully, if the stream is over or has its head.
    #[inline]
    #[must_use]
    pub fn repeat_headers(&mut self, stream: StreamKey, is_end: bool, head: &RepeatableHead) -> bool {
        if self.encoder.version() != Some(head.version) {
            return false;
        }
        let is_new = self.streams.get_open(stream).is_some_and(|open| open.send == Progress::Head);
        if is_new {
            let block = &head.block[..usize::from(head.len)];
            let flags = flag::END_HEADERS | if is_end { flag::END_STREAM } else { 0 };
            frame::write_header(&mut self.output, block.len(), frame_type::HEADERS, flags, stream.id);
            self.output.extend_from_slice(block);
            let written = WrittenHead { status: head.status, ..WrittenHead::default() };
            self.apply_sent_head(stream, written, is_end);
        }
        true
    }
}
