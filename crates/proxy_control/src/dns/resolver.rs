//! DNS client: queries nameservers over UDP, and over TCP for truncated answers. It asks each of
//! them twice, in their order. `lookup_state` decides how the proxy uses an answer.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Poll;

use rt::address::Address;
use rt::clock::{MonotonicTime, SECOND_NS};
use rt::timers::Timers;
use rt::tokio;
use rt::tokio::net::UdpSocket;

use super::message::{self, AnswerError, DnsAnswer, RecordData, RecordType};
use super::{ResolvedServer, system_config};
use crate::plan::{Lookup, PreferredFamily, ResolvePlan};

code_table! {
    /// Reason for a failed lookup.
    pub(super) enum LookupError:
    NoName, "no_name", "the name does not exist";
    Empty, "empty", "the name has no address";
    Refused, "refused", "the nameserver refused the query";
    Timeout, "timeout", "the nameservers timed out";
    Malformed, "malformed", "the answer is malformed";
    Network, "network", "the nameserver is unreachable";
}

/// A server of a service (RFC 2782).
struct Service<'a> {
    priority: u16,
    weight: u16,
    port: u16,
    target: &'a str,
}

const QUERIES_MAX: usize = 2;
/// Buffer size for an answer over UDP in bytes. The query does not request more than 512; larger
/// answers are still accepted.
const UDP_BYTES_MAX: usize = 4_096;
pub(super) const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS_FILE: &str = "/etc/hosts";

/// Context for queries.
pub(super) struct DnsClient<'a> {
    pub(super) timers: &'a Timers,
    pub(super) plan: &'a ResolvePlan,
    /// Called with the result of each query.
    pub(super) count: &'a dyn Fn(&'static str),
}

impl DnsClient<'_> {
    /// Resolves a name to its servers in order. Also returns the validity in nanoseconds.
    pub(super) async fn resolve(&self, lookup: &Lookup) -> Result<(Vec<ResolvedServer>, u64), LookupError> {
        let (mut servers, ttl_s) = match lookup {
            Lookup::Host { name, port } => self.resolve_host(name, *port, None).await?,
            Lookup::Service(name) => self.resolve_service(name).await?,
        };
        servers.sort_unstable();
        servers.dedup_by_key(|found| found.address);
        match servers.is_empty() {
            true => Err(LookupError::Empty),
            false => Ok((servers, u64::from(ttl_s).saturating_mul(SECOND_NS))),
        }
    }

    async fn resolve_service(&self, name: &str) -> Result<(Vec<ResolvedServer>, u32), LookupError> {
        let answer = self.query(name, RecordType::Srv).await?;
        let mut services: Vec<Service<'_>> = Vec::new();
        for data in &answer.data {
            // The root as target means that there is no such service (RFC 2782).
            if let RecordData::Service { priority, weight, port, target } = data
                && !target.is_empty()
                && *port > 0
            {
                services.push(Service { priority: *priority, weight: *weight, port: *port, target });
            }
        }
        services.sort_unstable_by_key(|service| (service.priority, service.target, service.port));
        let lowest_priority = services.first().ok_or(LookupError::Empty)?.priority;
        services.retain(|service| service.priority == lowest_priority);
        services.truncate(self.plan.servers_max);
        let (mut servers, mut ttl_s) = (Vec::new(), answer.ttl_s);
        for Service { weight, port, target, .. } in services {
            // A server of weight 0 gets few requests, but some.
            match self.resolve_host(target, port, Some(u32::from(weight).max(1))).await {
                Ok((host_servers, host_ttl_s)) => {
                    servers.extend(host_servers);
                    ttl_s = ttl_s.min(host_ttl_s);
                }
                Err(LookupError::NoName | LookupError::Empty) => {}
                // A partial answer would remove servers that may exist.
                Err(error) => return Err(error),
            }
        }
        Ok((servers, ttl_s))
    }

    async fn resolve_host(
        &self,
        name: &str,
        port: u16,
        weight: Option<u32>,
    ) -> Result<(Vec<ResolvedServer>, u32), LookupError> {
        let families = match self.plan.prefer {
            PreferredFamily::Ipv4 => [RecordType::A, RecordType::Aaaa],
            PreferredFamily::Ipv6 => [RecordType::Aaaa, RecordType::A],
        };
        let to_server = |ip: IpAddr| ResolvedServer { address: SocketAddr::new(ip, port), weight };
        if self.plan.nameservers.is_empty() {
            // A local file, read in a thread without urgent work.
            let text = std::fs::read_to_string(HOSTS_FILE).unwrap_or_default();
            let host_addresses = system_config::find_host_addresses(&text, name);
            for family in families {
                let is_of_family = |ip: &&IpAddr| ip.is_ipv4() == (family == RecordType::A);
                let servers: Vec<ResolvedServer> =
                    host_addresses.iter().filter(is_of_family).map(|ip| to_server(*ip)).collect();
                if !servers.is_empty() {
                    return Ok((servers, u32::MAX));
                }
            }
        }
        for family in families {
            let answer = self.query(name, family).await?;
            let addresses = answer.data.iter().filter_map(|data| match data {
                RecordData::Address(ip) => Some(to_server(*ip)),
                RecordData::Service { .. } => None,
            });
            let servers: Vec<ResolvedServer> = addresses.collect();
            if !servers.is_empty() {
                return Ok((servers, answer.ttl_s));
            }
        }
        Err(LookupError::Empty)
    }

    /// Returns the first conclusive answer of any nameserver.
    async fn query(&self, name: &str, record_type: RecordType) -> Result<DnsAnswer, LookupError> {
        let system;
        let nameservers = match &self.plan.nameservers[..] {
            [] => {
                let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
                system = system_config::parse_nameservers(&text);
                &system
            }
            configured => configured,
        };
        let mut error = LookupError::Timeout;
        for _ in 0..QUERIES_MAX {
            for nameserver in nameservers {
                let answer = self.query_nameserver(*nameserver, name, record_type).await;
                let result = answer.and_then(|answer| match answer.code {
                    0 => Ok(answer),
                    3 => Err(LookupError::NoName),
                    _ => Err(LookupError::Refused),
                });
                (self.count)(match &result {
                    Ok(answer) if answer.data.is_empty() => LookupError::Empty.code(),
                    Ok(_) => "answered",
                    Err(error) => error.code(),
                });
                match result {
                    Ok(answer) => return Ok(answer),
                    Err(LookupError::NoName) => return Err(LookupError::NoName),
                    Err(query_error) => error = query_error,
                }
            }
        }
        Err(error)
    }

    async fn query_nameserver(
        &self,
        nameserver: SocketAddr,
        name: &str,
        record_type: RecordType,
    ) -> Result<DnsAnswer, LookupError> {
        // The id and the letter case, which an attacker cannot know.
        let random = rt::machine::random_bytes::<8>().map_err(|_| LookupError::Network)?;
        let [high, low, case @ ..] = random;
        let id = u16::from_be_bytes([high, low]);
        let cased_name = message::randomize_case(name, case);
        let query = DnsQuery { nameserver, id, name, cased_name: &cased_name, record_type };
        let answer = self.with_timeout(query.query_udp()).await?;
        if !answer.truncated {
            return Ok(answer);
        }
        self.with_timeout(query.query_tcp()).await
    }

    async fn with_timeout<T>(
        &self,
        query: impl Future<Output = Result<T, LookupError>>,
    ) -> Result<T, LookupError> {
        let deadline = MonotonicTime::now() + self.plan.timeout_ns;
        tokio::select! {
            biased;
            result = query => result,
            () = self.timers.sleep_until(deadline.as_ns()) => Err(LookupError::Timeout),
        }
    }
}

/// One question to one nameserver.
struct DnsQuery<'a> {
    nameserver: SocketAddr,
    id: u16,
    name: &'a str,
    cased_name: &'a str,
    record_type: RecordType,
}

impl DnsQuery<'_> {
    fn parse_answer(&self, bytes: &[u8]) -> Result<DnsAnswer, AnswerError> {
        message::parse_answer(bytes, self.id, self.name, self.record_type)
    }

    /// Sends the query over UDP. The kernel chooses the port, and the connected socket receives
    /// only from the nameserver. So a forger must guess the port, the id and the letter case of the
    /// name. A nameserver that changes the case is asked over TCP.
    async fn query_udp(&self) -> Result<DnsAnswer, LookupError> {
        let network_error = |_: io::Error| LookupError::Network;
        let local_ip: IpAddr = match self.nameserver {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((local_ip, 0)).await.map_err(network_error)?;
        socket.connect(self.nameserver).await.map_err(network_error)?;
        let question = message::encode_question(self.id, self.cased_name, self.record_type);
        socket.send(&question).await.map_err(network_error)?;
        let mut bytes = vec![0; UDP_BYTES_MAX];
        loop {
            let received = socket.recv(&mut bytes).await.map_err(network_error)?;
            match self.parse_answer(&bytes[..received]) {
                Ok(answer) => {
                    let is_repeated = message::repeats_question(&bytes[..received], &question);
                    return Ok(DnsAnswer { truncated: answer.truncated || !is_repeated, ..answer });
                }
                Err(AnswerError::Malformed) => return Err(LookupError::Malformed),
                Err(AnswerError::Mismatch) => {}
            }
        }
    }

    async fn query_tcp(&self) -> Result<DnsAnswer, LookupError> {
        let network_error = |_: io::Error| LookupError::Network;
        let target = Address::Tcp(self.nameserver);
        let mut stream = rt::dial::connect(&target, None).await.map_err(network_error)?;
        let question = message::encode_question(self.id, self.cased_name, self.record_type);
        let mut out = (question.len() as u16).to_be_bytes().to_vec();
        out.extend(question);
        let mut sent = 0;
        poll_fn(|cx| {
            while sent < out.len() {
                match stream.poll_write(cx, &out[sent..]) {
                    Poll::Ready(Ok(written)) => sent += written,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
        .map_err(network_error)?;
        // The length field of two bytes bounds it.
        let mut bytes = Vec::new();
        let mut buffer = vec![0; UDP_BYTES_MAX];
        loop {
            if let Some((length, rest)) = bytes.split_first_chunk::<2>() {
                let length = usize::from(u16::from_be_bytes(*length));
                if let Some(message) = rest.get(..length) {
                    return self.parse_answer(message).map_err(|_| LookupError::Malformed);
                }
            }
            match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await.map_err(network_error)? {
                0 => return Err(LookupError::Network),
                read => bytes.extend_from_slice(&buffer[..read]),
            }
        }
    }
}
