//! Files that replicas share, also spoiled ones.

use super::*;
use crate::plan::AcmeChallenge;
use proxy::acme_tokens::{CHALLENGE_PREFIX as PATH_PREFIX, answer_to_challenge};

fn plan(storage: &Path) -> AcmePlan {
    AcmePlan {
        directory: "https://a.test/".into(),
        ca: None,
        contact: Vec::new(),
        domains: vec!["*.a.test".into()],
        storage: storage.into(),
        sharing: None,
        challenge: AcmeChallenge::Http01,
        dns: None,
    }
}

#[test]
fn answers_of_others_are_offered_until_their_files_are_gone() {
    let home = tempfile::tempdir().unwrap();
    let now_s = unix_ns() / SECOND_NS;
    let path = format!("{PATH_PREFIX}shared-token-1");
    let challenge = SharedChallenge::http("shared-token-1", "a.b");
    let published = PublishedChallenge::write(&plan(home.path()), &challenge, "1").unwrap();
    let tls = SharedChallenge::tls_alpn("shared.test", &[7; 32]);
    let _tls = PublishedChallenge::write(&plan(home.path()), &tls, "1").unwrap();
    let mut followed = FollowedChallenges::default();
    assert_eq!(answer_to_challenge(&path), None);
    followed.poll(home.path(), now_s);
    assert_eq!((answer_to_challenge(&path).as_deref(), followed.0.len()), (Some("a.b"), 2));
    // Another storage changes nothing.
    followed.poll(&home.path().join("other"), now_s);
    assert_eq!(followed.0.len(), 2);
    drop(published);
    followed.poll(home.path(), now_s);
    assert_eq!((answer_to_challenge(&path), followed.0.len()), (None, 1));
    followed.keep_only(&[]);
    assert!(followed.0.is_empty());
}

#[test]
fn foreign_files_are_ignored_and_old_ones_removed() {
    let home = tempfile::tempdir().unwrap();
    let now_s = unix_ns() / SECOND_NS;
    let valid = serde_json::to_string(&SharedChallenge::http("foreign-token", "a.b")).unwrap();
    for (name, text) in [
        ("challenge-1.json", "{"),
        ("challenge-2.json", ""),
        ("challenge-3.json", &*"x".repeat(10_000)),
        (
            "challenge-4.json",
            r#"{"type":"http-01","token":"../x","key_authorization":"a","until_s":99999999999}"#,
        ),
        ("challenge-5.json.new", &valid),
        ("other.json", &valid),
    ] {
        fs::write(home.path().join(name), text).unwrap();
    }
    fs::create_dir(home.path().join("challenge-6.json")).unwrap();
    fs::write(home.path().join("challenge-7.json"), &valid).unwrap();
    let mut followed = FollowedChallenges::default();
    followed.poll(home.path(), now_s + CHALLENGE_END_S + 10);
    assert!(followed.0.is_empty(), "{followed:?}");
    assert!(!home.path().join("challenge-7.json").exists());
    assert!(home.path().join("challenge-1.json").exists());
}

#[test]
fn failures_are_those_of_all_replicas() {
    let home = tempfile::tempdir().unwrap();
    let plan = plan(home.path());
    assert_eq!(SharedFailures::read(&plan, 1_000), SharedFailures::default());
    let failures = SharedFailures { count: 3, retry_at_s: 2_000 };
    failures.write(&plan).unwrap();
    assert_eq!(SharedFailures::read(&plan, 1_000), failures);
    SharedFailures { retry_at_s: u64::MAX / 2, ..failures }.write(&plan).unwrap();
    assert_eq!(SharedFailures::read(&plan, 1_000), SharedFailures::default());
    fs::write(home.path().join("_.a.test.retry"), "}").unwrap();
    assert_eq!(SharedFailures::read(&plan, 1_000), SharedFailures::default());
    SharedFailures::remove(&plan);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}
