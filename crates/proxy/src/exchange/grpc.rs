//! Errors of gRPC calls in the form that their clients expect: a response of the proxy is a status of
//! gRPC in a response without content ("Trailers-Only", PROTOCOL-HTTP2.md), and a stream that the server
//! resets is reset with its code. Clients would replace a status of HTTP by a less precise one.

use rt::stream::Stream;
use wire::Framing;
use wire::h2::ErrorCode;

use super::finish::OwnResponse;
use crate::client_stream::ClientStream;
use crate::core::Core;
use crate::exchange_state::Exchange;
use crate::outcome::EndReason;
use crate::request_view::RequestView;
use crate::server_conn::http2::StreamEnd;

/// Start of the content types of gRPC, and the content type of a response without content.
const GRPC: &str = "application/grpc";

impl Exchange {
    /// Notes whether the request is a call of gRPC. Client and server of a call may send at the same time,
    /// and pause for long, if its length is not known and it is a stream of HTTP/2: gRPC has no HTTP/1.1
    /// (PROTOCOL-HTTP2.md), where a content type alone must not hold a slot of a server.
    #[inline]
    pub(super) fn note_grpc(&mut self, view: &RequestView<'_>, client: &ClientStream) {
        self.facts.is_grpc = view.head.method == "POST" && has_grpc_content(view);
        self.facts.is_streaming =
            self.facts.is_grpc && view.head.framing == Framing::Chunked && client.is_h2_stream();
    }

    /// Hands the code of a stream that the server has reset to the stream of the client. Returns whether a
    /// reset with this code is all that the client gets, instead of an error response.
    pub(super) fn pass_on_reset(&self, client: &ClientStream) -> bool {
        let (Some(code), Stream::Channel(end)) = (self.server_reset_code(), &client.stream) else {
            return false;
        };
        end.set_reset_code(code.0);
        self.facts.is_grpc
    }

    /// Returns the code that the server has reset the request's stream with, if it concerns the request:
    /// others are about the connection of the server.
    fn server_reset_code(&self) -> Option<ErrorCode> {
        match self.server.as_ref()?.http2.as_ref()?.end()? {
            StreamEnd::Reset(code) => {
                [ErrorCode::CANCEL, ErrorCode::CONNECT_ERROR, ErrorCode::ENHANCE_YOUR_CALM]
                    .contains(&code)
                    .then_some(code)
            }
            StreamEnd::Invalid(_) | StreamEnd::ConnectionLost => None,
        }
    }

    /// Starts the response to a call that would be this `status` of HTTP.
    pub(super) fn write_grpc_rejection(&mut self, core: &Core, client: &ClientStream, status: u16) {
        let mut digits = itoa::Buffer::new();
        let grpc_status = digits.format(grpc_status(status));
        let fields: [(&str, &[u8]); 3] = [
            ("Content-Type", GRPC.as_bytes()),
            ("grpc-status", grpc_status.as_bytes()),
            ("grpc-message", grpc_message(self.outcome.end()).as_bytes()),
        ];
        self.respond(
            core,
            client,
            &OwnResponse { status: 200, content_type: "", body: b"", fields: &fields },
        );
    }
}

fn has_grpc_content(view: &RequestView<'_>) -> bool {
    let content_type = view.ordinary_value("content-type").unwrap_or_default();
    content_type.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC.as_bytes()))
}

/// Returns the status of gRPC for an error of HTTP: that of "HTTP to gRPC Status Code Mapping", but more
/// precise where the proxy knows that a time or a limit was exceeded.
fn grpc_status(status: u16) -> u8 {
    const UNKNOWN: u8 = 2;
    const DEADLINE_EXCEEDED: u8 = 4;
    const PERMISSION_DENIED: u8 = 7;
    const RESOURCE_EXHAUSTED: u8 = 8;
    const UNIMPLEMENTED: u8 = 12;
    const INTERNAL: u8 = 13;
    const UNAVAILABLE: u8 = 14;
    const UNAUTHENTICATED: u8 = 16;
    match status {
        400 | 431 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 | 405 => UNIMPLEMENTED,
        408 | 504 => DEADLINE_EXCEEDED,
        413 | 429 => RESOURCE_EXHAUSTED,
        502 | 503 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// Returns the message for a client. It needs no encoding: visible ASCII without a percent sign.
fn grpc_message(end: EndReason) -> &'static str {
    end.doc()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_need_no_percent_encoding() {
        for end in EndReason::ALL {
            let message = grpc_message(*end);
            assert!(message.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'%'), "{message}");
        }
    }

    #[test]
    fn every_error_response_has_a_status_of_grpc() {
        for end in EndReason::ALL {
            let expected = match end.status() {
                429 | 413 => 8,
                408 | 504 => 4,
                502 | 503 => 14,
                400 => 13,
                401 => 16,
                403 => 7,
                404 | 405 => 12,
                other => {
                    assert_eq!(other, 0, "{}", end.code());
                    continue;
                }
            };
            assert_eq!(grpc_status(end.status()), expected, "{}", end.code());
        }
        assert_eq!([401, 418, 431].map(grpc_status), [16, 2, 13]);
    }
}
