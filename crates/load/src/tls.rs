//! TLS of one core's connections to one authority: a store of sessions, and the choice of the
//! connections that resume one. Each core has its own, so that cores share no lock.

use std::cell::Cell;
use std::io;

use rt::stream::Stream;
use rt::tls::{ClientTls, TlsFault};

use crate::failure::FailureKind;
use crate::plan::RunPlan;

/// Beginning of the sessions of one core with one authority.
#[derive(Debug)]
pub(crate) struct TlsConnector {
    server_name: String,
    resuming: ClientTls,
    full: ClientTls,
    resume_fraction: f64,
    /// Number of sessions so far.
    begun: Cell<u64>,
}

impl TlsConnector {
    /// Creates those of one core, in the order of the authorities; `None` for one without TLS.
    pub(crate) fn for_core(plan: &RunPlan, tls: Option<&ClientTls>) -> Vec<Option<Self>> {
        let connector = |authority: &crate::plan::Authority| {
            let (settings, tls) = (plan.tls.as_ref()?, tls?);
            authority.is_tls().then(|| Self {
                server_name: authority.host.clone(),
                resuming: tls.with_own_sessions(),
                full: tls.without_resumption(),
                resume_fraction: settings.resume_fraction,
                begun: Cell::new(0),
            })
        };
        plan.authorities().into_iter().map(connector).collect()
    }

    /// Begins a session on a connected stream.
    pub(crate) fn begin(&self, stream: Stream) -> io::Result<Stream> {
        let number = self.begun.replace(self.begun.get() + 1);
        let tls = if may_resume(number, self.resume_fraction) { &self.resuming } else { &self.full };
        stream.connect_tls(tls, &self.server_name)
    }
}

/// Returns whether session `number`, from 0, may resume an earlier one. The choice is even: any
/// sequence of sessions has `fraction` of them, to within one.
fn may_resume(number: u64, fraction: f64) -> bool {
    // Products such as 0.29 * 100 are a little below the integer.
    let resumed_of = |count: u64| (count as f64 * fraction + 1e-6) as u64;
    resumed_of(number + 1) > resumed_of(number)
}

/// Returns the kind of a failed handshake, and its reason for the user.
pub(crate) fn describe_failure(error: &io::Error) -> (FailureKind, String) {
    let text = match TlsFault::from_error(error) {
        Some(TlsFault::UntrustedCertificate(reason)) => {
            format!("TLS: certificate not trusted: {reason} (use --cacert FILE or --insecure)")
        }
        Some(TlsFault::NotTls) => "TLS: the server does not speak TLS (use http://)".to_owned(),
        Some(TlsFault::Alert(alert)) => format!("TLS: the server sent the alert {alert}"),
        Some(TlsFault::Protocol(reason)) => format!("TLS: {reason}"),
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
            let resumed = (0..1000).filter(|number| may_resume(*number, fraction)).count();
            assert_eq!(resumed, expected, "{fraction}");
            let in_first_hundred = (0..100).filter(|number| may_resume(*number, fraction)).count();
            assert!(in_first_hundred.abs_diff(expected / 10) <= 1, "{fraction}: {in_first_hundred}");
        }
    }

    #[test]
    fn errors_of_the_socket_keep_their_kind() {
        let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection");
        let (kind, text) = describe_failure(&closed);
        assert_eq!((kind, text.as_str()), (FailureKind::Closed, "TLS: the peer closed the connection"));
        assert_eq!(describe_failure(&io::Error::from_raw_os_error(104)).0, FailureKind::Reset);
    }
}
