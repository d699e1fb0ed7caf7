//! Proxies under test: weir and, with the same tests, HAProxy and nginx; and the origin behind them
//! that records what it is sent.
//!
//! What the tests demand is with the tests; here is only how to start and to stop.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

use tempfile::TempDir;

use super::peers::{Peer, Scripted};
use super::strict::{Message, Reader, Wrong};
use super::{PATIENCE, Process, WEIR, command, folder, listens, pause_ms, within};

/// A program that can stand between client and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Weir,
    Haproxy,
    Nginx,
}

/// What a proxy is told beyond "from here to there". The texts are weir's; the others get the same
/// meaning where they have it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup<'a> {
    /// Lines of `[listener.web]`.
    pub(crate) listener: &'a str,
    /// Lines of `[pool.app]`; `reuse = "always"` is there, because it is the hardest on framing.
    pub(crate) pool: &'a str,
}

impl Subject {
    /// Whether it can be started here; says why when it cannot.
    pub(crate) fn is_here(self) -> bool {
        let (program, arguments) = match self {
            Self::Weir => return true,
            Self::Haproxy => ("haproxy", ["-v"].as_slice()),
            Self::Nginx => ("nginx", ["-v"].as_slice()),
        };
        is_here(program, arguments)
    }

    /// Starts it in front of one origin.
    pub(crate) fn start(self, origin: &str, setup: Setup<'_>) -> Proxy {
        match self {
            Self::Weir => Proxy::weir(&weir_config(origin, setup)),
            Self::Haproxy => Proxy::haproxy(&haproxy_config(origin)),
            Self::Nginx => Proxy::nginx(&nginx_config(origin)),
        }
    }
}

/// Whether a program is there and ends well.
pub(crate) fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether a program is there; says so when it is not.
pub(crate) fn is_here(program: &str, arguments: &[&str]) -> bool {
    let is_here = runs(program, arguments);
    if !is_here {
        eprintln!("skipped: `{program} {}` does not run here", arguments.join(" "));
    }
    is_here
}

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    process: Process,
    pub(crate) authority: String,
    folder: TempDir,
}

impl Proxy {
    /// weir with this config, which binds port 0; the address is that of the first listener.
    pub(crate) fn weir(config: &str) -> Self {
        let folder = folder();
        let path = folder.path().join("weir.toml");
        fs::write(&path, config).unwrap();
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        let mut command = command(WEIR, folder.path());
        command.arg("proxy").arg("--config").arg(&path);
        let process = Process::spawn(command.stdout(file("stdout")).stderr(file("stderr")));
        let mut authority = None;
        let started = within(PATIENCE, || {
            authority = listening(&folder.path().join("stdout"));
            authority.is_some()
        });
        let said = fs::read_to_string(folder.path().join("stderr")).unwrap();
        assert!(started, "weir proxy did not say where it listens; it said '{said}'\n{config}");
        Self { process, authority: authority.unwrap(), folder }
    }

    /// HAProxy with this config; `{port}` stands for its port.
    pub(crate) fn haproxy(config: &str) -> Self {
        Self::on_a_free_port("haproxy", config, |path| {
            let mut command = Command::new("haproxy");
            command.arg("-db").arg("-f").arg(path);
            command
        })
    }

    /// nginx with this config; `{port}` stands for its port and `{folder}` for a folder of its own.
    pub(crate) fn nginx(config: &str) -> Self {
        Self::on_a_free_port("nginx", config, |path| {
            let mut command = Command::new("nginx");
            command.arg("-p").arg(path.parent().unwrap()).arg("-c").arg(path);
            command.args(["-e", "error.log", "-g", "daemon off; master_process off;"]);
            command
        })
    }

    fn on_a_free_port(name: &str, config: &str, command: impl Fn(&Path) -> Command) -> Self {
        for _ in 0..20 {
            let folder = folder();
            let port = free_port();
            let config = config.replace("{port}", &port.to_string());
            let config = config.replace("{folder}", folder.path().to_str().unwrap());
            let path = folder.path().join("conf");
            fs::write(&path, config).unwrap();
            let log = File::create(folder.path().join("stderr")).unwrap();
            let null = Stdio::null;
            let mut process =
                Process::spawn(command(&path).stdin(null()).stdout(null()).stderr(log));
            let authority = format!("127.0.0.1:{port}");
            let mut ended = false;
            let started = within(PATIENCE, || {
                ended = has_ended(&mut process);
                ended || listens(process.id(), port)
            });
            if started && !ended {
                return Self { process, authority, folder };
            }
            eprintln!("{}", fs::read_to_string(folder.path().join("stderr")).unwrap());
        }
        panic!("{name} did not start on any of twenty free ports")
    }

    /// A connection to it, with a time-out on everything.
    pub(crate) fn connect(&self) -> Caller {
        Caller::connect(&self.authority)
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://{}{target}", self.authority)
    }

    /// Fails when it has ended by itself or has complained of itself.
    pub(crate) fn assert_alive(&mut self) {
        let said = fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default();
        assert!(!has_ended(&mut self.process), "the proxy ended: {said}");
        assert!(!said.contains("panicked"), "the proxy panicked: {said}");
    }
}

/// A process that was started elsewhere, to end with this value.
pub(crate) fn of_child(child: std::process::Child) -> Process {
    Process(child)
}

/// Whether a process is over already.
fn has_ended(process: &mut Process) -> bool {
    process.0.try_wait().is_ok_and(|code| code.is_some())
}

/// A port that was free just now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The authority of the first whole line that says where weir listens.
fn listening(stdout: &Path) -> Option<String> {
    let text = fs::read_to_string(stdout).ok()?;
    let line = text.split_inclusive('\n').find(|line| line.starts_with("listening on "))?;
    let url = line.strip_suffix('\n')?.trim_start_matches("listening on ").split(' ').next()?;
    Some(url.trim_start_matches("http://").trim_end_matches('/').to_owned())
}

fn weir_config(origin: &str, setup: Setup<'_>) -> String {
    let Setup { listener, pool } = setup;
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
        let _ = writeln!(paths, "  {name}_temp_path {{folder}}/{name};");
    }
    format!(
        "worker_processes 1;\npid {{folder}}/pid;\nerror_log {{folder}}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n  access_log off;\n  client_max_body_size 0;\n{paths}\
         upstream app {{ server {origin}; keepalive 16; }}\n\
         server {{ listen 127.0.0.1:{{port}};\n location / {{ proxy_pass http://app;\n\
         proxy_http_version 1.1; proxy_request_buffering off; proxy_buffering off;\n\
         proxy_set_header Host $http_host; proxy_set_header Connection \"\"; }} }}\n}}\n"
    )
}

/// One raw connection of a client.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) stream: TcpStream,
    pub(crate) reader: Reader,
}

impl Caller {
    pub(crate) fn connect(authority: &str) -> Self {
        let stream = TcpStream::connect(authority).unwrap();
        let patience = Some(PATIENCE);
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = Reader::new(&stream);
        Self { stream, reader }
    }

    /// Sends all of it; an error when the proxy has closed before.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        io::Write::write_all(&mut self.stream, bytes)
    }

    /// Sends it in pieces that end at these places, each in a segment of its own.
    pub(crate) fn send_split(&mut self, bytes: &[u8], at: &[usize]) -> io::Result<()> {
        let mut from = 0;
        for to in at.iter().copied().filter(|at| *at < bytes.len()).chain([bytes.len()]) {
            self.send(&bytes[from..to])?;
            from = to;
            pause_ms(2);
        }
        Ok(())
    }

    /// Sends a request and reads its final answer.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<Message, Wrong> {
        let method = request.split(|byte| *byte == b' ').next().unwrap_or(b"");
        let method = String::from_utf8_lossy(method).into_owned();
        let _ = self.send(request);
        Ok(self.reader.answer(&method)?.1)
    }
}

/// What an origin saw: a whole request, or why it was none.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) request: Result<Message, Wrong>,
}

/// What an origin does after a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes, in these pieces; the connection stays.
    Stay(Vec<Vec<u8>>),
    /// These bytes, and the connection ends.
    Close(Vec<u8>),
}

/// An origin that reads strictly, tells the test what it read, and then answers as it is told.
#[derive(Debug)]
pub(crate) struct Recorder {
    server: Scripted,
    seen: Receiver<Seen>,
}

impl Recorder {
    pub(crate) fn start(reply: impl Fn(&Message) -> Reply + Send + Sync + 'static) -> Self {
        let (sender, seen) = channel();
        let server = Scripted::start(move |peer| record(peer, &sender, &reply));
        Self { server, seen }
    }

    pub(crate) fn authority(&self) -> &str {
        &self.server.authority
    }

    pub(crate) fn connections(&self) -> u64 {
        self.server.connections()
    }

    /// The next thing seen; ends of connections between requests are none.
    pub(crate) fn next(&self) -> Option<Seen> {
        self.seen.recv_timeout(PATIENCE).ok()
    }

    /// The next request, which has to be there and clean.
    pub(crate) fn request(&self) -> Message {
        let seen = self.next().expect("the origin saw nothing");
        seen.request.unwrap_or_else(|wrong| panic!("the origin saw {wrong:?}"))
    }

    /// All that was seen up to now.
    pub(crate) fn so_far(&self) -> Vec<Seen> {
        self.seen.try_iter().collect()
    }
}

fn record(
    peer: &mut Peer,
    sender: &Sender<Seen>,
    reply: &impl Fn(&Message) -> Reply,
) -> io::Result<()> {
    let mut reader = Reader::new(&peer.stream);
    loop {
        let request = reader.request_head().and_then(|mut request| {
            if request.lists("expect", "100-continue") {
                let _ = peer.send(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            reader.body(&mut request)?;
            Ok(request)
        });
        let answer = match &request {
            Ok(request) => Some(reply(request)),
            Err(Wrong::Over | Wrong::Silent) => return Ok(()),
            Err(_) => None,
        };
        let stays = request.as_ref().is_ok_and(Message::persists);
        // The test may be over and not listen any more.
        let _ = sender.send(Seen { request });
        match answer {
            Some(Reply::Stay(pieces)) => {
                let many = pieces.len() > 1;
                for piece in pieces {
                    peer.send(&piece)?;
                    if many {
                        pause_ms(2);
                    }
                }
                if !stays {
                    return Ok(());
                }
            }
            Some(Reply::Close(bytes)) => return peer.send(&bytes),
            None => return Ok(()),
        }
    }
}
