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
    is_on: Cell<bool>,
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
        let is_on = Cell::new(sender.plan().is_some());
        let (batch, rng, tokens) = (SpanBatch::default(), fastrand::Rng::new(), Tokens::default());
        Self { is_on, state: RefCell::new(State { sender, cores, batch, rng, tokens }) }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Returns the trace of a request; `None` if traces are off.
    pub(crate) fn begin(&self, view: &RequestView<'_>) -> Option<Box<RequestTrace>> {
        let State { sender, rng, .. } = &mut *self.state.borrow_mut();
        let plan = sender.plan()?;
        let is_continued = plan.continues_trace(view.is_trusted);
        let context = TraceContext::of_request(view, is_continued, plan.sample, rng);
        Some(Box::new(RequestTrace { context, attempts: Vec::new() }))
    }

    /// Appends the spans of a request that is to be recorded. Returns whether it was.
    #[cold]
    pub(crate) fn record(&self, outcome: &Outcome<'_>, names: &LogNames, clock: WallClock) -> bool {
        let state = &mut *self.state.borrow_mut();
        let (Some(trace), Some(plan)) = (outcome.trace, state.sender.plan()) else { return false };
        if !is_recorded(plan, trace, outcome) {
            return false;
        }
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
        self.is_on.set(sender.plan().is_some());
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

fn is_recorded(plan: &TracingPlan, trace: &RequestTrace, outcome: &Outcome<'_>) -> bool {
    trace.context.is_sampled
        || plan.records_failed && outcome.is_failed()
        || plan.slow_ns.is_some_and(|slow_ns| {
            outcome.times.end.as_ns().saturating_sub(outcome.times.start.as_ns()) >= slow_ns
        })
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
    use crate::tracing::fixtures::trace;

    #[test]
    fn slow_and_failed_requests_are_recorded_whatever_was_chosen() {
        let trace = |is_sampled| {
            let mut trace = trace();
            trace.context.is_sampled = is_sampled;
            trace
        };
        let ordinary = successful_request();
        let failed = Outcome { status: 502, ..ordinary };
        let lasts_ns = ordinary.times.end.as_ns() - ordinary.times.start.as_ns();
        let plan = TracingPlan { slow_ns: Some(lasts_ns + 1), records_failed: true, ..plan() };
        assert!(is_recorded(&plan, &trace(true), &ordinary) && !is_recorded(&plan, &trace(false), &ordinary));
        assert!(is_recorded(&plan, &trace(false), &failed));
        let slow = TracingPlan { slow_ns: Some(lasts_ns), records_failed: false, ..plan };
        assert!(is_recorded(&slow, &trace(false), &ordinary));
        let none = TracingPlan { slow_ns: None, ..slow };
        assert!(!is_recorded(&none, &trace(false), &failed));
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
