//! What `rtnetlink` says of links, queueing disciplines and classes: `include/uapi/linux/if_link.h`,
//! `rtnetlink.h`, `pkt_sched.h` and `gen_stats.h`.
//!
//! Pure: bytes in, figures out.

use crate::netlink::message::{Attributes, push_attribute, text, u32_at, u64_at};

pub(crate) const GET_LINK: u16 = 18;
pub(crate) const GET_QDISC: u16 = 38;
pub(crate) const GET_CLASS: u16 = 42;

/// `struct ifinfomsg`.
const LINK_BYTES: usize = 16;
/// `struct tcmsg`.
const TRAFFIC_BYTES: usize = 20;

const IFLA_NAME: u16 = 3;
const IFLA_OPERATION_STATE: u16 = 16;
const IFLA_INFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_STATS64: u16 = 23;
const IFLA_EXT_MASK: u16 = 29;
const OPERATION_UNKNOWN: u8 = 0;
const OPERATION_UP: u8 = 6;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS: u16 = 3;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
/// `TC_H_ROOT`.
const ROOT: u32 = 0xffff_ffff;

/// A short name of the kernel (`IFNAMSIZ`): kept in place, so that keeping it allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Name([u8; 16]);

impl Name {
    pub(crate) fn new(value: &[u8]) -> Self {
        let mut name = Self::default();
        let bytes = value.iter().take_while(|byte| **byte != 0).take(15);
        name.0.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        name
    }

    pub(crate) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text(&self.0))
    }
}

/// A link, with its counters since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: Name,
    /// `veth`, `bridge`, …; empty for hardware, real or of a virtual machine.
    pub(crate) kind: Name,
    /// It works, or it does not tell.
    pub(crate) up: bool,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
    /// With those that the device missed.
    pub(crate) rx_drops: u64,
    pub(crate) tx_drops: u64,
}

/// Writes the body of a request for all links: without virtual functions, which have no counters
/// of interest here and make the answer long.
pub(crate) fn write_link_request(into: &mut Vec<u8>) {
    into.clear();
    into.resize(LINK_BYTES, 0);
    push_attribute(into, IFLA_EXT_MASK, &0_u32.to_ne_bytes());
}

/// Parses one link; `None` when there is no name or no counters.
pub(crate) fn parse_link(body: &[u8]) -> Option<Link> {
    let mut link = Link { index: u32_at(body, 4)?, up: true, ..Link::default() };
    let mut counted = false;
    for (kind, value) in Attributes::new(body, LINK_BYTES) {
        match kind {
            IFLA_NAME => link.name = Name::new(value),
            IFLA_OPERATION_STATE => {
                let state = value.first().copied().unwrap_or(OPERATION_UNKNOWN);
                link.up = [OPERATION_UP, OPERATION_UNKNOWN].contains(&state);
            }
            IFLA_INFO => {
                let kind = Attributes::new(value, 0).find(IFLA_INFO_KIND);
                link.kind = kind.map(Name::new).unwrap_or_default();
            }
            IFLA_STATS64 => counted = read_counters(&mut link, value).is_some(),
            _ => {}
        }
    }
    (counted && link.name != Name::default()).then_some(link)
}

/// `struct rtnl_link_stats64`.
fn read_counters(link: &mut Link, value: &[u8]) -> Option<()> {
    let at = |place: usize| u64_at(value, place * 8);
    link.rx_packets = at(0)?;
    link.tx_packets = at(1)?;
    link.rx_bytes = at(2)?;
    link.tx_bytes = at(3)?;
    link.rx_drops = at(6)?.saturating_add(at(15)?);
    link.tx_drops = at(7)?;
    Some(())
}

/// A queueing discipline, with its counters since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Qdisc {
    /// The link that it is on.
    pub(crate) link: u32,
    pub(crate) handle: u32,
    pub(crate) kind: Name,
    pub(crate) rate_bits_per_s: Option<f64>,
    pub(crate) backlog_bytes: u32,
    pub(crate) drops: u32,
    pub(crate) overlimits: u32,
}

impl Qdisc {
    /// Whether its rate stands in its classes.
    pub(crate) fn has_classes(&self) -> bool {
        self.kind == Name::new(b"htb")
    }
}

/// Writes the body of a request for the queueing disciplines of all links, or for the classes of one.
pub(crate) fn write_traffic_request(into: &mut Vec<u8>, link: u32) {
    into.clear();
    into.resize(TRAFFIC_BYTES, 0);
    into[4..8].copy_from_slice(&link.to_ne_bytes());
}

/// Parses one queueing discipline; `None` without a kind.
pub(crate) fn parse_qdisc(body: &[u8]) -> Option<Qdisc> {
    let mut qdisc = Qdisc { link: u32_at(body, 4)?, handle: u32_at(body, 8)?, ..Qdisc::default() };
    let attributes = Attributes::new(body, TRAFFIC_BYTES);
    qdisc.kind = Name::new(attributes.clone().find(TCA_KIND)?);
    if let Some(options) = attributes.clone().find(TCA_OPTIONS) {
        qdisc.rate_bits_per_s = rate_of(qdisc.kind, options);
    }
    let queue = attributes.clone().find(TCA_STATS2);
    let queue = queue.and_then(|stats| Attributes::new(stats, 0).find(TCA_STATS_QUEUE));
    // gnet_stats_queue; in the old tc_stats, behind bytes and packets, the same stands otherwise.
    let (stats, places) = match queue {
        Some(queue) => (queue, [4, 8, 16]),
        None => (attributes.find(TCA_STATS).unwrap_or_default(), [32, 12, 16]),
    };
    let [backlog, drops, overlimits] = places.map(|at| u32_at(stats, at).unwrap_or(0));
    Some(Qdisc { backlog_bytes: backlog, drops, overlimits, ..qdisc })
}

/// Where a discipline says which rate it bounds, in bytes per second.
struct Rate {
    kind: &'static str,
    /// Bytes of its options before the attributes.
    skip: usize,
    /// The attribute with a figure of 32 bits, and where in it.
    short: Option<(u16, usize)>,
    /// The attribute with a figure of 64 bits, which holds where it is there.
    long: u16,
}

/// The disciplines that bound the rate. `fq` is not among them: its bound is of each flow, and not of
/// the link. The bound of `htb` stands in its classes.
const RATES: &[Rate] = &[
    // TCA_TBF_PARMS: tc_tbf_qopt.rate.rate; TCA_TBF_RATE64.
    Rate { kind: "tbf", skip: 0, short: Some((1, 8)), long: 4 },
    // Behind tc_netem_qopt TCA_NETEM_RATE: tc_netem_rate.rate; TCA_NETEM_RATE64.
    Rate { kind: "netem", skip: 24, short: Some((6, 0)), long: 8 },
    // TCA_CAKE_BASE_RATE64.
    Rate { kind: "cake", skip: 0, short: None, long: 2 },
];

fn rate_of(kind: Name, options: &[u8]) -> Option<f64> {
    let rate = RATES.iter().find(|rate| kind == Name::new(rate.kind.as_bytes()))?;
    let attributes = || Attributes::new(options, rate.skip);
    let short = rate.short.and_then(|(attribute, at)| u32_at(attributes().find(attribute)?, at));
    let long = attributes().find(rate.long).and_then(|value| u64_at(value, 0));
    rate_bits(long, short)
}

/// Bytes per second, in 64 bits where they are there, as bits per second; 0 is no bound.
fn rate_bits(long: Option<u64>, short: Option<u32>) -> Option<f64> {
    let bytes = long.filter(|bytes| *bytes > 0).or_else(|| short.map(u64::from))?;
    (bytes > 0).then_some(bytes as f64 * 8.0)
}

/// The rate of an `htb` class that hangs at the root, in bits per second; `None` for any other. Its
/// ceiling does not count: nothing is above it that it could borrow from.
pub(crate) fn parse_root_class(body: &[u8]) -> Option<f64> {
    if u32_at(body, 12)? != ROOT {
        return None;
    }
    let attributes = Attributes::new(body, TRAFFIC_BYTES);
    if Name::new(attributes.clone().find(TCA_KIND)?) != Name::new(b"htb") {
        return None;
    }
    let options = Attributes::new(attributes.find(TCA_OPTIONS)?, 0);
    // TCA_HTB_PARMS: tc_htb_opt.rate.rate; TCA_HTB_RATE64.
    let short = options.clone().find(1).and_then(|value| u32_at(value, 8));
    let long = options.find(6).and_then(|value| u64_at(value, 0));
    rate_bits(long, short)
}
