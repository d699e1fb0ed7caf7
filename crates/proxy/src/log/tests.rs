//! Tests of complete lines in every format, and of batches that go through the thread to real
//! targets.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use rt::clock::{MonotonicTime, SECOND_NS};

use super::fixtures::{MS, malformed_request, plan, successful_request, tcp_connection};
use super::*;
use crate::outcome::{EndPhase, EndReason, LoggedRequest};
use crate::test_time::at;

/// With this offset, monotonic second 1 is 2026-11-21 08:30:40.123.
const WALL: WallClock = WallClock::ahead_by(1_795_249_839_123 * MS);
const LOAD: LoadCounts =
    LoadCounts { actconn: 9, feconn: 8, beconn: 7, srv_conn: 6, srv_queue: 5, backend_queue: 4 };
const TIMEOUT: Duration = Duration::from_secs(20);

fn log(target: LogTarget, format: LogFormat) -> LogPlan {
    LogPlan { target, format, sample: 1.0, only_errors: false, rotation: None }
}

fn names() -> LogNames {
    LogNames::new(&plan(&["api"], &["app: a b"]))
}

/// Returns a core's side whose lines go to `/dev/null`.
fn discarding_log(plan: LogPlan) -> (CoreLog, LogWriter) {
    let plan = LogPlan { target: LogTarget::File("/dev/null".into()), ..plan };
    let (sender, writer) = start(&[plan], 1).unwrap();
    (CoreLog::new(sender, 0), writer)
}

fn line_of(format: LogFormat, outcome: &Outcome<'_>) -> String {
    let (names, mut seconds) = (names(), SecondCache::default());
    let entry = seconds.entry(outcome, &names, &LOAD, WALL);
    let prefix = LinePrefix::for_log(&log(LogTarget::Stdout, format.clone()));
    let line = sink::render_to_vec(LINE_BYTES_MAX, |out| push_line(out, &prefix, &format, &entry));
    String::from_utf8(line).unwrap()
}

/// Returns an HAProxy line without the process prefix, which differs from run to run.
fn haproxy_line(outcome: &Outcome<'_>) -> String {
    let line = line_of(LogFormat::Haproxy, outcome);
    let prefix = format!("weir[{}]: ", std::process::id());
    line.strip_prefix(&prefix).and_then(|line| line.strip_suffix('\n')).unwrap().to_owned()
}

/// Returns the content of the target file.
fn read_file(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Waits for a condition that another thread makes true.
fn wait_until(condition_name: &str, mut is_met: impl FnMut() -> bool) {
    let deadline = MonotonicTime::now() + 20 * SECOND_NS;
    while !is_met() {
        assert!(MonotonicTime::now() < deadline, "{condition_name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn json_has_everything_and_no_secret() {
    let line = line_of(LogFormat::Json, &successful_request());
    assert_eq!(
        line,
        "{\"time\":\"2026-11-21T08:30:40.123Z\",\"client\":\"10.0.0.7\",\"client_port\":41000,\
         \"listener\":\"web\",\"route\":\"api\",\"pool\":\"app\",\"server\":\"b\",\"method\":\"GET\",\
         \"target\":\"/a?b=1&token=***\",\"host\":\"example.org\",\"version\":\"HTTP/1.1\",\
         \"status\":200,\"end\":\"done\",\"termination\":\"--\",\"refusal\":null,\"bytes_in\":90,\
         \"bytes_out\":350,\"content_bytes\":100,\"tq_us\":1000,\"tw_us\":2000,\"tc_us\":3000,\
         \"tr_us\":4000,\"td_us\":5000,\"total_us\":15000,\"retries\":1,\"reused\":false,\
         \"wasted\":false,\"hedge\":null,\"cache\":null,\"user\":null,\"request_id\":\"0192f0c1d2e3\",\"user_agent\":\"curl/8.5.0\",\
         \"referer\":\"http://***@a.example/?key=***\",\"tls_version\":null,\"tls_cipher\":null,\
         \"sni\":null,\"tls_error\":null,\"trace_id\":\"00000000000000000000000000000abc\"}\n"
    );
    let over_tls = Outcome {
        tls_names: Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384")),
        server_name: Some("a.test"),
        tls_error: Some("a \"fault\""),
        ..successful_request()
    };
    let line = line_of(LogFormat::Json, &over_tls);
    let end = ",\"tls_version\":\"TLSv1.3\",\"tls_cipher\":\"TLS_AES_256_GCM_SHA384\",\
               \"sni\":\"a.test\",\"tls_error\":\"a \\\"fault\\\"\",";
    assert!(line.contains(end), "{line}");
}

#[test]
fn json_has_null_for_absent_values() {
    let line = line_of(LogFormat::Json, &malformed_request());
    let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
    for name in ["route", "pool", "server", "method", "target", "host", "version", "tq_us", "tw_us"] {
        assert!(parsed[name].is_null(), "{name}: {line}");
    }
    assert_eq!((&parsed["refusal"], &parsed["total_us"]), (&"bare_lf".into(), &2_000.into()));
    assert_eq!(parsed["termination"], "PR");
}

#[test]
fn json_lines_have_the_fields_of_the_table_in_its_order() {
    for outcome in [
        successful_request(),
        malformed_request(),
        tcp_connection(),
        Outcome { client: None, ..successful_request() },
    ] {
        let line = line_of(LogFormat::Json, &outcome);
        let parsed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
        assert_eq!(parsed.len(), FIELDS.len());
        let positions: Vec<_> =
            FIELDS.iter().map(|(name, _)| line.find(&format!("\"{name}\":")).unwrap()).collect();
        assert!(positions.is_sorted(), "{line}");
    }
}

#[test]
fn combined_is_as_nginx_has_it() {
    assert_eq!(
        line_of(LogFormat::Combined, &successful_request()),
        "10.0.0.7 - - [21/Nov/2026:08:30:40 +0000] \"GET /a?b=1&token=*** HTTP/1.1\" 200 100 \
         \"http://***@a.example/?key=***\" \"curl/8.5.0\"\n"
    );
    assert_eq!(
        line_of(LogFormat::Combined, &malformed_request()),
        "10.0.0.7 - - [21/Nov/2026:08:30:40 +0000] \"-\" 400 0 \"-\" \"-\"\n"
    );
    let client_left = Outcome { status: 0, end: EndReason::ClientGone, client: None, ..malformed_request() };
    let line = line_of(LogFormat::Combined, &client_left);
    assert!(line.starts_with("unix: - - [") && line.contains("\"-\" 499 0 "), "{line}");
    let slow = Outcome { status: 0, end: EndReason::WriteTimeout, ..successful_request() };
    assert!(line_of(LogFormat::Combined, &slow).contains("HTTP/1.1\" 000 100 "));
}

#[test]
fn users_cannot_end_their_field() {
    for (user, combined, json) in [
        ("ann", "ann", "\"ann\""),
        ("ann b \"c", "ann\\x20b\\x20\\x22c", "\"ann b \\\"c\""),
        ("-", "\\x2D", "\"-\""),
        ("a\r\nb - ü", "a\\x0D\\x0Ab\\x20-\\x20\\xC3\\xBC", "\"a\\u000D\\u000Ab - ü\""),
    ] {
        let outcome = Outcome { user, ..successful_request() };
        let line = line_of(LogFormat::Combined, &outcome);
        assert!(line.starts_with(&format!("10.0.0.7 - {combined} [21/Nov")), "{line}");
        let line = line_of(LogFormat::Json, &outcome);
        assert!(line.contains(&format!(",\"user\":{json},\"request_id\":")), "{line}");
    }
    let long = "ü".repeat(1_000);
    for format in [LogFormat::Combined, LogFormat::Json] {
        let line = line_of(format, &Outcome { user: &long, ..successful_request() });
        assert!(line.len() < 3_000, "{line}");
    }
}

#[test]
fn haproxy_lines_are_those_of_httplog() {
    assert_eq!(
        haproxy_line(&successful_request()),
        "10.0.0.7:41000 [21/Nov/2026:08:30:40.123] web app/b 1/2/3/4/15 200 350 - - ---- 9/8/7/6/1 \
         5/4 \"GET /a?b=1&token=*** HTTP/1.1\""
    );
    assert_eq!(
        haproxy_line(&malformed_request()),
        "10.0.0.7:41000 [21/Nov/2026:08:30:40.123] web web/<NOSRV> -1/-1/-1/-1/2 400 350 - - PR-- \
         9/8/7/6/0 5/4 \"<BADREQ>\""
    );
}

#[test]
fn haproxy_codes_have_the_end_and_the_phase() {
    let start = at(1_000 * MS);
    let times = |dispatched, connected, first_byte| crate::outcome::Times {
        dispatched,
        connected,
        first_byte,
        ..successful_request().times
    };
    let none = times(at(0), at(0), at(0));
    for (end, phase, status, times, expected) in [
        (EndReason::LocalResponse, EndPhase::Request, 301, none, "1/-1/-1/-1/15 301 350 - - LR-- "),
        (EndReason::Denied, EndPhase::Request, 403, none, "1/-1/-1/-1/15 403 350 - - PR-- "),
        // It waited, though it never got a server; the waiting time shows that.
        (EndReason::QueueTimeout, EndPhase::Queue, 503, none, "1/14/-1/-1/15 503 350 - - sQ-- "),
        (
            EndReason::ConnectFailed,
            EndPhase::Connect,
            503,
            times(start + 3 * MS, at(0), at(0)),
            "1/2/-1/-1/15 503 350 - - SC-- ",
        ),
        (
            EndReason::ServerTimeout,
            EndPhase::Head,
            504,
            times(start + 3 * MS, start + 3 * MS, at(0)),
            "1/2/0/-1/15 504 350 - - sH-- ",
        ),
        (EndReason::ClientGone, EndPhase::Data, 0, successful_request().times, "1/2/3/4/15 -1 350 - - CD-- "),
    ] {
        let line = haproxy_line(&Outcome { end, phase, status, times, ..successful_request() });
        assert!(line.contains(expected), "{end:?}: {line}");
    }
}

#[test]
fn tcp_connections_have_the_form_of_tcplog() {
    assert_eq!(
        haproxy_line(&tcp_connection()),
        "10.0.0.7:41000 [21/Nov/2026:08:30:40.123] raw app/b 3/3/7000 350 -- 9/8/7/6/0 5/4"
    );
    let refused = Outcome {
        pool: None,
        server: None,
        client: None,
        client_port: 0,
        end: EndReason::NoServer,
        phase: EndPhase::Connect,
        times: malformed_request().times,
        ..tcp_connection()
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
    let request = LoggedRequest {
        method: &hostile,
        target: &hostile,
        protocol: crate::outcome::Protocol::Http10,
        host: &hostile,
        referer: &hostile,
        user_agent: &hostile,
        request_id: &hostile,
        captured: &hostile,
    };
    let outcome = Outcome { request: Some(request), ..successful_request() };
    for format in [LogFormat::Json, LogFormat::Combined, LogFormat::Haproxy] {
        let line = line_of(format.clone(), &outcome);
        let (text, end) = line.split_at(line.len() - 1);
        assert_eq!(end, "\n");
        assert!(!text.chars().any(char::is_control), "{format:?}: {text}");
    }
    let line = line_of(LogFormat::Json, &outcome);
    let parsed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&line).unwrap();
    assert_eq!(parsed.len(), FIELDS.len());
    let quotes = |format| line_of(format, &outcome).matches('"').count();
    assert_eq!((quotes(LogFormat::Combined), quotes(LogFormat::Haproxy)), (6, 2));
}

#[test]
fn the_longest_line_has_its_bound() {
    let long = vec![0; 100_000];
    let request = LoggedRequest {
        method: &long,
        target: &long,
        protocol: crate::outcome::Protocol::Http11,
        host: &long,
        referer: &long,
        user_agent: &long,
        request_id: &long,
        captured: &long,
    };
    for format in [LogFormat::Json, LogFormat::Combined, LogFormat::Haproxy] {
        let line = line_of(format, &Outcome { request: Some(request), ..successful_request() });
        assert!(line.len() > 5_000 && line.len() <= LINE_BYTES_MAX, "{}", line.len());
        assert!(line.contains("..."));
    }
}

#[test]
fn errors_are_always_logged_and_the_rest_by_chance() {
    let count = |sample, only_errors, outcome: &Outcome<'_>| {
        let plan = LogPlan { sample, only_errors, ..log(LogTarget::Stdout, LogFormat::Haproxy) };
        let (core, _writer) = discarding_log(plan);
        let state = &mut *core.state.borrow_mut();
        (0..1_000).filter(|_| state.targets[0].wants(outcome.is_failed(), &mut state.rng)).count()
    };
    let failed = Outcome { status: 502, end: EndReason::ServerClosed, ..successful_request() };
    let upstream = Outcome { status: 500, ..successful_request() };
    for failure in [&failed, &upstream, &malformed_request()] {
        assert_eq!(count(0.0, true, failure), 1_000);
    }
    assert_eq!(count(1.0, false, &successful_request()), 1_000);
    assert_eq!(count(0.0, false, &successful_request()), 0);
    assert_eq!(count(1.0, true, &successful_request()), 0);
    let half = count(0.5, false, &successful_request());
    assert!((300..700).contains(&half), "{half}");
}

#[test]
fn fields_are_captured_only_for_formats_that_show_them() {
    let wants = |format| discarding_log(log(LogTarget::Stdout, format)).0.wants_fields();
    assert!(wants(LogFormat::Json) && wants(LogFormat::Combined) && !wants(LogFormat::Haproxy));
    let (sender, writer) = start(&[], 2).unwrap();
    let core = CoreLog::new(sender, 1);
    core.record(&successful_request(), &names(), WALL, &LOAD);
    assert!(!core.wants_fields() && core.hand_over());
    drop(core);
    assert!(writer.finish(TIMEOUT));
}

#[test]
fn a_renamed_file_is_left_for_a_new_one_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
    std::fs::write(&path, "before\n").unwrap();
    let plan = log(LogTarget::File(path.clone()), LogFormat::Combined);
    let (sender, writer) = start(&[plan], 1).unwrap();
    let core = CoreLog::new(sender.clone(), 0);
    let names = names();
    core.record(&successful_request(), &names, WALL, &LOAD);
    assert!(core.hand_over());
    std::fs::rename(&path, &old).unwrap();
    writer.reopen().unwrap();
    assert!(path.exists());
    for _ in 0..2 {
        core.record(&successful_request(), &names, WALL, &LOAD);
        assert!(core.hand_over());
    }
    let expected = line_of(LogFormat::Combined, &successful_request());
    let counts = || sender.line_counters().counts()[0].clone();
    wait_until("all is written", || counts().written == 3);
    drop((core, sender));
    assert!(writer.finish(TIMEOUT));
    assert_eq!(read_file(&old), format!("before\n{expected}"));
    assert_eq!(read_file(&path), expected.repeat(2));
}

#[test]
fn a_file_that_cannot_be_opened_again_stays_and_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (path, old) = (directory.path().join("log"), directory.path().join("log.1"));
    let plan = log(LogTarget::File(path.clone()), LogFormat::Combined);
    let (sender, writer) = start(&[plan], 1).unwrap();
    std::fs::rename(&path, &old).unwrap();
    std::fs::create_dir(&path).unwrap();
    let text = writer.reopen().unwrap_err().to_string();
    assert!(text.contains("log file:") && text.ends_with("not reopened"), "{text}");
    let core = CoreLog::new(sender, 0);
    core.record(&successful_request(), &names(), WALL, &LOAD);
    assert!(core.hand_over());
    drop(core);
    assert!(writer.finish(TIMEOUT));
    assert_eq!(read_file(&old), line_of(LogFormat::Combined, &successful_request()));
}

#[test]
fn every_file_that_cannot_be_opened_is_named_at_once() {
    let unopenable = |name: &str| log(LogTarget::File(format!("/nowhere/{name}").into()), LogFormat::Json);
    let error = start(&[unopenable("a"), unopenable("b")], 1).unwrap_err().to_string();
    assert!(error.contains("file:/nowhere/a: ") && error.contains("file:/nowhere/b: "), "{error}");
}

#[test]
fn a_pipe_that_nobody_reads_stops_no_core_and_no_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let mkfifo = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(mkfifo.success());
    // Opened for reading and writing, so that the writer's open does not wait for a reader. Nobody
    // reads.
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (sender, writer) = start(&[log(LogTarget::File(path), LogFormat::Json)], 1).unwrap();
    let counters = sender.line_counters();
    let core = CoreLog::new(sender, 0);
    let names = names();
    while counters.counts()[0].overflowed == 0 {
        core.record(&successful_request(), &names, WALL, &LOAD);
    }
    drop(core);
    assert!(!writer.finish(Duration::from_millis(100)));
    drop(reader);
}

#[test]
fn syslog_over_udp_is_a_datagram_a_line() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(TIMEOUT)).unwrap();
    let target = LogTarget::SyslogUdp(server.local_addr().unwrap());
    let (sender, writer) = start(&[log(target, LogFormat::Haproxy)], 1).unwrap();
    let core = CoreLog::new(sender, 0);
    for outcome in [successful_request(), tcp_connection()] {
        core.record(&outcome, &names(), WALL, &LOAD);
    }
    assert!(core.hand_over());
    for outcome in [successful_request(), tcp_connection()] {
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
    assert!(writer.finish(TIMEOUT));
}

#[test]
fn a_local_syslog_that_comes_late_gets_what_comes_then() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let plan = log(LogTarget::SyslogUnix(path.clone()), LogFormat::Combined);
    let (sender, writer) = start(&[plan], 1).unwrap();
    let core = CoreLog::new(sender.clone(), 0);
    core.record(&successful_request(), &names(), WALL, &LOAD);
    assert!(core.hand_over());
    wait_until("the first line is lost", || sender.line_counters().counts()[0].failed == 1);
    let server = UnixDatagram::bind(&path).unwrap();
    server.set_read_timeout(Some(TIMEOUT)).unwrap();
    wait_until("it is tried again", || {
        core.record(&successful_request(), &names(), WALL, &LOAD);
        // Refused while the maximum number of batches is in flight; the next call takes them along.
        core.hand_over();
        sender.line_counters().counts()[0].written > 0
    });
    let mut buffer = [0; 2_000];
    let bytes = server.recv(&mut buffer).unwrap();
    let expected = format!(
        "<134>Nov 21 08:30:40 weir[{}]: {}",
        std::process::id(),
        line_of(LogFormat::Combined, &successful_request())
    );
    assert_eq!(String::from_utf8_lossy(&buffer[..bytes]), expected.trim_end());
    drop((core, sender));
    assert!(writer.finish(TIMEOUT));
}

fn template(text: &str, is_json: bool) -> LogFormat {
    let text =
        crate::template::parse(text, crate::template::Scope::Log, crate::template::KnownValues::default())
            .unwrap();
    LogFormat::Template(Arc::new(crate::plan::LogTemplate::new(text, is_json).unwrap()))
}

#[test]
fn a_text_with_values_is_a_format() {
    let captured = |pairs: &[(&str, &[u8])]| {
        let mut out = Vec::new();
        for (name, value) in pairs {
            append_captured(name, |out| out.extend_from_slice(value), &mut out);
        }
        out
    };
    let values = captured(&[("cookie.user", b"ada"), ("header.x-a", b"a\"\r\nb\0")]);
    let request = LoggedRequest { captured: &values, ..successful_request().request.unwrap() };
    let outcome = Outcome { request: Some(request), ..successful_request() };
    let line = |text: &str| line_of(template(text, false), &outcome);
    assert_eq!(
        line(
            "{source}:{source-port} [{time.ms}] {listener} {route} {pool}/{server} \"{method} {target} {protocol}\" {status}"
        ),
        "10.0.0.7:41000 [2026-11-21T08:30:40.123Z] web api app/b \"GET /a?b=1&token=*** HTTP/1.1\" 200\n"
    );
    assert_eq!(
        line(
            "{duration.head.ms} {duration.queue.us} {duration.total.s} {duration.connect.ms} {bytes.in} {bytes.out} {bytes.content}"
        ),
        "1 2000 0.015 3 90 350 100\n"
    );
    assert_eq!(
        line("{host} {path} {query} {scheme} {end} {termination} {retries} {reused}{hedge}{cache}"),
        "example.org /a ?b=1&token=*** http done -- 1 false--\n"
    );
    // A client cannot end the line or the quotes.
    assert_eq!(
        line("\"{header.x-a}\" {cookie.user} {header.none} {header.none:-no}"),
        "\"a\\x22\\x0D\\x0Ab\\x00\" ada - no\n"
    );
    assert_eq!(line("{tls.version}{refusal} {{}}"), "-- {}\n");
    let json = line_of(template("{{\"a\":\"{header.x-a}\",\"b\":\"{header.none}\"}}", true), &outcome);
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(parsed, serde_json::json!({ "a": "a\"\r\nb\0", "b": "" }));
    // Lines of requests without a head are complete, too.
    assert_eq!(
        line_of(template("{method} {header.x-a} {status} {refusal}", false), &malformed_request()),
        "- - 400 bare_lf\n"
    );
}

#[test]
fn the_longest_values_fit_into_a_line() {
    let long = vec![b'\n'; 9_000];
    let mut values = Vec::new();
    append_captured("header.a", |out| out.extend_from_slice(&long), &mut values);
    let request = LoggedRequest { captured: &values, target: &long, ..successful_request().request.unwrap() };
    let outcome = Outcome { request: Some(request), ..successful_request() };
    for count in [1, 2, 7, 64] {
        let text = format!("{}{}", "x".repeat(4_096 - 10 * count), "{header.a}".repeat(count));
        let line = line_of(template(&text, false), &outcome);
        assert!(line.ends_with("...\n") && line.len() < LINE_BYTES_MAX, "{count}: {}", line.len());
        assert_eq!(line.matches('\n').count(), 1);
    }
}
