//! Which server fails so many requests that it should get none for a while. Pure: counts and times
//! in, a judgement out. Counting is `pool::observed`'s, and holding back is `pool::standing`'s.

use crate::outcome::{End, Outcome};
use crate::plan::OutlierPlan;

macro_rules! reasons {
    ($($variant:ident, $code:literal, $doc:literal;)*) => {
        /// Why a server is ejected.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Why {
            $(#[doc = $doc] $variant,)*
        }

        impl Why {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In `snake_case`, stable.
            pub(crate) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// As it is said to people.
            pub(crate) fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

reasons! {
    Failures, "failures", "it failed too many requests in a row";
    Errors, "errors", "too many answers in a row were errors";
    ErrorRate, "error_rate", "too many of its answers were errors";
    Latency, "latency", "it is much slower than the others";
    Trial, "trial", "it failed the request that tried it after an ejection";
}

/// What a request says about its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It answered.
    Fine,
    /// It answered with an error.
    Error,
    /// It gave no answer, or none that is valid.
    Failure,
    /// It had no chance to answer.
    Nothing,
}

/// What a request that has ended says about its server.
pub(crate) fn sign_of(outcome: &Outcome<'_>, plan: &OutlierPlan) -> Sign {
    match outcome.end {
        End::ConnectFailed
        | End::ConnectTimeout
        | End::ServerClosed
        | End::ServerTimeout
        | End::BadResponse => Sign::Failure,
        End::Done | End::TunnelIdle => sign_of_status(outcome.status, plan),
        // Somebody else ended it, after the server had answered or before.
        _ if outcome.times.first_byte_ns > 0 => sign_of_status(outcome.status, plan),
        _ => Sign::Nothing,
    }
}

/// What an answer's status says about its server.
pub(crate) fn sign_of_status(status: u16, plan: &OutlierPlan) -> Sign {
    if plan.statuses.contains(status) { Sign::Error } else { Sign::Fine }
}

/// Whether so many in a row are too many.
pub(crate) fn by_streak(plan: &OutlierPlan, failures: u32, errors: u32) -> Option<Why> {
    if plan.failures > 0 && failures >= plan.failures {
        return Some(Why::Failures);
    }
    plan.errors.filter(|&most| errors >= most).map(|_| Why::Errors)
}

/// What a server did in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) requests: u32,
    /// Failures and errors among them.
    pub(crate) errors: u32,
    /// Those that have a time to the first byte, and the sum of those times.
    pub(crate) timed: u32,
    pub(crate) first_byte_us: u64,
}

impl Window {
    fn mean_us(&self) -> u64 {
        self.first_byte_us / u64::from(self.timed.max(1))
    }
}

/// What is wrong with one server's window, beside those of all servers of its pool.
pub(crate) fn by_window(plan: &OutlierPlan, server: &Window, all: &[Window]) -> Option<Why> {
    if let Some(rate) = plan.error_rate
        && server.requests >= plan.requests_min
        && f64::from(server.errors) > rate * f64::from(server.requests)
    {
        return Some(Why::ErrorRate);
    }
    let factor = u64::from(plan.latency_factor?);
    let is_timed = |window: &Window| window.timed >= plan.requests_min;
    let mut means: Vec<u64> =
        all.iter().filter(|window| is_timed(window)).map(Window::mean_us).collect();
    means.sort_unstable();
    // The lower one of two: where there are only two servers, it is the other one.
    let median = *means.get(means.len().checked_sub(1)? / 2)?;
    (is_timed(server) && server.mean_us() > median.saturating_mul(factor)).then_some(Why::Latency)
}

/// One server, as far as it matters for whether another one may be ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Whether it gets requests.
    pub(crate) gets: bool,
    /// Whether it is ejected, or is being tried after that.
    pub(crate) held_back: bool,
}

/// Whether a server may be ejected; `others` are all the others of its pool.
pub(crate) fn may_eject(plan: &OutlierPlan, others: impl Iterator<Item = Beside>) -> bool {
    let (mut servers, mut held_back, mut any_gets) = (1_u32, 0_u32, false);
    for other in others {
        servers += 1;
        held_back += u32::from(other.held_back);
        any_gets |= other.gets;
    }
    let most = (plan.max_ejected * f64::from(servers)) as u32;
    any_gets && held_back < most.max(1)
}

/// How many ejections in a row this one is, and for how long; `well_for_ns`: since the last one.
pub(crate) fn sentence(plan: &OutlierPlan, before: u32, well_for_ns: u64) -> (u32, u64) {
    let before = if well_for_ns >= plan.ejection_max_ns { 0 } else { before };
    let nth = before.saturating_add(1);
    let for_ns = plan.ejection_ns.saturating_mul(nth.into()).min(plan.ejection_max_ns);
    // A first ejection that is longer than the longest is still what was asked for.
    (nth, for_ns.max(plan.ejection_ns.min(plan.ejection_max_ns)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::Statuses;

    pub(crate) fn plan() -> OutlierPlan {
        OutlierPlan {
            failures: 5,
            errors: Some(7),
            statuses: Statuses(vec![500..=599]),
            error_rate: Some(0.5),
            latency_factor: Some(3),
            window_ns: 10,
            requests_min: 10,
            ejection_ns: 10,
            ejection_max_ns: 35,
            max_ejected: 0.5,
        }
    }

    #[test]
    fn streaks() {
        for (failures, errors, wanted) in [
            (4, 6, None),
            (5, 5, Some(Why::Failures)),
            (0, 7, Some(Why::Errors)),
            (9, 9, Some(Why::Failures)),
        ] {
            assert_eq!(by_streak(&plan(), failures, errors), wanted, "{failures} {errors}");
        }
        let off = OutlierPlan { failures: 0, errors: None, ..plan() };
        assert_eq!(by_streak(&off, 1000, 1000), None);
    }

    #[test]
    fn windows() {
        let window = |requests, errors, mean_us: u64| Window {
            requests,
            errors,
            timed: requests,
            first_byte_us: mean_us * u64::from(requests),
        };
        let fine = window(100, 1, 100);
        let judge = |server: Window, others: &[Window]| {
            by_window(&plan(), &server, &[&[server], others].concat())
        };
        assert_eq!(judge(fine, &[fine, fine]), None);
        assert_eq!(judge(window(10, 5, 100), &[fine]), None);
        assert_eq!(judge(window(10, 6, 100), &[fine]), Some(Why::ErrorRate));
        assert_eq!(judge(window(9, 9, 100), &[fine]), None);
        assert_eq!(judge(window(10, 0, 300), &[fine, fine]), None);
        assert_eq!(judge(window(10, 0, 301), &[fine, fine]), Some(Why::Latency));
        assert_eq!(judge(window(10, 0, 301), &[fine]), Some(Why::Latency));
        // Too few of its own, or of the others, to know.
        assert_eq!(judge(window(9, 0, 9000), &[fine, fine]), None);
        assert_eq!(judge(window(10, 0, 9000), &[window(9, 0, 1)]), None);
        assert_eq!(judge(Window::default(), &[]), None);
    }

    #[test]
    fn never_the_last_one_and_never_too_many() {
        let (at_work, out) =
            (Beside { gets: true, held_back: false }, Beside { gets: false, held_back: true });
        let down = Beside { gets: false, held_back: false };
        for (others, wanted) in [
            (&[][..], false),
            (&[down], false),
            (&[at_work], true),
            (&[at_work, out], false),
            (&[at_work, at_work, out], true),
            (&[at_work, out, out], false),
            (&[out, out, out], false),
        ] {
            assert_eq!(may_eject(&plan(), others.iter().copied()), wanted, "{others:?}");
        }
        // One may always be.
        let few = OutlierPlan { max_ejected: 0.01, ..plan() };
        assert!(may_eject(&few, [at_work; 3].into_iter()));
        assert!(!may_eject(&few, [at_work, at_work, out].into_iter()));
    }

    #[test]
    fn each_ejection_is_longer_until_a_server_was_well() {
        let mut before = 0;
        let mut times = Vec::new();
        for _ in 0..5 {
            let (nth, for_ns) = sentence(&plan(), before, 34);
            before = nth;
            times.push(for_ns);
        }
        assert_eq!(times, [10, 20, 30, 35, 35]);
        assert_eq!(sentence(&plan(), before, 35), (1, 10));
    }
}
