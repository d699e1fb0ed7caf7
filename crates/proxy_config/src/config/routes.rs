//! Converts a `[[route]]` section to a [`RoutePlan`].

use std::path::PathBuf;
use std::sync::Arc;

use record::document::{Located, Problems};
use record::problem::suggestion;

use crate::plan::{
    Action, CachePlan, Conditions, ErrorPages, IdVec, ListenerPlan, MapPlan, Mode, OwnSettings,
    PathCondition, PoolId, PoolPlan, Priority, RateKey, RateLimit, ResponseRule, RouteChange, RoutePlan,
    RouteTexts, Text,
};
use crate::template::{KnownValues, Scope};

use super::conditions::{parse_condition, parse_conditions};
use super::error_pages::parse_pages;
use super::files::parse_files;
use super::health::parse_statuses;
use super::listeners::{find_pool, parse_path_rule};
use super::split::parse_split;
use super::templates::{only_regex, parse_key, parse_text, route_texts};
use super::value::{Matcher, Section};
use super::{overload, route_settings, validate};

/// Names that a route may use.
pub(super) struct KnownNames<'a> {
    pub(super) listeners: &'a [ListenerPlan],
    pub(super) pools: &'a IdVec<PoolId, &'a str>,
    pub(super) pool_plans: &'a [PoolPlan],
    /// Error pages of all routes.
    pub(super) error_pages: &'a ErrorPages,
    pub(super) maps: &'a [Arc<MapPlan>],
    pub(super) caches: &'a [Arc<CachePlan>],
}

/// Keys for a route's action; a route has exactly one of them.
const ACTION_KEYS: [&str; 8] =
    ["pool", "split", "files", "redirect", "return", "deny", "silent-drop", "tarpit"];
/// Keys that have an effect only if the request is forwarded.
const FORWARD_ONLY_KEYS: [&str; 20] = [
    "limit-rate",
    "limit-rate-after",
    "limit-rate-total",
    "limit-rate-upload",
    "compression",
    "cache",
    "mirror",
    "hedge",
    "idempotent",
    "timeouts",
    "buffer-request",
    "retries",
    "retry-on",
    "forwarding",
    "priority",
    "rewrite-prefix",
    "rewrite-path",
    "remove-request-header",
    "set-request-header",
    "add-request-header",
];
/// Keys of these that have an effect on files, too.
const FILE_KEYS: [&str; 5] =
    ["rewrite-prefix", "rewrite-path", "limit-rate", "limit-rate-after", "limit-rate-total"];
/// Actions whose responses, or error pages, have content that can be compressed.
const OWN_CONTENT_ACTIONS: [&str; 3] = ["return", "deny", "tarpit"];
/// Keys for the content of a route's own response; it has one of them.
const BODY_KEYS: [&str; 3] = ["body", "body-template", "body-file"];
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;

/// Converts a route's section. Invalid values are replaced by their defaults.
pub(super) fn parse_route(
    section: &Section,
    index: usize,
    names: &KnownNames<'_>,
    problems: &mut Problems,
) -> RoutePlan {
    let name = section.text("name");
    if let Some(name) = &name {
        problems.ok_or_report(name.offset, validate::check_name(&name.value));
    }
    let conditions = parse_conditions(section, names, problems);
    let regex = only_regex(&conditions);
    let known = KnownValues { regex: regex.as_ref(), maps: names.maps };
    let changes = parse_changes(section, &conditions, known, problems);
    let rules = parse_rules(section, names, known, problems);
    let limits = section.tables("rate-limit").into_iter();
    let limits = limits.filter_map(|limit| parse_rate_limit(&limit, known, problems));
    let rate_limits: Vec<_> = limits.collect();
    let action = parse_action(section, names, known, problems);
    let mut pages = parse_pages(&section.tables("error-page"), known, problems);
    pages.extend(names.error_pages.iter().cloned());
    let settings = route_settings::parse_settings(section, names, (&action, &pages), problems);
    let route = RoutePlan {
        name: name.map_or_else(|| format!("route-{}", index + 1).into(), |name| name.value),
        conditions,
        texts: route_texts(&changes, rules, pages, &action, &rate_limits, regex),
        changes,
        path_rule: section.text("path-rule").map(|text| parse_path_rule(&text.value)),
        rate_limits,
        priority: overload::parse_priority(section),
        settings: OwnSettings::default(),
        action,
    };
    with_settings(route, settings)
}

/// Adds settings to a route, and the changes that their rules about access need.
pub(super) fn with_settings(mut route: RoutePlan, settings: OwnSettings) -> RoutePlan {
    let listeners = &route.conditions.listeners;
    let resolved = settings.by_listener.iter().enumerate();
    let listener_settings = resolved.filter(|(index, _)| listeners.is_empty() || listeners.contains(index));
    let plans: Vec<_> = listener_settings.filter_map(|(_, settings)| settings.access.as_deref()).collect();
    if !plans.is_empty() {
        let mut changes: Vec<RouteChange> = plans.iter().flat_map(|access| access.changes()).collect();
        changes.append(&mut route.changes);
        route.changes = changes;
        // Its responses have fields that are only known with the request.
        let texts = route.texts.get_or_insert_default();
        for variant in &mut texts.variants {
            let mut changes: Vec<RouteChange> = plans.iter().flat_map(|access| access.changes()).collect();
            changes.append(variant);
            *variant = changes;
        }
    }
    route.settings = settings;
    route
}

/// Returns the implicit last route of a listener with its own pool.
pub(super) fn listener_route(listener: usize, name: &str, pool: PoolId, pages: &ErrorPages) -> RoutePlan {
    let action = Action::Forward(pool);
    RoutePlan {
        name: format!("listener-{name}").into(),
        conditions: Conditions { listeners: vec![listener], ..Conditions::default() },
        changes: Vec::new(),
        settings: OwnSettings::default(),
        texts: route_texts(&[], Vec::new(), pages.to_vec(), &action, &[], None),
        path_rule: None,
        rate_limits: Vec::new(),
        priority: Priority::Normal,
        action,
    }
}

/// Returns the listeners of a route or a condition.
pub(super) fn parse_listeners(
    section: &Section,
    names: &KnownNames<'_>,
    problems: &mut Problems,
) -> Vec<usize> {
    let mut indices = Vec::new();
    for text in section.texts("listener") {
        let name = &*text.value;
        match names.listeners.iter().position(|listener| *listener.name == *name) {
            None => {
                let hint = suggestion(name, names.listeners.iter().map(|listener| &*listener.name));
                problems.add_error(text.offset, format!("unknown listener '{name}'{hint}"));
            }
            Some(index) if names.listeners[index].mode != Mode::Http => {
                let message = format!("listener '{name}' is in mode tcp, which has no routes");
                problems.add_error(text.offset, message);
            }
            Some(index) if indices.contains(&index) => {
                problems.add_error(text.offset, format!("'{name}' is a duplicate: remove it"));
            }
            Some(index) => indices.push(index),
        }
    }
    indices
}

/// Returns the changes in the order in which they are made: the target, then fields removed, set
/// and added.
fn parse_changes(
    section: &Section,
    conditions: &Conditions,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Vec<RouteChange> {
    let mut changes = parse_rewrite(section, conditions, problems);
    for text in section.texts("remove-request-header") {
        problems.ok_or_report(text.offset, validate::check_removed_field(&text.value));
        changes.push(RouteChange::RemoveRequestHeader(text.value));
    }
    for (name, value) in parse_fields(section, "set-request-header", known, problems) {
        changes.push(RouteChange::SetRequestHeader(name, value));
    }
    for (name, value) in parse_fields(section, "add-request-header", known, problems) {
        changes.push(RouteChange::AddRequestHeader(name, value));
    }
    for text in section.texts("remove-response-header") {
        problems.ok_or_report(text.offset, validate::check_removed_field(&text.value));
        changes.push(RouteChange::RemoveResponseHeader(text.value));
    }
    for (name, value) in parse_fields(section, "set-response-header", known, problems) {
        changes.push(RouteChange::SetResponseHeader(name, value));
    }
    for (name, value) in parse_fields(section, "add-response-header", known, problems) {
        changes.push(RouteChange::AddResponseHeader(name, value));
    }
    changes
}

fn parse_rewrite(section: &Section, conditions: &Conditions, problems: &mut Problems) -> Vec<RouteChange> {
    let mut path = |key| {
        let text = section.text(key)?;
        problems.ok_or_report(text.offset, validate::parse_path(&text.value))
    };
    let (prefix, complete_path) = (path("rewrite-prefix"), path("rewrite-path"));
    if let (Some(_), Some(offset)) =
        (section.key_offset("rewrite-prefix"), section.key_offset("rewrite-path"))
    {
        problems.add_error(
            offset,
            "rewrite-path replaces the complete path: remove rewrite-path or rewrite-prefix",
        );
    }
    let mut changes = Vec::new();
    if let Some(replacement) = prefix {
        let mut prefixes = conditions.paths.iter().filter_map(|condition| match condition {
            PathCondition::Prefix(prefix) => Some(prefix.clone()),
            _ => None,
        });
        match (section.texts("path-prefix").len(), prefixes.next()) {
            (1, Some(prefix)) => changes.push(RouteChange::ReplacePrefix { prefix, replacement }),
            // The prefix itself is invalid, which has already been reported.
            (1, None) => {}
            (count, _) => {
                let text = format!("rewrite-prefix needs exactly one path-prefix, not {count}");
                problems.add_error(section.value_offset("rewrite-prefix"), text);
            }
        }
    }
    changes.extend(complete_path.map(RouteChange::ReplacePath));
    changes
}

fn parse_rules(
    section: &Section,
    names: &KnownNames<'_>,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Vec<ResponseRule> {
    let sections = section.tables("response");
    if let Some(extra) = sections.get(RouteTexts::RULES_MAX) {
        problems.add_error(extra.offset, format!("a route has at most {} rules", RouteTexts::RULES_MAX));
    }
    let rule = |section: &Section| {
        let statuses = section.text("status");
        let statuses =
            statuses.and_then(|text| problems.ok_or_report(text.offset, parse_statuses(&text.value)));
        let when = section.key_offset("when").map(|_| section.table("when"));
        let when = when.and_then(|when| parse_condition(&when, names, 1, problems));
        let mut changes = Vec::new();
        for text in section.texts("remove-header") {
            problems.ok_or_report(text.offset, validate::check_removed_field(&text.value));
            changes.push(RouteChange::RemoveResponseHeader(text.value));
        }
        let set = parse_fields(section, "set-header", known, problems).into_iter();
        changes.extend(set.map(|(name, value)| RouteChange::SetResponseHeader(name, value)));
        let added = parse_fields(section, "add-header", known, problems).into_iter();
        changes.extend(added.map(|(name, value)| RouteChange::AddResponseHeader(name, value)));
        if changes.is_empty() {
            problems.add_error(
                section.offset,
                "the rule changes nothing: add set-header, add-header or remove-header",
            );
        }
        ResponseRule { statuses, when: when.map(Box::new), changes }
    };
    sections.iter().take(RouteTexts::RULES_MAX).map(rule).collect()
}

/// Reads names and values of fields that are set or added.
fn parse_fields(
    section: &Section,
    key: &str,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Vec<(Box<str>, Text)> {
    let mut fields: Vec<(Box<str>, Text)> = Vec::new();
    let scope = if key.contains("request") { Scope::Message } else { Scope::Response };
    for pair in section.pairs(key) {
        let name = pair.name.value;
        let is_set = key == "set-request-header";
        problems.ok_or_report(pair.name.offset, validate::check_changed_field(&name, is_set));
        let Matcher::Text(value) = pair.matcher.value else { continue };
        problems.ok_or_report(pair.matcher.offset, validate::check_field_value(&value));
        let text = parse_text(&Located::new(value, pair.matcher.offset), scope, known, problems);
        if let Text::Literal(host) = &text
            && is_set
            && name.eq_ignore_ascii_case("host")
        {
            problems.ok_or_report(pair.matcher.offset, validate::check_authority(host));
        }
        if fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            problems.add_error(
                pair.name.offset,
                format!("'{name}' is a duplicate (field names are case-insensitive): remove it"),
            );
        }
        fields.push((name, text));
    }
    fields
}

fn parse_rate_limit(limit: &Section, known: KnownValues<'_>, problems: &mut Problems) -> Option<RateLimit> {
    let rate_per_s = limit.float("rate")?;
    let text = limit.text("key")?;
    let key = match (&*text.value, text.value.strip_prefix("header:")) {
        ("route", _) => RateKey::Route,
        ("source", _) => RateKey::Source,
        (with_values, _) if with_values.contains(['{', '}']) => {
            RateKey::Template(parse_key(&text, Scope::Route, known, problems)?)
        }
        (_, Some(name)) => {
            problems.ok_or_report(text.offset, validate::check_field_name(name))?;
            RateKey::Header(name.into())
        }
        (other, None) => {
            let message = format!(
                "'{other}' is not a key: write route, source, header:NAME or a text with values, {{cookie.NAME}}"
            );
            problems.add_error(text.offset, message);
            return None;
        }
    };
    let burst = limit.integer("burst").map_or_else(|| rate_per_s.ceil(), |burst| burst as f64);
    Some(RateLimit {
        rate_per_s,
        // Both have a maximum of 1e9, so the cast is lossless.
        burst: burst as u32,
        key,
        status: parse_status(limit),
        keys_max: limit.size("keys-max"),
    })
}

fn parse_status(section: &Section) -> u16 {
    u16::try_from(section.integer_or_zero("status")).unwrap_or_default()
}

/// Reads the route's only action. An invalid one becomes a denial, which never takes effect.
fn parse_action(
    section: &Section,
    names: &KnownNames<'_>,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Action {
    let given_actions: Vec<&str> =
        ACTION_KEYS.into_iter().filter(|action| section.key_offset(action).is_some()).collect();
    let first = given_actions.iter().copied().min_by_key(|action| section.key_offset(action));
    let Some(first) = first else {
        let text = format!("the route has no action: add one of {}", ACTION_KEYS.join(", "));
        problems.add_error(section.offset, text);
        return Action::Deny(403);
    };
    for other in given_actions.iter().filter(|action| **action != first) {
        let text = format!("a route has exactly one action: remove {other} or {first}");
        problems.add_error(section.key_offset(other).unwrap_or(section.offset), text);
    }
    if !["pool", "split"].contains(&first) {
        let is_used = |key: &&str| match *key {
            "compression" => OWN_CONTENT_ACTIONS.contains(&first),
            key => first == "files" && FILE_KEYS.contains(&key),
        };
        for key in FORWARD_ONLY_KEYS.into_iter().filter(|key| !is_used(key)) {
            if let Some(offset) = section.key_offset(key) {
                let text = format!("'{key}' has no effect with {first}, which does not forward");
                problems.warn(offset, text);
            }
        }
    }
    let table = section.table(first);
    match first {
        "pool" => {
            let pool =
                section.text("pool").and_then(|pool_name| find_pool(&pool_name, names.pools, problems));
            // An unknown pool is an error, so there is no plan.
            Action::Forward(pool.unwrap_or(PoolId(0)))
        }
        "split" => parse_split(&table, names, known, problems),
        "files" => parse_files(&table, problems),
        "redirect" => parse_redirect(&table, known, problems),
        "return" => parse_own_response(&table, known, problems),
        "silent-drop" => Action::SilentDrop,
        "tarpit" => Action::Tarpit { delay_ns: table.integer_or_zero("delay"), status: parse_status(&table) },
        _ => Action::Deny(section.integer("deny").map_or(403, |status| status as u16)),
    }
}

fn parse_redirect(table: &Section, known: KnownValues<'_>, problems: &mut Problems) -> Action {
    let status = parse_status(table);
    if ![301, 302, 303, 307, 308].contains(&status) {
        let text = format!("{status} is not a redirect status: write 301, 302, 303, 307 or 308");
        problems.add_error(table.value_offset("status"), text);
    }
    let location = table.text("location");
    if let Some(location) = &location {
        problems.ok_or_report(location.offset, validate::check_location(&location.value));
    }
    let location = location.map(|text| parse_text(&text, Scope::Message, known, problems));
    Action::Redirect { status, location: location.unwrap_or_default() }
}

fn parse_own_response(table: &Section, known: KnownValues<'_>, problems: &mut Problems) -> Action {
    let status = parse_status(table);
    let given: Vec<_> = BODY_KEYS.into_iter().filter(|key| table.key_offset(key).is_some()).collect();
    if let [first, second, ..] = given[..] {
        let text = format!("a response has one content: remove {first} or {second}");
        problems.add_error(table.value_offset(second), text);
    }
    let key = given.first().copied().unwrap_or("body");
    let text = table.text(key);
    let file = text.as_ref().filter(|_| key == "body-file").map(|text| PathBuf::from(&*text.value));
    let body = match (text, &file) {
        (Some(text), Some(file)) => {
            let content = validate::read_text_file(file, BODY_BYTES_MAX);
            Text::Literal(problems.ok_or_report(text.offset, content).unwrap_or_default().into())
        }
        (Some(text), None) if key == "body-template" => parse_text(&text, Scope::Message, known, problems),
        (text, _) => Text::Literal(text.map(|text| text.value).unwrap_or_default()),
    };
    if matches!(status, 204 | 205 | 304) && !body.source().is_empty() {
        let text = format!("a response with status {status} has no content: remove {key}");
        problems.add_error(table.value_offset(key), text);
    }
    if body.source().len() > BODY_BYTES_MAX {
        let text = format!("the body has {} bytes; the maximum is {BODY_BYTES_MAX}", body.source().len());
        problems.add_error(table.value_offset(key), text);
    }
    let content_type = table.text("content-type");
    if let Some(text) = &content_type {
        problems.ok_or_report(text.offset, validate::check_field_value(&text.value));
    }
    Action::Return {
        status,
        content_type: content_type.map(|text| text.value).unwrap_or_default(),
        body,
        file,
    }
}
