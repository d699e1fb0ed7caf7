//! One core of a load from its start to its end: its clients, its pacer and its ticker.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use record::units::MILLISECOND_NS;
use rt::clock::now_ns;
use rt::cores::CoreId;
use rt::tokio::task::spawn_local;

use crate::arrival_schedule::ArrivalSchedule;
use crate::client::run_client;
use crate::core_state::{CoreEvent, CoreInit, CoreState, SharedState};
use crate::recorder::{CoreSnapshot, Recorder};
use crate::user_tcp;

/// Guard that reports the end of a core to the collector, also on a panic.
struct EndGuard(mpsc::Sender<CoreEvent>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        // Without a collector nobody waits for the message.
        let _ = self.0.send(CoreEvent::Ended);
    }
}

/// Period of the ticker, unless a short timeout needs a shorter one.
const TICK_NS_MAX: u64 = 10 * MILLISECOND_NS;

/// Maximum number of missed ticks that are recorded after one stall: those of ten minutes.
const LATE_TICKS_MAX: usize = 60_000;

/// Runs one core to its end. Returns its last snapshot.
pub(crate) async fn run(
    core_id: CoreId,
    shared: Arc<SharedState>,
    events: mpsc::Sender<CoreEvent>,
    init: CoreInit,
) -> io::Result<Option<CoreSnapshot>> {
    let end_guard = EndGuard(events.clone());
    let transport = init.port.as_ref().map(user_tcp::describe_transport);
    let core = Rc::new(CoreState::new(core_id, shared, events, init)?);
    let clients: Vec<_> =
        (0..core.clients_alive()).map(|index| spawn_local(run_client(Rc::clone(&core), index))).collect();
    spawn_local(run_ticker(Rc::clone(&core)));
    core.wait_until_opened().await;
    core.report_ready();
    let Some((start_ns, _)) = core.wait_for_start().await else {
        return Ok(None);
    };
    let schedule = ArrivalSchedule::from_plan(&core.shared.plan, core_id, start_ns);
    let is_open_loop = schedule.is_some();
    core.start(start_ns, schedule);
    if is_open_loop {
        spawn_local(run_pacer(Rc::clone(&core)));
    }
    core.wait_until_ended().await;
    for client in clients {
        // The counts of a client that panicked are incomplete, so no result is printed.
        client.await.map_err(|error| io::Error::other(format!("a client of the generator: {error}")))?;
    }
    core.fail_pending();
    let replacement = Recorder::new(core_id.index, mpsc::channel().1);
    let mut last = core.recorder.replace(replacement).finish(now_ns());
    last.connect_failure = core.connect_failure.take();
    last.transport = user_tcp::end_transport(&core, transport).await;
    drop(end_guard);
    // The kernel's data of a thread disappear with it, and the observer still has to read them.
    core.wait_for_finish().await;
    Ok(Some(last))
}

/// Minimum interval between wake-ups of the pacer. Above 20,000 requests per second and core, sends
/// are therefore up to this much late, in small batches: a wake-up for each would cost more than
/// the request. Like every lag it counts in the response latency. Below that rate it has no effect.
const PACER_INTERVAL_NS_MIN: u64 = 50_000;

/// Maximum time after which a changed rate takes effect.
const CONTROL_INTERVAL_NS: u64 = 20 * MILLISECOND_NS;

/// Brings the requests of an open loop to the dispatcher when they become due.
async fn run_pacer(core: Rc<CoreState>) {
    let mut woken_ns = 0;
    while let Some(due_ns) = core.dispatch_due(now_ns()) {
        let wake_ns = due_ns.max(woken_ns + PACER_INTERVAL_NS_MIN).min(now_ns() + CONTROL_INTERVAL_NS);
        // Ctrl-C may move the end meanwhile, so it is read again after the sleep.
        core.timers.sleep_until(wake_ns.min(core.end_ns())).await;
        if due_ns >= core.end_ns() || wake_ns <= now_ns() {
            // A sleep until a time that is over does not let others run.
            rt::tokio::task::yield_now().await;
        }
        woken_ns = now_ns();
    }
    core.end_load(now_ns().min(core.end_ns()));
}

/// Handles all timed events: timeouts, seconds, the end, giving up.
async fn run_ticker(core: Rc<CoreState>) {
    let open_loop = core.shared.plan.is_open_loop();
    let period_ns = (core.shared.plan.timeout_ns / 20).clamp(MILLISECOND_NS, TICK_NS_MAX);
    let mut next_ns = now_ns() + period_ns;
    while core.clients_alive() > 0 {
        core.timers.sleep_until(next_ns).await;
        let now_ns = now_ns();
        let end_ns = core.end_ns();
        // A core that was delayed at the end still has to bring the requests that were due before it.
        let is_all_brought = now_ns >= end_ns && core.dispatch_due(now_ns).is_none();
        {
            let mut recorder = core.recorder.borrow_mut();
            core.roll(&mut recorder, now_ns);
            if !open_loop {
                record_late_ticks(&mut recorder, next_ns, now_ns, period_ns);
            }
            recorder.pending = core.dispatcher.borrow().pending_count();
        }
        core.deadlines.sweep(now_ns);
        if now_ns >= end_ns && !core.dispatcher.borrow().is_closed() {
            match is_all_brought {
                true => core.end_load(end_ns),
                false => core.end_seconds(end_ns),
            }
        }
        if now_ns >= core.shared.give_up_ns.load(Ordering::Relaxed) && !core.giving_up.get() {
            core.giving_up.set(true);
            // What was due and not brought yet is dropped.
            core.dispatch_due(now_ns);
            core.end_load(end_ns.min(now_ns));
            core.deadlines.wake_all();
        }
        // Missed ticks are skipped.
        next_ns = (next_ns + period_ns).max(now_ns);
        core.recorder.borrow_mut().expect_run(next_ns);
    }
}

/// Records the delay of a tick, and of each tick that was missed meanwhile. In a closed loop only
/// responses make further requests due, and none arrives in a stall, so regular ticks take their
/// place, and a long stall counts for its full time.
fn record_late_ticks(recorder: &mut Recorder, first_ns: u64, now_ns: u64, period_ns: u64) {
    let ticks = (first_ns..=now_ns).step_by(period_ns as usize).take(LATE_TICKS_MAX);
    for tick_ns in ticks {
        if recorder.is_running(tick_ns) {
            recorder.record_lag(now_ns - tick_ns);
        }
    }
}
