//! How many connections the descriptors of the process are enough for.

use crate::core::pipes_max;
use crate::plan::Plan;

/// Descriptors of a core that are for no connection.
const DESCRIPTORS_RESERVED: u64 = 64;

/// How many connections of clients may be open. More than the descriptors of the cores are enough for
/// would leave none for the connections to servers: then it is lowered, and a line on stderr says so.
pub(crate) fn connections_max(plan: &Plan, descriptors: u64) -> usize {
    let free = descriptors.saturating_sub(DESCRIPTORS_RESERVED + pipe_descriptors(descriptors));
    // A request takes two descriptors: one for each side.
    let each = (free / 2) as usize;
    let Some(wanted) = plan.connections_max else { return each.max(plan.threads) };
    // Each core has a descriptor table of its own.
    let most = each.saturating_mul(plan.threads).max(plan.threads);
    if wanted > most {
        let needed = wanted.div_ceil(plan.threads) as u64 * 2 + descriptors - free;
        eprintln!(
            "weir: warning: connections-max is lowered from {wanted} to {most}: each thread may have \
             {descriptors} file descriptors, and {wanted} connections take {needed} (raise the hard \
             limit: ulimit -Hn, LimitNOFILE)"
        );
    }
    wanted.min(most).max(plan.threads)
}

/// The descriptors that pipes of a core take.
fn pipe_descriptors(descriptors: u64) -> u64 {
    2 * pipes_max(descriptors) as u64
}
