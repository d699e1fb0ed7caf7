//! Signals, in a process that has no other threads when it holds them: with the usual test harness
//! others would get them first.

#![allow(clippy::unwrap_used)]

use std::sync::mpsc;
use std::time::Duration;

use rt::cores::block_on;
use rt::drain::{Drain, Held, Signals, Stage, hold_signals};
use rustix::process::{Signal, getpid, kill_process};

fn main() {
    let held = hold_signals(Held::All).unwrap();
    signals_that_do_not_stop_us_are_passed_on_and_those_that_do_still_count(held);
    println!("signals: ok");
}

fn signals_that_do_not_stop_us_are_passed_on_and_those_that_do_still_count(
    held: rt::drain::HeldSignals,
) {
    let send = |signal| kill_process(getpid(), signal).unwrap();
    // One that comes before it is followed is not lost.
    send(Signal::HUP);
    let (reloads, reload) = mpsc::channel();
    let (reopens, drains) = (reloads.clone(), reloads.clone());
    let drain = Drain::default();
    let mut watch = drain.watch();
    let signals = Signals {
        reload: Box::new(move || reloads.send("reload").unwrap()),
        reopen: Box::new(move || reopens.send("reopen").unwrap()),
        drained: Box::new(move || drains.send("drained").unwrap()),
    };
    held.follow(drain, Some(signals)).unwrap();
    let next = || reload.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(next(), "reload");
    send(Signal::USR1);
    assert_eq!(next(), "reopen");
    assert_eq!(watch.stage(), Stage::Running);
    send(Signal::TERM);
    assert_eq!(block_on(watch.reached(Stage::Draining)), Stage::Draining);
    assert_eq!(next(), "drained");
    send(Signal::HUP);
    assert_eq!(next(), "reload");
    send(Signal::TERM);
    assert_eq!(block_on(watch.reached(Stage::Now)), Stage::Now);
}
