//! `Cache-Status` (RFC 9211): the use of the cache, for the client.

use std::fmt::Write as _;

use cache::{NotStored, Object, UnixTime};

/// Reason for which a request was forwarded (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarded {
    Bypass,
    Method,
    UriMiss,
    /// The stored response is stale, or the request does not accept it.
    Stale,
    Request,
    /// The request waited for another one in vain.
    Miss,
}

impl Forwarded {
    fn name(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::Stale => "stale",
            Self::Request => "request",
            Self::Miss => "miss",
        }
    }
}

pub(crate) struct StatusField(String);

impl StatusField {
    pub(crate) fn hit(object: &Object, now: UnixTime) -> Self {
        Self(format!("weir; hit; ttl={}", object.storable().ttl_s(now)))
    }

    /// Returns that of a response that answered an equal request, too.
    pub(crate) fn collapsed(object: &Object, now: UnixTime) -> Self {
        Self(format!("weir; fwd=uri-miss; collapsed; ttl={}", object.storable().ttl_s(now)))
    }

    /// Returns that of a forwarded request, with the status of the server if that is not the client's.
    pub(crate) fn forwarded(
        reason: Forwarded,
        status: Option<u16>,
        stored: Result<&Object, Option<NotStored>>,
        now: UnixTime,
    ) -> Self {
        let mut text = format!("weir; fwd={}", reason.name());
        // Writing to a String cannot fail.
        if let Some(status) = status {
            let _ = write!(text, "; fwd-status={status}");
        }
        match stored {
            Ok(object) => {
                let _ = write!(text, "; stored; ttl={}", object.storable().ttl_s(now));
            }
            Err(Some(reason)) => {
                let _ = write!(text, "; detail={}", reason.name());
            }
            Err(None) => {}
        }
        Self(text)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
