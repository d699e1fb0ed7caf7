//! Counters of one core since the start of its run, and their sums over cores and seconds.

use record::run::Interval;
use record::sorted::CollectSorted;

use super::{Http2Counters, LiveCounters, TlsCounters};
use crate::failure::{FAILURE_KINDS, FailureKind, REQUEST_PHASES};
use crate::malformation::ParseErrors;
use crate::plan::CHECK_NAMES;
use crate::stall::StallCounters;

/// Counters since the start of the run.
#[derive(Clone, Debug)]
pub struct Counters {
    pub requests: u64,
    pub sent: u64,
    pub responses: u64,
    /// Responses by status; those below 100 or above 999 do not pass the parser.
    pub status: Box<[u64]>,
    pub errors: [u64; FAILURE_KINDS.len()],
    pub parse_errors: ParseErrors,
    pub timeouts: [u64; REQUEST_PHASES.len()],
    pub timeout_age_ns: Option<(u64, u64)>,
    /// Failed checks, by kind; their sum is the number of errors of kind `check`.
    pub failed_checks: [u64; CHECK_NAMES.len()],
    pub dropped: u64,
    pub unfinished_age_ns_max: u64,
    pub bytes_in: u64,
    pub body_bytes: u64,
    pub bytes_out: u64,
    pub obtained: u64,
    pub opened: u64,
    pub connect_failed: u64,
    pub lost: u64,
    pub closed_idle: u64,
    /// Pipelined requests that were sent again, because the server ended their connection before them.
    pub resent: u64,
    pub excess_bytes: u64,
    pub late_sends: u64,
    pub excluded_ramp: u64,
    /// Requests that became due, taken or dropped.
    pub due: u64,
    /// Bad responses that are in `responses`: with an unexpected status of 400 or more.
    pub bad_status: u64,
    pub stalls: StallCounters,
    pub back_off: BackOffCounters,
    pub tls: TlsCounters,
    pub http2: Http2Counters,
    pub live: LiveCounters,
}

/// Requests of an open loop that waited because their connection paused after a failed connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackOffCounters {
    pub requests: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: 0,
            sent: 0,
            responses: 0,
            status: vec![0; 1000].into_boxed_slice(),
            errors: [0; FAILURE_KINDS.len()],
            parse_errors: ParseErrors::default(),
            timeouts: [0; REQUEST_PHASES.len()],
            timeout_age_ns: None,
            failed_checks: [0; CHECK_NAMES.len()],
            dropped: 0,
            unfinished_age_ns_max: 0,
            bytes_in: 0,
            body_bytes: 0,
            bytes_out: 0,
            obtained: 0,
            opened: 0,
            connect_failed: 0,
            lost: 0,
            closed_idle: 0,
            resent: 0,
            excess_bytes: 0,
            late_sends: 0,
            excluded_ramp: 0,
            due: 0,
            bad_status: 0,
            stalls: StallCounters::default(),
            back_off: BackOffCounters::default(),
            tls: TlsCounters::default(),
            http2: Http2Counters::default(),
            live: LiveCounters::default(),
        }
    }
}

impl Counters {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.requests += other.requests;
        self.sent += other.sent;
        self.responses += other.responses;
        add_each(&mut self.status, &other.status);
        add_each(&mut self.errors, &other.errors);
        self.parse_errors.add_all(&other.parse_errors);
        add_each(&mut self.timeouts, &other.timeouts);
        self.timeout_age_ns = match (self.timeout_age_ns, other.timeout_age_ns) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        add_each(&mut self.failed_checks, &other.failed_checks);
        self.dropped += other.dropped;
        self.unfinished_age_ns_max = self.unfinished_age_ns_max.max(other.unfinished_age_ns_max);
        self.bytes_in += other.bytes_in;
        self.body_bytes += other.body_bytes;
        self.bytes_out += other.bytes_out;
        self.obtained += other.obtained;
        self.opened += other.opened;
        self.connect_failed += other.connect_failed;
        self.lost += other.lost;
        self.closed_idle += other.closed_idle;
        self.resent += other.resent;
        self.excess_bytes += other.excess_bytes;
        self.late_sends += other.late_sends;
        self.excluded_ramp += other.excluded_ramp;
        self.due += other.due;
        self.bad_status += other.bad_status;
        self.stalls.add(&other.stalls);
        self.tls.add(&other.tls);
        self.http2.add(&other.http2);
        self.live.add(&other.live);
        self.back_off.requests += other.back_off.requests;
        self.back_off.total_ns += other.back_off.total_ns;
        self.back_off.longest_ns = self.back_off.longest_ns.max(other.back_off.longest_ns);
        self
    }

    pub fn good(&self) -> u64 {
        self.responses - self.bad_status
    }

    /// Returns the number of complete responses that are not good.
    pub fn bad(&self) -> u64 {
        self.bad_status
            + self.errors[FailureKind::Check as usize]
            + self.errors[FailureKind::GrpcStatus as usize]
            + self.errors[FailureKind::Altered as usize]
    }

    /// Returns the number of requests that were due and have no outcome yet.
    pub fn backlog(&self) -> u64 {
        let finished = self.dropped + self.responses + self.errors.iter().sum::<u64>();
        self.due.saturating_sub(finished)
    }

    /// Returns the changes since `before`, as an interval without times and latencies.
    pub fn since(&self, before: &Self) -> Interval {
        let kinds = FAILURE_KINDS.iter().zip(self.errors.iter().zip(&before.errors));
        let errors = kinds
            .filter(|(_, (now, before))| now > before)
            .map(|((_, name, _), (now, before))| ((*name).to_owned(), now - before));
        let parse_errors = self
            .parse_errors
            .iter()
            .map(|(reason, now)| (reason.code(), now - before.parse_errors.count(reason)));
        let class = |class: usize| {
            let codes = class * 100..(class + 1) * 100;
            let count = |counters: &Self| counters.status[codes.clone()].iter().sum::<u64>();
            count(self) - count(before)
        };
        Interval {
            connections_opened: self.opened - before.opened,
            responses: self.responses - before.responses,
            good: Some(self.good() - before.good()),
            errors: errors.collect_map(),
            parse_errors: parse_errors.filter(|(_, count)| *count > 0).collect_map(),
            status_classes: std::array::from_fn(|index| class(index + 1)),
            bytes_in: self.bytes_in - before.bytes_in,
            bytes_out: self.bytes_out - before.bytes_out,
            dropped: self.dropped - before.dropped,
            stalled_ns: self.stalls.total_ns - before.stalls.total_ns,
            ..Interval::default()
        }
    }
}

fn add_each(sum: &mut [u64], other: &[u64]) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}
