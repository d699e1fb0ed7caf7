//! What requests showed of a server: failures in a row, and what a window needs. One for each
//! server, shared by all cores, kept across reloads. A request that went well costs one look at a
//! count that is nearly always 0; windows are counted by each core for itself and brought here once a
//! tick. What the counts mean is `outlier`'s.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::shared::SharedPool;
use crate::outcome::Outcome;
use crate::outlier::{
    Beside, Sign, Why, Window, by_streak, by_window, may_eject, sentence, sign_of,
};
use crate::plan::OutlierPlan;

/// What requests showed of one server.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// In a row, as [`OutlierPlan`] has them.
    failures: AtomicU32,
    errors: AtomicU32,
    window: SharedWindow,
    /// Ejections in a row, and when the last one is over.
    in_a_row: AtomicU32,
    last_until_ns: AtomicU64,
    /// Ejections, by why.
    ejections: [AtomicU64; Why::ALL.len()],
    /// Times that it would have been ejected, had enough others been left.
    spared: AtomicU64,
}

#[derive(Debug, Default)]
struct SharedWindow {
    requests: AtomicU32,
    errors: AtomicU32,
    timed: AtomicU32,
    first_byte_us: AtomicU64,
}

/// One core's part of a server's window.
#[derive(Debug, Default)]
pub(crate) struct Seen(Cell<Window>);

impl Seen {
    fn count(&self, sign: Sign, first_byte_us: Option<u64>) {
        let mut window = self.0.get();
        window.requests += 1;
        window.errors += u32::from(sign != Sign::Fine);
        window.timed += u32::from(first_byte_us.is_some());
        window.first_byte_us += first_byte_us.unwrap_or_default();
        self.0.set(window);
    }

    /// Brings it to what all cores share.
    pub(crate) fn hand_over(&self, observed: &Observed) {
        let own = self.0.take();
        if own.requests == 0 {
            return;
        }
        let window = &observed.window;
        window.requests.fetch_add(own.requests, Ordering::Relaxed);
        window.errors.fetch_add(own.errors, Ordering::Relaxed);
        window.timed.fetch_add(own.timed, Ordering::Relaxed);
        window.first_byte_us.fetch_add(own.first_byte_us, Ordering::Relaxed);
    }
}

impl Observed {
    /// How often it was ejected, by why, and how often it was spared.
    pub(crate) fn ejections(&self) -> ([u64; Why::ALL.len()], u64) {
        let counts = std::array::from_fn(|at| self.ejections[at].load(Ordering::Relaxed));
        (counts, self.spared.load(Ordering::Relaxed))
    }

    /// When its last ejection is, or was, over.
    pub(crate) fn last_until_ns(&self) -> u64 {
        self.last_until_ns.load(Ordering::Relaxed)
    }

    /// Counts a sign into the rows.
    fn count(&self, sign: Sign) {
        let clear = |count: &AtomicU32| {
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::Relaxed);
            }
        };
        let add = |count: &AtomicU32| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        match sign {
            Sign::Fine => {
                clear(&self.failures);
                clear(&self.errors);
            }
            Sign::Error => {
                clear(&self.failures);
                add(&self.errors);
            }
            Sign::Failure => {
                add(&self.failures);
                add(&self.errors);
            }
            Sign::Nothing => {}
        }
    }

    fn take_window(&self) -> Window {
        Window {
            requests: self.window.requests.swap(0, Ordering::Relaxed),
            errors: self.window.errors.swap(0, Ordering::Relaxed),
            timed: self.window.timed.swap(0, Ordering::Relaxed),
            first_byte_us: self.window.first_byte_us.swap(0, Ordering::Relaxed),
        }
    }
}

impl SharedPool {
    /// Notes what a request that has ended shows of its server.
    pub(super) fn observe(
        &self,
        plan: &OutlierPlan,
        server: usize,
        seen: &Seen,
        outcome: &Outcome<'_>,
    ) {
        let sign = sign_of(outcome, plan);
        let is_windowed = plan.error_rate.is_some() || plan.latency_factor.is_some();
        if is_windowed && sign != Sign::Nothing {
            let times = &outcome.times;
            let first_byte_us = (times.first_byte_ns > 0)
                .then(|| times.first_byte_ns.saturating_sub(times.connected_ns) / 1_000);
            seen.count(sign, first_byte_us);
        }
        self.note(plan, server, sign, outcome.times.end_ns);
    }

    /// Notes what was found out about a server, and ejects it if that is too much.
    pub(super) fn note(&self, plan: &OutlierPlan, server: usize, sign: Sign, now_ns: u64) {
        let (observed, standing) = (self.observed(server), self.standing(server));
        observed.count(sign);
        let errors_count = plan.errors.is_some();
        match sign {
            Sign::Fine => standing.pass_trial(now_ns),
            Sign::Error if !errors_count => standing.pass_trial(now_ns),
            Sign::Nothing => standing.free_trial(),
            Sign::Error | Sign::Failure => {
                let failures = observed.failures.load(Ordering::Relaxed);
                let errors = observed.errors.load(Ordering::Relaxed);
                let why = match standing.is_tried() {
                    true => Some(Why::Trial),
                    false => by_streak(plan, failures, errors),
                };
                if let Some(why) = why {
                    self.eject(plan, server, why, now_ns);
                }
                // It was spared: the next request tries it.
                standing.free_trial();
            }
        }
    }

    /// Judges all servers by their windows, and starts new ones.
    pub(super) fn judge_windows(&self, plan: &OutlierPlan, now_ns: u64) {
        let windows: Vec<Window> =
            (0..self.servers()).map(|server| self.observed(server).take_window()).collect();
        for (server, window) in windows.iter().enumerate() {
            if let Some(why) = by_window(plan, window, &windows) {
                self.eject(plan, server, why, now_ns);
            }
        }
    }

    /// Ejects a server, if enough others are left.
    fn eject(&self, plan: &OutlierPlan, server: usize, why: Why, now_ns: u64) {
        let (observed, standing) = (self.observed(server), self.standing(server));
        // Another core is at it: whoever fails next is judged again.
        let Some(_one_at_a_time) = self.start_judging() else { return };
        if standing.is_ejected(now_ns) || standing.is_tried() != (why == Why::Trial) {
            return;
        }
        let others = (0..self.servers()).filter(|&other| other != server).map(|other| {
            let standing = self.standing(other);
            Beside {
                gets: standing.share() > 0,
                held_back: standing.is_ejected(now_ns) || standing.has_trial(),
            }
        });
        if !may_eject(plan, others) {
            observed.spared.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let well_for_ns = now_ns.saturating_sub(observed.last_until_ns());
        let before = observed.in_a_row.load(Ordering::Relaxed);
        let (nth, for_ns) = sentence(plan, before, well_for_ns);
        observed.in_a_row.store(nth, Ordering::Relaxed);
        observed.last_until_ns.store(now_ns + for_ns, Ordering::Relaxed);
        observed.failures.store(0, Ordering::Relaxed);
        observed.errors.store(0, Ordering::Relaxed);
        standing.eject_until(now_ns + for_ns);
        observed.ejections[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::gate::Entry;
    use super::super::shared::{Bells, Shared};
    use super::*;
    use crate::config;
    use crate::outlier::tests::plan;
    use crate::plan::Plan;

    const MS: u64 = 1_000_000;

    fn servers(count: usize) -> Plan {
        let servers: Vec<String> =
            (0..count).map(|at| format!("'127.0.0.1:{}'", 9_000 + at)).collect();
        let text = format!(
            "[listener.l]\nbind = '127.0.0.1:0'\npool = 'p'\n[pool.p]\nservers = [{}]\n",
            servers.join(", ")
        );
        config::parse("t", &text).unwrap().plan
    }

    /// Servers that break and mend by chance, under requests: whatever comes, enough are left, one
    /// request at a time tries a server, and who is well for long is back.
    #[test]
    fn with_any_failures_enough_servers_are_left() {
        for seed in 0..256 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let count = rng.usize(1..7);
            let whole = servers(count);
            let shared = Shared::new(&whole, &Bells::new(1), None).unwrap();
            let pool = &shared.pools[0];
            let most = ((count as f64 * 0.5) as usize).max(1);
            let outlier = OutlierPlan {
                failures: 3,
                ejection_ns: 50 * MS,
                ejection_max_ns: 200 * MS,
                max_ejected: 0.5,
                ..plan()
            };
            let mut broken = vec![false; count];
            // Requests that a server in its trial has.
            let mut tries = vec![0_u32; count];
            let mut now_ns = 1;
            let mut requests = |now_ns: u64, rng: &mut fastrand::Rng, broken: &[bool]| {
                for _ in 0..20 {
                    let server = rng.usize(..count);
                    let standing = pool.standing(server);
                    let was_due = standing.has_trial();
                    if standing.share() == 0 || pool.try_enter(0, server) == Entry::Full {
                        continue;
                    }
                    if was_due {
                        tries[server] += 1;
                        let second = pool.try_enter(0, server);
                        assert_eq!(second, Entry::Full, "seed {seed}: a second one tries it");
                    }
                    let sign = match (broken[server], rng.u8(..10)) {
                        (true, _) => Sign::Failure,
                        (false, 0) => Sign::Nothing,
                        (false, _) => Sign::Fine,
                    };
                    pool.note(&outlier, server, sign, now_ns);
                }
            };
            for _ in 0..100 {
                if rng.u8(..8) == 0 {
                    let server = rng.usize(..count);
                    broken[server] = rng.bool();
                }
                requests(now_ns, &mut rng, &broken);
                let held_back = (0..count).filter(|&at| pool.standing(at).has_trial()).count();
                assert!(held_back <= most, "seed {seed}: {held_back} of {count}");
                now_ns += rng.u64(..100) * MS;
                pool.settle(&whole.pools[0], now_ns);
                let gets = (0..count).filter(|&at| pool.standing(at).share() > 0).count();
                assert!(gets >= count - most && gets >= 1, "seed {seed}: {gets} of {count}");
            }
            // All are well: each is back once it was tried.
            broken.fill(false);
            for _ in 0..200 {
                now_ns += 10 * MS;
                pool.settle(&whole.pools[0], now_ns);
                requests(now_ns, &mut rng, &broken);
            }
            assert!((0..count).all(|at| !pool.standing(at).has_trial()), "seed {seed}");
            let (counts, _) = (0..count).fold(([0; 5], 0), |(mut sum, spared), at| {
                let (counts, more) = pool.observed(at).ejections();
                sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                (sum, spared + more)
            });
            let failed_trials: u64 = counts[Why::Trial as usize];
            assert!(failed_trials <= u64::from(tries.iter().sum::<u32>()), "seed {seed}");
        }
    }

    #[test]
    fn windows_of_several_cores_are_one() {
        let whole = servers(2);
        let shared = Shared::new(&whole, &Bells::new(2), None).unwrap();
        let pool = &shared.pools[0];
        let outlier = OutlierPlan { error_rate: Some(0.5), requests_min: 10, ..plan() };
        let cores = [Seen::default(), Seen::default()];
        for seen in &cores {
            (0..5).for_each(|_| seen.count(Sign::Error, Some(1_000)));
            seen.hand_over(pool.observed(0));
            // What was handed over is not handed over again.
            seen.hand_over(pool.observed(0));
        }
        pool.judge_windows(&outlier, 1_000);
        assert_eq!(pool.observed(0).ejections().0[Why::ErrorRate as usize], 1);
        pool.judge_windows(&outlier, 2_000);
        assert_eq!(pool.observed(0).ejections().0.iter().sum::<u64>(), 1);
    }
}
