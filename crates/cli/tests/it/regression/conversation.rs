//! A row as a conversation: clients and servers that send the bytes of the row, and the proxy
//! between them. The steps run one after the other, so that their order never depends on chance.
//!
//! `c1 > BYTES` sends as a client, which connects at its first step; `c1 at NAME` has it connect to
//! that listener. `a1 < GET /x | name: value` is the first connection of the server `a`, which must
//! get that request; `?` is any target; `a1 > BYTES` responds. `c1 < 200 | name: value` is the
//! response. `< raw BYTES` is those bytes, `< closed` the end, `x` closes, `fin` ends the sending
//! side. `a idle`: nothing has arrived at `a`. `ask STATUS BYTES` and `pass BYTES => REQUEST` are
//! complete exchanges, on their own connections.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::smuggling::unescape;
use crate::support::faulty_origins::{RefusingPort, reset_on_close};
use crate::support::haproxy_log::HaproxyLogLine;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::strict_parser::{Framing, StrictMessage, StrictReader, preview};
use crate::support::{EVENT_TIMEOUT, run_weir, within};

/// First lines of every config: a status page, a control socket, logs of both forms.
const CONFIG_HEAD: &str = r#"threads = 1
admin = "127.0.0.1:0"
control = "HOME/weir.sock"
[privileges]
landlock = false
[[log]]
to = "file:HOME/access.haproxy"
format = "haproxy"
[[log]]
to = "file:HOME/access.json"
"#;
/// Number of bytes that the buffers of any socket take at once.
const SMALL_BYTES: usize = 32 * 1024;

type StepResult = Result<(), String>;

/// Runs the steps against a proxy with this config; fails with the step that does not hold.
pub(super) fn run_steps(config: &str, steps: &[&str]) -> StepResult {
    let mut conversation = Conversation::start(config);
    for step in steps {
        conversation
            .step(step)
            .map_err(|reason| format!("{step}\n    {reason}\n    {}", conversation.proxy.stderr()))?;
    }
    Ok(())
}

/// One end of a connection.
#[derive(Debug)]
struct Endpoint {
    stream: TcpStream,
    reader: StrictReader,
    sending: Option<JoinHandle<()>>,
}

impl Endpoint {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(EVENT_TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = StrictReader::new(&stream);
        Self { stream, reader, sending: None }
    }

    /// Sends bytes. If they do not fit into the buffers, a thread sends them, so that the next step
    /// can be the one that reads them.
    fn send(&mut self, bytes: Vec<u8>) -> StepResult {
        if let Some(before) = self.sending.take() {
            before.join().map_err(|_| "what was sent before did not go".to_owned())?;
        }
        if bytes.len() <= SMALL_BYTES {
            return self.stream.write_all(&bytes).map_err(|error| error.to_string());
        }
        let mut stream = self.stream.try_clone().unwrap();
        self.sending = Some(std::thread::spawn(move || {
            // The other side may have closed early.
            let _ = stream.write_all(&bytes);
        }));
        Ok(())
    }

    fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        !peeked.is_ok_and(|length| length > 0)
    }
}

#[derive(Debug)]
struct Conversation {
    proxy: ProxyUnderTest,
    servers: BTreeMap<char, TcpListener>,
    endpoints: BTreeMap<String, Endpoint>,
    _refusing: RefusingPort,
}

impl Conversation {
    fn start(config: &str) -> Self {
        let refusing = RefusingPort::new();
        let mut text = expand_config(config).replace("{refusing}", &refusing.authority);
        let mut servers = BTreeMap::new();
        for name in "abdefgh".chars() {
            let placeholder = format!("{{{name}}}");
            if text.contains(&placeholder) {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                set_socket_timeout(&listener, Timeout::Recv, Some(EVENT_TIMEOUT)).unwrap();
                text = text.replace(&placeholder, &listener.local_addr().unwrap().to_string());
                servers.insert(name, listener);
            }
        }
        let proxy = ProxyUnderTest::weir(&format!("{CONFIG_HEAD}{text}"));
        Self { proxy, servers, endpoints: BTreeMap::new(), _refusing: refusing }
    }

    fn step(&mut self, step: &str) -> StepResult {
        let words: Vec<&str> = step.splitn(3, ' ').collect();
        let rest = || step.split_once(' ').map_or("", |(_, rest)| rest);
        match words[..] {
            ["log", ..] => self.assert_log(rest()),
            ["haproxy", ..] => self.assert_haproxy_log(rest()),
            ["metric", ..] => self.wait_for_metric(rest()),
            ["unused", server] => self.wait_until_unused(server),
            ["ctl", ..] => self.ctl(rest()),
            ["ask", status, bytes] => self.assert_status(status, bytes),
            ["pass", ..] => self.assert_forwarded(rest()),
            [server, "idle"] => self.assert_idle(server),
            [name, "at", listener] => self.connect(name, listener).map(|_| ()),
            [name, ">", bytes] => self.endpoint(name)?.send(unescape(bytes)),
            [name, "<", what] => assert_received(name, self.endpoint(name)?, what),
            [name, "x"] => {
                // This is a plain close, even with unread bytes.
                self.endpoints.remove(name).ok_or("no such connection")?;
                Ok(())
            }
            [name, "reset"] => {
                reset_on_close(&self.endpoints.remove(name).ok_or("no such connection")?.stream);
                Ok(())
            }
            [name, "fin"] => {
                let stream = &self.endpoint(name)?.stream;
                stream.shutdown(Shutdown::Write).map_err(|error| error.to_string())
            }
            _ => Err("no such step".to_owned()),
        }
    }

    /// Sends one request on its own connection, and checks the status of its response.
    fn assert_status(&mut self, status: &str, bytes: &str) -> StepResult {
        let end = self.connect("c0", "web")?;
        end.send(unescape(bytes))?;
        assert_received("c0", end, status)?;
        self.endpoints.remove("c0");
        Ok(())
    }

    /// `BYTES => GET /x | …`: sends one request, with its own connection on either side of the
    /// proxy, and checks what `a` gets of it.
    fn assert_forwarded(&mut self, what: &str) -> StepResult {
        let (bytes, expected) = what.split_once(" => ").ok_or("BYTES => REQUEST")?;
        self.connect("c0", "web")?.send(unescape(bytes))?;
        let server = self.endpoint("a0")?;
        assert_received("a0", server, expected)?;
        server.send(unescape("{DONE}"))?;
        assert_received("c0", self.endpoint("c0")?, "200")?;
        self.endpoints.remove("a0");
        self.endpoints.remove("c0");
        Ok(())
    }

    /// Returns the end of this name, and connects it if necessary.
    fn endpoint(&mut self, name: &str) -> Result<&mut Endpoint, String> {
        if !self.endpoints.contains_key(name) {
            if name.starts_with('c') {
                return self.connect(name, "web");
            }
            let server = name.chars().next().and_then(|letter| self.servers.get(&letter));
            let accepted = server.ok_or("no such server")?.accept();
            let (stream, _) = accepted.map_err(|error| format!("no connection came: {error}"))?;
            self.endpoints.insert(name.to_owned(), Endpoint::new(stream));
        }
        self.endpoints.get_mut(name).ok_or_else(|| "no such connection".to_owned())
    }

    fn connect(&mut self, name: &str, listener: &str) -> Result<&mut Endpoint, String> {
        let addresses = self.proxy.addresses(listener);
        let address = addresses.first().ok_or("no such listener")?;
        let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
        Ok(self.endpoints.entry(name.to_owned()).or_insert_with(|| Endpoint::new(stream)))
    }

    fn assert_idle(&self, server: &str) -> StepResult {
        let name = server.chars().next().unwrap_or(' ');
        let listener = self.servers.get(&name).ok_or("no such server")?;
        listener.set_nonblocking(true).unwrap();
        let came = listener.accept().is_ok();
        listener.set_nonblocking(false).unwrap();
        let mut known = self.endpoints.iter().filter(|(end, _)| end.starts_with(name));
        let silent = known.all(|(_, end)| end.is_silent());
        if came || !silent { Err("something came".to_owned()) } else { Ok(()) }
    }

    fn assert_log(&self, what: &str) -> StepResult {
        let mut parts = what.split(" | ");
        let part = parts.next().unwrap_or("");
        let lines = self.proxy.wait_for_lines_with("access.json", part, 1);
        let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
        for condition in parts {
            let (field, expected) = condition.split_once('=').ok_or("field=value")?;
            let actual = match &line[field] {
                serde_json::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if actual != expected {
                return Err(format!("{field} is {actual}: {line}"));
            }
        }
        Ok(())
    }

    fn assert_haproxy_log(&self, what: &str) -> StepResult {
        let (part, code) = what.split_once(" | ").ok_or("PART | CODE")?;
        let lines = self.proxy.wait_for_lines_with("access.haproxy", part, 1);
        let actual = HaproxyLogLine::http(&lines[0]).code;
        if actual == code { Ok(()) } else { Err(lines[0].clone()) }
    }

    /// Waits for a metric: `NAME label=value … NUMBER`.
    fn wait_for_metric(&self, what: &str) -> StepResult {
        let words: Vec<&str> = what.split(' ').collect();
        let (name, labels) = (words[0], &words[1..words.len() - 1]);
        let labels: Vec<(&str, &str)> = labels.iter().filter_map(|label| label.split_once('=')).collect();
        let expected: f64 = words[words.len() - 1].parse().map_err(|_| "a number")?;
        let mut actual = f64::NAN;
        let holds = within(EVENT_TIMEOUT, || {
            actual = self.proxy.metrics().sum_known(name, &labels);
            (actual - expected).abs() < f64::EPSILON
        });
        if holds { Ok(()) } else { Err(format!("it is {actual}")) }
    }

    /// Waits until a server of the first pool gets no requests.
    fn wait_until_unused(&self, server: &str) -> StepResult {
        let is_unused = within(EVENT_TIMEOUT, || {
            let status = self.proxy.status();
            let servers = status["pools"][0]["servers"].as_array().unwrap();
            servers.iter().any(|row| row["name"] == server && row["usable"] == false)
        });
        if is_unused { Ok(()) } else { Err("it gets requests".to_owned()) }
    }

    fn ctl(&self, what: &str) -> StepResult {
        let mut parts = what.split(" | ");
        let words = parts.next().unwrap_or("");
        let socket = self.proxy.file("weir.sock");
        let mut arguments = vec!["ctl", "--socket", socket.to_str().unwrap()];
        arguments.extend(words.split(' '));
        let output = run_weir(&arguments);
        let holds = output.code == 0 && parts.all(|part| output.stdout.contains(part));
        if holds { Ok(()) } else { Err(format!("{} {}", output.stdout, output.stderr)) }
    }
}

/// Expands the short forms of a config: `LISTENER name`, `POOL name servers…`.
fn expand_config(config: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["LISTENER", name] => format!("[listener.{name}]\nbind = \"127.0.0.1:0\"\n"),
            ["POOL", name, ref servers @ ..] => {
                let servers = servers
                    .iter()
                    .map(|server| format!("{{ name = \"{server}\", address = \"{{{server}}}\" }}"));
                let servers: Vec<String> = servers.collect();
                format!("[pool.{name}]\nservers = [{}]\n", servers.join(", "))
            }
            _ => format!("{line}\n"),
        }
    };
    config.lines().map(line).collect()
}

fn assert_received(name: &str, end: &mut Endpoint, what: &str) -> StepResult {
    if what == "closed" {
        let rest = end.reader.read_to_end();
        return if rest.is_empty() { Ok(()) } else { Err(format!("then came {}", preview(&rest))) };
    }
    if let Some(bytes) = what.strip_prefix("raw ") {
        let expected = unescape(bytes);
        let got = end.reader.read_exactly(expected.len()).map_err(|wrong| format!("{wrong:?}"))?;
        return if got == expected { Ok(()) } else { Err(format!("it is {}", preview(&got))) };
    }
    let mut wants = what.split(" | ");
    let start = wants.next().unwrap_or("");
    let (message, is_it) = if name.starts_with('c') {
        let (method, status) = start.split_once(' ').unwrap_or(("GET", start));
        let message = end.reader.read_any_response(method).map_err(|wrong| format!("{wrong:?}"))?;
        let is_it = message.status().to_string() == status;
        (message, is_it)
    } else {
        let message = end.reader.read_request().map_err(|wrong| format!("{wrong:?}"))?;
        let (method, target) = start.split_once(' ').unwrap_or((start, "?"));
        let is_it = message.method() == method && (target == "?" || message.target() == target);
        (message, is_it)
    };
    match wants.find(|condition| !matches_condition(&message, condition)) {
        _ if !is_it => Err(format!("it is {message:?}")),
        Some(condition) => Err(format!("not '{condition}': {message:?}, body {}", preview(&message.body))),
        None => Ok(()),
    }
}

/// Returns whether a message fulfils one condition: `name: value` (all its lines, ` & ` between
/// them), `name ~ part`, `has name`, `no name`, `trailer name: value`, `body BYTES`, `framing
/// KIND`.
fn matches_condition(message: &StrictMessage, condition: &str) -> bool {
    let (word, rest) = condition.split_once(' ').unwrap_or((condition, ""));
    match word {
        "has" => !message.values(rest).is_empty(),
        "no" => message.values(rest).is_empty(),
        "body" => message.body == unescape(rest),
        "trailer" => message.trailers.iter().any(|(name, value)| format!("{name}: {value}") == rest),
        "framing" => match message.framing {
            Framing::None => rest == "none",
            Framing::Length(_) => rest == "length",
            Framing::Chunked => rest == "chunked",
            Framing::UntilClose => rest == "close",
        },
        _ => match (condition.split_once(" ~ "), condition.split_once(": ")) {
            (Some((name, part)), _) => message.values(name).join(" & ").contains(part),
            (None, Some((name, value))) => {
                !message.values(name).is_empty() && message.values(name).join(" & ") == value
            }
            (None, None) => {
                // A field without a value.
                let name = condition.trim_end_matches(':');
                message.values(name) == [""]
            }
        },
    }
}
