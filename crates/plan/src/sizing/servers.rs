//! Servers and their slots: capacity, utilisation and waiting.

use crate::backend::Backend;
use crate::inputs::InputKind::{Count, Fraction, Rate, Time};
use crate::queueing::{SlotPool, service_quantile_s, slots_for_wait};

use super::{Draft, time};

/// Percentile of the wait without an objective.
const QUANTILE_DEFAULT: f64 = 0.99;

pub(super) fn size(draft: &mut Draft<'_>) {
    choose_limits(draft);
    let slots = draft.slots();
    let unbounded: Vec<String> = draft
        .backends
        .iter()
        .filter(|backend| backend.maxconn.is_none())
        .map(|backend| backend.name.clone())
        .collect();
    for name in unbounded {
        draft.find(
            "unbounded_backend",
            format!(
                "{name}: when its servers slow down, its requests take every connection of the proxy; \
             give it a limit: --backend {name}=SERVERSxMAXCONN"
            ),
        );
    }
    if slots == 0 {
        draft.find("missing_input", "no slots: give --backend, or --maxconn, or --service and --servers");
        return;
    }
    let parts =
        draft.backends.iter().filter_map(|backend| Some(format!("{}*{}", backend.servers, backend.maxconn?)));
    let parts = parts.collect::<Vec<_>>().join(" + ");
    draft.add(("servers", "slots", Count), slots as f64, "sum of servers * maxconn", parts);
    let rate = draft.rate_per_s();
    draft.add(
        ("servers", "service-max", Time),
        slots as f64 / rate,
        "slots / rate",
        format!("{slots} / {rate}"),
    );
    let Some(pool) = draft.pool() else {
        draft.find("missing_input", "utilisation, waiting and drain need the service time: give --service");
        return;
    };
    size_pool(draft, &pool);
    size_backends(draft, pool.service_s);
    size_servers(draft, &pool);
}

/// Returns the percentile and the wait that the objective leaves.
fn wait_limit(draft: &Draft<'_>, pool: &SlotPool) -> (f64, f64) {
    match draft.inputs.objective() {
        Some(objective) => {
            let service_s = service_quantile_s(pool.service_s, pool.service_cv, objective.quantile);
            (objective.quantile, objective.limit_s - service_s)
        }
        None => (QUANTILE_DEFAULT, pool.service_s),
    }
}

/// Chooses the limits of a plan with a single backend that has none.
fn choose_limits(draft: &mut Draft<'_>) {
    if !draft.backends.is_empty() {
        return;
    }
    let inputs = draft.inputs;
    let pool = draft.pool();
    let given = |name: &str| inputs.number(name).map(|value| value as u64);
    let maxconn = given("maxconn").or_else(|| limit_by_capacity(draft, pool.as_ref()));
    let needed = pool.and_then(|pool| {
        let (quantile, limit_s) = wait_limit(draft, &pool);
        slots_for_wait(&pool, quantile, limit_s.max(0.0))
    });
    let spare = inputs.default_number("spare") as u64;
    let servers = match (given("servers"), maxconn, needed) {
        (Some(servers), ..) => servers,
        (None, Some(maxconn), Some(needed)) => {
            let servers = needed.div_ceil(maxconn);
            draft.add(
                ("servers", "servers", Count),
                (servers + spare) as f64,
                "slots for the objective / maxconn + spare",
                format!("{needed} / {maxconn} + {spare}"),
            );
            servers + spare
        }
        (None, None, Some(_)) => {
            draft.add(("servers", "servers", Count), (1 + spare) as f64, "1 + spare", format!("1 + {spare}"))
                as u64
        }
        _ => 1,
    };
    let maxconn = maxconn.or_else(|| {
        let needed = needed?;
        let carrying = servers.saturating_sub(spare).max(1);
        let maxconn = needed.div_ceil(carrying);
        draft.add(
            ("servers", "maxconn", Count),
            maxconn as f64,
            "slots for the objective / (servers - spare)",
            format!("{needed} / {carrying}"),
        );
        Some(maxconn)
    });
    if let Some(maxconn) = maxconn {
        let backend = Backend {
            name: "app".to_owned(),
            servers,
            maxconn: Some(maxconn),
            rate_per_s: None,
            service_s: None,
        };
        draft.backends.push(backend);
    }
}

/// Returns the concurrent requests that a server of known capacity can use.
fn limit_by_capacity(draft: &mut Draft<'_>, pool: Option<&SlotPool>) -> Option<u64> {
    let (rate, pool) = (draft.inputs.number("server-rate")?, pool?);
    let by_rate = (rate * pool.service_s).ceil().max(1.0);
    let maxconn = match draft.inputs.number("server-connections").filter(|peak| *peak < by_rate) {
        Some(peak) => draft.add(
            ("servers", "maxconn", Count),
            peak.floor().max(1.0),
            "the lower of server-rate * service and server-connections",
            format!("min({by_rate}, {peak:.0})"),
        ),
        None => draft.add(
            ("servers", "maxconn", Count),
            by_rate,
            "server-rate * service",
            format!("{rate} * {}", time(pool.service_s)),
        ),
    };
    Some(maxconn as u64)
}

fn size_pool(draft: &mut Draft<'_>, pool: &SlotPool) {
    let (rate, service) = (pool.rate_per_s, time(pool.service_s));
    draft.add(
        ("servers", "busy-slots", Count),
        pool.erlangs(),
        "rate * service (Little)",
        format!("{rate} * {service}"),
    );
    draft.add(
        ("servers", "capacity", Rate),
        pool.capacity_per_s(),
        "slots / service",
        format!("{} / {service}", pool.slots),
    );
    let utilisation = pool.utilisation();
    draft.add(
        ("servers", "utilisation-of-slots", Fraction),
        utilisation,
        "busy-slots / slots",
        format!("{:.1} / {}", pool.erlangs(), pool.slots),
    );
    if utilisation >= 1.0 {
        draft.find("overloaded", format!(
            "the slots take {} of {}: {:.0} slots would be full, more are needed, or a shorter service time",
            record::units::format_rate(pool.capacity_per_s()), record::units::format_rate(rate), pool.erlangs()
        ));
    }
    draft.add(
        ("servers", "wait-probability", Fraction),
        pool.wait_probability(),
        "Erlang C (slots, busy-slots)",
        format!("C({}, {:.1})", pool.slots, pool.erlangs()),
    );
    let (quantile, _) = wait_limit(draft, pool);
    draft.add(
        ("servers", "mean-wait", Time),
        pool.mean_wait_s(),
        "wait-probability / (capacity - rate) * (arrival-cv^2 + service-cv^2) / 2",
        format!(
            "{:.4} / {:.0}/s * {:.2}",
            pool.wait_probability(),
            pool.capacity_per_s() - rate,
            f64::midpoint(pool.arrival_cv.powi(2), pool.service_cv.powi(2))
        ),
    );
    draft.add(
        ("servers", "wait-percentile", Time),
        pool.wait_quantile_s(quantile),
        "ln(wait-probability / (1 - percentile)) / (capacity - rate) * (arrival-cv^2 + service-cv^2) / 2",
        format!("p{}", quantile * 100.0),
    );
    check_objective(draft, pool);
}

/// Compares the response time at the percentile with the objective.
fn check_objective(draft: &mut Draft<'_>, pool: &SlotPool) {
    let Some(objective) = draft.inputs.objective() else { return };
    let (quantile, limit_s) = wait_limit(draft, pool);
    let wait_s = pool.wait_quantile_s(quantile);
    let service_s = service_quantile_s(pool.service_s, pool.service_cv, quantile);
    let response_s = service_s + wait_s;
    draft.add(
        ("servers", "response-percentile", Time),
        response_s,
        "percentile of service (service-cv) + wait-percentile, an upper bound for slo",
        format!("{} + {}", time(service_s), time(wait_s)),
    );
    if limit_s < 0.0 {
        draft.find("objective_below_service", format!(
            "the service time alone takes {} of {}: no queue or server helps, only faster servers, or --service-cv of the real one",
            time(service_s), time(objective.limit_s)
        ));
    } else if response_s > objective.limit_s && pool.utilisation() < 1.0 {
        draft.find(
            "objective_missed",
            format!(
                "{} at the percentile, {} allowed: add slots or servers",
                time(response_s),
                time(objective.limit_s)
            ),
        );
    }
}

/// Checks backends that have a rate or a service time of their own.
fn size_backends(draft: &mut Draft<'_>, service_s: f64) {
    for backend in draft.backends.clone() {
        let (Some(slots), Some(rate)) = (backend.slots(), backend.rate_per_s) else { continue };
        let erlangs = rate * backend.service_s.unwrap_or(service_s);
        if erlangs >= slots as f64 {
            draft.find(
                "overloaded",
                format!("{}: {rate}/s need {erlangs:.1} slots, it has {slots}", backend.name),
            );
        }
    }
}

/// Computes the servers with their spare, if all are equal.
fn size_servers(draft: &mut Draft<'_>, pool: &SlotPool) {
    let [Backend { servers, maxconn: Some(maxconn), .. }] = draft.backends[..] else { return };
    let (quantile, limit_s) = wait_limit(draft, pool);
    let spare = draft.inputs.default_number("spare") as u64;
    if let Some(needed) = slots_for_wait(pool, quantile, limit_s.max(0.0)) {
        let carrying = needed.div_ceil(maxconn);
        draft.add(
            ("servers", "servers-needed", Count),
            (carrying + spare) as f64,
            "slots for the objective / maxconn + spare",
            format!("{needed} / {maxconn} + {spare}"),
        );
        if servers < carrying + spare && servers >= carrying {
            draft.find(
                "spare",
                format!(
                    "the rate needs all of the {}, so none may fail: plan {}",
                    record::units::format_plural(servers, "server"),
                    carrying + spare
                ),
            );
        }
    }
    if let Some(peak) = draft.inputs.number("server-connections").filter(|peak| maxconn as f64 > *peak) {
        draft.find("limit_above_capacity", format!(
            "maxconn {maxconn} is beyond the {peak:.0} concurrent requests with the highest throughput of a server, by its scaling law: more only wait there"
        ));
    }
    if let Some(rate) = draft.inputs.number("server-rate") {
        let limited = maxconn as f64 / pool.service_s;
        if limited > rate * 1.2 {
            draft.find("limit_above_capacity", format!(
                "maxconn {maxconn} lets a server take {limited:.0}/s, its capacity is {rate:.0}/s: maxconn {:.0} protects it",
                (rate * pool.service_s).ceil()
            ));
        }
    }
}
