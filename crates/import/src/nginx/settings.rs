//! Settings of a location's route: those in which the scopes of a config differ, and retries.

use std::rc::Rc;

use super::scope::{Scope, Time};
use super::server::{BODY_MAX, Server};
use crate::document::{Origin, Value};
use crate::draft::{Draft, time_value};
use crate::left::Kind;
use crate::rules::RouteSetting;

/// Facts about the scopes of all servers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Common {
    /// True if a listener of the config sends `X-Forwarded-For`.
    pub(super) sends_client_address: bool,
    /// Settings in which scopes differ, so that each route has its own.
    pub(super) has_body_limits: bool,
    has_body_times: bool,
    pub(super) has_server_times: bool,
    pub(super) has_compressions: bool,
}

impl Common {
    pub(super) fn of(servers: &[Server]) -> Self {
        let scopes = || servers.iter().flat_map(Server::scopes);
        let differ = |value: &dyn Fn(&Scope) -> Option<u64>| {
            let mut values = scopes().map(value);
            let first = values.next();
            values.any(|other| Some(other) != first)
        };
        let time = |scope: &Scope, time| scope.time(time).map(|(ms, _)| ms);
        Self {
            sends_client_address: scopes()
                .any(|scope| !super::server::client_address_origins(scope).is_empty()),
            has_body_limits: differ(&|scope| Some(body_max(scope))),
            has_body_times: differ(&|scope| time(scope, Time::ClientBody)),
            has_server_times: differ(&|scope| time(scope, Time::Read))
                || differ(&|scope| time(scope, Time::Connect)),
            has_compressions: {
                let value = |scope: &Scope| scope.gzip.value().map(|(value, _)| value);
                let mut values = scopes().map(value);
                let first = values.next();
                values.any(|other| Some(other) != first)
            },
        }
    }
}

/// Returns the limit of bodies; 0: none.
pub(super) fn body_max(scope: &Scope) -> u64 {
    scope.body_max.as_ref().map_or(BODY_MAX, |(bytes, _)| *bytes)
}

pub(super) fn size_value(bytes: u64) -> Value {
    match bytes % (1 << 20) {
        0 => Value::text(format!("{}m", bytes >> 20)),
        _ => Value::Number(bytes),
    }
}

/// Returns the settings of the route of a location that forwards.
pub(super) fn route_settings(
    scope: &Scope,
    common: Common,
    location: &Rc<Origin>,
    draft: &mut Draft<'_>,
) -> Vec<RouteSetting> {
    let mut settings = Vec::new();
    let bytes = body_max(scope);
    if common.has_body_limits && bytes > 0 {
        let origin = scope.body_max.as_ref().map_or(location, |(_, origin)| origin);
        settings.push(RouteSetting::new("body-max", size_value(bytes), origin));
    }
    let mut set_time = |time: Time, paths: &[&'static str]| {
        if let Some((ms, origin)) = scope.time(time) {
            settings.extend(paths.iter().map(|path| RouteSetting::new(path, time_value(ms), &origin)));
        }
    };
    if common.has_body_times {
        set_time(Time::ClientBody, &["timeouts.body-idle"]);
    }
    if common.has_server_times {
        set_time(Time::Connect, &["timeouts.connect"]);
        set_time(Time::Read, &["timeouts.first-byte", "timeouts.idle", "timeouts.tunnel"]);
    }
    if let Some((value, origin)) = scope.gzip.value().filter(|_| common.has_compressions) {
        settings.push(RouteSetting::new("compression", value, origin));
        scope.gzip.report(draft);
    }
    settings.extend(retry_settings(scope, draft));
    settings
}

/// Converts `proxy_next_upstream` and its number of tries.
fn retry_settings(scope: &Scope, draft: &mut Draft<'_>) -> Vec<RouteSetting> {
    let mut settings = Vec::new();
    let mut is_off = false;
    if let Some((words, origin)) = &scope.next_upstream {
        is_off = words.iter().any(|word| word == "off");
        let mut results = Vec::new();
        for word in words {
            match word.strip_prefix("http_").unwrap_or(word) {
                "timeout" => results.push("timeout".to_owned()),
                status if status.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) => {
                    results.push(status.to_owned());
                }
                // A connection that fails is always retried.
                "error" | "off" => {}
                "non_idempotent" => draft.leave(
                    Kind::Differs,
                    origin,
                    "a request that is not idempotent, and that a server may have received, is not sent again",
                ),
                other => draft.leave(Kind::Differs, origin, format!("weir does not retry after '{other}'")),
            }
        }
        match is_off {
            true => settings.push(RouteSetting::new("retries", Value::Number(0), origin)),
            false if results.is_empty() => {}
            false => settings.push(RouteSetting::new("retry-on", Value::texts(results), origin)),
        }
    }
    // 0 is as many as there are servers.
    if let Some((tries, origin)) = scope.next_tries.as_ref().filter(|(tries, _)| *tries > 0 && !is_off) {
        settings.push(RouteSetting::new("retries", Value::Number((tries - 1).min(10)), origin));
    }
    settings
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::NoSurroundings;
    use crate::{Program, convert};

    fn config(text: &str) -> (String, Vec<String>) {
        let import = convert(Program::Nginx, "t.conf", text, &mut NoSurroundings).unwrap();
        (import.config, import.report.iter().map(ToString::to_string).collect())
    }

    /// Returns the keys of the route with a path, up to the next section.
    fn route<'c>(config: &'c str, path: &str) -> &'c str {
        let start = config.find(&format!("path-prefix = \"{path}\"")).unwrap_or_else(|| panic!("{config}"));
        config[start..].split("\n\n").next().unwrap()
    }

    #[test]
    fn settings_in_which_locations_differ_are_those_of_routes() {
        let (config, report) = config(
            "server { client_max_body_size 2m; proxy_read_timeout 10s;\n\
             location /a/ { client_max_body_size 8m; proxy_read_timeout 90s; proxy_pass http://10.0.0.1; }\n\
             location /b/ { client_body_timeout 5s; proxy_pass http://10.0.0.1; } }\n",
        );
        let (a, b) = (route(&config, "/a/"), route(&config, "/b/"));
        assert!(a.contains("body-max = \"8m\"") && b.contains("body-max = \"2m\""), "{config}");
        assert!(a.contains("first-byte = \"90s\"") && a.contains("tunnel = \"90s\""), "{config}");
        assert!(b.contains("idle = \"10s\"") && b.contains("body-idle = \"5s\""), "{config}");
        assert_eq!(config.matches("[pool.").count(), 1, "{config}");
        assert!(!report.iter().any(|line| line.contains("body-max")), "{report:?}");
    }

    #[test]
    fn the_same_settings_everywhere_are_those_of_listener_and_pool() {
        let (config, _) = config(
            "client_max_body_size 8m; proxy_read_timeout 90s; server { location / { proxy_pass http://10.0.0.1; } }",
        );
        let (before, pool) = config.split_once("[pool.").unwrap();
        let (listener, routes) = before.split_once("[[route]]").unwrap();
        assert!(listener.contains("body-max = \"8m\"") && pool.contains("first-byte = \"90s\""), "{config}");
        assert!(!routes.contains("body-max") && !routes.contains("timeouts"), "{config}");
    }

    #[test]
    fn retries_are_translated_or_reported() {
        let location =
            |directives: &str| config(&format!("location / {{ {directives} proxy_pass http://10.0.0.1; }}"));
        let (text, report) = location(
            "proxy_next_upstream error timeout http_503 non_idempotent; proxy_next_upstream_tries 3;",
        );
        assert!(text.contains("retry-on = [\"timeout\", \"503\"]") && text.contains("retries = 2"), "{text}");
        assert!(report.iter().any(|line| line.contains("not idempotent")), "{report:?}");
        let (text, _) = location("proxy_next_upstream off;");
        assert!(text.contains("retries = 0") && !text.contains("retry-on"), "{text}");
        let (text, _) = location("proxy_next_upstream error;");
        assert!(!text.contains("retr"), "{text}");
    }

    #[test]
    fn a_literal_dollar_with_a_brace_stays_literal() {
        let (text, _) = config("location / { return 200 'a ${b'; }");
        assert!(text.contains("$${b") || text.contains("501"), "{text}");
    }
}
