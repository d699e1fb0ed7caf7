//! Every rule has a machine on which it speaks and one, close to it, on which it is silent; a calm
//! machine has no mark at all.

use std::collections::BTreeMap;

use record::observed::{
    CanaryUse, CgroupUse, ConntrackUse, CpuUse, DiskUse, End, EndQueues, LinkUse, ListenerQueue,
    Missing, NamespaceUse, Observed, Pressure, QdiscUse, QueueSnapshot, Role, RoleUse, Sample,
    ThreadUse,
};

use super::*;

const JUDGED: Spans = Spans { shown_s: 1.0, judged_s: 10.0 };

/// A machine with two processors that carries a little.
fn calm() -> Observed {
    let role = |name: &str| Role {
        name: name.to_owned(),
        pids: vec![10],
        command: "server".to_owned(),
        cpus_allowed: 2,
    };
    let settings = [
        ("net.ipv4.ip_local_port_range", "32768 60999"),
        ("net.ipv4.tcp_mem", "10000\t20000\t30000"),
    ];
    Observed {
        host: "here".to_owned(),
        cpus: 2,
        roles: vec![role("subject"), role("origin")],
        settings: settings.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        samples: (1..=10).map(|second| sample(f64::from(second))).collect(),
        queues: (1..=50).map(|fifth| queues(f64::from(fifth) / 5.0)).collect(),
        cost_cpus: 0.005,
        ..Observed::default()
    }
}

fn sample(time_s: f64) -> Sample {
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
        |tid| ThreadUse { tid, name: "worker".to_owned(), cpu: 0, busy: 0.4, waiting: Some(0.01) };
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
    Sample {
        time_s,
        length_s: 1.0,
        cpus: vec![cpu(0), cpu(1)],
        context_switches_per_s: Some(5e4),
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
            of_role: "subject".to_owned(),
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
        canaries: vec![CanaryUse {
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
        ends: vec![end(End::Client), end(End::Server)],
        ..QueueSnapshot::default()
    }
}

type Change = fn(&mut Observed, f64);

fn each(observed: &mut Observed, change: impl Fn(&mut Sample)) {
    observed.samples.iter_mut().for_each(change);
}

fn put<T>(map: &mut BTreeMap<String, T>, name: &str, value: T) {
    map.insert(name.to_owned(), value);
}

fn counter(observed: &mut Observed, name: &str, per_s: f64) {
    each(observed, |sample| put(&mut sample.namespaces[0].counters, name, per_s));
}

fn role(observed: &mut Observed, change: impl Fn(&mut RoleUse)) {
    each(observed, |sample| change(&mut sample.roles[0]));
}

fn group(observed: &mut Observed, change: impl Fn(&mut CgroupUse)) {
    role(observed, |role| change(role.cgroup.as_mut().unwrap()));
}

fn cpu(observed: &mut Observed, change: impl Fn(&mut CpuUse)) {
    each(observed, |sample| change(&mut sample.cpus[0]));
}

fn link(observed: &mut Observed, change: impl Fn(&mut LinkUse)) {
    each(observed, |sample| change(&mut sample.links[0]));
}

/// The client's end of the connections (0) or the server's (1).
fn end(observed: &mut Observed, at: usize, change: impl Fn(&mut EndQueues)) {
    observed.queues.iter_mut().for_each(|queues| change(&mut queues.ends[at]));
}

fn listener(observed: &mut Observed, change: impl Fn(&mut ListenerQueue)) {
    observed.queues.iter_mut().for_each(|queues| change(&mut queues.listeners[0]));
}

/// Code, a figure at which the rule holds, one at which it does not, and where to put it.
const CASES: &[(&str, f64, f64, Change)] = &[
    ("accept_queue_overflow", 1.0, 0.0, |o, v| counter(o, "TcpExt.ListenOverflows", v)),
    ("accept_queue_full", 1.0, 0.0, |o, v| listener(o, |listener| listener.full = v as u32)),
    ("syn_queue_overflow", 1.0, 0.0, |o, v| counter(o, "TcpExt.SyncookiesSent", v)),
    ("syn_queue_full", 511.0, 510.0, |o, v| {
        end(o, 1, |end| put(&mut end.states, "syn-recv", v as u64));
    }),
    ("descriptors_gone", 980.0, 900.0, |o, v| role(o, |role| role.descriptors = Some(v as u64))),
    ("ended", 0.0, 1.0, |o, v| role(o, |role| role.processes = v as u32)),
    ("conntrack_full", 960.0, 940.0, |o, v| {
        each(o, |sample| sample.conntrack.as_mut().unwrap().entries = v as u64);
    }),
    ("conntrack_drops", 1.0, 0.0, |o, v| {
        each(o, |sample| sample.conntrack.as_mut().unwrap().early_drops_per_s = v);
    }),
    ("ports_gone", 26_000.0, 25_000.0, |o, v| {
        end(o, 0, |end| put(&mut end.states, "time-wait", v as u64));
    }),
    ("backlog_drops", 1.0, 0.0, |o, v| cpu(o, |cpu| cpu.backlog_drops_per_s = v)),
    ("allowance_exceeded", 1.0, 0.0, |o, v| {
        link(o, |link| put(&mut link.driver, "pps_allowance_exceeded", v));
    }),
    ("out_of_memory", 1.0, 0.0, |o, v| counter(o, "TcpExt.PruneCalled", v)),
    ("tcp_memory", 20_001.0, 20_000.0, |o, v| {
        each(o, |sample| sample.namespaces[0].tcp_memory_pages = v as u64);
    }),
    ("memory_bound", 0.96, 0.94, |o, v| {
        group(o, |group| group.memory_bytes = Some((v * f64::from(1 << 30)) as u64));
    }),
    ("memory_bound_hits", 1.0, 0.0, |o, v| group(o, |g| g.memory_max_hits_per_s = Some(v))),
    ("throttled", 0.06, 0.05, |o, v| group(o, |group| group.throttled_periods = Some(v))),
    ("link_full", 0.96, 0.94, |o, v| link(o, |link| link.tx_bytes_per_s = v * 1e8 / 8.0)),
    ("queue_delay", 0.11, 0.09, |o, v| {
        link(o, |link| link.queues[0].backlog_bytes = (v * 1e8 / 8.0) as u64);
    }),
    ("softirq_one_cpu", 0.61, 0.6, |o, v| cpu(o, |cpu| cpu.softirq = v)),
    ("steal", 0.11, 0.1, |o, v| cpu(o, |cpu| cpu.steal = v)),
    ("one_thread", 0.96, 0.95, |o, v| role(o, |role| role.threads[0].busy = v)),
    ("disk_bound", 0.91e6, 0.9e6, |o, v| role(o, |r| r.disk_write_bytes_per_s = Some(v))),
    ("thread_busy", 0.96, 0.95, |o, v| {
        role(o, |role| role.threads.iter_mut().for_each(|thread| thread.busy = v));
    }),
    ("program_busy", 1.41, 1.4, |o, v| role(o, |role| role.user_cpus = v)),
    ("machine_busy", 0.66, 0.64, |o, v| {
        each(o, |sample| sample.cpus.iter_mut().for_each(|cpu| cpu.user = v));
    }),
    ("run_queue", 0.17, 0.14, |o, v| role(o, |role| role.threads[0].waiting = Some(v))),
    ("unread_server", 51.0, 50.0, |o, v| end(o, 1, |end| end.with_unread = v as u64)),
    ("unread_client", 51.0, 50.0, |o, v| end(o, 0, |end| end.with_unread = v as u64)),
    ("backlog_half", 256.0, 255.0, |o, v| listener(o, |l| l.waiting = v as u32)),
    ("retransmits", 11.0, 10.0, |o, v| counter(o, "Tcp.RetransSegs", v)),
    ("timeouts", 0.1, 0.0, |o, v| counter(o, "TcpExt.TCPTimeouts", v)),
    ("resets", 1.1, 1.0, |o, v| counter(o, "Tcp.EstabResets", v)),
    ("time_wait_overflow", 0.1, 0.0, |o, v| counter(o, "TcpExt.TCPTimeWaitOverflow", v)),
    ("receive_queue_drops", 0.1, 0.0, |o, v| counter(o, "TcpExt.TCPRcvQDrop", v)),
    ("delayed_acks", 101.0, 100.0, |o, v| counter(o, "TcpExt.DelayedACKs", v)),
    ("link_drops", 0.1, 0.0, |o, v| link(o, |link| link.queues[0].drops_per_s = v)),
    ("time_squeeze", 0.1, 0.0, |o, v| cpu(o, |cpu| cpu.time_squeezes_per_s = v)),
    ("steal_some", 0.03, 0.02, |o, v| cpu(o, |cpu| cpu.steal = v)),
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
    ("descriptors_few", 820.0, 819.0, |o, v| role(o, |r| r.descriptors = Some(v as u64))),
    ("disk_sleep", 1.0, 0.0, |o, v| role(o, |role| role.threads_in_disk_sleep = v as u32)),
    ("disk_pressure", 0.11, 0.1, |o, v| each(o, |s| s.pressure.as_mut().unwrap().io_full = v)),
    ("memory_pressure", 0.11, 0.1, |o, v| {
        each(o, |sample| sample.pressure.as_mut().unwrap().memory_some = v);
    }),
    ("major_faults", 11.0, 10.0, |o, v| role(o, |role| role.major_faults_per_s = v)),
    ("others", 0.41, 0.4, |o, v| each(o, |sample| sample.foreign_cpus = Some(v))),
    ("wake_up_lag", 4.1e6, 4e6, |o, v| each(o, |s| s.canaries[0].lag_p99_ns = v as u64)),
    ("watching_costs", 0.011, 0.01, |o, v| o.cost_cpus = v),
    ("unsent_much", 17_000_000.0, 16_000_000.0, |o, v| {
        end(o, 1, |end| end.not_sent_bytes = v as u64);
    }),
];

/// The codes that a machine is marked with.
fn found(observed: &Observed) -> Vec<&'static str> {
    let view = view::View::new(observed, JUDGED.judged_s);
    rules::find(&view).iter().map(|finding| finding.rule.code).collect()
}

#[test]
fn a_calm_machine_has_no_mark() {
    assert_eq!(found(&calm()), [""; 0]);
    let screen = screen(&calm(), JUDGED);
    assert_eq!(screen.mark, Mark::Calm);
    assert_eq!(screen.lines[0].cells[0].text, "nothing stands out in the last 10 s");
    assert!(screen.lines.iter().all(|line| line.mark == Mark::Calm && line.why.is_none()));
}

#[test]
fn every_rule_speaks_when_it_should_and_only_then() {
    for rule in RULES {
        let cases: Vec<_> = CASES.iter().filter(|(code, ..)| *code == rule.code).collect();
        let [(code, hit, miss, change)] = cases[..] else {
            panic!("{}: {} cases", rule.code, cases.len());
        };
        let mut observed = calm();
        change(&mut observed, *miss);
        assert!(!found(&observed).contains(code), "{code} at {miss}");
        let mut observed = calm();
        change(&mut observed, *hit);
        assert!(found(&observed).contains(code), "{code} at {hit}: {:?}", found(&observed));
    }
    assert_eq!(CASES.len(), RULES.len());
}

#[test]
fn what_a_rule_finds_is_a_sentence_and_marks_its_line() {
    for (code, hit, _, change) in CASES {
        let mut observed = calm();
        change(&mut observed, *hit);
        let view = view::View::new(&observed, JUDGED.judged_s);
        let findings = rules::find(&view);
        let finding = findings.iter().find(|finding| finding.rule.code == *code).unwrap();
        let sentence = &finding.sentence;
        assert!(sentence.ends_with('.') && !sentence.contains(['{', '}']), "{sentence}");
        assert!(sentence.len() < 240 && !sentence.contains("  "), "{sentence}");
        assert!(sentence.contains(|c: char| c.is_ascii_digit()), "{sentence}");
        let screen = screen(&observed, JUDGED);
        let on_top = screen.lines.iter().take_while(|line| line.section == Section::Now);
        assert!(on_top.into_iter().any(|line| line.cells[0].text.starts_with(sentence)), "{code}");
        let line = screen
            .lines
            .iter()
            .find(|line| line.section == finding.section && line.label == finding.label)
            .unwrap_or_else(|| panic!("{code}: no line {}", finding.label));
        assert!(line.mark >= finding.rule.mark && line.why.is_some(), "{code}");
    }
}

#[test]
fn the_worst_comes_first_and_says_it_once() {
    let mut observed = calm();
    cpu(&mut observed, |cpu| cpu.steal = 0.2);
    counter(&mut observed, "TcpExt.TCPTimeouts", 1.0);
    counter(&mut observed, "TcpExt.ListenOverflows", 1.0);
    assert_eq!(found(&observed), ["accept_queue_overflow", "steal", "timeouts"]);
    assert_eq!(screen(&observed, JUDGED).mark, Mark::Alarm);
}

#[test]
fn what_is_true_of_several_lines_is_said_once_on_top() {
    let mut observed = calm();
    each(&mut observed, |sample| {
        sample.cpus[0].steal = 0.03;
        sample.cpus[1].steal = 0.05;
    });
    let screen = screen(&observed, JUDGED);
    let now: Vec<&Line> = screen.lines.iter().filter(|line| line.section == Section::Now).collect();
    assert_eq!(now.len(), 1);
    let text = &now[0].cells[0].text;
    assert!(text.contains("5.0 % of cpu1") && text.ends_with("The same of cpu0."), "{text}");
    let marked = screen.lines.iter().filter(|line| line.mark == Mark::Notice).count();
    assert_eq!(marked, 3);
    assert_eq!(also(&["a", "b", "c", "d", "e"]), " The same of a, b, c and 2 more.");
}

#[test]
fn a_short_event_is_marked_while_it_is_in_the_window() {
    let mut observed = calm();
    observed.samples[2].namespaces[0].counters.insert("TcpExt.ListenOverflows".into(), 5.0);
    assert_eq!(found(&observed), ["accept_queue_overflow"]);
    let view = view::View::new(&observed, 10.0);
    let mean = view.mean.namespaces[0].counters["TcpExt.ListenOverflows"];
    assert!((mean - 0.5).abs() < 1e-9, "{mean}");
    assert!(rules::find(&view::View::new(&observed, 3.0)).is_empty());
}

#[test]
fn what_the_machine_does_not_tell_is_said_and_never_marked() {
    let observed = Observed {
        not_observable: vec![Missing { what: "pressure".into(), why: "not built in".into() }],
        samples: vec![Sample { time_s: 1.0, length_s: 1.0, ..Sample::default() }],
        ..Observed::default()
    };
    let screen = screen(&observed, LIVE);
    assert_eq!(screen.mark, Mark::Calm);
    let last = screen.lines.last().unwrap();
    assert_eq!((last.section, last.label.as_str()), (Section::NotObservable, "pressure"));
    assert_eq!(last.cells[0].text, "not built in");
    assert!(screen.lines.iter().all(|line| line.share.is_none_or(f64::is_finite)));
}

#[test]
fn nothing_seen_yet_is_a_screen_too() {
    let screen = screen(&Observed::default(), LIVE);
    assert_eq!(screen.lines[0].cells[0].text, "the first sample is being taken");
    assert_eq!(screen.lines.len(), 1);
}

#[test]
fn lines_show_the_last_second_and_their_history() {
    let mut observed = calm();
    observed.samples[9].cpus[0].user = 0.7;
    let screen = screen(&observed, LIVE);
    let line = screen.lines.iter().find(|line| line.label == "cpu0").unwrap();
    assert_eq!(line.cells[0], Cell { name: "busy", text: "100 %".to_owned() });
    assert_eq!((line.history.len(), line.parts[0]), (10, (PartKind::User, 0.7)));
    assert!((line.history[8] - 0.5).abs() < 1e-9 && (line.history[9] - 1.0).abs() < 1e-9);
}

#[test]
fn what_a_group_does_with_disks_and_what_was_sent_again_is_shown() {
    let mut observed = calm();
    let cell = |observed: &Observed, name: &str| -> Vec<String> {
        let screen = screen(observed, LIVE);
        let wanted = [Section::Programs, Section::Sockets];
        let lines = screen.lines.into_iter().filter(|line| wanted.contains(&line.section));
        lines
            .flat_map(|line| line.cells)
            .filter(|cell| cell.name == name)
            .map(|cell| cell.text)
            .collect()
    };
    assert_eq!(cell(&observed, "disk of group"), ["-", "-"]);
    assert_eq!(cell(&observed, "sent again"), ["0", "0"]);
    for (place, sample) in observed.samples.iter_mut().enumerate() {
        sample.cpus[0].flow_limit_drops_per_s = Some(2.0);
        let disk =
            DiskUse { read_bytes_per_s: 1e6, written_bytes_per_s: 2e6, ..DiskUse::default() };
        // The first look has none to count from.
        sample.roles[0].cgroup.as_mut().unwrap().disk = (place > 0).then_some(disk);
    }
    let last = observed.queues.len() as u64;
    for (place, queues) in observed.queues.iter_mut().enumerate() {
        let end = &mut queues.ends[0];
        end.retransmitted = place as u64 + 1;
        end.retransmitted_bytes = Some((place as u64 + 1) * 1000);
        end.duplicates = Some(u64::from(place as u64 + 1 == last));
    }
    let mean = view::View::new(&observed, 10.0).mean;
    let disk = mean.roles[0].cgroup.as_ref().unwrap().disk.unwrap();
    assert!((disk.written_bytes_per_s - 2e6).abs() < 1e-6);
    assert_eq!(mean.cpus[0].flow_limit_drops_per_s, Some(2.0));
    assert_eq!(mean.cpus[1].flow_limit_drops_per_s, None);
    assert_eq!(cell(&observed, "disk of group")[0], "977 KiB/s read 1.91 MiB/s written");
    let again = &cell(&observed, "sent again")[0];
    assert!(again.contains(" of ") && again.ends_with(", 1 for nothing"), "{again}");
}

#[test]
fn threads_of_all_samples_are_put_together() {
    let mut observed = calm();
    for sample in &mut observed.samples[5..] {
        sample.roles[0].threads[1].tid = 12;
    }
    let view = view::View::new(&observed, 10.0);
    let threads: Vec<(i32, f64)> =
        view.mean.roles[0].threads.iter().map(|thread| (thread.tid, thread.busy)).collect();
    assert_eq!(threads.len(), 3);
    assert!((threads[0].1 - 0.4).abs() < 1e-9 && (threads[2].1 - 0.2).abs() < 1e-9, "{threads:?}");
}

#[test]
fn percentages_are_short() {
    for (share, text) in [(0.0, "0 %"), (0.0012, "0.12 %"), (0.034, "3.4 %"), (0.97, "97 %")] {
        assert_eq!(percent(share), text);
    }
}
