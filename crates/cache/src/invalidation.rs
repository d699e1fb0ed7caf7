//! Invalidation by responses to unsafe methods (RFC 9111 §4.4). Pure.

use wire::Header;

use crate::request::CacheMethod;

/// Returns whether a response invalidates what is stored for the target of its request.
pub fn invalidates(method: CacheMethod, status: u16) -> bool {
    method == CacheMethod::Unsafe && (200..400).contains(&status)
}

/// Returns the targets (paths with their queries) in `Location` and `Content-Location` of such a response that are
/// of the same origin as its request: relative references with an absolute path, and URIs with the same scheme and
/// authority.
pub fn invalidated_targets<'h>(
    headers: &[Header<'h>],
    scheme: &str,
    authority: &str,
) -> impl Iterator<Item = &'h str> {
    ["location", "content-location"]
        .into_iter()
        .filter_map(|name| wire::field_value(headers, name))
        .filter_map(|value| same_origin_target(std::str::from_utf8(value).ok()?, scheme, authority))
        .collect::<Vec<_>>()
        .into_iter()
}

fn same_origin_target<'v>(value: &'v str, scheme: &str, authority: &str) -> Option<&'v str> {
    let value = value.split('#').next().unwrap_or_default();
    let rest = match value.split_once("://") {
        Some((own_scheme, rest)) if own_scheme.eq_ignore_ascii_case(scheme) => rest,
        Some((own_scheme, _)) if !own_scheme.contains(['/', '?']) => return None,
        _ => match value.strip_prefix("//") {
            Some(rest) => rest,
            None => return value.starts_with('/').then_some(value),
        },
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (own_authority, target) = rest.split_at(end);
    if !without_default_port(own_authority, scheme)
        .eq_ignore_ascii_case(without_default_port(authority, scheme))
    {
        return None;
    }
    match target {
        "" => Some("/"),
        _ => target.starts_with('/').then_some(target),
    }
}

fn without_default_port<'a>(authority: &'a str, scheme: &str) -> &'a str {
    let port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    authority.strip_suffix(port).unwrap_or(authority)
}
