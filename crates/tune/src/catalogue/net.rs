//! Rows about queues, steering, the network core, routing and connection tracking.

use super::{ALL, CONNTRACK, IP, NET, SCALING, consider, depends, harmful, v};
use crate::kernel::ANY;
use crate::setting::Certainty::{Documented, Judgement, Measured};
use crate::setting::RuleCondition::{Above, Always, Below, FieldBelowDefault, Is, TurnsOff};
use crate::setting::Scope::{Interface, NetworkNamespace};
use crate::setting::Verdict::{Conditional, Harmful, Obsolete};
use crate::setting::WantedValue::OneOf;
use crate::setting::{NETNS, SETTING, Setting, ValueRule};

/// Effect of a line that turns forwarding off on a machine that forwards.
const STOPS_FORWARDING: &str = "this machine forwards now, and the line turns it off: containers, virtual machines and routes through it lose \
     their network";

pub(super) const ROWS: &[Setting] = &[
    Setting {
        name: "net.core.busy_read",
        unit: "µs",
        defaults: &[(ANY, "0")],
        rules: &[harmful(Above(200), Judgement, "burns a CPU for each blocking read")],
        effect: "spins on the device queue before a read blocks; with a low-latency NIC and spare cores",
        risk: "CPU time; no effect on loopback and veth; SO_BUSY_POLL sets it for one socket",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.busy_poll",
        unit: "µs",
        defaults: &[(ANY, "0")],
        rules: &[harmful(Above(200), Judgement, "burns a CPU for each waiting poll")],
        effect: "spins on the device queue in poll and select; with a low-latency NIC and spare cores",
        risk: "CPU time; no effect on loopback and veth; SO_BUSY_POLL sets it for one socket",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.netdev_max_backlog",
        unit: "packets",
        defaults: &[(ANY, "1000")],
        rules: &[
            harmful(FieldBelowDefault(0), Documented, "lowers the default: packets are dropped earlier"),
            depends(
                Above(1000),
                "helps only if the second column of /proc/net/softnet_stat grows (RPS, loopback, veth); adds delay",
            ),
        ],
        effect: "packets in the input queue of a CPU, used by RPS, loopback and veth",
        risk: "delay under overload",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.netdev_budget",
        unit: "packets",
        defaults: &[(ANY, "300")],
        rules: &[depends(Above(300), "helps only if the third column of /proc/net/softnet_stat grows")],
        effect: "max packets of one softirq round",
        risk: "delays other work of the CPU",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.netdev_budget_usecs",
        unit: "µs",
        added: Some(v(4, 12)),
        effect: "max time of one softirq round; the default is two ticks",
        risk: "delays other work of the CPU",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.dev_weight",
        unit: "packets",
        defaults: &[(ANY, "64")],
        effect: "max packets of one poll of an input queue",
        risk: "delays other devices",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.gro_normal_batch",
        unit: "packets",
        defaults: &[(ANY, "8")],
        added: Some(v(5, 4)),
        effect: "packets that GRO passes on together",
        risk: "delay",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.flow_limit_cpu_bitmap",
        defaults: &[(ANY, "0")],
        effect: "CPUs whose input queue drops the largest flows first when it is half full",
        risk: "drops packets of one large connection",
        source: SCALING,
        ..SETTING
    },
    Setting {
        name: "net.core.rps_sock_flow_entries",
        unit: "flows",
        defaults: &[(ANY, "0")],
        effect: "size of the flow table of RFS: packets go to the CPU of their program; 32768 with rps_flow_cnt",
        risk: "inter-processor interrupts",
        source: SCALING,
        ..SETTING
    },
    Setting {
        name: "net.core.default_qdisc",
        defaults: &[(ANY, "pfifo_fast")],
        advice: &[consider(ALL, OneOf(&["fq", "fq_codel", "pfifo_fast"]))],
        effect: "queueing discipline of new interfaces; fq paces, which helps bbr; loopback and veth have none",
        risk: "the module may be missing; existing interfaces keep theirs",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.message_cost",
        unit: "s",
        defaults: &[(ANY, "5")],
        rules: &[harmful(
            Is("0"),
            Documented,
            "removes the limit of the kernel's network warnings: a flood of packets becomes a flood of log lines",
        )],
        effect: "rate limit of the kernel's network warnings",
        risk: "log flood",
        verdict: Harmful,
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.message_burst",
        unit: "messages",
        defaults: &[(ANY, "10")],
        rules: &[harmful(Above(1000), Judgement, "a flood of packets becomes a flood of log lines")],
        effect: "burst of the kernel's network warnings",
        risk: "log flood",
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.core.bpf_jit_enable",
        defaults: &[(ANY, "1")],
        rules: &[harmful(Is("0"), Documented, "BPF programs are interpreted")],
        effect: "compiles BPF programs",
        risk: "none at 1",
        verdict: Obsolete,
        source: NET,
        ..SETTING
    },
    Setting {
        name: "net.ipv4.ip_forward",
        scope: NetworkNamespace,
        defaults: &[(ANY, "0")],
        rules: &[
            harmful(TurnsOff, Documented, STOPS_FORWARDING),
            depends(Above(0), "for a router; a reverse proxy does not need it"),
        ],
        effect: "forwards packets",
        risk: "a change resets other interface settings to their defaults",
        verdict: Obsolete,
        source: IP,
        ..SETTING
    },
    Setting {
        name: "net.ipv4.conf.all.forwarding",
        scope: Interface,
        defaults: &[(ANY, "0")],
        rules: &[harmful(TurnsOff, Documented, STOPS_FORWARDING)],
        effect: "forwards packets; that of all is net.ipv4.ip_forward",
        risk: "a change of all resets other interface settings to their defaults",
        verdict: Obsolete,
        source: IP,
        ..NETNS
    },
    Setting {
        name: "net.ipv6.conf.all.forwarding",
        scope: Interface,
        defaults: &[(ANY, "0")],
        rules: &[harmful(TurnsOff, Documented, STOPS_FORWARDING)],
        effect: "forwards IPv6 packets",
        risk: "the machine no longer takes its address and its route from router advertisements",
        verdict: Obsolete,
        source: IP,
        ..NETNS
    },
    Setting {
        name: "net.ipv4.conf.all.rp_filter",
        scope: Interface,
        defaults: &[(ANY, "0")],
        rules: &[ValueRule {
            when: Is("1"),
            verdict: Conditional,
            certainty: Documented,
            reason: "drops packets of asymmetric routes and of load generators with several addresses \
                     (IPReversePathFilter); 2 is loose",
        }],
        effect: "drops packets whose source is not reachable by their interface",
        risk: "drops asymmetric traffic",
        source: IP,
        ..NETNS
    },
    Setting {
        name: "net.ipv4.conf.default.rp_filter",
        scope: Interface,
        defaults: &[(ANY, "0")],
        rules: &[ValueRule {
            when: Is("1"),
            verdict: Conditional,
            certainty: Documented,
            reason: "drops packets of asymmetric routes and of load generators with several addresses \
                     (IPReversePathFilter); 2 is loose",
        }],
        effect: "rp_filter of interfaces that are created later",
        risk: "drops asymmetric traffic",
        source: IP,
        ..NETNS
    },
    Setting {
        name: "net.ipv4.ip_early_demux",
        defaults: &[(ANY, "1")],
        rules: &[depends(Is("0"), "saves a lookup on routers only")],
        effect: "finds the socket of a packet before its route",
        risk: "0 costs CPU time on servers",
        source: IP,
        ..NETNS
    },
    Setting {
        name: "net.ipv4.tcp_early_demux",
        defaults: &[(ANY, "1")],
        rules: &[depends(Is("0"), "saves a lookup on routers only")],
        effect: "finds the socket of a TCP packet before its route",
        risk: "0 costs CPU time on servers",
        source: IP,
        ..NETNS
    },
    Setting {
        name: "net.ipv4.ip_no_pmtu_disc",
        defaults: &[(ANY, "0")],
        rules: &[harmful(Is("1"), Documented, "turns off path MTU discovery: fragments, or small segments")],
        effect: "path MTU discovery",
        risk: "none at 0",
        source: IP,
        ..NETNS
    },
    Setting {
        name: "net.ipv4.neigh.default.gc_thresh3",
        unit: "entries",
        scope: crate::setting::Scope::Global,
        defaults: &[(ANY, "1024")],
        rules: &[harmful(FieldBelowDefault(0), Documented, "lowers the default")],
        effect: "max number of neighbours; with more than a thousand hosts in the local network",
        risk: "memory",
        source: IP,
        ..SETTING
    },
    Setting {
        name: "net.ipv4.neigh.default.gc_thresh2",
        unit: "entries",
        defaults: &[(ANY, "512")],
        effect: "number of neighbours from which entries older than 5 s are removed",
        risk: "memory",
        source: IP,
        ..SETTING
    },
    Setting {
        name: "net.ipv4.neigh.default.gc_thresh1",
        unit: "entries",
        defaults: &[(ANY, "128")],
        effect: "number of neighbours below which none is removed",
        risk: "memory",
        source: IP,
        ..SETTING
    },
    Setting {
        name: "net.netfilter.nf_conntrack_max",
        unit: "connections",
        rules: &[
            harmful(
                FieldBelowDefault(0),
                Documented,
                "lowers the max: new connections are dropped when it is reached",
            ),
            ValueRule {
                when: Always,
                verdict: Conditional,
                certainty: Measured,
                reason: "only if a stateful firewall is on the path (lsmod, nft list ruleset); \
                         a notrack rule for the service's ports is better",
            },
        ],
        effect: "max number of tracked connections; beyond it new ones are dropped",
        risk: "about 320 B each",
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "net.netfilter.nf_conntrack_buckets",
        unit: "buckets",
        rules: &[harmful(FieldBelowDefault(0), Documented, "lowers the number of buckets: longer chains")],
        effect: "hash table of connection tracking; only the first network namespace may set it",
        risk: "8 B each",
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
        scope: NetworkNamespace,
        unit: "s",
        defaults: &[(ANY, "120")],
        rules: &[depends(
            Below(120),
            "frees entries of closed connections earlier: with many short connections",
        )],
        effect: "time that a closed connection stays tracked",
        risk: "late packets are invalid for the firewall",
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "net.netfilter.nf_conntrack_tcp_timeout_established",
        scope: NetworkNamespace,
        unit: "s",
        defaults: &[(ANY, "432000")],
        rules: &[depends(
            Below(432_000),
            "frees entries of dead peers; must exceed the idle timeout of the proxy",
        )],
        effect: "time that an idle connection stays tracked",
        risk: "idle connections break if it is shorter than their idle timeout",
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "net.netfilter.nf_conntrack_tcp_timeout_fin_wait",
        scope: NetworkNamespace,
        unit: "s",
        defaults: &[(ANY, "120")],
        effect: "time that a closing connection stays tracked",
        risk: "late packets are invalid for the firewall",
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
        scope: NetworkNamespace,
        unit: "s",
        defaults: &[(ANY, "60")],
        effect: "time that a half-closed connection stays tracked",
        risk: "late packets are invalid for the firewall",
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "net.netfilter.nf_conntrack_tcp_loose",
        scope: NetworkNamespace,
        defaults: &[(ANY, "1")],
        effect: "tracks connections that began before the firewall",
        risk: "0 breaks connections when the module is loaded",
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "module.nf_conntrack",
        effect: "connection tracking; its sysctls exist only while it is loaded (modules-load.d)",
        risk: "costs CPU time for each packet; loading it only for its sysctls slows the machine down",
        probe: crate::setting::Probe::Module("nf_conntrack"),
        source: CONNTRACK,
        ..SETTING
    },
    Setting {
        name: "module.netfilter",
        effect: "modprobe -r of netfilter modules removes hooks from the packet path; check lsmod and nft list \
                 ruleset first",
        risk: "removes the firewall",
        probe: crate::setting::Probe::Module("nf_tables"),
        source: CONNTRACK,
        ..SETTING
    },
];
