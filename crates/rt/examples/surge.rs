//! Reference program for comparisons, not a product: clients that arrive at a fixed rate,
//! independent of responses. Each has its own connection and leaves after its timeout.
//!
//! `surge ADDR TIMEOUT_MS RATE:SECONDS,RATE:SECONDS…` prints a line for each request: due time and
//! duration, both in microseconds, and the status of its response (0: the client left; 1: its
//! connection failed). `surge ADDR closed CLIENTS SECONDS` sends requests continuously on kept
//! connections instead, and prints the number of responses per second.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use rt::address::Address;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::dial::connect;
use rt::stream::Stream;
use rt::timers::Timers;
use rt::tokio::select;
use rt::tokio::task::{spawn_local, yield_now};

const SECOND_NS: u64 = 1_000 * MILLISECOND_NS;
/// Number of source addresses, used in turn so that the ports of ended connections do not run out.
const SOURCE_ADDRESSES: u64 = 32;

fn main() -> Result<(), Box<dyn Error>> {
    rt::limits::raise_descriptor_limit();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [address, "closed", clients, seconds] => {
            let (address, clients) = (address.parse()?, clients.parse()?);
            rt::cores::block_on(run_closed_loop(address, clients, seconds.parse()?))
        }
        [address, timeout_ms, phases] => {
            let timeout_ns = timeout_ms.parse::<u64>()? * MILLISECOND_NS;
            let phases = phases.split(',').map(|phase| {
                let (rate, seconds) = phase.split_once(':').ok_or("RATE:SECONDS")?;
                Ok((rate.parse()?, seconds.parse()?))
            });
            let phases = phases.collect::<Result<Vec<(u64, u64)>, Box<dyn Error>>>()?;
            rt::cores::block_on(run_open_loop(address.parse()?, timeout_ns, phases))
        }
        _ => Err("usage: surge ADDR TIMEOUT_MS RATE:SECONDS,… | ADDR closed CLIENTS SECONDS".into()),
    }
}

async fn run_open_loop(
    address: Address,
    timeout_ns: u64,
    phases: Vec<(u64, u64)>,
) -> Result<(), Box<dyn Error>> {
    let timers = Rc::new(Timers::start()?);
    let lines = Rc::new(RefCell::new(String::new()));
    let in_flight = Rc::new(Cell::new(0_u64));
    let start_ns = now_ns() + 100 * MILLISECOND_NS;
    let (mut phase_start_ns, mut request_number) = (start_ns, 0);
    for (rate, seconds) in phases {
        for index in 0..rate * seconds {
            let due_ns = phase_start_ns + index * SECOND_NS / rate;
            if due_ns > now_ns() {
                timers.sleep_until(due_ns).await;
            }
            request_number += 1;
            in_flight.set(in_flight.get() + 1);
            let (address, timers) = (address.clone(), Rc::clone(&timers));
            let (lines, in_flight) = (Rc::clone(&lines), Rc::clone(&in_flight));
            spawn_local(async move {
                let status = select! {
                    status = fetch_status(&address, request_number) => status.unwrap_or(1),
                    () = timers.sleep_until(due_ns + timeout_ns) => 0,
                };
                let (due_us, duration_us) = ((due_ns - start_ns) / 1_000, (now_ns() - due_ns) / 1_000);
                // Writing to a String cannot fail.
                let _ = writeln!(lines.borrow_mut(), "{due_us} {duration_us} {status}");
                in_flight.set(in_flight.get() - 1);
            });
        }
        phase_start_ns += seconds * SECOND_NS;
    }
    while in_flight.get() > 0 {
        timers.sleep_until(now_ns() + 10 * MILLISECOND_NS).await;
    }
    std::io::stdout().write_all(lines.borrow().as_bytes())?;
    Ok(())
}

/// Sends one request and returns the status of its response.
async fn fetch_status(address: &Address, request_number: u64) -> std::io::Result<u16> {
    let source = Ipv4Addr::new(127, 0, 0, 1 + (request_number % SOURCE_ADDRESSES) as u8);
    let mut stream = connect(address, Some(IpAddr::V4(source))).await?;
    send(&mut stream, b"GET / HTTP/1.1\r\nHost: surge\r\nConnection: close\r\n\r\n").await?;
    read_status(&mut stream).await
}

async fn send(stream: &mut Stream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let sent = std::future::poll_fn(|cx| stream.poll_write(cx, bytes)).await?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Reads until the end of the head, and of a body received with it.
async fn read_status(stream: &mut Stream) -> std::io::Result<u16> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = std::future::poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..read]);
    }
    let text = String::from_utf8_lossy(&head[..head.len().min(16)]).into_owned();
    text.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| std::io::Error::other("no status"))
}

async fn run_closed_loop(address: Address, clients: u64, seconds: u64) -> Result<(), Box<dyn Error>> {
    let timers = Timers::start()?;
    let responses = Rc::new(Cell::new(0_u64));
    for _ in 0..clients {
        let (address, responses) = (address.clone(), Rc::clone(&responses));
        spawn_local(async move {
            let Ok(mut stream) = connect(&address, None).await else { return };
            loop {
                let request = b"GET / HTTP/1.1\r\nHost: surge\r\n\r\n";
                if send(&mut stream, request).await.is_err() || read_status(&mut stream).await.is_err() {
                    return;
                }
                responses.set(responses.get() + 1);
                yield_now().await;
            }
        });
    }
    timers.sleep_until(now_ns() + SECOND_NS / 2).await;
    let responses_before = responses.get();
    timers.sleep_until(now_ns() + seconds * SECOND_NS).await;
    println!("{}", (responses.get() - responses_before) as f64 / seconds as f64);
    Ok(())
}
