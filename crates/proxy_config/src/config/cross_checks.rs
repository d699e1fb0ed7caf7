//! Checks of the complete plan: duplicate names and addresses, routes that can never match, pools
//! that nothing uses.

use std::collections::HashMap;
use std::path::Path;

use record::document::Problems;
use rt::address::Address;

use crate::plan::{
    AuthMethod, Balance, HashKey, Id, ListenerPlan, Mode, Plan, PoolId, PreferredFamily, RoutePlan,
    ServerHttp, ServerPlan,
};

use super::value::Section;

/// Byte offsets of the parts of a plan, by index.
pub(super) struct PlanOffsets<'a> {
    pub(super) admin: usize,
    pub(super) control: usize,
    pub(super) listeners: &'a [Section],
    pub(super) routes: &'a [usize],
    pub(super) pools: &'a [Section],
}

pub(super) fn check_plan(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    check_addresses(plan, offsets, problems);
    check_route_names(plan, offsets, problems);
    warn_of_unreachable_routes(plan, offsets, problems);
    warn_of_unused_pools(plan, offsets, problems);
    warn_of_listeners_without_route(plan, offsets, problems);
    check_pool_namespaces(plan, offsets, problems);
    check_source_families(plan, offsets, problems);
    warn_of_http_settings_in_tcp(plan, offsets, problems);
    check_loops(plan, offsets, problems);
    check_hooks(plan, offsets, problems);
}

/// Finds hooks of automatic certificates that could not start: Landlock forbids to execute files.
fn check_hooks(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    if !plan.privileges.landlock {
        return;
    }
    for (listener, section) in plan.listeners.iter().zip(offsets.listeners) {
        let acme = listener.tls.as_ref().and_then(|tls| tls.acme.as_ref());
        if acme.is_some_and(|acme| acme.hook().is_some()) {
            let table = section.table("tls").table("acme").table("dns");
            let text = "the hook and the programs that it starts need files outside of the sandbox: set \
                        privileges.landlock = false, or use `server`";
            problems.add_error(table.value_offset("hook"), text);
        }
    }
}

/// Finds servers with the address of a listener that forwards requests to them. Each such request
/// would come back until no descriptor is left.
fn check_loops(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    for (index, listener) in plan.listeners.iter().enumerate() {
        let is_of_listener =
            |route: &&RoutePlan| listeners_of(plan, &route.conditions.listeners).contains(&index);
        let by_route = plan.routes.iter().filter(is_of_listener).flat_map(|route| route.action.pools());
        let mut pools: Vec<PoolId> = by_route.chain(listener.tcp_pools()).collect();
        pools.sort_unstable();
        pools.dedup();
        for pool in pools {
            // A missing pool has already been reported.
            let pool_and_section = plan.pools.get(pool).zip(offsets.pools.get(pool.index()));
            let Some((pool_plan, section)) = pool_and_section else { continue };
            let same_network = pool_plan.namespace == listener.namespace;
            let is_listener = |server: &&ServerPlan| {
                listener.bind.iter().any(|bind| is_same_socket(bind, &server.address, same_network))
            };
            for server in pool_plan.servers.iter().filter(is_listener) {
                let text = format!(
                    "server {} of pool '{}' is the address of listener '{}', which forwards to this \
                     pool: its requests would loop",
                    server.address, pool_plan.name, listener.name
                );
                problems.add_error(section.value_offset("servers"), text);
            }
        }
    }
}

/// Returns whether a connection to `server` reaches a socket bound at `bind`.
fn is_same_socket(bind: &Address, server: &Address, same_network: bool) -> bool {
    match (bind, server) {
        (Address::Tcp(bind), Address::Tcp(server)) => {
            let is_wildcard = bind.ip().is_unspecified() && server.ip().is_loopback();
            let is_same_address = bind.port() == server.port() && (is_wildcard || bind.ip() == server.ip());
            same_network && is_same_address && bind.port() != 0
        }
        (Address::Unix(bind), Address::Unix(server)) => bind == server,
        _ => false,
    }
}

fn check_addresses(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    let control = plan.control.clone().map(Address::Unix);
    let mut first_uses: HashMap<(Option<&Path>, &Address), String> = HashMap::new();
    for (listener, section) in plan.listeners.iter().zip(offsets.listeners) {
        // Position of each address. An invalid one has a problem of its own and is not in `bind`,
        // so indices no longer correspond.
        let texts = section.texts("bind");
        for (index, address) in listener.bind.iter().enumerate() {
            let offset = texts.get(index).filter(|_| texts.len() == listener.bind.len());
            let offset = offset.map_or_else(|| section.value_offset("bind"), |text| text.offset);
            let key = (listener.namespace.as_deref(), address);
            let name = format!("listener {}", listener.name);
            record_address(&mut first_uses, key, name, offset, problems);
        }
    }
    if let Some(admin) = &plan.admin {
        record_address(&mut first_uses, (None, admin), "admin".into(), offsets.admin, problems);
    }
    if let Some(control) = &control {
        record_address(&mut first_uses, (None, control), "control".into(), offsets.control, problems);
    }
}

fn record_address<'p>(
    first_uses: &mut HashMap<(Option<&'p Path>, &'p Address), String>,
    key: (Option<&'p Path>, &'p Address),
    name: String,
    offset: usize,
    problems: &mut Problems,
) {
    // Each bind to port 0 gets a new port, so it may be given twice.
    if matches!(key.1, Address::Tcp(address) if address.port() == 0) {
        return;
    }
    let address = key.1;
    if let Some(other) = first_uses.insert(key, name) {
        problems.add_error(offset, format!("{address} is already used by {other}: change one of them"));
    }
}

fn check_route_names(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    let mut first_uses: HashMap<&str, usize> = HashMap::new();
    for (index, route) in plan.routes.iter().enumerate() {
        if let Some(first) = first_uses.insert(&route.name, index) {
            let text = format!(
                "route {} has the same name '{}' as route {}: rename one of them",
                index + 1,
                route.name,
                first + 1
            );
            problems.add_error(offsets.routes[index], text);
        }
    }
}

/// Finds routes behind a route without conditions, which takes all requests on its listeners.
fn warn_of_unreachable_routes(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    let mut caught_by: Vec<Option<usize>> = vec![None; plan.listeners.len()];
    for (index, route) in plan.routes.iter().enumerate() {
        let listeners: Vec<usize> = listeners_of(plan, &route.conditions.listeners);
        let catch_alls: Option<Vec<usize>> = listeners.iter().map(|&listener| caught_by[listener]).collect();
        if let Some(&catch_all) = catch_alls.as_deref().and_then(|takers| takers.iter().max()) {
            let earlier = &plan.routes[catch_all].name;
            let text =
                format!("route '{}' never matches: '{earlier}' before it matches every request", route.name);
            problems.warn(offsets.routes[index], text);
        }
        if route.conditions.matches_everything() {
            for listener in listeners {
                caught_by[listener].get_or_insert(index);
            }
        }
    }
}

/// Returns the named listeners, or all in mode http if none is named.
fn listeners_of(plan: &Plan, named_listeners: &[usize]) -> Vec<usize> {
    if !named_listeners.is_empty() {
        return named_listeners.to_vec();
    }
    let is_http = |listener: &ListenerPlan| listener.mode == Mode::Http;
    (0..plan.listeners.len()).filter(|&index| is_http(&plan.listeners[index])).collect()
}

fn warn_of_unused_pools(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    for ((id, pool), section) in plan.pools.enumerate().zip(offsets.pools) {
        let is_forwarded_to = plan.routes.iter().any(|route| route.action.pools().contains(&id));
        let is_tcp_target = plan.listeners.iter().any(|listener| listener.tcp_pools().contains(&id));
        let settings = plan.routes.iter().filter_map(|route| route.settings.by_listener.first());
        let is_mirror = settings.flat_map(|settings| &*settings.mirrors).any(|mirror| mirror.pool == id);
        let is_asked = plan
            .auth_plans()
            .any(|auth| matches!(&auth.method, AuthMethod::Request(request) if request.pool == id));
        if !is_forwarded_to && !is_tcp_target && !is_mirror && !is_asked {
            let text =
                format!("pool '{}' is not used: name it in a route or a listener, or remove it", pool.name);
            problems.warn(section.offset, text);
        }
    }
}

fn warn_of_listeners_without_route(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    for (index, (listener, section)) in plan.listeners.iter().zip(offsets.listeners).enumerate() {
        let has_route =
            plan.routes.iter().any(|route| listeners_of(plan, &route.conditions.listeners).contains(&index));
        if listener.mode == Mode::Http && !has_route && listener.redirect_https.is_none() {
            let text = format!(
                "listener '{}' responds 404 to every request: it has no route and no pool",
                listener.name
            );
            problems.warn(section.offset, text);
        }
    }
}

/// Warns about settings that need a field, path or cookie in a pool of a mode tcp listener. There,
/// bytes are forwarded unchanged and no head is parsed.
fn warn_of_http_settings_in_tcp(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    for ((id, pool), section) in plan.pools.enumerate().zip(offsets.pools) {
        let mut listeners = plan.listeners.iter();
        let Some(tcp_listener) = listeners.find(|listener| listener.tcp_pools().contains(&id)) else {
            continue;
        };
        if pool.balance == Balance::ConsistentHash && pool.hash.key != HashKey::Source {
            let text = format!(
                "listener '{}' is in mode tcp and has no {}: its connections are balanced by \
                 random-of-two",
                tcp_listener.name, pool.hash.key
            );
            problems.warn(section.value_offset("hash"), text);
        }
        if pool.http != ServerHttp::Http11 {
            let text = format!(
                "listener '{}' is in mode tcp: its bytes are forwarded unchanged, whatever `http` is",
                tcp_listener.name
            );
            problems.warn(section.value_offset("http"), text);
        }
        if pool.sticky.is_some() {
            let text = format!(
                "listener '{}' is in mode tcp: its connections have no cookies and texts",
                tcp_listener.name
            );
            problems.warn(section.value_offset("sticky"), text);
        }
    }
}

/// Finds pools in another namespace when privileges are dropped. Connecting there means entering
/// the namespace, which needs root (setns(2)). Listeners are not affected: they are bound before
/// privileges are dropped.
fn check_pool_namespaces(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    let Some(user) = plan.privileges.user.filter(|&user| user != 0) else {
        return;
    };
    for (pool, section) in plan.pools.iter().zip(offsets.pools) {
        if pool.namespace.is_some() {
            let text = format!(
                "pool '{}' connects in another namespace, which needs root, but [privileges] changes \
                 to user {user}: remove one of them, or run weir in that namespace",
                pool.name
            );
            problems.add_error(section.value_offset("namespace"), text);
        }
    }
}

/// Finds servers and targets of health checks that no source address of the pool can reach, because
/// it has the other address family.
fn check_source_families(plan: &Plan, offsets: &PlanOffsets<'_>, problems: &mut Problems) {
    for (pool, section) in plan.pools.iter().zip(offsets.pools) {
        // An invalid source address has a problem of its own.
        if pool.sources.is_empty() || pool.sources.len() != section.texts("source").len() {
            continue;
        }
        let offset = section.value_offset("source");
        let check_address = pool.check.as_ref().and_then(|check| check.address.as_ref());
        let targets = pool.servers.iter().map(|server| &server.address).chain(check_address);
        for target in targets {
            let Address::Tcp(target) = target else { continue };
            if !pool.sources.iter().any(|source| source.is_ipv4() == target.is_ipv4()) {
                let family = if target.is_ipv4() { "IPv4" } else { "IPv6" };
                let text = format!(
                    "pool '{}' connects to {target}, and 'source' has no {family} address: add one",
                    pool.name
                );
                problems.add_error(offset, text);
            }
        }
        let prefers_ipv4 = pool.resolve.prefer == PreferredFamily::Ipv4;
        if !pool.named_servers.is_empty()
            && !pool.sources.iter().any(|source| source.is_ipv4() == prefers_ipv4)
        {
            let family = if prefers_ipv4 { "IPv4" } else { "IPv6" };
            let text = format!(
                "pool '{}' prefers {family} addresses of names (resolve.prefer), and 'source' has none of \
                 that family: change one of them",
                pool.name
            );
            problems.add_error(offset, text);
        }
        let is_unix = |server: &ServerPlan| matches!(server.address, Address::Unix(_));
        if pool.named_servers.is_empty() && pool.servers.iter().all(is_unix) {
            let text =
                format!("'source' has no effect: all servers of pool '{}' are unix sockets", pool.name);
            problems.warn(offset, text);
        }
    }
}
