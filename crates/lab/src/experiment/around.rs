//! What a file is held against besides itself: this machine, and the flags of `weir load`, which only the
//! command line knows. What is wrong by it is told with its place, like everything else.
//!
//! Not for what the file says by itself.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::engine::environment::{not_there, started_by};
use crate::scenario::placeholders::{DURATION, OF_THE_LAB, Piece, filled, pieces};
use crate::scenario::setup::{Program, Setup, Tool};
use crate::trial::driver;

/// What there is here.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Why a program cannot be started; none: it can, or nobody can tell before.
    pub program: &'a dyn Fn(&str) -> Option<String>,
    /// What a program says of its version.
    pub version: &'a dyn Fn(&str) -> Option<String>,
    /// The processors; none: they are not known.
    pub cpus: &'a [u32],
    /// Why calls of this name cannot be counted.
    pub calls: &'a dyn Fn(&str) -> Option<String>,
    /// What is wrong with words behind `weir load`.
    pub flags: &'a dyn Fn(&[String]) -> Vec<String>,
}

impl std::fmt::Debug for Around<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

impl Around<'_> {
    /// What is wrong with what an arm runs under a load; `whole` is the file with both laid over it.
    pub(super) fn problems(&self, whole: &DeTable<'_>, setup: &Setup) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        let origin = setup.origin.iter().map(|origin| (vec!["origin"], origin));
        let extras =
            setup.programs.iter().map(|extra| (vec!["programs", &*extra.name], &extra.program));
        for (table, program) in
            [(vec!["subject"], &setup.subject)].into_iter().chain(origin).chain(extras)
        {
            let key = |name| place(whole, &[&table[..], &[name]].concat());
            let why = started_by(program).and_then(|name| (self.program)(&name));
            found.extend(why.map(|why| (key("command"), why)));
            for (name, words) in
                [("ready-command", &program.ready_command), ("build", &program.build)]
            {
                let first = words.first().filter(|word| !word.contains('{'));
                let why = first.and_then(|program| (self.program)(program));
                found.extend(why.map(|why| (key(name), why)));
            }
            let at = preload_place(whole, &table, program);
            found.extend(not_there(program).into_iter().map(|why| (at, why)));
        }
        if setup.tool != Tool::Weir {
            let row = driver::row(setup.tool);
            let why = (self.program)(row.program);
            let text = |why| format!("{why}: install it ({})", row.package);
            found.extend(why.map(|why| (place(whole, &["load", "tool"]), text(why))));
        } else if let Some(words) = stood_in(&setup.load).filter(|words| !words.is_empty()) {
            let at = place(whole, &["load", "flags"]);
            let wrong = (self.flags)(&words).into_iter();
            found.extend(wrong.map(|why| (at, format!("'load.flags': {why}"))));
        }
        found.extend(self.processors(whole, setup));
        found
    }

    fn processors(&self, whole: &DeTable<'_>, setup: &Setup) -> Vec<(usize, String)> {
        let scenario = &setup.scenario;
        let noise = scenario
            .noise
            .as_ref()
            .map(|noise| (place(whole, &["scenario", "noise", "cpus"]), &noise.cpus));
        let pins = scenario.pins.iter();
        let pins =
            pins.map(|(node, cpus)| (place(whole, &["scenario", "pin", &node.to_string()]), cpus));
        let missing = |(at, cpus): (usize, &Vec<u32>)| {
            let cpu = cpus.iter().find(|cpu| !self.cpus.contains(cpu))?;
            let known: Vec<String> = self.cpus.iter().map(u32::to_string).collect();
            Some((
                at,
                format!(
                    "there is no processor {cpu} on this machine; there are: {}",
                    known.join(", ")
                ),
            ))
        };
        let known = !self.cpus.is_empty();
        pins.chain(noise).filter(|_| known).filter_map(missing).collect()
    }
}

/// Where a library to be preloaded stands.
fn preload_place(whole: &DeTable<'_>, table: &[&str], program: &Program) -> usize {
    match program.env.contains_key("LD_PRELOAD") {
        true => place(whole, &[table, &["env", "LD_PRELOAD"]].concat()),
        false => place(whole, &[table, &["command"]].concat()),
    }
}

/// Words with something in place of what a trial fills in; none where a parameter has no text yet, or where
/// they name what only the trial makes.
fn stood_in(words: &[String]) -> Option<Vec<String>> {
    let value = |name: &str| match name {
        "port" => Some("8000"),
        "weir" => Some("weir"),
        DURATION => Some("1s"),
        _ => Some("127.0.0.1"),
    };
    let is_known = |word: &String| {
        pieces(word).iter().all(|(_, piece)| match piece {
            Piece::Placeholder(name) => OF_THE_LAB.contains(name) && *name != "dir",
            _ => true,
        })
    };
    words.iter().all(is_known).then(|| words.iter().map(|word| filled(word, value)).collect())
}

/// Where the value of a key stands; the nearest table above it that is there where it is not.
fn place(whole: &DeTable<'_>, path: &[&str]) -> usize {
    let mut at = 0;
    let mut table = Some(whole);
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
    use super::super::{Asked, File};
    use super::*;
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

    fn told_with(text: &str, asked: &Asked) -> Result<File, Vec<String>> {
        let gone = |name: &str| {
            (name.starts_with("gone") || name == "h1load").then(|| format!("'{name}' is gone"))
        };
        let flags = |words: &[String]| {
            assert_eq!(words[words.len() - 2..], ["1s", "http://127.0.0.1:8000/"]);
            let bogus = words.iter().filter(|word| *word == "--bogus");
            bogus.map(|word| format!("no flag {word}")).collect()
        };
        let around = Around {
            program: &gone,
            version: &|name| Some(format!("{name} nghttp2/1.52.0")),
            cpus: &[0, 1],
            calls: &|name| (name == "mallocx").then(|| "no such call".to_owned()),
            flags: &flags,
        };
        let metrics: Vec<_> = METRICS.iter().map(crate::trial::metrics::Figure::metric).collect();
        File::parse_with("a.toml", text, asked, &metrics, Some(&around))
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_is_not_here_is_told_at_once_with_its_place() {
        let text = TEXT.replace("[scenario]\n", "[scenario]\nnetwork = \"chain\"\n");
        let told = told_with(&text, &Asked::default()).unwrap_err();
        let expected = [
            "a.toml:5:33: there is no processor 2 on this machine; there are: 0, 1",
            "a.toml:6:18: there is no processor 7 on this machine",
            "a.toml:8:11: 'gone' is gone (arm 'a')",
            "a.toml:11:18: it preloads /no/such/liba.so, on this machine: No such file",
            "a.toml:15:17: 'gone-too' is gone",
            "a.toml:17:9: 'load.flags': no flag --bogus (load 'own')",
            "a.toml:25:13: 'h1load' is gone: install it (https://github.com/wtarreau/h1load) (load 'none')",
            "a.toml:27:1: 'p99_ns' decides nothing, because h2load does not tell it (arm 'a' under load \
             'foreign'); there are: responses_per_s, bytes_in_per_s, mean_ns, max_ns, subject_us_per_response",
            "a.toml:28:64: 'responses_per_s' stands in 'measure.also' twice",
            "a.toml:29:1: no such call",
            "a.toml:32:9: 'gone-cc' is gone",
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(expected), "{told}\n{expected}");
        }
    }

    #[test]
    fn metrics_that_no_trial_tells_are_refused_or_left_out() {
        let base = "[subject]\ncommand = \"there\"\nready = \"{subject}:80\"\n[load]\n\
                    flags = \"-d {duration} http://{subject}:8000/\"\ntool = \"TOOL\"\n[measure]\n";
        let of = |tool: &str, more: &str, asked: &Asked| {
            told_with(&(base.replace("TOOL", tool) + more), asked)
        };
        let names = |file: File| -> Vec<String> {
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
            let told = of(tool, &more, &Asked::default()).unwrap_err();
            let begin = format!("a.toml:8:1: '{primary}' decides nothing, because ");
            assert!(told.len() == 1 && told[0].starts_with(&begin), "{told:#?}");
            let (_, there) = told[0].split_once("there are: ").unwrap();
            for name in there.split(", ") {
                of(tool, &format!("primary = \"{name}\"\n"), &Asked::default()).unwrap();
            }
            let more = format!("also = [\"{primary}\"]\n");
            let told = of(tool, &more, &Asked::default()).unwrap_err();
            assert!(
                told[0].starts_with(&format!("a.toml:8:9: '{primary}' has no figure")),
                "{told:#?}"
            );
            // What ran is not refused afterwards.
            let again = Asked { again: true, ..Asked::default() };
            assert_eq!(names(of(tool, &more, &again).unwrap()), ["responses_per_s", primary]);
        }
        let left = |tool: &str| names(of(tool, "", &Asked::default()).unwrap());
        assert!(left("oha").contains(&"p99_ns".to_owned()));
        let of_h2load = left("h2load");
        assert!(of_h2load.contains(&"subject_us_per_response".to_owned()), "{of_h2load:?}");
        assert!(!of_h2load.iter().any(|name| name.starts_with('p')), "{of_h2load:?}");
    }
}
