//! Protection against frames that cost this end more than the peer (RFC 9113 §10.5), without a
//! clock.
//!
//! Two balances grow with frames without a use and shrink with useful ones:
//! - *churn*: requests that the peer cancels, or breaks so that this end resets them, before their
//!   response begins. A response that begins, or a stream that completes, compensates one.
//! - *flood*: control frames, empty frames, tiny window updates. Content and completed streams
//!   compensate them, and so does each read: a peer that sends one PING at a time for hours is not a
//!   flood, whereas a flood arrives faster than it is read.

use super::fault::FaultKind;

/// Numbers of frames that a flood would consist of, since the begin of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Streams that the peer has reset.
    pub resets_received: u64,
    /// Streams that were cancelled by the peer, or reset for its fault, before their response.
    pub rapid_resets: u64,
    /// Streams beyond the limit.
    pub refused_streams: u64,
    /// DATA, CONTINUATION and unknown frames without content.
    pub empty_frames: u64,
    /// PING frames, without acknowledgements.
    pub pings: u64,
    pub settings: u64,
    pub priorities: u64,
    /// WINDOW_UPDATE frames of less than 128 bytes.
    pub tiny_window_updates: u64,
    /// Frames of streams that are over.
    pub late_frames: u64,
}

/// Class of a frame without a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloodClass {
    RefusedStream,
    EmptyFrame,
    Ping,
    Settings,
    Priority,
    TinyWindowUpdate,
    LateFrame,
}

#[derive(Debug)]
pub(super) struct AbuseBalance {
    churn: i32,
    flood: i32,
    max: i32,
    /// Frames were received since the input was exhausted.
    pub(super) has_new_frames: bool,
    pub(super) counters: Counters,
}

impl AbuseBalance {
    pub(super) fn new(max: u32) -> Self {
        let max = i32::try_from(max).unwrap_or(i32::MAX / 2).min(i32::MAX / 2);
        Self { churn: 0, flood: 0, max, has_new_frames: false, counters: Counters::default() }
    }

    /// Counts a frame without a use.
    pub(super) fn charge(&mut self, class: FloodClass) -> Result<(), FaultKind> {
        let counters = &mut self.counters;
        let counter = match class {
            FloodClass::RefusedStream => &mut counters.refused_streams,
            FloodClass::EmptyFrame => &mut counters.empty_frames,
            FloodClass::Ping => &mut counters.pings,
            FloodClass::Settings => &mut counters.settings,
            FloodClass::Priority => &mut counters.priorities,
            FloodClass::TinyWindowUpdate => &mut counters.tiny_window_updates,
            FloodClass::LateFrame => &mut counters.late_frames,
        };
        *counter += 1;
        self.flood += 1;
        if self.flood > self.max { Err(FaultKind::EnhanceYourCalm) } else { Ok(()) }
    }

    /// Counts a request that ended before its response began.
    pub(super) fn charge_rapid_reset(&mut self) -> Result<(), FaultKind> {
        self.counters.rapid_resets += 1;
        self.churn += 1;
        if self.churn > self.max { Err(FaultKind::EnhanceYourCalm) } else { Ok(()) }
    }

    /// Credits the begin of a response, or the end of a stream.
    #[inline]
    pub(super) fn credit_stream(&mut self) {
        self.churn = (self.churn - 1).max(-self.max);
        self.credit_frame();
    }

    #[inline]
    pub(super) fn credit_frame(&mut self) {
        self.flood = (self.flood - 2).max(-self.max);
    }

    /// Credits a read: the input is exhausted.
    #[inline]
    pub(super) fn credit_read(&mut self) {
        if self.has_new_frames {
            self.has_new_frames = false;
            self.flood -= i32::from(self.flood > 0);
        }
    }
}
