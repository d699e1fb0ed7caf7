//! Lines of access logs, and entries of a HAR.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::Value;

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

/// Parses a line of an access log.
pub(super) fn parse_line(line: &str) -> Result<LogEntry, LineError> {
    match line.trim_start().starts_with('{') {
        true => parse_json(line),
        false => parse_text(line),
    }
}

/// Parses a line of the combined format, or of HAProxy: a time in brackets, and a request in quotes.
fn parse_text(line: &str) -> Result<LogEntry, LineError> {
    let open = line
        .find('[')
        .ok_or_else(|| (1, "no [time] (log formats: combined, HAProxy HTTP, JSON, HAR)".to_owned()))?;
    // HAProxy's `haproxy[14389]:` has no slash.
    let brackets = line.match_indices('[').map(|(at, _)| at);
    let open = brackets
        .into_iter()
        .find(|at| line[at + 1..].split(']').next().is_some_and(|text| text.contains('/')))
        .unwrap_or(open);
    let time = line[open + 1..].split(']').next().unwrap_or_default();
    let (at_ns, is_whole_second) =
        parse_time(time).ok_or_else(|| (open + 2, format!("'{time}' is not a time")))?;
    let quoted = line.split('"').skip(1).step_by(2);
    let (method, target) = quoted.filter_map(parse_request_line).next().ok_or_else(|| {
        let column = line.find('"').map_or(1, |at| at + 1);
        (column, "no request such as \"GET /path HTTP/1.1\"".to_owned())
    })?;
    Ok(LogEntry { at_ns, is_whole_second, method, target, fields: Vec::new(), body: Vec::new() })
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

fn parse_json(line: &str) -> Result<LogEntry, LineError> {
    let value: Value = serde_json::from_str(line).map_err(|error| (error.column(), error.to_string()))?;
    let text = |keys: &[&str]| keys.iter().find_map(|key| value.get(key)?.as_str());
    let time = TIME_KEYS.iter().find_map(|key| value.get(key)).ok_or_else(|| (1, "no time".to_owned()))?;
    let (at_ns, is_whole_second) = match time {
        Value::Number(number) => number.as_f64().map(parse_epoch),
        Value::String(text) => parse_time(text).or_else(|| text.parse().ok().map(parse_epoch)),
        _ => None,
    }
    .ok_or_else(|| (1, format!("{time} is not a time")))?;
    let from_line = text(&["request", "request_line"]).and_then(parse_request_line);
    let (method, target) = match (from_line, text(&TARGET_KEYS)) {
        (Some(both), _) => both,
        (None, Some(target)) => (text(&METHOD_KEYS).unwrap_or("GET").to_owned(), origin_form(target)),
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

/// Parses a HAR (HTTP Archive 1.2). An error has its line and column.
pub(super) fn parse_har(text: &str) -> Result<Vec<LogEntry>, (usize, usize, String)> {
    let archive: Value =
        serde_json::from_str(text).map_err(|error| (error.line(), error.column(), error.to_string()))?;
    let entries = archive["log"]["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    let parsed = entries.iter().enumerate().map(|(index, entry)| {
        parse_har_entry(entry)
            .ok_or_else(|| (1, 1, format!("entry {} has no time, method or URL", index + 1)))
    });
    // Entries of data: and blob: URLs were no requests.
    let parsed = parsed.filter(|entry| entry.as_ref().map_or(true, |entry| !entry.target.is_empty()));
    parsed.collect()
}

fn parse_har_entry(entry: &Value) -> Option<LogEntry> {
    let (at_ns, _) = parse_time(entry["startedDateTime"].as_str()?)?;
    let request = &entry["request"];
    let (method, url) = (request["method"].as_str()?.to_owned(), request["url"].as_str()?);
    let target = if url.starts_with("http") { origin_form(url) } else { String::new() };
    let headers = request["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fields = headers.iter().filter_map(|header| {
        let (name, value) = (header["name"].as_str()?, header["value"].as_str()?);
        let is_valid = wire::encode::check_field_name(name).is_ok()
            && wire::encode::check_field_value(value.as_bytes()).is_ok();
        let is_kept = !CONNECTION_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field));
        (is_valid && is_kept).then(|| (name.to_owned(), value.to_owned()))
    });
    let body = request["postData"]["text"].as_str().unwrap_or_default().as_bytes().to_vec();
    Some(LogEntry { at_ns, is_whole_second: false, method, target, fields: fields.collect(), body })
}
