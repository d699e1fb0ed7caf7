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
#[must_use]
pub fn erlang_b(servers: u64, offered: f64) -> Option<f64> {
    if !offered.is_finite() || offered < 0.0 || servers > SERVERS_MAX {
        return None;
    }
    Some((1..=servers).fold(1.0, |blocked, n| next_blocked(blocked, n, offered)))
}

/// Returns the probability that an arrival has to wait (Erlang C), for an offered load in erlangs.
/// `None` if the load is not below the number of servers, where the queue grows without end, or as
/// for [`erlang_b`].
#[must_use]
pub fn erlang_c(servers: u64, offered: f64) -> Option<f64> {
    let blocked = erlang_b(servers, offered)?;
    let utilisation = offered / servers as f64;
    (utilisation < 1.0).then(|| waiting(blocked, utilisation))
}

/// Returns the minimum number of servers with which at most the fraction `waiting_max` of the
/// arrivals has to wait (Erlang C), for an offered load in erlangs. `None` if that takes more than
/// [`SERVERS_MAX`] servers, or if an argument is not a valid one.
#[must_use]
pub fn servers_for_waiting(offered: f64, waiting_max: f64) -> Option<u64> {
    if !offered.is_finite() || offered < 0.0 || waiting_max.is_nan() || waiting_max <= 0.0 {
        return None;
    }
    let mut blocked = 1.0;
    (1..=SERVERS_MAX).find(|&servers| {
        blocked = next_blocked(blocked, servers, offered);
        let utilisation = offered / servers as f64;
        utilisation < 1.0 && waiting(blocked, utilisation) <= waiting_max
    })
}

/// Returns B(n) from B(n-1).
fn next_blocked(blocked: f64, n: u64, offered: f64) -> f64 {
    offered * blocked / (n as f64 + offered * blocked)
}

/// Returns Erlang C from Erlang B.
fn waiting(blocked: f64, utilisation: f64) -> f64 {
    blocked / (1.0 - utilisation * (1.0 - blocked))
}

/// Queue in front of equal servers, in a steady state (M/M/c).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    servers: u64,
    service_s: f64,
    offered: f64,
    waiting: f64,
}

impl Queue {
    /// Computes the queue of `arrivals_per_s`, each of which takes one of `servers` for `service_s`
    /// seconds on average. `None` if the arrivals are as many as the servers can do, or more: then
    /// there is no steady state. Also `None` as for [`erlang_b`].
    #[must_use]
    pub fn new(servers: u64, arrivals_per_s: f64, service_s: f64) -> Option<Self> {
        let offered = arrivals_per_s * service_s;
        let valid = arrivals_per_s >= 0.0 && service_s >= 0.0;
        let waiting = erlang_c(servers, offered).filter(|_| valid)?;
        Some(Self { servers, service_s, offered, waiting })
    }

    /// Returns the mean fraction of the servers that are busy, 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.offered / self.servers as f64
    }

    /// Returns the mean number of busy servers, which is the offered load in erlangs.
    #[must_use]
    pub fn busy_servers(&self) -> f64 {
        self.offered
    }

    /// Returns the probability that an arrival has to wait, 0 to 1 (Erlang C).
    #[must_use]
    pub fn waiting_probability(&self) -> f64 {
        self.waiting
    }

    /// Returns the mean wait in seconds over all arrivals, including those that do not wait.
    #[must_use]
    pub fn mean_wait_s(&self) -> f64 {
        self.waiting * self.mean_wait_of_waiting_s()
    }

    /// Returns the mean number of waiting arrivals (Little's law).
    #[must_use]
    pub fn mean_queue_length(&self) -> f64 {
        self.waiting * self.offered / (self.servers as f64 - self.offered)
    }

    /// Returns the fraction of the arrivals that wait longer than `wait_s` seconds.
    #[must_use]
    pub fn fraction_waiting_longer(&self, wait_s: f64) -> f64 {
        let scale_s = self.mean_wait_of_waiting_s();
        if scale_s > 0.0 { self.waiting * (-wait_s.max(0.0) / scale_s).exp() } else { 0.0 }
    }

    /// Returns the quantile `q` (0 to 1) of the wait in seconds over all arrivals: 0 if at most
    /// `1 - q` of them wait, and infinite for 1.
    #[must_use]
    pub fn wait_quantile_s(&self, q: f64) -> f64 {
        let above = 1.0 - q.clamp(0.0, 1.0);
        if self.waiting <= above { 0.0 } else { self.mean_wait_of_waiting_s() * (self.waiting / above).ln() }
    }

    /// Returns the mean wait in seconds of the arrivals that do wait: exponentially distributed.
    fn mean_wait_of_waiting_s(&self) -> f64 {
        self.service_s / (self.servers as f64 - self.offered)
    }
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

    #[test]
    fn the_wait_of_one_server_is_that_of_the_textbook() {
        // M/M/1 with 80 arrivals/s of 10 ms: the mean wait is ρ·s/(1-ρ) = 40 ms, and 3.2 wait.
        let queue = Queue::new(1, 80.0, 0.01).unwrap();
        near(queue.utilisation(), 0.8, 1e-12);
        near(queue.mean_wait_s(), 0.04, 1e-12);
        near(queue.mean_queue_length(), 3.2, 1e-12);
        // P(W > t) = 0.8·exp(-20 t).
        near(queue.fraction_waiting_longer(0.1), 0.8 * (-2.0_f64).exp(), 1e-12);
        near(queue.fraction_waiting_longer(queue.wait_quantile_s(0.99)), 0.01, 1e-12);
        assert_eq!(queue.wait_quantile_s(0.2), 0.0);
        assert!(queue.wait_quantile_s(1.0).is_infinite());
        near(queue.waiting_probability() - queue.busy_servers(), 0.0, 1e-12);
    }

    #[test]
    fn a_queue_needs_a_steady_state() {
        for (servers, arrivals_per_s, service_s) in
            [(1, 100.0, 0.01), (0, 0.0, 0.01), (2, -1.0, -1.0), (2, f64::NAN, 1.0), (2, f64::INFINITY, 1e-3)]
        {
            assert_eq!(Queue::new(servers, arrivals_per_s, service_s), None);
        }
        let empty = Queue::new(3, 0.0, 0.01).unwrap();
        assert_eq!((empty.mean_wait_s(), empty.wait_quantile_s(0.999)), (0.0, 0.0));
        assert_eq!(Queue::new(3, 10.0, 0.0).unwrap().fraction_waiting_longer(0.0), 0.0);
    }

    #[test]
    fn servers_are_the_least_that_keep_the_wait_rare() {
        for (offered, waiting_max) in [(0.0, 0.5), (0.5, 0.2), (8.0, 0.1), (900.0, 0.01)] {
            let servers = servers_for_waiting(offered, waiting_max).unwrap();
            assert!(erlang_c(servers, offered).unwrap() <= waiting_max, "{offered}");
            let fewer = erlang_c(servers - 1, offered);
            assert!(fewer.is_none_or(|probability| probability > waiting_max), "{offered}");
        }
        assert!(servers_for_waiting(8.0, 0.0).is_none() && servers_for_waiting(f64::NAN, 0.1).is_none());
    }
}
