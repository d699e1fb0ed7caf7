//! Descriptors of threads with tables of their own, in a process of its own: a copy of the table
//! holds open what other tests close.

use std::sync::mpsc;

use host::process::open_descriptors;

#[test]
fn a_thread_with_a_table_of_its_own_counts() {
    let pid = std::process::id() as i32;
    let before = open_descriptors(pid).unwrap();
    let (ready, is_ready) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: it copies this thread's table, and nothing was given to it from another.
        let unshared = unsafe { libc::unshare(libc::CLONE_FILES) } == 0;
        ready.send(unshared).unwrap();
        let _ = ended.recv();
    });
    assert!(is_ready.recv().unwrap());
    let both = open_descriptors(pid).unwrap();
    drop(end);
    thread.join().unwrap();
    // The standard streams at least are there twice.
    assert!(both >= before + 3, "{before} {both}");
    assert!(open_descriptors(pid).unwrap() < both);
}
