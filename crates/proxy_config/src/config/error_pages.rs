//! Converts `[[error-page]]` and `[[route.error-page]]` to [`ErrorPage`]s.

use std::path::{Path, PathBuf};

use record::document::{Located, Problems};

use crate::plan::{ErrorPage, PageContent, PageForm, Statuses, Text};
use crate::template::{KnownValues, Scope, parse};

use super::errors::ValueError;
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
    let file_form = FileForm { has_values: section.flag("values"), has_head: section.flag("skip-head") };
    let contents = PageForm::ALL.map(|form| {
        section.text(form.key()).and_then(|file| parse_content(&file, file_form, known, problems))
    });
    if PageForm::ALL.iter().all(|form| section.key_offset(form.key()).is_none()) {
        problems.add_error(section.offset, "the page has no content: add html, json or text");
    }
    Some(ErrorPage { statuses: statuses.unwrap_or(Statuses(Vec::new())), replaces_servers, contents })
}

/// Parts of the files of a page.
#[derive(Clone, Copy)]
struct FileForm {
    has_values: bool,
    /// True if a file begins with the head of a response.
    has_head: bool,
}

fn parse_content(
    file: &Located<Box<str>>,
    form: FileForm,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Option<PageContent> {
    let path = PathBuf::from(&*file.value);
    let whole = problems.ok_or_report(file.offset, validate::read_text_file(&path, BODY_BYTES_MAX))?;
    let content = match form.has_head {
        true => problems.ok_or_report(file.offset, after_head(&whole, &path))?,
        false => &whole,
    };
    if !form.has_values {
        return Some(PageContent { file: path, text: Text::Literal(content.into()) });
    }
    match parse(content, Scope::Response, known) {
        Ok(text) => Some(PageContent { file: path, text }),
        Err(errors) => {
            for error in errors {
                let before = &whole[..whole.len() - content.len() + error.at.min(content.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
                let text = format!("{}:{line}:{column}: {}", path.display(), error.fault);
                problems.add_error(file.offset, text);
            }
            None
        }
    }
}

/// Returns the content behind the head of a response, which ends with an empty line.
fn after_head<'a>(text: &'a str, path: &Path) -> Result<&'a str, ValueError> {
    let ends = ["\r\n\r\n", "\n\n"].map(|end| text.find(end).map(|at| at + end.len()));
    match ends.into_iter().flatten().min() {
        Some(start) if text.starts_with("HTTP/") => Ok(&text[start..]),
        _ => Err(ValueError::NoHead(path.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_an_empty_line() {
        let path = Path::new("page.http");
        for (text, expected) in [
            ("HTTP/1.0 503 No\r\nContent-Type: text/html\r\n\r\n<p>\n\n", Some("<p>\n\n")),
            ("HTTP/1.0 503 No\nA: b\n\nx\r\n\r\ny", Some("x\r\n\r\ny")),
            ("HTTP/1.0 503 No\r\n\r\n", Some("")),
            ("<p>sorry\n\n", None),
            ("HTTP/1.0 503 No\r\n", None),
            ("", None),
        ] {
            assert_eq!(after_head(text, path).ok(), expected, "{text:?}");
        }
    }
}
