//! Asks nameservers: over UDP, over TCP what does not fit there, each of them twice, in their order.
//! What an answer means for a proxy is `watch`'s.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::Poll;

use rt::address::Address;
use rt::clock::{SECOND_NS, now_ns};
use rt::timers::Timers;
use rt::tokio;
use rt::tokio::net::UdpSocket;

use super::message::{self, Answer, Data, Type, Wrong};
use super::{Found, system};
use crate::plan::{Lookup, Prefer, ResolvePlan};

macro_rules! troubles {
    ($($variant:ident, $code:literal, $doc:literal;)*) => {
        /// Why there is no answer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Trouble {
            $(#[doc = $doc] $variant,)*
        }

        impl Trouble {
            /// In `snake_case`, stable.
            pub(super) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            pub(super) fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

troubles! {
    NoName, "no_name", "there is no such name";
    Empty, "empty", "the name has no address";
    Refused, "refused", "the nameserver has no answer";
    Timeout, "timeout", "no answer came in time";
    Malformed, "malformed", "the answer is malformed";
    Network, "network", "the nameserver cannot be reached";
}

/// How often each nameserver is asked.
const ROUNDS: usize = 2;
/// Bytes of an answer over UDP. More than 512 are not asked for, and not refused.
const UDP_BYTES_MAX: usize = 4_096;
const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// What it takes to ask.
pub(super) struct Asker<'a> {
    pub(super) timers: &'a Timers,
    pub(super) plan: &'a ResolvePlan,
    /// Told what came of each question.
    pub(super) count: &'a dyn Fn(&'static str),
}

impl Asker<'_> {
    /// The servers of a name in order, and for how long that holds.
    pub(super) async fn look_up(&self, lookup: &Lookup) -> Result<(Vec<Found>, u64), Trouble> {
        let (mut found, ttl_s) = match lookup {
            Lookup::Host { name, port } => self.host(name, *port, None).await?,
            Lookup::Service(name) => self.service(name).await?,
        };
        found.sort_unstable();
        found.dedup_by_key(|found| found.address);
        match found.is_empty() {
            true => Err(Trouble::Empty),
            false => Ok((found, u64::from(ttl_s).saturating_mul(SECOND_NS))),
        }
    }

    async fn service(&self, name: &str) -> Result<(Vec<Found>, u32), Trouble> {
        let answer = self.ask(name, Type::Srv).await?;
        let mut services: Vec<(u16, u16, u16, &str)> = Vec::new();
        for data in &answer.data {
            // A target that is the root says that there is no such service (RFC 2782).
            if let Data::Service { priority, weight, port, target } = data
                && !target.is_empty()
                && *port > 0
            {
                services.push((*priority, *weight, *port, target));
            }
        }
        services.sort_unstable_by(|a, b| (a.0, a.3, a.2).cmp(&(b.0, b.3, b.2)));
        let lowest = services.first().ok_or(Trouble::Empty)?.0;
        services.retain(|service| service.0 == lowest);
        services.truncate(self.plan.servers_max);
        let (mut found, mut ttl_s) = (Vec::new(), answer.ttl_s);
        for (_, weight, port, target) in services {
            // One of weight 0 gets little, and not nothing.
            match self.host(target, port, Some(u32::from(weight).max(1))).await {
                Ok((more, its_ttl_s)) => {
                    found.extend(more);
                    ttl_s = ttl_s.min(its_ttl_s);
                }
                Err(Trouble::NoName | Trouble::Empty) => {}
                // Half of an answer would take servers away that may be there.
                Err(trouble) => return Err(trouble),
            }
        }
        Ok((found, ttl_s))
    }

    async fn host(
        &self,
        name: &str,
        port: u16,
        weight: Option<u32>,
    ) -> Result<(Vec<Found>, u32), Trouble> {
        let order = match self.plan.prefer {
            Prefer::Ipv4 => [Type::A, Type::Aaaa],
            Prefer::Ipv6 => [Type::Aaaa, Type::A],
        };
        let server = |ip: IpAddr| Found { address: SocketAddr::new(ip, port), weight };
        if self.plan.nameservers.is_empty() {
            // A file of the machine's own, read in the thread that has nothing urgent to do.
            let text = std::fs::read_to_string(HOSTS).unwrap_or_default();
            let known = system::hosts(&text, name);
            for family in order {
                let of_family = |ip: &&IpAddr| ip.is_ipv4() == (family == Type::A);
                let found: Vec<Found> =
                    known.iter().filter(of_family).map(|ip| server(*ip)).collect();
                if !found.is_empty() {
                    return Ok((found, u32::MAX));
                }
            }
        }
        for family in order {
            let answer = self.ask(name, family).await?;
            let addresses = answer.data.iter().filter_map(|data| match data {
                Data::Address(ip) => Some(server(*ip)),
                Data::Service { .. } => None,
            });
            let found: Vec<Found> = addresses.collect();
            if !found.is_empty() {
                return Ok((found, answer.ttl_s));
            }
        }
        Err(Trouble::Empty)
    }

    /// The first answer of any nameserver that says something of the name.
    async fn ask(&self, name: &str, wanted: Type) -> Result<Answer, Trouble> {
        let system;
        let nameservers = match &self.plan.nameservers[..] {
            [] => {
                let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
                system = system::nameservers(&text);
                &system
            }
            own => own,
        };
        let mut trouble = Trouble::Timeout;
        for _ in 0..ROUNDS {
            for nameserver in nameservers {
                let answer = self.ask_one(*nameserver, name, wanted).await;
                let result = answer.and_then(|answer| match answer.code {
                    0 => Ok(answer),
                    3 => Err(Trouble::NoName),
                    _ => Err(Trouble::Refused),
                });
                (self.count)(match &result {
                    Ok(answer) if answer.data.is_empty() => Trouble::Empty.code(),
                    Ok(_) => "answered",
                    Err(trouble) => trouble.code(),
                });
                match result {
                    Ok(answer) => return Ok(answer),
                    Err(Trouble::NoName) => return Err(Trouble::NoName),
                    Err(other) => trouble = other,
                }
            }
        }
        Err(trouble)
    }

    async fn ask_one(&self, to: SocketAddr, name: &str, wanted: Type) -> Result<Answer, Trouble> {
        // Its id and the case of its letters, which nobody else can know.
        let random = rt::machine::random::<8>().map_err(|_| Trouble::Network)?;
        let [high, low, case @ ..] = random;
        let id = u16::from_be_bytes([high, low]);
        let spelt = message::spelt(name, case);
        let asked = Asked { to, id, name, spelt: &spelt, wanted };
        let answer = self.in_time(asked.over_udp()).await?;
        if !answer.truncated {
            return Ok(answer);
        }
        self.in_time(asked.over_tcp()).await
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Trouble>>,
    ) -> Result<T, Trouble> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.timers.sleep_until(now_ns() + self.plan.timeout_ns) => Err(Trouble::Timeout),
        }
    }
}

/// One question to one nameserver.
struct Asked<'a> {
    to: SocketAddr,
    id: u16,
    name: &'a str,
    /// The name in the case in which it is asked for.
    spelt: &'a str,
    wanted: Type,
}

impl Asked<'_> {
    fn read(&self, bytes: &[u8]) -> Result<Answer, Wrong> {
        message::answer(bytes, self.id, self.name, self.wanted)
    }

    /// The port is one of the kernel's choice and the socket hears nobody else, so that an answer
    /// cannot be made up without knowing the port, the id and the case of the name. A nameserver
    /// that changes the case is asked over TCP.
    async fn over_udp(&self) -> Result<Answer, Trouble> {
        let network = |_: io::Error| Trouble::Network;
        let any: IpAddr = match self.to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0)).await.map_err(network)?;
        socket.connect(self.to).await.map_err(network)?;
        let question = message::question(self.id, self.spelt, self.wanted);
        socket.send(&question).await.map_err(network)?;
        let mut bytes = vec![0; UDP_BYTES_MAX];
        loop {
            let received = socket.recv(&mut bytes).await.map_err(network)?;
            match self.read(&bytes[..received]) {
                Ok(answer) => {
                    let is_ours = message::repeats(&bytes[..received], &question);
                    return Ok(Answer { truncated: answer.truncated || !is_ours, ..answer });
                }
                Err(Wrong::Malformed) => return Err(Trouble::Malformed),
                Err(Wrong::NotOurs) => {}
            }
        }
    }

    async fn over_tcp(&self) -> Result<Answer, Trouble> {
        let network = |_: io::Error| Trouble::Network;
        let target = Address::Tcp(self.to);
        let mut stream = rt::dial::connect(&target, None).await.map_err(network)?;
        let question = message::question(self.id, self.spelt, self.wanted);
        let mut out = (question.len() as u16).to_be_bytes().to_vec();
        out.extend(question);
        let mut sent = 0;
        poll_fn(|cx| {
            while sent < out.len() {
                match stream.poll_write(cx, &out[sent..]) {
                    Poll::Ready(Ok(more)) => sent += more,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
        .map_err(network)?;
        // A length of two bytes bounds it.
        let mut bytes = Vec::new();
        let mut buffer = vec![0; UDP_BYTES_MAX];
        loop {
            if let Some((length, rest)) = bytes.split_first_chunk::<2>() {
                let length = usize::from(u16::from_be_bytes(*length));
                if let Some(whole) = rest.get(..length) {
                    return self.read(whole).map_err(|_| Trouble::Malformed);
                }
            }
            match poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await.map_err(network)? {
                0 => return Err(Trouble::Network),
                read => bytes.extend_from_slice(&buffer[..read]),
            }
        }
    }
}
