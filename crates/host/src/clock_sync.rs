//! State of the wall clock: synchronized by NTP or not, as the kernel knows it (adjtimex(2)).

/// Returns whether the kernel reports a synchronized wall clock; `None` if it does not report its state.
#[allow(unsafe_code)]
pub fn is_synchronized() -> Option<bool> {
    // SAFETY: a zeroed `timex` is valid: all of its fields are integers. With `modes` 0 the call only writes to
    // the structure, which lives until it returns.
    let (state, status) = unsafe {
        let mut clock: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut clock), clock.status)
    };
    match state {
        -1 => None,
        libc::TIME_ERROR => Some(false),
        _ => Some(status & libc::STA_UNSYNC == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_twice_in_the_same_way() {
        assert_eq!(is_synchronized(), is_synchronized());
    }
}
