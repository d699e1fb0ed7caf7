//! DATA frames whose content the caller writes: content that is sent from elsewhere is not copied.

use super::config::StreamKey;
use super::connection::Connection;
use super::frame::{self, flag, frame_type};
use super::streams::Progress;

impl Connection {
    /// Begins one DATA frame for the first of `bytes` bytes of content: writes its header, and returns
    /// the number of content bytes, which the caller writes after the present output. Takes as much
    /// as the windows and the peer's frame size allow; less than `bytes` does not imply that the
    /// windows are exhausted. `is_end` counts only if all bytes are taken.
    ///
    /// Returns 0, with nothing written, if the windows are exhausted: an event reports when the stream
    /// may send again. It is also 0, with an empty frame, for no bytes with `is_end`.
    #[inline]
    pub fn begin_data_frame(&mut self, stream: StreamKey, bytes: usize, is_end: bool) -> usize {
        let connection_window = self.send_window;
        let Some(open) = self.streams.get_open(stream).filter(|open| open.send == Progress::Body) else {
            return 0;
        };
        let window = open.send_window.min(connection_window).max(0) as usize;
        let taken = bytes.min(window).min(self.peer.frame_bytes_max);
        let is_end = is_end && taken == bytes;
        if taken == 0 && !is_end {
            open.is_blocked |= open.send_window <= 0;
            self.is_send_blocked |= open.send_window > 0;
            return 0;
        }
        // Windows are less than 2^31.
        open.send_window -= taken as i32;
        self.send_window -= taken as i32;
        if is_end {
            open.send = Progress::Done;
        }
        let flags = if is_end { flag::END_STREAM } else { 0 };
        frame::write_header(&mut self.output, taken, frame_type::DATA, flags, stream.id);
        // The peer that opens its windows byte by byte gets no credit for the frames.
        if taken == bytes || taken >= 256 {
            self.abuse.credit_frame();
        }
        if is_end {
            self.finish_if_done(stream);
        }
        taken
    }
}
