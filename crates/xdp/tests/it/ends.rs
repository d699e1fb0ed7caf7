//! Ends of connections that the stack begins: a half-close, a close and resets, with the TCP of the kernel as the peer.

use super::*;

/// End of a connection by the stack, once it has sent its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It shuts its direction down, and reads until the peer ends the other one.
    HalfClose,
    /// It gives the connection up at once.
    Close,
    /// It gives the connection up with unread bytes.
    CloseWithUnread,
    /// It asks for a reset.
    Reset,
}

fn content(bytes: u32, seed: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(seed) >> 3) as u8).collect()
}

fn request() -> Vec<u8> {
    content(5_000, 31)
}

fn response() -> Vec<u8> {
    content(300_000, 5)
}

/// One connection of the stack.
struct Conversation {
    id: ConnectionId,
    written: usize,
    is_shut: bool,
    received: Vec<u8>,
}

impl Conversation {
    fn new(id: ConnectionId) -> Self {
        Self { id, written: 0, is_shut: false, received: Vec::new() }
    }

    /// Goes on as far as possible; returns whether the connection was given up.
    fn advance(&mut self, stack: &mut Stack<FaultyLink>, ending: Ending, now_ns: u64) -> bool {
        let (id, waker, request) = (self.id, Waker::noop(), request());
        match stack.poll_connected(id, waker) {
            Poll::Pending => return false,
            Poll::Ready(connected) => connected.unwrap(),
        }
        while self.written < request.len()
            && let Poll::Ready(bytes) = stack.poll_write(id, waker, &[IoSlice::new(&request[self.written..])])
        {
            self.written += bytes.unwrap();
        }
        if self.written < request.len() {
            return false;
        }
        let is_sent = stack.unacked_bytes(id) == Some(0);
        let is_over = match ending {
            Ending::HalfClose => self.read_after_shutdown(stack),
            Ending::Close => true,
            Ending::CloseWithUnread => is_sent && stack.has_unread(id),
            Ending::Reset => is_sent,
        };
        if is_over && ending == Ending::Reset {
            stack.reset_on_close(id);
        }
        if is_over {
            stack.close(id, now_ns);
        }
        is_over
    }

    /// Ends the own direction first; returns whether the other one has ended.
    fn read_after_shutdown(&mut self, stack: &mut Stack<FaultyLink>) -> bool {
        if !std::mem::replace(&mut self.is_shut, true) {
            stack.shutdown(self.id, Shutdown::Write).unwrap();
            let after = stack.poll_write(self.id, Waker::noop(), &[IoSlice::new(b"late")]);
            assert!(matches!(after, Poll::Ready(Err(error)) if error.kind() == ErrorKind::BrokenPipe));
        }
        let mut buffer = [0; 8_192];
        loop {
            match stack.poll_read(self.id, Waker::noop(), &mut buffer) {
                Poll::Pending => return false,
                Poll::Ready(read) => match read.unwrap() {
                    0 => break,
                    bytes => self.received.extend_from_slice(&buffer[..bytes]),
                },
            }
        }
        assert!(self.received == response(), "{} bytes", self.received.len());
        true
    }
}

/// Opens one connection to the kernel and accepts one from it, and ends both; returns the counters once nothing is left.
fn run_stack(namespace: &str, faults: Faults, target: SocketAddr, ending: Ending) -> StackCounters {
    enter(namespace);
    let facts = InterfaceFacts::read("x0").unwrap();
    let route = facts.route(target.ip()).unwrap();
    let mut attachments = Attachment::open(&facts, &rules(), &[SocketAddr::new(OURS, 80)]).unwrap();
    let link = FaultyLink::new(attachments.pop().unwrap(), faults);
    let start = instant();
    let now = || start.elapsed().as_nanos() as u64 + 1;
    let mut stack = Stack::new(link, config(&facts), now());
    let first = stack.connect(route.source, target, route.next_hop, now()).unwrap();
    let (mut open, mut ended) = (vec![Conversation::new(first)], 0);
    while ended < 2 || stack.connections() > 0 {
        assert!(start.elapsed() < STEP_TIMEOUT, "{ending:?} {ended}: {:?}", stack.counters());
        stack.handle_timers(now());
        stack.receive(now(), 64);
        open.extend(std::iter::from_fn(|| stack.accept()).map(Conversation::new));
        open.retain_mut(|conversation| {
            let is_over = conversation.advance(&mut stack, ending, now());
            ended += u32::from(is_over);
            !is_over
        });
        stack.flush(now());
        std::thread::sleep(Duration::from_micros(200));
    }
    stack.counters()
}

/// Reads until a connection of the kernel fails; returns what arrived before, and the kind of the error.
fn read_until_error(mut stream: &TcpStream) -> (Vec<u8>, ErrorKind) {
    let (mut received, mut buffer) = (Vec::new(), [0; 8_192]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("an end, and no reset"),
            Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
            Err(error) => return (received, error.kind()),
        }
    }
}

/// Checks what a connection of the kernel sees of the end.
fn check_end(stream: &TcpStream, ending: Ending) {
    stream.set_read_timeout(Some(STEP_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(STEP_TIMEOUT)).unwrap();
    let (mut reader, mut writer) = (stream, stream);
    let read_to_end = |reader: &mut &TcpStream| {
        let mut received = Vec::new();
        reader.read_to_end(&mut received).unwrap();
        assert!(received == request(), "{ending:?}: {} bytes", received.len());
    };
    match ending {
        Ending::HalfClose => {
            // Nothing is sent before the end of the request is there.
            read_to_end(&mut reader);
            writer.write_all(&response()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        }
        Ending::Close => {
            read_to_end(&mut reader);
            let failed = std::iter::from_fn(|| {
                std::thread::sleep(Duration::from_millis(1));
                Some(writer.write(&[1; 100]).err().map(|error| error.kind()))
            });
            let kind = failed.take(10_000).flatten().next();
            let is_reset = |kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
            assert!(kind.is_some_and(is_reset), "{kind:?}");
        }
        Ending::CloseWithUnread | Ending::Reset => {
            if ending == Ending::CloseWithUnread {
                writer.write_all(&[1; 1_000]).unwrap();
            }
            let (received, kind) = read_until_error(stream);
            assert_eq!(kind, ErrorKind::ConnectionReset, "{ending:?}");
            assert!(received == request(), "{ending:?}: {} bytes", received.len());
        }
    }
}

/// Ends a connection in either role. `None`: not permitted.
fn end_both(faults: Faults, ending: Ending) -> Option<StackCounters> {
    let pair = Namespaces::create()?;
    let (target, server) = (SocketAddr::new(KERNELS, 7_777), SocketAddr::new(OURS, 80));
    let (ready, is_listening) = std::sync::mpsc::channel();
    let namespace = pair.kernels.clone();
    let peer = std::thread::spawn(move || {
        enter(&namespace);
        let listener = TcpListener::bind(target).unwrap();
        ready.send(()).unwrap();
        check_end(&accept(&listener), ending);
        check_end(&TcpStream::connect(server).unwrap(), ending);
    });
    is_listening.recv().unwrap();
    let namespace = pair.ours.clone();
    let stack = std::thread::spawn(move || run_stack(&namespace, faults, target, ending));
    peer.join().unwrap();
    let counters = stack.join().unwrap();
    assert_eq!((counters.started, counters.accepted), (1, 1), "{ending:?} {counters:?}");
    assert_eq!((counters.expired, counters.evicted), (0, 0), "{ending:?} {counters:?}");
    Some(counters)
}

#[test]
fn the_stack_ends_its_direction_first_and_gets_every_byte_of_the_other() {
    for lost in [0, 20] {
        let Some(counters) = end_both(Faults { lost, ..Faults::default() }, Ending::HalfClose) else {
            return;
        };
        assert!(lost > 0 || counters.retransmitted == 0, "{counters:?}");
    }
}

#[test]
fn the_kernel_sees_a_close_as_an_end_and_what_it_sends_then_as_a_reset() {
    let _ = end_both(Faults::default(), Ending::Close);
}

#[test]
fn the_kernel_sees_a_reset_and_every_byte_before_it() {
    for ending in [Ending::Reset, Ending::CloseWithUnread] {
        if end_both(Faults::default(), ending).is_none() {
            return;
        }
    }
}
