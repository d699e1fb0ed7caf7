//! Addresses of sites, global options, and the listeners.

use std::rc::Rc;

use record::sorted::sort_by_key;

use super::matcher::{host_condition, template};
use super::site::{ORDER, SiteRules, site_rules};
use crate::directive::Directive;
use crate::document::{Origin, Origins, Section, Value};
use crate::draft::{Draft, is_host, network, redirect};
use crate::left::Kind;
use crate::rules::{Action, Condition, Rule, Test, ValueTest, has_test, specialise};
use crate::text::{Template, Variable};

/// Global options.
#[derive(Debug)]
pub(super) struct Options {
    http_port: u16,
    https_port: u16,
    has_auto_https: bool,
    redirects: bool,
    trusted: Vec<(String, Rc<Origin>)>,
    /// The client's address is one of a field.
    has_trusted_proxies: bool,
    is_local: bool,
    /// Names of directives in the order of their application.
    order: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            http_port: 80,
            https_port: 443,
            has_auto_https: true,
            redirects: true,
            trusted: Vec::new(),
            has_trusted_proxies: false,
            is_local: false,
            order: ORDER.split(' ').map(str::to_owned).collect(),
        }
    }
}

impl Options {
    /// Reads the block of global options.
    pub(super) fn read(&mut self, block: &[Directive], draft: &mut Draft<'_>) {
        for directive in block {
            let port = directive.argument(0).parse::<u16>();
            match (directive.name(), port) {
                ("http_port", Ok(port)) => self.http_port = port,
                ("https_port", Ok(port)) => self.https_port = port,
                ("auto_https", _) => match directive.argument(0) {
                    "off" => (self.has_auto_https, self.redirects) = (false, false),
                    "disable_redirects" => self.redirects = false,
                    _ => {}
                },
                ("local_certs", _) => self.is_local = true,
                ("order", _) => self.reorder(directive, draft),
                ("servers", _) => self.read_servers(directive, draft),
                ("grace_period", _) => {
                    let time = super::proxy::milliseconds(directive.argument(0));
                    if let Some(ms) = time {
                        let origins = std::slice::from_ref(&directive.origin);
                        draft.document.top.set("drain-timeout", crate::draft::time_value(ms), origins);
                    }
                }
                (name, _) => {
                    let words = ["option", name];
                    let row = crate::row::find(super::TABLE, &words);
                    let (kind, reason) = row.map_or((Kind::NotSupported, "weir has no such option"), |row| {
                        (row.kind.unwrap_or(Kind::NotSupported), row.becomes)
                    });
                    draft.leave(kind, &directive.origin, reason);
                }
            }
        }
    }

    /// Moves a directive: `order NAME first`, `last`, `before OTHER`, `after OTHER`.
    fn reorder(&mut self, directive: &Directive, draft: &mut Draft<'_>) {
        let words: Vec<&str> = directive.arguments().iter().map(String::as_str).collect();
        let (name, to) = match words[..] {
            [name, to @ ("first" | "last")] => (name, Some((to, ""))),
            [name, to @ ("before" | "after"), other] => (name, Some((to, other))),
            _ => ("", None),
        };
        self.order.retain(|other| other != name);
        let place = to.and_then(|(to, other)| match to {
            "first" => Some(0),
            "last" => Some(self.order.len()),
            to => self
                .order
                .iter()
                .position(|listed| listed == other)
                .map(|place| place + usize::from(to == "after")),
        });
        match place {
            Some(place) => self.order.insert(place, name.to_owned()),
            None => draft.too_long(
                &directive.origin,
                "order has a directive, first or last, or before or after and a directive",
            ),
        }
    }

    fn read_servers(&mut self, servers: &Directive, draft: &mut Draft<'_>) {
        for directive in servers.inner() {
            match (directive.name(), directive.argument(0)) {
                ("trusted_proxies", "static") => {
                    self.has_trusted_proxies = true;
                    for word in directive.arguments().iter().skip(1) {
                        match (word.as_str(), network(word)) {
                            ("private_ranges", _) => {
                                let ranges = super::matcher::PRIVATE.iter();
                                self.trusted.extend(
                                    ranges.map(|text| ((*text).to_owned(), Rc::clone(&directive.origin))),
                                );
                            }
                            (_, Some(text)) => self.trusted.push((text, Rc::clone(&directive.origin))),
                            (_, None) => draft.leave(
                                Kind::NotSupported,
                                &directive.origin,
                                "trusted peers are networks",
                            ),
                        }
                    }
                }
                (name, _) => {
                    self.has_trusted_proxies |= matches!(name, "trusted_proxies" | "listener_wrappers");
                    let text = "of the options of servers, only trusted_proxies static";
                    draft.leave(Kind::NotSupported, &directive.origin, text);
                }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct SiteAddress {
    host: Option<String>,
    port: u16,
    has_tls: bool,
    /// HTTPS and its redirect come by themselves.
    is_automatic: bool,
}

/// A site with its rules.
struct Site<'a> {
    block: &'a Directive,
    addresses: Vec<SiteAddress>,
    rules: SiteRules,
}

impl Site<'_> {
    fn binds(&self) -> Vec<String> {
        self.rules.binds.iter().map(|(host, _)| host.clone()).collect()
    }
}

/// Addresses of a listener. Sites of another interface are not reached there.
#[derive(PartialEq)]
struct Place {
    port: u16,
    has_tls: bool,
    binds: Vec<String>,
}

impl Place {
    fn listener_name(&self) -> String {
        match (self.port, self.has_tls) {
            (80, false) => "http".to_owned(),
            (443, true) => "https".to_owned(),
            (port, _) => format!("port-{port}"),
        }
    }
}

/// Adds the listeners and routes of all sites.
pub(super) fn assemble(blocks: &[&Directive], options: &Options, draft: &mut Draft<'_>) {
    let mut sites: Vec<Site<'_>> = Vec::new();
    for block in blocks {
        let words = block.words.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty());
        let mut addresses = Vec::new();
        for word in words {
            match parse_address(word, options) {
                Some(address) => addresses.push(address),
                // Without it, its requests would follow the rules of another site.
                None => draft.too_long(
                    &block.origin,
                    format!("'{word}' is no address of a site that weir has: give it a host without a path"),
                ),
            }
        }
        if addresses.is_empty() {
            continue;
        }
        let rules = site_rules(block.inner(), &options.order, options.has_trusted_proxies, draft);
        if rules.tls.is_some() {
            for address in addresses.iter_mut().filter(|address| address.port != options.http_port) {
                address.has_tls = true;
            }
        }
        sites.push(Site { block, addresses, rules });
    }
    let mut places: Vec<Place> = Vec::new();
    let mut add = |place: Place| {
        if !places.contains(&place) {
            places.push(place);
        }
    };
    for site in &sites {
        for address in &site.addresses {
            add(Place { port: address.port, has_tls: address.has_tls, binds: site.binds() });
        }
    }
    for site in &sites {
        if options.redirects && site.addresses.iter().any(|address| address.is_automatic) {
            add(Place { port: options.http_port, has_tls: false, binds: site.binds() });
        }
    }
    for place in places {
        add_listener(&place, &sites, options, draft);
    }
}

/// Parses an address like `https://a.example:8443`.
fn parse_address(text: &str, options: &Options) -> Option<SiteAddress> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    // A path of an address is a matcher of the whole site.
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('/') || rest.contains('{') {
        return None;
    }
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
        _ => (rest, None),
    };
    let host = (!host.is_empty() && host != "*").then(|| host.to_ascii_lowercase());
    if !host.as_deref().is_none_or(is_host) {
        return None;
    }
    let (port, has_tls) = match (scheme, port, &host) {
        (Some("http"), port, _) => (port.unwrap_or(options.http_port), false),
        (Some("https"), port, _) => (port.unwrap_or(options.https_port), true),
        (Some(_), ..) => return None,
        (None, Some(port), None) => (port, port == options.https_port),
        (None, Some(port), Some(_)) => (port, port != options.http_port && options.has_auto_https),
        (None, None, Some(_)) if options.has_auto_https => (options.https_port, true),
        (None, None, _) => (options.http_port, false),
    };
    let is_automatic = has_tls && scheme.is_none_or(|scheme| scheme == "https") && host.is_some();
    Some(SiteAddress { host, port, has_tls, is_automatic })
}

fn add_listener(place: &Place, sites: &[Site<'_>], options: &Options, draft: &mut Draft<'_>) {
    let (port, has_tls) = (place.port, place.has_tls);
    let wanted = place.listener_name();
    let is_here = |address: &&SiteAddress| address.port == port && address.has_tls == has_tls;
    let members: Vec<&Site<'_>> = sites
        .iter()
        .filter(|site| site.binds() == place.binds && site.addresses.iter().any(|address| is_here(&address)))
        .collect();
    let name = draft.listener_name(&wanted);
    let origins: Origins = members.iter().map(|site| Rc::clone(&site.block.origin)).collect();
    let mut section = Section::named("listener", &name, origins);
    match place.binds.is_empty() {
        true => section.set("bind", Value::text(format!(":{port}")), &[]),
        false => {
            let mut addresses: Vec<String> =
                place.binds.iter().map(|host| bind_address(host, port)).collect();
            addresses.dedup();
            let binds = members.first().map_or(&[][..], |site| &site.rules.binds);
            let origins: Origins = binds.iter().map(|(_, origin)| Rc::clone(origin)).collect();
            section.set("bind", Value::texts(addresses), &origins);
        }
    }
    if has_tls {
        write_tls(&members, options, &mut section, draft);
    }
    if !options.trusted.is_empty() {
        let origins: Origins = options.trusted.iter().map(|(_, origin)| Rc::clone(origin)).collect();
        section.set("trusted", Value::texts(options.trusted.iter().map(|(text, _)| text.as_str())), &origins);
    }
    for (bytes, origin) in members.iter().filter_map(|site| site.rules.body_max.as_ref()) {
        if members.len() == 1 {
            section.set("body-max", Value::Number(*bytes), std::slice::from_ref(origin));
        } else {
            draft.leave(
                Kind::NotSupported,
                origin,
                "body-max is a limit of the listener, which other sites share",
            );
        }
    }
    section.set_in("forwarding", "via", Value::Bool(false), &[]);
    section.set_in("forwarding", "request-id", Value::Bool(false), &[]);
    draft.document.listeners.push(section);
    let rules = listener_rules(place, &members, sites, options);
    draft.add_routes(&[name], specialise(&rules, has_tls, Some(port)));
}

/// Returns the rules of a listener, the last one for all requests.
fn listener_rules(place: &Place, members: &[&Site<'_>], sites: &[Site<'_>], options: &Options) -> Vec<Rule> {
    let mut rules = host_rules(members, place.port, place.has_tls);
    let has_redirects = !place.has_tls && place.port == options.http_port && options.redirects;
    let here = || sites.iter().filter(|site| site.binds() == place.binds);
    if has_redirects {
        rules.extend(https_redirects(here(), options));
    }
    if let (true, Some(site)) = (has_test(&rules, |test| matches!(test, Test::Host(_))), members.first()) {
        // Caddy takes a name with a final dot for another host.
        let test = Test::Header("host".into(), ValueTest::Regex("\\.(:[0-9]+)?$".into()));
        rules.insert(0, Rule::refuse(Condition::test(test), &site.block.origin));
    }
    let is_automatic = |site: &&Site<'_>| site.addresses.iter().any(|address| address.is_automatic);
    if let Some(site) = here().find(is_automatic).filter(|_| has_redirects) {
        let text = "Caddy redirects the other hosts to https".to_owned();
        let (file, line) = (Rc::clone(&site.block.origin.file), site.block.origin.line);
        let action = redirect(308, https_location(options.https_port, options));
        let origin = Rc::new(Origin { file, line, text });
        rules.extend(action.map(|action| Rule::Act(action, vec![origin])));
    }
    // Caddy responds with nothing to the other hosts.
    let nothing = Action::Return { status: 200, content_type: None, body: String::new() };
    rules.push(Rule::Act(nothing, Vec::new()));
    rules
}

fn bind_address(host: &str, port: u16) -> String {
    match host {
        host if host.starts_with("unix/") => {
            format!("unix:{}", host["unix/".len()..].split('|').next().unwrap_or_default())
        }
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        "localhost" => format!("127.0.0.1:{port}"),
        host => format!("{host}:{port}"),
    }
}

/// Returns the rules of the sites of a listener: names first, then wildcards, then any host.
fn host_rules(members: &[&Site<'_>], port: u16, has_tls: bool) -> Vec<Rule> {
    let mut units: Vec<(u8, std::cmp::Reverse<usize>, Condition, &Site<'_>)> = Vec::new();
    for site in members {
        let here = site.addresses.iter().filter(|address| address.port == port && address.has_tls == has_tls);
        let hosts: Vec<Option<&str>> = here.map(|address| address.host.as_deref()).collect();
        if hosts.contains(&None) {
            units.push((2, std::cmp::Reverse(0), Condition::Always, site));
        }
        for host in hosts.into_iter().flatten() {
            // Invariant: an address of a site has a host that weir compares.
            let condition = host_condition(host).unwrap_or(Condition::Unknown);
            units.push((u8::from(host.starts_with('*')), std::cmp::Reverse(host.len()), condition, site));
        }
    }
    sort_by_key(&mut units, |(rank, length, ..)| (*rank, *length));
    let shared: Vec<(*const Directive, Rc<[Rule]>)> = members
        .iter()
        .map(|site| (std::ptr::from_ref(site.block), site.rules.rules.clone().into()))
        .collect();
    let mut rules: Vec<(*const Directive, Condition, &Site<'_>)> = Vec::new();
    for (_, _, condition, site) in units {
        let block = std::ptr::from_ref(site.block);
        match rules.last_mut() {
            // Hosts of a site that follow each other share its routes.
            Some((last, all, _)) if *last == block => {
                *all = std::mem::replace(all, Condition::Never).or(condition);
            }
            _ => rules.push((block, condition, site)),
        }
    }
    let rules = rules.into_iter().filter_map(|(block, condition, site)| {
        let (_, inner) = shared.iter().find(|(other, _)| *other == block)?;
        Some(Rule::When(condition, Rc::clone(inner), vec![Rc::clone(&site.block.origin)]))
    });
    rules.collect()
}

/// Returns the redirects to HTTPS that come by themselves.
fn https_redirects<'s>(sites: impl Iterator<Item = &'s Site<'s>>, options: &Options) -> Vec<Rule> {
    let mut rules = Vec::new();
    for site in sites {
        for address in site.addresses.iter().filter(|address| address.is_automatic) {
            let Some(host) = &address.host else { continue };
            let location = https_location(address.port, options);
            rules.extend(redirect_rule(host, location, &site.block.origin));
        }
    }
    rules
}

/// Returns the address of a request at a port of HTTPS.
fn https_location(port: u16, options: &Options) -> Template {
    let mut location = template("https://{host}").unwrap_or_default();
    if port != options.https_port && port != 443 {
        location.push_text(&format!(":{port}"));
    }
    location.push(Variable::Path);
    location.push(Variable::Query);
    location
}

fn redirect_rule(host: &str, location: Template, origin: &Rc<Origin>) -> Option<Rule> {
    let text = format!("{} redirects to https", origin.text.trim_end_matches(" {"));
    let origin = Rc::new(Origin { file: Rc::clone(&origin.file), line: origin.line, text });
    Some(Rule::act_when(host_condition(host)?, redirect(308, location)?, &origin))
}

fn write_tls(members: &[&Site<'_>], options: &Options, section: &mut Section, draft: &mut Draft<'_>) {
    let (mut certificates, mut origins) = (Vec::new(), Vec::new());
    for site in members {
        let hosts: Vec<&str> = site.addresses.iter().filter_map(|address| address.host.as_deref()).collect();
        match &site.rules.tls {
            Some((words, origin)) if words.len() == 2 => {
                let (file, key) = (&words[0], &words[1]);
                if draft.surroundings.exists(file) && draft.surroundings.exists(key) {
                    certificates
                        .push(Value::table([("certificate", Value::text(file)), ("key", Value::text(key))]));
                    origins.push(Rc::clone(origin));
                } else {
                    let text = format!(
                        "the certificate {file} and its key {key}, missing here: a self-signed one is in their place"
                    );
                    draft.leave(Kind::Needs, origin, text);
                }
            }
            Some((words, _)) if words.first().is_some_and(|word| word == "internal") => {}
            _ if options.is_local => {}
            other => {
                let origin = other.as_ref().map_or(&site.block.origin, |(_, origin)| origin);
                let is_local = |host: &&str| {
                    *host == "localhost"
                        || host.ends_with(".localhost")
                        || host.parse::<std::net::IpAddr>().is_ok()
                };
                if hosts.iter().any(|host| !is_local(host)) || hosts.is_empty() {
                    let domains: Vec<String> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
                    let text = format!(
                        "a certificate: tls = {{ acme = {{ directory = \"https://acme-v02.api.letsencrypt.org/directory\", \
                         domains = [{}], storage = DIRECTORY, agree-to-terms = true }} }}; a self-signed one is in its place",
                        domains.join(", ")
                    );
                    draft.leave(Kind::Needs, origin, text);
                }
            }
        }
    }
    section.set("tls", Value::Table(Vec::new()), &[]);
    match certificates.is_empty() {
        true => section.set_in("tls", "self-signed", Value::Bool(true), &[]),
        false => section.set_in("tls", "certificates", Value::List(certificates), &origins),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_decide_on_https() {
        let options = Options::default();
        let parse =
            |text| parse_address(text, &options).map(|site| (site.port, site.has_tls, site.is_automatic));
        assert_eq!(parse("a.example"), Some((443, true, true)));
        assert_eq!(parse("a.example:8443"), Some((8443, true, true)));
        assert_eq!(parse("http://a.example"), Some((80, false, false)));
        assert_eq!(parse("a.example:80"), Some((80, false, false)));
        assert_eq!(parse(":8080"), Some((8080, false, false)));
        assert_eq!(parse("localhost:8080"), Some((8080, true, true)));
        assert_eq!(parse("https://a.example/x"), None);
        let off = Options { has_auto_https: false, ..Options::default() };
        assert!(!parse_address("a.example", &off).unwrap().has_tls);
    }
}
