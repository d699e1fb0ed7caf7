//! The origin alone: `origin ADDR [THREADS [ACCESS_LOG]]`, until SIGTERM. For trying and measuring.

use std::error::Error;
use std::io::Write;

use rt::drain::{Drain, SignalSet, block_signals};
use serve::{OriginPlan, OriginPlanText, start};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = OriginPlanText {
        listen: arguments.next().into_iter().collect(),
        threads: arguments.next().unwrap_or_default(),
        access_log: arguments.next().unwrap_or_default(),
        ..OriginPlanText::default()
    };
    let plan = OriginPlan::parse(&text).map_err(|problems| format!("{problems:?}"))?;
    let drain = Drain::default();
    block_signals(SignalSet::Termination)?.spawn_handler(drain.clone(), None)?;
    let running = start(plan, drain)?;
    for (address, mode) in running.addresses() {
        println!("listening on {address} ({})", mode.describe());
    }
    std::io::stdout().flush()?;
    print!("{}", running.join()?.to_json());
    Ok(())
}
