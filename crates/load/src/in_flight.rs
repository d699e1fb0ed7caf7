//! Number of requests in flight, integrated over a window of time, for the check with Little's law.
//! It is counted apart from the latencies, so that each can disprove the other.

/// Integrates a count over the time from `from_ns` to `to_ns`.
#[derive(Clone, Debug)]
pub(crate) struct InFlightIntegral {
    to_ns: u64,
    count: u64,
    updated_ns: u64,
    area_ns: u128,
    /// The same count after the window.
    after_ns: u128,
}

impl InFlightIntegral {
    pub(crate) fn new(from_ns: u64, to_ns: u64) -> Self {
        Self { to_ns, count: 0, updated_ns: from_ns, area_ns: 0, after_ns: 0 }
    }

    #[inline]
    pub(crate) fn begin(&mut self, at_ns: u64) {
        self.advance(at_ns);
        self.count += 1;
    }

    #[inline]
    pub(crate) fn end(&mut self, at_ns: u64) {
        self.advance(at_ns);
        self.count = self.count.saturating_sub(1);
    }

    /// Ends the window here, if it has no fixed end or is cut short.
    pub(crate) fn close(&mut self, at_ns: u64) {
        self.advance(at_ns);
        self.to_ns = self.to_ns.min(at_ns);
    }

    /// Returns count times ns, within the window.
    pub(crate) fn area_ns(&self) -> u128 {
        self.area_ns
    }

    /// Returns count times ns, after the window.
    pub(crate) fn after_ns(&self) -> u128 {
        self.after_ns
    }

    #[inline]
    fn advance(&mut self, at_ns: u64) {
        // Timestamps of different requests can be slightly out of order; no time counts twice.
        let within_ns = at_ns.min(self.to_ns);
        if within_ns > self.updated_ns {
            self.area_ns += u128::from(self.count) * u128::from(within_ns - self.updated_ns);
            self.updated_ns = within_ns;
        }
        if at_ns > self.to_ns && at_ns > self.updated_ns {
            self.after_ns += u128::from(self.count) * u128::from(at_ns - self.updated_ns);
            self.updated_ns = at_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_counts() {
        let mut in_flight = InFlightIntegral::new(100, 200);
        in_flight.begin(50);
        in_flight.begin(150);
        in_flight.end(180);
        in_flight.end(300);
        assert_eq!((in_flight.area_ns(), in_flight.after_ns()), (100 + 30, 100));
    }

    #[test]
    fn a_window_can_be_cut_short() {
        let mut in_flight = InFlightIntegral::new(0, u64::MAX);
        in_flight.begin(0);
        in_flight.close(70);
        in_flight.end(100);
        assert_eq!((in_flight.area_ns(), in_flight.after_ns()), (70, 30));
    }
}
