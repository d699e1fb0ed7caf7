//! h1load (<https://github.com/wtarreau/h1load>): its long raw format (`-ll`), percentiles (`-P`) and
//! classes of status (`-S`), as its source and `scripts/README.txt` of 2025 give them. It has no version.

use super::{Call, Length, Reading, Row, SECONDS_NS, ensure};
use crate::scenario::setup::Tool;

pub(super) const ROW: Row = Row {
    tool: Tool::H1load,
    program: "h1load",
    package: "https://github.com/wtarreau/h1load",
    asks: &[&["-h"]],
    length: Length { flags: &["-d"], step_ns: SECONDS_NS, unit: "" },
    file: "",
    notes: &[
        "h1load's latencies count from the send: what waits meanwhile is left out (coordinated omission)",
        "h1load has no version",
        "h1load's rate by the second is of whole lines: its last, which may be of half a second, is left \
         out of the best second",
    ],
    tells: &[
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
        "max_ns",
        "error_share",
    ],
    lacks: |_| &[],
    complete,
    version: |_| None,
    parse,
};

fn complete(words: &mut Vec<String>, _: &Call) {
    ensure(words, &["-ll"], &["-ll"]);
    ensure(words, &["-P"], &["-P"]);
    ensure(words, &["-S"], &["-S"]);
}

/// One line of a second. All but the rates are sums since the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    time_s: f64,
    connections: f64,
    requests: f64,
    bytes: f64,
    errors: f64,
    rate: f64,
    last_byte_us: Option<f64>,
    refused: f64,
}

/// `time conns tot_conn tot_req tot_bytes err thr cps rps Bps bps ttfb ttlb [1xx 2xx 3xx 4xx 5xx]`.
fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = |place: usize| words.get(place).and_then(|word| word.parse::<f64>().ok());
    if text.trim_start().starts_with('#') || words.len() < 13 {
        return None;
    }
    Some(Line {
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

fn parse(text: &str) -> Result<Reading, String> {
    let (seconds, percentiles) = text.split_once("#pctl").unwrap_or((text, ""));
    let lines: Vec<Line> = seconds.lines().filter_map(line).collect();
    let Some(last) = lines.last().copied().filter(|last| last.requests > 0.0) else {
        return Err("there is no line of a second with requests (-ll)".to_owned());
    };
    // A line stands for the requests since the one before; its rate says for how long that was.
    let mut before = Line::default();
    let (mut length_s, mut latency_us, mut timed) = (0.0, 0.0, 0.0);
    let mut rates = Vec::new();
    for line in &lines {
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
    let mut reading = Reading { length_s, responses: last.requests, rates, ..Reading::default() };
    let per_s = |sum: f64| Some(sum / length_s.max(1e-9));
    reading.note("responses_per_s", per_s(last.requests));
    reading.note("bytes_in_per_s", per_s(last.bytes));
    reading.note("connections_per_s", per_s(last.connections));
    reading.note("rate_max_per_s", reading.rates.iter().copied().reduce(f64::max));
    reading.latency("mean_ns", (timed > 0.0).then(|| latency_us / timed * 1e3));
    for (level, name) in [
        ("50", "p50_ns"),
        ("75", "p75_ns"),
        ("90", "p90_ns"),
        ("99", "p99_ns"),
        ("99.9", "p999_ns"),
        ("100", "max_ns"),
    ] {
        reading.latency(name, percentile_ns(percentiles, level));
    }
    reading.errors(last.errors + refused, last.requests + last.errors);
    Ok(reading)
}

/// `99 1 100 ttfb-count ttfb-ms ttlb-count ttlb-ms`: the time to the last byte, in ns.
fn percentile_ns(table: &str, level: &str) -> Option<f64> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(level))?;
    let ms: f64 = row.split_whitespace().nth(6)?.parse().ok()?;
    Some(ms * 1e6)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// In the format of its `summary()` and `report_percentiles()`.
    pub(in crate::trial::driver) const TEXT: &str = "\
#_____time conns tot_conn  tot_req      tot_bytes    err thr cps rps Bps bps ttfb(us) ttlb(us) 1xx 2xx 3xx 4xx 5xx
1700000001    10       10    10000        1000000      0 100 10.0 10000.0 1000000.0 8000000.0 90.0 100.0   0 10000   0   0   0 
1700000002    10       10    30000        3000000      0 100 0.0 20000.0 2000000.0 16000000.0 90.0 200.0   0 19900   0 100   0 
1700000003    10       10    45000        4500000      5 100 0.0 15000.0 1500000.0 12000000.0 90.0 100.0   0 15000   0   0   0 
1700000003     0       10    48000        4800000      5 100 0.0 30000.0 3000000.0 24000000.0 - -   0 3000   0   0   0 
#======= Percentiles for time-to-first-byte and time-to-last-byte =======
# use $3:$5 $3:$7 with logscale X
# $1     $2      $3         $4       $5         $6       $7
#pctl   tail   invtail   ttfbcnt ttfb(ms)   ttlbcnt ttlb(ms)
50      50     2           23999    0.080     23999    0.090
75      25     4           35999    0.090     35999    0.110
90      10     10          43199    0.120     43199    0.150
99      1      100         47519    0.300     47519    0.400
99.9    0.1    1000        47951    0.900     47951    1.200
100     0      250000      48000    2.000     48000    3.500
";

    #[test]
    fn its_output_is_read() {
        let reading = parse(TEXT).unwrap();
        let value = |name: &str| reading.values[name];
        assert!((reading.length_s - 3.1).abs() < 1e-9, "{reading:?}");
        assert_eq!(reading.rates, [10000.0, 20000.0, 15000.0]);
        assert_eq!(value("rate_max_per_s"), 20000.0);
        assert!((value("responses_per_s") - 48000.0 / 3.1).abs() < 1e-6);
        assert!((value("mean_ns") - 6.5e6 / 45.0).abs() < 1.0, "{}", value("mean_ns"));
        assert_eq!(value("p99_ns"), 0.4e6);
        assert_eq!(value("p999_ns"), 1.2e6);
        assert_eq!(value("max_ns"), 3.5e6);
        assert!((value("error_share") - 105.0 / 48005.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_percentiles_has_none() {
        let reading = parse(TEXT.split_once("#====").unwrap().0).unwrap();
        assert!(!reading.values.contains_key("p50_ns") && reading.values.contains_key("mean_ns"));
        assert!(parse("#_____time conns\n").is_err());
    }
}
