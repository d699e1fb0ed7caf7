//! The subject's own traffic: its origins, and sums of the sockets over all of them.
//!
//! Not for thresholds: sums say what was, never what it means.

use serde::{Deserialize, Serialize};

use super::{End, EndQueues, Observed, QueueSnapshot};

/// An address that the subject, or a server behind it, connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Address and port.
    pub address: String,
    /// The port alone.
    pub port: u16,
    /// The role that connects: `subject`, or `origin` for an origin of an origin.
    pub used_by: String,
    /// The processes that listen there; none when they are not on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pids: Vec<i32>,
    /// 1 behind the subject, 2 behind an origin, and so on.
    pub depth: u8,
}

/// A listening unix socket: who serves it and who connects to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixUse {
    /// Its path; `@name` for an abstract one.
    pub path: String,
    /// The role that listens.
    pub served_by: Option<String>,
    /// The role that connects.
    pub used_by: Option<String>,
}

/// TCP sockets in a namespace that no watched role holds and that are of no watched port. With none of
/// them, the counters of the namespace are of the roles alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strangers {
    /// Established connections.
    pub established: u64,
    /// Connections being made (SYN-SENT or SYN-RECEIVED).
    pub half_open: u64,
    /// Listening sockets.
    pub listening: u64,
    /// Connections that these listening sockets dropped since they were opened.
    pub listen_drops: u64,
}

/// Local ports that a role has taken towards one destination, of those that it may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalPorts {
    /// Taken towards the destination with most of them.
    pub taken: u64,
    /// The size of `net.ipv4.ip_local_port_range`.
    pub available: u64,
}

/// Sums over the ends of several ports in one snapshot. A rate or count is absent where no end has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndSums {
    /// Ends that were summed up.
    pub ends: u64,
    /// Sockets that are established.
    pub established: u64,
    /// Sockets in SYN-SENT.
    pub syn_sent: u64,
    /// Sockets in TIME_WAIT.
    pub time_wait: u64,
    /// Those on which data moved in the last second.
    pub active: u64,
    /// Client ends: sockets whose request is out.
    pub awaiting_reply: u64,
    /// Server ends: sockets whose request is with the program.
    pub owed_reply: u64,
    /// Sockets of which the order cannot be seen.
    pub tied: u64,
    /// Sockets with unread bytes.
    pub with_unread: u64,
    /// Those bytes.
    pub unread_bytes: u64,
    /// Sockets with bytes that were not acknowledged.
    pub with_unsent: u64,
    /// Payload bytes received per second.
    pub bytes_received_per_s: Option<f64>,
    /// Payload bytes acknowledged per second.
    pub bytes_acked_per_s: Option<f64>,
    /// Data segments sent per second.
    pub segments_sent_per_s: Option<f64>,
    /// Segments sent again per second.
    pub retransmitted_per_s: Option<f64>,
    /// Sockets opened since the snapshot before.
    pub opened: Option<u64>,
    /// Sockets closed since the snapshot before.
    pub closed: Option<u64>,
    /// The most local ports towards one destination.
    pub local_ports_max: Option<u64>,
}

impl EndSums {
    fn add(&mut self, end: &EndQueues) {
        let state = |name: &str| end.states.get(name).copied().unwrap_or(0);
        self.ends += 1;
        self.established += state("established");
        self.syn_sent += state("syn-sent");
        self.time_wait += state("time-wait");
        self.active += end.active;
        self.awaiting_reply += end.awaiting_reply;
        self.owed_reply += end.owed_reply;
        self.tied += end.tied;
        self.with_unread += end.with_unread;
        self.unread_bytes += end.unread_bytes;
        self.with_unsent += end.with_unsent;
        let rates = [
            (&mut self.bytes_received_per_s, end.bytes_received_per_s),
            (&mut self.bytes_acked_per_s, end.bytes_acked_per_s),
            (&mut self.segments_sent_per_s, end.segments_sent_per_s),
            (&mut self.retransmitted_per_s, end.retransmitted_per_s),
        ];
        for (sum, rate) in rates {
            *sum = rate.map(|rate| sum.unwrap_or(0.0) + rate).or(*sum);
        }
        for (sum, count) in [(&mut self.opened, end.opened), (&mut self.closed, end.closed)] {
            *sum = count.map(|count| sum.unwrap_or(0) + count).or(*sum);
        }
        self.local_ports_max = self.local_ports_max.max(end.local_ports_max);
    }
}

/// The requests in flight at one moment, one a connection, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// In the subject's receive buffers: it has not read them.
    pub unread_at_subject: u64,
    /// The subject has read them and not replied, and they are at no origin.
    pub inside_subject: u64,
    /// At an origin: the subject has sent a request and waits.
    pub at_origins: u64,
    /// Of those, the ones that the origins have not read; 0 where the origins are elsewhere.
    pub unread_at_origins: u64,
    /// The origin has replied, and the subject has not read it.
    pub origin_replies_unread: u64,
    /// The subject has replied, and the generator has not read it; 0 where the generator is elsewhere.
    pub unread_at_generator: u64,
    /// Connections of the subject's clients and origins of which the place cannot be seen.
    pub tied: u64,
}

impl QueueSnapshot {
    /// Sums the ends of some ports.
    #[must_use]
    pub fn sums(&self, ports: &[u16], end: End) -> EndSums {
        let mut sums = EndSums::default();
        let wanted = self.ends.iter().filter(|one| one.end == end && ports.contains(&one.port));
        wanted.for_each(|one| sums.add(one));
        sums
    }
}

impl Observed {
    /// The ports that a role listens on.
    #[must_use]
    pub fn ports_served_by(&self, role: &str) -> Vec<u16> {
        let of = self.ports.iter().filter(|port| port.served_by.as_deref() == Some(role));
        distinct(of.map(|port| port.port))
    }

    /// The ports that a role connects to: for the subject, those of all its origins.
    #[must_use]
    pub fn ports_used_by(&self, role: &str) -> Vec<u16> {
        let of = self.ports.iter().filter(|port| port.used_by.as_deref() == Some(role));
        distinct(of.map(|port| port.port))
    }

    /// Sums the server ends of all ports that `role` listens on.
    #[must_use]
    pub fn served(&self, role: &str, snapshot: &QueueSnapshot) -> EndSums {
        snapshot.sums(&self.ports_served_by(role), End::Server)
    }

    /// Sums the client ends of all ports that `role` connects to.
    #[must_use]
    pub fn used(&self, role: &str, snapshot: &QueueSnapshot) -> EndSums {
        snapshot.sums(&self.ports_used_by(role), End::Client)
    }

    /// Splits the requests in flight by where they are.
    #[must_use]
    pub fn in_flight(&self, snapshot: &QueueSnapshot) -> InFlight {
        let served = self.served("subject", snapshot);
        let origins = self.used("subject", snapshot);
        let at_origin_servers = snapshot.sums(&self.ports_used_by("subject"), End::Server);
        let generator = snapshot.sums(&self.ports_served_by("subject"), End::Client);
        let elsewhere = origins.awaiting_reply + origins.with_unread;
        InFlight {
            unread_at_subject: served.with_unread,
            inside_subject: served.owed_reply.saturating_sub(elsewhere),
            at_origins: origins.awaiting_reply,
            unread_at_origins: at_origin_servers.with_unread,
            origin_replies_unread: origins.with_unread,
            unread_at_generator: generator.with_unread,
            tied: served.tied + origins.tied,
        }
    }

    /// The local ports that `role` has taken towards the destination with most of them; `None` where it
    /// connects to none, or the range is not known.
    #[must_use]
    pub fn local_ports(&self, role: &str, snapshot: &QueueSnapshot) -> Option<LocalPorts> {
        let taken = self.used(role, snapshot).local_ports_max?;
        let range = self.settings.get("net.ipv4.ip_local_port_range")?;
        let mut bounds = range.split_ascii_whitespace().map(str::parse::<u64>);
        let (first, last) = (bounds.next()?.ok()?, bounds.next()?.ok()?);
        Some(LocalPorts { taken, available: (last + 1).checked_sub(first)? })
    }

    /// Connections per second that the listening sockets of a port dropped between two times; `None`
    /// without two snapshots of them. Listening sockets that were closed meanwhile take their count
    /// with them, and the rate is 0 then.
    #[must_use]
    pub fn listener_drops_per_s(&self, port: u16, from_s: f64, to_s: f64) -> Option<f64> {
        let within = |snapshot: &&QueueSnapshot| (from_s..=to_s).contains(&snapshot.time_s);
        let dropped = |snapshot: &QueueSnapshot| {
            let listener = snapshot.listeners.iter().find(|one| one.port == port)?;
            Some((snapshot.time_s, listener.dropped))
        };
        let mut seen = self.queues.iter().filter(within).filter_map(dropped);
        let (first_s, first) = seen.next()?;
        let (last_s, last) = seen.next_back()?;
        (last_s > first_s).then(|| last.saturating_sub(first) as f64 / (last_s - first_s))
    }

    /// Mean CPUs that a role used between two times, by samples weighted with their length; `None`
    /// where it was not seen.
    #[must_use]
    pub fn role_cpus(&self, role: &str, from_s: f64, to_s: f64) -> Option<f64> {
        let at = self.role_at(role)?;
        let used = |sample: &super::Sample| {
            let used = sample.roles.get(at)?;
            Some(used.user_cpus + used.system_cpus)
        };
        self.mean(from_s, to_s, used)
    }

    /// Mean CPUs that other programs than the roles used between two times.
    #[must_use]
    pub fn foreign_cpus(&self, from_s: f64, to_s: f64) -> Option<f64> {
        self.mean(from_s, to_s, |sample| sample.foreign_cpus)
    }

    fn mean(
        &self,
        from_s: f64,
        to_s: f64,
        figure: impl Fn(&super::Sample) -> Option<f64>,
    ) -> Option<f64> {
        let samples = self.samples_within(from_s, to_s);
        let with = samples.iter().filter_map(|one| Some((figure(one)?, one.length_s)));
        let (sum, length_s) = with.fold((0.0, 0.0), |sum, (of, s)| (sum.0 + of * s, sum.1 + s));
        (length_s > 0.0).then(|| sum / length_s)
    }
}

fn distinct(ports: impl Iterator<Item = u16>) -> Vec<u16> {
    let mut ports: Vec<u16> = ports.collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use super::super::{ListenerQueue, PortUse, RoleUse, Sample};
    use super::*;

    fn end(port: u16, end: End) -> EndQueues {
        EndQueues { port, end, ..EndQueues::default() }
    }

    fn port(port: u16, served_by: &str, used_by: &str) -> PortUse {
        PortUse {
            port,
            served_by: Some(served_by.to_owned()).filter(|role| !role.is_empty()),
            used_by: Some(used_by.to_owned()),
        }
    }

    fn observed() -> Observed {
        Observed {
            ports: vec![
                port(80, "subject", "generator"),
                port(9001, "origin", "subject"),
                port(9002, "", "subject"),
                port(9100, "", "origin"),
            ],
            settings: [("net.ipv4.ip_local_port_range".to_owned(), "1024\t1123".to_owned())].into(),
            ..Observed::default()
        }
    }

    #[test]
    fn the_requests_in_flight_are_split_over_all_origins() {
        let seen = observed();
        let snapshot = QueueSnapshot {
            ends: vec![
                EndQueues { with_unread: 4, owed_reply: 20, tied: 1, ..end(80, End::Server) },
                EndQueues { with_unread: 2, ..end(80, End::Client) },
                EndQueues {
                    awaiting_reply: 7,
                    with_unread: 1,
                    local_ports_max: Some(90),
                    bytes_acked_per_s: Some(5.0),
                    ..end(9001, End::Client)
                },
                EndQueues { with_unread: 3, ..end(9001, End::Server) },
                EndQueues {
                    awaiting_reply: 6,
                    tied: 2,
                    local_ports_max: Some(30),
                    ..end(9002, End::Client)
                },
                EndQueues { awaiting_reply: 50, ..end(9100, End::Client) },
            ],
            ..QueueSnapshot::default()
        };
        let expected = InFlight {
            unread_at_subject: 4,
            inside_subject: 6,
            at_origins: 13,
            unread_at_origins: 3,
            origin_replies_unread: 1,
            unread_at_generator: 2,
            tied: 3,
        };
        assert_eq!(seen.in_flight(&snapshot), expected);
        let used = seen.used("subject", &snapshot);
        assert_eq!((used.ends, used.bytes_acked_per_s, used.opened), (2, Some(5.0), None));
        let ports = LocalPorts { taken: 90, available: 100 };
        assert_eq!(seen.local_ports("subject", &snapshot), Some(ports));
        assert_eq!(seen.local_ports("generator", &snapshot), None);
    }

    #[test]
    fn drops_and_cpus_are_of_the_time_that_was_asked_for() {
        let mut seen = observed();
        let listener = |time_s, dropped| QueueSnapshot {
            time_s,
            listeners: vec![ListenerQueue { port: 80, dropped, ..ListenerQueue::default() }],
            ..QueueSnapshot::default()
        };
        seen.queues =
            vec![listener(0.5, 1), listener(1.0, 10), listener(2.0, 20), listener(3.0, 40)];
        assert_eq!(seen.listener_drops_per_s(80, 1.0, 3.0), Some(15.0));
        assert_eq!(seen.listener_drops_per_s(80, 2.5, 3.0), None);
        assert_eq!(seen.listener_drops_per_s(81, 0.0, 3.0), None);
        seen.roles.push(super::super::Role { name: "subject".to_owned(), ..Default::default() });
        let sample = |time_s: f64, length_s, user_cpus, foreign| Sample {
            time_s,
            length_s,
            foreign_cpus: foreign,
            roles: vec![RoleUse { user_cpus, ..RoleUse::default() }],
            ..Sample::default()
        };
        seen.samples = vec![
            sample(1.0, 1.0, 9.0, Some(9.0)),
            sample(2.0, 1.0, 0.5, Some(0.25)),
            sample(4.0, 2.0, 2.0, None),
        ];
        assert_eq!(seen.role_cpus("subject", 1.0, 4.0), Some(1.5));
        assert_eq!(seen.foreign_cpus(1.0, 4.0), Some(0.25));
        assert_eq!(seen.role_cpus("origin", 1.0, 4.0), None);
    }
}
