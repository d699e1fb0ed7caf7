//! Received frames of streams: DATA, HEADERS and CONTINUATION.

use super::abuse::FloodClass;
use super::config::{Role, StreamKey};
use super::connection::{Connection, DataFrame, Handled, InputState, OpenBlock, Step};
use super::fault::{ErrorCode, FaultKind};
use super::flow::PROBE_PAYLOAD;
use super::frame::{self, FrameHeader, HEADER_BYTES, flag, frame_type, read_u32};
use super::head::{HeadProblem, Section};
use super::send::END_PAYLOAD;
use super::streams::{Progress, Stream};

/// Maximum CONTINUATION frames of a block.
const CONTINUATIONS_MAX: usize = 16;

/// DATA frames with as much content compensate frames without a use.
const USEFUL_CONTENT: usize = 128;

/// Fragment of a field block in a HEADERS frame.
struct HeadersPayload<'i> {
    fragment: &'i [u8],
    depends_on_itself: bool,
}

impl Connection {
    #[inline]
    pub(super) fn handle_frame(&mut self, input: &[u8]) -> Result<Handled, FaultKind> {
        let Some(header) = FrameHeader::parse(input) else { return Ok(Handled::Incomplete) };
        if header.len > self.config.frame_bytes_max as usize {
            return Err(FaultKind::FrameTooLarge);
        }
        if !self.has_peer_settings && (header.frame_type != frame_type::SETTINGS || header.has(flag::ACK)) {
            return Err(FaultKind::SettingsMissing);
        }
        if self.open_block.is_some() && header.frame_type != frame_type::CONTINUATION {
            return Err(FaultKind::ContinuationMissing);
        }
        let after_header = &input[HEADER_BYTES..];
        if header.frame_type == frame_type::DATA {
            return self.begin_data(header, after_header);
        }
        if header.frame_type > frame_type::CONTINUATION {
            self.abuse.has_new_frames = true;
            if header.len == 0 {
                self.abuse.charge(FloodClass::EmptyFrame)?;
            } else {
                self.input = InputState::Skip(header.len);
            }
            return Ok(Handled::Used(HEADER_BYTES, None));
        }
        let Some(payload) = after_header.get(..header.len) else { return Ok(Handled::Incomplete) };
        self.abuse.has_new_frames = true;
        let step = match header.frame_type {
            frame_type::HEADERS => self.handle_headers(header, payload)?,
            frame_type::CONTINUATION => self.handle_continuation(header, payload)?,
            _ => self.handle_control(header, payload)?,
        };
        Ok(Handled::Used(HEADER_BYTES + header.len, step))
    }

    /// Handles the header of a DATA frame, and the length of its padding (RFC 9113 §6.1).
    fn begin_data(&mut self, header: FrameHeader, after_header: &[u8]) -> Result<Handled, FaultKind> {
        let (mut used, mut padding, mut content) = (HEADER_BYTES, 0, header.len);
        if header.stream == 0 {
            return Err(FaultKind::StreamIdInvalid);
        }
        if header.has(flag::PADDED) {
            let Some(rest) = content.checked_sub(1) else { return Err(FaultKind::FrameSizeInvalid) };
            let Some(&len) = after_header.first() else { return Ok(Handled::Incomplete) };
            padding = usize::from(len);
            content = rest.checked_sub(padding).ok_or(FaultKind::PaddingInvalid)?;
            used += 1;
        }
        self.abuse.has_new_frames = true;
        // Frames are shorter than 2^24.
        let flow_bytes = header.len as i32;
        if flow_bytes > self.receive.window {
            return Err(FaultKind::WindowExceeded);
        }
        self.receive.window -= flow_bytes;
        let is_end = header.has(flag::END_STREAM);
        let step = match self.accept_data(header, content, is_end)? {
            Ok(stream) => {
                self.input = InputState::Data(DataFrame { stream, content, padding, is_end });
                None
            }
            Err(step) => {
                self.skip(content + padding);
                step
            }
        };
        self.update_connection_window();
        Ok(Handled::Used(used, step))
    }

    /// Finds the stream of a DATA frame and checks its state, window and length. Without a stream
    /// the frame is discarded, perhaps with an event.
    fn accept_data(
        &mut self,
        header: FrameHeader,
        content: usize,
        is_end: bool,
    ) -> Result<Result<StreamKey, Option<Step>>, FaultKind> {
        let Some(key) = self.streams.find(header.stream) else {
            self.check_late_frame(header.stream)?;
            if content < USEFUL_CONTENT {
                self.abuse.charge(FloodClass::LateFrame)?;
            }
            return Ok(Err(None));
        };
        let Some(stream) = self.streams.get_open(key) else { return Ok(Err(None)) };
        if stream.is_rejected && stream.receive == Progress::Body {
            if is_end {
                self.finish_received(key);
            }
            return Ok(Err(None));
        }
        match check_data(stream, header.len, content, is_end) {
            Err(fault) => return Ok(Err(Some(self.reset_for(key, fault)?))),
            Ok(()) if header.len == 0 && !is_end => {
                self.abuse.charge(FloodClass::EmptyFrame)?;
                return Ok(Err(None));
            }
            Ok(()) => {}
        }
        stream.receive_window -= header.len as i32;
        stream.unconsumed += content as u32;
        self.receive.held += content as u32;
        if self.receive.record(header.stream, content) {
            frame::write_ping(&mut self.output, 0, PROBE_PAYLOAD);
        }
        if content >= USEFUL_CONTENT {
            self.abuse.credit_frame();
        } else if content == 0 && !is_end {
            self.abuse.charge(FloodClass::EmptyFrame)?;
        }
        if header.len > content {
            // Padding returns to the window at once.
            self.update_stream_window(key);
        }
        Ok(Ok(key))
    }

    #[inline]
    pub(super) fn handle_data(&mut self, data: DataFrame, input: &[u8]) -> Handled {
        if self.streams.get_open(data.stream).is_none() {
            // Reset in the meantime, which returned the content to the window.
            self.skip(data.content + data.padding);
            return Handled::Used(0, None);
        }
        let bytes = data.content.min(input.len());
        if bytes == 0 && data.content > 0 {
            return Handled::Incomplete;
        }
        let is_last = bytes == data.content;
        if is_last {
            self.skip(data.padding);
        } else {
            self.input = InputState::Data(DataFrame { content: data.content - bytes, ..data });
        }
        let is_end = is_last && data.is_end;
        if is_end {
            self.finish_received(data.stream);
        }
        if bytes == 0 && !is_end {
            return Handled::Used(0, None);
        }
        let step = Step::Data { stream: data.stream, range: 0..bytes, is_end };
        Handled::Used(bytes, Some(step))
    }

    /// Ends the content of a message. A client whose request ends behind its response gets a PING: curl 7.88
    /// sees the end of the stream only when it reads something more.
    #[inline]
    fn finish_received(&mut self, key: StreamKey) {
        if self.role == Role::Server {
            self.confirm_late_end(key);
        }
        if let Some(stream) = self.streams.get_open(key) {
            stream.receive = Progress::Done;
        }
        self.finish_if_done(key);
    }

    #[inline(never)]
    fn confirm_late_end(&mut self, key: StreamKey) {
        if self.streams.get_open(key).is_some_and(|stream| stream.send == Progress::Done) {
            self.ping(END_PAYLOAD);
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.input = if bytes == 0 { InputState::Frame } else { InputState::Skip(bytes) };
    }

    /// Checks a frame for a stream that is not open: idle, closed or ignored (RFC 9113 §5.1).
    pub(super) fn check_late_frame(&mut self, id: u32) -> Result<(), FaultKind> {
        if self.is_idle(id) {
            return Err(FaultKind::StreamIdle);
        }
        let is_ignored = self.last_accepted.is_some_and(|last| id > last);
        if !is_ignored && !self.streams.was_reset(id) {
            return Err(FaultKind::StreamClosed);
        }
        Ok(())
    }

    /// Returns whether a stream was never opened.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        let is_of_client = id % 2 == 1;
        match self.role {
            Role::Server => !is_of_client || id > self.last_peer_stream,
            Role::Client => !is_of_client || id >= self.next_stream,
        }
    }

    fn handle_headers(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Option<Step>, FaultKind> {
        if header.stream == 0 {
            return Err(FaultKind::StreamIdInvalid);
        }
        let HeadersPayload { fragment, depends_on_itself } = headers_payload(header, payload)?;
        let block = OpenBlock {
            stream: header.stream,
            is_end: header.has(flag::END_STREAM),
            depends_on_itself,
            continuations: 0,
        };
        if header.has(flag::END_HEADERS) {
            return self.handle_block(block, fragment);
        }
        self.block.clear();
        self.block.extend_from_slice(fragment);
        self.open_block = Some(block);
        Ok(None)
    }

    fn handle_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Step>, FaultKind> {
        let Some(mut block) = self.open_block else { return Err(FaultKind::ContinuationUnexpected) };
        if header.stream != block.stream {
            return Err(FaultKind::ContinuationMissing);
        }
        block.continuations += 1;
        // A block that is larger than an allowed head is decoded for the table, up to this limit.
        let bytes_max = 2 * self.config.head_bytes_max + self.config.frame_bytes_max as usize;
        if block.continuations > CONTINUATIONS_MAX || self.block.len() + payload.len() > bytes_max {
            return Err(FaultKind::ContinuationFlood);
        }
        if payload.is_empty() {
            self.abuse.charge(FloodClass::EmptyFrame)?;
        }
        self.block.extend_from_slice(payload);
        if !header.has(flag::END_HEADERS) {
            self.open_block = Some(block);
            return Ok(None);
        }
        self.open_block = None;
        let fragment = std::mem::take(&mut self.block);
        let result = self.handle_block(block, &fragment);
        self.block = fragment;
        self.clear_block();
        result
    }

    fn handle_block(&mut self, block: OpenBlock, fragment: &[u8]) -> Result<Option<Step>, FaultKind> {
        match (self.streams.find(block.stream), self.role) {
            (Some(key), Role::Client) => self.handle_response_block(key, block, fragment),
            (Some(key), Role::Server) => self.handle_trailers(key, block, fragment),
            (None, Role::Server) if self.is_idle(block.stream) => self.handle_request_block(block, fragment),
            (None, _) => {
                self.check_skipped(block.stream)?;
                self.check_late_frame(block.stream)?;
                self.abuse.charge(FloodClass::LateFrame)?;
                self.decode_ignored(fragment)?;
                Ok(None)
            }
        }
    }

    /// Checks that a head is not for a stream that was skipped and so can never be opened (RFC 9113
    /// §5.1.1).
    fn check_skipped(&self, id: u32) -> Result<(), FaultKind> {
        let (after, before) = self.skipped_streams;
        if after < id && id < before { Err(FaultKind::StreamIdInvalid) } else { Ok(()) }
    }

    fn decode_ignored(&mut self, fragment: &[u8]) -> Result<(), FaultKind> {
        self.decode(Section::Ignored, fragment)
    }

    #[inline]
    fn decode(&mut self, section: Section, fragment: &[u8]) -> Result<(), FaultKind> {
        self.head.begin(section);
        self.decoder.decode(fragment, &mut self.head)
    }

    fn handle_request_block(&mut self, block: OpenBlock, fragment: &[u8]) -> Result<Option<Step>, FaultKind> {
        let id = block.stream;
        if id.is_multiple_of(2) {
            return Err(FaultKind::StreamIdInvalid);
        }
        if id > self.last_peer_stream + 2 {
            self.skipped_streams = (self.last_peer_stream, id);
        }
        self.last_peer_stream = id;
        if self.last_accepted.is_some_and(|last| id > last) {
            self.decode_ignored(fragment)?;
            return Ok(None);
        }
        if self.streams.open() >= self.config.concurrent_streams_max as usize {
            self.decode_ignored(fragment)?;
            frame::write_reset(&mut self.output, id, ErrorCode::REFUSED_STREAM);
            self.streams.remember_reset(id);
            self.abuse.charge(FloodClass::RefusedStream)?;
            return Ok(None);
        }
        let version = self.decoder.version();
        let is_repeated = self.head.is_repeated(fragment, version);
        if !is_repeated {
            self.decode(Section::Request, fragment)?;
        }
        let stream = self.streams.insert(self.new_stream(id));
        if block.depends_on_itself {
            return self.reset_for(stream, FaultKind::SelfDependency).map(Some);
        }
        if is_repeated {
            return self.begin_request(stream, block.is_end).map(Some);
        }
        match self.head.finish_request(self.decoder.texts()) {
            Err(HeadProblem::Malformed(fault)) => self.reset_for(stream, fault).map(Some),
            Err(HeadProblem::Refused(kind)) => {
                if !self.head.is_over() {
                    self.head.keep_request_line(self.decoder.texts());
                }
                if let Some(open) = self.streams.get_open(stream) {
                    open.is_rejected = true;
                    open.receive = if block.is_end { Progress::Done } else { Progress::Body };
                }
                Ok(Some(Step::RejectedRequest { stream, kind }))
            }
            Err(HeadProblem::Ignored) => Ok(None),
            Ok(()) => {
                self.head.keep_block(fragment, version, self.decoder.version());
                self.begin_request(stream, block.is_end).map(Some)
            }
        }
    }

    fn begin_request(&mut self, stream: StreamKey, is_end: bool) -> Result<Step, FaultKind> {
        let content_length = self.head.content_length();
        if is_end && content_length.is_some_and(|length| length > 0) {
            return self.reset_for(stream, FaultKind::ContentLengthMismatch);
        }
        if let Some(open) = self.streams.get_open(stream) {
            open.receive = if is_end { Progress::Done } else { Progress::Body };
            open.content_left = content_length;
        }
        Ok(Step::Request { stream, is_end })
    }

    /// A stream of the peer, or of this end, before its first head.
    pub(super) fn new_stream(&self, id: u32) -> Stream {
        Stream {
            id,
            receive: Progress::Head,
            send: Progress::Head,
            send_window: self.peer.initial_window,
            receive_window: self.receive.stream_initial(),
            unconsumed: 0,
            content_left: None,
            interim_responses: 0,
            interim_bytes: 0,
            is_head: false,
            is_connect: false,
            is_blocked: false,
            is_rejected: false,
            is_over: false,
        }
    }

    fn handle_response_block(
        &mut self,
        stream: StreamKey,
        block: OpenBlock,
        fragment: &[u8],
    ) -> Result<Option<Step>, FaultKind> {
        let Some(open) = self.streams.get_open(stream) else { return Ok(None) };
        if open.send == Progress::Head {
            // The request was not sent yet.
            return Err(FaultKind::StreamIdle);
        }
        if open.receive != Progress::Head {
            return self.handle_trailers(stream, block, fragment);
        }
        self.decode(Section::Response, fragment)?;
        let status = match self.head.finish_response() {
            Ok(status) => status,
            Err(problem) => return self.reset_for(stream, section_fault(problem)).map(Some),
        };
        match self.begin_response(stream, status, block.is_end) {
            Ok(()) => Ok(Some(Step::Response { stream, is_end: block.is_end })),
            Err(fault) => self.reset_for(stream, fault).map(Some),
        }
    }

    /// Applies a valid response head to its stream.
    fn begin_response(&mut self, key: StreamKey, status: u16, is_end: bool) -> Result<(), FaultKind> {
        let content_length = self.head.content_length();
        let Some(stream) = self.streams.get_open(key) else { return Ok(()) };
        if status < 200 {
            let is_allowed = stream.count_interim(self.head.size(), self.config.head_bytes_max);
            return match () {
                () if is_end => Err(FaultKind::InterimFinished),
                () if !is_allowed => Err(FaultKind::TooManyInterim),
                () => Ok(()),
            };
        }
        let has_no_content = stream.is_head || matches!(status, 204 | 304);
        let is_tunnel = stream.is_connect && status < 300;
        stream.content_left = match (has_no_content, is_tunnel) {
            (true, _) => Some(0),
            (false, true) => None,
            (false, false) => content_length,
        };
        if is_end && stream.content_left.is_some_and(|left| left > 0) {
            return Err(FaultKind::ContentLengthMismatch);
        }
        stream.receive = if is_end { Progress::Done } else { Progress::Body };
        self.finish_if_done(key);
        Ok(())
    }

    fn handle_trailers(
        &mut self,
        stream: StreamKey,
        block: OpenBlock,
        fragment: &[u8],
    ) -> Result<Option<Step>, FaultKind> {
        let Some(open) = self.streams.get_open(stream) else { return Ok(None) };
        let (progress, is_rejected) = (open.receive, open.is_rejected);
        let is_short = open.content_left.is_some_and(|left| left > 0);
        self.decode(if is_rejected { Section::Ignored } else { Section::Trailers }, fragment)?;
        let fault = match self.head.finish_trailers() {
            _ if progress == Progress::Done => Some(FaultKind::StreamClosed),
            _ if block.depends_on_itself => Some(FaultKind::SelfDependency),
            _ if !block.is_end => Some(FaultKind::TrailersUnfinished),
            Err(HeadProblem::Ignored) => None,
            Err(problem) => Some(section_fault(problem)),
            Ok(()) if is_short => Some(FaultKind::ContentLengthMismatch),
            Ok(()) => None,
        };
        if let Some(fault) = fault {
            return self.reset_for(stream, fault).map(Some);
        }
        self.finish_received(stream);
        Ok((!is_rejected).then_some(Step::Trailers { stream }))
    }
}

/// Returns the fault of a section that cannot be answered.
fn section_fault(problem: HeadProblem) -> FaultKind {
    match problem {
        HeadProblem::Malformed(fault) => fault,
        HeadProblem::Refused(_) | HeadProblem::Ignored => FaultKind::HeadTooLarge,
    }
}

/// Checks a DATA frame against the state of its stream, and counts its content.
fn check_data(stream: &mut Stream, flow_bytes: usize, content: usize, is_end: bool) -> Result<(), FaultKind> {
    match stream.receive {
        Progress::Body => {}
        Progress::Head => return Err(FaultKind::HeadMissing),
        Progress::Done => return Err(FaultKind::StreamClosed),
    }
    if flow_bytes as i64 > i64::from(stream.receive_window) {
        return Err(FaultKind::WindowExceeded);
    }
    if let Some(left) = &mut stream.content_left {
        *left = left.checked_sub(content as u64).ok_or(FaultKind::ContentLengthMismatch)?;
        if is_end && *left > 0 {
            return Err(FaultKind::ContentLengthMismatch);
        }
    }
    Ok(())
}

/// Removes padding and priority of a HEADERS frame (RFC 9113 §6.2).
fn headers_payload(header: FrameHeader, payload: &[u8]) -> Result<HeadersPayload<'_>, FaultKind> {
    let mut fragment = payload;
    let mut padding = 0;
    if header.has(flag::PADDED) {
        let Some((&len, rest)) = fragment.split_first() else { return Err(FaultKind::FrameSizeInvalid) };
        padding = usize::from(len);
        fragment = rest;
    }
    let mut depends_on_itself = false;
    if header.has(flag::PRIORITY) {
        let Some((priority, rest)) = fragment.split_at_checked(5) else {
            return Err(FaultKind::FrameSizeInvalid);
        };
        depends_on_itself = read_u32(priority) & frame::STREAM_ID_MAX == header.stream;
        fragment = rest;
    }
    let len = fragment.len().checked_sub(padding).ok_or(FaultKind::PaddingInvalid)?;
    Ok(HeadersPayload { fragment: &fragment[..len], depends_on_itself })
}
