//! Tests that watch processes of this machine for a moment.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

fn clock_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn burner() -> Child {
    let mut child = Command::new("sh")
        .args(["-c", "echo ready; while :; do :; done"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    child
}

fn spec(roles: &[(&str, i32)]) -> MonitorSpec {
    let roles = roles.iter().map(|(role, pid)| RoleSpec { role: (*role).to_owned(), pids: vec![*pid] });
    MonitorSpec {
        roles: roles.collect(),
        wakeup_probes: false,
        discover_origins: false,
        ..MonitorSpec::default()
    }
}

#[test]
fn the_first_sample_is_none_and_the_second_is_a_delta() {
    let mut child = burner();
    let own = std::process::id() as i32;
    let spec = spec(&[(GENERATOR, own), (SUBJECT, child.id() as i32)]);
    let mut observer = Observer::new(&spec, clock_ns);
    let start_ns = clock_ns();
    assert_eq!(observer.sample(start_ns), None);
    std::thread::sleep(std::time::Duration::from_millis(200));
    let sample = observer.sample(clock_ns()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sample.roles.len(), 2);
    assert_eq!(sample.roles[1].processes, 1);
    assert!(sample.length_s > 0.1 && sample.time_s >= sample.length_s);
    assert!(!sample.cpus.is_empty() && sample.foreign_cpus.is_some());
    assert_eq!(sample.namespaces[0].roles, [GENERATOR, SUBJECT]);
    let observed = observer.describe();
    assert!(observed.cpus > 0 && observed.memory_bytes > 0);
    assert!(observed.settings.contains_key("net.core.somaxconn"));
    // The process has ended, which is no error.
    let sample = observer.sample(clock_ns()).unwrap();
    assert_eq!(sample.roles[1].processes, 0);
}

#[test]
fn a_missing_process_is_reported() {
    let mut observer = Observer::new(&spec(&[(SUBJECT, i32::MAX)]), clock_ns);
    observer.sample(1);
    let missing = observer.not_observable();
    assert!(missing.iter().any(|missing| missing.reason.contains("/proc/2147483647/stat")), "{missing:?}");
}

#[test]
fn both_ends_of_a_port_are_sampled() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _server = listener.accept().unwrap();
    client.write_all(b"not read").unwrap();
    let own = std::process::id() as i32;
    let mut spec = spec(&[(SUBJECT, own)]);
    spec.ports = vec![PortRoles { port, served_by: Some(SUBJECT.to_owned()), used_by: None }];
    let mut observer = Observer::new(&spec, clock_ns);
    let mut snapshot = observer.snapshot_queues(clock_ns());
    // The kernel may be a moment behind.
    for _ in 0..3000 {
        if snapshot.ends.iter().any(|end| end.unread_bytes > 0) {
            break;
        }
        if snapshot.listeners.is_empty() && !observer.not_observable().is_empty() {
            return test_needs::skip(test_needs::KERNEL, format!("{:?}", observer.not_observable()));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        snapshot = observer.snapshot_queues(clock_ns());
    }
    assert_eq!(snapshot.listeners[0].port, port);
    let server = snapshot.ends.iter().find(|end| end.end == ConnectionEnd::Server).unwrap();
    assert_eq!((server.with_unread, server.unread_bytes), (1, 8));
    assert!(snapshot.ends.iter().any(|end| end.end == ConnectionEnd::Client));
}

#[test]
fn of_two_namespaces_the_one_with_more_connections_counts() {
    let end = |port, end, established| EndQueues {
        port,
        end,
        states: [("established".to_owned(), established)].into(),
        ..EndQueues::default()
    };
    let mut ends = vec![
        end(80, ConnectionEnd::Server, 1),
        end(80, ConnectionEnd::Client, 3),
        end(80, ConnectionEnd::Server, 5),
    ];
    keep_fuller_ends(&mut ends);
    assert_eq!(ends, [end(80, ConnectionEnd::Client, 3), end(80, ConnectionEnd::Server, 5)]);
}

#[test]
fn a_finished_monitor_returns_its_samples_and_cost() {
    let own = std::process::id() as i32;
    let spec = MonitorSpec {
        sample_ns: 50_000_000,
        queue_ns: 20_000_000,
        wakeup_probes: true,
        ..spec(&[(SUBJECT, own)])
    };
    let monitor = Monitor::start(spec, clock_ns);
    let mut latest = monitor.latest().unwrap();
    while latest.samples.len() < 3 || latest.queues.len() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        latest = monitor.latest().unwrap();
    }
    assert!(latest.samples[0].time_s > 0.0);
    let zero_ns = clock_ns();
    let observed = monitor.finish(zero_ns);
    assert!(observed.samples.len() >= 3 && observed.queues.len() >= 3);
    assert!(observed.samples[0].time_s < 0.0);
    assert!(observed.cost_cpus > 0.0);
    assert_eq!(observed.roles[0].name, SUBJECT);
}

/// Starts a process that connects to these ports, sends a line on the first, and waits.
fn client_of(ports: &[u16]) -> Option<Child> {
    let opens: Vec<String> = (3..)
        .zip(ports)
        .map(|(descriptor, port)| format!("exec {descriptor}<>/dev/tcp/127.0.0.1/{port}"))
        .collect();
    let script = format!("{}; echo request >&3; echo ready; read line", opens.join("; "));
    let child =
        Command::new("bash").args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        test_needs::skip("bash", "there is no bash");
        return None;
    };
    let mut line = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    Some(child)
}

#[test]
fn every_origin_is_found_and_the_request_is_at_one_of_them() {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    let Some(mut subject) = client_of(&ports) else { return };
    let mut servers = listeners.each_ref().map(|listener| listener.accept().unwrap().0);
    let mut request = [0; 8];
    servers[0].read_exact(&mut request).unwrap();
    let spec = MonitorSpec { discover_origins: true, ..spec(&[(SUBJECT, subject.id() as i32)]) };
    let mut observer = Observer::new(&spec, clock_ns);
    observer.sample(clock_ns());
    let observed = observer.describe();
    if observed.origins.is_empty() {
        subject.kill().unwrap();
        subject.wait().unwrap();
        return test_needs::skip(test_needs::KERNEL, format!("{:?}", observed.not_observable));
    }
    let ports_found: BTreeSet<u16> = observed.origins.iter().map(|origin| origin.port).collect();
    assert_eq!(ports_found, ports.into_iter().collect(), "{:?}", observed.origins);
    let own = std::process::id() as i32;
    for origin in &observed.origins {
        assert_eq!((origin.depth, origin.used_by.as_str()), (1, SUBJECT));
        // A child that another test forks holds the sockets until its exec.
        let is_forked_child = |pid: &i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            // It may have ended meanwhile.
            stat.is_err() || stat.is_ok_and(|text| crate::process::parse_stat(&text).unwrap().parent == own)
        };
        let others: Vec<i32> = origin.pids.iter().copied().filter(|pid| *pid != own).collect();
        assert!(origin.pids.contains(&own) && others.iter().all(is_forked_child), "{:?}", origin.pids);
    }
    assert_eq!(observed.ports_used_by(SUBJECT), ports_found.into_iter().collect::<Vec<u16>>());
    let snapshot = observer.snapshot_queues(clock_ns());
    let observed = observer.describe();
    let waits = observed.in_flight(&snapshot);
    assert_eq!((waits.at_origins, waits.origin_responses_unread), (1, 0), "{snapshot:?}");
    let used = observed.client_ends(SUBJECT, &snapshot);
    let established = used.count_in_state("established");
    assert_eq!((established, used.awaiting_response, used.local_ports_max), (2, 1, Some(1)));
    // The reply has arrived, and is unread.
    servers[0].write_all(b"reply").unwrap();
    let mut waits = observed.in_flight(&observer.snapshot_queues(clock_ns()));
    for _ in 0..3000 {
        if waits.origin_responses_unread == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        waits = observed.in_flight(&observer.snapshot_queues(clock_ns()));
    }
    assert_eq!((waits.at_origins, waits.origin_responses_unread), (0, 1));
    subject.kill().unwrap();
    subject.wait().unwrap();
}

#[test]
fn a_unix_socket_of_the_subject_is_watched() {
    let path = std::env::temp_dir().join(format!("weir-observe-{}.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let name = path.display().to_string();
    let _waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let own = std::process::id() as i32;
    let spec = MonitorSpec { discover_origins: true, ..spec(&[(SUBJECT, own)]) };
    let mut observer = Observer::new(&spec, clock_ns);
    observer.sample(clock_ns());
    std::fs::remove_file(&path).unwrap();
    let snapshot = observer.snapshot_queues(clock_ns());
    let observed = observer.describe();
    let Some(unix) = snapshot.unix.iter().find(|socket| socket.path == name) else {
        assert!(!observed.not_observable.is_empty());
        return test_needs::skip(test_needs::KERNEL, format!("{:?}", observed.not_observable));
    };
    assert_eq!((unix.sockets, unix.waiting), (1, 1));
    let used = observed.unix.iter().find(|socket| socket.path == name).unwrap();
    assert_eq!(used.served_by.as_deref(), Some(SUBJECT));
    drop(listener);
}
