//! Converters `map…` of HAProxy: the values become those of a map of weir, or conditions in their order.

use std::collections::HashMap;
use std::rc::Rc;

use super::acl::{
    Expression, Manner, NoEquivalent, manner_of, no_equivalent, pattern_regex, plain_condition, split_fetch,
    with_case,
};
use super::files;
use super::keys::{Key, Use};
use super::lists::{INLINE_MAX, key_fault, name_of};
use crate::document::Origin;
use crate::draft::{Draft, MapEntries, MapSection, network};
use crate::left::Kind;
use crate::rules::{Condition, MapTest, Test, ValueTest};
use crate::text::Variable;

/// Values of a map for requests.
#[derive(Clone, Debug)]
enum Values {
    /// Those of a map of weir, by its name and key.
    Map { name: String, key: String, values: Vec<String> },
    /// Those of conditions, the first that holds.
    Listed(Vec<(Condition, String)>),
}

/// Use of a map.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    values: Values,
    default: Option<String>,
    /// Requests for which weir looks up another text.
    pub(super) doubt: Condition,
}

/// Returns whether the last converter of an expression is one of a map.
pub(super) fn has_map(converters: &[&str]) -> bool {
    converters.last().is_some_and(|last| last.starts_with("map(") || last.starts_with("map_"))
}

impl Lookup {
    /// Parses an expression whose last converter is that of a map.
    pub(super) fn parse(
        expression: &str,
        place: Use,
        origin: &Rc<Origin>,
        draft: &mut Draft<'_>,
    ) -> Result<Self, NoEquivalent> {
        let (fetch, mut converters) = split_fetch(expression);
        let last = converters.pop().unwrap_or_default();
        let Some((name, arguments)) = last.strip_suffix(')').and_then(|last| last.split_once('(')) else {
            return no_equivalent(format!("the converter '{last}'"));
        };
        let manner = match name.strip_prefix("map").map(|kind| kind.trim_start_matches('_')) {
            Some("") => Some(Manner::Equals),
            Some(kind) => manner_of(kind).filter(|manner| *manner != Manner::Found),
            None => None,
        };
        let Some(manner) = manner else { return no_equivalent(format!("the converter '{name}'")) };
        let unquoted = |text: &str| text.trim_matches(['"', '\'']).to_owned();
        let (file, default) = arguments.split_once(',').unzip();
        let (file, default) = (unquoted(file.unwrap_or(arguments)), default.map(unquoted));
        if let Some(text) = fetch.strip_prefix("str(").and_then(|rest| rest.strip_suffix(')')) {
            return Self::from_constant(
                &unquoted(text),
                &converters,
                (&file, manner),
                default,
                origin,
                draft,
            );
        }
        let text = draft.read_file(&file)?;
        draft.spend(text.len() / 4, origin);
        let content = files::entries(&text);
        let key = match Key::parse(fetch, &converters, place) {
            Ok(key) => key,
            // A part of a host is compared by conditions.
            Err(reason) if content.items.len() > INLINE_MAX || !is_host(fetch) => return Err(reason),
            Err(_) => {
                let values = listed((fetch, &converters), manner, content.items)?;
                leave_copy(&file, origin, draft);
                return Ok(Self { values, default, doubt: Condition::Never });
            }
        };
        let kind = kind_of(manner, name, &key);
        let usable = kind.and_then(|kind| match fault(&content, &key, kind) {
            Some(fault) => no_equivalent(fault),
            None => Ok(kind),
        });
        let values = match usable {
            Ok(kind) => named(&file, kind, &key, content.items, origin, draft),
            Err(reason) if content.items.len() > INLINE_MAX || name == "map_ip" => return Err(reason),
            Err(reason) => {
                let values = listed((fetch, &converters), manner, content.items).map_err(|_| reason)?;
                leave_copy(&file, origin, draft);
                values
            }
        };
        Ok(Self { values, default, doubt: key.doubt })
    }

    /// Looks up a fixed text.
    fn from_constant(
        text: &str,
        converters: &[&str],
        (file, manner): (&str, Manner),
        default: Option<String>,
        origin: &Rc<Origin>,
        draft: &mut Draft<'_>,
    ) -> Result<Self, NoEquivalent> {
        if !converters.is_empty() || manner != Manner::Equals {
            return no_equivalent("a fixed text is looked up as it is");
        }
        let entries = files::entries(&draft.read_file(file)?).items;
        let found =
            entries.into_iter().find(|(key, _)| key == text).map(|(_, value)| (Condition::Always, value));
        let reason = format!("the value is that of {file} now: a change of it needs a new import");
        draft.leave(Kind::Differs, origin, reason);
        Ok(Self { values: Values::Listed(found.into_iter().collect()), default, doubt: Condition::Never })
    }

    /// Creates the lookup of a text among names, which are their own values.
    pub(super) fn from_names(
        wanted: &str,
        key: Key,
        names: Vec<(String, String)>,
        origin: &Rc<Origin>,
        draft: &mut Draft<'_>,
    ) -> Self {
        let values = names.iter().map(|(_, value)| value.clone()).collect();
        let map = MapSection {
            key: key.text.clone(),
            entries: MapEntries::Inline(names),
            kind: "exact",
            ignores_case: key.is_lower,
            default: None,
        };
        let name = draft.add_map(wanted, map, origin);
        Self { values: Values::Map { name, key: key.text, values }, default: None, doubt: key.doubt }
    }

    /// Returns the condition that the value passes a test; a request without a value passes none.
    pub(super) fn condition(&self, value: &ValueTest) -> Result<Condition, NoEquivalent> {
        let known = |text: &str| {
            let reason = "the default of a map is compared by an expression";
            value.is_met_by(text).ok_or_else(|| NoEquivalent(reason.to_owned()))
        };
        let by_default = self.default.as_deref().map_or(Ok(false), known)?;
        let condition = match &self.values {
            Values::Map { name, key, .. } if by_default => {
                test(name, key, value.clone()).or(test(name, key, ValueTest::Absent))
            }
            Values::Map { name, key, .. } => test(name, key, value.clone()),
            Values::Listed(entries) => {
                let last = if by_default { Condition::Always } else { Condition::Never };
                entries.iter().rev().try_fold(last, |rest, (condition, text)| {
                    Ok::<_, NoEquivalent>(match known(text)? {
                        true => condition.clone().or(rest),
                        false => condition.clone().negate().and(&rest),
                    })
                })?
            }
        };
        Ok(match self.doubt {
            Condition::Never => condition,
            _ => condition.except(&self.doubt),
        })
    }

    /// Returns the condition of an ACL with these patterns.
    pub(super) fn acl(&self, expression: &Expression<'_>) -> Result<Condition, NoEquivalent> {
        if expression.manner == Manner::Found && expression.patterns.is_empty() {
            return self.condition(&ValueTest::Present);
        }
        if expression.patterns.is_empty() {
            return no_equivalent("the value of a map without a pattern");
        }
        let tests = expression.patterns.iter().map(|pattern| {
            let value = match (expression.manner, expression.ignores_case) {
                (Manner::Equals, false) => ValueTest::Equals((*pattern).to_owned()),
                (manner, ignores_case) => {
                    ValueTest::Regex(with_case(ignores_case, pattern_regex(manner, pattern)?))
                }
            };
            self.condition(&value)
        });
        Ok(Condition::any(tests.collect::<Result<Vec<_>, _>>()?))
    }

    /// Returns the values with their conditions, in their order: the first that holds counts.
    pub(super) fn cases(&self) -> Vec<(Condition, String)> {
        let mut cases = match &self.values {
            Values::Map { name, key, values } => {
                let case =
                    |value: &String| (test(name, key, ValueTest::Equals(value.clone())), value.clone());
                let mut cases: Vec<_> = values.iter().filter(|value| !value.is_empty()).map(case).collect();
                let absent =
                    self.default.iter().map(|text| (test(name, key, ValueTest::Absent), text.clone()));
                cases.extend(absent);
                cases
            }
            Values::Listed(entries) => {
                let default = self.default.iter().map(|text| (Condition::Always, text.clone()));
                entries.iter().cloned().chain(default).collect()
            }
        };
        if self.doubt != Condition::Never {
            for (condition, _) in &mut cases {
                *condition = std::mem::replace(condition, Condition::Never).except(&self.doubt);
            }
        }
        cases
    }

    /// Returns the value as a part of a text.
    pub(super) fn variable(&self) -> Result<Variable, NoEquivalent> {
        match (&self.values, &self.default) {
            (Values::Listed(_), _) => no_equivalent("values of a map that are conditions in weir"),
            (Values::Map { name, .. }, Some(text)) => Ok(Variable::MapOr(name.clone(), text.clone())),
            (Values::Map { name, .. }, None) => Ok(Variable::Map(name.clone())),
        }
    }

    /// Returns whether a request may have no value, and then the text is empty.
    pub(super) fn may_be_missing(&self) -> bool {
        self.default.is_none()
    }
}

/// Returns the `match` of a map of weir that a converter becomes.
fn kind_of(manner: Manner, name: &str, key: &Key) -> Result<&'static str, NoEquivalent> {
    match (manner, name) {
        (Manner::Equals, "map_ip") if key.text == "source" => Ok("network"),
        (Manner::Equals, "map_ip") => no_equivalent("'map_ip' of another text than 'src'"),
        (Manner::Equals, _) => Ok("exact"),
        (Manner::Begins, _) => Ok("prefix"),
        (Manner::Ends, _) => Ok("suffix"),
        _ => no_equivalent(format!("'{name}' with more than {INLINE_MAX} entries")),
    }
}

/// Returns whether a fetch is the host of a request.
pub(super) fn is_host(fetch: &str) -> bool {
    ["hdr(host)", "req.hdr(host)", "req.fhdr(host)"].iter().any(|own| fetch.eq_ignore_ascii_case(own))
}

fn leave_copy(file: &str, origin: &Rc<Origin>, draft: &mut Draft<'_>) {
    let text = format!("the entries of {file} are in the routes: a change of it needs a new import");
    draft.leave(Kind::Differs, origin, text);
}

fn test(name: &str, key: &str, value: ValueTest) -> Condition {
    Condition::test(Test::Map(MapTest { name: name.to_owned(), key: key.to_owned(), value }))
}

/// Returns the reason why weir finds other values in a file.
fn fault(content: &files::Content<(String, String)>, key: &Key, kind: &str) -> Option<String> {
    if let Some(fault) = &content.fault {
        return Some(fault.clone());
    }
    if kind == "suffix" && content.items.len() > ENDS_MAX {
        return Some(format!("more than {ENDS_MAX} entries that are compared with the end of a text"));
    }
    let mut known: HashMap<String, &str> = HashMap::new();
    for (text, value) in &content.items {
        if let Some(fault) = key_fault(text, key, false) {
            return Some(fault);
        }
        let is_network = network(text).is_some_and(|network| !text.contains('/') || network == *text);
        if kind == "network" && !is_network {
            return Some(format!("weir does not read '{text}' as a network without bits behind its prefix"));
        }
        let compared = if key.text == "host" { text.to_ascii_lowercase() } else { text.clone() };
        if known.get(&compared).is_some_and(|other| other != value) {
            return Some(format!("the key '{text}' is there twice, with two values"));
        }
        let mut ends = compared.char_indices().skip(1).map(|(at, _)| &compared[at..]);
        if kind == "suffix" && ends.any(|end| known.get(end).is_some_and(|other| other != value)) {
            return Some(format!(
                "a part of '{text}' is in front of it: HAProxy takes the first, weir the longest"
            ));
        }
        known.insert(compared, value);
    }
    None
}

/// Maximum number of entries whose order is compared.
const ENDS_MAX: usize = 2_000;

fn named(
    file: &str,
    kind: &'static str,
    key: &Key,
    entries: Vec<(String, String)>,
    origin: &Rc<Origin>,
    draft: &mut Draft<'_>,
) -> Values {
    let mut values: Vec<String> = entries.into_iter().map(|(_, value)| value).collect();
    let mut seen = std::collections::HashSet::new();
    values.retain(|value| seen.insert(value.clone()));
    let map = MapSection {
        key: key.text.clone(),
        entries: MapEntries::File(file.to_owned()),
        kind,
        ignores_case: key.is_lower && kind != "network",
        default: None,
    };
    Values::Map { name: draft.add_map(name_of(file), map, origin), key: key.text.clone(), values }
}

fn listed(
    (fetch, converters): (&str, &[&str]),
    manner: Manner,
    entries: Vec<(String, String)>,
) -> Result<Values, NoEquivalent> {
    let conditions = entries.into_iter().map(|(key, value)| {
        let expression = Expression { manner, ignores_case: false, patterns: vec![&key] };
        Ok((plain_condition(fetch, converters, &expression)?, value))
    });
    Ok(Values::Listed(conditions.collect::<Result<_, NoEquivalent>>()?))
}
