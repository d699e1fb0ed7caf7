//! A TLS client that shares no code with weir: Python's ssl module, with a command per line.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::Process;
use crate::support::faulty_origins::take_pipes;

const SCRIPT: &str = r#"
import hashlib, json, select, socket, ssl, sys, time

contexts, connections = {}, {}

def context_of(c):
    key = json.dumps([c["ca"], c.get("certificate"), c.get("version")])
    if key not in contexts:
        context = ssl.create_default_context(cafile=c["ca"])
        versions = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
        if c.get("version"):
            context.minimum_version = context.maximum_version = versions[c["version"]]
        if c.get("certificate"):
            context.load_cert_chain(c["certificate"])
        contexts[key] = context
    return contexts[key]

def connect(c):
    raw = socket.socket()
    raw.settimeout(30)
    if c.get("buffer"):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, c["buffer"])
    raw.connect(("127.0.0.1", c["port"]))
    raw.sendall(c.get("before", "").encode())
    session = connections[c["resumes"]].session if c.get("resumes") else None
    context = context_of(c)
    tls = context.wrap_socket(raw, server_hostname=c["name"], session=session, suppress_ragged_eofs=False)
    connections[c["id"]] = tls
    peer = tls.getpeercert()
    names = [value for _, value in peer["subjectAltName"]]
    return {"version": tls.version(), "cipher": tls.cipher()[0], "resumed": tls.session_reused,
            "names": names, "serial": peer["serialNumber"]}

def read_response(tls):
    buffer = b""
    def more():
        nonlocal buffer
        part = tls.recv(65536)
        buffer += part
        if not part:
            raise EOFError("the end of the stream")
    def take(length):
        nonlocal buffer
        while len(buffer) < length:
            more()
        taken, buffer = buffer[:length], buffer[length:]
        return taken
    def line():
        nonlocal buffer
        while b"\r\n" not in buffer:
            more()
        taken, buffer = buffer.split(b"\r\n", 1)
        return taken
    status = int(line().split()[1])
    fields = {}
    while field := line():
        name, _, value = field.decode().partition(":")
        fields[name.lower()] = value.strip()
    body, end = b"", "complete"
    try:
        if status == 101:
            pass
        elif "content-length" in fields:
            body = take(int(fields["content-length"]))
        elif fields.get("transfer-encoding") == "chunked":
            while length := int(line(), 16):
                body += take(length)
                line()
            line()
        else:
            try:
                while True:
                    more()
            except EOFError:
                body, buffer = buffer, b""
    except (EOFError, OSError) as error:
        end = type(error).__name__
    text = body[:1000].decode("latin1")
    return {"status": status, "fields": fields, "length": len(body), "end": end, "text": text,
            "digest": hashlib.sha256(body).hexdigest(), "rest": buffer.decode("latin1")}

def request(c):
    tls = connections[c["id"]]
    tls.sendall(c["head"].encode() + pattern(c.get("body", 0)))
    return read_response(tls)

def pattern(length):
    return (bytes(index * 7 % 251 for index in range(251)) * (length // 251 + 1))[:length]

def echo(c):
    # In one thread: OpenSSL does not allow a session in two of them.
    tls, sent, received, at = connections[c["id"]], pattern(c["length"]), b"", 0
    tls.setblocking(False)
    while len(received) < len(sent):
        waits = []
        try:
            part = tls.recv(65536)
            if not part:
                break
            received += part
            continue
        except ssl.SSLWantReadError:
            waits.append("read")
        try:
            if at < len(sent):
                at += tls.send(sent[at:at + 65536])
                continue
        except ssl.SSLWantWriteError:
            waits.append("write")
        writable = [tls] if "write" in waits else []
        if not any(select.select([tls], writable, [], 30)):
            break
    tls.settimeout(30)
    return {"equal": received == sent, "received": len(received), "sent": at}

def read_slowly(c):
    # A steady reader: so many bytes in each interval, up to a length.
    tls, received = connections[c["id"]], 0
    tls.sendall(c["head"].encode())
    while received < c["length"]:
        part = tls.recv(c["bytes"])
        if not part:
            break
        received += len(part)
        time.sleep(c["seconds"])
    return {"received": received}

def end(c):
    connections[c["id"]].unwrap()
    return {}

def close(c):
    connections[c["id"]].close()
    return {}

def digest(c):
    return {"digest": hashlib.sha256(pattern(c["length"])).hexdigest()}

def read_end(c):
    try:
        part = connections[c["id"]].recv(65536)
        return {"end": "more" if part else "clean"}
    except OSError as error:
        return {"end": type(error).__name__}

for command in sys.stdin:
    c = json.loads(command)
    try:
        result = globals()[c["op"]](c)
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
"#;

/// The Python process and its connections, which have names.
#[derive(Debug)]
pub(super) struct TlsClient {
    _process: Process,
    commands: ChildStdin,
    results: BufReader<ChildStdout>,
}

impl TlsClient {
    pub(super) fn start() -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let (commands, results) = take_pipes(&mut process);
        Self { _process: process, commands, results: BufReader::new(results) }
    }

    /// Runs a command; its result may be an error.
    pub(super) fn try_run(&mut self, command: &Value) -> Value {
        writeln!(self.commands, "{command}").unwrap();
        let mut line = String::new();
        self.results.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{command}: {error}: '{line}'"))
    }

    /// Runs a command that must succeed.
    pub(super) fn run(&mut self, command: &Value) -> Value {
        let result = self.try_run(command);
        assert!(result["error"].is_null(), "{command}: {result}");
        result
    }

    /// Sends a GET on a connection; returns the response.
    pub(super) fn get(&mut self, id: &str, target: &str) -> Value {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        self.run(&json!({ "op": "request", "id": id, "head": head }))
    }

    /// Returns the SHA-256 of the bytes that a body of this length has.
    pub(super) fn digest_of_body(&mut self, length: usize) -> Value {
        self.run(&json!({ "op": "digest", "length": length }))["digest"].clone()
    }
}

/// Returns the command for a new connection to a port; `more` has further settings.
pub(super) fn connect(id: &str, port: u16, ca: &str, name: &str, more: Value) -> Value {
    let mut command = json!({ "op": "connect", "id": id, "port": port, "ca": ca, "name": name });
    for (key, value) in more.as_object().unwrap() {
        command[key] = value.clone();
    }
    command
}
