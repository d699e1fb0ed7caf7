//! Validity of a load's result, as a table of rules. Each checks the evidence and returns its
//! objection, with figures. No I/O; the sources of the bounds are next to them.

mod conclusions;
mod live;
mod merged;
mod stalls;
mod transport;

use record::run::{Interval, UndelayedLatency};
use record::units::{format_count, format_duration_ns, format_plural};
use record::validity::{CPU_CONTENDED, FOREIGN_CPU_FRACTION_MAX, Validity, ValidityLevel, ValidityReason};
use stats::median;

pub use conclusions::{judge_conclusions, judge_verdict};
pub use live::{LiveLimits, live_signs};
pub use merged::judge_merged;

use crate::measurement::RunMeasurement;

/// Input of the rules of validity.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    pub measured: &'a RunMeasurement,
    pub host: HostEvidence,
}

/// Facts from the host about the window of the run; `None` if the host does not provide them.
#[derive(Clone, Debug, Default)]
pub struct HostEvidence {
    /// Fraction of a core that the busiest generator thread used.
    pub busiest_thread_fraction: Option<f64>,
    /// Fraction of the window that generator threads waited for a CPU; the worst thread.
    pub run_queue_wait_fraction: Option<f64>,
    pub cpus: Option<u32>,
    /// CPUs used by neither the generator nor the subject.
    pub foreign_cpus: Option<f64>,
    /// Fraction of time that the hypervisor gave to other guests.
    pub steal_fraction: Option<f64>,
    /// Reason why source ports are scarce, if they are.
    pub scarce_ports: Option<String>,
    /// Used fraction of the client's maximum throughput, by a stored calibration.
    pub calibrated_fraction: Option<f64>,
}

pub struct ValidityRule {
    pub code: &'static str,
    /// Description of the checked figure, with the source of its bound.
    pub doc: &'static str,
    /// True if the subject, not the measurement, is the cause.
    pub is_subject_fault: bool,
    /// True if the rule needs statistics, so that it does not apply to a run that is [`TOO_SHORT`].
    pub statistical: bool,
    check: fn(&Evidence<'_>) -> Option<(ValidityLevel, String)>,
}

impl std::fmt::Debug for ValidityRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValidityRule").field("code", &self.code).finish_non_exhaustive()
    }
}

/// Code of the rule for runs with too little data to judge.
pub const TOO_SHORT: &str = "too_short";

pub const RULES: &[ValidityRule] = &[
    ValidityRule {
        code: "client_bound",
        doc: "A generator thread used 95 % of a core or more (invalid), or 80 % (suspect): its \
              rate is then a lower bound and its latencies include its own queue.",
        is_subject_fault: false,
        statistical: true,
        check: client_bound,
    },
    ValidityRule {
        code: "run_queue_wait",
        doc: "A generator thread waited for a CPU for over 10 % of the time (30 %: invalid).",
        is_subject_fault: false,
        statistical: true,
        check: run_queue_wait,
    },
    ValidityRule {
        code: "send_lag",
        doc: "99 % of the sends (or wake-ups, in a closed loop) were within more than 1 ms and 10 % \
              of the median latency (suspect), or more than 10 ms and the whole median (invalid). Every \
              due request counts; waiting for a free connection is not the generator's lag. Or over 1 ms \
              and 10 % of the p99 were the generator's own, by the kernel's receive timestamps (suspect).",
        is_subject_fault: false,
        statistical: true,
        check: send_lag,
    },
    ValidityRule {
        code: "generator_stalled",
        doc: "The generator did not run for over 5 % of its time, or over 1 % of the requests were due \
              or answered in stalls longer than the median latency (invalid); over 1 % of its time, \
              over 1 % of the requests in stalls longer than a tenth of it, or over 0.1 % in stalls of \
              which one took 100 ms (suspect). A stall is a time of at least 10 ms in which an event \
              loop had to run and did not: the process was stopped, or had no CPU.",
        is_subject_fault: false,
        statistical: true,
        check: stalls::generator_stalled,
    },
    ValidityRule {
        code: "connections_failed",
        doc: "Fewer connections were opened than requested.",
        is_subject_fault: false,
        statistical: false,
        check: connections_failed,
    },
    ValidityRule {
        code: "streams_limited",
        doc: "A server allowed fewer concurrent streams on a connection than requested with --streams \
              (SETTINGS_MAX_CONCURRENT_STREAMS): requests waited for a stream.",
        is_subject_fault: true,
        statistical: false,
        check: streams_limited,
    },
    ValidityRule {
        code: "ports_scarce",
        doc: "The source ports barely suffice for the connections of the run.",
        is_subject_fault: false,
        statistical: false,
        check: ports_scarce,
    },
    ValidityRule {
        code: "xdp_frames_lost",
        doc: "TCP in user space (--xdp): a ring was full or empty, and this machine lost frames. They were sent \
              again, after 1 s at the earliest if they were the last of a connection.",
        is_subject_fault: false,
        statistical: false,
        check: transport::frames_lost,
    },
    ValidityRule {
        code: "xdp_copies",
        doc: "TCP in user space (--xdp): the driver has no zero-copy, so that each packet is copied (mode copy) or \
              goes through the network stack first (mode generic). Compare it only with runs in the same mode.",
        is_subject_fault: false,
        statistical: false,
        check: transport::copies,
    },
    ValidityRule {
        code: "xdp_large_bodies",
        doc: "TCP in user space (--xdp): the mean response has a body above 2,000 bytes, or the mean request has as \
              many. The kernel's TCP, which splits and joins segments in batches, costs less there.",
        is_subject_fault: false,
        statistical: false,
        check: transport::large_bodies,
    },
    ValidityRule {
        code: "littles_law",
        doc: "Requests in flight as counted, and rate times mean latency, differ by over 5 %: then \
              latencies are missing or wrong. Not judged where fewer than 40 mean times in flight fit \
              into the window, because the requests cut at its edges weigh too much.",
        is_subject_fault: false,
        statistical: true,
        check: littles_law,
    },
    ValidityRule {
        code: "errors",
        doc: "More requests failed or had a bad response (400 and above, or not as expected) than \
              --max-error-rate, or than an objective of errors (--slo errors<1%), allows.",
        is_subject_fault: true,
        statistical: false,
        check: errors,
    },
    ValidityRule {
        code: "no_response",
        doc: "There was no good response, so no latency was measured.",
        is_subject_fault: true,
        statistical: false,
        check: no_response,
    },
    ValidityRule {
        code: "dropped",
        doc: "Requests were due but never sent, because the pending queue was full: no percentile includes them.",
        is_subject_fault: true,
        statistical: false,
        check: dropped,
    },
    ValidityRule {
        code: "overloaded",
        doc: "Open loop: under 98 % of the requests due in the window got a response \
              (rates.answered_fraction): the others failed, were dropped, or belong to a backlog that grew \
              over the run. A constant number in flight is not missing.",
        is_subject_fault: true,
        statistical: true,
        check: overloaded,
    },
    ValidityRule {
        code: "unsteady",
        doc: "The median rate of the first and of the last third of the window differ by over \
              10 %, or a second had no response at all although the generator ran.",
        is_subject_fault: true,
        statistical: true,
        check: unsteady,
    },
    ValidityRule {
        code: CPU_CONTENDED,
        doc: "Other programs on this kernel used over 5 % of the machine's CPUs.",
        is_subject_fault: false,
        statistical: true,
        check: cpu_contended,
    },
    ValidityRule {
        code: "cpu_steal",
        doc: "CPU steal, which is the hypervisor's: over 2 % of the time went to other guests (10 %: invalid).",
        is_subject_fault: false,
        statistical: true,
        check: cpu_steal,
    },
    ValidityRule {
        code: "near_calibrated_limit",
        doc: "The run used over 80 % of the calibrated capacity of this generator.",
        is_subject_fault: false,
        statistical: true,
        check: near_calibrated_limit,
    },
    ValidityRule {
        code: TOO_SHORT,
        doc: "The window has no complete second, or fewer than 100 responses. Rules that need statistics \
              are skipped; counts (errors, connections, dropped) are still checked.",
        is_subject_fault: false,
        statistical: false,
        check: too_short,
    },
    ValidityRule {
        code: "partial",
        doc: "The run was stopped by the user.",
        is_subject_fault: false,
        statistical: false,
        check: partial,
    },
    ValidityRule {
        code: "excess_bytes",
        doc: "The server sent bytes after the end of a response.",
        is_subject_fault: true,
        statistical: false,
        check: excess_bytes,
    },
];

/// Returns the validity of a run.
pub fn judge(evidence: &Evidence<'_>) -> Validity {
    let short = lacks_statistics(evidence);
    let rules = RULES.iter().filter(|rule| !(short && rule.statistical));
    let reasons = rules.filter_map(|rule| {
        (rule.check)(evidence).map(|(verdict, text)| ValidityReason {
            code: rule.code.to_owned(),
            verdict,
            text,
        })
    });
    Validity::from_reasons(reasons.collect())
}

/// Returns whether a reason invalidates the measurement, instead of being a fault of the subject that it shows.
pub fn invalidates_measurement(reason: &ValidityReason) -> bool {
    let is_subject_fault = RULES.iter().any(|rule| rule.code == reason.code && rule.is_subject_fault);
    reason.verdict == ValidityLevel::Invalid && !is_subject_fault
}

fn grade(value: f64, suspect: f64, invalid: f64) -> Option<ValidityLevel> {
    if value >= invalid {
        Some(ValidityLevel::Invalid)
    } else if value >= suspect {
        Some(ValidityLevel::Suspect)
    } else {
        None
    }
}

fn format_percent(fraction: f64) -> String {
    match fraction * 100.0 {
        percent if percent >= 10.0 || percent == 0.0 => format!("{percent:.0} %"),
        percent if percent >= 0.1 => format!("{percent:.1} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// Fraction of a core that the generator's busiest thread uses, from which a result is suspect, or invalid.
const CLIENT_BUSY_SUSPECT: f64 = 0.80;
const CLIENT_BUSY_INVALID: f64 = 0.95;
/// 99th percentile of the lag from which a result is suspect, or invalid, if the median latency is small.
const LAG_SUSPECT_NS: u64 = 1_000_000;
const LAG_INVALID_NS: u64 = 10_000_000;

type RuleResult = Option<(ValidityLevel, String)>;

fn client_bound(evidence: &Evidence<'_>) -> RuleResult {
    let fraction = evidence.host.busiest_thread_fraction?;
    let verdict = grade(fraction, CLIENT_BUSY_SUSPECT, CLIENT_BUSY_INVALID)?;
    let text = format!(
        "the generator was {} the limit: its busiest thread used {} of a core; use more threads \
         (-t), more machines, or a --rate below its capacity",
        if verdict == ValidityLevel::Invalid { "itself" } else { "close to being" },
        format_percent(fraction)
    );
    Some((verdict, text))
}

fn run_queue_wait(evidence: &Evidence<'_>) -> RuleResult {
    let fraction = evidence.host.run_queue_wait_fraction?;
    let verdict = grade(fraction, 0.10, 0.30)?;
    let text = format!(
        "a generator thread waited for a CPU for {} of the time; give it CPUs of its \
         own",
        format_percent(fraction)
    );
    Some((verdict, text))
}

fn send_lag(evidence: &Evidence<'_>) -> RuleResult {
    let measured = evidence.measured;
    if measured.latencies.last_byte.response.is_empty() {
        return None;
    }
    let lag_ns = measured.lag.value_at_quantile(0.99);
    let median_ns = measured.latencies.last_byte.response.value_at_quantile(0.5);
    let event = if measured.plan.is_open_loop() { "sends" } else { "wake-ups" };
    let verdict = if lag_ns > LAG_INVALID_NS && lag_ns > median_ns {
        ValidityLevel::Invalid
    } else if lag_ns > LAG_SUSPECT_NS && lag_ns > median_ns / 10 {
        ValidityLevel::Suspect
    } else {
        return own_part_of_p99(measured);
    };
    let text = format!(
        "1 % of the generator's {event} were later than {}, against a median latency of {}",
        format_duration_ns(lag_ns),
        format_duration_ns(median_ns)
    );
    Some((verdict, text))
}

/// Judges the generator's own part of the p99, which late wake-ups can make without a late one at each tick.
fn own_part_of_p99(measured: &RunMeasurement) -> RuleResult {
    let p99_ns = measured.latencies.last_byte.response.value_at_quantile(0.99);
    let is_known = measured.undelayed.count() >= UndelayedLatency::requests_needed(0.99);
    let own_ns = p99_ns.saturating_sub(measured.undelayed.value_at_quantile(0.99));
    (is_known && own_ns > LAG_SUSPECT_NS && own_ns > p99_ns / 10).then(|| {
        let (own, p99) = (format_duration_ns(own_ns), format_duration_ns(p99_ns));
        (
            ValidityLevel::Suspect,
            format!("late sends and reads of the generator made {own} of the p99 of {p99}"),
        )
    })
}

fn connections_failed(evidence: &Evidence<'_>) -> RuleResult {
    let (requested, obtained) = (evidence.measured.plan.connections, evidence.measured.counters.obtained);
    (obtained < requested).then(|| {
        let text = format!("only {obtained} of {requested} connections were opened");
        (ValidityLevel::Invalid, text)
    })
}

fn streams_limited(evidence: &Evidence<'_>) -> RuleResult {
    let http2 = evidence.measured.plan.http2.as_ref()?;
    let allowed = evidence.measured.counters.http2.streams_allowed?;
    (allowed < http2.streams).then(|| {
        let text = format!(
            "the server allows {} per connection, {} were requested; use more connections (-c)",
            format_plural(allowed, "stream"),
            http2.streams
        );
        (ValidityLevel::Suspect, text)
    })
}

fn ports_scarce(evidence: &Evidence<'_>) -> RuleResult {
    evidence.host.scarce_ports.clone().map(|text| (ValidityLevel::Suspect, text))
}

fn littles_law(evidence: &Evidence<'_>) -> RuleResult {
    let measured = evidence.measured;
    let (counted, by_law) = measured.in_flight();
    let length_s = measured.load_s - measured.window_s.0;
    let mean_s = by_law * length_s / measured.counters.sent.max(1) as f64;
    if mean_s * 40.0 > length_s {
        return None;
    }
    // Below a hundredth of a request in flight the cost of the timestamps is visible.
    let differs = (counted - by_law).abs() > 0.05 * counted.max(by_law) + 0.01;
    differs.then(|| {
        let text = format!(
            "{counted:.2} requests were in flight, but rate times mean latency is {by_law:.2}: \
             latencies are missing or wrong"
        );
        (ValidityLevel::Invalid, text)
    })
}

fn errors(evidence: &Evidence<'_>) -> RuleResult {
    let measured = evidence.measured;
    let fraction = measured.error_rate();
    (fraction > measured.plan.max_error_rate).then(|| {
        let counters = &measured.counters;
        let bad = counters.bad();
        let failed = counters.requests.saturating_sub(counters.good() + bad);
        let text = format!(
            "{} of the requests had no good response ({failed} failed, {}); the limit is {}",
            format_percent(fraction),
            format_plural(bad, "bad response"),
            format_percent(measured.plan.max_error_rate)
        );
        (ValidityLevel::Invalid, text)
    })
}

fn no_response(evidence: &Evidence<'_>) -> RuleResult {
    let counters = &evidence.measured.counters;
    let text = match counters.bad() {
        0 => "no response at all".to_owned(),
        bad => format!("no latency was measured: all responses ({bad}) were bad"),
    };
    (counters.good() == 0).then_some((ValidityLevel::Invalid, text))
}

fn dropped(evidence: &Evidence<'_>) -> RuleResult {
    let counters = &evidence.measured.counters;
    let fraction = counters.dropped as f64 / counters.due.max(1) as f64;
    let text = format!(
        "{} ({}) due but never sent, because the pending queue of {} was full",
        format_plural(counters.dropped, "request"),
        format_percent(fraction),
        evidence.measured.plan.max_pending
    );
    (counters.dropped > 0).then_some((grade(fraction, 0.0, 0.001)?, text))
}

fn overloaded(evidence: &Evidence<'_>) -> RuleResult {
    let measured = evidence.measured;
    let fraction = measured.answered_fraction()?;
    let text = format!(
        "of {}/s offered {} got a response: the others failed, were dropped, or belong to a backlog that \
         grew over the run",
        format_count(measured.window_due as f64 / measured.window_length_s()),
        format_percent(fraction)
    );
    (fraction < 0.98).then_some((ValidityLevel::Suspect, text))
}

fn unsteady(evidence: &Evidence<'_>) -> RuleResult {
    let measured: Vec<&Interval> = evidence.measured.intervals.iter().filter(|i| i.measured).collect();
    let rates: Vec<u64> = measured.iter().map(|interval| interval.responses).collect();
    if rates.len() < 3 || evidence.measured.counters.responses == 0 {
        return None;
    }
    let silent = stalls::silent_seconds(&measured, evidence.measured.plan.threads);
    if silent > 0 {
        let text = format!(
            "no response in {silent} of {}: the server stalled (check its logs, GC, disk)",
            format_plural(rates.len() as u64, "second")
        );
        return Some((ValidityLevel::Suspect, text));
    }
    let third = rates.len() / 3;
    if third < 2 {
        return None;
    }
    let typical = |part: &[u64]| {
        let rates: Vec<f64> = part.iter().map(|rate| *rate as f64).collect();
        median(&rates).unwrap_or(0.0)
    };
    let (first, last) = (typical(&rates[..third]), typical(&rates[rates.len() - third..]));
    let drift = (last - first) / first;
    // A rate that is too low to be even from second to second proves nothing.
    let noise = 3.0 / first.sqrt();
    (drift.abs() > 0.10_f64.max(noise)).then(|| {
        let text = format!(
            "the rate went from {}/s in the first third to {}/s in the last",
            format_count(first),
            format_count(last)
        );
        (ValidityLevel::Suspect, text)
    })
}

fn cpu_contended(evidence: &Evidence<'_>) -> RuleResult {
    let (foreign, cpus) = (evidence.host.foreign_cpus?, evidence.host.cpus?);
    let fraction = foreign / f64::from(cpus.max(1));
    (fraction > FOREIGN_CPU_FRACTION_MAX).then(|| {
        let text = format!("other processes used {foreign:.2} of this machine's {cpus} CPUs during the run");
        (ValidityLevel::Suspect, text)
    })
}

fn cpu_steal(evidence: &Evidence<'_>) -> RuleResult {
    let fraction = evidence.host.steal_fraction?;
    let verdict = grade(fraction, 0.02, 0.10)?;
    Some((verdict, format!("CPU steal: {} of the time went to other guests", format_percent(fraction))))
}

fn near_calibrated_limit(evidence: &Evidence<'_>) -> RuleResult {
    let fraction = evidence.host.calibrated_fraction?;
    let verdict = grade(fraction, 0.80, f64::INFINITY)?;
    Some((
        verdict,
        format!("this run used {} of the calibrated capacity of this generator", format_percent(fraction)),
    ))
}

/// Minimum number of good responses for a statistic of their latency.
const GOOD_RESPONSES_MIN: u64 = 100;

fn lacks_statistics(evidence: &Evidence<'_>) -> bool {
    let measured = evidence.measured;
    let good = measured.latencies.last_byte.response.count();
    !measured.has_complete_second || (measured.counters.responses > 0 && good < GOOD_RESPONSES_MIN)
}

fn too_short(evidence: &Evidence<'_>) -> RuleResult {
    let measured = evidence.measured;
    // A run with few good responses among many bad ones would have as few of them if it were longer.
    let are_errors_why = measured.has_complete_second && errors(evidence).is_some();
    if measured.counters.good() == 0 || are_errors_why || !lacks_statistics(evidence) {
        return None;
    }
    let responses = measured.latencies.last_byte.response.count();
    let length_s = measured.window_length_s();
    let text = match responses >= GOOD_RESPONSES_MIN {
        true => {
            format!("no complete second was measured, only {length_s:.2} s: too short to check stability")
        }
        false => {
            format!("too few responses: {} in {length_s:.2} s", format_plural(responses, "good response"))
        }
    };
    Some((ValidityLevel::Suspect, text))
}

fn partial(evidence: &Evidence<'_>) -> RuleResult {
    let measured = evidence.measured;
    let text = format!("stopped by the user after {:.1} s", measured.load_s);
    measured.partial.then_some((ValidityLevel::Suspect, text))
}

fn excess_bytes(evidence: &Evidence<'_>) -> RuleResult {
    let bytes = evidence.measured.counters.excess_bytes;
    let text = format!("the server sent {} outside of a response", format_plural(bytes, "byte"));
    (bytes > 0).then_some((ValidityLevel::Suspect, text))
}

#[cfg(test)]
mod tests;
