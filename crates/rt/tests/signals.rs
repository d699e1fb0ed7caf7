//! Test of signals in a process that has no other threads when it blocks them: with the usual test
//! harness other threads would receive them first.

#![allow(clippy::unwrap_used)]

use std::sync::mpsc;
use std::time::Duration;

use rt::cores::block_on;
use rt::drain::{Drain, DrainStage, SignalHandlers, SignalSet, block_signals};
use rustix::process::{Signal, getpid, kill_process};

fn main() {
    let blocked = block_signals(SignalSet::All).unwrap();
    signals_that_do_not_stop_us_are_passed_on_and_those_that_do_still_count(blocked);
    println!("signals: ok");
}

fn signals_that_do_not_stop_us_are_passed_on_and_those_that_do_still_count(
    blocked: rt::drain::BlockedSignals,
) {
    let send = |signal| kill_process(getpid(), signal).unwrap();
    // A signal before `follow` is not lost.
    send(Signal::HUP);
    let (reloads, reload) = mpsc::channel();
    let (reopens, drains) = (reloads.clone(), reloads.clone());
    let drain = Drain::default();
    let mut watch = drain.watch();
    let handlers = SignalHandlers {
        on_reload: Box::new(move || reloads.send("reload").unwrap()),
        on_reopen: Box::new(move || reopens.send("reopen").unwrap()),
        on_user2: Box::new(|| ()),
        on_drain: Box::new(move || drains.send("drained").unwrap()),
    };
    blocked.spawn_handler(drain, Some(handlers)).unwrap();
    let next = || reload.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(next(), "reload");
    send(Signal::USR1);
    assert_eq!(next(), "reopen");
    assert_eq!(watch.stage(), DrainStage::Running);
    send(Signal::TERM);
    assert_eq!(block_on(watch.wait_for(DrainStage::Draining)), DrainStage::Draining);
    assert_eq!(next(), "drained");
    send(Signal::HUP);
    assert_eq!(next(), "reload");
    send(Signal::TERM);
    assert_eq!(block_on(watch.wait_for(DrainStage::Abort)), DrainStage::Abort);
}
