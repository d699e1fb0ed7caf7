//! Plan of a scenario: values only, independent of their source.

use std::collections::BTreeMap;
use std::fmt;

/// Position in the network, and the program there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    Client,
    /// Program under test.
    #[default]
    Subject,
    Origin,
}

/// Group and role of programs that only use CPU time.
pub(super) const NOISE_GROUP: &str = "noise";
/// Group of the subject's child processes, if they have a separate quota.
pub(super) const WORKERS_GROUP: &str = "workers";
pub const NODES: [Node; 3] = [Node::Client, Node::Subject, Node::Origin];

impl Node {
    /// Returns its name, for files and for things that a run makes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Subject => "subject",
            Self::Origin => "origin",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        NODES.into_iter().find(|node| node.name() == name)
    }

    /// Returns its neighbour on the side with most of its traffic: towards the client, and from the
    /// client to the subject.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Client | Self::Origin => Self::Subject,
            Self::Subject => Self::Client,
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Connection of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// All nodes on the host's loopback: the network cannot be changed.
    Loopback,
    /// Client and subject, each in a network namespace.
    #[default]
    Pair,
    /// Client, subject and an origin behind it.
    Chain,
}

impl Network {
    #[must_use]
    pub fn nodes(self) -> &'static [Node] {
        match self {
            Self::Loopback => &[],
            Self::Pair => &NODES[..2],
            Self::Chain => &NODES,
        }
    }

    /// Returns the address of a node: for the client, and for an origin, for the subject. The range
    /// is that for tests of network devices (RFC 2544).
    pub fn address(self, node: Node) -> &'static str {
        match (self, node) {
            (Self::Loopback, _) => "127.0.0.1",
            (_, Node::Client) => "198.18.1.1",
            (_, Node::Subject) => "198.18.1.2",
            (_, Node::Origin) => "198.18.2.2",
        }
    }
}

/// Link with a rate: a token bucket (tc-tbf(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    pub rate_bits_per_s: u64,
    pub burst_bytes: u64,
    pub queue: Queue,
    /// Node whose sending towards [`Node::peer`] is limited.
    pub at: Node,
}

/// Limit of the queue before a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Maximum waiting time, in ns.
    Time(u64),
    Bytes(u64),
}

/// Random packet loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Fraction of the packets, 0 to 1.
    pub fraction: f64,
    /// Node at which the lost packets would have arrived.
    pub at: Node,
}

/// Delay on the link between a node and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Time added to a round trip, half of it in each direction.
    pub round_trip_ns: u64,
    /// Maximum random addition in each direction; the order of packets is kept.
    pub jitter_ns: u64,
    /// Node whose link towards the client has the delay.
    pub at: Node,
}

/// Limit of the packet rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    pub rate_per_s: u64,
    /// True if further packets are dropped on arrival; otherwise they wait at the sender.
    pub drop: bool,
    /// Node whose sending is limited; with `drop`, the node at which they arrive.
    pub at: Node,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuQuota {
    pub cpus: f64,
    pub period_ns: u64,
}

/// Processes that only use CPU time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noise {
    pub processes: u32,
    /// CPUs that they run on; empty: any.
    pub cpus: Vec<u32>,
}

/// Receive packet steering of an interface (`Documentation/networking/scaling.rst`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    pub at: Node,
    /// CPUs that the packets go to.
    pub cpus: Vec<u32>,
}

/// Environment of the programs of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// Connection of the nodes.
    pub network: Network,
    /// Link with a rate.
    pub bandwidth: Option<Bandwidth>,
    pub loss: Option<Loss>,
    pub delay: Option<Delay>,
    pub packets: Option<Packets>,
    pub cpu_quotas: BTreeMap<Node, CpuQuota>,
    /// CPU quota of all child processes of the subject together.
    pub workers_quota: Option<CpuQuota>,
    /// Bytes per second that the subject may write to the disk of the run's directory.
    pub disk_bytes_per_s: Option<u64>,
    /// Bytes of memory that the subject may use, its page cache included.
    pub memory_bytes: Option<u64>,
    /// CPUs that each node may run on.
    pub pins: BTreeMap<Node, Vec<u32>>,
    /// Processes that only use CPU time.
    pub noise: Option<Noise>,
    /// Maximum number of open descriptors of each node.
    pub descriptors: BTreeMap<Node, u64>,
    /// First and last port of the client's connections.
    pub ports: Option<(u16, u16)>,
    /// Settings of each node's network namespace, by their names below `net`.
    pub sysctls: BTreeMap<Node, BTreeMap<String, String>>,
    /// Settings of each node's virtual links (`host::sandbox::link_settings`).
    pub interface_settings: BTreeMap<Node, BTreeMap<String, String>>,
    /// Packet steering of an interface.
    pub steering: Option<Steering>,
    /// Receive buffer of each of the client's connections, in bytes.
    pub receive_buffer_bytes: Option<u64>,
    /// New connections per second that are never completed, to the subject's port 8000.
    pub half_open_per_s: Option<u64>,
    /// Settings of the complete machine, by their sysctl name or their file below `/sys`.
    pub host_settings: BTreeMap<String, String>,
    /// Maximum number of connections that the complete machine tracks. This and `host_settings` affect more
    /// than the run.
    pub conntrack_max: Option<u64>,
}

impl Scenario {
    /// Returns the settings that it changes outside its own namespaces and groups.
    pub fn global_settings(&self) -> Vec<&str> {
        let conntrack = self.conntrack_max.iter().map(|_| "net.netfilter.nf_conntrack_max");
        conntrack.chain(self.host_settings.keys().map(String::as_str)).collect()
    }
}

pub(super) fn host_setting_path(name: &str) -> Option<std::path::PathBuf> {
    let path = match name.starts_with('/') {
        true => Some(name.into()),
        false => host::tuning::sysctl_path(name),
    };
    path.filter(|path| host::tuning::is_host_setting(path))
}
