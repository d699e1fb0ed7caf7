//! Phases of a request in a location of nginx: rewrites, access, content.

use std::rc::Rc;

use super::location::{Location, LocationKind};
use super::pool::{Destination, Upstream, add as add_pool};
use super::scope::{PageRule, Scope, leave};
use super::server::Server;
use super::settings::{Common, route_settings};
use super::values::{Constants, add_constants};
use super::variables::condition;
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, fixed_response, redirect};
use crate::left::Kind;
use crate::paths::{decoded_begins, decoded_exact, decoded_regex, is_normal_path};
use crate::rules::{Action, Change, Condition, PathTest, Rule, Test};
use crate::text::{Part, Template, Variable};

/// Reason for files.
pub(super) const FILES: &str = "weir does not serve the files of the location, and responds 501";
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
    /// Variables that are set where a request is.
    pub(super) constants: Constants,
    /// Pages of errors there, and their changes unless all responses have them.
    pub(super) pages: Rc<Vec<PageRule>>,
    page_changes: Vec<Rule>,
    /// Number of marks that are in use.
    pub(super) marks: usize,
    /// Number of combinations of changes in the location.
    pub(super) worlds: usize,
    /// Number of named locations that are in each other.
    jumps: usize,
}

impl<'a, 'd> Converter<'a, 'd> {
    pub(super) fn new(
        server: &'a Server,
        common: Common,
        upstreams: &'a [Upstream],
        draft: &'a mut Draft<'d>,
    ) -> Self {
        let mut converter = Self {
            server,
            common,
            upstreams,
            draft,
            constants: Constants::new(),
            pages: Rc::default(),
            page_changes: Vec::new(),
            marks: 0,
            worlds: 1,
            jumps: 0,
        };
        converter.enter_server();
        converter
    }

    /// Begins with the rules of the server itself.
    pub(super) fn enter_server(&mut self) {
        self.constants = Constants::new();
        add_constants(&self.server.directives, &mut self.constants);
        self.pages = Rc::clone(&self.server.scope.pages);
        self.page_changes = self.page_rules(&self.server.scope);
    }

    /// Begins with the rules of a location.
    fn enter(&mut self, location: &Location) {
        self.constants = Constants::new();
        add_constants(&self.server.directives, &mut self.constants);
        if !location.is_server {
            add_constants(&location.directives, &mut self.constants);
        }
        self.pages = Rc::clone(&location.scope.pages);
        self.page_changes = Vec::new();
    }
}

impl Converter<'_, '_> {
    /// Returns what a location does, in the order of nginx's phases. The last rule is for all requests.
    pub(super) fn body(&mut self, location: &Location) -> Vec<Rule> {
        if let Some(origin) = &location.scope.refused {
            return vec![Rule::refuse(Condition::Always, origin)];
        }
        if let Some(directive) = location.directive("internal") {
            let mut rules = self.page_rules(&location.scope);
            rules.push(Rule::Act(Action::Deny(404), vec![Rc::clone(&directive.origin)]));
            return rules;
        }
        self.worlds = 1;
        self.phases(location, 0)
    }

    pub(super) fn phases(&mut self, location: &Location, depth: usize) -> Vec<Rule> {
        self.enter(location);
        if let Some(origin) = &location.scope.refused {
            return vec![Rule::refuse(Condition::Always, origin)];
        }
        let mut behind = Vec::new();
        let is_jump = |inner: &Directive| inner.arguments().last().is_some_and(|last| last.starts_with('@'));
        let is_elsewhere =
            location.destination().is_none() && location.directive("try_files").is_some_and(is_jump);
        if !always_returns(&location.directives) {
            behind = self.access_of(location);
            let is_closed = matches!(behind.last(), Some(Rule::Act(..)));
            if !is_closed {
                behind.extend(self.content(location, depth));
            }
        }
        // The content may be that of another location.
        self.enter(location);
        let mut rules = if is_elsewhere { Vec::new() } else { self.response_changes(&location.scope) };
        rules.extend(self.rewrite_phase(&location.directives, &behind));
        rules
    }

    /// Returns the rules for requests that no location takes.
    pub(super) fn default_rules(&mut self) -> Vec<Rule> {
        let fallback = Location::fallback(self.server);
        let has_files = ["root", "index", "try_files", "proxy_pass", "alias", "autoindex"]
            .iter()
            .any(|name| fallback.directive(name).is_some())
            || fallback.scope.root.is_some();
        self.enter(&fallback);
        let mut rules = self.response_changes(&fallback.scope);
        rules.extend(self.access_phase(&fallback.scope));
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
                    let returned = self.named_page(directive).or_else(|| self.returned(directive));
                    rules.extend(returned.unwrap_or_else(|| {
                        let text = "the response depends on the request: the route responds 501";
                        self.draft.leave(Kind::NotSupported, origin, text);
                        vec![Rule::Act(Action::Deny(501), vec![Rc::clone(origin)])]
                    }));
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
                "set" => self.report_set(directive),
                _ => {}
            }
        }
        false
    }

    fn add_if(&mut self, directive: &Directive, behind: &[Rule], rules: &mut Vec<Rule>) {
        let origin = &directive.origin;
        let condition =
            condition(directive, |name, operator, value| self.variable_condition(name, operator, value));
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

    /// Reports `set`, unless all uses of its variable have its value.
    fn report_set(&mut self, directive: &Directive) {
        let name = directive.argument(0).trim_start_matches('$');
        if self.constants.get(name).is_none_or(Option::is_none) {
            let text = format!("weir has no variables: {name} is set several times, or in a block `if`");
            self.draft.leave(Kind::NotSupported, &directive.origin, text);
        }
    }

    /// Returns the rules of the named location that is the page of a status, with the status of its response: a jump.
    fn named_page(&mut self, directive: &Directive) -> Option<Vec<Rule>> {
        let [status] = directive.arguments() else { return None };
        let status: u16 = status.parse().ok()?;
        let pages = Rc::clone(&self.pages);
        let page = pages.iter().find(|page| page.statuses.contains(&status) && page.response == "=")?;
        let is_named = |other: &&Location| other.kind == LocationKind::Named && other.path == page.target;
        let target = self.server.locations.iter().find(is_named)?;
        if self.jumps >= FALLBACKS_MAX || !self.draft.spend(4_096, &directive.origin) {
            return None;
        }
        let (constants, changes) = (self.constants.clone(), self.page_changes.clone());
        self.jumps += 1;
        let rules = self.phases(target, 0);
        self.jumps -= 1;
        (self.constants, self.pages, self.page_changes) = (constants, pages, changes);
        Some(rules)
    }

    fn returned(&mut self, directive: &Directive) -> Option<Vec<Rule>> {
        let arguments = directive.arguments();
        let (status, text) = match arguments {
            [url] if url.contains("://") || url.starts_with('/') => (302, Some(url.as_str())),
            [status] => (status.parse::<u16>().ok()?, None),
            [status, text, ..] => (status.parse::<u16>().ok()?, Some(text.as_str())),
            [] => return None,
        };
        let origins = vec![Rc::clone(&directive.origin)];
        let Some(text) = text.filter(|_| status != 444) else {
            let action = if status == 444 { Action::SilentDrop } else { fixed_response(status, None, "")? };
            let mut rules = if status >= 400 { self.page_changes.clone() } else { Vec::new() };
            rules.push(Rule::Act(action, origins));
            return Some(rules);
        };
        let content_type = self.server.scope.default_type.clone().unwrap_or_else(|| "text/plain".to_owned());
        let mut rules = Vec::new();
        for (condition, template) in self.alternatives(text)? {
            let action = match (status, template.literal()) {
                (301 | 302 | 303 | 307 | 308, _) => redirect(status, template)?,
                (status, Some(literal)) => fixed_response(status, Some(&content_type), literal)?,
                // weir escapes values in markup.
                (200..=599, None) if content_type == "text/plain" && template.field().is_some() => {
                    Action::ReturnText { status, content_type: Some(content_type.clone()), body: template }
                }
                _ => return None,
            };
            rules.push(Rule::When(condition, [Rule::Act(action, Vec::new())].into(), origins.clone()));
        }
        Some(rules)
    }

    /// Converts `rewrite`: redirects, and prefixes with `break`.
    fn rewritten(&mut self, directive: &Directive, behind: &[Rule]) -> Option<Rule> {
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
        let mut location = self.template(&replacement)?;
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
        let groups = scope.access.chunk_by(|access, next| access.allows == next.allows);
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
        if let Some(rules) = self.fixed_file(location).filter(|_| other.is_none()) {
            return rules;
        }
        match (other, location.directive("stub_status")) {
            (Some(directive), _) => leave(directive, self.draft),
            (None, Some(directive)) => leave(directive, self.draft),
            (None, None) => {
                if let Some(rules) = self.files(location) {
                    return rules;
                }
            }
        }
        vec![Rule::refuse(Condition::Always, &location.origin)]
    }

    fn forward(&mut self, location: &Location, directive: &Directive) -> Vec<Rule> {
        let origin = &directive.origin;
        let text = directive.argument(0);
        let with_scheme = match directive.name() {
            "grpc_pass" if !text.contains("://") && !text.starts_with('$') => format!("grpc://{text}"),
            _ => text.to_owned(),
        };
        let has_variables = with_scheme.contains('$');
        let Some(destinations) = self.destinations(&with_scheme) else {
            self.draft.leave(
                Kind::NotSupported,
                origin,
                "the destination depends on the request: the route responds 501",
            );
            return vec![Rule::Act(Action::Deny(501), vec![Rc::clone(origin)])];
        };
        let mut rules = Vec::new();
        let worlds = self.worlds;
        for (condition, destination) in destinations {
            // The changes of one destination are not those of another one.
            self.worlds = worlds;
            let inner = self.forward_to(location, &destination, has_variables, origin);
            match condition {
                Condition::Always => rules.extend(inner),
                condition => rules.push(Rule::When(condition, inner.into(), vec![Rc::clone(origin)])),
            }
        }
        rules
    }

    /// Returns the destinations of `proxy_pass` with their conditions, of which the first one that holds counts.
    fn destinations(&mut self, text: &str) -> Option<Vec<(Condition, Destination)>> {
        let mut destinations = Vec::new();
        for (condition, template) in self.expanded(text)? {
            // A destination with variables and without a path gets that of the request.
            let parts = match &template.0[..] {
                [start @ .., Part::Variable(Variable::Path), Part::Variable(Variable::Query)] => start,
                all => all,
            };
            let text = Template(parts.to_vec());
            destinations.push((condition, Destination::parse(text.literal()?)?));
        }
        Some(destinations)
    }

    fn forward_to(
        &mut self,
        location: &Location,
        destination: &Destination,
        has_variables: bool,
        origin: &Rc<Origin>,
    ) -> Vec<Rule> {
        if has_variables && destination.uri.is_some() {
            let text = "with variables, nginx replaces the whole path and query: the route responds 501";
            self.draft.leave(Kind::NotSupported, origin, text);
            return vec![Rule::Act(Action::Deny(501), vec![Rc::clone(origin)])];
        }
        let pool = add_pool(destination, self.upstreams, (&location.scope, self.common), origin, self.draft);
        let Some(pool) = pool else { return vec![Rule::Act(Action::Deny(502), vec![Rc::clone(origin)])] };
        let mut rules = self.request_changes(&location.scope, destination);
        if let Some(uri) = &destination.uri {
            rules.extend(self.rewrite_of_uri(location, uri, origin));
        }
        let settings = route_settings(&location.scope, self.common, &location.origin, self.draft);
        let action = |settings| Action::Pool(pool.clone(), settings);
        rules.extend(self.limited(&location.scope, &action, &settings, origin));
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
}

/// Returns whether a block's rewrites end with a response for all requests.
pub(super) fn always_returns(directives: &[Directive]) -> bool {
    let breaks = |directive: &Directive| directive.words.iter().any(|word| word == "break");
    directives.iter().any(|directive| directive.name() == "return")
        && !directives.iter().any(|directive| breaks(directive) || directive.inner().iter().any(breaks))
}

/// Maximum number of changes between `allow` and `deny` in one list.
const ACCESS_CHANGES_MAX: usize = 64;
