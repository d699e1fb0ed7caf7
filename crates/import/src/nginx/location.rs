//! Locations of nginx: which of them a request gets.

use std::collections::HashSet;
use std::rc::Rc;

use record::sorted::sort_by_key;

use super::phases::{Converter, always_returns};
use super::pool::Upstream;
use super::scope::Scope;
use super::server::Server;
use super::settings::Common;
use super::variables::implied;
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, redirect};
use crate::left::Kind;
use crate::paths::{decoded_begins, decoded_exact, decoded_regex};
use crate::rules::{Action, Condition, Rule};
use crate::text::{Template, Variable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocationKind {
    Exact,
    /// A prefix that stops the search of expressions.
    Preferred,
    Regex,
    RegexWithoutCase,
    Prefix,
    Named,
}

#[derive(Clone, Debug)]
pub(super) struct Location {
    pub(super) kind: LocationKind,
    pub(super) path: String,
    pub(super) scope: Scope,
    pub(super) directives: Vec<Directive>,
    pub(super) inner: Vec<Self>,
    pub(super) origin: Rc<Origin>,
    /// True if it is the server itself, whose directives it has.
    pub(super) is_server: bool,
}

impl Location {
    /// Reads a block.
    pub(super) fn read(directive: &Directive, outer: &Scope, draft: &mut Draft<'_>) -> Self {
        let (first, second) = (directive.argument(0), directive.argument(1));
        let (kind, path) = match first {
            "=" => (LocationKind::Exact, second.to_owned()),
            "^~" => (LocationKind::Preferred, second.to_owned()),
            "~" => (LocationKind::Regex, second.to_owned()),
            "~*" => (LocationKind::RegexWithoutCase, second.to_owned()),
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
            is_server: false,
        };
        for inner in directive.inner().iter().filter(|inner| inner.name() != "location") {
            if is_of_location(inner.name()) {
                location.directives.push(inner.clone());
                match inner.name() {
                    "root" | "index" | "autoindex" => drop(location.scope.apply(inner, draft)),
                    "alias" => {
                        let alias = (location.path.clone(), inner.argument(0).to_owned());
                        location.scope.files.alias = Some(Rc::new(alias));
                    }
                    _ => {}
                }
            } else {
                location.scope.apply_or_leave(inner, draft);
            }
        }
        for inner in directive.inner().iter().filter(|inner| inner.name() == "location") {
            location.inner.push(Self::read(inner, &location.scope, draft));
        }
        location
    }

    /// Makes the location for requests that no other one takes.
    pub(super) fn fallback(server: &Server) -> Self {
        Self {
            kind: LocationKind::Prefix,
            path: "/".into(),
            scope: server.scope.clone(),
            directives: server.directives.clone(),
            inner: Vec::new(),
            origin: Rc::clone(&server.origin),
            is_server: true,
        }
    }

    fn is_prefix(&self) -> bool {
        matches!(self.kind, LocationKind::Prefix | LocationKind::Preferred)
    }

    fn is_regex(&self) -> bool {
        matches!(self.kind, LocationKind::Regex | LocationKind::RegexWithoutCase)
    }

    /// Returns the condition of its path, and reports one that weir cannot compare.
    fn condition(&self, draft: &mut Draft<'_>) -> Condition {
        let condition = match self.kind {
            LocationKind::Exact => decoded_exact(&self.path),
            LocationKind::Preferred | LocationKind::Prefix => decoded_begins(&self.path),
            LocationKind::Regex => decoded_regex(&self.path, false).unwrap_or(Condition::Unknown),
            LocationKind::RegexWithoutCase => decoded_regex(&self.path, true).unwrap_or(Condition::Unknown),
            LocationKind::Named => Condition::Never,
        };
        if condition == Condition::Unknown {
            let text = "the path is not in normal form, or its expression uses a feature that weir does not have: \
                        requests that it may be for get 501";
            draft.leave(Kind::NotSupported, &self.origin, text);
        }
        condition
    }

    /// Returns its scope and those inside of it.
    pub(super) fn scopes(&self) -> Box<dyn Iterator<Item = &Scope> + '_> {
        Box::new(std::iter::once(&self.scope).chain(self.inner.iter().flat_map(Self::scopes)))
    }

    pub(super) fn directive(&self, name: &str) -> Option<&Directive> {
        self.directives.iter().find(|directive| directive.name() == name)
    }

    /// Returns the file of a path in this location; `None`: it is not a fixed one.
    pub(super) fn file_of(&self, path: &str) -> Option<String> {
        let file = match self.scope.files.alias.as_deref() {
            Some((location, alias)) => format!("{alias}{}", path.strip_prefix(location.as_str())?),
            None => format!("{}{path}", self.scope.root.as_deref()?.trim_end_matches('/')),
        };
        (file.starts_with('/') && !file.contains('$')).then_some(file)
    }

    pub(super) fn destination(&self) -> Option<&Directive> {
        self.directives.iter().find(|directive| matches!(directive.name(), "proxy_pass" | "grpc_pass"))
    }
}

/// Returns whether a directive is one of the location itself, and not of its scope.
fn is_of_location(name: &str) -> bool {
    const NAMES: &str = "return set break rewrite if proxy_pass grpc_pass try_files root alias index autoindex internal \
        fastcgi_pass uwsgi_pass scgi_pass memcached_pass stub_status limit_except deny_all empty_gif flv";
    NAMES.split(' ').any(|other| other == name)
}

/// Returns the rules of a server, the last one for all requests.
pub(super) fn server_rules(
    server: &Server,
    upstreams: &[Upstream],
    common: Common,
    draft: &mut Draft<'_>,
) -> Vec<Rule> {
    let mut converter = Converter::new(server, common, upstreams, draft);
    if let Some(origin) = &server.scope.refused {
        return vec![Rule::refuse(Condition::Always, origin)];
    }
    let mut locations = Vec::new();
    if !always_returns(&server.directives) {
        let has_root = server.locations.iter().any(|location| location.is_prefix() && location.path == "/");
        let base = if has_root { Vec::new() } else { converter.default_rules() };
        locations = converter.choose(&server.locations, &[], &base);
    }
    converter.enter_server();
    converter.rewrite_phase(&server.directives, &locations)
}

impl Converter<'_, '_> {
    /// Returns the rules of the locations of a level as nginx chooses them: an exact one; else the longest prefix, which
    /// an expression of its own level or of a level around it (`outer`) replaces, unless it has `^~`. Requests without a
    /// location at this level get the expressions, and then `base`.
    fn choose(&mut self, level: &[Location], outer: &[Rule], base: &[Rule]) -> Vec<Rule> {
        let mut expressions: Vec<Rule> = Vec::new();
        for location in level.iter().filter(|location| location.is_regex()) {
            let condition = location.condition(self.draft);
            let body = self.body(location);
            // An expression ends the search around it.
            let inner = self.choose(&location.inner, &[], &body);
            expressions.push(Rule::When(condition, inner.into(), vec![Rc::clone(&location.origin)]));
        }
        expressions.extend_from_slice(outer);
        let mut rules = Vec::new();
        for location in level.iter().filter(|location| location.kind == LocationKind::Exact) {
            let condition = location.condition(self.draft);
            let body = self.body(location);
            rules.push(Rule::When(condition, body.into(), vec![Rc::clone(&location.origin)]));
        }
        rules.extend(Self::slash_redirects(level));
        let mut prefixes: Vec<&Location> = level.iter().filter(|location| location.is_prefix()).collect();
        sort_by_key(&mut prefixes, |location| std::cmp::Reverse(location.path.len()));
        let is_flat = prefixes
            .iter()
            .all(|location| location.inner.is_empty() && location.kind == LocationKind::Prefix);
        if is_flat {
            // The expressions are the same for all prefixes.
            rules.append(&mut expressions);
        }
        for location in prefixes {
            let condition = location.condition(self.draft);
            let body = self.body(location);
            let allowed = match location.kind {
                LocationKind::Preferred => outer,
                _ => &expressions[..],
            };
            let allowed = if is_flat { Vec::new() } else { allowed.to_vec() };
            let inner = match location.inner.is_empty() {
                true => allowed.into_iter().chain(body).collect(),
                false => self.choose(&location.inner, &allowed, &body),
            };
            rules.push(Rule::When(condition, inner.into(), vec![Rc::clone(&location.origin)]));
        }
        rules.extend(expressions);
        rules.extend_from_slice(base);
        rules
    }

    /// Returns the redirects to the slash at the end of a location that forwards.
    fn slash_redirects(locations: &[Location]) -> Vec<Rule> {
        let taken: HashSet<&str> =
            locations.iter().filter(|other| !other.is_regex()).map(|other| other.path.as_str()).collect();
        let mut rules = Vec::new();
        for location in
            locations.iter().filter(|location| location.is_prefix() || location.kind == LocationKind::Exact)
        {
            let bare =
                location.path.strip_suffix('/').filter(|bare| !bare.is_empty() && !taken.contains(bare));
            let forwards = location.directives.iter().any(|directive| directive.name().ends_with("_pass"));
            let Some(bare) = bare.filter(|_| forwards) else { continue };
            let mut template = Template::from(location.path.as_str());
            template.push(Variable::Query);
            let action = match location.directive("internal") {
                Some(_) => Action::Deny(404),
                None => redirect(301, template).unwrap_or(Action::Deny(501)),
            };
            let origin = implied(&location.origin, &format!("{} redirects {bare}", location.origin.text));
            rules.push(Rule::act_when(decoded_exact(bare), action, &origin));
        }
        rules
    }
}
