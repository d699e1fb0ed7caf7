//! `use_backend`: pools by conditions, and by values of the request in the name of a backend.

use std::rc::Rc;

use super::acl::{Expression, Manner, NoEquivalent, no_equivalent, split_fetch};
use super::keys::{Key, Use, host_condition};
use super::maps::{self, Lookup};
use crate::document::Origin;
use crate::draft::Draft;
use crate::left::Kind;
use crate::rules::Condition;

/// Backend of a line.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Backend(String),
    /// Backends by conditions, of which the first that holds counts. Requests of `doubt` may have another one. Those
    /// that have none get the default backend.
    Cases {
        cases: Vec<(Condition, String)>,
        doubt: Condition,
    },
    /// The backend whose name is the prefix, a text of the request, and the suffix.
    Name {
        prefix: String,
        key: Key,
        suffix: String,
    },
    /// The same, with a part of a host: a fetch with its converters.
    Part {
        prefix: String,
        host: String,
        suffix: String,
    },
    /// A text that weir does not have.
    Unknown,
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Switch {
    pub(super) condition: Condition,
    pub(super) target: Target,
    pub(super) origin: Rc<Origin>,
}

impl Target {
    /// Parses the name of a backend, which may have one value of the request.
    pub(super) fn parse(
        text: &str,
        origin: &Rc<Origin>,
        draft: &mut Draft<'_>,
    ) -> Result<Self, NoEquivalent> {
        let Some((prefix, rest)) = text.split_once("%[") else { return Ok(Self::Backend(text.to_owned())) };
        let Some((expression, suffix)) = rest.rsplit_once(']') else {
            return no_equivalent("a bracket is not closed");
        };
        if prefix.contains('%') || suffix.contains('%') || expression.contains("%[") {
            return no_equivalent("several values in the name of a backend");
        }
        let (fetch, converters) = split_fetch(expression);
        if !maps::has_map(&converters) {
            let (prefix, suffix) = (prefix.to_owned(), suffix.to_owned());
            return match Key::parse(fetch, &converters, Use::Text) {
                Ok(key) => Ok(Self::Name { prefix, key, suffix }),
                Err(_) if host_test(expression, "a").is_ok() => {
                    Ok(Self::Part { prefix, host: expression.to_owned(), suffix })
                }
                Err(reason) => Err(reason),
            };
        }
        let lookup = Lookup::parse(expression, Use::Text, origin, draft)?;
        let cases = lookup.cases();
        let cases =
            cases.into_iter().map(|(condition, value)| (condition, format!("{prefix}{value}{suffix}")));
        let cases = cases.collect();
        draft.leave(
            Kind::Differs,
            origin,
            "the routes are those of the values that the map has now: a new value gets the default backend",
        );
        Ok(Self::Cases { cases, doubt: lookup.doubt })
    }

    /// Returns the backends by conditions, with the requests in doubt; `names` are those of all backends. `None`: weir
    /// does not know the backend.
    pub(super) fn cases<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        origin: &Rc<Origin>,
        draft: &mut Draft<'_>,
    ) -> Option<(Vec<(Condition, String)>, Condition)> {
        match self {
            Self::Backend(name) => Some((vec![(Condition::Always, name.clone())], Condition::Never)),
            Self::Cases { cases, doubt } => Some((cases.clone(), doubt.clone())),
            Self::Unknown => None,
            Self::Part { prefix, host, suffix } => {
                let case = |name: &str| {
                    let text = name.strip_prefix(prefix.as_str())?.strip_suffix(suffix.as_str())?;
                    Some((host_test(host, text).ok()?, name.to_owned()))
                };
                Some((names.filter_map(case).collect(), Condition::Never))
            }
            Self::Name { prefix, key, suffix } => {
                let entry = |name: &str| {
                    let text = name.strip_prefix(prefix.as_str())?.strip_suffix(suffix.as_str())?;
                    let is_found = !key.is_lower || !text.bytes().any(|byte| byte.is_ascii_uppercase());
                    (is_found && !text.is_empty()).then(|| (text.to_owned(), name.to_owned()))
                };
                let entries: Vec<(String, String)> = names.filter_map(entry).collect();
                if entries.is_empty() {
                    return Some((Vec::new(), Condition::Never));
                }
                let doubt = key.doubt.clone();
                Some((Lookup::from_names("backends", key.clone(), entries, origin, draft).cases(), doubt))
            }
        }
    }
}

/// Returns the condition that a host behind converters is a text.
fn host_test(expression: &str, text: &str) -> Result<Condition, NoEquivalent> {
    let (fetch, converters) = split_fetch(expression);
    let expression = Expression { manner: Manner::Equals, ignores_case: false, patterns: vec![text] };
    host_condition(fetch, &converters, &expression)
}
