//! Jobs of a connection that must wait for more than its next request: the body of a request, a
//! delay, a socket that does not accept the response. Each job is its own future, allocated on
//! demand, so that merely waiting connections stay small.

mod file_content;

use std::future::poll_fn;
use std::io::Write;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns};
use server_shell::progress::ProgressTimer;
use wire::{BodyDecoder, Refusal, encode};

use crate::body::{ChunkedBody, RemainingBody};
use crate::burn;
use crate::conn::{Conn, FollowUp, SlowJob};
use crate::output::Outgoing;
use crate::respond::{BodyKind, FAILED_FILE_STATUS, SlowExchange, TEXT, reject};
use crate::response_spec::ResponseSpec;
use crate::stats::{CloseReason, add};

/// Reason why a job ended early.
enum JobError {
    Closed(CloseReason),
    Rejected(Refusal),
}

impl From<CloseReason> for JobError {
    fn from(closed: CloseReason) -> Self {
        Self::Closed(closed)
    }
}

/// Maximum time a closing connection may continue to send unread bytes.
const LINGER_TIMEOUT_NS: u64 = 2 * SECOND_NS;
/// Maximum number of such bytes.
const LINGER_BYTES_MAX: usize = 4 << 20;
/// Maximum number of reads of a body per poll, so that others get their turn.
const READS_MAX: u32 = 16;
/// Number of bytes of a chunked body that are made at a time.
const CHUNKED_BYTES: usize = 16 * 1024;

/// Runs a job; afterwards the connection continues, unless the error gives the reason for its end.
pub(crate) async fn run(conn: &mut Conn, job: Box<SlowJob>) -> Result<(), CloseReason> {
    let SlowJob { unsent, body, responses, follow_up } = *job;
    conn.disarm();
    let sent = send(conn, Outgoing::new(&unsent, body)).await;
    if unsent.capacity() > 0 {
        conn.core.buffers.put_back(unsent);
    }
    if let Err(reason) = sent {
        add(&conn.core.counters.responses_lost, responses);
        return Err(reason);
    }
    match follow_up {
        FollowUp::Nothing => Ok(()),
        FollowUp::Close(reason) => Err(reason),
        FollowUp::LingeringClose(reason) => {
            lingering_close(conn).await;
            Err(reason)
        }
        FollowUp::Exchange(exchange) => run_exchange(conn, *exchange).await,
    }
}

/// Responds to one request, and counts it as in flight meanwhile.
async fn run_exchange(conn: &mut Conn, mut exchange: SlowExchange) -> Result<(), CloseReason> {
    let in_flight = exchange.body_kind != BodyKind::Stats;
    if in_flight {
        add(&conn.core.counters.in_flight, 1);
    }
    let mut responded = false;
    let result = process_request(conn, &mut exchange, &mut responded).await;
    let counters = &conn.core.counters;
    if in_flight {
        counters.in_flight.set(counters.in_flight.get() - 1);
        if !responded {
            add(&counters.requests_abandoned, 1);
        }
    }
    // Bytes after the request are parsed before the next read.
    conn.recheck_input = !conn.unparsed.is_empty();
    match result {
        Ok(()) => Ok(()),
        Err(JobError::Closed(closed)) => Err(closed),
        Err(JobError::Rejected(error)) => {
            let mut out = Vec::new();
            if !responded {
                reject(&conn.core, error, conn.peer.as_deref(), &mut out);
            }
            send(conn, Outgoing::new(&out, RemainingBody::default())).await?;
            lingering_close(conn).await;
            Err(CloseReason::Rejected)
        }
    }
}

async fn process_request(
    conn: &mut Conn,
    exchange: &mut SlowExchange,
    responded: &mut bool,
) -> Result<(), JobError> {
    let spec = exchange.spec;
    let mut continues = true;
    if let Some(body) = &mut exchange.body {
        if exchange.expects_continue && spec.read_max == Some(0) {
            // The client got no `100 Continue`, and may send its body or not. The start of its next
            // request is then unknown.
            continues = false;
        } else {
            if exchange.expects_continue {
                let mut interim = Vec::new();
                encode::interim(&mut interim, 100);
                send(conn, Outgoing::new(&interim, RemainingBody::default())).await?;
            }
            read_body(conn, body, spec.read_max).await?;
        }
    }
    if spec.delay_ns > 0 {
        conn.disarm();
        let deadline_ns = now_ns() + spec.delay_ns;
        let delay = conn.core.timers.sleep_until(deadline_ns);
        delay.await;
    }
    burn::burn(spec.cpu_ns);
    burn::allocate(spec.allocations);
    let keep_alive = send_response(conn, exchange, continues, responded).await?;
    if spec.pause_ns > 0 {
        conn.disarm();
        let pause = conn.core.timers.sleep_until(now_ns() + spec.pause_ns);
        pause.await;
    }
    let unread = exchange.body.as_ref().is_some_and(|body| !body.is_done());
    if !keep_alive {
        if unread || !conn.unparsed.is_empty() {
            lingering_close(conn).await;
        }
        return Err(JobError::Closed(CloseReason::Requested));
    }
    if let Some(body) = &mut exchange.body {
        read_body(conn, body, None).await?;
    }
    conn.disarm();
    if let Some(idle_timeout_ns) = spec.idle_timeout_ns {
        poll_fn(|cx| {
            conn.set_idle_timeout(cx, Some(idle_timeout_ns));
            Poll::Ready(())
        })
        .await;
    }
    Ok(())
}

/// Sends the response; returns whether the connection stays open.
async fn send_response(
    conn: &mut Conn,
    exchange: &mut SlowExchange,
    continues: bool,
    responded: &mut bool,
) -> Result<bool, CloseReason> {
    if exchange.body_kind == BodyKind::Stats {
        return send_stats(conn, exchange, continues).await;
    }
    let mut out = conn.core.buffers.take().ok_or(CloseReason::NoBuffer)?;
    let spec = &exchange.spec;
    let keep_alive = spec.keeps_alive(exchange.request) && continues && !conn.core.draining.get();
    let extra = match exchange.body_kind {
        BodyKind::Help => TEXT.to_vec(),
        BodyKind::File => {
            exchange.file.as_mut().map(|file| std::mem::take(&mut file.fields)).unwrap_or_default()
        }
        _ if spec.timing_fields => timing_fields(exchange),
        _ => Vec::new(),
    };
    spec.write_head(&mut out, exchange.request, keep_alive, &conn.core.dates.http(), &extra);
    conn.core.counters.count_response(spec.status);
    *responded = true;
    let sent = match exchange.file.take() {
        Some(mut file) => {
            let is_chunked = !exchange.request.is_head && exchange.spec.is_chunked(exchange.request);
            let sent = file_content::send_content(conn, &mut out, &mut file.body, is_chunked).await;
            // Only now is the size of content known that is encoded on the fly.
            let is_failed = matches!(sent, Err(CloseReason::FileFailed));
            let status = if is_failed { FAILED_FILE_STATUS } else { exchange.spec.status };
            log_response(conn, exchange, status, file.body.sent_bytes());
            sent
        }
        None => {
            log_response(conn, exchange, spec.status, spec.content_bytes(exchange.request));
            send_content(conn, exchange, &mut out).await
        }
    };
    conn.core.buffers.put_back(out);
    if sent.is_err() {
        add(&conn.core.counters.responses_lost, 1);
    }
    sent.map(|()| keep_alive)
}

fn log_response(conn: &Conn, exchange: &SlowExchange, status: u16, content_bytes: u64) {
    if let Some(logged_request) = &exchange.logged_request {
        let mut line = Vec::new();
        logged_request.write_line_end(status, content_bytes, &mut line);
        conn.core.log_line(conn.peer.as_deref(), &line);
    }
}

/// Sends `out`, which contains the head, and the content after it.
async fn send_content(
    conn: &mut Conn,
    exchange: &SlowExchange,
    out: &mut Vec<u8>,
) -> Result<(), CloseReason> {
    let (spec, request) = (&exchange.spec, exchange.request);
    let write_bytes_max = if spec.write_bytes_max == 0 { u64::MAX } else { spec.write_bytes_max };
    let content_bytes = spec.content_bytes(request);
    if exchange.body_kind == BodyKind::Help {
        if content_bytes > 0 {
            out.extend_from_slice(crate::help::help_page().as_bytes());
        }
        return send(conn, Outgoing { write_bytes_max, ..Outgoing::new(out, RemainingBody::default()) })
            .await;
    }
    let body = if spec.random_body {
        RemainingBody::random(content_bytes, &mut conn.core.scratch.borrow_mut().rng)
    } else {
        RemainingBody::pattern(content_bytes)
    };
    if request.is_head || !spec.is_chunked(request) {
        return send(conn, Outgoing { write_bytes_max, ..Outgoing::new(out, body) }).await;
    }
    let mut chunks = ChunkedBody::new(body, spec.chunk_bytes);
    while !chunks.is_done() {
        chunks.write(&conn.core.body_blocks, CHUNKED_BYTES, out);
        send(conn, Outgoing { write_bytes_max, ..Outgoing::new(out, RemainingBody::default()) }).await?;
        out.clear();
    }
    Ok(())
}

/// Formats `X-req` and `X-rsp`, the same as in httpterm.
fn timing_fields(exchange: &SlowExchange) -> Vec<u8> {
    let spec = &exchange.spec;
    let elapsed_ms = (now_ns() - exchange.received_ns) / MILLISECOND_NS;
    let delay_ms = spec.delay_ns / MILLISECOND_NS;
    let mut fields = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = write!(
        fields,
        "X-req: size={}, time={elapsed_ms} ms\r\nX-rsp: id=dummy, code={}, cache={}, size={}, \
         time={delay_ms} ms ({elapsed_ms} real)\r\n",
        exchange.head_bytes,
        spec.status,
        u8::from(!spec.no_cache),
        spec.size,
    );
    fields
}

/// Sends the counters, which do not count this request.
async fn send_stats(conn: &mut Conn, exchange: &SlowExchange, continues: bool) -> Result<bool, CloseReason> {
    let core = Rc::clone(&conn.core);
    let text = core.collect_stats().await.to_json();
    let keep_alive = exchange.request.keep_alive && continues && !core.draining.get();
    let spec = ResponseSpec::with_size(200, text.len() as u64);
    let mut out = Vec::with_capacity(text.len() + 256);
    let extra = b"Content-Type: application/json\r\nCache-Control: no-store\r\n";
    spec.write_head(&mut out, exchange.request, keep_alive, &core.dates.http(), extra);
    if !exchange.request.is_head {
        out.extend_from_slice(text.as_bytes());
    }
    log_response(conn, exchange, 200, spec.content_bytes(exchange.request));
    let uncounted = Outgoing { counts_as_sent: false, ..Outgoing::new(&out, RemainingBody::default()) };
    send(conn, uncounted).await.map(|()| keep_alive)
}

async fn send(conn: &mut Conn, mut outgoing: Outgoing<'_>) -> Result<(), CloseReason> {
    let mut timer = ProgressTimer::default();
    poll_fn(|cx| poll_send(conn, cx, &mut outgoing, &mut timer)).await
}

fn poll_send(
    conn: &mut Conn,
    cx: &mut Context<'_>,
    outgoing: &mut Outgoing<'_>,
    timer: &mut ProgressTimer,
) -> Poll<Result<(), CloseReason>> {
    let core = Rc::clone(&conn.core);
    match outgoing.poll_send(cx, &core, &mut conn.stream) {
        Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
        Poll::Ready(Err(_)) => Poll::Ready(Err(CloseReason::Broken)),
        Poll::Pending => {
            let written_bytes = (outgoing.sent as u64).wrapping_sub(outgoing.body.remaining);
            match conn.is_write_stalled(cx, timer, written_bytes) {
                true => Poll::Ready(Err(CloseReason::WriteStall)),
                false => Poll::Pending,
            }
        }
    }
}

/// Reads the body to its end, or up to `max` bytes of content, and discards it.
async fn read_body(conn: &mut Conn, body: &mut BodyDecoder, max: Option<u64>) -> Result<(), JobError> {
    let mut remaining = max.unwrap_or(u64::MAX);
    let mut timer = ProgressTimer::default();
    poll_fn(|cx| poll_body(conn, cx, body, &mut remaining, &mut timer)).await
}

fn poll_body(
    conn: &mut Conn,
    cx: &mut Context<'_>,
    body: &mut BodyDecoder,
    remaining: &mut u64,
    timer: &mut ProgressTimer,
) -> Poll<Result<(), JobError>> {
    let core = Rc::clone(&conn.core);
    let input = &mut core.scratch.borrow_mut().input;
    let rule = core.plan.body;
    let mut reads = 0;
    while *remaining > 0 && !body.is_done() {
        reads += 1;
        if reads > READS_MAX {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let end = if conn.unparsed.is_empty() {
            match conn.stream.poll_read(cx, input) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(CloseReason::PeerMidRequest.into())),
                Poll::Ready(Ok(read)) => {
                    add(&core.counters.bytes_in, read as u64);
                    read
                }
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(CloseReason::from_io_error(&error).into()));
                }
                Poll::Pending => {
                    // Only content counts: the framing of chunks and trailers prolong nothing.
                    let content_bytes = 0_u64.wrapping_sub(*remaining);
                    return match conn.is_stalled(cx, timer, (rule, rule.interval_ns), |_| content_bytes) {
                        true => Poll::Ready(Err(CloseReason::BodyTimeout.into())),
                        false => Poll::Pending,
                    };
                }
            }
        } else {
            input[..conn.unparsed.len()].copy_from_slice(&conn.unparsed);
            let unparsed_len = conn.unparsed.len();
            conn.release_buffer();
            unparsed_len
        };
        match body.skip(&input[..end]) {
            Ok(skipped) => {
                *remaining = remaining.saturating_sub(skipped.data_bytes);
                timer.note(rule, 0_u64.wrapping_sub(*remaining), core.now());
                if !conn.keep_unparsed(&input[skipped.consumed..end], false) {
                    return Poll::Ready(Err(CloseReason::NoBuffer.into()));
                }
            }
            Err(error) => return Poll::Ready(Err(JobError::Rejected(error))),
        }
    }
    Poll::Ready(Ok(()))
}

/// Ends our side, and reads on for a while until the peer ends its own. Closing a socket with
/// unread bytes sends a reset, which may overtake the last response.
pub(crate) async fn lingering_close(conn: &mut Conn) {
    conn.release_buffer();
    if conn.stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    conn.disarm();
    let mut remaining = LINGER_BYTES_MAX;
    poll_fn(|cx| poll_lingering_close(conn, cx, &mut remaining)).await;
}

fn poll_lingering_close(conn: &mut Conn, cx: &mut Context<'_>, remaining: &mut usize) -> Poll<()> {
    let core = Rc::clone(&conn.core);
    let input = &mut core.scratch.borrow_mut().input;
    loop {
        match conn.stream.poll_read(cx, input) {
            Poll::Ready(Ok(read @ 1..)) if read < *remaining => {
                add(&core.counters.bytes_in, read as u64);
                *remaining -= read;
            }
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending if conn.has_waited(cx, LINGER_TIMEOUT_NS) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
}
