//! Rows about memory, files and the kernel of the complete machine.

use super::{ALL, FS, KERNEL, VM, advise, consider, depends, from_gib, harmful, no_effect, v};
use crate::kernel::ANY;
use crate::setting::Assessment::{Harmful, Obsolete, Recommend};
use crate::setting::Certainty::{Documented, Judgement};
use crate::setting::RuleCondition::{Above, AboveOther, Always, Below, FieldBelowDefault, Is};
use crate::setting::WantedValue::{AtLeast, AtMost, OneOf};
use crate::setting::{Probe, Scope, Setting, setting};

pub(super) const ROWS: &[Setting] = &[
    setting("fs.file-max", FS)
        .unit("files")
        .verdict(Harmful)
        .rules(&[harmful(
            FieldBelowDefault(0),
            Documented,
            "lowers the max number of open files of this machine",
        )])
        .effect("max number of open files of the machine; sized at boot, and unlimited with systemd")
        .risk("memory"),
    setting("fs.nr_open", FS)
        .unit("files")
        .defaults(&[(ANY, "1048576")])
        .rules(&[harmful(FieldBelowDefault(0), Documented, "lowers the max that nofile may have")])
        .effect("max for the limit of open files of a process")
        .risk("memory of descriptor tables"),
    setting("process.nofile", FS)
        .scope(Scope::Process)
        .unit("files")
        .probe(Probe::NofileSoft)
        .verdict(Recommend)
        .advice(&[
            advise(ALL, AtLeast("16384"), Documented),
            from_gib(4, advise(ALL, AtLeast("65536"), Documented)),
            from_gib(16, advise(ALL, AtLeast("262144"), Documented)),
        ])
        .rules(&[harmful(
            AboveOther("fs.nr_open"),
            Documented,
            "above fs.nr_open: the kernel refuses the limit, and pam_limits then refuses the \
            log-in",
        )])
        .effect(
            "open files of a process (ulimit -n, limits.conf, LimitNOFILE=); a proxy needs \
            two for each request in flight, and 64 more",
        )
        .risk("programs that close every possible descriptor start slowly"),
    setting("process.memlock", "man 2 getrlimit")
        .scope(Scope::Process)
        .unit("B")
        .probe(Probe::MemlockSoft)
        .effect("locked memory of a process: io_uring before 5.12 and BPF before 5.11 need it")
        .risk("memory that cannot be swapped"),
    setting("fs.aio-max-nr", FS)
        .unit("requests")
        .defaults(&[(ANY, "65536")])
        .effect("requests of native asynchronous I/O (nginx aio)")
        .risk("memory"),
    setting("fs.epoll.max_user_watches", FS)
        .unit("watches")
        .rules(&[harmful(
            FieldBelowDefault(0),
            Documented,
            "lowers the number of sockets that epoll can watch",
        )])
        .effect("descriptors that a user's epoll instances watch; sized at boot")
        .risk("memory: 160 B each"),
    setting("fs.pipe-user-pages-soft", FS)
        .unit("pages")
        .defaults(&[(ANY, "16384")])
        .effect(
            "pipe memory of a user, beyond which pipes get one page: splice() of a proxy is \
            slow then",
        )
        .risk("memory"),
    setting("vm.swappiness", VM)
        .unit("")
        .defaults(&[(ANY, "60")])
        .advice(&[consider(ALL, AtMost("10"))])
        .effect("preference for swapping memory over dropping file pages; only with swap")
        .risk("low values drop file pages earlier"),
    setting("vm.overcommit_memory", VM)
        .defaults(&[(ANY, "0")])
        .rules(&[depends(
            Is("2"),
            "strict accounting: forks and large reservations of allocators and Go or Java \
            fail early",
        )])
        .effect("1 never refuses a reservation, 2 refuses beyond overcommit_ratio")
        .risk("1: the OOM killer acts later"),
    setting("vm.min_free_kbytes", VM)
        .unit("KiB")
        .rules(&[depends(Above(1_048_576), "more than 1 GiB is never used")])
        .effect(
            "memory that stays free for interrupts: raise it if packets are dropped with page \
            allocation failures",
        )
        .risk("memory; too high causes reclaim all the time"),
    setting("vm.zone_reclaim_mode", VM)
        .defaults(&[(ANY, "0")])
        .verdict(Obsolete)
        .rules(&[harmful(
            Above(0),
            Documented,
            "reclaims memory of the near node instead of using another one",
        )])
        .effect("reclaims memory of a NUMA node before another node is used")
        .risk("stalls"),
    setting("vm.nr_hugepages", VM)
        .unit("pages")
        .defaults(&[(ANY, "0")])
        .rules(&[depends(
            Above(0),
            "only for programs that map huge pages (DPDK, databases); the memory is reserved",
        )])
        .effect("reserved huge pages, for DPDK and programs that map them")
        .risk("memory that nothing else can use"),
    setting("vm.dirty_bytes", VM)
        .unit("B")
        .defaults(&[(ANY, "0")])
        .effect("vm.dirty_ratio as a number of bytes; the kernel keeps one of the two")
        .risk("too low: writers wait often"),
    setting("vm.dirty_background_bytes", VM)
        .unit("B")
        .defaults(&[(ANY, "0")])
        .effect("vm.dirty_background_ratio as a number of bytes; the kernel keeps one of the two")
        .risk("too low: more writes"),
    setting("vm.overcommit_ratio", VM)
        .unit("%")
        .defaults(&[(ANY, "50")])
        .effect("memory beside swap that may be reserved with vm.overcommit_memory=2")
        .risk("too low: reservations fail early"),
    setting("vm.overcommit_kbytes", VM)
        .unit("KiB")
        .defaults(&[(ANY, "0")])
        .effect("vm.overcommit_ratio as a number of KiB; the kernel keeps one of the two")
        .risk("too low: reservations fail early"),
    setting("vm.dirty_ratio", VM)
        .unit("%")
        .defaults(&[(ANY, "20")])
        .effect("unwritten file data at which a writer must wait: bursts of log writes")
        .risk("too low: writers wait often"),
    setting("vm.dirty_background_ratio", VM)
        .unit("%")
        .defaults(&[(ANY, "10")])
        .effect("unwritten file data at which the kernel starts to write")
        .risk("too low: more writes"),
    setting("vm.max_map_count", VM)
        .unit("mappings")
        .defaults(&[(ANY, "65530")])
        .effect("mappings of a process: many threads, or an allocator with guard pages")
        .risk("memory"),
    setting("vm.stat_interval", VM)
        .unit("s")
        .defaults(&[(ANY, "1")])
        .effect("interval of the per-CPU statistics; longer disturbs isolated CPUs less often")
        .risk("less precise statistics"),
    setting("vm.vfs_cache_pressure", VM)
        .unit("%")
        .defaults(&[(ANY, "100")])
        .rules(&[harmful(Is("0"), Documented, "directory entries are never reclaimed: out of memory")])
        .effect("preference for reclaiming directory entries")
        .risk("memory"),
    setting("vm.compaction_proactiveness", VM)
        .unit("%")
        .defaults(&[(ANY, "20")])
        .added(v(5, 9))
        .effect("background compaction of memory; 0 avoids its CPU time")
        .risk("0: huge pages are rarer"),
    setting("kernel.sysrq", KERNEL)
        .verdict(Obsolete)
        .rules(&[no_effect(Always, Documented, "keys of the console: nothing to do with a server's speed")])
        .effect("emergency keys of the console")
        .risk("physical access"),
    setting("kernel.core_uses_pid", KERNEL)
        .defaults(&[(ANY, "0")])
        .verdict(Obsolete)
        .rules(&[no_effect(Always, Documented, "name of core files: nothing to do with a server's speed")])
        .effect("adds the PID to the name of core files")
        .risk("none"),
    setting("kernel.msgmnb", KERNEL)
        .unit("B")
        .defaults(&[(ANY, "16384")])
        .verdict(Obsolete)
        .rules(&[no_effect(Always, Documented, "System V message queues: no HTTP server uses them")])
        .effect("size of a System V message queue")
        .risk("none"),
    setting("kernel.msgmax", KERNEL)
        .unit("B")
        .defaults(&[(ANY, "8192")])
        .verdict(Obsolete)
        .rules(&[no_effect(Always, Documented, "System V message queues: no HTTP server uses them")])
        .effect("size of a System V message")
        .risk("none"),
    setting("kernel.shmmax", KERNEL)
        .unit("B")
        .defaults(&[(ANY, "33554432"), (v(3, 16), "18446744073692774399")])
        .verdict(Obsolete)
        .rules(&[no_effect(
            Always,
            Documented,
            "System V shared memory, without a limit since 3.16: no HTTP server needs it, and \
            a smaller value lowers the default",
        )])
        .effect("size of a System V shared memory segment")
        .risk("none"),
    setting("kernel.shmall", KERNEL)
        .unit("pages")
        .defaults(&[(ANY, "2097152"), (v(3, 16), "18446744073692774399")])
        .verdict(Obsolete)
        .rules(&[no_effect(
            Always,
            Documented,
            "System V shared memory, without a limit since 3.16: no HTTP server needs it, and \
            a smaller value lowers the default",
        )])
        .effect("System V shared memory of the machine")
        .risk("none"),
    setting("kernel.numa_balancing", KERNEL)
        .effect("moves memory to the node that uses it; 0 if processes are pinned to nodes")
        .risk("0: remote memory if they are not pinned"),
    setting("kernel.kptr_restrict", KERNEL)
        .rules(&[depends(Is("0"), "kernel symbols for unprivileged profilers; root needs no change")])
        .effect("hides kernel addresses")
        .risk("0 helps exploits"),
    setting("kernel.perf_event_paranoid", KERNEL)
        .defaults(&[(ANY, "1"), (v(4, 6), "2")])
        .rules(&[depends(
            Below(2),
            "unprivileged users may profile the kernel; CAP_PERFMON allows one program",
        )])
        .effect("profiling by unprivileged users")
        .risk("-1 helps exploits"),
    setting("kernel.nmi_watchdog", KERNEL)
        .effect("detects hard lock-ups; uses one hardware counter and its interrupts")
        .risk("0: no detection"),
    setting("kernel.timer_migration", KERNEL)
        .defaults(&[(ANY, "1")])
        .effect("moves timers from idle CPUs; 0 keeps them with their program")
        .risk("power"),
    setting("kernel.hung_task_timeout_secs", KERNEL)
        .unit("s")
        .defaults(&[(ANY, "120")])
        .effect("time after which a blocked task is reported")
        .risk("longer: later reports"),
    setting("kernel.sched_autogroup_enabled", "man 7 sched")
        .effect("groups tasks by session: for desktops; services of systemd have their own groups")
        .risk("none"),
    setting("kernel.pid_max", KERNEL)
        .unit("processes")
        .rules(&[harmful(Below(32_768), Documented, "lowers the number of processes and threads")])
        .effect("max PID: processes and threads together")
        .risk("none"),
    setting("kernel.threads-max", KERNEL)
        .unit("threads")
        .rules(&[depends(Always, "only servers with a thread for each connection come near it")])
        .effect("max number of threads; sized at boot")
        .risk("memory"),
    setting("kernel.io_uring_disabled", KERNEL)
        .defaults(&[(ANY, "0")])
        .added(v(6, 6))
        .rules(&[depends(Above(0), "servers that use io_uring fall back to epoll, or fail")])
        .effect("1 and 2 forbid io_uring")
        .risk("0: a larger attack surface"),
    setting("kernel.task_delayacct", KERNEL)
        .defaults(&[(ANY, "0")])
        .added(v(5, 14))
        .effect("counts the time that tasks wait for CPU, memory and disk")
        .risk("a little CPU time"),
    setting("kernel.randomize_va_space", KERNEL)
        .defaults(&[(ANY, "2")])
        .rules(&[harmful(
            Below(2),
            Documented,
            "weakens the protection against exploits, and makes no server faster",
        )])
        .effect("random addresses of processes")
        .risk("security"),
    setting("thp.enabled", "admin-guide/mm/transhuge")
        .probe(Probe::File("/sys/kernel/mm/transparent_hugepage/enabled"))
        .verdict(Recommend)
        .advice(&[advise(ALL, OneOf(&["madvise", "never"]), Judgement)])
        .rules(&[depends(
            Is("always"),
            "may help large heaps, and may stall while memory is compacted: measure it",
        )])
        .effect("transparent huge pages; madvise leaves the choice to the allocator")
        .risk("always: latency and memory; never: TLB misses of large heaps"),
    setting("thp.defrag", "admin-guide/mm/transhuge")
        .probe(Probe::File("/sys/kernel/mm/transparent_hugepage/defrag"))
        .verdict(Recommend)
        .advice(&[advise(ALL, OneOf(&["madvise", "defer+madvise", "defer", "never"]), Documented)])
        .rules(&[harmful(Is("always"), Documented, "an allocation may wait for compaction of memory")])
        .effect("time at which memory is compacted for huge pages")
        .risk("always: stalls"),
];
