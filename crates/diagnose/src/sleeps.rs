//! Table of what a thread waits for, by the kernel function in which it sleeps (proc_pid_wchan(5)). The
//! names are those of Linux 4.14 to 6.18: a function keeps a word of its name where it was renamed
//! (`pipe_write`, `anon_pipe_write`).

use record::observed::RoleUse;

/// Event that ends a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    Disk,
    FullPipe,
    EmptyPipe,
    FileLock,
    /// A lock of the kernel: of an inode, which a thread that waits for a disk may hold, or of the memory map.
    KernelLock,
    Futex,
    Timer,
    Socket,
    ChildProcess,
    /// Events, new connections or signals: what a server without work waits for.
    Work,
    Other,
}

impl WaitsFor {
    /// Returns the words that end "a thread waits for".
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Disk => "a disk",
            Self::FullPipe => "the reader of a full pipe",
            Self::EmptyPipe => "the writer of an empty pipe",
            Self::FileLock => "a file lock",
            Self::KernelLock => "a lock in the kernel",
            Self::Futex => "a lock or a condition",
            Self::Timer => "a timer",
            Self::Socket => "the other end of a socket",
            Self::ChildProcess => "a child process",
            Self::Work => "events",
            Self::Other => "something else",
        }
    }
}

/// Words of kernel functions, the more specific ones first.
const FUNCTIONS: &[(WaitsFor, &[&str])] = &[
    (WaitsFor::FullPipe, &["pipe_write"]),
    (WaitsFor::EmptyPipe, &["pipe_read"]),
    (WaitsFor::FileLock, &["locks_lock", "lock_inode_wait", "lock_file_wait", "fcntl_setlk"]),
    (WaitsFor::KernelLock, &["rwsem_down", "down_write", "down_read", "mutex_lock_slowpath", "__mutex_lock"]),
    (WaitsFor::Futex, &["futex"]),
    (WaitsFor::Timer, &["nanosleep"]),
    (
        WaitsFor::Disk,
        &[
            "jbd2",
            "xlog_",
            "xfs_",
            "btrfs_",
            "f2fs_",
            // The kernel leaves the functions of its locks out: a thread behind the lock of an inode is in the function
            // of the file system that takes it (`ext4_buffered_write_iter`).
            "ext4_",
            "generic_file_write",
            "inode_wait_for_writeback",
            "fsync_buffers_list",
            "submit_bio",
            "folio_wait",
            "wait_on_page",
            "io_schedule",
            "sync_dirty_buffer",
            "wait_on_buffer",
            "blk_",
            "rq_qos_wait",
            "balance_dirty",
        ],
    ),
    (
        WaitsFor::Work,
        &[
            "poll",
            "do_select",
            "csk_accept",
            "wait_for_more_packets",
            "sigtimedwait",
            "sigsuspend",
            "sys_pause",
            "io_cqring",
            "do_wait_intr_irq",
            "eventfd_read",
        ],
    ),
    (
        WaitsFor::Socket,
        &["wait_woken", "wait_data", "data_wait", "stream_wait", "stream_read", "wait_for_connect"],
    ),
    (WaitsFor::ChildProcess, &["do_wait", "kernel_wait"]),
];

/// Returns what a thread in a kernel function waits for.
pub(crate) fn waits_for(function: &str) -> WaitsFor {
    let row = FUNCTIONS.iter().find(|(_, words)| words.iter().any(|word| function.contains(word)));
    row.map_or(WaitsFor::Other, |(event, _)| *event)
}

/// Returns the number of a role's working threads that wait for the reader of a full pipe. `None` if their functions
/// are not readable.
pub(crate) fn threads_at_full_pipe(role: &RoleUse) -> Option<f64> {
    threads_waiting_for(role, &[WaitsFor::FullPipe])
}

/// Returns the number of a role's working threads that neither a write nor a lock blocks: one that writes may hold
/// the lock. Threads without work do not count.
pub(crate) fn threads_blocked_elsewhere(role: &RoleUse) -> Option<f64> {
    threads_waiting_for(role, &[WaitsFor::Timer, WaitsFor::FileLock, WaitsFor::Other])
}

/// Returns the number of a role's working threads that wait for a disk, and of those behind the lock of one that does.
/// Threads behind a lock of the kernel alone do not count: it may be that of the memory map.
pub(crate) fn threads_at_disk(role: &RoleUse) -> Option<f64> {
    let at_disk = threads_waiting_for(role, &[WaitsFor::Disk])?;
    let behind_lock = threads_waiting_for(role, &[WaitsFor::KernelLock]).unwrap_or(0.0);
    Some(if at_disk > 0.0 { at_disk + behind_lock } else { 0.0 })
}

fn threads_waiting_for(role: &RoleUse, events: &[WaitsFor]) -> Option<f64> {
    let sleeps = role.threads_asleep.as_ref()?.iter();
    Some(
        sleeps
            .filter(|(function, _)| events.contains(&waits_for(function)))
            .map(|(_, threads)| threads)
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_several_kernels_are_known() {
        for (function, event) in [
            ("anon_pipe_write", WaitsFor::FullPipe),
            ("pipe_write", WaitsFor::FullPipe),
            ("pipe_read", WaitsFor::EmptyPipe),
            ("locks_lock_inode_wait", WaitsFor::FileLock),
            ("futex_wait_queue_me", WaitsFor::Futex),
            ("futex_do_wait", WaitsFor::Futex),
            ("hrtimer_nanosleep", WaitsFor::Timer),
            ("do_nanosleep", WaitsFor::Timer),
            ("jbd2_log_wait_commit", WaitsFor::Disk),
            ("ext4_buffered_write_iter", WaitsFor::Disk),
            ("ext4_da_get_block_prep", WaitsFor::Disk),
            ("inode_wait_for_writeback", WaitsFor::Disk),
            ("folio_wait_bit", WaitsFor::Disk),
            ("rwsem_down_write_slowpath", WaitsFor::KernelLock),
            ("call_rwsem_down_write_failed", WaitsFor::KernelLock),
            ("down_write", WaitsFor::KernelLock),
            ("__mutex_lock.constprop.0", WaitsFor::KernelLock),
            ("submit_bio_wait", WaitsFor::Disk),
            ("__sync_dirty_buffer", WaitsFor::Disk),
            ("ep_poll", WaitsFor::Work),
            ("do_epoll_wait", WaitsFor::Work),
            ("poll_schedule_timeout", WaitsFor::Work),
            ("inet_csk_accept", WaitsFor::Work),
            ("__skb_wait_for_more_packets", WaitsFor::Work),
            ("do_sigtimedwait", WaitsFor::Work),
            ("__do_sys_pause", WaitsFor::Work),
            ("wait_woken", WaitsFor::Socket),
            ("sk_wait_data", WaitsFor::Socket),
            ("unix_stream_read_generic", WaitsFor::Socket),
            ("sk_stream_wait_memory", WaitsFor::Socket),
            ("do_wait", WaitsFor::ChildProcess),
            ("kthread_worker", WaitsFor::Other),
        ] {
            assert_eq!(waits_for(function), event, "{function}");
        }
    }

    #[test]
    fn threads_behind_the_lock_of_an_inode_wait_for_the_disk() {
        let at_disk = |sleeps: &[(&str, f64)]| {
            let sleeps = sleeps.iter().map(|(name, threads)| ((*name).to_owned(), *threads));
            let role = RoleUse { threads_asleep: Some(sleeps.collect()), ..RoleUse::default() };
            threads_at_disk(&role)
        };
        // Four threads that write one file with O_SYNC: PID/task/wchan of ext4 on Linux 6.18.
        let synced = [
            ("folio_wait_bit", 1.69),
            ("inode_wait_for_writeback", 0.68),
            ("submit_bio_wait", 0.34),
            ("ext4_buffered_write_iter", 0.27),
            ("ext4_da_get_block_prep", 0.18),
            ("futex_do_wait", 0.02),
        ];
        assert!((at_disk(&synced).unwrap() - 3.16).abs() < 0.01);
        let locked = [("rwsem_down_write_slowpath", 3.0), ("folio_wait_bit", 1.0)];
        assert_eq!(at_disk(&locked), Some(4.0));
        // The lock of the memory map, and locks of the program.
        assert_eq!(at_disk(&[("rwsem_down_read_slowpath", 3.0)]), Some(0.0));
        assert_eq!(at_disk(&[("futex_do_wait", 3.0)]), Some(0.0));
    }

    #[test]
    fn threads_are_counted_by_what_ends_their_sleep() {
        let sleeps = [
            ("anon_pipe_write", 16.0),
            ("hrtimer_nanosleep", 1.0),
            ("locks_lock_inode_wait", 2.0),
            ("ep_poll", 4.0),
        ];
        let threads_asleep = sleeps.map(|(name, threads)| (name.to_owned(), threads)).into();
        let role = RoleUse { threads_asleep: Some(threads_asleep), ..RoleUse::default() };
        assert_eq!((threads_at_full_pipe(&role), threads_blocked_elsewhere(&role)), (Some(16.0), Some(3.0)));
        assert_eq!(threads_at_full_pipe(&RoleUse::default()), None);
    }
}
