//! The access log: one line per request in the combined format or as JSON, written by its own thread.
//!
//! Each core collects lines in a batch. It sends the batch to the writer thread when it is full, and at
//! every tick. A core never blocks: if its batch is full and the channel has no free slot, because the
//! file is too slow, the core drops lines and counts them.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rt::tokio::sync::mpsc;
use wire::field_value;

/// Destination of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessLogTarget {
    /// `-`: standard output.
    Stdout,
    /// A file; lines are appended.
    File(std::path::PathBuf),
}

/// Format of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AccessLogFormat {
    /// The combined format of Apache and nginx.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

/// Lines on their way to the writer thread.
#[derive(Debug)]
struct AccessLogBatch {
    bytes: Vec<u8>,
    lines: u64,
}

/// Size at which a batch is passed to the writer.
const BATCH_BYTES: usize = 32 * 1024;
/// Slots per core of the channel to the writer thread. All cores share the slots.
const BATCHES_PER_CORE: usize = 16;

/// Thread that writes the log.
#[derive(Debug)]
pub(crate) struct AccessLogWriter {
    thread: JoinHandle<()>,
}

/// Sender of batches to the writer thread, with the number of lines whose write failed. Each core has a
/// clone.
#[derive(Clone, Debug)]
pub(crate) struct AccessLogSender {
    batches: mpsc::Sender<AccessLogBatch>,
    write_failed_lines: Arc<AtomicU64>,
}

/// Opens the target and starts the thread.
pub(crate) fn start(
    target: &AccessLogTarget,
    cores: usize,
) -> io::Result<(AccessLogSender, AccessLogWriter)> {
    let output: Box<dyn Write + Send> = match target {
        AccessLogTarget::Stdout => Box::new(io::stdout()),
        AccessLogTarget::File(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            let with_path = |error: io::Error| {
                io::Error::new(error.kind(), format!("access log {}: {error}", path.display()))
            };
            Box::new(file.map_err(with_path)?)
        }
    };
    start_writer(output, cores)
}

fn start_writer(
    output: Box<dyn Write + Send>,
    cores: usize,
) -> io::Result<(AccessLogSender, AccessLogWriter)> {
    let (batches, receiver) = mpsc::channel(BATCHES_PER_CORE * cores);
    let failed = Arc::new(AtomicU64::new(0));
    let sender = AccessLogSender { batches, write_failed_lines: Arc::clone(&failed) };
    let thread = std::thread::Builder::new()
        .name("access-log".to_owned())
        .spawn(move || write_all(receiver, output, &failed))?;
    Ok((sender, AccessLogWriter { thread }))
}

fn write_all(
    mut receiver: mpsc::Receiver<AccessLogBatch>,
    mut output: Box<dyn Write + Send>,
    failed: &AtomicU64,
) {
    while let Some(batch) = receiver.blocking_recv() {
        let written = output.write_all(&batch.bytes).and_then(|()| output.flush());
        if written.is_err() {
            failed.fetch_add(batch.lines, Ordering::Relaxed);
        }
    }
}

impl AccessLogWriter {
    /// Waits until all batches are written; the senders must be dropped.
    pub(crate) fn join(self) {
        // A panic of the thread has been printed already, and the log is no reason to fail.
        let _ = self.thread.join();
    }
}

/// Batch of one core, and its sender.
#[derive(Debug)]
pub(crate) struct CoreAccessLog {
    batch: RefCell<Vec<u8>>,
    lines: Cell<u64>,
    sender: AccessLogSender,
    format: AccessLogFormat,
}

impl CoreAccessLog {
    pub(crate) fn new(sender: AccessLogSender, format: AccessLogFormat) -> Self {
        Self { batch: RefCell::new(Vec::with_capacity(BATCH_BYTES)), lines: Cell::new(0), sender, format }
    }

    /// Returns the number of lines, of all cores, whose write failed.
    pub(crate) fn write_failed_lines(&self) -> u64 {
        self.sender.write_failed_lines.load(Ordering::Relaxed)
    }

    /// Adds a line to the batch: client, date, and the rest from [`LoggedRequest::write_line_end`].
    /// Returns `false` if the line was dropped.
    pub(crate) fn append_line(&self, peer: &str, date: &[u8], rest: &[u8]) -> bool {
        let (before_peer, before_date, before_rest) = match self.format {
            AccessLogFormat::Combined => ("", " - - [", "] "),
            AccessLogFormat::Json => ("{\"client\":\"", "\",\"time\":\"", "\","),
        };
        let texts = before_peer.len() + before_date.len() + before_rest.len();
        let bytes = peer.len() + date.len() + rest.len() + texts;
        if self.batch.borrow().len() + bytes > BATCH_BYTES && !self.submit_batch() {
            return false;
        }
        let mut batch = self.batch.borrow_mut();
        batch.extend_from_slice(before_peer.as_bytes());
        batch.extend_from_slice(peer.as_bytes());
        batch.extend_from_slice(before_date.as_bytes());
        batch.extend_from_slice(date);
        batch.extend_from_slice(before_rest.as_bytes());
        batch.extend_from_slice(rest);
        self.lines.set(self.lines.get() + 1);
        true
    }

    /// Sends the batch to the writer thread. Returns `false` if the channel has no free slot.
    pub(crate) fn submit_batch(&self) -> bool {
        if self.lines.get() == 0 {
            return true;
        }
        let Ok(permit) = self.sender.batches.try_reserve() else {
            return false;
        };
        let bytes = self.batch.replace(Vec::with_capacity(BATCH_BYTES));
        permit.send(AccessLogBatch { bytes, lines: self.lines.replace(0) });
        true
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
pub(crate) fn line_without_request(format: AccessLogFormat, status: u16) -> Vec<u8> {
    match format {
        AccessLogFormat::Combined => format!("\"-\" {status} 0 \"-\" \"-\"\n"),
        AccessLogFormat::Json => format!("\"status\":{status},\"bytes\":0}}\n"),
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

    #[test]
    fn a_log_that_does_not_keep_up_drops_and_does_not_wait() {
        let (batches, _receiver) = mpsc::channel(2);
        let log = CoreAccessLog::new(
            AccessLogSender { batches, write_failed_lines: Arc::default() },
            AccessLogFormat::Combined,
        );
        let line = [b'x'; 1000];
        let logged = (0..1000).filter(|_| log.append_line("::1", b"date", &line)).count();
        // Two batches are in flight and one waits for its turn.
        assert_eq!(logged, 3 * (BATCH_BYTES / (1000 + 3 + 4 + 8)));
    }

    #[test]
    fn a_file_that_fails_is_counted() {
        struct FullDisk;
        impl Write for FullDisk {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, writer) = start_writer(Box::new(FullDisk), 1).unwrap();
        let log = CoreAccessLog::new(sender.clone(), AccessLogFormat::Combined);
        assert!(log.append_line("::1", b"date", b"x\n") && log.submit_batch());
        let failed = Arc::clone(&sender.write_failed_lines);
        drop((sender, log));
        writer.join();
        assert_eq!(failed.load(Ordering::Relaxed), 1);
    }
}
