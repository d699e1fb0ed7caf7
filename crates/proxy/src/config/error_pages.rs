//! Converts `[[error-page]]` and `[[route.error-page]]` to [`ErrorPage`]s.

use std::path::PathBuf;

use record::document::{Located, Problems};

use crate::plan::{ErrorPage, PageContent, PageForm, Statuses, Text};
use crate::template::{KnownValues, Scope, parse};

use super::health::parse_statuses;
use super::routes::BODY_BYTES_MAX;
use super::validate;
use super::value::Section;

/// Reads the pages of a list. `known` are the values of the config.
pub(super) fn parse_pages(
    sections: &[Section],
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Vec<ErrorPage> {
    sections.iter().filter_map(|section| parse_page(section, known, problems)).collect()
}

fn parse_page(section: &Section, known: KnownValues<'_>, problems: &mut Problems) -> Option<ErrorPage> {
    let text = section.text("status")?;
    let statuses = problems.ok_or_report(text.offset, parse_statuses(&text.value));
    if statuses.as_ref().is_some_and(|statuses| statuses.0.iter().any(|range| *range.start() < 400)) {
        let message = format!("'{}' has statuses that are no errors: write 400-599", text.value);
        problems.add_error(text.offset, message);
    }
    let replaces_servers = section.text("replace").is_some_and(|text| &*text.value == "all");
    let has_values = section.flag("values");
    let contents = PageForm::ALL.map(|form| {
        section.text(form.key()).and_then(|file| parse_content(&file, has_values, known, problems))
    });
    if PageForm::ALL.iter().all(|form| section.key_offset(form.key()).is_none()) {
        problems.add_error(section.offset, "the page has no content: add html, json or text");
    }
    Some(ErrorPage { statuses: statuses.unwrap_or(Statuses(Vec::new())), replaces_servers, contents })
}

fn parse_content(
    file: &Located<Box<str>>,
    has_values: bool,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Option<PageContent> {
    let path = PathBuf::from(&*file.value);
    let content =
        problems.ok_or_report(file.offset, validate::read_text_file(&path, BODY_BYTES_MAX))?.into_boxed_str();
    if !has_values {
        return Some(PageContent { file: path, text: Text::Literal(content) });
    }
    match parse(&content, Scope::Response, known) {
        Ok(text) => Some(PageContent { file: path, text }),
        Err(errors) => {
            for error in errors {
                let before = &content[..error.at.min(content.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
                let text = format!("{}:{line}:{column}: {}", path.display(), error.fault);
                problems.add_error(file.offset, text);
            }
            None
        }
    }
}
