//! Tests on synthetic records of a subject on another machine than the generator, with and without
//! monitoring there.

use super::*;
use crate::signals as s;
use crate::signals::Signal;
use record::run::Diagnosis;

/// Removes what only the subject's machine observes from the record, as `weir load` writes it if no
/// local process listens at the port.
fn without_subject_machine(mut run: Run) -> Run {
    let observed = &mut run.observed[0];
    observed.roles.truncate(1);
    observed.ports[0].served_by = None;
    for sample in &mut observed.samples {
        sample.roles.truncate(1);
        sample.namespaces[0].roles.truncate(1);
    }
    for snapshot in &mut observed.queues {
        snapshot.listeners.clear();
        snapshot.ends.retain(|ends| ends.end == ConnectionEnd::Client);
    }
    run
}

/// Returns the output of `weir watch` on the subject's machine.
fn subject_observation(connections: u64) -> MachineObservation {
    let mut observed = observed(connections);
    observed.roles.remove(0);
    observed.ports[0].used_by = None;
    for sample in &mut observed.samples {
        sample.roles.remove(0);
        sample.namespaces[0].roles.remove(0);
    }
    for snapshot in &mut observed.queues {
        snapshot.ends.retain(|ends| ends.end == ConnectionEnd::Server);
    }
    observed
}

/// Returns a run of a remote subject with everything that the client alone knows.
fn remote_with_phases() -> Run {
    let mut run = without_subject_machine(run(32, 40 * MS));
    let mut phase = run.latency.last_byte.clone();
    phase.service.mean_ns = 3e6;
    run.latency.connect = phase.clone();
    phase.service.mean_ns = 7e6;
    run.latency.tls_handshake = Some(phase.clone());
    phase.service.mean_ns = 30e6;
    run.latency.first_byte = phase;
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| {
        (ends.busy_us, ends.receive_window_limited_us) = (1_000_000, 400_000);
    });
    for (second, interval) in run.intervals.iter_mut().enumerate() {
        interval.responses = if second < 4 { 800 } else { 400 };
    }
    run.diagnosis = Some(Diagnosis { verdict: "unknown".to_owned(), ..Diagnosis::default() });
    run
}

#[test]
fn a_remote_answer_has_what_the_client_alone_knows() {
    let mut run = remote_with_phases();
    let answer = crate::answer(&run);
    answers::assert_whole(&answer);
    for part in [
        "a new connection takes 3.00 ms, and its TLS handshake 7.00 ms",
        "the first byte comes after 30.0 ms, 75 % of the time",
        "its TCP receive window was full in 40 % of the time",
        "it fell from 800/s at first to 400/s at the end",
        "only the server can tell",
    ] {
        assert!(answer.why.contains(part), "{part}: {answer:?}");
    }
    for command in
        ["weir watch --json watch.json", "weir lab diagnose run.json watch.json", "weir fleet role"]
    {
        assert!(answer.next.contains(command), "{command}: {answer:?}");
    }
    // A fleet has agents: one on the server tells.
    run.fleet = Some(record::fleet::Fleet::default());
    let next = crate::answer(&run).next;
    assert!(next.contains("weir fleet role") && next.contains("weir fleet run FILE"), "{next}");
    // Short phases are not named, and a rate that does not change is called steady.
    run.latency.connect.service.mean_ns = 1e5;
    run.latency.tls_handshake = None;
    run.intervals.iter_mut().for_each(|interval| interval.responses = 800);
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.receive_window_limited_us = 0);
    let why = crate::answer(&run).why;
    assert!(
        !["new connection", "handshake", "receive window"].iter().any(|part| why.contains(part)),
        "{why}"
    );
    assert!(why.contains("steady from the first to the last second"), "{why}");
}

#[test]
fn a_remote_server_that_makes_nobody_wait_is_not_full() {
    let with_baseline = |alone_ns: f64| {
        let mut run = without_subject_machine(run(32, 60 * MS));
        run.baseline = Some(record::run::Baseline {
            good: 50,
            requests: 50,
            mean_ns: alone_ns,
            p50_ns: alone_ns as u64,
            ..Default::default()
        });
        run.latency.first_byte = run.latency.last_byte.clone();
        run
    };
    let run = with_baseline(58e6);
    let diagnosis = diagnose(&run);
    assert_eq!(
        (diagnosis.verdict.as_str(), diagnosis.confidence.to_string().as_str()),
        ("latency_bound", "possible")
    );
    // Decoys: requests that wait for others, a stall of the transport, a window or a pace between first and last byte.
    assert_first(&with_baseline(10e6), "unknown");
    let mut stall = run.clone();
    stall.latency.first_byte.service.p50_ns = 18 * MS;
    assert_ne!(diagnose(&stall).verdict, "latency_bound");
    let mut transfer = run.clone();
    transfer.latency.first_byte.service.mean_ns = 1e6;
    assert_ne!(diagnose(&transfer).verdict, "latency_bound");
}

#[test]
fn a_server_of_another_user_of_this_machine_is_observed_by_root() {
    let next = |url: &str| {
        let mut run = without_subject_machine(run(32, 40 * MS));
        run.plan["requests"] = serde_json::json!([{ "url": url }]);
        run.diagnosis = Some(Diagnosis { verdict: "unknown".to_owned(), ..Diagnosis::default() });
        crate::answer(&run).next
    };
    for url in ["http://127.0.0.1:8000/a", "http://localhost/", "https://[::1]:8443"] {
        assert!(next(url).starts_with("Repeat it as root"), "{url}");
    }
    for url in ["http://10.1.2.3:8000/", "http://127.example.org/", "http://[fd00::1]:80/"] {
        assert!(next(url).contains("weir watch --json"), "{url}");
    }
}

fn value(signal: &Signal, run: &Run) -> Option<f64> {
    (signal.read)(&RunView::new(run))
}

/// Makes the run an open loop of which half is served.
fn overload(run: &mut Run) {
    run.plan = serde_json::json!({"pace": {"loop": "open", "rate_per_s": 10_000.0}});
    run.rates.offered_per_s = Some(run.rates.responses_per_s * 2.0);
}

#[test]
fn a_late_generator_is_detected_without_the_subject() {
    let mut run = without_subject_machine(run(32, MS));
    overload(&mut run);
    run.generator.busiest_thread_fraction = Some(1.0);
    run.generator.lag_p99_ns = 50 * MS;
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 30);
    assert_first(&run, "client_bound");
    // A generator that has read everything is not late: the busy thread is only one source, and no
    // proof.
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 0);
    assert_first(&run, "unknown");
}

#[test]
fn both_ends_are_compared_over_two_machines() {
    let mut run = without_subject_machine(run(32, MS));
    run.observed.push(subject_observation(32));
    run.generator.busiest_thread_fraction = Some(0.99);
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 30);
    assert_eq!(value(&s::SUBJECT_UNREAD, &run), Some(0.0));
    assert!(value(&s::UNREAD_RESPONSES_OVER_REQUESTS, &run) > Some(10.0));
    assert_eq!(value(&s::GENERATOR_UNREAD_WITHOUT_SUBJECT, &run), None);
    assert_first(&run, "client_bound");
    // The CPUs are those of the subject's machine.
    run.observed[1].samples.iter_mut().for_each(|sample| sample.foreign_cpus = Some(0.5));
    assert_eq!(value(&s::FOREIGN_CPUS, &run), Some(0.5));
}

#[test]
fn the_worst_of_merged_generators_counts() {
    let mut run = without_subject_machine(run(32, MS));
    let mut other = run.observed[0].clone();
    other.host = "other".to_owned();
    for ends in other.queues.iter_mut().flat_map(|snapshot| &mut snapshot.ends) {
        ends.with_unread = 30;
    }
    run.observed.extend([subject_observation(32), other]);
    assert!(value(&s::GENERATOR_UNREAD, &run) > Some(0.9));
    run.generator.busiest_thread_fraction = Some(0.99);
    assert_first(&run, "client_bound");
    // Segments of all three namespaces are added up.
    set_counter(&mut run, "Tcp.RetransSegs", 300.0);
    assert!((value(&s::RETRANSMITTED, &run).unwrap() - 0.01).abs() < 1e-9);
}

#[test]
fn exhausted_ports_are_detected_without_the_subject() {
    let mut ports = without_subject_machine(run(40, MS));
    ports.totals.errors.insert("no_port".to_owned(), 20_000);
    ports.totals.connections.failed = 20_000;
    assert_eq!(value(&s::PORTS, &ports), Some(40.0 / 28_232.0));
    change_ends(&mut ports, ConnectionEnd::Client, |_, ends| {
        ends.states.insert("time-wait".to_owned(), 28_000);
    });
    assert_first(&ports, "port_exhaustion");
}

#[test]
fn a_full_link_is_detected_from_either_machine() {
    let link = |bytes_per_s: f64| LinkUse {
        name: "eth0".to_owned(),
        rx_bytes_per_s: bytes_per_s,
        rx_packets_per_s: bytes_per_s / 1_400.0,
        speed_bits_per_s: Some(1e9),
        ..LinkUse::default()
    };
    let fill = |observed: &mut MachineObservation, bytes_per_s: f64| {
        observed.samples.iter_mut().for_each(|sample| sample.links = vec![link(bytes_per_s)]);
    };
    let mut generator_only = without_subject_machine(run(32, 50 * MS));
    fill(&mut generator_only.observed[0], 122e6);
    assert_first(&generator_only, "link_bound");
    // A generator that is busy itself may also be the limit.
    generator_only.generator.busiest_thread_fraction = Some(0.95);
    assert_ne!(diagnose(&generator_only).verdict, "link_bound");

    let mut both_machines = without_subject_machine(run(32, 50 * MS));
    both_machines.observed.push(subject_observation(32));
    fill(&mut both_machines.observed[0], 122e6);
    fill(&mut both_machines.observed[1], 1e6);
    assert!((value(&s::LINK, &both_machines).unwrap() - 0.976).abs() < 1e-9);
    assert_first(&both_machines, "link_bound");
    fill(&mut both_machines.observed[0], 1e6);
    fill(&mut both_machines.observed[1], 122e6);
    assert!((value(&s::LINK, &both_machines).unwrap() - 0.976).abs() < 1e-9);
    // The evidence names the machine of the full link, and only one of several.
    both_machines.observed[1].host = "east".to_owned();
    let evidence = |run: &Run| diagnose(run).evidence;
    let find_link_line =
        |evidence: Vec<String>| evidence.into_iter().find(|line| line.contains(s::LINK.name)).unwrap();
    assert!(find_link_line(evidence(&both_machines)).starts_with("east: "));
    fill(&mut both_machines.observed[0], 122e6);
    assert!(find_link_line(evidence(&both_machines)).starts_with(s::LINK.name));
}

#[test]
fn unwatched_figures_are_not_observable_and_not_zero() {
    let run = without_subject_machine(run(20, 44 * MS));
    for signal in [
        &s::SUBJECT_UNREAD,
        &s::SUBJECT_THREAD,
        &s::UNSENT_WITH_OPEN_WINDOW,
        &s::ROUND_TRIP,
        &s::FOREIGN_CPUS,
    ] {
        assert_eq!(value(signal, &run), None, "{signal:?}");
    }
    let not_observable = diagnose(&run).not_observable;
    for code in ["user_cpu_bound", "latency_bound", "delayed_ack_stall", "fd_limit"] {
        assert!(not_observable.iter().any(|line| line.starts_with(code)), "{code}: {not_observable:?}");
    }
}

#[test]
fn connections_to_a_remote_origin_are_the_subjects() {
    let mut run = run(100, 200 * MS);
    let observed = &mut run.observed[0];
    observed.ports.push(PortRoles { port: 9_000, served_by: None, used_by: Some("subject".to_owned()) });
    for snapshot in &mut observed.queues {
        let states = [("established".to_owned(), 10)].into();
        let origin = EndQueues {
            port: 9_000,
            end: ConnectionEnd::Client,
            states,
            awaiting_response: 10,
            ..EndQueues::default()
        };
        snapshot.ends.push(origin);
    }
    assert_first(&run, "connection_limited");
}

/// Returns a run whose generator is at its limit, next to a subject that waits for its CPU now and then. Both see
/// each other's CPU time as foreign: the generator uses 1.1 CPUs.
fn generator_bound_over_two_machines() -> Run {
    let mut run = without_subject_machine(run(32, MS));
    run.generator.busiest_thread_fraction = Some(0.99);
    run.observed.push(subject_observation(32));
    for sample in &mut run.observed[0].samples {
        sample.roles[0] = role_use(0.8, 0.3);
        sample.foreign_cpus = Some(0.6);
    }
    for sample in &mut run.observed[1].samples {
        sample.roles[0] = role_use(0.4, 0.15);
        sample.roles[0].threads[0].waiting = Some(0.2);
        sample.foreign_cpus = Some(1.1);
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.1);
    }
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 30);
    run
}

/// Makes all observations those of one kernel, with their roles in PID namespaces of their own.
fn share_a_kernel(run: &mut Run) {
    for (namespace, observed) in (1..).zip(&mut run.observed) {
        observed.kernel = Some("0b2f".to_owned());
        observed
            .roles
            .iter_mut()
            .for_each(|role| role.processes = vec![KernelProcess { namespace, pid: 12 }]);
    }
}

#[test]
fn a_generator_on_the_same_kernel_is_not_foreign() {
    let mut run = generator_bound_over_two_machines();
    assert_first(&run, "cpu_contended");
    share_a_kernel(&mut run);
    assert_eq!(value(&s::FOREIGN_CPUS, &run), Some(0.0));
    assert_first(&run, "client_bound");
}

#[test]
fn a_foreign_process_on_a_shared_kernel_is_still_found() {
    let mut run = generator_bound_over_two_machines();
    share_a_kernel(&mut run);
    // The generator hardly works: the CPUs are used by a process of no role.
    run.generator.busiest_thread_fraction = Some(0.2);
    run.observed[0].samples.iter_mut().for_each(|sample| sample.roles[0] = role_use(0.1, 0.1));
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 0);
    assert!((value(&s::FOREIGN_CPUS, &run).unwrap() - 0.9).abs() < 1e-9);
    assert_first(&run, "cpu_contended");
    // The same beside a generator that works as before.
    for sample in &mut run.observed[0].samples {
        sample.roles[0] = role_use(0.8, 0.3);
    }
    run.observed[1].samples.iter_mut().for_each(|sample| sample.foreign_cpus = Some(2.0));
    assert!((value(&s::FOREIGN_CPUS, &run).unwrap() - 0.9).abs() < 1e-9);
    assert_first(&run, "cpu_contended");
    // Virtual machines of one host do not share a kernel.
    run.observed[1].kernel = Some("77aa".to_owned());
    assert_eq!(value(&s::FOREIGN_CPUS, &run), Some(2.0));
}
