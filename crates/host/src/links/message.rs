//! Messages of `rtnetlink` about links, queueing disciplines and classes:
//! `include/uapi/linux/if_link.h`, `rtnetlink.h`, `pkt_sched.h` and `gen_stats.h`.
//!
//! Pure: bytes in, figures out.

use crate::netlink::message::{NetlinkAttributes, push_attribute, text, u32_at, u64_at};

pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_GETQDISC: u16 = 38;
pub(crate) const RTM_GETTCLASS: u16 = 42;

const IFINFOMSG_BYTES: usize = 16;
const TCMSG_BYTES: usize = 20;

const IFLA_IFNAME: u16 = 3;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_STATS64: u16 = 23;
const IFLA_EXT_MASK: u16 = 29;
const IF_OPER_UNKNOWN: u8 = 0;
const IF_OPER_UP: u8 = 6;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS: u16 = 3;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const TC_H_ROOT: u32 = 0xffff_ffff;

/// A short name of the kernel (`IFNAMSIZ`), stored inline to avoid an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShortName([u8; 16]);

impl ShortName {
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

impl std::fmt::Display for ShortName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text(&self.0))
    }
}

/// A link, with its counters since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: ShortName,
    /// `veth`, `bridge`, …; empty for hardware, real or of a virtual machine.
    pub(crate) kind: ShortName,
    /// True if the link is up, or does not report its state.
    pub(crate) is_up: bool,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
    /// Includes packets that the device missed.
    pub(crate) rx_drops: u64,
    pub(crate) tx_drops: u64,
}

/// Writes the body of a request for all links. It excludes virtual functions: they have no counters
/// of interest here and make the response long.
pub(crate) fn write_link_request(into: &mut Vec<u8>) {
    into.clear();
    into.resize(IFINFOMSG_BYTES, 0);
    push_attribute(into, IFLA_EXT_MASK, &0_u32.to_ne_bytes());
}

/// Parses one link; `None` if it has no name or no counters.
pub(crate) fn parse_link(body: &[u8]) -> Option<Link> {
    let mut link = Link { index: u32_at(body, 4)?, is_up: true, ..Link::default() };
    let mut has_counters = false;
    for (kind, value) in NetlinkAttributes::new(body, IFINFOMSG_BYTES) {
        match kind {
            IFLA_IFNAME => link.name = ShortName::new(value),
            IFLA_OPERSTATE => {
                let state = value.first().copied().unwrap_or(IF_OPER_UNKNOWN);
                link.is_up = [IF_OPER_UP, IF_OPER_UNKNOWN].contains(&state);
            }
            IFLA_LINKINFO => {
                let kind = NetlinkAttributes::new(value, 0).find(IFLA_INFO_KIND);
                link.kind = kind.map(ShortName::new).unwrap_or_default();
            }
            IFLA_STATS64 => has_counters = read_counters(&mut link, value).is_some(),
            _ => {}
        }
    }
    (has_counters && link.name != ShortName::default()).then_some(link)
}

/// `struct rtnl_link_stats64`.
fn read_counters(link: &mut Link, value: &[u8]) -> Option<()> {
    let at = |index: usize| u64_at(value, index * 8);
    link.rx_packets = at(0)?;
    link.tx_packets = at(1)?;
    link.rx_bytes = at(2)?;
    link.tx_bytes = at(3)?;
    link.rx_drops = at(6)?.saturating_add(at(15)?);
    link.tx_drops = at(7)?;
    Some(())
}

/// A queueing discipline, with its counters since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Qdisc {
    pub(crate) link: u32,
    pub(crate) handle: u32,
    pub(crate) kind: ShortName,
    pub(crate) rate_bits_per_s: Option<f64>,
    pub(crate) backlog_bytes: u32,
    pub(crate) drops: u32,
    pub(crate) overlimits: u32,
}

impl Qdisc {
    /// Returns true if the rate is an attribute of its classes.
    pub(crate) fn has_classes(&self) -> bool {
        self.kind == ShortName::new(b"htb")
    }
}

/// Writes the body of a request for the queueing disciplines of all links, or for the classes of
/// one.
pub(crate) fn write_tc_request(into: &mut Vec<u8>, link: u32) {
    into.clear();
    into.resize(TCMSG_BYTES, 0);
    into[4..8].copy_from_slice(&link.to_ne_bytes());
}

/// Parses one queueing discipline; `None` without a kind.
pub(crate) fn parse_qdisc(body: &[u8]) -> Option<Qdisc> {
    let mut qdisc = Qdisc { link: u32_at(body, 4)?, handle: u32_at(body, 8)?, ..Qdisc::default() };
    let attributes = NetlinkAttributes::new(body, TCMSG_BYTES);
    qdisc.kind = ShortName::new(attributes.clone().find(TCA_KIND)?);
    if let Some(options) = attributes.clone().find(TCA_OPTIONS) {
        qdisc.rate_bits_per_s = parse_rate(qdisc.kind, options);
    }
    let queue = attributes.clone().find(TCA_STATS2);
    let queue = queue.and_then(|stats| NetlinkAttributes::new(stats, 0).find(TCA_STATS_QUEUE));
    // gnet_stats_queue; the old tc_stats has the same figures behind bytes and packets, in another
    // order.
    let (stats, offsets) = match queue {
        Some(queue) => (queue, [4, 8, 16]),
        None => (attributes.find(TCA_STATS).unwrap_or_default(), [32, 12, 16]),
    };
    let [backlog, drops, overlimits] = offsets.map(|at| u32_at(stats, at).unwrap_or(0));
    Some(Qdisc { backlog_bytes: backlog, drops, overlimits, ..qdisc })
}

/// Position of a discipline's rate limit, in bytes per second.
struct RateAttributes {
    kind: &'static str,
    /// Bytes of its options before the attributes.
    attributes_at: usize,
    /// The attribute with a 32-bit figure, and the figure's offset in it.
    rate32: Option<(u16, usize)>,
    /// The attribute with a 64-bit figure, which takes precedence if present.
    rate64: u16,
}

/// Disciplines that limit the rate. `fq` is not listed: its limit applies to each flow, not to the
/// link. The limit of `htb` is in its classes.
const RATE_LIMITS: &[RateAttributes] = &[
    // TCA_TBF_PARMS: tc_tbf_qopt.rate.rate; TCA_TBF_RATE64.
    RateAttributes { kind: "tbf", attributes_at: 0, rate32: Some((1, 8)), rate64: 4 },
    // Behind tc_netem_qopt TCA_NETEM_RATE: tc_netem_rate.rate; TCA_NETEM_RATE64.
    RateAttributes { kind: "netem", attributes_at: 24, rate32: Some((6, 0)), rate64: 8 },
    // TCA_CAKE_BASE_RATE64.
    RateAttributes { kind: "cake", attributes_at: 0, rate32: None, rate64: 2 },
];

fn parse_rate(kind: ShortName, options: &[u8]) -> Option<f64> {
    let rate = RATE_LIMITS.iter().find(|rate| kind == ShortName::new(rate.kind.as_bytes()))?;
    let attributes = || NetlinkAttributes::new(options, rate.attributes_at);
    let rate32 = rate.rate32.and_then(|(attribute, at)| u32_at(attributes().find(attribute)?, at));
    let rate64 = attributes().find(rate.rate64).and_then(|value| u64_at(value, 0));
    rate_bits_per_s(rate64, rate32)
}

/// Converts bytes per second to bits per second, preferring the 64-bit figure; 0 is no limit.
fn rate_bits_per_s(rate64: Option<u64>, rate32: Option<u32>) -> Option<f64> {
    let bytes = rate64.filter(|bytes| *bytes > 0).or_else(|| rate32.map(u64::from))?;
    (bytes > 0).then_some(bytes as f64 * 8.0)
}

/// Returns the rate of an `htb` class at the root, in bits per second; `None` for any other. Its
/// ceiling does not count: it has no parent to borrow from.
pub(crate) fn parse_root_class(body: &[u8]) -> Option<f64> {
    if u32_at(body, 12)? != TC_H_ROOT {
        return None;
    }
    let attributes = NetlinkAttributes::new(body, TCMSG_BYTES);
    if ShortName::new(attributes.clone().find(TCA_KIND)?) != ShortName::new(b"htb") {
        return None;
    }
    let options = NetlinkAttributes::new(attributes.find(TCA_OPTIONS)?, 0);
    // TCA_HTB_PARMS: tc_htb_opt.rate.rate; TCA_HTB_RATE64.
    let rate32 = options.clone().find(1).and_then(|value| u32_at(value, 8));
    let rate64 = options.find(6).and_then(|value| u64_at(value, 0));
    rate_bits_per_s(rate64, rate32)
}
