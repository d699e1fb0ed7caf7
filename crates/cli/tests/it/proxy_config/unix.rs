//! Unix listeners as files: the files that they replace or leave alone, their mode, and their
//! removal.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::support::hostile_client::read_response;
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::{EVENT_TIMEOUT, run_weir, shared_machine, temp_dir, within};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

/// Returns the listener section of a socket at `path`.
fn listener_config(path: &Path, more: &str) -> String {
    format!("[listener.web]\nbind = \"unix:{}\"\n{more}\n[[route]]\ndeny = true\n", path.display())
}

/// Returns the error message of a proxy that cannot start because of the file at `path`, which it
/// names.
fn start_error(path: &Path) -> String {
    let address = format!("unix:{}", path.display());
    let output = run_weir(&["proxy", "--listen", &address, "--to", "127.0.0.1:1"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.stderr.contains(path.to_str().unwrap()), "{output:?}");
    output.stderr
}

#[test]
fn nothing_but_a_stale_socket_is_replaced() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "kept").unwrap();
    assert!(start_error(&at("file")).contains("not a socket"));
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "kept");
    for target in ["file", "nowhere"] {
        let link = at("link");
        symlink(at(target), &link).unwrap();
        assert!(start_error(&link).contains("symbolic"));
        assert!(link.is_symlink() && at("file").exists());
        fs::remove_file(link).unwrap();
    }
    let live = UnixListener::bind(at("live")).unwrap();
    assert!(start_error(&at("live")).contains("listens"));
    UnixStream::connect(at("live")).unwrap();
    drop(live);
    // Its owner was killed: no process listens.
    let stale = at("live");
    let _proxy = ProxyUnderTest::weir(&listener_config(&stale, ""));
    let mut client = UnixStream::connect(&stale).unwrap();
    client.write_all(REQUEST).unwrap();
    assert_eq!(read_response(&mut client).status, Some(403));
}

#[test]
fn the_mode_is_that_of_the_config_also_after_a_reload() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("socket");
    let mode = || fs::symlink_metadata(&path).unwrap().mode() & 0o777;
    let mut proxy = ProxyUnderTest::weir(&listener_config(&path, "unix-mode = \"0666\""));
    assert_eq!(mode(), 0o666);
    proxy.reload(&listener_config(&path, "unix-mode = \"600\""));
    assert!(within(EVENT_TIMEOUT, || mode() == 0o600), "{:o} {}", mode(), proxy.stderr());
    proxy.process.signal(rustix::process::Signal::TERM);
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0);
    assert!(!path.exists(), "the file stays behind");
}

#[test]
fn a_file_that_is_not_its_own_any_more_stays() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let path = directory.path().join("socket");
    let mut proxy = ProxyUnderTest::weir(&listener_config(&path, ""));
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    proxy.process.signal(rustix::process::Signal::TERM);
    assert_eq!(proxy.process.wait(EVENT_TIMEOUT), 0);
    UnixStream::connect(&path).unwrap();
}
