//! h2load of nghttp2 (<https://nghttp2.org/documentation/h2load-howto.html>), 1.52. Columns are
//! found by their names, so that additional ones of later versions are read too.

use super::text::{number, number_before, text_after, time_ns};
use super::{DriverCall, DriverOutputError, DriverReading, DriverSpec, DurationForm, MILLISECOND_NS};
use crate::scenario::setup::LoadTool;

pub(super) const SPEC: DriverSpec = DriverSpec {
    tool: LoadTool::H2load,
    program: "h2load",
    package: "Debian's nghttp2-client",
    version_arguments: &[&["--version"]],
    duration_form: DurationForm { flags: &["-D", "--duration"], step_ns: MILLISECOND_NS, unit: "ms" },
    output_file: "",
    notes: &[
        "h2load reports minimum, mean and maximum of its latencies, and percentiles only in later versions \
         (not in 1.52); no rate per second",
        "h2load's latencies count from the send: waiting requests are omitted (coordinated omission)",
        "h2load uses HTTP/2 without TLS for http:// unless --h1 is given",
    ],
    printed_metrics: &[
        "responses_per_s",
        "bytes_in_per_s",
        "mean_ns",
        "p50_ns",
        "p90_ns",
        "p99_ns",
        "max_ns",
        "error_fraction",
    ],
    missing_metrics,
    add_flags: add_no_flags,
    parse_version,
    parse,
};

/// Columns of later versions.
const PERCENTILES: &[&str] = &["p50_ns", "p90_ns", "p99_ns"];
/// Last version that is known to have no percentiles.
const WITHOUT_PERCENTILES: (u32, u32) = (1, 52);

fn missing_metrics(version_output: &str) -> &'static [&'static str] {
    let version = parse_version(version_output).unwrap_or_default();
    let mut numbers = version.trim_start_matches("nghttp2/").split('.').map_while(|it| it.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) <= WITHOUT_PERCENTILES => PERCENTILES,
        _ => &[],
    }
}

fn add_no_flags(_: &mut Vec<String>, _: &DriverCall) {}

/// Parses `h2load nghttp2/1.52.0`.
fn parse_version(version_output: &str) -> Option<String> {
    text_after(version_output, "h2load ").map(str::to_owned)
}

fn parse(text: &str) -> Result<DriverReading, DriverOutputError> {
    let wrong = || DriverOutputError::Missing("line 'finished in …' or 'requests: …'");
    let finished = text_after(text, "finished in").ok_or_else(wrong)?;
    let requests = text_after(text, "requests:").ok_or_else(wrong)?;
    let length_ns = time_ns(finished).ok_or_else(wrong)?;
    let rate = number_before(finished, " req/s").ok_or_else(wrong)?;
    let done = number_before(requests, " done").ok_or_else(wrong)?;
    let errored = number_before(requests, " errored").unwrap_or(0.0);
    let failed = number_before(requests, " failed").unwrap_or(0.0);
    if done <= 0.0 {
        return Err(DriverOutputError::NoResponse(String::new()));
    }
    let (length_s, responses) = (length_ns / 1e9, (done - errored).max(0.0));
    let mut reading = DriverReading { duration_s: length_s, responses, ..DriverReading::default() };
    reading.set_value("responses_per_s", Some(rate));
    let traffic = text_after(text, "traffic:")
        .and_then(|line| number_before(line, ") total").or_else(|| number_before(line, " bytes total")));
    reading.set_value("bytes_in_per_s", traffic.map(|bytes| bytes / length_s.max(1e-9)));
    // Failed requests are those with an error, and those with a status other than 2xx and 3xx.
    reading.set_error_fraction(failed, done);
    let figures = request_times(text);
    for (column, name) in
        [("mean", "mean_ns"), ("median", "p50_ns"), ("p90", "p90_ns"), ("p99", "p99_ns"), ("max", "max_ns")]
    {
        let value = figures.iter().find(|(title, _)| *title == column);
        reading.set_latency(name, value.map(|(_, ns)| *ns));
    }
    let stated = number_before(requests, " total").or_else(|| number(requests));
    if let Some(total) = stated.filter(|total| *total > done + 0.5) {
        reading.notes.push(format!("{:.0} requests had no response at its end", total - done));
    }
    Ok(reading)
}

/// Returns the times of requests with the titles of their columns, as far as both exist.
fn request_times(text: &str) -> Vec<(&str, f64)> {
    let mut titles = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"min") {
            titles = words;
        }
        let Some((label, row)) = line.split_once(':') else { continue };
        if !titles.is_empty() && ["time for request", "request"].contains(&label.trim()) {
            let values = row.split_whitespace().map(time_ns);
            let pairs = titles.iter().zip(values).take_while(|(title, _)| **title != "sd");
            return pairs.filter_map(|(title, ns)| Some((*title, ns?))).collect();
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_output_is_read() {
        let reading = parse(include_str!("captured/h2load.txt")).unwrap();
        println!("{reading:?}");
        let value = |name: &str| reading.values[name];
        assert!(reading.responses > 1000.0 && (reading.duration_s - 3.0).abs() < 0.2);
        let rate = reading.responses / reading.duration_s;
        assert!((value("responses_per_s") / rate - 1.0).abs() < 0.01);
        assert!(value("bytes_in_per_s") > value("responses_per_s"));
        assert!(value("max_ns") > value("mean_ns") && value("mean_ns") > 1e3);
        assert_eq!(value("error_fraction"), 0.0);
        assert!(!reading.values.contains_key("p99_ns"));
    }

    #[test]
    fn its_errors_are_counted() {
        let reading = parse(include_str!("captured/h2load_errors.txt")).unwrap();
        println!("{reading:?}");
        assert_eq!(reading.values["error_fraction"], 1.0, "{reading:?}");
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let text = "                     min         max      median         p99        mean         sd        +/- sd\n\
                    time for request:       43us     12.34ms       205us      1.20ms       230us       1us    90.00%\n";
        let row = request_times(text);
        let expected = [("min", 43e3), ("max", 12.34e6), ("median", 205e3), ("p99", 1.2e6), ("mean", 230e3)];
        assert_eq!(row, expected);
        assert_eq!(parse_version("h2load nghttp2/1.52.0\n").unwrap(), "nghttp2/1.52.0");
    }

    #[test]
    fn percentiles_are_those_of_later_versions() {
        for old in ["h2load nghttp2/1.52.0\n", "h2load nghttp2/1.9.1; /usr/bin/h2load, 9 bytes"] {
            assert_eq!(missing_metrics(old), PERCENTILES, "{old}");
        }
        for unknown in ["h2load nghttp2/2.0.0", "h2load nghttp2/1.99", "h2load x", ""] {
            assert!(missing_metrics(unknown).is_empty(), "{unknown}");
        }
    }
}
