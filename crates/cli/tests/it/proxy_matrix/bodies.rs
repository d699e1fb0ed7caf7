//! Methods × framings × statuses, and every place where a message can be cut in two.

use crate::proxy_matrix::{Failures, against_both, chunked, content, hold};
use crate::support::proxies::{Caller, Proxy, Recorder, Reply, Setup, Subject};
use crate::support::strict::{Framing, Message, Wrong, digest};

against_both!(
    every_method_with_every_request_framing,
    every_method_with_every_response_framing_and_status,
    a_request_may_be_cut_anywhere,
    a_response_may_be_cut_anywhere,
    http_1_0_clients_get_every_answer,
);

const METHODS: &[&str] =
    &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "X-Our_own!"];
const STATUSES: &[u16] = &[200, 201, 204, 206, 301, 304, 400, 404, 500, 503];
/// What HAProxy 2.6 does in a way of its own.
const HAPROXYS: &[(&str, &str)] = &[
    (": chunks: ", "an HTTP/1.0 client gets chunks"),
    (": interim [", "an HTTP/1.0 client gets 1xx"),
];
const LARGE: usize = 1024 * 1024;
const TRAILERS: &str = "X-Check: abc\r\nX-Last: done\r\n";

/// How a request is framed: a name, the length of its content, and whether in chunks of some size.
struct Sent {
    name: &'static str,
    length: Option<usize>,
    chunk: Option<usize>,
    expects: bool,
}

const SENT: &[Sent] = &[
    Sent { name: "none", length: None, chunk: None, expects: false },
    Sent { name: "length 0", length: Some(0), chunk: None, expects: false },
    Sent { name: "length small", length: Some(33), chunk: None, expects: false },
    Sent { name: "length large", length: Some(LARGE), chunk: None, expects: false },
    Sent { name: "chunks none", length: Some(0), chunk: Some(1), expects: false },
    Sent { name: "chunks small", length: Some(33), chunk: Some(7), expects: false },
    Sent { name: "chunks large", length: Some(LARGE), chunk: Some(70_001), expects: false },
    Sent { name: "length expected", length: Some(1000), chunk: None, expects: true },
    Sent { name: "chunks expected", length: Some(1000), chunk: Some(300), expects: true },
];

/// How a response is framed, with the length of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    Length(usize),
    /// In chunks of at most so many bytes.
    Chunks(usize, usize),
    /// In chunks whose last has trailers.
    Trailers(usize),
    UntilClose(usize),
    LengthAndClose(usize),
    /// From an HTTP/1.0 origin, to the end of the connection.
    Old(usize),
    OldLength(usize),
    /// After `102` and two `103`.
    Interim(usize),
}

const ANSWERED: &[Answered] = &[
    Answered::Length(0),
    Answered::Length(77),
    Answered::Length(LARGE),
    Answered::Chunks(0, 1),
    Answered::Chunks(77, 9),
    Answered::Chunks(LARGE, 65_537),
    Answered::Trailers(77),
    Answered::UntilClose(0),
    Answered::UntilClose(77),
    Answered::UntilClose(LARGE),
    Answered::LengthAndClose(77),
    Answered::Old(77),
    Answered::OldLength(77),
    Answered::Interim(77),
];

impl Answered {
    fn length(self) -> usize {
        match self {
            Self::Length(length) | Self::Chunks(length, _) | Self::Trailers(length) => length,
            Self::UntilClose(length) | Self::LengthAndClose(length) | Self::Old(length) => length,
            Self::OldLength(length) | Self::Interim(length) => length,
        }
    }

    /// The bytes of the answer, and whether the connection ends with them.
    fn bytes(self, method: &str, status: u16) -> (Vec<u8>, bool) {
        let body = content(self.length());
        let length = format!("Content-Length: {}\r\n", body.len());
        let coded = "Transfer-Encoding: chunked\r\n".to_owned();
        let close = "Connection: close\r\n";
        let interim = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\
                       \r\nHTTP/1.1 103 Early Hints\r\nLink: </b>\r\nLink: </c>\r\n\r\n";
        let (before, version, framing, body, closes) = match self {
            Self::Length(_) => ("", 1, length, body, false),
            Self::Chunks(_, size) => ("", 1, coded, chunked(&body, size, ""), false),
            Self::Trailers(_) => ("", 1, coded, chunked(&body, 20, TRAILERS), false),
            Self::UntilClose(_) => ("", 1, String::new(), body, true),
            Self::LengthAndClose(_) => ("", 1, format!("{close}{length}"), body, true),
            Self::Old(_) => ("", 0, String::new(), body, true),
            Self::OldLength(_) => ("", 0, length, body, true),
            Self::Interim(_) => (interim, 1, length, body, false),
        };
        // RFC 9110 §8.6 and RFC 9112 §6.1: 204 has neither field; 304 and HEAD may have both.
        let framing = if status == 204 { String::new() } else { framing };
        let bodiless = method == "HEAD" || matches!(status, 204 | 304);
        // Without a body nothing else says that the connection ends.
        let framing = if bodiless && closes && !framing.contains(close) {
            format!("{close}{framing}")
        } else {
            framing
        };
        let head =
            format!("{before}HTTP/1.{version} {status} Yes it is\r\n{framing}X-End: 1\r\n\r\n");
        let mut bytes = head.into_bytes();
        if !bodiless {
            bytes.extend(body);
        }
        (bytes, closes)
    }
}

/// An origin that answers `/STATUS/INDEX…` with the framing of that index.
fn origin() -> Recorder {
    Recorder::start(|request| {
        let mut words = request.target().split('/').skip(1);
        let status = words.next().and_then(|word| word.parse().ok()).unwrap_or(500);
        let index = words.next().and_then(|word| word.parse().ok()).unwrap_or(0_usize);
        let (bytes, closes) = ANSWERED[index].bytes(request.method(), status);
        // A third word is where the answer is cut in two.
        let cut = words.next().and_then(|word| word.parse::<usize>().ok());
        match (closes, cut.filter(|cut| *cut < bytes.len())) {
            (true, _) => Reply::Close(bytes),
            (false, Some(cut)) => Reply::Stay(vec![bytes[..cut].to_vec(), bytes[cut..].to_vec()]),
            (false, None) => Reply::Stay(vec![bytes]),
        }
    })
}

/// A scene: a proxy between this test and its origin, with one connection that is used as long as
/// it may be.
struct Scene {
    origin: Recorder,
    proxy: Proxy,
    caller: Option<Caller>,
}

impl Scene {
    fn new(subject: Subject) -> Self {
        let origin = origin();
        let proxy = subject.start(origin.authority(), Setup::default());
        Self { origin, proxy, caller: None }
    }

    fn caller(&mut self) -> &mut Caller {
        self.caller.get_or_insert_with(|| self.proxy.connect())
    }

    /// What was answered, and what the origin saw.
    fn exchange(
        &mut self,
        method: &str,
        sent: &Sent,
        target: &str,
    ) -> Result<(Vec<Message>, Message, Message), String> {
        let (head, body) = request(method, sent, target);
        let caller = self.caller();
        let result = if sent.expects {
            expecting(caller, method, &head, &body)
        } else {
            let whole = [head, body].concat();
            let sent = caller.send(&whole);
            caller.reader.answer(method).map_err(|wrong| format!("{sent:?}, then {wrong:?}"))
        };
        if !result.as_ref().is_ok_and(|(_, answer)| answer.persists()) {
            self.caller = None;
        }
        let seen = self.origin.next().ok_or_else(|| format!("nothing seen, but {result:?}"))?;
        let seen = seen.request.map_err(|wrong| format!("the origin saw {wrong:?}"))?;
        let (interim, answer) = result?;
        Ok((interim, answer, seen))
    }
}

fn request(method: &str, sent: &Sent, target: &str) -> (Vec<u8>, Vec<u8>) {
    let body = content(sent.length.unwrap_or(0));
    let framing = match (sent.length, sent.chunk) {
        (_, Some(_)) => "Transfer-Encoding: chunked\r\n".to_owned(),
        (Some(length), None) => format!("Content-Length: {length}\r\n"),
        (None, None) => String::new(),
    };
    let expect = if sent.expects { "Expect: 100-continue\r\n" } else { "" };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{framing}{expect}\r\n");
    let body = match sent.chunk {
        Some(size) => chunked(&body, size, TRAILERS),
        None => body,
    };
    (head.into_bytes(), body)
}

/// The body only when it is asked for.
fn expecting(
    caller: &mut Caller,
    method: &str,
    head: &[u8],
    body: &[u8],
) -> Result<(Vec<Message>, Message), String> {
    let failed = |wrong: Wrong| format!("{wrong:?}");
    caller.send(head).map_err(|error| error.to_string())?;
    let go_on = caller.reader.response(method).map_err(failed)?;
    hold(go_on.status() == 100, || format!("no 100, but {go_on:?}"))?;
    caller.send(body).map_err(|error| error.to_string())?;
    caller.reader.answer(method).map_err(failed)
}

fn check_seen(seen: &Message, method: &str, sent: &Sent, target: &str) -> Result<(), String> {
    let wanted = content(sent.length.unwrap_or(0));
    hold(seen.start == format!("{method} {target} HTTP/1.1"), || format!("start {seen:?}"))?;
    hold(seen.body == wanted, || format!("want {}, seen {seen:?}", digest(&wanted)))?;
    let framed = match (sent.length, sent.chunk) {
        (_, Some(_)) => seen.framing == Framing::Chunked,
        (Some(length), None) => seen.framing == Framing::Length(length),
        // Servers may take a method to need a length.
        (None, None) => matches!(seen.framing, Framing::None | Framing::Length(0)),
    };
    hold(framed, || format!("framing of {seen:?}"))?;
    let trailers = if sent.chunk.is_some() { 2 } else { 0 };
    hold(seen.trailers.len() == trailers, || format!("trailers of {seen:?}"))
}

fn check_answer(
    interim: &[Message],
    answer: &Message,
    method: &str,
    status: u16,
    answered: Answered,
) -> Result<(), String> {
    let bodiless = method == "HEAD" || matches!(status, 204 | 304);
    let wanted = content(if bodiless { 0 } else { answered.length() });
    hold(answer.status() == status, || format!("status of {answer:?}"))?;
    hold(answer.body == wanted, || format!("want {}, got {answer:?}", digest(&wanted)))?;
    hold(answer.one("x-end") == Some("1"), || format!("fields of {answer:?}"))?;
    if let Answered::Length(length) | Answered::Interim(length) = answered
        && status != 204
    {
        let length = length.to_string();
        let said = answer.one("content-length") == Some(length.as_str());
        hold(said || (bodiless && answer.one("content-length").is_none()), || {
            format!("length of {answer:?}")
        })?;
    }
    if matches!(answered, Answered::Trailers(_)) && !bodiless {
        hold(answer.trailers.len() == 2, || format!("trailers of {answer:?}"))?;
    }
    let mut statuses: Vec<u16> = interim.iter().map(Message::status).collect();
    statuses.retain(|status| *status != 100);
    let links: usize = interim.iter().map(|message| message.all("link").len()).sum();
    match answered {
        Answered::Interim(_) => {
            hold(statuses == [102, 103, 103] && links == 3, || format!("interim {interim:?}"))
        }
        _ => hold(statuses.is_empty(), || format!("interim {interim:?}")),
    }
}

fn every_method_with_every_request_framing(subject: Subject) {
    let mut scene = Scene::new(subject);
    let mut failures = Failures::of(subject, HAPROXYS);
    for method in METHODS {
        for sent in SENT {
            for (index, answered) in ANSWERED.iter().enumerate() {
                // Large both ways is once enough.
                if sent.length == Some(LARGE) && answered.length() == LARGE && *method != "PUT" {
                    continue;
                }
                let target = format!("/200/{index}");
                let result = scene.exchange(method, sent, &target);
                let result = result.and_then(|(interim, answer, seen)| {
                    check_seen(&seen, method, sent, &target)?;
                    check_answer(&interim, &answer, method, 200, *answered)
                });
                failures.row(&format!("{method}, {}, {answered:?}", sent.name), result);
            }
        }
    }
    scene.proxy.assert_alive();
    failures.finish("methods × request framings × response framings");
}

fn every_method_with_every_response_framing_and_status(subject: Subject) {
    let mut scene = Scene::new(subject);
    let mut failures = Failures::of(subject, HAPROXYS);
    for method in METHODS {
        for status in STATUSES {
            for (index, answered) in ANSWERED.iter().enumerate() {
                if answered.length() == LARGE && *status != 206 {
                    continue;
                }
                let sent = &SENT[if *method == "POST" { 2 } else { 0 }];
                let target = format!("/{status}/{index}");
                let result = scene.exchange(method, sent, &target);
                let result = result.and_then(|(interim, answer, seen)| {
                    check_seen(&seen, method, sent, &target)?;
                    check_answer(&interim, &answer, method, *status, *answered)
                });
                failures.row(&format!("{method}, {status}, {answered:?}"), result);
            }
        }
    }
    scene.proxy.assert_alive();
    failures.finish("methods × statuses × response framings");
}

fn a_request_may_be_cut_anywhere(subject: Subject) {
    let mut scene = Scene::new(subject);
    let mut failures = Failures::of(subject, HAPROXYS);
    for sent in [&SENT[0], &SENT[2], &SENT[5]] {
        let (head, body) = request("POST", sent, "/200/1");
        let whole = [head, body].concat();
        for cut in 1..whole.len() {
            let caller = scene.caller();
            let sending = caller.send_split(&whole, &[cut]);
            let answer = caller.reader.answer("POST");
            let answer = answer.map_err(|wrong| format!("{sending:?}, then {wrong:?}"));
            let result = answer.and_then(|(interim, answer)| {
                check_answer(&interim, &answer, "POST", 200, ANSWERED[1])?;
                check_seen(&scene.origin.request(), "POST", sent, "/200/1")
            });
            if result.is_err() {
                scene.caller = None;
            }
            failures.row(&format!("{} cut at {cut}", sent.name), result);
        }
        // And in the smallest pieces that there are.
        let caller = scene.caller();
        let cuts: Vec<usize> = (1..whole.len()).collect();
        caller.send_split(&whole, &cuts).unwrap();
        let answer = caller.reader.answer("POST").unwrap().1;
        let result = check_answer(&[], &answer, "POST", 200, ANSWERED[1]);
        let seen = scene.origin.request();
        let result = result.and_then(|()| check_seen(&seen, "POST", sent, "/200/1"));
        failures.row(&format!("{} byte by byte", sent.name), result);
    }
    failures.finish("requests in two pieces");
}

fn a_response_may_be_cut_anywhere(subject: Subject) {
    let mut scene = Scene::new(subject);
    let mut failures = Failures::of(subject, HAPROXYS);
    for (index, answered) in ANSWERED.iter().enumerate() {
        let (bytes, closes) = answered.bytes("GET", 200);
        if closes || bytes.len() > 1000 {
            continue;
        }
        // HAProxy 2.6 stalls when a body comes later than its head and both come after 1xx.
        if subject == Subject::Haproxy && matches!(answered, Answered::Interim(_)) {
            continue;
        }
        for cut in 1..bytes.len() {
            let result = scene.exchange("GET", &SENT[0], &format!("/200/{index}/{cut}"));
            let result = result.and_then(|(interim, answer, _)| {
                check_answer(&interim, &answer, "GET", 200, *answered)
            });
            failures.row(&format!("{answered:?} cut at {cut}"), result);
        }
    }
    failures.finish("responses in two pieces");
}

/// RFC 9112 §6.1 and §7.1, RFC 9110 §15.2: a client of HTTP/1.0 gets neither chunks nor 1xx.
fn http_1_0_clients_get_every_answer(subject: Subject) {
    let scene = Scene::new(subject);
    let mut failures = Failures::of(subject, HAPROXYS);
    for method in ["GET", "HEAD", "POST"] {
        for (index, answered) in ANSWERED.iter().enumerate() {
            for fields in ["", "Host: a.example\r\n", "Connection: keep-alive\r\nHost: a\r\n"] {
                let length = if method == "POST" { "Content-Length: 5\r\n" } else { "" };
                let body = if method == "POST" { "hello" } else { "" };
                let request =
                    format!("{method} /200/{index} HTTP/1.0\r\n{fields}{length}\r\n{body}");
                let mut caller = scene.proxy.connect();
                caller.send(request.as_bytes()).unwrap();
                let answer = caller.reader.answer(method);
                let seen = scene.origin.next().map(|seen| seen.request);
                let result = answer.map_err(|wrong| format!("{wrong:?}, seen {seen:?}"));
                let result = result.and_then(|(interim, answer)| {
                    hold(interim.is_empty(), || format!("interim {interim:?}"))?;
                    let coded = answer.all("transfer-encoding");
                    hold(coded.is_empty(), || format!("chunks: {answer:?}"))?;
                    let wanted = if method == "HEAD" { 0 } else { answered.length() };
                    hold(answer.body == content(wanted), || format!("body of {answer:?}"))?;
                    let stays = answer.lists("connection", "keep-alive");
                    let asked = fields.contains("keep-alive");
                    hold(asked || !stays, || format!("kept alive unasked: {answer:?}"))?;
                    let over = stays || caller.reader.rest().is_empty();
                    hold(over, || format!("bytes after {answer:?}"))
                });
                let seen = matches!(seen, Some(Ok(_)));
                let result = result.and_then(|()| hold(seen, || "the origin's view".to_owned()));
                failures.row(&format!("{method} {answered:?} {fields:?}"), result);
            }
        }
    }
    failures.finish("HTTP/1.0 clients");
}
