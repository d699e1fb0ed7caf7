//! The lock of a shared storage, with many owners at a time.

use rt::clock::SECOND_NS;

use super::*;
use crate::plan::AcmeChallenge;

fn plan(storage: &Path) -> AcmePlan {
    AcmePlan {
        directory: "https://a.test/".into(),
        ca: None,
        contact: Vec::new(),
        domains: vec!["a.test".into()],
        storage: storage.into(),
        sharing: None,
        challenge: AcmeChallenge::Http01,
        dns: None,
    }
}

const SHARING: SharingPlan = SharingPlan { lease_ns: 3_600 * SECOND_NS, poll_interval_ns: SECOND_NS };

fn acquire(storage: &Path, sharing: SharingPlan) -> Option<Lease> {
    rt::cores::block_on(async {
        let timers = Timers::start().unwrap();
        Lease::acquire(&plan(storage), sharing, &timers).await.unwrap()
    })
}

#[test]
fn one_of_many_holds_the_lock_until_it_is_dropped() {
    let home = tempfile::tempdir().unwrap();
    let held: Vec<Option<Lease>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| acquire(home.path(), SHARING))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(held.iter().flatten().count(), 1);
    assert!(held.iter().flatten().all(|lease| lease.check().is_ok()));
    drop(held);
    // Nothing is left behind.
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    assert!(acquire(home.path(), SHARING).is_some());
}

#[test]
fn one_of_many_takes_over_from_a_dead_owner() {
    let home = tempfile::tempdir().unwrap();
    let dead = LeaseContent { owner: "dead".into(), expires_at_ms: 1_000 };
    let sharing = SharingPlan { lease_ns: 4 * SECOND_NS, ..SHARING };
    for content in
        [serde_json::to_vec(&dead).unwrap(), b"{\"owner\":".to_vec(), Vec::new(), vec![b'x'; 10_000]]
    {
        let path = home.path().join(LEASE_FILE);
        fs::write(&path, &content).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        let held: Vec<Option<Lease>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| acquire(home.path(), sharing))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(held.iter().flatten().count(), 1, "{}", content.len());
    }
}

#[test]
fn an_owner_that_was_replaced_notices_it_and_removes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let lease = acquire(home.path(), SHARING).unwrap();
    let other = LeaseContent { owner: "other".into(), expires_at_ms: u64::MAX };
    fs::write(home.path().join(LEASE_FILE), serde_json::to_vec(&other).unwrap()).unwrap();
    assert!(lease.check().unwrap_err().to_string().contains("another replica"));
    drop(lease);
    assert!(home.path().join(LEASE_FILE).exists());
}

#[test]
fn a_lease_expires_with_a_margin_for_clocks() {
    let found = |expires_at_ms| FoundLease {
        content: Some(LeaseContent { owner: "a".into(), expires_at_ms }),
        modified_ms: 50_000,
    };
    let (lease_ms, skew_ms) = (60_000, 30_000);
    assert!(!found(100_000).is_expired(100_000 + skew_ms, lease_ms));
    assert!(found(100_000).is_expired(100_001 + skew_ms, lease_ms));
    // A clock that is half a lease ahead.
    assert!(!found(100_000 + lease_ms + skew_ms).is_expired(100_000, lease_ms));
    // A time that no owner writes, and a malformed file: the last change counts.
    let malformed = FoundLease { content: None, modified_ms: 50_000 };
    for found in [found(u64::MAX), malformed] {
        assert!(!found.is_expired(50_000 + lease_ms + skew_ms, lease_ms));
        assert!(found.is_expired(50_001 + lease_ms + skew_ms, lease_ms));
    }
    // A last change in the future does not block for ever.
    let future = FoundLease { content: None, modified_ms: u64::MAX };
    assert!(future.is_expired(50_000, lease_ms));
}
