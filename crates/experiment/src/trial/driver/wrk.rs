//! wrk (<https://github.com/wg/wrk>), 4.x.

use super::text::{bytes, number, number_before, text_after, time_ns};
use super::{DriverCall, DriverOutputError, DriverReading, DriverSpec, DurationForm, SECOND_NS, ensure_flag};
use crate::scenario::setup::LoadTool;
use record::units::format_plural;

pub(super) const SPEC: DriverSpec = DriverSpec {
    tool: LoadTool::Wrk,
    program: "wrk",
    package: "Debian's wrk, or https://github.com/wg/wrk",
    version_arguments: &[&["-v"]],
    duration_form: DurationForm { flags: &["-d", "--duration"], step_ns: SECOND_NS, unit: "s" },
    output_file: "",
    notes: &[
        "wrk's latencies count from the send: while a connection waits for a slow response it sends \
         nothing, so the waiting time of a user is omitted (coordinated omission)",
        "wrk reports no percentile beyond the 99th, and no rate per second",
    ],
    printed_metrics: &[
        "responses_per_s",
        "bytes_in_per_s",
        "mean_ns",
        "p50_ns",
        "p75_ns",
        "p90_ns",
        "p99_ns",
        "max_ns",
        "error_fraction",
    ],
    missing_metrics: |_| &[],
    add_flags: add_latency_flag,
    parse_version,
    parse,
};

fn add_latency_flag(words: &mut Vec<String>, _: &DriverCall) {
    ensure_flag(words, &["--latency"], &["--latency"]);
}

/// Parses `wrk 4.1.0 [epoll] Copyright (C) 2012 Will Glozer`.
fn parse_version(version_output: &str) -> Option<String> {
    let line = text_after(version_output, "wrk ")?;
    Some(line.split(" Copyright").next().unwrap_or(line).trim().to_owned())
}

fn parse(text: &str) -> Result<DriverReading, DriverOutputError> {
    let summary = text.lines().find(|line| line.contains(" requests in ")).unwrap_or_default();
    let (responses, length_ns) =
        (number_before(summary, " requests in "), summary.split(" requests in ").nth(1).and_then(time_ns));
    let rate = text_after(text, "Requests/sec:").and_then(number);
    let (Some(responses), Some(length_ns), Some(rate)) = (responses, length_ns, rate) else {
        return Err(DriverOutputError::Missing("line '… requests in …' or 'Requests/sec:'"));
    };
    let mut reading = DriverReading { duration_s: length_ns / 1e9, responses, ..DriverReading::default() };
    reading.set_value("responses_per_s", Some(rate));
    reading.set_value("bytes_in_per_s", text_after(text, "Transfer/sec:").and_then(bytes));
    // "Latency  111.34us  123.50us  4.05ms  97.28%": mean, deviation, maximum.
    let row = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("Latency ") && !line.starts_with("Latency Distribution"));
    let columns: Vec<&str> = row.unwrap_or_default().split_whitespace().collect();
    reading.set_latency("mean_ns", columns.get(1).and_then(|text| time_ns(text)));
    reading.set_latency("max_ns", columns.get(3).and_then(|text| time_ns(text)));
    let levels = [("50%", "p50_ns"), ("75%", "p75_ns"), ("90%", "p90_ns"), ("99%", "p99_ns")];
    for (label, name) in levels {
        reading.set_latency(name, text_after(text, label).and_then(time_ns));
    }
    let sockets = text_after(text, "Socket errors:").unwrap_or_default();
    let failed = ["connect", "read", "write", "timeout"]
        .iter()
        .filter_map(|kind| number(sockets.split_once(&format!("{kind} "))?.1));
    let failed: f64 = failed.sum();
    let refused = text_after(text, "Non-2xx or 3xx responses:").and_then(number).unwrap_or(0.0);
    if responses <= 0.0 {
        return Err(DriverOutputError::NoResponse(format!(
            ", {} failed",
            format_plural(failed as u64, "request")
        )));
    }
    reading.set_error_fraction(failed + refused, responses + failed);
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_output_is_read() {
        let reading = parse(include_str!("captured/wrk.txt")).unwrap();
        println!("{reading:?}");
        let value = |name: &str| reading.values[name];
        assert!(reading.responses > 1000.0 && (reading.duration_s - 3.0).abs() < 0.2);
        let rate = reading.responses / reading.duration_s;
        assert!((value("responses_per_s") / rate - 1.0).abs() < 0.01);
        assert!(value("bytes_in_per_s") > value("responses_per_s"));
        let latencies = ["p50_ns", "p75_ns", "p90_ns", "p99_ns", "max_ns"].map(value);
        assert!(latencies.is_sorted() && latencies[0] > 1e3, "{latencies:?}");
        assert_eq!(value("error_fraction"), 0.0);
        assert!(!reading.values.contains_key("p999_ns") && reading.rates.is_empty());
    }

    #[test]
    fn its_errors_are_counted() {
        let reading = parse(include_str!("captured/wrk_errors.txt")).unwrap();
        println!("{reading:?}");
        assert!(reading.values["error_fraction"] > 0.5, "{reading:?}");
        let text = "  100 requests in 2.00s, 1.00KB read\n\
                    Socket errors: connect 1, read 20, write 3, timeout 76\n\
                    Non-2xx or 3xx responses: 10\nRequests/sec:     50.00\n";
        assert_eq!(parse(text).unwrap().values["error_fraction"], 110.0 / 200.0);
    }

    #[test]
    fn its_version_is_found() {
        let version_output = "wrk debian/4.1.0-3+b2 [epoll] Copyright (C) 2012 Will Glozer\nUsage: wrk\n";
        assert_eq!(parse_version(version_output).unwrap(), "debian/4.1.0-3+b2 [epoll]");
    }
}
