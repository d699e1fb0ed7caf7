//! Model of a server's connection under a virtual clock: the real timers and the real frames, with a
//! socket in memory and a random client. No client holds off a timer, and no slow one is cut off.

use std::collections::VecDeque;

use wire::h2::{Config, Connection, ErrorCode, Event, Role, StreamKey};

use super::*;

const MS: u64 = 1_000_000;
const TICK_NS: u64 = 100 * MS;
const TIMEOUTS: H2Timeouts = H2Timeouts {
    head_ns: 1_000 * MS,
    idle_ns: 3_000 * MS,
    write: ProgressRule { interval_ns: 4_000 * MS, bytes_min: 4_096 },
};
/// Bytes that the socket takes from the server before the client reads.
const SOCKET_BYTES: usize = 8 * 1024;
/// Output at which the server adds no content.
const OUTPUT_BYTES: usize = 16 * 1024;
/// Delay of a deadline and of the checks, beyond the documented bounds.
const SLACK_NS: u64 = 4_000 * MS / 2 + 4 * TICK_NS;

/// A response in progress.
struct ModelStream {
    key: StreamKey,
    sent_bytes: u64,
    unsent_bytes: u64,
    sent_until: u64,
    timer: ProgressTimer,
    /// Last time with enough progress, by the clock of the test.
    good: Progress,
}

/// Progress as the test sees it.
#[derive(Clone, Copy, Default)]
struct Progress {
    bytes: u64,
    at_ns: u64,
}

impl Progress {
    fn note(&mut self, bytes: u64, owes: bool, now_ns: u64) {
        if !owes || bytes - self.bytes >= TIMEOUTS.write.bytes_min {
            *self = Self { bytes, at_ns: now_ns };
        }
    }
}

struct Server {
    timeouts: H2Timeouts,
    wire: Connection,
    timers: H2Timers,
    streams: Vec<ModelStream>,
    turn: usize,
    rest: Vec<u8>,
    /// Bytes that the client has not read.
    socket: VecDeque<u8>,
    written_bytes: u64,
    control_bytes: u64,
    armed: MonotonicTime,
    end: Option<&'static str>,
    resets: usize,
    requests: u32,
}

impl Server {
    fn new(timeouts: H2Timeouts, now: MonotonicTime) -> Self {
        Self {
            timeouts,
            wire: Connection::new(Role::Server, &Config::default()),
            timers: H2Timers::new(now),
            streams: Vec::new(),
            turn: 0,
            rest: Vec::new(),
            socket: VecDeque::new(),
            written_bytes: 0,
            control_bytes: 0,
            armed: MonotonicTime::MAX,
            end: None,
            resets: 0,
            requests: 0,
        }
    }

    fn poll(&mut self, input: &[u8], size: &mut dyn FnMut() -> u64, now: MonotonicTime) {
        if self.armed <= now {
            self.armed = MonotonicTime::MAX;
            self.handle_timeouts(now);
        }
        self.rest.extend_from_slice(input);
        let input = std::mem::take(&mut self.rest);
        if !input.is_empty() && !self.wire.is_output_full() {
            let used = self.read(&input, size, now);
            self.timers.note_input(used, used < input.len(), self.wire.incomplete_head(), now);
            self.rest = input[used..].to_vec();
        } else {
            self.rest = input;
        }
        self.fill();
        self.flush();
        let load = self.load();
        let due = self.timers.update(&self.timeouts, load, now);
        self.armed = self.armed.min(due.saturating_add(TICK_NS));
    }

    fn load(&mut self) -> H2Load {
        let has_streams = !self.streams.is_empty() || self.wire.open_streams() > 0;
        H2Load { has_streams, has_unsent: !self.wire.output().is_empty() }
    }

    fn read(&mut self, input: &[u8], size: &mut dyn FnMut() -> u64, now: MonotonicTime) -> usize {
        let mut used = 0;
        loop {
            let output_before = self.wire.output().len();
            let request = match self.wire.next_event(&input[used..]) {
                Err(_) => {
                    self.end = Some("fault");
                    return input.len();
                }
                Ok((bytes, event)) => {
                    used += bytes;
                    match event {
                        None => {
                            self.control_bytes += control_bytes(output_before, self.wire.output().len());
                            return used;
                        }
                        Some(Event::Request { stream, .. }) => Some(stream),
                        Some(Event::Reset { stream, .. }) => {
                            self.streams.retain(|open_stream| open_stream.key != stream);
                            None
                        }
                        Some(Event::Data { stream, bytes, .. }) => {
                            let bytes = bytes.len();
                            self.wire.consume(stream, bytes);
                            None
                        }
                        Some(_) => None,
                    }
                }
            };
            self.control_bytes += control_bytes(output_before, self.wire.output().len());
            let Some(key) = request else { continue };
            self.requests += 1;
            self.timers.note_request(now);
            self.wire.send_headers(key, false, |fields| fields.status(200));
            let good = Progress { bytes: 0, at_ns: now.as_ns() };
            let unsent_bytes = size();
            let timer = ProgressTimer::default();
            self.streams.push(ModelStream { key, sent_bytes: 0, unsent_bytes, sent_until: 0, timer, good });
        }
    }

    /// Sends one frame of each stream in turn.
    fn fill(&mut self) {
        let mut idle_turns = 0;
        while self.wire.output().len() < OUTPUT_BYTES && idle_turns < self.streams.len() {
            self.turn = (self.turn + 1) % self.streams.len();
            let stream = &mut self.streams[self.turn];
            let bytes = stream.unsent_bytes.min(4_096) as usize;
            let is_end = bytes as u64 == stream.unsent_bytes;
            let sent = self.wire.begin_data_frame(stream.key, bytes, is_end);
            idle_turns = if sent == 0 { idle_turns + 1 } else { 0 };
            self.wire.output().extend(std::iter::repeat_n(0, sent));
            stream.sent_bytes += sent as u64;
            stream.unsent_bytes -= sent as u64;
            if sent > 0 {
                stream.sent_until = self.written_bytes + self.wire.output().len() as u64;
            }
            if stream.unsent_bytes == 0 {
                self.streams.swap_remove(self.turn);
                idle_turns = 0;
            }
        }
    }

    fn flush(&mut self) {
        let bytes = self.wire.output().len().min(SOCKET_BYTES - self.socket.len());
        self.socket.extend(self.wire.output().drain(..bytes));
        self.written_bytes += bytes as u64;
    }

    fn handle_timeouts(&mut self, now: MonotonicTime) {
        match self.timers.expired(&self.timeouts, now) {
            Some(H2Timeout::Head) => self.end = Some("head"),
            Some(H2Timeout::Idle) => self.end = Some("idle"),
            None => {}
        }
        if !self.timers.is_check_due(now) {
            return;
        }
        let unacked_bytes = self.socket.len() as u64;
        let output = OutputProgress {
            queued_bytes: self.written_bytes + self.wire.output().len() as u64,
            written_bytes: self.written_bytes,
            confirmed_bytes: self.written_bytes - unacked_bytes,
            control_bytes: self.control_bytes,
            unacked_bytes,
        };
        let mut check = WriteCheck::new(&self.timeouts, output, now);
        let mut stalled = Vec::new();
        for stream in &mut self.streams {
            let ModelStream { key, sent_bytes, unsent_bytes, sent_until, timer, .. } = stream;
            let (window_bytes, is_delivered) =
                (self.wire.stream_send_window(*key), check.is_delivered(*sent_until));
            let (sent_bytes, unsent_bytes) = (*sent_bytes, *unsent_bytes);
            let backlog = StreamBacklog { sent_bytes, unsent_bytes, window_bytes, is_delivered };
            if check.check_stream(timer, backlog) == StreamWait::Stalled {
                stalled.push(*key);
            }
        }
        if self.timers.is_connection_stalled(&check, !self.wire.output().is_empty()) {
            self.end = Some("write");
        }
        for key in stalled {
            self.resets += 1;
            self.wire.reset(key, ErrorCode::CANCEL);
            self.streams.retain(|stream| stream.key != key);
        }
    }
}

/// Counts the bytes of responses that a client has read.
#[derive(Default)]
struct FrameScanner {
    header: Vec<u8>,
    left: usize,
    response_bytes: u64,
}

impl FrameScanner {
    fn scan(&mut self, byte: u8) {
        if self.left == 0 {
            self.header.push(byte);
            if self.header.len() < 9 {
                return;
            }
            self.left = usize::from(self.header[0]) << 16
                | usize::from(self.header[1]) << 8
                | usize::from(self.header[2]);
            if self.left == 0 {
                self.header.clear();
            }
            return;
        }
        self.left -= 1;
        self.response_bytes += u64::from(self.header[3] <= 1);
        if self.left == 0 {
            self.header.clear();
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

const GET: &[u8] = b"\x82\x86\x84\x41\x01a";

/// A client that does anything, mostly little.
struct HostileClient {
    rng: fastrand::Rng,
    script: VecDeque<u8>,
    weights: [u32; 10],
    next_stream: u32,
    read_rate: usize,
    send_rate: usize,
    /// Bytes of the unit at the start of the script that are not sent, and the time of its first one.
    units: VecDeque<usize>,
    begun_ns: Option<u64>,
}

impl HostileClient {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let weights = std::array::from_fn(|_| if rng.bool() { rng.u32(1..20) } else { 0 });
        let read_rate = [0, 1, 20, 100, 150, 1_000, 5_000, 100_000][rng.usize(..8)];
        let send_rate = [2, 10, 20, 40, 100, 1_000][rng.usize(..6)];
        let mut client = Self {
            rng,
            script: VecDeque::new(),
            weights,
            next_stream: 1,
            read_rate,
            send_rate,
            units: VecDeque::new(),
            begun_ns: None,
        };
        client.push(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let window: u32 = [0, 1, 500, 65_535][client.rng.usize(..4)];
        client.push(&frame(4, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat()));
        for _ in 0..client.rng.u32(0..20) {
            client.push(&frame(1, 5, client.next_stream, GET));
            client.next_stream += 2;
        }
        client
    }

    fn push(&mut self, bytes: &[u8]) {
        self.script.extend(bytes);
        self.units.push_back(bytes.len());
    }

    fn any_stream(&mut self) -> u32 {
        self.rng.u32(0..self.next_stream.div_ceil(2)) * 2 + 1
    }

    /// Adds a frame, or a head of several ones.
    fn act(&mut self) {
        let total: u32 = self.weights.iter().sum();
        let mut left = self.rng.u32(0..total.max(1));
        let action = self.weights.iter().position(|weight| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        let stream = self.any_stream();
        let small = [1, 1, 2, 100, 4_000][self.rng.usize(..5)] as u32;
        let window: u32 = [0, 1, 300, 65_535][self.rng.usize(..4)];
        let bytes = match action {
            Some(0) => frame(6, 0, 0, b"12345678"),
            Some(1) => frame(4, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat()),
            Some(2) => frame(2, 0, stream, &[0, 0, 0, 0, 9]),
            Some(3) => frame(200, 0, 0, &vec![7; self.rng.usize(1..40)]),
            Some(4) => frame(8, 0, 0, &small.to_be_bytes()),
            Some(5) => frame(8, 0, stream, &small.to_be_bytes()),
            Some(6) if self.next_stream < 400 => {
                self.next_stream += 2;
                frame(1, 5, self.next_stream - 2, GET)
            }
            Some(7) if self.next_stream < 400 => {
                self.next_stream += 2;
                let id = self.next_stream - 2;
                let mut bytes = frame(1, 1, id, &GET[..2]);
                for _ in 0..self.rng.u32(0..4) {
                    bytes.extend(frame(9, 0, id, b""));
                }
                bytes.extend(frame(9, 4, id, &GET[2..]));
                bytes
            }
            Some(8) => frame(3, 0, stream, &[0, 0, 0, 8]),
            Some(9) => frame(6, 1, 0, b"abcdefgh"),
            _ => return,
        };
        self.push(&bytes);
    }

    /// Returns the bytes of this tick.
    fn send(&mut self, now_ns: u64) -> Vec<u8> {
        if self.script.len() < 60 && self.rng.u32(..3) > 0 {
            self.act();
        }
        let max = self.rng.usize(0..=self.send_rate);
        let mut bytes = Vec::new();
        while bytes.len() < max
            && let Some(byte) = self.script.pop_front()
        {
            bytes.push(byte);
            self.begun_ns.get_or_insert(now_ns);
            self.units[0] -= 1;
            if self.units[0] == 0 {
                self.units.pop_front();
                self.begun_ns = None;
            }
        }
        bytes
    }
}

/// Runs a hostile client, and checks the bounds at each tick. Returns the end of the connection.
fn run_hostile(seed: u64) -> (Option<&'static str>, usize) {
    let mut client = HostileClient::new(seed);
    let start_ns = 1_000 * MS;
    let mut server = Server::new(TIMEOUTS, MonotonicTime::from_ns(start_ns));
    let mut scanner = FrameScanner::default();
    let (mut connection, mut idle_since_ns, mut requests) =
        (Progress { bytes: 0, at_ns: start_ns }, start_ns, 0);
    for tick in 0..1_200 {
        let now_ns = start_ns + tick * TICK_NS;
        let input = client.send(now_ns);
        let mut sizes = fastrand::Rng::with_seed(seed * 10_000 + tick);
        server.poll(
            &input,
            &mut || [10, 5_000, 60_000, u64::MAX][sizes.usize(..4)],
            MonotonicTime::from_ns(now_ns),
        );
        if server.end.is_some() {
            break;
        }
        for _ in 0..client.rng.usize(0..=client.read_rate).min(server.socket.len()) {
            server.socket.pop_front().into_iter().for_each(|byte| scanner.scan(byte));
        }
        connection.note(scanner.response_bytes, !server.streams.is_empty(), now_ns);
        let bound_ns = 2 * TIMEOUTS.write.interval_ns + SLACK_NS;
        for stream in &mut server.streams {
            stream.good.note(stream.sent_bytes, stream.unsent_bytes > 0, now_ns);
            let (own_ns, shared_ns) = (now_ns - stream.good.at_ns, now_ns - connection.at_ns);
            assert!(own_ns.min(shared_ns) <= bound_ns, "seed {seed}: a stream is held at tick {tick}");
        }
        if server.load().has_streams || server.requests > requests {
            (idle_since_ns, requests) = (now_ns, server.requests);
        }
        assert!(
            now_ns - idle_since_ns <= TIMEOUTS.idle_ns + 4 * TICK_NS,
            "seed {seed}: an idle connection is held at tick {tick}"
        );
        let begun_ns = client.begun_ns.unwrap_or(now_ns);
        assert!(
            now_ns - begun_ns <= 2 * TIMEOUTS.head_ns + 4 * TICK_NS || server.wire.is_output_full(),
            "seed {seed}: a frame or head is held at tick {tick}"
        );
    }
    (server.end, server.resets)
}

#[test]
fn no_client_holds_off_a_timer() {
    let mut ends: Vec<(Option<&str>, usize)> = Vec::new();
    let mut resets = 0;
    for seed in 0..256 {
        let (end, reset) = run_hostile(seed);
        resets += reset;
        match ends.iter_mut().find(|(known_end, _)| *known_end == end) {
            Some((_, count)) => *count += 1,
            None => ends.push((end, 1)),
        }
    }
    println!("ends {ends:?}, {resets} streams reset");
    for end in ["head", "idle", "write"] {
        assert!(ends.iter().any(|(known_end, _)| *known_end == Some(end)), "no {end} in {ends:?}");
    }
    assert!(resets > 0);
}

/// Runs a client that is slow and correct: it reads `rate` bytes in each tick, opens its windows as it reads,
/// and sends PING frames in two pieces. Nothing of it may be cut off.
fn run_slow(seed: u64, streams: usize, rate: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let windows = [65_535, 1 << 20][rng.usize(..2)];
    let config = Config {
        connection_window_bytes: windows,
        connection_window_bytes_max: windows,
        stream_window_bytes: [16_384, 65_535][rng.usize(..2)],
        stream_window_bytes_max: 65_535,
        ..Config::default()
    };
    let mut client = Connection::new(Role::Client, &config);
    let start_ns = 1_000 * MS;
    // It may need longer for the end of a response, which the socket has accepted.
    let timeouts = H2Timeouts { idle_ns: 60_000 * MS, ..TIMEOUTS };
    let mut server = Server::new(timeouts, MonotonicTime::from_ns(start_ns));
    let (mut rest, mut held, mut open, mut done) = (Vec::new(), Vec::new(), 0, 0);
    for tick in 0..1_500 {
        while open < streams && client.free_streams() > 0 {
            let Ok(key) = client.open_stream() else { break };
            client
                .send_headers(key, true, |fields| fields.request("GET", Some("http"), Some("a"), Some("/")));
            open += 1;
        }
        if rng.u32(..4) == 0 {
            client.ping(1);
        }
        // The last bytes of the output wait for the next tick.
        let mut input: Vec<u8> = std::mem::take(&mut held);
        let output = std::mem::take(client.output());
        let (sent, rest_of_frame) = output.split_at(output.len().saturating_sub(rng.usize(..9)));
        input.extend_from_slice(sent);
        held.extend_from_slice(rest_of_frame);
        let now = MonotonicTime::from_ns(start_ns + tick * TICK_NS);
        server.poll(&input, &mut || rng.u64(1..200_000), now);
        assert_eq!((server.end, server.resets), (None, 0), "seed {seed}, tick {tick}, {done} complete");
        let bytes = rate.min(server.socket.len());
        rest.extend(server.socket.drain(..bytes));
        let mut used = 0;
        loop {
            let (bytes, event) = client.next_event(&rest[used..]).unwrap();
            used += bytes;
            let consumed = match event {
                None => break,
                Some(Event::Data { stream, bytes, is_end }) => Some((stream, bytes.len(), is_end)),
                Some(Event::Reset { .. }) => panic!("seed {seed}: a stream is reset"),
                Some(_) => None,
            };
            if let Some((stream, bytes, is_end)) = consumed {
                client.consume(stream, bytes);
                open -= usize::from(is_end);
                done += usize::from(is_end);
            }
        }
        rest.drain(..used);
    }
    assert!(done > 0, "seed {seed}: nothing was complete");
}

#[test]
fn a_client_with_the_minimum_rate_is_not_cut_off() {
    // A third more than 4 KiB in 4 s for each stream, of which at most 16 count.
    for seed in 0..8 {
        run_slow(seed, 1, 140);
        run_slow(seed, 4, 4 * 140);
        run_slow(seed, 50, 16 * 140);
    }
}
