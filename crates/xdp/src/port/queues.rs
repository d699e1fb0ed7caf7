//! The four rings of a socket and the memory of its frames: how frames go from ring to ring. It makes no call, so that its tests
//! give it memory of their own and play the kernel, also under Miri.
//!
//! Invariant: a frame belongs to the kernel (in the fill or the transmit ring) or to this side (received and not returned, or
//! in `free`), never to both.

use super::PortCounters;
use crate::ring::{Consumer, Producer, RingPointers};

/// Descriptor of a frame in a receive or transmit ring (`struct xdp_desc`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) options: u32,
}

/// Memory of frames of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameMemory {
    pub(super) start: *mut u8,
    pub(super) bytes: usize,
    pub(super) frame_bytes: u32,
}

/// Rings of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rings {
    pub(super) receive: RingPointers<Descriptor>,
    pub(super) transmit: RingPointers<Descriptor>,
    pub(super) fill: RingPointers<u64>,
    pub(super) completion: RingPointers<u64>,
}

/// Rings and frames. The first frames, as many as the fill ring has entries, are received into; the others are sent from.
#[derive(Debug)]
pub(super) struct Queues {
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    /// Frames that may be sent from.
    free: Vec<u64>,
    memory: FrameMemory,
    /// Bytes of the frames that are received into.
    receive_bytes: u64,
    /// Number of frames that are sent from.
    send_frames: usize,
    /// True if frames were queued since the last call that sends them.
    has_queued: bool,
    has_received: bool,
    /// Content of frames that are sent while no frame is free: nobody reads it.
    discarded: Vec<u8>,
    pub(super) counters: PortCounters,
}

impl Queues {
    /// Wraps new rings, and gives the kernel the frames to receive into.
    ///
    /// # Safety
    /// The pointers of the rings are as [`Producer::new`] asks for. The memory is valid for as long as the value is used,
    /// has at least as many frames as the fill and the transmit ring together have entries, and nobody else in this process
    /// uses it.
    #[allow(unsafe_code)]
    pub(super) unsafe fn new(rings: Rings, memory: FrameMemory) -> Self {
        let (fill_entries, send_frames) = (rings.fill.size, rings.transmit.size);
        let address = |frame: u32| u64::from(frame) * u64::from(memory.frame_bytes);
        // SAFETY: the caller's.
        let mut queues = unsafe {
            Self {
                receive: Consumer::new(rings.receive),
                transmit: Producer::new(rings.transmit),
                fill: Producer::new(rings.fill),
                completion: Consumer::new(rings.completion),
                free: (fill_entries..fill_entries + send_frames).map(address).collect(),
                memory,
                receive_bytes: address(fill_entries),
                send_frames: send_frames as usize,
                has_queued: false,
                has_received: false,
                discarded: vec![0; memory.frame_bytes as usize],
                counters: PortCounters::default(),
            }
        };
        for frame in 0..fill_entries {
            queues.fill.push(address(frame));
        }
        queues.fill.publish();
        queues
    }

    /// Returns `length` bytes of the memory at `address`; `None` if they are not all in one frame.
    #[allow(unsafe_code)]
    fn frame_mut(&mut self, address: u64, length: usize) -> Option<&mut [u8]> {
        let frame_bytes = u64::from(self.memory.frame_bytes);
        let end = (address % frame_bytes).checked_add(length as u64)?;
        if end > frame_bytes || address.checked_add(length as u64)? > self.memory.bytes as u64 {
            return None;
        }
        // SAFETY: the range is within the memory, which is valid as long as `self` (`new`). The frame belongs to this side:
        // it was received and not returned to the fill ring, or is in `free` and not queued. The borrow of `self` is
        // exclusive.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.start.add(address as usize), length) })
    }

    /// Copies the next received frame, and returns its length: 0 for one with a wrong descriptor.
    #[inline]
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let Descriptor { address, length, .. } = self.receive.pop()?;
        self.has_received = true;
        let length = length as usize;
        let received = match self.frame_mut(address, length) {
            Some(frame) if length <= buffer.len() => {
                buffer[..length].copy_from_slice(frame);
                self.counters.received += 1;
                length
            }
            _ => {
                self.counters.invalid += 1;
                0
            }
        };
        if address < self.receive_bytes {
            self.fill.push(address - address % u64::from(self.memory.frame_bytes));
        }
        Some(received)
    }

    /// Returns the memory of received frames to the kernel; `true`: it has to be woken.
    pub(super) fn end_receive(&mut self) -> bool {
        if !std::mem::take(&mut self.has_received) {
            return false;
        }
        self.fill.publish();
        self.receive.release();
        self.fill.needs_wakeup()
    }

    /// Returns whether a frame is free.
    #[inline]
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Queues a frame of `length` bytes, which `fill` writes. Without a free frame it is lost.
    #[inline]
    pub(super) fn transmit<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let is_frame = length <= self.memory.frame_bytes as usize;
        let Some(address) = is_frame.then(|| self.free.pop()).flatten() else {
            self.counters.unsent += 1;
            self.discarded.resize(self.discarded.len().max(length), 0);
            return fill(&mut self.discarded[..length]);
        };
        // Invariant: addresses in `free` are starts of frames, and `length` is at most their size.
        let result = fill(self.frame_mut(address, length).expect("a free frame is in the memory"));
        let is_queued = self.transmit.push(Descriptor { address, length: length as u32, options: 0 });
        debug_assert!(is_queued, "the ring has as many entries as there are frames");
        self.has_queued = true;
        self.counters.sent += 1;
        result
    }

    /// Returns whether frames wait that the kernel has not taken.
    pub(super) fn has_unsent(&mut self) -> bool {
        self.has_queued || self.transmit.pending() > 0
    }

    /// Shows the kernel what is queued.
    pub(super) fn publish(&mut self) {
        self.transmit.publish();
        self.has_queued = false;
    }

    /// Returns whether the kernel has to be called, so that it sends what is published.
    pub(super) fn needs_send_call(&mut self) -> bool {
        self.transmit.needs_wakeup() && self.transmit.pending() > 0
    }

    /// Takes back the frames that were sent.
    pub(super) fn complete(&mut self) {
        let mut has_completed = false;
        while let Some(address) = self.completion.pop() {
            has_completed = true;
            // The kernel returns what was queued; anything else must not be used.
            let is_of_sending = (self.receive_bytes..self.memory.bytes as u64).contains(&address);
            if is_of_sending && self.free.len() < self.send_frames {
                self.free.push(address - address % u64::from(self.memory.frame_bytes));
            }
        }
        if has_completed {
            self.completion.release();
        }
    }
}

#[cfg(test)]
mod tests;
