//! Due times of an open loop on one core: those of a rate, which the user may change, or of a log.

use std::sync::Arc;

use rt::cores::CoreId;

use crate::control::RateControl;
use crate::pace::{DueTimes, Pace};
use crate::plan::{LoadSlice, ReplaySchedule, RunPlan};

/// Requests of an open loop that are not due yet on a core.
#[derive(Debug)]
pub(crate) struct ArrivalSchedule {
    source: ArrivalSource,
    start_ns: u64,
}

/// Source of due times.
#[derive(Debug)]
enum ArrivalSource {
    Rate {
        times: Box<DueTimes>,
        factor: f64,
    },
    /// A log: the index of the next entry, and the number of cores.
    Replay {
        schedule: Arc<ReplaySchedule>,
        next: usize,
        step: usize,
    },
}

impl ArrivalSchedule {
    /// Returns the requests of a core; `None` in a closed loop.
    pub(crate) fn from_plan(plan: &RunPlan, core_id: CoreId, start_ns: u64) -> Option<Self> {
        let Pace::Open { arrivals, .. } = plan.pace else { return None };
        let cores = (core_id.index, core_id.count);
        let source = match &plan.replay {
            Some(schedule) => {
                ArrivalSource::Replay { schedule: Arc::clone(schedule), next: cores.0, step: cores.1 }
            }
            None => {
                let times = DueTimes::new(plan.rate_profile()?, arrivals, cores, plan.seed)
                    .shifted(plan.slice.map_or(0.0, LoadSlice::phase));
                ArrivalSource::Rate { times: Box::new(times), factor: 1.0 }
            }
        };
        Some(Self { source, start_ns })
    }

    /// Applies a changed rate from now on.
    pub(crate) fn follow(&mut self, control: &RateControl, now_ns: u64) {
        if let ArrivalSource::Rate { times, factor } = &mut self.source {
            let wanted = control.factor();
            if *factor != wanted {
                *factor = wanted;
                times.set_factor(wanted, now_ns.saturating_sub(self.start_ns));
            }
        }
    }

    /// Returns the due time of the next request; `None` if there is none.
    pub(crate) fn next_due_ns(&mut self) -> Option<u64> {
        let after_ns = match &mut self.source {
            ArrivalSource::Rate { times, .. } => Some(times.peek()),
            ArrivalSource::Replay { schedule, next, .. } => schedule.due_ns(*next),
        };
        after_ns.map(|after_ns| self.start_ns.saturating_add(after_ns))
    }

    /// Removes the requests that are due until `until_ns`. Returns their number.
    pub(crate) fn skip_until(&mut self, until_ns: u64) -> u64 {
        let after_ns = until_ns.saturating_sub(self.start_ns);
        match &mut self.source {
            ArrivalSource::Rate { times, .. } => times.skip_until(after_ns),
            ArrivalSource::Replay { schedule, next, step } => {
                let mut count = 0;
                while schedule.due_ns(*next).is_some_and(|due_ns| due_ns <= after_ns) {
                    *next += *step;
                    count += 1;
                }
                count
            }
        }
    }

    /// Removes the next request.
    pub(crate) fn advance(&mut self) {
        match &mut self.source {
            ArrivalSource::Rate { times, .. } => times.advance(),
            ArrivalSource::Replay { next, step, .. } => *next += *step,
        }
    }
}
