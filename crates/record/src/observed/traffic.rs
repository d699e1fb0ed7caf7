//! Traffic of the subject: its origins, and sums of the sockets over all of them.
//!
//! Thresholds and interpretation are elsewhere.

use serde::{Deserialize, Serialize};

use super::{ConnectionEnd, EndQueues, MachineObservation, QueueSnapshot};

/// Address that the subject, or a server behind it, connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginAddress {
    pub address: String,
    pub port: u16,
    /// Role that connects: `subject`, or `origin` for an origin of an origin.
    pub used_by: String,
    /// Processes that listen there; empty if they are not on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pids: Vec<i32>,
    /// Distance: 1 behind the subject, 2 behind an origin, and so on.
    pub depth: u8,
}

/// Listening unix socket, with the roles at both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixSocketRoles {
    /// Path; `@name` for an abstract one.
    pub path: String,
    pub served_by: Option<String>,
    pub used_by: Option<String>,
}

/// TCP sockets in a namespace that no watched role holds and that are at no watched port. Without
/// such sockets, the counters of the namespace belong to the roles alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwatchedSockets {
    pub established: u64,
    /// Connections being made (SYN-SENT or SYN-RECEIVED).
    pub half_open: u64,
    pub listening: u64,
    /// Connections that these listening sockets dropped since they were opened.
    pub listen_drops: u64,
}

/// Local ports that a role uses to one destination, and the available number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalPorts {
    /// Ports in use to the destination with the most of them.
    pub used: u64,
    /// Size of `net.ipv4.ip_local_port_range`.
    pub available: u64,
}

/// Requests in flight at one moment by location, at most one per connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlightByLocation {
    /// In the subject's receive buffers, unread.
    pub unread_at_subject: u64,
    /// Read by the subject, without a response, and at no origin.
    pub inside_subject: u64,
    /// At an origin: the subject has sent a request and waits.
    pub at_origins: u64,
    /// Unread by the origins, as part of `at_origins`; 0 if the origins are on another machine.
    pub unread_at_origins: u64,
    /// Response of the origin, unread by the subject.
    pub origin_responses_unread: u64,
    /// Response of the subject, unread by the generator; 0 if the generator is on another machine.
    pub unread_at_generator: u64,
    /// Connections of the subject's clients and origins with an unknown location.
    pub location_unknown: u64,
}

impl QueueSnapshot {
    /// Sums the ends of some ports; `None` without any.
    pub fn sum_ends(&self, ports: &[u16], end: ConnectionEnd) -> Option<EndQueues> {
        let mut matching =
            self.ends.iter().filter(|queues| queues.end == end && ports.contains(&queues.port));
        let first = matching.next()?.clone();
        Some(matching.fold(first, EndQueues::merged_with))
    }
}

impl MachineObservation {
    pub fn ports_served_by(&self, role: &str) -> Vec<u16> {
        let matching = self.ports.iter().filter(|port| port.served_by.as_deref() == Some(role));
        sorted_unique(matching.map(|port| port.port))
    }

    /// Returns the ports that a role connects to: for the subject, those of all its origins.
    pub fn ports_used_by(&self, role: &str) -> Vec<u16> {
        let matching = self.ports.iter().filter(|port| port.used_by.as_deref() == Some(role));
        sorted_unique(matching.map(|port| port.port))
    }

    /// Sums the server ends of all ports that `role` listens on.
    pub fn server_ends(&self, role: &str, snapshot: &QueueSnapshot) -> EndQueues {
        snapshot.sum_ends(&self.ports_served_by(role), ConnectionEnd::Server).unwrap_or_default()
    }

    /// Sums the client ends of all ports that `role` connects to.
    pub fn client_ends(&self, role: &str, snapshot: &QueueSnapshot) -> EndQueues {
        snapshot.sum_ends(&self.ports_used_by(role), ConnectionEnd::Client).unwrap_or_default()
    }

    /// Counts the requests in flight by location.
    pub fn in_flight(&self, snapshot: &QueueSnapshot) -> InFlightByLocation {
        let served = self.server_ends("subject", snapshot);
        let origins = self.client_ends("subject", snapshot);
        let at_origin_servers =
            snapshot.sum_ends(&self.ports_used_by("subject"), ConnectionEnd::Server).unwrap_or_default();
        let generator =
            snapshot.sum_ends(&self.ports_served_by("subject"), ConnectionEnd::Client).unwrap_or_default();
        let outside_subject = origins.awaiting_response + origins.with_unread;
        InFlightByLocation {
            unread_at_subject: served.with_unread,
            inside_subject: served.pending_response.saturating_sub(outside_subject),
            at_origins: origins.awaiting_response,
            unread_at_origins: at_origin_servers.with_unread,
            origin_responses_unread: origins.with_unread,
            unread_at_generator: generator.with_unread,
            location_unknown: served.order_unknown + origins.order_unknown,
        }
    }

    /// Returns the local ports that `role` uses to the destination with the most of them; `None` if
    /// it connects to none, or the range is unknown.
    pub fn local_ports(&self, role: &str, snapshot: &QueueSnapshot) -> Option<LocalPorts> {
        let used = self.client_ends(role, snapshot).local_ports_max?;
        Some(LocalPorts { used, available: self.local_port_range_size()? })
    }

    /// Returns the number of ports of `net.ipv4.ip_local_port_range`, as of all settings in the subject's network
    /// namespace.
    pub fn local_port_range_size(&self) -> Option<u64> {
        let range = self.settings.get("net.ipv4.ip_local_port_range")?;
        let mut bounds = range.split_ascii_whitespace().map(str::parse::<u64>);
        let (first, last) = (bounds.next()?.ok()?, bounds.next()?.ok()?);
        (last + 1).checked_sub(first)
    }

    /// Returns the connections per second that the listening sockets of a port dropped between two
    /// times; `None` without two snapshots of them. Sockets that were closed meanwhile take their
    /// count with them; the rate is then 0.
    pub fn listener_drops_per_s(&self, port: u16, from_s: f64, to_s: f64) -> Option<f64> {
        let is_in_range = |snapshot: &&QueueSnapshot| (from_s..=to_s).contains(&snapshot.time_s);
        let dropped = |snapshot: &QueueSnapshot| {
            let listener = snapshot.listeners.iter().find(|listener| listener.port == port)?;
            Some((snapshot.time_s, listener.dropped))
        };
        let mut drop_counts = self.queues.iter().filter(is_in_range).filter_map(dropped);
        let (first_s, first) = drop_counts.next()?;
        let (last_s, last) = drop_counts.next_back()?;
        (last_s > first_s).then(|| last.saturating_sub(first) as f64 / (last_s - first_s))
    }

    /// Returns the mean CPUs that a role used between two times, from samples weighted with their
    /// length; `None` if it was not observed.
    pub fn role_cpus(&self, role: &str, from_s: f64, to_s: f64) -> Option<f64> {
        let role_index = self.role_index(role)?;
        self.sample_mean(from_s, to_s, |sample| Some(sample.roles.get(role_index)?.cpus()))
    }

    /// Returns the mean CPUs that processes outside the roles used between two times.
    pub fn foreign_cpus(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.foreign_cpus_among(&[], from_s, to_s)
    }

    /// Returns the same without the roles of other observations in `all` of the same kernel:
    /// [`MachineSample::foreign_cpus_among`](super::MachineSample::foreign_cpus_among).
    pub fn foreign_cpus_among(&self, all: &[Self], from_s: f64, to_s: f64) -> Option<f64> {
        self.sample_mean(from_s, to_s, |sample| sample.foreign_cpus_among(self, all))
    }

    fn sample_mean(
        &self,
        from_s: f64,
        to_s: f64,
        figure: impl Fn(&super::MachineSample) -> Option<f64>,
    ) -> Option<f64> {
        let samples = self.samples_in_range(from_s, to_s);
        let weighted = samples.iter().filter_map(|sample| Some((figure(sample)?, sample.length_s)));
        let (sum, length_s) = weighted.fold((0.0, 0.0), |sum, (value, s)| (sum.0 + value * s, sum.1 + s));
        (length_s > 0.0).then(|| sum / length_s)
    }
}

fn sorted_unique(ports: impl Iterator<Item = u16>) -> Vec<u16> {
    let mut ports: Vec<u16> = ports.collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use super::super::{ListenerQueue, MachineSample, PortRoles, RoleUse};
    use super::*;

    fn end_queues(port: u16, end: ConnectionEnd) -> EndQueues {
        EndQueues { port, end, ..EndQueues::default() }
    }

    fn port_roles(port: u16, served_by: &str, used_by: &str) -> PortRoles {
        PortRoles {
            port,
            served_by: Some(served_by.to_owned()).filter(|role| !role.is_empty()),
            used_by: Some(used_by.to_owned()),
        }
    }

    fn observed() -> MachineObservation {
        MachineObservation {
            ports: vec![
                port_roles(80, "subject", "generator"),
                port_roles(9001, "origin", "subject"),
                port_roles(9002, "", "subject"),
                port_roles(9100, "", "origin"),
            ],
            settings: [("net.ipv4.ip_local_port_range".to_owned(), "1024\t1123".to_owned())].into(),
            ..MachineObservation::default()
        }
    }

    #[test]
    fn the_requests_in_flight_are_split_over_all_origins() {
        let observation = observed();
        let snapshot = QueueSnapshot {
            ends: vec![
                EndQueues {
                    with_unread: 4,
                    pending_response: 20,
                    order_unknown: 1,
                    ..end_queues(80, ConnectionEnd::Server)
                },
                EndQueues { with_unread: 2, ..end_queues(80, ConnectionEnd::Client) },
                EndQueues {
                    awaiting_response: 7,
                    with_unread: 1,
                    local_ports_max: Some(90),
                    bytes_acked_per_s: Some(5.0),
                    ..end_queues(9001, ConnectionEnd::Client)
                },
                EndQueues { with_unread: 3, ..end_queues(9001, ConnectionEnd::Server) },
                EndQueues {
                    awaiting_response: 6,
                    order_unknown: 2,
                    local_ports_max: Some(30),
                    ..end_queues(9002, ConnectionEnd::Client)
                },
                EndQueues { awaiting_response: 50, ..end_queues(9100, ConnectionEnd::Client) },
            ],
            ..QueueSnapshot::default()
        };
        let expected = InFlightByLocation {
            unread_at_subject: 4,
            inside_subject: 6,
            at_origins: 13,
            unread_at_origins: 3,
            origin_responses_unread: 1,
            unread_at_generator: 2,
            location_unknown: 3,
        };
        assert_eq!(observation.in_flight(&snapshot), expected);
        let used = observation.client_ends("subject", &snapshot);
        assert_eq!((used.awaiting_response, used.bytes_acked_per_s, used.opened), (13, Some(5.0), None));
        let ports = LocalPorts { used: 90, available: 100 };
        assert_eq!(observation.local_ports("subject", &snapshot), Some(ports));
        assert_eq!(observation.local_ports("generator", &snapshot), None);
    }

    #[test]
    fn drops_and_cpus_cover_the_requested_time() {
        let mut observation = observed();
        let listener = |time_s, dropped| QueueSnapshot {
            time_s,
            listeners: vec![ListenerQueue { port: 80, dropped, ..ListenerQueue::default() }],
            ..QueueSnapshot::default()
        };
        observation.queues = vec![listener(0.5, 1), listener(1.0, 10), listener(2.0, 20), listener(3.0, 40)];
        assert_eq!(observation.listener_drops_per_s(80, 1.0, 3.0), Some(15.0));
        assert_eq!(observation.listener_drops_per_s(80, 2.5, 3.0), None);
        assert_eq!(observation.listener_drops_per_s(81, 0.0, 3.0), None);
        observation.roles.push(super::super::Role { name: "subject".to_owned(), ..Default::default() });
        let sample = |time_s: f64, length_s, user_cpus, foreign| MachineSample {
            time_s,
            length_s,
            foreign_cpus: foreign,
            roles: vec![RoleUse { user_cpus, ..RoleUse::default() }],
            ..MachineSample::default()
        };
        observation.samples = vec![
            sample(1.0, 1.0, 9.0, Some(9.0)),
            sample(2.0, 1.0, 0.5, Some(0.25)),
            sample(4.0, 2.0, 2.0, None),
        ];
        assert_eq!(observation.role_cpus("subject", 1.0, 4.0), Some(1.5));
        assert_eq!(observation.foreign_cpus(1.0, 4.0), Some(0.25));
        assert_eq!(observation.role_cpus("origin", 1.0, 4.0), None);
    }
}
