//! Properties of the readers of WebSocket frames and of event streams.

use crate::sse::EventStreamReader;
use crate::websocket::{MessageReader, Received, Role};

/// Limit of a message and of an event, which inputs can exceed.
const BYTES_MAX: u64 = 2_000;

/// Checks the properties of the reader of frames for any bytes. Messages and faults do not depend on how the bytes
/// are cut, and no message exceeds the limit. The first byte seeds the cuts.
///
/// # Panics
/// If one of them does not hold.
pub fn websocket(bytes: &[u8]) {
    let Some((&seed, bytes)) = bytes.split_first() else { return };
    for role in [Role::Client, Role::Server] {
        let read = |piece_bytes: PieceLength<'_>| {
            let mut reader = MessageReader::new(role, BYTES_MAX);
            let mut all = Vec::new();
            for mut piece in pieces(bytes, piece_bytes) {
                loop {
                    match reader.read(&mut piece) {
                        Ok(None) => break,
                        Ok(Some(received)) => {
                            if let Received::Message { content, .. } = received {
                                assert!(content.len() as u64 <= BYTES_MAX);
                            }
                            all.push(format!("{received:?}"));
                        }
                        Err(fault) => {
                            all.push(fault.to_string());
                            return all;
                        }
                    }
                }
            }
            all
        };
        check_cuts(seed, &read);
    }
}

/// Checks the properties of the reader of event streams for any bytes. Events, IDs and faults do not depend on how
/// the bytes are cut. The first byte seeds the cuts.
///
/// # Panics
/// If one of them does not hold.
pub fn event_stream(bytes: &[u8]) {
    let Some((&seed, bytes)) = bytes.split_first() else { return };
    let read = |piece_bytes: PieceLength<'_>| {
        let mut reader = EventStreamReader::new(BYTES_MAX);
        let mut all = Vec::new();
        for mut piece in pieces(bytes, piece_bytes) {
            loop {
                match reader.read(&mut piece) {
                    Ok(None) => break,
                    Ok(Some(event)) => {
                        assert!(event.bytes <= BYTES_MAX);
                        all.push(format!("{event:?} {:?} {:?}", reader.last_event_id(), reader.retry_ms()));
                    }
                    Err(fault) => {
                        all.push(fault.to_string());
                        return all;
                    }
                }
            }
        }
        all
    };
    check_cuts(seed, &read);
}

type PieceLength<'a> = &'a dyn Fn(usize) -> usize;

fn check_cuts(seed: u8, read: &dyn Fn(PieceLength<'_>) -> Vec<String>) {
    let full = read(&|_| usize::MAX);
    assert_eq!(full, read(&|_| 1), "one byte at a time");
    assert_eq!(full, read(&|at| 1 + (at * 31 + usize::from(seed)) % 17), "in parts");
}

fn pieces<'a>(bytes: &'a [u8], piece_bytes: PieceLength<'_>) -> Vec<&'a [u8]> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let end = at.saturating_add(piece_bytes(at)).min(bytes.len());
        all.push(&bytes[at..end]);
        at = end;
    }
    all
}
