//! Plans: defaults, and all problems at once.

use super::*;

fn text(url: &str) -> PlanText {
    PlanText { urls: vec![url.to_owned()], ..PlanText::default() }
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let plan = Plan::parse(&text("http://127.0.0.1:8000/"), 4).unwrap();
    assert_eq!(plan.connections, CONNECTIONS_DEFAULT);
    assert_eq!(plan.threads, 2, "half of the processors, because the subject is here too");
    assert_eq!(plan.end, End { duration_ns: DURATION_S_DEFAULT * 1_000_000_000, requests: None });
    assert_eq!(plan.timeout_ns, TIMEOUT_S_DEFAULT * 1_000_000_000);
    assert_eq!(plan.drain_ns, plan.timeout_ns);
    assert_eq!(plan.pace, Pace::Closed { think_ns: 0 });
    assert_eq!(Plan::parse(&text("http://192.0.2.1/"), 4).unwrap().threads, 4);
}

#[test]
fn the_line_holds_what_can_still_be_answered_in_time() {
    let flags = PlanText {
        rate: Some("10k".into()),
        timeout: Some("2s".into()),
        ..text("http://127.0.0.1/")
    };
    assert_eq!(Plan::parse(&flags, 1).unwrap().line_max, 20_000);
}

#[test]
fn all_problems_come_at_once() {
    let flags = PlanText {
        urls: vec!["nonsense".into(), "http://a/ b".into()],
        connections: Some("0".into()),
        rate: Some("fast".into()),
        think: Some("1ms".into()),
        duration: Some("1d".into()),
        headers: vec!["no colon".into(), "Content-Length: 1".into(), "A b: c".into()],
        sources: vec!["127.0.0.1/33".into()],
        slo: vec!["p99".into()],
        expect_status: Some("2x".into()),
        ..PlanText::default()
    };
    let problems = Plan::parse(&flags, 2).unwrap_err();
    let places: Vec<_> = problems.iter().map(|problem| problem.place.as_str()).collect();
    for place in ["URL 1", "URL 2", "--connections", "--rate", "--think", "--duration", "--source"]
    {
        assert!(places.contains(&place), "{place} is missing in {places:?}");
    }
    assert_eq!(places.iter().filter(|place| **place == "--header").count(), 3);
    assert!(places.contains(&"--slo") && places.contains(&"--expect-status"));
}

#[test]
fn sources_are_addresses_ranges_and_networks() {
    let flags = PlanText {
        sources: vec!["127.0.0.2,127.0.0.4-127.0.0.5".into(), "127.0.1.0/30".into()],
        ..text("http://127.0.0.1/")
    };
    let plan = Plan::parse(&flags, 1).unwrap();
    assert_eq!(plan.sources.len(), 1 + 2 + 4);
    assert_eq!(plan.sources[6].to_string(), "127.0.1.3");
}

#[test]
fn a_ramp_as_long_as_the_run_is_refused() {
    let flags =
        PlanText { ramp: Some("10".into()), duration: Some("10s".into()), ..text("http://a/") };
    assert_eq!(Plan::parse(&flags, 1).unwrap_err()[0].place, "--ramp");
}

#[test]
fn authorities_are_listed_once() {
    let flags = PlanText {
        urls: vec!["http://a/1".into(), "http://b/2".into(), "http://a/3".into()],
        ..PlanText::default()
    };
    let plan = Plan::parse(&flags, 1).unwrap();
    assert_eq!(plan.authorities().len(), 2);
}
