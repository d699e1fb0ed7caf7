//! Tokens and cookies: what is taken, what is not, and what is left of a field.

use super::*;
use crate::plan::SameSite;

fn plan(mode: StickyMode) -> StickyPlan {
    StickyPlan {
        cookie: "SRV".into(),
        mode,
        key: Secret::new(b"a key of the tests"),
        key_file: None,
        max_age_s: None,
        secure: false,
        http_only: true,
        same_site: SameSite::Lax,
    }
}

fn tokens(key: &[u8], pool: &str, servers: &[&str]) -> Tokens {
    Tokens::new(&Secret::new(key), pool, servers.iter().copied())
}

fn own() -> Tokens {
    tokens(b"a key of the tests", "app", &["a", "b"])
}

fn text(token: &Token) -> &str {
    std::str::from_utf8(token).unwrap()
}

fn found(mode: StickyMode, cookies: &[&str]) -> Result<usize, Found> {
    let headers: Vec<Header<'_>> =
        cookies.iter().map(|value| Header { name: "cookie", value: value.as_bytes() }).collect();
    own().find(&plan(mode), &headers)
}

#[test]
fn a_token_names_its_server_and_no_other() {
    let own = own();
    let find = |cookie: String| found(StickyMode::Insert, &[&cookie]);
    assert_eq!(find(format!("SRV={}", text(own.of(0)))), Ok(0));
    assert_eq!(find(format!("x=1; SRV={} ;y", text(own.of(1)))), Ok(1));
    assert_eq!(find("x=1; srv=2".into()), Err(Found::Missing));
    assert_eq!(find("SRV=".into()), Err(Found::Invalid));
    assert_eq!(find("SRV=a".into()), Err(Found::Invalid));
    // Of a server that is gone, of another pool, and of another key.
    let of = |key: &[u8], pool, server| {
        let tokens = tokens(key, pool, &[server]);
        find(format!("SRV={}", text(tokens.of(0))))
    };
    assert_eq!(of(b"a key of the tests", "app", "gone"), Err(Found::Unknown));
    assert_eq!(of(b"a key of the tests", "app", "b"), Ok(1));
    assert_eq!(of(b"a key of the tests", "other", "a"), Err(Found::Invalid));
    assert_eq!(of(b"another key of theirs", "app", "a"), Err(Found::Invalid));
}

#[test]
fn any_change_of_a_token_is_found_out() {
    let own = own();
    for at in 0..TEXT_BYTES {
        for other in [b'A', b'z', b'=', b'~', b'!'] {
            let mut token = *own.of(0);
            if token[at] == other {
                continue;
            }
            token[at] = other;
            let value = String::from_utf8(token.to_vec()).unwrap();
            let got = found(StickyMode::Insert, &[&format!("SRV={value}")]);
            assert_eq!(got, Err(Found::Invalid), "{at} {other}");
        }
    }
    // The code of one and the fingerprint of the other.
    let mixed = [&text(own.of(0))[..8], &text(own.of(1))[8..]].concat();
    assert_eq!(found(StickyMode::Insert, &[&format!("SRV={mixed}")]), Err(Found::Invalid));
}

#[test]
fn of_several_cookies_the_first_that_names_a_server_counts() {
    let own = own();
    let good = format!("SRV={}", text(own.of(1)));
    assert_eq!(found(StickyMode::Insert, &["SRV=bad", &good]), Ok(1));
    assert_eq!(found(StickyMode::Insert, &[&format!("SRV=bad; {good}")]), Ok(1));
    assert_eq!(found(StickyMode::Insert, &["SRV=bad; SRV=worse"]), Err(Found::Invalid));
}

#[test]
fn a_prefix_is_told_from_what_the_application_set() {
    let own = own();
    let token = text(own.of(1));
    let find = |value: &str| found(StickyMode::Prefix, &[&format!("SRV={value}")]);
    assert_eq!(find(&format!("{token}~abc")), Ok(1));
    assert_eq!(find(&format!("{token}~")), Ok(1));
    // Without a prefix, or with a tilde of its own, it is the application's alone.
    assert_eq!(find("abc"), Err(Found::Missing));
    assert_eq!(find("a~b"), Err(Found::Missing));
    assert_eq!(find(token), Err(Found::Missing));
    let forged = format!("{}~abc", "A".repeat(TEXT_BYTES));
    assert_eq!(find(&forged), Err(Found::Invalid));
}

/// The field as the server gets it; empty: it gets none.
fn passed(mode: StickyMode, value: &str) -> String {
    let mut out = Vec::new();
    let header = Header { name: "Cookie", value: value.as_bytes() };
    write_cookie_field(&plan(mode), &header, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn servers_never_see_our_part() {
    let token = "A".repeat(TEXT_BYTES);
    for (mode, value, wanted) in [
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
        let got = passed(mode, &value);
        let wanted = if wanted.is_empty() { wanted } else { format!("Cookie: {wanted}\r\n") };
        assert_eq!(got, wanted, "{value}");
    }
}

fn stamped(plan: &StickyPlan, is_due: bool, headers: &[Header<'_>]) -> String {
    let own = own();
    let stamp = Stamp { plan, token: own.of(0), is_due };
    let mut out = Vec::new();
    for header in headers {
        if !stamp.write_prefixed(header, &mut out) {
            encode::field(&mut out, header.name, header.value);
        }
    }
    stamp.write_inserted(headers, &mut out);
    String::from_utf8(out).unwrap().replace(text(own.of(0)), "TOKEN")
}

#[test]
fn a_cookie_is_inserted_where_it_is_due() {
    let insert = plan(StickyMode::Insert);
    let wanted =
        "Set-Cookie: SRV=TOKEN; Path=/; HttpOnly; SameSite=Lax\r\nCache-Control: private\r\n";
    assert_eq!(stamped(&insert, true, &[]), wanted);
    assert_eq!(stamped(&insert, false, &[]), "");
    let all = StickyPlan {
        max_age_s: Some(60),
        secure: true,
        http_only: false,
        same_site: SameSite::None,
        ..insert.clone()
    };
    let private = Header { name: "cache-control", value: b"max-age=5, Private" };
    let wanted = "cache-control: max-age=5, Private\r\n\
                  Set-Cookie: SRV=TOKEN; Path=/; Max-Age=60; Secure; SameSite=None\r\n";
    assert_eq!(stamped(&all, true, &[private]), wanted);
    let set = Header { name: "Set-Cookie", value: b"SRV=theirs" };
    assert!(stamped(&insert, false, &[set]).starts_with("Set-Cookie: SRV=theirs\r\n"));
}

#[test]
fn the_applications_cookie_gets_a_prefix_and_others_do_not() {
    let prefix = plan(StickyMode::Prefix);
    let set = |value: &'static str| Header { name: "set-cookie", value: value.as_bytes() };
    let got = stamped(&prefix, true, &[set("SRV=v=1; Path=/a"), set("other=SRV=1"), set("SRV")]);
    let wanted = "set-cookie: SRV=TOKEN~v=1; Path=/a\r\nset-cookie: other=SRV=1\r\n\
                  set-cookie: SRV\r\n";
    assert_eq!(got, wanted);
    // And back.
    let own = own();
    let back = format!("SRV={}~v=1", text(own.of(0)));
    assert_eq!(passed(StickyMode::Prefix, &back), "Cookie: SRV=v=1\r\n");
    assert_eq!(found(StickyMode::Prefix, &[&back]), Ok(0));
}

#[test]
fn nothing_of_it_is_shown() {
    let own = own();
    let shown = format!("{own:?} {:?}", plan(StickyMode::Insert));
    assert!(!shown.contains("a key of the tests") && !shown.contains(text(own.of(0))), "{shown}");
}
