//! `weir serve`.

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
            "listening on {shown} ({threads} thread{}; {})\n",
            if threads == 1 { "" } else { "s" },
            mode.describe()
        ));
    }
    print(&lines);
    if typed.is_set("until-stdin-closes") {
        end_with_stdin(drain);
    }
    let stats = running.join().map_err(|failure| Failure::cannot("serve", failure))?;
    note!(
        "served {} requests on {} connections",
        stats.sum.totals.requests,
        stats.sum.connections_accepted
    );
    Ok(Exit::Done)
}
