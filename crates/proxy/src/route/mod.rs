//! Which route a request takes: the first in the plan's order whose conditions all hold. Pure: no
//! clock, no socket; what becomes of the request then is decided by the plan's route alone.
//!
//! [`Router`] is made once from a plan, one for each core: regular expressions keep scratch memory
//! that cores would otherwise share. Beside it: `target` (the form in which targets are forwarded),
//! `path` (the form in which paths are compared), `conditions` (one condition), `rewrite` (targets and redirects), `buckets` (rate limits),
//! `explain` (the same decision in words).

mod buckets;
mod conditions;
mod explain;
mod explain_choice;
pub(crate) mod path;
mod rewrite;
mod target;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::forward::is_identity;
use crate::plan::{Conditions, Mode, PathCondition, Plan};

// What the cores will use.
#[allow(unused_imports)]
pub(crate) use buckets::{Buckets, Key, Limiter, RetryAfterNs};
pub use explain::{ExplainRequest, Explanation, explain};
pub(crate) use rewrite::{location, rewrite_target, rewrites};
pub(crate) use target::forwarded;
#[cfg(test)]
pub(crate) use target::is_plain;

use conditions::{Compared, all_hold};
use path::{bare_host, normal, split_target, without_parameters};

/// What a route is picked by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Index in [`Plan::listeners`].
    pub(crate) listener: usize,
    pub(crate) method: &'a str,
    /// As it is to be forwarded (see [`forwarded`]), in any of the four forms.
    pub(crate) target: &'a str,
    /// Whether its path is known to be plain (see [`forwarded`]), so that nobody looks again.
    pub(crate) is_plain: bool,
    /// As [`wire::RequestHead::host`] has it, the port included.
    pub(crate) host: Option<&'a str>,
    pub(crate) headers: &'a [wire::Header<'a>],
    /// Whether it is believed what it says of its client.
    pub(crate) trusted: bool,
    /// The client; `None` on a unix socket.
    pub(crate) source: Option<IpAddr>,
}

impl<'a> Asked<'a> {
    /// The fields that count for a condition, a limit or a choice by this name: none that only a
    /// trusted peer may send, unless it is one.
    pub(crate) fn fields_for(&self, name: &str) -> &'a [wire::Header<'a>] {
        if !self.trusted && is_identity(name) { &[] } else { self.headers }
    }
}

/// Memory that is used again from pick to pick: one for each core is enough.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) path: String,
    bare: String,
    host: String,
    /// For the target in the form in which it is forwarded.
    pub(crate) target: String,
}

/// The routes of a plan, made ready.
pub(crate) struct Router {
    conditions: Vec<Conditions>,
    listeners: Vec<Table>,
}

/// The routes of one listener, by host.
#[derive(Default)]
struct Table {
    /// The first route, when it asks for nothing else.
    always: Option<usize>,
    /// Hosts in order, with every route that may match: those for any host and those with a fitting
    /// wildcard are among them.
    exact: Vec<(Box<str>, Candidates)>,
    /// The same for names below a wildcard, by its suffix (`.example.org`).
    below: Vec<(Box<str>, Candidates)>,
    /// Bytes of the longest suffix: a dot further from the end of a host needs no look.
    suffix_bytes_max: usize,
    /// For any other host.
    others: Candidates,
}

/// Indices of routes in the plan's order, without those behind one that always matches.
#[derive(Debug, Default)]
struct Candidates {
    routes: Box<[usize]>,
    /// Whether one of them looks at the path.
    need_path: bool,
}

impl Router {
    /// Makes the routes of a plan ready.
    pub(crate) fn new(plan: &Plan) -> Self {
        let conditions: Vec<Conditions> =
            plan.routes.iter().map(|route| normal_conditions(&route.conditions)).collect();
        let listeners = plan.listeners.iter().enumerate().map(|(index, listener)| {
            if listener.mode == Mode::Http {
                Table::new(index, &conditions)
            } else {
                Table::default()
            }
        });
        let listeners = listeners.collect();
        Self { conditions, listeners }
    }

    /// The index of the route that `asked` takes; `None`: no route matches.
    #[inline]
    pub(crate) fn pick(&self, asked: &Asked<'_>, scratch: &mut Scratch) -> Option<usize> {
        let table = self.listeners.get(asked.listener)?;
        if table.always.is_some() {
            return table.always;
        }
        self.search(table, asked, scratch)
    }

    fn search(&self, table: &Table, asked: &Asked<'_>, scratch: &mut Scratch) -> Option<usize> {
        let candidates = match asked.host {
            Some(host) if table.has_hosts() => table.of_host(bare_host(host, &mut scratch.host)),
            _ => &table.others,
        };
        let (path, query) = split_target(asked.target);
        let path = if candidates.need_path && !asked.is_plain {
            let path = normal(path, &mut scratch.path);
            Compared { path, bare: without_parameters(path, &mut scratch.bare) }
        } else {
            Compared { path, bare: path }
        };
        let query = query.strip_prefix('?').unwrap_or_default();
        let holds = |route: &usize| all_hold(&self.conditions[*route], asked, path, query);
        candidates.routes.iter().copied().find(holds)
    }
}

impl Table {
    fn new(listener: usize, conditions: &[Conditions]) -> Self {
        let mut exact: Vec<Box<str>> = Vec::new();
        let mut below: Vec<Box<str>> = Vec::new();
        let here =
            |route: &Conditions| route.listeners.is_empty() || route.listeners.contains(&listener);
        for host in conditions.iter().filter(|route| here(route)).flat_map(|route| &route.hosts) {
            match host.strip_prefix('*') {
                Some(suffix) => below.push(suffix.into()),
                None => exact.push(host.clone()),
            }
        }
        let candidates = |host: &str| {
            let fits =
                |route: &Conditions| here(route) && conditions::host_holds(&route.hosts, host);
            Candidates::new(conditions, fits)
        };
        let mut table = Self {
            always: None,
            exact: keyed(exact, candidates),
            // Any name below the suffix stands for all of them, except those that are exact.
            below: keyed(below, |suffix| {
                let fits = |route: &Conditions| here(route) && is_for_suffix(&route.hosts, suffix);
                Candidates::new(conditions, fits)
            }),
            suffix_bytes_max: 0,
            others: Candidates::new(conditions, |route| here(route) && route.hosts.is_empty()),
        };
        table.suffix_bytes_max = table.below.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        let first = conditions.iter().position(here);
        table.always = first.filter(|&first| asks_for_nothing_else(&conditions[first]));
        table
    }

    fn has_hosts(&self) -> bool {
        !self.exact.is_empty() || !self.below.is_empty()
    }

    /// The candidates for a bare host: its own, else those of the longest wildcard above it.
    fn of_host(&self, host: &str) -> &Candidates {
        if let Some(candidates) = find(&self.exact, host) {
            return candidates;
        }
        // A wildcard's star stands for at least one byte.
        let mut from = host.len().saturating_sub(self.suffix_bytes_max).max(1);
        while let Some(dot) =
            host.as_bytes().get(from..).and_then(|rest| memchr::memchr(b'.', rest))
        {
            if let Some(candidates) = find(&self.below, &host[from + dot..]) {
                return candidates;
            }
            from += dot + 1;
        }
        &self.others
    }
}

impl Candidates {
    fn new(conditions: &[Conditions], fits: impl Fn(&Conditions) -> bool) -> Self {
        let mut routes = Vec::new();
        for (index, route) in conditions.iter().enumerate().filter(|(_, route)| fits(route)) {
            routes.push(index);
            if asks_for_no_more_than_a_host(route) {
                break;
            }
        }
        let need_path = routes.iter().any(|&index| !conditions[index].paths.is_empty());
        Self { routes: routes.into(), need_path }
    }
}

/// One entry for each different key, in order.
fn keyed(
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

fn find<'a>(entries: &'a [(Box<str>, Candidates)], key: &str) -> Option<&'a Candidates> {
    let at = entries.binary_search_by(|(entry, _)| (**entry).cmp(key)).ok()?;
    Some(&entries[at].1)
}

/// Whether a route takes every host below `suffix`: its own wildcard is that one or a wider one.
fn is_for_suffix(hosts: &[Box<str>], suffix: &str) -> bool {
    let mut wildcards = hosts.iter().filter_map(|host| host.strip_prefix('*'));
    hosts.is_empty() || wildcards.any(|own| suffix.ends_with(own))
}

/// Whether a route matches whatever reaches its listeners.
pub(crate) fn asks_for_nothing_else(conditions: &Conditions) -> bool {
    conditions.hosts.is_empty() && asks_for_no_more_than_a_host(conditions)
}

fn asks_for_no_more_than_a_host(conditions: &Conditions) -> bool {
    conditions.methods.is_empty()
        && conditions.headers.is_empty()
        && conditions.query.is_empty()
        && conditions.sources.is_empty()
        && takes_any_path(&conditions.paths)
}

fn takes_any_path(paths: &[PathCondition]) -> bool {
    let any =
        |path: &PathCondition| matches!(path, PathCondition::Prefix(prefix) if **prefix == *"/");
    paths.is_empty() || paths.iter().any(any)
}

/// The conditions in the forms in which they are compared; those of a config are already.
fn normal_conditions(conditions: &Conditions) -> Conditions {
    let mut conditions = conditions.clone();
    for host in &mut conditions.hosts {
        *host = bare_host(host, &mut String::new()).into();
    }
    for path in &mut conditions.paths {
        if let PathCondition::Exact(text) | PathCondition::Prefix(text) = path {
            *text = normal(text, &mut String::new()).into();
        }
    }
    conditions
}
