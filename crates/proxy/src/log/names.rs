//! Names of a plan, rendered once for each format, so that a line only copies them.

use std::rc::Rc;

use super::escape::EscapeRule;
use super::sink::render_to_vec;
use crate::plan::{IdVec, Mode, Plan, PoolId, PoolPlan, ServerId};

/// Names of one plan. A line is written with the names of the plan under which its request ran.
#[derive(Debug)]
pub(crate) struct LogNames {
    pub(super) listeners: Rc<[ListenerLogName]>,
    pub(super) routes: Rc<[LogName]>,
    pub(super) pools: IdVec<PoolId, Rc<PoolLogName>>,
}

#[derive(Debug)]
pub(super) struct ListenerLogName {
    pub(super) name: LogName,
    /// True if it forwards connections and not requests.
    pub(super) is_tcp: bool,
    /// True if its connections are TLS sessions.
    pub(super) has_tls: bool,
}

#[derive(Debug)]
pub(super) struct PoolLogName {
    pub(super) name: LogName,
    pub servers: IdVec<ServerId, LogName>,
}

/// Placeholder for a missing server in HAProxy's formats.
pub(super) const NO_SERVER_NAME: &[u8] = b"<NOSRV>";

#[derive(Debug)]
pub(super) struct LogName {
    /// The name as it is in the config.
    pub(super) text: Box<str>,
    /// Complete member of an object, with the comma before it.
    pub(super) json_member: Box<[u8]>,
    /// Name without blanks, which separate fields. For a server it is the complete `pool/server `.
    pub(super) haproxy_text: Box<[u8]>,
}

impl LogName {
    fn new(key: &str, name: &str) -> Self {
        let haproxy = render_to_vec(6 * name.len(), |out| {
            for (index, part) in name.split(' ').enumerate() {
                if index > 0 {
                    out.fixed(b"#20");
                }
                EscapeRule::Haproxy.push_escaped(out, part.as_bytes());
            }
        });
        Self { text: name.into(), json_member: render_json_member(key, name), haproxy_text: haproxy.into() }
    }
}

/// Renders `,"member":"name"`.
fn render_json_member(key: &str, name: &str) -> Box<[u8]> {
    let bytes = render_to_vec(key.len() + 6 * name.len() + 6, |out| {
        out.fixed(b",\"");
        out.slice(key.as_bytes());
        out.fixed(b"\":\"");
        EscapeRule::Json.push_escaped(out, name.as_bytes());
        out.byte(b'"');
    });
    bytes.into()
}

impl PoolLogName {
    /// Renders the names of a pool. A server's name includes the pool's name, and a pool's name
    /// includes the placeholder for a missing server, as in a line.
    fn new(pool: &PoolPlan) -> Self {
        let name = LogName::new("pool", &pool.name);
        let join_names = |text: &str, json: &[u8], haproxy: &[u8]| LogName {
            text: text.into(),
            json_member: [&*name.json_member, json].concat().into(),
            haproxy_text: [&*name.haproxy_text, b"/", haproxy, b" "].concat().into(),
        };
        let servers = pool.servers.iter().map(|server_plan| {
            let server = LogName::new("server", &server_plan.name);
            join_names(&server_plan.name, &server.json_member, &server.haproxy_text)
        });
        Self { servers: servers.collect(), name: join_names(&pool.name, b",\"server\":null", NO_SERVER_NAME) }
    }
}

impl LogNames {
    pub(crate) fn new(plan: &Plan) -> Self {
        let listeners = plan.listeners.iter().map(|listener| ListenerLogName {
            name: LogName::new("listener", &listener.name),
            is_tcp: matches!(listener.mode, Mode::Tcp(_)),
            has_tls: listener.tls.is_some(),
        });
        let routes = plan.routes.iter().map(|route| LogName::new("route", &route.name));
        Self {
            listeners: listeners.collect(),
            routes: routes.collect(),
            pools: plan.pools.iter().map(|pool| Rc::new(PoolLogName::new(pool))).collect(),
        }
    }

    /// Returns the names of no plan.
    #[cfg(any(test, fuzzing))]
    pub(super) fn none() -> Self {
        Self { listeners: Rc::new([]), routes: Rc::new([]), pools: IdVec::from(Vec::new()) }
    }

    /// Returns the names of a plan that differs only in the pools for which `is_changed` returns
    /// true.
    pub(crate) fn with_pools_of(&self, plan: &Plan, is_changed: impl Fn(PoolId) -> bool) -> Self {
        let pools = plan.pools.enumerate().zip(&self.pools);
        let pools = pools.map(|((id, pool), old_pool)| match is_changed(id) {
            true => Rc::new(PoolLogName::new(pool)),
            false => Rc::clone(old_pool),
        });
        Self {
            listeners: Rc::clone(&self.listeners),
            routes: Rc::clone(&self.routes),
            pools: pools.collect(),
        }
    }

    pub(super) fn pool(&self, pool: Option<PoolId>) -> Option<&LogName> {
        self.pools.get(pool?).map(|pool| &pool.name)
    }

    pub(crate) fn listener_text(&self, listener: usize) -> &str {
        self.listeners.get(listener).map_or("", |listener| &listener.name.text)
    }

    pub(crate) fn route_text(&self, route: Option<usize>) -> &str {
        route.and_then(|route| self.routes.get(route)).map_or("", |route| &route.text)
    }

    pub(crate) fn pool_text(&self, pool: Option<PoolId>) -> &str {
        self.pool(pool).map_or("", |pool| &pool.text)
    }

    pub(crate) fn server_text(&self, pool: Option<PoolId>, server: Option<ServerId>) -> &str {
        self.server(pool, server).map_or("", |server| &server.text)
    }

    pub(super) fn server(&self, pool: Option<PoolId>, server: Option<ServerId>) -> Option<&LogName> {
        self.pools.get(pool?)?.servers.get(server?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_a_line() {
        let name = LogName::new("route", "a \"b\"\n#");
        assert_eq!(&*name.json_member, b",\"route\":\"a \\\"b\\\"\\u000A#\"");
        assert_eq!(&*name.haproxy_text, b"a#20#22b#22#0A#23");
    }
}
