//! `weir load report A B`: records of runs side by side, their ratios, and the differences between
//! the plans. It does not judge which is better, because single runs cannot show that.

use record::run::Run;
use record::units::{format_count, format_duration_ns};

use super::diagnosis::verdict_code;
use super::layout::{page_width, wrap_labelled};
use super::summary::verdict;
use super::table::table;

/// One figure of a run: its name, its value, and its format.
type FigureRow = (&'static str, fn(&Run) -> f64, fn(f64) -> String);

fn format_time(ns: f64) -> String {
    format_duration_ns(ns as u64)
}

fn format_fraction(fraction: f64) -> String {
    format!("{:.3} %", fraction * 100.0)
}

const FIGURE_ROWS: &[FigureRow] = &[
    ("goodput/s", Run::goodput_per_s, format_count),
    ("responses/s", |run| run.rates.responses_per_s, format_count),
    ("errors", |run| run.totals.error_fraction(), format_fraction),
    ("response p50", |run| run.latency.last_byte.response.p50_ns as f64, format_time),
    ("response p90", |run| run.latency.last_byte.response.p90_ns as f64, format_time),
    ("response p99", |run| run.latency.last_byte.response.p99_ns as f64, format_time),
    ("response p99.9", |run| run.latency.last_byte.response.p999_ns as f64, format_time),
    ("response max", |run| run.latency.last_byte.response.max_ns as f64, format_time),
    ("service p50", |run| run.latency.last_byte.service.p50_ns as f64, format_time),
    ("service p99", |run| run.latency.last_byte.service.p99_ns as f64, format_time),
    ("first byte p50", |run| run.latency.first_byte.service.p50_ns as f64, format_time),
    ("connect p50", |run| run.latency.connect.service.p50_ns as f64, format_time),
];

/// Formats the figures of named runs, and their ratios to those of the first.
pub fn format_run_ratios(runs: &[(String, Run)], colour: bool) -> String {
    let Some(((_, first), others)) = runs.split_first() else {
        return String::new();
    };
    let mut head = vec![String::new()];
    head.extend((0..runs.len()).map(run_label));
    head.extend((1..runs.len()).map(|index| format!("{}/A", run_label(index))));
    let mut rows = vec![head];
    for (name, value, format_value) in FIGURE_ROWS {
        let mut row = vec![(*name).to_owned()];
        row.extend(runs.iter().map(|(_, run)| format_value(value(run))));
        row.extend(others.iter().map(|(_, run)| match value(first) {
            0.0 => "-".to_owned(),
            base => format!("{:.3}", value(run) / base),
        }));
        rows.push(row);
    }
    rows.push(served_row(runs));
    let mut text = String::new();
    for (index, (name, run)) in runs.iter().enumerate() {
        text.push_str(&format!("{}: {name}, {}\n{}", run_label(index), run.started_at, verdict(run, colour)));
        let bottleneck = verdict_code(run).unwrap_or_else(|| "not diagnosed".to_owned());
        text.push_str(&wrap_labelled("bottleneck", &bottleneck, page_width()));
        text.push_str(&wrap_labelled("", &diagnose::answer(run).what, page_width()));
        if index > 0 {
            text.push_str(&plan_differences(first, run));
        }
    }
    text.push('\n');
    text.push_str(&table(&rows));
    text.push_str(
        "\nOne run each: a ratio may be noise. Repeat the runs alternately before you act on it.\n",
    );
    text
}

/// Returns the row of the requests that each subject serves at a time, with the ratios to the first.
fn served_row(runs: &[(String, Run)]) -> Vec<String> {
    let served: Vec<Option<f64>> = runs.iter().map(|(_, run)| diagnose::served_at_a_time(run)).collect();
    let mut row = vec!["served at a time".to_owned()];
    row.extend(
        served
            .iter()
            .map(|requests| requests.map_or_else(|| "-".to_owned(), |requests| format!("{requests:.1}"))),
    );
    let base = served.first().copied().flatten().filter(|base| *base > 0.0);
    row.extend(served.iter().skip(1).map(|requests| match requests.zip(base) {
        Some((requests, base)) => format!("{:.3}", requests / base),
        None => "-".to_owned(),
    }));
    row
}

/// Returns the requests of a plan without host and port.
fn without_address(requests: &serde_json::Value) -> serde_json::Value {
    let mut requests = requests.clone();
    for request in requests.as_array_mut().into_iter().flatten() {
        let path = request["url"]
            .as_str()
            .and_then(|url| url.split_once("://"))
            .map(|(scheme, rest)| format!("{scheme}://{}", rest.find('/').map_or("", |at| &rest[at..])));
        if let Some(path) = path {
            request["url"] = path.into();
        }
    }
    requests
}

fn run_label(index: usize) -> String {
    match u8::try_from(index) {
        Ok(index) if index < 26 => char::from(b'A' + index).to_string(),
        _ => format!("#{}", index + 1),
    }
}

fn plan_differences(a: &Run, b: &Run) -> String {
    let (Some(first), Some(second)) = (a.plan.as_object(), b.plan.as_object()) else {
        return String::new();
    };
    let differing = first.keys().filter(|key| first.get(*key) != second.get(*key));
    let keys: Vec<_> = differing
        .map(|key| match key.as_str() {
            // Another server, or another port of it, with the same requests.
            "requests" if without_address(&first[key]) == without_address(&second[key]) => "address",
            "end" => "length",
            key => key,
        })
        .collect();
    let warning = match keys.len() {
        0 => return String::new(),
        1 => "",
        _ => "; several settings differ, so no difference can be attributed to one of them",
    };
    format!("  the plan differs from A's in: {}{warning}\n", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::summary::tests::run_with_everything;

    #[test]
    fn only_different_requests_are_a_difference_of_the_plan() {
        let a = run_with_everything();
        let mut b = a.clone();
        assert_eq!(plan_differences(&a, &b), "");
        let request = |url: &str| serde_json::json!([{ "method": "GET", "url": url }]);
        let mut a = a;
        a.plan["requests"] = request("http://127.0.0.1:1/x?s=1");
        b.plan["requests"] = request("http://127.0.0.1:2/x?s=1");
        assert!(plan_differences(&a, &b).ends_with("in: address\n"), "{}", plan_differences(&a, &b));
        b.plan["requests"] = request("http://127.0.0.1:2/y");
        assert!(plan_differences(&a, &b).ends_with("in: requests\n"));
    }

    #[test]
    fn bottlenecks_and_requests_at_a_time_are_compared() {
        let mut a = run_with_everything();
        a.baseline =
            Some(record::run::Baseline { good: 9, mean_ns: 1e6, p50_ns: 1_000_000, ..Default::default() });
        let mut b = a.clone();
        b.baseline.as_mut().unwrap().mean_ns = 2e6;
        b.baseline.as_mut().unwrap().p50_ns = 2_000_000;
        b.diagnosis.as_mut().unwrap().verdict = "subject_limited".to_owned();
        let text = format_run_ratios(&[("a".to_owned(), a), ("b".to_owned(), b)], false);
        assert!(text.contains("bottleneck   kernel_cpu_bound (sure)"), "{text}");
        assert!(text.contains("bottleneck   subject_limited (sure)"), "{text}");
        assert!(
            text.contains("Your service uses up its CPU") && text.contains("requests at a time"),
            "{text}"
        );
        let row = text.lines().find(|line| line.starts_with("served at a time")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().skip(4).collect();
        assert_eq!(cells, ["27.0", "54.0", "2.000"], "{row}");
    }
}
