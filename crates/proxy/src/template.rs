//! Texts of a config with values of a request, such as `https://{host}{path}`: their syntax, the table of
//! values, and rendering. Pure. A text without values stays a literal, which costs nothing more than before.
//! `route::values` knows the values of a request.

mod escape;
mod location;
mod parse;

pub(crate) use escape::Escape;
pub(crate) use location::append_encoded;
pub(crate) use parse::{Scope, TemplateError, parse, parse_value};

/// Maximum length of a rendered text in bytes: as long as the largest head.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 10;

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
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name in a text.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns the scope from which on the fact is known.
            pub(crate) fn scope(self) -> Scope {
                match self { $(Self::$variant => Scope::$scope,)* }
            }

            /// Returns the meaning.
            pub(crate) fn doc(self) -> &'static str {
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
    ClientFingerprint, "tls.client.fingerprint", Key, "SHA-256 of the certificate in hexadecimal.";
    ClientPem, "tls.client.pem", Key, "The certificate in PEM, percent-encoded.";
    Server, "server", Response, "The name of the server that responded; missing in the proxy's own responses.";
    Status, "status", Response, "The status of the response.";
}

/// Families of values with a name of their own, and their meanings.
pub(crate) const FAMILIES: [(&str, &str); 4] = [
    ("query.NAME", "The first value of a parameter of the query, decoded."),
    (
        "header.NAME",
        "The first value of a field of the request, as it is forwarded before the changes of the route.",
    ),
    ("cookie.NAME", "The value of a cookie."),
    ("1", "A group of the route's `path-regex`, by number or, for `(?P<name>…)`, by name."),
];

/// Source of the values of a text.
pub(crate) trait Values {
    /// Appends a value as it is; nothing if it is missing.
    fn append(&self, variable: &Variable, out: &mut Vec<u8>);

    /// Notes that a text was too long, and left out.
    fn note_overflow(&self);
}

/// Fault of a text that is longer than [`TEXT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TextTooLong;

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
    pub(crate) fn source(&self) -> &str {
        match self {
            Self::Literal(text) => text,
            Self::Template(template) => &template.source,
        }
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = &Variable> {
        let template = match self {
            Self::Literal(_) => None,
            Self::Template(template) => Some(template),
        };
        template.into_iter().flat_map(Template::variables)
    }
}

impl Template {
    pub(crate) fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Value(variable, _) => Some(variable),
            Part::Literal(_) => None,
        })
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Appends the text with its values, escaped for its place.
    ///
    /// # Errors
    /// The text is too long. Nothing is appended then.
    pub(crate) fn render(
        &self,
        values: &dyn Values,
        escape: Escape,
        out: &mut Vec<u8>,
    ) -> Result<(), TextTooLong> {
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
    pub(crate) fn render_key(&self, values: &dyn Values, out: &mut Vec<u8>) {
        out.clear();
        for part in &self.parts {
            part.append(values, None, out);
            out.truncate(TEXT_BYTES_MAX);
        }
    }
}

impl Part {
    /// Appends the literal or the value, escaped if it is not a part of a key; the default if there is none.
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
#[cfg(test)]
pub(crate) mod fixtures {
    use std::cell::Cell;

    use super::{Values, Variable};

    /// Values by the names of their variables, as in a text.
    #[derive(Default)]
    pub(crate) struct FixedValues<'a> {
        pub(crate) pairs: &'a [(&'a str, &'a str)],
        pub(crate) overflows: Cell<u32>,
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
