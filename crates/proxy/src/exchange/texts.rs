//! Values for the texts of a request's route: of its fields, its own response and its keys. Nothing here runs
//! for a route whose texts are literal.

use std::borrow::Cow;
use std::cell::Cell;

use wire::{RefusalKind, ResponseHead};

use super::authorisation::insert_lines;
use crate::auth_core::RequestAccess;
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::{Core, PollContext};
use crate::exchange_state::{Exchange, ServerSlot};
use crate::forward::{
    CookieChanges, Origin, RequestParts, ResponseParts, write_request, write_response, write_response_changes,
};
use crate::log::append_captured;
use crate::outcome::NeededFields;
use crate::plan::{ResponseRule, RouteTexts, Text};
use crate::request_view::{AuthenticatedFacts, ClientFacts, RequestView};
use crate::route::RouteRequest;
use crate::route::conditions::ComparedPath;
use crate::route::values::{KeptValues, RequestValues, ResponseValues};
use crate::route::when::holds;
use crate::template::{Escape, TextTooLong, Values as _};

impl Exchange {
    /// Copies the values of the head that the formats of logs have.
    #[cold]
    pub(super) fn capture_for_logs(&mut self, core: &Core, client: &ClientStream, view: &RequestView<'_>) {
        let captured = core.captured_log_values();
        if captured.is_empty() {
            return;
        }
        let request = RouteRequest {
            listener: self.listener,
            method: view.head.method,
            target: view.head.target,
            is_plain: false,
            host: view.head.host,
            view,
            source: client.peer.address,
        };
        let values = RequestValues::without_plan(&request, client);
        self.outcome.note_captured(|out| {
            for (variable, name) in captured.iter().filter(|(variable, _)| !variable.needs_identity()) {
                append_captured(name, |out| values.append(variable, out), out);
            }
        });
    }

    /// Copies the values that the authentication of a request has found, and that the formats of logs have.
    #[cold]
    pub(super) fn capture_identity_for_logs(
        &mut self,
        core: &Core,
        client: &ClientStream,
        request: &RouteRequest<'_>,
    ) {
        if core.needed_fields() != NeededFields::All {
            return;
        }
        let captured = core.captured_log_values();
        let identity = self.access.as_ref().map(|access| &access.identity);
        let values = RequestValues::without_plan(request, client).with_identity(identity);
        self.outcome.note_captured(|out| {
            for (variable, name) in captured.iter().filter(|(variable, _)| variable.needs_identity()) {
                append_captured(name, |out| values.append(variable, out), out);
            }
        });
    }

    /// Keeps the values of a request that its later texts have.
    #[cold]
    pub(super) fn keep_values(
        &mut self,
        (generation, route): (&ConfigGeneration, usize),
        texts: &RouteTexts,
        client: &ClientStream,
        request: &RouteRequest<'_>,
        rng: &mut fastrand::Rng,
    ) {
        let mut kept = std::mem::take(&mut self.kept);
        if texts.uses_request_id {
            kept.request_id = super::begin::generate_request_id(rng);
        }
        let id = kept.request_id;
        let values = RequestValues::new(&generation.plan, request, client)
            .with_split_share(self.facts.split_share.into())
            .with_route(&generation.plan, route, generation.router.regex(route))
            .with_request_id(trusted_request_id(request.view).unwrap_or(&id))
            .with_identity(self.access.as_ref().map(|access| &access.identity));
        kept.keep(&texts.kept, &values);
        let identity = self.access.as_ref().map(|access| &access.identity);
        kept.held_rules = held_rules(texts, request, &AuthenticatedFacts { client, identity });
        self.kept = kept;
        if !texts.error_pages.is_empty() {
            self.note_accepted_forms(request.view);
        }
    }

    /// Writes the head for the server with values in its fields. Returns false if one is too long.
    #[cold]
    pub(super) fn write_head_with_values(
        &mut self,
        generation: &ConfigGeneration,
        client: &ClientStream,
        request: &RouteRequest<'_>,
        origin: Origin<'_>,
        parts: RequestParts<'_>,
    ) -> bool {
        let mut relay = std::mem::take(self.request_relay.head_buffer());
        let values = self.request_values(generation, client, request);
        let cookies = CookieChanges::with_removals(parts.cookies, parts.changes);
        let parts = RequestParts { values: Some(&values), cookies, ..parts };
        let id = write_request(request.view, origin, parts, &mut relay);
        let is_complete = !values.has_overflow();
        self.outcome.note_request_id(&relay[id]);
        if let Some(trace) = self.outcome.trace() {
            trace.context.write_fields(true, &mut relay);
        }
        *self.request_relay.head_buffer() = relay;
        self.request_relay.keep_sent();
        is_complete
    }

    pub(super) fn request_values<'a>(
        &'a self,
        generation: &'a ConfigGeneration,
        client: &'a ClientStream,
        request: &'a RouteRequest<'a>,
    ) -> RequestValues<'a> {
        let id = trusted_request_id(request.view).unwrap_or(&self.kept.request_id);
        let identity = self.access.as_ref().map(|access| &access.identity);
        let values = RequestValues::new(&generation.plan, request, client);
        let values = values.with_request_id(id).with_identity(identity);
        match self.outcome.route {
            Some(route) => values.with_split_share(self.facts.split_share.into()).with_route(
                &generation.plan,
                route,
                generation.router.regex(route),
            ),
            None => values,
        }
    }

    /// Writes the fields that a route with values sets in the proxy's own response.
    #[cold]
    pub(super) fn write_own_fields(&mut self, core: &Core, status: u16) {
        let route = self.generation.as_ref().zip(self.outcome.route);
        let Some(route) = route.map(|(generation, route)| &generation.plan.routes[route]) else { return };
        let Some(texts) = &route.texts else { return };
        let values = response_values(&self.kept, None, texts, status);
        let changes = texts.changes(status, self.kept.held_rules).unwrap_or(&route.changes);
        write_response_changes(changes, Some(&values), self.response_relay.head_buffer());
        if values.has_overflow.get() {
            core.count_long_text();
        }
        if let Some(access) = &self.access {
            self.response_relay.head_buffer().extend_from_slice(&access.client_lines);
        }
        self.kept.release();
    }

    /// Rejects a request one of whose texts is too long.
    #[cold]
    pub(super) fn refuse_long_text(&mut self, ctx: &mut PollContext<'_, '_>, client: &mut ClientStream) {
        ctx.core.count_long_text();
        self.refuse(ctx, client, RefusalKind::HeadTooLarge);
    }

    /// Notes the request id of a request that no server gets, if a text has it.
    pub(super) fn note_own_request_id(&mut self, generation: &ConfigGeneration, view: &RequestView<'_>) {
        let route = self.outcome.route.and_then(|route| generation.plan.routes[route].texts.as_ref());
        if route.is_some_and(|texts| texts.uses_request_id) {
            let id = self.kept.request_id;
            self.outcome.note_request_id(trusted_request_id(view).unwrap_or(&id));
        }
    }
}

/// Writes the head of a response with values in its fields.
#[cold]
pub(super) fn write_with_values(
    core: &Core,
    (kept, slot, access): (&mut KeptValues, Option<&ServerSlot>, Option<&RequestAccess>),
    texts: &RouteTexts,
    head: &ResponseHead<'_, '_>,
    parts: ResponseParts<'_>,
    out: &mut Vec<u8>,
) {
    let values = response_values(kept, slot, texts, head.status);
    let changes = texts.changes(head.status, kept.held_rules).unwrap_or(parts.changes);
    write_response(head, ResponseParts { changes, values: Some(&values), ..parts }, out);
    if let Some(access) = access.filter(|_| !head.is_informational()) {
        insert_lines(&access.client_lines, out);
    }
    if values.has_overflow.get() {
        core.count_long_text();
    }
    kept.release();
}

/// Returns the values of the response to a request whose route has texts with values.
fn response_values<'a>(
    kept: &'a KeptValues,
    slot: Option<&'a ServerSlot>,
    texts: &'a RouteTexts,
    status: u16,
) -> ResponseValues<'a> {
    let server = slot.map_or("", |slot| &*slot.pool.plan().servers[slot.server].name);
    ResponseValues { variables: &texts.kept, kept, status, server, has_overflow: Cell::new(false) }
}

/// Returns a bit for each rule for responses whose condition on the request holds.
fn held_rules(texts: &RouteTexts, request: &RouteRequest<'_>, client: &dyn ClientFacts) -> u8 {
    if texts.rules.is_empty() {
        return 0;
    }
    let (mut buffer, mut stripped_buffer) = (String::new(), String::new());
    let path = ComparedPath::new(request.target, &mut buffer, &mut stripped_buffer);
    let is_held = |rule: &ResponseRule| {
        let when = rule.when.as_ref();
        when.is_none_or(|when| holds(when, request, client, path))
    };
    let held = texts.rules.iter().enumerate().filter(|(_, rule)| is_held(rule));
    held.fold(0, |held, (index, _)| held | 1 << index)
}

/// Returns the content of a response of a route.
///
/// # Errors
/// It is too long.
pub(super) fn render_body<'a>(
    body: &'a Text,
    content_type: &str,
    values: &RequestValues<'_>,
) -> Result<Cow<'a, [u8]>, TextTooLong> {
    match body {
        Text::Literal(text) => Ok(Cow::Borrowed(text.as_bytes())),
        Text::Template(template) => {
            let mut out = Vec::new();
            template.render(values, Escape::from_content_type(content_type), &mut out)?;
            Ok(Cow::Owned(out))
        }
    }
}

fn trusted_request_id<'a>(view: &RequestView<'a>) -> Option<&'a [u8]> {
    let name = view.forwarding.request_id.as_ref().filter(|_| view.is_trusted)?;
    view.value(name).filter(|id| !id.is_empty())
}
