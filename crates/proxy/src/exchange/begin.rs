//! From a request's head to an exchange that has somewhere to go: the route, its limits and its
//! action, room at a server, a connection.

use std::rc::Rc;
use std::task::Waker;

use rt::address::Address;
use rt::clock::now_ns;
use wire::{Framing, RefusalKind, RequestHead, RequestKind};

use super::finish::ALLOWED;
use super::{Exchange, Moved, Place, Stage};
use crate::conn::{Armed, Link};
use crate::core::{Core, Live};
use crate::forward::{
    ClientFraming, Origin, RequestParts, counts_hops, has_underscore, max_forwards, origin_form,
    write_request,
};
use crate::outcome::{End, Phase};
use crate::plan::{Action, ListenerPlan, Reuse, Underscores};
use crate::pool::{Pool, ServerConn, Want};
use crate::profile::Phase as Section;
use crate::route::{
    Asked, Key, RetryAfterNs, Scratch, forwarded, location, rewrite_target, rewrites,
};

/// What an exchange begins with, besides its head.
pub(crate) struct Begun<'a> {
    pub(crate) live: Rc<Live>,
    /// Index of the listener in the live plan.
    pub(crate) listener: usize,
    /// Bytes of the head.
    pub(crate) head_bytes: usize,
    /// When its first byte was there, and when all of it was.
    pub(crate) start_ns: u64,
    pub(crate) now_ns: u64,
    pub(crate) waker: &'a Waker,
    pub(crate) target: &'a mut Vec<u8>,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) rng: &'a mut fastrand::Rng,
}

impl Exchange {
    /// Begins with a head that was read.
    pub(crate) fn begin(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        head: &RequestHead<'_, '_>,
        mut begun: Begun<'_>,
    ) {
        // Taken out, because the target in it goes with the head.
        let mut room = std::mem::take(&mut begun.scratch.target);
        self.begin_routed(core, link, head, &mut begun, &mut room);
        begun.scratch.target = room;
    }

    fn begin_routed(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        head: &RequestHead<'_, '_>,
        begun: &mut Begun<'_>,
        room: &mut String,
    ) {
        let _section = core.profile.enter(Section::Route);
        self.live = Some(Rc::clone(&begun.live));
        self.listener = begun.listener;
        self.kind = RequestKind::of(head.method);
        self.version = head.version;
        self.may_pipeline = head.keep_alive;
        // Behind a CONNECT come the bytes of a tunnel, also when there is none.
        self.keeps = head.keep_alive && self.kind != RequestKind::Connect;
        self.idempotent =
            matches!(head.method, "GET" | "HEAD" | "PUT" | "DELETE" | "OPTIONS" | "TRACE");
        self.facts.begin(begun.start_ns, begun.now_ns, begun.head_bytes);
        self.facts.note_asked(head, core.wants_fields());
        let listener = &begun.live.plan.listeners[begun.listener];
        self.up.begin(head.framing, request_framing(head.framing), &listener.limits);
        let rng = &mut *begun.rng;
        let bounded = self.over_a_bound(link, begun.now_ns);
        if let Some(end) = bounded.or_else(|| forbidden(listener, self.kind, head.framing)) {
            self.refuse(core, link, rng, end);
            return;
        }
        match in_form(head, listener, link.peer.trusted, room) {
            Err(kind) => {
                self.facts.refusal = Some(kind);
                self.facts.refusal_status = kind.status();
                self.refuse(core, link, rng, End::BadRequest);
            }
            Ok(_) if is_last_hop(head) => self.answer_last_hop(core, link, head.method),
            Ok((target, is_plain)) if std::ptr::eq(target, head.target) => {
                self.follow_route(core, link, head, is_plain, begun);
            }
            Ok((target, is_plain)) => {
                let head = RequestHead { target, ..*head };
                self.follow_route(core, link, &head, is_plain, begun);
            }
        }
    }

    /// Finds the route of a request whose target is in its form, and does what it says.
    fn follow_route(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        head: &RequestHead<'_, '_>,
        is_plain: bool,
        begun: &mut Begun<'_>,
    ) {
        let live = &*begun.live;
        let rng = &mut *begun.rng;
        let asked = Asked {
            listener: begun.listener,
            method: head.method,
            target: head.target,
            is_plain,
            trusted: link.peer.trusted,
            host: head.host,
            headers: head.headers,
            source: link.peer.address,
        };
        let Some(route) = live.router.pick(&asked, begun.scratch) else {
            return self.refuse(core, link, rng, End::NoRoute);
        };
        self.facts.route = Some(route);
        if let Err(RetryAfterNs(wait_ns)) = admit(live, route, &asked, begun.now_ns) {
            self.facts.retry_after_s = wait_ns.div_ceil(1_000_000_000);
            let limit = live.plan.routes[route].rate_limit.as_ref();
            self.facts.refusal_status = limit.map_or(0, |limit| limit.status);
            self.refuse(core, link, rng, End::RateLimited);
            return;
        }
        let pool = match &live.plan.routes[route].action {
            Action::Forward(pool) => *pool,
            other => {
                self.act(core, link, (rng, begun.waker), head, other);
                return;
            }
        };
        self.want = self.wanted(&live.pools[pool], &asked, begun.scratch);
        self.note_urgency(link, live, route, head.headers);
        let writing = core.profile.enter(Section::ForwardRequest);
        self.write_upstream_head(link, live, (route, pool), head, begun.target, rng);
        drop(writing);
        let pool = Rc::clone(&live.pools[pool]);
        self.buffer_or_enter(core, link, pool, begun.now_ns, (rng, begun.waker));
    }

    /// Why its connection or its source may have no request now.
    fn over_a_bound(&mut self, link: &Link, now_ns: u64) -> Option<End> {
        let (end, seconds) = link.refuses(now_ns)?;
        self.keeps &= !link.is_turned();
        self.facts.retry_after_s = seconds;
        Some(end)
    }

    /// Begins, and ends, with bytes that are no request.
    pub(crate) fn begin_refused(
        &mut self,
        core: &Core,
        link: &mut Link,
        refusal: Result<wire::Refusal, End>,
        begun: Begun<'_>,
    ) {
        self.live = Some(begun.live);
        self.listener = begun.listener;
        self.kind = RequestKind::Other;
        self.version = wire::Version::Http11;
        self.keeps = false;
        self.may_pipeline = true;
        self.facts.begin(begun.start_ns, begun.now_ns, begun.head_bytes);
        // What comes behind it is not to be read.
        self.up_broken = true;
        let end = match refusal {
            Ok(refusal) => {
                self.facts.refusal = Some(refusal.kind());
                self.facts.refusal_status = refusal.status();
                End::BadRequest
            }
            Err(end) => end,
        };
        self.refuse(core, link, begun.rng, end);
    }

    /// Begins to carry bytes to a pool, without a head.
    pub(crate) fn begin_tcp(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        pool: usize,
        begun: Begun<'_>,
    ) {
        let live = Rc::clone(&begun.live);
        self.live = Some(begun.live);
        self.listener = begun.listener;
        self.tcp = true;
        self.keeps = false;
        self.facts.begin(begun.start_ns, begun.now_ns, 0);
        self.want = Self::wanted_tcp(&live.pools[pool], link.peer.address);
        let pool = Rc::clone(&live.pools[pool]);
        self.enter_pool(core, link, pool, begun.now_ns, (begun.rng, begun.waker));
    }

    /// Answers as the recipient that a request was meant to reach (RFC 9110 §7.6.2).
    fn answer_last_hop(&mut self, core: &Core, link: &Link, method: &str) {
        if method == "OPTIONS" {
            return self.answer(core, link, 200, "", b"", &[("Allow", ALLOWED.as_bytes())]);
        }
        let text = b"405 Method Not Allowed: this proxy does not send requests back\n";
        self.answer(core, link, 405, "text/plain", text, &[]);
    }

    /// Answers that it will not be done; the connection stays if it can.
    fn refuse(&mut self, core: &Core, link: &mut Link, rng: &mut fastrand::Rng, end: End) {
        // What comes of it is done by the poll that follows.
        let _ = self.fail(core, link, rng, end, Phase::Request);
    }

    /// The actions that need no server.
    fn act(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        (rng, waker): (&mut fastrand::Rng, &Waker),
        head: &RequestHead<'_, '_>,
        action: &Action,
    ) {
        match action {
            Action::Forward(_) => {}
            Action::Redirect { status, location: template } => {
                let to = location(template, head.host, head.target);
                self.answer(core, link, *status, "text/plain", b"", &[("Location", &to)]);
            }
            Action::Answer { status, content_type, body } => {
                self.answer(core, link, *status, content_type, body, &[]);
            }
            Action::Deny(status) => {
                self.facts.refusal_status = *status;
                self.refuse(core, link, rng, End::Denied);
            }
            Action::SilentDrop => self.refuse(core, link, rng, End::SilentlyDropped),
            Action::Tarpit { delay_ns, status } => {
                self.facts.refusal_status = *status;
                self.stage = Stage::Tarpit;
                link.arm(core, waker, Armed::Tarpit, *delay_ns);
            }
        }
    }

    fn write_upstream_head(
        &mut self,
        link: &Link,
        live: &Live,
        (route, pool): (usize, usize),
        head: &RequestHead<'_, '_>,
        target: &mut Vec<u8>,
        rng: &mut fastrand::Rng,
    ) {
        let listener = &live.plan.listeners[self.listener];
        let changes = &live.plan.routes[route].changes;
        let form = origin_form(head.method, head.target);
        let rewritten = if rewrites(changes) {
            target.clear();
            // It was visible ASCII when it was parsed.
            rewrite_target(changes, std::str::from_utf8(&form).unwrap_or_default(), target);
            target.as_slice()
        } else {
            &form
        };
        // Upgrading to HTTP/2 would take what follows out of our sight (RFC 9113 §3.1 drops it too).
        let upgrade = head.upgrade.filter(|to| !names_http2(to));
        self.upgrade = upgrade.is_some();
        self.expects = head.expect_continue;
        let plan = &live.plan.pools[pool];
        let default_host = plan.servers.first().map_or("", |server| &server.name);
        let origin = Origin {
            client: link.peer.address,
            trusted: link.peer.trusted,
            forwarding: &listener.forwarding,
            fresh_id: &fresh_id(rng),
        };
        let parts = RequestParts {
            target: rewritten,
            default_host,
            changes,
            upgrade,
            sticky: plan.sticky.as_ref(),
        };
        let out = self.up.head();
        let id = write_request(head, origin, parts, out);
        self.facts.note_id(&out[id]);
        self.up.keep();
    }

    /// Goes to a server that has room, on an idle connection if one will do.
    pub(super) fn dispatch(&mut self, core: &Core, link: &mut Link, place: Place, now_ns: u64) {
        let _section = core.profile.enter(Section::Connect);
        self.facts.server = Some(place.server);
        self.facts.times.dispatched_ns = now_ns;
        let idle = self.idle_connection(link, &place);
        let (pool, server) = (Rc::clone(&place.pool), place.server);
        self.place = Some(place);
        match idle {
            Some(conn) => self.open(conn, true, now_ns),
            None => self.connect(link, &pool, server),
        }
    }

    fn idle_connection(&self, link: &mut Link, place: &Place) -> Option<ServerConn> {
        // Where bytes of no known protocol go, nothing may have gone before.
        if self.needs_new || self.tcp {
            return None;
        }
        let Place { pool, server } = place;
        match pool.reuse() {
            Reuse::Never => link.take_own(pool, *server),
            // A first request that fails on an idle connection would fail for a client that cannot
            // know that it might be tried again.
            Reuse::Safe if link.requests == 1 && !(self.idempotent && self.up.is_kept()) => None,
            Reuse::Safe | Reuse::Always => pool.take_idle(*server),
        }
    }

    /// Makes a new connection to a server.
    fn connect(&mut self, link: &Link, pool: &Pool, server: usize) {
        let plan = pool.plan();
        let address: Address = plan.servers[server].address.clone();
        if let Some(version) = plan.send_proxy_protocol {
            self.up.prefix(|out| link.write_proxy_header(version, out));
        }
        let namespace = pool.namespace();
        self.stage = Stage::Connecting(Box::pin(async move {
            rt::dial::connect_in(&address, None, namespace.as_ref()).await
        }));
    }

    /// Tries a new connection to the same server.
    pub(super) fn reconnect(&mut self, link: &Link) {
        self.server = None;
        self.needs_new = true;
        if let Some(Place { pool, server }) = &self.place {
            let (pool, server) = (Rc::clone(pool), *server);
            self.connect(link, &pool, server);
        }
    }

    /// A connection could not be made: tries another server if there is one, and another time if not.
    pub(super) fn connect_again(
        &mut self,
        core: &Rc<Core>,
        link: &mut Link,
        (rng, waker): (&mut fastrand::Rng, &Waker),
        end: End,
    ) -> Moved {
        let Some(Place { pool, server }) = self.place.take() else {
            return self.fail(core, link, rng, end, Phase::Connect);
        };
        pool.observe_failure(server);
        let is_last = self.facts.retries >= pool.plan().retries_max;
        if is_last || !self.may_retry(&pool) {
            self.place = Some(Place { pool, server });
            return self.fail(core, link, rng, end, Phase::Connect);
        }
        self.facts.retries += 1;
        link.disarm();
        let now_ns = now_ns();
        if end != End::NoDescriptor {
            pool.note_unreachable(server, now_ns);
        }
        self.learn_failure(&pool, server, end, now_ns);
        pool.release(server, rng);
        let want = Want { avoid: Some(server), ..self.want };
        match pool.acquire(want, now_ns, rng) {
            Some(server) => self.dispatch(core, link, Place { pool, server }, now_ns),
            None => self.enqueue(core, link, pool, rng, waker),
        }
        Moved::Some
    }

    /// Whether the budget of the pool has another try; counted if not.
    pub(super) fn may_retry(&self, pool: &Pool) -> bool {
        let may = pool.may_retry(now_ns());
        if !may {
            self.live.as_ref().inspect(|live| live.metrics.retry_denied(pool.index()));
        }
        may
    }

    /// A connection stands.
    pub(super) fn open(&mut self, conn: ServerConn, reused: bool, now_ns: u64) {
        self.first_byte_from_ns = 0;
        self.facts.reused = reused;
        self.facts.times.connected_ns = now_ns;
        self.server = Some(conn);
        self.stage = Stage::Open;
    }
}

/// The target to route by and to forward, by the listener's rules for paths and field names, and
/// whether it is known to be plain.
fn in_form<'a>(
    head: &RequestHead<'_, 'a>,
    listener: &ListenerPlan,
    trusted: bool,
    room: &'a mut String,
) -> Result<(&'a str, bool), RefusalKind> {
    let rejects = listener.forwarding.underscores == Underscores::Reject && !trusted;
    if rejects && head.headers.iter().any(|header| has_underscore(header.name)) {
        return Err(RefusalKind::UnderscoreInFieldName);
    }
    forwarded(head.target, listener.path, room).ok_or(RefusalKind::AmbiguousPath)
}

/// Whether `Max-Forwards` says that a request goes no further.
fn is_last_hop(head: &RequestHead<'_, '_>) -> bool {
    counts_hops(head.method)
        && wire::field_value(head.headers, "max-forwards").and_then(max_forwards) == Some(0)
}

/// Why a listener does not let such a request in, whatever its route is.
fn forbidden(listener: &ListenerPlan, kind: RequestKind, framing: Framing) -> Option<End> {
    match (framing, listener.body_bytes_max) {
        _ if kind == RequestKind::Connect && !listener.connect => Some(End::ConnectForbidden),
        (Framing::Length(bytes), Some(max)) if bytes > max => Some(End::BodyTooLarge),
        _ => None,
    }
}

/// Whether a list of protocols has HTTP/2 in any of its forms: names of protocols are compared
/// without case by those who get them.
fn names_http2(protocols: &str) -> bool {
    protocols
        .split(',')
        .any(|one| one.trim().get(..2).is_some_and(|start| start.eq_ignore_ascii_case("h2")))
}

fn request_framing(came: Framing) -> ClientFraming {
    match came {
        // A request is never `UntilClose`.
        Framing::None | Framing::UntilClose => ClientFraming::None,
        Framing::Length(_) => ClientFraming::Length,
        Framing::Chunked => ClientFraming::Chunked,
    }
}

/// Takes a token of the route's rate limit, if it has one.
fn admit(live: &Live, route: usize, asked: &Asked<'_>, now_ns: u64) -> Result<(), RetryAfterNs> {
    let Some(limit) = &live.plan.routes[route].rate_limit else {
        return Ok(());
    };
    match &mut live.limiters.borrow_mut()[route] {
        Some(limiter) => limiter.admit(Key::of(&limit.key, asked), now_ns),
        None => Ok(()),
    }
}

/// A request id: 128 random bits in hexadecimal. Unique, not secret.
fn fresh_id(rng: &mut fastrand::Rng) -> [u8; 32] {
    let bits = rng.u128(..);
    std::array::from_fn(|at| b"0123456789abcdef"[(bits >> (124 - 4 * at)) as usize & 0xf])
}
