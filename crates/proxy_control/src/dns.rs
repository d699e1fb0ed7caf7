//! Host names of servers: resolved by DNS periodically in the health thread, which reports changes
//! to the control thread. The data path only sees addresses. A change swaps the servers of the
//! affected pools; requests in flight keep theirs.
//!
//! The client is our own rather than a library's: its sockets must fit our runtime, which has no tokio timers.

mod expand;
mod lookup_state;
mod resolver;
mod system_config;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;

use rt::clock::{MonotonicTime, SECOND_NS};
use rt::timers::Timers;
use rt::tokio::sync::{Notify, watch as channel};
use rt::tokio::task::{AbortHandle, spawn_local};

pub(crate) use proxy_config::dns_codec::{message, tsig, update};

pub(crate) use expand::{expand, has_named_servers};

use crate::metrics::Snapshot;
use crate::plan::{Lookup, NamedServers, Plan, PoolPlan, ResolvePlan};
use lookup_state::{LookupChange, LookupState};
use resolver::{DnsClient, LookupError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResolvedServer {
    pub(crate) address: SocketAddr,
    pub(crate) weight: Option<u32>,
}

pub(crate) type LookupKey = (Lookup, ResolvePlan);
/// The servers of all names, in order.
pub(crate) type ResolvedServers = BTreeMap<LookupKey, Vec<ResolvedServer>>;

/// Returns the nameservers of this host.
pub(crate) fn system_nameservers() -> Vec<SocketAddr> {
    system_config::parse_nameservers(&std::fs::read_to_string(resolver::RESOLV_CONF).unwrap_or_default())
}

fn lookup_key(pool: &PoolPlan, names: &NamedServers) -> LookupKey {
    (names.lookup.clone(), pool.resolve.clone())
}

/// Maximum number of names whose counters are kept after the config has dropped them.
const COUNTED_MAX: usize = 1_000;
const NOTICE_ADDRESSES_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct DnsResolver {
    timers: Timers,
    names: RefCell<BTreeMap<LookupKey, Rc<NameEntry>>>,
    updates: channel::Sender<ResolvedServers>,
    /// Number of queries by name and result.
    counts: RefCell<BTreeMap<(String, &'static str), u64>>,
}

#[derive(Debug, Default)]
struct NameEntry {
    state: RefCell<LookupState>,
    /// True once the name was looked up, successfully or not.
    is_tried: Cell<bool>,
    tried_notify: Notify,
    task: RefCell<Option<AbortHandle>>,
}

impl DnsResolver {
    pub(crate) fn new(timers: Timers, updates: channel::Sender<ResolvedServers>) -> Rc<Self> {
        Rc::new(Self { timers, names: RefCell::default(), updates, counts: RefCell::default() })
    }

    /// Resolves the names of `plan` as well. Returns once each of them was tried.
    pub(crate) async fn prepare(self: &Rc<Self>, plan: &Plan) {
        let mut pending = Vec::new();
        for key in lookup_keys(plan) {
            let existing = self.names.borrow().get(&key).cloned();
            let entry = existing.unwrap_or_else(|| self.add(key));
            pending.push(entry);
        }
        for entry in pending {
            while !entry.is_tried.get() {
                entry.tried_notify.notified().await;
            }
        }
    }

    fn add(self: &Rc<Self>, key: LookupKey) -> Rc<NameEntry> {
        let entry = Rc::new(NameEntry::default());
        self.names.borrow_mut().insert(key.clone(), Rc::clone(&entry));
        let task = spawn_local(run_lookups(Rc::clone(self), key, Rc::clone(&entry)));
        *entry.task.borrow_mut() = Some(task.abort_handle());
        entry
    }

    /// Drops all names that are not in `plan`.
    pub(crate) fn set_plan(self: &Rc<Self>, plan: &Plan) {
        let plan_keys: Vec<LookupKey> = lookup_keys(plan).collect();
        for key in &plan_keys {
            if !self.names.borrow().contains_key(key) {
                self.add(key.clone());
            }
        }
        self.names.borrow_mut().retain(|key, entry| {
            let is_kept = plan_keys.contains(key);
            if let Some(task) = entry.task.borrow().as_ref().filter(|_| !is_kept) {
                task.abort();
            }
            is_kept
        });
        let mut counts = self.counts.borrow_mut();
        if counts.len() > COUNTED_MAX {
            counts.retain(|(name, _), _| plan_keys.iter().any(|(lookup, _)| lookup.to_string() == *name));
        }
    }

    pub(crate) fn add_metrics(&self, snapshot: &mut Snapshot) {
        for ((name, result), count) in &*self.counts.borrow() {
            snapshot.add_dns_queries(name, result, *count);
        }
        for ((lookup, _), entry) in &*self.names.borrow() {
            snapshot.add_dns_failing(&lookup.to_string(), entry.state.borrow().is_failing());
        }
    }

    fn send_update(&self) {
        let entries = self.names.borrow();
        let resolved = entries.iter().map(|(key, entry)| {
            let state = entry.state.borrow();
            (key.clone(), state.servers().to_vec())
        });
        // The receiver is gone when the process ends.
        let _ = self.updates.send(resolved.collect());
    }

    /// Resolves a name once. Returns the wait time until the next attempt.
    async fn look_up(&self, (lookup, plan): &LookupKey, entry: &NameEntry) -> u64 {
        let name = lookup.to_string();
        let client = DnsClient {
            timers: &self.timers,
            plan,
            count: &|result| {
                *self.counts.borrow_mut().entry((name.clone(), result)).or_default() += 1;
            },
        };
        let result = client.resolve(lookup).await;
        let mut state = entry.state.borrow_mut();
        let previous = state.servers().to_vec();
        let now = MonotonicTime::now();
        let (change, ttl_ns, error) = match result {
            Ok((mut servers, ttl_ns)) => {
                let dropped = servers.len().saturating_sub(plan.servers_max);
                servers.truncate(plan.servers_max);
                let change = state.record_answer(servers, now);
                if dropped > 0 && change == LookupChange::Changed {
                    eprintln!(
                        "weir: {name} has {dropped} more addresses than servers-max allows; they are not used"
                    );
                }
                (change, ttl_ns, None)
            }
            Err(error) => (state.record_failure(plan, now), 0, Some(error)),
        };
        let notice = notice(&name, change, &previous, state.servers(), error);
        let wait_ns = state.next_wait_ns(plan, ttl_ns);
        drop(state);
        if let Some(notice) = notice {
            eprintln!("weir: {notice}");
        }
        if matches!(change, LookupChange::Changed | LookupChange::Expired) {
            self.send_update();
        }
        wait_ns
    }
}

fn lookup_keys(plan: &Plan) -> impl Iterator<Item = LookupKey> {
    plan.pools.iter().flat_map(|pool| pool.named_servers.iter().map(|names| lookup_key(pool, names)))
}

async fn run_lookups(resolver: Rc<DnsResolver>, key: LookupKey, entry: Rc<NameEntry>) {
    loop {
        let wait_ns = resolver.look_up(&key, &entry).await;
        entry.is_tried.set(true);
        entry.tried_notify.notify_waiters();
        resolver.timers.sleep_until((MonotonicTime::now() + wait_ns).as_ns()).await;
    }
}

fn notice(
    name: &str,
    change: LookupChange,
    previous: &[ResolvedServer],
    current: &[ResolvedServer],
    error: Option<LookupError>,
) -> Option<String> {
    let reason = error.map_or("", LookupError::doc);
    let prefix = format!("{name}: {reason}; ");
    match change {
        LookupChange::Unchanged => None,
        LookupChange::Changed if previous.is_empty() => {
            Some(format!("{name} resolves to {}", format_addresses(current)))
        }
        LookupChange::Changed => Some(format!(
            "{name} resolves to {}, previously {}",
            format_addresses(current),
            format_addresses(previous)
        )),
        LookupChange::Held if current.is_empty() => Some(prefix + "no servers"),
        LookupChange::Held => Some(prefix + "keeping its servers"),
        LookupChange::Expired => Some(prefix + "its servers are removed"),
        LookupChange::Recovered => Some(format!("{name}: lookups succeed again")),
    }
}

fn format_addresses(servers: &[ResolvedServer]) -> String {
    let mut text = String::new();
    for (index, server) in servers.iter().take(NOTICE_ADDRESSES_MAX).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{}", server.address);
    }
    if servers.len() > NOTICE_ADDRESSES_MAX {
        let _ = write!(text, " and {} more", servers.len() - NOTICE_ADDRESSES_MAX);
    }
    text
}

/// Maximum time by which the first lookups of a plan may delay its start.
pub(crate) const FIRST_LOOKUPS_TIMEOUT_NS: u64 = 5 * SECOND_NS;
