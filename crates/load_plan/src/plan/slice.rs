//! Slice of a load: the part of one of several generators that drive it together. Parts are differences of
//! rounded cumulative sums, so those of all generators add up exactly. Pure.

use std::net::IpAddr;

use record::invalid_value;
use record::problem::InvalidValue;
use serde::{Serialize, Serializer};

use super::RunPlan;
use crate::pace::Pace;

/// Part `from` to `to` of `total` equal parts of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSlice {
    from: u64,
    to: u64,
    total: u64,
}

const PARTS_MAX: u64 = 1_000_000_000;
/// Distance of the seeds of adjacent parts: odd, and far from the distance of the cores.
const SEED_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl RunPlan {
    /// Returns the plan of a slice of this load. The slices of a load add up to it.
    ///
    /// # Errors
    /// Reason why the load has no such slice.
    pub(super) fn sliced(mut self, slice: LoadSlice) -> Result<Self, InvalidValue> {
        if self.replay.is_some() {
            return Err(invalid_value!("a replay cannot be divided"));
        }
        self.connections = slice.count(self.connections);
        self.end.requests = self.end.requests.map(|requests| slice.count(requests));
        if self.connections == 0 || self.end.requests == Some(0) {
            return Err(invalid_value!("slice {slice} has no connection or no request: use fewer slices"));
        }
        self.threads = self.threads.min(usize::try_from(self.connections).unwrap_or(usize::MAX));
        if let Pace::Open { rate_per_s, .. } = &mut self.pace {
            *rate_per_s = slice.rate(*rate_per_s);
            self.max_pending = slice.count(self.max_pending).max(1);
        }
        self.stages = self.stages.map(|stages| stages.sliced(slice)).transpose()?;
        self.sources = slice.addresses(self.sources);
        self.seed = slice.seed(self.seed);
        self.slice = Some(slice);
        Ok(self)
    }
}

impl LoadSlice {
    /// Creates a slice; `None` unless `from < to <= total`.
    #[must_use]
    pub fn new(from: u64, to: u64, total: u64) -> Option<Self> {
        (from < to && to <= total && total <= PARTS_MAX).then_some(Self { from, to, total })
    }

    /// Parses `0-3/8`: the first three of eight parts.
    ///
    /// # Errors
    /// The text is no slice.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let numbers = || {
            let (range, total) = text.split_once('/')?;
            let (from, to) = range.split_once('-')?;
            Self::new(from.parse().ok()?, to.parse().ok()?, total.parse().ok()?)
        };
        numbers().ok_or_else(|| {
            invalid_value!("'{text}' is not a slice (write 0-3/8: the first three of eight parts)")
        })
    }

    /// Returns this slice of a number. Those of adjacent slices add up to the number.
    pub fn count(self, count: u64) -> u64 {
        self.until(self.to, count) - self.until(self.from, count)
    }

    pub fn rate(self, rate: f64) -> f64 {
        rate * self.fraction()
    }

    pub fn fraction(self) -> f64 {
        (self.to - self.from) as f64 / self.total as f64
    }

    /// Returns the start of the slice, as a fraction of the load. Generators with the same rate whose
    /// requests are shifted by it send them evenly.
    pub fn phase(self) -> f64 {
        self.from as f64 / self.total as f64
    }

    /// Returns this slice of a list of addresses, or all of them if there are fewer than slices.
    #[must_use]
    pub fn addresses(self, all: Vec<IpAddr>) -> Vec<IpAddr> {
        let count = all.len() as u64;
        let range = self.until(self.from, count) as usize..self.until(self.to, count) as usize;
        if range.is_empty() { all } else { all[range].to_vec() }
    }

    /// Returns a seed of its own for this slice, so that its random numbers are not those of another one.
    pub fn seed(self, seed: u64) -> u64 {
        seed.wrapping_add(self.from.wrapping_mul(SEED_STEP))
    }

    fn until(self, part: u64, count: u64) -> u64 {
        (u128::from(count) * u128::from(part) / u128::from(self.total)) as u64
    }
}

impl std::fmt::Display for LoadSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}/{}", self.from, self.to, self.total)
    }
}

impl Serialize for LoadSlice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LoadFlags;

    #[test]
    fn slices_of_a_number_add_up_to_it() {
        for bounds in [vec![0, 1, 3, 8], vec![0, 8], (0..=8).collect()] {
            for count in [0, 1, 7, 64, 2_000_001, u64::MAX] {
                let slices = bounds.windows(2).map(|pair| LoadSlice::new(pair[0], pair[1], 8).unwrap());
                let counts = slices.map(|slice| slice.count(count));
                assert_eq!(counts.sum::<u64>(), count, "{bounds:?}");
            }
        }
    }

    #[test]
    fn addresses_are_divided_if_there_are_enough() {
        let all: Vec<IpAddr> = (1..=5).map(|last| IpAddr::from([127, 0, 0, last])).collect();
        let half = |from| LoadSlice::new(from, from + 1, 2).unwrap().addresses(all.clone());
        assert_eq!((half(0), half(1)), (all[..2].to_vec(), all[2..].to_vec()));
        assert_eq!(LoadSlice::new(0, 1, 9).unwrap().addresses(all.clone()), all);
    }

    #[test]
    fn the_plans_of_all_slices_are_the_plan() {
        let plan = |slice: Option<&str>, stages: Option<&str>| {
            let text = |text: &str| Some(text.to_owned());
            let flags = LoadFlags {
                urls: vec!["http://127.0.0.1:1/".to_owned()],
                connections: text("7").filter(|_| stages.is_none_or(|stages| !stages.contains('c'))),
                rate: text("1000").filter(|_| stages.is_none()),
                requests: text("100001"),
                stages: stages.map(str::to_owned),
                slice: slice.map(str::to_owned),
                ..LoadFlags::default()
            };
            RunPlan::parse(&flags, 4)
        };
        let parts = ["0-1/4", "1-2/4", "2-4/4"].map(|slice| plan(Some(slice), None).unwrap());
        assert_eq!(parts.iter().map(|part| part.connections).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(parts.iter().filter_map(|part| part.end.requests).sum::<u64>(), 100_001);
        assert_eq!((parts[0].threads, parts[1].threads), (1, 2));
        let rates = parts.each_ref().map(|part| match part.pace {
            Pace::Open { rate_per_s, .. } => rate_per_s,
            Pace::Closed { .. } => 0.0,
        });
        assert_eq!(rates, [250.0, 250.0, 500.0]);
        assert_ne!(parts[0].seed, parts[1].seed);
        let problems = plan(Some("0-1/8"), None).unwrap_err();
        assert_eq!(problems[0].location, "--slice", "no connection");
        let staged = plan(Some("1-3/4"), Some("1s@100,1s@50")).unwrap().stages.unwrap();
        assert_eq!(staged.stages.iter().map(|(_, target)| *target).collect::<Vec<_>>(), [50.0, 25.0]);
        let staged = plan(Some("1-3/4"), Some("1s@7c,1s@2c")).unwrap();
        assert_eq!((staged.connections, staged.stages.unwrap().stages[1].1), (4, 1.0));
    }

    #[test]
    fn texts_are_parsed_as_they_are_written() {
        let slice = LoadSlice::parse("2-5/8").unwrap();
        assert_eq!((slice.to_string().as_str(), slice.fraction(), slice.phase()), ("2-5/8", 0.375, 0.25));
        for wrong in ["", "1/2", "2-2/8", "5-2/8", "0-9/8", "0-1/0", "a-b/c", "-1-2/8"] {
            assert!(LoadSlice::parse(wrong).is_err(), "{wrong}");
        }
    }
}
