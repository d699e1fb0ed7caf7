//! Metrics of authentication.

use super::table::Metric;
use super::{CounterCell, Metrics, Snapshot, new_counters};
use crate::auth::key_store::{KeySource, UrlKeys};
use crate::auth::watched_file::Watched as _;
use crate::auth::{AuthKind, AuthResult, password_threads};
use crate::plan::{AuthMethod, AuthPlan, JwtPlan};
use std::cell::OnceCell;
use std::sync::atomic::Ordering;

/// Results of authentications, by kind and result; allocated by the first one.
#[derive(Debug, Default)]
pub(super) struct AuthCounters(OnceCell<Vec<CounterCell>>);

impl Metrics {
    pub(crate) fn count_auth(&self, kind: AuthKind, result: AuthResult) {
        let counters =
            self.common.auth.0.get_or_init(|| new_counters(AuthKind::ALL.len() * AuthResult::ALL.len()));
        counters[kind as usize * AuthResult::ALL.len() + result as usize].add(1);
    }
}

impl AuthCounters {
    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        let Some(counters) = self.0.get() else { return };
        for (index, count) in counters.iter().enumerate() {
            let (kind, result) = (index / AuthResult::ALL.len(), index % AuthResult::ALL.len());
            let labels = [AuthKind::ALL[kind].code(), AuthResult::ALL[result].code()];
            if count.0.get() > 0 {
                snapshot.add(Metric::Auth, &labels, count.0.get());
            }
        }
    }
}

impl Snapshot {
    /// Adds the sources of keys and of users of a plan, and the queue of passwords.
    pub(crate) fn add_auth_sources<'a>(&mut self, plans: impl Iterator<Item = &'a AuthPlan>) {
        let mut has_passwords = false;
        for plan in plans {
            match &plan.method {
                AuthMethod::Basic(basic) => {
                    has_passwords = true;
                    let name = basic.users.0.path().display().to_string();
                    self.add(Metric::AuthFileFailures, &[&name], basic.users.0.failures());
                }
                AuthMethod::Jwt(JwtPlan { keys, .. }) => self.add_keys(keys),
                AuthMethod::Request(_) => {}
            }
        }
        if has_passwords {
            self.add(Metric::PasswordChecks, &[], password_threads::pending() as u64);
        }
    }

    fn add_keys(&mut self, keys: &KeySource) {
        let name = keys.name();
        match keys {
            KeySource::File(file) => self.add(Metric::AuthFileFailures, &[&name], file.0.failures()),
            KeySource::Url(UrlKeys(remote)) => {
                let statistics = &remote.statistics;
                self.add(Metric::JwksKeys, &[&name], remote.key_count() as u64);
                for (result, count) in [("loaded", &statistics.loads), ("failed", &statistics.failures)] {
                    self.add(Metric::JwksRequests, &[&name, result], count.load(Ordering::Relaxed));
                }
                let loaded = statistics.loaded_unix_s.load(Ordering::Relaxed);
                self.add(Metric::JwksLoadTime, &[&name], loaded);
            }
        }
    }
}
