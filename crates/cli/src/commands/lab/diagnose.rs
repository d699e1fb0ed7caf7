//! `weir lab diagnose`.

use std::path::Path;

use record::file::read_run;
use record::problem::Problem;

use crate::commands::load::write_json;
use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::diagnosis::diagnosis;
use crate::output::print;

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let files = typed.values();
    let Some(file) = files.first() else {
        let text = "there is none; name a record of weir load --json";
        return Err(vec![Problem::new("FILE", text)].into());
    };
    let mut run =
        read_run(Path::new(file)).map_err(|error| vec![Problem::new("FILE", error.to_string())])?;
    let mut problems = Vec::new();
    for other in &files[1..] {
        match record::watch::read(Path::new(other)) {
            Ok(mut watch) => {
                watch.observed.count_from(&run.started_at);
                run.observed.push(watch.observed);
            }
            Err(error) => problems.push(Problem::new("FILE", error.to_string())),
        }
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    // What a perturbation showed is measured and cannot be worked out again.
    let confirmation = run.diagnosis.take().and_then(|diagnosis| diagnosis.confirmation);
    let mut found = lab::diagnosis::diagnose(&run);
    found.confirmation = confirmation;
    run.diagnosis = Some(found);
    let json = typed.text("json");
    if json.as_deref() != Some("-") {
        print(&diagnosis(&run, true));
    }
    write_json(&run, json.as_deref())?;
    Ok(Exit::Done)
}
