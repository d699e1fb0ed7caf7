//! The connections of a core, for whoever asks: a list of them, or some that are to end. Nothing is
//! kept for it while nobody asks; then every connection is woken and describes itself.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::str::FromStr;

use rt::tokio::task::yield_now;

use crate::core::Core;

/// Names a connection as long as the process runs: the core, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId {
    pub(crate) core: usize,
    pub(crate) number: u64,
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (generation, place) = (self.number >> 32, self.number & 0xffff_ffff);
        write!(f, "{}.{place}.{generation}", self.core)
    }
}

impl FromStr for SessionId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no id of a connection (`show connections` has them)");
        let mut parts = text.split('.').map(|part| part.parse::<u32>().map_err(|_| wrong()));
        let mut next = || parts.next().unwrap_or_else(|| Err(wrong()));
        let (core, place, generation) = (next()?, next()?, next()?);
        match parts.next() {
            None => Ok(Self {
                core: core as usize,
                number: u64::from(generation) << 32 | u64::from(place),
            }),
            Some(_) => Err(wrong()),
        }
    }
}

/// One connection as it describes itself.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// `None`: a unix socket.
    pub(crate) client: Option<(IpAddr, u16)>,
    pub(crate) listener: Box<str>,
    /// Where its request goes, as far as that is decided.
    pub(crate) pool: Option<Box<str>>,
    pub(crate) server: Option<Box<str>>,
    pub(crate) state: &'static str,
    pub(crate) age_ms: u64,
    /// Requests that it has begun.
    pub(crate) requests: u32,
    /// Received from the client, and confirmed by it: since it stands, where the kernel tells, and
    /// of the request in flight where it does not.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

/// Which connections are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Ids(Vec<SessionId>),
    /// Those with a request that is with this server of this pool.
    Server(Box<str>, Box<str>),
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) wanted: Wanted,
    /// Whether they are to end.
    pub(crate) kill: bool,
    /// How many are described at most.
    pub(crate) most: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) sessions: Vec<Session>,
    /// Those that are not described too.
    pub(crate) matched: usize,
}

/// What a core is being asked about its connections.
#[derive(Debug, Default)]
pub(crate) struct Census {
    asking: Cell<bool>,
    query: RefCell<Option<(Query, Found)>>,
    answered: Cell<usize>,
}

/// How often others get their turn at most until all have answered. All that were woken have it
/// before the first of these is over; some may have ended instead of answering.
const TURNS_MAX: u32 = 4;

impl Wanted {
    fn fits(&self, session: &Session) -> bool {
        match self {
            Self::All => true,
            Self::Ids(ids) => ids.contains(&session.id),
            Self::Server(pool, server) => {
                session.pool.as_ref() == Some(pool) && session.server.as_ref() == Some(server)
            }
        }
    }
}

impl Census {
    /// Whether connections are being asked.
    #[inline]
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.get()
    }

    /// Whether this connection need describe itself: with very many of them that takes its time.
    pub(crate) fn cares(&self, id: SessionId) -> bool {
        let mut query = self.query.borrow_mut();
        let Some((query, found)) = query.as_mut() else { return false };
        match &query.wanted {
            Wanted::All if !query.kill && found.sessions.len() >= query.most => {
                found.matched += 1;
                false
            }
            Wanted::Ids(ids) => ids.contains(&id),
            Wanted::All | Wanted::Server(..) => true,
        }
    }

    /// Whether somebody looks at what they say, and not only at who they are.
    pub(crate) fn lists(&self) -> bool {
        self.query.borrow().as_ref().is_some_and(|(query, _)| query.most > 0)
    }

    /// One connection has been asked.
    pub(crate) fn note_asked(&self) {
        self.answered.set(self.answered.get() + 1);
    }

    /// One connection's answer; whether it is to end.
    pub(crate) fn answer(&self, session: Session) -> bool {
        let mut query = self.query.borrow_mut();
        let Some((query, found)) = query.as_mut() else { return false };
        if !query.wanted.fits(&session) {
            return false;
        }
        found.matched += 1;
        if found.sessions.len() < query.most {
            found.sessions.push(session);
        }
        query.kill
    }
}

/// Asks all connections of a core.
pub(crate) async fn ask(core: &Rc<Core>, query: Query) -> Found {
    let census = &core.census;
    *census.query.borrow_mut() = Some((query, Found::default()));
    census.answered.set(0);
    census.asking.set(true);
    let asked = core.deadlines.ask_all();
    for _ in 0..TURNS_MAX {
        yield_now().await;
        if census.answered.get() >= asked {
            break;
        }
    }
    census.asking.set(false);
    let query = census.query.borrow_mut().take();
    query.map(|(_, found)| found).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(core: usize, server: Option<&str>) -> Session {
        Session {
            id: SessionId { core, number: 1 << 32 },
            client: None,
            listener: "web".into(),
            pool: server.map(|_| "app".into()),
            server: server.map(Into::into),
            state: "idle",
            age_ms: 0,
            requests: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = SessionId { core: 3, number: 7 << 32 | 12 };
        assert_eq!(id.to_string(), "3.12.7");
        assert_eq!("3.12.7".parse(), Ok(id));
        for wrong in ["", "3", "3.12", "3.12.7.1", "a.b.c", "-1.0.0", "1.2.99999999999"] {
            assert!(wrong.parse::<SessionId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_what_is_wanted_is_found_and_ended_and_the_list_is_bounded() {
        let census = Census::default();
        let ask = |wanted: Wanted, kill: bool| {
            *census.query.borrow_mut() = Some((Query { wanted, kill, most: 1 }, Found::default()));
        };
        ask(Wanted::Server("app".into(), "a".into()), true);
        assert!(!census.answer(session(0, None)) && !census.answer(session(0, Some("b"))));
        assert!(census.answer(session(0, Some("a"))) && census.answer(session(1, Some("a"))));
        let (_, found) = census.query.borrow_mut().take().unwrap();
        assert_eq!((found.sessions.len(), found.matched), (1, 2));
        ask(Wanted::Ids(vec![session(1, None).id]), true);
        assert!(!census.answer(session(0, None)) && census.answer(session(1, None)));
        ask(Wanted::All, false);
        let id = session(0, None).id;
        assert!(census.cares(id) && !census.answer(session(0, None)));
        // It has what it wanted, and goes on to count.
        assert!(!census.cares(id));
        assert_eq!(census.query.borrow_mut().take().unwrap().1.matched, 2);
        ask(Wanted::Ids(vec![id]), true);
        assert!(census.cares(id) && !census.cares(session(1, None).id));
    }
}
