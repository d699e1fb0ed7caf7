//! Frames of connections that another queue of the interface has. A peer may change the queue of a connection: the TCP of
//! Linux chooses a new hash after a retransmission, and a veth pair and some switches take the queue from it. Each queue
//! gives a segment that it does not know to the next one, until all have seen it.

use std::collections::VecDeque;

/// Maximum number of frames that wait for the next queue. Further ones are lost, as on a full ring.
pub(super) const HANDED_FRAMES_MAX: usize = 1_024;

/// Frame on its way from queue to queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedFrame {
    pub(super) bytes: Vec<u8>,
    /// Number of queues that do not know its connection.
    pub(super) seen: u32,
}

/// Frames for the next queue.
#[derive(Debug, Default)]
pub(super) struct Handover {
    frames: VecDeque<HandedFrame>,
}

impl Handover {
    /// Adds a frame; `false`: too many wait.
    pub(super) fn push(&mut self, frame: HandedFrame) -> bool {
        let has_space = self.frames.len() < HANDED_FRAMES_MAX;
        if has_space {
            self.frames.push_back(frame);
        }
        has_space
    }

    pub(super) fn pop(&mut self) -> Option<HandedFrame> {
        self.frames.pop_front()
    }
}
