//! Content from files in a response over HTTP/2: as much as the windows allow, so that a stream that waits
//! keeps nothing in memory.

use wire::h2::{FieldEncoder, StreamKey};

use crate::core::OriginCore;
use content::body::{FileBody, Prepared, SLICE_BYTES};
use content::respond::FileResponse;

use super::Http2Conn;
use super::exchange::Content;
use super::request::Http2Request;

/// Cost of encoding a slice of content, in bytes of the budget of a poll.
const ENCODED_SLICE_COST_BYTES: u64 = 256 * 1024;

pub(super) enum SentContent {
    All,
    /// A frame; more follows.
    Frame,
    /// Nothing: the windows are full.
    Blocked,
    /// Nothing: the file cannot be read to its end.
    Failed,
    /// Nothing yet: the encoder collects more.
    Encoding,
}

impl Http2Conn<'_> {
    pub(super) fn send_file_head(
        &mut self,
        core: &OriginCore,
        stream: StreamKey,
        request: &Http2Request,
        file: FileResponse,
    ) -> Content {
        self.wire.send_headers(stream, file.body.is_empty(), |fields| {
            request.spec.write_fields(fields, request.properties, &core.dates.http(), false);
            write_lines(fields, &file.fields);
        });
        self.output.responses += 1;
        core.counters.count_response(file.status);
        Content::File(file.body)
    }

    /// Adds the line of a response from files to the access log, once, with its sent bytes.
    pub(super) fn log_file(
        &self,
        core: &OriginCore,
        request: &mut Http2Request,
        content: &Content,
        failed_status: Option<u16>,
    ) {
        if let Content::File(body) = content
            && let Some(logged_request) = request.logged_request.take()
        {
            let mut line = Vec::new();
            let status = failed_status.unwrap_or(request.spec.status);
            logged_request.write_line_end(status, body.sent_bytes(), &mut line);
            core.log_line(self.conn.peer.as_deref(), &line);
        }
    }

    /// Sends a slice of a file in DATA frames: as much as the windows allow, so that a stream that waits keeps
    /// nothing in memory.
    pub(super) fn send_file_slice(
        &mut self,
        core: &OriginCore,
        stream: StreamKey,
        body: &mut FileBody,
    ) -> SentContent {
        let sendable = self.wire.sendable_bytes(stream).min(SLICE_BYTES);
        if sendable == 0 {
            body.release_memory();
            return SentContent::Blocked;
        }
        let slice = &mut *core.file_slice.borrow_mut();
        if body.read_range(sendable, slice).is_err() {
            return SentContent::Failed;
        }
        let mut rest = slice.as_slice();
        while !rest.is_empty() {
            let sent = self.wire.begin_data_frame(stream, rest.len(), body.is_empty());
            if sent == 0 {
                // Returned only for a stream that is over: the windows have room for the slice.
                return SentContent::Failed;
            }
            self.wire.output().extend_from_slice(&rest[..sent]);
            rest = &rest[sent..];
        }
        if body.is_empty() { SentContent::All } else { SentContent::Frame }
    }

    /// Sends one DATA frame of content from files that is in memory or encoded.
    pub(super) fn send_file_frame(&mut self, stream: StreamKey, body: &mut FileBody) -> SentContent {
        if body.is_encoding_next() {
            // A stream that waits encodes nothing ahead.
            if self.wire.sendable_bytes(stream) == 0 {
                body.release_memory();
                return SentContent::Blocked;
            }
            self.output.spend_poll_budget(ENCODED_SLICE_COST_BYTES);
        }
        let bytes = match body.prepare() {
            Ok(Prepared::Ready) => body.ready().len(),
            Ok(Prepared::Again) => return SentContent::Encoding,
            Ok(Prepared::End) => {
                self.wire.begin_data_frame(stream, 0, true);
                return SentContent::All;
            }
            Err(_) => return SentContent::Failed,
        };
        let sent = self.wire.begin_data_frame(stream, bytes, body.is_last());
        if sent == 0 {
            return SentContent::Blocked;
        }
        self.wire.output().extend_from_slice(&body.ready()[..sent]);
        body.advance(sent);
        if body.is_empty() { SentContent::All } else { SentContent::Frame }
    }
}

/// Writes fields that are lines of HTTP/1.1.
fn write_lines(fields: &mut FieldEncoder<'_>, lines: &[u8]) {
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let Ok(name) = std::str::from_utf8(&line[..colon]) else { continue };
        fields.field(name, line[colon + 1..].trim_ascii_start());
    }
}
