//! Settings of a listener for the heads of requests: paths, fields, and information for servers.

/// Fields added to requests that tell servers where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// `X-Forwarded-For`, `-Proto`, `-Host`; on by default.
    pub x_forwarded: bool,
    /// True if a trusted `X-Forwarded-For` stays as it is, instead of being appended to.
    pub only_if_none: bool,
    /// `Forwarded` (RFC 7239); off by default.
    pub forwarded: bool,
    /// The pseudonym in `Via` (RFC 9110 §7.6.3); `None`: no `Via` is added. `weir` by default.
    pub via: Option<Box<str>>,
    /// Field that carries the request id. An id is generated if there is none, or none that is
    /// trusted. `None`: no id. `X-Request-Id` by default.
    pub request_id: Option<Box<str>>,
    /// Treatment of fields with an underscore in their names.
    pub underscores: Underscores,
}

/// The form in which a listener's request paths are routed and forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRule {
    /// In their normal form; a path that servers read in different ways gets 400. The default.
    Normalise,
    /// As received; a path that is not in its normal form, or has empty segments, gets 400.
    Strict,
    /// Forwarded as received, and routed by their normal form.
    Raw,
}

/// Treatment of a request's fields with an underscore in their names, unless a trusted peer sent
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// They are not forwarded. The default.
    Drop,
    /// The request gets 400.
    Reject,
    /// They are forwarded.
    Pass,
}
