//! Sockets of a proxy: several listeners, unix sockets, network namespaces, and the PROXY protocol
//! on either side.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use super::{body_text, proxy_header, start_proxy};
use crate::support::client::Client;
use crate::support::faulty_origins::{LaxReader, echoing_server, field, ok_response, take_pipes};
use crate::support::hostile_client::{connect, read_response};
use crate::support::metrics::{CHECKS, REFUSED, REQUESTS};
use crate::support::peers::ScriptedServer;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, Process, shared_machine, temp_dir};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

#[test]
fn unix_sockets_on_both_sides() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let (front, back) = (directory.path().join("front"), directory.path().join("back"));
    let listener = UnixListener::bind(&back).unwrap();
    let serving = std::thread::spawn(move || {
        let mut reader = LaxReader::new(listener.accept().unwrap().0);
        let request = reader.read_message().unwrap().expect("a request");
        reader.stream.write_all(&ok_response(b"over unix")).unwrap();
        request.head
    });
    let proxy = ProxyUnderTest::weir(&format!(
        "[listener.web]\nbind = [\"unix:{}\", \"127.0.0.1:0\"]\npool = \"app\"\n\
         [pool.app]\nservers = [\"unix:{}\"]\n",
        front.display(),
        back.display()
    ));
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "60", "--unix-socket"])
        .arg(&front)
        .arg("http://example.org/x")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "over unix", "{output:?}");
    let head = serving.join().unwrap();
    assert_eq!(field(&head, "host").as_deref(), Some("example.org"), "{head}");
    assert!(!field(&head, "x-forwarded-for").is_some_and(|text| text.is_empty()), "{head}");
    // A stale socket file does not prevent a start; one in use does.
    drop(proxy);
    assert!(front.exists() || UnixStream::connect(&front).is_err());
    let again = ProxyUnderTest::weir(&format!(
        "[listener.web]\nbind = \"unix:{}\"\n[[route]]\ndeny = true\n",
        front.display()
    ));
    let mut client = UnixStream::connect(&front).unwrap();
    client.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    client.write_all(REQUEST).unwrap();
    assert_eq!(read_response(&mut client).status, Some(403));
    drop(again);
}

/// Returns a PROXY header for a client on another host.
fn foreign_proxy_header(version: &str) -> Vec<u8> {
    if version == "v1" {
        return b"PROXY TCP4 192.0.2.7 198.51.100.1 4567 80\r\n".to_vec();
    }
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, 7, 198, 51, 100, 1, 0x11, 0xd7, 0, 80]);
    header
}

#[test]
fn a_proxy_header_of_a_trusted_peer_is_believed() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let proxy = start_proxy(&format!(
        "pool = \"app\"\nproxy-protocol = true\ntrusted = [\"127.0.0.1\"]\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    for version in ["v1", "v2"] {
        let mut at_once = connect(proxy.authority());
        at_once.write_all(&[&foreign_proxy_header(version)[..], REQUEST].concat()).unwrap();
        // The same header and request in pieces.
        let mut dripping = connect(proxy.authority());
        for byte in foreign_proxy_header(version).iter().chain(REQUEST) {
            dripping.write_all(&[*byte]).unwrap();
        }
        for client in [&mut at_once, &mut dripping] {
            let response = read_response(client);
            assert_eq!(response.status, Some(200), "{version}: {}", response.head);
            let source = field(&response.text(), "x-forwarded-for");
            assert_eq!(source.as_deref(), Some("192.0.2.7"), "{version}: {}", response.text());
        }
    }
    // LOCAL is a health check by a proxy in front, and describes that connection itself.
    let mut local = connect(proxy.authority());
    local.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap();
    local.write_all(REQUEST).unwrap();
    assert_eq!(field(&read_response(&mut local).text(), "x-forwarded-for").as_deref(), Some("127.0.0.1"));
}

/// Asserts that a connection that starts with these bytes is refused: nothing may reach the server.
fn assert_refused(proxy: &ProxyUnderTest, bytes: &[u8], what: &str) {
    let mut client = connect(proxy.authority());
    let _ = client.write_all(bytes);
    let response = read_response(&mut client);
    assert!(matches!(response.status, None | Some(400..=499)), "{what}: {}", response.head);
}

#[test]
fn a_proxy_header_that_is_missing_wrong_or_of_a_stranger_is_refused() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let start = |trusted: &str| {
        start_proxy(&format!(
            "pool = \"app\"\nproxy-protocol = true\ntrusted = [\"{trusted}\"]\n\
             timeouts = {{ head = \"2s\" }}\n[pool.app]\nservers = [\"{}\"]\n",
            origin.authority
        ))
    };
    let (friend, stranger) = (start("127.0.0.1"), start("10.0.0.0/8"));
    let with = |header: &[u8]| [header, REQUEST].concat();
    let mut bad_version = foreign_proxy_header("v2");
    bad_version[12] = 0x31;
    assert_refused(&friend, REQUEST, "none");
    assert_refused(&friend, &with(b"PROXY TCP4 192.0.2.7\r\n"), "too short");
    assert_refused(&friend, &with(b"PROXY TCP4 x y 1 2\r\n"), "no addresses");
    assert_refused(&friend, &with(&[b"PROXY ", &b"x".repeat(200)[..]].concat()), "too long");
    assert_refused(&friend, &with(&bad_version), "version 3");
    assert_refused(&friend, &foreign_proxy_header("v2")[..20], "half of one, at the deadline");
    for version in ["v1", "v2"] {
        assert_refused(&stranger, &with(&foreign_proxy_header(version)), "a stranger's");
    }
    // Without the key, a header is a malformed request.
    let plain = start_proxy("pool = \"app\"\n[pool.app]\nservers = [\"127.0.0.1:1\"]\n");
    assert_refused(&plain, &with(&foreign_proxy_header("v1")), "nobody asked for it");
    assert_eq!(origin.connections(), 0);
    for (proxy, reason, count) in [(&friend, "proxy_header", 6.0), (&stranger, "untrusted", 2.0)] {
        let labels = [("reason", reason)];
        proxy.metrics_until(reason, |metrics| metrics.sum_known(REFUSED, &labels) == count);
    }
    assert_eq!(friend.metrics().sum(REQUESTS, &[("end", "done")]), 0.0);
}

#[test]
fn servers_get_a_proxy_header_once_on_each_connection() {
    let _shared = shared_machine();
    for version in ["v1", "v2"] {
        let (sender, received) = std::sync::mpsc::channel();
        let origin = ScriptedServer::start(move |peer| {
            let mut header = vec![0; proxy_header("v2", 0, 0).len()];
            if version == "v1" {
                header =
                    LaxReader::new(ByteReader(&mut peer.stream)).read_until(b"\r\n")?.unwrap_or_default();
            } else {
                peer.stream.read_exact(&mut header)?;
            }
            let _ = sender.send(header);
            while let Some(head) = peer.request()? {
                assert!(head.starts_with("GET /"), "{head}");
                peer.send(&ok_response(b"here"))?;
            }
            Ok(())
        });
        let proxy = start_proxy(&format!(
            "pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\nsend-proxy-protocol = \"{version}\"\n",
            origin.authority
        ));
        let mut client = proxy.client();
        let port = client.stream.local_addr().unwrap().port();
        assert_eq!(client.get("/1").status, 200);
        assert_eq!(client.get("/2").status, 200);
        let header = received.recv_timeout(EVENT_TIMEOUT).unwrap();
        assert_eq!(header, proxy_header(version, port, proxy.port()), "{version}");
        // A connection whose header identifies a client cannot be shared with another client.
        let mut other = proxy.client();
        let port = other.stream.local_addr().unwrap().port();
        assert_eq!(other.get("/3").status, 200);
        let header = received.recv_timeout(EVENT_TIMEOUT).unwrap();
        assert_eq!(header, proxy_header(version, port, proxy.port()), "{version}");
        assert_eq!(client.get("/4").status, 200);
    }
}

/// Reads a byte at a time, and so takes no bytes of the next reader.
struct ByteReader<'a>(&'a mut TcpStream);

impl Read for ByteReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(&mut bytes[..1])
    }
}

/// A process with its own network namespace, with its loopback up, and in it a server that responds
/// with its name.
struct NamespacedServer {
    process: Process,
    /// Port of the server in it.
    port: u16,
}

const NAMESPACED_SERVER: &str = r#"
import os, socket, subprocess, sys, threading
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
def ask(port):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        one.sendall(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := one.recv(65536):
            answer += part
    print(answer.split(b"\r\n\r\n", 1)[-1].decode(), flush=True)
def serve():
    while True:
        one, _ = server.accept()
        one.recv(65536)
        one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside")
        one.close()
threading.Thread(target=serve, daemon=True).start()
for line in sys.stdin:
    ask(int(line))
"#;

#[test]
fn network_namespaces_on_both_sides() {
    let _shared = shared_machine();
    if Command::new("unshare")
        .args(["-n", "true"])
        .stderr(Stdio::null())
        .status()
        .map_or(true, |it| !it.success())
    {
        return test_needs::skip(test_needs::ROOT, "no network namespace can be made here");
    }
    let mut command = Command::new("unshare");
    command.args(["-n", "python3", "-c", NAMESPACED_SERVER]);
    let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let (mut questions, stdout) = take_pipes(&mut process);
    let mut output_lines = BufReader::new(stdout).lines().map(Result::unwrap);
    let port = output_lines.next().expect("a port").parse().unwrap();
    let there = NamespacedServer { process, port };
    // `unshare` replaces itself with its command.
    let path = format!("/proc/{}/ns/net", there.process.id());
    assert!(fs::metadata(&path).is_ok());
    let proxy = ProxyUnderTest::weir(&format!(
        "admin = \"127.0.0.1:0\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"inside\"\n\
         [listener.within]\nbind = \"127.0.0.1:0\"\nnamespace = \"{path}\"\n\
         [[route]]\nlistener = \"within\"\nreturn = {{ status = 200, body = \"from within\" }}\n\
         [pool.inside]\nservers = [\"127.0.0.1:{}\"]\nnamespace = \"{path}\"\n\
         check = {{ type = \"http\", interval = \"50ms\", timeout = \"5s\" }}\n",
        there.port
    ));
    // Health checks go there too.
    let passed = [("pool", "inside"), ("result", "passed")];
    proxy.metrics_until("checks pass", |metrics| metrics.sum(CHECKS, &passed) >= 2.0);
    assert_eq!(body_text(&proxy.get("/")), "inside");
    let within = &proxy.addresses("within")[0];
    assert!(!proxy.listens_at(within) || within == proxy.authority());
    let port = within.rsplit_once(':').unwrap().1;
    writeln!(questions, "{port}").unwrap();
    assert_eq!(output_lines.next().as_deref(), Some("from within"));
}

#[test]
fn a_unix_socket_that_is_in_use_is_not_taken_away() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let config = directory.path().join("weir.toml");
    let text = format!("[listener.web]\nbind = \"unix:{}\"\n[[route]]\ndeny = true\n", path.display());
    fs::write(&config, text).unwrap();
    let output = crate::support::run_weir(&["proxy", "--config", config.to_str().unwrap()]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("socket"), "{}", output.stderr);
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn an_address_in_use_is_reported_and_nothing_is_served() {
    let _shared = shared_machine();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = crate::support::run_weir(&["proxy", "--listen", &address, "--to", "127.0.0.1:1"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains(&address), "{}", output.stderr);
}

#[test]
fn flags_alone_make_a_proxy() {
    let _shared = shared_machine();
    let (a, b) = (echoing_server("a"), echoing_server("b"));
    let to = format!("{},{}", a.authority, b.authority);
    let proxy = ProxyUnderTest::weir_with_flags(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        &to,
        "--threads",
        "1",
        "--balance",
        "round-robin",
        "--reuse",
        "always",
        "--admin",
        "127.0.0.1:0",
        "--access-log",
        "HOME/log",
        "--log-format",
        "combined",
        "--connections-max",
        "100",
        "--drain-timeout",
        "1s",
        "--until-stdin-closes",
    ]);
    let mut client: Client = proxy.client();
    let names: Vec<String> = (0..4).map(|_| body_text(&client.get("/"))[..1].to_owned()).collect();
    assert!(names == ["a", "b", "a", "b"] || names == ["b", "a", "b", "a"], "{names:?}");
    assert_eq!(proxy.wait_for_lines("log", 4).len(), 4);
    assert_eq!(Client::connect(proxy.admin()).get_with_fields("/health", "Host: localhost\r\n").status, 200);
    drop(client);
    let mut proxy = proxy;
    proxy.process.close_stdin();
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0, "{}", proxy.stderr());
    // The same for mode tcp.
    let proxy = ProxyUnderTest::weir_with_flags(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        &a.authority,
        "--mode",
        "tcp",
        "--until-stdin-closes",
    ]);
    assert!(proxy.stdout().contains("tcp://"), "{}", proxy.stdout());
    assert!(body_text(&proxy.get("/")).starts_with("a\n"));
}
