//! Results of authentications that a core keeps, so that the next request with the same credentials costs a hash. No
//! other core reads them, so there is no lock; each core checks a password once.

mod result_cache;

use std::cell::{OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::auth::{AuthResult, Identity};
use crate::suspended_request::SuspendedRequest;
pub(crate) use result_cache::CredentialDigest;
use result_cache::{DigestKey, ResultCache};

/// Results that a core keeps; created by its first request with authentication.
#[derive(Default)]
pub(crate) struct AuthCore(OnceCell<AuthTables>);

pub(crate) struct AuthTables {
    pub(crate) key: DigestKey,
    /// Answers that allow a request, by the digest of its credentials and its plan.
    pub(crate) answers: RefCell<ResultCache<Rc<AuthAnswer>>>,
}

/// Answer to a request for authentication.
#[derive(Debug)]
pub(crate) struct AuthAnswer {
    pub(crate) result: AuthResult,
    pub(crate) identity: Identity,
    /// Field lines for the server, and for the client.
    pub(crate) server_lines: Vec<u8>,
    pub(crate) client_lines: Vec<u8>,
    pub(crate) retry_after_s: u64,
    /// Response to a denied request; `None`: the proxy's own.
    pub(crate) denial: Option<Denial>,
}

/// Response of another service to a denied request.
#[derive(Debug)]
pub(crate) struct Denial {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) content: Vec<u8>,
}

/// A request that waits for its authentication, with what it needs to go on.
pub(crate) struct AuthWait {
    pub(crate) request: SuspendedRequest,
    pub(crate) answer: PendingAnswer,
}

pub(crate) type PendingAnswer = Pin<Box<dyn Future<Output = Rc<AuthAnswer>>>>;

/// Access of a request to its route: the authenticated client, and the field lines that it brought.
#[derive(Debug, Default)]
pub(crate) struct RequestAccess {
    pub(crate) identity: Identity,
    pub(crate) server_lines: Vec<u8>,
    pub(crate) client_lines: Vec<u8>,
}

impl AuthCore {
    pub(crate) fn tables(&self) -> &AuthTables {
        self.0.get_or_init(|| AuthTables { key: DigestKey::random(), answers: RefCell::default() })
    }
}

impl std::fmt::Debug for AuthCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthCore").finish_non_exhaustive()
    }
}

impl AuthAnswer {
    pub(crate) fn refused(result: AuthResult) -> Self {
        Self::new(result, Identity::default())
    }

    pub(crate) fn new(result: AuthResult, identity: Identity) -> Self {
        Self {
            result,
            identity,
            server_lines: Vec::new(),
            client_lines: Vec::new(),
            retry_after_s: 0,
            denial: None,
        }
    }
}
