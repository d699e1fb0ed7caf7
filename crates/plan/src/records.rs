//! Inputs from records: of a run, of a capacity search and of a calibration.

use record::capacity_search::{CapacitySearch, Scaling};
use record::run::Run;

use crate::inputs::Inputs;

const NS: f64 = 1e9;

/// Takes the inputs that the record of a run has; `inputs` keep the values that they have.
pub fn from_run(name: &str, run: &Run, inputs: &mut Inputs) {
    let source = |field: &str| format!("{name}: {field}");
    match run.rates.offered_per_s {
        Some(offered) => inputs.give_number("rate", offered, &source("rates.offered_per_s")),
        None => {
            inputs.give_number("rate", run.rates.responses_per_s, &source("rates.responses_per_s"));
        }
    }
    match &run.baseline {
        Some(baseline) if baseline.good > 0 => {
            inputs.give_number("service", baseline.mean_ns / NS, &source("baseline.mean_ns"));
        }
        _ => {
            let latency = &run.latency.last_byte.service;
            inputs.give_number("service", latency.mean_ns / NS, &source("latency.last_byte.service mean"));
        }
    }
    let totals = &run.totals;
    let per_response = |bytes: u64| bytes as f64 / totals.responses.max(1) as f64;
    if totals.responses > 0 {
        inputs.give_number(
            "response-size",
            per_response(totals.bytes_in),
            &source("totals.bytes_in / responses"),
        );
        inputs.give_number(
            "request-size",
            per_response(totals.bytes_out),
            &source("totals.bytes_out / responses"),
        );
    }
    let connections = &totals.connections;
    inputs.give_number("connections", connections.max_open as f64, &source("totals.connections.max_open"));
    if let Some(each) = run.plan["requests_per_connection"].as_f64() {
        inputs.give_number("requests-per-connection", each, &source("plan.requests_per_connection"));
    }
    if let Some(cpus) = run.cpu.subject_cpus {
        let per_request_s = cpus / run.rates.responses_per_s.max(1e-9);
        inputs.give_number("request-cpu", per_request_s, &source("cpu.subject_cpus / rates.responses_per_s"));
    }
    if let Some(sessions) = &run.tls {
        let resumed = sessions.resumed as f64;
        let all = (sessions.full + sessions.resumed) as f64;
        inputs.give_number("tls", 1.0, &source("tls"));
        inputs.give_number("tls-resume", resumed / all.max(1.0), &source("tls.resumed"));
    }
}

/// Takes the capacity of one server from a run at its limit: its rate, and the requests that it works on at a time.
pub fn from_ceiling(name: &str, rate_per_s: f64, slots: Option<f64>, inputs: &mut Inputs) {
    inputs.give_number("server-rate", rate_per_s, &format!("{name}: the limit of this load"));
    if let Some(slots) = slots {
        let source = format!("{name}: requests at a time at its limit");
        inputs.give_number("server-connections", slots, &source);
        inputs.give_number("service", slots / rate_per_s, &format!("{name}: time of each of them"));
    }
}

/// Takes the inputs that the record of a capacity search has: the capacity of one server, and its
/// response time without load.
pub fn from_search(name: &str, search: &CapacitySearch, inputs: &mut Inputs) {
    let source = |field: &str| format!("{name}: {field}");
    let level = search.conclusion.level.or(search.conclusion.lower);
    if let (Some(level), "rate") = (level, search.quantity.as_str()) {
        inputs.give_number("server-rate", level, &source("conclusion.level"));
    }
    if let Some(scaling) = &search.scaling {
        from_scaling(name, scaling, inputs);
    }
    if let Some(baseline) = search.baseline.as_ref().filter(|baseline| baseline.good > 0) {
        inputs.give_number("service", baseline.mean_ns / NS, &source("baseline.mean_ns"));
    }
    for objective in &search.objectives {
        let text = objective.split(',').next().unwrap_or_default().replace(' ', "");
        // Objectives of errors and rates are not objectives of a response time.
        let _ = inputs.give_texts("slo", &[text], &source("objectives"));
    }
    if let Some(run) = &search.at_edge {
        let totals = &run.totals;
        let size = totals.bytes_in as f64 / totals.responses.max(1) as f64;
        inputs.give_number("response-size", size, &source("at_edge.totals.bytes_in / responses"));
    }
}

/// Takes the concurrent requests with the highest throughput from the scaling law of a search.
fn from_scaling(name: &str, scaling: &Scaling, inputs: &mut Inputs) {
    if let Some(best) = &scaling.best_connections {
        let source = format!("{name}: scaling.best_connections");
        inputs.give_number("server-connections", best.value.round(), &source);
    }
}

/// Takes the capacity of a load generator from its calibration: `all_per_s`, per second.
pub fn from_calibration(name: &str, all_per_s: f64, inputs: &mut Inputs) {
    inputs.give_number("client-rate", all_per_s, &format!("{name}: all_per_s"));
}

#[cfg(test)]
mod tests {
    use record::capacity_search::Estimate;

    use super::*;

    #[test]
    fn a_run_at_its_limit_gives_the_capacity_of_a_server() {
        let mut inputs = Inputs::default();
        inputs.give_number("rate", 2860.0, "test");
        from_ceiling("run.json", 1430.0, Some(8.0), &mut inputs);
        let sizing = crate::sizing::Sizing::compute(&inputs);
        assert_eq!(sizing.value("maxconn"), Some(8.0));
        let per_server = sizing.value("capacity").unwrap() / sizing.value("slots").unwrap() * 8.0;
        assert!((per_server - 1430.0).abs() < 1e-6, "{per_server}");
    }

    #[test]
    fn the_scaling_law_of_a_search_bounds_the_requests_of_a_server() {
        let best = Estimate { value: 40.3, ..Estimate::default() };
        let scaling = Scaling { best_connections: Some(best), ..Scaling::default() };
        let mut inputs = Inputs::default();
        for (name, text) in [("rate", "8k"), ("service", "20ms"), ("server-rate", "5k")] {
            inputs.give_texts(name, &[text.to_owned()], "test").unwrap();
        }
        from_scaling("edge.json", &scaling, &mut inputs);
        assert!(inputs.get("server-connections").unwrap().source.contains("edge.json: scaling."));
        let sizing = crate::sizing::Sizing::compute(&inputs);
        // 5,000/s of 20 ms would be a hundred.
        assert_eq!(sizing.value("maxconn"), Some(40.0));
        inputs.give_number("maxconn", 100.0, "test");
        let sizing = crate::sizing::Sizing::compute(&inputs);
        assert!(
            sizing.findings.iter().any(|finding| finding.code == "limit_above_capacity"),
            "{:?}",
            sizing.findings
        );
    }
}
