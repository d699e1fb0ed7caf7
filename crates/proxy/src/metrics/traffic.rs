//! Metrics of copied requests, and of requests that were sent to a second server.

use std::cell::OnceCell;

use super::caching::CacheCounters;
use super::codes::status_class;
use super::histogram::Histogram;
use super::snapshot::Snapshot;
use super::table::Metric;
use super::{CLASS_TCP, CLASSES, CounterCell, Metrics, new_counters};
use crate::outcome::HedgeEvent;
use crate::plan::RoutePlan;

code_table! {
    /// Reason that a request was not copied.
    pub(crate) enum MirrorDrop:
    BodyTooLarge, "body_too_large";
    InFlight, "in_flight";
    Memory, "memory";
    Incomplete, "incomplete";
}

/// Status and time to the head of a response; 0 and `None`: there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MirrorSide {
    pub(crate) status: u16,
    pub(crate) time_ns: Option<u64>,
}

/// Metrics of the traffic of a route.
#[derive(Debug)]
pub(super) struct TrafficMetrics {
    mirrors: Vec<MirrorMetrics>,
    /// By [`HedgeEvent`]; empty: the route sends no request twice.
    hedges: Vec<CounterCell>,
    pub(super) cache: Option<CacheCounters>,
}

#[derive(Debug)]
struct MirrorMetrics {
    pool: Box<str>,
    /// By the class of the original's status, and that of the copy's.
    classes: Box<[[CounterCell; CLASS_TCP]; CLASS_TCP]>,
    equal: CounterCell,
    different: CounterCell,
    unanswered: CounterCell,
    original_time: OnceCell<Box<Histogram>>,
    mirror_time: OnceCell<Box<Histogram>>,
    dropped: Vec<CounterCell>,
}

impl TrafficMetrics {
    /// Returns the metrics of a route; `None`: it needs none.
    pub(super) fn new(route: &RoutePlan) -> Option<Box<Self>> {
        let settings = route.settings.by_listener.first()?;
        let mirror = |pool: &str| MirrorMetrics {
            pool: pool.into(),
            classes: Box::default(),
            equal: CounterCell::default(),
            different: CounterCell::default(),
            unanswered: CounterCell::default(),
            original_time: OnceCell::new(),
            mirror_time: OnceCell::new(),
            dropped: new_counters(MirrorDrop::ALL.len()),
        };
        let hedges = if settings.hedge.is_some() { HedgeEvent::ALL.len() } else { 0 };
        let mirrors: Vec<_> = settings.mirrors.iter().map(|plan| mirror(&plan.pool_name)).collect();
        let cache = settings.cache.as_ref().map(|plan| CacheCounters::new(&plan.cache.name));
        let is_needed = hedges > 0 || !mirrors.is_empty() || cache.is_some();
        is_needed.then(|| Box::new(Self { mirrors, hedges: new_counters(hedges), cache }))
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot, route: &str) {
        for (event, count) in HedgeEvent::ALL.iter().zip(&self.hedges) {
            snapshot.add(Metric::Hedges, &[route, event.code()], count.0.get());
        }
        self.mirrors.iter().for_each(|mirror| mirror.add_to(snapshot, route));
        self.cache.iter().for_each(|cache| cache.add_to(snapshot, route));
    }
}

impl MirrorMetrics {
    fn add_to(&self, snapshot: &mut Snapshot, route: &str) {
        let pool = &*self.pool;
        for (original, counts) in CLASSES.iter().zip(&*self.classes) {
            for (mirrored, count) in CLASSES.iter().zip(counts) {
                if count.0.get() > 0 {
                    let labels = [route, pool, original, mirrored];
                    snapshot.add(Metric::MirroredRequests, &labels, count.0.get());
                }
            }
        }
        for (result, count) in
            [("equal", &self.equal), ("different", &self.different), ("unanswered", &self.unanswered)]
        {
            snapshot.add(Metric::MirrorComparisons, &[route, pool, result], count.0.get());
        }
        for (reason, count) in MirrorDrop::ALL.iter().zip(&self.dropped) {
            snapshot.add(Metric::MirrorsDropped, &[route, pool, reason.code()], count.0.get());
        }
        for (from, times) in [("original", &self.original_time), ("mirror", &self.mirror_time)] {
            if let Some(times) = times.get() {
                snapshot.add_times(Metric::MirrorSeconds, &[route, pool, from], times.snapshot());
            }
        }
    }
}

impl Metrics {
    fn mirror(&self, route: usize, mirror: usize) -> Option<&MirrorMetrics> {
        self.common.routes.get(route)?.traffic.as_ref()?.mirrors.get(mirror)
    }

    /// Counts a request and its copy, once both have ended.
    pub(crate) fn record_mirrored(
        &self,
        (route, mirror): (usize, usize),
        original: MirrorSide,
        copy: MirrorSide,
    ) {
        let Some(mirror) = self.mirror(route, mirror) else { return };
        mirror.classes[status_class(original.status)][status_class(copy.status)].add(1);
        let result = match copy.status {
            0 => &mirror.unanswered,
            status if status == original.status => &mirror.equal,
            _ => &mirror.different,
        };
        result.add(1);
        for (side, times) in [(original, &mirror.original_time), (copy, &mirror.mirror_time)] {
            if let Some(time_ns) = side.time_ns {
                times.get_or_init(Box::default).record(time_ns);
            }
        }
    }

    /// Counts a request that was not copied.
    pub(crate) fn count_mirror_drop(&self, (route, mirror): (usize, usize), reason: MirrorDrop) {
        self.mirror(route, mirror).inspect(|mirror| mirror.dropped[reason as usize].add(1));
    }

    pub(crate) fn set_mirrors(&self, in_flight: u64, bytes: u64) {
        self.common.mirrors_in_flight.0.set(in_flight);
        self.common.mirror_bytes.0.set(bytes);
    }

    pub(crate) fn count_hedge(&self, route: Option<usize>, event: HedgeEvent) {
        let route = route.and_then(|route| self.common.routes.get(route));
        let hedges = route.and_then(|route| route.traffic.as_ref()).map(|traffic| &traffic.hedges);
        hedges.and_then(|hedges| hedges.get(event as usize)).inspect(|count| count.add(1));
    }
}
