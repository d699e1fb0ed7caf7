//! What a relay between two TCP sockets costs by copying and by splicing, in processor time of its
//! thread, by the size of what comes at a time. Not a benchmark of throughput: its peers share the
//! machine with it. `cargo run --release -p rt --example splice`

use std::future::poll_fn;
use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};

use rt::splice::{Pipes, poll_drain, poll_fill};
use rt::stream::{Family, Stream};
use rustix::time::{ClockId, clock_gettime};

/// How bytes are moved, and how many at a time at the most.
#[derive(Clone, Copy)]
enum Way {
    Copy(usize),
    Splice(usize),
}

fn main() -> Result<()> {
    let kb = 1024;
    let ways = [
        ("copy 16k", Way::Copy(16 * kb)),
        ("copy 64k", Way::Copy(64 * kb)),
        ("copy 256k", Way::Copy(256 * kb)),
        ("splice 64k", Way::Splice(64 * kb)),
        ("splice 256k", Way::Splice(256 * kb)),
        ("splice 1m", Way::Splice(1024 * kb)),
    ];
    println!("ns of processor time per kB moved; in (): bytes a round");
    print!("{:>12}", "at a time");
    ways.iter().for_each(|(name, _)| print!("{name:>19}"));
    println!();
    for size in [1, 4, 8, 16, 32, 64, 128, 256].map(|size| size * kb) {
        print!("{:>11}k", size / kb);
        for (_, way) in ways {
            print_cell(relay(way, Some(size), 64 * kb * kb)?);
        }
        println!();
    }
    print!("{:>12}", "a stream");
    for (_, way) in ways {
        print_cell(relay(way, None, 1024 * kb * kb)?);
    }
    println!();
    Ok(())
}

fn print_cell((ns_per_kb, round): (f64, usize)) {
    print!("{:>19}", format!("{ns_per_kb:.0} ({round})"));
}

fn pair() -> Result<(TcpStream, Stream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let far = TcpStream::connect(listener.local_addr()?)?;
    let (near, _) = listener.accept()?;
    near.set_nonblocking(true)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((far, Stream::from_fd(near.into(), Family::Tcp)?))
}

/// Relays `total` bytes: all at once, or `size` of them when the last `size` have arrived.
fn relay(way: Way, size: Option<usize>, total: usize) -> Result<(f64, usize)> {
    rt::cores::block_on(async {
        let ((mut source, mut from), (mut sink, mut to)) = (pair()?, pair()?);
        let (next, is_next) = std::sync::mpsc::sync_channel(1);
        let chunk = size.unwrap_or(256 * 1024);
        let writer = std::thread::spawn(move || {
            let bytes = vec![7; chunk];
            for _ in 0..total / chunk {
                source.write_all(&bytes).unwrap_or_default();
                if size.is_some() {
                    let _ = is_next.recv();
                }
            }
        });
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; chunk];
            while sink.read_exact(&mut bytes).is_ok() {
                let _ = next.try_send(());
            }
        });
        let started = cpu_ns();
        let rounds = match way {
            Way::Copy(bytes) => copy(&mut from, &mut to, bytes).await?,
            Way::Splice(bytes) => splice(&mut from, &mut to, bytes).await?,
        };
        let ns = cpu_ns() - started;
        drop(to);
        let _ = (writer.join(), reader.join());
        Ok((ns as f64 / (total / 1024) as f64, total / rounds.max(1)))
    })
}

async fn copy(from: &mut Stream, to: &mut Stream, bytes: usize) -> Result<usize> {
    let mut buffer = vec![0; bytes];
    for round in 0.. {
        let read = poll_fn(|cx| from.poll_read(cx, &mut buffer)).await?;
        if read == 0 {
            return Ok(round);
        }
        let mut sent = 0;
        while sent < read {
            sent += poll_fn(|cx| to.poll_write(cx, &buffer[sent..read])).await?;
        }
    }
    Ok(0)
}

async fn splice(from: &mut Stream, to: &mut Stream, bytes: usize) -> Result<usize> {
    let pipes = Pipes::new(bytes, 1);
    let Some(mut pipe) = pipes.take() else { return Ok(0) };
    for round in 0.. {
        if poll_fn(|cx| poll_fill(cx, from, &mut pipe, bytes)).await? == 0 {
            return Ok(round);
        }
        while pipe.fill() > 0 {
            poll_fn(|cx| poll_drain(cx, to, &mut pipe)).await?;
        }
    }
    Ok(0)
}

fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
