//! From what was named to what is watched: processes, their roles, the ports on which they meet.

use host::NotObservable;
use host::observe::{Chain, SUBJECT, Spec, Watched, chain, chain_at};
use host::process::ProcessReader;
use host::sockets::ports_of;
use load::plan::Authority;
use record::observed::{Missing, PortUse};
use record::problem::Problem;
use rt::address::Address;

use super::busiest;
use super::plan::{At, Plan, Target};
use crate::exit::Failure;

/// Programs that are shown when none was named.
const BUSIEST: usize = 5;
/// Ports of a program whose sockets are looked at; more would make each look expensive.
const PORTS_MAX: usize = 16;
/// Looks at the sockets in an interval; a median needs some.
const QUEUES_PER_INTERVAL: u64 = 5;
/// Least time between two of them: dumps of sockets disturb whoever is measured.
const QUEUE_NS_MIN: u64 = 200_000_000;

/// What is watched, and what could not be found out about it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) spec: Spec,
    pub(super) missing: Vec<Missing>,
}

/// Finds everything that was named; what is not there is told together.
pub(super) fn find(plan: &Plan) -> Result<Found, Failure> {
    let mut all = Gathered::default();
    let (mut absent, mut twice) = (Vec::new(), Vec::new());
    for target in &plan.targets {
        match found(target) {
            Ok(one) => {
                twice.extend(all.known_as_another(target, &one.pids));
                all.add(target, one);
            }
            Err(why) => absent.push(why),
        }
    }
    if !twice.is_empty() {
        return Err(twice.into());
    }
    if !absent.is_empty() {
        return Err(Failure::CannotRun(absent.join("; ")));
    }
    if plan.targets.is_empty() {
        for (role, pids) in busiest::find(BUSIEST) {
            all.add_ports_of(&role, &pids);
            all.roles.push(Watched { role, pids });
        }
    }
    all.ports.truncate(PORTS_MAX);
    let spec = Spec {
        roles: all.roles,
        ports: all.ports,
        sample_ns: plan.every_ns,
        queue_ns: QUEUE_NS_MIN.max(plan.every_ns / QUEUES_PER_INTERVAL),
        ..Spec::default()
    };
    Ok(Found { spec, missing: all.missing })
}

/// One target: its processes, and the chain that they are in.
struct One {
    pids: Vec<i32>,
    chain: Chain,
}

fn found(target: &Target) -> Result<One, String> {
    match &target.at {
        At::Pid(pid) => by_pid(*pid),
        At::Port(port) => by_chain(chain(&[*port]), &format!("port {port}")),
        At::Url(authority) => {
            let address = resolve(authority)?;
            by_chain(chain_at(&[address], &[]), &authority.to_string())
        }
    }
}

fn by_pid(pid: i32) -> Result<One, String> {
    let there = ProcessReader::open(pid).and_then(|mut reader| reader.sample().map(|_| ()));
    there.map_err(|_| format!("--pid {pid}: there is no such process"))?;
    let ports = ports_of(&[pid]).unwrap_or_default();
    let ports = &ports[..ports.len().min(PORTS_MAX)];
    let chain = if ports.is_empty() { Chain::default() } else { chain(ports) };
    Ok(One { pids: vec![pid], chain })
}

fn resolve(authority: &Authority) -> Result<std::net::SocketAddr, String> {
    match authority.resolve() {
        Ok(Address::Tcp(address)) => Ok(address),
        Ok(Address::Unix(path)) => Err(format!("{}: is no TCP address", path.display())),
        Err(why) => Err(format!("{authority}: {why}")),
    }
}

fn by_chain(chain: Chain, what: &str) -> Result<One, String> {
    let subject = chain.roles.iter().find(|watched| watched.role == SUBJECT);
    let Some(pids) = subject.map(|watched| watched.pids.clone()) else {
        let why: Vec<String> = chain.not_observable.iter().map(NotObservable::to_string).collect();
        return Err(match why.is_empty() {
            true => format!("{what}: no program of this machine listens there"),
            false => format!("{what}: {}", why.join("; ")),
        });
    };
    Ok(One { pids, chain })
}

/// What was found until now.
#[derive(Debug, Default)]
struct Gathered {
    roles: Vec<Watched>,
    ports: Vec<PortUse>,
    missing: Vec<Missing>,
}

impl Gathered {
    /// The servers behind a subject are watched with it; nobody is a generator here.
    fn add(&mut self, target: &Target, one: One) {
        let role = self.name(target, &one.pids);
        for port in one.chain.ports {
            let is_its_own = port.served_by.as_deref() == Some(SUBJECT);
            if is_its_own {
                self.port(PortUse { served_by: Some(role.clone()), used_by: None, ..port });
            } else if role == SUBJECT {
                self.port(port);
            }
        }
        self.missing.extend(one.chain.not_observable.into_iter().map(Missing::from));
        self.role(role.clone(), one.pids);
        let behind = one.chain.roles.into_iter().filter(|watched| {
            role == SUBJECT && ![SUBJECT, host::observe::GENERATOR].contains(&&*watched.role)
        });
        for watched in behind {
            self.role(watched.role, watched.pids);
        }
    }

    /// That all of what was given a name is watched under another already: it would not be shown.
    fn known_as_another(&self, target: &Target, pids: &[i32]) -> Option<Problem> {
        let name = target.name.as_ref()?;
        let role_of = |pid: &i32| self.roles.iter().find(|watched| watched.pids.contains(pid));
        let known = pids.iter().map(role_of).collect::<Option<Vec<_>>>()?;
        let other = known.first().filter(|_| known.iter().all(|role| role.role != *name))?;
        let text = format!(
            "{} is watched as '{}' already, so '{name}' would not be shown: give it one name, or leave \
             one of the two out",
            target.at, other.role
        );
        Some(Problem::new(target.at.flag(), text))
    }

    /// The given name; or `subject` for the first; or the command and the number.
    fn name(&self, target: &Target, pids: &[i32]) -> String {
        if let Some(name) = &target.name {
            return name.clone();
        }
        if self.roles.iter().all(|watched| watched.role != SUBJECT) {
            return SUBJECT.to_owned();
        }
        let number = match &target.at {
            At::Pid(pid) => pid.to_string(),
            At::Port(port) => port.to_string(),
            At::Url(authority) => authority.port.to_string(),
        };
        let reader = pids.first().map(|pid| ProcessReader::open(*pid));
        let command = reader.and_then(|reader| Some(reader.ok()?.sample().ok()?.name.clone()));
        format!("{} {number}", command.unwrap_or_default()).trim().to_owned()
    }

    fn role(&mut self, role: String, mut pids: Vec<i32>) {
        let known = |pid: &i32| self.roles.iter().any(|watched| watched.pids.contains(pid));
        pids.retain(|pid| !known(pid));
        match self.roles.iter_mut().find(|watched| watched.role == role) {
            Some(watched) => watched.pids.extend(pids),
            None if pids.is_empty() => {}
            None => self.roles.push(Watched { role, pids }),
        }
    }

    fn port(&mut self, port: PortUse) {
        if self.ports.iter().all(|known| known.port != port.port) {
            self.ports.push(port);
        }
    }

    fn add_ports_of(&mut self, role: &str, pids: &[i32]) {
        for port in ports_of(pids).unwrap_or_default() {
            self.port(PortUse { port, served_by: Some(role.to_owned()), used_by: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(pids: &[i32], subject: u16, behind: &[(u16, i32)]) -> One {
        let watched = |role: &str, pids: &[i32]| Watched { role: role.into(), pids: pids.into() };
        let origin: Vec<i32> = behind.iter().map(|(_, pid)| *pid).collect();
        let port = |port, served_by: &str| PortUse {
            port,
            served_by: Some(served_by.to_owned()),
            used_by: Some("generator".to_owned()),
        };
        let mut ports = vec![port(subject, "subject")];
        ports.extend(behind.iter().map(|(number, _)| port(*number, "origin")));
        let roles =
            vec![watched("generator", &[1]), watched("subject", pids), watched("origin", &origin)];
        One { pids: pids.into(), chain: Chain { roles, ports, not_observable: Vec::new() } }
    }

    fn target(name: Option<&str>, port: u16) -> Target {
        Target { name: name.map(str::to_owned), at: At::Port(port) }
    }

    #[test]
    fn the_servers_behind_a_subject_are_watched_with_it() {
        let mut all = Gathered::default();
        all.add(&target(None, 80), one(&[-5, -6], 80, &[(9000, -7)]));
        let roles: Vec<_> =
            all.roles.iter().map(|watched| (watched.role.as_str(), &watched.pids[..])).collect();
        assert_eq!(roles, [("subject", &[-5, -6][..]), ("origin", &[-7])]);
        assert_eq!(all.ports[0].used_by, None);
        assert_eq!(all.ports[1].served_by.as_deref(), Some("origin"));
    }

    #[test]
    fn names_that_are_given_hold_and_others_are_told_apart() {
        let mut all = Gathered::default();
        all.add(&target(Some("origin"), 9000), one(&[-7], 9000, &[(5432, -9)]));
        all.add(&target(None, 80), one(&[-5], 80, &[(9000, -7)]));
        all.add(&target(None, 81), one(&[-8], 81, &[]));
        let names: Vec<_> = all.roles.iter().map(|watched| watched.role.as_str()).collect();
        assert_eq!(names, ["origin", "subject", "81"]);
        let ports: Vec<u16> = all.ports.iter().map(|port| port.port).collect();
        assert_eq!(ports, [9000, 80, 81]);
    }

    #[test]
    fn a_name_for_what_has_another_is_refused() {
        let mut all = Gathered::default();
        all.add(&target(Some("a"), 80), one(&[-5, -6], 80, &[]));
        let same = all.known_as_another(&target(Some("b"), 81), &[-6]).unwrap().to_string();
        assert!(same.starts_with("--port: port 81 is watched as 'a' already"), "{same}");
        assert_eq!(all.known_as_another(&target(Some("a"), 81), &[-6]), None);
        assert_eq!(all.known_as_another(&target(None, 81), &[-6]), None);
        assert_eq!(all.known_as_another(&target(Some("b"), 81), &[-6, -7]), None);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let why = by_pid(i32::MAX).err().unwrap();
        assert_eq!(why, format!("--pid {}: there is no such process", i32::MAX));
        // Somebody has this port all the while, and nobody listens at it.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = client.local_addr().unwrap().port();
        let why = found(&target(None, port)).err().unwrap();
        assert_eq!(why, format!("port {port}: no program of this machine listens there"));
    }
}
