//! What is searched for, and how long trials are. A value; nothing is decided here.

use record::units::SECOND_NS;

use super::plans::idle_ns;

/// What is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Find {
    /// Requests per second.
    Rate,
    /// New connections per second, one request on each.
    ConnectionsPerSecond,
    /// Connections at a time, each with a request now and then.
    Connections,
    /// Bytes per second, of the URL's body.
    Bandwidth,
}

impl Find {
    /// All of them, with their names and what they are.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Rate, "rate", "requests per second"),
        (Self::ConnectionsPerSecond, "connections-per-second", "new connections per second"),
        (Self::Connections, "connections", "connections at a time"),
        (Self::Bandwidth, "bandwidth", "bytes per second of the URL's body"),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Reads a name.
    ///
    /// # Errors
    /// It is none of them, or one that needs what weir does not have.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "handshakes" {
            return Err("TLS is not in weir yet: not available".to_owned());
        }
        let found = Self::ALL.iter().find(|(_, name, _)| *name == text);
        found.map(|(find, _, _)| *find).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(_, name, _)| *name).collect();
            format!("'{text}' cannot be searched for; write {}", names.join(", "))
        })
    }

    /// Where the search starts, and the lowest level that it tries.
    #[must_use]
    pub fn start(self) -> (f64, f64) {
        match self {
            Self::Rate => (100.0, 1.0),
            Self::ConnectionsPerSecond => (50.0, 1.0),
            Self::Connections => (64.0, 1.0),
            Self::Bandwidth => (10.0, 0.1),
        }
    }
}

/// How a search goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The first level.
    pub from: f64,
    /// No level below this is tried.
    pub lowest: f64,
    /// Nor one above this.
    pub highest: f64,
    /// The search is done when the bounds are within this share of the upper one.
    pub width: f64,
    /// Whether levels are whole numbers.
    pub whole: bool,
    /// Length of the trials that come first.
    pub short_ns: u64,
    /// Length of those that decide.
    pub full_ns: u64,
    /// Length of those that verify.
    pub verify_ns: u64,
}

/// Long trials verify so often; two of them have to hold.
pub(super) const VERIFICATIONS: u32 = 3;
/// Trials of the first kind that a search has at the most.
pub(super) const SHORT_TRIALS_MAX: u32 = 40;
/// Trials of the second kind before what was found is verified, however wide it is.
pub(super) const FULL_TRIALS_MAX: u32 = 24;
/// Shares of what was found that are verified, one after the other.
pub(super) const VERIFY_SHARES: [f64; 3] = [1.0, 0.95, 0.90];
/// Requests that a trial should have, so that it has a p99.
const REQUESTS_MIN: f64 = 100.0;
/// No trial is made longer than this for it.
const STRETCHED_NS_MAX: u64 = 10 * SECOND_NS;

impl Settings {
    /// Length of a trial at a rate, which is at least `length_ns`.
    #[must_use]
    pub fn stretched_ns(length_ns: u64, rate_per_s: f64) -> u64 {
        let needed_s = REQUESTS_MIN / rate_per_s.max(1e-3);
        // Rates are counted in whole seconds, once there is one.
        let needed_s = if needed_s > 1.0 { needed_s.ceil() } else { needed_s };
        length_ns.max(((needed_s * 1e9) as u64).min(STRETCHED_NS_MAX))
    }

    /// How long the search takes: as a rule, and when it is given up, in ns, without what comes behind it.
    #[must_use]
    pub fn duration_ns(&self) -> (u64, u64) {
        let growth = 12;
        // Levels that are whole are connections, whose trials have a length of their own.
        let length_ns = |asked_ns| match self.whole {
            true => idle_ns(self.from, asked_ns),
            false => asked_ns,
        };
        let [short_ns, full_ns] = [self.short_ns, self.full_ns].map(length_ns);
        let verify_ns = u64::from(VERIFICATIONS) * length_ns(self.verify_ns);
        let usual_ns = (growth + 5) * short_ns + 6 * full_ns + verify_ns;
        let at_first_ns = |length_ns| match self.whole {
            true => length_ns,
            false => Self::stretched_ns(length_ns, self.from),
        };
        let narrowing_ns = u64::from(SHORT_TRIALS_MAX) * at_first_ns(short_ns)
            + 2 * u64::from(FULL_TRIALS_MAX) * at_first_ns(full_ns);
        let most_ns = narrowing_ns + 2 * (VERIFY_SHARES.len() as u64 + 1) * verify_ns;
        // Connecting, and bringing what is in flight to its end, are not in the length of a trial.
        (usual_ns, most_ns * 3 / 2)
    }
}
