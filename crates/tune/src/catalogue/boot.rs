//! Rows about boot parameters. They are reported, never set.

use super::{BOOT, v};
use crate::setting::{Probe, SETTING, Scope, Setting};

/// Row of a boot parameter.
const PARAMETER: Setting = Setting { scope: Scope::Boot, source: BOOT, ..SETTING };

pub(super) const ROWS: &[Setting] = &[
    Setting {
        name: "boot.skew_tick",
        effect: "1 spreads the ticks of the CPUs: less contention and jitter with many cores",
        risk: "power; needs a boot",
        probe: Probe::BootParameter("skew_tick"),
        ..PARAMETER
    },
    Setting {
        name: "boot.mitigations",
        effect: "off removes the protection against Spectre and the like: faster system calls; record it with every \
                 result",
        risk: "security",
        probe: Probe::BootParameter("mitigations"),
        ..PARAMETER
    },
    Setting {
        name: "boot.isolcpus",
        effect: "keeps CPUs free of other tasks, for pinned threads",
        risk: "CPUs that nothing else uses",
        probe: Probe::BootParameter("isolcpus"),
        ..PARAMETER
    },
    Setting {
        name: "boot.nohz_full",
        effect: "stops the tick on CPUs with one task",
        risk: "slower system calls",
        probe: Probe::BootParameter("nohz_full"),
        ..PARAMETER
    },
    Setting {
        name: "boot.rcu_nocbs",
        effect: "moves RCU callbacks from CPUs: less jitter of pinned threads",
        risk: "CPU time elsewhere",
        probe: Probe::BootParameter("rcu_nocbs"),
        ..PARAMETER
    },
    Setting {
        name: "boot.intel_idle.max_cstate",
        effect: "limits the C-states: shorter wake-ups",
        risk: "power, less turbo",
        probe: Probe::BootParameter("intel_idle.max_cstate"),
        ..PARAMETER
    },
    Setting {
        name: "boot.processor.max_cstate",
        effect: "limits the C-states: shorter wake-ups",
        risk: "power, less turbo",
        probe: Probe::BootParameter("processor.max_cstate"),
        ..PARAMETER
    },
    Setting {
        name: "boot.idle",
        effect: "poll: idle CPUs spin",
        risk: "full power all the time",
        probe: Probe::BootParameter("idle"),
        ..PARAMETER
    },
    Setting {
        name: "boot.preempt",
        added: Some(v(5, 12)),
        effect: "preemption model: none or lazy for throughput, full for latency; record it with every result",
        risk: "throughput or latency",
        probe: Probe::BootParameter("preempt"),
        ..PARAMETER
    },
    Setting {
        name: "boot.transparent_hugepage",
        effect: "huge pages from the boot on, as thp.enabled",
        risk: "as thp.enabled",
        probe: Probe::BootParameter("transparent_hugepage"),
        ..PARAMETER
    },
    Setting {
        name: "boot.nosmt",
        effect: "no hyper-threads, as cpu.smt",
        risk: "fewer threads",
        probe: Probe::BootParameter("nosmt"),
        ..PARAMETER
    },
    Setting {
        name: "boot.clocksource",
        effect: "source of the time, as clocksource",
        risk: "a wrong clock",
        probe: Probe::BootParameter("clocksource"),
        ..PARAMETER
    },
    Setting {
        name: "boot.tsc",
        effect: "reliable: the kernel trusts the TSC",
        risk: "a clock that jumps, if it is not",
        probe: Probe::BootParameter("tsc"),
        ..PARAMETER
    },
    Setting {
        name: "boot.nmi_watchdog",
        effect: "0: no interrupts of the watchdog, as kernel.nmi_watchdog",
        risk: "no detection of lock-ups",
        probe: Probe::BootParameter("nmi_watchdog"),
        ..PARAMETER
    },
    Setting {
        name: "boot.numa_balancing",
        effect: "as kernel.numa_balancing",
        risk: "as kernel.numa_balancing",
        probe: Probe::BootParameter("numa_balancing"),
        ..PARAMETER
    },
    Setting {
        name: "boot.audit",
        effect: "0: no audit records of system calls",
        risk: "no audit trail",
        probe: Probe::BootParameter("audit"),
        ..PARAMETER
    },
];
