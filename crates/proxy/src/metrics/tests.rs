//! Tests of counting, adding up and carrying over, and of the text with a strict parser of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::snapshot::SERIES_RETIRED_MAX;
use super::table::MetricKind;
use super::*;
use crate::log::TargetCounts;
use crate::log::fixtures::{MS, malformed_request, plan, successful_request, tcp_connection};
use std::sync::Arc;

use crate::outcome::{EndPhase, HedgeEvent, StickyLookup};
use crate::plan::{Balance, PoolId, ServerId, Sticky, StickyMode, StickyPlan};
use crate::test_time::at;

fn prometheus(snapshot: &Snapshot) -> String {
    render(snapshot, MetricsFormat::Prometheus, true)
}

fn metrics() -> Metrics {
    Metrics::new(&plan(&["api", "odd \"\\\n"], &["app: a b"]))
}

/// Returns metrics of a pool that hashes by a key and has a sticky cookie.
fn sticky_metrics() -> Metrics {
    let mut plan = plan(&["api"], &["app: a b"]);
    let pool = Arc::make_mut(&mut plan.pools[PoolId(0)]);
    pool.balance = Balance::ConsistentHash;
    pool.sticky = Some(Sticky::Cookie(StickyPlan::for_tests(StickyMode::Insert)));
    Metrics::new(&plan)
}

#[test]
fn cookies_and_keys_count_where_a_pool_has_them() {
    let metrics = sticky_metrics();
    for cookie_result in [StickyLookup::Hit, StickyLookup::Hit, StickyLookup::Invalid] {
        metrics.record(&Outcome { sticky: Some(cookie_result), ..successful_request() });
    }
    metrics.add_hash_overflow(PoolId(0), 3);
    let snapshot = metrics.snapshot();
    for (cookie_result, expected) in [("hit", 2), ("missing", 0), ("invalid", 1), ("down", 0)] {
        assert_eq!(
            snapshot.number(Metric::Sticky, &["app", cookie_result]),
            Some(expected),
            "{cookie_result}"
        );
    }
    assert_eq!(snapshot.number(Metric::HashOverflow, &["app"]), Some(3));
    let metrics = self::metrics();
    metrics.record(&successful_request());
    metrics.add_hash_overflow(PoolId(0), 3);
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.number(Metric::Sticky, &["app", "missing"]), None);
    assert_eq!(snapshot.number(Metric::HashOverflow, &["app"]), None);
}

#[test]
fn one_request_counts_where_it_belongs() {
    let metrics = metrics();
    metrics.record(&successful_request());
    let snapshot = metrics.snapshot();
    let number = |metric, labels: &[&str]| snapshot.number(metric, labels);
    for (metric, labels, expected) in [
        (Metric::Requests, &["web", "done"][..], 1),
        (Metric::RequestSeconds, &["api", "2xx"], 1),
        (Metric::QueueSeconds, &["app", "2xx"], 1),
        (Metric::ConnectSeconds, &["app", "b"], 1),
        (Metric::FirstByteSeconds, &["app", "b", "2xx"], 1),
        (Metric::ServerSeconds, &["app", "b", "2xx"], 1),
        (Metric::ServerConnections, &["app", "b", "new"], 1),
        (Metric::ServerConnections, &["app", "b", "reused"], 0),
        (Metric::Retries, &["app"], 1),
        (Metric::Wasted, &["app"], 0),
        (Metric::BytesIn, &["web"], 90),
        (Metric::BytesOut, &["web"], 350),
    ] {
        assert_eq!(number(metric, labels), Some(expected), "{metric:?}");
    }
    assert_eq!(number(Metric::ServerSeconds, &["app", "a", "2xx"]), None);
}

#[test]
fn a_reused_connection_was_not_connected_to() {
    let metrics = metrics();
    metrics.record(&Outcome { reused: true, wasted: true, ..successful_request() });
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.number(Metric::ConnectSeconds, &["app", "b"]), None);
    assert_eq!(snapshot.number(Metric::ServerConnections, &["app", "b", "reused"]), Some(1));
    assert_eq!(snapshot.number(Metric::Wasted, &["app"]), Some(1));
}

#[test]
fn what_was_refused_says_by_whom_and_why() {
    let metrics = metrics();
    metrics.record(&malformed_request());
    metrics.record(&Outcome { end: EndReason::BadResponse, ..malformed_request() });
    metrics.refused(RejectReason::ListenerFull);
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.number(Metric::MessagesRejected, &["client", "bare_lf"]), Some(1));
    assert_eq!(snapshot.number(Metric::MessagesRejected, &["server", "bare_lf"]), Some(1));
    assert_eq!(snapshot.number(Metric::RequestSeconds, &["-", "4xx"]), Some(2));
    assert_eq!(snapshot.number(Metric::Refused, &["listener_full"]), Some(1));
    assert_eq!(snapshot.number(Metric::Refused, &["draining"]), Some(0));
}

#[test]
fn tcp_connections_are_apart_from_requests() {
    let metrics = metrics();
    metrics.record(&tcp_connection());
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.number(Metric::Requests, &["raw", "done"]), Some(1));
    assert_eq!(snapshot.number(Metric::RequestSeconds, &["-", "none"]), None);
    assert_eq!(snapshot.number(Metric::ServerSeconds, &["app", "b", "tcp"]), Some(1));
}

#[test]
fn the_wait_of_a_request_that_gave_up_is_counted() {
    let metrics = metrics();
    let times = crate::outcome::Times {
        dispatched: at(0),
        connected: at(0),
        first_byte: at(0),
        end: at(1_101 * MS),
        ..successful_request().times
    };
    let (end, phase) = (EndReason::QueueTimeout, EndPhase::Queue);
    metrics.record(&Outcome { end, phase, times, server: None, status: 503, ..successful_request() });
    let text = prometheus(&metrics.snapshot());
    assert!(text.contains("weir_pool_queue_seconds_sum{pool=\"app\",class=\"5xx\"} 0.1\n"), "{text}");
}

#[test]
fn an_index_that_the_plan_does_not_have_counts_nowhere_and_does_not_panic() {
    let metrics = metrics();
    let previous = metrics.snapshot();
    metrics.record(&Outcome { listener: 99, ..successful_request() });
    metrics.accepted(99);
    metrics.closed(99);
    metrics.set_idle(PoolId(99), ServerId(0), 1);
    metrics.set_idle(PoolId(0), ServerId(99), 1);
    assert_eq!(metrics.snapshot(), previous);
    metrics.record(&Outcome {
        route: Some(99),
        pool: Some(PoolId(99)),
        server: Some(ServerId(99)),
        status: 999,
        ..successful_request()
    });
    assert_eq!(metrics.snapshot().number(Metric::RequestSeconds, &["-", "none"]), Some(1));
}

#[test]
fn cores_add_up() {
    let (first, second) = (metrics(), metrics());
    first.record(&successful_request());
    second.record(&successful_request());
    first.accepted(0);
    second.accepted(0);
    second.closed(0);
    first.set_idle(PoolId(0), ServerId(1), 3);
    second.set_idle(PoolId(0), ServerId(1), 4);
    let mut snapshot = first.snapshot();
    snapshot.merge(second.snapshot());
    assert_eq!(snapshot.number(Metric::RequestSeconds, &["api", "2xx"]), Some(2));
    assert_eq!(snapshot.number(Metric::Open, &["web"]), Some(1));
    assert_eq!(snapshot.number(Metric::Idle, &["app", "b"]), Some(7));
}

#[test]
fn counts_stay_with_their_names_over_a_reload() {
    let old = Metrics::new(&plan(&["gone", "api"], &["app: a b", "left: c"]));
    old.record(&Outcome { route: Some(0), ..successful_request() });
    old.record(&Outcome { route: Some(1), server: Some(ServerId(0)), ..successful_request() });
    old.accepted(0);
    old.accepted(0);
    old.closed(0);
    old.set_idle(PoolId(0), ServerId(0), 5);
    old.connection_released(0);
    let previous = old.snapshot();
    // Other positions, another server, and one route and one pool less.
    let new = Metrics::new(&plan(&["new", "api"], &["app: z b a"]));
    new.connection_adopted(0);
    new.record(&Outcome { server: Some(ServerId(2)), ..successful_request() });
    let mut snapshot = new.snapshot();
    snapshot.carry_over(&previous);
    let number = |metric, labels: &[&str]| snapshot.number(metric, labels);
    assert_eq!(number(Metric::ServerSeconds, &["app", "a", "2xx"]), Some(2));
    assert_eq!(number(Metric::ServerSeconds, &["app", "b", "2xx"]), Some(1));
    assert_eq!(number(Metric::RequestSeconds, &["api", "2xx"]), Some(1));
    assert_eq!(number(Metric::RequestSeconds, &["gone", "2xx"]), Some(1));
    assert_eq!(number(Metric::RequestSeconds, &["new", "2xx"]), Some(1));
    assert_eq!(number(Metric::Accepted, &["web"]), Some(2));
    // Gauges are not carried over.
    assert_eq!(number(Metric::Open, &["web"]), Some(1));
    assert_eq!(number(Metric::Idle, &["app", "a"]), Some(0));
    assert_eq!(number(Metric::Idle, &["left", "c"]), None);
}

#[test]
fn a_second_reload_keeps_what_the_first_kept() {
    let mut base = Snapshot::default();
    for name in ["one", "two", "three"] {
        let metrics = Metrics::new(&plan(&[name], &["app: a b"]));
        metrics.record(&successful_request());
        let mut snapshot = metrics.snapshot();
        snapshot.carry_over(&base);
        base = snapshot;
    }
    for name in ["one", "two", "three"] {
        assert_eq!(base.number(Metric::RequestSeconds, &[name, "2xx"]), Some(1));
    }
    assert_eq!(base.number(Metric::ServerSeconds, &["app", "b", "2xx"]), Some(3));
}

#[test]
fn names_that_come_and_go_are_bounded() {
    let mut old = Snapshot::default();
    let names: Vec<String> = (0..SERIES_RETIRED_MAX + 5).map(|number| format!("{number:06}")).collect();
    for name in &names {
        old.add(Metric::Retries, &[name], 1);
    }
    let mut snapshot = Snapshot::default();
    snapshot.add(Metric::Retries, &[names.last().unwrap()], 1);
    snapshot.carry_over(&old);
    assert_eq!(snapshot.number(Metric::SeriesDropped, &[]), Some(4));
    assert_eq!(snapshot.number(Metric::Retries, &[&names[0]]), Some(1));
    assert_eq!(snapshot.number(Metric::Retries, &[names.last().unwrap()]), Some(2));
}

/// One sample: its name, its labels and its value.
type Sample = (String, Vec<(String, String)>, f64);

/// Parses one line of the exposition format. Returns `None` if it is invalid.
fn parse_sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = parse_quoted(after)?;
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = after.strip_prefix('}')?;
                    break;
                }
            }
        }
    }
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(is_allowed);
    let value = rest.strip_prefix(' ')?;
    let all_are_names = is_name(name) && labels.iter().all(|(label, _)| is_name(label));
    let is_decimal = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    Some((name.to_owned(), labels, value.parse().ok()?)).filter(|_| all_are_names && is_decimal)
}

/// Returns the value up to its closing quote, and the rest.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                '"' => '"',
                '\\' => '\\',
                _ => return None,
            }),
            '\n' => return None,
            _ => value.push(character),
        }
    }
    None
}

/// Checks the text against the rules of the format, and returns the samples.
fn check_exposition(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'));
    let mut samples: Vec<Sample> = Vec::new();
    let (mut names_seen, mut series) = (BTreeSet::new(), BTreeSet::new());
    let (mut current, mut kind) = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, doc) = help.split_once(' ').unwrap();
            assert!(names_seen.insert(name.to_owned()), "{name} is in two places");
            assert!(!doc.is_empty());
            let declared = lines.next().and_then(|line| line.strip_prefix("# TYPE ")).unwrap();
            let (typed_name, type_name) = declared.split_once(' ').unwrap();
            assert_eq!(typed_name, name);
            (current, kind) = (name.to_owned(), type_name.to_owned());
            continue;
        }
        let parsed = parse_sample(line).unwrap_or_else(|| panic!("no sample: {line}"));
        let suffix = parsed.0.strip_prefix(&current).unwrap_or_else(|| panic!("misplaced: {line}"));
        match kind.as_str() {
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
            _ => assert!(suffix.is_empty() && ["counter", "gauge"].contains(&&*kind), "{line}"),
        }
        assert!(series.insert(format!("{}{:?}", parsed.0, parsed.1)), "twice: {line}");
        samples.push(parsed);
    }
    check_histograms(&samples);
    samples
}

/// Checks that buckets increase up to `+Inf`, which equals the count, and that each histogram is
/// complete.
fn check_histograms(samples: &[Sample]) {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let (mut counts, mut sums) = (BTreeMap::new(), BTreeSet::new());
    for (name, labels, value) in samples {
        if let Some(name) = name.strip_suffix("_bucket") {
            let (bounds, rest): (Vec<_>, Vec<_>) = labels.iter().partition(|(label, _)| label == "le");
            assert_eq!(bounds.len(), 1);
            let bound = match bounds[0].1.as_str() {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().unwrap(),
            };
            buckets.entry(format!("{name}{rest:?}")).or_default().push((bound, *value));
        } else if let Some(name) = name.strip_suffix("_count") {
            counts.insert(format!("{name}{:?}", labels.iter().collect::<Vec<_>>()), *value);
        } else if let Some(name) = name.strip_suffix("_sum") {
            sums.insert(format!("{name}{:?}", labels.iter().collect::<Vec<_>>()));
        }
    }
    for (name, buckets) in &buckets {
        let is_increasing = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        assert!(buckets.windows(2).all(is_increasing), "{name}: {buckets:?}");
        let last = buckets.last().unwrap();
        assert!(last.0.is_infinite() && Some(&last.1) == counts.get(name), "{name}");
        assert!(sums.contains(name), "{name}");
    }
    assert_eq!(buckets.len(), counts.len());
}

#[test]
fn the_text_is_as_prometheus_wants_it() {
    let metrics = metrics();
    for (number, &end) in EndReason::ALL.iter().enumerate() {
        let mut outcome = Outcome {
            end,
            status: 100 * (number as u16 % 7),
            route: Some(number % 2),
            ..successful_request()
        };
        outcome.times.end += (number as u64).pow(8);
        metrics.record(&outcome);
    }
    metrics.record(&malformed_request());
    metrics.record(&tcp_connection());
    metrics.set_idle_clients(4, 2_400);
    metrics.set_buffers(3, 1);
    metrics.set_queued(PoolId(0), 2);
    let mut snapshot = metrics.snapshot();
    snapshot.add_logs(&[TargetCounts {
        target: "file:/a \"b\"".to_owned(),
        written: 5,
        overflowed: 1,
        failed: 2,
        backoff: 3,
        rotated: 4,
        rotations_failed: 0,
    }]);
    snapshot.merge(self::metrics().snapshot());
    let text = prometheus(&snapshot);
    let samples = check_exposition(&text);
    let value = |name: &str, labels: &[(&str, &str)]| {
        let matching = samples.iter().find(|(sample_name, sample_labels, _)| {
            sample_name == name
                && sample_labels.iter().map(|(label, value)| (&**label, &**value)).eq(labels.iter().copied())
        });
        matching.map(|(.., value)| *value)
    };
    assert_eq!(value("weir_idle_connection_bytes", &[]), Some(600.0));
    let lost = [("target", "file:/a \"b\""), ("result", "overflow")];
    assert_eq!(value("weir_log_lines_total", &lost), Some(1.0));
    let odd = [("route", "odd \"\\\n"), ("class", "1xx")];
    assert!(value("weir_request_seconds_count", &odd).is_some(), "{text}");
    assert_eq!(
        value("weir_server_connect_seconds_sum", &[("pool", "app"), ("server", "b")]),
        Some(0.003 * (EndReason::ALL.len() + 1) as f64)
    );
}

#[test]
fn every_metric_of_the_table_is_exported() {
    let metrics = sticky_metrics();
    metrics.add_fallbacks(PoolId(0), 1);
    metrics.record(&successful_request());
    metrics.record(&malformed_request());
    metrics.record_subrequest(&successful_request());
    let mut snapshot = metrics.snapshot();
    let users = tempfile::NamedTempFile::new().unwrap();
    let auth = format!(
        "[listener.a]\nbind = '127.0.0.1:0'\nauth = {{ jwt = {{ keys-url = 'https://localhost/' }} }}\n[[route]]\n\
         return = {{}}\nauth = {{ basic = {{ users-file = '{}' }} }}\n",
        users.path().display()
    );
    let plan = crate::config::parse("t", &auth).unwrap().plan;
    let metrics = Metrics::new(&plan);
    metrics.count_auth(crate::auth::AuthKind::Basic, crate::auth::AuthResult::Allowed);
    snapshot.merge(metrics.snapshot());
    snapshot.add_auth_sources(plan.auth_plans());
    let directory = tempfile::tempdir().unwrap();
    let caching = format!(
        "[listener.web]\nbind = '127.0.0.1:0'\n[cache.unit-metrics]\ndisk = {{ directory = '{}' }}\n[[route]]\npool = 'p'\n\
         cache = {{ use = 'unit-metrics' }}\n[pool.p]\nservers = ['127.0.0.1:1']\n",
        directory.path().display()
    );
    let plan = crate::config::parse("t", &caching).unwrap().plan;
    crate::caching::open_caches(&plan).unwrap();
    let metrics = Metrics::new(&plan);
    metrics.count_cache_result(0, crate::outcome::CacheResult::Hit);
    metrics.count_not_stored(0, cache::NotStored::Private);
    metrics.count_cache_refresh(0, CacheRefresh::Started);
    snapshot.merge(metrics.snapshot());
    snapshot.add_cache("unit-metrics", &plan.caches[0].store.get().unwrap().stats());
    let config = "[listener.secure]\nbind = '127.0.0.1:0'\npool = 'secure'\ntls = { self-signed = true }\n\
                  [listener.raw]\nbind = '127.0.0.1:0'\nmode = 'tcp'\nsni = [{ pool = 'secure' }]\n\
                  [pool.secure]\nservers = ['127.0.0.1:1']\nhttp = '2'\ntls = { verify = false }\n";
    snapshot.merge(Metrics::new(&crate::config::parse("t", config).unwrap().plan).snapshot());
    snapshot.add_logs(&[TargetCounts {
        target: "stdout".to_owned(),
        written: 0,
        overflowed: 0,
        failed: 0,
        backoff: 0,
        rotated: 0,
        rotations_failed: 0,
    }]);
    snapshot.merge(traffic_metrics().snapshot());
    snapshot.add_traces(&Default::default());
    snapshot.add_state("app", "a", "up", true);
    snapshot.add_checks("app", "a", "passed", 1);
    snapshot.add_last_check("app", "a", "passed", true);
    snapshot.add_weight("app", "a", 150);
    snapshot.add_process(&rt::process_stats::ProcessStats::default(), 0, 1);
    snapshot.add_reloads(&ReloadResults::default());
    snapshot.add_certificate("a.test", 1, 1, 0);
    let list = rt::tls::RevocationListInfo { path: "/a".into(), issuer: "CN=a".into(), next_update_s: 1 };
    snapshot.add_revocation_list("secure", &list);
    snapshot.add_map("m", &crate::maps::MapStatistics::default());
    snapshot.add_generations(1);
    snapshot.add_check_changes("app", "a", 1, 1);
    snapshot.add_ejections("app", "a", "failures", 1);
    snapshot.add_suppressed_ejections("app", "a", 1);
    snapshot.add_dns_queries("app.x:80", "answered", 1);
    snapshot.add_dns_failing("app.x:80", false);
    let text = prometheus(&snapshot);
    assert!(text.contains("weir_server_weight{pool=\"app\",server=\"a\"} 1.5\n"), "{text}");
    for metric in Metric::ALL {
        let (name, kind) = (metric.row().name, metric.row().kind);
        assert!(text.contains(&format!("# TYPE {name} {}\n", kind.name())), "{name}");
    }
    assert!(Metric::ALL.iter().any(|metric| metric.row().kind == MetricKind::Gauge));
}

/// Returns metrics of a route whose requests are copied and sent twice, after one of each.
fn traffic_metrics() -> Metrics {
    let text = "[listener.l]\nbind = '127.0.0.1:0'\n[[route]]\npool = 'p'\nhedge = {}\nmirror = { pool = 'q' }\n\
                [pool.p]\nservers = ['127.0.0.1:1', '127.0.0.1:2']\n[pool.q]\nservers = ['127.0.0.1:3']\n";
    let metrics = Metrics::new(&crate::config::parse("t", text).unwrap().plan);
    metrics.record_subrequest(&successful_request());
    let side = |status| MirrorSide { status, time_ns: Some(1) };
    metrics.record_mirrored((0, 0), side(200), side(404));
    metrics.count_mirror_drop((0, 0), MirrorDrop::Memory);
    metrics.count_hedge(Some(0), HedgeEvent::Sent);
    metrics
}

#[test]
fn copies_are_counted_by_both_classes() {
    let metrics = traffic_metrics();
    metrics.record_mirrored((0, 0), MirrorSide { status: 200, time_ns: None }, MirrorSide::default());
    // There is no such mirror.
    metrics.record_mirrored((0, 1), MirrorSide::default(), MirrorSide::default());
    let snapshot = metrics.snapshot();
    let sum = |name, labels: &[&str]| snapshot.sum(name, labels);
    assert_eq!(sum("weir_mirrored_requests_total", &["route-1", "q", "2xx", "4xx"]), 1);
    assert_eq!(sum("weir_mirrored_requests_total", &["route-1", "q", "2xx", "none"]), 1);
    assert_eq!(sum("weir_mirrored_requests_total", &[]), 2);
    assert_eq!(sum("weir_mirror_comparisons_total", &["route-1", "q", "unanswered"]), 1);
    assert_eq!(sum("weir_mirror_seconds", &["route-1", "q", "original"]), 1);
    assert_eq!(sum("weir_mirrors_dropped_total", &["route-1", "q", "memory"]), 1);
    assert_eq!(sum("weir_hedges_total", &["route-1", "sent"]), 1);
    assert_eq!(sum("weir_subrequests_total", &["p"]), 1);
    assert_eq!(sum("weir_requests_total", &[]), 0);
}

#[test]
fn the_parser_of_these_tests_is_strict() {
    for line in ["a", "a 1 2", "a{b=\"c} 1", "a{b=\"c\"} x", "a{b=\"\\x\"} 1", "A 1", "a{} 1", "a 1e5"] {
        assert!(parse_sample(line).is_none(), "{line}");
    }
    assert!(parse_sample("a{b=\"c\\\"\\\\\\n\",d=\"\"} 1.5").is_some());
}

#[test]
fn rows_are_those_of_a_metric_and_of_its_first_labels() {
    let metrics = metrics();
    metrics.record(&successful_request());
    metrics.record(&successful_request());
    metrics.set_in_flight(PoolId(0), ServerId(1), 3);
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.sum("weir_server_request_seconds", &["app", "b"]), 2);
    assert_eq!(snapshot.sum("weir_server_request_seconds", &["app"]), 2);
    assert_eq!(snapshot.sum("weir_server_request_seconds", &["app", "c"]), 0);
    assert_eq!(snapshot.sum("weir_server_requests_in_flight", &["app", "b"]), 3);
    let (labels, value) = snapshot.series_of("weir_server_request_seconds", &["app"]).next().unwrap();
    assert_eq!(labels.iter().map(|label| &**label).collect::<Vec<_>>(), ["app", "b", "2xx"]);
    assert!(matches!(value, SeriesValueRef::Times(buckets) if buckets.iter().sum::<u64>() == 2));
}

#[test]
fn only_openmetrics_has_exemplars_and_everything_else_is_the_same() {
    let metrics = metrics();
    let outcome = successful_request();
    metrics.record(&outcome);
    metrics.record_exemplar(&outcome, 1_520_879_607_789_999_999);
    let snapshot = metrics.snapshot();
    let exemplar = " # {trace_id=\"00000000000000000000000000000abc\"} 0.015 1520879607.789";
    let openmetrics = render(&snapshot, MetricsFormat::OpenMetrics, true);
    let bucket = "weir_request_seconds_bucket{route=\"api\",class=\"2xx\",le=\"0.02\"} 1";
    assert!(openmetrics.contains(&format!("\n{bucket}{exemplar}\n")), "{openmetrics}");
    assert_eq!(openmetrics.matches(" # {").count(), 1);
    let without = render(&snapshot, MetricsFormat::OpenMetrics, false);
    assert_eq!(openmetrics.replace(exemplar, ""), without);
    let samples = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&prometheus(&snapshot)), samples(&without));
    assert!(without.contains("# TYPE weir_requests counter\n") && without.ends_with("\n# EOF\n"));
    // A gauge has the name of this family.
    assert!(without.contains("# TYPE weir_abandoned_requests_total unknown\n"), "{without}");
    // It outlives its plan, as the counts do.
    let mut later = Metrics::new(&plan(&["other"], &["app: a b"])).snapshot();
    later.carry_over(&snapshot);
    assert!(render(&later, MetricsFormat::OpenMetrics, true).contains(exemplar));
}
