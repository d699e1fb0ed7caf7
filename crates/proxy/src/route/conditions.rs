//! Evaluation of a route's conditions for a request. The router determines the order of routes.

use std::borrow::Cow;
use std::net::IpAddr;

use crate::plan::{Conditions, Network, PathCondition, TextCondition, ValueCondition};
use crate::uri::{
    decode_triplet, is_below, matches_host_pattern, normalise, split_target, without_parameters,
};

use super::RouteRequest;

/// A path in the forms used for comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedPath<'a> {
    /// The normal path.
    pub(crate) path: &'a str,
    /// The path without parameters, see [`crate::uri::without_parameters`].
    pub(crate) without_parameters: &'a str,
}

impl<'a> ComparedPath<'a> {
    /// Returns the forms of the path of a target.
    pub(crate) fn new(target: &'a str, buffer: &'a mut String, stripped_buffer: &'a mut String) -> Self {
        let path = normalise(split_target(target).0, buffer);
        Self { path, without_parameters: without_parameters(path, stripped_buffer) }
    }
}

/// Returns whether all conditions except listener and host hold. `query` is the text after the `?`.
pub(crate) fn all_match(
    conditions: &Conditions,
    request: &RouteRequest<'_>,
    path: ComparedPath<'_>,
    query: &str,
) -> bool {
    method_matches(&conditions.methods, request.method)
        && path_matches(&conditions.paths, path)
        && source_matches(&conditions.sources, request.source)
        && conditions.headers.iter().all(|condition| field_matches(condition, request))
        && conditions.query.iter().all(|condition| parameter_matches(condition, query))
}

/// Returns whether a host is one of `hosts`, in the form of [`crate::uri::normalise_host`].
/// Without `hosts`, every host is.
pub(crate) fn host_matches(hosts: &[Box<str>], host: &str) -> bool {
    hosts.is_empty() || hosts.iter().any(|expected| matches_host_pattern(expected, host))
}

pub(crate) fn method_matches(methods: &[Box<str>], method: &str) -> bool {
    methods.is_empty() || methods.iter().any(|expected| **expected == *method)
}

/// Returns whether a path matches. A path with parameters matches with or without them: a server
/// may ignore them.
pub(crate) fn path_matches(
    paths: &[PathCondition],
    ComparedPath { path, without_parameters }: ComparedPath<'_>,
) -> bool {
    let matches = |condition: &PathCondition, path: &str| match condition {
        PathCondition::Exact(expected) => **expected == *path,
        PathCondition::Prefix(prefix) => is_below(path, prefix),
        PathCondition::Glob(_, regex) | PathCondition::Regex(regex) => regex.is_match(path),
    };
    paths.is_empty()
        || paths.iter().any(|condition| matches(condition, path))
        || (without_parameters.len() != path.len()
            && paths.iter().any(|condition| matches(condition, without_parameters)))
}

/// Returns whether a client is in one of the networks. A client on a unix socket is in none.
pub(crate) fn source_matches(sources: &[Network], source: Option<IpAddr>) -> bool {
    sources.is_empty() || source.is_some_and(|source| sources.iter().any(|network| network.contains(source)))
}

/// Returns whether a field matches; with several lines, any of them. Invalid UTF-8 is replaced by
/// U+FFFD before the match, so that it cannot bypass a regular expression.
pub(crate) fn field_matches(condition: &TextCondition, request: &RouteRequest<'_>) -> bool {
    any_value_matches(&condition.value, request.view.values(&condition.name))
}

/// Returns whether one of the values of a name matches.
pub(crate) fn any_value_matches<'a>(
    condition: &ValueCondition,
    mut values: impl Iterator<Item = &'a [u8]>,
) -> bool {
    match condition {
        ValueCondition::Present => values.next().is_some(),
        ValueCondition::Absent => values.next().is_none(),
        ValueCondition::Equals(expected) => values.any(|value| value == expected.as_bytes()),
        ValueCondition::Matches(regex) => values.any(|value| regex.is_match(&String::from_utf8_lossy(value))),
    }
}

/// Appends the first value of a query parameter, decoded.
pub(super) fn append_parameter(query: &str, name: &str, out: &mut Vec<u8>) {
    let mut pairs = parameters(query);
    if let Some((_, value)) = pairs.find(|(own_name, _)| decode_form(own_name).eq(name.bytes())) {
        out.extend(decode_form(value));
    }
}

/// Returns whether a query parameter matches; with several values, any of them. Names and values
/// are compared decoded (`%41` and `+`), so that another spelling cannot bypass a route.
pub(crate) fn parameter_matches(condition: &TextCondition, query: &str) -> bool {
    let mut values = parameters(query)
        .filter(|(name, _)| decode_form(name).eq(condition.name.bytes()))
        .map(|(_, value)| value);
    match &condition.value {
        ValueCondition::Present => values.next().is_some(),
        ValueCondition::Absent => values.next().is_none(),
        ValueCondition::Equals(expected) => values.any(|value| decode_form(value).eq(expected.bytes())),
        ValueCondition::Matches(regex) => values.any(|value| regex.is_match(&decode_form_text(value))),
    }
}

/// Returns the parameters of a query, not decoded; one without `=` has an empty value.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

pub(super) fn decode_form(text: &str) -> impl Iterator<Item = u8> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        let byte = match (first, decode_triplet(rest)) {
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

fn decode_form_text(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return Cow::Borrowed(text);
    }
    let bytes: Vec<u8> = decode_form(text).collect();
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_view::fixtures;

    fn condition(name: &str, value: ValueCondition) -> TextCondition {
        TextCondition { name: name.into(), value }
    }

    #[test]
    fn fields_are_found_without_case() {
        let headers =
            [wire::Header { name: "X-A", value: b"one" }, wire::Header { name: "x-a", value: b"two\xff" }];
        let regex = |text: &str| ValueCondition::Matches(regex::Regex::new(text).unwrap());
        let head = fixtures::head(&headers);
        let request = RouteRequest {
            listener: 0,
            method: "GET",
            target: "/",
            is_plain: true,
            host: None,
            view: &fixtures::view(&head),
            source: None,
        };
        let matches = |name: &str, value| field_matches(&condition(name, value), &request);
        assert!(matches("x-a", ValueCondition::Present) && matches("x-b", ValueCondition::Absent));
        assert!(!matches("x-b", ValueCondition::Present) && !matches("X-A", ValueCondition::Absent));
        assert!(matches("x-a", ValueCondition::Equals("one".into())));
        assert!(!matches("x-a", ValueCondition::Equals("two".into())));
        assert!(matches("x-a", regex("^two")) && !matches("x-a", regex("^three")));
    }

    #[test]
    fn parameters_are_compared_decoded() {
        let query = "a=1&b&%63=x%20y+z&=9&&d=%zz";
        let matches = |name: &str, value| parameter_matches(&condition(name, value), query);
        assert!(matches("a", ValueCondition::Equals("1".into())));
        assert!(matches("b", ValueCondition::Equals("".into())) && matches("b", ValueCondition::Present));
        assert!(matches("c", ValueCondition::Equals("x y z".into())));
        assert!(matches("d", ValueCondition::Equals("%zz".into())));
        assert!(matches("e", ValueCondition::Absent) && !matches("a", ValueCondition::Absent));
        let regex = regex::Regex::new("^x y z$").unwrap();
        assert!(matches("c", ValueCondition::Matches(regex)));
    }

    #[test]
    fn a_wildcard_is_for_names_below() {
        let hosts = ["*.example.org".into()];
        assert!(host_matches(&hosts, "a.example.org") && host_matches(&hosts, "a.b.example.org"));
        assert!(!host_matches(&hosts, "example.org") && !host_matches(&hosts, "aexample.org"));
        assert!(!host_matches(&hosts, ".example.org") && !host_matches(&hosts, ""));
    }
}
