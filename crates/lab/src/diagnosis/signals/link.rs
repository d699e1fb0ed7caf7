//! What links carried, of the machines at both ends of the way between generator and subject. Not for
//! thresholds.

use std::collections::BTreeMap;

use record::observed::{LinkUse, Sample};

use crate::diagnosis::view::{View, median, relative_spread};

/// One link in each sample.
type InTime<'a> = Vec<&'a LinkUse>;

/// All links. Loopback is one only where a queue gives it a rate.
fn links<'a>(view: &View<'a>) -> Vec<InTime<'a>> {
    let mut all = Vec::new();
    for machine in view.linked() {
        let mut own: BTreeMap<(&str, &str), InTime<'a>> = BTreeMap::new();
        let samples = machine.samples();
        let shaped = |name: &str| {
            let named =
                samples.iter().flat_map(|sample| &sample.links).filter(|one| one.name == name);
            named.flat_map(|one| &one.queues).any(|queue| queue.rate_bits_per_s.is_some())
        };
        for link in samples.iter().flat_map(|sample| &sample.links) {
            if link.name != "lo" || shaped("lo") {
                own.entry((&link.of_role, &link.name)).or_default().push(link);
            }
        }
        all.extend(own.into_values());
    }
    all
}

fn typical(link: &InTime<'_>, figure: fn(&LinkUse) -> Option<f64>) -> Option<f64> {
    median(link.iter().filter_map(|link| figure(link)).collect())
}

/// The link with the most of a figure, and how much that is.
fn busiest<'a>(view: &View<'a>, figure: fn(&LinkUse) -> Option<f64>) -> Option<(InTime<'a>, f64)> {
    let links = links(view).into_iter();
    let with = links.filter_map(|link| typical(&link, figure).map(|most| (link, most)));
    with.max_by(|one, other| one.1.total_cmp(&other.1))
}

/// What a link carries in its fuller direction, of its rate.
fn share(link: &LinkUse) -> Option<f64> {
    let shaped = link.queues.iter().filter_map(|queue| queue.rate_bits_per_s);
    let sending = shaped.chain(link.speed_bits_per_s).reduce(f64::min);
    let sent = sending.map(|rate| link.tx_bytes_per_s * 8.0 / rate.max(1.0));
    let received = link.speed_bits_per_s.map(|rate| link.rx_bytes_per_s * 8.0 / rate.max(1.0));
    sent.into_iter().chain(received).reduce(f64::max)
}

fn packets(link: &LinkUse) -> Option<f64> {
    Some(link.rx_packets_per_s + link.tx_packets_per_s)
}

/// The use of the fullest link.
pub(super) fn link_share(view: &View<'_>) -> Option<f64> {
    Some(busiest(view, share)?.1)
}

/// The spread of what the fullest link carried.
pub(super) fn link_spread(view: &View<'_>) -> Option<f64> {
    let (link, _) = busiest(view, share)?;
    let bytes = link.iter().map(|link| link.rx_bytes_per_s.max(link.tx_bytes_per_s));
    relative_spread(&bytes.collect::<Vec<_>>())
}

/// Bytes a packet, on the link with the most packets.
pub(super) fn packet_bytes(view: &View<'_>) -> Option<f64> {
    typical(&busiest(view, packets)?.0, |link| {
        let packets = packets(link).filter(|packets| *packets > 0.0)?;
        Some((link.rx_bytes_per_s + link.tx_bytes_per_s) / packets)
    })
}

/// The spread of the packets on the link with the most.
pub(super) fn packet_spread(view: &View<'_>) -> Option<f64> {
    let (link, _) = busiest(view, packets)?;
    let packets = link.iter().map(|link| link.rx_packets_per_s.max(link.tx_packets_per_s));
    relative_spread(&packets.collect::<Vec<_>>())
}

/// A figure of all links together, of the machine that has the most of it.
fn most(view: &View<'_>, figure: fn(&Sample) -> Option<f64>) -> Option<f64> {
    let machines = view.linked().into_iter();
    machines.filter_map(|machine| machine.of_samples(figure)).reduce(f64::max)
}

/// The time that the deepest queue takes to send, in ns.
pub(super) fn queue_ns(view: &View<'_>) -> Option<f64> {
    most(view, |sample| {
        let queues = sample.links.iter().flat_map(|link| &link.queues);
        let times = queues
            .filter_map(|queue| Some(queue.backlog_bytes as f64 * 8e9 / queue.rate_bits_per_s?));
        times.reduce(f64::max)
    })
}

/// How often packets had to wait for a link.
pub(super) fn overlimits(view: &View<'_>) -> Option<f64> {
    most(view, |sample| {
        let queues = sample.links.iter().flat_map(|link| &link.queues);
        queues.map(|queue| queue.overlimits_per_s).reduce(f64::max)
    })
}

/// Packets that interfaces and their queues dropped.
pub(super) fn drops(view: &View<'_>) -> Option<f64> {
    most(view, |sample| {
        let of = |link: &LinkUse| {
            let queued: f64 = link.queues.iter().map(|queue| queue.drops_per_s).sum();
            link.rx_drops_per_s + link.tx_drops_per_s + queued
        };
        Some(sample.links.iter().map(of).sum())
    })
}
