//! A comparison and not a product: clients that come at a fixed rate whatever happens, each on a
//! connection of its own, and that leave when they have waited too long.
//!
//! `surge ADDR PATIENCE_MS RATE:SECONDS,RATE:SECONDS…` prints a line for each request: when it was
//! due and how long it took, both in microseconds, and the status of its answer (0: it left; 1: its
//! connection failed). `surge ADDR closed CLIENTS SECONDS` asks again and again on kept connections
//! instead, and prints how many answers a second there were.

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
/// Source addresses in turn, so that ports of connections that are over do not run out.
const SOURCES: u64 = 32;

fn main() -> Result<(), Box<dyn Error>> {
    rt::limits::raise_descriptor_limit();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [address, "closed", clients, seconds] => {
            let (address, clients) = (address.parse()?, clients.parse()?);
            rt::cores::block_on(ask_always(address, clients, seconds.parse()?))
        }
        [address, patience_ms, phases] => {
            let patience_ns = patience_ms.parse::<u64>()? * MILLISECOND_NS;
            let phases = phases.split(',').map(|phase| {
                let (rate, seconds) = phase.split_once(':').ok_or("RATE:SECONDS")?;
                Ok((rate.parse()?, seconds.parse()?))
            });
            let phases = phases.collect::<Result<Vec<(u64, u64)>, Box<dyn Error>>>()?;
            rt::cores::block_on(come(address.parse()?, patience_ns, phases))
        }
        _ => {
            Err("usage: surge ADDR PATIENCE_MS RATE:SECONDS,… | ADDR closed CLIENTS SECONDS".into())
        }
    }
}

async fn come(
    address: Address,
    patience_ns: u64,
    phases: Vec<(u64, u64)>,
) -> Result<(), Box<dyn Error>> {
    let timers = Rc::new(Timers::start()?);
    let lines = Rc::new(RefCell::new(String::new()));
    let open = Rc::new(Cell::new(0_u64));
    let start_ns = now_ns() + 100 * MILLISECOND_NS;
    let (mut begin_ns, mut number) = (start_ns, 0);
    for (rate, seconds) in phases {
        for index in 0..rate * seconds {
            let due_ns = begin_ns + index * SECOND_NS / rate;
            if due_ns > now_ns() {
                timers.sleep_until(due_ns).await;
            }
            number += 1;
            open.set(open.get() + 1);
            let (address, timers) = (address.clone(), Rc::clone(&timers));
            let (lines, open) = (Rc::clone(&lines), Rc::clone(&open));
            spawn_local(async move {
                let status = select! {
                    status = ask(&address, number) => status.unwrap_or(1),
                    () = timers.sleep_until(due_ns + patience_ns) => 0,
                };
                let (due_us, took_us) = ((due_ns - start_ns) / 1_000, (now_ns() - due_ns) / 1_000);
                // Writing to a String cannot fail.
                let _ = writeln!(lines.borrow_mut(), "{due_us} {took_us} {status}");
                open.set(open.get() - 1);
            });
        }
        begin_ns += seconds * SECOND_NS;
    }
    while open.get() > 0 {
        timers.sleep_until(now_ns() + 10 * MILLISECOND_NS).await;
    }
    std::io::stdout().write_all(lines.borrow().as_bytes())?;
    Ok(())
}

/// One request; the status of its answer.
async fn ask(address: &Address, number: u64) -> std::io::Result<u16> {
    let source = Ipv4Addr::new(127, 0, 0, 1 + (number % SOURCES) as u8);
    let mut stream = connect(address, Some(IpAddr::V4(source))).await?;
    send(&mut stream, b"GET / HTTP/1.1\r\nHost: surge\r\nConnection: close\r\n\r\n").await?;
    status(&mut stream).await
}

async fn send(stream: &mut Stream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let sent = std::future::poll_fn(|cx| stream.poll_write(cx, bytes)).await?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Reads until the end of the head, and of a body that came with it.
async fn status(stream: &mut Stream) -> std::io::Result<u16> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
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

async fn ask_always(address: Address, clients: u64, seconds: u64) -> Result<(), Box<dyn Error>> {
    let timers = Timers::start()?;
    let answers = Rc::new(Cell::new(0_u64));
    for _ in 0..clients {
        let (address, answers) = (address.clone(), Rc::clone(&answers));
        spawn_local(async move {
            let Ok(mut stream) = connect(&address, None).await else { return };
            loop {
                let request = b"GET / HTTP/1.1\r\nHost: surge\r\n\r\n";
                if send(&mut stream, request).await.is_err() || status(&mut stream).await.is_err() {
                    return;
                }
                answers.set(answers.get() + 1);
                yield_now().await;
            }
        });
    }
    timers.sleep_until(now_ns() + SECOND_NS / 2).await;
    let before = answers.get();
    timers.sleep_until(now_ns() + seconds * SECOND_NS).await;
    println!("{}", (answers.get() - before) as f64 / seconds as f64);
    Ok(())
}
