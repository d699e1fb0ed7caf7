//! Properties of credentials, of files with users and keys, and of tokens.

use crate::auth::claims::is_claim_path;
use crate::auth::jwks::KeySet;
use crate::auth::jwt::{self, JwtRules};
use crate::auth::users::Users;
use crate::auth::{BasicCredentials, Claims};

/// Checks bytes behind the first one, which is the kind of input: a field `Authorization`, users, keys, a token with
/// `none` of the keys, or a claim with a path. `true`: the input was valid.
///
/// # Panics
/// A property does not hold: a name has no colon and no control character, a fault has its line, a token without a
/// signature is refused, and the text of a claim is not longer than its source.
pub fn auth(bytes: &[u8]) -> bool {
    let Some((first, rest)) = bytes.split_first() else { return false };
    match first % 5 {
        0 => BasicCredentials::parse(rest).is_ok_and(|credentials| {
            let name = credentials.name();
            assert!(
                !name.is_empty()
                    && !name.contains(|character: char| character == ':' || character.is_ascii_control())
            );
            assert!(name.len() + credentials.password().len() < rest.len());
            true
        }),
        1 => match Users::parse(rest) {
            Ok(users) => !users.is_empty(),
            Err(faults) => {
                let has_place = |fault: &String| fault.starts_with(|first: char| first.is_ascii_digit());
                assert!(
                    !faults.is_empty() && faults.len() <= 21 && faults.iter().all(has_place),
                    "{faults:?}"
                );
                false
            }
        },
        2 => {
            let sets = [KeySet::parse_file(rest).is_ok(), KeySet::parse_remote(rest).is_ok()];
            assert!(sets[0] || !sets[1], "a set of a URL is one of a file");
            let _ = (KeySet::parse_pem(rest), KeySet::parse_secret(rest));
            sets[0]
        }
        3 => {
            let keys = KeySet::parse_secret(&[b'k'; 64]);
            let rules = JwtRules { token_bytes_max: 1 << 16, ..JwtRules::default() };
            assert!(
                keys.is_ok_and(|keys| jwt::verify(rest, &keys, &rules, 0).is_err()),
                "nobody knows the secret"
            );
            true
        }
        _ => check_claim(rest),
    }
}

fn check_claim(bytes: &[u8]) -> bool {
    let Some((path, json)) = std::str::from_utf8(bytes).ok().and_then(|text| text.split_once('\n')) else {
        return false;
    };
    let Ok(map) = serde_json::from_str(json) else { return false };
    let mut out = Vec::new();
    Claims(map).append(path, &mut out);
    // A number may have another form.
    assert!(out.len() <= 32 + 8 * json.len() && std::str::from_utf8(&out).is_ok());
    is_claim_path(path)
}
