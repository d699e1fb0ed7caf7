//! Handshake of WebSocket on a new connection.

use std::future::poll_fn;
use std::task::Poll;

use rt::clock::now_ns;
use rt::stream::Stream;
use wire::websocket::{check_response, key_value};
use wire::{Parsed, RequestKind, head_may_be_complete, header_slots, parse_response};

use crate::client::dialer::{Dialer, OpenError};
use crate::core_state::CoreState;
use crate::failure::{FailureKind, RequestPhase};
use crate::plan::RenderedRequest;

/// A connection after its handshake, with the bytes behind the response.
pub(super) struct OpenedWebSocket {
    pub(super) stream: Stream,
    pub(super) rest: Vec<u8>,
    pub(super) handshake_ns: u64,
}

/// Sends the request of the handshake with a random key, and checks the response.
pub(super) async fn open(
    dialer: &Dialer,
    mut stream: Stream,
    request: &RenderedRequest,
    random: [u8; 16],
) -> Result<OpenedWebSocket, OpenError> {
    let key = key_value(random);
    let begun_ns = now_ns();
    // A rendered request without content ends with an empty line.
    let mut bytes = request.bytes[..request.bytes.len() - 2].to_vec();
    bytes.extend_from_slice(format!("Sec-WebSocket-Key: {key}\r\n\r\n").as_bytes());
    let core = &dialer.core;
    let (mut written, mut bytes_in, mut received, mut interim_count) = (0, 0, Vec::new(), 0);
    let done = poll_fn(|cx| {
        loop {
            if let Some(kind) = dialer.interruption() {
                return Poll::Ready(Err((kind, kind.name().to_owned())));
            }
            let io_error = |error: std::io::Error| (FailureKind::from_io_error(&error), error.to_string());
            while written < bytes.len() {
                match stream.poll_write(cx, &bytes[written..]) {
                    Poll::Ready(Ok(count)) => written += count,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(io_error(error))),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let mut scratch = core.scratch.borrow_mut();
            match stream.poll_read(cx, &mut scratch) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(io_error(error))),
                Poll::Ready(Ok(0)) => {
                    let text = "the server closed the connection".to_owned();
                    return Poll::Ready(Err((FailureKind::Closed, text)));
                }
                Poll::Ready(Ok(count)) => {
                    bytes_in += count as u64;
                    received.extend_from_slice(&scratch[..count]);
                    // A server that sends its head in drips must not cause a parse for every byte.
                    if !head_may_be_complete(&scratch[..count]) && received.len() < core.limits.head_bytes_max
                    {
                        continue;
                    }
                }
            }
            match response(&mut received, &mut interim_count, core, &key, request) {
                Ok(None) => {}
                Ok(Some(head_bytes)) => return Poll::Ready(Ok(head_bytes)),
                Err((kind, fault)) => return Poll::Ready(Err((kind, fault))),
            }
        }
    })
    .await;
    let mut recorder = core.recorder.borrow_mut();
    recorder.counters.bytes_out += written as u64;
    recorder.counters.bytes_in += bytes_in;
    match done {
        Ok(head_bytes) => {
            let rest = received.split_off(head_bytes);
            Ok(OpenedWebSocket { stream, rest, handshake_ns: now_ns() - begun_ns })
        }
        Err((kind, text)) => {
            let fault = if kind == FailureKind::Upgrade { text.as_str() } else { kind.name() };
            recorder.counters.live.count_fault(format!("handshake_{fault}"));
            Err(OpenError::new(RequestPhase::FirstByte, (kind, format!("WebSocket handshake: {text}"))))
        }
    }
}

/// Checks the response to the handshake. Returns the length of its head, or `None` if it is incomplete. Removes interim
/// responses, so that their bytes are parsed once.
fn response(
    received: &mut Vec<u8>,
    interim_count: &mut u32,
    core: &CoreState,
    key: &str,
    request: &RenderedRequest,
) -> Result<Option<usize>, (FailureKind, String)> {
    let is_protocol = |name: &str| name.eq_ignore_ascii_case("sec-websocket-protocol");
    let offered = request.fields.iter().filter(|(name, _)| is_protocol(name));
    let offered: Vec<&str> = offered.map(|(_, value)| value.as_str()).collect();
    let malformed = |refusal, received: &[u8]| {
        let kind = core.note_malformed(refusal, received);
        (kind, kind.name().to_owned())
    };
    loop {
        let mut slots = header_slots();
        match parse_response(received, &core.limits, RequestKind::Other, &mut slots) {
            Ok(Parsed::Incomplete) => return Ok(None),
            Ok(Parsed::Complete { head, bytes })
                if head.is_informational() && !head.is_switching_protocols() =>
            {
                *interim_count += 1;
                let checked = core.limits.check_interim(*interim_count);
                checked.map_err(|refusal| malformed(refusal, received))?;
                received.drain(..bytes);
            }
            Ok(Parsed::Complete { head, bytes }) => {
                let checked = check_response(&head, key, &offered.join(","));
                return checked
                    .map(|()| Some(bytes))
                    .map_err(|fault| (FailureKind::Upgrade, fault.to_string()));
            }
            Err(refusal) => return Err(malformed(refusal, received)),
        }
    }
}
