//! Stages of a load: targets of the rate or of the connections, each reached evenly within its time; and
//! distributions of the think time. Pure.

use record::invalid_value;
use record::problem::InvalidValue;
use record::units::{
    DurationUnit, SECOND_NS, format_duration_flag, parse_count, parse_duration_ns, parse_rate,
};
use serde::{Serialize, Serializer};

use super::LoadSlice;
use crate::pace::RateProfile;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageQuantity {
    /// Requests per second.
    Rate,
    Connections,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    text: String,
    pub quantity: StageQuantity,
    /// Length in ns, and target.
    pub stages: Vec<(u64, f64)>,
    profile: RateProfile,
}

const STAGES_MAX: usize = 1000;

impl Stages {
    /// Parses `10s@1k,30s@5k,10s@0`; connections have a `c`: `10s@100c`.
    ///
    /// # Errors
    /// Reason why the text has no stages.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong = |part: &str| {
            invalid_value!("'{part}' is not a stage (write 10s@1k, or 10s@100c for connections)")
        };
        let (mut stages, mut quantity) = (Vec::new(), None);
        for part in text.split(',').map(str::trim) {
            let (length, target) = part.split_once('@').ok_or_else(|| wrong(part))?;
            let length_ns = parse_duration_ns(length, DurationUnit::Seconds)?;
            let (this, target) = match target.strip_suffix('c') {
                Some(count) => {
                    (StageQuantity::Connections, parse_count(count).map_err(|_| wrong(part))? as f64)
                }
                None => (StageQuantity::Rate, parse_rate(target).map_err(|_| wrong(part))?),
            };
            if quantity.replace(this).is_some_and(|other| other != this) {
                return Err(invalid_value!("'{text}' mixes rates and connections"));
            }
            stages.push((length_ns, target));
        }
        let quantity = quantity.ok_or_else(|| wrong(text))?;
        if stages.len() > STAGES_MAX {
            return Err(invalid_value!("more than {STAGES_MAX} stages"));
        }
        if stages.iter().all(|(_, target)| *target == 0.0) {
            return Err(invalid_value!("'{text}' has no target above 0"));
        }
        if stages.iter().all(|(length_ns, _)| *length_ns == 0) {
            return Err(invalid_value!("'{text}' takes no time"));
        }
        let profile =
            RateProfile::stages(stages.iter().map(|(length_ns, target)| (*length_ns as f64 / 1e9, *target)));
        Ok(Self { text: text.to_owned(), quantity, stages, profile })
    }

    /// Returns the stages of a slice of the load.
    ///
    /// # Errors
    /// The slice has no target above 0.
    pub(super) fn sliced(&self, slice: LoadSlice) -> Result<Self, InvalidValue> {
        let part = |target: f64| match self.quantity {
            StageQuantity::Rate => slice.rate(target),
            StageQuantity::Connections => slice.count(target as u64) as f64,
        };
        let stages: Vec<(u64, f64)> =
            self.stages.iter().map(|(length_ns, target)| (*length_ns, part(*target))).collect();
        if stages.iter().all(|(_, target)| *target == 0.0) {
            return Err(invalid_value!("slice {slice} has no connection in any stage"));
        }
        let profile =
            RateProfile::stages(stages.iter().map(|(length_ns, target)| (*length_ns as f64 / 1e9, *target)));
        Ok(Self { text: self.text.clone(), quantity: self.quantity, stages, profile })
    }

    pub fn duration_ns(&self) -> u64 {
        self.stages.iter().fold(0, |sum: u64, (length_ns, _)| sum.saturating_add(*length_ns))
    }

    /// Returns the largest target.
    pub fn max(&self) -> f64 {
        self.stages.iter().fold(0.0, |max, (_, target)| target.max(max))
    }

    /// Returns the target over time.
    #[inline]
    pub fn profile(&self) -> &RateProfile {
        &self.profile
    }

    /// Returns the first time from `at_ns` at which connection `number` sends requests, both after the
    /// start; `None` if it sends none any more.
    #[inline]
    pub fn next_active_ns(&self, number: u64, at_ns: u64) -> Option<u64> {
        let at_s = self.profile.next_above(number as f64, at_ns as f64 / SECOND_NS as f64)?;
        Some(((at_s * SECOND_NS as f64) as u64).max(at_ns))
    }
}

impl Serialize for Stages {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// Distribution of the think time around its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkDistribution {
    /// Always the mean.
    #[default]
    Constant,
    Exponential,
    /// Evenly between two times, in ns.
    Uniform {
        min_ns: u64,
        max_ns: u64,
    },
    /// Log-normal: many short and few long times.
    LogNormal {
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl ThinkDistribution {
    pub fn is_constant(&self) -> bool {
        *self == Self::Constant
    }

    /// Parses a think time with its distribution. Returns the mean in ns, too.
    ///
    /// # Errors
    /// The text is none.
    pub fn parse(text: &str) -> Result<(u64, Self), InvalidValue> {
        let time = |text: &str| parse_duration_ns(text, DurationUnit::Milliseconds);
        let wrong = || {
            invalid_value!(
                "'{text}' is not a think time (write 50ms, exp:50ms, uniform:10ms-90ms or lognormal:50ms:0.5)"
            )
        };
        let Some((kind, argument)) = text.split_once(':') else { return Ok((time(text)?, Self::Constant)) };
        match kind {
            "exp" => Ok((time(argument)?, Self::Exponential)),
            "uniform" => {
                let (min, max) = argument.split_once('-').ok_or_else(wrong)?;
                let (min_ns, max_ns) = (time(min)?, time(max)?);
                if min_ns > max_ns {
                    return Err(wrong());
                }
                Ok((min_ns + (max_ns - min_ns) / 2, Self::Uniform { min_ns, max_ns }))
            }
            "lognormal" => {
                let (mean, sigma) = argument.split_once(':').unwrap_or((argument, "0.5"));
                let sigma =
                    sigma.parse().ok().filter(|sigma| (0.0..=3.0).contains(sigma)).ok_or_else(wrong)?;
                Ok((time(mean)?, Self::LogNormal { sigma }))
            }
            _ => Err(wrong()),
        }
    }

    #[must_use]
    #[inline]
    pub fn sample(&self, mean_ns: u64, random: &mut fastrand::Rng) -> u64 {
        match *self {
            Self::Constant => mean_ns,
            Self::Exponential => (-(1.0 - random.f64()).ln() * mean_ns as f64) as u64,
            Self::Uniform { min_ns, max_ns } => random.u64(min_ns..=max_ns),
            Self::LogNormal { sigma } => {
                // Box-Muller; the shift makes the mean that of the distribution.
                let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
                (mean_ns as f64 * (sigma * normal - sigma * sigma / 2.0).exp()) as u64
            }
        }
    }

    pub fn describe(&self, mean_ns: u64) -> String {
        let mean = format_duration_flag(mean_ns);
        match self {
            Self::Constant => mean,
            Self::Exponential => format!("exponential with a mean of {mean}"),
            Self::Uniform { min_ns, max_ns } => {
                format!("uniform from {} to {}", format_duration_flag(*min_ns), format_duration_flag(*max_ns))
            }
            Self::LogNormal { sigma } => format!("log-normal with a mean of {mean} and a sigma of {sigma}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_parsed_and_activate_connections() {
        let stages = Stages::parse("10s@1k, 30s@5k,10s@0").unwrap();
        assert_eq!((stages.duration_ns(), stages.max()), (50 * SECOND_NS, 5000.0));
        let stages = Stages::parse("10s@10c,10s@0c").unwrap();
        assert_eq!(stages.quantity, StageQuantity::Connections);
        assert_eq!(stages.next_active_ns(9, 11 * SECOND_NS), None);
        let at_ns = stages.next_active_ns(5, 0).unwrap();
        assert!((4_999_000_000..5_010_000_000).contains(&at_ns), "{at_ns}");
        assert_eq!(stages.next_active_ns(5, 6 * SECOND_NS), Some(6 * SECOND_NS));
        for wrong in ["", "10s", "10s@x", "x@1", "10s@1c,10s@5", "10s@0", "0s@5", "10s@1.5c"] {
            assert!(Stages::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn think_times_have_their_mean() {
        let mut random = fastrand::Rng::with_seed(3);
        for text in ["50ms", "exp:50ms", "uniform:10ms-90ms", "lognormal:50ms:0.5"] {
            let (mean_ns, distribution) = ThinkDistribution::parse(text).unwrap();
            assert_eq!(mean_ns, 50_000_000, "{text}");
            let sum: u64 = (0..20_000).map(|_| distribution.sample(mean_ns, &mut random)).sum();
            assert!((sum as f64 / 20_000.0 / 50e6 - 1.0).abs() < 0.03, "{text}: {sum}");
        }
        for wrong in ["x", "exp:", "uniform:5ms", "uniform:9ms-1ms", "lognormal:5ms:9", "normal:5ms"] {
            assert!(ThinkDistribution::parse(wrong).is_err(), "{wrong}");
        }
    }
}
