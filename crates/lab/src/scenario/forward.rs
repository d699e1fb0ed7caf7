//! A longer way: takes packets from one TUN device, holds each for a while, and gives them to the
//! other, in their order. Works where the kernel has no `netem`.
//!
//! Not for loss or rates: those are the kernel's.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest packet: that of IP.
const PACKET_BYTES_MAX: usize = 65_535;
/// Packets that may be on the way in one direction; more are dropped.
const HELD_MAX: usize = 65_536;
/// How long it may take to notice that it should end, in nanoseconds.
const WAIT_NS_MAX: u64 = 20_000_000;

/// A forwarder at work; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How long packets are held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// Each way.
    pub(super) delay_ns: u64,
    /// Up to so much more, at random.
    pub(super) jitter_ns: u64,
}

impl Forwarder {
    /// Forwards between two TUN devices that never wait.
    pub(super) fn start(ends: [File; 2], hold: Hold, clock: fn() -> u64) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let run = move || run(&ends, hold, clock, &told);
        let thread = std::thread::Builder::new().name("weir-delay".to_owned()).spawn(run)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// Packets on their way in one direction: when each is due, the earliest first.
struct Way {
    held: VecDeque<(u64, Vec<u8>)>,
    last_due_ns: u64,
    random: fastrand::Rng,
}

impl Way {
    fn new(seed: u64) -> Self {
        Self { held: VecDeque::new(), last_due_ns: 0, random: fastrand::Rng::with_seed(seed) }
    }

    /// Takes on a packet that came at `now_ns`. None overtakes another.
    fn take(&mut self, packet: &[u8], now_ns: u64, hold: Hold) {
        if self.held.len() >= HELD_MAX {
            return;
        }
        let more_ns = if hold.jitter_ns == 0 { 0 } else { self.random.u64(0..=hold.jitter_ns) };
        self.last_due_ns = self.last_due_ns.max(now_ns + hold.delay_ns + more_ns);
        self.held.push_back((self.last_due_ns, packet.to_vec()));
    }

    /// The next packet that is due by `now_ns`.
    fn due(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        let (due_ns, _) = self.held.front()?;
        if *due_ns > now_ns { None } else { self.held.pop_front().map(|(_, packet)| packet) }
    }
}

fn run(ends: &[File; 2], hold: Hold, clock: fn() -> u64, stop: &AtomicBool) {
    let mut ways = [Way::new(1), Way::new(2)];
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        let next_ns = ways.iter().filter_map(|way| way.held.front().map(|(due, _)| *due)).min();
        let wait_ns =
            next_ns.map_or(WAIT_NS_MAX, |due| due.saturating_sub(clock()).min(WAIT_NS_MAX));
        let mut polled =
            [PollFd::new(&ends[0], PollFlags::IN), PollFd::new(&ends[1], PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(wait_ns).unwrap_or(0) };
        if poll(&mut polled, Some(&timeout)).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
        for from in 0..2 {
            loop {
                match (&ends[from]).read(&mut buffer) {
                    Ok(bytes) => ways[from].take(&buffer[..bytes], clock(), hold),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // The device is gone, with its namespace.
                    Err(_) => return,
                }
            }
            let now_ns = clock();
            while let Some(packet) = ways[from].due(now_ns) {
                // What the other end has no room for is lost, as on any way.
                let _ = (&ends[1 - from]).write(&packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_held_and_stay_in_order() {
        let mut way = Way::new(7);
        let hold = Hold { delay_ns: 100, jitter_ns: 50 };
        for at in 0..20u8 {
            way.take(&[at], u64::from(at), hold);
        }
        assert_eq!(way.due(99), None);
        let mut got = Vec::new();
        for now_ns in 100..=170 {
            while let Some(packet) = way.due(now_ns) {
                assert!(now_ns >= u64::from(packet[0]) + 100);
                got.push(packet[0]);
            }
        }
        assert_eq!(got, (0..20).collect::<Vec<u8>>());
    }

    #[test]
    fn a_full_way_drops() {
        let mut way = Way::new(7);
        for _ in 0..HELD_MAX + 5 {
            way.take(&[], 0, Hold { delay_ns: 1, jitter_ns: 0 });
        }
        assert_eq!(way.held.len(), HELD_MAX);
    }
}
