//! Properties that hold for any bytes at all, as functions that panic when one does not.
//!
//! For tests and fuzz targets only, like `wire::fuzzing`: `fuzzing/tests.rs` gives them seeded
//! mutations of requests, answers, headers and configs, `fuzz/` whatever a fuzzer finds. Each says
//! whether the bytes came as far as what it is about. Nothing in a product calls them.

use std::net::IpAddr;

use wire::{Framing, Limits, Parsed, RequestHead, RequestKind, ResponseHead, Version, encode};

use crate::balance::sticky::{Cookie, Stamp, Tokens, cookies, is_cookie, write_cookie_field};
use crate::config;
use crate::forward::{
    ClientFraming, Origin, Persistence, RequestParts, ResponseParts, client_framing,
    has_underscore, is_identity, origin_form, write_request, write_response,
};
use crate::plan::{
    Change, Forwarding, PathRule, ProxyVersion, SameSite, Secret, StickyMode, StickyPlan,
    Underscores,
};
use crate::proxy_protocol::{self, HEADER_BYTES_MAX, Header};
use crate::route::path::{normal, split_target};
use crate::route::{forwarded, location, rewrite_target};

/// A request that is accepted is passed on as exactly one request that means the same: method,
/// target, host, framing. `true`: it was accepted.
///
/// # Panics
/// When it is not.
pub fn forward_request(bytes: &[u8]) -> bool {
    let mut slots = wire::header_slots();
    let parsed = wire::parse_request(bytes, &Limits::default(), &mut slots);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        return false;
    };
    for trusted in [false, true] {
        for all in [false, true] {
            check_forwarded_request(&head, trusted, all, &[]);
            check_forwarded_request(&head, trusted, all, &request_changes());
        }
    }
    for mode in STICKY_MODES {
        check_cookies(&head, mode);
    }
    true
}

/// An answer that is accepted is passed on as exactly one answer that means the same: status,
/// framing, and whether the connection stays. `true`: it was accepted.
///
/// # Panics
/// When it is not.
pub fn forward_response(bytes: &[u8]) -> bool {
    let mut accepted = false;
    for kind in [RequestKind::Head, RequestKind::Connect, RequestKind::Other] {
        let mut slots = wire::header_slots();
        let parsed = wire::parse_response(bytes, &Limits::default(), kind, &mut slots);
        let Ok(Parsed::Complete { head, .. }) = parsed else {
            continue;
        };
        accepted = true;
        for version in [Version::Http10, Version::Http11] {
            for stays in [false, true] {
                check_forwarded_response(&head, kind, version, stays, None);
                let mode = STICKY_MODES[usize::from(stays)];
                check_forwarded_response(&head, kind, version, stays, Some(mode));
            }
        }
    }
    accepted
}

/// A target is matched in a form that is normal, which is its own normal form, and what is made of
/// it is a target, and a field value, again. `true`: it was a target.
///
/// # Panics
/// When it is not.
pub fn target(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    if encode::check_target(text).is_err() {
        return false;
    }
    let (path, query) = split_target(text);
    assert!(query.is_empty() || query.starts_with('?'), "{query}");
    let (mut room, mut again) = (String::new(), String::new());
    let once = normal(path, &mut room);
    assert_eq!(normal(once, &mut again), once, "twice is once");
    if path.starts_with('/') {
        check_normal(once);
    }
    for with in ["/", "/v1", "/v1/"] {
        let change = Change::ReplacePrefix { prefix: "/a".into(), with: with.into() };
        let mut out = Vec::new();
        rewrite_target(&[change], text, &mut out);
        let out = String::from_utf8_lossy(&out);
        assert_eq!(encode::check_target(&out), Ok(()), "{text} with {with}");
        assert!(!path.starts_with('/') || out.starts_with('/'), "{text} becomes {out}");
    }
    let to = location("https://h{path}{query}", None, text);
    assert_eq!(encode::check_field_value(&to), Ok(()));
    assert!(to.starts_with(b"https://h/") && !to.starts_with(b"https://h//"), "{text}");
    true
}

/// The answer to the start of a connection does not depend on how it is cut, and what a PROXY header
/// says is what it says when it is written again. `true`: it was one.
///
/// # Panics
/// When one of them does not hold.
pub fn proxy_header(bytes: &[u8]) -> bool {
    use proxy_protocol::Parsed::{Complete, Incomplete, Invalid};
    let whole = proxy_protocol::parse(bytes);
    for at in 0..bytes.len().min(HEADER_BYTES_MAX + 2) {
        match (proxy_protocol::parse(&bytes[..at]), &whole) {
            (Incomplete, Complete { bytes: used, .. }) => assert!(at < *used, "{at} of {used}"),
            (Incomplete, _) => assert!(at < HEADER_BYTES_MAX, "no end at {at}"),
            (Invalid(_), Invalid(_)) => {}
            (part, _) => assert_eq!(part, whole, "the first {at} bytes"),
        }
    }
    let Complete { header, bytes: used } = whole else {
        return false;
    };
    assert!(used <= bytes.len() && used <= HEADER_BYTES_MAX);
    let Header::Proxied { source, destination } = header else {
        return true;
    };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let mut out = Vec::new();
        proxy_protocol::write(version, Some(source), Some(destination), &mut out);
        match proxy_protocol::parse(&out) {
            Complete { header: Header::Proxied { source: from, destination: to }, bytes } => {
                assert_eq!(bytes, out.len());
                assert_eq!((from.port(), to.port()), (source.port(), destination.port()));
                assert_eq!(from.ip().to_canonical(), source.ip().to_canonical());
                assert_eq!(to.ip().to_canonical(), destination.ip().to_canonical());
            }
            other => panic!("written again: {other:?}"),
        }
    }
    true
}

/// A config is understood, or every problem of it has a place and words. `true`: it was understood.
///
/// # Panics
/// When a problem says nothing.
pub fn config(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    // A name would be looked up: nothing here is to depend on a network.
    let numeric = text.matches("servers = [\"127.0.0.1:").count();
    if text.contains("address") || text.matches("servers").count() != numeric {
        return false;
    }
    match config::parse("weir.toml", text) {
        Ok(parsed) => {
            assert!(!parsed.plan.listeners.is_empty());
            let request = crate::ExplainRequest::parse("GET /a/b?c", &[], "127.0.0.1");
            if let Ok(request) = request {
                let _ = crate::explain(&parsed.plan, &request);
            }
            true
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                let words = problem.to_string();
                assert!(words.starts_with("weir.toml:") && words.len() > 14, "{words}");
            }
            false
        }
    }
}

/// A target in the form in which it is forwarded stays so, and is compared as the one that came: what
/// is routed is what is forwarded.
fn check_form(sent: &str, form: &str) {
    for rule in [PathRule::Normalise, PathRule::Raw] {
        let mut room = String::new();
        let again = forwarded(form, rule, &mut room).map(|(target, _)| target.to_owned());
        assert_eq!(again.as_deref(), Some(form), "{sent} again");
    }
    let (mut one, mut two) = (String::new(), String::new());
    let (came, goes) = (split_target(sent), split_target(form));
    assert_eq!(normal(came.0, &mut one), normal(goes.0, &mut two), "{sent} as {form}");
    assert_eq!(came.1, goes.1, "{sent} as {form}");
    let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    assert!(!goes.0.starts_with('/') || !goes.0.split('/').any(is_dots), "{form}");
    assert!(!goes.0.contains('\\'), "{form}");
}

const STICKY_MODES: [StickyMode; 2] = [StickyMode::Insert, StickyMode::Prefix];

/// So loose that nothing which was accepted with the default becomes too large by what is added.
const LOOSE: Limits = Limits {
    head_bytes_max: 1 << 20,
    headers_max: wire::HEADERS_CAP,
    target_bytes_max: 1 << 20,
    chunk_line_bytes_max: 1 << 20,
    chunk_extension_bytes_max: 1 << 20,
    trailer_bytes_max: 1 << 20,
    interim_responses_max: u32::MAX,
};

fn request_changes() -> [Change; 4] {
    [
        Change::SetRequestHeader("X-Env".into(), "prod".into()),
        Change::AddRequestHeader("X-Tag".into(), "2".into()),
        Change::RemoveRequestHeader("Cookie".into()),
        Change::ReplacePrefix { prefix: "/a".into(), with: "/b".into() },
    ]
}

fn check_forwarded_request(
    head: &RequestHead<'_, '_>,
    trusted: bool,
    all: bool,
    changes: &[Change],
) {
    let forwarding = Forwarding {
        x_forwarded: all,
        forwarded: all,
        via: all.then(|| "weir".into()),
        request_id: all.then(|| "X-Request-Id".into()),
        only_if_none: false,
        underscores: Underscores::Drop,
    };
    let client = if trusted { [0, 0, 0, 0, 0, 0, 0, 1].into() } else { [192, 0, 2, 7].into() };
    let origin = Origin {
        client: Some(client).filter(|_: &IpAddr| all),
        trusted,
        forwarding: &forwarding,
        fresh_id: b"0123",
    };
    let mut target = Vec::new();
    let mut room = String::new();
    let Some((target_in_form, _)) = forwarded(head.target, PathRule::Normalise, &mut room) else {
        return;
    };
    check_form(head.target, target_in_form);
    let form = origin_form(head.method, target_in_form);
    rewrite_target(changes, &String::from_utf8_lossy(&form), &mut target);
    let upgrade = head.upgrade.filter(|_| head.framing == Framing::None);
    let parts =
        RequestParts { target: &target, default_host: "server", changes, upgrade, sticky: None };
    let mut out = Vec::new();
    let id = write_request(head, origin, parts, &mut out);

    let text = out.escape_ascii().to_string();
    let mut slots = wire::header_slots();
    let copy = match wire::parse_request(&out, &LOOSE, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) if bytes == out.len() => head,
        other => panic!("{other:?} of {text}"),
    };
    assert_eq!(copy.method, head.method, "{text}");
    assert_eq!(copy.target.as_bytes(), target, "{text}");
    assert_eq!((copy.version, copy.keep_alive), (Version::Http11, true), "{text}");
    assert_eq!(copy.framing, head.framing, "{text}");
    assert_eq!(copy.expect_continue, head.expect_continue, "{text}");
    assert_eq!(copy.upgrade, upgrade, "{text}");
    assert_eq!(copy.host, Some(head.host.unwrap_or("server")), "{text}");
    let count = |name: &str| {
        copy.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count()
    };
    let believed = |name: &str| {
        trusted || name.eq_ignore_ascii_case("forwarded") || {
            ["for", "proto", "host"]
                .iter()
                .any(|end| name.eq_ignore_ascii_case(&format!("x-forwarded-{end}")))
        }
    };
    for header in copy.headers {
        let stranger =
            (is_identity(header.name) || has_underscore(header.name)) && !believed(header.name);
        assert!(!stranger, "{} in {text}", header.name);
    }
    for (name, most) in [("connection", 1), ("te", 1), ("upgrade", 1), ("keep-alive", 0)] {
        assert!(count(name) <= most, "{name} in {text}");
    }
    assert_eq!((count("host"), count("proxy-connection")), (1, 0), "{text}");
    assert!(trusted || count("x-forwarded-for") == usize::from(all), "{text}");
    if all {
        let id = &out[id];
        let known = copy
            .headers
            .iter()
            .any(|header| header.name.eq_ignore_ascii_case("x-request-id") && header.value == id);
        assert!(known && (trusted || id == b"0123"), "{text}");
    }
}

fn check_forwarded_response(
    head: &ResponseHead<'_, '_>,
    kind: RequestKind,
    version: Version,
    stays: bool,
    sticky: Option<StickyMode>,
) {
    let connected = kind == RequestKind::Connect && (200..300).contains(&head.status);
    if head.switching() && head.upgrade.is_none() || head.informational() && !stays {
        // The first is refused, and the second does not happen.
        return;
    }
    let framing = client_framing(head.framing, version);
    let persistence = match (head.switching() || connected, framing) {
        (true, _) => Persistence::Switches,
        (false, ClientFraming::UntilClose) => Persistence::Ends,
        (false, _) if stays => Persistence::Stays,
        (false, _) => Persistence::Ends,
    };
    let changes = [
        Change::SetResponseHeader("Server".into(), "weir".into()),
        Change::RemoveResponseHeader("X-Secret".into()),
    ];
    let mut out = Vec::new();
    let plan = sticky.filter(|_| !head.informational()).map(sticky_plan);
    let token = [b'T'; 32];
    let stamp = plan.as_ref().map(|plan| Stamp { plan, token: &token, is_due: true });
    let parts = ResponseParts { version, kind, framing, persistence, changes: &changes, stamp };
    write_response(head, parts, &mut out);

    let text = out.escape_ascii().to_string();
    let mut slots = wire::header_slots();
    let copy = match wire::parse_response(&out, &LOOSE, kind, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) if bytes == out.len() => head,
        other => panic!("{other:?} of {text}"),
    };
    assert_eq!((copy.status, copy.reason), (head.status, head.reason), "{text}");
    let wanted = match (framing, head.framing) {
        (ClientFraming::None, _) => Framing::None,
        (ClientFraming::Length, length) => length,
        (ClientFraming::Chunked, _) => Framing::Chunked,
        (ClientFraming::UntilClose, _) => Framing::UntilClose,
    };
    assert_eq!(copy.framing, wanted, "{text}");
    if version == Version::Http11 && persistence != Persistence::Switches {
        assert_eq!(copy.keep_alive, persistence == Persistence::Stays, "{text}");
    }
    let has = |name: &str| wire::field_value(copy.headers, name).is_some();
    let no_length = head.status < 200 || head.status == 204 || connected;
    assert!(!no_length || !has("content-length"), "{text}");
    assert!(has("transfer-encoding") == (framing == ClientFraming::Chunked), "{text}");
}

fn sticky_plan(mode: StickyMode) -> StickyPlan {
    StickyPlan {
        cookie: "a".into(),
        mode,
        key: Secret::new(b"a key of the fuzzer"),
        key_file: None,
        max_age_s: Some(1),
        secure: true,
        http_only: true,
        same_site: SameSite::Lax,
    }
}

/// Of a request's cookies the server gets all but ours, and ours is never found in what it gets.
fn check_cookies(head: &RequestHead<'_, '_>, mode: StickyMode) {
    let plan = sticky_plan(mode);
    let tokens = Tokens::new(&plan.key, "pool", ["one", "two"].into_iter());
    let found = tokens.find(&plan, head.headers);
    let mut out = b"GET / HTTP/1.1\r\nHost: h\r\n".to_vec();
    for header in head.headers.iter().filter(|header| is_cookie(header.name)) {
        write_cookie_field(&plan, header, &mut out);
    }
    out.extend_from_slice(b"\r\n");
    let text = out.escape_ascii().to_string();
    let mut slots = wire::header_slots();
    let copy = match wire::parse_request(&out, &LOOSE, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) if bytes == out.len() => head,
        other => panic!("{other:?} of {text}"),
    };
    let is_ours = |cookie: &Cookie<'_>| cookie.name == b"a";
    let others = |headers: &[wire::Header<'_>]| {
        let all = cookies(headers).filter(|one| !is_ours(one) && !one.name.is_empty());
        all.map(|one| (one.name.to_vec(), one.value.to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(others(copy.headers), others(head.headers), "{text}");
    if mode == StickyMode::Insert {
        assert!(!cookies(copy.headers).any(|one| is_ours(&one)), "{text}");
    } else if found.is_ok() {
        let before = cookies(head.headers).filter(is_ours).count();
        assert_eq!(cookies(copy.headers).filter(is_ours).count(), before, "{text}");
    }
}

fn check_normal(path: &str) {
    assert!(path.starts_with('/'), "{path}");
    for (at, _) in path.match_indices('%') {
        let triplet = path.as_bytes().get(at + 1..at + 3).unwrap_or_default();
        let upper = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
        assert!(triplet.len() == 2 && triplet.iter().all(upper), "{path}");
    }
    let inner = path.strip_suffix('/').unwrap_or(path).split('/').skip(1);
    for segment in inner {
        assert!(!matches!(segment, "" | "." | ".."), "{path}");
    }
}

#[cfg(test)]
mod tests;
