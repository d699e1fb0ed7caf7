//! What a listener does with the heads of requests: paths, fields, and what servers are told.

/// What is said to servers about where a request came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// `X-Forwarded-For`, `-Proto`, `-Host`; on by default.
    pub x_forwarded: bool,
    /// Whether an `X-Forwarded-For` that is believed stays as it is, instead of being appended to.
    pub only_if_none: bool,
    /// `Forwarded` (RFC 7239); off by default.
    pub forwarded: bool,
    /// The pseudonym in `Via` (RFC 9110 §7.6.3); `None`: no `Via` is added. `weir` by default.
    pub via: Option<Box<str>>,
    /// The field that carries the request id, made if it is not believed or not there; `None`: no
    /// id. `X-Request-Id` by default.
    pub request_id: Option<Box<str>>,
    /// Fields with an underscore in their names.
    pub underscores: Underscores,
}

/// The form in which a listener's request paths are routed and forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRule {
    /// In their normal form; a path that servers read in different ways is 400. The default.
    Normalise,
    /// As they came; a path that is not in its normal form, or has empty segments, is 400.
    Strict,
    /// As they came, and routed by their normal form.
    Raw,
}

/// What becomes of a request's fields with an underscore in their names, unless a trusted peer sent
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// They are not forwarded. The default.
    Drop,
    /// The request is 400.
    Reject,
    /// They are forwarded.
    Pass,
}
