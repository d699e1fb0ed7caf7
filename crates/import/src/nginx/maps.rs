//! Variables that a config defines: `map`, `geo` and `split_clients`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use record::sorted::sort_by_key;

use super::variables::{Known, source_template, split_name};
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, EXPRESSIONS_MAX, MapEntries, MapFault, MapSection, is_map_text, network};
use crate::left::Kind;
use crate::paths::{is_aligned, is_portable_regex, is_unreserved_path};
use crate::rules::{Condition, MapTest, Test, ValueTest, key_reads};
use crate::text::escape_regex;

/// Variables by name.
pub(super) type Variables = BTreeMap<String, Rc<MapVariable>>;

/// Key of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Pattern {
    /// A text, in lower case: nginx compares without case.
    Exact(String),
    /// `*.NAME`: the names below it.
    Leading(String),
    /// `NAME.*`.
    Trailing(String),
    Regex {
        text: String,
        ignores_case: bool,
    },
    Network(String),
    /// Sum of the percentages up to this entry, in hundredths.
    Share(u32),
}

/// Name of a server if a variable depends on it, and whether its clients' addresses are known.
type ServerFacts = (String, bool);

/// A variable whose value depends on another text.
#[derive(Clone, Debug)]
pub(super) struct MapVariable {
    name: String,
    source: String,
    entries: Vec<(Pattern, String)>,
    default: String,
    origin: Rc<Origin>,
    /// Reason for which weir cannot have it.
    problem: Option<MapFault>,
    /// Results for servers, by what they depend on.
    resolved: RefCell<Vec<(ServerFacts, Result<Resolved, MapFault>)>>,
}

/// A variable as weir has it.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    /// Name of the map, whose values are the texts of the source. `None`: it has shares.
    pub(super) map: Option<String>,
    /// Values with their conditions, of which the first one that holds counts; the last one holds for all requests.
    pub(super) alternatives: Rc<[(Condition, String)]>,
    /// True if weir compares the same text as nginx.
    pub(super) is_exact: bool,
}

impl Resolved {
    /// Returns the name of the map if its values are the values of the variable.
    pub(super) fn literal_map(&self) -> Option<&str> {
        let is_literal = self.alternatives.iter().all(|(_, value)| !value.contains('$'));
        self.map.as_deref().filter(|_| is_literal)
    }
}

impl MapVariable {
    /// Reads a block; `None`: it defines no variable.
    pub(super) fn read(directive: &Directive) -> Option<Self> {
        let (source, name) = match (directive.name(), directive.arguments()) {
            ("map" | "geo" | "split_clients", [source, name]) => (source.as_str(), name),
            ("geo", [name]) => ("$remote_addr", name),
            _ => return None,
        };
        let mut variable = Self {
            name: name.strip_prefix('$')?.to_owned(),
            source: source.to_owned(),
            entries: Vec::new(),
            default: String::new(),
            origin: Rc::clone(&directive.origin),
            problem: None,
            resolved: RefCell::default(),
        };
        let add = match directive.name() {
            "map" => Self::add_of_map,
            "geo" => Self::add_of_geo,
            _ => Self::add_of_shares,
        };
        let has_hosts = directive.inner().iter().any(|inner| inner.words == ["hostnames"]);
        for inner in directive.inner() {
            if add(&mut variable, &inner.words, has_hosts).is_none() {
                variable.problem.get_or_insert_with(|| MapFault::Part(inner.words.join(" ")));
            }
        }
        Some(variable)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn origin(&self) -> &Rc<Origin> {
        &self.origin
    }

    fn add_of_map(&mut self, words: &[String], has_hosts: bool) -> Option<()> {
        let [key, value] = words else {
            return matches!(words, [word] if word == "hostnames" || word == "volatile").then_some(());
        };
        let value = value.clone();
        match key.as_str() {
            "default" => self.default = value,
            "include" => return None,
            key => {
                if let Some(text) = key.strip_prefix('~') {
                    let (text, ignores_case) =
                        text.strip_prefix('*').map_or((text, false), |text| (text, true));
                    self.entries.push((Pattern::Regex { text: text.to_owned(), ignores_case }, value));
                    return Some(());
                }
                // A backslash keeps a word from its special meaning.
                let key = key.strip_prefix('\\').unwrap_or(key).to_lowercase();
                let dotted = key.strip_prefix('.').filter(|_| has_hosts);
                if let Some(base) = dotted {
                    self.add(Pattern::Exact(base.to_owned()), value.clone());
                    self.add(Pattern::Leading(base.to_owned()), value);
                } else if let Some(base) = key.strip_prefix("*.").filter(|_| has_hosts) {
                    self.add(Pattern::Leading(base.to_owned()), value);
                } else if let Some(start) = key.strip_suffix(".*").filter(|_| has_hosts) {
                    self.add(Pattern::Trailing(start.to_owned()), value);
                } else {
                    self.add(Pattern::Exact(key), value);
                }
            }
        }
        Some(())
    }

    fn add(&mut self, pattern: Pattern, value: String) {
        self.entries.push((pattern, value));
    }

    fn add_of_geo(&mut self, words: &[String], _: bool) -> Option<()> {
        let [key, value] = words else { return None };
        match key.as_str() {
            "default" => self.default.clone_from(value),
            key => self.entries.push((Pattern::Network(network(key)?), value.clone())),
        }
        Some(())
    }

    fn add_of_shares(&mut self, words: &[String], _: bool) -> Option<()> {
        let [key, value] = words else { return None };
        if key == "*" {
            self.default.clone_from(value);
            return Some(());
        }
        let (whole, fraction) =
            key.strip_suffix('%')?.split_once('.').unwrap_or((key.strip_suffix('%')?, ""));
        let is_valid = fraction.len() <= 2 && fraction.bytes().all(|byte| byte.is_ascii_digit());
        let hundredths: u32 = format!("{fraction:0<2}").parse().ok().filter(|_| is_valid)?;
        let before = match self.entries.last() {
            Some((Pattern::Share(sum), _)) => *sum,
            _ => 0,
        };
        let sum =
            whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths)?.checked_add(before)?;
        self.entries.push((Pattern::Share(sum), value.clone()));
        (sum <= 10_000).then_some(())
    }

    /// Returns the value for the empty text if the source is a field that weir has from trusted peers only.
    pub(super) fn value_without_hidden_field(&self) -> Option<&str> {
        let field = self.source.strip_prefix("$http_")?.replace('_', "-").to_ascii_lowercase();
        let is_empty = |pattern: &Pattern| matches!(pattern, Pattern::Exact(text) if text.is_empty());
        let entry = self.entries.iter().find(|(pattern, _)| is_empty(pattern));
        let is_plain = self.entries.iter().all(|(pattern, _)| match pattern {
            Pattern::Regex { text, .. } => needs_letter(text),
            pattern => matches!(pattern, Pattern::Exact(_)),
        });
        let value = entry.map_or(&self.default, |(_, value)| value);
        (crate::draft::is_hidden(&field) && (entry.is_some() || is_plain)).then_some(value)
    }

    /// Returns the variable as weir has it for a server, or the reason why it cannot.
    pub(super) fn resolve(
        &self,
        known: Known<'_>,
        variables: &Variables,
        draft: &mut Draft<'_>,
    ) -> Result<Resolved, MapFault> {
        let server_name = if self.source.contains("server_name") { known.server_name } else { "" };
        let cache_key = (server_name.to_owned(), known.knows_source);
        if let Some((_, resolved)) = self.resolved.borrow().iter().find(|(key, _)| *key == cache_key) {
            return resolved.clone();
        }
        let resolved = self.resolve_new(known, variables, draft, 0);
        self.resolved.borrow_mut().push((cache_key, resolved.clone()));
        resolved
    }

    fn resolve_new(
        &self,
        known: Known<'_>,
        variables: &Variables,
        draft: &mut Draft<'_>,
        depth: usize,
    ) -> Result<Resolved, MapFault> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let weight: usize = self.entries.iter().map(|(_, value)| 64 + value.len()).sum();
        if !draft.spend(weight, &self.origin) {
            return Err(MapFault::TooLong);
        }
        let own_name = self.source.strip_prefix('$').and_then(split_name).filter(|(_, rest)| rest.is_empty());
        if let Some(inner) = own_name.and_then(|(name, _)| variables.get(name)) {
            let composed = self.composed(inner).filter(|_| depth < 4);
            let composed = composed.ok_or(MapFault::Joined)?;
            return composed.resolve_new(known, variables, draft, depth + 1);
        }
        let template = source_template(&self.source, known).ok_or(MapFault::Text)?;
        let key = template.key().ok_or(MapFault::Text)?;
        if self.entries.iter().any(|(pattern, _)| matches!(pattern, Pattern::Share(_))) {
            let text = "the shares are the same, and other clients are in them";
            draft.leave(Kind::Differs, &self.origin, text);
            return Ok(self.shares(&key));
        }
        let mut section = self.section(&key)?;
        if section.kind == "exact" && self.has_empty_entry() {
            section.key = format!("={}", template.field().unwrap_or_default());
        }
        let name = draft.add_map(&self.name, section, &self.origin);
        let mut seen = HashSet::from([self.default.as_str()]);
        let values: Vec<&str> =
            self.entries.iter().map(|(_, value)| value.as_str()).filter(|value| seen.insert(value)).collect();
        let test = |value: &str| {
            let value_test = ValueTest::Equals(value.to_owned());
            let test = MapTest { name: name.clone(), key: key.clone(), value: value_test };
            (Condition::test(Test::Map(test)), value.to_owned())
        };
        let mut alternatives: Vec<(Condition, String)> = values.into_iter().map(test).collect();
        alternatives.push((Condition::Always, self.default.clone()));
        // weir decodes parameters, and nginx does not.
        let is_exact = !key.contains("query.");
        if !is_exact {
            let text = "weir compares the decoded value of a parameter, nginx the one that arrives";
            draft.leave(Kind::Differs, &self.origin, text);
        }
        Ok(Resolved { map: Some(name), alternatives: alternatives.into(), is_exact })
    }

    /// Returns the variable whose text is the value of another one, joined with that one.
    fn composed(&self, inner: &Self) -> Option<Self> {
        let mut exact: HashMap<&str, &str> = HashMap::new();
        let mut has_others = false;
        for (pattern, value) in &self.entries {
            match pattern {
                Pattern::Exact(text) => drop(exact.entry(text).or_insert(value)),
                _ => has_others = true,
            }
        }
        let value = |text: &str| match exact.get(text.to_lowercase().as_str()) {
            _ if text.contains('$') => None,
            Some(value) => Some((*value).to_owned()),
            None => (!has_others).then(|| self.default.clone()),
        };
        let entries = inner.entries.iter().map(|(pattern, text)| Some((pattern.clone(), value(text)?)));
        let entries: Option<Vec<_>> = entries.collect();
        Some(Self {
            name: self.name.clone(),
            source: inner.source.clone(),
            entries: entries?,
            default: value(&inner.default)?,
            origin: Rc::clone(&self.origin),
            problem: inner.problem.clone(),
            resolved: RefCell::default(),
        })
    }

    fn shares(&self, key: &str) -> Resolved {
        let mut alternatives = Vec::new();
        for (pattern, value) in &self.entries {
            if let Pattern::Share(sum) = pattern {
                alternatives.push((Condition::test(Test::Percent(*sum, key.to_owned())), value.clone()));
            }
        }
        alternatives.push((Condition::Always, self.default.clone()));
        Resolved { map: None, alternatives: alternatives.into(), is_exact: true }
    }

    /// Returns whether the empty text has a value of its own.
    fn has_empty_entry(&self) -> bool {
        let is_empty = |pattern: &Pattern| matches!(pattern, Pattern::Exact(text) if text.is_empty());
        self.entries.iter().any(|(pattern, value)| is_empty(pattern) && *value != self.default)
    }

    /// Returns the map in the kind that has all entries.
    fn section(&self, key: &str) -> Result<MapSection, MapFault> {
        let is_network = self.entries.iter().any(|(pattern, _)| matches!(pattern, Pattern::Network(_)));
        let is_plain = self.entries.iter().all(|(pattern, _)| matches!(pattern, Pattern::Exact(_)));
        let has_empty = self.has_empty_entry();
        let mut kind = match (is_network, is_plain) {
            (true, _) => "network",
            (_, true) if !has_empty || self.entries.len() > EXPRESSIONS_MAX => "exact",
            _ => "regex",
        };
        let mut entries: Vec<(String, String)> = Vec::new();
        if let Some(domains) = self.domains().filter(|_| kind == "regex") {
            (kind, entries) = ("domain", domains);
        } else {
            for (pattern, value) in self.ordered() {
                let text = match kind {
                    "regex" => pattern.expression(key)?,
                    _ => pattern.literal(key)?,
                };
                // The marker of keys that may be empty.
                let text = if kind == "exact" && has_empty { format!("={text}") } else { text };
                if text.is_empty() {
                    continue;
                }
                entries.push((text, value.clone()));
            }
        }
        // Of the same expression the first one counts, of the same network the last one.
        let mut seen = HashSet::new();
        if kind == "network" {
            entries.reverse();
        }
        entries.retain(|(text, _)| seen.insert(text.clone()));
        if kind == "network" {
            entries.reverse();
        }
        check_entries(kind, &entries, &self.default)?;
        Ok(MapSection {
            key: key.to_owned(),
            kind,
            ignores_case: kind == "exact",
            entries: MapEntries::Inline(entries),
            default: Some(self.default.clone()),
        })
    }

    /// Returns the entries in the order in which nginx looks for them.
    fn ordered(&self) -> Vec<&(Pattern, String)> {
        let rank = |pattern: &Pattern| match pattern {
            Pattern::Leading(text) => (1, usize::MAX - text.len()),
            Pattern::Trailing(text) => (2, usize::MAX - text.len()),
            Pattern::Regex { .. } => (3, 0),
            _ => (0, 0),
        };
        let mut ordered: Vec<_> = self.entries.iter().collect();
        sort_by_key(&mut ordered, |(pattern, _)| rank(pattern));
        ordered
    }

    /// Returns the entries as domains; `None`: they are others, too.
    fn domains(&self) -> Option<Vec<(String, String)>> {
        let mut domains = Vec::new();
        let all: HashSet<&(Pattern, String)> = self.entries.iter().collect();
        for (pattern, value) in &self.entries {
            let other = |wanted: Pattern| all.contains(&(wanted, value.clone()));
            match pattern {
                Pattern::Exact(base) if other(Pattern::Leading(base.clone())) => {
                    domains.push((base.clone(), value.clone()));
                }
                Pattern::Leading(base) if other(Pattern::Exact(base.clone())) => {}
                Pattern::Leading(base) => domains.push((format!("*.{base}"), value.clone())),
                _ => return None,
            }
        }
        let is_name = |name: &str| crate::draft::is_host(name);
        domains.iter().all(|(name, _)| is_name(name)).then_some(domains)
    }
}

/// Returns the reason why weir cannot have these entries.
fn check_entries(kind: &str, entries: &[(String, String)], default: &str) -> Result<(), MapFault> {
    if kind == "regex" && entries.len() > EXPRESSIONS_MAX {
        return Err(MapFault::TooMany);
    }
    let is_valid =
        |(key, value): &(String, String)| is_map_text(key) && is_map_text(&value.replace("${", ""));
    match entries.iter().all(is_valid) && is_map_text(&default.replace("${", "")) {
        true => Ok(()),
        false => Err(MapFault::Letters),
    }
}

/// Returns whether an expression certainly does not match an empty text: it begins with a letter or a class that must
/// be there.
fn needs_letter(text: &str) -> bool {
    let text = text.strip_prefix('^').unwrap_or(text);
    let behind = match text.strip_prefix('[') {
        Some(class) => class.split_once(']').map(|(_, behind)| behind),
        None => text.strip_prefix(|letter: char| letter.is_ascii_alphanumeric() || letter == '/'),
    };
    !text.contains('|') && behind.is_some_and(|behind| !behind.starts_with(['*', '?', '{']))
}

fn has_path(key: &str) -> bool {
    key_reads(key).any(|name| name == "path")
}

impl Pattern {
    /// Returns the key of a map that compares whole texts, or networks.
    fn literal(&self, key: &str) -> Result<String, MapFault> {
        match self {
            Self::Exact(text) if has_path(key) && !is_unreserved_path(text) && !text.is_empty() => {
                Err(MapFault::Spellings(text.clone()))
            }
            Self::Exact(text) | Self::Network(text) => Ok(text.clone()),
            _ => Err(MapFault::Kinds),
        }
    }

    fn expression(&self, key: &str) -> Result<String, MapFault> {
        let is_host = key == "host";
        Ok(match self {
            Self::Exact(text) if text.is_empty() => "^$".to_owned(),
            Self::Exact(_) => format!("(?i)^{}$", escape_regex(&self.literal(key)?)),
            Self::Leading(base) => format!("(?i)^.+\\.{}$", escape_regex(base)),
            Self::Trailing(start) => format!("(?i)^{}\\..+$", escape_regex(start)),
            Self::Regex { text, ignores_case } => {
                let is_decoded = has_path(key) && !key.contains("{query}");
                let has_upper = is_host && text.bytes().any(|byte| byte.is_ascii_uppercase());
                if !is_portable_regex(text) || (is_decoded && !is_aligned(text)) || has_upper {
                    return Err(MapFault::Expression(text.clone()));
                }
                if *ignores_case { format!("(?i){text}") } else { text.clone() }
            }
            Self::Network(_) | Self::Share(_) => return Err(MapFault::Kinds),
        })
    }
}
