//! Tests of a search with simulated subjects: c servers with a queue, noise, and a capacity that
//! changes during the search.

use record::units::SECOND_NS;

use super::*;
use crate::capacity_search::settings::{FULL_TRIALS_MAX, SHORT_TRIALS_MAX};

const SETTINGS: SearchSettings = SearchSettings {
    first_level: 100.0,
    min_level: 1.0,
    max_level: 1e9,
    max_gap: 0.02,
    integer_levels: false,
    short_trial_ns: 2 * SECOND_NS,
    full_trial_ns: 10 * SECOND_NS,
    verify_trial_ns: 60 * SECOND_NS,
};

/// Many servers in parallel, by Sakasegawa's approximation of M/M/c.
struct SimulatedSubject {
    servers: f64,
    service_s: f64,
    p99_max_s: f64,
    /// Relative spread of a measured p99, of one second; longer trials are steadier.
    noise: f64,
    /// Probability that an unrelated event makes a trial miss.
    mishap: f64,
    /// Change of the service time per second.
    drift: f64,
    random: fastrand::Rng,
    time_s: f64,
}

impl SimulatedSubject {
    fn new(servers: f64, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let (service_s, p99_max_s) = (0.001, 0.02);
        Self { servers, service_s, p99_max_s, noise: 0.0, mishap: 0.0, drift: 0.0, random, time_s: 0.0 }
    }

    fn p99_s(&self, rate: f64, length_s: f64) -> f64 {
        let service_s = self.service_s * (1.0 + self.drift * self.time_s);
        let load = rate * service_s / self.servers;
        let exponent = (2.0 * (self.servers + 1.0)).sqrt() - 1.0;
        let stationary = |load: f64| load.powf(exponent) / (self.servers * (1.0 - load));
        // The queue cannot exceed the excess of arrivals within the trial.
        let max_waiting = length_s / service_s;
        let waits = stationary(load.min(0.9999)).min(max_waiting) + (load - 1.0).max(0.0) * max_waiting;
        4.6 * service_s * (1.0 + waits)
    }

    /// Returns the highest rate that holds at the current time.
    fn truth(&self) -> f64 {
        let (mut low, mut high) = (0.0, 10.0 * self.servers / self.service_s);
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if self.p99_s(middle, 60.0) < self.p99_max_s { low = middle } else { high = middle }
        }
        low
    }

    fn outcome(&mut self, spec: &TrialSpec) -> LevelOutcome {
        let length_s = spec.length_ns as f64 / 1e9;
        self.time_s += length_s;
        let spread = self.noise / length_s.sqrt();
        let factor = (spread * (self.random.f64() + self.random.f64() - 1.0) * 2.4).exp();
        let missed =
            self.p99_s(spec.level, length_s) * factor >= self.p99_max_s || self.random.f64() < self.mishap;
        if missed { LevelOutcome::Missed } else { LevelOutcome::Held }
    }
}

/// Runs a search to its end. Returns the conclusion and the number of trials.
fn run_search(
    search: &mut LevelSearch,
    mut outcome: impl FnMut(&TrialSpec) -> LevelOutcome,
) -> (Conclusion, u32) {
    let max_trials = 3 * (SHORT_TRIALS_MAX + 2 * FULL_TRIALS_MAX + 30);
    for trials in 0..max_trials {
        match search.next() {
            SearchStep::Ended(conclusion) => return (conclusion, trials),
            SearchStep::Run(spec) => search.record_outcome(outcome(&spec), &["a reason".to_owned()]),
        }
    }
    panic!("it does not end: {search:?}");
}

fn search(settings: SearchSettings, subject: &mut SimulatedSubject) -> (Conclusion, u32) {
    run_search(&mut LevelSearch::new(settings), |spec| subject.outcome(spec))
}

#[test]
fn a_steady_subject_is_found_within_two_percent() {
    for servers in [1.0, 4.0, 64.0, 3000.0] {
        let mut subject = SimulatedSubject::new(servers, 1);
        let (conclusion, trials) = search(SETTINGS, &mut subject);
        let truth = subject.truth();
        let level = conclusion.level.unwrap();
        assert_eq!((conclusion.end, conclusion.verified, conclusion.verifications), (SearchEnd::Found, 3, 3));
        assert!((level / truth - 1.0).abs() < 0.021, "{servers}: {level} for {truth}");
        assert!(conclusion.lower <= Some(truth) && conclusion.upper >= Some(truth), "{conclusion:?}");
        assert!(trials < 35, "{servers}: {trials}");
    }
}

#[test]
fn noise_moves_it_by_less_than_five_percent() {
    let mut far = 0;
    for seed in 0..256 {
        let mut subject = SimulatedSubject::new(8.0, seed);
        (subject.noise, subject.mishap) = (0.3, 0.03);
        let (conclusion, _) = search(SETTINGS, &mut subject);
        let level = conclusion.level.or(conclusion.lower).unwrap_or(0.0);
        far += u32::from((level / subject.truth() - 1.0).abs() > 0.05);
    }
    assert!(far <= 8, "{far} of 256 are off by more than 5 %");
}

#[test]
fn a_subject_that_gets_slower_is_found_as_it_is_at_the_end() {
    for seed in 0..64 {
        let mut subject = SimulatedSubject::new(8.0, seed);
        (subject.noise, subject.drift) = (0.1, 0.0002);
        let mut search = LevelSearch::new(SETTINGS);
        run_search(&mut search, |spec| subject.outcome(spec));
        // A ladder runs meanwhile.
        subject.time_s += 240.0;
        search.start_recheck();
        let (conclusion, _) = run_search(&mut search, |spec| subject.outcome(spec));
        let level = conclusion.level.unwrap();
        assert!(conclusion.drift.is_some() && conclusion.lower == conclusion.level, "{conclusion:?}");
        assert!((level / subject.truth() - 1.0).abs() < 0.06, "{conclusion:?} {}", subject.truth());
    }
}

/// Returns a search that found about 1,000, and is rechecking it.
fn rechecking(settings: SearchSettings) -> (LevelSearch, f64) {
    let mut search = LevelSearch::new(settings);
    let (conclusion, _) =
        run_search(
            &mut search,
            |spec| {
                if spec.level <= 1000.0 { LevelOutcome::Held } else { LevelOutcome::Missed }
            },
        );
    search.start_recheck();
    (search, conclusion.level.unwrap())
}

#[test]
fn what_does_not_hold_any_more_is_not_what_was_found() {
    let (mut search, verified) = rechecking(SETTINGS);
    let limit = 0.93 * verified;
    let (conclusion, _) = run_search(&mut search, |spec| {
        assert_eq!(spec.purpose, TrialPurpose::Recheck);
        if spec.level <= limit { LevelOutcome::Held } else { LevelOutcome::Missed }
    });
    let level = conclusion.level.unwrap();
    assert!(conclusion.end == SearchEnd::Found && level <= limit && level > 0.9 * verified, "{conclusion:?}");
    assert_eq!((conclusion.verified, conclusion.verifications), (2, 2));
    assert!(conclusion.upper.unwrap() > limit && conclusion.upper.unwrap() < verified, "{conclusion:?}");

    let (mut search, verified) = rechecking(SETTINGS);
    let (conclusion, trials) = run_search(&mut search, |_| LevelOutcome::Missed);
    assert_eq!(
        (conclusion.end, conclusion.level, conclusion.lower),
        (SearchEnd::Drifted, None, None),
        "{conclusion:?}"
    );
    assert!(conclusion.upper.unwrap() < 0.82 * verified && trials == 10, "{conclusion:?}");
    let drift = conclusion.drift.unwrap();
    assert!(drift.contains("was verified") && drift.contains("not even"), "{drift}");
    // The highest allowed level is no exception.
    let (mut search, _) = rechecking(SearchSettings { max_level: 800.0, ..SETTINGS });
    assert_eq!(run_search(&mut search, |_| LevelOutcome::Missed).0.end, SearchEnd::Drifted);
}

#[test]
fn a_recheck_that_ends_early_keeps_what_was_not_refuted_and_nothing_else() {
    let missed = |search: &mut LevelSearch, times: u32| {
        (0..times).for_each(|_| search.record_outcome(LevelOutcome::Missed, &["slow".to_owned()]));
    };
    // One miss is chance, two are not.
    for (times, end) in
        [(0, SearchEnd::Found), (1, SearchEnd::Found), (2, SearchEnd::Drifted), (5, SearchEnd::Drifted)]
    {
        let (mut search, verified) = rechecking(SETTINGS);
        missed(&mut search, times);
        let by_hand = search.current_conclusion();
        assert_eq!(by_hand.end, end, "{times}");
        assert_eq!(by_hand.level.is_some(), end == SearchEnd::Found);
        let (conclusion, _) = run_search(&mut search, |_| LevelOutcome::Undecided);
        assert_eq!(conclusion.end, end, "{times}");
        assert!(conclusion.drift.is_some() && conclusion.level.is_none_or(|level| level == verified));
    }
}

#[test]
fn what_is_named_held_in_the_last_two_checks() {
    let (held, missed) = (LevelOutcome::Held, LevelOutcome::Missed);
    let checks: [(&[LevelOutcome], bool); 4] = [
        (&[held, held], true),
        (&[missed, held, held], true),
        (&[held, missed, held, held], true),
        (&[held, missed, missed], false),
    ];
    for (outcomes, stays) in checks {
        let (mut search, verified) = rechecking(SETTINGS);
        for outcome in outcomes {
            let SearchStep::Run(spec) = search.next() else { panic!("one check is not enough") };
            assert_eq!(spec.level, verified);
            search.record_outcome(*outcome, &["slow".to_owned()]);
        }
        let ended =
            matches!(search.next(), SearchStep::Ended(conclusion) if conclusion.level == Some(verified));
        assert_eq!(ended, stays, "{outcomes:?}");
    }
}

#[test]
fn few_connections_are_lowered_by_one_at_least() {
    let settings = SearchSettings { integer_levels: true, first_level: 8.0, ..SETTINGS };
    let mut search = LevelSearch::new(settings);
    let at_most = |max_level: f64| {
        move |spec: &TrialSpec| {
            if spec.level <= max_level { LevelOutcome::Held } else { LevelOutcome::Missed }
        }
    };
    run_search(&mut search, at_most(6.0));
    search.start_recheck();
    assert_eq!(run_search(&mut search, at_most(4.0)).0.level, Some(4.0));
}

#[test]
fn chance_alone_never_makes_it_endless() {
    for seed in 0..512 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut search = LevelSearch::new(SearchSettings { integer_levels: seed % 2 == 0, ..SETTINGS });
        let outcomes =
            [LevelOutcome::Held, LevelOutcome::Missed, LevelOutcome::Missed, LevelOutcome::Undecided];
        let mut outcome = |_: &TrialSpec| outcomes[random.usize(..3 + (seed % 2) as usize)];
        run_search(&mut search, &mut outcome);
        search.start_recheck();
        run_search(&mut search, &mut outcome);
    }
}

#[test]
fn a_limited_generator_ends_it_with_a_lower_bound() {
    let mut search = LevelSearch::new(SETTINGS);
    let (conclusion, _) = run_search(&mut search, |spec| {
        if spec.level > 5000.0 { LevelOutcome::Undecided } else { LevelOutcome::Held }
    });
    assert_eq!(
        (conclusion.end, conclusion.lower, conclusion.limited_at),
        (SearchEnd::GeneratorLimit, Some(3200.0), Some(6400.0))
    );
    assert_eq!(conclusion.reasons, ["a reason"]);
    let mut once = 0;
    let (conclusion, _) = run_search(&mut LevelSearch::new(SETTINGS), |spec| {
        once += u32::from(spec.level > 1000.0);
        if once == 1 || once == 2 {
            LevelOutcome::Undecided
        } else if spec.level > 5000.0 {
            LevelOutcome::Missed
        } else {
            LevelOutcome::Held
        }
    });
    assert_eq!(conclusion.end, SearchEnd::Found, "two undecided trials are repeated");
}

#[test]
fn what_never_or_always_holds_ends_at_the_bounds() {
    let (conclusion, trials) = run_search(&mut LevelSearch::new(SETTINGS), |_| LevelOutcome::Missed);
    assert_eq!(
        (conclusion.end, conclusion.level, conclusion.upper),
        (SearchEnd::BelowLowest, None, Some(1.0))
    );
    assert!(trials < 6, "{trials}");
    let settings = SearchSettings { max_level: 1000.0, ..SETTINGS };
    let (conclusion, _) = run_search(&mut LevelSearch::new(settings), |_| LevelOutcome::Held);
    assert_eq!(
        (conclusion.end, conclusion.level, conclusion.upper),
        (SearchEnd::MaxLevel, Some(1000.0), None)
    );
}

#[test]
fn what_holds_only_for_a_moment_is_lowered_and_then_given_up() {
    let long = |from: f64| {
        move |spec: &TrialSpec| {
            let limit = if spec.purpose == TrialPurpose::Verify { from } else { 1000.0 };
            if spec.level < limit { LevelOutcome::Held } else { LevelOutcome::Missed }
        }
    };
    let (conclusion, _) = run_search(&mut LevelSearch::new(SETTINGS), long(960.0));
    let level = conclusion.level.unwrap();
    assert!((0.93..0.96).contains(&(level / 1000.0)) && conclusion.drift.is_some(), "{conclusion:?}");
    assert!(conclusion.upper.unwrap() / level < 1.03, "one between was tried: {conclusion:?}");
    let (conclusion, _) = run_search(&mut LevelSearch::new(SETTINGS), long(0.0));
    assert_eq!((conclusion.end, conclusion.level), (SearchEnd::NotVerified, None));
}

#[test]
fn integer_levels_are_found_exactly_where_they_are_few() {
    let settings = SearchSettings { integer_levels: true, first_level: 64.0, ..SETTINGS };
    let (conclusion, _) = run_search(&mut LevelSearch::new(settings), |spec| {
        assert_eq!(spec.level, spec.level.round());
        if spec.level <= 23.0 { LevelOutcome::Held } else { LevelOutcome::Missed }
    });
    assert_eq!((conclusion.level, conclusion.upper), (Some(23.0), Some(24.0)));
}

#[test]
fn the_duration_is_bounded_and_estimated() {
    let (usual_ns, max_ns) = SETTINGS.duration_ns();
    assert!(usual_ns < 6 * 60 * SECOND_NS && max_ns > usual_ns);
    assert_eq!(SearchSettings::stretched_ns(2 * SECOND_NS, 10_000.0), 2 * SECOND_NS);
    assert_eq!(SearchSettings::stretched_ns(2 * SECOND_NS, 20.0), 5 * SECOND_NS);
    assert_eq!(SearchSettings::stretched_ns(2 * SECOND_NS, 1.0), 10 * SECOND_NS);
}

#[test]
fn the_time_for_connections_is_that_of_their_trials() {
    let (second_ns, tenth_ns) = (SECOND_NS, SECOND_NS / 10);
    let with = |from, short_ns, full_ns, verify_ns| {
        let settings = SearchSettings {
            integer_levels: true,
            first_level: from,
            short_trial_ns: short_ns,
            full_trial_ns: full_ns,
            verify_trial_ns: verify_ns,
            ..SETTINGS
        };
        settings.duration_ns()
    };
    // None of them is shorter than a second, nor than the time for a request on each connection.
    let short = |from| with(from, tenth_ns, 2 * tenth_ns, 5 * tenth_ns);
    assert_eq!(short(10.0), with(10.0, second_ns, second_ns, second_ns));
    let long_ns = 11 * second_ns;
    assert_eq!(short(10_000.0), with(10_000.0, long_ns, long_ns, long_ns));
    assert!(short(10_000.0).1 > short(10.0).1);
}
