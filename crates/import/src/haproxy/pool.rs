//! A pool from a section with servers.

use std::rc::Rc;

use super::settings::{Global, Proxy};
use crate::document::{Origin, Section, Value};
use crate::draft::{Draft, time_value};
use crate::left::Kind;

/// Writes the keys of a pool.
pub(super) fn write(
    proxy: &Proxy,
    global: &Global,
    is_tcp: bool,
    section: &mut Section,
    draft: &mut Draft<'_>,
) {
    write_servers(proxy, section, draft);
    write_balance(proxy, is_tcp, section, draft);
    write_timeouts(proxy, is_tcp, section);
    let retries = proxy.retries.as_ref();
    let origins: Vec<Rc<Origin>> = retries.map(|(_, origin)| Rc::clone(origin)).into_iter().collect();
    // HAProxy's default.
    section.set("retries", Value::Number(retries.map_or(3, |(number, _)| *number)), &origins);
    if let Some((value, origin)) = proxy.reuse.as_ref().filter(|_| !is_tcp) {
        section.set("reuse", Value::text(value), std::slice::from_ref(origin));
    }
    if let Some((address, origin)) = &proxy.source {
        draft.leave(
            Kind::Needs,
            origin,
            format!("source = \"{address}\", which an interface of the machine must have"),
        );
    }
    write_check(proxy, section, draft);
    write_sticky(proxy, is_tcp, section, draft);
    super::stick::write(proxy, is_tcp, section, draft);
    write_shared(proxy, section, draft);
    let resolvers =
        proxy.servers.iter().find_map(|server| server.resolvers.as_ref().map(|name| (name, &server.origin)));
    if let Some((name, origin)) = resolvers {
        match global.resolvers.iter().find(|(other, _)| other == name) {
            Some((_, entries)) => write_resolvers(entries, section),
            None => draft.leave(Kind::NotSupported, origin, format!("there are no resolvers '{name}'")),
        }
    }
}

fn write_servers(proxy: &Proxy, section: &mut Section, draft: &mut Draft<'_>) {
    let mut names = crate::document::Names::default();
    let mut servers = Vec::new();
    let mut origins = Vec::new();
    for server in &proxy.servers {
        let mut entries = server.entries.clone();
        for (key, value) in &mut entries {
            if let (true, Value::Text(name)) = (key == "name", &*value) {
                *value = Value::text(names.add(name));
            }
        }
        servers.push(Value::Table(entries));
        origins.push(Rc::clone(&server.origin));
    }
    section.set("servers", Value::List(servers), &origins);
    let with_tls = proxy.servers.iter().filter(|server| server.tls.is_some()).count();
    if with_tls > 0
        && with_tls < proxy.servers.len()
        && let Some(server) = proxy.servers.iter().find(|server| server.tls.is_none())
    {
        draft.leave(
            Kind::NotSupported,
            &server.origin,
            "all servers of a pool have TLS, or none: this one gets it, too",
        );
    }
}

fn write_balance(proxy: &Proxy, is_tcp: bool, section: &mut Section, draft: &mut Draft<'_>) {
    let default = Vec::new();
    let (words, origins) = match &proxy.balance {
        Some((words, origin)) => (words, std::slice::from_ref(origin)),
        None => (&default, &[][..]),
    };
    let first = words.first().map_or("roundrobin", String::as_str);
    let (name, argument) = match first.split_once('(') {
        Some((name, rest)) => (name, Some(rest.trim_end_matches(')'))),
        None => (first, words.get(1).map(String::as_str)),
    };
    let key = match (name, argument) {
        ("roundrobin" | "static-rr", _) => {
            return section.set("balance", Value::text("round-robin"), origins);
        }
        ("leastconn", _) => return section.set("balance", Value::text("least-connections"), origins),
        ("first", _) => return section.set("balance", Value::text("first"), origins),
        ("random", None | Some("2")) => return section.set("balance", Value::text("random-of-two"), origins),
        ("source", _) => "source".to_owned(),
        ("uri", None) if !is_tcp => "path".to_owned(),
        ("hdr", Some(field)) if !is_tcp && crate::draft::is_field_name(field) => {
            format!("header:{}", field.to_ascii_lowercase())
        }
        _ => {
            if let [origin] = origins {
                draft.leave(
                    Kind::NotSupported,
                    origin,
                    "weir has no such key of a hash: the pool has round-robin",
                );
            }
            return section.set("balance", Value::text("round-robin"), origins);
        }
    };
    section.set("balance", Value::text("consistent-hash"), origins);
    // Without a limit of the load, as in HAProxy.
    section.set("hash", Value::table([("key", Value::text(key)), ("load-factor", Value::Number(100))]), &[]);
}

fn write_timeouts(proxy: &Proxy, is_tcp: bool, section: &mut Section) {
    let mut set = |name: &str, key: &str| {
        if let Some((ms, origin)) = proxy.timeouts.get(name) {
            section.set_in("timeouts", key, time_value(*ms), std::slice::from_ref(origin));
        }
    };
    set("connect", "connect");
    if is_tcp {
        // A tunnel ends after the shorter one.
        let (client, server) = (proxy.timeouts.get("client"), proxy.timeouts.get("server"));
        let name = match (client, server) {
            (Some((client, _)), Some((server, _))) if client < server => "client",
            (Some(_), None) => "client",
            _ => "server",
        };
        set(name, "tunnel");
    } else {
        set("server", "first-byte");
        set("server", "idle");
    }
    set("tunnel", "tunnel");
    if proxy.servers.iter().any(|server| server.has_maxconn) {
        // Requests wait as long as for a connection, unless there is a time for the queue.
        let waiting = proxy.timeouts.get("queue").or_else(|| proxy.timeouts.get("connect"));
        if let Some((ms, origin)) = waiting {
            let origins = std::slice::from_ref(origin);
            section.set_in("queue", "timeout", time_value(*ms), origins);
            section.set_in("queue", "order", Value::text("oldest-first"), &[]);
        }
    }
}

fn write_check(proxy: &Proxy, section: &mut Section, draft: &mut Draft<'_>) {
    let checked: Vec<_> = proxy.servers.iter().filter(|server| server.check.is_some()).collect();
    let Some(first) = checked.first() else { return };
    if let Some(server) = proxy.servers.iter().find(|server| server.check.is_none()) {
        draft.leave(
            Kind::NotSupported,
            &server.origin,
            "all servers of a pool are checked, or none: this one is checked, too",
        );
    }
    match &proxy.check.is_http {
        Some(origin) => section.set_in("check", "type", Value::text("http"), std::slice::from_ref(origin)),
        None => section.set_in("check", "type", Value::text("tcp"), &[]),
    }
    for (key, value) in
        first.pool.iter().filter_map(|(key, value)| Some((key.strip_prefix("check.")?, value)))
    {
        section.set_in("check", key, value.clone(), &[]);
        let differs =
            checked.iter().find(|server| !server.pool.contains(&(format!("check.{key}"), value.clone())));
        if let Some(server) = differs {
            let text = format!("all servers of a pool have one `{key}` of checks, that of the first");
            draft.leave(Kind::NotSupported, &server.origin, text);
        }
    }
    // A check takes at most its interval in HAProxy.
    let interval = first.pool.iter().find(|(key, _)| key == "check.interval").map(|(_, value)| value.clone());
    match proxy.timeouts.get("check") {
        Some((ms, origin)) => {
            section.set_in("check", "timeout", time_value(*ms), std::slice::from_ref(origin))
        }
        None => section.set_in("check", "timeout", interval.unwrap_or_else(|| Value::text("2s")), &[]),
    }
    if proxy.check.is_http.is_none() {
        return;
    }
    for (key, value, origin) in &proxy.check.entries {
        section.set_in("check", key, value.clone(), std::slice::from_ref(origin));
    }
    let mut fields = Vec::new();
    for (name, value) in &proxy.check.headers {
        match name.to_ascii_lowercase().as_str() {
            "host" if value.split(':').next().is_some_and(crate::draft::is_host) => {
                section.set_in("check", "host", Value::text(value), &[]);
            }
            "connection" | "host" => {}
            name if crate::draft::is_changeable(name) => fields.push((name.to_owned(), Value::text(value))),
            _ => {}
        }
    }
    if !fields.is_empty() {
        section.set_in("check", "headers", Value::Table(fields), &[]);
    }
}

fn write_sticky(proxy: &Proxy, is_tcp: bool, section: &mut Section, draft: &mut Draft<'_>) {
    let Some((words, origin)) = &proxy.sticky else { return };
    if is_tcp || !proxy.servers.iter().any(|server| server.has_cookie) {
        return;
    }
    let options: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let mode = match options.iter().find(|option| ["insert", "prefix", "rewrite"].contains(option)) {
        Some(&"insert") => "insert",
        Some(&"prefix") => "prefix",
        _ => {
            return draft.leave(
                Kind::NotSupported,
                origin,
                "a cookie of the application that weir only reads",
            );
        }
    };
    let Some(name) = words.first().filter(|name| crate::draft::is_field_name(name)) else { return };
    let secret = draft.surroundings.secret();
    let origins = std::slice::from_ref(origin);
    section.set_in("sticky", "cookie", Value::text(name), origins);
    section.set_in("sticky", "mode", Value::text(mode), &[]);
    section.set_in("sticky", "key", Value::text(secret), &[]);
    if options.contains(&"secure") {
        section.set_in("sticky", "secure", Value::Bool(true), &[]);
    }
    let known = ["insert", "prefix", "indirect", "nocache", "httponly", "secure", "preserve"];
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        match *option {
            "maxidle" | "maxlife" | "domain" | "attr" => {
                rest.next();
                draft.leave(Kind::NotSupported, origin, format!("'{option}' of a cookie"));
            }
            option if known.contains(&option) => {}
            option => draft.leave(Kind::NotSupported, origin, format!("'{option}' of a cookie")),
        }
    }
}

/// Writes the settings of servers that are those of the pool.
fn write_shared(proxy: &Proxy, section: &mut Section, draft: &mut Draft<'_>) {
    let Some(first) = proxy.servers.first() else { return };
    let with_tls = proxy.servers.iter().find_map(|server| server.tls.as_ref());
    if let Some(tls) = with_tls {
        section.set("tls", Value::Table(Vec::new()), &[]);
        for (key, value) in tls {
            section.set_in("tls", key, value.clone(), &[]);
        }
        let differs =
            proxy.servers.iter().find(|server| server.tls.as_ref().is_some_and(|other| other != tls));
        if let Some(server) = differs {
            draft.leave(
                Kind::NotSupported,
                &server.origin,
                "all servers of a pool have the TLS settings of the first one",
            );
        }
    }
    for (key, value) in first.pool.iter().filter(|(key, _)| !key.starts_with("check.")) {
        match key.split_once('.') {
            Some((table, key)) => section.set_in(table, key, value.clone(), &[]),
            None => section.set(key, value.clone(), &[]),
        }
    }
    let own = |server: &super::server::ServerLine| {
        let other = server.pool.iter().filter(|(key, _)| !key.starts_with("check."));
        other.cloned().collect::<Vec<_>>()
    };
    if let Some(server) = proxy.servers.iter().find(|server| own(server) != own(first)) {
        draft.leave(
            Kind::NotSupported,
            &server.origin,
            "all servers of a pool have the parameters of the first one",
        );
    }
    if let Some(count) = proxy.servers.iter().find_map(|server| server.names_max) {
        section.set_in("resolve", "servers-max", Value::Number(count), &[]);
    }
}

fn write_resolvers(entries: &[(String, Value, Rc<Origin>)], section: &mut Section) {
    let nameservers: Vec<Value> =
        entries.iter().filter(|(key, ..)| key == "nameserver").map(|(_, value, _)| value.clone()).collect();
    let origins: Vec<Rc<Origin>> = entries.iter().map(|(.., origin)| Rc::clone(origin)).collect();
    if !nameservers.is_empty() {
        section.set_in("resolve", "nameserver", Value::List(nameservers), &origins);
    }
    for (key, value, _) in entries.iter().filter(|(key, ..)| key != "nameserver") {
        section.set_in("resolve", key, value.clone(), &[]);
    }
}
