//! Damaged segments: each has no effect but a count, whatever byte is wrong.

use std::net::IpAddr;

use super::*;
use crate::packet::ETHERNET_BYTES;

/// Addresses of the server and of the client.
const ADDRESSES: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];

/// Returns a client and a server that verify checksums, or not.
fn world([server, client]: [&str; 2], verifies_checksums: bool) -> World {
    let (near, far) = pair(Faults::default(), 1);
    let stack = |link, address: &str, last| {
        let address: IpAddr = address.parse().unwrap();
        let settings = StackConfig {
            addresses: vec![address],
            listen: vec![(address, 80).into()],
            verifies_checksums,
            ..config([10, 0, 0, last])
        };
        Stack::new(link, settings, 0)
    };
    World { client: stack(near, client, 2), server: stack(far, server, 1), now_ns: 0 }
}

/// Starts a connection; its SYN is not sent yet.
fn connect(world: &mut World, [server, client]: [&str; 2]) -> ConnectionId {
    let (server, client): (IpAddr, IpAddr) = (server.parse().unwrap(), client.parse().unwrap());
    world.client.connect(client, (server, 80).into(), [9; 6], world.now_ns).unwrap()
}

/// Takes the only frame that waits for a stack.
fn take_frame(stack: &mut Stack<MemoryLink>) -> Vec<u8> {
    let mut buffer = [0; 2_000];
    let length = stack.link.receive(&mut buffer).expect("a frame");
    assert_eq!(stack.link.receive(&mut [0; 2_000]), None);
    buffer[..length].to_vec()
}

/// Length of the headers before TCP.
fn header_bytes(frame: &[u8]) -> usize {
    ETHERNET_BYTES + if frame[ETHERNET_BYTES] >> 4 == 6 { 40 } else { 20 }
}

/// Returns the frame with each bit of these bytes flipped, and with each byte inverted.
fn damaged(frame: &[u8], bytes: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let masks = (0..8).map(|bit| 1 << bit).chain([0xff]);
    let places = bytes.flat_map(|at| masks.clone().map(move |mask: u8| (at, mask)));
    places
        .map(|(at, mask)| {
            let mut frame = frame.to_vec();
            frame[at] ^= mask;
            frame
        })
        .collect()
}

/// Gives a stack damaged forms of a frame, and checks that only the count of those that are not usable has changed, and
/// that nothing is answered.
fn assert_without_effect(stack: &mut Stack<MemoryLink>, frames: &[Vec<u8>], now_ns: u64) {
    let (before, connections, half_open) = (stack.counters(), stack.connections(), stack.half_open_count);
    for frame in frames {
        stack.process_frame(frame, now_ns);
    }
    let count = frames.len() as u64;
    let expected =
        StackCounters { frames: before.frames + count, malformed: before.malformed + count, ..before };
    assert_eq!(stack.counters(), expected);
    assert_eq!((stack.connections(), stack.half_open_count), (connections, half_open));
    assert!(!stack.has_accepted() && !stack.has_work());
}

/// Damages each byte of TCP, and of the header of IPv4.
fn all_damaged(frame: &[u8]) -> Vec<Vec<u8>> {
    let is_ipv6 = frame[ETHERNET_BYTES] >> 4 == 6;
    damaged(frame, if is_ipv6 { header_bytes(frame) } else { ETHERNET_BYTES }..frame.len())
}

#[test]
fn no_damaged_segment_of_a_handshake_has_an_effect() {
    for addresses in ADDRESSES {
        let mut world = world(addresses, true);
        let id = connect(&mut world, addresses);
        world.client.flush(0);
        let syn = take_frame(&mut world.server);
        assert_without_effect(&mut world.server, &all_damaged(&syn), 0);
        assert_eq!(world.server.connections(), 0);
        world.server.process_frame(&syn, 0);
        assert_eq!((world.server.connections(), world.server.half_open_count), (1, 1));
        world.server.flush(0);
        let answer = take_frame(&mut world.client);
        assert_without_effect(&mut world.client, &all_damaged(&answer), 0);
        assert!(world.client.poll_connected(id, Waker::noop()).is_pending());
        world.client.process_frame(&answer, 0);
        assert!(world.client.poll_connected(id, Waker::noop()).is_ready());
        world.client.flush(0);
        let acknowledgement = take_frame(&mut world.server);
        assert_without_effect(&mut world.server, &all_damaged(&acknowledgement), 0);
        world.server.process_frame(&acknowledgement, 0);
        assert!(world.server.accept().is_some());
    }
}

#[test]
fn a_peer_of_which_only_damaged_segments_arrive_is_silent_and_does_not_refuse() {
    let addresses = ADDRESSES[0];
    let mut world = world(addresses, true);
    let id = connect(&mut world, addresses);
    world.client.flush(0);
    let syn = take_frame(&mut world.server);
    // A port that refuses: its reset arrives damaged.
    world.server.config.listen.clear();
    world.server.process_frame(&syn, 0);
    world.server.flush(0);
    let reset = take_frame(&mut world.client);
    assert_without_effect(&mut world.client, &all_damaged(&reset), 0);
    world.client.handle_timers(HANDSHAKE_NS_MAX + MILLISECOND_NS);
    world.client.flush(HANDSHAKE_NS_MAX + MILLISECOND_NS);
    let Poll::Ready(Err(error)) = world.client.poll_connected(id, Waker::noop()) else { panic!() };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

/// Opens a connection between both ends.
fn open(world: &mut World, addresses: [&str; 2]) -> (ConnectionId, ConnectionId) {
    let client = connect(world, addresses);
    for _ in 0..4 {
        world.step();
    }
    assert!(world.client.poll_connected(client, Waker::noop()).is_ready());
    (client, world.server.accept().unwrap())
}

#[test]
fn no_damaged_byte_of_content_is_delivered_and_no_damaged_end_ends_a_connection() {
    type Send = fn(&mut World, ConnectionId);
    let content: Send = |world, client| {
        let written = world.client.poll_write(client, Waker::noop(), &[IoSlice::new(b"thirteen byte")]);
        assert!(written.is_ready());
    };
    let end: Send = |world, client| world.client.shutdown(client, Shutdown::Write).unwrap();
    let reset: Send = |world, client| {
        world.client.reset_on_close(client);
        world.client.close(client, world.now_ns);
    };
    for addresses in ADDRESSES {
        for (send, expected) in [
            (content, (&b"thirteen byte"[..], None)),
            (end, (&b""[..], Some(Ok(())))),
            (reset, (&b""[..], Some(Err(ErrorKind::ConnectionReset)))),
        ] {
            let mut world = world(addresses, true);
            let (client, server) = open(&mut world, addresses);
            send(&mut world, client);
            world.client.flush(world.now_ns);
            let frame = take_frame(&mut world.server);
            let read = |stack: &mut Stack<MemoryLink>| {
                let mut received = Vec::new();
                let end = read_all(stack, server, &mut received);
                (received, end.map(|end| end.map_err(|error| error.kind())))
            };
            for damaged in all_damaged(&frame) {
                assert_without_effect(&mut world.server, &[damaged], world.now_ns);
                assert_eq!(read(&mut world.server), (Vec::new(), None), "{frame:?}");
            }
            world.server.process_frame(&frame, world.now_ns);
            let (received, end) = read(&mut world.server);
            assert_eq!((&received[..], end), expected);
        }
    }
}

#[test]
fn without_verification_only_the_header_of_ipv4_is_covered() {
    let addresses = ADDRESSES[0];
    let mut world = world(addresses, false);
    let (client, server) = open(&mut world, addresses);
    assert!(world.client.poll_write(client, Waker::noop(), &[IoSlice::new(b"hello")]).is_ready());
    world.client.flush(world.now_ns);
    let mut frame = take_frame(&mut world.server);
    let header = damaged(&frame, ETHERNET_BYTES..header_bytes(&frame));
    assert_without_effect(&mut world.server, &header, world.now_ns);
    // A device that does not exist would have set the checksum.
    let at = header_bytes(&frame) + 16;
    frame[at..at + 2].copy_from_slice(&[0x12, 0x34]);
    world.server.process_frame(&frame, world.now_ns);
    let mut received = Vec::new();
    assert!(read_all(&mut world.server, server, &mut received).is_none());
    assert_eq!(received, b"hello");
}

#[test]
fn a_damaged_frame_is_not_handed_to_another_queue() {
    let addresses = ADDRESSES[0];
    let mut world = world(addresses, true);
    world.server.config.queues = 2;
    let (client, _) = open(&mut world, addresses);
    assert!(world.client.poll_write(client, Waker::noop(), &[IoSlice::new(b"hello")]).is_ready());
    world.client.flush(world.now_ns);
    let frame = take_frame(&mut world.server);
    for damaged in all_damaged(&frame) {
        assert_without_effect(&mut world.server, &[damaged], world.now_ns);
        assert!(world.server.take_handed().is_none());
    }
}

#[test]
fn frames_of_a_fuzzer_with_right_and_damaged_checksums_neither_panic_nor_pile_up() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..200 {
        let mut input = Vec::new();
        for _ in 0..40 {
            let [peer, own] = [["10.0.0.2", "10.0.0.1"], ["[fd00::2]", "[fd00::1]"]][(draw() % 2) as usize];
            let from = format!("{peer}:{}", [80, 4_000 + draw() % 3][(draw() % 2) as usize]);
            let to = format!("{own}:{}", [80, 1_000 + draw() % 4][(draw() % 2) as usize]);
            let payload: Vec<u8> = (0..draw() % 60).map(|_| draw() as u8).collect();
            let bytes = frame(&from, &to, draw() as u8, &payload).split_off(ETHERNET_BYTES);
            let keeps = [0, 0, 0, 1 << 14][(draw() % 4) as usize];
            input.extend((bytes.len() as u16 | 1 << 15 | keeps).to_le_bytes());
            input.push([0, 1, 110, 255][(draw() % 4) as usize]);
            input.extend(bytes);
        }
        crate::fuzzing::receive_frames(&input);
    }
}
