//! Answers to challenges over HTTP (HTTP-01, RFC 8555 §8.3), for all plain listeners.

use std::collections::BTreeMap;
#[allow(clippy::disallowed_types, reason = "changed a few times a month, read only by validations")]
use std::sync::RwLock;

pub const CHALLENGE_PREFIX: &str = "/.well-known/acme-challenge/";

/// Key authorizations by token, for all listeners of the process: a validation may reach any.
#[allow(clippy::disallowed_types, reason = "see the import")]
static TOKENS: RwLock<BTreeMap<String, String>> = RwLock::new(BTreeMap::new());

/// Answer that is offered until this is dropped.
#[derive(Debug)]
pub struct TokenChallenge {
    token: String,
}

/// Maximum length of a token: servers use about 43 bytes.
const TOKEN_BYTES_MAX: usize = 256;

impl TokenChallenge {
    /// Offers an answer; `None`: the token is not in base64url (RFC 8555 §8.3), or too long.
    pub fn offer(token: &str, key_authorization: &str) -> Option<Self> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX || !token.bytes().all(is_valid) {
            return None;
        }
        let mut all = TOKENS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.insert(token.to_owned(), key_authorization.to_owned());
        Some(Self { token: token.to_owned() })
    }
}

impl Drop for TokenChallenge {
    fn drop(&mut self) {
        TOKENS.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.token);
    }
}

/// Returns the answer to the challenge at a path; `None`: the path is no challenge of this process.
pub fn answer_to_challenge(path: &str) -> Option<String> {
    let token = path.strip_prefix(CHALLENGE_PREFIX)?;
    let all = TOKENS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.get(token).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_another_form_is_not_offered() {
        let path = format!("{CHALLENGE_PREFIX}evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA");
        let token = &path[CHALLENGE_PREFIX.len()..];
        let offered = TokenChallenge::offer(token, "a.b").unwrap();
        assert_eq!(answer_to_challenge(&path).as_deref(), Some("a.b"));
        drop(offered);
        assert_eq!(answer_to_challenge(&path), None);
        for invalid in ["", "a/../b", "a b", "\u{1b}[2J", &"a".repeat(257)] {
            assert!(TokenChallenge::offer(invalid, "a.b").is_none(), "{invalid:?}");
        }
    }
}
