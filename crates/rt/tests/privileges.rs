//! Tests of dropping privileges, each case in a separate single-threaded process: a harness would
//! have started other threads before.

// The whole file is a test; without a harness, clippy cannot know.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind::PermissionDenied;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rt::privileges::{AllowedFiles, Confinement, Privileges, RESOLVER_PATHS, drop_privileges};

/// Result of a case; an error means that it cannot run here.
type CaseResult = Result<(), String>;
type Case = (&'static str, fn(&Path) -> CaseResult);

const CASES: &[Case] = &[
    ("root_is_given_up_for_good", root_is_given_up_for_good),
    ("our_own_user_is_no_change", our_own_user_is_no_change),
    ("files_are_confined_and_logs_can_be_rotated", files_are_confined_and_logs_can_be_rotated),
    ("another_user_is_confined_too", another_user_is_confined_too),
];
const CASE: &str = "WEIR_TEST_CASE";
const DIRECTORY: &str = "WEIR_TEST_FOLDER";
const SKIPPED: u8 = 77;
const NOBODY: u32 = 65534;

fn main() -> ExitCode {
    if let (Ok(name), Ok(directory)) = (std::env::var(CASE), std::env::var(DIRECTORY)) {
        let (_, case) = CASES.iter().find(|(other, _)| *other == name).expect("a known case");
        return match case(Path::new(&directory)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                let is_root = rustix::process::geteuid().is_root();
                let need = if is_root { test_needs::KERNEL } else { test_needs::ROOT };
                test_needs::skip(need, format!("{name}: {reason}"));
                ExitCode::from(SKIPPED)
            }
        };
    }
    let mut failed = false;
    for (name, _) in CASES {
        let directory = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program).env(CASE, name).env(DIRECTORY, &directory).output().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => println!("{stdout}test {name} ... ok"),
            Some(code) if code == i32::from(SKIPPED) => println!("test {name} ... {stdout}"),
            _ => {
                failed = true;
                let errors = String::from_utf8_lossy(&output.stderr);
                println!("test {name} ... FAILED\n{stdout}{errors}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns a line of the own status in `/proc`.
fn status(key: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Requires root with the ability to change users: some containers have no other user, or forbid
/// it.
fn need_root() -> CaseResult {
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

/// Returns true if [`NOBODY`] is in a map of user_namespaces(7): lines of the first ID, the first
/// one outside, and their number.
fn has_nobody(map: &str) -> bool {
    std::fs::read_to_string(map).unwrap().lines().any(|line| {
        let numbers: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        NOBODY.checked_sub(numbers[0]).is_some_and(|at| at < numbers[2])
    })
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn root_is_given_up_for_good(root: &Path) -> CaseResult {
    need_root()?;
    let secret = root.join("secret");
    std::fs::write(&secret, "root's").unwrap();
    set_mode(&secret, 0o600);
    std::fs::read(&secret).unwrap();
    let privileges =
        Privileges { user: Some(NOBODY), group: Some(NOBODY), no_new_privileges: true, files: None };
    assert_eq!(drop_privileges(&privileges).unwrap(), Confinement::NotRequested);
    let four = format!("{NOBODY} {NOBODY} {NOBODY} {NOBODY}");
    assert_eq!((status("Uid"), status("Gid"), status("Groups")), (four.clone(), four, String::new()));
    assert_eq!(status("CapEff"), "0000000000000000");
    assert_eq!(status("CapPrm"), "0000000000000000");
    assert_eq!(status("NoNewPrivs"), "1");
    assert_eq!(std::fs::read(&secret).unwrap_err().kind(), PermissionDenied);
    let back = drop_privileges(&Privileges { user: Some(0), ..Privileges::default() }).unwrap_err();
    assert!(back.to_string().contains("not permitted"), "{back}");
    std::thread::spawn(|| assert_eq!(status("NoNewPrivs"), "1")).join().unwrap();
    Ok(())
}

fn our_own_user_is_no_change(_: &Path) -> CaseResult {
    let first = |key| status(key).split(' ').next().unwrap().parse().ok();
    let before = (status("Groups"), status("NoNewPrivs"));
    let (user, group) = (first("Uid"), first("Gid"));
    drop_privileges(&Privileges { user, group, ..Privileges::default() }).unwrap();
    assert_eq!((status("Groups"), status("NoNewPrivs")), before);
    Ok(())
}

/// Creates the directories `logs` (writable), `config` (readable) and `other` with a file in each.
fn create_directories(root: &Path) -> [PathBuf; 3] {
    ["logs", "config", "other"].map(|name| {
        let directory = root.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("file"), name).unwrap();
        directory
    })
}

fn allowed_files(logs: &Path, config: &Path) -> AllowedFiles {
    let missing = [PathBuf::from("/no/such/path")];
    let config = [config.to_owned()];
    let read = RESOLVER_PATHS.iter().map(PathBuf::from).chain(config).chain(missing).collect();
    AllowedFiles { read, write: vec![logs.to_owned()], trees: Vec::new() }
}

/// Returns an error if this kernel does not support it.
fn require_enforced(confinement: Confinement) -> CaseResult {
    match confinement {
        Confinement::Enforced { abi, skipped, .. } => {
            assert!(abi > 0);
            assert!(skipped.contains(&PathBuf::from("/no/such/path")));
            Ok(())
        }
        Confinement::NotSupported { reason } => Err(reason.to_owned()),
        Confinement::NotRequested => panic!("it was asked for"),
    }
}

fn files_are_confined_and_logs_can_be_rotated(root: &Path) -> CaseResult {
    let [logs, config, other] = create_directories(root);
    let socket = other.join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let privileges = Privileges { files: Some(allowed_files(&logs, &config)), ..Privileges::default() };
    require_enforced(drop_privileges(&privileges).unwrap())?;
    assert_eq!(status_read_error(), PermissionDenied);

    let rotated = logs.join("file.1");
    std::fs::rename(logs.join("file"), &rotated).unwrap();
    std::fs::write(logs.join("file"), "new").unwrap();
    std::fs::remove_file(rotated).unwrap();
    drop(UnixListener::bind(logs.join("socket")).unwrap());

    assert_eq!(std::fs::read_to_string(config.join("file")).unwrap(), "config");
    assert_eq!(std::fs::write(config.join("file"), "").unwrap_err().kind(), PermissionDenied);
    assert_eq!(std::fs::write(config.join("new"), "").unwrap_err().kind(), PermissionDenied);
    // Skips a link, which may lead to an unreadable directory.
    if Path::new("/etc/hosts").symlink_metadata().is_ok_and(|hosts| hosts.is_file()) {
        std::fs::read("/etc/hosts").unwrap();
    } else {
        test_needs::skip("/etc/hosts", "there is no such file");
    }

    assert_eq!(std::fs::read(other.join("file")).unwrap_err().kind(), PermissionDenied);
    let path = other.join("file");
    let in_thread = std::thread::spawn(move || std::fs::read(path).unwrap_err().kind());
    assert_eq!(in_thread.join().unwrap(), PermissionDenied);
    UnixStream::connect(&socket).unwrap();
    Ok(())
}

fn status_read_error() -> std::io::ErrorKind {
    std::fs::read_to_string("/proc/self/status").unwrap_err().kind()
}

fn another_user_is_confined_too(root: &Path) -> CaseResult {
    need_root()?;
    let [logs, config, other] = create_directories(root);
    // The umask may have denied access to other users.
    for (path, mode) in [(root, 0o755), (&logs, 0o777), (&config, 0o755), (&other, 0o755)] {
        set_mode(path, mode);
    }
    for directory in [&config, &other] {
        set_mode(&directory.join("file"), 0o644);
    }
    let privileges = Privileges {
        user: Some(NOBODY),
        group: Some(NOBODY),
        no_new_privileges: true,
        files: Some(allowed_files(&logs, &config)),
    };
    require_enforced(drop_privileges(&privileges).unwrap())?;
    std::fs::write(logs.join("new"), "").unwrap();
    assert_eq!(std::fs::read_to_string(config.join("file")).unwrap(), "config");
    assert_eq!(std::fs::read(other.join("file")).unwrap_err().kind(), PermissionDenied);
    Ok(())
}
