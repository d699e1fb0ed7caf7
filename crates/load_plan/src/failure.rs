//! Failure of one request, and the text of a failed connect. The kinds are those of records.

use std::io;

pub use record::failure::{FAILURE_KINDS, FailureKind, REQUEST_PHASES, RequestPhase};

/// Describes the error of a connect for a message that names the target.
pub fn connect_error_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused (nothing listens there)".to_owned(),
        io::ErrorKind::AddrNotAvailable if rt::dial::SourceError::from_error(error).is_none() => {
            "this machine has no local port left for it: keep connections open (no -r), give more addresses (--source), \
             or widen net.ipv4.ip_local_port_range"
                .to_owned()
        }
        io::ErrorKind::WouldBlock => "the accept queue of the socket is full".to_owned(),
        _ => error.to_string(),
    }
}

/// Reason and phase of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub phase: RequestPhase,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_socket_is_not_a_refused_connection() {
        let text = |errno| connect_error_text(&io::Error::from_raw_os_error(errno));
        assert_eq!(text(2), "no such socket");
        assert!(text(111).starts_with("connection refused"));
        assert!(text(99).starts_with("this machine has no local port left"));
    }
}
