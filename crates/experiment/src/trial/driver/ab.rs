//! ApacheBench (<https://httpd.apache.org/docs/2.4/programs/ab.html>), 2.3.

use super::text::{number, text_after};
use super::{DriverCall, DriverOutputError, DriverReading, DriverSpec, DurationForm, SECOND_NS, find_flag};
use crate::scenario::setup::LoadTool;

/// Upper bound for the requests per second of ab, which has one thread. It reserves 32 bytes for
/// each; only those in use take memory.
const REQUESTS_PER_S_MAX: u64 = 200_000;
/// Maximum number of requests, whatever the time: 640 MB.
const REQUESTS_MAX: u64 = 20_000_000;

pub(super) const SPEC: DriverSpec = DriverSpec {
    tool: LoadTool::Ab,
    program: "ab",
    package: "Debian's apache2-utils",
    version_arguments: &[&["-V"]],
    duration_form: DurationForm { flags: &["-t"], step_ns: SECOND_NS, unit: "" },
    output_file: "ab.csv",
    notes: &[
        "ab's second \"Time per request\" (across all concurrent requests) is only 1 / its rate, not a \
         latency: it is not used",
        "ab's mean is connections × length / responses, the latency of a user of a closed loop",
        "ab's latencies count from the start of the connection, or from the send with keep-alive: waiting \
         requests are omitted (coordinated omission)",
        "ab reports no percentile beyond the 99th, and no rate per second",
        "ab has one thread: it may be the limit before a fast server (check the generator's CPU use)",
        "ab counts responses that differ in length from the first as failed; they are not counted here",
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
    add_flags: add_output_flags,
    parse_version,
    parse,
};

/// Adds the file of percentiles and the number of requests. A time implies `-n 50000`, unless a
/// number of requests follows it (ab(1)).
fn add_output_flags(words: &mut Vec<String>, call: &DriverCall) {
    if find_flag(words, &["-e"]).is_none() {
        let file = call.file.to_string_lossy().into_owned();
        words.splice(0..0, ["-e".to_owned(), file]).for_each(drop);
    }
    let Some((at, given)) = find_flag(words, &["-t"]) else { return };
    let after = if given == super::FlagValuePosition::NextWord { at + 2 } else { at + 1 };
    let behind = words.get(after..).unwrap_or_default();
    if find_flag(behind, &["-n"]).is_none() && after <= words.len() {
        let length_s = call.duration.parse().unwrap_or(1_u64);
        let requests = length_s.saturating_mul(REQUESTS_PER_S_MAX).clamp(1, REQUESTS_MAX);
        words.splice(after..after, ["-n".to_owned(), requests.to_string()]).for_each(drop);
    }
}

/// Parses `This is ApacheBench, Version 2.3 <$Revision: 1923142 $>`.
fn parse_version(version_output: &str) -> Option<String> {
    text_after(version_output, "This is ApacheBench, Version").map(str::to_owned)
}

fn parse(text: &str) -> Result<DriverReading, DriverOutputError> {
    let figure = |label: &str| text_after(text, label).and_then(number);
    let (Some(responses), Some(length_s), Some(rate)) =
        (figure("Complete requests:"), figure("Time taken for tests:"), figure("Requests per second:"))
    else {
        return Err(DriverOutputError::Missing(
            "'Complete requests:', 'Time taken for tests:' or 'Requests per second:'",
        ));
    };
    let mut reading = DriverReading { duration_s: length_s, responses, ..DriverReading::default() };
    reading.set_value("responses_per_s", Some(rate));
    let transferred = figure("Total transferred:");
    reading.set_value("bytes_in_per_s", transferred.map(|bytes| bytes / length_s.max(1e-9)));
    reading.set_latency("mean_ns", figure("Time per request:").map(|ms| ms * 1e6));
    // "50,0.093": the percentiles have microseconds in the file, and milliseconds in the printed
    // output.
    let levels =
        [("50,", "p50_ns"), ("75,", "p75_ns"), ("90,", "p90_ns"), ("99,", "p99_ns"), ("100,", "max_ns")];
    let table = text.split("Percentage served,Time in ms").nth(1);
    match table {
        Some(table) => {
            for (label, name) in levels {
                reading.set_latency(name, text_after(table, label).and_then(number).map(|ms| ms * 1e6));
            }
        }
        None => reading.notes.push("ab wrote no percentile file (-e)".to_owned()),
    }
    let failed = figure("Failed requests:").unwrap_or(0.0);
    let kinds = text.lines().map(str::trim).find(|line| line.starts_with("(Connect: "));
    let length_failures = kinds.and_then(|line| number(line.split_once("Length: ")?.1)).unwrap_or(0.0);
    let refused = figure("Non-2xx responses:").unwrap_or(0.0);
    reading.set_error_fraction((failed - length_failures).max(0.0) + refused, responses);
    if length_failures > 0.0 {
        let note = format!("{length_failures:.0} responses differed in length from the first");
        reading.notes.push(note);
    }
    let kept = figure("Keep-Alive requests:");
    if kept.is_none_or(|kept| kept == 0.0) {
        reading.notes.push("each request used a new connection (no -k)".to_owned());
    }
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_output_is_read() {
        let reading = parse(include_str!("captured/ab.txt")).unwrap();
        println!("{reading:?}");
        let value = |name: &str| reading.values[name];
        assert!(reading.responses > 1000.0 && (reading.duration_s - 3.0).abs() < 0.2);
        let rate = reading.responses / reading.duration_s;
        assert!((value("responses_per_s") / rate - 1.0).abs() < 0.01);
        assert!(value("bytes_in_per_s") > value("responses_per_s"));
        let latencies = ["p50_ns", "p75_ns", "p90_ns", "p99_ns", "max_ns"].map(value);
        assert!(latencies.is_sorted() && latencies[0] > 1e3, "{latencies:?}");
        assert!(value("mean_ns") > 1e4, "not the time across all requests");
        assert_eq!(value("error_fraction"), 0.0);
        assert!(reading.notes.is_empty(), "{:?}", reading.notes);
    }

    #[test]
    fn its_errors_are_counted_without_those_of_length() {
        let reading = parse(include_str!("captured/ab_errors.txt")).unwrap();
        println!("{reading:?}");
        assert_eq!(reading.values["error_fraction"], 1.0, "{reading:?}");
        let text = "Complete requests: 100\nTime taken for tests: 2.000 seconds\n\
                    Failed requests: 30\n   (Connect: 0, Receive: 5, Length: 20, Exceptions: 5)\n\
                    Requests per second: 50.00 [#/sec] (mean)\n";
        let reading = parse(text).unwrap();
        assert_eq!(reading.values["error_fraction"], 0.1);
        assert!(reading.notes.iter().any(|note| note.starts_with("20 responses")));
        assert!(!reading.values.contains_key("p50_ns"));
    }

    #[test]
    fn its_version_is_found() {
        let version_output = "This is ApacheBench, Version 2.3 <$Revision$>\nCopyright 1996\n";
        assert_eq!(parse_version(version_output).unwrap(), "2.3 <$Revision$>");
    }
}
