//! The deployments of `docs/deployments.md`: each config of `docs/examples/deployments` with real servers, the requests that its
//! page describes, and the commands on the page.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::proxy_interop::{GoServer, go_program, run_go};
use crate::support::faulty_origins::{echoing_server, field};
use crate::support::peers::{Nginx, ScriptedServer};
use crate::support::proxies::{ComparedProxy, is_installed};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::python_server::PythonSocketServer;
use crate::support::tls_peers::Certificates;
use crate::support::{WEIR, run_weir, send_signal, shared_machine, temp_dir};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn example(name: &str) -> PathBuf {
    docs().join("examples/deployments").join(name).join("weir.toml")
}

/// A deployment that runs. Its listeners have ports of the kernel, and its addresses and files are replaced.
struct Deployment {
    name: &'static str,
    proxy: ProxyUnderTest,
    /// Commands of the operator that were run.
    commands: RefCell<Vec<String>>,
    _files: tempfile::TempDir,
}

/// Response of curl.
struct Fetched {
    /// Exit code of curl.
    code: i32,
    status: u16,
    head: String,
    body: String,
}

impl Fetched {
    fn field(&self, name: &str) -> String {
        field(&self.head, name).unwrap_or_default()
    }

    /// Returns the cookie that the response sets, as a request has it.
    fn cookie(&self) -> String {
        self.field("set-cookie").split(';').next().unwrap_or_default().to_owned()
    }
}

impl Deployment {
    /// Checks the config, and starts it with `replaced` addresses and files.
    fn start(name: &'static str, certificates: Option<&Certificates>, replaced: &[(&str, &str)]) -> Self {
        let files = temp_dir();
        let path = |name: &str| files.path().join(name).display().to_string();
        fs::write(path("maintenance.html"), "<p>back at noon\n").unwrap();
        fs::write(path("sticky.key"), "a key of the tests, long enough\n").unwrap();
        let mut text = fs::read_to_string(example(name)).unwrap();
        for (from, to) in replaced {
            text = text.replace(from, to);
        }
        if let Some(certificates) = certificates {
            text = text
                .replace("/etc/ssl/site.pem", &certificates.file("both.pem"))
                .replace("/etc/ssl/weir.pem", &certificates.file("both.pem"))
                .replace("/etc/ssl/clients-ca.pem", &certificates.file("ca.pem"))
                .replace("/etc/ssl/servers-ca.pem", &certificates.file("ca.pem"));
        }
        text = text
            .replace("\":80\"", "\"127.0.0.1:0\"")
            .replace("\":443\"", "\"127.0.0.1:0\"")
            .replace("/etc/weir", &path(""))
            .replace("/run/weir.sock", &path("weir.sock"))
            .replace("/var/lib/weir/state", &path("state"));
        let text = format!("threads = 2\n{text}");
        let checked = path("checked.toml");
        fs::write(&checked, &text).unwrap();
        let output = run_weir(&["proxy", "--check", "--config", &checked]);
        // The files of the tests are no secrets.
        let mut warnings = output.stderr.lines();
        let is_clean = warnings.all(|line| line.contains("every user of this machine can read"));
        assert!(output.code == 0 && is_clean, "{name}: {output:?}");
        let proxy = ProxyUnderTest::weir(&text);
        Self { name, proxy, commands: RefCell::default(), _files: files }
    }

    fn authority(&self, listener: &str) -> String {
        self.proxy.addresses(listener)[0].clone()
    }

    /// Sends a request of curl to a host at a listener.
    fn fetch(&self, listener: &str, url: &str, arguments: &[&str]) -> Fetched {
        let authority = self.authority(listener);
        let mut command = Command::new("curl");
        command.args(["-q", "-s", "-i", "-k", "--max-time", "30", "--connect-to"]);
        command.arg(format!("::{authority}")).args(arguments).arg(url);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let code = output.status.code().unwrap_or(-1);
        Fetched { code, status, head: format!("{head}\r\n\r\n"), body: body.to_owned() }
    }

    /// Runs a command of the operator.
    fn operate(&self, words: &str) -> String {
        self.commands.borrow_mut().push(format!("weir ctl {words}"));
        let socket = self._files.path().join("weir.sock");
        let mut arguments = vec!["ctl", "--socket", socket.to_str().unwrap()];
        arguments.extend(words.split(' '));
        let output = run_weir(&arguments);
        assert_eq!(output.code, 0, "{words}: {output:?}");
        output.stdout
    }

    /// Returns what `--explain` prints for a request.
    fn explain(&self, request: &str) -> String {
        let config = self.proxy.file("weir.toml");
        let output = run_weir(&["proxy", "--config", config.to_str().unwrap(), "--explain", request]);
        assert_eq!(output.code, 0, "{output:?}");
        output.stdout
    }

    /// Checks that all commands of the operator in its section of the page were run.
    fn assert_page_was_followed(&self, title: &str) {
        let page = fs::read_to_string(docs().join("deployments.md")).unwrap();
        let section = page.split("\n## ").find(|section| section.starts_with(&format!("{title}\n")));
        let section = section.unwrap_or_else(|| panic!("{title}: no section"));
        assert!(section.contains(&format!("examples/deployments/{}/weir.toml", self.name)), "{title}");
        for line in section.lines().filter(|line| line.starts_with("weir ctl ")) {
            assert!(self.commands.borrow().iter().any(|command| command == line), "{title}: not run: {line}");
        }
    }
}

/// A server of WebSockets, which echoes messages, and of event streams, in Python.
const LIVE_SERVER: &str = r#"
import base64, hashlib, socket, time

def exactly(stream, length):
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data

def echo(stream, key):
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    stream.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    stream.flush()
    while True:
        kind, length = exactly(stream, 2)
        length &= 127
        if length == 126:
            length = int.from_bytes(exactly(stream, 2), "big")
        mask = exactly(stream, 4)
        content = bytes(byte ^ mask[at % 4] for at, byte in enumerate(exactly(stream, length)))
        size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
        stream.write(bytes([kind]) + size + content)
        stream.flush()
        if kind & 15 == 8:
            return

def send_events(stream):
    stream.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    number = 0
    while True:
        event = b"id: %d\ndata: %d\n\n" % (number, number)
        stream.write(b"%x\r\n%s\r\n" % (len(event), event))
        stream.flush()
        number += 1
        time.sleep(0.01)

def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = connection.makefile("rwb")
    try:
        fields = {}
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        key = fields.get(b"sec-websocket-key")
        echo(stream, key) if key else send_events(stream)
        connection.shutdown(socket.SHUT_WR)
    except (OSError, EOFError):
        pass
    connection.close()
"#;

/// Starts the server; `None`: Python is missing.
fn start_live_server() -> Option<PythonSocketServer> {
    is_installed("python3", &["--version"]).then(|| PythonSocketServer::start(LIVE_SERVER, &[]))
}

fn has_curl() -> bool {
    is_installed("curl", &["--version"])
}

#[test]
fn every_example_is_on_the_page_and_formatted() {
    let page = fs::read_to_string(docs().join("deployments.md")).unwrap();
    let mut arguments = vec!["proxy".to_owned(), "fmt".to_owned(), "--check".to_owned()];
    for entry in fs::read_dir(docs().join("examples/deployments")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(page.contains(&format!("(examples/deployments/{name}/weir.toml)")), "{name}");
        arguments.push(example(&name).display().to_string());
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = run_weir(&arguments);
    assert_eq!(output.code, 0, "{output:?}");
}

#[test]
fn a_site_has_tls_a_next_release_sticky_sessions_limits_and_a_page_for_maintenance() {
    let _shared = shared_machine();
    let Some(certificates) = Certificates::create().filter(|_| has_curl()) else { return };
    let servers: Vec<ScriptedServer> = ["a", "b", "canary", "api"].map(echoing_server).into();
    let site = Deployment::start(
        "site",
        Some(&certificates),
        &[
            ("10.0.0.11:8080", &servers[0].authority),
            ("10.0.0.12:8080", &servers[1].authority),
            ("10.0.0.13:8080", &servers[2].authority),
            ("10.0.0.14:8080", &servers[3].authority),
        ],
    );
    const SHOP: &str = "https://shop.example.org/";
    let release = |arguments: &[&str]| {
        let fetched = site.fetch("https", SHOP, arguments);
        assert_eq!(fetched.status, 200, "{}", fetched.head);
        fetched.field("x-release")
    };
    let redirect = site.fetch("http", "http://shop.example.org/x?y=1", &[]);
    let location = redirect.field("location");
    assert_eq!(redirect.status, 308);
    assert!(location.starts_with("https://shop.example.org") && location.ends_with("/x?y=1"), "{location}");
    let first = site.fetch("https", SHOP, &[]);
    assert!(first.head.contains("max-age=31536000"), "{}", first.head);
    // Clients without the application's cookie get the stable pool, unless they ask for the canary.
    assert_eq!(first.field("x-release"), "stable");
    assert_eq!(release(&["-H", "X-Canary: 1"]), "canary");
    assert_eq!(release(&["-b", "canary=1; user=7"]), "canary");
    // A tenth of the users, the same each time.
    let users_in_next_release = || -> Vec<bool> {
        (0..100).map(|user| release(&["-b", &format!("user=u{user}")]) == "canary").collect()
    };
    let at_ten = users_in_next_release();
    let count = at_ten.iter().filter(|is_in_next| **is_in_next).count();
    assert!((1..30).contains(&count), "{count}");
    assert!(users_in_next_release() == at_ten, "users keep their release");
    site.operate("split shop stable=80 canary=20");
    let at_twenty = users_in_next_release();
    assert!(at_ten.iter().zip(&at_twenty).all(|(before, after)| !before || *after));
    assert!(
        site.explain("GET https://shop.example.org/")
            .contains("split       stable 90, canary 10 (name shop), fallback")
    );
    site.operate("split shop default");
    assert!(users_in_next_release() == at_ten);
    // A session stays at its server.
    let cookie = first.cookie();
    assert!(cookie.starts_with("STABLE="), "{cookie}");
    let server = first.body.lines().next().unwrap_or_default().to_owned();
    for _ in 0..10 {
        let fetched = site.fetch("https", SHOP, &["-b", &cookie]);
        assert_eq!(fetched.body.lines().next(), Some(&*server));
    }
    let statuses: Vec<u16> = {
        let client = |_| site.fetch("https", "https://api.example.org/", &[]).status;
        // Curl sends a hundred requests with one command, faster than 10 per second.
        let urls = "https://api.example.org/[1-100]";
        let fetched = site.fetch("https", urls, &["-o", "/dev/null", "-w", "%{http_code} "]);
        let codes = fetched.head.rsplit("\r\n\r\n").nth(1).unwrap_or_default().to_owned() + &fetched.body;
        let all = codes.split_whitespace().filter_map(|word| word.parse().ok()).filter(|code| *code >= 100);
        let mut all: Vec<u16> = all.collect();
        all.push(client(()));
        all
    };
    assert!(statuses.contains(&429), "{statuses:?}");
    // Without a server of the canary, its users get the stable pool.
    let user = at_ten.iter().position(|is_in_next| *is_in_next).unwrap();
    site.operate("pool canary maint");
    assert_eq!(release(&["-b", &format!("user=u{user}")]), "stable");
    site.operate("pool canary ready");
    site.operate("maintenance on");
    for url in [SHOP, "https://api.example.org/"] {
        let fetched = site.fetch("https", url, &["-H", "Accept: text/html"]);
        // The API may still be over its limit.
        let is_limited = fetched.status == 429 && url != SHOP;
        assert!(
            is_limited || (fetched.status, &*fetched.body) == (503, "<p>back at noon\n"),
            "{url}: {}{}",
            fetched.head,
            fetched.body
        );
    }
    site.operate("reload");
    assert_eq!(site.fetch("https", SHOP, &[]).status, 503, "it stays over a reload");
    site.operate("maintenance off");
    assert_eq!(site.fetch("https", SHOP, &[]).status, 200);
    site.assert_page_was_followed("A site");
}

#[test]
fn tls_that_is_not_terminated_goes_to_the_server_of_its_name() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let servers = ["mail", "site"].map(|name| {
        ComparedProxy::weir(&format!(
            "threads = 1\n[listener.tls]\nbind = '127.0.0.1:0'\ntls = {{ self-signed = true }}\n\
             [[route]]\nreturn = {{ body-template = '{name} {{host}}' }}\n"
        ))
    });
    let addresses =
        servers.each_ref().map(|server| server.authority.trim_start_matches("https://").to_owned());
    let sni = Deployment::start(
        "sni",
        None,
        &[("10.0.0.21:8443", &addresses[0]), ("10.0.0.22:8443", &addresses[1])],
    );
    for (url, expected) in [
        ("https://mail.example.org/", "mail mail.example.org"),
        ("https://www.example.org/", "site www.example.org"),
        // An address is no server name.
        ("https://127.0.0.1/", "site 127.0.0.1"),
    ] {
        assert_eq!(sni.fetch("tls", url, &[]).body, expected, "{url}");
    }
    sni.assert_page_was_followed("TLS that is not terminated");
}

#[test]
fn calls_of_grpc_of_all_kinds_pass_over_tls() {
    let _shared = shared_machine();
    let Some(certificates) = Certificates::create().filter(|_| has_curl()) else { return };
    let Some(program) = go_program() else { return };
    let servers = [GoServer::start(program, "grpc-server"), GoServer::start(program, "grpc-server")];
    let addresses = servers.each_ref().map(|server| server.authority(0));
    let grpc = Deployment::start(
        "grpc",
        Some(&certificates),
        &[("10.0.0.31:9000", &addresses[0]), ("10.0.0.32:9000", &addresses[1])],
    );
    let authority = grpc.authority("https");
    let text = run_go(program, &["grpc-client", &authority, "tls"]);
    assert_eq!(text, "unary\nstatus\ndownload 100\nupload 2000000\nchat\ncancelled\n");
    let other = grpc.fetch("https", "https://localhost/", &[]);
    assert_eq!((other.status, &*other.body), (404, "only gRPC here\n"));
    grpc.assert_page_was_followed("gRPC");
}

#[test]
fn blue_and_green_are_switched_while_sessions_finish_and_rolled_back() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let servers = ["blue", "green"].map(echoing_server);
    let release = Deployment::start(
        "blue-green",
        None,
        &[("10.0.0.11:8080", &servers[0].authority), ("10.0.0.12:8080", &servers[1].authority)],
    );
    let get = |cookie: &str| {
        let fetched = release.fetch("http", "http://app.example.org/", &["-b", cookie]);
        assert_eq!(fetched.status, 200, "{}", fetched.head);
        let server = fetched.body.lines().next().unwrap_or_default().to_owned();
        (server, fetched.cookie())
    };
    let new_clients = || -> Vec<String> { (0..10).map(|_| get("").0).collect() };
    assert!(new_clients().iter().all(|server| server == "blue"));
    let (_, old_session) = get("");
    release.operate("server app/green weight 1");
    release.operate("server app/blue weight 0");
    assert!(new_clients().iter().all(|server| server == "green"));
    assert_eq!(get(&old_session).0, "blue", "a session finishes where it began");
    // Back before blue is off: nothing has happened to its sessions, and those of green finish there.
    let (_, new_session) = get("");
    release.operate("server app/blue ready");
    release.operate("server app/blue weight default");
    release.operate("server app/green weight default");
    assert_eq!(
        (get("").0, get(&old_session).0, get(&new_session).0),
        ("blue".into(), "blue".into(), "green".into())
    );
    // Again, to the end.
    release.operate("server app/green weight 1");
    release.operate("server app/blue weight 0");
    release.operate("server app/blue maint");
    let (server, moved_session) = get(&old_session);
    assert_eq!((&*server, &*get(&moved_session).0), ("green", "green"));
    assert!(new_clients().iter().all(|server| server == "green"));
    release.operate("reload");
    assert_eq!(get("").0, "green", "it stays over a reload");
    // And back, although blue was off.
    release.operate("server app/blue ready");
    release.operate("server app/blue weight default");
    release.operate("server app/green weight default");
    assert!(new_clients().iter().all(|server| server == "blue"));
    assert!(release.operate("show servers").contains("app/green"));
    release.assert_page_was_followed("Blue and green");
}

#[test]
fn claims_of_a_client_certificate_reach_the_server_and_no_copies_of_them() {
    let _shared = shared_machine();
    let Some(certificates) = Certificates::create().filter(|_| has_curl()) else { return };
    if !is_installed("nginx", &["-v"]) {
        return;
    }
    let [ca, leaf, key] = ["ca.pem", "leaf.pem", "leaf.key"].map(|name| certificates.file(name));
    // nginx requires a certificate of the proxy, and responds with the fields that it got.
    let nginx = Nginx::start_with(
        "ssl",
        &format!(
            "ssl_certificate {leaf}; ssl_certificate_key {key}; ssl_client_certificate {ca}; ssl_verify_client on;\n\
             location /claims {{ return 200 \"$http_x_client_subject|$http_x_client_san|$http_x_client_fingerprint|$ssl_client_s_dn\"; }}"
        ),
    );
    let mutual =
        Deployment::start("mutual-tls", Some(&certificates), &[("10.0.0.51:8443", &nginx.authority)]);
    let own = ["--cert", &*leaf, "--key", &*key];
    let spoofed =
        ["-H", "X-Client-Subject: CN=root", "-H", "X_Client_Subject: CN=root", "-H", "X-Client-San: a"];
    const CLAIMS: &str = "https://localhost/claims";
    let plain = mutual.fetch("https", CLAIMS, &own);
    assert_eq!(plain.status, 200, "{}{}", plain.head, plain.body);
    let parts: Vec<&str> = plain.body.split('|').collect();
    assert_eq!(
        (parts[0], parts[1], parts[3]),
        ("CN=localhost", "DNS:localhost,IP:127.0.0.1", "CN=localhost")
    );
    assert!(parts[2].len() >= 64, "{parts:?}");
    let with_copies = mutual.fetch("https", CLAIMS, &[&own[..], &spoofed].concat());
    assert_eq!(with_copies.body, plain.body, "copies of a client are removed");
    // Without a certificate there is no connection.
    assert_ne!(mutual.fetch("https", CLAIMS, &[]).code, 0);
    mutual.assert_page_was_followed("Mutual TLS");
}

#[test]
fn streams_may_pause_and_a_site_beside_them_does_not() {
    let _shared = shared_machine();
    if !has_curl() {
        return;
    }
    let Some(live) = start_live_server() else { return };
    let site = echoing_server("site");
    let streams = Deployment::start(
        "streams",
        None,
        &[("10.0.0.41:8080", &live.authority), ("10.0.0.42:8080", &site.authority)],
    );
    assert!(streams.fetch("http", "http://a.example/", &[]).body.starts_with("site"));
    let script = example("streams").with_file_name("try-upgrades.sh");
    let config = streams.proxy.file("weir.toml");
    let authority = streams.authority("http");
    let output = Command::new("sh")
        .arg(script)
        .env("WEIR", WEIR)
        .env("CONFIG", config)
        .env("SOCKET", streams._files.path().join("weir.sock"))
        .env("WS", format!("ws://{authority}/chat"))
        .env("EVENTS", format!("http://{authority}/events"))
        .env("CONNECTIONS", "4")
        .output()
        .unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // The last process of the script is ours.
    let last = text.lines().rev().find_map(|line| line.strip_prefix("upgrade 3: process "));
    let last = last.and_then(|id| id.parse::<i32>().ok());
    let ended = last.map(|id| send_signal(id, rustix::process::Signal::TERM));
    assert!(ended.is_some(), "{text}");
    assert!(output.status.success() && text.matches(": no message lost").count() == 2, "{text}");
    streams.commands.borrow_mut().push("weir ctl reload".to_owned());
    streams.assert_page_was_followed("WebSockets and event streams");
}
