//! `[[route]]`: what was read of it to a [`RoutePlan`].

use crate::plan::{
    Action, Change, Conditions, ListenerPlan, Mode, PathCondition, Priority, RateKey, RateLimit,
    RoutePlan, TextCondition, ValueCondition,
};

use super::listeners::find_pool;
use super::source::{Problems, suggestion};
use super::value::{Section, Wanted};
use super::{forms, overload};

/// Names that a route may use.
pub(super) struct Known<'a> {
    pub(super) listeners: &'a [ListenerPlan],
    pub(super) pools: &'a [&'a str],
}

/// What a route does: keys of which it has exactly one.
const ACTIONS: [&str; 6] = ["pool", "redirect", "answer", "deny", "silent-drop", "tarpit"];
/// Keys that only mean something when a request is passed on.
const FORWARD_ONLY: [&str; 6] = [
    "priority",
    "rewrite-prefix",
    "rewrite-path",
    "remove-request-header",
    "set-request-header",
    "add-request-header",
];
const BODY_BYTES_MAX: usize = 64 << 10;

/// A route; what is wrong with it has its default.
pub(super) fn route(
    section: &Section,
    index: usize,
    known: &Known<'_>,
    problems: &mut Problems,
) -> RoutePlan {
    let name = section.text("name");
    if let Some(name) = &name {
        problems.take(name.at, forms::name(&name.value));
    }
    let conditions = conditions(section, known, problems);
    RoutePlan {
        name: name.map_or_else(|| format!("route-{}", index + 1).into(), |name| name.value),
        changes: changes(section, &conditions, problems),
        conditions,
        rate_limit: section.place("rate-limit").and_then(|_| rate_limit(section, problems)),
        priority: overload::priority(section),
        action: action(section, known, problems),
    }
}

/// The last route of a listener with a pool of its own.
pub(super) fn of_listener(listener: usize, name: &str, pool: usize) -> RoutePlan {
    RoutePlan {
        name: format!("listener-{name}").into(),
        conditions: Conditions { listeners: vec![listener], ..Conditions::default() },
        changes: Vec::new(),
        rate_limit: None,
        priority: Priority::Normal,
        action: Action::Forward(pool),
    }
}

fn conditions(section: &Section, known: &Known<'_>, problems: &mut Problems) -> Conditions {
    let mut checked = |key: &str, check: fn(&str) -> Result<Box<str>, String>| -> Vec<Box<str>> {
        let texts = section.texts(key).into_iter();
        texts.filter_map(|text| problems.take(text.at, check(&text.value))).collect()
    };
    let hosts = checked("host", forms::host);
    let exact = checked("path", forms::path).into_iter().map(PathCondition::Exact);
    let below = checked("path-prefix", forms::path).into_iter().map(PathCondition::Prefix);
    let methods = checked("method", |text| {
        wire::encode::check_method(text).map_err(|error| format!("'{text}': {error}"))?;
        Ok(text.into())
    });
    let mut paths: Vec<PathCondition> = exact.chain(below).collect();
    for text in section.texts("path-regex") {
        let regex = problems.take(text.at, forms::regex(&text.value));
        paths.extend(regex.map(PathCondition::Regex));
    }
    for text in section.texts("method") {
        if text.value.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let upper = text.value.to_ascii_uppercase();
            problems.warn(text.at, format!("methods have a case: did you mean '{upper}'?"));
        }
    }
    let sources = section.texts("source").into_iter();
    let sources = sources.filter_map(|text| problems.take(text.at, forms::network(&text.value)));
    let sources = sources.collect();
    Conditions {
        listeners: listeners(section, known, problems),
        hosts,
        paths,
        methods,
        headers: texts(section, "header", problems),
        query: texts(section, "query", problems),
        sources,
    }
}

fn listeners(section: &Section, known: &Known<'_>, problems: &mut Problems) -> Vec<usize> {
    let mut found = Vec::new();
    for text in section.texts("listener") {
        let name = &*text.value;
        match known.listeners.iter().position(|listener| *listener.name == *name) {
            None => {
                let near = suggestion(name, known.listeners.iter().map(|known| &*known.name));
                problems.add(text.at, format!("there is no listener '{name}'{near}"));
            }
            Some(index) if known.listeners[index].mode != Mode::Http => {
                let words = format!("listener '{name}' is in mode tcp, where no route is asked");
                problems.add(text.at, words);
            }
            Some(index) if found.contains(&index) => {
                problems.add(text.at, format!("'{name}' is named twice"));
            }
            Some(index) => found.push(index),
        }
    }
    found
}

fn texts(section: &Section, key: &str, problems: &mut Problems) -> Vec<TextCondition> {
    let mut conditions = Vec::new();
    for pair in section.pairs(key) {
        if key == "header" {
            problems.take(pair.name.at, forms::field_name(&pair.name.value));
            if let Wanted::Text(text) = &pair.wanted.value {
                problems.take(pair.wanted.at, forms::field_value(text));
            }
        }
        let value = match pair.wanted.value {
            Wanted::Text(text) => ValueCondition::Is(text),
            Wanted::Present(true) => ValueCondition::Present,
            Wanted::Present(false) => ValueCondition::Absent,
            Wanted::Regex(text) => match problems.take(pair.wanted.at, forms::regex(&text)) {
                Some(regex) => ValueCondition::Matches(regex),
                None => continue,
            },
        };
        conditions.push(TextCondition { name: pair.name.value, value });
    }
    conditions
}

/// In the order in which they are made: the target, then fields removed, set and added.
fn changes(section: &Section, conditions: &Conditions, problems: &mut Problems) -> Vec<Change> {
    let mut changes = rewriting(section, conditions, problems);
    for text in section.texts("remove-request-header") {
        problems.take(text.at, forms::changed_field(&text.value, false));
        changes.push(Change::RemoveRequestHeader(text.value));
    }
    for (name, value) in fields(section, "set-request-header", problems) {
        changes.push(Change::SetRequestHeader(name, value));
    }
    for (name, value) in fields(section, "add-request-header", problems) {
        changes.push(Change::AddRequestHeader(name, value));
    }
    for text in section.texts("remove-response-header") {
        problems.take(text.at, forms::changed_field(&text.value, false));
        changes.push(Change::RemoveResponseHeader(text.value));
    }
    for (name, value) in fields(section, "set-response-header", problems) {
        changes.push(Change::SetResponseHeader(name, value));
    }
    for (name, value) in fields(section, "add-response-header", problems) {
        changes.push(Change::AddResponseHeader(name, value));
    }
    changes
}

fn rewriting(section: &Section, conditions: &Conditions, problems: &mut Problems) -> Vec<Change> {
    let mut path = |key| {
        let text = section.text(key)?;
        problems.take(text.at, forms::path(&text.value))
    };
    let (prefix, whole) = (path("rewrite-prefix"), path("rewrite-path"));
    if let (Some(_), Some(at)) = (section.place("rewrite-prefix"), section.place("rewrite-path")) {
        problems.add(at, "the whole path is replaced: leave rewrite-prefix or rewrite-path out");
    }
    let mut changes = Vec::new();
    if let Some(with) = prefix {
        let mut prefixes = conditions.paths.iter().filter_map(|condition| match condition {
            PathCondition::Prefix(prefix) => Some(prefix.clone()),
            _ => None,
        });
        match (section.texts("path-prefix").len(), prefixes.next()) {
            (1, Some(prefix)) => changes.push(Change::ReplacePrefix { prefix, with }),
            // It is wrong in itself, and that is said already.
            (1, None) => {}
            (count, _) => {
                let text = format!("this needs exactly one path-prefix, and there are {count}");
                problems.add(section.value_place("rewrite-prefix"), text);
            }
        }
    }
    changes.extend(whole.map(Change::ReplacePath));
    changes
}

/// Names and values of fields that are set or added.
fn fields(section: &Section, key: &str, problems: &mut Problems) -> Vec<(Box<str>, Box<str>)> {
    let mut fields: Vec<(Box<str>, Box<str>)> = Vec::new();
    for pair in section.pairs(key) {
        let name = pair.name.value;
        let sets = key == "set-request-header";
        problems.take(pair.name.at, forms::changed_field(&name, sets));
        let Wanted::Text(value) = pair.wanted.value else { continue };
        problems.take(pair.wanted.at, forms::field_value(&value));
        if sets && name.eq_ignore_ascii_case("host") {
            problems.take(pair.wanted.at, forms::authority(&value));
        }
        if fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            problems.add(pair.name.at, format!("'{name}' is named twice: fields have no case"));
        }
        fields.push((name, value));
    }
    fields
}

fn rate_limit(section: &Section, problems: &mut Problems) -> Option<RateLimit> {
    let limit = section.table("rate-limit");
    let rate_per_s = limit.fraction("rate")?;
    let text = limit.text("key")?;
    let key = match (&*text.value, text.value.strip_prefix("header:")) {
        ("route", _) => RateKey::Route,
        ("source", _) => RateKey::Source,
        (_, Some(name)) => {
            problems.take(text.at, forms::field_name(name))?;
            RateKey::Header(name.into())
        }
        (other, None) => {
            let words = format!("'{other}' is not a key: write route, source or header:NAME");
            problems.add(text.at, words);
            return None;
        }
    };
    let burst = limit.whole("burst").map_or_else(|| rate_per_s.ceil(), |burst| burst as f64);
    Some(RateLimit {
        rate_per_s,
        // At most 1e9 by the ranges of both.
        burst: burst as u32,
        key,
        status: status(&limit),
        keys_max: limit.size("keys-max"),
    })
}

fn status(section: &Section) -> u16 {
    u16::try_from(section.number("status")).unwrap_or_default()
}

/// Exactly one; what is wrong is a refusal, which nobody gets to see.
fn action(section: &Section, known: &Known<'_>, problems: &mut Problems) -> Action {
    let given: Vec<&str> =
        ACTIONS.into_iter().filter(|action| section.place(action).is_some()).collect();
    let first = given.iter().copied().min_by_key(|action| section.place(action));
    let Some(first) = first else {
        let text = format!("this route does nothing: give it one of {}", ACTIONS.join(", "));
        problems.add(section.at, text);
        return Action::Deny(403);
    };
    for other in given.iter().filter(|action| **action != first) {
        let text = format!("a route has one action: leave {other} or {first} out");
        problems.add(section.place(other).unwrap_or(section.at), text);
    }
    if first != "pool" {
        for key in FORWARD_ONLY {
            if let Some(at) = section.place(key) {
                let text = format!("'{key}' does nothing here: {first} passes nothing on");
                problems.warn(at, text);
            }
        }
    }
    let table = section.table(first);
    match first {
        "pool" => {
            let pool =
                section.text("pool").and_then(|name| find_pool(&name, known.pools, problems));
            Action::Forward(pool.unwrap_or_default())
        }
        "redirect" => redirect(&table, problems),
        "answer" => answer(&table, problems),
        "silent-drop" => Action::SilentDrop,
        "tarpit" => Action::Tarpit { delay_ns: table.number("delay"), status: status(&table) },
        _ => Action::Deny(section.whole("deny").map_or(403, |status| status as u16)),
    }
}

fn redirect(table: &Section, problems: &mut Problems) -> Action {
    let status = status(table);
    if ![301, 302, 303, 307, 308].contains(&status) {
        let text = format!("{status} is no redirect: write 301, 302, 303, 307 or 308");
        problems.add(table.value_place("status"), text);
    }
    let location = table.text("location");
    if let Some(location) = &location {
        problems.take(location.at, forms::location(&location.value));
    }
    Action::Redirect { status, location: location.map(|text| text.value).unwrap_or_default() }
}

fn answer(table: &Section, problems: &mut Problems) -> Action {
    let status = status(table);
    let body = table.text("body").map(|text| text.value).unwrap_or_default();
    if matches!(status, 204 | 205 | 304) && !body.is_empty() {
        let text = format!("an answer with status {status} has no content: leave body out");
        problems.add(table.value_place("body"), text);
    }
    if body.len() > BODY_BYTES_MAX {
        let text = format!("{} bytes are over the bound of {BODY_BYTES_MAX}", body.len());
        problems.add(table.value_place("body"), text);
    }
    let content_type = table.text("content-type");
    if let Some(text) = &content_type {
        problems.take(text.at, forms::field_value(&text.value));
    }
    Action::Answer {
        status,
        content_type: content_type.map(|text| text.value).unwrap_or_default(),
        body: body.into_boxed_bytes(),
    }
}
