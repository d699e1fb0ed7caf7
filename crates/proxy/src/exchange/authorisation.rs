//! Access to routes: responses to preflights of CORS, and authentication. The order is: actions that reject anyway,
//! preflights, rate limits, authentication, rate limits by what it found, the action.
//!
//! A request that waits for its authentication keeps its head, since the buffer that it came in serves others
//! meanwhile. `auth_methods` asks, and this file handles the answers.

use rt::clock::MonotonicTime;
use wire::encode;

use super::StepResult;
use super::auth_methods::AuthStep;
use super::finish::OwnResponse;
use super::suspended::Resumed;
use crate::auth::{AuthResult, Identity};
use crate::auth_core::{AuthAnswer, AuthWait, PendingAnswer, RequestAccess};
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::PollContext;
use crate::exchange_state::{Exchange, ExchangeStage};
use crate::outcome::EndReason;
use crate::plan::{AccessPlan, Action, AuthMethod, AuthPlan, CorsOrigins, CorsPlan, JwtPlan, RouteSettings};
use crate::request_view::RequestView;
use crate::route::{RetryAfterNs, RouteRequest};

impl Exchange {
    /// Performs the action of a route that is not open to all requests.
    #[cold]
    pub(super) fn follow_route_with_access(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        (own, access): (&RouteSettings, &AccessPlan),
        now: MonotonicTime,
    ) {
        let Some(route) = self.outcome.route else { return };
        let route_plan = &generation.plan.routes[route];
        if matches!(route_plan.action, Action::Deny(_) | Action::SilentDrop | Action::Tarpit { .. }) {
            return self.follow_route(ctx, client, generation, request, now);
        }
        // For the fields of a rejection.
        if let Some(texts) = &route_plan.texts {
            self.keep_values((generation, route), texts, client, request, &mut ctx.work.rng);
        }
        let mut state = Box::<RequestAccess>::default();
        if let Some(cors) = &access.cors {
            let origin = request.view.ordinary_value("origin");
            if let Some(asked_method) = preflight_method(request) {
                write_preflight_lines(cors, origin, asked_method, request.view, &mut state.client_lines);
                self.access = Some(state);
                let response = OwnResponse { status: 204, content_type: "", body: b"", fields: &[] };
                return self.respond(ctx.core, client, &response);
            }
            write_cors_lines(cors, origin, &mut state.client_lines);
        }
        let limited = self.take_rate_limit_tokens(ctx, client, generation, route, request, now);
        self.access = Some(state);
        if let Err((RetryAfterNs(wait_ns), status)) = limited {
            self.outcome.retry_after_s = wait_ns.div_ceil(1_000_000_000);
            self.outcome.refusal_status = status;
            return self.reject(ctx, client, EndReason::RateLimited);
        }
        let Some(auth) = &access.auth else {
            return self.follow_route_authorised(ctx, client, generation, request, own, now);
        };
        match self.begin_auth(ctx.core, client, generation, request, auth, now) {
            AuthStep::Answered(answer) => {
                self.follow_answer(ctx, client, generation, request, (own, auth), (&answer, now));
            }
            AuthStep::Waiting(answer) => self.wait_for_answer(request, answer),
        }
    }

    fn wait_for_answer(&mut self, request: &RouteRequest<'_>, answer: PendingAnswer) {
        let request = request.suspended();
        self.stage = ExchangeStage::Authorising(Box::new(AuthWait { request, answer }));
    }

    /// Waits for the answer to a request for authentication.
    pub(super) fn poll_authorising(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        input: &mut [u8],
    ) -> StepResult {
        let ExchangeStage::Authorising(wait) = &mut self.stage else { return StepResult::Blocked };
        let std::task::Poll::Ready(answer) = wait.answer.as_mut().poll(ctx.cx) else {
            return self.check_waiting_client(ctx, client, input);
        };
        // The client may have left just when the answer came.
        match self.check_waiting_client(ctx, client, input) {
            StepResult::Blocked => {}
            result => return result,
        }
        // Until the stage of what follows.
        let stage = std::mem::replace(&mut self.stage, ExchangeStage::Unused);
        let ExchangeStage::Authorising(wait) = stage else { return StepResult::Blocked };
        self.resume(ctx, client, &wait, &answer);
        StepResult::Progressed
    }

    /// Goes on with a request whose answer has come.
    fn resume(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        wait: &AuthWait,
        answer: &AuthAnswer,
    ) {
        let now = MonotonicTime::now();
        let is_resumed = self.resume_request(ctx, client, &wait.request, |exchange, ctx, client, resumed| {
            let Resumed { generation, request, own } = resumed;
            match own.access.as_ref().and_then(|access| access.auth.as_deref()) {
                Some(auth) => {
                    exchange.follow_answer(ctx, client, generation, request, (own, auth), (answer, now));
                }
                None => exchange.reject(ctx, client, EndReason::AuthUnavailable),
            }
        });
        if !is_resumed {
            self.reject(ctx, client, EndReason::AuthUnavailable);
        }
    }

    /// Performs the action of a request that is allowed, and responds to any other.
    fn follow_answer(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        (own, auth): (&RouteSettings, &AuthPlan),
        (answer, now): (&AuthAnswer, MonotonicTime),
    ) {
        generation.metrics.count_auth(auth.kind(), answer.result);
        let access = self.access.get_or_insert_default();
        if answer.result.is_allowed() {
            access.identity = answer.identity.clone();
            access.server_lines.extend_from_slice(&answer.server_lines);
            access.client_lines.extend_from_slice(&answer.client_lines);
            self.capture_identity_for_logs(ctx.core, client, request);
            return self.follow_route_authorised(ctx, client, generation, request, own, now);
        }
        // Logs have the name that was refused, too.
        let refused = Identity { user: answer.identity.user.clone(), claims: None };
        access.identity = refused;
        self.capture_identity_for_logs(ctx.core, client, request);
        let access = self.access.get_or_insert_default();
        write_challenge(auth, answer.result, &mut access.client_lines);
        self.outcome.retry_after_s = answer.retry_after_s;
        let end = end_of(answer.result);
        match answer.denial.as_ref().filter(|_| !self.facts.is_grpc) {
            None => {
                self.outcome.refusal_status = answer.denial.as_ref().map_or(0, |denial| denial.status);
                self.reject(ctx, client, end);
            }
            Some(denial) => {
                access.client_lines.extend_from_slice(&answer.client_lines);
                let content_type = &*denial.content_type;
                let response =
                    OwnResponse { status: denial.status, content_type, body: &denial.content, fields: &[] };
                self.respond(ctx.core, client, &response);
                self.outcome.end = end;
            }
        }
    }

    /// Performs the action of a request that may use its route.
    fn follow_route_authorised(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        own: &RouteSettings,
        now: MonotonicTime,
    ) {
        match own.compression {
            None => self.follow_route(ctx, client, generation, request, now),
            Some(_) => self.follow_route_with_codings(ctx, client, generation, request, now),
        }
    }

    /// Inserts the field lines of the authentication into the head for the server.
    #[cold]
    pub(super) fn insert_access_lines(&mut self) {
        let Some(access) = self.access.as_ref().filter(|access| !access.server_lines.is_empty()) else {
            return;
        };
        let head = self.request_relay.head_buffer();
        insert_lines(&access.server_lines, head);
    }
}

/// Inserts field lines at the end of a head.
pub(super) fn insert_lines(lines: &[u8], head: &mut Vec<u8>) {
    if !lines.is_empty() && head.ends_with(b"\r\n\r\n") {
        head.truncate(head.len() - 2);
        head.extend_from_slice(lines);
        encode::end_of_head(head);
    }
}

/// Returns the reason of the end of a request that was refused.
fn end_of(result: AuthResult) -> EndReason {
    match result {
        AuthResult::Forbidden => EndReason::Forbidden,
        AuthResult::Limited => EndReason::AuthLimited,
        AuthResult::Busy | AuthResult::NoKeys | AuthResult::Unavailable => EndReason::AuthUnavailable,
        _ => EndReason::Unauthorized,
    }
}

/// Writes `WWW-Authenticate` (RFC 9110 §11.6.1, RFC 6750 §3).
fn write_challenge(auth: &AuthPlan, result: AuthResult, out: &mut Vec<u8>) {
    let challenge = match (&auth.method, end_of(result)) {
        (AuthMethod::Basic(plan), EndReason::Unauthorized) => {
            format!("Basic realm=\"{}\", charset=\"UTF-8\"", plan.realm)
        }
        (AuthMethod::Jwt(JwtPlan { realm, .. }), end @ (EndReason::Unauthorized | EndReason::Forbidden)) => {
            let error = match (result, end) {
                // No reason for a client without a token (RFC 6750 §3.1).
                (AuthResult::Missing, _) => "",
                (_, EndReason::Forbidden) => ", error=\"insufficient_scope\"",
                _ => ", error=\"invalid_token\"",
            };
            format!("Bearer realm=\"{realm}\"{error}")
        }
        _ => return,
    };
    encode::field(out, "WWW-Authenticate", challenge.as_bytes());
}

/// Returns the method that a preflight asks for; `None`: the request is none.
fn preflight_method<'a>(request: &RouteRequest<'a>) -> Option<&'a [u8]> {
    let view = request.view;
    view.ordinary_value("origin").filter(|_| request.method == "OPTIONS")?;
    view.ordinary_value("access-control-request-method")
}

/// Writes the origin whose pages may read a response; false: none may.
fn write_cors_origin(cors: &CorsPlan, origin: Option<&[u8]>, out: &mut Vec<u8>) -> bool {
    let is_any = matches!(cors.origins, CorsOrigins::Any);
    match origin.filter(|origin| cors.allows(origin)) {
        None => return false,
        // A plan with credentials lists its origins.
        Some(_) if is_any => encode::field(out, "Access-Control-Allow-Origin", b"*"),
        Some(origin) => encode::field(out, "Access-Control-Allow-Origin", origin),
    }
    if cors.credentials {
        encode::field(out, "Access-Control-Allow-Credentials", b"true");
    }
    true
}

fn write_cors_lines(cors: &CorsPlan, origin: Option<&[u8]>, out: &mut Vec<u8>) {
    let is_allowed = write_cors_origin(cors, origin, out);
    if is_allowed && !cors.expose.is_empty() {
        encode::field(out, "Access-Control-Expose-Headers", cors.expose.as_bytes());
    }
    if !matches!(cors.origins, CorsOrigins::Any) {
        // Caches keep the response apart for each origin, also that to a request without one.
        encode::field(out, "Vary", b"Origin");
    }
}

fn write_preflight_lines(
    cors: &CorsPlan,
    origin: Option<&[u8]>,
    asked_method: &[u8],
    view: &RequestView<'_>,
    out: &mut Vec<u8>,
) {
    if write_cors_origin(cors, origin, out) {
        let methods = match &*cors.methods {
            // With credentials, `*` would be the name of a method.
            "*" if cors.credentials => asked_method,
            methods => methods.as_bytes(),
        };
        encode::field(out, "Access-Control-Allow-Methods", methods);
        let asked_headers = view.ordinary_value("access-control-request-headers");
        match (&cors.headers, asked_headers) {
            (Some(headers), _) => {
                encode::field(out, "Access-Control-Allow-Headers", headers.as_bytes());
            }
            (None, Some(asked)) => encode::field(out, "Access-Control-Allow-Headers", asked),
            (None, None) => {}
        }
        let mut digits = itoa::Buffer::new();
        encode::field(out, "Access-Control-Max-Age", digits.format(cors.max_age_s).as_bytes());
    }
    encode::field(out, "Vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers");
}
