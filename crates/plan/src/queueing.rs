//! Waiting in a pool of slots with one queue: Erlang C, and the approximation of Allen and Cunneen for
//! arrivals and service times that are not exponential.

use stats::erlang::{SERVERS_MAX, erlang_b, erlang_c};

/// Pool of equal slots with one queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotPool {
    pub slots: u64,
    pub rate_per_s: f64,
    pub service_s: f64,
    /// Coefficient of variation of the time between arrivals; 1 for independent clients.
    pub arrival_cv: f64,
    /// Coefficient of variation of the service time.
    pub service_cv: f64,
}

impl SlotPool {
    /// Returns the mean number of busy slots without a limit: Little's law.
    pub fn erlangs(&self) -> f64 {
        self.rate_per_s * self.service_s
    }

    /// Returns the fraction of the slots that are busy; 1 and more is overload.
    pub fn utilisation(&self) -> f64 {
        self.erlangs() / self.slots as f64
    }

    pub fn capacity_per_s(&self) -> f64 {
        self.slots as f64 / self.service_s
    }

    /// Returns the probability that a request waits; 1 in overload.
    pub fn wait_probability(&self) -> f64 {
        erlang_c(self.slots, self.erlangs()).unwrap_or(1.0)
    }

    /// Returns the fraction of the requests that find no free slot and are rejected, if there is no queue.
    pub fn loss_probability(&self) -> f64 {
        erlang_b(self.slots, self.erlangs()).unwrap_or(1.0)
    }

    /// Returns the mean wait in s; infinite in overload.
    pub fn mean_wait_s(&self) -> f64 {
        let spare_per_s = self.capacity_per_s() - self.rate_per_s;
        if spare_per_s <= 0.0 {
            return f64::INFINITY;
        }
        self.wait_probability() / spare_per_s * self.variability()
    }

    /// Returns the wait that a fraction `quantile` of the requests does not exceed, in s.
    pub fn wait_quantile_s(&self, quantile: f64) -> f64 {
        let spare_per_s = self.capacity_per_s() - self.rate_per_s;
        if spare_per_s <= 0.0 {
            return f64::INFINITY;
        }
        let ratio = self.wait_probability() / (1.0 - quantile).max(1e-12);
        ratio.max(1.0).ln() / spare_per_s * self.variability()
    }

    /// Returns the mean number of waiting requests.
    pub fn mean_queue(&self) -> f64 {
        self.rate_per_s * self.mean_wait_s()
    }

    /// Returns the factor of Allen and Cunneen, (ca² + cs²) / 2.
    fn variability(&self) -> f64 {
        f64::midpoint(self.arrival_cv.powi(2), self.service_cv.powi(2))
    }
}

/// Returns the quantile of a service time with this mean and this coefficient of variation, in s: of
/// an exponential distribution behind a constant part.
pub fn service_quantile_s(mean_s: f64, cv: f64, quantile: f64) -> f64 {
    let exponential = -(1.0 - quantile).max(1e-12).ln();
    (mean_s * (1.0 - cv)).max(0.0) + mean_s * cv * exponential
}

/// Returns the smallest number of slots, at most [`SERVERS_MAX`], whose wait meets a limit; `None` if
/// there is none.
pub fn slots_for_wait(pool: &SlotPool, quantile: f64, limit_s: f64) -> Option<u64> {
    let first = pool.erlangs().floor() as u64 + 1;
    let holds = |slots: u64| SlotPool { slots, ..*pool }.wait_quantile_s(quantile) <= limit_s;
    let (mut low, mut step) = (first, 1);
    let mut high = first;
    while !holds(high) {
        low = high + 1;
        high += step;
        step *= 2;
        if high > SERVERS_MAX {
            return None;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: SlotPool =
        SlotPool { slots: 10, rate_per_s: 400.0, service_s: 0.02, arrival_cv: 1.0, service_cv: 1.0 };

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= 1e-4 * expected.abs().max(1e-9)
    }

    #[test]
    fn the_probability_of_a_wait_is_erlangs() {
        // M/M/1 waits with the probability of its utilisation.
        let pool = |slots, rate_per_s| SlotPool { slots, rate_per_s, service_s: 0.01, ..POOL };
        assert!(near(pool(1, 70.0).wait_probability(), 0.7));
        assert_eq!((pool(2, 200.0).wait_probability(), pool(3, 0.0).wait_probability()), (1.0, 0.0));
    }

    #[test]
    fn a_pool_of_one_is_an_m_m_1_queue() {
        let pool = SlotPool { slots: 1, rate_per_s: 50.0, service_s: 0.01, ..POOL };
        assert!(near(pool.mean_wait_s(), 0.01), "{}", pool.mean_wait_s());
        // P(W > t) = ρ e^(−(μ−λ)t)
        assert!(near(pool.wait_quantile_s(0.99), (0.5_f64 / 0.01).ln() / 50.0));
        // Constant service halves the wait.
        let constant = SlotPool { service_cv: 0.0, ..pool };
        assert!(near(constant.mean_wait_s(), 0.005));
        assert!(SlotPool { rate_per_s: 100.0, ..pool }.mean_wait_s().is_infinite());
    }

    #[test]
    fn slots_are_the_fewest_that_hold_the_limit() {
        let slots = slots_for_wait(&POOL, 0.99, 0.01).unwrap();
        let holds = |slots| SlotPool { slots, ..POOL }.wait_quantile_s(0.99) <= 0.01;
        assert!(holds(slots) && !holds(slots - 1) && slots > 8, "{slots}");
        assert_eq!(slots_for_wait(&POOL, 0.99, -1.0), None);
    }

    #[test]
    fn a_service_time_has_its_quantiles() {
        assert!(near(service_quantile_s(0.02, 0.0, 0.99), 0.02));
        assert!(near(service_quantile_s(0.02, 1.0, 0.99), 0.02 * 100f64.ln()));
    }
}
