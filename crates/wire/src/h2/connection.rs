//! State of one connection, and the loop that turns input into events.
//!
//! [`super::receive`] and [`super::receive_control`] handle frames, [`super::send`] writes them.

use std::collections::VecDeque;
use std::ops::Range;

use super::abuse::{AbuseBalance, Counters};
use super::config::{Config, PREFACE, Role, StreamKey};
use super::decoder::Decoder;
use super::encoder::Encoder;
use super::event::Event;
use super::fault::{ErrorCode, FaultKind};
use super::flow::{ReceiveFlow, WindowSize};
use super::frame::{self, frame_type, setting};
use super::head::{Head, HeadLimits};
use super::streams::Streams;
use crate::{Refusal, RefusalKind};

/// Number of streams that a client opens before it knows the limit of the server.
const STREAMS_MAX_DEFAULT: u32 = 100;

/// Initial window of RFC 9113 §6.9.2.
const WINDOW_DEFAULT: i32 = 65_535;

/// Output that stops the reading.
const OUTPUT_FULL_BYTES: usize = 128 * 1_024;

/// Capacity of buffers that survives a large message.
const BUFFER_KEPT_BYTES: usize = 4_096;

#[derive(Clone, Copy, Debug)]
pub(super) enum InputState {
    /// Before the preface of the client.
    Preface,
    /// Before a frame header.
    Frame,
    Data(DataFrame),
    /// In bytes that nobody needs.
    Skip(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DataFrame {
    pub(super) stream: StreamKey,
    pub(super) content: usize,
    pub(super) padding: usize,
    pub(super) is_end: bool,
}

/// Field block whose CONTINUATION frames are awaited; its bytes are in `Connection::block`.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenBlock {
    pub(super) stream: u32,
    pub(super) is_end: bool,
    pub(super) depends_on_itself: bool,
    pub(super) continuations: usize,
}

/// Settings of the peer (RFC 9113 §6.5.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSettings {
    pub(super) streams_max: u32,
    pub(super) initial_window: i32,
    pub(super) frame_bytes_max: usize,
    pub(super) enables_connect_protocol: bool,
}

/// An event without its borrowed parts, which stay in the connection and the input.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Request { stream: StreamKey, is_end: bool },
    RejectedRequest { stream: StreamKey, kind: RefusalKind },
    Response { stream: StreamKey, is_end: bool },
    Data { stream: StreamKey, range: Range<usize>, is_end: bool },
    Trailers { stream: StreamKey },
    Reset { stream: StreamKey, code: ErrorCode, fault: Option<FaultKind>, is_unprocessed: bool },
    StreamWritable(StreamKey),
    ConnectionWritable,
    GoAway { last_stream: u32, code: ErrorCode },
    SettingsChanged,
    Pong(u64),
}

/// Result of handling a part of the input.
pub(super) enum Handled {
    /// Nothing is used; more input is needed.
    Incomplete,
    Used(usize, Option<Step>),
}

#[derive(Debug)]
pub struct Connection {
    pub(super) role: Role,
    pub(super) config: Config,
    pub(super) output: Vec<u8>,
    pub(super) input: InputState,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) head: Head,
    pub(super) streams: Streams,
    /// Events that follow from a frame in addition to its own.
    pub(super) pending: VecDeque<Step>,
    pub(super) block: Vec<u8>,
    pub(super) open_block: Option<OpenBlock>,
    pub(super) peer: PeerSettings,
    pub(super) has_peer_settings: bool,
    pub(super) is_settings_acknowledged: bool,
    pub(super) receive: ReceiveFlow,
    pub(super) send_window: i32,
    pub(super) is_send_blocked: bool,
    pub(super) abuse: AbuseBalance,
    /// Highest stream that the peer opened.
    pub(super) last_peer_stream: u32,
    /// Identifiers that the peer skipped last: exclusive, exclusive.
    pub(super) skipped_streams: (u32, u32),
    /// Next stream of this end (client).
    pub(super) next_stream: u32,
    /// Last stream in the GOAWAY of this end; later ones are ignored.
    pub(super) last_accepted: Option<u32>,
    /// Last stream in the GOAWAY of the peer.
    pub(super) peer_last_accepted: Option<u32>,
    pub(super) pings_outstanding: u32,
    failure: Option<FaultKind>,
}

/// Reason that no stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The peer's limit of concurrent streams is reached; wait for the end of a stream, or
    /// [`Event::SettingsChanged`].
    Full,
    /// The connection takes no further streams: GOAWAY was received or sent, or the identifiers are
    /// used up.
    Closed,
}

impl Connection {
    /// Begins a connection: the output has the preface (client) and the settings.
    #[must_use]
    pub fn new(role: Role, config: &Config) -> Self {
        let connection_window =
            WindowSize::new(config.connection_window_bytes.max(65_535), config.connection_window_bytes_max);
        let stream_window = WindowSize::new(config.stream_window_bytes, config.stream_window_bytes_max);
        let mut connection = Self {
            role,
            config: config.clone(),
            output: Vec::new(),
            input: if role == Role::Server { InputState::Preface } else { InputState::Frame },
            decoder: Decoder::new(config.header_table_bytes as usize),
            encoder: Encoder::new(),
            head: Head::new(HeadLimits {
                // A limit beyond all memory is none, and sizes do not overflow.
                bytes_max: config.head_bytes_max.min(usize::MAX / 4),
                fields_max: config.headers_max,
                target_bytes_max: config.target_bytes_max,
                allows_protocol: role == Role::Server && config.enables_connect_protocol,
            }),
            streams: Streams::default(),
            pending: VecDeque::new(),
            block: Vec::new(),
            open_block: None,
            peer: PeerSettings {
                streams_max: STREAMS_MAX_DEFAULT,
                initial_window: WINDOW_DEFAULT,
                frame_bytes_max: 16_384,
                enables_connect_protocol: false,
            },
            has_peer_settings: false,
            is_settings_acknowledged: false,
            receive: ReceiveFlow::new(connection_window, stream_window),
            send_window: WINDOW_DEFAULT,
            is_send_blocked: false,
            abuse: AbuseBalance::new(config.abuse_max),
            last_peer_stream: 0,
            skipped_streams: (0, 0),
            next_stream: 1,
            last_accepted: None,
            peer_last_accepted: None,
            pings_outstanding: 0,
            failure: None,
        };
        connection.write_preface();
        connection
    }

    fn write_preface(&mut self) {
        if self.role == Role::Client {
            self.output.extend_from_slice(PREFACE);
        }
        let config = &self.config;
        let head_bytes_max = u32::try_from(config.head_bytes_max).unwrap_or(u32::MAX);
        let mut settings = Vec::new();
        let mut add = |identifier, value, default| {
            if value != default {
                frame::write_setting(&mut settings, identifier, value);
            }
        };
        add(setting::HEADER_TABLE_SIZE, config.header_table_bytes, 4_096);
        if self.role == Role::Client {
            add(setting::ENABLE_PUSH, 0, 1);
        } else {
            add(setting::MAX_CONCURRENT_STREAMS, config.concurrent_streams_max, u32::MAX);
            add(setting::ENABLE_CONNECT_PROTOCOL, u32::from(config.enables_connect_protocol), 0);
        }
        add(setting::INITIAL_WINDOW_SIZE, self.receive.stream.bytes, 65_535);
        add(setting::MAX_FRAME_SIZE, config.frame_bytes_max, 16_384);
        add(setting::MAX_HEADER_LIST_SIZE, head_bytes_max, u32::MAX);
        frame::write_header(&mut self.output, settings.len(), frame_type::SETTINGS, 0, 0);
        self.output.extend_from_slice(&settings);
        self.update_connection_window();
    }

    /// Handles received bytes up to the next event. Returns the number of bytes used, which may be
    /// some although there is no event, and the event. No event: all complete frames are used; call
    /// again with the rest and more bytes.
    ///
    /// # Errors
    /// A fault of the peer that ends the connection; the output ends in `GOAWAY`. Further calls
    /// return the same fault.
    pub fn next_event<'e>(&'e mut self, input: &'e [u8]) -> Result<(usize, Option<Event<'e>>), FaultKind> {
        if let Some(fault) = self.failure {
            return Err(fault);
        }
        let mut used = 0;
        loop {
            if let Some(step) = self.pending.pop_front() {
                return Ok((used, Some(self.event(step, &[]))));
            }
            let rest = &input[used..];
            match self.handle_input(rest) {
                Ok(Handled::Incomplete) => {
                    self.abuse.credit_read();
                    return Ok((used, None));
                }
                Ok(Handled::Used(bytes, None)) => used += bytes,
                Ok(Handled::Used(bytes, Some(step))) => {
                    return Ok((used + bytes, Some(self.event(step, rest))));
                }
                Err(fault) => return Err(self.fail(fault)),
            }
        }
    }

    #[cold]
    fn fail(&mut self, fault: FaultKind) -> FaultKind {
        self.failure = Some(fault);
        // No further head is decoded.
        self.head.release();
        self.decoder.close();
        self.block = Vec::new();
        let last = self.last_accepted.map_or(self.last_peer_stream, |last| last.min(self.last_peer_stream));
        frame::write_go_away(&mut self.output, last, fault.error_code());
        fault
    }

    fn handle_input(&mut self, input: &[u8]) -> Result<Handled, FaultKind> {
        match self.input {
            InputState::Frame => self.handle_frame(input),
            InputState::Data(data) => Ok(self.handle_data(data, input)),
            InputState::Skip(_) if input.is_empty() => Ok(Handled::Incomplete),
            InputState::Skip(left) => {
                let bytes = left.min(input.len());
                self.input = if bytes == left { InputState::Frame } else { InputState::Skip(left - bytes) };
                Ok(Handled::Used(bytes, None))
            }
            InputState::Preface if input.starts_with(PREFACE) => {
                self.input = InputState::Frame;
                Ok(Handled::Used(PREFACE.len(), None))
            }
            InputState::Preface if PREFACE.starts_with(input) => Ok(Handled::Incomplete),
            InputState::Preface => Err(FaultKind::PrefaceInvalid),
        }
    }

    fn event<'e>(&'e self, step: Step, input: &'e [u8]) -> Event<'e> {
        match step {
            Step::Request { stream, is_end } => {
                Event::Request { stream, head: self.head.request(self.decoder.texts()), is_end }
            }
            Step::RejectedRequest { stream, kind } => {
                let request_line = &self.head.request_line;
                Event::RejectedRequest { stream, refusal: Refusal::from_client(kind), request_line }
            }
            Step::Response { stream, is_end } => {
                Event::Response { stream, head: self.head.response(self.decoder.texts()), is_end }
            }
            Step::Data { stream, range, is_end } => Event::Data { stream, bytes: &input[range], is_end },
            Step::Trailers { stream } => {
                Event::Trailers { stream, fields: self.head.fields(self.decoder.texts()) }
            }
            Step::Reset { stream, code, fault, is_unprocessed } => {
                Event::Reset { stream, code, fault, is_unprocessed }
            }
            Step::StreamWritable(stream) => Event::StreamWritable(stream),
            Step::ConnectionWritable => Event::ConnectionWritable,
            Step::GoAway { last_stream, code } => Event::GoAway { last_stream, code },
            Step::SettingsChanged => Event::SettingsChanged,
            Step::Pong(payload) => Event::Pong(payload),
        }
    }

    /// Bytes to write to the peer. The caller removes those that it wrote. While they are more than
    /// [`Connection::is_output_full`] allows, it must not read.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Returns whether the output has more bytes than a peer that reads would leave there, 128 KiB:
    /// the caller stops to read until it has written them, so that floods of PING and SETTINGS only
    /// stop their sender.
    pub fn is_output_full(&self) -> bool {
        self.output.len() > OUTPUT_FULL_BYTES
    }

    /// Number of streams that are not over.
    pub fn open_streams(&self) -> usize {
        self.streams.open()
    }

    /// Number of streams that may be opened now (client).
    pub fn free_streams(&self) -> usize {
        if !self.may_open() {
            return 0;
        }
        (self.peer.streams_max as usize).saturating_sub(self.streams.open())
    }

    /// Returns whether this end may open streams, apart from the limit of concurrent ones.
    pub(super) fn may_open(&self) -> bool {
        self.role == Role::Client
            && self.last_accepted.is_none()
            && self.peer_last_accepted.is_none()
            && self.failure.is_none()
            && self.next_stream <= frame::STREAM_ID_MAX
    }

    /// Returns whether the peer supports extended CONNECT (RFC 8441).
    pub fn peer_enables_connect_protocol(&self) -> bool {
        self.peer.enables_connect_protocol
    }

    /// Returns the numbers of received frames that a flood would consist of.
    pub fn counters(&self) -> Counters {
        self.abuse.counters
    }

    /// Checks the limits of memory, and sums, for fuzz targets.
    ///
    /// # Panics
    /// If one does not hold.
    #[cfg(any(test, fuzzing))]
    pub fn check_invariants(&mut self) {
        self.decoder.check_invariants();
        self.encoder.check_invariants();
        let config = &self.config;
        let streams_max = if self.role == Role::Server { config.concurrent_streams_max } else { u32::MAX };
        assert!(self.streams.open() <= streams_max as usize);
        assert_eq!(self.streams.unconsumed(), u64::from(self.receive.held));
        assert!(self.receive.held <= self.receive.connection.bytes);
        assert!(self.block.capacity() <= 4 * (config.head_bytes_max + config.frame_bytes_max as usize));
        assert!(self.head.size() <= config.head_bytes_max);
    }

    /// Returns the bytes of memory that the connection has allocated, without its output.
    #[doc(hidden)]
    pub fn memory_bytes(&self) -> usize {
        self.decoder.memory_bytes()
            + self.encoder.memory_bytes()
            + self.head.memory_bytes()
            + self.streams.memory_bytes()
            + self.block.capacity()
            + self.pending.capacity() * size_of::<Step>()
    }

    /// Frees buffers that only hold memory for later messages. For connections that are idle; the
    /// tables of HPACK stay.
    pub fn release_memory(&mut self) {
        self.head.release();
        self.decoder.release();
        self.encoder.release();
        self.streams.release();
        self.block = Vec::new();
        if self.pending.is_empty() {
            self.pending = VecDeque::new();
        }
        self.output.shrink_to_fit();
    }

    /// Removes the block that was decoded.
    pub(super) fn clear_block(&mut self) {
        self.block.clear();
        self.block.shrink_to(BUFFER_KEPT_BYTES);
    }
}
