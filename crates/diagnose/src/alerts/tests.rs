//! Tests of every rule: one machine on which it holds, and a similar one on which it does not. A
//! calm machine has no alerts.

use std::collections::BTreeMap;

use record::observed::{
    CgroupUse, ConnectionEnd, ConntrackUse, CpuUse, DiskUse, EndQueues, LinkUse, ListenerQueue,
    MachineObservation, MachineSample, NamespaceUse, Pressure, QdiscUse, QueueSnapshot, Role, RoleUse,
    ThreadCpuUse, UnobservableMetric, WakeupLag,
};

use super::measurements::counter as counter_of;
use super::places::threads;
use super::screen::percent;
use super::*;

const TEST_WINDOWS: ScreenWindows = ScreenWindows { display_s: 1.0, rule_s: 10.0 };

/// A machine with two CPUs under a light load.
fn calm_machine() -> MachineObservation {
    let role = |name: &str| Role {
        name: name.to_owned(),
        pids: vec![10],
        command: "server".to_owned(),
        cpus_allowed: 2,
        ..Role::default()
    };
    let settings =
        [("net.ipv4.ip_local_port_range", "32768 60999"), ("net.ipv4.tcp_mem", "10000\t20000\t30000")];
    MachineObservation {
        host: "here".to_owned(),
        cpus: 2,
        roles: vec![role("subject"), role("origin")],
        settings: settings.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        samples: (1..=10).map(|second| sample(f64::from(second))).collect(),
        queues: (1..=50).map(|fifth| queues(f64::from(fifth) / 5.0)).collect(),
        cost_cpus: 0.005,
        ..MachineObservation::default()
    }
}

fn sample(time_s: f64) -> MachineSample {
    let cpu = |cpu| CpuUse {
        cpu,
        user: 0.2,
        system: 0.2,
        softirq: 0.1,
        idle: 0.5,
        packets_per_s: 1e4,
        ..CpuUse::default()
    };
    let thread =
        |tid| ThreadCpuUse { tid, name: "worker".to_owned(), cpu: 0, busy: 0.4, waiting: Some(0.01) };
    let role = RoleUse {
        processes: 1,
        user_cpus: 0.4,
        system_cpus: 0.4,
        threads: vec![thread(10), thread(11)],
        threads_total: 5,
        descriptors: Some(100),
        descriptors_max: Some(1024),
        disk_write_bytes_per_s: Some(1e5),
        cgroup: Some(CgroupUse {
            quota_cpus: Some(2.0),
            period_s: Some(0.1),
            throttled_periods: Some(0.0),
            memory_bytes: Some(1 << 20),
            memory_max_bytes: Some(1 << 30),
            memory_max_hits_per_s: Some(0.0),
            disk_write_max_bytes_per_s: Some(1e6),
            ..CgroupUse::default()
        }),
        ..RoleUse::default()
    };
    let counters = [("Tcp.OutSegs", 1e4), ("Tcp.InSegs", 1e4), ("Tcp.PassiveOpens", 3.0)];
    MachineSample {
        time_s,
        length_s: 1.0,
        cpus: vec![cpu(0), cpu(1)],
        context_switches_per_s: Some(5e4),
        forks_per_s: Some(3.0),
        runnable: Some(2),
        foreign_cpus: Some(0.1),
        roles: vec![role.clone(), role],
        namespaces: vec![NamespaceUse {
            roles: vec!["subject".to_owned(), "origin".to_owned()],
            counters: counters.map(|(name, per_s)| (name.to_owned(), per_s)).into(),
            tcp_memory_pages: 100,
            ..NamespaceUse::default()
        }],
        links: vec![LinkUse {
            name: "eth0".to_owned(),
            role: "subject".to_owned(),
            rx_bytes_per_s: 1e6,
            tx_bytes_per_s: 1e7,
            speed_bits_per_s: Some(1e9),
            queues: vec![QdiscUse {
                kind: "tbf".to_owned(),
                rate_bits_per_s: Some(1e8),
                ..QdiscUse::default()
            }],
            ..LinkUse::default()
        }],
        pressure: Some(Pressure::default()),
        conntrack: Some(ConntrackUse { entries: 10, entries_max: 1000, ..ConntrackUse::default() }),
        wakeup_lags: vec![WakeupLag {
            cpu: 0,
            lag_p50_ns: 60_000,
            lag_p99_ns: 200_000,
            lag_max_ns: 1_000_000,
        }],
    }
}

fn queues(time_s: f64) -> QueueSnapshot {
    let end = |end| EndQueues {
        port: 80,
        end,
        states: [("established".to_owned(), 100)].into(),
        rtt_us: 100.0,
        rtt_min_us: 50.0,
        busy_us: (time_s * 1e6) as u64,
        ..EndQueues::default()
    };
    let listener = ListenerQueue { port: 80, backlog: 511, sockets: 1, ..ListenerQueue::default() };
    QueueSnapshot {
        time_s,
        listeners: vec![listener],
        ends: vec![end(ConnectionEnd::Client), end(ConnectionEnd::Server)],
        ..QueueSnapshot::default()
    }
}

type Change = fn(&mut MachineObservation, f64);

fn for_each_sample(observed: &mut MachineObservation, change: impl Fn(&mut MachineSample)) {
    observed.samples.iter_mut().for_each(change);
}

fn insert<T>(map: &mut BTreeMap<String, T>, name: &str, value: T) {
    map.insert(name.to_owned(), value);
}

fn counter(observed: &mut MachineObservation, name: &str, per_s: f64) {
    for_each_sample(observed, |sample| insert(&mut sample.namespaces[0].counters, name, per_s));
}

fn role(observed: &mut MachineObservation, change: impl Fn(&mut RoleUse)) {
    for_each_sample(observed, |sample| change(&mut sample.roles[0]));
}

fn cgroup(observed: &mut MachineObservation, change: impl Fn(&mut CgroupUse)) {
    role(observed, |role| change(role.cgroup.as_mut().unwrap()));
}

fn cpu(observed: &mut MachineObservation, change: impl Fn(&mut CpuUse)) {
    for_each_sample(observed, |sample| change(&mut sample.cpus[0]));
}

fn link(observed: &mut MachineObservation, change: impl Fn(&mut LinkUse)) {
    for_each_sample(observed, |sample| change(&mut sample.links[0]));
}

/// Changes the client's end of the connections (0) or the server's (1).
fn end(observed: &mut MachineObservation, index: usize, change: impl Fn(&mut EndQueues)) {
    observed.queues.iter_mut().for_each(|queues| change(&mut queues.ends[index]));
}

fn listener(observed: &mut MachineObservation, change: impl Fn(&mut ListenerQueue)) {
    observed.queues.iter_mut().for_each(|queues| change(&mut queues.listeners[0]));
}

/// Code, a figure at which the rule holds, one at which it does not, and the field to set.
const CASES: &[(&str, f64, f64, Change)] = &[
    ("accept_queue_overflow", 1.0, 0.0, |o, v| counter(o, "TcpExt.ListenOverflows", v)),
    ("accept_queue_full", 1.0, 0.0, |o, v| listener(o, |listener| listener.full = v as u32)),
    ("syn_queue_overflow", 1.0, 0.0, |o, v| counter(o, "TcpExt.SyncookiesSent", v)),
    ("syn_queue_full", 511.0, 510.0, |o, v| {
        end(o, 1, |end| insert(&mut end.states, "syn-recv", v as u64));
    }),
    ("fd_limit", 980.0, 900.0, |o, v| role(o, |role| role.descriptors = Some(v as u64))),
    ("ended", 0.0, 1.0, |o, v| role(o, |role| role.processes = v as u32)),
    ("conntrack_full", 960.0, 940.0, |o, v| {
        for_each_sample(o, |sample| sample.conntrack.as_mut().unwrap().entries = v as u64);
    }),
    ("conntrack_drops", 1.0, 0.0, |o, v| {
        for_each_sample(o, |sample| sample.conntrack.as_mut().unwrap().early_drops_per_s = v);
    }),
    ("ports_exhausted", 26_000.0, 25_000.0, |o, v| {
        end(o, 0, |end| insert(&mut end.states, "time-wait", v as u64));
    }),
    ("backlog_drops", 1.0, 0.0, |o, v| cpu(o, |cpu| cpu.backlog_drops_per_s = v)),
    ("allowance_exceeded", 1.0, 0.0, |o, v| {
        link(o, |link| insert(&mut link.driver, "pps_allowance_exceeded", v));
    }),
    ("out_of_memory", 1.0, 0.0, |o, v| counter(o, "TcpExt.TCPMemoryPressures", v)),
    ("tcp_memory", 20_001.0, 20_000.0, |o, v| {
        for_each_sample(o, |sample| sample.namespaces[0].tcp_memory_pages = v as u64);
    }),
    ("memory_limit", 0.96, 0.94, |o, v| {
        // File cache is charged to the group as well, and is reclaimed first.
        cgroup(o, |group| group.memory_bytes = Some(1 << 30));
        role(o, |role| role.resident_bytes = Some((v * f64::from(1 << 30)) as u64));
    }),
    ("memory_limit_hits", 1.0, 0.0, |o, v| cgroup(o, |g| g.memory_max_hits_per_s = Some(v))),
    ("throttled", 0.06, 0.05, |o, v| cgroup(o, |group| group.throttled_periods = Some(v))),
    ("link_saturated", 0.96, 0.94, |o, v| link(o, |link| link.tx_bytes_per_s = v * 1e8 / 8.0)),
    ("queue_delay", 0.11, 0.09, |o, v| {
        link(o, |link| link.queues[0].backlog_bytes = (v * 1e8 / 8.0) as u64);
    }),
    ("softirq_one_cpu", 0.61, 0.6, |o, v| cpu(o, |cpu| cpu.softirq = v)),
    ("steal", 0.11, 0.1, |o, v| cpu(o, |cpu| cpu.steal = v)),
    ("one_thread", 0.96, 0.95, |o, v| role(o, |role| role.threads[0].busy = v)),
    ("disk_limit", 0.91e6, 0.9e6, |o, v| role(o, |r| r.disk_write_bytes_per_s = Some(v))),
    ("thread_busy", 0.96, 0.95, |o, v| {
        role(o, |role| role.threads.iter_mut().for_each(|thread| thread.busy = v));
    }),
    ("process_busy", 1.41, 1.4, |o, v| role(o, |role| role.user_cpus = v)),
    ("machine_busy", 0.96, 0.94, |o, v| {
        for_each_sample(o, |sample| sample.cpus.iter_mut().for_each(|cpu| cpu.idle = 1.0 - v));
    }),
    ("run_queue", 0.17, 0.14, |o, v| role(o, |role| role.threads[0].waiting = Some(v))),
    ("unread_server", 51.0, 50.0, |o, v| end(o, 1, |end| end.with_unread = v as u64)),
    ("unread_client", 51.0, 50.0, |o, v| end(o, 0, |end| end.with_unread = v as u64)),
    ("accept_queue_half_full", 256.0, 255.0, |o, v| listener(o, |l| l.waiting = v as u32)),
    ("retransmits", 11.0, 10.0, |o, v| counter(o, "Tcp.RetransSegs", v)),
    ("timeouts", 0.1, 0.0, |o, v| counter(o, "TcpExt.TCPTimeouts", v)),
    ("resets", 1.1, 1.0, |o, v| counter(o, "Tcp.EstabResets", v)),
    ("time_wait_overflow", 0.1, 0.0, |o, v| counter(o, "TcpExt.TCPTimeWaitOverflow", v)),
    ("receive_queue_drops", 0.1, 0.0, |o, v| counter(o, "TcpExt.TCPRcvQDrop", v)),
    ("delayed_acks", 101.0, 100.0, |o, v| counter(o, "TcpExt.DelayedACKs", v)),
    ("link_drops", 0.1, 0.0, |o, v| link(o, |link| link.queues[0].drops_per_s = v)),
    ("time_squeeze", 0.1, 0.0, |o, v| cpu(o, |cpu| cpu.time_squeezes_per_s = v)),
    ("steal_notice", 0.03, 0.02, |o, v| cpu(o, |cpu| cpu.steal = v)),
    ("window_limited", 0.21, 0.19, |o, v| {
        end(o, 1, |end| end.receive_window_limited_us = (end.busy_us as f64 * v) as u64);
    }),
    ("send_buffer_limited", 0.21, 0.19, |o, v| {
        end(o, 1, |end| end.send_buffer_limited_us = (end.busy_us as f64 * v) as u64);
    }),
    ("bufferbloat", 5.1, 5.0, |o, v| {
        end(o, 1, |end| {
            end.rtt_min_us = 300.0;
            end.rtt_us = 300.0 * v;
            end.not_sent_bytes = 1;
        });
    }),
    ("fd_limit_near", 820.0, 819.0, |o, v| role(o, |r| r.descriptors = Some(v as u64))),
    ("disk_sleep", 0.3, 0.25, |o, v| role(o, |role| role.threads_in_disk_sleep = v)),
    ("disk_pressure", 0.11, 0.1, |o, v| for_each_sample(o, |s| s.pressure.as_mut().unwrap().io_full = v)),
    ("memory_pressure", 0.11, 0.1, |o, v| {
        for_each_sample(o, |sample| sample.pressure.as_mut().unwrap().memory_some = v);
    }),
    ("major_faults", 11.0, 10.0, |o, v| role(o, |role| role.major_faults_per_s = v)),
    ("other_processes", 0.41, 0.4, |o, v| for_each_sample(o, |sample| sample.foreign_cpus = Some(v))),
    ("wakeup_latency", 4.1e6, 4e6, |o, v| for_each_sample(o, |s| s.wakeup_lags[0].lag_p99_ns = v as u64)),
    ("receive_buffer_full", 1.0, 0.0, |o, v| counter(o, "TcpExt.PruneCalled", v)),
    ("send_queue_large", 17_000_000.0, 16_000_000.0, |o, v| {
        end(o, 1, |end| end.not_sent_bytes = v as u64);
    }),
];

/// Returns the codes of a machine's alerts.
fn rule_codes(observed: &MachineObservation) -> Vec<&'static str> {
    let view = Places::over_last(observed, TEST_WINDOWS.rule_s);
    evaluate_rules(&view).iter().map(|finding| finding.rule.code).collect()
}

#[test]
fn a_calm_machine_has_no_mark() {
    assert_eq!(rule_codes(&calm_machine()), [""; 0]);
    let screen = screen(&calm_machine(), TEST_WINDOWS);
    assert_eq!(screen.severity, Severity::Normal);
    assert_eq!(screen.lines[0].label, "calm");
    assert!(screen.lines[0].cells[0].text.ends_with(" 10 s"), "{:?}", screen.lines[0]);
    assert!(screen.lines.iter().all(|line| line.severity == Severity::Normal && line.reason.is_none()));
}

#[test]
fn every_rule_holds_when_it_should_and_only_then() {
    for rule in RULES {
        let cases: Vec<_> = CASES.iter().filter(|(code, ..)| *code == rule.code).collect();
        let [(code, hit, miss, change)] = cases[..] else {
            panic!("{}: {} cases", rule.code, cases.len());
        };
        let mut observed = calm_machine();
        change(&mut observed, *miss);
        assert!(!rule_codes(&observed).contains(code), "{code} at {miss}");
        let mut observed = calm_machine();
        change(&mut observed, *hit);
        assert!(rule_codes(&observed).contains(code), "{code} at {hit}: {:?}", rule_codes(&observed));
    }
    assert_eq!(CASES.len(), RULES.len());
}

#[test]
fn what_a_rule_finds_is_a_sentence_and_marks_its_line() {
    for (code, hit, _, change) in CASES {
        let mut observed = calm_machine();
        change(&mut observed, *hit);
        let view = Places::over_last(&observed, TEST_WINDOWS.rule_s);
        let findings = evaluate_rules(&view);
        let finding = findings.iter().find(|finding| finding.rule.code == *code).unwrap();
        let sentence = &finding.sentence;
        assert!(sentence.ends_with('.') && !sentence.contains(['{', '}']), "{sentence}");
        assert!(sentence.len() < 240 && !sentence.contains("  "), "{sentence}");
        assert!(sentence.contains(|c: char| c.is_ascii_digit()), "{sentence}");
        let screen = screen(&observed, TEST_WINDOWS);
        let on_top = screen.lines.iter().take_while(|line| line.section == ScreenSection::Now);
        assert!(on_top.into_iter().any(|line| line.cells[0].text.starts_with(sentence)), "{code}");
        let line = screen
            .lines
            .iter()
            .find(|line| line.section == finding.section && line.label == finding.label)
            .unwrap_or_else(|| panic!("{code}: no line {}", finding.label));
        assert!(line.severity >= finding.rule.severity && line.reason.is_some(), "{code}");
    }
}

/// A machine with one CPU, of which a watch at short intervals takes most.
#[test]
fn the_watch_itself_is_never_another_process() {
    let watched_by = |own_cpus: f64, others: f64| {
        let mut observed = calm_machine();
        observed.cost_cpus = own_cpus;
        for_each_sample(&mut observed, |sample| sample.foreign_cpus = Some(own_cpus + others));
        observed
    };
    for own_cpus in [0.1, 0.5, 1.0, 1.9] {
        let observed = watched_by(own_cpus, 0.02);
        assert_eq!(rule_codes(&observed), [""; 0], "{own_cpus}");
        let screen = screen(&observed, TEST_WINDOWS);
        let texts = screen.lines.iter().flat_map(|line| &line.cells).map(|cell| cell.text.as_str());
        assert!(
            texts.clone().any(|text| text == "0.02"),
            "the CPUs of others: {:?}",
            texts.collect::<Vec<_>>()
        );
        assert_eq!(screen.severity, Severity::Normal, "{own_cpus}");
    }
    assert_eq!(rule_codes(&watched_by(0.5, 0.9)), ["other_processes"]);
}

#[test]
fn the_worst_comes_first_and_is_reported_once() {
    let mut observed = calm_machine();
    cpu(&mut observed, |cpu| cpu.steal = 0.2);
    counter(&mut observed, "TcpExt.TCPTimeouts", 1.0);
    counter(&mut observed, "TcpExt.ListenOverflows", 1.0);
    assert_eq!(rule_codes(&observed), ["accept_queue_overflow", "steal", "timeouts"]);
    assert_eq!(screen(&observed, TEST_WINDOWS).severity, Severity::Alarm);
}

#[test]
fn a_finding_of_several_lines_is_reported_once_on_top() {
    let mut observed = calm_machine();
    for_each_sample(&mut observed, |sample| {
        sample.cpus[0].steal = 0.03;
        sample.cpus[1].steal = 0.05;
    });
    let screen = screen(&observed, TEST_WINDOWS);
    let now: Vec<&ScreenLine> =
        screen.lines.iter().filter(|line| line.section == ScreenSection::Now).collect();
    assert_eq!(now.len(), 1);
    let text = &now[0].cells[0].text;
    assert!(text.contains("5.0 % of cpu1") && text.ends_with("Also: cpu0."), "{text}");
    let marked = screen.lines.iter().filter(|line| line.severity == Severity::Notice).count();
    assert_eq!(marked, 3);
    assert_eq!(others_text(&["a", "b", "c", "d", "e"]), " Also: a, b, c and 2 more.");
}

#[test]
fn a_short_event_is_marked_while_it_is_in_the_window() {
    let mut observed = calm_machine();
    observed.samples[2].namespaces[0].counters.insert("TcpExt.ListenOverflows".into(), 5.0);
    assert_eq!(rule_codes(&observed), ["accept_queue_overflow"]);
    let view = Places::over_last(&observed, 10.0);
    let mean = counter_of(&view.namespaces[0], &["TcpExt.ListenOverflows"]);
    assert!((mean - 0.5).abs() < 1e-9, "{mean}");
    assert!(evaluate_rules(&Places::over_last(&observed, 3.0)).is_empty());
}

#[test]
fn unobservable_figures_are_listed_and_never_marked() {
    let observed = MachineObservation {
        not_observable: vec![UnobservableMetric { figure: "pressure".into(), reason: "not built in".into() }],
        samples: vec![MachineSample { time_s: 1.0, length_s: 1.0, ..MachineSample::default() }],
        ..MachineObservation::default()
    };
    let screen = screen(&observed, LIVE_WINDOWS);
    assert_eq!(screen.severity, Severity::Normal);
    let last = screen.lines.last().unwrap();
    assert_eq!((last.section, last.label.as_str()), (ScreenSection::NotObservable, "pressure"));
    assert_eq!(last.cells[0].text, "not built in");
    assert!(screen.lines.iter().all(|line| line.utilization.is_none_or(f64::is_finite)));
}

#[test]
fn an_empty_observation_has_a_screen() {
    let screen = screen(&MachineObservation::default(), LIVE_WINDOWS);
    assert_eq!((screen.severity, screen.lines.len()), (Severity::Normal, 1));
    let only = &screen.lines[0];
    assert_eq!((only.section, only.label.as_str(), only.cells.len()), (ScreenSection::Now, "", 1));
}

#[test]
fn lines_show_the_last_second_and_their_history() {
    let mut observed = calm_machine();
    (observed.samples[9].cpus[0].user, observed.samples[9].cpus[0].idle) = (0.7, 0.0);
    let screen = screen(&observed, LIVE_WINDOWS);
    let line = screen.lines.iter().find(|line| line.label == "cpu0").unwrap();
    assert_eq!(line.cells[0], ScreenCell { name: "busy", text: "100 %".to_owned() });
    assert_eq!((line.history.len(), line.parts[0]), (10, (BarPart::User, 0.7)));
    assert!((line.history[8] - 0.5).abs() < 1e-9 && (line.history[9] - 1.0).abs() < 1e-9);
}

#[test]
fn disk_use_of_a_cgroup_and_retransmits_are_shown() {
    let mut observed = calm_machine();
    let cell = |observed: &MachineObservation, name: &str| -> Vec<String> {
        let screen = screen(observed, LIVE_WINDOWS);
        let expected = [ScreenSection::Processes, ScreenSection::Sockets];
        let lines = screen.lines.into_iter().filter(|line| expected.contains(&line.section));
        lines.flat_map(|line| line.cells).filter(|cell| cell.name == name).map(|cell| cell.text).collect()
    };
    assert_eq!(cell(&observed, "cgroup io"), ["-", "-"]);
    assert_eq!(cell(&observed, "retransmits"), ["0", "0"]);
    for (index, sample) in observed.samples.iter_mut().enumerate() {
        let disk = DiskUse { read_bytes_per_s: 1e6, written_bytes_per_s: 2e6, ..DiskUse::default() };
        // The first sample has no earlier one to count from.
        sample.roles[0].cgroup.as_mut().unwrap().disk = (index > 0).then_some(disk);
    }
    let last = observed.queues.len() as u64;
    for (index, queues) in observed.queues.iter_mut().enumerate() {
        let end = &mut queues.ends[0];
        end.retransmitted = index as u64 + 1;
        end.retransmitted_bytes = Some((index as u64 + 1) * 1000);
        end.duplicates = Some(u64::from(index as u64 + 1 == last));
    }
    assert_eq!(cell(&observed, "cgroup io")[0], "977 KiB/s read 1.91 MiB/s written");
    let retransmits = &cell(&observed, "retransmits")[0];
    assert!(retransmits.contains(" of ") && retransmits.ends_with(", 1 spurious"), "{retransmits}");
}

#[test]
fn threads_of_all_samples_are_put_together() {
    let mut observed = calm_machine();
    for sample in &mut observed.samples[5..] {
        sample.roles[0].threads[1].tid = 12;
    }
    let view = Places::over_last(&observed, 10.0);
    let threads: Vec<(i32, f64)> =
        threads(&view.roles[0]).iter().map(|thread| (thread.tid, thread.busy)).collect();
    assert_eq!(threads.len(), 3);
    assert!((threads[0].1 - 0.4).abs() < 1e-9 && (threads[2].1 - 0.2).abs() < 1e-9, "{threads:?}");
}

#[test]
fn percentages_are_short() {
    for (fraction, text) in [(0.0, "0 %"), (0.0012, "0.12 %"), (0.034, "3.4 %"), (0.97, "97 %")] {
        assert_eq!(percent(fraction), text);
    }
}
