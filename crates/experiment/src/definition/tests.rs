//! Tests from files to plans: patches, factors, placeholders, problems with their positions, and
//! every ready-made file.

use record::experiment::ExperimentMetric;

use super::ready::{READY_MADE, find_ready_made};
use super::*;
use crate::scenario::plan::Node;
use crate::scenario::setup::LoadTool;
use crate::scenario::setup::tests::assert_problems;
use crate::trial::metrics::{METRICS, TrialMetric};

fn parse(name: &str, text: &str, options: &ExperimentOptions) -> Result<ExperimentFile, Vec<InputProblem>> {
    let metrics: Vec<ExperimentMetric> = METRICS.iter().map(TrialMetric::metric).collect();
    ExperimentFile::parse_with_checks(name, text, options, &metrics, None)
}

fn parse_valid(text: &str) -> ExperimentFile {
    parse("a.toml", text, &ExperimentOptions::default()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn problems_with_options(text: &str, options: &ExperimentOptions) -> Vec<String> {
    let problems = parse("a.toml", text, options).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

fn problems_of(text: &str) -> Vec<String> {
    problems_with_options(text, &ExperimentOptions::default())
}

fn names(arms: &[Arm]) -> Vec<&str> {
    arms.iter().map(|arm| &*arm.name).collect()
}

/// A trial's file in six lines, to which an experiment's keys are added.
const BASE: &str = "[subject]\ncommand = \"server\"\nready = \"{subject}:80\"\n\
                    [load]\nflags = \"-c 1 -d {duration} u\"\n\n";

const FULL_FILE: &str = r#"
name = "two-servers"
title = "Is b better than a?"
[parameters]
threads = 2
url = { value = "http://{subject}:8000{path}", doc = "what is asked for" }
path = "/"
[scenario]
pin = { client = "0", subject = "1" }
[subject]
command = "server -t {threads}"
ready = "{subject}:8000"
env.LANG = "C"
[load]
flags = "-t 1 -c 10 -d {duration} '{url}'"
warm-up = "2s"
[arms.b]
title = "the new one"
subject.command = "server-b -t {threads}"
subject.env.MODE = "fast"
[arms.a]
files."x.conf" = "mode {threads}"
[loads.large]
title = "large bodies"
parameters.path = "/?s=1m"
[loads.small]
load.tool = "wrk"
[measure]
primary = "p99_ns"
also = ["responses_per_s", "p99_ns"]
effect = "1%"
baseline = "a"
duration = "4s"
blocks = { min = 8, reruns-max = "25%" }
confidence = 0.9
profile = true
calls = "malloc"
[discard]
steal = "5%"
clock-step = "1s"
generator-lag = "2ms"
[files]
"x.conf" = "mode plain"
"#;

#[test]
fn a_full_file_becomes_a_plan() {
    let file = parse_valid(FULL_FILE);
    let plan = file.plan();
    assert_eq!((&*plan.name, &*plan.title), ("two-servers", "Is b better than a?"));
    assert_eq!((&*plan.file, &*plan.baseline), (FULL_FILE, "a"));
    assert_eq!(names(&plan.arms), ["a", "a-repeat", "b"]);
    assert_eq!(plan.arms[1].repeats.as_deref(), Some("a"));
    assert_eq!((&*plan.arms[0].title, &*plan.arms[2].title), ("a", "the new one"));
    assert_eq!(plan.arms[0].changes, plan.arms[1].changes);
    assert_eq!(plan.arms[0].changes["files.x.conf"], "mode 2");
    assert_eq!(plan.arms[2].changes["subject.env.MODE"], "fast");
    let both = ["files.x.conf", "subject.command", "subject.env.MODE"];
    assert_eq!(changed_keys(plan, &plan.arms[2]), both);
    assert!(changed_keys(plan, &plan.arms[1]).is_empty());
    let loads: Vec<&str> = plan.loads.iter().map(|load| &*load.name).collect();
    assert_eq!(loads, ["large", "small"]);
    assert_eq!(plan.loads[0].changes["parameters.path"], "/?s=1m");
    let metrics: Vec<&str> = plan.metrics.iter().map(|metric| &*metric.name).collect();
    assert_eq!(metrics, ["p99_ns", "responses_per_s"]);
    assert_eq!((plan.effect, plan.confidence, plan.reruns_max_fraction), (0.01, 0.9, 0.25));
    assert_eq!((plan.blocks_min, plan.blocks_max), (8, 30));
    assert_eq!((plan.duration_s, plan.warm_up_s), (4.0, Some(2.0)));
    assert_eq!((plan.discard["steal_fraction"], plan.discard["clock_step_s"]), (0.05, 1.0));
    assert_eq!(plan.discard["generator_lag_p99_ns"], 2e6);
    assert!(!plan.discard.contains_key("wake_up_p99_ns"), "no bound by default");
    assert!(plan.profile && plan.calls.as_deref() == Some("malloc"));
}

#[test]
fn what_has_several_parts_is_several_changes() {
    let config = "[files]\nx = \"a 1\\nb 1\\nc 1\\nd 1\\n\"\n";
    let arms = "[arms.same]\n\
                [arms.one]\nload.flags = \"-c 9 -d {duration} u\"\n\
                [arms.two]\nload.flags = \"-c 9 -k -d {duration} u\"\n\
                [arms.place]\nfiles.x = \"a 1\\nb 2\\nc 2\\nd 1\\n\"\n\
                [arms.places]\nfiles.x = \"a 1\\nb 2\\nc 1\\nd 2 {{e}}\\n\"\n";
    let changes_of = |more: &str| -> Vec<Vec<String>> {
        let file = parse_valid(&format!("{BASE}{arms}{config}{more}"));
        let plan = file.plan();
        let own = plan.arms.iter().filter(|arm| arm.repeats.is_none());
        own.map(|arm| changed_keys(plan, arm)).collect()
    };
    let expected: [&[&str]; 5] = [
        &[],
        &["load.flags -c"],
        &["load.flags -c", "load.flags -k"],
        &["files.x line 2"],
        &["files.x line 2", "files.x line 4"],
    ];
    assert_eq!(changes_of(""), expected);
    // Compared with an arm that already has one of the two, it is one change.
    let held_against = changes_of("[measure]\nbaseline = \"one\"\n");
    assert_eq!(held_against[2], ["load.flags -k"]);
    let file = parse_valid(&format!("{BASE}{arms}{config}"));
    let changes = &file.plan().arms[5].changes;
    assert_eq!(
        (file.plan().arms[5].name.as_str(), &*changes["files.x line 4"]),
        ("places", "- d 1\n+ d 2 {e}")
    );
}

#[test]
fn every_arm_runs_under_every_load() {
    let file = parse_valid(FULL_FILE);
    let setup = file.setup("b", "large").unwrap();
    assert_eq!(setup.subject.command, ["server-b", "-t", "2"]);
    assert_eq!((&*setup.subject.env["LANG"], &*setup.subject.env["MODE"]), ("C", "fast"));
    let flags = ["-t", "1", "-c", "10", "-d", "{duration}", "http://{subject}:8000/?s=1m"];
    assert_eq!((setup.tool, &setup.load[..]), (LoadTool::Weir, &flags.map(str::to_owned)[..]));
    assert_eq!((setup.profile, setup.calls.clone()), (true, None));
    let setup = file.setup("a-repeat", "small").unwrap();
    assert_eq!(Some(setup), file.setup("a", "small"));
    assert_eq!((setup.tool, &*setup.files["x.conf"]), (LoadTool::Wrk, "mode 2"));
    assert_eq!(setup.scenario.pins[&Node::Subject], [1]);
    assert_eq!(setup.load.last().unwrap(), "http://{subject}:8000/");
    assert!(file.setup("c", "small").is_none() && file.setup("a", "load").is_none());
}

#[test]
fn a_file_of_one_trial_is_compared_with_itself() {
    let file = parse("x/my server.toml", BASE, &ExperimentOptions::default()).unwrap();
    let plan = file.plan();
    assert_eq!((&*plan.name, names(&plan.arms)), ("my-server", vec!["base", "base-repeat"]));
    assert_eq!((&*plan.loads[0].name, &*plan.loads[0].title), ("load", "-c 1 -d {duration} u"));
    assert_eq!(plan.metrics[0].name, "responses_per_s");
    assert_eq!(plan.metrics.len(), 7);
    assert_eq!((plan.blocks_min, plan.blocks_max, plan.warm_up_s), (4, 30, None));
    assert!(file.setup("base-repeat", "load").is_some());
    let at_a_rate = BASE.replace("-c 1", "-c 1 -R 5k");
    assert_eq!(parse_valid(&at_a_rate).plan().metrics[0].name, "subject_us_per_response");
}

#[test]
fn a_load_that_differs_by_arm_is_not_called_by_the_flags_of_one() {
    let text =
        BASE.to_owned() + "[arms.few]\n[arms.alike]\n[arms.many]\nload.flags = \"-c 64 -d {duration} u\"\n";
    let title = |text: &str| parse_valid(text).plan().loads[0].title.clone();
    assert!(title(&text).ends_with("; few, alike: -c 1 -d {duration} u; many: -c 64 -d {duration} u"));
    let other = text + "load.tool = \"wrk\"\n";
    assert!(title(&other).ends_with("; many: wrk -c 64 -d {duration} u"), "{}", title(&other));
    assert!(title(&other).contains("few, alike: weir -c 1 "), "{}", title(&other));
}

#[test]
fn factors_make_all_combinations() {
    let text = BASE.replace("server", "server {t} {size}").replace(" u", " -c {c} u")
        + "[parameters]\nt = 1\nsize = \"k\"\nc = \"\"\n[factors]\nt = [1, 2]\n\
           size = { levels = [\"0.5\", \"k\"] }\nc = { of = \"loads\", levels = [1, 10, 100] }\n";
    let file = parse_valid(&text);
    let plan = file.plan();
    let expected = ["t-1-size-0-5", "t-1-size-0-5-repeat", "t-1-size-k", "t-2-size-0-5", "t-2-size-k"];
    assert_eq!(names(&plan.arms), expected);
    assert_eq!(plan.arms[3].title, "t = 2, size = 0.5");
    assert_eq!((&*plan.arms[3].levels["t"], &*plan.arms[3].levels["size"]), ("2", "0.5"));
    assert_eq!(plan.arms[2].changes.len(), 0, "its levels are the file's own");
    assert_eq!(plan.arms[3].changes["parameters.t"], "2");
    assert_eq!(plan.loads[2].levels["c"], "100");
    assert_eq!(file.setup("t-2-size-k", "c-100").unwrap().subject.command, ["server", "2", "k"]);
    assert!(file.setup("t-2-size-k", "c-100").unwrap().load.contains(&"100".to_owned()));
    let with_arms = parse_valid(&(text + "[arms.x]\n[arms.y]\nsubject.command = \"z{t}{size}\"\n"));
    assert_eq!(
        names(&with_arms.plan().arms)[..3],
        ["x-t-1-size-0-5", "x-t-1-size-0-5-repeat", "x-t-1-size-k"]
    );
    assert_eq!(with_arms.plan().arms.len(), 9);
}

#[test]
fn quick_ends_soon_after_the_first_look() {
    let quick = ExperimentOptions { quick: true, ..ExperimentOptions::default() };
    let file = parse("a.toml", BASE, &quick).unwrap_or_else(|reason| panic!("{reason:?}"));
    assert_eq!((file.plan().blocks_min, file.plan().blocks_max), (4, 6));
}

#[test]
fn options_replace_the_values_of_the_file() {
    let text = BASE.replace("server", "server {x}") + "[parameters]\nx.doc = \"needed\"\n";
    assert_problems(&problems_of(&text), &["a.toml:8:1: 'x' --set x="]);
    let options = ExperimentOptions {
        duration_ns: Some(1_500_000_000),
        blocks: Some((1, 2)),
        metric: Some("p99_ns".to_owned()),
        seed: 7,
        parameters: vec![("x".to_owned(), "--port {port}".to_owned())],
        discard: BTreeMap::from([
            ("steal_fraction".to_owned(), Some(0.3)),
            ("clock_step_s".to_owned(), None),
        ]),
        reruns_max_fraction: Some(2.0),
        was_accepted: false,
        quick: false,
        left_out: None,
    };
    let file = parse("a.toml", &text, &options).unwrap();
    let plan = file.plan();
    assert_eq!((plan.duration_s, plan.blocks_min, plan.blocks_max, plan.seed), (1.5, 1, 2, 7));
    assert_eq!((&*plan.metrics[0].name, &*plan.metrics[1].name), ("p99_ns", "responses_per_s"));
    assert_eq!(file.setup("base", "load").unwrap().subject.command, ["server", "--port", "{port}"]);
    assert_eq!((plan.discard["steal_fraction"], plan.discard["error_fraction"]), (0.3, 0.001));
    assert!(!plan.discard.contains_key("clock_step_s") && plan.reruns_max_fraction == 2.0);
    // The options of a plan give the same plan again, also what it has no bound for.
    let repeat = ExperimentOptions::from_plan(plan);
    assert!(repeat.was_accepted && repeat.discard.get("clock_step_s") == Some(&None), "{repeat:?}");
    assert_eq!(parse("a.toml", &text, &repeat).unwrap().plan(), plan);
    let declared = Parameter { name: "x".into(), doc: "needed".into(), value: None };
    assert_eq!(parameters(&text), [declared]);
    let wrongly = ExperimentOptions {
        duration_ns: Some(1),
        blocks: Some((3, 2)),
        metric: Some("calls_per_response".to_owned()),
        parameters: vec![("y".to_owned(), String::new())],
        ..options
    };
    let expected = [
        "a.toml:8:1: 'x'",
        "--set: 'y' 'x' [parameters]",
        "--blocks: 1",
        "--metric: 'calls_per_response'",
        "--duration: length",
    ];
    assert_problems(&problems_with_options(&text, &wrongly), &expected);
}

#[test]
fn a_parameter_that_all_arms_have_is_not_to_be_given() {
    let text = BASE.replace("server", "server {x}")
        + "[parameters]\nx = 1\n[arms.a]\nparameters.x = 2\n[arms.b]\nparameters.x = 3\n";
    let options = ExperimentOptions {
        parameters: vec![("x".to_owned(), "4".to_owned())],
        ..ExperimentOptions::default()
    };
    assert_problems(&problems_with_options(&text, &options), &["--set: 'x' arm"]);
    assert_problems(&problems_of(&text), &[]);
}

#[test]
fn unknown_placeholders_are_reported_with_their_positions() {
    let text = "[parameters]\nmode = \"a {mod} {deep}\"\ndeep = \"{deep}\"\nidle = 1\nDir = 1\nport = 1\n\
                [subject]\ncommand = \"x {mode} {thread} '{thread}'\"\nready = \"{duration}\"\n\
                [load]\nflags = \"-d {duration}\"\n\
                [files]\nx = '''\nevents { x 1; } ${y} {{z}}\n  {client} {w}'''\n";
    let expected = [
        "a.toml:2:11: '{mod}' 'mode' [parameters]",
        "a.toml:3:9: 8 '{deep}'",
        "a.toml:4:1: '{idle}'",
        "a.toml:5:1: 'Dir'",
        "a.toml:5:1: '{Dir}'",
        "a.toml:6:1: '{port}' used",
        "a.toml:6:1: '{port}' reserved",
        "a.toml:8:21: '{thread}'",
        "a.toml:8:31: '{thread}'",
        "a.toml:9:10: '{duration}' 'load.flags'",
        "a.toml:15:12: '{w}'",
    ];
    assert_problems(&problems_of(text), &expected);
    let text =
        text.replace("mode = \"a {mod} {deep}\"\ndeep = \"{deep}\"\nidle = 1\nDir = 1\nport = 1", "mode = 1");
    let text = text.replace("{thread}", "{port}").replace("{duration}\"\n[load", "1.2.3.4:5\"\n[load");
    let file = parse_valid(&text.replace("{w}", "w"));
    let setup = file.setup("base", "load").unwrap();
    // Doubled braces become single ones when the text is used; the rest is not a placeholder.
    assert_eq!(setup.files["x"], "events { x 1; } ${y} {{z}}\n  {client} w");
}

#[test]
fn problems_of_some_arms_or_loads_are_reported_with_their_names() {
    let text = BASE.to_owned()
        + "[arms.a]\nsubject.comand = \"x\"\n[arms.b]\nscenario.loss.fraction = \"{p}\"\n\
           [loads.x]\nload.flags = \"no length\"\n[loads.y]\nscenario.delay.jitter = \"1ms\"\n\
           [parameters]\np = \"lots\"\n";
    let expected = [
        "a.toml:8:9: 'subject.comand' 'command' ready-path ready-command ready-timeout env build (arm 'a')",
        "a.toml:10:26: 'scenario.loss.fraction' \"2%\" 'lots' (arm 'b')",
        "a.toml:12:14: 'load.flags' '{duration}' -n (load 'x')",
        "a.toml:14:10: 'scenario.delay.round-trip' \"20ms\" (load 'y')",
    ];
    assert_problems(&problems_of(&text), &expected);
}

#[test]
fn files_that_are_no_experiment_are_refused_with_the_reason() {
    let with = |more: &str| problems_of(&format!("{BASE}{more}"));
    let cases: &[(&str, &str)] = &[
        ("[arms.a]\nmeasure.effect = 1\n", "a.toml:8:1: 'arms.a' 'measure'"),
        ("[arms]\na = 1\n", "a.toml:8:1: 'arms.a' table"),
        ("[arms.a]\ntitle = 1\n", "a.toml:8:9: 'arms.a.title' string"),
        ("[arms.\"a b\"]\n", "a.toml:7:7: arms: 'a b'"),
        ("[arms.a-repeat]\n", "a.toml:7:7: arms: 'a-repeat' '-repeat'"),
        ("[arms.a]\nparameters.x = 1\n", "a.toml:8:12: 'x' [parameters]"),
        ("[measure]\nbaseline = \"x\"\n", "a.toml:8:1: 'x' base"),
        ("[measure]\nprimary = \"p98_ns\"\n", "a.toml:8:1: 'p98_ns' 'p90_ns'"),
        ("[measure]\nalso = [\"x\"]\n", "a.toml:8:9: 'x'"),
        ("[measure]\nprimary = \"calls_per_response\"\n", "a.toml:8:1: 'calls_per_response' \"allocations\""),
        (
            "[measure]\ncalls = \"malloc\"\nalso = [\"p50_ns\", \"calls_per_response\"]\n",
            "a.toml:9:19: 'calls_per_response' 'measure.calls'",
        ),
        ("[measure]\nalso = []\n", "a.toml:8:8: 'measure.also' 64"),
        ("[measure]\neffect = 0.6\n", "a.toml:8:1: effect 50%"),
        ("[measure]\nconfidence = \"99.99%\"\n", "a.toml:8:1: confidence 99.9%"),
        ("[measure]\nblocks.min = 3\n", "a.toml:8:8: 3 blocks"),
        ("[measure]\nblocks.max = 3\n", "a.toml:8:8: 3 blocks"),
        ("[measure]\nblocks = { min = 9, max = 8 }\n", "a.toml:8:21: blocks"),
        ("[measure]\nduration = \"2h\"\n", "a.toml:8:1: length"),
        ("[measures]\n", "a.toml:7:2: 'measures' 'measure' name,"),
        ("[discard]\nsteal = \"x\"\n", "a.toml:8:9: 'discard.steal'"),
        ("[factors]\nx = [1]\n", "a.toml:8:1: 'x'"),
        ("[loads.a]\nload.warm-up = \"3s\"\n[loads.b]\n", "a.toml:8:16: warm-up"),
    ];
    for (more, expected) in cases {
        assert_problems(&with(more), &[expected]);
    }
    assert_problems(&problems_of(&format!("name = \"a/b\"\n{BASE}")), &["a.toml:1:1: 'a/b'"]);
    assert_problems(&problems_of(&" ".repeat(2 << 20)), &["a.toml: longer"]);
    assert_problems(&problems_of("[arms\n"), &["a.toml:1:"]);
}

#[test]
fn arms_and_loads_may_not_set_the_same() {
    let text = BASE.replace("-c 1", "-c {c}")
        + "[parameters]\nc = 1\n[arms.a]\nparameters.c = 2\n[arms.b]\n[loads.x]\nparameters.c = 3\n[loads.y]\n";
    assert_problems(&problems_of(&text), &["a.toml:13:12: 'parameters.c' (arm 'a' 'x')"]);
    let text = BASE.replace("-c 1", "-c {c}")
        + "[parameters]\nc = 1\n[factors]\nc = [1, 2]\n[arms.a]\nparameters.c = 3\n";
    assert_problems(&problems_of(&text), &["a.toml:12:12: 'c' factor"]);
}

#[test]
fn there_are_no_more_arms_loads_and_cells_than_can_be_run() {
    let levels = |count: usize| (0..count).map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
    let text = |arms: usize, loads: usize| {
        BASE.replace("server", "server {a}").replace(" u", " {l} u")
            + &format!(
                "[parameters]\na = 0\nl = 0\n[factors]\na = [{}]\nl = {{ of = \"loads\", levels = [{}] }}\n",
                levels(arms),
                levels(loads)
            )
    };
    assert_eq!(parse_valid(&text(4, 32)).plan().arms.len(), 5);
    assert_problems(&problems_of(&text(5, 32)), &["a.toml:12:31: 5 32 128"]);
    assert_problems(&problems_of(&text(33, 1)), &["a.toml:11:1: 32 arms 33"]);
    let by_hand: String = (0..33).map(|n| format!("[arms.a{n}]\n")).collect();
    assert_problems(&problems_of(&(BASE.to_owned() + &by_hand)), &["a.toml:39:7: 32 arms"]);
}

#[test]
fn levels_with_the_same_name_are_reported() {
    let text =
        BASE.replace("server", "server {x}") + "[parameters]\nx = 1\n[factors]\nx = [\"a.b\", \"a-b\"]\n";
    assert_problems(&problems_of(&text), &["a.toml:10:13: 'x-a-b'"]);
}

#[test]
fn every_ready_made_experiment_is_right() {
    for (at, ready) in READY_MADE.iter().enumerate() {
        let missing = parameters(ready.text).into_iter().filter(|parameter| parameter.value.is_none());
        let parameters =
            missing.map(|parameter| (parameter.name, "/bin/server -l {subject}:8000".to_owned()));
        let options = ExperimentOptions { parameters: parameters.collect(), ..ExperimentOptions::default() };
        let file = parse(ready.name, ready.text, &options);
        let file = file.unwrap_or_else(|problems| panic!("{}: {problems:#?}", ready.name));
        let plan = file.plan();
        assert_eq!((&*plan.name, &*plan.title), (ready.name, ready.title));
        assert_eq!(find_ready_made(ready.name), Some(&READY_MADE[at]), "{} twice", ready.name);
        assert!(ready.text.starts_with("# ") && ready.text.contains(&format!("weir lab run {}", ready.name)));
        assert!(!ready.question.is_empty() && !ready.question.ends_with('.'), "{}", ready.name);
        assert!(ready.text.lines().all(|line| line.len() <= 108 || !line.starts_with('#')), "{}", ready.name);
        for parameter in super::parameters(ready.text) {
            assert!(!parameter.doc.is_empty(), "{}: {}", ready.name, parameter.name);
        }
        let mut programs = std::collections::BTreeSet::new();
        // A transport has two ends.
        let keys_max = if ready.name == "user-space-tcp" { 2 } else { 1 };
        for arm in &plan.arms {
            assert!(
                arm.name == plan.baseline || changed_keys(plan, arm).len() <= keys_max,
                "{}: {arm:?}",
                ready.name
            );
            for load in &plan.loads {
                let setup = file.setup(&arm.name, &load.name).unwrap();
                assert!(setup.scenario.pins.contains_key(&Node::Client), "{}", ready.name);
                assert!(setup.scenario.pins.contains_key(&Node::Subject), "{}", ready.name);
                let words = setup.subject.command.join(" ");
                let lines = ["nginx -c", "haproxy -db", "openssl req"];
                let started = lines.into_iter().filter(|line| words.contains(line));
                programs.extend(started.filter_map(|line| line.split(' ').next()));
                programs.extend((setup.tool != LoadTool::Weir).then(|| setup.tool.name()));
            }
        }
        assert_eq!(programs.into_iter().collect::<Vec<_>>(), ready.programs, "{}", ready.name);
    }
}

#[test]
fn a_ready_made_experiment_reports_its_missing_parameters() {
    let problems = problems_of(find_ready_made("build-flags").unwrap().text);
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].contains("'before'") && problems[0].contains("--set before="), "{problems:#?}");
}
