//! Format of a log by a text with values. A value can neither end its line nor its quotes, and long ones are cut,
//! so that a line is always complete. Values that only the request's head has are captured when it arrives.

#[cfg(any(test, fuzzing))]
mod line_of_values;

use std::fmt::{self, Write as _};

#[cfg(any(test, fuzzing))]
pub(crate) use line_of_values::line_of_values;
use server_shell::date::milliseconds;

use super::escape::EscapeRule;
use super::line::{LINE_BYTES_MAX, LogEntry, TARGET_BYTES_MAX, push_address, push_text, push_url};
use super::sink::LineBuffer;
use crate::plan::{Fact, LogTemplate, Variable};
use crate::template::{DurationForm, ExchangePart, FORMAT_BYTES_MAX, Piece};

/// Part of a line that neither values nor the text of the format take: the prefix of syslog.
const PREFIX_BYTES_MAX: usize = 1_024;
/// Maximum length of an escaped byte.
const ESCAPED_BYTES_MAX: usize = 6;

/// A value that is captured when a head arrives, with its name.
pub(crate) type CapturedValue = (Variable, Box<str>);

/// Returns the values of a format that are captured when a head arrives.
pub(super) fn captured_values(format: &LogTemplate) -> impl Iterator<Item = CapturedValue> {
    let captured = format.template.variables().filter(|variable| is_captured(variable));
    captured.map(|variable| (variable.clone(), variable.to_string().into()))
}

/// Returns the maximum length of a value, so that all values of a format fit into a line.
fn value_bytes_max(format: &LogTemplate) -> usize {
    const VALUES_BYTES: usize = (LINE_BYTES_MAX - PREFIX_BYTES_MAX - FORMAT_BYTES_MAX) / ESCAPED_BYTES_MAX;
    (VALUES_BYTES / format.value_count.max(1)).min(TARGET_BYTES_MAX)
}

/// Returns whether a value has to be captured from the request, because its outcome does not have it.
fn is_captured(variable: &Variable) -> bool {
    match variable {
        Variable::Parameter(_)
        | Variable::Header(_)
        | Variable::Cookie(_)
        | Variable::Map(_)
        | Variable::Claim(_) => true,
        Variable::Fact(fact) => fact.is_of_certificate() || *fact == Fact::User,
        Variable::Capture(_) | Variable::Duration(..) => false,
    }
}

/// Appends a captured value, written by `append`, behind those in `out`.
pub(crate) fn append_captured(name: &str, append: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    let start = out.len();
    // Both lengths fit: a name is a part of a format, and a value is cut.
    out.extend_from_slice(&(name.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name.as_bytes());
    let value_start = out.len();
    append(out);
    // The byte more shows that it is cut.
    out.truncate(value_start + TARGET_BYTES_MAX + 1);
    let value_bytes = (out.len() - value_start) as u32;
    out[start + 4..start + 8].copy_from_slice(&value_bytes.to_le_bytes());
}

/// Returns a captured value. The names are compared, because the log may have another format by now.
fn find_captured<'a>(mut captured: &'a [u8], variable: &Variable) -> Option<&'a [u8]> {
    loop {
        let (name_bytes, rest) = captured.split_first_chunk()?;
        let (value_bytes, rest) = rest.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name_bytes) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
        let mut expected = ExpectedName(name);
        if write!(expected, "{variable}").is_ok() && expected.0.is_empty() {
            return Some(value);
        }
        captured = rest;
    }
}

/// The rest of a name while the parts of another one are written and compared.
struct ExpectedName<'a>(&'a [u8]);

impl fmt::Write for ExpectedName<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(part.as_bytes()).ok_or(fmt::Error)?;
        Ok(())
    }
}

pub(super) fn push_line(out: &mut LineBuffer<'_>, format: &LogTemplate, entry: &LogEntry<'_>) {
    let escape = if format.is_json { EscapeRule::Json } else { EscapeRule::Nginx };
    let bytes_max = value_bytes_max(format);
    for piece in format.template.pieces() {
        match piece {
            Piece::Literal(text) => out.slice(text.as_bytes()),
            Piece::Value(variable, default) => {
                let mut value = ValueWriter { out, escape, bytes_max };
                let start = value.out.len();
                value.push(variable, entry);
                match value.out.len() == start {
                    true if default.is_empty() && !format.is_json => out.byte(b'-'),
                    true => out.slice(default.as_bytes()),
                    false => {}
                }
            }
        }
    }
    out.byte(b'\n');
}

struct ValueWriter<'o, 'l> {
    out: &'o mut LineBuffer<'l>,
    escape: EscapeRule,
    bytes_max: usize,
}

impl ValueWriter<'_, '_> {
    /// Writes a value; nothing if it is missing.
    fn push(&mut self, variable: &Variable, entry: &LogEntry<'_>) {
        match variable {
            Variable::Fact(fact) if !is_captured(variable) => self.push_fact(*fact, entry),
            Variable::Duration(part, form) => self.push_duration(*part, *form, entry),
            captured => {
                let request = entry.outcome.request.as_ref();
                let value = request.and_then(|request| find_captured(request.captured, captured));
                self.text(value.unwrap_or_default());
            }
        }
    }

    fn text(&mut self, text: &[u8]) {
        push_text(self.out, self.escape, text, self.bytes_max);
    }

    fn url(&mut self, url: &[u8]) {
        push_url(self.out, self.escape, url, self.bytes_max);
    }

    fn push_fact(&mut self, fact: Fact, entry: &LogEntry<'_>) {
        let (outcome, names) = (entry.outcome, entry.names);
        match fact {
            Fact::Source => match outcome.client {
                Some(address) => push_address(self.out, address),
                None => self.out.fixed(b"unix"),
            },
            Fact::SourcePort => self.out.number(outcome.client_port.into()),
            Fact::Scheme if outcome.tls_names.is_some() => self.out.fixed(b"https"),
            Fact::Scheme => self.out.fixed(b"http"),
            Fact::Listener => self.text(names.listener_text(outcome.listener).as_bytes()),
            Fact::Route => self.text(names.route_text(outcome.route).as_bytes()),
            Fact::Pool => self.text(names.pool_text(outcome.pool).as_bytes()),
            Fact::Server => self.text(names.server_text(outcome.pool, outcome.server).as_bytes()),
            Fact::Status => self.out.number(outcome.status.into()),
            Fact::Reason => self.text(wire::encode::reason(outcome.status).as_bytes()),
            Fact::TlsVersion => self.text(outcome.tls_names.map_or("", |(version, _)| version).as_bytes()),
            Fact::TlsCipher => self.text(outcome.tls_names.map_or("", |(_, cipher)| cipher).as_bytes()),
            Fact::TlsSni => self.text(outcome.server_name.unwrap_or_default().as_bytes()),
            Fact::TlsError => self.text(outcome.tls_error.unwrap_or_default().as_bytes()),
            Fact::End => self.text(outcome.end.code().as_bytes()),
            Fact::Termination => self.out.fixed(&[outcome.end.letter(), outcome.phase.letter()]),
            Fact::TraceId | Fact::SpanId => self.push_trace(fact, entry),
            Fact::Refusal => self.text(outcome.refusal.map_or("", |kind| kind.code()).as_bytes()),
            Fact::BytesIn => self.out.number(outcome.bytes_in),
            Fact::BytesOut => self.out.number(outcome.bytes_out),
            Fact::BytesContent => self.out.number(outcome.content_bytes_out),
            Fact::Retries => self.out.number(outcome.retries.into()),
            Fact::Cache => self.text(outcome.cache.map_or("", |result| result.code()).as_bytes()),
            Fact::Hedge => self.text(outcome.hedge.map_or("", |end| end.code()).as_bytes()),
            Fact::Reused => self.text(if outcome.reused { b"true" } else { b"false" }),
            Fact::Time | Fact::TimeUnix | Fact::TimeHttp | Fact::TimeMillis | Fact::TimeClf => {
                self.push_time(fact, entry);
            }
            _ => self.push_request(fact, entry),
        }
    }

    fn push_request(&mut self, fact: Fact, entry: &LogEntry<'_>) {
        let Some(request) = &entry.outcome.request else { return };
        let query_at = memchr::memchr(b'?', request.target).unwrap_or(request.target.len());
        match fact {
            Fact::Method => self.text(request.method),
            Fact::Protocol => self.out.fixed(request.protocol.name()),
            Fact::Host => self.text(without_port(request.host)),
            Fact::Target => self.url(request.target),
            Fact::Path => self.url(&request.target[..query_at]),
            Fact::Query => self.url(&request.target[query_at..]),
            Fact::RequestId => self.text(request.request_id),
            // The outcome has all others.
            _ => {}
        }
    }

    fn push_trace(&mut self, fact: Fact, entry: &LogEntry<'_>) {
        let Some(trace) = entry.outcome.trace else { return };
        match fact {
            Fact::TraceId => self.out.fixed(&trace.context.trace_id_text()),
            _ => self.out.fixed(&trace.context.span_id_text()),
        }
    }

    fn push_time(&mut self, fact: Fact, entry: &LogEntry<'_>) {
        match fact {
            Fact::TimeUnix => self.out.number(entry.start_wall_ns / 1_000_000_000),
            Fact::TimeHttp => self.out.slice(entry.start.http()),
            Fact::TimeClf => {
                self.out.fixed(entry.end.clf());
                self.out.fixed(b" +0000");
            }
            _ => {
                self.out.fixed(entry.start.iso());
                if fact == Fact::TimeMillis {
                    self.out.fixed(&milliseconds(entry.start_wall_ns));
                }
                self.out.byte(b'Z');
            }
        }
    }

    fn push_duration(&mut self, part: ExchangePart, form: DurationForm, entry: &LogEntry<'_>) {
        let timers = &entry.timers;
        let time_ns = match part {
            ExchangePart::Head => timers.tq_ns,
            ExchangePart::Queue => timers.tw_ns,
            ExchangePart::Connect => timers.tc_ns,
            ExchangePart::FirstByte => timers.tr_ns,
            ExchangePart::Response => timers.td_ns,
            ExchangePart::Server => timers.tc_ns.map(|connect_ns| {
                connect_ns + timers.tr_ns.unwrap_or_default() + timers.td_ns.unwrap_or_default()
            }),
            ExchangePart::Total => Some(timers.total_ns),
        };
        let Some(time_ns) = time_ns else { return };
        match form {
            DurationForm::Microseconds => self.out.number(time_ns / 1_000),
            DurationForm::Milliseconds => self.out.number(time_ns / 1_000_000),
            // A sink takes as much as fits and does not fail.
            DurationForm::Seconds => {
                let _ = write!(self.out, "{}.{:03}", time_ns / 1_000_000_000, time_ns / 1_000_000 % 1_000);
            }
        }
    }
}

fn without_port(host: &[u8]) -> &[u8] {
    match memchr::memrchr(b':', host) {
        Some(colon) if !host.ends_with(b"]") => &host[..colon],
        _ => host,
    }
}
