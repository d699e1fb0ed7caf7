//! Answer for a limit that rejects requests beyond a rate.

use record::run::Answer;
use record::units::{format_count, format_rate};

use super::answer;
use crate::facts::{Facts, format_number};
use crate::signals as s;
use crate::unit::{Unit, format_value};
use crate::window::SUBJECT;

/// Part of the admitted rate that a load below the limit takes.
const BELOW_LIMIT: f64 = 0.9;

pub(crate) fn rate_limited(facts: &Facts<'_>) -> Answer {
    let seconds_median = s::admitted(facts.view).map(|seconds| seconds.median());
    let admitted_per_s = seconds_median.unwrap_or_else(|| facts.view.goodput());
    answer(
        format!(
            "your service admits {} requests/s and rejects the rest with {}",
            format_number(admitted_per_s),
            rejection_status(facts)
        ),
        &[
            offered(facts),
            facts.phrase(&s::REJECTED, "{} of the failures are rejections"),
            seconds(facts),
            before_the_load(facts),
            facts.cpu_phrase("it uses {}"),
        ],
        &[
            place_of_limit(facts),
            format!(
                "or drive less to measure the service below it: `-R {}`",
                format_count((admitted_per_s * BELOW_LIMIT).floor().max(1.0)).replace(' ', "")
            ),
        ],
    )
}

/// Names the status of most rejections.
fn rejection_status(facts: &Facts<'_>) -> u16 {
    let status = &facts.view.run.totals.status;
    let bad = status.range(400..).max_by_key(|(_, count)| **count);
    bad.map_or(503, |(status, _)| *status)
}

/// Formats "800/s were offered, 300/s admitted, and 62 % rejected".
fn offered(facts: &Facts<'_>) -> String {
    let rates = &facts.view.run.rates;
    let (offered, verb) = match rates.offered_per_s {
        Some(offered) => (offered, "were offered"),
        None => (rates.responses_per_s, "were answered"),
    };
    let bad = 1.0 - facts.view.goodput() / rates.responses_per_s.max(1e-9);
    format!(
        "{} {verb}, and {} of the responses were rejections",
        format_rate(offered),
        format_value(bad.max(0.0), Unit::Fraction)
    )
}

/// Formats "each second admitted 299 to 301".
fn seconds(facts: &Facts<'_>) -> String {
    s::admitted(facts.view).map_or_else(String::new, |seconds| {
        let (low, high) = seconds.range();
        match format_number(low) == format_number(high) {
            true => format!("each second admitted {}", format_number(low)),
            false => format!("each second admitted {} to {}", format_number(low), format_number(high)),
        }
    })
}

/// Formats the good requests at the rate before the load.
fn before_the_load(facts: &Facts<'_>) -> String {
    let baseline = facts.view.run.baseline.as_ref().filter(|baseline| baseline.requests > 0);
    baseline.map_or_else(String::new, |baseline| {
        format!(
            "before the load, {} of {} requests sent one after the other ({}) were good",
            baseline.good,
            baseline.requests,
            format_rate(baseline.requests as f64 / baseline.duration_s.max(1e-3))
        )
    })
}

/// Names the setting of the program that answers, or of those that may.
fn place_of_limit(facts: &Facts<'_>) -> String {
    let machine = facts.view.machine(SUBJECT);
    let roles = machine.iter().flat_map(|machine| &machine.observed.roles);
    let command = roles.filter(|role| role.name == SUBJECT).map(|role| role.command.as_str()).next();
    let program = command.unwrap_or_default();
    let setting = match program {
        program if program.contains("nginx") => "`limit_req` in the config of nginx",
        program if program.contains("haproxy") => {
            "the stick table (`http_req_rate`, `gpc0_rate`) in the config of HAProxy"
        }
        program if program.contains("weir") && program.contains("proxy") => {
            "`rate-limit` of the route in the config of weir proxy"
        }
        _ => {
            return "raise the limit where it is set: a rate limiter (token bucket) in the service, or in a proxy before \
                    it (`limit_req` of nginx, a stick table of HAProxy, `rate-limit` of weir proxy)"
                .to_owned();
        }
    };
    format!("raise the limit where it is set: {setting}, or in the server behind it")
}
