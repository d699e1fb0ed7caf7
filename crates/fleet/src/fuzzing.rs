//! Properties of decoders that hold for any bytes, for tests and fuzz targets only. Nothing in a product
//! calls them.

use crate::coordinator::AgentSecond;
use crate::message::{AgentCommand, AgentReport, LiveSecond, Pong, decode};
use crate::nats::protocol::{Decoder, ProtocolError, ServerOperation};

/// Decodes a message of any kind: an error is printable and short. `true`: it was a message.
///
/// # Panics
/// The property does not hold.
pub fn message(bytes: &[u8]) -> bool {
    let results = [
        decode::<AgentCommand>(bytes).map(drop),
        decode::<AgentReport>(bytes).map(drop),
        decode::<Pong>(bytes).map(drop),
        decode::<LiveSecond>(bytes).map(|second| drop(AgentSecond::from(second))),
    ];
    for result in &results {
        let text = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        assert!(text.len() < 2_000 && !text.contains(char::is_control), "{text:?}");
    }
    results.iter().any(Result::is_ok)
}

/// Decodes what a NATS server sends: the operations do not depend on the pieces in which it arrives, and an error is
/// printable and short. `true`: there was an operation, and no error.
///
/// # Panics
/// The property does not hold.
pub fn nats_server(bytes: &[u8]) -> bool {
    let (count, hash, error) = nats_operations(bytes, bytes.len().max(1));
    for piece in [7, 1_000] {
        assert_eq!((count, hash, error.clone()), nats_operations(bytes, piece), "pieces of {piece} bytes");
    }
    let text = error.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(text.len() < 1_000 && !text.contains(char::is_control), "{text:?}");
    count > 0 && error.is_none()
}

/// Returns the number and a hash of the operations in bytes that arrive in pieces, and the error that ends them.
fn nats_operations(bytes: &[u8], piece: usize) -> (usize, u64, Option<ProtocolError>) {
    let (mut decoder, mut count, mut hash) = (Decoder::default(), 0, 0_u64);
    let mut add = |bytes: &[u8]| {
        hash = bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    };
    for piece in bytes.chunks(piece) {
        decoder.extend(piece);
        loop {
            match decoder.next() {
                Ok(None) => break,
                Ok(Some(operation)) => {
                    count += 1;
                    match operation {
                        ServerOperation::Info(text) => {
                            crate::nats::parse_info(text);
                            add(text.as_bytes());
                        }
                        ServerOperation::Error(text) => add(text.as_bytes()),
                        ServerOperation::Message { subject, subscription, status, payload } => {
                            add(subject.as_bytes());
                            add(&subscription.to_be_bytes());
                            add(&status.unwrap_or(0).to_be_bytes());
                            add(payload);
                        }
                        ServerOperation::Ping | ServerOperation::Pong | ServerOperation::Ok => add(b"."),
                    }
                }
                Err(error) => return (count, hash, Some(error)),
            }
        }
    }
    (count, hash, None)
}

#[cfg(test)]
mod cost_tests;
