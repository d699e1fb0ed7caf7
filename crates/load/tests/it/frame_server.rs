//! HTTP/2 server that is a script of frames. It knows nothing of HPACK but a few literal blocks, and
//! shares no code with the generator.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Types of frames (RFC 9113 §6).
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
}

/// Flags of frames.
pub(crate) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
/// Settings (RFC 9113 §6.5.2).
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
/// Error codes (RFC 9113 §7).
pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
/// Field block `:status: 200`.
pub(crate) const STATUS_200: &[u8] = &[0x88];

/// Counters of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerCounters {
    /// Complete requests.
    pub(crate) requests: AtomicU64,
    /// Connections.
    pub(crate) connections: AtomicU64,
    /// Maximum number of concurrent streams.
    pub(crate) streams_max: AtomicU64,
    /// Streams that the client reset, with CANCEL.
    pub(crate) cancelled: AtomicU64,
    /// Bytes of request bodies.
    pub(crate) body_bytes: AtomicU64,
}

/// Server that runs a script for each connection, each in its own thread. Its threads end with
/// their connections.
pub(crate) struct FrameServer {
    address: SocketAddr,
    pub(crate) counters: Arc<ServerCounters>,
}

/// One received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Connection with a client.
pub(crate) struct Peer {
    socket: TcpStream,
    /// Number of the connection, from 0.
    pub(crate) number: u64,
    pub(crate) counters: Arc<ServerCounters>,
    /// Streams whose response is not complete.
    open: Vec<u32>,
    /// Requests that were received while the script waited for windows.
    early: VecDeque<u32>,
    connection_window: i64,
    initial_window: i64,
    windows: BTreeMap<u32, i64>,
}

impl FrameServer {
    /// Starts a server with these settings; `script` runs after the preface.
    pub(crate) fn start(
        settings: &'static [(u16, u32)],
        script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start_raw(move |peer| {
            peer.begin(settings)?;
            script(peer)
        })
    }

    /// Starts a server whose script reads the preface itself.
    pub(crate) fn start_raw(script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counters = Arc::new(ServerCounters::default());
        let (accepted, script) = (Arc::clone(&counters), Arc::new(script));
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let number = accepted.connections.fetch_add(1, Ordering::SeqCst);
                let (counters, script) = (Arc::clone(&accepted), Arc::clone(&script));
                thread::spawn(move || {
                    let mut peer = Peer::new(socket, number, counters);
                    // The client may close at any time.
                    let _ = script(&mut peer);
                });
            }
        });
        Self { address, counters }
    }

    /// Starts a server that responds to each request with a body of so many bytes.
    pub(crate) fn responding(body_bytes: usize) -> Self {
        Self::start(&[], move |peer| peer.respond_to_all(body_bytes))
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Returns one of the counters.
    pub(crate) fn count(&self, counter: impl Fn(&ServerCounters) -> &AtomicU64) -> u64 {
        counter(&self.counters).load(Ordering::SeqCst)
    }
}

impl Peer {
    fn new(socket: TcpStream, number: u64, counters: Arc<ServerCounters>) -> Self {
        socket.set_nodelay(true).unwrap();
        Self {
            socket,
            number,
            counters,
            open: Vec::new(),
            early: VecDeque::new(),
            connection_window: 65_535,
            initial_window: 65_535,
            windows: BTreeMap::new(),
        }
    }

    /// Reads the preface and sends the settings.
    pub(crate) fn begin(&mut self, settings: &[(u16, u32)]) -> io::Result<()> {
        self.read_preface()?;
        self.send_settings(settings)
    }

    pub(crate) fn read_preface(&mut self) -> io::Result<()> {
        let mut preface = [0; 24];
        self.socket.read_exact(&mut preface)?;
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Ok(())
    }

    /// Returns whether nothing arrives for 200 ms.
    fn is_quiet(&self) -> bool {
        self.socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        let received = self.socket.peek(&mut [0]);
        self.socket.set_read_timeout(None).unwrap();
        received.is_err()
    }

    /// Reads the requests that arrive before the settings of the server, until it is quiet.
    pub(crate) fn early_requests(&mut self) -> io::Result<Vec<u32>> {
        let mut streams = Vec::new();
        while !self.is_quiet() {
            let mut header = [0; 9];
            self.socket.read_exact(&mut header)?;
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            self.socket.read_exact(&mut vec![0; length as usize])?;
            if header[3] == kind::HEADERS {
                streams.push(u32::from_be_bytes([header[5], header[6], header[7], header[8]]));
            }
        }
        self.counters.requests.fetch_add(streams.len() as u64, Ordering::SeqCst);
        Ok(streams)
    }

    pub(crate) fn send_settings(&mut self, settings: &[(u16, u32)]) -> io::Result<()> {
        let mut payload = Vec::new();
        for (setting, value) in settings {
            payload.extend_from_slice(&setting.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.send_frame(kind::SETTINGS, 0, 0, &payload)
    }

    pub(crate) fn send_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.socket.write_all(&frame)
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Returns the next frame that is not about the connection itself.
    pub(crate) fn next_frame(&mut self) -> io::Result<Frame> {
        loop {
            let mut header = [0; 9];
            self.socket.read_exact(&mut header)?;
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            let mut payload = vec![0; length as usize];
            self.socket.read_exact(&mut payload)?;
            let frame = Frame { kind: header[3], flags: header[4], stream, payload };
            match frame.kind {
                kind::SETTINGS if frame.flags & ACK == 0 => {
                    for setting in frame.payload.chunks(6) {
                        if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                            self.initial_window =
                                i64::from(u32::from_be_bytes(setting[2..].try_into().unwrap()));
                        }
                    }
                    self.send_frame(kind::SETTINGS, ACK, 0, &[])?;
                }
                kind::PING if frame.flags & ACK == 0 => {
                    self.send_frame(kind::PING, ACK, 0, &frame.payload)?;
                }
                kind::WINDOW_UPDATE => {
                    let bytes = i64::from(u32::from_be_bytes(frame.payload[..4].try_into().unwrap()));
                    match frame.stream {
                        0 => self.connection_window += bytes,
                        stream => *self.window(stream) += bytes,
                    }
                    return Ok(frame);
                }
                kind::SETTINGS | kind::PING => {}
                kind::GOAWAY => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {
                    self.count(&frame);
                    return Ok(frame);
                }
            }
        }
    }

    fn window(&mut self, stream: u32) -> &mut i64 {
        self.windows.entry(stream).or_insert(self.initial_window)
    }

    fn count(&mut self, frame: &Frame) {
        match frame.kind {
            kind::HEADERS => {
                self.open.push(frame.stream);
                self.counters.streams_max.fetch_max(self.open.len() as u64, Ordering::SeqCst);
            }
            kind::DATA => {
                self.counters.body_bytes.fetch_add(frame.payload.len() as u64, Ordering::SeqCst);
            }
            kind::RST_STREAM => {
                self.open.retain(|stream| *stream != frame.stream);
                let is_cancel = frame.payload == CANCEL.to_be_bytes();
                self.counters.cancelled.fetch_add(u64::from(is_cancel), Ordering::SeqCst);
            }
            _ => {}
        }
        if matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & END_STREAM != 0 {
            self.counters.requests.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Reads and ignores everything until the client closes the connection.
    pub(crate) fn ignore_everything(&mut self) -> io::Result<()> {
        io::copy(&mut self.socket, &mut io::sink()).map(|_| ())
    }

    /// Returns the stream of the next complete request.
    pub(crate) fn next_request(&mut self) -> io::Result<u32> {
        if let Some(stream) = self.early.pop_front() {
            return Ok(stream);
        }
        loop {
            let frame = self.next_frame()?;
            if frame.kind == kind::DATA && !frame.payload.is_empty() {
                self.credit(frame.stream, frame.payload.len() as u32, frame.flags & END_STREAM != 0)?;
            }
            if matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & END_STREAM != 0 {
                return Ok(frame.stream);
            }
        }
    }

    /// Returns the bytes of a body to the client's windows.
    fn credit(&mut self, stream: u32, bytes: u32, is_end: bool) -> io::Result<()> {
        self.send_frame(kind::WINDOW_UPDATE, 0, 0, &bytes.to_be_bytes())?;
        match is_end {
            true => Ok(()),
            false => self.send_frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()),
        }
    }

    /// Sends a head.
    pub(crate) fn send_head(&mut self, stream: u32, block: &[u8], is_end: bool) -> io::Result<()> {
        if is_end {
            self.open.retain(|open| *open != stream);
        }
        self.send_frame(kind::HEADERS, END_HEADERS | if is_end { END_STREAM } else { 0 }, stream, block)
    }

    /// Sends a few bytes of a body.
    pub(crate) fn send_data(&mut self, stream: u32, bytes: &[u8]) -> io::Result<()> {
        self.connection_window -= bytes.len() as i64;
        self.send_frame(kind::DATA, 0, stream, bytes)
    }

    /// Sends a part of a body of zeros, as the windows allow: it reads until they do.
    pub(crate) fn send_body(&mut self, stream: u32, mut bytes: usize, is_end: bool) -> io::Result<()> {
        loop {
            let allowed = self.connection_window.min(*self.window(stream)).clamp(0, 16_384) as usize;
            let part = bytes.min(allowed);
            if part > 0 || bytes == 0 {
                bytes -= part;
                self.connection_window -= part as i64;
                *self.window(stream) -= part as i64;
                let is_last = is_end && bytes == 0;
                self.send_frame(kind::DATA, u8::from(is_last) * END_STREAM, stream, &vec![0; part])?;
                if bytes == 0 {
                    if is_last {
                        self.open.retain(|open| *open != stream);
                    }
                    return Ok(());
                }
                continue;
            }
            let frame = self.next_frame()?;
            if matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & END_STREAM != 0 {
                self.early.push_back(frame.stream);
            }
        }
    }

    /// Sends a complete response of status 200.
    pub(crate) fn respond(&mut self, stream: u32, body_bytes: usize) -> io::Result<()> {
        if body_bytes == 0 {
            return self.send_head(stream, STATUS_200, true);
        }
        self.send_head(stream, STATUS_200, false)?;
        self.send_body(stream, body_bytes, true)
    }

    pub(crate) fn respond_to_all(&mut self, body_bytes: usize) -> io::Result<()> {
        loop {
            let stream = self.next_request()?;
            self.respond(stream, body_bytes)?;
        }
    }

    pub(crate) fn reset(&mut self, stream: u32, code: u32) -> io::Result<()> {
        self.open.retain(|open| *open != stream);
        self.send_frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
    }

    pub(crate) fn go_away(&mut self, last_stream: u32, code: u32) -> io::Result<()> {
        let payload = [last_stream.to_be_bytes(), code.to_be_bytes()].concat();
        self.send_frame(kind::GOAWAY, 0, 0, &payload)
    }
}

/// Returns a field block with one literal field, which enters no table.
pub(crate) fn literal_block(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0, name.len() as u8];
    block.extend_from_slice(name.as_bytes());
    block.push(value.len() as u8);
    block.extend_from_slice(value.as_bytes());
    block
}
