//! WebSockets and event streams that stay open through five reloads and three upgrades of the proxy: no message is lost,
//! sent twice or late, and nothing is left of the processes that were replaced. `docs/deployments.md` refers to this test, and has a
//! script that does the same to a proxy of yours.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::proxy_h2::{CLIENT, has_python_h2};
use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxies::is_installed;
use crate::support::proxy_under_test::{ProxyUnderTest, StartOptions};
use crate::support::{EVENT_TIMEOUT, Process, pause_ms, run_weir, shared_machine, temp_dir, within};

/// Maximum time a replaced process may take to end after its last stream.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);
const RELOADS: usize = 5;
const UPGRADES: usize = 3;
/// Messages that each stream must get between two changes.
const MESSAGES_BETWEEN: u64 = 3;
/// Pause between two messages of a stream.
const PAUSE_MS: u64 = 5;

/// A stream without a message for so long would be closed by the proxy (`timeouts.tunnel`), and the test fails.
fn config(directory: &Path, server: &str, generation: &str) -> String {
    format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"{}\"\ndrain-timeout = \"10m\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{server}\"]\ntimeouts = {{ tunnel = \"20s\" }}\n\
         [[route]]\npath = \"/generation\"\nreturn = {{ body = \"{generation}\" }}\n",
        directory.join("weir.sock").display()
    )
}

/// Sends numbered events until `is_over`, or echoes the messages of a WebSocket.
fn serve(peer: &mut ScriptPeer, is_over: &AtomicBool) -> std::io::Result<()> {
    let Some(head) = peer.request()? else { return Ok(()) };
    if head.to_ascii_lowercase().contains("upgrade: websocket") {
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")?;
        loop {
            let (kind, content) = read_frame(&mut peer.stream)?;
            peer.send(&[&[kind, content.len() as u8], &content[..]].concat())?;
            if kind == 0x88 {
                return Ok(());
            }
        }
    }
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        send_event(peer, &number.to_string())?;
        number += 1;
        pause_ms(PAUSE_MS);
    }
    send_event(peer, "end")?;
    peer.send(b"0\r\n\r\n")
}

fn send_event(peer: &mut ScriptPeer, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    peer.send(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())
}

/// Reads a frame of a WebSocket (RFC 6455 §5.2) below 126 bytes; returns its first byte and its content, unmasked.
fn read_frame(stream: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let mut mask = [0; 4];
    if head[1] & 0x80 != 0 {
        stream.read_exact(&mut mask)?;
    }
    let mut content = vec![0; usize::from(head[1] & 0x7f)];
    stream.read_exact(&mut content)?;
    content.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= mask[at % 4]);
    Ok((head[0], content))
}

/// A client that checks the numbers of its messages. Its thread ends with the stream, and panics at a wrong message.
struct StreamClient {
    name: &'static str,
    messages: Arc<AtomicU64>,
    thread: JoinHandle<()>,
    process: Option<Process>,
}

impl StreamClient {
    /// Opens a WebSocket over HTTP/1.1.
    fn websocket(authority: &str, is_over: &Arc<AtomicBool>) -> Self {
        let messages = Arc::new(AtomicU64::new(0));
        let mut stream = TcpStream::connect(authority).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
        let (count, is_over) = (Arc::clone(&messages), Arc::clone(is_over));
        let thread = std::thread::spawn(move || {
            let fields = "Host: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                          Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
            stream.write_all(format!("GET /ws HTTP/1.1\r\n{fields}\r\n").as_bytes()).unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
            let mut send = |kind: u8, content: &[u8]| {
                let mask = [1, 2, 3, 4];
                let masked = content.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]);
                let frame: Vec<u8> =
                    [kind, 0x80 | content.len() as u8].into_iter().chain(mask).chain(masked).collect();
                stream.write_all(&frame).unwrap();
                read_frame(&mut stream).expect("an echo")
            };
            while !is_over.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed).to_string();
                assert_eq!(send(0x81, number.as_bytes()), (0x81, number.clone().into_bytes()));
                count.fetch_add(1, Ordering::Relaxed);
                pause_ms(PAUSE_MS);
            }
            assert_eq!(send(0x88, b""), (0x88, Vec::new()));
        });
        Self { name: "websocket", messages, thread, process: None }
    }

    /// Starts a program that prints `data: N` for each message, and `data: end`.
    fn program(name: &'static str, program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let messages = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&messages);
        let thread = std::thread::spawn(move || {
            for line in output.lines().map(Result::unwrap).filter(|line| !line.is_empty()) {
                let expected = count.load(Ordering::Relaxed);
                match line.strip_prefix("data: ") {
                    Some("end") => return,
                    Some(number) => assert_eq!(number, expected.to_string(), "{name}"),
                    None => panic!("{name}: {line}"),
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            panic!("{name}: it ended early, after {} messages", count.load(Ordering::Relaxed));
        });
        Self { name, messages, thread, process: Some(Process::from(child)) }
    }

    /// Opens one stream of each kind.
    fn one_of_each(proxy: &ProxyUnderTest, is_over: &Arc<AtomicBool>) -> Vec<Self> {
        let authority = proxy.authority();
        let mut clients = vec![Self::websocket(authority, is_over)];
        if is_installed("curl", &["--version"]) {
            let url = format!("http://{authority}/events");
            for (name, version) in
                [("events", "--http1.1"), ("events over HTTP/2", "--http2-prior-knowledge")]
            {
                clients.push(Self::program(name, "curl", &["-q", "-s", "-N", version, &url]));
            }
        }
        if has_python_h2() {
            let arguments = ["-c", CLIENT, "websocket_echoes", &proxy.port().to_string(), "/ws"];
            clients.push(Self::program("websocket over HTTP/2", "python3", &arguments));
        }
        clients
    }
}

/// Waits until each stream has got some more messages.
fn wait_for_messages(clients: &[StreamClient], what: &str) {
    let before: Vec<u64> = clients.iter().map(|client| client.messages.load(Ordering::Relaxed)).collect();
    for (client, before) in clients.iter().zip(before) {
        let has_more = within(EVENT_TIMEOUT, || {
            client.messages.load(Ordering::Relaxed) >= before + MESSAGES_BETWEEN
                || client.thread.is_finished()
        });
        assert!(has_more && !client.thread.is_finished(), "{what}: {} has no more messages", client.name);
    }
}

fn wait_for_generation(proxy: &ProxyUnderTest, generation: &str) {
    let is_applied = within(EVENT_TIMEOUT, || proxy.get("/generation").body == generation.as_bytes());
    assert!(is_applied, "{generation}: {}", proxy.stderr());
}

#[test]
fn websockets_and_event_streams_live_through_reloads_and_upgrades() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let is_over = Arc::new(AtomicBool::new(false));
    let server = ScriptedServer::start({
        let is_over = Arc::clone(&is_over);
        move |peer| serve(peer, &is_over)
    });
    let socket = directory.path().join("weir.sock").display().to_string();
    let config_for_generation = |generation: &str| config(directory.path(), &server.authority, generation);
    let mut proxy = ProxyUnderTest::weir(&config_for_generation("start"));
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.extend(StreamClient::one_of_each(&proxy, &is_over));
    }
    wait_for_messages(&clients, "at the start");
    for number in 0..RELOADS {
        let generation = format!("reload {number}");
        if number % 2 == 0 {
            proxy.reload(&config_for_generation(&generation));
        } else {
            std::fs::write(proxy.file("weir.toml"), config_for_generation(&generation)).unwrap();
            let output = run_weir(&["ctl", "--socket", &socket, "reload"]);
            assert_eq!(output.code, 0, "{output:?}");
        }
        wait_for_generation(&proxy, &generation);
        wait_for_messages(&clients, &generation);
    }
    let mut replaced = Vec::new();
    let mut descriptors = 0;
    for number in 0..UPGRADES {
        let generation = format!("upgrade {number}");
        let flags = ["--upgrade-from", &*socket];
        let options = StartOptions { flags: &flags, ..StartOptions::default() };
        let next = ProxyUnderTest::weir_with_options(&config_for_generation(&generation), &options);
        replaced.push(std::mem::replace(&mut proxy, next));
        wait_for_generation(&proxy, &generation);
        descriptors = proxy.non_pipe_descriptors();
        // The old streams stay where they are, and new ones come to the new process.
        clients.extend(StreamClient::one_of_each(&proxy, &is_over));
        wait_for_messages(&clients, &generation);
    }
    for old in &mut replaced {
        assert!(!old.process.has_ended(), "a process that has streams does not end: {}", old.stderr());
    }
    is_over.store(true, Ordering::Relaxed);
    for mut client in clients {
        if let Some(process) = &mut client.process {
            process.close_stdin();
        }
        client.thread.join().unwrap_or_else(|_| panic!("{} failed", client.name));
        if let Some(process) = &mut client.process {
            assert_eq!(process.wait(EXIT_TIMEOUT), 0, "{}", client.name);
        }
    }
    for mut old in replaced {
        assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
    }
    proxy.assert_all_returned();
    // One connection to the admin address may be open, and idle ones to the server.
    let is_as_before = within(EVENT_TIMEOUT, || proxy.non_pipe_descriptors() <= descriptors + 2);
    assert!(is_as_before, "{} descriptors, {descriptors} before", proxy.non_pipe_descriptors());
}
