//! Warnings that limit the trust in a comparison: a table of all kinds, each with its trigger.
//!
//! A change of an outcome is made together with the outcome, not here.

mod figures;
pub(super) mod limits;
mod procedure;

use std::collections::BTreeSet;

use record::experiment::{Arm, Comparison, ExperimentCell, Warning};
use record::sorted::CollectSorted;

use super::JudgeExtras;
use super::bottleneck;
use super::judged_trials::JudgedTrials;
pub(super) use figures::longer_trials_for;

/// Maximum number of arms, or arms under loads, that a text names.
const NAMED_MAX: usize = 6;

pub(super) struct WarningInput<'a> {
    pub(super) blocks: &'a JudgedTrials<'a>,
    pub(super) cells: &'a [ExperimentCell],
    pub(super) comparisons: &'a [Comparison],
    pub(super) extras: &'a JudgeExtras,
}

pub struct WarningKind {
    /// Fixed name of the warning, [`Warning::code`].
    pub code: &'static str,
    pub trigger: &'static str,
    detect: fn(&WarningInput<'_>) -> Vec<WarningFinding>,
}

impl std::fmt::Debug for WarningKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WarningKind").field("code", &self.code).finish_non_exhaustive()
    }
}

/// A finding: its arm, if it has one, and its text.
type WarningFinding = (Option<String>, String);

/// Every kind of warning, the most important first.
pub static WARNINGS: &[WarningKind] = &[
    WarningKind {
        code: "failed_trials",
        trigger: "a trial has no figures: its block is run again, or its arm is compared in fewer blocks",
        detect: procedure::failed_trials,
    },
    WarningKind {
        code: "two_factors",
        trigger: "an arm differs from the baseline in more than one key, and no other arms have these changes \
                  one by one: the cause of the difference is ambiguous",
        detect: limits::two_factors,
    },
    WarningKind {
        code: "client_bound",
        trigger: "the load generator was the limit in most trials of an arm, or its busiest thread was \
                  full: rates and latencies are then those of the generator",
        detect: limits::client_bound,
    },
    WarningKind {
        code: "different_bottlenecks",
        trigger: "most trials of an arm had another bottleneck than most of the baseline's: the \
                  difference is then a bound, or one between two different limits",
        detect: limits::different_bottlenecks,
    },
    WarningKind {
        code: "probe_overhead",
        trigger: "calls were counted, or functions sampled, in judged trials, and it cost the arms \
                  unequally or about as much as the effect that matters",
        detect: limits::probe_overhead,
    },
    WarningKind {
        code: "noise_floor",
        trigger: "the baseline differs from itself (A/A) by more than chance",
        detect: figures::noise_floor,
    },
    WarningKind {
        code: "noise_range",
        trigger: "the interval of the baseline against itself (A/A) is wider than an effect that was found",
        detect: figures::noise_range,
    },
    WarningKind {
        code: "errors",
        trigger: "the fraction of failed requests of an arm differs from the baseline's by 0.1 % or \
                  more: an error is often cheaper than a response",
        detect: figures::error_differences,
    },
    WarningKind {
        code: "littles_law",
        trigger: "rate × mean latency differs from the requests in flight by more than 5 % plus the \
                  effect of the longest latency in a short trial (Little's law): a figure or its unit is wrong",
        detect: figures::littles_law_violations,
    },
    WarningKind {
        code: "unsteady",
        trigger: "trials whose rate never became steady: their figures depend on their duration",
        detect: figures::unsteady,
    },
    WarningKind {
        code: "closed_loop_latency",
        trigger: "latency of a closed loop at full speed: it measures the number of waiting \
                  connections, not the latency of a user",
        detect: figures::closed_loop_latency,
    },
    WarningKind {
        code: "few_requests",
        trigger: "a percentile with fewer than 100 / (1 - q) requests per trial",
        detect: figures::few_requests,
    },
    WarningKind {
        code: "missing_metric",
        trigger: "a metric that the load generator or the scenario cannot provide",
        detect: figures::missing_metrics,
    },
    WarningKind {
        code: "outliers",
        trigger: "blocks whose ratio is more than 14.8 median deviations from the median; they are \
                  flagged and never removed",
        detect: figures::outliers,
    },
    WarningKind {
        code: "position_imbalance",
        trigger: "an arm ran before the baseline in so many blocks, or so few, that chance causes it \
                  in fewer than 1 of 100 experiments: the difference includes drift within a block",
        detect: procedure::position_imbalance,
    },
    WarningKind {
        code: "same_order",
        trigger: "every block ran its trials in the same order: every difference includes drift \
                  within a block",
        detect: procedure::same_order,
    },
    WarningKind {
        code: "discarded_trials",
        trigger: "trials were discarded because of disturbances, by covariates and never by result",
        detect: procedure::discards,
    },
    WarningKind {
        code: "environment_changed",
        trigger: "the machine or its settings changed while the experiment ran",
        detect: procedure::environment_changed,
    },
];

/// Merges the findings of all arms, or arms under loads, that have the same consequence. Each is
/// named with its own text.
fn merge_findings(findings: Vec<WarningFinding>, between: &str, follows: &str) -> Vec<WarningFinding> {
    let arms: BTreeSet<&Option<String>> = findings.iter().map(|(arm, _)| arm).collect_set();
    let arm = arms.first().filter(|_| arms.len() == 1).and_then(|arm| (*arm).clone());
    let more = match findings.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("{between}and {more} more"),
    };
    let own: Vec<&str> = findings.iter().take(NAMED_MAX).map(|(_, text)| text.as_str()).collect();
    if own.is_empty() {
        return Vec::new();
    }
    vec![(arm, format!("{}{more}{follows}", own.join(between)))]
}

/// Returns all warnings, in the order of the table.
pub(super) fn all_warnings(input: &WarningInput<'_>) -> Vec<Warning> {
    let detect = |kind: &'static WarningKind| {
        let findings = (kind.detect)(input).into_iter();
        findings.map(|(arm, text)| Warning { code: kind.code.to_owned(), arm, text })
    };
    WARNINGS.iter().flat_map(detect).collect()
}

impl<'a> WarningInput<'a> {
    /// Returns the arms without the baseline and its A/A arm.
    pub(in crate::judge) fn arms(&self) -> impl Iterator<Item = &'a Arm> + use<'a> {
        self.blocks.arms().filter(|arm| arm.repeats.is_none())
    }

    pub(in crate::judge) fn loads(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.blocks.plan.loads.iter().map(|load| load.name.as_str())
    }

    pub(in crate::judge) fn baseline(&self) -> &'a str {
        &self.blocks.plan.baseline
    }

    pub(in crate::judge) fn cell(&self, arm: &str, load: &str) -> Option<&'a ExperimentCell> {
        bottleneck::find_cell(self.cells, arm, load)
    }

    /// Returns ` under LOAD` if there are several loads.
    pub(in crate::judge) fn load_suffix(&self, load: &str) -> String {
        if self.blocks.plan.loads.len() > 1 { format!(" under {load}") } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_unique_code_and_a_trigger() {
        let codes: BTreeSet<&str> = WARNINGS.iter().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), WARNINGS.len());
        for kind in WARNINGS {
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(kind.code.chars().all(is_plain), "{}", kind.code);
            assert!(kind.trigger.len() > 30, "{}", kind.code);
        }
    }

    #[test]
    fn merged_findings_are_reported_once() {
        let finding = |arm: &str, text: &str| (Some(arm.to_owned()), text.to_owned());
        assert!(merge_findings(Vec::new(), ", ", ": x").is_empty());
        let findings = vec![finding("a", "a under x"), finding("a", "a under y")];
        let merged = merge_findings(findings, ", ", ": so it is");
        assert_eq!(merged, [finding("a", "a under x, a under y: so it is")]);
        let findings = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|arm| finding(arm, arm)).to_vec();
        let merged = merge_findings(findings, ", ", ".");
        assert_eq!(merged, [(None, "a, b, c, d, e, f, and 2 more.".to_owned())]);
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        let plan = record::experiment::ExperimentPlan::default();
        let blocks = JudgedTrials::new(&plan, &[], 0.0);
        let extras = JudgeExtras::default();
        let input = WarningInput { blocks: &blocks, cells: &[], comparisons: &[], extras: &extras };
        assert!(all_warnings(&input).is_empty());
    }
}
