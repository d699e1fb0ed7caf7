//! Ports for programs of a trial that share this machine's network namespace.
//!
//! Not for programs in separate namespaces: there every port is free.

use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// File with the range of ephemeral ports of a network namespace.
const EPHEMERAL_RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// First port that is chosen for a program, and number of attempts.
const PORT_MIN: u16 = 10_000;
const PORT_ATTEMPTS: u32 = 100;

/// Returns a free port. It is below the ephemeral range if there is room, so that no other process
/// gets it by chance before its program does.
///
/// # Errors
/// No port is free.
pub fn free_port() -> std::io::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let free = |port| Ok(TcpListener::bind(("127.0.0.1", port))?.local_addr()?.port());
    let range = fs::read_to_string(EPHEMERAL_RANGE_FILE).unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0);
    let own = PORT_MIN..end;
    // Other processes begin at other ports.
    let first = std::process::id().wrapping_mul(PORT_ATTEMPTS);
    let tries = (0..PORT_ATTEMPTS).filter(|_| !own.is_empty()).map(|_| {
        let at = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        own.start + (at % own.len() as u32) as u16
    });
    tries.map(free).find(Result::is_ok).unwrap_or_else(|| free(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_is_outside_the_ephemeral_range() {
        let range = fs::read_to_string(EPHEMERAL_RANGE_FILE).unwrap();
        let first: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        let (first_port, second_port) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(first_port, second_port);
        if first > PORT_MIN {
            assert!((PORT_MIN..first).contains(&first_port) && (PORT_MIN..first).contains(&second_port));
        }
    }
}
