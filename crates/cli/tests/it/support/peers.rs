//! Peers of weir that are not weir: servers that follow a script, nginx, Python's own server.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use super::{EVENT_TIMEOUT, Process, listens_on, pause_ms, temp_dir, within};

/// A server on a port that the kernel chooses; a closure handles each connection.
#[derive(Debug)]
pub(crate) struct ScriptedServer {
    pub(crate) authority: String,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl ScriptedServer {
    /// Starts a server; `script` gets each connection. An error of the script only ends the
    /// connection.
    pub(crate) fn start(script: impl Fn(&mut ScriptPeer) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", script)
    }

    /// Starts a server like [`ScriptedServer::start`] at this address.
    pub(crate) fn start_at(
        address: &str,
        script: impl Fn(&mut ScriptPeer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let stopping = Arc::new(AtomicBool::new(false));
        let script = Arc::new(script);
        let acceptor = std::thread::spawn({
            let (connections, stopping) = (Arc::clone(&connections), Arc::clone(&stopping));
            move || {
                for stream in listener.incoming() {
                    if stopping.load(Ordering::Relaxed) {
                        return;
                    }
                    connections.fetch_add(1, Ordering::Relaxed);
                    let (script, peer) = (Arc::clone(&script), ScriptPeer::new(stream.unwrap()));
                    std::thread::spawn(move || {
                        let mut peer = peer;
                        // In many scripts the peer leaves in the middle.
                        let _ = script(&mut peer);
                    });
                }
            }
        });
        Self { authority, connections, stopping, acceptor: Some(acceptor) }
    }

    /// Starts a server that responds to each request with the same bytes.
    pub(crate) fn responding(response: &'static [u8]) -> Self {
        Self::start(move |peer| {
            while peer.request()?.is_some() {
                peer.send(response)?;
            }
            Ok(())
        })
    }

    /// Starts a server that responds to one request on each connection with these bytes and closes
    /// it.
    pub(crate) fn responding_once(response: &'static [u8]) -> Self {
        Self::start(move |peer| {
            peer.request()?;
            peer.send(response)
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.authority)
    }

    /// Returns the number of accepted connections.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed) as u64
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the acceptor; if that fails, the acceptor stays until the end of the tests.
        if TcpStream::connect(&self.authority).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            let _ = acceptor.join();
        }
    }
}

/// One connection of a scripted server.
#[derive(Debug)]
pub(crate) struct ScriptPeer {
    pub(crate) stream: TcpStream,
    buffered: Vec<u8>,
}

impl ScriptPeer {
    fn new(stream: TcpStream) -> Self {
        let timeout = Some(EVENT_TIMEOUT);
        stream.set_read_timeout(timeout).unwrap();
        stream.set_write_timeout(timeout).unwrap();
        stream.set_nodelay(true).unwrap();
        let buffered = Vec::new();
        Self { stream, buffered }
    }

    /// Returns the head of the next request; `None` at the end of the connection.
    pub(crate) fn request(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(at) = self.buffered.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.buffered.drain(..at + 4).collect();
                return Ok(Some(String::from_utf8(head).unwrap()));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Ok(None),
                length => self.buffered.extend_from_slice(&bytes[..length]),
            }
        }
    }

    /// Reads the content of a request, and forgets it.
    pub(crate) fn skip_content(&mut self, length: usize) -> io::Result<()> {
        while self.buffered.len() < length {
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.buffered.extend_from_slice(&bytes[..read]),
            }
        }
        self.buffered.drain(..length);
        Ok(())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.stream.peer_addr().unwrap()
    }
}

/// A running nginx with its own access log.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) process: Process,
    pub(crate) authority: String,
    directory: TempDir,
}

impl Nginx {
    /// Starts nginx: `/` responds with hello, `/file` is a file of 10,000 bytes, `/few` allows ten
    /// requests on a connection.
    pub(crate) fn start() -> Self {
        Self::start_with("", "")
    }

    /// Starts nginx with options of its listener, such as `ssl`, and further directives of its
    /// server.
    pub(crate) fn start_with(listen_options: &str, directives: &str) -> Self {
        for _ in 0..20 {
            let directory = temp_dir();
            fs::write(directory.path().join("file"), [b'x'; 10_000]).unwrap();
            let port = free_port();
            let listen = format!("{port} {listen_options}");
            let conf = configuration(directory.path().to_str().unwrap(), &listen, directives);
            fs::write(directory.path().join("nginx.conf"), conf).unwrap();
            if let Some(nginx) = Self::try_start(directory, port) {
                return nginx;
            }
        }
        panic!("nginx did not start on any of twenty free ports")
    }

    fn try_start(directory: TempDir, port: u16) -> Option<Self> {
        let mut command = Command::new("nginx");
        command.arg("-p").arg(directory.path());
        command.args(["-e", "error.log", "-c", "nginx.conf", "-g", "daemon off;"]);
        let null = Stdio::null;
        command.stdin(null()).stdout(null()).stderr(null());
        if let Err(error) = Command::new("nginx").arg("-v").stderr(null()).status() {
            panic!("nginx: {error}; these tests need it: install it (apt-get install nginx)");
        }
        let process = Process::spawn(&mut command);
        let authority = format!("127.0.0.1:{port}");
        // Its pid file proves that our nginx listens, and not another server; it listens before it
        // has a worker.
        let pid_file = directory.path().join("nginx.pid");
        let mut nginx = Self { process, authority, directory };
        let mut ended = false;
        let started = within(EVENT_TIMEOUT, || {
            ended = nginx.process.0.try_wait().is_ok_and(|code| code.is_some());
            let listens = || listens_on(nginx.process.id(), port);
            ended || (pid_file.exists() && nginx.processes().len() > 1 && listens())
        });
        (started && !ended).then_some(nginx)
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    /// Returns the master and its workers.
    pub(crate) fn processes(&self) -> Vec<i32> {
        host::process_tree::with_descendants(&[self.process.id()])
    }

    /// Returns the number of lines of its access log, as soon as there are `count`, or after a
    /// while.
    pub(crate) fn wait_for_log_lines(&self, count: u64) -> u64 {
        wait_for_line_count(&self.directory.path().join("access.log"), count)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // On a signal the master also ends its workers, but not when it is killed. An nginx that
        // could not start has ended already.
        if self.process.0.try_wait().is_ok_and(|code| code.is_some()) {
            return;
        }
        self.process.signal(rustix::process::Signal::TERM);
        let _ = within(Duration::from_secs(2), || self.process.0.try_wait().is_ok_and(|code| code.is_some()));
    }
}

/// Returns the number of lines of a file, as soon as there are `count`, or after a while.
fn wait_for_line_count(path: &std::path::Path, count: u64) -> u64 {
    let lines = || fs::read_to_string(path).unwrap_or_default().lines().count() as u64;
    let _ = within(EVENT_TIMEOUT, || lines() >= count);
    // An unexpected line would arrive now.
    pause_ms(50);
    lines()
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn configuration(directory: &str, listen: &str, directives: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("  {name}_temp_path {directory}/{name};\n"))
        .collect();
    format!(
        "user root;\nworker_processes 1;\npid {directory}/nginx.pid;\nerror_log {directory}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log {directory}/access.log;\n  keepalive_requests 1000000;\n{temporary}\
         server {{\n    listen 127.0.0.1:{listen};\n    root {directory};\n{directives}\n\
         location = / {{ return 200 \"hello\\n\"; }}\n\
         location = /few {{ keepalive_requests 10; return 200; }}\n  }}\n}}\n"
    )
}

/// Python's own server, which logs a line per request.
#[derive(Debug)]
pub(crate) struct PythonServer {
    pub(crate) process: Process,
    pub(crate) authority: String,
    directory: TempDir,
}

const PYTHON_SERVER: &str = r#"
import os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(404 if self.path == "/missing" else 200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

def end_with_stdin():
    sys.stdin.read()
    os._exit(0)

server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=end_with_stdin, daemon=True).start()
server.serve_forever()
"#;

impl PythonServer {
    pub(crate) fn start() -> Self {
        let directory = temp_dir();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", PYTHON_SERVER]).stderr(log);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let port = process.first_line();
        Self { authority: format!("127.0.0.1:{}", port.trim()), process, directory }
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    /// Returns the number of lines of its log, as soon as there are `count`, or after a while.
    pub(crate) fn wait_for_log_lines(&self, count: u64) -> u64 {
        wait_for_line_count(&self.directory.path().join("log"), count)
    }
}

/// Server that works on a number of requests at a time, each for some time.
const SLOTS: &str = r#"
import asyncio, sys

async def serve(reader, writer, semaphore):
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            async with semaphore:
                await asyncio.sleep(float(sys.argv[2]) / 1000)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()

async def main():
    semaphore = asyncio.Semaphore(int(sys.argv[1]))
    server = await asyncio.start_server(lambda r, w: serve(r, w, semaphore), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"#;

/// Starts a server that works on `slots` requests at a time, `each_ms` each. Returns it with its URL.
pub(crate) fn start_slots(slots: u32, each_ms: u32) -> (Process, String) {
    let (slots, each_ms) = (slots.to_string(), each_ms.to_string());
    let mut server = Command::new("python3");
    let mut server = Process::spawn(server.args(["-c", SLOTS, &slots, &each_ms]).stdout(Stdio::piped()));
    let url = format!("http://127.0.0.1:{}/", server.first_line().trim());
    (server, url)
}
