//! Methods × framings × statuses, and every position at which a message can be cut in two.

use crate::proxy_matrix::{Failures, against_subject, chunked, content, ensure};
use crate::support::proxies::{
    ComparedProxy, OriginReply, ProxyKind, ProxySetup, RecordingOrigin, StrictClient,
};
use crate::support::strict_parser::{Framing, ReadError, StrictMessage, digest};

against_subject!(
    every_method_with_every_request_framing,
    every_method_with_every_response_framing_and_status,
    a_request_may_be_cut_anywhere,
    a_response_may_be_cut_anywhere,
    http_1_0_clients_get_every_answer,
);

const METHODS: &[&str] =
    &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "X-Our_own!"];
const STATUSES: &[u16] = &[200, 201, 204, 206, 301, 304, 400, 404, 500, 503];
/// Known deviations of HAProxy 2.6.
const HAPROXY_DEVIATIONS: &[(&str, &str)] =
    &[(": chunks: ", "an HTTP/1.0 client gets chunks"), (": interim [", "an HTTP/1.0 client gets 1xx")];
const LARGE_BYTES: usize = 1024 * 1024;
const TRAILERS: &str = "X-Check: abc\r\nX-Last: done\r\n";

/// Framing of a request: a name, the length of its content, and the chunk size, if any.
struct RequestFraming {
    name: &'static str,
    length: Option<usize>,
    chunk: Option<usize>,
    expects_continue: bool,
}

const REQUEST_FRAMINGS: &[RequestFraming] = &[
    RequestFraming { name: "none", length: None, chunk: None, expects_continue: false },
    RequestFraming { name: "length 0", length: Some(0), chunk: None, expects_continue: false },
    RequestFraming { name: "length small", length: Some(33), chunk: None, expects_continue: false },
    RequestFraming { name: "length large", length: Some(LARGE_BYTES), chunk: None, expects_continue: false },
    RequestFraming { name: "chunks none", length: Some(0), chunk: Some(1), expects_continue: false },
    RequestFraming { name: "chunks small", length: Some(33), chunk: Some(7), expects_continue: false },
    RequestFraming {
        name: "chunks large",
        length: Some(LARGE_BYTES),
        chunk: Some(70_001),
        expects_continue: false,
    },
    RequestFraming { name: "length expected", length: Some(1000), chunk: None, expects_continue: true },
    RequestFraming { name: "chunks expected", length: Some(1000), chunk: Some(300), expects_continue: true },
];

/// Framing of a response, with the length of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseFraming {
    Length(usize),
    /// In chunks of at most so many bytes.
    Chunks(usize, usize),
    /// In chunks, with trailers after the last one.
    Trailers(usize),
    UntilClose(usize),
    LengthAndClose(usize),
    /// From an HTTP/1.0 origin, to the end of the connection.
    Http10(usize),
    Http10Length(usize),
    /// After `102` and two `103`.
    Interim(usize),
}

const RESPONSE_FRAMINGS: &[ResponseFraming] = &[
    ResponseFraming::Length(0),
    ResponseFraming::Length(77),
    ResponseFraming::Length(LARGE_BYTES),
    ResponseFraming::Chunks(0, 1),
    ResponseFraming::Chunks(77, 9),
    ResponseFraming::Chunks(LARGE_BYTES, 65_537),
    ResponseFraming::Trailers(77),
    ResponseFraming::UntilClose(0),
    ResponseFraming::UntilClose(77),
    ResponseFraming::UntilClose(LARGE_BYTES),
    ResponseFraming::LengthAndClose(77),
    ResponseFraming::Http10(77),
    ResponseFraming::Http10Length(77),
    ResponseFraming::Interim(77),
];

impl ResponseFraming {
    fn length(self) -> usize {
        match self {
            Self::Length(length) | Self::Chunks(length, _) | Self::Trailers(length) => length,
            Self::UntilClose(length) | Self::LengthAndClose(length) | Self::Http10(length) => length,
            Self::Http10Length(length) | Self::Interim(length) => length,
        }
    }

    /// Returns the bytes of the response, and whether the connection ends with them.
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
            Self::Http10(_) => ("", 0, String::new(), body, true),
            Self::Http10Length(_) => ("", 0, length, body, true),
            Self::Interim(_) => (interim, 1, length, body, false),
        };
        // RFC 9110 §8.6 and RFC 9112 §6.1: 204 has neither field; 304 and HEAD may have both.
        let framing = if status == 204 { String::new() } else { framing };
        let bodiless = method == "HEAD" || matches!(status, 204 | 304);
        // Without a body, only this field announces the end of the connection.
        let framing = if bodiless && closes && !framing.contains(close) {
            format!("{close}{framing}")
        } else {
            framing
        };
        let head = format!("{before}HTTP/1.{version} {status} Yes it is\r\n{framing}X-End: 1\r\n\r\n");
        let mut bytes = head.into_bytes();
        if !bodiless {
            bytes.extend(body);
        }
        (bytes, closes)
    }
}

/// Starts an origin that responds to `/STATUS/INDEX…` with the framing of that index.
fn framing_origin() -> RecordingOrigin {
    RecordingOrigin::start(|request| {
        let mut words = request.target().split('/').skip(1);
        let status = words.next().and_then(|word| word.parse().ok()).unwrap_or(500);
        let index = words.next().and_then(|word| word.parse().ok()).unwrap_or(0_usize);
        let (bytes, closes) = RESPONSE_FRAMINGS[index].bytes(request.method(), status);
        // A third word is the position at which the response is cut in two.
        let cut = words.next().and_then(|word| word.parse::<usize>().ok());
        match (closes, cut.filter(|cut| *cut < bytes.len())) {
            (true, _) => OriginReply::Close(bytes),
            (false, Some(cut)) => OriginReply::KeepOpen(vec![bytes[..cut].to_vec(), bytes[cut..].to_vec()]),
            (false, None) => OriginReply::KeepOpen(vec![bytes]),
        }
    })
}

/// A proxy between this test and its origin, with one connection that is reused as long as
/// possible.
struct MatrixSetup {
    origin: RecordingOrigin,
    proxy: ComparedProxy,
    caller: Option<StrictClient>,
}

impl MatrixSetup {
    fn new(subject: ProxyKind) -> Self {
        let origin = framing_origin();
        let proxy = subject.start(origin.authority(), ProxySetup::default());
        Self { origin, proxy, caller: None }
    }

    fn client(&mut self) -> &mut StrictClient {
        self.caller.get_or_insert_with(|| self.proxy.connect())
    }

    /// Sends one request; checks the response and the request that the origin received.
    fn exchange(
        &mut self,
        method: &str,
        sent: &RequestFraming,
        target: &str,
    ) -> Result<(Vec<StrictMessage>, StrictMessage, StrictMessage), String> {
        let (head, body) = request(method, sent, target);
        let caller = self.client();
        let result = if sent.expects_continue {
            send_after_continue(caller, method, &head, &body)
        } else {
            let message_bytes = [head, body].concat();
            let sent = caller.send(&message_bytes);
            caller.reader.read_response(method).map_err(|wrong| format!("{sent:?}, then {wrong:?}"))
        };
        if !result.as_ref().is_ok_and(|(_, response)| response.persists()) {
            self.caller = None;
        }
        let received = self.origin.next_request().ok_or_else(|| format!("nothing seen, but {result:?}"))?;
        let received = received.request.map_err(|wrong| format!("the origin saw {wrong:?}"))?;
        let (interim, response) = result?;
        Ok((interim, response, received))
    }
}

fn request(method: &str, sent: &RequestFraming, target: &str) -> (Vec<u8>, Vec<u8>) {
    let body = content(sent.length.unwrap_or(0));
    let framing = match (sent.length, sent.chunk) {
        (_, Some(_)) => "Transfer-Encoding: chunked\r\n".to_owned(),
        (Some(length), None) => format!("Content-Length: {length}\r\n"),
        (None, None) => String::new(),
    };
    let expect = if sent.expects_continue { "Expect: 100-continue\r\n" } else { "" };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{framing}{expect}\r\n");
    let body = match sent.chunk {
        Some(size) => chunked(&body, size, TRAILERS),
        None => body,
    };
    (head.into_bytes(), body)
}

/// Sends the body only after `100 Continue`.
fn send_after_continue(
    caller: &mut StrictClient,
    method: &str,
    head: &[u8],
    body: &[u8],
) -> Result<(Vec<StrictMessage>, StrictMessage), String> {
    let failed = |wrong: ReadError| format!("{wrong:?}");
    caller.send(head).map_err(|error| error.to_string())?;
    let go_on = caller.reader.read_any_response(method).map_err(failed)?;
    ensure(go_on.status() == 100, || format!("no 100, but {go_on:?}"))?;
    caller.send(body).map_err(|error| error.to_string())?;
    caller.reader.read_response(method).map_err(failed)
}

fn check_request(
    received: &StrictMessage,
    method: &str,
    sent: &RequestFraming,
    target: &str,
) -> Result<(), String> {
    let expected = content(sent.length.unwrap_or(0));
    ensure(received.start == format!("{method} {target} HTTP/1.1"), || format!("start {received:?}"))?;
    ensure(received.body == expected, || format!("want {}, seen {received:?}", digest(&expected)))?;
    let framed = match (sent.length, sent.chunk) {
        (_, Some(_)) => received.framing == Framing::Chunked,
        (Some(length), None) => received.framing == Framing::Length(length),
        // Servers may require a length for a method.
        (None, None) => matches!(received.framing, Framing::None | Framing::Length(0)),
    };
    ensure(framed, || format!("framing of {received:?}"))?;
    let trailers = if sent.chunk.is_some() { 2 } else { 0 };
    ensure(received.trailers.len() == trailers, || format!("trailers of {received:?}"))
}

fn check_response(
    interim: &[StrictMessage],
    answer: &StrictMessage,
    method: &str,
    status: u16,
    answered: ResponseFraming,
) -> Result<(), String> {
    let bodiless = method == "HEAD" || matches!(status, 204 | 304);
    let expected = content(if bodiless { 0 } else { answered.length() });
    ensure(answer.status() == status, || format!("status of {answer:?}"))?;
    ensure(answer.body == expected, || format!("want {}, got {answer:?}", digest(&expected)))?;
    ensure(answer.single_value("x-end") == Some("1"), || format!("fields of {answer:?}"))?;
    if let ResponseFraming::Length(length) | ResponseFraming::Interim(length) = answered
        && status != 204
    {
        let length = length.to_string();
        let length_matches = answer.single_value("content-length") == Some(length.as_str());
        ensure(length_matches || (bodiless && answer.single_value("content-length").is_none()), || {
            format!("length of {answer:?}")
        })?;
    }
    if matches!(answered, ResponseFraming::Trailers(_)) && !bodiless {
        ensure(answer.trailers.len() == 2, || format!("trailers of {answer:?}"))?;
    }
    let mut statuses: Vec<u16> = interim.iter().map(StrictMessage::status).collect();
    statuses.retain(|status| *status != 100);
    let links: usize = interim.iter().map(|message| message.values("link").len()).sum();
    match answered {
        ResponseFraming::Interim(_) => {
            ensure(statuses == [102, 103, 103] && links == 3, || format!("interim {interim:?}"))
        }
        _ => ensure(statuses.is_empty(), || format!("interim {interim:?}")),
    }
}

fn every_method_with_every_request_framing(subject: ProxyKind) {
    let mut setup = MatrixSetup::new(subject);
    let mut failures = Failures::of(subject, HAPROXY_DEVIATIONS);
    for method in METHODS {
        for sent in REQUEST_FRAMINGS {
            for (index, framing) in RESPONSE_FRAMINGS.iter().enumerate() {
                // A large body both ways is tested once.
                if sent.length == Some(LARGE_BYTES) && framing.length() == LARGE_BYTES && *method != "PUT" {
                    continue;
                }
                let target = format!("/200/{index}");
                let result = setup.exchange(method, sent, &target);
                let result = result.and_then(|(interim, response, received)| {
                    check_request(&received, method, sent, &target)?;
                    check_response(&interim, &response, method, 200, *framing)
                });
                failures.check(&format!("{method}, {}, {framing:?}", sent.name), result);
            }
        }
    }
    setup.proxy.assert_alive();
    failures.finish("methods × request framings × response framings");
}

fn every_method_with_every_response_framing_and_status(subject: ProxyKind) {
    let mut setup = MatrixSetup::new(subject);
    let mut failures = Failures::of(subject, HAPROXY_DEVIATIONS);
    for method in METHODS {
        for status in STATUSES {
            for (index, framing) in RESPONSE_FRAMINGS.iter().enumerate() {
                if framing.length() == LARGE_BYTES && *status != 206 {
                    continue;
                }
                let sent = &REQUEST_FRAMINGS[if *method == "POST" { 2 } else { 0 }];
                let target = format!("/{status}/{index}");
                let result = setup.exchange(method, sent, &target);
                let result = result.and_then(|(interim, response, received)| {
                    check_request(&received, method, sent, &target)?;
                    check_response(&interim, &response, method, *status, *framing)
                });
                failures.check(&format!("{method}, {status}, {framing:?}"), result);
            }
        }
    }
    setup.proxy.assert_alive();
    failures.finish("methods × statuses × response framings");
}

fn a_request_may_be_cut_anywhere(subject: ProxyKind) {
    let mut setup = MatrixSetup::new(subject);
    let mut failures = Failures::of(subject, HAPROXY_DEVIATIONS);
    for sent in [&REQUEST_FRAMINGS[0], &REQUEST_FRAMINGS[2], &REQUEST_FRAMINGS[5]] {
        let (head, body) = request("POST", sent, "/200/1");
        let message_bytes = [head, body].concat();
        for cut in 1..message_bytes.len() {
            let caller = setup.client();
            let sending = caller.send_split(&message_bytes, &[cut]);
            let response = caller.reader.read_response("POST");
            let response = response.map_err(|wrong| format!("{sending:?}, then {wrong:?}"));
            let result = response.and_then(|(interim, answer)| {
                check_response(&interim, &answer, "POST", 200, RESPONSE_FRAMINGS[1])?;
                check_request(&setup.origin.valid_request(), "POST", sent, "/200/1")
            });
            if result.is_err() {
                setup.caller = None;
            }
            failures.check(&format!("{} cut at {cut}", sent.name), result);
        }
        // The same in single bytes.
        let caller = setup.client();
        let cuts: Vec<usize> = (1..message_bytes.len()).collect();
        caller.send_split(&message_bytes, &cuts).unwrap();
        let response = caller.reader.read_response("POST").unwrap().1;
        let result = check_response(&[], &response, "POST", 200, RESPONSE_FRAMINGS[1]);
        let received = setup.origin.valid_request();
        let result = result.and_then(|()| check_request(&received, "POST", sent, "/200/1"));
        failures.check(&format!("{} byte by byte", sent.name), result);
    }
    failures.finish("requests in two pieces");
}

fn a_response_may_be_cut_anywhere(subject: ProxyKind) {
    let mut setup = MatrixSetup::new(subject);
    let mut failures = Failures::of(subject, HAPROXY_DEVIATIONS);
    for (index, framing) in RESPONSE_FRAMINGS.iter().enumerate() {
        let (bytes, closes) = framing.bytes("GET", 200);
        if closes || bytes.len() > 1000 {
            continue;
        }
        // HAProxy 2.6 stalls when a body arrives later than its head and both follow 1xx.
        if subject == ProxyKind::Haproxy && matches!(framing, ResponseFraming::Interim(_)) {
            continue;
        }
        for cut in 1..bytes.len() {
            let result = setup.exchange("GET", &REQUEST_FRAMINGS[0], &format!("/200/{index}/{cut}"));
            let result = result
                .and_then(|(interim, response, _)| check_response(&interim, &response, "GET", 200, *framing));
            failures.check(&format!("{framing:?} cut at {cut}"), result);
        }
    }
    failures.finish("responses in two pieces");
}

/// RFC 9112 §6.1 and §7.1, RFC 9110 §15.2: a client of HTTP/1.0 gets neither chunks nor 1xx.
fn http_1_0_clients_get_every_answer(subject: ProxyKind) {
    let setup = MatrixSetup::new(subject);
    let mut failures = Failures::of(subject, HAPROXY_DEVIATIONS);
    for method in ["GET", "HEAD", "POST"] {
        for (index, framing) in RESPONSE_FRAMINGS.iter().enumerate() {
            for fields in ["", "Host: a.example\r\n", "Connection: keep-alive\r\nHost: a\r\n"] {
                let length = if method == "POST" { "Content-Length: 5\r\n" } else { "" };
                let body = if method == "POST" { "hello" } else { "" };
                let request = format!("{method} /200/{index} HTTP/1.0\r\n{fields}{length}\r\n{body}");
                let mut caller = setup.proxy.connect();
                caller.send(request.as_bytes()).unwrap();
                let response = caller.reader.read_response(method);
                let received = setup.origin.next_request().map(|seen| seen.request);
                let result = response.map_err(|wrong| format!("{wrong:?}, seen {received:?}"));
                let result = result.and_then(|(interim, response)| {
                    ensure(interim.is_empty(), || format!("interim {interim:?}"))?;
                    let coded = response.values("transfer-encoding");
                    ensure(coded.is_empty(), || format!("chunks: {response:?}"))?;
                    let expected = if method == "HEAD" { 0 } else { framing.length() };
                    ensure(response.body == content(expected), || format!("body of {response:?}"))?;
                    let stays = response.list_contains("connection", "keep-alive");
                    let wants_keep_alive = fields.contains("keep-alive");
                    ensure(wants_keep_alive || !stays, || format!("kept alive unasked: {response:?}"))?;
                    let over = stays || caller.reader.read_to_end().is_empty();
                    ensure(over, || format!("bytes after {response:?}"))
                });
                let was_received = matches!(received, Some(Ok(_)));
                let result = result.and_then(|()| ensure(was_received, || "the origin's view".to_owned()));
                failures.check(&format!("{method} {framing:?} {fields:?}"), result);
            }
        }
    }
    failures.finish("HTTP/1.0 clients");
}
