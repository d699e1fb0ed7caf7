//! The field `Range` (RFC 9110 §14): its parts for a representation of a known size. Pure.

/// Maximum number of ranges of a request; a field with more is ignored, and the response is complete.
pub const RANGES_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Byte after the last one.
    pub end: u64,
}

impl ByteRange {
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRanges {
    /// The complete representation: the field is not valid, or asks for more than that.
    Complete,
    /// No byte of any range exists.
    Unsatisfiable,
    /// One range or more, in the order of the request.
    Parts(Vec<ByteRange>),
}

/// Parses the field for a representation of `size` bytes.
pub fn parse(value: &[u8], size: u64) -> RequestedRanges {
    let Some(specs) = strip_unit(value) else { return RequestedRanges::Complete };
    let mut parts = Vec::new();
    let mut count = 0;
    for spec in specs.split(|&byte| byte == b',') {
        let spec = spec.trim_ascii();
        if spec.is_empty() {
            continue;
        }
        count += 1;
        let Some(range) = parse_spec(spec, size) else { return RequestedRanges::Complete };
        if count > RANGES_MAX {
            return RequestedRanges::Complete;
        }
        parts.extend(range.filter(|range| range.start < range.end));
    }
    let total = parts.iter().fold(0u64, |sum, range| sum.saturating_add(range.len()));
    match parts.len() {
        _ if count == 0 => RequestedRanges::Complete,
        0 => RequestedRanges::Unsatisfiable,
        // Overlapping ranges would multiply the size of the response.
        2.. if total > size => RequestedRanges::Complete,
        _ => RequestedRanges::Parts(parts),
    }
}

/// Removes `bytes=`; `None`: another unit.
fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let equals = value.iter().position(|&byte| byte == b'=')?;
    value[..equals].eq_ignore_ascii_case(b"bytes").then_some(&value[equals + 1..])
}

/// Parses one range. `None`: not valid. The inner `None`: no byte of it exists.
fn parse_spec(spec: &[u8], size: u64) -> Option<Option<ByteRange>> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let length = parse_position(last)?;
        return Some((length > 0).then(|| ByteRange { start: size.saturating_sub(length), end: size }));
    }
    let start = parse_position(first)?;
    let end = if last.is_empty() { size } else { parse_position(last)?.saturating_add(1) };
    if end <= start && !last.is_empty() {
        return None;
    }
    Some((start < size).then(|| ByteRange { start, end: end.min(size) }))
}

/// Parses digits; a number that does not fit is the highest one.
fn parse_position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add_digit =
        |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(value: &str, size: u64) -> RequestedRanges {
        parse(value.as_bytes(), size)
    }

    fn ranges(expected: &[(u64, u64)]) -> RequestedRanges {
        RequestedRanges::Parts(expected.iter().map(|&(start, end)| ByteRange { start, end }).collect())
    }

    #[test]
    fn ranges_are_clipped_to_the_representation() {
        for (value, expected) in [
            ("bytes=0-0", &[(0, 1)][..]),
            ("bytes=0-99", &[(0, 100)]),
            ("bytes=0-1000", &[(0, 100)]),
            ("bytes=90-", &[(90, 100)]),
            ("bytes=-10", &[(90, 100)]),
            ("bytes=-1000", &[(0, 100)]),
            ("BYTES=1-2", &[(1, 3)]),
            ("bytes=0-0,-1", &[(0, 1), (99, 100)]),
            ("bytes= 5-6 , ,\t1-2", &[(5, 7), (1, 3)]),
            ("bytes=200-300,1-2", &[(1, 3)]),
            ("bytes=0-99999999999999999999999", &[(0, 100)]),
            ("bytes=-0,3-3", &[(3, 4)]),
        ] {
            assert_eq!(parts(value, 100), ranges(expected), "{value}");
        }
    }

    #[test]
    fn ranges_without_bytes_are_unsatisfiable() {
        for value in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(parts(value, 100), RequestedRanges::Unsatisfiable, "{value}");
        }
        for value in ["bytes=0-", "bytes=-5"] {
            assert_eq!(parts(value, 0), RequestedRanges::Unsatisfiable, "{value}");
        }
    }

    #[test]
    fn invalid_and_excessive_fields_are_ignored() {
        let many = format!("bytes={}", "1-2,".repeat(RANGES_MAX + 1));
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=a-b",
            "bytes=5",
            "bytes=2-1",
            "items=0-1",
            "bytes=-",
            "bytes=1 -2",
            &many,
        ] {
            assert_eq!(parts(value, 100), RequestedRanges::Complete, "{value}");
        }
        assert_eq!(parts("bytes=0-,0-", 100), RequestedRanges::Complete, "twice the representation");
        assert!(matches!(parts("bytes=0-49,50-99", 100), RequestedRanges::Parts(_)));
    }
}
