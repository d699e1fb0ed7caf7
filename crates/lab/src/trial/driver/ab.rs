//! ApacheBench (<https://httpd.apache.org/docs/2.4/programs/ab.html>), 2.3.

use super::text::{after, number};
use super::{Call, Length, Reading, Row, SECONDS_NS, position};
use crate::scenario::setup::Tool;

/// More requests than ab, which has one thread, sends in a second. It sets 32 bytes aside for each, of
/// which only those that are used take memory.
const REQUESTS_PER_S_MAX: u64 = 200_000;
/// The most requests that it is given, whatever the time: 640 MB.
const REQUESTS_MAX: u64 = 20_000_000;

pub(super) const ROW: Row = Row {
    tool: Tool::Ab,
    program: "ab",
    package: "Debian's apache2-utils",
    asks: &[&["-V"]],
    length: Length { flags: &["-t"], step_ns: SECONDS_NS, unit: "" },
    file: "ab.csv",
    notes: &[
        "ab's second \"Time per request\" (across all concurrent requests) is only 1 / its rate, and is \
         no latency: it is not used",
        "ab's mean is connections times length over responses, which is what a user of a closed loop sees",
        "ab's latencies count from the start of the connection, or from the send on one that is kept: \
         what waits meanwhile is left out (coordinated omission)",
        "ab tells no percentile beyond the 99th, and no rate by the second",
        "ab has one thread: a fast server is not its limit (watch the generator's own share)",
        "ab counts answers that differ in length from the first as failed; they are not counted here",
    ],
    tells: &[
        "responses_per_s",
        "bytes_in_per_s",
        "mean_ns",
        "p50_ns",
        "p75_ns",
        "p90_ns",
        "p99_ns",
        "max_ns",
        "error_share",
    ],
    lacks: |_| &[],
    complete,
    version,
    parse,
};

/// The time implies `-n 50000`, unless a number of requests comes after it (ab(1)).
fn complete(words: &mut Vec<String>, call: &Call) {
    if position(words, &["-e"]).is_none() {
        let file = call.file.to_string_lossy().into_owned();
        words.splice(0..0, ["-e".to_owned(), file]).for_each(drop);
    }
    let Some((at, given)) = position(words, &["-t"]) else { return };
    let after = if given == super::Given::Next { at + 2 } else { at + 1 };
    let behind = words.get(after..).unwrap_or_default();
    if position(behind, &["-n"]).is_none() && after <= words.len() {
        let length_s = call.length.parse().unwrap_or(1_u64);
        let requests = length_s.saturating_mul(REQUESTS_PER_S_MAX).clamp(1, REQUESTS_MAX);
        words.splice(after..after, ["-n".to_owned(), requests.to_string()]).for_each(drop);
    }
}

/// `This is ApacheBench, Version 2.3 <$Revision: 1923142 $>`.
fn version(said: &str) -> Option<String> {
    after(said, "This is ApacheBench, Version").map(str::to_owned)
}

fn parse(text: &str) -> Result<Reading, String> {
    let figure = |label: &str| after(text, label).and_then(number);
    let (Some(responses), Some(length_s), Some(rate)) = (
        figure("Complete requests:"),
        figure("Time taken for tests:"),
        figure("Requests per second:"),
    ) else {
        return Err("there is no 'Complete requests:', 'Time taken for tests:' or 'Requests per \
                    second:'"
            .to_owned());
    };
    let mut reading = Reading { length_s, responses, ..Reading::default() };
    reading.note("responses_per_s", Some(rate));
    let transferred = figure("Total transferred:");
    reading.note("bytes_in_per_s", transferred.map(|bytes| bytes / length_s.max(1e-9)));
    reading.latency("mean_ns", figure("Time per request:").map(|ms| ms * 1e6));
    // "50,0.093": the file of percentiles has microseconds, what is printed has milliseconds.
    let levels = [
        ("50,", "p50_ns"),
        ("75,", "p75_ns"),
        ("90,", "p90_ns"),
        ("99,", "p99_ns"),
        ("100,", "max_ns"),
    ];
    let table = text.split("Percentage served,Time in ms").nth(1);
    match table {
        Some(table) => {
            for (label, name) in levels {
                reading.latency(name, after(table, label).and_then(number).map(|ms| ms * 1e6));
            }
        }
        None => reading.notes.push("ab wrote no file of percentiles (-e)".to_owned()),
    }
    let failed = figure("Failed requests:").unwrap_or(0.0);
    let kinds = text.lines().map(str::trim).find(|line| line.starts_with("(Connect: "));
    let of_length = kinds.and_then(|line| number(line.split_once("Length: ")?.1)).unwrap_or(0.0);
    let refused = figure("Non-2xx responses:").unwrap_or(0.0);
    reading.errors((failed - of_length).max(0.0) + refused, responses);
    if of_length > 0.0 {
        let note = format!("{of_length:.0} answers differed in length from the first");
        reading.notes.push(note);
    }
    let kept = figure("Keep-Alive requests:");
    if kept.is_none_or(|kept| kept == 0.0) {
        reading.notes.push("each request had a connection of its own (no -k)".to_owned());
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
        assert!(reading.responses > 1000.0 && (reading.length_s - 3.0).abs() < 0.2);
        let rate = reading.responses / reading.length_s;
        assert!((value("responses_per_s") / rate - 1.0).abs() < 0.01);
        assert!(value("bytes_in_per_s") > value("responses_per_s"));
        let latencies = ["p50_ns", "p75_ns", "p90_ns", "p99_ns", "max_ns"].map(value);
        assert!(latencies.is_sorted() && latencies[0] > 1e3, "{latencies:?}");
        assert!(value("mean_ns") > 1e4, "not the time across all requests");
        assert_eq!(value("error_share"), 0.0);
        assert!(reading.notes.is_empty(), "{:?}", reading.notes);
    }

    #[test]
    fn its_errors_are_counted_without_those_of_length() {
        let reading = parse(include_str!("captured/ab_errors.txt")).unwrap();
        println!("{reading:?}");
        assert_eq!(reading.values["error_share"], 1.0, "{reading:?}");
        let text = "Complete requests: 100\nTime taken for tests: 2.000 seconds\n\
                    Failed requests: 30\n   (Connect: 0, Receive: 5, Length: 20, Exceptions: 5)\n\
                    Requests per second: 50.00 [#/sec] (mean)\n";
        let reading = parse(text).unwrap();
        assert_eq!(reading.values["error_share"], 0.1);
        assert!(reading.notes.iter().any(|note| note.starts_with("20 answers")));
        assert!(!reading.values.contains_key("p50_ns"));
    }

    #[test]
    fn its_version_is_found() {
        let said = "This is ApacheBench, Version 2.3 <$Revision$>\nCopyright 1996\n";
        assert_eq!(version(said).unwrap(), "2.3 <$Revision$>");
    }
}
