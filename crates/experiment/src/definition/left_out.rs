//! Loads that need more CPUs than the machine has: they are checked as the others are, but not run, and the plan says so.

use record::document::{Problems, text_or_number};
use record::experiment::LeftOutLoad;
use record::units::format_plural;
use toml::de::DeTable;

use super::environment_checks::EnvironmentChecks;
use super::file::FileParts;
use super::variants::Variant;
use crate::scenario::keys::{CPUS_MAX, NEEDS_CPUS};

/// Decides which loads are left out.
pub(super) struct LeaveOutRule<'a> {
    /// Loads that a plan left out when its file was read first.
    stored: Option<&'a [LeftOutLoad]>,
    /// CPUs of the machine; 0 if unknown.
    cpus: u64,
}

impl<'a> LeaveOutRule<'a> {
    pub(super) fn new(stored: Option<&'a [LeftOutLoad]>, checks: Option<&EnvironmentChecks<'_>>) -> Self {
        Self { stored, cpus: checks.map_or(0, |checks| checks.cpus.len() as u64) }
    }

    /// Takes the key of the CPUs from the patch of a load, and returns the load if it is left out.
    pub(super) fn take(
        &self,
        name: &str,
        patch: &mut DeTable<'_>,
        parts: &FileParts<'_>,
        problems: &mut Problems,
    ) -> Option<LeftOutLoad> {
        let value = patch.remove(NEEDS_CPUS)?;
        let path = format!("loads.{name}.{NEEDS_CPUS}");
        let number = text_or_number(value.get_ref()).and_then(|text| text.parse::<u64>().ok());
        let Some(needed) = number.filter(|number| (1..=CPUS_MAX).contains(number)) else {
            let text = format!("'{path}' takes an integer from 1 to {CPUS_MAX}");
            problems.add_error(value.span().start, text);
            return None;
        };
        if parts.base.contains_key("machine") {
            let text = format!("'{path}' is of this machine: agents of a fleet have CPUs of their own");
            problems.add_error(value.span().start, text);
            return None;
        }
        if let Some(stored) = self.stored {
            return stored.iter().find(|load| load.name == name).cloned();
        }
        let is_left_out = self.cpus > 0 && needed > self.cpus;
        let reason = format!("it needs {}, and this machine has {}", format_plural(needed, "CPU"), self.cpus);
        is_left_out.then(|| LeftOutLoad { name: name.to_owned(), reason })
    }
}

/// Removes the loads that are left out, and returns them, each once. That none is left is a problem.
pub(super) fn remove_left_out(loads: &mut Vec<Variant<'_>>, problems: &mut Problems) -> Vec<LeftOutLoad> {
    let mut left_out: Vec<LeftOutLoad> = Vec::new();
    for load in loads.iter().filter_map(|load| load.left_out.as_ref()) {
        if !left_out.contains(load) {
            left_out.push(load.clone());
        }
    }
    if let Some(first) = loads.first()
        && loads.iter().all(|load| load.left_out.is_some())
    {
        let each: Vec<String> =
            left_out.iter().map(|load| format!("{}: {}", load.name, load.reason)).collect();
        problems.add_error(first.offset, format!("no load is left: {}", each.join("; ")));
    }
    loads.retain(|load| load.left_out.is_none());
    left_out
}

#[cfg(test)]
mod tests {
    use record::experiment::{ExperimentMetric, ExperimentPlan};

    use super::super::ready::find_ready_made;
    use super::super::{ExperimentFile, ExperimentOptions};
    use super::*;
    use crate::scenario::setup::tests::assert_problems;
    use crate::trial::metrics::{METRICS, TrialMetric};

    /// Parses a file on a machine of this many CPUs; `None`: no machine.
    fn parse_on(
        cpus: Option<u32>,
        text: &str,
        options: &ExperimentOptions,
    ) -> Result<ExperimentFile, Vec<String>> {
        let cpus: Option<Vec<u32>> = cpus.map(|count| (0..count).collect());
        let checks = cpus.as_ref().map(|cpus| EnvironmentChecks {
            program_problem: &|_| None,
            version_output: &|_| None,
            cpus,
            calls_problem: &|_| None,
            load_flag_problems: &|_| Vec::new(),
            machine_problems: &|_| Vec::new(),
            fleet_load_problems: &|_, _| Vec::new(),
        });
        let metrics: Vec<ExperimentMetric> = METRICS.iter().map(TrialMetric::metric).collect();
        ExperimentFile::parse_with_checks("a.toml", text, options, &metrics, checks.as_ref())
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    fn plan_on(cpus: Option<u32>, text: &str) -> ExperimentPlan {
        let file = parse_on(cpus, text, &ExperimentOptions::default());
        file.unwrap_or_else(|problems| panic!("{problems:#?}")).plan().clone()
    }

    fn loads(plan: &ExperimentPlan) -> Vec<&str> {
        plan.loads.iter().map(|load| &*load.name).collect()
    }

    fn left_out(plan: &ExperimentPlan) -> Vec<(&str, &str)> {
        plan.left_out.iter().map(|load| (&*load.name, &*load.reason)).collect()
    }

    #[test]
    fn the_ready_made_experiment_has_the_threads_that_the_cpus_allow() {
        let text = find_ready_made("user-space-tcp").unwrap().text;
        let sizes = ["100", "1k", "10k", "100k"];
        let all = |threads: &[u32]| -> Vec<String> {
            let names = threads.iter().map(|threads| format!("threads-{threads}-size-"));
            names.flat_map(|name| sizes.map(|size| format!("{name}{size}"))).collect()
        };
        let two = ("threads-2", "it needs 4 CPUs, and this machine has 2");
        let four = |reason| ("threads-4", reason);
        for (cpus, threads, missing) in [
            (Some(2), &[1][..], vec![two, four("it needs 8 CPUs, and this machine has 2")]),
            (Some(4), &[1, 2], vec![four("it needs 8 CPUs, and this machine has 4")]),
            (Some(7), &[1, 2], vec![four("it needs 8 CPUs, and this machine has 7")]),
            (Some(8), &[1, 2, 4], vec![]),
            (None, &[1, 2, 4], vec![]),
        ] {
            let file = parse_on(cpus, text, &ExperimentOptions::default()).unwrap();
            let plan = file.plan();
            assert_eq!(
                (loads(plan), left_out(plan)),
                (all(threads).iter().map(String::as_str).collect(), missing)
            );
            assert_eq!(plan.arms.len(), 5);
            for load in &plan.loads {
                let threads: u32 = load.name.split('-').nth(1).unwrap().parse().unwrap();
                let setup = file.setup("xdp", &load.name).unwrap();
                assert!(setup.subject.command.join(" ").contains(&format!("-t {threads} ")), "{setup:?}");
                assert!(setup.load.join(" ").contains(&format!("-t {threads} ")), "{setup:?}");
                // No CPU is shared.
                let cpus: Vec<u32> = setup.scenario.pins.values().flatten().copied().collect();
                assert_eq!(cpus, (0..2 * threads).collect::<Vec<u32>>(), "{}", load.name);
                let names: Vec<&String> = load.levels.keys().collect();
                assert_eq!(names == ["load", "size"], plan.loads.len() > 4, "{names:?}");
            }
            assert_eq!(file.setup("xdp", "threads-4-size-1k").is_some(), threads.contains(&4));
        }
    }

    /// A file with loads of these keys.
    fn with_loads(keys: &[&str]) -> String {
        let base = "[parameters]\nx = 1\n[scenario]\npin = { subject = \"{x}\" }\n[subject]\ncommand = \"s\"\n\
                    ready = \"{subject}:80\"\n[load]\nflags = \"-d {duration} u\"\n";
        let loads = keys.iter().enumerate().map(|(at, key)| format!("[loads.l{at}]\n{key}\n"));
        base.to_owned() + &loads.collect::<String>()
    }

    #[test]
    fn a_plan_that_is_read_again_leaves_out_the_same_loads_on_any_machine() {
        let text = with_loads(&["needs-cpus = 2", "needs-cpus = 3"]);
        let plan = plan_on(Some(2), &text);
        assert_eq!(loads(&plan), ["l0"]);
        for cpus in [None, Some(1), Some(2), Some(64)] {
            let again = parse_on(cpus, &plan.file, &ExperimentOptions::from_plan(&plan));
            // One CPU is too few for what runs: that is reported, and nothing is left out silently.
            match again {
                Ok(file) => assert_eq!(file.plan(), &plan, "{cpus:?}"),
                Err(problems) => {
                    assert_eq!(cpus, Some(1));
                    assert_problems(&problems, &["a.toml:4:19: CPU 1"]);
                }
            }
        }
        let whole = plan_on(None, &text);
        let again = parse_on(Some(2), &text, &ExperimentOptions::from_plan(&whole)).unwrap();
        assert_eq!(loads(again.plan()), ["l0", "l1"]);
        let stored: ExperimentPlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(stored, plan);
    }

    #[test]
    fn a_load_that_is_left_out_is_checked_but_not_against_the_machine() {
        let text = with_loads(&["", "needs-cpus = 3\nparameters.x = \"2\""]);
        assert_eq!(loads(&plan_on(Some(2), &text)), ["l0"]);
        let wrong = with_loads(&["", "needs-cpus = 3\nload.flag = \"x\""]);
        let problems = parse_on(Some(2), &wrong, &ExperimentOptions::default()).unwrap_err();
        assert_problems(&problems, &["a.toml:14:6: 'load.flag' 'flags' (load 'l1')"]);
    }

    #[test]
    fn wrong_numbers_of_cpus_and_files_without_a_load_are_refused() {
        let problems = |keys: &[&str]| {
            let parsed = parse_on(Some(2), &with_loads(keys), &ExperimentOptions::default());
            parsed.err().unwrap_or_default()
        };
        for value in ["0", "-1", "8193", "1.5", "\"x\"", "true", "[2]"] {
            let found = problems(&[&format!("needs-cpus = {value}"), ""]);
            assert_problems(&found, &["a.toml:11:14: 'loads.l0.needs-cpus' 1 8192"]);
        }
        assert_problems(&problems(&["needs-cpus = 1", "needs-cpus = 2"]), &[]);
        let none = problems(&["needs-cpus = 3", "needs-cpus = 4"]);
        assert_problems(&none, &["a.toml:10:8: no load l0: it needs 3 CPUs l1: it needs 4 CPUs"]);
        let arm_definition = with_loads(&[""]) + "[arms.a]\nneeds-cpus = 2\n";
        let arm_problems = parse_on(Some(2), &arm_definition, &ExperimentOptions::default()).unwrap_err();
        assert_problems(&arm_problems, &["a.toml:13:1: 'arms.a' 'needs-cpus'"]);
        let fleet = "[machine.edge]\nagent = \"name=edge\"\nproxy = [\"--to\", \"10.0.0.3:80\"]\n[load]\n\
                     flags = \"-d {duration} u\"\n[loads.a]\nneeds-cpus = 1\n[loads.b]\n";
        let fleet = parse_on(Some(2), fleet, &ExperimentOptions::default()).unwrap_err();
        assert_problems(&fleet, &["a.toml:7:14: 'loads.a.needs-cpus' fleet"]);
    }
}
