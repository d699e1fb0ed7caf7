//! Parser from the text of the flags to a [`RunPlan`]. Every flag is read before any is rejected,
//! so that all problems are reported at once.

use std::net::IpAddr;

use record::problem::InputProblem;
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns, parse_fraction, parse_size};
use wire::encode;

use super::grpc;
use super::{
    Arrivals, BODY_BYTES_MAX, CONNECTIONS_DEFAULT, CONNECTIONS_MAX, DURATION_S_DEFAULT, DURATION_S_MAX,
    Expect, Http2Plan, HttpFlags, LoadEnd, MAX_ERROR_RATE_DEFAULT, Objective, PENDING_MAX, RenderedRequest,
    RunPlan, StatusSet, TIMEOUT_S_DEFAULT, TimeoutFrom, TlsFlags, TlsPlan, Url,
};
use crate::pace::Pace;

/// Flags of a load, as they were typed; `None` and empty mean not given.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is the flag of the same name, documented there")]
pub struct LoadFlags {
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
    pub max_pending: Option<String>,
    pub method: Option<String>,
    pub headers: Vec<String>,
    pub data: Option<String>,
    /// Content of `--data-file`, read by the caller, which may do I/O.
    pub data_file: Option<Vec<u8>>,
    pub unix: Option<String>,
    pub tls: TlsFlags,
    pub http: HttpFlags,
    pub sources: Vec<String>,
    pub pin: Option<String>,
    pub spin: bool,
    pub expect_status: Option<String>,
    pub expect_bytes: Option<String>,
    pub slo: Vec<String>,
    pub max_error_rate: Option<String>,
    pub seed: Option<String>,
}

/// Reads values and collects their problems.
#[derive(Default)]
struct FlagReader {
    problems: Vec<InputProblem>,
}

impl FlagReader {
    fn add_problem(&mut self, flag: &str, text: impl Into<String>) {
        self.problems.push(InputProblem::new(flag, text));
    }

    /// Returns the value of a flag, or its default if it was not given. Adds a problem if it is
    /// wrong.
    fn parse_or_default<T>(
        &mut self,
        flag: &str,
        text: Option<&String>,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(text) = text else { return default };
        match parse(text) {
            Ok(value) => value,
            Err(error) => {
                self.add_problem(flag, error);
                default
            }
        }
    }

    fn duration_ns(&mut self, flag: &str, text: Option<&String>, default_ns: u64, bare: DurationUnit) -> u64 {
        self.parse_or_default(flag, text, default_ns, |text| parse_duration_ns(text, bare))
    }
}

impl RunPlan {
    /// Parses a plan. `cores` is the number of usable CPUs, for the default of `-t`.
    ///
    /// # Errors
    /// Every problem with every flag.
    pub fn parse(text: &LoadFlags, cores: usize) -> Result<Self, Vec<InputProblem>> {
        let mut reader = FlagReader::default();
        let (http2, problems) = Http2Plan::parse(&text.http);
        reader.problems.extend(problems);
        let requests = requests(text, http2.as_ref(), &mut reader);
        let connections = reader.parse_or_default(
            "--connections",
            text.connections.as_ref(),
            CONNECTIONS_DEFAULT,
            |text| parse_count_within(text, 1, CONNECTIONS_MAX),
        );
        let timeout_ns = timeout_ns(text, &mut reader);
        let seconds = DurationUnit::Seconds;
        let pace = pace(text, &mut reader);
        let objectives = objectives(text, &mut reader);
        let error_limits = objectives.iter().filter_map(Objective::error_rate_limit);
        let error_rate = error_limits.reduce(f64::min).unwrap_or(MAX_ERROR_RATE_DEFAULT);
        let plan = Self {
            connections,
            threads: threads(text, &mut reader, &requests, connections, cores),
            pin: reader.parse_or_default("--pin", text.pin.as_ref(), Vec::new(), rt::cores::parse_cpus),
            spin: text.spin,
            ramp_ns: reader.duration_ns("--ramp", text.ramp.as_ref(), 0, seconds),
            end: end(text, &mut reader),
            requests_per_connection: reader.parse_or_default(
                "--requests-per-connection",
                text.requests_per_connection.as_ref(),
                None,
                |text| parse_count_within(text, 1, u64::MAX).map(Some),
            ),
            timeout_ns,
            timeout_from: timeout_from(text, &mut reader),
            drain_ns: reader.duration_ns("--drain", text.drain.as_ref(), timeout_ns, seconds),
            max_pending: reader.parse_or_default(
                "--max-pending",
                text.max_pending.as_ref(),
                default_max_pending(pace, timeout_ns),
                |text| parse_count_within(text, 0, PENDING_MAX),
            ),
            sources: sources(text, &mut reader),
            expect: expect(text, &mut reader),
            objectives,
            max_error_rate: reader.parse_or_default(
                "--max-error-rate",
                text.max_error_rate.as_ref(),
                error_rate,
                parse_fraction,
            ),
            seed: reader.parse_or_default("--seed", text.seed.as_ref(), 1, |text| {
                text.parse().map_err(|_| format!("'{text}' is not an integer"))
            }),
            unix: text.unix.as_ref().map(Into::into),
            tls: tls(text, &mut reader, &requests),
            http2,
            pace,
            requests,
        };
        plan.check_parts_against_each_other(&mut reader);
        if reader.problems.is_empty() { Ok(plan) } else { Err(reader.problems) }
    }
}

impl RunPlan {
    fn check_parts_against_each_other(&self, reader: &mut FlagReader) {
        if self.ramp_ns >= self.end.duration_ns {
            reader.add_problem("--ramp", "the ramp takes the complete run; nothing would be measured");
        }
        if self.unix.as_ref().is_some_and(|path| path.as_os_str().len() > 107) {
            reader.add_problem("--unix", "a unix socket's path has at most 107 bytes");
        }
        if self.connections <= CONNECTIONS_MAX && self.concurrency() > CONNECTIONS_MAX {
            let text = format!("{} streams on all connections exceed {CONNECTIONS_MAX}", self.concurrency());
            reader.add_problem("--streams", text);
        }
    }
}

fn tls(text: &LoadFlags, reader: &mut FlagReader, requests: &[RenderedRequest]) -> Option<TlsPlan> {
    let (plan, mut problems) = TlsPlan::parse(&text.tls);
    let is_used = requests.iter().any(|request| request.url.authority.is_tls());
    // With a wrong URL it is not known whether TLS is used.
    if !is_used && requests.len() == text.urls.len() {
        problems.extend(text.tls.problems_without_tls());
    }
    reader.problems.extend(problems);
    is_used.then_some(plan)
}

fn timeout_ns(text: &LoadFlags, reader: &mut FlagReader) -> u64 {
    let default_ns = TIMEOUT_S_DEFAULT * SECOND_NS;
    let bare = DurationUnit::Milliseconds;
    let timeout_ns = reader.duration_ns("--timeout", text.timeout.as_ref(), default_ns, bare);
    if timeout_ns == 0 {
        reader.add_problem("--timeout", "a timeout of 0 would fail every request");
    }
    timeout_ns
}

fn timeout_from(text: &LoadFlags, reader: &mut FlagReader) -> TimeoutFrom {
    let (given, default) = (text.timeout_from.as_ref(), TimeoutFrom::default());
    reader.parse_or_default("--timeout-from", given, default, |text| match text {
        "due" => Ok(TimeoutFrom::Due),
        "send" => Ok(TimeoutFrom::Send),
        _ => Err(format!("'{text}' is neither due nor send")),
    })
}

fn parse_count_within(text: &str, min: u64, max: u64) -> Result<u64, String> {
    let count = parse_count(text)?;
    if (min..=max).contains(&count) {
        Ok(count)
    } else {
        Err(format!("{count} is not within {min} to {max}"))
    }
}

fn requests(text: &LoadFlags, http2: Option<&Http2Plan>, reader: &mut FlagReader) -> Vec<RenderedRequest> {
    let is_grpc = http2.is_some_and(|http2| http2.grpc);
    let mut fields = fields(text, reader);
    let mut body = body(text, reader);
    if is_grpc {
        body = grpc::frame(&body);
        grpc::add_fields(&mut fields);
    }
    let default = if body.is_empty() { "GET" } else { "POST" };
    let method = text.method.as_deref().unwrap_or(default);
    if let Err(error) = encode::check_method(method) {
        reader.add_problem("--method", error.to_string());
    }
    if method == "CONNECT" {
        reader.add_problem("--method", "CONNECT opens a tunnel and cannot be measured");
    }
    if is_grpc && method != "POST" {
        reader.add_problem("--method", "a call of gRPC is a POST request");
    }
    if http2.is_some() {
        reject_fields_of_http1(&fields, reader);
    }
    if text.urls.is_empty() {
        reader.add_problem("URL", "missing (write http://host:port/path)");
    }
    let mut requests = Vec::with_capacity(text.urls.len());
    for (index, url) in (1..).zip(&text.urls) {
        match Url::parse(url) {
            Ok(url) => requests.push(RenderedRequest::new(url, method, &fields, &body)),
            Err(error) => reader.add_problem(&format!("URL {index}"), error),
        }
    }
    requests
}

/// Rejects the fields that HTTP/2 does not have (RFC 9113 §8.2.2).
fn reject_fields_of_http1(fields: &[(String, String)], reader: &mut FlagReader) {
    const CONNECTION_SPECIFIC: [&str; 4] = ["connection", "proxy-connection", "keep-alive", "upgrade"];
    for (name, value) in fields {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if CONNECTION_SPECIFIC.into_iter().any(is) || (is("te") && value != "trailers") {
            reader.add_problem("--header", format!("'{name}: {value}' is not allowed in HTTP/2"));
        }
    }
}

fn fields(text: &LoadFlags, reader: &mut FlagReader) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for header in &text.headers {
        let Some((name, value)) = header.split_once(':') else {
            reader.add_problem("--header", format!("'{header}' has no colon (write 'Name: value')"));
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        let checked =
            encode::check_field_name(name).and_then(|()| encode::check_field_value(value.as_bytes()));
        if let Err(error) = checked {
            reader.add_problem("--header", format!("'{header}': {error}"));
        } else if ["content-length", "transfer-encoding"]
            .iter()
            .any(|framing| name.eq_ignore_ascii_case(framing))
        {
            reader.add_problem("--header", format!("'{name}' is set by weir from the body"));
        } else {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    fields
}

fn body(text: &LoadFlags, reader: &mut FlagReader) -> Vec<u8> {
    let body = match (&text.data, &text.data_file) {
        (Some(_), Some(_)) => {
            reader.add_problem("--data", "--data and --data-file are exclusive");
            Vec::new()
        }
        (Some(data), None) => data.as_bytes().to_vec(),
        (None, Some(bytes)) => bytes.clone(),
        (None, None) => Vec::new(),
    };
    if body.len() as u64 > BODY_BYTES_MAX {
        reader.add_problem("--data", format!("the body is longer than {BODY_BYTES_MAX} bytes"));
    }
    body
}

fn pace(text: &LoadFlags, reader: &mut FlagReader) -> Pace {
    let arrivals = reader.parse_or_default(
        "--arrivals",
        text.arrivals.as_ref(),
        Arrivals::Constant,
        |text| match text {
            "constant" => Ok(Arrivals::Constant),
            "poisson" => Ok(Arrivals::Poisson),
            _ => Err(format!("'{text}' is neither constant nor poisson")),
        },
    );
    let think_ns = reader.duration_ns("--think", text.think.as_ref(), 0, DurationUnit::Milliseconds);
    let Some(rate) = &text.rate else {
        if text.arrivals.is_some() {
            reader.add_problem("--arrivals", "only an open loop has arrivals; set a --rate");
        }
        if text.max_pending.is_some() {
            reader.add_problem("--max-pending", "only an open loop queues requests; set a --rate");
        }
        return Pace::Closed { think_ns };
    };
    if text.think.is_some() {
        reader.add_problem("--think", "only a closed loop has a think time; remove --think or --rate");
    }
    let rate_per_s = reader.parse_or_default("--rate", Some(rate), 1.0, parse_rate);
    Pace::Open { rate_per_s, arrivals }
}

/// Parses a rate per second; unlike a count it may be below one.
fn parse_rate(text: &str) -> Result<f64, String> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    let rate = match plain.parse::<f64>() {
        Ok(rate) => rate,
        Err(_) => parse_count(plain)? as f64,
    };
    let within = rate.is_finite() && (0.001..=1e9).contains(&rate);
    within.then_some(rate).ok_or_else(|| format!("'{text}' is not a rate from 0.001 to 1G per second"))
}

/// Returns the number of requests that become due until the first of them times out. A longer queue
/// would only hold requests that have already expired.
fn default_max_pending(pace: Pace, timeout_ns: u64) -> u64 {
    match pace {
        Pace::Open { rate_per_s, .. } => {
            let within_timeout = rate_per_s * timeout_ns as f64 / 1e9;
            (within_timeout.ceil() as u64).clamp(1_000, PENDING_MAX)
        }
        Pace::Closed { .. } => 0,
    }
}

fn end(text: &LoadFlags, reader: &mut FlagReader) -> LoadEnd {
    let requests = reader.parse_or_default("--requests", text.requests.as_ref(), None, |text| {
        parse_count_within(text, 1, u64::MAX).map(Some)
    });
    let default_s = if requests.is_some() { DURATION_S_MAX } else { DURATION_S_DEFAULT };
    let duration_ns = reader.duration_ns(
        "--duration",
        text.duration.as_ref(),
        default_s * SECOND_NS,
        DurationUnit::Seconds,
    );
    if duration_ns == 0 {
        reader.add_problem("--duration", "a duration of 0 measures nothing");
    }
    LoadEnd { duration_ns, requests }
}

fn threads(
    text: &LoadFlags,
    reader: &mut FlagReader,
    requests: &[RenderedRequest],
    connections: u64,
    cores: usize,
) -> usize {
    // A subject on this machine needs CPUs too.
    let is_local = |request: &RenderedRequest| {
        let host = request.url.authority.host.as_str();
        let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        loopback || host == "localhost"
    };
    let local = text.unix.is_some() || requests.iter().all(is_local);
    let default = if local { cores.div_ceil(2) } else { cores };
    let default = default.clamp(1, usize::try_from(connections).unwrap_or(usize::MAX));
    let threads = reader.parse_or_default("--threads", text.threads.as_ref(), default, |text| {
        parse_count_within(text, 1, 1024).map(|count| count as usize)
    });
    if threads as u64 > connections {
        reader.add_problem("--threads", format!("more threads ({threads}) than connections ({connections})"));
    }
    threads
}

fn sources(text: &LoadFlags, reader: &mut FlagReader) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for part in text.sources.iter().flat_map(|list| list.split(',')) {
        match parse_addresses(part.trim()) {
            Ok(addresses) => all.extend(addresses),
            Err(error) => reader.add_problem("--source", error),
        }
    }
    if !all.is_empty() && text.unix.is_some() {
        reader.add_problem("--source", "a unix socket has no source address");
    }
    all
}

/// Parses one address, or all of an IPv4 range `a-b` or of an IPv4 network `a/n`, at most 65,536.
fn parse_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    use std::net::Ipv4Addr;
    let wrong =
        || format!("'{text}' is not an address (write 127.0.0.2, 127.0.0.2-127.0.0.9 or 127.0.1.0/28)");
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

fn expect(text: &LoadFlags, reader: &mut FlagReader) -> Expect {
    Expect {
        status: reader.parse_or_default("--expect-status", text.expect_status.as_ref(), None, |text| {
            StatusSet::parse(text).map(Some)
        }),
        body_bytes: reader.parse_or_default("--expect-bytes", text.expect_bytes.as_ref(), None, |text| {
            parse_size(text).map(Some)
        }),
    }
}

fn objectives(text: &LoadFlags, reader: &mut FlagReader) -> Vec<Objective> {
    let mut all = Vec::new();
    for list in &text.slo {
        let (objectives, problems) = Objective::parse_list(list);
        all.extend(objectives);
        problems.into_iter().for_each(|problem| reader.add_problem("--slo", problem));
    }
    all
}
