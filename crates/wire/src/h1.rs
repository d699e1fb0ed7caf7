//! HTTP/1.0 and HTTP/1.1: heads, body framing, encoding.
//!
//! Each file has one responsibility: the types of heads ([`head`]), parsing of requests and
//! responses ([`request`], [`response`]), their lines ([`lines`], [`word`]), the semantics of their fields ([`fields`], [`target`]),
//! reasons of refusals ([`refusal`], [`explain`], [`salvage`]), body framing ([`body`]), and encoding
//! ([`encode`]). Nothing keeps connection state.

mod body;
pub mod encode;
mod explain;
mod extension;
mod fields;
mod head;
mod limits;
mod lines;
mod refusal;
mod request;
mod response;
mod rules;
mod salvage;
mod target;
mod word;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_body;
#[cfg(test)]
mod tests_encode;
#[cfg(test)]
mod tests_fields;
#[cfg(test)]
mod tests_limits;
#[cfg(test)]
mod tests_lines;
#[cfg(test)]
mod tests_response;

pub use body::{BodyDecoder, Decoded, Skipped};
pub use fields::name_is;
pub use head::{
    Framing, HEADERS_CAP, Header, HeaderSlots, Parsed, RequestHead, RequestKind, ResponseHead, Version,
    head_may_be_complete, header_slots,
};
pub use limits::Limits;
pub use refusal::{Refusal, RefusalKind};
pub use request::parse_request;
pub use response::parse_response;
pub use rules::{connection_options, field_value, is_hop_by_hop, known_field_value};
pub use salvage::salvage_request_line;

#[cfg(any(test, fuzzing))]
pub(crate) use explain::{explain_request, explain_response};
pub(crate) use explain::{is_field_value, is_token};
pub(crate) use fields::parse_content_length;
pub(crate) use target::split_host_port;
