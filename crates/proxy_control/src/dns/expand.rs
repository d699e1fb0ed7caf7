//! Expansion of a plan's host names to servers, with the results of DNS. No I/O.

use std::sync::Arc;

use rt::address::Address;

use super::{ResolvedServers, lookup_key};
use crate::plan::{IdVec, NamedServers, Plan, PoolPlan, ServerId, ServerPlan};

/// Returns `template` with the known servers of its names, behind those with addresses. Shares
/// everything else with the template. Shares unchanged pools with `before`, which was made from the
/// same template.
pub(crate) fn expand(template: &Plan, resolved: &ResolvedServers, previous_plan: Option<&Plan>) -> Plan {
    let pools = template.pools.enumerate().map(|(id, pool)| {
        if pool.named_servers.is_empty() {
            return Arc::clone(pool);
        }
        let servers = resolved_servers_of(pool, resolved);
        match previous_plan.and_then(|before| before.pools.get(id)) {
            Some(previous_pool) if previous_pool.servers == servers => Arc::clone(previous_pool),
            _ => Arc::new(PoolPlan { servers, ..PoolPlan::clone(pool) }),
        }
    });
    Plan { pools: pools.collect(), ..template.clone() }
}

/// Returns the servers of a pool: those with addresses, and the known ones of its names.
fn resolved_servers_of(pool: &PoolPlan, resolved: &ResolvedServers) -> IdVec<ServerId, ServerPlan> {
    let mut servers = pool.servers.clone();
    for names in &pool.named_servers {
        for server in resolved_servers_of_name(pool, names, resolved) {
            // Two names may resolve to the same server.
            if !servers.iter().any(|other| other.name == server.name) {
                servers.push(server);
            }
        }
    }
    servers
}

pub(crate) fn has_named_servers(plan: &Plan) -> bool {
    plan.pools.iter().any(|pool| !pool.named_servers.is_empty())
}

fn resolved_servers_of_name(
    pool: &PoolPlan,
    names: &NamedServers,
    resolved: &ResolvedServers,
) -> Vec<ServerPlan> {
    let servers = resolved.get(&lookup_key(pool, names)).map_or(&[][..], |found| &found[..]);
    let server = |resolved_server: &super::ResolvedServer| {
        let template = &names.template;
        let name = match names.is_named {
            true => format!("{}-{}", template.name, resolved_server.address),
            false => resolved_server.address.to_string(),
        };
        ServerPlan {
            name: name.into(),
            address: Address::Tcp(resolved_server.address),
            weight: resolved_server.weight.unwrap_or(template.weight),
            ..template.clone()
        }
    };
    servers.iter().map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ResolvedServer;
    use super::*;
    use crate::config;
    use crate::plan::PoolId;

    fn plan(servers: &str) -> Plan {
        let text = format!("[listener.l]\nbind = '127.0.0.1:0'\npool = 'p'\n[pool.p]\nservers = {servers}\n");
        config::parse("t", &text).unwrap().plan
    }

    #[test]
    fn names_become_servers() {
        let template = plan(
            "['10.0.0.1:80', { address = 'App.x:80', weight = 3, maxconn = 9 }, \
             { srv = '_s._tcp.x', name = 'n' }]",
        );
        let expanded = |resolved: &ResolvedServers| {
            let pool = &expand(&template, resolved, None).pools[PoolId(0)];
            let show = |server: &ServerPlan| {
                format!("{} {} {} {:?}", server.name, server.address, server.weight, server.maxconn)
            };
            pool.servers.iter().map(show).collect::<Vec<_>>()
        };
        let mut resolved = ResolvedServers::new();
        assert_eq!(expanded(&resolved), ["10.0.0.1:80 10.0.0.1:80 1 None"]);
        let pool = &template.pools[PoolId(0)];
        let resolved_server =
            |last, weight| ResolvedServer { address: ([10, 0, 0, last], 80).into(), weight };
        resolved.insert(
            lookup_key(pool, &pool.named_servers[0]),
            vec![resolved_server(1, None), resolved_server(2, None)],
        );
        resolved.insert(lookup_key(pool, &pool.named_servers[1]), vec![resolved_server(2, Some(7))]);
        assert_eq!(
            expanded(&resolved),
            [
                "10.0.0.1:80 10.0.0.1:80 1 None",
                "10.0.0.2:80 10.0.0.2:80 3 Some(9)",
                "n-10.0.0.2:80 10.0.0.2:80 7 None",
            ]
        );
    }
}
