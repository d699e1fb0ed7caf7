//! Tests with real kits, as root, and of the checks before that.

use std::io::{BufRead as _, BufReader};

use host::journal::start_ticks;

use super::*;
use crate::scenario::plan::{CpuQuota, Delay, Network};

fn context(directory: &Path) -> TestbedContext {
    // The tests of this crate have no shared clock, and a file's time would be no better.
    fn clock() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
    TestbedContext { journals: directory.to_owned(), allow_global: false, clock }
}

/// Sets up a testbed. On a machine that does not permit it, prints the reason and returns `None`.
fn create_testbed(scenario: &Scenario, directory: &Path) -> Option<Testbed> {
    match Testbed::create(scenario, &context(directory)) {
        Ok(testbed) => Some(testbed),
        Err(error) => {
            let reason = error.to_string();
            assert!(is_not_permitted(&reason), "{reason}");
            test_needs::skip(test_needs::ROOT, reason);
            None
        }
    }
}

/// Returns whether the machine does not permit a testbed: a permission or a program is missing, as in a
/// container.
fn is_not_permitted(message: &str) -> bool {
    let reasons = ["install", "Operation not permitted", "Read-only file system", "(/dev/net/tun): No such"];
    !is_root() || reasons.iter().any(|reason| message.contains(reason))
}

#[test]
fn a_pair_with_a_delay_is_created_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let delay = Delay { round_trip_ns: 20_000_000, jitter_ns: 0, at: Node::Subject };
    let scenario = Scenario { delay: Some(delay), ..Scenario::default() };
    let Some(mut testbed) = create_testbed(&scenario, directory.path()) else { return };
    let clock = context(directory.path()).clock;
    let address = format!("{}:8000", testbed.address(Node::Subject));
    let listen = || host::sandbox::listen::listen_with_backlog(address.parse().unwrap(), 8);
    let listener = testbed.run_in_namespace(Node::Subject, listen).unwrap().unwrap();
    let connect = || {
        let start_ns = clock();
        std::net::TcpStream::connect(&address).map(|_| clock() - start_ns)
    };
    let took_ns = testbed.run_in_namespace(Node::Client, connect).unwrap().unwrap();
    assert!(took_ns >= delay.round_trip_ns, "{took_ns}");
    drop(listener);
    let mut command = Command::new("sleep");
    let number = testbed.spawn(Node::Subject, command.arg("60")).unwrap();
    let pid = testbed.child(number).unwrap().id() as i32;
    let there = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_ne!(there, fs::read_link("/proc/self/ns/net").unwrap());
    let (namespace, files) = (testbed.namespace(Node::Client).unwrap(), testbed.directory().to_owned());
    assert!(namespace.exists() && files.exists());
    let groups: Vec<PathBuf> = testbed.cgroups.values().flatten().cloned().collect();
    assert_eq!(testbed.undo(), [""; 0]);
    assert!(!namespace.exists() && !files.exists() && start_ticks(pid).is_none());
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn settings_of_virtual_links_are_of_their_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = Scenario { network: Network::Chain, ..Scenario::default() };
    let wanted = [("gro", "1"), ("tso", "0"), ("tx_queue_len", "77"), ("qdisc", "pfifo"), ("rps_cpus", "1")];
    let settings = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    scenario.interface_settings.insert(Node::Subject, settings.into_iter().collect());
    let host = || {
        let read = |name| read_choice(host::tuning::interface_file(name, "tx_queue_len"));
        host::tuning::interfaces().iter().map(|name| (name.clone(), read(name))).collect::<Vec<_>>()
    };
    let before = host();
    let Some(testbed) = create_testbed(&scenario, directory.path()) else { return };
    let values = |node: Node, interface: &'static str| {
        let read = || {
            wanted.map(|(name, _)| {
                let setting = host::sandbox::link_settings::find_link_setting(name).unwrap();
                setting.read(interface).unwrap()
            })
        };
        namespace::run_with_sysfs_in_netns(&testbed.namespace(node).unwrap(), read).unwrap()
    };
    for interface in ["to-client", "to-origin"] {
        assert_eq!(values(Node::Subject, interface), wanted.map(|(_, value)| value), "{interface}");
    }
    // The other end keeps the values of the kernel.
    let [_, tso, queue, qdisc, steering] = values(Node::Client, "to-subject");
    assert_eq!([tso, queue, qdisc, steering], ["1", "1000", "noqueue", "0"]);
    assert_eq!(host(), before, "the host has other interfaces, or other values");
    let path = testbed.namespace(Node::Subject).unwrap();
    assert_eq!(testbed.undo(), [""; 0]);
    assert!(!path.exists());
    assert_eq!(host(), before);
}

#[test]
fn a_failed_creation_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::default();
    let sysctls = [("ipv4.no_such".to_owned(), "1".to_owned())];
    scenario.sysctls.insert(Node::Client, sysctls.into_iter().collect());
    let reason = Testbed::create(&scenario, &context(directory.path())).unwrap_err().to_string();
    assert!(reason.contains("ipv4/no_such") || is_not_permitted(&reason), "{reason}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn settings_of_the_machine_need_permission() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = Scenario { conntrack_max: Some(50), ..Scenario::default() };
    let reason = Testbed::create(&scenario, &context(directory.path())).unwrap_err().to_string();
    assert!(reason.contains("--allow-global"), "{reason}");
}

#[test]
fn loopback_needs_no_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = Scenario { network: Network::Loopback, ..Scenario::default() };
    let Some(testbed) = create_testbed(&scenario, directory.path()) else { return };
    assert_eq!((testbed.namespace(Node::Subject), testbed.address(Node::Subject)), (None, "127.0.0.1"));
    // With another journal directory it is not swept either while its owner lives.
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(!sweep(elsewhere.path()).undone_runs.contains(&testbed.run));
    assert!(testbed.directory().exists());
}

#[test]
fn without_cgroups_only_limits_fail() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = Scenario { network: Network::Loopback, ..Scenario::default() };
    let Some(mut testbed) = create_testbed(&scenario, directory.path()) else { return };
    // No directory can be made there.
    let nowhere = CgroupHierarchies {
        unified: Some("/sys".into()),
        unified_controllers: vec!["cpu".to_owned()],
        ..CgroupHierarchies::default()
    };
    testbed.cgroups.clear();
    testbed.journal.allow_cgroups_in(Path::new("/sys"));
    testbed.create_cgroups(&nowhere).unwrap();
    assert!(testbed.cgroups.is_empty());
    let quota = CpuQuota { cpus: 0.5, period_ns: 100_000_000 };
    testbed.scenario.cpu_quotas.insert(Node::Subject, quota);
    assert!(testbed.create_cgroups(&nowhere).unwrap_err().to_string().contains("/sys/weir-"));
    assert_eq!(testbed.undo(), [""; 0]);
}

#[test]
fn without_cgroups_child_processes_end_with_their_program() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = Scenario { network: Network::Loopback, ..Scenario::default() };
    let Some(mut testbed) = create_testbed(&scenario, directory.path()) else { return };
    testbed.cgroups.clear();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
    let number = testbed.spawn(Node::Subject, &mut command).unwrap();
    let mut line = String::new();
    let stdout = testbed.child(number).unwrap().stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let pid = line.trim().parse().unwrap();
    assert!(start_ticks(pid).is_some());
    assert_eq!(testbed.undo(), [""; 0]);
    let is_gone = || start_ticks(pid).is_none();
    let wait = || std::thread::sleep(std::time::Duration::from_millis(10));
    assert!((0..3000).any(|_| is_gone() || (wait(), false).1), "{pid}");
}
