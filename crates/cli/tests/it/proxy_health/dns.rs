//! Servers by DNS name: a scripted nameserver whose records change, vanish and return.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{CONFIG_HEAD, body, is_in_state, stderr_line_count, wait_for_stderr};
use crate::support::faulty_origins::echoing_server;
use crate::support::hostile_client::BackgroundClients;
use crate::support::metrics::{
    CONFIG_GENERATIONS, DNS_FAILING, DNS_QUERIES, RELOADS, REQUESTS, REQUESTS_IN_FLIGHT, SERVER_REQUESTS,
    SERVER_STATE,
};
use crate::support::proxy_under_test::{EVENT_TIMEOUT, ProxyUnderTest};
use crate::support::{shared_machine, within};

/// Record data of a name.
#[derive(Clone)]
enum RecordData {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Srv { priority: u16, weight: u16, port: u16, target: &'static str },
}

type Zone = Vec<(&'static str, RecordData)>;

/// Behaviour of a nameserver in one phase.
#[derive(Clone)]
enum DnsBehavior {
    Zone(Zone),
    /// The zone, but over UDP only a truncated response.
    Truncated(Zone),
    /// Over UDP the first zone, with the name in the other case; over TCP the second zone.
    Recased(Zone, Zone),
    /// Another zone for each query, in turn.
    RoundRobin(Vec<Zone>),
    Silent,
    Failing,
}

struct Nameserver {
    address: String,
    behavior_index: Arc<AtomicUsize>,
    queries: Arc<AtomicUsize>,
    /// Number of upper-case letters in queried names.
    uppercase_letters: Arc<AtomicUsize>,
}

/// Binds one port for TCP and for UDP.
fn bind_tcp_and_udp() -> (TcpListener, UdpSocket) {
    for _ in 0..20 {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) else { continue };
        return (tcp, udp);
    }
    panic!("no port is free for both protocols")
}

impl Nameserver {
    fn start(phases: Vec<DnsBehavior>) -> Self {
        let (tcp, udp) = bind_tcp_and_udp();
        let address = tcp.local_addr().unwrap();
        let (behavior_index, queries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let uppercase_letters = Arc::new(AtomicUsize::new(0));
        let phases = Arc::new(phases);
        // Both threads end with the tests and are never joined.
        std::thread::spawn({
            let (behavior_index, queries, phases) =
                (Arc::clone(&behavior_index), Arc::clone(&queries), Arc::clone(&phases));
            let uppercase_letters = Arc::clone(&uppercase_letters);
            move || {
                let mut bytes = [0; 600];
                while let Ok((length, from)) = udp.recv_from(&mut bytes) {
                    let upper = bytes[12..length].iter().filter(|byte| byte.is_ascii_uppercase());
                    uppercase_letters.fetch_add(upper.count(), Ordering::SeqCst);
                    let number = queries.fetch_add(1, Ordering::SeqCst);
                    let response = match &phases[behavior_index.load(Ordering::SeqCst)] {
                        DnsBehavior::Silent => continue,
                        DnsBehavior::Failing => build_response(&bytes[..length], &[], 0x8182),
                        DnsBehavior::Truncated(_) => build_response(&bytes[..length], &[], 0x8380),
                        DnsBehavior::Zone(zone) => build_response(&bytes[..length], zone, 0x8180),
                        DnsBehavior::Recased(zone, _) => {
                            // No label is as long as a letter's code.
                            let letters = bytes[12..length].iter_mut();
                            letters.filter(|byte| byte.is_ascii_alphabetic()).for_each(|byte| *byte ^= 0x20);
                            build_response(&bytes[..length], zone, 0x8180)
                        }
                        DnsBehavior::RoundRobin(zones) => {
                            build_response(&bytes[..length], &zones[number % zones.len()], 0x8180)
                        }
                    };
                    let _ = udp.send_to(&response, from);
                }
            }
        });
        std::thread::spawn({
            let phase = Arc::clone(&behavior_index);
            move || {
                for stream in tcp.incoming() {
                    let mut stream = stream.unwrap();
                    let mut length = [0; 2];
                    let mut question = vec![0; 512];
                    let Ok(()) = stream.read_exact(&mut length) else { continue };
                    let length = usize::from(u16::from_be_bytes(length));
                    let Ok(()) = stream.read_exact(&mut question[..length]) else { continue };
                    let (DnsBehavior::Truncated(zone) | DnsBehavior::Recased(_, zone)) =
                        &phases[phase.load(Ordering::SeqCst)]
                    else {
                        continue;
                    };
                    let response = build_response(&question[..length], zone, 0x8180);
                    let _ = stream.write_all(&(response.len() as u16).to_be_bytes());
                    let _ = stream.write_all(&response);
                }
            }
        });
        Self { address: address.to_string(), behavior_index, queries, uppercase_letters }
    }

    fn set_behavior(&self, phase: usize) {
        self.behavior_index.store(phase, Ordering::SeqCst);
    }
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

/// Builds the response to a query: the records of its name and type. Without the name at all it is
/// "no such name".
fn build_response(question: &[u8], zone: &[(&'static str, RecordData)], flags: u16) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 1;
    let name = &question[12..end];
    let kind = u16::from_be_bytes([question[end], question[end + 1]]);
    let own: Vec<&RecordData> = zone
        .iter()
        .filter(|(owner, _)| encode_name(owner).eq_ignore_ascii_case(name))
        .map(|(_, data)| data)
        .collect();
    let mut records = Vec::new();
    let mut count = 0_u16;
    for data in &own {
        let (of, content) = match data {
            RecordData::A(ip) => (1_u16, ip.octets().to_vec()),
            RecordData::Aaaa(ip) => (28, ip.octets().to_vec()),
            RecordData::Srv { priority, weight, port, target } => {
                let mut content = Vec::new();
                for word in [priority, weight, port] {
                    content.extend(word.to_be_bytes());
                }
                content.extend(encode_name(target));
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

/// Starts servers on one port of two loopback addresses; each responds with its name.
fn start_on_one_port(servers: [(&str, &'static str); 2]) -> u16 {
    let [(first_address, first_name), (second_address, second_name)] = servers;
    for _ in 0..20 {
        let first = TcpListener::bind((first_address, 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        let Ok(second) = TcpListener::bind((second_address, port)) else { continue };
        for (listener, name) in [(first, first_name), (second, second_name)] {
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    std::thread::spawn(move || respond_with_name(stream.unwrap(), name));
                }
            });
        }
        return port;
    }
    panic!("no port is free on both addresses")
}

fn one_and_two() -> u16 {
    start_on_one_port([("127.0.0.1", "one"), ("127.0.0.2", "two")])
}

fn respond_with_name(mut stream: TcpStream, name: &str) {
    let mut request_bytes = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut bytes) {
        request_bytes.extend_from_slice(&bytes[..read]);
        if request_bytes.ends_with(b"\r\n\r\n") {
            request_bytes.clear();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
            let _ = stream.write_all(response.as_bytes());
        }
    }
}

/// Formats a config whose timeout is longer than a busy machine delays the nameserver.
fn config(servers: &str, nameserver: &Nameserver) -> String {
    format!(
        "{CONFIG_HEAD}[pool.app]\nservers = [{servers}]\n[pool.app.resolve]\nnameserver = \"{}\"\n\
         interval = \"1s\"\ninterval-min = \"50ms\"\ntimeout = \"5s\"\n",
        nameserver.address
    )
}

fn a_record(last: u8) -> (&'static str, RecordData) {
    ("app.test", RecordData::A(Ipv4Addr::new(127, 0, 0, last)))
}

#[test]
fn changed_records_are_followed_and_old_ones_kept_without_responses() {
    let _shared = shared_machine();
    let port = one_and_two();
    let nameserver = Nameserver::start(vec![
        DnsBehavior::Zone(vec![a_record(1)]),
        DnsBehavior::Zone(vec![a_record(2)]),
        DnsBehavior::Silent,
        DnsBehavior::Failing,
        DnsBehavior::Zone(vec![a_record(2), a_record(1)]),
        DnsBehavior::Zone(vec![a_record(1), a_record(2)]),
    ]);
    let proxy = ProxyUnderTest::weir(&config(&format!("\"App.Test:{port}\""), &nameserver));
    // The lookup was complete before the first request.
    assert_eq!(body(&proxy), "one");
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    nameserver.set_behavior(1);
    assert!(within(EVENT_TIMEOUT, || body(&proxy) == "two"), "{}", proxy.stderr());
    let [name, old, new] = ["app.test", "127.0.0.1", "127.0.0.2"].map(|host| format!("{host}:{port}"));
    wait_for_stderr(&proxy, &[&name, &format!(" {new}, previously {old}")]);
    background.wait_for(50);
    for (phase, result) in [(2, "timeout"), (3, "refused")] {
        nameserver.set_behavior(phase);
        proxy.metrics_until(result, |metrics| {
            metrics.sum(DNS_QUERIES, &[("result", result)]) >= 1.0
                && metrics.sum_known(DNS_FAILING, &[]) == 1.0
        });
        assert_eq!(body(&proxy), "two");
    }
    wait_for_stderr(&proxy, &[&name, "keeping"]);
    nameserver.set_behavior(4);
    proxy.metrics_until("both are there", |metrics| {
        let is_up =
            |server: &String| metrics.sum(SERVER_STATE, &[("server", server), ("state", "up")]) == 1.0;
        [&old, &new].into_iter().all(is_up) && metrics.sum_known(DNS_FAILING, &[]) == 0.0
    });
    // A different order is no change.
    let notices = || stderr_line_count(&proxy, &[&name, ", previously "]);
    assert!(within(EVENT_TIMEOUT, || notices() == 2), "{}", proxy.stderr());
    nameserver.set_behavior(5);
    let queries = nameserver.queries.load(Ordering::SeqCst);
    assert!(within(EVENT_TIMEOUT, || nameserver.queries.load(Ordering::SeqCst) > queries + 3));
    assert_eq!(notices(), 2);
    // None of the changes lost a request.
    assert!(background.finish() > 50);
}

#[test]
fn a_service_brings_ports_and_weights() {
    let _shared = shared_machine();
    let (first, second, spare) = (echoing_server("one"), echoing_server("two"), echoing_server("spare"));
    let port = |server: &crate::support::peers::ScriptedServer| {
        server.authority.rsplit(':').next().unwrap().parse::<u16>().unwrap()
    };
    let service = |priority, weight, port| {
        ("_http._tcp.test", RecordData::Srv { priority, weight, port, target: "h.test" })
    };
    let zone = vec![
        service(1, 3, port(&first)),
        service(1, 1, port(&second)),
        service(2, 9, port(&spare)),
        ("h.test", RecordData::A(Ipv4Addr::LOCALHOST)),
    ];
    let nameserver = Nameserver::start(vec![DnsBehavior::Zone(zone)]);
    let config = config("{ srv = \"_http._tcp.test\" }", &nameserver)
        .replace("threads = 2", "threads = 1")
        .replace("[pool.app]", "[pool.app]\nbalance = \"round-robin\"");
    let proxy = ProxyUnderTest::weir(&config);
    let bodies: Vec<String> = (0..40).map(|_| body(&proxy)).collect();
    let count = |name: &str| bodies.iter().filter(|body| body.lines().next() == Some(name)).count();
    assert_eq!((count("one"), count("two"), count("spare")), (30, 10, 0));
    assert!(is_in_state(&proxy.metrics(), &first.authority, "up"));
}

#[test]
fn the_preferred_family_is_taken_and_the_other_one_when_there_is_no_address_of_it() {
    let _shared = shared_machine();
    let port = start_on_one_port([("::1", "six"), ("127.0.0.1", "four")]);
    let nameserver = Nameserver::start(vec![DnsBehavior::Zone(vec![
        ("app.test", RecordData::Aaaa(Ipv6Addr::LOCALHOST)),
        ("both.test", RecordData::Aaaa(Ipv6Addr::LOCALHOST)),
        ("both.test", RecordData::A(Ipv4Addr::LOCALHOST)),
    ])]);
    for (name, prefer, expected) in
        [("app.test", "ipv4", "six"), ("both.test", "ipv4", "four"), ("both.test", "ipv6", "six")]
    {
        let config = config(&format!("\"{name}:{port}\""), &nameserver);
        let proxy = ProxyUnderTest::weir(&format!("{config}prefer = \"{prefer}\"\n"));
        assert_eq!(body(&proxy), expected, "{name} {prefer}");
    }
}

#[test]
fn what_does_not_fit_is_asked_for_over_tcp() {
    let _shared = shared_machine();
    let port = one_and_two();
    let nameserver = Nameserver::start(vec![DnsBehavior::Truncated(vec![a_record(2)])]);
    let proxy = ProxyUnderTest::weir(&config(&format!("\"app.test:{port}\""), &nameserver));
    assert_eq!(body(&proxy), "two");
}

#[test]
fn a_response_with_another_name_case_is_rejected() {
    let _shared = shared_machine();
    let port = one_and_two();
    // An attacker that forges responses does not know the case.
    let nameserver = Nameserver::start(vec![DnsBehavior::Recased(vec![a_record(1)], vec![a_record(2)])]);
    let proxy = ProxyUnderTest::weir(&config(&format!("\"app.test:{port}\""), &nameserver));
    assert_eq!(body(&proxy), "two");
    let queries = || nameserver.queries.load(Ordering::SeqCst);
    assert!(within(EVENT_TIMEOUT, || queries() >= 20), "{}", proxy.stderr());
    assert_eq!(body(&proxy), "two");
    // Each letter is in upper case by chance.
    let capitals = nameserver.uppercase_letters.load(Ordering::SeqCst);
    assert!(capitals > 0 && capitals < queries() * "apptest".len(), "{capitals} of {}", queries());
}

#[test]
fn a_name_may_come_later_than_the_proxy_and_with_a_reload() {
    let _shared = shared_machine();
    let port = one_and_two();
    let nameserver = Nameserver::start(vec![
        DnsBehavior::Zone(Vec::new()),
        DnsBehavior::Zone(vec![a_record(1), ("b.test", RecordData::A(Ipv4Addr::new(127, 0, 0, 2)))]),
    ]);
    let proxy = ProxyUnderTest::weir(&config(&format!("\"app.test:{port}\""), &nameserver));
    assert_eq!(proxy.get("/").status, 503);
    wait_for_stderr(&proxy, &[&format!("app.test:{port}: "), "no servers"]);
    nameserver.set_behavior(1);
    assert!(within(EVENT_TIMEOUT, || proxy.get("/").status == 200), "{}", proxy.stderr());
    assert_eq!(body(&proxy), "one");
    proxy.reload(&config(&format!("\"b.test:{port}\""), &nameserver));
    assert!(within(EVENT_TIMEOUT, || body(&proxy) == "two"), "{}", proxy.stderr());
    // Names that the system itself resolves need no nameserver.
    proxy.reload(&format!("{CONFIG_HEAD}[pool.app]\nservers = [\"localhost:{port}\"]\n"));
    assert!(within(EVENT_TIMEOUT, || body(&proxy) == "one"), "{}", proxy.stderr());
}

/// Number of requests in flight while the name changes.
const IN_FLIGHT: usize = 40;

#[test]
fn a_name_that_rotates_swaps_servers_and_makes_no_configuration() {
    let _shared = shared_machine();
    let port = one_and_two();
    let nameserver =
        Nameserver::start(vec![DnsBehavior::RoundRobin(vec![vec![a_record(1)], vec![a_record(2)]])]);
    // The requests in flight wait for the end of their bodies, as long as the machine needs.
    let timeouts = "pool = \"app\"\ntimeouts = { body-idle = \"10m\", body-progress = \"10m\" }\n";
    let config = config(&format!("\"app.test:{port}\""), &nameserver)
        .replace("threads = 2", "threads = 1")
        .replace("pool = \"app\"\n", timeouts)
        .replace("50ms", "5ms");
    let proxy = ProxyUnderTest::weir(&format!(
        "{config}[listener.raw]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n"
    ));
    let mut tunnel = TcpStream::connect(&proxy.addresses("raw")[0]).unwrap();
    let rotations = || proxy.stderr().matches(", previously ").count();
    let wait = |more: usize| {
        let from = rotations();
        assert!(within(EVENT_TIMEOUT, || rotations() >= from + more), "{}", proxy.stderr());
    };
    // Each of them keeps the servers that it found.
    let mut waiting = Vec::new();
    for _ in 0..IN_FLIGHT {
        let mut client = proxy.client();
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nx");
        waiting.push(client);
        wait(11);
    }
    let metrics = proxy.metrics_until("all are in flight", |metrics| {
        metrics.sum_known(REQUESTS_IN_FLIGHT, &[]) == (IN_FLIGHT + 1) as f64
    });
    assert_eq!(metrics.sum_known(CONFIG_GENERATIONS, &[]), 1.0);
    assert_eq!(metrics.sum(RELOADS, &[]), 0.0);
    let resident = proxy.resident_bytes();
    for _ in 0..20 {
        let queries = nameserver.queries.load(Ordering::SeqCst);
        assert!(within(EVENT_TIMEOUT, || nameserver.queries.load(Ordering::SeqCst) >= queries + 50));
    }
    assert_eq!(proxy.metrics().sum_known(CONFIG_GENERATIONS, &[]), 1.0);
    let grown = proxy.resident_bytes().saturating_sub(resident);
    assert!(grown < 2 << 20, "1,000 rotations took {grown} bytes");
    // No client has lost anything.
    for client in &mut waiting {
        client.send(b"\r\n\r\n");
        assert_eq!(client.read_response().expect("a response").status, 200);
    }
    tunnel.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    let mut byte = [0];
    tunnel.read_exact(&mut byte).unwrap();
    drop(tunnel);
    let metrics =
        proxy.metrics_until("all have ended", |metrics| metrics.sum_known(REQUESTS_IN_FLIGHT, &[]) == 0.0);
    // Every request counts once, with any server; a tunnel counts only while its server is known.
    assert_eq!(metrics.sum(REQUESTS, &[]), (IN_FLIGHT + 1) as f64);
    let counted = metrics.sum(SERVER_REQUESTS, &[("connection", "new")]);
    assert!((IN_FLIGHT..=IN_FLIGHT + 1).contains(&(counted as usize)), "{counted}");
}
