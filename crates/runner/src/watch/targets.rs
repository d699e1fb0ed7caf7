//! Resolves targets to processes, their roles, and the ports that connect them.

use std::path::PathBuf;

use host::NotObservable;
use host::observe::{MonitorSpec, RoleSpec, SUBJECT, Topology, discover_topology, discover_topology_at};
use host::process::ProcessReader;
use host::sockets::listening_ports;
use load::plan::Authority;
use record::observed::{PortRoles, UnobservableMetric};
use record::problem::InputProblem;
use rt::address::{Address, ResolveError};

use super::busiest;
use super::plan::{TargetLocator, WatchPlan, WatchTarget};
use crate::failure::Failure;

/// Number of programs shown when the user named none.
const BUSIEST_SHOWN: usize = 5;
/// Maximum number of ports of a process whose sockets are sampled; more would make each sample
/// expensive.
const PORTS_MAX: usize = 16;
/// Socket samples per interval; a median needs several.
const QUEUE_SAMPLES_PER_INTERVAL: u64 = 5;
/// Minimum time between two socket samples: socket dumps disturb the measured process.
const QUEUE_INTERVAL_NS_MIN: u64 = 200_000_000;

/// Resolved targets, and their metrics that cannot be observed.
#[derive(Debug)]
pub struct ResolvedTargets {
    pub spec: MonitorSpec,
    /// Metrics of the targets that cannot be observed.
    pub unobservable: Vec<UnobservableMetric>,
}

/// Resolves all targets. The error lists every target that was not found.
///
/// # Errors
/// Targets that were not found, or that have two names.
pub fn resolve_targets(plan: &WatchPlan) -> Result<ResolvedTargets, Failure> {
    let mut targets = TargetSet::default();
    let (mut absent, mut duplicates) = (Vec::new(), Vec::new());
    for target in &plan.targets {
        match resolve_target(target) {
            Ok(resolved) => {
                duplicates.extend(targets.name_conflict(target, &resolved.pids));
                targets.add_target(target, resolved);
            }
            Err(error) => absent.push(error.to_string()),
        }
    }
    if !duplicates.is_empty() {
        return Err(duplicates.into());
    }
    if !absent.is_empty() {
        return Err(Failure::CannotRun(absent.join("; ")));
    }
    if plan.targets.is_empty() {
        for (role, pids) in busiest::find_busiest(BUSIEST_SHOWN) {
            targets.add_ports_of(&role, &pids);
            targets.roles.push(RoleSpec { role, pids });
        }
    }
    targets.ports.truncate(PORTS_MAX);
    let spec = MonitorSpec {
        roles: targets.roles,
        ports: targets.ports,
        sample_ns: plan.interval_ns,
        queue_ns: QUEUE_INTERVAL_NS_MIN.max(plan.interval_ns / QUEUE_SAMPLES_PER_INTERVAL),
        ..MonitorSpec::default()
    };
    Ok(ResolvedTargets { spec, unobservable: targets.unobservable })
}

/// One target: its processes, and its connection chain.
struct ResolvedTarget {
    pids: Vec<i32>,
    topology: Topology,
}

/// Reason why a target has no processes.
#[derive(Debug, thiserror::Error)]
enum TargetError {
    #[error("--pid {0}: no such process")]
    NoProcess(i32),
    #[error("{}: not a TCP address", .0.display())]
    NotTcp(PathBuf),
    #[error("{authority}: {source}")]
    Resolve { authority: String, source: ResolveError },
    #[error("{0}: no process on this machine listens there")]
    NoListener(String),
    #[error("{target}: {reasons}")]
    NotObservable { target: String, reasons: String },
}

fn resolve_target(target: &WatchTarget) -> Result<ResolvedTarget, TargetError> {
    match &target.locator {
        TargetLocator::Pid(pid) => resolve_pid(*pid),
        TargetLocator::Port(port) => resolve_topology(discover_topology(&[*port]), &format!("port {port}")),
        TargetLocator::Url(authority) => {
            let address = resolve_address(authority)?;
            resolve_topology(discover_topology_at(&[address], &[]), &authority.to_string())
        }
    }
}

fn resolve_pid(pid: i32) -> Result<ResolvedTarget, TargetError> {
    let process = ProcessReader::open(pid).and_then(|mut reader| reader.sample().map(|_| ()));
    process.map_err(|_| TargetError::NoProcess(pid))?;
    let ports = listening_ports(&[pid]).unwrap_or_default();
    let ports = &ports[..ports.len().min(PORTS_MAX)];
    let topology = if ports.is_empty() { Topology::default() } else { discover_topology(ports) };
    Ok(ResolvedTarget { pids: vec![pid], topology })
}

fn resolve_address(authority: &Authority) -> Result<std::net::SocketAddr, TargetError> {
    match authority.resolve() {
        Ok(Address::Tcp(address)) => Ok(address),
        Ok(Address::Unix(path)) => Err(TargetError::NotTcp(path)),
        Err(source) => Err(TargetError::Resolve { authority: authority.to_string(), source }),
    }
}

fn resolve_topology(topology: Topology, what: &str) -> Result<ResolvedTarget, TargetError> {
    let subject = topology.roles.iter().find(|watched| watched.role == SUBJECT);
    let Some(pids) = subject.map(|watched| watched.pids.clone()) else {
        let why: Vec<String> = topology.not_observable.iter().map(NotObservable::to_string).collect();
        let target = what.to_owned();
        return Err(match why.is_empty() {
            true => TargetError::NoListener(target),
            false => TargetError::NotObservable { target, reasons: why.join("; ") },
        });
    };
    Ok(ResolvedTarget { pids, topology })
}

/// Targets resolved so far.
#[derive(Debug, Default)]
struct TargetSet {
    roles: Vec<RoleSpec>,
    ports: Vec<PortRoles>,
    unobservable: Vec<UnobservableMetric>,
}

impl TargetSet {
    /// Adds a target. Servers behind a subject are watched with it; no process is a generator here.
    fn add_target(&mut self, target: &WatchTarget, resolved: ResolvedTarget) {
        let role = self.role_name(target, &resolved.pids);
        for port in resolved.topology.ports {
            let is_its_own = port.served_by.as_deref() == Some(SUBJECT);
            if is_its_own {
                self.add_port(PortRoles { served_by: Some(role.clone()), used_by: None, ..port });
            } else if role == SUBJECT {
                self.add_port(port);
            }
        }
        self.unobservable.extend(resolved.topology.not_observable.into_iter().map(UnobservableMetric::from));
        self.add_role(role.clone(), resolved.pids);
        let servers = resolved.topology.roles.into_iter().filter(|watched| {
            role == SUBJECT && ![SUBJECT, host::observe::GENERATOR].contains(&&*watched.role)
        });
        for watched in servers {
            self.add_role(watched.role, watched.pids);
        }
    }

    /// Reports a named target whose processes all have another name already: it would not be shown.
    fn name_conflict(&self, target: &WatchTarget, pids: &[i32]) -> Option<InputProblem> {
        let name = target.name.as_ref()?;
        let role_of = |pid: &i32| self.roles.iter().find(|watched| watched.pids.contains(pid));
        let known = pids.iter().map(role_of).collect::<Option<Vec<_>>>()?;
        let other = known.first().filter(|_| known.iter().all(|role| role.role != *name))?;
        let text = format!(
            "{} is watched as '{}' already, so '{name}' would not be shown: give it one name, or leave \
             one of the two out",
            target.locator, other.role
        );
        Some(InputProblem::new(target.locator.flag(), text))
    }

    /// Returns the given name, else `subject` for the first target, else command and number.
    fn role_name(&self, target: &WatchTarget, pids: &[i32]) -> String {
        if let Some(name) = &target.name {
            return name.clone();
        }
        if self.roles.iter().all(|watched| watched.role != SUBJECT) {
            return SUBJECT.to_owned();
        }
        let number = match &target.locator {
            TargetLocator::Pid(pid) => pid.to_string(),
            TargetLocator::Port(port) => port.to_string(),
            TargetLocator::Url(authority) => authority.port.to_string(),
        };
        let reader = pids.first().map(|pid| ProcessReader::open(*pid));
        let command = reader.and_then(|reader| Some(reader.ok()?.sample().ok()?.name.clone()));
        format!("{} {number}", command.unwrap_or_default()).trim().to_owned()
    }

    fn add_role(&mut self, role: String, mut pids: Vec<i32>) {
        let known = |pid: &i32| self.roles.iter().any(|watched| watched.pids.contains(pid));
        pids.retain(|pid| !known(pid));
        match self.roles.iter_mut().find(|watched| watched.role == role) {
            Some(watched) => watched.pids.extend(pids),
            None if pids.is_empty() => {}
            None => self.roles.push(RoleSpec { role, pids }),
        }
    }

    fn add_port(&mut self, port: PortRoles) {
        if self.ports.iter().all(|known| known.port != port.port) {
            self.ports.push(port);
        }
    }

    fn add_ports_of(&mut self, role: &str, pids: &[i32]) {
        for port in listening_ports(pids).unwrap_or_default() {
            self.add_port(PortRoles { port, served_by: Some(role.to_owned()), used_by: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved_target(pids: &[i32], subject: u16, behind: &[(u16, i32)]) -> ResolvedTarget {
        let watched = |role: &str, pids: &[i32]| RoleSpec { role: role.into(), pids: pids.into() };
        let origin: Vec<i32> = behind.iter().map(|(_, pid)| *pid).collect();
        let port = |port, served_by: &str| PortRoles {
            port,
            served_by: Some(served_by.to_owned()),
            used_by: Some("generator".to_owned()),
        };
        let mut ports = vec![port(subject, "subject")];
        ports.extend(behind.iter().map(|(number, _)| port(*number, "origin")));
        let roles = vec![watched("generator", &[1]), watched("subject", pids), watched("origin", &origin)];
        ResolvedTarget { pids: pids.into(), topology: Topology { roles, ports, not_observable: Vec::new() } }
    }

    fn target(name: Option<&str>, port: u16) -> WatchTarget {
        WatchTarget { name: name.map(str::to_owned), locator: TargetLocator::Port(port) }
    }

    #[test]
    fn the_servers_behind_a_subject_are_watched_with_it() {
        let mut targets = TargetSet::default();
        targets.add_target(&target(None, 80), resolved_target(&[-5, -6], 80, &[(9000, -7)]));
        let roles: Vec<_> =
            targets.roles.iter().map(|watched| (watched.role.as_str(), &watched.pids[..])).collect();
        assert_eq!(roles, [("subject", &[-5, -6][..]), ("origin", &[-7])]);
        assert_eq!(targets.ports[0].used_by, None);
        assert_eq!(targets.ports[1].served_by.as_deref(), Some("origin"));
    }

    #[test]
    fn given_names_are_used_and_others_are_distinguished() {
        let mut targets = TargetSet::default();
        targets.add_target(&target(Some("origin"), 9000), resolved_target(&[-7], 9000, &[(5432, -9)]));
        targets.add_target(&target(None, 80), resolved_target(&[-5], 80, &[(9000, -7)]));
        targets.add_target(&target(None, 81), resolved_target(&[-8], 81, &[]));
        let names: Vec<_> = targets.roles.iter().map(|watched| watched.role.as_str()).collect();
        assert_eq!(names, ["origin", "subject", "81"]);
        let ports: Vec<u16> = targets.ports.iter().map(|port| port.port).collect();
        assert_eq!(ports, [9000, 80, 81]);
    }

    #[test]
    fn a_name_for_what_has_another_is_refused() {
        let mut targets = TargetSet::default();
        targets.add_target(&target(Some("a"), 80), resolved_target(&[-5, -6], 80, &[]));
        let same = targets.name_conflict(&target(Some("b"), 81), &[-6]).unwrap();
        assert_eq!(same.location, "--port");
        assert!(["port 81", "'a'", "'b'"].iter().all(|name| same.text.contains(name)), "{same}");
        assert_eq!(targets.name_conflict(&target(Some("a"), 81), &[-6]), None);
        assert_eq!(targets.name_conflict(&target(None, 81), &[-6]), None);
        assert_eq!(targets.name_conflict(&target(Some("b"), 81), &[-6, -7]), None);
    }

    #[test]
    fn missing_targets_are_reported() {
        let why = resolve_pid(i32::MAX).err().unwrap().to_string();
        assert!(why.starts_with(&format!("--pid {}:", i32::MAX)), "{why}");
        // A client holds this port all the time, and nobody listens on it.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let why = resolve_target(&target(None, port)).err().unwrap().to_string();
        assert!(why.starts_with(&format!("port {port}:")), "{why}");
    }
}
