//! Proxy of a verification, from its flags. Opens nothing but the file of a config.

use plan::config::ConfigTarget;
use plan::subject_queue::SubjectQueue;
use record::problem::InputProblem;
use record::shell::split_words;
use runner::verify::subject::{
    ConfigSource, RunningSubject, SubjectProgram, VerifySubject, check_placeholders,
};

use crate::commands::text_file::read_text_file;
use crate::flags::CommandArgs;

/// Command line of nginx in the foreground. One process, so that its end is the end of all of it.
const NGINX: &str =
    "nginx -p {dir}/ -e stderr -g 'daemon off; master_process off; pid {dir}/nginx.pid;' -c {config}";
const FLAGS: [&str; 5] = ["subject", "subject-config", "subject-url", "origin-listen", "subject-queue"];

/// Reads the flags of a subject; reports everything that is wrong with them.
pub(super) fn parse_subject(args: CommandArgs<'_>) -> Result<VerifySubject, Vec<InputProblem>> {
    let mut problems = Vec::new();
    for flag in FLAGS.iter().chain(&["quick"]).filter(|flag| args.is_given(flag)) {
        if !args.is_set("verify") {
            problems.push(InputProblem::new(format!("--{flag}"), "only with --verify"));
        }
    }
    let mut note = |flag: &str, text: String| problems.push(InputProblem::new(format!("--{flag}"), text));
    let queue = args.text("subject-queue").map(|text| SubjectQueue::parse(&text)).transpose();
    let queue = queue.unwrap_or_else(|why| {
        note("subject-queue", why.to_string());
        None
    });
    let is_program =
        |text: &str| text.contains(|character: char| character.is_whitespace() || "{/".contains(character));
    let name = args.text("subject").unwrap_or_default();
    let subject = match (args.text("subject-url"), name.as_str()) {
        (Some(url), _) => parse_running(args, url, queue, &mut note),
        (None, "" | "weir") => reject_flags(args, VerifySubject::Weir, &mut note),
        (None, "haproxy") => reject_flags(args, VerifySubject::Haproxy, &mut note),
        (None, "nginx") => reject_flags(args, nginx(), &mut note),
        (None, command) if is_program(command) => parse_program(args, command, queue, &mut note),
        (None, _) => {
            let text = "is not one of weir, haproxy, nginx; a command contains {listen} or {config}";
            note("subject", format!("'{name}' {text}"));
            VerifySubject::Weir
        }
    };
    if problems.is_empty() { Ok(subject) } else { Err(problems) }
}

fn nginx() -> VerifySubject {
    let config = Some(ConfigSource::Generated(ConfigTarget::Nginx));
    let command = split_words(NGINX).unwrap_or_default();
    VerifySubject::Program(SubjectProgram { command, config }, SubjectQueue::None)
}

/// Reports flags that a known subject has no use for.
fn reject_flags(
    args: CommandArgs<'_>,
    subject: VerifySubject,
    note: &mut impl FnMut(&str, String),
) -> VerifySubject {
    for flag in FLAGS.iter().filter(|flag| **flag != "subject" && args.is_given(flag)) {
        let needed = if *flag == "origin-listen" { "--subject-url" } else { "a command as --subject" };
        note(flag, format!("only with {needed}"));
    }
    subject
}

fn parse_running(
    args: CommandArgs<'_>,
    url: String,
    queue: Option<SubjectQueue>,
    note: &mut impl FnMut(&str, String),
) -> VerifySubject {
    for flag in ["subject", "subject-config"].iter().filter(|flag| args.is_given(flag)) {
        note(flag, "not with --subject-url, whose proxy runs already".to_owned());
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        note("subject-url", format!("'{url}' is no URL: http://127.0.0.1:8080"));
    }
    let origins = args.texts("origin-listen");
    if origins.is_empty() {
        note(
            "origin-listen",
            "missing: the address of each server of the proxy, as 127.0.0.1:9001".to_owned(),
        );
    }
    for address in origins.iter().filter(|text| text.parse::<std::net::SocketAddr>().is_err()) {
        note("origin-listen", format!("'{address}' is no address: 127.0.0.1:9001"));
    }
    let url = url.trim_end_matches('/').to_owned();
    VerifySubject::Running(RunningSubject { url, origins }, queue.unwrap_or(SubjectQueue::Bounded))
}

fn parse_program(
    args: CommandArgs<'_>,
    text: &str,
    queue: Option<SubjectQueue>,
    note: &mut impl FnMut(&str, String),
) -> VerifySubject {
    if args.is_given("origin-listen") {
        note("origin-listen", "only with --subject-url".to_owned());
    }
    let command = split_words(text).unwrap_or_else(|why| {
        note("subject", why.to_string());
        Vec::new()
    });
    let config = args.text("subject-config").and_then(|name| read_config(&name, note));
    check_placeholders(&command, config.as_ref(), args.is_given("subject-config"), note);
    let default = match config {
        Some(ConfigSource::Generated(ConfigTarget::Nginx)) => SubjectQueue::None,
        _ => SubjectQueue::Bounded,
    };
    VerifySubject::Program(SubjectProgram { command, config }, queue.unwrap_or(default))
}

/// Returns the config of a program's name, or the template in a file.
fn read_config(name: &str, note: &mut impl FnMut(&str, String)) -> Option<ConfigSource> {
    if let Ok(target) = ConfigTarget::parse(name) {
        return Some(ConfigSource::Generated(target));
    }
    match read_text_file(name) {
        Ok(text) => Some(ConfigSource::Template(text)),
        Err(problem) => {
            let names = ConfigTarget::NAMES.join(", ");
            note("subject-config", format!("{name}: {}; or one of {names}", problem.text));
            None
        }
    }
}
