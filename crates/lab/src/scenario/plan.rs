//! What a scenario is to be: values only, however they were written.

use std::collections::BTreeMap;
use std::fmt;

/// A place in the network, and the program there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// Where the load comes from.
    Client,
    /// The program under test.
    #[default]
    Subject,
    /// A server behind the subject.
    Origin,
}

/// All of them, from the client on.
pub const NODES: [Node; 3] = [Node::Client, Node::Subject, Node::Origin];

impl Node {
    /// Its name, in files and in the names of what is made.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Subject => "subject",
            Self::Origin => "origin",
        }
    }

    /// The node of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NODES.into_iter().find(|node| node.name() == name)
    }

    /// Its neighbour on the side where most of its traffic is: towards the client, and from the
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

/// How the nodes are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// All on the host's loopback: nothing of the network can be changed.
    Loopback,
    /// Client and subject, each in a network namespace.
    #[default]
    Pair,
    /// Client, subject and an origin behind it.
    Chain,
}

impl Network {
    /// The nodes that have a namespace.
    #[must_use]
    pub fn nodes(self) -> &'static [Node] {
        match self {
            Self::Loopback => &[],
            Self::Pair => &NODES[..2],
            Self::Chain => &NODES,
        }
    }

    /// Under which address a node is reached: by the client, and an origin by the subject. The range
    /// is the one for tests of network devices (RFC 2544).
    #[must_use]
    pub fn address(self, node: Node) -> &'static str {
        match (self, node) {
            (Self::Loopback, _) => "127.0.0.1",
            (_, Node::Client) => "198.18.1.1",
            (_, Node::Subject) => "198.18.1.2",
            (_, Node::Origin) => "198.18.2.2",
        }
    }
}

/// A link with a rate: a token bucket (tc-tbf(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bits per second.
    pub rate_bits_per_s: u64,
    /// Bytes that may go at once.
    pub burst_bytes: u64,
    /// How much may wait.
    pub queue: Queue,
    /// Whose sending is bounded, towards [`Node::peer`].
    pub at: Node,
}

/// How much may wait before a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// For so long at the most.
    Time(u64),
    /// So many bytes.
    Bytes(u64),
}

/// Packets lost at random.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// Share of the packets, 0 to 1.
    pub share: f64,
    /// Where they would have arrived.
    pub at: Node,
}

/// A longer way between a node and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Time added to a round trip, half of it each way.
    pub round_trip_ns: u64,
    /// Up to so much more each way, at random; the order of packets stays.
    pub jitter_ns: u64,
    /// The link towards the client of this node.
    pub at: Node,
}

/// A bound of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    /// Packets per second.
    pub rate_per_s: u64,
    /// Whether those beyond it are dropped where they arrive, or wait where they are sent.
    pub drop: bool,
    /// Whose sending is bounded; with `drop`, where they arrive.
    pub at: Node,
}

/// A bound of processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuQuota {
    /// Processors.
    pub cpus: f64,
    /// The period in which they are counted.
    pub period_ns: u64,
}

/// Programs that only use processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noise {
    /// How many.
    pub processes: u32,
    /// Where they run; empty: anywhere.
    pub cpus: Vec<u32>,
}

/// Receive packet steering of an interface (`Documentation/networking/scaling.rst`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Whose packets.
    pub at: Node,
    /// The processors that they go to.
    pub cpus: Vec<u32>,
}

/// What is made around the programs of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// How they are connected.
    pub network: Network,
    /// A link with a rate.
    pub bandwidth: Option<Bandwidth>,
    /// Packets lost.
    pub loss: Option<Loss>,
    /// A longer way.
    pub delay: Option<Delay>,
    /// A bound of packets.
    pub packets: Option<Packets>,
    /// Bounds of processor time.
    pub cpu_quotas: BTreeMap<Node, CpuQuota>,
    /// The bound of processor time of the subject's child processes together.
    pub workers_quota: Option<CpuQuota>,
    /// Bytes per second that the subject may write to the disk of the run's folder.
    pub disk_bytes_per_s: Option<u64>,
    /// Bytes of memory that the subject may use, with what it has in the page cache.
    pub memory_bytes: Option<u64>,
    /// Processors that each may run on.
    pub pins: BTreeMap<Node, Vec<u32>>,
    /// Programs that only use processors.
    pub noise: Option<Noise>,
    /// Descriptors that each may have open.
    pub descriptors: BTreeMap<Node, u64>,
    /// First and last port of the client's connections.
    pub ports: Option<(u16, u16)>,
    /// Settings of each one's network namespace, by their names below `net`.
    pub sysctls: BTreeMap<Node, BTreeMap<String, String>>,
    /// Steering of packets.
    pub steering: Option<Steering>,
    /// Bytes that each of the client's connections may hold unread.
    pub receive_buffer_bytes: Option<u64>,
    /// New connections per second that are never completed, to the subject's port 8000.
    pub half_open_per_s: Option<u64>,
    /// Connections that the whole machine may track. The one setting here that is not only the run's.
    pub conntrack_max: Option<u64>,
}

impl Scenario {
    /// What it changes beyond its own namespaces and groups, in words.
    #[must_use]
    pub fn global_settings(&self) -> Vec<&'static str> {
        self.conntrack_max.iter().map(|_| "net.netfilter.nf_conntrack_max").collect()
    }
}
