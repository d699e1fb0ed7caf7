//! Final check of the found level, and its conclusions: the level held, a lower one held, or none
//! did. The search chooses the next level.

use record::capacity_search::{Conclusion, SearchEnd};
use record::units::format_count;

/// Trials after all others, at the found level and below it.
#[derive(Clone, Debug)]
pub(super) struct Recheck {
    pub(super) level: f64,
    pub(super) missed: u32,
    /// Number of consecutive trials at this level that held.
    pub(super) held: u32,
    /// Number of times that the level was lowered because it no longer held.
    pub(super) lowered: u32,
    /// Verified conclusion; `upper` and `reasons` are those of the lowest level that did not hold
    /// since.
    pub(super) verified_conclusion: Conclusion,
}

impl Recheck {
    /// Returns the conclusion for a level that held: the verified one, or this level in its place.
    pub(super) fn conclude_held(self) -> Conclusion {
        if self.lowered == 0 {
            return self.verified_conclusion;
        }
        let level = Some(self.level);
        let (verified, verifications) = (self.held, self.held);
        let drift = self.drift_text(&format!("only {} held", format_count(self.level)));
        Conclusion {
            end: SearchEnd::Found,
            level,
            lower: level,
            verified,
            verifications,
            drift,
            ..self.verified_conclusion
        }
    }

    /// Returns the conclusion without a level that held. A verified level that was missed no longer
    /// counts as verified.
    pub(super) fn conclude_drifted(self, reason: &str) -> Conclusion {
        let drift = self.drift_text(reason);
        let (verified, verifications) = (0, 0);
        Conclusion {
            end: SearchEnd::Drifted,
            level: None,
            lower: None,
            verified,
            verifications,
            drift,
            ..self.verified_conclusion
        }
    }

    fn drift_text(&self, reason: &str) -> Option<String> {
        let verified = format_count(self.verified_conclusion.level.unwrap_or(self.level));
        Some(format!("{verified} was verified, but at the end {reason}"))
    }
}
