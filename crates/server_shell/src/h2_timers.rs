//! Timers of a client's HTTP/2 connection: heads and frames in pieces, idle connections, and clients
//! that do not take their responses. No I/O and no clock.
//!
//! | Timer | Runs while | Prolonged by |
//! | --- | --- | --- |
//! | head | a frame or a head is incomplete | nothing: it ends with the frame, or with the head |
//! | idle | the connection has no stream | a complete request |
//! | write | output or content waits for the connection | bytes of responses that the client acknowledged |
//! | stream | content of a stream waits for the stream's own window | content of this stream |
//!
//! The timers are independent: none of them starts again because another one starts or ends. So no
//! frame of the client (PING, SETTINGS, WINDOW_UPDATE, PRIORITY, unknown ones) and no piece of one
//! prolongs a timer, unless a resource makes the progress that its timer protects.

use rt::clock::MonotonicTime;

use crate::progress::{ProgressRule, ProgressTimer};

/// Times of the timers.
#[derive(Clone, Copy, Debug)]
pub struct H2Timeouts {
    /// Maximum time of an incomplete frame, and of an incomplete head.
    pub head_ns: u64,
    /// Maximum time without a stream.
    pub idle_ns: u64,
    /// Minimum progress of each stream that has content for the client.
    pub write: ProgressRule,
}

/// Load of a connection, which decides what timers run.
#[derive(Clone, Copy, Debug)]
pub struct H2Load {
    /// True if requests are in progress.
    pub has_streams: bool,
    /// True if the socket has not accepted all output.
    pub has_unsent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum H2Timeout {
    /// A frame or a head was not completed in time.
    Head,
    /// There was no request for too long.
    Idle,
}

#[derive(Debug)]
pub struct H2Timers {
    incomplete: Incomplete,
    incomplete_since: MonotonicTime,
    /// Begin of the time without a stream; [`MonotonicTime::ZERO`]: there are streams.
    idle_since: MonotonicTime,
    write: ProgressTimer,
    /// Time of the next check of the client's progress.
    next_check: MonotonicTime,
}

/// Part of the input whose rest has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incomplete {
    Nothing,
    Frame,
    Head(u32),
}

/// Content of one stream that waits for the client.
#[derive(Clone, Copy, Debug)]
pub struct StreamBacklog {
    /// Content that was sent so far, from any start.
    pub sent_bytes: u64,
    /// Content that can be sent as far as the client allows; 0: none waits.
    pub unsent_bytes: u64,
    /// The stream's own window.
    pub window_bytes: u64,
    /// True if the client has acknowledged all that was sent: only then can it open the window.
    pub is_delivered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamWait {
    /// No content waits for the client.
    Nothing,
    /// The client has not opened the window of the stream.
    Window,
    /// Content waits for the connection: its socket, its window, or the turn of the stream.
    Connection,
    /// The client has opened the window of the stream too little for too long.
    Stalled,
}

/// Output of a connection, as a position in all bytes from its begin.
#[derive(Clone, Copy, Debug)]
pub struct OutputProgress {
    /// Bytes so far, with those that the socket has not accepted.
    pub queued_bytes: u64,
    /// Bytes that the socket has accepted.
    pub written_bytes: u64,
    /// The accepted bytes without those that the client has not acknowledged, from any start.
    pub confirmed_bytes: u64,
    /// Sum of [`control_bytes`].
    pub control_bytes: u64,
    /// Bytes that the client has not acknowledged.
    pub unacked_bytes: u64,
}

/// Check of all streams of a connection, and of the connection itself.
#[derive(Debug)]
pub struct WriteCheck {
    rule: ProgressRule,
    output: OutputProgress,
    now: MonotonicTime,
    /// Streams that wait for the connection.
    waiting: u64,
    has_backlog: bool,
}

/// Streams for each of which a connection must make the minimum progress; further ones are free. With
/// the default of 4 KiB in 30 s a client needs at most 2.2 kB/s.
const WAITING_MAX: u64 = 16;

/// Bytes by which TLS makes a record longer (RFC 8446 §5.2, RFC 5246 §6.2.3.3).
const RECORD_OVERHEAD: u64 = 29;

/// Returns the part of the output that is no progress of a response: frames that answer the client's
/// own ones. A client that has them sent and reads them takes nothing of its responses.
#[inline]
pub fn control_bytes(output_before: usize, output_after: usize) -> u64 {
    match output_after.saturating_sub(output_before) as u64 {
        0 => 0,
        bytes => bytes + RECORD_OVERHEAD,
    }
}

impl H2Timers {
    /// Creates the timers of a connection without a stream.
    #[must_use]
    pub fn new(now: MonotonicTime) -> Self {
        Self {
            incomplete: Incomplete::Nothing,
            incomplete_since: now,
            idle_since: now,
            write: ProgressTimer::default(),
            next_check: MonotonicTime::MAX,
        }
    }

    /// Notes handled input: `used` bytes belong to complete frames or to content, the rest is a part of a
    /// frame. `open_head` is the stream of an incomplete head.
    #[inline]
    pub fn note_input(&mut self, used: usize, has_rest: bool, open_head: Option<u32>, now: MonotonicTime) {
        let incomplete = match open_head {
            Some(stream) => Incomplete::Head(stream),
            None if has_rest => Incomplete::Frame,
            None => Incomplete::Nothing,
        };
        let is_same_frame = incomplete == Incomplete::Frame && used == 0;
        let is_same_head = matches!(incomplete, Incomplete::Head(_));
        if incomplete != self.incomplete || !is_same_frame && !is_same_head {
            self.incomplete_since = now;
        }
        self.incomplete = incomplete;
    }

    /// Notes the end of a request, or of a stream without one.
    #[inline]
    pub fn note_request(&mut self, now: MonotonicTime) {
        if self.idle_since != MonotonicTime::ZERO {
            self.idle_since = now;
        }
    }

    /// Returns the begin of the time without a stream; `None`: there are streams.
    pub fn idle_since(&self) -> Option<MonotonicTime> {
        Some(self.idle_since).filter(|since| *since != MonotonicTime::ZERO)
    }

    /// Starts and stops the timers. Returns the time at which the first of them may expire.
    #[inline]
    pub fn update(&mut self, timeouts: &H2Timeouts, load: H2Load, now: MonotonicTime) -> MonotonicTime {
        if load.has_streams {
            self.idle_since = MonotonicTime::ZERO;
        } else if self.idle_since == MonotonicTime::ZERO {
            self.idle_since = now;
        }
        if !load.has_streams && !load.has_unsent {
            self.next_check = MonotonicTime::MAX;
            self.write.stop();
        } else if self.next_check == MonotonicTime::MAX {
            self.next_check = now.saturating_add(timeouts.write.check_interval_ns());
        }
        self.next_check.min(self.head_due(timeouts)).min(self.idle_due(timeouts))
    }

    /// Returns whether [`H2Timers::update`] would change nothing while the connection has streams.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.incomplete == Incomplete::Nothing
            && self.idle_since == MonotonicTime::ZERO
            && self.next_check != MonotonicTime::MAX
    }

    fn head_due(&self, timeouts: &H2Timeouts) -> MonotonicTime {
        match self.incomplete {
            Incomplete::Nothing => MonotonicTime::MAX,
            Incomplete::Frame | Incomplete::Head(_) => self.incomplete_since.saturating_add(timeouts.head_ns),
        }
    }

    fn idle_due(&self, timeouts: &H2Timeouts) -> MonotonicTime {
        self.idle_since().map_or(MonotonicTime::MAX, |since| since.saturating_add(timeouts.idle_ns))
    }

    /// Returns the timeout that has passed.
    pub fn expired(&self, timeouts: &H2Timeouts, now: MonotonicTime) -> Option<H2Timeout> {
        if self.head_due(timeouts) <= now {
            return Some(H2Timeout::Head);
        }
        (self.idle_due(timeouts) <= now).then_some(H2Timeout::Idle)
    }

    /// Returns whether the progress of the client is to be checked now, see [`WriteCheck`].
    pub fn is_check_due(&self, now: MonotonicTime) -> bool {
        self.next_check <= now
    }

    /// Ends a check. Returns whether the client takes too little of its responses for too long.
    #[must_use]
    pub fn is_connection_stalled(&mut self, check: &WriteCheck, has_unsent: bool) -> bool {
        let WriteCheck { rule, output, now, waiting, has_backlog } = *check;
        self.next_check = now.saturating_add(rule.check_interval_ns());
        if !has_backlog && !has_unsent {
            self.write.stop();
            return false;
        }
        let rule = rule.times(waiting.clamp(1, WAITING_MAX));
        let confirmed_bytes = output.confirmed_bytes.wrapping_sub(output.control_bytes);
        // The timer goes on while the streams wait for their windows, which have timers of their own: a
        // client that opens and closes them prolongs none of the two.
        self.write.is_stalled(rule, confirmed_bytes, now) && (waiting > 0 || has_unsent)
    }
}

impl WriteCheck {
    #[must_use]
    pub fn new(timeouts: &H2Timeouts, output: OutputProgress, now: MonotonicTime) -> Self {
        Self { rule: timeouts.write, output, now, waiting: 0, has_backlog: false }
    }

    /// Returns whether the client has acknowledged the output up to a position.
    pub fn is_delivered(&self, position: u64) -> bool {
        let output = &self.output;
        let outstanding_bytes =
            (output.queued_bytes - output.written_bytes).saturating_add(output.unacked_bytes);
        output.queued_bytes.saturating_sub(position) >= outstanding_bytes
    }

    pub fn check_stream(&mut self, timer: &mut ProgressTimer, backlog: StreamBacklog) -> StreamWait {
        if backlog.unsent_bytes == 0 {
            timer.stop();
            return StreamWait::Nothing;
        }
        self.has_backlog = true;
        // A window byte by byte leaves the stream to wait for itself, and not for its turn.
        let is_starved = backlog.window_bytes < backlog.unsent_bytes.min(self.rule.bytes_min);
        if !is_starved || !backlog.is_delivered {
            timer.restart(backlog.sent_bytes, self.now);
            self.waiting += 1;
            return StreamWait::Connection;
        }
        match timer.is_stalled(self.rule, backlog.sent_bytes, self.now) {
            true => StreamWait::Stalled,
            false => StreamWait::Window,
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
