//! Rows about CPUs, clocks and control groups.

use super::{ALL, advise, consider, harmful};
use crate::setting::Assessment::Recommend;
use crate::setting::Certainty::{Documented, Measured};
use crate::setting::RuleCondition::Is;
use crate::setting::WantedValue::{Exactly, OneOf};
use crate::setting::{Probe, Scope, Setting, setting};

pub(super) const ROWS: &[Setting] = &[
    setting("cpu.governor", "admin-guide/pm/cpufreq")
        .probe(Probe::File("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
        .verdict(Recommend)
        .advice(&[advise(ALL, Exactly("performance"), Documented)])
        .rules(&[harmful(Is("powersave"), Documented, "with acpi-cpufreq: always the lowest frequency")])
        .effect("frequency of the CPUs: performance avoids slow starts after idle times")
        .risk("power"),
    setting("cpu.min_perf_pct", "admin-guide/pm/intel_pstate")
        .unit("%")
        .probe(Probe::File("/sys/devices/system/cpu/intel_pstate/min_perf_pct"))
        .effect("min performance of intel_pstate; tuned's latency-performance sets 100")
        .risk("power"),
    setting("cpu.energy_perf_bias", "admin-guide/pm/intel_epb")
        .probe(Probe::File("/sys/devices/system/cpu/cpu0/power/energy_perf_bias"))
        .effect("balance of power and performance: 0 is performance")
        .risk("power"),
    setting("cpu.idle_latency", "power/pm_qos_interface")
        .unit("µs")
        .probe(Probe::None)
        .effect(
            "max wake-up latency of idle CPUs (PM QoS, /dev/cpu_dma_latency; tuned: \
            force_latency): shallow C-states",
        )
        .risk("power, and less turbo for other cores"),
    setting("cpu.idle_governor", "admin-guide/pm/cpuidle")
        .probe(Probe::File("/sys/devices/system/cpu/cpuidle/current_governor"))
        .effect("governor of the C-states: menu or teo; haltpoll polls in a virtual machine")
        .risk("power"),
    setting("cpu.smt", "admin-guide/hw-vuln/core-scheduling")
        .probe(Probe::File("/sys/devices/system/cpu/smt/control"))
        .effect(
            "hyper-threads; a client without them measured 200 instead of 8 ms (99 %) with \
            them; record it with every result",
        )
        .risk("off: fewer threads"),
    setting("clocksource", "admin-guide/kernel-parameters (clocksource)")
        .probe(Probe::File("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
        .verdict(Recommend)
        .advice(&[advise(ALL, OneOf(&["tsc", "arch_sys_counter", "kvm-clock"]), Documented)])
        .rules(&[
            harmful(Is("hpet"), Documented, "each clock reading is a slow access to a device"),
            harmful(Is("acpi_pm"), Documented, "each clock reading is a slow access to a device"),
            harmful(Is("xen"), Documented, "each clock reading is a system call"),
        ])
        .effect("source of the time; tsc is read without a system call")
        .risk("tsc only where the kernel trusts it"),
    setting("cgroup.cpu.max", "scheduler/sched-bwc")
        .scope(Scope::Cgroup)
        .probe(Probe::CgroupQuota)
        .verdict(Recommend)
        .advice(&[advise(ALL, Exactly("max"), Measured)])
        .effect(
            "CPU quota: a throttled process stops for the rest of its period; use fewer \
            threads than the quota",
        )
        .risk("max: no protection of other services"),
    setting("cgroup.cpu.max.burst", "scheduler/sched-bwc")
        .scope(Scope::Cgroup)
        .unit("µs")
        .probe(Probe::None)
        .effect("unused quota that a group may save: fewer throttled periods in bursts")
        .risk("other groups wait"),
    setting("irq.balance", "core-api/irq/irq-affinity")
        .probe(Probe::None)
        .advice(&[consider(ALL, Exactly("manual"))])
        .effect(
            "irqbalance spreads interrupts; pinned interrupts (next row) are steadier, but \
            irqbalance must be off",
        )
        .risk("one CPU with interrupts and a worker is full first"),
    setting("irq.smp_affinity", "core-api/irq/irq-affinity")
        .scope(Scope::Interface)
        .probe(Probe::None)
        .effect(
            "CPUs of the NIC's interrupts: apart from the workers on large machines, on them \
            on small ones",
        )
        .risk("all queues on one CPU: that CPU is the limit"),
];
