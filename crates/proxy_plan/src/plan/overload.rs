//! Overload control: limits, queues, budgets, and the treatment of excess load. Types and their
//! defaults only, as in [`super`].

/// Order in which a queue is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOrder {
    /// The oldest first, and the newest first once the queue has stood for
    /// `super::QueuePlan::standing_after_ns`. The default.
    Adaptive,
    /// The oldest first, always.
    OldestFirst,
    /// The newest first, always.
    NewestFirst,
}

/// Priority of a route's requests in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all others.
    High,
    /// The default.
    #[default]
    Normal,
    /// After all others, and dropped first.
    Low,
}

impl Priority {
    pub const COUNT: usize = 3;
}

/// Limits of a pool beside those of its servers, and its retry budget.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolLimits {
    /// Maximum number of requests at a time for all servers together, on all cores; `None`:
    /// unlimited.
    pub maxconn: Option<usize>,
    /// Adaptive limits of the servers; `None`: they are fixed.
    pub adaptive: Option<AdaptivePlan>,
    pub retry_budget: RetryBudgetPlan,
}

/// Adaptive request limit of each server, which follows its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptivePlan {
    /// Minimum of the limit: 4.
    pub min: usize,
    /// Maximum of the limit: 1,000; a server's own `maxconn` applies if it is lower.
    pub max: usize,
}

/// Limit of the retries of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudgetPlan {
    /// Maximum retries as a fraction of the requests in the window: 0.2.
    pub fraction: f64,
    /// Number of retries that are allowed in any window: 3.
    pub min: u32,
    /// Length of the window: 10 s.
    pub window_ns: u64,
}

impl Default for RetryBudgetPlan {
    fn default() -> Self {
        Self { fraction: 0.2, min: 3, window_ns: 10_000_000_000 }
    }
}

/// Limits of a listener for new connections and requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// Maximum number of connections, for each core, that the kernel queues until they are
    /// accepted: 1,024.
    pub backlog: u32,
    /// Maximum rate of new connections, on all cores; `None`: unlimited.
    pub connections_rate: Option<TokenRate>,
    /// Treatment of a connection over a limit; `None`: it is rejected over a rate, and waits over
    /// `connections-max`.
    pub on_limit: Option<OnLimit>,
    /// Limits of one client network; `None`: none.
    pub per_source: Option<SourcePlan>,
    /// Fields in which trusted peers give the remaining time of their client.
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

/// Rate and burst of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRate {
    pub rate_per_s: f64,
    /// Maximum number of events at once.
    pub burst: u32,
}

/// Treatment of a connection over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLimit {
    /// Its first request gets an error status, and it is closed; in mode tcp it is reset.
    Reject,
    /// It is reset at once.
    Reset,
    /// It is kept, unread, until there is room.
    Wait,
}

/// Limits of one client network, on all cores.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePlan {
    pub connections: Option<u32>,
    pub connections_rate: Option<TokenRate>,
    pub requests_rate: Option<TokenRate>,
    /// Leading bits of an IPv4 address that make one source: 32.
    pub prefix4: u8,
    /// Leading bits of an IPv6 address that make one source: 64.
    pub prefix6: u8,
    /// Maximum number of remembered sources: 10,000.
    pub entries: usize,
}
