//! Traffic of links, on the machines at both ends of the path between generator and subject.
//! Thresholds are elsewhere.

use std::collections::BTreeMap;

use record::observed::{LinkUse, MachineSample};
use stats::relative_deviation;

use crate::figures as f;
use crate::run_view::RunView;
use crate::window::median;

const SPREAD_SAMPLES_MIN: usize = 3;

type LinkSamples<'a> = Vec<&'a LinkUse>;

/// Returns all links. Loopback counts only if a queue gives it a rate.
fn links<'a>(view: &RunView<'a>) -> Vec<LinkSamples<'a>> {
    let mut all = Vec::new();
    for machine in view.path_machines() {
        let mut samples_by_link: BTreeMap<(&str, &str), LinkSamples<'a>> = BTreeMap::new();
        let samples = machine.samples();
        let shaped = |name: &str| {
            let named = samples.iter().flat_map(|sample| &sample.links).filter(|link| link.name == name);
            named.flat_map(|link| &link.queues).any(|queue| queue.rate_bits_per_s.is_some())
        };
        for link in samples.iter().flat_map(|sample| &sample.links) {
            if link.name != "lo" || shaped("lo") {
                samples_by_link.entry((&link.role, &link.name)).or_default().push(link);
            }
        }
        all.extend(samples_by_link.into_values());
    }
    all
}

fn median_over_samples(link: &LinkSamples<'_>, figure: fn(&LinkUse) -> Option<f64>) -> Option<f64> {
    median(link.iter().filter_map(|link| figure(link)).collect())
}

fn busiest<'a>(view: &RunView<'a>, figure: fn(&LinkUse) -> Option<f64>) -> Option<(LinkSamples<'a>, f64)> {
    let links = links(view).into_iter();
    let with_values = links.filter_map(|link| median_over_samples(&link, figure).map(|value| (link, value)));
    with_values.max_by(|left, right| left.1.total_cmp(&right.1))
}

pub(super) fn link_utilization(view: &RunView<'_>) -> Option<f64> {
    Some(busiest(view, f::LINK_USED.read)?.1)
}

/// Returns the spread of the traffic on the fullest link.
pub(super) fn link_spread(view: &RunView<'_>) -> Option<f64> {
    let (link, _) = busiest(view, f::LINK_USED.read)?;
    let bytes = link.iter().map(|link| link.rx_bytes_per_s.max(link.tx_bytes_per_s));
    spread(&bytes.collect::<Vec<_>>())
}

/// Returns the spread of enough samples, relative to their mean.
fn spread(samples: &[f64]) -> Option<f64> {
    relative_deviation(samples).filter(|_| samples.len() >= SPREAD_SAMPLES_MIN)
}

/// Returns bytes per packet, on the link with the most packets.
pub(super) fn packet_bytes(view: &RunView<'_>) -> Option<f64> {
    median_over_samples(&busiest(view, f::LINK_PACKETS.read)?.0, |link| {
        let packets = (f::LINK_PACKETS.read)(link).filter(|packets| *packets > 0.0)?;
        Some((link.rx_bytes_per_s + link.tx_bytes_per_s) / packets)
    })
}

/// Returns the spread of the packets on the link with the most.
pub(super) fn packet_spread(view: &RunView<'_>) -> Option<f64> {
    let (link, _) = busiest(view, f::LINK_PACKETS.read)?;
    let packets = link.iter().map(|link| link.rx_packets_per_s.max(link.tx_packets_per_s));
    spread(&packets.collect::<Vec<_>>())
}

/// Returns a figure summed over all links, on the machine with the highest sum.
fn max_over_machines(view: &RunView<'_>, figure: fn(&MachineSample) -> Option<f64>) -> Option<f64> {
    let machines = view.path_machines().into_iter();
    machines.filter_map(|machine| machine.series().median(figure)).reduce(f64::max)
}

pub(super) fn queue_ns(view: &RunView<'_>) -> Option<f64> {
    max_over_machines(view, |sample| {
        let queues = sample.links.iter().flat_map(|link| &link.queues);
        queues.filter_map(f::QUEUE_DELAY.read).reduce(f64::max)
    })
}

/// Returns the rate of packets that were delayed at a link.
pub(super) fn overlimits(view: &RunView<'_>) -> Option<f64> {
    max_over_machines(view, |sample| sample.links.iter().filter_map(f::OVERLIMITS.read).reduce(f64::max))
}

/// Returns the rate of packets that interfaces and their queues dropped.
pub(super) fn drops(view: &RunView<'_>) -> Option<f64> {
    max_over_machines(view, |sample| Some(sample.links.iter().filter_map(f::LINK_DROPS.read).sum()))
}
