//! Recorder of one core: every latency and every count, without a lock and without sampling.
//!
//! A request belongs to the second in which it was *due*. The last partial second can then be left
//! out of the percentiles without losing the slow requests of the seconds before. At the end of
//! each second the core hands the book to the collector and opens a fresh one. The core never adds
//! histograms.

mod breakdown;
mod checks;
mod counters;
mod histograms;
mod http2;
mod live;
mod tls;

use std::sync::mpsc;

use record::run::UserTransport;
use record::units::SECOND_NS;
use rt::tls::HandshakeKind;

pub use breakdown::{Breakdown, COUNTED_REQUESTS_MAX, RequestOutcomes, StageOutcomes};
pub use checks::{CHECK_SAMPLES_MAX, CheckSample};
pub use counters::{BackOffCounters, Counters};
pub use histograms::{HistogramPair, HistogramSet, PhaseHistograms};
pub(crate) use http2::error_code_name;
pub use http2::{ERROR_CODES, GRPC_STATUSES, Http2Counters};
pub use live::{LiveCounters, LiveHistograms};
pub use tls::{NegotiatedTls, TlsCounters};

use crate::failure::{Failure, FailureKind, RequestPhase};
use crate::in_flight::InFlightIntegral;
use crate::malformation::Malformation;
use crate::plan::CheckKind;
use crate::stall::{StallCounters, StallDetector};

/// Lag above which a send counts as late, in ns (reference: 1 ms is the bound of the validity).
pub const LATE_NS: u64 = 1_000_000;

/// One second of a core, on its way to the collector.
#[derive(Debug)]
pub struct CoreSnapshot {
    pub core: usize,
    /// Second of the run, from 0.
    pub second: u64,
    pub histograms: Box<HistogramSet>,
    /// Counts since the start.
    pub counters: Counters,
    pub open_connections: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests waiting for a connection now.
    pub pending: u64,
    /// Requests in flight times ns, since the start of the window.
    pub area_ns: u128,
    /// The same since the end of the load.
    pub drain_area_ns: u128,
    /// Time that failed requests of the window spent in flight, in ns.
    pub failed_area_ns: u128,
    /// End of the latest request, in ns after the start.
    pub done_ns: u64,
    /// End of this core's load, in ns after the start; in the last snapshot only.
    pub ended_ns: Option<u64>,
    /// Reason for the latest failed connection; in the last snapshot only.
    pub connect_failure: Option<(FailureKind, String)>,
    /// Counts of TCP in user space, if the load has it; in the last snapshot only.
    pub transport: Option<Box<UserTransport>>,
    /// Samples of responses that failed a check; in the last snapshot only.
    pub check_samples: Vec<CheckSample>,
    /// Outcomes by stage and by request; in the last snapshot only.
    pub breakdown: Breakdown,
    /// Latencies of WebSocket and of event streams; in the last snapshot only.
    pub live: Option<Box<LiveHistograms>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTiming {
    pub(crate) due_ns: u64,
    /// Time when a client took it.
    pub(crate) begun_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// True if it waited for a free connection, not for the generator, between its due time and `begun_ns`; also if that
    /// is not known.
    pub(crate) queued: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectTiming {
    pub(crate) begun_ns: u64,
    pub(crate) connected_ns: u64,
    /// End of the TLS handshake; `None` without TLS.
    pub(crate) handshake_end_ns: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Recorder {
    core: usize,
    start_ns: u64,
    window_from_ns: u64,
    second_start_ns: u64,
    /// End of the open second; never, once the load has ended.
    roll_at_ns: u64,
    ended_ns: Option<u64>,
    /// End of the latest request.
    done_ns: u64,
    histograms: Box<HistogramSet>,
    spare_histograms: mpsc::Receiver<Box<HistogramSet>>,
    pub(crate) counters: Counters,
    /// Lag of the latest read, if its socket has timestamps.
    receive_lag_ns: Option<u64>,
    in_flight_integral: InFlightIntegral,
    stall_detector: StallDetector,
    /// Time that failed requests of the window spent in flight.
    failed_area_ns: u128,
    /// Requests that have been written and have not ended.
    in_flight: u64,
    pub(crate) open_connections: u64,
    pub(crate) pending: u64,
    check_samples: Vec<CheckSample>,
    breakdown: Breakdown,
    /// Reason of the latest parse error; see [`Recorder::note_malformation`].
    malformation: Malformation,
    live: Option<Box<LiveHistograms>>,
}

impl Recorder {
    pub(crate) fn new(core: usize, spare_histograms: mpsc::Receiver<Box<HistogramSet>>) -> Self {
        Self {
            core,
            start_ns: 0,
            window_from_ns: 0,
            second_start_ns: 0,
            roll_at_ns: u64::MAX,
            ended_ns: None,
            done_ns: 0,
            histograms: Box::default(),
            spare_histograms,
            counters: Counters::default(),
            receive_lag_ns: None,
            in_flight_integral: InFlightIntegral::new(0, u64::MAX),
            stall_detector: StallDetector::new(u64::MAX),
            failed_area_ns: 0,
            in_flight: 0,
            open_connections: 0,
            pending: 0,
            check_samples: Vec::new(),
            breakdown: Breakdown::default(),
            malformation: Malformation::Excess,
            live: None,
        }
    }

    /// Notes why the bytes of a server were refused. The failures of kind `parse` that follow have this reason:
    /// the core records them before it reads other bytes.
    #[cold]
    pub(crate) fn note_malformation(&mut self, reason: Malformation) {
        self.malformation = reason;
    }

    /// Returns the reason of the latest parse error.
    pub(crate) fn malformation(&self) -> Malformation {
        self.malformation
    }

    /// Returns the latencies of WebSocket and of event streams.
    pub(crate) fn live_histograms(&mut self) -> &mut LiveHistograms {
        self.live.get_or_insert_default()
    }

    /// Starts the run; the window begins `window_offset_ns` later. `breakdown` has the parts of the plan.
    pub(crate) fn start(&mut self, start_ns: u64, window_offset_ns: u64, breakdown: Breakdown) {
        self.start_ns = start_ns;
        self.breakdown = breakdown;
        self.second_start_ns = start_ns;
        self.roll_at_ns = start_ns + SECOND_NS;
        self.window_from_ns = start_ns + window_offset_ns;
        self.in_flight_integral = InFlightIntegral::new(self.window_from_ns, u64::MAX);
        self.stall_detector = StallDetector::new(start_ns);
    }

    /// Records that the core will run at `at_ns` at the latest.
    pub(crate) fn expect_run(&mut self, at_ns: u64) {
        self.stall_detector.expect_run(at_ns);
    }

    pub(crate) fn is_running(&self, at_ns: u64) -> bool {
        self.start_ns > 0 && at_ns >= self.start_ns && self.ended_ns.is_none()
    }

    #[inline]
    fn detect_stall(&mut self, now_ns: u64) {
        if let Some(stall) = self.stall_detector.record_run(now_ns)
            && stall.to_ns > self.window_from_ns
        {
            let length_ns = stall.length_ns();
            self.counters.stalls.add(&StallCounters {
                count: 1,
                total_ns: length_ns,
                longest_ns: length_ns,
                ..StallCounters::default()
            });
        }
    }

    /// Returns whether the last stall delayed the response to a request that was begun before its end.
    #[inline]
    pub(crate) fn has_stall_delayed(&self, begun_ns: u64, answered_ns: u64) -> bool {
        self.stall_detector.has_delayed(begun_ns, answered_ns)
    }

    /// Records that a due request is taken or dropped, and counts those of a stall.
    #[inline]
    pub(crate) fn count_if_stalled(&mut self, due_ns: u64) {
        let stalled = due_ns >= self.window_from_ns && self.stall_detector.contains_due(due_ns);
        self.counters.stalls.requests_due += u64::from(stalled);
    }

    /// Ends the load. No second is closed any more; the drain follows.
    pub(crate) fn end_load(&mut self, now_ns: u64) {
        if self.ended_ns.is_none() {
            self.ended_ns = Some(now_ns);
            self.roll_at_ns = u64::MAX;
            self.in_flight_integral.close(now_ns);
        }
    }

    /// Records an opened connection, for a request due at `due_ns`.
    pub(crate) fn record_connect(
        &mut self,
        due_ns: u64,
        timing: ConnectTiming,
        handshake: Option<HandshakeKind>,
    ) {
        self.counters.opened += 1;
        self.open_connections += 1;
        let ConnectTiming { begun_ns, connected_ns, handshake_end_ns } = timing;
        if let Some(phases) = self.phases_for(due_ns) {
            phases.connect.service.record(connected_ns.saturating_sub(begun_ns));
            phases.connect.response.record(connected_ns.saturating_sub(due_ns));
            if let Some(end_ns) = handshake_end_ns {
                phases.tls_handshake.service.record(end_ns.saturating_sub(connected_ns));
                phases.tls_handshake.response.record(end_ns.saturating_sub(due_ns));
                let handshake_histogram = match handshake {
                    Some(HandshakeKind::Resumed) => &mut phases.tls_resumed,
                    Some(HandshakeKind::Full) | None => &mut phases.tls_full,
                };
                handshake_histogram.record(end_ns.saturating_sub(connected_ns));
            }
        }
    }

    #[inline]
    pub(crate) fn record_sent(&mut self, due_ns: u64, sent_ns: u64) {
        self.counters.requests += 1;
        self.in_flight += 1;
        if due_ns >= self.window_from_ns {
            self.in_flight_integral.begin(sent_ns);
        }
    }

    #[inline]
    fn end_in_flight(&mut self, due_ns: u64, now_ns: u64) {
        self.in_flight -= 1;
        // Only the requests of the percentiles: a request that was due in the ramp and is still in
        // flight in the window has no latency to compare with.
        if due_ns >= self.window_from_ns {
            self.in_flight_integral.end(now_ns);
        }
    }

    /// Counts received bytes. The responses that end with them arrived `lag_ns` before they were read, if that is known.
    #[inline]
    pub(crate) fn record_received(&mut self, bytes: usize, lag_ns: Option<u64>) {
        self.counters.bytes_in += bytes as u64;
        self.receive_lag_ns = lag_ns;
    }

    #[inline]
    pub(crate) fn record_good_response(&mut self, timing: RequestTiming) {
        self.counters.responses += 1;
        self.end_in_flight(timing.due_ns, timing.last_ns);
        self.done_ns = timing.last_ns;
        let RequestTiming { due_ns, sent_ns, first_ns, last_ns, .. } = timing;
        let response_ns = last_ns.saturating_sub(due_ns);
        self.breakdown.record_good(
            due_ns.saturating_sub(self.start_ns),
            last_ns.saturating_sub(sent_ns),
            response_ns,
        );
        let delayed =
            due_ns >= self.window_from_ns && self.stall_detector.has_only_delayed(due_ns, sent_ns, last_ns);
        self.counters.stalls.requests_in_flight += u64::from(delayed);
        match self.phases_for(due_ns) {
            Some(phases) => {
                phases.first_byte.service.record(first_ns.saturating_sub(sent_ns));
                phases.first_byte.response.record(first_ns.saturating_sub(due_ns));
                phases.last_byte.service.record(last_ns.saturating_sub(sent_ns));
                phases.last_byte.response.record(response_ns);
                if let Some(receive_lag_ns) = self.receive_lag_ns {
                    let send_lag_ns = if timing.queued { 0 } else { timing.begun_ns.saturating_sub(due_ns) };
                    self.histograms
                        .undelayed
                        .record(response_ns.saturating_sub(receive_lag_ns + send_lag_ns));
                }
            }
            None => {
                self.counters.excluded_ramp += 1;
                self.histograms.ramp_latency.record(response_ns);
            }
        }
    }

    /// Records a complete bad response. One that fails a check counts as an error of that kind instead
    /// of a response.
    pub(crate) fn record_bad_response(&mut self, timing: RequestTiming, failed_check: Option<FailureKind>) {
        let RequestTiming { due_ns, sent_ns, last_ns, .. } = timing;
        self.end_in_flight_without_good_response(due_ns, sent_ns, last_ns);
        let response_ns = last_ns.saturating_sub(due_ns);
        match self.phases_for(due_ns) {
            Some(phases) => {
                phases.bad.service.record(last_ns.saturating_sub(sent_ns));
                phases.bad.response.record(response_ns);
            }
            None => {
                self.counters.excluded_ramp += 1;
                self.histograms.ramp_latency.record(response_ns);
            }
        }
        if let Some(kind) = failed_check {
            self.count_failures(due_ns, 1, Failure { kind, phase: RequestPhase::Body }, last_ns);
        } else {
            self.done_ns = last_ns;
            self.counters.responses += 1;
            self.counters.bad_status += 1;
            self.count_not_good(due_ns, 1);
        }
    }

    /// Counts the response to request `index` of the plan.
    #[inline]
    pub(crate) fn count_response_to(&mut self, index: usize, is_good: bool, failed_check: Option<CheckKind>) {
        self.breakdown.count_response(index, is_good, failed_check);
    }

    /// Counts a failed check, and keeps the first of each.
    #[cold]
    pub(crate) fn record_failed_check(&mut self, check: CheckKind, sample: impl FnOnce() -> CheckSample) {
        let count = &mut self.counters.failed_checks[check as usize];
        *count += 1;
        if *count <= CHECK_SAMPLES_MAX as u64 {
            let sample = sample();
            self.check_samples
                .push(CheckSample { at_ns: sample.at_ns.saturating_sub(self.start_ns), ..sample });
        }
    }

    /// Records the failure of a request that was written at `sent_ns`.
    pub(crate) fn record_failed_exchange(
        &mut self,
        due_ns: u64,
        sent_ns: u64,
        failure: Failure,
        now_ns: u64,
    ) {
        self.end_in_flight_without_good_response(due_ns, sent_ns, now_ns);
        self.count_failures(due_ns, 1, failure, now_ns);
    }

    /// Records that `count` requests about `due_ns` became due and were dropped because the queue was full, or
    /// the run is cut short. The core noticed them `lag_ns` late.
    pub(crate) fn record_dropped(&mut self, due_ns: u64, count: u64, lag_ns: u64) {
        self.record_due(due_ns, count);
        self.counters.dropped += count;
        self.count_not_good(due_ns, count);
        self.histograms.lag.record_count(lag_ns, count);
        self.counters.late_sends += if lag_ns > LATE_NS { count } else { 0 };
    }

    /// Records the time in flight of a request that the main latencies leave out.
    fn end_in_flight_without_good_response(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        self.end_in_flight(due_ns, now_ns);
        if due_ns >= self.window_from_ns {
            self.failed_area_ns += u128::from(now_ns.saturating_sub(sent_ns));
        }
    }

    fn count_not_good(&mut self, due_ns: u64, count: u64) {
        self.breakdown.count_not_good(due_ns.saturating_sub(self.start_ns), count);
        if let Some(phases) = self.phases_for(due_ns) {
            phases.not_good += count;
        }
    }

    /// Records the failure of a request before it was written.
    pub(crate) fn record_not_sent(&mut self, due_ns: u64, failure: Failure, now_ns: u64) {
        self.record_all_not_sent(due_ns, 1, failure, now_ns);
    }

    /// Records the failure of `count` requests before they were written; the first was due at `due_ns`, the
    /// others in the same slice of time.
    pub(crate) fn record_all_not_sent(&mut self, due_ns: u64, count: u64, failure: Failure, now_ns: u64) {
        self.counters.requests += count;
        self.count_failures(due_ns, count, failure, now_ns);
    }

    fn count_failures(&mut self, due_ns: u64, count: u64, failure: Failure, now_ns: u64) {
        self.done_ns = now_ns;
        self.counters.errors[failure.kind as usize] += count;
        self.count_not_good(due_ns, count);
        let age_ns = now_ns.saturating_sub(due_ns);
        match failure.kind {
            FailureKind::Timeout => {
                self.counters.timeouts[failure.phase as usize] += count;
                let (young, old) = self.counters.timeout_age_ns.unwrap_or((age_ns, age_ns));
                self.counters.timeout_age_ns = Some((young.min(age_ns), old.max(age_ns)));
            }
            FailureKind::Unfinished => {
                let oldest = &mut self.counters.unfinished_age_ns_max;
                *oldest = (*oldest).max(age_ns);
            }
            FailureKind::Parse => self.counters.parse_errors.add(self.malformation, count),
            _ => {}
        }
    }

    /// Records that requests of an open loop became due.
    #[inline]
    pub(crate) fn record_due(&mut self, due_ns: u64, count: u64) {
        self.counters.due += count;
        if due_ns >= self.window_from_ns {
            if self.stall_detector.contains_due(due_ns) {
                self.counters.stalls.requests_due += count;
            }
            match due_ns < self.second_start_ns {
                false => self.histograms.due += count,
                true => self.histograms.due_late += count,
            }
        }
    }

    /// Records the time that a request waited because of a back-off, which no other client ended.
    #[inline]
    pub(crate) fn record_back_off(&mut self, waited_ns: u64) {
        if waited_ns > 0 {
            let back_off = &mut self.counters.back_off;
            back_off.requests += 1;
            back_off.total_ns += waited_ns;
            back_off.longest_ns = back_off.longest_ns.max(waited_ns);
        }
    }

    /// Records a lag of the generator itself.
    #[inline]
    pub(crate) fn record_lag(&mut self, lag_ns: u64) {
        self.histograms.lag.record(lag_ns);
        if lag_ns > LATE_NS {
            self.counters.late_sends += 1;
        }
    }

    #[inline]
    fn phases_for(&mut self, due_ns: u64) -> Option<&mut PhaseHistograms> {
        if due_ns >= self.second_start_ns && due_ns >= self.window_from_ns {
            Some(&mut self.histograms.current)
        } else if due_ns >= self.window_from_ns {
            Some(&mut self.histograms.late)
        } else {
            None
        }
    }

    /// Returns the snapshot of the second that has ended at `now_ns`, if one has. Call it before
    /// recording anything that happened at `now_ns`.
    #[inline]
    pub(crate) fn roll(&mut self, now_ns: u64) -> Option<CoreSnapshot> {
        self.detect_stall(now_ns);
        if now_ns < self.roll_at_ns { None } else { Some(self.roll_second(now_ns)) }
    }

    fn roll_second(&mut self, now_ns: u64) -> CoreSnapshot {
        let snapshot = self.snapshot();
        // A core that was stopped for some seconds continues with the second in which it woke up.
        let seconds = (now_ns - self.second_start_ns) / SECOND_NS;
        self.second_start_ns += seconds * SECOND_NS;
        self.roll_at_ns = self.second_start_ns + SECOND_NS;
        snapshot
    }

    /// Returns the last snapshot, after the drain.
    pub(crate) fn finish(mut self, now_ns: u64) -> CoreSnapshot {
        self.end_load(now_ns);
        let check_samples = std::mem::take(&mut self.check_samples);
        let breakdown = std::mem::take(&mut self.breakdown);
        let live = self.live.take();
        CoreSnapshot { check_samples, breakdown, live, ..self.snapshot() }
    }

    fn snapshot(&mut self) -> CoreSnapshot {
        let fresh = self.spare_histograms.try_recv().unwrap_or_default();
        CoreSnapshot {
            core: self.core,
            second: (self.second_start_ns - self.start_ns) / SECOND_NS,
            histograms: std::mem::replace(&mut self.histograms, fresh),
            counters: self.counters.clone(),
            open_connections: self.open_connections,
            in_flight: self.in_flight,
            pending: self.pending,
            area_ns: self.in_flight_integral.area_ns(),
            drain_area_ns: self.in_flight_integral.after_ns(),
            failed_area_ns: self.failed_area_ns,
            done_ns: self.done_ns.saturating_sub(self.start_ns),
            ended_ns: self.ended_ns.map(|ended_ns| ended_ns.saturating_sub(self.start_ns)),
            connect_failure: None,
            transport: None,
            check_samples: Vec::new(),
            breakdown: Breakdown::default(),
            live: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        let mut recorder = Recorder::new(0, mpsc::channel().1);
        recorder.start(1_000, SECOND_NS, Breakdown::default());
        recorder
    }

    fn timing_of(due_ns: u64, last_ns: u64) -> RequestTiming {
        RequestTiming {
            due_ns,
            begun_ns: due_ns,
            sent_ns: due_ns + 10,
            first_ns: last_ns,
            last_ns,
            queued: false,
        }
    }

    fn record_exchange(recorder: &mut Recorder, timing: RequestTiming) {
        recorder.record_sent(timing.due_ns, timing.sent_ns);
        recorder.record_good_response(timing);
    }

    #[test]
    fn a_request_belongs_to_the_second_it_was_due_in() {
        let mut recorder = recorder();
        record_exchange(&mut recorder, timing_of(1_500, 2_000));
        let first = recorder.roll(1_000 + SECOND_NS).unwrap();
        assert_eq!((first.second, first.histograms.ramp_latency.count()), (0, 1));
        record_exchange(&mut recorder, timing_of(SECOND_NS + 2_000, SECOND_NS + 3_000));
        assert!(recorder.roll(2 * SECOND_NS).is_none());
        let second = recorder.roll(1_000 + 2 * SECOND_NS).unwrap();
        assert_eq!(second.histograms.current.last_byte.response.count(), 1);
        record_exchange(&mut recorder, timing_of(2 * SECOND_NS, 3 * SECOND_NS));
        record_exchange(&mut recorder, timing_of(2 * SECOND_NS + 1_000, 3 * SECOND_NS));
        recorder.end_load(2 * SECOND_NS + 5_000);
        assert!(recorder.roll(9 * SECOND_NS).is_none(), "the drain rolls no second");
        let last = recorder.finish(9 * SECOND_NS);
        assert_eq!(last.histograms.late.last_byte.response.count(), 1);
        assert_eq!(last.histograms.current.last_byte.response.count(), 1);
        assert_eq!(last.ended_ns, Some(2 * SECOND_NS + 4_000));
    }

    #[test]
    fn the_own_part_of_the_generator_is_known_of_reads_with_timestamps() {
        let mut recorder = recorder();
        let due_ns = SECOND_NS + 2_000;
        // Taken 300 ns after it was due, read 5,000 ns after its response arrived.
        let timing = RequestTiming { begun_ns: due_ns + 300, ..timing_of(due_ns, due_ns + 20_300) };
        for (lag_ns, queued) in [(None, false), (Some(5_000), false), (Some(5_000), true)] {
            recorder.record_received(100, lag_ns);
            record_exchange(&mut recorder, RequestTiming { queued, ..timing });
        }
        let last = recorder.finish(2 * SECOND_NS);
        assert_eq!(last.counters.bytes_in, 300);
        let undelayed = last.histograms.undelayed;
        assert_eq!(undelayed.count(), 2, "without a timestamp nothing is known");
        let within = |ns: u64, about: u64| ns.abs_diff(about) < about / 50;
        assert!(within(undelayed.value_at_quantile(0.5), 15_000) && within(undelayed.max_ns(), 15_300));
    }

    #[test]
    fn time_outs_keep_their_phase_and_their_age() {
        let mut recorder = recorder();
        let failure = Failure { kind: FailureKind::Timeout, phase: RequestPhase::Queue };
        recorder.record_not_sent(2_000, failure, 7_000);
        recorder.record_not_sent(2_000, failure, 9_000);
        assert_eq!(recorder.counters.timeouts, [2, 0, 0, 0, 0]);
        assert_eq!(recorder.counters.timeout_age_ns, Some((5_000, 7_000)));
        assert_eq!(recorder.counters.errors[FailureKind::Timeout as usize], 2);
    }

    #[test]
    fn a_bad_response_has_latencies_of_its_own_and_counts_once() {
        let mut recorder = recorder();
        let due_ns = SECOND_NS + 2_000;
        record_exchange(&mut recorder, timing_of(due_ns, due_ns + 1_000));
        for failed_check in [None, Some(FailureKind::Check)] {
            recorder.record_sent(due_ns, due_ns);
            recorder.record_bad_response(timing_of(due_ns, due_ns + 50), failed_check);
        }
        recorder.record_dropped(due_ns, 1, 0);
        let last = recorder.finish(2 * SECOND_NS);
        let (latencies, counters) = (last.histograms.current, last.counters);
        assert_eq!((latencies.last_byte.service.count(), latencies.bad.service.count()), (1, 2));
        assert_eq!((latencies.bad.response.max_ns(), latencies.not_good), (50, 3));
        assert_eq!((counters.good(), counters.bad(), counters.requests), (1, 2, 3));
        assert_eq!((counters.responses, counters.errors[FailureKind::Check as usize]), (2, 1));
        assert_eq!(last.failed_area_ns, 80, "Little's law counts the time of both");
    }

    #[test]
    fn only_requests_of_the_window_count_as_in_flight_for_littles_law() {
        let mut recorder = recorder();
        let window_ns = SECOND_NS + 1_000;
        recorder.record_sent(2_000, 2_000);
        recorder.record_sent(window_ns, window_ns);
        recorder.record_good_response(RequestTiming {
            first_ns: window_ns + 70,
            ..timing_of(2_000, window_ns + 70)
        });
        recorder.record_good_response(timing_of(window_ns, window_ns + 40));
        assert_eq!(recorder.finish(2 * SECOND_NS).area_ns, 40);
    }

    #[test]
    fn a_handshake_is_measured_from_the_connect_and_from_the_due_time() {
        let mut recorder = recorder();
        let due_ns = 2 * SECOND_NS;
        let plain = ConnectTiming { begun_ns: due_ns + 5, connected_ns: due_ns + 15, handshake_end_ns: None };
        recorder.record_connect(due_ns, plain, None);
        let tls = ConnectTiming { handshake_end_ns: Some(due_ns + 45), ..plain };
        recorder.record_connect(due_ns, tls, Some(HandshakeKind::Resumed));
        let last = recorder.finish(3 * SECOND_NS);
        let phases = last.histograms.current;
        assert_eq!((phases.connect.service.count(), phases.connect.service.max_ns()), (2, 10));
        let HistogramPair { service, response } = phases.tls_handshake;
        assert_eq!((service.count(), service.max_ns(), response.max_ns()), (1, 30, 45));
        assert_eq!((phases.tls_full.count(), phases.tls_resumed.max_ns()), (0, 30));
        assert_eq!(last.counters.opened, 2);
    }

    #[test]
    fn a_core_that_was_stopped_skips_the_seconds_it_missed() {
        let mut recorder = recorder();
        assert_eq!(recorder.roll(1_000 + 3 * SECOND_NS + 7).unwrap().second, 0);
        assert!(recorder.roll(1_000 + 4 * SECOND_NS - 1).is_none());
        assert_eq!(recorder.roll(1_000 + 4 * SECOND_NS).unwrap().second, 3);
    }
}
