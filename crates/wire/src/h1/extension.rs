//! The grammar of chunk extensions, byte by byte. What they mean is nobody's business here: they end
//! at this hop.

use super::explain::is_token;

/// A place in the chunk extensions (RFC 9112 §7.1.1): names, each with a token or a quoted string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Before a name, where blanks may stand.
    Start,
    Name,
    /// Blanks behind a name.
    NameEnd,
    /// Behind `=`, where blanks may stand.
    Equals,
    Token,
    Quoted,
    /// Behind a backslash of a quoted string.
    Escaped,
    /// Behind a quoted string.
    QuotedEnd,
    /// Blanks behind a value.
    ValueEnd,
}

impl Place {
    /// The place behind one more byte, of which controls are refused already; `None`: it may not
    /// stand there.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        let blank = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            (Self::Start | Self::Equals, _) if blank => self,
            (Self::Start | Self::Name, _) if is_token(byte) => Self::Name,
            (Self::Name | Self::NameEnd, _) if blank => Self::NameEnd,
            (Self::Name | Self::NameEnd, b'=') => Self::Equals,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Equals | Self::Token, _) if is_token(byte) => Self::Token,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted | Self::Escaped, _) => Self::Quoted,
            (Self::Token | Self::QuotedEnd | Self::ValueEnd, _) if blank => Self::ValueEnd,
            (Self::Start | Self::Equals, _) => return None,
            (_, b';') => Self::Start,
            _ => return None,
        })
    }

    /// Whether the line may end here.
    pub(super) fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::QuotedEnd)
    }
}
