//! Unary calls of gRPC over HTTP/2: the frame of the message, and the fields of the request.

/// Bytes before a message: a flag for compression, and the length.
const PREFIX_BYTES: usize = 5;

/// Returns the message with its prefix, not compressed.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    // The body of a load has at most 64 MiB.
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// Adds the fields that a call needs, unless they are given.
pub(super) fn add_fields(fields: &mut Vec<(String, String)>) {
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        if !fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
}

/// Messages of a response, as they arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GrpcMessages {
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    /// Bytes of the current message that are missing.
    missing: u64,
    complete: u64,
}

impl GrpcMessages {
    /// Takes the next bytes of the body.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.prefix_bytes < PREFIX_BYTES {
                let taken = bytes.len().min(PREFIX_BYTES - self.prefix_bytes);
                self.prefix[self.prefix_bytes..self.prefix_bytes + taken].copy_from_slice(&bytes[..taken]);
                self.prefix_bytes += taken;
                bytes = &bytes[taken..];
                if self.prefix_bytes < PREFIX_BYTES {
                    return;
                }
                let [_, length @ ..] = self.prefix;
                self.missing = u64::from(u32::from_be_bytes(length));
            }
            let taken = usize::try_from(self.missing).map_or(bytes.len(), |missing| missing.min(bytes.len()));
            self.missing -= taken as u64;
            bytes = &bytes[taken..];
            if self.missing == 0 {
                self.complete += 1;
                self.prefix_bytes = 0;
            }
        }
    }

    /// Returns whether there is exactly one message, and nothing behind it: the response of a unary call.
    pub(crate) fn is_one(&self) -> bool {
        self.complete == 1 && self.prefix_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_before_it() {
        assert_eq!(frame(b"abc"), b"\0\0\0\0\x03abc");
        assert_eq!(frame(b""), [0; 5]);
    }

    #[test]
    fn a_truncated_message_is_none() {
        let is_one = |parts: &[&[u8]]| {
            let mut messages = GrpcMessages::default();
            parts.iter().for_each(|part| messages.add(part));
            messages.is_one()
        };
        let message = frame(b"abc");
        assert!(is_one(&[&message]) && is_one(&[&frame(b"")]));
        assert!((1..message.len()).all(|at| is_one(&[&message[..at], &message[at..]])));
        assert!((0..message.len()).all(|end| !is_one(&[&message[..end]])));
        assert!(!is_one(&[&message, &message]) && !is_one(&[&message, &[0]]));
    }

    #[test]
    fn given_fields_are_kept() {
        let mut fields = vec![("Content-Type".to_owned(), "application/grpc+proto".to_owned())];
        add_fields(&mut fields);
        assert_eq!(fields.len(), 2);
        assert_eq!(fields[1], ("te".to_owned(), "trailers".to_owned()));
    }
}
