//! The last part of what was seen, made into one sample and one snapshot: rates are means over the
//! time, levels are the last ones, queues are medians (listening sockets: the fullest moment).

use std::collections::BTreeMap;

use record::observed::{
    CanaryUse, CgroupUse, ConntrackUse, CpuUse, DiskUse, EndQueues, LinkUse, ListenerQueue,
    NamespaceUse, Observed, Pressure, QdiscUse, QueueSnapshot, RoleUse, Sample, ThreadUse,
};

use crate::statistics;

/// What lines and rules read.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// Everything, for histories and settings.
    pub(super) observed: &'a Observed,
    /// The part in one sample.
    pub(super) mean: Sample,
    /// The sockets meanwhile, in one snapshot; `*_us` are differences over the part.
    pub(super) queues: QueueSnapshot,
}

impl<'a> View<'a> {
    /// The last `span_s` seconds, one sample at the least.
    pub(super) fn new(observed: &'a Observed, span_s: f64) -> Self {
        let end_s = observed.samples.last().map_or(0.0, |sample| sample.time_s);
        // Samples are never exactly a second long.
        let start_s = end_s - span_s * 1.05;
        let first = |sample: &Sample| sample.time_s - sample.length_s < start_s;
        let skipped = observed.samples.iter().take_while(|sample| first(sample)).count();
        let last = observed.samples.len().saturating_sub(1);
        let samples = &observed.samples[skipped.min(last)..];
        let skipped = observed.queues.iter().take_while(|queues| queues.time_s < start_s).count();
        let last = observed.queues.len().saturating_sub(1);
        let queues = &observed.queues[skipped.min(last)..];
        Self { observed, mean: mean(samples), queues: middle(queues) }
    }

    /// Processors of the machine that are not idle.
    pub(super) fn busy_cpus(&self) -> f64 {
        self.mean.cpus.iter().map(busy).sum()
    }

    /// The roles with what they used.
    pub(super) fn roles(&self) -> impl Iterator<Item = (&'a record::observed::Role, &RoleUse)> {
        self.observed.roles.iter().zip(&self.mean.roles)
    }

    /// A setting as a number; its field `at`, from 0.
    pub(super) fn setting(&self, name: &str, at: usize) -> Option<f64> {
        self.observed.settings.get(name)?.split_whitespace().nth(at)?.parse().ok()
    }
}

/// Share of the time that a processor did something.
pub(super) fn busy(cpu: &CpuUse) -> f64 {
    cpu.user + cpu.system + cpu.irq + cpu.softirq + cpu.steal
}

/// One sample that stands for several.
fn mean(samples: &[Sample]) -> Sample {
    let Some(last) = samples.last() else {
        return Sample::default();
    };
    if samples.len() == 1 {
        return last.clone();
    }
    let over = Over { samples, length_s: samples.iter().map(|sample| sample.length_s).sum() };
    Sample {
        time_s: last.time_s,
        length_s: over.length_s,
        cpus: last.cpus.iter().map(|cpu| over.cpu(cpu.cpu)).collect(),
        context_switches_per_s: over.option(|sample| sample.context_switches_per_s),
        runnable: last.runnable,
        foreign_cpus: over.option(|sample| sample.foreign_cpus),
        roles: (0..last.roles.len()).map(|at| over.role(at, &last.roles[at])).collect(),
        namespaces: last.namespaces.iter().map(|namespace| over.namespace(namespace)).collect(),
        links: last.links.iter().map(|link| over.link(link)).collect(),
        pressure: last.pressure.map(|_| over.pressure(|sample| sample.pressure.as_ref())),
        conntrack: last.conntrack.map(|conntrack| over.conntrack(conntrack)),
        canaries: last.canaries.iter().map(|canary| over.canary(canary.cpu)).collect(),
    }
}

/// Means over samples, weighted by their lengths.
struct Over<'a> {
    samples: &'a [Sample],
    length_s: f64,
}

impl Over<'_> {
    /// A figure that is 0 where it is absent.
    fn rate(&self, of: impl Fn(&Sample) -> Option<f64>) -> f64 {
        let sum: f64 =
            self.samples.iter().map(|sample| of(sample).unwrap_or(0.0) * sample.length_s).sum();
        if self.length_s > 0.0 { sum / self.length_s } else { 0.0 }
    }

    /// A figure that is unknown where it is absent.
    fn option(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let known = self.samples.iter().filter_map(|sample| Some((of(sample)?, sample.length_s)));
        let (sum, length_s) = known.fold((0.0, 0.0), |(sum, length_s), (value, of_s)| {
            (sum + value * of_s, length_s + of_s)
        });
        (length_s > 0.0).then(|| sum / length_s)
    }

    fn cpu(&self, number: u32) -> CpuUse {
        let mean = |of: fn(&CpuUse) -> f64| {
            self.rate(|sample| sample.cpus.iter().find(|cpu| cpu.cpu == number).map(of))
        };
        let option = |of: fn(&CpuUse) -> Option<f64>| {
            self.option(|sample| sample.cpus.iter().find(|cpu| cpu.cpu == number).and_then(of))
        };
        CpuUse {
            cpu: number,
            user: mean(|cpu| cpu.user),
            system: mean(|cpu| cpu.system),
            irq: mean(|cpu| cpu.irq),
            softirq: mean(|cpu| cpu.softirq),
            steal: mean(|cpu| cpu.steal),
            idle: mean(|cpu| cpu.idle),
            net_rx_per_s: mean(|cpu| cpu.net_rx_per_s),
            net_tx_per_s: option(|cpu| cpu.net_tx_per_s),
            packets_per_s: mean(|cpu| cpu.packets_per_s),
            backlog_drops_per_s: mean(|cpu| cpu.backlog_drops_per_s),
            time_squeezes_per_s: mean(|cpu| cpu.time_squeezes_per_s),
            received_rps_per_s: mean(|cpu| cpu.received_rps_per_s),
            flow_limit_drops_per_s: option(|cpu| cpu.flow_limit_drops_per_s),
            backlog_packets: option(|cpu| cpu.backlog_packets.map(f64::from))
                .map(|packets| packets.round() as u32),
            interrupts_per_s: mean(|cpu| cpu.interrupts_per_s),
        }
    }

    fn role(&self, at: usize, last: &RoleUse) -> RoleUse {
        let mean = |of: fn(&RoleUse) -> f64| self.rate(|sample| sample.roles.get(at).map(of));
        let option = |of: fn(&RoleUse) -> Option<f64>| {
            self.option(|sample| sample.roles.get(at).and_then(of))
        };
        RoleUse {
            user_cpus: mean(|role| role.user_cpus),
            system_cpus: mean(|role| role.system_cpus),
            threads: self.threads(at),
            threads_in_disk_sleep: mean(|role| f64::from(role.threads_in_disk_sleep)).round()
                as u32,
            voluntary_switches_per_s: mean(|role| role.voluntary_switches_per_s),
            involuntary_switches_per_s: mean(|role| role.involuntary_switches_per_s),
            minor_faults_per_s: mean(|role| role.minor_faults_per_s),
            major_faults_per_s: mean(|role| role.major_faults_per_s),
            written_bytes_per_s: option(|role| role.written_bytes_per_s),
            disk_write_bytes_per_s: option(|role| role.disk_write_bytes_per_s),
            cgroup: last.cgroup.as_ref().map(|cgroup| self.cgroup(at, cgroup)),
            ..last.clone()
        }
    }

    fn cgroup(&self, at: usize, last: &CgroupUse) -> CgroupUse {
        let option = |of: fn(&CgroupUse) -> Option<f64>| {
            self.option(|sample| sample.roles.get(at)?.cgroup.as_ref().and_then(of))
        };
        CgroupUse {
            throttled_periods: option(|cgroup| cgroup.throttled_periods),
            throttled_cpus: option(|cgroup| cgroup.throttled_cpus),
            memory_max_hits_per_s: option(|cgroup| cgroup.memory_max_hits_per_s),
            disk: self.disk(at),
            pressure: last.pressure.map(|_| {
                self.pressure(|sample| sample.roles.get(at)?.cgroup.as_ref()?.pressure.as_ref())
            }),
            ..last.clone()
        }
    }

    fn disk(&self, at: usize) -> Option<DiskUse> {
        let mean = |of: fn(&DiskUse) -> f64| {
            self.option(|sample| Some(of(sample.roles.get(at)?.cgroup.as_ref()?.disk.as_ref()?)))
        };
        Some(DiskUse {
            read_bytes_per_s: mean(|disk| disk.read_bytes_per_s)?,
            written_bytes_per_s: mean(|disk| disk.written_bytes_per_s)?,
            reads_per_s: mean(|disk| disk.reads_per_s)?,
            writes_per_s: mean(|disk| disk.writes_per_s)?,
        })
    }

    /// Threads that were there at any time, the busiest first.
    fn threads(&self, at: usize) -> Vec<ThreadUse> {
        let mut by_tid: BTreeMap<i32, ThreadUse> = BTreeMap::new();
        for sample in self.samples {
            let weight = sample.length_s / self.length_s.max(f64::MIN_POSITIVE);
            for thread in sample.roles.get(at).map_or(&[][..], |role| &role.threads) {
                let sum = by_tid.entry(thread.tid).or_default();
                let waiting = match (sum.waiting, thread.waiting) {
                    (None, None) => None,
                    (before, now) => Some(before.unwrap_or(0.0) + now.unwrap_or(0.0) * weight),
                };
                let busy = sum.busy + thread.busy * weight;
                *sum = ThreadUse { busy, waiting, ..thread.clone() };
            }
        }
        let mut threads: Vec<ThreadUse> = by_tid.into_values().collect();
        threads.sort_by(|one, other| other.busy.total_cmp(&one.busy));
        threads
    }

    fn namespace(&self, last: &NamespaceUse) -> NamespaceUse {
        let of = |sample: &'_ Sample| -> Option<usize> {
            sample.namespaces.iter().position(|namespace| namespace.roles == last.roles)
        };
        let mut counters: BTreeMap<String, f64> = BTreeMap::new();
        for sample in self.samples {
            let Some(at) = of(sample) else { continue };
            for (name, per_s) in &sample.namespaces[at].counters {
                *counters.entry(name.clone()).or_default() +=
                    per_s * sample.length_s / self.length_s.max(f64::MIN_POSITIVE);
            }
        }
        NamespaceUse { counters, ..last.clone() }
    }

    fn link(&self, last: &LinkUse) -> LinkUse {
        let same = |link: &&LinkUse| link.name == last.name && link.of_role == last.of_role;
        let mean =
            |of: fn(&LinkUse) -> f64| self.rate(|sample| sample.links.iter().find(same).map(of));
        let queue = |queue: &QdiscUse| {
            let kind = queue.kind.as_str();
            let of = |per_s: fn(&QdiscUse) -> f64| {
                self.rate(|sample| {
                    let queues = &sample.links.iter().find(same)?.queues;
                    queues.iter().find(|queue| queue.kind == kind).map(per_s)
                })
            };
            QdiscUse {
                drops_per_s: of(|queue| queue.drops_per_s),
                overlimits_per_s: of(|queue| queue.overlimits_per_s),
                backlog_bytes: of(|queue| queue.backlog_bytes as f64) as u64,
                ..queue.clone()
            }
        };
        let names: Vec<&String> = self
            .samples
            .iter()
            .filter_map(|sample| sample.links.iter().find(same))
            .flat_map(|link| link.driver.keys())
            .collect();
        let driver = names.into_iter().map(|name| {
            let of = |sample: &Sample| sample.links.iter().find(same)?.driver.get(name).copied();
            (name.clone(), self.rate(of))
        });
        LinkUse {
            rx_bytes_per_s: mean(|link| link.rx_bytes_per_s),
            tx_bytes_per_s: mean(|link| link.tx_bytes_per_s),
            rx_packets_per_s: mean(|link| link.rx_packets_per_s),
            tx_packets_per_s: mean(|link| link.tx_packets_per_s),
            rx_drops_per_s: mean(|link| link.rx_drops_per_s),
            tx_drops_per_s: mean(|link| link.tx_drops_per_s),
            queues: last.queues.iter().map(queue).collect(),
            driver: driver.collect(),
            ..last.clone()
        }
    }

    fn pressure<'s>(&'s self, of: impl Fn(&'s Sample) -> Option<&'s Pressure>) -> Pressure {
        let mean = |share: fn(&Pressure) -> f64| {
            let known = self
                .samples
                .iter()
                .filter_map(|sample| Some((share(of(sample)?) * sample.length_s, sample.length_s)));
            let (sum, length_s) = known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
            if length_s > 0.0 { sum / length_s } else { 0.0 }
        };
        Pressure {
            cpu_some: mean(|pressure| pressure.cpu_some),
            memory_some: mean(|pressure| pressure.memory_some),
            memory_full: mean(|pressure| pressure.memory_full),
            io_some: mean(|pressure| pressure.io_some),
            io_full: mean(|pressure| pressure.io_full),
        }
    }

    fn conntrack(&self, last: ConntrackUse) -> ConntrackUse {
        let mean =
            |of: fn(&ConntrackUse) -> f64| self.rate(|sample| sample.conntrack.as_ref().map(of));
        ConntrackUse {
            drops_per_s: mean(|conntrack| conntrack.drops_per_s),
            early_drops_per_s: mean(|conntrack| conntrack.early_drops_per_s),
            insert_failures_per_s: mean(|conntrack| conntrack.insert_failures_per_s),
            ..last
        }
    }

    /// Percentiles cannot be averaged: the median of them stands for the part, and the worst.
    fn canary(&self, cpu: u32) -> CanaryUse {
        let all = || {
            self.samples
                .iter()
                .filter_map(|sample| sample.canaries.iter().find(|canary| canary.cpu == cpu))
        };
        CanaryUse {
            cpu,
            lag_p50_ns: median(all().map(|canary| canary.lag_p50_ns as f64)) as u64,
            lag_p99_ns: median(all().map(|canary| canary.lag_p99_ns as f64)) as u64,
            lag_max_ns: all().map(|canary| canary.lag_max_ns).max().unwrap_or(0),
        }
    }
}

/// One snapshot that stands for several.
fn middle(snapshots: &[QueueSnapshot]) -> QueueSnapshot {
    let Some(last) = snapshots.last() else {
        return QueueSnapshot::default();
    };
    let listener = |last: &ListenerQueue| {
        let all = || {
            let listeners = snapshots.iter().flat_map(|snapshot| &snapshot.listeners);
            listeners.filter(|listener| listener.port == last.port)
        };
        ListenerQueue {
            waiting: all().map(|listener| listener.waiting).max().unwrap_or(0),
            full: all().map(|listener| listener.full).max().unwrap_or(0),
            ..*last
        }
    };
    QueueSnapshot {
        time_s: last.time_s,
        listeners: last.listeners.iter().map(listener).collect(),
        ends: last.ends.iter().map(|end| middle_end(snapshots, end)).collect(),
        unix: last.unix.clone(),
    }
}

fn middle_end(snapshots: &[QueueSnapshot], last: &EndQueues) -> EndQueues {
    let all: Vec<&EndQueues> = snapshots
        .iter()
        .filter_map(|snapshot| {
            snapshot.ends.iter().find(|end| end.port == last.port && end.end == last.end)
        })
        .collect();
    let of = |value: fn(&EndQueues) -> f64| median(all.iter().map(|end| value(end)));
    let count = |value: fn(&EndQueues) -> u64| {
        median(all.iter().map(|end| value(end) as f64)).round() as u64
    };
    // Sums since the sockets were opened: what was added, unless sockets were closed meanwhile.
    let first = all.first().copied().filter(|first| last.busy_us > first.busy_us);
    let added = |value: fn(&EndQueues) -> u64| value(last).saturating_sub(first.map_or(0, value));
    let told = |value: fn(&EndQueues) -> Option<u64>| {
        Some(value(last)?.saturating_sub(first.and_then(value).unwrap_or(0)))
    };
    let states = last.states.keys().map(|state| {
        let counts = all.iter().map(|end| end.states.get(state).map_or(0.0, |count| *count as f64));
        (state.clone(), median(counts).round() as u64)
    });
    EndQueues {
        port: last.port,
        end: last.end,
        states: states.collect(),
        with_unread: count(|end| end.with_unread),
        unread_bytes: count(|end| end.unread_bytes),
        with_unsent: count(|end| end.with_unsent),
        unsent_bytes: count(|end| end.unsent_bytes),
        unread_bytes_max: count(|end| end.unread_bytes_max),
        not_sent_bytes: count(|end| end.not_sent_bytes),
        memory_bytes: count(|end| end.memory_bytes),
        rtt_us: of(|end| end.rtt_us),
        rtt_min_us: of(|end| end.rtt_min_us),
        busy_us: added(|end| end.busy_us),
        receive_window_limited_us: added(|end| end.receive_window_limited_us),
        send_buffer_limited_us: added(|end| end.send_buffer_limited_us),
        retransmitted: added(|end| end.retransmitted),
        retransmitted_bytes: told(|end| end.retransmitted_bytes),
        duplicates: told(|end| end.duplicates),
        reorderings: told(|end| end.reorderings),
        delivery_bytes_per_s: of(|end| end.delivery_bytes_per_s),
        application_limited: count(|end| end.application_limited),
        segments_sent: added(|end| end.segments_sent),
        ..middle_exchange(&all, last)
    }
}

/// Whose turn it is, and what moves: medians.
fn middle_exchange(all: &[&EndQueues], last: &EndQueues) -> EndQueues {
    let count = |value: fn(&EndQueues) -> u64| {
        median(all.iter().map(|end| value(end) as f64)).round() as u64
    };
    let some = |value: fn(&EndQueues) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(|end| value(end)).collect();
        statistics::median(&values)
    };
    EndQueues {
        active: count(|end| end.active),
        awaiting_reply: count(|end| end.awaiting_reply),
        awaiting_reply_ms: some(|end| end.awaiting_reply_ms),
        owed_reply: count(|end| end.owed_reply),
        owed_reply_ms: some(|end| end.owed_reply_ms),
        tied: count(|end| end.tied),
        since_s: some(|end| end.since_s),
        bytes_received_per_s: some(|end| end.bytes_received_per_s),
        bytes_acked_per_s: some(|end| end.bytes_acked_per_s),
        segments_sent_per_s: some(|end| end.segments_sent_per_s),
        retransmitted_per_s: some(|end| end.retransmitted_per_s),
        opened: last.opened,
        closed: last.closed,
        local_ports_max: last.local_ports_max,
        destinations: last.destinations,
        ..EndQueues::default()
    }
}

/// The middle value, or the mean of the middle two; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    statistics::median(&values.collect::<Vec<f64>>()).unwrap_or(0.0)
}
