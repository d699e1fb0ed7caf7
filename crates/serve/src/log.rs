//! The access log: one line a request in the combined format, written by a thread of its own.
//!
//! A core gathers lines in a batch and hands the batch over when it is full or a tick old. It never
//! waits: when the file is slower than the requests and the batches on their way are as many as
//! allowed, lines are dropped and counted.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rt::tokio::sync::mpsc;
use wire::field_value;

/// Where the log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogTarget {
    /// `-`: standard output.
    Stdout,
    /// A file, which is appended to.
    File(std::path::PathBuf),
}

/// Lines on their way to the file.
#[derive(Debug)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
}

/// A batch is handed over when it has so many bytes.
const BATCH_BYTES: usize = 32 * 1024;
/// How many batches a core may have on their way.
const BATCHES_MAX: usize = 16;

/// The log thread.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: JoinHandle<()>,
}

/// What the cores share of the log: the way to it, and how many lines the file refused.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    batches: mpsc::Sender<Batch>,
    failed: Arc<AtomicU64>,
}

/// Opens the target and starts the thread.
pub(crate) fn start(target: &LogTarget, cores: usize) -> io::Result<(Sender, Writer)> {
    let output: Box<dyn Write + Send> = match target {
        LogTarget::Stdout => Box::new(io::stdout()),
        LogTarget::File(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path);
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("access log {}: {error}", path.display()))
            };
            Box::new(file.map_err(named)?)
        }
    };
    start_writer(output, cores)
}

fn start_writer(output: Box<dyn Write + Send>, cores: usize) -> io::Result<(Sender, Writer)> {
    let (batches, waiting) = mpsc::channel(BATCHES_MAX * cores);
    let failed = Arc::new(AtomicU64::new(0));
    let sender = Sender { batches, failed: Arc::clone(&failed) };
    let thread = std::thread::Builder::new()
        .name("access-log".to_owned())
        .spawn(move || write_all(waiting, output, &failed))?;
    Ok((sender, Writer { thread }))
}

fn write_all(
    mut waiting: mpsc::Receiver<Batch>,
    mut output: Box<dyn Write + Send>,
    failed: &AtomicU64,
) {
    while let Some(batch) = waiting.blocking_recv() {
        let written = output.write_all(&batch.bytes).and_then(|()| output.flush());
        if written.is_err() {
            failed.fetch_add(batch.lines, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Waits until all that was handed over is written; the senders must be gone.
    pub(crate) fn join(self) {
        // A panic of the thread has been printed already, and the log is no reason to fail.
        let _ = self.thread.join();
    }
}

/// One core's end of the log.
#[derive(Debug)]
pub(crate) struct CoreLog {
    batch: RefCell<Vec<u8>>,
    lines: Cell<u64>,
    sender: Sender,
}

impl CoreLog {
    pub(crate) fn new(sender: Sender) -> Self {
        Self { batch: RefCell::new(Vec::with_capacity(BATCH_BYTES)), lines: Cell::new(0), sender }
    }

    /// Lines that could not be written, of all cores.
    pub(crate) fn failed(&self) -> u64 {
        self.sender.failed.load(Ordering::Relaxed)
    }

    /// Adds a line: who, when, and the rest from [`Asker::line_rest`]. Returns whether it had room.
    pub(crate) fn line(&self, peer: &str, date: &[u8], rest: &[u8]) -> bool {
        let bytes = peer.len() + date.len() + rest.len() + 8;
        if self.batch.borrow().len() + bytes > BATCH_BYTES && !self.hand_over() {
            return false;
        }
        let mut batch = self.batch.borrow_mut();
        batch.extend_from_slice(peer.as_bytes());
        batch.extend_from_slice(b" - - [");
        batch.extend_from_slice(date);
        batch.extend_from_slice(b"] ");
        batch.extend_from_slice(rest);
        self.lines.set(self.lines.get() + 1);
        true
    }

    /// Hands over what there is; `false` when the log is too far behind.
    pub(crate) fn hand_over(&self) -> bool {
        if self.lines.get() == 0 {
            return true;
        }
        let Ok(place) = self.sender.batches.try_reserve() else {
            return false;
        };
        let bytes = self.batch.replace(Vec::with_capacity(BATCH_BYTES));
        place.send(Batch { bytes, lines: self.lines.replace(0) });
        true
    }
}

/// What the line says of the request itself: its first line and where it came from.
#[derive(Debug)]
pub(crate) struct Asker {
    first_line: Vec<u8>,
    from: Vec<u8>,
}

impl Asker {
    pub(crate) fn of(head: &wire::RequestHead<'_, '_>) -> Self {
        let mut first_line = Vec::new();
        let version = match head.version {
            wire::Version::Http10 => "HTTP/1.0",
            wire::Version::Http11 => "HTTP/1.1",
        };
        // Writing to a Vec cannot fail.
        let _ = write!(first_line, "\"{} ", head.method);
        push_escaped(&mut first_line, head.target.as_bytes());
        let _ = write!(first_line, " {version}\"");
        let mut from = Vec::new();
        for name in ["referer", "user-agent"] {
            from.extend_from_slice(b" \"");
            push_escaped(&mut from, field_value(head.headers, name).unwrap_or(b"-"));
            from.push(b'"');
        }
        Self { first_line, from }
    }

    /// The line from the request on: `"GET / HTTP/1.1" 200 5 "-" "curl"`.
    pub(crate) fn line_rest(&self, status: u16, content_bytes: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first_line);
        let _ = write!(out, " {status} {content_bytes}");
        out.extend_from_slice(&self.from);
        out.push(b'\n');
    }
}

/// Writes what could end the quotes or the line as `\xNN`, as nginx does.
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
        Asker::of(&head).line_rest(200, 5, &mut line);
        let line = String::from_utf8(line).unwrap();
        assert_eq!(line, "\"GET /?s=5 HTTP/1.1\" 200 5 \"-\" \"a\\x22b\\x5Cc\"\n");
    }

    #[test]
    fn a_log_that_does_not_keep_up_drops_and_does_not_wait() {
        let (batches, _waiting) = mpsc::channel(2);
        let log = CoreLog::new(Sender { batches, failed: Arc::default() });
        let line = [b'x'; 1000];
        let kept = (0..1000).filter(|_| log.line("::1", b"date", &line)).count();
        // Two batches on their way and one that waits for its turn.
        assert_eq!(kept, 3 * (BATCH_BYTES / (1000 + 3 + 4 + 8)));
    }

    #[test]
    fn a_file_that_fails_is_counted() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (sender, writer) = start_writer(Box::new(Full), 1).unwrap();
        let log = CoreLog::new(sender.clone());
        assert!(log.line("::1", b"date", b"x\n") && log.hand_over());
        let failed = Arc::clone(&sender.failed);
        drop((sender, log));
        writer.join();
        assert_eq!(failed.load(Ordering::Relaxed), 1);
    }
}
