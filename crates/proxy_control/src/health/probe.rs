//! One check of one server: connects, sends a request, and returns the result. `state_machine`
//! derives the server's state from it.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rt::address::Address;
use rt::namespace::Namespace;
use rt::stream::Stream;
use wire::{BodyDecoder, Limits, Parsed, RequestKind, encode};

use super::agent::{self, AgentReport, LINE_BYTES_MAX};
use super::probe_http2;
use crate::dial::SourceAddresses;
use crate::plan::{ALPN_HTTP2, CheckKind, CheckPlan, HttpCheck, PoolTls, ServerHttp};
use wire::proxy_protocol;

code_table! {
    /// Result code of a check.
    pub(super) enum CheckResult:
    Passed, "passed";
    Unreachable, "unreachable";
    Timeout, "timeout";
    Tls, "tls";
    Closed, "closed";
    Malformed, "malformed";
    Status, "status";
    Body, "body";
    Agent, "agent";
    Skipped, "skipped";
}

/// Reason why a check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckFailure {
    pub(super) result: CheckResult,
    pub(super) message: String,
}

impl CheckFailure {
    pub(super) fn new(result: CheckResult, message: impl Into<String>) -> Self {
        Self { result, message: message.into() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct CheckSpec {
    pub(super) target: Address,
    pub(super) plan: CheckPlan,
    /// PROXY header version that the pool sends at the start of each connection.
    pub(super) proxy_protocol: Option<proxy_protocol::ProxyVersion>,
    /// TLS of the pool, and the name that the server has to prove.
    pub(super) tls: Option<(PoolTls, String)>,
}

/// Maximum number of bytes of a response's content that are searched.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of a response's head in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Performs one check. The result contains an agent's report. The caller must enforce the timeout.
pub(super) async fn run_check(
    spec: &CheckSpec,
    sources: &SourceAddresses,
    namespace: Option<&Namespace>,
) -> Result<AgentReport, CheckFailure> {
    let connected = sources.connect(&spec.target, namespace).await;
    let mut stream = connected.map_err(|error| match rt::dial::is_exhausted(&error) {
        true => CheckFailure::new(CheckResult::Skipped, format!("check skipped: {error}")),
        false => CheckFailure::new(CheckResult::Unreachable, format!("no connection: {error}")),
    })?;
    let mut out = Vec::new();
    if let Some(version) = spec.proxy_protocol {
        // The connection is the proxy's own, without a client.
        proxy_protocol::write_header(version, None, None, &mut out);
    }
    if let Some((tls, server_name)) = &spec.tls {
        send(&mut stream, &out).await?;
        out.clear();
        stream = secure(stream, tls, server_name).await?;
    }
    match &spec.plan.kind {
        CheckKind::Tcp => {
            send(&mut stream, &out).await?;
            Ok(AgentReport::default())
        }
        CheckKind::Agent { send: text } => {
            out.extend_from_slice(text.as_bytes());
            send(&mut stream, &out).await?;
            let line = read_line(&mut stream).await?;
            agent::parse(&line).ok_or_else(|| {
                let line = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                CheckFailure::new(CheckResult::Malformed, format!("invalid line from the agent: {line:?}"))
            })
        }
        CheckKind::Http(check) if uses_http2(&stream, spec)? => {
            send(&mut stream, &out).await?;
            probe_http2::check(&mut stream, check, &spec.target).await.map(|()| AgentReport::default())
        }
        CheckKind::Http(check) => {
            write_request(check, &spec.target, &mut out);
            send(&mut stream, &out).await?;
            check_response(&mut stream, check).await.map(|()| AgentReport::default())
        }
    }
}

/// Establishes the TLS session of a check.
async fn secure(stream: Stream, tls: &PoolTls, server_name: &str) -> Result<Stream, CheckFailure> {
    let failed =
        |error: io::Error| CheckFailure::new(CheckResult::Tls, format!("TLS handshake failed: {error}"));
    let mut stream = stream.connect_tls(&tls.client, server_name).map_err(failed)?;
    poll_fn(|cx| stream.poll_handshake(cx)).await.map_err(failed)?;
    Ok(stream)
}

/// Returns whether the check of a connected server uses HTTP/2.
fn uses_http2(stream: &Stream, spec: &CheckSpec) -> Result<bool, CheckFailure> {
    let http = spec.plan.http;
    let Some(info) = stream.tls_info() else { return Ok(http == ServerHttp::Http2) };
    match info.alpn.as_deref() == Some(ALPN_HTTP2) {
        false if http == ServerHttp::Http2 => {
            let message = "the server did not choose HTTP/2 in the TLS handshake (ALPN)";
            Err(CheckFailure::new(CheckResult::Tls, message))
        }
        is_chosen => Ok(is_chosen),
    }
}

pub(super) fn host_of(check: &HttpCheck, target: &Address) -> String {
    match (&check.host, target) {
        (Some(host), _) => host.to_string(),
        (None, Address::Tcp(address)) => address.to_string(),
        (None, Address::Unix(_)) => "localhost".to_owned(),
    }
}

fn write_request(check: &HttpCheck, target: &Address, out: &mut Vec<u8>) {
    let host = host_of(check, target);
    for part in [&*check.method, " ", &*check.path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    encode::field(out, "Host", host.as_bytes());
    let has = |name: &str| check.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    if !has("user-agent") {
        encode::field(out, "User-Agent", b"weir-check");
    }
    for (name, value) in &check.headers {
        encode::field(out, name, value.as_bytes());
    }
    if matches!(&*check.method, "POST" | "PUT" | "PATCH") {
        encode::field_u64(out, "Content-Length", 0);
    }
    encode::field(out, "Connection", b"close");
    encode::end_of_head(out);
}

fn connection_lost(error: &io::Error) -> CheckFailure {
    CheckFailure::new(CheckResult::Closed, format!("the connection was lost: {error}"))
}

pub(super) async fn send(stream: &mut Stream, mut bytes: &[u8]) -> Result<(), CheckFailure> {
    poll_fn(|cx| {
        while !bytes.is_empty() {
            match stream.poll_write(cx, bytes) {
                Poll::Ready(Ok(sent)) => bytes = &bytes[sent..],
                Poll::Ready(Err(error)) => return Poll::Ready(Err(connection_lost(&error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// Appends received data to `bytes`. Returns `false` at the end of the stream.
pub(super) async fn receive(stream: &mut Stream, bytes: &mut Vec<u8>) -> Result<bool, CheckFailure> {
    let mut buffer = [0; 4_096];
    let read = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await;
    let read = read.map_err(|error| connection_lost(&error))?;
    bytes.extend_from_slice(&buffer[..read]);
    Ok(read > 0)
}

async fn read_line(stream: &mut Stream) -> Result<Vec<u8>, CheckFailure> {
    let mut bytes = Vec::new();
    loop {
        let has_more = receive(stream, &mut bytes).await?;
        let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        if let Some(end) = end {
            bytes.truncate(end);
            return Ok(bytes);
        }
        match has_more {
            _ if bytes.len() > LINE_BYTES_MAX => {
                return Err(CheckFailure::new(CheckResult::Malformed, "the agent's line is too long"));
            }
            // HAProxy requires the end of the line, but agents that only close are common.
            false if !bytes.is_empty() => return Ok(bytes),
            false => return Err(CheckFailure::new(CheckResult::Closed, "the agent sent no line")),
            true => {}
        }
    }
}

/// A response's head: its status, its framing, and where its content starts.
struct CheckResponse {
    status: u16,
    decoder: BodyDecoder,
    bytes: usize,
}

fn read_head(bytes: &[u8], kind: RequestKind) -> Result<Option<CheckResponse>, CheckFailure> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, ..Limits::default() };
    let mut at = 0;
    loop {
        let mut slots = wire::header_slots();
        match wire::parse_response(&bytes[at..], &limits, kind, &mut slots) {
            Ok(Parsed::Complete { head, bytes }) if head.is_informational() => at += bytes,
            Ok(Parsed::Complete { head, bytes }) => {
                let decoder = BodyDecoder::new(head.framing, &limits);
                return Ok(Some(CheckResponse { status: head.status, decoder, bytes: at + bytes }));
            }
            Ok(Parsed::Incomplete) if bytes.len() < 4 * HEAD_BYTES_MAX => return Ok(None),
            Ok(_) => {
                return Err(CheckFailure::new(CheckResult::Malformed, "too many interim responses"));
            }
            Err(refusal) => {
                return Err(CheckFailure::new(
                    CheckResult::Malformed,
                    format!("invalid response: {refusal}"),
                ));
            }
        }
    }
}

async fn check_response(stream: &mut Stream, check: &HttpCheck) -> Result<(), CheckFailure> {
    let kind = RequestKind::from_method(&check.method);
    let mut bytes = Vec::new();
    let head = loop {
        let received = bytes.len();
        let has_more = receive(stream, &mut bytes).await?;
        // A server that sends single bytes causes a parse for each line, and not for each byte.
        let is_worth_parsing = received == 0
            || !has_more
            || bytes.len() >= HEAD_BYTES_MAX
            || wire::head_may_be_complete(&bytes[received..]);
        if is_worth_parsing && let Some(head) = read_head(&bytes, kind)? {
            break head;
        }
        if !has_more {
            return Err(CheckFailure::new(CheckResult::Closed, "the connection ended before a response"));
        }
    };
    let CheckResponse { status, mut decoder, bytes: head_bytes } = head;
    check_status(check, status)?;
    let Some(expected) = &check.body else { return Ok(()) };
    bytes.drain(..head_bytes);
    let mut content = Vec::new();
    let mut search = TextSearch::default();
    loop {
        let is_complete = decode(&mut decoder, &mut bytes, &mut content)?;
        if search.finds(expected.as_bytes(), &content) {
            return Ok(());
        }
        let is_full = content.len() >= BODY_BYTES_MAX;
        if is_complete || is_full || !receive(stream, &mut bytes).await? {
            return Err(missing_text(expected));
        }
    }
}

/// Search of a text in content that arrives: it reads each byte once, whatever pieces it comes in.
#[derive(Debug, Default)]
pub(super) struct TextSearch {
    /// Number of bytes in which the text does not begin.
    searched: usize,
}

impl TextSearch {
    /// Returns whether `text` is in `content`, which has grown since the last call.
    pub(super) fn finds(&mut self, text: &[u8], content: &[u8]) -> bool {
        let rest = &content[self.searched.min(content.len())..];
        let is_found = memchr::memmem::find(rest, text).is_some();
        self.searched = content.len().saturating_sub(text.len().saturating_sub(1)).max(self.searched);
        is_found
    }
}

pub(super) fn check_status(check: &HttpCheck, status: u16) -> Result<(), CheckFailure> {
    if check.statuses.contains(status) {
        return Ok(());
    }
    let message = format!("http status {status}, expected {}", check.statuses);
    Err(CheckFailure::new(CheckResult::Status, message))
}

/// Returns the failure of a response without the expected text.
pub(super) fn missing_text(expected: &str) -> CheckFailure {
    CheckFailure::new(CheckResult::Body, format!("{expected:?} is not in the content"))
}

/// Moves decoded data to `content`. Returns whether the content has ended.
fn decode(
    decoder: &mut BodyDecoder,
    bytes: &mut Vec<u8>,
    content: &mut Vec<u8>,
) -> Result<bool, CheckFailure> {
    let mut at = 0;
    loop {
        let step = decoder.decode(&bytes[at..]).map_err(|refusal| {
            CheckFailure::new(CheckResult::Malformed, format!("invalid response: {refusal}"))
        })?;
        content.extend_from_slice(&bytes[at..][step.data.clone()]);
        at += step.consumed;
        if decoder.is_done() || step.consumed == 0 {
            bytes.drain(..at);
            return Ok(decoder.is_done());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_across_every_split_and_each_byte_is_searched_once() {
        let content = b"abcabdabcabc";
        for (text, is_there) in [("abcabc", true), ("cabd", true), ("c", true), ("abdd", false), ("", true)] {
            for split in 0..=content.len() {
                let mut search = TextSearch::default();
                let found = search.finds(text.as_bytes(), &content[..split])
                    || search.finds(text.as_bytes(), content);
                assert_eq!(found, is_there, "{text} at {split}");
            }
        }
        let mut search = TextSearch::default();
        for end in 0..=content.len() {
            assert!(!search.finds(b"xyz", &content[..end]));
            assert_eq!(search.searched, end.saturating_sub(2));
        }
    }

    #[test]
    fn a_request_is_one_complete_head() {
        let check = HttpCheck {
            method: "GET".into(),
            path: "/health?a=1".into(),
            host: None,
            headers: vec![("X-A".into(), "b".into())],
            statuses: crate::plan::Statuses(vec![200..=299]),
            body: None,
        };
        let mut out = Vec::new();
        write_request(&check, &Address::Tcp("127.0.0.1:81".parse().unwrap()), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "GET /health?a=1 HTTP/1.1\r\nHost: 127.0.0.1:81\r\nUser-Agent: weir-check\r\n\
             X-A: b\r\nConnection: close\r\n\r\n"
        );
        let named = HttpCheck {
            host: Some("app".into()),
            method: "POST".into(),
            headers: vec![("user-agent".into(), "me".into())],
            ..check
        };
        let mut out = Vec::new();
        write_request(&named, &Address::Unix("/a".into()), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("Host: app\r\nuser-agent: me\r\nContent-Length: 0\r\n"), "{text}");
    }

    #[test]
    fn interim_responses_are_skipped() {
        let bytes = b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 No\r\n\r\n";
        for end in 0..bytes.len() {
            assert!(read_head(&bytes[..end], RequestKind::Other).unwrap().is_none(), "{end}");
        }
        let head = read_head(bytes, RequestKind::Other).unwrap().unwrap();
        assert_eq!((head.status, head.bytes), (204, bytes.len()));
        assert!(read_head(b"SSH-2.0-x\r\n", RequestKind::Other).is_err());
    }
}
