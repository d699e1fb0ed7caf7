//! Locations of nginx: their order, and the rules of each.

use std::rc::Rc;

use super::pool::{Destination, Upstream, add as add_pool};
use super::scope::{Scope, leave};
use super::server::{Server, is_client_address};
use super::variables::{condition, implied, portable, template};
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, fixed_response, is_changeable, is_normal_path, redirect};
use crate::left::Kind;
use crate::rules::{Action, Change, Condition, PathTest, Rule, Test};
use crate::text::{Template, Variable};

/// Reason for files.
pub(super) const FILES: &str =
    "weir proxy forwards requests, and has no files: weir serve has. The route responds 501";
/// Reason for authentication.
const PROTECTED: &str = "weir has no authentication: the route refuses all requests with 501";
/// Maximum number of fallbacks behind each other.
const FALLBACKS_MAX: usize = 4;

/// Kind of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocationKind {
    Exact,
    /// A prefix that stops the search of expressions.
    Preferred,
    Regex,
    Prefix,
    Named,
}

/// One location.
#[derive(Clone, Debug)]
pub(super) struct Location {
    kind: LocationKind,
    path: String,
    pub(super) scope: Scope,
    directives: Vec<Directive>,
    inner: Vec<Self>,
    origin: Rc<Origin>,
}

impl Location {
    /// Reads a block.
    pub(super) fn read(directive: &Directive, outer: &Scope, draft: &mut Draft<'_>) -> Self {
        let (first, second) = (directive.argument(0), directive.argument(1));
        let (kind, path) = match first {
            "=" => (LocationKind::Exact, second.to_owned()),
            "^~" => (LocationKind::Preferred, second.to_owned()),
            "~" => (LocationKind::Regex, second.to_owned()),
            "~*" => (LocationKind::Regex, format!("(?i){second}")),
            name if name.starts_with('@') => (LocationKind::Named, name.to_owned()),
            path if path.starts_with('=') => (LocationKind::Exact, path[1..].to_owned()),
            path => (LocationKind::Prefix, path.to_owned()),
        };
        let mut location = Self {
            kind,
            path,
            scope: outer.inner(directive.inner()),
            directives: Vec::new(),
            inner: Vec::new(),
            origin: Rc::clone(&directive.origin),
        };
        for inner in directive.inner().iter().filter(|inner| inner.name() != "location") {
            if is_of_location(inner.name()) {
                location.directives.push(inner.clone());
            } else if !location.scope.apply(inner, draft) {
                leave(inner, draft);
            }
        }
        for inner in directive.inner().iter().filter(|inner| inner.name() == "location") {
            location.inner.push(Self::read(inner, &location.scope, draft));
        }
        location
    }

    /// Returns the condition of its path; `None`: weir cannot compare it.
    fn condition(&self) -> Option<Condition> {
        let path = |test| Some(Condition::test(Test::Path(test)));
        match self.kind {
            LocationKind::Exact if is_normal_path(&self.path) => path(PathTest::Exact(self.path.clone())),
            LocationKind::Preferred | LocationKind::Prefix if self.path == "/" => Some(Condition::Always),
            LocationKind::Preferred | LocationKind::Prefix if is_normal_path(&self.path) => {
                path(PathTest::Begins(self.path.clone()))
            }
            LocationKind::Regex => path(PathTest::Regex(portable(&self.path, false)?)),
            _ => None,
        }
    }

    /// Returns its scope and those inside of it.
    pub(super) fn scopes(&self) -> Box<dyn Iterator<Item = &Scope> + '_> {
        Box::new(std::iter::once(&self.scope).chain(self.inner.iter().flat_map(Self::scopes)))
    }

    fn directive(&self, name: &str) -> Option<&Directive> {
        self.directives.iter().find(|directive| directive.name() == name)
    }

    fn destination(&self) -> Option<&Directive> {
        self.directives.iter().find(|directive| matches!(directive.name(), "proxy_pass" | "grpc_pass"))
    }
}

/// Returns whether a directive is one of the location itself, and not of its scope.
fn is_of_location(name: &str) -> bool {
    const NAMES: [&str; 20] = [
        "return",
        "rewrite",
        "if",
        "proxy_pass",
        "grpc_pass",
        "try_files",
        "root",
        "alias",
        "index",
        "autoindex",
        "internal",
        "fastcgi_pass",
        "uwsgi_pass",
        "scgi_pass",
        "memcached_pass",
        "stub_status",
        "limit_except",
        "deny_all",
        "empty_gif",
        "flv",
    ];
    NAMES.contains(&name)
}

/// Converts the locations of one server.
struct Converter<'a, 'd> {
    server: &'a Server,
    /// True if a listener of the config sends `X-Forwarded-For`.
    sends_client_address: bool,
    upstreams: &'a [Upstream],
    draft: &'a mut Draft<'d>,
}

/// Returns the rules of a server, the last one for all requests.
pub(super) fn server_rules(
    server: &Server,
    upstreams: &[Upstream],
    sends_client_address: bool,
    draft: &mut Draft<'_>,
) -> Vec<Rule> {
    let mut converter = Converter { server, sends_client_address, upstreams, draft };
    let mut rules = converter.rewrite_phase(&server.directives);
    let ends = rules.iter().any(|rule| matches!(rule, Rule::Act(..)));
    if ends {
        return rules;
    }
    let locations = flatten(&server.locations);
    rules.extend(converter.location_rules(&locations));
    let last = locations.iter().find(|location| location.path == "/" && location.kind != LocationKind::Exact);
    if last.is_none() {
        rules.extend(converter.default_rules());
    }
    rules
}

/// Returns the locations with those inside of them, which are as good as beside them.
fn flatten(locations: &[Location]) -> Vec<&Location> {
    locations.iter().flat_map(|location| std::iter::once(location).chain(flatten(&location.inner))).collect()
}

impl Converter<'_, '_> {
    /// Returns the rules of the locations, in nginx's order.
    fn location_rules(&mut self, locations: &[&Location]) -> Vec<Rule> {
        let mut ordered: Vec<(u8, std::cmp::Reverse<usize>, &Location)> = Vec::new();
        let has_regex = locations.iter().any(|location| location.kind == LocationKind::Regex);
        for location in locations.iter().copied().filter(|location| location.kind != LocationKind::Named) {
            let length = std::cmp::Reverse(location.path.len());
            let group = match location.kind {
                LocationKind::Exact => 0,
                // Without expressions the length decides alone.
                LocationKind::Preferred if has_regex => 1,
                LocationKind::Regex => 2,
                _ => 3,
            };
            let zero = std::cmp::Reverse(0);
            ordered.push((group, if group == 2 { zero } else { length }, location));
        }
        ordered.sort_by_key(|(group, length, _)| (*group, *length));
        self.report_hidden(&ordered);
        let mut rules = self.slash_redirects(locations);
        for (_, _, location) in ordered {
            match location.condition() {
                Some(condition) => self.add_location(location, condition, &mut rules),
                None => self.draft.leave(
                    Kind::NotSupported,
                    &location.origin,
                    "the path is not in normal form, or its expression uses a feature that weir does not have",
                ),
            }
        }
        rules
    }

    /// Reports prefixes inside of one with `^~`: expressions are compared for them, and not here.
    fn report_hidden(&mut self, ordered: &[(u8, std::cmp::Reverse<usize>, &Location)]) {
        let preferred = ordered.iter().filter(|(group, ..)| *group == 1);
        for (_, _, outer) in preferred {
            let hidden = ordered.iter().find(|(group, _, inner)| {
                *group == 3 && inner.path.len() > outer.path.len() && inner.path.starts_with(&outer.path)
            });
            if let Some((_, _, inner)) = hidden {
                self.draft.leave(
                    Kind::NotSupported,
                    &inner.origin,
                    "a location inside of one with ^~: it is not reached",
                );
            }
        }
    }

    /// Returns the redirects to the slash at the end of a location that forwards.
    fn slash_redirects(&mut self, locations: &[&Location]) -> Vec<Rule> {
        let mut rules = Vec::new();
        for location in locations {
            let is_prefix = matches!(location.kind, LocationKind::Prefix | LocationKind::Preferred);
            let Some(bare) = location.path.strip_suffix('/').filter(|bare| !bare.is_empty()) else {
                continue;
            };
            let is_taken =
                locations.iter().any(|other| other.path == bare && other.kind != LocationKind::Regex);
            if !is_prefix || is_taken || location.destination().is_none() || !is_normal_path(&location.path) {
                continue;
            }
            let mut template = Template::from(location.path.as_str());
            template.push(Variable::Query);
            if let Some(action) = redirect(301, template) {
                let origin = implied(&location.origin, &format!("{} redirects {bare}", location.origin.text));
                let inner = vec![Rule::Act(action, Vec::new())];
                rules.push(Rule::When(
                    Condition::test(Test::Path(PathTest::Exact(bare.into()))),
                    inner,
                    vec![origin],
                ));
            }
        }
        rules
    }

    fn add_location(&mut self, location: &Location, condition: Condition, rules: &mut Vec<Rule>) {
        let mut inner = self.rewrite_phase(&location.directives);
        if inner.iter().any(|rule| matches!(rule, Rule::Act(..))) {
            let changes = self.changes(&location.scope, None);
            inner.splice(0..0, changes);
            return rules.push(Rule::When(condition, inner, vec![Rc::clone(&location.origin)]));
        }
        let content = self.content(location, 0);
        inner.extend(self.access_phase(&location.scope, content));
        let rewrites = inner.iter().find_map(|rule| match rule {
            Rule::Change(Condition::Always, Change::RewritePrefix(prefix, _), _) => Some(prefix.clone()),
            _ => None,
        });
        let origins = vec![Rc::clone(&location.origin)];
        match rewrites {
            Some(prefix) if location.kind != LocationKind::Exact => {
                let narrow = Condition::test(Test::Path(PathTest::Prefix(prefix.clone())));
                rules.push(Rule::When(narrow, inner, origins.clone()));
                if !prefix.ends_with('/') {
                    // Paths that only begin with the same bytes reach no other location.
                    rules.push(Rule::When(
                        condition,
                        vec![Rule::Act(Action::Deny(501), Vec::new())],
                        origins,
                    ));
                }
            }
            _ => rules.push(Rule::When(condition, inner, origins)),
        }
    }

    /// Returns the rules for requests that no location takes.
    fn default_rules(&mut self) -> Vec<Rule> {
        let fallback = Location {
            kind: LocationKind::Prefix,
            path: "/".into(),
            scope: self.server.scope.clone(),
            directives: self.server.directives.clone(),
            inner: Vec::new(),
            origin: Rc::clone(&self.server.origin),
        };
        let has_files = ["root", "index", "try_files", "proxy_pass"]
            .iter()
            .any(|name| fallback.directive(name).is_some());
        let content = match has_files {
            true => self.content(&fallback, 0),
            // nginx has only the files of its package then.
            false => vec![Rule::Act(Action::Deny(404), Vec::new())],
        };
        self.access_phase(&self.server.scope.clone(), content)
    }

    /// Converts `return`, `rewrite` and `if`, in their order.
    fn rewrite_phase(&mut self, directives: &[Directive]) -> Vec<Rule> {
        let mut rules = Vec::new();
        for directive in directives {
            match directive.name() {
                "return" => {
                    match self.returned(directive) {
                        Some(action) => rules.push(Rule::Act(action, vec![Rc::clone(&directive.origin)])),
                        None => {
                            self.draft.leave(
                                Kind::NotSupported,
                                &directive.origin,
                                "the response depends on the request: the route responds 501",
                            );
                            rules.push(Rule::Act(Action::Deny(501), vec![Rc::clone(&directive.origin)]));
                        }
                    }
                    return rules;
                }
                "rewrite" => match self.rewritten(directive) {
                    Some(rule) => rules.push(rule),
                    None => self.draft.leave(
                        Kind::NotSupported,
                        &directive.origin,
                        "paths are rewritten by a prefix or as a whole, and redirected with their query",
                    ),
                },
                "if" => self.add_if(directive, &mut rules),
                _ => {}
            }
        }
        rules
    }

    fn add_if(&mut self, directive: &Directive, rules: &mut Vec<Rule>) {
        let origin = &directive.origin;
        let Some(condition) = condition(directive) else {
            return self.draft.leave(Kind::NotSupported, origin, "weir has no such condition");
        };
        let inner = self.rewrite_phase(directive.inner());
        for other in directive.inner() {
            if !matches!(other.name(), "return" | "rewrite") {
                self.draft.leave(
                    Kind::NotSupported,
                    &other.origin,
                    "of a block `if`, only return and rewrite",
                );
            }
        }
        if !inner.is_empty() {
            rules.push(Rule::When(condition, inner, vec![Rc::clone(origin)]));
        }
    }

    fn returned(&self, directive: &Directive) -> Option<Action> {
        let arguments = directive.arguments();
        let (status, text) = match arguments {
            [url] if url.contains("://") || url.starts_with('/') => (302, Some(url.as_str())),
            [status] => (status.parse::<u16>().ok()?, None),
            [status, text, ..] => (status.parse::<u16>().ok()?, Some(text.as_str())),
            [] => return None,
        };
        match (status, text) {
            (444, _) => Some(Action::SilentDrop),
            (301 | 302 | 303 | 307 | 308, Some(text)) => {
                redirect(status, template(text, self.server.first_name())?)
            }
            (status, text) => {
                let text = text.unwrap_or_default();
                let literal = template(text, self.server.first_name())?;
                let content_type = self.server.scope.default_type.as_deref().unwrap_or("text/plain");
                fixed_response(status, Some(content_type), literal.literal()?)
            }
        }
    }

    /// Converts `rewrite`: redirects, and prefixes with `break`.
    fn rewritten(&self, directive: &Directive) -> Option<Rule> {
        let (regex, replacement, flag) =
            (directive.argument(0), directive.argument(1), directive.argument(2));
        let origin = &directive.origin;
        let is_redirect = matches!(flag, "permanent" | "redirect") || replacement.contains("://");
        let (replacement, keeps_query) = match replacement.strip_suffix('?') {
            Some(replacement) => (replacement, false),
            None => (replacement, !replacement.contains("$request_uri")),
        };
        if !is_redirect {
            let prefix = regex.strip_prefix('^')?;
            let prefix = prefix.strip_suffix('$').unwrap_or(prefix).strip_suffix("/(.*)")?;
            let target = replacement.strip_suffix("/$1")?;
            let is_valid = is_normal_path(prefix) && (target.is_empty() || is_normal_path(target));
            let prefix = format!("{prefix}/");
            let target = if target.is_empty() { "/" } else { target };
            let change = Change::RewritePrefix(prefix.clone(), target.to_owned());
            let condition = Condition::test(Test::Path(PathTest::Prefix(prefix)));
            return (flag == "break" && is_valid && keeps_query)
                .then(|| Rule::Change(condition, change, Rc::clone(origin)));
        }
        let status = if flag == "permanent" { 301 } else { 302 };
        let (condition, replacement) = match regex {
            "^" | ".*" | "^.*" | "^/" if !replacement.contains("$1") => {
                (Condition::Always, replacement.to_owned())
            }
            "^(.*)$" | "^(.*)" | "(.*)" | "^(/.*)$" => (Condition::Always, replacement.replace("$1", "$uri")),
            "^/(.*)$" | "^/(.*)" | "/(.*)" => (Condition::Always, replacement.replace("/$1", "$uri")),
            regex => {
                let path = regex.strip_prefix('^')?.strip_suffix('$')?;
                let bare = path.strip_suffix("/?").unwrap_or(path).replace("\\.", ".");
                let is_plain = is_normal_path(&bare) && !bare.contains(['*', '+', '(', '$']);
                // A dot of the expression is any letter.
                let has_dot = path.replace("\\.", "").contains('.');
                if !is_plain || has_dot {
                    return None;
                }
                let mut tests = vec![Test::Path(PathTest::Exact(bare.clone()))];
                if path.ends_with("/?") {
                    tests.push(Test::Path(PathTest::Exact(format!("{bare}/"))));
                }
                (Condition::Tests(tests), replacement.to_owned())
            }
        };
        let mut location = template(&replacement, self.server.first_name())?;
        if keeps_query {
            location.push(Variable::Query);
        }
        let inner = vec![Rule::Act(redirect(status, location)?, vec![Rc::clone(origin)])];
        Some(match condition {
            Condition::Always => inner.into_iter().next()?,
            condition => Rule::When(condition, inner, Vec::new()),
        })
    }

    /// Returns the rules with `allow` and `deny` in front.
    fn access_phase(&mut self, scope: &Scope, content: Vec<Rule>) -> Vec<Rule> {
        let mut rules = Vec::new();
        for access in &scope.access {
            let condition = match &access.network {
                Some(network) => Condition::test(Test::Source(network.clone())),
                None => Condition::Always,
            };
            let inner = match access.allows {
                true => content.clone(),
                false => vec![Rule::Act(Action::Deny(403), Vec::new())],
            };
            rules.push(Rule::When(condition, inner, vec![Rc::clone(&access.origin)]));
        }
        rules.extend(content);
        rules
    }

    /// Returns the rules of what a location responds with.
    fn content(&mut self, location: &Location, depth: usize) -> Vec<Rule> {
        let deny = |status: u16| vec![Rule::Act(Action::Deny(status), Vec::new())];
        let denies_all =
            location.scope.access.first().is_some_and(|access| !access.allows && access.network.is_none());
        if denies_all {
            return deny(403);
        }
        if let Some(origin) = &location.scope.protected {
            self.draft.leave(Kind::NotSupported, origin, PROTECTED);
            return deny(501);
        }
        if location.directive("internal").is_some() {
            return deny(404);
        }
        let mut rules = self.limited_methods(location);
        if let Some(directive) = location.destination() {
            rules.extend(self.forward(location, directive));
            return rules;
        }
        if let Some(directive) = location.directive("try_files") {
            let fallback = directive.arguments().last().map_or("", String::as_str);
            let locations = flatten(&self.server.locations);
            let target = locations.into_iter().find(|other| {
                depth < FALLBACKS_MAX && other.kind == LocationKind::Named && other.path == fallback
            });
            if let Some(target) = target {
                let text = format!("weir proxy has no files: all requests go to {fallback}");
                self.draft.leave(Kind::NotSupported, &directive.origin, text);
                rules.extend(self.content(target, depth + 1));
                return rules;
            }
        }
        let other = location.directives.iter().find(|directive| directive.name().ends_with("_pass"));
        match (other, location.directive("stub_status")) {
            (Some(directive), _) => leave(directive, self.draft),
            (None, Some(directive)) => leave(directive, self.draft),
            (None, None) => self.draft.leave(Kind::NotSupported, &location.origin, FILES),
        }
        rules.extend(deny(501));
        rules
    }

    /// Converts `limit_except` with `deny all`.
    fn limited_methods(&mut self, location: &Location) -> Vec<Rule> {
        let Some(directive) = location.directive("limit_except") else { return Vec::new() };
        let is_denied = directive.inner().iter().all(|inner| inner.words == ["deny", "all"]);
        if !is_denied {
            self.draft.leave(
                Kind::NotSupported,
                &directive.origin,
                "the other methods are refused, whoever sends them",
            );
        }
        let mut methods: Vec<String> = directive.arguments().to_vec();
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".into());
        }
        let condition = Condition::Tests(methods.into_iter().map(Test::Method).collect()).negate();
        let inner = vec![Rule::Act(Action::Deny(403), Vec::new())];
        vec![Rule::When(condition, inner, vec![Rc::clone(&directive.origin)])]
    }

    fn forward(&mut self, location: &Location, directive: &Directive) -> Vec<Rule> {
        let origin = &directive.origin;
        let text = directive.argument(0);
        let with_scheme = match directive.name() {
            "grpc_pass" if !text.contains("://") => format!("grpc://{text}"),
            _ => text.to_owned(),
        };
        let Some(destination) = Destination::parse(&with_scheme) else {
            self.draft.leave(
                Kind::NotSupported,
                origin,
                "the destination depends on the request: the route responds 501",
            );
            return vec![Rule::Act(Action::Deny(501), vec![Rc::clone(origin)])];
        };
        let pool = add_pool(&destination, self.upstreams, &location.scope, origin, self.draft);
        let Some(pool) = pool else { return vec![Rule::Act(Action::Deny(502), vec![Rc::clone(origin)])] };
        let mut rules = self.changes(&location.scope, Some(&destination));
        if let Some(uri) = &destination.uri {
            rules.extend(self.rewrite_of_uri(location, uri, origin));
        }
        rules.push(Rule::Act(Action::Pool(pool), vec![Rc::clone(origin)]));
        rules
    }

    /// Converts the part of `proxy_pass` behind the host, which replaces the path of the location.
    fn rewrite_of_uri(&mut self, location: &Location, uri: &str, origin: &Rc<Origin>) -> Option<Rule> {
        let path = &location.path;
        if uri == path {
            return None;
        }
        if !is_normal_path(uri) {
            self.draft.leave(
                Kind::NotSupported,
                origin,
                "the path that replaces that of the location is not in normal form",
            );
            return None;
        }
        let change = |change| Some(Rule::Change(Condition::Always, change, Rc::clone(origin)));
        match location.kind {
            LocationKind::Exact => change(Change::RewritePath(uri.to_owned())),
            LocationKind::Prefix | LocationKind::Preferred => {
                let is_exact = path.ends_with('/') && uri.ends_with('/');
                if !is_exact {
                    let text = format!(
                        "nginx replaces the bytes '{path}' by '{uri}', so that a slash is doubled or missing, or {path}x \
                         is forwarded: weir replaces whole segments, and responds 501 to the others"
                    );
                    self.draft.leave(Kind::NotSupported, origin, text);
                }
                change(Change::RewritePrefix(path.clone(), uri.to_owned()))
            }
            LocationKind::Regex | LocationKind::Named => None,
        }
    }

    /// Returns the changes of fields.
    fn changes(&mut self, scope: &Scope, destination: Option<&Destination>) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut add = |change, origin: &Rc<Origin>| {
            rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)))
        };
        for (name, value, origin) in &scope.add_headers {
            match template(value, self.server.first_name()) {
                Some(value) if is_changeable(name) => add(Change::AddResponse(name.clone(), value), origin),
                _ => self.draft.leave(Kind::NotSupported, origin, crate::draft::VALUE_OF_REQUEST),
            }
        }
        for (name, origin) in &scope.hidden {
            match is_changeable(name) {
                true => add(Change::RemoveResponse(name.clone()), origin),
                false => self.draft.leave(Kind::NotSupported, origin, "weir sets this field itself"),
            }
        }
        let Some(destination) = destination else { return rules };
        let has_client_address = scope
            .set_headers
            .iter()
            .any(|(name, value, _)| name.eq_ignore_ascii_case("x-forwarded-for") && is_client_address(value));
        if self.sends_client_address && !has_client_address {
            let origin =
                implied(&self.server.origin, "without proxy_set_header, there is no X-Forwarded-For");
            add(Change::RemoveRequest("X-Forwarded-*".into()), &origin);
        }
        for (name, value, origin) in &scope.set_headers {
            let change = self.request_change(name, value, has_client_address, origin);
            if let Some(change) = change {
                add(change, origin);
            }
        }
        if !scope.set_headers.iter().any(|(name, ..)| name.eq_ignore_ascii_case("host")) {
            let text = format!("without proxy_set_header, Host is {}", destination.host());
            let origin: &Rc<Origin> = &implied(&self.server.origin, &text);
            add(Change::SetRequest("Host".into(), destination.host().into()), origin);
        }
        rules
    }

    /// Converts one `proxy_set_header`; `None`: weir does so itself, or it is reported.
    fn request_change(
        &mut self,
        name: &str,
        value: &str,
        has_client_address: bool,
        origin: &Rc<Origin>,
    ) -> Option<Change> {
        let lower = name.to_ascii_lowercase();
        match (lower.as_str(), value) {
            ("upgrade" | "connection", _) => {
                self.draft.leave(
                    Kind::NoEffect,
                    origin,
                    "connections are kept, and upgrades (WebSocket) forwarded",
                );
                return None;
            }
            ("host", "$host") if !self.server.has_standard_ports() => {
                self.draft.leave(Kind::Differs, origin, "servers get the port of Host, too");
                return None;
            }
            ("host", "$host" | "$http_host") | (_, "$request_id") => return None,
            ("host", "$host:$server_port" | "$http_host:$server_port") => return None,
            ("x-forwarded-for", value) if is_client_address(value) => return None,
            ("x-forwarded-proto", "$scheme") if has_client_address => return None,
            ("x-forwarded-host", "$host" | "$http_host") if has_client_address => return None,
            // The field of the client.
            (field, value)
                if value.strip_prefix("$http_").is_some_and(|name| name.replace('_', "-") == field) =>
            {
                return None;
            }
            _ => {}
        }
        if !is_changeable(name) {
            self.draft.leave(Kind::NotSupported, origin, "weir sets this field itself");
            return None;
        }
        if value.is_empty() && lower != "host" {
            return Some(Change::RemoveRequest(name.to_owned()));
        }
        match template(value, self.server.first_name()) {
            Some(value) => Some(Change::SetRequest(name.to_owned(), value)),
            None => {
                self.draft.leave(Kind::NotSupported, origin, crate::draft::VALUE_OF_REQUEST);
                None
            }
        }
    }
}
