//! The settings of a request, each with its origin.

use std::borrow::Cow;

use crate::plan::{Action, Id as _, ListenerIndex, Plan, PoolId, RouteSettings, SETTINGS};

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

/// Appends the rules about who may use a route whose action needs no server.
pub(super) fn access_lines(plan: &Plan, route: usize, listener: ListenerIndex, lines: &mut Vec<String>) {
    let settings = plan.routes[route].settings.for_listener(listener);
    let Some(access) = settings.and_then(|settings| settings.access.as_ref()) else { return };
    if matches!(plan.routes[route].action, Action::Deny(_) | Action::SilentDrop | Action::Tarpit { .. }) {
        return;
    }
    let auth_lines = access.auth.iter().map(|auth| format!("setting     auth {auth}"));
    lines.extend(auth_lines.chain(access.cors.iter().map(|cors| format!("setting     cors {cors}"))));
}
