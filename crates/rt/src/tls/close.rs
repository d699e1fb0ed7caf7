//! End of a session: close_notify, the order of the ends, and the check for an end that has arrived.

use std::io;
use std::net::Shutdown;

use super::session::{End, READS_WITHOUT_CONTENT_MAX, TlsStream};

/// Maximum length of an alert as a record.
const ALERT_BYTES_MAX: usize = 128;
/// Maximum number of reads of bytes that nobody wants, before the socket is closed.
const DISCARDED_READS_MAX: usize = 4;
const DISCARD_BYTES: usize = 16 * 1024;

impl TlsStream {
    /// Returns true if neither content nor an end has arrived. Records that carry none, such as
    /// session tickets, are processed. No task is woken when that changes, and the task that waits
    /// stays registered.
    pub(crate) fn is_idle(&mut self) -> bool {
        for _ in 0..READS_WITHOUT_CONTENT_MAX {
            if self.has_content() || self.end.is_some() {
                return false;
            }
            if self.session.common().is_handshaking() {
                return true;
            }
            match self.try_receive() {
                None => return true,
                Some(Err(_)) => return false,
                Some(Ok(_)) => {}
            }
        }
        true
    }

    /// Ends the own direction: sends close_notify, as far as the socket accepts it now.
    fn send_close_notify(&mut self) {
        let is_open = !self.session.common().is_handshaking() && !matches!(self.end, Some(End::Failed(_)));
        if !std::mem::take(&mut self.sends_close_notify) || !is_open {
            return;
        }
        let mut alert = [0; ALERT_BYTES_MAX];
        if let Ok(bytes) = self.write_records(&mut alert, |traffic, output| traffic.close(output)) {
            self.outgoing.extend_from_slice(&alert[..bytes]);
            self.try_flush();
        }
    }

    /// Sends what the socket accepts without a wait. Errors are those of the next poll, too.
    fn try_flush(&mut self) {
        while !self.is_flushed() {
            match self.transport.try_write(&self.outgoing[self.outgoing_sent..]) {
                Some(Ok(sent)) if sent > 0 => self.outgoing_sent += sent,
                _ => return,
            }
        }
    }

    /// Makes the close a plain one: the peer receives no close_notify.
    pub(crate) fn abort(&mut self) {
        self.sends_close_notify = false;
    }

    /// Ends the own direction with close_notify, and shuts down the socket's once the kernel has
    /// accepted that: at once, or in a later poll.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn shut_down(&mut self, how: Shutdown) -> io::Result<()> {
        self.send_close_notify();
        // A write that was given up ends the stream in the middle.
        if self.is_flushed() || how == Shutdown::Both || self.unfinished_write.is_some() {
            return self.transport.shutdown(how);
        }
        self.shuts_down_after_flush = true;
        Ok(())
    }

    /// Discards received bytes: a close with unread bytes is a reset, which may destroy what the peer
    /// has not read. Returns true if the peer has closed its direction of the socket.
    fn discard_received(&mut self) -> bool {
        let mut discarded = [0; DISCARD_BYTES];
        for _ in 0..DISCARDED_READS_MAX {
            match self.transport.discard(&mut discarded) {
                None => return false,
                Some(0) => return true,
                Some(_) => {}
            }
        }
        false
    }
}

impl Drop for TlsStream {
    /// Closes the session. A peer that has closed its socket reads no close_notify: its kernel would
    /// respond with a reset. Whoever waits for one without a close gets it by a shutdown.
    fn drop(&mut self) {
        if self.sends_close_notify && !self.discard_received() {
            self.send_close_notify();
        }
    }
}
