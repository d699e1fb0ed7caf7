//! Choice of a request's route: the first in the plan's order whose conditions all hold. Pure: no
//! clock, no socket. The plan's route alone determines the action.
//!
//! A [`Router`] is made once from a plan, one for each core: regular expressions have scratch
//! memory that cores would otherwise share. The other modules: `target` (the form in which targets
//! are forwarded), `conditions` (one condition), `when` (combined conditions), `values` (the values of texts), `certificate_text` (those of a client's certificate),
//! `rewrite` (targets and redirects), `buckets` (rate limits). `crate::uri` has the form in which paths are compared, `crate::explain` the same decision
//! as text.

mod buckets;
mod certificate_text;
pub(crate) mod conditions;
pub(crate) mod map_keys;
mod rewrite;
mod target;
pub(crate) mod values;
pub(crate) mod when;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use regex::Regex;

use crate::plan::{Conditions, Mode, PathCondition, Plan, RoutePlan};
use crate::request_view::{ClientFacts, RequestView};
use crate::suspended_request::SuspendedRequest;
use crate::uri::{normalise, normalise_host, split_target, without_parameters};

// Used by the cores.
#[allow(unused_imports)]
pub(crate) use buckets::{Buckets, Limiter, RateLimitKey, RetryAfterNs};
pub(crate) use rewrite::{changes_target, https_location, rewrite_target};
#[cfg(test)]
pub(crate) use target::is_plain;
pub(crate) use target::{CheckedTarget, check_target};

use conditions::{ComparedPath, all_match};

/// Properties of a request that routing uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteRequest<'a> {
    /// Index in [`Plan::listeners`].
    pub(crate) listener: usize,
    pub(crate) method: &'a str,
    /// The target in the form in which it is routed, and then in that in which it is forwarded (see
    /// [`check_target`]); any of the four forms.
    pub(crate) target: &'a str,
    /// True if the path is known to be plain (see [`check_target`]), so that it is not checked again.
    pub(crate) is_plain: bool,
    /// Same as [`wire::RequestHead::host`], the port included.
    pub(crate) host: Option<&'a str>,
    pub(crate) view: &'a RequestView<'a>,
    /// The client's address; `None`: a unix socket.
    pub(crate) source: Option<IpAddr>,
}

impl RouteRequest<'_> {
    /// Returns the request in a form that it can wait in.
    pub(crate) fn suspended(&self) -> SuspendedRequest {
        SuspendedRequest::new(self.view.head, self.target, self.is_plain)
    }
}

/// Buffers that are reused from pick to pick: one for each core is enough.
#[derive(Debug, Default)]
pub(crate) struct RouteScratch {
    pub(crate) path: String,
    without_parameters: String,
    host: String,
    pub(crate) target: String,
    pub(crate) key: Vec<u8>,
}

pub(crate) struct Router {
    conditions: Vec<Conditions>,
    /// By route, as in [`crate::plan::RouteTexts`].
    regexes: Vec<Option<Regex>>,
    listeners: Vec<HostTable>,
    has_path_rules: bool,
}

/// The routes of one listener, by host.
#[derive(Default)]
struct HostTable {
    /// The first route, if it has no conditions.
    unconditional: Option<usize>,
    /// Sorted hosts, with every route that may match: routes for any host and with a matching
    /// wildcard are included.
    exact: Vec<(Box<str>, Candidates)>,
    /// The same for names below a wildcard, by its suffix (`.example.org`).
    wildcards: Vec<(Box<str>, Candidates)>,
    /// Length of the longest suffix in bytes: dots further from the end of a host are skipped.
    suffix_bytes_max: usize,
    any_other_host: Candidates,
}

/// Indices of routes in the plan's order, up to the first one that always matches.
#[derive(Debug, Default)]
struct Candidates {
    routes: Box<[usize]>,
    /// True if one of them has a path condition.
    needs_path: bool,
}

impl Router {
    pub(crate) fn new(plan: &Plan) -> Self {
        let conditions: Vec<Conditions> =
            plan.routes.iter().map(|route| normalise_conditions(&route.conditions)).collect();
        let listeners = plan.listeners.iter().enumerate().map(|(index, listener)| {
            if listener.mode == Mode::Http {
                HostTable::new(index, &conditions)
            } else {
                HostTable::default()
            }
        });
        let listeners = listeners.collect();
        let regex_of = |route: &RoutePlan| route.texts.as_ref().and_then(|texts| texts.regex.clone());
        Self {
            conditions,
            regexes: plan.routes.iter().map(regex_of).collect(),
            listeners,
            has_path_rules: plan.routes.iter().any(|route| route.path_rule.is_some()),
        }
    }

    pub(crate) fn has_path_rules(&self) -> bool {
        self.has_path_rules
    }

    /// Returns the regular expression of a route whose groups are values.
    pub(crate) fn regex(&self, route: usize) -> Option<&Regex> {
        self.regexes.get(route)?.as_ref()
    }

    /// Returns the index of the route for `request` of a client; `None`: no route matches.
    #[inline]
    pub(crate) fn pick(
        &self,
        request: &RouteRequest<'_>,
        client: &dyn ClientFacts,
        scratch: &mut RouteScratch,
    ) -> Option<usize> {
        let table = self.listeners.get(request.listener)?;
        if table.unconditional.is_some() {
            return table.unconditional;
        }
        self.search(table, request, client, scratch)
    }

    fn search(
        &self,
        table: &HostTable,
        request: &RouteRequest<'_>,
        client: &dyn ClientFacts,
        scratch: &mut RouteScratch,
    ) -> Option<usize> {
        let candidates = match request.host {
            Some(host) if table.has_hosts() => table.candidates_for(normalise_host(host, &mut scratch.host)),
            _ => &table.any_other_host,
        };
        let (path, query) = split_target(request.target);
        let path = if candidates.needs_path && !request.is_plain {
            let path = normalise(path, &mut scratch.path);
            ComparedPath {
                path,
                without_parameters: without_parameters(path, &mut scratch.without_parameters),
            }
        } else {
            ComparedPath { path, without_parameters: path }
        };
        let query = query.strip_prefix('?').unwrap_or_default();
        let matches = |route: &usize| {
            let conditions = &self.conditions[*route];
            all_match(conditions, request, path, query)
                && conditions.when.as_ref().is_none_or(|when| when::holds(when, request, client, path))
        };
        candidates.routes.iter().copied().find(matches)
    }
}

impl HostTable {
    fn new(listener: usize, conditions: &[Conditions]) -> Self {
        let mut exact_hosts: Vec<Box<str>> = Vec::new();
        let mut wildcard_suffixes: Vec<Box<str>> = Vec::new();
        let is_on_listener =
            |route: &Conditions| route.listeners.is_empty() || route.listeners.contains(&listener);
        for host in conditions.iter().filter(|route| is_on_listener(route)).flat_map(|route| &route.hosts) {
            match host.strip_prefix('*') {
                Some(suffix) => wildcard_suffixes.push(suffix.into()),
                None => exact_hosts.push(host.clone()),
            }
        }
        let candidates_of = |host: &str| {
            let matches =
                |route: &Conditions| is_on_listener(route) && conditions::host_matches(&route.hosts, host);
            Candidates::new(conditions, matches)
        };
        let mut table = Self {
            unconditional: None,
            exact: build_index(exact_hosts, candidates_of),
            // Any name below the suffix is equivalent to all others there, except exact ones.
            wildcards: build_index(wildcard_suffixes, |suffix| {
                let matches =
                    |route: &Conditions| is_on_listener(route) && is_for_suffix(&route.hosts, suffix);
                Candidates::new(conditions, matches)
            }),
            suffix_bytes_max: 0,
            any_other_host: Candidates::new(conditions, |route| {
                is_on_listener(route) && route.hosts.is_empty()
            }),
        };
        table.suffix_bytes_max = table.wildcards.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        let first = conditions.iter().position(is_on_listener);
        table.unconditional = first.filter(|&first| conditions[first].matches_everything());
        table
    }

    fn has_hosts(&self) -> bool {
        !self.exact.is_empty() || !self.wildcards.is_empty()
    }

    /// Returns the candidates for a bare host: its own, else those of the longest matching
    /// wildcard.
    fn candidates_for(&self, host: &str) -> &Candidates {
        if let Some(candidates) = find_candidates(&self.exact, host) {
            return candidates;
        }
        // A wildcard's star matches at least one byte.
        let mut start = host.len().saturating_sub(self.suffix_bytes_max).max(1);
        while let Some(dot) = host.as_bytes().get(start..).and_then(|rest| memchr::memchr(b'.', rest)) {
            if let Some(candidates) = find_candidates(&self.wildcards, &host[start + dot..]) {
                return candidates;
            }
            start += dot + 1;
        }
        &self.any_other_host
    }
}

impl Candidates {
    fn new(conditions: &[Conditions], matches: impl Fn(&Conditions) -> bool) -> Self {
        let mut routes = Vec::new();
        for (index, route) in conditions.iter().enumerate().filter(|(_, route)| matches(route)) {
            routes.push(index);
            if route.matches_everything_but_hosts() {
                break;
            }
        }
        let needs_path = routes.iter().any(|&index| {
            let route = &conditions[index];
            !route.paths.is_empty() || route.when.is_some()
        });
        Self { routes: routes.into(), needs_path }
    }
}

/// Builds one entry for each distinct key, sorted.
fn build_index(
    mut keys: Vec<Box<str>>,
    candidates: impl Fn(&str) -> Candidates,
) -> Vec<(Box<str>, Candidates)> {
    keys.sort_unstable();
    keys.dedup();
    let entry = |key: Box<str>| {
        let candidates = candidates(&key);
        (key, candidates)
    };
    keys.into_iter().map(entry).collect()
}

fn find_candidates<'a>(entries: &'a [(Box<str>, Candidates)], key: &str) -> Option<&'a Candidates> {
    let index = entries.binary_search_by(|(entry, _)| (**entry).cmp(key)).ok()?;
    Some(&entries[index].1)
}

/// Returns whether a route matches every host below `suffix`: it has no hosts, or that wildcard or
/// a wider one.
fn is_for_suffix(hosts: &[Box<str>], suffix: &str) -> bool {
    let mut suffixes = hosts.iter().filter_map(|host| host.strip_prefix('*'));
    hosts.is_empty() || suffixes.any(|suffix_pattern| suffix.ends_with(suffix_pattern))
}

/// Returns the conditions in the forms used for comparison; those of a config already are.
fn normalise_conditions(conditions: &Conditions) -> Conditions {
    let mut conditions = conditions.clone();
    for host in &mut conditions.hosts {
        *host = normalise_host(host, &mut String::new()).into();
    }
    for path in &mut conditions.paths {
        if let PathCondition::Exact(text) | PathCondition::Prefix(text) = path {
            *text = normalise(text, &mut String::new()).into();
        }
    }
    conditions
}
