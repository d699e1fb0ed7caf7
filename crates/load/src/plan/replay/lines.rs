//! Lines of access logs, and entries of a HAR. Only the fields of a request are kept, so that a log takes a
//! small multiple of its size in memory, whatever else is in it.

use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use record::invalid_value;
use record::problem::{InvalidValue, printable};
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// One request of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogEntry {
    /// Time in ns since 1970.
    pub(super) at_ns: i64,
    /// True if the log has no fraction of the second.
    pub(super) is_whole_second: bool,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Maximum number of requests of a log.
pub(super) const REPLAY_REQUESTS_MAX: usize = 5_000_000;

/// Column of an error, from 1, and its description.
type LineError = (usize, String);

/// Names of the time in JSON logs.
const TIME_KEYS: [&str; 8] =
    ["time", "timestamp", "@timestamp", "start_time", "started_at", "ts", "time_iso8601", "time_local"];
/// Names of the method in JSON logs.
const METHOD_KEYS: [&str; 3] = ["method", "request_method", "verb"];
/// Names of the target in JSON logs.
const TARGET_KEYS: [&str; 7] = ["target", "uri", "request_uri", "path", "url", "request_target", "resource"];
/// Fields of a recorded request that belong to its connection.
const CONNECTION_FIELDS: [&str; 8] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Maximum length of a quoted part of a log in a message.
const SHOWN_BYTES_MAX: usize = 80;

/// Parses a line of an access log.
pub(super) fn parse_line(line: &str) -> Result<LogEntry, LineError> {
    match line.trim_start().starts_with('{') {
        true => parse_json(line),
        false => parse_text(line),
    }
}

/// Parses a line of the combined format, or of HAProxy: a time in brackets, and a request in quotes.
fn parse_text(line: &str) -> Result<LogEntry, LineError> {
    let open = time_bracket(line)
        .ok_or_else(|| (1, "no [time] (log formats: combined, HAProxy HTTP, JSON, HAR)".to_owned()))?;
    let time = line[open + 1..].split(']').next().unwrap_or_default();
    let (at_ns, is_whole_second) = parse_time(time)
        .ok_or_else(|| (open + 2, format!("'{}' is not a time", printable(time, SHOWN_BYTES_MAX))))?;
    let quoted = line.split('"').skip(1).step_by(2);
    let (method, target) = quoted.filter_map(parse_request_line).next().ok_or_else(|| {
        let column = line.find('"').map_or(1, |at| at + 1);
        (column, "no request such as \"GET /path HTTP/1.1\"".to_owned())
    })?;
    Ok(LogEntry { at_ns, is_whole_second, method, target, fields: Vec::new(), body: Vec::new() })
}

/// Returns the position of the bracket before a time: the first one with a slash before the next `]`
/// (HAProxy's `haproxy[14389]:` has none), or else the first one. It reads each byte a few times only,
/// however many brackets there are.
fn time_bracket(line: &str) -> Option<usize> {
    let bytes = line.as_bytes();
    let find_from = |from: usize, byte: u8| {
        bytes[from..].iter().position(|&other| other == byte).map_or(bytes.len(), |at| from + at)
    };
    let (mut slash, mut close) = (find_from(0, b'/'), find_from(0, b']'));
    let mut brackets = line.match_indices('[').map(|(at, _)| at);
    let first = brackets.next()?;
    let is_before_time = |&at: &usize| {
        if slash < at {
            slash = find_from(at, b'/');
        }
        if close < at {
            close = find_from(at, b']');
        }
        slash < close
    };
    Some(std::iter::once(first).chain(brackets).find(is_before_time).unwrap_or(first))
}

/// Parses `GET /path HTTP/1.1`.
fn parse_request_line(text: &str) -> Option<(String, String)> {
    let (method, rest) = text.split_once(' ')?;
    let (target, version) = rest.rsplit_once(' ')?;
    let is_method =
        !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    (is_method && version.starts_with("HTTP/")).then(|| (method.to_owned(), origin_form(target)))
}

/// Returns path and query of a target in absolute form.
fn origin_form(target: &str) -> String {
    let target = target.split('#').next().unwrap_or_default();
    let Some((_, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else {
        return if target.is_empty() { "/".to_owned() } else { target.to_owned() };
    };
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => rest[at..].to_owned(),
        Some(at) => format!("/{}", &rest[at..]),
        None => "/".to_owned(),
    }
}

/// Keys of a JSON log that are kept: those of the time, the method, the target, and the request line.
const KEYS: [&[&str]; 4] = [&TIME_KEYS, &METHOD_KEYS, &TARGET_KEYS, &["request", "request_line"]];
/// Maximum number of names of one key.
const NAMES_MAX: usize = 8;

/// Values of a line of a JSON log, by key and name.
#[derive(Default)]
struct JsonLine([[Option<Scalar>; NAMES_MAX]; KEYS.len()]);

/// Value without others in it.
enum Scalar {
    Number(f64),
    Text(String),
    /// Anything else, which is skipped.
    Other,
}

impl JsonLine {
    fn time(&self) -> Option<&Scalar> {
        self.0[0].iter().find_map(Option::as_ref)
    }

    fn text(&self, key: usize) -> Option<&str> {
        self.0[key].iter().find_map(|value| match value {
            Some(Scalar::Text(text)) => Some(text.as_str()),
            _ => None,
        })
    }
}

impl<'de> Deserialize<'de> for JsonLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = JsonLine;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<JsonLine, A::Error> {
                let mut line = JsonLine::default();
                while let Some(name) = fields.next_key::<String>()? {
                    let position = |names: &&[&str]| names.iter().position(|known| *known == name);
                    match KEYS.iter().enumerate().find_map(|(key, names)| Some((key, position(names)?))) {
                        Some((key, name)) => line.0[key][name] = Some(fields.next_value()?),
                        None => drop(fields.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(line)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyScalar;
        impl<'de> Visitor<'de> for AnyScalar {
            type Value = Scalar;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a value")
            }

            fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number as f64))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number as f64))
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Scalar, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Scalar, A::Error> {
                while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        deserializer.deserialize_any(AnyScalar)
    }
}

fn parse_json(line: &str) -> Result<LogEntry, LineError> {
    let values: JsonLine = serde_json::from_str(line).map_err(|error| (error.column(), error.to_string()))?;
    let (at_ns, is_whole_second) = match values.time() {
        None => return Err((1, "no time".to_owned())),
        Some(Scalar::Number(number)) => parse_epoch(*number),
        Some(Scalar::Text(text)) => parse_time(text)
            .or_else(|| text.parse().ok().map(parse_epoch))
            .ok_or_else(|| (1, format!("'{}' is not a time", printable(text, SHOWN_BYTES_MAX))))?,
        Some(Scalar::Other) => return Err((1, "the time is neither a number nor a text".to_owned())),
    };
    let from_line = values.text(3).and_then(parse_request_line);
    let (method, target) = match (from_line, values.text(2)) {
        (Some(both), _) => both,
        (None, Some(target)) => (values.text(1).unwrap_or("GET").to_owned(), origin_form(target)),
        (None, None) => return Err((1, "no path (target, uri, path, url or request)".to_owned())),
    };
    Ok(LogEntry { at_ns, is_whole_second, method, target, fields: Vec::new(), body: Vec::new() })
}

/// Returns a time since 1970 in s, ms, µs or ns by its size.
fn parse_epoch(number: f64) -> (i64, bool) {
    let unit_ns = match number.abs() {
        size if size < 1e11 => 1e9,
        size if size < 1e14 => 1e6,
        size if size < 1e17 => 1e3,
        _ => 1.0,
    };
    ((number * unit_ns) as i64, unit_ns == 1e9 && number.fract() == 0.0)
}

/// Parses the time of a log: `10/Oct/2000:13:55:36 -0700`, `06/Feb/2009:12:14:14.655`, RFC 3339.
fn parse_time(text: &str) -> Option<(i64, bool)> {
    let text = text.trim();
    let has_fraction = text.contains('.');
    let ns = |timestamp: Timestamp| i64::try_from(timestamp.as_nanosecond()).ok();
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some((ns(timestamp)?, !has_fraction));
    }
    if let Ok(zoned) = Timestamp::strptime("%d/%b/%Y:%H:%M:%S%.f %z", text) {
        return Some((ns(zoned)?, !has_fraction));
    }
    // Without a zone only differences matter.
    let local = DateTime::strptime("%d/%b/%Y:%H:%M:%S%.f", text).ok()?;
    let timestamp = TimeZone::UTC.to_timestamp(local).ok()?;
    Some((ns(timestamp)?, !has_fraction))
}

/// Parts of a HAR (HTTP Archive 1.2) that are kept.
#[derive(Deserialize)]
struct Archive {
    log: Option<ArchiveLog>,
}

#[derive(Deserialize)]
struct ArchiveLog {
    #[serde(default, deserialize_with = "deserialize_entries")]
    entries: Vec<LogEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveEntry {
    started_date_time: Option<String>,
    request: Option<ArchiveRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveRequest {
    method: Option<String>,
    url: Option<String>,
    #[serde(default, deserialize_with = "deserialize_fields")]
    headers: Vec<(String, String)>,
    post_data: Option<ArchiveBody>,
}

#[derive(Deserialize)]
struct ArchiveBody {
    text: Option<String>,
}

#[derive(Deserialize)]
struct ArchiveField {
    name: Option<String>,
    value: Option<String>,
}

/// List whose items are converted, or left out, while they arrive.
struct List<T, U, F>(F, PhantomData<(T, U)>);

impl<'de, T: Deserialize<'de>, U, F: FnMut(T) -> Result<Option<U>, InvalidValue>> Visitor<'de>
    for List<T, U, F>
{
    type Value = Vec<U>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Vec<U>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Vec<U>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.extend(self.0(item).map_err(A::Error::custom)?);
        }
        Ok(list)
    }
}

fn deserialize_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LogEntry>, D::Error> {
    let (mut number, mut kept) = (0, 0);
    let convert = |entry: ArchiveEntry| {
        number += 1;
        let entry = convert_entry(entry)
            .ok_or_else(|| invalid_value!("entry {number} has no time, method or URL"))?;
        // Entries of data: and blob: URLs were no requests.
        let entry = Some(entry).filter(|entry| !entry.target.is_empty());
        kept += usize::from(entry.is_some());
        if kept > REPLAY_REQUESTS_MAX {
            return Err(invalid_value!("more than {REPLAY_REQUESTS_MAX} requests"));
        }
        Ok(entry)
    };
    deserializer.deserialize_any(List(convert, PhantomData))
}

fn deserialize_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    let convert = |field: ArchiveField| {
        let (Some(name), Some(value)) = (field.name, field.value) else { return Ok(None) };
        let is_valid = wire::encode::check_field_name(&name).is_ok()
            && wire::encode::check_field_value(value.as_bytes()).is_ok();
        let is_kept = !CONNECTION_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field));
        Ok((is_valid && is_kept).then_some((name, value)))
    };
    deserializer.deserialize_any(List(convert, PhantomData))
}

/// Parses a HAR. An error has its line and column.
pub(super) fn parse_har(text: &str) -> Result<Vec<LogEntry>, (usize, usize, String)> {
    let archive: Archive = serde_json::from_str(text).map_err(|error| {
        let text = error.to_string();
        (error.line(), error.column(), printable(&text, SHOWN_BYTES_MAX * 4))
    })?;
    Ok(archive.log.map(|log| log.entries).unwrap_or_default())
}

fn convert_entry(entry: ArchiveEntry) -> Option<LogEntry> {
    let (at_ns, _) = parse_time(&entry.started_date_time?)?;
    let request = entry.request?;
    let (method, url) = (request.method?, request.url?);
    let target = if url.starts_with("http") { origin_form(&url) } else { String::new() };
    let body = request.post_data.and_then(|body| body.text).unwrap_or_default().into_bytes();
    Some(LogEntry { at_ns, is_whole_second: false, method, target, fields: request.headers, body })
}
