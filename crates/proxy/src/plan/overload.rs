//! What a plan says of overload: bounds, queues, budgets, and what becomes of what does not fit.
//! Types and their defaults only, as in [`super`].

/// In what order a queue is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// The oldest first, and the newest first once it has stood for [`super::QueuePlan::stands_after_ns`].
    /// The default.
    Adaptive,
    /// The oldest first, always.
    OldestFirst,
    /// The newest first, always.
    NewestFirst,
}

/// How urgent a route's requests are in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all others.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others, and put out first.
    Low,
}

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// Bounds of a pool beside those of its servers, and its budget of retries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolBounds {
    /// Requests that all servers together may have at a time, on all cores; `None`: any number.
    pub maxconn: Option<usize>,
    /// Servers' bounds follow what they can do; `None`: they stay as they are.
    pub adaptive: Option<AdaptivePlan>,
    /// How many retries there may be for so many requests.
    pub retry_budget: RetryBudgetPlan,
}

/// A bound of each server that follows what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptivePlan {
    /// Requests that a server may always have: 4.
    pub min: usize,
    /// Requests that it may have at most: 1,000; a server's own `maxconn` is less, if it has one.
    pub max: usize,
}

/// How many retries there may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetPlan {
    /// Of the requests of the window: 0.2.
    pub share: f64,
    /// So many are allowed in any window: 3.
    pub min: u32,
    /// How far back is counted: 10 s.
    pub window_ns: u64,
}

impl Default for RetryBudgetPlan {
    fn default() -> Self {
        Self { share: 0.2, min: 3, window_ns: 10_000_000_000 }
    }
}

/// Which connections and requests a listener takes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// Connections that the kernel keeps, for each core, that nobody has accepted: 1,024.
    pub backlog: u32,
    /// How many connections a second, on all cores; `None`: any number.
    pub connections_rate: Option<Rate>,
    /// What becomes of a connection over a bound; `None`: it is rejected over a rate, and waits over
    /// `connections-max`.
    pub on_limit: Option<OnLimit>,
    /// What one network of clients may have; `None`: no bound.
    pub per_source: Option<SourcePlan>,
    /// Fields in which trusted peers tell how long their client waits.
    pub deadline_headers: Vec<Box<str>>,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            backlog: 1024,
            connections_rate: None,
            on_limit: None,
            per_source: None,
            deadline_headers: Vec::new(),
        }
    }
}

/// So many a second, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// A second.
    pub rate_per_s: f64,
    /// At once.
    pub burst: u32,
}

/// What becomes of a connection over a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLimit {
    /// Its first request is answered with a status, and it is closed; in mode tcp it is reset.
    Reject,
    /// It is reset at once.
    Reset,
    /// It is kept, unread, until there is room.
    Wait,
}

/// What one network of clients may have, on all cores.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePlan {
    /// Connections at a time.
    pub connections: Option<u32>,
    /// New connections.
    pub connections_rate: Option<Rate>,
    /// Requests.
    pub requests_rate: Option<Rate>,
    /// Leading bits of an IPv4 address that make one source: 32.
    pub prefix4: u8,
    /// Leading bits of an IPv6 address that make one source: 64.
    pub prefix6: u8,
    /// How many sources are remembered: 10,000.
    pub entries: usize,
}
