//! `reverse_proxy` of Caddy: a pool and the changes of fields.

use std::rc::Rc;

use super::matcher::template;
use super::site::checked_change;
use crate::directive::Directive;
use crate::document::{Origin, Section, Value};
use crate::draft::{Draft, VALUE_OF_REQUEST, is_changeable, is_host, time_value};
use crate::left::Kind;
use crate::paths::is_normal_path;
use crate::rules::{Action, Change, Condition, Rule};

/// Converts the words of a change of a field: `Name value`, `+Name value`, `-Name`, `>Name value`.
pub(super) fn field_change(words: &[&str], is_request: bool) -> Option<Change> {
    let (first, values) = words.split_first()?;
    let (sign, name) = match first.as_bytes().first()? {
        b'+' | b'-' | b'>' => (&first[..1], &first[1..]),
        b'?' => return None,
        _ => ("", *first),
    };
    // A name of a block may have a colon.
    let name = name.trim_end_matches(':');
    let change = match (sign, values, is_request) {
        ("-", [], true) if !name.eq_ignore_ascii_case("host") => Change::RemoveRequest(name.to_owned()),
        ("-", [], false) => Change::RemoveResponse(name.to_owned()),
        ("+", [value], true) if !name.eq_ignore_ascii_case("host") => {
            Change::AddRequest(name.to_owned(), template(value)?)
        }
        ("+", [value], false) => Change::AddResponse(name.to_owned(), template(value)?),
        ("" | ">", [value], true) => Change::SetRequest(name.to_owned(), template(value)?),
        ("" | ">", [value], false) => Change::SetResponse(name.to_owned(), template(value)?),
        _ => return None,
    };
    let bare = if sign == "-" { name.trim_end_matches('*') } else { name };
    checked_change(bare, change)
}

/// Returns the change of a field of requests whose value weir does not have.
pub(super) fn lost_field(words: &[&str]) -> Change {
    let name =
        words.first().map_or("", |name| name.trim_start_matches(['+', '-', '>', '?']).trim_end_matches(':'));
    match is_changeable(name) && !name.eq_ignore_ascii_case("host") {
        true => Change::LoseRequest(name.to_owned()),
        false => Change::Refuse,
    }
}

/// Returns a time of Caddy in milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end =
            rest[end..].find(|letter: char| letter.is_ascii_digit()).map_or(rest.len(), |at| end + at);
        let factor = match &rest[end..unit_end] {
            "ms" => 1.0,
            "s" => 1e3,
            "m" => 6e4,
            "h" => 3.6e6,
            "d" => 8.64e7,
            _ => return None,
        };
        total = total.checked_add((number * factor).min(1e15) as u64)?;
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(total)
}

/// Settings of one `reverse_proxy`.
#[derive(Default)]
struct Proxy {
    upstreams: Vec<String>,
    has_tls: bool,
    http: Option<&'static str>,
    entries: Vec<(String, Value, Rc<Origin>)>,
    changes: Vec<(Change, Rc<Origin>)>,
}

/// Returns the rules of a `reverse_proxy`: its changes and its pool.
pub(super) fn rules(directive: &Directive, arguments: &[String], draft: &mut Draft<'_>) -> Vec<Rule> {
    let origin = &directive.origin;
    let mut proxy = Proxy::default();
    arguments.iter().for_each(|text| proxy.add_upstream(text, origin, draft));
    for inner in directive.inner() {
        proxy.apply(inner, draft);
    }
    if proxy.upstreams.is_empty() {
        draft.leave(Kind::Needs, origin, "a server: the route responds 502");
        return vec![Rule::Act(Action::Deny(502), Vec::new())];
    }
    let has_check = proxy.entries.iter().any(|(key, ..)| key == "check.path" || key == "check.port");
    let wanted = proxy.upstreams[0].trim_start_matches("unix:").to_owned();
    let pool = draft.add_pool(&wanted, vec![Rc::clone(origin)], |section| proxy.write(has_check, section));
    let mut rules: Vec<Rule> = Vec::new();
    for (change, origin) in proxy.changes {
        rules.push(Rule::Change(Condition::Always, change, origin));
    }
    rules.push(Rule::Act(Action::Pool(pool, Vec::new()), Vec::new()));
    rules
}

impl Proxy {
    fn add_upstream(&mut self, text: &str, origin: &Rc<Origin>, draft: &mut Draft<'_>) {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let port = match scheme {
            "https" => {
                self.has_tls = true;
                443
            }
            "h2c" => {
                self.http = Some("2");
                80
            }
            _ => 80,
        };
        let path = rest.strip_prefix("unix/").or_else(|| rest.strip_prefix("unix+h2c/"));
        let address = match path {
            Some(path) => Some(format!("unix:{path}")),
            // A port alone is one of this machine.
            None if rest.starts_with(':') => crate::nginx::address(&format!("localhost{rest}"), port),
            None => crate::nginx::address(rest.trim_end_matches('/'), port),
        };
        match address {
            Some(address) => self.upstreams.push(address),
            None => draft.leave(
                Kind::NotSupported,
                origin,
                format!("'{text}' is no address of a server that weir has"),
            ),
        }
    }

    fn set(&mut self, key: &str, value: Value, origin: &Rc<Origin>) {
        self.entries.retain(|(other, ..)| other != key);
        self.entries.push((key.to_owned(), value, Rc::clone(origin)));
    }

    fn apply(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        let origin = &directive.origin;
        let first = directive.argument(0);
        let time = milliseconds(first);
        let number = first.parse::<u64>().ok();
        match (directive.name(), time, number) {
            ("to", ..) => {
                directive.arguments().iter().for_each(|text| self.add_upstream(text, origin, draft))
            }
            ("lb_policy", ..) => self.set_policy(directive, draft),
            ("lb_retries", _, Some(number)) => self.set("retries", Value::Number(number.min(10)), origin),
            ("health_uri" | "health_path", ..) if first.starts_with('/') => {
                self.set("check.path", Value::text(first), origin)
            }
            ("health_port", _, Some(port)) if port <= 65_535 => {
                self.set("check.port", Value::Number(port), origin)
            }
            ("health_interval", Some(ms), _) => self.set("check.interval", time_value(ms), origin),
            ("health_timeout", Some(ms), _) => self.set("check.timeout", time_value(ms), origin),
            ("health_status", ..) => self.set("check.status", Value::text(first), origin),
            ("health_passes", _, Some(number)) => {
                self.set("check.rise", Value::Number(number.clamp(1, 255)), origin)
            }
            ("health_fails", _, Some(number)) => {
                self.set("check.fall", Value::Number(number.clamp(1, 255)), origin)
            }
            ("fail_duration", Some(ms), _) => self.set("outlier.ejection", time_value(ms), origin),
            ("max_fails", _, Some(number)) => {
                self.set("outlier.failures", Value::Number(number.min(10_000)), origin)
            }
            ("header_up" | "header_down", ..) => self.add_field(directive, draft),
            ("rewrite", ..) if is_normal_path(first) => {
                self.changes.push((Change::RewritePath(first.to_owned()), Rc::clone(origin)));
            }
            ("transport", ..) if first == "http" => {
                directive.inner().iter().for_each(|inner| self.apply_transport(inner, draft))
            }
            (name, ..) => {
                let words = ["reverse_proxy", name];
                let row = crate::row::find(super::TABLE, &words).filter(|row| row.directive.contains(' '));
                let (kind, reason) = row
                    .map_or((Kind::NotSupported, "weir has no such setting of a pool"), |row| {
                        (row.kind.unwrap_or(Kind::NotSupported), row.becomes)
                    });
                draft.leave(kind, origin, reason);
                if matches!(name, "rewrite" | "method") {
                    self.changes.push((Change::Refuse, Rc::clone(origin)));
                }
            }
        }
    }

    fn set_policy(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        let origin = &directive.origin;
        let name = directive.argument(1);
        let (balance, key) = match directive.argument(0) {
            "round_robin" => ("round-robin", None),
            "least_conn" => ("least-connections", None),
            "first" => ("first", None),
            "random" => ("random-of-two", None),
            "random_choose" if matches!(name, "" | "2") => ("random-of-two", None),
            "ip_hash" | "client_ip_hash" => ("consistent-hash", Some("source".to_owned())),
            "header" if crate::draft::is_field_name(name) => {
                ("consistent-hash", Some(format!("header:{name}")))
            }
            "cookie" => {
                let secret = draft.surroundings.secret();
                let name = if crate::draft::is_field_name(name) { name } else { "lb" };
                let table = Value::table([("cookie", Value::text(name)), ("key", Value::text(secret))]);
                return self.set("sticky", table, origin);
            }
            _ => {
                return draft.leave(
                    Kind::NotSupported,
                    origin,
                    "weir has no such policy: the pool has random-of-two",
                );
            }
        };
        self.set("balance", Value::text(balance), origin);
        if let Some(key) = key {
            // Without a limit of the load, as in Caddy.
            let table = Value::table([("key", Value::text(key)), ("load-factor", Value::Number(100))]);
            self.set("hash", table, origin);
        }
    }

    fn add_field(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        let words: Vec<&str> = directive.arguments().iter().map(String::as_str).collect();
        let is_request = directive.name() == "header_up";
        let origin = &directive.origin;
        let first = words.first().copied().unwrap_or_default();
        if is_request {
            match (first.to_ascii_lowercase().as_str(), words.get(1).copied().unwrap_or_default()) {
                (
                    "x-forwarded-for",
                    "{remote_host}" | "{http.request.remote.host}" | "{client_ip}" | "{remote}",
                )
                | ("x-forwarded-proto", "{scheme}" | "{http.request.scheme}")
                | ("x-forwarded-host", "{host}" | "{hostport}" | "{http.request.host}")
                | ("host", "{host}" | "{hostport}" | "{http.request.host}" | "{http.request.hostport}") => {
                    return draft.leave(Kind::NoEffect, origin, "weir sends this field so by itself");
                }
                ("upgrade" | "connection", _) => {
                    return draft.leave(
                        Kind::NoEffect,
                        origin,
                        "connections are kept, and upgrades (WebSocket) forwarded",
                    );
                }
                ("host", value)
                    if value.ends_with("upstream_hostport}") || value.ends_with("upstream.hostport}") =>
                {
                    // The host of the only server.
                    match &self.upstreams[..] {
                        [upstream] if !upstream.starts_with("unix:") => {
                            let bare = upstream
                                .strip_suffix(if self.has_tls { ":443" } else { ":80" })
                                .unwrap_or(upstream);
                            self.changes
                                .push((Change::SetRequest("Host".into(), bare.into()), Rc::clone(origin)));
                        }
                        _ => draft.leave(
                            Kind::NotSupported,
                            origin,
                            "Host is the same for all servers of a pool",
                        ),
                    }
                    return;
                }
                _ => {}
            }
        }
        match field_change(&words, is_request) {
            Some(change) => self.changes.push((change, Rc::clone(origin))),
            None if is_request && is_changeable(first.trim_start_matches(['+', '-', '>', '?'])) => {
                draft.leave(Kind::NotSupported, origin, VALUE_OF_REQUEST);
                self.changes.push((lost_field(&words), Rc::clone(origin)));
            }
            None if !is_changeable(first.trim_start_matches(['+', '-', '>'])) => {
                draft.leave(Kind::NotSupported, origin, "weir sets this field itself");
            }
            None => draft.leave(Kind::NotSupported, origin, VALUE_OF_REQUEST),
        }
    }

    fn apply_transport(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        let origin = &directive.origin;
        let first = directive.argument(0);
        match (directive.name(), milliseconds(first)) {
            ("tls", _) => self.has_tls = true,
            ("tls_insecure_skip_verify", _) => {
                self.has_tls = true;
                self.set("tls.verify", Value::Bool(false), origin);
            }
            ("tls_server_name", _) if is_host(first) => {
                self.has_tls = true;
                self.set("tls.server-name", Value::text(first), origin);
            }
            ("tls_trusted_ca_certs" | "tls_trust_pool", _) => {
                let file = directive.arguments().last().map_or("", String::as_str);
                self.has_tls = true;
                if draft.existing_file(file, origin) {
                    self.set("tls.ca", Value::text(file), origin);
                }
            }
            ("dial_timeout", Some(ms)) => self.set("timeouts.connect", time_value(ms), origin),
            ("response_header_timeout", Some(ms)) => self.set("timeouts.first-byte", time_value(ms), origin),
            ("read_timeout", Some(ms)) => self.set("timeouts.idle", time_value(ms), origin),
            ("keepalive", Some(ms)) if ms > 0 => self.set("idle-timeout", time_value(ms), origin),
            ("keepalive", _) if first == "off" => self.set("reuse", Value::text("never"), origin),
            ("keepalive_idle_conns_per_host", _) => {
                if let Ok(number) = first.parse::<u64>() {
                    self.set("idle-max", Value::Number(number.min(1_000_000)), origin);
                }
            }
            ("versions", _) => match directive.arguments() {
                [version] if version == "h2c" || version == "2" => self.http = Some("2"),
                [version] if version == "1.1" => self.http = Some("1.1"),
                _ => self.http = Some("auto"),
            },
            _ => {
                draft.leave(Kind::NotSupported, origin, "weir has no such setting of connections to servers")
            }
        }
    }

    fn write(&self, has_check: bool, section: &mut Section) {
        section.set("servers", Value::List(self.upstreams.iter().map(Value::text).collect()), &[]);
        if let Some(http) = self.http {
            section.set("http", Value::text(http), &[]);
        }
        if self.has_tls {
            section.set("tls", Value::Table(Vec::new()), &[]);
        }
        if has_check {
            section.set_in("check", "type", Value::text("http"), &[]);
            for (key, value) in [("interval", "30s"), ("timeout", "5s"), ("status", "200")] {
                section.set_in("check", key, Value::text(value), &[]);
            }
            // One passed or failed check changes the state in Caddy.
            for key in ["rise", "fall"] {
                section.set_in("check", key, Value::Number(1), &[]);
            }
        }
        for (key, value, origin) in &self.entries {
            let origins = std::slice::from_ref(origin);
            match key.split_once('.') {
                Some(("check", _)) if !has_check => {}
                Some((table, key)) => section.set_in(table, key, value.clone(), origins),
                None => section.set(key, value.clone(), origins),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_several_parts() {
        assert_eq!(milliseconds("1m30s"), Some(90_000));
        assert_eq!(milliseconds("1.5s"), Some(1_500));
        assert_eq!((milliseconds("10"), milliseconds(""), milliseconds("x")), (None, None, None));
    }

    #[test]
    fn changes_have_signs() {
        assert_eq!(field_change(&["-Server"], false), Some(Change::RemoveResponse("Server".into())));
        assert_eq!(field_change(&["+X", "1"], true), Some(Change::AddRequest("X".into(), "1".into())));
        assert_eq!(field_change(&["?X", "1"], false), None);
        assert_eq!(field_change(&["Connection", "1"], true), None);
    }
}
