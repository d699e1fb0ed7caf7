//! A client with HTTP/2 for the tests: the protocol of [`wire::h2`] over a blocking socket, and raw
//! frames for what no correct client sends.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use wire::h2::{Config, Connection, ErrorCode, Event, PREFACE, Role, StreamKey};

use crate::client::TestOrigin;

/// Received parts of a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct H2Response {
    pub(crate) status: u16,
    pub(crate) interim: Vec<u16>,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) is_end: bool,
    pub(crate) reset: Option<ErrorCode>,
}

impl H2Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) struct H2Client {
    pub(crate) stream: TcpStream,
    pub(crate) wire: Connection,
    unparsed: Vec<u8>,
    /// Responses by stream.
    pub(crate) responses: BTreeMap<u32, H2Response>,
    /// Streams in the order of their ends.
    pub(crate) ended: Vec<u32>,
    /// Last stream and code of each GOAWAY frame.
    pub(crate) goaways: Vec<(u32, ErrorCode)>,
    /// True if received content is not returned to the windows.
    pub(crate) holds_windows: bool,
    pub(crate) is_closed: bool,
}

impl H2Client {
    pub(crate) fn connect(origin: &TestOrigin) -> Self {
        Self::connect_with(origin, &Config::default())
    }

    pub(crate) fn connect_with(origin: &TestOrigin, config: &Config) -> Self {
        let stream = TcpStream::connect(origin.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self {
            stream,
            wire: Connection::new(Role::Client, config),
            unparsed: Vec::new(),
            responses: BTreeMap::new(),
            ended: Vec::new(),
            goaways: Vec::new(),
            holds_windows: false,
            is_closed: false,
        };
        client.flush();
        client
    }

    /// Sends what the protocol has written.
    pub(crate) fn flush(&mut self) {
        let bytes = std::mem::take(self.wire.output());
        // The origin may have closed the connection, which the next read reports.
        let _ = self.stream.write_all(&bytes);
    }

    pub(crate) fn send_head(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        is_end: bool,
    ) -> StreamKey {
        let stream = self.wire.open_stream().unwrap();
        self.wire.send_headers(stream, is_end, |head| {
            let path = (method != "CONNECT").then_some(target);
            let scheme = path.map(|_| "http");
            let authority = path.map_or("test:443", |_| "test");
            head.request(method, scheme, Some(authority), path);
            for (name, value) in fields {
                head.field(name, value.as_bytes());
            }
        });
        stream
    }

    pub(crate) fn send_get(&mut self, target: &str) -> u32 {
        self.send_head("GET", target, &[], true).id
    }

    pub(crate) fn get(&mut self, target: &str) -> H2Response {
        let id = self.send_get(target);
        self.wait_for(id)
    }

    /// Waits for the end of a response.
    pub(crate) fn wait_for(&mut self, id: u32) -> H2Response {
        self.read_until(|client| client.ended.contains(&id));
        self.responses.get(&id).cloned().unwrap_or_else(|| panic!("no response {id}: {:?}", self.goaways))
    }

    /// Reads until the condition holds, or the connection ends.
    pub(crate) fn read_until(&mut self, done: impl Fn(&Self) -> bool) {
        self.flush();
        while !done(self) && !self.is_closed {
            self.read();
            self.flush();
        }
        assert!(done(self), "the connection ended: {:?} {:?}", self.goaways, self.ended);
    }

    pub(crate) fn read_to_end(&mut self) {
        self.read_until(|client| client.is_closed);
    }

    /// Reads once, and sends what follows from it.
    pub(crate) fn read_once(&mut self) {
        self.read();
        self.flush();
    }

    fn read(&mut self) {
        let mut buffer = [0; 65_536];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(read) => {
                self.unparsed.extend_from_slice(&buffer[..read]);
                self.handle_input();
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.is_closed = true,
            Err(error) => panic!("{error}: {:?}", self.responses),
        }
    }

    fn handle_input(&mut self) {
        let input = std::mem::take(&mut self.unparsed);
        let mut used = 0;
        loop {
            let (bytes, event) = self.wire.next_event(&input[used..]).unwrap();
            used += bytes;
            let Some(event) = event else { break };
            let mut consumed = None;
            match event {
                Event::Response { stream, head, is_end } => {
                    let response = self.responses.entry(stream.id).or_default();
                    if head.status < 200 {
                        response.interim.push(head.status);
                    } else {
                        response.status = head.status;
                    }
                    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
                    response
                        .fields
                        .extend(head.fields.iter().map(|(name, value)| (name.into(), text(value))));
                    if let Some(length) = head.content_length {
                        response.fields.push(("content-length".into(), length.to_string()));
                    }
                    end_if(is_end, response, &mut self.ended, stream);
                }
                Event::Data { stream, bytes, is_end } => {
                    let response = self.responses.entry(stream.id).or_default();
                    response.body.extend_from_slice(bytes);
                    end_if(is_end, response, &mut self.ended, stream);
                    consumed = Some((stream, bytes.len()));
                }
                Event::Reset { stream, code, .. } => {
                    self.responses.entry(stream.id).or_default().reset = Some(code);
                    self.ended.push(stream.id);
                }
                Event::GoAway { last_stream, code } => self.goaways.push((last_stream, code)),
                _ => {}
            }
            if let Some((stream, bytes)) = consumed.filter(|_| !self.holds_windows) {
                self.wire.consume(stream, bytes);
            }
        }
        self.unparsed = input[used..].to_vec();
    }
}

fn end_if(is_end: bool, response: &mut H2Response, ended: &mut Vec<u32>, stream: StreamKey) {
    if is_end {
        response.is_end = true;
        ended.push(stream.id);
    }
}

/// A frame, with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Returns the bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the preface and empty settings.
pub(crate) fn preface() -> Vec<u8> {
    [&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Returns the field block of a request without indexed or Huffman-coded strings.
pub(crate) fn request_block(method: &str, target: &str) -> Vec<u8> {
    let mut block = Vec::new();
    // Indices of the static table: 2 is `:method`, 6 `:scheme http`, 4 `:path`, 1 `:authority`.
    for (index, value) in [(2, method), (6, ""), (4, target), (1, "test")] {
        if value.is_empty() {
            block.push(0x80 | index);
        } else {
            block.extend([index, value.len() as u8]);
            block.extend(value.as_bytes());
        }
    }
    block
}

/// Returns a HEADERS frame with a GET.
pub(crate) fn get_frame(stream: u32, target: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &request_block("GET", target))
}

/// Reads frames until one fulfils `done`, or the connection ends.
pub(crate) fn read_frames(stream: &mut impl Read, done: impl Fn(&RawFrame) -> bool) -> Vec<RawFrame> {
    let mut frames = Vec::new();
    loop {
        let mut header = [0; 9];
        if stream.read_exact(&mut header).is_err() {
            return frames;
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let mut payload = vec![0; length];
        if stream.read_exact(&mut payload).is_err() {
            return frames;
        }
        let id = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
        frames.push(RawFrame { kind: header[3], flags: header[4], stream: id, payload });
        if frames.last().is_some_and(&done) {
            return frames;
        }
    }
}
