//! Authentication of requests: passwords (`users`, checked by `password_threads`), tokens (`jwt`, with the keys of
//! `key_store`). Decisions are pure; `proxy::auth_core` has what a core knows of them, and `proxy::exchange::authorisation`
//! the requests that wait for them.

mod basic;
pub mod claims;
pub mod failures;
pub mod jwks;
pub mod jwt;
pub mod key_store;
mod password_hash;
pub mod password_threads;
pub mod users;
pub mod watched_file;

use std::rc::Rc;

pub use basic::{BasicCredentials, CredentialsFault};
pub use claims::Claims;
pub use password_hash::{Argon2Params, HashFault, PasswordHash};

/// Returns the token in a field `Authorization` (RFC 6750 §2.1).
pub fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    basic::strip_scheme(value, b"bearer")
}

/// The authenticated client of a request.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub user: Box<str>,
    /// Claims of its token; `None`: it has none.
    pub claims: Option<Rc<Claims>>,
}

code_table! {
    /// Kind of authentication of a route.
    pub enum AuthKind:
    Basic, "basic", "names and passwords (`auth.basic`)";
    Jwt, "jwt", "tokens (`auth.jwt`)";
    Request, "request", "a request to another service (`auth.request`)";
}

code_table! {
    /// Result of the authentication of a request.
    pub enum AuthResult:
    Allowed, "allowed", "The request was authenticated.";
    Cached, "cached", "The request was authenticated by a result that is still valid.";
    Missing, "missing", "No credentials, or those of another scheme.";
    Malformed, "malformed", "Credentials or a token that cannot be read, or are too long.";
    WrongPassword, "wrong_password", "An unknown user, or a wrong password.";
    Limited, "limited", "Too many failures of the source, or of the user; the password was not checked.";
    Busy, "busy", "The queue of password checks was full, or the wait in it too long.";
    BadAlgorithm, "bad_algorithm", "An algorithm that no key has, `none` among them.";
    UnknownKey, "unknown_key", "No key with the `kid` of the token.";
    BadSignature, "bad_signature", "The signature of the token is wrong.";
    Expired, "expired", "The token has expired (`exp`).";
    NotYetValid, "not_yet_valid", "The token is not valid yet (`nbf`).";
    BadClaim, "bad_claim", "A wrong `iss` or `aud`, or a missing claim.";
    Forbidden, "forbidden", "A claim that the route requires is missing, or has another value.";
    NoKeys, "no_keys", "No keys have been read yet.";
    Denied, "denied", "The other service denied the request.";
    Unavailable, "unavailable", "The other service did not respond in time, or with an error.";
}

impl AuthResult {
    pub fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed | Self::Cached)
    }
}
