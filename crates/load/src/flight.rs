//! The number of requests in flight, integrated over a window of time: what Little's law is held
//! against. Counted apart from the latencies, so that each can prove the other wrong.

/// Integrates a count over the time from `from_ns` to `to_ns`.
#[derive(Clone, Debug)]
pub(crate) struct FlightArea {
    to_ns: u64,
    now: u64,
    since_ns: u64,
    area_ns: u128,
    /// The same after the window.
    after_ns: u128,
}

impl FlightArea {
    pub(crate) fn new(from_ns: u64, to_ns: u64) -> Self {
        Self { to_ns, now: 0, since_ns: from_ns, area_ns: 0, after_ns: 0 }
    }

    #[inline]
    pub(crate) fn begin(&mut self, at_ns: u64) {
        self.settle(at_ns);
        self.now += 1;
    }

    #[inline]
    pub(crate) fn end(&mut self, at_ns: u64) {
        self.settle(at_ns);
        self.now = self.now.saturating_sub(1);
    }

    /// Ends the window here, when it has no fixed end or is cut short.
    pub(crate) fn close(&mut self, at_ns: u64) {
        self.settle(at_ns);
        self.to_ns = self.to_ns.min(at_ns);
    }

    /// Count times ns, within the window.
    pub(crate) fn area_ns(&self) -> u128 {
        self.area_ns
    }

    /// Count times ns, after the window.
    pub(crate) fn after_ns(&self) -> u128 {
        self.after_ns
    }

    #[inline]
    fn settle(&mut self, at_ns: u64) {
        // Stamps of different requests can be a little out of order; none counts twice.
        let within_ns = at_ns.min(self.to_ns);
        if within_ns > self.since_ns {
            self.area_ns += u128::from(self.now) * u128::from(within_ns - self.since_ns);
            self.since_ns = within_ns;
        }
        if at_ns > self.to_ns && at_ns > self.since_ns {
            self.after_ns += u128::from(self.now) * u128::from(at_ns - self.since_ns);
            self.since_ns = at_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_counts() {
        let mut area = FlightArea::new(100, 200);
        area.begin(50);
        area.begin(150);
        area.end(180);
        area.end(300);
        assert_eq!((area.area_ns(), area.after_ns()), (100 + 30, 100));
    }

    #[test]
    fn a_window_can_be_cut_short() {
        let mut area = FlightArea::new(0, u64::MAX);
        area.begin(0);
        area.close(70);
        area.end(100);
        assert_eq!((area.area_ns(), area.after_ns()), (70, 30));
    }
}
