//! Kits that are really made, as root; and what is refused before.

use std::io::{BufRead as _, BufReader};

use super::*;
use crate::scenario::plan::{CpuQuota, Delay, Network};

fn context(folder: &Path) -> Context {
    // The tests of this crate have no clock of their own; a file's time would do no better.
    fn clock() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
    Context { journals: folder.to_owned(), allow_global: false, clock }
}

/// A kit, or `None` with the reason printed where this machine does not let us.
fn make(scenario: &Scenario, folder: &Path) -> Option<Kit> {
    match Kit::make(scenario, &context(folder)) {
        Ok(kit) => Some(kit),
        Err(why) => {
            assert!(is_not_let(&why), "{why}");
            println!("skipped: {why}");
            None
        }
    }
}

/// Whether a kit was not made because this machine does not let us: a missing right or program, or a container
/// without them.
fn is_not_let(why: &str) -> bool {
    let reasons =
        ["install", "Operation not permitted", "Read-only file system", "(/dev/net/tun): No such"];
    !is_root() || reasons.iter().any(|reason| why.contains(reason))
}

#[test]
fn a_pair_with_a_delay_is_made_and_goes_again() {
    let folder = tempfile::tempdir().unwrap();
    let delay = Delay { round_trip_ns: 20_000_000, jitter_ns: 0, at: Node::Subject };
    let scenario = Scenario { delay: Some(delay), ..Scenario::default() };
    let Some(mut kit) = make(&scenario, folder.path()) else { return };
    let clock = context(folder.path()).clock;
    let address = format!("{}:8000", kit.address(Node::Subject));
    let listen = || host::setup::listen::listen_with(address.parse().unwrap(), 8);
    let listener = kit.within(Node::Subject, listen).unwrap().unwrap();
    let connect = || {
        let start_ns = clock();
        std::net::TcpStream::connect(&address).map(|_| clock() - start_ns)
    };
    let took_ns = kit.within(Node::Client, connect).unwrap().unwrap();
    assert!(took_ns >= delay.round_trip_ns, "{took_ns}");
    drop(listener);
    let mut command = Command::new("sleep");
    let number = kit.spawn(Node::Subject, command.arg("60")).unwrap();
    let pid = kit.child(number).unwrap().id() as i32;
    let there = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_ne!(there, fs::read_link("/proc/self/ns/net").unwrap());
    let (namespace, files) = (kit.namespace(Node::Client).unwrap(), kit.folder().to_owned());
    assert!(namespace.exists() && files.exists());
    let groups: Vec<PathBuf> = kit.groups.values().flatten().cloned().collect();
    assert_eq!(kit.undo(), [""; 0]);
    assert!(!namespace.exists() && !files.exists() && start_ticks(pid).is_none());
    assert!(groups.iter().all(|group| !group.exists()), "{groups:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_made_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut scenario = Scenario::default();
    let sysctls = [("ipv4.no_such".to_owned(), "1".to_owned())];
    scenario.sysctls.insert(Node::Client, sysctls.into_iter().collect());
    let why = Kit::make(&scenario, &context(folder.path())).unwrap_err();
    assert!(why.contains("ipv4/no_such") || is_not_let(&why), "{why}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn settings_of_the_machine_need_leave() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Scenario { conntrack_max: Some(50), ..Scenario::default() };
    let why = Kit::make(&scenario, &context(folder.path())).unwrap_err();
    assert!(why.contains("--allow-global"), "{why}");
}

#[test]
fn loopback_needs_no_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Scenario { network: Network::Loopback, ..Scenario::default() };
    let Some(kit) = make(&scenario, folder.path()) else { return };
    assert_eq!((kit.namespace(Node::Subject), kit.address(Node::Subject)), (None, "127.0.0.1"));
    // Without its journal too, it is not swept away while its owner lives.
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(!sweep(elsewhere.path()).runs.contains(&kit.run));
    assert!(kit.folder().exists());
}

#[test]
fn where_groups_cannot_be_made_only_bounds_need_them() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Scenario { network: Network::Loopback, ..Scenario::default() };
    let Some(mut kit) = make(&scenario, folder.path()) else { return };
    // Nobody makes a folder there.
    let nowhere = Hierarchies {
        unified: Some("/sys".into()),
        unified_controllers: vec!["cpu".to_owned()],
        ..Hierarchies::default()
    };
    kit.groups.clear();
    assert_eq!((kit.make_groups(&nowhere), kit.groups.len()), (Ok(()), 0));
    let quota = CpuQuota { cpus: 0.5, period_ns: 100_000_000 };
    kit.scenario.cpu_quotas.insert(Node::Subject, quota);
    assert!(kit.make_groups(&nowhere).unwrap_err().contains("/sys/weir-"));
    assert_eq!(kit.undo(), [""; 0]);
}

#[test]
fn without_groups_what_a_program_started_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Scenario { network: Network::Loopback, ..Scenario::default() };
    let Some(mut kit) = make(&scenario, folder.path()) else { return };
    kit.groups.clear();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
    let number = kit.spawn(Node::Subject, &mut command).unwrap();
    let mut line = String::new();
    let said = kit.child(number).unwrap().stdout.take().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    let pid = line.trim().parse().unwrap();
    assert!(start_ticks(pid).is_some());
    assert_eq!(kit.undo(), [""; 0]);
    let is_gone = || start_ticks(pid).is_none();
    let wait = || std::thread::sleep(std::time::Duration::from_millis(10));
    assert!((0..3000).any(|_| is_gone() || (wait(), false).1), "{pid}");
}
