//! Entry point for fuzzers: a stack with a listener and a client takes frames as they are.

mod header_checksum;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::task::Waker;

pub use header_checksum::set_header_checksum;

use crate::checksum::set_tcp_checksum;
use crate::packet::ETHERNET_BYTES;
use crate::stack::{Link, Stack, StackConfig};

/// A link that sends to nobody and receives nothing.
#[derive(Debug, Default)]
pub struct NoLink {
    frame: Vec<u8>,
}

impl Link for NoLink {
    fn receive(&mut self, _buffer: &mut [u8]) -> Option<usize> {
        None
    }

    fn end_receive(&mut self) {}

    fn has_space(&mut self) -> bool {
        true
    }

    fn transmit<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.frame.clear();
        self.frame.resize(length, 0);
        fill(&mut self.frame)
    }

    fn flush(&mut self) {}
}

/// Addresses of the stack and of its peers.
const OWN: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1))];
const PEERS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2))];

/// Bytes in front of each frame: its length, and the time since the last one in units of 10 ms.
const PREFIX_BYTES: usize = 3;
/// Bit of the first length with which the stack verifies checksums.
const VERIFIES: u16 = 1 << 15;
/// Bit of a length with which a frame keeps its own checksum, where they are verified; the others get the right one.
const KEEPS_CHECKSUM: u16 = 1 << 14;

/// Gives a stack frames, with whatever they accept read and answered. Input: for each frame two bytes of its length (little
/// endian; its two highest bits are about checksums), one byte of time, and the frame from its IP header on. The stack is 10.0.0.1 and fd00::1, listens on port 80 and
/// has connections from ports 1,000 on to port 80 of 10.0.0.2 and fd00::2.
pub fn receive_frames(mut input: &[u8]) {
    let first = input.first_chunk().map_or(0, |length| u16::from_le_bytes(*length));
    let verifies_checksums = first & VERIFIES != 0;
    let config = StackConfig {
        mac: [2; 6],
        mtu: 1_500,
        addresses: vec![OWN[0], OWN[1]],
        listen: OWN.map(|address| (address, 80).into()).to_vec(),
        ports: 1_000..=1_003,
        verifies_checksums,
        connections_max: 8,
        half_open_max: 4,
        seed: 1,
        queues: 1,
        queue: 0,
        steering: None,
    };
    let mut now_ns = 0;
    let mut stack = Stack::new(NoLink::default(), config, now_ns);
    let mut connect = |at: usize| stack.connect(OWN[at], (PEERS[at], 80).into(), [4; 6], now_ns).ok();
    let mut open: Vec<_> = [0, 0, 1].into_iter().filter_map(&mut connect).collect();
    stack.flush(now_ns);
    let (mut frame, mut bytes, waker) = (Vec::new(), [0; 2_048], Waker::noop());
    while let Some((&[low, high, pause], rest)) = input.split_first_chunk::<PREFIX_BYTES>() {
        let prefix = u16::from_le_bytes([low, high]);
        let length = usize::from(prefix & !(VERIFIES | KEEPS_CHECKSUM)).min(rest.len());
        frame.clear();
        frame.extend([2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4]);
        let is_ipv6 = rest.first().is_some_and(|byte| byte >> 4 == 6);
        frame.extend(if is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(&rest[..length]);
        if !is_ipv6 {
            set_header_checksum(&mut frame);
        }
        if verifies_checksums && prefix & KEEPS_CHECKSUM == 0 {
            set_tcp_checksum(&mut frame[ETHERNET_BYTES..]);
        }
        input = &rest[length..];
        now_ns += u64::from(pause) * 10_000_000;
        stack.process_frame(&frame, now_ns);
        stack.handle_timers(now_ns);
        while let Some(id) = stack.accept() {
            open.push(id);
        }
        for id in &open {
            if let std::task::Poll::Ready(Ok(read)) = stack.poll_read(*id, waker, &mut bytes) {
                let _ = stack.poll_write(*id, waker, &[std::io::IoSlice::new(&bytes[..read])]);
            }
        }
        if pause == 255
            && let Some(id) = open.pop()
        {
            stack.close(id, now_ns);
        }
        stack.flush(now_ns);
        assert!(stack.connections() <= 8, "the limit of connections is kept");
    }
}

#[cfg(test)]
mod cost_tests;
