//! The stack against the TCP of the kernel, over a veth pair between two namespaces, with faults in both directions.

#![allow(clippy::unwrap_used, reason = "a test gives up where it cannot go on")]

mod ends;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;

use xdp::attachment::{Attachment, check_port};
use xdp::interface::{InterfaceFacts, XdpError};
use xdp::packet::ETHERNET_BYTES;
use xdp::program::Rule;
use xdp::stack::{CONNECTIONS_MAX, ConnectionId, HALF_OPEN_MAX, Link, Stack, StackConfig, StackCounters};

#[expect(unreachable_pub, reason = "the library makes it public")]
#[path = "../../src/fuzzing/header_checksum.rs"]
mod header_checksum;

const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
const KERNELS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 2));
const OURS_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 1));
const KERNELS_IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 2));

/// Addresses that only one test adds to the interface: with the others more than smoltcp has room for.
fn further_addresses() -> impl Iterator<Item = IpAddr> {
    (11..=20).map(|last| IpAddr::from([10, 78, 0, last]))
}

/// Bound of each step of a test that waits for the other end, which may have failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Two namespaces with a veth pair: `ours` has the interface of the stack.
struct Namespaces {
    ours: String,
    kernels: String,
}

fn ip(line: &str) -> bool {
    let status =
        Command::new("ip").args(line.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Namespaces {
    /// Returns `None` without the permission to make them, or without AF_XDP.
    fn create() -> Option<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = |end: char| format!("weirxdp{}-{number}{end}", std::process::id());
        let pair = Self { ours: name('a'), kernels: name('b') };
        if !ip(&format!("netns add {}", pair.ours)) || !ip(&format!("netns add {}", pair.kernels)) {
            test_needs::skip(test_needs::ROOT, "ip netns add takes root");
            return None;
        }
        let add = format!("-n {} link add x0 type veth peer name x1 netns {}", pair.ours, pair.kernels);
        assert!(ip(&add));
        let ends = [(&pair.ours, "x0", OURS, OURS_IPV6), (&pair.kernels, "x1", KERNELS, KERNELS_IPV6)];
        for (namespace, device, address, ipv6) in ends {
            assert!(ip(&format!("-n {namespace} address add {address}/24 dev {device}")));
            assert!(ip(&format!("-n {namespace} address add {ipv6}/64 dev {device} nodad")));
            assert!(ip(&format!("-n {namespace} link set {device} up")));
            assert!(ip(&format!("-n {namespace} link set lo up")));
        }
        pair.wait_for_routes();
        Some(pair)
    }
}

impl Namespaces {
    /// Waits until IPv6 has noticed that both ends are up: the kernel adds its routes a while after `link set up`.
    fn wait_for_routes(&self) {
        let deadline = instant() + STEP_TIMEOUT;
        for (namespace, peer) in [(&self.ours, KERNELS_IPV6), (&self.kernels, OURS_IPV6)] {
            while !ip(&format!("-n {namespace} route get {peer}")) {
                assert!(instant() < deadline, "no route to {peer} in {namespace}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.ours, &self.kernels] {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

/// Moves the calling thread for good.
fn enter(namespace: &str) {
    let file =
        open(format!("/var/run/netns/{namespace}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Faults of both directions, in per mille of the frames.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lost: u64,
    duplicated: u64,
    /// Frames that arrive behind later ones.
    reordered: u64,
    /// Frames with a wrong bit. Those for us are damaged in their headers only: a peer on a veth pair sends no checksums.
    damaged: u64,
    /// Time of each frame on its way.
    delay: Duration,
    /// SYNs of strangers with each received batch, who never answer.
    strangers: u32,
}

/// Time by which a reordered frame is late.
const REORDER_DELAY: Duration = Duration::from_millis(2);
/// Bytes of the headers of Ethernet and IPv4.
const HEADER_BYTES: usize = 34;

/// Frames on their way, with their time of arrival.
type InTransit = BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>;

struct FaultyLink {
    attachment: Attachment,
    faults: Faults,
    random: u64,
    /// Number of the next frame, so that frames of one time stay in order.
    next: u64,
    incoming: InTransit,
    outgoing: InTransit,
    strangers: u32,
}

#[expect(clippy::disallowed_methods, reason = "this crate has no clock: its callers give the time")]
fn instant() -> Instant {
    Instant::now()
}

impl FaultyLink {
    fn new(attachment: Attachment, faults: Faults) -> Self {
        Self {
            attachment,
            faults,
            random: 0x1234_5678_9abc,
            next: 0,
            incoming: InTransit::new(),
            outgoing: InTransit::new(),
            strangers: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    /// Returns the copies of a frame that arrive, with their times.
    fn pass(&mut self, mut frame: Vec<u8>, damages: fn(&mut Self, &mut [u8])) -> InTransit {
        let draws: [u64; 4] = std::array::from_fn(|_| self.draw(1_000));
        let mut arriving = InTransit::new();
        if draws[0] < self.faults.lost {
            return arriving;
        }
        if draws[1] < self.faults.damaged {
            damages(self, &mut frame);
        }
        let late = if draws[2] < self.faults.reordered { REORDER_DELAY } else { Duration::ZERO };
        let due = instant() + self.faults.delay + late;
        for _ in 0..1 + u32::from(draws[3] < self.faults.duplicated) {
            self.next += 1;
            arriving.push(Reverse((due, self.next, frame.clone())));
        }
        arriving
    }

    fn damage_content(&mut self, frame: &mut [u8]) {
        let at = HEADER_BYTES + self.draw((frame.len() - HEADER_BYTES) as u64) as usize;
        frame[at] ^= 1 << self.draw(8);
    }

    /// Damages lengths, options, fragments and checksums of the headers, or cuts the frame.
    fn damage_headers(&mut self, frame: &mut [u8]) {
        // Version and length, total length, fragments, protocol, checksum of the header, length of that of TCP.
        let places = [14, 16, 17, 20, 21, 23, 24, 25, 46];
        let at = places[self.draw(places.len() as u64) as usize];
        // A header of TCP has at least 20 bytes, and a longer one would hide content without a checksum.
        frame[at] = if at == 46 { 0x40 } else { frame[at] ^ (1 << self.draw(8)) };
    }

    fn stranger(&mut self) -> Vec<u8> {
        self.strangers += 1;
        let [_, a, b, c] = self.strangers.to_be_bytes();
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, a | 128, b, c]);
        frame.extend([10, 78, 0, 1]);
        frame.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
        header_checksum::set_header_checksum(&mut frame);
        frame
    }

    fn pop_due(frames: &mut InTransit) -> Option<Vec<u8>> {
        frames.peek().filter(|Reverse((due, ..))| *due <= instant())?;
        frames.pop().map(|Reverse((_, _, frame))| frame)
    }
}

impl Link for FaultyLink {
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        while let Some(length) = self.attachment.receive(buffer) {
            let arriving = self.pass(buffer[..length].to_vec(), Self::damage_headers);
            self.incoming.extend(arriving);
        }
        let frame = Self::pop_due(&mut self.incoming)?;
        buffer[..frame.len()].copy_from_slice(&frame);
        Some(frame.len())
    }

    fn end_receive(&mut self) {
        self.attachment.end_receive();
    }

    fn has_space(&mut self) -> bool {
        self.attachment.has_space()
    }

    fn transmit<R>(&mut self, length: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut frame = vec![0; length];
        let result = fill(&mut frame);
        let arriving = self.pass(frame, Self::damage_content);
        self.outgoing.extend(arriving);
        result
    }

    fn flush(&mut self) {
        for _ in 0..self.faults.strangers {
            let frame = self.stranger();
            self.next += 1;
            self.incoming.push(Reverse((instant(), self.next, frame)));
        }
        while let Some(frame) = Self::pop_due(&mut self.outgoing) {
            self.attachment.transmit(frame.len(), |buffer| buffer.copy_from_slice(&frame));
        }
        self.attachment.flush();
        self.attachment.end_receive();
    }
}

fn own_addresses() -> impl Iterator<Item = IpAddr> {
    [OURS, OURS_IPV6].into_iter().chain(further_addresses())
}

fn config(facts: &InterfaceFacts) -> StackConfig {
    StackConfig {
        mac: facts.mac,
        mtu: facts.mtu as usize,
        addresses: own_addresses().collect(),
        listen: own_addresses().map(|address| SocketAddr::new(address, 80)).collect(),
        ports: 20_000..=20_999,
        verifies_checksums: facts.verifies_checksums(),
        connections_max: CONNECTIONS_MAX,
        half_open_max: HALF_OPEN_MAX,
        seed: 42,
        queues: 1,
        queue: 0,
        steering: None,
    }
}

fn rules() -> Vec<Rule> {
    let both = |local| [80..=80, 20_000..=20_999].map(|ports| Rule { local, ports, remote: None });
    let served = further_addresses().map(|local| Rule { local, ports: 80..=80, remote: None });
    [OURS, OURS_IPV6].into_iter().flat_map(both).chain(served).collect()
}

/// One connection of the stack that returns what it receives.
struct Echo {
    id: ConnectionId,
    pending: Vec<u8>,
    has_ended: bool,
}

/// Echoes on port 80, and over connections to the targets, until `stop`. Returns the counters.
fn run_echo(
    namespace: &str,
    faults: Faults,
    target: Option<SocketAddr>,
    stop: &AtomicBool,
) -> (StackCounters, usize) {
    enter(namespace);
    let facts = InterfaceFacts::read("x0").unwrap();
    assert!(facts.problems(1, false).is_empty(), "{:?}", facts.problems(1, false));
    let route = facts.route(target.map_or(KERNELS, |target| target.ip())).unwrap();
    let mut attachments = Attachment::open(&facts, &rules(), &[SocketAddr::new(OURS, 80)]).unwrap();
    let attachment = attachments.pop().unwrap();
    let link = FaultyLink::new(attachment, faults);
    let start = instant();
    let now = || start.elapsed().as_nanos() as u64 + 1;
    let mut stack = Stack::new(link, config(&facts), now());
    let mut open: Vec<Echo> = Vec::new();
    let echo = |id| Echo { id, pending: Vec::new(), has_ended: false };
    if let Some(target) = target {
        open.push(echo(stack.connect(route.source, target, route.next_hop, now()).unwrap()));
    }
    let (waker, mut buffer) = (Waker::noop(), vec![0; 8_192]);
    let is_over = |stack: &Stack<FaultyLink>| {
        stop.load(Ordering::Relaxed) && (stack.connections() == 0 || faults.strangers > 0)
    };
    while !is_over(&stack) && start.elapsed() < Duration::from_secs(80) {
        stack.handle_timers(now());
        stack.receive(now(), 64);
        open.extend(std::iter::from_fn(|| stack.accept()).map(echo));
        open.retain_mut(|connection| {
            if stack.poll_connected(connection.id, waker).is_pending() {
                return true;
            }
            if !connection.has_ended && connection.pending.is_empty() {
                match stack.poll_read(connection.id, waker, &mut buffer) {
                    Poll::Ready(Ok(0)) => connection.has_ended = true,
                    Poll::Ready(Ok(bytes)) => connection.pending.extend_from_slice(&buffer[..bytes]),
                    Poll::Ready(Err(_)) => {
                        stack.close(connection.id, now());
                        return false;
                    }
                    Poll::Pending => {}
                }
            }
            while !connection.pending.is_empty()
                && let Poll::Ready(Ok(bytes)) =
                    stack.poll_write(connection.id, waker, &[IoSlice::new(&connection.pending)])
            {
                connection.pending.drain(..bytes);
            }
            let is_over = connection.has_ended && connection.pending.is_empty();
            if is_over {
                stack.close(connection.id, now());
            }
            !is_over
        });
        stack.flush(now());
        std::thread::sleep(Duration::from_micros(200));
    }
    (stack.counters(), stack.connections())
}

/// Accepts the connection of the stack, which may have failed before it opened one.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = instant() + STEP_TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && instant() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("the stack has not connected: {error}"),
        }
    }
}

/// Sends bytes through a connection of the kernel and checks that the same return, and then the end. The reader begins
/// after `pause`: until then the windows of both directions close.
fn check_echo(stream: TcpStream, bytes: usize, seed: u32, pause: Duration) {
    stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(STEP_TIMEOUT)).unwrap();
    let content: Vec<u8> = (0..bytes as u32).map(|at| (at.wrapping_mul(seed) >> 3) as u8).collect();
    let (mut writer, sent) = (stream.try_clone().unwrap(), content.clone());
    let sender = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    std::thread::sleep(pause);
    let mut received = Vec::new();
    (&stream).read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == content, "{} of {bytes} bytes, the same up to {:?}", received.len(), {
        received.iter().zip(&content).position(|(a, b)| a != b)
    });
}

/// Exchanges content with the stack as the kernel's end, in both roles. `None`: not permitted.
fn exchange(faults: Faults, bytes_max: usize, pause: Duration) -> Option<StackCounters> {
    exchange_between((OURS, KERNELS), faults, bytes_max, pause)
}

fn exchange_between(
    (ours, kernels): (IpAddr, IpAddr),
    faults: Faults,
    bytes_max: usize,
    pause: Duration,
) -> Option<StackCounters> {
    let pair = Namespaces::create()?;
    let stop = Arc::new(AtomicBool::new(false));
    let (target, server) = (SocketAddr::new(kernels, 7_777), SocketAddr::new(ours, 80));
    let (ready, is_listening) = std::sync::mpsc::channel();
    let namespace = pair.kernels.clone();
    let peer = std::thread::spawn(move || {
        enter(&namespace);
        let listener = TcpListener::bind(target).unwrap();
        ready.send(()).unwrap();
        // The stack connects, and its connection returns what the kernel sends.
        check_echo(accept(&listener), bytes_max / 2, 31, Duration::ZERO);
        let connect = || TcpStream::connect(server).unwrap();
        for (bytes, seed) in [(0, 1), (1, 2), (100, 3)] {
            check_echo(connect(), bytes, seed, Duration::ZERO);
        }
        check_echo(connect(), bytes_max, 5, pause);
        // A reset by the kernel, which has unread bytes.
        let mut stream = connect();
        stream.write_all(&[1; 1_000]).unwrap();
        std::thread::sleep(Duration::from_millis(20) + 4 * faults.delay);
        drop(stream);
    });
    is_listening.recv().unwrap();
    let (namespace, flag) = (pair.ours.clone(), Arc::clone(&stop));
    let stack = std::thread::spawn(move || run_echo(&namespace, faults, Some(target), &flag));
    peer.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    let (counters, connections) = stack.join().unwrap();
    // A stack with strangers never rests, so that it may be stopped before it reads the last reset.
    let left_max = if faults.strangers > 0 { HALF_OPEN_MAX + 1 } else { 0 };
    assert!(connections <= left_max, "{connections} are left: {faults:?} {counters:?}");
    assert_eq!(counters.started, 1, "{faults:?} {counters:?}");
    assert!(counters.accepted >= 5, "{counters:?}");
    Some(counters)
}

#[test]
fn the_kernel_gets_back_every_byte_over_a_good_link_and_in_another_order() {
    for faults in [Faults::default(), Faults { duplicated: 100, reordered: 100, ..Faults::default() }] {
        let Some(counters) = exchange(faults, 100_000, Duration::ZERO) else { return };
        // Acknowledgements of segments that overtook others may look like a loss.
        assert!(faults.reordered > 0 || counters.retransmitted == 0, "{counters:?}");
    }
}

#[test]
fn ipv6_is_the_same() {
    let faults = Faults { lost: 10, duplicated: 20, reordered: 20, ..Faults::default() };
    for faults in [Faults::default(), faults] {
        let Some(counters) = exchange_between((OURS_IPV6, KERNELS_IPV6), faults, 100_000, Duration::ZERO)
        else {
            return;
        };
        assert!(counters.malformed < 50, "{counters:?}");
    }
}

#[test]
fn the_kernel_gets_back_every_byte_in_spite_of_losses() {
    for lost in [1, 10, 50] {
        let Some(counters) = exchange(Faults { lost, ..Faults::default() }, 100_000, Duration::ZERO) else {
            return;
        };
        assert!(counters.retransmitted > 0 || lost < 50, "{lost}: {counters:?}");
    }
}

#[test]
fn a_long_way_delays_and_loses_nothing() {
    for (delay_ms, lost) in [(10, 0), (100, 0), (20, 10)] {
        let faults = Faults { delay: Duration::from_millis(delay_ms), lost, ..Faults::default() };
        let Some(counters) = exchange(faults, 100_000, Duration::ZERO) else { return };
        assert!(lost > 0 || counters.retransmitted == 0, "{faults:?}: {counters:?}");
    }
}

#[test]
fn damaged_frames_are_lost_and_change_nothing() {
    let Some(counters) = exchange(Faults { damaged: 30, ..Faults::default() }, 200_000, Duration::ZERO)
    else {
        return;
    };
    assert!(counters.malformed > 0 && counters.retransmitted > 0, "{counters:?}");
}

#[test]
fn closed_windows_stop_both_directions_and_open_again() {
    let pause = Duration::from_millis(1_500);
    // More than the buffers of both ends hold.
    let Some(counters) = exchange(Faults::default(), 12_000_000, pause) else { return };
    assert!(counters.zero_windows > 0, "{counters:?}");
}

#[test]
fn each_of_twelve_own_addresses_is_served() {
    let Some(pair) = Namespaces::create() else { return };
    for address in further_addresses() {
        assert!(ip(&format!("-n {} address add {address}/24 dev x0", pair.ours)));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (namespace, flag) = (pair.ours.clone(), Arc::clone(&stop));
    let stack = std::thread::spawn(move || run_echo(&namespace, Faults::default(), None, &flag));
    let namespace = pair.kernels.clone();
    let peer = std::thread::spawn(move || {
        enter(&namespace);
        let deadline = instant() + STEP_TIMEOUT;
        for address in own_addresses() {
            // Until the stack has the packets, the kernel refuses.
            let stream = loop {
                match TcpStream::connect(SocketAddr::new(address, 80)) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(instant() < deadline, "{address}: {error}"),
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            assert_eq!(stream.peer_addr().unwrap().ip(), address);
            check_echo(stream, 10_000, 7, Duration::ZERO);
        }
    });
    peer.join().unwrap();
    stop.store(true, Ordering::Relaxed);
    let (counters, connections) = stack.join().unwrap();
    assert_eq!((counters.accepted, counters.malformed, connections), (12, 0, 0), "{counters:?}");
}

#[test]
fn a_flood_of_strangers_does_not_lock_out_the_kernel() {
    let faults = Faults { strangers: 20, ..Faults::default() };
    let Some(counters) = exchange(faults, 2_000_000, Duration::ZERO) else { return };
    assert!(counters.evicted > 1_000 && counters.refused == 0, "{counters:?}");
}

#[test]
fn what_the_kernel_uses_is_refused_and_what_was_taken_is_given_back() {
    let Some(pair) = Namespaces::create() else { return };
    std::thread::spawn(move || {
        enter(&pair.ours);
        let facts = || InterfaceFacts::read("x0").unwrap();
        assert_eq!((facts().driver.as_str(), facts().mtu, facts().program), ("veth", 1_500, None));
        let addresses = facts().addresses;
        assert!(addresses.contains(&OURS) && addresses.contains(&OURS_IPV6), "{addresses:?}");
        let address = SocketAddr::new(OURS, 80);
        let listener = TcpListener::bind(address).unwrap();
        let open = || Attachment::open(&facts(), &rules(), &[address]);
        assert!(matches!(open(), Err(XdpError::PortUsed(_))));
        assert!(matches!(check_port(address), Err(XdpError::PortUsed(used)) if used == address));
        drop(listener);
        check_port(address).unwrap();
        let ssh = [Rule { local: OURS, ports: 1..=1_000, remote: None }];
        assert!(matches!(Attachment::open(&facts(), &ssh, &[]), Err(XdpError::Ssh)));
        let attachment = open().unwrap();
        let program = facts().program;
        assert!(program.is_some_and(|id| id > 0));
        // Before Linux 6.3 the kernel reports none.
        assert!(facts().mode.is_none_or(|mode| mode == attachment[0].mode()), "{:?}", facts().mode);
        assert!(TcpListener::bind(address).is_err(), "the port is held");
        let elsewhere = [Rule { local: OURS, ports: 90..=90, remote: None }];
        let second = Attachment::open(&facts(), &elsewhere, &[]).unwrap_err();
        assert!(matches!(second, XdpError::ProgramAttached { id, .. } if id == program), "{second}");
        assert!(
            facts()
                .problems(1, false)
                .iter()
                .any(|problem| matches!(problem, XdpError::ProgramAttached { .. }))
        );
        drop(attachment);
        assert_eq!(facts().program, None);
        // The queue is busy for some milliseconds after the last socket; that is waited for.
        for _ in 0..3 {
            drop(open().unwrap());
        }
        drop(TcpListener::bind(address).unwrap());
        assert!(ip(&format!("-n {} route add default dev x0", pair.ours)));
        let problems = facts().problems(1, false);
        assert!(matches!(&problems[..], [XdpError::Exposed(_)]), "{problems:?}");
        assert!(facts().problems(1, true).is_empty());
        let missing = IpAddr::from([10, 78, 0, 99]);
        assert!(matches!(facts().route(missing), Err(XdpError::NoNeighbour { .. })));
        assert!(matches!(facts().route(Ipv4Addr::LOCALHOST.into()), Err(XdpError::NoRoute { .. })));
        assert!(ip(&format!("-n {} link set x0 mtu 9000", pair.ours)));
        assert!(matches!(&facts().problems(1, true)[..], [XdpError::MtuTooLarge { .. }]));
    })
    .join()
    .unwrap();
}
