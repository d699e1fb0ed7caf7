//! Memory of the process: returns freed memory to the kernel.

/// Returns the freed memory of all threads to the kernel (malloc_trim(3)). The allocator keeps it otherwise
/// if anything above it is in use. Takes some milliseconds for each 100 MiB.
pub fn return_free_memory() {
    // SAFETY: malloc_trim has no preconditions, and may be called by any thread at any time.
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}
