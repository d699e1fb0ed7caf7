//! The metrics: a page that Prometheus takes, whose parts agree with each other and with what was
//! asked.

use std::collections::BTreeMap;

use super::Scene;
use crate::support::beside_others;
use crate::support::client::Client;
use crate::support::faulty::field;
use crate::support::metrics::{DURATION, Metrics, REQUESTS};

#[test]
fn the_page_is_one_that_prometheus_takes() {
    let _shared = beside_others();
    let scene = Scene::start(&[]);
    scene.ask_for_everything();
    let answer = Client::connect(scene.door.admin()).ask_as("/metrics", "Host: localhost\r\n");
    let kind = field(&answer.head, "content-type").expect("a type");
    assert!(kind.starts_with("text/plain") && kind.contains("version=0.0.4"), "{kind}");
    let metrics = scene.door.metrics();
    for sample in &metrics.samples {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| sample.name.strip_suffix(end))
            .filter(|family| metrics.types.get(*family).is_some_and(|kind| kind == "histogram"))
            .unwrap_or(&sample.name);
        let kind = metrics.types.get(family);
        assert!(kind.is_some(), "{} has no type", sample.name);
        assert!(family.starts_with("weir_") || family.starts_with("process_"), "{family}");
        let counts = kind.is_some_and(|kind| kind == "counter");
        assert_eq!(counts, family.ends_with("_total"), "{family} is a {kind:?}");
    }
}

/// Of one row of a histogram, without the bound.
type Labels = Vec<(String, String)>;

/// A histogram's buckets grow, and its last is its count.
fn assert_histogram(metrics: &Metrics, name: &str) -> f64 {
    let mut rows: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in metrics.of(&format!("{name}_bucket"), &[]) {
        let mut labels = sample.labels.clone();
        let bound = labels.remove("le").expect("le");
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
        rows.entry(labels.into_iter().collect()).or_default().push((bound, sample.value));
    }
    assert!(!rows.is_empty(), "no histogram {name}: {metrics}");
    let mut all = 0.0;
    for (labels, buckets) in rows {
        let grows = buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
        assert!(grows, "{labels:?}: {buckets:?}");
        let labels: Vec<(&str, &str)> =
            labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let count = metrics.sum(&format!("{name}_count"), &labels);
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{labels:?}");
        let sum = metrics.sum(&format!("{name}_sum"), &labels);
        assert!(sum >= 0.0 && (sum > 0.0 || count == 0.0), "{labels:?}: {sum} of {count}");
        all += count;
    }
    all
}

#[test]
fn histograms_have_as_many_entries_as_there_were_requests() {
    let _shared = beside_others();
    let scene = Scene::start(&["to = \"file:HOME/json\""]);
    let count = scene.ask_for_everything() as f64;
    let metrics = scene.door.metrics_until("all are counted", |metrics| {
        metrics.known(REQUESTS, &[("listener", "web")]) == count
    });
    for (end, wanted) in [("done", 32.0), ("denied", 3.0)] {
        assert_eq!(metrics.known(REQUESTS, &[("end", end)]), wanted, "{end}: {metrics}");
    }
    assert_eq!(assert_histogram(&metrics, DURATION), count);
    // To look at the metrics is not a request of a listener.
    let again = scene.door.metrics();
    assert_eq!(again.known(REQUESTS, &[]), count);
}

#[test]
fn health_is_told_and_other_pages_are_not_there() {
    let _shared = beside_others();
    let scene = Scene::start(&[]);
    let mut client = Client::connect(scene.door.admin());
    assert_eq!(client.ask("/health").status, 200);
    assert_eq!(
        Client::connect(scene.door.admin()).ask_as("/nothing", "Host: localhost\r\n").status,
        404
    );
    // The admin address serves no route.
    assert_eq!(
        Client::connect(scene.door.admin()).ask_as("/x?a=b", "Host: localhost\r\n").status,
        404
    );
}
