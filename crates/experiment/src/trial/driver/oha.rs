//! oha (<https://github.com/hatoo/oha>): its JSON, according to `schema.json` and `src/printer.rs`
//! of 1.15 and `-j` of 1.4.

use serde_json::Value;

use super::text::text_after;
use super::{
    DriverCall, DriverOutputError, DriverReading, DriverSpec, DurationForm, MILLISECOND_NS, ensure_flag,
};
use crate::scenario::setup::LoadTool;

/// Error text of oha for requests that its own end cut off; they do not count as errors.
const CUT_OFF: &str = "aborted due to deadline";

pub(super) const SPEC: DriverSpec = DriverSpec {
    tool: LoadTool::Oha,
    program: "oha",
    package: "cargo install oha",
    version_arguments: &[&["--version"], &["--help"]],
    duration_form: DurationForm { flags: &["-z", "--duration"], step_ns: MILLISECOND_NS, unit: "ms" },
    output_file: "",
    notes: &[
        "oha's latencies count from the send, unless it has a rate and --latency-correction: waiting \
         requests are omitted (coordinated omission)",
        "oha counts only bytes of bodies, so bytes received are not available; its rates are of 10 ms, so \
         the best second is not available",
        "oha keeps every response in memory until it ends",
    ],
    printed_metrics: &[
        "responses_per_s",
        "mean_ns",
        "p50_ns",
        "p75_ns",
        "p90_ns",
        "p99_ns",
        "p999_ns",
        "max_ns",
        "error_fraction",
    ],
    missing_metrics: |_| &[],
    add_flags: add_json_flag,
    parse_version,
    parse,
};

/// Adds the flag for JSON: `-j` in older versions, `--output-format` in later ones. The help shows
/// which.
fn add_json_flag(words: &mut Vec<String>, call: &DriverCall) {
    let format = ["--output-format", "-j", "--json"];
    match call.version_output.contains("--output-format") {
        true => ensure_flag(words, &format, &["--output-format", "json"]),
        false => ensure_flag(words, &format, &["-j"]),
    }
    ensure_flag(words, &["--no-tui"], &["--no-tui"]);
}

/// Parses `oha 1.15.0`.
fn parse_version(version_output: &str) -> Option<String> {
    text_after(version_output, "oha ").map(str::to_owned)
}

fn parse(text: &str) -> Result<DriverReading, DriverOutputError> {
    let from = text.find('{').ok_or(DriverOutputError::NoJson)?;
    let value: Value = serde_json::from_str(text[from..].trim()).map_err(DriverOutputError::NotJson)?;
    let counts = |name: &str| -> Vec<(String, f64)> {
        let table = value[name].as_object().into_iter().flatten();
        table.filter_map(|(key, count)| Some((key.clone(), count.as_f64()?))).collect()
    };
    let statuses = counts("statusCodeDistribution");
    let responses: f64 = statuses.iter().map(|(_, count)| count).sum();
    let Some(length_s) = value["summary"]["total"].as_f64() else {
        return Err(DriverOutputError::Missing("'summary.total' in its JSON"));
    };
    let errors = counts("errorDistribution");
    let cut_off = |kind: &str| kind.contains(CUT_OFF);
    let failed: f64 = errors.iter().filter(|(kind, _)| !cut_off(kind)).map(|(_, count)| count).sum();
    if responses <= 0.0 {
        let kinds: Vec<&str> = errors.iter().map(|(kind, _)| kind.as_str()).collect();
        return Err(DriverOutputError::NoResponse(format!(" ({})", kinds.join("; "))));
    }
    let refused = statuses.iter().filter(|(status, _)| status.starts_with(['4', '5']));
    let refused: f64 = refused.map(|(_, count)| count).sum();
    let mut reading = DriverReading { duration_s: length_s, responses, ..DriverReading::default() };
    // Its own rate also counts requests that were cut off.
    reading.set_value("responses_per_s", Some(responses / length_s.max(1e-9)));
    reading.set_error_fraction(failed + refused, responses + failed);
    let ns = |value: &Value| value.as_f64().map(|seconds| seconds * 1e9);
    reading.set_latency("mean_ns", ns(&value["summary"]["average"]));
    reading.set_latency("max_ns", ns(&value["summary"]["slowest"]));
    for (level, name) in
        [("p50", "p50_ns"), ("p75", "p75_ns"), ("p90", "p90_ns"), ("p99", "p99_ns"), ("p99.9", "p999_ns")]
    {
        reading.set_latency(name, ns(&value["latencyPercentiles"][level]));
    }
    Ok(reading)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::trial::driver) const TEXT: &str = r#"{
      "summary": { "successRate": 1.0, "total": 8.01, "slowest": 0.012, "fastest": 0.00004,
        "average": 0.0002, "requestsPerSec": 1000.0, "totalData": 16000, "sizePerRequest": 2,
        "sizePerSec": 2000.0 },
      "responseTimeHistogram": { "0.0002": 8000 },
      "latencyPercentiles": { "p10": 0.0001, "p25": 0.00015, "p50": 0.0002, "p75": 0.00025,
        "p90": 0.0003, "p95": 0.0004, "p99": 0.001, "p99.9": 0.004, "p99.99": null },
      "rps": { "mean": 1000.0, "stddev": 1.0, "max": 1200.0, "min": 1.0, "percentiles": {} },
      "details": {},
      "statusCodeDistribution": { "200": 7990, "503": 10 },
      "errorDistribution": { "aborted due to deadline": 10, "connection closed": 10 }
    }"#;

    #[test]
    fn its_output_is_read() {
        let reading = parse(TEXT).unwrap();
        let value = |name: &str| reading.values[name];
        assert_eq!((reading.duration_s, reading.responses), (8.01, 8000.0));
        assert!((value("responses_per_s") - 8000.0 / 8.01).abs() < 1e-9);
        assert!((value("p50_ns") - 2e5).abs() < 1e-3 && (value("p999_ns") - 4e6).abs() < 1e-3);
        assert!((value("max_ns") - 12e6).abs() < 1e-3);
        assert!((value("error_fraction") - 20.0 / 8010.0).abs() < 1e-12, "what was cut off is no error");
        assert!(!reading.values.contains_key("bytes_in_per_s"));
    }

    #[test]
    fn a_load_without_a_response_failed() {
        let text = TEXT.replace(r#""200": 7990, "503": 10"#, "");
        assert!(parse(&text).unwrap_err().to_string().contains("connection closed"));
        assert!(parse("{ nonsense").unwrap_err().to_string().contains("JSON"));
    }

    #[test]
    fn its_flags_follow_what_it_knows() {
        let completed = |version_output: &str, line: &str| {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            add_json_flag(
                &mut words,
                &DriverCall { version_output: version_output.to_owned(), ..DriverCall::default() },
            );
            words.join(" ")
        };
        assert_eq!(completed("--output-format <X>", "u"), "--no-tui --output-format json u");
        assert_eq!(completed("-j, --json", "u"), "--no-tui -j u");
        assert_eq!(completed("-j, --json", "--no-tui -j u"), "--no-tui -j u");
        assert_eq!(parse_version("oha 1.15.0\n\nOhayou").unwrap(), "1.15.0");
    }
}
