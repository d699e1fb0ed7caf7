//! Opening of a client's connection: connect(2), then the handshake of TLS, under one deadline.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use rt::clock::now_ns;
use rt::dial;
use rt::stream::Stream;

use super::{BACK_OFF_NS_MIN, Client, Connection};
use crate::failure::{Failure, FailureKind, RequestPhase, connect_error_text};
use crate::recorder::ConnectTiming;
use crate::tls::{TlsConnector, describe_failure};

/// Connected stream, after its handshake if it has one.
struct OpenedStream {
    stream: Stream,
    connected_ns: u64,
    handshake_end_ns: Option<u64>,
}

/// Failure to open a connection, with its reason for the user.
struct OpenError {
    failure: Failure,
    text: String,
}

impl OpenError {
    fn new(phase: RequestPhase, (kind, text): (FailureKind, String)) -> Self {
        Self { failure: Failure { kind, phase }, text }
    }
}

impl Client {
    pub(super) async fn connect(&mut self, due_ns: u64) -> Result<(), Failure> {
        let core = Rc::clone(&self.core);
        let number = core.first_client as usize + self.index;
        let authority = number % core.shared.addresses.len();
        let begun_ns = now_ns();
        self.deadline.set(core.shared.plan.deadline_ns(due_ns, begun_ns));
        let opened = self.open(number, authority).await;
        self.deadline.clear();
        let mut recorder = core.recorder.borrow_mut();
        match opened {
            Ok(OpenedStream { stream, connected_ns, handshake_end_ns }) => {
                core.roll(&mut recorder, handshake_end_ns.unwrap_or(connected_ns));
                recorder.record_connect(due_ns, ConnectTiming { begun_ns, connected_ns, handshake_end_ns });
                if let Some(info) = stream.tls_info() {
                    recorder.counters.tls.count_handshake(info);
                }
                recorder.counters.obtained += u64::from(!self.has_connected);
                self.has_connected = true;
                self.back_off_ns = BACK_OFF_NS_MIN;
                self.connection = Some(Connection { stream, request_count: 0 });
                Ok(())
            }
            Err(OpenError { failure, text }) => {
                recorder.counters.connect_failed += 1;
                recorder.counters.tls.failed += u64::from(failure.phase == RequestPhase::TlsHandshake);
                let target = &core.shared.addresses[authority];
                *core.connect_failure.borrow_mut() = Some((failure.kind, format!("{target}: {text}")));
                Err(failure)
            }
        }
    }

    /// Connects client `number` to an authority, by its index.
    async fn open(&self, number: usize, authority: usize) -> Result<OpenedStream, OpenError> {
        let shared = &self.core.shared;
        let sources = &shared.plan.sources;
        let source = (!sources.is_empty()).then(|| sources[number % sources.len()]);
        let mut connecting = pin!(dial::connect(&shared.addresses[authority], source));
        let connected = poll_fn(|cx| match self.interruption() {
            Some(kind) => Poll::Ready(Err((kind, kind.name().to_owned()))),
            None => connecting
                .as_mut()
                .poll(cx)
                .map_err(|error| (FailureKind::from_io_error(&error), connect_error_text(&error))),
        })
        .await;
        let stream = connected.map_err(|error| OpenError::new(RequestPhase::Connect, error))?;
        let connected_ns = now_ns();
        let Some(connector) = &self.core.tls[authority] else {
            return Ok(OpenedStream { stream, connected_ns, handshake_end_ns: None });
        };
        let stream = self
            .handshake(connector, stream)
            .await
            .map_err(|error| OpenError::new(RequestPhase::TlsHandshake, error))?;
        Ok(OpenedStream { stream, connected_ns, handshake_end_ns: Some(now_ns()) })
    }

    async fn handshake(
        &self,
        connector: &TlsConnector,
        stream: Stream,
    ) -> Result<Stream, (FailureKind, String)> {
        let mut stream = connector.begin(stream).map_err(|error| describe_failure(&error))?;
        poll_fn(|cx| match self.interruption() {
            Some(kind) => Poll::Ready(Err((kind, format!("TLS handshake: {}", kind.name())))),
            None => stream.poll_handshake(cx).map_err(|error| describe_failure(&error)),
        })
        .await?;
        Ok(stream)
    }
}
