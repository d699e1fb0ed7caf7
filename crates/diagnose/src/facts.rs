//! Figures of a run in the words of a sentence, for the answers of verdicts. A figure that is not observable
//! gives no words; the meaning of the figures is elsewhere.

use record::observed::MachineSample;
use record::run::RateBound;
use record::units::{format_count, format_duration_ns, format_plural, format_rate};

use crate::figures as f;
use crate::resource_headroom::{measure_headroom, used_by_others};
use crate::run_view::RunView;
use crate::signals::{self as s, Signal};
use crate::sleep_evidence::main_sleep;
use crate::unit::format_value;
use crate::window::SUBJECT;

/// Estimate below which a subject admits requests by time, and not by their number.
const BY_TIME_MAX: f64 = 0.7;
/// Deviation from a whole number of slots up to which the number is stated without "about".
const WHOLE_DEVIATION_MAX: f64 = 0.06;
/// Part of the latency from which the transfer of a response is most of it.
const TRANSFER_PART_MIN: f64 = 0.5;
/// Size of a response from which its transfer is not just its last packet.
const TRANSFER_BYTES_MIN: f64 = 4096.0;
/// Factor of the connections of a load from which those that were opened are more than lost ones.
const CLOSED_FROM: u64 = 4;
/// Maximum number of requests per connection from which new connections are a cost worth a word.
const CLOSED_REQUESTS_MAX: f64 = 4.0;
/// Use of the CPUs of the servers behind the subject, or of their busiest thread, below which something else limits them.
const ORIGIN_ROOM_MAX: f64 = 0.7;
/// Time for which a connection of a full pool is idle between two requests, at most. If a request takes longer by twice
/// the size of the pool, fewer than half a connection is idle for that reason.
const TURNAROUND_NS: f64 = 200_000.0;
/// Least time of a request beside a delayed acknowledgement that tells slots: the latter varies by a timer's tick.
const BESIDE_STALL_NS_MIN: f64 = 25e6;
/// Number of slots from which it is always "about".
const ABOUT_MIN: f64 = 16.0;

pub(crate) struct Facts<'a> {
    pub(crate) view: &'a RunView<'a>,
}

/// Requests that a subject works on at a time, at its ceiling.
pub(crate) enum Slots {
    /// Fewer than one request at a time would carry: requests wait for time to pass.
    ByTime {
        /// Latency of a request alone, in ns.
        alone_ns: f64,
    },
    /// So many requests, each as long.
    Number { count: f64, is_about: bool, each_ns: f64 },
}

impl Facts<'_> {
    pub(crate) fn value(&self, signal: &Signal) -> Option<f64> {
        signal.value(self.view)
    }

    /// Formats the value of a signal in a phrase, at the place of `{}`; empty if it is not observable.
    pub(crate) fn phrase(&self, signal: &Signal, phrase: &str) -> String {
        self.value(signal)
            .map_or_else(String::new, |value| phrase.replace("{}", &format_value(value, signal.unit)))
    }

    /// Formats the value of a signal in a phrase, as [`Self::phrase`], or the other phrase without it.
    pub(crate) fn phrase_or(&self, signal: &Signal, phrase: &str, other: &str) -> String {
        match self.phrase(signal, phrase) {
            text if text.is_empty() => other.to_owned(),
            text => text,
        }
    }

    /// Formats a signal in a phrase, as [`Self::phrase`], if it is at least `min`.
    pub(crate) fn phrase_from(&self, min: f64, signal: &Signal, phrase: &str) -> String {
        match self.value(signal) {
            Some(value) if value >= min => self.phrase(signal, phrase),
            _ => String::new(),
        }
    }

    /// Formats the good responses per second.
    pub(crate) fn rate(&self) -> String {
        self.rate_times(1.0)
    }

    /// Formats a multiple of the good responses per second.
    pub(crate) fn rate_times(&self, factor: f64) -> String {
        format_rate(self.view.goodput() * factor)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.view.run.totals.connections.requested
    }

    /// Formats the connections with a verb: "16 connections carry".
    pub(crate) fn connections_carry(&self) -> String {
        let connections = self.connections();
        let verb = if connections == 1 { "carries" } else { "carry" };
        format!("{} {verb}", format_plural(connections, "connection"))
    }

    /// Formats the flag for twice the connections.
    pub(crate) fn doubled_connections(&self) -> String {
        format!("-c {}", (2 * self.connections()).max(2))
    }

    /// Formats the flag for half the connections.
    pub(crate) fn halved_connections(&self) -> String {
        format!("-c {}", (self.connections() / 2).max(1))
    }

    /// Returns the mean latency under load, in ns.
    pub(crate) fn loaded_ns(&self) -> f64 {
        self.view.run.latency.last_byte.service.mean_ns
    }

    pub(crate) fn alone_ns(&self) -> Option<f64> {
        s::unloaded_latency_ns(self.view)
    }

    /// Formats the mean number of requests in flight: a whole number, or one decimal if it is small.
    pub(crate) fn in_flight(&self) -> String {
        format_number(self.view.run.generator.in_flight_mean)
    }

    /// Formats the fraction of waiting: "a request takes 5.30 ms alone and 44.7 ms with 64 in flight: 88 % of that
    /// is waiting".
    pub(crate) fn waiting(&self) -> String {
        let (Some(alone_ns), Some(fraction)) = (self.alone_ns(), self.value(&s::QUEUEING)) else {
            return format!("{} requests are in flight, {} each", self.in_flight(), self.mean());
        };
        if self.value(&s::QUEUEING_BEFORE_STALL).is_some() {
            let in_flight = self.in_flight();
            return format!(
                "{:.0} % of the time until the first byte is waiting, with {in_flight} in flight",
                fraction * 100.0
            );
        }
        format!(
            "a request takes {} alone and {} with {} in flight: {:.0} % of that is waiting",
            format_ns(alone_ns),
            self.mean(),
            self.in_flight(),
            fraction * 100.0
        )
    }

    /// Returns the number of connections to the servers behind the subject that carry requests at a time.
    pub(crate) fn pool(&self) -> Option<f64> {
        let in_flight = self.view.run.generator.in_flight_mean;
        let open =
            self.value(&s::ORIGIN_CONNECTIONS).filter(|ratio| *ratio > 0.0).map(|ratio| in_flight / ratio)?;
        // A pool keeps a connection or two that it does not use. Between short requests it also leaves used ones idle.
        let used = self.value(&s::POOL_BUSY).map(|busy| (busy * open).round());
        let is_used = |used: &f64| *used >= 1.0 && self.alone_ns() >= Some(open * 2.0 * TURNAROUND_NS);
        Some(used.filter(is_used).unwrap_or(open))
    }

    /// Formats the mean latency under load.
    pub(crate) fn mean(&self) -> String {
        format_ns(self.loaded_ns())
    }

    /// Returns the part of the latency between the first and the last byte, and the bytes per second of a connection
    /// in it; `None` for a small part, or a response of a few bytes.
    fn transfer_part(&self) -> Option<(f64, f64)> {
        let latency = &self.view.run.latency;
        let total_ns = latency.last_byte.service.mean_ns;
        let transfer_ns = total_ns - latency.first_byte.service.mean_ns;
        let rates = &self.view.run.rates;
        let bytes = rates.bytes_in_per_s / rates.responses_per_s.max(1e-9);
        let part = transfer_ns / total_ns.max(1.0);
        (part >= TRANSFER_PART_MIN && bytes >= TRANSFER_BYTES_MIN).then(|| (part, bytes * 1e9 / transfer_ns))
    }

    /// Formats the part of the latency between the first and the last byte, if it is most of it: "97 % of that passes
    /// between its first and its last byte, 470 KiB/s on each connection".
    pub(crate) fn transfer(&self) -> String {
        self.transfer_part().map_or_else(String::new, |(part, bytes_per_s)| {
            format!(
                "{:.0} % of that passes between the first and the last byte of a response ({}): {} on each connection",
                part * 100.0,
                self.response_size(),
                record::units::format_byte_rate(bytes_per_s)
            )
        })
    }

    /// Returns whether most of the latency is the time between the first and the last byte.
    pub(crate) fn is_transfer(&self) -> bool {
        self.transfer_part().is_some()
    }

    /// Returns the number of requests that the subject works on at a time, by the latency without load.
    pub(crate) fn slots(&self) -> Option<Slots> {
        let estimate = self.value(&s::PARALLELISM).filter(|estimate| *estimate > 0.0)?;
        if estimate < BY_TIME_MAX {
            return Some(Slots::ByTime { alone_ns: self.alone_ns()? });
        }
        let count = estimate.round().max(1.0);
        let deviation = (estimate - count).abs() / estimate;
        let working_ns = s::working_ns(self.view, self.alone_ns()?);
        if self.value(&s::QUEUEING_BEFORE_STALL).is_some() && working_ns < BESIDE_STALL_NS_MIN {
            return None;
        }
        let is_inexact = deviation > WHOLE_DEVIATION_MAX;
        Some(Slots::Number {
            count,
            is_about: count >= ABOUT_MIN || (is_inexact && count > 1.0),
            each_ns: count * 1e9 / self.view.goodput(),
        })
    }

    /// Returns the number of requests that the servers behind the subject work on at a time, and the time of each in
    /// ns, if their CPUs have room: a limit inside them.
    pub(crate) fn origin_slots(&self) -> Option<(f64, f64)> {
        self.value(&s::ORIGIN_AT_LIMIT).filter(|used| *used < ORIGIN_ROOM_MAX)?;
        match self.slots()? {
            Slots::Number { count, each_ns, .. } => Some((count, each_ns)),
            Slots::ByTime { .. } => None,
        }
    }

    /// Formats the CPUs that the subject uses: "1.80 of 2 CPUs".
    pub(crate) fn cpu_use(&self) -> Option<String> {
        let used = self.value(&s::SUBJECT_CPUS)?;
        let allowed = self.view.machine(SUBJECT)?.cpus_by_affinity(SUBJECT)?;
        Some(format!("{used:.2} of {}", format_plural(allowed.round() as u64, "CPU")))
    }

    /// Formats the CPUs that the subject uses in a phrase, at the place of `{}`; empty if not observable.
    pub(crate) fn cpu_phrase(&self, phrase: &str) -> String {
        self.cpu_use().map_or_else(String::new, |used| phrase.replace("{}", &used))
    }

    pub(crate) fn cpu_per_response(&self) -> Option<String> {
        let rate_per_s = Some(self.view.run.rates.responses_per_s).filter(|rate| *rate > 0.0)?;
        Some(format_ns(self.value(&s::SUBJECT_CPUS)? * 1e9 / rate_per_s))
    }

    /// Formats the rate that one CPU of the subject carries.
    pub(crate) fn rate_per_cpu(&self) -> Option<String> {
        let used = self.value(&s::SUBJECT_CPUS).filter(|used| *used > 0.0)?;
        Some(self.rate_times(1.0 / used))
    }

    /// Formats where the working threads of the subject sleep: "its threads sleep on a lock or a condition
    /// (`futex_wait_queue`)".
    pub(crate) fn sleep(&self) -> String {
        main_sleep(self.view).map_or_else(String::new, |sleep| {
            format!("its threads sleep on {} (`{}`)", sleep.event.description(), sleep.function)
        })
    }

    /// Formats the rate at which the next resource of the subject is full: "your service's CPUs are full at about 9.80 k/s".
    pub(crate) fn next_limit(&self) -> String {
        let next = measure_headroom(self.view).into_iter().find_map(|headroom| {
            let full = headroom.full_at.filter(|full| full.bound != RateBound::AtMost)?;
            let is_subject = headroom.resource.starts_with("subject's") || headroom.resource == "all CPUs";
            (is_subject && full.rate_per_s > 1.05 * self.view.goodput()).then_some((headroom.resource, full))
        });
        next.map_or_else(String::new, |(resource, full)| {
            let verb = if resource.ends_with('s') { "are" } else { "is" };
            let others = if resource == "all CPUs" { used_by_others(self.view) } else { String::new() };
            format!("{}{others} {verb} full at {full}", resource.replace("subject's", "your service's"))
        })
    }

    /// Formats the busiest function of the subject: "`parse_json` takes 23 % of that".
    pub(crate) fn busiest_function(&self) -> String {
        let functions = self.view.run.observed.iter().flat_map(|machine| &machine.functions);
        let own =
            functions.filter(|function| function.role == SUBJECT && !function.function.starts_with('['));
        own.max_by(|left, right| left.self_fraction.total_cmp(&right.self_fraction)).map_or_else(
            String::new,
            |function| {
                format!(
                    "`{}` takes {:.0} % of its CPU time",
                    function.function,
                    function.self_fraction * 100.0
                )
            },
        )
    }

    /// Returns a median over the samples of the subject's machine.
    pub(crate) fn read_machine_median(&self, figure: fn(&MachineSample) -> Option<f64>) -> Option<f64> {
        self.view.sample_median(SUBJECT, figure)
    }

    pub(crate) fn descriptors_max(&self) -> Option<f64> {
        self.view.role_median(SUBJECT, |role| role.descriptors_max.map(|max| max as f64))
    }

    /// Returns the CPUs that the quota of the subject allows.
    pub(crate) fn quota_cpus(&self) -> Option<f64> {
        self.view.role_median(SUBJECT, f::QUOTA.read)
    }

    pub(crate) fn opened_per_s(&self) -> f64 {
        self.view.run.totals.connections.opened as f64 / self.view.run.duration_s.max(1e-3)
    }

    /// Describes the connections if the subject ends them, although the load would keep them; empty if it does not.
    pub(crate) fn closed_connections(&self) -> String {
        let run = self.view.run;
        let (opened, requests) = (run.totals.connections.opened, run.totals.requests);
        let is_kept = opened < CLOSED_FROM * run.totals.connections.requested.max(1)
            || requests as f64 > CLOSED_REQUESTS_MAX * opened as f64;
        if is_kept || !run.plan["requests_per_connection"].is_null() || run.totals.failed() * 10 > requests {
            return String::new();
        }
        format!(
            "it ends connections: {} were opened for {}",
            format_count(opened as f64),
            format_plural(requests, "request")
        )
    }

    /// Describes the step against connections that the subject ends; empty if it keeps them.
    pub(crate) fn keep_connections(&self) -> String {
        match self.closed_connections().is_empty() {
            true => String::new(),
            false => "turn on keep-alive in your service: each of these requests pays for a new connection"
                .to_owned(),
        }
    }

    pub(crate) fn response_size(&self) -> String {
        let rates = &self.view.run.rates;
        record::units::format_bytes(rates.bytes_in_per_s / rates.responses_per_s.max(1e-9))
    }

    /// Formats the bits per second of the responses.
    pub(crate) fn received_bits(&self) -> String {
        record::units::format_bit_rate(self.view.run.rates.bytes_in_per_s * 8.0)
    }

    /// Formats the first URL of the load.
    pub(crate) fn url(&self) -> &str {
        let url = self.view.run.plan["requests"][0]["url"].as_str();
        url.filter(|_| !self.has_embedded_origin()).unwrap_or("URL")
    }

    /// Returns whether the target was an origin of the run itself, which ended with it.
    pub(crate) fn has_embedded_origin(&self) -> bool {
        self.view.run.plan["has_embedded_origin"] == true
    }
}

pub(crate) fn format_ns(ns: f64) -> String {
    format_duration_ns(ns.max(0.0) as u64)
}

/// Formats a number of things: whole, or with one decimal if it is small and not whole.
pub(crate) fn format_number(value: f64) -> String {
    match value {
        value if value >= 1000.0 => format_count(value),
        value if value >= 9.95 || (value - value.round()).abs() < 0.05 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// Joins the clauses of a sentence: without those that are empty, with a capital letter and a full stop.
pub(crate) fn sentence(clauses: &[String]) -> String {
    let clauses: Vec<&str> = clauses.iter().map(String::as_str).filter(|clause| !clause.is_empty()).collect();
    let text = clauses.join("; ");
    let mut letters = text.chars();
    match letters.next() {
        None => String::new(),
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
    }
}
