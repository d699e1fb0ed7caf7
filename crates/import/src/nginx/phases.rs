//! Phases of a request in a location of nginx: rewrites, access, content.

use std::rc::Rc;

use super::location::{Location, LocationKind};
use super::pool::{Destination, Upstream, add as add_pool};
use super::scope::{Scope, leave};
use super::server::{Server, is_client_address};
use super::settings::{Common, route_settings};
use super::variables::{condition, implied, template};
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, fixed_response, is_changeable, redirect};
use crate::left::Kind;
use crate::paths::{decoded_begins, decoded_exact, decoded_regex, is_normal_path};
use crate::rules::{Action, Change, Condition, PathTest, Rule, Test};
use crate::text::Variable;

/// Reason for files.
pub(super) const FILES: &str =
    "weir proxy forwards requests, and has no files: weir serve has. The route responds 501";
/// Reason for authentication.
const PROTECTED: &str = "weir has no authentication: the route refuses all requests with 501";
/// Maximum number of fallbacks behind each other.
const FALLBACKS_MAX: usize = 4;

/// Converts the locations of one server.
pub(super) struct Converter<'a, 'd> {
    pub(super) server: &'a Server,
    pub(super) common: Common,
    pub(super) upstreams: &'a [Upstream],
    pub(super) draft: &'a mut Draft<'d>,
}

impl Converter<'_, '_> {
    /// Returns what a location does, in the order of nginx's phases. The last rule is for all requests.
    pub(super) fn body(&mut self, location: &Location) -> Vec<Rule> {
        if let Some(origin) = &location.scope.refused {
            return vec![Rule::refuse(Condition::Always, origin)];
        }
        if let Some(directive) = location.directive("internal") {
            return vec![Rule::Act(Action::Deny(404), vec![Rc::clone(&directive.origin)])];
        }
        self.phases(location, 0)
    }

    fn phases(&mut self, location: &Location, depth: usize) -> Vec<Rule> {
        if let Some(origin) = &location.scope.refused {
            return vec![Rule::refuse(Condition::Always, origin)];
        }
        let mut behind = Vec::new();
        if !always_returns(&location.directives) {
            behind = self.access_of(location);
            let is_closed = matches!(behind.last(), Some(Rule::Act(..)));
            if !is_closed {
                behind.extend(self.content(location, depth));
            }
        }
        let is_elsewhere = location.destination().is_none() && location.directive("try_files").is_some();
        let mut rules = if is_elsewhere { Vec::new() } else { self.response_changes(&location.scope) };
        rules.extend(self.rewrite_phase(&location.directives, &behind));
        rules
    }

    /// Returns the rules for requests that no location takes.
    pub(super) fn default_rules(&mut self) -> Vec<Rule> {
        let fallback = Location::fallback(self.server);
        let has_files = ["root", "index", "try_files", "proxy_pass", "alias", "autoindex"]
            .iter()
            .any(|name| fallback.directive(name).is_some());
        let mut rules = self.access_phase(&self.server.scope.clone());
        match has_files {
            true => rules.extend(self.content(&fallback, 0)),
            // nginx has only the files of its package then.
            false => rules.push(Rule::Act(Action::Deny(404), Vec::new())),
        }
        rules
    }

    /// Converts `return`, `rewrite`, `if` and `break`, in their order; `behind` are the phases behind them.
    pub(super) fn rewrite_phase(&mut self, directives: &[Directive], behind: &[Rule]) -> Vec<Rule> {
        let mut rules = Vec::new();
        if self.rewrite_steps(directives, behind, &mut rules) {
            return rules;
        }
        rules.extend_from_slice(behind);
        rules
    }

    /// Adds the rules of a block's rewrites. Returns whether they end the phase for all requests.
    fn rewrite_steps(&mut self, directives: &[Directive], behind: &[Rule], rules: &mut Vec<Rule>) -> bool {
        for directive in directives {
            let origin = &directive.origin;
            match directive.name() {
                "return" => {
                    let action = self.returned(directive).unwrap_or_else(|| {
                        let text = "the response depends on the request: the route responds 501";
                        self.draft.leave(Kind::NotSupported, origin, text);
                        Action::Deny(501)
                    });
                    rules.push(Rule::Act(action, vec![Rc::clone(origin)]));
                    return true;
                }
                "break" => {
                    rules.extend_from_slice(behind);
                    return true;
                }
                "rewrite" => match self.rewritten(directive, behind) {
                    Some(rule) => rules.push(rule),
                    None => {
                        let text = "paths are rewritten by a prefix or as a whole, and redirected with their query: \
                                    requests that it is for get 501";
                        self.draft.leave(Kind::NotSupported, origin, text);
                        let condition =
                            decoded_regex(directive.argument(0), false).unwrap_or(Condition::Unknown);
                        rules.push(Rule::refuse(condition, origin));
                    }
                },
                "if" => self.add_if(directive, behind, rules),
                "set" => leave(directive, self.draft),
                _ => {}
            }
        }
        false
    }

    fn add_if(&mut self, directive: &Directive, behind: &[Rule], rules: &mut Vec<Rule>) {
        let origin = &directive.origin;
        let condition = condition(directive, self.server.knows_source());
        if !condition.is_exact() {
            let text =
                "weir does not know the condition for every request: those for which it may hold get 501";
            self.draft.leave(Kind::NotSupported, origin, text);
        }
        let other = directive
            .inner()
            .iter()
            .find(|inner| !matches!(inner.name(), "return" | "rewrite" | "break" | "set"));
        let mut inner = Vec::new();
        match other {
            // The rest of the block replaces the content of the location.
            Some(other) => {
                let text = "of a block `if`, only return, rewrite, set and break: its requests get 501";
                self.draft.leave(Kind::NotSupported, &other.origin, text);
                inner.push(Rule::refuse(Condition::Always, &other.origin));
            }
            None => drop(self.rewrite_steps(directive.inner(), behind, &mut inner)),
        }
        if !inner.is_empty() {
            rules.push(Rule::When(condition, inner.into(), vec![Rc::clone(origin)]));
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
            (301 | 302 | 303 | 307 | 308, Some(text)) => redirect(status, template(text, self.server)?),
            (status, text) => {
                let text = text.unwrap_or_default();
                let literal = template(text, self.server)?;
                let content_type = self.server.scope.default_type.as_deref().unwrap_or("text/plain");
                fixed_response(status, Some(content_type), literal.literal()?)
            }
        }
    }

    /// Converts `rewrite`: redirects, and prefixes with `break`.
    fn rewritten(&self, directive: &Directive, behind: &[Rule]) -> Option<Rule> {
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
            let condition = decoded_begins(&prefix);
            let is_begin = matches!(&condition, Condition::Test(test) if matches!(**test, Test::Path(PathTest::Begins(_))));
            // No further rewrite follows.
            let change = Rule::Change(Condition::Always, change, Rc::clone(origin));
            let inner: Vec<Rule> = std::iter::once(change).chain(behind.iter().cloned()).collect();
            return (flag == "break" && is_valid && keeps_query && is_begin)
                .then(|| Rule::When(condition, inner.into(), vec![Rc::clone(origin)]));
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
                let mut tests = vec![decoded_exact(&bare)];
                if path.ends_with("/?") {
                    tests.push(decoded_exact(&format!("{bare}/")));
                }
                (Condition::any(tests), replacement.to_owned())
            }
        };
        let mut location = template(&replacement, self.server)?;
        if keeps_query {
            location.push(Variable::Query);
        }
        let inner = vec![Rule::Act(redirect(status, location)?, vec![Rc::clone(origin)])];
        Some(match condition {
            Condition::Always => inner.into_iter().next()?,
            condition => Rule::When(condition, inner.into(), Vec::new()),
        })
    }

    /// Returns the rules of the access phase of a location, which may be others for some methods (`limit_except`).
    fn access_of(&mut self, location: &Location) -> Vec<Rule> {
        let outer = self.access_phase(&location.scope);
        let Some(limit) = location.directive("limit_except") else { return outer };
        let mut scope = location.scope.inner(limit.inner());
        limit.inner().iter().for_each(|inner| scope.apply_or_leave(inner, self.draft));
        let mut methods: Vec<String> = limit.arguments().to_vec();
        if methods.iter().any(|method| method == "GET") {
            methods.push("HEAD".into());
        }
        let excepted = Condition::tests(methods.into_iter().map(Test::Method));
        let inner = match &scope.refused {
            Some(origin) => vec![Rule::refuse(Condition::Always, origin)],
            None => self.access_phase(&scope),
        };
        let origins = vec![Rc::clone(&limit.origin)];
        vec![
            Rule::When(excepted.clone().negate(), inner.into(), origins),
            Rule::When(excepted, outer.into(), vec![Rc::clone(&location.origin)]),
        ]
    }

    /// Converts `allow`, `deny`, `satisfy` and authentication. Requests that pass reach the end of the rules.
    fn access_phase(&mut self, scope: &Scope) -> Vec<Rule> {
        let [denied, allowed] = self.first_access(scope);
        let origins = scope.access.iter().map(|access| Rc::clone(&access.origin)).take(8).collect();
        let deny = |status: u16| vec![Rule::Act(Action::Deny(status), Vec::new())].into();
        let Some((_, protected)) = scope.auth.first() else {
            return match denied {
                Condition::Never => Vec::new(),
                Condition::Always => vec![Rule::Act(Action::Deny(403), origins)],
                denied => vec![Rule::When(denied, deny(403), origins)],
            };
        };
        self.draft.leave(Kind::NotSupported, protected, PROTECTED);
        let protected = Rule::Act(Action::Deny(501), vec![Rc::clone(protected)]);
        match scope.satisfies_any {
            true => vec![Rule::When(allowed.negate(), [protected].into(), origins)],
            false => vec![Rule::When(denied, deny(403), origins), protected],
        }
    }

    /// Returns the conditions that the first `allow` or `deny` for a client is a `deny`, and that it is an `allow`.
    fn first_access(&mut self, scope: &Scope) -> [Condition; 2] {
        let mut decided: [Vec<Condition>; 2] = [Vec::new(), Vec::new()];
        let mut seen: [Vec<Condition>; 2] = [Vec::new(), Vec::new()];
        let groups = scope.access.chunk_by(|one, next| one.allows == next.allows);
        for (index, group) in groups.enumerate() {
            let kind = usize::from(group[0].allows);
            if index > ACCESS_CHANGES_MAX {
                let text = format!(
                    "allow and deny change more than {ACCESS_CHANGES_MAX} times: join those of a kind"
                );
                self.draft.too_long(&group[0].origin, text);
                break;
            }
            let clients = Condition::any(group.iter().map(|access| access.clients.clone()));
            let others = Condition::any(seen[1 - kind].iter().cloned());
            decided[kind].push(clients.and(&others.negate()));
            let is_all = clients == Condition::Always;
            seen[kind].push(clients);
            if is_all {
                break;
            }
        }
        let [denied, allowed] = decided.map(Condition::any);
        if self.server.knows_source() || scope.access.is_empty() {
            return [denied, allowed];
        }
        let text = "the client's address is one of a field (real_ip_header), which weir does not compare: requests that \
                    it decides about get 501";
        self.draft.leave(Kind::NotSupported, &scope.access[0].origin, text);
        let unknown = |test: &Test| matches!(test, Test::Source(_)).then_some(Condition::Unknown);
        [denied.map(&mut { unknown }), allowed.map(&mut { unknown })]
    }

    /// Returns the rules of what a location responds with.
    fn content(&mut self, location: &Location, depth: usize) -> Vec<Rule> {
        if let Some(directive) = location.destination() {
            return self.forward(location, directive);
        }
        if let Some(directive) = location.directive("try_files") {
            let fallback = directive.arguments().last().map_or("", String::as_str);
            let target = self.server.locations.iter().find(|other| {
                depth < FALLBACKS_MAX && other.kind == LocationKind::Named && other.path == fallback
            });
            if let Some(target) = target {
                let text = format!("weir proxy has no files: all requests go to {fallback}");
                self.draft.leave(Kind::NotSupported, &directive.origin, text);
                return self.phases(target, depth + 1);
            }
        }
        let other = location.directives.iter().find(|directive| directive.name().ends_with("_pass"));
        match (other, location.directive("stub_status")) {
            (Some(directive), _) => leave(directive, self.draft),
            (None, Some(directive)) => leave(directive, self.draft),
            (None, None) => self.draft.leave(Kind::NotSupported, &location.origin, FILES),
        }
        vec![Rule::refuse(Condition::Always, &location.origin)]
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
        let pool = add_pool(&destination, self.upstreams, (&location.scope, self.common), origin, self.draft);
        let Some(pool) = pool else { return vec![Rule::Act(Action::Deny(502), vec![Rc::clone(origin)])] };
        let mut rules = self.request_changes(&location.scope, &destination);
        if let Some(uri) = &destination.uri {
            rules.extend(self.rewrite_of_uri(location, uri, origin));
        }
        let settings = route_settings(&location.scope, self.common, &location.origin, self.draft);
        rules.push(Rule::Act(Action::Pool(pool, settings), vec![Rc::clone(origin)]));
        rules
    }

    /// Converts the part of `proxy_pass` behind the host, which replaces the path of the location.
    fn rewrite_of_uri(&mut self, location: &Location, uri: &str, origin: &Rc<Origin>) -> Option<Rule> {
        let path = &location.path;
        if uri == path {
            return None;
        }
        if !is_normal_path(uri) {
            let text =
                "the path that replaces that of the location is not in normal form: the route responds 501";
            self.draft.leave(Kind::NotSupported, origin, text);
            return Some(Rule::refuse(Condition::Always, origin));
        }
        let change = |change| Some(Rule::Change(Condition::Always, change, Rc::clone(origin)));
        match location.kind {
            LocationKind::Exact => change(Change::RewritePath(uri.to_owned())),
            LocationKind::Prefix | LocationKind::Preferred => {
                if path.ends_with('/') && !uri.ends_with('/') {
                    let text = "nginx joins the path without a slash: the route responds 501";
                    self.draft.leave(Kind::NotSupported, origin, text);
                    return Some(Rule::refuse(Condition::Always, origin));
                }
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
            // nginx takes such a config only without a path.
            LocationKind::Regex | LocationKind::RegexWithoutCase | LocationKind::Named => {
                Some(Rule::refuse(Condition::Always, origin))
            }
        }
    }

    /// Returns the changes of fields of responses.
    fn response_changes(&mut self, scope: &Scope) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut add = |change, origin: &Rc<Origin>| {
            rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)))
        };
        for (name, value, origin) in &scope.add_headers {
            match template(value, self.server) {
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
        rules
    }

    /// Returns the changes of fields of requests.
    fn request_changes(&mut self, scope: &Scope, destination: &Destination) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut add = |change, origin: &Rc<Origin>| {
            rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)))
        };
        let has_client_address = scope
            .set_headers
            .iter()
            .any(|(name, value, _)| name.eq_ignore_ascii_case("x-forwarded-for") && is_client_address(value));
        if self.common.sends_client_address && !has_client_address {
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
            ("host", "$http_host") | (_, "$request_id") => return None,
            ("host", "$host") if self.server.has_standard_ports() => return None,
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
        match template(value, self.server) {
            Some(value) => Some(Change::SetRequest(name.to_owned(), value)),
            None => {
                self.draft.leave(Kind::NotSupported, origin, crate::draft::VALUE_OF_REQUEST);
                (lower != "host").then(|| Change::LoseRequest(name.to_owned()))
            }
        }
    }
}

/// Returns whether a block's rewrites end with a response for all requests.
pub(super) fn always_returns(directives: &[Directive]) -> bool {
    let breaks = |directive: &Directive| directive.words.iter().any(|word| word == "break");
    directives.iter().any(|directive| directive.name() == "return")
        && !directives.iter().any(|directive| breaks(directive) || directive.inner().iter().any(breaks))
}

/// Maximum number of changes between `allow` and `deny` in one list.
const ACCESS_CHANGES_MAX: usize = 64;
