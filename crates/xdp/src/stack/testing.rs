//! Links in memory for tests, with faults that a seed decides.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::{Link, StackConfig};

/// Faults of a link, in per mille of its frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    /// Frames that overtake others.
    pub(crate) reordered: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Wire {
    frames: VecDeque<Vec<u8>>,
}

/// One end: what it sends arrives at the other one.
#[derive(Debug)]
pub(crate) struct MemoryLink {
    incoming: Rc<RefCell<Wire>>,
    outgoing: Rc<RefCell<Wire>>,
    faults: Faults,
    random: u64,
}

/// Returns the two ends of a link.
pub(crate) fn pair(faults: Faults, seed: u64) -> (MemoryLink, MemoryLink) {
    let (a, b) = (Rc::<RefCell<Wire>>::default(), Rc::<RefCell<Wire>>::default());
    let end = |incoming: &Rc<RefCell<Wire>>, outgoing: &Rc<RefCell<Wire>>, random| MemoryLink {
        incoming: Rc::clone(incoming),
        outgoing: Rc::clone(outgoing),
        faults,
        random,
    };
    (end(&a, &b, seed | 1), end(&b, &a, (seed << 1) | 1))
}

impl MemoryLink {
    /// Returns a number below 1,000 (xorshift).
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000
    }
}

impl Link for MemoryLink {
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let frame = self.incoming.borrow_mut().frames.pop_front()?;
        buffer[..frame.len()].copy_from_slice(&frame);
        Some(frame.len())
    }

    fn end_receive(&mut self) {}

    fn has_space(&mut self) -> bool {
        true
    }

    fn transmit<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        let draws = [self.draw(), self.draw(), self.draw()];
        let frames = &mut self.outgoing.borrow_mut().frames;
        if draws[0] < self.faults.lost {
            return result;
        }
        if draws[1] < self.faults.duplicated {
            frames.push_back(frame.clone());
        }
        let at = if draws[2] < self.faults.reordered { frames.len().saturating_sub(3) } else { frames.len() };
        frames.insert(at, frame);
        result
    }

    fn flush(&mut self) {}
}

/// Returns the settings of a stack at an address that listens on port 80.
pub(crate) fn config(address: [u8; 4]) -> StackConfig {
    let last = address[3];
    let address = std::net::IpAddr::from(address);
    StackConfig {
        mac: [2, 0, 0, 0, 0, last],
        mtu: 1_500,
        addresses: vec![address],
        listen: vec![(address, 80).into()],
        ports: 10_000..=10_099,
        verifies_checksums: true,
        connections_max: 100,
        half_open_max: 4,
        seed: 7,
        queues: 1,
        queue: 0,
        steering: None,
    }
}
