//! Evaluation of one rule of the table of verdicts on a run.

use std::collections::BTreeSet;

use crate::run_view::RunView;
use crate::signals::SignalFamily;
use crate::unit::format_value;
use crate::verdicts::{Bound, Criterion, VerdictRule};
use crate::window::{GENERATOR, SUBJECT};

/// Verdict that holds.
pub(crate) struct RuleMatch {
    /// True if its necessary conditions hold, and nothing excludes it, both with a margin.
    pub(crate) is_clear: bool,
    pub(crate) families: usize,
    pub(crate) evidence: Vec<String>,
}

pub(crate) enum RuleOutcome {
    Holds(RuleMatch),
    /// Excluding sign, with the number of conditions that held.
    RuledOut {
        criteria_met: usize,
        reason: String,
    },
    NotObservable(String),
}

/// Criterion with the value of its signal.
struct Sign<'c> {
    criterion: &'c Criterion,
    value: f64,
    holds: bool,
}

impl<'c> Sign<'c> {
    /// Reads a sign; `None` if it is not observable.
    fn read(criterion: &'c Criterion, view: &RunView<'_>) -> Option<Self> {
        let value = criterion.signal.value(view)?;
        Some(Self { criterion, value, holds: criterion.is_met_by(value) })
    }

    /// Formats "busiest subject thread, of a core: 99 % (bound: at least 92 %; schedstat of its
    /// threads)".
    fn describe(&self) -> String {
        let signal = self.criterion.signal;
        let value = format_value(self.value, signal.unit);
        match self.criterion.bound {
            // A figure that is reported whatever its value is.
            Bound::AtLeast(0.0) => format!("{}: {value} ({})", signal.name, signal.source),
            _ => {
                format!(
                    "{}: {value} (bound: {}; {})",
                    signal.name,
                    self.criterion.describe_bound(),
                    signal.source
                )
            }
        }
    }

    /// Returns the machine that it is from, if the record has several.
    fn machine<'a>(&self, view: &RunView<'a>) -> Option<&'a str> {
        if self.criterion.signal.family != SignalFamily::Generator {
            return view.machine_of_value(self.criterion.signal.read, self.value);
        }
        // The generator's figures about itself are those of its machine, if it has only one.
        let generators = view.machines(GENERATOR);
        match generators.as_slice() {
            [machine] if view.run.observed.len() > 1 => Some(machine.observed.host.as_str()),
            _ => None,
        }
    }
}

/// Evidence for a rule so far.
#[derive(Default)]
struct Evidence {
    texts: Vec<String>,
    families: BTreeSet<SignalFamily>,
}

impl Evidence {
    fn add(&mut self, sign: &Sign<'_>, view: &RunView<'_>) {
        self.families.insert(sign.criterion.signal.family);
        let text = sign.describe();
        self.texts.push(match sign.machine(view) {
            Some(machine) => format!("{machine}: {text}"),
            None => text,
        });
    }

    /// Adds the signs that hold. Returns for each whether it is clear, and the first that does not hold.
    fn add_holding(&mut self, criteria: &[Criterion], view: &RunView<'_>) -> (Vec<bool>, Option<String>) {
        let (mut clear, mut counter_evidence) = (Vec::new(), None);
        for sign in criteria.iter().filter_map(|criterion| Sign::read(criterion, view)) {
            if sign.holds {
                self.add(&sign, view);
                clear.push(sign.criterion.is_clear(sign.value));
            } else if counter_evidence.is_none() {
                counter_evidence = Some(sign.describe());
            }
        }
        (clear, counter_evidence)
    }

    /// Returns the outcome without enough evidence, by the sign against it, if there is one.
    fn missing(&self, counter_evidence: Option<String>, missing: String) -> RuleOutcome {
        match counter_evidence {
            Some(reason) => RuleOutcome::RuledOut { criteria_met: self.texts.len(), reason },
            None => RuleOutcome::NotObservable(missing),
        }
    }
}

pub(crate) fn evaluate_rule(rule: &VerdictRule, view: &RunView<'_>) -> RuleOutcome {
    if !rule.not_observable.is_empty() {
        return RuleOutcome::NotObservable(rule.not_observable.to_owned());
    }
    let (mut evidence, mut is_clear) = (Evidence::default(), true);
    let mut required = rule.required;
    if !rule.required_of_client.is_empty() && view.machine(SUBJECT).is_none() {
        (required, is_clear) = (rule.required_of_client, false);
    }
    for criterion in required {
        match Sign::read(criterion, view) {
            Some(sign) if sign.holds => {
                evidence.add(&sign, view);
                is_clear &= criterion.is_clear(sign.value);
            }
            sign => {
                let missing = format!("{} is not observable", criterion.signal.name);
                return evidence.missing(sign.map(|sign| sign.describe()), missing);
            }
        }
    }
    for sign in rule.excluding.iter().filter_map(|criterion| Sign::read(criterion, view)) {
        if sign.holds {
            return RuleOutcome::RuledOut { criteria_met: evidence.texts.len(), reason: sign.describe() };
        }
        // A verdict that is almost excluded is not sure.
        is_clear &= !sign.criterion.is_near(sign.value);
    }
    if !rule.any_of.is_empty() {
        let (clear, counter_evidence) = evidence.add_holding(rule.any_of, view);
        if clear.is_empty() {
            let names: Vec<&str> = rule.any_of.iter().map(|criterion| criterion.signal.name).collect();
            return evidence.missing(counter_evidence, format!("{} are not observable", names.join(", ")));
        }
        is_clear &= clear.contains(&true);
    }
    let (supporting, counter_evidence) = evidence.add_holding(rule.supporting, view);
    if supporting.len() < rule.supporting_min || (evidence.families.len() < 2 && !rule.is_counted) {
        let missing = "not enough evidence: a second, independent signal is missing".to_owned();
        return evidence.missing(counter_evidence, missing);
    }
    RuleOutcome::Holds(RuleMatch { is_clear, families: evidence.families.len(), evidence: evidence.texts })
}
