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

/// Frames for the next queue. A queue receives about as many from another one as it hands over, so that it uses the memory
/// of those for its own.
#[derive(Debug, Default)]
pub(super) struct Handover {
    frames: VecDeque<HandedFrame>,
    /// Memory of received frames, at most [`HANDED_FRAMES_MAX`].
    spare: Vec<Vec<u8>>,
}

impl Handover {
    /// Adds a copy of a frame; `false`: too many wait.
    pub(super) fn push(&mut self, frame: &[u8], seen: u32) -> bool {
        if self.frames.len() >= HANDED_FRAMES_MAX {
            return false;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        self.frames.push_back(HandedFrame { bytes, seen });
        true
    }

    /// Keeps the memory of a processed frame for the next one.
    pub(super) fn recycle(&mut self, frame: HandedFrame) {
        if self.spare.len() < HANDED_FRAMES_MAX {
            self.spare.push(frame.bytes);
        }
    }

    pub(super) fn pop(&mut self) -> Option<HandedFrame> {
        self.frames.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_processed_frame_is_used_again_and_bounded() {
        let mut handover = Handover::default();
        assert!(handover.push(&[1; 60], 1));
        let frame = handover.pop().unwrap();
        let memory = frame.bytes.as_ptr();
        handover.recycle(frame);
        assert!(handover.push(&[2; 40], 2));
        let frame = handover.pop().unwrap();
        assert_eq!((frame.bytes.as_ptr(), &frame.bytes[..], frame.seen), (memory, &[2; 40][..], 2));
        for _ in 0..=HANDED_FRAMES_MAX {
            handover.recycle(HandedFrame { bytes: Vec::new(), seen: 1 });
        }
        assert_eq!(handover.spare.len(), HANDED_FRAMES_MAX);
        let pushed = (0..=HANDED_FRAMES_MAX).filter(|_| handover.push(&[3], 1)).count();
        assert_eq!(pushed, HANDED_FRAMES_MAX);
    }
}
