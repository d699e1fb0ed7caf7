//! `weir fleet agent`.

use std::path::PathBuf;

use fleet::agent::service::{AgentConfig, run as run_agent};
use fleet::local_agent::{AgentOptions, facts, reference_plan, stored_capacity};
use fleet::message::{AgentFacts, AgentName, AgentRole};
use fleet::session::clocks;
use fleet::transport::without_password;
use record::invalid_value;
use record::problem::{InputProblem, suggestion};
use record::units::SECOND_NS;
use rt::drain::Drain;
use runner::calibration::TrialSettings;
use runner::embedded::Origin;
use runner::store;

use super::{count_signals, job};
use crate::commands::calibrate::calibrate_with_bar;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, FlagReader, nats_options, nats_problems};
use crate::output::print;
use crate::streams::notice;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let options = parse(args)?;
    let signals = count_signals(|count| {
        let next = if count == 1 { "; a second signal stops a run in progress" } else { "" };
        warn!("weir: the agent ends after the run in progress{next}");
    })?;
    let host = host::facts::read();
    let name = options.name.clone().unwrap_or_else(|| AgentName::from_host(&host.hostname));
    let nats = nats_options(args, &format!("weir agent {name}"));
    let url = without_password(&nats.url);
    let capacity_per_s = match args.is_set("calibrate") {
        true => Some(measure_capacity(&host)?),
        false => stored_capacity(&host),
    };
    let roles: Vec<&str> = options.roles.iter().map(|role| role.name()).collect();
    print(&format!("agent {name} of {url} allows {}\n", roles.join(", ")));
    let config = AgentConfig {
        nats,
        state_directory: state_directory(args, &name)?,
        ..config(facts(name, &options, host, (env!("WEIR_VERSION"), capacity_per_s)))?
    };
    run_agent(config, signals).map_err(Failure::cannot_run)?;
    Ok(Exit::Done)
}

/// Returns a setup without a server.
pub(super) fn config(facts: AgentFacts) -> Result<AgentConfig, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::cannot("this program", error))?;
    Ok(AgentConfig {
        nats: Default::default(),
        facts,
        state_directory: PathBuf::new(),
        program,
        validate: Box::new(job::check),
        clocks,
        notice,
    })
}

/// Parses the flags; reports every problem at once.
pub(super) fn parse(args: CommandArgs<'_>) -> Result<AgentOptions, Vec<InputProblem>> {
    let mut flags = FlagReader::new(args);
    flags.problems.extend(nats_problems(args));
    let name = flags.parse("name", AgentName::parse);
    let labels = flags.parse_all("label", |text| match text.split_once('=') {
        Some(("name", _)) => Err(invalid_value!("name is the name of the agent: use --name")),
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(invalid_value!("'{text}' is not KEY=VALUE")),
    });
    let mut roles = Vec::new();
    for text in args.text("allow").as_deref().unwrap_or("load").split(',') {
        match AgentRole::ALL.iter().find(|(_, name)| *name == text) {
            Some((role, _)) => roles.push(*role),
            None => {
                let near = suggestion(text, AgentRole::ALL.iter().map(|(_, name)| *name));
                flags.add_problem("allow", format_args!("'{text}' is not a role{near}"));
            }
        }
    }
    flags.finish(AgentOptions { name, labels: labels.into_iter().collect(), roles })
}

pub(super) fn state_directory(args: CommandArgs<'_>, name: &AgentName) -> Result<PathBuf, Failure> {
    let base = match args.text("state") {
        Some(directory) => PathBuf::from(directory),
        None => match store::state_directory() {
            Some(state) => state.join("fleet"),
            None => {
                let text = "neither XDG_STATE_HOME nor HOME is set: name a directory";
                return Err(vec![InputProblem::new("--state", text)].into());
            }
        },
    };
    let directory = base.join(name.as_str());
    // Records of the directory are sent to the coordinator, and removed.
    store::check_trusted(&directory).map_err(|error| Failure::cannot("--state", error))?;
    Ok(directory)
}

/// Measures it with an embedded origin. A quick calibration like this is not kept.
fn measure_capacity(host: &host::facts::HostFacts) -> Result<f64, Failure> {
    let origin = Origin::start(rt::cores::available_cpus().len().div_ceil(2), false)?;
    let plan = reference_plan(origin.url(100))?;
    let trials = TrialSettings { per_kind: 3, duration_ns: SECOND_NS, origin_pid: origin.pid() };
    let stop = Drain::default();
    let calibrations = calibrate_with_bar(&plan, &trials, host, &stop.watch())?;
    Ok(calibrations.closed.per_core_per_s * rt::cores::available_cpus().len() as f64)
}
