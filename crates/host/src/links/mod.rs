//! Network interfaces of one network namespace: what passed, what was dropped, what waits in their
//! queueing disciplines, how fast they are, and the counters that a driver has of its own.
//!
//! Not for changing anything, and not for what a figure means.
//!
//! A sample is one dump of links and one of queueing disciplines over `rtnetlink` (`message`), and
//! two `ioctl`s for each driver that has counters (`driver`). The memory of a sample is used
//! again by the next, except for links that are new.
//! Sources: `include/uapi/linux/{if_link,rtnetlink,pkt_sched,gen_stats,ethtool}.h`.

mod driver;
mod message;

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use record::observed::{LinkUse, QdiscUse};

use crate::namespace::Namespace;
use crate::netlink::{Family, Socket};
use crate::source::NotObservable;
use driver::Driver;
use message::{GET_CLASS, GET_LINK, GET_QDISC, Link, Qdisc};

/// Links of one namespace that are looked at.
pub const MAX_LINKS: usize = 256;
/// Queueing disciplines of one link that are looked at.
pub const MAX_QDISCS: usize = 256;
/// Counters of a driver in one [`LinkUse`]; the first that changed, in the driver's order.
pub const MAX_DRIVER_COUNTERS: usize = 128;

/// Kinds of link that are made by software and whose speed is that of a device. Any other kind
/// (`veth`, `tun`, …) names a speed that bounds nothing, or none.
const KINDS_WITH_SPEED: &[&str] = &["", "bond", "team", "vlan"];

const WHAT: &str = "network interfaces";

/// A link at one moment: all counters count since it was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkCounters {
    link: Link,
    speed_bits_per_s: Option<f64>,
    qdiscs: Vec<Qdisc>,
    driver: DriverCounters,
}

/// The counters of a driver.
#[derive(Clone, Debug, Default, PartialEq)]
struct DriverCounters {
    names: Arc<[String]>,
    values: Vec<u64>,
}

impl LinkCounters {
    /// Its number in its namespace; a new link never has that of another that is still there.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.link.index
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.link.name.to_string()
    }

    /// What made it: `veth`, `bridge`, …; empty for a device, real or of a virtual machine.
    #[must_use]
    pub fn kind(&self) -> String {
        self.link.kind.to_string()
    }

    /// Whether it works, or does not tell.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.link.up
    }

    /// What passed since `earlier`, which was `seconds` ago. A counter that is less than it was has
    /// begun anew; nothing is said of it. `of_role` is empty.
    #[must_use]
    pub fn since(&self, earlier: &Self, seconds: f64) -> LinkUse {
        let rate = |of: fn(&Link) -> u64| per_s(of(&self.link), of(&earlier.link), seconds);
        LinkUse {
            name: self.name(),
            of_role: String::new(),
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

    /// The queueing disciplines that bound the rate, hold something, or did something. What waits in
    /// one that hangs in another counts in both, as in `tc -s qdisc`.
    fn queues_since(&self, earlier: &Self, seconds: f64) -> Vec<QdiscUse> {
        let use_of = |now: &Qdisc| {
            let same = |then: &&Qdisc| (then.handle, then.kind) == (now.handle, now.kind);
            let then = earlier.qdiscs.iter().find(same).unwrap_or(now);
            QdiscUse {
                kind: now.kind.to_string(),
                rate_bits_per_s: now.rate_bits_per_s,
                backlog_bytes: now.backlog_bytes.into(),
                drops_per_s: per_s(now.drops.into(), then.drops.into(), seconds),
                overlimits_per_s: per_s(now.overlimits.into(), then.overlimits.into(), seconds),
            }
        };
        let did_something = |queue: &QdiscUse| {
            let rates = queue.drops_per_s + queue.overlimits_per_s;
            queue.rate_bits_per_s.is_some() || queue.backlog_bytes > 0 || rates > 0.0
        };
        self.qdiscs.iter().map(use_of).filter(did_something).collect()
    }
}

impl DriverCounters {
    fn since(&self, earlier: &Self, seconds: f64) -> BTreeMap<String, f64> {
        if self.names != earlier.names {
            return BTreeMap::new();
        }
        let both = self.values.iter().zip(&earlier.values);
        let rates = both.map(|(now, then)| per_s(*now, *then, seconds));
        let named = self.names.iter().zip(rates).filter(|(_, rate)| *rate > 0.0);
        named.take(MAX_DRIVER_COUNTERS).map(|(name, rate)| (name.clone(), rate)).collect()
    }
}

fn per_s(now: u64, then: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 }
}

/// The links of one network namespace.
#[derive(Debug)]
pub struct Links {
    socket: Socket,
    driver: Driver,
    request: Vec<u8>,
    links: Vec<LinkCounters>,
    truncated: bool,
}

impl Links {
    /// Opens the way to the kernel in the network namespace of a process; `None` is our own.
    ///
    /// # Errors
    /// Another namespace takes `CAP_SYS_ADMIN`, and the process must be there. It is entered here
    /// only; the namespace is held open.
    pub fn open(pid_of_namespace: Option<i32>) -> Result<Self, NotObservable> {
        let open = || -> io::Result<Self> {
            let namespace = Namespace::of(pid_of_namespace)?;
            let driver = Driver::open(&namespace)?;
            let socket = Socket::open(Family::Route, namespace)?;
            let (request, links) = (Vec::new(), Vec::new());
            Ok(Self { socket, driver, request, links, truncated: false })
        };
        open().map_err(|error| NotObservable::new(WHAT, error.to_string()))
    }

    /// Reads all links, at most [`MAX_LINKS`]. They live until the next sample; clone them to keep
    /// them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn sample(&mut self) -> Result<&[LinkCounters], NotObservable> {
        let failed = |error: io::Error| NotObservable::new(WHAT, error.to_string());
        self.read_links().map_err(failed)?;
        self.read_qdiscs().map_err(failed)?;
        for link in &mut self.links {
            let known = &mut link.driver;
            if link.link.up && !known.names.is_empty() {
                self.driver.read(link.link.name, &mut known.values);
                if known.values.len() != known.names.len() {
                    // It has other counters now (more queues, say): a new start.
                    known.names = self.driver.names(link.link.name).into();
                    known.values.clear();
                }
            }
        }
        Ok(&self.links)
    }

    /// Whether there were more links than [`MAX_LINKS`] at the last sample.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    fn read_links(&mut self) -> io::Result<()> {
        let Self { socket, driver, request, links, truncated } = self;
        message::write_link_request(request);
        let mut count = 0;
        *truncated = false;
        socket.dump(GET_LINK, request, |_, body| {
            let Some(link) = message::parse_link(body) else { return ControlFlow::Continue(()) };
            if count == MAX_LINKS {
                *truncated = true;
                return ControlFlow::Break(());
            }
            place(links, count, link, driver);
            count += 1;
            ControlFlow::Continue(())
        })?;
        links.truncate(count);
        Ok(())
    }

    fn read_qdiscs(&mut self) -> io::Result<()> {
        let Self { socket, request, links, .. } = self;
        message::write_traffic_request(request, 0);
        links.iter_mut().for_each(|link| link.qdiscs.clear());
        socket.dump(GET_QDISC, request, |_, body| {
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
                message::write_traffic_request(request, qdisc.link);
                let mut rates: Option<f64> = None;
                socket.dump(GET_CLASS, request, |_, body| {
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

/// Puts a link in its place in the order of the dump, with what is known of it from before.
fn place(links: &mut Vec<LinkCounters>, at: usize, link: Link, driver: &mut Driver) {
    let same = |known: &LinkCounters| {
        (known.link.index, known.link.name, known.link.kind) == (link.index, link.name, link.kind)
    };
    let found = links[at..].iter().position(same).map(|from| at + from);
    let came_up = found.is_none_or(|from| !links[from].link.up) && link.up;
    match found {
        Some(from) => links.swap(at, from),
        None => links.insert(at, LinkCounters::default()),
    }
    let known = &mut links[at];
    known.link = link;
    if !link.up {
        known.speed_bits_per_s = None;
    } else if came_up {
        let has_speed = KINDS_WITH_SPEED.contains(&link.kind.to_string().as_str());
        known.speed_bits_per_s = if has_speed { driver.speed_bits_per_s(link.name) } else { None };
        known.driver.names = driver.names(link.name).into();
        known.driver.values.clear();
    }
}

#[cfg(test)]
mod tests;
