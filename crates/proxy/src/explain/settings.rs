//! The settings of a request, each with its origin.

use std::borrow::Cow;

use crate::plan::{Id as _, ListenerIndex, Plan, PoolId, RouteSettings, SETTINGS};

/// Appends a line for each setting of the requests of a route. `position` is that of its resolved settings.
pub(super) fn setting_lines(
    plan: &Plan,
    route: usize,
    (position, listener, pool): (usize, ListenerIndex, PoolId),
    lines: &mut Vec<String>,
) {
    let own = &plan.routes[route].settings;
    let settings = own.for_listener(position).map_or_else(
        || Cow::Owned(RouteSettings::inherited(&plan.listeners[listener], Some(&plan.pools[pool]))),
        Cow::Borrowed,
    );
    let has = |keys: Option<&Vec<&str>>, key| keys.is_some_and(|keys| keys.contains(&key));
    for setting in SETTINGS {
        let origin = match setting.key {
            key if own.given.contains(&key) => "route",
            key if has(plan.given.pools.get(pool.index()), key) => "pool",
            key if has(plan.given.listeners.get(listener), key) => "listener",
            _ => "default",
        };
        lines.push(format!("setting     {} {} ({origin})", setting.key, (setting.show)(&settings)));
    }
}
