//! Unix listeners as files: what they replace and what they leave alone, their mode, and when the file
//! goes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use crate::support::door::Door;
use crate::support::rude::see;
use crate::support::{PATIENCE, beside_others, folder, weir, within};

const REQUEST: &[u8] = b"GET /x HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";

/// The listener section of a socket at `path`.
fn config(path: &Path, more: &str) -> String {
    format!("[listener.web]\nbind = \"unix:{}\"\n{more}\n[[route]]\ndeny = true\n", path.display())
}

/// The message of a proxy that does not start because of what is at `path`.
fn refusal(path: &Path) -> String {
    let address = format!("unix:{}", path.display());
    let output = weir(&["proxy", "--listen", &address, "--to", "127.0.0.1:1"]);
    assert_eq!(output.code, 1, "{output:?}");
    output.stderr
}

#[test]
fn nothing_but_a_stale_socket_is_replaced() {
    let _shared = beside_others();
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("file"), "kept").unwrap();
    assert!(refusal(&at("file")).contains("a file of another kind"));
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "kept");
    for target in ["file", "nowhere"] {
        let link = at("link");
        symlink(at(target), &link).unwrap();
        assert!(refusal(&link).contains("a symbolic link"));
        assert!(link.is_symlink() && at("file").exists());
        fs::remove_file(link).unwrap();
    }
    let live = UnixListener::bind(at("live")).unwrap();
    assert!(refusal(&at("live")).contains("another process listens there"));
    UnixStream::connect(at("live")).unwrap();
    drop(live);
    // Its owner was killed: nobody listens.
    let stale = at("live");
    let _door = Door::weir(&config(&stale, ""));
    let mut client = UnixStream::connect(&stale).unwrap();
    client.write_all(REQUEST).unwrap();
    assert_eq!(see(&mut client).status, Some(403));
}

#[test]
fn the_mode_is_that_of_the_config_also_after_a_reload() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("socket");
    let mode = || fs::symlink_metadata(&path).unwrap().mode() & 0o777;
    let mut door = Door::weir(&config(&path, "unix-mode = \"0666\""));
    assert_eq!(mode(), 0o666);
    door.reload(&config(&path, "unix-mode = \"600\""));
    assert!(within(PATIENCE, || mode() == 0o600), "{:o} {}", mode(), door.stderr());
    door.process.signal(rustix::process::Signal::TERM);
    assert_eq!(door.process.wait(PATIENCE), 0);
    assert!(!path.exists(), "the file stays behind");
}

#[test]
fn a_file_that_is_not_its_own_any_more_stays() {
    let _shared = beside_others();
    let folder = folder();
    let path = folder.path().join("socket");
    let mut door = Door::weir(&config(&path, ""));
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    door.process.signal(rustix::process::Signal::TERM);
    assert_eq!(door.process.wait(PATIENCE), 0);
    UnixStream::connect(&path).unwrap();
}
