//! From the text of the flags to a [`Plan`]. Every flag is read before anything is refused, so that
//! all problems come at once.

use std::net::IpAddr;

use record::problem::Problem;
use record::units::{
    DurationUnit, SECOND_NS, parse_count, parse_duration_ns, parse_share, parse_size,
};
use wire::encode;

use super::{
    Arrivals, BODY_BYTES_MAX, CONNECTIONS_DEFAULT, CONNECTIONS_MAX, DURATION_S_DEFAULT,
    DURATION_S_MAX, ERROR_SHARE_DEFAULT, End, Expect, LINE_MAX, Objective, Plan, Request,
    StatusSet, TIMEOUT_S_DEFAULT, TimeoutFrom, Url,
};
use crate::pace::Pace;

/// The flags of a load, as they were typed; `None` and empty mean not given.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is the flag of the same name, documented there")]
pub struct PlanText {
    pub urls: Vec<String>,
    pub connections: Option<String>,
    pub rate: Option<String>,
    pub arrivals: Option<String>,
    pub duration: Option<String>,
    pub requests: Option<String>,
    pub threads: Option<String>,
    pub requests_per_connection: Option<String>,
    pub ramp: Option<String>,
    pub timeout: Option<String>,
    pub timeout_from: Option<String>,
    pub think: Option<String>,
    pub drain: Option<String>,
    pub line: Option<String>,
    pub method: Option<String>,
    pub headers: Vec<String>,
    pub data: Option<String>,
    /// Content of `--data-file`, read by whoever may do I/O.
    pub data_file: Option<Vec<u8>>,
    pub unix: Option<String>,
    pub sources: Vec<String>,
    pub pin: Option<String>,
    pub spin: bool,
    pub expect_status: Option<String>,
    pub expect_bytes: Option<String>,
    pub slo: Vec<String>,
    pub error_share_max: Option<String>,
    pub seed: Option<String>,
}

/// Reads values and keeps what is wrong with them.
#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

impl Reader {
    fn problem(&mut self, place: &str, text: impl Into<String>) {
        self.problems.push(Problem::new(place, text));
    }

    /// The value of a flag, its default when it was not given, and a problem when it is wrong.
    fn value<T>(
        &mut self,
        place: &str,
        text: Option<&String>,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(text) = text else { return default };
        match parse(text) {
            Ok(value) => value,
            Err(why) => {
                self.problem(place, why);
                default
            }
        }
    }

    fn duration_ns(
        &mut self,
        place: &str,
        text: Option<&String>,
        default_ns: u64,
        bare: DurationUnit,
    ) -> u64 {
        self.value(place, text, default_ns, |text| parse_duration_ns(text, bare))
    }
}

impl Plan {
    /// Reads a plan. `cores` are the processors that may be used, for the default of `-t`.
    ///
    /// # Errors
    /// Every problem with every flag.
    pub fn parse(text: &PlanText, cores: usize) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader::default();
        let requests = requests(text, &mut reader);
        let connections =
            reader.value("--connections", text.connections.as_ref(), CONNECTIONS_DEFAULT, |text| {
                count_within(text, 1, CONNECTIONS_MAX)
            });
        let timeout_ns = timeout_ns(text, &mut reader);
        let seconds = DurationUnit::Seconds;
        let pace = pace(text, &mut reader);
        let objectives = objectives(text, &mut reader);
        let error_limits = objectives.iter().filter_map(Objective::error_share_limit);
        let error_share = error_limits.reduce(f64::min).unwrap_or(ERROR_SHARE_DEFAULT);
        let plan = Self {
            connections,
            threads: threads(text, &mut reader, &requests, connections, cores),
            pin: reader.value("--pin", text.pin.as_ref(), Vec::new(), rt::cores::parse_cpus),
            spin: text.spin,
            ramp_ns: reader.duration_ns("--ramp", text.ramp.as_ref(), 0, seconds),
            end: end(text, &mut reader),
            requests_per_connection: reader.value(
                "--requests-per-connection",
                text.requests_per_connection.as_ref(),
                None,
                |text| count_within(text, 1, u64::MAX).map(Some),
            ),
            timeout_ns,
            timeout_from: timeout_from(text, &mut reader),
            drain_ns: reader.duration_ns("--drain", text.drain.as_ref(), timeout_ns, seconds),
            line_max: reader.value(
                "--line",
                text.line.as_ref(),
                line_default(pace, timeout_ns),
                |text| count_within(text, 0, LINE_MAX),
            ),
            sources: sources(text, &mut reader),
            expect: expect(text, &mut reader),
            objectives,
            error_share_max: reader.value(
                "--error-share-max",
                text.error_share_max.as_ref(),
                error_share,
                parse_share,
            ),
            seed: reader.value("--seed", text.seed.as_ref(), 1, |text| {
                text.parse().map_err(|_| format!("'{text}' is not a whole number"))
            }),
            unix: text.unix.as_ref().map(Into::into),
            pace,
            requests,
        };
        plan.check_parts_against_each_other(&mut reader);
        if reader.problems.is_empty() { Ok(plan) } else { Err(reader.problems) }
    }
}

impl Plan {
    fn check_parts_against_each_other(&self, reader: &mut Reader) {
        if self.ramp_ns >= self.end.duration_ns {
            reader.problem("--ramp", "the ramp is as long as the run; nothing would be measured");
        }
        if self.unix.as_ref().is_some_and(|path| path.as_os_str().len() > 107) {
            reader.problem("--unix", "a unix socket's path has at most 107 bytes");
        }
    }
}

fn timeout_ns(text: &PlanText, reader: &mut Reader) -> u64 {
    let default_ns = TIMEOUT_S_DEFAULT * SECOND_NS;
    let bare = DurationUnit::Milliseconds;
    let timeout_ns = reader.duration_ns("--timeout", text.timeout.as_ref(), default_ns, bare);
    if timeout_ns == 0 {
        reader.problem("--timeout", "a time-out of 0 would fail every request");
    }
    timeout_ns
}

fn timeout_from(text: &PlanText, reader: &mut Reader) -> TimeoutFrom {
    let (given, default) = (text.timeout_from.as_ref(), TimeoutFrom::default());
    reader.value("--timeout-from", given, default, |text| match text {
        "due" => Ok(TimeoutFrom::Due),
        "send" => Ok(TimeoutFrom::Send),
        _ => Err(format!("'{text}' is neither due nor send")),
    })
}

fn count_within(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let count = parse_count(text)?;
    if (least..=most).contains(&count) {
        Ok(count)
    } else {
        Err(format!("{count} is not within {least} and {most}"))
    }
}

fn requests(text: &PlanText, reader: &mut Reader) -> Vec<Request> {
    let fields = fields(text, reader);
    let body = body(text, reader);
    let default = if body.is_empty() { "GET" } else { "POST" };
    let method = text.method.as_deref().unwrap_or(default);
    if let Err(error) = encode::check_method(method) {
        reader.problem("--method", error.to_string());
    }
    if method == "CONNECT" {
        reader.problem("--method", "CONNECT opens a tunnel, which is no request to measure");
    }
    if text.urls.is_empty() {
        reader.problem("URL", "there is none; write http://host:port/path");
    }
    let mut requests = Vec::with_capacity(text.urls.len());
    for (index, url) in (1..).zip(&text.urls) {
        match Url::parse(url) {
            Ok(url) => requests.push(Request::new(url, method, &fields, &body)),
            Err(why) => reader.problem(&format!("URL {index}"), why),
        }
    }
    requests
}

fn fields(text: &PlanText, reader: &mut Reader) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for header in &text.headers {
        let Some((name, value)) = header.split_once(':') else {
            reader.problem("--header", format!("'{header}' has no colon (write 'Name: value')"));
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        let checked = encode::check_field_name(name)
            .and_then(|()| encode::check_field_value(value.as_bytes()));
        if let Err(error) = checked {
            reader.problem("--header", format!("'{header}': {error}"));
        } else if ["content-length", "transfer-encoding"]
            .iter()
            .any(|framing| name.eq_ignore_ascii_case(framing))
        {
            reader.problem("--header", format!("'{name}' is set by weir from the body"));
        } else {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    fields
}

fn body(text: &PlanText, reader: &mut Reader) -> Vec<u8> {
    let body = match (&text.data, &text.data_file) {
        (Some(_), Some(_)) => {
            reader.problem("--data", "--data and --data-file are both given; there is one body");
            Vec::new()
        }
        (Some(data), None) => data.as_bytes().to_vec(),
        (None, Some(bytes)) => bytes.clone(),
        (None, None) => Vec::new(),
    };
    if body.len() as u64 > BODY_BYTES_MAX {
        reader.problem("--data", format!("the body is longer than {BODY_BYTES_MAX} bytes"));
    }
    body
}

fn pace(text: &PlanText, reader: &mut Reader) -> Pace {
    let arrivals =
        reader.value("--arrivals", text.arrivals.as_ref(), Arrivals::Constant, |text| match text {
            "constant" => Ok(Arrivals::Constant),
            "poisson" => Ok(Arrivals::Poisson),
            _ => Err(format!("'{text}' is neither constant nor poisson")),
        });
    let think_ns =
        reader.duration_ns("--think", text.think.as_ref(), 0, DurationUnit::Milliseconds);
    let Some(rate) = &text.rate else {
        if text.arrivals.is_some() {
            reader.problem("--arrivals", "only an open loop has arrivals; give a --rate");
        }
        if text.line.is_some() {
            reader.problem("--line", "only an open loop has a line; give a --rate");
        }
        return Pace::Closed { think_ns };
    };
    if text.think.is_some() {
        reader.problem(
            "--think",
            "a think time is for a closed loop; a --rate sets the pace already",
        );
    }
    let rate_per_s = reader.value("--rate", Some(rate), 1.0, parse_rate);
    Pace::Open { rate_per_s, arrivals }
}

/// A rate per second; unlike a count it may be below one.
fn parse_rate(text: &str) -> Result<f64, String> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    let rate = match plain.parse::<f64>() {
        Ok(rate) => rate,
        Err(_) => parse_count(plain)? as f64,
    };
    let within = rate.is_finite() && (0.001..=1e9).contains(&rate);
    within
        .then_some(rate)
        .ok_or_else(|| format!("'{text}' is not a rate from 0.001 to 1G per second"))
}

/// As many as the rate makes until the first of them times out: a longer line would hold only
/// requests that are dead already.
fn line_default(pace: Pace, timeout_ns: u64) -> u64 {
    match pace {
        Pace::Open { rate_per_s, .. } => {
            let within_timeout = rate_per_s * timeout_ns as f64 / 1e9;
            (within_timeout.ceil() as u64).clamp(1_000, LINE_MAX)
        }
        Pace::Closed { .. } => 0,
    }
}

fn end(text: &PlanText, reader: &mut Reader) -> End {
    let requests = reader.value("--requests", text.requests.as_ref(), None, |text| {
        count_within(text, 1, u64::MAX).map(Some)
    });
    let default_s = if requests.is_some() { DURATION_S_MAX } else { DURATION_S_DEFAULT };
    let duration_ns = reader.duration_ns(
        "--duration",
        text.duration.as_ref(),
        default_s * SECOND_NS,
        DurationUnit::Seconds,
    );
    if duration_ns == 0 {
        reader.problem("--duration", "a run of no time measures nothing");
    }
    End { duration_ns, requests }
}

fn threads(
    text: &PlanText,
    reader: &mut Reader,
    requests: &[Request],
    connections: u64,
    cores: usize,
) -> usize {
    // A subject on this machine needs processors too.
    let is_local = |request: &Request| {
        let host = request.url.authority.host.as_str();
        let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        loopback || host == "localhost"
    };
    let local = text.unix.is_some() || requests.iter().all(is_local);
    let default = if local { cores.div_ceil(2) } else { cores };
    let default = default.clamp(1, usize::try_from(connections).unwrap_or(usize::MAX));
    let threads = reader.value("--threads", text.threads.as_ref(), default, |text| {
        count_within(text, 1, 1024).map(|count| count as usize)
    });
    if threads as u64 > connections {
        reader.problem(
            "--threads",
            format!("{threads} threads have only {connections} connections between them"),
        );
    }
    threads
}

fn sources(text: &PlanText, reader: &mut Reader) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for part in text.sources.iter().flat_map(|list| list.split(',')) {
        match addresses(part.trim()) {
            Ok(addresses) => all.extend(addresses),
            Err(why) => reader.problem("--source", why),
        }
    }
    if !all.is_empty() && text.unix.is_some() {
        reader.problem("--source", "a unix socket has no source address");
    }
    all
}

/// One address, or all of an IPv4 range `a-b` or of an IPv4 network `a/n`, at most 65,536.
fn addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    use std::net::Ipv4Addr;
    let wrong = || {
        format!("'{text}' is not an address (write 127.0.0.2, 127.0.0.2-127.0.0.9 or 127.0.1.0/28)")
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(vec![address]);
    }
    let v4 = |text: &str| text.parse::<Ipv4Addr>().map(u32::from).map_err(|_| wrong());
    let (first, last) = if let Some((first, last)) = text.split_once('-') {
        (v4(first)?, v4(last)?)
    } else if let Some((network, bits)) = text.split_once('/') {
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32).ok_or_else(wrong)?;
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let network = v4(network)? & mask;
        (network, network | !mask)
    } else {
        return Err(wrong());
    };
    if first > last || last - first >= 65_536 {
        return Err(format!("'{text}' is not a range of at most 65536 addresses"));
    }
    Ok((first..=last).map(|address| IpAddr::V4(Ipv4Addr::from(address))).collect())
}

fn expect(text: &PlanText, reader: &mut Reader) -> Expect {
    Expect {
        status: reader.value("--expect-status", text.expect_status.as_ref(), None, |text| {
            StatusSet::parse(text).map(Some)
        }),
        body_bytes: reader.value("--expect-bytes", text.expect_bytes.as_ref(), None, |text| {
            parse_size(text).map(Some)
        }),
    }
}

fn objectives(text: &PlanText, reader: &mut Reader) -> Vec<Objective> {
    let mut all = Vec::new();
    for list in &text.slo {
        let (objectives, problems) = Objective::parse_list(list);
        all.extend(objectives);
        problems.into_iter().for_each(|problem| reader.problem("--slo", problem));
    }
    all
}
