//! The last look at what was found: what is known when it held, when less did, and when nothing did. Not
//! for which level is tried next, which the search decides.

use record::edge::{Conclusion, End};
use record::units::format_count;

/// Trials after all others, at what was found and below it.
#[derive(Clone, Debug)]
pub(super) struct Rechecking {
    pub(super) level: f64,
    pub(super) missed: u32,
    /// Trials at this level that held, one after the other.
    pub(super) held: u32,
    /// How often the level was lowered because it did not hold any more.
    pub(super) lowered: u32,
    /// What had been verified; `upper` and `reasons` are of the lowest level that did not hold since.
    pub(super) found: Conclusion,
}

impl Rechecking {
    /// The level held: what was verified still does, or this is what does since.
    pub(super) fn held(self) -> Conclusion {
        if self.lowered == 0 {
            return self.found;
        }
        let level = Some(self.level);
        let (verified, verifications) = (self.held, self.held);
        let drift = self.drift(&format!("only {} held", format_count(self.level)));
        Conclusion {
            end: End::Found,
            level,
            lower: level,
            verified,
            verifications,
            drift,
            ..self.found
        }
    }

    /// What is known when it ends without a level that held. What was verified is not so any more, once
    /// it was missed.
    pub(super) fn lost(self, how: &str) -> Conclusion {
        let drift = self.drift(how);
        let (verified, verifications) = (0, 0);
        Conclusion {
            end: End::Drifted,
            level: None,
            lower: None,
            verified,
            verifications,
            drift,
            ..self.found
        }
    }

    fn drift(&self, how: &str) -> Option<String> {
        let verified = format_count(self.found.level.unwrap_or(self.level));
        Some(format!("{verified} was verified, but at the end {how}"))
    }
}
