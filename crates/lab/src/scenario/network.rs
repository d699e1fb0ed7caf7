//! The network of a scenario as commands of `ip`, `tc` and `nft`, and settings. Pure.

use std::fmt::Write as _;

use super::plan::{Bandwidth, Network, Node, Packets, Queue, Scenario};

/// Bits of a full packet on Ethernet: how a bound of packets is told to a bound of bytes.
const PACKET_BYTES: u64 = 1500;
/// The second address of the client, from which connections are begun and never completed.
pub(super) const HALF_OPEN_ADDRESS: &str = "198.18.1.100";
/// The subject's port that half-open connections go to.
pub(super) const HALF_OPEN_PORT: u16 = 8000;
/// Bytes that may wait before a bound of packets.
const PACKET_QUEUE_BYTES: u64 = 512 << 10;

/// One command, and what it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) line: Vec<String>,
    pub(super) input: Option<String>,
    /// In whose namespace it runs; none: in ours.
    pub(super) within: Option<Node>,
}

/// A setting below `/proc/sys/net` of a node's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) node: Node,
    /// `ipv4.tcp_rmem`.
    pub(super) name: String,
    pub(super) value: String,
}

/// The interface of `node` towards its peer.
pub(super) fn interface(node: Node) -> String {
    format!("to-{}", node.peer())
}

/// The links of a network: both ends, the one nearer to the client first.
pub(super) fn links(network: Network) -> &'static [(Node, Node)] {
    match network {
        Network::Loopback => &[],
        Network::Pair => &[(Node::Client, Node::Subject)],
        Network::Chain => &[(Node::Client, Node::Subject), (Node::Subject, Node::Origin)],
    }
}

/// Whether the link towards the client of `far` is one with a delay.
pub(super) fn is_delayed(scenario: &Scenario, far: Node) -> bool {
    scenario.delay.is_some_and(|delay| delay.at == far)
}

fn line(text: &str) -> Step {
    Step { line: text.split(' ').map(str::to_owned).collect(), input: None, within: None }
}

/// Commands that make everything once the namespaces are there (and the TUN devices of links with a
/// delay). `run` is what names begin with.
pub(super) fn steps(scenario: &Scenario, run: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for node in scenario.network.nodes() {
        steps.push(line(&format!("ip -n {run}-{node} link set lo up")));
    }
    for (at, &(near, far)) in links(scenario.network).iter().enumerate() {
        let (a, b) = (format!("{run}-{near}"), format!("{run}-{far}"));
        let (to_far, to_near) = (format!("to-{far}"), format!("to-{near}"));
        if !is_delayed(scenario, far) {
            let add =
                format!("ip -n {a} link add {to_far} type veth peer name {to_near} netns {b}");
            steps.push(line(&add));
        }
        for (name, device, last) in [(&a, &to_far, 1), (&b, &to_near, 2)] {
            // A TUN device has a single other end, so both kinds get the network's prefix.
            let address = format!("198.18.{}.{last}/24", at + 1);
            steps.push(line(&format!("ip -n {name} address add {address} dev {device}")));
            steps.push(line(&format!("ip -n {name} link set {device} up")));
        }
    }
    if let Some(bandwidth) = scenario.bandwidth {
        steps.push(shaped(run, &bandwidth));
    }
    if let Some(packets) = scenario.packets.filter(|packets| !packets.drop) {
        steps.push(paced(run, packets));
    }
    if scenario.half_open_per_s.is_some() {
        let device = interface(Node::Client);
        let add = format!("ip -n {run}-client address add {HALF_OPEN_ADDRESS}/24 dev {device}");
        steps.push(line(&add));
    }
    if let Some(steering) = &scenario.steering {
        let device = interface(steering.at);
        let mask = mask(&steering.cpus);
        let mut step = line(&format!("ip netns exec {run}-{} sh -c", steering.at));
        step.line.push(format!("echo {mask} > /sys/class/net/{device}/queues/rx-0/rps_cpus"));
        steps.push(step);
    }
    steps.extend(scenario.network.nodes().iter().filter_map(|&node| filter(scenario, node)));
    steps
}

fn shaped(run: &str, bandwidth: &Bandwidth) -> Step {
    let queue = match bandwidth.queue {
        Queue::Time(ns) => format!("latency {}us", ns / 1000),
        Queue::Bytes(bytes) => format!("limit {bytes}"),
    };
    line(&format!(
        "tc -n {run}-{} qdisc add dev {} root tbf rate {}bit burst {} {queue}",
        bandwidth.at,
        interface(bandwidth.at),
        bandwidth.rate_bits_per_s,
        bandwidth.burst_bytes
    ))
}

/// A token bucket in which each packet counts as a full one (tc-tbf(8), `mpu`).
fn paced(run: &str, packets: Packets) -> Step {
    line(&format!(
        "tc -n {run}-{} qdisc add dev {} root tbf rate {}bit burst {} limit {PACKET_QUEUE_BYTES} mpu {PACKET_BYTES}",
        packets.at,
        interface(packets.at),
        packets.rate_per_s * PACKET_BYTES * 8,
        16 * PACKET_BYTES
    ))
}

/// The rules of a node's packet filter, if it has any. The table goes with its namespace.
fn filter(scenario: &Scenario, node: Node) -> Option<Step> {
    /// What `numgen` counts up to.
    const PARTS: f64 = 10_000.0;
    let device = interface(node);
    let mut rules = String::new();
    // Writing to a text does not fail.
    if let Some(loss) = scenario.loss.filter(|loss| loss.at == node) {
        let parts = (loss.share * PARTS).round() as u32;
        let _ =
            writeln!(rules, "iifname \"{device}\" numgen random mod 10000 < {parts} counter drop");
    }
    if let Some(packets) = scenario.packets.filter(|packets| packets.drop && packets.at == node) {
        let rate = packets.rate_per_s;
        let _ = writeln!(
            rules,
            "iifname \"{device}\" limit rate over {rate}/second burst 64 packets counter drop"
        );
    }
    if scenario.half_open_per_s.is_some() && node == Node::Client {
        let _ = writeln!(
            rules,
            "ip daddr {HALF_OPEN_ADDRESS} tcp flags & (syn|ack) == syn|ack counter drop"
        );
    }
    let tracks = scenario.conntrack_max.is_some() && node == Node::Subject;
    if rules.is_empty() && !tracks {
        return None;
    }
    let mut text = String::from("table ip weir-lab {\n");
    let _ =
        writeln!(text, "chain arriving {{ type filter hook prerouting priority -300;\n{rules}}}");
    if tracks {
        // A rule that asks for the state is what has the namespace track connections.
        text.push_str(
            "chain tracked { type filter hook input priority 0;\nct state new counter accept\n}\n",
        );
    }
    text.push_str("}\n");
    let mut step = line("nft -f -");
    step.input = Some(text);
    step.within = Some(node);
    Some(step)
}

/// The settings of the namespaces, in the order in which they are made.
pub(super) fn settings(scenario: &Scenario) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut set = |node, name: &str, value: String| {
        let name = name.strip_prefix("net.").unwrap_or(name).to_owned();
        settings.push(Setting { node, name, value });
    };
    if let Some((first, last)) = scenario.ports {
        set(Node::Client, "ipv4.ip_local_port_range", format!("{first} {last}"));
    }
    if let Some(bytes) = scenario.receive_buffer_bytes {
        set(Node::Client, "ipv4.tcp_rmem", format!("{bytes} {bytes} {bytes}"));
    }
    for (&node, of_node) in &scenario.sysctls {
        for (name, value) in of_node {
            set(node, name, value.clone());
        }
    }
    settings
}

/// The file of a setting below `/proc/sys/net`; none for what is no name.
pub(super) fn setting_file(name: &str) -> Option<String> {
    let fits = |one: char| one.is_ascii_alphanumeric() || "._-/".contains(one);
    let path = name.replace('.', "/");
    let is_name = name.chars().all(fits) && path.split('/').all(|part| !part.is_empty());
    is_name.then(|| format!("/proc/sys/net/{path}"))
}

/// Processors as the kernel's masks are: hexadecimal, in words of 32 bits.
fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word = |word: u32| {
        let bits = cpus
            .iter()
            .filter(|&&cpu| cpu / 32 == word)
            .fold(0u32, |bits, cpu| bits | 1 << (cpu % 32));
        format!("{bits:08x}")
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::plan::{Delay, Loss};

    fn lines(scenario: &Scenario) -> String {
        let steps = steps(scenario, "weir-1");
        steps
            .iter()
            .map(|step| step.line.join(" ") + "\n" + step.input.as_deref().unwrap_or(""))
            .collect()
    }

    #[test]
    fn a_chain_has_two_links_and_faults_stand_where_they_should() {
        let scenario = Scenario {
            network: Network::Chain,
            delay: Some(Delay { round_trip_ns: 1, jitter_ns: 0, at: Node::Origin }),
            loss: Some(Loss { share: 0.02, at: Node::Client }),
            bandwidth: Some(Bandwidth {
                rate_bits_per_s: 50_000_000,
                burst_bytes: 65_536,
                queue: Queue::Time(50_000_000),
                at: Node::Subject,
            }),
            packets: Some(Packets { rate_per_s: 1000, drop: false, at: Node::Origin }),
            half_open_per_s: Some(5),
            ..Scenario::default()
        };
        let lines = lines(&scenario);
        for expected in [
            "ip -n weir-1-client link add to-subject type veth peer name to-client netns weir-1-subject\n",
            "ip -n weir-1-origin address add 198.18.2.2/24 dev to-subject\n",
            "tc -n weir-1-subject qdisc add dev to-client root tbf rate 50000000bit burst 65536 latency 50000us\n",
            "tc -n weir-1-origin qdisc add dev to-subject root tbf rate 12000000bit burst 24000 limit 524288 mpu 1500\n",
            "iifname \"to-subject\" numgen random mod 10000 < 200 counter drop\n",
            "ip -n weir-1-client address add 198.18.1.100/24 dev to-subject\n",
        ] {
            assert!(lines.contains(expected), "{expected}{lines}");
        }
        // The link with a delay is no veth.
        assert!(!lines.contains("link add to-origin"), "{lines}");
        assert_eq!(steps(&Scenario { network: Network::Loopback, ..Scenario::default() }, "x"), []);
    }

    #[test]
    fn masks_and_names_of_settings() {
        assert_eq!(
            (mask(&[1]), mask(&[0, 33])),
            ("00000002".to_owned(), "00000002,00000001".to_owned())
        );
        assert_eq!(setting_file("ipv4.tcp_rmem").as_deref(), Some("/proc/sys/net/ipv4/tcp_rmem"));
        assert_eq!(
            (setting_file("../x"), setting_file(""), setting_file("a b")),
            (None, None, None)
        );
        let scenario = Scenario { ports: Some((1, 2)), ..Scenario::default() };
        assert_eq!(settings(&scenario)[0].value, "1 2");
    }
}
