//! Routes of a listener in mode tcp by the names in the client's TLS ClientHello, which is forwarded
//! unchanged: the proxy terminates nothing.

use rt::tls::client_hello::ClientHelloNames;

use super::{ListenerPlan, Mode, PoolId};
use crate::uri::matches_host_pattern;

/// `[[listener.NAME.sni]]`, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniPlan {
    /// Routes in the order in which they are tried.
    pub routes: Vec<SniRoute>,
    /// Pool of connections that match no route; `None`: they are rejected.
    pub default_pool: Option<PoolId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SniRoute {
    /// Server names, any of them, in lower case; `*.example.org` for any name below it. None: all,
    /// also of a client that sends none.
    pub server_names: Vec<Box<str>>,
    /// Protocols of ALPN, any of which the client must offer. None: all.
    pub alpn: Vec<Box<str>>,
    pub pool: PoolId,
}

/// Result of matching a ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SniMatch {
    Route(PoolId),
    /// No route matched, and there is a default pool.
    Default(PoolId),
    None,
}

impl SniPlan {
    pub fn pick(&self, names: &ClientHelloNames) -> SniMatch {
        match self.routes.iter().find(|route| route.matches(names)) {
            Some(route) => SniMatch::Route(route.pool),
            None => self.default_pool.map_or(SniMatch::None, SniMatch::Default),
        }
    }

    /// Returns all pools that connections may be forwarded to.
    pub fn pools(&self) -> impl Iterator<Item = PoolId> {
        self.routes.iter().map(|route| route.pool).chain(self.default_pool)
    }
}

impl ListenerPlan {
    /// Returns the pools that a listener in mode tcp forwards to.
    pub fn tcp_pools(&self) -> Vec<PoolId> {
        match (&self.sni, self.mode) {
            (Some(sni), _) => sni.pools().collect(),
            (None, Mode::Tcp(pool)) => vec![pool],
            (None, Mode::Http) => Vec::new(),
        }
    }
}

impl SniRoute {
    fn matches(&self, names: &ClientHelloNames) -> bool {
        let has_name =
            |name: &str| self.server_names.iter().any(|pattern| matches_host_pattern(pattern, name));
        let offers = |protocol: &str| names.alpn.iter().any(|offered| offered == protocol.as_bytes());
        (self.server_names.is_empty() || names.server_name.as_deref().is_some_and(has_name))
            && (self.alpn.is_empty() || self.alpn.iter().any(|protocol| offers(protocol)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(plan: &SniPlan, name: &str, alpn: &[&str]) -> SniMatch {
        let server_name = (!name.is_empty()).then(|| name.into());
        let alpn = alpn.iter().map(|protocol| protocol.as_bytes()).collect();
        plan.pick(&ClientHelloNames { server_name, alpn })
    }

    #[test]
    fn the_first_route_that_matches_decides() {
        let route = |names: &[&str], alpn: &[&str], pool| SniRoute {
            server_names: names.iter().map(|name| (*name).into()).collect(),
            alpn: alpn.iter().map(|name| (*name).into()).collect(),
            pool,
        };
        let routes = vec![
            route(&["a.test"], &["h2"], PoolId(1)),
            route(&["a.test", "*.b.test"], &[], PoolId(2)),
            route(&[], &["acme-tls/1"], PoolId(3)),
        ];
        let plan = SniPlan { routes, default_pool: None };
        assert_eq!(pick(&plan, "a.test", &["h2", "http/1.1"]), SniMatch::Route(PoolId(1)));
        assert_eq!(pick(&plan, "a.test", &["http/1.1"]), SniMatch::Route(PoolId(2)));
        assert_eq!(pick(&plan, "x.y.b.test", &[]), SniMatch::Route(PoolId(2)));
        assert_eq!(pick(&plan, "b.test", &[]), SniMatch::None);
        assert_eq!(pick(&plan, "", &["acme-tls/1"]), SniMatch::Route(PoolId(3)));
        let with_default = SniPlan { default_pool: Some(PoolId(7)), ..plan };
        assert_eq!(pick(&with_default, "", &[]), SniMatch::Default(PoolId(7)));
    }
}
