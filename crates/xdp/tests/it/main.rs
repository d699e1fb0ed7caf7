//! The stack against the TCP of the kernel, over a veth pair between two namespaces, with faults in both directions.

#![allow(clippy::unwrap_used, reason = "a test gives up where it cannot go on")]

use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::AsFd;

use xdp::attachment::Attachment;
use xdp::interface::{InterfaceFacts, XdpError};
use xdp::program::Rule;
use xdp::stack::{CONNECTIONS_MAX, ConnectionId, HALF_OPEN_MAX, Link, Stack, StackConfig, StackCounters};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const KERNELS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// Two namespaces with a veth pair: `ours` has the interface of the stack.
struct Namespaces {
    ours: String,
    kernels: String,
}

fn ip(line: &str) -> bool {
    let status = Command::new("ip").args(line.split(' ')).stderr(Stdio::null()).status();
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
        for (namespace, device, address) in [(&pair.ours, "x0", OURS), (&pair.kernels, "x1", KERNELS)] {
            assert!(ip(&format!("-n {namespace} address add {address}/24 dev {device}")));
            assert!(ip(&format!("-n {namespace} link set {device} up")));
            assert!(ip(&format!("-n {namespace} link set lo up")));
        }
        Some(pair)
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
    /// Frames that are held back until the next ones.
    delayed: u64,
}

struct FaultyLink {
    attachment: Attachment,
    faults: Faults,
    random: u64,
    held: Vec<Vec<u8>>,
    repeated: Option<Vec<u8>>,
}

impl FaultyLink {
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1_000
    }

    fn send(&mut self, frame: &[u8]) {
        self.attachment.transmit(frame.len(), |buffer| buffer.copy_from_slice(frame));
    }
}

impl Link for FaultyLink {
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        if let Some(frame) = self.repeated.take() {
            buffer[..frame.len()].copy_from_slice(&frame);
            return Some(frame.len());
        }
        let length = self.attachment.receive(buffer)?;
        if self.draw() < self.faults.duplicated {
            self.repeated = Some(buffer[..length].to_vec());
        }
        // A frame of no bytes is not usable, and counts as lost.
        Some(if self.draw() < self.faults.lost { 0 } else { length })
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
        let draws = [self.draw(), self.draw(), self.draw()];
        if draws[0] < self.faults.lost {
            return result;
        }
        if draws[1] < self.faults.delayed {
            self.held.push(frame);
            return result;
        }
        self.send(&frame);
        if draws[2] < self.faults.duplicated {
            self.send(&frame);
        }
        result
    }

    fn flush(&mut self) {
        // What was held back is sent behind what was not.
        for frame in std::mem::take(&mut self.held) {
            self.send(&frame);
        }
        self.attachment.flush();
    }
}

fn config(facts: &InterfaceFacts) -> StackConfig {
    StackConfig {
        mac: facts.mac,
        mtu: facts.mtu as usize,
        addresses: vec![OURS],
        listen: vec![SocketAddrV4::new(OURS, 80)],
        ports: 20_000..=20_999,
        verifies_checksums: facts.verifies_checksums(),
        connections_max: CONNECTIONS_MAX,
        half_open_max: HALF_OPEN_MAX,
        seed: 42,
    }
}

fn rules() -> Vec<Rule> {
    vec![
        Rule { local: OURS, ports: 80..=80, remote: None },
        Rule { local: OURS, ports: 20_000..=20_999, remote: None },
    ]
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
    target: Option<SocketAddrV4>,
    stop: &AtomicBool,
) -> (StackCounters, usize) {
    enter(namespace);
    let facts = InterfaceFacts::read("x0").unwrap();
    assert!(facts.problems(false).is_empty(), "{:?}", facts.problems(false));
    let route = facts.route(KERNELS).unwrap();
    let attachment = Attachment::open(&facts, &rules(), &[SocketAddrV4::new(OURS, 80)]).unwrap();
    let link = FaultyLink { attachment, faults, random: 0x1234_5678_9abc, held: Vec::new(), repeated: None };
    #[expect(clippy::disallowed_methods, reason = "this crate has no clock: its callers give the time")]
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64 + 1;
    let mut stack = Stack::new(link, config(&facts), now());
    let mut open: Vec<Echo> = Vec::new();
    let echo = |id| Echo { id, pending: Vec::new(), has_ended: false };
    if let Some(target) = target {
        open.push(echo(stack.connect(route.source, target, route.next_hop, now()).unwrap()));
    }
    let (waker, mut buffer) = (Waker::noop(), vec![0; 8_192]);
    while !stop.load(Ordering::Relaxed)
        || (stack.connections() > 0 && start.elapsed() < Duration::from_secs(50))
    {
        stack.handle_timers(now());
        stack.receive(now(), 64);
        open.extend(std::iter::from_fn(|| stack.accept()).map(echo));
        open.retain_mut(|one| {
            if stack.poll_connected(one.id, waker).is_pending() {
                return true;
            }
            if !one.has_ended && one.pending.is_empty() {
                match stack.poll_read(one.id, waker, &mut buffer) {
                    Poll::Ready(Ok(0)) => one.has_ended = true,
                    Poll::Ready(Ok(bytes)) => one.pending.extend_from_slice(&buffer[..bytes]),
                    Poll::Ready(Err(_)) => {
                        stack.close(one.id, now());
                        return false;
                    }
                    Poll::Pending => {}
                }
            }
            while !one.pending.is_empty()
                && let Poll::Ready(Ok(bytes)) = stack.poll_write(one.id, waker, &[IoSlice::new(&one.pending)])
            {
                one.pending.drain(..bytes);
            }
            let is_over = one.has_ended && one.pending.is_empty();
            if is_over {
                stack.close(one.id, now());
            }
            !is_over
        });
        stack.flush(now());
        std::thread::sleep(Duration::from_micros(200));
    }
    (stack.counters(), stack.connections())
}

/// Sends bytes through a connection of the kernel and checks that the same return, and then the end.
fn check_echo(stream: TcpStream, bytes: usize, seed: u32) {
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    let content: Vec<u8> = (0..bytes as u32).map(|at| (at.wrapping_mul(seed) >> 3) as u8).collect();
    let (mut writer, sent) = (stream.try_clone().unwrap(), content.clone());
    let sender = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    (&stream).read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == content, "{} of {bytes} bytes, the same up to {:?}", received.len(), {
        received.iter().zip(&content).position(|(a, b)| a != b)
    });
}

#[test]
fn the_kernel_gets_back_every_byte_in_spite_of_faults() {
    let kinds = [
        Faults::default(),
        Faults { duplicated: 100, delayed: 100, ..Faults::default() },
        Faults { lost: 10, ..Faults::default() },
    ];
    for faults in kinds {
        let Some(pair) = Namespaces::create() else { return };
        let stop = Arc::new(AtomicBool::new(false));
        let target = SocketAddrV4::new(KERNELS, 7_777);
        let (ready, is_listening) = std::sync::mpsc::channel();
        let kernels = pair.kernels.clone();
        let peer = std::thread::spawn(move || {
            enter(&kernels);
            let listener = TcpListener::bind(target).unwrap();
            ready.send(()).unwrap();
            // The stack connects, and its connection returns what the kernel sends.
            check_echo(listener.accept().unwrap().0, 60_000, 31);
            for (bytes, seed) in [(0, 1), (1, 2), (100, 3), (100_000, 5)] {
                check_echo(TcpStream::connect(SocketAddrV4::new(OURS, 80)).unwrap(), bytes, seed);
            }
            // A reset by the kernel, which has unread bytes.
            let mut stream = TcpStream::connect(SocketAddrV4::new(OURS, 80)).unwrap();
            stream.write_all(&[1; 1_000]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            drop(stream);
        });
        is_listening.recv().unwrap();
        let (ours, flag) = (pair.ours.clone(), Arc::clone(&stop));
        let stack = std::thread::spawn(move || run_echo(&ours, faults, Some(target), &flag));
        peer.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        let (counters, connections) = stack.join().unwrap();
        assert_eq!((connections, counters.started), (0, 1), "{faults:?} {counters:?}");
        assert!(counters.accepted >= 5, "{counters:?}");
        assert_eq!(counters.retransmitted > 0, faults.lost > 0, "{faults:?} {counters:?}");
    }
}

#[test]
fn what_the_kernel_uses_is_refused_and_what_was_taken_is_given_back() {
    let Some(pair) = Namespaces::create() else { return };
    std::thread::spawn(move || {
        enter(&pair.ours);
        let facts = || InterfaceFacts::read("x0").unwrap();
        assert_eq!((facts().driver.as_str(), facts().mtu, facts().program), ("veth", 1_500, None));
        assert_eq!(facts().addresses, [OURS]);
        let address = SocketAddrV4::new(OURS, 80);
        let listener = TcpListener::bind(address).unwrap();
        let open = || Attachment::open(&facts(), &rules(), &[address]);
        assert!(matches!(open(), Err(XdpError::PortUsed(_))));
        drop(listener);
        let ssh = [Rule { local: OURS, ports: 1..=1_000, remote: None }];
        assert!(matches!(Attachment::open(&facts(), &ssh, &[]), Err(XdpError::Ssh)));
        let attachment = open().unwrap();
        let program = facts().program;
        assert!(program.is_some_and(|id| id > 0));
        assert!(TcpListener::bind(address).is_err(), "the port is held");
        let elsewhere = [Rule { local: OURS, ports: 90..=90, remote: None }];
        assert!(Attachment::open(&facts(), &elsewhere, &[]).is_err());
        assert!(
            facts().problems(false).iter().any(|problem| matches!(problem, XdpError::ProgramAttached { .. }))
        );
        drop(attachment);
        assert_eq!(facts().program, None);
        // The queue is busy for some milliseconds after the last socket; that is waited for.
        for _ in 0..3 {
            drop(open().unwrap());
        }
        drop(TcpListener::bind(address).unwrap());
        assert!(ip(&format!("-n {} route add default dev x0", pair.ours)));
        let problems = facts().problems(false);
        assert!(matches!(&problems[..], [XdpError::Exposed(_)]), "{problems:?}");
        assert!(facts().problems(true).is_empty());
        let missing = Ipv4Addr::new(10, 78, 0, 99);
        assert!(matches!(facts().route(missing), Err(XdpError::NoNeighbour { .. })));
        assert!(matches!(facts().route(Ipv4Addr::LOCALHOST), Err(XdpError::NoRoute { .. })));
        assert!(ip(&format!("-n {} link set x0 mtu 9000", pair.ours)));
        assert!(matches!(&facts().problems(true)[..], [XdpError::MtuTooLarge { .. }]));
    })
    .join()
    .unwrap();
}
