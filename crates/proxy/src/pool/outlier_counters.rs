//! Observations of a server from real requests: successive failures, and the counts of a window.
//! One for each server, shared by all cores, kept across reloads. A successful request costs one
//! check of a count that is nearly always 0. Each core counts its own windows and adds them here
//! once a tick. `outlier` evaluates the counts.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rt::clock::MonotonicTime;

use super::shared::SharedPool;
use crate::outcome::Outcome;
use crate::outlier::{
    EjectionReason, FailureSignal, OtherServer, OutlierWindow, check_streak, check_window, classify_outcome,
    ejection_duration, may_eject,
};
use crate::plan::{OutlierPlan, ServerId};

/// Observations of one server.
#[derive(Debug, Default)]
pub struct OutlierCounters {
    /// Successive failures and errors, as [`OutlierPlan`] defines them.
    failures: AtomicU32,
    errors: AtomicU32,
    window: SharedOutlierWindow,
    /// Number of successive ejections, and the time when the last one ends.
    consecutive_ejections: AtomicU32,
    last_ejection_end_ns: AtomicU64,
    ejections: [AtomicU64; EjectionReason::ALL.len()],
    /// Number of ejections that were suppressed because too few other servers were left.
    suppressed_ejections: AtomicU64,
}

#[derive(Debug, Default)]
struct SharedOutlierWindow {
    requests: AtomicU32,
    errors: AtomicU32,
    timed: AtomicU32,
    first_byte_us: AtomicU64,
}

/// One core's part of a server's window.
#[derive(Debug, Default)]
pub(crate) struct CoreOutlierWindow(Cell<OutlierWindow>);

impl CoreOutlierWindow {
    fn count(&self, signal: FailureSignal, first_byte_us: Option<u64>) {
        let mut window = self.0.get();
        window.requests += 1;
        window.errors += u32::from(signal != FailureSignal::Success);
        window.timed += u32::from(first_byte_us.is_some());
        window.first_byte_us += first_byte_us.unwrap_or_default();
        self.0.set(window);
    }

    /// Adds the counts to those shared by all cores, and resets them.
    pub(crate) fn publish(&self, counters: &OutlierCounters) {
        let window = self.0.take();
        if window.requests == 0 {
            return;
        }
        let shared = &counters.window;
        shared.requests.fetch_add(window.requests, Ordering::Relaxed);
        shared.errors.fetch_add(window.errors, Ordering::Relaxed);
        shared.timed.fetch_add(window.timed, Ordering::Relaxed);
        shared.first_byte_us.fetch_add(window.first_byte_us, Ordering::Relaxed);
    }
}

impl OutlierCounters {
    /// Returns the number of ejections by reason, and of suppressed ones.
    pub fn ejections(&self) -> ([u64; EjectionReason::ALL.len()], u64) {
        let counts = std::array::from_fn(|at| self.ejections[at].load(Ordering::Relaxed));
        (counts, self.suppressed_ejections.load(Ordering::Relaxed))
    }

    /// Returns the time when the last ejection ends or ended.
    pub fn last_ejection_end(&self) -> MonotonicTime {
        MonotonicTime::from_ns(self.last_ejection_end_ns.load(Ordering::Relaxed))
    }

    /// Updates the successive failures and errors.
    fn count(&self, signal: FailureSignal) {
        let reset = |count: &AtomicU32| {
            if count.load(Ordering::Relaxed) != 0 {
                count.store(0, Ordering::Relaxed);
            }
        };
        let add = |count: &AtomicU32| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        match signal {
            FailureSignal::Success => {
                reset(&self.failures);
                reset(&self.errors);
            }
            FailureSignal::Error => {
                reset(&self.failures);
                add(&self.errors);
            }
            FailureSignal::Failure => {
                add(&self.failures);
                add(&self.errors);
            }
            FailureSignal::Neutral => {}
        }
    }

    fn take_window(&self) -> OutlierWindow {
        OutlierWindow {
            requests: self.window.requests.swap(0, Ordering::Relaxed),
            errors: self.window.errors.swap(0, Ordering::Relaxed),
            timed: self.window.timed.swap(0, Ordering::Relaxed),
            first_byte_us: self.window.first_byte_us.swap(0, Ordering::Relaxed),
        }
    }
}

impl SharedPool {
    /// Records the result of a completed request for its server.
    #[inline(always)]
    pub(super) fn record_outcome(
        &self,
        plan: &OutlierPlan,
        server: ServerId,
        core_window: &CoreOutlierWindow,
        outcome: &Outcome<'_>,
    ) {
        let signal = classify_outcome(outcome, plan);
        let is_windowed = plan.error_rate.is_some() || plan.latency_factor.is_some();
        if is_windowed && signal != FailureSignal::Neutral {
            let times = &outcome.times;
            let first_byte_us = (times.first_byte > MonotonicTime::ZERO)
                .then(|| times.first_byte.since(times.connected) / 1_000);
            core_window.count(signal, first_byte_us);
        }
        self.record_signal(plan, server, signal, outcome.times.end);
    }

    /// Records a result for a server, and ejects the server if there are too many failures.
    pub(super) fn record_signal(
        &self,
        plan: &OutlierPlan,
        server: ServerId,
        signal: FailureSignal,
        now: MonotonicTime,
    ) {
        let (counters, eligibility) = (self.outlier_counters(server), self.eligibility(server));
        counters.count(signal);
        let counts_errors = plan.errors.is_some();
        match signal {
            FailureSignal::Success => eligibility.complete_probe(now),
            FailureSignal::Error if !counts_errors => eligibility.complete_probe(now),
            FailureSignal::Neutral => eligibility.release_probe(),
            FailureSignal::Error | FailureSignal::Failure => {
                let failures = counters.failures.load(Ordering::Relaxed);
                let errors = counters.errors.load(Ordering::Relaxed);
                let reason = match eligibility.is_probing() {
                    true => Some(EjectionReason::Probe),
                    false => check_streak(plan, failures, errors),
                };
                if let Some(reason) = reason {
                    self.eject(plan, server, reason, now);
                }
                // The ejection was suppressed; the next request is a new probe.
                eligibility.release_probe();
            }
        }
    }

    pub(super) fn evaluate_windows(&self, plan: &OutlierPlan, now: MonotonicTime) {
        let windows: Vec<OutlierWindow> =
            self.server_ids().map(|server| self.outlier_counters(server).take_window()).collect();
        for (server, window) in self.server_ids().zip(&windows) {
            if let Some(reason) = check_window(plan, window, &windows) {
                self.eject(plan, server, reason, now);
            }
        }
    }

    /// Ejects a server, if enough others are left.
    fn eject(&self, plan: &OutlierPlan, server: ServerId, reason: EjectionReason, now: MonotonicTime) {
        let (counters, eligibility) = (self.outlier_counters(server), self.eligibility(server));
        // Another core decides now; the next failure is evaluated again.
        let Some(_evaluation) = self.try_start_evaluation() else { return };
        if eligibility.is_ejected(now) || eligibility.is_probing() != (reason == EjectionReason::Probe) {
            return;
        }
        let others = self.server_ids().filter(|&other| other != server).map(|other| {
            let eligibility = self.eligibility(other);
            OtherServer {
                is_receiving: eligibility.effective_weight() > 0,
                is_held_back: eligibility.is_ejected(now) || eligibility.is_recovering(),
            }
        });
        if !may_eject(plan, others) {
            counters.suppressed_ejections.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let since_last_ns = now.since(counters.last_ejection_end());
        let previous_ejections = counters.consecutive_ejections.load(Ordering::Relaxed);
        let (ejections, duration_ns) = ejection_duration(plan, previous_ejections, since_last_ns);
        counters.consecutive_ejections.store(ejections, Ordering::Relaxed);
        counters.last_ejection_end_ns.store((now + duration_ns).as_ns(), Ordering::Relaxed);
        counters.failures.store(0, Ordering::Relaxed);
        counters.errors.store(0, Ordering::Relaxed);
        eligibility.eject_until(now + duration_ns);
        counters.ejections[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::concurrency_limit::AcquireResult;
    use super::super::{CoreIndex, CoreWakeups, CrossCoreState};
    use super::*;
    use crate::config;
    use crate::outlier::tests::plan;
    use crate::plan::{Id, IdVec, Plan, PoolId};
    use crate::test_time::at;

    const MS: u64 = 1_000_000;
    const POOL: PoolId = PoolId(0);

    fn servers(count: usize) -> Plan {
        let servers: Vec<String> = (0..count).map(|at| format!("'127.0.0.1:{}'", 9_000 + at)).collect();
        let text = format!(
            "[listener.l]\nbind = '127.0.0.1:0'\npool = 'p'\n[pool.p]\nservers = [{}]\n",
            servers.join(", ")
        );
        config::parse("t", &text).unwrap().plan
    }

    /// Servers fail and recover at random under requests. In every case enough servers are left, a
    /// half-open server has one request at a time, and a server that works for long recovers.
    #[test]
    fn with_any_failures_enough_servers_remain() {
        for seed in 0..256 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let count = rng.usize(1..7);
            let proxy_plan = servers(count);
            let shared = CrossCoreState::new(&proxy_plan, &CoreWakeups::new(1), None).unwrap();
            let pool = &shared.pools[POOL];
            let max = ((count as f64 * 0.5) as usize).max(1);
            let outlier = OutlierPlan {
                failures: 3,
                ejection_ns: 50 * MS,
                ejection_max_ns: 200 * MS,
                max_ejected: 0.5,
                ..plan()
            };
            let mut broken: IdVec<ServerId, bool> = vec![false; count].into();
            // Number of requests at each half-open server.
            let mut probes: IdVec<ServerId, u32> = vec![0; count].into();
            let mut now = at(1);
            let mut requests = |now: MonotonicTime,
                                rng: &mut fastrand::Rng,
                                broken: &IdVec<ServerId, bool>| {
                for _ in 0..20 {
                    let server = ServerId::from_index(rng.usize(..count));
                    let eligibility = pool.eligibility(server);
                    let was_recovering = eligibility.is_recovering();
                    if eligibility.effective_weight() == 0
                        || pool.try_acquire(CoreIndex(0), server) == AcquireResult::Full
                    {
                        continue;
                    }
                    if was_recovering {
                        probes[server] += 1;
                        let second = pool.try_acquire(CoreIndex(0), server);
                        assert_eq!(second, AcquireResult::Full, "seed {seed}: a second request probes it");
                    }
                    let signal = match (broken[server], rng.u8(..10)) {
                        (true, _) => FailureSignal::Failure,
                        (false, 0) => FailureSignal::Neutral,
                        (false, _) => FailureSignal::Success,
                    };
                    pool.record_signal(&outlier, server, signal, now);
                }
            };
            for _ in 0..100 {
                if rng.u8(..8) == 0 {
                    let server = ServerId::from_index(rng.usize(..count));
                    broken[server] = rng.bool();
                }
                requests(now, &mut rng, &broken);
                let recovering = pool.server_ids().filter(|&id| pool.eligibility(id).is_recovering()).count();
                assert!(recovering <= max, "seed {seed}: {recovering} of {count}");
                now += rng.u64(..100) * MS;
                pool.recompute(&proxy_plan.pools[POOL], now);
                let receiving =
                    pool.server_ids().filter(|&id| pool.eligibility(id).effective_weight() > 0).count();
                assert!(receiving >= count - max && receiving >= 1, "seed {seed}: {receiving} of {count}");
            }
            // All servers work; each recovers after its probe.
            broken = vec![false; count].into();
            for _ in 0..200 {
                now += 10 * MS;
                pool.recompute(&proxy_plan.pools[POOL], now);
                requests(now, &mut rng, &broken);
            }
            assert!(pool.server_ids().all(|id| !pool.eligibility(id).is_recovering()), "seed {seed}");
            let (counts, _) = pool.server_ids().fold(([0; 5], 0), |(mut sum, suppressed), id| {
                let (counts, suppressed_here) = pool.outlier_counters(id).ejections();
                sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                (sum, suppressed + suppressed_here)
            });
            let failed_probes: u64 = counts[EjectionReason::Probe as usize];
            assert!(failed_probes <= u64::from(probes.iter().sum::<u32>()), "seed {seed}");
        }
    }

    #[test]
    fn windows_of_several_cores_are_one() {
        let proxy_plan = servers(2);
        let shared = CrossCoreState::new(&proxy_plan, &CoreWakeups::new(2), None).unwrap();
        let pool = &shared.pools[POOL];
        let outlier = OutlierPlan { error_rate: Some(0.5), requests_min: 10, ..plan() };
        let cores = [CoreOutlierWindow::default(), CoreOutlierWindow::default()];
        for window in &cores {
            (0..5).for_each(|_| window.count(FailureSignal::Error, Some(1_000)));
            window.publish(pool.outlier_counters(ServerId(0)));
            // Counts that were collected are not collected again.
            window.publish(pool.outlier_counters(ServerId(0)));
        }
        pool.evaluate_windows(&outlier, at(1_000));
        assert_eq!(pool.outlier_counters(ServerId(0)).ejections().0[EjectionReason::ErrorRate as usize], 1);
        pool.evaluate_windows(&outlier, at(2_000));
        assert_eq!(pool.outlier_counters(ServerId(0)).ejections().0.iter().sum::<u64>(), 1);
    }
}
