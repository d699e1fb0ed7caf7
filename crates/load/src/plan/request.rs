//! A request, rendered once: the bytes of every send.

use serde::Serialize;
use wire::{RequestKind, encode};

use super::Url;

/// Request of one URL of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RenderedRequest {
    /// URL of the request.
    pub url: Url,
    /// The method.
    pub method: String,
    /// Fields apart from `Host` and `Content-Length`, in order.
    pub fields: Vec<(String, String)>,
    /// Length of the body, in bytes.
    pub body_bytes: u64,
    /// All bytes of the request, on a connection that stays open.
    #[serde(skip)]
    pub bytes: Vec<u8>,
    /// The same request with `Connection: close`, for the last one on a connection.
    #[serde(skip)]
    pub bytes_closing: Vec<u8>,
    /// Kind of the request, which determines the body of the response.
    #[serde(skip)]
    pub kind: RequestKind,
}

impl RenderedRequest {
    /// Renders a request from validated parts.
    #[must_use]
    pub fn new(url: Url, method: &str, fields: &[(String, String)], body: &[u8]) -> Self {
        Self {
            bytes: render(&url, method, fields, body, false),
            bytes_closing: render(&url, method, fields, body, true),
            kind: RequestKind::from_method(method),
            url,
            method: method.to_owned(),
            fields: fields.to_vec(),
            body_bytes: body.len() as u64,
        }
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
    // RFC 9110 §8.6: a method that anticipates content sends the field, even without content.
    let anticipates = matches!(method, "POST" | "PUT" | "PATCH");
    if !body.is_empty() || anticipates {
        encode::field_u64(&mut out, "Content-Length", body.len() as u64);
    }
    if closing && !has("connection") {
        encode::field(&mut out, "Connection", b"close");
    }
    encode::end_of_head(&mut out);
    out.extend_from_slice(body);
    out
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
