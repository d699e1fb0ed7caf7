//! Kinds of functions, by their names. Thresholds are elsewhere.

use record::observed::FunctionUse;

/// Module name of the kernel's functions.
pub(super) const KERNEL: &str = "[kernel]";

pub(super) fn contains_any(function: &str, parts: &[&str]) -> bool {
    let lower = function.to_ascii_lowercase();
    parts.iter().any(|part| lower.contains(part))
}

pub(super) fn is_allocation(function: &FunctionUse) -> bool {
    const NAMES: &[&str] = &[
        "malloc",
        "calloc",
        "realloc",
        "_int_free",
        "cfree",
        "free_perturb",
        "unlink_chunk",
        "arena_",
        "tcache",
        "mi_free",
        "mi_page",
        "mi_heap",
        "mi_segment",
        "je_",
        "jemalloc",
        "mallocgc",
        "alloc::alloc",
        "__rust_alloc",
        "__rust_dealloc",
        "ngx_palloc",
        "pool_alloc_nocache",
        "sysmalloc",
    ];
    let name = function.function.as_str();
    // Neither an interpreter's own object pool nor the kernel's memory (`__kmalloc`) belongs to the
    // exchangeable allocator.
    let is_pool = name.trim_start_matches('_').starts_with("Py");
    if is_pool || function.module == KERNEL {
        return false;
    }
    name == "free" || name == "__libc_free" || contains_any(name, NAMES)
}

pub(super) fn is_lock(function: &FunctionUse) -> bool {
    const NAMES: &[&str] = &[
        "futex",
        "lll_lock",
        "pthread_mutex",
        "mutex_lock",
        "spin_lock",
        "rwlock",
        "sys_sched_yield",
        "plock_",
        "pl_wait",
        "parking_lot",
        "queued_spin",
        "native_queued",
    ];
    contains_any(&function.function, NAMES)
}

/// Returns true for functions that wait for data to reach a disk.
pub(super) fn is_sync(function: &FunctionUse) -> bool {
    const NAMES: &[&str] = &[
        "fsync",
        "fdatasync",
        "msync",
        "sync_file_range",
        "vfs_fsync_range",
        "do_fsync",
        "generic_write_sync",
        "ext4_sync_file",
        "file_write_and_wait_range",
        "filemap_fdatawrite_wbc",
        "sync_dirty_buffer",
    ];
    NAMES.contains(&function.function.trim_start_matches("__x64_sys_").trim_start_matches('_'))
}

/// Returns true for functions of connect(2) that try one local port after the other (net/ipv4/inet_hashtables.c).
pub(super) fn is_port_search(function: &FunctionUse) -> bool {
    const NAMES: &[&str] =
        &["__inet_hash_connect", "__inet_check_established", "__inet6_check_established", "tcp_twsk_unique"];
    function.module == KERNEL && NAMES.contains(&function.function.as_str())
}
