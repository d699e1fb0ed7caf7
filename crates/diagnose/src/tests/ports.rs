//! Search for local ports: connections to an origin that leave their ports in TIME_WAIT.

use super::*;
use crate::signals as s;
use crate::signals::Signal;
use record::observed::OriginAddress;

const RANGE: &str = "net.ipv4.ip_local_port_range";
const REUSE: &str = "net.ipv4.tcp_tw_reuse";

fn value(signal: &Signal, run: &Run) -> Option<f64> {
    (signal.read)(&RunView::new(run))
}

fn set(run: &mut Run, name: &str, value: &str) {
    run.observed[0].settings.insert(name.to_owned(), value.to_owned());
}

/// Returns a proxy on its own CPU that opens 300 connections per second to one origin, with 20,000 of
/// 28,232 ports in TIME_WAIT, and spends all its time in the kernel.
pub(super) fn connecting_run() -> Run {
    let mut run = run(60, 200 * MS);
    set_subject_cpus(&mut run, 0.01, 0.97, 1);
    run.observed[0].roles[1].cpus_allowed = 1;
    set(&mut run, RANGE, "32768\t60999");
    set(&mut run, REUSE, "2");
    run.observed[0].origins = vec![OriginAddress {
        address: "10.0.0.3:9000".to_owned(),
        port: 9_000,
        used_by: "subject".to_owned(),
        ..OriginAddress::default()
    }];
    let used_by = Some("subject".to_owned());
    run.observed[0].ports.push(PortRoles { port: 9_000, served_by: None, used_by });
    for snapshot in &mut run.observed[0].queues {
        snapshot.ends.push(EndQueues {
            port: 9_000,
            end: ConnectionEnd::Client,
            states: [("established".to_owned(), 20), ("time-wait".to_owned(), 20_000)].into(),
            local_ports_max: Some(20_020),
            destinations: Some(1),
            ..EndQueues::default()
        });
    }
    change_samples(&mut run, |sample| {
        let space = |role: &str| NamespaceUse { roles: vec![role.to_owned()], ..NamespaceUse::default() };
        sample.namespaces = vec![space("subject"), space("generator")];
    });
    set_counter(&mut run, "Tcp.ActiveOpens", 300.0);
    run
}

fn set_functions(run: &mut Run, search: f64) {
    let function = |name: &str, self_fraction| FunctionUse {
        role: "subject".to_owned(),
        function: name.to_owned(),
        module: "[kernel]".to_owned(),
        self_fraction,
        ..FunctionUse::default()
    };
    run.observed[0].functions =
        vec![function("__inet_hash_connect", search), function("tcp_v4_rcv", 0.9 - search)];
}

#[test]
fn a_connection_per_request_to_one_origin_searches_for_ports() {
    let mut run = connecting_run();
    assert_first(&run, "port_search_bound");
    assert_eq!(value(&s::PORTS_TRIED, &run).unwrap().round(), (300.0_f64 * 14_116.0 / 0.98).round());
    let alternatives = diagnose(&run).alternatives;
    assert!(
        alternatives.iter().any(|alternative| alternative.verdict == "kernel_cpu_bound"),
        "{alternatives:#?}"
    );
    set_functions(&mut run, 0.8);
    assert_first(&run, "port_search_bound");
    // The functions show it, whatever the count of ports was.
    run.observed[0].queues.iter_mut().for_each(|snapshot| snapshot.ends.retain(|end| end.port != 9_000));
    assert_first(&run, "port_search_bound");
    set_functions(&mut run, 0.02);
    assert_first(&run, "kernel_cpu_bound");
    // Without privilege the kernel's functions are not sampled.
    let mut user_only = connecting_run();
    set_functions(&mut user_only, 0.02);
    user_only.observed[0].functions.iter_mut().for_each(|function| function.module = "subject".to_owned());
    assert_eq!(value(&s::PORT_SEARCH, &user_only), None);
    assert_first(&user_only, "port_search_bound");
    // Requests that find no port at all come first.
    run.observed[0].queues.clone_from(&user_only.observed[0].queues);
    run.observed[0].queues.iter_mut().for_each(|snapshot| {
        snapshot.ends.last_mut().unwrap().local_ports_max = Some(28_000);
    });
    run.totals.status.insert(502, run.totals.requests / 2);
    assert_first(&run, "port_exhaustion");
}

#[test]
fn other_causes_of_kernel_time_and_of_time_wait_are_no_port_search() {
    let kernel = |change: &dyn Fn(&mut Run)| {
        let mut run = connecting_run();
        change(&mut run);
        assert_first(&run, "kernel_cpu_bound");
    };
    kernel(&|run| set_counter(run, "Tcp.ActiveOpens", 10.0));
    kernel(&|run| set(run, RANGE, "1024 65023"));
    kernel(&|run| set(run, REUSE, "1"));
    kernel(&|run| run.observed[0].origins[0].address = "127.0.0.1:9000".to_owned());
    // Only the clients' connections are in TIME_WAIT.
    kernel(&|run| {
        for snapshot in &mut run.observed[0].queues {
            let origin = snapshot.ends.last_mut().unwrap();
            origin.states = [("established".to_owned(), 20)].into();
            origin.local_ports_max = Some(20);
        }
        change_samples(run, |sample| sample.namespaces[0].time_wait = 20_000);
    });
    let mut timestamps = connecting_run();
    set(&mut timestamps, REUSE, "1");
    set(&mut timestamps, "net.ipv4.tcp_timestamps", "0");
    assert_first(&timestamps, "port_search_bound");
    let mut idle = connecting_run();
    set_subject_cpus(&mut idle, 0.01, 0.2, 1);
    let diagnosis = diagnose(&idle);
    assert!(diagnosis.ruled_out.iter().any(|line| line.starts_with("port_search_bound")), "{diagnosis:#?}");
}

#[test]
fn connections_opened_since_a_count_hold_ports() {
    let mut run = connecting_run();
    // Counted at 1 s, and not again: at the median sample, at 5 s, 4 s of connections were opened since.
    set_counter(&mut run, "Tcp.ActiveOpens", 1_000.0);
    for snapshot in &mut run.observed[0].queues {
        let age_s = snapshot.time_s - 1.0;
        let origin = snapshot.ends.last_mut().unwrap();
        origin.states = [("established".to_owned(), 20), ("time-wait".to_owned(), 1_000)].into();
        (origin.local_ports_max, origin.time_wait_age_s) =
            (Some(1_020), Some(age_s).filter(|age| *age > 0.0));
    }
    assert_eq!(value(&s::PORTS_TRIED, &run).unwrap().round(), (1_000.0_f64 / 0.98).round());
    let held = |run: &Run| (value(&s::SUBJECT_PORTS_HELD, run).unwrap() * 28_232.0).round();
    // The median of the samples at 1 s to 10 s is at 5.5 s.
    assert_eq!(held(&run), 5_520.0);
    // Half of the connections go to another origin.
    run.observed[0].queues.iter_mut().for_each(|snapshot| {
        snapshot.ends.last_mut().unwrap().local_ports_max = Some(510);
    });
    assert_eq!(held(&run), 2_760.0);
    // Reused after a second.
    set(&mut run, REUSE, "1");
    assert_eq!(held(&run), 510.0);
    // The origin closed nearly all connections, and has them in TIME_WAIT.
    set(&mut run, REUSE, "0");
    run.observed[0].queues.iter_mut().for_each(|snapshot| {
        let origin = snapshot.ends.last_mut().unwrap();
        origin.states = [("established".to_owned(), 20), ("time-wait".to_owned(), 10)].into();
        origin.local_ports_max = Some(30);
    });
    assert_eq!(held(&run), 75.0);
}

#[test]
fn connections_of_the_generator_are_not_the_subjects() {
    let mut run = connecting_run();
    run.totals.connections.opened = 3_000;
    assert_eq!(value(&s::OUTGOING_CONNECTIONS, &run), Some(300.0));
    change_samples(&mut run, |sample| sample.namespaces[0].roles.push("generator".to_owned()));
    assert_eq!(value(&s::OUTGOING_CONNECTIONS, &run), Some(0.0));
    assert_first(&run, "kernel_cpu_bound");
}

#[test]
fn a_connect_without_a_port_is_the_proof_also_if_another_program_holds_the_ports() {
    let mut run = run(4, 20 * MS);
    let all = run.totals.requests;
    run.totals.errors.insert("no_port".to_owned(), all / 6);
    run.totals.responses = all - all / 6;
    run.totals.status = [(200, all - all / 6)].into();
    assert_eq!(diagnose(&run).verdict, "port_exhaustion");
}
