//! Listeners, pools and routes from the sections of HAProxy.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::listeners::add_listeners;
use super::pages;
use super::settings::{Global, Proxy, ProxyKind, parse_forwardfor};
use super::switching::{Switch, Target};
use crate::document::{Origin, Origins, Section, Value};
use crate::draft::Draft;
use crate::left::Kind;
use crate::rules::{Action, Condition, RouteSetting, Rule, Test, ValueTest, has_path_test, specialise};

/// Sections of a config, and what has been made of them.
struct Parts<'p> {
    proxies: &'p [Proxy],
    global: &'p Global,
    /// Names of pools by the index of their section.
    pools: BTreeMap<usize, String>,
    /// The pages of errors are those of routes, because sections have different ones.
    has_own_pages: bool,
}

/// Adds everything to the draft.
pub(super) fn assemble(global: &Global, proxies: Vec<Proxy>, draft: &mut Draft<'_>) {
    let mut proxies = proxies;
    for proxy in &mut proxies {
        pages::add_shared(proxy, &global.pages, draft);
    }
    let has_frontend = proxies.iter().any(|proxy| proxy.kind != ProxyKind::Backend);
    if !has_frontend {
        complete_fragment(&mut proxies);
    }
    let has_own_pages = pages::add_top(&proxies, draft);
    let mut parts = Parts { proxies: &proxies, global, pools: BTreeMap::new(), has_own_pages };
    let mut has_admin = false;
    for (index, proxy) in proxies.iter().enumerate().filter(|(_, proxy)| proxy.kind != ProxyKind::Backend) {
        if let (true, Some(head)) = (proxy.is_disabled, &proxy.head) {
            draft.leave(Kind::NotSupported, head, "the section is disabled: it has no listener");
            continue;
        }
        if add_admin(proxy, &mut has_admin, draft) {
            continue;
        }
        match is_tcp(proxy) {
            true => add_tcp(index, &mut parts, draft),
            false => add_http(index, &mut parts, draft),
        }
    }
    for (index, proxy) in proxies.iter().enumerate() {
        let is_left = proxy.kind == ProxyKind::Backend && !parts.pools.contains_key(&index);
        if is_left && !(has_frontend && answers(proxy)) {
            add_pool(index, &mut parts, false, draft);
        }
        if !is_usable(proxy) {
            proxy.stick.report_unused(draft);
        }
    }
    add_logs(global, &proxies, draft);
}

/// Returns whether the bytes of a section's connections are forwarded unchanged: HAProxy's default.
pub(super) fn is_tcp(proxy: &Proxy) -> bool {
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
            draft.leave(
                Kind::NotSupported,
                first,
                "the status page has an address of its own (admin): its path gets 501",
            );
            !forwards
        }
    }
}

fn find_backend(name: &str, proxies: &[Proxy]) -> Option<usize> {
    proxies.iter().position(|proxy| proxy.kind != ProxyKind::Frontend && proxy.name == name)
}

fn add_tcp(index: usize, parts: &mut Parts<'_>, draft: &mut Draft<'_>) {
    let proxies = parts.proxies;
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
    for Switch { condition, target, origin } in &proxy.switching {
        let backend = match target {
            Target::Backend(name) => find_backend(name, proxies),
            _ => None,
        };
        let backend = backend.filter(|&backend| is_forwarding(&proxies[backend]));
        let names = server_names(condition);
        let (Some(backend), Some(names)) = (backend, names) else {
            let text = "a pool with servers, chosen by a complete server name or by its end: connections that this \
                        line may be for are rejected";
            draft.leave(Kind::NotSupported, origin, text);
            is_complete = false;
            break;
        };
        let name = add_pool(backend, parts, true, draft);
        if names.is_empty() {
            default = Some(name);
            is_complete = false;
            break;
        }
        entries.push(Value::table([("server-name", Value::texts(names)), ("pool", Value::text(name))]));
        origins.push(Rc::clone(origin));
    }
    if is_complete {
        default = default_pool(index, parts, true, draft);
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
        part => std::slice::from_ref(part),
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
fn default_pool(index: usize, parts: &mut Parts<'_>, is_tcp: bool, draft: &mut Draft<'_>) -> Option<String> {
    let proxies = parts.proxies;
    let proxy = &proxies[index];
    match &proxy.default_backend {
        Some((name, origin)) => match find_backend(name, proxies) {
            Some(backend)
                if is_usable(&proxies[backend]) && (!is_tcp || is_forwarding(&proxies[backend])) =>
            {
                Some(add_pool(backend, parts, is_tcp, draft))
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
        None if is_usable(proxy) => Some(add_pool(index, parts, is_tcp, draft)),
        None => None,
    }
}

fn is_usable(proxy: &Proxy) -> bool {
    !proxy.servers.is_empty() && !proxy.is_disabled
}

/// Returns whether a section responds to all requests itself: it has no servers.
fn answers(proxy: &Proxy) -> bool {
    !proxy.has_server_line && !proxy.is_disabled && proxy.stats.is_empty()
}

/// Returns whether a section of mode tcp forwards all connections that it gets.
fn is_forwarding(proxy: &Proxy) -> bool {
    is_usable(proxy) && proxy.refused.is_none() && proxy.phases.refuses_connections.is_none()
}

fn add_http(index: usize, parts: &mut Parts<'_>, draft: &mut Draft<'_>) {
    let proxies = parts.proxies;
    let proxy = &proxies[index];
    let mut rules: Vec<Rule> = section_rules(proxy);
    for switch in &proxy.switching {
        rules.extend(switch_rules(index, switch, parts, draft));
    }
    rules.extend(default_rules(index, parts, draft));
    let mut rules = pages::with_pages(rules, &proxy.pages, draft);
    if let Some(origin) = raw_names(proxy) {
        let text = "server names of connections that are not decrypted: all requests get 501";
        draft.leave(Kind::NotSupported, origin, text);
        rules.insert(0, Rule::refuse(Condition::Always, origin));
    }
    let reads_path = |key: &str| key.split(['{', '}']).any(|name| name == "path");
    let is_strict = has_path_test(&rules) || draft.has_map_of(reads_path);
    if draft.has_map_of(|key| key == "host") {
        rules.insert(0, final_dot());
    }
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

/// Returns the rules of a `use_backend`.
fn switch_rules(index: usize, switch: &Switch, parts: &mut Parts<'_>, draft: &mut Draft<'_>) -> Vec<Rule> {
    let proxies = parts.proxies;
    let Switch { condition, target, origin } = switch;
    let names = proxies.iter().filter(|proxy| proxy.kind != ProxyKind::Frontend).map(|proxy| &*proxy.name);
    let Some((cases, doubt)) = target.cases(names, origin, draft) else {
        return vec![Rule::refuse(condition.clone(), origin)];
    };
    let is_fixed = matches!(target, Target::Backend(_));
    let mut inner = Vec::new();
    for (case, name) in cases {
        let backend = find_backend(&name, proxies);
        let rules =
            match backend.filter(|&backend| is_usable(&proxies[backend]) || answers(&proxies[backend])) {
                Some(backend) => {
                    let pool = is_usable(&proxies[backend]).then(|| add_pool(backend, parts, false, draft));
                    backend_rules((&proxies[backend], &proxies[index]), pool, parts, draft)
                }
                // The request gets the default backend.
                None if backend.is_none() && !is_fixed => default_rules(index, parts, draft),
                None => {
                    draft.leave(
                        Kind::NotSupported,
                        origin,
                        format!("there is no backend '{name}' with a server"),
                    );
                    vec![Rule::Act(Action::Deny(503), Vec::new())]
                }
            };
        inner.push(Rule::When(case, rules.into(), Vec::new()));
    }
    if !is_fixed {
        if doubt != Condition::Never {
            draft.leave(
                Kind::NotSupported,
                origin,
                "the text of the map is another one in weir for some requests",
            );
        }
        let rest = Condition::Always.except(&doubt);
        inner.push(Rule::When(rest, default_rules(index, parts, draft).into(), Vec::new()));
    }
    vec![Rule::When(condition.clone(), inner.into(), vec![Rc::clone(origin)])]
}

/// Returns the rules of the requests that no `use_backend` decides about.
fn default_rules(index: usize, parts: &mut Parts<'_>, draft: &mut Draft<'_>) -> Vec<Rule> {
    let proxies = parts.proxies;
    let proxy = &proxies[index];
    let origins: Origins = proxy.default_backend.iter().map(|(_, origin)| Rc::clone(origin)).collect();
    let named = proxy.default_backend.as_ref().and_then(|(name, _)| find_backend(name, proxies));
    let backend = &proxies[named.unwrap_or(index)];
    let pool = match named.is_some() && answers(backend) {
        true => None,
        false => match default_pool(index, parts, false, draft) {
            Some(pool) => Some(pool),
            // HAProxy has no server then.
            None => return vec![Rule::Act(Action::Deny(503), origins)],
        },
    };
    let inner = backend_rules((backend, proxy), pool, parts, draft);
    vec![Rule::When(Condition::Always, inner.into(), origins)]
}

/// Returns a line with a server name of connections that weir does not decrypt.
fn raw_names(proxy: &Proxy) -> Option<&Rc<Origin>> {
    let is_name =
        |part: &Condition| matches!(part, Condition::Test(test) if matches!(**test, Test::ServerName(_)));
    let is_plain = !proxy.binds.iter().all(|bind| bind.tls.is_some());
    let line = proxy.switching.iter().find(|line| is_plain && line.condition.contains(&is_name));
    line.map(|line| &line.origin)
}

/// Returns the refusal of hosts with a dot at their end, which weir compares without it.
fn final_dot() -> Rule {
    let text = "weir compares a host without a dot at its end, the other program with it";
    let origin = Rc::new(Origin { file: "import".into(), line: 0, text: text.to_owned() });
    let regex = ValueTest::Regex("\\.(?::[0-9]*)?$".to_owned());
    Rule::refuse(Condition::test(Test::Header("host".to_owned(), regex)), &origin)
}

/// Returns the rules of a section for requests.
fn section_rules(proxy: &Proxy) -> Vec<Rule> {
    let refused = proxy.refused.iter().map(|origin| Rule::refuse(Condition::Always, origin));
    refused.chain(proxy.phases.rules().cloned()).collect()
}

/// Returns the rules of a backend, and those that forward to its pool. `None`: it has no servers.
fn backend_rules(
    (backend, frontend): (&Proxy, &Proxy),
    pool: Option<String>,
    parts: &Parts<'_>,
    draft: &mut Draft<'_>,
) -> Vec<Rule> {
    // A section with both roles has its rules in front already.
    let is_own = std::ptr::eq(backend, frontend);
    let mut rules = if is_own { Vec::new() } else { section_rules(backend) };
    match pool {
        Some(pool) => {
            let own = backend.phases.response_rules().filter(|_| !is_own);
            rules.extend(own.chain(frontend.phases.response_rules()).cloned());
            rules.extend(pool_rules((backend, frontend), pool, parts, draft));
        }
        None => rules.push(Rule::Act(Action::Deny(503), Vec::new())),
    }
    pages::with_pages(rules, &backend.pages, draft)
}

/// Returns the rules that forward to a pool, without the addresses of some clients.
fn pool_rules(
    (backend, frontend): (&Proxy, &Proxy),
    pool: String,
    parts: &Parts<'_>,
    draft: &mut Draft<'_>,
) -> Vec<Rule> {
    let settings = route_settings((backend, frontend), parts, draft);
    let mut options: Vec<&(Vec<String>, Rc<Origin>)> =
        [&frontend.forwardfor, &backend.forwardfor].into_iter().flatten().collect();
    options.dedup();
    let networks = options.iter().filter_map(|(words, origin)| {
        let network = parse_forwardfor(words).ok()?.except?;
        Some((Test::Source(network), Rc::clone(origin)))
    });
    let (tests, origins): (Vec<_>, Origins) = networks.unzip();
    let mut rules = Vec::new();
    if let Some(origin) = origins.first().cloned() {
        let mut settings = settings.clone();
        settings.retain(|setting| setting.table != "forwarding");
        settings.push(RouteSetting::new("forwarding.x-forwarded", Value::Bool(false), &origin));
        let inner = [Rule::Act(Action::Pool(pool.clone(), settings), Vec::new())];
        rules.push(Rule::When(Condition::tests(tests), inner.into(), origins));
    }
    rules.push(Rule::Act(Action::Pool(pool, settings), Vec::new()));
    rules
}

/// Returns the settings of the routes from a frontend to a backend.
fn route_settings(
    (backend, frontend): (&Proxy, &Proxy),
    parts: &Parts<'_>,
    draft: &mut Draft<'_>,
) -> Vec<RouteSetting> {
    let mut settings = retry_settings(backend, draft);
    if parts.has_own_pages {
        settings.extend(pages::route_setting(backend, frontend, draft));
    }
    if backend.compression != frontend.compression
        && let Some((value, origin)) = backend.compression.value(draft)
    {
        settings.push(RouteSetting::new("compression", value, &origin));
    }
    // HAProxy sends the field if one of both says so.
    if let (None, Some((words, origin))) = (&frontend.forwardfor, &backend.forwardfor) {
        match parse_forwardfor(words) {
            Err(reason) => draft.leave(Kind::NotSupported, origin, reason),
            Ok(option) => {
                settings.push(RouteSetting::new("forwarding.x-forwarded", Value::Bool(true), origin));
                if option.if_none {
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

/// Adds the pool of a section once, and returns its name.
fn add_pool(index: usize, parts: &mut Parts<'_>, is_tcp: bool, draft: &mut Draft<'_>) -> String {
    let proxies = parts.proxies;
    if let Some(name) = parts.pools.get(&index) {
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
        super::pool::write(proxy, parts.global, is_tcp, &mut section, draft);
    }
    draft.push_pool(section, &name);
    parts.pools.insert(index, name.clone());
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
        let mut section = Section::new_array("log", origins);
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
