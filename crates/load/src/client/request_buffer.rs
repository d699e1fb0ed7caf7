//! Requests with templates, rendered for one send on a connection.

use wire::encode;

use crate::plan::{RenderedRequest, RequestTemplate, TemplatePosition, TemplateRequest};
use crate::session::{ClientSession, CookieTarget};

/// Buffers for a request that differs each time. They are used again, so that rendering allocates
/// nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestBuffer {
    /// In HTTP/1.1 the complete request; in HTTP/2 the target, the values of the fields and the cookies.
    pub(super) bytes: Vec<u8>,
    ends: Vec<usize>,
    pub(super) body: Vec<u8>,
}

impl RequestBuffer {
    /// Renders a request with templates for HTTP/1.1.
    pub(super) fn render_http1(
        &mut self,
        request: &RenderedRequest,
        template: &RequestTemplate,
        is_closing: bool,
        values: TemplateRequest<'_>,
        session: &mut ClientSession,
    ) {
        let Self { bytes, body, .. } = self;
        body.clear();
        template.body.render(body, TemplatePosition::Body, values, session);
        bytes.clear();
        bytes.extend_from_slice(request.method.as_bytes());
        bytes.push(b' ');
        let target_start = bytes.len();
        template.target.render(bytes, TemplatePosition::Target, values, session);
        if template.has_cookies {
            session.begin_request(cookie_target(request, &bytes[target_start..]));
        }
        bytes.extend_from_slice(b" HTTP/1.1\r\n");
        let has = |name: &str| request.fields.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !has("host") {
            encode::field(bytes, "Host", request.authority.as_bytes());
        }
        for ((name, _), value) in request.fields.iter().zip(&template.fields) {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            value.render(bytes, TemplatePosition::Field, values, session);
            bytes.extend_from_slice(b"\r\n");
        }
        if template.has_cookies {
            let start = bytes.len();
            bytes.extend_from_slice(b"Cookie: ");
            match session.write_cookies(rt::clock::unix_ns(), bytes) {
                true => bytes.extend_from_slice(b"\r\n"),
                false => bytes.truncate(start),
            }
        }
        if let Some(length) = request.rendered_content_length(body) {
            encode::field_u64(bytes, "Content-Length", length);
        }
        if is_closing && !has("connection") {
            encode::field(bytes, "Connection", b"close");
        }
        encode::end_of_head(bytes);
        bytes.extend_from_slice(body);
    }

    /// Renders the parts of a request with templates for HTTP/2.
    pub(super) fn render_parts(
        &mut self,
        request: &RenderedRequest,
        template: &RequestTemplate,
        values: TemplateRequest<'_>,
        session: &mut ClientSession,
    ) {
        let Self { bytes, ends, body } = self;
        bytes.clear();
        ends.clear();
        body.clear();
        template.target.render(bytes, TemplatePosition::Target, values, session);
        ends.push(bytes.len());
        for value in &template.fields {
            value.render(bytes, TemplatePosition::Field, values, session);
            ends.push(bytes.len());
        }
        if template.has_cookies {
            session.begin_request(cookie_target(request, &bytes[..ends[0]]));
            session.write_cookies(rt::clock::unix_ns(), bytes);
        }
        ends.push(bytes.len());
        template.body.render(body, TemplatePosition::Body, values, session);
    }

    /// Returns part `index` for HTTP/2: the target, then the fields, then the cookies.
    pub(super) fn part(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }
}

fn cookie_target<'a>(request: &'a RenderedRequest, path: &'a [u8]) -> CookieTarget<'a> {
    CookieTarget { host: &request.authority, is_tls: request.url.authority.is_tls(), path }
}
