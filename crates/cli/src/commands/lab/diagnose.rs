//! `weir lab diagnose`.

use std::path::Path;

use lab::confirm::{made_for, settle};
use record::edge::{self, Edge};
use record::file::{ReadError, read, read_run, schema};
use record::observed::Observed;
use record::problem::Problem;
use record::run::{self, Run};
use record::trial::{self, Trial};
use record::units::format_count;

use crate::exit::{Exit, Failure};
use crate::flags::Typed;
use crate::output::diagnosis::diagnosis;
use crate::output::file::write_json;
use crate::output::print;
use crate::preflight;

pub(super) fn run(typed: Typed<'_>) -> Result<Exit, Failure> {
    let files = typed.values();
    let Some(file) = files.first() else {
        let text = "there is none; name a record of weir load --json";
        return Err(vec![Problem::new("FILE", text)].into());
    };
    preflight::outputs(typed, &["json"], &[])?;
    let (mut run, which) =
        run_of(Path::new(file)).map_err(|why| vec![Problem::new("FILE", why)])?;
    let mut problems = Vec::new();
    for other in &files[1..] {
        match record::watch::read(Path::new(other)) {
            Ok(watch) => match add(&mut run, watch.observed) {
                Ok(()) => {}
                Err(why) => problems.push(Problem::new("FILE", format!("{other}: {why}"))),
            },
            Err(error) => problems.push(Problem::new("FILE", error.to_string())),
        }
    }
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let dropped = diagnose_again(&mut run);
    let json = typed.text("json");
    if json.as_deref() != Some("-") {
        print(&format!("{}{}", which.unwrap_or_default(), diagnosis(&run, true)));
    }
    if let Some(tested) = dropped {
        note!("weir: the counter-test in the record is of {tested}: it says nothing here");
    }
    write_json(&run, json.as_deref())?;
    Ok(Exit::Done)
}

/// Puts what was seen of another machine beside a run, if it is of the same time.
fn add(run: &mut Run, mut observed: Observed) -> Result<(), String> {
    let started_at = observed.started_at.clone();
    let readable = observed.count_from(&run.started_at);
    if let Some((from_s, to_s)) = observed.span_s().filter(|_| readable)
        && (to_s <= 0.0 || from_s >= run.duration_s)
    {
        let when = match to_s <= 0.0 {
            true => format!("ended {:.0} s before the run began", -to_s),
            false => format!("began {:.0} s after the run had ended", from_s - run.duration_s),
        };
        return Err(format!(
            "this watch is of another time than the run: it began at {started_at} and took {:.0} s, the \
             run began at {} and took {:.0} s, so it {when} (the clocks of both machines have to agree)",
            to_s - from_s,
            run.started_at,
            run.duration_s
        ));
    }
    run.observed.push(observed);
    Ok(())
}

/// Works the diagnosis out again, with the counter-test that was made where it is of the same verdict;
/// returns the verdict that it is of where it is not.
fn diagnose_again(run: &mut Run) -> Option<String> {
    let earlier = run.diagnosis.take().unwrap_or_default();
    let (of, untested) = (earlier.verdict.clone(), earlier.untested.clone());
    let made = made_for(earlier);
    let tested = made.as_ref().map(|test| test.verdict.clone());
    let found = lab::diagnosis::diagnose(run);
    let mut found = match made {
        Some(test) => settle(found, test),
        None => found,
    };
    found.untested = untested.filter(|_| of == found.verdict);
    let kept = found.confirmation.is_some();
    run.diagnosis = Some(found);
    tested.filter(|_| !kept)
}

/// The run that a record is of, and which one of a search that is.
fn run_of(path: &Path) -> Result<(Run, Option<String>), String> {
    let text = |error: ReadError| error.to_string();
    match schema(path).map_err(text)?.as_str() {
        run::SCHEMA => Ok((read_run(path).map_err(text)?, None)),
        edge::SCHEMA => of_search(read(path, edge::SCHEMA).map_err(text)?)
            .map_err(|why| format!("{}: {why}", path.display())),
        trial::SCHEMA => {
            let trial: Trial = read(path, trial::SCHEMA).map_err(text)?;
            let run = trial.run.ok_or_else(|| match trial.failed {
                Some(why) => format!("{}: the trial failed: {why}", path.display()),
                None => format!(
                    "{}: {} drove the load, which leaves no record to diagnose",
                    path.display(),
                    trial.driver.program
                ),
            });
            Ok((run?, None))
        }
        other => Err(text(ReadError::Schema {
            path: path.to_owned(),
            found: other.to_owned(),
            wanted: "weir.run/1, weir.edge/1, weir.trial/1",
        })),
    }
}

/// The run that a search stopped at; where no level was missed, the one that held the highest.
fn of_search(edge: Edge) -> Result<(Run, Option<String>), &'static str> {
    let (run, what) = match (edge.stopped_run, edge.stopped_by, edge.at_edge) {
        (Some(run), ..) => (run, "did not hold"),
        (None, None, Some(run)) => (run, "held"),
        (None, Some(_), _) => {
            return Err("an older weir wrote it, which did not keep the run that it stopped at");
        }
        (None, None, None) => return Err("the search ended before there was a run to keep"),
    };
    let level = match run.rates.offered_per_s {
        Some(offered) => format!(" at {}/s", format_count(offered)),
        None => String::new(),
    };
    let connections = run.totals.connections.wanted;
    let line =
        format!("search       the run{level} with {connections} connections, which {what}\n");
    Ok((*run, Some(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::observed::Sample;

    /// A record as files have it, of a run without figures.
    fn run_json() -> serde_json::Value {
        let empty = serde_json::to_value(record::histogram::Latencies::new().summary()).unwrap();
        let pair = serde_json::json!({"service": empty, "response": empty});
        serde_json::json!({
            "schema": run::SCHEMA, "weir": {"version": "0", "commit": "0"}, "command": [],
            "started_at": "", "duration_s": 10.0, "plan": null, "objectives": [], "intervals": [],
            "validity": {"verdict": "valid", "reasons": []},
            "host": record::facts::HostFacts::default(),
            "totals": run::Totals::default(),
            "rates": {"responses_per_s": 50.0, "bytes_in_per_s": 1.0, "offered_per_s": 100.0},
            "window": run::Window::default(),
            "latency": {"connect": pair, "first_byte": pair, "last_byte": pair},
            "generator": run::Generator::default(), "cpu": run::Cpu::default(),
        })
    }

    fn run_value() -> Run {
        serde_json::from_value(run_json()).unwrap()
    }

    fn diagnosed(tested: &str, verdict: &str, confirmed: bool) -> (Run, Option<String>) {
        let mut run = run_value();
        let confirmation = run::Confirmation {
            verdict: tested.to_owned(),
            confirmed,
            ..run::Confirmation::default()
        };
        run.diagnosis = Some(run::Diagnosis {
            verdict: verdict.to_owned(),
            confirmation: Some(confirmation),
            ..run::Diagnosis::default()
        });
        let dropped = diagnose_again(&mut run);
        (run, dropped)
    }

    #[test]
    fn a_counter_test_is_kept_for_the_verdict_that_it_tested() {
        // What half of what is offered is answered by, without a cause that can be seen: unknown.
        let (run, dropped) = diagnosed("latency_bound", "latency_bound", true);
        let found = run.diagnosis.unwrap();
        assert_eq!((found.verdict.as_str(), found.confirmation), ("unknown", None));
        assert_eq!(dropped.as_deref(), Some("latency_bound"));
        let (run, dropped) = diagnosed("unknown", "unknown", true);
        assert!(run.diagnosis.unwrap().confirmation.is_some() && dropped.is_none());
        // Refuted once, and found again.
        let (run, _) = diagnosed("unknown", "unknown", false);
        let found = run.diagnosis.unwrap();
        assert!(found.claim.starts_with("unknown was refuted"), "{}", found.claim);
        // Why none could be made is kept for the same verdict too.
        for (verdict, kept) in [("unknown", Some("why".to_owned())), ("latency_bound", None)] {
            let mut run = run_value();
            run.diagnosis = Some(run::Diagnosis {
                verdict: verdict.to_owned(),
                untested: Some("why".to_owned()),
                ..run::Diagnosis::default()
            });
            diagnose_again(&mut run);
            assert_eq!(run.diagnosis.unwrap().untested, kept);
        }
    }

    #[test]
    fn a_watch_of_another_time_is_refused_with_both_times() {
        let mut run = run_value();
        "2026-01-01T10:00:00Z".clone_into(&mut run.started_at);
        let watch = |started_at: &str| {
            let sample = |time_s| Sample { time_s, length_s: 1.0, ..Sample::default() };
            let samples = (1..=5).map(f64::from).map(sample).collect();
            Observed { started_at: started_at.to_owned(), samples, ..Observed::default() }
        };
        let why = add(&mut run, watch("2026-01-01T09:00:00Z")).unwrap_err();
        assert!(why.contains("began at 2026-01-01T09:00:00Z and took 5 s"), "{why}");
        assert!(why.contains("2026-01-01T10:00:00Z and took 10 s"), "{why}");
        assert!(why.contains("ended 3595 s before the run began"), "{why}");
        let why = add(&mut run, watch("2026-01-01T10:00:30Z")).unwrap_err();
        assert!(why.contains("began 20 s after the run had ended"), "{why}");
        assert_eq!(run.observed, []);
        // It need not be of all of the run; and where a time is not told, nobody can say.
        for started_at in ["2026-01-01T09:59:57Z", "2026-01-01T10:00:09Z", ""] {
            add(&mut run, watch(started_at)).unwrap();
        }
        assert_eq!(run.observed.len(), 3);
    }

    #[test]
    fn a_search_and_a_trial_have_a_run_to_diagnose() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        let of = |value: serde_json::Value| {
            std::fs::write(&path, value.to_string()).unwrap();
            run_of(&path)
        };
        assert_eq!(of(run_json()).unwrap(), (run_value(), None));
        let search = |parts: serde_json::Value| {
            let mut edge = serde_json::json!({
                "schema": edge::SCHEMA, "weir": {"version": "0", "commit": "0"}, "command": [],
                "started_at": "", "duration_s": 1.0, "plan": null, "find": "rate", "words": "",
                "host": record::facts::HostFacts::default(), "objectives": [], "trials": [],
                "conclusion": edge::Conclusion::default(),
            });
            for (name, part) in parts.as_object().unwrap() {
                edge[name] = part.clone();
            }
            edge
        };
        let mut held = run_json();
        held["rates"]["offered_per_s"] = 40.0.into();
        let by = run::Diagnosis::default();
        let whole = serde_json::json!({
            "stopped_by": by, "stopped_run": run_json(), "at_edge": held
        });
        let (run, which) = of(search(whole)).unwrap();
        assert_eq!((run, which.unwrap().contains("100/s")), (run_value(), true));
        let (run, which) = of(search(serde_json::json!({"at_edge": held}))).unwrap();
        assert_eq!(run.rates.offered_per_s, Some(40.0));
        assert!(which.unwrap().contains("which held"));
        let older = of(search(serde_json::json!({"stopped_by": by, "at_edge": held})));
        assert!(older.unwrap_err().contains("an older weir"));
        assert!(of(search(serde_json::json!({}))).unwrap_err().contains("before there was a run"));

        let mut trial = Trial { schema: trial::SCHEMA.to_owned(), ..Trial::default() };
        "wrk".clone_into(&mut trial.driver.program);
        let without = of(serde_json::to_value(&trial).unwrap()).unwrap_err();
        assert!(without.contains("wrk drove the load"), "{without}");
        trial.run = Some(run_value());
        assert_eq!(of(serde_json::to_value(&trial).unwrap()).unwrap(), (run_value(), None));
        let other = of(serde_json::json!({"schema": "weir.watch/1"})).unwrap_err();
        assert!(other.contains("weir.edge/1"), "{other}");
    }
}
