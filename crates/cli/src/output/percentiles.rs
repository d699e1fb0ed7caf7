//! The table of percentiles (`-P`), in the form of h1load: percentile, the fraction beyond it, and
//! the inverse of that fraction, so that it can be plotted on a 1/(1−q) axis.

use load::recorder::PhaseHistograms;
use record::units::format_duration_ns;
use report::text::table::table;

/// Shown percentiles; the maximum comes last.
const PERCENTILES: [f64; 17] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999, 99.9995,
    99.9999,
];

/// Formats the table of a run's latencies.
pub(crate) fn format_percentiles(phases: &PhaseHistograms) -> String {
    let columns = [
        ("ttfb service", &phases.first_byte.service),
        ("ttfb response", &phases.first_byte.response),
        ("ttlb service", &phases.last_byte.service),
        ("ttlb response", &phases.last_byte.response),
    ];
    let mut head = vec!["pctl".to_owned(), "tail".to_owned(), "invtail".to_owned()];
    head.extend(columns.iter().map(|(name, _)| (*name).to_owned()));
    let mut rows = vec![head];
    let count = phases.last_byte.response.count() as f64;
    // A percentile beyond 1 − 1/count is the maximum.
    let is_determined = |percentile: &&f64| (100.0 - **percentile) / 100.0 * count >= 0.999;
    for &percentile in PERCENTILES.iter().filter(is_determined) {
        let tail = 100.0 - percentile;
        let mut row = vec![trim_zeros(percentile), trim_zeros(tail), format!("{:.0}", 100.0 / tail)];
        row.extend(
            columns
                .iter()
                .map(|(_, latencies)| format_duration_ns(latencies.value_at_quantile(percentile / 100.0))),
        );
        rows.push(row);
    }
    let mut last = vec!["max".to_owned(), "0".to_owned(), "-".to_owned()];
    last.extend(columns.iter().map(|(_, latencies)| format_duration_ns(latencies.max_ns())));
    rows.push(last);
    format!("\n{}", table(&rows))
}

fn trim_zeros(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_percentiles_below_the_resolution_are_shown() {
        let mut phases = PhaseHistograms::default();
        (1..=1000).for_each(|ns| phases.last_byte.response.record(ns * 1000));
        let text = format_percentiles(&phases);
        let firsts: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(firsts.last(), Some(&"max"));
        assert!(firsts.contains(&"99.9") && !firsts.contains(&"99.95"), "{text}");
        assert!(text.contains("1.00 ms"), "{text}");
    }
}
