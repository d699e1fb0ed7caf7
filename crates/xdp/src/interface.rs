//! Facts of an interface, of the routes through it and of its neighbours, and the checks that come before anything is
//! taken from the kernel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::ethtool;
use crate::features;
use crate::mode::XdpMode;
use crate::netlink::{
    GET_ADDRESS, GET_LINK, GET_NEIGHBOUR, GET_ROUTE, attribute, attribute_u32, push_attribute, request,
};
use crate::packet::MacAddress;
use crate::port::MTU_MAX;
use crate::steering::Steering;

const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
const LINK_TYPE_ETHERNET: u16 = 1;
const LINK_IS_UP: u32 = 1;
const TABLE_MAIN: u32 = 254;
/// States in which the address of a neighbour is usable: reachable, stale, delay, probe, permanent (`NUD_…`).
const NEIGHBOUR_USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x80;
/// Number and interval of the checks whether the kernel has found a neighbour.
const NEIGHBOUR_CHECKS: u32 = 100;
const NEIGHBOUR_INTERVAL: Duration = Duration::from_millis(20);
/// Port of ssh, which is never taken: a mistake would lock the user out.
pub const SSH_PORT: u16 = 22;

/// An Ethernet interface, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    pub name: String,
    pub index: u32,
    pub mac: MacAddress,
    /// Maximum size of an IP packet, in bytes.
    pub mtu: u32,
    /// Queues that receive.
    pub queues: u32,
    /// Driver, or the kind of a virtual interface; empty: unknown.
    pub driver: String,
    /// Id of the XDP program that is attached; 0: not known, as there are several.
    pub program: Option<u32>,
    /// Best mode that the driver has, as the kernel reports it; `None`: not reported, as before Linux 6.3.
    pub mode: Option<XdpMode>,
    /// True if the interface is up.
    pub is_up: bool,
    /// True if a default route leads through it.
    pub has_default_route: bool,
    pub addresses: Vec<IpAddr>,
    /// Way in which the device chooses a queue; `None`: it has one, or does not report it.
    pub steering: Option<Steering>,
}

/// Reason that an interface, an address or a port cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// There is no such interface.
    #[error("no interface '{0}': `ip link` lists them")]
    NoInterface(String),
    /// The interface is no Ethernet interface, such as loopback.
    #[error("{0} is no Ethernet interface: AF_XDP needs Ethernet frames")]
    NoEthernet(String),
    /// The interface is down.
    #[error("{0} is down: `ip link set {0} up`")]
    Down(String),
    /// Frames do not fit.
    #[error("{name} has an MTU of {mtu}, and {MTU_MAX} fit into a frame: `ip link set {name} mtu {MTU_MAX}`")]
    MtuTooLarge {
        /// Interface.
        name: String,
        /// Its MTU in bytes.
        mtu: u32,
    },
    /// Another program is attached.
    #[error(
        "{name} has an XDP program{}: `bpftool net` shows whose it is; end its owner, or `ip link set {name} xdp off`",
        format_id(*id)
    )]
    ProgramAttached {
        /// Interface.
        name: String,
        /// Id of the program, if it is known.
        id: Option<u32>,
    },
    /// A queue has an AF_XDP socket.
    #[error("queue {queue} of {name} has an AF_XDP socket: `ss --xdp -p` shows whose it is; end its owner")]
    QueueUsed {
        /// Interface.
        name: String,
        /// Queue.
        queue: u32,
    },
    /// The number of queues is not that of the threads.
    #[error(
        "--xdp needs a thread for each receiving queue, and {name} has {queues} for {threads}: -t {queues}, or `ethtool -L {name} combined {threads}` (of some drivers rx {threads})"
    )]
    Queues {
        /// Interface.
        name: String,
        /// Its number of receiving queues.
        queues: u32,
        threads: usize,
    },
    /// Strangers may reach the interface.
    #[error(
        "a default route leads through {0}: TCP in user space has no defence against strangers; use a private interface, or --xdp-exposed if this one is"
    )]
    Exposed(String),
    /// The port of ssh.
    #[error("port 22 stays with the kernel, so that ssh works: choose another port")]
    Ssh,
    /// The interface does not have the address.
    #[error("{name} does not have the address {address}: it has {has}")]
    NoAddress {
        /// Interface.
        name: String,
        /// The missing address.
        address: IpAddr,
        /// The addresses that it has.
        has: String,
    },
    /// There are more addresses than a program has room for.
    #[error("{0} addresses: --xdp takes at most 16")]
    TooManyRules(usize),
    /// A socket of the kernel has the address and port.
    #[error("{0} is used by a socket of the kernel: `ss -tlnp` shows whose it is; choose another port")]
    PortUsed(SocketAddr),
    /// Sockets of the kernel have all ports that a client could take.
    #[error(
        "sockets of the kernel have all ports of {}, from {first} to {last}: `ss -tanp` shows whose they are; end them, or \
         set another net.ipv4.ip_local_port_range: a client has ports outside of it",
        format_addresses(addresses)
    )]
    NoPorts {
        /// Own addresses.
        addresses: Vec<IpAddr>,
        /// First port of the range.
        first: u16,
        /// Last port of the range.
        last: u16,
    },
    /// No route leads through the interface.
    #[error("no route to {address} through {name}: `ip route get {address}`")]
    NoRoute {
        /// Interface.
        name: String,
        /// Target.
        address: IpAddr,
    },
    /// The next hop does not answer.
    #[error("no answer to ARP or neighbour discovery from {address} on {name}: is it up, and on this link?")]
    NoNeighbour {
        /// Interface.
        name: String,
        /// Next hop.
        address: IpAddr,
    },
    /// The process lacks capabilities.
    #[error("{what}: not permitted; needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF (or root)")]
    NotPermitted {
        /// Call that was not permitted.
        what: &'static str,
    },
    /// A call failed.
    #[error("{what}: {source}")]
    Io {
        /// Call that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

fn format_id(id: Option<u32>) -> String {
    id.map(|id| format!(" (id {id})")).unwrap_or_default()
}

fn format_addresses(addresses: &[IpAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

impl XdpError {
    /// Creates the error of another program, whose id is 0 if it is not known.
    pub(crate) fn program_attached(interface: &str, id: u32) -> Self {
        Self::ProgramAttached { name: interface.to_owned(), id: Some(id).filter(|id| *id > 0) }
    }

    /// Creates the error of a failed call.
    pub(crate) fn from_io(what: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted { what },
            _ => Self::Io { what, source },
        }
    }
}

impl InterfaceFacts {
    /// Reads the facts of an interface in the network namespace of the thread.
    ///
    /// # Errors
    /// There is no such interface, or it is no Ethernet interface.
    pub fn read(name: &str) -> Result<Self, XdpError> {
        let mut body = vec![0; 16];
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        push_attribute(&mut body, 3, &text);
        let missing = || XdpError::NoInterface(name.to_owned());
        let answers = match request(GET_LINK, false, &body) {
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ERANGE | libc::EINVAL)) =>
            {
                return Err(missing());
            }
            answers => answers.map_err(|error| XdpError::from_io("reading the interface", error))?,
        };
        let link = answers.first().ok_or_else(missing)?;
        let mut facts = parse_link(name, link).ok_or_else(|| XdpError::NoEthernet(name.to_owned()))?;
        let failed = |error| XdpError::from_io("reading addresses and routes", error);
        facts.addresses = read_addresses(facts.index).map_err(failed)?;
        facts.has_default_route = has_default_route(facts.index).map_err(failed)?;
        facts.queues = ethtool::receiving_queues(name).unwrap_or(facts.queues);
        facts.driver = ethtool::driver(name).unwrap_or(facts.driver);
        facts.mode = features::mode(facts.index);
        facts.steering = if facts.queues > 1 { ethtool::steering(name) } else { None };
        Ok(facts)
    }

    /// Returns whether checksums of received segments can be verified. A peer on a veth pair sends none.
    #[must_use]
    pub fn verifies_checksums(&self) -> bool {
        self.driver != "veth"
    }

    /// Returns everything that prevents the use of the interface by this number of threads.
    #[must_use]
    pub fn problems(&self, threads: usize, may_be_exposed: bool) -> Vec<XdpError> {
        let name = || self.name.clone();
        let mut problems = Vec::new();
        if !self.is_up {
            problems.push(XdpError::Down(name()));
        }
        if self.mtu > MTU_MAX {
            problems.push(XdpError::MtuTooLarge { name: name(), mtu: self.mtu });
        }
        if let Some(id) = self.program {
            problems.push(XdpError::program_attached(&self.name, id));
        }
        if self.queues as usize != threads {
            problems.push(XdpError::Queues { name: name(), queues: self.queues, threads });
        }
        if self.has_default_route && !may_be_exposed {
            problems.push(XdpError::Exposed(name()));
        }
        problems
    }

    /// Checks that the interface has an address.
    ///
    /// # Errors
    /// It has not.
    pub fn check_address(&self, address: IpAddr) -> Result<(), XdpError> {
        if self.addresses.contains(&address) {
            return Ok(());
        }
        let has = format_addresses(&self.addresses);
        Err(XdpError::NoAddress { name: self.name.clone(), address, has })
    }

    /// Returns the own address and the MAC address of the next hop for packets to `target`. The kernel asks for the latter
    /// if it does not know it: that takes up to two seconds.
    ///
    /// # Errors
    /// There is no route through this interface, or the next hop does not answer.
    pub fn route(&self, target: IpAddr) -> Result<Route, XdpError> {
        let no_route = || XdpError::NoRoute { name: self.name.clone(), address: target };
        let (family, octets) = match target {
            IpAddr::V4(target) => (FAMILY_IPV4, target.octets().to_vec()),
            IpAddr::V6(target) => (FAMILY_IPV6, target.octets().to_vec()),
        };
        let mut body = vec![family, octets.len() as u8 * 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        push_attribute(&mut body, 1, &octets);
        let answers = request(GET_ROUTE, false, &body).map_err(|_| no_route())?;
        let attributes = answers.first().and_then(|answer| answer.get(12..)).ok_or_else(no_route)?;
        if attribute_u32(attributes, 4) != Some(self.index) {
            return Err(no_route());
        }
        let source = attribute(attributes, 7).and_then(parse_address).ok_or_else(no_route)?;
        let next_hop = attribute(attributes, 5).and_then(parse_address).unwrap_or(target);
        let failed = |error| XdpError::from_io("reading neighbours", error);
        for attempt in 0..NEIGHBOUR_CHECKS {
            if let Some(mac) = read_neighbour(self.index, next_hop).map_err(failed)? {
                return Ok(Route { source, next_hop: mac });
            }
            if attempt % 25 == 0 {
                // Any packet makes the kernel ask; nobody listens on the port "discard", or has to.
                let _ = UdpSocket::bind((source, 0)).and_then(|socket| socket.send_to(&[], (next_hop, 9)));
            }
            std::thread::sleep(NEIGHBOUR_INTERVAL);
        }
        Err(XdpError::NoNeighbour { name: self.name.clone(), address: next_hop })
    }
}

/// Way to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Own address.
    pub source: IpAddr,
    pub next_hop: MacAddress,
}

fn parse_link(name: &str, message: &[u8]) -> Option<InterfaceFacts> {
    let (fixed, attributes) = message.split_first_chunk::<16>()?;
    if u16::from_ne_bytes([fixed[2], fixed[3]]) != LINK_TYPE_ETHERNET {
        return None;
    }
    let kind = attribute(attributes, 18).and_then(|info| attribute(info, 1)).unwrap_or_default();
    let kind = String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned();
    let program = attribute(attributes, 43)
        .filter(|xdp| attribute(xdp, 2).is_some_and(|attached| attached.first() != Some(&0)))
        .map(|xdp| (4..8).find_map(|kind| attribute_u32(xdp, kind).filter(|id| *id > 0)).unwrap_or(0));
    Some(InterfaceFacts {
        name: name.to_owned(),
        index: u32::from_ne_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        mac: attribute(attributes, 1)?.try_into().ok()?,
        mtu: attribute_u32(attributes, 4)?,
        queues: attribute_u32(attributes, 32).unwrap_or(1),
        driver: kind,
        program,
        mode: None,
        is_up: u32::from_ne_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]) & LINK_IS_UP != 0,
        has_default_route: false,
        addresses: Vec::new(),
        steering: None,
    })
}

fn parse_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        16 => bytes.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

fn read_addresses(interface: u32) -> io::Result<Vec<IpAddr>> {
    let mut answers = request(GET_ADDRESS, true, &[FAMILY_IPV4, 0, 0, 0, 0, 0, 0, 0])?;
    answers.extend(request(GET_ADDRESS, true, &[FAMILY_IPV6, 0, 0, 0, 0, 0, 0, 0])?);
    let is_here = |message: &&Vec<u8>| message.get(4..8) == Some(&interface.to_ne_bytes()[..]);
    // The own address, or else the only one: a link between two hosts has that of the peer, too.
    let address = |message: &Vec<u8>| {
        let attributes = message.get(8..)?;
        attribute(attributes, 2).or_else(|| attribute(attributes, 1)).and_then(parse_address)
    };
    Ok(answers.iter().filter(is_here).filter_map(address).collect())
}

fn has_default_route(interface: u32) -> io::Result<bool> {
    let mut answers = request(GET_ROUTE, true, &[FAMILY_IPV4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    answers.extend(request(GET_ROUTE, true, &[FAMILY_IPV6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?);
    Ok(answers.iter().any(|message| {
        let Some((fixed, attributes)) = message.split_first_chunk::<12>() else { return false };
        let table = attribute_u32(attributes, 15).unwrap_or_else(|| u32::from(fixed[4]));
        fixed[1] == 0 && table == TABLE_MAIN && attribute_u32(attributes, 4) == Some(interface)
    }))
}

fn read_neighbour(interface: u32, address: IpAddr) -> io::Result<Option<MacAddress>> {
    let family = if address.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 };
    let answers = request(GET_NEIGHBOUR, true, &[family, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    Ok(answers.iter().find_map(|message| {
        let (fixed, attributes) = message.split_first_chunk::<12>()?;
        let is_here = fixed[4..8] == interface.to_ne_bytes();
        let is_usable = u16::from_ne_bytes([fixed[8], fixed[9]]) & NEIGHBOUR_USABLE != 0;
        let is_it = attribute(attributes, 1).and_then(parse_address) == Some(address);
        if !(is_here && is_usable && is_it) {
            return None;
        }
        attribute(attributes, 2)?.try_into().ok()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> InterfaceFacts {
        InterfaceFacts {
            name: "eth1".to_owned(),
            index: 3,
            mac: [2; 6],
            mtu: 1_500,
            queues: 1,
            driver: "veth".to_owned(),
            program: None,
            mode: None,
            is_up: true,
            has_default_route: false,
            addresses: vec!["10.0.0.1".parse().unwrap()],
            steering: None,
        }
    }

    #[test]
    fn each_problem_says_what_to_do() {
        assert!(facts().problems(1, false).is_empty());
        let bad = InterfaceFacts {
            mtu: 9_000,
            queues: 4,
            program: Some(17),
            is_up: false,
            has_default_route: true,
            ..facts()
        };
        let texts: Vec<String> = bad.problems(2, false).iter().map(ToString::to_string).collect();
        let expected =
            ["ip link set eth1 up", "mtu 3498", "bpftool net", "ethtool -L eth1 combined 2", "--xdp-exposed"];
        assert_eq!(texts.len(), expected.len());
        for (text, part) in texts.iter().zip(expected) {
            assert!(text.contains(part), "{text}");
        }
        assert!(texts[2].contains("program (id 17):"), "{}", texts[2]);
        let unknown = InterfaceFacts { program: Some(0), ..facts() }.problems(1, false)[0].to_string();
        assert!(unknown.starts_with("eth1 has an XDP program: "), "{unknown}");
        assert_eq!(bad.problems(2, true).len(), 4);
        assert!(!facts().verifies_checksums());
        let error = facts().check_address("10.0.0.9".parse().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "eth1 does not have the address 10.0.0.9: it has 10.0.0.1");
    }

    #[test]
    fn loopback_and_missing_interfaces_are_named() {
        assert!(matches!(InterfaceFacts::read("lo"), Err(XdpError::NoEthernet(_))));
        for name in ["no-such-if", "a-name-that-is-far-too-long-for-linux", ""] {
            assert!(matches!(InterfaceFacts::read(name), Err(XdpError::NoInterface(_))), "{name}");
        }
    }
}
