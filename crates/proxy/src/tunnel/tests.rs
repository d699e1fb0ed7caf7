//! Tunnels between real sockets, with blocking peers in their own threads.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::spawn;
use std::time::Duration;

use rt::buffers::PooledBuffer;
use rt::cores::block_on;
use rt::socket::SocketFamily;

use super::*;

const SCRATCH_BYTES: usize = 64 * 1024;

/// A peer's end of a connection.
trait PeerEnd: Read + Write + Send + 'static {
    fn shutdown_write(&self);
}

impl PeerEnd for TcpStream {
    fn shutdown_write(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl PeerEnd for UnixStream {
    fn shutdown_write(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// The tunnel's end of a connection.
struct TunnelSide(OwnedFd, SocketFamily);

fn tcp() -> (TcpStream, TunnelSide) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (tunnel_side, _) = listener.accept().unwrap();
    tunnel_side.set_nonblocking(true).unwrap();
    peer_end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (peer_end, TunnelSide(tunnel_side.into(), SocketFamily::Tcp))
}

fn unix() -> (UnixStream, TunnelSide) {
    let (peer_end, tunnel_side) = UnixStream::pair().unwrap();
    tunnel_side.set_nonblocking(true).unwrap();
    peer_end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (peer_end, TunnelSide(tunnel_side.into(), SocketFamily::Unix))
}

/// A core's resources for tunnels.
struct TunnelCore {
    pipes: PipePool,
    buffers: BufferPool,
}

impl TunnelCore {
    fn new(pipes_max: usize, buffers_max: usize) -> Self {
        let (pipes, buffers) =
            (PipePool::new(PIPE_BYTES, pipes_max), BufferPool::new(SCRATCH_BYTES, buffers_max));
        Self { pipes, buffers }
    }

    /// Runs `tunnel` to its end; calls `observe` after each poll.
    fn run_with(
        &self,
        tunnel: &mut Tunnel,
        client: TunnelSide,
        server: TunnelSide,
        mut observe: impl FnMut(&mut Tunnel),
    ) -> TunnelEnd {
        let mut scratch = vec![0; SCRATCH_BYTES];
        let end = block_on(async {
            let mut client = Stream::from_fd(client.0, client.1).unwrap();
            let mut server = Stream::from_fd(server.0, server.1).unwrap();
            poll_fn(|cx| {
                let (pipes, buffers) = (&self.pipes, &self.buffers);
                let mut resources = TunnelResources { scratch: &mut scratch, pipes, buffers };
                let polled = tunnel.poll(cx, &mut client, &mut server, &mut resources);
                observe(tunnel);
                polled
            })
            .await
        });
        assert_eq!((self.pipes.in_use(), self.buffers.in_use()), (0, 0), "all is given back");
        end
    }

    fn run(&self, client: TunnelSide, server: TunnelSide) -> (TunnelEnd, Tunnel) {
        let mut tunnel = Tunnel::new(PooledBuffer::default(), PooledBuffer::default());
        let end = self.run_with(&mut tunnel, client, server, |_| {});
        (end, tunnel)
    }

    /// Returns a pooled buffer that contains `bytes`.
    fn buffer_with(&self, bytes: &[u8]) -> PooledBuffer {
        self.buffers.take_filled(&[bytes]).unwrap()
    }
}

fn byte_counts(bytes: usize) -> ByteCounts {
    ByteCounts { received: bytes as u64, sent: bytes as u64 }
}

/// Returns bytes whose order can be checked.
fn pattern(salt: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| ((index + salt) % 251) as u8).collect()
}

fn read_all(peer_end: &mut impl Read) -> Vec<u8> {
    let mut received = Vec::new();
    peer_end.read_to_end(&mut received).unwrap();
    received
}

#[test]
fn small_messages_are_copied_both_ways_and_the_first_to_close_is_known() {
    let core = TunnelCore::new(4, 4);
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
            let mut received = [0; 100];
            client.read_exact(&mut received).unwrap();
            assert_eq!(received.as_slice(), sent);
        }
    });
    let (end, tunnel) = core.run(client_near, server_near);
    talk.join().unwrap();
    echo.join().unwrap();
    assert_eq!(end, TunnelEnd { first_to_end: Side::Client, result: TunnelResult::Finished });
    assert_eq!((tunnel.up(), tunnel.down()), (byte_counts(20_000), byte_counts(20_000)));
    assert_eq!(core.pipes.free_count(), 0, "no pipe was ever made");
}

#[test]
fn bytes_read_before_the_tunnel_come_first() {
    let core = TunnelCore::new(4, 4);
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), unix());
    client.write_all(b" more").unwrap();
    server.write_all(b" response").unwrap();
    client.shutdown_write();
    server.shutdown_write();
    let mut tunnel = Tunnel::new(core.buffer_with(b"early"), core.buffer_with(b"101"));
    let end = core.run_with(&mut tunnel, client_near, server_near, |_| {});
    assert_eq!(end.result, TunnelResult::Finished);
    assert_eq!(read_all(&mut server), b"early more");
    assert_eq!(read_all(&mut client), b"101 response");
    assert_eq!(tunnel.up(), ByteCounts { received: 5, sent: 10 });
    assert_eq!(tunnel.down(), ByteCounts { received: 9, sent: 12 });
}

fn bulk_both_ways(
    core: &TunnelCore,
    client: (impl PeerEnd, TunnelSide),
    server: (impl PeerEnd, TunnelSide),
) -> Tunnel {
    const BYTES: usize = 6_000_000;
    let ((client, client_near), (server, server_near)) = (client, server);
    // Each side writes and reads at the same time, so it needs its socket twice.
    let exchange_bulk = |mut peer_end: Box<dyn PeerEnd>, sent_salt: usize, expected_salt: usize| {
        spawn(move || {
            let (sent, expected) = (pattern(sent_salt, BYTES), pattern(expected_salt, BYTES));
            let mut received = vec![0; BYTES];
            // In pieces, so that neither side waits forever for the other to read.
            for (sent, received) in sent.chunks(100_000).zip(received.chunks_mut(100_000)) {
                peer_end.write_all(sent).unwrap();
                peer_end.read_exact(received).unwrap();
            }
            peer_end.shutdown_write();
            assert!(read_all(&mut peer_end).is_empty());
            assert!(received == expected);
        })
    };
    let client = exchange_bulk(Box::new(client), 1, 2);
    let server = exchange_bulk(Box::new(server), 2, 1);
    let (end, tunnel) = core.run(client_near, server_near);
    client.join().unwrap();
    server.join().unwrap();
    assert_eq!(end.result, TunnelResult::Finished);
    assert_eq!((tunnel.up(), tunnel.down()), (byte_counts(BYTES), byte_counts(BYTES)));
    tunnel
}

impl PeerEnd for Box<dyn PeerEnd> {
    fn shutdown_write(&self) {
        (**self).shutdown_write();
    }
}

#[test]
fn bulk_arrives_in_order_between_all_kinds_of_sockets() {
    let core = TunnelCore::new(4, 4);
    bulk_both_ways(&core, tcp(), tcp());
    bulk_both_ways(&core, tcp(), unix());
    bulk_both_ways(&core, unix(), tcp());
    bulk_both_ways(&core, unix(), unix());
}

/// One side sends `bytes`, the other reads them after `delay`.
fn one_way(core: &TunnelCore, bytes: usize, delay: Duration) -> (TunnelEnd, bool) {
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
    let writer = spawn(move || {
        server.write_all(&pattern(0, bytes)).unwrap();
        server.shutdown_write();
        assert!(read_all(&mut server).is_empty());
    });
    let reader = spawn(move || {
        std::thread::sleep(delay);
        assert!(read_all(&mut client) == pattern(0, bytes));
    });
    let mut spliced = false;
    let mut tunnel = Tunnel::new(PooledBuffer::default(), PooledBuffer::default());
    let end = core.run_with(&mut tunnel, client_near, server_near, |tunnel| {
        spliced |= tunnel.down.splicing;
        let ByteCounts { received, sent } = tunnel.down();
        assert!(received - sent <= FILL_BYTES_MAX as u64, "it reads no more than it can deliver");
    });
    writer.join().unwrap();
    reader.join().unwrap();
    assert_eq!(tunnel.down(), byte_counts(bytes));
    (end, spliced)
}

#[test]
fn bulk_is_spliced_and_pipes_are_used_again() {
    let core = TunnelCore::new(4, 4);
    for _ in 0..3 {
        let (end, spliced) = one_way(&core, 30_000_000, Duration::ZERO);
        assert_eq!(end, TunnelEnd { first_to_end: Side::Server, result: TunnelResult::Finished });
        assert!(spliced);
    }
    assert!((1..=2).contains(&core.pipes.free_count()), "{}", core.pipes.free_count());
}

#[test]
fn a_slow_reader_holds_the_writer_back_and_gets_everything() {
    let core = TunnelCore::new(4, 4);
    let (end, _) = one_way(&core, 30_000_000, Duration::from_millis(200));
    assert_eq!(end.result, TunnelResult::Finished);
}

#[test]
fn without_pipes_everything_is_copied() {
    let core = TunnelCore::new(0, 4);
    let (end, _) = one_way(&core, 10_000_000, Duration::from_millis(50));
    assert_eq!(end.result, TunnelResult::Finished);
    assert!(core.pipes.exhausted_count() > 0);
}

#[test]
fn without_a_buffer_the_tunnel_ends_and_says_so() {
    let core = TunnelCore::new(0, 0);
    let ((client, client_near), (mut server, server_near)) = (tcp(), tcp());
    // Fails once the tunnel has ended.
    let writer = spawn(move || server.write_all(&pattern(0, 50_000_000)).is_err());
    let (end, tunnel) = core.run(client_near, server_near);
    assert_eq!(end.result, TunnelResult::NoBuffer);
    assert!(tunnel.down().received > tunnel.down().sent);
    assert!(writer.join().unwrap());
    drop(client);
}

#[test]
fn one_side_may_end_and_still_get_a_response() {
    for response_bytes in [10, 5_000_000] {
        let core = TunnelCore::new(4, 4);
        let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
        let responder = spawn(move || {
            assert_eq!(read_all(&mut server), b"all of it");
            server.write_all(&pattern(3, response_bytes)).unwrap();
        });
        let requester = spawn(move || {
            client.write_all(b"all of it").unwrap();
            client.shutdown_write();
            assert!(read_all(&mut client) == pattern(3, response_bytes));
        });
        let (end, tunnel) = core.run(client_near, server_near);
        requester.join().unwrap();
        responder.join().unwrap();
        assert_eq!(end, TunnelEnd { first_to_end: Side::Client, result: TunnelResult::Finished });
        assert_eq!(tunnel.first_to_end(), Some(Side::Client));
    }
}

#[test]
fn a_reset_is_reported_with_its_side_and_earlier_bytes_are_delivered() {
    let core = TunnelCore::new(4, 4);
    let ((client, client_near), (mut server, server_near)) = (tcp(), tcp());
    server.write_all(b"last words").unwrap();
    // A close with unread bytes resets (RFC 9293, 3.10.4), and so does the write after it.
    (&client).write_all(b"never read").unwrap();
    let mut closed = false;
    let mut server = Some(server);
    let mut tunnel = Tunnel::new(PooledBuffer::default(), PooledBuffer::default());
    let end = core.run_with(&mut tunnel, client_near, server_near, |tunnel| {
        if tunnel.up().sent > 0 && tunnel.down().sent > 0 && !closed {
            closed = true;
            server = None;
        }
    });
    assert_eq!(
        end,
        TunnelEnd {
            first_to_end: Side::Server,
            result: TunnelResult::Failed(Side::Server, io::ErrorKind::ConnectionReset)
        }
    );
    let mut received = [0; 10];
    (&client).read_exact(&mut received).unwrap();
    assert_eq!(&received, b"last words");
    assert_eq!(tunnel.down(), byte_counts(10));
}

#[test]
fn a_client_that_leaves_midway_is_distinguished_from_a_server_that_does() {
    let core = TunnelCore::new(4, 4);
    let ((mut client, client_near), (mut server, server_near)) = (tcp(), tcp());
    let writer = spawn(move || while server.write_all(&[1; 65536]).is_ok() {});
    let leaver = spawn(move || {
        client.read_exact(&mut [0; 1000]).unwrap();
        drop(client);
    });
    let (end, _) = core.run(client_near, server_near);
    assert_eq!(end.first_to_end, Side::Client);
    assert!(matches!(end.result, TunnelResult::Failed(Side::Client, _)), "{end:?}");
    leaver.join().unwrap();
    writer.join().unwrap();
}

#[test]
fn progress_is_reported_once_and_little_after_much_is_copied_again() {
    let core = TunnelCore::new(4, 4);
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
    let mut previous_counts = ByteCounts::default();
    let (mut spliced, mut idle_polls) = (false, 0);
    let mut tunnel = Tunnel::new(PooledBuffer::default(), PooledBuffer::default());
    core.run_with(&mut tunnel, client_near, server_near, |tunnel| {
        let counts = ByteCounts {
            received: tunnel.up().received + tunnel.down().received,
            sent: tunnel.up().sent + tunnel.down().sent,
        };
        assert_eq!(std::mem::take(&mut tunnel.has_progress), counts != previous_counts);
        idle_polls += u32::from(counts == previous_counts);
        previous_counts = counts;
        spliced |= tunnel.down.splicing;
    });
    reader.join().unwrap();
    writer.join().unwrap();
    assert!(spliced && !tunnel.down.splicing);
    assert!(idle_polls > 0, "the first poll found nothing");
}

#[test]
fn any_number_of_full_reads_is_counted_where_nothing_can_be_spliced() {
    let mut transfer = Transfer::new(PooledBuffer::default());
    (0..1_000).for_each(|_| transfer.count_streak(true));
    assert_eq!(transfer.streak, u8::MAX);
    transfer.count_streak(false);
    assert_eq!(transfer.streak, 0);
}
