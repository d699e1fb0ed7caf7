//! A tunnel without its configuration. A tunnel may live for days, while reloads replace the
//! configuration many times: it keeps its pool, for its slot there, and three names, and no generation of
//! the configuration with its routes and metrics. Its outcome is recorded under the configuration that
//! is in force when it ends, by the names of what it used.

use super::Exchange;
use crate::conn::Link;

/// What a tunnel knows of its configuration.
#[derive(Debug)]
pub(super) struct Detached {
    route: Option<Box<str>>,
    pub(super) pool: Option<Box<str>>,
    pub(super) server: Option<Box<str>>,
}

impl Exchange {
    /// Lets go of the configuration that it began under.
    pub(crate) fn detach(&mut self) {
        let Some(live) = self.live.take() else { return };
        let plan = &live.plan;
        let pool = self.facts.pool.map(|pool| &plan.pools[pool]);
        let server = pool.zip(self.facts.server).map(|(pool, server)| &pool.servers[server]);
        self.detached = Some(Box::new(Detached {
            route: self.facts.route.map(|route| plan.routes[route].name.clone()),
            pool: pool.map(|pool| pool.name.clone()),
            server: server.map(|server| server.name.clone()),
        }));
    }

    /// Finds its listener, route, pool and server in the configuration that its connection follows now.
    /// What is not there any more is left out of its outcome.
    pub(super) fn attach(&mut self, link: &Link) {
        let Some(detached) = self.detached.take() else { return };
        let Some((live, listener)) = link.place() else { return };
        let (routes, pools) = (&live.plan.routes, &live.plan.pools);
        self.listener = listener;
        self.facts.route =
            detached.route.and_then(|name| routes.iter().position(|route| route.name == name));
        self.facts.pool =
            detached.pool.and_then(|name| pools.iter().position(|pool| pool.name == name));
        let servers = self.facts.pool.map(|pool| &pools[pool].servers);
        self.facts.server = detached
            .server
            .zip(servers)
            .and_then(|(name, servers)| servers.iter().position(|server| server.name == name));
        self.live = Some(live);
    }
}
