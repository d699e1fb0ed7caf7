//! Faults of a peer: one table with one entry per fault.
//!
//! Each entry has the code of the counter, the error code on the wire and the section of the RFC.
//! Nothing is decided here.

use std::fmt;

/// An error code (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Graceful end.
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    /// Fault of this end.
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    /// Settings were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    /// Frame for a stream that is closed.
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    /// Stream that was not processed.
    pub const REFUSED_STREAM: Self = Self(7);
    /// Stream that is no longer needed.
    pub const CANCEL: Self = Self(8);
    /// HPACK state cannot be maintained.
    pub const COMPRESSION_ERROR: Self = Self(9);
    /// Connection of a CONNECT failed.
    pub const CONNECT_ERROR: Self = Self(10);
    /// Excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
    /// TLS properties are not sufficient.
    pub const INADEQUATE_SECURITY: Self = Self(12);
    pub const HTTP_1_1_REQUIRED: Self = Self(13);

    /// Returns the name of the RFC; `UNKNOWN` for other values, which mean
    /// [`ErrorCode::INTERNAL_ERROR`].
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied().unwrap_or("UNKNOWN")
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

struct FaultInfo {
    code: &'static str,
    error: ErrorCode,
    section: &'static str,
    doc: &'static str,
}

macro_rules! fault_kinds {
    ($($variant:ident, $code:literal, $error:ident, $section:literal, $doc:literal;)*) => {
        /// Fault of the peer that ends the connection, or a stream in
        /// [`Event::Reset`](super::Event::Reset).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum FaultKind {
            $(
                #[doc = concat!("`", $code, "`, ", stringify!($error), ": ", $doc, " (", $section, ").")]
                $variant,
            )*
        }

        const FAULTS: &[FaultInfo] =
            &[$(FaultInfo { code: $code, error: ErrorCode::$error, section: $section, doc: $doc },)*];

        impl FaultKind {
            /// Every kind, in the order of the table: `kind as usize` is its index, so that an array
            /// can count them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}

impl FaultKind {
    /// Returns the fault in `snake_case`, unique and stable, for counters and logs.
    pub fn code(self) -> &'static str {
        FAULTS[self as usize].code
    }

    /// Returns the error code of `RST_STREAM` or `GOAWAY`.
    #[must_use]
    pub fn error_code(self) -> ErrorCode {
        FAULTS[self as usize].error
    }

    /// Returns the section of the RFC that requires or allows the error.
    pub fn section(self) -> &'static str {
        FAULTS[self as usize].section
    }

    /// Returns a description in one clause, without a full stop.
    pub fn doc(self) -> &'static str {
        FAULTS[self as usize].doc
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.doc(), self.section())
    }
}

impl std::error::Error for FaultKind {}

fault_kinds! {
    PrefaceInvalid, "preface_invalid", PROTOCOL_ERROR, "RFC 9113 §3.4", "the connection does not begin with the preface of HTTP/2";
    SettingsMissing, "settings_missing", PROTOCOL_ERROR, "RFC 9113 §3.4", "the first frame is not SETTINGS";
    FrameTooLarge, "frame_too_large", FRAME_SIZE_ERROR, "RFC 9113 §4.2", "a frame is larger than announced in SETTINGS_MAX_FRAME_SIZE";
    FrameSizeInvalid, "frame_size_invalid", FRAME_SIZE_ERROR, "RFC 9113 §4.2", "the length of a frame does not fit its type";
    PaddingInvalid, "padding_invalid", PROTOCOL_ERROR, "RFC 9113 §6.1", "the padding is longer than the frame";
    StreamIdInvalid, "stream_id_invalid", PROTOCOL_ERROR, "RFC 9113 §5.1.1", "the stream identifier does not fit the frame, or the role of the peer";
    StreamIdle, "stream_idle", PROTOCOL_ERROR, "RFC 9113 §5.1", "a frame is for a stream that was not opened";
    StreamClosed, "stream_closed", STREAM_CLOSED, "RFC 9113 §5.1", "a frame is for a stream that the peer has closed";
    HeadMissing, "head_missing", PROTOCOL_ERROR, "RFC 9113 §8.1", "content comes before the head";
    StreamRefused, "stream_refused", REFUSED_STREAM, "RFC 9113 §5.1.2", "the peer opens more streams than announced in SETTINGS_MAX_CONCURRENT_STREAMS";
    SelfDependency, "self_dependency", PROTOCOL_ERROR, "RFC 7540 §5.3.1", "a stream depends on itself";
    ContinuationMissing, "continuation_missing", PROTOCOL_ERROR, "RFC 9113 §6.10", "another frame interrupts a field block";
    ContinuationUnexpected, "continuation_unexpected", PROTOCOL_ERROR, "RFC 9113 §6.10", "a CONTINUATION frame does not follow an open field block";
    ContinuationFlood, "continuation_flood", ENHANCE_YOUR_CALM, "RFC 9113 §10.5", "a field block is too long, or in too many frames";
    BlockTooLarge, "block_too_large", ENHANCE_YOUR_CALM, "RFC 9113 §10.5.1", "a field block decodes to more than twice the size announced in SETTINGS_MAX_HEADER_LIST_SIZE";
    PushPromise, "push_promise", PROTOCOL_ERROR, "RFC 9113 §8.4", "a PUSH_PROMISE frame, which this end does not accept";
    SettingInvalid, "setting_invalid", PROTOCOL_ERROR, "RFC 9113 §6.5.2", "a setting has a value that is not allowed";
    InitialWindowInvalid, "initial_window_invalid", FLOW_CONTROL_ERROR, "RFC 9113 §6.5.2", "SETTINGS_INITIAL_WINDOW_SIZE is larger than 2,147,483,647";
    WindowIncrementZero, "window_increment_zero", PROTOCOL_ERROR, "RFC 9113 §6.9", "a WINDOW_UPDATE frame has an increment of zero";
    WindowOverflow, "window_overflow", FLOW_CONTROL_ERROR, "RFC 9113 §6.9.1", "a window grows beyond 2,147,483,647";
    WindowExceeded, "window_exceeded", FLOW_CONTROL_ERROR, "RFC 9113 §6.9.1", "the peer sends more data than the window allows";
    GoAwayInvalid, "go_away_invalid", PROTOCOL_ERROR, "RFC 9113 §6.8", "a second GOAWAY frame has a higher last stream";
    TableIndexInvalid, "table_index_invalid", COMPRESSION_ERROR, "RFC 7541 §2.3.3", "an index is zero or beyond the tables";
    TableSizeInvalid, "table_size_invalid", COMPRESSION_ERROR, "RFC 7541 §6.3", "a table size update is above the limit, missing, or not at the start of a block";
    IntegerOverflow, "integer_overflow", COMPRESSION_ERROR, "RFC 7541 §5.1", "an integer is too large";
    BlockTruncated, "block_truncated", COMPRESSION_ERROR, "RFC 7541 §5", "a field block ends within a field";
    HuffmanInvalid, "huffman_invalid", COMPRESSION_ERROR, "RFC 7541 §5.2", "a string is not valid Huffman code";
    FieldNameInvalid, "field_name_invalid", PROTOCOL_ERROR, "RFC 9113 §8.2.1", "a field name is not a lower-case token";
    FieldValueInvalid, "field_value_invalid", PROTOCOL_ERROR, "RFC 9113 §8.2.1", "a field value has a control character, or whitespace around it";
    ConnectionField, "connection_field", PROTOCOL_ERROR, "RFC 9113 §8.2.2", "a field is only for a connection of HTTP/1.1";
    PseudoUnknown, "pseudo_unknown", PROTOCOL_ERROR, "RFC 9113 §8.3", "a pseudo-header field is not defined for this message";
    PseudoRepeated, "pseudo_repeated", PROTOCOL_ERROR, "RFC 9113 §8.3", "a pseudo-header field is repeated";
    PseudoMissing, "pseudo_missing", PROTOCOL_ERROR, "RFC 9113 §8.3.1", "a pseudo-header field is missing";
    PseudoMisplaced, "pseudo_misplaced", PROTOCOL_ERROR, "RFC 9113 §8.3", "a pseudo-header field follows a regular field, or is in a trailer section";
    PseudoInvalid, "pseudo_invalid", PROTOCOL_ERROR, "RFC 9113 §8.3", "a pseudo-header field has a value that is not allowed";
    HostInvalid, "host_invalid", PROTOCOL_ERROR, "RFC 9113 §8.3.1", "the host field is repeated, not a host and an optional port, or differs from :authority";
    ContentLengthInvalid, "content_length_invalid", PROTOCOL_ERROR, "RFC 9113 §8.1.1", "the content-length is not one decimal number";
    ContentLengthMismatch, "content_length_mismatch", PROTOCOL_ERROR, "RFC 9113 §8.1.1", "the content is not as long as the content-length, or there must be none";
    TrailerForbidden, "trailer_forbidden", PROTOCOL_ERROR, "RFC 9110 §6.5.1", "a field in the trailer section would change the framing or the routing";
    TrailersUnfinished, "trailers_unfinished", PROTOCOL_ERROR, "RFC 9113 §8.1", "a second head does not end the stream";
    InterimFinished, "interim_finished", PROTOCOL_ERROR, "RFC 9113 §8.1", "an interim response ends the stream";
    TooManyInterim, "too_many_interim", ENHANCE_YOUR_CALM, "RFC 9110 §15.2", "there are too many interim responses, or their heads are too large";
    HeadTooLarge, "head_too_large", ENHANCE_YOUR_CALM, "RFC 9113 §10.5.1", "a head or trailer section is larger than announced in SETTINGS_MAX_HEADER_LIST_SIZE, or has too many fields";
    EnhanceYourCalm, "enhance_your_calm", ENHANCE_YOUR_CALM, "RFC 9113 §10.5", "there are too many frames without a use";
}
