//! Received frames that control the connection or a stream: SETTINGS, PING, GOAWAY, WINDOW_UPDATE,
//! RST_STREAM, PRIORITY, PUSH_PROMISE.

use super::abuse::FloodClass;
use super::config::Role;
use super::connection::{Connection, PeerSettings, Step};
use super::fault::{ErrorCode, FaultKind};
use super::flow::PROBE_PAYLOAD;
use super::frame::{self, FrameHeader, STREAM_ID_MAX, flag, frame_type, read_u32, setting};
use super::send::END_PAYLOAD;

/// Window updates of fewer bytes count as a flood.
const TINY_WINDOW_UPDATE: u32 = 128;

const SETTING_BYTES: usize = 6;

/// Settings that one frame may have without counting as several frames.
const SETTINGS_PER_FRAME: usize = 16;

impl Connection {
    /// Handles a complete frame that controls the connection or a stream.
    pub(super) fn handle_control(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Step>, FaultKind> {
        match header.frame_type {
            frame_type::SETTINGS => self.handle_settings(header, payload),
            frame_type::PING => self.handle_ping(header, payload),
            frame_type::GOAWAY => self.handle_go_away(header, payload),
            frame_type::WINDOW_UPDATE => self.handle_window_update(header, payload),
            frame_type::RST_STREAM => self.handle_reset(header, payload),
            frame_type::PRIORITY => self.handle_priority(header, payload),
            _ => Err(FaultKind::PushPromise),
        }
    }

    fn handle_settings(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Option<Step>, FaultKind> {
        if header.stream != 0 {
            return Err(FaultKind::StreamIdInvalid);
        }
        self.abuse.charge(FloodClass::Settings)?;
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(FaultKind::FrameSizeInvalid);
            }
            if !self.is_settings_acknowledged {
                self.is_settings_acknowledged = true;
                self.decoder.apply_size_limit(self.config.header_table_bytes as usize);
            }
            return Ok(None);
        }
        if !payload.len().is_multiple_of(SETTING_BYTES) {
            return Err(FaultKind::FrameSizeInvalid);
        }
        // Each excess setting costs as much as a frame.
        for _ in SETTINGS_PER_FRAME..payload.len() / SETTING_BYTES {
            self.abuse.charge(FloodClass::Settings)?;
        }
        let is_first = !self.has_peer_settings;
        self.has_peer_settings = true;
        if is_first {
            // Without the setting there is no limit.
            self.peer.streams_max = u32::MAX;
        }
        let mut settings = self.peer;
        for entry in payload.as_chunks::<SETTING_BYTES>().0 {
            let [i0, i1, value @ ..] = *entry;
            self.apply_setting(&mut settings, u16::from_be_bytes([i0, i1]), u32::from_be_bytes(value))?;
        }
        let window_change = settings.initial_window - self.peer.initial_window;
        self.peer = settings;
        if window_change != 0 {
            self.change_send_windows(window_change)?;
        }
        frame::write_header(&mut self.output, 0, frame_type::SETTINGS, flag::ACK, 0);
        Ok(Some(Step::SettingsChanged))
    }

    fn apply_setting(
        &mut self,
        settings: &mut PeerSettings,
        identifier: u16,
        value: u32,
    ) -> Result<(), FaultKind> {
        match identifier {
            setting::HEADER_TABLE_SIZE => self.encoder.set_size_limit(value as usize),
            setting::ENABLE_PUSH if value > u32::from(self.role == Role::Server) => {
                return Err(FaultKind::SettingInvalid);
            }
            setting::MAX_CONCURRENT_STREAMS => settings.streams_max = value,
            setting::INITIAL_WINDOW_SIZE => {
                settings.initial_window =
                    i32::try_from(value).map_err(|_| FaultKind::InitialWindowInvalid)?;
            }
            setting::MAX_FRAME_SIZE => {
                if !(16_384..=0xff_ffff).contains(&value) {
                    return Err(FaultKind::SettingInvalid);
                }
                settings.frame_bytes_max = value as usize;
            }
            setting::ENABLE_CONNECT_PROTOCOL => {
                if value > 1 || (value == 0 && settings.enables_connect_protocol) {
                    return Err(FaultKind::SettingInvalid);
                }
                settings.enables_connect_protocol = value == 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies a new initial window to the open streams (RFC 9113 §6.9.2).
    fn change_send_windows(&mut self, change: i32) -> Result<(), FaultKind> {
        for (key, stream) in self.streams.iter_mut() {
            let was_closed = stream.send_window <= 0;
            stream.send_window = stream.send_window.checked_add(change).ok_or(FaultKind::WindowOverflow)?;
            if was_closed && stream.send_window > 0 && std::mem::take(&mut stream.is_blocked) {
                self.pending.push_back(Step::StreamWritable(key));
            }
        }
        Ok(())
    }

    fn handle_ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Option<Step>, FaultKind> {
        if header.stream != 0 {
            return Err(FaultKind::StreamIdInvalid);
        }
        let Ok(payload) = payload.try_into().map(u64::from_be_bytes) else {
            return Err(FaultKind::FrameSizeInvalid);
        };
        if !header.has(flag::ACK) {
            self.abuse.charge(FloodClass::Ping)?;
            frame::write_ping(&mut self.output, flag::ACK, payload);
            return Ok(None);
        }
        if payload == PROBE_PAYLOAD {
            if !self.receive.end_probe() {
                self.abuse.charge(FloodClass::Ping)?;
            }
            self.update_connection_window();
            return Ok(None);
        }
        let Some(outstanding) = self.pings_outstanding.checked_sub(1) else {
            self.abuse.charge(FloodClass::Ping)?;
            return Ok(None);
        };
        self.pings_outstanding = outstanding;
        Ok((payload != END_PAYLOAD).then_some(Step::Pong(payload)))
    }

    fn handle_go_away(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Option<Step>, FaultKind> {
        if header.stream != 0 {
            return Err(FaultKind::StreamIdInvalid);
        }
        let Some((numbers, _)) = payload.split_at_checked(8) else {
            return Err(FaultKind::FrameSizeInvalid);
        };
        let last_stream = read_u32(numbers) & STREAM_ID_MAX;
        let code = ErrorCode(read_u32(&numbers[4..]));
        if self.peer_last_accepted.is_some_and(|earlier| last_stream > earlier) {
            return Err(FaultKind::GoAwayInvalid);
        }
        if self.peer_last_accepted.replace(last_stream).is_some() {
            self.abuse.charge(FloodClass::Settings)?;
        }
        if self.role == Role::Client {
            self.reset_unprocessed(last_stream);
        }
        self.pending.push_back(Step::GoAway { last_stream, code });
        Ok(None)
    }

    /// Ends the streams that the peer will not process (RFC 9113 §6.8).
    fn reset_unprocessed(&mut self, last_stream: u32) {
        let first = self.pending.len();
        for (key, _) in self.streams.iter_mut().filter(|(key, _)| key.id > last_stream) {
            self.pending.push_back(Step::Reset {
                stream: key,
                code: ErrorCode::REFUSED_STREAM,
                fault: None,
                is_unprocessed: true,
            });
        }
        for at in first..self.pending.len() {
            if let Step::Reset { stream, .. } = self.pending[at] {
                self.streams.remember_reset(stream.id);
                self.remove_stream(stream);
            }
        }
    }

    fn handle_window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Option<Step>, FaultKind> {
        if payload.len() != 4 {
            return Err(FaultKind::FrameSizeInvalid);
        }
        let increment = read_u32(payload) & STREAM_ID_MAX;
        if (1..TINY_WINDOW_UPDATE).contains(&increment) {
            self.abuse.charge(FloodClass::TinyWindowUpdate)?;
        }
        if header.stream == 0 {
            if increment == 0 {
                return Err(FaultKind::WindowIncrementZero);
            }
            let window = self.send_window.checked_add(increment as i32);
            self.send_window = window.ok_or(FaultKind::WindowOverflow)?;
            let is_writable = self.send_window > 0 && std::mem::take(&mut self.is_send_blocked);
            return Ok(is_writable.then_some(Step::ConnectionWritable));
        }
        let Some(key) = self.streams.find(header.stream) else {
            if self.is_idle(header.stream) {
                return Err(FaultKind::StreamIdle);
            }
            // May be on its way when a stream ends: no error. A tiny one was charged.
            return Ok(None);
        };
        let Some(stream) = self.streams.get_open(key) else { return Ok(None) };
        if increment == 0 {
            return self.reset_for(key, FaultKind::WindowIncrementZero).map(Some);
        }
        let Some(window) = stream.send_window.checked_add(increment as i32) else {
            return self.reset_for(key, FaultKind::WindowOverflow).map(Some);
        };
        stream.send_window = window;
        let is_writable = window > 0 && std::mem::take(&mut stream.is_blocked);
        Ok(is_writable.then_some(Step::StreamWritable(key)))
    }

    fn handle_reset(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Option<Step>, FaultKind> {
        if header.stream == 0 {
            return Err(FaultKind::StreamIdInvalid);
        }
        if payload.len() != 4 {
            return Err(FaultKind::FrameSizeInvalid);
        }
        self.abuse.counters.resets_received += 1;
        let Some(stream) = self.streams.find(header.stream) else {
            if self.is_idle(header.stream) {
                return Err(FaultKind::StreamIdle);
            }
            self.abuse.charge(FloodClass::LateFrame)?;
            return Ok(None);
        };
        self.charge_unanswered(stream)?;
        self.remove_stream(stream);
        let code = ErrorCode(read_u32(payload));
        let is_unprocessed = code == ErrorCode::REFUSED_STREAM;
        Ok(Some(Step::Reset { stream, code, fault: None, is_unprocessed }))
    }

    /// Checks a PRIORITY frame, which has no effect (RFC 9113 §5.3.2).
    fn handle_priority(&mut self, header: FrameHeader, payload: &[u8]) -> Result<Option<Step>, FaultKind> {
        if header.stream == 0 {
            return Err(FaultKind::StreamIdInvalid);
        }
        self.abuse.charge(FloodClass::Priority)?;
        let fault = match payload.len() {
            5 if read_u32(payload) & STREAM_ID_MAX == header.stream => FaultKind::SelfDependency,
            5 => return Ok(None),
            _ => FaultKind::FrameSizeInvalid,
        };
        // Only an open stream can be reset.
        match self.streams.find(header.stream) {
            Some(stream) => self.reset_for(stream, fault).map(Some),
            None => Err(fault),
        }
    }
}
