//! Caddy: sites with addresses, directives in Caddy's own order, matchers.

mod compression;
mod files;
mod lexer;
mod matcher;
mod pages;
mod proxy;
mod site;
mod sites;
mod table;
mod values;

use crate::directive::Directive;
use crate::draft::Draft;
use crate::left::Kind;
use crate::row;
use crate::{Import, ParseError, Program, Surroundings};
use lexer::Reader;
use sites::Options;

pub(crate) use table::TABLE;

/// Converts a Caddyfile.
pub(crate) fn convert(
    name: &str,
    text: &str,
    surroundings: &mut dyn Surroundings,
) -> Result<Import, ParseError> {
    let mut reader = Reader::new(surroundings);
    let blocks = reader.read(name, text)?;
    let (report, bytes) = (std::mem::take(&mut reader.report), reader.bytes);
    if blocks.is_empty() {
        return Err(ParseError { file: name.into(), line: 1, reason: "the config has no site".into() });
    }
    let mut draft = Draft::new(Program::Caddy, surroundings);
    draft.report = report;
    let mut options = Options::default();
    let mut found = Vec::new();
    for block in &blocks {
        match block.words.is_empty() {
            true => options.read(block.inner(), &mut draft),
            false => found.push(block),
        }
    }
    sites::assemble(&found, &options, &mut draft);
    draft.finish((name, bytes))
}

/// Reports a directive by its row, or as an unknown one.
fn leave(directive: &Directive, draft: &mut Draft<'_>) {
    let words: Vec<&str> = directive.words.iter().take(3).map(String::as_str).collect();
    match row::find(TABLE, &words) {
        Some(row) => draft.leave(row.kind.unwrap_or(Kind::NotSupported), &directive.origin, row.becomes),
        None => {
            let text =
                format!("'{}' is not known to the import", record::problem::printable(directive.name(), 60));
            draft.leave(Kind::NotSupported, &directive.origin, text);
        }
    }
}
