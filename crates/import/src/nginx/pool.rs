//! Pools from `upstream` and `proxy_pass`.

use std::rc::Rc;

use super::scope::{Scope, Time, leave};
use super::settings::Common;
use super::variables::milliseconds;
use crate::directive::Directive;
use crate::document::{Origin, Section, Value};
use crate::draft::{Draft, is_host, time_value};
use crate::left::Kind;

/// A block `upstream`.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    pub(super) name: String,
    /// Keys of the pool, without those of its users.
    entries: Vec<(String, Value)>,
    servers: Vec<(Value, Rc<Origin>)>,
    origin: Rc<Origin>,
}

/// Destination of `proxy_pass`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Destination {
    pub(super) is_https: bool,
    pub(super) is_http2: bool,
    /// Host with its port, name of an upstream, or `unix:/path`.
    pub(super) authority: String,
    /// The part behind it, if there is one.
    pub(super) uri: Option<String>,
}

impl Destination {
    /// Parses an URL; `None`: it has variables, or another scheme.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (is_https, is_http2) = match scheme {
            "http" => (false, false),
            "https" => (true, false),
            "grpc" => (false, true),
            "grpcs" => (true, true),
            _ => return None,
        };
        if text.contains('$') {
            return None;
        }
        if let Some(path) = rest.strip_prefix("unix:") {
            let (path, uri) =
                path.split_once(':').map_or((path, None), |(path, uri)| (path, Some(uri.to_owned())));
            return Some(Self { is_https, is_http2, authority: format!("unix:{path}"), uri });
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let uri = (end < rest.len()).then(|| rest[end..].to_owned());
        Some(Self { is_https, is_http2, authority: rest[..end].to_owned(), uri })
    }

    /// Returns nginx's default for the field `Host`.
    pub(super) fn host(&self) -> &str {
        if self.authority.starts_with("unix:") { "localhost" } else { &self.authority }
    }
}

impl Upstream {
    /// Reads a block.
    pub(super) fn read(directive: &Directive, inner: &[Directive], draft: &mut Draft<'_>) -> Self {
        let mut upstream = Self {
            name: directive.argument(0).to_owned(),
            entries: vec![("balance".into(), Value::text("round-robin"))],
            servers: Vec::new(),
            origin: Rc::clone(&directive.origin),
        };
        let mut failures: Vec<(Option<u64>, Option<u64>)> = Vec::new();
        for directive in inner {
            match directive.name() {
                "server" => failures.extend(upstream.add_server(directive, draft)),
                name => upstream.apply(name, directive, draft),
            }
        }
        upstream.add_failures(&failures, draft);
        upstream
    }

    fn set(&mut self, key: &str, value: Value) {
        self.entries.retain(|(other, _)| other != key);
        self.entries.push((key.to_owned(), value));
    }

    fn set_hash(&mut self, key: &str) {
        self.set("balance", Value::text("consistent-hash"));
        // Without a limit of the load, as in nginx.
        self.set("hash", Value::table([("key", Value::text(key)), ("load-factor", Value::Number(100))]));
    }

    fn apply(&mut self, name: &str, directive: &Directive, draft: &mut Draft<'_>) {
        match (name, directive.argument(0)) {
            ("least_conn", _) => self.set("balance", Value::text("least-connections")),
            ("ip_hash", _) => self.set_hash("source"),
            ("random", _) => self.set("balance", Value::text("random-of-two")),
            ("hash", key) => match key.strip_prefix('$') {
                Some("remote_addr" | "binary_remote_addr") => self.set_hash("source"),
                Some("uri") => self.set_hash("path"),
                Some(name) if name.starts_with("http_") => {
                    self.set_hash(&format!("header:{}", name["http_".len()..].replace('_', "-")));
                }
                Some(name) if name.starts_with("cookie_") => {
                    self.set_hash(&format!("cookie:{}", &name["cookie_".len()..]));
                }
                _ => draft.leave(
                    Kind::NotSupported,
                    &directive.origin,
                    "weir hashes the client's address, the path without the query, a field or a cookie",
                ),
            },
            ("keepalive", number) => {
                if let Ok(number) = number.parse::<u64>() {
                    self.set("idle-max", Value::Number(number.min(1_000_000)));
                }
            }
            ("keepalive_timeout", time) => {
                if let Some(ms) = milliseconds(time) {
                    self.set("idle-timeout", time_value(ms));
                }
            }
            _ => leave(directive, draft),
        }
    }

    /// Adds a server. Returns its number of failures and their time.
    fn add_server(
        &mut self,
        directive: &Directive,
        draft: &mut Draft<'_>,
    ) -> Option<(Option<u64>, Option<u64>)> {
        let origin = &directive.origin;
        let text = directive.argument(0);
        let address = match text.strip_prefix("unix:") {
            Some(_) => Some(text.to_owned()),
            None => address(text, 80),
        };
        let Some(address) = address else {
            draft.leave(Kind::NotSupported, origin, format!("'{text}' is no address that weir can use"));
            return None;
        };
        let mut entries = vec![("address".to_owned(), Value::text(address))];
        let (mut failures, mut time) = (None, None);
        for parameter in directive.arguments().get(1..).unwrap_or_default() {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let number = value.parse::<u64>().ok();
            match (name, number) {
                ("weight", Some(number)) => entries.push(("weight".into(), Value::Number(number.min(256)))),
                ("max_conns", Some(number)) if number > 0 => {
                    entries.push(("maxconn".into(), Value::Number(number.min(1_000_000))));
                }
                ("max_conns", _) | ("resolve", _) => {}
                ("backup", _) => entries.push(("backup".into(), Value::Bool(true))),
                ("down", _) => entries.push(("weight".into(), Value::Number(0))),
                ("max_fails", number) => failures = number,
                ("fail_timeout", _) => time = milliseconds(value),
                ("slow_start", _) if milliseconds(value).is_some() => {
                    self.set("slow-start", time_value(milliseconds(value).unwrap_or_default()));
                }
                _ => draft.leave(Kind::NotSupported, origin, format!("'{name}' of a server")),
            }
        }
        // The last weight counts, which is that of `down`.
        let weights = entries.iter().filter(|(key, _)| key == "weight").count();
        if weights > 1
            && let Some(at) = entries.iter().position(|(key, _)| key == "weight")
        {
            entries.remove(at);
        }
        self.servers.push((Value::Table(entries), Rc::clone(origin)));
        Some((failures, time))
    }

    /// Sets the limit of failures, which weir has for the pool.
    fn add_failures(&mut self, failures: &[(Option<u64>, Option<u64>)], draft: &mut Draft<'_>) {
        let Some(first) = failures.first().copied() else { return };
        if failures.iter().any(|other| *other != first) {
            let text =
                "max_fails and fail_timeout are those of the pool (outlier): its servers have different ones";
            return draft.leave(Kind::NotSupported, &self.origin, text);
        }
        let mut entries = Vec::new();
        entries.extend(first.0.map(|number| ("failures".to_owned(), Value::Number(number.min(10_000)))));
        entries.extend(first.1.map(|ms| ("ejection".to_owned(), time_value(ms))));
        if !entries.is_empty() {
            self.set("outlier", Value::Table(entries));
        }
    }

    fn write(&self, section: &mut Section) {
        let origins: Vec<Rc<Origin>> = self.servers.iter().map(|(_, origin)| Rc::clone(origin)).collect();
        let servers = self.servers.iter().map(|(server, _)| match server {
            Value::Table(entries) if entries.len() == 1 => entries[0].1.clone(),
            other => other.clone(),
        });
        section.set("servers", Value::List(servers.collect()), &origins);
        for (key, value) in &self.entries {
            section.set(key, value.clone(), &[]);
        }
        if self.servers.len() > 2 {
            // nginx tries each server once.
            section.set("retries", Value::Number((self.servers.len() as u64 - 1).min(10)), &[]);
        }
    }
}

/// Returns an address with its port.
pub(crate) fn address(text: &str, port: u16) -> Option<String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, digits.parse::<u16>().ok().filter(|port| *port > 0)?)
        }
        _ => (text, port),
    };
    let bare = host.trim_matches(['[', ']']);
    if let Ok(address) = bare.parse::<std::net::IpAddr>() {
        return Some(std::net::SocketAddr::new(address, port).to_string());
    }
    is_host(host).then(|| format!("{host}:{port}"))
}

/// Adds the pool of a destination and returns its name; `None`: it has no server.
pub(super) fn add(
    destination: &Destination,
    upstreams: &[Upstream],
    (scope, common): (&Scope, Common),
    origin: &Rc<Origin>,
    draft: &mut Draft<'_>,
) -> Option<String> {
    let upstream = upstreams.iter().find(|upstream| upstream.name == destination.authority);
    if let Some(upstream) = upstream.filter(|upstream| upstream.servers.is_empty()) {
        draft.leave(Kind::Needs, &upstream.origin, "a server");
        return None;
    }
    let default_port = if destination.is_https { 443 } else { 80 };
    let direct = match destination.authority.starts_with("unix:") {
        true => Some(destination.authority.clone()),
        false => address(&destination.authority, default_port),
    };
    let (wanted, origins) = match upstream {
        Some(upstream) => (upstream.name.as_str(), vec![Rc::clone(&upstream.origin)]),
        None => (destination.authority.as_str(), vec![Rc::clone(origin)]),
    };
    if upstream.is_none() && direct.is_none() {
        draft.leave(Kind::NotSupported, origin, "this is no address that weir can use");
        return None;
    }
    let mut files = Vec::new();
    for (key, value, origin) in &scope.server_tls {
        if key == "server-name" || draft.existing_file(value, origin) {
            files.push((key.as_str(), value.as_str(), Rc::clone(origin)));
        }
    }
    let name = draft.add_pool(wanted.trim_start_matches("unix:"), origins, |section| {
        match (upstream, direct) {
            (Some(upstream), _) => upstream.write(section),
            (None, direct) => {
                section.set("servers", Value::List(direct.map(Value::text).into_iter().collect()), &[])
            }
        }
        write_times(scope, common, section);
        if destination.is_http2 {
            section.set("http", Value::text("2"), &[]);
        }
        if destination.is_https {
            section.set("tls", Value::Table(Vec::new()), &[]);
            if !scope.verifies_servers {
                section.set_in("tls", "verify", Value::Bool(false), &[]);
            }
            for (key, value, origin) in files {
                section.set_in("tls", key, Value::text(value), &[origin]);
            }
        }
    });
    Some(name)
}

fn write_times(scope: &Scope, common: Common, section: &mut Section) {
    if common.has_server_times {
        // nginx's default; each route has its own.
        return section.set_in("timeouts", "idle", Value::text("60s"), &[]);
    }
    if let Some((ms, origin)) = scope.time(Time::Connect) {
        section.set_in("timeouts", "connect", time_value(ms), &[origin]);
    }
    match scope.time(Time::Read) {
        Some((ms, origin)) => {
            for key in ["first-byte", "idle", "tunnel"] {
                section.set_in("timeouts", key, time_value(ms), std::slice::from_ref(&origin));
            }
        }
        // nginx's default; that of weir is half of it.
        None => section.set_in("timeouts", "idle", Value::text("60s"), &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_have_an_authority_and_perhaps_a_part_of_the_path() {
        let parse =
            |text| Destination::parse(text).map(|destination| (destination.authority, destination.uri));
        assert_eq!(parse("http://a:1"), Some(("a:1".into(), None)));
        assert_eq!(parse("http://a/"), Some(("a".into(), Some("/".into()))));
        assert_eq!(parse("http://unix:/run/a.sock:/x"), Some(("unix:/run/a.sock".into(), Some("/x".into()))));
        assert_eq!(parse("http://$host"), None);
        assert_eq!(address("10.0.0.1", 80).as_deref(), Some("10.0.0.1:80"));
        assert_eq!(address("[::1]:81", 80).as_deref(), Some("[::1]:81"));
        assert_eq!(address("a_b.c", 80).as_deref(), Some("a_b.c:80"));
    }
}
