//! Layout of frames (RFC 9113 §4.1 and §6): headers of frames, and frames of a fixed layout.

use super::fault::ErrorCode;

/// Length of a frame header.
pub(super) const HEADER_BYTES: usize = 9;

/// Frame types (RFC 9113 §6).
pub(super) mod frame_type {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
}

/// Flags (RFC 9113 §6).
pub(super) mod flag {
    pub(in super::super) const ACK: u8 = 0x1;
    pub(in super::super) const END_STREAM: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// Identifiers of settings (RFC 9113 §6.5.2, RFC 8441 §3).
pub(super) mod setting {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in super::super) const ENABLE_PUSH: u16 = 2;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in super::super) const MAX_FRAME_SIZE: u16 = 5;
    pub(in super::super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(in super::super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) len: usize,
    pub(super) frame_type: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, frame_type, flags, s0, s1, s2, s3] = bytes.first_chunk::<HEADER_BYTES>()?;
        Some(Self {
            len: u32::from_be_bytes([0, a, b, c]) as usize,
            frame_type,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & STREAM_ID_MAX,
        })
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub(super) const STREAM_ID_MAX: u32 = 0x7fff_ffff;

/// Parses a number at the start of a payload whose length was checked.
#[inline]
pub(super) fn read_u32(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes))
}

#[inline]
pub(super) fn write_header(out: &mut Vec<u8>, len: usize, frame_type: u8, flags: u8, stream: u32) {
    let [_, a, b, c] = (len as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, frame_type, flags, s0, s1, s2, s3]);
}

/// Writes a `RST_STREAM` frame.
pub(super) fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write_header(out, 4, frame_type::RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(super) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_header(out, 4, frame_type::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(super) fn write_ping(out: &mut Vec<u8>, flags: u8, payload: u64) {
    write_header(out, 8, frame_type::PING, flags, 0);
    out.extend_from_slice(&payload.to_be_bytes());
}

/// Writes a `GOAWAY` frame without debug data.
pub(super) fn write_go_away(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode) {
    write_header(out, 8, frame_type::GOAWAY, 0, 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Writes one setting into the payload of a `SETTINGS` frame.
pub(super) fn write_setting(out: &mut Vec<u8>, identifier: u16, value: u32) {
    out.extend_from_slice(&identifier.to_be_bytes());
    out.extend_from_slice(&value.to_be_bytes());
}
