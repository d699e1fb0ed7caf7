//! `server` of nginx: addresses, names and their order.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use record::sorted::sort_by_key;

use super::compression::write_compression;
use super::location::{Location, server_rules};
use super::pool::Upstream;
use super::scope::{Scope, Time};
use super::settings::{Common, body_max, size_value};
use super::variables::host_regex;
use crate::directive::Directive;
use crate::document::{Origin, Origins, Section, Value};
use crate::draft::{Draft, is_host, time_value};
use crate::left::Kind;
use crate::rules::{Condition, Rule, Test, ValueTest, specialise};
use crate::text::escape_regex;

/// nginx's limit of bodies without `client_max_body_size`.
pub(super) const BODY_MAX: u64 = 1 << 20;

/// One `listen`.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    address: String,
    port: Option<u16>,
    has_tls: bool,
    is_default: bool,
    accepts_proxy: bool,
    origin: Rc<Origin>,
}

/// One `server`.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) listens: Vec<Listen>,
    pub(super) names: Vec<String>,
    pub(super) scope: Scope,
    /// `return`, `rewrite` and `if` of the server itself.
    pub(super) directives: Vec<Directive>,
    pub(super) locations: Vec<Location>,
    pub(super) origin: Rc<Origin>,
    /// True if a scope of it has trusted proxies, of which there may be thousands.
    has_real_ip: OnceCell<bool>,
}

impl Server {
    /// Reads a block.
    pub(super) fn read(
        directive: &Directive,
        inner: &[Directive],
        outer: &Scope,
        draft: &mut Draft<'_>,
    ) -> Self {
        let mut server = Self {
            listens: Vec::new(),
            names: Vec::new(),
            scope: outer.inner(inner),
            directives: Vec::new(),
            locations: Vec::new(),
            origin: Rc::clone(&directive.origin),
            has_real_ip: OnceCell::new(),
        };
        server.read_directives(inner, draft);
        if server.listens.is_empty() {
            // nginx's default, for root.
            server.listens.push(server.implied_listen("0.0.0.0:80", 80));
        }
        server
    }

    fn implied_listen(&self, address: &str, port: u16) -> Listen {
        let origin = super::variables::implied(&self.origin, "without `listen`, this address is the default");
        Listen {
            address: address.to_owned(),
            port: Some(port),
            has_tls: false,
            is_default: false,
            accepts_proxy: false,
            origin,
        }
    }

    /// Makes a server of the directives of a fragment.
    pub(super) fn fragment(directives: &[Directive], outer: &Scope, draft: &mut Draft<'_>) -> Self {
        // Invariant: the caller has at least one directive.
        let origin = directives.first().map(|directive| Rc::clone(&directive.origin));
        let origin =
            origin.unwrap_or_else(|| Rc::new(Origin { file: "".into(), line: 1, text: String::new() }));
        let head = Directive { words: vec!["server".into()], block: None, origin: Rc::clone(&origin) };
        let mut server = Self::read(&head, directives, outer, draft);
        if !directives.iter().any(|directive| directive.name() == "listen") {
            server.listens = vec![server.implied_listen("127.0.0.1:8080", 8080)];
        }
        server
    }

    fn read_directives(&mut self, directives: &[Directive], draft: &mut Draft<'_>) {
        // Settings first: locations inherit them.
        for directive in directives.iter().filter(|directive| directive.name() != "location") {
            match directive.name() {
                "listen" => self.add_listen(directive, draft),
                "server_name" => {
                    self.names.extend(directive.arguments().iter().map(|name| name.to_lowercase()))
                }
                "return" | "rewrite" | "if" | "break" | "set" | "root" | "index" | "try_files"
                | "proxy_pass" | "alias" | "autoindex" => {
                    if matches!(directive.name(), "root" | "index" | "autoindex") {
                        self.scope.apply(directive, draft);
                    }
                    self.directives.push(directive.clone());
                }
                "ssl" if directive.argument(0) == "on" => {
                    self.listens.iter_mut().for_each(|listen| listen.has_tls = true)
                }
                _ => self.scope.apply_or_leave(directive, draft),
            }
        }
        for directive in directives.iter().filter(|directive| directive.name() == "location") {
            self.locations.push(Location::read(directive, &self.scope, draft));
        }
    }

    fn add_listen(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        let origin = &directive.origin;
        let Some((address, port)) = listen_address(directive.argument(0)) else {
            return draft.leave(
                Kind::NotSupported,
                origin,
                "a listener has an IP address with a port, or a unix socket",
            );
        };
        let mut listen = Listen {
            address,
            port,
            has_tls: false,
            is_default: false,
            accepts_proxy: false,
            origin: Rc::clone(origin),
        };
        for parameter in directive.arguments().get(1..).unwrap_or_default() {
            match parameter.split('=').next().unwrap_or_default() {
                "ssl" => listen.has_tls = true,
                "default_server" | "default" => listen.is_default = true,
                "proxy_protocol" => listen.accepts_proxy = true,
                "quic" | "http3" => {
                    return draft.leave(Kind::NotSupported, origin, "weir has HTTP/1.1 and HTTP/2, no QUIC");
                }
                "http2" | "reuseport" | "backlog" | "deferred" | "ipv6only" | "fastopen" | "rcvbuf"
                | "sndbuf" | "so_keepalive" | "bind" => {}
                _ => {
                    self.scope.refused = Some(Rc::clone(origin));
                    let text = format!(
                        "'{parameter}' of a listener, which may restrict access: all requests get 501"
                    );
                    draft.leave(Kind::NotSupported, origin, text);
                }
            }
        }
        self.listens.push(listen);
    }

    /// Returns whether all of its listeners have the standard ports, so that a host has none.
    pub(super) fn has_standard_ports(&self) -> bool {
        self.listens.iter().all(|listen| matches!(listen.port, Some(80 | 443)))
    }

    /// Returns its scope and those of its locations.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &Scope> {
        std::iter::once(&self.scope).chain(self.locations.iter().flat_map(Location::scopes))
    }

    /// Returns whether weir compares the same address of a client as nginx.
    pub(super) fn knows_source(&self) -> bool {
        let accepts_proxy = self.listens.iter().any(|listen| listen.accepts_proxy);
        let is_of_proxy = self.scope.real_ip_header.as_deref() == Some("proxy_protocol");
        let has_real_ip =
            *self.has_real_ip.get_or_init(|| self.scopes().any(|scope| !scope.trusted.is_empty()));
        if accepts_proxy { has_real_ip && is_of_proxy } else { !has_real_ip }
    }

    /// Returns what it wants to know of clients' certificates.
    fn client_certificates(&self) -> Option<(&str, Option<&str>)> {
        let verifies = self.scope.verifies_clients.as_deref().filter(|verifies| *verifies != "off")?;
        Some((verifies, self.scope.client_ca.as_ref().map(|(file, _)| file.as_str())))
    }

    pub(super) fn first_name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// Returns the address of a listener, and its port.
pub(super) fn listen_address(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Some((format!("unix:{path}"), None));
    }
    if let Ok(port) = text.parse::<u16>() {
        return Some((format!("0.0.0.0:{port}"), Some(port)));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().ok()?),
        _ => (text, 80),
    };
    let host = match host {
        "*" => "0.0.0.0",
        "localhost" => "127.0.0.1",
        host => host,
    };
    let bare = host.trim_matches(['[', ']']);
    let address = bare.parse::<std::net::IpAddr>().ok()?;
    Some((std::net::SocketAddr::new(address, port).to_string(), Some(port)))
}

/// Rank of a name: an exact one, a wildcard at the start, one at the end, an expression, none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Exact,
    /// Longer ones first.
    Leading(std::cmp::Reverse<usize>),
    Trailing(std::cmp::Reverse<usize>),
    Regex,
}

/// Addresses with the same servers in the same order.
struct Group {
    addresses: Vec<Listen>,
    servers: Vec<usize>,
    default: usize,
}

/// Adds the listeners and routes of all servers.
pub(super) fn assemble(servers: &[Server], upstreams: &[Upstream], draft: &mut Draft<'_>) {
    let common = Common::of(servers);
    let mut rules: Vec<Option<Vec<Rule>>> = vec![None; servers.len()];
    let mut names: Vec<Vec<Vec<(Rank, Condition)>>> = Vec::new();
    for server in servers {
        names.push(ranked_names(server, draft));
        super::add_log(&server.scope, draft);
    }
    for group in groups(servers) {
        let listener = add_listener(&group, servers, common, draft);
        let mut taken = TakenNames::default();
        let mut units: Vec<(Rank, usize, Condition)> = Vec::new();
        let mut own: Vec<(Rank, Condition)> = Vec::new();
        for &index in &group.servers {
            for (name, ranked) in servers[index].names.iter().zip(&names[index]) {
                if !taken.take(name) {
                    continue;
                }
                for (rank, condition) in ranked {
                    match index == group.default {
                        true => own.push((*rank, condition.clone())),
                        false => units.push((*rank, index, condition.clone())),
                    }
                }
            }
        }
        // The names of the default server come first where they are more exact than those of others.
        for (rank, condition) in &own {
            if units.iter().any(|(other, ..)| other > rank || (other == rank && *rank == Rank::Regex)) {
                units.push((*rank, group.default, condition.clone()));
            }
        }
        sort_by_key(&mut units, |(rank, index, _)| (*rank, *index));
        let mut all: Vec<Rule> = Vec::new();
        let refused = refused_servers(&group, servers, draft);
        for (_, index, condition) in join_units(units) {
            if let Some(origin) = refused.get(&index) {
                all.push(Rule::refuse(condition, origin));
                continue;
            }
            let inner = rules_of(index, servers, (upstreams, common), &mut rules, draft);
            all.push(Rule::When(condition, inner.into(), vec![Rc::clone(&servers[index].origin)]));
        }
        if let Some(origin) = refused.get(&group.default) {
            all.push(Rule::refuse(Condition::Always, origin));
        }
        let last = rules_of(group.default, servers, (upstreams, common), &mut rules, draft);
        all.push(Rule::When(Condition::Always, last.into(), vec![Rc::clone(&servers[group.default].origin)]));
        let (has_tls, port) =
            group.addresses.first().map_or((false, None), |listen| (listen.has_tls, listen.port));
        draft.add_routes(&[listener], specialise(&all, has_tls, port));
    }
    let is_unused = |upstream: &&Upstream| !draft.pool_names.contains(&upstream.name);
    let unused: Vec<&Upstream> = upstreams.iter().filter(is_unused).collect();
    if servers.is_empty() {
        add_unused(&unused, draft);
    }
}

/// Returns the servers of a listener whose certificates of clients it cannot ask for, because others want something
/// else. weir asks for them before it knows the host.
fn refused_servers(group: &Group, servers: &[Server], draft: &mut Draft<'_>) -> HashMap<usize, Rc<Origin>> {
    let mut refused = HashMap::new();
    if !group.addresses[0].has_tls {
        return refused;
    }
    let common = common_certificates(group.servers.iter().map(|&index| &servers[index]));
    for &index in &group.servers {
        let server = &servers[index];
        let is_met =
            server.client_certificates().is_none_or(|wanted| common == Some(wanted) && wanted.1.is_some());
        if !is_met {
            let origin = server.scope.client_ca.as_ref().map_or(&server.origin, |(_, origin)| origin);
            let text = "a listener has one policy for certificates of clients, of an authority: the requests of the \
                        server get 501";
            draft.leave(Kind::NotSupported, origin, text);
            refused.insert(index, Rc::clone(origin));
        }
    }
    refused
}

/// Returns what all servers want to know of clients' certificates; `None`: nothing, or not the same.
fn common_certificates<'s>(
    mut servers: impl Iterator<Item = &'s Server>,
) -> Option<(&'s str, Option<&'s str>)> {
    let first = servers.next()?.client_certificates()?;
    let is_supported = matches!(first.0, "on" | "optional");
    (is_supported && servers.all(|other| other.client_certificates() == Some(first))).then_some(first)
}

/// Adds the pools of a fragment without servers, and a listener for the first one.
fn add_unused(upstreams: &[&Upstream], draft: &mut Draft<'_>) {
    for (index, upstream) in upstreams.iter().enumerate() {
        let text = format!("http://{}", upstream.name);
        let Some(destination) = super::pool::Destination::parse(&text) else { continue };
        let origin = Rc::new(Origin { file: "".into(), line: 1, text });
        let pool = {
            let scope = Scope::default();
            super::pool::add(
                &destination,
                &[(*upstream).clone()],
                (&scope, Common::default()),
                &origin,
                draft,
            )
        };
        if let (0, Some(pool)) = (index, pool) {
            let mut section = Section::named("listener", "web", Vec::new());
            section.note("The source has no server: this is a default.");
            section.set("bind", Value::text("127.0.0.1:8080"), &[]);
            section.set("pool", Value::text(pool), &[]);
            draft.document.listeners.push(section);
        }
    }
}

/// Joins conditions of the same server that follow each other.
fn join_units(units: Vec<(Rank, usize, Condition)>) -> Vec<(Rank, usize, Condition)> {
    let mut joined: Vec<(Rank, usize, Condition)> = Vec::new();
    for (rank, index, condition) in units {
        match joined.last_mut() {
            Some((_, last, all)) if *last == index => {
                *all = std::mem::replace(all, Condition::Never).or(condition);
            }
            _ => joined.push((rank, index, condition)),
        }
    }
    joined
}

fn rules_of(
    index: usize,
    servers: &[Server],
    (upstreams, common): (&[Upstream], Common),
    known: &mut [Option<Vec<Rule>>],
    draft: &mut Draft<'_>,
) -> Vec<Rule> {
    if let Some(rules) = &known[index] {
        return rules.clone();
    }
    let rules = server_rules(&servers[index], upstreams, common, draft);
    known[index] = Some(rules.clone());
    rules
}

/// Names of a listener so far: the first server with a name has it.
#[derive(Default)]
struct TakenNames {
    exact: HashSet<String>,
    leading: HashSet<String>,
    trailing: HashSet<String>,
}

impl TakenNames {
    /// Takes a name. Returns false if nginx ignores it, because it has it already.
    fn take(&mut self, name: &str) -> bool {
        if name.starts_with('~') {
            true
        } else if let Some(base) = name.strip_prefix('.') {
            // This name is ignored as a whole.
            self.exact.insert(base.to_owned()) && self.leading.insert(base.to_owned())
        } else if let Some(base) = name.strip_prefix("*.") {
            self.leading.insert(base.to_owned())
        } else if let Some(base) = name.strip_suffix(".*") {
            self.trailing.insert(base.to_owned())
        } else {
            self.exact.insert(name.to_owned())
        }
    }
}

/// Returns the conditions of each name of a server.
fn ranked_names(server: &Server, draft: &mut Draft<'_>) -> Vec<Vec<(Rank, Condition)>> {
    let names = server.names.iter();
    names.map(|name| ranked_name(name, server, draft)).collect()
}

fn ranked_name(name: &str, server: &Server, draft: &mut Draft<'_>) -> Vec<(Rank, Condition)> {
    let mut ranked = Vec::new();
    let host = |text: String| Condition::test(Test::Host(text));
    let length = std::cmp::Reverse(name.len());
    let unknown = format!("the server name '{name}': requests that it may be for get 501");
    if name.is_empty() {
        ranked.push((Rank::Exact, Condition::test(Test::Header("host".into(), ValueTest::Absent))));
    } else if name == "_" || name.starts_with('$') {
        // It matches no host, so only the default server has it.
    } else if let Some(regex) = name.strip_prefix('~') {
        let condition = host_regex(regex, false).unwrap_or(Condition::Unknown);
        if !condition.is_exact() {
            draft.leave(Kind::NotSupported, &server.origin, unknown);
        }
        ranked.push((Rank::Regex, condition));
    } else if let Some(base) = name.strip_prefix('.').filter(|base| is_host(base)) {
        ranked.push((Rank::Exact, host(base.to_owned())));
        ranked.push((Rank::Leading(length), host(format!("*.{base}"))));
    } else if name.starts_with("*.") && is_host(name) {
        ranked.push((Rank::Leading(length), host(name.to_owned())));
    } else if let Some(start) = name.strip_suffix(".*").filter(|start| is_host(start)) {
        let regex = format!("(?i)^{}\\.[^:]+(:[0-9]+)?$", escape_regex(start));
        let test = Test::Header("host".into(), ValueTest::Regex(regex));
        ranked.push((Rank::Trailing(length), Condition::test(test)));
    } else if is_host(name) {
        ranked.push((Rank::Exact, host(name.to_owned())));
    } else {
        draft.leave(Kind::NotSupported, &server.origin, unknown);
        ranked.push((Rank::Exact, Condition::Unknown));
    }
    ranked
}

/// Returns the addresses, joined if they have the same servers and settings.
fn groups(servers: &[Server]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        for listen in &server.listens {
            match groups.iter_mut().find(|group| group.addresses[0].address == listen.address) {
                Some(group) => {
                    if !group.servers.contains(&index) {
                        group.servers.push(index);
                    }
                    if listen.is_default {
                        group.default = index;
                    }
                    let first = &mut group.addresses[0];
                    first.has_tls |= listen.has_tls;
                    first.accepts_proxy |= listen.accepts_proxy;
                }
                None => groups.push(Group {
                    addresses: vec![listen.clone()],
                    servers: vec![index],
                    default: index,
                }),
            }
        }
    }
    let mut joined: Vec<Group> = Vec::new();
    for group in groups {
        let first = &group.addresses[0];
        let same = joined.iter_mut().find(|other| {
            let listen = &other.addresses[0];
            let is_same_kind = listen.has_tls == first.has_tls && listen.accepts_proxy == first.accepts_proxy;
            is_same_kind
                && listen.port == first.port
                && other.servers == group.servers
                && other.default == group.default
        });
        match same {
            Some(other) => other.addresses.extend(group.addresses),
            None => joined.push(group),
        }
    }
    joined
}

fn add_listener(group: &Group, servers: &[Server], common: Common, draft: &mut Draft<'_>) -> String {
    let first = &group.addresses[0];
    let wanted = match (first.has_tls, first.port) {
        (true, Some(443)) => "https".to_owned(),
        (false, Some(80)) => "http".to_owned(),
        (_, Some(port)) => format!("port-{port}"),
        (_, None) => "unix".to_owned(),
    };
    let name = draft.listener_name(&wanted);
    let mut section = Section::named("listener", &name, Vec::new());
    let origins: Origins = group.addresses.iter().map(|listen| Rc::clone(&listen.origin)).collect();
    section.set("bind", Value::texts(group.addresses.iter().map(|listen| listen.address.clone())), &origins);
    let members: Vec<&Server> = group.servers.iter().map(|&index| &servers[index]).collect();
    let scope = &servers[group.default].scope;
    if first.has_tls {
        write_tls(&members, scope, &first.origin, &mut section, draft);
    }
    // Trust of one server is not that of the others.
    let networks =
        |server: &Server| server.scope.trusted.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>();
    let is_common = members.iter().all(|server| networks(server) == networks(&servers[group.default]));
    if let (false, Some((_, origin))) =
        (is_common, members.iter().find_map(|server| server.scope.trusted.first()))
    {
        draft.leave(
            Kind::NotSupported,
            origin,
            "`trusted` is that of a listener, whose servers have different ones",
        );
    }
    let trusted: Vec<&(String, Rc<Origin>)> = scope.trusted.iter().filter(|_| is_common).collect();
    if !trusted.is_empty() {
        let origins: Origins = trusted.iter().map(|(_, origin)| Rc::clone(origin)).collect();
        section.set("trusted", Value::texts(trusted.iter().map(|(text, _)| text.as_str())), &origins);
    }
    if first.accepts_proxy {
        section.set("proxy-protocol", Value::Bool(true), std::slice::from_ref(&first.origin));
        if trusted.is_empty() {
            draft.leave(
                Kind::Needs,
                &first.origin,
                "the networks of the peers that send PROXY headers, in `trusted`",
            );
        }
    }
    write_body_max(&members, &mut section);
    write_compression(&members, common, &mut section, draft);
    write_times(scope, &mut section);
    write_forwarding(&members, &mut section);
    draft.document.listeners.push(section);
    name
}

fn write_times(scope: &Scope, section: &mut Section) {
    for (time, key) in [
        (Time::ClientHeader, "head"),
        (Time::ClientBody, "body-idle"),
        (Time::Send, "write"),
        (Time::KeepAlive, "keep-alive"),
    ] {
        if let Some((ms, origin)) = scope.time(time) {
            section.set_in("timeouts", key, time_value(ms), &[origin]);
        }
    }
}

fn write_body_max(members: &[&Server], section: &mut Section) {
    let scopes = members.iter().flat_map(|server| server.scopes());
    let limits = scopes.map(|scope| (body_max(scope), scope.body_max.as_ref().map(|(_, origin)| origin)));
    // 0 is no limit.
    let key = |bytes: u64| if bytes == 0 { u64::MAX } else { bytes };
    // Routes have the smaller ones.
    let Some((largest, origin)) = limits.max_by_key(|(bytes, _)| key(*bytes)) else { return };
    if largest > 0 {
        let origins: Origins = origin.into_iter().map(Rc::clone).collect();
        section.set("body-max", size_value(largest), &origins);
    }
}

fn write_forwarding(members: &[&Server], section: &mut Section) {
    let mut origins: Origins = Vec::new();
    let mut request_id: Option<(&str, &Rc<Origin>)> = None;
    for scope in members.iter().flat_map(|server| server.scopes()) {
        for origin in client_address_origins(scope) {
            crate::document::add_origin(&mut origins, origin);
        }
        for (name, value, origin) in &scope.set_headers {
            if value == "$request_id" && crate::draft::is_field_name(name) {
                request_id = Some((name, origin));
            }
        }
    }
    section.set_in("forwarding", "x-forwarded", Value::Bool(!origins.is_empty()), &origins);
    section.set_in("forwarding", "via", Value::Bool(false), &[]);
    match request_id {
        Some((name, origin)) => {
            let value = Value::text(name.to_ascii_lowercase());
            section.set_in("forwarding", "request-id", value, std::slice::from_ref(origin));
        }
        None => section.set_in("forwarding", "request-id", Value::Bool(false), &[]),
    }
}

/// Returns the directives of a scope that send `X-Forwarded-For`.
pub(super) fn client_address_origins(scope: &Scope) -> Vec<&Rc<Origin>> {
    let set = scope.set_headers.iter();
    let own = set
        .filter(|(name, value, _)| name.eq_ignore_ascii_case("x-forwarded-for") && is_client_address(value));
    own.map(|(.., origin)| origin).collect()
}

/// Returns whether a value of `X-Forwarded-For` is that of weir.
pub(super) fn is_client_address(value: &str) -> bool {
    matches!(value, "$proxy_add_x_forwarded_for" | "$remote_addr" | "$realip_remote_addr")
}

fn write_tls(
    members: &[&Server],
    scope: &Scope,
    origin: &Rc<Origin>,
    section: &mut Section,
    draft: &mut Draft<'_>,
) {
    section.set("tls", Value::Table(Vec::new()), std::slice::from_ref(origin));
    let mut certificates: Vec<Value> = Vec::new();
    let mut origins: Origins = Vec::new();
    for server in members {
        let Some((file, origin)) = &server.scope.certificate else { continue };
        let key = server.scope.certificate_key.as_deref().unwrap_or(file);
        if !draft.surroundings.exists(file) || !draft.surroundings.exists(key) {
            let text = format!(
                "the certificate {file} and its key {key}, missing here: a self-signed one is in their place"
            );
            draft.leave(Kind::Needs, origin, text);
            continue;
        }
        let value = Value::table([("certificate", Value::text(file)), ("key", Value::text(key))]);
        if !certificates.contains(&value) {
            certificates.push(value);
            origins.push(Rc::clone(origin));
        }
    }
    match certificates.is_empty() {
        true => section.set_in("tls", "self-signed", Value::Bool(true), &[]),
        false => section.set_in("tls", "certificates", Value::List(certificates), &origins),
    }
    // The strictest of all.
    if let Some(origin) = members.iter().find_map(|server| server.scope.only_tls13.as_ref()) {
        section.set_in("tls", "min-version", Value::text("1.3"), std::slice::from_ref(origin));
    }
    let Some((verifies, Some(file))) = common_certificates(members.iter().copied()) else { return };
    let origin = scope.client_ca.as_ref().map_or(origin, |(_, origin)| origin);
    // Without the file weir does not start: a listener that lets everybody in is no replacement.
    draft.existing_file(file, origin);
    section.set_in("tls", "client-ca", Value::text(file), std::slice::from_ref(origin));
    if verifies == "optional" {
        section.set_in("tls", "client-certificate", Value::text("optional"), &[]);
    }
}
