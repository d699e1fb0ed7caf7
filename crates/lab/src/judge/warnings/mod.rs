//! What has to be known before a comparison is believed: a table of everything that is looked for, each
//! with what triggers it.
//!
//! Not for outcomes: what a warning does to one is decided with it.

mod figures;
pub(super) mod limits;
mod procedure;

use std::collections::BTreeSet;

use record::experiment::{Arm, Cell, Comparison, Warning};

use super::Extras;
use super::blocks::Blocks;
use super::bottleneck;

/// How many arms, or arms under loads, a text names.
const NAMED_MAX: usize = 6;

/// What warnings are found from.
pub(super) struct Case<'a> {
    pub(super) blocks: &'a Blocks<'a>,
    pub(super) cells: &'a [Cell],
    pub(super) comparisons: &'a [Comparison],
    pub(super) extras: &'a Extras,
}

/// One thing that is looked for.
pub struct Kind {
    /// Its fixed name, [`Warning::code`].
    pub code: &'static str,
    /// What triggers it, and why it matters.
    pub trigger: &'static str,
    find: fn(&Case<'_>) -> Vec<Found>,
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kind").field("code", &self.code).finish_non_exhaustive()
    }
}

/// What was found: the arm that it is about, if one, and the text.
type Found = (Option<String>, String);

/// Everything that is looked for, what weighs most first.
pub static WARNINGS: &[Kind] = &[
    Kind {
        code: "failed",
        trigger: "a trial has no figures: its block is run again, or its arm is compared in fewer blocks",
        find: procedure::failed,
    },
    Kind {
        code: "two_factors",
        trigger: "an arm differs from the baseline in more than one key: which of them made the \
                  difference cannot be told",
        find: limits::two_factors,
    },
    Kind {
        code: "client_bound",
        trigger: "the load generator was the limit in most trials of an arm, or its busiest thread had \
                  no time left: rates and latencies are then the generator's",
        find: limits::client_bound,
    },
    Kind {
        code: "different_bottlenecks",
        trigger: "most trials of an arm were limited by something else than most of the baseline's: \
                  the difference is then a bound, or one between two different things",
        find: limits::different_bottlenecks,
    },
    Kind {
        code: "probe_overhead",
        trigger: "calls were counted, or functions sampled, in judged trials, and it cost the arms \
                  unequally or about as much as the effect that matters",
        find: limits::probe_overhead,
    },
    Kind {
        code: "noise_floor",
        trigger: "the baseline differs from itself (A/A) by more than chance, or the A/A interval is \
                  wider than an effect that was found",
        find: figures::noise_floor,
    },
    Kind {
        code: "errors",
        trigger: "the share of failed requests of an arm differs from the baseline's by 0.1 % or more: \
                  an error is often cheaper than an answer",
        find: figures::errors,
    },
    Kind {
        code: "units",
        trigger: "rate times mean latency is not what was in flight, by more than 5 % and what the \
                  longest latency makes of a short trial (Little's law): a figure or its unit is wrong",
        find: figures::units,
    },
    Kind {
        code: "unsteady",
        trigger: "trials whose rate never became steady: what they measured depends on their length",
        find: figures::unsteady,
    },
    Kind {
        code: "closed_loop_latency",
        trigger: "latency of a closed loop at full speed: it measures how many connections wait, and \
                  not how long a user would",
        find: figures::closed_loop_latency,
    },
    Kind {
        code: "few_requests",
        trigger: "a percentile that rests on fewer than 100 / (1 - q) requests a trial",
        find: figures::few_requests,
    },
    Kind {
        code: "untold",
        trigger: "a metric that what drives the load, or the scenario, can never give",
        find: figures::untold,
    },
    Kind {
        code: "outliers",
        trigger: "blocks whose ratio is more than 14.8 median deviations from the median; they are \
                  flagged and never removed",
        find: figures::outliers,
    },
    Kind {
        code: "position",
        trigger: "an arm ran before the baseline in so many blocks, or so few, that chance gives it in \
                  fewer than 1 of 100 experiments: what drifts within a block is then in the difference",
        find: procedure::position,
    },
    Kind {
        code: "order",
        trigger: "every block ran its trials in the same order: what drifts within a block is in every \
                  difference",
        find: procedure::order,
    },
    Kind {
        code: "discards",
        trigger: "trials were discarded for what disturbed them, by covariates and never by result",
        find: procedure::discards,
    },
    Kind {
        code: "environment_changed",
        trigger: "the machine or its settings changed while the experiment ran",
        find: procedure::environment_changed,
    },
];

/// One finding of all arms, or arms under loads, that share what follows from it. Each is named with what is
/// its own.
fn together(of: Vec<Found>, between: &str, follows: &str) -> Vec<Found> {
    let arms: BTreeSet<&Option<String>> = of.iter().map(|(arm, _)| arm).collect();
    let arm = arms.first().filter(|_| arms.len() == 1).and_then(|arm| (*arm).clone());
    let more = match of.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("{between}and {more} more"),
    };
    let own: Vec<&str> = of.iter().take(NAMED_MAX).map(|(_, text)| text.as_str()).collect();
    if own.is_empty() {
        return Vec::new();
    }
    vec![(arm, format!("{}{more}{follows}", own.join(between)))]
}

/// All warnings, in the order of the table.
pub(super) fn all(case: &Case<'_>) -> Vec<Warning> {
    let found = |kind: &'static Kind| {
        let found = (kind.find)(case).into_iter();
        found.map(|(arm, text)| Warning { code: kind.code.to_owned(), arm, text })
    };
    WARNINGS.iter().flat_map(found).collect()
}

impl<'a> Case<'a> {
    /// The arms but the baseline and its A/A arm.
    pub(in crate::judge) fn arms(&self) -> impl Iterator<Item = &'a Arm> + use<'a> {
        self.blocks.arms().filter(|arm| arm.again.is_none())
    }

    /// The names of the loads.
    pub(in crate::judge) fn loads(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.blocks.plan.loads.iter().map(|load| load.name.as_str())
    }

    pub(in crate::judge) fn baseline(&self) -> &'a str {
        &self.blocks.plan.baseline
    }

    pub(in crate::judge) fn cell(&self, arm: &str, load: &str) -> Option<&'a Cell> {
        bottleneck::cell(self.cells, arm, load)
    }

    /// ` under LOAD`, where there are several.
    pub(in crate::judge) fn under(&self, load: &str) -> String {
        if self.blocks.plan.loads.len() > 1 { format!(" under {load}") } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_code_of_its_own_and_says_its_trigger() {
        let codes: BTreeSet<&str> = WARNINGS.iter().map(|kind| kind.code).collect();
        assert_eq!(codes.len(), WARNINGS.len());
        for kind in WARNINGS {
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(kind.code.chars().all(is_plain), "{}", kind.code);
            assert!(kind.trigger.len() > 30, "{}", kind.code);
        }
    }

    #[test]
    fn what_holds_for_several_is_said_once() {
        let one = |arm: &str, text: &str| (Some(arm.to_owned()), text.to_owned());
        assert!(together(Vec::new(), ", ", ": x").is_empty());
        let of = vec![one("a", "a under x"), one("a", "a under y")];
        let found = together(of, ", ", ": so it is");
        assert_eq!(found, [one("a", "a under x, a under y: so it is")]);
        let of = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|arm| one(arm, arm)).to_vec();
        let found = together(of, ", ", ".");
        assert_eq!(found, [(None, "a, b, c, d, e, f, and 2 more.".to_owned())]);
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        let plan = record::experiment::Plan::default();
        let blocks = Blocks::of(&plan, &[]);
        let extras = Extras::default();
        let case = Case { blocks: &blocks, cells: &[], comparisons: &[], extras: &extras };
        assert!(all(&case).is_empty());
    }
}
