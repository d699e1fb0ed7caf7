//! Authentication of the requests of a route, and the responses to requests of other origins.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use record::sorted::sort_by_key;

use super::{PoolId, RouteChange, Template, TextCondition};
use crate::auth::AuthKind;
pub use crate::auth::failures::FailureLimit;
pub use crate::auth::jwks::JwtAlgorithm;
pub use crate::auth::jwt::JwtRules;
pub use crate::auth::key_store::{FileKeys, KeySource, UrlKeys};
pub use crate::auth::password_threads::PasswordThreads;
use crate::auth::users::Users;
use crate::auth::watched_file::{Watched, WatchedFile};

/// Rules of a route about who may use it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AccessPlan {
    pub auth: Option<Arc<AuthPlan>>,
    pub cors: Option<Arc<CorsPlan>>,
}

/// `auth` of a listener or a route.
#[derive(Clone, Debug)]
pub struct AuthPlan {
    pub method: AuthMethod,
    pub credentials: Credentials,
    /// Maximum number of results that a thread keeps, and their maximum time.
    pub cache_entries: usize,
    pub cache_ns: u64,
    /// Number that no other plan has: results of one are not valid for another.
    number: u64,
}

/// Treatment of the credentials of a request on its way to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Their field is removed. A cookie stays: sessions of the server may need it.
    FieldRemoved,
    /// Their field or cookie is removed.
    Removed,
    Forwarded,
}

#[derive(Clone, Debug)]
pub enum AuthMethod {
    Basic(BasicPlan),
    Jwt(JwtPlan),
    Request(RequestPlan),
}

/// `auth.basic`.
#[derive(Clone, Debug)]
pub struct BasicPlan {
    pub realm: Box<str>,
    pub users: UsersFile,
    pub source_limit: Option<FailureLimit>,
    pub user_limit: Option<FailureLimit>,
}

/// File with users.
#[derive(Clone, Debug, PartialEq)]
pub struct UsersFile(pub Arc<WatchedFile<Users>>);

/// `auth.jwt`.
#[derive(Clone, Debug)]
pub struct JwtPlan {
    pub keys: KeySource,
    pub token: TokenSource,
    pub rules: JwtRules,
    pub realm: Box<str>,
    /// Claim with the name of the user.
    pub user_claim: Box<str>,
    /// Claims with the values that the route requires; other tokens get 403.
    pub required: Vec<TextCondition>,
}

/// Part of a request with its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// `Authorization: Bearer`.
    Authorization,
    Header(Box<str>),
    Cookie(Box<str>),
}

/// `auth.request`.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    pub pool: PoolId,
    pub pool_name: Box<str>,
    pub method: Option<Box<str>>,
    pub path: Box<str>,
    pub timeout_ns: u64,
    /// Fields of the request that the service gets.
    pub request_fields: Vec<Box<str>>,
    /// Fields of its response that servers get if it allows a request.
    pub server_fields: Vec<Box<str>>,
    /// Fields of its response that clients get with the response of a server.
    pub client_fields: Vec<Box<str>>,
    /// Fields of a denial that clients get.
    pub denial_fields: Vec<Box<str>>,
    /// Field of its response with the name of the user.
    pub user_field: Option<Box<str>>,
    /// Key of an answer that allows requests; `None`: none is kept.
    pub cache_key: Option<Template>,
}

/// `cors` of a listener or a route.
#[derive(Clone, Debug)]
pub struct CorsPlan {
    pub origins: CorsOrigins,
    /// Names of methods, as in the field; `*` is only a name with credentials.
    pub methods: Box<str>,
    /// Names of fields of requests; `None`: those that the browser asks for.
    pub headers: Option<Box<str>>,
    /// Names of fields of responses that pages may read; empty: the simple ones.
    pub expose: Box<str>,
    pub credentials: bool,
    pub max_age_s: u64,
}

/// Origins whose pages may read responses.
#[derive(Clone, Debug)]
pub enum CorsOrigins {
    Any,
    Listed(Vec<OriginPattern>),
}

#[derive(Clone, Debug)]
pub enum OriginPattern {
    Exact(Box<str>),
    /// Scheme with `://`, and the rest behind a name below: `.example.org:8080`.
    Below(Box<str>, Box<str>),
    Regex(regex::Regex),
}

impl AccessPlan {
    /// Returns the rules in a box; `None`: there are none.
    pub fn boxed(&self) -> Option<Box<Self>> {
        (self.auth.is_some() || self.cors.is_some()).then(|| Box::new(self.clone()))
    }

    /// Returns the changes of requests and responses that the rules need.
    pub fn changes(&self) -> Vec<RouteChange> {
        let mut changes = self.auth.as_ref().map(|auth| auth.request_changes()).unwrap_or_default();
        if self.cors.is_some() {
            changes.push(RouteChange::RemoveResponseHeader("access-control-*".into()));
        }
        changes
    }
}

impl AuthPlan {
    pub fn new(
        method: AuthMethod,
        credentials: Credentials,
        (cache_entries, cache_ns): (usize, u64),
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { method, credentials, cache_entries, cache_ns, number }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn kind(&self) -> AuthKind {
        match self.method {
            AuthMethod::Basic(_) => AuthKind::Basic,
            AuthMethod::Jwt(_) => AuthKind::Jwt,
            AuthMethod::Request(_) => AuthKind::Request,
        }
    }

    /// Returns the changes of requests to servers: credentials are for the proxy, and only the service sets its fields.
    pub fn request_changes(&self) -> Vec<RouteChange> {
        let removed: Vec<&str> = match &self.method {
            AuthMethod::Request(plan) => plan.server_fields.iter().map(|name| &**name).collect(),
            _ if self.credentials == Credentials::Forwarded => Vec::new(),
            AuthMethod::Jwt(JwtPlan { token: TokenSource::Header(name), .. }) => vec![name],
            AuthMethod::Jwt(JwtPlan { token: TokenSource::Cookie(name), .. }) => {
                let is_removed = self.credentials == Credentials::Removed;
                return is_removed
                    .then(|| RouteChange::RemoveRequestCookie(name.clone()))
                    .into_iter()
                    .collect();
            }
            AuthMethod::Basic(_) | AuthMethod::Jwt(_) => vec!["authorization"],
        };
        let mut names: Vec<String> = removed.into_iter().map(str::to_owned).collect();
        // Servers may treat an underscore as a hyphen.
        let folded: Vec<String> =
            names.iter().filter(|name| name.contains('-')).map(|name| name.replace('-', "_")).collect();
        names.extend(folded);
        names.into_iter().map(|name| RouteChange::RemoveRequestHeader(name.into())).collect()
    }

    /// Returns the file that is read again when it changes.
    pub fn file(&self) -> Option<Arc<dyn Watched>> {
        Some(match &self.method {
            AuthMethod::Basic(plan) => Arc::clone(&plan.users.0) as Arc<dyn Watched>,
            AuthMethod::Jwt(JwtPlan { keys: KeySource::File(file), .. }) => {
                Arc::clone(&file.0) as Arc<dyn Watched>
            }
            AuthMethod::Jwt(_) | AuthMethod::Request(_) => return None,
        })
    }

    /// Returns the authorities of the server of the keys; `None` inside: those that this host trusts. `None`: no server
    /// with TLS has the keys.
    pub fn keys_authorities(&self) -> Option<Option<&Path>> {
        let AuthMethod::Jwt(JwtPlan { keys: KeySource::Url(remote), .. }) = &self.method else { return None };
        let spec = &remote.0.spec;
        spec.url.starts_with("https:").then_some(spec.ca.as_deref())
    }
}

impl PartialEq for AuthPlan {
    /// Compares what the config says.
    fn eq(&self, other: &Self) -> bool {
        format!("{:?}", self.method) == format!("{:?}", other.method)
            && self.credentials == other.credentials
            && (self.cache_entries, self.cache_ns) == (other.cache_entries, other.cache_ns)
    }
}

impl std::fmt::Display for AuthPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.method {
            AuthMethod::Basic(plan) => {
                let users = plan.users.0.content().len();
                write!(
                    f,
                    "basic, {users} users of {}, realm \"{}\"",
                    plan.users.0.path().display(),
                    plan.realm
                )?;
            }
            AuthMethod::Jwt(plan) => {
                write!(f, "jwt, keys of {}", plan.keys.name())?;
                match plan.keys.keys() {
                    None => write!(f, " (none read yet{})", last_error(&plan.keys))?,
                    Some(keys) => {
                        let mut names: Vec<&str> = keys
                            .keys
                            .iter()
                            .flat_map(|key| key.algorithms())
                            .map(JwtAlgorithm::code)
                            .collect();
                        names.sort_unstable();
                        names.dedup();
                        write!(f, " ({} for {}", keys.keys.len(), names.join(" "))?;
                        if keys.ignored > 0 {
                            write!(f, ", {} left out", keys.ignored)?;
                        }
                        write!(f, "{})", last_error(&plan.keys))?;
                    }
                }
                for (name, texts) in [("issuer", &plan.rules.issuers), ("audience", &plan.rules.audiences)] {
                    if !texts.is_empty() {
                        write!(f, ", {name} {}", texts.join(" or "))?;
                    }
                }
                for condition in &plan.required {
                    write!(f, ", requires {}", condition.name)?;
                }
            }
            AuthMethod::Request(plan) => {
                write!(f, "request to {} of pool {}", plan.path, plan.pool_name)?;
            }
        }
        f.write_str(match self.credentials {
            Credentials::Forwarded => ", credentials forwarded",
            Credentials::FieldRemoved | Credentials::Removed => "",
        })
    }
}

/// Returns the reason why the last request for keys failed.
fn last_error(keys: &KeySource) -> String {
    let KeySource::Url(UrlKeys(remote)) = keys else { return String::new() };
    let error = remote.last_error();
    if error.is_empty() { error } else { format!("; {error}") }
}

impl CorsPlan {
    /// Returns whether pages of an origin may read responses.
    pub fn allows(&self, origin: &[u8]) -> bool {
        let Ok(origin) = std::str::from_utf8(origin) else { return false };
        match &self.origins {
            CorsOrigins::Any => true,
            CorsOrigins::Listed(patterns) => patterns.iter().any(|pattern| pattern.matches(origin)),
        }
    }
}

impl OriginPattern {
    fn matches(&self, origin: &str) -> bool {
        match self {
            Self::Exact(exact) => origin.eq_ignore_ascii_case(exact),
            Self::Below(scheme, rest) => {
                let origin = origin.to_ascii_lowercase();
                let name = origin.strip_prefix(&**scheme).and_then(|name| name.strip_suffix(&**rest));
                name.is_some_and(|name| {
                    !name.is_empty()
                        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
                })
            }
            Self::Regex(regex) => regex.is_match(origin),
        }
    }
}

impl PartialEq for CorsPlan {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl std::fmt::Display for CorsPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.origins {
            CorsOrigins::Any => f.write_str("any origin")?,
            CorsOrigins::Listed(patterns) => {
                for (index, pattern) in patterns.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { " or " })?;
                    match pattern {
                        OriginPattern::Exact(origin) => f.write_str(origin)?,
                        OriginPattern::Below(scheme, rest) => write!(f, "{scheme}*{rest}")?,
                        OriginPattern::Regex(regex) => write!(f, "/{regex}/")?,
                    }
                }
            }
        }
        write!(f, ", methods {}, max-age {} s", self.methods, self.max_age_s)?;
        f.write_str(if self.credentials { ", with credentials" } else { "" })
    }
}

impl super::Plan {
    /// Returns the rules for authentication of all listeners and routes, each once.
    pub fn auth_plans(&self) -> impl Iterator<Item = &AuthPlan> {
        let listeners = self.listeners.iter().filter_map(|listener| listener.access.auth.as_ref());
        let settings = self.routes.iter().flat_map(|route| &route.settings.by_listener);
        let routes = settings.filter_map(|settings| settings.access.as_ref()?.auth.as_ref());
        let mut plans: Vec<&AuthPlan> = listeners.chain(routes).map(|plan| &**plan).collect();
        sort_by_key(&mut plans, |plan| plan.number);
        plans.dedup_by_key(|plan| plan.number);
        plans.into_iter()
    }
}
