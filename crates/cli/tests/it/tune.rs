//! `weir tune` with the real binary: files are judged, and settings of a namespace are applied, restored on
//! demand, after a command, after a time, and after a kill at every step; trials of settings; and the loop of
//! README.md from a load to the proof of a change.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{EVENT_TIMEOUT, Process, WEIR, command, shared_machine, temp_dir, within};

/// Network namespace of a test; removed with everything in it.
struct TestNamespace(String);

impl TestNamespace {
    /// Returns `None` without the permission to make one.
    fn create() -> Option<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let name = format!("weirtune{}-{}", std::process::id(), CREATED.fetch_add(1, Ordering::Relaxed));
        let made = Command::new("ip").args(["netns", "add", &name]).stderr(Stdio::null()).status();
        if made.is_ok_and(|status| status.success()) {
            return Some(Self(name));
        }
        test_needs::skip(test_needs::ROOT, "ip netns add takes root");
        None
    }

    fn read(&self, name: &str) -> String {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let output = Command::new("ip").args(["netns", "exec", &self.0, "cat", &path]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn write(&self, name: &str, value: &str) {
        let line = format!("echo {value} > /proc/sys/{}", name.replace('.', "/"));
        let status = Command::new("ip").args(["netns", "exec", &self.0, "sh", "-c", &line]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Settings that the tests change, in the order of writing.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("net.ipv4.tcp_fin_timeout", "60", "30"),
    ("net.ipv4.ip_local_port_range", "32768 60999", "1024 65023"),
    ("net.ipv4.tcp_tw_reuse", "2", "1"),
];

fn tune(directory: &Path, arguments: &[&str]) -> Output {
    let mut weir = command(WEIR, directory);
    weir.arg("tune").args(arguments).current_dir(directory).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Arguments of an apply of [`SETTINGS`].
fn apply_arguments(namespace: &TestNamespace) -> Vec<String> {
    let fixed = ["tune", "apply", "--journals", "journals", "--netns", &namespace.0].map(str::to_owned);
    let values = SETTINGS.iter().map(|(name, _, new)| format!("{name}={new}"));
    fixed.into_iter().chain(values).collect()
}

fn journals(directory: &Path) -> usize {
    fs::read_dir(directory.join("journals")).map_or(0, |entries| entries.count())
}

fn assert_old_values(namespace: &TestNamespace, context: &str) {
    for (name, old, _) in SETTINGS {
        assert_eq!(namespace.read(name), old, "{context}: {name}");
    }
}

#[test]
fn a_kill_at_every_step_leaves_the_old_values_after_the_next_start() {
    let _shared = shared_machine();
    let Some(namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    let mut killed = 0;
    // Start, journal, three writes, verified, confirmed; one more step is never reached.
    for step in 0..8 {
        let mut weir = command(WEIR, directory.path());
        weir.args(apply_arguments(&namespace)).args(["--", "true"]).current_dir(directory.path());
        weir.env("WEIR_TEST_TUNE_KILL_AT", step.to_string());
        let output = weir.output().unwrap();
        killed += usize::from(output.status.code().is_none());
        if step == 3 {
            assert_ne!(namespace.read(SETTINGS[0].0), SETTINGS[0].1, "written before the kill");
        }
        let status = tune(directory.path(), &["status", "--journals", "journals"]);
        assert_eq!(status.status.code(), Some(0), "{}", text(&status));
        assert_old_values(&namespace, &format!("step {step}"));
        assert_eq!(journals(directory.path()), 0, "step {step}");
    }
    assert_eq!(killed, 7);
}

#[test]
fn an_apply_is_in_force_until_it_is_reverted() {
    let _shared = shared_machine();
    let Some(namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    let mut weir = command(WEIR, directory.path());
    let applied = weir.args(apply_arguments(&namespace)).current_dir(directory.path()).output().unwrap();
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied));
    for (name, _, new) in SETTINGS {
        assert_eq!(namespace.read(name), new);
    }
    let status = tune(directory.path(), &["status", "--journals", "journals", "--json", "-"]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["schema"], "weir.tune-status/1");
    assert_eq!(status["applied"][0]["settings"][0]["state"], "in force");
    // A second apply of the same setting is refused.
    let fixed = ["apply", "--journals", "journals", "--netns", &namespace.0];
    let again = tune(directory.path(), &[&fixed[..], &["net.ipv4.tcp_fin_timeout=40"]].concat());
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again).contains("revert that first"), "{}", text(&again));
    // Somebody else changes one of them.
    namespace.write("net.ipv4.tcp_fin_timeout", "45");
    let reverted = tune(directory.path(), &["revert", "--journals", "journals"]);
    assert_eq!(reverted.status.code(), Some(1), "{}", text(&reverted));
    assert!(text(&reverted).contains("is 45, and weir had set 30"), "{}", text(&reverted));
    assert_eq!(namespace.read("net.ipv4.tcp_fin_timeout"), "45");
    assert_eq!(namespace.read("net.ipv4.tcp_tw_reuse"), "2");
    let forced = tune(directory.path(), &["revert", "--force", "--journals", "journals"]);
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced));
    assert_old_values(&namespace, "forced");
    assert_eq!(journals(directory.path()), 0);
}

#[test]
fn the_end_of_a_command_and_of_a_time_restores() {
    let _shared = shared_machine();
    let Some(namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    let start = |words: &[&str]| {
        let mut weir = command(WEIR, directory.path());
        weir.args(apply_arguments(&namespace)).args(words).current_dir(directory.path());
        weir.stderr(Stdio::null());
        weir
    };
    let output =
        start(&["--", "sh", "-c", "cat /proc/sys/net/ipv4/tcp_fin_timeout; exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stdout).lines().any(|line| line == "30"), "{}", text(&output));
    assert_old_values(&namespace, "exit");
    // Signals reach the command.
    let ready = directory.path().join("ready");
    let script = "trap 'exit 9' TERM; touch ready; while :; do sleep 0.01; done";
    let mut process = Process::spawn(start(&["--", "sh", "-c", script]).stdout(Stdio::null()));
    assert!(within(EVENT_TIMEOUT, || ready.exists()));
    process.signal(Signal::TERM);
    assert_eq!(process.wait(EVENT_TIMEOUT), 9);
    assert_old_values(&namespace, "signal");
    // A time ends by itself, or by a signal.
    let output = start(&["--for", "50ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_old_values(&namespace, "time");
    let mut process = Process::spawn(start(&["--for", "10m"]).stdout(Stdio::null()));
    assert!(within(EVENT_TIMEOUT, || namespace.read("net.ipv4.tcp_tw_reuse") == "1"));
    process.signal(Signal::INT);
    assert_eq!(process.wait(EVENT_TIMEOUT), 0);
    assert_old_values(&namespace, "Ctrl-C");
    // A command that does not exist.
    assert_eq!(start(&["--", "no-such-command"]).output().unwrap().status.code(), Some(1));
    assert_old_values(&namespace, "no command");
    assert_eq!(journals(directory.path()), 0);
}

#[test]
fn a_rejected_value_restores_the_others() {
    let _shared = shared_machine();
    let Some(namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    let fixed = ["apply", "--journals", "journals", "--netns", &namespace.0, "net.ipv4.tcp_fin_timeout=30"];
    let rejected = [
        // Its max is another setting.
        ("net.ipv4.tcp_reordering=400", Some(1), "the kernel rejects this value"),
        // These are found before anything is changed.
        ("net.ipv4.tcp_syn_retries=300", Some(2), "300 is not from 1 to 127"),
        ("net.ipv4.tcp_congestion_control=no-such", Some(2), "no congestion control of this machine"),
        ("net.ipv4.ip_local_port_range=70000 80000", Some(2), "70000 is not from 1 to 65535"),
        ("net.ipv4.ip_local_port_range=900 800", Some(2), "the kernel expects two ports"),
    ];
    for (setting, code, expected) in rejected {
        let output = tune(directory.path(), &[&fixed[..], &[setting]].concat());
        assert_eq!(output.status.code(), code, "{setting}: {}", text(&output));
        assert!(text(&output).contains(expected), "{setting}: {}", text(&output));
        assert_old_values(&namespace, setting);
        assert_eq!(journals(directory.path()), 0);
    }
    let global = tune(directory.path(), &[&fixed[..5], &["net.core.netdev_max_backlog=2000"]].concat());
    assert_eq!(global.status.code(), Some(2), "{}", text(&global));
    assert!(text(&global).contains("global"), "{}", text(&global));
    // Those of a profile are skipped.
    let profile = tune(directory.path(), &[&fixed[..5], &["--dry-run", "sources-001-nginx"]].concat());
    assert_eq!(profile.status.code(), Some(0), "{}", text(&profile));
    for part in ["skipped: net.ipv4.tcp_tw_recycle: removed in 4.12", "skipped: fs.file-max: global"] {
        assert!(text(&profile).contains(part), "{}", text(&profile));
    }
    assert_old_values(&namespace, "dry run");
}

#[test]
fn wrong_flags_are_reported_together_and_the_host_needs_a_flag() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let usage = |arguments: &[&str], parts: &[&str]| {
        let output = tune(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        for part in parts {
            assert!(text(&output).contains(part), "{arguments:?}: {}", text(&output));
        }
    };
    usage(&["apply", "proxy"], &["--host", "--netns NAME", "--dry-run"]);
    usage(&["apply", "--netns", "no-such", "proxi"], &["/run/netns/no-such", "did you mean 'proxy'?"]);
    usage(
        &["apply", "--host", "net.core.somaxcon=1", "boot.idle=poll", "nic.mtu=9000"],
        &["did you mean 'net.core.somaxconn'?", "boot parameter", "nic.mtu@eth0"],
    );
    usage(&["apply", "--host", "--dry-run", "net.core.somaxconn=4k"], &["the unit is connections"]);
    usage(&["apply", "--dry-run", "net.ipv4.tcp_tw_recycle=1"], &["removed in 4.12"]);
    usage(&["apply", "--dry-run"], &["name a profile"]);
    usage(&["check", "--role", "servr", "--file", "no-such.conf"], &["--role", "no-such.conf"]);
    assert_eq!(journals(directory.path()), 0);
}

#[test]
fn files_and_directories_are_judged_with_their_lines() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let sysctls = directory.path().join("sysctl.d");
    fs::create_dir(&sysctls).unwrap();
    fs::write(sysctls.join("10-a.conf"), "net.ipv4.tcp_tw_reuse = 1\nnet.ipv4.tcp_timestamps = 0\n").unwrap();
    fs::write(sysctls.join("20-b.conf"), "net.ipv4.tcp_tw_recycle = 1\nnet.ipv4.tcp_tw_reuse=1\n").unwrap();
    let output = tune(directory.path(), &["check", "--file", "sysctl.d"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    for part in [
        "sysctl.d/10-a.conf:1: obsolete: net.ipv4.tcp_tw_reuse = 1",
        "needs tcp_timestamps, which is off: 50 of 50 connections failed (sysctl.d/10-a.conf:2)",
        "repeated by sysctl.d/20-b.conf:2",
        "sysctl.d/20-b.conf:1: obsolete: net.ipv4.tcp_tw_recycle = 1",
        "removed in 4.12",
    ] {
        assert!(text(&output).contains(part), "{part}: {}", text(&output));
    }
    fs::write(directory.path().join("good.conf"), "net.ipv4.tcp_slow_start_after_idle = 0\n").unwrap();
    let output = tune(directory.path(), &["check", "--json", "-", "--file", "good.conf"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema"], &report["findings"]), (&"weir.tune-check/1".into(), &0.into()));
    assert_eq!(report["lines"][0]["verdict"], "recommend");
}

/// Files of a directory that cannot be read have a line each, and the others are judged.
#[test]
fn one_bad_entry_ruins_no_directory_and_directories_have_their_order() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = directory.path();
    for path in ["r/etc/sysctl.d/x.conf", "r/usr/lib/sysctl.d", "r/etc/security/limits.d"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    let etc = root.join("r/etc/sysctl.d");
    fs::write(etc.join("10-a.conf"), b"# caf\xe9\nvm.swappiness = 2\xff\nnet.ipv4.tcp_sack = 1 # \xe9\n")
        .unwrap();
    std::os::unix::fs::symlink("nowhere", etc.join("20-link.conf")).unwrap();
    std::os::unix::fs::symlink("/dev/null", etc.join("50-vendor.conf")).unwrap();
    fs::write(etc.join("60-late.conf"), "net.ipv4.tcp_dsack = 1\n").unwrap();
    let vendor = root.join("r/usr/lib/sysctl.d");
    fs::write(vendor.join("50-vendor.conf"), "net.ipv4.tcp_sack = 0\n").unwrap();
    fs::write(vendor.join("30-own.conf"), "net.ipv4.tcp_dsack = 0\n").unwrap();
    fs::write(root.join("r/etc/security/limits.conf"), "* soft nofile abc\n").unwrap();
    let check = |files: &[&str]| {
        let files = files.iter().flat_map(|file| ["--file", file]);
        let arguments: Vec<&str> = ["check", "--json", "-"].into_iter().chain(files).collect();
        let output = tune(root, &arguments);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let lines = report["lines"].as_array().unwrap().iter();
        let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let found = |line: &Value| {
            let file = word(line, "file");
            let name = file.rsplit('/').next().unwrap_or_default().to_owned();
            (name, line["line"].as_u64().unwrap(), word(line, "verdict"), line["reasons"].to_string())
        };
        lines.map(found).collect::<Vec<_>>()
    };
    // Both ways of naming them; the order of the flags does not matter for these directories.
    let whole = check(&["r"]);
    let named = check(&["r/usr/lib/sysctl.d", "r/etc/sysctl.d"]);
    assert_eq!(whole[..named.len()], named[..]);
    let short: Vec<(&str, u64, &str)> =
        whole.iter().map(|(file, line, verdict, _)| (file.as_str(), *line, verdict.as_str())).collect();
    assert_eq!(
        short,
        [
            ("50-vendor.conf", 0, "conditional"),
            ("10-a.conf", 2, "invalid"),
            ("10-a.conf", 3, "obsolete"),
            ("20-link.conf", 0, "invalid"),
            ("30-own.conf", 1, "harmful"),
            ("60-late.conf", 1, "obsolete"),
            ("x.conf", 0, "invalid"),
            ("limits.conf", 1, "invalid"),
        ]
    );
    for (at, part) in [
        (0, "not read: r/etc/sysctl.d/50-vendor.conf has the same name"),
        (3, "a link to nowhere, which is missing"),
        (4, "overridden by r/etc/sysctl.d/60-late.conf:1"),
        (6, "a directory"),
        (7, "'abc' is not a number"),
    ] {
        assert!(whole[at].3.contains(part), "{part}: {}", whole[at].3);
    }
}

#[test]
fn an_included_profile_is_read_or_named() {
    let _shared = shared_machine();
    let directory = temp_dir();
    for (profile, text) in [
        ("base", "[main]\ninclude=own\n[sysctl]\nvm.swappiness=10\n"),
        ("own", "[main]\ninclude=base, no-such-profile,${f:x}\n[sysctl]\nnet.ipv4.tcp_sack=1\n"),
    ] {
        fs::create_dir(directory.path().join(profile)).unwrap();
        fs::write(directory.path().join(profile).join("tuned.conf"), text).unwrap();
    }
    let output = tune(directory.path(), &["check", "--file", "own/tuned.conf"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    for part in [
        "base/tuned.conf:4",
        "include = no-such-profile",
        "not read: there is no no-such-profile/tuned.conf",
        "include = ${f:x}",
        "not read again",
    ] {
        assert!(text(&output).contains(part), "{part}: {}", text(&output));
    }
}

#[test]
fn a_line_is_judged_against_the_namespace_that_it_would_change() {
    let _shared = shared_machine();
    let Some(namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    namespace.write("net.ipv4.ip_forward", "1");
    let lines = "net.ipv4.ip_forward = 0\nnet.ipv4.tcp_fin_timeout = 0x1e\nnet.ipv4.tcp_reordering = 400\n";
    fs::write(directory.path().join("a.conf"), lines).unwrap();
    let check = ["netns", "exec", &namespace.0, WEIR, "tune", "check", "--file", "a.conf"];
    let output = Command::new("ip").args(check).current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    for part in [
        "a.conf:1: harmful: net.ipv4.ip_forward = 0",
        "now 1, set by no file of this machine: the line sets 0",
        "a.conf:2: conditional: net.ipv4.tcp_fin_timeout = 0x1e",
        "now 60, the default: the line sets 30",
        "a.conf:3: invalid: net.ipv4.tcp_reordering = 400",
        "tried in a new network namespace",
    ] {
        assert!(text(&output).contains(part), "{part}: {}", text(&output));
    }
    assert_eq!(namespace.read("net.ipv4.tcp_fin_timeout"), "60");
}

#[test]
fn the_machine_is_checked_without_root() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let output = tune(directory.path(), &["check", "--json", "-", "--role", "client"]);
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{}", text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = report["settings"].as_array().unwrap();
    assert!(settings.len() > 170);
    let range = settings.iter().find(|setting| setting["name"] == "net.ipv4.ip_local_port_range").unwrap();
    assert!(range["value"].is_string() && range["wanted"] == "1024 65023");
    let removed = settings.iter().find(|setting| setting["name"] == "net.ipv4.tcp_tw_recycle").unwrap();
    assert_eq!((&removed["action"], &removed["reason"]), (&"absent".into(), &"removed in 4.12".into()));
}

/// Returns the output of `weir tune apply` inside of a namespace, which is the host for it.
fn apply_inside(namespace: &TestNamespace, directory: &Path, arguments: &[&str]) -> Output {
    let fixed = ["netns", "exec", &namespace.0, WEIR, "tune", "apply", "--journals", "journals", "--host"];
    Command::new("ip").args(fixed).args(arguments).current_dir(directory).output().unwrap()
}

#[test]
fn settings_are_persisted_with_their_reasons_and_interfaces_have_their_own() {
    let _shared = shared_machine();
    let Some(namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    let run = |arguments: &[&str]| apply_inside(&namespace, directory.path(), arguments);
    let add = ["-n", &namespace.0, "link", "add", "t0", "type", "veth", "peer", "name", "t1"];
    assert!(Command::new("ip").args(add).status().unwrap().success());
    let settings = ["net.ipv4.tcp_fin_timeout=30", "nic.rps_cpus@t0=1", "nic.tx_queue_len@t0=2000"];
    let output = run(&[&["--persist", "90-weir.conf"], &settings[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let file = fs::read_to_string(directory.path().join("90-weir.conf")).unwrap();
    for part in ["\nnet.ipv4.tcp_fin_timeout = 30\n", "(was 60)", "# Risk: ", "Source: networking/ip-sysctl"]
    {
        assert!(file.contains(part), "{part}: {file}");
    }
    assert!(file.contains("# Not a sysctl: a boot script has to write 1 to /sys/class/net/t0/"), "{file}");
    // The file is accepted by the command that judges such files, and by apply.
    let judged = tune(directory.path(), &["check", "--file", "90-weir.conf"]);
    assert_eq!(judged.status.code(), Some(0), "{}", text(&judged));
    assert!(text(&judged).contains("net.ipv4.tcp_fin_timeout = 30"), "{}", text(&judged));
    let cat = ["netns", "exec", &namespace.0, "cat", "/sys/class/net/t0/tx_queue_len"];
    let queue = || Command::new("ip").args(cat).output().unwrap().stdout;
    assert_eq!(queue(), b"2000\n");
    // A file is never replaced, and a second apply changes nothing.
    let again = run(&["--persist", "90-weir.conf", "net.ipv4.tcp_tw_reuse=1"]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
    assert_eq!(namespace.read("net.ipv4.tcp_tw_reuse"), "2");
    let fixed = ["netns", "exec", &namespace.0, WEIR, "tune", "revert", "--journals", "journals"];
    let reverted = Command::new("ip").args(fixed).current_dir(directory.path()).output().unwrap();
    assert_eq!(reverted.status.code(), Some(0), "{}", text(&reverted));
    assert_eq!(queue(), b"1000\n");
    assert!(!directory.path().join("90-weir.conf").exists());
    // A failed apply leaves no file.
    let failed =
        run(&["--persist", "bad.conf", "net.ipv4.tcp_fin_timeout=30", "nic.tx_queue_len@t0=99999999999"]);
    assert_eq!(failed.status.code(), Some(1), "{}", text(&failed));
    assert!(!directory.path().join("bad.conf").exists());
    assert_eq!(namespace.read("net.ipv4.tcp_fin_timeout"), "60");
    let missing = run(&["nic.rps_cpus@none=1"]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing));
}

#[test]
fn a_trial_sets_the_virtual_links_of_its_namespaces() {
    let _shared = shared_machine();
    let Some(_namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    // The testbed reads each setting back: a trial without them fails.
    fs::write(directory.path().join("tiny.toml"), TRIAL_BASE).unwrap();
    let fixed = ["trial", "--experiment", "tiny.toml", "--blocks", "1", "-d", "100ms", "--output", "out"];
    let run = tune(directory.path(), &[&fixed[..], &["nic.gro=on", "nic.tx_queue_len=77"]].concat());
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    let report = read_trial(directory.path(), "out");
    let settings = report["settings"].as_array().unwrap();
    let found: Vec<_> =
        settings.iter().map(|setting| (&setting["name"], &setting["value"], &setting["default"])).collect();
    assert_eq!(
        found,
        [
            (&"nic.gro".into(), &"1".into(), &"0".into()),
            (&"nic.tx_queue_len".into(), &"77".into(), &"1000".into())
        ]
    );
    let refused = ["trial", "--experiment", "tiny.toml", "nic.rx_ring=4096", "nic.rx_usecs=8"];
    let refused = tune(directory.path(), &refused);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert_eq!(text(&refused).matches("not on a virtual link").count(), 2, "{}", text(&refused));
    let rejected = tune(directory.path(), &["trial", "--experiment", "tiny.toml", "nic.qdisc=no_such"]);
    assert_eq!(rejected.status.code(), Some(2), "{}", text(&rejected));
    assert!(text(&rejected).contains("nic.qdisc: tc qdisc replace"), "{}", text(&rejected));
}

/// Experiment of a trial in namespaces. Nothing is discarded: the judgement is not the subject here.
const TRIAL_BASE: &str = r#"
name = "tiny"
[scenario]
network = "pair"
[subject]
command = "{weir} lab faulty-server --listen {subject}:8000 --threads 1"
ready = "{subject}:8000"
[load]
flags = "-t 1 -c 2 -r 1 -d {duration} http://{subject}:8000/"
warm-up = "0s"
[discard]
steal = "100%"
foreign-cpus = 1000
wake-up-ratio = 100000
generator-lag = "10s"
errors = "100%"
throttled = "100%"
clock-step = "1h"
"#;

fn read_trial(directory: &Path, name: &str) -> Value {
    let bytes = fs::read(directory.join(name).join("tune-trial.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_trial_ends_with_a_profile_that_apply_takes() {
    let _shared = shared_machine();
    let Some(namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    fs::write(directory.path().join("tiny.toml"), TRIAL_BASE).unwrap();
    fs::write(directory.path().join("some.conf"), "net.ipv4.tcp_fin_timeout = 30\n# a comment\n").unwrap();
    let fixed = ["trial", "--experiment", "tiny.toml"];
    let checked = tune(directory.path(), &[&fixed[..], &["--check", "sources-002-haproxy"]].concat());
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    for part in
        ["without-tcp-tw-reuse", "only-tcp-fin-timeout", "not measured: net.core.message_cost: global"]
    {
        assert!(text(&checked).contains(part), "{part}: {}", text(&checked));
    }
    let short = ["--blocks", "1", "-d", "100ms", "--output", "out", "some.conf", "net.ipv4.tcp_sack=1"];
    let run = tune(directory.path(), &[&fixed[..], &short].concat());
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    let report = read_trial(directory.path(), "out");
    assert_eq!((&report["schema"], &report["is_partial"]), (&"weir.tune-trial/1".into(), &false.into()));
    let setting = &report["settings"][0];
    assert_eq!((&setting["name"], &setting["default"]), (&"net.ipv4.tcp_fin_timeout".into(), &"60".into()));
    // One block decides nothing.
    assert_eq!(setting["contribution"], "undecided");
    assert_eq!(report["design"]["skipped"][0][0], "net.ipv4.tcp_sack");
    let page = fs::read_to_string(directory.path().join("out/report.html")).unwrap();
    assert!(page.contains("None of 1 setting earns its place"), "the report has the conclusion");
    let minimal = fs::read_to_string(directory.path().join("out/minimal.conf")).unwrap();
    assert!(minimal.contains("# No setting earns its place."), "{minimal}");
    // A profile with a setting is one that apply takes.
    fs::write(directory.path().join("minimal.conf"), format!("{minimal}net.ipv4.tcp_fin_timeout = 30\n"))
        .unwrap();
    let dry = ["apply", "--dry-run", "--netns", &namespace.0, "minimal.conf"];
    let applied = tune(directory.path(), &dry);
    assert!(text(&applied).contains("net.ipv4.tcp_fin_timeout: 60 → 30"), "{}", text(&applied));
    // It is an ordinary experiment, and a finished one.
    let resumed = tune(directory.path(), &["trial", "--resume", "out"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed));
}

#[test]
fn a_stopped_trial_is_partial_and_a_killed_one_is_undone() {
    let _shared = shared_machine();
    let Some(_namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    fs::write(directory.path().join("tiny.toml"), TRIAL_BASE).unwrap();
    let start = |output: &str, settings: &[&str]| {
        let mut weir = command(WEIR, directory.path());
        weir.args(["tune", "trial", "--experiment", "tiny.toml", "-d", "10s", "--output", output]);
        let messages = fs::File::create(directory.path().join(format!("{output}.txt"))).unwrap();
        weir.args(settings).current_dir(directory.path()).stdout(Stdio::null()).stderr(messages);
        Process::spawn(&mut weir)
    };
    let messages = |output: &str| fs::read_to_string(directory.path().join(format!("{output}.txt"))).unwrap();
    let mut process = start("stopped", &["net.ipv4.tcp_fin_timeout=30"]);
    assert!(within(EVENT_TIMEOUT, || directory.path().join("stopped/tune-trial.json").exists()));
    process.signal(Signal::INT);
    assert_eq!(process.wait(EVENT_TIMEOUT), 4, "{}", messages("stopped"));
    let report = read_trial(directory.path(), "stopped");
    assert_eq!(report["is_partial"], true, "{report}");
    let checked = tune(directory.path(), &["trial", "--resume", "stopped", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    // A setting of the complete machine needs a flag.
    let path = "/proc/sys/net/core/message_burst";
    let value = || fs::read_to_string(path).unwrap().trim().to_owned();
    let old = value();
    let refused = ["trial", "--experiment", "tiny.toml", "net.core.message_burst=11"];
    let refused = tune(directory.path(), &refused);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("--allow-global"), "{}", text(&refused));
    let settings =
        ["--allow-global", "--seed", "1", "net.core.message_burst=11", "net.ipv4.tcp_fin_timeout=30"];
    let mut process = start("killed", &settings);
    // The first arms do not have it; kills as soon as one does, or after the first trial of those without.
    assert!(within(EVENT_TIMEOUT, || directory.path().join("killed/tune-trial.json").exists()));
    let is_changed = within(std::time::Duration::from_millis(700), || value() == "11");
    process.signal(Signal::KILL);
    process.wait(EVENT_TIMEOUT);
    let status = tune(directory.path(), &["status", "--journals", "journals"]);
    assert_eq!(status.status.code(), Some(0), "{}", text(&status));
    assert_eq!(value(), old, "changed before the kill: {is_changed}");
}

#[test]
fn wrong_flags_of_a_trial_are_reported_together() {
    let _shared = shared_machine();
    let directory = temp_dir();
    fs::write(directory.path().join("arms.toml"), format!("{TRIAL_BASE}\n[arms.a]\n")).unwrap();
    let usage = |arguments: &[&str], parts: &[&str]| {
        let output = tune(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output));
        for part in parts {
            assert!(text(&output).contains(part), "{part}: {}", text(&output));
        }
    };
    usage(
        &["trial", "--at", "server", "proxi", "--method", "all"],
        &["--at", "--method", "'proxy'", "--experiment"],
    );
    usage(&["trial", "--experiment", "arms.toml", "proxy"], &["arms of its own"]);
    usage(&["trial", "--experiment", "no-such.toml", "proxy"], &["no-such.toml"]);
    usage(&["trial", "--resume", "no-such"], &["--resume", "weir tune trial makes"]);
    fs::write(directory.path().join("bad.conf"), "net.ipv4.tcp_fin_timeout\n").unwrap();
    usage(&["apply", "--dry-run", "bad.conf"], &["bad.conf:1"]);
}

/// Runs the commands of README.md's loop, shorter, in a directory that has the example.
#[test]
fn the_loop_of_the_readme_goes_from_a_load_to_a_proven_change() {
    let _shared = shared_machine();
    let Some(_namespace) = TestNamespace::create() else { return };
    let directory = temp_dir();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::copy(root.join("docs/examples/experiments/backlog.toml"), directory.path().join("backlog.toml"))
        .unwrap();
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let section = readme.split("## From a load to a proven change").nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let lines: Vec<&str> = block.lines().map(|line| line.split("  #").next().unwrap().trim()).collect();
    assert_eq!(lines.len(), 4, "{block}");
    let run = |line: &str| {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let mut weir = command(WEIR, directory.path());
        weir.args(&words[1..]).current_dir(directory.path()).output().unwrap()
    };
    let example = directory.path().join("backlog.toml");
    let replace_flags = |old: &str, new: &str| {
        let text = fs::read_to_string(&example).unwrap();
        assert!(text.contains(old), "{text}");
        fs::write(&example, text.replace(old, new)).unwrap();
    };
    replace_flags(" --drain 10s", " --drain 0s --no-baseline");
    // A disturbed load is not valid, and has its diagnosis nevertheless.
    run(&lines[0].replace("-d 2s", "-d 1s"));
    let diagnosed = run(lines[1]);
    let advice = "weir tune apply --host net.core.somaxconn=16384";
    for part in ["accept_backlog_overflow", advice] {
        // The output breaks lines.
        let words = text(&diagnosed).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(part), "{part}: {}", text(&diagnosed));
    }
    let short = "--blocks 1 -d 200ms --discard foreign-cpus=1000 --discard steal=100% --discard errors=100% --discard \
                 wake-up-ratio=100000 --discard throttled=100% --discard clock-step=1h";
    // One short block proves nothing, so its connections open in a ramp, which does not wait for SYN retries.
    replace_flags(" --no-baseline", " --no-baseline --no-watch -s 50ms");
    let trial = run(&lines[2].replace("--blocks 6 -d 2s", short));
    assert_eq!(trial.status.code(), Some(0), "{}", text(&trial));
    let report = read_trial(directory.path(), "proof");
    assert_eq!(
        (&report["metric"], &report["settings"][0]["default"]),
        (&"responses_per_s".into(), &"8".into())
    );
    let minimal = directory.path().join("proof/minimal.conf");
    // One block proves nothing, so the profile has no setting yet.
    let unproven = fs::read_to_string(&minimal).unwrap();
    fs::write(&minimal, format!("{unproven}net.core.somaxconn = 16384\n")).unwrap();
    let applied = run(lines[3]);
    assert_eq!(applied.status.code(), Some(0), "{}", text(&applied));
    assert!(text(&applied).contains("net.core.somaxconn"), "{}", text(&applied));
}

/// A file of sysctl(8) that systemd does not apply at boot says so, unless a link in sysctl.d names it.
#[test]
fn a_file_that_no_boot_reads_is_named() {
    let _shared = shared_machine();
    let directory = temp_dir();
    let root = directory.path();
    for path in ["r/etc/sysctl.d", "r/usr/lib/systemd"] {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    fs::write(root.join("r/etc/sysctl.conf"), "net.ipv4.tcp_dsack = 1\n").unwrap();
    let reads = |part: &str| text(&tune(root, &["check", "--file", "r"])).replace('\n', " ").contains(part);
    let part = "does not read this file at boot";
    assert!(!reads(part), "a system without systemd");
    fs::write(root.join("r/usr/lib/systemd/systemd-sysctl"), "").unwrap();
    assert!(reads(part));
    std::os::unix::fs::symlink("../sysctl.conf", root.join("r/etc/sysctl.d/99-sysctl.conf")).unwrap();
    assert!(!reads(part), "linked");
}
