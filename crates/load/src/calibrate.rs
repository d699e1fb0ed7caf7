//! What a client can do at the most, from trials against a null origin: per core, in all, with the
//! spread; which stored calibration a run is held against; and how many clients a target needs.
//! Pure: the trials are run elsewhere.

use serde::{Deserialize, Serialize};

use crate::pace::Pace;
use crate::plan::{Arrivals, LINE_MAX, Plan};
use crate::quantiles::{ascending, quantile};

/// The shape of a load, as far as it decides what the client can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Bytes of one response, head included, as seen on the socket.
    pub response_bytes: u64,
    /// Bytes of one request.
    pub request_bytes: u64,
    /// Connections at a time.
    pub connections: u64,
    /// Requests on a connection before it is closed; `None`: kept open.
    pub requests_per_connection: Option<u64>,
    /// Whether requests come by the clock: then they come in smaller batches, and each costs more than in
    /// a saturated closed loop.
    #[serde(default)]
    pub open_loop: bool,
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Generator threads.
    pub threads: u32,
    /// Complete responses per second.
    pub responses_per_s: f64,
    /// Processors that the generator's threads used.
    pub generator_cpus: f64,
}

impl Trial {
    /// Responses per second of processor time: what a core would do that did nothing else.
    #[must_use]
    pub fn per_core_per_s(&self) -> f64 {
        if self.generator_cpus > 0.0 { self.responses_per_s / self.generator_cpus } else { 0.0 }
    }
}

/// What the trials say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// `weir.calibration/1`.
    pub schema: String,
    /// When it was made, RFC 3339.
    pub made_at: String,
    /// The host it was made on.
    pub host_fingerprint: String,
    /// Version of weir.
    pub weir_version: String,
    /// The load's shape.
    pub profile: Profile,
    /// Length of a trial, in s; 0 in a calibration from an older version.
    #[serde(default)]
    pub trial_s: f64,
    /// Responses per second of one fully used core, at the cost that a request had in the trials with
    /// one thread; their median.
    pub per_core_per_s: f64,
    /// (max − min) / median of that; `None` of one trial.
    #[serde(default)]
    pub per_core_spread: Option<f64>,
    /// Responses per second that all processors reached with the origin beside them; a lower bound, and 0
    /// without such trials.
    pub all_with_origin_per_s: f64,
    /// (max − min) / median of that; `None` of one trial.
    #[serde(default)]
    pub all_spread: Option<f64>,
    /// Responses per second of all processors, if the origin is elsewhere: processors times what a
    /// core did in the trials with all of them, or with one where there are no others.
    pub all_per_s: f64,
    /// Processors of the host.
    pub cpus: u32,
    /// Every trial, in the order in which they were run.
    pub trials: Vec<Trial>,
}

/// The schema of a stored calibration.
pub const SCHEMA: &str = "weir.calibration/1";
/// Clients are planned to run at half of what they can do, so that they do not queue themselves.
pub const CLIENT_UTILISATION: f64 = 0.5;
/// A calibration of fewer trials, or of shorter ones, is a quick look and judges no later run.
pub const JUDGING_TRIALS_MIN: usize = 3;
/// See [`JUDGING_TRIALS_MIN`].
pub const JUDGING_TRIAL_S_MIN: f64 = 2.0;
/// More relative spread than this makes a calibration doubtful.
pub const SPREAD_MAX: f64 = 0.10;

impl Profile {
    /// The shape of `plan`, with the size of its responses as they were seen.
    #[must_use]
    pub fn of(plan: &Plan, response_bytes: u64) -> Self {
        let bytes: u64 = plan.requests.iter().map(|request| request.bytes.len() as u64).sum();
        Self {
            response_bytes,
            request_bytes: bytes / plan.requests.len().max(1) as u64,
            connections: plan.connections,
            requests_per_connection: plan.requests_per_connection,
            open_loop: plan.is_open_loop(),
        }
    }

    /// How far another profile is from this one; `None` when they cannot be compared.
    fn distance(&self, other: &Self) -> Option<f64> {
        let kind = |profile: &Self| profile.requests_per_connection.map(|count| count.min(10));
        if kind(self) != kind(other) || self.open_loop != other.open_loop {
            return None;
        }
        // Below some hundred bytes the size makes no difference to the cost.
        let ratio = |a: u64, b: u64, floor: u64| {
            ((a.max(floor)) as f64 / (b.max(floor)) as f64).log2().abs()
        };
        let size = ratio(self.response_bytes, other.response_bytes, 1_000);
        let request = ratio(self.request_bytes, other.request_bytes, 500);
        let connections = ratio(self.connections, other.connections, 1) / 3.0;
        (size <= 1.0 && request <= 1.0 && connections <= 1.2)
            .then_some(size + request + connections)
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} B answers, {} connections", self.response_bytes, self.connections)?;
        match self.requests_per_connection {
            None => f.write_str(", kept open")?,
            Some(count) => write!(f, ", {count} requests each")?,
        }
        f.write_str(if self.open_loop { ", open loop" } else { ", closed loop" })
    }
}

impl Calibration {
    /// Whether later runs may be held against it.
    #[must_use]
    pub fn judges(&self) -> bool {
        let of_one_thread = self.trials.iter().filter(|trial| trial.threads == 1).count();
        of_one_thread >= JUDGING_TRIALS_MIN && self.trial_s >= JUDGING_TRIAL_S_MIN
    }

    /// The larger of its spreads; `None` of one trial.
    #[must_use]
    pub fn spread_max(&self) -> Option<f64> {
        self.per_core_spread.into_iter().chain(self.all_spread).reduce(f64::max)
    }
}

/// Makes a calibration of trials of `trial_s` seconds; those with one thread are needed.
#[must_use]
pub fn summarise(
    trials: Vec<Trial>,
    cpus: u32,
    profile: Profile,
    trial_s: f64,
    (made_at, host_fingerprint, weir_version): (String, String, String),
) -> Calibration {
    let pick = |threads: u32, value: fn(&Trial) -> f64| {
        let of = trials.iter().filter(|trial| trial.threads == threads);
        of.map(value).collect::<Vec<_>>()
    };
    let single = pick(1, Trial::per_core_per_s);
    let (per_core_per_s, per_core_spread) = median_and_spread(single);
    let (all_with_origin_per_s, all_spread) =
        median_and_spread(pick(cpus, |trial| trial.responses_per_s));
    let (per_core_of_all, _) = match trials.iter().any(|trial| trial.threads == cpus) {
        true => median_and_spread(pick(cpus, Trial::per_core_per_s)),
        false => (per_core_per_s, None),
    };
    Calibration {
        schema: SCHEMA.to_owned(),
        made_at,
        host_fingerprint,
        weir_version,
        profile,
        trial_s,
        per_core_per_s,
        per_core_spread,
        all_with_origin_per_s,
        all_spread,
        all_per_s: per_core_of_all * f64::from(cpus),
        cpus,
        trials,
    }
}

fn median_and_spread(values: Vec<f64>) -> (f64, Option<f64>) {
    let values = ascending(values);
    let (Some(first), Some(last)) = (values.first(), values.last()) else {
        return (0.0, None);
    };
    let median = quantile(&values, 0.5);
    let spread = (values.len() > 1 && median > 0.0).then(|| (last - first) / median);
    (median, spread)
}

/// The stored calibration that is nearest to `profile`, if one is near enough to compare with.
#[must_use]
pub fn nearest<'a>(stored: &'a [Calibration], profile: &Profile) -> Option<&'a Calibration> {
    let judging = stored.iter().filter(|one| one.judges());
    let near = judging.filter_map(|one| Some((one.profile.distance(profile)?, one)));
    near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, calibration)| calibration)
}

/// How many clients like this one a target needs, each at half of what it can do.
#[must_use]
pub fn clients_needed(target_per_s: f64, calibration: &Calibration) -> Option<u64> {
    let each = calibration.all_per_s * CLIENT_UTILISATION;
    (each > 0.0).then(|| (target_per_s / each).ceil() as u64)
}

/// The plan of one trial: `plan` in a closed loop, as fast as it goes.
#[must_use]
pub fn trial_plan(plan: &Plan, threads: usize, duration_ns: u64) -> Plan {
    let mut trial = plan.clone();
    trial.threads = threads;
    trial.pace = Pace::Closed { think_ns: 0 };
    trial.ramp_ns = 0;
    trial.end.duration_ns = duration_ns;
    trial.end.requests = None;
    trial.objectives.clear();
    trial
}

/// The plan of one trial in an open loop: one thread, at the utilisation that clients are planned for, of
/// what it reached in a closed loop.
#[must_use]
pub fn open_trial_plan(plan: &Plan, reached_per_s: f64, duration_ns: u64) -> Plan {
    let mut trial = trial_plan(plan, 1, duration_ns);
    let rate_per_s = (reached_per_s * CLIENT_UTILISATION).max(1.0);
    trial.pace = Pace::Open { rate_per_s, arrivals: Arrivals::Constant };
    trial.line_max = ((rate_per_s * trial.timeout_ns as f64 / 1e9) as u64).clamp(1, LINE_MAX);
    trial
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(response_bytes: u64, connections: u64, per: Option<u64>) -> Profile {
        let requests_per_connection = per;
        let open_loop = false;
        Profile {
            response_bytes,
            request_bytes: 40,
            connections,
            requests_per_connection,
            open_loop,
        }
    }

    fn calibration(profile: Profile) -> Calibration {
        let trial = |threads, responses_per_s, generator_cpus| Trial {
            threads,
            responses_per_s,
            generator_cpus,
        };
        let trials = vec![
            trial(1, 90e3, 0.9),
            trial(2, 120e3, 1.0),
            trial(1, 104e3, 1.0),
            trial(1, 99e3, 0.9),
            trial(2, 110e3, 1.0),
        ];
        summarise(trials, 2, profile, 2.0, Default::default())
    }

    #[test]
    fn a_core_is_what_its_processor_time_yields() {
        let made = calibration(profile(100, 100, None));
        assert!((made.per_core_per_s - 104e3).abs() < 1.0);
        assert!((made.per_core_spread.unwrap() - 10.0 / 104.0).abs() < 1e-9);
        assert!((made.all_with_origin_per_s - 115e3).abs() < 1.0);
        assert!((made.all_per_s - 230e3).abs() < 1.0);
    }

    #[test]
    fn clients_are_planned_at_half_of_what_they_can_do() {
        let made = calibration(profile(100, 100, None));
        assert_eq!(clients_needed(2e6, &made), Some(18));
        let nothing = summarise(vec![], 2, profile(1, 1, None), 2.0, Default::default());
        assert_eq!(clients_needed(2e6, &nothing), None);
    }

    #[test]
    fn one_trial_has_no_spread_and_a_quick_look_judges_nothing() {
        let of = |count: usize, trial_s| {
            let trial = Trial { threads: 1, responses_per_s: 50e3, generator_cpus: 0.5 };
            summarise(vec![trial; count], 2, profile(100, 10, None), trial_s, Default::default())
        };
        let one = of(1, 2.0);
        assert_eq!((one.per_core_spread, one.all_spread, one.spread_max()), (None, None, None));
        // Without trials of all processors, those of one are all that is known.
        assert_eq!((one.per_core_per_s, one.all_per_s), (100e3, 200e3));
        assert_eq!(of(3, 2.0).per_core_spread, Some(0.0));
        let judges = [(1, 2.0), (3, 1.0), (3, 2.0)].map(|(count, trial_s)| {
            nearest(&[of(count, trial_s)], &profile(100, 10, None)).is_some()
        });
        assert_eq!(judges, [false, false, true]);
    }

    #[test]
    fn an_open_loop_is_held_against_an_open_loop() {
        let open = Profile { open_loop: true, ..profile(300, 100, None) };
        assert!(nearest(&[calibration(profile(300, 100, None))], &open).is_none());
        let found = calibration(open.clone());
        assert_eq!(nearest(std::slice::from_ref(&found), &open), Some(&found));
    }

    #[test]
    fn only_a_like_profile_is_compared_with() {
        let stored = [
            calibration(profile(300, 100, None)),
            calibration(profile(10_000, 100, None)),
            calibration(profile(300, 100, Some(1))),
        ];
        let near = |profile| nearest(&stored, &profile).map(|found| found.profile.response_bytes);
        assert_eq!(near(profile(200, 64, None)), Some(300));
        assert_eq!(near(profile(12_000, 100, None)), Some(10_000));
        assert_eq!(near(profile(1_000_000, 100, None)), None);
        assert_eq!(near(profile(300, 10_000, None)), None);
        assert_eq!(near(profile(300, 50, Some(1))), Some(300));
        assert_eq!(near(profile(300, 50, Some(5))), None);
    }
}
