//! Rows about network interfaces and their drivers.

use host::tuning::DriverSetting;

use super::{ALL, NAPI, SCALING, advise, harmful};
use crate::kernel::ANY;
use crate::setting::Certainty::{Documented, Judgement, Measured};
use crate::setting::RuleCondition::{Above, Is};
use crate::setting::Verdict::Recommend;
use crate::setting::WantedValue::Exactly;
use crate::setting::{Probe, SETTING, Scope, Setting};

/// Source of the driver settings.
const ETHTOOL: &str = "networking/ethtool-netlink";
/// Source of the files of an interface.
const SYSFS_NET: &str = "ABI/testing/sysfs-class-net";

/// Row of a setting of each interface.
const NIC: Setting = Setting { scope: Scope::Interface, ..SETTING };

pub(super) const ROWS: &[Setting] = &[
    Setting {
        name: "nic.rx_ring",
        unit: "packets",
        effect: "receive ring (ethtool -G IF rx N): longer bursts without drops (rx_missed, rx_no_buffer)",
        risk: "delay and cache misses",
        probe: Probe::Ethtool(DriverSetting::RxRing),
        source: ETHTOOL,
        ..NIC
    },
    Setting {
        name: "nic.tx_ring",
        unit: "packets",
        effect: "transmit ring (ethtool -G IF tx N)",
        risk: "bufferbloat without BQL",
        probe: Probe::Ethtool(DriverSetting::TxRing),
        source: ETHTOOL,
        ..NIC
    },
    Setting {
        name: "nic.rx_usecs",
        unit: "µs",
        rules: &[harmful(Above(100), Judgement, "each packet may wait that long: for bulk transfers only")],
        effect: "interrupt delay of receives (ethtool -C IF rx-usecs N): fewer interrupts, more delay",
        risk: "adds up to its value to every latency",
        probe: Probe::Ethtool(DriverSetting::RxUsecs),
        source: ETHTOOL,
        ..NIC
    },
    Setting {
        name: "nic.adaptive_rx",
        effect: "adapts the interrupt delay to the packet rate (ethtool -C IF adaptive-rx on)",
        risk: "latency that changes with the load",
        probe: Probe::Ethtool(DriverSetting::AdaptiveRx),
        source: ETHTOOL,
        ..NIC
    },
    Setting {
        name: "nic.channels",
        unit: "queues",
        effect: "queues with an interrupt each (ethtool -L IF combined N): one for each CPU that handles packets",
        risk: "more interrupts",
        probe: Probe::Ethtool(DriverSetting::CombinedChannels),
        source: SCALING,
        ..NIC
    },
    Setting {
        name: "nic.gro",
        advice: &[advise(ALL, Exactly("1"), Measured)],
        rules: &[harmful(Is("0"), Measured, "every segment passes through the stack alone")],
        effect: "joins received segments (ethtool -K IF gro on)",
        risk: "none for a server; off on some routers",
        verdict: Recommend,
        probe: Probe::Ethtool(DriverSetting::Gro),
        source: "networking/segmentation-offloads",
        ..NIC
    },
    Setting {
        name: "nic.tso",
        advice: &[advise(ALL, Exactly("1"), Documented)],
        rules: &[harmful(Is("0"), Documented, "the CPU cuts every segment")],
        effect: "the NIC cuts segments (ethtool -K IF tso on)",
        risk: "none with a working driver",
        verdict: Recommend,
        probe: Probe::Ethtool(DriverSetting::Tso),
        source: "networking/segmentation-offloads",
        ..NIC
    },
    Setting {
        name: "nic.gso",
        advice: &[advise(ALL, Exactly("1"), Documented)],
        rules: &[harmful(Is("0"), Documented, "every segment passes through the stack alone")],
        effect: "cuts segments behind the stack, where the NIC does not (ethtool -K IF gso on)",
        risk: "none for a server",
        verdict: Recommend,
        probe: Probe::Ethtool(DriverSetting::Gso),
        source: "networking/segmentation-offloads",
        ..NIC
    },
    Setting {
        name: "nic.tx_checksum",
        advice: &[advise(ALL, Exactly("1"), Documented)],
        rules: &[harmful(Is("0"), Documented, "the CPU reads every byte again, and TSO is off too")],
        effect: "the NIC computes the checksums of sent packets (ethtool -K IF tx on)",
        risk: "none with a working driver",
        verdict: Recommend,
        probe: Probe::Ethtool(DriverSetting::TxChecksum),
        source: "networking/checksum-offloads",
        ..NIC
    },
    Setting {
        name: "nic.lro",
        advice: &[advise(ALL, Exactly("0"), Documented)],
        effect: "the NIC joins segments, without GRO's care for headers (ethtool -K IF lro off)",
        risk: "breaks forwarding and some measurements",
        verdict: Recommend,
        probe: Probe::Ethtool(DriverSetting::Lro),
        source: "networking/segmentation-offloads",
        ..NIC
    },
    Setting {
        name: "nic.mtu",
        unit: "B",
        effect: "jumbo frames (9000): fewer packets for large bodies",
        risk: "every device of the network must have it; set tcp_mtu_probing=1 with it",
        probe: Probe::InterfaceFile("mtu"),
        source: SYSFS_NET,
        ..NIC
    },
    Setting {
        name: "nic.tx_queue_len",
        unit: "packets",
        effect: "queue of the default qdisc",
        risk: "bufferbloat",
        probe: Probe::InterfaceFile("tx_queue_len"),
        source: SYSFS_NET,
        ..NIC
    },
    Setting {
        name: "nic.qdisc",
        effect: "queueing discipline of an interface (tc qdisc replace dev IF root fq): paces, and isolates flows",
        risk: "CPU time of one lock on very fast NICs",
        probe: Probe::None,
        source: "man 8 tc",
        ..NIC
    },
    Setting {
        name: "nic.rps_cpus",
        unit: "CPU mask",
        defaults: &[(ANY, "0")],
        effect: "CPUs that handle the packets of a queue: with one queue and several CPUs; not needed with a queue for \
                 each CPU",
        risk: "inter-processor interrupts",
        probe: Probe::InterfaceFile("queues/rx-0/rps_cpus"),
        source: SCALING,
        ..NIC
    },
    Setting {
        name: "nic.rps_flow_cnt",
        unit: "flows",
        defaults: &[(ANY, "0")],
        effect: "flow table of a queue, for RFS: rps_sock_flow_entries divided by the queues",
        risk: "inter-processor interrupts",
        probe: Probe::InterfaceFile("queues/rx-0/rps_flow_cnt"),
        source: SCALING,
        ..NIC
    },
    Setting {
        name: "nic.xps_cpus",
        unit: "CPU mask",
        effect: "CPUs that send through a queue: less contention for its lock",
        risk: "an unequal spread",
        probe: Probe::InterfaceFile("queues/tx-0/xps_cpus"),
        source: SCALING,
        ..NIC
    },
    Setting {
        name: "nic.threaded_napi",
        defaults: &[(ANY, "0")],
        added: Some(super::v(5, 12)),
        effect: "polls the NIC in kernel threads (napi/IF-N) that can be pinned and scheduled",
        risk: "a context switch for each batch",
        probe: Probe::InterfaceFile("threaded"),
        source: NAPI,
        ..NIC
    },
    Setting {
        name: "nic.napi_defer_hard_irqs",
        unit: "polls",
        defaults: &[(ANY, "0")],
        added: Some(super::v(5, 8)),
        effect: "empty polls before interrupts are enabled again, with gro_flush_timeout; saved 20 % of a CPU at 100 Gbit/s",
        risk: "latency up to gro_flush_timeout",
        probe: Probe::InterfaceFile("napi_defer_hard_irqs"),
        source: NAPI,
        ..NIC
    },
    Setting {
        name: "nic.gro_flush_timeout",
        unit: "ns",
        defaults: &[(ANY, "0")],
        effect: "max time that GRO holds a packet, and that interrupts stay off",
        risk: "latency",
        probe: Probe::InterfaceFile("gro_flush_timeout"),
        source: NAPI,
        ..NIC
    },
    Setting {
        name: "nic.irq_suspend_timeout",
        unit: "ns",
        added: Some(super::v(6, 13)),
        effect: "keeps interrupts off while a busy-polling program has work (netdev-genl)",
        risk: "latency if the program stalls",
        probe: Probe::None,
        source: NAPI,
        ..NIC
    },
    Setting {
        name: "nic.allowances",
        effect: "limits of a cloud's virtual NIC (ethtool -S: bw_in_allowance_exceeded, pps_allowance_exceeded, \
                 conntrack_allowance_exceeded): only a larger machine raises them",
        risk: "cost",
        probe: Probe::None,
        source: "networking/device_drivers/ethernet/amazon/ena",
        ..NIC
    },
];
