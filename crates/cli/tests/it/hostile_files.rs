//! `weir` as root on a machine whose service user plants journals: nothing is obeyed and nothing changes, and the
//! message says why. Everything happens in a mount namespace with a `/run` of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Process, WEIR, shared_machine, temp_dir};

/// Process of root that planted journals name.
struct Victim {
    process: Process,
    start_ticks: u64,
}

impl Victim {
    fn start() -> Self {
        let process = Process::spawn(Command::new("sleep").arg("600").stdin(Stdio::null()));
        let identity = host::journal::ProcessIdentity::of(process.id()).unwrap();
        Self { process, start_ticks: identity.start_ticks }
    }
}

/// Runs a shell script as root in a mount namespace with an empty `/run`. `None`: this machine does not permit it.
fn run_script(directory: &Path, victim: &Victim, script: &str) -> Option<Output> {
    let prepared = format!(
        "set -eu\nmount -t tmpfs -o mode=755 tmpfs /run\nuser() {{ setpriv --reuid 65534 --regid 65534 --clear-groups \
         -- sh -euc \"$1\"; }}\n{script}\n"
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", &prepared]).current_dir("/").stdin(Stdio::null());
    shell.env("WEIR", WEIR).env("D", directory).env("HOME", directory).env("XDG_STATE_HOME", directory);
    shell.env("PID", victim.process.id().to_string()).env("TICKS", victim.start_ticks.to_string());
    let output = shell.output().ok()?;
    let text = text(&output);
    let is_denied =
        ["unshare failed", "mount:", "setpriv:", "not permitted"].iter().any(|part| text.contains(part));
    if is_denied && !output.status.success() {
        test_needs::skip(test_needs::ROOT, text);
        return None;
    }
    Some(output)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Shell functions that write journals; `tree`, `file` and the process are victims.
const JOURNALS: &str = r#"
lab() {
  printf '{"pid":1,"start_ticks":268435455}\n{"directory":{"path":"%s"}}\n{"setting":{"path":"%s","previous":"planted"}}\n' "$D/tree" "$D/file"
  printf '{"setting":{"path":"%s","previous":"planted"}}\n{"process":{"pid":%s,"start_ticks":%s}}\n' "$D/created" "$PID" "$TICKS"
}
tune() {
  printf '{"schema":"weir.tune-journal/1","owner":{"pid":1,"start_ticks":268435455},"boot_id":"%s","started_at":"","requested":[],' "$(cat /proc/sys/kernel/random/boot_id)"
  printf '"target":"host","ends_with":{"time":{"at":""}}}\n{"change":{"name":"net.core.somaxconn","path":"%s","old":"planted","new":"x"}}\n' "$D/file"
}
all_commands() {
  $WEIR tune status || true
  $WEIR tune revert || true
  $WEIR watch --once -d 100ms --pid $$ >/dev/null || true
}
good() { mkdir -m 700 -p /run/weir-root/lab /run/weir-root/tune; }
export WEIR D PID TICKS
"#;

/// Runs a script that plants journals and then all commands that read them; checks that nothing changed, and that
/// the messages have each of `reasons`.
fn assert_harmless(name: &str, script: &str, reasons: &[&str]) {
    let directory = temp_dir();
    let victim = Victim::start();
    fs::create_dir_all(directory.path().join("tree/deep")).unwrap();
    fs::write(directory.path().join("tree/deep/file"), "kept").unwrap();
    fs::write(directory.path().join("file"), "kept").unwrap();
    // The user may reach its own files there.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(directory.path(), mode).unwrap();
    let script = format!("{JOURNALS}\n{script}\nall_commands");
    let Some(output) = run_script(directory.path(), &victim, &script) else { return };
    let text = text(&output);
    assert!(output.status.success(), "{name}: {text}");
    assert_eq!(
        fs::read_to_string(directory.path().join("tree/deep/file")).unwrap(),
        "kept",
        "{name}: {text}"
    );
    assert_eq!(fs::read_to_string(directory.path().join("file")).unwrap(), "kept", "{name}: {text}");
    assert!(!directory.path().join("created").exists(), "{name}: {text}");
    let is_alive = host::journal::ProcessIdentity::of(victim.process.id())
        .is_some_and(|process| process.start_ticks == victim.start_ticks);
    assert!(is_alive, "{name}: {text}");
    for reason in reasons {
        assert!(text.contains(reason), "{name}: '{reason}' is missing in: {text}");
    }
}

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        test_needs::skip(test_needs::ROOT, "only root can be misled");
    }
    is_root
}

#[test]
fn journals_in_the_directory_of_a_service_are_listed_and_not_obeyed() {
    let _shared = shared_machine();
    if !is_root() {
        return;
    }
    let script = r#"
        mkdir /run/weir; chown 65534:65534 /run/weir
        lab >$D/lab; tune >$D/tune
        user "mkdir /run/weir/lab /run/weir/tune; cp $D/lab /run/weir/lab/weir-1-fffffff-0.journal
          cp $D/tune /run/weir/tune/1-fffffff.journal; cp $D/lab '/run/weir/lab/weir-1-fffffff-\$(id).journal'"
    "#;
    let reasons = [
        "not obeyed: /run/weir/lab/weir-1-fffffff-0.journal is in a directory that a service user can change",
        "not obeyed: /run/weir/tune/1-fffffff.journal",
        "install -m 600 /run/weir/tune/1-fffffff.journal /run/weir-root/tune/1-fffffff.journal.copy, read the copy",
        "mv /run/weir-root/tune/1-fffffff.journal.copy /run/weir-root/tune/1-fffffff.journal && \
         rm /run/weir/tune/1-fffffff.journal && weir tune revert",
        "nothing to restore",
    ];
    assert_harmless("old directory", script, &reasons);
    // The command to type makes weir read the journal, which still names files that no apply writes.
    let typed = format!(
        "{script}\ninstall -d -m 700 /run/weir-root/tune; install -m 600 /run/weir/tune/1-fffffff.journal /run/weir-root/tune/"
    );
    assert_harmless("typed", &typed, &["1-fffffff.journal:2: ", "is not the file of net.core.somaxconn"]);
}

#[test]
fn journals_that_another_user_could_write_are_not_obeyed() {
    let _shared = shared_machine();
    if !is_root() {
        return;
    }
    let plant =
        "lab >/run/weir-root/lab/weir-1-fffffff-0.journal; tune >/run/weir-root/tune/1-fffffff.journal";
    let shapes = [
        // As after the recursive chown of a runtime directory by the service manager.
        (
            "owned directory",
            "good; {plant}; chown -R 65534 /run/weir-root",
            "weir-root belongs to user 65534",
        ),
        ("owned subdirectory", "good; {plant}; chown -R 65534 /run/weir-root/*", "lab belongs to user 65534"),
        (
            "owned file",
            "good; {plant}; chown 65534 /run/weir-root/*/*",
            "weir-1-fffffff-0.journal belongs to user 65534",
        ),
        (
            "world-writable directory",
            "good; {plant}; chmod 777 /run/weir-root/*",
            "lab can be changed by other users",
        ),
        (
            "sticky directory",
            "good; {plant}; chmod 1777 /run/weir-root/*",
            "tune can be changed by other users",
        ),
        (
            "group-writable parent",
            "good; {plant}; chmod 770 /run/weir-root",
            "weir-root can be changed by other users",
        ),
        (
            "group-writable file",
            "good; {plant}; chmod 660 /run/weir-root/*/*",
            "weir-1-fffffff-0.journal can be changed by",
        ),
        (
            "linked files",
            "good; lab >$D/l; tune >$D/t; ln -s $D/l /run/weir-root/lab/weir-1-fffffff-0.journal; \
             ln -s $D/t /run/weir-root/tune/1-fffffff.journal",
            "weir-1-fffffff-0.journal is a symbolic link",
        ),
        (
            "linked directory",
            "mkdir -m 700 /run/weir-root /run/other /run/other/lab /run/other/tune; ln -s /run/other/* /run/weir-root/; \
             {plant}",
            "/run/weir-root/lab is a symbolic link",
        ),
        (
            "hard links",
            "good; {plant}; mkdir /run/x; ln /run/weir-root/lab/* /run/weir-root/tune/* /run/x/",
            "weir-1-fffffff-0.journal has other names",
        ),
        (
            "pipes",
            "good; mkfifo -m 600 /run/weir-root/lab/weir-1-fffffff-0.journal /run/weir-root/tune/1-fffffff.journal",
            "1-fffffff.journal is not a regular file",
        ),
    ];
    for (name, script, reason) in shapes {
        assert_harmless(name, &script.replace("{plant}", plant), &["not obeyed", reason]);
    }
}

#[test]
fn journals_of_root_name_only_what_weir_makes() {
    let _shared = shared_machine();
    if !is_root() {
        return;
    }
    let reasons = [
        "weir-1-fffffff-0.journal:2: directory",
        "is not of this run; nothing in this journal is obeyed",
        "1-fffffff.journal:2: ",
        "is not the file of net.core.somaxconn; nothing in this journal is obeyed",
    ];
    let plant =
        "good; lab >/run/weir-root/lab/weir-1-fffffff-0.journal; tune >/run/weir-root/tune/1-fffffff.journal";
    assert_harmless("foreign files", plant, &reasons);
    let line = |line: &str| {
        format!(
            "good; printf '{{\"pid\":1,\"start_ticks\":268435455}}\\n{line}\\n' >/run/weir-root/lab/weir-1-fffffff-0.journal"
        )
    };
    for (name, entry, reason) in [
        (
            "dots",
            r#"{"directory":{"path":"/var/tmp/weir-1-fffffff-0/../../../'$D'/tree"}}"#,
            "is not of this run",
        ),
        ("another run", r#"{"directory":{"path":"/var/tmp/weir-2-2-0"}}"#, "is not of this run"),
        ("a group of others", r#"{"cgroup":{"path":"/sys/fs/cgroup/system.slice"}}"#, "is not of this run"),
        ("a namespace of others", r#"{"namespace":{"name":"blue"}}"#, "'blue' is not of this run"),
        (
            "a program of the kernel",
            r#"{"setting":{"path":"/proc/sys/kernel/core_pattern","previous":"|x"}}"#,
            "is no setting",
        ),
        (
            "a process of others",
            r#"{"process":{"pid":'$PID',"start_ticks":'$TICKS'}}"#,
            "has no sign of weir-1-fffffff-0",
        ),
        (
            "a reused PID",
            r#"{"process":{"pid":'$PID',"start_ticks":7}}"#,
            "removed leftovers of the killed run",
        ),
        ("all processes", r#"{"process":{"pid":-1,"start_ticks":0}}"#, "removed leftovers of the killed run"),
    ] {
        assert_harmless(name, &line(entry), &[reason]);
    }
}

#[test]
fn a_genuine_journal_of_a_killed_apply_is_obeyed() {
    let _shared = shared_machine();
    if !is_root() {
        return;
    }
    let directory = temp_dir();
    // The last step is the one before the confirmation: the settings are changed.
    let script = "
        unshare --net sh -euc '
          before=$(cat /proc/sys/net/ipv4/tcp_fin_timeout)
          WEIR_TEST_TUNE_KILL_AT=3 $WEIR tune apply --host net.ipv4.tcp_fin_timeout=31 -- true || true
          echo changed $(cat /proc/sys/net/ipv4/tcp_fin_timeout)
          stat -c %a-%u /run/weir-root /run/weir-root/tune /run/weir-root/tune/*
          $WEIR tune status
          test $before = $(cat /proc/sys/net/ipv4/tcp_fin_timeout); ls /run/weir-root/tune; echo end'";
    let Some(output) = run_script(directory.path(), &Victim::start(), script) else { return };
    let text = text(&output);
    for part in ["changed 31", "700-0\n700-0\n600-0\n", "restoring the settings of a killed", "\nend"] {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
    assert!(output.status.success() && !text.contains("not obeyed"), "{text}");
}
