//! Tests of complete plans, with the sums and tables of real systems.

use super::*;

fn inputs(given: &[(&str, &str)]) -> Inputs {
    let mut inputs = Inputs::default();
    for (name, text) in given {
        inputs.give_texts(name, &[(*text).to_owned()], "test").unwrap();
    }
    inputs
}

fn plan(given: &[(&str, &str)]) -> Sizing {
    Sizing::compute(&inputs(given))
}

fn codes(sizing: &Sizing) -> Vec<&str> {
    sizing.findings.iter().map(|finding| finding.code).collect()
}

/// The ten backends of a real proxy, 4,000 requests per second and queues of five seconds: the sum by
/// hand was 1,818 slots and 20,000 queued requests.
#[test]
fn the_sum_of_ten_backends_is_that_by_hand() {
    let backends = ["18x2", "240x1", "96x2", "48x4", "48x2", "110x3", "30x4", "7x11", "3x4", "1x523"];
    let mut inputs =
        inputs(&[("rate", "4k"), ("queue-time", "5s"), ("client-timeout", "10s"), ("retries", "3")]);
    let mut texts: Vec<String> = backends.map(str::to_owned).into();
    texts.extend(["pulse=3".to_owned(), "custnotif=2".to_owned()]);
    inputs.give_texts("backend", &texts, "test").unwrap();
    let sizing = Sizing::compute(&inputs);
    let values =
        ["slots", "queue-limit", "maxconn-global", "descriptors"].map(|name| sizing.value(name).unwrap());
    assert_eq!(values, [1818.0, 20_000.0, 21_818.0, 26_070.0]);
    // Slower than that on average, the servers are overloaded without any stall.
    assert_eq!(sizing.value("service-max"), Some(0.4545));
    assert_eq!(codes(&sizing).iter().filter(|code| **code == "unbounded_backend").count(), 2);
    assert!(codes(&sizing).contains(&"retries") && sizing.has_error());
}

/// Rates of HAProxy by vCPU as measured with ab: 100 connections, 7,405 bytes a response.
#[test]
fn the_table_of_vcpus_is_reproduced() {
    for (rate, latency_ms) in
        [("30309.51", 3.299), ("28157.55", 3.551), ("27908.28", 3.583), ("9185.48", 10.887)]
    {
        let sizing = plan(&[
            ("rate", rate),
            ("service", &format!("{latency_ms}ms")),
            ("servers", "5"),
            ("maxconn", "1000"),
            ("response-size", "7405"),
        ]);
        let busy = sizing.value("busy-slots").unwrap();
        assert!((busy - 100.0).abs() < 0.05, "{rate}: {busy} of 100 connections");
    }
    let sizing = plan(&[("rate", "30309.51"), ("response-size", "7405")]);
    let gbits = sizing.value("link-needed").unwrap() / 1e9;
    // 2.11 Gbit/s were measured, both sides and the requests included.
    assert!((1.8..2.11).contains(&gbits), "{gbits}");
    // More than four vCPUs gained nothing; 18,000 a second need two, 28,000 four of them.
    let points = "1:9185,4:28157,4:27908,8:30310";
    let cores = |rate: &str, utilisation: &str| {
        plan(&[("rate", rate), ("scaling", points), ("utilisation", utilisation)]).value("cores-needed")
    };
    assert_eq!((cores("17k", "100%"), cores("27k", "100%")), (Some(2.0), Some(4.0)));
    assert_eq!(cores("27k", "70%"), None);
    let peak = plan(&[("rate", "9k"), ("scaling", points)]).value("cores-max-useful").unwrap();
    assert!((5.0..8.0).contains(&peak), "{peak}");
    // TLS: 1,690 new connections a second took four vCPUs, 2.37 ms each.
    let tls = [
        ("rate", "1690"),
        ("requests-per-connection", "1"),
        ("tls", "100%"),
        ("handshake-cpu", "2.37ms"),
        ("request-cpu", "1ns"),
        ("utilisation", "100%"),
    ];
    let sizing = plan(&tls);
    assert!((sizing.value("handshake-cores").unwrap() - 4.0).abs() < 0.01);
}

#[test]
fn limits_follow_from_the_objective() {
    let sizing = plan(&[("rate", "1k"), ("service", "20ms"), ("servers", "4"), ("slo", "p99<150ms")]);
    let maxconn = sizing.backends[0].maxconn.unwrap();
    // Three of the four have to carry 20 erlangs.
    assert!((8..=10).contains(&maxconn), "{maxconn}");
    assert!(!sizing.has_error(), "{:?}", sizing.findings);
    assert!(sizing.value("response-percentile").unwrap() <= 0.15);
    let more = plan(&[("rate", "1k"), ("service", "20ms"), ("server-rate", "250"), ("slo", "p99<150ms")]);
    assert_eq!((more.value("maxconn"), more.backends[0].servers), (Some(5.0), 6));
}

#[test]
fn what_is_unstable_is_an_error() {
    let base = [("rate", "1k"), ("service", "20ms"), ("servers", "2"), ("maxconn", "10")];
    let sizing = plan(&base);
    assert!(codes(&sizing).contains(&"overloaded") && sizing.has_error());
    assert!(sizing.value("drain-time").unwrap().is_infinite());
    let with = |more: &[(&str, &str)]| {
        let base = [("rate", "1k"), ("service", "20ms"), ("servers", "2"), ("maxconn", "20")];
        codes(&plan(&[more, &base[..]].concat())).join(" ")
    };
    for (more, code) in [
        (("slo", "p99<50ms"), "objective_below_service"),
        (("slo", "p99<93ms"), "objective_missed"),
        (("queue-time", "5s"), "queue_longer_than_clients_wait"),
        (("fd-limit", "100"), "descriptors"),
        (("ports", "10"), "ports"),
        (("memory", "1m"), "memory"),
        (("server-rate", "500"), "limit_above_capacity"),
        (("rate", "1.5k"), "spare"),
    ] {
        // Forty slots wait for 38 erlangs, hardly for 20.
        let more = match code {
            "objective_missed" => vec![more, ("rate", "1.9k")],
            _ => vec![more],
        };
        assert!(with(&more).contains(code), "{code}: {}", with(&more));
    }
    let link = with(&[("link", "1M"), ("response-size", "10k")]);
    assert!(link.contains("link"), "{link}");
}

#[test]
fn a_stall_leaves_a_backlog_that_the_spare_capacity_drains() {
    let sizing = plan(&[
        ("rate", "1k"),
        ("service", "20ms"),
        ("servers", "5"),
        ("maxconn", "5"),
        ("queue-time", "100ms"),
    ]);
    // 25 slots, 20 of them busy, 250/s to spare.
    assert_eq!(sizing.value("backlog"), Some(4995.0));
    assert!((sizing.value("drain-time").unwrap() - 19.88).abs() < 1e-9);
    assert_eq!(sizing.value("backlog-with-shedding"), Some(100.0));
    assert!((sizing.value("drain-time-with-shedding").unwrap() - 0.3).abs() < 1e-9);
    assert_eq!((sizing.value("goodput"), sizing.value("rejected")), (Some(1250.0), Some(1750.0)));
    assert!(!sizing.has_error(), "{:?}", sizing.findings);
}

#[test]
fn the_numbers_of_formulas_are_rounded() {
    for (text, rounded) in [
        ("= 457.8333333333333 * 13.1 ms", "= 457.8 * 13.1 ms"),
        ("18 / 457.8333333333333", "18 / 457.8"),
        ("2262 + 0.00410 s", "2262 + 0.0041 s"),
        ("100 / (0.5 * 1000)", "100 / (0.5 * 1000)"),
        ("C(18, 6.0)", "C(18, 6.0)"),
        ("1.2.3.4 in 5", "1.2.3.4 in 5"),
    ] {
        assert_eq!(with_rounded_numbers(text), rounded);
    }
}
