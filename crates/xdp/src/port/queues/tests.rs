//! The queues over memory of the test, which plays the kernel: frames in any order, wrong descriptors, full rings.

#![allow(unsafe_code, reason = "the memory is the test's")]

use std::cell::UnsafeCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU32;

use super::*;

const FILL: u32 = 8;
const RECEIVE: u32 = 4;
const TRANSMIT: u32 = 4;
const FRAME_BYTES: u32 = 64;

/// Indices and entries of one ring.
struct RingMemory<T> {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    entries: UnsafeCell<Vec<T>>,
}

impl<T: Copy + Default> RingMemory<T> {
    fn new(size: u32) -> Self {
        Self {
            producer: AtomicU32::new(0),
            consumer: AtomicU32::new(0),
            flags: AtomicU32::new(1),
            entries: UnsafeCell::new(vec![T::default(); size as usize]),
        }
    }

    fn pointers(&self, size: u32) -> RingPointers<T> {
        RingPointers {
            producer: &raw const self.producer,
            consumer: &raw const self.consumer,
            flags: &raw const self.flags,
            // SAFETY: the vector is not moved or resized while the pointer is used.
            entries: unsafe { (*self.entries.get()).as_mut_ptr() },
            size,
        }
    }
}

/// Memory of a socket, and the kernel's ends of its rings.
struct World {
    // Dropped before the memory.
    queues: Queues,
    received: Producer<Descriptor>,
    sent: Consumer<Descriptor>,
    to_fill: Consumer<u64>,
    completed: Producer<u64>,
    start: *mut u8,
    memory: UnsafeCell<Vec<u8>>,
    _descriptors: Rc<[RingMemory<Descriptor>; 2]>,
    _addresses: Rc<[RingMemory<u64>; 2]>,
}

impl World {
    fn new() -> Self {
        let memory = UnsafeCell::new(vec![0_u8; ((FILL + TRANSMIT) * FRAME_BYTES) as usize]);
        let descriptors = Rc::new([RingMemory::new(RECEIVE), RingMemory::new(TRANSMIT)]);
        let addresses = Rc::new([RingMemory::new(FILL), RingMemory::new(TRANSMIT)]);
        let rings = Rings {
            receive: descriptors[0].pointers(RECEIVE),
            transmit: descriptors[1].pointers(TRANSMIT),
            fill: addresses[0].pointers(FILL),
            completion: addresses[1].pointers(TRANSMIT),
        };
        // SAFETY: the vector and the counted pointers keep the memory in place until the value ends, and each side of a ring is used once.
        unsafe {
            let bytes = (*memory.get()).len();
            let start = (*memory.get()).as_mut_ptr();
            Self {
                queues: Queues::new(rings, FrameMemory { start, bytes, frame_bytes: FRAME_BYTES }),
                received: Producer::new(rings.receive),
                sent: Consumer::new(rings.transmit),
                to_fill: Consumer::new(rings.fill),
                completed: Producer::new(rings.completion),
                start,
                memory,
                _descriptors: descriptors,
                _addresses: addresses,
            }
        }
    }

    /// Receives a frame as the kernel does, with 16 bytes of headroom; `false`: no frame or no entry is free.
    fn deliver(&mut self, content: &[u8]) -> bool {
        if self.received.free() == 0 {
            return false;
        }
        let Some(address) = self.to_fill.pop() else { return false };
        self.to_fill.release();
        let address = address + 16;
        // SAFETY: a frame of the fill ring belongs to the kernel, and the content fits into it.
        unsafe {
            self.start.add(address as usize).copy_from_nonoverlapping(content.as_ptr(), content.len());
        }
        self.received.push(Descriptor { address, length: content.len() as u32, options: 0 });
        self.received.publish();
        true
    }

    /// Takes the next sent frame as the kernel does, and completes it.
    fn take(&mut self) -> Option<Vec<u8>> {
        let Descriptor { address, length, .. } = self.sent.pop()?;
        self.sent.release();
        // SAFETY: a frame of the transmit ring belongs to the kernel.
        let content =
            unsafe { std::slice::from_raw_parts(self.start.add(address as usize), length as usize).to_vec() };
        assert!(self.completed.push(address));
        self.completed.publish();
        Some(content)
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; FRAME_BYTES as usize];
        self.queues.receive(&mut buffer).map(|length| buffer[..length].to_vec())
    }
}

#[test]
fn frames_arrive_and_return_to_the_kernel_over_many_turns() {
    let mut world = World::new();
    for turn in 0..50_u8 {
        let mut delivered = 0;
        while world.deliver(&[turn, delivered]) {
            delivered += 1;
        }
        assert_eq!(delivered, RECEIVE as u8);
        for number in 0..delivered {
            assert_eq!(world.receive(), Some(vec![turn, number]));
        }
        assert_eq!(world.receive(), None);
        assert!(world.queues.end_receive() && !world.queues.end_receive());
    }
    // Without `end_receive` the kernel has neither entries nor, in the end, frames.
    assert!(world.deliver(b"x") && world.receive().is_some());
    assert_eq!(world.queues.counters.received, 50 * u64::from(RECEIVE) + 1);
}

#[test]
fn frames_are_sent_and_a_full_ring_loses_what_does_not_fit() {
    let mut world = World::new();
    for turn in 0..50_u8 {
        for number in 0..TRANSMIT as u8 {
            assert!(world.queues.has_free());
            assert_eq!(
                world.queues.transmit(3, |frame| {
                    frame.copy_from_slice(&[turn, number, 7]);
                    5
                }),
                5
            );
        }
        assert!(!world.queues.has_free() && world.take().is_none());
        let lost = world.queues.transmit(3, |frame| frame.len());
        assert_eq!((lost, world.queues.counters.unsent), (3, u64::from(turn) * 2 + 1));
        // A frame that is too long is lost, too.
        assert_eq!(world.queues.transmit(200, |frame| frame.len()), 200);
        world.queues.publish();
        assert!(world.queues.has_unsent() && world.queues.needs_send_call());
        for number in 0..TRANSMIT as u8 {
            assert_eq!(world.take(), Some(vec![turn, number, 7]));
        }
        assert!(!world.queues.needs_send_call() && !world.queues.has_free());
        world.queues.complete();
        assert_eq!(world.queues.free.len(), TRANSMIT as usize);
    }
    assert_eq!(world.queues.counters.sent, 50 * u64::from(TRANSMIT));
}

#[test]
fn wrong_descriptors_touch_no_memory() {
    let mut world = World::new();
    let end = u64::from((FILL + TRANSMIT) * FRAME_BYTES);
    let wrong = [
        (0, FRAME_BYTES + 1),
        (16, FRAME_BYTES),
        (end, 1),
        (end - 1, 2),
        (u64::MAX, 1),
        (u64::MAX - 3, 64),
        (0, u32::MAX),
    ];
    for (number, (address, length)) in (1..).zip(wrong) {
        world.received.push(Descriptor { address, length, options: 0 });
        world.received.publish();
        assert_eq!(world.receive(), Some(Vec::new()), "{address} {length}");
        world.queues.end_receive();
        assert_eq!(world.queues.counters.invalid, number);
    }
    // A frame that is longer than the buffer of the caller.
    assert!(world.deliver(&[1; 20]));
    assert_eq!((world.queues.receive(&mut [0; 19]), world.queues.counters.received), (Some(0), 0));
    // Completions of what was never sent: outside of the memory, or more than there are frames.
    for address in [end, u64::MAX, 0, 64] {
        assert!(world.completed.push(address));
    }
    world.completed.publish();
    world.queues.complete();
    assert_eq!(world.queues.free.len(), TRANSMIT as usize);
    assert_eq!(world.memory.get_mut().len(), end as usize);
}

/// Ends of a ring that go to another thread.
struct Sent<T>(T);

// SAFETY: each end is used by one thread, and the memory outlives both (they are scoped).
unsafe impl<T> Send for Sent<T> {}

#[test]
fn the_two_ends_of_a_ring_may_be_in_two_threads() {
    /// Entries; fewer under Miri, which is slow.
    const COUNT: u64 = if cfg!(miri) { 300 } else { 100_000 };
    let memory = RingMemory::<u64>::new(8);
    let pointers = memory.pointers(8);
    // SAFETY: the memory outlives the threads, and each end is used by one of them.
    let (from, to) = unsafe { (Sent(Producer::new(pointers)), Sent(Consumer::new(pointers))) };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let Sent(mut from) = { from };
            let mut next = 0;
            while next < COUNT {
                match from.push(next) {
                    true => next += 1,
                    false => std::thread::yield_now(),
                }
                from.publish();
            }
        });
        let Sent(mut to) = to;
        for expected in 0..COUNT {
            let entry = loop {
                match to.pop() {
                    Some(entry) => break entry,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(entry, expected);
            to.release();
        }
    });
}
