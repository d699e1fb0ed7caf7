//! Rows about boot parameters. They are reported, never set.

use super::{BOOT, v};
use crate::setting::{Probe, Scope, Setting, setting};

const fn parameter(name: &'static str) -> Setting {
    setting(name, BOOT).scope(Scope::Boot)
}

pub(super) const ROWS: &[Setting] = &[
    parameter("boot.skew_tick")
        .probe(Probe::BootParameter("skew_tick"))
        .effect("1 spreads the ticks of the CPUs: less contention and jitter with many cores")
        .risk("power; needs a boot"),
    parameter("boot.mitigations")
        .probe(Probe::BootParameter("mitigations"))
        .effect(
            "off removes the protection against Spectre and the like: faster system calls; \
            record it with every result",
        )
        .risk("security"),
    parameter("boot.isolcpus")
        .probe(Probe::BootParameter("isolcpus"))
        .effect("keeps CPUs free of other tasks, for pinned threads")
        .risk("CPUs that nothing else uses"),
    parameter("boot.nohz_full")
        .probe(Probe::BootParameter("nohz_full"))
        .effect("stops the tick on CPUs with one task")
        .risk("slower system calls"),
    parameter("boot.rcu_nocbs")
        .probe(Probe::BootParameter("rcu_nocbs"))
        .effect("moves RCU callbacks from CPUs: less jitter of pinned threads")
        .risk("CPU time elsewhere"),
    parameter("boot.intel_idle.max_cstate")
        .probe(Probe::BootParameter("intel_idle.max_cstate"))
        .effect("limits the C-states: shorter wake-ups")
        .risk("power, less turbo"),
    parameter("boot.processor.max_cstate")
        .probe(Probe::BootParameter("processor.max_cstate"))
        .effect("limits the C-states: shorter wake-ups")
        .risk("power, less turbo"),
    parameter("boot.idle")
        .probe(Probe::BootParameter("idle"))
        .effect("poll: idle CPUs spin")
        .risk("full power all the time"),
    parameter("boot.preempt")
        .added(v(5, 12))
        .probe(Probe::BootParameter("preempt"))
        .effect(
            "preemption model: none or lazy for throughput, full for latency; record it with \
            every result",
        )
        .risk("throughput or latency"),
    parameter("boot.transparent_hugepage")
        .probe(Probe::BootParameter("transparent_hugepage"))
        .effect("huge pages from the boot on, as thp.enabled")
        .risk("as thp.enabled"),
    parameter("boot.nosmt")
        .probe(Probe::BootParameter("nosmt"))
        .effect("no hyper-threads, as cpu.smt")
        .risk("fewer threads"),
    parameter("boot.clocksource")
        .probe(Probe::BootParameter("clocksource"))
        .effect("source of the time, as clocksource")
        .risk("a wrong clock"),
    parameter("boot.tsc")
        .probe(Probe::BootParameter("tsc"))
        .effect("reliable: the kernel trusts the TSC")
        .risk("a clock that jumps, if it is not"),
    parameter("boot.nmi_watchdog")
        .probe(Probe::BootParameter("nmi_watchdog"))
        .effect("0: no interrupts of the watchdog, as kernel.nmi_watchdog")
        .risk("no detection of lock-ups"),
    parameter("boot.numa_balancing")
        .probe(Probe::BootParameter("numa_balancing"))
        .effect("as kernel.numa_balancing")
        .risk("as kernel.numa_balancing"),
    parameter("boot.audit")
        .probe(Probe::BootParameter("audit"))
        .effect("0: no audit records of system calls")
        .risk("no audit trail"),
];
