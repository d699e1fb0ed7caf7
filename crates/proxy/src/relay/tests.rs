//! Sending of bodies in pieces, to a real socket.

use std::future::poll_fn;
use std::io::Read;
use std::os::unix::net::UnixStream;

use rt::cores::block_on;
use rt::socket::SocketFamily;

use super::*;

/// Sends pieces behind a head to a peer. Returns the number of writes, and what the peer has received.
fn send(head: &[u8], pieces: &[Vec<u8>]) -> (usize, Vec<u8>) {
    let (mut peer, own) = UnixStream::pair().unwrap();
    own.set_nonblocking(true).unwrap();
    let total: usize = pieces.iter().map(Vec::len).sum();
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        received
    });
    let writes = block_on(async {
        let mut stream = Stream::from_fd(own.into(), SocketFamily::Unix).unwrap();
        let mut relay = Relay::new();
        relay.begin(Framing::Length(total as u64), ClientFraming::Length, &Limits::default());
        relay.head_buffer().extend_from_slice(head);
        let (mut writes, mut taken, mut sent) = (0, 0, 0);
        while !relay.is_done() {
            let mut skipped = taken;
            let rest = pieces.iter().map(|piece| {
                let start = skipped.min(piece.len());
                skipped -= start;
                &piece[start..]
            });
            let rest: Vec<_> = rest.filter(|piece| !piece.is_empty()).collect();
            let rest = || rest.iter().copied();
            taken += poll_fn(|cx| relay.poll_send_pieces(cx, &mut stream, rest(), &mut sent)).await.unwrap();
            writes += 1;
            assert!(relay.unsent_bytes() <= head.len() as u64, "the rest of a piece is not kept");
        }
        assert_eq!((taken, sent), (total, (head.len() + total) as u64));
        assert_eq!(relay.content_bytes, total as u64);
        writes
    });
    (writes, reader.join().unwrap())
}

#[test]
fn pieces_go_out_in_one_write_behind_their_head() {
    let pieces: Vec<_> = (0..PIECES_MAX as u8).map(|number| vec![number; 5_000]).collect();
    for head in [&b"head"[..], b""] {
        let (writes, received) = send(head, &pieces);
        assert_eq!(writes, 1);
        assert!(received == [head, &pieces.concat()].concat());
    }
    // Beyond the maximum they wait for the next write.
    let pieces: Vec<_> = (0..=PIECES_MAX as u8).map(|number| vec![number; 100]).collect();
    assert_eq!(send(b"head", &pieces), (2, [b"head", &pieces.concat()[..]].concat()));
}

#[test]
fn what_a_slow_peer_does_not_take_is_sent_again() {
    // More than the socket holds.
    let pieces: Vec<_> = (0..7_u8).map(|number| vec![number; 300_000 + usize::from(number)]).collect();
    let (writes, received) = send(&[b'h'; 1_000], &pieces);
    assert!(writes > 1);
    assert!(received == [&[b'h'; 1_000][..], &pieces.concat()].concat());
}
