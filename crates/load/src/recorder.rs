//! What one core saw: every latency and every count, without a lock and without sampling.
//!
//! A request belongs to the second in which it was *due*, so that the last partial second can be
//! left out of the percentiles without losing the slow requests of the seconds before. Each second
//! the book is handed to the collector and a fresh one is opened; the core never adds histograms.

mod counters;

use std::sync::mpsc;

use record::histogram::Latencies;
use record::units::SECOND_NS;

pub use counters::{BackOff, Counters};

use crate::failure::{Failure, Kind, Phase};
use crate::flight::FlightArea;
use crate::stall::{StallDetector, Stalls};

/// A lag beyond this counts as late, in ns (reference: 1 ms is the bound of the verdict).
pub const LATE_NS: u64 = 1_000_000;

/// Service and response latency of one phase.
#[derive(Clone, Debug, Default)]
pub struct Both {
    /// From the send.
    pub service: Latencies,
    /// From the due time.
    pub response: Latencies,
}

/// All latencies of the requests of one class: of good responses, but for `bad`.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    /// Until the connection stood.
    pub connect: Both,
    /// Until the first byte of the response.
    pub first_byte: Both,
    /// Until the last byte.
    pub last_byte: Both,
    /// Until the last byte of bad responses.
    pub bad: Both,
    /// Requests without a good response: bad responses, failures and dropped requests.
    pub not_good: u64,
}

impl Both {
    fn add(&mut self, other: &Self) {
        self.service.add(&other.service);
        self.response.add(&other.response);
    }

    fn clear(&mut self) {
        self.service.clear();
        self.response.clear();
    }
}

impl Phases {
    /// Adds another's latencies, count by count.
    pub fn add(&mut self, other: &Self) {
        self.connect.add(&other.connect);
        self.first_byte.add(&other.first_byte);
        self.last_byte.add(&other.last_byte);
        self.bad.add(&other.bad);
        self.not_good += other.not_good;
    }

    fn clear(&mut self) {
        self.connect.clear();
        self.first_byte.clear();
        self.last_byte.clear();
        self.bad.clear();
        self.not_good = 0;
    }
}

/// The latencies of one second.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// Requests due in this second.
    pub current: Phases,
    /// Requests due in an earlier one, within the window.
    pub late: Phases,
    /// Response latency of requests due before the window; shown live, in no percentile.
    pub outside: Latencies,
    /// The generator's own lag.
    pub lag: Latencies,
    /// Requests of an open loop that were due in this second.
    pub due: u64,
    /// Requests of an open loop that were due in an earlier one, within the window.
    pub due_late: u64,
}

impl Book {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.current.clear();
        self.late.clear();
        self.outside.clear();
        self.lag.clear();
        (self.due, self.due_late) = (0, 0);
    }
}

/// One core's second, on its way to the collector.
#[derive(Debug)]
pub struct Snapshot {
    /// Which core.
    pub core: usize,
    /// Which second of the run, from 0.
    pub second: u64,
    /// Its latencies.
    pub book: Box<Book>,
    /// Counts since the start.
    pub counters: Counters,
    /// Connections open now.
    pub open: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Requests waiting for a connection now.
    pub waiting: u64,
    /// Requests in flight times ns, since the window began.
    pub area_ns: u128,
    /// The same from the end of the load on.
    pub drained_ns: u128,
    /// Time that requests of the window spent in flight before they failed, in ns.
    pub lost_ns: u128,
    /// When the last request ended, in ns after the start.
    pub done_ns: u64,
    /// When this core's load ended, in ns after the start; the last snapshot only.
    pub ended_ns: Option<u64>,
}

/// The times of one request, all of one clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// Records for one core.
#[derive(Debug)]
pub(crate) struct Recorder {
    core: usize,
    start_ns: u64,
    window_from_ns: u64,
    /// Start of the second that is open.
    second_ns: u64,
    /// When it is over; never, once the load has ended.
    roll_at_ns: u64,
    ended_ns: Option<u64>,
    /// When the last request ended.
    done_ns: u64,
    book: Box<Book>,
    spares: mpsc::Receiver<Box<Book>>,
    pub(crate) counters: Counters,
    flight: FlightArea,
    stall: StallDetector,
    /// Time that requests of the window spent in flight before they failed.
    lost_ns: u128,
    /// Requests that have been written and are not over.
    in_flight: u64,
    pub(crate) open: u64,
    pub(crate) waiting: u64,
}

impl Recorder {
    pub(crate) fn new(core: usize, spares: mpsc::Receiver<Box<Book>>) -> Self {
        Self {
            core,
            start_ns: 0,
            window_from_ns: 0,
            second_ns: 0,
            roll_at_ns: u64::MAX,
            ended_ns: None,
            done_ns: 0,
            book: Box::default(),
            spares,
            counters: Counters::default(),
            flight: FlightArea::new(0, u64::MAX),
            stall: StallDetector::new(u64::MAX),
            lost_ns: 0,
            in_flight: 0,
            open: 0,
            waiting: 0,
        }
    }

    /// The run starts; the window begins `window_after_ns` later.
    pub(crate) fn start(&mut self, start_ns: u64, window_after_ns: u64) {
        self.start_ns = start_ns;
        self.second_ns = start_ns;
        self.roll_at_ns = start_ns + SECOND_NS;
        self.window_from_ns = start_ns + window_after_ns;
        self.flight = FlightArea::new(self.window_from_ns, u64::MAX);
        self.stall = StallDetector::new(start_ns);
    }

    /// The core runs at `at_ns` at the latest.
    pub(crate) fn expect(&mut self, at_ns: u64) {
        self.stall.expect(at_ns);
    }

    /// Whether the load is on at `at_ns`.
    pub(crate) fn is_on(&self, at_ns: u64) -> bool {
        self.start_ns > 0 && at_ns >= self.start_ns && self.ended_ns.is_none()
    }

    #[inline]
    fn detect_stall(&mut self, now_ns: u64) {
        if let Some(stall) = self.stall.runs(now_ns)
            && stall.to_ns > self.window_from_ns
        {
            let length_ns = stall.length_ns();
            self.counters.stalls.add(&Stalls {
                count: 1,
                total_ns: length_ns,
                longest_ns: length_ns,
                ..Stalls::default()
            });
        }
    }

    /// A request became due, and the core takes it on or drops it; counts those of a stall.
    #[inline]
    pub(crate) fn taken_on(&mut self, due_ns: u64) {
        let stalled = due_ns >= self.window_from_ns && self.stall.holds_due(due_ns);
        self.counters.stalls.due += u64::from(stalled);
    }

    /// The load has ended: no second rolls any more, what comes is the drain.
    pub(crate) fn end(&mut self, now_ns: u64) {
        if self.ended_ns.is_none() {
            self.ended_ns = Some(now_ns);
            self.roll_at_ns = u64::MAX;
            self.flight.close(now_ns);
        }
    }

    /// A connection stands, for a request due at `due_ns`.
    pub(crate) fn connected(&mut self, due_ns: u64, begun_ns: u64, now_ns: u64) {
        self.counters.opened += 1;
        self.open += 1;
        if let Some(phases) = self.phases(due_ns) {
            phases.connect.service.record(now_ns.saturating_sub(begun_ns));
            phases.connect.response.record(now_ns.saturating_sub(due_ns));
        }
    }

    /// A request has been written.
    #[inline]
    pub(crate) fn sent(&mut self, due_ns: u64, sent_ns: u64) {
        self.counters.requests += 1;
        self.in_flight += 1;
        if due_ns >= self.window_from_ns {
            self.flight.begin(sent_ns);
        }
    }

    /// A request that had been written is over.
    #[inline]
    fn landed(&mut self, due_ns: u64, now_ns: u64) {
        self.in_flight -= 1;
        // Only the requests that percentiles are about: what was due in the ramp and is still in
        // flight in the window has no latency to be held against.
        if due_ns >= self.window_from_ns {
            self.flight.end(now_ns);
        }
    }

    /// A good response is complete.
    #[inline]
    pub(crate) fn answered(&mut self, sample: Sample) {
        self.counters.responses += 1;
        self.landed(sample.due_ns, sample.last_ns);
        self.done_ns = sample.last_ns;
        let Sample { due_ns, sent_ns, first_ns, last_ns } = sample;
        let response_ns = last_ns.saturating_sub(due_ns);
        let delayed = due_ns >= self.window_from_ns && self.stall.delayed(due_ns, sent_ns, last_ns);
        self.counters.stalls.answered += u64::from(delayed);
        match self.phases(due_ns) {
            Some(phases) => {
                phases.first_byte.service.record(first_ns.saturating_sub(sent_ns));
                phases.first_byte.response.record(first_ns.saturating_sub(due_ns));
                phases.last_byte.service.record(last_ns.saturating_sub(sent_ns));
                phases.last_byte.response.record(response_ns);
            }
            None => {
                self.counters.excluded_ramp += 1;
                self.book.outside.record(response_ns);
            }
        }
    }

    /// A bad response is complete. One that fails a check counts as an error instead of a response.
    pub(crate) fn answered_badly(&mut self, sample: Sample, fails_check: bool) {
        let Sample { due_ns, sent_ns, last_ns, .. } = sample;
        self.landed_without_good(due_ns, sent_ns, last_ns);
        let response_ns = last_ns.saturating_sub(due_ns);
        match self.phases(due_ns) {
            Some(phases) => {
                phases.bad.service.record(last_ns.saturating_sub(sent_ns));
                phases.bad.response.record(response_ns);
            }
            None => {
                self.counters.excluded_ramp += 1;
                self.book.outside.record(response_ns);
            }
        }
        if fails_check {
            self.failed(due_ns, Failure { kind: Kind::Check, phase: Phase::Body }, last_ns);
        } else {
            self.done_ns = last_ns;
            self.counters.responses += 1;
            self.counters.unwanted += 1;
            self.not_good(due_ns);
        }
    }

    /// A request that had been written at `sent_ns` failed.
    pub(crate) fn lost(&mut self, due_ns: u64, sent_ns: u64, failure: Failure, now_ns: u64) {
        self.landed_without_good(due_ns, sent_ns, now_ns);
        self.failed(due_ns, failure, now_ns);
    }

    /// A request became due and was not taken on, because the queue was full.
    pub(crate) fn dropped(&mut self, due_ns: u64) {
        self.counters.dropped += 1;
        self.not_good(due_ns);
    }

    /// The time in flight of a request that the main latencies leave out.
    fn landed_without_good(&mut self, due_ns: u64, sent_ns: u64, now_ns: u64) {
        self.landed(due_ns, now_ns);
        if due_ns >= self.window_from_ns {
            self.lost_ns += u128::from(now_ns.saturating_sub(sent_ns));
        }
    }

    fn not_good(&mut self, due_ns: u64) {
        if let Some(phases) = self.phases(due_ns) {
            phases.not_good += 1;
        }
    }

    /// A request failed before it was written.
    pub(crate) fn not_sent(&mut self, due_ns: u64, failure: Failure, now_ns: u64) {
        self.counters.requests += 1;
        self.failed(due_ns, failure, now_ns);
    }

    fn failed(&mut self, due_ns: u64, failure: Failure, now_ns: u64) {
        self.done_ns = now_ns;
        self.counters.errors[failure.kind as usize] += 1;
        self.not_good(due_ns);
        let age_ns = now_ns.saturating_sub(due_ns);
        match failure.kind {
            Kind::Timeout => {
                self.counters.timeouts[failure.phase as usize] += 1;
                let (young, old) = self.counters.timeout_age_ns.unwrap_or((age_ns, age_ns));
                self.counters.timeout_age_ns = Some((young.min(age_ns), old.max(age_ns)));
            }
            Kind::Unfinished => {
                let oldest = &mut self.counters.unfinished_age_ns_max;
                *oldest = (*oldest).max(age_ns);
            }
            _ => {}
        }
    }

    /// A request of an open loop became due.
    #[inline]
    pub(crate) fn became_due(&mut self, due_ns: u64) {
        self.counters.due += 1;
        self.taken_on(due_ns);
        if due_ns >= self.window_from_ns {
            let late = due_ns < self.second_ns;
            self.book.due += u64::from(!late);
            self.book.due_late += u64::from(late);
        }
    }

    /// A request waited so long because of a back-off, which no other client ended.
    #[inline]
    pub(crate) fn backed_off(&mut self, waited_ns: u64) {
        if waited_ns > 0 {
            let back_off = &mut self.counters.back_off;
            back_off.requests += 1;
            back_off.total_ns += waited_ns;
            back_off.longest_ns = back_off.longest_ns.max(waited_ns);
        }
    }

    /// The generator was this late itself.
    #[inline]
    pub(crate) fn lag(&mut self, lag_ns: u64) {
        self.book.lag.record(lag_ns);
        if lag_ns > LATE_NS {
            self.counters.late_sends += 1;
        }
    }

    #[inline]
    fn phases(&mut self, due_ns: u64) -> Option<&mut Phases> {
        if due_ns >= self.second_ns && due_ns >= self.window_from_ns {
            Some(&mut self.book.current)
        } else if due_ns >= self.window_from_ns {
            Some(&mut self.book.late)
        } else {
            None
        }
    }

    /// The snapshot of the second that is over at `now_ns`, if one is. To be called before
    /// anything that happened at `now_ns` is recorded.
    #[inline]
    pub(crate) fn roll(&mut self, now_ns: u64) -> Option<Snapshot> {
        self.detect_stall(now_ns);
        if now_ns < self.roll_at_ns { None } else { Some(self.roll_second(now_ns)) }
    }

    fn roll_second(&mut self, now_ns: u64) -> Snapshot {
        let snapshot = self.snapshot();
        // A core that was stopped for some seconds goes on with the second that it woke up in.
        let seconds = (now_ns - self.second_ns) / SECOND_NS;
        self.second_ns += seconds * SECOND_NS;
        self.roll_at_ns = self.second_ns + SECOND_NS;
        snapshot
    }

    /// The last snapshot, after the drain.
    pub(crate) fn finish(mut self, now_ns: u64) -> Snapshot {
        self.end(now_ns);
        self.snapshot()
    }

    fn snapshot(&mut self) -> Snapshot {
        let fresh = self.spares.try_recv().unwrap_or_default();
        Snapshot {
            core: self.core,
            second: (self.second_ns - self.start_ns) / SECOND_NS,
            book: std::mem::replace(&mut self.book, fresh),
            counters: self.counters.clone(),
            open: self.open,
            in_flight: self.in_flight,
            waiting: self.waiting,
            area_ns: self.flight.area_ns(),
            drained_ns: self.flight.after_ns(),
            lost_ns: self.lost_ns,
            done_ns: self.done_ns.saturating_sub(self.start_ns),
            ended_ns: self.ended_ns.map(|ended_ns| ended_ns.saturating_sub(self.start_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        let mut recorder = Recorder::new(0, mpsc::channel().1);
        recorder.start(1_000, SECOND_NS);
        recorder
    }

    fn sample(due_ns: u64, last_ns: u64) -> Sample {
        Sample { due_ns, sent_ns: due_ns + 10, first_ns: last_ns, last_ns }
    }

    fn answer(recorder: &mut Recorder, sample: Sample) {
        recorder.sent(sample.due_ns, sample.sent_ns);
        recorder.answered(sample);
    }

    #[test]
    fn a_request_belongs_to_the_second_it_was_due_in() {
        let mut recorder = recorder();
        answer(&mut recorder, sample(1_500, 2_000));
        let first = recorder.roll(1_000 + SECOND_NS).unwrap();
        assert_eq!((first.second, first.book.outside.count()), (0, 1));
        answer(&mut recorder, sample(SECOND_NS + 2_000, SECOND_NS + 3_000));
        assert!(recorder.roll(2 * SECOND_NS).is_none());
        let second = recorder.roll(1_000 + 2 * SECOND_NS).unwrap();
        assert_eq!(second.book.current.last_byte.response.count(), 1);
        answer(&mut recorder, sample(2 * SECOND_NS, 3 * SECOND_NS));
        answer(&mut recorder, sample(2 * SECOND_NS + 1_000, 3 * SECOND_NS));
        recorder.end(2 * SECOND_NS + 5_000);
        assert!(recorder.roll(9 * SECOND_NS).is_none(), "the drain rolls no second");
        let last = recorder.finish(9 * SECOND_NS);
        assert_eq!(last.book.late.last_byte.response.count(), 1);
        assert_eq!(last.book.current.last_byte.response.count(), 1);
        assert_eq!(last.ended_ns, Some(2 * SECOND_NS + 4_000));
    }

    #[test]
    fn time_outs_keep_their_phase_and_their_age() {
        let mut recorder = recorder();
        let failure = Failure { kind: Kind::Timeout, phase: Phase::Queue };
        recorder.not_sent(2_000, failure, 7_000);
        recorder.not_sent(2_000, failure, 9_000);
        assert_eq!(recorder.counters.timeouts, [2, 0, 0, 0]);
        assert_eq!(recorder.counters.timeout_age_ns, Some((5_000, 7_000)));
        assert_eq!(recorder.counters.errors[Kind::Timeout as usize], 2);
    }

    #[test]
    fn a_bad_response_has_latencies_of_its_own_and_counts_once() {
        let mut recorder = recorder();
        let due_ns = SECOND_NS + 2_000;
        answer(&mut recorder, sample(due_ns, due_ns + 1_000));
        for fails_check in [false, true] {
            recorder.sent(due_ns, due_ns);
            recorder.answered_badly(sample(due_ns, due_ns + 50), fails_check);
        }
        recorder.dropped(due_ns);
        let last = recorder.finish(2 * SECOND_NS);
        let (book, counters) = (last.book.current, last.counters);
        assert_eq!((book.last_byte.service.count(), book.bad.service.count()), (1, 2));
        assert_eq!((book.bad.response.max_ns(), book.not_good), (50, 3));
        assert_eq!((counters.good(), counters.bad(), counters.requests), (1, 2, 3));
        assert_eq!((counters.responses, counters.errors[Kind::Check as usize]), (2, 1));
        assert_eq!(last.lost_ns, 80, "Little's law counts the time of both");
    }

    #[test]
    fn only_requests_of_the_window_count_as_in_flight_for_littles_law() {
        let mut recorder = recorder();
        let window_ns = SECOND_NS + 1_000;
        recorder.sent(2_000, 2_000);
        recorder.sent(window_ns, window_ns);
        recorder.answered(Sample { first_ns: window_ns + 70, ..sample(2_000, window_ns + 70) });
        recorder.answered(sample(window_ns, window_ns + 40));
        assert_eq!(recorder.finish(2 * SECOND_NS).area_ns, 40);
    }

    #[test]
    fn a_core_that_was_stopped_skips_the_seconds_it_missed() {
        let mut recorder = recorder();
        assert_eq!(recorder.roll(1_000 + 3 * SECOND_NS + 7).unwrap().second, 0);
        assert!(recorder.roll(1_000 + 4 * SECOND_NS - 1).is_none());
        assert_eq!(recorder.roll(1_000 + 4 * SECOND_NS).unwrap().second, 3);
    }
}
