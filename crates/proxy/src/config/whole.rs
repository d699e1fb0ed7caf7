//! What only shows when all of a plan is there: names and addresses that stand twice, routes that
//! can never match, pools that nothing uses.

use std::collections::HashMap;
use std::path::Path;

use rt::address::Address;

use crate::plan::{Action, Balance, HashKey, ListenerPlan, Mode, Plan, ServerPlan};
use crate::route::asks_for_nothing_else;

use super::source::Problems;
use super::value::Section;

/// Where the parts of a plan stand, by their indices.
pub(super) struct Places<'a> {
    pub(super) admin: usize,
    pub(super) control: usize,
    pub(super) listeners: &'a [Section],
    pub(super) routes: &'a [usize],
    pub(super) pools: &'a [Section],
}

/// Notes what is wrong with the whole.
pub(super) fn check(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    addresses(plan, places, problems);
    route_names(plan, places, problems);
    unreachable_routes(plan, places, problems);
    unused_pools(plan, places, problems);
    silent_listeners(plan, places, problems);
    namespaces_out_of_reach(plan, places, problems);
    heads_that_nobody_sees(plan, places, problems);
    loops(plan, places, problems);
}

/// A server at the address of a listener that sends requests to it: each request would come back until
/// no descriptor is left.
fn loops(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    for (index, listener) in plan.listeners.iter().enumerate() {
        let by_route = plan.routes.iter().filter_map(|route| match route.action {
            Action::Forward(pool) => {
                let named = &route.conditions.listeners;
                listeners_of(plan, named).contains(&index).then_some(pool)
            }
            _ => None,
        });
        let own = match listener.mode {
            Mode::Tcp(pool) => Some(pool),
            Mode::Http => None,
        };
        let mut pools: Vec<usize> = by_route.chain(own).collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools {
            // A pool that is missing has a problem of its own.
            let found = plan.pools.get(pool).zip(places.pools.get(pool));
            let Some((own, section)) = found else { continue };
            let same_network = own.namespace == listener.namespace;
            let is_own = |server: &&ServerPlan| {
                listener.bind.iter().any(|bind| accepts(bind, &server.address, same_network))
            };
            for server in own.servers.iter().filter(is_own) {
                let text = format!(
                    "server {} of pool '{}' is listener '{}', which sends its requests there: they \
                     would come back for ever",
                    server.address, own.name, listener.name
                );
                problems.add(section.value_place("servers"), text);
            }
        }
    }
}

/// Whether a connection to `server` reaches a socket bound at `bind`.
fn accepts(bind: &Address, server: &Address, same_network: bool) -> bool {
    match (bind, server) {
        (Address::Tcp(bind), Address::Tcp(server)) => {
            let all = bind.ip().is_unspecified() && server.ip().is_loopback();
            let same = bind.port() == server.port() && (all || bind.ip() == server.ip());
            same_network && same && bind.port() != 0
        }
        (Address::Unix(bind), Address::Unix(server)) => bind == server,
        _ => false,
    }
}

fn addresses(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    let control = plan.control.clone().map(Address::Unix);
    let mut seen: HashMap<(Option<&Path>, &Address), String> = HashMap::new();
    for (listener, section) in plan.listeners.iter().zip(places.listeners) {
        // Where each text stands; one that is no address left no place in `bind`, and its problem.
        let texts = section.texts("bind");
        for (index, address) in listener.bind.iter().enumerate() {
            let at = texts.get(index).filter(|_| texts.len() == listener.bind.len());
            let at = at.map_or_else(|| section.value_place("bind"), |text| text.at);
            let key = (listener.namespace.as_deref(), address);
            let name = format!("listener {}", listener.name);
            note_address(&mut seen, key, name, at, problems);
        }
    }
    if let Some(admin) = &plan.admin {
        note_address(&mut seen, (None, admin), "admin".into(), places.admin, problems);
    }
    if let Some(control) = &control {
        note_address(&mut seen, (None, control), "control".into(), places.control, problems);
    }
}

fn note_address<'p>(
    seen: &mut HashMap<(Option<&'p Path>, &'p Address), String>,
    key: (Option<&'p Path>, &'p Address),
    name: String,
    at: usize,
    problems: &mut Problems,
) {
    // Port 0 is a new port each time, so it may stand twice.
    if matches!(key.1, Address::Tcp(address) if address.port() == 0) {
        return;
    }
    let address = key.1;
    if let Some(other) = seen.insert(key, name) {
        problems.add(at, format!("{address} is taken by {other}: give one of them another"));
    }
}

fn route_names(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (index, route) in plan.routes.iter().enumerate() {
        if let Some(first) = seen.insert(&route.name, index) {
            let text = format!(
                "route {} is named '{}' too, as route {}: name it otherwise",
                index + 1,
                route.name,
                first + 1
            );
            problems.add(places.routes[index], text);
        }
    }
}

/// A route without conditions leaves nothing to those behind it, on its listeners.
fn unreachable_routes(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    let mut taken_by: Vec<Option<usize>> = vec![None; plan.listeners.len()];
    for (index, route) in plan.routes.iter().enumerate() {
        let listeners: Vec<usize> = listeners_of(plan, &route.conditions.listeners);
        let takers: Option<Vec<usize>> =
            listeners.iter().map(|&listener| taken_by[listener]).collect();
        if let Some(&taker) = takers.as_deref().and_then(|takers| takers.iter().max()) {
            let by = &plan.routes[taker].name;
            let text = format!("route '{}' never matches: '{by}' before it takes all", route.name);
            problems.warn(places.routes[index], text);
        }
        if asks_for_nothing_else(&route.conditions) {
            for listener in listeners {
                taken_by[listener].get_or_insert(index);
            }
        }
    }
}

/// All that speak HTTP, when none is named.
fn listeners_of(plan: &Plan, named: &[usize]) -> Vec<usize> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let is_http = |listener: &ListenerPlan| listener.mode == Mode::Http;
    (0..plan.listeners.len()).filter(|&index| is_http(&plan.listeners[index])).collect()
}

fn unused_pools(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    for (index, (pool, section)) in plan.pools.iter().zip(places.pools).enumerate() {
        let forwards = plan.routes.iter().any(|route| route.action == Action::Forward(index));
        let tcp = plan.listeners.iter().any(|listener| listener.mode == Mode::Tcp(index));
        if !forwards && !tcp {
            let text =
                format!("nothing uses pool '{}': name it in a route or a listener", pool.name);
            problems.warn(section.at, text);
        }
    }
}

fn silent_listeners(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    for (index, (listener, section)) in plan.listeners.iter().zip(places.listeners).enumerate() {
        let has_route = plan
            .routes
            .iter()
            .any(|route| listeners_of(plan, &route.conditions.listeners).contains(&index));
        if listener.mode == Mode::Http && !has_route {
            let text = format!(
                "listener '{}' answers 404 to everything: no route is for it",
                listener.name
            );
            problems.warn(section.at, text);
        }
    }
}

/// Where bytes are passed on as they are, no field, path or cookie is seen.
fn heads_that_nobody_sees(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    for (index, (pool, section)) in plan.pools.iter().zip(places.pools).enumerate() {
        let mut listeners = plan.listeners.iter();
        let Some(tcp) = listeners.find(|listener| listener.mode == Mode::Tcp(index)) else {
            continue;
        };
        if pool.balance == Balance::ConsistentHash && pool.hash.key != HashKey::Source {
            let text = format!(
                "listener '{}' is of mode tcp and sees no {}: its connections go to the better of \
                 two random servers",
                tcp.name, pool.hash.key
            );
            problems.warn(section.value_place("hash"), text);
        }
        if pool.sticky.is_some() {
            let text =
                format!("listener '{}' is of mode tcp: its connections have no cookies", tcp.name);
            problems.warn(section.value_place("sticky"), text);
        }
    }
}

/// A connection is made in a namespace by going there, which only root may (setns(2)); listeners are
/// bound while we still are.
fn namespaces_out_of_reach(plan: &Plan, places: &Places<'_>, problems: &mut Problems) {
    let Some(user) = plan.privileges.user.filter(|&user| user != 0) else {
        return;
    };
    for (pool, section) in plan.pools.iter().zip(places.pools) {
        if pool.namespace.is_some() {
            let text = format!(
                "pool '{}' connects in another namespace, which takes root, and [privileges] gives \
                 that up for user {user}: leave one of them out, or run weir in that namespace",
                pool.name
            );
            problems.add(section.value_place("namespace"), text);
        }
    }
}
