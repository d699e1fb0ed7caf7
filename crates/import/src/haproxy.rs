//! HAProxy: sections of lines, conditions by ACLs, a table of directives.

mod acl;
mod actions;
mod assemble;
mod compression;
#[cfg(test)]
mod file_tests;
mod files;
mod formats;
mod keys;
mod lexer;
mod listeners;
mod lists;
mod maps;
mod pages;
mod pool;
mod server;
mod settings;
mod stick;
mod switching;
mod table;
mod variables;

use crate::draft::Draft;
use crate::left::Kind;
use crate::row;
use crate::{Import, ParseError, Program, Surroundings};
use std::rc::Rc;

use lexer::Line;
use settings::{Global, Proxy, ProxyKind};

pub(crate) use table::TABLE;

/// Converts a config.
pub(crate) fn convert(
    name: &str,
    text: &str,
    surroundings: &mut dyn Surroundings,
) -> Result<Import, ParseError> {
    let (lines, unset) = lexer::lines(name, text, surroundings)?;
    if let Some(line) = lines.iter().find(|line| line.word(0).starts_with('.')) {
        let reason =
            "a config with conditions: import what `haproxy -dC -c` prints, or the lines of one branch";
        return Err(ParseError { file: name.into(), line: line.origin.line, reason: reason.into() });
    }
    let Some(first) = lines.first() else {
        return Err(ParseError { file: name.into(), line: 1, reason: "the config is empty".into() });
    };
    if !is_section(first.word(0)) {
        let reason = format!(
            "'{}' is not in a section: begin with global, defaults, frontend, backend or listen",
            first.word(0)
        );
        return Err(ParseError { file: name.into(), line: first.origin.line, reason });
    }
    let mut draft = Draft::new(Program::Haproxy, surroundings);
    for (origin, name) in unset {
        draft.leave(Kind::Needs, &origin, format!("the environment variable {name}, which is not set here"));
    }
    let mut sections = Sections { defaults: vec![(String::new(), Proxy::default())], ..Sections::default() };
    for section in lines.chunk_by(|_, next| !is_section(next.word(0))) {
        if let [head, lines @ ..] = section {
            sections.read(head, lines, &mut draft);
        }
    }
    assemble::assemble(&sections.global, sections.proxies, &mut draft);
    draft.finish((name, text.len()))
}

/// Sections that have been read.
#[derive(Default)]
struct Sections {
    global: Global,
    /// By name, in their order.
    defaults: Vec<(String, Proxy)>,
    proxies: Vec<Proxy>,
}

impl Sections {
    fn read(&mut self, head: &Line, lines: &[Line], draft: &mut Draft<'_>) {
        match head.word(0) {
            "global" => lines.iter().for_each(|line| self.global.apply(line, draft)),
            "resolvers" => self.global.add_resolvers(head, lines, draft),
            "defaults" => {
                let mut proxy = Proxy::new(ProxyKind::Defaults, head, &inherited(head, &self.defaults));
                apply_all(&mut proxy, lines, draft);
                let name = if head.word(1) == "from" { "" } else { head.word(1) };
                self.defaults.push((name.to_owned(), proxy));
            }
            "frontend" | "backend" | "listen" => {
                let kind = ProxyKind::of(head.word(0));
                let mut proxy = Proxy::new(kind, head, &inherited(head, &self.defaults));
                proxy.add_head_address(head, draft);
                apply_all(&mut proxy, lines, draft);
                self.proxies.push(proxy);
            }
            "http-errors" => {
                let mut pages = pages::Pages::new();
                lines.iter().for_each(|line| pages::add(&mut pages, line, draft));
                self.global.pages.insert(head.word(1).to_owned(), pages);
            }
            "userlist" => {
                draft.leave(Kind::NotSupported, &head.origin, "weir has no authentication of users")
            }
            other => {
                let (kind, reason) = reason_of(row::find(TABLE, &[other]), other);
                draft.leave(kind, &head.origin, reason);
            }
        }
    }
}

/// Returns the defaults of a section: those it names with `from`, else the last ones before it.
fn inherited(head: &Line, defaults: &[(String, Proxy)]) -> Proxy {
    let from = head.words.iter().position(|word| word == "from").and_then(|at| head.words.get(at + 1));
    let named = from.and_then(|name| defaults.iter().rev().find(|(other, _)| other == name));
    named.or_else(|| defaults.last()).map(|(_, proxy)| proxy.clone()).unwrap_or_default()
}

/// Words that begin a section.
const SECTIONS: [&str; 17] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "userlist",
    "resolvers",
    "peers",
    "mailers",
    "program",
    "cache",
    "ring",
    "http-errors",
    "fcgi-app",
    "log-forward",
    "crt-store",
    "traces",
];

/// Returns whether a word begins a section.
pub(crate) fn is_section(word: &str) -> bool {
    SECTIONS.contains(&word)
}

/// Returns the kind and the reason of a row, or those of an unknown directive.
fn reason_of(row: Option<&row::Row>, name: &str) -> (Kind, String) {
    match row {
        Some(row) => (row.kind.unwrap_or(Kind::NotSupported), row.becomes.to_owned()),
        None => (Kind::NotSupported, format!("'{name}' is not known to the import")),
    }
}

/// Applies the lines of a section, its ACLs first: a name also has the lines behind the rules that use it.
fn apply_all(proxy: &mut Proxy, lines: &[Line], draft: &mut Draft<'_>) {
    let lines = &variables::replaced(lines)[..];
    let problems = proxy.acls.define(lines.iter().filter(|line| line.word(0) == "acl"), draft);
    for (line, reason) in problems {
        draft.leave(Kind::NotSupported, &line.origin, reason.to_string());
    }
    for line in lines {
        // What the variable names may restrict access. It is reported already.
        if !line.is_complete {
            proxy.refused.get_or_insert_with(|| Rc::clone(&line.origin));
        }
        apply(proxy, line, draft);
    }
}

/// Applies one line of a section, by the table. A line that may restrict access, and that weir does not know, refuses
/// all requests of the section.
fn apply(proxy: &mut Proxy, line: &Line, draft: &mut Draft<'_>) {
    let mut words: Vec<&str> = line.words.iter().take(4).map(String::as_str).collect();
    // The name of a variable or counter is no word of its own.
    if let Some(second) = words.get_mut(1) {
        *second = second.split('(').next().unwrap_or_default();
    }
    let row = row::find(TABLE, &words);
    match row {
        Some(row) if row.kind.is_none() => proxy.apply(row.directive, line, draft),
        row => {
            let (kind, reason) = reason_of(row, words.first().copied().unwrap_or_default());
            draft.leave(kind, &line.origin, reason);
            match (words.first().copied().unwrap_or_default(), row) {
                ("http-request" | "http-response" | "tcp-request" | "tcp-response", Some(row)) => {
                    proxy.apply(row.directive, line, draft);
                }
                ("disabled", _) => proxy.is_disabled = true,
                ("enabled", _) => proxy.is_disabled = false,
                ("reqadd" | "reqrep" | "rspadd" | "rspidel" | "rspdel" | "reqidel", _) => {}
                (_, None) => proxy.refused = Some(Rc::clone(&line.origin)),
                _ => {}
            }
        }
    }
}
