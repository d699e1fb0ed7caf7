//! Tests of `weir proxy` in TCP mode: the bytes of both directions, complete and in order, of any
//! number and with either end first. `bench/run strictness` runs some of them through HAProxy, which
//! proves that they are correct.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::faulty_origins::{RefusingPort, reset_on_close};
use crate::support::haproxy_log::HaproxyLogLine;
use crate::support::hostile_client::connect;
use crate::support::metrics::CONNECTIONS_OPEN;
use crate::support::peers::{Nginx, PythonServer, ScriptPeer, ScriptedServer};
use crate::support::proxies::{ProxyKind, is_installed};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, can_open_descriptors, pause_ms, shared_machine, within};

/// Starts a proxy in TCP mode in front of this server; `more` goes into the pool.
fn start_weir(server: &str, more: &str) -> ProxyUnderTest {
    ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = \"127.0.0.1:0\"\n\
         [[log]]\nto = \"file:HOME/access.haproxy\"\nformat = \"haproxy\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\nmode = \"tcp\"\npool = \"app\"\n\
         timeouts = {{ write = \"5s\" }}\n\
         [pool.app]\nservers = [\"{server}\"]\n{more}\n"
    ))
}

/// Starts HAProxy instead.
fn start_haproxy(server: &str) -> ProxyUnderTest {
    ProxyUnderTest::haproxy(&format!(
        "global\n  log stdout format raw local0\ndefaults\n  mode tcp\n  log global\n  \
         option tcplog\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\n\
         listen web\n  bind 127.0.0.1:PORT\n  server one {server}\n"
    ))
}

/// Returns the byte at a position. It differs between the positions of a stream and between
/// streams.
fn byte_at(seed: u64, at: u64) -> u8 {
    let mixed = (at ^ (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// Sends so many bytes and ends its sending.
fn send_stream(stream: &mut (impl Write + ?Sized), seed: u64, length: u64) -> io::Result<()> {
    let mut part = Vec::with_capacity(1 << 16);
    let mut at = 0;
    while at < length {
        let more = (length - at).min(1 << 16);
        part.clear();
        part.extend((at..at + more).map(|at| byte_at(seed, at)));
        stream.write_all(&part)?;
        at += more;
    }
    Ok(())
}

/// Reads until the end, and returns the number of bytes; fails at the first wrong one.
fn check_stream(stream: &mut (impl Read + ?Sized), seed: u64) -> u64 {
    read_stream(stream, seed).expect("a stream that ends well")
}

/// As [`check_stream`], for a stream that may end with an error.
fn read_stream(stream: &mut (impl Read + ?Sized), seed: u64) -> io::Result<u64> {
    let mut part = vec![0; 1 << 16];
    let mut at = 0;
    loop {
        let length = stream.read(&mut part)?;
        if length == 0 {
            return Ok(at);
        }
        let wrong = part[..length].iter().zip(at..).find(|(byte, at)| **byte != byte_at(seed, *at));
        assert!(wrong.is_none(), "the byte at {wrong:?} is wrong");
        at += length as u64;
    }
}

/// Length of a stream, or the error that ended it.
type StreamLength = io::Result<u64>;

/// Starts a server that sends a stream of so many bytes and at the same time checks the received
/// stream. Then it reports the length of the received stream.
fn bidirectional_server(length: u64) -> (ScriptedServer, std::sync::mpsc::Receiver<StreamLength>) {
    let (sender, received) = std::sync::mpsc::channel();
    let server = ScriptedServer::start(move |peer: &mut ScriptPeer| {
        let mut writer = peer.stream.try_clone()?;
        let sending = std::thread::spawn(move || {
            send_stream(&mut writer, 1, length)?;
            writer.shutdown(Shutdown::Write)
        });
        let _ = sender.send(read_stream(&mut peer.stream, 2));
        sending.join().unwrap()
    });
    (server, received)
}

/// Sends streams in both directions; returns the lengths received at the client and at the server.
fn exchange_streams(
    proxy: &ProxyUnderTest,
    length: u64,
    received: &std::sync::mpsc::Receiver<StreamLength>,
) -> [StreamLength; 2] {
    let mut client = connect(proxy.authority());
    let mut writer = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        send_stream(&mut writer, 2, length)?;
        writer.shutdown(Shutdown::Write)
    });
    let at_client = read_stream(&mut client, 1);
    let sent = sending.join().unwrap();
    let at_server = received.recv_timeout(4 * EVENT_TIMEOUT).unwrap();
    [sent.and(at_client), at_server]
}

const LENGTHS: [u64; 4] = [0, 1, 64 << 10, 50 << 20];

#[test]
fn every_byte_arrives_in_both_directions_at_once() {
    let _shared = shared_machine();
    if ProxyKind::subject() == ProxyKind::Haproxy {
        assert_no_wrong_byte_arrives_through_haproxy();
        return;
    }
    for length in LENGTHS {
        let (server, received) = bidirectional_server(length);
        let proxy = start_weir(&server.authority, "");
        for arrived in exchange_streams(&proxy, length, &received) {
            assert_eq!(arrived.expect("a stream that ends well"), length);
        }
        let line = HaproxyLogLine::tcp(&proxy.wait_for_lines("access.haproxy", 1)[0]);
        assert_eq!((line.code.as_str(), line.bytes), ("--", length));
        proxy.metrics_until("the connection is over", |metrics| {
            metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
        });
    }
}

fn assert_no_wrong_byte_arrives_through_haproxy() {
    // There, a connection on which neither side sends anything ends with a reset.
    for length in LENGTHS.into_iter().skip(1) {
        let (server, received) = bidirectional_server(length);
        let proxy = start_haproxy(&server.authority);
        // If both sides end at about the same time, HAProxy may send a reset, which also discards
        // bytes in flight. The test can only require that no received byte was wrong.
        let arrived = exchange_streams(&proxy, length, &received);
        let is_whole = arrived.iter().all(|result| result.as_ref().is_ok_and(|&bytes| bytes == length));
        if !is_whole {
            println!("{length} bytes each way through HAProxy: {arrived:?}");
        }
        assert!(arrived.iter().flatten().all(|&bytes| bytes <= length), "{arrived:?}");
        if is_whole {
            HaproxyLogLine::tcp(&proxy.wait_for_lines_with("stdout", &format!(" {length} "), 1)[0]);
        }
    }
}

/// The client ends first, and gets the bytes that the server sends only then; and vice versa.
fn assert_half_closes(start_proxy: impl Fn(&str) -> ProxyUnderTest) {
    let server = ScriptedServer::start(|peer| {
        let count = check_stream(&mut peer.stream, 3);
        pause_ms(50);
        peer.send(count.to_string().as_bytes())
    });
    let proxy = start_proxy(&server.authority);
    let mut client = connect(proxy.authority());
    send_stream(&mut client, 3, 100_000).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert_eq!(response, "100000");

    let (sender, received) = std::sync::mpsc::channel();
    let server = ScriptedServer::start(move |peer| {
        peer.send(b"first")?;
        peer.stream.shutdown(Shutdown::Write)?;
        let _ = sender.send(check_stream(&mut peer.stream, 4));
        Ok(())
    });
    let proxy = start_proxy(&server.authority);
    let mut client = connect(proxy.authority());
    let mut first = String::new();
    client.read_to_string(&mut first).unwrap();
    assert_eq!(first, "first");
    send_stream(&mut client, 4, 100_000).unwrap();
    drop(client);
    assert_eq!(received.recv_timeout(EVENT_TIMEOUT), Ok(100_000));
}

#[test]
fn either_side_may_end_its_sending_first() {
    let _shared = shared_machine();
    match ProxyKind::subject() {
        ProxyKind::Haproxy => assert_half_closes(start_haproxy),
        _ => assert_half_closes(|server| start_weir(server, "")),
    }
}

#[test]
fn a_tunnel_in_which_nothing_moves_is_closed() {
    let _shared = shared_machine();
    // The server ends after the proxy, or after a far longer time.
    let server = ScriptedServer::start(|peer| io::copy(&mut peer.stream, &mut io::sink()).map(|_| ()));
    let proxy = start_weir(&server.authority, "timeouts = { tunnel = \"8s\" }");
    let mut client = connect(proxy.authority());
    client.write_all(b"hello").unwrap();
    let mut last_ns = rt::clock::now_ns();
    // Each byte restarts the timeout; the pauses are far shorter, and together longer.
    for _ in 0..4 {
        pause_ms(2100);
        last_ns = rt::clock::now_ns();
        client.write_all(b"again").unwrap();
    }
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    let took_ms = (rt::clock::now_ns() - last_ns) / 1_000_000;
    assert!(took_ms >= 7900, "{took_ms} ms");
    let line = HaproxyLogLine::tcp(&proxy.wait_for_lines("access.haproxy", 1)[0]);
    assert!(["sD", "cD"].contains(&line.code.as_str()), "{line:?}");
}

#[test]
fn a_server_that_refuses_is_a_close_and_sc_in_the_log() {
    let _shared = shared_machine();
    let server = RefusingPort::new();
    let proxy = start_weir(&server.authority, "timeouts = { connect = \"300ms\" }");
    let mut client = connect(proxy.authority());
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert!(rest.is_empty());
    let line = HaproxyLogLine::tcp(&proxy.wait_for_lines("access.haproxy", 1)[0]);
    assert_eq!((line.code.as_str(), line.bytes), ("SC", 0));
}

#[test]
fn a_reset_in_the_middle_is_seen_by_the_other_side_and_logged() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        peer.send(&[b'x'; 1000])?;
        peer.stream.read_exact(&mut [0; 2])?;
        reset_on_close(&peer.stream);
        Ok(())
    });
    let proxy = start_weir(&server.authority, "");
    let mut client = connect(proxy.authority());
    client.read_exact(&mut [0; 1000]).unwrap();
    client.write_all(b"go").unwrap();
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(HaproxyLogLine::tcp(&proxy.wait_for_lines("access.haproxy", 1)[0]).code, "SD");

    let (sender, ended) = std::sync::mpsc::channel();
    let server = ScriptedServer::start(move |peer| {
        peer.send(b"ready")?;
        let _ = sender.send(matches!(peer.stream.read(&mut [0]), Ok(0) | Err(_)));
        Ok(())
    });
    let proxy = start_weir(&server.authority, "");
    let mut client = connect(proxy.authority());
    client.read_exact(&mut [0; 5]).unwrap();
    reset_on_close(&client);
    drop(client);
    assert_eq!(ended.recv_timeout(EVENT_TIMEOUT), Ok(true));
    assert_eq!(HaproxyLogLine::tcp(&proxy.wait_for_lines("access.haproxy", 1)[0]).code, "CD");
}

#[test]
fn slow_readers_cost_little_memory() {
    let _shared = shared_machine();
    let server = ScriptedServer::start(|peer| {
        let part = vec![b'x'; 1 << 20];
        (0..200).try_for_each(|_| peer.send(&part))
    });
    let proxy = start_weir(&server.authority, "");
    let mut first = connect(proxy.authority());
    first.read_exact(&mut vec![0; 10 << 20]).unwrap();
    drop(first);
    let before = proxy.resident_bytes();
    let mut readers: Vec<TcpStream> = (0..50).map(|_| connect(proxy.authority())).collect();
    for reader in &mut readers {
        reader.read_exact(&mut [0; 1]).unwrap();
    }
    let mut max_resident = before;
    // Window in which memory would grow: far shorter than the write timeout.
    let _ = within(Duration::from_millis(800), || {
        max_resident = max_resident.max(proxy.resident_bytes());
        false
    });
    assert!(
        max_resident - before < 8 << 20,
        "50 readers that take nothing cost {} bytes",
        max_resident - before
    );
    // The proxy then closes them, as on a listener for HTTP.
    drop(readers);
    proxy.metrics_until("all are over", |metrics| {
        metrics.sum_known(CONNECTIONS_OPEN, &[("listener", "web")]) == 0.0
    });
}

#[test]
fn a_thousand_connections_at_once_each_get_their_own_bytes() {
    let _shared = shared_machine();
    if !can_open_descriptors(5000) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // One thread for all: it keeps all accepted connections, and echoes on request.
    let accepting = std::thread::spawn(move || -> Vec<TcpStream> {
        listener.incoming().take(1000).map(|stream| stream.unwrap()).collect()
    });
    let proxy = start_weir(&address, "");
    let mut clients: Vec<TcpStream> = (0..1000).map(|_| connect(proxy.authority())).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(&(number as u32).to_be_bytes()).unwrap();
    }
    let mut servers = accepting.join().unwrap();
    for server in &mut servers {
        server.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
        let mut own = [0; 4];
        server.read_exact(&mut own).unwrap();
        server.write_all(&own).unwrap();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut own = [0; 4];
        client.read_exact(&mut own).unwrap();
        assert_eq!(u32::from_be_bytes(own) as usize, number);
    }
    drop((clients, servers));
    assert_eq!(proxy.wait_for_lines("access.haproxy", 1000).len(), 1000);
}

#[test]
fn unix_sockets_on_both_sides() {
    let _shared = shared_machine();
    let directory = crate::support::temp_dir();
    let path = |name: &str| directory.path().join(name);
    let listener = UnixListener::bind(path("server")).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let count = check_stream(&mut stream, 5);
        stream.write_all(count.to_string().as_bytes()).unwrap();
    });
    let (front, back) = (path("front"), path("server"));
    let proxy = ProxyUnderTest::weir(&format!(
        "[listener.web]\nbind = \"unix:{}\"\nmode = \"tcp\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"unix:{}\"]\n",
        front.display(),
        back.display()
    ));
    let mut client = UnixStream::connect(&front).unwrap();
    client.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    send_stream(&mut client, 5, 300_000).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert_eq!(response, "300000");
    serving.join().unwrap();
    drop(proxy);
}

/// Asserts that the header is present, correct, and before the bytes of the client.
fn assert_proxy_header(version: &str, start_proxy: impl Fn(&str) -> ProxyUnderTest) {
    let (sender, received) = std::sync::mpsc::channel();
    let server = ScriptedServer::start(move |peer| {
        let mut bytes = Vec::new();
        peer.stream.read_to_end(&mut bytes)?;
        let _ = sender.send(bytes);
        Ok(())
    });
    let proxy = start_proxy(&server.authority);
    let mut client = connect(proxy.authority());
    let port = client.local_addr().unwrap().port();
    client.write_all(b"after it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let bytes = received.recv_timeout(EVENT_TIMEOUT).unwrap();
    let expected = crate::proxy_config::proxy_header(version, port, proxy.port());
    assert_eq!(bytes, [&expected[..], b"after it"].concat(), "{version}");
}

#[test]
fn a_proxy_header_comes_before_the_first_byte() {
    let _shared = shared_machine();
    for version in ["v1", "v2"] {
        let more = format!("send-proxy-protocol = \"{version}\"");
        assert_proxy_header(version, |server| start_weir(server, &more));
    }
}

#[test]
fn a_proxy_header_of_haproxy_is_the_same() {
    let _shared = shared_machine();
    if !is_installed("haproxy", &["-v"]) {
        return;
    }
    for (version, option) in [("v1", "send-proxy"), ("v2", "send-proxy-v2")] {
        assert_proxy_header(version, |server| start_haproxy(&format!("{server} {option}")));
    }
}

#[test]
fn real_clients_speak_to_real_servers_through_it() {
    let _shared = shared_machine();
    if !is_installed("nginx", &["-v"]) || !is_installed("curl", &["-V"]) {
        return;
    }
    let nginx = Nginx::start();
    let proxy = start_weir(&nginx.authority, "");
    let url = format!("http://{}/file", proxy.authority());
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", &url, &url])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout.len(), 20_000);
    assert_eq!(nginx.wait_for_log_lines(2), 2);

    let python = PythonServer::start();
    let proxy = start_weir(&python.authority, "");
    assert_eq!(proxy.get("/").body, b"hello");
    let script = "import sys, urllib.request\n\
                  print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())";
    let url = format!("http://{}/", proxy.authority());
    let output = Command::new("python3").args(["-c", script, &url]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "hello", "{output:?}");
}
