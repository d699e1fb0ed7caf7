//! Minimal HTTP/2 server over TCP with prior knowledge, for conformance suites such as h2spec:
//! `cargo run -p wire --example h2_server -- 127.0.0.1:8080`. It responds to each request at its end
//! and sends received content back.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use wire::h2::{Config, Connection, Event, Role, StreamKey};

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address)?;
    eprintln!("{}", listener.local_addr()?);
    for socket in listener.incoming() {
        let socket = socket?;
        std::thread::spawn(move || {
            if let Err(error) = serve(socket) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

/// A response whose body the windows do not allow yet.
struct PendingBody {
    stream: StreamKey,
    sent: usize,
}

const BODY: &[u8] = b"hello, world\n";

fn serve(mut socket: TcpStream) -> std::io::Result<()> {
    let mut connection = Connection::new(Role::Server, &Config::default());
    let mut buffer = vec![0; 32 * 1024];
    let mut filled = 0;
    let mut bodies: Vec<PendingBody> = Vec::new();
    loop {
        let mut used = 0;
        let result = loop {
            let (bytes, event) = match connection.next_event(&buffer[used..filled]) {
                Ok(step) => step,
                Err(fault) => break Err(fault),
            };
            used += bytes;
            let Some(event) = event else { break Ok(()) };
            let (consumed, finished) = inspect(&event);
            if let Some((stream, bytes)) = consumed {
                connection.consume(stream, bytes);
            }
            if let Some((stream, status)) = finished {
                connection.send_headers(stream, false, |head| {
                    head.status(status);
                    head.field("server", b"weir");
                    head.field("content-length", b"13");
                });
                bodies.push(PendingBody { stream, sent: 0 });
            }
        };
        bodies.retain_mut(|body| {
            body.sent += connection.send_data(body.stream, &BODY[body.sent..], true);
            body.sent < BODY.len()
        });
        socket.write_all(connection.output())?;
        connection.output().clear();
        if let Err(fault) = result {
            eprintln!("{fault}");
            return socket.shutdown(std::net::Shutdown::Write);
        }
        buffer.copy_within(used..filled, 0);
        filled -= used;
        match socket.read(&mut buffer[filled..])? {
            0 => return Ok(()),
            bytes => filled += bytes,
        }
    }
}

type Consumed = Option<(StreamKey, usize)>;
type Finished = Option<(StreamKey, u16)>;

/// Returns the content of an event, and the stream whose request it completes, with its status.
fn inspect(event: &Event<'_>) -> (Consumed, Finished) {
    match *event {
        Event::Request { stream, is_end: true, .. } => (None, Some((stream, 200))),
        Event::RejectedRequest { stream, refusal, .. } => (None, Some((stream, refusal.status()))),
        Event::Data { stream, bytes, is_end } => {
            (Some((stream, bytes.len())), is_end.then_some((stream, 200)))
        }
        Event::Trailers { stream, .. } => (None, Some((stream, 200))),
        _ => (None, None),
    }
}
