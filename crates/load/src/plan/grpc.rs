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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_before_it() {
        assert_eq!(frame(b"abc"), b"\0\0\0\0\x03abc");
        assert_eq!(frame(b""), [0; 5]);
    }

    #[test]
    fn given_fields_are_kept() {
        let mut fields = vec![("Content-Type".to_owned(), "application/grpc+proto".to_owned())];
        add_fields(&mut fields);
        assert_eq!(fields.len(), 2);
        assert_eq!(fields[1], ("te".to_owned(), "trailers".to_owned()));
    }
}
