//! Rows about network interfaces and their drivers.

use host::tuning::DriverSetting;

use super::{ALL, NAPI, SCALING, advise, harmful};
use crate::kernel::ANY;
use crate::setting::Assessment::Recommend;
use crate::setting::Certainty::{Documented, Judgement, Measured};
use crate::setting::RuleCondition::{Above, Is};
use crate::setting::WantedValue::Exactly;
use crate::setting::{Probe, Scope, Setting, setting};

/// Source of the driver settings.
const ETHTOOL: &str = "networking/ethtool-netlink";
/// Source of the files of an interface.
const SYSFS_NET: &str = "ABI/testing/sysfs-class-net";

/// Returns the row of a setting of each interface.
const fn nic(name: &'static str, source: &'static str) -> Setting {
    setting(name, source).scope(Scope::Interface)
}

pub(super) const ROWS: &[Setting] = &[
    nic("nic.rx_ring", ETHTOOL)
        .unit("packets")
        .probe(Probe::Ethtool(DriverSetting::RxRing))
        .effect(
            "receive ring (ethtool -G IF rx N): longer bursts without drops (rx_missed, \
            rx_no_buffer)",
        )
        .risk("delay and cache misses"),
    nic("nic.tx_ring", ETHTOOL)
        .unit("packets")
        .probe(Probe::Ethtool(DriverSetting::TxRing))
        .effect("transmit ring (ethtool -G IF tx N)")
        .risk("bufferbloat without BQL"),
    nic("nic.rx_usecs", ETHTOOL)
        .unit("µs")
        .probe(Probe::Ethtool(DriverSetting::RxUsecs))
        .rules(&[harmful(Above(100), Judgement, "each packet may wait that long: for bulk transfers only")])
        .effect("interrupt delay of receives (ethtool -C IF rx-usecs N): fewer interrupts, more delay")
        .risk("adds up to its value to every latency"),
    nic("nic.adaptive_rx", ETHTOOL)
        .probe(Probe::Ethtool(DriverSetting::AdaptiveRx))
        .effect("adapts the interrupt delay to the packet rate (ethtool -C IF adaptive-rx on)")
        .risk("latency that changes with the load"),
    nic("nic.channels", SCALING)
        .unit("queues")
        .probe(Probe::Ethtool(DriverSetting::CombinedChannels))
        .effect(
            "queues with an interrupt each (ethtool -L IF combined N): one for each CPU that \
            handles packets",
        )
        .risk("more interrupts"),
    nic("nic.gro", "networking/segmentation-offloads")
        .probe(Probe::Ethtool(DriverSetting::Gro))
        .verdict(Recommend)
        .advice(&[advise(ALL, Exactly("1"), Measured)])
        .rules(&[harmful(Is("0"), Measured, "every segment passes through the stack alone")])
        .effect("joins received segments (ethtool -K IF gro on)")
        .risk("none for a server; off on some routers"),
    nic("nic.tso", "networking/segmentation-offloads")
        .probe(Probe::Ethtool(DriverSetting::Tso))
        .verdict(Recommend)
        .advice(&[advise(ALL, Exactly("1"), Documented)])
        .rules(&[harmful(Is("0"), Documented, "the CPU cuts every segment")])
        .effect("the NIC cuts segments (ethtool -K IF tso on)")
        .risk("none with a working driver"),
    nic("nic.gso", "networking/segmentation-offloads")
        .probe(Probe::Ethtool(DriverSetting::Gso))
        .verdict(Recommend)
        .advice(&[advise(ALL, Exactly("1"), Documented)])
        .rules(&[harmful(Is("0"), Documented, "every segment passes through the stack alone")])
        .effect("cuts segments behind the stack, where the NIC does not (ethtool -K IF gso on)")
        .risk("none for a server"),
    nic("nic.tx_checksum", "networking/checksum-offloads")
        .probe(Probe::Ethtool(DriverSetting::TxChecksum))
        .verdict(Recommend)
        .advice(&[advise(ALL, Exactly("1"), Documented)])
        .rules(&[harmful(Is("0"), Documented, "the CPU reads every byte again, and TSO is off too")])
        .effect("the NIC computes the checksums of sent packets (ethtool -K IF tx on)")
        .risk("none with a working driver"),
    nic("nic.lro", "networking/segmentation-offloads")
        .probe(Probe::Ethtool(DriverSetting::Lro))
        .verdict(Recommend)
        .advice(&[advise(ALL, Exactly("0"), Documented)])
        .effect("the NIC joins segments, without GRO's care for headers (ethtool -K IF lro off)")
        .risk("breaks forwarding and some measurements"),
    nic("nic.mtu", SYSFS_NET)
        .unit("B")
        .probe(Probe::InterfaceFile("mtu"))
        .effect("jumbo frames (9000): fewer packets for large bodies")
        .risk("every device of the network must have it; set tcp_mtu_probing=1 with it"),
    nic("nic.tx_queue_len", SYSFS_NET)
        .unit("packets")
        .probe(Probe::InterfaceFile("tx_queue_len"))
        .effect("queue of the default qdisc")
        .risk("bufferbloat"),
    nic("nic.qdisc", "man 8 tc")
        .probe(Probe::None)
        .effect(
            "queueing discipline of an interface (tc qdisc replace dev IF root fq): paces, \
            and isolates flows",
        )
        .risk("CPU time of one lock on very fast NICs"),
    nic("nic.rps_cpus", SCALING)
        .unit("CPU mask")
        .defaults(&[(ANY, "0")])
        .probe(Probe::InterfaceFile("queues/rx-0/rps_cpus"))
        .effect(
            "CPUs that handle the packets of a queue: with one queue and several CPUs; not \
            needed with a queue for each CPU",
        )
        .risk("inter-processor interrupts"),
    nic("nic.rps_flow_cnt", SCALING)
        .unit("flows")
        .defaults(&[(ANY, "0")])
        .probe(Probe::InterfaceFile("queues/rx-0/rps_flow_cnt"))
        .effect("flow table of a queue, for RFS: rps_sock_flow_entries divided by the queues")
        .risk("inter-processor interrupts"),
    nic("nic.xps_cpus", SCALING)
        .unit("CPU mask")
        .probe(Probe::InterfaceFile("queues/tx-0/xps_cpus"))
        .effect("CPUs that send through a queue: less contention for its lock")
        .risk("an unequal spread"),
    nic("nic.threaded_napi", NAPI)
        .defaults(&[(ANY, "0")])
        .added(super::v(5, 12))
        .probe(Probe::InterfaceFile("threaded"))
        .effect("polls the NIC in kernel threads (napi/IF-N) that can be pinned and scheduled")
        .risk("a context switch for each batch"),
    nic("nic.napi_defer_hard_irqs", NAPI)
        .unit("polls")
        .defaults(&[(ANY, "0")])
        .added(super::v(5, 8))
        .probe(Probe::InterfaceFile("napi_defer_hard_irqs"))
        .effect(
            "empty polls before interrupts are enabled again, with gro_flush_timeout; saved \
            20 % of a CPU at 100 Gbit/s",
        )
        .risk("latency up to gro_flush_timeout"),
    nic("nic.gro_flush_timeout", NAPI)
        .unit("ns")
        .defaults(&[(ANY, "0")])
        .probe(Probe::InterfaceFile("gro_flush_timeout"))
        .effect("max time that GRO holds a packet, and that interrupts stay off")
        .risk("latency"),
    nic("nic.irq_suspend_timeout", NAPI)
        .unit("ns")
        .added(super::v(6, 13))
        .probe(Probe::None)
        .effect("keeps interrupts off while a busy-polling program has work (netdev-genl)")
        .risk("latency if the program stalls"),
    nic("nic.allowances", "networking/device_drivers/ethernet/amazon/ena")
        .probe(Probe::None)
        .effect(
            "limits of a cloud's virtual NIC (ethtool -S: bw_in_allowance_exceeded, \
            pps_allowance_exceeded, conntrack_allowance_exceeded): only a larger machine \
            raises them",
        )
        .risk("cost"),
];
