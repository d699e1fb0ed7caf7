//! Listeners, pools and routes from the sections of HAProxy.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::settings::{Global, Proxy, ProxyKind, forwardfor_problem};
use crate::document::{Origin, Origins, Section, Value};
use crate::draft::{Draft, time_value};
use crate::left::Kind;
use crate::rules::{Action, Condition, RouteSetting, Rule, Test, has_path_test, specialise};

/// Listeners of one frontend that share their rules.
struct ListenerGroup {
    names: Vec<String>,
    has_tls: bool,
    port: Option<u16>,
    /// A line of the listener that may restrict access, and that weir does not know.
    refused: Option<Rc<Origin>>,
}

/// Adds everything to the draft.
pub(super) fn assemble(global: &Global, proxies: Vec<Proxy>, draft: &mut Draft<'_>) {
    let mut proxies = proxies;
    let has_frontend = proxies.iter().any(|proxy| proxy.kind != ProxyKind::Backend);
    if !has_frontend {
        complete_fragment(&mut proxies);
    }
    let mut pools: BTreeMap<usize, String> = BTreeMap::new();
    let mut has_admin = false;
    for index in 0..proxies.len() {
        if proxies[index].kind == ProxyKind::Backend {
            continue;
        }
        if let (true, Some(head)) = (proxies[index].is_disabled, &proxies[index].head) {
            draft.leave(Kind::NotSupported, head, "the section is disabled: it has no listener");
            continue;
        }
        if add_admin(&proxies[index], &mut has_admin, draft) {
            continue;
        }
        let is_tcp = is_tcp(&proxies[index]);
        if is_tcp {
            add_tcp(index, &proxies, global, &mut pools, draft);
        } else {
            add_http(index, &proxies, global, &mut pools, draft);
        }
    }
    for index in 0..proxies.len() {
        if proxies[index].kind == ProxyKind::Backend && !pools.contains_key(&index) {
            add_pool(index, &proxies, global, &mut pools, false, draft);
        }
    }
    add_logs(global, &proxies, draft);
}

/// Returns whether the bytes of a section's connections are forwarded unchanged: HAProxy's default.
fn is_tcp(proxy: &Proxy) -> bool {
    match &proxy.mode {
        Some((mode, _)) => mode == "tcp",
        // A fragment without a mode that uses HTTP is one of mode http.
        None => !(proxy.uses_http || proxy.forwardfor.is_some() || !proxy.stats.is_empty()),
    }
}

/// Adds a frontend for the first backend of a fragment.
fn complete_fragment(proxies: &mut Vec<Proxy>) {
    let Some(first) = proxies.first() else { return };
    let mut frontend = Proxy { kind: ProxyKind::Frontend, name: "web".into(), ..Proxy::default() };
    let nowhere = || Rc::new(Origin { file: "".into(), line: 1, text: String::new() });
    let origin = first.head.as_ref().map_or_else(nowhere, Rc::clone);
    frontend.mode = first.mode.clone().or_else(|| Some(("http".into(), Rc::clone(&origin))));
    frontend.forwardfor.clone_from(&first.forwardfor);
    frontend.default_backend = Some((first.name.clone(), origin));
    proxies.push(frontend);
}

/// Makes the admin address of a section that only has statistics. Returns whether it is one.
fn add_admin(proxy: &Proxy, has_admin: &mut bool, draft: &mut Draft<'_>) -> bool {
    let Some(first) = proxy.stats.first() else { return false };
    let forwards =
        !proxy.servers.is_empty() || proxy.default_backend.is_some() || !proxy.switching.is_empty();
    let address = proxy.binds.first().and_then(|bind| bind.addresses.first());
    match address {
        Some(address) if !forwards && !*has_admin => {
            *has_admin = true;
            let origins: Origins = proxy.head.iter().chain(&proxy.stats).map(Rc::clone).collect();
            draft.document.top.set("admin", Value::text(address), &origins);
            draft.leave(
                Kind::Differs,
                first,
                "weir's status page is at the path /, and it has no token (admin-token)",
            );
            true
        }
        _ => {
            draft.leave(Kind::NotSupported, first, "the status page has an address of its own: set admin");
            !forwards
        }
    }
}

fn find_backend(name: &str, proxies: &[Proxy]) -> Option<usize> {
    proxies.iter().position(|proxy| proxy.kind != ProxyKind::Frontend && proxy.name == name)
}

fn add_tcp(
    index: usize,
    proxies: &[Proxy],
    global: &Global,
    pools: &mut BTreeMap<usize, String>,
    draft: &mut Draft<'_>,
) {
    let proxy = &proxies[index];
    let bind = proxy.binds.iter().find_map(|bind| bind.refused.as_ref());
    let refused = [bind, proxy.refused.as_ref(), proxy.phases.refuses_connections.as_ref()]
        .into_iter()
        .flatten()
        .next();
    if let Some(origin) = refused {
        let text = "a listener of mode tcp cannot refuse connections as this line says: it is left out";
        return draft.leave(Kind::NotSupported, origin, text);
    }
    let (mut default, mut entries, mut origins): (Option<String>, _, Origins) =
        (None, Vec::new(), Vec::new());
    let mut is_complete = true;
    for (condition, pool, origin) in &proxy.switching {
        let backend = find_backend(pool, proxies).filter(|&backend| is_forwarding(&proxies[backend]));
        let names = server_names(condition);
        let (Some(backend), Some(names)) = (backend, names) else {
            let text = "a pool with servers, chosen by a complete server name or by its end: connections that this \
                        line may be for are rejected";
            draft.leave(Kind::NotSupported, origin, text);
            is_complete = false;
            break;
        };
        let name = add_pool(backend, proxies, global, pools, true, draft);
        if names.is_empty() {
            default = Some(name);
            is_complete = false;
            break;
        }
        entries.push(Value::table([("server-name", Value::texts(names)), ("pool", Value::text(name))]));
        origins.push(Rc::clone(origin));
    }
    if is_complete {
        default = default_pool(index, proxies, global, pools, true, draft);
    }
    if default.is_none() && entries.is_empty() {
        if let Some(head) = &proxy.head {
            draft.leave(Kind::Needs, head, "a server: a listener of mode tcp forwards to a pool");
        }
        return;
    }
    let has_sni = !entries.is_empty();
    add_listeners(proxy, draft, |section| {
        section.set("mode", Value::text("tcp"), &[]);
        if let Some(pool) = &default {
            section.set("pool", Value::text(pool), &[]);
        }
        if has_sni {
            section.set("sni", Value::List(entries.clone()), &origins);
        }
    });
}

/// Returns the server names of a condition, none for all connections; `None`: it has other tests.
fn server_names(condition: &Condition) -> Option<Vec<String>> {
    let parts = match condition {
        Condition::Always => return Some(Vec::new()),
        Condition::Any(parts) => &parts[..],
        one => std::slice::from_ref(one),
    };
    let name = |part: &Condition| match part {
        Condition::Test(test) => match &**test {
            Test::ServerName(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    parts.iter().map(name).collect()
}

/// Returns the pool of the section itself, or of its `default_backend`.
fn default_pool(
    index: usize,
    proxies: &[Proxy],
    global: &Global,
    pools: &mut BTreeMap<usize, String>,
    is_tcp: bool,
    draft: &mut Draft<'_>,
) -> Option<String> {
    let proxy = &proxies[index];
    match &proxy.default_backend {
        Some((name, origin)) => match find_backend(name, proxies) {
            Some(backend)
                if is_usable(&proxies[backend]) && (!is_tcp || is_forwarding(&proxies[backend])) =>
            {
                Some(add_pool(backend, proxies, global, pools, is_tcp, draft))
            }
            _ => {
                draft.leave(
                    Kind::NotSupported,
                    origin,
                    format!("there is no backend '{name}' with a server"),
                );
                None
            }
        },
        None if is_usable(proxy) => Some(add_pool(index, proxies, global, pools, is_tcp, draft)),
        None => None,
    }
}

fn is_usable(proxy: &Proxy) -> bool {
    !proxy.servers.is_empty() && !proxy.is_disabled
}

/// Returns whether a section of mode tcp forwards all connections that it gets.
fn is_forwarding(proxy: &Proxy) -> bool {
    is_usable(proxy) && proxy.refused.is_none() && proxy.phases.refuses_connections.is_none()
}

fn add_http(
    index: usize,
    proxies: &[Proxy],
    global: &Global,
    pools: &mut BTreeMap<usize, String>,
    draft: &mut Draft<'_>,
) {
    let proxy = &proxies[index];
    let mut rules: Vec<Rule> = section_rules(proxy);
    for (condition, name, origin) in &proxy.switching {
        let Some(backend) = find_backend(name, proxies).filter(|&backend| is_usable(&proxies[backend]))
        else {
            draft.leave(Kind::NotSupported, origin, format!("there is no backend '{name}' with a server"));
            rules.push(Rule::act_when(condition.clone(), Action::Deny(503), origin));
            continue;
        };
        let pool = add_pool(backend, proxies, global, pools, false, draft);
        let inner = backend_rules((&proxies[backend], proxy), backend != index, pool, draft);
        rules.push(Rule::When(condition.clone(), inner.into(), vec![Rc::clone(origin)]));
    }
    let default = default_pool(index, proxies, global, pools, false, draft);
    let origins: Origins = proxy.default_backend.iter().map(|(_, origin)| Rc::clone(origin)).collect();
    match default {
        Some(pool) => {
            let backend = proxy.default_backend.as_ref().and_then(|(name, _)| find_backend(name, proxies));
            let inner = match backend.filter(|&backend| backend != index) {
                Some(backend) => backend_rules((&proxies[backend], proxy), true, pool, draft),
                None => vec![Rule::Act(Action::Pool(pool, route_settings(proxy, proxy, draft)), Vec::new())],
            };
            rules.push(Rule::When(Condition::Always, inner.into(), origins));
        }
        // HAProxy has no server then.
        None => rules.push(Rule::Act(Action::Deny(503), origins)),
    }
    if let Some(origin) = raw_names(proxy) {
        let text = "server names of connections that are not decrypted: all requests get 501";
        draft.leave(Kind::NotSupported, origin, text);
        rules.insert(0, Rule::refuse(Condition::Always, origin));
    }
    let is_strict = has_path_test(&rules);
    let groups = add_listeners(proxy, draft, |section| {
        if is_strict {
            section.note("HAProxy compares paths as they arrive: other spellings of a path get 400.");
            section.set("path", Value::text("strict"), &[]);
        }
    });
    for group in groups {
        let mut rules = rules.clone();
        if let Some(origin) = &group.refused {
            rules.insert(0, Rule::refuse(Condition::Always, origin));
        }
        draft.add_routes(&group.names, specialise(&rules, group.has_tls, group.port));
    }
}

/// Returns a line with a server name of connections that weir does not decrypt.
fn raw_names(proxy: &Proxy) -> Option<&Rc<Origin>> {
    let is_name =
        |part: &Condition| matches!(part, Condition::Test(test) if matches!(**test, Test::ServerName(_)));
    let is_plain = !proxy.binds.iter().all(|bind| bind.tls.is_some());
    let line = proxy.switching.iter().find(|(condition, ..)| is_plain && condition.contains(&is_name));
    line.map(|(.., origin)| origin)
}

/// Returns the rules of a section in front of its servers.
fn section_rules(proxy: &Proxy) -> Vec<Rule> {
    let refused = proxy.refused.iter().map(|origin| Rule::refuse(Condition::Always, origin));
    refused.chain(proxy.phases.rules().cloned()).collect()
}

fn backend_rules(
    (backend, frontend): (&Proxy, &Proxy),
    has_own_rules: bool,
    pool: String,
    draft: &mut Draft<'_>,
) -> Vec<Rule> {
    let settings = route_settings(backend, frontend, draft);
    let mut rules = if has_own_rules { section_rules(backend) } else { Vec::new() };
    rules.push(Rule::Act(Action::Pool(pool, settings), Vec::new()));
    rules
}

/// Returns the settings of the routes from a frontend to a backend.
fn route_settings(backend: &Proxy, frontend: &Proxy, draft: &mut Draft<'_>) -> Vec<RouteSetting> {
    let mut settings = retry_settings(backend, draft);
    // HAProxy sends the field if one of both says so.
    if let (None, Some((words, origin))) = (&frontend.forwardfor, &backend.forwardfor) {
        match forwardfor_problem(words) {
            Some(reason) => draft.leave(Kind::NotSupported, origin, reason),
            None => {
                settings.push(RouteSetting::new("forwarding.x-forwarded", Value::Bool(true), origin));
                if words.first().is_some_and(|word| word == "if-none") {
                    let value = Value::text("if-none");
                    settings.push(RouteSetting::new("forwarding.forwarded-for", value, origin));
                }
            }
        }
    }
    settings
}

/// Converts `retry-on`.
fn retry_settings(backend: &Proxy, draft: &mut Draft<'_>) -> Vec<RouteSetting> {
    let Some((words, origin)) = &backend.retry_on else { return Vec::new() };
    let mut results = Vec::new();
    for word in words {
        match word.as_str() {
            // A connection that fails is always retried, unless there is no retry.
            "conn-failure" => {}
            "none" => return vec![RouteSetting::new("retries", Value::Number(0), origin)],
            "response-timeout" => results.push("timeout"),
            "all-retryable-errors" => {
                results.extend(["timeout", "500", "502", "503", "504"]);
                let text = "a request is not sent again after an empty or invalid response, nor after 425";
                draft.leave(Kind::Differs, origin, text);
            }
            status if status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) => {
                results.push(status);
            }
            other => draft.leave(Kind::Differs, origin, format!("weir does not retry after '{other}'")),
        }
    }
    if results.is_empty() {
        return Vec::new();
    }
    let text = "a request that is not idempotent, and that a server may have received, is not sent again";
    draft.leave(Kind::Differs, origin, text);
    vec![RouteSetting::new("retry-on", Value::texts(results), origin)]
}

/// Adds the listeners of a section: one for all binds with the same settings.
fn add_listeners(proxy: &Proxy, draft: &mut Draft<'_>, fill: impl Fn(&mut Section)) -> Vec<ListenerGroup> {
    let mut groups: Vec<ListenerGroup> = Vec::new();
    let mut rest: Vec<&super::server::Bind> =
        proxy.binds.iter().filter(|bind| !bind.addresses.is_empty()).collect();
    if rest.is_empty() {
        return vec![add_default_listener(proxy, draft, &fill)];
    }
    while let Some(first) = rest.first().copied() {
        let is_same = |bind: &&super::server::Bind| {
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
        if words.first().is_some_and(|word| word == "if-none") {
            section.set_in("forwarding", "forwarded-for", Value::text("if-none"), &[]);
        } else if let Some(reason) = forwardfor_problem(words) {
            draft.leave(Kind::NotSupported, origin, reason);
        }
    }
    section.set_in("forwarding", "via", Value::Bool(false), &[]);
    section.set_in("forwarding", "request-id", Value::Bool(false), &[]);
}

/// Adds the pool of a section once, and returns its name.
fn add_pool(
    index: usize,
    proxies: &[Proxy],
    global: &Global,
    pools: &mut BTreeMap<usize, String>,
    is_tcp: bool,
    draft: &mut Draft<'_>,
) -> String {
    if let Some(name) = pools.get(&index) {
        return name.clone();
    }
    let proxy = &proxies[index];
    let name = draft.pool_names.add(&proxy.name);
    let mut section = Section::named("pool", &name, proxy.head.iter().map(Rc::clone).collect());
    if proxy.servers.is_empty() {
        section.note("The source has no server for it: this is a placeholder.");
        section.set("servers", Value::List(vec![Value::text("127.0.0.1:1")]), &[]);
        if let Some(head) = &proxy.head {
            draft.leave(Kind::Needs, head, "a server");
        }
    } else {
        super::pool::write(proxy, global, is_tcp, &mut section, draft);
    }
    draft.push_pool(section, &name);
    pools.insert(index, name.clone());
    name
}

/// Adds one log for each target, if a section logs.
fn add_logs(global: &Global, proxies: &[Proxy], draft: &mut Draft<'_>) {
    let mut targets: Vec<(&str, Origins)> = Vec::new();
    let listening = proxies.iter().filter(|proxy| proxy.kind != ProxyKind::Backend);
    for proxy in listening {
        let global_logs = proxy.logs_globally.iter().flat_map(|origin| {
            global
                .logs
                .iter()
                .map(move |(target, first)| (target.as_str(), vec![Rc::clone(first), Rc::clone(origin)]))
        });
        let own = proxy.logs.iter().map(|(target, origin)| (target.as_str(), vec![Rc::clone(origin)]));
        for (target, origins) in global_logs.chain(own) {
            if !targets.iter().any(|(other, _)| *other == target) {
                targets.push((target, origins));
            }
        }
    }
    for (target, origins) in targets {
        let mut section = Section::of_array("log", origins);
        section.set("to", Value::text(target), &[]);
        section.set("format", Value::text("haproxy"), &[]);
        draft.document.logs.push(section);
    }
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::NoSurroundings;
    use crate::{Program, convert};

    #[test]
    fn settings_of_a_backend_are_those_of_its_routes() {
        let text = "frontend f\n  mode http\n  bind :80\n  use_backend a if { path_beg /a/ }\n  default_backend b\n\
                    backend a\n  mode http\n  option forwardfor if-none\n  retry-on conn-failure 503 response-timeout\n  server s 10.0.0.1:80\n\
                    backend b\n  mode http\n  retry-on none\n  server s 10.0.0.2:80\n";
        let import = convert(Program::Haproxy, "t.cfg", text, &mut NoSurroundings).unwrap();
        let config = &import.config;
        let mut routes = config.split("[[route]]").skip(1).filter(|route| route.contains("pool = "));
        let (a, b) = (routes.next().unwrap(), routes.next().unwrap());
        assert!(a.contains("retry-on = [\"503\", \"timeout\"]"), "{config}");
        assert!(a.contains("x-forwarded = true") && a.contains("forwarded-for = \"if-none\""), "{config}");
        assert!(b.contains("retries = 0") && !b.contains("forwarded"), "{config}");
        assert!(
            import.report.iter().any(|left| left.to_string().contains("not idempotent")),
            "{:?}",
            import.report
        );
    }
}
