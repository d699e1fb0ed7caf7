//! The life of a proxy: read anew under load, drained, stopped at once, with fewer privileges.

use std::fs;
use std::io::{Read, Write};

use rt::clock::now_ns;
use rustix::process::Signal;

use super::{Client, Door, door, text};
use crate::support::faulty::{Gated, answering_each, ok, telling};
use crate::support::metrics::REQUESTS;
use crate::support::rude::{Crowd, connect, see};
use crate::support::{PATIENCE, beside_others, within};

const TOP: &str = "threads = 2\nadmin = \"127.0.0.1:0\"\n[listener.web]\nbind = \"127.0.0.1:0\"\n";

/// The config of round N: its number is what `/version` answers.
fn round(number: u32, [a, b]: [&str; 2]) -> String {
    let weight = number % 3 + 1;
    let extra = if number % 2 == 1 {
        "[listener.extra]\nbind = \"127.0.0.1:0\"\n[[route]]\nlistener = \"extra\"\ndeny = 418\n"
    } else {
        ""
    };
    format!(
        "{TOP}{extra}[[route]]\npath = \"/version\"\n\
         answer = {{ status = 200, body = \"{number}\" }}\n\
         [[route]]\nname = \"only-{number}\"\npath = \"/only/{number}\"\ndeny = true\n\
         [[route]]\nname = \"main\"\npool = \"app-{pool}\"\n\
         [pool.app-{pool}]\n\
         servers = [{{ address = \"{a}\", weight = {weight} }}, \"{b}\"]\n",
        pool = number % 4
    )
}

fn wait_for_version(door: &Door, number: u32) {
    let wanted = number.to_string();
    let read = within(PATIENCE, || text(&door.get("/version")) == wanted);
    assert!(read, "round {number} was never read: {}", door.stderr());
}

#[test]
fn twenty_reloads_under_load_lose_no_request() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let servers = [a.authority.as_str(), b.authority.as_str()];
    let mut door = Door::weir(&round(0, servers));
    let crowd = Crowd::start(door.authority(), "/", 8);
    let mut counted = 0.0;
    for number in 1..=20 {
        door.reload(&round(number, servers));
        wait_for_version(&door, number);
        crowd.wait_for(50);
        if number == 1 {
            let extra = door.wait_for_listener("extra");
            assert_eq!(Client::connect(&extra).ask("/").status, 418);
        } else if number == 2 {
            let extra = door.wait_for_listener("extra");
            let gone = || !door.listens_at(&extra);
            assert!(within(PATIENCE, gone), "a removed listener still accepts");
        }
        // What was counted stays counted.
        let now = door.metrics().known(REQUESTS, &[("listener", "web")]);
        assert!(now > counted, "{now} after {counted}");
        counted = now;
    }
    let answered = crowd.finish() as f64;
    // The crowd's own, and the ones to `/version`, all since the start.
    let all = door.metrics_until("all are counted", |metrics| {
        metrics.known(REQUESTS, &[("listener", "web")]) >= answered + 20.0
    });
    assert!(all.known(REQUESTS, &[("listener", "web")]) < answered + 20_000.0);
    // The same address all the time.
    assert_eq!(door.get("/version").status, 200);
}

#[test]
fn a_bad_config_is_reported_and_the_old_one_stays() {
    let _shared = beside_others();
    let (a, b) = (telling("a"), telling("b"));
    let servers = [a.authority.as_str(), b.authority.as_str()];
    let door = Door::weir(&round(7, servers));
    let crowd = Crowd::start(door.authority(), "/", 2);
    door.reload("threads = 2\ncolour = \"red\"\n[listener.web]\nbind = 3\n");
    let reported = within(PATIENCE, || {
        let said = door.stderr();
        said.contains("weir.toml:2:") && said.contains("weir.toml:4:") && said.contains("colour")
    });
    assert!(reported, "{}", door.stderr());
    assert_eq!(text(&door.get("/version")), "7");
    crowd.finish();
    // The next good one is taken.
    door.reload(&round(8, servers));
    wait_for_version(&door, 8);
}

/// A proxy before a server with a gate.
fn gated(drain: &str) -> (Door, Gated) {
    let gated = Gated::start();
    let door = Door::weir(&format!(
        "drain-timeout = \"{drain}\"\n{TOP}pool = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
        gated.server.authority
    ));
    (door, gated)
}

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\n\r\n";

#[test]
fn sigterm_lets_requests_finish_and_closes_the_idle() {
    let _shared = beside_others();
    for signal in [Signal::TERM, Signal::INT] {
        let (mut door, gated) = gated("200s");
        let mut idle = connect(door.authority());
        let mut busy = connect(door.authority());
        busy.write_all(REQUEST).unwrap();
        gated.next();
        door.process.signal(signal);
        // Nobody new is taken, and who has nothing in flight is sent away.
        assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
        let authority = door.authority().to_owned();
        let closed = || !door.listens_at(&authority);
        assert!(within(PATIENCE, closed), "it still accepts");
        gated.let_one_through();
        let seen = see(&mut busy);
        assert!(seen.status == Some(200) && seen.whole, "{}", seen.head);
        let says_close = seen.field("connection").is_some_and(|text| text.contains("close"));
        assert!(says_close, "{}", seen.head);
        // Long before the drain's time-out.
        assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
    }
}

#[test]
fn a_drain_ends_at_its_timeout_and_at_a_second_signal() {
    let _shared = beside_others();
    for (drain, second) in [("300ms", false), ("200s", true)] {
        let (mut door, gated) = gated(drain);
        let mut busy = connect(door.authority());
        busy.write_all(REQUEST).unwrap();
        gated.next();
        let start_ns = now_ns();
        door.process.signal(Signal::TERM);
        if second {
            let authority = door.authority().to_owned();
            let draining = || !door.listens_at(&authority);
            assert!(within(PATIENCE, draining));
            door.process.signal(Signal::TERM);
        }
        let code = door.process.wait(PATIENCE);
        let took_ms = (now_ns() - start_ns) / 1_000_000;
        assert!(second || took_ms >= 290, "{took_ms} ms");
        // The one that was cut off is not passed over in silence by a made-up answer.
        assert_eq!(see(&mut busy).status, None);
        // A drain that ran into its time-out has ended as it was told to.
        assert!(code == 0 || second, "{code}: {}", door.stderr());
    }
}

#[test]
fn privileges_are_dropped_once_its_sockets_are_bound() {
    let _shared = beside_others();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root has privileges to drop");
        return;
    }
    let origin = answering_each(|_, _| Some(ok(b"here")));
    let door = Door::weir(&format!(
        "threads = 2\n[privileges]\nuser = \"nobody\"\ngroup = \"nogroup\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        origin.authority
    ));
    assert_eq!(door.get("/").status, 200);
    let id = |file: &str, name: &str| {
        let text = fs::read_to_string(file).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name}:x:")));
        line.and_then(|line| line.split(':').nth(2)).expect(name).to_owned()
    };
    let (user, group) = (id("/etc/passwd", "nobody"), id("/etc/group", "nogroup"));
    // Each thread has credentials of its own.
    for thread in host::process::thread_ids(door.process.id()).unwrap() {
        let status = format!("/proc/{}/task/{thread}/status", door.process.id());
        let status = fs::read_to_string(status).unwrap();
        let all = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).expect(name);
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(all("Uid:").iter().all(|one| *one == user), "{status}");
        assert!(all("Gid:").iter().all(|one| *one == group), "{status}");
        assert!(all("Groups:").iter().all(|one| *one == group), "{status}");
        assert_eq!(all("NoNewPrivs:"), ["1"], "{status}");
        assert_eq!(all("CapEff:"), ["0000000000000000"], "{status}");
    }
}

#[test]
fn no_new_privileges_is_set_unless_it_is_turned_off() {
    let _shared = beside_others();
    for (text, wanted) in
        [("", "1"), ("[privileges]\nno-new-privileges = false\nlandlock = false\n", "0")]
    {
        let door = door(&format!("[[route]]\ndeny = true\n{text}"));
        let status = fs::read_to_string(format!("/proc/{}/status", door.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("NoNewPrivs:")).unwrap();
        assert!(line.ends_with(wanted), "{text}: {line}");
    }
}
