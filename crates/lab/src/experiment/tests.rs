//! Files to plans: patches, factors, placeholders, problems with their places, and every file that there
//! is.

use record::experiment::Metric;

use super::ready::{READY, find};
use super::*;
use crate::scenario::plan::Node;
use crate::scenario::setup::Tool;
use crate::selftest::cases::CASES;
use crate::trial::metrics::{Figure, METRICS};

fn parse(name: &str, text: &str, asked: &Asked) -> Result<File, Vec<Problem>> {
    let metrics: Vec<Metric> = METRICS.iter().map(Figure::metric).collect();
    File::parse_with(name, text, asked, &metrics, None)
}

fn right(text: &str) -> File {
    parse("a.toml", text, &Asked::default()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn wrong_with(text: &str, asked: &Asked) -> Vec<String> {
    let problems = parse("a.toml", text, asked).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

fn wrong(text: &str) -> Vec<String> {
    wrong_with(text, &Asked::default())
}

/// Each starts as expected, and there are no others.
fn told(told: &[String], expected: &[&str]) {
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\n{expected}");
    }
}

fn names(arms: &[Arm]) -> Vec<&str> {
    arms.iter().map(|arm| &*arm.name).collect()
}

/// A trial's file in six lines, to which an experiment's keys are added.
const BASE: &str = "[subject]\ncommand = \"server\"\nready = \"{subject}:80\"\n\
                    [load]\nflags = \"-c 1 -d {duration} u\"\n\n";

const WHOLE: &str = r#"
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
fn a_whole_file_becomes_a_plan() {
    let file = right(WHOLE);
    let plan = file.plan();
    assert_eq!((&*plan.name, &*plan.title), ("two-servers", "Is b better than a?"));
    assert_eq!((&*plan.file, &*plan.baseline), (WHOLE, "a"));
    assert_eq!(names(&plan.arms), ["a", "a-again", "b"]);
    assert_eq!(plan.arms[1].again.as_deref(), Some("a"));
    assert_eq!((&*plan.arms[0].title, &*plan.arms[2].title), ("a", "the new one"));
    assert_eq!(plan.arms[0].changes, plan.arms[1].changes);
    assert_eq!(plan.arms[0].changes["files.x.conf"], "mode 2");
    assert_eq!(plan.arms[2].changes["subject.env.MODE"], "fast");
    let both = ["files.x.conf", "subject.command", "subject.env.MODE"];
    assert_eq!(differing(plan, &plan.arms[2]), both);
    assert!(differing(plan, &plan.arms[1]).is_empty());
    let loads: Vec<&str> = plan.loads.iter().map(|load| &*load.name).collect();
    assert_eq!(loads, ["large", "small"]);
    assert_eq!(plan.loads[0].changes["parameters.path"], "/?s=1m");
    let metrics: Vec<&str> = plan.metrics.iter().map(|metric| &*metric.name).collect();
    assert_eq!(metrics, ["p99_ns", "responses_per_s"]);
    assert_eq!((plan.effect, plan.confidence, plan.reruns_max_share), (0.01, 0.9, 0.25));
    assert_eq!((plan.blocks_min, plan.blocks_max), (8, 30));
    assert_eq!((plan.duration_s, plan.warm_up_s), (4.0, Some(2.0)));
    assert_eq!((plan.discard["steal_share"], plan.discard["clock_step_s"]), (0.05, 1.0));
    assert_eq!((plan.discard["generator_lag_p99_ns"], plan.discard["wake_up_p99_ns"]), (2e6, 2.0));
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
    let of = |more: &str| -> Vec<Vec<String>> {
        let file = right(&format!("{BASE}{arms}{config}{more}"));
        let plan = file.plan();
        let own = plan.arms.iter().filter(|arm| arm.again.is_none());
        own.map(|arm| differing(plan, arm)).collect()
    };
    let expected: [&[&str]; 5] = [
        &[],
        &["load.flags -c"],
        &["load.flags -c", "load.flags -k"],
        &["files.x line 2"],
        &["files.x line 2", "files.x line 4"],
    ];
    assert_eq!(of(""), expected);
    // Against an arm that has one of the two already, it is one.
    let held_against = of("[measure]\nbaseline = \"one\"\n");
    assert_eq!(held_against[2], ["load.flags -k"]);
    let file = right(&format!("{BASE}{arms}{config}"));
    let changes = &file.plan().arms[5].changes;
    assert_eq!(
        (file.plan().arms[5].name.as_str(), &*changes["files.x line 4"]),
        ("places", "- d 1\n+ d 2 {e}")
    );
}

#[test]
fn every_arm_runs_under_every_load() {
    let file = right(WHOLE);
    let setup = file.setup("b", "large").unwrap();
    assert_eq!(setup.subject.command, ["server-b", "-t", "2"]);
    assert_eq!((&*setup.subject.env["LANG"], &*setup.subject.env["MODE"]), ("C", "fast"));
    let flags = ["-t", "1", "-c", "10", "-d", "{duration}", "http://{subject}:8000/?s=1m"];
    assert_eq!((setup.tool, &setup.load[..]), (Tool::Weir, &flags.map(str::to_owned)[..]));
    assert_eq!((setup.profile, setup.calls.clone()), (true, None));
    let setup = file.setup("a-again", "small").unwrap();
    assert_eq!(Some(setup), file.setup("a", "small"));
    assert_eq!((setup.tool, &*setup.files["x.conf"]), (Tool::Wrk, "mode 2"));
    assert_eq!(setup.scenario.pins[&Node::Subject], [1]);
    assert_eq!(setup.load.last().unwrap(), "http://{subject}:8000/");
    assert!(file.setup("c", "small").is_none() && file.setup("a", "load").is_none());
}

#[test]
fn a_file_of_one_trial_is_compared_with_itself() {
    let file = parse("x/my server.toml", BASE, &Asked::default()).unwrap();
    let plan = file.plan();
    assert_eq!((&*plan.name, names(&plan.arms)), ("my-server", vec!["base", "base-again"]));
    assert_eq!((&*plan.loads[0].name, &*plan.loads[0].title), ("load", "-c 1 -d {duration} u"));
    assert_eq!(plan.metrics[0].name, "responses_per_s");
    assert_eq!(plan.metrics.len(), 7);
    assert_eq!((plan.blocks_min, plan.blocks_max, plan.warm_up_s), (10, 30, None));
    assert!(file.setup("base-again", "load").is_some());
    let at_a_rate = BASE.replace("-c 1", "-c 1 -R 5k");
    assert_eq!(right(&at_a_rate).plan().metrics[0].name, "subject_us_per_response");
}

#[test]
fn a_load_that_differs_by_arm_is_not_called_by_the_flags_of_one() {
    let text = BASE.to_owned()
        + "[arms.few]\n[arms.alike]\n[arms.many]\nload.flags = \"-c 64 -d {duration} u\"\n";
    let title = |text: &str| right(text).plan().loads[0].title.clone();
    assert_eq!(
        title(&text),
        "differs by arm; few, alike: -c 1 -d {duration} u; many: -c 64 -d {duration} u"
    );
    let other = text + "load.tool = \"wrk\"\n";
    assert!(title(&other).ends_with("; many: wrk -c 64 -d {duration} u"), "{}", title(&other));
    assert!(title(&other).contains("few, alike: weir -c 1 "), "{}", title(&other));
}

#[test]
fn factors_make_all_combinations() {
    let text = BASE.replace("server", "server {t} {size}").replace(" u", " -c {c} u")
        + "[parameters]\nt = 1\nsize = \"k\"\nc = \"\"\n[factors]\nt = [1, 2]\n\
           size = { levels = [\"0.5\", \"k\"] }\nc = { of = \"loads\", levels = [1, 10, 100] }\n";
    let file = right(&text);
    let plan = file.plan();
    let expected =
        ["t-1-size-0-5", "t-1-size-0-5-again", "t-1-size-k", "t-2-size-0-5", "t-2-size-k"];
    assert_eq!(names(&plan.arms), expected);
    assert_eq!(plan.arms[3].title, "t = 2, size = 0.5");
    assert_eq!((&*plan.arms[3].levels["t"], &*plan.arms[3].levels["size"]), ("2", "0.5"));
    assert_eq!(plan.arms[2].changes.len(), 0, "its levels are the file's own");
    assert_eq!(plan.arms[3].changes["parameters.t"], "2");
    assert_eq!(plan.loads[2].levels["c"], "100");
    assert_eq!(file.setup("t-2-size-k", "c-100").unwrap().subject.command, ["server", "2", "k"]);
    assert!(file.setup("t-2-size-k", "c-100").unwrap().load.contains(&"100".to_owned()));
    let with_arms = right(&(text + "[arms.x]\n[arms.y]\nsubject.command = \"z{t}{size}\"\n"));
    assert_eq!(
        names(&with_arms.plan().arms)[..3],
        ["x-t-1-size-0-5", "x-t-1-size-0-5-again", "x-t-1-size-k"]
    );
    assert_eq!(with_arms.plan().arms.len(), 9);
}

#[test]
fn quick_has_as_few_blocks_as_can_show_a_difference() {
    let quick = Asked { quick: true, ..Asked::default() };
    let blocks = |arms: u32| {
        let more =
            (0..arms).map(|at| format!("[arms.more{at}]\nsubject.command = \"other {at}\"\n"));
        let text = format!("{BASE}{}", more.collect::<String>());
        let file = parse("a.toml", &text, &quick).unwrap_or_else(|why| panic!("{why:?}"));
        let plan = file.plan();
        assert_eq!(plan.blocks_min, plan.blocks_max);
        (tested(plan), plan.blocks_max)
    };
    let (one, fewest) = blocks(0);
    let (more, blocks) = blocks(3);
    assert!(more > one && more >= 2 && fewest == pairs_to_conclude(one, 0.95), "{one} {fewest}");
    assert!(blocks == pairs_to_conclude(more, 0.95) && blocks > fewest, "{more} {blocks}");
}

#[test]
fn what_is_asked_for_takes_the_place_of_what_the_file_says() {
    let text = BASE.replace("server", "server {x}") + "[parameters]\nx.doc = \"needed\"\n";
    told(&wrong(&text), &["a.toml:8:1: 'x' has no text: give it with --set x=TEXT"]);
    let asked = Asked {
        duration_ns: Some(1_500_000_000),
        blocks: Some((1, 2)),
        seed: 7,
        parameters: vec![("x".to_owned(), "--port {port}".to_owned())],
        discard: BTreeMap::from([("steal_share".to_owned(), 0.3)]),
        again: false,
        quick: false,
    };
    let file = parse("a.toml", &text, &asked).unwrap();
    let plan = file.plan();
    assert_eq!((plan.duration_s, plan.blocks_min, plan.blocks_max, plan.seed), (1.5, 1, 2, 7));
    assert_eq!(file.setup("base", "load").unwrap().subject.command, ["server", "--port", "{port}"]);
    assert_eq!((plan.discard["steal_share"], plan.discard["error_share"]), (0.3, 0.001));
    let again = Asked { discard: plan.discard.clone(), again: true, ..asked.clone() };
    assert_eq!(Asked::again(plan), again);
    let declared = Parameter { name: "x".into(), doc: "needed".into(), value: None };
    assert_eq!(parameters(&text), [declared]);
    let wrongly = Asked {
        duration_ns: Some(1),
        blocks: Some((3, 2)),
        parameters: vec![("y".to_owned(), String::new())],
        ..asked
    };
    let expected = [
        "a.toml:8:1: 'x' has no text",
        "--set: there is no parameter 'y' (did you mean 'x'?); in [parameters]: x",
        "--blocks: give 1 or more",
        "--duration: a load is from",
    ];
    told(&wrong_with(&text, &wrongly), &expected);
}

#[test]
fn a_parameter_that_all_arms_have_is_not_to_be_given() {
    let text = BASE.replace("server", "server {x}")
        + "[parameters]\nx = 1\n[arms.a]\nparameters.x = 2\n[arms.b]\nparameters.x = 3\n";
    let asked = Asked { parameters: vec![("x".to_owned(), "4".to_owned())], ..Asked::default() };
    told(&wrong_with(&text, &asked), &["--set: 'x' has no effect: every arm has its own"]);
    told(&wrong(&text), &[]);
}

#[test]
fn placeholders_that_nobody_knows_are_told_with_their_places() {
    let text = "[parameters]\nmode = \"a {mod} {deep}\"\ndeep = \"{deep}\"\nidle = 1\nDir = 1\nport = 1\n\
                [subject]\ncommand = \"x {mode} {thread} '{thread}'\"\nready = \"{duration}\"\n\
                [load]\nflags = \"-d {duration}\"\n\
                [files]\nx = '''\nevents { x 1; } ${y} {{z}}\n  {client} {w}'''\n";
    let expected = [
        "a.toml:2:11: nothing stands for '{mod}' (did you mean 'mode'?): add it to [parameters]",
        "a.toml:3:9: parameters stand in each other more than 8 deep: '{deep}'",
        "a.toml:4:1: nothing has '{idle}' in it",
        "a.toml:5:1: 'Dir' is no name of a parameter",
        "a.toml:5:1: nothing has '{Dir}' in it",
        "a.toml:6:1: '{port}' has a meaning already",
        "a.toml:6:1: nothing has '{port}' in it",
        "a.toml:8:21: nothing stands for '{thread}'",
        "a.toml:8:31: nothing stands for '{thread}'",
        "a.toml:9:10: '{duration}' is known in 'load.flags' only",
        "a.toml:15:12: nothing stands for '{w}'",
    ];
    told(&wrong(text), &expected);
    let text = text.replace(
        "mode = \"a {mod} {deep}\"\ndeep = \"{deep}\"\nidle = 1\nDir = 1\nport = 1",
        "mode = 1",
    );
    let text =
        text.replace("{thread}", "{port}").replace("{duration}\"\n[load", "1.2.3.4:5\"\n[load");
    let file = right(&text.replace("{w}", "w"));
    let setup = file.setup("base", "load").unwrap();
    // Doubled braces become single ones where the text is used: what is left then is no placeholder.
    assert_eq!(setup.files["x"], "events { x 1; } ${y} {{z}}\n  {client} w");
}

#[test]
fn problems_of_some_arms_or_loads_are_told_with_their_names() {
    let text = BASE.to_owned()
        + "[arms.a]\nsubject.comand = \"x\"\n[arms.b]\nscenario.loss.share = \"{p}\"\n\
           [loads.x]\nload.flags = \"no length\"\n[loads.y]\nscenario.delay.jitter = \"1ms\"\n\
           [parameters]\np = \"lots\"\n";
    let expected = [
        "a.toml:8:9: there is no key 'subject.comand' (did you mean 'command'?); there are: command, \
         ready, ready-path, ready-command, ready-within, env, build (arm 'a')",
        "a.toml:10:23: 'scenario.loss.share' takes a share: \"2%\" ('lots' is not a share (write 1% or \
         0.01)) (arm 'b')",
        "a.toml:12:14: 'load.flags' has no '{duration}', nor a number of requests (-n): its length would \
         be the tool's own (load 'x')",
        "a.toml:14:10: 'scenario.delay.round-trip' is missing: a time: \"20ms\" (load 'y')",
    ];
    told(&wrong(&text), &expected);
}

#[test]
fn what_makes_no_experiment_is_said() {
    let with = |more: &str| wrong(&format!("{BASE}{more}"));
    let cases: &[(&str, &str)] = &[
        ("[arms.a]\nmeasure.effect = 1\n", "a.toml:8:1: 'arms.a' cannot change 'measure'"),
        ("[arms]\na = 1\n", "a.toml:8:1: 'arms.a' takes a table"),
        ("[arms.a]\ntitle = 1\n", "a.toml:8:9: 'arms.a.title' takes a text"),
        ("[arms.\"a b\"]\n", "a.toml:7:7: arms: 'a b' is no name: letters"),
        ("[arms.a-again]\n", "a.toml:7:7: arms: 'a-again' is no name: '-again' is for"),
        (
            "[arms.a]\nparameters.x = 1\n",
            "a.toml:8:12: there is no parameter 'x'; in [parameters]: there are none",
        ),
        ("[measure]\nbaseline = \"x\"\n", "a.toml:8:1: there is no arm 'x'; there are: base"),
        (
            "[measure]\nprimary = \"p98_ns\"\n",
            "a.toml:8:1: there is no metric 'p98_ns' (did you mean 'p90_ns'?)",
        ),
        ("[measure]\nalso = [\"x\"]\n", "a.toml:8:9: there is no metric 'x'"),
        (
            "[measure]\nprimary = \"calls_per_response\"\n",
            "a.toml:8:1: 'calls_per_response' cannot be compared, because calls are counted in trials of \
             their own that are not judged: leave it out here, and 'calls = \"allocations\"' in [measure]",
        ),
        (
            "[measure]\ncalls = \"malloc\"\nalso = [\"p50_ns\", \"calls_per_response\"]\n",
            "a.toml:9:19: 'calls_per_response' cannot be compared, because calls are counted in trials of \
             their own that are not judged: 'measure.calls' has it in the report anyway",
        ),
        ("[measure]\nalso = []\n", "a.toml:8:8: 'measure.also' takes 1 to 64 entries"),
        ("[measure]\neffect = 0.6\n", "a.toml:8:1: the smallest effect"),
        ("[measure]\nconfidence = \"99.99%\"\n", "a.toml:8:1: a confidence is"),
        ("[measure]\nblocks.min = 5\n", "a.toml:8:8: 5 blocks cannot tell anything: Wilcoxon"),
        ("[measure]\nblocks.max = 5\n", "a.toml:8:8: 5 blocks cannot tell anything"),
        ("[measure]\nblocks = { min = 9, max = 8 }\n", "a.toml:8:21: there are fewer blocks"),
        ("[measure]\nduration = \"2h\"\n", "a.toml:8:1: a load is from"),
        (
            "[measures]\n",
            "a.toml:7:2: there is no key 'measures' (did you mean 'measure'?); there are: name,",
        ),
        ("[discard]\nsteal = \"x\"\n", "a.toml:8:9: 'discard.steal' takes a share"),
        ("[factors]\nx = [1]\n", "a.toml:8:1: there is no parameter 'x'"),
        (
            "[loads.a]\nload.warm-up = \"3s\"\n[loads.b]\n",
            "a.toml:8:16: the warm-up has to be the same",
        ),
    ];
    for (more, expected) in cases {
        told(&with(more), &[expected]);
    }
    told(&wrong(&format!("name = \"a/b\"\n{BASE}")), &["a.toml:1:1: 'a/b' is no name"]);
    told(&wrong(&" ".repeat(2 << 20)), &["a.toml: it is longer than"]);
    told(&wrong("[arms\n"), &["a.toml:1:"]);
}

#[test]
fn arms_and_loads_may_not_set_the_same() {
    let text = BASE.replace("-c 1", "-c {c}")
        + "[parameters]\nc = 1\n[arms.a]\nparameters.c = 2\n[arms.b]\n[loads.x]\nparameters.c = 3\n[loads.y]\n";
    let expected = "a.toml:13:12: 'parameters.c' is set by an arm too, and the load would take its place \
                    (arm 'a' under load 'x')";
    told(&wrong(&text), &[expected]);
    let text = BASE.replace("-c 1", "-c {c}")
        + "[parameters]\nc = 1\n[factors]\nc = [1, 2]\n[arms.a]\nparameters.c = 3\n";
    told(&wrong(&text), &["a.toml:12:12: 'c' is a factor"]);
}

#[test]
fn there_are_no_more_arms_loads_and_cells_than_can_be_run() {
    let levels =
        |count: usize| (0..count).map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ");
    let text = |arms: usize, loads: usize| {
        BASE.replace("server", "server {a}").replace(" u", " {l} u")
            + &format!(
                "[parameters]\na = 0\nl = 0\n[factors]\na = [{}]\nl = {{ of = \"loads\", levels = [{}] }}\n",
                levels(arms),
                levels(loads)
            )
    };
    assert_eq!(right(&text(4, 32)).plan().arms.len(), 5);
    told(&wrong(&text(5, 32)), &["a.toml:12:31: 5 arms under 32 loads are over 128"]);
    told(&wrong(&text(33, 1)), &["a.toml:11:1: there may be 32 arms, and with this there are 33"]);
    let by_hand: String = (0..33).map(|n| format!("[arms.a{n}]\n")).collect();
    told(&wrong(&(BASE.to_owned() + &by_hand)), &["a.toml:39:7: there may be 32 arms"]);
}

#[test]
fn levels_that_make_one_name_are_told() {
    let text = BASE.replace("server", "server {x}")
        + "[parameters]\nx = 1\n[factors]\nx = [\"a.b\", \"a-b\"]\n";
    told(&wrong(&text), &["a.toml:10:13: two arms would be named 'x-a-b'"]);
}

#[test]
fn every_case_of_the_selftest_is_an_experiment_too() {
    for case in CASES {
        let file = parse(case.name, case.file, &Asked::default());
        let file = file.unwrap_or_else(|problems| panic!("{}: {problems:#?}", case.name));
        let alone = Setup::parse(case.name, case.file).unwrap();
        assert_eq!(file.setup("base", "load"), Some(&alone), "{}", case.name);
    }
}

#[test]
fn every_ready_made_experiment_is_right() {
    for (at, ready) in READY.iter().enumerate() {
        let missing = parameters(ready.text).into_iter().filter(|one| one.value.is_none());
        let parameters = missing.map(|one| (one.name, "/bin/server -l {subject}:8000".to_owned()));
        let asked = Asked { parameters: parameters.collect(), ..Asked::default() };
        let file = parse(ready.name, ready.text, &asked);
        let file = file.unwrap_or_else(|problems| panic!("{}: {problems:#?}", ready.name));
        let plan = file.plan();
        assert_eq!((&*plan.name, &*plan.title), (ready.name, ready.title));
        assert_eq!(find(ready.name), Some(&READY[at]), "{} twice", ready.name);
        assert!(
            ready.text.starts_with("# ")
                && ready.text.contains(&format!("weir lab run {}", ready.name))
        );
        assert!(!ready.question.is_empty() && !ready.question.ends_with('.'), "{}", ready.name);
        assert!(
            ready.text.lines().all(|line| line.len() <= 108 || !line.starts_with('#')),
            "{}",
            ready.name
        );
        for one in super::parameters(ready.text) {
            assert!(!one.doc.is_empty(), "{}: {}", ready.name, one.name);
        }
        let mut programs = std::collections::BTreeSet::new();
        for arm in &plan.arms {
            assert!(
                arm.name == plan.baseline || differing(plan, arm).len() <= 1,
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
                programs.extend((setup.tool != Tool::Weir).then(|| setup.tool.name()));
            }
        }
        assert_eq!(programs.into_iter().collect::<Vec<_>>(), ready.programs, "{}", ready.name);
    }
}

#[test]
fn a_ready_made_experiment_says_what_it_has_to_be_given() {
    let problems = wrong(find("build-flags").unwrap().text);
    assert_eq!(problems.len(), 2, "{problems:#?}");
    assert!(problems[0].contains("'before' has no text: give it with --set before=TEXT"));
}
