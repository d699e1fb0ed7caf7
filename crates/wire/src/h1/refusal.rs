//! Reasons to refuse bytes: one table with one entry per reason.
//!
//! Each entry has the code of the counter, the status of the response and the section of the RFC.
//! Nothing is decided here.

use std::fmt;

/// Reason why a message was refused, with the status of a server's response.
///
/// It is always the peer's fault: the connection cannot be read any further, so it must be closed
/// after the response (if there is one to send).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refusal {
    kind: RefusalKind,
    is_from_server: bool,
}

impl Refusal {
    /// Refuses bytes of a client: the status is that of the table.
    pub(crate) fn from_client(kind: RefusalKind) -> Self {
        Self { kind, is_from_server: false }
    }

    /// Refuses bytes of a server: the waiting client gets 502.
    pub(crate) fn from_server(kind: RefusalKind) -> Self {
        Self { kind, is_from_server: true }
    }

    pub fn kind(&self) -> RefusalKind {
        self.kind
    }

    /// Returns the status of the response: that of [`RefusalKind::status`] if a client sent the
    /// bytes, and 502 if [`parse_response`](super::parse_response) refused bytes of a server (RFC
    /// 9110 §15.6.3).
    ///
    /// A [`BodyDecoder`](super::BodyDecoder) does not know the sender of its body and returns the
    /// status for a client.
    pub fn status(&self) -> u16 {
        if self.is_from_server { 502 } else { self.kind.status() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind.doc(), self.kind.section())
    }
}

impl std::error::Error for Refusal {}

struct RefusalInfo {
    code: &'static str,
    status: u16,
    section: &'static str,
    doc: &'static str,
}

macro_rules! refusal_kinds {
    ($($variant:ident, $code:literal, $status:literal, $section:literal, $doc:literal;)*) => {
        /// Every reason to refuse a message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RefusalKind {
            $(
                #[doc = concat!("`", $code, "`, ", stringify!($status), ": ", $doc, " (", $section, ").")]
                $variant,
            )*
        }

        const REFUSALS: &[RefusalInfo] =
            &[$(RefusalInfo { code: $code, status: $status, section: $section, doc: $doc },)*];

        impl RefusalKind {
            /// Every kind, in the order of the table: `kind as usize` is its index, so that an
            /// array can count them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}

impl RefusalKind {
    /// Returns the reason in `snake_case`, unique and stable, for counters and logs.
    pub fn code(self) -> &'static str {
        REFUSALS[self as usize].code
    }

    /// Returns the status of a server's response to a client that sent this; 502 for messages that
    /// only a server can send.
    pub fn status(self) -> u16 {
        REFUSALS[self as usize].status
    }

    /// Returns the section of the RFC that allows or requires the refusal.
    pub fn section(self) -> &'static str {
        REFUSALS[self as usize].section
    }

    /// Returns a description in one clause, without a full stop.
    pub fn doc(self) -> &'static str {
        REFUSALS[self as usize].doc
    }
}

refusal_kinds! {
    EmptyLines, "empty_lines", 400, "RFC 9112 §2.2", "more than eight empty lines before the request line";
    BareLf, "bare_lf", 400, "RFC 9112 §2.2", "a line ends with LF without CR";
    BareCr, "bare_cr", 400, "RFC 9112 §2.2", "a CR is not followed by LF";
    InvalidMethod, "invalid_method", 400, "RFC 9110 §9.1", "the method is not a token";
    InvalidTarget, "invalid_target", 400, "RFC 9112 §3.2", "the request target is empty or has a byte that is invalid in a URI";
    TargetForm, "target_form", 400, "RFC 9112 §3.2", "this form of request target does not belong to this method";
    TargetTooLong, "target_too_long", 414, "RFC 9110 §15.5.15", "the request target is longer than allowed";
    InvalidVersion, "invalid_version", 400, "RFC 9112 §2.3", "the protocol version is malformed";
    UnsupportedVersion, "unsupported_version", 505, "RFC 9110 §15.6.6", "the protocol version is neither 1.0 nor 1.1";
    InvalidRequestLine, "invalid_request_line", 400, "RFC 9112 §3", "the request line is not method, target and version";
    InvalidStatusLine, "invalid_status_line", 502, "RFC 9112 §4", "the status line is malformed";
    HeadTooLarge, "head_too_large", 431, "RFC 6585 §5", "the head is longer than allowed";
    TooManyFields, "too_many_fields", 431, "RFC 6585 §5", "the head has more field lines than allowed, or more than 1 KiB of Connection fields";
    EmptyFieldName, "empty_field_name", 400, "RFC 9110 §5.1", "a field line has no name";
    InvalidFieldName, "invalid_field_name", 400, "RFC 9110 §5.1", "a field name is not a token, or its colon is missing";
    SpaceInFieldName, "space_in_field_name", 400, "RFC 9112 §5.1", "there is whitespace between a field name and its colon";
    ObsFold, "obs_fold", 400, "RFC 9112 §5.2", "a field line starts with whitespace";
    InvalidFieldValue, "invalid_field_value", 400, "RFC 9110 §5.5", "a field value has a control character";
    UnderscoreInFieldName, "underscore_in_field_name", 400, "RFC 3875 §4.1.18", "a field name has an underscore, which some servers take for a hyphen";
    AmbiguousPath, "ambiguous_path", 400, "RFC 3986 §6.2.2", "servers read the path in different ways";
    EncodedSlash, "encoded_slash", 400, "RFC 3986 §2.2", "the path has an encoded slash, and another route if that is decoded";
    HostMissing, "host_missing", 400, "RFC 9112 §3.2", "an HTTP/1.1 request has no Host";
    HostRepeated, "host_repeated", 400, "RFC 9112 §3.2", "the request has more than one Host";
    HostInvalid, "host_invalid", 400, "RFC 9112 §3.2", "the Host is not a host and an optional port";
    HostMismatch, "host_mismatch", 400, "RFC 9112 §3.2.2", "the Host differs from the authority in the request target";
    ContentLengthInvalid, "content_length_invalid", 400, "RFC 9112 §6.3", "the Content-Length is not one decimal number, in a request without leading zeros";
    ContentLengthRepeated, "content_length_repeated", 400, "RFC 9112 §6.3", "there is more than one Content-Length";
    TransferEncodingInvalid, "transfer_encoding_invalid", 400, "RFC 9112 §6.3", "the Transfer-Encoding does not end in exactly one chunked";
    ProtocolUnsupported, "protocol_unsupported", 501, "RFC 8441 §4", "extended CONNECT asks for a version of HTTP";
    TransferEncodingUnsupported, "transfer_encoding_unsupported", 501, "RFC 9112 §6.1", "there is a transfer coding before chunked";
    TransferEncodingRepeated, "transfer_encoding_repeated", 400, "RFC 9112 §6.1", "there is more than one Transfer-Encoding";
    TransferEncodingOnHttp10, "transfer_encoding_on_http10", 400, "RFC 9112 §6.1", "an HTTP/1.0 message has a Transfer-Encoding";
    FramingConflict, "framing_conflict", 400, "RFC 9112 §6.3", "there are both a Transfer-Encoding and a Content-Length";
    BodyOnConnect, "body_on_connect", 400, "RFC 9110 §9.3.6", "a CONNECT request has content";
    ExpectationFailed, "expectation_failed", 417, "RFC 9110 §10.1.1", "the expectation is not 100-continue";
    TooManyInterim, "too_many_interim", 502, "RFC 9110 §15.2", "there are too many interim responses";
    ChunkSizeInvalid, "chunk_size_invalid", 400, "RFC 9112 §7.1", "the chunk size is not a hexadecimal number";
    ChunkSizeOverflow, "chunk_size_overflow", 400, "RFC 9112 §7.1", "the chunk size does not fit into 64 bits";
    ChunkExtensionInvalid, "chunk_extension_invalid", 400, "RFC 9112 §7.1.1", "a chunk extension is not a name with an optional token or quoted string";
    ChunkLineTooLong, "chunk_line_too_long", 400, "RFC 9112 §7.1.1", "the line of a chunk size is longer than allowed";
    ChunkExtensionsTooLarge, "chunk_extensions_too_large", 400, "RFC 9112 §7.1.1", "the chunk extensions of the body are longer than allowed";
    ChunkDataUnterminated, "chunk_data_unterminated", 400, "RFC 9112 §7.1", "the data of a chunk is not followed by CRLF";
    TrailerInvalid, "trailer_invalid", 400, "RFC 9112 §7.1.2", "a line of the trailer section is not a field line";
    TrailerForbidden, "trailer_forbidden", 400, "RFC 9110 §6.5.1", "a field in the trailer section would change the framing or the routing";
    TrailersTooLarge, "trailers_too_large", 431, "RFC 6585 §5", "the trailer section is longer than allowed";
    Truncated, "truncated", 400, "RFC 9112 §8", "the connection ended before the body did";
}
