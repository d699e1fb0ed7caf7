//! Copies of a request for other pools: made from the head as the server gets it, and from the content as it
//! passes; sent as subrequests when the request is complete. Nothing here waits, and no result of a copy
//! reaches the request.

use std::rc::Rc;

use rt::clock::MonotonicTime;
use wire::{Framing, RequestKind};

use super::subrequest::{self, Subrequest};
use crate::client_stream::ClientStream;
use crate::config_generation::ConfigGeneration;
use crate::core::PollContext;
use crate::exchange_state::Exchange;
use crate::metrics::MirrorDrop;
use crate::mirror::{Comparison, MirrorCopy, MirrorPermit, MirroredRequest, copied_head};
use crate::plan::{MirrorPlan, RouteSettings};
use crate::relay::Batch;
use crate::route::RouteRequest;
use crate::route::when::is_in_percent;

/// Maximum content of a response that is read, so that its connection can be used again.
const DISCARDED_BYTES_MAX: usize = 1 << 20;

impl Exchange {
    /// Begins the copies of a request whose head is written, and sends them if it has no content.
    #[cold]
    pub(super) fn begin_mirrors(
        &mut self,
        ctx: &mut PollContext<'_, '_>,
        client: &ClientStream,
        generation: &ConfigGeneration,
        request: &RouteRequest<'_>,
    ) {
        let Some(own) = self.own_settings.clone().filter(|own| !own.mirrors.is_empty()) else { return };
        let (Some(generation_rc), Some(route)) = (self.generation.clone(), self.outcome.route) else {
            return;
        };
        // They have no end of their own.
        if self.facts.requests_upgrade || self.facts.kind == RequestKind::Connect {
            return;
        }
        let framing = request.view.head.framing;
        let mut copies = Vec::new();
        for (index, plan) in own.mirrors.iter().enumerate() {
            let percent = plan.current_percent();
            let is_selected = match &plan.key {
                None => ctx.work.rng.f64() * 100.0 < percent,
                Some(key) => is_in_percent(key, percent, request, client),
            };
            if !is_selected {
                continue;
            }
            let body_bytes = match framing {
                Framing::Length(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
                Framing::Chunked => plan.body_bytes_max,
                Framing::None | Framing::UntilClose => 0,
            };
            let head = self.request_relay.head_buffer();
            let permit = match body_bytes > plan.body_bytes_max {
                true => Err(MirrorDrop::BodyTooLarge),
                false => {
                    let load = &ctx.core.load.mirrors;
                    MirrorPermit::take(load, plan.in_flight_max, head.len() + body_bytes)
                }
            };
            match permit {
                Ok(permit) => copies.push(MirrorCopy {
                    comparison: Comparison::new(Rc::clone(&generation_rc), (route, index)),
                    head: copied_head(head, plan),
                    permit,
                }),
                Err(reason) => generation.metrics.count_mirror_drop((route, index), reason),
            }
        }
        if copies.is_empty() {
            return;
        }
        let is_chunked = framing == Framing::Chunked;
        let mirrored = MirroredRequest { copies, body: Vec::new(), is_chunked, sent: Vec::new() };
        self.mirrored = Some(Box::new(mirrored));
        if self.request_relay.is_received() {
            self.send_mirrors(client, &own);
        }
    }

    /// Copies the content of a batch, and sends the copies at the end of the request.
    #[cold]
    pub(super) fn mirror_content(&mut self, client: &ClientStream, input: &[u8], batch: &Batch) {
        let (Some(mirrored), Some(own)) = (&mut self.mirrored, self.own_settings.clone()) else { return };
        for piece in batch.pieces(input) {
            mirrored
                .push(piece, |comparison| plan_of(&own, comparison).map_or(0, |plan| plan.body_bytes_max));
        }
        if batch.is_last {
            self.send_mirrors(client, &own);
        }
    }

    fn send_mirrors(&mut self, client: &ClientStream, own: &RouteSettings) {
        let Some(mirrored) = &mut self.mirrored else { return };
        let sent_at = MonotonicTime::now();
        for MirrorCopy { comparison, head, permit } in std::mem::take(&mut mirrored.copies) {
            let Some(plan) = plan_of(own, &comparison) else { continue };
            let request = Subrequest {
                pool: plan.pool,
                kind: self.facts.kind,
                is_idempotent: self.facts.is_idempotent,
                message: mirrored.message(head),
                timeout_ns: plan.timeout_ns,
                content_bytes_max: DISCARDED_BYTES_MAX,
                keeps_content: false,
            };
            let Ok(running) = subrequest::start(client, &comparison.generation, self.listener, request)
            else {
                comparison.count_drop(MirrorDrop::InFlight);
                continue;
            };
            comparison.sent_at.set(sent_at);
            mirrored.sent.push(Rc::clone(&comparison));
            rt::tokio::task::spawn_local(async move {
                match running.await {
                    Ok(response) => comparison.note_copy(response.status, response.head_time),
                    Err(_) => comparison.note_copy(0, MonotonicTime::ZERO),
                }
                drop(permit);
            });
        }
        mirrored.body = Vec::new();
    }

    /// Reports the end of a request to the comparisons with its copies. Copies of an incomplete request are dropped.
    #[cold]
    pub(super) fn end_mirrors(&mut self) {
        let Some(mirrored) = self.mirrored.take() else { return };
        mirrored.copies.iter().for_each(|copy| copy.comparison.count_drop(MirrorDrop::Incomplete));
        for comparison in &mirrored.sent {
            comparison.note_original(self.outcome.status, self.outcome.times.first_byte);
        }
    }
}

fn plan_of<'a>(own: &'a RouteSettings, comparison: &Comparison) -> Option<&'a MirrorPlan> {
    own.mirrors.get(comparison.mirror.1)
}
