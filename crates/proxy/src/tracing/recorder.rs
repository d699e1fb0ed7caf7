//! A core's side of traces: the context of each request, and the spans of those that are recorded.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rt::clock::MonotonicTime;
use server_shell::date::WallClock;

use super::TraceCounts;
use super::export::{SpanBatch, TraceSender};
use super::spans::RequestSpans;
use crate::log::LogNames;
use crate::outcome::{Outcome, RequestTrace};
use crate::plan::TracingPlan;
use crate::request_view::RequestView;
use crate::trace_context::TraceContext;

/// Size from which a batch is handed over; it can be longer by the spans of one request.
const BATCH_BYTES: usize = 32 * 1024;

/// Traces of one core under the plan in force.
#[derive(Debug)]
pub(crate) struct CoreTraces {
    /// Requests that are recorded whatever the sample; `None`: traces are off.
    always: Cell<Option<AlwaysRecorded>>,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    sender: TraceSender,
    /// Number of cores, which share the maximum rate equally.
    cores: usize,
    batch: SpanBatch,
    rng: fastrand::Rng,
    tokens: Tokens,
}

impl CoreTraces {
    pub(crate) fn new(sender: TraceSender, cores: usize) -> Self {
        let always = Cell::new(sender.plan().map(AlwaysRecorded::from_plan));
        let (batch, rng, tokens) = (SpanBatch::default(), fastrand::Rng::new(), Tokens::default());
        Self { always, state: RefCell::new(State { sender, cores, batch, rng, tokens }) }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.always.get().is_some()
    }

    /// Returns the context of a request; `None` if traces are off. `has_context`: the head has fields of one.
    #[inline]
    pub(crate) fn begin(&self, view: &RequestView<'_>, has_context: bool) -> Option<TraceContext> {
        let State { sender, rng, .. } = &mut *self.state.borrow_mut();
        let plan = sender.plan()?;
        let is_continued = plan.continues_trace(view.is_trusted);
        Some(TraceContext::from_request(view, has_context, is_continued, plan.sample, rng))
    }

    /// Returns the trace of a request that is to be recorded.
    #[inline]
    pub(crate) fn recorded<'a>(&self, outcome: &Outcome<'a>) -> Option<&'a RequestTrace> {
        let (trace, always) = (outcome.trace?, self.always.get()?);
        (trace.context.is_sampled || always.contains(outcome)).then_some(trace)
    }

    /// Appends the spans of a request, unless there are too many. Returns whether it did.
    #[cold]
    pub(crate) fn record(
        &self,
        trace: &RequestTrace,
        outcome: &Outcome<'_>,
        names: &LogNames,
        clock: WallClock,
    ) -> bool {
        let state = &mut *self.state.borrow_mut();
        let Some(plan) = state.sender.plan() else { return false };
        let rate_max = plan.requests_per_second_max / state.cores as f64;
        if !state.tokens.take(rate_max, outcome.times.end) {
            state.sender.counts().over_rate.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let spans = RequestSpans { trace, outcome, names, clock };
        state.batch.spans += spans.append(&mut state.rng, &mut state.batch.bytes);
        if state.batch.bytes.len() >= BATCH_BYTES {
            state.hand_over();
        }
        true
    }

    /// Hands the batch over; must be called each tick.
    pub(crate) fn hand_over(&self) {
        if self.is_on() {
            self.state.borrow_mut().hand_over();
        }
    }

    /// Directs the spans to another exporter.
    pub(crate) fn change(&self, sender: TraceSender) {
        let state = &mut *self.state.borrow_mut();
        state.hand_over();
        self.always.set(sender.plan().map(AlwaysRecorded::from_plan));
        state.sender = sender;
    }

    /// Returns the counters of all cores.
    pub(crate) fn counts(&self) -> Arc<TraceCounts> {
        Arc::clone(self.state.borrow().sender.counts())
    }
}

impl State {
    fn hand_over(&mut self) {
        if self.batch.spans > 0 {
            self.sender.send(std::mem::take(&mut self.batch));
        }
    }
}

impl Drop for State {
    /// Hands over the last spans: those of requests that the end of a drain has cut off.
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// Requests that are recorded whatever the sample.
#[derive(Clone, Copy, Debug)]
struct AlwaysRecorded {
    failed: bool,
    /// Time from which a request is slow; `u64::MAX`: none is.
    slow_ns: u64,
}

impl AlwaysRecorded {
    fn from_plan(plan: &TracingPlan) -> Self {
        Self { failed: plan.records_failed, slow_ns: plan.slow_ns.unwrap_or(u64::MAX) }
    }

    #[inline]
    fn contains(self, outcome: &Outcome<'_>) -> bool {
        let lasted_ns = outcome.times.end.as_ns().saturating_sub(outcome.times.start.as_ns());
        lasted_ns >= self.slow_ns || self.failed && outcome.is_failed()
    }
}

/// Token bucket of a core, with the tokens of one second.
#[derive(Debug, Default)]
struct Tokens {
    count: f64,
    refilled: MonotonicTime,
}

impl Tokens {
    fn take(&mut self, per_second: f64, now: MonotonicTime) -> bool {
        let elapsed_s = now.as_ns().saturating_sub(self.refilled.as_ns()) as f64 / 1e9;
        // A core of many gets less than one token in a second.
        self.count = (self.count + elapsed_s * per_second).min(per_second.max(1.0));
        self.refilled = now;
        let has_token = self.count >= 1.0;
        if has_token {
            self.count -= 1.0;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::plan;
    use super::*;
    use crate::log::fixtures::successful_request;

    #[test]
    fn slow_and_failed_requests_are_recorded_whatever_was_chosen() {
        let ordinary = successful_request();
        let failed = Outcome { status: 502, ..ordinary };
        let lasts_ns = ordinary.times.end.as_ns() - ordinary.times.start.as_ns();
        let always = |slow_ns, records_failed| {
            AlwaysRecorded::from_plan(&TracingPlan { slow_ns, records_failed, ..plan() })
        };
        let on_failure = always(Some(lasts_ns + 1), true);
        assert!(!on_failure.contains(&ordinary) && on_failure.contains(&failed));
        assert!(always(Some(lasts_ns), false).contains(&ordinary));
        assert!(!always(None, false).contains(&failed));
    }

    #[test]
    fn a_rate_is_kept_also_below_one_in_a_second() {
        for per_second in [0.25, 1.0, 50.0] {
            let mut tokens = Tokens::default();
            let taken = (0..100_000u64)
                .filter(|step| tokens.take(per_second, MonotonicTime::from_ns(step * 1_000_000 + 1)))
                .count() as f64;
            assert!((taken - 100.0 * per_second).abs() <= per_second.max(1.0) + 1.0, "{per_second}: {taken}");
        }
    }
}
