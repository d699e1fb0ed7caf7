//! The control socket itself: access to it, accepted input, and the error of `weir ctl` without a
//! proxy.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;

use super::*;
use crate::support::faulty_origins::echoing_server;
use crate::support::hostile_client::BackgroundClients;
use crate::support::{shared_machine, temp_dir, within};

#[test]
fn only_its_owner_reaches_it_and_it_goes_with_the_proxy() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let mut proxy = start_proxy(&[&a]);
    let path = proxy.file("weir.sock");
    let file = fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o777, 0o600, "{:o}", file.mode());
    let line = format!("control on unix:{}\n", path.display());
    assert!(proxy.stdout().contains(&line), "{}", proxy.stdout());
    // A second proxy with the same path is rejected, and removes nothing.
    let second = config(&[&a.authority]).replace("HOME", proxy.home.path().to_str().unwrap());
    let other = temp_dir();
    let file = other.path().join("weir.toml");
    fs::write(&file, second).unwrap();
    let output = run_weir(&["proxy", "--config", file.to_str().unwrap()]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains(path.to_str().unwrap()), "{}", output.stderr);
    ctl_output(&proxy, "show info");
    proxy.process.signal(Signal::TERM);
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0);
    assert!(!path.exists());
}

#[test]
fn what_a_killed_proxy_left_behind_is_replaced() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let mut proxy = start_proxy(&[&a]);
    let path = proxy.file("weir.sock");
    proxy.process.signal(Signal::KILL);
    proxy.process.wait(EVENT_TIMEOUT);
    let output = run_ctl(&proxy, "show");
    assert_eq!(output.code, 1);
    let socket = path.to_str().unwrap();
    assert!(output.stderr.contains(socket), "{}", output.stderr);
    let next = ProxyUnderTest::weir_with_flags(&[
        "--listen",
        "127.0.0.1:0",
        "--to",
        &a.authority,
        "--control",
        socket,
    ]);
    assert!(ctl_output(&proxy, "show info").contains("version"));
    // Flags are shown as an equivalent valid config.
    let file = proxy.file("shown.toml");
    fs::write(&file, ctl_output(&proxy, "show config")).unwrap();
    let output = run_weir(&["proxy", "--check", "--config", file.to_str().unwrap()]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let output = run_ctl(&proxy, "reload");
    assert!(output.code == 2 && output.stderr.contains("no config"), "{}", output.stderr);
    drop(next);
}

#[test]
fn nobody_there_and_nothing_right_have_exit_codes_of_their_own() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let missing = directory.path().join("none");
    let output = run_weir(&["ctl", "--socket", missing.to_str().unwrap(), "show"]);
    assert!(output.code == 1 && output.stderr.contains(missing.to_str().unwrap()), "{output:?}");
    assert_eq!(run_weir(&["ctl"]).code, 2);
    let a = echoing_server("a");
    let proxy = start_proxy(&[&a]);
    for (words, part) in [
        ("shwo", "'show'"),
        ("show everything", "`show servers`"),
        ("server app/c drain", "server 'c'"),
        ("server ap/a drain", "'app'"),
        ("server app/a weight 300", "0 to 256"),
        ("kill 0.0.99", "`show connections`"),
        ("profile maybe", "'profile maybe'"),
    ] {
        let output = run_ctl(&proxy, words);
        assert_eq!(output.code, 2, "{words}: {}", output.stderr);
        assert!(output.stderr.contains(part), "{words}: {}", output.stderr);
    }
    let help = ctl_output(&proxy, "help");
    assert!(help.contains("server POOL/NAME drain") && help.contains("profile show"), "{help}");
}

#[test]
fn invalid_input_gets_an_error_and_a_close_and_requests_continue() {
    let _shared = shared_machine();
    let a = echoing_server("a");
    let proxy = start_proxy(&[&a]);
    let background = BackgroundClients::start(proxy.authority(), "/", 4);
    for (junk, part) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], "'GET'"),
        (b"\0\0\0\0\n", "`help`"),
        (b"\xff\xfe\xfd\n", "UTF-8"),
        (b"show", "newline"),
        (b"", "newline"),
        (b"\n", "`help`"),
        (&[b'x'; 150_000], "98304"),
    ] {
        let response = raw_exchange(&proxy, junk);
        assert!(response.starts_with("error: ") && response.contains(part), "{junk:?}: {response}");
    }
    // Sixteen clients send nothing: the next one is rejected with a message, and no other is
    // delayed.
    let mut refused = String::new();
    let is_logged = within(EVENT_TIMEOUT, || {
        let connect = |_| UnixStream::connect(proxy.file("weir.sock")).unwrap();
        let silent: Vec<UnixStream> = (0..16).map(connect).collect();
        refused = raw_exchange(&proxy, b"show info\n");
        drop(silent);
        refused.starts_with("error: cannot ")
    });
    assert!(is_logged, "{refused}");
    // A silent client is disconnected after a timeout.
    let mut silent = UnixStream::connect(proxy.file("weir.sock")).unwrap();
    silent.set_read_timeout(Some(2 * EVENT_TIMEOUT)).unwrap();
    let mut response = String::new();
    silent.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("error: "), "{response}");
    assert!(within(EVENT_TIMEOUT, || raw_exchange(&proxy, b"show info\n").starts_with("ok\n")));
    let mut closed_at_once = UnixStream::connect(proxy.file("weir.sock")).unwrap();
    closed_at_once.write_all(b"top\n").unwrap();
    drop(closed_at_once);
    background.wait_for(50);
    background.finish();
    assert!(raw_exchange(&proxy, b"show info\n").starts_with("ok\n"));
}

#[test]
fn the_socket_is_the_user_s_that_the_proxy_becomes() {
    let _shared = shared_machine();
    if !rustix::process::geteuid().is_root() {
        return test_needs::skip(test_needs::ROOT, "only root has privileges to drop");
    }
    let a = echoing_server("a");
    let proxy = ProxyUnderTest::weir(&format!(
        "{}[privileges]\nuser = \"nobody\"\ngroup = \"nogroup\"\n",
        config(&[&a.authority])
    ));
    let file = fs::symlink_metadata(proxy.file("weir.sock")).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.process.id())).unwrap();
    assert!(status.contains(&format!("Uid:\t{}\t", file.uid())) && file.uid() != 0, "{status}");
    assert_eq!(file.mode() & 0o777, 0o600);
    // Root has access.
    ctl_output(&proxy, "server app/a drain");
    assert_eq!(server_row(&proxy, "app/a")["state"], "drain");
}

#[test]
fn another_user_is_refused_even_where_the_file_lets_him_in() {
    let _shared = shared_machine();
    if !rustix::process::geteuid().is_root() {
        return test_needs::skip(test_needs::ROOT, "only root can be somebody else");
    }
    let a = echoing_server("a");
    let proxy = start_proxy(&[&a]);
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(proxy.home.path(), 0o755);
    // In this thread only.
    let as_nobody = |path: std::path::PathBuf| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        std::thread::spawn(move || {
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let mut stream = UnixStream::connect(path)?;
            stream.write_all(b"server app/a drain\n")?;
            let mut response = String::new();
            stream.read_to_string(&mut response).map(|_| response)
        })
        .join()
        .unwrap()
    };
    let error = as_nobody(proxy.file("weir.sock")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    open(&proxy.file("weir.sock"), 0o666);
    let response = as_nobody(proxy.file("weir.sock")).unwrap();
    assert!(response.starts_with("error: cannot ") && response.contains("65534"), "{response}");
    assert_eq!(server_row(&proxy, "app/a")["state"], "no check");
}
