//! The metrics: a page that Prometheus accepts, whose parts agree with each other and with the
//! requests.

use std::collections::BTreeMap;

use super::LoggedProxy;
use crate::support::client::Client;
use crate::support::faulty_origins::field;
use crate::support::metrics::{DURATION, Metrics, REQUESTS};
use crate::support::shared_machine;

#[test]
fn the_page_is_one_that_prometheus_takes() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&[]);
    setup.send_all_requests();
    let response = Client::connect(setup.proxy.admin()).get_with_fields("/metrics", "Host: localhost\r\n");
    let kind = field(&response.head, "content-type").expect("a type");
    assert!(kind.starts_with("text/plain") && kind.contains("version=0.0.4"), "{kind}");
    let metrics = setup.proxy.metrics();
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

/// Labels of one row of a histogram, without the bound.
type Labels = Vec<(String, String)>;

/// Asserts that a histogram's buckets grow, and that its last bucket is its count.
fn assert_histogram(metrics: &Metrics, name: &str) -> f64 {
    let mut rows: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for sample in metrics.samples_with(&format!("{name}_bucket"), &[]) {
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
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&["to = \"file:HOME/json\""]);
    let count = setup.send_all_requests() as f64;
    let metrics = setup.proxy.metrics_until("all are counted", |metrics| {
        metrics.sum_known(REQUESTS, &[("listener", "web")]) == count
    });
    for (end, expected) in [("done", 32.0), ("denied", 3.0)] {
        assert_eq!(metrics.sum_known(REQUESTS, &[("end", end)]), expected, "{end}: {metrics}");
    }
    assert_eq!(assert_histogram(&metrics, DURATION), count);
    // Reading the metrics is not a request of a listener.
    let again = setup.proxy.metrics();
    assert_eq!(again.sum_known(REQUESTS, &[]), count);
}

#[test]
fn health_is_reported_and_other_pages_do_not_exist() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&[]);
    let mut client = Client::connect(setup.proxy.admin());
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(
        Client::connect(setup.proxy.admin()).get_with_fields("/nothing", "Host: localhost\r\n").status,
        404
    );
    // The admin address serves no route.
    assert_eq!(
        Client::connect(setup.proxy.admin()).get_with_fields("/x?a=b", "Host: localhost\r\n").status,
        404
    );
}
