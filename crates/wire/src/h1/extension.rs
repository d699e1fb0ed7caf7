//! Grammar of chunk extensions, byte by byte. Their meaning is irrelevant here: they end at this
//! hop.

use super::explain::is_token;

/// Position in the chunk extensions (RFC 9112 §7.1.1): names, each with a token or a quoted string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExtensionState {
    /// Before a name; blanks are allowed.
    Start,
    Name,
    NameEnd,
    /// Behind `=`; blanks are allowed.
    Equals,
    Token,
    Quoted,
    /// Behind a backslash in a quoted string.
    Escaped,
    QuotedEnd,
    ValueEnd,
}

impl ExtensionState {
    /// Returns the position behind one more byte; `None` if the byte is not allowed. Controls are
    /// rejected before.
    pub(super) fn next(self, byte: u8) -> Option<Self> {
        let is_blank = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            (Self::Start | Self::Equals, _) if is_blank => self,
            (Self::Start | Self::Name, _) if is_token(byte) => Self::Name,
            (Self::Name | Self::NameEnd, _) if is_blank => Self::NameEnd,
            (Self::Name | Self::NameEnd, b'=') => Self::Equals,
            (Self::Equals, b'"') => Self::Quoted,
            (Self::Equals | Self::Token, _) if is_token(byte) => Self::Token,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted | Self::Escaped, _) => Self::Quoted,
            (Self::Token | Self::QuotedEnd | Self::ValueEnd, _) if is_blank => Self::ValueEnd,
            (Self::Start | Self::Equals, _) => return None,
            (_, b';') => Self::Start,
            _ => return None,
        })
    }

    /// Returns whether the line may end here.
    pub(super) fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Token | Self::QuotedEnd)
    }
}
