//! Division of the requests of a route between pools by weight. The choice is pure.

use std::sync::Arc;

use super::PoolId;
use crate::key_digest::rendezvous_number;
use crate::split::NamedWeight;
use crate::template::Template;

/// Division of the requests of a route between pools.
#[derive(Clone, Debug)]
pub struct SplitPlan {
    /// Name by which operators change the weights; `None`: they cannot.
    pub name: Option<Box<str>>,
    /// Key of a request, which keeps its pool; `None`: each request is divided by itself.
    pub key: Option<Template>,
    /// True if a request goes to another pool if the one chosen has no usable server.
    pub falls_back: bool,
    /// Pools; at least one.
    pub shares: Vec<SplitShare>,
}

/// A pool of a split.
#[derive(Clone, Debug)]
pub struct SplitShare {
    pub pool: PoolId,
    pub name_digest: u64,
    /// Weight in the config.
    pub weight: u32,
    /// Weight of operators; `None`: they cannot change it.
    pub named: Option<Arc<NamedWeight>>,
}

/// Position of a request between the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitKey {
    /// Digest of its key, or a random number.
    Digest(u64),
    /// The request has no key.
    Missing,
}

impl SplitShare {
    /// Returns the weight that counts now.
    pub fn current(&self) -> u32 {
        self.named.as_ref().and_then(|named| named.changed()).unwrap_or(self.weight)
    }
}

impl SplitPlan {
    /// Returns whether an operator has set a weight.
    pub fn is_changed(&self) -> bool {
        self.shares.iter().any(|share| share.named.as_ref().is_some_and(|named| named.changed().is_some()))
    }

    /// Returns the index of the pool of a request, and whether it is another one than its key chooses.
    ///
    /// Each pool draws a number for the key, and the smallest number relative to the weight wins (rendezvous hashing).
    /// So a pool that grows in relation to all others keeps its keys, and no key moves between two others. A request
    /// without a key goes to the first pool that has a weight. A fallback is the pool that is next for the key.
    pub fn choose(&self, key: SplitKey, is_usable: impl Fn(PoolId) -> bool) -> (usize, bool) {
        let number = |share: &SplitShare| match (key, share.current()) {
            (_, 0) => f64::INFINITY,
            (SplitKey::Digest(digest), weight) => rendezvous_number(digest, share.name_digest, weight),
            (SplitKey::Missing, _) => 0.0,
        };
        let best = |is_eligible: &dyn Fn(&SplitShare) -> bool| {
            let mut best = (f64::INFINITY, None);
            for (index, share) in self.shares.iter().enumerate().filter(|(_, share)| is_eligible(share)) {
                let number = number(share);
                if number < best.0 {
                    best = (number, Some(index));
                }
            }
            best.1
        };
        // Some weight is never 0, unless an operator is just changing them.
        let chosen = best(&|_| true).unwrap_or(0);
        if !self.falls_back || is_usable(self.shares[chosen].pool) {
            return (chosen, false);
        }
        match best(&|share| is_usable(share.pool)) {
            Some(other) => (other, true),
            None => (chosen, false),
        }
    }
}

impl PartialEq for SplitPlan {
    fn eq(&self, other: &Self) -> bool {
        let shares =
            |plan: &Self| plan.shares.iter().map(|share| (share.pool, share.weight)).collect::<Vec<_>>();
        (&self.name, &self.key, self.falls_back) == (&other.name, &other.key, other.falls_back)
            && shares(self) == shares(other)
    }
}

impl Eq for SplitPlan {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_digest::{digest, mix};

    fn plan(weights: &[u32]) -> SplitPlan {
        let share = |(index, weight): (usize, &u32)| SplitShare {
            pool: PoolId(index as u32),
            name_digest: digest(&[index as u8]),
            weight: *weight,
            named: None,
        };
        SplitPlan {
            name: None,
            key: None,
            falls_back: true,
            shares: weights.iter().enumerate().map(share).collect(),
        }
    }

    fn chosen(plan: &SplitPlan, user: u64) -> usize {
        plan.choose(SplitKey::Digest(mix(user)), |_| true).0
    }

    #[test]
    fn a_pool_that_grows_keeps_its_users_and_takes_those_of_others() {
        let steps = [[90, 10, 0], [80, 20, 0], [50, 50, 0], [10, 90, 0], [0, 100, 0]];
        let plans: Vec<SplitPlan> = steps.iter().map(|weights| plan(weights)).collect();
        let mut counts = vec![0; steps.len()];
        for user in 0..10_000 {
            let mut is_in = false;
            for (plan, count) in plans.iter().zip(&mut counts) {
                let is_in_now = chosen(plan, user) == 1;
                assert!(is_in_now || !is_in, "user {user} left a pool that grew");
                is_in = is_in_now;
                *count += usize::from(is_in_now);
            }
        }
        for (count, [_, weight, _]) in counts.iter().zip(steps) {
            let expected = weight as usize * 100;
            assert!(count.abs_diff(expected) < 200, "{count} of {expected}");
        }
    }

    #[test]
    fn a_new_pool_takes_its_share_of_each_and_moves_nobody_else() {
        let (two, three) = (plan(&[50, 50, 0]), plan(&[50, 50, 100]));
        let mut moved = [0, 0];
        for user in 0..10_000 {
            let (before, after) = (chosen(&two, user), chosen(&three, user));
            assert!(after == before || after == 2);
            moved[before] += usize::from(after == 2);
        }
        assert!(moved.iter().all(|moved| (2300..2700).contains(moved)), "{moved:?}");
    }

    #[test]
    fn a_request_without_a_key_goes_to_the_first_pool_with_a_weight() {
        assert_eq!(plan(&[90, 10]).choose(SplitKey::Missing, |_| true), (0, false));
        assert_eq!(plan(&[0, 10]).choose(SplitKey::Missing, |_| true), (1, false));
        assert_eq!(plan(&[0, 0]).choose(SplitKey::Missing, |_| true), (0, false));
    }

    #[test]
    fn a_fallback_is_another_pool_that_has_a_server() {
        let plan = plan(&[90, 10, 0]);
        for user in 0..100 {
            let key = SplitKey::Digest(mix(user));
            let (first, _) = plan.choose(key, |_| true);
            let (other, is_fallback) = plan.choose(key, |pool| pool != PoolId(first as u32));
            assert!(is_fallback && other != first && other != 2, "weight 0 is no fallback");
            assert_eq!(plan.choose(key, |_| false), (first, false));
            let fixed = SplitPlan { falls_back: false, ..plan.clone() };
            assert_eq!(fixed.choose(key, |_| false), (first, false));
        }
    }
}
