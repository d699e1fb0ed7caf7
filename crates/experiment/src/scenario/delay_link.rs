//! Delay link: takes packets from one TUN device, holds each for a while, and writes them to the
//! other in their order. It works on kernels without `netem`.
//!
//! Not for loss or rates: the kernel does those.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum size of a packet: that of IP.
const PACKET_BYTES_MAX: usize = 65_535;
/// Maximum number of packets in transit in one direction; further packets are dropped.
const PACKETS_MAX: usize = 65_536;
/// Maximum time until it notices a stop request, in nanoseconds.
const WAIT_NS_MAX: u64 = 20_000_000;

/// Running forwarder; it ends when this value is dropped.
#[derive(Debug)]
pub(super) struct DelayLink {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Hold time of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkDelay {
    pub(super) delay_ns: u64,
    pub(super) jitter_ns: u64,
}

impl DelayLink {
    /// Forwards between two non-blocking TUN devices.
    pub(super) fn start(ends: [File; 2], link_delay: LinkDelay, clock: fn() -> u64) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&stop);
        let run = move || run_link(&ends, link_delay, clock, &stop_flag);
        let thread = std::thread::Builder::new().name("weir-delay".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for DelayLink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// Packets in transit in one direction with their due times, the earliest first.
struct DelayQueue {
    packets: VecDeque<(u64, Vec<u8>)>,
    last_due_ns: u64,
    random: fastrand::Rng,
}

impl DelayQueue {
    fn new(seed: u64) -> Self {
        Self { packets: VecDeque::new(), last_due_ns: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// Queues a packet that arrived at `now_ns`. No packet overtakes another.
    fn push(&mut self, packet: &[u8], now_ns: u64, link_delay: LinkDelay) {
        if self.packets.len() >= PACKETS_MAX {
            return;
        }
        let more_ns = if link_delay.jitter_ns == 0 { 0 } else { self.random.u64(0..=link_delay.jitter_ns) };
        self.last_due_ns = self.last_due_ns.max(now_ns + link_delay.delay_ns + more_ns);
        self.packets.push_back((self.last_due_ns, packet.to_vec()));
    }

    /// Returns the next packet that is due by `now_ns`.
    fn pop_due(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let (due_ns, _) = self.packets.front()?;
        if *due_ns > now_ns { None } else { self.packets.pop_front().map(|(_, packet)| packet) }
    }
}

fn run_link(ends: &[File; 2], link_delay: LinkDelay, clock: fn() -> u64, stop: &AtomicBool) {
    let mut queues = [DelayQueue::new(1), DelayQueue::new(2)];
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        let next_ns = queues.iter().filter_map(|queue| queue.packets.front().map(|(due, _)| *due)).min();
        let wait_ns = next_ns.map_or(WAIT_NS_MAX, |due| due.saturating_sub(clock()).min(WAIT_NS_MAX));
        let mut polled = [PollFd::new(&ends[0], PollFlags::IN), PollFd::new(&ends[1], PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(wait_ns).unwrap_or(0) };
        if poll(&mut polled, Some(&timeout)).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        for from in 0..2 {
            loop {
                match (&ends[from]).read(&mut buffer) {
                    Ok(bytes) => queues[from].push(&buffer[..bytes], clock(), link_delay),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // The device has gone, with its namespace.
                    Err(_) => return,
                }
            }
            let now_ns = clock();
            while let Some(packet) = queues[from].pop_due(now_ns) {
                // Packets that the other device has no room for are lost, as on any link.
                let _ = (&ends[1 - from]).write(&packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_delayed_and_stay_in_order() {
        let mut queue = DelayQueue::new(7);
        let link_delay = LinkDelay { delay_ns: 100, jitter_ns: 50 };
        for at in 0..20u8 {
            queue.push(&[at], u64::from(at), link_delay);
        }
        assert_eq!(queue.pop_due(99), None);
        let mut got = Vec::new();
        for now_ns in 100..=170 {
            while let Some(packet) = queue.pop_due(now_ns) {
                assert!(now_ns >= u64::from(packet[0]) + 100);
                got.push(packet[0]);
            }
        }
        assert_eq!(got, (0..20).collect::<Vec<u8>>());
    }

    #[test]
    fn a_full_queue_drops() {
        let mut queue = DelayQueue::new(7);
        for _ in 0..PACKETS_MAX + 5 {
            queue.push(&[], 0, LinkDelay { delay_ns: 1, jitter_ns: 0 });
        }
        assert_eq!(queue.packets.len(), PACKETS_MAX);
    }
}
