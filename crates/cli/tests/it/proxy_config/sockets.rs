//! Where a proxy listens and connects: several listeners, unix sockets, network namespaces, and the
//! PROXY protocol on either side.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use super::{door, proxy_header, text};
use crate::support::client::Client;
use crate::support::door::Door;
use crate::support::faulty::{Reader, field, ok, pipes, telling};
use crate::support::metrics::{CHECKS, REFUSED, REQUESTS};
use crate::support::peers::Scripted;
use crate::support::rude::{connect, see};
use crate::support::{PATIENCE, Process, beside_others, folder};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

#[test]
fn unix_sockets_on_both_sides() {
    let _shared = beside_others();
    let folder = folder();
    let (front, back) = (folder.path().join("front"), folder.path().join("back"));
    let listener = UnixListener::bind(&back).unwrap();
    let serving = std::thread::spawn(move || {
        let mut reader = Reader::new(listener.accept().unwrap().0);
        let request = reader.message().unwrap().expect("a request");
        reader.stream.write_all(&ok(b"over unix")).unwrap();
        request.head
    });
    let door = Door::weir(&format!(
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
    // A socket that is left over from before is no reason not to start; one in use is.
    drop(door);
    assert!(front.exists() || UnixStream::connect(&front).is_err());
    let again = Door::weir(&format!(
        "[listener.web]\nbind = \"unix:{}\"\n[[route]]\ndeny = true\n",
        front.display()
    ));
    let mut client = UnixStream::connect(&front).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(REQUEST).unwrap();
    assert_eq!(see(&mut client).status, Some(403));
    drop(again);
}

/// A PROXY header for a client that is not on this host.
fn header_of(version: &str) -> Vec<u8> {
    if version == "v1" {
        return b"PROXY TCP4 192.0.2.7 198.51.100.1 4567 80\r\n".to_vec();
    }
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend([192, 0, 2, 7, 198, 51, 100, 1, 0x11, 0xd7, 0, 80]);
    header
}

#[test]
fn a_proxy_header_of_a_trusted_peer_is_believed() {
    let _shared = beside_others();
    let origin = telling("origin");
    let door = door(&format!(
        "pool = \"app\"\nproxy-protocol = true\ntrusted = [\"127.0.0.1\"]\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    for version in ["v1", "v2"] {
        let mut whole = connect(door.authority());
        whole.write_all(&[&header_of(version)[..], REQUEST].concat()).unwrap();
        // And the same in pieces.
        let mut dripping = connect(door.authority());
        for byte in header_of(version).iter().chain(REQUEST) {
            dripping.write_all(&[*byte]).unwrap();
        }
        for client in [&mut whole, &mut dripping] {
            let seen = see(client);
            assert_eq!(seen.status, Some(200), "{version}: {}", seen.head);
            let source = field(&seen.text(), "x-forwarded-for");
            assert_eq!(source.as_deref(), Some("192.0.2.7"), "{version}: {}", seen.text());
        }
    }
    // LOCAL, the health check of a proxy in front, is about itself.
    let mut local = connect(door.authority());
    local.write_all(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap();
    local.write_all(REQUEST).unwrap();
    assert_eq!(field(&see(&mut local).text(), "x-forwarded-for").as_deref(), Some("127.0.0.1"));
}

/// What comes of a connection that starts with these bytes: nothing may reach the server.
fn assert_refused(door: &Door, bytes: &[u8], what: &str) {
    let mut client = connect(door.authority());
    let _ = client.write_all(bytes);
    let seen = see(&mut client);
    assert!(matches!(seen.status, None | Some(400..=499)), "{what}: {}", seen.head);
}

#[test]
fn a_proxy_header_that_is_missing_wrong_or_of_a_stranger_is_refused() {
    let _shared = beside_others();
    let origin = telling("origin");
    let start = |trusted: &str| {
        door(&format!(
            "pool = \"app\"\nproxy-protocol = true\ntrusted = [\"{trusted}\"]\n\
             timeouts = {{ head = \"2s\" }}\n[pool.app]\nservers = [\"{}\"]\n",
            origin.authority
        ))
    };
    let (friend, stranger) = (start("127.0.0.1"), start("10.0.0.0/8"));
    let with = |header: &[u8]| [header, REQUEST].concat();
    let mut bad_version = header_of("v2");
    bad_version[12] = 0x31;
    assert_refused(&friend, REQUEST, "none");
    assert_refused(&friend, &with(b"PROXY TCP4 192.0.2.7\r\n"), "too short");
    assert_refused(&friend, &with(b"PROXY TCP4 x y 1 2\r\n"), "no addresses");
    assert_refused(&friend, &with(&[b"PROXY ", &b"x".repeat(200)[..]].concat()), "too long");
    assert_refused(&friend, &with(&bad_version), "version 3");
    assert_refused(&friend, &header_of("v2")[..20], "half of one, at the deadline");
    for version in ["v1", "v2"] {
        assert_refused(&stranger, &with(&header_of(version)), "a stranger's");
    }
    // Without the key, a header is a malformed request.
    let plain = door("pool = \"app\"\n[pool.app]\nservers = [\"127.0.0.1:1\"]\n");
    assert_refused(&plain, &with(&header_of("v1")), "nobody asked for it");
    assert_eq!(origin.connections(), 0);
    for (door, reason, count) in [(&friend, "proxy_header", 6.0), (&stranger, "untrusted", 2.0)] {
        let metrics = door.metrics();
        assert_eq!(metrics.known(REFUSED, &[("reason", reason)]), count, "{metrics}");
    }
    assert_eq!(friend.metrics().sum(REQUESTS, &[("end", "done")]), 0.0);
}

#[test]
fn servers_get_a_proxy_header_once_on_each_connection() {
    let _shared = beside_others();
    for version in ["v1", "v2"] {
        let (sender, received) = std::sync::mpsc::channel();
        let origin = Scripted::start(move |peer| {
            let mut header = vec![0; proxy_header("v2", 0, 0).len()];
            if version == "v1" {
                header =
                    Reader::new(OneByOne(&mut peer.stream)).until(b"\r\n")?.unwrap_or_default();
            } else {
                peer.stream.read_exact(&mut header)?;
            }
            let _ = sender.send(header);
            while let Some(head) = peer.request()? {
                assert!(head.starts_with("GET /"), "{head}");
                peer.send(&ok(b"here"))?;
            }
            Ok(())
        });
        let door = door(&format!(
            "pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\nsend-proxy-protocol = \"{version}\"\n",
            origin.authority
        ));
        let mut client = door.client();
        let port = client.stream.local_addr().unwrap().port();
        assert_eq!(client.ask("/1").status, 200);
        assert_eq!(client.ask("/2").status, 200);
        let header = received.recv_timeout(PATIENCE).unwrap();
        assert_eq!(header, proxy_header(version, port, door.port()), "{version}");
        // What says who a client is cannot be shared with another.
        let mut other = door.client();
        let port = other.stream.local_addr().unwrap().port();
        assert_eq!(other.ask("/3").status, 200);
        let header = received.recv_timeout(PATIENCE).unwrap();
        assert_eq!(header, proxy_header(version, port, door.port()), "{version}");
        assert_eq!(client.ask("/4").status, 200);
    }
}

/// Reads a byte at a time, so that nothing is taken that belongs to the next reader.
struct OneByOne<'a>(&'a mut TcpStream);

impl Read for OneByOne<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(&mut bytes[..1])
    }
}

/// A process that holds a network namespace of its own, with its loopback up, and in it a server
/// that answers with its name.
struct Namespace {
    process: Process,
    /// Of the server in it.
    port: u16,
}

const IN_NAMESPACE: &str = r#"
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
    let _shared = beside_others();
    if Command::new("unshare")
        .args(["-n", "true"])
        .stderr(Stdio::null())
        .status()
        .map_or(true, |it| !it.success())
    {
        eprintln!("not tested: making a network namespace is not allowed here (it needs root)");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-n", "python3", "-c", IN_NAMESPACE]);
    let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let (mut questions, answers) = pipes(&mut process);
    let mut answers = BufReader::new(answers).lines().map(Result::unwrap);
    let port = answers.next().expect("a port").parse().unwrap();
    let there = Namespace { process, port };
    // `unshare` becomes what it runs.
    let path = format!("/proc/{}/ns/net", there.process.id());
    assert!(fs::metadata(&path).is_ok());
    let door = Door::weir(&format!(
        "admin = \"127.0.0.1:0\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"inside\"\n\
         [listener.within]\nbind = \"127.0.0.1:0\"\nnamespace = \"{path}\"\n\
         [[route]]\nlistener = \"within\"\nanswer = {{ status = 200, body = \"from within\" }}\n\
         [pool.inside]\nservers = [\"127.0.0.1:{}\"]\nnamespace = \"{path}\"\n\
         check = {{ type = \"http\", interval = \"50ms\", timeout = \"5s\" }}\n",
        there.port
    ));
    // Checks go there as well.
    let passed = [("pool", "inside"), ("result", "passed")];
    door.metrics_until("checks pass", |metrics| metrics.sum(CHECKS, &passed) >= 2.0);
    assert_eq!(text(&door.get("/")), "inside");
    let within = &door.addresses("within")[0];
    assert!(!door.listens_at(within) || within == door.authority());
    let port = within.rsplit_once(':').unwrap().1;
    writeln!(questions, "{port}").unwrap();
    assert_eq!(answers.next().as_deref(), Some("from within"));
}

#[test]
fn a_unix_socket_that_is_in_use_is_not_taken_away() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let config = folder.path().join("weir.toml");
    let text =
        format!("[listener.web]\nbind = \"unix:{}\"\n[[route]]\ndeny = true\n", path.display());
    fs::write(&config, text).unwrap();
    let output = crate::support::weir(&["proxy", "--config", config.to_str().unwrap()]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains("socket"), "{}", output.stderr);
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn an_address_in_use_is_told_and_nothing_is_served() {
    let _shared = beside_others();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = crate::support::weir(&["proxy", "--listen", &address, "--to", "127.0.0.1:1"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains(&address), "{}", output.stderr);
}

#[test]
fn flags_alone_make_a_proxy() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let to = format!("{},{}", a.authority, b.authority);
    let door = Door::with_flags(&[
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
    let mut client: Client = door.client();
    let told: Vec<String> = (0..4).map(|_| text(&client.ask("/"))[..1].to_owned()).collect();
    assert!(told == ["a", "b", "a", "b"] || told == ["b", "a", "b", "a"], "{told:?}");
    assert_eq!(door.wait_for_lines("log", 4).len(), 4);
    assert_eq!(Client::connect(door.admin()).ask_as("/health", "Host: localhost\r\n").status, 200);
    drop(client);
    let mut door = door;
    door.process.close_stdin();
    assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
    // And bytes only.
    let door = Door::with_flags(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        &a.authority,
        "--mode",
        "tcp",
        "--until-stdin-closes",
    ]);
    assert!(door.stdout().contains("tcp://"), "{}", door.stdout());
    assert!(text(&door.get("/")).starts_with("a\n"));
}
