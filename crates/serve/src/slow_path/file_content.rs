//! Content from files in a response over HTTP/1.1: by the kernel from a file to a socket where that is possible, and
//! a slice at a time where it is not.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use rt::cores::yield_turn;
use server_shell::progress::ProgressTimer;
use wire::encode;

use super::send;
use crate::body::RemainingBody;
use crate::conn::Conn;
use crate::output::Outgoing;
use crate::stats::{CloseReason, add};
use content::body::{FileBody, Prepared, SLICE_BYTES};
use content::ranges::ByteRange;
use content::tagging::end_turn;

/// Maximum number of bytes that the kernel is asked to send at a time, if they are in the page cache. Others
/// are sent by [`SLICE_BYTES`].
const KERNEL_SLICE_BYTES: u64 = 1 << 20;
/// Maximum number of bytes that a poll sends, so that others get their turn.
const POLL_BYTES_MAX: u64 = 1 << 20;

/// Sends the content after `out`, which contains the head.
pub(super) async fn send_content(
    conn: &mut Conn,
    out: &mut Vec<u8>,
    body: &mut FileBody,
    is_chunked: bool,
) -> Result<(), CloseReason> {
    if is_chunked {
        return send_chunks(conn, out, body).await;
    }
    let mut budget = POLL_BYTES_MAX;
    loop {
        if conn.stream.is_plain_socket() && body.file_range().is_some() {
            send_range(conn, out, body).await?;
            continue;
        }
        match prepare(conn, body)? {
            Prepared::Ready if out.len() + body.ready().len() <= SLICE_BYTES => {
                let bytes = body.ready().len();
                out.extend_from_slice(body.ready());
                body.advance(bytes);
                if !body.is_empty() && !body.ready().is_empty() {
                    continue;
                }
                send_all(conn, out).await?;
                out.clear();
            }
            Prepared::Ready => {
                send_all(conn, out).await?;
                out.clear();
                send_all(conn, body.ready()).await?;
                let bytes = body.ready().len();
                body.advance(bytes);
                budget = budget.saturating_sub(bytes as u64);
                if budget == 0 {
                    budget = POLL_BYTES_MAX;
                    end_turn().await;
                }
            }
            Prepared::Again => end_turn().await,
            Prepared::End => return send_all(conn, out).await,
        }
    }
}

/// Sends content whose length is unknown.
async fn send_chunks(conn: &mut Conn, out: &mut Vec<u8>, body: &mut FileBody) -> Result<(), CloseReason> {
    loop {
        match prepare(conn, body)? {
            Prepared::Ready => {
                let bytes = body.ready().len();
                encode::chunk_head(out, bytes as u64);
                out.extend_from_slice(body.ready());
                encode::chunk_end(out);
                body.advance(bytes);
                if body.is_empty() {
                    encode::last_chunk(out);
                    return send_all(conn, out).await;
                }
                send_all(conn, out).await?;
                out.clear();
                // Encoding a slice takes about a millisecond.
                end_turn().await;
            }
            Prepared::Again => end_turn().await,
            Prepared::End => {
                encode::last_chunk(out);
                return send_all(conn, out).await;
            }
        }
    }
}

/// Reads or encodes the next slice. A file that fails ends the connection: its head has announced more.
fn prepare(conn: &Conn, body: &mut FileBody) -> Result<Prepared, CloseReason> {
    body.prepare().map_err(|_| count_failed(conn))
}

fn count_failed(conn: &Conn) -> CloseReason {
    add(&conn.core.counters.files_failed, 1);
    CloseReason::FileFailed
}

async fn send_all(conn: &mut Conn, bytes: &[u8]) -> Result<(), CloseReason> {
    send(conn, Outgoing::new(bytes, RemainingBody::default())).await
}

/// Sends the head, and the range of a file by the kernel.
async fn send_range(conn: &mut Conn, head: &mut Vec<u8>, body: &mut FileBody) -> Result<(), CloseReason> {
    let mut progress =
        RangeProgress { head_sent: 0, cached_until: 0, written_bytes: 0, timer: ProgressTimer::default() };
    let result = poll_fn(|cx| poll_send_range(conn, cx, head, &mut progress, body)).await;
    head.clear();
    result
}

/// Progress of a range that the kernel sends.
struct RangeProgress {
    head_sent: usize,
    /// Position in the file before which everything was in the page cache.
    cached_until: u64,
    written_bytes: u64,
    timer: ProgressTimer,
}

fn poll_send_range(
    conn: &mut Conn,
    cx: &mut Context<'_>,
    head: &[u8],
    range_progress: &mut RangeProgress,
    body: &mut FileBody,
) -> Poll<Result<(), CloseReason>> {
    let mut budget = POLL_BYTES_MAX;
    loop {
        let written = if range_progress.head_sent < head.len() {
            let written = conn.stream.poll_write_more(cx, &head[range_progress.head_sent..]);
            if let Poll::Ready(Ok(written)) = written {
                range_progress.head_sent += written;
            }
            written
        } else {
            let Some((file, range)) = body.file_range() else { return Poll::Ready(Ok(())) };
            if budget == 0 {
                yield_turn(cx);
                return Poll::Pending;
            }
            let bytes = sendable_slice(file, range, &mut range_progress.cached_until).min(budget);
            let sent_by_kernel = conn.stream.poll_send_file(cx, file, range.start, bytes as usize);
            if let Poll::Ready(Ok(written)) = sent_by_kernel {
                let written = written as u64;
                // A socket that is full and a file that has become shorter look the same. In the second case
                // the socket would never become writable.
                let is_file_shorter = written < bytes && !rt::file::has_bytes(file, range.start + written);
                body.advance_range(written);
                budget -= written.min(budget);
                if is_file_shorter {
                    add(&conn.core.counters.bytes_out, written);
                    return Poll::Ready(Err(count_failed(conn)));
                }
            }
            sent_by_kernel
        };
        match written {
            // The file has become shorter.
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(count_failed(conn))),
            Poll::Ready(Ok(written)) => {
                range_progress.written_bytes += written as u64;
                add(&conn.core.counters.bytes_out, written as u64);
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(reason_of(conn, &error))),
            Poll::Pending => {
                let RangeProgress { written_bytes, timer, .. } = range_progress;
                return match conn.is_write_stalled(cx, timer, *written_bytes) {
                    true => Poll::Ready(Err(CloseReason::WriteStall)),
                    false => Poll::Pending,
                };
            }
        }
    }
}

/// Returns the number of bytes to send at once: many if they are in the page cache, and else a slice, while
/// the kernel reads those behind it.
fn sendable_slice(file: std::os::fd::BorrowedFd<'_>, range: ByteRange, cached_until: &mut u64) -> u64 {
    if range.start < *cached_until {
        return range.len().min(*cached_until - range.start);
    }
    let bytes = range.len().min(KERNEL_SLICE_BYTES);
    if bytes <= SLICE_BYTES as u64 || rt::file::is_cached(file, range.start + bytes - 1) {
        *cached_until = range.start + bytes;
        return bytes;
    }
    rt::file::read_ahead(file, range.start, bytes);
    SLICE_BYTES as u64
}

fn reason_of(conn: &Conn, error: &io::Error) -> CloseReason {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
            CloseReason::Broken
        }
        _ => count_failed(conn),
    }
}
