//! A search against subjects that are only arithmetic: c servers with a queue before them, noise, and a
//! capacity that changes while the search goes on.

use record::units::SECOND_NS;

use super::*;
use crate::edge::settings::{FULL_TRIALS_MAX, SHORT_TRIALS_MAX};

const SETTINGS: Settings = Settings {
    from: 100.0,
    lowest: 1.0,
    highest: 1e9,
    width: 0.02,
    whole: false,
    short_ns: 2 * SECOND_NS,
    full_ns: 10 * SECOND_NS,
    verify_ns: 60 * SECOND_NS,
};

/// Many servers in parallel, as Sakasegawa's approximation of M/M/c has it.
struct Subject {
    servers: f64,
    service_s: f64,
    p99_max_s: f64,
    /// Relative spread of a measured p99, of one second; longer trials are steadier.
    noise: f64,
    /// Chance that something else makes a trial miss.
    mishap: f64,
    /// Change of the service time per second.
    drift: f64,
    random: fastrand::Rng,
    time_s: f64,
}

impl Subject {
    fn new(servers: f64, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let (service_s, p99_max_s) = (0.001, 0.02);
        Self {
            servers,
            service_s,
            p99_max_s,
            noise: 0.0,
            mishap: 0.0,
            drift: 0.0,
            random,
            time_s: 0.0,
        }
    }

    fn p99_s(&self, rate: f64, length_s: f64) -> f64 {
        let service_s = self.service_s * (1.0 + self.drift * self.time_s);
        let load = rate * service_s / self.servers;
        let exponent = (2.0 * (self.servers + 1.0)).sqrt() - 1.0;
        let stationary = |load: f64| load.powf(exponent) / (self.servers * (1.0 - load));
        // What queues up cannot be more than what came too much within the trial.
        let most = length_s / service_s;
        let waits = stationary(load.min(0.9999)).min(most) + (load - 1.0).max(0.0) * most;
        4.6 * service_s * (1.0 + waits)
    }

    /// The highest rate that holds, at a time.
    fn truth(&self) -> f64 {
        let (mut low, mut high) = (0.0, 10.0 * self.servers / self.service_s);
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if self.p99_s(middle, 60.0) < self.p99_max_s { low = middle } else { high = middle }
        }
        low
    }

    fn outcome(&mut self, ask: &Ask) -> Outcome {
        let length_s = ask.length_ns as f64 / 1e9;
        self.time_s += length_s;
        let spread = self.noise / length_s.sqrt();
        let factor = (spread * (self.random.f64() + self.random.f64() - 1.0) * 2.4).exp();
        let missed = self.p99_s(ask.level, length_s) * factor >= self.p99_max_s
            || self.random.f64() < self.mishap;
        if missed { Outcome::Missed } else { Outcome::Held }
    }
}

/// Runs a search to its end, with the number of trials.
fn drive(search: &mut Search, mut outcome: impl FnMut(&Ask) -> Outcome) -> (Conclusion, u32) {
    let most = 3 * (SHORT_TRIALS_MAX + 2 * FULL_TRIALS_MAX + 30);
    for trials in 0..most {
        match search.next() {
            Step::Ended(conclusion) => return (conclusion, trials),
            Step::Try(ask) => search.tell(outcome(&ask), &["a reason".to_owned()]),
        }
    }
    panic!("it does not end: {search:?}");
}

fn search(settings: Settings, subject: &mut Subject) -> (Conclusion, u32) {
    drive(&mut Search::new(settings), |ask| subject.outcome(ask))
}

#[test]
fn a_steady_subject_is_found_within_two_percent() {
    for servers in [1.0, 4.0, 64.0, 3000.0] {
        let mut subject = Subject::new(servers, 1);
        let (found, trials) = search(SETTINGS, &mut subject);
        let truth = subject.truth();
        let level = found.level.unwrap();
        assert_eq!((found.end, found.verified, found.verifications), (End::Found, 3, 3));
        assert!((level / truth - 1.0).abs() < 0.021, "{servers}: {level} for {truth}");
        assert!(found.lower <= Some(truth) && found.upper >= Some(truth), "{found:?}");
        assert!(trials < 35, "{servers}: {trials}");
    }
}

#[test]
fn noise_moves_it_by_less_than_five_percent() {
    let mut far = 0;
    for seed in 0..256 {
        let mut subject = Subject::new(8.0, seed);
        (subject.noise, subject.mishap) = (0.3, 0.03);
        let (found, _) = search(SETTINGS, &mut subject);
        let level = found.level.or(found.lower).unwrap_or(0.0);
        far += u32::from((level / subject.truth() - 1.0).abs() > 0.05);
    }
    assert!(far <= 8, "{far} of 256 are off by more than 5 %");
}

#[test]
fn a_subject_that_gets_slower_is_found_as_it_is_at_the_end() {
    for seed in 0..64 {
        let mut subject = Subject::new(8.0, seed);
        (subject.noise, subject.drift) = (0.1, 0.0002);
        let mut search = Search::new(SETTINGS);
        drive(&mut search, |ask| subject.outcome(ask));
        // A ladder, meanwhile.
        subject.time_s += 240.0;
        search.recheck();
        let (found, _) = drive(&mut search, |ask| subject.outcome(ask));
        let now = found.level.unwrap();
        assert!(found.drift.is_some() && found.lower == found.level, "{found:?}");
        assert!((now / subject.truth() - 1.0).abs() < 0.06, "{found:?} {}", subject.truth());
    }
}

/// A search that found 1,000 or so, and then asks whether it still holds.
fn rechecking(settings: Settings) -> (Search, f64) {
    let mut search = Search::new(settings);
    let (found, _) =
        drive(&mut search, |ask| if ask.level <= 1000.0 { Outcome::Held } else { Outcome::Missed });
    search.recheck();
    (search, found.level.unwrap())
}

#[test]
fn what_does_not_hold_any_more_is_not_what_was_found() {
    let (mut search, verified) = rechecking(SETTINGS);
    let limit = 0.93 * verified;
    let (found, _) = drive(&mut search, |ask| {
        assert_eq!(ask.purpose, Purpose::Recheck);
        if ask.level <= limit { Outcome::Held } else { Outcome::Missed }
    });
    let level = found.level.unwrap();
    assert!(found.end == End::Found && level <= limit && level > 0.9 * verified, "{found:?}");
    assert_eq!((found.verified, found.verifications), (2, 2));
    assert!(found.upper.unwrap() > limit && found.upper.unwrap() < verified, "{found:?}");

    let (mut search, verified) = rechecking(SETTINGS);
    let (found, trials) = drive(&mut search, |_| Outcome::Missed);
    assert_eq!((found.end, found.level, found.lower), (End::Drifted, None, None), "{found:?}");
    assert!(found.upper.unwrap() < 0.82 * verified && trials == 10, "{found:?}");
    let drift = found.drift.unwrap();
    assert!(drift.contains("was verified") && drift.contains("not even"), "{drift}");
    // The highest that may be tried is no exception.
    let (mut search, _) = rechecking(Settings { highest: 800.0, ..SETTINGS });
    assert_eq!(drive(&mut search, |_| Outcome::Missed).0.end, End::Drifted);
}

#[test]
fn a_recheck_that_ends_early_keeps_what_was_not_refuted_and_nothing_else() {
    let missed = |search: &mut Search, times: u32| {
        (0..times).for_each(|_| search.tell(Outcome::Missed, &["slow".to_owned()]));
    };
    // Once is chance, twice is not.
    for (times, end) in [(0, End::Found), (1, End::Found), (2, End::Drifted), (5, End::Drifted)] {
        let (mut search, verified) = rechecking(SETTINGS);
        missed(&mut search, times);
        let by_hand = search.stopped();
        assert_eq!(by_hand.end, end, "{times}");
        assert_eq!(by_hand.level.is_some(), end == End::Found);
        let (found, _) = drive(&mut search, |_| Outcome::NoVerdict);
        assert_eq!(found.end, end, "{times}");
        assert!(found.drift.is_some() && found.level.is_none_or(|level| level == verified));
    }
}

#[test]
fn what_is_named_held_in_the_last_two_checks() {
    let (held, missed) = (Outcome::Held, Outcome::Missed);
    let checks: [(&[Outcome], bool); 4] = [
        (&[held, held], true),
        (&[missed, held, held], true),
        (&[held, missed, held, held], true),
        (&[held, missed, missed], false),
    ];
    for (outcomes, stays) in checks {
        let (mut search, verified) = rechecking(SETTINGS);
        for outcome in outcomes {
            let Step::Try(ask) = search.next() else { panic!("one check is not enough") };
            assert_eq!(ask.level, verified);
            search.tell(*outcome, &["slow".to_owned()]);
        }
        let ended = matches!(search.next(), Step::Ended(found) if found.level == Some(verified));
        assert_eq!(ended, stays, "{outcomes:?}");
    }
}

#[test]
fn few_connections_are_lowered_by_one_at_least() {
    let settings = Settings { whole: true, from: 8.0, ..SETTINGS };
    let mut search = Search::new(settings);
    let at_most = |most: f64| {
        move |ask: &Ask| if ask.level <= most { Outcome::Held } else { Outcome::Missed }
    };
    drive(&mut search, at_most(6.0));
    search.recheck();
    assert_eq!(drive(&mut search, at_most(4.0)).0.level, Some(4.0));
}

#[test]
fn chance_alone_never_makes_it_endless() {
    for seed in 0..512 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut search = Search::new(Settings { whole: seed % 2 == 0, ..SETTINGS });
        let outcomes = [Outcome::Held, Outcome::Missed, Outcome::Missed, Outcome::NoVerdict];
        let mut outcome = |_: &Ask| outcomes[random.usize(..3 + (seed % 2) as usize)];
        drive(&mut search, &mut outcome);
        search.recheck();
        drive(&mut search, &mut outcome);
    }
}

#[test]
fn a_limited_generator_ends_it_with_a_lower_bound() {
    let mut search = Search::new(SETTINGS);
    let (found, _) =
        drive(
            &mut search,
            |ask| {
                if ask.level > 5000.0 { Outcome::NoVerdict } else { Outcome::Held }
            },
        );
    assert_eq!(
        (found.end, found.lower, found.limited_at),
        (End::GeneratorLimit, Some(3200.0), Some(6400.0))
    );
    assert_eq!(found.reasons, ["a reason"]);
    let mut once = 0;
    let (found, _) = drive(&mut Search::new(SETTINGS), |ask| {
        once += u32::from(ask.level > 1000.0);
        if once == 1 || once == 2 {
            Outcome::NoVerdict
        } else if ask.level > 5000.0 {
            Outcome::Missed
        } else {
            Outcome::Held
        }
    });
    assert_eq!(found.end, End::Found, "two trials without a verdict are repeated");
}

#[test]
fn what_never_or_always_holds_ends_at_the_bounds() {
    let (found, trials) = drive(&mut Search::new(SETTINGS), |_| Outcome::Missed);
    assert_eq!((found.end, found.level, found.upper), (End::BelowLowest, None, Some(1.0)));
    assert!(trials < 6, "{trials}");
    let settings = Settings { highest: 1000.0, ..SETTINGS };
    let (found, _) = drive(&mut Search::new(settings), |_| Outcome::Held);
    assert_eq!((found.end, found.level, found.upper), (End::Top, Some(1000.0), None));
}

#[test]
fn what_holds_only_for_a_moment_is_lowered_and_then_given_up() {
    let long = |from: f64| {
        move |ask: &Ask| {
            let limit = if ask.purpose == Purpose::Verify { from } else { 1000.0 };
            if ask.level < limit { Outcome::Held } else { Outcome::Missed }
        }
    };
    let (found, _) = drive(&mut Search::new(SETTINGS), long(960.0));
    let level = found.level.unwrap();
    assert!((0.93..0.96).contains(&(level / 1000.0)) && found.drift.is_some(), "{found:?}");
    assert!(found.upper.unwrap() / level < 1.03, "one between was tried: {found:?}");
    let (found, _) = drive(&mut Search::new(SETTINGS), long(0.0));
    assert_eq!((found.end, found.level), (End::NotVerified, None));
}

#[test]
fn whole_levels_are_found_exactly_where_they_are_few() {
    let settings = Settings { whole: true, from: 64.0, ..SETTINGS };
    let (found, _) = drive(&mut Search::new(settings), |ask| {
        assert_eq!(ask.level, ask.level.round());
        if ask.level <= 23.0 { Outcome::Held } else { Outcome::Missed }
    });
    assert_eq!((found.level, found.upper), (Some(23.0), Some(24.0)));
}

#[test]
fn the_time_is_bounded_and_told() {
    let (usual_ns, most_ns) = SETTINGS.duration_ns();
    assert!(usual_ns < 6 * 60 * SECOND_NS && most_ns > usual_ns);
    assert_eq!(Settings::stretched_ns(2 * SECOND_NS, 10_000.0), 2 * SECOND_NS);
    assert_eq!(Settings::stretched_ns(2 * SECOND_NS, 20.0), 5 * SECOND_NS);
    assert_eq!(Settings::stretched_ns(2 * SECOND_NS, 1.0), 10 * SECOND_NS);
}

#[test]
fn the_time_for_connections_is_that_of_their_trials() {
    let (second_ns, tenth_ns) = (SECOND_NS, SECOND_NS / 10);
    let with = |from, short_ns, full_ns, verify_ns| {
        let settings = Settings { whole: true, from, short_ns, full_ns, verify_ns, ..SETTINGS };
        settings.duration_ns()
    };
    // None of them is shorter than a second, nor than what a request on each connection takes.
    let short = |from| with(from, tenth_ns, 2 * tenth_ns, 5 * tenth_ns);
    assert_eq!(short(10.0), with(10.0, second_ns, second_ns, second_ns));
    let long_ns = 11 * second_ns;
    assert_eq!(short(10_000.0), with(10_000.0, long_ns, long_ns, long_ns));
    assert!(short(10_000.0).1 > short(10.0).1);
}
