//! Records of a session: one step of its state machine, and the writer of encrypted records. No
//! I/O.

use std::hash::{DefaultHasher, Hasher};

use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};

/// Content bytes of a write that was encrypted and not completely sent. The engine repeats the
/// write; the hash proves that it is the same one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct UnfinishedWrite {
    pub(super) bytes: usize,
    hash: u64,
}

impl UnfinishedWrite {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len(), hash: hash_of(bytes) }
    }

    pub(super) fn is_start_of(self, bytes: &[u8]) -> bool {
        bytes.get(..self.bytes).is_some_and(|start| hash_of(start) == self.hash)
    }
}

fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Result of one step of the session.
pub(super) enum Step {
    Again,
    NeedsInput,
    Open,
    PeerClosed,
    Closed,
    Failed(rustls::Error),
}

/// Destinations of a step's output.
pub(super) struct Output<'a> {
    pub(super) content: &'a mut Vec<u8>,
    pub(super) outgoing: &'a mut Vec<u8>,
    pub(super) buffer: &'a mut [u8],
    pub(super) filled: usize,
}

impl Output<'_> {
    /// Adds content to the buffer of the read, or behind content that waits already.
    fn take(&mut self, content: &[u8]) {
        let free = if self.content.is_empty() { self.buffer.len() - self.filled } else { 0 };
        let (now, later) = content.split_at(content.len().min(free));
        self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
        self.filled += now.len();
        self.content.extend_from_slice(later);
    }
}

/// Handles one state of the session. Returns the number of processed input bytes.
pub(super) fn advance<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Output<'_>,
) -> (usize, Step) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Step::Failed(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        output.take(record.payload);
                    }
                    Err(error) => return (discard, Step::Failed(error)),
                }
            }
            Step::Again
        }
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(&mut |bytes| data.encode(bytes), output.outgoing);
            Step::Again
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // `outgoing` keeps the order, so nothing has to be sent first.
            data.done();
            Step::Again
        }
        Ok(ConnectionState::BlockedHandshake) => Step::NeedsInput,
        Ok(ConnectionState::WriteTraffic(_)) => Step::Open,
        Ok(ConnectionState::PeerClosed) => Step::PeerClosed,
        Ok(ConnectionState::Closed) => Step::Closed,
        // Early data is off (RFC 8446 §2.3: it can be replayed).
        Ok(_) => Step::Failed(rustls::Error::General("a state of TLS that is not in use".into())),
    };
    (discard, step)
}

/// Appends a handshake message to `outgoing`.
fn encode(encode_into: &mut dyn FnMut(&mut [u8]) -> Result<usize, EncodeError>, outgoing: &mut Vec<u8>) {
    let start = outgoing.len();
    let mut room = 4_096;
    loop {
        outgoing.resize(start + room, 0);
        match encode_into(&mut outgoing[start..]) {
            Ok(bytes) => return outgoing.truncate(start + bytes),
            Err(EncodeError::InsufficientSize(size)) if size.required_size > room => {
                room = size.required_size
            }
            Err(_) => return outgoing.truncate(start),
        }
    }
}

/// Producer of records, of either end.
pub(super) trait RecordWriter {
    fn encrypt(&mut self, content: &[u8], output: &mut [u8]) -> Result<usize, EncryptError>;
    fn close(&mut self, output: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<Data> RecordWriter for WriteTraffic<'_, Data> {
    fn encrypt(&mut self, content: &[u8], output: &mut [u8]) -> Result<usize, EncryptError> {
        WriteTraffic::encrypt(self, content, output)
    }

    fn close(&mut self, output: &mut [u8]) -> Result<usize, EncryptError> {
        self.queue_close_notify(output)
    }
}
