//! Tables from RFC 9111, RFC 5861 and RFC 9213.

use super::*;

#[test]
fn responses_are_stored_by_their_fields() {
    use NotStored::{NoFreshness, NoStore, Private, SetCookie, VaryAny};
    let modified = ("Last-Modified", "Sun, 06 Nov 1994 08:00:00 GMT");
    for (fields, expected) in [
        (&[("Cache-Control", "max-age=60")][..], Ok(60)),
        (&[("cache-control", "MAX-AGE=60")], Ok(60)),
        (&[("Cache-Control", "max-age=60, s-maxage=10")], Ok(10)),
        (&[("Cache-Control", "s-maxage=10, max-age=0")], Ok(10)),
        (&[("Cache-Control", "max-age=\"60\"")], Ok(60)),
        (&[("Cache-Control", "max-age=99999999999999999999")], Ok(1 << 31)),
        // Of two values, the shorter one; one that is not valid makes it stale.
        (&[("Cache-Control", "max-age=60"), ("Cache-Control", "max-age=30")], Ok(30)),
        (&[("Cache-Control", "max-age=1.5"), ("ETag", "\"a\"")], Ok(0)),
        (&[("Cache-Control", "max-age=-1")], Err(NoFreshness)),
        (&[("Cache-Control", "max-age=60, no-store")], Err(NoStore)),
        (&[("Cache-Control", "max-age=60"), ("Cache-Control", "no-store")], Err(NoStore)),
        (&[("Cache-Control", "max-age=60, no-store, must-understand")], Ok(60)),
        (&[("Cache-Control", "max-age=60, private")], Err(Private)),
        (&[("Cache-Control", "max-age=60, private=\"x-user\"")], Err(Private)),
        (&[("Cache-Control", "a=\"no-store, private\", max-age=60")], Ok(60)),
        (&[("Cache-Control", "max-age=60"), ("Set-Cookie", "a=b")], Err(SetCookie)),
        (&[("Cache-Control", "max-age=60"), ("Vary", "*")], Err(VaryAny)),
        (&[("Cache-Control", "max-age=60"), ("Vary", "Accept"), ("Vary", "a, *")], Err(VaryAny)),
        (&[("Cache-Control", "max-age=60"), ("Content-Range", "bytes 0-1/2")], Ok(60)),
        (&[("Cache-Control", "no-cache"), ("ETag", "\"a\"")], Ok(0)),
        (&[("Cache-Control", "no-cache")], Err(NoFreshness)),
        (&[("Date", DATE), ("Expires", "Sun, 06 Nov 1994 08:50:37 GMT")], Ok(60)),
        (&[("Date", DATE), ("Expires", "0")], Err(NoFreshness)),
        (&[("Cache-Control", "max-age=60"), ("Expires", "0")], Ok(60)),
        (&[("Date", DATE), modified], Ok(297)),
        (&[("Date", DATE), ("Last-Modified", "Mon, 01 Jan 1990 00:00:00 GMT")], Ok(24 * 3600)),
        (&[], Err(NoFreshness)),
        (&[("ETag", "\"a\"")], Err(NoFreshness)),
        // Targeted fields: RFC 9213.
        (&[("CDN-Cache-Control", "max-age=10"), ("Cache-Control", "no-store")], Ok(10)),
        (&[("CDN-Cache-Control", "no-store"), ("Cache-Control", "max-age=10")], Err(NoStore)),
        (&[("CDN-Cache-Control", "max-age=10"), ("Expires", "0")], Ok(10)),
        (&[("CDN-Cache-Control", "max-age=10,"), ("Cache-Control", "max-age=20")], Ok(20)),
        (&[("CDN-Cache-Control", "max-age=\"10\""), ("Cache-Control", "max-age=20")], Ok(20)),
        (&[("CDN-Cache-Control", "max-age=1.5"), ("Cache-Control", "max-age=20")], Ok(20)),
        (&[("CDN-Cache-Control", "Max-Age=10"), ("Cache-Control", "max-age=20")], Ok(20)),
        (&[("CDN-Cache-Control", ""), ("Cache-Control", "max-age=20")], Ok(20)),
        (&[("CDN-Cache-Control", "max-age=10;a=\"b\", x=(a b);q, no-cache=?0")], Ok(10)),
    ] {
        assert_eq!(decide(fields).map(|storable| storable.lifetime_s), expected, "{fields:?}");
    }
}

#[test]
fn statuses_need_what_they_need() {
    let decide = |status, control| {
        let fields = headers(&[("Cache-Control", control)]);
        decide_storing(&request(&[]), status, &fields, times(NOW), &CacheRules::default()).err()
    };
    for status in [200, 203, 204, 301, 302, 307, 404, 410, 500, 503, 599] {
        assert_eq!(decide(status, "max-age=60"), None, "{status}");
    }
    assert_eq!(decide(206, "max-age=60"), Some(NotStored::Partial));
    assert_eq!(decide(304, "max-age=60"), Some(NotStored::Status));
    assert_eq!(decide(101, "max-age=60"), Some(NotStored::Status));
    assert_eq!(decide(599, "max-age=60, must-understand"), Some(NotStored::Status));
}

#[test]
fn rules_give_a_lifetime_only_to_what_has_none() {
    let rules = CacheRules {
        valid: vec![
            DefaultLifetime { statuses: vec![], seconds: 10 },
            DefaultLifetime { statuses: vec![404], seconds: 5 },
        ],
        ..CacheRules::default()
    };
    let lifetime = |status, fields: &[(&str, &str)]| {
        decide_storing(&request(&[]), status, &headers(fields), times(NOW), &rules)
            .map(|storable| storable.lifetime_s)
    };
    assert_eq!(lifetime(200, &[]), Ok(10));
    assert_eq!(lifetime(404, &[]), Ok(5));
    assert_eq!(lifetime(500, &[]), Err(NotStored::NoFreshness));
    assert_eq!(lifetime(200, &[("Cache-Control", "max-age=60")]), Ok(60));
    assert_eq!(lifetime(200, &[("Cache-Control", "max-age=0")]), Err(NotStored::NoFreshness));
}

#[test]
fn responses_to_requests_with_credentials_are_shared_only_if_they_say_so() {
    let with_credentials = request(&[("Authorization", "Basic eDp5")]);
    for (control, expected) in [
        ("max-age=60", Some(NotStored::Authorization)),
        ("max-age=60, public", None),
        ("max-age=60, must-revalidate", None),
        ("max-age=60, proxy-revalidate", Some(NotStored::Authorization)),
        ("s-maxage=60", None),
        ("max-age=60, private", Some(NotStored::Private)),
        ("no-cache", Some(NotStored::Authorization)),
    ] {
        let fields = headers(&[("Cache-Control", control), ("ETag", "\"a\"")]);
        let result = decide_storing(&with_credentials, 200, &fields, times(NOW), &CacheRules::default());
        assert_eq!(result.err(), expected, "{control}");
    }
}

#[test]
fn requests_have_their_directives() {
    let policy = request(&[("Cache-Control", "max-age=5, min-fresh=3, max-stale"), ("Range", "bytes=0-1")]);
    assert_eq!((policy.max_age_s, policy.min_fresh_s), (Some(5), Some(3)));
    assert_eq!(policy.max_stale, Some(MaxStale::Any));
    assert!(policy.has_range && !policy.has_conditions && !policy.no_cache);
    assert!(request(&[("Pragma", "no-cache")]).no_cache);
    assert!(!request(&[("Pragma", "no-cache"), ("Cache-Control", "max-age=1")]).no_cache);
    let ignored = RequestPolicy::parse("GET", &headers(&[("Cache-Control", "no-cache, no-store")]), true);
    assert!(!ignored.no_cache && !ignored.no_store);
    for (method, may_look_up, may_fill) in
        [("GET", true, true), ("HEAD", true, false), ("POST", false, false), ("get", false, false)]
    {
        let policy = RequestPolicy::parse(method, &[], false);
        assert_eq!((policy.may_look_up(), policy.may_fill()), (may_look_up, may_fill), "{method}");
    }
}

#[test]
fn the_age_counts_what_was_before() {
    for (fields, delay_s, expected) in [
        (&[("Date", DATE)][..], 0, 0),
        (&[("Date", DATE), ("Age", "30")], 0, 30),
        (&[("Date", DATE), ("Age", "30")], 5, 35),
        (&[("Date", "Sun, 06 Nov 1994 08:49:27 GMT")], 0, 10),
        (&[("Date", "Sun, 06 Nov 1994 08:49:27 GMT"), ("Age", "30")], 0, 30),
        (&[("Date", "Sun, 06 Nov 1994 09:49:37 GMT")], 0, 0),
        (&[("Age", "30, 40")], 0, 30),
        (&[("Age", "old")], 0, 0),
        (&[("Age", "-1")], 0, 0),
        (&[("Age", "99999999999999999999")], 0, 1 << 31),
    ] {
        let mut all = headers(fields);
        all.push(Header { name: "Cache-Control", value: b"max-age=4000000000" });
        all.push(Header { name: "ETag", value: b"\"a\"" });
        let sent = UnixTime::from_seconds(NOW.as_seconds() - delay_s);
        let times = ResponseTimes { requested_at: sent, received_at: NOW };
        let storable = decide_storing(&request(&[]), 200, &all, times, &CacheRules::default()).unwrap();
        assert_eq!(storable.age_s(NOW), expected, "{fields:?}");
        assert_eq!(storable.age_s(NOW.plus_seconds(7)), (expected + 7).min(1 << 31), "{fields:?}");
    }
}

#[test]
fn freshness_follows_the_response_and_the_request() {
    use Freshness::{Fresh, StaleAccepted, StaleWhileRevalidate};
    let validate = Freshness::MustValidate { may_answer_errors: false };
    let or_error = Freshness::MustValidate { may_answer_errors: true };
    for (control, after_s, asked, expected) in [
        ("max-age=60", 59, "", Fresh),
        ("max-age=60", 60, "", validate),
        ("max-age=60", 10, "no-cache", or_error),
        ("max-age=60", 10, "max-age=10", or_error),
        ("max-age=60", 10, "max-age=11", Fresh),
        ("max-age=60", 10, "min-fresh=50", Fresh),
        ("max-age=60", 10, "min-fresh=51", or_error),
        ("max-age=60", 70, "max-stale", StaleAccepted),
        ("max-age=60", 70, "max-stale=10", StaleAccepted),
        ("max-age=60", 70, "max-stale=9", validate),
        ("max-age=60, must-revalidate", 70, "max-stale", validate),
        ("max-age=60, proxy-revalidate", 70, "max-stale", validate),
        ("s-maxage=60", 70, "max-stale", validate),
        ("max-age=60, stale-while-revalidate=20", 79, "", StaleWhileRevalidate),
        ("max-age=60, stale-while-revalidate=20", 80, "", validate),
        ("max-age=60, stale-while-revalidate=20, must-revalidate", 70, "", validate),
        ("max-age=60, stale-while-revalidate=20", 70, "no-cache", validate),
        ("max-age=60, stale-while-revalidate=20", 70, "max-age=65", validate),
        ("max-age=60, stale-if-error=20", 79, "", or_error),
        ("max-age=60, stale-if-error=20", 80, "", validate),
        ("max-age=60, stale-if-error=20, must-revalidate", 70, "", validate),
        ("no-cache, max-age=60", 0, "", validate),
    ] {
        let storable = decide(&[("Cache-Control", control), ("ETag", "\"a\"")]).unwrap();
        let request = request(&[("Cache-Control", asked)]);
        let freshness = storable.freshness(NOW.plus_seconds(after_s), &request);
        assert_eq!(freshness, expected, "{control} after {after_s} s, asked for {asked}");
    }
}

#[test]
fn tags_are_bounded() {
    let long = "x".repeat(300);
    let many = (0..100).map(|number| format!("t{number}")).collect::<Vec<_>>().join(" ");
    let storable = decide(&[
        ("Cache-Control", "max-age=60"),
        ("Cache-Tag", "a, b c,,"),
        ("Cache-Tag", &long),
        ("Surrogate-Key", &many),
    ])
    .unwrap();
    assert_eq!(&*storable.tags[0], b"a");
    assert_eq!(&*storable.tags[1], b"b c");
    assert_eq!(&*storable.tags[2], b"t0");
    assert_eq!(storable.tags.len(), 64);
}

#[test]
fn vary_is_bounded() {
    let names = (0..17).map(|number| format!("x-{number}")).collect::<Vec<_>>().join(",");
    let result = decide(&[("Cache-Control", "max-age=60"), ("Vary", &names)]);
    assert_eq!(result.err(), Some(NotStored::VaryTooLong));
}
