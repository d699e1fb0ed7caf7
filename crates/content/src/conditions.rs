//! Preconditions of a request (RFC 9110 §13), for a representation with one validator, both or none. Pure.

use server_shell::date::parse_http_date;

use crate::request::FileRequest;

/// Validators of a representation.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'v> {
    /// Entity tag, with its quotes and a `W/` if it is weak.
    pub etag: Option<&'v [u8]>,
    /// Second of the last modification, since 1970.
    pub modified_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The response is the same as without them.
    Met,
    /// The client has the representation: 304.
    NotModified,
    /// The representation is another one than the client expects: 412.
    Failed,
}

/// Evaluates the preconditions of a GET or HEAD in the order of RFC 9110 §13.2.2.
pub fn evaluate(request: &FileRequest<'_>, validators: Validators<'_>) -> Precondition {
    let matches = |tag: &[u8], compare: fn(&[u8], &[u8]) -> bool| {
        validators.etag.is_some_and(|etag| compare(tag, etag))
    };
    match list_contains(request, "if-match", |tag| matches(tag, is_strong_match)) {
        Some(false) => return Precondition::Failed,
        Some(true) => {}
        None => {
            if let Some(since_s) = request.get("if-unmodified-since").and_then(parse_http_date)
                && validators.modified_s.is_some_and(|modified_s| modified_s > since_s)
            {
                return Precondition::Failed;
            }
        }
    }
    let is_unchanged = match list_contains(request, "if-none-match", |tag| matches(tag, is_weak_match)) {
        Some(matches) => matches,
        None => request
            .get("if-modified-since")
            .and_then(parse_http_date)
            .zip(validators.modified_s)
            .is_some_and(|(since_s, modified_s)| modified_s <= since_s),
    };
    if is_unchanged { Precondition::NotModified } else { Precondition::Met }
}

/// Returns whether a field `Range` applies: without `If-Range`, or if that validates strongly (RFC 9110
/// §13.1.5). `now_s` is the time in seconds since 1970: a date is no strong validator while a second
/// change could have the same one.
pub fn range_applies(request: &FileRequest<'_>, validators: Validators<'_>, now_s: u64) -> bool {
    let Some(value) = request.get("if-range") else { return true };
    if value.ends_with(b"\"") {
        return validators.etag.is_some_and(|etag| is_strong_match(value, etag));
    }
    let date_s = parse_http_date(value);
    date_s.is_some_and(|date_s| Some(date_s) == validators.modified_s && date_s.saturating_add(1) < now_s)
}

/// Returns whether a list of entity tags is `*` or has a match; `None`: there is no such field.
fn list_contains(
    request: &FileRequest<'_>,
    name: &str,
    mut matches: impl FnMut(&[u8]) -> bool,
) -> Option<bool> {
    let mut found = None;
    request.for_each(name, |value| {
        let has_match = value == b"*" || tags(value).any(&mut matches);
        found = Some(found.unwrap_or(false) | has_match);
    });
    found
}

/// Iterates over the entity tags of a list. A comma inside a tag belongs to it. The rest of a list that
/// is not valid is ignored.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        while let [b',' | b' ' | b'\t', after @ ..] = rest {
            rest = after;
        }
        let quote = if rest.starts_with(b"W/\"") { 2 } else { 0 };
        if rest.get(quote) != Some(&b'"') {
            return None;
        }
        let length = rest[quote + 1..].iter().position(|&byte| byte == b'"')?;
        let (tag, after) = rest.split_at(quote + length + 2);
        rest = after;
        Some(tag)
    })
}

/// Returns a list of entity tags with the strong form behind each weak one, unless it is there already; `None`: the
/// list has no weak tag, or is not valid. A server compares weakly (RFC 9110 §13.1.2), or byte by byte.
pub fn with_strong_forms(list: &[u8]) -> Option<Vec<u8>> {
    let all: Vec<&[u8]> = tags(list).collect();
    let mut joined = Vec::with_capacity(2 * list.len());
    let mut is_changed = false;
    for &tag in &all {
        let strong = opaque_tag(tag);
        for form in [tag, strong].into_iter().take(if all.contains(&strong) { 1 } else { 2 }) {
            if !joined.is_empty() {
                joined.extend_from_slice(b", ");
            }
            joined.extend_from_slice(form);
            is_changed |= form.len() < tag.len();
        }
    }
    // Everything of a valid list is in its tags, but for the separators.
    let is_separator = |byte: &&u8| matches!(byte, b',' | b' ' | b'\t');
    let own_bytes: usize = all.iter().map(|tag| tag.iter().filter(|byte| !is_separator(byte)).count()).sum();
    let is_valid = list.iter().filter(|byte| !is_separator(byte)).count() == own_bytes;
    (is_changed && is_valid).then_some(joined)
}

/// Returns whether a list of entity tags has a weak one.
pub fn has_weak_tag(list: &[u8]) -> bool {
    tags(list).any(|tag| tag.starts_with(b"W/"))
}

fn is_strong_match(tag: &[u8], etag: &[u8]) -> bool {
    tag == etag && !etag.starts_with(b"W/")
}

fn is_weak_match(tag: &[u8], etag: &[u8]) -> bool {
    opaque_tag(tag) == opaque_tag(etag)
}

/// Returns a tag without the prefix of weak ones.
fn opaque_tag(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestFields;
    use wire::Header;

    const ETAG: &[u8] = b"\"a,b\"";
    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const MODIFIED_S: u64 = 784_111_777;

    fn with_fields<R>(fields: &[(&str, &str)], check: impl FnOnce(&FileRequest<'_>) -> R) -> R {
        let headers: Vec<Header<'_>> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        check(&FileRequest { method: "GET", target: "/", fields: RequestFields::Http1(&headers) })
    }

    fn result(fields: &[(&str, &str)]) -> Precondition {
        let validators = Validators { etag: Some(ETAG), modified_s: Some(MODIFIED_S) };
        with_fields(fields, |request| evaluate(request, validators))
    }

    #[test]
    fn preconditions_have_their_order() {
        use Precondition::{Failed, Met, NotModified};
        for (fields, expected) in [
            (&[][..], Met),
            (&[("If-None-Match", "\"a,b\"")], NotModified),
            (&[("if-none-match", "W/\"a,b\"")], NotModified),
            (&[("If-None-Match", "\"x\", W/\"y\",\"a,b\"")], NotModified),
            (&[("If-None-Match", "*")], NotModified),
            (&[("If-None-Match", "\"x\"")], Met),
            (&[("If-None-Match", "\"a\", b\"")], Met),
            (&[("If-None-Match", "\"x\""), ("If-None-Match", "\"a,b\"")], NotModified),
            // The tag decides, whatever the date.
            (&[("If-None-Match", "\"x\""), ("If-Modified-Since", LATER)], Met),
            (&[("If-None-Match", "\"a,b\""), ("If-Modified-Since", EARLIER)], NotModified),
            (&[("If-Modified-Since", MODIFIED)], NotModified),
            (&[("If-Modified-Since", LATER)], NotModified),
            (&[("If-Modified-Since", EARLIER)], Met),
            (&[("If-Modified-Since", "yesterday")], Met),
            (&[("If-Match", "\"a,b\"")], Met),
            (&[("If-Match", "*")], Met),
            (&[("If-Match", "W/\"a,b\"")], Failed),
            (&[("If-Match", "\"x\"")], Failed),
            (&[("If-Match", "")], Failed),
            (&[("If-Unmodified-Since", EARLIER)], Failed),
            (&[("If-Unmodified-Since", MODIFIED)], Met),
            (&[("If-Match", "\"a,b\""), ("If-Unmodified-Since", EARLIER)], Met),
            (&[("If-Match", "\"x\""), ("If-None-Match", "\"a,b\"")], Failed),
            (&[("If-Match", "*"), ("If-None-Match", "\"a,b\"")], NotModified),
        ] {
            assert_eq!(result(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn weak_tags_get_their_strong_form() {
        for (list, expected) in [
            ("W/\"a\"", Some("W/\"a\", \"a\"")),
            ("W/\"a\", \"b\"", Some("W/\"a\", \"a\", \"b\"")),
            ("W/\"a,b\",W/\"c\"", Some("W/\"a,b\", \"a,b\", W/\"c\", \"c\"")),
            ("W/\"a\", \"a\"", None),
            ("\"a\"", None),
            ("*", None),
            ("W/\"a\" b", None),
            ("W/\"a", None),
            ("", None),
        ] {
            let forms = with_strong_forms(list.as_bytes());
            assert_eq!(forms.as_deref(), expected.map(str::as_bytes), "{list}");
        }
    }

    #[test]
    fn a_range_needs_a_strong_validator() {
        let applies = |value: &str, etag: &[u8], now_s| {
            let validators = Validators { etag: Some(etag), modified_s: Some(MODIFIED_S) };
            with_fields(&[("If-Range", value)], |request| range_applies(request, validators, now_s))
        };
        let later_s = MODIFIED_S + 10;
        assert!(applies("\"a,b\"", ETAG, later_s));
        assert!(!applies("\"x\"", ETAG, later_s));
        assert!(!applies("W/\"a,b\"", b"W/\"a,b\"", later_s));
        assert!(applies(MODIFIED, ETAG, later_s));
        assert!(!applies(MODIFIED, ETAG, MODIFIED_S + 1), "it may change again in this second");
        assert!(!applies(EARLIER, ETAG, later_s) && !applies(LATER, ETAG, later_s));
        assert!(!applies("yesterday", ETAG, later_s));
    }
}
