//! Redaction of URLs for logs: the user information (name and password), and the values of
//! parameters that are named like secrets. The text is passed on in pieces, so that nothing is
//! copied.
//!
//! Sites name their secrets as they like; a parameter that is not in the tables is logged.

/// Replacement for a secret.
const REDACTED: &[u8] = b"***";

/// Endings of secret parameters' names. A name is compared by its letters and digits only, in lower
/// case: `access_token`, `X-Amz-Signature`, `user[password]`.
pub(super) const SECRET_ENDINGS: &[&[u8]] = &[
    b"accesskey",
    b"apikey",
    b"authkey",
    b"credential",
    b"credentials",
    b"jwt",
    b"passphrase",
    b"passwd",
    b"password",
    b"privatekey",
    b"secret",
    b"secretkey",
    b"sessid",
    b"sessionid",
    b"signature",
    b"token",
];

/// Complete names of secret parameters, compared in the same way.
pub(super) const SECRET_NAMES: &[&[u8]] =
    &[b"auth", b"authorization", b"code", b"key", b"pass", b"pw", b"pwd", b"session", b"sid", b"sig"];

/// Maximum number of final letters and digits of a name that are compared.
const NAME_BYTES: usize = 32;

/// Passes `url` (a target in any form, or a referrer) to `emit` with its secrets replaced.
#[inline]
pub(crate) fn redact<'a>(url: &'a [u8], mut emit: impl FnMut(&'a [u8])) {
    let (before_query, query) = url.split_at(memchr::memchr(b'?', url).unwrap_or(url.len()));
    if before_query.first() == Some(&b'/') && !Parameters(query).any(Parameter::is_secret) {
        emit(url);
        return;
    }
    let rest = match userinfo(before_query) {
        Some((start, end)) => {
            emit(&before_query[..start]);
            emit(REDACTED);
            &before_query[end..]
        }
        None => before_query,
    };
    emit(rest);
    for parameter in Parameters(query) {
        match parameter.is_secret() {
            true => {
                emit(&parameter.text[..parameter.name_end + 1]);
                emit(REDACTED);
            }
            false => emit(parameter.text),
        }
    }
}

/// Returns start and end of the user information in an absolute URL without query. The end is
/// before the `@`.
fn userinfo(url: &[u8]) -> Option<(usize, usize)> {
    if url.first() == Some(&b'/') {
        return None;
    }
    let start = memchr::memmem::find(url, b"://")? + 3;
    let authority = &url[start..];
    let authority = &authority[..memchr::memchr(b'/', authority).unwrap_or(authority.len())];
    Some((start, start + memchr::memrchr(b'@', authority)?))
}

/// Parameters of a query, each with the separator before it.
struct Parameters<'a>(&'a [u8]);

#[derive(Clone, Copy)]
struct Parameter<'a> {
    text: &'a [u8],
    /// Position of the `=`; the end, if there is none.
    name_end: usize,
}

impl<'a> Iterator for Parameters<'a> {
    type Item = Parameter<'a>;

    #[inline]
    fn next(&mut self) -> Option<Parameter<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let (mut length, mut name_end) = (self.0.len(), None);
        for (position, byte) in self.0.iter().enumerate().skip(1) {
            match byte {
                b'=' if name_end.is_none() => name_end = Some(position),
                b'&' | b';' | b'?' => {
                    length = position;
                    break;
                }
                _ => {}
            }
        }
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(Parameter { text, name_end: name_end.unwrap_or(length) })
    }
}

impl Parameter<'_> {
    /// Returns whether the parameter has a value under the name of a secret.
    #[inline]
    fn is_secret(self) -> bool {
        self.name_end + 1 < self.text.len() && is_secret(&self.text[1..self.name_end])
    }
}

/// Last letters of all names in the tables, one bit each.
const LAST_LETTERS: u32 = last_letters(SECRET_ENDINGS) | last_letters(SECRET_NAMES);

const fn last_letters(names: &[&[u8]]) -> u32 {
    let (mut letters, mut index) = (0, 0);
    while index < names.len() {
        letters |= 1 << (names[index][names[index].len() - 1] - b'a');
        index += 1;
    }
    letters
}

fn is_possible_last_letter(letter: u8) -> bool {
    LAST_LETTERS & 1 << (letter.to_ascii_lowercase() - b'a') != 0
}

#[inline(always)]
fn is_secret(name: &[u8]) -> bool {
    // The last letter rules most names out. After a `%` it may encode another one.
    match name {
        [.., b'%', _] | [.., b'%', _, _] | [] => {}
        [.., last] if last.is_ascii_digit() => return false,
        [.., last] if last.is_ascii_alphabetic() && !is_possible_last_letter(*last) => {
            return false;
        }
        _ => {}
    }
    let mut letters = [0; NAME_BYTES];
    let mut index = NAME_BYTES;
    let mut rest = name;
    while let Some((&byte, remaining)) = rest.split_last() {
        let (byte, remaining) = match remaining {
            [remaining @ .., b'%', high] => match (hex_value(*high), hex_value(byte)) {
                (Some(high), Some(low)) => (high << 4 | low, remaining),
                _ => (byte, &rest[..rest.len() - 1]),
            },
            remaining => (byte, remaining),
        };
        if byte.is_ascii_alphanumeric() {
            if index == 0 {
                break;
            }
            index -= 1;
            letters[index] = byte.to_ascii_lowercase();
        }
        rest = remaining;
    }
    let letters = &letters[index..];
    SECRET_NAMES.contains(&letters) || SECRET_ENDINGS.iter().any(|ending| letters.ends_with(ending))
}

fn hex_value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(url: &str) -> String {
        let mut out = Vec::new();
        redact(url.as_bytes(), |emit| out.extend_from_slice(emit));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn secrets_are_hidden_and_the_rest_stays() {
        for (url, expected) in [
            ("/", "/"),
            ("*", "*"),
            ("", ""),
            ("/a?b=c", "/a?b=c"),
            ("/a?", "/a?"),
            ("/a?token=x", "/a?token=***"),
            ("/a?b=1&token=x&c=2", "/a?b=1&token=***&c=2"),
            ("/a?Access-Token=x=y", "/a?Access-Token=***"),
            ("/a?X-Amz-Signature=ff;d", "/a?X-Amz-Signature=***;d"),
            ("/a?user[password]=p", "/a?user[password]=***"),
            ("/a?%70assword=p", "/a?%70assword=***"),
            ("/a?pass%77or%64=p", "/a?pass%77or%64=***"),
            ("/a?key=1&monkey=2&keys=3", "/a?key=***&monkey=2&keys=3"),
            ("/a?token", "/a?token"),
            ("/a?token=&b", "/a?token=&b"),
            ("/a?b=c?token=x", "/a?b=c?token=***"),
            ("/token=x", "/token=x"),
            ("http://u:p@h/a?sig=x", "http://***@h/a?sig=***"),
            ("http://u:p@q@h", "http://***@h"),
            ("http://h/a@b", "http://h/a@b"),
            ("h:443", "h:443"),
            ("//u@h/", "//u@h/"),
            ("%", "%"),
            ("/?%=1&%7=2&%zz=3&=token", "/?%=1&%7=2&%zz=3&=token"),
        ] {
            assert_eq!(redacted(url), expected, "{url}");
        }
    }

    #[test]
    fn a_long_name_is_matched_by_its_end() {
        let long_name = "x".repeat(1000);
        assert_eq!(redacted(&format!("/?{long_name}token=1")), format!("/?{long_name}token=***"));
        assert_eq!(redacted(&format!("/?{long_name}=1")), format!("/?{long_name}=1"));
    }

    #[test]
    fn the_tables_are_in_the_form_that_names_are_compared_in() {
        for name in SECRET_ENDINGS.iter().chain(SECRET_NAMES) {
            assert!(name.len() <= NAME_BYTES && is_secret(name));
            assert!(name.iter().all(|byte| byte.is_ascii_lowercase()));
        }
    }
}
