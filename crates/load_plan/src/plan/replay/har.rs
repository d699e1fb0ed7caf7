//! Entries of a HAR (HTTP Archive 1.2), in the forms of Chromium, Firefox, Safari, Fiddler and Charles. Only what a
//! replay sends is kept. Each entry is read by itself, so that a damaged one is skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use record::invalid_value;
use record::problem::{InvalidValue, printable};
use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::lines::{
    LogEntry, REPLAY_REQUESTS_MAX, SHOWN_BYTES_MAX, SkipReason, SkippedLine, check_request, origin_form,
    parse_time,
};

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
/// Boundary of a multipart body whose recorded field has none.
const BOUNDARY: &str = "----weir-replay-boundary";

#[derive(Debug, Default)]
pub(super) struct HarRequests {
    pub(super) entries: Vec<LogEntry>,
    pub(super) read: u64,
    /// Skipped entries by their reasons, the first of each with its number and its description.
    pub(super) skipped: BTreeMap<SkipReason, (u64, u64, String)>,
}

/// Entries of a HAR, some of which are left out once all of it is known.
#[derive(Default)]
struct ReadEntries {
    entries: Vec<(LogEntry, Marks)>,
    read: u64,
    skipped: BTreeMap<SkipReason, (u64, u64, String)>,
    /// True if any entry has a status, so that one without is a request that failed.
    has_response: bool,
}

/// Marks of an entry, whose meaning depends on the other entries and on the creator.
struct Marks {
    number: u64,
    url: String,
    /// True if the browser has noted that there is no response.
    has_failed: bool,
    /// True if there is a state of the cache after the request, and none before it.
    has_cache_state: bool,
}

#[derive(Deserialize)]
struct Archive<'text> {
    #[serde(borrow)]
    log: Option<ArchiveLog<'text>>,
}

#[derive(Deserialize)]
struct ArchiveLog<'text> {
    #[serde(borrow)]
    creator: Option<&'text RawValue>,
    #[serde(default, deserialize_with = "deserialize_entries")]
    entries: ReadEntries,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Creator {
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveEntry {
    started_date_time: Option<String>,
    request: Option<ArchiveRequest>,
    /// Mark of Chromium: `memory` or `disk`.
    #[serde(rename = "_fromCache")]
    from_cache: Option<IgnoredAny>,
    /// Source of the response in Safari: `Network Load`, `Memory Cache`, `Disk Cache`, `Service Worker`.
    #[serde(rename = "_fetchType")]
    fetch_type: Option<String>,
    /// Mark of Chromium and mitmproxy: a connection of WebSocket with its messages.
    #[serde(rename = "_webSocketMessages")]
    websocket_messages: Option<IgnoredAny>,
    #[serde(rename = "_resourceType")]
    resource_type: Option<String>,
    #[serde(default)]
    cache: ArchiveCache,
    #[serde(default)]
    response: ArchiveResponse,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ArchiveCache {
    #[serde(deserialize_with = "deserialize_present")]
    before_request: Option<Option<IgnoredAny>>,
    /// Firefox writes null, or the entry of its cache, for a response from the cache; later versions for responses with
    /// 304. It leaves the key out for others. Playwright writes null for all, with `beforeRequest`.
    #[serde(deserialize_with = "deserialize_present")]
    after_request: Option<Option<IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ArchiveResponse {
    status: Option<f64>,
    /// Reason of Chromium for a request that failed, was blocked or aborted: `net::ERR_ABORTED`.
    #[serde(rename = "_error")]
    error: Option<String>,
    /// Mark of Chromium: a service worker answered the page. What it fetched itself is an entry of its own.
    #[serde(rename = "_fetchedViaServiceWorker")]
    fetched_via_service_worker: Option<bool>,
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
#[serde(rename_all = "camelCase")]
struct ArchiveBody {
    text: Option<String>,
    mime_type: Option<String>,
    /// `base64` if the text is encoded (HAR 1.3, Charles).
    encoding: Option<String>,
    /// Mark of Playwright: the body is in another file.
    #[serde(rename = "_file")]
    file: Option<IgnoredAny>,
    /// Fields of a form, in place of a text.
    #[serde(default, deserialize_with = "deserialize_params")]
    params: Vec<ArchiveParam>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArchiveParam {
    #[serde(default, deserialize_with = "deserialize_text")]
    name: Option<String>,
    #[serde(default, deserialize_with = "deserialize_text")]
    value: Option<String>,
    file_name: Option<String>,
    content_type: Option<String>,
}

#[derive(Deserialize)]
struct ArchiveField {
    #[serde(default, deserialize_with = "deserialize_text")]
    name: Option<String>,
    #[serde(default, deserialize_with = "deserialize_text")]
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

fn deserialize_entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ReadEntries, D::Error> {
    let mut all = ReadEntries::default();
    let convert = |entry: &'de RawValue| {
        all.read += 1;
        let converted = serde_json::from_str::<ArchiveEntry>(entry.get())
            .map_err(|error| {
                // The position is one within the entry.
                let text = error.to_string();
                let text = text.split(" at line ").next().unwrap_or_default();
                SkippedLine::new(1, SkipReason::Syntax, printable(text, SHOWN_BYTES_MAX * 2))
            })
            .and_then(|entry| {
                all.has_response |= entry.response.status.is_some_and(|status| status > 0.0);
                convert_entry(entry, all.read)
            });
        match converted {
            Ok(entry) if all.entries.len() < REPLAY_REQUESTS_MAX => all.entries.push(entry),
            Ok(_) => return Err(invalid_value!("more than {REPLAY_REQUESTS_MAX} requests")),
            Err(SkippedLine { reason, text, .. }) => {
                all.skipped.entry(reason).or_insert((0, all.read, text)).0 += 1;
            }
        }
        Ok(None::<()>)
    };
    deserializer.deserialize_any(List(convert, PhantomData))?;
    Ok(all)
}

impl ReadEntries {
    /// Leaves out the entries that the server did not get. `is_of_firefox` is true for a HAR of Firefox or Firebug.
    fn finish(self, is_of_firefox: bool) -> HarRequests {
        let Self { entries, read, mut skipped, has_response } = self;
        let mut kept = Vec::with_capacity(entries.len());
        for (entry, Marks { number, url, has_failed, has_cache_state }) in entries {
            // Without any response the file is a list of requests, and no record.
            let reason = match (has_failed && has_response, has_cache_state && is_of_firefox) {
                (true, _) => SkipReason::NoResponse,
                (_, true) => SkipReason::FromCache,
                (false, false) => {
                    kept.push(entry);
                    continue;
                }
            };
            skipped.entry(reason).or_insert((0, number, url)).0 += 1;
        }
        HarRequests { entries: kept, read, skipped }
    }
}

/// Reads a text, a number or a truth value as text; any other value is none.
fn deserialize_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = <&RawValue>::deserialize(deserializer)?.get();
    match value.as_bytes().first() {
        Some(b'"') => serde_json::from_str(value).map(Some).map_err(D::Error::custom),
        Some(b'{' | b'[' | b'n') | None => Ok(None),
        Some(_) => Ok(Some(value.to_owned())),
    }
}

fn deserialize_params<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ArchiveParam>, D::Error> {
    deserializer.deserialize_any(List(|param| Ok(Some(param)), PhantomData))
}

fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<IgnoredAny>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
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
pub(super) fn parse_har(text: &str) -> Result<HarRequests, (usize, usize, String)> {
    let archive: Archive<'_> = serde_json::from_str(without_padding(text)).map_err(|error| {
        let text = error.to_string();
        (error.line(), error.column(), printable(&text, SHOWN_BYTES_MAX * 4))
    })?;
    let Some(log) = archive.log else { return Ok(HarRequests::default()) };
    let creator = log.creator.and_then(|text| serde_json::from_str::<Creator>(text.get()).ok());
    let name = creator.and_then(|creator| creator.name);
    Ok(log.entries.finish(name.is_some_and(|name| name == "Firefox" || name == "Firebug")))
}

/// Returns the argument of a call, if the text is one: a HAR with padding (JSONP).
pub(super) fn without_padding(text: &str) -> &str {
    let is_name = |name: &str| {
        let name = name.trim();
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_$.".contains(&byte))
    };
    let argument =
        text.split_once('(').filter(|(name, rest)| is_name(name) && rest.trim_start().starts_with('{'));
    argument.and_then(|(_, rest)| rest.rsplit_once(')')).map_or(text, |(argument, _)| argument)
}

fn convert_entry(entry: ArchiveEntry, number: u64) -> Result<(LogEntry, Marks), SkippedLine> {
    let skip = |reason, text: &str| Err(SkippedLine::new(1, reason, text));
    let ArchiveEntry { response, cache, .. } = entry;
    let Some((method, url, request)) =
        entry.request.and_then(|mut request| Some((request.method.take()?, request.url.take()?, request)))
    else {
        return skip(SkipReason::NoRequest, "no method or URL");
    };
    let shown = printable(&url, SHOWN_BYTES_MAX);
    let Some(host) = host_of(&url) else {
        return skip(SkipReason::OtherScheme, &shown);
    };
    let fetch_type = entry.fetch_type.as_deref().unwrap_or_default();
    // Playwright writes null before and after the request, Firefox nothing before it. With 304 the server was asked.
    let is_asked = cache.before_request.is_some() || response.status == Some(304.0);
    let has_state = cache.after_request.is_some() && !is_asked;
    if entry.from_cache.is_some()
        || fetch_type.ends_with(" Cache")
        || (has_state && cache.after_request == Some(None))
    {
        return skip(SkipReason::FromCache, &shown);
    }
    if response.fetched_via_service_worker == Some(true) || fetch_type == "Service Worker" {
        return skip(SkipReason::FromServiceWorker, &shown);
    }
    let is_websocket =
        entry.websocket_messages.is_some() || entry.resource_type.as_deref() == Some("websocket");
    if is_websocket || response.status == Some(101.0) {
        return skip(SkipReason::Upgraded, &shown);
    }
    let Some((at_ns, _)) = entry.started_date_time.as_deref().and_then(parse_time) else {
        return skip(SkipReason::NoTime, "no time (startedDateTime)");
    };
    let mut fields = request.headers;
    let body = match request.post_data {
        Some(body) => body.into_bytes(&mut fields)?,
        None => Vec::new(),
    };
    let target = origin_form(&url);
    let has_failed = response.error.is_some_and(|error| !error.is_empty())
        || response.status.is_some_and(|status| status <= 0.0);
    let entry = LogEntry { at_ns, is_whole_second: false, method, target, fields, body, host };
    check_request(&entry)?;
    Ok((entry, Marks { number, url: shown, has_failed, has_cache_state: has_state }))
}

/// Returns the host of a URL with HTTP, in lower case, with its port unless it is the default.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let default_port = match scheme.to_ascii_lowercase().as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    Some(host.strip_suffix(default_port).map(str::to_owned).unwrap_or(host))
}

impl ArchiveBody {
    /// Returns the body: its text, or else its parameters in the media type of the request.
    fn into_bytes(self, fields: &mut Vec<(String, String)>) -> Result<Vec<u8>, SkippedLine> {
        let missing = |text: &str| SkippedLine::new(1, SkipReason::NoBody, text);
        let text = self.text.filter(|text| !text.is_empty());
        if text.is_none() && self.file.is_some() {
            return Err(missing("its body is in another file"));
        }
        let is_encoded = self.encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case("base64"));
        if let Some(text) = text.as_deref().filter(|_| is_encoded) {
            let bytes: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
            return STANDARD
                .decode(bytes)
                .map_err(|_| missing("its body is not Base64, as its encoding says"));
        }
        if self.params.is_empty() || text.is_some() {
            return Ok(text.unwrap_or_default().into_bytes());
        }
        let content_type_index =
            fields.iter().position(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let media_type =
            content_type_index.map(|index| fields[index].1.clone()).or(self.mime_type).unwrap_or_default();
        if !media_type.trim_start().to_ascii_lowercase().starts_with("multipart/") {
            return Ok(encode_form(&self.params).into_bytes());
        }
        let parameters = media_type.split(';').skip(1).map(str::trim);
        let boundary =
            parameters.filter_map(|parameter| parameter.split_once('=')).find_map(|(name, value)| {
                name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"').to_owned())
            });
        let boundary = boundary.unwrap_or_else(|| {
            let value = format!("multipart/form-data; boundary={BOUNDARY}");
            match content_type_index {
                Some(index) => fields[index].1 = value,
                None => fields.push(("content-type".to_owned(), value)),
            }
            BOUNDARY.to_owned()
        });
        Ok(encode_multipart(&self.params, &boundary).into_bytes())
    }
}

/// Encodes the parameters of a form. Chromium records them as they were sent, and Firefox decoded: they are
/// decoded if any of them has a character that a form does not send.
fn encode_form(params: &[ArchiveParam]) -> String {
    let is_form_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*".contains(&byte);
    let values = || {
        params.iter().map(|param| {
            (param.name.as_deref().unwrap_or_default(), param.value.as_deref().unwrap_or_default())
        })
    };
    let is_encoded = |text: &str| {
        let parts: Vec<&str> = text.split('%').collect();
        let is_hex =
            |part: &&str| part.as_bytes().get(..2).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        parts[1..].iter().all(is_hex)
            && text.bytes().all(|byte| is_form_byte(byte) || b"%+~!'()".contains(&byte))
    };
    let encode = |text: &str| {
        let mut encoded = String::with_capacity(text.len());
        for byte in text.bytes() {
            match byte {
                b' ' => encoded.push('+'),
                _ if is_form_byte(byte) => encoded.push(byte as char),
                _ => encoded += &format!("%{byte:02X}"),
            }
        }
        encoded
    };
    let as_sent = values().all(|(name, value)| is_encoded(name) && is_encoded(value));
    let pairs = values().map(|(name, value)| match as_sent {
        true => format!("{name}={value}"),
        false => format!("{}={}", encode(name), encode(value)),
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Encodes the parameters of a form with files (RFC 7578).
fn encode_multipart(params: &[ArchiveParam], boundary: &str) -> String {
    let quoted = |text: &str| text.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
    let mut body = String::new();
    for param in params {
        let name = quoted(param.name.as_deref().unwrap_or_default());
        body += &format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"");
        if let Some(file) = &param.file_name {
            body += &format!("; filename=\"{}\"", quoted(file));
        }
        if let Some(media_type) = &param.content_type {
            body += &format!("\r\nContent-Type: {}", quoted(media_type));
        }
        body += &format!("\r\n\r\n{}\r\n", param.value.as_deref().unwrap_or_default());
    }
    body + &format!("--{boundary}--\r\n")
}
