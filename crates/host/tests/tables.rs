//! Test of threads with their own descriptor tables, in a separate process: a copy of the table
//! holds open what other tests close.

use std::fs::File;
use std::sync::mpsc;
use std::time::Duration;

use host::process::{fd_tables, max_open_fds};

/// Number of files that the thread opens in its own table.
const FILES: u64 = 100;

#[test]
fn a_thread_with_its_own_fd_table_is_counted() {
    let pid = std::process::id() as i32;
    if !has_kcmp(pid) {
        return test_needs::skip(test_needs::KERNEL, format!("kcmp(2): {}", std::io::Error::last_os_error()));
    }
    assert_eq!(fd_tables(pid), [pid]);
    let before = max_open_fds(pid, &[pid]).unwrap();
    let (ready_tx, ready_rx) = mpsc::channel();
    let (end_tx, end_rx) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: it copies this thread's table, and nothing was given to it from another.
        let failed = unsafe { libc::unshare(libc::CLONE_FILES) } != 0;
        let failed = failed.then(std::io::Error::last_os_error);
        let files: Vec<File> = (0..FILES).map(|_| File::open("/dev/null").unwrap()).collect();
        ready_tx.send(failed).unwrap();
        let _ = end_rx.recv();
        drop(files);
    });
    match ready_rx.recv().unwrap() {
        Some(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            return test_needs::skip(test_needs::ROOT, format!("unshare(2): {error}"));
        }
        failed => assert!(failed.is_none(), "{failed:?}"),
    }
    let both_tables = fd_tables(pid);
    assert_eq!(both_tables.len(), 2, "{both_tables:?}");
    assert!(max_open_fds(pid, &both_tables).unwrap() >= before + FILES);
    assert!(max_open_fds(pid, &[pid]).unwrap() < before + FILES);
    drop(end_tx);
    thread.join().unwrap();
    // The thread may be visible a moment longer.
    let is_gone = || fd_tables(pid) == [pid];
    let wait = || std::thread::sleep(Duration::from_millis(10));
    assert!((0..3000).any(|_| is_gone() || (wait(), false).1), "{:?}", fd_tables(pid));
    // A stale list is no error.
    assert!(max_open_fds(pid, &both_tables).unwrap() < before + FILES);
}

/// Returns true if the kernel compares descriptor tables (kcmp(2), `KCMP_FILES`). Some kernels lack
/// the call, and containers may deny it.
fn has_kcmp(pid: i32) -> bool {
    // SAFETY: the call compares two numbers of threads in the kernel and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, 2, 0, 0) == 0 }
}
