//! Tests of channels: as a socket, in place, and many at one queue.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::cores::block_on;
use crate::stream::Stream;

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn counting_waker() -> (Arc<CountingWaker>, Waker) {
    let counter = Arc::new(CountingWaker::default());
    (Arc::clone(&counter), Waker::from(counter))
}

fn open(bytes_max: usize) -> (ChannelBuffers, Stream, ChannelEnd) {
    let buffers = ChannelBuffers::new();
    let (near, far) = buffers.open(bytes_max, ChannelAddresses::default());
    (buffers, Stream::Channel(near), far)
}

#[test]
fn bytes_arrive_in_order_and_the_end_behind_them() {
    let buffers = ChannelBuffers::new();
    let (near, far) = buffers.open(100, ChannelAddresses::default());
    let (mut near, mut far) = (Stream::Channel(near), Stream::Channel(far));
    let sent: Vec<u8> = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
    let received = block_on(async {
        let sending = async {
            near.send(&sent).await.unwrap();
            near.shutdown(Shutdown::Write).unwrap();
        };
        let receiving = async {
            let (mut received, mut buffer) = (Vec::new(), [0; 77]);
            loop {
                let read = far.read(&mut buffer).await.unwrap();
                if read == 0 {
                    return received;
                }
                received.extend_from_slice(&buffer[..read]);
            }
        };
        tokio::join!(sending, receiving).1
    });
    assert_eq!(received, sent);
    assert_eq!(buffers.in_use(), 0);
    // The other direction is still open.
    block_on(async {
        far.send(b"back").await.unwrap();
        let mut buffer = [0; 8];
        assert_eq!(near.read(&mut buffer).await.unwrap(), 4);
    });
}

#[test]
fn a_full_channel_accepts_nothing_until_most_of_it_is_read() {
    let (_, mut near, far) = open(100);
    let (counter, waker) = counting_waker();
    let mut cx = Context::from_waker(&waker);
    // A write is not split.
    assert!(matches!(near.poll_write(&mut cx, &[7; 150]), Poll::Ready(Ok(150))));
    assert_eq!(near.unacked_bytes(), Some(150));
    assert!(near.poll_write(&mut cx, &[7; 50]).is_pending());
    far.consume(100);
    assert_eq!(counter.0.load(Ordering::Relaxed), 0, "half of the space is not worth a wake-up");
    far.consume(30);
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    assert!(matches!(near.poll_write(&mut cx, &[7; 50]), Poll::Ready(Ok(50))));
    assert_eq!(far.received().len(), 70);
}

#[test]
fn an_end_in_place_reads_and_writes_without_copies() {
    let (buffers, mut near, far) = open(1_000);
    far.write_with(5, |out| out.extend_from_slice(b"hello"));
    assert_eq!((far.free_bytes(), far.unread_bytes()), (995, 5));
    assert!(near.has_unread() && !near.is_idle());
    let (_, waker) = counting_waker();
    let mut cx = Context::from_waker(&waker);
    let mut buffer = [0; 16];
    assert!(matches!(near.poll_peek(&mut cx), Poll::Ready(Ok(1))));
    assert!(matches!(near.poll_read(&mut cx, &mut buffer), Poll::Ready(Ok(5))));
    assert!(near.is_idle() && buffers.in_use() == 0);
    let slices = [IoSlice::new(b"an"), IoSlice::new(b"swer")];
    assert!(matches!(near.poll_write_vectored(&mut cx, &slices), Poll::Ready(Ok(6))));
    assert_eq!(&*far.received(), b"answer");
    far.consume(2);
    assert_eq!(&*far.received(), b"swer");
    assert_eq!(far.receive_state(), ReceiveState::Open);
    drop(near);
    assert_eq!(&*far.received(), b"swer");
    assert_eq!(far.receive_state(), ReceiveState::Ended);
    assert!(far.is_refused() && far.free_bytes() == 0);
    // Bytes that nobody reads hold no buffer.
    far.write_with(1, |out| out.push(1));
    far.consume(4);
    assert_eq!(buffers.in_use(), 0);
}

#[test]
fn a_reset_is_an_error_for_the_other_end() {
    let (_, mut near, far) = open(100);
    let (counter, waker) = counting_waker();
    let mut cx = Context::from_waker(&waker);
    assert!(near.poll_read(&mut cx, &mut [0; 8]).is_pending());
    far.reset();
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Err(error)) = near.poll_read(&mut cx, &mut [0; 8]) else { panic!() };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    let Poll::Ready(Err(error)) = near.poll_write(&mut cx, b"x") else { panic!() };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    let (_, mut near, far) = open(100);
    near.reset_on_close().unwrap();
    assert_eq!((far.receive_state(), far.reset_code()), (ReceiveState::Open, None));
    let Stream::Channel(end) = &near else { panic!() };
    end.set_reset_code(8);
    drop(near);
    assert_eq!((far.receive_state(), far.reset_code()), (ReceiveState::Reset, Some(8)));
}

#[test]
fn a_dropped_task_is_not_kept_alive_by_its_waker() {
    let (_, mut near, far) = open(100);
    let (counter, waker) = counting_waker();
    assert!(near.poll_read(&mut Context::from_waker(&waker), &mut [0; 8]).is_pending());
    drop(waker);
    assert_eq!(Arc::strong_count(&counter), 2);
    drop(near);
    assert_eq!(Arc::strong_count(&counter), 1);
    drop(far);
}

#[test]
fn a_queue_lists_each_end_once_and_wakes_once() {
    let (buffers, queue) = (ChannelBuffers::new(), ReadyQueue::new());
    let (counter, waker) = counting_waker();
    queue.register_waker(&waker);
    let (mut nears, fars): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| buffers.open(100, ChannelAddresses::default()))
        .map(|(a, b)| (Stream::Channel(a), b))
        .unzip();
    fars.iter().zip(0..).for_each(|(far, number)| far.register(&queue, number));
    let mut cx = Context::from_waker(Waker::noop());
    for index in [2, 0, 2] {
        assert!(nears[index].poll_write(&mut cx, b"x").is_ready());
    }
    assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(2), Some(0), None));
    // Space is news only on request.
    fars[1].write_with(10, |out| out.resize(10, 1));
    assert!(matches!(nears[1].poll_read(&mut cx, &mut [0; 4]), Poll::Ready(Ok(4))));
    assert!(queue.is_empty());
    fars[1].notify_on_space();
    assert!(matches!(nears[1].poll_read(&mut cx, &mut [0; 1]), Poll::Ready(Ok(1))));
    assert_eq!((queue.len(), queue.pop()), (1, Some(1)));
    nears.clear();
    assert_eq!(queue.len(), 3);
    queue.shrink();
    assert_eq!(queue.len(), 3);
}

#[test]
fn buffers_are_used_again() {
    let (buffers, mut near, far) = open(CHANNEL_BYTES);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        assert!(matches!(near.poll_write(&mut cx, &[1; 50_000]), Poll::Ready(Ok(50_000))));
        assert_eq!(buffers.in_use(), 1);
        far.consume(50_000);
        assert_eq!(buffers.in_use(), 0);
    }
    assert_eq!(buffers.free_count(), 1);
    near.poll_write(&mut cx, b"unread").is_ready().then_some(()).unwrap();
    drop((near, far));
    assert_eq!(buffers.in_use(), 0);
}
