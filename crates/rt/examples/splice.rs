//! Cost of a relay between two TCP sockets by copying and by splicing, in CPU time of its thread,
//! by message size. It is not a throughput benchmark: its peers share the machine with it. `cargo
//! run --release -p rt --example splice`

use std::future::poll_fn;
use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};

use rt::socket::SocketFamily;
use rt::splice::{PipePool, poll_drain, poll_fill};
use rt::stream::Stream;
use rustix::time::{ClockId, clock_gettime};

/// Method of moving bytes, with the maximum number at a time.
#[derive(Clone, Copy)]
enum TransferMode {
    Copy(usize),
    Splice(usize),
}

fn main() -> Result<()> {
    let kb = 1024;
    let modes = [
        ("copy 16k", TransferMode::Copy(16 * kb)),
        ("copy 64k", TransferMode::Copy(64 * kb)),
        ("copy 256k", TransferMode::Copy(256 * kb)),
        ("splice 64k", TransferMode::Splice(64 * kb)),
        ("splice 256k", TransferMode::Splice(256 * kb)),
        ("splice 1m", TransferMode::Splice(1024 * kb)),
    ];
    println!("ns of CPU time per kB moved; in (): bytes per round");
    print!("{:>12}", "at a time");
    modes.iter().for_each(|(name, _)| print!("{name:>19}"));
    println!();
    for size in [1, 4, 8, 16, 32, 64, 128, 256].map(|size| size * kb) {
        print!("{:>11}k", size / kb);
        for (_, mode) in modes {
            print_cell(measure_relay(mode, Some(size), 64 * kb * kb)?);
        }
        println!();
    }
    print!("{:>12}", "a stream");
    for (_, mode) in modes {
        print_cell(measure_relay(mode, None, 1024 * kb * kb)?);
    }
    println!();
    Ok(())
}

fn print_cell((ns_per_kb, round): (f64, usize)) {
    print!("{:>19}", format!("{ns_per_kb:.0} ({round})"));
}

fn tcp_pair() -> Result<(TcpStream, Stream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let peer = TcpStream::connect(listener.local_addr()?)?;
    let (local, _) = listener.accept()?;
    local.set_nonblocking(true)?;
    local.set_nodelay(true)?;
    peer.set_nodelay(true)?;
    Ok((peer, Stream::from_fd(local.into(), SocketFamily::Tcp)?))
}

/// Relays `total` bytes: all at once, or the next `size` bytes whenever the last have arrived.
fn measure_relay(mode: TransferMode, size: Option<usize>, total: usize) -> Result<(f64, usize)> {
    rt::cores::block_on(async {
        let ((mut source, mut from), (mut sink, mut to)) = (tcp_pair()?, tcp_pair()?);
        let (permits, next_permit) = std::sync::mpsc::sync_channel(1);
        let chunk = size.unwrap_or(256 * 1024);
        let writer = std::thread::spawn(move || {
            let bytes = vec![7; chunk];
            for _ in 0..total / chunk {
                source.write_all(&bytes).unwrap_or_default();
                if size.is_some() {
                    let _ = next_permit.recv();
                }
            }
        });
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; chunk];
            while sink.read_exact(&mut bytes).is_ok() {
                let _ = permits.try_send(());
            }
        });
        let started = cpu_ns();
        let rounds = match mode {
            TransferMode::Copy(bytes) => copy(&mut from, &mut to, bytes).await?,
            TransferMode::Splice(bytes) => splice(&mut from, &mut to, bytes).await?,
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
    let pipes = PipePool::new(bytes, 1);
    let Some(mut pipe) = pipes.take() else { return Ok(0) };
    for round in 0.. {
        if poll_fn(|cx| poll_fill(cx, from, &mut pipe, bytes)).await? == 0 {
            return Ok(round);
        }
        while pipe.buffered_bytes() > 0 {
            poll_fn(|cx| poll_drain(cx, to, &mut pipe)).await?;
        }
    }
    Ok(0)
}

fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
