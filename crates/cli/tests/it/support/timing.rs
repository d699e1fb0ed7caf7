//! Assertions on times and rates. The speed and the punctuality of a run depend on the machine, so
//! such an assertion holds only on a quiet machine. With `WEIR_TEST_TIMES=print`, as in `.ci/run`,
//! it is printed with the measured value and fails nothing.
//!
//! Facts that hold on every machine are asserted as usual: counts, states, order, and that nothing
//! happens before its time.

use std::io::Write;

const MODE_VARIABLE: &str = "WEIR_TEST_TIMES";

/// Returns whether times and rates decide about a test here.
pub(crate) fn are_enforced() -> bool {
    match std::env::var(MODE_VARIABLE).as_deref() {
        Err(_) => true,
        Ok("print") => false,
        Ok(other) => panic!("{MODE_VARIABLE}={other}: 'print', or not set"),
    }
}

/// Maximum number of tries for a required time; 1 if times are only printed.
pub(crate) fn tries(max: usize) -> usize {
    if are_enforced() { max } else { 1 }
}

/// Asserts a time or a rate, or prints it. `what` is the requirement.
pub(crate) fn assert_timing(holds: bool, what: &str, measured: impl std::fmt::Debug) {
    if are_enforced() {
        assert!(holds, "required: {what}; measured: {measured:?}");
        return;
    }
    let thread = std::thread::current();
    let (test, word) = (thread.name().unwrap_or("?"), if holds { "holds" } else { "not held" });
    // This bypasses the harness, which shows only the output of failing tests.
    let line = format!("times: {test}: required: {what}; measured: {measured:?}; {word}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
