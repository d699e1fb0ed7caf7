//! Threads and processes that compete for CPUs, and CPU time that is not what it seems.

use super::*;
use record::run::Baseline;

/// Returns a load of a subject that is far from full, which waits 60 % of its latency.
fn shared_cpus(busy: f64, waiting: f64) -> Run {
    let mut run = run(20, MS);
    set_subject_cpus(&mut run, 0.2, 0.6, 2);
    run.generator.busiest_thread_fraction = Some(busy);
    run.generator.run_queue_wait_fraction = Some(waiting);
    run.baseline =
        Some(Baseline { good: 100, duration_s: 1.0, mean_ns: 4e5, p50_ns: 400_000, ..Baseline::default() });
    change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 8);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 2);
    run
}

#[test]
fn a_generator_that_runs_or_waits_for_a_cpu_is_at_its_limit() {
    assert_first(&shared_cpus(0.63, 0.32), "client_bound");
    assert_ne!(diagnose(&shared_cpus(0.33, 0.22)).verdict, "client_bound");
    // Of several threads, each has its own part.
    let mut threads = shared_cpus(0.63, 0.32);
    threads.generator.threads = 2;
    assert_ne!(diagnose(&threads).verdict, "client_bound");
    threads.generator.runnable_thread_fraction = Some(0.95);
    assert_first(&threads, "client_bound");
}

#[test]
fn a_generator_that_waits_for_a_full_subject_is_not_the_limit() {
    let mut run = shared_cpus(0.5, 0.48);
    set_subject_cpus(&mut run, 0.2, 1.25, 2);
    change_samples(&mut run, |sample| {
        sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.01);
        sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(0.2));
    });
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 2);
    assert_first(&run, "kernel_cpu_bound");
    // Other threads of a full machine, which wait for nothing, have what they request.
    change_samples(&mut run, |sample| {
        sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(0.01));
    });
    let verdict = diagnose(&run).verdict;
    assert!(!verdict.ends_with("_cpu_bound"), "{verdict}");
}

#[test]
fn a_generator_that_is_full_with_connects_is_the_limit_and_a_worker_with_spare_time_is_not() {
    let opening = |worker: f64, generator: f64| {
        let mut run = shared_cpus(generator, 0.01);
        set_subject_cpus(&mut run, 0.25 * worker, 0.75 * worker, 1);
        run.totals.connections.opened = run.totals.responses;
        change_samples(&mut run, |sample| {
            sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.0);
            sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(0.02));
        });
        change_ends(&mut run, ConnectionEnd::Client, |_, ends| ends.with_unread = 0);
        change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 8);
        run
    };
    assert_first(&opening(0.67, 0.98), "client_bound");
    // Decoys: the worker is full, too, or it alone.
    assert_first(&opening(0.99, 0.95), "single_thread_bound");
    assert_first(&opening(0.99, 0.7), "single_thread_bound");
}

#[test]
fn the_fuller_of_two_busy_threads_is_the_limit() {
    let mut run = shared_cpus(0.85, 0.02);
    set_subject_cpus(&mut run, 0.35, 0.6, 1);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 2);
    assert_first(&run, "single_thread_bound");
}

#[test]
fn one_request_at_a_time_is_its_own_baseline() {
    let mut run = run(1, MS);
    set_subject_cpus(&mut run, 0.1, 0.4, 1);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 1);
    run.totals.good = Some(run.totals.responses);
    assert_first(&run, "latency_bound");
    assert_eq!(diagnose(&run).queueing_fraction, Some(0.0));
}

/// Returns a load whose subject uses half a CPU, waits for others, and of which 0.45 CPUs are unowned.
fn unowned_cpu_time(forks_per_s: f64, processes_started: u32) -> Run {
    let mut run = run(20, 20 * MS);
    set_subject_cpus(&mut run, 0.5, 0.05, 2);
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(0.45);
        sample.forks_per_s = Some(forks_per_s);
        sample.roles[1].processes_started = processes_started;
        sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(0.4));
        sample.cpus.iter_mut().for_each(|cpu| (cpu.user, cpu.system, cpu.idle) = (0.1, 0.5, 0.01));
    });
    run.observed[0].roles[1].cpus_allowed = 1;
    run
}

#[test]
fn short_lived_processes_of_requests_belong_to_the_subject() {
    // 1,000 responses per second, with two processes each.
    assert_first(&unowned_cpu_time(2_000.0, 8), "kernel_cpu_bound");
    // Strangers beside the load: a script, and a compiler whose processes live long.
    assert_first(&unowned_cpu_time(2_000.0, 0), "cpu_contended");
    assert_first(&unowned_cpu_time(20.0, 8), "cpu_contended");
    assert_first(&unowned_cpu_time(0.0, 0), "cpu_contended");
}

#[test]
fn others_on_cpus_that_the_subject_may_not_use_take_nothing_from_it() {
    // Two threads on the one CPU that they may use wait for each other; a program takes half of the other CPU.
    let beside = |used: f64| {
        let mut run = unowned_cpu_time(0.0, 0);
        set_subject_cpus(&mut run, used, 0.01, 2);
        change_samples(&mut run, |sample| {
            sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(0.5));
        });
        run.observed[0].roles[1].cpus_allowed = 1;
        diagnose(&run).verdict
    };
    assert_eq!(beside(0.97), "user_cpu_bound");
    assert_eq!(beside(0.5), "cpu_contended");
}

#[test]
fn a_thread_that_spins_without_load_is_not_the_limit() {
    let mut run = run(30, 100 * MS);
    set_subject_cpus(&mut run, 0.99, 0.05, 1);
    let thread = |tid, busy| ThreadCpuUse { tid, busy, ..ThreadCpuUse::default() };
    change_samples(&mut run, |sample| sample.roles[1].threads = vec![thread(7, 0.99), thread(8, 0.05)]);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 0);
    let unloaded =
        |good| Baseline { good, duration_s: 1.0, mean_ns: 2e7, p50_ns: 20_000_000, ..Baseline::default() };
    run.baseline = Some(unloaded(50));
    assert_first(&run, "single_thread_bound");
    run.observed[0].baseline_threads = vec![thread(7, 0.99)];
    assert_first(&run, "subject_limited");
    // A thread that does the work is busy before the load as well, but then it can do no more.
    run.baseline = Some(unloaded(290));
    assert_first(&run, "single_thread_bound");
}

#[test]
fn workers_that_sleep_lose_little_to_a_cpu_that_they_wait_for() {
    // A pool of ten that sleeps 20 ms in each request, beside compilers: 64 requests in flight, 134 ms each.
    let mut run = run(64, 134 * MS);
    set_subject_cpus(&mut run, 0.1, 0.1, 10);
    change_ends(&mut run, ConnectionEnd::Server, |_, ends| ends.with_unread = 0);
    change_samples(&mut run, |sample| {
        sample.foreign_cpus = Some(1.7);
        sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(0.04));
        sample.cpus.iter_mut().for_each(|cpu| (cpu.user, cpu.system, cpu.idle) = (0.9, 0.1, 0.0));
    });
    let alone = |ns: f64| Some(Baseline { good: 50, mean_ns: ns, p50_ns: ns as u64, ..Baseline::default() });
    run.baseline = alone(20.5e6);
    assert_ne!(diagnose(&run).verdict, "cpu_contended");
    let what = crate::answer(&run).what;
    assert!(what.contains("10 requests at a time"), "{what}");
    // A request that takes 1 ms alone waits for a CPU most of its time.
    run.baseline = alone(1e6);
    assert_first(&run, "cpu_contended");
}

#[test]
fn a_full_subject_that_others_share_a_cpu_with_is_not_surely_its_own_limit() {
    // Three threads fill the one CPU that they may use, but for the part of a program beside them.
    let beside = |used: f64, others: f64| {
        let mut run = tls::full_run(0.9, 0.1);
        set_subject_cpus(&mut run, used, 0.01, 3);
        change_samples(&mut run, |sample| {
            sample.foreign_cpus = Some(others);
            sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(0.7));
            sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 0.0);
        });
        run.observed[0].roles[1].cpus_allowed = 1;
        diagnose(&run)
    };
    let shared = beside(0.74, 0.25);
    assert_eq!((shared.verdict.as_str(), shared.confidence), ("user_cpu_bound", Confidence::Likely));
    assert!(shared.evidence.iter().any(|text| text.contains("others took 25 %")), "{shared:#?}");
    // Decoys: the program hardly runs, or on the other CPU.
    for alone in [beside(0.95, 0.03), beside(0.97, 0.9)] {
        assert_eq!(
            (alone.verdict.as_str(), alone.confidence),
            ("user_cpu_bound", Confidence::Sure),
            "{alone:#?}"
        );
    }
}

#[test]
fn a_full_subject_whose_responses_wait_for_acknowledgements_is_not_surely_its_own_limit() {
    let full = |transfer_ns: u64| {
        let mut run = tls::full_run(0.9, 0.1);
        run.latency.last_byte.service.p50_ns = 90 * MS;
        run.latency.first_byte.service.p50_ns = 90 * MS - transfer_ns;
        diagnose(&run)
    };
    let stalled = full(41 * MS);
    assert_eq!((stalled.verdict.as_str(), stalled.confidence), ("user_cpu_bound", Confidence::Likely));
    assert!(stalled.evidence.iter().any(|text| text.contains("delayed_ack_stall")), "{stalled:#?}");
    // Decoy: a transfer that takes another time.
    assert_eq!(full(25 * MS).confidence, Confidence::Sure);
}

#[test]
fn a_neighbour_with_the_lesser_part_comes_behind_the_own_limit() {
    // A thread on two CPUs waits now and then for one, while the other is idle for a part of the time.
    let beside = |used: f64, waiting: f64, others: f64, idle: f64| {
        let mut run = tls::full_run(0.9, 0.1);
        set_subject_cpus(&mut run, used, 0.01, 1);
        change_samples(&mut run, |sample| {
            sample.foreign_cpus = Some(others);
            sample.roles[1].threads.iter_mut().for_each(|thread| thread.waiting = Some(waiting));
            sample.cpus.iter_mut().for_each(|cpu| cpu.idle = idle / 2.0);
        });
        run.observed[0].roles[1].cpus_allowed = 2;
        diagnose(&run)
    };
    let lesser = beside(0.92, 0.22, 0.45, 0.4);
    assert_eq!(lesser.verdict, "single_thread_bound");
    assert!(lesser.alternatives.iter().any(|other| other.verdict == "cpu_contended"), "{lesser:#?}");
    // Alone it comes first, as with the larger part.
    assert_eq!(beside(0.7, 0.25, 0.45, 0.4).verdict, "cpu_contended");
    assert_eq!(beside(0.5, 0.5, 1.2, 0.0).verdict, "cpu_contended");
}

/// Returns a load whose subject wakes its threads by futexes, and whose threads sleep in these functions.
fn locking_run(sleeps: &[(&str, f64)], uninterruptible: f64) -> Run {
    let mut run = run(32, 4 * MS);
    set_subject_cpus(&mut run, 0.6, 0.3, 4);
    run.baseline =
        Some(Baseline { good: 100, duration_s: 1.0, mean_ns: 2e5, p50_ns: 200_000, ..Baseline::default() });
    let rate = run.rates.responses_per_s;
    run.observed[0].calls.push(record::observed::CallCount {
        role: "subject".to_owned(),
        call: "futex".to_owned(),
        count: (rate * 20.0) as u64,
        length_s: 10.0,
        ..Default::default()
    });
    change_samples(&mut run, |sample| {
        let sleeps = sleeps.iter().map(|(name, threads)| ((*name).to_owned(), *threads));
        sample.roles[1].threads_asleep = Some(sleeps.collect());
        sample.roles[1].threads_in_disk_sleep = uninterruptible;
        sample.roles[1].voluntary_switches_per_s = rate * 4.0;
        sample.roles[1].disk_write_bytes_per_s = Some(500_000.0);
    });
    run
}

#[test]
fn storage_waits_behind_the_lock_of_an_inode_are_no_lock_of_the_program() {
    let names_lock = |run: &Run| {
        let diagnosis = diagnose(run);
        let others = diagnosis.alternatives.iter().map(|alternative| alternative.verdict.clone());
        std::iter::once(diagnosis.verdict.clone()).chain(others).any(|code| code == "lock_contention")
    };
    // A lock of the program, and one of the memory map, without a disk.
    assert_first(&locking_run(&[("futex_do_wait", 3.0)], 0.0), "lock_contention");
    assert!(names_lock(&locking_run(&[("rwsem_down_read_slowpath", 2.0), ("futex_do_wait", 1.0)], 0.0)));
    // Threads that write one file with O_SYNC, as Linux 6.18 shows them, and as one that names the lock.
    let synced = [
        ("folio_wait_bit", 1.69),
        ("inode_wait_for_writeback", 0.68),
        ("submit_bio_wait", 0.34),
        ("ext4_buffered_write_iter", 0.27),
        ("ext4_da_get_block_prep", 0.18),
    ];
    let named = [("folio_wait_bit", 1.0), ("rwsem_down_write_slowpath", 2.1)];
    for sleeps in [&synced[..], &named] {
        let run = locking_run(sleeps, 3.1);
        assert_first(&run, "log_write_bound");
        assert!(!names_lock(&run), "{:#?}", diagnose(&run));
    }
    // One thread writes while it holds a lock of the program: the disk is the cause.
    let held = locking_run(&[("folio_wait_bit", 0.9), ("futex_do_wait", 3.0)], 0.0);
    assert!(!names_lock(&held));
}
