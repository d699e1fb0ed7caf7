//! Requests that waited before their action, and go on.

use std::rc::Rc;

use wire::{Limits, Parsed};

use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::PollContext;
use crate::exchange_state::Exchange;
use crate::plan::RouteSettings;
use crate::request_view::{CertificateField, RequestView};
use crate::route::RouteRequest;
use crate::suspended_request::SuspendedRequest;

/// A request that goes on, with its plan.
pub(super) struct Resumed<'a> {
    pub(super) generation: &'a ConfigGeneration,
    pub(super) request: &'a RouteRequest<'a>,
    pub(super) own: &'a Rc<RouteSettings>,
}

impl Exchange {
    /// Calls `go_on` with a request that waited. Returns false if its plan is missing, which is that of a route with
    /// settings.
    pub(super) fn resume_request(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &mut ClientStream,
        suspended: &SuspendedRequest,
        go_on: impl FnOnce(&mut Self, &mut PollContext<'_, '_>, &mut ClientStream, Resumed<'_>),
    ) -> bool {
        let (Some(generation), Some(own)) =
            (self.generation.as_ref().map(Rc::clone), self.own_settings.as_ref().map(Rc::clone))
        else {
            return false;
        };
        let listener = &generation.plan.listeners[self.listener];
        let mut slots = wire::header_slots();
        let limits = Limits { head_bytes_max: usize::MAX, ..listener.limits };
        // It was accepted before.
        let Ok(Parsed::Complete { head, .. }) = wire::parse_request(&suspended.head, &limits, &mut slots)
        else {
            return false;
        };
        let field_name = listener.tls.as_ref().and_then(|tls| tls.client_header.as_deref());
        let subject = field_name.and_then(|_| client.certificate_subject());
        let view = RequestView {
            head: &head,
            is_trusted: client.peer.is_trusted,
            forwarding: &own.forwarding,
            certificate: field_name.map(|name| CertificateField { name, subject: subject.as_deref() }),
        };
        let request = RouteRequest {
            listener: self.listener,
            method: head.method,
            target: &suspended.target,
            is_plain: suspended.is_plain,
            host: head.host,
            view: &view,
            source: client.peer.address,
        };
        go_on(self, ctx, client, Resumed { generation: &generation, request: &request, own: &own });
        true
    }
}
