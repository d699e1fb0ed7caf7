//! Proxies under test: weir and, with the same tests, HAProxy and nginx; and the origin behind
//! them, which records the requests that it gets.
//!
//! Only starts and stops them; the tests contain the assertions.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use tempfile::TempDir;

use super::peers::{ScriptPeer, ScriptedServer};
use super::strict_parser::{ReadError, StrictMessage, StrictReader};
use super::{EVENT_TIMEOUT, Process, WEIR, command, listens_on, pause_ms, temp_dir, within};

/// A program that can run between client and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    Weir,
    Haproxy,
    Nginx,
}

/// Additional config of a proxy. The texts are weir's; the other proxies get equivalent settings
/// where they have them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProxySetup<'a> {
    /// Lines of `[listener.web]`.
    pub(crate) listener: &'a str,
    /// Lines of `[pool.app]`; `reuse = "always"` is included, because it tests framing hardest.
    pub(crate) pool: &'a str,
}

impl ProxyKind {
    /// Returns the subject of the tests that can compare proxies: weir, or the proxy that
    /// `WEIR_TEST_SUBJECT` names. `bench/run strictness` sets it.
    pub(crate) fn subject() -> Self {
        match std::env::var("WEIR_TEST_SUBJECT").as_deref() {
            Err(_) | Ok("weir") => Self::Weir,
            Ok("haproxy") => Self::Haproxy,
            Ok("nginx") => Self::Nginx,
            Ok(other) => panic!("WEIR_TEST_SUBJECT={other} is not weir, haproxy or nginx"),
        }
    }

    /// Returns whether it can be started here; prints the reason if not.
    pub(crate) fn is_installed(self) -> bool {
        let (program, arguments) = match self {
            Self::Weir => return true,
            Self::Haproxy => ("haproxy", ["-v"].as_slice()),
            Self::Nginx => ("nginx", ["-v"].as_slice()),
        };
        is_installed(program, arguments)
    }

    /// Starts it in front of one origin.
    pub(crate) fn start(self, origin: &str, setup: ProxySetup<'_>) -> ComparedProxy {
        match self {
            Self::Weir => ComparedProxy::weir(&weir_config(origin, setup)),
            Self::Haproxy => ComparedProxy::haproxy(&haproxy_config(origin)),
            Self::Nginx => ComparedProxy::nginx(&nginx_config(origin)),
        }
    }
}

/// Returns whether a program exists and exits successfully.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns whether a program exists; prints a message if not.
pub(crate) fn is_installed(program: &str, arguments: &[&str]) -> bool {
    let is_here = succeeds(program, arguments);
    if !is_here {
        let need = if arguments.iter().any(|argument| argument.contains("import h2")) {
            test_needs::PYTHON_H2
        } else {
            program
        };
        test_needs::skip(need, format!("`{program} {}` does not run here", arguments.join(" ")));
    }
    is_here
}

/// A running proxy.
#[derive(Debug)]
pub(crate) struct ComparedProxy {
    process: Process,
    pub(crate) authority: String,
    /// Ports for the names in its config, if it was started with free ones.
    ports: Vec<(&'static str, u16)>,
    directory: TempDir,
}

/// Names for free ports in a config, in braces.
const PORT_NAMES: [&str; 3] = ["port", "port2", "port3"];

impl ComparedProxy {
    /// Starts weir with this config, which binds port 0; the address is that of the first listener.
    pub(crate) fn weir(config: &str) -> Self {
        let directory = temp_dir();
        let path = directory.path().join("weir.toml");
        fs::write(&path, config).unwrap();
        let file = |name: &str| File::create(directory.path().join(name)).unwrap();
        let mut command = command(WEIR, directory.path());
        command.arg("proxy").arg("--config").arg(&path);
        let process = Process::spawn(command.stdout(file("stdout")).stderr(file("stderr")));
        let mut authority = None;
        let started = within(EVENT_TIMEOUT, || {
            authority = listening_authority(&directory.path().join("stdout"));
            authority.is_some()
        });
        let stderr = fs::read_to_string(directory.path().join("stderr")).unwrap();
        assert!(started, "weir proxy did not say where it listens; it said '{stderr}'\n{config}");
        Self { process, authority: authority.unwrap(), ports: Vec::new(), directory }
    }

    /// Starts HAProxy with this config; `{port}` stands for its port.
    pub(crate) fn haproxy(config: &str) -> Self {
        Self::start_with_files("HAProxy", config, &[])
    }

    /// Starts nginx with this config; `{port}` stands for its port and `{directory}` for its
    /// temporary directory.
    pub(crate) fn nginx(config: &str) -> Self {
        Self::start_with_files("nginx", config, &[])
    }

    /// Starts a program with this config and other files in its directory, `{directory}`. `{port}`, `{port2}` and
    /// `{port3}` stand for free ports.
    pub(crate) fn start_with_files(program: &str, config: &str, files: &[(&str, &str)]) -> Self {
        for _ in 0..20 {
            let directory = temp_dir();
            let path = directory.path().join("conf");
            let mut ports = Vec::new();
            for (name, text) in [("conf", config)].iter().chain(files) {
                let mut text = text.replace("{directory}", directory.path().to_str().unwrap());
                for port_name in PORT_NAMES.into_iter().filter(|name| text.contains(&format!("{{{name}}}"))) {
                    if !ports.iter().any(|(name, _)| *name == port_name) {
                        ports.push((port_name, free_port()));
                    }
                }
                for (port_name, port) in &ports {
                    text = text.replace(&format!("{{{port_name}}}"), &port.to_string());
                }
                fs::write(directory.path().join(name), text).unwrap();
            }
            let log = File::create(directory.path().join("stderr")).unwrap();
            let null = Stdio::null;
            let mut command = program_command(program, directory.path(), &path);
            // A variable for configs that have one.
            command.env("SITE_NAME", "north");
            let mut process = Process::spawn(command.stdin(null()).stdout(null()).stderr(log));
            let mut ended = false;
            let started = within(EVENT_TIMEOUT, || {
                ended = has_ended(&mut process);
                ended || ports.iter().all(|(_, port)| listens_on(process.id(), *port))
            });
            if started && !ended {
                let authority = format!("127.0.0.1:{}", ports.first().map_or(0, |(_, port)| *port));
                return Self { process, authority, ports, directory };
            }
            eprintln!("{}", fs::read_to_string(directory.path().join("stderr")).unwrap());
        }
        panic!("{program} did not start on any of twenty free ports")
    }

    /// Returns the path of a file in its directory.
    pub(crate) fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Returns the port that replaced a name in its config.
    pub(crate) fn port(&self, name: &str) -> u16 {
        self.ports.iter().find(|(port_name, _)| *port_name == name).map_or(0, |(_, port)| *port)
    }

    /// Connects to it, with a timeout on every operation.
    pub(crate) fn connect(&self) -> StrictClient {
        StrictClient::connect(&self.authority)
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    /// Fails if it has ended by itself or has reported an internal error.
    pub(crate) fn assert_alive(&mut self) {
        let stderr = fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default();
        assert!(!has_ended(&mut self.process), "the proxy ended: {stderr}");
        assert!(!stderr.contains("panicked"), "the proxy panicked: {stderr}");
    }
}

/// Returns the command of a program with a config.
fn program_command(program: &str, directory: &Path, config: &Path) -> Command {
    match program {
        "HAProxy" => {
            let mut haproxy = Command::new("haproxy");
            haproxy.arg("-db").arg("-f").arg(config);
            haproxy
        }
        "nginx" => {
            let mut nginx = Command::new("nginx");
            nginx.arg("-p").arg(directory).arg("-c").arg(config);
            nginx.args(["-e", "error.log", "-g", "daemon off; master_process off;"]);
            nginx
        }
        _ => {
            let mut weir = command(WEIR, directory);
            weir.arg("proxy").arg("--config").arg(config);
            weir
        }
    }
}

/// Wraps a process that was started by other code, so that it ends with this value.
pub(crate) fn kill_on_drop(child: std::process::Child) -> Process {
    Process(child)
}

/// Returns whether a process has ended.
fn has_ended(process: &mut Process) -> bool {
    process.0.try_wait().is_ok_and(|code| code.is_some())
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the authority of the first complete line in which weir reports a listening address.
fn listening_authority(stdout: &Path) -> Option<String> {
    let text = fs::read_to_string(stdout).ok()?;
    let line = text.split_inclusive('\n').find(|line| line.starts_with("listening on "))?;
    let url = line.strip_suffix('\n')?.trim_start_matches("listening on ").split(' ').next()?;
    Some(url.trim_start_matches("http://").trim_end_matches('/').to_owned())
}

fn weir_config(origin: &str, setup: ProxySetup<'_>) -> String {
    let ProxySetup { listener, pool } = setup;
    format!(
        "threads = 1\n[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n{listener}\n\
         [pool.app]\nservers = [\"{origin}\"]\nreuse = \"always\"\n{pool}\n"
    )
}

fn haproxy_config(origin: &str) -> String {
    format!(
        "global\n  noreuseport\n  nbthread 1\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\n\
         \x20 timeout http-request 10s\n  timeout tunnel 20s\n  option http-no-delay\n  retries 1\n  option forwardfor\n\
         frontend web\n  bind 127.0.0.1:{{port}}\n  http-request deny deny_status 405 if METH_CONNECT\n  default_backend app\n\
         backend app\n  http-reuse always\n  server a {origin}\n"
    )
}

fn nginx_config(origin: &str) -> String {
    let mut paths = String::new();
    for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(paths, "  {name}_temp_path {{directory}}/{name};");
    }
    format!(
        "worker_processes 1;\npid {{directory}}/pid;\nerror_log {{directory}}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n  access_log off;\n  client_max_body_size 0;\n{paths}\
         upstream app {{ server {origin}; keepalive 16; }}\n\
         server {{ listen 127.0.0.1:{{port}};\n location / {{ proxy_pass http://app;\n\
         proxy_http_version 1.1; proxy_request_buffering off; proxy_buffering off;\n\
         proxy_set_header Host $http_host; proxy_set_header Connection \"\"; }} }}\n}}\n"
    )
}

/// One raw client connection.
#[derive(Debug)]
pub(crate) struct StrictClient {
    pub(crate) stream: TcpStream,
    pub(crate) reader: StrictReader,
}

impl StrictClient {
    pub(crate) fn connect(authority: &str) -> Self {
        let stream = TcpStream::connect(authority).unwrap();
        let timeout = Some(EVENT_TIMEOUT);
        stream.set_read_timeout(timeout).unwrap();
        stream.set_write_timeout(timeout).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = StrictReader::new(&stream);
        Self { stream, reader }
    }

    /// Sends all bytes; returns an error if the proxy has closed before.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(&mut self.stream, bytes)
    }

    /// Sends the bytes in pieces that end at these positions, each in its own segment.
    pub(crate) fn send_split(&mut self, bytes: &[u8], at: &[usize]) -> io::Result<()> {
        let mut from = 0;
        for to in at.iter().copied().filter(|at| *at < bytes.len()).chain([bytes.len()]) {
            self.send(&bytes[from..to])?;
            from = to;
            pause_ms(2);
        }
        Ok(())
    }

    /// Sends a request and reads its final response.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<StrictMessage, ReadError> {
        let method = request.split(|byte| *byte == b' ').next().unwrap_or(b"");
        let method = String::from_utf8_lossy(method).into_owned();
        let _ = self.send(request);
        Ok(self.reader.read_response(&method)?.1)
    }
}

/// Request that an origin received: a complete one, or the reason why it is invalid.
#[derive(Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) request: Result<StrictMessage, ReadError>,
}

/// Action of an origin after a request.
#[derive(Clone, Debug)]
pub(crate) enum OriginReply {
    /// Sends these pieces; the connection stays open.
    KeepOpen(Vec<Vec<u8>>),
    /// Sends these bytes and closes the connection.
    Close(Vec<u8>),
}

/// An origin that reads strictly, passes the request to the test, and sends the configured
/// response.
#[derive(Debug)]
pub(crate) struct RecordingOrigin {
    server: ScriptedServer,
    seen: Receiver<RecordedRequest>,
}

impl RecordingOrigin {
    pub(crate) fn start(reply: impl Fn(&StrictMessage) -> OriginReply + Send + Sync + 'static) -> Self {
        let (sender, received) = channel();
        let server = ScriptedServer::start(move |peer| record(peer, &sender, &reply));
        Self { server, seen: received }
    }

    pub(crate) fn authority(&self) -> &str {
        &self.server.authority
    }

    pub(crate) fn connections(&self) -> u64 {
        self.server.connections()
    }

    /// Returns the next request; the end of a connection between requests does not count.
    pub(crate) fn next_request(&self) -> Option<RecordedRequest> {
        self.seen.recv_timeout(EVENT_TIMEOUT).ok()
    }

    /// Returns the next request, which must exist and be valid.
    pub(crate) fn valid_request(&self) -> StrictMessage {
        let recorded = self.next_request().expect("the origin saw nothing");
        recorded.request.unwrap_or_else(|wrong| panic!("the origin saw {wrong:?}"))
    }

    /// Returns all requests so far.
    pub(crate) fn take_requests(&self) -> Vec<RecordedRequest> {
        self.seen.try_iter().collect()
    }
}

fn record(
    peer: &mut ScriptPeer,
    sender: &Sender<RecordedRequest>,
    reply: &impl Fn(&StrictMessage) -> OriginReply,
) -> io::Result<()> {
    let mut reader = StrictReader::new(&peer.stream);
    loop {
        let request = reader.read_request_head().and_then(|mut request| {
            if request.list_contains("expect", "100-continue") {
                let _ = peer.send(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            reader.read_body(&mut request)?;
            Ok(request)
        });
        let action = match &request {
            Ok(request) => Some(reply(request)),
            Err(ReadError::Closed | ReadError::TimedOut) => return Ok(()),
            Err(_) => None,
        };
        let stays_open = request.as_ref().is_ok_and(StrictMessage::persists);
        // The test may have ended and no longer receive.
        let _ = sender.send(RecordedRequest { request });
        match action {
            Some(OriginReply::KeepOpen(pieces)) => {
                let many = pieces.len() > 1;
                for piece in pieces {
                    peer.send(&piece)?;
                    if many {
                        pause_ms(2);
                    }
                }
                if !stays_open {
                    return Ok(());
                }
            }
            Some(OriginReply::Close(bytes)) => return peer.send(&bytes),
            None => return Ok(()),
        }
    }
}
