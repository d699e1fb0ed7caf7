//! A new process takes over: under load, with what waits in queues, and when it fails.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{PATIENCE, body, config, control, replace};
use crate::support::client::Client;
use crate::support::door::Door;
use crate::support::rude::{Crowd, connect, see};
use crate::support::{beside_others, folder, weir, within};

#[test]
fn upgrades_under_load_lose_no_request() {
    let _shared = beside_others();
    let folder = folder();
    let mut door = Door::weir(&config(folder.path(), 2, "0"));
    let authority = door.authority().to_owned();
    let admin = door.admin().to_owned();
    let kept = Crowd::start(&authority, "/", 6);
    let anew = Crowd::start_anew(&authority, "/", 6);
    // Fewer cores than sockets, and more.
    for (number, threads) in [1, 3, 2, 4, 2, 1].into_iter().enumerate() {
        let mut old = door;
        door = replace(folder.path(), &config(folder.path(), threads, &number.to_string()));
        assert_eq!((door.authority(), door.admin()), (&*authority, &*admin));
        // Nobody but the new one accepts.
        for _ in 0..20 {
            assert_eq!(body(&mut Client::connect(&authority)), number.to_string());
        }
        kept.wait_for(30);
        anew.wait_for(30);
        assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
        door.metrics();
    }
    kept.finish();
    anew.finish();
}

#[test]
fn a_client_between_two_requests_may_send_one_more() {
    let _shared = beside_others();
    let folder = folder();
    let mut old = Door::weir(&config(folder.path(), 1, "old"));
    let mut client = old.client();
    assert_eq!(body(&mut client), "old");
    let mut silent = old.client();
    let mut new = replace(folder.path(), &config(folder.path(), 1, "new"));
    assert_eq!(body(&mut new.client()), "new");
    let answer = client.ask("/");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"old"[..]));
    assert!(answer.head.to_ascii_lowercase().contains("connection: close"), "{}", answer.head);
    assert_eq!(body(&mut silent), "old");
    // Nothing is left to wait for.
    assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
    new.process.signal(rustix::process::Signal::TERM);
    assert_eq!(new.process.wait(PATIENCE), 0, "{}", new.stderr());
}

#[test]
fn connections_that_wait_in_the_kernel_are_accepted_by_the_new_process() {
    let _shared = beside_others();
    let folder = folder();
    // With one core: two connections may come to the same one of several, where the second would wait.
    let threads = 1;
    let limited = |body: &str| {
        let config = config(folder.path(), threads, body);
        config.replace("[listener.web]", "[listener.web]\nconnections-max = 2")
    };
    let mut old = Door::weir(&limited("old"));
    // All that may be open, so that it stops accepting.
    let mut holders: Vec<Client> = (0..2).map(|_| old.client()).collect();
    holders.iter_mut().for_each(|client| assert_eq!(body(client), "old"));
    let mut waiting: Vec<_> = (0..30).map(|_| connect(old.authority())).collect();
    for stream in &mut waiting {
        let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
    }
    let new = replace(folder.path(), &config(folder.path(), threads, "new"));
    // Those that the old one had accepted and could not serve wait there until there is room.
    drop(holders);
    let mut by_new = 0;
    for stream in &mut waiting {
        let seen = see(stream);
        assert_eq!(seen.status, Some(200), "{}", seen.head);
        by_new += usize::from(seen.text() == "new");
    }
    assert!(by_new > 0, "all had been accepted before");
    assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
    drop(new);
}

#[test]
fn one_that_fails_before_it_is_ready_changes_nothing() {
    let _shared = beside_others();
    let folder = folder();
    let door = Door::weir(&config(folder.path(), 2, "old"));
    let crowd = Crowd::start(door.authority(), "/", 4);
    let anew = Crowd::start_anew(door.authority(), "/", 2);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let more = format!("[listener.more]\nbind = \"{}\"\n", taken.local_addr().unwrap());
    let path = folder.path().join("bad.toml");
    for (number, text) in [
        config(folder.path(), 3, "new") + &more,
        config(folder.path(), 3, "new") + "[[log]]\nto = \"file:/no/such/folder/log\"\n",
    ]
    .iter()
    .enumerate()
    {
        std::fs::write(&path, text).unwrap();
        let arguments = ["--config", path.to_str().unwrap(), "--upgrade-from"];
        let output = weir(&[&["proxy"], &arguments[..], &[&control(folder.path())]].concat());
        assert_eq!(output.code, 1, "{number}: {output:?}");
        crowd.wait_for(50);
        anew.wait_for(10);
        // A reload waits for the attempt to be over, and then goes on.
        let text = format!("round {number}");
        door.reload(&config(folder.path(), 2, &text));
        let applied = within(PATIENCE, || body(&mut door.client()) == text);
        assert!(applied, "{}", door.stderr());
    }
    let mut old = door;
    let new = replace(folder.path(), &config(folder.path(), 3, "new"));
    assert_eq!(body(&mut new.client()), "new");
    crowd.wait_for(50);
    crowd.finish();
    anew.finish();
    assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
}

/// An answer over a unix socket.
fn ask_unix(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn unix_sockets_are_passed_on_and_what_is_new_or_gone_is_bound_or_closed() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("clients.sock");
    let unix = format!("[listener.unix]\nbind = \"unix:{}\"\n", path.display());
    let gone = "[listener.gone]\nbind = \"127.0.0.1:0\"\n";
    let mut old = Door::weir(&(config(folder.path(), 2, "old") + &unix + gone));
    let gone = old.wait_for_listener("gone");
    assert!(ask_unix(&path).ends_with("old"));
    let fresh = "[listener.fresh]\nbind = \"[::1]:0\"\n";
    let mut new = replace(folder.path(), &(config(folder.path(), 1, "new") + &unix + fresh));
    assert!(ask_unix(&path).ends_with("new"));
    let fresh = new.wait_for_listener("fresh");
    assert_eq!(body(&mut Client::connect(&fresh)), "new");
    let refused = || std::net::TcpStream::connect(&gone).is_err();
    assert!(within(PATIENCE, refused), "what the new one does not want is still accepted");
    assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
    // The files are the new one's.
    assert!(ask_unix(&path).ends_with("new"));
    new.process.signal(rustix::process::Signal::TERM);
    assert_eq!(new.process.wait(PATIENCE), 0, "{}", new.stderr());
    assert!(!path.exists() && !Path::new(&control(folder.path())).exists());
}

#[test]
fn the_control_socket_is_private_and_bears_nonsense() {
    let _shared = beside_others();
    let folder = folder();
    let mut old = Door::weir(&config(folder.path(), 1, "old"));
    let path = control(folder.path());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (said, answered) in [
        (&b"nonsense\n"[..], "error: there is no command"),
        (b"", ""),
        (b"\xff\xfe\n", ""),
        (b"upgrade\nready nonsense\n", "ok\n"),
        (&[b'x'; 10_000], ""),
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(said);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(answered), "{answer}");
        assert_eq!(body(&mut old.client()), "old");
    }
    drop(replace(folder.path(), &config(folder.path(), 1, "new")));
    assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
}

/// What `weir ctl` says to these words, which are obeyed.
fn ctl(folder: &Path, words: &[&str]) -> String {
    let socket = control(folder);
    let output = weir(&[&["ctl", "--socket", &socket], words].concat());
    assert_eq!(output.code, 0, "{words:?}: {}", output.stderr);
    output.stdout
}

#[test]
fn the_new_process_is_operated_at_the_same_socket() {
    let _shared = beside_others();
    let folder = folder();
    let mut door = Door::weir(&config(folder.path(), 2, "0"));
    for number in ["1", "2", "3"] {
        let mut old = door;
        door = replace(folder.path(), &config(folder.path(), 2, number));
        // The one that finishes what it has does not answer any more.
        let process = format!("\"process\":{}", door.process.id());
        for _ in 0..10 {
            let info = ctl(folder.path(), &["show", "info", "--json"]).replace(' ', "");
            assert!(info.contains(&process), "{process}: {info}");
        }
        assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
        ctl(folder.path(), &["reload"]);
        assert_eq!(body(&mut door.client()), number);
    }
    ctl(folder.path(), &["drain"]);
    assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
    assert!(!Path::new(&control(folder.path())).exists(), "the control socket is left behind");
}

#[test]
fn while_one_gets_ready_no_other_does_and_nothing_is_reloaded() {
    let _shared = beside_others();
    let folder = folder();
    let mut door = Door::weir(&config(folder.path(), 1, "old"));
    let mut ready = UnixStream::connect(control(folder.path())).unwrap();
    ready.set_read_timeout(Some(PATIENCE)).unwrap();
    ready.write_all(b"upgrade\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\nend\n") {
        let mut bytes = [0; 512];
        let read = ready.read(&mut bytes).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&bytes[..read]);
    }
    let path = folder.path().join("second.toml");
    std::fs::write(&path, config(folder.path(), 1, "second")).unwrap();
    let socket = control(folder.path());
    let second = weir(&["proxy", "--config", path.to_str().unwrap(), "--upgrade-from", &socket]);
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains("another process is being given them"), "{}", second.stderr);
    let reload = weir(&["ctl", "--socket", &socket, "reload"]);
    assert_eq!(reload.code, 2, "{}", reload.stdout);
    assert!(reload.stderr.contains("another process is taking over"), "{}", reload.stderr);
    // It gives up.
    drop(ready);
    let reloaded =
        || weir(&["ctl", "--socket", &socket, "reload"]).stdout.contains("the config is applied");
    assert!(within(PATIENCE, reloaded), "{}", door.stderr());
    assert_eq!(body(&mut door.client()), "old");
    // Nobody says that by hand.
    let by_hand = weir(&["ctl", "--socket", &socket, "upgrade"]);
    assert_eq!(by_hand.code, 2);
    assert!(by_hand.stderr.contains("--upgrade-from"), "{}", by_hand.stderr);
    ctl(folder.path(), &["drain"]);
    assert_eq!(door.process.wait(PATIENCE), 0, "{}", door.stderr());
}

#[test]
fn where_nobody_is_to_be_replaced_it_just_starts() {
    let _shared = beside_others();
    let folder = folder();
    let door = replace(folder.path(), &config(folder.path(), 1, "first"));
    assert_eq!(body(&mut door.client()), "first");
    assert!(door.stderr().contains("this is a plain start"), "{}", door.stderr());
}

#[test]
fn a_process_without_privileges_passes_its_sockets_on() {
    let _shared = beside_others();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root has privileges to drop");
        return;
    }
    let folder = folder();
    let config = |body| {
        let privileges = "[privileges]\nuser = \"nobody\"\ngroup = \"nogroup\"\n";
        config(folder.path(), 2, body) + privileges
    };
    let mut old = Door::weir(&config("old"));
    for body in ["new", "newer"] {
        let authority = old.authority().to_owned();
        let new = replace(folder.path(), &config(body));
        assert_eq!(super::body(&mut Client::connect(&authority)), body);
        assert_eq!(old.process.wait(PATIENCE), 0, "{}", old.stderr());
        old = new;
    }
}
