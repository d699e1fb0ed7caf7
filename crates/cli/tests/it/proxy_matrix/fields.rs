//! Which fields pass a proxy, which end at it, and which it adds.

use crate::proxy_matrix::{against_both, run};
use crate::support::proxies::{Recorder, Reply, Setup, Subject};
use crate::support::strict::Message;

against_both!(what_is_for_this_hop_ends_here, order_and_repetition_are_kept);

const ANSWER: &[u8] = b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nSet-Cookie: a=1\r\nX-Kept: 1\r\n\
    Set-Cookie: b=2\r\nConnection: X-Gone, keep-alive\r\nX-Gone: 1\r\nKeep-Alive: timeout=9\r\n\
    Set-CooKie: a=1\r\nServer: one/1\r\n\r\nok";

/// What the origin sees and what the client gets when these lines are sent.
fn exchange(subject: Subject, listener: &str, lines: &str) -> (Message, Message) {
    let origin = Recorder::start(|_| Reply::Stay(vec![ANSWER.to_vec()]));
    let proxy = subject.start(origin.authority(), Setup { listener, pool: "" });
    let request = format!("GET /v?a=%41&b=//../x HTTP/1.1\r\n{lines}\r\n");
    let answer = proxy.connect().ask(request.as_bytes()).unwrap();
    (origin.request(), answer)
}

fn what_is_for_this_hop_ends_here(subject: Subject) {
    let lines = "Host: A.Example:81\r\nConnection: close, X-Named , x-other\r\nX-Named: 1\r\n\
        X-Other: 2\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
        TE: trailers, gzip;q=0.5\r\nUpgrade: nothing\r\nX-Stays: 3\r\n";
    let (seen, answer) = exchange(subject, "", lines);
    assert_eq!(seen.target(), "/v?a=%41&b=//../x");
    assert_eq!(seen.one("host"), Some("A.Example:81"));
    assert_eq!(seen.one("x-stays"), Some("3"));
    assert!(!seen.lists("connection", "close"), "the client's close is for this hop: {seen:?}");
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2", "a=1"]);
    // HAProxy 2.6 takes the options of `Connection` and passes the fields that it names.
    if subject == Subject::Weir {
        for name in ["x-named", "x-other", "keep-alive", "proxy-connection", "upgrade"] {
            assert!(seen.all(name).is_empty(), "{name}: {seen:?}");
        }
        let te = seen.all("te").concat();
        assert!(["", "trailers"].contains(&te.as_str()), "TE: {te}");
        for name in ["x-gone", "keep-alive"] {
            assert!(answer.all(name).is_empty(), "{name}: {answer:?}");
        }
    }
}

fn order_and_repetition_are_kept(subject: Subject) {
    let lines = "X-A: 1\r\nHost: a.example\r\nx-b: 2\r\nX-a: 3\r\nCOOKIE: c=d\r\nX-Empty:\r\n\
        X-Spaces: \t a  b\t \r\nCookie: e=f\r\n";
    let (seen, answer) = exchange(subject, "", lines);
    let theirs = |message: &Message| -> Vec<(String, String)> {
        let wanted =
            ["x-a", "x-b", "cookie", "x-empty", "x-spaces", "set-cookie", "x-kept", "server"];
        let mut fields = message.fields.clone();
        fields.retain(|(name, _)| wanted.contains(&name.to_ascii_lowercase().as_str()));
        // HAProxy 2.6 writes names in lower case.
        if subject == Subject::Haproxy {
            fields.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
        }
        fields
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        let name = |name: &str| match subject {
            Subject::Haproxy => name.to_ascii_lowercase(),
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
    assert_eq!(theirs(&seen), pairs(&sent));
    let answered = [
        ("Set-Cookie", "a=1"),
        ("X-Kept", "1"),
        ("Set-Cookie", "b=2"),
        ("Set-CooKie", "a=1"),
        ("Server", "one/1"),
    ];
    assert_eq!(theirs(&answer), pairs(&answered));
    assert_eq!(answer.start, "HTTP/1.1 200 Fine");
}

const SPOOFED: &str = "Host: a.example\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\n\
    X-Forwarded-Host: evil.example\r\nForwarded: for=9.9.9.9\r\nX-Request-Id: theirs\r\n\
    Via: 1.0 before\r\n";

#[test]
fn weir_believes_only_whom_it_trusts() {
    run(Subject::Weir, |subject| {
        let (seen, _) = exchange(subject, "", SPOOFED);
        assert_eq!(seen.all("x-forwarded-for"), ["127.0.0.1"], "{seen:?}");
        assert_eq!(seen.all("x-forwarded-proto"), ["http"], "{seen:?}");
        assert_eq!(seen.all("x-forwarded-host"), ["a.example"], "{seen:?}");
        assert!(!format!("{:?}", seen.all("forwarded")).contains("9.9.9.9"), "{seen:?}");
        let id = seen.one("x-request-id").expect("one X-Request-Id");
        assert!(id != "theirs" && !id.is_empty(), "{seen:?}");
        assert_eq!(seen.all("via").join(", "), "1.0 before, 1.1 weir", "{seen:?}");

        let (seen, _) = exchange(subject, "trusted = [\"127.0.0.0/8\"]", SPOOFED);
        let chain = seen.all("x-forwarded-for").join(", ");
        assert_eq!(chain, "9.9.9.9, 127.0.0.1", "{seen:?}");
        assert_eq!(seen.all("x-forwarded-proto"), ["https"], "{seen:?}");
        assert_eq!(seen.all("x-forwarded-host"), ["evil.example"], "{seen:?}");
        assert_eq!(seen.one("x-request-id"), Some("theirs"), "{seen:?}");
    });
}

#[test]
fn weir_adds_what_it_is_told_to_add() {
    run(Subject::Weir, |subject| {
        let plain = "Host: a.example\r\n";
        let (one, _) = exchange(subject, "", plain);
        let (two, _) = exchange(subject, "", plain);
        assert_eq!(one.all("via"), ["1.1 weir"], "{one:?}");
        let id = |seen: &Message| seen.one("x-request-id").expect("an id").to_owned();
        assert_ne!(id(&one), id(&two));
        let none = "forwarding = { x-forwarded = false, via = false, request-id = false }";
        let (seen, _) = exchange(subject, none, plain);
        for name in ["x-forwarded-for", "x-forwarded-proto", "via", "x-request-id", "forwarded"] {
            assert!(seen.all(name).is_empty(), "{name}: {seen:?}");
        }
        let (seen, _) = exchange(subject, "forwarding = { forwarded = true }", plain);
        let forwarded = seen.one("forwarded").expect("Forwarded").to_ascii_lowercase();
        assert!(forwarded.contains("for=127.0.0.1"), "{forwarded}");
    });
}
