//! The options of request targets: their names, their meaning and their syntax.
//!
//! The language is that of httpterm without its pitfalls, so that existing benchmarks run
//! unchanged. One table defines it; the help page, the reference and the tests come from it. No I/O;
//! `response_spec.rs` applies the options to a response.

use crate::distribution::{OptionValue, ValueUnit, parse_value};

/// Names of the options, in the order of [`OPTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionName {
    Size,
    Status,
    Delay,
    Cache,
    Close,
    KeepAlive,
    ContentLength,
    ReadMax,
    Chunk,
    Etag,
    Random,
    WriteSize,
    Pause,
    Timing,
    IdleTimeout,
    Splice,
    Cpu,
    Allocations,
}

#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    pub name: OptionName,
    /// Name in a target, before the `=`.
    pub key: &'static str,
    pub unit: ValueUnit,
    /// Default value, in the unit in which values are stored.
    pub default: i64,
    /// Maximum value; a higher one is lowered to it.
    pub max: i64,
    /// Effect, one sentence without its full stop.
    pub description: &'static str,
    pub example: &'static str,
}

/// Maximum delay and pause of a request, in nanoseconds: 60 s.
pub const DELAY_MAX_NS: i64 = 60_000_000_000;
/// Maximum size of a body: 1 TiB.
pub const SIZE_MAX: i64 = 1 << 40;
/// Maximum wait for a next request, in nanoseconds: an hour.
pub const WAIT_MAX_NS: i64 = 3_600_000_000_000;
/// Maximum CPU time of a request, in nanoseconds: 1 s. Its core does nothing else meanwhile.
pub const CPU_MAX_NS: i64 = 1_000_000_000;
pub const ALLOCATIONS_MAX: i64 = 1_000_000;

const NO_MAX: i64 = i64::MAX;

#[rustfmt::skip]
const fn option_spec(name: OptionName, key: &'static str, unit: ValueUnit, default: i64, max: i64, description: &'static str, example: &'static str) -> OptionSpec {
    OptionSpec { name, key, unit, default, max, description, example }
}

#[rustfmt::skip]
pub static OPTIONS: [OptionSpec; 18] = [
    option_spec(OptionName::Size, "s", ValueUnit::Plain, 0, SIZE_MAX, "size of the body in bytes, max 1 TiB; HEAD, 1xx, 204 and 304 have no body", "s=10k"),
    option_spec(OptionName::Status, "r", ValueUnit::Plain, 200, 999, "status, from 100 to 999; HTTP/2 sends 1xx except 101 as an interim response before an empty 200", "r=503"),
    option_spec(OptionName::Delay, "t", ValueUnit::Milliseconds, 0, DELAY_MAX_NS, "delay between the complete request and the response, in ms or with the suffix us, ms or s; max 60 s; accurate to about 50 µs", "t=250us"),
    option_spec(OptionName::Cache, "c", ValueUnit::Plain, 1, NO_MAX, "below 1: the response has Cache-Control: no-cache", "c=0"),
    option_spec(OptionName::Close, "C", ValueUnit::Plain, -1, NO_MAX, "1: close the connection after the response (HTTP/2: GOAWAY, and close after the last stream); 0: keep it open; both override the client's Connection", "C=1"),
    option_spec(OptionName::KeepAlive, "K", ValueUnit::Plain, -1, NO_MAX, "1: keep the connection open after the response; 0: close it; both override the client's Connection", "K=1"),
    option_spec(OptionName::ContentLength, "b", ValueUnit::Plain, -1, SIZE_MAX, "Content-Length to send: negative: the correct one; 0: none (the body ends with the connection); above 0: this one, correct or not, and the connection closes unless K=1 (HTTP/2: never closes for it)", "b=100k"),
    option_spec(OptionName::ReadMax, "B", ValueUnit::Plain, -1, SIZE_MAX, "bytes of the request's body to read before the response, negative: all; the rest is read after the response, over HTTP/2 and without `content-length` up to 4 MiB if that is a 2xx", "B=16k"),
    option_spec(OptionName::Chunk, "k", ValueUnit::Plain, 0, 1 << 30, "above 0: chunked, with this number of data bytes in each chunk (httpterm: always one byte); HTTP/2: DATA frames of this size, without a content-length", "k=1"),
    option_spec(OptionName::Etag, "e", ValueUnit::Plain, 0, NO_MAX, "above 0: an ETag, the hash of the target and this number", "e=1"),
    option_spec(OptionName::Random, "R", ValueUnit::Plain, 0, NO_MAX, "above 0: a body of random bytes, incompressible within 64 kB", "R=1"),
    option_spec(OptionName::WriteSize, "p", ValueUnit::Plain, 0, SIZE_MAX, "above 0: max bytes per write; HTTP/2: also max bytes per DATA frame", "p=1k"),
    option_spec(OptionName::Pause, "P", ValueUnit::Milliseconds, 0, DELAY_MAX_NS, "pause after the response, before the next request or the close, in ms or with a suffix; max 60 s; HTTP/2: only before a close by C=1", "P=100"),
    option_spec(OptionName::Timing, "v", ValueUnit::Plain, 0, NO_MAX, "not 0: the fields X-req and X-rsp report the sizes and times of the request and the response", "v=1"),
    option_spec(OptionName::IdleTimeout, "w", ValueUnit::Milliseconds, -1, WAIT_MAX_NS, "timeout for the next request (HTTP/2: without a stream), in ms or with a suffix, in steps of 100 ms; max 1 h", "w=5s"),
    option_spec(OptionName::Splice, "S", ValueUnit::Plain, 1, NO_MAX, "httpterm's switch for splice(2): accepted, without effect", "S=0"),
    option_spec(OptionName::Cpu, "cpu", ValueUnit::Microseconds, 0, CPU_MAX_NS, "CPU time to use before the response, in µs or with a suffix; max 1 s; blocks all other requests of the thread", "cpu=50"),
    option_spec(OptionName::Allocations, "alloc", ValueUnit::Plain, 0, ALLOCATIONS_MAX, "blocks of 64 to 1024 bytes to allocate and free before the response, max 1,000,000", "alloc=100"),
];

const OPTION_COUNT: usize = OPTIONS.len();

/// Options of a target: one value per option.
#[derive(Clone, Debug, PartialEq)]
pub struct UrlOptions {
    values: [OptionValue; OPTION_COUNT],
    /// True if the target contained an unknown option; the options before it apply.
    pub has_unknown: bool,
}

impl Default for UrlOptions {
    fn default() -> Self {
        Self {
            values: std::array::from_fn(|index| OptionValue::Fixed(OPTIONS[index].default)),
            has_unknown: false,
        }
    }
}

impl UrlOptions {
    /// Draws the value of one option for one request, within its bounds.
    #[inline]
    pub fn draw(&self, name: OptionName, rng: &mut fastrand::Rng) -> i64 {
        let option = &OPTIONS[name as usize];
        self.values[name as usize].draw(option.default, rng).min(option.max)
    }

    /// Returns true if every request with this target gets the same values.
    pub fn is_fixed(&self) -> bool {
        self.values.iter().all(OptionValue::is_fixed)
    }
}

#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // It is matched once and never stored; a box would cost more.
pub enum TargetKind {
    Help,
    Stats,
    Response(UrlOptions),
}

/// Parses a request target: `/` is the help page, `/stats` the counters, anything else a response
/// by the options after its first `?`; without one, an empty 200.
pub fn parse_target(target: &[u8]) -> TargetKind {
    let Some(question_mark) = target.iter().position(|&byte| byte == b'?') else {
        return match target_path(target) {
            b"/" | b"" => TargetKind::Help,
            b"/stats" => TargetKind::Stats,
            _ => TargetKind::Response(UrlOptions::default()),
        };
    };
    TargetKind::Response(parse_options(&target[question_mark + 1..]))
}

/// Returns the path of an origin-form or absolute-form target without a query (RFC 9112 §3.2).
fn target_path(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    let Some(scheme) = target.windows(3).position(|window| window == b"://") else {
        return target;
    };
    let authority = &target[scheme + 3..];
    let slash = authority.iter().position(|&byte| byte == b'/');
    slash.map_or(b"", |index| &authority[index..])
}

/// Parses the options. Like httpterm, it stops at the first invalid form and keeps the options
/// before it; unlike httpterm, it records that.
fn parse_options(mut rest: &[u8]) -> UrlOptions {
    let mut options = UrlOptions::default();
    while !rest.is_empty() {
        let Some((option, name_len)) = find_option(rest) else {
            options.has_unknown = true;
            return options;
        };
        let after = &rest[name_len + 1..];
        let (value, used) = parse_value(after, option.map_or(ValueUnit::Plain, |row| row.unit));
        match option {
            Some(option) => options.values[option.name as usize] = value,
            // A letter with a number that httpterm does not know either: skipped.
            None => options.has_unknown = true,
        }
        rest = match &after[used..] {
            [] => return options,
            [b'&' | b'?' | b',' | b';' | b'/', next @ ..] => next,
            _ => {
                options.has_unknown = true;
                return options;
            }
        };
    }
    options
}

/// Returns the row of the name that `rest` starts with, and the length of the name. The row is
/// absent for a single letter that is not in the table. Returns `None` if this is not the form of
/// an option.
#[inline]
fn find_option(rest: &[u8]) -> Option<(Option<&'static OptionSpec>, usize)> {
    let length = rest.iter().take(8).position(|&byte| byte == b'=')?;
    let name = &rest[..length];
    let option = OPTIONS.iter().find(|row| row.key.as_bytes() == name);
    (option.is_some() || (length == 1 && name[0].is_ascii_alphabetic())).then_some((option, length))
}

#[cfg(test)]
mod tests;
