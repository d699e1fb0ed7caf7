//! Text forms of the counts of WebSocket, of event streams and of TCP in user space.

use std::collections::BTreeMap;

use record::histogram::LatencySummary;
use record::run::Run;
use record::units::{format_duration_ns, format_rate};

use super::summary::largest_counts;

/// Formats the counts of WebSocket; `None` for another load.
pub(super) fn format_websocket(run: &Run) -> Option<String> {
    let websocket = run.websocket.as_ref()?;
    let mut parts = vec![
        format!(
            "{}: {} received ({})",
            websocket.mode,
            plural(websocket.messages_received, "message"),
            format_rate(websocket.messages_per_s)
        ),
        format!("handshake p50 {}", format_duration_ns(websocket.handshake.p50_ns)),
    ];
    parts.extend(format_gap(&websocket.gap));
    let echoes = [
        ("lost", websocket.lost),
        ("duplicated", websocket.duplicated),
        ("reordered", websocket.reordered),
        ("altered", websocket.altered),
        ("late", websocket.late),
        ("unknown", websocket.unknown),
        ("pings", websocket.pings),
        ("abnormal closes", websocket.abnormal_closes),
        ("unclean closes", websocket.unclean_closes),
    ];
    parts.extend(counted(&echoes));
    if !websocket.close_codes.is_empty() {
        let codes = websocket.close_codes.iter().map(|(code, count)| (format!("{code}:"), *count));
        parts.push(format!("close codes {}", largest_counts(codes)));
    }
    parts.extend(format_faults(&websocket.faults));
    Some(parts.join(", "))
}

/// Formats the counts of TCP in user space; `None` for a load over the kernel's TCP.
pub(super) fn format_transport(run: &Run) -> Option<String> {
    let transport = run.transport.as_ref()?;
    let driver = if transport.driver.is_empty() { "unknown driver" } else { &transport.driver };
    let mut parts = vec![format!(
        "TCP in user space on {} ({driver}, {}): {} received",
        transport.interface,
        transport.mode,
        plural(transport.received, "frame")
    )];
    let counts = [
        ("sent again", transport.retransmitted),
        ("unusable", transport.unusable),
        ("lost here", transport.lost()),
        ("zero windows", transport.zero_windows),
        ("expired", transport.expired),
        ("invalid", transport.invalid),
        ("handed to another thread", transport.handed_over),
    ];
    parts.extend(counted(&counts));
    for (name, times) in [("handshakes", &transport.handshakes), ("round trips", &transport.round_trips)] {
        if times.count > 0 {
            let [mean, min, max] = [times.mean_ns, times.min_ns, times.max_ns].map(format_duration_ns);
            parts.push(format!("{name} {mean} (min {min}, max {max})"));
        }
    }
    Some(parts.join(", "))
}

/// Formats the counts of event streams; `None` for another load.
pub(super) fn format_event_stream(run: &Run) -> Option<String> {
    let stream = run.event_stream.as_ref()?;
    let mut parts =
        vec![format!("{} received ({})", plural(stream.events, "event"), format_rate(stream.events_per_s))];
    parts.extend(format_gap(&stream.gap));
    let counts = [
        ("lost", stream.lost),
        ("duplicated", stream.duplicated),
        ("reordered", stream.reordered),
        ("without number", stream.events.saturating_sub(stream.numbered)),
        ("streams ended", stream.ended),
        ("resumed", stream.resumed),
    ];
    parts.extend(counted(&counts));
    parts.extend(format_faults(&stream.faults));
    Some(parts.join(", "))
}

fn plural(count: u64, word: &str) -> String {
    record::units::format_plural(count, word)
}

fn counted(counts: &[(&str, u64)]) -> Vec<String> {
    counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}")).collect()
}

fn format_gap(gap: &LatencySummary) -> Option<String> {
    (gap.count > 0).then(|| {
        let [p50, p99, max] = [gap.p50_ns, gap.p99_ns, gap.max_ns].map(format_duration_ns);
        format!("gap p50 {p50}, p99 {p99}, max {max}")
    })
}

fn format_faults(faults: &BTreeMap<String, u64>) -> Option<String> {
    let counts = faults.iter().map(|(kind, count)| (kind.clone(), *count));
    (!faults.is_empty()).then(|| format!("faults: {}", largest_counts(counts)))
}
