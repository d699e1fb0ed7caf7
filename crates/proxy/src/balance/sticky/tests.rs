//! Tokens and cookies: accepted and rejected tokens, and rewritten fields.

use super::*;
use crate::plan::{SameSite, StickyLimits};

fn tokens(key: &[u8], pool: &str, servers: &[&str]) -> ServerTokens {
    ServerTokens::new(&Secret::new(key), pool, servers.iter().copied())
}

fn test_tokens() -> ServerTokens {
    tokens(b"a key of the tests", "app", &["a", "b"])
}

fn text(token: &Token) -> &str {
    std::str::from_utf8(token).unwrap()
}

fn lookup(mode: StickyMode, cookies: &[&str]) -> Result<ServerId, StickyLookup> {
    let headers: Vec<Header<'_>> =
        cookies.iter().map(|value| Header { name: "cookie", value: value.as_bytes() }).collect();
    let found = test_tokens().find_in_cookies(&StickyPlan::for_tests(mode), &headers, || 0);
    found.map(|found| found.server)
}

#[test]
fn a_token_names_its_server_and_no_other() {
    let own_tokens = test_tokens();
    let find = |cookie: String| lookup(StickyMode::Insert, &[&cookie]);
    assert_eq!(find(format!("SRV={}", text(own_tokens.token(ServerId(0))))), Ok(ServerId(0)));
    assert_eq!(find(format!("x=1; SRV={} ;y", text(own_tokens.token(ServerId(1))))), Ok(ServerId(1)));
    assert_eq!(find("x=1; srv=2".into()), Err(StickyLookup::Missing));
    assert_eq!(find("SRV=".into()), Err(StickyLookup::Invalid));
    assert_eq!(find("SRV=a".into()), Err(StickyLookup::Invalid));
    // A token of a removed server, of another pool, and of another key.
    let lookup_token = |key: &[u8], pool, server| {
        let tokens = tokens(key, pool, &[server]);
        find(format!("SRV={}", text(tokens.token(ServerId(0)))))
    };
    assert_eq!(lookup_token(b"a key of the tests", "app", "gone"), Err(StickyLookup::Unknown));
    assert_eq!(lookup_token(b"a key of the tests", "app", "b"), Ok(ServerId(1)));
    assert_eq!(lookup_token(b"a key of the tests", "other", "a"), Err(StickyLookup::Invalid));
    assert_eq!(lookup_token(b"another key of theirs", "app", "a"), Err(StickyLookup::Invalid));
}

#[test]
fn any_change_of_a_token_is_detected() {
    let own_tokens = test_tokens();
    for at in 0..TOKEN_TEXT_BYTES {
        for other in [b'A', b'z', b'=', b'~', b'!'] {
            let mut token = *own_tokens.token(ServerId(0));
            if token[at] == other {
                continue;
            }
            token[at] = other;
            let value = String::from_utf8(token.to_vec()).unwrap();
            let actual = lookup(StickyMode::Insert, &[&format!("SRV={value}")]);
            assert_eq!(actual, Err(StickyLookup::Invalid), "{at} {other}");
        }
    }
    // The code of one token with the fingerprint of the other.
    let mixed =
        [&text(own_tokens.token(ServerId(0)))[..8], &text(own_tokens.token(ServerId(1)))[8..]].concat();
    assert_eq!(lookup(StickyMode::Insert, &[&format!("SRV={mixed}")]), Err(StickyLookup::Invalid));
}

#[test]
fn of_several_cookies_the_first_that_names_a_server_counts() {
    let own_tokens = test_tokens();
    let good = format!("SRV={}", text(own_tokens.token(ServerId(1))));
    assert_eq!(lookup(StickyMode::Insert, &["SRV=bad", &good]), Ok(ServerId(1)));
    assert_eq!(lookup(StickyMode::Insert, &[&format!("SRV=bad; {good}")]), Ok(ServerId(1)));
    assert_eq!(lookup(StickyMode::Insert, &["SRV=bad; SRV=worse"]), Err(StickyLookup::Invalid));
}

#[test]
fn a_prefix_is_distinguished_from_the_cookie_of_the_application() {
    let own_tokens = test_tokens();
    let token = text(own_tokens.token(ServerId(1)));
    let find = |value: &str| lookup(StickyMode::Prefix, &[&format!("SRV={value}")]);
    assert_eq!(find(&format!("{token}~abc")), Ok(ServerId(1)));
    assert_eq!(find(&format!("{token}~")), Ok(ServerId(1)));
    // Without a prefix, or with a tilde of its own, the cookie is purely the application's.
    assert_eq!(find("abc"), Err(StickyLookup::Missing));
    assert_eq!(find("a~b"), Err(StickyLookup::Missing));
    assert_eq!(find(token), Err(StickyLookup::Missing));
    let forged = format!("{}~abc", "A".repeat(TOKEN_TEXT_BYTES));
    assert_eq!(find(&forged), Err(StickyLookup::Invalid));
}

/// Returns the field as the server gets it; empty: the server gets none.
fn rewrite_cookie_field(mode: StickyMode, value: &str) -> String {
    let mut out = Vec::new();
    let header = Header { name: "Cookie", value: value.as_bytes() };
    write_cookie_field(Some(&StickyPlan::for_tests(mode)), |_| false, &header, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn servers_never_see_our_part() {
    let token = "A".repeat(TOKEN_TEXT_BYTES);
    for (mode, value, expected) in [
        (StickyMode::Insert, format!("SRV={token}"), "".to_owned()),
        (StickyMode::Insert, format!("SRV={token};SRV=x"), "".to_owned()),
        (StickyMode::Insert, format!("a=1; SRV={token}; b=\"2\""), "a=1; b=\"2\"".to_owned()),
        (StickyMode::Insert, format!("SRV={token}; b=2"), "b=2".to_owned()),
        (StickyMode::Insert, "a=1;  b=2;".into(), "a=1;  b=2;".to_owned()),
        (StickyMode::Insert, "srv=1; XSRV=2".into(), "srv=1; XSRV=2".to_owned()),
        (StickyMode::Prefix, format!("SRV={token}~v=1~2; b=2"), "SRV=v=1~2; b=2".to_owned()),
        (StickyMode::Prefix, format!("SRV={token}~"), "SRV=".to_owned()),
        (StickyMode::Prefix, "a=1; SRV=own".into(), "a=1; SRV=own".to_owned()),
    ] {
        let actual = rewrite_cookie_field(mode, &value);
        let expected = if expected.is_empty() { expected } else { format!("Cookie: {expected}\r\n") };
        assert_eq!(actual, expected, "{value}");
    }
}

#[test]
fn removed_cookies_go_with_our_part_and_others_stay() {
    let token = "A".repeat(TOKEN_TEXT_BYTES);
    let plan = StickyPlan::for_tests(StickyMode::Insert);
    for (is_sticky, value, expected) in [
        (false, "jwt=x.y; a=1; jwt=z; JWT=2".to_owned(), "a=1; JWT=2"),
        (false, format!("jwt=x; SRV={token}"), &*format!("SRV={token}")),
        (true, format!("jwt=x; SRV={token}"), ""),
        (true, format!("a=1;jwt=x; SRV={token};b"), "a=1; b"),
        (true, "a=1;  b=2;".to_owned(), "a=1;  b=2;"),
    ] {
        let mut out = Vec::new();
        let header = Header { name: "Cookie", value: value.as_bytes() };
        write_cookie_field(is_sticky.then_some(&plan), |name| name == b"jwt", &header, &mut out);
        let expected = if expected.is_empty() { String::new() } else { format!("Cookie: {expected}\r\n") };
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{value}");
    }
}

fn response_fields(plan: &StickyPlan, is_due: bool, headers: &[Header<'_>]) -> String {
    let own_tokens = test_tokens();
    let cookie = StickyCookie {
        plan,
        token: own_tokens.token(ServerId(0)),
        times: CookieTimes { last_s: 0x20, since_s: 0x10 },
        is_due,
        is_tls: false,
    };
    let mut out = Vec::new();
    for header in headers {
        match cookie.prefixes(header) {
            true => cookie.write_with_prefix(header, &mut out),
            false => encode::field(&mut out, header.name, header.value),
        }
    }
    cookie.write_own_cookie(headers, &mut out);
    String::from_utf8(out).unwrap().replace(text(own_tokens.token(ServerId(0))), "TOKEN")
}

#[test]
fn a_cookie_is_inserted_where_it_is_due() {
    let insert = StickyPlan::for_tests(StickyMode::Insert);
    let expected = "Set-Cookie: SRV=TOKEN; Path=/; HttpOnly; SameSite=Lax\r\nCache-Control: private\r\n";
    assert_eq!(response_fields(&insert, true, &[]), expected);
    assert_eq!(response_fields(&insert, false, &[]), "");
    let all = StickyPlan {
        max_age_s: Some(60),
        secure: Some(true),
        http_only: false,
        same_site: SameSite::None,
        path: "/shop".into(),
        domain: Some("example.org".into()),
        limits: Some(StickyLimits { idle_max_s: Some(60), life_max_s: None }),
        ..insert.clone()
    };
    let private = Header { name: "cache-control", value: b"max-age=5, Private" };
    let expected = "cache-control: max-age=5, Private\r\n\
                  Set-Cookie: SRV=TOKEN~0000002000000010; Path=/shop; Domain=example.org; Max-Age=60; Secure; \
                  SameSite=None\r\n";
    assert_eq!(response_fields(&all, true, &[private]), expected);
    let set = Header { name: "Set-Cookie", value: b"SRV=theirs" };
    assert!(response_fields(&insert, false, &[set]).starts_with("Set-Cookie: SRV=theirs\r\n"));
}

#[test]
fn the_applications_cookie_gets_a_prefix_and_others_do_not() {
    let prefix = StickyPlan::for_tests(StickyMode::Prefix);
    let set = |value: &'static str| Header { name: "set-cookie", value: value.as_bytes() };
    let actual = response_fields(&prefix, true, &[set("SRV=v=1; Path=/a"), set("other=SRV=1"), set("SRV")]);
    let expected = "set-cookie: SRV=TOKEN~v=1; Path=/a\r\nset-cookie: other=SRV=1\r\n\
                  set-cookie: SRV\r\n";
    assert_eq!(actual, expected);
    // The way back to the server.
    let own_tokens = test_tokens();
    let back = format!("SRV={}~v=1", text(own_tokens.token(ServerId(0))));
    assert_eq!(rewrite_cookie_field(StickyMode::Prefix, &back), "Cookie: SRV=v=1\r\n");
    assert_eq!(lookup(StickyMode::Prefix, &[&back]), Ok(ServerId(0)));
}

#[test]
fn nothing_of_it_is_shown() {
    let own_tokens = test_tokens();
    let debug_output = format!("{own_tokens:?} {:?}", StickyPlan::for_tests(StickyMode::Insert));
    assert!(
        !debug_output.contains("a key of the tests")
            && !debug_output.contains(text(own_tokens.token(ServerId(0)))),
        "{debug_output}"
    );
}

#[test]
fn times_end_the_use_of_a_cookie() {
    let own_tokens = test_tokens();
    let token = text(own_tokens.token(ServerId(1)));
    let find = |limits: Option<StickyLimits>, suffix: &str, now_s| {
        let plan = StickyPlan { limits, ..StickyPlan::for_tests(StickyMode::Insert) };
        let value = format!("SRV={token}{suffix}");
        let headers = [Header { name: "cookie", value: value.as_bytes() }];
        own_tokens.find_in_cookies(&plan, &headers, || now_s).map(|found| found.times.since_s)
    };
    let idle = Some(StickyLimits { idle_max_s: Some(60), life_max_s: None });
    let life = Some(StickyLimits { idle_max_s: None, life_max_s: Some(600) });
    // Seen at 1,000, chosen at 500.
    let times = "~000003e8000001f4";
    for (limits, suffix, now_s, expected) in [
        (idle, times, 1_060, Ok(500)),
        (idle, times, 1_061, Err(StickyLookup::Expired)),
        (life, times, 1_100, Ok(500)),
        (life, times, 1_101, Err(StickyLookup::Expired)),
        // A clock that was set back, and times of the future.
        (idle, times, 10, Ok(500)),
        // A cookie from before the limits, and one from after them.
        (idle, "", 5_000, Ok(0)),
        (None, times, 5_000, Ok(500)),
        (idle, "~000003e8000001f", 1_000, Err(StickyLookup::Invalid)),
        (idle, "~+00003e8000001f4", 1_000, Err(StickyLookup::Invalid)),
        (idle, "000003e8000001f4", 1_000, Err(StickyLookup::Invalid)),
        (idle, "~000003e8000001f4x", 1_000, Err(StickyLookup::Invalid)),
        (idle, "~\u{e9}0003e8000001f", 1_000, Err(StickyLookup::Invalid)),
    ] {
        assert_eq!(find(limits, suffix, now_s), expected, "{suffix} at {now_s}");
    }
}
