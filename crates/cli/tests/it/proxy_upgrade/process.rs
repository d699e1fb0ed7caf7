//! Takeover by a new process: under load, with queued requests, and with a failure.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{EXIT_TIMEOUT, config, control_socket, get_body, start_successor};
use crate::proxy_life::spawn_pipelines;
use crate::support::client::Client;
use crate::support::faulty_origins::{ok_response, respond_to_each};
use crate::support::hostile_client::{BackgroundClients, connect, read_response};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{run_weir, shared_machine, temp_dir, within};

#[test]
fn upgrades_under_load_lose_no_request() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let mut proxy = ProxyUnderTest::weir(&config(directory.path(), 2, "0"));
    let authority = proxy.authority().to_owned();
    let admin = proxy.admin().to_owned();
    let persistent = BackgroundClients::start(&authority, "/", 6);
    let reconnecting = BackgroundClients::start_with_new_connections(&authority, "/", 6);
    // Fewer cores than sockets, and more.
    for (number, threads) in [1, 3, 2, 4, 2, 1].into_iter().enumerate() {
        let mut old = proxy;
        proxy = start_successor(directory.path(), &config(directory.path(), threads, &number.to_string()));
        assert_eq!((proxy.authority(), proxy.admin()), (&*authority, &*admin));
        // Only the new process accepts.
        for _ in 0..20 {
            assert_eq!(get_body(&mut Client::connect(&authority)), number.to_string());
        }
        persistent.wait_for(30);
        reconnecting.wait_for(30);
        assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
        proxy.metrics();
    }
    persistent.finish();
    reconnecting.finish();
}

#[test]
fn pipelining_clients_lose_no_response_to_an_upgrade() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let server = respond_to_each(|_, _| Some(ok_response(&[b'x'; 20_000])));
    let config = format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\ncontrol = \"{}\"\ndrain-timeout = \"20s\"\n\
         [listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
         [pool.app]\nservers = [\"{}\"]\n",
        control_socket(directory.path()),
        server.authority
    );
    let mut old = ProxyUnderTest::weir(&config);
    for _ in 0..2 {
        let clients = spawn_pipelines(old.authority(), 40);
        let new = start_successor(directory.path(), &config);
        for client in clients {
            let (responses, rest) = client.join().unwrap();
            assert!(responses > 0 && rest == 0, "{rest} bytes of a response after {responses}");
        }
        assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
        old = new;
    }
}

#[test]
fn a_client_between_two_requests_may_send_one_more() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let mut old = ProxyUnderTest::weir(&config(directory.path(), 1, "old"));
    let mut client = old.client();
    assert_eq!(get_body(&mut client), "old");
    let mut silent = old.client();
    let mut new = start_successor(directory.path(), &config(directory.path(), 1, "new"));
    assert_eq!(get_body(&mut new.client()), "new");
    let response = client.get("/");
    assert_eq!((response.status, &response.body[..]), (200, &b"old"[..]));
    assert!(response.head.to_ascii_lowercase().contains("connection: close"), "{}", response.head);
    assert_eq!(get_body(&mut silent), "old");
    // Nothing is left to wait for.
    assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
    new.process.signal(rustix::process::Signal::TERM);
    assert_eq!(new.process.wait(EXIT_TIMEOUT), 0, "{}", new.stderr());
}

#[test]
fn connections_that_wait_in_the_kernel_are_accepted_by_the_new_process() {
    let _shared = shared_machine();
    let directory = temp_dir();
    // With one core: of several cores, the same one may get both connections, and the second would
    // wait.
    let threads = 1;
    let limited = |body: &str| {
        let config = config(directory.path(), threads, body);
        config.replace("[listener.web]", "[listener.web]\nconnections-max = 2")
    };
    let mut old = ProxyUnderTest::weir(&limited("old"));
    // The maximum number of connections, so that it stops accepting.
    let mut holders: Vec<Client> = (0..2).map(|_| old.client()).collect();
    holders.iter_mut().for_each(|client| assert_eq!(get_body(client), "old"));
    let mut waiting: Vec<_> = (0..30).map(|_| connect(old.authority())).collect();
    for stream in &mut waiting {
        let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
    }
    let new = start_successor(directory.path(), &config(directory.path(), threads, "new"));
    // Connections that the old process had accepted and could not serve wait there for a slot.
    drop(holders);
    let mut by_new = 0;
    for stream in &mut waiting {
        let response = read_response(stream);
        assert_eq!(response.status, Some(200), "{}", response.head);
        by_new += usize::from(response.text() == "new");
    }
    assert!(by_new > 0, "all had been accepted before");
    assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
    drop(new);
}

#[test]
fn one_that_fails_before_it_is_ready_changes_nothing() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let proxy = ProxyUnderTest::weir(&config(directory.path(), 2, "old"));
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    let reconnecting = BackgroundClients::start_with_new_connections(proxy.authority(), "/", 2);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let more = format!("[listener.more]\nbind = \"{}\"\n", taken.local_addr().unwrap());
    let path = directory.path().join("bad.toml");
    for (number, text) in [
        config(directory.path(), 3, "new") + &more,
        config(directory.path(), 3, "new") + "[[log]]\nto = \"file:/no/such/directory/log\"\n",
    ]
    .iter()
    .enumerate()
    {
        std::fs::write(&path, text).unwrap();
        let arguments = ["--config", path.to_str().unwrap(), "--upgrade-from"];
        let output = run_weir(&[&["proxy"], &arguments[..], &[&control_socket(directory.path())]].concat());
        assert_eq!(output.code, 1, "{number}: {output:?}");
        background.wait_for(50);
        reconnecting.wait_for(10);
        // A reload waits for the end of the attempt, and then continues.
        let text = format!("round {number}");
        proxy.reload(&config(directory.path(), 2, &text));
        let applied = within(EXIT_TIMEOUT, || get_body(&mut proxy.client()) == text);
        assert!(applied, "{}", proxy.stderr());
    }
    let mut old = proxy;
    let new = start_successor(directory.path(), &config(directory.path(), 3, "new"));
    assert_eq!(get_body(&mut new.client()), "new");
    background.wait_for(50);
    background.finish();
    reconnecting.finish();
    assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
}

/// Returns a response over a unix socket.
fn get_over_unix(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(EXIT_TIMEOUT)).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn unix_sockets_are_passed_on_and_what_is_new_or_gone_is_bound_or_closed() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("clients.sock");
    let unix = format!("[listener.unix]\nbind = \"unix:{}\"\n", path.display());
    let gone_listener = "[listener.gone]\nbind = \"127.0.0.1:0\"\n";
    let mut old = ProxyUnderTest::weir(&(config(directory.path(), 2, "old") + &unix + gone_listener));
    let gone_address = old.wait_for_listener("gone");
    assert!(get_over_unix(&path).ends_with("old"));
    let fresh = "[listener.fresh]\nbind = \"[::1]:0\"\n";
    let mut new = start_successor(directory.path(), &(config(directory.path(), 1, "new") + &unix + fresh));
    assert!(get_over_unix(&path).ends_with("new"));
    let fresh = new.wait_for_listener("fresh");
    assert_eq!(get_body(&mut Client::connect(&fresh)), "new");
    let is_closed = || !old.listens_at(&gone_address) && !new.listens_at(&gone_address);
    assert!(within(EXIT_TIMEOUT, is_closed), "what the new one does not want is still accepted");
    assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
    // The socket files belong to the new process.
    assert!(get_over_unix(&path).ends_with("new"));
    new.process.signal(rustix::process::Signal::TERM);
    assert_eq!(new.process.wait(EXIT_TIMEOUT), 0, "{}", new.stderr());
    assert!(!path.exists() && !Path::new(&control_socket(directory.path())).exists());
}

#[test]
fn the_control_socket_is_private_and_bears_nonsense() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let mut old = ProxyUnderTest::weir(&config(directory.path(), 1, "old"));
    let path = control_socket(directory.path());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (sent, expected) in [
        (&b"nonsense\n"[..], "error: "),
        (b"", ""),
        (b"\xff\xfe\n", ""),
        (b"upgrade\nready nonsense\n", "ok\n"),
        (&[b'x'; 10_000], ""),
    ] {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(EXIT_TIMEOUT)).unwrap();
        let _ = stream.write_all(sent);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        let response = String::from_utf8_lossy(&response);
        assert!(response.starts_with(expected), "{response}");
        assert_eq!(get_body(&mut old.client()), "old");
    }
    drop(start_successor(directory.path(), &config(directory.path(), 1, "new")));
    assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
}

/// Runs `weir ctl` with these words, which must succeed; returns its output.
fn ctl_output(directory: &Path, words: &[&str]) -> String {
    let socket = control_socket(directory);
    let output = run_weir(&[&["ctl", "--socket", &socket], words].concat());
    assert_eq!(output.code, 0, "{words:?}: {}", output.stderr);
    output.stdout
}

#[test]
fn the_new_process_is_operated_at_the_same_socket() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let mut proxy = ProxyUnderTest::weir(&config(directory.path(), 2, "0"));
    for number in ["1", "2", "3"] {
        let mut old = proxy;
        proxy = start_successor(directory.path(), &config(directory.path(), 2, number));
        // The draining process no longer responds.
        let process = format!("\"pid\":{}", proxy.process.id());
        for _ in 0..10 {
            let info = ctl_output(directory.path(), &["show", "info", "--json"]).replace(' ', "");
            assert!(info.contains(&process), "{process}: {info}");
        }
        assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
        ctl_output(directory.path(), &["reload"]);
        assert_eq!(get_body(&mut proxy.client()), number);
    }
    ctl_output(directory.path(), &["drain"]);
    assert_eq!(proxy.process.wait(EXIT_TIMEOUT), 0, "{}", proxy.stderr());
    assert!(!Path::new(&control_socket(directory.path())).exists(), "the control socket is left behind");
}

#[test]
fn while_one_gets_ready_no_other_does_and_nothing_is_reloaded() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let mut proxy = ProxyUnderTest::weir(&config(directory.path(), 1, "old"));
    let mut ready = UnixStream::connect(control_socket(directory.path())).unwrap();
    ready.set_read_timeout(Some(EXIT_TIMEOUT)).unwrap();
    ready.write_all(b"upgrade\n").unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\nend\n") {
        let mut bytes = [0; 512];
        let read = ready.read(&mut bytes).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&bytes[..read]);
    }
    let path = directory.path().join("second.toml");
    std::fs::write(&path, config(directory.path(), 1, "second")).unwrap();
    let socket = control_socket(directory.path());
    let second = run_weir(&["proxy", "--config", path.to_str().unwrap(), "--upgrade-from", &socket]);
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains(&socket), "{}", second.stderr);
    let reload = run_weir(&["ctl", "--socket", &socket, "reload"]);
    assert_eq!(reload.code, 2, "{}", reload.stdout);
    assert!(reload.stderr.contains("taking over"), "{}", reload.stderr);
    // The new process gives up.
    drop(ready);
    let reloaded = || run_weir(&["ctl", "--socket", &socket, "reload"]).code == 0;
    assert!(within(EXIT_TIMEOUT, reloaded), "{}", proxy.stderr());
    assert_eq!(get_body(&mut proxy.client()), "old");
    // No user runs this command by hand.
    let by_hand = run_weir(&["ctl", "--socket", &socket, "upgrade"]);
    assert_eq!(by_hand.code, 2);
    assert!(by_hand.stderr.contains("--upgrade-from"), "{}", by_hand.stderr);
    ctl_output(directory.path(), &["drain"]);
    assert_eq!(proxy.process.wait(EXIT_TIMEOUT), 0, "{}", proxy.stderr());
}

#[test]
fn where_nobody_is_to_be_replaced_it_just_starts() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let proxy = start_successor(directory.path(), &config(directory.path(), 1, "first"));
    assert_eq!(get_body(&mut proxy.client()), "first");
    assert!(proxy.stderr().contains("normal start"), "{}", proxy.stderr());
}

#[test]
fn a_process_without_privileges_passes_its_sockets_on() {
    let _shared = shared_machine();
    if !rustix::process::geteuid().is_root() {
        return test_needs::skip(test_needs::ROOT, "only root has privileges to drop");
    }
    let directory = temp_dir();
    let config = |body| {
        let privileges = "[privileges]\nuser = \"nobody\"\ngroup = \"nogroup\"\n";
        config(directory.path(), 2, body) + privileges
    };
    let mut old = ProxyUnderTest::weir(&config("old"));
    for body in ["new", "newer"] {
        let authority = old.authority().to_owned();
        let new = start_successor(directory.path(), &config(body));
        assert_eq!(get_body(&mut Client::connect(&authority)), body);
        assert_eq!(old.process.wait(EXIT_TIMEOUT), 0, "{}", old.stderr());
        old = new;
    }
}
