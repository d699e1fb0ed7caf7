//! Tunnels between real sockets, with blocking peers in threads of their own.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::spawn;
use std::time::Duration;

use rt::buffers::Lent;
use rt::cores::block_on;
use rt::stream::Family;

use super::*;

const BENCH_BYTES: usize = 64 * 1024;

/// A peer's end of a connection.
trait Far: Read + Write + Send + 'static {
    fn end(&self);
}

impl Far for TcpStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Far for UnixStream {
    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// The tunnel's end of one.
struct Near(OwnedFd, Family);

fn tcp() -> (TcpStream, Near) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (far, Near(near.into(), Family::Tcp))
}

fn unix() -> (UnixStream, Near) {
    let (far, near) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (far, Near(near.into(), Family::Unix))
}

/// What a core has for tunnels.
struct Core {
    pipes: Pipes,
    buffers: Buffers,
}

impl Core {
    fn new(pipes_max: usize, buffers_max: usize) -> Self {
        let (pipes, buffers) =
            (Pipes::new(PIPE_BYTES, pipes_max), Buffers::new(BENCH_BYTES, buffers_max));
        Self { pipes, buffers }
    }

    /// Runs `tunnel` to its end; `look` sees it after each poll.
    fn run_with(
        &self,
        tunnel: &mut Tunnel,
        client: Near,
        server: Near,
        mut look: impl FnMut(&mut Tunnel),
    ) -> TunnelEnd {
        let mut bench = vec![0; BENCH_BYTES];
        let end = block_on(async {
            let mut client = Stream::from_fd(client.0, client.1).unwrap();
            let mut server = Stream::from_fd(server.0, server.1).unwrap();
            poll_fn(|cx| {
                let (pipes, buffers) = (&self.pipes, &self.buffers);
                let mut tools = Tools { bench: &mut bench, pipes, buffers };
                let polled = tunnel.poll(cx, &mut client, &mut server, &mut tools);
                look(tunnel);
                polled
            })
            .await
        });
        assert_eq!((self.pipes.lent(), self.buffers.lent()), (0, 0), "all is given back");
        end
    }

    fn run(&self, client: Near, server: Near) -> (TunnelEnd, Tunnel) {
        let mut tunnel = Tunnel::new(Lent::default(), Lent::default());
        let end = self.run_with(&mut tunnel, client, server, |_| {});
        (end, tunnel)
    }

    /// A pooled buffer with `bytes` in it.
    fn leftover(&self, bytes: &[u8]) -> Lent {
        self.buffers.lend(&[bytes]).unwrap()
    }
}

fn carried(bytes: usize) -> Carried {
    Carried { received: bytes as u64, sent: bytes as u64 }
}

/// Bytes whose order can be checked.
fn pattern(salt: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| ((index + salt) % 251) as u8).collect()
}

fn read_all(far: &mut impl Read) -> Vec<u8> {
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    got
}

#[test]
fn small_messages_are_copied_both_ways_and_the_first_to_close_is_known() {
    let core = Core::new(4, 4);
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
    let echo = spawn(move || {
        let mut message = [0; 100];
        while server.read_exact(&mut message).is_ok() {
            server.write_all(&message).unwrap();
        }
    });
    let talk = spawn(move || {
        for round in 0..200 {
            let sent = pattern(round, 100);
            client.write_all(&sent).unwrap();
            let mut got = [0; 100];
            client.read_exact(&mut got).unwrap();
            assert_eq!(got.as_slice(), sent);
        }
    });
    let (end, tunnel) = core.run(client_near, server_near);
    talk.join().unwrap();
    echo.join().unwrap();
    assert_eq!(end, TunnelEnd { first: Side::Client, how: How::Finished });
    assert_eq!((tunnel.up(), tunnel.down()), (carried(20_000), carried(20_000)));
    assert_eq!(core.pipes.free(), 0, "no pipe was ever made");
}

#[test]
fn what_was_read_before_comes_first() {
    let core = Core::new(4, 4);
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), unix());
    client.write_all(b" more").unwrap();
    server.write_all(b" answer").unwrap();
    client.end();
    server.end();
    let mut tunnel = Tunnel::new(core.leftover(b"early"), core.leftover(b"101"));
    let end = core.run_with(&mut tunnel, client_near, server_near, |_| {});
    assert_eq!(end.how, How::Finished);
    assert_eq!(read_all(&mut server), b"early more");
    assert_eq!(read_all(&mut client), b"101 answer");
    assert_eq!(tunnel.up(), Carried { received: 5, sent: 10 });
    assert_eq!(tunnel.down(), Carried { received: 7, sent: 10 });
}

fn bulk_both_ways(core: &Core, client: (impl Far, Near), server: (impl Far, Near)) -> Tunnel {
    const BYTES: usize = 6_000_000;
    let ((client, client_near), (server, server_near)) = (client, server);
    // Each side writes and reads at the same time, so it needs its socket twice.
    let both = |mut far: Box<dyn Far>, out: usize, into: usize| {
        spawn(move || {
            let (sent, expected) = (pattern(out, BYTES), pattern(into, BYTES));
            let mut got = vec![0; BYTES];
            // In pieces, so that neither side waits for ever for the other to read.
            for (sent, got) in sent.chunks(100_000).zip(got.chunks_mut(100_000)) {
                far.write_all(sent).unwrap();
                far.read_exact(got).unwrap();
            }
            far.end();
            assert!(read_all(&mut far).is_empty());
            assert!(got == expected);
        })
    };
    let client = both(Box::new(client), 1, 2);
    let server = both(Box::new(server), 2, 1);
    let (end, tunnel) = core.run(client_near, server_near);
    client.join().unwrap();
    server.join().unwrap();
    assert_eq!(end.how, How::Finished);
    assert_eq!((tunnel.up(), tunnel.down()), (carried(BYTES), carried(BYTES)));
    tunnel
}

impl Far for Box<dyn Far> {
    fn end(&self) {
        (**self).end();
    }
}

#[test]
fn bulk_arrives_in_order_between_all_kinds_of_sockets() {
    let core = Core::new(4, 4);
    bulk_both_ways(&core, tcp(), tcp());
    bulk_both_ways(&core, tcp(), unix());
    bulk_both_ways(&core, unix(), tcp());
    bulk_both_ways(&core, unix(), unix());
}

/// One side sends `bytes`, the other reads them after `wait`.
fn one_way(core: &Core, bytes: usize, wait: Duration) -> (TunnelEnd, bool) {
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
    let writer = spawn(move || {
        server.write_all(&pattern(0, bytes)).unwrap();
        server.end();
        assert!(read_all(&mut server).is_empty());
    });
    let reader = spawn(move || {
        std::thread::sleep(wait);
        assert!(read_all(&mut client) == pattern(0, bytes));
    });
    let mut spliced = false;
    let mut tunnel = Tunnel::new(Lent::default(), Lent::default());
    let end = core.run_with(&mut tunnel, client_near, server_near, |tunnel| {
        spliced |= tunnel.down.splicing;
        let Carried { received, sent } = tunnel.down();
        assert!(received - sent <= FILL_BYTES_MAX as u64, "it reads no more than it can deliver");
    });
    writer.join().unwrap();
    reader.join().unwrap();
    assert_eq!(tunnel.down(), carried(bytes));
    (end, spliced)
}

#[test]
fn bulk_is_spliced_and_pipes_are_used_again() {
    let core = Core::new(4, 4);
    for _ in 0..3 {
        let (end, spliced) = one_way(&core, 30_000_000, Duration::ZERO);
        assert_eq!(end, TunnelEnd { first: Side::Server, how: How::Finished });
        assert!(spliced);
    }
    assert!((1..=2).contains(&core.pipes.free()), "{}", core.pipes.free());
}

#[test]
fn a_slow_reader_holds_the_writer_back_and_gets_everything() {
    let core = Core::new(4, 4);
    let (end, _) = one_way(&core, 30_000_000, Duration::from_millis(200));
    assert_eq!(end.how, How::Finished);
}

#[test]
fn without_pipes_everything_is_copied() {
    let core = Core::new(0, 4);
    let (end, _) = one_way(&core, 10_000_000, Duration::from_millis(50));
    assert_eq!(end.how, How::Finished);
    assert!(core.pipes.refused() > 0);
}

#[test]
fn without_a_buffer_the_tunnel_ends_and_says_so() {
    let core = Core::new(0, 0);
    let ((client, client_near), (mut server, server_near)) = (tcp(), tcp());
    // Fails when the tunnel has gone, as nobody reads.
    let writer = spawn(move || server.write_all(&pattern(0, 50_000_000)).is_err());
    let (end, tunnel) = core.run(client_near, server_near);
    assert_eq!(end.how, How::NoBuffer);
    assert!(tunnel.down().received > tunnel.down().sent);
    assert!(writer.join().unwrap());
    drop(client);
}

#[test]
fn one_side_may_end_and_still_be_answered() {
    for answer_bytes in [10, 5_000_000] {
        let core = Core::new(4, 4);
        let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
        let answer = spawn(move || {
            assert_eq!(read_all(&mut server), b"all of it");
            server.write_all(&pattern(3, answer_bytes)).unwrap();
        });
        let ask = spawn(move || {
            client.write_all(b"all of it").unwrap();
            client.end();
            assert!(read_all(&mut client) == pattern(3, answer_bytes));
        });
        let (end, tunnel) = core.run(client_near, server_near);
        ask.join().unwrap();
        answer.join().unwrap();
        assert_eq!(end, TunnelEnd { first: Side::Client, how: How::Finished });
        assert_eq!(tunnel.ended_first(), Some(Side::Client));
    }
}

#[test]
fn a_reset_is_told_with_its_side_and_what_came_before_is_delivered() {
    let core = Core::new(4, 4);
    let ((client, client_near), (mut server, server_near)) = (tcp(), tcp());
    server.write_all(b"last words").unwrap();
    // A close with unread bytes resets (RFC 9293, 3.10.4), and so does the write after it.
    (&client).write_all(b"never read").unwrap();
    let mut closed = false;
    let mut server = Some(server);
    let mut tunnel = Tunnel::new(Lent::default(), Lent::default());
    let end = core.run_with(&mut tunnel, client_near, server_near, |tunnel| {
        if tunnel.up().sent > 0 && tunnel.down().sent > 0 && !closed {
            closed = true;
            server = None;
        }
    });
    assert_eq!(
        end,
        TunnelEnd {
            first: Side::Server,
            how: How::Failed(Side::Server, io::ErrorKind::ConnectionReset)
        }
    );
    let mut got = [0; 10];
    (&client).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"last words");
    assert_eq!(tunnel.down(), carried(10));
}

#[test]
fn a_client_that_leaves_in_the_middle_is_told_from_a_server_that_does() {
    let core = Core::new(4, 4);
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
    let writer = spawn(move || while server.write_all(&[1; 65536]).is_ok() {});
    let leave = spawn(move || {
        client.read_exact(&mut [0; 1000]).unwrap();
        drop(client);
    });
    let (end, _) = core.run(client_near, server_near);
    assert_eq!(end.first, Side::Client);
    assert!(matches!(end.how, How::Failed(Side::Client, _)), "{end:?}");
    leave.join().unwrap();
    writer.join().unwrap();
}

#[test]
fn progress_is_told_once_and_little_after_much_is_copied_again() {
    let core = Core::new(4, 4);
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
    const BULK: usize = 20_000_000;
    let writer = spawn(move || {
        server.write_all(&vec![0; BULK]).unwrap();
        let mut byte = [0];
        while server.read_exact(&mut byte).is_ok() {
            server.write_all(&byte).unwrap();
        }
    });
    let reader = spawn(move || {
        client.read_exact(&mut vec![0; BULK]).unwrap();
        for round in 0..20 {
            client.write_all(&[round]).unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [round]);
        }
    });
    let mut seen = Carried::default();
    let (mut spliced, mut still) = (false, 0);
    let mut tunnel = Tunnel::new(Lent::default(), Lent::default());
    core.run_with(&mut tunnel, client_near, server_near, |tunnel| {
        let now = Carried {
            received: tunnel.up().received + tunnel.down().received,
            sent: tunnel.up().sent + tunnel.down().sent,
        };
        assert_eq!(tunnel.take_progress(), now != seen);
        assert!(!tunnel.take_progress());
        still += u32::from(now == seen);
        seen = now;
        spliced |= tunnel.down.splicing;
    });
    reader.join().unwrap();
    writer.join().unwrap();
    assert!(spliced && !tunnel.down.splicing);
    assert!(still > 0, "the first poll, at least, found nothing");
}
