//! Rows about CPUs, clocks and control groups.

use super::{ALL, advise, consider, harmful};
use crate::setting::Certainty::{Documented, Measured};
use crate::setting::RuleCondition::Is;
use crate::setting::Verdict::Recommend;
use crate::setting::WantedValue::{Exactly, OneOf};
use crate::setting::{Probe, SETTING, Scope, Setting};

pub(super) const ROWS: &[Setting] = &[
    Setting {
        name: "cpu.governor",
        advice: &[advise(ALL, Exactly("performance"), Documented)],
        rules: &[harmful(Is("powersave"), Documented, "with acpi-cpufreq: always the lowest frequency")],
        effect: "frequency of the CPUs: performance avoids slow starts after idle times",
        risk: "power",
        verdict: Recommend,
        probe: Probe::File("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        source: "admin-guide/pm/cpufreq",
        ..SETTING
    },
    Setting {
        name: "cpu.min_perf_pct",
        unit: "%",
        effect: "min performance of intel_pstate; tuned's latency-performance sets 100",
        risk: "power",
        probe: Probe::File("/sys/devices/system/cpu/intel_pstate/min_perf_pct"),
        source: "admin-guide/pm/intel_pstate",
        ..SETTING
    },
    Setting {
        name: "cpu.energy_perf_bias",
        effect: "balance of power and performance: 0 is performance",
        risk: "power",
        probe: Probe::File("/sys/devices/system/cpu/cpu0/power/energy_perf_bias"),
        source: "admin-guide/pm/intel_epb",
        ..SETTING
    },
    Setting {
        name: "cpu.idle_latency",
        unit: "µs",
        effect: "max wake-up latency of idle CPUs (PM QoS, /dev/cpu_dma_latency; tuned: force_latency): shallow C-states",
        risk: "power, and less turbo for other cores",
        probe: Probe::None,
        source: "power/pm_qos_interface",
        ..SETTING
    },
    Setting {
        name: "cpu.idle_governor",
        effect: "governor of the C-states: menu or teo; haltpoll polls in a virtual machine",
        risk: "power",
        probe: Probe::File("/sys/devices/system/cpu/cpuidle/current_governor"),
        source: "admin-guide/pm/cpuidle",
        ..SETTING
    },
    Setting {
        name: "cpu.smt",
        effect: "hyper-threads; a client without them measured 200 instead of 8 ms (99 %) with them; record it with every \
                 result",
        risk: "off: fewer threads",
        probe: Probe::File("/sys/devices/system/cpu/smt/control"),
        source: "admin-guide/hw-vuln/core-scheduling",
        ..SETTING
    },
    Setting {
        name: "clocksource",
        advice: &[advise(ALL, OneOf(&["tsc", "arch_sys_counter", "kvm-clock"]), Documented)],
        rules: &[
            harmful(Is("hpet"), Documented, "each clock reading is a slow access to a device"),
            harmful(Is("acpi_pm"), Documented, "each clock reading is a slow access to a device"),
            harmful(Is("xen"), Documented, "each clock reading is a system call"),
        ],
        effect: "source of the time; tsc is read without a system call",
        risk: "tsc only where the kernel trusts it",
        verdict: Recommend,
        probe: Probe::File("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        source: "admin-guide/kernel-parameters (clocksource)",
        ..SETTING
    },
    Setting {
        name: "cgroup.cpu.max",
        scope: Scope::Cgroup,
        advice: &[advise(ALL, Exactly("max"), Measured)],
        effect: "CPU quota: a throttled process stops for the rest of its period; use fewer threads than the quota",
        risk: "max: no protection of other services",
        verdict: Recommend,
        probe: Probe::CgroupQuota,
        source: "scheduler/sched-bwc",
        ..SETTING
    },
    Setting {
        name: "cgroup.cpu.max.burst",
        scope: Scope::Cgroup,
        unit: "µs",
        effect: "unused quota that a group may save: fewer throttled periods in bursts",
        risk: "other groups wait",
        probe: Probe::None,
        source: "scheduler/sched-bwc",
        ..SETTING
    },
    Setting {
        name: "irq.balance",
        advice: &[consider(ALL, Exactly("manual"))],
        effect: "irqbalance spreads interrupts; pinned interrupts (next row) are steadier, but irqbalance must be off",
        risk: "one CPU with interrupts and a worker is full first",
        probe: Probe::None,
        source: "core-api/irq/irq-affinity",
        ..SETTING
    },
    Setting {
        name: "irq.smp_affinity",
        scope: Scope::Interface,
        effect: "CPUs of the NIC's interrupts: apart from the workers on large machines, on them on small ones",
        risk: "all queues on one CPU: that CPU is the limit",
        probe: Probe::None,
        source: "core-api/irq/irq-affinity",
        ..SETTING
    },
];
