//! Times of orders: two thirds of a lifetime, and a back-off after failures. Pure, except for the
//! reading of a certificate and of the failures of other replicas.

use std::collections::HashMap;
use std::path::PathBuf;

use rt::clock::{SECOND_NS, unix_ns};

use super::shared::SharedFailures;
use crate::plan::AcmePlan;

/// Time until the second attempt in seconds; it doubles with each failure.
const RETRY_MIN_S: u64 = 60;
/// Maximum time between two attempts in seconds: ACME servers limit failures per hour.
pub(super) const RETRY_MAX_S: u64 = 6 * 3_600;

/// Failures by the certificate's file.
#[derive(Debug, Default)]
pub(super) struct Schedule(HashMap<PathBuf, Failures>);

#[derive(Debug, Default)]
struct Failures {
    count: u32,
    retry_at_s: u64,
}

impl Schedule {
    /// Returns the earliest time of the next attempt, in seconds since 1970.
    pub(super) fn retry_at_s(&self, plan: &AcmePlan) -> u64 {
        // The storage may be the reason of a failure, and not have it.
        let own_s = self.0.get(&plan.certificate_path()).map_or(0, |failures| failures.retry_at_s);
        let shared_failures = plan.sharing.map(|_| SharedFailures::read(plan, unix_ns() / SECOND_NS));
        own_s.max(shared_failures.unwrap_or_default().retry_at_s)
    }

    pub(super) fn succeeded(&mut self, plan: &AcmePlan) {
        if plan.sharing.is_some() {
            SharedFailures::remove(plan);
        }
        self.0.remove(&plan.certificate_path());
    }

    /// Notes a failure. Returns the time until the next attempt in seconds.
    pub(super) fn failed(&mut self, plan: &AcmePlan, now_s: u64) -> u64 {
        let failures = self.0.entry(plan.certificate_path()).or_default();
        if plan.sharing.is_some() {
            failures.count = failures.count.max(SharedFailures::read(plan, now_s).count);
        }
        failures.count += 1;
        let wait_s = backoff_s(failures.count, fastrand::f64());
        failures.retry_at_s = now_s + wait_s;
        if plan.sharing.is_some() {
            let shared = SharedFailures { count: failures.count, retry_at_s: failures.retry_at_s };
            // Without the file, each replica waits for its own failures only.
            if let Err(error) = shared.write(plan) {
                eprintln!("weir: the other replicas do not learn of the failure: {error}");
            }
        }
        wait_s
    }
}

/// Returns the wait after so many failures; `random` from 0 to 1 varies it by a fifth.
fn backoff_s(failures: u32, random: f64) -> u64 {
    let doubled_s = RETRY_MIN_S.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(RETRY_MAX_S);
    (doubled_s as f64 * (0.8 + 0.4 * random)) as u64
}

/// Returns the time to renew a certificate, in seconds since 1970; 0: there is none, or one for other
/// names.
pub(super) fn renewal_at_s(plan: &AcmePlan) -> u64 {
    let path = plan.certificate_path();
    let names = rt::tls::certificate_names(&path).unwrap_or_default();
    let has_all = plan.domains.iter().all(|domain| names.iter().any(|name| **name == **domain));
    match rt::tls::certificate_validity(&path) {
        Ok(validity_s) if has_all => renewal_of_lifetime(validity_s, jitter(&path)),
        _ => 0,
    }
}

/// Returns the time at two thirds of a lifetime, up to 5 % of it earlier.
fn renewal_of_lifetime((start_s, end_s): (u64, u64), random: f64) -> u64 {
    let lifetime_s = end_s.saturating_sub(start_s);
    let early_s = (lifetime_s as f64 * 0.05 * random) as u64;
    start_s + lifetime_s * 2 / 3 - early_s.min(lifetime_s / 2)
}

/// Returns a fraction that differs between certificates, and stays the same for each.
fn jitter(path: &std::path::Path) -> f64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    (hasher.finish() % 1_000) as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_lifetime() {
        let day_s = 86_400;
        assert_eq!(renewal_of_lifetime((1_000, 1_000 + 90 * day_s), 0.0), 1_000 + 60 * day_s);
        let earliest_s = renewal_of_lifetime((1_000, 1_000 + 90 * day_s), 1.0);
        assert_eq!(earliest_s, 1_000 + 60 * day_s - 90 * day_s / 20);
    }

    #[test]
    fn failures_are_retried_ever_later() {
        let waits: Vec<u64> = (1..=12).map(|failures| backoff_s(failures, 0.5)).collect();
        assert_eq!(waits[..4], [60, 120, 240, 480]);
        assert!(waits.iter().all(|&wait_s| wait_s <= RETRY_MAX_S) && waits[11] == RETRY_MAX_S);
        assert_eq!((backoff_s(1, 0.0), backoff_s(1, 1.0)), (48, 72));
        assert_eq!(backoff_s(u32::MAX, 0.5), RETRY_MAX_S);
    }
}
