//! Tests of plans: defaults, and all problems at once.

use super::*;

fn text(url: &str) -> LoadFlags {
    LoadFlags { urls: vec![url.to_owned()], ..LoadFlags::default() }
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let plan = RunPlan::parse(&text("http://127.0.0.1:8000/"), 4).unwrap();
    assert_eq!(plan.connections, CONNECTIONS_DEFAULT);
    assert_eq!(plan.threads, 2, "half of the CPUs, because the subject is here too");
    assert_eq!(plan.end, LoadEnd { duration_ns: DURATION_S_DEFAULT * 1_000_000_000, requests: None });
    assert_eq!(plan.timeout_ns, TIMEOUT_S_DEFAULT * 1_000_000_000);
    assert_eq!(plan.drain_ns, plan.timeout_ns);
    assert_eq!(plan.pace, Pace::Closed { think_ns: 0 });
    assert_eq!(RunPlan::parse(&text("http://192.0.2.1/"), 4).unwrap().threads, 4);
}

#[test]
fn the_pending_queue_holds_one_timeout_of_requests() {
    let flags =
        LoadFlags { rate: Some("10k".into()), timeout: Some("2s".into()), ..text("http://127.0.0.1/") };
    assert_eq!(RunPlan::parse(&flags, 1).unwrap().max_pending, 20_000);
}

#[test]
fn all_problems_come_at_once() {
    let flags = LoadFlags {
        urls: vec!["nonsense".into(), "http://a/ b".into()],
        connections: Some("0".into()),
        rate: Some("fast".into()),
        think: Some("1ms".into()),
        duration: Some("1d".into()),
        headers: vec!["no colon".into(), "Content-Length: 1".into(), "A b: c".into()],
        sources: vec!["127.0.0.1/33".into()],
        slo: vec!["p99".into()],
        expect: ExpectFlags { status: Some("2x".into()), ..ExpectFlags::default() },
        ..LoadFlags::default()
    };
    let problems = RunPlan::parse(&flags, 2).unwrap_err();
    let problem_flags: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
    for flag in ["URL 1", "URL 2", "--connections", "--rate", "--think", "--duration", "--source"] {
        assert!(problem_flags.contains(&flag), "{flag} is missing in {problem_flags:?}");
    }
    assert_eq!(problem_flags.iter().filter(|flag| **flag == "--header").count(), 3);
    assert!(problem_flags.contains(&"--slo") && problem_flags.contains(&"--expect-status"));
}

#[test]
fn sources_are_addresses_ranges_and_networks() {
    let flags = LoadFlags {
        sources: vec!["127.0.0.2,127.0.0.4-127.0.0.5".into(), "127.0.1.0/30".into()],
        ..text("http://127.0.0.1/")
    };
    let plan = RunPlan::parse(&flags, 1).unwrap();
    assert_eq!(plan.sources.len(), 1 + 2 + 4);
    assert_eq!(plan.sources[6].to_string(), "127.0.1.3");
}

#[test]
fn a_ramp_as_long_as_the_run_is_refused() {
    let flags = LoadFlags { ramp: Some("10".into()), duration: Some("10s".into()), ..text("http://a/") };
    assert_eq!(RunPlan::parse(&flags, 1).unwrap_err()[0].location, "--ramp");
}

#[test]
fn authorities_are_listed_once() {
    let flags = LoadFlags {
        urls: vec!["http://a/1".into(), "http://b/2".into(), "http://a/3".into()],
        ..LoadFlags::default()
    };
    let plan = RunPlan::parse(&flags, 1).unwrap();
    assert_eq!(plan.authorities().len(), 2);
}
