//! What of a URL is not logged: the user's name and password, and the values of parameters that are
//! named like secrets. The text is given in pieces, so that nothing is copied.
//!
//! It cannot know what a site calls its secrets; a parameter outside of the table is logged.

/// What stands in for a secret.
const HIDDEN: &[u8] = b"***";

/// A parameter's name, its letters and digits in lower case only, that **ends** like one of these is
/// a secret's: `access_token`, `X-Amz-Signature`, `user[password]`.
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

/// And one that **is** one of these.
pub(super) const SECRET_NAMES: &[&[u8]] = &[
    b"auth",
    b"authorization",
    b"code",
    b"key",
    b"pass",
    b"pw",
    b"pwd",
    b"session",
    b"sid",
    b"sig",
];

/// Names are compared by at most so many of their last letters.
const NAME_BYTES: usize = 32;

/// Gives `url` (a target in any form, or a referrer) to `piece` with its secrets replaced.
#[inline]
pub(super) fn redact<'a>(url: &'a [u8], mut piece: impl FnMut(&'a [u8])) {
    let query = memchr::memchr(b'?', url);
    if query.is_none() && url.first() == Some(&b'/') {
        piece(url);
        return;
    }
    let (before, query) = url.split_at(query.unwrap_or(url.len()));
    let rest = match userinfo(before) {
        Some((start, end)) => {
            piece(&before[..start]);
            piece(HIDDEN);
            &before[end..]
        }
        None => before,
    };
    piece(rest);
    redact_query(query, piece);
}

/// Where the user information of an absolute URL without query starts and ends (before its `@`).
fn userinfo(url: &[u8]) -> Option<(usize, usize)> {
    if url.first() == Some(&b'/') {
        return None;
    }
    let start = memchr::memmem::find(url, b"://")? + 3;
    let authority = &url[start..];
    let authority = &authority[..memchr::memchr(b'/', authority).unwrap_or(authority.len())];
    Some((start, start + memchr::memrchr(b'@', authority)?))
}

fn redact_query<'a>(mut query: &'a [u8], mut piece: impl FnMut(&'a [u8])) {
    let separator = |byte: &u8| matches!(byte, b'&' | b';' | b'?');
    while let Some((_, parameter)) = query.split_first() {
        let length = 1 + parameter.iter().position(separator).unwrap_or(parameter.len());
        let (parameter, rest) = query.split_at(length);
        match memchr::memchr(b'=', parameter) {
            Some(equals) if is_secret(&parameter[1..equals]) && equals + 1 < parameter.len() => {
                piece(&parameter[..=equals]);
                piece(HIDDEN);
            }
            _ => piece(parameter),
        }
        query = rest;
    }
}

/// The last letters of all names in the tables, a bit each.
const LAST_LETTERS: u32 = last_letters(SECRET_ENDINGS) | last_letters(SECRET_NAMES);

const fn last_letters(names: &[&[u8]]) -> u32 {
    let (mut letters, mut at) = (0, 0);
    while at < names.len() {
        letters |= 1 << (names[at][names[at].len() - 1] - b'a');
        at += 1;
    }
    letters
}

fn may_be_last(letter: u8) -> bool {
    LAST_LETTERS & 1 << (letter.to_ascii_lowercase() - b'a') != 0
}

fn is_secret(name: &[u8]) -> bool {
    // Most names are told by their last letter. One behind a `%` may stand for another.
    match name {
        [.., b'%', _] | [.., b'%', _, _] | [] => {}
        [.., last] if last.is_ascii_digit() => return false,
        [.., last] if last.is_ascii_alphabetic() && !may_be_last(*last) => return false,
        _ => {}
    }
    let mut letters = [0; NAME_BYTES];
    let mut at = NAME_BYTES;
    let mut rest = name;
    while let Some((&byte, before)) = rest.split_last() {
        let (byte, before) = match before {
            [before @ .., b'%', high] => match (hex(*high), hex(byte)) {
                (Some(high), Some(low)) => (high << 4 | low, before),
                _ => (byte, &rest[..rest.len() - 1]),
            },
            before => (byte, before),
        };
        if byte.is_ascii_alphanumeric() {
            if at == 0 {
                break;
            }
            at -= 1;
            letters[at] = byte.to_ascii_lowercase();
        }
        rest = before;
    }
    let letters = &letters[at..];
    SECRET_NAMES.contains(&letters) || SECRET_ENDINGS.iter().any(|end| letters.ends_with(end))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(url: &str) -> String {
        let mut out = Vec::new();
        redact(url.as_bytes(), |piece| out.extend_from_slice(piece));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn secrets_are_hidden_and_the_rest_stays() {
        for (url, shown) in [
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
            assert_eq!(redacted(url), shown, "{url}");
        }
    }

    #[test]
    fn a_long_name_is_judged_by_its_end() {
        let long = "x".repeat(1000);
        assert_eq!(redacted(&format!("/?{long}token=1")), format!("/?{long}token=***"));
        assert_eq!(redacted(&format!("/?{long}=1")), format!("/?{long}=1"));
    }

    #[test]
    fn the_tables_are_in_the_form_that_names_are_compared_in() {
        for name in SECRET_ENDINGS.iter().chain(SECRET_NAMES) {
            assert!(name.len() <= NAME_BYTES && is_secret(name));
            assert!(name.iter().all(|byte| byte.is_ascii_lowercase()));
        }
    }
}
