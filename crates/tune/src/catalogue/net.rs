//! Rows about queues, steering, the network core, routing and connection tracking.

use super::{ALL, CONNTRACK, IP, NET, SCALING, consider, depends, harmful, v};
use crate::kernel::ANY;
use crate::setting::Assessment::{Conditional, Harmful, Obsolete};
use crate::setting::Certainty::{Documented, Judgement, Measured};
use crate::setting::RuleCondition::{Above, Always, Below, FieldBelowDefault, Is, TurnsOff};
use crate::setting::Scope::{Interface, NetworkNamespace};
use crate::setting::WantedValue::OneOf;
use crate::setting::{Setting, ValueRule, netns, setting};

const STOPS_FORWARDING: &str = "this machine forwards now, and the line turns it off: containers, virtual machines and routes through it lose \
            their network";

pub(super) const ROWS: &[Setting] = &[
    setting("net.core.busy_read", NET)
        .unit("µs")
        .defaults(&[(ANY, "0")])
        .rules(&[harmful(Above(200), Judgement, "burns a CPU for each blocking read")])
        .effect(
            "spins on the device queue before a read blocks; with a low-latency NIC and spare \
            cores",
        )
        .risk("CPU time; no effect on loopback and veth; SO_BUSY_POLL sets it for one socket"),
    setting("net.core.busy_poll", NET)
        .unit("µs")
        .defaults(&[(ANY, "0")])
        .rules(&[harmful(Above(200), Judgement, "burns a CPU for each waiting poll")])
        .effect("spins on the device queue in poll and select; with a low-latency NIC and spare cores")
        .risk("CPU time; no effect on loopback and veth; SO_BUSY_POLL sets it for one socket"),
    setting("net.core.netdev_max_backlog", NET)
        .unit("packets")
        .defaults(&[(ANY, "1000")])
        .rules(&[
            harmful(FieldBelowDefault(0), Documented, "lowers the default: packets are dropped earlier"),
            depends(
                Above(1000),
                "helps only if the second column of /proc/net/softnet_stat grows (RPS, loopback, \
            veth); adds delay",
            ),
        ])
        .effect("packets in the input queue of a CPU, used by RPS, loopback and veth")
        .risk("delay under overload"),
    setting("net.core.netdev_budget", NET)
        .unit("packets")
        .defaults(&[(ANY, "300")])
        .rules(&[depends(Above(300), "helps only if the third column of /proc/net/softnet_stat grows")])
        .effect("max packets of one softirq round")
        .risk("delays other work of the CPU"),
    setting("net.core.netdev_budget_usecs", NET)
        .unit("µs")
        .added(v(4, 12))
        .effect("max time of one softirq round; the default is two ticks")
        .risk("delays other work of the CPU"),
    setting("net.core.dev_weight", NET)
        .unit("packets")
        .defaults(&[(ANY, "64")])
        .effect("max packets of one poll of an input queue")
        .risk("delays other devices"),
    setting("net.core.gro_normal_batch", NET)
        .unit("packets")
        .defaults(&[(ANY, "8")])
        .added(v(5, 4))
        .effect("packets that GRO passes on together")
        .risk("delay"),
    setting("net.core.flow_limit_cpu_bitmap", SCALING)
        .defaults(&[(ANY, "0")])
        .effect("CPUs whose input queue drops the largest flows first when it is half full")
        .risk("drops packets of one large connection"),
    setting("net.core.rps_sock_flow_entries", SCALING)
        .unit("flows")
        .defaults(&[(ANY, "0")])
        .effect(
            "size of the flow table of RFS: packets go to the CPU of their program; 32768 \
            with rps_flow_cnt",
        )
        .risk("inter-processor interrupts"),
    setting("net.core.default_qdisc", NET)
        .defaults(&[(ANY, "pfifo_fast")])
        .advice(&[consider(ALL, OneOf(&["fq", "fq_codel", "pfifo_fast"]))])
        .effect(
            "queueing discipline of new interfaces; fq paces, which helps bbr; loopback and \
            veth have none",
        )
        .risk("the module may be missing; existing interfaces keep theirs"),
    setting("net.core.message_cost", NET)
        .unit("s")
        .defaults(&[(ANY, "5")])
        .verdict(Harmful)
        .rules(&[harmful(
            Is("0"),
            Documented,
            "removes the limit of the kernel's network warnings: a flood of packets becomes a \
            flood of log lines",
        )])
        .effect("rate limit of the kernel's network warnings")
        .risk("log flood"),
    setting("net.core.message_burst", NET)
        .unit("messages")
        .defaults(&[(ANY, "10")])
        .rules(&[harmful(Above(1000), Judgement, "a flood of packets becomes a flood of log lines")])
        .effect("burst of the kernel's network warnings")
        .risk("log flood"),
    setting("net.core.bpf_jit_enable", NET)
        .defaults(&[(ANY, "1")])
        .verdict(Obsolete)
        .rules(&[harmful(Is("0"), Documented, "BPF programs are interpreted")])
        .effect("compiles BPF programs")
        .risk("none at 1"),
    setting("net.ipv4.ip_forward", IP)
        .scope(NetworkNamespace)
        .defaults(&[(ANY, "0")])
        .verdict(Obsolete)
        .rules(&[
            harmful(TurnsOff, Documented, STOPS_FORWARDING),
            depends(Above(0), "for a router; a reverse proxy does not need it"),
        ])
        .effect("forwards packets")
        .risk("a change resets other interface settings to their defaults"),
    netns("net.ipv4.conf.all.forwarding", IP)
        .scope(Interface)
        .defaults(&[(ANY, "0")])
        .verdict(Obsolete)
        .rules(&[harmful(TurnsOff, Documented, STOPS_FORWARDING)])
        .effect("forwards packets; that of all is net.ipv4.ip_forward")
        .risk("a change of all resets other interface settings to their defaults"),
    netns("net.ipv6.conf.all.forwarding", IP)
        .scope(Interface)
        .defaults(&[(ANY, "0")])
        .verdict(Obsolete)
        .rules(&[harmful(TurnsOff, Documented, STOPS_FORWARDING)])
        .effect("forwards IPv6 packets")
        .risk("the machine no longer takes its address and its route from router advertisements"),
    netns("net.ipv4.conf.all.rp_filter", IP)
        .scope(Interface)
        .defaults(&[(ANY, "0")])
        .rules(&[ValueRule {
            when: Is("1"),
            verdict: Conditional,
            certainty: Documented,
            reason: "drops packets of asymmetric routes and of load generators with several addresses \
            (IPReversePathFilter); 2 is loose",
        }])
        .effect("drops packets whose source is not reachable by their interface")
        .risk("drops asymmetric traffic"),
    netns("net.ipv4.conf.default.rp_filter", IP)
        .scope(Interface)
        .defaults(&[(ANY, "0")])
        .rules(&[ValueRule {
            when: Is("1"),
            verdict: Conditional,
            certainty: Documented,
            reason: "drops packets of asymmetric routes and of load generators with several addresses \
            (IPReversePathFilter); 2 is loose",
        }])
        .effect("rp_filter of interfaces that are created later")
        .risk("drops asymmetric traffic"),
    netns("net.ipv4.ip_early_demux", IP)
        .defaults(&[(ANY, "1")])
        .rules(&[depends(Is("0"), "saves a lookup on routers only")])
        .effect("finds the socket of a packet before its route")
        .risk("0 costs CPU time on servers"),
    netns("net.ipv4.tcp_early_demux", IP)
        .defaults(&[(ANY, "1")])
        .rules(&[depends(Is("0"), "saves a lookup on routers only")])
        .effect("finds the socket of a TCP packet before its route")
        .risk("0 costs CPU time on servers"),
    netns("net.ipv4.ip_no_pmtu_disc", IP)
        .defaults(&[(ANY, "0")])
        .rules(&[harmful(Is("1"), Documented, "turns off path MTU discovery: fragments, or small segments")])
        .effect("path MTU discovery")
        .risk("none at 0"),
    setting("net.ipv4.neigh.default.gc_thresh3", IP)
        .scope(crate::setting::Scope::Global)
        .unit("entries")
        .defaults(&[(ANY, "1024")])
        .rules(&[harmful(FieldBelowDefault(0), Documented, "lowers the default")])
        .effect("max number of neighbours; with more than a thousand hosts in the local network")
        .risk("memory"),
    setting("net.ipv4.neigh.default.gc_thresh2", IP)
        .unit("entries")
        .defaults(&[(ANY, "512")])
        .effect("number of neighbours from which entries older than 5 s are removed")
        .risk("memory"),
    setting("net.ipv4.neigh.default.gc_thresh1", IP)
        .unit("entries")
        .defaults(&[(ANY, "128")])
        .effect("number of neighbours below which none is removed")
        .risk("memory"),
    setting("net.netfilter.nf_conntrack_max", CONNTRACK)
        .unit("connections")
        .rules(&[
            harmful(
                FieldBelowDefault(0),
                Documented,
                "lowers the max: new connections are dropped when it is reached",
            ),
            ValueRule {
                when: Always,
                verdict: Conditional,
                certainty: Measured,
                reason: "only if a stateful firewall is on the path (lsmod, nft list ruleset); a notrack \
            rule for the service's ports is better",
            },
        ])
        .effect("max number of tracked connections; beyond it new ones are dropped")
        .risk("about 320 B each"),
    setting("net.netfilter.nf_conntrack_buckets", CONNTRACK)
        .unit("buckets")
        .rules(&[harmful(FieldBelowDefault(0), Documented, "lowers the number of buckets: longer chains")])
        .effect("hash table of connection tracking; only the first network namespace may set it")
        .risk("8 B each"),
    setting("net.netfilter.nf_conntrack_tcp_timeout_time_wait", CONNTRACK)
        .scope(NetworkNamespace)
        .unit("s")
        .defaults(&[(ANY, "120")])
        .rules(&[depends(
            Below(120),
            "frees entries of closed connections earlier: with many short connections",
        )])
        .effect("time that a closed connection stays tracked")
        .risk("late packets are invalid for the firewall"),
    setting("net.netfilter.nf_conntrack_tcp_timeout_established", CONNTRACK)
        .scope(NetworkNamespace)
        .unit("s")
        .defaults(&[(ANY, "432000")])
        .rules(&[depends(
            Below(432_000),
            "frees entries of dead peers; must exceed the idle timeout of the proxy",
        )])
        .effect("time that an idle connection stays tracked")
        .risk("idle connections break if it is shorter than their idle timeout"),
    setting("net.netfilter.nf_conntrack_tcp_timeout_fin_wait", CONNTRACK)
        .scope(NetworkNamespace)
        .unit("s")
        .defaults(&[(ANY, "120")])
        .effect("time that a closing connection stays tracked")
        .risk("late packets are invalid for the firewall"),
    setting("net.netfilter.nf_conntrack_tcp_timeout_close_wait", CONNTRACK)
        .scope(NetworkNamespace)
        .unit("s")
        .defaults(&[(ANY, "60")])
        .effect("time that a half-closed connection stays tracked")
        .risk("late packets are invalid for the firewall"),
    setting("net.netfilter.nf_conntrack_tcp_loose", CONNTRACK)
        .scope(NetworkNamespace)
        .defaults(&[(ANY, "1")])
        .effect("tracks connections that began before the firewall")
        .risk("0 breaks connections when the module is loaded"),
    setting("module.nf_conntrack", CONNTRACK)
        .probe(crate::setting::Probe::Module("nf_conntrack"))
        .effect("connection tracking; its sysctls exist only while it is loaded (modules-load.d)")
        .risk(
            "costs CPU time for each packet; loading it only for its sysctls slows the \
            machine down",
        ),
    setting("module.netfilter", CONNTRACK)
        .probe(crate::setting::Probe::Module("nf_tables"))
        .effect(
            "modprobe -r of netfilter modules removes hooks from the packet path; check lsmod \
            and nft list ruleset first",
        )
        .risk("removes the firewall"),
];
