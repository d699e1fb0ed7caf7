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

use super::{PATIENCE, Process, folder, listens, pause_ms, within};

/// A server on a port of the kernel's choice that does with each connection what a closure says.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) authority: String,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Starts one; `script` gets each connection. An error of its own ends the connection only.
    pub(crate) fn start(
        script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
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
                    let (script, peer) = (Arc::clone(&script), Peer::new(stream.unwrap()));
                    std::thread::spawn(move || {
                        let mut peer = peer;
                        // The peer going away in the middle is a part of many scripts.
                        let _ = script(&mut peer);
                    });
                }
            }
        });
        Self { authority, connections, stopping, acceptor: Some(acceptor) }
    }

    /// A server that answers each request with the same bytes.
    pub(crate) fn answering(answer: &'static [u8]) -> Self {
        Self::start(move |peer| {
            while peer.request()?.is_some() {
                peer.send(answer)?;
            }
            Ok(())
        })
    }

    /// A server that answers one request on each connection with these bytes and closes it.
    pub(crate) fn answering_once(answer: &'static [u8]) -> Self {
        Self::start(move |peer| {
            peer.request()?;
            peer.send(answer)
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.authority)
    }

    /// Connections that it has accepted.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed) as u64
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the acceptor; if even that cannot be, it is left to the end of the tests.
        if TcpStream::connect(&self.authority).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            let _ = acceptor.join();
        }
    }
}

/// One connection of a scripted server.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    buffered: Vec<u8>,
}

impl Peer {
    fn new(stream: TcpStream) -> Self {
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        stream.set_nodelay(true).unwrap();
        let buffered = Vec::new();
        Self { stream, buffered }
    }

    /// The head of the next request; `None` at the end of the connection.
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

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.stream.peer_addr().unwrap()
    }
}

/// A running nginx with an access log of its own.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) process: Process,
    pub(crate) authority: String,
    folder: TempDir,
}

impl Nginx {
    /// Starts one: `/` says hello, `/file` is a file of 10,000 bytes, `/few` allows ten requests
    /// on a connection.
    pub(crate) fn start() -> Self {
        for _ in 0..20 {
            let folder = folder();
            fs::write(folder.path().join("file"), [b'x'; 10_000]).unwrap();
            let port = free_port();
            let conf = configuration(folder.path().to_str().unwrap(), port);
            fs::write(folder.path().join("nginx.conf"), conf).unwrap();
            if let Some(nginx) = Self::try_start(folder, port) {
                return nginx;
            }
        }
        panic!("nginx did not start on any of twenty free ports")
    }

    fn try_start(folder: TempDir, port: u16) -> Option<Self> {
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path());
        command.args(["-e", "error.log", "-c", "nginx.conf", "-g", "daemon off;"]);
        let null = Stdio::null;
        command.stdin(null()).stdout(null()).stderr(null());
        if let Err(error) = Command::new("nginx").arg("-v").stderr(null()).status() {
            panic!("nginx: {error}; these tests need it: install it (apt-get install nginx)");
        }
        let process = Process::spawn(&mut command);
        let authority = format!("127.0.0.1:{port}");
        // Its pid file says that it is our nginx that listens, and not somebody else's server; it
        // listens before it has a worker.
        let pid_file = folder.path().join("nginx.pid");
        let mut nginx = Self { process, authority, folder };
        let mut ended = false;
        let started = within(PATIENCE, || {
            ended = nginx.process.0.try_wait().is_ok_and(|code| code.is_some());
            let listens = || listens(nginx.process.id(), port);
            ended || (pid_file.exists() && nginx.processes().len() > 1 && listens())
        });
        (started && !ended).then_some(nginx)
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    /// The master and its workers.
    pub(crate) fn processes(&self) -> Vec<i32> {
        host::family::with_descendants(&[self.process.id()])
    }

    /// Lines of its access log, as soon as there are `wanted`, or after a while.
    pub(crate) fn logged(&self, wanted: u64) -> u64 {
        lines_soon(&self.folder.path().join("access.log"), wanted)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master takes its workers with it when it is asked, and not when it is killed.
        // One that could not start has ended already.
        if self.process.0.try_wait().is_ok_and(|code| code.is_some()) {
            return;
        }
        self.process.signal(rustix::process::Signal::TERM);
        let _ = within(Duration::from_secs(2), || {
            self.process.0.try_wait().is_ok_and(|code| code.is_some())
        });
    }
}

/// Lines of a file, as soon as there are `wanted`, or after a while.
fn lines_soon(path: &std::path::Path, wanted: u64) -> u64 {
    let lines = || fs::read_to_string(path).unwrap_or_default().lines().count() as u64;
    let _ = within(PATIENCE, || lines() >= wanted);
    // One that should not be there would come now.
    pause_ms(50);
    lines()
}

/// A port that was free just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn configuration(folder: &str, port: u16) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("  {name}_temp_path {folder}/{name};\n"))
        .collect();
    format!(
        "user root;\nworker_processes 1;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log {folder}/access.log;\n  keepalive_requests 1000000;\n{temporary}\
         server {{\n    listen 127.0.0.1:{port};\n    root {folder};\n\
         location = / {{ return 200 \"hello\\n\"; }}\n\
         location = /few {{ keepalive_requests 10; return 200; }}\n  }}\n}}\n"
    )
}

/// Python's own server, which logs a line a request.
#[derive(Debug)]
pub(crate) struct PythonServer {
    pub(crate) process: Process,
    pub(crate) authority: String,
    folder: TempDir,
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
        let folder = folder();
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", PYTHON_SERVER]).stderr(log);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let port = process.first_line();
        Self { authority: format!("127.0.0.1:{}", port.trim()), process, folder }
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    /// Lines of its log, as soon as there are `wanted`, or after a while.
    pub(crate) fn logged(&self, wanted: u64) -> u64 {
        lines_soon(&self.folder.path().join("log"), wanted)
    }
}
