//! Checks of a file against its environment: this machine, and the flags of `weir load`, which only
//! the command line knows. Problems are reported with their position in the file.
//!
//! Checks of the file alone are elsewhere.

use record::document::Problems;
use record::problem::InputProblem;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fill::ParameterFiller;
use crate::engine::environment::{missing_libraries, program_name};
use crate::scenario::machines::MachineSetup;
use crate::scenario::placeholders::{
    DURATION_PLACEHOLDER, TRIAL_PLACEHOLDERS, TextPiece, fill, split_pieces,
};
use crate::scenario::program::ProgramSetup;
use crate::scenario::read::parse_document;
use crate::scenario::setup::{LabSetup, LoadTool};
use crate::trial::driver;

/// Check of a load by agents: takes `agents` and the flags, returns a key of `[load]` with its problem for each.
pub type FleetLoadCheck = dyn Fn(&str, &[String]) -> Vec<(&'static str, String)>;

#[derive(Clone, Copy)]
pub struct EnvironmentChecks<'a> {
    /// Reason why a program cannot be started; `None` if it can, or if that is unknown in advance.
    pub program_problem: &'a dyn Fn(&str) -> Option<String>,
    pub version_output: &'a dyn Fn(&str) -> Option<String>,
    /// CPUs of the machine; empty if unknown.
    pub cpus: &'a [u32],
    /// Reason why calls of this name cannot be counted.
    pub calls_problem: &'a dyn Fn(&str) -> Option<String>,
    /// Problems of the arguments of `weir load`.
    pub load_flag_problems: &'a dyn Fn(&[String]) -> Vec<String>,
    /// Problems of a machine of a fleet, each with its key. No machine is asked.
    pub machine_problems: &'a dyn Fn(&MachineSetup) -> Vec<(&'static str, String)>,
    /// Problems of a load of a fleet, of its agents and its arguments, each with its key.
    pub fleet_load_problems: &'a FleetLoadCheck,
}

impl std::fmt::Debug for EnvironmentChecks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvironmentChecks").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

impl EnvironmentChecks<'_> {
    /// Parses the file of one trial, and checks it against this environment. `file` names it in
    /// problems.
    ///
    /// # Errors
    /// All problems of the file, in its order.
    pub fn parse_scenario(&self, file: &str, text: &str) -> Result<LabSetup, Vec<InputProblem>> {
        let mut problems = Problems::default();
        let (mut document, is_valid) = parse_document(text, &mut problems);
        if !is_valid {
            return Err(problems.into_input_problems(file, text));
        }
        let setup = LabSetup::from_document(&document, &mut problems);
        if !setup.machines.is_empty() {
            let text = "machines of a fleet need an experiment: weir lab run";
            problems.add_error(value_position(&document, &["machine"]), text);
        }
        let mut filler = ParameterFiller::for_scenario(text);
        filler.fill_table(&mut document, "");
        problems.append(filler.problems);
        for (at, problem) in self.cell_problems(&document, &setup) {
            problems.add_error(at, problem);
        }
        let problems = problems.into_input_problems(file, text);
        if problems.is_empty() { Ok(setup) } else { Err(problems) }
    }

    /// Returns the problems of one arm under one load; `merged` is the file with both applied.
    pub(super) fn cell_problems(&self, merged: &DeTable<'_>, setup: &LabSetup) -> Vec<(usize, String)> {
        if !setup.machines.is_empty() {
            return self.fleet_problems(merged, setup);
        }
        let mut problems = Vec::new();
        let origin = setup.origin.iter().map(|origin| (vec!["origin"], origin));
        let extras = setup.programs.iter().map(|extra| (vec!["programs", &*extra.name], &extra.program));
        for (table, program) in [(vec!["subject"], &setup.subject)].into_iter().chain(origin).chain(extras) {
            let key = |name| value_position(merged, &[&table[..], &[name]].concat());
            let reason = program_name(program).and_then(|name| (self.program_problem)(&name));
            problems.extend(reason.map(|why| (key("command"), why)));
            for (name, words) in [("ready-command", &program.ready_command), ("build", &program.build)] {
                let first = words.first().filter(|word| !word.contains('{'));
                let reason = first.and_then(|program| (self.program_problem)(program));
                problems.extend(reason.map(|why| (key(name), why)));
            }
            let at = preload_position(merged, &table, program);
            problems.extend(missing_libraries(program).into_iter().map(|reason| (at, reason)));
        }
        if setup.tool != LoadTool::Weir {
            let driver = driver::driver_spec(setup.tool);
            let reason = (self.program_problem)(driver.program);
            let text = |reason| format!("{reason}: install it ({})", driver.package);
            problems.extend(reason.map(|why| (value_position(merged, &["load", "tool"]), text(why))));
        } else if let Some(words) = with_sample_values(&setup.load).filter(|words| !words.is_empty()) {
            let at = value_position(merged, &["load", "flags"]);
            let wrong = (self.load_flag_problems)(&words).into_iter();
            problems.extend(wrong.map(|reason| (at, format!("'load.flags': {reason}"))));
        }
        problems.extend(self.cpu_problems(merged, setup));
        problems
    }

    /// Returns the problems of one arm under one load on machines of a fleet. CPUs and programs are there.
    fn fleet_problems(&self, merged: &DeTable<'_>, setup: &LabSetup) -> Vec<(usize, String)> {
        let mut problems = Vec::new();
        for machine in &setup.machines {
            // A parameter without a text is reported on its own.
            let Some(arguments) = with_sample_values(&machine.arguments) else { continue };
            let machine = MachineSetup { arguments, ..machine.clone() };
            problems.extend((self.machine_problems)(&machine).into_iter().map(|(key, text)| {
                let name = &machine.name;
                (value_position(merged, &["machine", name, key]), format!("'machine.{name}.{key}': {text}"))
            }));
        }
        if let Some(words) = with_sample_values(&setup.load).filter(|words| !words.is_empty()) {
            let wrong = (self.fleet_load_problems)(&setup.agents, &words);
            problems.extend(wrong.into_iter().map(|(key, text)| {
                (value_position(merged, &["load", key]), format!("'load.{key}': {text}"))
            }));
        }
        problems
    }

    fn cpu_problems(&self, merged: &DeTable<'_>, setup: &LabSetup) -> Vec<(usize, String)> {
        let scenario = &setup.scenario;
        let noise = scenario
            .noise
            .as_ref()
            .map(|noise| (value_position(merged, &["scenario", "noise", "cpus"]), &noise.cpus));
        let pins = scenario.pins.iter();
        let pins =
            pins.map(|(node, cpus)| (value_position(merged, &["scenario", "pin", &node.to_string()]), cpus));
        let missing = |(at, cpus): (usize, &Vec<u32>)| {
            let cpu = cpus.iter().find(|cpu| !self.cpus.contains(cpu))?;
            let cpu_list: Vec<String> = self.cpus.iter().map(u32::to_string).collect();
            Some((at, format!("there is no CPU {cpu} on this machine; there are: {}", cpu_list.join(", "))))
        };
        let are_cpus_known = !self.cpus.is_empty();
        pins.chain(noise).filter(|_| are_cpus_known).filter_map(missing).collect()
    }
}

fn preload_position(file_table: &DeTable<'_>, table: &[&str], program: &ProgramSetup) -> usize {
    match program.env.contains_key("LD_PRELOAD") {
        true => value_position(file_table, &[table, &["env", "LD_PRELOAD"]].concat()),
        false => value_position(file_table, &[table, &["command"]].concat()),
    }
}

/// Returns the words with sample values in place of the placeholders that a trial fills in. `None`
/// if a parameter has no text yet, or if the words name a thing that only the trial creates.
fn with_sample_values(words: &[String]) -> Option<Vec<String>> {
    let value = |name: &str| match name {
        "port" => Some("8000"),
        "weir" => Some("weir"),
        DURATION_PLACEHOLDER => Some("1s"),
        _ => Some("127.0.0.1"),
    };
    let is_known = |word: &String| {
        split_pieces(word).iter().all(|(_, piece)| match piece {
            TextPiece::Placeholder(name) => TRIAL_PLACEHOLDERS.contains(name) && *name != "dir",
            _ => true,
        })
    };
    words.iter().all(is_known).then(|| words.iter().map(|word| fill(word, value)).collect())
}

/// Returns the position of a key's value; if the key is missing, that of the nearest table above
/// it.
fn value_position(file_table: &DeTable<'_>, path: &[&str]) -> usize {
    let mut at = 0;
    let mut table = Some(file_table);
    for name in path {
        let value: Option<&Spanned<DeValue<'_>>> = table.and_then(|table| table.get(*name));
        let Some(value) = value else { break };
        at = value.span().start;
        table = value.get_ref().as_table();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::{ExperimentFile, ExperimentOptions};
    use super::*;
    use crate::scenario::setup::tests::assert_problems;
    use crate::trial::metrics::METRICS;

    const TEXT: &str = r#"[parameters]
url = "http://{subject}:8000/"
[scenario]
pin = { client = "0", subject = "1-2" }
noise = { cpus = "7", processes = 1 }
[subject]
command = "env MODE=a gone -t 1"
ready = "{subject}:8000"
ready-command = "{weir} report x"
env.LD_PRELOAD = "/no/such/liba.so"
[origin]
command = "{dir}/made"
ready = "{origin}:8000"
ready-command = "gone-too"
[load]
flags = "-c 1 --bogus -d {duration} {url}"
[arms.a]
[arms.b]
subject.command = "there"
[loads.own]
[loads.foreign]
load.tool = "h2load"
[loads.none]
load.tool = "h1load"
[measure]
primary = "p99_ns"
also = ["responses_per_s", "p999_ns", "origin_cpus", "p50_ns", "responses_per_s"]
calls = "mallocx"
[programs.other]
command = "there"
build = "gone-cc x"
"#;

    fn parse_with_environment(
        text: &str,
        options: &ExperimentOptions,
    ) -> Result<ExperimentFile, Vec<String>> {
        let gone =
            |name: &str| (name.starts_with("gone") || name == "h1load").then(|| format!("'{name}' is gone"));
        let flags = |words: &[String]| {
            assert_eq!(words[words.len() - 2..], ["1s", "http://127.0.0.1:8000/"]);
            let bogus = words.iter().filter(|word| *word == "--bogus");
            bogus.map(|word| format!("no flag {word}")).collect()
        };
        let checks = EnvironmentChecks {
            program_problem: &gone,
            version_output: &|name| Some(format!("{name} nghttp2/1.52.0")),
            cpus: &[0, 1],
            calls_problem: &|name| (name == "mallocx").then(|| "no such call".to_owned()),
            load_flag_problems: &flags,
            machine_problems: &|_| Vec::new(),
            fleet_load_problems: &|_, _| Vec::new(),
        };
        let metrics: Vec<_> = METRICS.iter().map(crate::trial::metrics::TrialMetric::metric).collect();
        ExperimentFile::parse_with_checks("a.toml", text, options, &metrics, Some(&checks))
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn problems_of_the_environment_are_reported_at_once_with_positions() {
        let text = TEXT.replace("[scenario]\n", "[scenario]\nnetwork = \"chain\"\n");
        let problems = parse_with_environment(&text, &ExperimentOptions::default()).unwrap_err();
        let expected = [
            "a.toml:5:33: CPU 2 0, 1",
            "a.toml:6:18: CPU 7",
            "a.toml:8:11: 'gone' (arm 'a')",
            "a.toml:11:18: /no/such/liba.so: No such file",
            "a.toml:15:17: 'gone-too'",
            "a.toml:17:9: 'load.flags': --bogus (load 'own')",
            "a.toml:25:13: 'h1load' (https://github.com/wtarreau/h1load) (load 'none')",
            "a.toml:27:1: 'p99_ns' h2load (arm 'a' 'foreign'); responses_per_s, bytes_in_per_s, mean_ns, \
             max_ns, subject_us_per_response",
            "a.toml:28:64: 'responses_per_s' 'measure.also'",
            "a.toml:29:1: no such call",
            "a.toml:32:9: 'gone-cc'",
        ];
        assert_problems(&problems, &expected);
    }

    #[test]
    fn the_file_of_one_trial_is_checked_too() {
        let gone = |name: &str| (name == "gone").then(|| "it is gone".to_owned());
        let flags = |words: &[String]| {
            let bogus = words.iter().filter(|word| *word == "--bogus");
            bogus.map(|word| format!("no flag {word}")).collect()
        };
        let checks = EnvironmentChecks {
            program_problem: &gone,
            version_output: &|_| None,
            cpus: &[0],
            calls_problem: &|_| None,
            load_flag_problems: &flags,
            machine_problems: &|_| Vec::new(),
            fleet_load_problems: &|_, _| Vec::new(),
        };
        let parse = |command: &str, load: &str| {
            let text = format!(
                "[subject]\ncommand = \"{command}\"\nready = \"{{subject}}:80\"\n[load]\nflags = \"{load}\"\n"
            );
            let parsed = checks.parse_scenario("a.toml", &text);
            parsed.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let setup = parse("there {port}", "-d {duration} http://{subject}/").unwrap();
        assert_eq!(setup.subject.command, ["there", "{port}"]);
        let problems = parse("gone", "--bogus").unwrap_err();
        assert_eq!(problems, ["a.toml:2:11: it is gone", "a.toml:5:9: 'load.flags': no flag --bogus"]);
        let problems = parse("there", "-d {duraton}").unwrap_err();
        let misspelt = "a.toml:5:13: unknown placeholder '{duraton}' (did you mean 'duration'?): ";
        assert!(problems.len() == 1 && problems[0].starts_with(misspelt), "{problems:?}");
        assert!(!problems[0].contains("[parameters]"), "{problems:?}");
    }

    #[test]
    fn metrics_that_no_trial_has_are_refused_or_left_out() {
        let base = "[subject]\ncommand = \"there\"\nready = \"{subject}:80\"\n[load]\n\
                    flags = \"-d {duration} http://{subject}:8000/\"\ntool = \"TOOL\"\n[measure]\n";
        let parse_metrics = |tool: &str, more: &str, options: &ExperimentOptions| {
            parse_with_environment(&(base.replace("TOOL", tool) + more), options)
        };
        let names = |file: ExperimentFile| -> Vec<String> {
            file.plan().metrics.iter().map(|metric| metric.name.clone()).collect()
        };
        for (tool, primary) in [
            ("wrk", "p999_ns"),
            ("wrk", "rate_max_per_s"),
            ("ab", "rate_max_per_s"),
            ("oha", "bytes_in_per_s"),
            ("oha", "rate_max_per_s"),
            ("weir", "origin_cpus"),
        ] {
            let more = format!("primary = \"{primary}\"\n");
            let problems = parse_metrics(tool, &more, &ExperimentOptions::default()).unwrap_err();
            let begin = format!("a.toml:8:1: '{primary}' ");
            assert!(problems.len() == 1 && problems[0].starts_with(&begin), "{problems:#?}");
            let (_, there) = problems[0].rsplit_once(": ").unwrap();
            for name in there.split(", ") {
                parse_metrics(tool, &format!("primary = \"{name}\"\n"), &ExperimentOptions::default())
                    .unwrap();
            }
            let more = format!("also = [\"{primary}\"]\n");
            let problems = parse_metrics(tool, &more, &ExperimentOptions::default()).unwrap_err();
            assert!(problems[0].starts_with(&format!("a.toml:8:9: '{primary}' ")), "{problems:#?}");
            // A setting that was accepted and run before is not rejected later.
            let accepted = ExperimentOptions { was_accepted: true, ..ExperimentOptions::default() };
            assert_eq!(names(parse_metrics(tool, &more, &accepted).unwrap()), ["responses_per_s", primary]);
        }
        let metrics_left =
            |tool: &str| names(parse_metrics(tool, "", &ExperimentOptions::default()).unwrap());
        assert!(metrics_left("oha").contains(&"p99_ns".to_owned()));
        let h2load_metrics = metrics_left("h2load");
        assert!(h2load_metrics.contains(&"subject_us_per_response".to_owned()), "{h2load_metrics:?}");
        assert!(!h2load_metrics.iter().any(|name| name.starts_with('p')), "{h2load_metrics:?}");
    }

    const FLEET: &str = r#"[parameters]
threads = "1"
[machine.edge]
agent = "name=edge"
proxy = ["--to", "10.0.0.3:80", "-t", "{threads}"]
[load]
flags = "-d {duration} http://10.0.0.2/"
[arms.one]
[arms.two]
parameters.threads = "2"
[arms.other]
machine.edge.proxy = ["--to", "10.0.0.4:80", "-t", "{threads}"]
[measure]
profile = true
"#;

    fn parse_fleet(text: &str) -> Result<ExperimentFile, Vec<String>> {
        let machine = |machine: &MachineSetup| {
            let is_wrong = machine.arguments.last().is_some_and(|last| last == "2");
            let problem = || ("proxy", format!("{} has one CPU", machine.agent));
            is_wrong.then(problem).into_iter().collect()
        };
        let checks = EnvironmentChecks {
            program_problem: &|name| Some(format!("{name} is not looked for")),
            version_output: &|_| None,
            cpus: &[0],
            calls_problem: &|_| None,
            load_flag_problems: &|_| vec!["of one machine".to_owned()],
            machine_problems: &machine,
            fleet_load_problems: &|agents, words| {
                assert_eq!((agents, words.len()), ("all", 3));
                Vec::new()
            },
        };
        let metrics: Vec<_> = METRICS.iter().map(crate::trial::metrics::TrialMetric::metric).collect();
        let options = ExperimentOptions::default();
        ExperimentFile::parse_with_checks("a.toml", text, &options, &metrics, Some(&checks))
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn arms_patch_the_arguments_of_machines_and_all_problems_are_reported() {
        let problems = parse_fleet(FLEET).unwrap_err();
        let expected = [
            "a.toml:5:9: 'machine.edge.proxy' name=edge (arm 'two')",
            "a.toml:14:1: 'measure.profile' fleet",
        ];
        assert_problems(&problems, &expected);
        let right = FLEET.replace("profile = true", "also = [\"subject_cpus\"]").replace("\"2\"", "\"3\"");
        let file = parse_fleet(&right).unwrap();
        let arguments = |arm: &str| file.setup(arm, "load").unwrap().machines[0].arguments.join(" ");
        assert_eq!(arguments("one"), "--to 10.0.0.3:80 -t 1");
        assert_eq!(arguments("two"), "--to 10.0.0.3:80 -t 3");
        assert_eq!(arguments("other"), "--to 10.0.0.4:80 -t 1");
        let arm = |name: &str| file.plan().arm(name).unwrap().changes.clone();
        assert_eq!(arm("other"), [("machine.edge.proxy --to".to_owned(), "10.0.0.4:80".to_owned())].into());
    }
}
