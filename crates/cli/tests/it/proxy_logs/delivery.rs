//! Destinations of log lines: files that are moved away, syslog, samples, and a reader that never
//! reads.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;

use super::LoggedProxy;
use crate::support::hostile_client::BackgroundClients;
use crate::support::timing::assert_timing;
use crate::support::{EVENT_TIMEOUT, shared_machine, temp_dir, within};

#[test]
fn a_file_that_is_moved_away_loses_no_line() {
    let _shared = shared_machine();
    for signal in [Signal::USR1, Signal::HUP] {
        let setup = LoggedProxy::start(&["to = \"file:HOME/log\"\nformat = \"combined\""]);
        let background = BackgroundClients::start(setup.proxy.authority(), "/x", 4);
        let mut names = vec!["log".to_owned()];
        for number in 0..5 {
            background.wait_for(100);
            let old = format!("log.{number}");
            fs::rename(setup.proxy.file("log"), setup.proxy.file(&old)).unwrap();
            names.push(old);
            setup.proxy.process.signal(signal);
            let again = within(EVENT_TIMEOUT, || setup.proxy.file("log").exists());
            assert!(again, "{signal:?} did not have the log opened again");
        }
        let responses = background.finish() as usize;
        let count = || names.iter().map(|name| setup.proxy.lines(name).len()).sum::<usize>();
        let dropped_count = || setup.proxy.metrics().log_lines().1;
        let _ = within(EVENT_TIMEOUT, || count() + dropped_count() as usize >= responses);
        let dropped = dropped_count();
        let all = count() + dropped as usize;
        assert_eq!(all, responses, "one line for each request, in one of the files");
        assert_timing(dropped == 0.0, "a log that keeps up with four clients", dropped);
    }
}

/// Parses one message of RFC 5424, strictly in its header; returns its text.
fn rfc5424_message(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("a line of text");
    let (priority, rest) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')).expect(text);
    assert!(priority.parse::<u8>().is_ok_and(|priority| priority <= 191), "{text}");
    let fields: Vec<&str> = rest.splitn(7, ' ').collect();
    let [version, time, host, application, _process, _id, rest] = fields[..] else { panic!("{text}") };
    assert_eq!(version, "1", "{text}");
    assert!(time == "-" || time.contains('T'), "{text}");
    // A sandboxed process cannot read the file with the host name.
    assert_eq!(host.as_bytes(), rustix::system::uname().nodename().to_bytes(), "{text}");
    assert_eq!(application, "weir", "{text}");
    let message = rest.strip_prefix("- ").expect("no structured data");
    assert!(!message.contains('\n') || message.ends_with('\n'), "{text}");
    message.trim_start_matches('\u{feff}').to_owned()
}

/// Parses one message in the form of syslog(3) for the local daemon; returns its text.
fn local_syslog_message(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("a line of text");
    let (_, rest) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')).expect(text);
    // `Nov 21 08:30:40`: the day of the month has two columns.
    let (time, rest) = rest.split_at(15);
    assert!(time.as_bytes()[3] == b' ' && time.as_bytes()[9] == b':', "{text}");
    let (process, message) = rest.split_once(": ").expect(text);
    assert!(process.starts_with(" weir[") && process.ends_with(']'), "{text}");
    message.to_owned()
}

#[test]
fn syslog_gets_each_line_over_udp_and_over_a_unix_socket() {
    let _shared = shared_machine();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let directory = temp_dir();
    let path = directory.path().join("log");
    let unix = UnixDatagram::bind(&path).unwrap();
    udp.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    unix.set_read_timeout(Some(EVENT_TIMEOUT)).unwrap();
    let setup = LoggedProxy::start(&[
        &format!("to = \"syslog:{}\"\nformat = \"json\"", udp.local_addr().unwrap()),
        &format!("to = \"syslog:{}\"\nformat = \"haproxy\"", path.display()),
    ]);
    // Maximum number of unread datagrams of a unix socket (net.unix.max_dgram_qlen).
    let expected: BTreeSet<String> = (0..10).map(|number| format!("/x/{number}/")).collect();
    for target in &expected {
        setup.proxy.get(target);
    }
    let targets_of = |receive: &dyn Fn(&mut [u8]) -> usize, message: fn(&[u8]) -> String| {
        let received = expected.iter().map(|_| {
            let mut bytes = [0; 8192];
            let length = receive(&mut bytes);
            let text = message(&bytes[..length]);
            expected.iter().find(|target| text.contains(target.as_str())).expect("a target").clone()
        });
        received.collect::<BTreeSet<_>>()
    };
    assert_eq!(targets_of(&|bytes| udp.recv(bytes).unwrap(), rfc5424_message), expected);
    assert_eq!(targets_of(&|bytes| unix.recv(bytes).unwrap(), local_syslog_message), expected);
}

#[test]
fn only_errors_and_a_sample_leave_out_what_they_should() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&[
        "to = \"file:HOME/all\"",
        "to = \"file:HOME/errors\"\nonly-errors = true",
        "to = \"file:HOME/none\"\nsample = 0.0",
        "to = \"file:HOME/some\"\nsample = 0.25",
    ]);
    let mut client = setup.proxy.client();
    for _ in 0..2000 {
        assert_eq!(client.get("/x").status, 200);
    }
    for _ in 0..10 {
        assert_eq!(client.get("/fail").status, 500);
    }
    drop(client);
    assert_eq!(setup.proxy.wait_for_lines("all", 2010).len(), 2010);
    // Sampling never omits an error.
    for name in ["errors", "none"] {
        let lines = setup.proxy.wait_for_lines(name, 10);
        assert!(lines.len() == 10 && lines.iter().all(|line| line.contains("/fail")), "{lines:#?}");
    }
    // A quarter of 2000, give or take more than five standard deviations.
    let sampled_lines = setup.proxy.wait_for_lines_with("some", "/fail", 10);
    assert_eq!(sampled_lines.len(), 10);
    let sampled = setup.proxy.lines("some").len() - 10;
    assert!((390..=610).contains(&sampled), "{sampled}");
}

#[test]
fn a_log_that_nobody_takes_slows_nobody_down_and_what_is_lost_is_counted() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Open for reading, so that the proxy can open it for writing, and never read before the end.
    let options = File::options().read(true).write(true).open(&path);
    let reader = options.unwrap();
    let setup = LoggedProxy::start(&[&format!("to = \"file:{}\"", path.display())]);
    let background = BackgroundClients::start(setup.proxy.authority(), "/x", 4);
    // A pipe holds 64 KiB: the requested lines are many times that.
    let requests = 20_000;
    background.wait_for(requests);
    let responses = background.finish() as f64;
    let metrics = setup.proxy.metrics_until("each line is somewhere", |metrics| {
        let (_, dropped) = metrics.log_lines();
        // Lines that are neither written nor dropped wait in a buffer, which is bounded.
        dropped > 0.0 && dropped <= responses
    });
    let (written, dropped) = metrics.log_lines();
    assert!(written + dropped <= responses, "{written} + {dropped} of {responses}");
    // Once the pipe is read, the waiting lines are written, and every line is accounted for.
    let reading = std::thread::spawn(move || {
        let mut reader = reader;
        std::io::copy(&mut reader, &mut std::io::sink())
    });
    setup.proxy.metrics_until("written and dropped are all requests", |metrics| {
        let (written, dropped) = metrics.log_lines();
        written + dropped == responses
    });
    drop(reading);
}

#[test]
fn log_lines_on_stdout_are_complete_between_other_lines() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&["to = \"stdout\"\nformat = \"json\""]);
    let background = BackgroundClients::start(setup.proxy.authority(), "/x", 4);
    background.wait_for(500);
    let responses = background.finish() as usize;
    let lines = setup.proxy.wait_for_lines_with("stdout", "{", responses);
    assert_eq!(lines.len(), responses);
    for line in lines {
        assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
    }
}

#[test]
fn a_fifo_without_a_reader_stops_neither_server() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let text = path.to_str().unwrap().to_owned();
    let setup = LoggedProxy::start(&[&format!("to = \"file:{text}\"\nformat = \"combined\"")]);
    assert!(setup.proxy.stderr().contains("no process reads this FIFO"), "{}", setup.proxy.stderr());
    let written = |name: &str| setup.proxy.metrics().sum_known("weir_log_lines_total", &[("result", name)]);
    assert_eq!(setup.proxy.get("/lost").status, 200);
    assert!(within(EVENT_TIMEOUT, || written("failed") + written("backoff") == 1.0));
    // Waits for the writer, which tries again with the next lines.
    let reader = std::thread::spawn(move || {
        use std::io::BufRead as _;
        let mut line = String::new();
        std::io::BufReader::new(File::open(path).unwrap()).read_line(&mut line).unwrap();
        line
    });
    assert!(within(EVENT_TIMEOUT, || {
        setup.proxy.get("/read");
        written("written") >= 1.0
    }));
    assert!(reader.join().unwrap().contains("\"GET /read HTTP/1.1\""));
    setup.proxy.assert_all_returned();
    let origin = crate::support::OriginProcess::start(&["--access-log", &text]);
    let stats = || {
        let body = crate::support::client::Client::connect(&origin.authority).get("/stats").body;
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()
    };
    assert!(within(EVENT_TIMEOUT, || stats()["log_dropped"].as_u64() > Some(0)), "{}", stats());
}

#[test]
fn a_file_that_is_full_is_renamed_and_loses_no_line() {
    let _shared = shared_machine();
    let setup = LoggedProxy::start(&["to = \"file:HOME/log\"\nrotate-size = \"4k\"\nrotate-files = 1000"]);
    let count = (0..30).map(|_| setup.send_all_requests()).sum::<usize>();
    let rotated = || setup.proxy.metrics().sum_known("weir_log_rotations_total", &[("result", "rotated")]);
    let names = || (1..=rotated() as usize).map(|number| format!("log.{number}")).chain(["log".to_owned()]);
    let lines = || names().map(|name| setup.proxy.lines(&name).len()).sum::<usize>();
    let dropped = || setup.proxy.metrics().log_lines().1 as usize;
    assert!(within(EVENT_TIMEOUT, || lines() + dropped() >= count), "{} of {count}", lines());
    assert_eq!(lines() + dropped(), count);
    assert!(rotated() >= 2.0, "{}", rotated());
}
