//! The maximum number of connections that the process's descriptors allow.

use crate::plan::{Action, Plan};
use proxy::core::pipes_max;

/// Descriptors of a core that are not used for connections.
const DESCRIPTORS_RESERVED: u64 = 64;

/// Returns the maximum number of open client connections. A configured maximum is lowered if it
/// would leave no descriptors for server connections; a warning on stderr reports that.
pub(crate) fn connections_max(plan: &Plan, descriptors: u64) -> usize {
    let reserved = DESCRIPTORS_RESERVED + pipe_descriptors(descriptors) + file_descriptors(plan, descriptors);
    let free = descriptors.saturating_sub(reserved);
    // A request takes two descriptors: one for each side.
    let per_thread_max = (free / 2) as usize;
    let Some(configured) = plan.connections_max else { return per_thread_max.max(plan.threads) };
    // Each core has a descriptor table of its own.
    let max = per_thread_max.saturating_mul(plan.threads).max(plan.threads);
    if configured > max {
        let needed = configured.div_ceil(plan.threads) as u64 * 2 + descriptors - free;
        eprintln!(
            "weir: warning: connections-max is lowered from {configured} to {max}: each thread may have \
             {descriptors} file descriptors, and {configured} connections take {needed} (raise the hard \
             limit: ulimit -Hn, LimitNOFILE)"
        );
    }
    configured.min(max).max(plan.threads)
}

/// Returns the number of descriptors that a core's pipes take.
fn pipe_descriptors(descriptors: u64) -> u64 {
    2 * pipes_max(descriptors) as u64
}

/// Returns the number of descriptors that a core's files take, at most a quarter.
fn file_descriptors(plan: &Plan, descriptors: u64) -> u64 {
    let entries = plan.routes.iter().map(|route| match &route.action {
        Action::Files(files) => files.cache_entries as u64,
        _ => 0,
    });
    entries.sum::<u64>().min(descriptors / 4)
}
