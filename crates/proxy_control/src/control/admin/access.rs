//! Access control of the admin pages. Requests for a foreign host name are rejected, because a web
//! page of another site could have sent them (DNS rebinding). If a token is set, requests without
//! it are rejected too.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use server_shell::web_ui::{WebPage, is_own_host};
use wire::{RequestHead, field_value};

use crate::plan::AdminAccess;

/// Checks the host and the token of a request.
pub(super) fn check(head: &RequestHead<'_, '_>, access: &AdminAccess) -> Result<(), WebPage> {
    // Any address of this machine is accepted: a foreign name that led here is not one.
    if let Some(host) = head.host.filter(|host| !is_own_host(host, &access.hosts, |_| true)) {
        let text = format!(
            "unknown host '{host}': use an IP address or localhost, or add the host to admin-hosts\n"
        );
        return Err(WebPage::text(421, text));
    }
    let Some(token) = &access.token else { return Ok(()) };
    let presented = field_value(head.headers, "authorization").and_then(token_of);
    match presented.is_some_and(|given| is_equal_constant_time(&given, token.bytes())) {
        true => Ok(()),
        false => Err(WebPage::text(401, "missing or wrong token: send the token of admin-token\n")),
    }
}

/// Returns the token of `Bearer TOKEN`, or the password of `Basic` for any user name.
fn token_of(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, rest) = std::str::from_utf8(value).ok()?.trim().split_once(' ')?;
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(rest.trim().as_bytes().to_vec()),
        "basic" => {
            let credentials = decode_base64(rest.trim())?;
            let colon = credentials.iter().position(|byte| *byte == b':')?;
            Some(credentials[colon + 1..].to_vec())
        }
        _ => None,
    }
}

/// Decodes base64 (RFC 4648 §4), padded or not.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const FORM: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&STANDARD, FORM).decode(text).ok()
}

/// Compares in constant time, so that the duration does not reveal where the values differ.
fn is_equal_constant_time(presented: &[u8], token: &[u8]) -> bool {
    let differences = presented.iter().zip(token).fold(0, |difference, (a, b)| difference | (a ^ b));
    presented.len() == token.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_in_two_forms() {
        assert_eq!(token_of(b"Bearer abc").as_deref(), Some(&b"abc"[..]));
        assert_eq!(token_of(b"basic dXNlcjphOmI=").as_deref(), Some(&b"a:b"[..]));
        assert_eq!(token_of(b"Basic dXNlcjo").as_deref(), Some(&b""[..]));
        for wrong in ["", "abc", "Digest x", "Basic ***", "Basic dXNlcg=="] {
            assert_eq!(token_of(wrong.as_bytes()), None, "{wrong}");
        }
        assert!(
            is_equal_constant_time(b"abc", b"abc")
                && !is_equal_constant_time(b"abd", b"abc")
                && !is_equal_constant_time(b"ab", b"abc")
        );
    }
}
