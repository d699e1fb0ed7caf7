//! Listeners from sections with addresses.

use std::rc::Rc;

use super::assemble::is_tcp;
use super::server::Bind;
use super::settings::{Proxy, parse_forwardfor};
use crate::document::{Origin, Origins, Section, Value};
use crate::draft::{Draft, is_field_name, time_value};
use crate::left::Kind;

/// Listeners of one frontend that share their rules.
pub(super) struct ListenerGroup {
    pub(super) names: Vec<String>,
    pub(super) has_tls: bool,
    pub(super) port: Option<u16>,
    /// A line of the listener that may restrict access, and that weir does not know.
    pub(super) refused: Option<Rc<Origin>>,
}

/// Adds the listeners of a section: one for all binds with the same settings.
pub(super) fn add_listeners(
    proxy: &Proxy,
    draft: &mut Draft<'_>,
    fill: impl Fn(&mut Section),
) -> Vec<ListenerGroup> {
    let mut groups: Vec<ListenerGroup> = Vec::new();
    let mut rest: Vec<&Bind> = proxy.binds.iter().filter(|bind| !bind.addresses.is_empty()).collect();
    if rest.is_empty() {
        return vec![add_default_listener(proxy, draft, &fill)];
    }
    while let Some(first) = rest.first().copied() {
        let is_same = |bind: &&Bind| {
            bind.tls == first.tls
                && bind.accepts_proxy == first.accepts_proxy
                && bind.unix_mode == first.unix_mode
                && bind.refused.is_some() == first.refused.is_some()
        };
        let (same, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_same);
        rest = others;
        let wanted = match (groups.is_empty(), &first.tls) {
            (true, _) => proxy.name.clone(),
            (false, Some(_)) => format!("{}-tls", proxy.name),
            (false, None) => format!("{}-plain", proxy.name),
        };
        let name = draft.listener_name(&wanted);
        let mut section = Section::named("listener", &name, proxy.head.iter().map(Rc::clone).collect());
        let origins: Origins = same.iter().map(|bind| Rc::clone(&bind.origin)).collect();
        let addresses = same.iter().flat_map(|bind| bind.addresses.iter().map(String::as_str));
        section.set("bind", Value::texts(addresses), &origins);
        fill(&mut section);
        if let Some(tls) = &first.tls {
            section.set("tls", Value::Table(tls.clone()), &[]);
            if first.only_http1 {
                section.set("http2", Value::Bool(false), &[]);
            }
        }
        if first.accepts_proxy {
            section.set("proxy-protocol", Value::Bool(true), &[]);
            draft.leave(
                Kind::Needs,
                &first.origin,
                "the networks of the peers that send PROXY headers, in `trusted`",
            );
        }
        if let Some(mode) = &first.unix_mode {
            section.set("unix-mode", Value::text(mode), &[]);
        }
        write_listener(proxy, &mut section, draft);
        draft.document.listeners.push(section);
        let ports: Vec<u16> = same.iter().flat_map(|bind| bind.ports.iter().copied()).collect();
        let port = ports.first().copied().filter(|port| ports.iter().all(|other| other == port));
        groups.push(ListenerGroup {
            names: vec![name],
            has_tls: first.tls.is_some(),
            port,
            refused: first.refused.clone(),
        });
    }
    merge_groups(groups)
}

fn add_default_listener(proxy: &Proxy, draft: &mut Draft<'_>, fill: &dyn Fn(&mut Section)) -> ListenerGroup {
    let name = draft.listener_name(&proxy.name);
    let mut section = Section::named("listener", &name, proxy.head.iter().map(Rc::clone).collect());
    section.note("The source has no address for it: this is a default.");
    section.set("bind", Value::text("127.0.0.1:8080"), &[]);
    fill(&mut section);
    write_listener(proxy, &mut section, draft);
    draft.document.listeners.push(section);
    ListenerGroup { names: vec![name], has_tls: false, port: Some(8080), refused: None }
}

/// Joins the listeners with the same rules.
fn merge_groups(groups: Vec<ListenerGroup>) -> Vec<ListenerGroup> {
    let mut merged: Vec<ListenerGroup> = Vec::new();
    for group in groups {
        match merged.iter_mut().find(|other| {
            other.has_tls == group.has_tls
                && other.port == group.port
                && other.refused.is_some() == group.refused.is_some()
        }) {
            Some(other) => other.names.extend(group.names),
            None => merged.push(group),
        }
    }
    merged
}

fn write_listener(proxy: &Proxy, section: &mut Section, draft: &mut Draft<'_>) {
    let is_tcp = is_tcp(proxy);
    if let Some((number, origin)) = &proxy.maxconn {
        section.set(
            "connections-max",
            Value::Number((*number).clamp(1, 100_000_000)),
            std::slice::from_ref(origin),
        );
    }
    if let Some((number, origin)) = &proxy.backlog {
        section.set("backlog", Value::Number(*number), std::slice::from_ref(origin));
    }
    if is_tcp {
        return;
    }
    let mut set_time = |name: &str, key: &str| {
        if let Some((ms, origin)) = proxy.timeouts.get(name) {
            section.set_in("timeouts", key, time_value(*ms), std::slice::from_ref(origin));
        }
    };
    set_time("client", "body-idle");
    set_time("client", "write");
    // The time for a head is also that between requests, unless there is one for them.
    for name in ["client", "http-request"] {
        set_time(name, "head");
        set_time(name, "keep-alive");
    }
    set_time("http-keep-alive", "keep-alive");
    let forwards = proxy.forwardfor.as_ref();
    let origins: Origins = forwards.map(|(_, origin)| Rc::clone(origin)).into_iter().collect();
    section.set_in("forwarding", "x-forwarded", Value::Bool(forwards.is_some()), &origins);
    if let Some((words, origin)) = forwards {
        match parse_forwardfor(words) {
            Ok(option) if option.if_none => {
                section.set_in("forwarding", "forwarded-for", Value::text("if-none"), &[]);
            }
            Ok(_) => {}
            Err(reason) => draft.leave(Kind::NotSupported, origin, reason),
        }
    }
    if let Some((value, origin)) = proxy.compression.value(draft) {
        section.set("compression", value, &[origin]);
    }
    section.set_in("forwarding", "via", Value::Bool(false), &[]);
    match &proxy.unique_id {
        Some((name, origin)) if is_field_name(name) => {
            let name = Value::text(name.to_ascii_lowercase());
            section.set_in("forwarding", "request-id", name, std::slice::from_ref(origin));
        }
        _ => section.set_in("forwarding", "request-id", Value::Bool(false), &[]),
    }
}
