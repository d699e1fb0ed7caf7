//! Automatic certificates (ACME, RFC 8555): orders them, and renews them at two thirds of their
//! lifetime, in a thread of its own. `order` has one order, `http` its client,
//! `storage` the files, `tokens` the answers to challenges over HTTP; `rt::tls` has those over TLS. The control thread
//! puts a new certificate into force as a reload does.

mod http;
mod order;
mod schedule;
mod storage;
mod tokens;

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
use crate::plan::{AcmePlan, Plan};
use schedule::{Schedule, renewal_at_s};
pub(crate) use tokens::{CHALLENGE_PREFIX, answer_to_challenge};

/// Maximum time of an order.
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
                run(timers, plan_receiver, issued_sender).await;
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

async fn run(timers: Timers, mut plans: watch::Receiver<Option<Arc<Plan>>>, issued: watch::Sender<u64>) {
    let mut schedule = Schedule::default();
    loop {
        let plan = plans.borrow_and_update().clone();
        let mut wait_ns = CHECK_NS;
        for acme in plan.iter().flat_map(|plan| acme_plans(plan)) {
            let now_s = unix_ns() / SECOND_NS;
            let due_at_s = renewal_at_s(&acme).max(schedule.retry_at_s(&acme));
            if due_at_s <= now_s {
                renew(&acme, &timers, &mut schedule, &issued).await;
            }
            let next_s = renewal_at_s(&acme).max(schedule.retry_at_s(&acme));
            change_status(&acme, |status| status.next_order_s = next_s);
            let left_s = next_s.saturating_sub(unix_ns() / SECOND_NS).max(1);
            wait_ns = wait_ns.min(left_s.saturating_mul(SECOND_NS));
        }
        rt::tokio::select! {
            changed = plans.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = timers.sleep_until((MonotonicTime::now() + wait_ns).as_ns()) => {}
        }
    }
}

/// Orders a certificate, and reports the result.
async fn renew(plan: &AcmePlan, timers: &Timers, schedule: &mut Schedule, issued: &watch::Sender<u64>) {
    let name = plan.domains.first().map(ToString::to_string).unwrap_or_default();
    let result = match storage::lock(plan) {
        Ok(Some(_lock)) => rt::tokio::select! {
            result = order::order_certificate(plan, timers) => result,
            () = timers.sleep_until((MonotonicTime::now() + ORDER_TIMEOUT_NS).as_ns()) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the order took too long"))
            }
        },
        // Another process orders it: the next check finds its certificate.
        Ok(None) => Err(io::Error::other("another process orders it")),
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => {
            schedule.succeeded(plan);
            change_status(plan, |status| {
                status.issued += 1;
                status.last_error.clear();
            });
            eprintln!("weir: certificate of {name} issued");
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
    let end_s = rt::tls::certificate_validity(&plan.certificate_path()).map_or(0, |(_, end_s)| end_s);
    change_status(plan, |status| status.expires_at_s = end_s);
}
