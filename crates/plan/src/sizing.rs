//! Sizes of a plan: each figure with its formula, the values in it, and the inputs behind it.

mod machines;
mod recovery;
mod servers;

use record::sorted::sort_by_key;
use serde::Serialize;

use crate::backend::Backend;
use crate::finding::{Finding, Severity};
use crate::inputs::{InputKind, Inputs, SourcedValue, format_value};
use crate::queueing::SlotPool;

pub const SCHEMA: &str = "weir.plan/1";

/// Result of a formula.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub section: &'static str,
    /// Name within the plan.
    pub name: &'static str,
    /// Value, in s, bytes, bits per second or per second; infinite values are `null` in JSON.
    pub value: f64,
    pub unit: InputKind,
    pub formula: &'static str,
    pub computed: String,
}

impl Figure {
    pub fn value_text(&self) -> String {
        if self.value.is_infinite() { "never".to_owned() } else { format_value(self.unit, self.value) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UsedInput {
    pub name: &'static str,
    #[serde(flatten)]
    pub given: SourcedValue,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sizing {
    pub schema: &'static str,
    pub inputs: Vec<UsedInput>,
    pub backends: Vec<Backend>,
    /// Figures, in the order of computation.
    pub figures: Vec<Figure>,
    /// Findings, errors first.
    pub findings: Vec<Finding>,
}

impl Sizing {
    /// Computes a plan. The inputs have no problems ([`Inputs::problems`]).
    #[must_use]
    pub fn compute(inputs: &Inputs) -> Self {
        let mut draft =
            Draft { inputs, backends: inputs.backends(), figures: Vec::new(), findings: Vec::new() };
        servers::size(&mut draft);
        recovery::size_queue(&mut draft);
        machines::size(&mut draft);
        recovery::size(&mut draft);
        let Draft { backends, figures, mut findings, .. } = draft;
        sort_by_key(&mut findings, |finding| finding.severity);
        let used = crate::inputs::INPUTS.iter().filter_map(|row| {
            // A default that no formula names was not used.
            let in_formula = figures.iter().any(|figure| words(figure.formula).any(|word| word == row.name));
            let given = inputs.get(row.name)?;
            (inputs.is_given(row.name) || in_formula).then_some(UsedInput { name: row.name, given })
        });
        Self { schema: SCHEMA, inputs: used.collect(), backends, figures, findings }
    }

    pub fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Returns true if an objective cannot be met, or the system is unstable.
    pub fn has_error(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

fn words(formula: &str) -> impl Iterator<Item = &str> {
    formula.split(|character: char| !(character.is_ascii_alphanumeric() || character == '-'))
}

/// Plan that is being computed.
struct Draft<'a> {
    inputs: &'a Inputs,
    backends: Vec<Backend>,
    figures: Vec<Figure>,
    findings: Vec<Finding>,
}

impl Draft<'_> {
    fn add(
        &mut self,
        (section, name, unit): (&'static str, &'static str, InputKind),
        value: f64,
        formula: &'static str,
        computed: String,
    ) -> f64 {
        let computed = with_rounded_numbers(&computed);
        self.figures.push(Figure { section, name, value, unit, formula, computed });
        value
    }

    fn find(&mut self, code: &'static str, text: impl Into<String>) {
        self.findings.push(Finding::new(code, text));
    }

    fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    fn rate_per_s(&self) -> f64 {
        self.inputs.default_number("rate")
    }

    fn slots(&self) -> u64 {
        self.backends.iter().filter_map(Backend::slots).sum()
    }

    /// Returns the pool of all slots, if the service time is known.
    fn pool(&self) -> Option<SlotPool> {
        Some(SlotPool {
            slots: self.slots(),
            rate_per_s: self.rate_per_s(),
            service_s: self.inputs.number("service")?,
            arrival_cv: self.inputs.default_number("arrival-cv"),
            service_cv: self.inputs.default_number("service-cv"),
        })
    }
}

const FORMULA_DIGITS: i32 = 4;

/// Rounds the numbers in the text of a formula that have decimal places.
fn with_rounded_numbers(text: &str) -> String {
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let (mut rounded, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let number = &rest[begin..];
        let end = number.find(|letter| !is_number(letter)).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        rounded += &rest[..begin];
        match number.parse::<f64>() {
            Ok(value) if number.contains('.') && number.len() > FORMULA_DIGITS as usize + 1 => {
                rounded += &record::units::round_to_digits(value, FORMULA_DIGITS).to_string();
            }
            _ => rounded += number,
        }
        rest = after;
    }
    rounded + rest
}

fn time(seconds: f64) -> String {
    if seconds.is_infinite() { "never".to_owned() } else { format_value(InputKind::Time, seconds) }
}

#[cfg(test)]
mod tests;
