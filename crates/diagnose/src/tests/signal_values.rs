//! Tests of signals that are easily misinterpreted.

use super::*;
use crate::signals as s;
use crate::signals::Signal;

fn value(signal: &Signal, run: &Run) -> Option<f64> {
    (signal.read)(&RunView::new(run))
}

fn function(run: &mut Run, name: &str, module: &str) {
    run.observed[0].functions = vec![FunctionUse {
        role: "subject".to_owned(),
        function: name.to_owned(),
        module: module.to_owned(),
        self_fraction: 0.4,
        ..FunctionUse::default()
    }];
}

#[test]
fn functions_are_recognized_by_their_words_and_modules() {
    let mut run = run(32, 4 * MS);
    let signal_of_function = |run: &mut Run, signal, name, module| {
        function(run, name, module);
        value(signal, run) == Some(0.4)
    };
    for name in ["RSA_private_encrypt", "rsaz_1024_mul_avx2", "crypto/rsa.decrypt", "ossl_rsa_sign"] {
        assert!(signal_of_function(&mut run, &s::HANDSHAKE, name, "libcrypto.so.3"), "{name}");
    }
    for name in ["tree_traversal", "Universal::apply"] {
        assert!(!signal_of_function(&mut run, &s::HANDSHAKE, name, "subject"), "{name}");
    }
    assert!(signal_of_function(&mut run, &s::ALLOCATION, "malloc", "libc.so.6"));
    assert!(!signal_of_function(&mut run, &s::ALLOCATION, "__kmalloc_noprof", "[kernel]"));
    assert!(signal_of_function(&mut run, &s::LOCKING, "futex_wait", "[kernel]"));
}

#[test]
fn ports_are_counted_by_client_and_source_address() {
    let mut run = run(40, MS);
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| {
        ends.states.insert("time-wait".to_owned(), 28_192);
    });
    assert_eq!(value(&s::PORTS, &run), Some(1.0));
    run.plan["sources"] = serde_json::json!(["10.0.0.1", "10.0.0.2"]);
    assert_eq!(value(&s::PORTS, &run), Some(0.5));
    // The subject's own range limits its connections to the origin.
    let observed = &mut run.observed[0];
    let range = "40000 40099".to_owned();
    observed.settings.insert("net.ipv4.ip_local_port_range".to_owned(), range);
    observed.ports.push(PortRoles {
        port: 9_000,
        served_by: Some("origin".to_owned()),
        used_by: Some("subject".to_owned()),
    });
    for snapshot in &mut observed.queues {
        let states = [("established".to_owned(), 90)].into();
        let origin = EndQueues {
            port: 9_000,
            end: ConnectionEnd::Client,
            states,
            local_ports_max: Some(90),
            ..EndQueues::default()
        };
        snapshot.ends.push(origin);
    }
    assert_eq!(value(&s::PORTS, &run), Some(0.9));
}

#[test]
fn a_subject_that_never_reached_its_origin_has_its_ports_in_time_wait() {
    let mut run = run(32, MS);
    let range = "40000 40999".to_owned();
    run.observed[0].settings.insert("net.ipv4.ip_local_port_range".to_owned(), range);
    change_samples(&mut run, |sample| {
        let roles = vec!["subject".to_owned()];
        sample.namespaces = vec![NamespaceUse { roles, time_wait: 990, ..NamespaceUse::default() }];
    });
    assert_eq!(value(&s::PORTS, &run), Some(0.99));
    run.totals.status.insert(502, run.totals.requests);
    assert_eq!(value(&s::NO_PORT, &run), Some(1.0));
}

#[test]
fn a_packets_bytes_are_of_one_link() {
    let mut run = run(32, MS);
    let link = |name: &str, bytes: f64, packets: f64| LinkUse {
        name: name.to_owned(),
        tx_bytes_per_s: bytes,
        tx_packets_per_s: packets,
        ..LinkUse::default()
    };
    change_samples(&mut run, |sample| {
        sample.links = vec![link("small", 1e6, 10_000.0), link("large", 100e6, 2_000.0)];
    });
    assert_eq!(value(&s::PACKET_BYTES, &run), Some(100.0));
}

#[test]
fn a_quota_of_several_cpus_has_its_pause_too() {
    let pause = |quota: f64, threads: usize, cpus: u32| {
        let mut run = run(32, 4 * MS);
        run.observed[0].cpus = cpus;
        run.observed[0].roles[1].cpus_allowed = cpus;
        change_samples(&mut run, |sample| {
            let thread = ThreadCpuUse { busy: quota / threads as f64, ..ThreadCpuUse::default() };
            sample.roles[1].threads = vec![thread; threads];
            let group = CgroupUse { quota_cpus: Some(quota), period_s: Some(0.1), ..CgroupUse::default() };
            sample.roles[1].cgroup = Some(group);
        });
        s::quota_pause(&RunView::new(&run)).map(|range| (range.from_ns / MS, range.to_ns.div_ceil(MS)))
    };
    assert_eq!(pause(0.3, 1, 2), Some((56, 84)));
    assert_eq!(pause(2.0, 8, 8), Some((60, 90)));
    // Eight threads on four CPUs run four at a time.
    assert_eq!(pause(2.0, 8, 4), Some((40, 60)));
    // Two threads cannot use up two CPUs.
    assert_eq!(pause(2.0, 2, 8), None);
}

#[test]
fn a_time_slice_is_one_only_where_somebody_waited() {
    let mut run = run(20, 2 * MS);
    let mut latencies = LatencyHistogram::new();
    (0..1_000).for_each(|at| latencies.record(if at % 20 == 0 { 4 * MS } else { MS }));
    run.latency.last_byte.service = latencies.summary();
    assert!(diagnose(&run).fingerprints.is_empty());
    change_samples(&mut run, |sample| sample.roles[1].threads[0].waiting = Some(0.1));
    let fingerprints = diagnose(&run).fingerprints;
    assert!(fingerprints[0].starts_with("time_slice: 5.0 %"), "{fingerprints:?}");
}

#[test]
fn queues_memory_and_disks_with_a_bound_are_resources() {
    let mut run = run(40, 20 * MS);
    change_samples(&mut run, |sample| {
        sample.roles[1].resident_bytes = Some(60);
        sample.roles[1].disk_write_bytes_per_s = Some(300.0);
        sample.roles[1].cgroup = Some(CgroupUse {
            memory_bytes: Some(99),
            memory_max_bytes: Some(100),
            disk_write_max_bytes_per_s: Some(1_000.0),
            ..CgroupUse::default()
        });
    });
    run.observed[0].queues[7].listeners[0].waiting = 64;
    let limits = diagnose(&run).next_limits;
    for line in [
        // Neither a queue nor memory grows proportionally to the rate.
        "subject's accept queue: 50 % used",
        // The page cache is charged too, and is reclaimed under pressure.
        "subject's memory: 60 % used",
        "subject's writes to a disk: 30 % used, full at about 6.67 k/s",
    ] {
        assert!(limits.contains(&line.to_owned()), "{line}: {limits:?}");
    }
}

#[test]
fn a_subject_that_needs_little_is_not_full_beside_busy_neighbours() {
    let mut run = run(32, MS);
    let thread = ThreadCpuUse { busy: 0.1, waiting: Some(0.05), ..ThreadCpuUse::default() };
    change_samples(&mut run, |sample| {
        (sample.roles[1].user_cpus, sample.roles[1].system_cpus) = (0.1, 0.0);
        sample.roles[1].threads = vec![thread.clone()];
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.0);
    });
    let cpus = f64::from(run.observed[0].roles[1].cpus_allowed);
    assert_eq!(value(&s::SUBJECT_SATURATION, &run), Some(0.1 / cpus));
    // A subject that waits as much as it runs lacks CPUs.
    let waits = ThreadCpuUse { waiting: Some(0.6), ..thread };
    change_samples(&mut run, |sample| sample.roles[1].threads = vec![waits.clone()]);
    assert_eq!(value(&s::SUBJECT_SATURATION, &run), Some(1.0));
}

#[test]
fn threads_that_ended_unobserved_leave_the_busiest_thread_unknown() {
    let mut run = run(32, MS);
    let thread = ThreadCpuUse { busy: 0.07, ..ThreadCpuUse::default() };
    change_samples(&mut run, |sample| {
        (sample.roles[1].user_cpus, sample.roles[1].system_cpus) = (1.0, 0.0);
        sample.roles[1].threads = vec![thread.clone()];
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.5);
    });
    assert_eq!(value(&s::SUBJECT_THREAD, &run), None);
    assert_eq!(value(&s::SUBJECT_AT_LIMIT, &run), None);
    // CPUs that are full are full, whatever the threads do.
    change_samples(&mut run, |sample| sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.0));
    assert_eq!(value(&s::SUBJECT_AT_LIMIT, &run), Some(1.0));
    // Threads that explain the CPU time are known.
    let busy = ThreadCpuUse { busy: 0.9, ..thread };
    change_samples(&mut run, |sample| sample.roles[1].threads = vec![busy.clone()]);
    assert_eq!(value(&s::SUBJECT_THREAD, &run), Some(0.9));
}

#[test]
fn a_pool_is_pinned_at_its_usual_size() {
    let pinned = |counts: &[u64]| {
        let mut run = run(32, MS);
        let observed = &mut run.observed[0];
        let used_by = Some("subject".to_owned());
        observed.ports.push(PortRoles { port: 9_000, served_by: None, used_by });
        for (snapshot, count) in observed.queues.iter_mut().zip(counts.iter().cycle()) {
            snapshot.ends.push(EndQueues {
                port: 9_000,
                end: ConnectionEnd::Client,
                states: [("established".to_owned(), *count)].into(),
                ..EndQueues::default()
            });
        }
        value(&s::ORIGIN_PINNED, &run)
    };
    assert_eq!(pinned(&[4]), Some(1.0));
    // A few connections of the time before the load are no larger pool.
    let early: Vec<u64> = [8, 6].into_iter().chain([4; 60]).collect();
    assert!(pinned(&early).is_some_and(|fraction| fraction >= 0.9));
    assert!(pinned(&[3, 5]).is_some_and(|fraction| fraction < 0.6));
}
