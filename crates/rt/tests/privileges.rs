//! Giving up privileges, each case in a process of its own that has one thread: a harness would
//! have started others before. Not for what needs no such process.

// The whole file is a test; without a harness, clippy cannot know.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind::PermissionDenied;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rt::privileges::{Confinement, Files, Privileges, RESOLVER, give_up};

/// What a case says when it cannot run here.
type Outcome = Result<(), String>;
type Case = (&'static str, fn(&Path) -> Outcome);

const CASES: &[Case] = &[
    ("root_is_given_up_for_good", root_is_given_up_for_good),
    ("our_own_user_is_no_change", our_own_user_is_no_change),
    ("files_are_confined_and_logs_can_be_rotated", files_are_confined_and_logs_can_be_rotated),
    ("another_user_is_confined_too", another_user_is_confined_too),
];
const CASE: &str = "WEIR_TEST_CASE";
const FOLDER: &str = "WEIR_TEST_FOLDER";
const SKIPPED: u8 = 77;
const NOBODY: u32 = 65534;

fn main() -> ExitCode {
    if let (Ok(name), Ok(folder)) = (std::env::var(CASE), std::env::var(FOLDER)) {
        let (_, case) = CASES.iter().find(|(other, _)| *other == name).expect("a known case");
        return match case(Path::new(&folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                println!("skipped: {why}");
                ExitCode::from(SKIPPED)
            }
        };
    }
    let mut failed = false;
    for (name, _) in CASES {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program).env(CASE, name).env(FOLDER, &folder).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => println!("{said}test {name} ... ok"),
            Some(code) if code == i32::from(SKIPPED) => println!("test {name} ... {said}"),
            _ => {
                failed = true;
                let errors = String::from_utf8_lossy(&output.stderr);
                println!("test {name} ... FAILED\n{said}{errors}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A line of our status in `/proc`.
fn status(key: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Root that may become somebody else: some containers have no other user, or do not let it.
fn need_root() -> Outcome {
    /// `CAP_SETGID` and `CAP_SETUID`.
    const CHANGES: u64 = 1 << 6 | 1 << 7;
    if !status("Uid").starts_with("0 0 ") {
        return Err("this needs root".to_owned());
    }
    let capabilities = u64::from_str_radix(&status("CapEff"), 16).unwrap();
    let denied = std::fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text == "deny\n");
    if capabilities & CHANGES != CHANGES || denied {
        return Err("root may not change its user and groups here".to_owned());
    }
    if !["/proc/self/uid_map", "/proc/self/gid_map"].into_iter().all(has_nobody) {
        return Err(format!("there is no user or group {NOBODY} here"));
    }
    Ok(())
}

/// Whether [`NOBODY`] is in a map of user_namespaces(7): lines of the first id, the first one outside,
/// and how many.
fn has_nobody(map: &str) -> bool {
    std::fs::read_to_string(map).unwrap().lines().any(|line| {
        let numbers: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        NOBODY.checked_sub(numbers[0]).is_some_and(|at| at < numbers[2])
    })
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn root_is_given_up_for_good(root: &Path) -> Outcome {
    need_root()?;
    let secret = root.join("secret");
    std::fs::write(&secret, "root's").unwrap();
    set_mode(&secret, 0o600);
    std::fs::read(&secret).unwrap();
    let privileges = Privileges {
        user: Some(NOBODY),
        group: Some(NOBODY),
        no_new_privileges: true,
        files: None,
    };
    assert_eq!(give_up(&privileges).unwrap(), Confinement::NotAsked);
    let four = format!("{NOBODY} {NOBODY} {NOBODY} {NOBODY}");
    assert_eq!(
        (status("Uid"), status("Gid"), status("Groups")),
        (four.clone(), four, String::new())
    );
    assert_eq!(status("CapEff"), "0000000000000000");
    assert_eq!(status("CapPrm"), "0000000000000000");
    assert_eq!(status("NoNewPrivs"), "1");
    assert_eq!(std::fs::read(&secret).unwrap_err().kind(), PermissionDenied);
    let back = give_up(&Privileges { user: Some(0), ..Privileges::default() }).unwrap_err();
    assert!(back.to_string().contains("not permitted"), "{back}");
    std::thread::spawn(|| assert_eq!(status("NoNewPrivs"), "1")).join().unwrap();
    Ok(())
}

fn our_own_user_is_no_change(_: &Path) -> Outcome {
    let first = |key| status(key).split(' ').next().unwrap().parse().ok();
    let before = (status("Groups"), status("NoNewPrivs"));
    let (user, group) = (first("Uid"), first("Gid"));
    give_up(&Privileges { user, group, ..Privileges::default() }).unwrap();
    assert_eq!((status("Groups"), status("NoNewPrivs")), before);
    Ok(())
}

/// Folders `logs` (to be written), `config` (to be read) and `other` with a file in each.
fn folders(root: &Path) -> [PathBuf; 3] {
    ["logs", "config", "other"].map(|name| {
        let folder = root.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), name).unwrap();
        folder
    })
}

fn files(logs: &Path, config: &Path) -> Files {
    let missing = [PathBuf::from("/no/such/path")];
    let config = [config.to_owned()];
    let read = RESOLVER.iter().map(PathBuf::from).chain(config).chain(missing).collect();
    Files { read, write: vec![logs.to_owned()] }
}

/// `Err`: this kernel cannot.
fn enforced(confinement: Confinement) -> Outcome {
    match confinement {
        Confinement::Enforced { abi, skipped, .. } => {
            assert!(abi > 0);
            assert!(skipped.contains(&PathBuf::from("/no/such/path")));
            Ok(())
        }
        Confinement::NotSupported { why } => Err(why.to_owned()),
        Confinement::NotAsked => panic!("it was asked for"),
    }
}

fn files_are_confined_and_logs_can_be_rotated(root: &Path) -> Outcome {
    let [logs, config, other] = folders(root);
    let socket = other.join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let privileges = Privileges { files: Some(files(&logs, &config)), ..Privileges::default() };
    enforced(give_up(&privileges).unwrap())?;
    assert_eq!(status_is_out_of_reach(), PermissionDenied);

    let rotated = logs.join("file.1");
    std::fs::rename(logs.join("file"), &rotated).unwrap();
    std::fs::write(logs.join("file"), "new").unwrap();
    std::fs::remove_file(rotated).unwrap();
    drop(UnixListener::bind(logs.join("socket")).unwrap());

    assert_eq!(std::fs::read_to_string(config.join("file")).unwrap(), "config");
    assert_eq!(std::fs::write(config.join("file"), "").unwrap_err().kind(), PermissionDenied);
    assert_eq!(std::fs::write(config.join("new"), "").unwrap_err().kind(), PermissionDenied);
    // Not a link, which may lead to where nothing is to be read.
    if Path::new("/etc/hosts").symlink_metadata().is_ok_and(|hosts| hosts.is_file()) {
        std::fs::read("/etc/hosts").unwrap();
    } else {
        println!("skipped: there is no file /etc/hosts");
    }

    assert_eq!(std::fs::read(other.join("file")).unwrap_err().kind(), PermissionDenied);
    let path = other.join("file");
    let in_thread = std::thread::spawn(move || std::fs::read(path).unwrap_err().kind());
    assert_eq!(in_thread.join().unwrap(), PermissionDenied);
    UnixStream::connect(&socket).unwrap();
    Ok(())
}

fn status_is_out_of_reach() -> std::io::ErrorKind {
    std::fs::read_to_string("/proc/self/status").unwrap_err().kind()
}

fn another_user_is_confined_too(root: &Path) -> Outcome {
    need_root()?;
    let [logs, config, other] = folders(root);
    // The umask may have kept them from all others.
    for (path, mode) in [(root, 0o755), (&logs, 0o777), (&config, 0o755), (&other, 0o755)] {
        set_mode(path, mode);
    }
    for folder in [&config, &other] {
        set_mode(&folder.join("file"), 0o644);
    }
    let privileges = Privileges {
        user: Some(NOBODY),
        group: Some(NOBODY),
        no_new_privileges: true,
        files: Some(files(&logs, &config)),
    };
    enforced(give_up(&privileges).unwrap())?;
    std::fs::write(logs.join("new"), "").unwrap();
    assert_eq!(std::fs::read_to_string(config.join("file")).unwrap(), "config");
    assert_eq!(std::fs::read(other.join("file")).unwrap_err().kind(), PermissionDenied);
    Ok(())
}
