//! Which server of a pool gets a request. Pure: weights, loads and a source of chance in, a place
//! out. Whether a server has room is told, not asked.

use crate::plan::Balance;

/// One server, as far as the choice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its share against the others'; 0: none.
    pub(crate) weight: u32,
    /// Requests that it has now.
    pub(crate) in_flight: usize,
    /// Whether it may get one more.
    pub(crate) open: bool,
}

impl Candidate {
    fn is_usable(&self) -> bool {
        self.open && self.weight > 0
    }

    /// Whether it has less to do for its weight than `other`.
    fn is_lighter_than(&self, other: &Self) -> bool {
        let own = (self.in_flight as u64 + 1) * u64::from(other.weight);
        let others = (other.in_flight as u64 + 1) * u64::from(self.weight);
        own < others
    }
}

/// What round robin remembers: the credit of each server (nginx's smooth weighted round robin).
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    credit: Vec<i64>,
}

impl Turns {
    /// Nobody has had a turn.
    pub(crate) fn new(servers: usize) -> Self {
        Self { credit: vec![0; servers] }
    }
}

/// Chooses a server, or none when none may get one more request.
pub(crate) fn choose(
    balance: Balance,
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    turns: &mut Turns,
    rng: &mut fastrand::Rng,
) -> Option<usize> {
    match balance {
        Balance::RandomOfTwo => random_of_two(servers, candidate, rng),
        Balance::RoundRobin => round_robin(servers, candidate, turns),
    }
}

fn random_of_two(
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    rng: &mut fastrand::Rng,
) -> Option<usize> {
    let usable = |index: &usize| candidate(*index).is_usable();
    let count = (0..servers).filter(usable).count();
    let nth = |n: usize| (0..servers).filter(usable).nth(n);
    match count {
        0 => None,
        1 => nth(0),
        _ => {
            let first = rng.usize(..count);
            // One of the others, each as likely.
            let second = (first + 1 + rng.usize(..count - 1)) % count;
            let (first, second) = (nth(first)?, nth(second)?);
            let lighter = candidate(second).is_lighter_than(&candidate(first));
            Some(if lighter { second } else { first })
        }
    }
}

/// Each usable server earns its weight, the richest is chosen and pays for all.
fn round_robin(
    servers: usize,
    candidate: impl Fn(usize) -> Candidate,
    turns: &mut Turns,
) -> Option<usize> {
    let mut total = 0;
    let mut richest: Option<usize> = None;
    for index in 0..servers {
        let candidate = candidate(index);
        if !candidate.is_usable() {
            continue;
        }
        total += i64::from(candidate.weight);
        turns.credit[index] += i64::from(candidate.weight);
        if richest.is_none_or(|richest| turns.credit[index] > turns.credit[richest]) {
            richest = Some(index);
        }
    }
    let chosen = richest?;
    turns.credit[chosen] -= total;
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(balance: Balance, weights: &[u32], requests: usize, keep: bool) -> Vec<usize> {
        let mut in_flight = vec![0; weights.len()];
        let mut got = vec![0; weights.len()];
        let mut turns = Turns::new(weights.len());
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..requests {
            let candidate = |index: usize| Candidate {
                weight: weights[index],
                in_flight: in_flight[index],
                open: true,
            };
            let chosen = choose(balance, weights.len(), candidate, &mut turns, &mut rng).unwrap();
            got[chosen] += 1;
            in_flight[chosen] += usize::from(keep);
        }
        got
    }

    #[test]
    fn round_robin_is_exact_and_smooth() {
        assert_eq!(run(Balance::RoundRobin, &[5, 1, 1, 0], 700, false), [500, 100, 100, 0]);
        let first: Vec<usize> = run(Balance::RoundRobin, &[2, 1], 3, false);
        assert_eq!(first, [2, 1]);
    }

    #[test]
    fn random_of_two_evens_out_what_is_in_flight_by_weight() {
        let got = run(Balance::RandomOfTwo, &[1, 1, 1, 1, 0], 4000, true);
        assert_eq!(got[4], 0);
        assert!(got[..4].iter().all(|&got| (990..=1010).contains(&got)), "{got:?}");
        let got = run(Balance::RandomOfTwo, &[3, 1], 4000, true);
        assert!((2950..=3050).contains(&got[0]), "{got:?}");
    }

    #[test]
    fn what_is_closed_gets_nothing() {
        let mut rng = fastrand::Rng::with_seed(1);
        for balance in [Balance::RandomOfTwo, Balance::RoundRobin] {
            for open in 0..3 {
                let candidate =
                    |index: usize| Candidate { weight: 1, in_flight: 0, open: index == open };
                let mut turns = Turns::new(3);
                assert_eq!(choose(balance, 3, candidate, &mut turns, &mut rng), Some(open));
            }
            let closed = |_| Candidate { weight: 1, in_flight: 0, open: false };
            assert_eq!(choose(balance, 3, closed, &mut Turns::new(3), &mut rng), None);
        }
    }
}
