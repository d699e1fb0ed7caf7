//! `weir lab diagnose`.

use std::path::Path;

use diagnose::counter_test::{apply_confirmation, earlier_confirmation};
use record::capacity_search::{self, CapacitySearch};
use record::file::{NO_SCHEMA, ReadError, read_record, read_run, read_schema};
use record::invalid_value;
use record::observed::MachineObservation;
use record::problem::{InputProblem, InvalidValue};
use record::run::{self, Run};
use record::trial::{self, ExperimentTrial};
use record::units::{format_count, format_plural};
use report::text::answer::format_head;
use report::text::diagnosis::format_diagnosis;

use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, DiagnoseFlags};
use crate::output::file::write_json;
use crate::output::print;
use crate::preflight;

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let files = args.values();
    let Some(file) = files.first() else {
        let text = "missing file (name a record of weir load --json)";
        return Err(vec![InputProblem::new("FILE", text)].into());
    };
    let DiagnoseFlags { json } = DiagnoseFlags::parse(args)?;
    preflight::destinations(&[&json], &[])?;
    let (mut run, which) =
        read_run_of_record(Path::new(file)).map_err(|why| vec![InputProblem::from_file_error(why)])?;
    let mut problems = Vec::new();
    for other in &files[1..] {
        match record::watch::read_watch(Path::new(other)) {
            Ok(watch) => match add_observation(&mut run, watch.observed) {
                Ok(()) => {}
                Err(why) => problems.push(InputProblem::from_file_error(format!("{other}: {why}"))),
            },
            Err(error) => problems.push(InputProblem::from_file_error(error)),
        }
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let dropped = rediagnose(&mut run);
    if !json.is_stdout() {
        let head = format_head(&run);
        print(&format!("{head}\n{}{}", which.unwrap_or_default(), format_diagnosis(&run, true)));
    }
    if let Some(tested) = dropped {
        warn!("weir: the counter-test in the record tested {tested}: it does not apply here");
    }
    write_json(&run, json.path())?;
    Ok(Exit::Done)
}

/// Adds the observation of another machine to a run, if both are of the same time.
fn add_observation(run: &mut Run, mut observed: MachineObservation) -> Result<(), InvalidValue> {
    let started_at = observed.started_at.clone();
    let readable = observed.rebase_times(&run.started_at);
    if let Some((from_s, to_s)) = observed.time_range_s().filter(|_| readable)
        && (to_s <= 0.0 || from_s >= run.duration_s)
    {
        let when = match to_s <= 0.0 {
            true => format!("ended {:.0} s before the run began", -to_s),
            false => format!("began {:.0} s after the end of the run", from_s - run.duration_s),
        };
        return Err(invalid_value!(
            "the watch record does not overlap the run: it began at {started_at} and took {:.0} s, the \
             run began at {} and took {:.0} s, so it {when} (the clocks of both machines have to agree)",
            to_s - from_s,
            run.started_at,
            run.duration_s
        ));
    }
    run.observed.push(observed);
    Ok(())
}

/// Computes the diagnosis again. Keeps an existing counter-test if it is of the same verdict;
/// otherwise returns the verdict of that test.
fn rediagnose(run: &mut Run) -> Option<String> {
    let earlier = run.diagnosis.take().unwrap_or_default();
    let (previous_verdict, untested) = (earlier.verdict.clone(), earlier.untested_reason.clone());
    let counter_test = earlier_confirmation(earlier);
    let tested_verdict = counter_test.as_ref().map(|test| test.verdict.clone());
    let diagnosis = diagnose::diagnose(run);
    let mut diagnosis = match counter_test {
        Some(test) => apply_confirmation(diagnosis, test),
        None => diagnosis,
    };
    diagnosis.untested_reason = untested.filter(|_| previous_verdict == diagnosis.verdict);
    let keeps_test = diagnosis.confirmation.is_some();
    run.diagnosis = Some(diagnosis);
    run.answer = Some(diagnose::answer(run));
    tested_verdict.filter(|_| !keeps_test)
}

/// Reason why a record has no run to diagnose.
#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    #[error("{path}: {why}")]
    Search { path: String, why: &'static str },
    #[error("{path}: the trial failed: {why}")]
    FailedTrial { path: String, why: String },
    #[error("{path}: {program} drove the load, which leaves no record to diagnose")]
    OtherDriver { path: String, program: String },
}

fn read_run_of_record(path: &Path) -> Result<(Run, Option<String>), RecordError> {
    let path_text = || path.display().to_string();
    match read_schema(path)?.as_str() {
        run::SCHEMA => Ok((read_run(path)?, None)),
        capacity_search::SCHEMA => run_of_search(capacity_search::read_search(path)?)
            .map_err(|why| RecordError::Search { path: path_text(), why }),
        trial::SCHEMA => {
            let trial: ExperimentTrial = read_record(path, trial::SCHEMA)?;
            let run = trial.run.ok_or_else(|| match trial.failed {
                Some(why) => RecordError::FailedTrial { path: path_text(), why },
                None => RecordError::OtherDriver { path: path_text(), program: trial.driver.program },
            });
            Ok((run?, None))
        }
        NO_SCHEMA => {
            let why = "it has no schema".to_owned();
            Err(RecordError::Unreadable(ReadError::Foreign { path: path.to_owned(), why }))
        }
        other => Err(RecordError::Unreadable(ReadError::Schema {
            path: path.to_owned(),
            actual: other.to_owned(),
            expected: "weir.run/1, weir.edge/1, weir.trial/1",
        })),
    }
}

/// Returns the run at which a search stopped; if no level was missed, the run of the highest level
/// that held.
fn run_of_search(edge: CapacitySearch) -> Result<(Run, Option<String>), &'static str> {
    let (run, outcome) = match (edge.stopped_run, edge.stopped_by, edge.at_edge) {
        (Some(run), ..) => (run, "did not hold"),
        (None, None, Some(run)) => (run, "held"),
        (None, Some(_), _) => {
            return Err(
                "written by an older version of weir, which did not store the run at which the search stopped",
            );
        }
        (None, None, None) => return Err("the search ended before its first run"),
    };
    let level = match run.rates.offered_per_s {
        Some(offered) => format!(" at {}/s", format_count(offered)),
        None => String::new(),
    };
    let connections = run.totals.connections.requested;
    let connections = format_plural(connections, "connection");
    let line = format!("search       the run{level} with {connections}, which {outcome}\n");
    Ok((*run, Some(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::observed::MachineSample;

    /// Returns a record in the form of a file, of a run without figures.
    fn run_json() -> serde_json::Value {
        let empty = serde_json::to_value(record::histogram::LatencyHistogram::new().summary()).unwrap();
        let pair = serde_json::json!({"service": empty, "response": empty});
        serde_json::json!({
            "schema": run::SCHEMA, "weir": {"version": "0", "commit": "0"}, "command": [],
            "started_at": "", "duration_s": 10.0, "plan": null, "objectives": [], "intervals": [],
            "validity": {"verdict": "valid", "reasons": []},
            "host": record::facts::HostFacts::default(),
            "totals": run::RunTotals::default(),
            "rates": {"responses_per_s": 50.0, "bytes_in_per_s": 1.0, "offered_per_s": 100.0},
            "window": run::MeasuredWindow::default(),
            "latency": {"connect": pair, "first_byte": pair, "last_byte": pair},
            "generator": run::GeneratorStats::default(), "cpu": run::GeneratorCpu::default(),
        })
    }

    fn run_value() -> Run {
        serde_json::from_value(run_json()).unwrap()
    }

    fn diagnosed(tested: &str, verdict: &str, confirmed: bool) -> (Run, Option<String>) {
        let mut run = run_value();
        let confirmation =
            run::Confirmation { verdict: tested.to_owned(), confirmed, ..run::Confirmation::default() };
        run.diagnosis = Some(run::Diagnosis {
            verdict: verdict.to_owned(),
            confirmation: Some(confirmation),
            ..run::Diagnosis::default()
        });
        let dropped = rediagnose(&mut run);
        (run, dropped)
    }

    #[test]
    fn a_counter_test_is_kept_for_the_verdict_that_it_tested() {
        // Half of the offered requests get a response, without a visible cause: unknown.
        let (run, dropped) = diagnosed("latency_bound", "latency_bound", true);
        let diagnosis = run.diagnosis.unwrap();
        assert_eq!((diagnosis.verdict.as_str(), diagnosis.confirmation), ("unknown", None));
        assert_eq!(dropped.as_deref(), Some("latency_bound"));
        let (run, dropped) = diagnosed("unknown", "unknown", true);
        assert!(run.diagnosis.unwrap().confirmation.is_some() && dropped.is_none());
        // The verdict was refuted once, and is found again.
        let (run, _) = diagnosed("unknown", "unknown", false);
        let diagnosis = run.diagnosis.unwrap();
        assert!(diagnosis.confirmation.is_some_and(|test| !test.confirmed));
        assert_eq!((diagnosis.confidence, diagnosis.remedy.as_str()), (run::Confidence::None, ""));
        // The reason for a missing test is also kept for the same verdict.
        for (verdict, kept) in [("unknown", Some("why".to_owned())), ("latency_bound", None)] {
            let mut run = run_value();
            run.diagnosis = Some(run::Diagnosis {
                verdict: verdict.to_owned(),
                untested_reason: Some("why".to_owned()),
                ..run::Diagnosis::default()
            });
            rediagnose(&mut run);
            assert_eq!(run.diagnosis.unwrap().untested_reason, kept);
        }
    }

    #[test]
    fn a_watch_of_another_time_is_refused_with_both_times() {
        let mut run = run_value();
        "2026-01-01T10:00:00Z".clone_into(&mut run.started_at);
        let watch = |started_at: &str| {
            let sample = |time_s| MachineSample { time_s, length_s: 1.0, ..MachineSample::default() };
            let samples = (1..=5).map(f64::from).map(sample).collect();
            MachineObservation { started_at: started_at.to_owned(), samples, ..MachineObservation::default() }
        };
        let error = add_observation(&mut run, watch("2026-01-01T09:00:00Z")).unwrap_err().to_string();
        for figure in ["2026-01-01T09:00:00Z", " 5 s", "2026-01-01T10:00:00Z", " 10 s", "3595 s"] {
            assert!(error.contains(figure), "{figure}: {error}");
        }
        let error = add_observation(&mut run, watch("2026-01-01T10:00:30Z")).unwrap_err().to_string();
        assert!(error.contains(" 20 s"), "{error}");
        assert_eq!(run.observed, []);
        // The observation may cover a part of the run; without a time, the overlap is unknown.
        for started_at in ["2026-01-01T09:59:57Z", "2026-01-01T10:00:09Z", ""] {
            add_observation(&mut run, watch(started_at)).unwrap();
        }
        assert_eq!(run.observed.len(), 3);
    }

    #[test]
    fn a_search_and_a_trial_have_a_run_to_diagnose() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.json");
        let of = |value: serde_json::Value| {
            std::fs::write(&path, value.to_string()).unwrap();
            read_run_of_record(&path)
        };
        assert_eq!(of(run_json()).unwrap(), (run_value(), None));
        let search = |parts: serde_json::Value| {
            let mut edge = serde_json::json!({
                "schema": capacity_search::SCHEMA, "weir": {"version": "0", "commit": "0"}, "command": [],
                "started_at": "", "duration_s": 1.0, "plan": null, "quantity": "rate", "summary": "",
                "host": record::facts::HostFacts::default(), "objectives": [], "trials": [],
                "conclusion": capacity_search::Conclusion::default(),
            });
            for (name, part) in parts.as_object().unwrap() {
                edge[name] = part.clone();
            }
            edge
        };
        let mut held = run_json();
        held["rates"]["offered_per_s"] = 40.0.into();
        let by = run::Diagnosis::default();
        let complete = serde_json::json!({
            "stopped_by": by, "stopped_run": run_json(), "at_edge": held
        });
        let (run, which) = of(search(complete)).unwrap();
        assert_eq!((run, which.unwrap().contains("100/s")), (run_value(), true));
        let (run, which) = of(search(serde_json::json!({"at_edge": held}))).unwrap();
        assert_eq!(run.rates.offered_per_s, Some(40.0));
        assert!(which.unwrap().contains("40"));
        let older =
            of(search(serde_json::json!({"stopped_by": by, "at_edge": held}))).unwrap_err().to_string();
        let without_run = of(search(serde_json::json!({}))).unwrap_err().to_string();
        assert!(older.contains("record.json") && without_run.contains("record.json"));
        assert_ne!(older, without_run);

        let mut trial = ExperimentTrial { schema: trial::SCHEMA.to_owned(), ..ExperimentTrial::default() };
        "wrk".clone_into(&mut trial.driver.program);
        let without = of(serde_json::to_value(&trial).unwrap()).unwrap_err().to_string();
        assert!(without.contains("wrk"), "{without}");
        trial.run = Some(run_value());
        assert_eq!(of(serde_json::to_value(&trial).unwrap()).unwrap(), (run_value(), None));
        let other = of(serde_json::json!({"schema": "weir.watch/1"})).unwrap_err().to_string();
        assert!(other.contains("weir.edge/1"), "{other}");
    }
}
