//! The state of one request in flight. A core keeps unused ones, so it is below the core;
//! [`crate::exchange`] moves it from stage to stage.

mod hedge;
mod outcome_builder;
mod stages;

use std::cell::Cell;
use std::rc::Rc;

use content::body::FileBody;
use rt::clock::MonotonicTime;
use rt::splice::Pipe;

pub(crate) use hedge::{Hedge, HedgeAttempt, HedgeLink, HedgeState};
use outcome_builder::OutcomeBuilder;
pub(crate) use stages::{Attempt, Connecting, DetachedNames};
use stages::{ProgressTimers, RequestFacts, SlotTerms};

use crate::accept::AcceptedForms;
use crate::auth_core::{AuthWait, RequestAccess};
use crate::bandwidth::BandwidthGate;
use crate::caching::{CacheStage, CacheUse};
use crate::config_generation::ConfigGeneration;
use crate::mirror::MirroredRequest;
use crate::outcome::EndReason;
use crate::plan::{Priority, RouteSettings, ServerId};
use crate::pool::{NO_DEADLINE, Pool, Ticket};
use crate::recoding::Recoding;
use crate::relay::Relay;
use crate::route::values::KeptValues;
use crate::server_conn::ServerConn;

/// One request in flight.
pub(crate) struct Exchange {
    pub(crate) stage: ExchangeStage,
    pub(crate) generation: Option<Rc<ConfigGeneration>>,
    /// In a tunnel, the kept part of `generation`.
    pub(crate) detached: Option<Box<DetachedNames>>,
    /// Index in the listeners of the plan in force.
    pub(crate) listener: usize,
    pub(crate) facts: RequestFacts,
    pub(crate) terms: SlotTerms,
    /// Settings of a route that has some of its own.
    pub(crate) own_settings: Option<Rc<RouteSettings>>,
    pub(crate) slot: Option<ServerSlot>,
    pub(crate) server: Option<ServerConn>,
    pub(crate) attempt: Attempt,
    pub(crate) request_relay: Relay,
    pub(crate) response_relay: Relay,
    /// Bytes received from the server and not processed yet.
    pub(crate) unprocessed: Vec<u8>,
    /// Pipe for a long body, while one is being spliced.
    pub(crate) pipe: Option<Pipe>,
    pub(crate) response: ResponseProgress,
    pub(crate) interim_count: u32,
    pub(crate) progress: ProgressTimers,
    /// True if the client's connection may stay open after this request.
    pub(crate) keeps_client: bool,
    /// Access to a route that is not open to all.
    pub(crate) access: Option<Box<RequestAccess>>,
    /// Values for the fields of the response.
    pub(crate) kept: KeptValues,
    pub(crate) outcome: OutcomeBuilder,
    /// `None`: the request is a client's.
    pub(crate) subrequest: Option<Rc<SubrequestReport>>,
    /// Copies for other pools.
    pub(crate) mirrored: Option<Box<MirroredRequest>>,
    /// Use of the cache of its route; `None`: its route has none, or the request does not need it any more.
    pub(crate) caching: Option<Box<CacheUse>>,
    /// Second attempt; `None`: not yet, or not any more.
    pub(crate) hedge: Option<Box<Hedge>>,
}

/// End of a subrequest, for its caller.
#[derive(Debug, Default)]
pub(crate) struct SubrequestReport {
    /// `None` until it has ended.
    pub(crate) end: Cell<Option<EndReason>>,
}

#[derive(Debug)]
pub(crate) struct ServerSlot {
    pub(crate) pool: Rc<Pool>,
    pub(crate) server: ServerId,
}

pub(crate) enum ExchangeStage {
    /// Not in use.
    Unused,
    /// Delayed, and rejected afterwards.
    Tarpit,
    /// Receiving the start of the body, before taking a slot at a server.
    Buffering(Rc<Pool>),
    /// Waiting for a free slot at a server.
    Queued(Rc<Pool>, Rc<Ticket>),
    Connecting(Connecting),
    Connected,
    /// Waiting for the answer about its credentials.
    Authorising(Box<AuthWait>),
    /// Connected, with a response whose content gets a coding.
    Recoding(Box<Recoding>),
    /// One of the stages around this one, or sending a file, with limits of bytes per second.
    Limited(Box<LimitedStage>),
    /// Sending a response of the proxy's own.
    Responding,
    /// Sending the content of a file.
    SendingFile(Box<FileBody>),
    /// Waiting for a stored response, or sending one.
    Cached(Box<CacheStage>),
}

/// A stage whose bytes per second are limited.
pub(crate) struct LimitedStage {
    pub(crate) inner: ExchangeStage,
    pub(crate) download: Option<BandwidthGate>,
    pub(crate) upload: Option<BandwidthGate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseProgress {
    Head,
    Body,
    Done,
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            stage: ExchangeStage::Unused,
            generation: None,
            detached: None,
            listener: 0,
            facts: RequestFacts::default(),
            terms: SlotTerms::default(),
            own_settings: None,
            access: None,
            slot: None,
            server: None,
            attempt: Attempt::default(),
            request_relay: Relay::new(),
            response_relay: Relay::new(),
            unprocessed: Vec::new(),
            pipe: None,
            response: ResponseProgress::Head,
            interim_count: 0,
            progress: ProgressTimers::default(),
            keeps_client: false,
            kept: KeptValues::default(),
            outcome: OutcomeBuilder::default(),
            subrequest: None,
            mirrored: None,
            caching: None,
            hedge: None,
        }
    }

    /// Returns the capacity of the buffers that a reset keeps, at most.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.request_relay.kept_bytes() + self.response_relay.kept_bytes() + self.outcome.kept_bytes()
    }

    pub(crate) fn reset(&mut self) {
        self.stage = ExchangeStage::Unused;
        self.generation = None;
        self.detached = None;
        if self.own_settings.take().is_some() {
            self.access = None;
            self.caching = None;
        }
        self.server = None;
        self.request_relay.reset();
        self.response_relay.reset();
        self.unprocessed = Vec::new();
        self.pipe = None;
        self.response = ResponseProgress::Head;
        self.facts.is_tcp = false;
        self.facts.accepted_forms = AcceptedForms::default();
        self.attempt.is_request_broken = false;
        self.attempt.holds_head = false;
        self.attempt.needs_new_connection = false;
        self.attempt.needs_http11 = false;
        self.attempt.unreceived_count = 0;
        self.interim_count = 0;
        self.terms.priority = Priority::Normal;
        self.terms.deadline = NO_DEADLINE;
        self.attempt.first_byte_wait_start = MonotonicTime::ZERO;
        self.progress = ProgressTimers::default();
        self.outcome.clear();
        self.subrequest = None;
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("response", &self.response).finish_non_exhaustive()
    }
}
