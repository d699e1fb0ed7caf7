//! nginx: blocks of directives, servers by name, locations by path.

mod compression;
#[cfg(test)]
mod content_tests;
mod fields;
mod files;
mod lexer;
mod limits;
mod location;
mod log;
mod maps;
mod pages;
mod phases;
mod pool;
mod scope;
mod server;
mod settings;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod values;
mod variables;

use std::rc::Rc;

use crate::directive::Directive;
use crate::document::{Section, Value};
use crate::draft::Draft;
use crate::left::Kind;
use crate::{Import, ParseError, Program, Surroundings};
use lexer::Reader;
use maps::MapVariable;
use pool::Upstream;
use scope::Scope;
use server::Server;
use variables::Known;

pub(crate) use pool::address;
pub(crate) use table::TABLE;

/// Blocks of `http`, or of a fragment of one.
#[derive(Default)]
struct Http {
    upstreams: Vec<Upstream>,
    servers: Vec<Server>,
}

/// Converts a config.
pub(crate) fn convert(
    name: &str,
    text: &str,
    surroundings: &mut dyn Surroundings,
) -> Result<Import, ParseError> {
    let mut reader = Reader::new(surroundings);
    let directives = reader.read(name, text)?;
    let (problems, bytes) = (std::mem::take(&mut reader.problems), reader.bytes);
    if directives.is_empty() {
        return Err(ParseError { file: name.into(), line: 1, reason: "the config is empty".into() });
    }
    let mut draft = Draft::new(Program::Nginx, surroundings);
    for (origin, reason) in problems {
        draft.leave(Kind::Needs, &origin, format!("the included file: {reason}"));
    }
    let mut http = Http::default();
    let mut scope = Scope::default();
    let mut locations = Vec::new();
    add_variables(directives.iter(), &mut scope);
    // Settings hold for the blocks before them, too.
    let (blocks, settings): (Vec<&Directive>, Vec<&Directive>) =
        directives.iter().partition(|directive| is_block(directive));
    for directive in settings.into_iter().chain(blocks) {
        match (directive.name(), &directive.block) {
            ("http", Some(inner)) => read_http(inner, &scope, &mut http, &mut draft),
            ("stream", Some(inner)) => stream::add(inner, &mut draft),
            ("events", Some(inner)) => inner.iter().for_each(|directive| scope::leave(directive, &mut draft)),
            ("user", _) => add_user(directive, &mut draft),
            ("worker_processes", _) => add_threads(directive, &mut draft),
            (
                "location" | "return" | "rewrite" | "if" | "break" | "set" | "try_files" | "proxy_pass"
                | "root" | "index" | "autoindex",
                _,
            ) => {
                locations.push(directive.clone());
            }
            _ => read_http_directive(directive, &mut scope, &mut http, &mut draft),
        }
    }
    if !locations.is_empty() {
        // A fragment of a server.
        http.servers.push(Server::fragment(&locations, &scope, &mut draft));
    }
    server::assemble(&http.servers, &http.upstreams, &mut draft);
    draft.finish((name, bytes))
}

/// Reads a block of `http`. Settings hold for all servers in it, also for those before them.
fn read_http(directives: &[Directive], outer: &Scope, http: &mut Http, draft: &mut Draft<'_>) {
    let mut scope = outer.inner(directives);
    add_variables(directives.iter(), &mut scope);
    for directive in directives.iter().filter(|directive| !is_block(directive)) {
        read_http_directive(directive, &mut scope, http, draft);
    }
    for directive in directives.iter().filter(|directive| is_block(directive)) {
        read_http_directive(directive, &mut scope, http, draft);
    }
}

fn is_block(directive: &Directive) -> bool {
    directive.block.is_some()
}

fn read_http_directive(directive: &Directive, scope: &mut Scope, http: &mut Http, draft: &mut Draft<'_>) {
    match (directive.name(), &directive.block) {
        ("server", Some(inner)) => {
            let server = Server::read(directive, inner, scope, draft);
            http.servers.push(server);
        }
        ("upstream", Some(inner)) => http.upstreams.push(Upstream::read(directive, inner, draft)),
        // They are read before all others, and count where they are used.
        ("map" | "geo" | "split_clients", Some(_)) if MapVariable::read(directive).is_some() => {}
        _ => scope.apply_or_leave(directive, draft),
    }
}

/// Adds the variables of blocks, which may be used before they are defined.
fn add_variables<'d>(directives: impl Iterator<Item = &'d Directive>, scope: &mut Scope) {
    for variable in directives.filter(|directive| is_block(directive)).filter_map(MapVariable::read) {
        Rc::make_mut(&mut scope.variables).insert(variable.name().to_owned(), Rc::new(variable));
    }
}

fn add_user(directive: &Directive, draft: &mut Draft<'_>) {
    let origins = std::slice::from_ref(&directive.origin);
    let user = directive.argument(0);
    if !draft.surroundings.has_user(user) {
        let text = format!("the user '{user}', which this machine does not have");
        return draft.leave(Kind::Needs, &directive.origin, text);
    }
    draft.document.privileges.set("user", Value::text(user), origins);
    let group = directive.argument(1);
    if !group.is_empty() && draft.surroundings.has_group(group) {
        draft.document.privileges.set("group", Value::text(group), origins);
    }
}

fn add_threads(directive: &Directive, draft: &mut Draft<'_>) {
    let origins = [Rc::clone(&directive.origin)];
    match directive.argument(0).parse::<u64>() {
        Ok(number) if number > 0 => {
            draft.document.top.set("threads", Value::Number(number.min(1024)), &origins)
        }
        _ => draft.leave(Kind::NoEffect, &directive.origin, "weir has one thread for each CPU"),
    }
}

/// Adds the log of a scope, of which weir has those of the whole process.
fn add_log(scope: &Scope, draft: &mut Draft<'_>) {
    let Some((path, origin)) = &scope.access_log else { return };
    let target = match path.as_str() {
        "off" => return,
        "/dev/stdout" => "stdout".to_owned(),
        path if path.contains('$') => {
            return draft.leave(Kind::NotSupported, origin, "a log has one file");
        }
        path => match path.strip_prefix("syslog:server=") {
            Some(rest) => {
                match rest.split(',').next().and_then(|text| text.parse::<std::net::SocketAddr>().ok()) {
                    Some(address) => format!("syslog:{address}"),
                    None => {
                        return draft.leave(
                            Kind::NotSupported,
                            origin,
                            "a log goes to an IP address with a port",
                        );
                    }
                }
            }
            None => {
                let directory = path.rsplit_once('/').map_or(".", |(directory, _)| directory);
                if !path.starts_with('/') || !draft.surroundings.exists(directory) {
                    let text = format!(
                        "[[log]] with to = \"file:{path}\" and format = \"combined\": the directory is missing here"
                    );
                    return draft.leave(Kind::Needs, origin, text);
                }
                format!("file:{path}")
            }
        },
    };
    let mut section = Section::new_array("log", vec![Rc::clone(origin)]);
    section.set("to", Value::text(target), &[]);
    set_log_format(scope, &mut section, draft);
    match draft.document.logs.first() {
        None => draft.document.logs.push(section),
        Some(known) if known.equals(&section) => {}
        Some(_) => {
            draft.leave(Kind::NotSupported, origin, "a log has the requests of all listeners: there is one")
        }
    }
}

/// Sets the format of a scope's log.
fn set_log_format(scope: &Scope, section: &mut Section, draft: &mut Draft<'_>) {
    let name = scope.access_log_format.as_str();
    let Some((format, (_, origin))) = scope.log_formats.get(name).zip(scope.access_log.as_ref()) else {
        return section.set("format", Value::text("combined"), &[]);
    };
    let mut map_of = |name: &str| {
        let variable = scope.variables.get(name)?;
        let known = Known { server_name: "", knows_source: scope.trusted.is_empty(), is_key: false };
        let resolved = variable.resolve(known, &scope.variables, draft).ok()?;
        let map = resolved.literal_map()?.to_owned();
        draft.keep_map(&map);
        Some(format!("{{map.{map}}}"))
    };
    let Some(converted) = format.convert(&mut map_of) else {
        let text = format!("weir cannot have the format '{name}': the log has the format combined");
        draft.leave(Kind::NotSupported, origin, text);
        return section.set("format", Value::text("combined"), &[]);
    };
    if !converted.unknown.is_empty() {
        let text = format!("weir has no value for {}: the lines have '-'", converted.unknown.join(", "));
        draft.leave(Kind::NotSupported, origin, text);
    }
    section.set("format", Value::text(converted.text), &[]);
    if format.is_json {
        section.set("escape", Value::text("json"), &[]);
    }
}
