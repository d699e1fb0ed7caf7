//! The request of a check over HTTP/2, on a connection of its own.

use rt::address::Address;
use rt::stream::Stream;
use wire::h2::{Config, Connection, ErrorCode, Event, Role};

use super::probe::{
    BODY_BYTES_MAX, CheckFailure, CheckResult, HEAD_BYTES_MAX, TextSearch, check_status, host_of,
    missing_text, receive, send,
};
use crate::plan::HttpCheck;

/// Response as far as it is received.
#[derive(Debug, Default)]
struct CheckedResponse {
    status: Option<u16>,
    content: Vec<u8>,
    search: TextSearch,
    is_complete: bool,
}

pub(super) async fn check(
    stream: &mut Stream,
    check: &HttpCheck,
    target: &Address,
) -> Result<(), CheckFailure> {
    let config = Config { head_bytes_max: HEAD_BYTES_MAX, ..Config::default() };
    let mut wire = Connection::new(Role::Client, &config);
    send_request(&mut wire, stream.is_tls(), check, target)?;
    let mut response = CheckedResponse::default();
    let mut input = Vec::new();
    let result = loop {
        send(stream, &std::mem::take(wire.output())).await?;
        if let Some(result) = response.evaluate(check) {
            break result;
        }
        if !receive(stream, &mut input).await? {
            let message = "the connection ended before a response";
            break Err(CheckFailure::new(CheckResult::Closed, message));
        }
        let used = response.handle_events(&mut wire, &input)?;
        input.drain(..used);
    };
    wire.go_away(ErrorCode::NO_ERROR, true);
    // The result does not depend on it.
    let _ = send(stream, wire.output()).await;
    result
}

fn send_request(
    wire: &mut Connection,
    is_tls: bool,
    check: &HttpCheck,
    target: &Address,
) -> Result<(), CheckFailure> {
    let key = wire
        .open_stream()
        .map_err(|_| CheckFailure::new(CheckResult::Malformed, "the server accepts no streams"))?;
    let scheme = if is_tls { "https" } else { "http" };
    wire.send_headers(key, true, |encoder| {
        encoder.request(&check.method, Some(scheme), Some(&host_of(check, target)), Some(&check.path));
        let has = |name: &str| check.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        if !has("user-agent") {
            encoder.field("user-agent", b"weir-check");
        }
        for (name, value) in &check.headers {
            encoder.field(name, value.as_bytes());
        }
        if matches!(&*check.method, "POST" | "PUT" | "PATCH") {
            encoder.field("content-length", b"0");
        }
    });
    Ok(())
}

impl CheckedResponse {
    /// Handles received bytes. Returns the number of bytes used.
    fn handle_events(&mut self, wire: &mut Connection, input: &[u8]) -> Result<usize, CheckFailure> {
        let mut at = 0;
        loop {
            let (used, event) = wire.next_event(&input[at..]).map_err(|fault| {
                CheckFailure::new(CheckResult::Malformed, format!("invalid response: {fault}"))
            })?;
            at += used;
            let consumed = match event {
                None => return Ok(at),
                Some(Event::Response { head, is_end, .. }) => {
                    if head.status >= 200 {
                        self.status = Some(head.status);
                    }
                    self.is_complete |= is_end;
                    None
                }
                Some(Event::Data { stream, bytes, is_end }) => {
                    self.content.extend_from_slice(bytes);
                    self.is_complete |= is_end;
                    Some((stream, bytes.len()))
                }
                Some(Event::Trailers { .. }) => {
                    self.is_complete = true;
                    None
                }
                Some(Event::Reset { code, .. }) => {
                    let message = format!("the server reset the stream: {}", code.name());
                    return Err(CheckFailure::new(CheckResult::Closed, message));
                }
                Some(_) => None,
            };
            if let Some((stream, bytes)) = consumed {
                wire.consume(stream, bytes);
            }
        }
    }

    /// Returns the result of the check; `None` if more must be received.
    fn evaluate(&mut self, check: &HttpCheck) -> Option<Result<(), CheckFailure>> {
        let status = self.status?;
        if let Err(failure) = check_status(check, status) {
            return Some(Err(failure));
        }
        let Some(expected) = &check.body else { return Some(Ok(())) };
        if self.search.finds(expected.as_bytes(), &self.content) {
            return Some(Ok(()));
        }
        let is_over = self.is_complete || self.content.len() >= BODY_BYTES_MAX;
        is_over.then(|| Err(missing_text(expected)))
    }
}
