//! nghttp2's h2load (<https://nghttp2.org/documentation/h2load-howto.html>), 1.52; columns are found by
//! their names, so that those which later versions add are read too.

use super::text::{after, before, number, time_ns};
use super::{Call, Length, MILLISECONDS_NS, Reading, Row};
use crate::scenario::setup::Tool;

pub(super) const ROW: Row = Row {
    tool: Tool::H2load,
    program: "h2load",
    package: "Debian's nghttp2-client",
    asks: &[&["--version"]],
    length: Length { flags: &["-D", "--duration"], step_ns: MILLISECONDS_NS, unit: "ms" },
    file: "",
    notes: &[
        "h2load tells least, mean and longest of its latencies, and percentiles only in later versions \
         (not in 1.52); no rate by the second",
        "h2load's latencies count from the send: what waits meanwhile is left out (coordinated omission)",
        "h2load speaks HTTP/2 without TLS to http:// unless it is told otherwise (--h1)",
    ],
    tells: &[
        "responses_per_s",
        "bytes_in_per_s",
        "mean_ns",
        "p50_ns",
        "p90_ns",
        "p99_ns",
        "max_ns",
        "error_share",
    ],
    lacks,
    complete,
    version,
    parse,
};

/// The columns that later versions have.
const PERCENTILES: &[&str] = &["p50_ns", "p90_ns", "p99_ns"];
/// The last version that is known to have no percentiles.
const WITHOUT_PERCENTILES: (u32, u32) = (1, 52);

fn lacks(said: &str) -> &'static [&'static str] {
    let version = version(said).unwrap_or_default();
    let mut numbers =
        version.trim_start_matches("nghttp2/").split('.').map_while(|it| it.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) <= WITHOUT_PERCENTILES => PERCENTILES,
        _ => &[],
    }
}

fn complete(_: &mut Vec<String>, _: &Call) {}

/// `h2load nghttp2/1.52.0`.
fn version(said: &str) -> Option<String> {
    after(said, "h2load ").map(str::to_owned)
}

fn parse(text: &str) -> Result<Reading, String> {
    let wrong = || "there is no line 'finished in …' or 'requests: …'".to_owned();
    let finished = after(text, "finished in").ok_or_else(wrong)?;
    let requests = after(text, "requests:").ok_or_else(wrong)?;
    let length_ns = time_ns(finished).ok_or_else(wrong)?;
    let rate = before(finished, " req/s").ok_or_else(wrong)?;
    let done = before(requests, " done").ok_or_else(wrong)?;
    let errored = before(requests, " errored").unwrap_or(0.0);
    let failed = before(requests, " failed").unwrap_or(0.0);
    if done <= 0.0 {
        return Err("no request was answered".to_owned());
    }
    let (length_s, responses) = (length_ns / 1e9, (done - errored).max(0.0));
    let mut reading = Reading { length_s, responses, ..Reading::default() };
    reading.note("responses_per_s", Some(rate));
    let traffic = after(text, "traffic:")
        .and_then(|line| before(line, ") total").or_else(|| before(line, " bytes total")));
    reading.note("bytes_in_per_s", traffic.map(|bytes| bytes / length_s.max(1e-9)));
    // Those that failed are the errored ones and those with another status than 2xx and 3xx.
    reading.errors(failed, done);
    let figures = row_of_requests(text);
    for (column, name) in [
        ("mean", "mean_ns"),
        ("median", "p50_ns"),
        ("p90", "p90_ns"),
        ("p99", "p99_ns"),
        ("max", "max_ns"),
    ] {
        let found = figures.iter().find(|(title, _)| *title == column);
        reading.latency(name, found.map(|(_, ns)| *ns));
    }
    let stated = before(requests, " total").or_else(|| number(requests));
    if let Some(total) = stated.filter(|total| *total > done + 0.5) {
        reading.notes.push(format!("{:.0} requests had no answer when it ended", total - done));
    }
    Ok(reading)
}

/// The times of requests with the titles of their columns, as far as both are there.
fn row_of_requests(text: &str) -> Vec<(&str, f64)> {
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
        assert!(reading.responses > 1000.0 && (reading.length_s - 3.0).abs() < 0.2);
        let rate = reading.responses / reading.length_s;
        assert!((value("responses_per_s") / rate - 1.0).abs() < 0.01);
        assert!(value("bytes_in_per_s") > value("responses_per_s"));
        assert!(value("max_ns") > value("mean_ns") && value("mean_ns") > 1e3);
        assert_eq!(value("error_share"), 0.0);
        assert!(!reading.values.contains_key("p99_ns"));
    }

    #[test]
    fn its_errors_are_counted() {
        let reading = parse(include_str!("captured/h2load_errors.txt")).unwrap();
        println!("{reading:?}");
        assert_eq!(reading.values["error_share"], 1.0, "{reading:?}");
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let text = "                     min         max      median         p99        mean         sd        +/- sd\n\
                    time for request:       43us     12.34ms       205us      1.20ms       230us       1us    90.00%\n";
        let row = row_of_requests(text);
        let expected =
            [("min", 43e3), ("max", 12.34e6), ("median", 205e3), ("p99", 1.2e6), ("mean", 230e3)];
        assert_eq!(row, expected);
        assert_eq!(version("h2load nghttp2/1.52.0\n").unwrap(), "nghttp2/1.52.0");
    }

    #[test]
    fn percentiles_are_those_of_later_versions() {
        for old in ["h2load nghttp2/1.52.0\n", "h2load nghttp2/1.9.1; /usr/bin/h2load, 9 bytes"] {
            assert_eq!(lacks(old), PERCENTILES, "{old}");
        }
        for unknown in ["h2load nghttp2/2.0.0", "h2load nghttp2/1.99", "h2load x", ""] {
            assert!(lacks(unknown).is_empty(), "{unknown}");
        }
    }
}
