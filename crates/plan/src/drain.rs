//! Drain of a queue, seen from outside: the latency of the seconds after a stall.

use record::run::Interval;
use stats::fit::fit_line;

/// Fraction of the highest wait after a stall down to which seconds belong to the drain: below it, the wait of a
/// random arrival at a queue that is almost empty is no longer small beside that of the backlog.
const DRAIN_FRACTION: f64 = 0.2;
/// Fewest seconds that show a slope.
const SECONDS_MIN: usize = 2;

/// Stall of all servers of a subject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stall {
    /// End of the stall, after the start of the run.
    pub resumed_s: f64,
    pub length_s: f64,
    /// Mean service time of a request with all slots busy.
    pub service_s: f64,
    /// Fraction of the slots that the load uses without a stall.
    pub utilisation: f64,
}

impl Stall {
    /// Returns the time from its end until the latency is that of the service again, in s: the root of the line
    /// through the medians of the seconds that drain.
    ///
    /// In a queue of first in, first out with the utilisation ρ, a request that arrives t seconds after a stall of S
    /// seconds waits ρS − t (1 − ρ): a line that ends with the backlog, after Sρ / (1 − ρ). `None` if fewer than two
    /// seconds drain, if the latency does not fall, and if even the first wait is less than half of ρS: then
    /// requests overtook the backlog, or the subject dropped it.
    pub fn drain_by_latency(&self, intervals: &[Interval]) -> Option<f64> {
        let waits = intervals.iter().filter_map(|interval| {
            let start_s = interval.time_s - interval.length_s;
            let wait_s = interval.p50_ns? as f64 / 1e9 - self.service_s;
            (start_s >= self.resumed_s && interval.responses > 0)
                .then_some((start_s + interval.length_s / 2.0 - self.resumed_s, wait_s))
        });
        let waits: Vec<(f64, f64)> = waits.collect();
        let max_s = waits.first()?.1;
        let is_draining = |wait_s: f64| wait_s >= max_s * DRAIN_FRACTION;
        let draining: Vec<_> = waits.into_iter().take_while(|(_, wait_s)| is_draining(*wait_s)).collect();
        if draining.len() < SECONDS_MIN || max_s < self.utilisation * self.length_s / 2.0 {
            return None;
        }
        let line = fit_line(&draining)?;
        (line.slope < 0.0).then(|| -line.intercept / line.slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Order in which a queue is served.
    #[derive(Clone, Copy, PartialEq)]
    enum Order {
        Oldest,
        Newest,
        /// No queue: each request is served at once.
        None,
    }

    /// Poisson arrivals at slots that stop for a while.
    struct Queue {
        rate_per_s: f64,
        slots: usize,
        service_s: f64,
        /// 0 for equal service times, 1 for exponential ones.
        service_cv: f64,
        stall_s: f64,
        order: Order,
    }

    const STALL_AT_S: f64 = 6.0;

    impl Queue {
        fn stall(&self) -> Stall {
            Stall {
                resumed_s: STALL_AT_S + self.stall_s,
                length_s: self.stall_s,
                service_s: self.service_s,
                utilisation: self.rate_per_s * self.service_s / self.slots as f64,
            }
        }

        /// Simulates the queue for `seconds`, and returns the intervals of a load, and the time in which the backlog
        /// drained, from its first nine tenths.
        fn simulate(&self, seconds: usize, seed: u64) -> (Vec<Interval>, f64) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut exponential = |mean: f64| -mean * (1.0 - random.f64()).ln();
            let mut arrivals = Vec::new();
            let mut now = exponential(1.0 / self.rate_per_s);
            while now < seconds as f64 {
                arrivals.push(now);
                now += exponential(1.0 / self.rate_per_s);
            }
            // The servers' own clock stands still in the stall.
            let resumed_s = STALL_AT_S + self.stall_s;
            let to_server = |at: f64| if at < resumed_s { at.min(STALL_AT_S) } else { at - self.stall_s };
            let to_wall = |at: f64| if at < STALL_AT_S { at } else { at + self.stall_s };
            let mut free = vec![0.0_f64; self.slots];
            let mut waiting: Vec<usize> = Vec::new();
            let mut latencies: Vec<Vec<u64>> = vec![Vec::new(); seconds];
            let (mut next, mut backlog, mut drained_s) = (0, 0, 0.0);
            loop {
                let (slot, at) = free.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
                while next < arrivals.len() && (to_server(arrivals[next]) <= at || waiting.is_empty()) {
                    waiting.push(next);
                    next += 1;
                }
                if waiting.is_empty() {
                    break;
                }
                let position = if self.order == Order::Newest { waiting.len() - 1 } else { 0 };
                let request = waiting.remove(position);
                let start = at.max(to_server(arrivals[request]));
                let random_s =
                    if self.service_cv > 0.0 { exponential(self.service_s) } else { self.service_s };
                if self.order != Order::None {
                    free[slot] = start + random_s;
                }
                let latency_s = to_wall(start + random_s) - arrivals[request];
                latencies[arrivals[request] as usize].push((latency_s * 1e9) as u64);
                backlog = backlog.max(waiting.len());
                if drained_s == 0.0 && start > STALL_AT_S && waiting.len() * 10 <= backlog {
                    drained_s = (to_wall(start) - resumed_s) / 0.9;
                }
            }
            let interval = |(second, mut all): (usize, Vec<u64>)| {
                all.sort_unstable();
                Interval {
                    time_s: second as f64 + 1.0,
                    length_s: 1.0,
                    responses: all.len() as u64,
                    p50_ns: all.get(all.len() / 2).copied(),
                    ..Interval::default()
                }
            };
            (latencies.into_iter().enumerate().map(interval).collect(), drained_s)
        }
    }

    fn queue(shape: (f64, usize, f64, f64, f64), order: Order) -> Queue {
        let (rate_per_s, slots, service_s, service_cv, stall_s) = shape;
        Queue { rate_per_s, slots, service_s, service_cv, stall_s, order }
    }

    /// Rate, slots, service time, its variation, stall.
    const SHAPES: [(f64, usize, f64, f64, f64); 8] = [
        (600.0, 3, 0.003, 0.0, 5.0),
        (200.0, 8, 0.030, 1.0, 4.0),
        (90.0, 60, 0.500, 0.0, 4.0),
        (400.0, 1, 0.002, 1.0, 3.0),
        (50.0, 40, 0.700, 1.0, 5.0),
        (1000.0, 64, 0.045, 0.0, 6.0),
        (300.0, 30, 0.080, 1.0, 2.0),
        (150.0, 2, 0.012, 0.0, 2.5),
    ];

    #[test]
    fn the_latency_shows_the_drain_of_a_queue_of_any_shape() {
        for shape in SHAPES {
            let queue = queue(shape, Order::Oldest);
            let ratio = |seed| {
                let (intervals, drained_s) = queue.simulate(60, seed);
                queue
                    .stall()
                    .drain_by_latency(&intervals)
                    .map_or(0.0, |by_latency_s| by_latency_s / drained_s)
            };
            let ratios: Vec<f64> = (1..=5).map(ratio).collect();
            // A backlog of 200 requests at a utilisation of 88 % drains in 18 to 32 s, by chance.
            assert!(ratios.iter().all(|ratio| (0.7..1.4).contains(ratio)), "{shape:?}: {ratios:?}");
            let median = stats::median(&ratios).unwrap();
            assert!((0.9..1.1).contains(&median), "{shape:?}: {ratios:?}");
        }
    }

    #[test]
    fn a_subject_without_a_queue_or_with_newest_first_shows_no_drain() {
        for shape in SHAPES {
            for order in [Order::Newest, Order::None] {
                let queue = queue(shape, order);
                let (intervals, _) = queue.simulate(60, 7);
                assert_eq!(queue.stall().drain_by_latency(&intervals), None, "{shape:?}");
            }
        }
        let stall = queue(SHAPES[0], Order::None).stall();
        assert_eq!(stall.drain_by_latency(&[]), None);
    }
}
