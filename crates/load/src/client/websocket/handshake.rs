//! Handshake of WebSocket on a new connection, with HTTP/1.1 (RFC 6455 §4) or HTTP/2 (RFC 8441).

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use rt::clock::now_ns;
use rt::stream::Stream;
use wire::websocket::{HandshakeFault, check_connect_response, check_response, key_value};
use wire::{Parsed, RequestKind, head_may_be_complete, header_slots, parse_response};

use crate::client::dialer::{Dialer, OpenError};
use crate::client::http2::Http2Tunnel;
use crate::client::transport::Transport;
use crate::core_state::CoreState;
use crate::failure::{FailureKind, RequestPhase};
use crate::plan::RenderedRequest;

/// A connection after its handshake, with the bytes behind the response.
pub(super) struct OpenedWebSocket {
    pub(super) transport: Transport,
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
    let begun_ns = now_ns();
    let core = &dialer.core;
    let mut handshake = Handshake::new(core, request, key_value(random));
    let done = poll_fn(|cx| handshake.poll(cx, dialer, &mut stream)).await;
    let mut recorder = core.recorder.borrow_mut();
    recorder.counters.bytes_out += handshake.written as u64;
    recorder.counters.bytes_in += handshake.bytes_in;
    match done {
        Ok(head_bytes) => {
            let rest = handshake.received.split_off(head_bytes);
            let transport = Transport::Http1(stream);
            Ok(OpenedWebSocket { transport, rest, handshake_ns: now_ns() - begun_ns })
        }
        Err((kind, text)) => {
            let fault = if kind == FailureKind::Upgrade { text.as_str() } else { kind.name() };
            recorder.counters.live.count_fault(format!("handshake_{fault}"));
            Err(OpenError::new(RequestPhase::FirstByte, (kind, format!("WebSocket handshake: {text}"))))
        }
    }
}

/// Opens a stream of HTTP/2 with an extended CONNECT, and checks the response.
pub(super) async fn open_http2(
    dialer: &Dialer,
    stream: Stream,
    request: &RenderedRequest,
) -> Result<OpenedWebSocket, OpenError> {
    let begun_ns = now_ns();
    let core = &dialer.core;
    let refused = |kind: FailureKind, fault: &str, text: &str| {
        core.recorder.borrow_mut().counters.live.count_fault(format!("handshake_{fault}"));
        OpenError::new(RequestPhase::FirstByte, (kind, format!("WebSocket handshake: {text}")))
    };
    let mut tunnel = Box::new(Http2Tunnel::new(stream, core));
    if !tunnel.supports_websocket(dialer).await? {
        let text = "the server does not support WebSocket over HTTP/2 (no SETTINGS_ENABLE_CONNECT_PROTOCOL, \
                    RFC 8441): use --http 1.1";
        tunnel.close(core, true);
        return Err(refused(FailureKind::Upgrade, "no_connect_protocol", text));
    }
    tunnel.begin(false, |encoder| {
        let scheme = request.url.authority.scheme.name();
        encoder.request("CONNECT", Some(scheme), Some(&request.authority), Some(&request.url.target));
        encoder.protocol("websocket");
        // The encoder leaves out the fields of HTTP/1.1.
        for (name, value) in request.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
            encoder.field(name, value.as_bytes());
        }
    });
    let head = poll_fn(|cx| match dialer.interruption() {
        Some(kind) => Poll::Ready(Err(kind)),
        None => tunnel.poll_head(cx, core),
    });
    let head = head.await.map_err(|kind| refused(kind, kind.name(), kind.name()))?;
    let fields = || head.fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    check_connect_response(head.status, fields, &offered_protocols(request)).map_err(
        |fault: HandshakeFault| {
            let text = fault.to_string();
            tunnel.close(core, true);
            refused(FailureKind::Upgrade, &text, &text)
        },
    )?;
    let transport = Transport::Http2(tunnel);
    Ok(OpenedWebSocket { transport, rest: Vec::new(), handshake_ns: now_ns() - begun_ns })
}

/// Returns the subprotocols of a request, as a list with commas.
fn offered_protocols(request: &RenderedRequest) -> String {
    let is_protocol = |name: &str| name.eq_ignore_ascii_case("sec-websocket-protocol");
    let offered = request.fields.iter().filter(|(name, _)| is_protocol(name));
    offered.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(",")
}

/// A handshake in progress.
struct Handshake<'a> {
    core: &'a CoreState,
    request: &'a RenderedRequest,
    key: String,
    output: Vec<u8>,
    written: usize,
    bytes_in: u64,
    /// Bytes from the first head that is not complete.
    received: Vec<u8>,
    interim_count: u32,
}

/// Failure of a handshake with its text.
type HandshakeFailure = (FailureKind, String);

impl<'a> Handshake<'a> {
    fn new(core: &'a CoreState, request: &'a RenderedRequest, key: String) -> Self {
        // A rendered request without content ends with an empty line.
        let mut output = request.bytes[..request.bytes.len() - 2].to_vec();
        output.extend_from_slice(format!("Sec-WebSocket-Key: {key}\r\n\r\n").as_bytes());
        Self { core, request, key, output, written: 0, bytes_in: 0, received: Vec::new(), interim_count: 0 }
    }

    /// Sends the request and reads the response. Returns the length of the head in `received`.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        dialer: &Dialer,
        stream: &mut Stream,
    ) -> Poll<Result<usize, HandshakeFailure>> {
        let io_error = |error: std::io::Error| (FailureKind::from_io_error(&error), error.to_string());
        loop {
            if let Some(kind) = dialer.interruption() {
                return Poll::Ready(Err((kind, kind.name().to_owned())));
            }
            while self.written < self.output.len() {
                match ready!(stream.poll_write(cx, &self.output[self.written..])) {
                    Ok(count) => self.written += count,
                    Err(error) => return Poll::Ready(Err(io_error(error))),
                }
            }
            let mut scratch = self.core.scratch.borrow_mut();
            let bytes = match ready!(stream.poll_read(cx, &mut scratch)) {
                Err(error) => return Poll::Ready(Err(io_error(error))),
                Ok(0) => {
                    let text = "the server closed the connection".to_owned();
                    return Poll::Ready(Err((FailureKind::Closed, text)));
                }
                Ok(count) => &scratch[..count],
            };
            self.bytes_in += bytes.len() as u64;
            self.received.extend_from_slice(bytes);
            // A server that sends its head in drips must not cause a parse for every byte.
            if !head_may_be_complete(bytes) && self.received.len() < self.core.limits.head_bytes_max {
                continue;
            }
            if let Some(outcome) = self.check().transpose() {
                return Poll::Ready(outcome);
            }
        }
    }

    /// Checks what has arrived. Returns the length of the head, or `None` if it is incomplete. Removes interim responses,
    /// so that their bytes are parsed once.
    fn check(&mut self) -> Result<Option<usize>, HandshakeFailure> {
        let core = self.core;
        let malformed = |refusal, received: &[u8]| {
            let kind = core.note_malformed(refusal, received);
            (kind, kind.name().to_owned())
        };
        loop {
            let mut slots = header_slots();
            match parse_response(&self.received, &core.limits, RequestKind::Other, &mut slots) {
                Ok(Parsed::Incomplete) => return Ok(None),
                Ok(Parsed::Complete { head, bytes })
                    if head.is_informational() && !head.is_switching_protocols() =>
                {
                    self.interim_count += 1;
                    let checked = core.limits.check_interim(self.interim_count);
                    checked.map_err(|refusal| malformed(refusal, &self.received))?;
                    drop(slots);
                    self.received.drain(..bytes);
                }
                Ok(Parsed::Complete { head, bytes }) => {
                    let checked = check_response(&head, &self.key, &offered_protocols(self.request));
                    return checked
                        .map(|()| Some(bytes))
                        .map_err(|fault| (FailureKind::Upgrade, fault.to_string()));
                }
                Err(refusal) => return Err(malformed(refusal, &self.received)),
            }
        }
    }
}
