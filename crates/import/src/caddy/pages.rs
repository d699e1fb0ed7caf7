//! `handle_errors` of Caddy: files that weir has as pages, and texts for the errors of `error`.

use std::rc::Rc;

use super::matcher::template;
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, fixed_response};
use crate::left::Kind;
use crate::rules::{Action, Change, Condition, ErrorPage, Rule};

/// Statuses whose pages are looked for, where the name of a file has the status.
const STATUSES: [u16; 12] = [400, 401, 403, 404, 405, 413, 429, 500, 501, 502, 503, 504];
/// Reason for other contents.
const NO_PAGE: &str =
    "a page of weir is a file, whose name may have the status: the errors have weir's own texts";
/// Remedy for texts.
const TEXT: &str =
    "a file with the text, in `error-page`, for the errors of weir itself: errors of `error` have it";

/// One `handle_errors` with a text.
#[derive(Debug)]
struct ErrorText {
    /// Ranges of statuses; empty: all.
    statuses: Vec<(u16, u16)>,
    status: Option<u16>,
    text: String,
    origin: Rc<Origin>,
}

/// Contents of errors of a site.
#[derive(Debug, Default)]
pub(super) struct Errors {
    texts: Vec<ErrorText>,
    pages: Vec<(ErrorPage, Rc<Origin>)>,
}

impl Errors {
    /// Reads the blocks of a site, of which `site` are the other directives.
    pub(super) fn read(handlers: &[Directive], site: &[Directive], draft: &mut Draft<'_>) -> Self {
        let mut errors = Self::default();
        for handler in handlers {
            if errors.add(handler, site, draft).is_none() {
                draft.leave(Kind::NotSupported, &handler.origin, NO_PAGE);
            }
        }
        errors
    }

    fn add(&mut self, handler: &Directive, site: &[Directive], draft: &mut Draft<'_>) -> Option<()> {
        let statuses: Option<Vec<(u16, u16)>> = handler.arguments().iter().map(|word| range(word)).collect();
        let statuses = statuses?;
        let names: Vec<&str> = handler.inner().iter().map(Directive::name).collect();
        if let [directive] = handler.inner()
            && directive.name() == "respond"
        {
            let (text, status) = match directive.arguments() {
                [text] if directive.block.is_none() => (text, None),
                [text, status] if directive.block.is_none() => (text, Some(status.parse().ok()?)),
                _ => return None,
            };
            let text = template_with_status(text)?;
            let origin = Rc::clone(&handler.origin);
            self.texts.push(ErrorText { statuses, status, text, origin });
            return Some(());
        }
        let is_files = names.iter().all(|name| matches!(*name, "root" | "rewrite" | "file_server"));
        if !is_files || !names.contains(&"file_server") {
            return None;
        }
        let find = |name: &str| handler.inner().iter().find(|inner| inner.name() == name);
        let root = find("root").or_else(|| site.iter().find(|inner| inner.name() == "root"))?;
        let root = root.arguments().last()?.trim_end_matches('/');
        let path = match find("rewrite")?.arguments() {
            [path] => path,
            [all, path] if all == "*" => path,
            _ => return None,
        };
        let form = match path.rsplit_once('.')?.1 {
            "html" => "html",
            "json" => "json",
            "txt" => "text",
            _ => return None,
        };
        self.add_files(&statuses, &format!("{root}{path}"), (form, &handler.origin), draft)
    }

    fn add_files(
        &mut self,
        statuses: &[(u16, u16)],
        path: &str,
        (form, origin): (&'static str, &Rc<Origin>),
        draft: &mut Draft<'_>,
    ) -> Option<()> {
        let page = |status: String, file: String| ErrorPage { status, replaces_servers: false, form, file };
        let before = self.pages.len();
        let placeholder =
            ["{err.status_code}", "{http.error.status_code}"].into_iter().find(|name| path.contains(name));
        match placeholder {
            Some(name) => {
                for status in STATUSES.into_iter().filter(|status| is_in(statuses, *status)) {
                    let file = path.replace(name, &status.to_string());
                    if draft.surroundings.is_page(&file) {
                        self.pages.push((page(status.to_string(), file), Rc::clone(origin)));
                    }
                }
            }
            None if path.contains('{') => return None,
            None if draft.surroundings.is_page(path) => {
                let shown = |(from, to): &(u16, u16)| match from == to {
                    true => from.to_string(),
                    false => format!("{from}-{to}"),
                };
                let status = match statuses {
                    [] => "400-599".to_owned(),
                    statuses => statuses.iter().map(shown).collect::<Vec<_>>().join(","),
                };
                self.pages.push((page(status, path.to_owned()), Rc::clone(origin)));
            }
            None => {}
        }
        if self.pages.len() == before {
            let text =
                format!("the page {path}, missing here: text in UTF-8 of up to 64 KiB, in `error-page`");
            draft.leave(Kind::Needs, origin, text);
        }
        Some(())
    }

    /// Returns the changes of the contents of errors.
    pub(super) fn changes(&self) -> Vec<Rule> {
        let changes = self.pages.iter().map(|(page, origin)| {
            Rule::Change(Condition::Always, Change::Page(page.clone()), Rc::clone(origin))
        });
        changes.collect()
    }

    /// Returns what `error` responds with.
    pub(super) fn action(&self, status: u16) -> Action {
        let text = self.texts.iter().find(|text| is_in(&text.statuses, status));
        let response = text.and_then(|own| {
            let text = own.text.replace("{err.status_code}", &status.to_string());
            fixed_response(own.status.unwrap_or(status), Some("text/plain; charset=utf-8"), &text)
        });
        response.unwrap_or(Action::Deny(status))
    }

    /// Reports the texts, which errors of weir itself do not have.
    pub(super) fn report(&self, draft: &mut Draft<'_>) {
        for text in &self.texts {
            draft.leave(Kind::Needs, &text.origin, TEXT);
        }
    }
}

/// Returns a text whose only placeholder is the status, in its short form; `None`: it has another one.
fn template_with_status(text: &str) -> Option<String> {
    let text = text.replace("{http.error.status_code}", "{err.status_code}");
    let is_known =
        template(&text.replace("{err.status_code}", "")).is_some_and(|text| text.literal().is_some());
    is_known.then_some(text)
}

/// Returns the statuses of a word such as `404` or `5xx`.
fn range(word: &str) -> Option<(u16, u16)> {
    let (from, to) = match word.strip_suffix("xx") {
        Some(digit) => {
            let hundred = digit.parse::<u16>().ok()?.checked_mul(100)?;
            (hundred, hundred + 99)
        }
        None => word.parse().ok().map(|status| (status, status))?,
    };
    ((400..600).contains(&from) && to < 600).then_some((from, to))
}

fn is_in(statuses: &[(u16, u16)], status: u16) -> bool {
    statuses.is_empty() || statuses.iter().any(|(from, to)| (*from..=*to).contains(&status))
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::NoSurroundings;
    use crate::{IncludeError, Program, Surroundings, convert};

    /// Machine with the pages `/errors/404.html` and `/errors/500.html`.
    struct Pages;

    impl Surroundings for Pages {
        fn include(&mut self, pattern: &str) -> Result<Vec<(String, String)>, IncludeError> {
            NoSurroundings.include(pattern)
        }

        fn exists(&mut self, _: &str) -> bool {
            false
        }

        fn is_page(&mut self, path: &str) -> bool {
            matches!(path, "/errors/404.html" | "/errors/500.html")
        }

        fn has_user(&mut self, _: &str) -> bool {
            false
        }

        fn has_group(&mut self, _: &str) -> bool {
            false
        }

        fn variable(&mut self, _: &str) -> Option<String> {
            None
        }

        fn secret(&mut self) -> String {
            NoSurroundings.secret()
        }
    }

    fn site(text: &str) -> (String, Vec<String>) {
        let text = format!(":8080 {{\n{text}\nreverse_proxy a:1\n}}\n");
        let import = convert(Program::Caddy, "Caddyfile", &text, &mut Pages).unwrap();
        let left = import.report.iter().filter(|left| left.kind.is_left()).map(ToString::to_string).collect();
        (import.config, left)
    }

    #[test]
    fn files_are_pages() {
        let (text, left) =
            site("handle_errors {\n root * /errors\n rewrite * /{err.status_code}.html\n file_server\n}");
        assert_eq!(text.matches("[[route.error-page]]").count(), 2, "{text}");
        assert!(
            text.contains("status = \"404\"\nhtml = \"/errors/404.html\"") && left.is_empty(),
            "{left:?}"
        );
        let (text, left) =
            site("root * /errors\nhandle_errors 404 5xx {\n rewrite * /500.html\n file_server\n}");
        assert!(text.contains("status = \"404,500-599\"") && left.is_empty(), "{text}{left:?}");
        // Decoys: a file that is missing, and what is no file.
        let (text, left) = site("handle_errors {\n root * /x\n rewrite * /500.html\n file_server\n}");
        assert!(!text.contains("route.error-page") && left[0].contains("/x/500.html, missing"), "{left:?}");
        let (text, left) = site("handle_errors {\n reverse_proxy b:1\n}");
        assert!(!text.contains("b:1") && !text.contains("501") && left.len() == 1, "{text}{left:?}");
    }

    #[test]
    fn texts_are_those_of_error() {
        let (text, left) = site("handle_errors {\n respond \"oh {err.status_code}\"\n}\nerror /x 404");
        assert!(text.contains("status = 404") && text.contains("body = \"oh 404\""), "{text}");
        assert!(left.len() == 1 && left[0].contains("needs"), "{left:?}");
        let (text, _) = site("handle_errors 5xx {\n respond oh\n}\nerror /x 404");
        assert!(text.contains("deny = 404"), "{text}");
    }
}
