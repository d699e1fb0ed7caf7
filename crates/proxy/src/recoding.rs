//! Content codings of forwarded responses: the choice for each one, and its head with it. Pure. `exchange`
//! encodes the content.
//!
//! A compressed response tells its length. Where it repeats a secret of the user beside text of somebody else, the
//! length reveals the secret (BREACH). So what repeats parts of a request has no coding if the request has
//! credentials, unless the plan allows it.

mod codec;

pub(crate) use codec::Recoding;
use content::codings::{AcceptedCodings, Coding};
use content::conditions::{has_weak_tag, with_strong_forms};
use content::media_types::is_static;
use wire::{Framing, Header, RequestKind, ResponseHead, Version};

use crate::plan::CompressionPlan;
use crate::request_view::RequestView;

/// Statements of a request about the coding of its response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CodingRequest {
    accepted: AcceptedCodings,
    has_credentials: bool,
    forbids_transform: bool,
    /// True if the client knows a weak entity tag.
    has_weak_tag: bool,
}

impl CodingRequest {
    pub(crate) fn of(view: &RequestView<'_>) -> Self {
        let values = |name: &'static str| {
            let lines = view.ordinary_lines(name).iter();
            lines.filter(move |line| line.name.eq_ignore_ascii_case(name)).map(|line| line.value)
        };
        Self {
            accepted: AcceptedCodings::from_values(values("accept-encoding")),
            has_credentials: values("cookie").chain(values("authorization")).next().is_some(),
            forbids_transform: values("cache-control").any(forbids_transform),
            has_weak_tag: values("if-none-match").any(has_weak_tag),
        }
    }

    /// Returns the fields of a request as its server gets them: the tags of responses that got a coding are weak, and
    /// a server that compares byte by byte finds its own beside them. `None`: they are the same.
    pub(crate) fn forwarded_tags(self, headers: &[Header<'_>]) -> Option<Vec<(usize, Vec<u8>)>> {
        if !self.has_weak_tag {
            return None;
        }
        let lines = headers.iter().enumerate();
        let lists = lines.filter(|(_, header)| header.name.eq_ignore_ascii_case("if-none-match"));
        let forms = lists.filter_map(|(at, header)| Some((at, with_strong_forms(header.value)?)));
        Some(forms.collect())
    }
}

/// Fate of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodingDecision {
    /// No client gets another coding.
    Unchanged,
    /// This client gets the response as it is; others may get a coding.
    Varies,
    Coded(Coding),
    /// The content is decoded, because this client does not accept its coding.
    Decoded(Coding),
}

/// Decides on a response whose request is of this kind and version.
pub(crate) fn decide(
    head: &ResponseHead<'_, '_>,
    (kind, version): (RequestKind, Version),
    request: CodingRequest,
    plan: &CompressionPlan,
) -> CodingDecision {
    use CodingDecision::{Coded, Decoded, Unchanged, Varies};
    if head.status == 304 {
        // Of the same representation, whose type it does not tell.
        return Varies;
    }
    let has = |name: &str| wire::field_value(head.headers, name).is_some();
    let may_change = head.status >= 200
        && !matches!(head.status, 204..=206)
        && !has("content-range")
        && !values(head, "cache-control").any(forbids_transform);
    if has("content-encoding") {
        let coding = single_coding(head).filter(|_| may_change && plan.decodes);
        let Some(coding) = coding.filter(|_| has_content(head, kind)) else { return Unchanged };
        let is_wanted = !request.accepted.accepts(coding) && request.accepted.accepts_identity();
        let is_decoded = is_wanted && !request.forbids_transform && version == Version::Http11;
        return if is_decoded { Decoded(coding) } else { Varies };
    }
    let is_long = |bytes: u64| bytes >= plan.bytes_min.max(1);
    let is_long_enough = match head.framing {
        Framing::None => content_length(head).is_none_or(is_long),
        Framing::Length(bytes) => is_long(bytes),
        Framing::Chunked | Framing::UntilClose => true,
    };
    let Some(media_type) = media_type(head) else { return Unchanged };
    if !may_change || !has_content(head, kind) || !is_long_enough || !plan.covers(&media_type) {
        return Unchanged;
    }
    let may_leak = request.has_credentials && !plan.with_credentials && !is_static(&media_type);
    // HTTP/1.0 would end the connection to end the content.
    if may_leak || request.forbids_transform || version == Version::Http10 {
        return Varies;
    }
    request.accepted.choose_of(&plan.codings).map_or(Varies, Coded)
}

/// Returns whether the response, or that to GET, has content.
fn has_content(head: &ResponseHead<'_, '_>, kind: RequestKind) -> bool {
    kind != RequestKind::Connect && (kind == RequestKind::Head || head.framing != Framing::None)
}

/// Returns the coding of content that has one, which is known.
fn single_coding(head: &ResponseHead<'_, '_>) -> Option<Coding> {
    let mut lines = values(head, "content-encoding");
    let (name, rest) = (lines.next()?, lines.next());
    let is = |coding: &Coding| {
        name.eq_ignore_ascii_case(coding.name().as_bytes())
            || *coding == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip")
    };
    Coding::ALL.into_iter().find(is).filter(|_| rest.is_none())
}

/// Returns the media type of a response in lower case, without parameters.
fn media_type(head: &ResponseHead<'_, '_>) -> Option<String> {
    let value = wire::field_value(head.headers, "content-type")?;
    let name = value.split(|&byte| matches!(byte, b';' | b',')).next().unwrap_or_default();
    Some(String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase())
}

/// Returns whether a response is a stream of events, each of which is of use when it arrives.
pub(crate) fn is_event_stream(head: &ResponseHead<'_, '_>) -> bool {
    media_type(head).is_some_and(|media_type| media_type == "text/event-stream")
}

fn content_length(head: &ResponseHead<'_, '_>) -> Option<u64> {
    let value = wire::field_value(head.headers, "content-length")?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn values<'h>(head: &'h ResponseHead<'_, '_>, name: &'h str) -> impl Iterator<Item = &'h [u8]> {
    let lines = head.headers.iter();
    lines.filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// Returns whether a `Cache-Control` forbids another coding (RFC 9111 §5.2).
fn forbids_transform(value: &[u8]) -> bool {
    has_member(value, b"no-transform")
}

/// Returns whether a list has a member, whatever its case.
fn has_member(list: &[u8], member: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(member))
}

/// Returns the weak form of a response's entity tag: the content has the same meaning in other bytes. `None`: it has no
/// tag, or a weak one.
pub(crate) fn weak_tag(head: &ResponseHead<'_, '_>) -> Option<Vec<u8>> {
    let tag = wire::field_value(head.headers, "etag").filter(|tag| tag.starts_with(b"\""))?;
    Some([b"W/", tag].concat())
}

/// Fields of the bytes that the server sent: of their length, their parts and their digests (RFC 9110 §8.6 and §14.3,
/// RFC 9530 §2 and §3).
const FIELDS_OF_BYTES: [&str; 6] =
    ["content-length", "accept-ranges", "content-md5", "digest", "content-digest", "repr-digest"];

/// Returns whether a field describes the bytes that the server sent, and goes with them.
pub(crate) fn describes_bytes(name: &str) -> bool {
    FIELDS_OF_BYTES.iter().any(|field| name.eq_ignore_ascii_case(field))
}

/// Returns the fields of a response as its client gets them, with `tag` as its entity tag if there is one.
pub(crate) fn response_fields<'h>(
    head: &ResponseHead<'_, 'h>,
    decision: CodingDecision,
    tag: Option<&'h [u8]>,
) -> Vec<Header<'h>> {
    let mut fields: Vec<Header<'h>> = Vec::with_capacity(head.headers.len() + 2);
    for &header in head.headers {
        let is_decoded = matches!(decision, CodingDecision::Decoded(_));
        let is_coded = is_decoded || matches!(decision, CodingDecision::Coded(_));
        match tag {
            Some(tag) if header.name.eq_ignore_ascii_case("etag") => {
                fields.push(Header { name: header.name, value: tag });
            }
            _ if is_coded && describes_bytes(header.name) => {}
            _ if is_decoded && header.name.eq_ignore_ascii_case("content-encoding") => {}
            _ => fields.push(header),
        }
    }
    if let CodingDecision::Coded(coding) = decision {
        fields.push(Header { name: "Content-Encoding", value: coding.name().as_bytes() });
    }
    let varies = |value: &[u8]| has_member(value, b"*") || has_member(value, b"accept-encoding");
    if decision != CodingDecision::Unchanged && !values(head, "vary").any(varies) {
        fields.push(Header { name: "Vary", value: b"Accept-Encoding" });
    }
    fields
}

/// Returns the tag that a response gets: a weak one with a coding, and in a 304 to a client that knows the weak one.
pub(crate) fn response_tag(
    head: &ResponseHead<'_, '_>,
    decision: CodingDecision,
    request: CodingRequest,
) -> Option<Vec<u8>> {
    let is_weak = match decision {
        CodingDecision::Coded(_) | CodingDecision::Decoded(_) => true,
        _ => head.status == 304 && request.has_weak_tag,
    };
    if is_weak { weak_tag(head) } else { None }
}

/// Replaces the values of fields by index.
pub(crate) fn with_values<'h>(headers: &[Header<'h>], replaced: &'h [(usize, Vec<u8>)]) -> Vec<Header<'h>> {
    let mut fields = headers.to_vec();
    for (at, value) in replaced {
        fields[*at].value = value;
    }
    fields
}

#[cfg(test)]
mod tests;
