//! Addresses of names that have several: one that accepts a connection is chosen before the load and used for all
//! connections, or the connections are spread over all of them (`--addresses all`).

use std::net::SocketAddr;
use std::time::Duration;

use rt::address::{Address, ResolveError};
use serde::Serialize;

use super::{Authority, RunPlan, weighted_order};
use crate::failure::connect_error_text;

/// Reason why a name has no address for the load.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The name cannot be resolved.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// None of its addresses accepts a connection.
    #[error("cannot connect to {name}: {errors}")]
    Unreachable {
        /// Host and port.
        name: String,
        errors: String,
    },
}

/// Addresses of a name that has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NameAddresses {
    pub host: String,
    pub count: usize,
    pub used: Vec<SocketAddr>,
}

impl RunPlan {
    /// Returns the authorities of the connections, in turns.
    #[must_use]
    pub fn authority_order(&self) -> Vec<usize> {
        let weight_of = |authority| {
            let requests = self.requests.iter().filter(|request| &request.url.authority == authority);
            requests.map(|request| request.weight).sum::<u64>()
        };
        // Without weights, connections are spread evenly over the authorities.
        let is_weighted = self.requests.iter().any(|request| request.weight != 1);
        let weights = self
            .authorities()
            .into_iter()
            .map(|authority| if is_weighted { weight_of(authority) } else { 1 });
        weighted_order(&weights.collect::<Vec<u64>>())
    }

    /// Chooses the addresses of names that have several: all of them, or the first that accepts a connection.
    /// The order is that of the resolver (RFC 6724), with the address families in turn (RFC 8305 §4).
    ///
    /// # Errors
    /// A name cannot be resolved, or none of its addresses accepts a connection before a load without a ramp.
    pub fn choose_addresses(&mut self) -> Result<(), AddressError> {
        if self.unix.is_some() {
            return Ok(());
        }
        let mut chosen = Vec::new();
        for authority in self.authorities() {
            let (host, port) = self.destination(authority);
            let all = rt::address::resolve_all(&host, port)?;
            let has_source = |address: &SocketAddr| {
                self.sources.is_empty()
                    || self.sources.iter().any(|source| source.is_ipv4() == address.is_ipv4())
            };
            let usable = families_in_turn(all.iter().copied().filter(has_source).collect());
            if all.len() < 2 || usable.is_empty() {
                continue;
            }
            let used = match (self.spreads_addresses, usable.as_slice()) {
                (true, _) => usable,
                (false, [only]) => vec![*only],
                (false, _) => match rt::dial::first_reachable(&usable, Duration::from_nanos(self.timeout_ns))
                {
                    Ok(address) => vec![address],
                    // Servers may start during a ramp.
                    Err(_) if self.ramp_ns > 0 => vec![usable[0]],
                    Err(errors) => return Err(unreachable_error(&authority.to_string(), &errors)),
                },
            };
            chosen.push(NameAddresses { host: authority.to_string(), count: all.len(), used });
        }
        self.addresses = chosen;
        Ok(())
    }

    /// Returns the addresses of the connections to an authority: the chosen ones, or else the first of the
    /// system's resolver.
    ///
    /// # Errors
    /// The name is unknown or has no address.
    pub fn addresses_of(&self, authority: &Authority) -> Result<Vec<Address>, ResolveError> {
        let name = authority.to_string();
        if let Some(chosen) = self.addresses.iter().find(|chosen| chosen.host == name) {
            return Ok(chosen.used.iter().copied().map(Address::Tcp).collect());
        }
        let (host, port) = self.destination(authority);
        Ok(vec![Address::Tcp(rt::address::resolve(&host, port)?)])
    }

    /// Returns host and port to connect to, which `--connect-to` may replace.
    fn destination(&self, authority: &Authority) -> (String, u16) {
        let replaced = self.connect_to.iter().find_map(|rule| rule.apply(authority));
        replaced.unwrap_or_else(|| (authority.host.clone(), authority.port))
    }
}

fn unreachable_error(name: &str, errors: &[(SocketAddr, std::io::Error)]) -> AddressError {
    let texts: Vec<String> =
        errors.iter().map(|(address, error)| format!("{address}: {}", connect_error_text(error))).collect();
    AddressError::Unreachable { name: name.to_owned(), errors: texts.join("; ") }
}

/// Orders addresses so that their families take turns, beginning with that of the first one.
fn families_in_turn(all: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = all.first().copied() else { return all };
    let (first_family, other_family): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let mut ordered = Vec::with_capacity(first_family.len() + other_family.len());
    let (mut first_family, mut other_family) = (first_family.into_iter(), other_family.into_iter());
    loop {
        let pair = [first_family.next(), other_family.next()];
        if pair == [None, None] {
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::plan::LoadFlags;

    #[test]
    fn families_take_turns() {
        let parse =
            |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        let all = parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let ordered = parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]);
        assert_eq!(families_in_turn(all), ordered);
    }

    #[test]
    fn the_first_address_that_accepts_is_used_for_all_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let port = open.port();
        let shut: SocketAddr = format!("127.0.0.2:{port}").parse().unwrap();
        let timeout = Duration::from_secs(30);
        assert_eq!(rt::dial::first_reachable(&[shut, open], timeout).unwrap(), open);
        let errors = rt::dial::first_reachable(&[shut, shut], timeout).unwrap_err();
        assert_eq!(errors.len(), 2);
        let text = unreachable_error("a:1", &errors).to_string();
        assert!(text.starts_with(&format!("cannot connect to a:1: {shut}: connection refused")), "{text}");
        // A name with one address stays as it is.
        let flags = LoadFlags { urls: vec![format!("http://127.0.0.1:{port}/")], ..LoadFlags::default() };
        let mut plan = RunPlan::parse(&flags, 1).unwrap();
        plan.choose_addresses().unwrap();
        assert_eq!(plan.addresses, []);
    }
}
