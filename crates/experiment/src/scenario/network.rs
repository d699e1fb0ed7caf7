//! The network of a scenario as commands of `ip`, `tc` and `nft`, and settings. No I/O.

use std::fmt::Write as _;

use super::plan::{Bandwidth, Network, Node, Packets, Queue, Scenario};

/// Bytes of a full packet on Ethernet: converts a limit of packets to a limit of bytes.
const PACKET_BYTES: u64 = 1500;
/// Second address of the client, for connections that are begun and never completed.
pub(super) const HALF_OPEN_ADDRESS: &str = "198.18.1.100";
/// Port of the subject for half-open connections.
pub(super) const HALF_OPEN_PORT: u16 = 8000;
/// Queue size of a packet limit, in bytes.
const PACKET_QUEUE_BYTES: u64 = 512 << 10;

/// Command, and its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NetworkCommand {
    pub(super) command: Vec<String>,
    pub(super) input: Option<String>,
    /// Node whose namespace it runs in; `None`: that of this process.
    pub(super) node: Option<Node>,
}

/// Setting below `/proc/sys/net` of a node's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamespaceSetting {
    pub(super) node: Node,
    /// Name of the setting: `ipv4.tcp_rmem`.
    pub(super) name: String,
    pub(super) value: String,
}

/// Returns the interface of `node` towards its peer.
pub(super) fn interface(node: Node) -> String {
    format!("to-{}", node.peer())
}

/// Returns the links of a network as pairs of nodes, the one nearer to the client first.
pub(super) fn links(network: Network) -> &'static [(Node, Node)] {
    match network {
        Network::Loopback => &[],
        Network::Pair => &[(Node::Client, Node::Subject)],
        Network::Chain => &[(Node::Client, Node::Subject), (Node::Subject, Node::Origin)],
    }
}

/// Returns whether the link of `far` towards the client has a delay.
pub(super) fn is_delayed(scenario: &Scenario, far: Node) -> bool {
    scenario.delay.is_some_and(|delay| delay.at == far)
}

fn command_line(text: &str) -> NetworkCommand {
    NetworkCommand { command: text.split(' ').map(str::to_owned).collect(), input: None, node: None }
}

/// Returns the commands that make everything. They require the namespaces, and the TUN devices of
/// links with a delay. `run` is the prefix of names.
pub(super) fn commands(scenario: &Scenario, run: &str) -> Vec<NetworkCommand> {
    let mut steps = Vec::new();
    for node in scenario.network.nodes() {
        steps.push(command_line(&format!("ip -n {run}-{node} link set lo up")));
    }
    for (at, &(near, far)) in links(scenario.network).iter().enumerate() {
        let (a, b) = (format!("{run}-{near}"), format!("{run}-{far}"));
        let (to_far, to_near) = (format!("to-{far}"), format!("to-{near}"));
        if !is_delayed(scenario, far) {
            let add = format!("ip -n {a} link add {to_far} type veth peer name {to_near} netns {b}");
            steps.push(command_line(&add));
        }
        for (name, device, last) in [(&a, &to_far, 1), (&b, &to_near, 2)] {
            // A TUN device has a single peer, so both kinds get the prefix of the network.
            let address = format!("198.18.{}.{last}/24", at + 1);
            steps.push(command_line(&format!("ip -n {name} address add {address} dev {device}")));
            steps.push(command_line(&format!("ip -n {name} link set {device} up")));
        }
    }
    if let Some(bandwidth) = scenario.bandwidth {
        steps.push(bandwidth_command(run, &bandwidth));
    }
    if let Some(packets) = scenario.packets.filter(|packets| !packets.drop) {
        steps.push(packet_rate_command(run, packets));
    }
    if scenario.half_open_per_s.is_some() {
        let device = interface(Node::Client);
        let add = format!("ip -n {run}-client address add {HALF_OPEN_ADDRESS}/24 dev {device}");
        steps.push(command_line(&add));
    }
    if let Some(steering) = &scenario.steering {
        let device = interface(steering.at);
        let mask = cpu_mask(&steering.cpus);
        let mut command = command_line(&format!("ip netns exec {run}-{} sh -c", steering.at));
        command.command.push(format!("echo {mask} > /sys/class/net/{device}/queues/rx-0/rps_cpus"));
        steps.push(command);
    }
    steps.extend(scenario.network.nodes().iter().filter_map(|&node| filter_command(scenario, node)));
    steps
}

fn bandwidth_command(run: &str, bandwidth: &Bandwidth) -> NetworkCommand {
    let queue = match bandwidth.queue {
        Queue::Time(ns) => format!("latency {}us", ns / 1000),
        Queue::Bytes(bytes) => format!("limit {bytes}"),
    };
    command_line(&format!(
        "tc -n {run}-{} qdisc add dev {} root tbf rate {}bit burst {} {queue}",
        bandwidth.at,
        interface(bandwidth.at),
        bandwidth.rate_bits_per_s,
        bandwidth.burst_bytes
    ))
}

/// Returns a token bucket in which each packet counts as a full one (tc-tbf(8), `mpu`).
fn packet_rate_command(run: &str, packets: Packets) -> NetworkCommand {
    command_line(&format!(
        "tc -n {run}-{} qdisc add dev {} root tbf rate {}bit burst {} limit {PACKET_QUEUE_BYTES} mpu {PACKET_BYTES}",
        packets.at,
        interface(packets.at),
        packets.rate_per_s * PACKET_BYTES * 8,
        16 * PACKET_BYTES
    ))
}

/// Returns the rules of a node's packet filter, if it has any. The table is removed with its
/// namespace.
fn filter_command(scenario: &Scenario, node: Node) -> Option<NetworkCommand> {
    /// Upper limit of `numgen`.
    const NUMGEN_RANGE: f64 = 10_000.0;
    let device = interface(node);
    let mut rules = String::new();
    // Writing to a string does not fail.
    if let Some(loss) = scenario.loss.filter(|loss| loss.at == node) {
        let parts = (loss.fraction * NUMGEN_RANGE).round() as u32;
        let _ = writeln!(rules, "iifname \"{device}\" numgen random mod 10000 < {parts} counter drop");
    }
    if let Some(packets) = scenario.packets.filter(|packets| packets.drop && packets.at == node) {
        let rate = packets.rate_per_s;
        let _ = writeln!(
            rules,
            "iifname \"{device}\" limit rate over {rate}/second burst 64 packets counter drop"
        );
    }
    if scenario.half_open_per_s.is_some() && node == Node::Client {
        let _ = writeln!(rules, "ip daddr {HALF_OPEN_ADDRESS} tcp flags & (syn|ack) == syn|ack counter drop");
    }
    let tracks = scenario.conntrack_max.is_some() && node == Node::Subject;
    if rules.is_empty() && !tracks {
        return None;
    }
    let mut text = String::from("table ip weir-lab {\n");
    let _ = writeln!(text, "chain arriving {{ type filter hook prerouting priority -300;\n{rules}}}");
    if tracks {
        // A rule that reads the state makes the namespace track connections.
        text.push_str("chain tracked { type filter hook input priority 0;\nct state new counter accept\n}\n");
    }
    text.push_str("}\n");
    let mut command = command_line("nft -f -");
    command.input = Some(text);
    command.node = Some(node);
    Some(command)
}

/// Returns the settings of the namespaces, in the order in which they are made.
pub(super) fn settings(scenario: &Scenario) -> Vec<NamespaceSetting> {
    let mut settings = Vec::new();
    let mut set = |node, name: &str, value: String| {
        let name = name.strip_prefix("net.").unwrap_or(name).to_owned();
        settings.push(NamespaceSetting { node, name, value });
    };
    if let Some((first, last)) = scenario.ports {
        set(Node::Client, "ipv4.ip_local_port_range", format!("{first} {last}"));
    }
    if let Some(bytes) = scenario.receive_buffer_bytes {
        set(Node::Client, "ipv4.tcp_rmem", format!("{bytes} {bytes} {bytes}"));
    }
    for (&node, node_sysctls) in &scenario.sysctls {
        for (name, value) in node_sysctls {
            set(node, name, value.clone());
        }
    }
    settings
}

/// Returns the file of a setting below `/proc/sys/net`. `None` for an invalid name.
pub(super) fn setting_path(name: &str) -> Option<String> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "._-/".contains(character);
    let path = name.replace('.', "/");
    let is_name = name.chars().all(fits) && path.split('/').all(|part| !part.is_empty());
    is_name.then(|| format!("/proc/sys/net/{path}"))
}

/// Formats CPUs as a kernel mask: hexadecimal, in words of 32 bits.
fn cpu_mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let word = |word: u32| {
        let bits =
            cpus.iter().filter(|&&cpu| cpu / 32 == word).fold(0u32, |bits, cpu| bits | 1 << (cpu % 32));
        format!("{bits:08x}")
    };
    (0..words).rev().map(word).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::plan::{Delay, Loss};

    fn lines(scenario: &Scenario) -> String {
        let steps = commands(scenario, "weir-1");
        steps
            .iter()
            .map(|command| command.command.join(" ") + "\n" + command.input.as_deref().unwrap_or(""))
            .collect()
    }

    #[test]
    fn a_chain_has_two_links_with_faults_at_their_nodes() {
        let scenario = Scenario {
            network: Network::Chain,
            delay: Some(Delay { round_trip_ns: 1, jitter_ns: 0, at: Node::Origin }),
            loss: Some(Loss { fraction: 0.02, at: Node::Client }),
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
        assert_eq!(commands(&Scenario { network: Network::Loopback, ..Scenario::default() }, "x"), []);
    }

    #[test]
    fn masks_and_names_of_settings() {
        assert_eq!(
            (cpu_mask(&[1]), cpu_mask(&[0, 33])),
            ("00000002".to_owned(), "00000002,00000001".to_owned())
        );
        assert_eq!(setting_path("ipv4.tcp_rmem").as_deref(), Some("/proc/sys/net/ipv4/tcp_rmem"));
        assert_eq!((setting_path("../x"), setting_path(""), setting_path("a b")), (None, None, None));
        let scenario = Scenario { ports: Some((1, 2)), ..Scenario::default() };
        assert_eq!(settings(&scenario)[0].value, "1 2");
    }
}
