//! Sizes of the proxy's machines: connections, descriptors, ports, memory, link, cores and clients.

use crate::inputs::InputKind::{BitRate, Bytes, Count, Number, Rate};
use crate::scaling::{MeasuredLaw, POINTS_SURE};

use super::Draft;

/// Descriptors for listeners, logs, checks and the event loops.
const DESCRIPTORS_RESERVED: f64 = 64.0;
/// Bytes of a TCP segment with the usual MTU and timestamps, and of its headers on Ethernet with gap.
const SEGMENT_BYTES: f64 = 1448.0;
const SEGMENT_OVERHEAD_BYTES: f64 = 90.0;
/// Utilisation of a load generator up to which it does not queue itself.
const CLIENT_UTILISATION: f64 = 0.5;

pub(super) fn size(draft: &mut Draft<'_>) {
    size_connections(draft);
    size_ports(draft);
    size_memory(draft);
    size_link(draft);
    size_cores(draft);
    if let Some(each) = draft.inputs.number("client-rate") {
        let clients = (draft.rate_per_s() / (CLIENT_UTILISATION * each)).ceil();
        draft.add(
            ("load", "load-clients", Count),
            clients,
            "rate / (0.5 * client-rate)",
            format!("{} / (0.5 * {each})", draft.rate_per_s()),
        );
    }
}

fn size_connections(draft: &mut Draft<'_>) {
    let (slots, queue) = (draft.slots() as f64, draft.value("queue-limit").unwrap_or(0.0));
    let requests = draft.add(
        ("proxy", "maxconn-global", Count),
        slots + queue,
        "slots + queue-limit",
        format!("{slots} + {queue}"),
    );
    let (rate, headroom) = (draft.rate_per_s(), draft.inputs.default_number("headroom"));
    if let Some(pool) = draft.pool() {
        let mean_s = pool.service_s + pool.mean_wait_s();
        let mean = (rate * mean_s * (1.0 + headroom)).min(requests);
        draft.add(
            ("proxy", "active-connections", Count),
            mean,
            "rate * (service + mean-wait) * (1 + headroom), at most maxconn-global",
            format!("{rate} * {:.4} s * {}", mean_s, 1.0 + headroom),
        );
    }
    let idle = size_idle(draft, requests);
    let fds = requests + idle + slots + DESCRIPTORS_RESERVED;
    draft.add(
        ("proxy", "descriptors", Count),
        (fds + (fds / 10.0).ceil()).ceil(),
        "(maxconn-global + idle-connections + slots + 64) * 1.1",
        format!("({requests} + {idle:.0} + {slots} + 64) * 1.1"),
    );
    if let Some(limit) = draft.inputs.number("fd-limit").filter(|limit| *limit < fds) {
        draft.find(
            "descriptors",
            format!("{fds:.0} are needed, fd-limit is {limit}: raise LimitNOFILE, or lower the queue"),
        );
    }
}

/// Computes the idle client connections beside those with `requests`.
fn size_idle(draft: &mut Draft<'_>, requests: f64) -> f64 {
    let (rate, headroom) = (draft.rate_per_s(), draft.inputs.default_number("headroom"));
    match (draft.inputs.number("connections"), draft.inputs.number("requests-per-connection")) {
        (Some(open), _) => draft.add(
            ("proxy", "idle-connections", Count),
            (open * (1.0 + headroom) - requests).max(0.0),
            "connections * (1 + headroom) - maxconn-global",
            format!("{open} * {} - {requests}", 1.0 + headroom),
        ),
        (None, Some(each)) => {
            let keep_s = draft.inputs.default_number("keep-alive");
            draft.add(
                ("proxy", "new-connections", Rate),
                rate / each,
                "rate / requests-per-connection",
                format!("{rate} / {each}"),
            );
            draft.add(
                ("proxy", "idle-connections", Count),
                rate / each * keep_s,
                "new-connections * keep-alive",
                format!("{} * {keep_s} s", rate / each),
            )
        }
        (None, None) => {
            draft.find(
                "missing_input",
                "idle client connections are not counted: give --requests-per-connection, or --connections",
            );
            0.0
        }
    }
}

fn size_ports(draft: &mut Draft<'_>) {
    let largest = draft.backends.iter().filter_map(|backend| backend.maxconn).max().unwrap_or(0) as f64;
    let servers: u64 = draft.backends.iter().map(|backend| backend.servers).sum();
    if largest == 0.0 {
        return;
    }
    let waiting = match draft.inputs.number("server-requests") {
        Some(each) => {
            let per_s = draft.rate_per_s() / each / servers.max(1) as f64;
            let time_wait_s = draft.inputs.default_number("time-wait");
            draft.add(
                ("proxy", "time-wait-ports", Count),
                per_s * time_wait_s,
                "rate / server-requests / servers * time-wait",
                format!("{per_s:.1}/s * {time_wait_s} s"),
            )
        }
        None => 0.0,
    };
    let needed = draft.add(
        ("proxy", "ports-per-server", Count),
        largest + waiting,
        "maxconn + time-wait-ports",
        format!("{largest} + {waiting:.0}"),
    );
    let have = draft.inputs.default_number("ports") * draft.inputs.default_number("source-addresses");
    if needed > have {
        draft.find("ports", format!(
            "{needed:.0} towards one server, ports * source-addresses is {have:.0}: keep connections, add source addresses, or widen ip_local_port_range"
        ));
    }
}

fn size_memory(draft: &mut Draft<'_>) {
    let inputs = draft.inputs;
    let number = |name: &str| inputs.default_number(name);
    let requests = draft.value("maxconn-global").unwrap_or(0.0);
    let (idle, slots) = (draft.value("idle-connections").unwrap_or(0.0), draft.slots() as f64);
    let user = requests * number("request-memory")
        + idle * number("idle-memory")
        + (requests + idle) * number("tls") * number("tls-memory");
    let kernel = (requests + idle + slots) * number("socket-memory");
    let bytes = draft.add(
        ("proxy", "memory-needed", Bytes),
        user + kernel,
        "maxconn-global * request-memory + idle-connections * idle-memory + both * tls * tls-memory + sockets * socket-memory, without socket buffers",
        format!("{} + {}", record::units::format_bytes(user), record::units::format_bytes(kernel)),
    );
    if let Some(memory) = inputs.number("memory").filter(|memory| *memory < bytes) {
        draft.find(
            "memory",
            format!(
                "{} are needed, memory is {}",
                record::units::format_bytes(bytes),
                record::units::format_bytes(memory)
            ),
        );
    }
}

fn size_link(draft: &mut Draft<'_>) {
    let Some(size) = draft.inputs.number("response-size") else { return };
    let size = size.max(draft.inputs.default_number("request-size"));
    let frame = size + (size / SEGMENT_BYTES).ceil() * SEGMENT_OVERHEAD_BYTES;
    let bits = draft.add(
        ("proxy", "link-needed", BitRate),
        draft.rate_per_s() * frame * 8.0,
        "rate * (larger of response-size and request-size, and 90 B for each 1448 B) * 8",
        format!("{} * {frame:.0} B * 8", draft.rate_per_s()),
    );
    if let Some(link) = draft.inputs.number("link").filter(|link| *link < bits) {
        draft.find(
            "link",
            format!(
                "{} are needed, link is {}",
                record::units::format_bit_rate(bits),
                record::units::format_bit_rate(link)
            ),
        );
    }
}

fn size_cores(draft: &mut Draft<'_>) {
    let inputs = draft.inputs;
    let (rate, most) = (draft.rate_per_s(), inputs.default_number("utilisation"));
    let points = inputs.scaling();
    let cores = if points.is_empty() {
        let mut busy = rate * inputs.default_number("request-cpu");
        if let (Some(each), tls) = (inputs.number("requests-per-connection"), inputs.default_number("tls"))
            && tls > 0.0
        {
            let resume = inputs.default_number("tls-resume");
            let handshakes = draft.add(
                ("proxy", "handshakes", Rate),
                rate / each * tls,
                "rate / requests-per-connection * tls",
                format!("{rate} / {each} * {tls}"),
            );
            let each_s = (1.0 - resume) * inputs.default_number("handshake-cpu")
                + resume * inputs.default_number("resumption-cpu");
            busy += draft.add(
                ("proxy", "handshake-cores", Number),
                handshakes * each_s,
                "handshakes * ((1 - tls-resume) * handshake-cpu + tls-resume * resumption-cpu)",
                format!("{handshakes:.0}/s * {each_s:.6} s"),
            );
        }
        Some(draft.add(
            ("proxy", "cores-needed", Count),
            (busy / most).ceil().max(1.0),
            "(rate * request-cpu + handshake-cores) / utilisation",
            format!("{busy:.3} / {most}"),
        ))
    } else {
        size_by_law(draft, &points, rate / most)
    };
    if let (Some(cores), Some(each)) = (cores, inputs.number("cores")) {
        let spare = inputs.default_number("spare");
        draft.add(
            ("proxy", "machines", Count),
            (cores / each).ceil() + spare,
            "cores-needed / cores + spare",
            format!("{cores} / {each} + {spare}"),
        );
    }
}

fn size_by_law(draft: &mut Draft<'_>, points: &[(f64, f64)], rate_per_s: f64) -> Option<f64> {
    let law = match MeasuredLaw::fit(points) {
        Ok(law) => law,
        Err(why) => {
            draft.find("missing_input", format!("the scaling law: {why}, with different numbers of cores"));
            return None;
        }
    };
    let (alpha, beta) = (law.law.alpha, law.law.beta);
    if points.len() < POINTS_SURE {
        draft.find(
            "few_points",
            format!(
                "{}, {POINTS_SURE} make it reliable",
                record::units::format_plural(points.len() as u64, "point")
            ),
        );
    }
    draft.add(
        ("proxy", "rate-of-one-core", Rate),
        law.law.gamma,
        "scaling law: gamma",
        format!("fit of scaling, alpha {alpha:.4}, beta {beta:.5}"),
    );
    if law.peak().is_finite() {
        draft.add(
            ("proxy", "cores-max-useful", Number),
            law.peak(),
            "sqrt((1 - alpha) / beta)",
            format!("alpha {alpha:.4}, beta {beta:.5}"),
        );
    }
    match law.number_for(rate_per_s) {
        Some(cores) => Some(draft.add(
            ("proxy", "cores-needed", Count),
            cores as f64,
            "smallest N with X(N) >= rate / utilisation, of the scaling law",
            format!("X({cores}) = {:.0}", law.law.throughput(cores as f64)),
        )),
        None => {
            draft.find("cores", format!(
                "rate / utilisation is {rate_per_s:.0}/s, the law gives at most {:.0}/s on one machine: use more machines",
                law.max_rate_per_s()
            ));
            None
        }
    }
}
