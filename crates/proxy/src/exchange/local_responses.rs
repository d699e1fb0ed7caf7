//! Responses to requests that go to no server: those of a route's action, and those that the proxy owes itself.

use server_shell::plain_http::tls_expected_reason;
use wire::{RefusalKind, RequestHead};

use super::finish::{ALLOWED_METHODS, OwnResponse};
use super::texts::render_body;
use crate::acme_tokens::answer_to_challenge;
use crate::client_stream::{ClientStream, TimeoutKind};
use crate::config_generation::ConfigGeneration;
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ExchangeStage};
use crate::outcome::{EndPhase, EndReason};
use crate::plan::Action;
use crate::request_view::RequestView;
use crate::route::{RouteRequest, https_location};
use crate::template::TextTooLong;

impl Exchange {
    /// Responds as the final recipient of a request (RFC 9110 §7.6.2).
    pub(super) fn respond_as_last_hop(&mut self, core: &Core, client: &ClientStream, method: &str) {
        if method == "OPTIONS" {
            let fields: &[(&str, &[u8])] = &[("Allow", ALLOWED_METHODS.as_bytes())];
            let response = OwnResponse { status: 200, content_type: "", body: b"", fields };
            return self.respond(core, client, &response);
        }
        let body = b"405 Method Not Allowed: this proxy does not reflect requests\n";
        let response = OwnResponse { status: 405, content_type: "text/plain", body, fields: &[] };
        self.respond(core, client, &response);
    }

    /// Answers the challenge of an ACME server that validates a name of this proxy.
    pub(super) fn answer_challenge(&mut self, core: &Core, client: &ClientStream, target: &str) {
        let answer = answer_to_challenge(target).unwrap_or_default();
        let content_type = "application/octet-stream";
        let response = OwnResponse { status: 200, content_type, body: answer.as_bytes(), fields: &[] };
        self.respond(core, client, &response);
    }

    /// Responds to plain HTTP on a port for TLS with the address to use.
    pub(super) fn respond_to_plain_http(
        &mut self,
        core: &Core,
        client: &ClientStream,
        view: &RequestView<'_>,
    ) {
        let reason = tls_expected_reason(view.head.host, view.head.target);
        let body = format!("400 Bad Request: {reason}\n");
        let response =
            OwnResponse { status: 400, content_type: "text/plain", body: body.as_bytes(), fields: &[] };
        self.respond(core, client, &response);
        self.outcome.end = EndReason::PlainHttp;
    }

    pub(super) fn redirect_to_https(
        &mut self,
        core: &Core,
        client: &ClientStream,
        head: &RequestHead<'_, '_>,
        status: u16,
    ) {
        let location = https_location(head.host.unwrap_or_default(), head.target);
        self.redirect(core, client, status, &location);
    }

    fn redirect(&mut self, core: &Core, client: &ClientStream, status: u16, location: &[u8]) {
        let fields = &[("Location", location)];
        let response = OwnResponse { status, content_type: "text/plain", body: b"", fields };
        self.respond(core, client, &response);
    }

    /// Rejects the request. The connection stays open if possible.
    pub(super) fn reject(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        end: EndReason,
    ) {
        // The poll that follows handles the result.
        let _ = self.fail(ctx, client, end, EndPhase::Request);
    }

    #[cold]
    pub(super) fn refuse(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        kind: RefusalKind,
    ) {
        self.outcome.refusal = Some(kind);
        self.outcome.refusal_status = kind.status();
        self.reject(ctx, client, EndReason::BadRequest);
    }

    /// Performs an action that needs no server.
    pub(super) fn run_action(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
        action: &Action,
    ) {
        self.note_own_request_id(generation, request.view);
        match action {
            Action::Forward(_) | Action::Split(_) => {}
            Action::Files(_) => self.respond_from_files(ctx.core, client, generation, request),
            Action::Redirect { status, location } => {
                match location.location(&self.request_values(generation, client, request)) {
                    Ok(location) => self.redirect(ctx.core, client, *status, &location),
                    Err(TextTooLong) => self.refuse_long_text(ctx, client),
                }
            }
            Action::Return { status, content_type, body, .. } => {
                match render_body(body, content_type, &self.request_values(generation, client, request)) {
                    Ok(body) => {
                        let response =
                            OwnResponse { status: *status, content_type, body: &body, fields: &[] };
                        self.respond(ctx.core, client, &response);
                    }
                    Err(TextTooLong) => self.refuse_long_text(ctx, client),
                }
            }
            Action::Deny(status) => {
                self.outcome.refusal_status = *status;
                self.reject(ctx, client, EndReason::Denied);
            }
            Action::SilentDrop => self.reject(ctx, client, EndReason::SilentlyDropped),
            Action::Tarpit { delay_ns, status } => {
                self.outcome.refusal_status = *status;
                self.stage = ExchangeStage::Tarpit;
                client.arm(ctx, TimeoutKind::Tarpit, *delay_ns);
            }
        }
    }
}
