//! Credentials of a request, and the answers about them: from the tables of the core, from the threads for passwords,
//! from the keys of tokens, or from another service.

use std::rc::Rc;

use rt::clock::{MonotonicTime, SECOND_NS, unix_ns};
use wire::{Limits, Parsed, RequestKind, encode, is_hop_by_hop};

use super::subrequest::{self, Subrequest, SubrequestError, SubrequestResponse};
use crate::auth::password_threads::{CheckedPassword, PasswordCheck, submit};
use crate::auth::{AuthResult, BasicCredentials, CredentialsFault, Identity, bearer_token, jwt};
use crate::auth_core::CredentialDigest;
use crate::auth_core::{AuthAnswer, Denial, PendingAnswer};
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::cookies::cookies;
use crate::core::Core;
use crate::exchange_state::Exchange;
use crate::field_names::matches_removal;
use crate::forward::origin_form;
use crate::plan::{AuthMethod, AuthPlan, BasicPlan, JwtPlan, RequestPlan, TokenSource};
use crate::request_view::{FieldEffect, RequestView};
use crate::route::RouteRequest;
use crate::route::conditions::any_value_matches;

/// Maximum content of a denial that clients get; a longer one is replaced by the proxy's own line.
const DENIAL_BYTES_MAX: usize = 64 << 10;
/// Fields of a request that only describe the connection or the content, so the service does not get them.
const UNCOPIED_FIELDS: [&str; 6] =
    ["host", "content-length", "content-type", "content-encoding", "expect", "range"];

/// Progress of an authentication.
pub(super) enum AuthStep {
    Answered(Rc<AuthAnswer>),
    Waiting(PendingAnswer),
}

impl AuthStep {
    fn refused(result: AuthResult) -> Self {
        Self::Answered(Rc::new(AuthAnswer::refused(result)))
    }
}

/// Inputs of an authentication.
#[derive(Clone, Copy)]
struct AuthContext<'a> {
    core: &'a Rc<Core>,
    client: &'a ClientStream,
    auth: &'a AuthPlan,
    request: &'a RouteRequest<'a>,
    now: MonotonicTime,
}

impl Exchange {
    /// Begins the authentication of a request.
    pub(super) fn begin_auth(
        &self,
        core: &Rc<Core>,
        client: &ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        auth: &AuthPlan,
        now: MonotonicTime,
    ) -> AuthStep {
        let context = AuthContext { core, client, auth, request, now };
        match &auth.method {
            AuthMethod::Basic(plan) => context.begin_basic(plan),
            AuthMethod::Jwt(plan) => AuthStep::Answered(context.verify_token(plan)),
            AuthMethod::Request(plan) => self.begin_auth_request(context, generation, plan),
        }
    }

    fn begin_auth_request(
        &self,
        context: AuthContext<'_>,
        generation: &ConfigGeneration,
        plan: &RequestPlan,
    ) -> AuthStep {
        let digest = plan.cache_key.as_ref().map(|template| {
            let mut key = Vec::new();
            template.render_key(&self.request_values(generation, context.client, context.request), &mut key);
            context.digest(&[&key])
        });
        if let Some(answer) = digest.and_then(|digest| context.cached(&digest)) {
            return AuthStep::Answered(answer);
        }
        let Some(live) = &self.generation else { return AuthStep::refused(AuthResult::Unavailable) };
        let method = plan.method.as_deref().unwrap_or(context.request.method);
        let request = Subrequest {
            pool: plan.pool,
            kind: RequestKind::from_method(method),
            is_idempotent: matches!(method, "GET" | "HEAD"),
            message: context.auth_message(plan, method, generation),
            timeout_ns: plan.timeout_ns,
            content_bytes_max: DENIAL_BYTES_MAX,
            keeps_content: true,
        };
        let Ok(running) = subrequest::start(context.client, live, self.listener, request) else {
            return AuthStep::refused(AuthResult::Unavailable);
        };
        let (core, plan, auth) = (Rc::clone(context.core), plan.clone(), context.auth.clone());
        AuthStep::Waiting(Box::pin(async move {
            let answer = Rc::new(answer_of(running.await, &plan));
            let now = MonotonicTime::now();
            if let Some(digest) = digest.filter(|_| answer.result.is_allowed()) {
                keep(&core, &auth, digest, &answer, (now, now.saturating_add(auth.cache_ns)));
            }
            answer
        }))
    }
}

impl AuthContext<'_> {
    /// Returns the digest of credentials for this plan.
    fn digest(&self, parts: &[&[u8]]) -> CredentialDigest {
        let number = self.auth.number().to_le_bytes();
        let mut all: Vec<&[u8]> = vec![&number];
        all.extend_from_slice(parts);
        self.core.auth.tables().key.digest(&all)
    }

    fn cached(&self, digest: &CredentialDigest) -> Option<Rc<AuthAnswer>> {
        self.core.auth.tables().answers.borrow_mut().get(digest, self.now).map(Rc::clone)
    }

    fn begin_basic(&self, plan: &BasicPlan) -> AuthStep {
        let mut values = self.request.view.values("authorization");
        let credentials = match (values.next(), values.next()) {
            (None, _) => return AuthStep::refused(AuthResult::Missing),
            (Some(_), Some(_)) => return AuthStep::refused(AuthResult::Malformed),
            (Some(value), None) => match BasicCredentials::parse(value) {
                Ok(credentials) => credentials,
                Err(CredentialsFault::OtherScheme) => return AuthStep::refused(AuthResult::Missing),
                Err(CredentialsFault::Malformed) => return AuthStep::refused(AuthResult::Malformed),
            },
        };
        let users = plan.users.0.content();
        let is_known = users.find(credentials.name()).is_some();
        let hash = users.compared(credentials.name());
        // The hash is a part of the key: a result ends with the password that it is about. An unknown name costs the
        // same, and has no result.
        let digest = hash.map(|hash| {
            let (salt, hash) = hash.fingerprint();
            let name = credentials.name().as_bytes();
            self.core.auth.tables().key.digest(&[b"basic", name, credentials.password(), salt, hash])
        });
        if let Some(answer) = digest.and_then(|digest| self.cached(&digest)).filter(|_| is_known) {
            return AuthStep::Answered(answer);
        }
        let user: Box<str> = credentials.name().into();
        let check = PasswordCheck {
            is_known,
            hash: hash.cloned(),
            credentials,
            source: self.request.source,
            source_limit: plan.source_limit,
            user_limit: plan.user_limit,
        };
        let Some(checked) = submit(check, self.now) else {
            let mut busy = AuthAnswer::refused(AuthResult::Busy);
            busy.identity.user = user;
            busy.retry_after_s = 1;
            return AuthStep::Answered(Rc::new(busy));
        };
        let (core, auth) = (Rc::clone(self.core), self.auth.clone());
        AuthStep::Waiting(Box::pin(async move {
            // The threads live as long as the process.
            let (result, retry_after_s) = match checked.await {
                Ok(CheckedPassword { result, retry_after_s }) => (result, retry_after_s),
                Err(_) => (AuthResult::Busy, 1),
            };
            let mut answer = AuthAnswer::new(result, Identity { user, claims: None });
            answer.retry_after_s = retry_after_s;
            let answer = Rc::new(answer);
            if let Some(digest) = digest.filter(|_| result.is_allowed()) {
                let now = MonotonicTime::now();
                keep(&core, &auth, digest, &answer, (now, now.saturating_add(auth.cache_ns)));
            }
            answer
        }))
    }

    /// Verifies the token of a request, unless its result is still valid.
    fn verify_token(&self, plan: &JwtPlan) -> Rc<AuthAnswer> {
        let refused = |result| Rc::new(AuthAnswer::refused(result));
        let token = match token_of(self.request.view, &plan.token) {
            Ok(token) => token,
            Err(result) => return refused(result),
        };
        if token.len() > plan.rules.token_bytes_max {
            return refused(AuthResult::Malformed);
        }
        let Some(keys) = plan.keys.keys() else { return refused(AuthResult::NoKeys) };
        let digest = self.digest(&[&keys.number.to_le_bytes(), token]);
        if let Some(answer) = self.cached(&digest) {
            return answer;
        }
        let now_s = unix_ns() / SECOND_NS;
        let verified = match jwt::verify(token, &keys, &plan.rules, now_s) {
            Ok(verified) => verified,
            Err(result) => {
                if result == AuthResult::UnknownKey {
                    plan.keys.note_unknown_key();
                }
                return refused(result);
            }
        };
        let claims = verified.claims;
        let user = claims.text(&plan.user_claim).unwrap_or_default().into();
        let mut missing = plan.required.iter().filter(|condition| {
            let mut values = Vec::new();
            claims.visit(&condition.name, &mut |text| values.push(text.to_vec()));
            !any_value_matches(&condition.value, values.iter().map(Vec::as_slice))
        });
        if missing.next().is_some() {
            return Rc::new(AuthAnswer::new(AuthResult::Forbidden, Identity { user, claims: None }));
        }
        let answer =
            Rc::new(AuthAnswer::new(AuthResult::Allowed, Identity { user, claims: Some(Rc::new(claims)) }));
        let left_ns = verified.valid_until_s.saturating_sub(now_s).saturating_mul(SECOND_NS);
        let valid_until = self.now.saturating_add(left_ns.min(self.auth.cache_ns));
        keep(self.core, self.auth, digest, &answer, (self.now, valid_until));
        answer
    }

    /// Writes the request to the service that decides.
    fn auth_message(&self, plan: &RequestPlan, method: &str, generation: &ConfigGeneration) -> Vec<u8> {
        let (view, head) = (self.request.view, self.request.view.head);
        let mut out = Vec::with_capacity(1024);
        for part in [method.as_bytes(), b" ", plan.path.as_bytes(), b" HTTP/1.1\r\n"] {
            out.extend_from_slice(part);
        }
        let servers = &generation.plan.pools[plan.pool].servers;
        let default_host = servers.iter().next().map_or("", |server| &server.name);
        let host = head.host.filter(|host| !host.is_empty());
        encode::field(&mut out, "Host", host.unwrap_or(default_host).as_bytes());
        encode::field(&mut out, "X-Forwarded-Method", head.method.as_bytes());
        encode::field(&mut out, "X-Forwarded-Uri", &origin_form(head.method, self.request.target));
        let received_host = host.unwrap_or_default().as_bytes();
        let forwarded_host = view.value("x-forwarded-host").unwrap_or(received_host);
        encode::field(&mut out, "X-Forwarded-Host", forwarded_host);
        let scheme = if self.client.is_tls() { "https" } else { "http" };
        let proto = view.value("x-forwarded-proto").unwrap_or(scheme.as_bytes());
        encode::field(&mut out, "X-Forwarded-Proto", proto);
        let mut addresses: Vec<u8> = Vec::new();
        for value in view
            .values("x-forwarded-for")
            .map(<[u8]>::to_vec)
            .chain(self.request.source.map(|source| source.to_canonical().to_string().into_bytes()))
        {
            if !addresses.is_empty() {
                addresses.extend_from_slice(b", ");
            }
            addresses.extend_from_slice(&value);
        }
        if !addresses.is_empty() {
            encode::field(&mut out, "X-Forwarded-For", &addresses);
        }
        for header in head.headers {
            let is_copied = plan.request_fields.iter().any(|pattern| matches_removal(pattern, header.name))
                && view.verdict(header.name) == FieldEffect::Forwarded
                && !is_hop_by_hop(header.name)
                && !header.name.get(..12).is_some_and(|start| start.eq_ignore_ascii_case("x-forwarded-"))
                && !UNCOPIED_FIELDS.iter().any(|name| header.name.eq_ignore_ascii_case(name));
            if is_copied {
                encode::field(&mut out, header.name, header.value);
            }
        }
        if !matches!(method, "GET" | "HEAD") {
            encode::field_u64(&mut out, "Content-Length", 0);
        }
        encode::end_of_head(&mut out);
        out
    }
}

/// Keeps an answer that allows a request.
fn keep(
    core: &Core,
    auth: &AuthPlan,
    digest: CredentialDigest,
    answer: &Rc<AuthAnswer>,
    times: (MonotonicTime, MonotonicTime),
) {
    let cached = AuthAnswer {
        result: AuthResult::Cached,
        identity: answer.identity.clone(),
        server_lines: answer.server_lines.clone(),
        // Cookies of a session are set once.
        client_lines: Vec::new(),
        retry_after_s: 0,
        denial: None,
    };
    core.auth.tables().answers.borrow_mut().insert(digest, Rc::new(cached), times, auth.cache_entries);
}

fn token_of<'a>(view: &RequestView<'a>, source: &TokenSource) -> Result<&'a [u8], AuthResult> {
    let single = |name: &str| {
        let mut values = view.values(name);
        match (values.next(), values.next()) {
            (None, _) => Err(AuthResult::Missing),
            (Some(_), Some(_)) => Err(AuthResult::Malformed),
            (Some(value), None) => Ok(value.trim_ascii()),
        }
    };
    match source {
        TokenSource::Authorization => bearer_token(single("authorization")?).ok_or(AuthResult::Missing),
        TokenSource::Header(name) => single(name),
        TokenSource::Cookie(name) => {
            let found = cookies(view.ordinary_lines("cookie")).find(|cookie| cookie.name == name.as_bytes());
            found.map(|cookie| cookie.value).ok_or(AuthResult::Missing)
        }
    }
}

/// Returns the answer of a service: 2xx allows the request, 401, 403 and redirects deny it, and all else is a failure.
fn answer_of(response: Result<SubrequestResponse, SubrequestError>, plan: &RequestPlan) -> AuthAnswer {
    let Ok(response) = response else { return AuthAnswer::refused(AuthResult::Unavailable) };
    let mut slots = wire::header_slots();
    let limits = Limits { head_bytes_max: usize::MAX, ..Limits::default() };
    let parsed = wire::parse_response(&response.head, &limits, RequestKind::Other, &mut slots);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        return AuthAnswer::refused(AuthResult::Unavailable);
    };
    let lines = |names: &[Box<str>]| {
        let mut out = Vec::new();
        for header in head.headers {
            if names.iter().any(|name| matches_removal(name, header.name)) && !is_hop_by_hop(header.name) {
                encode::field(&mut out, header.name, header.value);
            }
        }
        out
    };
    match response.status {
        200..=299 => {
            let user = plan.user_field.as_ref().and_then(|name| wire::field_value(head.headers, name));
            let user = user.map(|user| String::from_utf8_lossy(user).into()).unwrap_or_default();
            AuthAnswer {
                server_lines: lines(&plan.server_fields),
                client_lines: lines(&plan.client_fields),
                ..AuthAnswer::new(AuthResult::Allowed, Identity { user, claims: None })
            }
        }
        301..=303 | 307 | 308 | 401 | 403 => {
            let content_type = wire::field_value(head.headers, "content-type").unwrap_or_default();
            let denial = Denial {
                status: response.status,
                content_type: String::from_utf8_lossy(content_type).into_owned(),
                content: if response.is_cut { Vec::new() } else { response.content },
            };
            AuthAnswer {
                client_lines: lines(&plan.denial_fields),
                denial: Some(denial),
                ..AuthAnswer::refused(AuthResult::Denied)
            }
        }
        _ => AuthAnswer::refused(AuthResult::Unavailable),
    }
}
