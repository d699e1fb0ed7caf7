//! `weir serve`.

use record::units::count_of;
use rt::drain::{Drain, Held, Signals, hold_signals};
use serve::plan::Plan;

use crate::exit::{Exit, Failure};
use crate::flags::{Typed, serve_text};
use crate::output::print;
use crate::preflight;

use super::end_with_stdin;

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let plan = Plan::parse(&serve_text(typed))?;
    preflight::check_descriptors(plan.connections_max().unwrap_or(0) as u64)?;
    let threads = plan.threads();
    let drain = Drain::default();
    let signals = hold_signals(Held::Stop)?;
    let waiting = std::thread::current();
    let signals_do = Signals {
        // These are not held.
        reload: Box::new(|| {}),
        reopen: Box::new(|| {}),
        drained: Box::new(move || waiting.unpark()),
    };
    signals.follow(drain.clone(), Some(signals_do))?;
    let running = serve::start_alone(plan, drain.clone())?;
    let mut lines = String::new();
    for (address, mode) in running.addresses() {
        let shown = match &address {
            rt::address::Address::Tcp(address) => format!("http://{address}/"),
            unix @ rt::address::Address::Unix(_) => unix.to_string(),
        };
        lines.push_str(&format!(
            "listening on {shown} ({}; {})\n",
            count_of(threads as u64, "thread"),
            mode.describe()
        ));
    }
    print(&lines);
    if typed.is_set("until-stdin-closes") {
        end_with_stdin(drain);
    }
    let stats = running.join().map_err(|failure| Failure::cannot("serve", failure))?;
    note!(
        "served {} on {}",
        count_of(stats.sum.totals.requests, "request"),
        count_of(stats.sum.connections_accepted, "connection")
    );
    Ok(Exit::Done)
}
