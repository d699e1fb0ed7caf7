//! Converts the conditions of a route: its plain keys, and `when`.

use std::sync::Arc;

use record::document::{Located, Problems};
use record::problem::suggestion;

use crate::auth::claims::is_claim_path;
use crate::percent::NamedPercent;
use crate::plan::WEEKDAYS;
use crate::plan::{
    CertificatePart, Condition, Conditions, DayTime, Fact, MapPlan, PathCondition, PercentCondition,
    TextCondition, ValueCondition, Variable,
};
use crate::template::{KnownValues, Scope};

use super::errors::ValueError;
use super::maps::open_networks;
use super::routes::{KnownNames, parse_listeners};
use super::templates::parse_key;
use super::validate;
use super::value::{Matcher, Pair, Section, check_choice};

/// Constructor of a condition from others.
type Combine = fn(Vec<Condition>) -> Condition;
/// Parser of a path condition.
type ParsePath = fn(&str) -> Result<PathCondition, ValueError>;

/// Maximum depth of conditions inside each other.
const DEPTH_MAX: usize = 8;
/// Keys of a condition that a route can have, too.
const PLAIN_KEYS: [&str; 10] = [
    "listener",
    "host",
    "path",
    "path-prefix",
    "path-glob",
    "path-regex",
    "method",
    "header",
    "query",
    "source",
];

/// Reads the conditions of a route, `when` included.
pub(super) fn parse_conditions(
    section: &Section,
    names: &KnownNames<'_>,
    problems: &mut Problems,
) -> Conditions {
    let when = section.key_offset("when").map(|_| section.table("when"));
    let when = when.and_then(|when| parse_condition(&when, names, 1, problems));
    let mut has_claim = false;
    let mut find_claim = |condition: &Condition| has_claim |= matches!(condition, Condition::Claim(_));
    when.iter().for_each(|when| when.visit(&mut find_claim));
    if has_claim {
        let text = "a route is chosen before its authentication, so `claim` holds for no request: write `require` of \
                    `auth.jwt`, or the condition of a [[route.response]]";
        problems.add_error(section.value_offset("when"), text);
    }
    Conditions { when: when.map(Box::new), ..parse_plain(section, names, problems) }
}

fn parse_plain(section: &Section, names: &KnownNames<'_>, problems: &mut Problems) -> Conditions {
    let mut parse_texts = |key: &str, check: fn(&str) -> Result<Box<str>, ValueError>| -> Vec<Box<str>> {
        let texts = section.texts(key).into_iter();
        texts.filter_map(|text| problems.ok_or_report(text.offset, check(&text.value))).collect()
    };
    let hosts = parse_texts("host", validate::parse_host);
    let methods = parse_texts("method", |text| {
        wire::encode::check_method(text)
            .map_err(|error| ValueError::MessagePart { text: text.into(), error })?;
        Ok(text.into())
    });
    for text in section.texts("method") {
        if text.value.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let upper = text.value.to_ascii_uppercase();
            problems.warn(text.offset, format!("methods are case-sensitive: did you mean '{upper}'?"));
        }
    }
    let sources = section.texts("source").into_iter();
    let sources =
        sources.filter_map(|text| problems.ok_or_report(text.offset, validate::parse_network(&text.value)));
    let sources = sources.collect();
    Conditions {
        listeners: parse_listeners(section, names, problems),
        hosts,
        paths: parse_paths(section, problems),
        methods,
        headers: parse_text_conditions(section, "header", problems),
        query: parse_text_conditions(section, "query", problems),
        sources,
        when: None,
    }
}

fn parse_paths(section: &Section, problems: &mut Problems) -> Vec<PathCondition> {
    let mut paths = Vec::new();
    let kinds: [(&str, ParsePath); 4] = [
        ("path", |text| validate::parse_path(text).map(PathCondition::Exact)),
        ("path-prefix", |text| validate::parse_path(text).map(PathCondition::Prefix)),
        ("path-glob", |text| Ok(PathCondition::Glob(text.into(), validate::compile_glob(text)?))),
        ("path-regex", |text| validate::compile_regex(text).map(PathCondition::Regex)),
    ];
    for (key, parse) in kinds {
        let texts = section.texts(key).into_iter();
        paths.extend(texts.filter_map(|text| problems.ok_or_report(text.offset, parse(&text.value))));
    }
    paths
}

fn parse_text_conditions(section: &Section, key: &str, problems: &mut Problems) -> Vec<TextCondition> {
    let mut conditions = Vec::new();
    check_names(section, key, problems);
    for pair in section.pairs(key) {
        if key != "query" {
            problems.ok_or_report(pair.name.offset, validate::check_field_name(&pair.name.value));
            if let Matcher::Text(text) = &pair.matcher.value {
                problems.ok_or_report(pair.matcher.offset, validate::check_field_value(text));
            }
        }
        if let Some(value) = parse_matcher(pair.matcher, problems) {
            conditions.push(TextCondition { name: pair.name.value, value });
        }
    }
    conditions
}

/// Reports a table of matchers without a name, which would always hold.
fn check_names(section: &Section, key: &str, problems: &mut Problems) {
    if let Some(offset) = section.key_offset(key).filter(|_| section.has_no_pairs(key)) {
        problems.add_error(
            offset,
            format!("'{key}' is empty: it would always hold; add a name, or remove the key"),
        );
    }
}

pub(super) fn parse_matcher(matcher: Located<Matcher>, problems: &mut Problems) -> Option<ValueCondition> {
    Some(match matcher.value {
        Matcher::Text(text) => ValueCondition::Equals(text),
        Matcher::Present(true) => ValueCondition::Present,
        Matcher::Present(false) => ValueCondition::Absent,
        Matcher::Regex(text) => {
            let regex = problems.ok_or_report(matcher.offset, validate::compile_regex(&text));
            ValueCondition::Matches(regex?)
        }
    })
}

/// Reads a condition at a depth, all of whose keys must hold. `None`: it has a fault, which was reported.
pub(super) fn parse_condition(
    section: &Section,
    names: &KnownNames<'_>,
    depth: usize,
    problems: &mut Problems,
) -> Option<Condition> {
    if depth > DEPTH_MAX {
        problems
            .add_error(section.offset, format!("conditions are inside each other at most {DEPTH_MAX} times"));
        return None;
    }
    let mut parts = Vec::new();
    if PLAIN_KEYS.iter().any(|key| section.key_offset(key).is_some()) {
        parts.push(Condition::Plain(Box::new(parse_plain(section, names, problems))));
    }
    let cookies = parse_text_conditions(section, "cookie", problems);
    parts.extend(cookies.into_iter().map(Condition::Cookie));
    if let Some(file) = section.text("source-file")
        && let Some((path, list)) = open_networks(&file, problems)
    {
        parts.push(Condition::SourceFile(path, list));
    }
    parts.extend(parse_map_conditions(section, names.maps, problems));
    parts.extend(parse_client_conditions(section, problems));
    parts.extend(parse_times(section, problems));
    parts.extend(parse_percent(section, names.maps, problems));
    let lists: [(&str, Combine); 2] = [("all", Condition::All), ("any", Condition::Any)];
    for (key, combine) in lists {
        let Some(offset) = section.key_offset(key) else { continue };
        let sections = section.tables(key);
        if sections.is_empty() {
            problems.add_error(offset, format!("'{key}' is empty: add a condition, or remove the key"));
        }
        let inner = sections.iter().filter_map(|inner| parse_condition(inner, names, depth + 1, problems));
        parts.push(combine(inner.collect()));
    }
    if section.key_offset("not").is_some() {
        let inner = parse_condition(&section.table("not"), names, depth + 1, problems);
        parts.extend(inner.map(|inner| Condition::Not(Box::new(inner))));
    }
    if parts.is_empty() {
        if section.is_empty_table() {
            problems.add_error(section.offset, "the condition is empty: it would always hold");
        }
        return None;
    }
    Some(if parts.len() == 1 { parts.remove(0) } else { Condition::All(parts) })
}

/// Reads the conditions on entries of maps.
fn parse_map_conditions(section: &Section, maps: &[Arc<MapPlan>], problems: &mut Problems) -> Vec<Condition> {
    let mut parts = Vec::new();
    check_names(section, "map", problems);
    for pair in section.pairs("map") {
        let Some(map) = maps.iter().find(|map| map.name == pair.name.value) else {
            let hint = suggestion(&pair.name.value, maps.iter().map(|map| &*map.name));
            problems.add_error(pair.name.offset, format!("unknown map '{}'{hint}", pair.name.value));
            continue;
        };
        if let Some(value) = parse_matcher(pair.matcher, problems) {
            parts.push(Condition::Map(Arc::clone(map), value));
        }
    }
    parts
}

fn parse_client_conditions(section: &Section, problems: &mut Problems) -> Vec<Condition> {
    let mut parts = Vec::new();
    if section.key_offset("tls").is_some() {
        parts.push(Condition::Tls(section.flag("tls")));
    }
    let names = section.texts("sni").into_iter();
    let names: Vec<_> = names
        .filter_map(|text| problems.ok_or_report(text.offset, validate::parse_host(&text.value)))
        .collect();
    if !names.is_empty() {
        parts.push(Condition::ServerName(names));
    }
    check_names(section, "claim", problems);
    for Pair { name, matcher } in section.pairs("claim") {
        if !is_claim_path(&name.value) {
            let text = format!("'{}' is not the name of a claim", name.value.escape_debug());
            problems.add_error(name.offset, text);
        }
        let value = parse_matcher(matcher, problems);
        parts.extend(value.map(|value| Condition::Claim(TextCondition { name: name.value, value })));
    }
    check_names(section, "tls-client", problems);
    for pair in section.pairs("tls-client") {
        let part = CertificatePart::ALL.into_iter().find(|part| part.name() == &*pair.name.value);
        let choice = check_choice(&pair.name.value, &CertificatePart::ALL.map(CertificatePart::name));
        problems.ok_or_report(pair.name.offset, choice);
        if let (Some(part), Some(value)) = (part, parse_matcher(pair.matcher, problems)) {
            parts.push(Condition::Certificate(part, value));
        }
    }
    parts
}

fn parse_times(section: &Section, problems: &mut Problems) -> Vec<Condition> {
    let mut parts = Vec::new();
    let times = section.texts("time").into_iter();
    let times: Vec<_> =
        times.filter_map(|text| problems.ok_or_report(text.offset, parse_day_time(&text.value))).collect();
    if !times.is_empty() {
        parts.push(Condition::Time(times));
    }
    let mut days = 0;
    for text in section.texts("weekday") {
        problems.ok_or_report(text.offset, check_choice(&text.value, &WEEKDAYS));
        days |= WEEKDAYS.iter().position(|day| *day == &*text.value).map_or(0, |day| 1 << day);
    }
    if days != 0 {
        parts.push(Condition::Weekday(days));
    }
    parts
}

/// Parses a part of the day such as `22:00-06:00`.
fn parse_day_time(text: &str) -> Result<DayTime, ValueError> {
    let invalid = || ValueError::DayTime(text.into());
    let clock = |text: &str| {
        let (hour, minute) =
            text.split_once(':').filter(|(hour, minute)| hour.len() == 2 && minute.len() == 2)?;
        let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
        let is_time = hour < 24 && minute < 60 || (hour, minute) == (24, 0);
        is_time.then_some(hour * 3600 + minute * 60)
    };
    let (from, to) = text.split_once('-').ok_or_else(invalid)?;
    let (from_s, to_s) = clock(from.trim()).zip(clock(to.trim())).ok_or_else(invalid)?;
    match from_s == to_s {
        true => Err(invalid()),
        false => Ok(DayTime { from_s, to_s }),
    }
}

fn parse_percent(section: &Section, maps: &[Arc<MapPlan>], problems: &mut Problems) -> Option<Condition> {
    let text = section.text("key")?;
    let key = parse_key(&text, Scope::Key, KnownValues { regex: None, maps }, problems)?;
    let named = section.text("name").map(|name| {
        problems.ok_or_report(name.offset, validate::check_name(&name.value));
        NamedPercent::open(&name.value)
    });
    let Some(percent) = section.float("percent") else {
        for name in ["key", "name"] {
            if let Some(offset) = section.key_offset(name) {
                problems.warn(offset, format!("'{name}' has no effect without percent"));
            }
        }
        return None;
    };
    let is_constant = |variable: &Variable| matches!(variable, Variable::Fact(Fact::Listener));
    if key.variables().all(is_constant) {
        let message = format!(
            "'{}' is the same for all requests, so that all or none of them are in the percentage: write a value of a \
             client or of a request, such as source or cookie.NAME, and the key listener of a condition for listeners",
            text.value
        );
        problems.add_error(text.offset, message);
        return None;
    }
    Some(Condition::Percent(PercentCondition { percent, named, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the place and the text of the only error of a route's condition.
    fn error_of(condition: &str) -> String {
        let config = format!("[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\n{condition}\ndeny = true\n");
        match crate::config::parse("t", &config) {
            Ok(_) => String::new(),
            Err(problems) => problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("|"),
        }
    }

    #[test]
    fn an_empty_table_of_matchers_is_an_error() {
        for key in ["header", "query", "cookie", "tls-client"] {
            let error = error_of(&format!("when = {{ method = 'GET', {key} = {{}} }}"));
            assert!(error.contains(&format!("'{key}' is empty")) && error.contains("t:4:"), "{error}");
            assert_eq!(error.matches("error").count().max(1), 1, "{error}");
        }
        let error = error_of("header = {}");
        assert!(error.contains("'header' is empty") && error.contains("t:4:"), "{error}");
        assert_eq!(error_of("when = { header = { a = true } }"), "");
    }

    #[test]
    fn a_percentage_needs_a_key_that_differs() {
        for constant in ["listener", "text", "{listener}-x"] {
            let error = error_of(&format!("when = {{ percent = 50, key = '{constant}' }}"));
            assert!(!error.is_empty() && error.contains("t:4:"), "{constant}: {error}");
        }
        assert!(
            error_of("when = { percent = 50, key = '{listener}' }").contains("the same for all requests")
        );
        assert!(error_of("when = { percent = 50, name = 'a b' }").contains("'a b'"));
        assert_eq!(error_of("when = { percent = 50, key = '{listener}-{source}' }"), "");
        assert_eq!(error_of("when = { percent = 50 }"), "");
    }

    #[test]
    fn a_part_of_the_day_may_be_over_midnight() {
        let contains = |text: &str, second| parse_day_time(text).unwrap().contains(second);
        assert!(contains("08:00-17:30", 8 * 3600) && !contains("08:00-17:30", 17 * 3600 + 1800));
        assert!(
            contains("22:00-06:00", 0) && contains("22:00-06:00", 86_399) && !contains("22:00-06:00", 21_600)
        );
        assert!(contains("18:00-24:00", 86_399) && !contains("18:00-24:00", 0));
        for invalid in ["", "8:00-9:00", "08:00", "08:00-08:00", "25:00-26:00", "08:60-09:00", "24:01-01:00"]
        {
            assert!(parse_day_time(invalid).is_err(), "{invalid}");
        }
    }
}
