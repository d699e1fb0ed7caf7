//! Outcomes by stage and by request of the plan, of one core.

use super::HistogramPair;
use crate::plan::{CHECK_NAMES, CheckKind, RunPlan};

/// Maximum number of requests of a plan whose responses are counted one by one.
pub const COUNTED_REQUESTS_MAX: usize = 100;

/// Outcomes by stage and by request.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// Ends of the stages, in ns after the start; empty without stages.
    stage_ends_ns: Vec<u64>,
    pub stages: Vec<StageOutcomes>,
    /// Outcomes of the requests; empty if there is only one, or too many.
    pub requests: Vec<RequestOutcomes>,
}

/// Outcomes of the requests that were due in one stage.
#[derive(Clone, Debug, Default)]
pub struct StageOutcomes {
    /// Latencies of good responses to the last byte.
    pub last_byte: HistogramPair,
    /// Requests without a good response.
    pub not_good: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcomes {
    pub good: u64,
    pub bad: u64,
    pub failed_checks: [u64; CHECK_NAMES.len()],
}

impl Breakdown {
    /// Returns the empty outcomes of a plan.
    pub(crate) fn from_plan(plan: &RunPlan) -> Self {
        let lengths_ns =
            plan.stages.iter().flat_map(|stages| &stages.stages).map(|(length_ns, _)| *length_ns);
        let ends_ns = lengths_ns.scan(0u64, |end_ns, length_ns| {
            *end_ns = end_ns.saturating_add(length_ns);
            Some(*end_ns)
        });
        let count = plan.requests.len();
        let is_counted = (2..=COUNTED_REQUESTS_MAX).contains(&count) && plan.replay.is_none();
        Self {
            stage_ends_ns: ends_ns.collect(),
            stages: Vec::new(),
            requests: vec![RequestOutcomes::default(); if is_counted { count } else { 0 }],
        }
    }

    /// Records a good response to a request that was due `due_ns` after the start.
    #[inline]
    pub(crate) fn record_good(&mut self, due_ns: u64, service_ns: u64, response_ns: u64) {
        if let Some(stage) = self.stage(due_ns) {
            stage.last_byte.service.record(service_ns);
            stage.last_byte.response.record(response_ns);
        }
    }

    /// Counts requests without a good response that were due `due_ns` after the start.
    #[inline]
    pub(crate) fn count_not_good(&mut self, due_ns: u64, count: u64) {
        if let Some(stage) = self.stage(due_ns) {
            stage.not_good += count;
        }
    }

    /// Counts the response to request `index` of the plan.
    #[inline]
    pub(crate) fn count_response(&mut self, index: usize, is_good: bool, failed_check: Option<CheckKind>) {
        if let Some(request) = self.requests.get_mut(index) {
            request.good += u64::from(is_good);
            request.bad += u64::from(!is_good);
            if let Some(check) = failed_check {
                request.failed_checks[check as usize] += 1;
            }
        }
    }

    #[inline]
    fn stage(&mut self, due_ns: u64) -> Option<&mut StageOutcomes> {
        let last = self.stage_ends_ns.len().checked_sub(1)?;
        let index = self.stage_ends_ns.partition_point(|end_ns| *end_ns <= due_ns).min(last);
        while self.stages.len() <= index {
            self.stages.push(StageOutcomes::default());
        }
        self.stages.get_mut(index)
    }

    /// Adds the outcomes of another core.
    pub(crate) fn add(&mut self, other: &Self) {
        self.stages.resize_with(self.stages.len().max(other.stages.len()), StageOutcomes::default);
        for (sum, stage) in self.stages.iter_mut().zip(&other.stages) {
            sum.last_byte.add(&stage.last_byte);
            sum.not_good += stage.not_good;
        }
        self.requests.resize(self.requests.len().max(other.requests.len()), RequestOutcomes::default());
        for (sum, request) in self.requests.iter_mut().zip(&other.requests) {
            sum.good += request.good;
            sum.bad += request.bad;
            sum.failed_checks.iter_mut().zip(request.failed_checks).for_each(|(sum, count)| *sum += count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LoadFlags;

    #[test]
    fn requests_belong_to_the_stage_in_which_they_were_due() {
        let flags = LoadFlags {
            urls: ["http://a/1", "http://a/2"].map(str::to_owned).to_vec(),
            stages: Some("0s@10,1s@10,2s@20".to_owned()),
            ..LoadFlags::default()
        };
        let mut breakdown = Breakdown::from_plan(&RunPlan::parse(&flags, 1).unwrap());
        breakdown.record_good(0, 5, 6);
        breakdown.record_good(999_999_999, 5, 6);
        breakdown.count_not_good(1_000_000_000, 1);
        breakdown.record_good(9_000_000_000, 5, 6);
        breakdown.count_response(1, false, Some(CheckKind::Length));
        let mut sum = breakdown.clone();
        sum.add(&breakdown);
        let counts: Vec<_> =
            sum.stages.iter().map(|stage| (stage.last_byte.response.count(), stage.not_good)).collect();
        assert_eq!(counts, [(0, 0), (4, 0), (2, 2)]);
        assert_eq!(
            sum.requests[1],
            RequestOutcomes { bad: 2, failed_checks: [0, 0, 2, 0, 0], ..sum.requests[0] }
        );
    }
}
