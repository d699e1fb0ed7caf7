//! Metrics of authentication.

use std::sync::atomic::Ordering;

use super::table::Metric;
use super::{CounterCell, Metrics, Snapshot, new_counters};
use crate::auth::key_store::{KeySource, RemoteKeys, UrlKeys};
use crate::auth::{AuthKind, AuthResult, password_threads};
use crate::plan::{AuthMethod, AuthPlan, JwtPlan, Plan};

/// Results of authentications, by kind and result, of the kinds that a plan has.
#[derive(Debug)]
pub(super) struct AuthCounters([Option<Vec<CounterCell>>; AuthKind::ALL.len()]);

impl Metrics {
    pub(crate) fn count_auth(&self, kind: AuthKind, result: AuthResult) {
        if let Some(counters) = &self.common.auth.0[kind as usize] {
            counters[result as usize].add(1);
        }
    }
}

impl AuthCounters {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut counters = [const { None }; AuthKind::ALL.len()];
        for auth in plan.auth_plans() {
            counters[auth.kind() as usize] = Some(new_counters(AuthResult::ALL.len()));
        }
        Self(counters)
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        for (kind, counters) in AuthKind::ALL.iter().zip(&self.0) {
            for (result, count) in AuthResult::ALL.iter().zip(counters.iter().flatten()) {
                snapshot.add(Metric::Auth, &[kind.code(), result.code()], count.0.get());
            }
        }
    }
}

impl Snapshot {
    /// Adds the sources of keys and of users of a plan, and the queue of passwords.
    pub fn add_auth_sources<'a>(&mut self, plans: impl Iterator<Item = &'a AuthPlan>) {
        let mut has_passwords = false;
        let (mut files, mut urls) = (Vec::<String>::new(), Vec::<Box<str>>::new());
        for plan in plans {
            // Several plans may have the same file.
            if let Some(file) = plan.file()
                && !files.contains(&file.path().display().to_string())
            {
                files.push(file.path().display().to_string());
                self.add(Metric::AuthFileFailures, &[files.last().map_or("", |name| name)], file.failures());
            }
            match &plan.method {
                AuthMethod::Basic(_) => has_passwords = true,
                AuthMethod::Jwt(JwtPlan { keys: KeySource::Url(UrlKeys(remote)), .. }) => {
                    if !urls.contains(&remote.spec.url) {
                        urls.push(remote.spec.url.clone());
                        self.add_remote_keys(remote);
                    }
                }
                AuthMethod::Jwt(_) | AuthMethod::Request(_) => {}
            }
        }
        if has_passwords {
            self.add(Metric::PasswordChecks, &[], password_threads::pending() as u64);
        }
    }

    fn add_remote_keys(&mut self, remote: &RemoteKeys) {
        let (name, statistics) = (&*remote.spec.url, &remote.statistics);
        self.add(Metric::JwksKeys, &[name], remote.key_count() as u64);
        for (result, count) in [("loaded", &statistics.loads), ("failed", &statistics.failures)] {
            self.add(Metric::JwksRequests, &[name, result], count.load(Ordering::Relaxed));
        }
        self.add(Metric::JwksLoadTime, &[name], statistics.loaded_unix_s.load(Ordering::Relaxed));
    }
}
