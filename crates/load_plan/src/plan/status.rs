//! Sets of statuses in their text form: `200`, `2xx`, `200,204,3xx`.

use record::invalid_value;
use record::problem::InvalidValue;
use serde::{Serialize, Serializer};

/// Expected statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSet {
    text: String,
    ranges: Vec<(u16, u16)>,
}

impl StatusSet {
    /// Parses a set.
    ///
    /// # Errors
    /// Reason why the text is not a set.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        let ranges = text.split(',').map(|part| parse_range(part.trim()));
        Ok(Self { text: text.to_owned(), ranges: ranges.collect::<Result<_, _>>()? })
    }

    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        self.ranges.iter().any(|&(first, last)| (first..=last).contains(&status))
    }
}

fn parse_range(part: &str) -> Result<(u16, u16), InvalidValue> {
    let error = || invalid_value!("'{part}' is not a status (write 200, 2xx or 200,204)");
    if let Some(class) = part.strip_suffix("xx") {
        let class: u16 = class.parse().map_err(|_| error())?;
        // RFC 9110, section 15; a single status may be any that a server can send.
        return match class {
            1..=5 => Ok((class * 100, class * 100 + 99)),
            _ => Err(invalid_value!("'{part}' is not a status class (1xx to 5xx)")),
        };
    }
    let status: u16 = part.parse().map_err(|_| error())?;
    if (100..=999).contains(&status) { Ok((status, status)) } else { Err(error()) }
}

impl Serialize for StatusSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        let set = StatusSet::parse("200, 3xx").unwrap();
        assert!(set.contains(200) && set.contains(304) && !set.contains(201));
        for wrong in ["", "2x", "0xx", "9xx", "99", "1000", "axx", "200,"] {
            assert!(StatusSet::parse(wrong).is_err(), "{wrong}");
        }
    }
}
