//! Reader of an event stream (server-sent events, HTML §9.2.6). It takes the bytes of a body in any pieces, and
//! stores no data of an event: only its length, its ID and the reconnection time.

use std::fmt;

pub const EVENT_ID_BYTES_MAX: usize = 1024;
/// Maximum number of digits of a reconnection time.
const RETRY_DIGITS_MAX: usize = 12;
/// The byte order mark, which may begin a stream.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Length of the longest known field name, `event` and `retry`.
const NAME_BYTES_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    pub bytes: u64,
    /// True if one of its lines set the ID, which [`EventStreamReader::last_event_id`] returns.
    pub has_id: bool,
}

/// Reason why a stream is not read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventStreamFault {
    /// An event is longer than the limit.
    EventTooLarge,
    /// An ID is longer than [`EVENT_ID_BYTES_MAX`].
    IdTooLong,
}

impl fmt::Display for EventStreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EventTooLarge => "event_too_large",
            Self::IdTooLong => "id_too_long",
        })
    }
}

impl std::error::Error for EventStreamFault {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePart {
    /// Number of bytes of the byte order mark that have arrived.
    ByteOrderMark(usize),
    Name,
    /// Behind the colon: a space there is no part of the value.
    Colon,
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Id,
    Retry,
    /// `event`, a comment, and unknown names.
    Other,
}

#[derive(Clone, Debug)]
pub struct EventStreamReader {
    event_bytes_max: u64,
    part: LinePart,
    name: [u8; NAME_BYTES_MAX],
    /// Number of bytes of the name; more than the maximum if it is unknown.
    name_bytes: usize,
    field: Field,
    /// Value of `id` or `retry`.
    value: Vec<u8>,
    is_value_ignored: bool,
    /// True if the last byte was a CR, behind which a LF ends no further line.
    is_after_cr: bool,
    is_line_empty: bool,
    event_bytes: u64,
    has_data: bool,
    has_id: bool,
    /// ID of the lines so far; an event makes it the last event ID.
    id: Vec<u8>,
    last_event_id: Vec<u8>,
    retry_ms: Option<u64>,
}

impl EventStreamReader {
    /// Creates the reader of a stream, whose events have at most `event_bytes_max` bytes.
    #[must_use]
    pub fn new(event_bytes_max: u64) -> Self {
        Self::resuming(event_bytes_max, Vec::new())
    }

    /// Creates the reader of a stream that continues another one, whose last event ID stays until the first empty line
    /// of this one (HTML §9.2.6).
    #[must_use]
    pub fn resuming(event_bytes_max: u64, last_event_id: Vec<u8>) -> Self {
        Self {
            event_bytes_max,
            part: LinePart::ByteOrderMark(0),
            name: [0; NAME_BYTES_MAX],
            name_bytes: 0,
            field: Field::Other,
            value: Vec::new(),
            is_value_ignored: false,
            is_after_cr: false,
            is_line_empty: true,
            event_bytes: 0,
            has_data: false,
            has_id: false,
            id: Vec::new(),
            last_event_id,
            retry_ms: None,
        }
    }

    /// Returns the ID that a reconnect sends in `Last-Event-ID`; empty: none.
    pub fn last_event_id(&self) -> &[u8] {
        &self.last_event_id
    }

    /// Returns the reconnection time that the server set, in ms.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Reads until the next event. Returns it, or `None` if `input` is used up.
    ///
    /// # Errors
    /// A limit is exceeded.
    pub fn read(&mut self, input: &mut &[u8]) -> Result<Option<StreamEvent>, EventStreamFault> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            let is_second_byte_of_end = std::mem::take(&mut self.is_after_cr) && byte == b'\n';
            if is_second_byte_of_end {
                continue;
            }
            if matches!(byte, b'\r' | b'\n') {
                self.is_after_cr = byte == b'\r';
                let event = self.end_line()?;
                if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            self.take_byte(byte)?;
            if self.part == LinePart::Value && self.field == Field::Data {
                self.skip_data(input)?;
            }
        }
        Ok(None)
    }

    fn skip_data(&mut self, input: &mut &[u8]) -> Result<(), EventStreamFault> {
        let bytes = memchr::memchr2(b'\r', b'\n', input).unwrap_or(input.len());
        *input = &input[bytes..];
        self.count(bytes as u64)
    }

    fn count(&mut self, bytes: u64) -> Result<(), EventStreamFault> {
        self.event_bytes = self.event_bytes.saturating_add(bytes);
        let is_within = self.event_bytes <= self.event_bytes_max;
        is_within.then_some(()).ok_or(EventStreamFault::EventTooLarge)
    }

    fn take_byte(&mut self, byte: u8) -> Result<(), EventStreamFault> {
        if let LinePart::ByteOrderMark(bytes) = self.part {
            if BYTE_ORDER_MARK.get(bytes) == Some(&byte) {
                let is_complete = bytes + 1 == BYTE_ORDER_MARK.len();
                self.part = if is_complete { LinePart::Name } else { LinePart::ByteOrderMark(bytes + 1) };
                return Ok(());
            }
            self.part = LinePart::Name;
            if bytes > 0 {
                // A part of the mark begins an unknown name.
                (self.is_line_empty, self.name_bytes) = (false, NAME_BYTES_MAX + 1);
            }
        }
        self.is_line_empty = false;
        self.count(1)?;
        match self.part {
            LinePart::Colon if byte == b' ' => self.part = LinePart::Value,
            LinePart::Colon | LinePart::Value => {
                self.part = LinePart::Value;
                return self.take_value(byte);
            }
            LinePart::Name if byte == b':' => {
                self.field = self.named_field();
                self.part = LinePart::Colon;
            }
            LinePart::Name | LinePart::ByteOrderMark(_) => {
                if let Some(slot) = self.name.get_mut(self.name_bytes) {
                    *slot = byte;
                }
                self.name_bytes = (self.name_bytes + 1).min(NAME_BYTES_MAX + 1);
            }
        }
        Ok(())
    }

    fn take_value(&mut self, byte: u8) -> Result<(), EventStreamFault> {
        match self.field {
            Field::Data | Field::Other => {}
            Field::Id => {
                self.is_value_ignored |= byte == 0;
                if self.value.len() >= EVENT_ID_BYTES_MAX {
                    return Err(EventStreamFault::IdTooLong);
                }
                self.value.push(byte);
            }
            Field::Retry => {
                self.is_value_ignored |= !byte.is_ascii_digit() || self.value.len() >= RETRY_DIGITS_MAX;
                if !self.is_value_ignored {
                    self.value.push(byte);
                }
            }
        }
        Ok(())
    }

    /// Returns the field of the name; an empty one begins a comment.
    fn named_field(&self) -> Field {
        match self.name.get(..self.name_bytes) {
            Some(b"data") => Field::Data,
            Some(b"id") => Field::Id,
            Some(b"retry") => Field::Retry,
            _ => Field::Other,
        }
    }

    /// Ends a line. Returns the event that an empty one dispatches.
    fn end_line(&mut self) -> Result<Option<StreamEvent>, EventStreamFault> {
        if let LinePart::ByteOrderMark(1..) = self.part {
            (self.is_line_empty, self.name_bytes) = (false, NAME_BYTES_MAX + 1);
        }
        if std::mem::replace(&mut self.is_line_empty, true) {
            self.part = LinePart::Name;
            return Ok(self.end_event());
        }
        if self.part == LinePart::Name {
            // A line without a colon is a name with an empty value.
            self.field = self.named_field();
        }
        self.count(1)?;
        match self.field {
            Field::Data => self.has_data = true,
            Field::Id if !self.is_value_ignored => {
                self.id.clone_from(&self.value);
                self.has_id = true;
            }
            Field::Retry if !self.is_value_ignored => {
                // Digits only, and few enough for the type.
                let digits = self.value.iter();
                let number = digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
                self.retry_ms = (!self.value.is_empty()).then_some(number).or(self.retry_ms);
            }
            Field::Id | Field::Retry | Field::Other => {}
        }
        self.value.clear();
        (self.part, self.name_bytes, self.field) = (LinePart::Name, 0, Field::Other);
        self.is_value_ignored = false;
        Ok(None)
    }

    fn end_event(&mut self) -> Option<StreamEvent> {
        self.last_event_id.clone_from(&self.id);
        let event = StreamEvent { bytes: self.event_bytes, has_id: self.has_id };
        let has_data = std::mem::take(&mut self.has_data);
        (self.event_bytes, self.has_id) = (0, false);
        has_data.then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a stream in pieces. Returns its events with the last ID at each, and the retry time.
    fn read_pieces(bytes: &[u8], pieces: &[usize]) -> (Vec<(StreamEvent, String)>, Option<u64>) {
        let mut reader = EventStreamReader::new(1000);
        let (mut events, mut from) = (Vec::new(), 0);
        for to in pieces.iter().copied().chain([bytes.len()]) {
            let mut input = &bytes[from..to];
            while let Some(event) = reader.read(&mut input).unwrap() {
                events.push((event, String::from_utf8_lossy(reader.last_event_id()).into_owned()));
            }
            from = to;
        }
        (events, reader.retry_ms())
    }

    fn ids(text: &str) -> Vec<String> {
        let unsplit = read_pieces(text.as_bytes(), &[]);
        for split in 0..text.len() {
            assert_eq!(read_pieces(text.as_bytes(), &[split]), unsplit, "split at {split}");
        }
        let each: Vec<usize> = (0..text.len()).collect();
        assert_eq!(read_pieces(text.as_bytes(), &each), unsplit, "byte by byte");
        unsplit
            .0
            .into_iter()
            .map(|(event, id)| format!("{id}{}", if event.has_id { "" } else { "-" }))
            .collect()
    }

    #[test]
    fn every_end_of_a_line_is_one() {
        for end in ["\n", "\r", "\r\n"] {
            let text =
                "data: a\nid: 1\n\n: c\n\ndata\n\nid:2\ndata:b\ndata:c\n\ndata: cut".replace('\n', end);
            assert_eq!(ids(&text), ["1", "1-", "2"], "{end:?}");
        }
    }

    #[test]
    fn a_mark_begins_the_stream_only() {
        assert_eq!(ids("\u{feff}data: a\n\n"), ["-"]);
        assert_eq!(ids("\u{feff}\u{feff}data: a\n\n"), [""; 0]);
        assert_eq!(ids("\u{fec0}data: a\n\ndata: b\n\n"), ["-"]);
        assert_eq!(ids("\u{feff}\n\ndata: b\n\n"), ["-"]);
    }

    #[test]
    fn fields_are_those_of_the_standard() {
        assert_eq!(ids("data:a\nid: 1\n\ndata:b\nid\n\n"), ["1", ""], "an empty ID resets it");
        assert_eq!(ids("data:a\nid: 1\0\n\n"), ["-"], "NULL");
        assert_eq!(ids("Data:a\n\n data:a\n\ndata :a\n\ndatab: c\n\n"), [""; 0]);
        assert_eq!(ids("event: x\nid: 7\n\ndata: y\n\n"), ["7-"], "an event without data sets the ID");
        assert_eq!(ids("data:a\n"), [""; 0], "an incomplete event is none");
    }

    #[test]
    fn the_last_id_stays_until_the_new_stream_has_an_event() {
        let after = |text: &str| {
            let mut reader = EventStreamReader::resuming(1000, b"7".to_vec());
            let mut input = text.as_bytes();
            while reader.read(&mut input).unwrap().is_some() {}
            String::from_utf8_lossy(reader.last_event_id()).into_owned()
        };
        for text in ["", ": hello\nretry: 100\n", "data: cut\nid: 8\n"] {
            assert_eq!(after(text), "7", "{text:?}");
        }
        assert_eq!((after("id: 8\n\n"), after("data: a\n\n")), ("8".to_owned(), String::new()));
    }

    #[test]
    fn reconnection_times_are_digits() {
        let retry = |text: &str| read_pieces(text.as_bytes(), &[]).1;
        assert_eq!(retry("retry: 250\n"), Some(250));
        assert_eq!(retry("retry: 250\nretry: 1s\nretry:\nretry: 9999999999999\n"), Some(250));
        assert_eq!(retry("retry: -1\n"), None);
    }

    #[test]
    fn events_and_ids_are_bounded() {
        let fault = |text: String| EventStreamReader::new(5000).read(&mut text.as_bytes()).unwrap_err();
        assert_eq!(fault(format!("data: {}\n", "x".repeat(6000))), EventStreamFault::EventTooLarge);
        assert_eq!(fault(": comment\n".repeat(1000)), EventStreamFault::EventTooLarge);
        assert_eq!(fault(format!("id: {}\n", "x".repeat(2000))), EventStreamFault::IdTooLong);
        let mut reader = EventStreamReader::new(20);
        let many = "data: x\n\n".repeat(100);
        let mut input = many.as_bytes();
        assert_eq!(std::iter::from_fn(|| reader.read(&mut input).unwrap()).count(), 100);
    }
}
