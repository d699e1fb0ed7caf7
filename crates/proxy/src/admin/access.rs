//! Who may see the admin pages: requests to a host name that is none of ours are refused, because a web
//! page of another site could have made them (DNS rebinding); and where a token is set, only those who
//! know it.

use std::net::IpAddr;

use wire::{RequestHead, field_value};

use super::Answer;
use crate::plan::AdminAccess;
use crate::route::path::without_port;

/// Checks the host and the token of a request.
pub(super) fn check(head: &RequestHead<'_, '_>, access: &AdminAccess) -> Result<(), Answer> {
    let host = field_value(head.headers, "host").map(String::from_utf8_lossy);
    if let Some(host) = host.filter(|host| !is_own(host, access)) {
        let text = format!(
            "these pages are not those of '{host}': use an IP address or localhost, or name the host \
             in admin-hosts\n"
        );
        return Err(Answer::text(421, text));
    }
    let Some(token) = &access.token else { return Ok(()) };
    let given = field_value(head.headers, "authorization").and_then(secret_of);
    match given.is_some_and(|given| is_equal(&given, token.bytes())) {
        true => Ok(()),
        false => Err(Answer::text(401, "these pages take the token of admin-token\n")),
    }
}

/// Whether a host is an address, this machine by its usual name, or named in the config. A browser that
/// is led here by a foreign name sends that name.
fn is_own(host: &str, access: &AdminAccess) -> bool {
    let name = without_port(host).trim_end_matches('.');
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let named = |own: &str| name.eq_ignore_ascii_case(own);
    address.parse::<IpAddr>().is_ok()
        || named("localhost")
        || access.hosts.iter().any(|own| named(own))
}

/// The token of `Bearer TOKEN`, or the password of `Basic`, whoever the user is.
fn secret_of(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = std::str::from_utf8(value).ok()?.trim().split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(rest.trim().as_bytes().to_vec()),
        "basic" => {
            let pair = base64(rest.trim())?;
            let colon = pair.iter().position(|byte| *byte == b':')?;
            Some(pair[colon + 1..].to_vec())
        }
        _ => None,
    }
}

/// Decodes base64 (RFC 4648 §4), padded or not.
fn base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == byte)? as u32;
        (bits, held) = (bits << 6 | value, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

/// Compares in a time that does not tell where they differ.
fn is_equal(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |all, (one, other)| all | (one ^ other));
    given.len() == token.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_no_hosts_of_ours() {
        let access = AdminAccess { hosts: vec!["proxy.example".into()], token: None };
        for host in [
            "127.0.0.1:80",
            "10.1.2.3",
            "[::1]:8404",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "proxy.example:8404",
            "Proxy.Example.",
        ] {
            assert!(is_own(host, &access), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "a b"]
        {
            assert!(!is_own(host, &access), "{host}");
        }
    }

    #[test]
    fn tokens_come_in_two_forms() {
        assert_eq!(secret_of(b"Bearer abc").as_deref(), Some(&b"abc"[..]));
        assert_eq!(secret_of(b"basic dXNlcjphOmI=").as_deref(), Some(&b"a:b"[..]));
        assert_eq!(secret_of(b"Basic dXNlcjo").as_deref(), Some(&b""[..]));
        for wrong in ["", "abc", "Digest x", "Basic ***", "Basic dXNlcg=="] {
            assert_eq!(secret_of(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(is_equal(b"abc", b"abc") && !is_equal(b"abd", b"abc") && !is_equal(b"ab", b"abc"));
    }
}
