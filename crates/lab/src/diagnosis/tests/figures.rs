//! Figures of signals that are easily read wrongly.

use super::*;
use crate::diagnosis::fingerprints::quota_pause;
use crate::diagnosis::signals as s;
use crate::diagnosis::signals::Signal;

fn value(signal: &Signal, run: &Run) -> Option<f64> {
    (signal.read)(&View::new(run))
}

fn function(run: &mut Run, name: &str, module: &str) {
    run.observed[0].functions = vec![FunctionShare {
        role: "subject".to_owned(),
        function: name.to_owned(),
        module: module.to_owned(),
        share_self: 0.4,
        ..FunctionShare::default()
    }];
}

#[test]
fn functions_are_known_by_their_words_and_modules() {
    let mut run = run(32, 4 * MS);
    let of = |run: &mut Run, signal, name, module| {
        function(run, name, module);
        value(signal, run) == Some(0.4)
    };
    for name in ["RSA_private_encrypt", "rsaz_1024_mul_avx2", "crypto/rsa.decrypt", "ossl_rsa_sign"]
    {
        assert!(of(&mut run, &s::HANDSHAKE, name, "libcrypto.so.3"), "{name}");
    }
    for name in ["tree_traversal", "Universal::apply"] {
        assert!(!of(&mut run, &s::HANDSHAKE, name, "subject"), "{name}");
    }
    assert!(of(&mut run, &s::ALLOCATION, "malloc", "libc.so.6"));
    assert!(!of(&mut run, &s::ALLOCATION, "__kmalloc_noprof", "[kernel]"));
    assert!(of(&mut run, &s::LOCKING, "futex_wait", "[kernel]"));
}

#[test]
fn ports_are_counted_by_who_connects_and_from_how_many_addresses() {
    let mut run = run(40, MS);
    ends(&mut run, End::Client, |_, ends| {
        ends.states.insert("time-wait".to_owned(), 28_192);
    });
    assert_eq!(value(&s::PORTS, &run), Some(1.0));
    run.plan["sources"] = serde_json::json!(["10.0.0.1", "10.0.0.2"]);
    assert_eq!(value(&s::PORTS, &run), Some(0.5));
    // The subject's own range bounds its connections to the origin.
    let seen = &mut run.observed[0];
    let range = "40000 40099".to_owned();
    seen.settings.insert("net.ipv4.ip_local_port_range".to_owned(), range);
    seen.ports.push(PortUse {
        port: 9_000,
        served_by: Some("origin".to_owned()),
        used_by: Some("subject".to_owned()),
    });
    for snapshot in &mut seen.queues {
        let states = [("established".to_owned(), 90)].into();
        let origin = EndQueues {
            port: 9_000,
            end: End::Client,
            states,
            local_ports_max: Some(90),
            ..EndQueues::default()
        };
        snapshot.ends.push(origin);
    }
    assert_eq!(value(&s::PORTS, &run), Some(0.9));
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
    samples(&mut run, |sample| {
        sample.links = vec![link("small", 1e6, 10_000.0), link("large", 100e6, 2_000.0)];
    });
    assert_eq!(value(&s::PACKET_BYTES, &run), Some(100.0));
}

#[test]
fn a_quota_of_several_processors_has_its_pause_too() {
    let pause = |quota: f64, threads: usize, cpus: u32| {
        let mut run = run(32, 4 * MS);
        run.observed[0].cpus = cpus;
        run.observed[0].roles[1].cpus_allowed = cpus;
        samples(&mut run, |sample| {
            let thread = ThreadUse { busy: quota / threads as f64, ..ThreadUse::default() };
            sample.roles[1].threads = vec![thread; threads];
            let group =
                CgroupUse { quota_cpus: Some(quota), period_s: Some(0.1), ..CgroupUse::default() };
            sample.roles[1].cgroup = Some(group);
        });
        quota_pause(&View::new(&run)).map(|(from_ns, to_ns)| (from_ns / MS, to_ns.div_ceil(MS)))
    };
    assert_eq!(pause(0.3, 1, 2), Some((56, 84)));
    assert_eq!(pause(2.0, 8, 8), Some((60, 90)));
    // Eight threads on four processors run four at a time.
    assert_eq!(pause(2.0, 8, 4), Some((40, 60)));
    // Two threads cannot use up two processors.
    assert_eq!(pause(2.0, 2, 8), None);
}

#[test]
fn a_time_slice_is_one_only_where_somebody_waited() {
    let mut run = run(20, 2 * MS);
    let mut latencies = Latencies::new();
    (0..1_000).for_each(|at| latencies.record(if at % 20 == 0 { 4 * MS } else { MS }));
    run.latency.last_byte.service = latencies.summary();
    assert!(diagnose(&run).fingerprints.is_empty());
    samples(&mut run, |sample| sample.roles[1].threads[0].waiting = Some(0.1));
    let fingerprints = diagnose(&run).fingerprints;
    assert!(fingerprints[0].starts_with("time_slice: 5.0 % of the requests"), "{fingerprints:?}");
}

#[test]
fn queues_memory_and_disks_with_a_bound_are_resources() {
    let mut run = run(40, 20 * MS);
    samples(&mut run, |sample| {
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
        "subject's accept queue: 50 % used, full at 4.00k/s",
        // Files that the kernel keeps are charged too, and are given back when there is no room.
        "subject's memory: 60 % used, full at 3.33k/s",
        "subject's writes to a disk: 30 % used, full at 6.67k/s",
    ] {
        assert!(limits.contains(&line.to_owned()), "{line}: {limits:?}");
    }
}
