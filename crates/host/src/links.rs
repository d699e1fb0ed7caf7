//! Network interfaces of one network namespace: traffic, drops, backlog of their queueing
//! disciplines, speed, and the driver's own counters.
//!
//! Nothing here interprets a figure, and only `write_offload` changes a link.
//!
//! A sample is one dump of links and one of queueing disciplines over `rtnetlink` (`message`), and
//! two `ioctl`s for each driver that has counters (`driver`). A sample reuses the memory of the one
//! before, except for new links.
//! Sources: `include/uapi/linux/{if_link,rtnetlink,pkt_sched,gen_stats,ethtool}.h`.

mod driver;
mod message;
mod offload;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use record::observed::{LinkUse, QdiscUse};
use record::sorted::CollectSorted;

use crate::kernel_file::NotObservable;
use crate::namespace::Namespace;
use crate::netlink::{NetlinkFamily, NetlinkSocket};
use driver::EthtoolSocket;
use message::{Link, Qdisc, RTM_GETLINK, RTM_GETQDISC, RTM_GETTCLASS};

pub use offload::DriverSetting;

/// Reads a setting of a network driver, in this thread's network namespace.
///
/// # Errors
/// The driver does not report it, or the interface does not exist.
pub(crate) fn read_driver_setting(interface: &str, setting: DriverSetting) -> io::Result<String> {
    let socket = EthtoolSocket::open(&Namespace::open_pid(None)?)?;
    offload::read_setting(&socket, interface, setting)
}

/// Turns an offload of an interface on or off, in this thread's network namespace.
///
/// # Errors
/// The setting is no offload, the device does not have it, or the interface does not exist.
pub(crate) fn write_offload(interface: &str, setting: DriverSetting, is_on: bool) -> io::Result<()> {
    let socket = EthtoolSocket::open(&Namespace::open_pid(None)?)?;
    offload::write_offload(&socket, interface, setting, is_on)
}

/// Returns the number of receiving queues of a virtual link, in this thread's network namespace.
///
/// # Errors
/// The device does not report it, or the interface does not exist.
pub(crate) fn read_queues(interface: &str) -> io::Result<u32> {
    let socket = EthtoolSocket::open(&Namespace::open_pid(None)?)?;
    offload::read_queues(&socket, interface)
}

/// Sets the number of receiving queues of a virtual link, and of sending ones.
///
/// # Errors
/// The device does not have as many, or the interface does not exist.
pub(crate) fn write_queues(interface: &str, queues: u32) -> io::Result<()> {
    let socket = EthtoolSocket::open(&Namespace::open_pid(None)?)?;
    offload::write_queues(&socket, interface, queues)
}

/// Maximum number of links sampled in one namespace.
pub const MAX_LINKS: usize = 256;
/// Maximum number of queueing disciplines sampled on one link.
pub const MAX_QDISCS: usize = 256;
/// Maximum number of driver counters in one [`LinkUse`]; the first that changed, in the driver's
/// order.
pub const MAX_DRIVER_COUNTERS: usize = 128;

/// Kinds of software links whose speed is that of a device. Any other kind (`veth`, `tun`, …)
/// reports a speed that limits nothing, or none.
const KINDS_WITH_SPEED: &[&str] = &["", "bond", "team", "vlan"];

const FIGURE: &str = "network interfaces";

/// A link at one moment: all counters count since it was created.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkCounters {
    link: Link,
    speed_bits_per_s: Option<f64>,
    qdiscs: Vec<Qdisc>,
    driver: DriverCounters,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct DriverCounters {
    names: Arc<[String]>,
    values: Vec<u64>,
}

impl LinkCounters {
    /// Returns the link's number in its namespace. A new link never has the number of one that
    /// still exists.
    pub fn index(&self) -> u32 {
        self.link.index
    }

    pub fn name(&self) -> String {
        self.link.name.to_string()
    }

    /// Returns the link's kind: `veth`, `bridge`, …; empty for a device, real or of a virtual
    /// machine.
    pub fn kind(&self) -> String {
        self.link.kind.to_string()
    }

    /// Returns true if the link is up, or does not report its state.
    pub fn is_up(&self) -> bool {
        self.link.is_up
    }

    /// Returns the rates since `earlier`, which was `seconds` ago. A counter that decreased was
    /// reset, and is left out. `role` is empty.
    pub fn since(&self, earlier: &Self, seconds: f64) -> LinkUse {
        let rate =
            |counter: fn(&Link) -> u64| rate_per_s(counter(&self.link), counter(&earlier.link), seconds);
        LinkUse {
            name: self.name(),
            role: String::new(),
            rx_bytes_per_s: rate(|link| link.rx_bytes),
            tx_bytes_per_s: rate(|link| link.tx_bytes),
            rx_packets_per_s: rate(|link| link.rx_packets),
            tx_packets_per_s: rate(|link| link.tx_packets),
            rx_drops_per_s: rate(|link| link.rx_drops),
            tx_drops_per_s: rate(|link| link.tx_drops),
            speed_bits_per_s: self.speed_bits_per_s,
            queues: self.queues_since(earlier, seconds),
            driver: self.driver.since(&earlier.driver, seconds),
        }
    }

    /// Returns the queueing disciplines that limit the rate, hold packets, or counted something.
    /// The backlog of a nested discipline counts in both, as in `tc -s qdisc`.
    fn queues_since(&self, earlier: &Self, seconds: f64) -> Vec<QdiscUse> {
        let qdisc_use = |now: &Qdisc| {
            let same = |then: &&Qdisc| (then.handle, then.kind) == (now.handle, now.kind);
            let then = earlier.qdiscs.iter().find(same).unwrap_or(now);
            QdiscUse {
                kind: now.kind.to_string(),
                rate_bits_per_s: now.rate_bits_per_s,
                backlog_bytes: now.backlog_bytes.into(),
                drops_per_s: rate_per_s(now.drops.into(), then.drops.into(), seconds),
                overlimits_per_s: rate_per_s(now.overlimits.into(), then.overlimits.into(), seconds),
            }
        };
        let is_relevant = |queue: &QdiscUse| {
            let rates = queue.drops_per_s + queue.overlimits_per_s;
            queue.rate_bits_per_s.is_some() || queue.backlog_bytes > 0 || rates > 0.0
        };
        self.qdiscs.iter().map(qdisc_use).filter(is_relevant).collect()
    }
}

impl DriverCounters {
    fn since(&self, earlier: &Self, seconds: f64) -> BTreeMap<String, f64> {
        if self.names != earlier.names {
            return BTreeMap::new();
        }
        let pairs = self.values.iter().zip(&earlier.values);
        let rates = pairs.map(|(now, then)| rate_per_s(*now, *then, seconds));
        let named = self.names.iter().zip(rates).filter(|(_, rate)| *rate > 0.0);
        named.take(MAX_DRIVER_COUNTERS).map(|(name, rate)| (name.clone(), rate)).collect_map()
    }
}

fn rate_per_s(now: u64, then: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 }
}

/// The links of one network namespace.
#[derive(Debug)]
pub struct Links {
    socket: NetlinkSocket,
    driver: EthtoolSocket,
    request: Vec<u8>,
    links: Vec<LinkCounters>,
    is_truncated: bool,
}

impl Links {
    /// Opens a socket in the network namespace of a process; `None` is the own namespace.
    ///
    /// # Errors
    /// Another namespace requires `CAP_SYS_ADMIN`, and the process must exist. The namespace is
    /// entered only here; it is held open.
    pub fn open(pid_of_namespace: Option<i32>) -> Result<Self, NotObservable> {
        let open = || -> io::Result<Self> {
            let namespace = Namespace::open_pid(pid_of_namespace)?;
            let driver = EthtoolSocket::open(&namespace)?;
            let socket = NetlinkSocket::open(NetlinkFamily::Route, namespace)?;
            let (request, links) = (Vec::new(), Vec::new());
            Ok(Self { socket, driver, request, links, is_truncated: false })
        };
        open().map_err(|error| NotObservable::new(FIGURE, error.to_string()))
    }

    /// Reads all links, at most [`MAX_LINKS`]. They live until the next sample; clone them to keep
    /// them.
    ///
    /// # Errors
    /// The kernel rejects the request.
    pub fn sample(&mut self) -> Result<&[LinkCounters], NotObservable> {
        let not_observable = |error: io::Error| NotObservable::new(FIGURE, error.to_string());
        self.read_links().map_err(not_observable)?;
        self.read_qdiscs().map_err(not_observable)?;
        for link in &mut self.links {
            let known = &mut link.driver;
            if link.link.is_up && !known.names.is_empty() {
                self.driver.read_counters(link.link.name, &mut known.values);
                if known.values.len() != known.names.len() {
                    // The driver has other counters now (more queues, for example): start again.
                    known.names = self.driver.counter_names(link.link.name).into();
                    known.values.clear();
                }
            }
        }
        Ok(&self.links)
    }

    /// Returns true if the last sample had more links than [`MAX_LINKS`].
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    fn read_links(&mut self) -> io::Result<()> {
        let Self { socket, driver, request, links, is_truncated: truncated } = self;
        message::write_link_request(request);
        let mut count = 0;
        *truncated = false;
        socket.dump(RTM_GETLINK, request, |_, body| {
            let Some(link) = message::parse_link(body) else { return ControlFlow::Continue(()) };
            if count == MAX_LINKS {
                *truncated = true;
                return ControlFlow::Break(());
            }
            update_link(links, count, link, driver);
            count += 1;
            ControlFlow::Continue(())
        })?;
        links.truncate(count);
        Ok(())
    }

    fn read_qdiscs(&mut self) -> io::Result<()> {
        let Self { socket, request, links, .. } = self;
        message::write_tc_request(request, 0);
        links.iter_mut().for_each(|link| link.qdiscs.clear());
        socket.dump(RTM_GETQDISC, request, |_, body| {
            if let Some(qdisc) = message::parse_qdisc(body)
                && let Some(link) = links.iter_mut().find(|link| link.link.index == qdisc.link)
                && link.qdiscs.len() < MAX_QDISCS
            {
                link.qdiscs.push(qdisc);
            }
            ControlFlow::Continue(())
        })?;
        for link in links {
            for qdisc in link.qdiscs.iter_mut().filter(|qdisc| qdisc.has_classes()) {
                message::write_tc_request(request, qdisc.link);
                let mut rates: Option<f64> = None;
                socket.dump(RTM_GETTCLASS, request, |_, body| {
                    if let Some(rate) = message::parse_root_class(body) {
                        *rates.get_or_insert(0.0) += rate;
                    }
                    ControlFlow::Continue(())
                })?;
                qdisc.rate_bits_per_s = rates;
            }
        }
        Ok(())
    }
}

/// Puts a link at its position in the dump's order, with its earlier state.
fn update_link(links: &mut Vec<LinkCounters>, at: usize, link: Link, driver: &mut EthtoolSocket) {
    let same = |known: &LinkCounters| {
        (known.link.index, known.link.name, known.link.kind) == (link.index, link.name, link.kind)
    };
    let old_index = links[at..].iter().position(same).map(|from| at + from);
    let came_up = old_index.is_none_or(|from| !links[from].link.is_up) && link.is_up;
    match old_index {
        Some(from) => links.swap(at, from),
        None => links.insert(at, LinkCounters::default()),
    }
    let current = &mut links[at];
    current.link = link;
    if !link.is_up {
        current.speed_bits_per_s = None;
    } else if came_up {
        let has_speed = KINDS_WITH_SPEED.contains(&link.kind.to_string().as_str());
        current.speed_bits_per_s = if has_speed { driver.speed_bits_per_s(link.name) } else { None };
        current.driver.names = driver.counter_names(link.name).into();
        current.driver.values.clear();
    }
}

#[cfg(test)]
mod tests;
