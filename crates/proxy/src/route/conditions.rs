//! Whether one condition of a route holds for a request. The order in which routes are tried is the
//! router's.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::plan::{Conditions, Network, PathCondition, TextCondition, ValueCondition};

use super::Asked;
use super::path::{is_below, triplet};

/// A path in the forms in which it is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared<'a> {
    /// The normal path.
    pub(super) path: &'a str,
    /// The same without parameters, see [`super::path::without_parameters`].
    pub(super) bare: &'a str,
}

/// Whether all conditions but those on listener and host hold. `query` is what follows the `?`.
pub(super) fn all_hold(
    conditions: &Conditions,
    asked: &Asked<'_>,
    path: Compared<'_>,
    query: &str,
) -> bool {
    method_holds(&conditions.methods, asked.method)
        && path_holds(&conditions.paths, path)
        && source_holds(&conditions.sources, asked.source)
        && conditions.headers.iter().all(|condition| field_holds(condition, asked))
        && conditions.query.iter().all(|condition| parameter_holds(condition, query))
}

/// Whether a host, bare as [`super::path::bare_host`] leaves it, is one of `hosts`; any is when
/// there are none.
pub(super) fn host_holds(hosts: &[Box<str>], host: &str) -> bool {
    hosts.is_empty() || hosts.iter().any(|wanted| is_host(wanted, host))
}

fn is_host(wanted: &str, host: &str) -> bool {
    match wanted.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => host == wanted,
    }
}

pub(super) fn method_holds(methods: &[Box<str>], method: &str) -> bool {
    methods.is_empty() || methods.iter().any(|wanted| **wanted == *method)
}

/// A path with parameters fits when it does with them or without: a server may ignore them.
pub(super) fn path_holds(paths: &[PathCondition], Compared { path, bare }: Compared<'_>) -> bool {
    let holds = |condition: &PathCondition, path: &str| match condition {
        PathCondition::Exact(wanted) => **wanted == *path,
        PathCondition::Prefix(prefix) => is_below(path, prefix),
        PathCondition::Regex(regex) => regex.is_match(path),
    };
    paths.is_empty()
        || paths.iter().any(|condition| holds(condition, path))
        || (bare.len() != path.len() && paths.iter().any(|condition| holds(condition, bare)))
}

/// A client on a unix socket is in no network.
pub(super) fn source_holds(sources: &[Network], source: Option<IpAddr>) -> bool {
    sources.is_empty()
        || source.is_some_and(|source| sources.iter().any(|network| network.contains(source)))
}

/// Whether a field fits: any of its lines, when there are several. What is not UTF-8 is matched with
/// U+FFFD in its place, so that it does not slip past a regular expression.
pub(super) fn field_holds(condition: &TextCondition, asked: &Asked<'_>) -> bool {
    let mut lines = asked
        .fields_for(&condition.name)
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case(&condition.name))
        .map(|header| header.value);
    match &condition.value {
        ValueCondition::Present => lines.next().is_some(),
        ValueCondition::Absent => lines.next().is_none(),
        ValueCondition::Is(wanted) => lines.any(|value| value == wanted.as_bytes()),
        ValueCondition::Matches(regex) => {
            lines.any(|value| regex.is_match(&String::from_utf8_lossy(value)))
        }
    }
}

/// Whether a parameter fits: any of its values, when there are several. Names and values are
/// compared decoded (`%41` and `+`), so that another spelling does not slip past a route.
pub(super) fn parameter_holds(condition: &TextCondition, query: &str) -> bool {
    let mut values = parameters(query)
        .filter(|(name, _)| decoded(name).eq(condition.name.bytes()))
        .map(|(_, value)| value);
    match &condition.value {
        ValueCondition::Present => values.next().is_some(),
        ValueCondition::Absent => values.next().is_none(),
        ValueCondition::Is(wanted) => values.any(|value| decoded(value).eq(wanted.bytes())),
        ValueCondition::Matches(regex) => values.any(|value| regex.is_match(&decoded_text(value))),
    }
}

/// The parameters of a query, as they were sent; one without `=` has an empty value.
pub(super) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn decoded(text: &str) -> impl Iterator<Item = u8> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        let byte = match (first, triplet(rest)) {
            (b'+', _) => b' ',
            (_, Some(byte)) => {
                rest = &rest[3..];
                return Some(byte);
            }
            _ => first,
        };
        rest = after;
        Some(byte)
    })
}

fn decoded_text(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let bytes: Vec<u8> = decoded(text).collect();
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(name: &str, value: ValueCondition) -> TextCondition {
        TextCondition { name: name.into(), value }
    }

    #[test]
    fn fields_are_found_without_case() {
        let headers = [
            wire::Header { name: "X-A", value: b"one" },
            wire::Header { name: "x-a", value: b"two\xff" },
        ];
        let regex = |text: &str| ValueCondition::Matches(regex::Regex::new(text).unwrap());
        let asked = Asked {
            listener: 0,
            method: "GET",
            target: "/",
            is_plain: true,
            trusted: false,
            host: None,
            headers: &headers,
            source: None,
        };
        let holds = |name: &str, value| field_holds(&condition(name, value), &asked);
        assert!(holds("x-a", ValueCondition::Present) && holds("x-b", ValueCondition::Absent));
        assert!(!holds("x-b", ValueCondition::Present) && !holds("X-A", ValueCondition::Absent));
        assert!(holds("x-a", ValueCondition::Is("one".into())));
        assert!(!holds("x-a", ValueCondition::Is("two".into())));
        assert!(holds("x-a", regex("^two")) && !holds("x-a", regex("^three")));
    }

    #[test]
    fn parameters_are_compared_decoded() {
        let query = "a=1&b&%63=x%20y+z&=9&&d=%zz";
        let holds = |name: &str, value| parameter_holds(&condition(name, value), query);
        assert!(holds("a", ValueCondition::Is("1".into())));
        assert!(holds("b", ValueCondition::Is("".into())) && holds("b", ValueCondition::Present));
        assert!(holds("c", ValueCondition::Is("x y z".into())));
        assert!(holds("d", ValueCondition::Is("%zz".into())));
        assert!(holds("e", ValueCondition::Absent) && !holds("a", ValueCondition::Absent));
        let regex = regex::Regex::new("^x y z$").unwrap();
        assert!(holds("c", ValueCondition::Matches(regex)));
    }

    #[test]
    fn a_wildcard_is_for_names_below() {
        let hosts = ["*.example.org".into()];
        assert!(host_holds(&hosts, "a.example.org") && host_holds(&hosts, "a.b.example.org"));
        assert!(!host_holds(&hosts, "example.org") && !host_holds(&hosts, "aexample.org"));
        assert!(!host_holds(&hosts, ".example.org") && !host_holds(&hosts, ""));
    }
}
