//! Connections between two stacks over a link in memory, with faults, floods and random frames.

mod checksums;

use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::task::{Poll, Waker};

use super::testing::{Faults, MemoryLink, config, pair};
use super::*;
use crate::packet::testing::frame;

const MILLISECOND_NS: u64 = 1_000_000;
const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 0, 0, 2];

/// A client and a server, with a clock that steps.
struct World {
    client: Stack<MemoryLink>,
    server: Stack<MemoryLink>,
    now_ns: u64,
}

impl World {
    fn new(faults: Faults, seed: u64) -> Self {
        let (client, server) = pair(faults, seed);
        let (client, server) = (Stack::new(client, config(CLIENT), 0), Stack::new(server, config(SERVER), 0));
        Self { client, server, now_ns: 0 }
    }

    /// Lets a millisecond pass.
    fn step(&mut self) {
        self.now_ns += MILLISECOND_NS;
        for stack in [&mut self.client, &mut self.server] {
            stack.receive(self.now_ns, 1_000);
            stack.handle_timers(self.now_ns);
            stack.flush(self.now_ns);
        }
    }

    fn remote(port: u16) -> SocketAddr {
        (SERVER, port).into()
    }

    /// Opens a connection; returns both ends.
    fn open(&mut self) -> (ConnectionId, ConnectionId) {
        let id = self.client.connect(CLIENT.into(), Self::remote(80), [9; 6], self.now_ns).unwrap();
        for _ in 0..9_000 {
            self.step();
            if let (Poll::Ready(connected), Some(accepted)) =
                (self.client.poll_connected(id, Waker::noop()), self.server.accept())
            {
                connected.unwrap();
                return (id, accepted);
            }
        }
        panic!("no connection");
    }
}

fn read_all(
    stack: &mut Stack<MemoryLink>,
    id: ConnectionId,
    into: &mut Vec<u8>,
) -> Option<std::io::Result<()>> {
    let mut buffer = [0; 3_000];
    loop {
        match stack.poll_read(id, Waker::noop(), &mut buffer) {
            Poll::Ready(Ok(0)) => return Some(Ok(())),
            Poll::Ready(Ok(bytes)) => into.extend_from_slice(&buffer[..bytes]),
            Poll::Ready(Err(error)) => return Some(Err(error)),
            Poll::Pending => return None,
        }
    }
}

#[test]
fn content_arrives_whole_in_spite_of_loss_duplicates_and_reordering() {
    let kinds = [
        Faults::default(),
        Faults { lost: 20, ..Faults::default() },
        Faults { duplicated: 100, reordered: 100, ..Faults::default() },
        Faults { lost: 50, duplicated: 50, reordered: 50 },
    ];
    for (faults, seed) in kinds.into_iter().zip([1, 22, 333, 4_444]) {
        let mut world = World::new(faults, seed);
        let (client, server) = world.open();
        let sent: Vec<u8> = (0..200_000_u32).map(|number| (number * 7 / 3) as u8).collect();
        let (mut written, mut received, mut ended, mut echoed) = (0, Vec::new(), None, Vec::new());
        let mut back = 0;
        for _ in 0..400_000 {
            while written < sent.len()
                && let Poll::Ready(bytes) =
                    world.client.poll_write(client, Waker::noop(), &[IoSlice::new(&sent[written..])])
            {
                written += bytes.unwrap();
                if written == sent.len() {
                    world.client.shutdown(client, Shutdown::Write).unwrap();
                }
            }
            if ended.is_none() {
                ended = read_all(&mut world.server, server, &mut received);
            }
            while back < received.len()
                && let Poll::Ready(bytes) =
                    world.server.poll_write(server, Waker::noop(), &[IoSlice::new(&received[back..])])
            {
                back += bytes.unwrap();
            }
            let end = read_all(&mut world.client, client, &mut echoed);
            if ended.is_some() && back == sent.len() && echoed.len() == sent.len() {
                assert!(end.is_none_or(|end| end.is_ok()));
                break;
            }
            world.step();
        }
        assert!(received == sent && echoed == sent, "{faults:?}: {} {}", received.len(), echoed.len());
        ended.unwrap().unwrap();
        let counters = world.client.counters();
        assert_eq!(counters.retransmitted > 0, faults.lost > 0, "{faults:?}");
        // None of what was sent again, which it is after a second at the earliest, is measured.
        let (trips, windows) = (counters.round_trips, counters.windows);
        assert!(trips.count > 5 && trips.min_ns >= MILLISECOND_NS, "{faults:?}: {trips:?}");
        assert!(trips.max_ns < 1_000 * MILLISECOND_NS, "{faults:?}: {trips:?}");
        assert!((1..=BUFFER_BYTES as u64).contains(&windows.min_bytes), "{windows:?}");
        assert_eq!(windows.max_bytes, BUFFER_BYTES as u64);
        world.client.close(client, world.now_ns);
        world.server.close(server, world.now_ns);
        for _ in 0..20_000 {
            world.step();
        }
        assert_eq!((world.client.connections(), world.server.connections()), (0, 0));
    }
}

#[test]
fn a_closed_port_refuses_and_a_silent_host_times_out() {
    let mut world = World::new(Faults::default(), 1);
    let refused = world.client.connect(CLIENT.into(), World::remote(81), [9; 6], 0).unwrap();
    world.step();
    world.step();
    let Poll::Ready(Err(error)) = world.client.poll_connected(refused, Waker::noop()) else { panic!() };
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    world.client.close(refused, world.now_ns);
    let mut world = World::new(Faults { lost: 1_000, ..Faults::default() }, 1);
    let silent = world.client.connect(CLIENT.into(), World::remote(80), [9; 6], 0).unwrap();
    for _ in 0..10_100 {
        world.step();
    }
    let Poll::Ready(Err(error)) = world.client.poll_connected(silent, Waker::noop()) else { panic!() };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    world.client.close(silent, world.now_ns);
    world.step();
    assert_eq!(world.client.connections(), 0);
}

#[test]
fn a_close_with_unread_bytes_is_a_reset_and_one_without_an_end() {
    let mut world = World::new(Faults::default(), 1);
    for resets in [false, true] {
        let (client, server) = world.open();
        if resets {
            assert!(world.client.poll_write(client, Waker::noop(), &[IoSlice::new(b"unread")]).is_ready());
            world.step();
            world.step();
            assert!(world.server.has_unread(server) && !world.server.is_idle(server));
        }
        assert!(world.client.is_idle(client));
        world.server.close(server, world.now_ns);
        world.step();
        world.step();
        let end = read_all(&mut world.client, client, &mut Vec::new()).unwrap();
        assert_eq!(
            end.map_err(|error| error.kind()),
            if resets { Err(ErrorKind::ConnectionReset) } else { Ok(()) }
        );
        assert!(!world.client.is_idle(client));
        world.client.close(client, world.now_ns);
        for _ in 0..3 {
            world.step();
        }
        assert_eq!((world.client.connections(), world.server.connections()), (0, 0), "{resets}");
    }
}

#[test]
fn a_peer_that_does_not_close_is_given_up() {
    let mut world = World::new(Faults::default(), 1);
    let (_client, server) = world.open();
    world.server.close(server, world.now_ns);
    for _ in 0..ORPHAN_NS_MAX / MILLISECOND_NS + 10 {
        world.step();
    }
    assert_eq!((world.server.connections(), world.server.counters().expired), (0, 1));
}

/// Returns a server that does not verify checksums: those of the frames in these tests are wrong.
fn trusting_server(link: MemoryLink) -> Stack<MemoryLink> {
    Stack::new(link, StackConfig { verifies_checksums: false, ..config(SERVER) }, 0)
}

#[test]
fn a_flood_of_opening_segments_holds_few_connections_and_does_not_lock_out() {
    let (client, server) = pair(Faults::default(), 1);
    let client = Stack::new(client, config(CLIENT), 0);
    let mut world = World { client, server: trusting_server(server), now_ns: 0 };
    // The flood answers nothing.
    let flood = |world: &mut World, ports: std::ops::Range<u16>| {
        for port in ports {
            let syn = frame(&format!("10.0.3.4:{port}"), "10.0.0.1:80", 2, b"");
            world.server.process_frame(&syn, world.now_ns);
        }
    };
    flood(&mut world, 1..30_000);
    assert_eq!((world.server.connections(), world.server.counters().evicted), (4, 29_995));
    let (client, server) = world.open();
    assert!(world.client.poll_write(client, Waker::noop(), &[IoSlice::new(b"hello")]).is_ready());
    flood(&mut world, 30_000..60_000);
    let mut received = Vec::new();
    for _ in 0..4 {
        world.step();
        assert!(read_all(&mut world.server, server, &mut received).is_none());
    }
    assert_eq!((&received[..], world.server.connections()), (&b"hello"[..], 5));
    for _ in 0..HANDSHAKE_NS_MAX / MILLISECOND_NS + 10 {
        world.step();
    }
    assert_eq!((world.server.connections(), world.server.half_open_count), (1, 0));
}

#[test]
fn each_of_twenty_own_addresses_connects_accepts_and_resets() {
    let own = |network: u16| -> Vec<IpAddr> {
        let ipv4 = (1..=10).map(|last| IpAddr::from([10, 0, network as u8, last]));
        let ipv6 = (1..=10).map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, network, last]));
        ipv4.chain(ipv6).collect()
    };
    let stack = |link, addresses: Vec<IpAddr>| {
        let listen = addresses.iter().map(|address| (*address, 80).into()).collect();
        Stack::new(link, StackConfig { addresses, listen, ..config(SERVER) }, 0)
    };
    let (client, server) = pair(Faults::default(), 1);
    let mut world = World { client: stack(client, own(2)), server: stack(server, own(1)), now_ns: 0 };
    for (local, remote) in own(2).into_iter().zip(own(1)) {
        let mut connect = |port| world.client.connect(local, (remote, port).into(), [9; 6], world.now_ns);
        let (open, refused) = (connect(80).unwrap(), connect(81).unwrap());
        assert!(world.client.poll_connected(open, Waker::noop()).is_pending());
        for _ in 0..10 {
            world.step();
        }
        let opened = world.client.poll_connected(open, Waker::noop());
        assert!(matches!(opened, Poll::Ready(Ok(()))), "{remote}: {opened:?}");
        let accepted = world.server.accept().unwrap();
        let tuple = world.server.tuple(accepted).unwrap();
        assert_eq!((tuple.local, tuple.remote.ip()), ((remote, 80).into(), local));
        let Poll::Ready(Err(error)) = world.client.poll_connected(refused, Waker::noop()) else {
            panic!("{remote}: no reset");
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        world.client.close(refused, world.now_ns);
        assert!(world.server.poll_write(accepted, Waker::noop(), &[IoSlice::new(b"hello")]).is_ready());
        let mut received = Vec::new();
        for _ in 0..4 {
            world.step();
            assert!(read_all(&mut world.client, open, &mut received).is_none());
        }
        assert_eq!(received, b"hello");
    }
    assert_eq!((world.server.connections(), world.server.counters().malformed), (20, 0));
    // Others are not taken for own ones.
    world.server.process_frame(&frame("10.0.2.1:9", "10.0.1.11:80", 2, b""), world.now_ns);
    assert_eq!(world.server.counters().malformed, 1);
}

#[test]
fn the_number_of_connections_is_limited() {
    let (client, server) = pair(Faults::default(), 1);
    let client = Stack::new(client, config(CLIENT), 0);
    let server = Stack::new(server, StackConfig { connections_max: 3, ..config(SERVER) }, 0);
    let mut world = World { client, server, now_ns: 0 };
    let open: Vec<_> = (0..3).map(|_| world.open()).collect();
    let further = world.client.connect(CLIENT.into(), World::remote(80), [9; 6], world.now_ns).unwrap();
    for _ in 0..10 {
        world.step();
    }
    assert!(world.client.poll_connected(further, Waker::noop()).is_pending());
    assert_eq!((world.server.connections(), world.server.counters().refused), (3, 1));
    // The SYN is repeated, and accepted once there is space.
    world.client.close(open[0].0, world.now_ns);
    world.server.close(open[0].1, world.now_ns);
    for _ in 0..5_000 {
        world.step();
    }
    assert!(world.client.poll_connected(further, Waker::noop()).is_ready());
}

#[test]
fn ports_are_used_in_turns_and_end() {
    let mut world = World::new(Faults::default(), 1);
    let ids: Vec<_> = (0..100)
        .map(|_| world.client.connect(CLIENT.into(), World::remote(80), [9; 6], 0).unwrap())
        .collect();
    let mut ports: Vec<u16> = ids.iter().map(|id| world.client.tuple(*id).unwrap().local.port()).collect();
    assert_ne!(ports[0], 10_000);
    ports.sort_unstable();
    assert_eq!(ports, (10_000..10_100).collect::<Vec<u16>>());
    let error = world.client.connect(CLIENT.into(), World::remote(80), [9; 6], 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    for id in ids {
        world.client.reset_on_close(id);
        world.client.close(id, 0);
    }
    world.step();
    assert_eq!(world.client.connections(), 0);
    assert!(world.client.by_tuple.is_empty());
}

#[test]
fn resets_for_unknown_connections_are_limited() {
    let mut server = trusting_server(pair(Faults::default(), 1).0);
    for port in 1..1_000_u16 {
        server.process_frame(&frame(&format!("10.0.0.2:{port}"), "10.0.0.1:80", 16, b"x"), 0);
    }
    let counters = server.counters();
    assert_eq!((counters.unknown, counters.sent), (999, u64::from(RESETS_MAX)));
    server.process_frame(b"short", 0);
    server.process_frame(&frame("10.0.0.2:9", "10.0.0.7:80", 2, b""), 0);
    assert_eq!(server.counters().malformed, 2);
}

#[test]
fn frames_of_a_fuzzer_neither_panic_nor_pile_up() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..300 {
        let mut input = Vec::new();
        for _ in 0..40 {
            // Headers that get far, with some bytes that do not belong there.
            let ports = [1_000 + draw() % 4, 80, 81, draw() % 65_536];
            let [peer, own] = [["10.0.0.2", "10.0.0.1"], ["[fd00::2]", "[fd00::1]"]][(draw() % 2) as usize];
            let from = format!("{peer}:{}", [80, 4_000 + draw() % 3][(draw() % 2) as usize]);
            let to = format!("{own}:{}", ports[(draw() % 4) as usize]);
            let payload: Vec<u8> = (0..draw() % 60).map(|_| draw() as u8).collect();
            let mut bytes = frame(&from, &to, draw() as u8, &payload).split_off(14);
            for _ in 0..draw() % 6 {
                let at = draw() as usize % bytes.len();
                bytes[at] = draw() as u8;
            }
            input.extend((bytes.len() as u16).to_le_bytes());
            input.push([0, 1, 110, 255][(draw() % 4) as usize]);
            input.extend(bytes);
        }
        crate::fuzzing::receive_frames(&input);
    }
    for length in 0..200 {
        let bytes: Vec<u8> = (0..length).map(|_| draw() as u8).collect();
        crate::fuzzing::receive_frames(&bytes);
    }
}

#[test]
fn a_peer_with_an_old_connection_in_time_wait_gets_a_reset_and_a_new_syn_at_once() {
    const ACK: u8 = 0x10;
    let settings = StackConfig { verifies_checksums: false, ..config(CLIENT) };
    let (near, mut far) = pair(Faults::default(), 1);
    let mut client = Stack::new(near, settings, 0);
    let id = client.connect(CLIENT.into(), World::remote(80), [9; 6], 0).unwrap();
    let local = client.tuple(id).unwrap().local;
    // The flags of each frame that was sent.
    let mut sent = || {
        let mut buffer = [0; 2_000];
        let frames = std::iter::from_fn(|| far.receive(&mut buffer).map(|length| buffer[..length].to_vec()));
        frames.map(|frame| frame[47] & 0x16).collect::<Vec<u8>>()
    };
    client.flush(0);
    assert_eq!(sent(), [0x02]);
    let answer = frame("10.0.0.1:80", &local.to_string(), ACK, b"");
    for _ in 0..RESTARTS_MAX {
        client.process_frame(&answer, 0);
        client.flush(0);
        assert_eq!(sent(), [0x04, 0x02]);
    }
    // A peer that always answers so does not make a loop.
    client.process_frame(&answer, 0);
    client.flush(0);
    assert_eq!(sent(), [0x04]);
    assert!(client.poll_connected(id, Waker::noop()).is_pending());
    assert_eq!(client.counters().restarted, u64::from(RESTARTS_MAX));
}
