//! Row of the table of bottlenecks. It names the changes that test its claim.

use crate::sentences::AnswerFn;
use crate::signals::Signal;
use crate::unit::{Unit, format_value};

/// Required side of a bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Signal with its bound.
#[derive(Clone, Copy, Debug)]
pub struct Criterion {
    pub signal: &'static Signal,
    pub bound: Bound,
}

impl Criterion {
    pub(crate) fn is_met_by(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }

    /// Returns whether a value on the right side has a margin, so that chance or a sample of
    /// inexact length does not move it across.
    pub(crate) fn is_clear(&self, value: f64) -> bool {
        match (self.bound, self.signal.unit) {
            // The rest of a fraction above its bound counts: 0.85 of 1 is clear at 0.9.
            (Bound::AtLeast(bound), Unit::Fraction) if bound > 0.5 => {
                value >= bound + (1.0 - bound).max(0.0) / 3.0
            }
            (Bound::AtLeast(bound), _) => value >= bound * 1.25,
            (Bound::AtMost(bound), _) => value <= bound * 0.8,
        }
    }

    /// Returns true if a value on the wrong side is near the bound.
    pub(crate) fn is_near(&self, value: f64) -> bool {
        match (self.bound, self.signal.unit) {
            (Bound::AtLeast(bound), Unit::Fraction) if bound > 0.5 => {
                value >= bound - (1.0 - bound).max(0.0) / 3.0
            }
            (Bound::AtLeast(bound), _) => value >= bound * 0.8,
            (Bound::AtMost(bound), _) => value <= bound * 1.25,
        }
    }

    /// Formats "at least 92 %".
    pub fn describe_bound(&self) -> String {
        match self.bound {
            Bound::AtLeast(bound) => format!("at least {}", format_value(bound, self.signal.unit)),
            Bound::AtMost(bound) => format!("at most {}", format_value(bound, self.signal.unit)),
        }
    }
}

impl std::fmt::Display for Criterion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.signal.name, self.describe_bound())
    }
}

/// External change that tests a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Perturbation {
    /// A second generator beside the first.
    SecondGenerator,
    /// Twice the connections.
    DoubleConnections,
    /// Half the connections.
    HalveConnections,
    /// Three quarters of the subject's CPU time.
    LessCpuTime,
    /// A new connection for each request, or none.
    ToggleKeepAlive,
    /// A pause before each request, half as long as a response took: more delay, as throughput sees
    /// it.
    ThinkTime,
    /// No change is possible from here.
    NotPossible,
}

impl Perturbation {
    /// All possible changes, those with the least cost to the subject first.
    pub const ALL: [Self; 6] = [
        Self::ThinkTime,
        Self::DoubleConnections,
        Self::HalveConnections,
        Self::ToggleKeepAlive,
        Self::SecondGenerator,
        Self::LessCpuTime,
    ];
}

/// Effect of a perturbation on the throughput if the claim is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThroughputChange {
    /// The throughput grows by a good part of the change.
    Rises,
    Stays,
    /// The throughput falls by a good part of the change.
    Falls,
}

impl ThroughputChange {
    /// Returns the word for the effect.
    pub fn description(self) -> &'static str {
        match self {
            Self::Rises => "rises",
            Self::Stays => "stays",
            Self::Falls => "falls",
        }
    }

    pub fn prediction(self) -> &'static str {
        match self {
            Self::Rises => "the throughput rises",
            Self::Stays => "the throughput stays the same",
            Self::Falls => "the throughput falls",
        }
    }
}

/// Kind of an explanation. Explanations of one class react alike to changes, so no external change
/// distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitClass {
    /// Requests or connections fail: something ran out.
    Failure,
    Generator,
    /// CPU time of the subject is used up.
    Cpu,
    /// Each request takes a time that does not depend on the load.
    Delay,
    /// Something other than CPU time admits a limited number of requests, or bytes, at a time.
    Limit,
}

impl LimitClass {
    /// Returns the effect of a change on the throughput if an explanation of this class is true;
    /// `None` if it depends. By the operational laws: X(N) ≤ min(N / R, 1 / D_max) for a closed
    /// loop.
    #[must_use]
    pub fn predicted_change(self, change: Perturbation) -> Option<ThroughputChange> {
        use Perturbation as P;
        match (self, change) {
            (Self::Generator, P::SecondGenerator) | (Self::Delay, P::DoubleConnections) => {
                Some(ThroughputChange::Rises)
            }
            (Self::Cpu, P::LessCpuTime) | (Self::Delay, P::HalveConnections | P::ThinkTime) => {
                Some(ThroughputChange::Falls)
            }
            (Self::Delay | Self::Limit, P::LessCpuTime)
            | (Self::Cpu | Self::Delay | Self::Limit, P::SecondGenerator)
            | (Self::Cpu | Self::Limit | Self::Generator, P::DoubleConnections | P::HalveConnections)
            | (Self::Cpu | Self::Limit, P::ThinkTime) => Some(ThroughputChange::Stays),
            _ => None,
        }
    }

    /// Returns the explanation that must be excluded if no other one holds.
    #[must_use]
    pub fn default_rival(self) -> Self {
        match self {
            Self::Generator | Self::Delay => Self::Limit,
            Self::Cpu => Self::Limit,
            Self::Limit | Self::Failure => Self::Delay,
        }
    }
}

/// Change, its effect on the throughput if the claim is true, and the effect in words.
pub type CounterTest = (Perturbation, ThroughputChange, &'static str);

/// Row of the table of bottlenecks.
#[derive(Debug)]
pub struct VerdictRule {
    pub code: &'static str,
    pub claim: &'static str,
    pub class: LimitClass,
    /// Necessary conditions: all of these must hold.
    pub required: &'static [Criterion],
    /// Conditions that replace the necessary ones if no process of the subject is observable: the client's figures prove
    /// it as well, but never surely. Empty: they do not.
    pub required_of_client: &'static [Criterion],
    /// Alternatives: one of these must hold as well; none is required if this is empty.
    pub any_of: &'static [Criterion],
    /// Required number of `supporting` signs.
    pub supporting_min: usize,
    /// Supporting signs; each that holds adds to the confidence.
    pub supporting: &'static [Criterion],
    /// True if the claim itself was counted, so that one family of signals is a proof.
    pub is_counted: bool,
    /// True if the evidence shows circumstances and not the cause itself, so that the verdict is
    /// never sure. This applies to counted errors (not their cause), and to calls that other code
    /// makes as well.
    pub is_circumstantial: bool,
    /// True if rules with narrower causes, which are known by functions, stand before it: it is sure only if their
    /// absence is evidence, and not the absence of names.
    pub is_general: bool,
    /// True if nothing that is full shows it: it explains a limit that no resource does.
    pub is_by_exclusion: bool,
    /// Excluding signs: one is enough.
    pub excluding: &'static [Criterion],
    /// Signs of a part in the limit that is not the largest: with one of them, a limit of the subject's own that shows
    /// comes first.
    pub yielding: &'static [Criterion],
    pub confusions: &'static str,
    pub remedy: &'static str,
    /// Change that proves it, with the predicted effect.
    pub counter_test: CounterTest,
    /// Second change with a predicted effect, if another claim would pass the first.
    pub second_test: Option<CounterTest>,
    /// Sentences about a run with this verdict.
    pub(crate) answer: AnswerFn,
    /// Reason why it cannot be detected at all; empty if it can.
    pub not_observable: &'static str,
}

impl VerdictRule {
    /// Returns the changes that prove it.
    pub fn counter_tests(&self) -> impl Iterator<Item = CounterTest> {
        std::iter::once(self.counter_test).chain(self.second_test)
    }

    pub(crate) fn requires(&self, signal: &Signal) -> bool {
        self.required.iter().any(|criterion| criterion.signal.name == signal.name)
    }

    /// Returns true if the signal is one of the alternatives that prove it.
    pub(crate) fn is_proven_by(&self, signal: &Signal) -> bool {
        self.any_of.iter().any(|criterion| criterion.signal.name == signal.name)
    }

    pub(crate) fn is_supported_by(&self, signal: &Signal) -> bool {
        self.supporting.iter().any(|criterion| criterion.signal.name == signal.name)
    }
}
