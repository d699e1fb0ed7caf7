//! The origin alone: `origin ADDR [THREADS [ACCESS_LOG]]`, until SIGTERM. For trying and measuring.

use std::error::Error;
use std::io::Write;

use rt::drain::{Drain, Held, hold_signals};
use serve::{Plan, PlanText, start};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = PlanText {
        listen: arguments.next().into_iter().collect(),
        threads: arguments.next().unwrap_or_default(),
        access_log: arguments.next().unwrap_or_default(),
        ..PlanText::default()
    };
    let plan = Plan::parse(&text).map_err(|problems| format!("{problems:?}"))?;
    let drain = Drain::default();
    hold_signals(Held::Stop)?.follow(drain.clone(), None)?;
    let running = start(plan, drain)?;
    for (address, mode) in running.addresses() {
        println!("listening on {address} ({})", mode.describe());
    }
    std::io::stdout().flush()?;
    print!("{}", running.join()?.to_json());
    Ok(())
}
