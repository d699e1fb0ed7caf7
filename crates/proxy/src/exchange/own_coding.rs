//! Compression of the proxy's own responses: those of `return`, and error pages. Their content is in memory and has at
//! most 64 KiB, so it is encoded at once, at a level that takes about a millisecond.

use content::compress::{encode, levels_of};
use content::memory_budget::encoder_bytes;
use wire::{Framing, Header, ResponseHead, Version};

use super::finish::OwnResponse;
use crate::core::Core;
use crate::exchange_state::Exchange;
use crate::forward::writes_own_response_field;
use crate::metrics::Metrics;
use crate::recoding::{CodingDecision, decide};

/// A content in the coding that its client prefers.
pub(super) struct OwnCoding {
    /// Fields that describe it.
    pub(super) fields: Vec<(&'static str, &'static [u8])>,
    /// The content; `None`: it stays as it is.
    pub(super) body: Option<Vec<u8>>,
}

impl Exchange {
    /// Encodes the content of a response of the proxy's own, if its route has compression. `None`: nothing changes.
    #[cold]
    pub(super) fn code_own(&self, core: &Core, response: &OwnResponse<'_>) -> Option<OwnCoding> {
        let plan = self.own_settings.as_ref()?.compression.as_ref()?;
        let generation = self.generation.as_ref()?;
        let changes = &generation.plan.routes[self.outcome.route?].changes;
        if response.body.is_empty() || !writes_own_response_field(changes, "content-encoding") {
            return None;
        }
        let head = ResponseHead {
            version: Version::Http11,
            status: response.status,
            reason: "",
            headers: &[Header { name: "Content-Type", value: response.content_type.as_bytes() }],
            framing: Framing::Length(response.body.len() as u64),
            keep_alive: true,
            upgrade: None,
            has_connection_options: false,
            received: b"",
        };
        let varies: (&'static str, &'static [u8]) = ("Vary", b"Accept-Encoding");
        let unchanged = OwnCoding { fields: vec![varies], body: None };
        let coding = match decide(&head, (self.facts.kind, self.facts.version), self.facts.codings, plan) {
            CodingDecision::Unchanged | CodingDecision::Decoded(_) => return None,
            CodingDecision::Varies => return Some(unchanged),
            CodingDecision::Coded(coding) => coding,
        };
        let level = plan.level(coding).min(levels_of(coding).0);
        let permit =
            core.memory.encoders.acquire_within(encoder_bytes(coding, level), plan.encoder_bytes_max);
        let Some(body) = permit.and_then(|_permit| encode(coding, level, response.body).ok()) else {
            core.update_metrics(Metrics::count_uncompressed);
            return Some(unchanged);
        };
        core.update_metrics(|metrics| {
            metrics.count_compressed(coding);
            metrics.count_compressed_bytes(response.body.len() as u64, body.len() as u64);
        });
        let fields = vec![("Content-Encoding", coding.name().as_bytes()), varies];
        Some(OwnCoding { fields, body: Some(body) })
    }
}
