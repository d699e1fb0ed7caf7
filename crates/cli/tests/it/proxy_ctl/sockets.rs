//! The socket itself: who reaches it, what it takes, what `weir ctl` says when nobody is there.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;

use super::*;
use crate::support::faulty::telling;
use crate::support::rude::Crowd;
use crate::support::{beside_others, folder, within};

#[test]
fn only_its_owner_reaches_it_and_it_goes_with_the_proxy() {
    let _shared = beside_others();
    let a = telling("a");
    let mut door = before(&[&a]);
    let path = door.file("weir.sock");
    let file = fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.mode() & 0o777, 0o600, "{:o}", file.mode());
    let line = format!("control on unix:{}\n", path.display());
    assert!(door.stdout().contains(&line), "{}", door.stdout());
    // Another one that wants the same place is refused, and takes nothing away.
    let second = config(&[&a.authority]).replace("HOME", door.home.path().to_str().unwrap());
    let other = folder();
    let file = other.path().join("weir.toml");
    fs::write(&file, second).unwrap();
    let output = weir(&["proxy", "--config", file.to_str().unwrap()]);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("another process listens there"), "{}", output.stderr);
    done(&door, "show info");
    door.process.signal(Signal::TERM);
    assert_eq!(door.process.wait(PATIENCE), 0);
    assert!(!path.exists());
}

#[test]
fn what_a_killed_proxy_left_behind_is_replaced() {
    let _shared = beside_others();
    let a = telling("a");
    let mut door = before(&[&a]);
    let path = door.file("weir.sock");
    door.process.signal(Signal::KILL);
    door.process.wait(PATIENCE);
    let output = ctl(&door, "show");
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("no proxy listens there"), "{}", output.stderr);
    let socket = path.to_str().unwrap();
    let next =
        Door::with_flags(&["--listen", "127.0.0.1:0", "--to", &a.authority, "--control", socket]);
    assert!(done(&door, "show info").contains("version"));
    // What flags say is shown as a config, which is one.
    let file = door.file("shown.toml");
    fs::write(&file, done(&door, "show config")).unwrap();
    let output = weir(&["proxy", "--check", "--config", file.to_str().unwrap()]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let output = ctl(&door, "reload");
    assert!(output.code == 2 && output.stderr.contains("no config"), "{}", output.stderr);
    drop(next);
}

#[test]
fn nobody_there_and_nothing_right_have_exit_codes_of_their_own() {
    let _shared = beside_others();
    let home = folder();
    let missing = home.path().join("none");
    let output = weir(&["ctl", "--socket", missing.to_str().unwrap(), "show"]);
    assert!(output.code == 1 && output.stderr.contains("no proxy listens there"), "{output:?}");
    assert_eq!(weir(&["ctl"]).code, 2);
    let a = telling("a");
    let door = before(&[&a]);
    for (words, part) in [
        ("shwo", "did you mean 'show'"),
        ("show everything", "`show servers`"),
        ("server app/c drain", "has no server 'c'"),
        ("server ap/a drain", "did you mean 'app'"),
        ("server app/a weight 300", "0 to 256"),
        ("kill 0.0.99", "no such connection"),
        ("profile maybe", "is not understood"),
    ] {
        let output = ctl(&door, words);
        assert_eq!(output.code, 2, "{words}: {}", output.stderr);
        assert!(output.stderr.contains(part), "{words}: {}", output.stderr);
    }
    let help = done(&door, "help");
    assert!(help.contains("server POOL/NAME drain") && help.contains("profile show"), "{help}");
}

#[test]
fn junk_gets_an_answer_and_an_end_and_requests_go_on() {
    let _shared = beside_others();
    let a = telling("a");
    let door = before(&[&a]);
    let crowd = Crowd::start(door.authority(), "/", 4);
    for (junk, part) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], "there is no command 'GET'"),
        (b"\0\0\0\0\n", "there is no command"),
        (b"\xff\xfe\xfd\n", "UTF-8"),
        (b"show", "no end"),
        (b"", "no end"),
        (b"\n", "no command"),
        (&[b'x'; 100_000], "longer than"),
    ] {
        let answer = raw(&door, junk);
        assert!(answer.starts_with("error: ") && answer.contains(part), "{junk:?}: {answer}");
    }
    // Sixteen say nothing: the next is told so, and nobody else is held up.
    let mut refused = String::new();
    let told = within(PATIENCE, || {
        let connect = |_| UnixStream::connect(door.file("weir.sock")).unwrap();
        let silent: Vec<UnixStream> = (0..16).map(connect).collect();
        refused = raw(&door, b"show info\n");
        drop(silent);
        refused.starts_with("error: cannot ")
    });
    assert!(told, "{refused}");
    // Who says nothing is sent away in time.
    let mut silent = UnixStream::connect(door.file("weir.sock")).unwrap();
    silent.set_read_timeout(Some(2 * PATIENCE)).unwrap();
    let mut answer = String::new();
    silent.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("error: "), "{answer}");
    assert!(within(PATIENCE, || raw(&door, b"show info\n").starts_with("ok\n")));
    let mut gone = UnixStream::connect(door.file("weir.sock")).unwrap();
    gone.write_all(b"top\n").unwrap();
    drop(gone);
    crowd.wait_for(50);
    crowd.finish();
    assert!(raw(&door, b"show info\n").starts_with("ok\n"));
}

#[test]
fn the_socket_is_the_user_s_that_the_proxy_becomes() {
    let _shared = beside_others();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root has privileges to drop");
        return;
    }
    let a = telling("a");
    let door = Door::weir(&format!(
        "{}[privileges]\nuser = \"nobody\"\ngroup = \"nogroup\"\n",
        config(&[&a.authority])
    ));
    let file = fs::symlink_metadata(door.file("weir.sock")).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", door.process.id())).unwrap();
    assert!(status.contains(&format!("Uid:\t{}\t", file.uid())) && file.uid() != 0, "{status}");
    assert_eq!(file.mode() & 0o777, 0o600);
    // Root may.
    done(&door, "server app/a drain");
    assert_eq!(server(&door, "app/a")["state"], "drain");
}

#[test]
fn another_user_is_refused_even_where_the_file_lets_him_in() {
    let _shared = beside_others();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root can be somebody else");
        return;
    }
    let a = telling("a");
    let door = before(&[&a]);
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(door.home.path(), 0o755);
    // In this thread only.
    let as_nobody = |path: std::path::PathBuf| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        std::thread::spawn(move || {
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let mut stream = UnixStream::connect(path)?;
            stream.write_all(b"server app/a drain\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        })
        .join()
        .unwrap()
    };
    let error = as_nobody(door.file("weir.sock")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    open(&door.file("weir.sock"), 0o666);
    let answer = as_nobody(door.file("weir.sock")).unwrap();
    assert!(answer.starts_with("error: cannot obey user 65534"), "{answer}");
    assert_eq!(server(&door, "app/a")["state"], "up, not checked");
}
