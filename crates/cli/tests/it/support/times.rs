//! What tests demand of times and rates. How fast and how punctual a run is depends on the machine,
//! so such a demand is asserted only where somebody sits at a quiet one: with `WEIR_TEST_TIMES=print`,
//! as in `.ci/run`, it is printed with what was seen and fails nothing.
//!
//! Not for what holds on every machine: counts, states, order, and that nothing comes before its
//! time. That is asserted as ever.

use std::io::Write;

const NAME: &str = "WEIR_TEST_TIMES";

/// Whether times and rates decide about a test here.
pub(crate) fn are_judged() -> bool {
    match std::env::var(NAME).as_deref() {
        Err(_) => true,
        Ok("print") => false,
        Ok(other) => panic!("{NAME}={other}: 'print', or not set"),
    }
}

/// How often something may be tried until a time is as demanded: once where none is judged.
pub(crate) fn tries(most: usize) -> usize {
    if are_judged() { most } else { 1 }
}

/// Asserts a time or a rate, or prints it. `what` is what is demanded, `seen` what there was.
pub(crate) fn demand(holds: bool, what: &str, seen: impl std::fmt::Debug) {
    if are_judged() {
        assert!(holds, "demanded: {what}; seen: {seen:?}");
        return;
    }
    let thread = std::thread::current();
    let (test, word) = (thread.name().unwrap_or("?"), if holds { "holds" } else { "not held" });
    // Past the harness, which shows only what a failing test printed.
    let line = format!("times: {test}: demanded: {what}; seen: {seen:?}; {word}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
