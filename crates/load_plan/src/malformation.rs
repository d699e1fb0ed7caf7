//! Reasons of parse errors: why the bytes of a server were refused.

use wire::RefusalKind;
use wire::h2::FaultKind;
use wire::sse::EventStreamFault;
use wire::websocket::WebSocketFault;

/// Reason why the bytes of a server are no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformation {
    /// Refusal of HTTP/1.1.
    Http1(RefusalKind),
    /// Fault of HTTP/2.
    Http2(FaultKind),
    /// Call with the status 0, and a message that ends too early.
    GrpcTruncated,
    /// Call with the status 0, and no message.
    GrpcMessageMissing,
    /// Call with the status 0, and a compressed message without the name of its encoding.
    GrpcCompressed,
    /// Call with the status 0, and a message whose flags have no meaning.
    GrpcFlags,
    WebSocket(WebSocketFault),
    /// Event stream beyond a limit.
    EventStream(EventStreamFault),
    /// Bytes behind the last response that was asked for.
    Excess,
}

impl Malformation {
    /// Returns the reason in `snake_case`, unique and stable.
    pub fn code(self) -> String {
        match self {
            Self::Http1(kind) => kind.code().to_owned(),
            Self::Http2(fault) => format!("h2_{}", fault.code()),
            Self::WebSocket(fault) => format!("websocket_{fault}"),
            Self::EventStream(fault) => format!("event_stream_{fault}"),
            Self::GrpcTruncated => "grpc_message_truncated".to_owned(),
            Self::GrpcMessageMissing => "grpc_message_missing".to_owned(),
            Self::GrpcCompressed => "grpc_encoding_missing".to_owned(),
            Self::GrpcFlags => "grpc_message_flags".to_owned(),
            Self::Excess => "excess_bytes".to_owned(),
        }
    }

    /// Describes the reason in one clause, with its source.
    pub fn text(self) -> String {
        match self {
            Self::Http1(kind) => format!("{} ({})", kind.doc(), kind.section()),
            Self::Http2(fault) => format!("{fault}, {}", fault.error_code().name()),
            Self::WebSocket(fault) => format!("{} (RFC 6455, {})", fault.doc(), fault.close_code()),
            Self::EventStream(EventStreamFault::EventTooLarge) => "an event is longer than 16 MiB".to_owned(),
            Self::EventStream(EventStreamFault::IdTooLong) => {
                "the ID of an event is longer than 1 KiB".to_owned()
            }
            Self::GrpcTruncated => {
                "the call has the status 0, and its last message is shorter than its prefix says".to_owned()
            }
            Self::GrpcMessageMissing => "the call has the status 0 and no message".to_owned(),
            Self::GrpcCompressed => {
                "the call has the status 0, and a compressed message without a grpc-encoding".to_owned()
            }
            Self::GrpcFlags => {
                "the call has the status 0, and a message whose first byte is neither 0 nor 1".to_owned()
            }
            Self::Excess => "bytes follow the last response that was asked for".to_owned(),
        }
    }
}

/// Numbers of parse errors by their reasons, which are at most as many as there are reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParseErrors(Vec<(Malformation, u64)>);

impl ParseErrors {
    #[inline]
    pub fn add(&mut self, reason: Malformation, count: u64) {
        match self.0.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, sum)) => *sum += count,
            None => self.0.push((reason, count)),
        }
    }

    #[inline]
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(reason, count)| self.add(reason, count));
    }

    pub fn iter(&self) -> impl Iterator<Item = (Malformation, u64)> + '_ {
        self.0.iter().copied()
    }

    pub fn count(&self, reason: Malformation) -> u64 {
        self.iter().find(|(other, _)| *other == reason).map_or(0, |(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        let http1 = RefusalKind::ALL.iter().copied().map(Malformation::Http1);
        let http2 = FaultKind::ALL.iter().copied().map(Malformation::Http2);
        let others = [
            Malformation::GrpcTruncated,
            Malformation::GrpcMessageMissing,
            Malformation::GrpcCompressed,
            Malformation::GrpcFlags,
            Malformation::Excess,
        ];
        let all: Vec<String> = http1.chain(http2).chain(others).map(Malformation::code).collect();
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }
}
