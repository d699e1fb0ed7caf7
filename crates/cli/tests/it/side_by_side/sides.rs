//! One of two programs with its config, in front of origins that both share, and the requests of curl to it.

#![expect(clippy::disallowed_types, reason = "threads of the test share what they have seen")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Mutex;

use crate::support::peers::{ScriptPeer, ScriptedServer};
use crate::support::proxies::{ComparedProxy, free_port, is_installed};
use crate::support::tls_peers::Certificates;
use crate::support::{pause_ms, run_weir};

/// Networks of the examples.
const OFFICE: &str = "10.0.0.0/8\n127.0.0.1/32\n";
/// A user with the password `secret`.
const USERS: &str = "ann:$2b$04$cs0U9g6q03b4/.l0hLcXx.p4FfnaGyG/5dFJkziqk4TQZoU.CyG5W\n";
/// A file that others include.
const SITE: &str = "[[route]]\nhost = 'a.example'\ndeny = true\n";
const NGINX_SITE: &str = "server { listen 80 default_server; location / { proxy_pass http://10.0.0.11:8080; } }\n\
                          server { listen 80; server_name a.example; return 403; }\n";
/// Requests of origins for `/copied/…`: their origin, method, target and length.
pub(super) static COPIED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Time that a slow response takes.
const SLOW_MS: u64 = 1_200;

/// Length of a long response.
pub(super) const LONG_BYTES: usize = 300_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Weir,
    Haproxy,
    Nginx,
    Caddy,
}

impl Program {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Weir => "weir",
            Self::Haproxy => "HAProxy",
            Self::Nginx => "nginx",
            Self::Caddy => "Caddy",
        }
    }

    /// Returns the name of its config in the examples.
    pub(super) fn config_file(self) -> &'static str {
        match self {
            Self::Weir => "weir.toml",
            Self::Haproxy => "haproxy.cfg",
            Self::Nginx => "nginx.conf",
            Self::Caddy => "Caddyfile",
        }
    }

    /// Returns whether it can be started here.
    pub(super) fn is_installed(self) -> bool {
        match self {
            Self::Weir => true,
            Self::Haproxy => is_installed("haproxy", &["-v"]),
            Self::Nginx => is_installed("nginx", &["-v"]),
            // No test needs it: its pairs are compared by its documentation.
            Self::Caddy => false,
        }
    }
}

/// Servers of all configs: three for HTTP, two for TLS, and an address where none listens.
pub(super) struct Origins {
    plain: Vec<ScriptedServer>,
    tls: Vec<ComparedProxy>,
    dead_port: u16,
}

impl Origins {
    pub(super) fn start() -> Self {
        let plain = ["a", "b", "c"].map(|name| ScriptedServer::start(move |peer| serve(peer, name)));
        let tls = ["d", "e"].map(|name| {
            ComparedProxy::weir(&format!(
                "threads = 1\n[listener.tls]\nbind = '127.0.0.1:0'\ntls = {{ self-signed = true }}\n\
                 [[route]]\nset-response-header = {{ x-origin = '{name}' }}\nreturn = {{ body = '{name}' }}\n"
            ))
        });
        Self { plain: plain.into(), tls: tls.into(), dead_port: free_port() }
    }

    /// Replaces the addresses of the examples.
    fn replace_addresses(&self, config: &str) -> String {
        let mut config = config.replace("10.0.0.99:8080", &format!("127.0.0.1:{}", self.dead_port));
        for (index, server) in self.plain.iter().enumerate() {
            config = config.replace(&format!("10.0.0.1{}:8080", index + 1), &server.authority);
        }
        for (index, server) in self.tls.iter().enumerate() {
            let authority = server.authority.trim_start_matches("https://");
            config = config.replace(&format!("10.0.0.2{}:8443", index + 1), authority);
        }
        config
    }
}

/// Responds to requests on a connection with their heads. The path says more: `/…/slow` responds later,
/// `/…/status/NNN` with that status, `/fixed…` with the
/// same content, `/style…` with a type and a tag. `Upgrade` begins a tunnel that returns all bytes.
fn serve(peer: &mut ScriptPeer, name: &'static str) -> io::Result<()> {
    while let Some(head) = peer.request()? {
        if head.to_ascii_lowercase().contains("upgrade: websocket") {
            // The response to the key of RFC 6455 §1.3, which the step sends.
            let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
            let fields = format!("Upgrade: websocket\r\nConnection: Upgrade\r\n{accept}");
            peer.send(
                format!("HTTP/1.1 101 Switching Protocols\r\n{fields}\r\nX-Origin: {name}\r\n\r\n")
                    .as_bytes(),
            )?;
            let mut bytes = [0; 100];
            let length = peer.stream.read(&mut bytes)?;
            return peer.send(&bytes[..length]);
        }
        let length = fields_of(&head).get("content-length").and_then(|length| length.parse().ok());
        peer.skip_content(length.unwrap_or(0))?;
        if head.contains(" /copied/") {
            let line = head.split(" HTTP/").next().unwrap_or_default();
            COPIED.lock().unwrap().push(format!("{name} {line} {}", length.unwrap_or(0)));
        }
        let path = head.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
        if path.ends_with("/slow") {
            pause_ms(SLOW_MS);
        }
        let status = path.split("/status/").nth(1).unwrap_or("200").to_owned();
        // A server of which only some requests fail.
        let status = if path == "/flaky" && name == "b" { "503".to_owned() } else { status };
        let long = "x".repeat(if path.starts_with("/big") { LONG_BYTES } else { 0 });
        // A length that does not depend on the proxy.
        let body = match path.as_str() {
            path if path.starts_with("/fixed") => "fixed",
            path if path.starts_with("/big") => &long,
            _ => &head,
        };
        let fields = format!("X-Origin: {name}\r\nX-Powered-By: tests\r\nServer: origin");
        let representation = "\r\nContent-Type: text/css\r\nETag: \"1\"";
        let fields = fields + if path.starts_with("/style") { representation } else { "" };
        let length = body.len();
        let response =
            format!("HTTP/1.1 {status} Text\r\n{fields}\r\nContent-Length: {length}\r\n\r\n{body}");
        peer.send(response.as_bytes())?;
    }
    Ok(())
}

/// A running program.
pub(super) struct Side {
    pub(super) program: Program,
    proxy: ComparedProxy,
    /// Address of the origin `b`.
    pub(super) second_origin: String,
}

impl Side {
    /// Starts a program with a config of the examples, whose addresses and files are replaced.
    pub(super) fn start(
        program: Program,
        config: &str,
        origins: &Origins,
        certificates: &Certificates,
    ) -> Self {
        let config = origins.replace_addresses(config);
        let config = config
            .replace("/etc/ssl/site.pem", &certificates.file("both.pem"))
            .replace("/etc/ssl/site.crt", &certificates.file("leaf.pem"))
            .replace("/etc/ssl/site.key", &certificates.file("leaf.key"))
            .replace("/etc/weir/", "{directory}/")
            .replace("/etc/haproxy/", "{directory}/")
            .replace("/etc/nginx/", "{directory}/")
            .replace("/var/log/", "{directory}/")
            .replace("/var/cache/", "{directory}/")
            .replace("/run/", "{directory}/");
        let config = replace_ports(program, &config);
        let long = "long ".repeat(500);
        let nginx_site =
            origins.replace_addresses(NGINX_SITE).replace("listen 80", "listen 127.0.0.1:{port}");
        let mut files = vec![
            ("long.txt", &*long),
            ("office.lst", OFFICE),
            ("networks.txt", OFFICE),
            ("users", USERS),
            ("keys.txt", "secret-1\n"),
            ("hosts.map", "a.example.org gold\n"),
            ("sorry.html", "<p>sorry\n"),
            ("sorry.json", "{}\n"),
            ("sorry.http", "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\n\r\n<p>sorry\n"),
            ("robots.txt", "User-agent: *\n"),
            ("sticky.key", "a key of the tests, long enough\n"),
        ];
        if config.contains("sites-") {
            files.extend([("sites-a.toml", SITE), ("sites-a.conf", &*nginx_site)]);
        }
        let proxy = ComparedProxy::start_with_files(program.title(), &config, &files);
        Self { program, proxy, second_origin: origins.plain[1].authority.clone() }
    }

    /// Returns the base of the URLs of a listener: `web`, `tls` or `admin`.
    fn base(&self, listener: &str) -> String {
        match listener {
            "tls" => format!("https://site.example.org:{}", self.proxy.port("port2")),
            "admin" => format!("http://127.0.0.1:{}", self.proxy.port("port3")),
            _ => format!("http://127.0.0.1:{}", self.proxy.port("port")),
        }
    }

    /// Sends one request: the listener if it is not `web`, a path, and arguments of curl, separated by spaces, in which
    /// `~` is a space. Returns the summary, then the line and the fields of the request as the origin got it (`>`), and
    /// of the response (`<`); of these fields only the named ones.
    pub(super) fn request(&self, request: &str, fields: &[&str]) -> Vec<String> {
        let (listener, rest) = match request.split_once(':') {
            Some((listener, rest)) if ["tls", "admin", "sni"].contains(&listener) => (listener, rest),
            _ => ("web", request),
        };
        let mut words = rest
            .split(' ')
            .map(|word| word.replace('~', " ").replace("{long}", &self.proxy.file("long.txt")));
        let path = words.next().unwrap();
        let mut command = Command::new("curl");
        command.args(["-q", "-s", "-k", "-i", "--path-as-is", "--max-time", "20", "--connect-timeout", "5"]);
        match listener {
            // The host of the URL is the server name.
            "sni" => {
                command.arg("--connect-to").arg(format!("::127.0.0.1:{}", self.proxy.port("port2")));
                command.arg(format!("https://{path}/"));
            }
            _ => {
                command.arg("--connect-to").arg("site.example.org::127.0.0.1:");
                command.arg(self.base(listener) + &path);
            }
        }
        let output = command.args(words).output().unwrap();
        self.describe(&String::from_utf8_lossy(&output.stdout), fields)
    }

    fn describe(&self, response: &str, fields: &[&str]) -> Vec<String> {
        let mut response = response;
        while let Some((_, rest)) = response.split_once("\r\n\r\n").filter(|(head, _)| head.contains(" 100 "))
        {
            response = rest;
        }
        let Some((head, body)) = response.split_once("\r\n\r\n") else { return vec!["closed".to_owned()] };
        let status = head.split([' ', '\r']).nth(1).unwrap_or_default();
        let response_fields = fields_of(head);
        let mut summary = status.to_owned();
        if let Some(origin) = response_fields.get("x-origin") {
            summary += &format!(" {origin}");
        }
        if let Some(location) = response_fields.get("location") {
            // weir names its port where it is not that of the scheme.
            let location = location.replace(&format!(":{}", self.proxy.port("port2")), "");
            summary += &format!(" {}", location.replace(&format!(":{}", self.proxy.port("port")), ""));
        }
        let is_forwarded = response_fields.contains_key("x-origin") && body.contains(" HTTP/1.");
        let mut lines = vec![summary];
        if is_forwarded {
            lines.push(body.lines().next().unwrap_or_default().replace("HTTP/1.0", "HTTP/1.1"));
        } else if status == "200" || fields.contains(&"body") {
            lines.push(body.to_owned());
        }
        for (sign, found) in [(">", fields_of(if is_forwarded { body } else { "" })), ("<", response_fields)]
        {
            for name in fields {
                lines.extend(found.get(*name).map(|value| format!("{sign} {name}: {value}")));
            }
        }
        lines
    }

    /// Changes an entry of the map `tenant`, the file `hosts.map`, in the running program: `add`, `set` or `del`.
    pub(super) fn change_entry(&self, change: &str, key: &str, value: &str) {
        if self.program == Program::Weir {
            let socket = self.proxy.file("weir.sock");
            let (command, value) = if change == "del" { ("delete", None) } else { ("set", Some(value)) };
            let mut arguments = vec!["ctl", "--socket", &*socket, "map", command, "tenant", key];
            arguments.extend(value);
            let output = run_weir(&arguments);
            assert_eq!(output.code, 0, "{output:?}");
            return;
        }
        let value = if change == "del" { "" } else { value };
        let map = self.proxy.file("hosts.map");
        assert_eq!(self.run_in_haproxy(&format!("{change} map {map} {key} {value}")), "", "{change}");
    }

    /// Runs a command of `weir ctl`, or those of HAProxy's runtime API.
    pub(super) fn operate(&self, weir_command: &str, haproxy_commands: &[&str]) {
        if self.program == Program::Weir {
            let socket = self.proxy.file("weir.sock");
            let mut arguments = vec!["ctl", "--socket", &*socket];
            arguments.extend(weir_command.split(' '));
            let output = run_weir(&arguments);
            assert_eq!(output.code, 0, "{output:?}");
            return;
        }
        for command in haproxy_commands {
            let response = self.run_in_haproxy(command);
            assert!(response.is_empty() || response == "New server registered.", "{command}: {response}");
        }
    }

    fn run_in_haproxy(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.proxy.file("haproxy.sock")).unwrap();
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.trim().to_owned()
    }

    /// Returns the address of the first listener.
    pub(super) fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.proxy.port("port"))
    }

    /// Returns a file of its directory.
    pub(super) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.proxy.file(name)).unwrap_or_default()
    }

    /// Returns the origins that respond to so many requests, with their counts: `a 2, b 2`.
    pub(super) fn origins(&self, request: &str, count: usize) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..count {
            *counts.entry(self.request(request, &[])[0].clone()).or_default() += 1;
        }
        let texts: Vec<String> =
            counts.iter().map(|(summary, count)| format!("{count} x {summary}")).collect();
        texts.join(", ")
    }

    /// Connects to the first listener.
    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.proxy.port("port"))).unwrap();
        stream.set_read_timeout(Some(crate::support::EVENT_TIMEOUT)).unwrap();
        stream
    }

    /// Sends bytes on a new connection, and then others after a response head. Returns the head, and the line after it.
    pub(super) fn tunnel(&self, request: &str, line: &str) -> (String, String) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
        stream.write_all(line.as_bytes()).unwrap();
        let mut back = String::new();
        reader.read_line(&mut back).unwrap();
        (head, back)
    }
}

/// Returns the fields of a head by name in lower case; several ones of a name are joined.
fn fields_of(head: &str) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        fields
            .entry(name.to_ascii_lowercase())
            .and_modify(|all| *all += &format!(", {value}"))
            .or_insert_with(|| value.to_owned());
    }
    fields
}

/// Replaces the ports of the examples, and adds what a test needs: one thread, so that servers take turns, and the
/// frame of an nginx.conf.
fn replace_ports(program: Program, config: &str) -> String {
    match program {
        Program::Weir => {
            let config = config
                .replace("\":80\"", "\"127.0.0.1:{port}\"")
                .replace("\":443\"", "\"127.0.0.1:{port2}\"")
                .replace("127.0.0.1:8404", "127.0.0.1:{port3}");
            format!("threads = 1\n{config}")
        }
        Program::Haproxy => {
            let config = config
                .replace("bind :8404", "bind 127.0.0.1:{port3}")
                .replace("bind :80", "bind 127.0.0.1:{port}")
                .replace("bind :443", "bind 127.0.0.1:{port2}");
            let socket = "stats socket {directory}/haproxy.sock mode 600 level admin";
            format!("global\n    nbthread 1\n    noreuseport\n    {socket}\n{config}")
        }
        Program::Nginx | Program::Caddy => {
            let config = config
                .replace("listen 80", "listen 127.0.0.1:{port}")
                .replace("listen 443", "listen 127.0.0.1:{port2}");
            let log = if config.contains("access_log ") { "" } else { "access_log off;\n" };
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .iter()
                .map(|name| format!("{name}_temp_path {{directory}}/{name};\n"))
                .collect();
            format!(
                "worker_processes 1;\npid {{directory}}/pid;\nevents {{ worker_connections 256; }}\n\
                 http {{\n{log}{temporary}{config}\n}}\n"
            )
        }
    }
}
