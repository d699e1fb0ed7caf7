//! Opens TCP in user space for a server or a client: the checks of the interface, the rules of the program, the routes.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use xdp::attachment::{Attachment, check_port};
use xdp::interface::{InterfaceFacts, Route, SSH_PORT, XdpError};
use xdp::port::frame_memory_bytes;
use xdp::program::{RULES_MAX, Rule};
use xdp::sockets;
use xdp::stack::{CONNECTION_BYTES, CONNECTIONS_MAX, HALF_OPEN_MAX, StackConfig};

use super::{UserTcpPort, connect_queues};

/// Smallest range of own ports that a client accepts.
const PORTS_MIN: u16 = 1_000;
/// First own port of a client: those below are of servers.
const FIRST_PORT: u16 = 10_000;
/// Range of the kernel's own ports if it cannot be read (ip(7)).
const KERNEL_PORTS: RangeInclusive<u16> = 32_768..=60_999;

/// Settings of TCP in user space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserTcpPlan {
    pub interface: String,
    /// Number of threads: each has a receiving queue of the interface.
    pub threads: usize,
    /// True if a default route may lead through it.
    pub may_be_exposed: bool,
}

/// Interface and what would be taken from the kernel there.
#[derive(Debug)]
pub struct UserTcpSurvey {
    facts: InterfaceFacts,
    /// Everything that prevents the start.
    pub problems: Vec<XdpError>,
    rules: Vec<Rule>,
    held: Vec<SocketAddr>,
    listen: Vec<SocketAddr>,
    /// Own ports of a client.
    ports: RangeInclusive<u16>,
    left: LeftPorts,
    routes: Vec<(SocketAddr, Route)>,
}

/// Ports of a client that stay with the kernel because its sockets have them.
#[derive(Debug, Default)]
struct LeftPorts {
    /// Range without these sockets.
    range: Option<RangeInclusive<u16>>,
    /// Ports of the sockets, in order.
    used: Vec<u16>,
    /// Reason that they are not known.
    unknown: Option<String>,
}

/// Routes of a client, by target.
#[derive(Clone, Debug, Default)]
pub struct UserTcpRoutes(Vec<(SocketAddr, Route)>);

impl UserTcpRoutes {
    /// Returns the route to a target, from `source` if one is given.
    #[must_use]
    pub fn get(&self, target: SocketAddr, source: Option<IpAddr>) -> Option<Route> {
        let (_, route) = self.0.iter().find(|(known, _)| *known == target)?;
        Some(Route { source: source.unwrap_or(route.source), ..*route })
    }
}

impl UserTcpSurvey {
    /// Reads the interface and checks what a server at these addresses would take. Nothing is taken yet.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn for_server(plan: &UserTcpPlan, listen: &[SocketAddr]) -> Result<Self, XdpError> {
        let mut survey = Self::new(plan)?;
        for address in listen {
            let checked = match survey.facts.check_address(address.ip()) {
                _ if address.port() == SSH_PORT => Err(XdpError::Ssh),
                Ok(()) => check_port(*address),
                missing => missing,
            };
            survey.problems.extend(checked.err());
            let (local, port) = (address.ip(), address.port());
            survey.rules.push(Rule { local, ports: port..=port, remote: None });
        }
        survey.check_rules();
        survey.held = listen.to_vec();
        survey.listen = listen.to_vec();
        Ok(survey)
    }

    /// Does the same for a client of these targets: it takes the packets from them to its own ports, at its `sources` or
    /// else at the address of the route. May wait up to two seconds for each target that the kernel has to ask for.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn for_client(
        plan: &UserTcpPlan,
        targets: &[SocketAddr],
        sources: &[IpAddr],
    ) -> Result<Self, XdpError> {
        let mut survey = Self::new(plan)?;
        for source in sources {
            survey.problems.extend(survey.facts.check_address(*source).err());
        }
        for target in targets {
            match survey.facts.route(target.ip()) {
                Ok(route) => {
                    let own = sources.iter().copied().filter(|source| source.is_ipv4() == target.is_ipv4());
                    let own = if sources.is_empty() { vec![route.source] } else { own.collect() };
                    let ports = &survey.ports;
                    let rule = |local| Rule { local, ports: ports.clone(), remote: Some(*target) };
                    survey.rules.extend(own.into_iter().map(rule));
                    survey.routes.push((*target, route));
                }
                Err(error) => survey.problems.push(error),
            }
        }
        survey.check_rules();
        survey.leave_used_ports(targets);
        Ok(survey)
    }

    fn check_rules(&mut self) {
        if self.rules.len() > RULES_MAX {
            self.problems.push(XdpError::TooManyRules(self.rules.len()));
        }
    }

    /// Leaves the ports to the kernel that its sockets have at the own addresses: a client takes the largest range without
    /// them.
    fn leave_used_ports(&mut self, targets: &[SocketAddr]) {
        let own = self.own_addresses();
        let mut remote_ports: Vec<u16> = targets.iter().map(SocketAddr::port).collect();
        remote_ports.sort_unstable();
        remote_ports.dedup();
        let sockets = match sockets::read(&remote_ports) {
            Ok(sockets) => sockets,
            Err(error) => {
                self.left.unknown = Some(error.to_string());
                return;
            }
        };
        let in_use = sockets.iter().filter_map(|socket| socket.port_in_use(&own, targets));
        let mut used: Vec<u16> = in_use.filter(|port| self.ports.contains(port)).collect();
        used.sort_unstable();
        used.dedup();
        if used.is_empty() {
            return;
        }
        match free_range(&self.ports, &used) {
            Some(free) => {
                self.left.range = Some(std::mem::replace(&mut self.ports, free));
                for rule in &mut self.rules {
                    rule.ports = self.ports.clone();
                }
            }
            None => {
                let (first, last) = (*self.ports.start(), *self.ports.end());
                self.problems.push(XdpError::NoPorts { addresses: own, first, last });
            }
        }
        self.left.used = used;
    }

    /// Returns the addresses of the rules, each once.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self.rules.iter().map(|rule| rule.local).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn new(plan: &UserTcpPlan) -> Result<Self, XdpError> {
        let facts = InterfaceFacts::read(&plan.interface)?;
        let kernel = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        let kernel = kernel.ok().and_then(|text| parse_range(&text)).unwrap_or(KERNEL_PORTS);
        Ok(Self {
            problems: facts.problems(plan.threads, plan.may_be_exposed),
            facts,
            rules: Vec::new(),
            held: Vec::new(),
            listen: Vec::new(),
            ports: client_ports(&kernel),
            left: LeftPorts::default(),
            routes: Vec::new(),
        })
    }

    /// Returns the number of connections that a client can have between two addresses.
    #[must_use]
    pub fn port_count(&self) -> usize {
        let queues = self.facts.queues.max(1) as usize;
        self.ports.len() / queues * queues
    }

    /// Takes the packets from the kernel: returns a port for each queue, in their order.
    ///
    /// # Errors
    /// The problems of the survey; or a port is in use, another program is attached, or a call is not permitted.
    pub fn open(self, connections_max: usize) -> Result<(Vec<UserTcpPort>, UserTcpRoutes), Vec<XdpError>> {
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        let attachments =
            Attachment::open(&self.facts, &self.rules, &self.held).map_err(|error| vec![error])?;
        let config = StackConfig {
            mac: self.facts.mac,
            mtu: self.facts.mtu as usize,
            addresses: self.own_addresses(),
            listen: self.listen,
            ports: self.ports,
            verifies_checksums: self.facts.verifies_checksums(),
            connections_max: connections_max.min(CONNECTIONS_MAX),
            half_open_max: HALF_OPEN_MAX,
            seed: 0,
            queues: self.facts.queues,
            queue: 0,
            steering: self.facts.steering.clone(),
        };
        let facts = self.facts;
        // A device whose steering is known divides the ports itself.
        let ranges = match config.steering {
            Some(_) => vec![config.ports.clone(); attachments.len()],
            None => split_range(&config.ports, attachments.len()),
        };
        let open_port = |(queue, (attachment, ports)): (u32, _)| {
            UserTcpPort::new(attachment, facts.clone(), StackConfig { ports, queue, ..config.clone() })
        };
        let mut ports: Vec<UserTcpPort> =
            (0..).zip(attachments.into_iter().zip(ranges)).map(open_port).collect();
        connect_queues(&mut ports);
        Ok((ports, UserTcpRoutes(self.routes)))
    }

    /// Describes the interface and what would be taken, a line for each property. The bound of the memory is that of
    /// `connections` in all threads; `None`: as many as there may be.
    #[must_use]
    pub fn describe(&self, connections: Option<usize>) -> String {
        let facts = &self.facts;
        let driver = if facts.driver.is_empty() { "unknown" } else { &facts.driver };
        let mut text = format!(
            "xdp: {} (driver {driver}, MTU {}, receiving queues: {})\n",
            facts.name, facts.mtu, facts.queues
        );
        let mode = match facts.mode {
            Some(mode) => format!("{mode}, as the driver reports it; the start tries it"),
            None => "found at the start: zero-copy if the driver has it, else copy, else generic".to_owned(),
        };
        let _ = writeln!(text, "xdp mode: {mode}");
        let missing = missing_capabilities();
        if !missing.is_empty() {
            let _ = writeln!(text, "xdp capabilities missing: {}", missing.join(", "));
        }
        for rule in &self.rules {
            let ports = match rule.ports.start() == rule.ports.end() {
                true => rule.ports.start().to_string(),
                false => format!("{} to {}", rule.ports.start(), rule.ports.end()),
            };
            let from = rule.remote.map(|remote| format!(" from {remote}")).unwrap_or_default();
            let _ = writeln!(text, "xdp takes from the kernel: TCP to {} port {ports}{from}", rule.local);
        }
        text += &self.left.describe();
        let threads = facts.queues.max(1) as usize;
        let connections = connections.unwrap_or(usize::MAX).min(CONNECTIONS_MAX * threads);
        let _ = writeln!(
            text,
            "xdp limits of a thread: {CONNECTIONS_MAX} connections of {} KiB, {HALF_OPEN_MAX} handshakes",
            CONNECTION_BYTES / 1024
        );
        let _ = writeln!(
            text,
            "xdp memory: at most {:.1} MiB for {connections} connections, and {} MiB for frames",
            (connections * CONNECTION_BYTES) as f64 / f64::from(1 << 20),
            threads * frame_memory_bytes(facts.mtu) / (1 << 20)
        );
        text +=
            "xdp is not seen by ss, nstat, tcpdump and conntrack: they know nothing of these connections\n";
        text += "xdp record will not know: congestion windows, the round trip of each segment, the state of each socket\n";
        for problem in &self.problems {
            let _ = writeln!(text, "xdp problem: {problem}");
        }
        text
    }
}

impl LeftPorts {
    /// Maximum number of ports that are named.
    const NAMED_MAX: usize = 8;

    /// Describes the ports in a line; empty if there are none.
    fn describe(&self) -> String {
        if let Some(reason) = &self.unknown {
            return format!("xdp leaves to the kernel: ports of its sockets are not known ({reason})\n");
        }
        let Some(range) = &self.range else { return String::new() };
        let mut ports: Vec<String> = self.used.iter().take(Self::NAMED_MAX).map(u16::to_string).collect();
        if self.used.len() > Self::NAMED_MAX {
            ports.push("...".to_owned());
        }
        let (count, first, last) = (self.used.len(), range.start(), range.end());
        format!(
            "xdp leaves to the kernel: its sockets have {count} of the ports {first} to {last}: {}\n",
            ports.join(", ")
        )
    }
}

/// Returns the longest part of a range of ports without the used ones, which are in order.
fn free_range(ports: &RangeInclusive<u16>, used: &[u16]) -> Option<RangeInclusive<u16>> {
    let mut start = *ports.start();
    let mut longest: Option<RangeInclusive<u16>> = None;
    let mut add = |start: u16, end: u16| {
        if start <= end && longest.as_ref().is_none_or(|known| known.len() < usize::from(end - start) + 1) {
            longest = Some(start..=end);
        }
    };
    for port in used.iter().filter(|port| ports.contains(port)) {
        if *port > start {
            add(start, port - 1);
        }
        if *port == u16::MAX {
            return longest;
        }
        start = port + 1;
    }
    add(start, *ports.end());
    longest
}

/// Returns own ports of a client that the kernel does not give to others.
fn client_ports(kernel: &RangeInclusive<u16>) -> RangeInclusive<u16> {
    let below = kernel.start().saturating_sub(FIRST_PORT);
    let above = u16::MAX - kernel.end();
    match below >= PORTS_MIN || below >= above {
        true if below > 0 => FIRST_PORT..=kernel.start() - 1,
        _ => kernel.end().saturating_add(1)..=u16::MAX,
    }
}

/// Divides a range of ports into equal ones, of which a queue each has one.
fn split_range(ports: &RangeInclusive<u16>, parts: usize) -> Vec<RangeInclusive<u16>> {
    let length = (ports.len() / parts.max(1)).max(1);
    // A queue has at least one port: an interface has far fewer queues than a client has ports.
    let start = |part: usize| ports.start().saturating_add((part * length) as u16);
    (0..parts).map(|part| start(part)..=start(part + 1).saturating_sub(1).max(start(part))).collect()
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

/// Returns the capabilities that are needed and that the process does not have (capabilities(7)).
fn missing_capabilities() -> Vec<&'static str> {
    const NEEDED: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_BPF", 39)];
    /// `CAP_SYS_ADMIN`, which stands for `CAP_BPF`.
    const SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(mask) = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()) else {
        return Vec::new();
    };
    let has = |bit: u32| mask & (1 << bit) != 0;
    let is_missing = |bit: u32| !(has(bit) || bit == 39 && has(SYS_ADMIN));
    NEEDED.into_iter().filter(|(_, bit)| is_missing(*bit)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_ports_that_the_kernel_does_not_use() {
        for (kernel, expected) in [
            (32_768..=60_999, 10_000..=32_767),
            (20_000..=65_535, 10_000..=19_999),
            (1_024..=60_999, 61_000..=65_535),
            (10_500..=40_000, 40_001..=65_535),
            (11_500..=65_000, 10_000..=11_499),
        ] {
            assert_eq!(client_ports(&kernel), expected, "{kernel:?}");
        }
        assert_eq!(parse_range("32768\t60999\n"), Some(32_768..=60_999));
        for (used, expected) in [
            (&[][..], Some(100..=109)),
            (&[100], Some(101..=109)),
            (&[109], Some(100..=108)),
            (&[103], Some(104..=109)),
            (&[106], Some(100..=105)),
            (&[102, 107], Some(103..=106)),
            (&[99, 110], Some(100..=109)),
            (&[100, 101, 102, 103, 104, 105, 106, 107, 108, 109], None),
        ] {
            assert_eq!(free_range(&(100..=109), used), expected, "{used:?}");
        }
        assert_eq!(free_range(&(65_534..=65_535), &[65_535]), Some(65_534..=65_534));
        assert_eq!(free_range(&(65_535..=65_535), &[65_535]), None);
    }

    #[test]
    fn ports_that_are_left_to_the_kernel_are_named_and_counted() {
        let left =
            |used: Vec<u16>| LeftPorts { range: Some(10_000..=19_999), used, unknown: None }.describe();
        let line = "xdp leaves to the kernel: its sockets have 2 of the ports 10000 to 19999: 10250, 11211\n";
        assert_eq!(left(vec![10_250, 11_211]), line);
        assert!(left((10_000..10_020).collect()).ends_with(" 10006, 10007, ...\n"));
        assert_eq!(LeftPorts::default().describe(), "");
        let unknown = LeftPorts { unknown: Some("no".into()), ..LeftPorts::default() };
        assert!(unknown.describe().contains("are not known (no)"));
    }

    #[test]
    fn queues_have_equal_ranges() {
        assert_eq!(parse_range("x"), None);
        assert_eq!(split_range(&(10_000..=10_999), 1), [10_000..=10_999]);
        assert_eq!(split_range(&(10_000..=10_999), 3), [10_000..=10_332, 10_333..=10_665, 10_666..=10_998]);
    }
}
