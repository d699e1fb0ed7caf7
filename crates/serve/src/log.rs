//! The access log: one line per request in the combined format or as JSON. `server_shell` writes it: a
//! core never waits, it drops lines and counts them.

use std::cell::RefCell;
use std::io::Write;

use server_shell::date::RenderedSecond;
use server_shell::log::{LineBatches, LineCounters, LogSender};
use wire::field_value;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AccessLogFormat {
    /// The combined format of Apache and nginx.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

/// Maximum length of the parts of a line that are not from the request.
const OTHER_BYTES_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct CoreAccessLog {
    batches: RefCell<LineBatches>,
    counters: LineCounters,
    format: AccessLogFormat,
}

impl CoreAccessLog {
    pub(crate) fn new(sender: &LogSender, format: AccessLogFormat, head_bytes_max: usize) -> Self {
        // An escaped byte takes four.
        let batches = sender.batches(0, 4 * head_bytes_max + OTHER_BYTES_MAX);
        Self { batches: RefCell::new(batches), counters: sender.line_counters(), format }
    }

    pub(crate) fn write_failed_lines(&self) -> u64 {
        self.counters.counts().iter().map(|counts| counts.failed + counts.backoff).sum()
    }

    /// Adds a line: client, date, and the rest from [`LoggedRequest::write_line_end`]. Returns `false`
    /// if the line was dropped.
    pub(crate) fn append_line(&self, peer: &str, date: &RenderedSecond, rest: &[u8]) -> bool {
        let (before_peer, before_date, date, before_rest) = match self.format {
            AccessLogFormat::Combined => ("", " - - [", date.clf().as_slice(), " +0000] "),
            AccessLogFormat::Json => ("{\"client\":\"", "\",\"time\":\"", date.iso().as_slice(), "Z\","),
        };
        self.batches.borrow_mut().push_line(&[
            before_peer.as_bytes(),
            peer.as_bytes(),
            before_date.as_bytes(),
            date,
            before_rest.as_bytes(),
            rest,
        ])
    }

    /// Hands the lines over to the log thread. If it is behind, they wait for the next time.
    pub(crate) fn hand_over(&self) {
        self.batches.borrow_mut().hand_over();
    }
}

/// Request part of a log line: the request line, and the fields `Referer` and `User-Agent`.
#[derive(Debug)]
pub(crate) struct LoggedRequest {
    format: AccessLogFormat,
    /// Text before the status.
    request: Vec<u8>,
    /// Text after the size.
    referer_and_agent: Vec<u8>,
}

impl LoggedRequest {
    pub(crate) fn from_head(format: AccessLogFormat, head: &wire::RequestHead<'_, '_>) -> Self {
        let version = match head.version {
            wire::Version::Http10 => "HTTP/1.0",
            wire::Version::Http11 => "HTTP/1.1",
        };
        Self::new(format, head.method, head.target, version, |name| field_value(head.headers, name))
    }

    pub(crate) fn from_http2(format: AccessLogFormat, head: &wire::h2::RequestHead<'_>) -> Self {
        let target = head.path.or(head.authority).unwrap_or_default();
        Self::new(format, head.method, target, "HTTP/2.0", |name| head.fields.get(name))
    }

    fn new<'v>(
        format: AccessLogFormat,
        method: &str,
        target: &str,
        version: &str,
        value_of: impl Fn(&str) -> Option<&'v [u8]>,
    ) -> Self {
        let (mut request, mut referer_and_agent) = (Vec::new(), Vec::new());
        match format {
            AccessLogFormat::Combined => {
                // Writing to a Vec cannot fail.
                let _ = write!(request, "\"{method} ");
                push_escaped(&mut request, target.as_bytes());
                let _ = write!(request, " {version}\"");
                for name in ["referer", "user-agent"] {
                    referer_and_agent.extend_from_slice(b" \"");
                    push_escaped(&mut referer_and_agent, value_of(name).unwrap_or(b"-"));
                    referer_and_agent.push(b'"');
                }
            }
            AccessLogFormat::Json => {
                for (key, value) in [("method", method), ("target", target), ("version", version)] {
                    push_member(&mut request, key, Some(value.as_bytes()));
                    request.push(b',');
                }
                for (key, name) in [("referer", "referer"), ("user_agent", "user-agent")] {
                    referer_and_agent.push(b',');
                    push_member(&mut referer_and_agent, key, value_of(name));
                }
            }
        }
        Self { format, request, referer_and_agent }
    }

    /// Writes the line from the request on: `"GET / HTTP/1.1" 200 5 "-" "curl"`.
    pub(crate) fn write_line_end(&self, status: u16, content_bytes: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.request);
        let _ = match self.format {
            AccessLogFormat::Combined => write!(out, " {status} {content_bytes}"),
            AccessLogFormat::Json => write!(out, "\"status\":{status},\"bytes\":{content_bytes}"),
        };
        out.extend_from_slice(&self.referer_and_agent);
        out.extend_from_slice(match self.format {
            AccessLogFormat::Combined => b"\n",
            AccessLogFormat::Json => b"}\n",
        });
    }
}

/// Returns the line of a response without a request, from the request on.
pub(crate) fn line_without_request(format: AccessLogFormat, status: u16, content_bytes: u64) -> Vec<u8> {
    match format {
        AccessLogFormat::Combined => format!("\"-\" {status} {content_bytes} \"-\" \"-\"\n"),
        AccessLogFormat::Json => format!("\"status\":{status},\"bytes\":{content_bytes}}}\n"),
    }
    .into_bytes()
}

/// Appends a member of a JSON object.
fn push_member(out: &mut Vec<u8>, key: &str, value: Option<&[u8]>) {
    let _ = write!(out, "\"{key}\":");
    let value = value.map(String::from_utf8_lossy);
    // Writing a text to a Vec cannot fail.
    let _ = serde_json::to_writer(&mut *out, &value);
}

/// Appends `text`. Escapes bytes that could end the quotes or the line as `\xNN`, as nginx does.
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => {
                let _ = write!(out, "\\x{byte:02X}");
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_in_the_combined_format_and_cannot_be_forged() {
        let bytes = b"GET /?s=5 HTTP/1.1\r\nHost: h\r\nUser-Agent: a\"b\\c\r\n\r\n";
        let mut slots = wire::header_slots();
        let parsed = wire::parse_request(bytes, &wire::Limits::default(), &mut slots).unwrap();
        let wire::Parsed::Complete { head, .. } = parsed else { panic!() };
        let mut line = Vec::new();
        LoggedRequest::from_head(AccessLogFormat::Combined, &head).write_line_end(200, 5, &mut line);
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, "\"GET /?s=5 HTTP/1.1\" 200 5 \"-\" \"a\\x22b\\x5Cc\"\n");
        let mut line = b"{".to_vec();
        LoggedRequest::from_head(AccessLogFormat::Json, &head).write_line_end(200, 5, &mut line);
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((&json["user_agent"], &json["bytes"]), (&"a\"b\\c".into(), &5.into()));
        assert_eq!((&json["target"], &json["referer"]), (&"/?s=5".into(), &serde_json::Value::Null));
    }
}
