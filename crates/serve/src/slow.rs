//! What a connection does when it has to wait for more than its next request: the body of a
//! request, a delay, a socket that does not take the answer. Each such job is a future of its own,
//! allocated when it is needed, so that connections which only wait stay small.

use std::future::poll_fn;
use std::io::Write;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::{MILLISECOND_NS, SECOND_NS, now_ns};
use wire::{BodyDecoder, Refusal, encode};

use crate::answer::{Answer, Asked};
use crate::body::{Chunks, Fill};
use crate::conn::Conn;
use crate::log::Asker;
use crate::make::{Page, TEXT, refuse};
use crate::output::Outgoing;
use crate::stats::{Closed, add};
use crate::work;

/// What there is to do, in this order.
#[derive(Debug)]
pub(crate) struct Job {
    /// Earlier output that the socket has not taken; a pooled buffer unless it is empty.
    pub(crate) unsent: Vec<u8>,
    /// What follows it.
    pub(crate) fill: Fill,
    /// How many answers these are parts of.
    pub(crate) answers: u64,
    pub(crate) work: Work,
}

/// What comes after the earlier output.
#[derive(Debug)]
pub(crate) enum Work {
    Nothing,
    Turn(Box<Turn>),
    Close(Closed),
    /// Close, but let the peer read the last answer first.
    Linger(Closed),
}

/// A request that was read and is to be answered.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) answer: Answer,
    pub(crate) asked: Asked,
    pub(crate) page: Page,
    pub(crate) expects_continue: bool,
    /// What of its body is still to be read.
    pub(crate) body: Option<BodyDecoder>,
    pub(crate) received_ns: u64,
    pub(crate) head_bytes: usize,
    /// For the access log.
    pub(crate) asker: Option<Asker>,
}

/// Why a job ended before its time.
enum Stop {
    Closed(Closed),
    Refused(Refusal),
}

impl From<Closed> for Stop {
    fn from(closed: Closed) -> Self {
        Self::Closed(closed)
    }
}

/// How long a closing connection may go on sending what nobody reads.
const LINGER_NS: u64 = 2 * SECOND_NS;
/// How many bytes it may send.
const LINGER_BYTES_MAX: usize = 4 << 20;
/// How often one poll reads of a body before others get their turn.
const READS_MAX: u32 = 16;
/// How many bytes of a chunked body are made at a time.
const CHUNKED_BYTES: usize = 16 * 1024;

/// Does a job; afterwards the connection goes on, unless the error says why it ends.
pub(crate) async fn run(conn: &mut Conn, job: Box<Job>) -> Result<(), Closed> {
    let Job { unsent, fill, answers, work } = *job;
    conn.disarm();
    let sent = send(conn, Outgoing::new(&unsent, fill)).await;
    if unsent.capacity() > 0 {
        conn.core.buffers.give(unsent);
    }
    if let Err(closed) = sent {
        add(&conn.core.counters.responses_lost, answers);
        return Err(closed);
    }
    match work {
        Work::Nothing => Ok(()),
        Work::Close(closed) => Err(closed),
        Work::Linger(closed) => {
            linger(conn).await;
            Err(closed)
        }
        Work::Turn(turn) => take_turn(conn, *turn).await,
    }
}

/// Answers one request, and counts it as in flight meanwhile.
async fn take_turn(conn: &mut Conn, mut turn: Turn) -> Result<(), Closed> {
    let in_flight = turn.page != Page::Stats;
    if in_flight {
        add(&conn.core.counters.in_flight, 1);
    }
    let mut answered = false;
    let ended = answer(conn, &mut turn, &mut answered).await;
    let counters = &conn.core.counters;
    if in_flight {
        counters.in_flight.set(counters.in_flight.get() - 1);
        if !answered {
            add(&counters.requests_abandoned, 1);
        }
    }
    // What came behind the request is looked at before more is read.
    conn.look_again = !conn.held.is_empty();
    match ended {
        Ok(()) => Ok(()),
        Err(Stop::Closed(closed)) => Err(closed),
        Err(Stop::Refused(refusal)) => {
            let mut out = Vec::new();
            if !answered {
                refuse(&conn.core, refusal, conn.peer.as_deref(), &mut out);
            }
            send(conn, Outgoing::new(&out, Fill::default())).await?;
            linger(conn).await;
            Err(Closed::Refused)
        }
    }
}

async fn answer(conn: &mut Conn, turn: &mut Turn, answered: &mut bool) -> Result<(), Stop> {
    let asked = turn.answer;
    let mut continues = true;
    if let Some(body) = &mut turn.body {
        if turn.expects_continue && asked.read_max == Some(0) {
            // The client was not told to send its body, and may do so or not: nobody can tell
            // where its next request would start.
            continues = false;
        } else {
            if turn.expects_continue {
                let mut interim = Vec::new();
                encode::interim(&mut interim, 100);
                send(conn, Outgoing::new(&interim, Fill::default())).await?;
            }
            read_body(conn, body, asked.read_max).await?;
        }
    }
    if asked.delay_ns > 0 {
        conn.disarm();
        let due_ns = now_ns() + asked.delay_ns;
        let delay = conn.core.timers.sleep_until(due_ns);
        delay.await;
    }
    work::burn(asked.cpu_ns);
    work::allocate(asked.allocations);
    let keeps = respond(conn, turn, continues, answered).await?;
    if asked.pause_ns > 0 {
        conn.disarm();
        let pause = conn.core.timers.sleep_until(now_ns() + asked.pause_ns);
        pause.await;
    }
    let unread = turn.body.as_ref().is_some_and(|body| !body.is_done());
    if !keeps {
        if unread || !conn.held.is_empty() {
            linger(conn).await;
        }
        return Err(Stop::Closed(Closed::Asked));
    }
    if let Some(body) = &mut turn.body {
        read_body(conn, body, None).await?;
    }
    conn.disarm();
    if let Some(wait_ns) = asked.wait_ns {
        poll_fn(|cx| {
            conn.note_wait(cx, Some(wait_ns));
            Poll::Ready(())
        })
        .await;
    }
    Ok(())
}

/// Sends the answer; returns whether the connection stays.
async fn respond(
    conn: &mut Conn,
    turn: &mut Turn,
    continues: bool,
    answered: &mut bool,
) -> Result<bool, Closed> {
    if turn.page == Page::Stats {
        return respond_with_stats(conn, turn, continues).await;
    }
    let mut out = conn.core.buffers.take().ok_or(Closed::NoBuffer)?;
    let answer = &turn.answer;
    let keeps = answer.keeps(turn.asked) && continues && !conn.core.draining.get();
    let extra = match turn.page {
        Page::Help => TEXT.to_vec(),
        _ if answer.timing => timing_fields(turn),
        _ => Vec::new(),
    };
    answer.write_head(&mut out, turn.asked, keeps, &conn.core.dates.http(), &extra);
    conn.core.counters.answered(answer.status);
    *answered = true;
    log(conn, turn, answer.status, answer.content_bytes(turn.asked));
    let sent = send_content(conn, turn, &mut out).await;
    conn.core.buffers.give(out);
    if sent.is_err() {
        add(&conn.core.counters.responses_lost, 1);
    }
    sent.map(|()| keeps)
}

fn log(conn: &Conn, turn: &Turn, status: u16, content_bytes: u64) {
    if let Some(asker) = &turn.asker {
        let mut line = Vec::new();
        asker.line_rest(status, content_bytes, &mut line);
        conn.core.log_line(conn.peer.as_deref(), &line);
    }
}

/// Sends `out`, which has the head, and the content behind it.
async fn send_content(conn: &mut Conn, turn: &Turn, out: &mut Vec<u8>) -> Result<(), Closed> {
    let (answer, asked) = (&turn.answer, turn.asked);
    let piece = if answer.piece == 0 { u64::MAX } else { answer.piece };
    let content = answer.content_bytes(asked);
    if turn.page == Page::Help {
        if content > 0 {
            out.extend_from_slice(crate::help::help_page().as_bytes());
        }
        return send(conn, Outgoing { piece, ..Outgoing::new(out, Fill::default()) }).await;
    }
    let fill = if answer.random {
        Fill::random(content, &mut conn.core.bench.borrow_mut().rng)
    } else {
        Fill::pattern(content)
    };
    if asked.is_head || !answer.is_chunked(asked) {
        return send(conn, Outgoing { piece, ..Outgoing::new(out, fill) }).await;
    }
    let mut chunks = Chunks::new(fill, answer.chunk);
    while !chunks.is_done() {
        chunks.write(&conn.core.blocks, CHUNKED_BYTES, out);
        send(conn, Outgoing { piece, ..Outgoing::new(out, Fill::default()) }).await?;
        out.clear();
    }
    Ok(())
}

/// `X-req` and `X-rsp`, as httpterm has them.
fn timing_fields(turn: &Turn) -> Vec<u8> {
    let answer = &turn.answer;
    let since_ms = (now_ns() - turn.received_ns) / MILLISECOND_NS;
    let delay_ms = answer.delay_ns / MILLISECOND_NS;
    let mut fields = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = write!(
        fields,
        "X-req: size={}, time={since_ms} ms\r\nX-rsp: id=dummy, code={}, cache={}, size={}, \
         time={delay_ms} ms ({since_ms} real)\r\n",
        turn.head_bytes,
        answer.status,
        u8::from(!answer.no_cache),
        answer.size,
    );
    fields
}

/// Sends the counters, which do not count this.
async fn respond_with_stats(conn: &mut Conn, turn: &Turn, continues: bool) -> Result<bool, Closed> {
    let core = Rc::clone(&conn.core);
    let text = core.gather().await.to_json();
    let keeps = turn.asked.keep_alive && continues && !core.draining.get();
    let answer = Answer::plain(200, text.len() as u64);
    let mut out = Vec::with_capacity(text.len() + 256);
    let extra = b"Content-Type: application/json\r\nCache-Control: no-store\r\n";
    answer.write_head(&mut out, turn.asked, keeps, &core.dates.http(), extra);
    if !turn.asked.is_head {
        out.extend_from_slice(text.as_bytes());
    }
    log(conn, turn, 200, answer.content_bytes(turn.asked));
    let uncounted = Outgoing { counted: false, ..Outgoing::new(&out, Fill::default()) };
    send(conn, uncounted).await.map(|()| keeps)
}

async fn send(conn: &mut Conn, mut outgoing: Outgoing<'_>) -> Result<(), Closed> {
    poll_fn(|cx| poll_send(conn, cx, &mut outgoing)).await
}

fn poll_send(
    conn: &mut Conn,
    cx: &mut Context<'_>,
    outgoing: &mut Outgoing<'_>,
) -> Poll<Result<(), Closed>> {
    let core = Rc::clone(&conn.core);
    let before = (outgoing.sent, outgoing.fill.left);
    match conn.poll_out(cx, &core, outgoing) {
        Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
        Poll::Ready(Err(_)) => Poll::Ready(Err(Closed::Broken)),
        Poll::Pending if before != (outgoing.sent, outgoing.fill.left) => {
            conn.arm_progress(cx, core.plan.write_timeout_ns);
            Poll::Pending
        }
        Poll::Pending if conn.is_stalled(cx, core.plan.write_timeout_ns) => {
            Poll::Ready(Err(Closed::WriteStall))
        }
        Poll::Pending => Poll::Pending,
    }
}

/// Reads the body to its end, or until `max` bytes of content came; nobody wants them.
async fn read_body(conn: &mut Conn, body: &mut BodyDecoder, max: Option<u64>) -> Result<(), Stop> {
    let mut left = max.unwrap_or(u64::MAX);
    conn.disarm();
    poll_fn(|cx| poll_body(conn, cx, body, &mut left)).await
}

fn poll_body(
    conn: &mut Conn,
    cx: &mut Context<'_>,
    body: &mut BodyDecoder,
    left: &mut u64,
) -> Poll<Result<(), Stop>> {
    let core = Rc::clone(&conn.core);
    let input = &mut core.bench.borrow_mut().input;
    let mut progress = false;
    let mut reads = 0;
    while *left > 0 && !body.is_done() {
        reads += 1;
        if reads > READS_MAX {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let end = if conn.held.is_empty() {
            match conn.stream.poll_read(cx, input) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Closed::PeerMidRequest.into())),
                Poll::Ready(Ok(read)) => read,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Closed::Broken.into())),
                Poll::Pending if progress => {
                    conn.arm_progress(cx, core.plan.body_timeout_ns);
                    return Poll::Pending;
                }
                Poll::Pending if conn.is_stalled(cx, core.plan.body_timeout_ns) => {
                    return Poll::Ready(Err(Closed::BodyTimeout.into()));
                }
                Poll::Pending => return Poll::Pending,
            }
        } else {
            input[..conn.held.len()].copy_from_slice(&conn.held);
            let held = conn.held.len();
            conn.release();
            held
        };
        progress = true;
        match body.skip(&input[..end]) {
            Ok(skipped) => {
                *left = left.saturating_sub(skipped.data_bytes);
                if !conn.hold(&input[skipped.consumed..end], false) {
                    return Poll::Ready(Err(Closed::NoBuffer.into()));
                }
            }
            Err(refusal) => return Poll::Ready(Err(Stop::Refused(refusal))),
        }
    }
    Poll::Ready(Ok(()))
}

/// Ends our side, and reads on for a while until the peer ends its own: closing a socket with
/// unread bytes sends a reset, which may overtake the last answer.
async fn linger(conn: &mut Conn) {
    conn.release();
    if conn.stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    conn.disarm();
    let mut left = LINGER_BYTES_MAX;
    poll_fn(|cx| poll_linger(conn, cx, &mut left)).await;
}

fn poll_linger(conn: &mut Conn, cx: &mut Context<'_>, left: &mut usize) -> Poll<()> {
    let core = Rc::clone(&conn.core);
    let input = &mut core.bench.borrow_mut().input;
    loop {
        match conn.stream.poll_read(cx, input) {
            Poll::Ready(Ok(read @ 1..)) if read < *left => {
                add(&core.counters.bytes_in, read as u64);
                *left -= read;
            }
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending if conn.is_stalled(cx, LINGER_NS) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
}
