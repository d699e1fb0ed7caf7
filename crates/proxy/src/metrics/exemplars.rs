//! Exemplars of the histograms of request times: for each bucket, the trace of the last recorded request in it. Recorded
//! only for requests whose spans are exported, so other requests cost nothing.

use std::cell::{Cell, OnceCell};
use std::num::NonZero;

use super::CLASSES;
use super::histogram::BOUNDS_NS;
use crate::trace_context::TraceId;

/// Number of buckets that can have one: the exported ones, and that for longer times.
const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// A request whose trace shows how such a time comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exemplar {
    pub(crate) trace_id: TraceId,
    pub(crate) time_ns: u64,
    /// End of the request.
    pub(crate) unix_ns: NonZero<u64>,
}

/// Exemplars of one histogram, by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exemplars([Option<Exemplar>; BUCKETS]);

impl Exemplars {
    pub(super) fn get(&self, bucket: usize) -> Option<&Exemplar> {
        self.0.get(bucket)?.as_ref()
    }

    /// Takes over newer ones.
    pub(super) fn add(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            let end = |exemplar: &Option<Exemplar>| exemplar.map_or(0, |exemplar| exemplar.unix_ns.get());
            if end(&other) > end(own) {
                *own = other;
            }
        }
    }
}

/// Exemplars of the histograms of a route, allocated with the first one: 704 bytes for each class of a status.
#[derive(Debug, Default)]
pub(super) struct ClassExemplars(OnceCell<Box<[OnceCell<Box<BucketExemplars>>; CLASSES.len()]>>);

type BucketExemplars = [Cell<Option<Exemplar>>; BUCKETS];

impl ClassExemplars {
    /// Replaces that of the bucket.
    #[cold]
    pub(super) fn record(&self, class: usize, exemplar: Exemplar) {
        let bucket = BOUNDS_NS.partition_point(|&bound_ns| bound_ns < exemplar.time_ns);
        self.0.get_or_init(Box::default)[class].get_or_init(Box::default)[bucket].set(Some(exemplar));
    }

    /// Returns those of a class; `None`: there are none.
    pub(super) fn snapshot(&self, class: usize) -> Option<Box<Exemplars>> {
        let buckets = self.0.get()?[class].get()?;
        Some(Box::new(Exemplars(std::array::from_fn(|bucket| buckets[bucket].get()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(trace_id: u128, time_ns: u64, unix_ns: u64) -> Exemplar {
        Exemplar {
            trace_id: TraceId::new(NonZero::new(trace_id).unwrap()),
            time_ns,
            unix_ns: NonZero::new(unix_ns).unwrap(),
        }
    }

    #[test]
    fn each_bucket_has_the_last_one() {
        let classes = ClassExemplars::default();
        assert!(classes.snapshot(2).is_none());
        for (trace_id, time_ns) in [(1, 0), (2, BOUNDS_NS[0]), (3, BOUNDS_NS[0] + 1), (4, u64::MAX)] {
            classes.record(2, exemplar(trace_id, time_ns, 10));
        }
        let found = classes.snapshot(2).unwrap();
        let ids: Vec<_> = (0..BUCKETS).filter_map(|at| Some((at, found.get(at)?.trace_id.get()))).collect();
        assert_eq!(ids, [(0, 2), (1, 3), (BUCKETS - 1, 4)]);
        assert!(found.get(BUCKETS).is_none() && classes.snapshot(3).is_none());
        assert!(size_of::<BucketExemplars>() <= 704);
    }

    #[test]
    fn of_two_cores_the_newer_one_stays() {
        let [first, second] = [(1, 20), (2, 30)].map(|(trace_id, unix_ns)| {
            let classes = ClassExemplars::default();
            classes.record(0, exemplar(trace_id, 5, unix_ns));
            *classes.snapshot(0).unwrap()
        });
        let mut merged = second.clone();
        merged.add(&first);
        assert_eq!(merged, second);
        let mut merged = first;
        merged.add(&second);
        assert_eq!(merged, second);
        merged.add(&Exemplars::default());
        assert_eq!(merged, second);
    }
}
