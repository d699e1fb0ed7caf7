//! The pool of a request whose route divides its requests between several.

use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::PollContext;
use crate::exchange_state::Exchange;
use crate::key_digest::digest;
use crate::plan::{Action, PoolId, SplitKey, SplitPlan};
use crate::pool::ServerRequirements;
use crate::route::RouteRequest;

impl Exchange {
    /// Chooses the pool of a request, and returns its index in the split; 0 for a route without one.
    pub(super) fn choose_share(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
    ) -> usize {
        self.facts.split_share = 0;
        self.facts.is_limited = false;
        let Some(route) = self.outcome.route else { return 0 };
        let Action::Split(split) = &generation.plan.routes[route].action else { return 0 };
        let key = match &split.key {
            None => SplitKey::Digest(ctx.work.rng.u64(..)),
            Some(template) => {
                let key = &mut ctx.work.route_scratch.key;
                template.render_key(&self.request_values(generation, client, request), key);
                if key.is_empty() { SplitKey::Missing } else { SplitKey::Digest(digest(key)) }
            }
        };
        let is_usable =
            |pool: PoolId| generation.pools[pool].has_usable_server(ServerRequirements::default());
        let (share, is_fallback) = split.choose(key, is_usable);
        if is_fallback {
            generation.pools[split.shares[share].pool].count_fallback();
        }
        // A split has at most 16 pools.
        self.facts.split_share = share as u8;
        share
    }

    /// Returns the pool that was chosen.
    pub(super) fn split_pool(&self, split: &SplitPlan) -> PoolId {
        split.shares[usize::from(self.facts.split_share)].pool
    }
}
