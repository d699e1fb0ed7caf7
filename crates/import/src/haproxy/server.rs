//! `bind` and `server` of HAProxy with their parameters.

use std::rc::Rc;

use super::lexer::{Line, expand_address};
use super::settings::milliseconds;
use crate::document::{Origin, Value};
use crate::draft::{Draft, time_value};
use crate::left::Kind;

/// One `bind`.
#[derive(Clone, Debug)]
pub(super) struct Bind {
    pub(super) addresses: Vec<String>,
    pub(super) ports: Vec<u16>,
    /// Keys of `tls`; `None`: plain connections.
    pub(super) tls: Option<Vec<(String, Value)>>,
    pub(super) only_http1: bool,
    pub(super) accepts_proxy: bool,
    pub(super) unix_mode: Option<String>,
    /// A parameter that may restrict access, and that weir does not know: all requests are refused.
    pub(super) refused: Option<Rc<Origin>>,
    pub(super) origin: Rc<Origin>,
}

impl Bind {
    /// Parses the words behind `bind`.
    pub(super) fn parse(words: &[String], origin: &Rc<Origin>, draft: &mut Draft<'_>) -> Self {
        let mut bind = Self {
            addresses: Vec::new(),
            ports: Vec::new(),
            tls: None,
            only_http1: false,
            accepts_proxy: false,
            unix_mode: None,
            refused: None,
            origin: Rc::clone(origin),
        };
        let text = expand_address(words.first().map_or("", String::as_str), draft.surroundings);
        for address in text.split(',') {
            bind.add_address(address.trim(), draft);
        }
        let mut certificates = Vec::new();
        let (mut has_tls, mut requires_client) = (false, false);
        let mut entries: Vec<(String, Value)> = Vec::new();
        let mut words = words.get(1..).unwrap_or_default().iter().map(String::as_str);
        while let Some(word) = words.next() {
            match word {
                "ssl" => has_tls = true,
                "crt" => certificates.push(words.next().unwrap_or_default().to_owned()),
                "accept-proxy" => bind.accepts_proxy = true,
                "mode" => bind.unix_mode = words.next().map(str::to_owned),
                "alpn" => {
                    bind.only_http1 =
                        words.next().is_some_and(|list| !list.split(',').any(|name| name == "h2"))
                }
                "ca-file" => {
                    let file = words.next().unwrap_or_default();
                    // Without the file weir does not start: a listener that lets everybody in is no replacement.
                    draft.existing_file(file, origin);
                    entries.push(("client-ca".to_owned(), Value::text(file)));
                }
                "verify" => match words.next() {
                    Some("optional") => {
                        entries.push(("client-certificate".to_owned(), Value::text("optional")))
                    }
                    Some("required") => requires_client = true,
                    Some("none") => entries.retain(|(key, _)| key != "client-ca"),
                    other => {
                        bind.refused = Some(Rc::clone(origin));
                        let text = format!("verify {}: all requests get 501", other.unwrap_or_default());
                        draft.leave(Kind::NotSupported, origin, text);
                    }
                },
                "ssl-min-ver" => entries.extend(min_version(words.next(), origin, draft)),
                other => bind.leave_parameter(other, &mut words, draft),
            }
        }
        if has_tls {
            add_certificates(certificates, &mut entries, origin, draft);
            bind.check_clients(requires_client, &mut entries, draft);
            bind.tls = Some(entries);
        }
        bind
    }

    /// Keeps the keys for certificates of clients only together with a policy, and refuses requests without one.
    fn check_clients(
        &mut self,
        requires_client: bool,
        entries: &mut Vec<(String, Value)>,
        draft: &mut Draft<'_>,
    ) {
        // Without its authorities there is no policy for certificates of clients.
        if !entries.iter().any(|(key, _)| key == "client-ca") {
            entries.retain(|(key, _)| key != "client-certificate");
            if requires_client {
                self.refused = Some(Rc::clone(&self.origin));
                draft.leave(
                    Kind::NotSupported,
                    &self.origin,
                    "clients need a certificate, and there is no ca-file: all requests get 501",
                );
            }
        } else if !requires_client && !entries.iter().any(|(key, _)| key == "client-certificate") {
            entries.retain(|(key, _)| key != "client-ca");
        }
    }

    fn leave_parameter<'w>(
        &mut self,
        word: &str,
        words: &mut impl Iterator<Item = &'w str>,
        draft: &mut Draft<'_>,
    ) {
        const WITHOUT_VALUE: &str = "transparent defer-accept tfo v4v6 v6only no-sslv3 no-tlsv10 no-tlsv11 no-tls-tickets \
            prefer-client-ciphers allow-0rtt strict-sni force-tlsv12 force-tlsv13 no-ca-names \
            generate-certificates";
        const SILENT: &str = "name process thread id ciphers ciphersuites curves ecdhe npn no-sslv3 no-tlsv10 no-tlsv11 \
            defer-accept tfo v4v6 v6only prefer-client-ciphers";
        /// Parameters that let nobody out whom weir lets in.
        const OPEN: &str = "transparent no-tls-tickets allow-0rtt no-ca-names generate-certificates backlog maxconn mss nice \
            tcp-ut ssl-max-ver ca-sign-file ca-sign-pass tls-ticket-keys level";
        if !is_one_of(WITHOUT_VALUE, word) {
            words.next();
        }
        let (kind, reason) = match (is_one_of(SILENT, word), is_one_of(OPEN, word)) {
            (true, _) => {
                (Kind::NoEffect, format!("'{word}' of a bind: weir's TLS and sockets are set by itself"))
            }
            (_, true) => (Kind::NotSupported, format!("'{word}' of a bind")),
            _ => {
                self.refused = Some(Rc::clone(&self.origin));
                (
                    Kind::NotSupported,
                    format!("'{word}' of a bind, which may restrict access: all requests get 501"),
                )
            }
        };
        draft.leave(kind, &self.origin, reason);
    }

    fn add_address(&mut self, text: &str, draft: &mut Draft<'_>) {
        let bare =
            ["ipv4@", "ipv6@", "tcp4@", "tcp6@", "tcp@"].iter().find_map(|prefix| text.strip_prefix(prefix));
        let text = bare.unwrap_or(text);
        let path = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text));
        if let Some(path) = path {
            return self.addresses.push(format!("unix:{path}"));
        }
        let parsed = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let host = match parsed {
            Some(("" | "*" | "0.0.0.0", _)) => Some("0.0.0.0".to_owned()),
            Some(("::" | "[::]", _)) => Some("[::]".to_owned()),
            Some(("localhost", _)) => Some("127.0.0.1".to_owned()),
            Some((host, _)) if host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() => {
                let bare = host.trim_matches(['[', ']']);
                Some(if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() })
            }
            _ => None,
        };
        match (host, parsed) {
            (Some(host), Some((_, port))) => {
                self.addresses.push(format!("{host}:{port}"));
                self.ports.push(port);
            }
            _ => draft.leave(
                Kind::NotSupported,
                &self.origin,
                format!("a listener has an IP address and a port, or a unix socket, not '{text}'"),
            ),
        }
    }
}

fn is_one_of(list: &str, word: &str) -> bool {
    list.split(' ').any(|other| other == word)
}

/// Returns the key for the oldest version of TLS.
fn min_version(name: Option<&str>, origin: &Origin, draft: &mut Draft<'_>) -> Option<(String, Value)> {
    if name == Some("TLSv1.3") {
        return Some(("min-version".to_owned(), Value::text("1.3")));
    }
    if name != Some("TLSv1.2") {
        draft.leave(Kind::NoEffect, origin, "weir has TLS 1.2 and 1.3 only");
    }
    None
}

/// Adds the certificates that exist here.
pub(super) fn add_certificates(
    files: Vec<String>,
    entries: &mut Vec<(String, Value)>,
    origin: &Rc<Origin>,
    draft: &mut Draft<'_>,
) {
    let (mut certificates, mut directory) = (Vec::new(), None);
    for file in files {
        if !draft.surroundings.exists(&file) {
            let text =
                format!("the certificate {file}, which is missing here: a self-signed one is in its place");
            draft.leave(Kind::Needs, origin, text);
        } else if draft.surroundings.exists(&format!("{}/.", file.trim_end_matches('/'))) {
            directory = Some(file);
        } else {
            certificates.push(Value::text(file));
        }
    }
    entries.extend(directory.map(|directory| ("directory".to_owned(), Value::text(directory))));
    if !certificates.is_empty() {
        entries.push(("certificates".to_owned(), Value::List(certificates)));
    }
    if !entries.iter().any(|(key, _)| key == "certificates" || key == "directory") {
        entries.push(("self-signed".to_owned(), Value::Bool(true)));
    }
}

/// One `server` with the settings that weir has for a whole pool.
#[derive(Clone, Debug)]
pub(super) struct ServerLine {
    /// Keys of the server itself.
    pub(super) entries: Vec<(String, Value)>,
    /// Keys of `check`, if it is checked.
    pub(super) check: Option<Vec<(String, Value)>>,
    /// Keys of `tls`, if it has TLS.
    pub(super) tls: Option<Vec<(String, Value)>>,
    /// Other keys of the pool.
    pub(super) pool: Vec<(String, Value)>,
    pub(super) resolvers: Option<String>,
    pub(super) names_max: Option<u64>,
    pub(super) has_cookie: bool,
    pub(super) has_maxconn: bool,
    pub(super) origin: Rc<Origin>,
}

impl ServerLine {
    /// Parses a line; `None`: it has no address that weir can use.
    pub(super) fn parse(
        line: &Line,
        defaults: &[(Vec<String>, Rc<Origin>)],
        draft: &mut Draft<'_>,
    ) -> Option<Self> {
        let is_template = line.word(0) == "server-template";
        let origin = &line.origin;
        let (name, address) = (line.word(1), line.word(if is_template { 3 } else { 2 }));
        let address = expand_address(address, draft.surroundings);
        let mut server = Self {
            entries: Vec::new(),
            check: None,
            tls: None,
            pool: Vec::new(),
            resolvers: None,
            names_max: None,
            has_cookie: false,
            has_maxconn: false,
            origin: Rc::clone(origin),
        };
        let Some((key, address)) = server_address(&address) else {
            draft.leave(
                Kind::Needs,
                origin,
                format!("an address with a port: '{address}' has none that weir can use"),
            );
            return None;
        };
        if key == "address"
            && !address.starts_with("unix:")
            && address.parse::<std::net::SocketAddr>().is_ok()
        {
            server.entries.push(("name".to_owned(), Value::text(name)));
        }
        server.entries.push((key.to_owned(), Value::text(address)));
        if is_template {
            // The number of servers, or a range.
            let count = line.word(2).rsplit('-').next().and_then(|count| count.parse().ok());
            server.names_max = count.map(|count: u64| count.clamp(1, 256));
        }
        for (words, _) in defaults {
            server.apply(words, draft);
        }
        server.apply(line.rest(if is_template { 4 } else { 3 }), draft);
        Some(server)
    }

    fn apply(&mut self, words: &[String], draft: &mut Draft<'_>) {
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            if matches!(
                word,
                "check"
                    | "no-check"
                    | "backup"
                    | "ssl"
                    | "disabled"
                    | "send-proxy"
                    | "send-proxy-v2"
                    | "check-ssl"
            ) {
                self.apply_flag(word, draft);
                continue;
            }
            let value = words.peek().copied().unwrap_or_default();
            let is_known = self.apply_value(word, value, draft) || self.apply_check(word, value);
            if is_known {
                words.next();
                continue;
            }
            const WITHOUT_VALUE: &str = "enabled no-backup no-ssl check-send-proxy tfo no-ssl-reuse no-tls-tickets stick non-stick \
                send-proxy-v2-ssl";
            const SILENT: &str = "enabled no-backup no-ssl stick init-addr id track-init resolve-opts pool-max-conn \
                pool-purge-delay minconn tfo no-ssl-reuse";
            if !is_one_of(WITHOUT_VALUE, word) {
                words.next();
            }
            let (kind, reason) = match is_one_of(SILENT, word) {
                true => (Kind::NoEffect, format!("'{word}' of a server")),
                false => (Kind::NotSupported, format!("'{word}' of a server")),
            };
            draft.leave(kind, &self.origin, reason);
        }
    }

    fn apply_flag(&mut self, word: &str, draft: &mut Draft<'_>) {
        match word {
            "check" => drop(self.check.get_or_insert_default()),
            "no-check" => self.check = None,
            "backup" => self.set("backup", Value::Bool(true)),
            "ssl" => drop(self.tls.get_or_insert_default()),
            "check-ssl" => self.set_check("tls", Value::Bool(true)),
            "send-proxy" => self.pool.push(("send-proxy-protocol".to_owned(), Value::text("v1"))),
            "send-proxy-v2" => self.pool.push(("send-proxy-protocol".to_owned(), Value::text("v2"))),
            _ => {
                self.set("weight", Value::Number(0));
                draft.leave(
                    Kind::Differs,
                    &self.origin,
                    "a disabled server has the weight 0: weir ctl server changes it",
                );
            }
        }
    }

    /// Applies a parameter with a value. Returns whether it is known.
    fn apply_value(&mut self, word: &str, value: &str, draft: &mut Draft<'_>) -> bool {
        let number = value.parse::<u64>().ok();
        match (word, number) {
            ("weight", Some(number)) => self.set("weight", Value::Number(number.min(256))),
            ("maxconn", Some(0)) => {}
            ("maxconn", Some(number)) => {
                self.has_maxconn = true;
                self.set("maxconn", Value::Number(number.min(1_000_000)));
            }
            ("cookie", _) => self.has_cookie = true,
            ("resolvers", _) => self.resolvers = Some(value.to_owned()),
            ("resolve-prefer", _) if value == "ipv4" || value == "ipv6" => {
                self.pool.push(("resolve.prefer".to_owned(), Value::text(value)));
            }
            ("slowstart", _) => match milliseconds(value) {
                Some(ms) => self.pool.push(("slow-start".to_owned(), time_value(ms))),
                None => return false,
            },
            ("alpn" | "proto" | "check-alpn", _) => match (word, value) {
                ("proto" | "alpn", "h2") => self.pool.push(("http".to_owned(), Value::text("2"))),
                ("alpn", list) if list.contains("h2") => {
                    self.pool.push(("http".to_owned(), Value::text("auto")))
                }
                _ => {}
            },
            ("verify", _) => {
                if value == "none" {
                    self.tls.get_or_insert_default().push(("verify".to_owned(), Value::Bool(false)));
                }
            }
            ("ca-file", _) => {
                let origin = Rc::clone(&self.origin);
                if value != "@system-ca" && draft.existing_file(value, &origin) {
                    self.tls.get_or_insert_default().push(("ca".to_owned(), Value::text(value)));
                }
            }
            ("crt", _) => {
                let origin = Rc::clone(&self.origin);
                if draft.existing_file(value, &origin) {
                    self.tls.get_or_insert_default().push(("certificate".to_owned(), Value::text(value)));
                }
            }
            ("sni" | "verifyhost" | "check-sni", _) => {
                let name = value.trim_start_matches("str(").trim_end_matches(')');
                if crate::draft::is_host(name) {
                    let tls = self.tls.get_or_insert_default();
                    tls.retain(|(key, _)| key != "server-name");
                    tls.push(("server-name".to_owned(), Value::text(name)));
                } else {
                    draft.leave(
                        Kind::NotSupported,
                        &self.origin,
                        "the name of a server's certificate is a fixed one",
                    );
                }
            }
            _ => return false,
        }
        true
    }

    /// Applies a parameter of checks. Returns whether it is known.
    fn apply_check(&mut self, word: &str, value: &str) -> bool {
        let time = milliseconds(value).map(time_value);
        let number = value.parse::<u64>().ok().map(|number| Value::Number(number.clamp(1, 255)));
        let entry = match word {
            "inter" => time.map(|time| ("interval", time)),
            "fastinter" => time.map(|time| ("fast-interval", time)),
            "downinter" => time.map(|time| ("down-interval", time)),
            "rise" => number.map(|number| ("rise", number)),
            "fall" => number.map(|number| ("fall", number)),
            "port" => value.parse::<u16>().ok().map(|port| ("port", Value::Number(u64::from(port)))),
            _ => None,
        };
        // Settings of checks have no effect without `check`, which may follow.
        let Some((key, value)) = entry else { return false };
        self.pool.retain(|(other, _)| other.strip_prefix("check.") != Some(key));
        self.pool.push((format!("check.{key}"), value));
        true
    }

    fn set_check(&mut self, key: &str, value: Value) {
        self.pool.push((format!("check.{key}"), value));
    }

    fn set(&mut self, key: &str, value: Value) {
        self.entries.retain(|(other, _)| other != key);
        self.entries.push((key.to_owned(), value));
    }
}

/// Returns the key and the value of a server's address.
pub(crate) fn server_address(text: &str) -> Option<(&'static str, String)> {
    let bare =
        ["ipv4@", "ipv6@", "tcp@", "tcp4@", "tcp6@"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let text = bare.unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text)) {
        return Some(("address", format!("unix:{path}")));
    }
    if text.starts_with('_') && crate::draft::is_host(text) {
        return Some(("srv", text.to_owned()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| *port > 0 && is_number)?;
    let bare = host.trim_matches(['[', ']']);
    if let Ok(address) = bare.parse::<std::net::IpAddr>() {
        return Some(("address", std::net::SocketAddr::new(address, port).to_string()));
    }
    crate::draft::is_host(host).then(|| ("address", format!("{host}:{port}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers_are_those_of_weir() {
        let cases = [
            ("10.0.0.1:80", Some(("address", "10.0.0.1:80"))),
            ("[::1]:80", Some(("address", "[::1]:80"))),
            ("::1:80", Some(("address", "[::1]:80"))),
            ("app.internal:8080", Some(("address", "app.internal:8080"))),
            ("unix@/run/a.sock", Some(("address", "unix:/run/a.sock"))),
            ("_http._tcp.app", Some(("srv", "_http._tcp.app"))),
            ("10.0.0.1", None),
            ("10.0.0.1:+1", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(key, value)| (key, value.to_owned()));
            assert_eq!(server_address(text), expected, "{text}");
        }
    }
}
