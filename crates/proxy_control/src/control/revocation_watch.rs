//! Reports revocation lists that expire while the proxy runs, each once.

use rt::clock::{MonotonicTime, SECOND_NS, unix_ns};
use rt::tls::RevocationListInfo;

use crate::plan::Plan;

/// Interval between two checks.
const CHECK_NS: u64 = SECOND_NS;
/// Time before the end of a list at which it is reported: lists are usually renewed days before.
const NOTICE_S: u64 = 3_600;

#[derive(Debug, Default)]
pub(super) struct RevocationWatch {
    next_check: MonotonicTime,
    /// Lists that have been reported, and the stage then.
    reported: Vec<(RevocationListInfo, ExpiryStage)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpiryStage {
    Soon,
    Expired,
}

impl RevocationWatch {
    /// Reports lists of a plan that expire. Checks them at most once a second, so it may be called at any
    /// time.
    pub(super) fn poll(&mut self, plan: &Plan, now: MonotonicTime) {
        if now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_NS;
        let lists = plan.revocation_lists().map(|(_, list)| list);
        for (list, stage) in self.newly_expiring(lists, unix_ns() / SECOND_NS) {
            let text = match stage {
                ExpiryStage::Soon => "expires within an hour: renew it",
                ExpiryStage::Expired => "has expired: renew it",
            };
            eprintln!(
                "weir: warning: {}: the revocation list of {} {text}",
                list.path.display(),
                list.issuer
            );
        }
    }

    /// Returns the lists with another stage than at the last call.
    fn newly_expiring<'a>(
        &mut self,
        lists: impl Iterator<Item = &'a RevocationListInfo>,
        now_s: u64,
    ) -> Vec<(&'a RevocationListInfo, ExpiryStage)> {
        let stage_of = |list: &RevocationListInfo| match list.next_update_s {
            end_s if now_s >= end_s => Some(ExpiryStage::Expired),
            end_s if now_s + NOTICE_S >= end_s => Some(ExpiryStage::Soon),
            _ => None,
        };
        let mut expiring: Vec<_> = lists.filter_map(|list| Some((list, stage_of(list)?))).collect();
        // Listeners may share a list.
        expiring.dedup();
        let known = std::mem::take(&mut self.reported);
        self.reported = expiring.iter().map(|(list, stage)| ((*list).clone(), *stage)).collect();
        expiring.retain(|(list, stage)| !known.iter().any(|(old, was)| old == *list && was == stage));
        expiring
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_of_a_list_is_reported_once() {
        let list = RevocationListInfo { path: "/a".into(), issuer: "CN=a".into(), next_update_s: 10_000 };
        let mut watch = RevocationWatch::default();
        let mut stages = |now_s: u64| {
            let found = watch.newly_expiring([&list, &list].into_iter(), now_s);
            found.into_iter().map(|(_, stage)| stage).collect::<Vec<_>>()
        };
        assert_eq!(stages(10_000 - NOTICE_S - 1), []);
        assert_eq!(stages(10_000 - NOTICE_S), [ExpiryStage::Soon]);
        assert_eq!(stages(9_999), []);
        assert_eq!(stages(10_000), [ExpiryStage::Expired]);
        assert_eq!(stages(20_000), []);
        let renewed = RevocationListInfo { next_update_s: 30_000, ..list.clone() };
        assert!(watch.newly_expiring([&renewed].into_iter(), 20_000).is_empty());
        assert_eq!(watch.newly_expiring([&renewed].into_iter(), 30_000).len(), 1);
    }
}
