//! Maximum throughput of the client, from trials against a null origin: per core, in all, with the
//! spread. Also selects the stored calibration for a run, and computes the number of clients that a
//! target needs. Pure: the trials run elsewhere.

use record::units::format_plural;
use serde::{Deserialize, Serialize};
use stats::median;
use stats::quantiles::ascending;

use crate::pace::{Arrivals, Pace};
use crate::plan::{PENDING_MAX, RunPlan, version_name};

/// Shape of a load, as far as it determines the client's maximum throughput.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadProfile {
    /// Bytes of one response, head included, as received from the socket.
    pub response_bytes: u64,
    pub request_bytes: u64,
    pub connections: u64,
    /// Requests on a connection before it is closed; `None` if it stays open.
    pub requests_per_connection: Option<u64>,
    /// True if requests are due by the clock. They then come in smaller batches, and each costs
    /// more than in a saturated closed loop.
    #[serde(default)]
    pub open_loop: bool,
    /// TLS of the connections; `None` without TLS.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tls: Option<TlsProfile>,
    /// HTTP/2 of the connections; `None` if all have HTTP/1.1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub http2: Option<Http2Profile>,
    /// True if connections are those of TCP in user space.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub user_tcp: bool,
}

/// Properties of HTTP/2 that determine the cost of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Http2Profile {
    /// Fraction of the connections with HTTP/2.
    pub fraction: f64,
    pub streams: u64,
}

/// Properties of TLS that determine the cost of a request or a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TlsProfile {
    /// Fraction of the authorities that use TLS.
    pub fraction: f64,
    /// Newest protocol version: `1.2` or `1.3`.
    pub version_max: String,
    /// Fraction of the connections that resume a session; `None` if connections stay open.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resume_fraction: Option<f64>,
}

impl TlsProfile {
    fn from_plan(plan: &RunPlan) -> Option<Self> {
        let settings = plan.tls.as_ref()?;
        let authorities = plan.authorities();
        let with_tls = authorities.iter().filter(|authority| authority.is_tls()).count();
        Some(Self {
            fraction: with_tls as f64 / authorities.len().max(1) as f64,
            version_max: version_name(settings.version_max).to_owned(),
            resume_fraction: plan.requests_per_connection.map(|_| settings.resume_fraction),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrationTrial {
    pub threads: u32,
    pub responses_per_s: f64,
    /// CPUs that the generator's threads used.
    pub generator_cpus: f64,
}

impl CalibrationTrial {
    /// Returns responses per second of CPU time: the rate of a core that does nothing else.
    pub fn per_core_per_s(&self) -> f64 {
        if self.generator_cpus > 0.0 { self.responses_per_s / self.generator_cpus } else { 0.0 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Schema of the file: `weir.calibration/1`.
    pub schema: String,
    /// Time of the calibration, RFC 3339.
    pub made_at: String,
    pub host_fingerprint: String,
    pub weir_version: String,
    pub profile: LoadProfile,
    /// Length of a trial, in s; 0 in a calibration from an older version.
    #[serde(default)]
    pub trial_s: f64,
    /// Responses per second of one fully used core: the median over the trials with one thread, by
    /// their cost of a request.
    pub per_core_per_s: f64,
    /// (max − min) / median of that; `None` for one trial.
    #[serde(default)]
    pub per_core_spread: Option<f64>,
    /// Responses per second of all CPUs with the origin on the same host. A lower bound, and 0
    /// without such trials.
    pub all_with_origin_per_s: f64,
    /// (max − min) / median of that; `None` for one trial.
    #[serde(default)]
    pub all_spread: Option<f64>,
    /// Responses per second of all CPUs, if the origin is elsewhere: CPUs times the rate of a core
    /// in the trials with all of them, or else in the trials with one.
    pub all_per_s: f64,
    pub cpus: u32,
    /// Every trial, in the order of running.
    pub trials: Vec<CalibrationTrial>,
}

pub const SCHEMA: &str = "weir.calibration/1";
/// Planned utilisation of clients: at half of their maximum they do not queue themselves.
pub const CLIENT_UTILISATION: f64 = 0.5;
/// Minimum number of trials for judging later runs. A calibration with fewer or shorter trials is
/// only a quick estimate.
pub const REFERENCE_TRIALS_MIN: usize = 3;
/// Minimum length of these trials, in s; see `REFERENCE_TRIALS_MIN`.
pub const REFERENCE_TRIAL_S_MIN: f64 = 2.0;
/// Relative spread above which a calibration is doubtful.
pub const SPREAD_MAX: f64 = 0.10;

impl LoadProfile {
    /// Returns the shape of `plan`, with the measured size of its responses.
    #[must_use]
    pub fn from_plan(plan: &RunPlan, response_bytes: u64) -> Self {
        let bytes: u64 = plan.requests.iter().map(|request| request.bytes.len() as u64).sum();
        Self {
            response_bytes,
            request_bytes: bytes / plan.requests.len().max(1) as u64,
            connections: plan.connections,
            requests_per_connection: plan.requests_per_connection,
            open_loop: plan.is_open_loop(),
            tls: TlsProfile::from_plan(plan),
            http2: plan
                .http2
                .as_ref()
                .map(|http2| Http2Profile { fraction: http2.fraction, streams: http2.streams }),
            user_tcp: plan.xdp.is_some(),
        }
    }

    /// Returns the distance to another profile; `None` if they cannot be compared.
    fn distance(&self, other: &Self) -> Option<f64> {
        let kind = |profile: &Self| profile.requests_per_connection.map(|count| count.min(10));
        let http2_fraction = |profile: &Self| profile.http2.as_ref().map(|http2| http2.fraction);
        if kind(self) != kind(other)
            || self.open_loop != other.open_loop
            || self.tls != other.tls
            || self.user_tcp != other.user_tcp
            || http2_fraction(self) != http2_fraction(other)
        {
            return None;
        }
        // Below some hundred bytes the size does not change the cost.
        let ratio = |a: u64, b: u64, floor: u64| ((a.max(floor)) as f64 / (b.max(floor)) as f64).log2().abs();
        let size = ratio(self.response_bytes, other.response_bytes, 1_000);
        let request = ratio(self.request_bytes, other.request_bytes, 500);
        let connections = ratio(self.connections, other.connections, 1) / 3.0;
        // More streams share a read and a write, which makes each request cheaper.
        let stream_count = |profile: &Self| profile.http2.as_ref().map_or(1, |http2| http2.streams);
        let streams = ratio(stream_count(self), stream_count(other), 1) / 2.0;
        let is_near = size <= 1.0 && request <= 1.0 && connections <= 1.2 && streams <= 1.0;
        is_near.then_some(size + request + connections + streams)
    }
}

impl std::fmt::Display for LoadProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let connections = format_plural(self.connections, "connection");
        write!(f, "{} B responses, {connections}", self.response_bytes)?;
        match self.requests_per_connection {
            None => f.write_str(", keep-alive")?,
            Some(count) => write!(f, ", {} per connection", format_plural(count, "request"))?,
        }
        f.write_str(if self.open_loop { ", open loop" } else { ", closed loop" })?;
        match &self.http2 {
            Some(http2) if http2.fraction < 1.0 => {
                let streams = format_plural(http2.streams, "stream");
                write!(f, ", HTTP/2 on {:.0} % with {streams}", http2.fraction * 100.0)?;
            }
            Some(http2) => write!(f, ", HTTP/2 with {}", format_plural(http2.streams, "stream"))?,
            None => {}
        }
        match &self.tls {
            None => {}
            Some(TlsProfile { version_max, resume_fraction: None, .. }) => write!(f, ", TLS {version_max}")?,
            Some(TlsProfile { version_max, resume_fraction: Some(fraction), .. }) => {
                write!(f, ", TLS {version_max}, {:.0} % resumed", fraction * 100.0)?;
            }
        }
        f.write_str(if self.user_tcp { ", TCP in user space" } else { "" })
    }
}

impl Calibration {
    /// Returns whether later runs may be compared with it.
    pub fn is_reference(&self) -> bool {
        let single_threaded = self.trials.iter().filter(|trial| trial.threads == 1).count();
        single_threaded >= REFERENCE_TRIALS_MIN && self.trial_s >= REFERENCE_TRIAL_S_MIN
    }

    /// Returns the larger of its spreads; `None` for one trial.
    pub fn max_spread(&self) -> Option<f64> {
        self.per_core_spread.into_iter().chain(self.all_spread).reduce(f64::max)
    }
}

/// Makes a calibration from trials of `trial_s` seconds; trials with one thread are required.
pub fn summarise(
    trials: Vec<CalibrationTrial>,
    cpus: u32,
    profile: LoadProfile,
    trial_s: f64,
    (made_at, host_fingerprint, weir_version): (String, String, String),
) -> Calibration {
    let pick = |threads: u32, value: fn(&CalibrationTrial) -> f64| {
        let matching = trials.iter().filter(|trial| trial.threads == threads);
        matching.map(value).collect::<Vec<_>>()
    };
    let single = pick(1, CalibrationTrial::per_core_per_s);
    let (per_core_per_s, per_core_spread) = median_and_spread(single);
    let (all_with_origin_per_s, all_spread) = median_and_spread(pick(cpus, |trial| trial.responses_per_s));
    let (per_core_of_all, _) = match trials.iter().any(|trial| trial.threads == cpus) {
        true => median_and_spread(pick(cpus, CalibrationTrial::per_core_per_s)),
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
    let median = median(&values).unwrap_or(0.0);
    let spread = (values.len() > 1 && median > 0.0).then(|| (last - first) / median);
    (median, spread)
}

/// Returns the stored calibration that is nearest to `profile`, if one is near enough to compare
/// with.
pub fn find_nearest<'a>(stored: &'a [Calibration], profile: &LoadProfile) -> Option<&'a Calibration> {
    let references = stored.iter().filter(|calibration| calibration.is_reference());
    let near =
        references.filter_map(|calibration| Some((calibration.profile.distance(profile)?, calibration)));
    near.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, calibration)| calibration)
}

/// Returns the number of clients like this one that a target needs, each at half of its maximum.
pub fn clients_needed(target_per_s: f64, calibration: &Calibration) -> Option<u64> {
    let each = calibration.all_per_s * CLIENT_UTILISATION;
    (each > 0.0).then(|| (target_per_s / each).ceil() as u64)
}

/// Returns the plan of one trial: `plan` in a closed loop at full speed.
pub fn trial_plan(plan: &RunPlan, threads: usize, duration_ns: u64) -> RunPlan {
    let mut trial = plan.clone();
    // TCP in user space has a thread for each queue of its interface.
    trial.threads = if plan.xdp.is_some() { plan.threads } else { threads };
    trial.pace = Pace::Closed { think_ns: 0 };
    trial.ramp_ns = 0;
    (trial.stages, trial.replay) = (None, None);
    trial.end.duration_ns = duration_ns;
    trial.end.requests = None;
    trial.objectives.clear();
    trial
}

/// Returns the plan of one trial in an open loop: one thread, at the planned utilisation of the
/// rate that it reached in a closed loop.
pub fn open_trial_plan(plan: &RunPlan, reached_per_s: f64, duration_ns: u64) -> RunPlan {
    let mut trial = trial_plan(plan, 1, duration_ns);
    let rate_per_s = (reached_per_s * CLIENT_UTILISATION).max(1.0);
    trial.pace = Pace::Open { rate_per_s, arrivals: Arrivals::Constant };
    trial.max_pending = ((rate_per_s * trial.timeout_ns as f64 / 1e9) as u64).clamp(1, PENDING_MAX);
    trial
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(response_bytes: u64, connections: u64, per: Option<u64>) -> LoadProfile {
        let requests_per_connection = per;
        LoadProfile {
            response_bytes,
            request_bytes: 40,
            connections,
            requests_per_connection,
            open_loop: false,
            tls: None,
            http2: None,
            user_tcp: false,
        }
    }

    fn calibration(profile: LoadProfile) -> Calibration {
        let trial = |threads, responses_per_s, generator_cpus| CalibrationTrial {
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
    fn the_rate_of_a_core_follows_from_its_cpu_time() {
        let made = calibration(profile(100, 100, None));
        assert!((made.per_core_per_s - 104e3).abs() < 1.0);
        assert!((made.per_core_spread.unwrap() - 10.0 / 104.0).abs() < 1e-9);
        assert!((made.all_with_origin_per_s - 115e3).abs() < 1.0);
        assert!((made.all_per_s - 230e3).abs() < 1.0);
    }

    #[test]
    fn clients_are_planned_at_half_of_their_maximum() {
        let made = calibration(profile(100, 100, None));
        assert_eq!(clients_needed(2e6, &made), Some(18));
        let nothing = summarise(vec![], 2, profile(1, 1, None), 2.0, Default::default());
        assert_eq!(clients_needed(2e6, &nothing), None);
    }

    #[test]
    fn one_trial_has_no_spread_and_a_quick_estimate_is_no_reference() {
        let of = |count: usize, trial_s| {
            let trial = CalibrationTrial { threads: 1, responses_per_s: 50e3, generator_cpus: 0.5 };
            summarise(vec![trial; count], 2, profile(100, 10, None), trial_s, Default::default())
        };
        let single_trial = of(1, 2.0);
        assert_eq!(
            (single_trial.per_core_spread, single_trial.all_spread, single_trial.max_spread()),
            (None, None, None)
        );
        // Without trials of all CPUs, the trials of one are used.
        assert_eq!((single_trial.per_core_per_s, single_trial.all_per_s), (100e3, 200e3));
        assert_eq!(of(3, 2.0).per_core_spread, Some(0.0));
        let selected = [(1, 2.0), (3, 1.0), (3, 2.0)]
            .map(|(count, trial_s)| find_nearest(&[of(count, trial_s)], &profile(100, 10, None)).is_some());
        assert_eq!(selected, [false, false, true]);
    }

    #[test]
    fn an_open_loop_is_held_against_an_open_loop() {
        let open = LoadProfile { open_loop: true, ..profile(300, 100, None) };
        assert!(find_nearest(&[calibration(profile(300, 100, None))], &open).is_none());
        let stored = calibration(open.clone());
        assert_eq!(find_nearest(std::slice::from_ref(&stored), &open), Some(&stored));
    }

    #[test]
    fn tcp_in_user_space_is_held_against_its_like() {
        let user = LoadProfile { user_tcp: true, ..profile(300, 100, None) };
        assert!(user.to_string().ends_with("closed loop, TCP in user space"));
        let stored = [calibration(profile(300, 100, None)), calibration(user.clone())];
        assert_eq!(find_nearest(&stored, &user), Some(&stored[1]));
        assert_eq!(find_nearest(&stored[..1], &user), None);
        assert!(!serde_json::to_string(&stored[0].profile).unwrap().contains("user_tcp"));
    }

    #[test]
    fn tls_is_held_against_the_same_tls() {
        let plain = profile(300, 100, None);
        let tls = TlsProfile { fraction: 1.0, version_max: "1.3".to_owned(), resume_fraction: None };
        let encrypted = LoadProfile { tls: Some(tls.clone()), ..plain.clone() };
        let older = TlsProfile { version_max: "1.2".to_owned(), ..tls.clone() };
        let half = TlsProfile { fraction: 0.5, ..tls };
        let stored = [calibration(plain.clone()), calibration(encrypted.clone())];
        assert_eq!(find_nearest(&stored, &plain), Some(&stored[0]));
        assert_eq!(find_nearest(&stored, &encrypted), Some(&stored[1]));
        assert!(find_nearest(&stored[..1], &encrypted).is_none());
        let resuming = TlsProfile { resume_fraction: Some(0.9), ..older.clone() };
        assert!(
            LoadProfile { tls: Some(resuming), ..plain.clone() }.to_string().ends_with("1.2, 90 % resumed")
        );
        for other in [older, half] {
            assert!(find_nearest(&stored, &LoadProfile { tls: Some(other), ..plain.clone() }).is_none());
        }
        let text = serde_json::to_string(&plain).unwrap();
        assert!(!text.contains("tls"), "{text}");
        assert!(encrypted.to_string().ends_with("closed loop, TLS 1.3"));
    }

    #[test]
    fn only_a_like_profile_is_compared_with() {
        let stored = [
            calibration(profile(300, 100, None)),
            calibration(profile(10_000, 100, None)),
            calibration(profile(300, 100, Some(1))),
        ];
        let near =
            |profile| find_nearest(&stored, &profile).map(|calibration| calibration.profile.response_bytes);
        assert_eq!(near(profile(200, 64, None)), Some(300));
        assert_eq!(near(profile(12_000, 100, None)), Some(10_000));
        assert_eq!(near(profile(1_000_000, 100, None)), None);
        assert_eq!(near(profile(300, 10_000, None)), None);
        assert_eq!(near(profile(300, 50, Some(1))), Some(300));
        assert_eq!(near(profile(300, 50, Some(5))), None);
    }
}
