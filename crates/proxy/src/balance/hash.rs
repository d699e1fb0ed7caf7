//! Choice by a key: consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam:
//! "Consistent Hashing with Bounded Loads"), and the key of a request.
//!
//! Weighted rendezvous hashing maps a key to a server: each server draws a number for the key, and
//! the smallest number relative to the weight wins. A hash ring would need a table that is rebuilt
//! whenever a weight changes, which is every tenth of a second during a slow start. The weights of
//! a ring are also only as exact as its number of points. Rendezvous hashing has no table and exact
//! weights, and it moves the fewest keys: if a server goes, its own keys; if a weight changes, the
//! keys that this server wins or loses. It checks every server for each request, as all choices
//! here do.
//!
//! The digests are the same in every process and on every machine, so that proxies side by side
//! agree. A client that knows them can make keys that belong to one server; the load bound limits
//! the effect.

use std::net::IpAddr;

use super::{BalanceInput, Candidate, Selection};
use crate::cookies::cookies;
use crate::key_digest::{digest, rendezvous_number};
use crate::plan::{HashKey, IdVec, ServerId, Template};
use crate::route::RouteRequest;
use crate::uri::{normalise, split_target};

/// Resolution of a load factor: parts of 1.
const LOAD_FACTOR_RESOLUTION: f64 = 1000.0;

/// Returns the server that a key belongs to, whatever its load.
pub(crate) fn owner(
    key: u64,
    name_digests: &IdVec<ServerId, u64>,
    weight: impl Fn(ServerId) -> u32,
) -> Option<ServerId> {
    let mut best = (f64::INFINITY, None);
    for (id, name_digest) in name_digests.enumerate() {
        let weight = weight(id);
        let number = if weight > 0 { rendezvous_number(key, *name_digest, weight) } else { f64::INFINITY };
        if number < best.0 {
            best = (number, Some(id));
        }
    }
    best.1
}

/// Returns the server that the key belongs to, or the next one that has a free slot and is below
/// its bound.
///
/// The bound is `load_factor` times a server's fraction of all requests in flight, this one
/// included, rounded up. The fractions are computed over servers with a free slot, because requests
/// that a full server cannot take must go to another one. At least one server is always below its
/// bound, as the bounds add up to more than the requests in flight.
pub(super) fn choose(
    input: BalanceInput<'_>,
    key: u64,
    servers: usize,
    candidate: impl Fn(ServerId) -> Candidate,
) -> Option<Selection> {
    // Integers keep the bound exact.
    let factor = (input.load_factor * LOAD_FACTOR_RESOLUTION).round() as u128;
    let (mut in_flight, mut weights) = (1, 0);
    for candidate in ServerId::first(servers).map(&candidate).filter(Candidate::is_usable) {
        in_flight += candidate.in_flight as u128;
        weights += u128::from(candidate.weight);
    }
    let is_below = |candidate: &Candidate| {
        let limit = factor * in_flight * u128::from(candidate.weight);
        candidate.in_flight as u128 * weights * (LOAD_FACTOR_RESOLUTION as u128) < limit
    };
    let mut owner = (f64::INFINITY, None);
    let mut best_below_bound = (f64::INFINITY, None);
    let mut best_available = (f64::INFINITY, None);
    for (id, name_digest) in input.name_digests.enumerate().take(servers) {
        let candidate = candidate(id);
        if candidate.weight == 0 {
            continue;
        }
        let number = rendezvous_number(key, *name_digest, candidate.weight);
        let minima = [
            (&mut owner, true),
            (&mut best_available, candidate.is_available),
            (&mut best_below_bound, candidate.is_available && is_below(&candidate)),
        ];
        for (minimum, is_eligible) in minima {
            if is_eligible && number < minimum.0 {
                *minimum = (number, Some(id));
            }
        }
    }
    // No server is below its bound only if another core changed something in between.
    let server = best_below_bound.1.or(best_available.1)?;
    Some(Selection { server, is_hash_overflow: owner.1 != Some(server) })
}

/// Computes the digest of a request's key. `None`: the request has no key, or an empty one.
/// `buffer` is a buffer for paths that are not in their normal form.
/// `render` returns a text with its values.
pub(crate) fn digest_key<'k>(
    key: &HashKey,
    request: &RouteRequest<'_>,
    buffer: &mut String,
    render: impl FnOnce(&Template) -> &'k mut Vec<u8>,
) -> Option<u64> {
    let value = match key {
        HashKey::Source => return digest_source(request.source),
        HashKey::Path => normalise(split_target(request.target).0, buffer).as_bytes(),
        HashKey::Header(name) => request.view.value(name)?,
        HashKey::Cookie(name) => {
            let lines = request.view.ordinary_lines("cookie");
            cookies(lines).find(|cookie| cookie.name == name.as_bytes())?.value
        }
        HashKey::Template(template) => render(template),
    };
    (!value.is_empty()).then(|| digest(value))
}

/// Computes the digest of a client's address. For IPv6, where clients have a network each, it is
/// the digest of the network.
pub(crate) fn digest_source(address: Option<IpAddr>) -> Option<u64> {
    Some(match address?.to_canonical() {
        IpAddr::V4(address) => digest(&address.octets()),
        IpAddr::V6(address) => digest(&address.octets()[..8]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Id;
    use crate::request_view::fixtures;
    use wire::Header;

    fn create_digests(count: usize) -> IdVec<ServerId, u64> {
        (0..count).map(|index| digest(format!("127.0.0.1:{}", 9000 + index).as_bytes())).collect()
    }

    /// Computes the owner of each of `keys` keys.
    fn owners_of_keys(
        name_digests: &IdVec<ServerId, u64>,
        weights: &[u32],
        keys: u64,
    ) -> Vec<Option<ServerId>> {
        let weight = |server: ServerId| weights[server.index()];
        (0..keys).map(|key| owner(digest(&key.to_le_bytes()), name_digests, weight)).collect()
    }

    fn fraction_of(owners: &[Option<ServerId>], server: u32) -> f64 {
        owners.iter().filter(|owner| **owner == Some(ServerId(server))).count() as f64 / owners.len() as f64
    }

    #[test]
    fn digests_never_change() {
        // Proxies of other versions use these values; computed independently of this code.
        assert_eq!(digest(b""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(digest(b"/index.html"), 0xf6ad_651c_57d6_4427);
    }

    #[test]
    fn fractions_are_the_weights() {
        let name_digests = create_digests(4);
        let owners = owners_of_keys(&name_digests, &[100, 200, 0, 500], 40_000);
        for (server, expected) in [(0, 0.125), (1, 0.25), (2, 0.0), (3, 0.625)] {
            let actual = fraction_of(&owners, server);
            assert!((actual - expected).abs() < 0.01, "{server}: {actual}");
        }
        assert!(owners_of_keys(&name_digests, &[0; 4], 3).iter().all(Option::is_none));
    }

    #[test]
    fn only_the_keys_of_a_removed_server_move() {
        let name_digests = create_digests(10);
        let before = owners_of_keys(&name_digests, &[100; 10], 10_000);
        let mut weights = [100; 10];
        weights[3] = 0;
        let after = owners_of_keys(&name_digests, &weights, 10_000);
        let mut gained = [0; 10];
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == Some(ServerId(3)), "{before:?} {after:?}");
            if before != after {
                gained[after.unwrap().index()] += 1;
            }
        }
        // Its keys are spread over all others: a ninth of a tenth of 10,000 each.
        let others = gained.iter().enumerate().filter(|(at, _)| *at != 3);
        assert!(others.clone().all(|(_, gained)| (70..160).contains(gained)), "{gained:?}");
    }

    #[test]
    fn a_weight_that_grows_only_wins_keys() {
        let name_digests = create_digests(5);
        let mut before = owners_of_keys(&name_digests, &[100, 100, 10, 100, 100], 10_000);
        for weight in [20, 40, 70, 100] {
            let after = owners_of_keys(&name_digests, &[100, 100, weight, 100, 100], 10_000);
            for (before, after) in before.iter().zip(&after) {
                assert!(before == after || *after == Some(ServerId(2)), "{before:?} {after:?}");
            }
            before = after;
        }
        assert!((fraction_of(&before, 2) - 0.2).abs() < 0.015);
    }

    #[test]
    fn each_kind_of_key_is_taken_from_its_part_of_the_request() {
        let headers = [
            Header { name: "X-Key", value: b"v" },
            Header { name: "Cookie", value: b"a=1; user=bob; b=2" },
            Header { name: "X-Empty", value: b"" },
        ];
        let head = fixtures::head(&headers);
        let view = fixtures::view(&head);
        let request = |target: &'static str, source: &str| RouteRequest {
            listener: 0,
            method: "GET",
            target,
            is_plain: false,
            host: None,
            view: &view,
            source: source.parse().ok(),
        };
        let key = |key: HashKey, target, source| {
            digest_key(&key, &request(target, source), &mut String::new(), |_| unreachable!())
        };
        let path = |target| key(HashKey::Path, target, "");
        assert_eq!(path("/a//./b?x=1"), Some(digest(b"/a/b")));
        assert_eq!(path("http://h/%61/b?x=2"), path("/a/b"));
        assert_ne!(path("/a"), path("/b"));
        let field = |name: &str| key(HashKey::Header(name.into()), "/", "");
        assert_eq!(field("x-key"), Some(digest(b"v")));
        assert_eq!((field("x-empty"), field("x-none")), (None, None));
        let cookie = |name: &str| key(HashKey::Cookie(name.into()), "/", "");
        assert_eq!((cookie("user"), cookie("User")), (Some(digest(b"bob")), None));
        let source = |source| key(HashKey::Source, "/", source);
        assert_eq!(source("2001:db8:0:1::1"), source("2001:db8:0:1:ffff::2"));
        assert_ne!(source("2001:db8:0:1::1"), source("2001:db8:0:2::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source(""), None);
    }
}
