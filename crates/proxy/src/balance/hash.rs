//! The choice by a key: consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam:
//! "Consistent Hashing with Bounded Loads"), and what of a request is its key.
//!
//! Which server a key belongs to is decided by weighted rendezvous: each server draws a number for the
//! key, and the smallest for its weight wins. A ring would need a table that is built anew whenever a
//! share changes, which is every tenth of a second during a slow start, and its shares are only as even
//! as it has points. This one has no table, exact shares, and moves the fewest keys that can be: when a
//! server goes, its own; when a share changes, those that this server wins or loses. It looks at every
//! server for each request, as all choices here do.
//!
//! The digests are the same in every process and on every machine, so that proxies side by side agree.
//! Whoever knows them can make keys that belong to one server; what that does is bounded.

use std::net::IpAddr;

use super::sticky::cookies;
use super::{Candidate, Chosen, How};
use crate::plan::HashKey;
use crate::route::Asked;
use crate::route::path::{normal, split_target};

/// In what parts a load factor counts.
const FACTOR_OF_ONE: f64 = 1000.0;

/// A number for these bytes that is the same everywhere (FNV-1a, mixed).
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(hash)
}

/// Makes each bit depend on all of them (the end of `SplitMix64`).
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// What a server draws for a key, for its weight: exponentially distributed, so that the chance to be
/// the smallest is the weight's share.
fn drawn(key: u64, name: u64, weight: u32) -> f64 {
    let bits = mix(key ^ name) >> 11;
    // Above 0 and below 1: 53 bits are what a float holds exactly.
    let unit = (bits as f64 + 0.5) / (1_u64 << 53) as f64;
    -unit.ln() / f64::from(weight)
}

/// The server that a key belongs to, whatever it has to do.
pub(crate) fn owner(key: u64, names: &[u64], weight: impl Fn(usize) -> u32) -> Option<usize> {
    let mut least = (f64::INFINITY, None);
    for (index, name) in names.iter().enumerate() {
        let weight = weight(index);
        let number = if weight > 0 { drawn(key, *name, weight) } else { f64::INFINITY };
        if number < least.0 {
            least = (number, Some(index));
        }
    }
    least.1
}

/// The server that the key belongs to, or the next that has room and less than its bound.
///
/// The bound is `load_factor` times a server's share of all requests in flight, this one included,
/// rounded up; shares are among those that have room, because what a full server cannot take has to
/// go somewhere. One of them is always below its bound, as the bounds add up to more than there is.
pub(super) fn choose(
    how: How<'_>,
    key: u64,
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
) -> Option<Chosen> {
    // In whole numbers, in which a bound is exact.
    let factor = (how.load_factor * FACTOR_OF_ONE).round() as u128;
    let (mut in_flight, mut weights) = (1, 0);
    for one in (0..servers).map(&candidate).filter(Candidate::is_usable) {
        in_flight += one.in_flight as u128;
        weights += u128::from(one.weight);
    }
    let is_below = |one: &Candidate| {
        let most = factor * in_flight * u128::from(one.weight);
        one.in_flight as u128 * weights * (FACTOR_OF_ONE as u128) < most
    };
    let mut own = (f64::INFINITY, None);
    let mut bounded = (f64::INFINITY, None);
    let mut any = (f64::INFINITY, None);
    for (index, name) in how.names.iter().enumerate().take(servers) {
        let one = candidate(index);
        if one.weight == 0 {
            continue;
        }
        let number = drawn(key, *name, one.weight);
        let places =
            [(&mut own, true), (&mut any, one.open), (&mut bounded, one.open && is_below(&one))];
        for (place, fits) in places {
            if fits && number < place.0 {
                *place = (number, Some(index));
            }
        }
    }
    // None is below its bound only if another core changed something in between.
    let server = bounded.1.or(any.1)?;
    Some(Chosen { server, is_elsewhere: own.1 != Some(server) })
}

/// The digest of a request's key. `None`: it has none, or an empty one. `room` is for paths that are
/// not in their normal form.
pub(crate) fn key_of(key: &HashKey, asked: &Asked<'_>, room: &mut String) -> Option<u64> {
    let value = match key {
        HashKey::Source => return source_key(asked.source),
        HashKey::Path => normal(split_target(asked.target).0, room).as_bytes(),
        HashKey::Header(name) => wire::field_value(asked.fields_for(name), name)?,
        HashKey::Cookie(name) => {
            cookies(asked.headers).find(|one| one.name == name.as_bytes())?.value
        }
    };
    (!value.is_empty()).then(|| digest(value))
}

/// The digest of a client's address; of its network where clients have a network each (IPv6).
pub(crate) fn source_key(address: Option<IpAddr>) -> Option<u64> {
    Some(match address?.to_canonical() {
        IpAddr::V4(address) => digest(&address.octets()),
        IpAddr::V6(address) => digest(&address.octets()[..8]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Header;

    fn names(count: usize) -> Vec<u64> {
        (0..count).map(|index| digest(format!("127.0.0.1:{}", 9000 + index).as_bytes())).collect()
    }

    /// How many of so many keys each server has.
    fn owned(names: &[u64], weights: &[u32], keys: u64) -> Vec<Option<usize>> {
        (0..keys).map(|key| owner(digest(&key.to_le_bytes()), names, |at| weights[at])).collect()
    }

    fn share(owners: &[Option<usize>], server: usize) -> f64 {
        owners.iter().filter(|one| **one == Some(server)).count() as f64 / owners.len() as f64
    }

    #[test]
    fn digests_never_change() {
        // What proxies of other versions agree on; worked out apart from this code.
        assert_eq!(digest(b""), 0xf52a_15e9_a9b5_e89b);
        assert_eq!(digest(b"/index.html"), 0xf6ad_651c_57d6_4427);
    }

    #[test]
    fn shares_are_the_weights() {
        let names = names(4);
        let owners = owned(&names, &[100, 200, 0, 500], 40_000);
        for (server, wanted) in [(0, 0.125), (1, 0.25), (2, 0.0), (3, 0.625)] {
            let got = share(&owners, server);
            assert!((got - wanted).abs() < 0.01, "{server}: {got}");
        }
        assert!(owned(&names, &[0; 4], 3).iter().all(Option::is_none));
    }

    #[test]
    fn only_the_keys_of_who_leaves_move() {
        let names = names(10);
        let before = owned(&names, &[100; 10], 10_000);
        let mut weights = [100; 10];
        weights[3] = 0;
        let after = owned(&names, &weights, 10_000);
        let mut gained = [0; 10];
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == Some(3), "{before:?} {after:?}");
            if before != after {
                gained[after.unwrap()] += 1;
            }
        }
        // What it had is spread over all others: a ninth of a tenth of 10,000 each.
        let others = gained.iter().enumerate().filter(|(at, _)| *at != 3);
        assert!(others.clone().all(|(_, gained)| (70..160).contains(gained)), "{gained:?}");
    }

    #[test]
    fn a_share_that_grows_only_wins_keys() {
        let names = names(5);
        let mut before = owned(&names, &[100, 100, 10, 100, 100], 10_000);
        for weight in [20, 40, 70, 100] {
            let after = owned(&names, &[100, 100, weight, 100, 100], 10_000);
            for (before, after) in before.iter().zip(&after) {
                assert!(before == after || *after == Some(2), "{before:?} {after:?}");
            }
            before = after;
        }
        assert!((share(&before, 2) - 0.2).abs() < 0.015);
    }

    #[test]
    fn keys_are_what_they_are_said_to_be() {
        let headers = [
            Header { name: "X-Key", value: b"v" },
            Header { name: "Cookie", value: b"a=1; user=bob; b=2" },
            Header { name: "X-Empty", value: b"" },
        ];
        let asked = |target: &'static str, source: &str| Asked {
            listener: 0,
            method: "GET",
            target,
            is_plain: false,
            trusted: false,
            host: None,
            headers: &headers,
            source: source.parse().ok(),
        };
        let key =
            |key: HashKey, target, source| key_of(&key, &asked(target, source), &mut String::new());
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
