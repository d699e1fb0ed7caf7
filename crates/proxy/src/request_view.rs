//! The request that routes, limits, balancing and logs see: the fields that a server gets, before the
//! changes of a route. A received field that is not forwarded counts for nothing; the subject of a verified
//! certificate counts like a received field. `forward` writes heads by the same rules. Pure, and
//! without a copy: a lookup checks the name only.
//!
//! Fields that the proxy adds on its own (`X-Forwarded-For` and such, `Via`, a new request id) are not part
//! of it: routes have `source`, `host` and `listener` for the same facts.

use wire::{Framing, Header, RequestHead};

use crate::auth::Identity;
use crate::field_names::{has_underscore, is_connection_option, is_identity_field, is_same_field};
use crate::plan::{Forwarding, Underscores};

/// A request's head with the facts that decide which of its fields count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestView<'a> {
    /// The head as received. Its fields are read through the view.
    pub(crate) head: &'a RequestHead<'a, 'a>,
    /// True if the peer's statements about its client are believed.
    pub(crate) is_trusted: bool,
    pub(crate) forwarding: &'a Forwarding,
    pub(crate) certificate: Option<CertificateField<'a>>,
}

/// Facts about the client of a request that its head does not have. They are read only where a text or a
/// condition uses them.
pub(crate) trait ClientFacts {
    fn port(&self) -> u16;

    fn is_tls(&self) -> bool;

    /// Returns the names of the TLS version and the cipher suite.
    fn tls_names(&self) -> Option<(&'static str, &'static str)>;

    /// Returns the server name that the client asked for (SNI).
    fn server_name(&self) -> Option<&str>;

    fn certificate(&self) -> Option<&[u8]>;

    /// Returns the time in nanoseconds since 1970.
    fn unix_ns(&self) -> u64;

    /// Returns what the authentication of the request has found; it comes after the choice of the route.
    fn identity(&self) -> Option<&Identity> {
        None
    }
}

/// The facts about a client, and what the authentication of its request has found.
pub(crate) struct AuthenticatedFacts<'a> {
    pub(crate) client: &'a dyn ClientFacts,
    pub(crate) identity: Option<&'a Identity>,
}

impl ClientFacts for AuthenticatedFacts<'_> {
    fn port(&self) -> u16 {
        self.client.port()
    }

    fn is_tls(&self) -> bool {
        self.client.is_tls()
    }

    fn tls_names(&self) -> Option<(&'static str, &'static str)> {
        self.client.tls_names()
    }

    fn server_name(&self) -> Option<&str> {
        self.client.server_name()
    }

    fn certificate(&self) -> Option<&[u8]> {
        self.client.certificate()
    }

    fn unix_ns(&self) -> u64 {
        self.client.unix_ns()
    }

    fn identity(&self) -> Option<&Identity> {
        self.identity
    }
}

/// The field for the subject of a client's certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateField<'a> {
    pub(crate) name: &'a str,
    /// `None`: the client has no verified certificate.
    pub(crate) subject: Option<&'a str>,
}

/// Effect of the rules on a received field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldEffect {
    Forwarded,
    /// The request id of a trusted peer, which is forwarded.
    RequestId,
    Removed(RemovalReason),
}

/// Reason why a received field does not count and is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    ConnectionOption,
    Certificate,
    UntrustedRequestId,
    UntrustedIdentity,
    UntrustedUnderscore,
}

impl RemovalReason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::ConnectionOption => "Connection names it, so it is only for this hop",
            Self::Certificate => "only a verified client certificate sets it",
            Self::UntrustedRequestId => "the client is not trusted, and gets a new request id",
            Self::UntrustedIdentity => "the client is not trusted to state addresses",
            Self::UntrustedUnderscore => "its name has an underscore, and the client is not trusted",
        }
    }
}

/// Fields of a head that logs and traces need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotedFields<'a> {
    pub(crate) user_agent: Option<&'a [u8]>,
    /// True if the head has a `traceparent` or `tracestate`, valid or not.
    pub(crate) has_trace_context: bool,
}

impl<'a> NotedFields<'a> {
    /// Adds a field whose name has 10 or 11 bytes.
    #[inline]
    fn add(&mut self, header: &Header<'a>) {
        match header.name.as_bytes()[0] | 0x20 {
            b'u' if self.user_agent.is_none() => {
                self.user_agent = wire::known_field_value(std::slice::from_ref(header), b"user-agent");
            }
            b't' => {
                self.has_trace_context |= header.name.eq_ignore_ascii_case("tracestate")
                    || header.name.eq_ignore_ascii_case("traceparent");
            }
            _ => {}
        }
    }
}

impl<'a> RequestView<'a> {
    pub(crate) fn values(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let (lines, own_value) = self.find(name);
        lines
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
            .chain(own_value)
    }

    pub(crate) fn value(&self, name: &str) -> Option<&'a [u8]> {
        let (lines, own_value) = self.find(name);
        wire::field_value(lines, name).or(own_value)
    }

    /// Same as [`RequestView::value`] at less cost, for names that no rule treats in a special way: without
    /// an underscore, neither an identity field nor hop-by-hop.
    #[inline]
    pub(crate) fn ordinary_value(&self, name: &str) -> Option<&'a [u8]> {
        wire::field_value(self.ordinary_lines(name), name)
    }

    /// Finds the fields that logs and traces need of each request, in one pass.
    #[inline]
    pub(crate) fn noted_fields(&self) -> NotedFields<'a> {
        let mut fields = NotedFields::default();
        for header in self.head.headers {
            if matches!(header.name.len(), 10 | 11) {
                fields.add(header);
            }
        }
        if self.has_rule() {
            fields.user_agent = self.ordinary_value("user-agent");
        }
        fields
    }

    /// Returns whether a rule may concern a field without an underscore that is neither an identity field nor
    /// hop-by-hop.
    #[inline]
    fn has_rule(&self) -> bool {
        self.head.has_connection_options || self.certificate.is_some()
    }

    /// Returns the lines among which those of such a field are.
    #[inline]
    pub(crate) fn ordinary_lines(&self, name: &str) -> &'a [Header<'a>] {
        if self.has_rule() { self.find(name).0 } else { self.head.headers }
    }

    /// Returns the lines among which those of a field are, and the value that the proxy writes instead of
    /// received ones.
    fn find(&self, name: &str) -> (&'a [Header<'a>], Option<&'a [u8]>) {
        if let Some(field) = self.certificate
            && field.name.eq_ignore_ascii_case(name)
        {
            return (&[], field.subject.map(str::as_bytes));
        }
        if let Some(own_value) = self.rewritten_value(name) {
            return (&[], own_value);
        }
        match self.verdict(name) {
            FieldEffect::Forwarded | FieldEffect::RequestId => (self.head.headers, None),
            FieldEffect::Removed(_) => (&[], None),
        }
    }

    /// Returns the effect of the rules on a received field of this name, except for the fields that the
    /// proxy writes itself for each connection and each message.
    #[inline]
    pub(crate) fn verdict(&self, name: &str) -> FieldEffect {
        use FieldEffect::Removed;
        if self.head.has_connection_options && is_connection_option(self.head.headers, name) {
            return Removed(RemovalReason::ConnectionOption);
        }
        if let Some(id) = &self.forwarding.request_id
            && name.len() == id.len()
            && name.eq_ignore_ascii_case(id)
        {
            return match self.is_trusted {
                true => FieldEffect::RequestId,
                false => Removed(RemovalReason::UntrustedRequestId),
            };
        }
        if self.certificate.is_some_and(|field| is_same_field(name, field.name)) {
            return Removed(RemovalReason::Certificate);
        }
        if self.is_trusted {
            return FieldEffect::Forwarded;
        }
        if is_identity_field(name) {
            return Removed(RemovalReason::UntrustedIdentity);
        }
        if self.forwarding.underscores != Underscores::Pass && has_underscore(name) {
            return Removed(RemovalReason::UntrustedUnderscore);
        }
        FieldEffect::Forwarded
    }

    /// Returns the value of a field that the proxy writes itself for each connection or message: `None`
    /// inside, if the server does not get one. `None`: the field is none of these.
    fn rewritten_value(&self, name: &str) -> Option<Option<&'a [u8]>> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let value = match name.len() {
            4 if is("host") => self.head.host.map(str::as_bytes),
            6 if is("expect") && !self.head.expect_continue => None,
            7 if is("trailer") && self.head.framing != Framing::Chunked => None,
            7 if is("trailer") => return None,
            7 if is("upgrade") => self.upgrade().map(str::as_bytes),
            2 if is("te") => self.accepts_trailers().then_some(b"trailers".as_slice()),
            10 if is("connection") => self.connection_value().map(str::as_bytes),
            17 if is("transfer-encoding") => {
                (self.head.framing == Framing::Chunked).then_some(b"chunked".as_slice())
            }
            _ if wire::is_hop_by_hop(name) => None,
            _ => return None,
        };
        Some(value)
    }

    /// Returns the protocols of an upgrade to request from the server. After an upgrade to HTTP/2 the proxy
    /// could no longer see requests (RFC 9113 §3.1 drops it too).
    pub(crate) fn upgrade(&self) -> Option<&'a str> {
        self.head.upgrade.filter(|protocols| !contains_http2(protocols))
    }

    /// Returns whether the client requests an upgrade to HTTP/2.
    pub(crate) fn requests_http2(&self) -> bool {
        self.head.upgrade.is_some_and(contains_http2)
    }

    /// Returns whether the client accepts trailers. Without `TE: trailers` a server may omit its trailers
    /// (RFC 9110 §10.1.4); the proxy passes them on.
    pub(crate) fn accepts_trailers(&self) -> bool {
        wire::field_value(self.head.headers, "te").is_some_and(|value| {
            value.split(|&byte| byte == b',').any(|part| part.trim_ascii() == b"trailers")
        })
    }

    /// Returns the connection options of the server connection; it is persistent without any.
    pub(crate) fn connection_value(&self) -> Option<&'static str> {
        match (self.upgrade().is_some(), self.accepts_trailers()) {
            (true, true) => Some("upgrade, TE"),
            (true, false) => Some("upgrade"),
            (false, true) => Some("TE"),
            (false, false) => None,
        }
    }
}

/// Returns whether a list of protocols contains HTTP/2 in any form. Recipients compare protocol
/// names without case.
pub(crate) fn contains_http2(protocols: &str) -> bool {
    protocols
        .split(',')
        .any(|protocol| protocol.trim().get(..2).is_some_and(|start| start.eq_ignore_ascii_case("h2")))
}

/// Requests of tests.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;

    /// Facts about a client of tests.
    #[derive(Default)]
    pub(crate) struct FixedFacts {
        pub(crate) server_name: Option<&'static str>,
        pub(crate) certificate: Option<Vec<u8>>,
        pub(crate) unix_ns: u64,
    }

    impl ClientFacts for FixedFacts {
        fn port(&self) -> u16 {
            1234
        }

        fn is_tls(&self) -> bool {
            self.server_name.is_some()
        }

        fn tls_names(&self) -> Option<(&'static str, &'static str)> {
            self.server_name.map(|_| ("TLSv1.3", "TLS_AES_128_GCM_SHA256"))
        }

        fn server_name(&self) -> Option<&str> {
            self.server_name
        }

        fn certificate(&self) -> Option<&[u8]> {
            self.certificate.as_deref()
        }

        fn unix_ns(&self) -> u64 {
            self.unix_ns
        }
    }

    pub(crate) static FORWARDING: Forwarding = Forwarding {
        x_forwarded: true,
        only_if_none: false,
        forwarded: false,
        via: None,
        request_id: None,
        underscores: Underscores::Drop,
    };

    pub(crate) const fn head<'a>(headers: &'a [Header<'a>]) -> RequestHead<'a, 'a> {
        RequestHead {
            method: "GET",
            target: "/",
            version: wire::Version::Http11,
            headers,
            host: Some("h"),
            framing: Framing::None,
            keep_alive: true,
            expect_continue: false,
            upgrade: None,
            has_connection_options: true,
            received: b"",
        }
    }

    pub(crate) const fn view<'a>(head: &'a RequestHead<'a, 'a>) -> RequestView<'a> {
        RequestView { head, is_trusted: false, forwarding: &FORWARDING, certificate: None }
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{FORWARDING, head, view};
    use super::*;

    fn values<'a>(view: &RequestView<'a>, name: &str) -> Vec<&'a str> {
        let values: Vec<_> = view.values(name).map(|value| std::str::from_utf8(value).unwrap()).collect();
        assert_eq!(view.value(name), values.first().map(|value| value.as_bytes()), "{name}");
        values
    }

    #[test]
    fn only_a_certificate_sets_its_field() {
        let headers = ["X-Client-DN", "x_client_dn", "X-CLIENT_dn", "x-client-dnn"]
            .map(|name| Header { name, value: b"CN=forged" });
        let head = head(&headers);
        let pass = Forwarding { underscores: Underscores::Pass, ..FORWARDING.clone() };
        for (is_trusted, forwarding) in [(false, &FORWARDING), (true, &FORWARDING), (false, &pass)] {
            for subject in [Some("CN=client1"), None] {
                let certificate = Some(CertificateField { name: "x-client-dn", subject });
                let view = RequestView { is_trusted, forwarding, certificate, ..view(&head) };
                assert_eq!(values(&view, "X-Client-Dn"), Vec::from_iter(subject));
                assert!(values(&view, "x_client_dn").is_empty() && values(&view, "X-CLIENT_dn").is_empty());
                assert_eq!(values(&view, "x-client-dnn"), ["CN=forged"]);
            }
        }
        // Decoy: without the key the field is an ordinary one.
        assert_eq!(values(&view(&head), "x-client-dn"), ["CN=forged"]);
    }

    #[test]
    fn fields_that_connection_names_do_not_count() {
        let headers = [
            Header { name: "Connection", value: b"close, X-User" },
            Header { name: "x-user", value: b"one" },
            Header { name: "X-Tag", value: b"a" },
            Header { name: "connection", value: b"Cookie,host" },
            Header { name: "Cookie", value: b"a=b" },
            Header { name: "x-tag", value: b"b" },
        ];
        let head = head(&headers);
        let view = view(&head);
        for removed in ["X-User", "cookie", "connection", "close"] {
            assert!(values(&view, removed).is_empty(), "{removed}");
        }
        assert!(view.ordinary_lines("cookie").is_empty() && view.ordinary_value("x-tag") == Some(b"a"));
        assert_eq!(values(&view, "x-TAG"), ["a", "b"]);
        assert_eq!(values(&view, "host"), ["h"]);
    }

    #[test]
    fn fields_of_untrusted_peers_count_only_if_anyone_may_send_them() {
        let headers = ["X-Forwarded-For", "x-real-ip", "Forwarded", "X-Request-Id", "x_user", "X-User"]
            .map(|name| Header { name, value: b"1" });
        let head = head(&headers);
        let forwarding = Forwarding { request_id: Some("x-request-id".into()), ..FORWARDING.clone() };
        let view = RequestView { forwarding: &forwarding, ..view(&head) };
        for name in ["x-forwarded-for", "x-real-ip", "forwarded", "x-request-id", "x_user"] {
            assert!(values(&view, name).is_empty(), "{name}");
            assert_eq!(values(&RequestView { is_trusted: true, ..view }, name), ["1"], "{name}");
        }
        assert_eq!(values(&view, "x-user"), ["1"]);
    }

    #[test]
    fn fields_of_a_connection_have_the_values_that_servers_get() {
        let headers = [
            Header { name: "Host", value: b"other" },
            Header { name: "Connection", value: b"Upgrade, keep-alive, TE" },
            Header { name: "Upgrade", value: b"websocket" },
            Header { name: "TE", value: b"trailers, deflate" },
            Header { name: "Keep-Alive", value: b"5" },
            Header { name: "Trailer", value: b"x" },
            Header { name: "Expect", value: b"100-continue" },
        ];
        let plain = head(&headers);
        let request = RequestHead { upgrade: Some("websocket"), ..plain };
        let view = |head| RequestView { head, ..view(&plain) };
        assert_eq!(values(&view(&request), "upgrade"), ["websocket"]);
        assert_eq!(values(&view(&request), "connection"), ["upgrade, TE"]);
        assert_eq!(
            (values(&view(&plain), "te"), values(&view(&plain), "host")),
            (vec!["trailers"], vec!["h"])
        );
        for absent in ["upgrade", "keep-alive", "trailer", "expect", "transfer-encoding"] {
            assert!(values(&view(&plain), absent).is_empty(), "{absent}");
        }
        let chunked = RequestHead { framing: Framing::Chunked, expect_continue: true, ..plain };
        let http2 = RequestHead { upgrade: Some("h2c"), ..chunked };
        assert_eq!(values(&view(&http2), "trailer"), ["x"]);
        assert_eq!(values(&view(&http2), "expect"), ["100-continue"]);
        assert_eq!(values(&view(&http2), "transfer-encoding"), ["chunked"]);
        assert!(values(&view(&http2), "upgrade").is_empty());
        assert_eq!(values(&view(&http2), "connection"), ["TE"]);
    }
}
