//! Whole lines in every format, and the way of batches through the thread to real targets.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use rt::clock::{SECOND_NS, now_ns};

use super::fixtures::{MS, done, plan, tcp, unreadable};
use super::*;
use crate::outcome::{Asked, Phase};

/// Monotonic second 1 is 2026-11-21 08:30:40.123 then.
const WALL: Wall = Wall::ahead_by(1_795_249_839_123 * MS);
const LOAD: Load =
    Load { process: 9, listener: 8, pool: 7, server: 6, server_queue: 5, pool_queue: 4 };
const PATIENCE: Duration = Duration::from_secs(20);

fn log(target: LogTarget, format: LogFormat) -> LogPlan {
    LogPlan { target, format, sample: 1.0, only_errors: false }
}

fn names() -> Names {
    Names::of(&plan(&["api"], &["app: a b"]))
}

/// A core's end whose batches go nowhere.
fn loose(plan: LogPlan) -> (CoreLog, mpsc::Receiver<Message>) {
    let (messages, waiting) = mpsc::channel(1_000);
    let logs = Arc::from([(plan, Arc::default())]);
    (CoreLog::new(Sender { logs, messages }, 0), waiting)
}

fn line_of(format: LogFormat, outcome: &Outcome<'_>) -> String {
    let (core, _waiting) = loose(log(LogTarget::Stdout, format));
    core.record(outcome, &names(), WALL, &LOAD);
    let inner = core.inner.borrow();
    let lane = &inner.lanes[0];
    String::from_utf8(lane.batch[..lane.filled].to_vec()).unwrap()
}

/// An HAProxy line without the process in front, which differs from run to run.
fn haproxy_line(outcome: &Outcome<'_>) -> String {
    let line = line_of(LogFormat::Haproxy, outcome);
    let prefix = format!("weir[{}]: ", std::process::id());
    line.strip_prefix(&prefix).and_then(|line| line.strip_suffix('\n')).unwrap().to_owned()
}

/// What its target file holds.
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Waits for something that another thread does.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline_ns = now_ns() + 20 * SECOND_NS;
    while !holds() {
        assert!(now_ns() < deadline_ns, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn json_has_everything_and_no_secret() {
    let line = line_of(LogFormat::Json, &done());
    assert_eq!(
        line,
        "{\"time\":\"2026-11-21T08:30:40.123Z\",\"client\":\"10.0.0.7\",\"client_port\":41000,\
         \"listener\":\"web\",\"route\":\"api\",\"pool\":\"app\",\"server\":\"b\",\"method\":\"GET\",\
         \"target\":\"/a?b=1&token=***\",\"host\":\"example.org\",\"version\":\"HTTP/1.1\",\
         \"status\":200,\"end\":\"done\",\"termination\":\"--\",\"refusal\":null,\"bytes_in\":90,\
         \"bytes_out\":350,\"content_bytes\":100,\"tq_us\":1000,\"tw_us\":2000,\"tc_us\":3000,\
         \"tr_us\":4000,\"td_us\":5000,\"total_us\":15000,\"retries\":1,\"reused\":false,\
         \"wasted\":false,\"request_id\":\"0192f0c1d2e3\",\"user_agent\":\"curl/8.5.0\",\
         \"referer\":\"http://***@a.example/?key=***\"}\n"
    );
}

#[test]
fn json_says_null_for_what_never_was() {
    let line = line_of(LogFormat::Json, &unreadable());
    let read: serde_json::Value = serde_json::from_str(&line).unwrap();
    for name in ["route", "pool", "server", "method", "target", "host", "version", "tq_us", "tw_us"]
    {
        assert!(read[name].is_null(), "{name}: {line}");
    }
    assert_eq!((&read["refusal"], &read["total_us"]), (&"bare_lf".into(), &2_000.into()));
    assert_eq!(read["termination"], "PR");
}

#[test]
fn json_lines_have_the_fields_of_the_table_in_its_order() {
    for outcome in [done(), unreadable(), tcp(), Outcome { client: None, ..done() }] {
        let line = line_of(LogFormat::Json, &outcome);
        let read: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
        assert_eq!(read.len(), FIELDS.len());
        let places: Vec<_> =
            FIELDS.iter().map(|(name, _)| line.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(places.is_sorted(), "{line}");
    }
}

#[test]
fn combined_is_as_nginx_has_it() {
    assert_eq!(
        line_of(LogFormat::Combined, &done()),
        "10.0.0.7 - - [21/Nov/2026:08:30:40 +0000] \"GET /a?b=1&token=*** HTTP/1.1\" 200 100 \
         \"http://***@a.example/?key=***\" \"curl/8.5.0\"\n"
    );
    assert_eq!(
        line_of(LogFormat::Combined, &unreadable()),
        "10.0.0.7 - - [21/Nov/2026:08:30:40 +0000] \"-\" 400 0 \"-\" \"-\"\n"
    );
    let left = Outcome { status: 0, end: End::ClientGone, client: None, ..unreadable() };
    let line = line_of(LogFormat::Combined, &left);
    assert!(line.starts_with("unix: - - [") && line.contains("\"-\" 499 0 "), "{line}");
    let slow = Outcome { status: 0, end: End::WriteTimeout, ..done() };
    assert!(line_of(LogFormat::Combined, &slow).contains("HTTP/1.1\" 000 100 "));
}

#[test]
fn haproxy_lines_are_those_of_httplog() {
    assert_eq!(
        haproxy_line(&done()),
        "10.0.0.7:41000 [21/Nov/2026:08:30:40.123] web app/b 1/2/3/4/15 200 350 - - ---- 9/8/7/6/1 \
         5/4 \"GET /a?b=1&token=*** HTTP/1.1\""
    );
    assert_eq!(
        haproxy_line(&unreadable()),
        "10.0.0.7:41000 [21/Nov/2026:08:30:40.123] web web/<NOSRV> -1/-1/-1/-1/2 400 350 - - PR-- \
         9/8/7/6/0 5/4 \"<BADREQ>\""
    );
}

#[test]
fn haproxy_codes_say_who_ended_it_and_where() {
    let start_ns = 1_000 * MS;
    let times = |dispatched_ns, connected_ns, first_byte_ns| crate::outcome::Times {
        dispatched_ns,
        connected_ns,
        first_byte_ns,
        ..done().times
    };
    let none = times(0, 0, 0);
    for (end, phase, status, times, expected) in [
        (End::Answered, Phase::Request, 301, none, "1/-1/-1/-1/15 301 350 - - LR-- "),
        (End::Denied, Phase::Request, 403, none, "1/-1/-1/-1/15 403 350 - - PR-- "),
        // It waited, though it never got a server: the wait is what tells.
        (End::QueueTimeout, Phase::Queue, 503, none, "1/14/-1/-1/15 503 350 - - sQ-- "),
        (
            End::ConnectFailed,
            Phase::Connect,
            503,
            times(start_ns + 3 * MS, 0, 0),
            "1/2/-1/-1/15 503 350 - - SC-- ",
        ),
        (
            End::ServerTimeout,
            Phase::Head,
            504,
            times(start_ns + 3 * MS, start_ns + 3 * MS, 0),
            "1/2/0/-1/15 504 350 - - sH-- ",
        ),
        (End::ClientGone, Phase::Data, 0, done().times, "1/2/3/4/15 -1 350 - - CD-- "),
    ] {
        let line = haproxy_line(&Outcome { end, phase, status, times, ..done() });
        assert!(line.contains(expected), "{end:?}: {line}");
    }
}

#[test]
fn tcp_connections_have_the_form_of_tcplog() {
    assert_eq!(
        haproxy_line(&tcp()),
        "10.0.0.7:41000 [21/Nov/2026:08:30:40.123] raw app/b 3/3/7000 350 -- 9/8/7/6/0 5/4"
    );
    let refused = Outcome {
        pool: None,
        server: None,
        client: None,
        client_port: 0,
        end: End::NoServer,
        phase: Phase::Connect,
        times: unreadable().times,
        ..tcp()
    };
    assert_eq!(
        haproxy_line(&refused),
        "unix:0 [21/Nov/2026:08:30:40.123] raw raw/<NOSRV> -1/-1/2 350 SC 9/8/7/6/0 5/4"
    );
}

#[test]
fn no_text_of_a_client_can_forge_a_line() {
    let mut hostile = b"\"} {\n\r\\\" 200 [x] \x1b[2J\0\xff\xc3\xa4".to_vec();
    hostile.extend(0..=255u8);
    let asked = Asked {
        method: &hostile,
        target: &hostile,
        version: wire::Version::Http10,
        host: &hostile,
        referer: &hostile,
        user_agent: &hostile,
        request_id: &hostile,
    };
    let outcome = Outcome { request: Some(asked), ..done() };
    for format in [LogFormat::Json, LogFormat::Combined, LogFormat::Haproxy] {
        let line = line_of(format, &outcome);
        let (text, end) = line.split_at(line.len() - 1);
        assert_eq!(end, "\n");
        assert!(!text.chars().any(char::is_control), "{format:?}: {text}");
    }
    let line = line_of(LogFormat::Json, &outcome);
    let read: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
    assert_eq!(read.len(), FIELDS.len());
    let quotes = |format| line_of(format, &outcome).matches('"').count();
    assert_eq!((quotes(LogFormat::Combined), quotes(LogFormat::Haproxy)), (6, 2));
}

#[test]
fn the_longest_line_has_its_bound() {
    let long = vec![0; 100_000];
    let asked = Asked {
        method: &long,
        target: &long,
        version: wire::Version::Http11,
        host: &long,
        referer: &long,
        user_agent: &long,
        request_id: &long,
    };
    for format in [LogFormat::Json, LogFormat::Combined, LogFormat::Haproxy] {
        let line = line_of(format, &Outcome { request: Some(asked), ..done() });
        assert!(line.len() > 5_000 && line.len() <= LINE_BYTES_MAX, "{}", line.len());
        assert!(line.contains("..."));
    }
}

#[test]
fn a_log_that_does_not_keep_up_drops_and_does_not_wait() {
    let (core, _waiting) = loose(log(LogTarget::Stdout, LogFormat::Json));
    let names = names();
    let bytes = line_of(LogFormat::Json, &done()).len();
    let lines_a_batch = BATCH_BYTES.div_ceil(bytes) as u64;
    // Batches on their way, and one that waits for its turn.
    let room = (BATCHES_MAX as u64 + 1) * lines_a_batch;
    for _ in 0..room + 100 {
        core.record(&done(), &names, WALL, &LOAD);
    }
    assert_eq!(core.dropped(), 100);
    assert!(!core.hand_over());
    assert_eq!(core.inner.borrow().lanes[0].counts.behind.load(Ordering::Relaxed), 100);
}

#[test]
fn buffers_come_back_and_lines_are_taken_again() {
    let (core, mut waiting) = loose(log(LogTarget::Stdout, LogFormat::Json));
    let names = names();
    while core.dropped() == 0 {
        core.record(&done(), &names, WALL, &LOAD);
    }
    while let Ok(Message::Batch(batch)) = waiting.try_recv() {
        batch.back.try_send(batch.bytes).unwrap();
    }
    core.record(&done(), &names, WALL, &LOAD);
    assert_eq!(core.dropped(), 1);
    let inner = core.inner.borrow();
    let lane = &inner.lanes[0];
    assert_eq!((lane.away, lane.free.len(), lane.lines), (1, FREE_MAX - 1, 1));
}

#[test]
fn errors_are_always_logged_and_the_rest_by_chance() {
    let count = |sample, only_errors, outcome: &Outcome<'_>| {
        let plan = LogPlan { sample, only_errors, ..log(LogTarget::Stdout, LogFormat::Haproxy) };
        let (core, _waiting) = loose(plan);
        let names = names();
        for _ in 0..1_000 {
            core.record(outcome, &names, WALL, &LOAD);
        }
        let inner = core.inner.borrow();
        inner.lanes[0].lines + {
            let sent = inner.lanes[0].away;
            // All lines have the same length here.
            let batch = BATCH_BYTES.div_ceil(haproxy_bytes(outcome));
            (sent * batch) as u64
        }
    };
    let failed = Outcome { status: 502, end: End::ServerClosed, ..done() };
    let upstream = Outcome { status: 500, ..done() };
    for bad in [&failed, &upstream, &unreadable()] {
        assert_eq!(count(0.0, true, bad), 1_000);
    }
    assert_eq!(count(1.0, false, &done()), 1_000);
    assert_eq!(count(0.0, false, &done()), 0);
    assert_eq!(count(1.0, true, &done()), 0);
    let half = count(0.5, false, &done());
    assert!((300..700).contains(&half), "{half}");
}

fn haproxy_bytes(outcome: &Outcome<'_>) -> usize {
    line_of(LogFormat::Haproxy, outcome).len()
}

#[test]
fn fields_are_captured_only_for_formats_that_show_them() {
    let wants = |format| loose(log(LogTarget::Stdout, format)).0.wants_fields();
    assert!(wants(LogFormat::Json) && wants(LogFormat::Combined) && !wants(LogFormat::Haproxy));
    let (sender, writer) = start(&[], 2).unwrap();
    let core = CoreLog::new(sender, 1);
    core.record(&done(), &names(), WALL, &LOAD);
    assert!(!core.wants_fields() && core.hand_over());
    drop(core);
    assert!(writer.finish(PATIENCE));
}

#[test]
fn a_renamed_file_is_left_for_a_new_one_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
    std::fs::write(&path, "before\n").unwrap();
    let plan = log(LogTarget::File(path.clone()), LogFormat::Combined);
    let (sender, writer) = start(&[plan], 1).unwrap();
    let core = CoreLog::new(sender.clone(), 0);
    let names = names();
    core.record(&done(), &names, WALL, &LOAD);
    assert!(core.hand_over());
    std::fs::rename(&path, &old).unwrap();
    writer.reopen().unwrap();
    assert!(path.exists());
    for _ in 0..2 {
        core.record(&done(), &names, WALL, &LOAD);
        assert!(core.hand_over());
    }
    let expected = line_of(LogFormat::Combined, &done());
    let counts = || sender.tally().counts()[0].clone();
    eventually("all is written", || counts().written == 3);
    drop((core, sender));
    assert!(writer.finish(PATIENCE));
    assert_eq!(read(&old), format!("before\n{expected}"));
    assert_eq!(read(&path), expected.repeat(2));
}

#[test]
fn a_file_that_cannot_be_opened_again_stays_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
    let plan = log(LogTarget::File(path.clone()), LogFormat::Combined);
    let (sender, writer) = start(&[plan], 1).unwrap();
    std::fs::rename(&path, &old).unwrap();
    std::fs::create_dir(&path).unwrap();
    let text = writer.reopen().unwrap_err().to_string();
    assert!(text.contains("log file:") && text.ends_with("it was not opened again"), "{text}");
    let core = CoreLog::new(sender, 0);
    core.record(&done(), &names(), WALL, &LOAD);
    assert!(core.hand_over());
    drop(core);
    assert!(writer.finish(PATIENCE));
    assert_eq!(read(&old), line_of(LogFormat::Combined, &done()));
}

#[test]
fn every_file_that_cannot_be_opened_is_named_at_once() {
    let bad = |name: &str| log(LogTarget::File(format!("/nowhere/{name}").into()), LogFormat::Json);
    let error = start(&[bad("a"), bad("b")], 1).unwrap_err().to_string();
    assert!(error.contains("file:/nowhere/a: ") && error.contains("file:/nowhere/b: "), "{error}");
}

#[test]
fn a_full_device_loses_lines_which_are_counted_and_reported_once() {
    let (said, heard) = std::sync::mpsc::channel();
    let say = Box::new(move |text: &str| said.send(text.to_owned()).unwrap());
    let plan = log(LogTarget::File("/dev/full".into()), LogFormat::Json);
    let (sender, writer) = start_saying(&[plan], 1, say).unwrap();
    let core = CoreLog::new(sender.clone(), 0);
    let counts = || sender.tally().counts().remove(0);
    let lost = |counts: TargetCounts| counts.failed + counts.waiting;
    let mut lines = 0;
    // A log thread that is held up for longer than the target is left alone tries each batch; but it
    // is left alone for longer after each.
    eventually("the target is left alone", || {
        for _ in 0..3 {
            core.record(&done(), &names(), WALL, &LOAD);
            core.record(&done(), &names(), WALL, &LOAD);
            lines += 2;
            assert!(core.hand_over());
        }
        eventually("all is lost", || lost(counts()) == lines);
        counts().waiting > 0
    });
    let counts = counts();
    assert!(counts.written == 0 && counts.failed >= 2 && counts.waiting >= 2, "{counts:?}");
    drop((core, sender));
    assert!(writer.finish(PATIENCE));
    assert_eq!(heard.try_iter().count(), 1);
}

#[test]
fn half_a_line_is_not_continued() {
    struct Short(Vec<u8>);
    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match 5 - self.0.len() {
                0 => Err(io::ErrorKind::StorageFull.into()),
                room => {
                    let taken = room.min(bytes.len()).min(2);
                    self.0.extend_from_slice(&bytes[..taken]);
                    Ok(taken)
                }
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let written = output::write_lines(&mut Short(Vec::new()), b"abc\nd\nef\n");
    assert!(written.lines == 1 && written.mid_line && written.result.is_err(), "{written:?}");
    let written = output::write_lines(&mut Short(Vec::new()), b"a\nbc\n");
    assert!(written.lines == 2 && !written.mid_line && written.result.is_ok(), "{written:?}");
}

#[test]
fn a_pipe_that_nobody_reads_stops_no_core_and_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Open for both, so that the writer's open does not wait for a reader; nobody reads.
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (sender, writer) = start(&[log(LogTarget::File(path), LogFormat::Json)], 1).unwrap();
    let core = CoreLog::new(sender, 0);
    let names = names();
    while core.dropped() == 0 {
        core.record(&done(), &names, WALL, &LOAD);
    }
    drop(core);
    assert!(!writer.finish(Duration::from_millis(100)));
    drop(reader);
}

#[test]
fn syslog_over_udp_is_a_datagram_a_line() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let target = LogTarget::SyslogUdp(server.local_addr().unwrap());
    let (sender, writer) = start(&[log(target, LogFormat::Haproxy)], 1).unwrap();
    let core = CoreLog::new(sender, 0);
    for outcome in [done(), tcp()] {
        core.record(&outcome, &names(), WALL, &LOAD);
    }
    assert!(core.hand_over());
    for outcome in [done(), tcp()] {
        let mut buffer = [0; 2_000];
        let bytes = server.recv(&mut buffer).unwrap();
        let expected = format!(
            "<134>1 2026-11-21T08:30:40.123Z {} weir {} access - {}",
            host_name(),
            std::process::id(),
            haproxy_line(&outcome)
        );
        assert_eq!(String::from_utf8_lossy(&buffer[..bytes]), expected);
    }
    drop(core);
    assert!(writer.finish(PATIENCE));
}

#[test]
fn a_local_syslog_that_comes_late_gets_what_comes_then() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let plan = log(LogTarget::SyslogUnix(path.clone()), LogFormat::Combined);
    let (sender, writer) = start(&[plan], 1).unwrap();
    let core = CoreLog::new(sender.clone(), 0);
    core.record(&done(), &names(), WALL, &LOAD);
    assert!(core.hand_over());
    eventually("the first line is lost", || sender.tally().counts()[0].failed == 1);
    let server = UnixDatagram::bind(&path).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    eventually("it is tried again", || {
        core.record(&done(), &names(), WALL, &LOAD);
        // Refused while as many batches as allowed are on their way; the next time takes them along.
        core.hand_over();
        sender.tally().counts()[0].written > 0
    });
    let mut buffer = [0; 2_000];
    let bytes = server.recv(&mut buffer).unwrap();
    let expected = format!(
        "<134>Nov 21 08:30:40 weir[{}]: {}",
        std::process::id(),
        line_of(LogFormat::Combined, &done())
    );
    assert_eq!(String::from_utf8_lossy(&buffer[..bytes]), expected.trim_end());
    drop((core, sender));
    assert!(writer.finish(PATIENCE));
}

/// What recording costs: `cargo test -p proxy --release -- --ignored --nocapture cost`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_line() {
    // Few at a time and often, so that the best is one which nothing else interrupted.
    const LINES: u64 = 5_000;
    let names = names();
    let plain = Asked { target: b"/api/v1/items/12345", referer: b"", ..done().request.unwrap() };
    let agent = b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
        Chrome/131.0.0.0 Safari/537.36";
    let browser = Asked { referer: b"https://example.org/start", user_agent: agent, ..plain };
    let query = done().request.unwrap();
    for format in [LogFormat::Json, LogFormat::Combined, LogFormat::Haproxy] {
        for (what, asked) in [("curl", plain), ("browser", browser), ("secrets", query)] {
            let (core, mut waiting) = loose(log(LogTarget::Stdout, format));
            let mut outcome = Outcome { request: Some(asked), ..done() };
            let mut best_ns = u64::MAX;
            for _ in 0..200 {
                let start_ns = now_ns();
                for line in 0..LINES {
                    outcome.times.end_ns += 1_000;
                    outcome.bytes_out += 1;
                    core.record(std::hint::black_box(&outcome), &names, WALL, &LOAD);
                    if line % 32 != 0 {
                        continue;
                    }
                    if let Ok(Message::Batch(batch)) = waiting.try_recv() {
                        batch.back.try_send(batch.bytes).unwrap();
                    }
                }
                best_ns = best_ns.min(now_ns() - start_ns);
            }
            assert_eq!(core.dropped(), 0);
            let empty = Outcome { request: Some(asked), ..done() };
            let bytes = line_of(format, &empty).len();
            println!("{format:?} {what}: {} ns a line of {bytes} bytes", best_ns / LINES);
        }
    }
}
