//! Location of the requests in flight: sampling them by location splits the time of a request by
//! location (Little's law for each). Thresholds are elsewhere.

use record::observed::InFlightByLocation;
use record::run::TimeFraction;

use crate::run_view::RunView;
use crate::window::SUBJECT;

/// Minimum fraction of a location; smaller ones are noise of the snapshots, and left out.
const FRACTION_MIN: f64 = 0.01;

/// Location, and the number of a snapshot's requests at it.
type Location = (&'static str, fn(&InFlightByLocation) -> u64);

/// Locations in the order of a request's path. The rest is in the kernel, on the link, or in the
/// subject within one clock tick.
const LOCATIONS: &[Location] = &[
    ("unread at the subject", |at| at.unread_at_subject),
    ("in the subject", |at| at.inside_subject),
    ("at the origins", |at| at.at_origins),
    ("unread response of an origin", |at| at.origin_responses_unread),
    ("unread at the generator", |at| at.unread_at_generator),
];

/// Returns the mean fraction of the requests in flight at each location; empty if the subject's
/// sockets are not observed.
pub(super) fn time_split(view: &RunView<'_>) -> Vec<TimeFraction> {
    let mut fractions: Vec<TimeFraction> = LOCATIONS
        .iter()
        .filter_map(|(location, count)| {
            let fraction = fraction_at(view, *count, stats::mean)?;
            Some(TimeFraction { location: (*location).to_owned(), fraction })
        })
        .collect();
    let located: f64 = fractions.iter().map(|fraction| fraction.fraction).sum();
    if located <= 0.0 {
        return Vec::new();
    }
    // The snapshots may have more requests than were in flight on average.
    fractions.iter_mut().for_each(|fraction| fraction.fraction /= located.max(1.0));
    let remainder = TimeFraction {
        location: "other (kernel, link, or too short to sample)".to_owned(),
        fraction: (1.0 - located).max(0.0),
    };
    fractions.into_iter().chain([remainder]).filter(|fraction| fraction.fraction >= FRACTION_MIN).collect()
}

pub(super) fn median_fraction_at(view: &RunView<'_>, count: fn(&InFlightByLocation) -> u64) -> Option<f64> {
    fraction_at(view, count, stats::median).map(|fraction| fraction.min(1.0))
}

/// Returns the fraction of the requests in flight at one location: the `average` of the snapshots,
/// which may be above 1 because they are a few moments.
fn fraction_at(
    view: &RunView<'_>,
    count: fn(&InFlightByLocation) -> u64,
    average: fn(&[f64]) -> Option<f64>,
) -> Option<f64> {
    let machine = view.machine(SUBJECT)?;
    let in_flight = view.run.generator.in_flight_mean;
    let snapshots = machine.snapshots().into_iter();
    let counts: Vec<f64> =
        snapshots.map(|snapshot| count(&machine.observed.in_flight(snapshot)) as f64).collect();
    (in_flight > 0.0).then_some(average(&counts)? / in_flight)
}
