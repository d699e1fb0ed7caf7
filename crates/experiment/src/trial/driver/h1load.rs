//! h1load (<https://github.com/wtarreau/h1load>): its long raw format (`-ll`), percentiles (`-P`)
//! and classes of status (`-S`), according to its source and `scripts/README.txt` of 2025. It has
//! no version.

use super::{DriverCall, DriverOutputError, DriverReading, DriverSpec, DurationForm, SECOND_NS, ensure_flag};
use crate::scenario::setup::LoadTool;

pub(super) const SPEC: DriverSpec = DriverSpec {
    tool: LoadTool::H1load,
    program: "h1load",
    package: "https://github.com/wtarreau/h1load",
    version_arguments: &[&["-h"]],
    duration_form: DurationForm { flags: &["-d"], step_ns: SECOND_NS, unit: "" },
    output_file: "",
    notes: &[
        "h1load's latencies count from the send: waiting requests are omitted (coordinated omission)",
        "h1load has no version",
        "h1load's rate per second is that of complete lines: the last, which may cover half a second, does \
         not count for the best second",
        "h1load's percentiles end below the maximum, and its errors do not include timeouts",
    ],
    printed_metrics: &[
        "responses_per_s",
        "bytes_in_per_s",
        "connections_per_s",
        "rate_max_per_s",
        "mean_ns",
        "p50_ns",
        "p75_ns",
        "p90_ns",
        "p99_ns",
        "p999_ns",
        "error_fraction",
    ],
    missing_metrics: |_| &[],
    add_flags: add_raw_format_flags,
    parse_version: |_| None,
    parse,
};

fn add_raw_format_flags(words: &mut Vec<String>, _: &DriverCall) {
    ensure_flag(words, &["-ll"], &["-ll"]);
    ensure_flag(words, &["-P"], &["-P"]);
    ensure_flag(words, &["-S"], &["-S"]);
}

/// Line of one second. All but the rates are sums since the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct RawLine {
    time_s: f64,
    connections: f64,
    requests: f64,
    bytes: f64,
    errors: f64,
    rate: f64,
    last_byte_us: Option<f64>,
    refused: f64,
}

/// Parses `time conns tot_conn tot_req tot_bytes err thr cps rps Bps bps ttfb ttlb [1xx 2xx 3xx 4xx
/// 5xx]`.
fn parse_line(text: &str) -> Option<RawLine> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = |index: usize| words.get(index).and_then(|word| word.parse::<f64>().ok());
    if text.trim_start().starts_with('#') || words.len() < 13 {
        return None;
    }
    Some(RawLine {
        time_s: at(0)?,
        connections: at(2)?,
        requests: at(3)?,
        bytes: at(4)?,
        errors: at(5)?,
        rate: at(8)?,
        last_byte_us: at(12),
        refused: at(16).unwrap_or(0.0) + at(17).unwrap_or(0.0),
    })
}

/// Returns the number of lines that belong to the load. At its end, requests in flight are
/// completed, but no longer timed. The first line with requests and without a latency begins this
/// phase, and all later lines belong to it. If there is none, a last line without requests only
/// closes the run.
fn load_line_count(lines: &[RawLine]) -> usize {
    let requests = |at: usize| {
        let before = at.checked_sub(1).map_or(0.0, |before| lines[before].requests);
        lines[at].requests - before
    };
    let waited = (0..lines.len()).find(|&at| requests(at) > 0.0 && lines[at].last_byte_us.is_none());
    let is_closing = |at: usize| requests(at) <= 0.0 && requests(at - 1) > 0.0;
    waited.unwrap_or_else(|| match lines.len() {
        length if length > 1 && is_closing(length - 1) => length - 1,
        length => length,
    })
}

fn parse(text: &str) -> Result<DriverReading, DriverOutputError> {
    let (seconds, percentiles) = text.split_once("#pctl").unwrap_or((text, ""));
    let lines: Vec<RawLine> = seconds.lines().filter_map(parse_line).collect();
    let lines = &lines[..load_line_count(&lines)];
    let Some(last) = lines.last().copied().filter(|last| last.requests > 0.0) else {
        return Err(DriverOutputError::Missing("line of a second with requests (-ll)"));
    };
    // A line has the requests since the line before; its rate gives the length of that time.
    let mut before = RawLine::default();
    let (mut length_s, mut latency_us, mut timed) = (0.0, 0.0, 0.0);
    let mut rates = Vec::new();
    for line in lines {
        let requests = line.requests - before.requests;
        if line.rate > 0.0 {
            let took_s = requests / line.rate;
            length_s += took_s;
            // Lines are written a little late or early.
            if took_s > 0.9 {
                rates.push(line.rate);
            }
        } else {
            length_s += (line.time_s - before.time_s).clamp(0.0, 1.0);
            rates.push(0.0);
        }
        if let Some(us) = line.last_byte_us {
            latency_us += us * requests;
            timed += requests;
        }
        before = *line;
    }
    let refused: f64 = lines.iter().map(|line| line.refused).sum();
    let mut reading =
        DriverReading { duration_s: length_s, responses: last.requests, rates, ..DriverReading::default() };
    let per_s = |sum: f64| Some(sum / length_s.max(1e-9));
    reading.set_value("responses_per_s", per_s(last.requests));
    reading.set_value("bytes_in_per_s", per_s(last.bytes));
    reading.set_value("connections_per_s", per_s(last.connections));
    reading.set_value("rate_max_per_s", reading.rates.iter().copied().reduce(f64::max));
    reading.set_latency("mean_ns", (timed > 0.0).then(|| latency_us / timed * 1e3));
    for (level, name) in
        [("50", "p50_ns"), ("75", "p75_ns"), ("90", "p90_ns"), ("99", "p99_ns"), ("99.9", "p999_ns")]
    {
        reading.set_latency(name, percentile_ns(percentiles, level));
    }
    reading.set_error_fraction(last.errors + refused, last.requests + last.errors);
    Ok(reading)
}

/// Returns the time to the last byte in ns, from `99 1 100 ttfb-count ttfb-ms ttlb-count ttlb-ms`.
fn percentile_ns(table: &str, level: &str) -> Option<f64> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(level))?;
    let ms: f64 = row.split_whitespace().nth(6)?.parse().ok()?;
    Some(ms * 1e6)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Output of a run of 3 s with 4 connections. Most of the percentiles and the errors are
    /// invented.
    pub(in crate::trial::driver) const TEXT: &str = "\
#_____time conns tot_conn  tot_req      tot_bytes    err thr cps rps Bps bps ttfb(us) ttlb(us) 1xx 2xx 3xx 4xx 5xx
1795379561     4        4    44139      127032042      0 100 4.0 44139.0 127032042.0 1016256336.0 88.9 88.9   0 44139   0   0   0 
1795379562     4        4    88676      255209528      0 100 0.0 44581.6 128305791.8 1026446334.3 90.6 90.6   0 44437   0 100   0 
1795379563     4        4   140181      403440918      5 100 0.0 51453.5 148083306.7 1184666453.5 77.7 77.7   0 51505   0   0   0 
1795379564     4        4   140189      403463942      5 100 0.0 8.0 23001.0 184008.0 - -   0   8   0   0   0 
1795379565     4        4   140189      403463942      5 100 0.0 0.0 0.0 0.0 - -   0   0   0   0   0 
#======= Percentiles for time-to-first-byte and time-to-last-byte =======
# use $3:$5 $3:$7 with logscale X
# $1     $2      $3         $4       $5         $6       $7
#pctl   tail   invtail   ttfbcnt ttfb(ms)   ttlbcnt ttlb(ms)
50      50     2           69995    0.074     69995    0.080
75      25     4          105142    0.100    105142    0.110
90      10     10         126111    0.120    126111    0.130
99      1      100        138778    0.300    138778    0.400
99.9    0.1    1000       140032    0.900    140032    1.200
99.9999 0.0001 1000000    140179   16.592    140179   16.592
";

    #[test]
    fn its_output_is_read() {
        let reading = parse(TEXT).unwrap();
        let value = |name: &str| reading.values[name];
        assert!((reading.duration_s - 3.0).abs() < 0.001, "{reading:?}");
        assert_eq!(reading.rates, [44139.0, 44581.6, 51453.5]);
        assert_eq!(value("rate_max_per_s"), 51453.5);
        assert!((value("responses_per_s") - 46_727.0).abs() < 1.0, "{reading:?}");
        assert!((value("mean_ns") - 85_325.0).abs() < 1.0, "{}", value("mean_ns"));
        assert_eq!(value("p99_ns"), 0.4e6);
        assert_eq!(value("p999_ns"), 1.2e6);
        assert!(!reading.values.contains_key("max_ns"), "its table ends before");
        assert!((value("error_fraction") - 105.0 / 140_186.0).abs() < 1e-9);
    }

    /// Counts the lines of the load; each has a number of requests, and true if they were timed.
    fn counted(lines: &[(f64, bool)]) -> usize {
        let mut requests = 0.0;
        let lines: Vec<RawLine> = lines
            .iter()
            .map(|(more, timed)| {
                requests += more;
                RawLine { requests, last_byte_us: timed.then_some(100.0), ..RawLine::default() }
            })
            .collect();
        load_line_count(&lines)
    }

    #[test]
    fn the_lines_behind_the_load_are_left_out() {
        let timed = |requests: f64| (requests, true);
        let still = (0.0, false);
        assert_eq!(counted(&[timed(5.0), timed(5.0), (2.0, false), still]), 2);
        assert_eq!(counted(&[timed(5.0), timed(5.0), still]), 2);
        assert_eq!(counted(&[timed(5.0), still, still]), 3, "a server that stalled");
        assert_eq!(counted(&[timed(5.0), still, (2.0, false)]), 2, "until it was waited for");
        assert_eq!(counted(&[timed(5.0), still, timed(5.0)]), 3);
        assert_eq!((counted(&[]), counted(&[still])), (0, 1));
    }

    #[test]
    fn a_run_without_percentiles_has_none() {
        let reading = parse(TEXT.split_once("#====").unwrap().0).unwrap();
        assert!(!reading.values.contains_key("p50_ns") && reading.values.contains_key("mean_ns"));
        assert!(parse("#_____time conns\n").is_err());
    }
}
