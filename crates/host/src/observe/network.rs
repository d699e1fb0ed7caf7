//! One network namespace that a role is in, between two looks: protocol counters, sockets in use,
//! interfaces, and the queues of the watched ports.
//!
//! Not for which namespaces those are. What is open here keeps a namespace alive until the watching
//! ends, also when all its processes have ended and its name is gone.

use crate::links::{LinkCounters, Links};
use crate::snmp;
use crate::sock_diag::SockDiag;
use crate::sockets::SockStatReader;
use crate::source::NotObservable;
use record::observed::{End, EndQueues, LinkUse, ListenerQueue, NamespaceUse};

/// The files and sockets of one namespace, kept open.
#[derive(Debug)]
pub(super) struct Network {
    /// What names it (`/proc/PID/ns/net`).
    pub(super) id: u64,
    /// The roles in it, by their places.
    pub(super) roles: Vec<usize>,
    counters: Result<snmp::Reader, NotObservable>,
    sockets: Result<SockStatReader, NotObservable>,
    links: Result<Links, NotObservable>,
    links_before: Vec<LinkCounters>,
    diag: Result<SockDiag, NotObservable>,
    /// Why a snapshot failed, or that it was cut short.
    trouble: Option<NotObservable>,
}

impl Network {
    /// Opens the namespace `id`, which process `pid` is in.
    pub(super) fn open(id: u64, pid: i32) -> Self {
        Self {
            id,
            roles: Vec::new(),
            counters: snmp::Reader::open(pid),
            sockets: SockStatReader::open_of(pid),
            links: Links::open(Some(pid)),
            links_before: Vec::new(),
            diag: SockDiag::open(Some(pid)),
            trouble: None,
        }
    }

    pub(super) fn not_observable(&self) -> Vec<NotObservable> {
        let all = [
            self.counters.as_ref().err(),
            self.sockets.as_ref().err(),
            self.links.as_ref().err(),
            self.diag.as_ref().err(),
            self.trouble.as_ref(),
        ];
        all.into_iter().flatten().cloned().collect()
    }

    /// What passed in the last `seconds`; `names` are those of its roles.
    pub(super) fn sample(
        &mut self,
        seconds: f64,
        names: Vec<String>,
    ) -> (NamespaceUse, Vec<LinkUse>) {
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

    fn sample_links(&mut self, seconds: f64, of_role: &str) -> Vec<LinkUse> {
        let Ok(Ok(links)) = self.links.as_mut().map(Links::sample) else {
            return Vec::new();
        };
        let before = &self.links_before;
        let known = |now: &LinkCounters| before.iter().find(|then| then.index() == now.index());
        let used = links.iter().filter(|link| link.is_up()).filter_map(|now| {
            let used = now.since(known(now)?, seconds);
            Some(LinkUse { of_role: of_role.to_owned(), ..used })
        });
        let used = used.collect();
        self.links_before.clear();
        self.links_before.extend_from_slice(links);
        used
    }

    /// Adds the sockets at `ports` in this namespace of which `belongs` says so.
    pub(super) fn queues(
        &mut self,
        now_s: f64,
        ports: &[u16],
        belongs: impl Fn(u16, End) -> bool,
        listeners: &mut Vec<ListenerQueue>,
        ends: &mut Vec<EndQueues>,
    ) {
        let Ok(diag) = &mut self.diag else {
            return;
        };
        let (old_listeners, old_ends) = (listeners.len(), ends.len());
        if let Err(error) = diag.snapshot(now_s, ports, listeners, ends) {
            self.trouble = Some(error);
            return;
        }
        if diag.truncated() {
            let why = "there were more than are looked at; the figures are of those that were";
            self.trouble = Some(NotObservable::new("all sockets of the watched ports", why));
        }
        retain_from(listeners, old_listeners, |listener| belongs(listener.port, End::Server));
        retain_from(ends, old_ends, |end| belongs(end.port, end.end));
    }
}

/// Keeps what stands before `from`, and of the rest what `keeps` says.
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
    fn only_what_was_added_is_sifted() {
        let mut list = vec![1, 2, 3, 4, 5];
        retain_from(&mut list, 2, |item| item % 2 == 0);
        assert_eq!(list, [1, 2, 4]);
    }

    #[test]
    fn this_namespace_is_watched_live() {
        let pid = std::process::id() as i32;
        let mut network = Network::open(1, pid);
        network.sample(1.0, vec!["subject".to_owned()]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (namespace, links) = network.sample(1.0, vec!["subject".to_owned()]);
        assert!(namespace.counters.contains_key("Tcp.ActiveOpens"), "{namespace:?}");
        assert!(links.iter().all(|link| link.of_role == "subject"));
        let (mut listeners, mut ends) = (Vec::new(), Vec::new());
        // The kernel may be a moment behind.
        for _ in 0..3000 {
            (listeners, ends) = (Vec::new(), Vec::new());
            network.queues(1.0, &[port], |_, end| end == End::Server, &mut listeners, &mut ends);
            if listeners.iter().any(|one| one.waiting == 1) || !network.not_observable().is_empty()
            {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        if network.not_observable().is_empty() {
            assert_eq!((listeners.len(), ends.len()), (1, 1), "{listeners:?} {ends:?}");
            assert_eq!(
                (listeners[0].port, listeners[0].waiting, ends[0].end),
                (port, 1, End::Server)
            );
        } else {
            println!("skipped: {:?}", network.not_observable());
        }
    }
}
