//! Properties that hold for any input bytes, as functions that panic when one fails.
//!
//! For tests and fuzz targets only, like `wire::fuzzing`: `fuzzing/tests.rs` runs them on seeded
//! mutations of requests, responses, headers and configs, `fuzz/` on the inputs of a fuzzer. Each
//! returns whether the input was valid enough to test the property. No product code calls them.

mod auth;
mod texts;
mod zones;

use std::net::IpAddr;

use rt::tls::client_hello::{ClientHelloReader, ParsedClientHello, parse_client_hello};
use wire::{Framing, Header, Limits, Parsed, RequestHead, RequestKind, ResponseHead, Version, encode};

use crate::balance::sticky::{CookieTimes, ServerTokens, StickyCookie, write_cookie_field};
use crate::config;
use crate::cookies::{Cookie, cookies, is_cookie_field};
use crate::field_names::{has_underscore, is_identity_field};
use crate::forward::{
    ClientFraming, Origin, Persistence, RequestParts, ResponseParts, client_framing, origin_form,
    write_request, write_response,
};
use crate::http_client::ResponseReader;
pub use crate::maps::check_file as map;
use crate::plan::{
    Forwarding, PathRule, RouteChange, SameSite, Secret, StickyLimits, StickyMode, StickyPlan, Underscores,
};
use crate::request_view::{CertificateField, RequestView};
use crate::route::{check_target, https_location, rewrite_target};
use crate::uri::{normalise, split_target};
pub use auth::auth;
use proxy_config::dns_codec::message::{RecordData, RecordType, parse_answer};
pub use texts::{condition, template};
use wire::proxy_protocol::{self, HEADER_BYTES_MAX, ProxyVersion};
pub use zones::{dns_update, tsig_key};

/// Checks that an accepted request is forwarded as exactly one request of the same meaning: method,
/// target, host, framing. `true`: it was accepted.
///
/// # Panics
/// The property does not hold.
pub fn forward_request(bytes: &[u8]) -> bool {
    forward_requests(bytes, Purpose::Check)
}

/// Forwards a request as [`forward_request`], without checks, for measurements of its cost.
pub fn only_forward_request(bytes: &[u8]) {
    forward_requests(bytes, Purpose::Measure);
}

/// Reason for forwarding a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Check,
    /// The cost of forwarding is measured: checks would cost more than what they check.
    Measure,
}

fn forward_requests(bytes: &[u8], purpose: Purpose) -> bool {
    let mut slots = wire::header_slots();
    let parsed = wire::parse_request(bytes, &Limits::default(), &mut slots);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        return false;
    };
    for trusted in [false, true] {
        for is_everything_on in [false, true] {
            check_forwarded_request(&head, trusted, is_everything_on, &[], purpose);
            check_forwarded_request(&head, trusted, is_everything_on, &request_changes(), purpose);
        }
    }
    for mode in STICKY_MODES.into_iter().filter(|_| purpose == Purpose::Check) {
        check_cookies(&head, mode);
    }
    true
}

/// Checks that an accepted response is forwarded as exactly one response of the same meaning:
/// status, framing, and persistence. `true`: it was accepted.
///
/// # Panics
/// The property does not hold.
pub fn forward_response(bytes: &[u8]) -> bool {
    forward_responses(bytes, Purpose::Check)
}

/// Forwards a response as [`forward_response`], without checks, for measurements of its cost.
pub fn only_forward_response(bytes: &[u8]) {
    forward_responses(bytes, Purpose::Measure);
}

fn forward_responses(bytes: &[u8], purpose: Purpose) -> bool {
    let mut accepted = false;
    for kind in [RequestKind::Head, RequestKind::Connect, RequestKind::Other] {
        let mut slots = wire::header_slots();
        let parsed = wire::parse_response(bytes, &Limits::default(), kind, &mut slots);
        let Ok(Parsed::Complete { head, .. }) = parsed else {
            continue;
        };
        accepted = true;
        for version in [Version::Http10, Version::Http11] {
            for is_persistent in [false, true] {
                check_forwarded_response(&head, kind, version, is_persistent, None, purpose);
                let mode = STICKY_MODES[usize::from(is_persistent)];
                check_forwarded_response(&head, kind, version, is_persistent, Some(mode), purpose);
            }
        }
    }
    accepted
}

/// Checks that the normal form of a target is its own normal form, and that rewritten targets and
/// redirects are valid targets and field values. `true`: it was a target.
///
/// # Panics
/// The property does not hold.
pub fn target(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    if encode::check_target(text).is_err() {
        return false;
    }
    let (path, query) = split_target(text);
    assert!(query.is_empty() || query.starts_with('?'), "{query}");
    let (mut buffer, mut second_buffer) = (String::new(), String::new());
    let normal_form = normalise(path, &mut buffer);
    assert_eq!(normalise(normal_form, &mut second_buffer), normal_form, "twice is once");
    if path.starts_with('/') {
        check_normal_form(normal_form);
    }
    for replacement in ["/", "/v1", "/v1/"] {
        let change = RouteChange::ReplacePrefix { prefix: "/a".into(), replacement: replacement.into() };
        let mut out = Vec::new();
        rewrite_target(&[change], text, &mut out);
        let out = String::from_utf8_lossy(&out);
        assert_eq!(encode::check_target(&out), Ok(()), "{text} with {replacement}");
        assert!(!path.starts_with('/') || out.starts_with('/'), "{text} becomes {out}");
    }
    let redirect_location = https_location("h", text);
    assert_eq!(encode::check_field_value(&redirect_location), Ok(()));
    assert!(
        redirect_location.starts_with(b"https://h/") && !redirect_location.starts_with(b"https://h//"),
        "{text}"
    );
    true
}

/// Checks that the names in a ClientHello do not depend on how its bytes arrive, and that a name has
/// one form. `true`: it was a ClientHello.
///
/// # Panics
/// One of the properties does not hold.
pub fn client_hello(bytes: &[u8]) -> bool {
    let complete = parse_client_hello(bytes);
    for end in 0..bytes.len() {
        let partial = parse_client_hello(&bytes[..end]);
        assert!(partial == Ok(ParsedClientHello::Incomplete) || partial == complete, "the first {end} bytes");
    }
    let Ok(ParsedClientHello::Complete(names)) = complete else { return false };
    if let Some(name) = &names.server_name {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        assert!(!name.is_empty() && name.len() <= 253 && name.bytes().all(is_allowed), "{name}");
        assert!(!name.starts_with('.') && !name.ends_with('.') && !name.contains(".."), "{name}");
    }
    assert!(names.alpn.iter().all(|protocol| !protocol.is_empty()));
    true
}

/// Checks that the parse result of a PROXY header does not depend on the chunking, and that a
/// header is unchanged after it is written and parsed again. `true`: it was a header.
///
/// # Panics
/// One of the properties does not hold.
pub fn proxy_header(bytes: &[u8]) -> bool {
    use proxy_protocol::ParsedHeader::{Complete, Incomplete, Invalid};
    let complete = proxy_protocol::parse(bytes);
    for at in 0..bytes.len().min(HEADER_BYTES_MAX + 2) {
        match (proxy_protocol::parse(&bytes[..at]), &complete) {
            (Incomplete, Complete { bytes: used, .. }) => assert!(at < *used, "{at} of {used}"),
            (Incomplete, _) => assert!(at < HEADER_BYTES_MAX, "no end at {at}"),
            (Invalid(_), Invalid(_)) => {}
            (partial, _) => assert_eq!(partial, complete, "the first {at} bytes"),
        }
    }
    let Complete { header, bytes: used } = complete else {
        return false;
    };
    assert!(used <= bytes.len() && used <= HEADER_BYTES_MAX);
    let proxy_protocol::Header::Proxied { source, destination } = header else {
        return true;
    };
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let mut out = Vec::new();
        proxy_protocol::write_header(version, Some(source), Some(destination), &mut out);
        match proxy_protocol::parse(&out) {
            Complete { header: proxy_protocol::Header::Proxied { source: from, destination: to }, bytes } => {
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

/// Checks answers to a question about `a.b`: each kind of record is data of the message, and a name is
/// printable. `true`: one of the kinds is an answer.
///
/// # Panics
/// One of the properties does not hold.
pub fn dns_answer(bytes: &[u8]) -> bool {
    let mut is_answer = false;
    for record_type in [RecordType::A, RecordType::Aaaa, RecordType::Srv] {
        let Ok(answer) = parse_answer(bytes, DNS_ID, "a.b", record_type) else { continue };
        is_answer = true;
        assert!(answer.data.len() * 10 <= bytes.len(), "{} records", answer.data.len());
        for data in &answer.data {
            if let RecordData::Service { target, .. } = data {
                assert!(
                    target.len() <= 253 && target.bytes().all(|byte| byte.is_ascii_graphic()),
                    "{target}"
                );
            }
        }
    }
    is_answer
}

/// ID of the question of [`dns_answer`].
const DNS_ID: u16 = 0x1234;

/// Checks that the response of an ACME server does not depend on the pieces in which it arrives. `true`: it
/// was complete.
///
/// # Panics
/// The property does not hold.
pub fn acme_response(bytes: &[u8]) -> bool {
    let read = |piece_bytes: usize| {
        let mut reader = ResponseReader::new(RequestKind::Other);
        for piece in bytes.chunks(piece_bytes) {
            match reader.receive(piece) {
                Ok(None) => {}
                Ok(Some(response)) => return Ok((response.parts.status, response.content)),
                Err(error) => return Err(error.kind()),
            }
        }
        let response = reader.handle_eof().map_err(|error| error.kind())?;
        Ok((response.parts.status, response.content))
    };
    let at_once = read(usize::MAX);
    match (&at_once, read(1)) {
        (Ok(at_once), Ok(by_byte)) => assert_eq!(*at_once, by_byte, "one byte at a time"),
        // A bad byte may be found at the end of its line, or not at all before the end of the stream.
        (Err(_), Err(_)) => {}
        (at_once, by_byte) => panic!("{at_once:?} but by byte {by_byte:?}"),
    }
    at_once.is_ok()
}

/// Reads a ClientHello as it arrives, for measurements of its cost.
pub fn decode_client_hello(bytes: &[u8]) {
    for piece_bytes in [usize::MAX, 1] {
        let mut reader = ClientHelloReader::default();
        let mut end = 0;
        while end < bytes.len() {
            end = end.saturating_add(piece_bytes).min(bytes.len());
            if reader.read(&bytes[..end]) != Ok(ParsedClientHello::Incomplete) {
                break;
            }
        }
    }
}

/// Reads a config and the files that it includes, with variables: `main.toml`, `a.toml`, `b.toml` and `c.toml`, separated
/// by lines `---`. Each problem has a position in one of them. `true`: an included file was read.
///
/// # Panics
/// The property does not hold.
pub fn sources(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    // Neither other files of the machine, nor the escape of a slash.
    if text.contains(['/', '\\']) {
        return false;
    }
    let name = format!("weir-sources-{}-{:?}", std::process::id(), std::thread::current().id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).expect("a directory of the check");
    let names = ["main", "a", "b", "c"].iter();
    let names = names.map(|name| directory.join(format!("{name}.toml")).display().to_string());
    let files: Vec<(String, &str)> = names.zip(text.split("\n---\n")).collect();
    for (name, text) in &files {
        std::fs::write(name, text).expect("a file of the check");
    }
    let has_included = config::check_sources(&files);
    std::fs::remove_dir_all(&directory).expect("the directory of the check");
    has_included
}

/// Checks that a config is valid, or that every problem has a position and a message. `true`: it
/// was valid.
///
/// # Panics
/// A problem has no message.
pub fn config(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    // A name would be resolved, and nothing here may depend on a network.
    let numeric_lists = text.matches("servers = [\"127.0.0.1:").count();
    // Neither may it depend on the files of a machine.
    if text.contains("include")
        || text.contains("address")
        || text.matches("servers").count() != numeric_lists
    {
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
                let message = problem.to_string();
                assert!(message.starts_with("weir.toml:") && message.len() > 14, "{message}");
            }
            false
        }
    }
}

/// Checks that a target in its forwarded form is stable and has the same normal form as the
/// original: routing and forwarding use the same target.
fn check_forwarded_form(sent: &str, forwarded_form: &str) {
    for rule in [PathRule::Normalise, PathRule::Raw] {
        let mut buffer = String::new();
        let checked = check_target(forwarded_form, &mut buffer);
        let forwarded_again = checked.map_or(Ok(forwarded_form), |checked| checked.form(rule));
        assert_eq!(forwarded_again, Ok(forwarded_form), "{sent} again");
    }
    let (mut original_buffer, mut forwarded_buffer) = (String::new(), String::new());
    let (original, result) = (split_target(sent), split_target(forwarded_form));
    assert_eq!(
        normalise(original.0, &mut original_buffer),
        normalise(result.0, &mut forwarded_buffer),
        "{sent} as {forwarded_form}"
    );
    assert_eq!(original.1, result.1, "{sent} as {forwarded_form}");
    let is_dot_segment = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
    assert!(!result.0.starts_with('/') || !result.0.split('/').any(is_dot_segment), "{forwarded_form}");
    assert!(!result.0.contains('\\'), "{forwarded_form}");
}

const STICKY_MODES: [StickyMode; 2] = [StickyMode::Insert, StickyMode::Prefix];

/// Loose enough that no head that was accepted with the defaults becomes too large by additions.
const LOOSE_LIMITS: Limits = Limits {
    head_bytes_max: 1 << 20,
    headers_max: wire::HEADERS_CAP,
    target_bytes_max: 1 << 20,
    chunk_line_bytes_max: 1 << 20,
    chunk_extension_bytes_max: 1 << 20,
    trailer_bytes_max: 1 << 20,
    interim_responses_max: u32::MAX,
};

fn request_changes() -> [RouteChange; 4] {
    [
        RouteChange::SetRequestHeader("X-Env".into(), "prod".into()),
        RouteChange::AddRequestHeader("X-Tag".into(), "2".into()),
        RouteChange::RemoveRequestHeader("Cookie".into()),
        RouteChange::ReplacePrefix { prefix: "/a".into(), replacement: "/b".into() },
    ]
}

fn check_forwarded_request(
    head: &RequestHead<'_, '_>,
    trusted: bool,
    is_everything_on: bool,
    changes: &[RouteChange],
    purpose: Purpose,
) {
    let forwarding = Forwarding {
        x_forwarded: is_everything_on,
        forwarded: is_everything_on,
        via: is_everything_on.then(|| "weir".into()),
        request_id: is_everything_on.then(|| "X-Request-Id".into()),
        only_if_none: false,
        underscores: Underscores::Drop,
    };
    let client = if trusted { [0, 0, 0, 0, 0, 0, 0, 1].into() } else { [192, 0, 2, 7].into() };
    let origin = Origin {
        client: Some(client).filter(|_: &IpAddr| is_everything_on),
        new_request_id: b"0123",
        protocol: crate::outcome::Protocol::Http11,
        is_tls: false,
    };
    let certificate =
        is_everything_on.then_some(CertificateField { name: "X-Mine", subject: Some("CN=verified") });
    let view = RequestView { head, is_trusted: trusted, forwarding: &forwarding, certificate };
    let mut target = Vec::new();
    let mut buffer = String::new();
    let checked = check_target(head.target, &mut buffer);
    let Ok(target_in_form) = checked.map_or(Ok(head.target), |checked| checked.form(PathRule::Normalise))
    else {
        return;
    };
    if purpose == Purpose::Check {
        check_forwarded_form(head.target, target_in_form);
    }
    let forwarded_form = origin_form(head.method, target_in_form);
    rewrite_target(changes, &String::from_utf8_lossy(&forwarded_form), &mut target);
    let parts =
        RequestParts { target: &target, default_host: "server", changes, values: None, cookies: None };
    let mut out = Vec::new();
    let id = write_request(&view, origin, parts, &mut out);
    if purpose == Purpose::Measure {
        return;
    }

    let text = out.escape_ascii().to_string();
    let mut slots = wire::header_slots();
    let reparsed = match wire::parse_request(&out, &LOOSE_LIMITS, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) if bytes == out.len() => head,
        other => panic!("{other:?} of {text}"),
    };
    assert_eq!(reparsed.method, head.method, "{text}");
    assert_eq!(reparsed.target.as_bytes(), target, "{text}");
    assert_eq!((reparsed.version, reparsed.keep_alive), (Version::Http11, true), "{text}");
    assert_eq!(reparsed.framing, head.framing, "{text}");
    assert_eq!(reparsed.expect_continue, head.expect_continue, "{text}");
    assert_eq!(reparsed.upgrade, view.upgrade(), "{text}");
    if changes.is_empty() && !is_everything_on {
        check_view(&view, reparsed.headers);
    }
    assert_eq!(reparsed.host, Some(head.host.unwrap_or("server")), "{text}");
    let count =
        |name: &str| reparsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count();
    let is_trusted_name = |name: &str| {
        trusted || name.eq_ignore_ascii_case("forwarded") || {
            ["for", "proto", "host"]
                .iter()
                .any(|end| name.eq_ignore_ascii_case(&format!("x-forwarded-{end}")))
        }
    };
    for header in reparsed.headers {
        let is_untrusted_identity =
            (is_identity_field(header.name) || has_underscore(header.name)) && !is_trusted_name(header.name);
        assert!(!is_untrusted_identity, "{} in {text}", header.name);
    }
    for (name, max) in [("connection", 1), ("te", 1), ("upgrade", 1), ("keep-alive", 0)] {
        assert!(count(name) <= max, "{name} in {text}");
    }
    assert_eq!((count("host"), count("proxy-connection")), (1, 0), "{text}");
    assert!(trusted || count("x-forwarded-for") == usize::from(is_everything_on), "{text}");
    if is_everything_on {
        let id = &out[id];
        let has_request_id = reparsed
            .headers
            .iter()
            .any(|header| header.name.eq_ignore_ascii_case("x-request-id") && header.value == id);
        assert!(has_request_id && (trusted || id == b"0123"), "{text}");
    }
}

/// Checks that routes see exactly the fields that the server gets.
fn check_view(view: &RequestView<'_>, forwarded: &[Header<'_>]) {
    // The default host of a server is not known before a route.
    let names = view.head.headers.iter().chain(forwarded).map(|header| header.name);
    for name in names.filter(|name| view.head.host.is_some() || !name.eq_ignore_ascii_case("host")) {
        if name.eq_ignore_ascii_case("max-forwards") || name.eq_ignore_ascii_case("content-length") {
            continue;
        }
        let is_named = |header: &&Header<'_>| header.name.eq_ignore_ascii_case(name);
        let sent: Vec<_> = forwarded.iter().filter(is_named).map(|header| header.value).collect();
        assert_eq!(view.values(name).collect::<Vec<_>>(), sent, "{name}");
    }
}

fn check_forwarded_response(
    head: &ResponseHead<'_, '_>,
    kind: RequestKind,
    version: Version,
    is_persistent: bool,
    sticky: Option<StickyMode>,
    purpose: Purpose,
) {
    let connected = kind == RequestKind::Connect && (200..300).contains(&head.status);
    if head.is_switching_protocols() && head.upgrade.is_none() || head.is_informational() && !is_persistent {
        // The first is rejected, and the second does not occur.
        return;
    }
    let framing = client_framing(head.framing, version);
    let persistence = match (head.is_switching_protocols() || connected, framing) {
        (true, _) => Persistence::Switch,
        (false, ClientFraming::UntilClose) => Persistence::Close,
        (false, _) if is_persistent => Persistence::KeepAlive,
        (false, _) => Persistence::Close,
    };
    let changes = [
        RouteChange::SetResponseHeader("Server".into(), "weir".into()),
        RouteChange::RemoveResponseHeader("X-Secret".into()),
    ];
    let mut out = Vec::new();
    let plan = sticky.filter(|_| !head.is_informational()).map(sticky_plan);
    let token = [b'T'; 32];
    let stamp = plan.as_ref().map(|plan| StickyCookie {
        plan,
        token: &token,
        is_due: true,
        times: CookieTimes::default(),
        is_tls: true,
    });
    let parts = ResponseParts {
        version,
        kind,
        framing,
        persistence,
        changes: &changes,
        values: None,
        sticky_cookie: stamp,
        hsts: None,
    };
    write_response(head, parts, &mut out);
    if purpose == Purpose::Measure {
        return;
    }

    let text = out.escape_ascii().to_string();
    let mut slots = wire::header_slots();
    let reparsed = match wire::parse_response(&out, &LOOSE_LIMITS, kind, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) if bytes == out.len() => head,
        other => panic!("{other:?} of {text}"),
    };
    assert_eq!((reparsed.status, reparsed.reason), (head.status, head.reason), "{text}");
    let expected = match (framing, head.framing) {
        (ClientFraming::None, _) => Framing::None,
        (ClientFraming::Length, length) => length,
        (ClientFraming::Chunked, _) => Framing::Chunked,
        (ClientFraming::UntilClose, _) => Framing::UntilClose,
    };
    assert_eq!(reparsed.framing, expected, "{text}");
    if version == Version::Http11 && persistence != Persistence::Switch {
        assert_eq!(reparsed.keep_alive, persistence == Persistence::KeepAlive, "{text}");
    }
    let has_field = |name: &str| wire::field_value(reparsed.headers, name).is_some();
    let no_length = head.status < 200 || head.status == 204 || connected;
    assert!(!no_length || !has_field("content-length"), "{text}");
    assert!(has_field("transfer-encoding") == (framing == ClientFraming::Chunked), "{text}");
}

fn sticky_plan(mode: StickyMode) -> StickyPlan {
    StickyPlan {
        cookie: "a".into(),
        mode,
        key: Secret::new(b"a key of the fuzzer"),
        key_file: None,
        max_age_s: Some(1),
        secure: Some(true),
        http_only: true,
        same_site: SameSite::Lax,
        path: "/".into(),
        domain: None,
        limits: Some(StickyLimits { idle_max_s: Some(60), life_max_s: None }),
    }
}

/// Checks that the server gets all cookies of a request but the proxy's own.
fn check_cookies(head: &RequestHead<'_, '_>, mode: StickyMode) {
    let plan = sticky_plan(mode);
    let tokens = ServerTokens::new(&plan.key, "pool", ["one", "two"].into_iter());
    let sticky_result = tokens.find_in_cookies(&plan, head.headers, || 100);
    let mut out = b"GET / HTTP/1.1\r\nHost: h\r\n".to_vec();
    for header in head.headers.iter().filter(|header| is_cookie_field(header.name)) {
        write_cookie_field(Some(&plan), |_| false, header, &mut out);
    }
    out.extend_from_slice(b"\r\n");
    let text = out.escape_ascii().to_string();
    let mut slots = wire::header_slots();
    let reparsed = match wire::parse_request(&out, &LOOSE_LIMITS, &mut slots) {
        Ok(Parsed::Complete { head, bytes }) if bytes == out.len() => head,
        other => panic!("{other:?} of {text}"),
    };
    let is_sticky_cookie = |cookie: &Cookie<'_>| cookie.name == b"a";
    let foreign_cookies = |headers: &[Header<'_>]| {
        let foreign = cookies(headers).filter(|cookie| !is_sticky_cookie(cookie) && !cookie.name.is_empty());
        foreign.map(|cookie| (cookie.name.to_vec(), cookie.value.to_vec())).collect::<Vec<_>>()
    };
    assert_eq!(foreign_cookies(reparsed.headers), foreign_cookies(head.headers), "{text}");
    if mode == StickyMode::Insert {
        assert!(!cookies(reparsed.headers).any(|cookie| is_sticky_cookie(&cookie)), "{text}");
    } else if sticky_result.is_ok() {
        let sent_count = cookies(head.headers).filter(is_sticky_cookie).count();
        assert_eq!(cookies(reparsed.headers).filter(is_sticky_cookie).count(), sent_count, "{text}");
    }
}

fn check_normal_form(path: &str) {
    assert!(path.starts_with('/'), "{path}");
    for (at, _) in path.match_indices('%') {
        let triplet = path.as_bytes().get(at + 1..at + 3).unwrap_or_default();
        let is_upper_hex = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
        assert!(triplet.len() == 2 && triplet.iter().all(is_upper_hex), "{path}");
    }
    let inner = path.strip_suffix('/').unwrap_or(path).split('/').skip(1);
    for segment in inner {
        assert!(!matches!(segment, "" | "." | ".."), "{path}");
    }
}

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod tests;
