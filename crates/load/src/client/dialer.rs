//! Opening of a client's connection: connect(2), then the handshake of TLS, under one deadline; and
//! the pauses after failures.

use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use record::units::{MILLISECOND_NS, SECOND_NS};
use rt::address::Address;
use rt::clock::now_ns;
use rt::deadlines::Deadline;
use rt::dial;
use rt::stream::Stream;

use crate::core_state::CoreState;
use crate::failure::{Failure, FailureKind, RequestPhase, connect_error_text};
use crate::pace::Pace;
use crate::plan::HttpVersion;
use crate::recorder::ConnectTiming;
use crate::tls::{TlsConnector, describe_failure, missing_http2_text};

/// Minimum back-off after a failed connect; it doubles with each failure.
const BACK_OFF_NS_MIN: u64 = 10 * MILLISECOND_NS;
const BACK_OFF_NS_MAX: u64 = SECOND_NS;
/// Connections of each core whose reads tell when the kernel received the bytes: a sample, because a read with its
/// timestamp takes some 0.1 µs more.
const TIMESTAMPED_CONNECTIONS_PER_CORE: usize = 16;
/// Rate of an open loop up to which all connections of a core are timestamped: that takes 0.05 % of its time at most, and
/// a sample of few requests would have no p99.
const TIMESTAMPED_RATE_PER_CORE: f64 = 5_000.0;

/// Opener of one client's connections.
pub(super) struct Dialer {
    pub(super) core: Rc<CoreState>,
    pub(super) index: usize,
    pub(super) deadline: Deadline,
    version: HttpVersion,
    /// True if the client ever had a connection.
    has_connected: bool,
    back_off_ns: u64,
    /// True if the last connection ended without a response, so that a further one does not end the back-off.
    has_ended_early: bool,
    last_back_off: BackOffPause,
}

#[derive(Clone, Copy, Debug, Default)]
struct BackOffPause {
    from_ns: u64,
    to_ns: u64,
}

/// Stream of a new connection, after its handshake if it has one.
struct OpenedStream {
    stream: Stream,
    connected_ns: u64,
    handshake_end_ns: Option<u64>,
}

/// Failure to open a connection, with its reason for the user.
pub(super) struct OpenError {
    failure: Failure,
    text: String,
}

impl OpenError {
    pub(super) fn new(phase: RequestPhase, (kind, text): (FailureKind, String)) -> Self {
        Self { failure: Failure { kind, phase }, text }
    }
}

impl Dialer {
    pub(super) fn new(core: Rc<CoreState>, index: usize, version: HttpVersion, deadline: Deadline) -> Self {
        Self {
            core,
            index,
            deadline,
            version,
            has_connected: false,
            back_off_ns: BACK_OFF_NS_MIN,
            has_ended_early: false,
            last_back_off: BackOffPause::default(),
        }
    }

    /// Returns the number of the client among those of all cores.
    pub(super) fn client_number(&self) -> usize {
        self.core.first_client as usize + self.index
    }

    /// Returns the index of the authority that the client connects to.
    pub(super) fn authority(&self) -> usize {
        let order = &self.core.shared.authority_order;
        order[self.client_number() % order.len()]
    }

    fn address(&self) -> &Address {
        let shared = &self.core.shared;
        let addresses = &shared.addresses[self.authority()];
        &addresses[self.client_number() / shared.authority_order.len() % addresses.len()]
    }

    /// Returns the turn of a new client. Clients begin evenly spread over the list, so that they use up a long
    /// one together; each takes its requests in order, since one may need what another has captured.
    pub(super) fn first_turn(&self) -> usize {
        let shared = &self.core.shared;
        let requests = shared.requests_by_authority[self.authority()].len() as u128;
        let (client, clients) = (self.client_number() as u128, u128::from(shared.plan.connections.max(1)));
        (client * requests / clients) as usize
    }

    /// Returns the index of the request that is due at `due_ns`; `turn` counts those of the client.
    #[inline]
    pub(super) fn next_request(&self, turn: &mut usize, due_ns: u64) -> usize {
        let shared = &self.core.shared;
        if let Some(replay) = &shared.plan.replay {
            return replay.request_at(due_ns.saturating_sub(self.core.start_ns.get()));
        }
        let group = &shared.requests_by_authority[self.authority()];
        let index = group[*turn % group.len()];
        *turn = turn.wrapping_add(1);
        index
    }

    /// Connects for a request that was due at `due_ns`. `prepare` is the rest of the opening that
    /// the protocol needs.
    pub(super) async fn connect<C>(
        &mut self,
        due_ns: u64,
        prepare: impl AsyncFnOnce(&Self, Stream) -> Result<C, OpenError>,
    ) -> Result<C, Failure> {
        let core = Rc::clone(&self.core);
        let begun_ns = now_ns();
        self.deadline.set(core.shared.plan.deadline_ns(due_ns, begun_ns));
        let opened = self.open().await;
        let outcome = match opened {
            Ok(OpenedStream { stream, connected_ns, handshake_end_ns }) => {
                let timing = ConnectTiming { begun_ns, connected_ns, handshake_end_ns };
                let tls = stream.tls_info();
                prepare(self, stream).await.map(|connection| (connection, timing, tls))
            }
            Err(error) => Err(error),
        };
        self.deadline.clear();
        let mut recorder = core.recorder.borrow_mut();
        match outcome {
            Ok((connection, timing, tls)) => {
                core.roll(&mut recorder, timing.handshake_end_ns.unwrap_or(timing.connected_ns));
                recorder.record_connect(due_ns, timing, tls.as_ref().map(|info| info.handshake));
                if let Some(info) = tls {
                    recorder.counters.tls.count_handshake(info);
                }
                recorder.counters.obtained += u64::from(!self.has_connected);
                self.has_connected = true;
                if !self.has_ended_early {
                    self.back_off_ns = BACK_OFF_NS_MIN;
                }
                Ok(connection)
            }
            Err(OpenError { failure, text }) => {
                recorder.counters.connect_failed += 1;
                recorder.counters.tls.failed += u64::from(failure.phase == RequestPhase::TlsHandshake);
                let target = self.address();
                *core.connect_failure.borrow_mut() = Some((failure.kind, format!("{target}: {text}")));
                Err(failure)
            }
        }
    }

    /// Returns whether the connections of this client are timestamped.
    fn is_in_sample(&self) -> bool {
        let plan = &self.core.shared.plan;
        let is_slow = match plan.pace {
            Pace::Open { rate_per_s, .. } => rate_per_s <= TIMESTAMPED_RATE_PER_CORE * plan.threads as f64,
            Pace::Closed { .. } => false,
        };
        is_slow || self.index < TIMESTAMPED_CONNECTIONS_PER_CORE
    }

    async fn open(&self) -> Result<OpenedStream, OpenError> {
        let shared = &self.core.shared;
        let sources = &shared.plan.sources;
        let source = (!sources.is_empty()).then(|| sources[self.client_number() % sources.len()]);
        let mut connecting = pin!(self.dial(source));
        let connected = poll_fn(|cx| match self.interruption() {
            Some(kind) => Poll::Ready(Err((kind, kind.name().to_owned()))),
            None => connecting
                .as_mut()
                .poll(cx)
                .map_err(|error| (FailureKind::from_io_error(&error), connect_error_text(&error))),
        })
        .await;
        let mut stream = connected.map_err(|error| OpenError::new(RequestPhase::Connect, error))?;
        if shared.plan.receive_timestamps && self.is_in_sample() {
            stream = stream.with_receive_timestamps();
        }
        if let Some(header) = &shared.plan.proxy_header {
            let target = self.address();
            let header = header.encode(self.client_number() as u64, stream.local_address(), target);
            self.write_proxy_header(&mut stream, &header)
                .await
                .map_err(|error| OpenError::new(RequestPhase::Connect, error))?;
        }
        let connected_ns = now_ns();
        let Some(connector) = &self.core.tls[self.authority()] else {
            return Ok(OpenedStream { stream, connected_ns, handshake_end_ns: None });
        };
        let stream = self
            .handshake(connector, stream)
            .await
            .map_err(|error| OpenError::new(RequestPhase::TlsHandshake, error))?;
        Ok(OpenedStream { stream, connected_ns, handshake_end_ns: Some(now_ns()) })
    }

    /// Connects with the TCP of the kernel, or with that of the plan.
    async fn dial(&self, source: Option<IpAddr>) -> io::Result<Stream> {
        match (&self.core.user_tcp, self.address()) {
            (Some(tcp), Address::Tcp(target)) => {
                let route = self.core.shared.routes.get(*target, source);
                let route = route.ok_or(io::ErrorKind::HostUnreachable)?;
                Box::pin(tcp.connect(*target, route)).await.map(Stream::User)
            }
            (Some(_), _) => Err(io::ErrorKind::Unsupported.into()),
            (None, address) => dial::connect(address, source).await,
        }
    }

    /// Writes the PROXY header, before everything else on the connection.
    async fn write_proxy_header(
        &self,
        stream: &mut Stream,
        header: &[u8],
    ) -> Result<(), (FailureKind, String)> {
        let mut written = 0;
        poll_fn(|cx| {
            while written < header.len() {
                if let Some(kind) = self.interruption() {
                    return Poll::Ready(Err((kind, kind.name().to_owned())));
                }
                match stream.poll_write(cx, &header[written..]) {
                    Poll::Ready(Ok(bytes)) => written += bytes,
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err((FailureKind::from_io_error(&error), error.to_string())));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await?;
        self.core.recorder.borrow_mut().counters.bytes_out += header.len() as u64;
        Ok(())
    }

    async fn handshake(
        &self,
        connector: &TlsConnector,
        stream: Stream,
    ) -> Result<Stream, (FailureKind, String)> {
        let describe = |error| describe_failure(&error, self.version);
        let mut stream = connector.begin(stream, self.version).map_err(describe)?;
        poll_fn(|cx| match self.interruption() {
            Some(kind) => Poll::Ready(Err((kind, format!("TLS handshake: {}", kind.name())))),
            None => stream.poll_handshake(cx).map_err(describe),
        })
        .await?;
        let protocol = stream.tls_info().and_then(|info| info.alpn);
        if self.version == HttpVersion::Http2 && protocol.as_deref() != Some(b"h2") {
            return Err((FailureKind::NoHttp2, missing_http2_text()));
        }
        Ok(stream)
    }

    /// Waits before the next attempt, so that a rejecting server is not hit in a tight loop.
    /// Returns the end of the pause.
    pub(super) async fn back_off(&mut self) -> u64 {
        let from_ns = now_ns();
        let until_ns = from_ns + self.back_off_ns;
        self.back_off_ns = (self.back_off_ns * 2).min(BACK_OFF_NS_MAX);
        self.core.timers.sleep_until(until_ns.min(self.core.end_ns())).await;
        self.last_back_off = BackOffPause { from_ns, to_ns: now_ns() };
        self.last_back_off.to_ns
    }

    /// Waits after a connection that ended without a response. Returns the end of the pause.
    pub(super) async fn back_off_after_early_end(&mut self) -> u64 {
        self.has_ended_early = true;
        self.back_off().await
    }

    /// Ends the back-off after connections without a response.
    pub(super) fn note_response(&mut self) {
        if std::mem::take(&mut self.has_ended_early) {
            self.back_off_ns = BACK_OFF_NS_MIN;
        }
    }

    /// Returns the part of the last pause in which a request that was due at `due_ns` waited.
    pub(super) fn back_off_overlap_ns(&self, due_ns: u64) -> u64 {
        let BackOffPause { from_ns, to_ns } = self.last_back_off;
        to_ns.saturating_sub(due_ns.max(from_ns))
    }

    /// Returns the reason to stop waiting, if there is one.
    #[inline]
    pub(super) fn interruption(&self) -> Option<FailureKind> {
        // An expired request has timed out, whatever else ends at the same moment.
        if self.deadline.is_expired() {
            Some(FailureKind::Timeout)
        } else if self.core.giving_up.get() {
            Some(FailureKind::Unfinished)
        } else {
            None
        }
    }
}
