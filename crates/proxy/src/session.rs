//! The connections of a core, for the control socket: a list of them, or some to close. There is no
//! bookkeeping between queries; a query wakes every connection, which then describes itself.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::str::FromStr;

use rt::deadlines::Deadlines;
use rt::tokio::task::yield_now;

/// Id of a connection, unique for the lifetime of the process: the core, the slot and
/// the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId {
    pub(crate) core: usize,
    pub(crate) slot_key: u64,
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (generation, slot) = (self.slot_key >> 32, self.slot_key & 0xffff_ffff);
        write!(f, "{}.{slot}.{generation}", self.core)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid connection id '{0}' (`show connections` lists them)")]
pub struct SessionIdError(Box<str>);

impl FromStr for SessionId {
    type Err = SessionIdError;

    fn from_str(text: &str) -> Result<Self, SessionIdError> {
        let invalid = || SessionIdError(text.into());
        let mut parts = text.split('.').map(|part| part.parse::<u32>().map_err(|_| invalid()));
        let mut next = || parts.next().unwrap_or_else(|| Err(invalid()));
        let (core, slot, generation) = (next()?, next()?, next()?);
        match parts.next() {
            None => Ok(Self { core: core as usize, slot_key: u64::from(generation) << 32 | u64::from(slot) }),
            Some(_) => Err(invalid()),
        }
    }
}

code_table! {
    #[derive(Default)]
    pub enum SessionState:
    ProxyHeader, "proxy-header";
    ClientHello, "client-hello";
    TlsHandshake, "tls-handshake";
    #[default]
    Idle, "idle";
    RequestHead, "request-head";
    Http2, "http2";
    Tarpit, "tarpit";
    Request, "request";
    Queue, "queue";
    Connect, "connect";
    Server, "server";
    Response, "response";
    Tunnel, "tunnel";
    Closing, "closing";
}

#[derive(Clone, Debug)]
pub struct Session {
    pub id: SessionId,
    /// `None`: a unix socket.
    pub client: Option<(IpAddr, u16)>,
    pub listener: Box<str>,
    /// Pool and server of its request, if already selected.
    pub pool: Option<Box<str>>,
    pub server: Option<Box<str>>,
    pub state: SessionState,
    pub age_ms: u64,
    pub requests: u32,
    /// Bytes received from the client. This and the next field count since the connection's start
    /// if the kernel reports them, otherwise only for the request in flight. The next one counts
    /// bytes that the client has acknowledged.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionFilter {
    All,
    Ids(Vec<SessionId>),
    /// Connections with a request at this server of this pool.
    Server(Box<str>, Box<str>),
}

#[derive(Clone, Debug)]
pub struct SessionQuery {
    pub filter: SessionFilter,
    /// True if the matching connections are to be closed.
    pub closes: bool,
    pub max: usize,
}

/// Result of a query.
#[derive(Debug, Default)]
pub struct SessionList {
    pub sessions: Vec<Session>,
    /// Number of matching connections, including those not described.
    pub matched: usize,
}

/// Current query to a core's connections.
#[derive(Debug, Default)]
pub(crate) struct SessionDump {
    is_active: Cell<bool>,
    query: RefCell<Option<(SessionQuery, SessionList)>>,
    notified_count: Cell<usize>,
}

/// Maximum number of times that other tasks run until all connections have responded. All woken
/// connections run before the first of these is over; some may have closed instead of responding.
const YIELDS_MAX: u32 = 4;

impl SessionFilter {
    fn matches(&self, session: &Session) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.contains(&session.id),
            Self::Server(pool, server) => {
                session.pool.as_ref() == Some(pool) && session.server.as_ref() == Some(server)
            }
        }
    }
}

impl SessionDump {
    /// Queries all connections of a core, which `deadlines` wakes.
    pub(crate) async fn run(&self, deadlines: &Deadlines, query: SessionQuery) -> SessionList {
        *self.query.borrow_mut() = Some((query, SessionList::default()));
        self.notified_count.set(0);
        self.is_active.set(true);
        let notified = deadlines.notify_all();
        for _ in 0..YIELDS_MAX {
            yield_now().await;
            if self.notified_count.get() >= notified {
                break;
            }
        }
        self.is_active.set(false);
        let query = self.query.borrow_mut().take();
        query.map(|(_, list)| list).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn has_query(&self) -> bool {
        self.is_active.get()
    }

    /// Returns whether this connection needs to describe itself. Descriptions of very many
    /// connections take time.
    pub(crate) fn needs_description(&self, id: SessionId) -> bool {
        let mut query = self.query.borrow_mut();
        let Some((query, list)) = query.as_mut() else { return false };
        match &query.filter {
            SessionFilter::All if !query.closes && list.sessions.len() >= query.max => {
                list.matched += 1;
                false
            }
            SessionFilter::Ids(ids) => ids.contains(&id),
            SessionFilter::All | SessionFilter::Server(..) => true,
        }
    }

    /// Returns whether the query selects all connections.
    pub(crate) fn is_for_all(&self) -> bool {
        self.query.borrow().as_ref().is_some_and(|(query, _)| query.filter == SessionFilter::All)
    }

    /// Returns whether the query needs the descriptions, and not only the count.
    pub(crate) fn lists_sessions(&self) -> bool {
        self.query.borrow().as_ref().is_some_and(|(query, _)| query.max > 0)
    }

    /// Counts a connection that has processed the query.
    pub(crate) fn count_notified(&self) {
        self.notified_count.set(self.notified_count.get() + 1);
    }

    /// Adds one connection's description. Returns whether the connection must close.
    pub(crate) fn add_session(&self, session: Session) -> bool {
        let mut query = self.query.borrow_mut();
        let Some((query, list)) = query.as_mut() else { return false };
        if !query.filter.matches(&session) {
            return false;
        }
        list.matched += 1;
        if list.sessions.len() < query.max {
            list.sessions.push(session);
        }
        query.closes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(core: usize, server: Option<&str>) -> Session {
        Session {
            id: SessionId { core, slot_key: 1 << 32 },
            client: None,
            listener: "web".into(),
            pool: server.map(|_| "app".into()),
            server: server.map(Into::into),
            state: SessionState::Idle,
            age_ms: 0,
            requests: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    #[test]
    fn an_id_round_trips() {
        let id = SessionId { core: 3, slot_key: 7 << 32 | 12 };
        assert_eq!(id.to_string(), "3.12.7");
        assert_eq!("3.12.7".parse(), Ok(id));
        for invalid in ["", "3", "3.12", "3.12.7.1", "a.b.c", "-1.0.0", "1.2.99999999999"] {
            assert!(invalid.parse::<SessionId>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn only_matching_sessions_are_listed_and_closed_and_the_list_is_bounded() {
        let dump = SessionDump::default();
        let start_query = |filter: SessionFilter, closes: bool| {
            *dump.query.borrow_mut() =
                Some((SessionQuery { filter, closes, max: 1 }, SessionList::default()));
        };
        start_query(SessionFilter::Server("app".into(), "a".into()), true);
        assert!(!dump.add_session(session(0, None)) && !dump.add_session(session(0, Some("b"))));
        assert!(dump.add_session(session(0, Some("a"))) && dump.add_session(session(1, Some("a"))));
        let (_, list) = dump.query.borrow_mut().take().unwrap();
        assert_eq!((list.sessions.len(), list.matched), (1, 2));
        start_query(SessionFilter::Ids(vec![session(1, None).id]), true);
        assert!(!dump.add_session(session(0, None)) && dump.add_session(session(1, None)));
        start_query(SessionFilter::All, false);
        let id = session(0, None).id;
        assert!(dump.needs_description(id) && !dump.add_session(session(0, None)));
        // The list is full; further ones are only counted.
        assert!(!dump.needs_description(id));
        assert_eq!(dump.query.borrow_mut().take().unwrap().1.matched, 2);
        start_query(SessionFilter::Ids(vec![id]), true);
        assert!(dump.needs_description(id) && !dump.needs_description(session(1, None).id));
    }
}
