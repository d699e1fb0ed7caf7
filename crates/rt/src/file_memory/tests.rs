use std::future::poll_fn;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::task::Poll;

use crate::cores::block_on;
use crate::socket::SocketFamily;
use crate::stream::Stream;

use super::*;

const MIB: usize = 1 << 20;

fn memory(bytes: usize) -> Arc<FileMemory> {
    FileMemory::create("test", bytes).unwrap()
}

fn store(memory: &Arc<FileMemory>, byte: u8, bytes: usize) -> Option<FileExtent> {
    memory.store(std::iter::once(&*vec![byte; bytes]))
}

#[test]
fn extents_have_their_bytes() {
    let memory = memory(1 << 40);
    let (first, second) = (store(&memory, 1, 5_000).unwrap(), store(&memory, 2, 1).unwrap());
    assert!(*first == [1; 5_000] && *second == [2]);
    let joined = memory.store([&b"abc"[..], b"", b"de"].into_iter()).unwrap();
    assert_eq!(&*joined, b"abcde");
    assert_eq!((first.memory_bytes(), joined.memory_bytes()), (2 * memory.page_bytes, memory.page_bytes));
    // A range is used again, and the pages of the other extents are untouched.
    let offset = first.file_offset().1;
    drop(first);
    let third = store(&memory, 3, 5_001).unwrap();
    assert_eq!(third.file_offset().1, offset);
    assert!(*third == [3; 5_001] && *second == [2] && *joined == *b"abcde");
    assert!(memory.store(std::iter::empty()).is_none());
}

#[test]
fn freed_pages_are_no_memory() {
    let memory = memory(1 << 40);
    let blocks = || rustix::fs::fstat(&memory.file).unwrap().st_blocks;
    assert_eq!(blocks(), 0);
    let extents: Vec<_> = (0..4).map(|byte| store(&memory, byte, MIB).unwrap()).collect();
    assert_eq!(blocks(), 4 * MIB as i64 / 512);
    drop(extents);
    assert_eq!(blocks(), 0);
    assert_eq!(memory.free.lock().unwrap().lengths.len(), 1, "all is one range again");
}

#[test]
fn a_full_file_stores_nothing() {
    let memory = memory(4 * MIB);
    let extents: Vec<_> = (0..4).map(|byte| store(&memory, byte, MIB).unwrap()).collect();
    assert!(store(&memory, 9, 1).is_none());
    assert!(extents.iter().zip(0..).all(|(extent, byte)| extent.iter().all(|other| *other == byte)));
    drop(extents);
    assert!(store(&memory, 9, 4 * MIB).is_some());
}

#[test]
fn ranges_are_joined_and_the_shortest_is_taken() {
    let mut ranges = FreeRanges::new(100);
    assert_eq!([10, 20, 30].map(|bytes| ranges.take(bytes)), [Some(0), Some(10), Some(30)]);
    ranges.put(10, 20);
    assert_eq!(ranges.take(40), Some(60));
    assert_eq!(ranges.take(21), None);
    assert_eq!(ranges.take(5), Some(10));
    ranges.put(60, 40);
    ranges.put(0, 10);
    ranges.put(10, 5);
    ranges.put(30, 30);
    assert_eq!((ranges.lengths.len(), ranges.by_length.len(), ranges.take(100)), (1, 1, Some(0)));
}

/// Sends extents to a peer that reads nothing before all of them are freed and their ranges have other bytes.
#[test]
fn a_queue_of_a_socket_keeps_the_bytes_of_an_extent_that_is_freed_and_used_again() {
    const EXTENT: usize = 100_000;
    let memory = memory(8 * MIB);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (own, _) = listener.accept().unwrap();
    own.set_nonblocking(true).unwrap();
    let mut sent = Vec::new();
    block_on(async {
        let mut stream = Stream::from_fd(own.into(), SocketFamily::Tcp).unwrap();
        for byte in 1..=4_u8 {
            let extent = store(&memory, byte, EXTENT).unwrap();
            let (file, offset) = extent.file_offset();
            // The socket takes as much as it holds. The first bytes are waited for, and no others: the peer reads nothing.
            let taken = poll_fn(|cx| match stream.poll_send_file(cx, file, offset, EXTENT) {
                Poll::Pending if byte > 1 => Poll::Ready(0),
                taken => taken.map(Result::unwrap),
            });
            let taken = taken.await;
            sent.extend(std::iter::repeat_n(byte, taken));
            drop(extent);
            for _ in 0..3 {
                // The same range.
                let other = store(&memory, 200 + byte, EXTENT).unwrap();
                assert_eq!(other.file_offset().1, 0);
                assert!(other.iter().all(|other| *other == 200 + byte));
            }
        }
        let whole = store(&memory, 99, 8 * MIB).unwrap();
        assert!(whole.iter().all(|byte| *byte == 99));
    });
    assert!(sent.len() > EXTENT, "the socket holds more than what one write copies: {}", sent.len());
    let mut received = Vec::new();
    peer.read_to_end(&mut received).unwrap();
    assert!(received == sent);
}
