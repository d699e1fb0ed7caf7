//! Token buckets by key: whether one more request of a route, a client or a field's value is within
//! its rate. Pure; what is answered beyond is the caller's business.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use crate::plan::{RateKey, RateLimit};

use super::Asked;

/// In how many nanoseconds a refused request would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfterNs(pub(crate) u64);

/// What a request is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// With all others of its route.
    Route,
    /// With those of the same client (IPv6: of the same /64); `None`, a unix socket: one client.
    Source(Option<IpAddr>),
    /// With those of the same value; all without the field are one.
    Field(Option<&'a [u8]>),
}

impl<'a> Key<'a> {
    /// What `asked` is counted under when the limit is by `key`.
    pub(crate) fn of(key: &RateKey, asked: &Asked<'a>) -> Self {
        match key {
            RateKey::Route => Self::Route,
            RateKey::Source => Self::Source(asked.source),
            RateKey::Header(name) => Self::Field(wire::field_value(asked.headers, name)),
        }
    }
}

/// What is left of a [`Key`]: 128 bits, whatever the length of a value.
type Id = u128;

/// The buckets of one route on one core.
///
/// A bucket is one number: when it will be full again (the generic cell rate algorithm). At most
/// [`RateLimit::keys_max`] are kept; for a new one beyond, the bucket goes that was full first, or,
/// when none is full, that will be. A forgotten bucket counts as full, so who has more keys than
/// `keys_max` to send from is not held by the limit.
pub(crate) struct Buckets {
    share: u32,
    full_at: HashMap<Id, (u64, u64)>,
    /// By the same times; the second number tells buckets of one time apart.
    order: BTreeMap<(u64, u64), Id>,
    next_serial: u64,
    hashers: [RandomState; 2],
}

impl Buckets {
    /// Empty. `share` is on how many cores such buckets are kept: each admits that part of the rate
    /// and of the burst (at least one request), so that all together admit what was asked for. It
    /// is exact only as far as the kernel spreads a key's connections evenly; one client on one
    /// connection gets one core's part.
    pub(crate) fn new(share: usize) -> Self {
        Self {
            share: u32::try_from(share.max(1)).unwrap_or(u32::MAX),
            full_at: HashMap::new(),
            order: BTreeMap::new(),
            next_serial: 0,
            hashers: [RandomState::new(), RandomState::new()],
        }
    }

    /// How many keys are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.full_at.len()
    }

    /// Takes a token for `key` if there is one.
    ///
    /// # Errors
    /// When there is none; nothing is taken then.
    pub(crate) fn admit(
        &mut self,
        limit: &RateLimit,
        key: Key<'_>,
        now_ns: u64,
    ) -> Result<(), RetryAfterNs> {
        let id = self.id(key);
        let token_ns = 1e9 * f64::from(self.share) / limit.rate_per_s;
        let room_ns = (token_ns * f64::from(limit.burst) / f64::from(self.share)).max(token_ns);
        // Float to integer saturates: a rate of nearly nothing is a token in 584 years.
        let (token_ns, room_ns) = (token_ns as u64, room_ns as u64);
        let before = self.full_at.get(&id).copied();
        let full_at = before.map_or(now_ns, |(at, _)| at.max(now_ns)).saturating_add(token_ns);
        let over_ns = full_at.saturating_sub(now_ns).saturating_sub(room_ns);
        if over_ns > 0 {
            return Err(RetryAfterNs(over_ns));
        }
        match before {
            Some(place) => {
                self.order.remove(&place);
            }
            None if self.full_at.len() >= limit.keys_max.max(1) => self.forget_one(),
            None => {}
        }
        let place = (full_at, self.next_serial);
        self.next_serial += 1;
        self.full_at.insert(id, place);
        self.order.insert(place, id);
        Ok(())
    }

    fn forget_one(&mut self) {
        if let Some((_, id)) = self.order.pop_first() {
            self.full_at.remove(&id);
        }
    }

    /// Values are hashed under secret keys, so that nobody can choose one to share a bucket with
    /// another.
    fn id(&self, key: Key<'_>) -> Id {
        match key {
            Key::Route | Key::Source(None) | Key::Field(None) => Id::MAX,
            Key::Source(Some(address)) => match address.to_canonical() {
                IpAddr::V4(address) => Id::from(address.to_bits()),
                IpAddr::V6(address) => (address.to_bits() >> 64 << 64) | 1 << 32,
            },
            Key::Field(Some(value)) => {
                let [low, high] = &self.hashers;
                Id::from(high.hash_one(value)) << 64 | Id::from(low.hash_one(value))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn limit(rate_per_s: f64, burst: u32, keys_max: usize) -> RateLimit {
        RateLimit { rate_per_s, burst, key: RateKey::Source, status: 429, keys_max }
    }

    fn client(number: u32) -> Key<'static> {
        Key::Source(Some(IpAddr::V4(number.into())))
    }

    /// How many of one request each `step_ns` are admitted in `duration_ns`.
    fn admitted(buckets: &mut Buckets, limit: &RateLimit, step_ns: u64, duration_ns: u64) -> u64 {
        let times = (0..duration_ns / step_ns).map(|step| 1_000 + step * step_ns);
        times.filter(|&now| buckets.admit(limit, Key::Route, now).is_ok()).count() as u64
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut buckets = Buckets::new(1);
        let limit = limit(100.0, 20, 10);
        let got = admitted(&mut buckets, &limit, SECOND_NS / 10_000, 10 * SECOND_NS);
        assert!((1_019..=1_021).contains(&got), "{got}");
    }

    #[test]
    fn who_waits_as_told_is_admitted_and_not_before() {
        let mut buckets = Buckets::new(1);
        let limit = limit(4.0, 2, 10);
        let now = 5 * SECOND_NS;
        assert!((0..2).all(|_| buckets.admit(&limit, Key::Route, now).is_ok()));
        let RetryAfterNs(wait) = buckets.admit(&limit, Key::Route, now).unwrap_err();
        assert_eq!(wait, SECOND_NS / 4);
        assert_eq!(buckets.admit(&limit, Key::Route, now + wait - 1), Err(RetryAfterNs(1)));
        assert_eq!(buckets.admit(&limit, Key::Route, now + wait), Ok(()));
    }

    #[test]
    fn what_is_refused_takes_nothing() {
        let mut buckets = Buckets::new(1);
        let limit = limit(1.0, 1, 10);
        assert!(buckets.admit(&limit, Key::Route, 0).is_ok());
        assert!((1..1_000).all(|now| buckets.admit(&limit, Key::Route, now).is_err()));
        assert!(buckets.admit(&limit, Key::Route, SECOND_NS).is_ok());
    }

    #[test]
    fn cores_share_the_rate_and_the_burst() {
        let limit = limit(100.0, 20, 10);
        let got: u64 = (0..4)
            .map(|_| admitted(&mut Buckets::new(4), &limit, SECOND_NS / 1_000, 10 * SECOND_NS))
            .sum();
        assert!((1_010..=1_030).contains(&got), "{got}");
        // Less than one request for each core is still one.
        let mut small = Buckets::new(8);
        assert!(small.admit(&RateLimit { burst: 1, ..limit }, Key::Route, 0).is_ok());
    }

    #[test]
    fn keys_are_apart_and_a_network_is_one() {
        let mut buckets = Buckets::new(1);
        let limit = limit(1.0, 1, 100);
        let v6 = |text: &str| Key::Source(Some(text.parse().unwrap()));
        for key in [client(1), client(2), v6("2001:db8::1"), v6("2001:db8:0:1::1"), Key::Route] {
            assert!(buckets.admit(&limit, key, 0).is_ok(), "{key:?}");
        }
        assert!(buckets.admit(&limit, v6("2001:db8::ffff"), 0).is_err());
        assert!(buckets.admit(&limit, v6("::ffff:0.0.0.1"), 0).is_err());
        assert!(buckets.admit(&limit, Key::Field(Some(b"a")), 0).is_ok());
        assert!(buckets.admit(&limit, Key::Field(Some(b"b")), 0).is_ok());
        assert!(buckets.admit(&limit, Key::Field(Some(b"a")), 0).is_err());
    }

    #[test]
    fn the_bucket_that_was_full_first_is_forgotten_first() {
        let mut buckets = Buckets::new(1);
        let limit = limit(1.0, 2, 2);
        // 1 is emptied, 2 has one left: 2 is full first.
        assert!(buckets.admit(&limit, client(1), 0).is_ok());
        assert!(buckets.admit(&limit, client(1), 0).is_ok());
        assert!(buckets.admit(&limit, client(2), 0).is_ok());
        assert!(buckets.admit(&limit, client(3), 0).is_ok());
        assert_eq!(buckets.len(), 2);
        assert!(buckets.admit(&limit, client(1), 0).is_err(), "1 was forgotten");
    }

    #[test]
    fn memory_is_bounded_whoever_comes() {
        let mut buckets = Buckets::new(1);
        let limit = limit(10.0, 5, 1_000);
        let mut random = fastrand::Rng::with_seed(3);
        for now in 0..50_000 {
            let _ = buckets.admit(&limit, client(random.u32(..)), now * 1_000);
            assert!(buckets.len() <= 1_000 && buckets.order.len() == buckets.len());
        }
    }
}
