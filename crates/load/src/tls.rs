//! TLS of one core's connections to one authority: a store of sessions, and the choice of the
//! connections that resume one. Each core has its own, so that cores share no lock.

use std::cell::Cell;
use std::io;

use rt::stream::Stream;
use rt::tls::{ClientTls, TlsFault};

use crate::failure::FailureKind;
use crate::plan::{HttpVersion, RunPlan, is_in_fraction};

/// Beginning of the sessions of one core with one authority.
#[derive(Debug)]
pub(crate) struct TlsConnector {
    server_name: String,
    http1: SessionSettings,
    http2: SessionSettings,
    resume_fraction: f64,
    /// Number of sessions so far.
    begun: Cell<u64>,
}

/// Settings of the sessions that offer one protocol (ALPN, RFC 7301).
#[derive(Debug)]
struct SessionSettings {
    resuming: ClientTls,
    full: ClientTls,
}

impl SessionSettings {
    fn new(tls: &ClientTls, version: HttpVersion) -> Self {
        let tls = tls.with_alpn(&[version.alpn()]);
        Self { resuming: tls.with_own_sessions(), full: tls.without_resumption() }
    }
}

impl TlsConnector {
    /// Creates those of one core, in the order of the authorities; `None` for one without TLS.
    pub(crate) fn for_core(plan: &RunPlan, tls: Option<&ClientTls>) -> Vec<Option<Self>> {
        let connector = |authority: &crate::plan::Authority| {
            let (settings, tls) = (plan.tls.as_ref()?, tls?);
            authority.is_tls().then(|| Self {
                server_name: authority.host.clone(),
                http1: SessionSettings::new(tls, HttpVersion::Http1),
                http2: SessionSettings::new(tls, HttpVersion::Http2),
                resume_fraction: settings.resume_fraction,
                begun: Cell::new(0),
            })
        };
        plan.authorities().into_iter().map(connector).collect()
    }

    /// Begins a session on a connected stream, for one version of HTTP.
    pub(crate) fn begin(&self, stream: Stream, version: HttpVersion) -> io::Result<Stream> {
        let number = self.begun.replace(self.begun.get() + 1);
        let settings = match version {
            HttpVersion::Http1 => &self.http1,
            HttpVersion::Http2 => &self.http2,
        };
        let may_resume = is_in_fraction(number, self.resume_fraction);
        let tls = if may_resume { &settings.resuming } else { &settings.full };
        stream.connect_tls(tls, &self.server_name)
    }
}

/// Returns the text of a server that did not choose HTTP/2.
pub(crate) fn missing_http2_text() -> String {
    "TLS: the server did not choose HTTP/2 (ALPN h2): use --http 1.1".to_owned()
}

/// Returns the kind of a failed handshake, and its reason for the user.
pub(crate) fn describe_failure(error: &io::Error, version: HttpVersion) -> (FailureKind, String) {
    let text = match TlsFault::from_error(error) {
        Some(TlsFault::UntrustedCertificate(reason)) => {
            format!("TLS: certificate not trusted: {reason} (use --cacert FILE or --insecure)")
        }
        Some(TlsFault::NotTls) => "TLS: the server does not speak TLS (use http://)".to_owned(),
        Some(TlsFault::NoApplicationProtocol) if version == HttpVersion::Http2 => {
            return (FailureKind::NoHttp2, missing_http2_text());
        }
        Some(TlsFault::NoApplicationProtocol) => {
            "TLS: the server has no protocol in common (ALPN http/1.1): use --http 2".to_owned()
        }
        Some(TlsFault::Alert(reason) | TlsFault::Protocol(reason)) => format!("TLS: {reason}"),
        None => format!("TLS: {error}"),
    };
    (FailureKind::from_io_error(error), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_the_sessions_resumes_evenly() {
        for (fraction, expected) in [(0.0, 0), (0.01, 10), (0.29, 290), (0.5, 500), (0.9, 900), (1.0, 1000)] {
            let resumed = (0..1000).filter(|number| is_in_fraction(*number, fraction)).count();
            assert_eq!(resumed, expected, "{fraction}");
            let in_first_hundred = (0..100).filter(|number| is_in_fraction(*number, fraction)).count();
            assert!(in_first_hundred.abs_diff(expected / 10) <= 1, "{fraction}: {in_first_hundred}");
        }
    }

    #[test]
    fn errors_of_the_socket_keep_their_kind() {
        let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection");
        let (kind, text) = describe_failure(&closed, HttpVersion::Http1);
        assert_eq!((kind, text.as_str()), (FailureKind::Closed, "TLS: the peer closed the connection"));
        assert_eq!(
            describe_failure(&io::Error::from_raw_os_error(104), HttpVersion::Http2).0,
            FailureKind::Reset
        );
    }
}
