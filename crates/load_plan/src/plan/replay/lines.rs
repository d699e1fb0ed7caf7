//! Lines of access logs. Only the fields of a request are kept, so that a log takes a small multiple of its
//! size in memory, whatever else is in it.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use record::problem::printable;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

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
    /// Host of a HAR's URL, with its port unless it is the default; empty in an access log.
    pub(super) host: String,
}

/// Reason to leave out a line of an access log, or an entry of a HAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SkipReason {
    /// Not JSON, in a line that begins with a brace.
    Syntax,
    /// No time, or one that cannot be read.
    NoTime,
    /// No request line, target, method or URL.
    NoRequest,
    /// Method or target that HTTP cannot carry: a space, a control character, a byte above 127.
    Unsendable,
    /// Body that is not in the file, or cannot be decoded.
    NoBody,
    /// URL of another scheme: `data:`, `blob:`, `wss:`.
    OtherScheme,
    /// Response from the cache of the browser: the server got no such request.
    FromCache,
    /// Response from a service worker: what that fetched itself is an entry of its own.
    FromServiceWorker,
    /// Connection that became one of WebSocket.
    Upgraded,
    /// Request for a tunnel through a proxy: its response is no response of the server.
    Tunnel,
    /// Request that was blocked, aborted or failed in the browser, so that it has no response.
    NoResponse,
    /// Host that `--har-hosts` does not name.
    OtherHost,
}

impl SkipReason {
    /// Returns the reason in words, behind a number of lines.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "with a syntax error",
            Self::NoTime => "without a time",
            Self::NoRequest => "without a request",
            Self::Unsendable => "that HTTP cannot carry",
            Self::OtherScheme => "with a URL that is not HTTP",
            Self::NoBody => "without their body",
            Self::FromCache => "from the cache of the browser",
            Self::FromServiceWorker => "from a service worker of the browser",
            Self::Upgraded => "of WebSocket",
            Self::Tunnel => "for a tunnel (CONNECT)",
            Self::NoResponse => "that were blocked, aborted or failed in the browser",
            Self::OtherHost => "of other hosts",
        }
    }

    /// Returns whether the line is damaged, or else of no use for a replay.
    pub(super) fn is_defect(self) -> bool {
        self <= Self::NoBody
    }
}

pub(super) const REPLAY_REQUESTS_MAX: usize = 5_000_000;

/// Skipped line: its column of the defect, from 1, the reason and its description.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkippedLine {
    pub(super) column: usize,
    pub(super) reason: SkipReason,
    pub(super) text: String,
}

impl SkippedLine {
    pub(super) fn new(column: usize, reason: SkipReason, text: impl Into<String>) -> Self {
        Self { column, reason, text: text.into() }
    }
}

/// Names of the time in JSON logs; the start of a request comes before the time of the line.
pub(super) const TIME_KEYS: [&str; 14] = [
    "timeStamp",
    "StartUTC",
    "start_time",
    "started_at",
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "time_iso8601",
    "time_local",
    "msec",
    "date",
    "datetime",
    "EdgeStartTimestamp",
];
/// Names of the method in JSON logs.
pub(super) const METHOD_KEYS: [&str; 8] = [
    "method",
    "httpMethod",
    "request_method",
    "verb",
    "RequestMethod",
    "requestMethod",
    "http.request.method",
    "ClientRequestMethod",
];
/// Names of the target in JSON logs.
pub(super) const TARGET_KEYS: [&str; 15] = [
    AZURE_TARGET,
    "target",
    "original",
    "url.original",
    "uri",
    "request_uri",
    "path",
    "url",
    "request_target",
    "resource",
    "RequestPath",
    "requestUrl",
    "url.path",
    "ClientRequestURI",
    "ClientRequestPath",
];
/// Name of the target in the logs of Azure's gateways.
const AZURE_TARGET: &str = "requestUri";
/// Begin of the text that a gateway of Azure logs in place of a query: its own notes on the request.
const AZURE_NOTES: &str = "X-AzureApplicationGateway-";
/// Names of a query in JSON logs whose target has none.
const QUERY_KEYS: [&str; 5] = ["query", "query_string", "args", "url.query", "requestQuery"];
/// Names of objects in JSON logs that have the keys of the request: those of Caddy, of pino, of Google Cloud, of the
/// Elastic Common Schema and of Azure.
const REQUEST_OBJECTS: [&str; 7] =
    ["request", "req", "httpRequest", "http_request", "http", "url", "properties"];
/// Maximum length of a quoted part of a log in a message.
pub(super) const SHOWN_BYTES_MAX: usize = 80;

pub(super) fn parse_line(line: &str) -> Result<LogEntry, SkippedLine> {
    let entry = match json_part(line) {
        Some(json) => parse_json(json)?,
        None => parse_text(line).or_else(|skipped| super::pairs::parse(line).ok_or(skipped))?,
    };
    check_request(&entry)?;
    Ok(entry)
}

/// Returns the object of JSON at the end of a line. `docker compose logs` puts the name of the service in front of it,
/// container runtimes of Kubernetes the time and the stream, and syslog its own head.
fn json_part(line: &str) -> Option<&str> {
    let at = line.find('{')?;
    let is_head = !line[..at].contains('"') && line[..at].ends_with(' ');
    // HAProxy has captured fields in braces.
    let is_object = line[at + 1..].trim_start().starts_with('"') && line.trim_end().ends_with('}');
    (line[..at].trim().is_empty() || is_head && is_object).then(|| &line[at..])
}

/// Returns a target with its query, if it has none; `-` is none.
pub(super) fn with_query(target: &str, query: &str) -> String {
    match query.trim_start_matches('?') {
        "" | "-" => target.to_owned(),
        notes if notes.starts_with(AZURE_NOTES) => target.to_owned(),
        query if !target.contains('?') => format!("{target}?{query}"),
        _ => target.to_owned(),
    }
}

/// Checks that the request of an entry can be sent.
pub(super) fn check_request(entry: &LogEntry) -> Result<(), SkippedLine> {
    if entry.method == "CONNECT" {
        let text = printable(&entry.target, SHOWN_BYTES_MAX);
        return Err(SkippedLine::new(1, SkipReason::Tunnel, text));
    }
    if entry.method == "-" || entry.target == "-" {
        return Err(SkippedLine::new(1, SkipReason::NoRequest, "a request that was not read ('-')"));
    }
    wire::encode::check_target(&entry.target)
        .and_then(|()| wire::encode::check_method(&entry.method))
        .map_err(|error| {
            let request = printable(&format!("{} {}", entry.method, entry.target), SHOWN_BYTES_MAX);
            // A byte of another encoding was replaced when the text was read.
            let text = match entry.target.contains(char::REPLACEMENT_CHARACTER) {
                true => format!("'{request}': the request target has bytes that are not UTF-8, nor ASCII"),
                false => format!("'{request}': {error}"),
            };
            SkippedLine::new(1, SkipReason::Unsendable, text)
        })
}

/// Parses a line of the combined format, or of HAProxy: a time in brackets, and a request in quotes; or one whose time
/// is a word at its begin: those of the load balancers of AWS, and of Squid, which has no quotes.
fn parse_text(line: &str) -> Result<LogEntry, SkippedLine> {
    let bracket =
        time_bracket(line).map(|open| (open, line[open + 1..].split(']').next().unwrap_or_default()));
    let word = || line.split_ascii_whitespace().take(TIME_WORDS_MAX).find_map(parse_time_word);
    let in_brackets = bracket.and_then(|(_, time)| parse_time(time));
    let (at_ns, is_whole_second) = in_brackets.or_else(word).ok_or_else(|| match bracket {
        Some((open, time)) => {
            let text = format!("'{}' is not a time", printable(time, SHOWN_BYTES_MAX));
            SkippedLine::new(open + 2, SkipReason::NoTime, text)
        }
        None => {
            let text = "no [time] (log formats: combined, HAProxy HTTP, W3C extended, AWS, Squid, logfmt, JSON, HAR)";
            SkippedLine::new(1, SkipReason::NoTime, text)
        }
    })?;
    let quoted = QuotedTexts(line).find_map(|text| parse_request_line(&unescape(text)));
    let request = quoted.or_else(|| unquoted_request(line).filter(|_| in_brackets.is_none()));
    let (method, target) = request.ok_or_else(|| {
        let column = line.find('"').map_or(1, |at| at + 1);
        SkippedLine::new(column, SkipReason::NoRequest, "no request such as \"GET /path HTTP/1.1\"")
    })?;
    Ok(LogEntry::new(at_ns, is_whole_second, method, target))
}

/// Number of words at the begin of a line among which the time may be.
pub(super) const TIME_WORDS_MAX: usize = 4;

/// Parses a time in one word: RFC 3339, or seconds since 1970 with a fraction.
pub(super) fn parse_time_word(word: &str) -> Option<(i64, bool)> {
    let bytes = word.as_bytes();
    match bytes.get(10)? {
        b'T' if bytes[4] == b'-' => parse_time(word),
        b'.' if bytes.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') => {
            word.parse().ok().map(parse_epoch)
        }
        _ => None,
    }
}

/// Finds a method and a URL of HTTP behind it, without quotes.
fn unquoted_request(line: &str) -> Option<(String, String)> {
    let mut words = line.split_ascii_whitespace();
    let is_method = |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let method = words.find(is_method)?;
    let target = words.next()?;
    let is_url = ["http://", "https://", "/"].iter().any(|start| target.starts_with(start));
    is_url.then(|| (method.to_owned(), origin_form(target)))
}

impl LogEntry {
    pub(super) fn new(at_ns: i64, is_whole_second: bool, method: String, target: String) -> Self {
        let (fields, body, host) = (Vec::new(), Vec::new(), String::new());
        Self { at_ns, is_whole_second, method, target, fields, body, host }
    }
}

/// Texts between double quotes in the rest of a line. A quote behind a backslash is part of the text.
struct QuotedTexts<'a>(&'a str);

impl<'a> Iterator for QuotedTexts<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        let (_, rest) = self.0.split_once('"')?;
        let mut is_escaped = false;
        let end = rest.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        self.0 = end.map_or("", |end| &rest[end + 1..]);
        Some(&rest[..end.unwrap_or(rest.len())])
    }
}

/// Replaces the escapes of Apache and nginx (`\"`, `\\`, `\xHH`) by their bytes.
fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'\\').then(|| after.first().copied()).flatten();
        let hex = after.get(1..3).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        let (value, length) = match (escaped, hex) {
            (Some(b'x'), Some(value)) => (value, 4),
            (Some(quoted @ (b'"' | b'\\')), _) => (quoted, 2),
            _ => (byte, 1),
        };
        bytes.push(value);
        rest = &rest[length..];
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
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
pub(super) fn origin_form(target: &str) -> String {
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
const KEYS: [&[&str]; 6] = [
    &TIME_KEYS,
    &METHOD_KEYS,
    &TARGET_KEYS,
    &["request", "request_line", "requestLine", "RequestLine"],
    &["log"],
    &QUERY_KEYS,
];
const NAMES_MAX: usize = 15;

/// Values of a line of a JSON log, by key and name.
#[derive(Default)]
struct JsonLine([[Option<Scalar>; NAMES_MAX]; KEYS.len()]);

/// Value without others in it.
enum Scalar {
    Number(f64),
    Text(String),
    /// Object, of which only these keys are kept.
    Object(Box<JsonLine>),
    /// Anything else, which is skipped.
    Other,
}

impl Scalar {
    fn is_value(&self) -> bool {
        matches!(self, Self::Number(_) | Self::Text(_))
    }
}

impl JsonLine {
    fn time(&self) -> Option<&Scalar> {
        let given = || self.0[0].iter().filter_map(Option::as_ref);
        given().find(|value| value.is_value()).or_else(|| given().next())
    }

    /// Takes the values of an object in the line that the line itself does not have.
    fn add_object(&mut self, object: Self) {
        for (own, other) in self.0.iter_mut().flatten().zip(object.0.into_iter().flatten()) {
            if other.is_some() && !own.as_ref().is_some_and(Scalar::is_value) {
                *own = other;
            }
        }
    }

    /// Returns whether a key has a text of this name.
    fn has_name(&self, key: usize, name: &str) -> bool {
        let position = KEYS[key].iter().position(|known| *known == name);
        position.is_some_and(|at| matches!(self.0[key][at], Some(Scalar::Text(_))))
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
                    let known =
                        KEYS.iter().enumerate().find_map(|(key, names)| Some((key, position(names)?)));
                    let is_object = REQUEST_OBJECTS.contains(&name.as_str());
                    if known.is_none() && !is_object {
                        fields.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    match (fields.next_value()?, known) {
                        (Scalar::Object(object), _) if is_object => line.add_object(*object),
                        (value, Some((key, name))) => line.0[key][name] = Some(value),
                        _ => {}
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

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Scalar, A::Error> {
                // The JSON parser limits the depth.
                let line = JsonLine::deserialize(MapAccessDeserializer::new(fields))?;
                Ok(Scalar::Object(Box::new(line)))
            }
        }
        deserializer.deserialize_any(AnyScalar)
    }
}

fn parse_json(line: &str) -> Result<LogEntry, SkippedLine> {
    let values: JsonLine = serde_json::from_str(line).map_err(|error| {
        let text = printable(&error.to_string(), SHOWN_BYTES_MAX * 4);
        SkippedLine::new(error.column(), SkipReason::Syntax, text)
    })?;
    let from_line = values.text(3).and_then(parse_request_line);
    let request = match (from_line, values.text(2)) {
        (Some(both), _) => Some(both),
        // The firewall of Azure repeats the target of a request, without its method.
        (None, Some(_)) if values.text(1).is_none() && values.has_name(2, AZURE_TARGET) => None,
        (None, Some(target)) => {
            let target = with_query(&origin_form(target), values.text(5).unwrap_or_default());
            Some((values.text(1).unwrap_or("GET").to_owned(), target))
        }
        (None, None) => None,
    };
    // Docker writes the line of the log as a text in JSON.
    if let (None, Some(log)) = (&request, values.text(4)) {
        return parse_line(log.trim_end());
    }
    let (method, target) = request.ok_or_else(|| {
        SkippedLine::new(1, SkipReason::NoRequest, "no path (target, uri, path, url or request)")
    })?;
    let no_time = |text: String| SkippedLine::new(1, SkipReason::NoTime, text);
    let (at_ns, is_whole_second) = match values.time() {
        None => return Err(no_time("no time".to_owned())),
        Some(Scalar::Number(number)) => parse_epoch(*number),
        Some(Scalar::Text(text)) => parse_time(text)
            .or_else(|| text.parse().ok().map(parse_epoch))
            .ok_or_else(|| no_time(format!("'{}' is not a time", printable(text, SHOWN_BYTES_MAX))))?,
        Some(_) => return Err(no_time("the time is neither a number nor a text".to_owned())),
    };
    Ok(LogEntry::new(at_ns, is_whole_second, method, target))
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
pub(super) fn parse_time(text: &str) -> Option<(i64, bool)> {
    let text = text.trim();
    // Apache writes the brackets of %t in JSON, too.
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
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
