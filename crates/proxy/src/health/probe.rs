//! One check of one server: connects, asks, and says what came of it. What that means for the server
//! is `machine`'s.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rt::address::Address;
use rt::namespace::Namespace;
use rt::stream::Stream;
use wire::{BodyDecoder, Limits, Parsed, RequestKind, encode};

use super::agent::{self, LINE_BYTES_MAX, Said};
use crate::plan::{CheckKind, CheckPlan, HttpCheck, ProxyVersion};
use crate::proxy_protocol;

macro_rules! results {
    ($($variant:ident, $code:literal;)*) => {
        /// What came of a check.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Came {
            $($variant,)*
        }

        impl Came {
            pub(super) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// In `snake_case`, stable.
            pub(super) fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    };
}

results! {
    Passed, "passed";
    Unreachable, "unreachable";
    Timeout, "timeout";
    Closed, "closed";
    Malformed, "malformed";
    Status, "status";
    Body, "body";
    Agent, "agent";
    NotMade, "not_made";
}

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) came: Came,
    /// As it is said to people.
    pub(super) text: String,
}

impl Failed {
    pub(super) fn new(came: Came, text: impl Into<String>) -> Self {
        Self { came, text: text.into() }
    }
}

/// What a check is made with.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) target: Address,
    pub(super) plan: CheckPlan,
    /// What the pool sends at the start of each connection.
    pub(super) proxy_protocol: Option<ProxyVersion>,
}

/// Bytes of a response's content that are looked at.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Makes one check; an agent's words are in what it brings. Nothing here ends it in time.
pub(super) async fn probe(job: &Job, namespace: Option<&Namespace>) -> Result<Said, Failed> {
    let connected = rt::dial::connect_in(&job.target, None, namespace).await;
    let mut stream = connected.map_err(|error| match rt::dial::is_exhausted(&error) {
        true => Failed::new(Came::NotMade, format!("the check was not made: {error}")),
        false => Failed::new(Came::Unreachable, format!("no connection: {error}")),
    })?;
    let mut out = Vec::new();
    if let Some(version) = job.proxy_protocol {
        // The connection is our own.
        proxy_protocol::write(version, None, None, &mut out);
    }
    match &job.plan.kind {
        CheckKind::Tcp => {
            send(&mut stream, &out).await?;
            Ok(Said::default())
        }
        CheckKind::Agent { send: text } => {
            out.extend_from_slice(text.as_bytes());
            send(&mut stream, &out).await?;
            let line = read_line(&mut stream).await?;
            agent::parse(&line).ok_or_else(|| {
                let line = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                Failed::new(Came::Malformed, format!("the agent says {line:?}"))
            })
        }
        CheckKind::Http(check) => {
            write_request(check, &job.target, &mut out);
            send(&mut stream, &out).await?;
            judge_response(&mut stream, check).await.map(|()| Said::default())
        }
    }
}

fn write_request(check: &HttpCheck, target: &Address, out: &mut Vec<u8>) {
    let target = match target {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(_) => "localhost".to_owned(),
    };
    let host = check.host.as_deref().unwrap_or(&target);
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

fn lost(error: &io::Error) -> Failed {
    Failed::new(Came::Closed, format!("the connection was lost: {error}"))
}

async fn send(stream: &mut Stream, mut bytes: &[u8]) -> Result<(), Failed> {
    poll_fn(|cx| {
        while !bytes.is_empty() {
            match stream.poll_write(cx, bytes) {
                Poll::Ready(Ok(sent)) => bytes = &bytes[sent..],
                Poll::Ready(Err(error)) => return Poll::Ready(Err(lost(&error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// Adds what comes to `bytes`; whether anything came before the end.
async fn receive(stream: &mut Stream, bytes: &mut Vec<u8>) -> Result<bool, Failed> {
    let mut buffer = [0; 4_096];
    let read = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await;
    let read = read.map_err(|error| lost(&error))?;
    bytes.extend_from_slice(&buffer[..read]);
    Ok(read > 0)
}

async fn read_line(stream: &mut Stream) -> Result<Vec<u8>, Failed> {
    let mut bytes = Vec::new();
    loop {
        let came = receive(stream, &mut bytes).await?;
        let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        if let Some(end) = end {
            bytes.truncate(end);
            return Ok(bytes);
        }
        match came {
            _ if bytes.len() > LINE_BYTES_MAX => {
                return Err(Failed::new(Came::Malformed, "the agent's line is too long"));
            }
            // HAProxy wants the end of the line; agents that only close are common.
            false if !bytes.is_empty() => return Ok(bytes),
            false => return Err(Failed::new(Came::Closed, "the agent said nothing")),
            true => {}
        }
    }
}

/// A response's head: its status, its framing, and where its content starts.
struct Head {
    status: u16,
    decoder: BodyDecoder,
    bytes: usize,
}

fn read_head(bytes: &[u8], kind: RequestKind) -> Result<Option<Head>, Failed> {
    let limits = Limits { head_bytes_max: HEAD_BYTES_MAX, ..Limits::default() };
    let mut at = 0;
    loop {
        let mut slots = wire::header_slots();
        match wire::parse_response(&bytes[at..], &limits, kind, &mut slots) {
            Ok(Parsed::Complete { head, bytes }) if head.informational() => at += bytes,
            Ok(Parsed::Complete { head, bytes }) => {
                let decoder = BodyDecoder::new(head.framing, &limits);
                return Ok(Some(Head { status: head.status, decoder, bytes: at + bytes }));
            }
            Ok(Parsed::Incomplete) if bytes.len() < 4 * HEAD_BYTES_MAX => return Ok(None),
            Ok(_) => return Err(Failed::new(Came::Malformed, "too many interim answers")),
            Err(refusal) => {
                return Err(Failed::new(Came::Malformed, format!("not an answer: {refusal}")));
            }
        }
    }
}

async fn judge_response(stream: &mut Stream, check: &HttpCheck) -> Result<(), Failed> {
    let kind = RequestKind::of(&check.method);
    let mut bytes = Vec::new();
    let head = loop {
        let came = receive(stream, &mut bytes).await?;
        if let Some(head) = read_head(&bytes, kind)? {
            break head;
        }
        if !came {
            return Err(Failed::new(Came::Closed, "the connection ended before an answer"));
        }
    };
    let Head { status, mut decoder, bytes: head_bytes } = head;
    if !check.statuses.contains(status) {
        let text = format!("http status {status}, expected {}", check.statuses);
        return Err(Failed::new(Came::Status, text));
    }
    let Some(wanted) = &check.body else { return Ok(()) };
    bytes.drain(..head_bytes);
    let mut content = Vec::new();
    loop {
        let ended = decode(&mut decoder, &mut bytes, &mut content)?;
        if memchr::memmem::find(&content, wanted.as_bytes()).is_some() {
            return Ok(());
        }
        let full = content.len() >= BODY_BYTES_MAX;
        if ended || full || !receive(stream, &mut bytes).await? {
            return Err(Failed::new(Came::Body, format!("no {wanted:?} in the content")));
        }
    }
}

/// Moves what is decoded to `content`; whether the content has ended.
fn decode(
    decoder: &mut BodyDecoder,
    bytes: &mut Vec<u8>,
    content: &mut Vec<u8>,
) -> Result<bool, Failed> {
    let mut at = 0;
    loop {
        let step = decoder
            .decode(&bytes[at..])
            .map_err(|refusal| Failed::new(Came::Malformed, format!("not an answer: {refusal}")))?;
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
    fn a_request_is_one_whole_head() {
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
    fn interim_answers_are_passed_over() {
        let bytes = b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 204 No\r\n\r\n";
        for end in 0..bytes.len() {
            assert!(read_head(&bytes[..end], RequestKind::Other).unwrap().is_none(), "{end}");
        }
        let head = read_head(bytes, RequestKind::Other).unwrap().unwrap();
        assert_eq!((head.status, head.bytes), (204, bytes.len()));
        assert!(read_head(b"SSH-2.0-x\r\n", RequestKind::Other).is_err());
    }
}
