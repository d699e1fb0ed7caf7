//! Settings of a route instead of those of its listeners and its pool.

use std::sync::Arc;

use record::document::{Located, Problems};

use crate::plan::{
    AccessPlan, Action, AuthPlan, CorsPlan, ErrorPage, Forwarding, GivenSettings, HedgeDelay, Id as _,
    ListenerPlan, MarkedIdempotent, MirrorPlan, OwnSettings, PoolPlan, RetryOn, RouteCachePlan,
    RouteSettings, SETTINGS, SettingOwner, Statuses,
};

use super::auth::parse_auth;
use super::bandwidth::{GivenBandwidth, parse_bandwidth, warn_of_after};
use super::caching::parse_cache;
use super::compression::{GivenCompression, parse_compression};
use super::cors::parse_cors;
use super::health::parse_statuses;
use super::listeners::parse_field_of_forwarding;
use super::routes::KnownNames;
use super::traffic::{parse_hedge, parse_mirrors};
use super::validate;
use super::value::Section;

/// Word of `retry-on` for a server without a response in time.
const TIMEOUT: &str = "timeout";
/// Word of `retry-on` for a server that ends its connection before the response.
const RESET: &str = "reset";
/// Keys that have no effect without retries.
const RETRY_KEYS: [&str; 2] = ["retry-on", "timeouts.per-try"];

/// Returns the settings that the listeners and pools have in the config.
pub(super) fn given_settings(listeners: &[Section], pools: &[Section]) -> GivenSettings {
    let collect_given =
        |sections: &[Section], owner| sections.iter().map(|section| given(section, owner)).collect();
    GivenSettings {
        listeners: collect_given(listeners, Some(SettingOwner::Listener)),
        pools: collect_given(pools, Some(SettingOwner::Pool)),
    }
}

/// Returns the settings that a section has; with an `owner`, only those that it can have.
fn given(section: &Section, owner: Option<SettingOwner>) -> Vec<&'static str> {
    let can_have = |key: &&str| {
        SETTINGS.iter().any(|setting| setting.key == *key && owner.is_none_or(|owner| setting.owner == owner))
    };
    let keys = SETTINGS.iter().map(|setting| setting.key).filter(can_have);
    keys.filter(|key| find_offset(section, key).is_some()).collect()
}

/// Returns the offset of a key with that of its table.
fn find_offset(section: &Section, key: &str) -> Option<usize> {
    match key.split_once('.') {
        Some((table, key)) => section.key_offset(table).and_then(|_| section.table(table).key_offset(key)),
        None => section.key_offset(key),
    }
}

/// Reads the settings of a route, and resolves them for each listener.
pub(super) fn parse_settings(
    section: &Section,
    names: &KnownNames<'_>,
    (action, pages): (&Action, &[ErrorPage]),
    problems: &mut Problems,
) -> OwnSettings {
    let given = given(section, None);
    if given.is_empty() {
        return inherit_settings(names, (action, pages));
    }

    let own = parse_own(section, names, problems);
    let replaced = replaced_statuses(pages);
    let settings = OwnSettings {
        given,
        by_listener: resolve_all(names, action, |listener, pool| {
            let settings = own.apply_to(RouteSettings::inherited(listener, pool));
            RouteSettings { replaced: replaced.clone(), ..settings }
        }),
    };
    let resolved = settings.by_listener.first();
    warn_of_after(section, resolved.and_then(|resolved| resolved.bandwidth.as_deref()), problems);
    let pools = pools_of(names, action);
    if let Some((resolved, pool)) = settings.by_listener.first().zip(pools.first()) {
        warn_of_effects(section, resolved, pool, problems);
        if !pools.iter().any(|pool| has_limit(pool)) {
            warn_of_buffering(section, pool, problems);
        }
    }
    settings
}

/// Returns the settings of a route that has none of its own: only a split, error pages for servers' responses, and
/// the compression and the limits of bytes of a listener, need some.
pub(super) fn inherit_settings(
    names: &KnownNames<'_>,
    (action, pages): (&Action, &[ErrorPage]),
) -> OwnSettings {
    let replaced = replaced_statuses(pages);
    let is_split = matches!(action, Action::Split(_));
    let has_compression = names.listeners.iter().any(|listener| listener.compression.is_some());
    let has_content = !action.pools().is_empty() || matches!(action, Action::Files(_));
    let has_bandwidth = has_content && names.listeners.iter().any(|listener| listener.bandwidth.is_some());
    let has_access = names.listeners.iter().any(|listener| listener.access.boxed().is_some());
    if replaced.is_none() && !has_compression && !has_bandwidth && !is_split && !has_access {
        return OwnSettings::default();
    }
    let by_listener = resolve_all(names, action, |listener, pool| RouteSettings {
        replaced: replaced.clone(),
        ..RouteSettings::inherited(listener, pool)
    });
    OwnSettings { given: Vec::new(), by_listener }
}

fn pools_of<'a>(names: &KnownNames<'a>, action: &Action) -> Vec<&'a PoolPlan> {
    action.pools().iter().filter_map(|pool| names.pool_plans.get(pool.index())).collect()
}

/// Resolves the settings for each listener, and this for each pool.
fn resolve_all(
    names: &KnownNames<'_>,
    action: &Action,
    resolve: impl Fn(&ListenerPlan, Option<&PoolPlan>) -> RouteSettings,
) -> Vec<RouteSettings> {
    let mut pools: Vec<_> = pools_of(names, action).into_iter().map(Some).collect();
    if pools.is_empty() {
        pools.push(None);
    }
    let pair_with_listeners = |pool| names.listeners.iter().map(move |listener| (listener, pool));
    pools.into_iter().flat_map(pair_with_listeners).map(|(listener, pool)| resolve(listener, pool)).collect()
}

/// Returns the statuses of servers whose content a page replaces.
fn replaced_statuses(pages: &[ErrorPage]) -> Option<Statuses> {
    // The first page for a status decides, so a page for the proxy's own responses hides those behind it.
    let is_replaced =
        |status: &u16| ErrorPage::find(pages, *status).is_some_and(|page| page.replaces_servers);
    let ranges: Vec<_> = (400..=599).filter(is_replaced).map(|status| status..=status).collect();
    (!ranges.is_empty()).then_some(Statuses(ranges))
}

/// Settings as a route has them.
struct OwnValues {
    section: Section,
    timeouts: Section,
    forwarding: Section,
    retry_on: Option<RetryOn>,
    idempotent: MarkedIdempotent,
    via: Option<Option<Box<str>>>,
    request_id: Option<Option<Box<str>>>,
    compression: Option<GivenCompression>,
    bandwidth: Option<GivenBandwidth>,
    mirrors: Arc<[MirrorPlan]>,
    hedge: Option<HedgeDelay>,
    cache: Option<Arc<RouteCachePlan>>,
    auth: Option<Option<Arc<AuthPlan>>>,
    cors: Option<Option<Arc<CorsPlan>>>,
}

fn parse_own(section: &Section, names: &KnownNames<'_>, problems: &mut Problems) -> OwnValues {
    let forwarding = section.table("forwarding");
    let mut name =
        |key: &str| forwarding.key_offset(key).map(|_| parse_field_of_forwarding(&forwarding, key, problems));
    let (via, request_id) = (name("via"), name("request-id"));
    OwnValues {
        timeouts: section.table("timeouts"),
        retry_on: section.key_offset("retry-on").map(|_| parse_retry_on(section, problems)),
        idempotent: parse_idempotent(section, problems),
        compression: parse_compression(section, problems),
        bandwidth: parse_bandwidth(section),
        mirrors: parse_mirrors(section, names, problems),
        hedge: parse_hedge(section, problems),
        cache: parse_cache(section, names, problems),
        auth: parse_auth(section, names.pools, problems),
        cors: parse_cors(section, problems),
        section: section.clone(),
        forwarding,
        via,
        request_id,
    }
}

impl OwnValues {
    /// Replaces the settings that the route has.
    fn apply_to(&self, mut settings: RouteSettings) -> RouteSettings {
        let timeouts = [
            ("connect", &mut settings.server.connect_ns),
            ("first-byte", &mut settings.server.first_byte_ns),
            ("idle", &mut settings.server.idle_ns),
            ("tunnel", &mut settings.server.tunnel_ns),
            ("body", &mut settings.client.body_ns),
            ("body-idle", &mut settings.client.body_idle_ns),
        ];
        for (key, timeout) in timeouts {
            *timeout = self.timeouts.integer(key).unwrap_or(*timeout);
        }
        let section = &self.section;
        let retries_max = section.integer("retries").and_then(|retries| u8::try_from(retries).ok());
        let inherited = settings.access();
        let access = AccessPlan {
            auth: self.auth.clone().unwrap_or(inherited.auth),
            cors: self.cors.clone().unwrap_or(inherited.cors),
        };
        RouteSettings {
            access: access.boxed(),
            total_ns: self.timeouts.integer("total"),
            per_try_ns: self.timeouts.integer("per-try"),
            body_bytes_max: section.integer("body-max").or(settings.body_bytes_max),
            buffer_request_bytes: section.integer("buffer-request").unwrap_or(settings.buffer_request_bytes),
            retries_max: retries_max.unwrap_or(settings.retries_max),
            retry_on: self.retry_on.clone().unwrap_or_default(),
            idempotent: self.idempotent.clone(),
            forwarding: self.forwarding(settings.forwarding),
            compression: match &self.compression {
                Some(given) => given.over(settings.compression.as_deref()),
                None => settings.compression,
            },
            bandwidth: match &self.bandwidth {
                Some(given) => given.over(settings.bandwidth.as_deref()),
                None => settings.bandwidth,
            },
            mirrors: Arc::clone(&self.mirrors),
            hedge: self.hedge,
            cache: self.cache.clone(),
            ..settings
        }
    }

    fn forwarding(&self, inherited: Forwarding) -> Forwarding {
        let flag = |key, inherited| match self.forwarding.key_offset(key) {
            Some(_) => self.forwarding.flag(key),
            None => inherited,
        };
        let forwarded_for = self.forwarding.text("forwarded-for");
        Forwarding {
            x_forwarded: flag("x-forwarded", inherited.x_forwarded),
            forwarded: flag("forwarded", inherited.forwarded),
            only_if_none: forwarded_for.map_or(inherited.only_if_none, |text| &*text.value == "if-none"),
            via: self.via.clone().unwrap_or(inherited.via),
            request_id: self.request_id.clone().unwrap_or(inherited.request_id),
            underscores: inherited.underscores,
        }
    }
}

fn parse_retry_on(section: &Section, problems: &mut Problems) -> RetryOn {
    let (words, statuses): (Vec<_>, Vec<_>) =
        section.texts("retry-on").into_iter().partition(|text| [TIMEOUT, RESET].contains(&&*text.value));
    let mut ranges = Vec::new();
    for Located { value, offset } in statuses {
        if let Some(statuses) = problems.ok_or_report(offset, parse_statuses(&value)) {
            if statuses.0.iter().any(|range| *range.start() < 400) {
                problems
                    .add_error(offset, format!("'{value}' has statuses that are no errors: write 400-599"));
            }
            ranges.extend(statuses.0);
        }
    }
    let statuses = (!ranges.is_empty()).then_some(Statuses(ranges));
    let has = |word| words.iter().any(|text| &*text.value == word);
    RetryOn { statuses, timeout: has(TIMEOUT), reset: has(RESET) }
}

fn parse_idempotent(section: &Section, problems: &mut Problems) -> MarkedIdempotent {
    let Some(text) = section.text("idempotent") else { return MarkedIdempotent::None };
    match (&*text.value, text.value.strip_prefix("header:")) {
        ("all", _) => MarkedIdempotent::All,
        (_, Some(name)) => {
            problems.ok_or_report(text.offset, validate::check_field_name(name));
            MarkedIdempotent::Field(name.into())
        }
        (other, None) => {
            problems.add_error(text.offset, format!("'{other}' is neither 'all' nor 'header:NAME'"));
            MarkedIdempotent::None
        }
    }
}

fn has_limit(pool: &PoolPlan) -> bool {
    let mut all = pool.servers.iter().chain(pool.named_servers.iter().map(|named| &named.template));
    pool.overload_limits.adaptive.is_some() || all.any(|server| server.maxconn.is_some())
}

/// Warns about `buffer-request` for a pool whose servers have no limit.
fn warn_of_buffering(section: &Section, pool: &PoolPlan, problems: &mut Problems) {
    if let Some(offset) = section.key_offset("buffer-request") {
        let text = format!("'buffer-request' has no effect: no server of pool '{}' has a maxconn", pool.name);
        problems.warn(offset, text);
    }
}

/// Warns about settings that have no effect with others.
fn warn_of_effects(section: &Section, settings: &RouteSettings, pool: &PoolPlan, problems: &mut Problems) {
    for key in RETRY_KEYS {
        if let Some(offset) = find_offset(section, key).filter(|_| settings.retries_max == 0) {
            problems.warn(offset, format!("'{key}' has no effect with retries = 0"));
        }
    }
    if let Some(offset) = section.key_offset("hedge").filter(|_| pool.has_one_server()) {
        problems.warn(offset, format!("'hedge' has no effect: pool '{}' has one server", pool.name));
    }
    let Some(total_ns) = settings.total_ns else { return };
    let parts = [
        ("timeouts.per-try", settings.per_try_ns.unwrap_or(0)),
        ("timeouts.connect", settings.server.connect_ns),
        ("timeouts.first-byte", settings.server.first_byte_ns),
        ("timeouts.body", settings.client.body_ns),
    ];
    for (key, timeout_ns) in parts {
        if let Some(offset) = find_offset(section, key).filter(|_| timeout_ns > total_ns) {
            problems.warn(offset, format!("'{key}' is longer than timeouts.total, and has no effect"));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;
    use crate::plan::{Plan, RouteSettings};

    const REST: &str = "[listener.web]\nbind = '127.0.0.1:0'\nbody-max = '1m'\n\
        [listener.other]\nbind = '127.0.0.1:0'\nforwarding = { via = 'edge' }\n\
        [pool.app]\nservers = ['127.0.0.1:9001']\nretries = 3\ntimeouts = { first-byte = '7s' }\n";

    fn plan(route: &str) -> Plan {
        let text = format!("{REST}[[route]]\n{route}\n");
        parse("t", &text).unwrap_or_else(|problems| panic!("{problems:#?}")).plan
    }

    fn messages(route: &str) -> Vec<String> {
        let text = format!("{REST}[[route]]\nhost = 'a'\npool = 'app'\n[[route]]\n{route}\n");
        let messages = parse("t", &text).map_or_else(|problems| problems, |parsed| parsed.warnings);
        messages.iter().map(ToString::to_string).collect()
    }

    fn settings(plan: &Plan, listener: usize) -> &RouteSettings {
        plan.routes[0].settings.for_listener(listener).unwrap()
    }

    #[test]
    fn a_route_without_settings_has_none() {
        assert!(plan("pool = 'app'").routes[0].settings.by_listener.is_empty());
    }

    #[test]
    fn settings_of_a_route_replace_those_of_pool_and_listener() {
        let plan = plan(
            "pool = 'app'\ntimeouts = { total = '9s', idle = '2s', body-idle = '3s' }\nretries = 1\n\
             retry-on = ['502-503', 'reset', 'timeout']\nidempotent = 'header:idempotency-key'\nforwarding = { x-forwarded = false, request-id = false }",
        );
        let (web, other) = (settings(&plan, 0), settings(&plan, 1));
        assert_eq!((web.total_ns, web.server.idle_ns), (Some(9_000_000_000), 2_000_000_000));
        assert_eq!((web.client.body_idle_ns, web.retries_max), (3_000_000_000, 1));
        // Inherited from the pool, the listener, and the defaults.
        assert_eq!((web.server.first_byte_ns, web.body_bytes_max), (7_000_000_000, Some(1 << 20)));
        assert_eq!((web.server.connect_ns, other.body_bytes_max), (5_000_000_000, None));
        assert_eq!(web.retry_on.to_string(), "502-503,timeout,reset");
        assert_eq!(web.idempotent.to_string(), "by method, or with idempotency-key");
        assert!(!web.forwarding.x_forwarded && web.forwarding.request_id.is_none());
        assert_eq!(
            (web.forwarding.via.as_deref(), other.forwarding.via.as_deref()),
            (Some("weir"), Some("edge"))
        );
        assert_eq!(plan.routes[0].settings.given.len(), 8);
        assert_eq!((plan.given.listeners.len(), plan.given.pools[0].len()), (2, 2));
    }

    #[test]
    fn settings_without_effect_are_warned_about() {
        for (route, part) in [
            ("deny = true\nretries = 1", "'retries' has no effect with deny"),
            ("pool = 'app'\nretries = 0\nretry-on = '503'", "'retry-on' has no effect with retries = 0"),
            ("pool = 'app'\ntimeouts = { total = '1s', per-try = '2s' }", "longer than timeouts.total"),
            ("pool = 'app'\nbuffer-request = '16k'", "no server of pool 'app' has a maxconn"),
            ("pool = 'app'\nretry-on = '200'", "no errors"),
            ("pool = 'app'\nretry-on = 'never'", "'never'"),
            ("pool = 'app'\nidempotent = 'post'", "'post' is neither 'all' nor 'header:NAME'"),
            ("pool = 'app'\nidempotent = 'header:a b'", "'a b'"),
            ("pool = 'app'\nforwarding = { via = 'a b' }", "'a b'"),
        ] {
            let messages = messages(route);
            assert!(messages.len() == 1 && messages[0].contains(part), "{route}: {messages:#?}");
        }
        assert!(messages("return = {}\nbody-max = 1").is_empty(), "it holds for all actions");
    }
}
