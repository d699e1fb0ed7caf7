//! State of one core, which all its connections share: counters, time, buffers, the log.
//!
//! Nothing here leaves its thread, so there is no lock; and nothing here is held across an await.

use std::cell::{Cell, OnceCell, RefCell};

use rt::buffers::BufferPool;
use rt::clock::{MILLISECOND_NS, MonotonicTime, now_ns};
use rt::conn_balancer::ConnectionBalancer;
use rt::conn_limit::ConnectionLimit;
use rt::core_senders::CoreSenders;
use rt::deadlines::Deadlines;
use rt::timers::Timers;
use rt::tokio::sync::oneshot;
use rt::user_tcp::UserTcp;
use server_shell::date::DateCache;

use crate::body::BodyBlocks;
use crate::cache::ResponseCache;
use crate::log::CoreAccessLog;
use crate::plan::OriginPlan;
use crate::stats::{CoreCounters, CoreStats, OriginStats, add};
use crate::target_cache::TargetCache;
use content::site::FileSite;

/// Interval at which a core checks its deadlines, its date and its log. No timeout is more
/// precise.
pub(crate) const TICK_NS: u64 = 100 * MILLISECOND_NS;
/// Maximum size of one read.
const INPUT_BYTES: usize = 64 * 1024;
/// Initial size of a pooled buffer.
const BUFFER_BYTES: usize = 4 * 1024;
/// Maximum number of pooled buffers of a core; a connection holds at most two.
const BUFFERS_MAX: usize = 32 * 1024;

pub(crate) type StatsQuery = oneshot::Sender<CoreStats>;

/// State that the connections of one core share.
#[derive(Debug)]
pub(crate) struct OriginCore {
    pub(crate) index: usize,
    pub(crate) plan: OriginPlan,
    pub(crate) limits: wire::Limits,
    pub(crate) counters: CoreCounters,
    pub(crate) timers: Timers,
    pub(crate) deadlines: Deadlines,
    pub(crate) buffers: BufferPool,
    pub(crate) balancer: ConnectionBalancer,
    pub(crate) dates: DateCache,
    pub(crate) body_blocks: BodyBlocks,
    pub(crate) scratch: RefCell<ScratchBuffers>,
    pub(crate) log: Option<CoreAccessLog>,
    /// Files to serve; `None`: responses are generated.
    pub(crate) files: Option<FileSite>,
    /// Bytes that were just read from a file; unowned between two polls.
    pub(crate) file_slice: RefCell<Vec<u8>>,
    pub(crate) conn_limit: ConnectionLimit,
    /// Channels to the counters of all cores, including this one.
    pub(crate) queries: CoreSenders<StatsQuery>,
    pub(crate) started_ns: u64,
    /// Time of the last tick.
    pub(crate) now_ns: Cell<u64>,
    /// Changes with each tick and at the start of the drain: while it is unchanged, no deadline has
    /// passed.
    pub(crate) tick: Cell<u32>,
    pub(crate) draining: Cell<bool>,
    /// TCP in user space; empty: that of the kernel.
    pub(crate) user_tcp: OnceCell<UserTcp>,
}

/// Scratch buffers of one poll of a connection; unowned between two polls.
#[derive(Debug)]
pub(crate) struct ScratchBuffers {
    /// Bytes that were just received.
    pub(crate) input: Box<[u8]>,
    /// Responses that are about to be sent.
    pub(crate) out: Vec<u8>,
    pub(crate) cache: ResponseCache,
    pub(crate) targets: TargetCache,
    pub(crate) rng: fastrand::Rng,
}

#[derive(Debug)]
pub(crate) struct OriginCoreParts {
    pub(crate) index: usize,
    pub(crate) plan: OriginPlan,
    pub(crate) balancer: ConnectionBalancer,
    pub(crate) log: Option<CoreAccessLog>,
    pub(crate) connections_max: usize,
    pub(crate) queries: CoreSenders<StatsQuery>,
    pub(crate) started_ns: u64,
}

impl OriginCore {
    /// Creates a core; must be called inside the core's runtime.
    pub(crate) fn new(parts: OriginCoreParts) -> std::io::Result<Self> {
        let mut rng = fastrand::Rng::new();
        let head_bytes_max = parts.plan.head_bytes_max;
        Ok(Self {
            index: parts.index,
            limits: wire::Limits { head_bytes_max, ..wire::Limits::default() },
            counters: CoreCounters::default(),
            timers: Timers::start()?,
            deadlines: Deadlines::default(),
            buffers: BufferPool::new(BUFFER_BYTES, BUFFERS_MAX),
            balancer: parts.balancer,
            dates: DateCache::default(),
            body_blocks: BodyBlocks::new(&mut rng),
            scratch: RefCell::new(ScratchBuffers {
                // A head of nearly the maximum size leaves room for a large read after it.
                input: vec![0; INPUT_BYTES.max(2 * head_bytes_max)].into(),
                out: Vec::with_capacity(INPUT_BYTES),
                cache: ResponseCache::default(),
                targets: TargetCache::default(),
                rng,
            }),
            log: parts.log,
            files: parts.plan.files.as_ref().map(FileSite::open).transpose()?,
            file_slice: RefCell::default(),
            conn_limit: ConnectionLimit::new(parts.connections_max),
            queries: parts.queries,
            started_ns: parts.started_ns,
            now_ns: Cell::new(now_ns()),
            tick: Cell::new(0),
            draining: Cell::new(false),
            user_tcp: OnceCell::new(),
            plan: parts.plan,
        })
    }

    /// Returns the time of the last tick.
    pub(crate) fn now(&self) -> MonotonicTime {
        MonotonicTime::from_ns(self.now_ns.get())
    }

    /// Handles periodic work, once every [`TICK_NS`].
    pub(crate) fn handle_tick(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.dates.refresh();
        self.deadlines.sweep(now_ns);
        if let Some(log) = &self.log {
            log.hand_over();
        }
    }

    /// Starts the drain: each response is now the last of its connection, and idle connections end.
    pub(crate) fn start_draining(&self) {
        self.draining.set(true);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.deadlines.wake_all();
    }

    pub(crate) fn read_stats(&self) -> CoreStats {
        let counts = self.balancer.core_counts()[self.index];
        let (buffers_in_use, buffers_exhausted) = (self.buffers.in_use(), self.buffers.exhausted_count());
        let mut stats = CoreStats::read(&self.counters, counts, buffers_in_use, buffers_exhausted);
        if let Some(tcp) = self.user_tcp.get() {
            stats.user_tcp = tcp.counts().named().into();
        }
        if let Some(log) = &self.log
            && self.index == 0
        {
            // The cores share this count, so only the first core reports it.
            stats.totals.log_dropped += log.write_failed_lines();
        }
        if let Some(site) = &self.files {
            let totals = &mut stats.totals;
            totals.files_compressing = site.encoders.permits();
            totals.files_uncompressed = site.encoders.refused();
            totals.files_lists_rejected = site.lists.refused();
            (totals.files_roots_replaced, totals.files_roots_removed) = site.root_changes();
        }
        stats
    }

    /// Adds a line to the access log, if there is one: the client, and the text of
    /// [`crate::log::LoggedRequest`].
    pub(crate) fn log_line(&self, peer: Option<&str>, rest: &[u8]) {
        let (Some(log), Some(peer)) = (&self.log, peer) else {
            return;
        };
        let logged = log.append_line(peer, &self.dates.rendered(), rest);
        let counter = if logged { &self.counters.log_lines } else { &self.counters.log_dropped };
        add(counter, 1);
    }

    pub(crate) async fn collect_stats(&self) -> OriginStats {
        let cores = self.queries.ask(|reply| reply).await;
        OriginStats::from_cores(cores, now_ns() - self.started_ns, self.draining.get())
    }
}
