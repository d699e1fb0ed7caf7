//! One core's state, which all its connections share: counters, time, buffers, the log.
//!
//! Nothing here leaves its thread, so there is no lock; and nothing here is held across an await.

use std::cell::{Cell, RefCell};

use rt::board::Board;
use rt::buffers::Buffers;
use rt::clock::{MILLISECOND_NS, now_ns};
use rt::deadlines::Deadlines;
use rt::room::Room;
use rt::timers::Timers;
use rt::tokio::sync::{mpsc, oneshot};

use crate::body::Blocks;
use crate::cache::Cache;
use crate::date::Dates;
use crate::log::CoreLog;
use crate::plan::Plan;
use crate::stats::{CoreStats, Counters, Stats, add};

/// How often a core looks at its deadlines, its date and its log. No time-out is more exact.
pub(crate) const TICK_NS: u64 = 100 * MILLISECOND_NS;
/// Bytes that one read takes at most.
const INPUT_BYTES: usize = 64 * 1024;
/// The first size of a pooled buffer.
const BUFFER_BYTES: usize = 4 * 1024;
/// How many pooled buffers a core lends at a time; a connection holds two at most.
const BUFFERS_MAX: usize = 32 * 1024;

/// Asks a core for its counters.
pub(crate) type Query = oneshot::Sender<CoreStats>;

/// What one core's connections share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) plan: Plan,
    pub(crate) limits: wire::Limits,
    pub(crate) counters: Counters,
    pub(crate) timers: Timers,
    pub(crate) deadlines: Deadlines,
    pub(crate) buffers: Buffers,
    pub(crate) board: Board,
    pub(crate) dates: Dates,
    pub(crate) blocks: Blocks,
    pub(crate) bench: RefCell<Bench>,
    pub(crate) log: Option<CoreLog>,
    pub(crate) room: Room,
    /// The ways to all cores' counters, this one's included.
    pub(crate) queries: Vec<mpsc::Sender<Query>>,
    pub(crate) started_ns: u64,
    /// The time of the last tick.
    pub(crate) now_ns: Cell<u64>,
    /// Changes with each tick and when the drain starts: as long as it is the same, no deadline
    /// has passed.
    pub(crate) tick: Cell<u32>,
    pub(crate) draining: Cell<bool>,
}

/// What one poll of a connection works on; it belongs to nobody between two polls.
#[derive(Debug)]
pub(crate) struct Bench {
    /// What was just received.
    pub(crate) input: Box<[u8]>,
    /// Answers that are about to be sent.
    pub(crate) out: Vec<u8>,
    pub(crate) cache: Cache,
    pub(crate) rng: fastrand::Rng,
}

/// What a core is built from, besides its own.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) index: usize,
    pub(crate) plan: Plan,
    pub(crate) board: Board,
    pub(crate) log: Option<CoreLog>,
    pub(crate) connections_max: usize,
    pub(crate) queries: Vec<mpsc::Sender<Query>>,
    pub(crate) started_ns: u64,
}

impl Core {
    /// Must be called inside the core's runtime.
    pub(crate) fn new(parts: Parts) -> std::io::Result<Self> {
        let mut rng = fastrand::Rng::new();
        let head_bytes_max = parts.plan.head_bytes_max;
        Ok(Self {
            index: parts.index,
            limits: wire::Limits { head_bytes_max, ..wire::Limits::default() },
            counters: Counters::default(),
            timers: Timers::start()?,
            deadlines: Deadlines::default(),
            buffers: Buffers::new(BUFFER_BYTES, BUFFERS_MAX),
            board: parts.board,
            dates: Dates::new(),
            blocks: Blocks::new(&mut rng),
            bench: RefCell::new(Bench {
                // A head that is nearly too long still leaves room for a good read behind it.
                input: vec![0; INPUT_BYTES.max(2 * head_bytes_max)].into(),
                out: Vec::with_capacity(INPUT_BYTES),
                cache: Cache::default(),
                rng,
            }),
            log: parts.log,
            room: Room::new(parts.connections_max),
            queries: parts.queries,
            started_ns: parts.started_ns,
            now_ns: Cell::new(now_ns()),
            tick: Cell::new(0),
            draining: Cell::new(false),
            plan: parts.plan,
        })
    }

    /// Looks after what is due: once every [`TICK_NS`].
    pub(crate) fn handle_tick(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.dates.refresh();
        self.deadlines.sweep(now_ns);
        if let Some(log) = &self.log {
            // When it is behind, the batch waits for the next tick.
            log.hand_over();
        }
    }

    /// From now on answers are the last of their connections, and idle ones end.
    pub(crate) fn start_draining(&self) {
        self.draining.set(true);
        self.tick.set(self.tick.get().wrapping_add(1));
        self.deadlines.wake_all();
    }

    /// This core's counters now.
    pub(crate) fn read_stats(&self) -> CoreStats {
        let row = self.board.rows()[self.index];
        let (lent, refused) = (self.buffers.lent(), self.buffers.refused());
        let mut stats = CoreStats::read(&self.counters, row, lent, refused);
        if let Some(log) = &self.log
            && self.index == 0
        {
            // The file is one for all cores, so the first of them tells what it lost.
            stats.totals.log_dropped += log.failed();
        }
        stats
    }

    /// Adds a line to the access log, if there is one: who, and what [`crate::log::Asker`] says.
    pub(crate) fn log_line(&self, peer: Option<&str>, rest: &[u8]) {
        let (Some(log), Some(peer)) = (&self.log, peer) else {
            return;
        };
        let kept = log.line(peer, &self.dates.log(), rest);
        let counter = if kept { &self.counters.log_lines } else { &self.counters.log_dropped };
        add(counter, 1);
    }

    /// All cores' counters now.
    pub(crate) async fn gather(&self) -> Stats {
        let mut replies = Vec::with_capacity(self.queries.len());
        for query in &self.queries {
            let (reply, answer) = oneshot::channel();
            // A core that has ended has nothing more to say.
            if query.send(reply).await.is_ok() {
                replies.push(answer);
            }
        }
        let mut cores = Vec::with_capacity(replies.len());
        for reply in replies {
            cores.extend(reply.await);
        }
        Stats::of(cores, now_ns() - self.started_ns, self.draining.get())
    }
}
