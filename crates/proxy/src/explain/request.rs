//! The hypothetical request of an explanation, from flags.

use std::net::IpAddr;

use record::problem::InputProblem;
use wire::{Framing, Header, RequestHead};

use crate::plan::ListenerPlan;
use crate::request_view::{CertificateField, ClientFacts, RequestView};
use crate::uri::{split_target, without_port};

/// A hypothetical request. Made by [`ExplainRequest::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainRequest {
    pub(super) method: String,
    pub(super) target: String,
    /// The URL's authority, or the `Host` header.
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) source: Option<IpAddr>,
    /// Subject of the client's certificate.
    certificate: Option<String>,
    /// Time of the request in nanoseconds since 1970.
    unix_ns: u64,
}

/// Facts about the client of such a request: it sends the host as server name.
pub(super) struct ExplainClient<'a> {
    request: &'a ExplainRequest,
    is_tls: bool,
}

impl ClientFacts for ExplainClient<'_> {
    fn port(&self) -> u16 {
        0
    }

    fn is_tls(&self) -> bool {
        self.is_tls
    }

    fn tls_names(&self) -> Option<(&'static str, &'static str)> {
        self.is_tls.then_some(("TLSv1.3", "TLS_AES_128_GCM_SHA256"))
    }

    fn server_name(&self) -> Option<&str> {
        self.request.host.as_deref().filter(|_| self.is_tls).map(without_port)
    }

    fn certificate(&self) -> Option<&[u8]> {
        None
    }

    fn unix_ns(&self) -> u64 {
        self.request.unix_ns
    }
}

impl ExplainRequest {
    /// Parses `[METHOD ]URL` (a URL, or a target such as `/path?query`), header lines of the form
    /// `Name: value`, and the client's address (empty: not given).
    ///
    /// # Errors
    /// All problems, by flag.
    pub fn parse(request: &str, headers: &[String], source: &str) -> Result<Self, Vec<InputProblem>> {
        let mut problems = Vec::new();
        let (method, url) = request.split_once(' ').unwrap_or(("GET", request));
        let url = url.trim();
        for error in [wire::encode::check_method(method), wire::encode::check_target(url)] {
            problems.extend(error.err().map(|error| InputProblem::new("--explain", error)));
        }
        let is_known_form = url.starts_with('/') || url == "*" || url.contains("://") || method == "CONNECT";
        if !is_known_form {
            let text = format!("'{url}' is neither a URL nor a path (write http://host/path)");
            problems.push(InputProblem::new("--explain", text));
        }
        let headers: Vec<_> = headers.iter().filter_map(|line| parse_header(line, &mut problems)).collect();
        let source = match source.parse() {
            Ok(address) => Some(address),
            Err(_) if source.is_empty() => None,
            Err(_) => {
                let text = format!("'{source}' is not an IP address (write 192.0.2.1 or 2001:db8::1)");
                problems.push(InputProblem::new("--source", text));
                None
            }
        };
        let authority = authority_of(method, url);
        let host_header = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = authority.or_else(|| host_header.map(|(_, value)| value.as_str()));
        let default_port = url.starts_with("http://").then_some(80);
        let port = host.and_then(|host| host[without_port(host).len()..].strip_prefix(':'));
        let port = port.and_then(|port| port.parse().ok()).or(default_port);
        let (path, query) = split_target(url);
        let request = Self {
            method: method.to_owned(),
            target: format!("{path}{query}"),
            host: host.map(str::to_owned),
            port,
            headers,
            source,
            certificate: None,
            unix_ns: rt::clock::unix_ns(),
        };
        if problems.is_empty() { Ok(request) } else { Err(problems) }
    }

    /// Sets the subject of the client's certificate; empty: none.
    #[must_use]
    pub fn with_certificate(self, subject: &str) -> Self {
        let certificate = (!subject.is_empty()).then(|| subject.to_owned());
        Self { certificate, ..self }
    }

    pub(super) fn client(&self, listener: &ListenerPlan) -> ExplainClient<'_> {
        ExplainClient { request: self, is_tls: listener.tls.is_some() }
    }

    pub(super) fn wire_headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect()
    }

    pub(super) fn head<'a>(&'a self, headers: &'a [Header<'a>]) -> RequestHead<'a, 'a> {
        let has_option = |expected: &[u8]| {
            wire::connection_options(headers).any(|option| option.eq_ignore_ascii_case(expected))
        };
        let is_chunked = wire::field_value(headers, "transfer-encoding").is_some();
        let upgrade = wire::field_value(headers, "upgrade").filter(|_| has_option(b"upgrade"));
        RequestHead {
            method: &self.method,
            target: &self.target,
            version: wire::Version::Http11,
            headers,
            host: self.host.as_deref(),
            framing: if is_chunked { Framing::Chunked } else { Framing::None },
            keep_alive: !has_option(b"close"),
            expect_continue: is_chunked && wire::field_value(headers, "expect").is_some(),
            upgrade: upgrade.and_then(|value| std::str::from_utf8(value).ok()),
            has_connection_options: true,
            received: b"",
        }
    }

    pub(super) fn view<'a>(
        &'a self,
        head: &'a RequestHead<'a, 'a>,
        listener: &'a ListenerPlan,
    ) -> RequestView<'a> {
        let is_trusted = |source| listener.trusted.iter().any(|network| network.contains(source));
        let field_name = listener.tls.as_ref().and_then(|tls| tls.client_header.as_deref());
        let subject = self.certificate.as_deref();
        RequestView {
            head,
            is_trusted: self.source.is_some_and(is_trusted),
            forwarding: &listener.forwarding,
            certificate: field_name.map(|name| CertificateField { name, subject }),
        }
    }
}

fn authority_of<'a>(method: &str, url: &'a str) -> Option<&'a str> {
    if method == "CONNECT" {
        return Some(url);
    }
    if url.starts_with('/') {
        return None;
    }
    let rest = url.split_once("://")?.1;
    Some(&rest[..rest.find(['/', '?']).unwrap_or(rest.len())])
}

fn parse_header(line: &str, problems: &mut Vec<InputProblem>) -> Option<(String, String)> {
    let Some((name, value)) = line.split_once(':') else {
        let text = format!("'{line}' has no colon (write 'Name: value')");
        problems.push(InputProblem::new("--header", text));
        return None;
    };
    let value = value.trim();
    let results = [wire::encode::check_field_name(name), wire::encode::check_field_value(value.as_bytes())];
    problems.extend(
        results.into_iter().filter_map(Result::err).map(|error| InputProblem::new("--header", error)),
    );
    Some((name.to_owned(), value.to_owned()))
}
