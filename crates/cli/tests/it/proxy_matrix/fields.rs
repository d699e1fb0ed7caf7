//! Header fields that a proxy forwards, removes or adds.

use crate::proxy_matrix::{against_subject, run_if_installed};
use crate::support::proxies::{OriginReply, ProxyKind, ProxySetup, RecordingOrigin};
use crate::support::strict_parser::StrictMessage;

against_subject!(what_is_for_this_hop_ends_here, order_and_repetition_are_kept);

const ANSWER: &[u8] = b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nSet-Cookie: a=1\r\nX-Kept: 1\r\n\
    Set-Cookie: b=2\r\nConnection: X-Gone, keep-alive\r\nX-Gone: 1\r\nKeep-Alive: timeout=9\r\n\
    Set-CooKie: a=1\r\nServer: one/1\r\n\r\nok";

/// Sends these lines; returns the request at the origin and the response at the client.
fn exchange(subject: ProxyKind, listener: &str, lines: &str) -> (StrictMessage, StrictMessage) {
    let origin = RecordingOrigin::start(|_| OriginReply::KeepOpen(vec![ANSWER.to_vec()]));
    let proxy = subject.start(origin.authority(), ProxySetup { listener, pool: "" });
    let request = format!("GET /v?a=%41&b=//../x HTTP/1.1\r\n{lines}\r\n");
    let response = proxy.connect().exchange(request.as_bytes()).unwrap();
    (origin.valid_request(), response)
}

fn what_is_for_this_hop_ends_here(subject: ProxyKind) {
    let lines = "Host: A.Example:81\r\nConnection: close, X-Named , x-other\r\nX-Named: 1\r\n\
        X-Other: 2\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
        TE: trailers, gzip;q=0.5\r\nUpgrade: nothing\r\nX-Stays: 3\r\n";
    let (request_seen, response) = exchange(subject, "", lines);
    assert_eq!(request_seen.target(), "/v?a=%41&b=//../x");
    assert_eq!(request_seen.single_value("host"), Some("A.Example:81"));
    assert_eq!(request_seen.single_value("x-stays"), Some("3"));
    assert!(
        !request_seen.list_contains("connection", "close"),
        "the client's close is for this hop: {request_seen:?}"
    );
    assert_eq!(response.values("set-cookie"), ["a=1", "b=2", "a=1"]);
    // HAProxy 2.6 removes the options of `Connection` and forwards the fields that it names.
    if subject == ProxyKind::Weir {
        for name in ["x-named", "x-other", "keep-alive", "proxy-connection", "upgrade"] {
            assert!(request_seen.values(name).is_empty(), "{name}: {request_seen:?}");
        }
        let te = request_seen.values("te").concat();
        assert!(["", "trailers"].contains(&te.as_str()), "TE: {te}");
        for name in ["x-gone", "keep-alive"] {
            assert!(response.values(name).is_empty(), "{name}: {response:?}");
        }
    }
}

fn order_and_repetition_are_kept(subject: ProxyKind) {
    let lines = "X-A: 1\r\nHost: a.example\r\nx-b: 2\r\nX-a: 3\r\nCOOKIE: c=d\r\nX-Empty:\r\n\
        X-Spaces: \t a  b\t \r\nCookie: e=f\r\n";
    let (request_seen, response) = exchange(subject, "", lines);
    let theirs = |message: &StrictMessage| -> Vec<(String, String)> {
        let expected = ["x-a", "x-b", "cookie", "x-empty", "x-spaces", "set-cookie", "x-kept", "server"];
        let mut fields = message.fields.clone();
        fields.retain(|(name, _)| expected.contains(&name.to_ascii_lowercase().as_str()));
        // HAProxy 2.6 writes names in lower case.
        if subject == ProxyKind::Haproxy {
            fields.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
        }
        fields
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let name = |name: &str| match subject {
            ProxyKind::Haproxy => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        };
        pairs.iter().map(|(key, value)| (name(key), (*value).to_owned())).collect()
    };
    let sent = [
        ("X-A", "1"),
        ("x-b", "2"),
        ("X-a", "3"),
        ("COOKIE", "c=d"),
        ("X-Empty", ""),
        ("X-Spaces", "a  b"),
        ("Cookie", "e=f"),
    ];
    assert_eq!(theirs(&request_seen), pairs(&sent));
    let response_fields = [
        ("Set-Cookie", "a=1"),
        ("X-Kept", "1"),
        ("Set-Cookie", "b=2"),
        ("Set-CooKie", "a=1"),
        ("Server", "one/1"),
    ];
    assert_eq!(theirs(&response), pairs(&response_fields));
    assert_eq!(response.start, "HTTP/1.1 200 Fine");
}

const SPOOFED: &str = "Host: a.example\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\n\
    X-Forwarded-Host: evil.example\r\nForwarded: for=9.9.9.9\r\nX-Request-Id: theirs\r\n\
    Via: 1.0 before\r\n";

#[test]
fn weir_believes_only_whom_it_trusts() {
    run_if_installed(ProxyKind::Weir, |subject| {
        let (request_seen, _) = exchange(subject, "", SPOOFED);
        assert_eq!(request_seen.values("x-forwarded-for"), ["127.0.0.1"], "{request_seen:?}");
        assert_eq!(request_seen.values("x-forwarded-proto"), ["http"], "{request_seen:?}");
        assert_eq!(request_seen.values("x-forwarded-host"), ["a.example"], "{request_seen:?}");
        assert!(!format!("{:?}", request_seen.values("forwarded")).contains("9.9.9.9"), "{request_seen:?}");
        let id = request_seen.single_value("x-request-id").expect("one X-Request-Id");
        assert!(id != "theirs" && !id.is_empty(), "{request_seen:?}");
        assert_eq!(request_seen.values("via").join(", "), "1.0 before, 1.1 weir", "{request_seen:?}");

        let (request_seen, _) = exchange(subject, "trusted = [\"127.0.0.0/8\"]", SPOOFED);
        let chain = request_seen.values("x-forwarded-for").join(", ");
        assert_eq!(chain, "9.9.9.9, 127.0.0.1", "{request_seen:?}");
        assert_eq!(request_seen.values("x-forwarded-proto"), ["https"], "{request_seen:?}");
        assert_eq!(request_seen.values("x-forwarded-host"), ["evil.example"], "{request_seen:?}");
        assert_eq!(request_seen.single_value("x-request-id"), Some("theirs"), "{request_seen:?}");
    });
}

#[test]
fn weir_adds_what_it_is_told_to_add() {
    run_if_installed(ProxyKind::Weir, |subject| {
        let plain = "Host: a.example\r\n";
        let (first, _) = exchange(subject, "", plain);
        let (second, _) = exchange(subject, "", plain);
        assert_eq!(first.values("via"), ["1.1 weir"], "{first:?}");
        let id = |request_seen: &StrictMessage| {
            request_seen.single_value("x-request-id").expect("an id").to_owned()
        };
        assert_ne!(id(&first), id(&second));
        let none = "forwarding = { x-forwarded = false, via = false, request-id = false }";
        let (request_seen, _) = exchange(subject, none, plain);
        for name in ["x-forwarded-for", "x-forwarded-proto", "via", "x-request-id", "forwarded"] {
            assert!(request_seen.values(name).is_empty(), "{name}: {request_seen:?}");
        }
        let (request_seen, _) = exchange(subject, "forwarding = { forwarded = true }", plain);
        let forwarded = request_seen.single_value("forwarded").expect("Forwarded").to_ascii_lowercase();
        assert!(forwarded.contains("for=127.0.0.1"), "{forwarded}");
    });
}
