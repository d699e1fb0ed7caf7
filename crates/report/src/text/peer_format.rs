//! Result of a run in the form of other load generators, for scripts that parse their output: ab, wrk,
//! h2load and h1load. The figures are those of the record: latencies count from the send, as theirs do,
//! rates are those of the window, and what weir does not measure is 0. Reads only the record.

use record::histogram::LatencyHistogram;
use record::invalid_value;
use record::problem::InvalidValue;
use record::run::{Interval, Run};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFormat {
    /// ApacheBench.
    Ab,
    Wrk,
    H1load,
    H2load,
}

impl PeerFormat {
    /// Parses the value of the flag; `None`: weir's own form.
    ///
    /// # Errors
    /// There is no such form.
    pub fn parse(text: &str) -> Result<Option<Self>, InvalidValue> {
        Ok(match text {
            "text" => None,
            "ab" => Some(Self::Ab),
            "wrk" => Some(Self::Wrk),
            "h1load" => Some(Self::H1load),
            "h2load" => Some(Self::H2load),
            _ => return Err(invalid_value!("'{text}' is none of text, ab, wrk, h1load and h2load")),
        })
    }

    /// Returns the verdict about a record as a comment, which none of the forms has a place for.
    pub fn verdict_comment(run: &Run) -> String {
        let reasons = run.validity.reasons.iter().map(|reason| format!("{}: {}", reason.code, reason.text));
        let missed = run.objectives.iter().filter(|objective| !objective.met);
        let missed = missed.map(|objective| format!("objective missed: {}", objective.text));
        let reasons: Vec<String> = reasons.chain(missed).collect();
        let separator = if reasons.is_empty() { "" } else { ": " };
        format!("# weir: {}{separator}{}", run.validity.verdict.as_str(), reasons.join("; "))
    }

    pub fn format(self, run: &Run) -> String {
        match self {
            Self::Ab => ab(run),
            Self::Wrk => wrk(run),
            Self::H1load => h1load(run),
            Self::H2load => h2load(run),
        }
    }
}

/// Histogram of a phase; empty if the record's cannot be read.
fn histogram(hdr: &str) -> LatencyHistogram {
    LatencyHistogram::decode(hdr).unwrap_or_else(|_| LatencyHistogram::new())
}

/// Method and parts of the first URL.
struct Target {
    url: String,
    host: String,
    port: String,
    path: String,
}

fn target(run: &Run) -> Target {
    let url = run.plan["requests"][0]["url"].as_str().unwrap_or("?").to_owned();
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let default = if scheme == "https" { "443" } else { "80" };
    let (host, port) =
        authority.rsplit_once(':').filter(|(host, _)| !host.is_empty()).unwrap_or((authority, default));
    Target { host: host.to_owned(), port: port.to_owned(), path: path.to_owned(), url }
}

/// Returns the time from the start to the last response, which the totals cover: the load and its drain.
fn total_s(run: &Run) -> f64 {
    run.intervals.iter().map(|interval| interval.time_s).fold(run.duration_s, f64::max).max(1e-9)
}

fn connections(run: &Run) -> u64 {
    run.plan["connections"].as_u64().unwrap_or(0)
}

/// Fraction of the latencies within one standard deviation of the mean, in per cent.
fn within_stdev(histogram: &LatencyHistogram) -> f64 {
    let (mean, stdev) = (histogram.mean_ns(), histogram.stdev_ns());
    if histogram.is_empty() {
        return 0.0;
    }
    let below = if mean > stdev { histogram.fraction_within((mean - stdev) as u64) } else { 0.0 };
    (histogram.fraction_within((mean + stdev) as u64) - below) * 100.0
}

fn ab(run: &Run) -> String {
    let (totals, to) = (&run.totals, target(run));
    let (complete, seconds) = (totals.responses, total_s(run));
    let failed = totals.failed();
    let not_2xx: u64 =
        totals.status.iter().filter(|(status, _)| **status / 100 != 2).map(|(_, count)| count).sum();
    let service = histogram(&run.latency.last_byte.service.hdr);
    let first = histogram(&run.latency.first_byte.service.hdr);
    let connect = histogram(&run.latency.connect.service.hdr);
    let per_s = run.rates.responses_per_s;
    let opened = totals.connections.opened;
    let mut text = format!(
        "Server Software:        \nServer Hostname:        {}\nServer Port:            {}\n\nDocument Path:          {}\n\
         Document Length:        {} bytes\n\nConcurrency Level:      {}\nTime taken for tests:   {seconds:.3} seconds\n\
         Complete requests:      {complete}\nFailed requests:        {failed}\n",
        to.host,
        to.port,
        to.path,
        totals.body_bytes.checked_div(complete).unwrap_or(0),
        connections(run),
    );
    if not_2xx > 0 {
        text += &format!("Non-2xx responses:      {not_2xx}\n");
    }
    let mean_ms = if per_s > 0.0 { 1000.0 / per_s } else { 0.0 };
    text += &format!(
        "Keep-Alive requests:    {}\nTotal transferred:      {} bytes\nHTML transferred:       {} bytes\n\
         Requests per second:    {per_s:.2} [#/sec] (mean)\nTime per request:       {:.3} [ms] (mean)\n\
         Time per request:       {mean_ms:.3} [ms] (mean, across all concurrent requests)\n\
         Transfer rate:          {:.2} [Kbytes/sec] received\n\nConnection Times (ms)\n\
         {:14}min  mean[+/-sd] median   max\n",
        complete.saturating_sub(opened),
        totals.bytes_in,
        totals.body_bytes,
        mean_ms * connections(run) as f64,
        run.rates.bytes_in_per_s / 1024.0,
        "",
    );
    for (name, histogram) in
        [("Connect:", &connect), ("Processing:", &service), ("Waiting:", &first), ("Total:", &service)]
    {
        text += &ab_times(name, histogram);
    }
    text += "\nPercentage of the requests served within a certain time (ms)\n";
    for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
        let ns = service.value_at_quantile(f64::from(percent) / 100.0);
        text += &format!("{percent:3}% {:6}\n", (ns as f64 / 1e6).round() as u64);
    }
    text + &format!("100% {:6} (longest request)\n", (service.max_ns() as f64 / 1e6).round() as u64)
}

fn ab_times(name: &str, histogram: &LatencyHistogram) -> String {
    let ms = |ns: f64| (ns / 1e6).round() as u64;
    format!(
        "{name:<11} {:5} {:4} {:5.1} {:6} {:7}\n",
        ms(histogram.min_ns() as f64),
        ms(histogram.mean_ns()),
        histogram.stdev_ns() / 1e6,
        ms(histogram.value_at_quantile(0.5) as f64),
        ms(histogram.max_ns() as f64),
    )
}

fn wrk(run: &Run) -> String {
    let (totals, rates) = (&run.totals, &run.rates);
    let service = histogram(&run.latency.last_byte.service.hdr);
    let threads = run.plan["threads"].as_u64().unwrap_or(1);
    let mut text = format!(
        "Running {} test @ {}\n  {threads} threads and {} connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n",
        wrk_seconds(run.duration_s),
        target(run).url,
        connections(run),
    );
    text += &format!(
        "    Latency {:>8} {:>9} {:>8} {:>8.2}%\n",
        wrk_time(service.mean_ns()),
        wrk_time(service.stdev_ns()),
        wrk_time(service.max_ns() as f64),
        within_stdev(&service)
    );
    text += &wrk_rate_line(run, threads);
    text += "  Latency Distribution\n";
    for percent in [50, 75, 90, 99] {
        let ns = service.value_at_quantile(f64::from(percent) / 100.0) as f64;
        text += &format!("     {percent}% {:>8}\n", wrk_time(ns));
    }
    text += &format!(
        "  {} requests in {:.2}s, {}B read\n",
        totals.responses,
        total_s(run),
        wrk_bytes(totals.bytes_in as f64)
    );
    let error = |kinds: &[&str]| kinds.iter().filter_map(|kind| totals.errors.get(*kind)).sum::<u64>();
    let (connect, timeout) = (totals.connections.failed, error(&["timeout", "too_late"]));
    let read = error(&["reset", "closed", "parse", "tls_port", "stream_reset", "refused_stream"]);
    if connect + timeout + read > 0 {
        text += &format!("  Socket errors: connect {connect}, read {read}, write 0, timeout {timeout}\n");
    }
    let bad: u64 = totals.status.iter().filter(|(status, _)| **status > 399).map(|(_, count)| count).sum();
    if bad > 0 {
        text += &format!("  Non-2xx or 3xx responses: {bad}\n");
    }
    text + &format!(
        "Requests/sec: {:>9.2}\nTransfer/sec: {:>10}B\n",
        rates.responses_per_s,
        wrk_bytes(rates.bytes_in_per_s)
    )
}

fn wrk_rate_line(run: &Run, threads: u64) -> String {
    // Samples of a thread, as wrk takes them.
    let rates: Vec<f64> = run
        .intervals
        .iter()
        .filter(|interval| interval.measured && interval.length_s > 0.5)
        .map(|interval| interval.responses as f64 / interval.length_s / threads as f64)
        .collect();
    let count = rates.len().max(1) as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let stdev = (rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / count).sqrt();
    let max = rates.iter().copied().fold(0.0, f64::max);
    let near = rates.iter().filter(|rate| (**rate - mean).abs() <= stdev).count() as f64 / count * 100.0;
    format!("    Req/Sec {:>8} {:>9} {:>8} {near:>8.2}%\n", wrk_count(mean), wrk_count(stdev), wrk_count(max))
}

fn wrk_seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m", whole / 60),
        _ => format!("{}h", whole / 3600),
    }
}

fn wrk_time(ns: f64) -> String {
    match ns / 1e3 {
        us if us < 1e3 => format!("{us:.2}us"),
        us if us < 1e6 => format!("{:.2}ms", us / 1e3),
        us if us < 60e6 => format!("{:.2}s", us / 1e6),
        us => format!("{:.2}m", us / 60e6),
    }
}

fn wrk_count(count: f64) -> String {
    match count {
        // Not "-0.00", which the sum of no rates would be.
        small if small < 1e3 => format!("{:.2}", small + 0.0),
        small if small < 1e6 => format!("{:.2}k", small / 1e3),
        large => format!("{:.2}M", large / 1e6),
    }
}

fn wrk_bytes(bytes: f64) -> String {
    const UNITS: [(f64, &str); 4] =
        [(1_099_511_627_776.0, "T"), (1_073_741_824.0, "G"), (1_048_576.0, "M"), (1024.0, "K")];
    let unit = UNITS.iter().find(|(size, _)| bytes >= *size);
    unit.map_or_else(|| format!("{bytes:.2}"), |(size, name)| format!("{:.2}{name}", bytes / size))
}

fn h2load(run: &Run) -> String {
    let (totals, rates) = (&run.totals, &run.rates);
    let class = |class: u16| -> u64 {
        totals.status.iter().filter(|(status, _)| **status / 100 == class).map(|(_, count)| count).sum()
    };
    let (service, first) =
        (histogram(&run.latency.last_byte.service.hdr), histogram(&run.latency.first_byte.service.hdr));
    let connect = histogram(&run.latency.connect.service.hdr);
    let timeouts = totals.errors.get("timeout").copied().unwrap_or(0);
    let errored = totals.failed() - timeouts;
    let failed = totals.failed() + class(4) + class(5);
    let mut text = format!(
        "finished in {}, {:.2} req/s, {}B/s\n",
        h2load_time(total_s(run) * 1e9, 2),
        rates.responses_per_s,
        wrk_bytes(rates.bytes_in_per_s)
    );
    text += &format!(
        "requests: {} total, {} started, {} done, {} succeeded, {failed} failed, {errored} errored, {timeouts} timeout\n",
        totals.requests,
        totals.requests,
        totals.responses + totals.failed(),
        totals.good()
    );
    // Heads and framing: what the sockets received beyond the bodies.
    let overhead_bytes = totals.bytes_in.saturating_sub(totals.body_bytes);
    text += &format!(
        "status codes: {} 2xx, {} 3xx, {} 4xx, {} 5xx\ntraffic: {}B ({}) total, {}B ({}) headers (space savings 0.00%), \
         {}B ({}) data\n",
        class(2),
        class(3),
        class(4),
        class(5),
        wrk_bytes(totals.bytes_in as f64),
        totals.bytes_in,
        wrk_bytes(overhead_bytes as f64),
        overhead_bytes,
        wrk_bytes(totals.body_bytes as f64),
        totals.body_bytes
    );
    text += "                     min         max         mean         sd        +/- sd\n";
    for (name, histogram) in [("request", &service), ("connect", &connect), ("1st byte", &first)] {
        let preposition = if name == "1st byte" { "time to" } else { "time for" };
        text += &format!(
            "{:<17}{:>10}  {:>10}  {:>10}  {:>10}{:>9.2}%\n",
            format!("{preposition} {name}:"),
            h2load_time(histogram.min_ns() as f64, 0),
            h2load_time(histogram.max_ns() as f64, 0),
            h2load_time(histogram.mean_ns(), 0),
            h2load_time(histogram.stdev_ns(), 0),
            within_stdev(histogram)
        );
    }
    let each = rates.responses_per_s / connections(run).max(1) as f64;
    text + &format!(
        "req/s           : {each:>10.2}  {each:>10.2}  {each:>10.2}  {:>10.2}{:>9.2}%\n",
        0.0, 100.0
    )
}

fn h2load_time(ns: f64, decimals: usize) -> String {
    match ns / 1e3 {
        us if us < 1e3 => format!("{us:.0}us"),
        us if us < 1e6 => format!("{:.2}ms", us / 1e3),
        us => format!("{:.decimals$}s", us / 1e6, decimals = decimals.max(2)),
    }
}

fn h1load(run: &Run) -> String {
    let mut text =
        "#     time conns tot_conn  tot_req      tot_bytes    err  cps  rps  bps   ttfb\n".to_owned();
    let (mut opened, mut requests, mut bytes, mut errors) = (0, 0, 0, 0);
    for interval in &run.intervals {
        let Interval { connections_opened, responses, bytes_in, length_s, .. } = *interval;
        let failed: u64 = interval.errors.values().sum();
        opened += connections_opened;
        requests += responses;
        bytes += bytes_in;
        errors += failed;
        let per_s = |count: f64| h1load_short(count / length_s.max(1e-3));
        let ttfb = match interval.first_byte_mean_ns {
            mean if mean > 0.0 => h1load_time(mean / 1e9),
            _ => "   -  ".to_owned(),
        };
        text += &format!(
            "{:>10.0} {:>5} {opened:>8} {requests:>8} {bytes:>14} {errors:>6} {} {} {} {ttfb}\n",
            interval.time_s.ceil(),
            interval.connections,
            per_s(connections_opened as f64),
            per_s(responses as f64),
            per_s(bytes_in as f64 * 8.0),
        );
    }
    text
}

/// Formats a number with four characters: `10.0`, `17k9`, `100M`.
fn h1load_short(number: f64) -> String {
    let units = [(1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k')];
    let Some((size, unit)) = units.into_iter().find(|(size, _)| number >= *size * 0.9995) else {
        let decimals = if number < 9.995 {
            2
        } else if number < 99.95 {
            1
        } else {
            0
        };
        let text = format!("{number:.decimals$}");
        return if text.len() < 4 { format!("{text}.") } else { text };
    };
    let scaled = number / size;
    if scaled < 9.995 {
        let digits = (scaled * 100.0).round() as u64;
        format!("{}{unit}{:02}", digits / 100, digits % 100)
    } else if scaled < 99.95 {
        let digits = (scaled * 10.0).round() as u64;
        format!("{}{unit}{}", digits / 10, digits % 10)
    } else {
        format!("{scaled:.0}{unit}")
    }
}

/// Formats a time with six characters: `79.69u`, `1.540m`.
fn h1load_time(seconds: f64) -> String {
    let (scaled, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, 'n'),
        s if s < 1e-3 => (s * 1e6, 'u'),
        s if s < 1.0 => (s * 1e3, 'm'),
        s => (s, 's'),
    };
    let decimals = if scaled < 10.0 {
        3
    } else if scaled < 100.0 {
        2
    } else {
        1
    };
    format!("{scaled:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_those_of_h1load() {
        let shown = [0.0, 10.0, 100.0, 2_030.0, 17_900.0, 97_900.0, 100e6, 999_990.0].map(h1load_short);
        assert_eq!(shown, ["0.00", "10.0", "100.", "2k03", "17k9", "97k9", "100M", "1M00"]);
        assert_eq!([79.69e-6, 1.54e-3, 10.46e-3].map(h1load_time), ["79.69u", "1.540m", "10.46m"]);
        assert_eq!(wrk_bytes(8_346_664.0), "7.96M");
        assert_eq!([52e3, 3.47e6].map(wrk_time), ["52.00us", "3.47ms"]);
    }

    #[test]
    fn the_drain_raises_no_rate() {
        let mut run = super::super::summary::tests::run_with_everything();
        run.duration_s = 4.0;
        run.rates.responses_per_s = 310.0;
        run.rates.bytes_in_per_s = 2048.0;
        run.totals.responses = 3200;
        run.intervals = vec![Interval { time_s: 10.5, length_s: 6.5, responses: 13, ..Interval::default() }];
        run.intervals[0].errors.insert("timeout".to_owned(), 52);
        let text = |name: &str| PeerFormat::parse(name).unwrap().unwrap().format(&run);
        let wrk = text("wrk");
        assert!(wrk.contains("Requests/sec:    310.00\nTransfer/sec:      2.00KB"), "{wrk}");
        assert!(wrk.contains("3200 requests in 10.50s"), "{wrk}");
        let ab = text("ab");
        assert!(ab.contains("Time taken for tests:   10.500 seconds"), "{ab}");
        assert!(ab.contains("Requests per second:    310.00 ") && ab.contains("  2.00 [Kbytes/sec]"), "{ab}");
        assert!(text("h2load").starts_with("finished in 10.50s, 310.00 req/s, 2.00KB/s\n"));
        // Failed requests were no responses.
        let h1load = text("h1load");
        assert_eq!(h1load.lines().nth(1).unwrap().split_whitespace().nth(3), Some("13"), "{h1load}");
        assert!(h1load.contains(" 2.00 "), "{h1load}");
        let comment = PeerFormat::verdict_comment(&run);
        assert!(comment.starts_with("# weir: ") && !comment.contains('\n'), "{comment}");
    }

    #[test]
    fn every_form_has_the_lines_that_scripts_look_for() {
        let run = super::super::summary::tests::run_with_everything();
        for (format, lines) in [
            ("ab", &["Requests per second:", "Time per request:", "Failed requests:", " 99% "][..]),
            ("wrk", &["Requests/sec:", "Transfer/sec:", "     99%"]),
            ("h2load", &["finished in ", "requests: ", "status codes: ", "time for request:", "req/s "]),
            ("h1load", &["#     time conns tot_conn"]),
        ] {
            let text = PeerFormat::parse(format).unwrap().unwrap().format(&run);
            assert!(lines.iter().all(|line| text.contains(line)), "{format}: {text}");
        }
        assert!(PeerFormat::parse("text").unwrap().is_none() && PeerFormat::parse("xml").is_err());
    }
}
