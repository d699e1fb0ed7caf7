//! The language of request targets: which options there are, what they mean, how they are read.
//!
//! It is httpterm's, so that existing benches run unchanged, with its traps mended. One table says
//! it all: the help page, the reference and the tests are made from it. Pure; what an option does
//! to an answer is in `answer.rs`.

use crate::distribution::{Unit, Value, parse_value};

/// The options, in the order of [`OPTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Name {
    Size,
    Status,
    Delay,
    Cache,
    Close,
    Keep,
    Advertised,
    ReadMax,
    Chunk,
    Etag,
    Random,
    Piece,
    Pause,
    Timing,
    Wait,
    Splice,
    Cpu,
    Allocations,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which one.
    pub name: Name,
    /// As it is written before the `=`.
    pub letters: &'static str,
    /// What a number counts.
    pub unit: Unit,
    /// The value when it is not given, in the unit that values are held in.
    pub default: i64,
    /// The highest value; more is lowered to it.
    pub max: i64,
    /// What it does, one sentence without its full stop.
    pub meaning: &'static str,
    /// An example, as it stands in a target.
    pub example: &'static str,
}

/// The longest delay and pause that can be asked for, in nanoseconds: 60 s.
pub const DELAY_MAX_NS: i64 = 60_000_000_000;
/// The largest body that can be asked for: 1 TiB.
pub const SIZE_MAX: i64 = 1 << 40;
/// The longest wait for a next request that can be asked for, in nanoseconds: an hour.
pub const WAIT_MAX_NS: i64 = 3_600_000_000_000;
/// The most processor time that a request can ask for, in nanoseconds: 1 s. Its core does nothing
/// else meanwhile.
pub const CPU_MAX_NS: i64 = 1_000_000_000;
/// The most allocations that a request can ask for.
pub const ALLOCATIONS_MAX: i64 = 1_000_000;

const NO_MAX: i64 = i64::MAX;

#[rustfmt::skip]
const fn row(name: Name, letters: &'static str, unit: Unit, default: i64, max: i64, meaning: &'static str, example: &'static str) -> Row {
    Row { name, letters, unit, default, max, meaning, example }
}

/// The table.
#[rustfmt::skip]
pub static OPTIONS: [Row; 18] = [
    row(Name::Size, "s", Unit::Plain, 0, SIZE_MAX, "size of the body in bytes, at most 1 TiB; HEAD, 1xx, 204 and 304 have none", "s=10k"),
    row(Name::Status, "r", Unit::Plain, 200, 999, "status, any from 100 to 999", "r=503"),
    row(Name::Delay, "t", Unit::Milliseconds, 0, DELAY_MAX_NS, "time to wait before answering, once the request is whole, in ms or with us, ms or s; at most 60 s; kept to some 50 us", "t=250us"),
    row(Name::Cache, "c", Unit::Plain, 1, NO_MAX, "below 1: the answer says Cache-Control: no-cache", "c=0"),
    row(Name::Close, "C", Unit::Plain, -1, NO_MAX, "1: close the connection after the answer; 0: keep it, whatever the client said", "C=1"),
    row(Name::Keep, "K", Unit::Plain, -1, NO_MAX, "1: keep the connection, whatever the client said; 0: close it", "K=1"),
    row(Name::Advertised, "b", Unit::Plain, -1, SIZE_MAX, "Content-Length to say: negative the true one, 0 none (the connection's end is the body's), else this one, true or not; then the connection closes unless K=1", "b=100k"),
    row(Name::ReadMax, "B", Unit::Plain, -1, SIZE_MAX, "bytes of the request's body to read before answering, negative all; the rest is read after the answer", "B=16k"),
    row(Name::Chunk, "k", Unit::Plain, 0, 1 << 30, "above 0: chunked, with so many data bytes a chunk (httpterm has one, whatever the number)", "k=1"),
    row(Name::Etag, "e", Unit::Plain, 0, NO_MAX, "above 0: an ETag, which is a hash of the target and this number", "e=1"),
    row(Name::Random, "R", Unit::Plain, 0, NO_MAX, "above 0: the body is random bytes, which do not compress within 64 kB", "R=1"),
    row(Name::Piece, "p", Unit::Plain, 0, SIZE_MAX, "above 0: send in pieces of at most so many bytes, a write each", "p=1k"),
    row(Name::Pause, "P", Unit::Milliseconds, 0, DELAY_MAX_NS, "time to pause after answering, before the next request or the close, in ms or with a unit; at most 60 s", "P=100"),
    row(Name::Timing, "v", Unit::Plain, 0, NO_MAX, "not 0: X-req and X-rsp tell the sizes and the times of the request and the answer", "v=1"),
    row(Name::Wait, "w", Unit::Milliseconds, -1, WAIT_MAX_NS, "time to wait for the next request, in ms or with a unit, in steps of 100 ms; at most an hour", "w=5s"),
    row(Name::Splice, "S", Unit::Plain, 1, NO_MAX, "httpterm's switch for splice(2): read and without effect", "S=0"),
    row(Name::Cpu, "cpu", Unit::Microseconds, 0, CPU_MAX_NS, "processor time to burn before answering, in us or with a unit; at most 1 s; the core serves nobody else meanwhile", "cpu=50"),
    row(Name::Allocations, "alloc", Unit::Plain, 0, ALLOCATIONS_MAX, "pieces of 64 to 1024 bytes to allocate and free before answering, at most 1,000,000", "alloc=100"),
];

const COUNT: usize = OPTIONS.len();

/// What a target asks for: one value an option.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    values: [Value; COUNT],
    /// Whether the target had something that is no option; what stood before it counts.
    pub unknown: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { values: std::array::from_fn(|at| Value::Fixed(OPTIONS[at].default)), unknown: false }
    }
}

impl Options {
    /// Draws the value of one option for one request, between its bounds.
    #[inline]
    pub fn draw(&self, name: Name, rng: &mut fastrand::Rng) -> i64 {
        let row = &OPTIONS[name as usize];
        self.values[name as usize].draw(row.default, rng).min(row.max)
    }

    /// Whether every request with this target asks for the same.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.values.iter().all(Value::is_fixed)
    }
}

/// What a target is for.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // It is looked at once and never kept; a box would cost more.
pub enum Purpose {
    /// The help page.
    Help,
    /// The counters.
    Stats,
    /// An answer as asked.
    Answer(Options),
}

/// Reads a request target: `/` is the help page, `/stats` the counters, anything else an answer
/// by the options behind its first `?`; without one, an empty 200.
#[must_use]
pub fn parse_target(target: &[u8]) -> Purpose {
    let Some(mark) = target.iter().position(|&byte| byte == b'?') else {
        return match path_of(target) {
            b"/" | b"" => Purpose::Help,
            b"/stats" => Purpose::Stats,
            _ => Purpose::Answer(Options::default()),
        };
    };
    Purpose::Answer(parse_options(&target[mark + 1..]))
}

/// The path of an origin-form or absolute-form target without a query (RFC 9112 §3.2).
fn path_of(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    let Some(scheme) = target.windows(3).position(|window| window == b"://") else {
        return target;
    };
    let authority = &target[scheme + 3..];
    let slash = authority.iter().position(|&byte| byte == b'/');
    slash.map_or(b"", |at| &authority[at..])
}

/// Reads the options. As httpterm, it stops at the first form that is none and keeps what came
/// before; other than httpterm it notes that.
fn parse_options(mut rest: &[u8]) -> Options {
    let mut options = Options::default();
    while !rest.is_empty() {
        let Some((row, written)) = find_row(rest) else {
            options.unknown = true;
            return options;
        };
        let after = &rest[written + 1..];
        let (value, used) = parse_value(after, row.map_or(Unit::Plain, |row| row.unit));
        match row {
            Some(row) => options.values[row.name as usize] = value,
            // A letter with a number that means nothing to httpterm either: passed over.
            None => options.unknown = true,
        }
        rest = match &after[used..] {
            [] => return options,
            [b'&' | b'?' | b',' | b';' | b'/', next @ ..] => next,
            _ => {
                options.unknown = true;
                return options;
            }
        };
    }
    options
}

/// The row of the name that `rest` starts with and the name's length; no row for a single letter
/// that is not in the table; nothing when this is not the form of an option.
#[inline]
fn find_row(rest: &[u8]) -> Option<(Option<&'static Row>, usize)> {
    let length = rest.iter().take(8).position(|&byte| byte == b'=')?;
    let name = &rest[..length];
    let row = OPTIONS.iter().find(|row| row.letters.as_bytes() == name);
    (row.is_some() || (length == 1 && name[0].is_ascii_alphabetic())).then_some((row, length))
}

#[cfg(test)]
mod tests;
