//! Backends of a proxy: groups of equal servers, each with its limit of concurrent requests.

use record::invalid_value;
use record::problem::InvalidValue;
use record::units::{DurationUnit, SECOND_NS, parse_count, parse_duration_ns, parse_rate};
use serde::Serialize;

/// Maximum number of backends of a plan, and of servers of a backend.
pub const BACKENDS_MAX: usize = 1_000;
pub const SERVERS_MAX: u64 = 100_000;
/// Maximum number of concurrent requests of a server.
pub const MAXCONN_MAX: u64 = 1_000_000;

/// Group of equal servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backend {
    pub name: String,
    pub servers: u64,
    /// Maximum number of concurrent requests of a server; `None` is unbounded.
    pub maxconn: Option<u64>,
    /// Requests per second of this backend alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Mean service time of its servers, in s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_s: Option<f64>,
}

impl Backend {
    /// Parses `app=18x2`, `18x2`, `pulse=3` (no limit) or `app=18x2,rate=500,service=20ms`. `number`
    /// names a backend without a name.
    ///
    /// # Errors
    /// The text is not a backend; the error says why.
    pub fn parse(text: &str, number: usize) -> Result<Self, InvalidValue> {
        let mut parts = text.split(',').map(str::trim);
        let size = parts.next().unwrap_or_default();
        let (name, size) = match size.split_once('=') {
            Some((name, size)) => (name.trim().to_owned(), size.trim()),
            None => (format!("backend{number}"), size),
        };
        if name.is_empty()
            || !name.chars().all(|character| character.is_ascii_alphanumeric() || "-_".contains(character))
        {
            return Err(invalid_value!("a name has letters, digits, '-' and '_': app=18x2"));
        }
        let (servers, maxconn) = match size.split_once(['x', '*']) {
            Some((servers, maxconn)) => (servers, Some(maxconn)),
            None => (size, None),
        };
        let within = |text: &str, max: u64, what: &str| match parse_count(text.trim()) {
            Ok(count) if (1..=max).contains(&count) => Ok(count),
            _ => Err(invalid_value!(
                "'{text}' is not a number of {what} from 1 to {max}: app=18x2 is 18 servers \
                              with 2 concurrent requests each"
            )),
        };
        let mut backend = Self {
            name,
            servers: within(servers, SERVERS_MAX, "servers")?,
            maxconn: maxconn.map(|text| within(text, MAXCONN_MAX, "concurrent requests")).transpose()?,
            rate_per_s: None,
            service_s: None,
        };
        for part in parts {
            match part.split_once('=') {
                Some(("rate", rate)) => {
                    backend.rate_per_s = Some(parse_rate(rate).and_then(positive)?);
                }
                Some(("service", time)) => {
                    let ns = parse_duration_ns(time, DurationUnit::Milliseconds)?;
                    backend.service_s = Some(positive(ns as f64 / SECOND_NS as f64)?);
                }
                _ => return Err(invalid_value!("'{part}': write rate=RATE or service=TIME")),
            }
        }
        Ok(backend)
    }

    /// Returns the number of requests that its servers take at a time; `None` is unbounded.
    pub fn slots(&self) -> Option<u64> {
        self.maxconn.map(|maxconn| maxconn * self.servers)
    }
}

/// Rejects 0.
pub(crate) fn positive(value: f64) -> Result<f64, InvalidValue> {
    if value > 0.0 { Ok(value) } else { Err(invalid_value!("must be above 0")) }
}

/// Parses `1:9185,4:28157,8:30310`: measured rates per second by the number of cores.
///
/// # Errors
/// The text is not such a list; the error says why.
pub fn parse_scaling(text: &str) -> Result<Vec<(f64, f64)>, InvalidValue> {
    let points = text.split(',').map(|point| {
        let (cores, rate) = point
            .split_once(':')
            .ok_or_else(|| invalid_value!("'{}': write CORES:RATE, for example 4:28157", point.trim()))?;
        let cores = parse_count(cores.trim())? as f64;
        let rate = positive(parse_rate(rate.trim())?)?;
        if (1.0..=1e6).contains(&cores) {
            Ok((cores, rate))
        } else {
            Err(invalid_value!("1 to 1000000 cores"))
        }
    });
    let points = points.collect::<Result<Vec<_>, _>>()?;
    if points.len() > BACKENDS_MAX { Err(invalid_value!("too many points")) } else { Ok(points) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_have_names_limits_rates_and_times() {
        let backend = Backend::parse("app=18x2,rate=1.5k,service=20ms", 1).unwrap();
        assert_eq!((backend.name.as_str(), backend.slots()), ("app", Some(36)));
        assert_eq!((backend.rate_per_s, backend.service_s), (Some(1500.0), Some(0.02)));
        let backend = Backend::parse("18*2", 3).unwrap();
        assert_eq!((backend.name.as_str(), backend.slots()), ("backend3", Some(36)));
        assert_eq!(Backend::parse("pulse=3", 1).unwrap().slots(), None);
        for wrong in ["", "x", "0x2", "2x0", "a b=1x1", "=1x1", "a=1x1,size=2", "a=1x1,rate=0"] {
            assert!(Backend::parse(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn scaling_is_a_list_of_points() {
        assert_eq!(parse_scaling("1:9185, 4:28.1k").unwrap(), [(1.0, 9185.0), (4.0, 28_100.0)]);
        for wrong in ["", "4", "0:1", "1:0", "a:1"] {
            assert!(parse_scaling(wrong).is_err(), "{wrong}");
        }
    }
}
