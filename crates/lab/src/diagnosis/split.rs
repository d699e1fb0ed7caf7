//! Where the requests in flight are: sampling them by place splits the time of a request by place
//! (Little's law for each place). Not for thresholds.

use record::observed::InFlight;
use record::run::TimeShare;

use super::view::{SUBJECT, View, median};

/// Shares below this are noise of the snapshots, and left out.
const SHARE_MIN: f64 = 0.01;

/// A place, and the requests of a snapshot that are there.
type Place = (&'static str, fn(&InFlight) -> u64);

/// The places, in the order of a request's way. The rest is with the kernel, on the link, or with the
/// subject in the same clock tick.
const PLACES: &[Place] = &[
    ("unread at the subject", |at| at.unread_at_subject),
    ("in the subject", |at| at.inside_subject),
    ("at the origins", |at| at.at_origins),
    ("unread reply of an origin", |at| at.origin_replies_unread),
    ("unread at the generator", |at| at.unread_at_generator),
];

/// The mean share of the requests in flight at each place; empty where the subject's sockets are not
/// observed.
pub(super) fn time_split(view: &View<'_>) -> Vec<TimeShare> {
    let shares: Vec<TimeShare> = PLACES
        .iter()
        .filter_map(|(place, count)| {
            let share = share_at(view, *count)?;
            Some(TimeShare { place: (*place).to_owned(), share })
        })
        .collect();
    let known: f64 = shares.iter().map(|one| one.share).sum();
    if known <= 0.0 {
        return Vec::new();
    }
    let rest = TimeShare {
        place: "elsewhere (kernel, link, or too short to see)".to_owned(),
        share: (1.0 - known).max(0.0),
    };
    shares.into_iter().chain([rest]).filter(|one| one.share >= SHARE_MIN).collect()
}

/// The share of the requests in flight that are at one place: the median over the snapshots.
pub(super) fn share_at(view: &View<'_>, count: fn(&InFlight) -> u64) -> Option<f64> {
    let machine = view.machine(SUBJECT)?;
    let in_flight = view.run.generator.in_flight_mean;
    let counts = machine.snapshots().into_iter().map(|one| count(&machine.seen.in_flight(one)));
    let typical = median(counts.map(|count| count as f64).collect())?;
    (in_flight > 0.0).then(|| (typical / in_flight).min(1.0))
}
