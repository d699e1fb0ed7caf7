//! The catalogue of bottlenecks, as a table: what each claims, what has to be seen for it, what rules
//! it out, what to do, and which change would prove it.
//!
//! The method is operational analysis (Denning and Buzen 1978; Jain 1991): a resource whose utilisation
//! U = X · D is near 1 can be the bottleneck; where none is, the latency without load, R(1), tells a
//! delay, which more connections can use, from a limit, which they cannot. `proofs` are the necessary
//! conditions of a claim, and each claim needs two families of signals.

mod shared;
mod table;

use super::signals::{Signal, Unit, written};
pub use table::VERDICTS;

/// On which side of its bound a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// A signal and its bound.
#[derive(Clone, Copy, Debug)]
pub struct Sign {
    /// What is looked at.
    pub signal: &'static Signal,
    /// What it has to be.
    pub bound: Bound,
}

impl Sign {
    /// Returns whether a value that is on the right side is so with a margin: chance, or a sample that
    /// is not quite as long as it should be, does not move it across.
    pub(super) fn is_clear(&self, value: f64) -> bool {
        match (self.bound, self.signal.unit) {
            // What is left of a share above its bound counts: 0.85 of 1 is clear at 0.9.
            (Bound::AtLeast(bound), Unit::Share) if bound > 0.5 => {
                value >= bound + (1.0 - bound).max(0.0) / 3.0
            }
            (Bound::AtLeast(bound), _) => value >= bound * 1.25,
            (Bound::AtMost(bound), _) => value <= bound * 0.8,
        }
    }

    /// "at least 92 %".
    #[must_use]
    pub fn bound_in_words(&self) -> String {
        match self.bound {
            Bound::AtLeast(bound) => format!("at least {}", written(bound, self.signal.unit)),
            Bound::AtMost(bound) => format!("at most {}", written(bound, self.signal.unit)),
        }
    }
}

impl std::fmt::Display for Sign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.signal.name, self.bound_in_words())
    }
}

/// What can be changed from outside to prove a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Perturbation {
    /// A second generator beside the first.
    SecondGenerator,
    /// Twice the connections.
    TwiceTheConnections,
    /// Half the connections.
    HalfTheConnections,
    /// Three quarters of the subject's processor time.
    LessProcessorTime,
    /// A new connection for each request, or none.
    KeptConnections,
    /// A pause before each request, half as long as an answer took: more delay, as throughput sees it.
    Pause,
    /// Nothing that can be changed from here.
    Nothing,
}

impl Perturbation {
    /// All changes that can be made, the ones that cost the subject least first.
    pub const ALL: [Self; 6] = [
        Self::Pause,
        Self::TwiceTheConnections,
        Self::HalfTheConnections,
        Self::KeptConnections,
        Self::SecondGenerator,
        Self::LessProcessorTime,
    ];
}

/// What a perturbation does to the throughput if the claim is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It grows by a good part of the change.
    Rises,
    /// It stays.
    Stays,
    /// It falls by a good part of the change.
    Falls,
}

impl Answer {
    /// The word for it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Rises => "rises",
            Self::Stays => "stays",
            Self::Falls => "falls",
        }
    }

    /// The same as a prediction.
    #[must_use]
    pub fn prediction(self) -> &'static str {
        match self {
            Self::Rises => "the throughput rises",
            Self::Stays => "the throughput stays",
            Self::Falls => "the throughput falls",
        }
    }
}

/// The kind of an explanation. Explanations of one class answer changes alike, so no change from outside
/// tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Requests or connections fail: something ran out.
    Failure,
    /// The load generator is full.
    Generator,
    /// CPU time of the subject is full.
    Cpu,
    /// Each request takes a time that does not depend on the load.
    Delay,
    /// Something that is not CPU time admits a bounded number of requests, or bytes, at a time.
    Limit,
}

impl Class {
    /// The response of the throughput to a change if an explanation of this class is true; `None` where
    /// it depends. By the operational laws: X(N) ≤ min(N / R, 1 / D_max) for a closed loop.
    #[must_use]
    pub fn predicts(self, change: Perturbation) -> Option<Answer> {
        use Perturbation as P;
        match (self, change) {
            (Self::Generator, P::SecondGenerator) | (Self::Delay, P::TwiceTheConnections) => {
                Some(Answer::Rises)
            }
            (Self::Cpu, P::LessProcessorTime) | (Self::Delay, P::HalfTheConnections | P::Pause) => {
                Some(Answer::Falls)
            }
            (Self::Delay | Self::Limit, P::LessProcessorTime)
            | (Self::Cpu | Self::Delay | Self::Limit, P::SecondGenerator)
            | (
                Self::Cpu | Self::Limit | Self::Generator,
                P::TwiceTheConnections | P::HalfTheConnections,
            )
            | (Self::Cpu | Self::Limit, P::Pause) => Some(Answer::Stays),
            _ => None,
        }
    }

    /// The explanation that has to be excluded where no other one holds.
    #[must_use]
    pub fn default_rival(self) -> Self {
        match self {
            Self::Generator | Self::Delay => Self::Limit,
            Self::Cpu => Self::Limit,
            Self::Limit | Self::Failure => Self::Delay,
        }
    }
}

/// A change, what it does to the throughput if the claim is true, and that in words.
pub type CounterTest = (Perturbation, Answer, &'static str);

/// One row of the catalogue.
#[derive(Debug)]
pub struct Verdict {
    /// Its code in records.
    pub code: &'static str,
    /// What it claims.
    pub claim: &'static str,
    /// Its kind.
    pub class: Class,
    /// All of these have to hold: the necessary conditions.
    pub proofs: &'static [Sign],
    /// One of these has to hold as well; none where it is empty.
    pub any: &'static [Sign],
    /// And so many of `signs`.
    pub signs_min: usize,
    /// Signs of which some have to hold; each that does adds to the confidence.
    pub signs: &'static [Sign],
    /// What it claims is what was counted, so that one family of signals is a proof.
    pub counted: bool,
    /// The evidence shows the circumstances and not the cause itself: it is never sure, whatever holds. So
    /// it is for errors that were counted (not what made them), and for calls that others make as well.
    pub circumstantial: bool,
    /// One of these rules it out.
    pub unless: &'static [Sign],
    /// With what it is confused.
    pub confusions: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// The change that proves it, and the answer that it predicts.
    pub counter_test: CounterTest,
    /// One more change that has to be answered as predicted, where another claim would pass the first.
    pub second_test: Option<CounterTest>,
    /// Why it cannot be told here at all; empty: it can.
    pub not_observable: &'static str,
}

impl Verdict {
    /// The changes that prove it.
    pub fn counter_tests(&self) -> impl Iterator<Item = CounterTest> {
        std::iter::once(self.counter_test).chain(self.second_test)
    }
}

/// The code of a run without a bottleneck.
pub const NONE: &str = "none";
/// The code of a run whose limit could not be proven.
pub const UNKNOWN: &str = "unknown";

/// The row of a code.
#[must_use]
pub fn verdict(code: &str) -> Option<&'static Verdict> {
    VERDICTS.iter().find(|row| row.code == code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_code_of_the_schema_has_its_row_once() {
        let codes: BTreeSet<&str> = VERDICTS.iter().map(|row| row.code).collect();
        assert_eq!(codes.len(), VERDICTS.len());
        let all = "client_bound user_cpu_bound kernel_cpu_bound single_thread_bound \
            softirq_imbalance link_bound packet_rate_bound latency_bound connection_limited \
            accept_backlog_overflow syn_backlog_overflow port_exhaustion fd_limit memory_pressure \
            bufferbloat packet_loss delayed_ack_stall lock_contention log_write_bound \
            handshake_bound bulk_crypto_bound allocator_bound memory_bandwidth_bound cpu_steal \
            cpu_throttled numa_remote conntrack_full h2_window_bound receive_window_bound \
            origin_bound subject_limited run_invalid";
        assert_eq!(codes, all.split_whitespace().collect());
    }

    #[test]
    fn a_verdict_needs_two_families_or_cannot_be_told() {
        for row in VERDICTS.iter().filter(|row| row.not_observable.is_empty()) {
            let families: BTreeSet<_> = row
                .proofs
                .iter()
                .chain(row.any)
                .chain(row.signs)
                .map(|sign| sign.signal.family)
                .collect();
            assert!(families.len() >= 2 || row.counted, "{}", row.code);
            assert!(row.signs_min <= row.signs.len(), "{}", row.code);
            assert!(row.proofs.len() + row.signs_min >= 1, "{}", row.code);
            for text in [row.claim, row.confusions, row.remedy, row.counter_test.2] {
                assert!(!text.is_empty(), "{}", row.code);
            }
        }
    }
}
