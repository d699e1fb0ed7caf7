//! The last part of an observation as one sample and one snapshot: rates are means over the time,
//! levels are the last ones, queues are medians (for listening sockets, the fullest moment).

use std::collections::BTreeMap;

use record::observed::{
    CgroupUse, ConntrackUse, CpuUse, DiskUse, EndQueues, LinkUse, ListenerQueue, MachineObservation,
    MachineSample, NamespaceUse, Pressure, QdiscUse, QueueSnapshot, RoleUse, ThreadCpuUse, WakeupLag,
};

/// Input of lines and rules.
#[derive(Debug)]
pub(super) struct ObservationWindow<'a> {
    /// Complete observation, for histories and settings.
    pub(super) observed: &'a MachineObservation,
    /// The last part as one sample.
    pub(super) mean: MachineSample,
    /// Sockets during the part, as one snapshot; `*_us` are differences over the part.
    pub(super) queues: QueueSnapshot,
}

impl<'a> ObservationWindow<'a> {
    /// Takes the last `span_s` seconds, at least one sample.
    pub(super) fn over_last(observed: &'a MachineObservation, span_s: f64) -> Self {
        let end_s = observed.samples.last().map_or(0.0, |sample| sample.time_s);
        // Samples are never exactly a second long.
        let start_s = end_s - span_s * 1.05;
        let first = |sample: &MachineSample| sample.time_s - sample.length_s < start_s;
        let skipped = observed.samples.iter().take_while(|sample| first(sample)).count();
        let last = observed.samples.len().saturating_sub(1);
        let samples = &observed.samples[skipped.min(last)..];
        let skipped = observed.queues.iter().take_while(|queues| queues.time_s < start_s).count();
        let last = observed.queues.len().saturating_sub(1);
        let queues = &observed.queues[skipped.min(last)..];
        Self { observed, mean: merge_samples(samples), queues: merge_snapshots(queues) }
    }

    /// Returns the number of CPUs of the machine that are not idle.
    pub(super) fn busy_cpus(&self) -> f64 {
        self.mean.cpus.iter().map(busy_fraction).sum()
    }

    /// Returns the roles with their usage.
    pub(super) fn roles(&self) -> impl Iterator<Item = (&'a record::observed::Role, &RoleUse)> {
        self.observed.roles.iter().zip(&self.mean.roles)
    }

    /// Returns field `index` (from 0) of a setting, as a number.
    pub(super) fn setting(&self, name: &str, index: usize) -> Option<f64> {
        self.observed.settings.get(name)?.split_whitespace().nth(index)?.parse().ok()
    }
}

/// Returns the fraction of the time that a CPU was busy.
pub(super) fn busy_fraction(cpu: &CpuUse) -> f64 {
    cpu.user + cpu.system + cpu.irq + cpu.softirq + cpu.steal
}

/// Combines samples into one.
fn merge_samples(samples: &[MachineSample]) -> MachineSample {
    let Some(last) = samples.last() else {
        return MachineSample::default();
    };
    if samples.len() == 1 {
        return last.clone();
    }
    let means = WeightedMeans { samples, length_s: samples.iter().map(|sample| sample.length_s).sum() };
    MachineSample {
        time_s: last.time_s,
        length_s: means.length_s,
        cpus: last.cpus.iter().map(|cpu| means.cpu(cpu.cpu)).collect(),
        context_switches_per_s: means.mean_if_known(|sample| sample.context_switches_per_s),
        runnable: last.runnable,
        foreign_cpus: means.mean_if_known(|sample| sample.foreign_cpus),
        roles: (0..last.roles.len()).map(|index| means.role(index, &last.roles[index])).collect(),
        namespaces: last.namespaces.iter().map(|namespace| means.namespace(namespace)).collect(),
        links: last.links.iter().map(|link| means.link(link)).collect(),
        pressure: last.pressure.map(|_| means.pressure(|sample| sample.pressure.as_ref())),
        conntrack: last.conntrack.map(|conntrack| means.conntrack(conntrack)),
        wakeup_lags: last.wakeup_lags.iter().map(|probe| means.wakeup_probe(probe.cpu)).collect(),
    }
}

/// Means over samples, weighted by their lengths.
struct WeightedMeans<'a> {
    samples: &'a [MachineSample],
    length_s: f64,
}

impl WeightedMeans<'_> {
    /// Returns the mean of a figure that is 0 if absent.
    fn mean_or_zero(&self, of: impl Fn(&MachineSample) -> Option<f64>) -> f64 {
        let sum: f64 = self.samples.iter().map(|sample| of(sample).unwrap_or(0.0) * sample.length_s).sum();
        if self.length_s > 0.0 { sum / self.length_s } else { 0.0 }
    }

    /// Returns the mean of a figure that is unknown if absent.
    fn mean_if_known(&self, of: impl Fn(&MachineSample) -> Option<f64>) -> Option<f64> {
        let known = self.samples.iter().filter_map(|sample| Some((of(sample)?, sample.length_s)));
        let (sum, length_s) =
            known.fold((0.0, 0.0), |(sum, length_s), (value, of_s)| (sum + value * of_s, length_s + of_s));
        (length_s > 0.0).then(|| sum / length_s)
    }

    fn cpu(&self, number: u32) -> CpuUse {
        let mean = |of: fn(&CpuUse) -> f64| {
            self.mean_or_zero(|sample| sample.cpus.iter().find(|cpu| cpu.cpu == number).map(of))
        };
        let option = |of: fn(&CpuUse) -> Option<f64>| {
            self.mean_if_known(|sample| sample.cpus.iter().find(|cpu| cpu.cpu == number).and_then(of))
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

    fn role(&self, index: usize, last: &RoleUse) -> RoleUse {
        let mean = |of: fn(&RoleUse) -> f64| self.mean_or_zero(|sample| sample.roles.get(index).map(of));
        let option = |of: fn(&RoleUse) -> Option<f64>| {
            self.mean_if_known(|sample| sample.roles.get(index).and_then(of))
        };
        RoleUse {
            user_cpus: mean(|role| role.user_cpus),
            system_cpus: mean(|role| role.system_cpus),
            threads: self.threads(index),
            threads_in_disk_sleep: mean(|role| role.threads_in_disk_sleep),
            voluntary_switches_per_s: mean(|role| role.voluntary_switches_per_s),
            involuntary_switches_per_s: mean(|role| role.involuntary_switches_per_s),
            minor_faults_per_s: mean(|role| role.minor_faults_per_s),
            major_faults_per_s: mean(|role| role.major_faults_per_s),
            written_bytes_per_s: option(|role| role.written_bytes_per_s),
            disk_write_bytes_per_s: option(|role| role.disk_write_bytes_per_s),
            cgroup: last.cgroup.as_ref().map(|cgroup| self.cgroup(index, cgroup)),
            ..last.clone()
        }
    }

    fn cgroup(&self, index: usize, last: &CgroupUse) -> CgroupUse {
        let option = |of: fn(&CgroupUse) -> Option<f64>| {
            self.mean_if_known(|sample| sample.roles.get(index)?.cgroup.as_ref().and_then(of))
        };
        CgroupUse {
            throttled_periods: option(|cgroup| cgroup.throttled_periods),
            throttled_cpus: option(|cgroup| cgroup.throttled_cpus),
            memory_max_hits_per_s: option(|cgroup| cgroup.memory_max_hits_per_s),
            disk: self.disk(index),
            pressure: last
                .pressure
                .map(|_| self.pressure(|sample| sample.roles.get(index)?.cgroup.as_ref()?.pressure.as_ref())),
            ..last.clone()
        }
    }

    fn disk(&self, index: usize) -> Option<DiskUse> {
        let mean = |of: fn(&DiskUse) -> f64| {
            self.mean_if_known(|sample| Some(of(sample.roles.get(index)?.cgroup.as_ref()?.disk.as_ref()?)))
        };
        Some(DiskUse {
            read_bytes_per_s: mean(|disk| disk.read_bytes_per_s)?,
            written_bytes_per_s: mean(|disk| disk.written_bytes_per_s)?,
            reads_per_s: mean(|disk| disk.reads_per_s)?,
            writes_per_s: mean(|disk| disk.writes_per_s)?,
        })
    }

    /// Returns the threads that existed at any time, the busiest first.
    fn threads(&self, index: usize) -> Vec<ThreadCpuUse> {
        let mut by_tid: BTreeMap<i32, ThreadCpuUse> = BTreeMap::new();
        for sample in self.samples {
            let weight = sample.length_s / self.length_s.max(f64::MIN_POSITIVE);
            for thread in sample.roles.get(index).map_or(&[][..], |role| &role.threads) {
                let sum = by_tid.entry(thread.tid).or_default();
                let waiting = match (sum.waiting, thread.waiting) {
                    (None, None) => None,
                    (before, now) => Some(before.unwrap_or(0.0) + now.unwrap_or(0.0) * weight),
                };
                let busy = sum.busy + thread.busy * weight;
                *sum = ThreadCpuUse { busy, waiting, ..thread.clone() };
            }
        }
        let mut threads: Vec<ThreadCpuUse> = by_tid.into_values().collect();
        threads.sort_by(|one, other| other.busy.total_cmp(&one.busy));
        threads
    }

    fn namespace(&self, last: &NamespaceUse) -> NamespaceUse {
        let position = |sample: &'_ MachineSample| -> Option<usize> {
            sample.namespaces.iter().position(|namespace| namespace.roles == last.roles)
        };
        let mut counters: BTreeMap<String, f64> = BTreeMap::new();
        for sample in self.samples {
            let Some(at) = position(sample) else { continue };
            for (name, per_s) in &sample.namespaces[at].counters {
                *counters.entry(name.clone()).or_default() +=
                    per_s * sample.length_s / self.length_s.max(f64::MIN_POSITIVE);
            }
        }
        NamespaceUse { counters, ..last.clone() }
    }

    fn link(&self, last: &LinkUse) -> LinkUse {
        let same = |link: &&LinkUse| link.name == last.name && link.role == last.role;
        let mean =
            |of: fn(&LinkUse) -> f64| self.mean_or_zero(|sample| sample.links.iter().find(same).map(of));
        let queue = |queue: &QdiscUse| {
            let kind = queue.kind.as_str();
            let mean_of_queue = |per_s: fn(&QdiscUse) -> f64| {
                self.mean_or_zero(|sample| {
                    let queues = &sample.links.iter().find(same)?.queues;
                    queues.iter().find(|queue| queue.kind == kind).map(per_s)
                })
            };
            QdiscUse {
                drops_per_s: mean_of_queue(|queue| queue.drops_per_s),
                overlimits_per_s: mean_of_queue(|queue| queue.overlimits_per_s),
                backlog_bytes: mean_of_queue(|queue| queue.backlog_bytes as f64) as u64,
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
            let counter = |sample: &MachineSample| sample.links.iter().find(same)?.driver.get(name).copied();
            (name.clone(), self.mean_or_zero(counter))
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

    fn pressure(&self, of: impl Fn(&MachineSample) -> Option<&Pressure>) -> Pressure {
        let mean = |fraction: fn(&Pressure) -> f64| {
            self.mean_if_known(|sample| of(sample).map(fraction)).unwrap_or(0.0)
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
            |of: fn(&ConntrackUse) -> f64| self.mean_or_zero(|sample| sample.conntrack.as_ref().map(of));
        ConntrackUse {
            drops_per_s: mean(|conntrack| conntrack.drops_per_s),
            early_drops_per_s: mean(|conntrack| conntrack.early_drops_per_s),
            insert_failures_per_s: mean(|conntrack| conntrack.insert_failures_per_s),
            ..last
        }
    }

    /// Combines wakeup latencies. Percentiles cannot be averaged, so the result is their median
    /// and the worst value.
    fn wakeup_probe(&self, cpu: u32) -> WakeupLag {
        let probes = || {
            self.samples.iter().filter_map(|sample| sample.wakeup_lags.iter().find(|probe| probe.cpu == cpu))
        };
        WakeupLag {
            cpu,
            lag_p50_ns: median(probes().map(|probe| probe.lag_p50_ns as f64)) as u64,
            lag_p99_ns: median(probes().map(|probe| probe.lag_p99_ns as f64)) as u64,
            lag_max_ns: probes().map(|probe| probe.lag_max_ns).max().unwrap_or(0),
        }
    }
}

/// Combines snapshots into one.
fn merge_snapshots(snapshots: &[QueueSnapshot]) -> QueueSnapshot {
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
        ends: last.ends.iter().map(|end| merge_ends(snapshots, end)).collect(),
        unix: last.unix.clone(),
    }
}

/// Snapshots of one end of the connections of a port.
struct EndSeries<'a>(Vec<&'a EndQueues>);

impl EndSeries<'_> {
    fn median(&self, value: fn(&EndQueues) -> f64) -> f64 {
        median(self.0.iter().map(|end| value(end)))
    }

    fn median_count(&self, value: fn(&EndQueues) -> u64) -> u64 {
        median(self.0.iter().map(|end| value(end) as f64)).round() as u64
    }

    fn median_if_known(&self, value: fn(&EndQueues) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.0.iter().filter_map(|end| value(end)).collect();
        stats::median(&values)
    }
}

fn merge_ends(snapshots: &[QueueSnapshot], last: &EndQueues) -> EndQueues {
    let is_same_end = |end: &&EndQueues| end.port == last.port && end.end == last.end;
    let all = snapshots.iter().filter_map(|snapshot| snapshot.ends.iter().find(is_same_end));
    let ends = EndSeries(all.collect());
    // These are sums since the sockets were opened. Use the increase, unless sockets were closed
    // meanwhile.
    let first = ends.0.first().copied().filter(|first| last.busy_us > first.busy_us);
    let increase = |value: fn(&EndQueues) -> u64| value(last).saturating_sub(first.map_or(0, value));
    let increase_if_known = |value: fn(&EndQueues) -> Option<u64>| {
        Some(value(last)?.saturating_sub(first.and_then(value).unwrap_or(0)))
    };
    let states = last.states.keys().map(|state| {
        let counts = ends.0.iter().map(|end| end.count_in_state(state) as f64);
        (state.clone(), median(counts).round() as u64)
    });
    EndQueues {
        port: last.port,
        end: last.end,
        states: states.collect(),
        with_unread: ends.median_count(|end| end.with_unread),
        unread_bytes: ends.median_count(|end| end.unread_bytes),
        with_unsent: ends.median_count(|end| end.with_unsent),
        unsent_bytes: ends.median_count(|end| end.unsent_bytes),
        unread_bytes_max: ends.median_count(|end| end.unread_bytes_max),
        not_sent_bytes: ends.median_count(|end| end.not_sent_bytes),
        memory_bytes: ends.median_count(|end| end.memory_bytes),
        rtt_us: ends.median(|end| end.rtt_us),
        rtt_min_us: ends.median(|end| end.rtt_min_us),
        busy_us: increase(|end| end.busy_us),
        receive_window_limited_us: increase(|end| end.receive_window_limited_us),
        send_buffer_limited_us: increase(|end| end.send_buffer_limited_us),
        retransmitted: increase(|end| end.retransmitted),
        retransmitted_bytes: increase_if_known(|end| end.retransmitted_bytes),
        duplicates: increase_if_known(|end| end.duplicates),
        reorderings: increase_if_known(|end| end.reorderings),
        delivery_bytes_per_s: ends.median(|end| end.delivery_bytes_per_s),
        application_limited: ends.median_count(|end| end.application_limited),
        segments_sent: increase(|end| end.segments_sent),
        ..merge_exchange_states(&ends, last)
    }
}

/// Combines the states of exchanges and the data rates, as medians.
fn merge_exchange_states(ends: &EndSeries<'_>, last: &EndQueues) -> EndQueues {
    EndQueues {
        active: ends.median_count(|end| end.active),
        awaiting_response: ends.median_count(|end| end.awaiting_response),
        awaiting_response_ms: ends.median_if_known(|end| end.awaiting_response_ms),
        pending_response: ends.median_count(|end| end.pending_response),
        pending_response_ms: ends.median_if_known(|end| end.pending_response_ms),
        order_unknown: ends.median_count(|end| end.order_unknown),
        since_s: ends.median_if_known(|end| end.since_s),
        bytes_received_per_s: ends.median_if_known(|end| end.bytes_received_per_s),
        bytes_acked_per_s: ends.median_if_known(|end| end.bytes_acked_per_s),
        segments_sent_per_s: ends.median_if_known(|end| end.segments_sent_per_s),
        retransmitted_per_s: ends.median_if_known(|end| end.retransmitted_per_s),
        opened: last.opened,
        closed: last.closed,
        local_ports_max: last.local_ports_max,
        destinations: last.destinations,
        ..EndQueues::default()
    }
}

/// Returns the median; 0 if there are no values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    stats::median(&values.collect::<Vec<f64>>()).unwrap_or(0.0)
}
