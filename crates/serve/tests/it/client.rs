//! An origin of its own for each test, and a client that reads answers byte by byte if need be.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rt::address::Address;
use rt::drain::{Drain, Stage};
use serve::{Plan, PlanText, Running, Stats, start};

pub(crate) struct Origin {
    running: Option<Running>,
    pub(crate) drain: Drain,
}

impl Origin {
    /// One thread on a port from the kernel, with what `adjust` changes.
    pub(crate) fn start(adjust: impl FnOnce(&mut PlanText)) -> Self {
        let mut text = PlanText {
            listen: vec!["127.0.0.1:0".to_owned()],
            threads: "1".to_owned(),
            ..PlanText::default()
        };
        adjust(&mut text);
        let drain = Drain::default();
        let running = start(Plan::parse(&text).unwrap(), drain.clone()).unwrap();
        Self { running: Some(running), drain }
    }

    pub(crate) fn plain() -> Self {
        Self::start(|_| {})
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match &self.running().addresses()[0].0 {
            Address::Tcp(address) => *address,
            Address::Unix(path) => panic!("{}", path.display()),
        }
    }

    pub(crate) fn client(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, received: Vec::new() }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.running().stats()
    }

    /// Waits until `done` says so of the counters, which are then returned.
    pub(crate) fn stats_when(&self, done: impl Fn(&Stats) -> bool) -> Stats {
        for _ in 0..3000 {
            let stats = self.stats();
            if done(&stats) {
                return stats;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{}", self.stats().to_json());
    }

    /// Waits for the end, which the test has asked for.
    pub(crate) fn join(mut self) -> Stats {
        self.running.take().unwrap().join().unwrap()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.drain.advance(Stage::Now);
        if let Some(running) = self.running.take() {
            running.join().unwrap();
        }
    }
}

pub(crate) struct Client<S> {
    pub(crate) stream: S,
    pub(crate) received: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&prefix))
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Asks for a target with GET and reads the answer.
    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.send(get(target));
        self.answer()
    }

    pub(crate) fn answer(&mut self) -> Answer {
        self.answer_to(false)
    }

    /// Reads one answer; one to a HEAD has no body.
    pub(crate) fn answer_to(&mut self, is_head: bool) -> Answer {
        let end = self.fill_until(|bytes| find(bytes, b"\r\n\r\n")) + 4;
        let head: Vec<u8> = self.received.drain(..end).collect();
        let mut answer = Answer { head: String::from_utf8(head).unwrap(), body: Vec::new() };
        if is_head || matches!(answer.status(), 100..200 | 204 | 304) {
            return answer;
        }
        if let Some(length) = answer.field("Content-Length") {
            answer.body = self.take(length.parse().unwrap());
        } else if answer.field("Transfer-Encoding").is_some() {
            answer.body = self.chunks().concat();
        } else {
            answer.body = self.rest();
        }
        answer
    }

    /// The data of the chunks up to the last one.
    pub(crate) fn chunks(&mut self) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        loop {
            let end = self.fill_until(|bytes| find(bytes, b"\r\n"));
            let line: Vec<u8> = self.received.drain(..end + 2).collect();
            let size = std::str::from_utf8(&line[..end]).unwrap();
            let mut data = self.take(usize::from_str_radix(size, 16).unwrap() + 2);
            assert!(data.ends_with(b"\r\n"));
            data.truncate(data.len() - 2);
            if data.is_empty() {
                return chunks;
            }
            chunks.push(data);
        }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        self.fill_until(|received| (received.len() >= bytes).then_some(0));
        self.received.drain(..bytes).collect()
    }

    /// Everything up to the end of the connection; a reset is an end too.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.received);
        let mut buffer = [0; 65536];
        while let Ok(read @ 1..) = self.read(&mut buffer) {
            rest.extend_from_slice(&buffer[..read]);
        }
        rest
    }

    /// A read with a time-out is interrupted when the process is stopped and goes on (signal(7)).
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn fill_until(&mut self, done: impl Fn(&[u8]) -> Option<usize>) -> usize {
        let mut buffer = [0; 65536];
        loop {
            if let Some(at) = done(&self.received) {
                return at;
            }
            let read = self.read(&mut buffer).unwrap();
            assert!(read > 0, "ended after {:?}", String::from_utf8_lossy(&self.received));
            self.received.extend_from_slice(&buffer[..read]);
        }
    }
}

pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")
}

pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    let line = b".123456789.123456789.123456789.123456789.12345678\n";
    line.iter().copied().cycle().take(bytes).collect()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
