//! Versions of HTTP of a load: the share of the connections with HTTP/2, its streams and windows,
//! and calls of gRPC. Parsed from the flags; no I/O.

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{parse_count, parse_size};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1 (RFC 9112).
    Http1,
    /// HTTP/2 (RFC 9113).
    Http2,
}

impl HttpVersion {
    /// Returns its protocol name in ALPN (RFC 7301).
    #[must_use]
    #[inline]
    pub fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// Settings of the connections with HTTP/2.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Http2Plan {
    /// Fraction of the connections with HTTP/2; the others have HTTP/1.1.
    pub fraction: f64,
    /// Maximum concurrent streams of a connection.
    pub streams: u64,
    pub window_bytes: u32,
    pub connection_window_bytes: u32,
    /// True if the requests are unary calls of gRPC.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub grpc: bool,
}

/// Flags of HTTP versions, as they were typed.
#[derive(Clone, Debug, Default)]
pub struct HttpFlags {
    pub http: Option<String>,
    pub mix: Option<String>,
    pub streams: Option<String>,
    pub window: Option<String>,
    pub connection_window: Option<String>,
    pub grpc: bool,
}

pub const STREAMS_MAX: u64 = 10_000;
/// Default of the windows: 1 GiB, so that flow control limits no response. Weir discards content at
/// once, so a large window costs no memory.
pub const WINDOW_BYTES_DEFAULT: u32 = 1 << 30;
/// Maximum window (RFC 9113 §6.9.1).
pub const WINDOW_BYTES_MAX: u64 = (1 << 31) - 1;
/// Initial window of a connection, which cannot be made smaller (RFC 9113 §6.9.2).
pub const CONNECTION_WINDOW_BYTES_MIN: u64 = 65_535;

impl Http2Plan {
    /// Parses the flags. Returns the settings, `None` if every connection has HTTP/1.1, and every
    /// problem.
    pub(super) fn parse(text: &HttpFlags) -> (Option<Self>, Vec<InputProblem>) {
        let mut problems = Vec::new();
        let fraction = http2_fraction(text).unwrap_or_else(|problem| {
            problems.push(problem);
            1.0
        });
        let mut read = |flag: &str, text: &Option<String>, default: u64, (min, max): (u64, u64), is_size| {
            let Some(text) = text else { return default };
            let parsed = if is_size { parse_size(text) } else { parse_count(text) };
            match parsed {
                Ok(value) if (min..=max).contains(&value) => return value,
                Ok(value) => {
                    let why = format!("{value} is not within {min} to {max}");
                    problems.push(InputProblem::new(flag, why));
                }
                Err(why) => problems.push(InputProblem::new(flag, why)),
            }
            default
        };
        let window_default = u64::from(WINDOW_BYTES_DEFAULT);
        let connection_range = (CONNECTION_WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        let streams = read("--streams", &text.streams, 1, (1, STREAMS_MAX), false);
        let window = read("--window", &text.window, window_default, (1, WINDOW_BYTES_MAX), true);
        let connection_window =
            read("--connection-window", &text.connection_window, window_default, connection_range, true);
        if fraction <= 0.0 {
            problems.extend(text.problems_without_http2());
        } else if text.grpc && fraction < 1.0 {
            problems.push(InputProblem::new("--grpc", "gRPC needs HTTP/2 on every connection: remove --mix"));
        }
        // Within the range of a window, which fits.
        let window_bytes = |bytes: u64| u32::try_from(bytes).unwrap_or(WINDOW_BYTES_DEFAULT);
        let plan = Self {
            fraction,
            streams,
            window_bytes: window_bytes(window),
            connection_window_bytes: window_bytes(connection_window),
            grpc: text.grpc,
        };
        ((fraction > 0.0).then_some(plan), problems)
    }
}

impl HttpFlags {
    /// Returns a problem for each flag that has no effect without HTTP/2.
    fn problems_without_http2(&self) -> impl Iterator<Item = InputProblem> {
        let given = [
            ("--streams", self.streams.is_some()),
            ("--window", self.window.is_some()),
            ("--connection-window", self.connection_window.is_some()),
            ("--grpc", self.grpc),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        given.map(|(flag, _)| InputProblem::new(flag, "no effect with HTTP/1.1: add --http 2"))
    }
}

/// Returns the fraction of the connections with HTTP/2.
fn http2_fraction(text: &HttpFlags) -> Result<f64, InputProblem> {
    let Some(mix) = &text.mix else {
        return match text.http.as_deref() {
            None | Some("1.1") => Ok(0.0),
            Some("2") => Ok(1.0),
            Some(other) => Err(InputProblem::new("--http", format!("'{other}' is neither 1.1 nor 2"))),
        };
    };
    if text.http.is_some() {
        return Err(InputProblem::new("--mix", "--http sets one version for all: remove one of them"));
    }
    parse_mix(mix).map_err(|why| InputProblem::new("--mix", why))
}

/// Parses weights such as `1.1=70,2=30`. Returns the fraction of version 2.
fn parse_mix(text: &str) -> Result<f64, InvalidValue> {
    let wrong = || invalid_value!("'{text}' is not a mix (write 1.1=70,2=30)");
    let mut weights = [None; 2];
    for part in text.split(',') {
        let (version, weight) = part.trim().split_once('=').ok_or_else(wrong)?;
        let index = match version {
            "1.1" => 0,
            "2" => 1,
            _ => return Err(wrong()),
        };
        let weight = parse_count(weight).map_err(|_| wrong())?;
        if weights[index].replace(weight).is_some() {
            return Err(invalid_value!("'{text}' has version {version} twice"));
        }
    }
    let [first, second] = weights.map(|weight| weight.unwrap_or(0) as f64);
    if first + second == 0.0 { Err(wrong()) } else { Ok(second / (first + second)) }
}

/// Returns whether item `number`, from 0, belongs to a fraction of all items. The choice is even:
/// any sequence of items has `fraction` of them, to within one.
#[inline]
pub fn is_in_fraction(number: u64, fraction: f64) -> bool {
    // Products such as 0.29 * 100 are a little below the integer.
    let chosen_of = |count: u64| (count as f64 * fraction + 1e-6) as u64;
    chosen_of(number + 1) > chosen_of(number)
}

/// Status of a call of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcStatus {
    /// Code of the `grpc-status` field; 0 is success.
    Code(u32),
    /// The field is missing or not a number.
    Missing,
}

impl GrpcStatus {
    #[must_use]
    #[inline]
    pub fn parse(value: &[u8]) -> Self {
        let code = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        code.map_or(Self::Missing, Self::Code)
    }

    #[inline]
    pub fn is_ok(self) -> bool {
        self == Self::Code(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: HttpFlags) -> (Option<Http2Plan>, Vec<String>) {
        let (plan, problems) = Http2Plan::parse(&flags);
        (plan, problems.into_iter().map(|problem| problem.location).collect())
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn http1_is_the_default_and_has_no_streams() {
        assert_eq!(parse(HttpFlags::default()), (None, Vec::new()));
        let flags = HttpFlags {
            streams: some("4"),
            window: some("64k"),
            connection_window: some("1m"),
            grpc: true,
            ..HttpFlags::default()
        };
        let (plan, problems) = parse(flags.clone());
        assert_eq!(
            (plan, problems),
            (None, ["--streams", "--window", "--connection-window", "--grpc"].map(Into::into).to_vec())
        );
        let (plan, problems) = parse(HttpFlags { http: some("2"), ..flags });
        let plan = plan.unwrap();
        assert!(problems.is_empty() && plan.grpc);
        assert_eq!((plan.streams, plan.window_bytes, plan.connection_window_bytes), (4, 65_536, 1 << 20));
    }

    #[test]
    fn every_wrong_value_is_a_problem() {
        let flags = HttpFlags {
            http: some("3"),
            streams: some("0"),
            window: some("2G"),
            connection_window: some("1k"),
            ..HttpFlags::default()
        };
        let expected = ["--http", "--streams", "--window", "--connection-window"];
        assert_eq!(parse(flags).1, expected);
        for mix in ["", "2", "3=1", "2=0", "1.1=x", "2=1,2=1"] {
            assert_eq!(parse(HttpFlags { mix: some(mix), ..HttpFlags::default() }).1, ["--mix"], "{mix}");
        }
        let both = HttpFlags { http: some("2"), mix: some("2=1"), ..HttpFlags::default() };
        assert_eq!(parse(both).1, ["--mix"]);
    }

    #[test]
    fn a_mix_is_a_share_of_the_connections() {
        for (text, fraction) in [("1.1=70,2=30", 0.3), ("2=1", 1.0), ("2=1,1.1=3", 0.25), ("1.1=1", 0.0)] {
            assert_eq!(parse_mix(text), Ok(fraction), "{text}");
        }
        let http2_connections = (0..10).filter(|number| is_in_fraction(*number, 0.3)).count();
        assert_eq!(http2_connections, 3);
    }

    #[test]
    fn a_status_that_is_no_number_is_missing() {
        let parsed = [&b"0"[..], b"14", b"", b"-1", b"x"].map(GrpcStatus::parse);
        let missing = GrpcStatus::Missing;
        assert_eq!(parsed, [GrpcStatus::Code(0), GrpcStatus::Code(14), missing, missing, missing]);
        assert!(parsed[0].is_ok() && !parsed[1].is_ok() && !missing.is_ok());
    }
}
