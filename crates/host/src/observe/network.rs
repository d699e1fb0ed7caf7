//! One network namespace of a role between two samples: protocol counters, sockets in use,
//! interfaces, and the queues of the watched ports.
//!
//! The caller selects the namespaces. The open files keep a namespace alive until monitoring ends,
//! even after all its processes have ended and its name is gone.

use crate::kernel_file::NotObservable;
use crate::links::{LinkCounters, Links};
use crate::snmp;
use crate::sock_diag::SockDiag;
use crate::sockets::SockStatReader;
use record::observed::{ConnectionEnd, EndQueues, LinkUse, ListenerQueue, NamespaceUse};

/// Open files and sockets of one namespace.
#[derive(Debug)]
pub(super) struct Network {
    /// ID of the namespace (`/proc/PID/ns/net`).
    pub(super) id: u64,
    pub(super) roles: Vec<usize>,
    counters: Result<snmp::SnmpReader, NotObservable>,
    sockets: Result<SockStatReader, NotObservable>,
    links: Result<Links, NotObservable>,
    last_links: Vec<LinkCounters>,
    diag: Result<SockDiag, NotObservable>,
    /// Reason for a failed or truncated snapshot.
    snapshot_error: Option<NotObservable>,
}

impl Network {
    /// Opens the namespace `id` of process `pid`.
    pub(super) fn open(id: u64, pid: i32) -> Self {
        Self {
            id,
            roles: Vec::new(),
            counters: snmp::SnmpReader::open(pid),
            sockets: SockStatReader::open_pid(pid),
            links: Links::open(Some(pid)),
            last_links: Vec::new(),
            diag: SockDiag::open(Some(pid)),
            snapshot_error: None,
        }
    }

    pub(super) fn not_observable(&self) -> Vec<NotObservable> {
        let all = [
            self.counters.as_ref().err(),
            self.sockets.as_ref().err(),
            self.links.as_ref().err(),
            self.diag.as_ref().err(),
            self.snapshot_error.as_ref(),
        ];
        all.into_iter().flatten().cloned().collect()
    }

    /// Returns the use in the last `seconds`; `names` are those of its roles.
    pub(super) fn sample(&mut self, seconds: f64, names: Vec<String>) -> (NamespaceUse, Vec<LinkUse>) {
        let first = names.first().cloned().unwrap_or_default();
        let mut namespace = NamespaceUse { roles: names, ..NamespaceUse::default() };
        if let Ok(counters) = &mut self.counters {
            namespace.counters = counters.rates(seconds).unwrap_or_default();
        }
        if let Ok(Ok(sockets)) = self.sockets.as_mut().map(SockStatReader::sample) {
            namespace.time_wait = sockets.tcp_time_wait;
            namespace.orphans = sockets.tcp_orphan;
            namespace.tcp_in_use = sockets.tcp_inuse;
            namespace.tcp_memory_pages = sockets.tcp_mem_pages;
        }
        (namespace, self.sample_links(seconds, &first))
    }

    fn sample_links(&mut self, seconds: f64, role: &str) -> Vec<LinkUse> {
        let Ok(Ok(links)) = self.links.as_mut().map(Links::sample) else {
            return Vec::new();
        };
        let last_links = &self.last_links;
        let last_of = |now: &LinkCounters| last_links.iter().find(|then| then.index() == now.index());
        let used = links.iter().filter(|link| link.is_up()).filter_map(|now| {
            let used = now.since(last_of(now)?, seconds);
            Some(LinkUse { role: role.to_owned(), ..used })
        });
        let used = used.collect();
        self.last_links.clear();
        self.last_links.extend_from_slice(links);
        used
    }

    /// Adds the sockets at `ports` in this namespace that `belongs` accepts.
    pub(super) fn snapshot_queues(
        &mut self,
        now_s: f64,
        ports: &[u16],
        belongs: impl Fn(u16, ConnectionEnd) -> bool,
        listeners: &mut Vec<ListenerQueue>,
        ends: &mut Vec<EndQueues>,
    ) {
        let Ok(diag) = &mut self.diag else {
            return;
        };
        let (old_listeners, old_ends) = (listeners.len(), ends.len());
        if let Err(error) = diag.snapshot(now_s, ports, listeners, ends) {
            self.snapshot_error = Some(error);
            return;
        }
        if diag.is_truncated() {
            let why = "too many sockets; the figures cover only those that were read";
            self.snapshot_error = Some(NotObservable::new("all sockets of the watched ports", why));
        }
        retain_from(listeners, old_listeners, |listener| belongs(listener.port, ConnectionEnd::Server));
        retain_from(ends, old_ends, |end| belongs(end.port, end.end));
    }
}

/// Keeps the items before index `from`, and of the rest those that `keeps` accepts.
fn retain_from<T>(list: &mut Vec<T>, from: usize, keeps: impl Fn(&T) -> bool) {
    let mut at = 0;
    list.retain(|item| {
        at += 1;
        at <= from || keeps(item)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_added_items_are_filtered() {
        let mut list = vec![1, 2, 3, 4, 5];
        retain_from(&mut list, 2, |item| item % 2 == 0);
        assert_eq!(list, [1, 2, 4]);
    }

    #[test]
    fn this_namespace_is_sampled_live() {
        let pid = std::process::id() as i32;
        let mut network = Network::open(1, pid);
        network.sample(1.0, vec!["subject".to_owned()]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (namespace, links) = network.sample(1.0, vec!["subject".to_owned()]);
        assert!(namespace.counters.contains_key("Tcp.ActiveOpens"), "{namespace:?}");
        assert!(links.iter().all(|link| link.role == "subject"));
        let (mut listeners, mut ends) = (Vec::new(), Vec::new());
        // The kernel may be a moment behind.
        for _ in 0..3000 {
            (listeners, ends) = (Vec::new(), Vec::new());
            network.snapshot_queues(
                1.0,
                &[port],
                |_, end| end == ConnectionEnd::Server,
                &mut listeners,
                &mut ends,
            );
            if listeners.iter().any(|listener| listener.waiting == 1) || !network.not_observable().is_empty()
            {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if network.not_observable().is_empty() {
            assert_eq!((listeners.len(), ends.len()), (1, 1), "{listeners:?} {ends:?}");
            assert_eq!(
                (listeners[0].port, listeners[0].waiting, ends[0].end),
                (port, 1, ConnectionEnd::Server)
            );
        } else {
            test_needs::skip(test_needs::KERNEL, format!("{:?}", network.not_observable()));
        }
    }
}
