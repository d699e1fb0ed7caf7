//! Tests of batches, up to the log thread and its targets.

use std::io::Write;

use rt::clock::{SECOND_NS, now_ns};

use super::*;

const LINE: &[u8] = b"0123456789abcdef0123456789abcde\n";
const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns batches that go nowhere.
fn detached_batches() -> (LineBatches, mpsc::Receiver<WriterMessage>) {
    let (messages, receiver) = mpsc::channel(1_000);
    let targets = Arc::from([(LogTarget::Stdout, Arc::default())]);
    (LogSender { targets, messages }.batches(0, LINE.len()), receiver)
}

/// Waits for a condition that another thread makes true.
fn wait_until(condition_name: &str, mut is_met: impl FnMut() -> bool) {
    let deadline_ns = now_ns() + 20 * SECOND_NS;
    while !is_met() {
        assert!(now_ns() < deadline_ns, "{condition_name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_log_that_does_not_keep_up_drops_and_does_not_wait() {
    let (mut batches, _receiver) = detached_batches();
    // Batches in flight, and one that waits for its turn.
    let capacity = (BATCHES_MAX + 1) * BATCH_BYTES / LINE.len();
    let added = (0..capacity + 100).filter(|_| batches.push_line(&[LINE])).count();
    assert_eq!(added, capacity);
    assert!(!batches.hand_over());
    assert_eq!(batches.counts.overflowed.load(Ordering::Relaxed), 100);
}

#[test]
fn buffers_come_back_and_lines_are_taken_again() {
    let (mut batches, mut receiver) = detached_batches();
    while batches.push_line(&[LINE]) {}
    while let Ok(WriterMessage::Batch(batch)) = receiver.try_recv() {
        batch.return_sender.try_send(batch.bytes).unwrap();
    }
    assert!(batches.push_line(&[&LINE[..5], &LINE[5..]]));
    assert_eq!((batches.in_flight, batches.free_buffers.len(), batches.lines), (1, FREE_BUFFERS_MAX - 1, 1));
    assert_eq!(&batches.batch[..batches.filled], LINE);
}

#[test]
fn a_line_that_is_too_long_is_dropped() {
    let (mut batches, _receiver) = detached_batches();
    while batches.filled < BATCH_BYTES - 1 {
        assert!(batches.push_line(&[b"x"]));
    }
    assert!(!batches.push_line(&[LINE, b"and", b"more"]));
    assert!(batches.push_line(&[LINE]));
    assert_eq!(batches.counts.overflowed.load(Ordering::Relaxed), 1);
}

#[test]
fn a_full_device_loses_lines_which_are_counted_and_reported_once() {
    let (message_sender, message_receiver) = std::sync::mpsc::channel();
    let printer = Box::new(move |text: &str| message_sender.send(text.to_owned()).unwrap());
    let target = LogTarget::File("/dev/full".into());
    let (sender, writer) = start_with_printer(&[target.into()], 1, printer).unwrap();
    let mut batches = sender.batches(0, LINE.len());
    let counts = || sender.line_counters().counts().remove(0);
    let lost = |counts: TargetCounts| counts.failed + counts.backoff;
    let mut lines = 0;
    // A log thread that is delayed for longer than the backoff tries each batch; but the backoff
    // grows after each.
    wait_until("the target is left alone", || {
        for _ in 0..3 {
            assert!(batches.push_line(&[LINE]) && batches.push_line(&[LINE]) && batches.hand_over());
            lines += 2;
        }
        wait_until("all is lost", || lost(counts()) == lines);
        counts().backoff > 0
    });
    let counts = counts();
    assert!(counts.written == 0 && counts.failed >= 2 && counts.backoff >= 2, "{counts:?}");
    drop((batches, sender));
    assert!(writer.finish(TIMEOUT));
    assert_eq!(message_receiver.try_iter().count(), 1);
}

#[test]
fn half_a_line_is_not_continued() {
    struct Short(Vec<u8>);
    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match 5 - self.0.len() {
                0 => Err(io::ErrorKind::StorageFull.into()),
                remaining => {
                    let count = remaining.min(bytes.len()).min(2);
                    self.0.extend_from_slice(&bytes[..count]);
                    Ok(count)
                }
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let written = output::write_lines(&mut Short(Vec::new()), b"abc\nd\nef\n");
    assert!(written.lines == 1 && written.is_mid_line && written.result.is_err(), "{written:?}");
    let written = output::write_lines(&mut Short(Vec::new()), b"a\nbc\n");
    assert!(written.lines == 2 && !written.is_mid_line && written.result.is_ok(), "{written:?}");
}

/// A FIFO, and a log of one core that writes to it.
struct FifoLog {
    path: PathBuf,
    _directory: tempfile::TempDir,
    messages: std::sync::mpsc::Receiver<String>,
    sender: LogSender,
    writer: LogWriter,
    batches: LineBatches,
}

impl FifoLog {
    /// Starts the log while nobody reads the FIFO.
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        make_node(&path, rustix::fs::FileType::Fifo);
        let (message_sender, messages) = std::sync::mpsc::channel();
        let printer = Box::new(move |text: &str| message_sender.send(text.to_owned()).unwrap());
        let (sender, writer) =
            start_with_printer(&[LogTarget::File(path.clone()).into()], 1, printer).unwrap();
        let batches = sender.batches(0, LINE.len());
        Self { path, _directory: directory, messages, sender, writer, batches }
    }

    fn push(&mut self) {
        assert!(self.batches.push_line(&[LINE]) && self.batches.hand_over());
    }

    fn counts(&self) -> TargetCounts {
        self.sender.line_counters().counts().remove(0)
    }

    fn lost(&self) -> u64 {
        let counts = self.counts();
        counts.failed + counts.backoff
    }
}

fn make_node(path: &std::path::Path, kind: rustix::fs::FileType) {
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), 0).unwrap();
}

/// Opens the reading end of a FIFO, which does not wait for its writer.
fn open_reader(path: &std::path::Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).unwrap()
}

#[test]
fn a_fifo_loses_lines_while_nobody_reads_it_and_gets_them_again() {
    use std::io::Read as _;
    let mut log = FifoLog::start();
    let first_message = log.messages.try_recv().unwrap();
    assert!(first_message.contains("no process reads this FIFO"), "{first_message}");
    log.push();
    wait_until("the line is lost", || log.lost() == 1);
    for round in 1..=2 {
        let mut reader = open_reader(&log.path);
        let written_before = log.counts().written;
        wait_until("a line is written", || {
            log.push();
            log.counts().written > written_before
        });
        let mut text = vec![0; LINE.len()];
        wait_until("the line can be read", || reader.read_exact(&mut text).is_ok());
        assert_eq!(text, LINE, "{round}");
        drop(reader);
        let lost_before = log.lost();
        wait_until("lines are lost without the reader", || {
            log.push();
            log.lost() > lost_before
        });
    }
    drop((log.batches, log.sender));
    assert!(log.writer.finish(TIMEOUT));
}

#[test]
fn a_reader_that_stops_reading_costs_lines_but_neither_the_thread_nor_the_reopen() {
    let mut log = FifoLog::start();
    let reader = open_reader(&log.path);
    wait_until("the FIFO is full", || {
        // More than a FIFO holds, without more than a core may have in flight.
        log.batches.push_line(&[LINE]);
        log.batches.hand_over();
        log.lost() > 0
    });
    assert!(log.writer.reopen().is_ok());
    let texts: Vec<String> = log.messages.try_iter().collect();
    assert!(texts.iter().any(|text| text.contains("its reader does not read")), "{texts:?}");
    drop(reader);
    assert!(log.writer.reopen().unwrap_err().to_string().contains("no process reads this FIFO"));
    drop((log.batches, log.sender));
    assert!(log.writer.finish(TIMEOUT));
}

#[test]
fn paths_that_are_no_files_are_named_and_the_null_device_is_a_target() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    make_node(&socket, rustix::fs::FileType::Socket);
    let open = |path: &std::path::Path| start(&[LogTarget::File(path.into()).into()], 1).map(drop);
    for (path, expected) in
        [(socket.as_path(), "it is a socket: write syslog:"), (directory.path(), "it is a directory")]
    {
        let error = open(path).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(&path.display().to_string()), "{error}");
    }
    let missing = open(&directory.path().join("none/log")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert!(open(std::path::Path::new("/dev/null")).is_ok());
    assert!(open(&directory.path().join("file")).is_ok());
}

/// Writes lines of 32 bytes to a file, one batch each, and returns the counters.
fn write_lines_to(plan: TargetPlan, lines: usize) -> (TargetCounts, Vec<String>) {
    let (message_sender, messages) = std::sync::mpsc::channel();
    let printer = Box::new(move |text: &str| message_sender.send(text.to_owned()).unwrap());
    let (sender, writer) = start_with_printer(&[plan], 1, printer).unwrap();
    let counters = sender.line_counters();
    let mut batches = sender.batches(0, LINE.len());
    for _ in 0..lines {
        assert!(batches.push_line(&[LINE]));
        wait_until("there is room", || batches.hand_over());
    }
    drop((batches, sender));
    assert!(writer.finish(TIMEOUT));
    (counters.counts().remove(0), messages.try_iter().collect())
}

#[test]
fn a_file_is_rotated_by_its_size_and_loses_no_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let rotation = Rotation { size_bytes: 3 * LINE.len() as u64, files_kept: 100 };
    let plan = TargetPlan { target: LogTarget::File(path.clone()), rotation: Some(rotation) };
    let (counts, messages) = write_lines_to(plan, 31);
    assert_eq!((counts.written, counts.rotated, counts.rotations_failed), (31, 10, 0), "{messages:?}");
    let text: String = std::iter::once(path)
        .chain((1..=10).map(|number| directory.path().join(format!("log.{number}"))))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(text.as_bytes(), LINE.repeat(31));
}

#[test]
fn a_file_that_cannot_be_renamed_grows_and_says_so_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    // A directory in the place of the next name, which is not empty.
    std::fs::create_dir_all(directory.path().join("log.1/x")).unwrap();
    let rotation = Rotation { size_bytes: LINE.len() as u64, files_kept: 1 };
    let plan = TargetPlan { target: LogTarget::File(path.clone()), rotation: Some(rotation) };
    let (counts, messages) = write_lines_to(plan, 10);
    assert!(counts.written == 10 && counts.rotated == 0 && counts.rotations_failed >= 1, "{counts:?}");
    assert_eq!(std::fs::read(&path).unwrap(), LINE.repeat(10));
    assert!(matches!(&messages[..], [message] if message.contains("not rotated, it grows")), "{messages:?}");
}
