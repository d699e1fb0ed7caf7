//! Reference program for comparisons, not a product: an origin that takes a fixed time per request.
//! It counts its concurrent requests, and the responses whose client had left.
//!
//! `capped ADDR DELAY_MS` responds to every GET after the delay, however many there are. `GET
//! /stats` returns the maximum concurrency, the finished requests and those whose client had left,
//! and resets the counts.

use std::cell::Cell;
use std::error::Error;
use std::io::Write;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rt::accept::{AcceptEvent, accept_forever};
use rt::address::Address;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::conn_balancer::ConnectionBalancer;
use rt::listen::BoundAddress;
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio::task::spawn_local;

/// Counts since the last `GET /stats`.
#[derive(Default)]
struct RequestCounts {
    in_flight: Cell<u64>,
    max_in_flight: Cell<u64>,
    finished: Cell<u64>,
    abandoned: Cell<u64>,
}

const HEAD_BYTES_MAX: usize = 16 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: capped ADDR DELAY_MS";
    let address: Address = arguments.next().ok_or(usage)?.parse()?;
    let delay_ns = arguments.next().ok_or(usage)?.parse::<u64>()? * MILLISECOND_NS;
    rt::cores::block_on(async move {
        let mut bound = BoundAddress::new(&address, 1)?;
        println!("listening on {}", bound.address());
        std::io::stdout().flush()?;
        let (balancer, _inboxes) = ConnectionBalancer::new(1)?;
        let timers = Rc::new(Timers::start()?);
        let counts = Rc::new(RequestCounts::default());
        let listener = bound.take_listener(0, 0).ok_or("no socket")?;
        let handle = |accepted| {
            if let AcceptEvent::Connection(connection) = accepted
                && let Ok(stream) = Stream::from_fd(connection.fd, connection.family)
            {
                let serving = serve(stream, delay_ns, Rc::clone(&timers), Rc::clone(&counts));
                spawn_local(serving);
            }
        };
        Ok(accept_forever(listener, &balancer, 0, &timers, handle).await?)
    })
}

async fn serve(mut stream: Stream, delay_ns: u64, timers: Rc<Timers>, counts: Rc<RequestCounts>) {
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
            counts.take_json()
        } else {
            counts.in_flight.set(counts.in_flight.get() + 1);
            counts.max_in_flight.set(counts.max_in_flight.get().max(counts.in_flight.get()));
            timers.sleep_until(now_ns() + delay_ns).await;
            counts.in_flight.set(counts.in_flight.get() - 1);
            counts.finished.set(counts.finished.get() + 1);
            counts.abandoned.set(counts.abandoned.get() + u64::from(is_peer_closed(&mut stream)));
            "done\n".to_owned()
        };
        head.clear();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let mut sent = 0;
        while sent < response.len() {
            let rest = &response.as_bytes()[sent..];
            match std::future::poll_fn(|cx| stream.poll_write(cx, rest)).await {
                Ok(written) if written > 0 => sent += written,
                _ => return,
            }
        }
    }
}

/// Returns true if the peer has ended its connection.
fn is_peer_closed(stream: &mut Stream) -> bool {
    matches!(stream.poll_peek(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(0) | Err(_)))
}

impl RequestCounts {
    fn take_json(&self) -> String {
        let (max_in_flight, finished) = (self.max_in_flight.take(), self.finished.take());
        let abandoned = self.abandoned.take();
        format!("{{\"max_in_flight\":{max_in_flight},\"finished\":{finished},\"abandoned\":{abandoned}}}\n")
    }
}
