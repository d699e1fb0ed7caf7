//! Tunnels detached from their configuration. A tunnel may live for days, while reloads replace the
//! configuration many times. It keeps its pool, for its slot there, and three names. It does not
//! keep a generation of the configuration with its routes and metrics. Its outcome is recorded
//! under the configuration in force at its end, by the names that it used.

use crate::client_stream::ClientStream;
use crate::core::ListenerGeneration;
use crate::exchange_state::{DetachedNames, Exchange};

impl Exchange {
    /// Releases the configuration under which the tunnel began.
    pub(crate) fn detach(&mut self) {
        let Some(generation) = self.generation.take() else { return };
        let plan = &generation.plan;
        let pool = self.outcome.pool.map(|pool| &plan.pools[pool]);
        let server = pool.zip(self.outcome.server).map(|(pool, server)| &pool.servers[server]);
        self.detached = Some(Box::new(DetachedNames {
            route: self.outcome.route.map(|route| plan.routes[route].name.clone()),
            pool: pool.map(|pool| pool.name.clone()),
            server: server.map(|server| server.name.clone()),
        }));
    }

    /// Finds the listener, route, pool and server in the configuration that the connection follows
    /// now. Those that no longer exist are left out of the outcome.
    pub(super) fn attach(&mut self, client: &ClientStream) {
        let Some(detached) = self.detached.take() else { return };
        let Some(ListenerGeneration { generation, listener }) = client.active_generation() else { return };
        let (routes, pools) = (&generation.plan.routes, &generation.plan.pools);
        self.listener = listener;
        self.outcome.route =
            detached.route.and_then(|name| routes.iter().position(|route| route.name == name));
        self.outcome.pool = detached.pool.and_then(|name| pools.position(|pool| pool.name == name));
        let servers = self.outcome.pool.map(|pool| &pools[pool].servers);
        self.outcome.server = detached
            .server
            .zip(servers)
            .and_then(|(name, servers)| servers.position(|server| server.name == name));
        self.generation = Some(generation);
    }
}
