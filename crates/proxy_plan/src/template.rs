//! Texts of a config with values of a request, such as `https://{host}{path}`: their syntax, the table of
//! values, and rendering. Pure. A text without values stays a literal, which costs nothing more than before.
//! `proxy::route::values` knows the values of a request.

use std::sync::Arc;

mod escape;
mod location;
mod log_format;
mod map;
mod parse;

pub use escape::Escape;
pub use location::append_encoded;
pub use log_format::FORMAT_BYTES_MAX;
pub use log_format::{LogFormatFault, LogTemplate};
pub use map::MapPlan;
pub use parse::{KnownValues, Scope, TemplateError, TemplateFault, parse, parse_value};

/// Maximum length of a rendered text in bytes: as long as the largest head.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    Literal(Box<str>),
    Template(Template),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Box<str>),
    Value(Variable, Box<str>),
}

pub enum Piece<'a> {
    Literal(&'a str),
    /// A value, and its default.
    Value(&'a Variable, &'a str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// A fact about the request, its client or its response.
    Fact(Fact),
    /// The first value of a parameter of the query, decoded.
    Parameter(Box<str>),
    /// The first value of a field of the request.
    Header(Box<str>),
    Cookie(Box<str>),
    /// A group of the route's regular expression, by its number.
    Capture(usize),
    /// Time that a request spent in a part of its exchange.
    Duration(ExchangePart, DurationForm),
    /// The value of a map.
    Map(Arc<MapPlan>),
    /// A claim of the token of the request, by its path.
    Claim(Box<str>),
}

impl Variable {
    /// Returns whether the value is known only after the authentication of a request.
    pub fn needs_identity(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Fact(Fact::User))
    }
}

code_table! {
    /// Part of an exchange, between two of its times.
    pub enum ExchangePart:
    Head, "head", "receiving the head of the request";
    Queue, "queue", "waiting for a slot at a server";
    Connect, "connect", "connecting to it";
    FirstByte, "first-byte", "waiting for the head of the response";
    Response, "response", "forwarding the response";
    Server, "server", "with a server, from the slot at it to the end";
    Total, "total", "all, from the first byte of the request";
}

code_table! {
    /// Unit and form of a duration.
    pub enum DurationForm:
    Seconds, "s", "seconds with three decimals";
    Milliseconds, "ms", "milliseconds";
    Microseconds, "us", "microseconds";
}

/// Declares the facts. Each row has the name in a text, the scope from which on it is known, and its meaning.
macro_rules! facts {
    ($($variant:ident, $name:literal, $scope:ident, $doc:literal;)*) => {
        /// A fact about a request, its client or its response.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fact {
            $(#[doc = $doc] $variant,)*
        }

        impl Fact {
            /// All facts, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name in a text.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the scope from which on the fact is known.
            pub fn scope(self) -> Scope {
                match self { $(Self::$variant => Scope::$scope,)* }
            }

            /// Returns the meaning.
            pub fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }
        }
    };
}

facts! {
    Method, "method", Key, "The method.";
    Scheme, "scheme", Key, "`https` on a connection with TLS, else `http`.";
    Host, "host", Key, "The host, without its port. `{header.host}` includes the port.";
    Path, "path", Key, "The path in the form in which it is forwarded, before a rewrite.";
    Query, "query", Key, "The query with its `?`; empty without one.";
    Source, "source", Key, "The client's address.";
    SourcePort, "source-port", Key, "The client's port.";
    Listener, "listener", Key, "The listener's name.";
    Route, "route", Route, "The route's name.";
    Pool, "pool", Route, "The name of the route's pool.";
    User, "auth.user", Route, "The user that `auth` of the route has found; nothing before that.";
    RequestId, "request-id", Message, "The request id: that of a trusted peer, or a new one.";
    Time, "time", Message, "The time in UTC: `2026-11-28T12:00:00Z`.";
    TimeUnix, "time.unix", Message, "The time in seconds since 1970.";
    TimeHttp, "time.http", Message, "The time in the form of `Date`.";
    TlsVersion, "tls.version", Key, "Version of the client's TLS session: `TLSv1.2`, `TLSv1.3`.";
    TlsCipher, "tls.cipher", Key, "Its cipher suite.";
    TlsSni, "tls.sni", Key, "The server name that the client asked for.";
    ClientSubject, "tls.client.subject", Key, "Subject of the client's verified certificate (RFC 4514).";
    ClientSan, "tls.client.san", Key, "Its alternative names: `DNS:a.example,URI:spiffe://b`.";
    ClientSerial, "tls.client.serial", Key, "Its serial number in hexadecimal.";
    ClientIssuer, "tls.client.issuer", Key, "The name of its issuer (RFC 4514).";
    ClientCommonName, "tls.client.common-name", Key, "The common name in its subject, escaped as in the subject.";
    ClientDns, "tls.client.dns", Key, "Its DNS names, joined by commas.";
    ClientUri, "tls.client.uri", Key, "Its URIs, joined by commas: `spiffe://a/b`.";
    ClientEmail, "tls.client.email", Key, "Its e-mail addresses, joined by commas.";
    ClientNotBefore, "tls.client.not-before", Key, "The start of its validity in UTC: `2026-11-28T12:00:00Z`.";
    ClientNotAfter, "tls.client.not-after", Key, "The end of its validity in UTC.";
    ClientFingerprint, "tls.client.fingerprint", Key, "SHA-256 of the certificate in hexadecimal.";
    ClientPem, "tls.client.pem", Key, "The certificate in PEM, percent-encoded.";
    Server, "server", Response, "The name of the server that responded; missing in the proxy's own responses.";
    Status, "status", Response, "The status of the response.";
    Reason, "reason", Response, "The reason phrase of that status.";
    Target, "target", Log, "The target as received; values of parameters with names of secrets are `***`.";
    Protocol, "protocol", Log, "`HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`.";
    TimeMillis, "time.ms", Log, "The time of the first byte in UTC, with milliseconds: `2026-11-28T12:00:00.123Z`.";
    TimeClf, "time.clf", Log, "The time of the end, as in the combined format: `28/Nov/2026:12:00:00 +0000`.";
    End, "end", Log, "The end code.";
    Termination, "termination", Log, "HAProxy's termination code: cause and phase of the end.";
    TraceId, "trace.id", Log, "The id of the trace, with `[tracing]`.";
    SpanId, "trace.span", Log, "The id of the span of this proxy, with `[tracing]`.";
    Refusal, "refusal", Log, "The reason for rejecting a message.";
    BytesIn, "bytes.in", Log, "Bytes received from the client, including the head.";
    BytesOut, "bytes.out", Log, "Bytes sent to the client, including the head.";
    BytesContent, "bytes.content", Log, "Content bytes sent to the client.";
    Retries, "retries", Log, "The number of retries.";
    Reused, "reused", Log, "`true` if the server connection was reused.";
    Hedge, "hedge", Log, "The end of the attempt at a second server: `won`, `lost` or `failed`; empty: none was sent.";
    Cache, "cache", Log, "The use of a cache by the request, see the field `cache` of a JSON log line; empty: its route has none.";
    TlsError, "tls.error", Log, "The reason that a TLS handshake ended the request.";
}

/// Families of values with a name of their own, and their meanings.
pub const FAMILIES: [(&str, Scope, &str); 7] = [
    ("query.NAME", Scope::Key, "The first value of a parameter of the query, decoded."),
    (
        "header.NAME",
        Scope::Key,
        "The first value of a field of the request, as it is forwarded before the changes of the route.",
    ),
    ("cookie.NAME", Scope::Key, "The value of a cookie."),
    ("map.NAME", Scope::Key, "The value that `[map.NAME]` has for its key; nothing if it has none."),
    (
        "jwt.CLAIM",
        Scope::Route,
        "A claim of the token that `auth.jwt` of the route has verified, with dots between the names of nested ones; lists have commas between their entries.",
    ),
    ("1", Scope::Route, "A group of the route's `path-regex`, by number or, for `(?P<name>…)`, by name."),
    (
        "duration.PART.UNIT",
        Scope::Log,
        "The time that the request spent in a part of its exchange: `head`, `queue`, `connect`, `first-byte`, `response`, `server` (`connect` to `response`) or `total`, \
         in `s` (with three decimals), `ms` or `us`.",
    ),
];

/// Source of the values of a text.
pub trait Values {
    /// Appends a value as it is; nothing if it is missing.
    fn append(&self, variable: &Variable, out: &mut Vec<u8>);

    /// Notes that a text was too long, and left out.
    fn note_overflow(&self);
}

/// Fault of a text that is longer than [`TEXT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextTooLong;

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Literal(text.into())
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::Literal("".into())
    }
}

impl Text {
    pub fn source(&self) -> &str {
        match self {
            Self::Literal(text) => text,
            Self::Template(template) => &template.source,
        }
    }

    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        let template = match self {
            Self::Literal(_) => None,
            Self::Template(template) => Some(template),
        };
        template.into_iter().flat_map(Template::variables)
    }
}

impl Template {
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Value(variable, _) => Some(variable),
            Part::Literal(_) => None,
        })
    }

    /// Returns the literals, and the values with their defaults.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.parts.iter().map(|part| match part {
            Part::Literal(text) => Piece::Literal(text),
            Part::Value(variable, default) => Piece::Value(variable, default),
        })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// Appends the text with its values, escaped for its place.
    ///
    /// # Errors
    /// The text is too long. Nothing is appended then.
    #[inline]
    pub fn render(&self, values: &dyn Values, escape: Escape, out: &mut Vec<u8>) -> Result<(), TextTooLong> {
        let start = out.len();
        for part in &self.parts {
            part.append(values, Some(escape), out);
            if out.len() - start > TEXT_BYTES_MAX {
                out.truncate(start);
                values.note_overflow();
                return Err(TextTooLong);
            }
        }
        Ok(())
    }

    /// Replaces `out` by the text as a key: the values are unchanged, and a long text is cut.
    #[inline]
    pub fn render_key(&self, values: &dyn Values, out: &mut Vec<u8>) {
        out.clear();
        for part in &self.parts {
            part.append(values, None, out);
            out.truncate(TEXT_BYTES_MAX);
        }
    }
}

impl Part {
    /// Appends the literal or the value, escaped if it is not a part of a key; the default if there is none.
    #[inline]
    fn append(&self, values: &dyn Values, escape: Option<Escape>, out: &mut Vec<u8>) {
        match self {
            Self::Literal(text) => out.extend_from_slice(text.as_bytes()),
            Self::Value(variable, default) => {
                let at = out.len();
                values.append(variable, out);
                match escape {
                    _ if out.len() == at => out.extend_from_slice(default.as_bytes()),
                    Some(escape) => escape.apply(at, out),
                    None => {}
                }
            }
        }
    }
}

/// Values of tests.
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures {
    use std::cell::Cell;

    use super::{Values, Variable};

    /// Values by the names of their variables, as in a text.
    #[derive(Default)]
    pub struct FixedValues<'a> {
        pub pairs: &'a [(&'a str, &'a str)],
        pub overflows: Cell<u32>,
    }

    impl Values for FixedValues<'_> {
        fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
            let name = variable.to_string();
            let value = self.pairs.iter().find(|(known, _)| *known == name);
            out.extend_from_slice(value.map_or("", |(_, value)| value).as_bytes());
        }

        fn note_overflow(&self) {
            self.overflows.set(self.overflows.get() + 1);
        }
    }
}

#[cfg(test)]
mod tests;
