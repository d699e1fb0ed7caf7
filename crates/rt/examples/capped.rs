//! A comparison and not a product: an origin that takes a fixed time for each request, and knows how
//! many it had at once and for how many nobody was there any more.
//!
//! `capped ADDR DELAY_MS` answers every GET after so long, however many there are. `GET /stats` tells
//! the most at a time, those finished and those finished for nobody, and begins to count anew.

use std::cell::Cell;
use std::error::Error;
use std::io::Write;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rt::address::Address;
use rt::board::Board;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::listen::{Accepted, Bound};
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio::task::spawn_local;

/// What it has seen since it was asked last.
#[derive(Default)]
struct Counts {
    now: Cell<u64>,
    most: Cell<u64>,
    finished: Cell<u64>,
    wasted: Cell<u64>,
}

const HEAD_BYTES_MAX: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: capped ADDR DELAY_MS";
    let address: Address = arguments.next().ok_or(usage)?.parse()?;
    let delay_ns = arguments.next().ok_or(usage)?.parse::<u64>()? * MILLISECOND_NS;
    rt::cores::block_on(async move {
        let mut bound = Bound::new(&address, 1)?;
        println!("listening on {}", bound.address());
        std::io::stdout().flush()?;
        let (board, _inboxes) = Board::new(1)?;
        let timers = Rc::new(Timers::start()?);
        let counts = Rc::new(Counts::default());
        let listener = bound.take(0, 0).ok_or("no socket")?;
        let handle = |accepted| {
            if let Accepted::Connection(connection) = accepted
                && let Ok(stream) = Stream::from_fd(connection.fd, connection.family)
            {
                let serving = serve(stream, delay_ns, Rc::clone(&timers), Rc::clone(&counts));
                spawn_local(serving);
            }
        };
        Ok(listener.accept(&board, 0, &timers, handle).await?)
    })
}

async fn serve(mut stream: Stream, delay_ns: u64, timers: Rc<Timers>, counts: Rc<Counts>) {
    let mut head = Vec::new();
    let mut buffer = vec![0; HEAD_BYTES_MAX];
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            match std::future::poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await {
                Ok(read) if read > 0 && head.len() < HEAD_BYTES_MAX => {
                    head.extend_from_slice(&buffer[..read]);
                }
                _ => return,
            }
        }
        let body = if head.starts_with(b"GET /stats ") {
            counts.tell()
        } else {
            counts.now.set(counts.now.get() + 1);
            counts.most.set(counts.most.get().max(counts.now.get()));
            timers.sleep_until(now_ns() + delay_ns).await;
            counts.now.set(counts.now.get() - 1);
            counts.finished.set(counts.finished.get() + 1);
            counts.wasted.set(counts.wasted.get() + u64::from(has_left(&stream)));
            "done\n".to_owned()
        };
        head.clear();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut sent = 0;
        while sent < answer.len() {
            let rest = &answer.as_bytes()[sent..];
            match std::future::poll_fn(|cx| stream.poll_write(cx, rest)).await {
                Ok(more) if more > 0 => sent += more,
                _ => return,
            }
        }
    }
}

/// Whether the other side has ended its connection.
fn has_left(stream: &Stream) -> bool {
    matches!(stream.poll_peek(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(0) | Err(_)))
}

impl Counts {
    fn tell(&self) -> String {
        let (most, finished) = (self.most.take(), self.finished.take());
        let wasted = self.wasted.take();
        format!("{{\"most\":{most},\"finished\":{finished},\"wasted\":{wasted}}}\n")
    }
}
