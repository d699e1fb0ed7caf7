//! Calls of gRPC over HTTP/2 with one message: its frame, the fields of the request, and the messages of the response.

use crate::malformation::Malformation;

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
pub struct GrpcMessages {
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    /// Bytes of the current message that are missing.
    missing: u64,
    has_complete: bool,
    /// Flags of all prefixes, combined.
    flags: u8,
    /// True if the head of the response names an encoding of its messages.
    has_encoding: bool,
}

impl GrpcMessages {
    /// Notes the `grpc-encoding` of the response; `identity` is none.
    #[inline]
    pub fn set_encoding(&mut self, encoding: Option<&[u8]>) {
        self.has_encoding = encoding.is_some_and(|name| !name.eq_ignore_ascii_case(b"identity"));
    }

    /// Takes the next bytes of the body.
    #[inline]
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.prefix_bytes < PREFIX_BYTES {
                let taken = bytes.len().min(PREFIX_BYTES - self.prefix_bytes);
                self.prefix[self.prefix_bytes..self.prefix_bytes + taken].copy_from_slice(&bytes[..taken]);
                self.prefix_bytes += taken;
                bytes = &bytes[taken..];
                if self.prefix_bytes < PREFIX_BYTES {
                    return;
                }
                let [flags, length @ ..] = self.prefix;
                self.flags |= flags;
                self.missing = u64::from(u32::from_be_bytes(length));
            }
            let taken = usize::try_from(self.missing).map_or(bytes.len(), |missing| missing.min(bytes.len()));
            self.missing -= taken as u64;
            bytes = &bytes[taken..];
            if self.missing == 0 {
                self.has_complete = true;
                self.prefix_bytes = 0;
            }
        }
    }

    /// Returns the defect of the messages of a call that was successful; `None` if there is at least one, and
    /// all are complete and can be decoded.
    #[inline]
    pub fn malformation(&self) -> Option<Malformation> {
        match (self.flags, self.prefix_bytes, self.has_complete) {
            (2.., ..) => Some(Malformation::GrpcFlags),
            (1, ..) if !self.has_encoding => Some(Malformation::GrpcCompressed),
            (_, 1.., _) => Some(Malformation::GrpcTruncated),
            (_, 0, false) => Some(Malformation::GrpcMessageMissing),
            (_, 0, true) => None,
        }
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
    fn a_truncated_message_is_told_from_a_missing_one() {
        let malformation = |parts: &[&[u8]]| {
            let mut messages = GrpcMessages::default();
            parts.iter().for_each(|part| messages.add(part));
            messages.malformation()
        };
        let message = frame(b"abc");
        assert_eq!(malformation(&[&message]), None);
        assert_eq!(malformation(&[&frame(b"")]), None, "a message without a field");
        assert_eq!(malformation(&[&message, &message]), None, "a stream of messages");
        assert_eq!(malformation(&[]), Some(Malformation::GrpcMessageMissing));
        for at in 1..message.len() {
            assert_eq!(malformation(&[&message[..at], &message[at..]]), None);
            assert_eq!(malformation(&[&message[..at]]), Some(Malformation::GrpcTruncated));
            assert_eq!(malformation(&[&message, &message[..at]]), Some(Malformation::GrpcTruncated));
        }
    }

    #[test]
    fn a_compressed_message_needs_its_encoding() {
        let malformation = |flags: &[u8], encoding: Option<&str>| {
            let mut messages = GrpcMessages::default();
            messages.set_encoding(encoding.map(str::as_bytes));
            for flag in flags {
                let mut message = frame(b"abc");
                message[0] = *flag;
                messages.add(&message);
            }
            messages.malformation()
        };
        for (flags, encoding, found) in [
            (&[1][..], Some("gzip"), None),
            (&[0, 1], Some("gzip"), None),
            (&[0], Some("gzip"), None),
            (&[0], None, None),
            (&[1], None, Some(Malformation::GrpcCompressed)),
            (&[0, 1, 0], None, Some(Malformation::GrpcCompressed)),
            (&[1], Some("identity"), Some(Malformation::GrpcCompressed)),
            (&[2], Some("gzip"), Some(Malformation::GrpcFlags)),
            (&[0x80], None, Some(Malformation::GrpcFlags)),
        ] {
            assert_eq!(malformation(flags, encoding), found, "{flags:?} {encoding:?}");
        }
    }

    #[test]
    fn given_fields_are_kept() {
        let mut fields = vec![("Content-Type".to_owned(), "application/grpc+proto".to_owned())];
        add_fields(&mut fields);
        assert_eq!(fields.len(), 2);
        assert_eq!(fields[1], ("te".to_owned(), "trailers".to_owned()));
    }
}
