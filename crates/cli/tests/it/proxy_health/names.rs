//! Servers by name: a scripted nameserver whose answers change, go away and come back.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{TOP, body, is_in, wait_for_words};
use crate::support::door::{Door, PATIENCE};
use crate::support::faulty::telling;
use crate::support::metrics::{DNS_FAILING, DNS_QUERIES, SERVER_STATE};
use crate::support::rude::Crowd;
use crate::support::{beside_others, within};

/// What a name has.
#[derive(Clone)]
enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Srv { priority: u16, weight: u16, port: u16, target: &'static str },
}

type Zone = Vec<(&'static str, Data)>;

/// What a nameserver says at a time.
#[derive(Clone)]
enum Phase {
    Zone(Zone),
    /// The same, but over UDP only that it is too long for that.
    Long(Zone),
    Silent,
    Failing,
}

struct Nameserver {
    address: String,
    phase: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Nameserver {
    fn start(phases: Vec<Phase>) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        let (phase, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let phases = Arc::new(phases);
        // Both threads end with the tests: nobody waits for them.
        std::thread::spawn({
            let (phase, asked, phases) =
                (Arc::clone(&phase), Arc::clone(&asked), Arc::clone(&phases));
            move || {
                let mut bytes = [0; 600];
                while let Ok((length, from)) = udp.recv_from(&mut bytes) {
                    asked.fetch_add(1, Ordering::SeqCst);
                    let answer = match &phases[phase.load(Ordering::SeqCst)] {
                        Phase::Silent => continue,
                        Phase::Failing => answer(&bytes[..length], &[], 0x8182),
                        Phase::Long(_) => answer(&bytes[..length], &[], 0x8380),
                        Phase::Zone(zone) => answer(&bytes[..length], zone, 0x8180),
                    };
                    let _ = udp.send_to(&answer, from);
                }
            }
        });
        std::thread::spawn({
            let phase = Arc::clone(&phase);
            move || {
                for stream in tcp.incoming() {
                    let mut stream = stream.unwrap();
                    let mut length = [0; 2];
                    let mut question = vec![0; 512];
                    let Ok(()) = stream.read_exact(&mut length) else { continue };
                    let length = usize::from(u16::from_be_bytes(length));
                    let Ok(()) = stream.read_exact(&mut question[..length]) else { continue };
                    let Phase::Long(zone) = &phases[phase.load(Ordering::SeqCst)] else { continue };
                    let answer = answer(&question[..length], zone, 0x8180);
                    let _ = stream.write_all(&(answer.len() as u16).to_be_bytes());
                    let _ = stream.write_all(&answer);
                }
            }
        });
        Self { address: address.to_string(), phase, asked }
    }

    fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::SeqCst);
    }
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// The answer to a question: the records of the name and type that it is about; without the name at
/// all it is "no such name".
fn answer(question: &[u8], zone: &[(&'static str, Data)], flags: u16) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let name = &question[12..end];
    let kind = u16::from_be_bytes([question[end], question[end + 1]]);
    let own: Vec<&Data> = zone
        .iter()
        .filter(|(owner, _)| encoded(owner).eq_ignore_ascii_case(name))
        .map(|(_, data)| data)
        .collect();
    let mut records = Vec::new();
    let mut count = 0_u16;
    for data in &own {
        let (of, content) = match data {
            Data::A(ip) => (1_u16, ip.octets().to_vec()),
            Data::Aaaa(ip) => (28, ip.octets().to_vec()),
            Data::Srv { priority, weight, port, target } => {
                let mut content = Vec::new();
                for word in [priority, weight, port] {
                    content.extend(word.to_be_bytes());
                }
                content.extend(encoded(target));
                (33, content)
            }
        };
        if of != kind {
            continue;
        }
        count += 1;
        records.extend([0xc0, 12]);
        records.extend([of.to_be_bytes(), [0, 1], [0, 0], [0, 0]].concat());
        records.extend((content.len() as u16).to_be_bytes());
        records.extend(content);
    }
    let flags = if own.is_empty() && flags == 0x8180 { 0x8183 } else { flags };
    let mut bytes = question[..end + 4].to_vec();
    bytes[2..4].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&count.to_be_bytes());
    bytes.extend(records);
    bytes
}

/// Servers on one port of two loopback addresses, which say their names.
fn on_one_port(servers: [(&str, &'static str); 2]) -> u16 {
    let [(one, one_says), (two, two_says)] = servers;
    for _ in 0..20 {
        let one = TcpListener::bind((one, 0)).unwrap();
        let port = one.local_addr().unwrap().port();
        let Ok(two) = TcpListener::bind((two, port)) else { continue };
        for (listener, name) in [(one, one_says), (two, two_says)] {
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    std::thread::spawn(move || say(stream.unwrap(), name));
                }
            });
        }
        return port;
    }
    panic!("no port is free on both addresses")
}

fn one_and_two() -> u16 {
    on_one_port([("127.0.0.1", "one"), ("127.0.0.2", "two")])
}

fn say(mut stream: std::net::TcpStream, name: &str) {
    let mut seen = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..read]);
        if seen.ends_with(b"\r\n\r\n") {
            seen.clear();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            let _ = stream.write_all(answer.as_bytes());
        }
    }
}

/// The time-out is longer than a busy machine keeps the nameserver from answering.
fn config(servers: &str, nameserver: &Nameserver) -> String {
    format!(
        "{TOP}[pool.app]\nservers = [{servers}]\n[pool.app.resolve]\nnameserver = \"{}\"\n\
         interval = \"1s\"\ninterval-min = \"50ms\"\ntimeout = \"5s\"\n",
        nameserver.address
    )
}

fn a(last: u8) -> (&'static str, Data) {
    ("app.test", Data::A(Ipv4Addr::new(127, 0, 0, last)))
}

#[test]
fn changed_records_are_followed_and_what_was_known_holds_without_answers() {
    let _shared = beside_others();
    let port = one_and_two();
    let nameserver = Nameserver::start(vec![
        Phase::Zone(vec![a(1)]),
        Phase::Zone(vec![a(2)]),
        Phase::Silent,
        Phase::Failing,
        Phase::Zone(vec![a(2), a(1)]),
        Phase::Zone(vec![a(1), a(2)]),
    ]);
    let door = Door::weir(&config(&format!("\"App.Test:{port}\""), &nameserver));
    // It was looked up before the first request could come.
    assert_eq!(body(&door), "one");
    let crowd = Crowd::start(door.authority(), "/", 4);
    nameserver.enter(1);
    assert!(within(PATIENCE, || body(&door) == "two"), "{}", door.stderr());
    let was = format!("app.test:{port} is 127.0.0.2:{port}, and was 127.0.0.1:{port}");
    wait_for_words(&door, &was);
    crowd.wait_for(50);
    for (phase, result) in [(2, "timeout"), (3, "refused")] {
        nameserver.enter(phase);
        door.metrics_until(result, |metrics| {
            metrics.sum(DNS_QUERIES, &[("result", result)]) >= 1.0
                && metrics.known(DNS_FAILING, &[]) == 1.0
        });
        assert_eq!(body(&door), "two");
    }
    wait_for_words(&door, "its servers stay as they were");
    nameserver.enter(4);
    let both = [format!("127.0.0.1:{port}"), format!("127.0.0.2:{port}")];
    let metrics = door.metrics_until("both are there", |metrics| {
        both.iter().all(|one| metrics.sum(SERVER_STATE, &[("server", one), ("state", "up")]) == 1.0)
    });
    assert_eq!(metrics.known(DNS_FAILING, &[]), 0.0);
    // Another order is no change.
    let notices = || door.stderr().matches(", and was ").count();
    let before = notices();
    nameserver.enter(5);
    let asked = nameserver.asked.load(Ordering::SeqCst);
    assert!(within(PATIENCE, || nameserver.asked.load(Ordering::SeqCst) > asked + 3));
    assert_eq!(notices(), before);
    // Nobody lost a request by any of it.
    assert!(crowd.finish() > 50);
}

#[test]
fn a_service_brings_ports_and_weights() {
    let _shared = beside_others();
    let (one, two, spare) = (telling("one"), telling("two"), telling("spare"));
    let port = |server: &crate::support::peers::Scripted| {
        server.authority.rsplit(':').next().unwrap().parse::<u16>().unwrap()
    };
    let service = |priority, weight, port| {
        ("_http._tcp.test", Data::Srv { priority, weight, port, target: "h.test" })
    };
    let zone = vec![
        service(1, 3, port(&one)),
        service(1, 1, port(&two)),
        service(2, 9, port(&spare)),
        ("h.test", Data::A(Ipv4Addr::LOCALHOST)),
    ];
    let nameserver = Nameserver::start(vec![Phase::Zone(zone)]);
    let config = config("{ srv = \"_http._tcp.test\" }", &nameserver)
        .replace("threads = 2", "threads = 1")
        .replace("[pool.app]", "[pool.app]\nbalance = \"round-robin\"");
    let door = Door::weir(&config);
    let bodies: Vec<String> = (0..40).map(|_| body(&door)).collect();
    let count = |name: &str| bodies.iter().filter(|body| body.lines().next() == Some(name)).count();
    assert_eq!((count("one"), count("two"), count("spare")), (30, 10, 0));
    assert!(is_in(&door.metrics(), &one.authority, "up"));
}

#[test]
fn the_preferred_family_is_taken_and_the_other_one_when_there_is_no_address_of_it() {
    let _shared = beside_others();
    let port = on_one_port([("::1", "six"), ("127.0.0.1", "four")]);
    let nameserver = Nameserver::start(vec![Phase::Zone(vec![
        ("app.test", Data::Aaaa(Ipv6Addr::LOCALHOST)),
        ("both.test", Data::Aaaa(Ipv6Addr::LOCALHOST)),
        ("both.test", Data::A(Ipv4Addr::LOCALHOST)),
    ])]);
    for (name, prefer, wanted) in
        [("app.test", "ipv4", "six"), ("both.test", "ipv4", "four"), ("both.test", "ipv6", "six")]
    {
        let config = config(&format!("\"{name}:{port}\""), &nameserver);
        let door = Door::weir(&format!("{config}prefer = \"{prefer}\"\n"));
        assert_eq!(body(&door), wanted, "{name} {prefer}");
    }
}

#[test]
fn what_does_not_fit_is_asked_for_over_tcp() {
    let _shared = beside_others();
    let port = one_and_two();
    let nameserver = Nameserver::start(vec![Phase::Long(vec![a(2)])]);
    let door = Door::weir(&config(&format!("\"app.test:{port}\""), &nameserver));
    assert_eq!(body(&door), "two");
}

#[test]
fn a_name_may_come_later_than_the_proxy_and_with_a_reload() {
    let _shared = beside_others();
    let port = one_and_two();
    let nameserver = Nameserver::start(vec![
        Phase::Zone(Vec::new()),
        Phase::Zone(vec![a(1), ("b.test", Data::A(Ipv4Addr::new(127, 0, 0, 2)))]),
    ]);
    let door = Door::weir(&config(&format!("\"app.test:{port}\""), &nameserver));
    assert_eq!(door.get("/").status, 503);
    wait_for_words(&door, "there is no such name; it has no servers");
    nameserver.enter(1);
    assert!(within(PATIENCE, || door.get("/").status == 200), "{}", door.stderr());
    assert_eq!(body(&door), "one");
    door.reload(&config(&format!("\"b.test:{port}\""), &nameserver));
    assert!(within(Duration::from_secs(20), || body(&door) == "two"), "{}", door.stderr());
    // Names that the system knows itself need no nameserver.
    door.reload(&format!("{TOP}[pool.app]\nservers = [\"localhost:{port}\"]\n"));
    assert!(within(Duration::from_secs(20), || body(&door) == "one"), "{}", door.stderr());
}
