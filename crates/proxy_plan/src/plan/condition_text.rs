//! Conditions as texts, for `explain` and messages.

use std::fmt;

use super::{Condition, Conditions, PathCondition, TextCondition, ValueCondition, WEEKDAYS};

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(conditions) => write_list(f, "all", conditions),
            Self::Any(conditions) => write_list(f, "any", conditions),
            Self::Not(condition) => write!(f, "not ({condition})"),
            Self::Plain(conditions) => write_plain(f, conditions),
            Self::SourceFile(path, _) => write!(f, "source-file {}", path.display()),
            Self::Map(map, value) => write_matcher(f, "map", &map.name, value),
            Self::Cookie(condition) => write_matcher(f, "cookie", &condition.name, &condition.value),
            Self::Claim(condition) => write_matcher(f, "claim", &condition.name, &condition.value),
            Self::Tls(expected) => write!(f, "tls {expected}"),
            Self::ServerName(names) => write!(f, "sni {}", names.join(" or ")),
            Self::Certificate(part, value) => write_matcher(f, "tls-client", part.name(), value),
            Self::Time(times) => {
                let clock = |second: u32| format!("{:02}:{:02}", second / 3600, second / 60 % 60);
                let times = times.iter().map(|time| format!("{}-{}", clock(time.from_s), clock(time.to_s)));
                write!(f, "time {}", times.collect::<Vec<_>>().join(" or "))
            }
            Self::Weekday(days) => {
                let names = WEEKDAYS.iter().enumerate().filter(|(day, _)| days >> day & 1 == 1);
                write!(f, "weekday {}", names.map(|(_, name)| *name).collect::<Vec<_>>().join(" or "))
            }
            Self::Percent(condition) => {
                write!(f, "percent {} of {}", condition.current(), condition.key.source())
            }
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, name: &str, conditions: &[Condition]) -> fmt::Result {
    let texts: Vec<String> = conditions.iter().map(Condition::to_string).collect();
    write!(f, "{name} ({})", texts.join("; "))
}

fn write_matcher(f: &mut fmt::Formatter<'_>, kind: &str, name: &str, value: &ValueCondition) -> fmt::Result {
    match value {
        ValueCondition::Present => write!(f, "{kind} {name}"),
        ValueCondition::Absent => write!(f, "{kind} {name} absent"),
        ValueCondition::Equals(text) => write!(f, "{kind} {name} = '{text}'"),
        ValueCondition::Matches(regex) => write!(f, "{kind} {name} matching {regex}"),
    }
}

fn write_plain(f: &mut fmt::Formatter<'_>, conditions: &Conditions) -> fmt::Result {
    let join = |texts: Vec<String>| texts.join(" or ");
    let mut parts = Vec::new();
    if !conditions.listeners.is_empty() {
        parts.push("listener".to_owned());
    }
    for (key, texts) in [("host", &conditions.hosts), ("method", &conditions.methods)] {
        if !texts.is_empty() {
            parts.push(format!("{key} {}", texts.join(" or ")));
        }
    }
    if !conditions.paths.is_empty() {
        parts.push(join(conditions.paths.iter().map(PathCondition::to_string).collect()));
    }
    if !conditions.sources.is_empty() {
        let networks =
            conditions.sources.iter().map(|network| format!("{}/{}", network.address, network.prefix));
        parts.push(format!("source {}", join(networks.collect())));
    }
    for (kind, matchers) in [("header", &conditions.headers), ("query", &conditions.query)] {
        parts.extend(matchers.iter().map(|matcher| Matcher(kind, matcher).to_string()));
    }
    f.write_str(&parts.join(", "))
}

struct Matcher<'a>(&'a str, &'a TextCondition);

impl fmt::Display for Matcher<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_matcher(f, self.0, &self.1.name, &self.1.value)
    }
}

impl fmt::Display for PathCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(path) => write!(f, "path {path}"),
            Self::Prefix(path) => write!(f, "path-prefix {path}"),
            Self::Glob(pattern, _) => write!(f, "path-glob {pattern}"),
            Self::Regex(regex) => write!(f, "path-regex {regex}"),
        }
    }
}
