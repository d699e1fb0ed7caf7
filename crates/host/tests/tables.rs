//! Descriptors of threads with tables of their own, in a process of its own: a copy of the table
//! holds open what other tests close.

use std::fs::File;
use std::sync::mpsc;
use std::time::Duration;

use host::process::{fullest_table, tables};

/// What the thread opens in its own table.
const FILES: u64 = 100;

#[test]
fn a_thread_with_a_table_of_its_own_is_found() {
    let pid = std::process::id() as i32;
    if !tables_are_told(pid) {
        return println!("skipped: kcmp(2): {}", std::io::Error::last_os_error());
    }
    assert_eq!(tables(pid), [pid]);
    let before = fullest_table(pid, &[pid]).unwrap();
    let (ready, is_ready) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: it copies this thread's table, and nothing was given to it from another.
        let failed = unsafe { libc::unshare(libc::CLONE_FILES) } != 0;
        let failed = failed.then(std::io::Error::last_os_error);
        let files: Vec<File> = (0..FILES).map(|_| File::open("/dev/null").unwrap()).collect();
        ready.send(failed).unwrap();
        let _ = ended.recv();
        drop(files);
    });
    match is_ready.recv().unwrap() {
        Some(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            return println!("skipped: unshare(2): {error}");
        }
        failed => assert!(failed.is_none(), "{failed:?}"),
    }
    let both = tables(pid);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(fullest_table(pid, &both).unwrap() >= before + FILES);
    assert!(fullest_table(pid, &[pid]).unwrap() < before + FILES);
    drop(end);
    thread.join().unwrap();
    // The thread may be seen a moment longer.
    let is_gone = || tables(pid) == [pid];
    let wait = || std::thread::sleep(Duration::from_millis(10));
    assert!((0..3000).any(|_| is_gone() || (wait(), false).1), "{:?}", tables(pid));
    // What was listed before is no error.
    assert!(fullest_table(pid, &both).unwrap() < before + FILES);
}

/// Whether the kernel compares tables of descriptors (kcmp(2), `KCMP_FILES`): some have no such call, and
/// containers may not make it.
fn tables_are_told(pid: i32) -> bool {
    // SAFETY: the call compares two numbers of threads in the kernel and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, 2, 0, 0) == 0 }
}
