//! Rules for loads over TCP in user space.

use record::units::format_plural;
use record::validity::ValidityLevel;

use super::{Evidence, RuleResult};

/// Body above which the kernel's TCP costs less, measured in copy mode: at 1,000 bytes it costs more, at 2,500 less.
const LARGE_BODY_BYTES: u64 = 2_000;

pub(super) fn frames_lost(evidence: &Evidence<'_>) -> RuleResult {
    let transport = evidence.measured.transport.as_ref()?;
    let text = format!(
        "{} lost on this machine: receive ring full {}, fill ring empty {}, transmit ring full {}, other {}",
        format_plural(transport.lost(), "frame"),
        transport.receive_ring_full,
        transport.fill_ring_empty,
        transport.transmit_ring_full,
        transport.dropped
    );
    (transport.lost() > 0).then_some((ValidityLevel::Suspect, text))
}

pub(super) fn copies(evidence: &Evidence<'_>) -> RuleResult {
    let transport = evidence.measured.transport.as_ref()?;
    let driver = if transport.driver.is_empty() { "the driver" } else { &transport.driver };
    let text = format!(
        "AF_XDP in mode {} ({driver} has no zero-copy): each packet costs more than with a driver that has it",
        transport.mode
    );
    (!transport.is_zero_copy()).then_some((ValidityLevel::Suspect, text))
}

pub(super) fn large_bodies(evidence: &Evidence<'_>) -> RuleResult {
    evidence.measured.transport.as_ref()?;
    let counters = &evidence.measured.counters;
    // Bytes that are sent include heads, which are in the same segments.
    let bodies = [
        ("responses", counters.body_bytes.checked_div(counters.responses)),
        ("requests", counters.bytes_out.checked_div(counters.sent)),
    ];
    let large: Vec<String> = bodies
        .into_iter()
        .filter_map(|(name, mean)| Some(format!("{name} have {} bytes", mean.filter(is_large)?)))
        .collect();
    let text =
        format!("{} on average: above {LARGE_BODY_BYTES} the kernel's TCP costs less", large.join(" and "));
    (!large.is_empty()).then_some((ValidityLevel::Suspect, text))
}

fn is_large(mean: &u64) -> bool {
    *mean > LARGE_BODY_BYTES
}
