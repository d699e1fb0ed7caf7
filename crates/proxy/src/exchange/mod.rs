//! One request on its way: from its head to its outcome. Exists only while a request is in flight;
//! an idle connection has none.
//!
//! ```text
//!  head -> route --+--> tarpit ------------------.
//!                  |                             v
//!                  +--> own answer ---------> answering --------------------------.
//!                  |                             ^ failed, nothing said yet       |
//!                  v                             |                                v
//!               queued --> connecting ------> open: both directions at once --> ended -> outcome
//!                 |  room    |  ^ again, if nothing can have happened |  |
//!                 `----------+--'-------------------------------------'  `--> tunnel (101, CONNECT)
//! ```
//! This file is the states and what moves them; `begin` makes an exchange from a head, `choice` is what
//! it tells the choice of its server, and what that learns from it, `buffering` receives the start of a
//! body before a bounded server is asked for, `queued` waits for room, `request`
//! and `response` are the two directions while it is open (`splice` for long bodies), `finish` is how
//! it ends.

mod abandoned;
mod begin;
mod buffering;
mod choice;
mod detached;
mod finish;
mod pace;
mod queued;
mod request;
mod response;
mod splice;
mod whereabouts;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use rt::clock::now_ns;
use rt::splice::Pipe;
use rt::stream::Stream;

pub(crate) use begin::Begun;
use detached::Detached;
pub(crate) use finish::Facts;

use crate::conn::{Armed, Link, Watch};
use crate::core::{Bench, Core, Live};
use crate::outcome::{End, Phase};
use crate::plan::Priority;
use crate::pool::{NEVER, Pool, ServerConn, Ticket, Want};
use crate::profile::Phase as Section;
use crate::relay::Relay;

/// One request on its way.
pub(crate) struct Exchange {
    stage: Stage,
    live: Option<Rc<Live>>,
    /// In a tunnel, what is left of `live`.
    detached: Option<Box<Detached>>,
    /// Index in the live plan's listeners.
    listener: usize,
    /// Where it goes, while room there is taken for it.
    place: Option<Place>,
    /// What it wants of its pool.
    want: Want,
    /// The connection to the server.
    server: Option<ServerConn>,
    up: Relay,
    down: Relay,
    /// Received from the server, and not used yet.
    held: Vec<u8>,
    /// Where a long body is on its way, while it is.
    pipe: Option<Pipe>,
    response: Response,
    kind: wire::RequestKind,
    version: wire::Version,
    /// Whether the client's connection is to stay, as far as is known.
    keeps: bool,
    /// Whether the client may send another request unless it is told not to.
    may_pipeline: bool,
    /// Whether the server's connection can carry another request.
    server_persists: bool,
    /// Whether sending the same request twice does what sending it once does.
    idempotent: bool,
    /// Whether the server was asked to change the protocol.
    upgrade: bool,
    /// Whether the client may be waiting for `100 Continue` with its body.
    expects: bool,
    /// Whether it carries bytes of no known protocol.
    tcp: bool,
    /// Whether the server takes no more of the request.
    up_broken: bool,
    /// Whether only a new connection will do: an idle one has just failed.
    needs_new: bool,
    interim: u32,
    /// How urgent it is, in a queue.
    priority: Priority,
    /// When its client leaves; [`NEVER`]: it does not say.
    deadline_ns: u64,
    /// Bytes of the body when its progress was looked at last, and when that was.
    progress: (u64, u64),
    /// When the wait for the response's head began; 0: it has not.
    first_byte_from_ns: u64,
    /// Bytes that the blocked receiver had not confirmed at the last check, and when that was.
    stalled: Option<(u64, u64)>,
    pub(crate) facts: Facts,
}

/// Room at a server.
#[derive(Debug)]
struct Place {
    pool: Rc<Pool>,
    server: usize,
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Stream>>>>;

enum Stage {
    /// Not in use.
    Spare,
    /// Kept waiting, to be refused.
    Tarpit,
    /// Receiving the start of its body, before it takes a slot at a server.
    Buffering(Rc<Pool>),
    /// Waiting for room at a server.
    Queued(Rc<Pool>, Rc<Ticket>),
    /// Waiting for a connection to stand.
    Connecting(Connecting),
    /// With a server.
    Open,
    /// Our own answer is being sent.
    Answering,
}

/// How far the response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Response {
    Head,
    Body,
    Done,
}

/// What becomes of the client's connection.
#[derive(Debug)]
pub(crate) enum After {
    /// The next request.
    Next,
    /// The end, at once.
    Close,
    /// The end, after the client had a chance to read its answer.
    Linger,
    /// The end, in a way that shows that something is missing.
    Reset,
    /// The end, in a way that shows as little as can be.
    Vanish,
    /// Another protocol.
    Tunnel(Box<Tunnelled>),
}

/// What a tunnel starts from.
#[derive(Debug)]
pub(crate) struct Tunnelled {
    pub(crate) server: ServerConn,
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
    pub(crate) tunnel_ns: u64,
}

/// What moving one direction brought.
enum Moved {
    /// Something moved; look again.
    Some,
    /// Nothing can be moved just now.
    Nothing,
    /// The exchange is over, and this is what becomes of the connection.
    Over(After),
}

/// How often one poll moves something before others get their turn.
const MOVES_MAX: u32 = 32;

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Spare,
            live: None,
            detached: None,
            listener: 0,
            place: None,
            want: Want::default(),
            server: None,
            up: Relay::new(),
            down: Relay::new(),
            held: Vec::new(),
            pipe: None,
            response: Response::Head,
            kind: wire::RequestKind::Other,
            version: wire::Version::Http11,
            keeps: false,
            may_pipeline: false,
            server_persists: false,
            idempotent: false,
            upgrade: false,
            expects: false,
            tcp: false,
            up_broken: false,
            needs_new: false,
            interim: 0,
            priority: Priority::Normal,
            deadline_ns: NEVER,
            progress: (0, 0),
            first_byte_from_ns: 0,
            stalled: None,
            facts: Facts::default(),
        }
    }

    /// Makes it ready for the next request.
    pub(crate) fn reset(&mut self) {
        self.stage = Stage::Spare;
        self.live = None;
        self.detached = None;
        self.server = None;
        self.up.reset();
        self.down.reset();
        self.held = Vec::new();
        self.pipe = None;
        self.response = Response::Head;
        self.tcp = false;
        self.up_broken = false;
        self.needs_new = false;
        self.interim = 0;
        self.priority = Priority::Normal;
        self.deadline_ns = NEVER;
        self.progress = (0, 0);
        self.first_byte_from_ns = 0;
        self.stalled = None;
        self.facts.clear();
    }

    /// Moves whatever can be moved. Ready: it is over.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Poll<After> {
        let mut moves = 0;
        loop {
            let moved = match &mut self.stage {
                Stage::Open => self.poll_open(cx, core, link, bench),
                Stage::Answering => self.poll_answering(cx, core, link, bench),
                Stage::Queued(..) => self.poll_queued(cx, core, link, bench),
                Stage::Buffering(_) => self.poll_buffering(cx, core, link, bench),
                Stage::Connecting(_) => self.poll_connecting(cx, core, link, bench),
                Stage::Tarpit => self.poll_tarpit(cx, core, link, bench),
                Stage::Spare => Moved::Over(After::Close),
            };
            match moved {
                Moved::Over(after) => return Poll::Ready(after),
                Moved::Nothing => return Poll::Pending,
                Moved::Some if moves == MOVES_MAX => {
                    rt::stream::yield_turn(cx);
                    return Poll::Pending;
                }
                Moved::Some => moves += 1,
            }
        }
    }

    fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        if self.tcp {
            return self.open_tunnel(core, link, bench);
        }
        let up = match self.poll_request(cx, core, link, bench) {
            Moved::Over(after) => return Moved::Over(after),
            Moved::Some => true,
            Moved::Nothing => false,
        };
        // The request's direction may have ended the stage, for another try.
        if !matches!(self.stage, Stage::Open) {
            return Moved::Some;
        }
        let down = match self.poll_response(cx, core, link, bench) {
            Moved::Over(after) => return Moved::Over(after),
            Moved::Some => true,
            Moved::Nothing => false,
        };
        if self.is_answered() {
            return Moved::Over(self.finish(core, link, &mut bench.rng));
        }
        if !matches!(self.stage, Stage::Open) || up || down {
            link.note_progress();
            return Moved::Some;
        }
        self.wait(cx, core, link, bench)
    }

    /// Whether nothing is left to be done for this request.
    fn is_answered(&self) -> bool {
        if self.response != Response::Done || !self.is_down_flushed() {
            return false;
        }
        // An early answer: the rest of the request is still to be passed on, unless nobody wants it.
        self.up.is_done() || self.up_broken || !self.server_persists || !self.keeps
    }

    /// Nothing moves: waits, as long as it may.
    fn wait(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        let (armed, timeout_ns) = self.waits_for(link);
        let late = match armed {
            Armed::RequestBody if !self.makes_progress(core, link) => true,
            Armed::ClientWrite | Armed::ServerWrite => {
                self.is_stalled(cx, core, link, armed, timeout_ns)
            }
            Armed::FirstByte => {
                let left_ns = self.first_byte_left_ns(core, timeout_ns);
                link.is_late(cx, core, armed, left_ns)
            }
            _ => link.is_late(cx, core, armed, timeout_ns),
        };
        if late {
            let (end, phase) = match armed {
                Armed::ClientWrite => (End::WriteTimeout, self.phase()),
                Armed::RequestBody => (End::BodyTimeout, Phase::Request),
                _ => (End::ServerTimeout, self.phase()),
            };
            return self.fail(core, link, &mut bench.rng, end, phase);
        }
        // Whoever still sends is read from; whoever waits is only watched.
        let watch = match (self.up.is_taken(), self.up_broken) {
            (true, _) => link.watch_client(cx, core, &mut bench.input),
            (false, true) => link.watch_unread(cx),
            (false, false) => Watch::Quiet,
        };
        match watch {
            Watch::Quiet => {}
            // It may have ended only its own side, and gets the rest of its answer.
            Watch::Ended if link.half_close() || self.response != Response::Head => {
                self.keeps &= !link.held.is_empty();
            }
            Watch::Ended | Watch::Gone => {
                let phase = self.phase();
                return self.fail(core, link, &mut bench.rng, End::ClientGone, phase);
            }
        }
        Moved::Nothing
    }

    /// What it waits for just now, and for how long at most.
    fn waits_for(&self, link: &Link) -> (Armed, u64) {
        let Some(place) = &self.place else {
            return (Armed::ClientWrite, link.timeouts().write_ns);
        };
        let server = &place.pool.plan().timeouts;
        if !self.is_down_flushed() {
            (Armed::ClientWrite, link.timeouts().write_ns)
        } else if !self.up.is_flushed() && !self.up_broken {
            (Armed::ServerWrite, server.idle_ns)
        } else if !self.up.is_taken() && !self.up_broken && self.response != Response::Body {
            (Armed::RequestBody, link.timeouts().body_idle_ns)
        } else if self.response == Response::Head {
            (Armed::FirstByte, server.first_byte_ns)
        } else {
            (Armed::ResponseBody, server.idle_ns)
        }
    }

    /// What it is in, for its outcome.
    fn phase(&self) -> Phase {
        match self.response {
            _ if matches!(self.stage, Stage::Queued(..)) => Phase::Queue,
            _ if matches!(self.stage, Stage::Buffering(_)) => Phase::Request,
            _ if matches!(self.stage, Stage::Connecting(_)) => Phase::Connect,
            _ if matches!(self.stage, Stage::Tarpit) => Phase::Tarpit,
            Response::Head if self.up.is_done() => Phase::Head,
            Response::Head => Phase::Request,
            Response::Body => Phase::Data,
            Response::Done => Phase::Last,
        }
    }

    fn poll_answering(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        let _section = core.profile.enter(Section::ForwardResponse);
        let rng = &mut bench.rng;
        let before = self.facts.bytes_out;
        let write_ns = link.timeouts().write_ns;
        match self.down.poll_flush(cx, &mut link.stream, &mut self.facts.bytes_out) {
            Poll::Ready(Ok(())) => Moved::Over(self.finish(core, link, rng)),
            Poll::Ready(Err(_)) => self.fail(core, link, rng, End::ClientGone, Phase::Last),
            Poll::Pending if self.facts.bytes_out > before => {
                link.note_progress();
                Moved::Some
            }
            Poll::Pending if self.is_stalled(cx, core, link, Armed::ClientWrite, write_ns) => {
                self.fail(core, link, rng, End::WriteTimeout, Phase::Last)
            }
            Poll::Pending => Moved::Nothing,
        }
    }

    fn poll_connecting(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        let _section = core.profile.enter(Section::Connect);
        let Stage::Connecting(connecting) = &mut self.stage else {
            return Moved::Nothing;
        };
        match connecting.as_mut().poll(cx) {
            Poll::Ready(Ok(stream)) => {
                self.open(ServerConn::new(stream), false, now_ns());
                Moved::Some
            }
            Poll::Ready(Err(error)) => {
                let exhausted = rt::dial::is_exhausted(&error);
                let end = if exhausted { End::NoDescriptor } else { End::ConnectFailed };
                self.connect_again(core, link, (&mut bench.rng, cx.waker()), end)
            }
            Poll::Pending => {
                let timeout_ns =
                    self.place.as_ref().map_or(0, |p| p.pool.plan().timeouts.connect_ns);
                if link.is_late(cx, core, Armed::Connect, timeout_ns) {
                    return self.connect_again(
                        core,
                        link,
                        (&mut bench.rng, cx.waker()),
                        End::ConnectTimeout,
                    );
                }
                self.watch_early(cx, core, link, bench)
            }
        }
    }

    fn poll_tarpit(
        &mut self,
        cx: &mut Context<'_>,
        core: &Rc<Core>,
        link: &mut Link,
        bench: &mut Bench,
    ) -> Moved {
        // Armed when it began.
        if link.passed() {
            return self.fail(core, link, &mut bench.rng, End::Tarpitted, Phase::Tarpit);
        }
        self.watch_early(cx, core, link, bench)
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("response", &self.response).finish_non_exhaustive()
    }
}
