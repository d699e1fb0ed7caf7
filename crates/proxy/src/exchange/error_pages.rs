//! Error pages: contents instead of the proxy's own line, and instead of the content of servers.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use wire::{Framing, Header, ResponseHead};

use super::StepResult;
use super::finish::OwnResponse;
use crate::accept::AcceptedForms;
use crate::client_stream::ClientStream;
use crate::core::{Core, PollContext};
use crate::exchange_state::Exchange;
use crate::outcome::{EndPhase, EndReason};
use crate::plan::{ErrorPage, PageContent, PageForm, Text};
use crate::request_view::RequestView;
use crate::route::values::ResponseValues;
use crate::template::Escape;

/// Fields of a server's response that stay when its content is replaced: what the status needs, and cookies.
const KEPT_FIELDS: [&str; 5] =
    ["www-authenticate", "proxy-authenticate", "allow", "retry-after", "set-cookie"];
/// Maximum number of such field lines.
const KEPT_FIELDS_MAX: usize = 16;

impl Exchange {
    /// Notes the forms of a page that the client accepts.
    #[cold]
    pub(super) fn note_accepted_forms(&mut self, view: &RequestView<'_>) {
        let lines = view.ordinary_lines("accept").iter();
        let values = lines.filter(|line| line.name.eq_ignore_ascii_case("accept")).map(|line| line.value);
        self.facts.accepted_forms = AcceptedForms::from_lines(values);
    }

    /// Responds with the error page for a status. Returns false if there is none.
    #[cold]
    pub(super) fn write_error_page(
        &mut self,
        core: &Core,
        client: &ClientStream,
        status: u16,
        fields: &[(&str, &[u8])],
    ) -> bool {
        let Some(generation) = self.generation.as_ref().map(Rc::clone) else { return false };
        let route = self.outcome.route.map(|route| &generation.plan.routes[route]);
        let texts = route.and_then(|route| route.texts.as_deref());
        let pages = texts.map_or(&generation.plan.error_pages, |texts| &texts.error_pages);
        let Some(page) = ErrorPage::find(pages, status) else { return false };
        let is_there = |form: PageForm| page.contents[form as usize].is_some();
        let Some(form) = self.facts.accepted_forms.choose(is_there) else { return false };
        let Some(content) = &page.contents[form as usize] else { return false };
        let variables = texts.map_or(&[][..], |texts| &texts.kept);
        let slot = self.slot.as_ref();
        let server = slot.map_or("", |slot| &*slot.pool.plan().servers[slot.server].name);
        let values =
            ResponseValues { variables, kept: &self.kept, status, server, has_overflow: Cell::new(false) };
        let Some(body) = render(content, form, &values) else {
            core.count_long_text();
            return false;
        };
        let content_type = form.content_type();
        self.respond(core, client, &OwnResponse { status, content_type, body: &body, fields });
        true
    }

    /// Replaces the content of a server's response by the page for its status. `None`: there is none. The
    /// connection stays open if the content has arrived whole.
    #[cold]
    pub(super) fn replace_content(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        head: &ResponseHead<'_, '_>,
        after_head: &[u8],
    ) -> Option<StepResult> {
        let own = self.own_settings.as_ref()?;
        if !own.replaced.as_ref()?.contains(head.status) || self.facts.is_grpc {
            return None;
        }
        let mut fields = Vec::new();
        for Header { name, value } in head.headers.iter().copied() {
            if KEPT_FIELDS.iter().any(|kept| name.eq_ignore_ascii_case(kept))
                && fields.len() < KEPT_FIELDS_MAX
            {
                fields.push((name, value));
            }
        }
        if !self.write_error_page(ctx.core, client, head.status, &fields) {
            return None;
        }
        self.outcome.end = EndReason::Done;
        self.outcome.phase = EndPhase::Over;
        let is_whole = match head.framing {
            Framing::None => after_head.is_empty(),
            Framing::Length(bytes) => usize::try_from(bytes).is_ok_and(|bytes| bytes == after_head.len()),
            Framing::Chunked | Framing::UntilClose => false,
        };
        self.attempt.keeps_server = head.keep_alive && is_whole;
        if self.attempt.keeps_server && self.request_relay.is_done() {
            self.release_server(ctx, client);
        } else {
            self.server = None;
            self.release_slot(&mut ctx.work.rng);
        }
        client.disarm();
        Some(StepResult::Progressed)
    }
}

/// Returns the content of a page; `None`: it is too long with its values.
fn render<'a>(
    content: &'a PageContent,
    form: PageForm,
    values: &ResponseValues<'_>,
) -> Option<Cow<'a, [u8]>> {
    match &content.text {
        Text::Literal(text) => Some(Cow::Borrowed(text.as_bytes())),
        Text::Template(template) => {
            let mut out = Vec::new();
            let escape = Escape::from_content_type(form.content_type());
            template.render(values, escape, &mut out).ok().map(|()| Cow::Owned(out))
        }
    }
}
