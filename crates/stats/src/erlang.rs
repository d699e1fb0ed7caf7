//! Waiting for a server: Erlang's formulas for random (Poisson) arrivals (A. K. Erlang, "Solution of
//! Some Problems in the Theory of Probabilities of Significance in Automatic Telephone Exchanges",
//! 1917; Kleinrock, "Queueing Systems" 1, 1975, chapter 3).
//!
//! A server is anything that does one request at a time: a slot of `maxconn`, a thread, a worker, a
//! CPU. The offered load is arrivals per second × seconds of service, in erlangs: the mean number of
//! busy servers if there are enough of them.
//!
//! Erlang B (M/G/c/c, no queue: an arrival without a free server is lost) holds for any distribution
//! of service times. Erlang C (M/M/c, an endless queue, first in first out) assumes exponential
//! ones: steadier service waits less (half as long if it is constant and there is one server), and
//! service with a long tail or arrivals in bursts wait longer.

/// Maximum number of servers of a computation; its time is proportional to them (0.1 s).
pub const SERVERS_MAX: u64 = 10_000_000;

/// Returns the fraction of arrivals that find all `servers` busy and are lost (Erlang B), for an
/// offered load in erlangs. It is 1 without servers, and `None` for a load that is negative or not
/// finite, or for more than [`SERVERS_MAX`] servers.
///
/// The recursion B(0) = 1, 1/B(n) = 1 + n/(a·B(n-1)) has no factorial, so it never overflows.
pub fn erlang_b(servers: u64, offered: f64) -> Option<f64> {
    if !offered.is_finite() || offered < 0.0 || servers > SERVERS_MAX {
        return None;
    }
    Some((1..=servers).fold(1.0, |blocked, n| offered * blocked / (n as f64 + offered * blocked)))
}

/// Returns the probability that an arrival has to wait (Erlang C), for an offered load in erlangs.
/// `None` if the load is not below the number of servers, where the queue grows without end, or as
/// for [`erlang_b`].
pub fn erlang_c(servers: u64, offered: f64) -> Option<f64> {
    let blocked = erlang_b(servers, offered)?;
    let utilisation = offered / servers as f64;
    (utilisation < 1.0).then(|| blocked / (1.0 - utilisation * (1.0 - blocked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} is not {b}");
    }

    #[test]
    fn blocking_is_that_of_closed_forms_and_tables() {
        // One server: a/(1 + a). Two: (a²/2)/(1 + a + a²/2).
        near(erlang_b(1, 0.5).unwrap(), 1.0 / 3.0, 1e-15);
        near(erlang_b(2, 1.0).unwrap(), 0.2, 1e-15);
        assert_eq!(erlang_b(0, 3.0), Some(1.0));
        assert_eq!(erlang_b(3, 0.0), Some(0.0));
        // Erlang B tables: 10 servers carry 4.461 erlangs at 1 %, 100 carry 84.064 at 1 %.
        near(erlang_b(10, 4.461).unwrap(), 0.01, 1e-5);
        near(erlang_b(100, 84.064).unwrap(), 0.01, 1e-5);
        near(erlang_b(10, 5.0).unwrap(), 0.018_385, 1e-6);
        near(erlang_b(100, 90.0).unwrap(), 0.026_957, 1e-6);
        assert!(erlang_b(1, f64::NAN).is_none() && erlang_b(1, -1.0).is_none());
    }

    #[test]
    fn waiting_is_that_of_closed_forms() {
        // One server: the utilisation. Two servers: 2ρ²/(1 + ρ).
        near(erlang_c(1, 0.7).unwrap(), 0.7, 1e-15);
        near(erlang_c(2, 1.2).unwrap(), 2.0 * 0.36 / 1.6, 1e-15);
        // By the sums of the definition: 8 erlangs, 10 servers.
        let mut term = 1.0;
        let mut sum = 1.0;
        for n in 1..10 {
            term *= 8.0 / f64::from(n);
            sum += term;
        }
        let all_busy = term * 8.0 / 10.0 / (1.0 - 0.8);
        near(erlang_c(10, 8.0).unwrap(), all_busy / (sum + all_busy), 1e-14);
        assert!(erlang_c(10, 10.0).is_none() && erlang_c(0, 0.0).is_none());
    }

    #[test]
    fn many_servers_neither_overflow_nor_round_to_nothing() {
        // The square-root rule (Halfin and Whitt 1981): c = a + √a gives 0.2234 in the limit.
        near(erlang_c(1_001_000, 1e6).unwrap(), 0.2234, 0.001);
        assert!(erlang_b(SERVERS_MAX + 1, 1.0).is_none());
    }
}
