//! Targeted cache-control fields (RFC 9213): dictionaries of structured fields (RFC 9651). Pure.

use wire::Header;

use crate::directives::Directive;

/// Maximum number of members that are read; a field with more is not valid.
const MEMBERS_MAX: usize = 64;

/// Parses the field `name`. `None`: it is absent, empty or not valid, and the next field counts.
pub(crate) fn parse<'h>(headers: &[Header<'h>], name: &str) -> Option<Vec<Directive<'h>>> {
    let mut members: Vec<Directive<'h>> = Vec::new();
    for header in headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)) {
        let mut rest = header.value.trim_ascii();
        while !rest.is_empty() {
            let member;
            (member, rest) = parse_member(rest)?;
            // The last one of a name counts.
            members.retain(|other| other.name != member.name);
            // `?0` switches a directive off.
            if member.value != Some(b"?0") || member.is_quoted {
                members.push(member);
            }
            if members.len() > MEMBERS_MAX {
                return None;
            }
            rest = rest.trim_ascii_start();
            match rest {
                [] => {}
                [b',', after @ ..] => {
                    rest = after.trim_ascii_start();
                    // A comma at the end is not valid.
                    if rest.is_empty() {
                        return None;
                    }
                }
                _ => return None,
            }
        }
    }
    let has_types = members.iter().all(has_its_type);
    (!members.is_empty() && has_types).then_some(members)
}

/// Returns whether a directive with seconds has a number.
fn has_its_type(member: &Directive<'_>) -> bool {
    const SECONDS: [&[u8]; 4] = [b"max-age", b"s-maxage", b"stale-while-revalidate", b"stale-if-error"];
    !SECONDS.contains(&member.name) || (!member.is_quoted && member.seconds().is_some())
}

/// Parses `key`, `key=item`, each with parameters, and returns the bytes after it.
fn parse_member(text: &[u8]) -> Option<(Directive<'_>, &[u8])> {
    let (name, mut rest) = parse_key(text)?;
    let (mut value, mut is_quoted) = (None, false);
    if let [b'=', after @ ..] = rest {
        let item;
        (item, is_quoted, rest) = parse_item(after)?;
        value = Some(item).filter(|item| is_quoted || *item != b"?1");
    }
    rest = skip_parameters(rest)?;
    Some((Directive { name, value, is_quoted }, rest))
}

fn parse_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_first = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
    text.first().filter(|byte| is_first(byte))?;
    let is_part = |byte: &u8| is_first(byte) || byte.is_ascii_digit() || b"_-.".contains(byte);
    let end = text.iter().position(|byte| !is_part(byte)).unwrap_or(text.len());
    Some(text.split_at(end))
}

/// Parses a bare item or an inner list; the flag is true for a string.
fn parse_item(text: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let until = |end: usize| (&text[..end], false, &text[end..]);
    let count = |is_part: fn(&u8) -> bool| text[1..].iter().take_while(|byte| is_part(byte)).count() + 1;
    match *text.first()? {
        b'"' => {
            let mut is_escaped = false;
            let end = text[1..].iter().position(|&byte| match byte {
                _ if is_escaped => {
                    is_escaped = false;
                    false
                }
                b'\\' => {
                    is_escaped = true;
                    false
                }
                _ => byte == b'"',
            })?;
            Some((&text[1..=end], true, &text[end + 2..]))
        }
        b'?' => matches!(text.get(1), Some(b'0' | b'1')).then(|| until(2)),
        b'-' | b'0'..=b'9' => {
            let (number, is_string, rest) = until(count(|byte| byte.is_ascii_digit() || *byte == b'.'));
            (number.last().is_some_and(u8::is_ascii_digit)).then_some((number, is_string, rest))
        }
        b'@' => Some(until(count(|byte| byte.is_ascii_digit() || *byte == b'-'))),
        b':' => {
            let end = text[1..].iter().position(|&byte| byte == b':')?;
            Some(until(end + 2))
        }
        b'(' => {
            let end = text.iter().position(|&byte| byte == b')')?;
            Some(until(end + 1))
        }
        byte if byte.is_ascii_alphabetic() || byte == b'*' => {
            Some(until(count(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte))))
        }
        _ => None,
    }
}

fn skip_parameters(mut text: &[u8]) -> Option<&[u8]> {
    while let [b';', after @ ..] = text {
        (_, text) = parse_key(after.trim_ascii_start())?;
        if let [b'=', after @ ..] = text {
            (_, _, text) = parse_item(after)?;
        }
    }
    Some(text)
}
