//! Answers to challenges over HTTP (HTTP-01, RFC 8555 §8.3), for all plain listeners.

use std::collections::BTreeMap;
#[allow(clippy::disallowed_types, reason = "changed a few times a month, read only by validations")]
use std::sync::RwLock;

/// Prefix of the paths of challenges.
pub(crate) const CHALLENGE_PREFIX: &str = "/.well-known/acme-challenge/";

/// Key authorizations by token, for all listeners of the process: a validation may reach any.
#[allow(clippy::disallowed_types, reason = "see the import")]
static TOKENS: RwLock<BTreeMap<String, String>> = RwLock::new(BTreeMap::new());

/// Answer that is offered until this is dropped.
#[derive(Debug)]
pub(super) struct TokenChallenge {
    token: String,
}

impl TokenChallenge {
    pub(super) fn offer(token: &str, key_authorization: &str) -> Self {
        let mut all = TOKENS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.insert(token.to_owned(), key_authorization.to_owned());
        Self { token: token.to_owned() }
    }
}

impl Drop for TokenChallenge {
    fn drop(&mut self) {
        TOKENS.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.token);
    }
}

/// Returns the answer to the challenge at a path; `None`: the path is no challenge of this process.
pub(crate) fn answer_to_challenge(path: &str) -> Option<String> {
    let token = path.strip_prefix(CHALLENGE_PREFIX)?;
    let all = TOKENS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.get(token).cloned()
}
