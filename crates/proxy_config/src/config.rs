//! Converts the text of a config, or the flags of the one-liner, to a [`Plan`], and reports all
//! problems at once. Nothing is opened here. Only names are looked up: hosts, users, network
//! namespaces.
//!
//! `directives` is the table of all keys. `value` reads TOML by that table. `listeners`, `routes`
//! and `pools` (with `balance`, `health`, `overload` and `tls`) build the parts of the plan.
//! `errors` has the reasons for refusing a value. `cross_checks` checks the complete plan. `schema` writes
//! the table as a JSON schema and as Markdown. `messages` has the messages for wrong keys and values;
//! `record::document` has the positions and the syntax errors.

mod acme;
mod acme_dns;
mod auth;
mod balance;
mod bandwidth;
mod caching;
mod compression;
mod conditions;
mod cors;
mod cross_checks;
mod directives;
mod error_pages;
mod errors;
mod files;
mod flags;
mod health;
mod hsts;
mod http2;
mod ineffective;
mod listeners;
mod maps;
mod messages;
mod overload;
mod overload_lints;
mod pools;
mod revocation;
mod route_settings;
mod routes;
mod schema;
mod servers_file;
mod sni;
mod sources;
mod split;
mod templates;
mod tls;
mod tracing;
mod traffic;
mod validate;
mod value;
mod variables;

#[cfg(test)]
mod test_certificates;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_directives;

use record::units::format_plural;
use std::path::PathBuf;
use std::sync::Arc;

use record::document::Problems;
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};

use crate::plan::{
    AdminAccess, IdVec, LogFormat, LogPlan, LogTarget, MapPlan, Mode, Plan, PoolId, PrivilegesPlan, Rotation,
    RoutePlan, Secret,
};

pub use flags::{LISTEN_DEFAULT, ProxyFlags, from_flags};
pub use schema::{reference, schema};
pub use validate::REGEX_BYTES_MAX;

pub use record::problem::suggestion;
#[cfg(any(test, fuzzing, feature = "fixtures"))]
pub use sources::check_sources;
#[cfg(any(test, fuzzing, feature = "fixtures"))]
pub use variables::check_variables;

use crate::template::KnownValues;
use errors::ValueError;
use routes::with_settings;
use value::Section;

/// Minimum length of an admin token in bytes.
const TOKEN_BYTES_MIN: usize = 16;
/// Maximum size of a file with one.
const TOKEN_FILE_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug)]
pub struct ParsedConfig {
    pub plan: Plan,
    /// Settings that work, but hardly as intended: a route that never matches, a pool that nothing
    /// uses.
    pub warnings: Vec<InputProblem>,
    /// Settings that would keep the proxy from recovering from overload.
    pub overload_lints: Vec<InputProblem>,
}

/// Parses a config. Positions in messages have the form `FILE:LINE:COLUMN`, with `file_name` as
/// FILE.
///
/// # Errors
/// Returns all problems, in the file's order. For a file that is not TOML, these are all syntax
/// errors, and the problems with keys on other lines. Files of `include` are read, too.
pub fn parse(file_name: &str, text: &str) -> Result<ParsedConfig, Vec<InputProblem>> {
    let mut problems = Problems::default();
    let (root, sources) = sources::read(file_name, text, &variables::process_variable, &mut problems);
    if !sources.is_readable {
        return Err(sources.locate(problems).0);
    }
    root.report_missing_keys(&mut problems);
    let mut lints = Problems::default();
    let mut plan = build_plan(&root, &mut problems, &mut lints);
    plan.source = text.into();
    plan.included = sources.watched_paths();
    let (located_errors, warnings) = sources.locate(problems);
    let (_, overload_lints) = sources.locate(lints);
    if located_errors.is_empty() {
        Ok(ParsedConfig { plan, warnings, overload_lints })
    } else {
        Err(located_errors)
    }
}

fn build_plan(root: &Section, problems: &mut Problems, lints: &mut Problems) -> Plan {
    let (maps, caches) = (maps::parse_maps(root, problems), caching::parse_caches(root, problems));
    let (pool_sections, listener_sections) = (root.tables("pool"), root.tables("listener"));
    let pool_names: IdVec<PoolId, &str> = pool_sections.iter().map(|pool| &*pool.name).collect();
    let pools: Vec<_> =
        pool_sections.iter().map(|section| pools::parse_pool(section, &maps, problems)).collect();
    let listeners: Vec<_> = listener_sections
        .iter()
        .map(|section| listeners::parse_listener(section, &pool_names, problems))
        .collect();
    let known_values = KnownValues { regex: None, maps: &maps };
    let pages = error_pages::parse_pages(&root.tables("error-page"), known_values, problems).into();
    let known_names = routes::KnownNames {
        listeners: &listeners,
        pools: &pool_names,
        pool_plans: &pools,
        error_pages: &pages,
        maps: &maps,
        caches: &caches,
    };
    let (routes, route_offsets) = build_routes(root, &known_names, problems);
    let threads = root.optional_size("threads").unwrap_or_else(|| rt::cores::available_cpus().len());
    let plan = Plan {
        threads,
        is_threads_set: root.optional_size("threads").is_some(),
        pin: parse_pin(root, problems),
        connections_max: parse_connections_max(root, threads, problems),
        drain_timeout_ns: root.integer_or_zero("drain-timeout"),
        privileges: parse_privileges(&root.table("privileges"), problems),
        logs: parse_logs(&root.tables("log"), &maps, problems),
        admin: root
            .text("admin")
            .and_then(|text| problems.ok_or_report(text.offset, validate::parse_bind_address(&text.value))),
        admin_access: parse_admin_access(root, problems),
        control: parse_path(root, "control", validate::parse_socket_path, problems),
        tracing: tracing::parse_tracing(root, problems).map(Arc::new),
        state_file: parse_path(root, "state-file", validate::parse_state_file, problems),
        source: "".into(),
        included: Vec::new(),
        error_pages: Arc::clone(&pages),
        maps: maps.into(),
        caches: caches.into(),
        password_threads: auth::parse_password_threads(root),
        given: route_settings::given_settings(&listener_sections, &pool_sections),
        listeners: listeners.into(),
        routes: routes.into(),
        pools: pools.into_iter().map(Arc::new).collect(),
    };
    let offsets = cross_checks::PlanOffsets {
        admin: root.value_offset("admin"),
        control: root.value_offset("control"),
        listeners: &listener_sections,
        routes: &route_offsets,
        pools: &pool_sections,
    };
    cross_checks::check_plan(&plan, &offsets, problems);
    ineffective::warn_of_keys(&plan, [&listener_sections, &root.tables("route"), &pool_sections], problems);
    overload_lints::check_overload(&plan, &listener_sections, &pool_sections, lints);
    plan
}

/// Reads the path of a key.
fn parse_path(
    root: &Section,
    key: &str,
    parse: fn(&str) -> Result<PathBuf, ValueError>,
    problems: &mut Problems,
) -> Option<PathBuf> {
    root.text(key).and_then(|text| problems.ok_or_report(text.offset, parse(&text.value)))
}

/// Returns the routes, those of listeners with a pool of their own last, and their positions.
fn build_routes(
    root: &Section,
    names: &routes::KnownNames<'_>,
    problems: &mut Problems,
) -> (Vec<RoutePlan>, Vec<usize>) {
    let sections = root.tables("route");
    let parse = |(index, section)| routes::parse_route(section, index, names, problems);
    let mut routes: Vec<_> = sections.iter().enumerate().map(parse).collect();
    let mut offsets: Vec<usize> = sections.iter().map(|section| section.offset).collect();
    for (index, section) in root.tables("listener").iter().enumerate() {
        if names.listeners[index].mode == Mode::Http
            && let Some(pool) = listeners::pool_of_listener(section, names.pools)
        {
            let route = routes::listener_route(index, &section.name, pool, names.error_pages);
            let settings = route_settings::inherit_settings(names, (&route.action, names.error_pages));
            routes.push(with_settings(route, settings));
            offsets.push(section.value_offset("pool"));
        }
    }
    (routes, offsets)
}

/// Checks the name of a server.
///
/// # Errors
/// The text is no name; the error says which texts are.
pub fn check_server_name(name: &str) -> Result<(), InvalidValue> {
    validate::check_name(name).map_err(|error| invalid_value!("{error}"))
}

fn parse_admin_access(root: &Section, problems: &mut Problems) -> AdminAccess {
    let hosts = root.texts("admin-hosts").into_iter();
    let hosts =
        hosts.filter_map(|text| problems.ok_or_report(text.offset, validate::parse_host(&text.value)));
    let hosts = hosts.collect();
    let (token, token_file) = parse_admin_token(root, problems);
    for key in ["admin-hosts", "admin-token", "admin-token-file"] {
        if let Some(offset) = root.key_offset(key).filter(|_| root.key_offset("admin").is_none()) {
            problems.warn(offset, format!("'{key}' has no effect without `admin`"));
        }
    }
    AdminAccess { hosts, token, token_file }
}

fn parse_admin_token(root: &Section, problems: &mut Problems) -> (Option<Secret>, Option<PathBuf>) {
    let check_length = |token: &[u8]| match token.len() {
        TOKEN_BYTES_MIN.. => Ok(Secret::new(token)),
        _ => Err(format!("the token is too short: write at least {TOKEN_BYTES_MIN} bytes")),
    };
    let token = root
        .text("admin-token")
        .and_then(|text| problems.ok_or_report(text.offset, check_length(text.value.as_bytes())));
    let Some(file) = root.text("admin-token-file") else { return (token, None) };
    if root.key_offset("admin-token").is_some() {
        let text = "`admin-token` and `admin-token-file` exclude each other: remove one of them";
        problems.add_error(file.offset, text);
    }
    let path = PathBuf::from(&*file.value);
    validate::warn_of_world_readable(&path, file.offset, problems);
    let content =
        problems.ok_or_report(file.offset, validate::read_bounded_file(&path, TOKEN_FILE_BYTES_MAX));
    let in_file = |text: String| format!("{}: {text}", path.display());
    let token = content.and_then(|content| {
        problems.ok_or_report(file.offset, check_length(content.trim_ascii()).map_err(in_file))
    });
    (token, Some(path))
}

fn parse_pin(root: &Section, problems: &mut Problems) -> Vec<usize> {
    let cpus = root.text("pin").map(|text| {
        problems.ok_or_report(text.offset, rt::cores::parse_cpus(&text.value)).unwrap_or_default()
    });
    cpus.unwrap_or_default()
}

fn parse_connections_max(root: &Section, threads: usize, problems: &mut Problems) -> Option<usize> {
    let max = root.optional_size("connections-max")?;
    if max < threads {
        let (max, threads) =
            (format_plural(max as u64, "connection"), format_plural(threads as u64, "thread"));
        let text = format!("{max} cannot serve {threads}: each needs at least one");
        problems.add_error(root.value_offset("connections-max"), text);
    }
    Some(max)
}

fn parse_privileges(section: &Section, problems: &mut Problems) -> PrivilegesPlan {
    let account = section.text("user").and_then(|text| {
        let account =
            problems.ok_or_report(text.offset, validate::find_account("/etc/passwd", &text.value))?;
        Some((account, text.offset))
    });
    let group = section.text("group").and_then(|text| {
        problems
            .ok_or_report(text.offset, validate::find_account("/etc/group", &text.value))
            .map(|group| group.id)
    });
    if let (Some((account, offset)), None) = (account, section.key_offset("group"))
        && account.group.is_none()
    {
        let id = account.id;
        let text = format!("user {id} is not in /etc/passwd, so its group is unknown: add group");
        problems.add_error(offset, text);
    }
    PrivilegesPlan {
        user: account.map(|(account, _)| account.id),
        group: group.or_else(|| account.and_then(|(account, _)| account.group)),
        no_new_privileges: section.flag("no-new-privileges"),
        landlock: section.flag("landlock"),
    }
}

fn parse_logs(sections: &[Section], maps: &[Arc<MapPlan>], problems: &mut Problems) -> Vec<LogPlan> {
    let known = KnownValues { regex: None, maps };
    let mut logs: Vec<LogPlan> = Vec::new();
    for section in sections {
        let Some(target_text) = section.text("to") else { continue };
        let Some(target) =
            problems.ok_or_report(target_text.offset, validate::parse_log_target(&target_text.value))
        else {
            continue;
        };
        if logs.iter().any(|log| log.target == target) && target != LogTarget::Stdout {
            let text = format!(
                "'{}' is the target of two logs, whose lines would be mixed: change one of them",
                target_text.value
            );
            problems.add_error(target_text.offset, text);
        }
        if let Some(offset) = section.key_offset("sample").filter(|_| section.flag("only-errors")) {
            problems.warn(offset, "'sample' has no effect with only-errors: errors are always logged");
        }
        logs.push(LogPlan {
            target,
            format: templates::parse_log_format(section, known, problems),
            sample: section.float("sample").unwrap_or(1.0),
            only_errors: section.flag("only-errors"),
            rotation: parse_rotation(section, problems),
        });
    }
    logs
}

/// Returns the rotation of a log's file.
fn parse_rotation(section: &Section, problems: &mut Problems) -> Option<Rotation> {
    let size = section.key_offset("rotate-size");
    let is_file = section.text("to").is_some_and(|to| to.value.starts_with("file:"));
    if let Some(offset) = size.filter(|_| !is_file) {
        problems.add_error(offset, "'rotate-size' needs a file: write to = \"file:/path\"");
    }
    if let Some(offset) = section.key_offset("rotate-files").filter(|_| size.is_none()) {
        problems.warn(offset, "'rotate-files' has no effect without rotate-size");
    }
    let size_bytes = section.optional_size("rotate-size")? as u64;
    let files_kept = section.integer("rotate-files").unwrap_or(7);
    // The table of keys bounds the number.
    Some(Rotation { size_bytes, files_kept: files_kept as u32 })
}

/// Returns the format with a name; JSON for an unknown one.
fn named_log_format(name: &str) -> LogFormat {
    match name {
        "combined" => LogFormat::Combined,
        "haproxy" => LogFormat::Haproxy,
        _ => LogFormat::Json,
    }
}
