//! A separate origin for each test, and a client that can read responses byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rt::address::Address;
use rt::drain::{Drain, DrainStage};
use serve::{OriginPlan, OriginPlanText, OriginStats, RunningOrigin, start};

pub(crate) struct TestOrigin {
    running: Option<RunningOrigin>,
    pub(crate) drain: Drain,
}

impl TestOrigin {
    /// Starts one thread on a port from the kernel, with the changes of `adjust`.
    pub(crate) fn start(adjust: impl FnOnce(&mut OriginPlanText)) -> Self {
        let mut text = OriginPlanText {
            listen: vec!["127.0.0.1:0".to_owned()],
            threads: "1".to_owned(),
            ..OriginPlanText::default()
        };
        adjust(&mut text);
        let drain = Drain::default();
        let running = start(OriginPlan::parse(&text).unwrap(), drain.clone()).unwrap();
        Self { running: Some(running), drain }
    }

    pub(crate) fn start_default() -> Self {
        Self::start(|_| {})
    }

    pub(crate) fn running(&self) -> &RunningOrigin {
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

    pub(crate) fn stats(&self) -> OriginStats {
        self.running().stats()
    }

    /// Waits until the counters fulfil `done`, and returns them.
    pub(crate) fn stats_when(&self, done: impl Fn(&OriginStats) -> bool) -> OriginStats {
        for _ in 0..3000 {
            let stats = self.stats();
            if done(&stats) {
                return stats;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{}", self.stats().to_json());
    }

    /// Waits for the end that the test has requested.
    pub(crate) fn join(mut self) -> OriginStats {
        self.running.take().unwrap().join().unwrap()
    }
}

impl Drop for TestOrigin {
    fn drop(&mut self) {
        self.drain.advance(DrainStage::Abort);
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
pub(crate) struct TestResponse {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl TestResponse {
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

    /// Sends a GET for a target and reads the response.
    pub(crate) fn get(&mut self, target: &str) -> TestResponse {
        self.send(get(target));
        self.read_response()
    }

    pub(crate) fn read_response(&mut self) -> TestResponse {
        self.read_response_to(false)
    }

    /// Reads one response; one to a HEAD has no body.
    pub(crate) fn read_response_to(&mut self, is_head: bool) -> TestResponse {
        let end = self.fill_until(|bytes| find(bytes, b"\r\n\r\n")) + 4;
        let head: Vec<u8> = self.received.drain(..end).collect();
        let mut response = TestResponse { head: String::from_utf8(head).unwrap(), body: Vec::new() };
        if is_head || matches!(response.status(), 100..200 | 204 | 304) {
            return response;
        }
        if let Some(length) = response.field("Content-Length") {
            response.body = self.read_exact(length.parse().unwrap());
        } else if response.field("Transfer-Encoding").is_some() {
            response.body = self.read_chunks().concat();
        } else {
            response.body = self.read_to_end();
        }
        response
    }

    /// Returns the data of the chunks up to the last one.
    pub(crate) fn read_chunks(&mut self) -> Vec<Vec<u8>> {
        let mut chunks = Vec::new();
        loop {
            let end = self.fill_until(|bytes| find(bytes, b"\r\n"));
            let line: Vec<u8> = self.received.drain(..end + 2).collect();
            let size = std::str::from_utf8(&line[..end]).unwrap();
            let mut data = self.read_exact(usize::from_str_radix(size, 16).unwrap() + 2);
            assert!(data.ends_with(b"\r\n"));
            data.truncate(data.len() - 2);
            if data.is_empty() {
                return chunks;
            }
            chunks.push(data);
        }
    }

    pub(crate) fn read_exact(&mut self, bytes: usize) -> Vec<u8> {
        self.fill_until(|received| (received.len() >= bytes).then_some(0));
        self.received.drain(..bytes).collect()
    }

    /// Returns all bytes up to the end of the connection; a reset is an end too.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.received);
        let mut buffer = [0; 65536];
        while let Ok(read @ 1..) = self.read(&mut buffer) {
            rest.extend_from_slice(&buffer[..read]);
        }
        rest
    }

    /// Reads again after an interruption: a stopped and continued process interrupts a read with a
    /// timeout (signal(7)).
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
            if let Some(position) = done(&self.received) {
                return position;
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

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}
