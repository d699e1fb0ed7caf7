//! Automatic certificates (ACME, RFC 8555): orders them, and renews them at two thirds of their
//! lifetime, in a thread of its own. `order` has one order, `http` its client, `response` what it reads,
//! `storage` the files, `proxy::acme_tokens` the answers to challenges over HTTP; `rt::tls` has those over TLS, and
//! `dns_challenge` the records of DNS-01, which `dns_client` changes. `lease` and `shared` are for replicas that
//! share a storage. The control thread puts a new certificate into force as a reload does.

mod blocking;
mod dns_challenge;
mod dns_client;
mod http;
mod lease;
mod order;
mod schedule;
mod shared;
mod storage;

use std::collections::BTreeMap;
use std::io;
#[allow(clippy::disallowed_types, reason = "written a few times a month, read by status pages")]
use std::sync::Mutex;
use std::sync::{Arc, mpsc as std_mpsc};

use record::problem::printable;
use rt::clock::{MonotonicTime, SECOND_NS, unix_ns};
use rt::timers::Timers;
use rt::tokio::sync::watch;

use crate::metrics::Snapshot;
use crate::plan::{AcmePlan, Plan, SharingPlan};
use crate::stored_certificate::{check_certificate, has_changed, note_loaded};
use dns_challenge::TxtRecord;
use lease::Lease;
use order::{OrderContext, order_certificate};
use schedule::{Schedule, renewal_at_s};
use shared::FollowedChallenges;

/// Maximum time of an order, besides the time until its records are visible.
const ORDER_TIMEOUT_NS: u64 = 300 * SECOND_NS;
/// Maximum time between two checks of the stored certificates.
const CHECK_NS: u64 = 3_600 * SECOND_NS;
/// Maximum length of the reason of a failure.
const ERROR_BYTES_MAX: usize = 2_048;

/// State of a certificate, for people and metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateStatus {
    /// End of its validity in seconds since 1970; 0: there is none yet.
    pub(crate) expires_at_s: u64,
    pub(crate) issued: u64,
    pub(crate) failed: u64,
    /// Time of the next order in seconds since 1970.
    pub(crate) next_order_s: u64,
    pub(crate) last_error: String,
}

/// States by the first name of each certificate.
#[allow(clippy::disallowed_types, reason = "see the import")]
static STATUS: Mutex<BTreeMap<String, CertificateStatus>> = Mutex::new(BTreeMap::new());

/// The control thread's handle.
#[derive(Debug)]
pub(crate) struct Acme {
    plans: watch::Sender<Option<Arc<Plan>>>,
    issued: watch::Receiver<u64>,
}

impl Acme {
    /// Starts the thread, which ends with the process. Must be called before the cores are started,
    /// as no runtime can be created later.
    ///
    /// # Errors
    /// The thread, its runtime or its timer could not be created.
    pub(crate) fn start() -> io::Result<Self> {
        let (plans, plan_receiver) = watch::channel(None);
        let (issued_sender, issued) = watch::channel(0);
        let (ready_sender, ready_receiver) = std_mpsc::channel();
        std::thread::Builder::new().name("acme".to_owned()).spawn(move || {
            rt::cores::block_on(async move {
                let timers = match Timers::start() {
                    Ok(timers) => timers,
                    Err(error) => return drop(ready_sender.send(Err(error))),
                };
                // The starting thread waits for this message.
                let _ = ready_sender.send(Ok(()));
                let follow = follow(&timers, plan_receiver.clone(), &issued_sender);
                rt::tokio::join!(run(&timers, plan_receiver, &issued_sender), follow);
            });
        })?;
        let start_error = |_| Err(io::Error::other("cannot start the acme thread"));
        ready_receiver.recv().unwrap_or_else(start_error)?;
        Ok(Self { plans, issued })
    }

    /// Follows the certificates of a plan.
    pub(crate) fn apply_plan(&self, plan: &Arc<Plan>) {
        self.plans.send_replace(Some(Arc::clone(plan)));
    }

    /// Returns whether a certificate has been issued since the last call.
    pub(crate) fn take_issued(&mut self) -> bool {
        let has_changed = self.issued.has_changed().unwrap_or(false);
        self.issued.borrow_and_update();
        has_changed
    }
}

/// Returns the automatic certificates of a plan, each once.
pub(crate) fn acme_plans(plan: &Plan) -> Vec<AcmePlan> {
    let all = plan.listeners.iter().filter_map(|listener| listener.tls.as_ref()?.acme.clone());
    let mut unique: Vec<AcmePlan> = Vec::new();
    for acme in all {
        if !unique.iter().any(|other| other.certificate_path() == acme.certificate_path()) {
            unique.push(acme);
        }
    }
    unique
}

pub(crate) fn statuses() -> Vec<(String, CertificateStatus)> {
    let all = STATUS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.iter().map(|(name, status)| (name.clone(), status.clone())).collect()
}

pub(crate) fn add_metrics(snapshot: &mut Snapshot) {
    for (name, status) in statuses() {
        snapshot.add_certificate(&name, status.expires_at_s, status.issued, status.failed);
    }
}

fn change_status(plan: &AcmePlan, change: impl FnOnce(&mut CertificateStatus)) {
    let name = plan.domains.first().map(ToString::to_string).unwrap_or_default();
    change(STATUS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).entry(name).or_default());
}

/// Orders certificates as they become due.
async fn run(timers: &Timers, mut plans: watch::Receiver<Option<Arc<Plan>>>, issued: &watch::Sender<u64>) {
    let mut schedule = Schedule::default();
    loop {
        let plan = plans.borrow_and_update().clone();
        let mut wait_ns = CHECK_NS;
        for acme in plan.iter().flat_map(|plan| acme_plans(plan)) {
            let now_s = unix_ns() / SECOND_NS;
            let due_at_s = renewal_at_s(&acme).max(schedule.retry_at_s(&acme));
            if due_at_s <= now_s {
                renew(&acme, timers, &mut schedule, issued).await;
            }
            let next_s = renewal_at_s(&acme).max(schedule.retry_at_s(&acme));
            let end_s = rt::tls::certificate_validity(&acme.certificate_path()).map_or(0, |(_, end_s)| end_s);
            change_status(&acme, |status| (status.next_order_s, status.expires_at_s) = (next_s, end_s));
            let left_s = next_s.saturating_sub(unix_ns() / SECOND_NS).max(1);
            // Another replica may order meanwhile.
            let poll_ns = acme.sharing.map_or(CHECK_NS, |sharing| sharing.poll_interval_ns);
            wait_ns = wait_ns.min(left_s.saturating_mul(SECOND_NS)).min(poll_ns);
        }
        if !wait_for_plan(&mut plans, timers, wait_ns).await {
            return;
        }
    }
}

/// Offers the answers of other replicas, and notices the certificates that they store.
async fn follow(timers: &Timers, mut plans: watch::Receiver<Option<Arc<Plan>>>, issued: &watch::Sender<u64>) {
    let mut challenges = FollowedChallenges::default();
    let mut faulty: BTreeMap<std::path::PathBuf, String> = BTreeMap::new();
    loop {
        let plan = plans.borrow_and_update().clone();
        let shared =
            plan.iter().flat_map(|plan| acme_plans(plan)).filter_map(|acme| Some((acme.sharing?, acme)));
        let shared: Vec<(SharingPlan, AcmePlan)> = shared.collect();
        let storages: Vec<&std::path::Path> = shared.iter().map(|(_, acme)| &*acme.storage).collect();
        challenges.keep_only(&storages);
        for (_, acme) in &shared {
            challenges.poll(&acme.storage, unix_ns() / SECOND_NS);
            let path = acme.certificate_path();
            if !has_changed(&path) {
                continue;
            }
            match check_certificate(&path) {
                Ok(()) => {
                    faulty.remove(&path);
                    note_loaded(&path);
                    issued.send_modify(|count| *count += 1);
                }
                // It may be incomplete. The certificate in use stays.
                Err(fault) => {
                    let fault = fault.to_string();
                    if faulty.insert(path, fault.clone()).as_ref() != Some(&fault) {
                        eprintln!("weir: a stored certificate is not used: {fault}");
                    }
                }
            }
        }
        let wait_ns = shared.iter().map(|(sharing, _)| sharing.poll_interval_ns).min().unwrap_or(CHECK_NS);
        if !wait_for_plan(&mut plans, timers, wait_ns).await {
            return;
        }
    }
}

/// Waits for another plan, or for a time. Returns false at the end of the process.
async fn wait_for_plan(
    plans: &mut watch::Receiver<Option<Arc<Plan>>>,
    timers: &Timers,
    wait_ns: u64,
) -> bool {
    rt::tokio::select! {
        changed = plans.changed() => changed.is_ok(),
        () = timers.sleep_until((MonotonicTime::now() + wait_ns).as_ns()) => true,
    }
}

/// Result of an attempt.
enum Attempt {
    Issued,
    /// Another replica orders, or has done so: the next check finds its certificate.
    LeftToOthers,
}

/// Orders a certificate, and reports the result.
async fn renew(plan: &AcmePlan, timers: &Timers, schedule: &mut Schedule, issued: &watch::Sender<u64>) {
    let name = plan.domains.first().map(ToString::to_string).unwrap_or_default();
    match attempt(plan, timers, schedule).await {
        Ok(Attempt::LeftToOthers) => {}
        Ok(Attempt::Issued) => {
            schedule.succeeded(plan);
            change_status(plan, |status| {
                status.issued += 1;
                status.last_error.clear();
            });
            eprintln!("weir: certificate of {name} issued");
            note_loaded(&plan.certificate_path());
            issued.send_modify(|count| *count += 1);
        }
        Err(error) => {
            // The server chooses a part of the text.
            let error = printable(&error.to_string(), ERROR_BYTES_MAX);
            let retry_s = schedule.failed(plan, unix_ns() / SECOND_NS);
            change_status(plan, |status| {
                status.failed += 1;
                status.last_error.clone_from(&error);
            });
            eprintln!("weir: certificate of {name} not issued: {error}; next attempt in {retry_s} s");
        }
    }
}

/// Orders a certificate under the lock of its storage.
async fn attempt(plan: &AcmePlan, timers: &Timers, schedule: &Schedule) -> io::Result<Attempt> {
    let Some(sharing) = plan.sharing else {
        return match storage::lock(plan)? {
            Some(_lock) => order(plan, timers, None).await.map(|()| Attempt::Issued),
            // Another process orders it: the next check finds its certificate.
            None => Err(io::Error::other("another process orders it")),
        };
    };
    let Some(lease) = Lease::acquire(plan, sharing, timers).await? else {
        return Ok(Attempt::LeftToOthers);
    };
    // Another replica may have ordered, or failed, before it released the lock.
    if renewal_at_s(plan).max(schedule.retry_at_s(plan)) > unix_ns() / SECOND_NS {
        return Ok(Attempt::LeftToOthers);
    }
    order(plan, timers, Some(&lease)).await.map(|()| Attempt::Issued)
}

/// Orders a certificate in time, and removes the records of its challenges in any case.
async fn order(plan: &AcmePlan, timers: &Timers, lease: Option<&Lease>) -> io::Result<()> {
    let mut records = Vec::new();
    let propagation_ns = plan.dns.as_ref().map_or(0, |dns| dns.propagation_timeout_ns);
    let hook_ns = plan.hook().map_or(0, |hook| hook.timeout_ns.saturating_mul(plan.domains.len() as u64));
    let timeout_ns = ORDER_TIMEOUT_NS.saturating_add(propagation_ns).saturating_add(hook_ns);
    let result = {
        let mut context = OrderContext { plan, timers, lease, records: &mut records };
        rt::tokio::select! {
            result = order_certificate(&mut context) => result,
            error = keep(lease, timers) => Err(error),
            () = timers.sleep_until((MonotonicTime::now() + timeout_ns).as_ns()) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the order took too long"))
            }
        }
    };
    remove_records(plan, timers, &records).await;
    result
}

/// Renews the lock of a shared storage until it is lost.
async fn keep(lease: Option<&Lease>, timers: &Timers) -> io::Error {
    match lease {
        Some(lease) => lease.keep(timers).await,
        None => std::future::pending().await,
    }
}

/// Removes the records of an order. A failure is only reported: the values are of no use to anybody.
async fn remove_records(plan: &AcmePlan, timers: &Timers, records: &[TxtRecord]) {
    let Some(settings) = &plan.dns else { return };
    for record in records {
        if let Err(error) = dns_challenge::remove(settings, timers, record).await {
            let error = printable(&error.to_string(), ERROR_BYTES_MAX);
            eprintln!("weir: the record {} is not removed: {error}", record.name);
        }
    }
}
