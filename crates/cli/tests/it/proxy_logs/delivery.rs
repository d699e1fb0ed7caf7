//! Where lines go: files that are moved away, syslog, samples, and a reader that never reads.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;

use super::Scene;
use crate::support::rude::Crowd;
use crate::support::times::demand;
use crate::support::{PATIENCE, beside_others, folder, within};

#[test]
fn a_file_that_is_moved_away_loses_no_line() {
    let _shared = beside_others();
    for signal in [Signal::USR1, Signal::HUP] {
        let scene = Scene::start(&["to = \"file:HOME/log\"\nformat = \"combined\""]);
        let crowd = Crowd::start(scene.door.authority(), "/x", 4);
        let mut names = vec!["log".to_owned()];
        for number in 0..5 {
            crowd.wait_for(100);
            let old = format!("log.{number}");
            fs::rename(scene.door.file("log"), scene.door.file(&old)).unwrap();
            names.push(old);
            scene.door.process.signal(signal);
            let again = within(PATIENCE, || scene.door.file("log").exists());
            assert!(again, "{signal:?} did not have the log opened again");
        }
        let answered = crowd.finish() as usize;
        let count = || names.iter().map(|name| scene.door.lines(name).len()).sum::<usize>();
        let _ = within(PATIENCE, || count() >= answered);
        let dropped = scene.door.metrics().log_lines().1;
        let all = count() + dropped as usize;
        assert_eq!(all, answered, "one line for each request, in one of the files");
        demand(dropped == 0.0, "a log that keeps up with four clients", dropped);
    }
}

/// One message of RFC 5424, strictly in its header; what it says.
fn message(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("a line of text");
    let (priority, rest) =
        text.strip_prefix('<').and_then(|rest| rest.split_once('>')).expect(text);
    assert!(priority.parse::<u8>().is_ok_and(|priority| priority <= 191), "{text}");
    let fields: Vec<&str> = rest.splitn(7, ' ').collect();
    let [version, time, _host, application, _process, _id, rest] = fields[..] else {
        panic!("{text}")
    };
    assert_eq!(version, "1", "{text}");
    assert!(time == "-" || time.contains('T'), "{text}");
    assert_eq!(application, "weir", "{text}");
    let message = rest.strip_prefix("- ").expect("no structured data");
    assert!(!message.contains('\n') || message.ends_with('\n'), "{text}");
    message.trim_start_matches('\u{feff}').to_owned()
}

/// One message as syslog(3) sends it to the daemon of its own machine; what it says.
fn local_message(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("a line of text");
    let (_, rest) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')).expect(text);
    // `Nov 21 08:30:40`: the day of the month has two places.
    let (time, rest) = rest.split_at(15);
    assert!(time.as_bytes()[3] == b' ' && time.as_bytes()[9] == b':', "{text}");
    let (process, message) = rest.split_once(": ").expect(text);
    assert!(process.starts_with(" weir[") && process.ends_with(']'), "{text}");
    message.to_owned()
}

#[test]
fn syslog_gets_each_line_over_udp_and_over_a_unix_socket() {
    let _shared = beside_others();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let folder = folder();
    let path = folder.path().join("log");
    let unix = UnixDatagram::bind(&path).unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    unix.set_read_timeout(Some(PATIENCE)).unwrap();
    let scene = Scene::start(&[
        &format!("to = \"syslog:{}\"\nformat = \"json\"", udp.local_addr().unwrap()),
        &format!("to = \"syslog:{}\"\nformat = \"haproxy\"", path.display()),
    ]);
    // A unix socket holds as many datagrams before somebody takes one (net.unix.max_dgram_qlen).
    let wanted: BTreeSet<String> = (0..10).map(|number| format!("/x/{number}/")).collect();
    for target in &wanted {
        scene.door.get(target);
    }
    let targets_of = |receive: &dyn Fn(&mut [u8]) -> usize, message: fn(&[u8]) -> String| {
        let found = wanted.iter().map(|_| {
            let mut bytes = [0; 8192];
            let length = receive(&mut bytes);
            let said = message(&bytes[..length]);
            wanted.iter().find(|target| said.contains(target.as_str())).expect("a target").clone()
        });
        found.collect::<BTreeSet<_>>()
    };
    assert_eq!(targets_of(&|bytes| udp.recv(bytes).unwrap(), message), wanted);
    assert_eq!(targets_of(&|bytes| unix.recv(bytes).unwrap(), local_message), wanted);
}

#[test]
fn only_errors_and_a_sample_leave_out_what_they_should() {
    let _shared = beside_others();
    let scene = Scene::start(&[
        "to = \"file:HOME/all\"",
        "to = \"file:HOME/errors\"\nonly-errors = true",
        "to = \"file:HOME/none\"\nsample = 0.0",
        "to = \"file:HOME/some\"\nsample = 0.25",
    ]);
    let mut client = scene.door.client();
    for _ in 0..2000 {
        assert_eq!(client.ask("/x").status, 200);
    }
    for _ in 0..10 {
        assert_eq!(client.ask("/fail").status, 500);
    }
    drop(client);
    assert_eq!(scene.door.wait_for_lines("all", 2010).len(), 2010);
    // An error is never left out.
    for name in ["errors", "none"] {
        let lines = scene.door.wait_for_lines(name, 10);
        assert!(lines.len() == 10 && lines.iter().all(|line| line.contains("/fail")), "{lines:#?}");
    }
    // A quarter of 2000, give or take more than five standard deviations.
    let some = scene.door.wait_for_lines_with("some", "/fail", 10);
    assert_eq!(some.len(), 10);
    let sampled = scene.door.lines("some").len() - 10;
    assert!((390..=610).contains(&sampled), "{sampled}");
}

#[test]
fn a_log_that_nobody_takes_slows_nobody_down_and_what_is_lost_is_counted() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Open for reading, so that it can be opened for writing, and never read before the end.
    let options = File::options().read(true).write(true).open(&path);
    let reader = options.unwrap();
    let scene = Scene::start(&[&format!("to = \"file:{}\"", path.display())]);
    let crowd = Crowd::start(scene.door.authority(), "/x", 4);
    // A pipe holds 64 KiB: what is asked for here is many times that.
    let requests = 20_000;
    crowd.wait_for(requests);
    let answered = crowd.finish() as f64;
    let metrics = scene.door.metrics_until("each line is somewhere", |metrics| {
        let (_, dropped) = metrics.log_lines();
        // What is neither written nor dropped waits in a buffer, which is bounded.
        dropped > 0.0 && dropped <= answered
    });
    let (written, dropped) = metrics.log_lines();
    assert!(written + dropped <= answered, "{written} + {dropped} of {answered}");
    // Once somebody reads, what waited is written, and all is accounted for.
    let reading = std::thread::spawn(move || {
        let mut reader = reader;
        std::io::copy(&mut reader, &mut std::io::sink())
    });
    scene.door.metrics_until("written and dropped are all requests", |metrics| {
        let (written, dropped) = metrics.log_lines();
        written + dropped == answered
    });
    drop(reading);
}

#[test]
fn a_log_of_lines_on_stdout_is_between_the_others_and_whole() {
    let _shared = beside_others();
    let scene = Scene::start(&["to = \"stdout\"\nformat = \"json\""]);
    let crowd = Crowd::start(scene.door.authority(), "/x", 4);
    crowd.wait_for(500);
    let answered = crowd.finish() as usize;
    let lines = scene.door.wait_for_lines_with("stdout", "{", answered);
    assert_eq!(lines.len(), answered);
    for line in lines {
        assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
    }
}
