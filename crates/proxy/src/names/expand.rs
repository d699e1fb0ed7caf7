//! A plan with the servers that DNS has for its names. Pure.

use rt::address::Address;

use super::{Known, key};
use crate::plan::{NamedServers, Plan, PoolPlan, ServerPlan};

/// `template` with the servers that are known for its names, behind those that have addresses.
pub(crate) fn expand(template: &Plan, known: &Known) -> Plan {
    let mut plan = template.clone();
    for pool in &mut plan.pools {
        for names in &template_names(pool) {
            for server in servers(pool, names, known) {
                // Two names may lead to the same server.
                if !pool.servers.iter().any(|other| other.name == server.name) {
                    pool.servers.push(server);
                }
            }
        }
    }
    plan
}

/// Whether some pool has names.
pub(crate) fn has_names(plan: &Plan) -> bool {
    plan.pools.iter().any(|pool| !pool.names.is_empty())
}

fn template_names(pool: &PoolPlan) -> Vec<NamedServers> {
    pool.names.clone()
}

fn servers(pool: &PoolPlan, names: &NamedServers, known: &Known) -> Vec<ServerPlan> {
    let found = known.get(&key(pool, names)).map_or(&[][..], |found| &found[..]);
    let server = |found: &super::Found| {
        let like = &names.like;
        let name = match names.is_named {
            true => format!("{}-{}", like.name, found.address),
            false => found.address.to_string(),
        };
        ServerPlan {
            name: name.into(),
            address: Address::Tcp(found.address),
            weight: found.weight.unwrap_or(like.weight),
            ..like.clone()
        }
    };
    found.iter().map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Found;
    use super::*;
    use crate::config;

    fn plan(servers: &str) -> Plan {
        let text = format!(
            "[listener.l]\nbind = '127.0.0.1:0'\npool = 'p'\n[pool.p]\nservers = {servers}\n"
        );
        config::parse("t", &text).unwrap().plan
    }

    #[test]
    fn names_become_servers() {
        let template = plan(
            "['10.0.0.1:80', { address = 'App.x:80', weight = 3, maxconn = 9 }, \
             { srv = '_s._tcp.x', name = 'n' }]",
        );
        let shown = |known: &Known| {
            let pool = &expand(&template, known).pools[0];
            let show = |server: &ServerPlan| {
                format!("{} {} {} {:?}", server.name, server.address, server.weight, server.maxconn)
            };
            pool.servers.iter().map(show).collect::<Vec<_>>()
        };
        let mut known = Known::new();
        assert_eq!(shown(&known), ["10.0.0.1:80 10.0.0.1:80 1 None"]);
        let pool = &template.pools[0];
        let found = |last, weight| Found { address: ([10, 0, 0, last], 80).into(), weight };
        known.insert(key(pool, &pool.names[0]), vec![found(1, None), found(2, None)]);
        known.insert(key(pool, &pool.names[1]), vec![found(2, Some(7))]);
        assert_eq!(
            shown(&known),
            [
                "10.0.0.1:80 10.0.0.1:80 1 None",
                "10.0.0.2:80 10.0.0.2:80 3 Some(9)",
                "n-10.0.0.2:80 10.0.0.2:80 7 None",
            ]
        );
    }
}
