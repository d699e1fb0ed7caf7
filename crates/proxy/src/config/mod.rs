//! A config's text, or the flags of the one-liner, to a [`Plan`], with every problem at once.
//! Nothing is opened here, except that names are looked up: hosts, users, network namespaces.
//!
//! `directives` is the table of all keys; `value` reads TOML by it; `listeners`, `routes` and
//! `pools` (with `choice`) make the plan's parts of what was read; `whole` looks at all of it together; `schema`
//! writes the table down for people and editors; `words` says what is wrong with a key.

mod choice;
mod directives;
mod flags;
mod forms;
mod health;
mod listeners;
mod overload;
mod pools;
mod recovery;
mod routes;
mod schema;
mod source;
mod value;
mod whole;
mod words;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_directives;

use record::problem::Problem;
use toml::de::DeTable;

use crate::plan::{AdminAccess, LogFormat, LogPlan, LogTarget, Mode, Plan, PrivilegesPlan, Secret};

pub use flags::{FlagsText, LISTEN_DEFAULT, from_flags};
pub use forms::REGEX_BYTES_MAX;
pub use schema::{reference, schema};

pub(crate) use source::suggestion;

use source::Problems;
use value::{Reader, Section};

/// Bytes of an admin token, at least.
const TOKEN_BYTES_MIN: usize = 16;

/// A config that was understood.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// What it asks for.
    pub plan: Plan,
    /// What works, and hardly as it was meant: a route that never matches, a pool that nothing uses.
    pub warnings: Vec<Problem>,
    /// What would keep it from recovering from too much load.
    pub recovery: Vec<Problem>,
}

/// Understands a config; `file_name` is what places are named by: `FILE:LINE:COLUMN`.
///
/// # Errors
/// Everything that is wrong with it, in the file's order. Of a file that is not TOML, every error of
/// syntax, and what is wrong with the keys of other lines.
pub fn parse(file_name: &str, text: &str) -> Result<Parsed, Vec<Problem>> {
    let mut problems = Problems::default();
    let (document, errors) = DeTable::parse_recoverable(text);
    let place = |error: &toml::de::Error| error.span().map_or(text.len(), |span| span.start);
    let is_twice = |error: &toml::de::Error| error.message().contains("duplicate key");
    let unreadable: Vec<usize> =
        errors.iter().filter(|error| !is_twice(error)).map(place).collect();
    if !unreadable.is_empty() {
        Reader::new(&mut problems, true).section("", document.get_ref(), 0);
        problems.keep_to_what_was_read(text, &unreadable);
    }
    for error in &errors {
        problems.add(place(error), syntax_words(error.message()));
    }
    if !unreadable.is_empty() {
        return Err(problems.placed(file_name, text).0);
    }
    let root = Reader::new(&mut problems, false).section("", document.get_ref(), 0);
    let mut advice = Problems::default();
    let mut plan = plan(&root, &mut problems, &mut advice);
    plan.source = text.into();
    let (found, warnings) = problems.placed(file_name, text);
    let (_, recovery) = advice.placed(file_name, text);
    if found.is_empty() { Ok(Parsed { plan, warnings, recovery }) } else { Err(found) }
}

fn syntax_words(message: &str) -> String {
    let hint = match message {
        _ if message.contains("duplicate key") => {
            ": it stands there twice, and each name and key may only once"
        }
        _ if message.contains("string values must be quoted") => "",
        _ => " (this is not TOML)",
    };
    format!("{message}{hint}")
}

fn plan(root: &Section, problems: &mut Problems, advice: &mut Problems) -> Plan {
    let pool_sections = root.tables("pool");
    let listener_sections = root.tables("listener");
    let pool_names: Vec<&str> = pool_sections.iter().map(|pool| &*pool.name).collect();
    let pools: Vec<_> =
        pool_sections.iter().map(|section| pools::pool(section, problems)).collect();
    let listeners: Vec<_> = listener_sections
        .iter()
        .map(|section| listeners::listener(section, &pool_names, problems))
        .collect();
    let known = routes::Known { listeners: &listeners, pools: &pool_names };
    let route_sections = root.tables("route");
    let mut routes: Vec<_> = route_sections
        .iter()
        .enumerate()
        .map(|(index, section)| routes::route(section, index, &known, problems))
        .collect();
    let mut route_places: Vec<usize> = route_sections.iter().map(|section| section.at).collect();
    for (index, section) in listener_sections.iter().enumerate() {
        if listeners[index].mode == Mode::Http
            && let Some(pool) = listeners::own_pool(section, &pool_names)
        {
            routes.push(routes::of_listener(index, &section.name, pool));
            route_places.push(section.value_place("pool"));
        }
    }
    let threads_given = root.bound("threads").is_some();
    let threads = root.bound("threads").unwrap_or_else(|| rt::cores::available().len());
    let plan = Plan {
        threads,
        threads_given,
        pin: pin(root, problems),
        connections_max: connections_max(root, threads, problems),
        drain_timeout_ns: root.number("drain-timeout"),
        privileges: privileges(&root.table("privileges"), problems),
        logs: logs(&root.tables("log"), problems),
        admin: root
            .text("admin")
            .and_then(|text| problems.take(text.at, forms::bind_address(&text.value))),
        admin_access: admin_access(root, problems),
        control: root
            .text("control")
            .and_then(|text| problems.take(text.at, forms::socket_path(&text.value))),
        source: Box::default(),
        listeners,
        routes,
        pools,
    };
    let places = whole::Places {
        admin: root.value_place("admin"),
        control: root.value_place("control"),
        listeners: &listener_sections,
        routes: &route_places,
        pools: &pool_sections,
    };
    whole::check(&plan, &places, problems);
    recovery::check(&plan, &listener_sections, &pool_sections, advice);
    plan
}

fn admin_access(root: &Section, problems: &mut Problems) -> AdminAccess {
    let hosts = root.texts("admin-hosts").into_iter();
    let hosts = hosts.filter_map(|text| problems.take(text.at, forms::host(&text.value)));
    let hosts = hosts.collect();
    let token = root.text("admin-token").and_then(|text| {
        if text.value.len() < TOKEN_BYTES_MIN {
            let words = format!("a token has {TOKEN_BYTES_MIN} bytes or more");
            problems.add(text.at, words);
            return None;
        }
        Some(Secret::new(text.value.as_bytes()))
    });
    for key in ["admin-hosts", "admin-token"] {
        if let Some(at) = root.place(key).filter(|_| root.place("admin").is_none()) {
            problems.warn(at, format!("'{key}' does nothing without `admin`"));
        }
    }
    AdminAccess { hosts, token }
}

fn pin(root: &Section, problems: &mut Problems) -> Vec<usize> {
    let cpus = root
        .text("pin")
        .map(|text| problems.take(text.at, rt::cores::parse_cpus(&text.value)).unwrap_or_default());
    cpus.unwrap_or_default()
}

fn connections_max(root: &Section, threads: usize, problems: &mut Problems) -> Option<usize> {
    let max = root.bound("connections-max")?;
    if max < threads {
        let text = format!("{max} connections do not give one to each of {threads} threads");
        problems.add(root.value_place("connections-max"), text);
    }
    Some(max)
}

fn privileges(section: &Section, problems: &mut Problems) -> PrivilegesPlan {
    let account = section.text("user").and_then(|text| {
        let account = problems.take(text.at, forms::account("/etc/passwd", &text.value))?;
        Some((account, text.at))
    });
    let group = section.text("group").and_then(|text| {
        problems.take(text.at, forms::account("/etc/group", &text.value)).map(|group| group.id)
    });
    if let (Some((account, at)), None) = (account, section.place("group"))
        && account.group.is_none()
    {
        let id = account.id;
        let text =
            format!("user {id} is not in /etc/passwd, so its group is not known: give group");
        problems.add(at, text);
    }
    PrivilegesPlan {
        user: account.map(|(account, _)| account.id),
        group: group.or_else(|| account.and_then(|(account, _)| account.group)),
        no_new_privileges: section.flag("no-new-privileges"),
        landlock: section.flag("landlock"),
    }
}

fn logs(sections: &[Section], problems: &mut Problems) -> Vec<LogPlan> {
    let mut logs: Vec<LogPlan> = Vec::new();
    for section in sections {
        let Some(to) = section.text("to") else { continue };
        let Some(target) = problems.take(to.at, forms::log_target(&to.value)) else { continue };
        if logs.iter().any(|log| log.target == target) && target != LogTarget::Stdout {
            let text = format!("'{}' is logged to twice: lines would stand mixed", to.value);
            problems.add(to.at, text);
        }
        let format = section.text("format").map(|text| text.value);
        logs.push(LogPlan {
            target,
            format: log_format(format.as_deref().unwrap_or_default()),
            sample: section.fraction("sample").unwrap_or(1.0),
            only_errors: section.flag("only-errors"),
        });
    }
    logs
}

fn log_format(text: &str) -> LogFormat {
    match text {
        "combined" => LogFormat::Combined,
        "haproxy" => LogFormat::Haproxy,
        _ => LogFormat::Json,
    }
}
