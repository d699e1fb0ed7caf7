//! Names of servers: looked up in DNS now and then, in the thread of the proxy's health, and told to
//! the control thread when they lead elsewhere. The data path only ever sees addresses: a change is
//! applied as a reload is, so that no request is lost by it.
//!
//! An own codec rather than a library: what is needed are three types of record, and sockets that fit
//! our runtime, which has no timers of tokio's.

mod expand;
pub(crate) mod message;
mod resolver;
mod system;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;

use rt::clock::{SECOND_NS, now_ns};
use rt::timers::Timers;
use rt::tokio::sync::{Notify, watch as channel};
use rt::tokio::task::{AbortHandle, spawn_local};

pub(crate) use expand::{expand, has_names};

use crate::metrics::Snapshot;
use crate::plan::{Lookup, NamedServers, Plan, PoolPlan, ResolvePlan};
use resolver::{Asker, Trouble};
use watch::{News, Watch};

/// One server that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) address: SocketAddr,
    /// As a service's record has it.
    pub(crate) weight: Option<u32>,
}

/// What is looked up, and how.
pub(crate) type Key = (Lookup, ResolvePlan);
/// The servers of all names, in order.
pub(crate) type Known = BTreeMap<Key, Vec<Found>>;

fn key(pool: &PoolPlan, names: &NamedServers) -> Key {
    (names.lookup.clone(), pool.resolve.clone())
}

/// Names whose counts are kept after the config has them no longer.
const COUNTED_MAX: usize = 1_000;
/// Addresses that a notice names.
const SHOWN_MAX: usize = 8;

/// All names that are looked up.
#[derive(Debug)]
pub(crate) struct Names {
    timers: Timers,
    entries: RefCell<BTreeMap<Key, Rc<Entry>>>,
    tell: channel::Sender<Known>,
    /// Questions, by name and what came of them.
    counts: RefCell<BTreeMap<(String, &'static str), u64>>,
}

/// One name.
#[derive(Debug, Default)]
struct Entry {
    watch: RefCell<Watch>,
    /// Whether it was looked up, whatever came of it.
    tried: Cell<bool>,
    was_tried: Notify,
    task: RefCell<Option<AbortHandle>>,
}

impl Names {
    pub(crate) fn new(timers: Timers, tell: channel::Sender<Known>) -> Rc<Self> {
        Rc::new(Self { timers, entries: RefCell::default(), tell, counts: RefCell::default() })
    }

    /// Looks up the names of `plan` as well; returns once each of them was tried.
    pub(crate) async fn prepare(self: &Rc<Self>, plan: &Plan) {
        let mut fresh = Vec::new();
        for key in keys(plan) {
            let known = self.entries.borrow().get(&key).cloned();
            let entry = known.unwrap_or_else(|| self.add(key));
            fresh.push(entry);
        }
        for entry in fresh {
            while !entry.tried.get() {
                entry.was_tried.notified().await;
            }
        }
    }

    fn add(self: &Rc<Self>, key: Key) -> Rc<Entry> {
        let entry = Rc::new(Entry::default());
        self.entries.borrow_mut().insert(key.clone(), Rc::clone(&entry));
        let task = spawn_local(look_up_always(Rc::clone(self), key, Rc::clone(&entry)));
        *entry.task.borrow_mut() = Some(task.abort_handle());
        entry
    }

    /// From now on only the names of `plan` matter.
    pub(crate) fn follow(self: &Rc<Self>, plan: &Plan) {
        let wanted: Vec<Key> = keys(plan).collect();
        for key in &wanted {
            if !self.entries.borrow().contains_key(key) {
                self.add(key.clone());
            }
        }
        self.entries.borrow_mut().retain(|key, entry| {
            let stays = wanted.contains(key);
            if let Some(task) = entry.task.borrow().as_ref().filter(|_| !stays) {
                task.abort();
            }
            stays
        });
        let mut counts = self.counts.borrow_mut();
        if counts.len() > COUNTED_MAX {
            counts.retain(|(name, _), _| wanted.iter().any(|(at, _)| at.to_string() == *name));
        }
    }

    /// Adds what was counted.
    pub(crate) fn add_to(&self, all: &mut Snapshot) {
        for ((name, result), count) in &*self.counts.borrow() {
            all.add_dns_queries(name, result, *count);
        }
        for ((lookup, _), entry) in &*self.entries.borrow() {
            all.add_dns_failing(&lookup.to_string(), entry.watch.borrow().is_failing());
        }
    }

    fn tell(&self) {
        let entries = self.entries.borrow();
        let known = entries.iter().map(|(key, entry)| {
            let watch = entry.watch.borrow();
            (key.clone(), watch.found().to_vec())
        });
        // Nobody listens any more when the process ends.
        let _ = self.tell.send(known.collect());
    }

    /// Looks up a name once; how long to wait for the next time.
    async fn look_up(&self, (lookup, plan): &Key, entry: &Entry) -> u64 {
        let name = lookup.to_string();
        let asker = Asker {
            timers: &self.timers,
            plan,
            count: &|result| {
                *self.counts.borrow_mut().entry((name.clone(), result)).or_default() += 1;
            },
        };
        let result = asker.look_up(lookup).await;
        let mut watch = entry.watch.borrow_mut();
        let before = watch.found().to_vec();
        let now_ns = now_ns();
        let (news, ttl_ns, trouble) = match result {
            Ok((mut found, ttl_ns)) => {
                let more = found.len().saturating_sub(plan.servers_max);
                found.truncate(plan.servers_max);
                let news = watch.note_answer(found, now_ns);
                if more > 0 && news == News::Changed {
                    eprintln!("weir: {name} has {more} addresses more than servers-max");
                }
                (news, ttl_ns, None)
            }
            Err(trouble) => (watch.note_failure(plan, now_ns), 0, Some(trouble)),
        };
        let notice = notice(&name, news, &before, watch.found(), trouble);
        let wait_ns = watch.wait_ns(plan, ttl_ns);
        drop(watch);
        if let Some(notice) = notice {
            eprintln!("weir: {notice}");
        }
        if matches!(news, News::Changed | News::Dropped) {
            self.tell();
        }
        wait_ns
    }
}

fn keys(plan: &Plan) -> impl Iterator<Item = Key> {
    plan.pools.iter().flat_map(|pool| pool.names.iter().map(|names| key(pool, names)))
}

async fn look_up_always(names: Rc<Names>, key: Key, entry: Rc<Entry>) {
    loop {
        let wait_ns = names.look_up(&key, &entry).await;
        entry.tried.set(true);
        entry.was_tried.notify_waiters();
        names.timers.sleep_until(now_ns() + wait_ns).await;
    }
}

/// What is said of news, if anything.
fn notice(
    name: &str,
    news: News,
    before: &[Found],
    now: &[Found],
    trouble: Option<Trouble>,
) -> Option<String> {
    let why = trouble.map_or("", Trouble::doc);
    let held = format!("{name}: {why}; ");
    match news {
        News::Nothing => None,
        News::Changed if before.is_empty() => Some(format!("{name} is {}", shown(now))),
        News::Changed => Some(format!("{name} is {}, and was {}", shown(now), shown(before))),
        News::Held if now.is_empty() => Some(held + "it has no servers"),
        News::Held => Some(held + "its servers stay as they were"),
        News::Dropped => Some(held + "it has no servers any more"),
        News::Back => Some(format!("{name}: there are answers again")),
    }
}

fn shown(found: &[Found]) -> String {
    let mut text = String::new();
    for (index, one) in found.iter().take(SHOWN_MAX).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{comma}{}", one.address);
    }
    if found.len() > SHOWN_MAX {
        let _ = write!(text, " and {} more", found.len() - SHOWN_MAX);
    }
    text
}

/// For how long the first look-ups of a plan may hold up its start.
pub(crate) const PATIENCE_NS: u64 = 5 * SECOND_NS;
