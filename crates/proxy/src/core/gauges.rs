//! Gauges of a core: values that are read when the metrics are.

use super::Core;
use crate::metrics::ServerSlots;

/// Memory of an idle connection in user space: its task with this state, and its slots among the
/// runtime's sockets and the deadlines. Measured by `bench/`.
const IDLE_CONN_BYTES: usize = 600;
/// Memory of an idle connection of HTTP/2, in addition: its tables of HPACK and of streams.
const IDLE_H2_BYTES: usize = 4_300;

impl Core {
    /// Sets the gauges in the metrics.
    pub(super) fn update_gauges(&self) {
        let generation = self.generations.current();
        let metrics = &generation.metrics;
        for (id, pool) in generation.pools.enumerate() {
            for server in pool.plan().servers.ids() {
                let in_flight = pool.in_flight_at(server);
                metrics.set_idle(id, server, pool.idle_connections(server) as u64);
                metrics.set_http2_load(id, server, pool.http2_load(server));
                metrics.set_in_flight(id, server, in_flight as u64);
                // All cores share this value, so the first core reports it.
                let slots = || ServerSlots {
                    max: pool.requests_max(server).unwrap_or_default() as u64,
                    in_use: pool.slots_in_use(server) as u64,
                };
                let is_reported_here = self.id.index == 0;
                metrics.set_slots(id, server, is_reported_here.then(slots).unwrap_or_default());
            }
            metrics.set_queued(id, pool.queued() as u64);
        }
        generation.collect_counters();
        metrics.set_buffers(self.memory.buffers.in_use() as u64, self.memory.buffers.exhausted_count());
        metrics.set_requests(self.load.in_flight.get() as u64, self.load.abandoned.get() as u64);
        // The streams of one connection count once.
        let busy =
            self.load.in_flight.get().saturating_sub(self.load.h2_streams.get()) + self.load.h2_busy.get();
        let idle = self.connection_limit.active_count().saturating_sub(busy);
        metrics.set_h2_streams(self.load.h2_streams.get() as u64);
        let idle_h2 = idle.min(self.load.h2_connections.get() - self.load.h2_busy.get());
        let idle_bytes = idle * IDLE_CONN_BYTES + idle_h2 * IDLE_H2_BYTES;
        metrics.set_idle_clients(idle as u64, idle_bytes as u64);
    }
}
