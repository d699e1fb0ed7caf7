//! Monitors processes and their machine, and returns the samples as [`record::observed`].
//!
//! [`Monitor`] is a thread that samples about once a second and keeps the samples. [`Observer`]
//! takes single samples, for callers that have a thread already. `topology` discovers the processes.
//!
//! Nothing here judges a figure or stops a run: whatever cannot be observed is reported in
//! `not_observable`.

mod cgroups;
mod exit_watch;
mod history;
mod identity;
mod machine;
mod monitor;
mod neighbours;
mod network;
mod origin_discovery;
mod process;
mod role;
mod topology;
mod unix_discovery;
mod unobservable;

pub(crate) use machine::foreign_cpus;
pub use monitor::Monitor;
pub use topology::{Topology, discover_topology, discover_topology_at};

use record::sorted::sort_by_key;

use crate::cpu::thread_cpu_ns;
use crate::journal::boot_id;
use crate::kernel_file::NotObservable;
use crate::namespace::netns_id;
use crate::process_tree::{MAX_PROCESSES, ProcessTree};
use crate::sock_diag::MAX_PORTS;
use crate::wakeup_probe::WakeupProbes;
use crate::{conntrack, cpu, facts, settings};
use exit_watch::ExitWatch;
use machine::Machine;
use neighbours::Neighbours;
use network::Network;
use origin_discovery::{KnownRoles, MAX_ORIGINS, OriginDiscovery};
use process::StartPhase;
use record::observed::{
    ConnectionEnd, EndQueues, MachineObservation, MachineSample, Neighbour, PortRoles, QueueSnapshot,
    RoleUse, UnobservableMetric, UnwatchedSockets,
};
use role::RoleMonitor;
use std::collections::{BTreeMap, BTreeSet};
use unix_discovery::UnixDiscovery;

pub use record::observed::{GENERATOR, ORIGIN, SUBJECT};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleSpec {
    /// Role name: [`GENERATOR`], [`SUBJECT`], [`ORIGIN`], or any other name.
    pub role: String,
    /// Root processes. Their present and later children are watched too, except the children of the
    /// own process.
    pub pids: Vec<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorSpec {
    /// Roles to watch. A process belongs to the first role that names it.
    pub roles: Vec<RoleSpec>,
    pub ports: Vec<PortRoles>,
    /// True to run a thread on each CPU that measures its wakeup latency.
    pub wakeup_probes: bool,
    /// Interval between two samples, in nanoseconds.
    pub sample_ns: u64,
    /// Interval between two snapshots of the sockets, in nanoseconds.
    pub queue_ns: u64,
    /// True to discover servers behind the subject while it runs: a proxy connects to its servers
    /// only on request.
    pub discover_origins: bool,
}

impl Default for MonitorSpec {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            ports: Vec::new(),
            wakeup_probes: true,
            sample_ns: 1_000_000_000,
            queue_ns: 200_000_000,
            discover_origins: true,
        }
    }
}

/// Interval between two scans for servers behind the subject, in nanoseconds; the first few are
/// closer.
const DISCOVERY_INTERVAL_NS: u64 = 1_000_000_000;
/// Interval between the first [`EARLY_DISCOVERIES`] scans.
const EARLY_DISCOVERY_INTERVAL_NS: u64 = 200_000_000;
const EARLY_DISCOVERIES: u64 = 5;
/// Scans take at most one part in this many of a core, in the long run.
const DISCOVERY_COST_DIVISOR: u64 = 500;

/// Takes single samples. All files stay open between them.
#[derive(Debug)]
pub struct Observer {
    zero_ns: u64,
    last_ns: Option<u64>,
    samples: u64,
    discovery_enabled: bool,
    origin_discovery: OriginDiscovery,
    unix_discovery: UnixDiscovery,
    discoveries: u64,
    next_discovery_ns: u64,
    /// Sockets of unwatched processes, counted since the last sample.
    unwatched_sockets: Option<UnwatchedSockets>,
    /// CPU time of roles that were discovered late, from the first sample until their discovery.
    late_cpu_s: f64,
    ports: Vec<PortRoles>,
    port_numbers: Vec<u16>,
    roles: Vec<RoleMonitor>,
    process_tree: ProcessTree,
    exit_watch: ExitWatch,
    machine: Machine,
    neighbours: Neighbours,
    clock: fn() -> u64,
    networks: Vec<Network>,
    conntrack: Result<conntrack::ConntrackReader, NotObservable>,
    wakeup_probes: Option<WakeupProbes>,
    settings: BTreeMap<String, String>,
    missing: BTreeSet<UnobservableMetric>,
}

impl Observer {
    /// Opens everything that `spec` needs. `clock` returns nanoseconds of `CLOCK_MONOTONIC`; times
    /// in samples count from now.
    #[must_use]
    pub fn new(spec: &MonitorSpec, clock: fn() -> u64) -> Self {
        let mut machine = Machine::open();
        let cpus = machine.cpus();
        let own = std::process::id().cast_signed();
        let mut observer = Self {
            zero_ns: clock(),
            last_ns: None,
            samples: 0,
            discovery_enabled: spec.discover_origins,
            origin_discovery: OriginDiscovery::default(),
            unix_discovery: UnixDiscovery::default(),
            discoveries: 0,
            next_discovery_ns: 0,
            unwatched_sockets: None,
            late_cpu_s: 0.0,
            ports: Vec::new(),
            port_numbers: Vec::new(),
            roles: Vec::new(),
            process_tree: ProcessTree::new(),
            exit_watch: ExitWatch::default(),
            machine,
            neighbours: Neighbours::default(),
            clock,
            networks: Vec::new(),
            conntrack: Err(NotObservable::new("connection tracking", "not read yet")),
            wakeup_probes: spec.wakeup_probes.then(|| WakeupProbes::start(&cpus, clock)),
            settings: BTreeMap::new(),
            missing: unobservable::unread_sources().into_iter().map(UnobservableMetric::from).collect(),
        };
        for role_spec in &spec.roles {
            observer.add_role(role_spec);
        }
        observer.add_ports(&spec.ports);
        for (pid, role) in observer.process_tree.scan() {
            observer.roles[role].add(pid, StartPhase::BeforeMonitoring);
        }
        observer.open_networks();
        let subject = observer.subject().and_then(RoleMonitor::any_live_pid).unwrap_or(own);
        observer.conntrack = conntrack::ConntrackReader::open(subject);
        let (settings, missing) = settings::read(subject);
        observer.settings = settings;
        observer.missing.extend(missing.into_iter().map(UnobservableMetric::from));
        observer
    }

    pub(super) fn role_index(&self, name: &str) -> Option<usize> {
        self.roles.iter().position(|role| role.name() == name)
    }

    /// Samples the machine and all roles, and returns the use since the last sample; `None` the
    /// first time. `now_ns` is of the same clock.
    pub fn sample(&mut self, now_ns: u64) -> Option<MachineSample> {
        let last_ns = self.last_ns.replace(now_ns);
        let length_s = now_ns.saturating_sub(last_ns.unwrap_or(self.zero_ns)) as f64 / 1e9;
        let seconds = length_s.max(1e-3);
        self.samples += 1;
        let machine = self.machine.sample(seconds);
        let may_have_new_tasks = machine.cpu_delta.forks != Some(0);
        let mut started = vec![0; self.roles.len()];
        if may_have_new_tasks {
            for (pid, role) in self.process_tree.scan() {
                self.roles[role].add(pid, StartPhase::DuringMonitoring);
                started[role] += 1;
            }
        }
        let mut ended = Vec::new();
        let mut sample_role = |role: &mut RoleMonitor| role.sample(seconds, may_have_new_tasks, &mut ended);
        let mut roles: Vec<RoleUse> = self.roles.iter_mut().map(&mut sample_role).collect();
        roles.iter_mut().zip(started).for_each(|(role, started)| role.processes_started = started);
        ended.into_iter().for_each(|pid| self.process_tree.remove(pid));
        let role_cpus: f64 = roles.iter().map(RoleUse::cpus).sum();
        let mut sample = MachineSample {
            time_s: now_ns.saturating_sub(self.zero_ns) as f64 / 1e9,
            length_s,
            context_switches_per_s: machine.cpu_delta.context_switches.map(|n| n as f64 / seconds),
            forks_per_s: machine.cpu_delta.forks.map(|n| n as f64 / seconds),
            runnable: machine.cpu_delta.runnable,
            pressure: machine.pressure,
            conntrack: self.conntrack.as_mut().ok().and_then(|it| it.sample(seconds).ok().flatten()),
            wakeup_lags: self.wakeup_probes.as_mut().map(WakeupProbes::take).unwrap_or_default(),
            roles,
            ..MachineSample::default()
        };
        if !machine.cpus.is_empty() {
            let ticks = cpu::ticks_per_s() as f64 * seconds;
            let has_separate_irq_time = self.machine.has_separate_irq_time();
            sample.foreign_cpus =
                Some(foreign_cpus(&machine.cpu_delta, role_cpus, has_separate_irq_time, ticks));
        }
        sample.cpus = machine.cpus;
        self.discover_origins_if_due(now_ns);
        let tree = &self.process_tree;
        self.neighbours.sample(now_ns, self.clock, |pid| tree.is_claimed(pid) || tree.is_own(pid));
        self.sample_networks(seconds, &mut sample);
        last_ns.map(|_| sample)
    }

    /// Polls what the threads of the subject and of its origins wait for.
    fn poll_sleeps(&mut self) {
        for role in &mut self.roles {
            if [SUBJECT, ORIGIN].contains(&role.name()) {
                role.poll_sleeps();
            }
        }
    }

    /// Takes a snapshot of the sockets at the watched ports.
    pub fn snapshot_queues(&mut self, now_ns: u64) -> QueueSnapshot {
        self.discover_origins_if_due(now_ns);
        let time_s = now_ns.saturating_sub(self.zero_ns) as f64 / 1e9;
        let unix = self.unix_discovery.snapshot_queues();
        let mut snapshot = QueueSnapshot { time_s, unix, ..QueueSnapshot::default() };
        if self.port_numbers.is_empty() {
            return snapshot;
        }
        let (ports, roles) = (&self.ports, &self.roles);
        for network in &mut self.networks {
            // Ports of other namespaces may have equal numbers: an end counts in the namespace of
            // its role.
            let local_roles: Vec<&str> = network.roles.iter().map(|at| roles[*at].name()).collect();
            let belongs = |port: u16, end: ConnectionEnd| {
                let port_uses = ports.iter().filter(|known| known.port == port);
                let mut roles = port_uses.filter_map(|known| match end {
                    ConnectionEnd::Server => known.served_by.as_deref(),
                    ConnectionEnd::Client => known.used_by.as_deref(),
                });
                let first_role = roles.next();
                first_role.is_none_or(|first| {
                    local_roles.contains(&first) || roles.any(|r| local_roles.contains(&r))
                })
            };
            let QueueSnapshot { listeners, ends, .. } = &mut snapshot;
            network.snapshot_queues(time_s, &self.port_numbers, belongs, listeners, ends);
        }
        keep_fuller_ends(&mut snapshot.ends);
        snapshot
    }

    /// Returns the programs beside the roles in the last seconds, at most three.
    pub fn recent_neighbours(&self) -> Vec<Neighbour> {
        self.neighbours.busiest_recently()
    }

    /// Returns everything about the watched roles except the samples.
    pub fn describe(&self) -> MachineObservation {
        let facts = facts::read();
        MachineObservation {
            host: facts.hostname,
            kernel: Some(boot_id()).filter(|id| !id.is_empty()),
            cpus: facts.cpus_online.unwrap_or_default(),
            memory_bytes: facts.memory_bytes.unwrap_or_default(),
            roles: self.roles.iter().map(RoleMonitor::describe).collect(),
            ended: self.exit_watch.exited(),
            ports: self.ports.clone(),
            origins: self.origin_discovery.origins().to_vec(),
            origins_omitted: self.origin_discovery.omitted(),
            unix: self.unix_discovery.uses().to_vec(),
            settings: self.settings.clone(),
            neighbours: self.neighbours.busiest(),
            not_observable: self.not_observable(),
            ..MachineObservation::default()
        }
    }

    /// Returns everything that cannot be observed here at present, with the reasons.
    pub fn not_observable(&self) -> Vec<UnobservableMetric> {
        let mut missing = self.missing.clone();
        let roles = self.roles.iter().flat_map(RoleMonitor::not_observable);
        let networks = self.networks.iter().flat_map(Network::not_observable);
        let machine = self.machine.not_observable().into_iter();
        let all = machine.chain(roles).chain(networks).chain(self.conntrack.as_ref().err().cloned());
        let probes = self.wakeup_probes.as_ref().map(WakeupProbes::not_observable).unwrap_or_default();
        let all = all.chain(self.unix_discovery.not_observable());
        missing.extend(all.chain(probes.iter().cloned()).map(UnobservableMetric::from));
        if self.process_tree.overflowed {
            missing.insert(UnobservableMetric {
                figure: "every process".to_owned(),
                reason: format!(
                    "the roles have more than {MAX_PROCESSES} processes; only these are observed"
                ),
            });
        }
        let omitted = self.origin_discovery.omitted();
        if omitted > 0 {
            let reason = format!("{omitted} more servers than the maximum of {MAX_ORIGINS}");
            missing
                .insert(UnobservableMetric { figure: "every server behind the subject".to_owned(), reason });
        }
        if self.port_numbers.len() > MAX_PORTS {
            let reason = format!("of {} only {MAX_PORTS} are", self.port_numbers.len());
            missing.insert(UnobservableMetric { figure: "sockets of every port".to_owned(), reason });
        }
        missing.into_iter().take(MAX_MISSING).collect()
    }

    /// Returns the CPU time of the wakeup probes so far, in nanoseconds.
    pub fn wakeup_probes_cost_ns(&self) -> u64 {
        self.wakeup_probes.as_ref().map_or(0, WakeupProbes::cost_ns)
    }

    fn subject(&self) -> Option<&RoleMonitor> {
        let named = self.roles.iter().find(|role| role.name() == SUBJECT);
        named.or_else(|| self.roles.iter().find(|role| role.name() != GENERATOR))
    }

    fn add_role(&mut self, role_spec: &RoleSpec) {
        let known = self.roles.iter().position(|role| role.name() == role_spec.role);
        let at = known.unwrap_or_else(|| {
            self.roles.push(RoleMonitor::new(&role_spec.role));
            self.roles.len() - 1
        });
        for &pid in role_spec.pids.iter().take(MAX_PROCESSES) {
            if self.process_tree.claim(pid, at) {
                self.roles[at].add(pid, StartPhase::BeforeMonitoring);
                self.exit_watch.watch(&role_spec.role, pid);
            }
        }
    }

    /// Adds processes of a role, and their children, that were not noticed before.
    fn add_late_role(&mut self, role_spec: &RoleSpec) {
        let is_new = |pid: &&i32| !self.process_tree.is_claimed(**pid);
        let mut late: Vec<i32> = role_spec.pids.iter().filter(is_new).copied().collect();
        self.add_role(role_spec);
        for (pid, role) in self.process_tree.assign_known_descendants() {
            self.roles[role].add(pid, StartPhase::BeforeMonitoring);
            late.push(pid);
        }
        let used = late.into_iter().map(|pid| {
            let before_ns = self.process_tree.baseline_ticks(pid) * 1_000_000_000 / cpu::ticks_per_s();
            cpu::process_cpu_ns(pid).unwrap_or(0).saturating_sub(before_ns)
        });
        self.late_cpu_s += used.sum::<u64>() as f64 / 1e9;
    }

    /// Takes the CPU time of roles that were discovered since the last call. The samples until now
    /// count it as `foreign_cpus`.
    pub(crate) fn take_late_cpu_s(&mut self) -> f64 {
        std::mem::take(&mut self.late_cpu_s)
    }

    /// Checks which of the named processes have ended.
    pub fn poll_exits(&mut self, now_ns: u64) {
        self.exit_watch.poll_exits(now_ns.saturating_sub(self.zero_ns) as f64 / 1e9);
    }

    fn add_ports(&mut self, ports: &[PortRoles]) {
        self.ports.extend(ports.iter().cloned());
        self.port_numbers = self.ports.iter().map(|port| port.port).collect();
        self.port_numbers.sort_unstable();
        self.port_numbers.dedup();
    }

    /// Opens the network namespaces of roles that have none yet; without any role, the own
    /// namespace.
    fn open_networks(&mut self) {
        for at in 0..self.roles.len() {
            let has_network = self.networks.iter().any(|network| network.roles.contains(&at));
            if !has_network && let Some(pid) = self.roles[at].any_live_pid() {
                self.assign_network(pid, Some(at));
            }
        }
        if self.roles.is_empty() && self.networks.is_empty() {
            self.assign_network(std::process::id().cast_signed(), None);
        }
    }

    fn assign_network(&mut self, pid: i32, role: Option<usize>) {
        match netns_id(pid) {
            Ok(id) => {
                let known = self.networks.iter().position(|network| network.id == id);
                let at = known.unwrap_or_else(|| {
                    self.networks.push(Network::open(id, pid));
                    self.networks.len() - 1
                });
                self.networks[at].roles.extend(role);
            }
            Err(error) => _ = self.missing.insert(error.into()),
        }
    }

    fn sample_networks(&mut self, seconds: f64, sample: &mut MachineSample) {
        self.open_networks();
        let roles = &self.roles;
        for network in &mut self.networks {
            let names = network.roles.iter().map(|at| roles[*at].name().to_owned()).collect();
            let (mut namespace, links) = network.sample(seconds, names);
            if network.roles.iter().any(|at| roles[*at].name() == SUBJECT) {
                // The very first sample is not kept.
                namespace.unwatched_sockets = self.unwatched_sockets.take_if(|_| self.samples > 1);
            }
            sample.namespaces.push(namespace);
            sample.links.extend(links);
        }
    }

    /// Scans for more servers behind the subject when it is due, and watches them from now on.
    fn discover_origins_if_due(&mut self, now_ns: u64) {
        if !self.discovery_enabled || now_ns < self.next_discovery_ns {
            return;
        }
        let before_ns = thread_cpu_ns();
        self.discover_origins();
        self.discoveries += 1;
        let cost_ns = thread_cpu_ns().saturating_sub(before_ns);
        // The first scans are few, and the very first finds most servers: they are outside the
        // budget.
        let pause_ns = match self.discoveries < EARLY_DISCOVERIES {
            true => EARLY_DISCOVERY_INTERVAL_NS,
            false => DISCOVERY_INTERVAL_NS.max(cost_ns.saturating_mul(DISCOVERY_COST_DIVISOR)),
        };
        self.next_discovery_ns = now_ns + pause_ns;
    }

    fn discover_origins(&mut self) {
        let pids = |name: &str| {
            let role = self.roles.iter().find(|role| role.name() == name);
            role.map(RoleMonitor::live_pids).unwrap_or_default()
        };
        let (subject, origins) = (pids(SUBJECT), pids(ORIGIN));
        let is_other = |role: &&RoleMonitor| role.name() != SUBJECT && role.name() != ORIGIN;
        let others = self.roles.iter().filter(is_other).flat_map(RoleMonitor::live_pids);
        let others: Vec<i32> = others.collect();
        let known = KnownRoles { subject: &subject, origins: &origins, others: &others, ports: &self.ports };
        let unix_origins = self.unix_discovery.discover(&known);
        let discovered = self.origin_discovery.scan(&known);
        if !unix_origins.is_empty() {
            self.add_late_role(&RoleSpec { role: ORIGIN.to_owned(), pids: unix_origins });
        }
        match discovered {
            Ok(mut discovered) => {
                if !subject.is_empty() {
                    self.unwatched_sockets = Some(discovered.unwatched_sockets);
                }
                // A known port keeps its first description.
                discovered.ports.retain(|port| !self.port_numbers.contains(&port.port));
                if !discovered.pids.is_empty() {
                    self.add_late_role(&RoleSpec { role: ORIGIN.to_owned(), pids: discovered.pids });
                }
                if !discovered.ports.is_empty() {
                    self.add_ports(&discovered.ports);
                }
                self.open_networks();
            }
            Err(error) => _ = self.missing.insert(error.into()),
        }
    }
}

/// Maximum number of missing figures in the list.
const MAX_MISSING: usize = 100;

/// Keeps, where two namespaces both have an end of a port, the end with more connections.
fn keep_fuller_ends(ends: &mut Vec<EndQueues>) {
    let established = |end: &EndQueues| end.states.get("established").copied().unwrap_or(0);
    sort_by_key(ends, |end| {
        (end.port, end.end == ConnectionEnd::Server, std::cmp::Reverse(established(end)))
    });
    ends.dedup_by_key(|end| (end.port, end.end));
}

#[cfg(test)]
mod tests;
