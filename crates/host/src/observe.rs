//! Watches programs and the machine that they run on, and puts what was seen into the form of
//! [`record::observed`].
//!
//! [`Watching`] is a thread that looks about once a second and keeps what it saw; [`Observer`] is one
//! look after the other, for who has a thread already. [`chain`] finds out which programs there are.
//!
//! Not for judging anything. Nothing here stops a run: what cannot be seen is said in
//! `not_observable`.

mod chain;
mod ends;
mod follow;
mod groups;
mod history;
mod machine;
mod network;
mod process;
mod role;
mod unix;
mod unseen;
mod watching;

pub use chain::{Chain, chain, chain_at};
pub(crate) use machine::foreign_cpus;
pub use watching::Watching;

use crate::canary::Canaries;
use crate::cpu::thread_cpu_ns;
use crate::family::{Family, MAX_PROCESSES};
use crate::namespace::network_id;
use crate::sock_diag::MAX_PORTS;
use crate::source::NotObservable;
use crate::{conntrack, cpu, facts, settings};
use ends::Ends;
use follow::{Follower, Known, MAX_ORIGINS};
use machine::Machine;
use network::Network;
use process::Began;
use record::observed::{
    End, EndQueues, Missing, Observed, PortUse, QueueSnapshot, RoleUse, Sample, Strangers,
};
use role::RoleWatch;
use std::collections::{BTreeMap, BTreeSet};
use unix::UnixFollower;

/// The role of who makes the load.
pub const GENERATOR: &str = "generator";
/// The role of the program under test.
pub const SUBJECT: &str = "subject";
/// The role of servers behind it.
pub const ORIGIN: &str = "origin";

/// A program to watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watched {
    /// Its role: [`GENERATOR`], [`SUBJECT`], [`ORIGIN`], or any other name.
    pub role: String,
    /// Its processes; the children that they have or get are watched with them, except those of this
    /// very process.
    pub pids: Vec<i32>,
}

/// What to watch, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The programs. A process belongs to the first that names it.
    pub roles: Vec<Watched>,
    /// The ports on which they meet.
    pub ports: Vec<PortUse>,
    /// Run a thread on each processor that notes how late it wakes up.
    pub canary: bool,
    /// Between two samples, in nanoseconds.
    pub sample_ns: u64,
    /// Between two snapshots of the sockets, in nanoseconds.
    pub queue_ns: u64,
    /// Look for servers behind the subject while it runs: a proxy connects to its servers only when it
    /// is asked.
    pub follow: bool,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            ports: Vec::new(),
            canary: true,
            sample_ns: 1_000_000_000,
            queue_ns: 200_000_000,
            follow: true,
        }
    }
}

/// Between two looks for servers behind the subject, in nanoseconds; the first few are closer.
const FOLLOW_NS: u64 = 1_000_000_000;
/// Between the first [`FOLLOW_EARLY`] looks.
const FOLLOW_EARLY_NS: u64 = 200_000_000;
const FOLLOW_EARLY: u64 = 5;
/// Looks take one part in so many of a core, in the long run.
const FOLLOW_SHARE: u64 = 500;

/// One look after the other. All files stay open between them.
#[derive(Debug)]
pub struct Observer {
    zero_ns: u64,
    last_ns: Option<u64>,
    samples: u64,
    follow: bool,
    follower: Follower,
    unix: UnixFollower,
    follow_looks: u64,
    follow_next_ns: u64,
    /// Sockets of other programs, counted since the last sample.
    strangers: Option<Strangers>,
    /// CPU time of roles that were found late, from the first look until they were found.
    late_cpu_s: f64,
    ports: Vec<PortUse>,
    port_numbers: Vec<u16>,
    roles: Vec<RoleWatch>,
    family: Family,
    ends: Ends,
    machine: Machine,
    networks: Vec<Network>,
    conntrack: Result<conntrack::Reader, NotObservable>,
    canaries: Option<Canaries>,
    settings: BTreeMap<String, String>,
    missing: BTreeSet<Missing>,
}

impl Observer {
    /// Opens everything that `spec` needs. `clock` gives nanoseconds of `CLOCK_MONOTONIC`; times in
    /// samples count from now.
    #[must_use]
    pub fn new(spec: &Spec, clock: fn() -> u64) -> Self {
        let mut machine = Machine::open();
        let cpus = machine.cpus();
        let own = std::process::id().cast_signed();
        let mut observer = Self {
            zero_ns: clock(),
            last_ns: None,
            samples: 0,
            follow: spec.follow,
            follower: Follower::default(),
            unix: UnixFollower::default(),
            follow_looks: 0,
            follow_next_ns: 0,
            strangers: None,
            late_cpu_s: 0.0,
            ports: Vec::new(),
            port_numbers: Vec::new(),
            roles: Vec::new(),
            family: Family::new(),
            ends: Ends::default(),
            machine,
            networks: Vec::new(),
            conntrack: Err(NotObservable::new("connection tracking", "not looked at yet")),
            canaries: spec.canary.then(|| Canaries::start(&cpus, clock)),
            settings: BTreeMap::new(),
            missing: unseen::read().into_iter().map(Missing::from).collect(),
        };
        for watched in &spec.roles {
            observer.add_role(watched);
        }
        observer.add_ports(&spec.ports);
        for (pid, role) in observer.family.scan() {
            observer.roles[role].add(pid, Began::Before);
        }
        observer.find_networks();
        let subject = observer.subject().and_then(RoleWatch::a_pid).unwrap_or(own);
        observer.conntrack = conntrack::Reader::open(subject);
        let (settings, missing) = settings::read(subject);
        observer.settings = settings;
        observer.missing.extend(missing.into_iter().map(Missing::from));
        observer
    }

    /// Looks at the machine and all programs, and says what passed since the last look; nothing the
    /// first time. `now_ns` is of the same clock.
    pub fn sample(&mut self, now_ns: u64) -> Option<Sample> {
        let last_ns = self.last_ns.replace(now_ns);
        let length_s = now_ns.saturating_sub(last_ns.unwrap_or(self.zero_ns)) as f64 / 1e9;
        let seconds = length_s.max(1e-3);
        self.samples += 1;
        let machine = self.machine.sample(seconds);
        let somebody_is_new = machine.between.created != Some(0);
        if somebody_is_new {
            for (pid, role) in self.family.scan() {
                self.roles[role].add(pid, Began::Since);
            }
        }
        let mut ended = Vec::new();
        let roles: Vec<RoleUse> = self
            .roles
            .iter_mut()
            .map(|role| role.sample(seconds, somebody_is_new, &mut ended))
            .collect();
        ended.into_iter().for_each(|pid| self.family.forget(pid));
        let role_cpus: f64 = roles.iter().map(|role| role.user_cpus + role.system_cpus).sum();
        let mut sample = Sample {
            time_s: now_ns.saturating_sub(self.zero_ns) as f64 / 1e9,
            length_s,
            context_switches_per_s: machine.between.context_switches.map(|n| n as f64 / seconds),
            runnable: machine.between.runnable,
            pressure: machine.pressure,
            conntrack: self
                .conntrack
                .as_mut()
                .ok()
                .and_then(|it| it.sample(seconds).ok().flatten()),
            canaries: self.canaries.as_mut().map(Canaries::take).unwrap_or_default(),
            roles,
            ..Sample::default()
        };
        if !machine.cpus.is_empty() {
            let ticks = cpu::ticks_per_s() as f64 * seconds;
            let apart = self.machine.interrupts_are_apart();
            sample.foreign_cpus = Some(foreign_cpus(&machine.between, role_cpus, apart, ticks));
        }
        sample.cpus = machine.cpus;
        self.follow_subject(now_ns);
        self.sample_networks(seconds, &mut sample);
        last_ns.map(|_| sample)
    }

    /// Looks at the sockets of the watched ports.
    pub fn queues(&mut self, now_ns: u64) -> QueueSnapshot {
        self.follow_subject(now_ns);
        let time_s = now_ns.saturating_sub(self.zero_ns) as f64 / 1e9;
        let unix = self.unix.queues();
        let mut snapshot = QueueSnapshot { time_s, unix, ..QueueSnapshot::default() };
        if self.port_numbers.is_empty() {
            return snapshot;
        }
        let (ports, roles) = (&self.ports, &self.roles);
        for network in &mut self.networks {
            // Ports of other namespaces have the same numbers: an end counts where its role lives.
            let here: Vec<&str> = network.roles.iter().map(|at| roles[*at].name()).collect();
            let belongs = |port: u16, end: End| {
                let of_port = ports.iter().filter(|known| known.port == port);
                let mut roles = of_port.filter_map(|known| match end {
                    End::Server => known.served_by.as_deref(),
                    End::Client => known.used_by.as_deref(),
                });
                let first = roles.next();
                first.is_none_or(|first| here.contains(&first) || roles.any(|r| here.contains(&r)))
            };
            let QueueSnapshot { listeners, ends, .. } = &mut snapshot;
            network.queues(time_s, &self.port_numbers, belongs, listeners, ends);
        }
        fuller_only(&mut snapshot.ends);
        snapshot
    }

    /// Everything about what is watched but the samples.
    #[must_use]
    pub fn describe(&self) -> Observed {
        let facts = facts::read();
        Observed {
            host: facts.hostname,
            cpus: facts.cpus_online.unwrap_or_default(),
            memory_bytes: facts.memory_bytes.unwrap_or_default(),
            roles: self.roles.iter().map(RoleWatch::describe).collect(),
            ended: self.ends.seen(),
            ports: self.ports.clone(),
            origins: self.follower.origins().to_vec(),
            origins_left_out: self.follower.left_out(),
            unix: self.unix.uses().to_vec(),
            settings: self.settings.clone(),
            not_observable: self.not_observable(),
            ..Observed::default()
        }
    }

    /// What cannot be seen here, and why, as of now.
    #[must_use]
    pub fn not_observable(&self) -> Vec<Missing> {
        let mut missing = self.missing.clone();
        let roles = self.roles.iter().flat_map(RoleWatch::not_observable);
        let networks = self.networks.iter().flat_map(Network::not_observable);
        let machine = self.machine.not_observable().into_iter();
        let all =
            machine.chain(roles).chain(networks).chain(self.conntrack.as_ref().err().cloned());
        let canaries = self.canaries.as_ref().map(Canaries::not_observable).unwrap_or_default();
        let all = all.chain(self.unix.not_observable());
        missing.extend(all.chain(canaries.iter().cloned()).map(Missing::from));
        if self.family.overflowed {
            missing.insert(Missing {
                what: "every process".to_owned(),
                why: format!("the programs have more than the {MAX_PROCESSES} that are watched"),
            });
        }
        let left_out = self.follower.left_out();
        if left_out > 0 {
            let why = format!("{left_out} more than the {MAX_ORIGINS} that are followed");
            missing.insert(Missing { what: "every server behind the subject".to_owned(), why });
        }
        if self.port_numbers.len() > MAX_PORTS {
            let why = format!("of {} only {MAX_PORTS} are", self.port_numbers.len());
            missing.insert(Missing { what: "sockets of every port".to_owned(), why });
        }
        missing.into_iter().take(MAX_MISSING).collect()
    }

    /// Processor time of the canaries so far, in nanoseconds.
    #[must_use]
    pub fn canaries_cost_ns(&self) -> u64 {
        self.canaries.as_ref().map_or(0, Canaries::cost_ns)
    }

    fn subject(&self) -> Option<&RoleWatch> {
        let named = self.roles.iter().find(|role| role.name() == SUBJECT);
        named.or_else(|| self.roles.iter().find(|role| role.name() != GENERATOR))
    }

    fn add_role(&mut self, watched: &Watched) {
        let known = self.roles.iter().position(|role| role.name() == watched.role);
        let at = known.unwrap_or_else(|| {
            self.roles.push(RoleWatch::new(&watched.role));
            self.roles.len() - 1
        });
        for &pid in watched.pids.iter().take(MAX_PROCESSES) {
            if self.family.claim(pid, at) {
                self.roles[at].add(pid, Began::Before);
                self.ends.follow(&watched.role, pid);
            }
        }
    }

    /// Adds the processes of a role, and their children, that were there unnoticed.
    fn add_late(&mut self, watched: &Watched) {
        let new = |pid: &&i32| !self.family.is_claimed(**pid);
        let mut late: Vec<i32> = watched.pids.iter().filter(new).copied().collect();
        self.add_role(watched);
        for (pid, role) in self.family.adopt_seen() {
            self.roles[role].add(pid, Began::Before);
            late.push(pid);
        }
        let used = late.into_iter().map(|pid| {
            let before_ns = self.family.ticks_before(pid) * 1_000_000_000 / cpu::ticks_per_s();
            cpu::process_cpu_ns(pid).unwrap_or(0).saturating_sub(before_ns)
        });
        self.late_cpu_s += used.sum::<u64>() as f64 / 1e9;
    }

    /// Takes the CPU time of roles that were found since the last call, which the samples until now
    /// have as `foreign_cpus`.
    pub(crate) fn take_late_cpu_s(&mut self) -> f64 {
        std::mem::take(&mut self.late_cpu_s)
    }

    /// Looks which of the processes that were named have ended.
    pub fn ends(&mut self, now_ns: u64) {
        self.ends.look(now_ns.saturating_sub(self.zero_ns) as f64 / 1e9);
    }

    fn add_ports(&mut self, ports: &[PortUse]) {
        self.ports.extend(ports.iter().cloned());
        self.port_numbers = self.ports.iter().map(|port| port.port).collect();
        self.port_numbers.sort_unstable();
        self.port_numbers.dedup();
    }

    /// Opens the network namespaces of roles that have none yet; with no role at all, our own.
    fn find_networks(&mut self) {
        for at in 0..self.roles.len() {
            let placed = self.networks.iter().any(|network| network.roles.contains(&at));
            if !placed && let Some(pid) = self.roles[at].a_pid() {
                self.place(pid, Some(at));
            }
        }
        if self.roles.is_empty() && self.networks.is_empty() {
            self.place(std::process::id().cast_signed(), None);
        }
    }

    fn place(&mut self, pid: i32, role: Option<usize>) {
        match network_id(pid) {
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

    fn sample_networks(&mut self, seconds: f64, sample: &mut Sample) {
        self.find_networks();
        let roles = &self.roles;
        for network in &mut self.networks {
            let names = network.roles.iter().map(|at| roles[*at].name().to_owned()).collect();
            let (mut namespace, links) = network.sample(seconds, names);
            if network.roles.iter().any(|at| roles[*at].name() == SUBJECT) {
                // The first sample of all is not kept.
                namespace.strangers = self.strangers.take_if(|_| self.samples > 1);
            }
            sample.namespaces.push(namespace);
            sample.links.extend(links);
        }
    }

    /// Looks for more servers behind the subject when it is time, and watches them from now on.
    fn follow_subject(&mut self, now_ns: u64) {
        if !self.follow || now_ns < self.follow_next_ns {
            return;
        }
        let before_ns = thread_cpu_ns();
        self.look_for_origins();
        self.follow_looks += 1;
        let cost_ns = thread_cpu_ns().saturating_sub(before_ns);
        // The first looks are few, and the first of them finds most: they are not paid for.
        let pause_ns = match self.follow_looks < FOLLOW_EARLY {
            true => FOLLOW_EARLY_NS,
            false => FOLLOW_NS.max(cost_ns.saturating_mul(FOLLOW_SHARE)),
        };
        self.follow_next_ns = now_ns + pause_ns;
    }

    fn look_for_origins(&mut self) {
        let pids = |name: &str| {
            let role = self.roles.iter().find(|role| role.name() == name);
            role.map(RoleWatch::live_pids).unwrap_or_default()
        };
        let (subject, origins) = (pids(SUBJECT), pids(ORIGIN));
        let is_other = |role: &&RoleWatch| role.name() != SUBJECT && role.name() != ORIGIN;
        let others = self.roles.iter().filter(is_other).flat_map(RoleWatch::live_pids);
        let others: Vec<i32> = others.collect();
        let known =
            Known { subject: &subject, origins: &origins, others: &others, ports: &self.ports };
        let behind_unix = self.unix.look(&known);
        let found = self.follower.look(&known);
        if !behind_unix.is_empty() {
            self.add_late(&Watched { role: ORIGIN.to_owned(), pids: behind_unix });
        }
        match found {
            Ok(mut found) => {
                if !subject.is_empty() {
                    self.strangers = Some(found.strangers);
                }
                // A port that is known already stays as it was told.
                found.ports.retain(|port| !self.port_numbers.contains(&port.port));
                if !found.pids.is_empty() {
                    self.add_late(&Watched { role: ORIGIN.to_owned(), pids: found.pids });
                }
                if !found.ports.is_empty() {
                    self.add_ports(&found.ports);
                }
                self.find_networks();
            }
            Err(error) => _ = self.missing.insert(error.into()),
        }
    }
}

/// What cannot be seen is listed up to this many.
const MAX_MISSING: usize = 100;

/// Where two namespaces both have an end of a port, the one with more connections is meant.
fn fuller_only(ends: &mut Vec<EndQueues>) {
    let established = |end: &EndQueues| end.states.get("established").copied().unwrap_or(0);
    ends.sort_by_key(|end| (end.port, end.end == End::Server, std::cmp::Reverse(established(end))));
    ends.dedup_by_key(|end| (end.port, end.end));
}

#[cfg(test)]
mod tests;
