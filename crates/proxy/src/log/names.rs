//! The names in a plan, as each format writes them: made once, so that a line only copies.

use super::escape::Escape;
use super::sink::written;
use crate::plan::{Mode, Plan, PoolPlan};

/// The names of one plan. A line is written with those of the plan that its request ran under.
#[derive(Debug)]
pub(crate) struct Names {
    pub(super) listeners: Vec<ListenerName>,
    pub(super) routes: Vec<Name>,
    pub(super) pools: Vec<PoolName>,
}

#[derive(Debug)]
pub(super) struct ListenerName {
    pub(super) name: Name,
    /// Whether it passes on connections and not requests.
    pub(super) is_tcp: bool,
}

#[derive(Debug)]
pub(super) struct PoolName {
    pub(super) name: Name,
    pub(super) servers: Vec<Name>,
}

/// What HAProxy's formats have in a server's place when there was none.
pub(super) const NO_SERVER: &[u8] = b"<NOSRV>";

/// One name.
#[derive(Debug)]
pub(super) struct Name {
    /// As a whole member of an object, with the comma before it.
    pub(super) json: Box<[u8]>,
    /// Without blanks, which separate fields. A server's is `pool/server ` as a whole.
    pub(super) haproxy: Box<[u8]>,
}

impl Name {
    fn new(member: &str, name: &str) -> Self {
        let haproxy = written(6 * name.len(), |out| {
            for (index, part) in name.split(' ').enumerate() {
                if index > 0 {
                    out.fixed(b"#20");
                }
                Escape::Haproxy.push(out, part.as_bytes());
            }
        });
        Self { json: json(member, name), haproxy: haproxy.into() }
    }
}

/// `,"member":"name"`
fn json(member: &str, name: &str) -> Box<[u8]> {
    let bytes = written(member.len() + 6 * name.len() + 6, |out| {
        out.fixed(b",\"");
        out.slice(member.as_bytes());
        out.fixed(b"\":\"");
        Escape::Json.push(out, name.as_bytes());
        out.byte(b'"');
    });
    bytes.into()
}

impl PoolName {
    /// A server's name comes with its pool's, and a pool's with the server that is missing, as a
    /// line has them.
    fn of(pool: &PoolPlan) -> Self {
        let name = Name::new("pool", &pool.name);
        let joined = |json: &[u8], haproxy: &[u8]| Name {
            json: [&*name.json, json].concat().into(),
            haproxy: [&*name.haproxy, b"/", haproxy, b" "].concat().into(),
        };
        let servers = pool.servers.iter().map(|planned| {
            let server = Name::new("server", &planned.name);
            joined(&server.json, &server.haproxy)
        });
        Self { servers: servers.collect(), name: joined(b",\"server\":null", NO_SERVER) }
    }
}

impl Names {
    pub(crate) fn of(plan: &Plan) -> Self {
        let listeners = plan.listeners.iter().map(|listener| ListenerName {
            name: Name::new("listener", &listener.name),
            is_tcp: matches!(listener.mode, Mode::Tcp(_)),
        });
        let routes = plan.routes.iter().map(|route| Name::new("route", &route.name));
        Self {
            listeners: listeners.collect(),
            routes: routes.collect(),
            pools: plan.pools.iter().map(PoolName::of).collect(),
        }
    }

    pub(super) fn pool(&self, pool: Option<usize>) -> Option<&Name> {
        self.pools.get(pool?).map(|pool| &pool.name)
    }

    pub(super) fn server(&self, pool: Option<usize>, server: Option<usize>) -> Option<&Name> {
        self.pools.get(pool?)?.servers.get(server?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_a_line() {
        let name = Name::new("route", "a \"b\"\n#");
        assert_eq!(&*name.json, b",\"route\":\"a \\\"b\\\"\\u000A#\"");
        assert_eq!(&*name.haproxy, b"a#20#22b#22#0A#23");
    }
}
