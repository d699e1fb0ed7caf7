//! Parser from the text of the flags to a [`RunPlan`]. Every flag is read before any is rejected,
//! so that all problems are reported at once.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns, parse_fraction};

use super::live::{OPEN_LOOP_DEPTH, parse_live};
use super::network::{parse_address_lists, parse_connect_to};
use super::replay::parse_speed;
use super::requests::{RequestText, parse_requests};
use super::user_tcp::{XdpFlags, XdpPlan};
use super::{
    CONNECTIONS_DEFAULT, CONNECTIONS_MAX, CsvTable, DURATION_S_DEFAULT, DURATION_S_MAX, Expect, ExpectFlags,
    HarHosts, Http2Plan, HttpFlags, LoadEnd, LoadSlice, MAX_ERROR_RATE_DEFAULT, Objective, PENDING_MAX,
    PIPELINE_MAX, ProxyHeaderPlan, RenderedRequest, ReplayLog, ReplaySchedule, RunPlan, SessionPlan,
    StageQuantity, Stages, TIMEOUT_S_DEFAULT, ThinkDistribution, TimeoutFrom, TlsFlags, TlsPlan,
    WebSocketMode, WebSocketPlan,
};
use crate::pace::{Arrivals, Pace};

/// Flags of a load, as they were typed; `None` and empty mean not given.
#[derive(Clone, Debug, Default)]
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
    pub xdp: XdpFlags,
    pub tls: TlsFlags,
    pub http: HttpFlags,
    pub sources: Vec<String>,
    pub pin: Option<String>,
    pub spin: bool,
    pub expect: ExpectFlags,
    pub weights: Option<String>,
    /// Requests of `--targets` and of a scenario file, in addition to the URLs.
    pub requests_of_files: Vec<RequestText>,
    pub values: Option<Arc<CsvTable>>,
    pub cookies: bool,
    pub captures: Vec<String>,
    pub connect_to: Vec<String>,
    pub addresses: Option<String>,
    pub proxy_protocol: Option<String>,
    pub proxy_sources: Vec<String>,
    pub replay: Option<ReplayLog>,
    pub speed: Option<String>,
    pub har_hosts: Option<String>,
    pub stages: Option<String>,
    pub pipeline: Option<String>,
    pub ws: Option<String>,
    pub message_size: Option<String>,
    pub binary: bool,
    pub sse: bool,
    pub slo: Vec<String>,
    pub max_error_rate: Option<String>,
    pub seed: Option<String>,
    pub slice: Option<String>,
    /// Problems that the caller found when it read the files and other flags.
    pub problems: Vec<InputProblem>,
}

#[derive(Default)]
pub(super) struct FlagReader {
    pub(super) problems: Vec<InputProblem>,
}

impl FlagReader {
    /// Returns whether there is no problem yet.
    pub(super) fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    #[cold]
    #[inline(never)]
    pub(super) fn add_problem(&mut self, flag: &str, text: impl fmt::Display) {
        self.problems.push(InputProblem::new(flag, text));
    }

    /// Returns the value of a flag, or its default if it was not given. Adds a problem if it is
    /// wrong.
    fn parse_or_default<T, E: fmt::Display>(
        &mut self,
        flag: &str,
        text: Option<&String>,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, E>,
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

    #[inline(never)]
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
        let plan = Self::parse_all_parts(text, cores);
        let Some(slice) = &text.slice else { return plan };
        let problem = |why| InputProblem::new("--slice", why);
        match (plan, LoadSlice::parse(slice)) {
            (Ok(plan), Ok(slice)) => plan.sliced(slice).map_err(|why| vec![problem(why)]),
            (Ok(_), Err(why)) => Err(vec![problem(why)]),
            (Err(mut problems), slice) => {
                problems.extend(slice.err().map(problem));
                Err(problems)
            }
        }
    }

    fn parse_all_parts(text: &LoadFlags, cores: usize) -> Result<Self, Vec<InputProblem>> {
        let mut reader = FlagReader { problems: text.problems.clone() };
        let (http2, problems) = Http2Plan::parse(&text.http);
        reader.problems.extend(problems);
        let (session, problems) = SessionPlan::parse(text.cookies, &text.captures);
        reader.problems.extend(problems);
        let (expect, problems) = Expect::parse(&text.expect);
        reader.problems.extend(problems);
        let (proxy_header, problems) =
            ProxyHeaderPlan::parse(text.proxy_protocol.as_deref(), &text.proxy_sources);
        reader.problems.extend(problems);
        let (requests, body) = parse_requests(text, http2.as_ref(), &session, &mut reader);
        let websocket = parse_live(text, &body, &mut reader);
        let (requests, replay) = replay(text, requests, &mut reader);
        let stages = stages(text, &mut reader);
        let connections = connections(text, stages.as_ref(), &mut reader);
        let timeout_ns = timeout_ns(text, &mut reader);
        let (pace, think) = pace(text, stages.as_ref(), replay.as_deref(), &mut reader);
        let objectives = objectives(text, &mut reader);
        let error_limits = objectives.iter().filter_map(Objective::error_rate_limit);
        let error_rate = error_limits.reduce(f64::min).unwrap_or(MAX_ERROR_RATE_DEFAULT);
        let plan = Self {
            connections,
            threads: threads(text, &mut reader, &requests, connections, cores),
            pin: reader.parse_or_default("--pin", text.pin.as_ref(), Vec::new(), rt::cores::parse_cpus),
            spin: text.spin,
            ramp_ns: reader.duration_ns("--ramp", text.ramp.as_ref(), 0, DurationUnit::Seconds),
            end: end(text, stages.as_ref(), replay.as_deref(), &mut reader),
            requests_per_connection: requests_per_connection(text, &mut reader),
            timeout_ns,
            timeout_from: timeout_from(text, &mut reader),
            drain_ns: drain_ns(text, websocket.as_ref(), timeout_ns, &mut reader),
            max_pending: reader.parse_or_default(
                "--max-pending",
                text.max_pending.as_ref(),
                default_max_pending(pace, timeout_ns),
                |text| parse_count_within(text, 0, PENDING_MAX),
            ),
            sources: sources(text, &mut reader),
            expect,
            session,
            values: text.values.clone(),
            connect_to: parse_connect_to(text, &mut reader),
            has_embedded_origin: false,
            spreads_addresses: spreads_addresses(text, &mut reader),
            addresses: Vec::new(),
            proxy_header,
            replay,
            stages,
            think,
            pipeline: pipeline(text, http2.as_ref(), websocket.as_ref(), &mut reader),
            objectives,
            max_error_rate: reader.parse_or_default(
                "--max-error-rate",
                text.max_error_rate.as_ref(),
                error_rate,
                parse_fraction,
            ),
            seed: reader.parse_or_default("--seed", text.seed.as_ref(), 1, |text| {
                text.parse().map_err(|_| invalid_value!("'{text}' is not an integer"))
            }),
            slice: None,
            unix: text.unix.as_ref().map(Into::into),
            xdp: XdpPlan::parse(text, &mut reader),
            receive_timestamps: true,
            tls: tls(text, &mut reader, &requests),
            http2,
            websocket,
            sse: text.sse,
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
    if !is_used && !requests.is_empty() && requests.len() >= text.urls.len() {
        problems.extend(text.tls.problems_without_tls());
    }
    reader.problems.extend(problems);
    is_used.then_some(plan)
}

fn requests_per_connection(text: &LoadFlags, reader: &mut FlagReader) -> Option<u64> {
    let given = text.requests_per_connection.as_ref();
    let parse = |text: &str| parse_count_within(text, 1, u64::MAX).map(Some);
    reader.parse_or_default("--requests-per-connection", given, None, parse)
}

fn spreads_addresses(text: &LoadFlags, reader: &mut FlagReader) -> bool {
    reader.parse_or_default("--addresses", text.addresses.as_ref(), false, |text| match text {
        "one" => Ok(false),
        "all" => Ok(true),
        _ => Err(invalid_value!("'{text}' is neither one nor all")),
    })
}

fn timeout_ns(text: &LoadFlags, reader: &mut FlagReader) -> u64 {
    let default_ns = TIMEOUT_S_DEFAULT * SECOND_NS;
    let parse = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        // Bare numbers of -d are seconds everywhere, but those of a timeout are not.
        true if !text.is_empty() && text.parse() != Ok(0.0) => Err(invalid_value!(
            "'{text}' has no unit: write {text}ms (as h1load reads it) or {text}s (as wrk and hey do)"
        )),
        _ => parse_duration_ns(text, DurationUnit::Seconds),
    };
    let timeout_ns = reader.parse_or_default("--timeout", text.timeout.as_ref(), default_ns, parse);
    if timeout_ns == 0 {
        reader.add_problem("--timeout", "a timeout of 0 would fail every request");
    }
    timeout_ns
}

fn drain_ns(
    text: &LoadFlags,
    websocket: Option<&WebSocketPlan>,
    timeout_ns: u64,
    reader: &mut FlagReader,
) -> u64 {
    let is_push = text.sse || websocket.is_some_and(|plan| plan.mode == WebSocketMode::Push);
    // Subscriptions end with the load; the drain is for their close handshakes.
    let default_ns = if is_push { timeout_ns.min(SECOND_NS) } else { timeout_ns };
    reader.duration_ns("--drain", text.drain.as_ref(), default_ns, DurationUnit::Seconds)
}

fn timeout_from(text: &LoadFlags, reader: &mut FlagReader) -> TimeoutFrom {
    let (given, default) = (text.timeout_from.as_ref(), TimeoutFrom::default());
    reader.parse_or_default("--timeout-from", given, default, |text| match text {
        "due" => Ok(TimeoutFrom::Due),
        "send" => Ok(TimeoutFrom::Send),
        _ => Err(invalid_value!("'{text}' is neither due nor send")),
    })
}

fn parse_count_within(text: &str, min: u64, max: u64) -> Result<u64, InvalidValue> {
    let count = parse_count(text)?;
    if (min..=max).contains(&count) {
        Ok(count)
    } else {
        Err(invalid_value!("{count} is not within {min} to {max}"))
    }
}

fn connections(text: &LoadFlags, stages: Option<&Stages>, reader: &mut FlagReader) -> u64 {
    let connection_stages = stages.filter(|stages| stages.quantity == StageQuantity::Connections);
    let Some(stages) = connection_stages else {
        let given = text.connections.as_ref();
        return reader.parse_or_default("--connections", given, CONNECTIONS_DEFAULT, |text| {
            parse_count_within(text, 1, CONNECTIONS_MAX)
        });
    };
    if text.connections.is_some() {
        reader.add_problem("--connections", "--stages sets the connections: remove one of them");
    }
    if stages.max() > CONNECTIONS_MAX as f64 {
        reader.add_problem("--stages", format!("more than {CONNECTIONS_MAX} connections"));
    }
    (stages.max() as u64).clamp(1, CONNECTIONS_MAX)
}

fn stages(text: &LoadFlags, reader: &mut FlagReader) -> Option<Stages> {
    let given = text.stages.as_ref()?;
    let others = [
        ("--rate", text.rate.is_some()),
        ("--duration", text.duration.is_some()),
        ("--ramp", text.ramp.is_some()),
        ("--replay", text.replay.is_some()),
    ];
    for (flag, _) in others.iter().filter(|(_, is_given)| *is_given) {
        reader.add_problem(flag, "--stages sets it: remove one of them");
    }
    reader.parse_or_default("--stages", Some(given), None, |text| Stages::parse(text).map(Some))
}

/// Replaces the URL by the requests of a log, with their schedule.
fn replay(
    text: &LoadFlags,
    requests: Vec<RenderedRequest>,
    reader: &mut FlagReader,
) -> (Vec<RenderedRequest>, Option<Arc<ReplaySchedule>>) {
    let speed = reader.parse_or_default("--speed", text.speed.as_ref(), 1.0, parse_speed);
    let hosts = text.har_hosts.as_ref();
    let hosts = reader.parse_or_default("--har-hosts", hosts, HarHosts::default(), HarHosts::parse);
    let Some(log) = &text.replay else {
        // Without problems of a file that was given.
        if text.speed.is_some() && text.problems.is_empty() {
            reader.add_problem("--speed", "only a replay has a speed; add --replay FILE");
        }
        return (requests, None);
    };
    let others = [
        ("--rate", text.rate.is_some()),
        ("--arrivals", text.arrivals.is_some()),
        ("--ramp", text.ramp.is_some()),
        ("--targets", !text.requests_of_files.is_empty()),
        ("--data", text.data.is_some() || text.data_file.is_some()),
        ("--method", text.method.is_some()),
    ];
    for (flag, _) in others.iter().filter(|(_, is_given)| *is_given) {
        reader.add_problem(flag, "the log of --replay sets it: remove one of them");
    }
    let [template] = requests.as_slice() else {
        if !text.urls.is_empty() && text.urls.len() != 1 {
            reader.add_problem("URL", "a replay has one URL, whose host gets all requests");
        }
        return (requests, None);
    };
    if template.template.is_some() {
        reader.add_problem("--replay", "a replay has neither templates nor cookies");
    }
    match log.schedule(template, speed, &hosts) {
        Ok((requests, schedule)) => (requests, Some(Arc::new(schedule))),
        Err(problem) => {
            reader.problems.push(problem);
            (requests, None)
        }
    }
}

fn pipeline(
    text: &LoadFlags,
    http2: Option<&Http2Plan>,
    websocket: Option<&WebSocketPlan>,
    reader: &mut FlagReader,
) -> u64 {
    let sends_without_waiting =
        text.rate.is_some() && websocket.is_some_and(|plan| plan.mode != WebSocketMode::Push);
    let default = if sends_without_waiting { OPEN_LOOP_DEPTH } else { 1 };
    let depth = reader.parse_or_default("--pipeline", text.pipeline.as_ref(), default, |text| {
        parse_count_within(text, 1, PIPELINE_MAX)
    });
    if depth > 1 && http2.is_some() && websocket.is_none() {
        reader.add_problem("--pipeline", "HTTP/2 has streams instead: use --streams");
    }
    depth
}

fn pace(
    text: &LoadFlags,
    stages: Option<&Stages>,
    replay: Option<&ReplaySchedule>,
    reader: &mut FlagReader,
) -> (Pace, ThinkDistribution) {
    let arrivals = reader.parse_or_default(
        "--arrivals",
        text.arrivals.as_ref(),
        Arrivals::Constant,
        |text| match text {
            "constant" => Ok(Arrivals::Constant),
            "poisson" => Ok(Arrivals::Poisson),
            _ => Err(invalid_value!("'{text}' is neither constant nor poisson")),
        },
    );
    let default = (0, ThinkDistribution::Constant);
    let (think_ns, think) =
        reader.parse_or_default("--think", text.think.as_ref(), default, ThinkDistribution::parse);
    let rate_stages = stages.filter(|stages| stages.quantity == StageQuantity::Rate);
    let given_rate = match (rate_stages, replay, &text.rate) {
        (Some(stages), _, _) => Some(stages.max()),
        (None, Some(replay), _) => Some(mean_rate(replay)),
        (None, None, Some(rate)) => Some(reader.parse_or_default("--rate", Some(rate), 1.0, parse_rate)),
        (None, None, None) => None,
    };
    let Some(rate_per_s) = given_rate else {
        if text.arrivals.is_some() {
            reader.add_problem("--arrivals", "only an open loop has arrivals; set a --rate");
        }
        if text.max_pending.is_some() {
            reader.add_problem("--max-pending", "only an open loop queues requests; set a --rate");
        }
        return (Pace::Closed { think_ns }, think);
    };
    if text.think.is_some() {
        reader.add_problem("--think", "only a closed loop has a think time; remove --think or --rate");
    }
    (Pace::Open { rate_per_s, arrivals }, think)
}

/// Returns the mean rate of a replay, per s.
fn mean_rate(replay: &ReplaySchedule) -> f64 {
    (replay.len() as f64 / (replay.last_due_ns() as f64 / 1e9).max(0.001)).clamp(0.001, 1e9)
}

/// Parses a rate per second; unlike a count it may be below one.
fn parse_rate(text: &str) -> Result<f64, InvalidValue> {
    let plain = text.strip_suffix("/s").unwrap_or(text);
    let rate = match plain.parse::<f64>() {
        Ok(rate) => rate,
        Err(_) => parse_count(plain)? as f64,
    };
    let within = rate.is_finite() && (0.001..=1e9).contains(&rate);
    within.then_some(rate).ok_or_else(|| invalid_value!("'{text}' is not a rate from 0.001 to 1G per second"))
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

fn end(
    text: &LoadFlags,
    stages: Option<&Stages>,
    replay: Option<&ReplaySchedule>,
    reader: &mut FlagReader,
) -> LoadEnd {
    let requests = reader.parse_or_default("--requests", text.requests.as_ref(), None, |text| {
        parse_count_within(text, 1, u64::MAX).map(Some)
    });
    if let Some(stages) = stages {
        return LoadEnd { duration_ns: stages.duration_ns().max(1), requests };
    }
    // A replay ends with its last request.
    let replay_duration_ns = replay.map(|replay| replay.last_due_ns().saturating_add(SECOND_NS));
    let default_s = if requests.is_some() { DURATION_S_MAX } else { DURATION_S_DEFAULT };
    let duration_ns = reader.duration_ns(
        "--duration",
        text.duration.as_ref(),
        replay_duration_ns.unwrap_or(default_s * SECOND_NS),
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
    let default = if text.xdp.interface.is_some() { 1 } else { default };
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
    let (all, problems) = parse_address_lists(&text.sources, "--source");
    reader.problems.extend(problems);
    if !all.is_empty() && text.unix.is_some() {
        reader.add_problem("--source", "a unix socket has no source address");
    }
    all
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
