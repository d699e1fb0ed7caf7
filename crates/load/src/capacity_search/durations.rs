//! Announced durations of a search.

use super::{LADDER_FRACTIONS, SearchOptions, SearchQuantity, scaling_connections};
use crate::baseline;

/// Returns the usual and the maximum duration, in ns.
pub fn duration_ns(options: &SearchOptions) -> (u64, u64) {
    let settings = &options.settings;
    let (mut usual_ns, mut max_ns) = settings.duration_ns();
    if options.baseline {
        let baselines = 1 + u64::from(options.direct.is_some());
        usual_ns += baselines * baseline::DURATION_NS;
        max_ns += baselines * baseline::DURATION_NS_MAX;
    }
    let after_search_ns = after_search_ns(options);
    let limit_ns = options.duration_ns_max.unwrap_or(u64::MAX);
    let usual_ns = (usual_ns + after_search_ns).min(limit_ns);
    let stretched = |ns: u64| (ns as f64 * options.stretch) as u64;
    (stretched(usual_ns), stretched((max_ns + 2 * after_search_ns).min(limit_ns)))
}

/// Returns the usual duration of what follows the first search: the ladder, the scaling law and the recheck. A load
/// for the diagnosis, as long as a verification, is rare: the ladder shows the cause of most edges.
pub(super) fn after_search_ns(options: &SearchOptions) -> u64 {
    let settings = &options.settings;
    if options.search_only || options.quantity.is_count() {
        return 0;
    }
    let ladders = if options.direct.is_some() { 2 } else { 1 };
    let ladder_ns = ladders * LADDER_FRACTIONS.len() as u64 * settings.full_trial_ns;
    let scaling_ns = match options.quantity {
        SearchQuantity::Rate if !options.has_max_level => {
            scaling_connections(options.base.connections).len() as u64 * settings.full_trial_ns
        }
        _ => 0,
    };
    ladder_ns + scaling_ns + settings.full_trial_ns
}
