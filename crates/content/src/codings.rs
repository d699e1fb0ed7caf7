//! Content codings: their names, and the choice by `Accept-Encoding` (RFC 9110 §12.5.3). Pure.

use crate::request::{FileRequest, parse_element};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
    /// gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings; an earlier one is preferred if the client accepts both equally.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the extension of a file that is coded, with its dot.
    pub fn extension(self) -> &'static [u8] {
        match self {
            Self::Brotli => b".br",
            Self::Zstd => b".zst",
            Self::Gzip => b".gz",
        }
    }

    pub fn index(self) -> usize {
        self as usize
    }
}

/// Cost of a representation in a coding, the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodingCost {
    Precompressed,
    Encoded,
}

/// Qualities that a client gives to the codings, in thousandths; 0: not acceptable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCodings {
    by_coding: [u16; Coding::ALL.len()],
    /// Quality of the representation without a coding, if the client gives one.
    identity: Option<u16>,
}

/// Qualities as far as the field was read.
#[derive(Default)]
struct Qualities {
    by_coding: [Option<u16>; Coding::ALL.len()],
    identity: Option<u16>,
    wildcard: Option<u16>,
}

impl Qualities {
    /// Reads a value of the field.
    fn read(&mut self, value: &[u8]) {
        for element in value.split(|&byte| byte == b',') {
            let (name, quality) = parse_element(element);
            let coding = match name.to_ascii_lowercase().as_slice() {
                b"br" => Coding::Brotli,
                b"zstd" => Coding::Zstd,
                b"gzip" | b"x-gzip" => Coding::Gzip,
                b"identity" => {
                    self.identity = Some(quality);
                    continue;
                }
                b"*" => {
                    self.wildcard = Some(quality);
                    continue;
                }
                _ => continue,
            };
            self.by_coding[coding.index()] = Some(quality);
        }
    }

    fn finish(self) -> AcceptedCodings {
        let quality_or_wildcard = |quality: Option<u16>| quality.or(self.wildcard).unwrap_or(0);
        // A wildcard forbids it, but gives it no quality.
        let identity = self.identity.or_else(|| self.wildcard.filter(|&quality| quality == 0));
        AcceptedCodings { by_coding: self.by_coding.map(quality_or_wildcard), identity }
    }
}

impl AcceptedCodings {
    /// Parses the field. Without it, the client gets no coding.
    pub fn parse(request: &FileRequest<'_>) -> Self {
        let mut qualities = Qualities::default();
        request.for_each("accept-encoding", |value| qualities.read(value));
        qualities.finish()
    }

    /// Parses the values of the field.
    pub fn from_values<'v>(values: impl Iterator<Item = &'v [u8]>) -> Self {
        let mut qualities = Qualities::default();
        values.for_each(|value| qualities.read(value));
        qualities.finish()
    }

    /// Chooses the coding with the highest quality, and among equal ones the first of `preferred`; `None`: no
    /// coding.
    pub fn choose_of(&self, preferred: &[Coding]) -> Option<Coding> {
        let mut best: Option<(u16, Coding)> = None;
        for &coding in preferred {
            let quality = self.by_coding[coding.index()];
            let is_accepted = quality > 0 && quality >= self.identity.unwrap_or(0);
            if is_accepted && best.is_none_or(|(other, _)| quality > other) {
                best = Some((quality, coding));
            }
        }
        best.map(|(_, coding)| coding)
    }

    /// Returns whether the client accepts content without a coding.
    pub fn accepts_identity(&self) -> bool {
        self.identity != Some(0)
    }

    pub fn accepts(&self, coding: Coding) -> bool {
        self.by_coding[coding.index()] > 0
    }

    /// Chooses the coding with the highest quality, and among equal ones that with the lowest cost; `None`: no
    /// coding. `cost_of` returns `None` for one that is not available.
    pub fn choose(&self, mut cost_of: impl FnMut(Coding) -> Option<CodingCost>) -> Option<Coding> {
        let mut best: Option<(u16, CodingCost, Coding)> = None;
        for coding in Coding::ALL {
            let quality = self.by_coding[coding.index()];
            if quality == 0 || quality < self.identity.unwrap_or(0) {
                continue;
            }
            let Some(cost) = cost_of(coding) else { continue };
            let is_better = best.is_none_or(|(other_quality, other_cost, _)| {
                quality > other_quality || (quality == other_quality && cost < other_cost)
            });
            if is_better {
                best = Some((quality, cost, coding));
            }
        }
        best.map(|(.., coding)| coding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestFields;
    use wire::Header;

    fn choose(values: &[&str], available: &[Coding]) -> Option<Coding> {
        let headers: Vec<Header<'_>> =
            values.iter().map(|value| Header { name: "Accept-Encoding", value: value.as_bytes() }).collect();
        let request = FileRequest { method: "GET", target: "/", fields: RequestFields::Http1(&headers) };
        AcceptedCodings::parse(&request)
            .choose(|coding| available.contains(&coding).then_some(CodingCost::Encoded))
    }

    #[test]
    fn the_highest_quality_wins_and_then_the_better_coding() {
        use Coding::{Brotli, Gzip, Zstd};
        for (value, expected) in [
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("br;q=0.5, gzip;q=0.8", Some(Gzip)),
            ("br;q=0.5,gzip;q=0.5", Some(Brotli)),
            ("br;q=0, gzip;q=0.001", Some(Gzip)),
            ("*", Some(Brotli)),
            ("*;q=0.5, br;q=0", Some(Zstd)),
            ("gzip;q=0.5, identity", None),
            ("gzip;q=1.0, identity;q=0.5", Some(Gzip)),
            ("identity", None),
            ("*;q=0", None),
            ("gzip;q=2", None),
            ("gzip;q=0.1234", None),
            ("gzip;q=1.001", None),
            ("gzip ; q=0.5", Some(Gzip)),
            ("deflate", None),
            ("", None),
        ] {
            assert_eq!(choose(&[value], &Coding::ALL), expected, "{value}");
        }
    }

    #[test]
    fn only_available_codings_are_chosen() {
        assert_eq!(choose(&["br, gzip;q=0.2"], &[Coding::Gzip]), Some(Coding::Gzip));
        assert_eq!(choose(&["br"], &[Coding::Gzip]), None);
        assert_eq!(choose(&[], &Coding::ALL), None, "no field");
        assert_eq!(choose(&["br;q=0", "gzip"], &Coding::ALL), Some(Coding::Gzip), "two fields");
    }

    #[test]
    fn equal_qualities_follow_the_preference() {
        use Coding::{Brotli, Gzip, Zstd};
        let choose = |value: &str, preferred: &[Coding]| {
            AcceptedCodings::from_values([value.as_bytes()].into_iter()).choose_of(preferred)
        };
        assert_eq!(choose("br, gzip, zstd", &[Zstd, Gzip]), Some(Zstd));
        assert_eq!(choose("br, gzip, zstd;q=0.9", &[Zstd, Gzip]), Some(Gzip));
        assert_eq!(choose("br", &[Zstd, Gzip]), None);
        assert_eq!(choose("gzip;q=0.5, identity", &[Gzip]), None);
        assert_eq!(choose("*, br;q=0", &[Brotli, Gzip]), Some(Gzip));
        assert_eq!(AcceptedCodings::default().choose_of(&Coding::ALL), None);
        for (value, expected) in [("", true), ("gzip", true), ("*;q=0", false), ("*;q=0, identity", true)] {
            let accepted = AcceptedCodings::from_values([value.as_bytes()].into_iter());
            assert_eq!(accepted.accepts_identity(), expected, "{value}");
        }
        assert!(!AcceptedCodings::from_values([&b"gzip, identity;q=0"[..]].into_iter()).accepts_identity());
    }

    #[test]
    fn a_coded_file_is_preferred_to_an_encoder_with_the_same_quality() {
        let choose = |value: &str| {
            let headers = [Header { name: "Accept-Encoding", value: value.as_bytes() }];
            let request = FileRequest { method: "GET", target: "/", fields: RequestFields::Http1(&headers) };
            let cost_of = |coding| match coding {
                Coding::Gzip => Some(CodingCost::Precompressed),
                _ => Some(CodingCost::Encoded),
            };
            AcceptedCodings::parse(&request).choose(cost_of)
        };
        assert_eq!(choose("gzip, br, zstd"), Some(Coding::Gzip));
        assert_eq!(choose("gzip;q=0.9, br"), Some(Coding::Brotli), "the client prefers it");
        assert_eq!(choose("br, zstd"), Some(Coding::Brotli));
    }
}
