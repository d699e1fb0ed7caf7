//! A request, rendered once: the bytes of every send.

use std::sync::Arc;

use serde::Serialize;
use wire::{RequestKind, encode};

use super::Url;
use super::template::Template;

/// Request of one URL of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RenderedRequest {
    pub url: Url,
    pub method: String,
    /// Fields apart from `Host` and `Content-Length`, in order.
    pub fields: Vec<(String, String)>,
    /// Length of the body, in bytes; with a template that of its text.
    pub body_bytes: u64,
    #[serde(skip_serializing_if = "is_one")]
    pub weight: u64,
    #[serde(skip)]
    pub body: Arc<[u8]>,
    /// Value of `Host` or `:authority`.
    #[serde(skip)]
    pub authority: String,
    /// All bytes of the request in HTTP/1.1, on a connection that stays open.
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// The same request with `Connection: close`, for the last one on a connection.
    #[serde(skip)]
    pub bytes_closing: Vec<u8>,
    /// Kind of the request, which determines the body of the response.
    #[serde(skip)]
    pub kind: RequestKind,
    /// Templates, if the request differs each time; `None`: all its bytes are above.
    #[serde(skip)]
    pub template: Option<Arc<RequestTemplate>>,
}

fn is_one(weight: &u64) -> bool {
    *weight == 1
}

#[derive(Clone, Debug, PartialEq)]
pub struct RequestTemplate {
    pub target: Template,
    pub fields: Vec<Template>,
    pub body: Template,
    /// True if the cookies of the connection are sent.
    pub has_cookies: bool,
}

impl RenderedRequest {
    #[must_use]
    pub fn new(url: Url, method: &str, fields: &[(String, String)], body: &[u8]) -> Self {
        Self {
            bytes: render(&url, method, fields, body, false),
            bytes_closing: render(&url, method, fields, body, true),
            kind: RequestKind::from_method(method),
            authority: fields
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case("host"))
                .map_or_else(|| url.authority.to_string(), |(_, host)| host.clone()),
            url,
            method: method.to_owned(),
            fields: fields.to_vec(),
            body_bytes: body.len() as u64,
            weight: 1,
            body: body.into(),
            template: None,
        }
    }

    #[inline]
    pub fn content_length(&self) -> Option<u64> {
        has_content_length(&self.method, &self.body).then_some(self.body_bytes)
    }

    #[inline]
    pub fn rendered_content_length(&self, body: &[u8]) -> Option<u64> {
        has_content_length(&self.method, body).then_some(body.len() as u64)
    }
}

fn render(url: &Url, method: &str, fields: &[(String, String)], body: &[u8], closing: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + body.len());
    let has = |name: &str| fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    encode::request_line(&mut out, method, &url.target);
    if !has("host") {
        encode::field(&mut out, "Host", url.authority.to_string().as_bytes());
    }
    for (name, value) in fields {
        encode::field(&mut out, name, value.as_bytes());
    }
    if has_content_length(method, body) {
        encode::field_u64(&mut out, "Content-Length", body.len() as u64);
    }
    if closing && !has("connection") {
        encode::field(&mut out, "Connection", b"close");
    }
    encode::end_of_head(&mut out);
    out.extend_from_slice(body);
    out
}

/// Returns whether a request has the field `Content-Length`. A method that anticipates content sends
/// it even without content (RFC 9110 §8.6).
#[inline]
fn has_content_length(method: &str, body: &[u8]) -> bool {
    !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_a_server_expects() {
        let url = Url::parse("http://a:81/x?y").unwrap();
        let fields = [("X-A".to_owned(), "1".to_owned())];
        let request = RenderedRequest::new(url.clone(), "GET", &fields, b"");
        assert_eq!(request.bytes, b"GET /x?y HTTP/1.1\r\nHost: a:81\r\nX-A: 1\r\n\r\n");
        let closing = String::from_utf8(request.bytes_closing).unwrap();
        assert!(closing.contains("\r\nConnection: close\r\n\r\n"));
        let post = RenderedRequest::new(url, "POST", &[("host".into(), "b".into())], b"hi");
        let text = String::from_utf8(post.bytes).unwrap();
        assert_eq!(text, "POST /x?y HTTP/1.1\r\nhost: b\r\nContent-Length: 2\r\n\r\nhi");
    }
}
