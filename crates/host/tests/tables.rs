//! Descriptors of threads with tables of their own, in a process of its own: a copy of the table
//! holds open what other tests close.

use std::sync::mpsc;
use std::time::Duration;

use host::process::open_descriptors;

#[test]
fn a_thread_with_a_table_of_its_own_counts() {
    let pid = std::process::id() as i32;
    if !tables_are_told(pid) {
        return println!("skipped: kcmp(2): {}", std::io::Error::last_os_error());
    }
    let before = open_descriptors(pid).unwrap();
    let (ready, is_ready) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: it copies this thread's table, and nothing was given to it from another.
        let failed = unsafe { libc::unshare(libc::CLONE_FILES) } != 0;
        ready.send(failed.then(std::io::Error::last_os_error)).unwrap();
        let _ = ended.recv();
    });
    match is_ready.recv().unwrap() {
        Some(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            return println!("skipped: unshare(2): {error}");
        }
        failed => assert!(failed.is_none(), "{failed:?}"),
    }
    let both = open_descriptors(pid).unwrap();
    drop(end);
    thread.join().unwrap();
    // The standard streams at least are there twice.
    assert!(both >= before + 3, "{before} {both}");
    // The thread may be seen a moment longer.
    let is_gone = || open_descriptors(pid).is_ok_and(|count| count < both);
    let gone = (0..3000).any(|_| {
        is_gone() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    });
    assert!(gone, "{both} {:?}", open_descriptors(pid));
}

/// Whether the kernel compares tables of descriptors (kcmp(2), `KCMP_FILES`): some have no such call, and
/// containers may not make it.
fn tables_are_told(pid: i32) -> bool {
    // SAFETY: the call compares two numbers of threads in the kernel and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, 2, 0, 0) == 0 }
}
