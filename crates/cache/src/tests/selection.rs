//! Look-ups, variants, validations and purges.

use super::*;
use crate::shard::Evicted;
use crate::store::lock;

const FRESH: (&str, &str) = ("Cache-Control", "max-age=60");

#[test]
fn variants_are_selected_by_the_fields_of_the_request() {
    let cache = cache(MIB);
    let vary = [FRESH, ("Vary", "Accept-Encoding, accept-language")];
    store_for(&cache, "k", &[("Accept-Encoding", "gzip, br"), ("Accept-Language", "de")], &vary, b"one");
    store_for(&cache, "k", &[("Accept-Encoding", "gzip, br"), ("Accept-Language", "en")], &vary, b"two");
    for (fields, expected) in [
        (&[("accept-encoding", "br;q=0.5,gzip"), ("Accept-Language", "de")][..], Some("one")),
        (&[("accept-encoding", "br;q=0.5,gzip"), ("Accept-Language", "DE")], Some("one")),
        (&[("Accept-Encoding", "br"), ("Accept-Encoding", "x-gzip"), ("Accept-Language", "en")], Some("two")),
        (&[("Accept-Encoding", "br, gzip;q=0"), ("Accept-Language", "en")], None),
        (&[("Accept-Encoding", "gzip, br, deflate"), ("Accept-Language", "en")], None),
        (&[("Accept-Encoding", "gzip, br"), ("Accept-Language", "fr")], None),
        (&[("Accept-Encoding", "gzip, br")], None),
        (&[], None),
    ] {
        let body = hit(&cache, "k", fields).map(|object| read(&object, None).unwrap());
        assert_eq!(body.as_deref(), expected.map(str::as_bytes), "{fields:?}");
    }
    assert_eq!(cache.purge(&cache.key(b"k")), 2);
    assert_eq!(cache.stats().memory_bytes, 0);
}

#[test]
fn the_number_of_variants_is_bounded() {
    let cache = cache(MIB);
    for number in 0..100 {
        let value = number.to_string();
        store_for(&cache, "k", &[("X-A", &value)], &[FRESH, ("Vary", "X-A")], b"body");
    }
    assert_eq!(cache.stats().objects, 32);
    assert!(hit(&cache, "k", &[("X-A", "99")]).is_some() && hit(&cache, "k", &[("X-A", "0")]).is_none());
}

#[test]
fn a_newer_response_replaces_the_older_one() {
    let cache = cache(MIB);
    store(&cache, "k", &[FRESH], b"old");
    store(&cache, "k", &[FRESH], b"new");
    assert_eq!(read(&hit(&cache, "k", &[]).unwrap(), None).unwrap(), b"new");
    assert_eq!(cache.stats().objects, 1);
}

#[test]
fn a_validation_updates_the_stored_response() {
    let cache = cache(MIB);
    let object = store(&cache, "k", &[FRESH, ("ETag", "\"a\"")], b"body");
    let later = NOW.plus_seconds(100);
    let request = request(&[]);
    let fields = headers(&[("Cache-Control", "max-age=200"), ("Age", "5")]);
    let updated = cache.refresh(&object, &request, &fields, times(later), &CacheRules::default());
    assert_eq!(updated.storable().freshness(later, &request), Freshness::Fresh);
    assert_eq!(updated.storable().age_s(later), 5);
    let found = hit(&cache, "k", &[]).unwrap();
    assert!(Arc::ptr_eq(&found, &updated));
    assert_eq!(read(&found, None).unwrap(), b"body");
    // The 304 may forbid to keep it.
    let fields = headers(&[("Cache-Control", "no-store")]);
    let answer = cache.refresh(&updated, &request, &fields, times(later), &CacheRules::default());
    assert_eq!(read(&answer, None).unwrap(), b"body");
    assert!(hit(&cache, "k", &[]).is_none());
    drop((object, updated, found, answer));
    assert_eq!(cache.stats().memory_bytes, 0);
}

#[test]
fn a_validation_that_is_for_one_client_changes_nothing() {
    let cache = cache(MIB);
    let object = store(&cache, "k", &[FRESH, ("ETag", "\"a\"")], b"body");
    for fields in [&[("Authorization", "Basic eDp5")][..], &[("Cache-Control", "no-store")]] {
        let updated = cache.refresh(
            &object,
            &request(fields),
            &headers(&[FRESH, ("X-A", "1")]),
            times(NOW),
            &CacheRules::default(),
        );
        assert_eq!(updated.head().get("x-a"), Some(&b"1"[..]));
        assert!(Arc::ptr_eq(&hit(&cache, "k", &[]).unwrap(), &object), "{fields:?}");
    }
    // Another Vary is not one by which the object was selected.
    let fields = headers(&[FRESH, ("Vary", "X-A")]);
    cache.refresh(&object, &request(&[]), &fields, times(NOW), &CacheRules::default());
    assert!(hit(&cache, "k", &[]).is_none());
}

#[test]
fn a_validation_does_not_bring_back_what_was_purged() {
    let cache = cache(MIB);
    let object = store(&cache, "k", &[FRESH, ("ETag", "\"a\"")], b"body");
    assert_eq!(cache.purge(&cache.key(b"k")), 1);
    cache.refresh(&object, &request(&[]), &headers(&[FRESH]), times(NOW), &CacheRules::default());
    assert!(hit(&cache, "k", &[]).is_none());
    // One that was evicted before the purge: the purge knows only the validation.
    let object = store(&cache, "k", &[FRESH, ("ETag", "\"a\"")], b"body");
    while !matches!(lock(cache.next_shard()).evict(true), Evicted::Object(_)) {}
    assert!(hit(&cache, "k", &[]).is_none());
    for (is_purged, is_stored) in [(true, false), (false, true)] {
        let fill = lead(&cache, &cache.key(b"k"), &[]);
        if is_purged {
            cache.purge(&cache.key(b"k"));
        }
        let updated =
            cache.refresh(&object, &request(&[]), &headers(&[FRESH]), times(NOW), &CacheRules::default());
        fill.finish_with(&updated);
        assert_eq!(hit(&cache, "k", &[]).is_some(), is_stored);
    }
}

#[test]
fn purges_remove_what_they_name() {
    let cache = cache(MIB);
    for (key, tags) in [("a/1", "x,y"), ("a/2", "y"), ("b/1", "z")] {
        store(&cache, key, &[FRESH, ("Cache-Tag", tags)], b"body");
    }
    assert_eq!(cache.purge_tag(b"none"), 0);
    assert_eq!(cache.purge_tag(b"x"), 1);
    assert!(hit(&cache, "a/1", &[]).is_none() && hit(&cache, "a/2", &[]).is_some());
    assert_eq!(cache.purge_prefix(b"a/"), 1);
    assert_eq!(cache.largest(10, NOW).iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), ["b/1"]);
    assert_eq!(cache.purge_all(), 1);
    assert_eq!((cache.stats().objects, cache.stats().memory_bytes, cache.stats().purged), (0, 0, 3));
}

#[test]
fn keys_that_are_not_stored_are_remembered_for_a_time() {
    let cache = cache(MIB);
    let key = cache.key(b"k");
    let may_coalesce = |now| match cache.look_up(&key, &[], now) {
        Lookup::Miss { may_coalesce } => may_coalesce,
        other => panic!("{other:?}"),
    };
    assert!(may_coalesce(NOW));
    cache.mark_uncacheable(&key, NOW);
    assert!(!may_coalesce(NOW.plus_seconds(119)) && may_coalesce(NOW.plus_seconds(120)));
    store(&cache, "k", &[FRESH], b"body");
    assert!(hit(&cache, "k", &[]).is_some());
}
