//! The page of `weir ctl maintenance on --body FILE`: its form, its values, and its words in the state file. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::plan::{Fact, PageForm, Text, Variable};
use crate::template::{KnownValues, Scope, TemplateFault, parse};

/// Maximum length of a page in bytes, as of an error page.
pub const PAGE_BYTES_MAX: usize = 64 << 10;
/// Values that are known whatever the config says.
const KNOWN: &str = "status, reason, method, source, listener, route, pool and time";

/// The page of pools in maintenance, in one form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenancePage {
    pub form: PageForm,
    pub has_values: bool,
    content: Box<str>,
    pub(crate) text: Text,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageFault {
    #[error("the page is empty: write its content, or leave out --body for the page of the config")]
    Empty,
    #[error("the page has {0} bytes; the maximum is {PAGE_BYTES_MAX}: move styles and images out of it")]
    TooLong(usize),
    #[error("{line}:{column}: {text}")]
    Value { line: usize, column: usize, text: String },
    /// The words of a command or a line are no page.
    #[error("'{0}' is not a page: write html, json or text, and its content in base64")]
    Words(Box<str>),
}

impl MaintenancePage {
    /// Builds a page of this content; with `has_values`, texts in braces are values.
    ///
    /// # Errors
    /// Returns all faults of the content.
    pub fn new(form: PageForm, content: &str, has_values: bool) -> Result<Self, Vec<PageFault>> {
        let bytes = content.len();
        if bytes == 0 {
            return Err(vec![PageFault::Empty]);
        }
        if bytes > PAGE_BYTES_MAX {
            return Err(vec![PageFault::TooLong(bytes)]);
        }
        let text = match has_values {
            true => parse_values(content)?,
            false => Text::Literal(content.into()),
        };
        Ok(Self { form, has_values, content: content.into(), text })
    }

    /// Returns the form of a file by its name, or if that does not tell, by its content.
    #[must_use]
    pub fn form_of(name: &str, content: &str) -> PageForm {
        let extension = name.rsplit('/').next().and_then(|file| file.rsplit_once('.'));
        match extension.map(|(_, extension)| extension.to_ascii_lowercase()).as_deref() {
            Some("html" | "htm" | "xhtml") => return PageForm::Html,
            Some("json") => return PageForm::Json,
            Some("txt" | "text") => return PageForm::Text,
            _ => {}
        }
        match content.trim_start().as_bytes().first() {
            Some(b'<') => PageForm::Html,
            Some(b'{' | b'[') if serde_json::from_str::<serde::de::IgnoredAny>(content).is_ok() => {
                PageForm::Json
            }
            _ => PageForm::Text,
        }
    }

    /// Parses the words that [`Self::words`] returns.
    pub fn parse(words: &[&str]) -> Result<Self, Vec<PageFault>> {
        let invalid = || vec![PageFault::Words(words.first().copied().unwrap_or_default().into())];
        let (form, has_values, content) = match words {
            [form, "values", content] => (form, true, content),
            [form, content] => (form, false, content),
            _ => return Err(invalid()),
        };
        let form = PageForm::ALL.into_iter().find(|known| known.key() == *form);
        let content = STANDARD.decode(content).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (form, content) = form.zip(content).ok_or_else(invalid)?;
        Self::new(form, &content, has_values)
    }

    /// Returns the page as words of a command: its form, `values` if it has them, and its content in base64.
    #[must_use]
    pub fn words(&self) -> String {
        let values = if self.has_values { "values " } else { "" };
        format!("{} {values}{}", self.form.key(), STANDARD.encode(&*self.content))
    }

    pub fn bytes(&self) -> usize {
        self.content.len()
    }
}

fn parse_values(content: &str) -> Result<Text, Vec<PageFault>> {
    let fault = |at: usize, text: String| {
        let before = &content[..at.min(content.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        PageFault::Value { line, column, text }
    };
    let text = parse(content, Scope::Response, KnownValues::default()).map_err(|errors| {
        let text = |error: &TemplateFault| match error {
            // The values of a config have no place here either.
            TemplateFault::UnknownMap { name, .. } | TemplateFault::NoRegex { name } => not_known(name),
            other => other.to_string(),
        };
        errors.iter().map(|error| fault(error.at, text(&error.fault))).collect::<Vec<_>>()
    })?;
    let mut unknown: Vec<String> =
        text.variables().filter(|variable| !is_known(variable)).map(ToString::to_string).collect();
    unknown.dedup();
    match unknown.is_empty() {
        true => Ok(text),
        false => Err(unknown
            .iter()
            .map(|name| fault(content.find(&format!("{{{name}")).unwrap_or_default(), not_known(name)))
            .collect()),
    }
}

fn not_known(name: &str) -> String {
    format!("'{{{name}}}' is not known on this page: only {KNOWN} are (an [[error-page]] has more values)")
}

fn is_known(variable: &Variable) -> bool {
    use Fact::{Listener, Method, Pool, Reason, Route, Source, Status, Time, TimeHttp, TimeUnix};
    matches!(
        variable,
        Variable::Fact(
            Status | Reason | Method | Source | Listener | Route | Pool | Time | TimeUnix | TimeHttp
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_the_name_and_then_the_content() {
        for (name, content, form) in [
            ("a.html", "{}", PageForm::Html),
            ("/x.json/a.HTM", "{}", PageForm::Html),
            ("a.json", "<p>", PageForm::Json),
            ("a.txt", "<p>", PageForm::Text),
            ("/x.json/page", " \n<!doctype html>", PageForm::Html),
            ("-", "{\"a\": [1]}\n", PageForm::Json),
            ("page", "[soon]", PageForm::Text),
            ("page.md", "back soon", PageForm::Text),
            ("page", "", PageForm::Text),
        ] {
            assert_eq!(MaintenancePage::form_of(name, content), form, "{name} {content}");
        }
    }

    #[test]
    fn words_give_the_same_page_again() {
        for (content, has_values) in [("<p>{x} ü\n", false), ("{status} at {time:-?}\n", true)] {
            let page = MaintenancePage::new(PageForm::Html, content, has_values).unwrap();
            let words = page.words();
            assert_eq!(MaintenancePage::parse(&words.split(' ').collect::<Vec<_>>()), Ok(page));
        }
        for words in
            [&["html"][..], &["pdf", "YQ=="], &["html", "?"], &["html", "/w=="], &["html", "x", "YQ=="]]
        {
            assert!(
                matches!(&*MaintenancePage::parse(words).unwrap_err(), [PageFault::Words(_)]),
                "{words:?}"
            );
        }
    }

    #[test]
    fn faults_are_reported_at_their_places() {
        let faults = |content: &str, has_values| {
            let faults = MaintenancePage::new(PageForm::Html, content, has_values).unwrap_err();
            faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert!(faults("", false).contains("empty"));
        assert!(faults(&"x".repeat(PAGE_BYTES_MAX + 1), false).contains("65537 bytes"));
        assert!(MaintenancePage::new(PageForm::Html, &"x".repeat(PAGE_BYTES_MAX), false).is_ok());
        let found = faults("a\nü {statsu}\n{map.x} {", true);
        assert!(found.contains("2:3: '{statsu}'") && found.contains("3:9: "), "{found}");
        let found = faults("{status}\n {header.x} {1}", true);
        assert!(found.starts_with("2:13: '{1}' is not known on this page"), "{found}");
        let found = faults("{status}\n {header.x:-a} {path}", true);
        assert!(
            found.starts_with("2:2: '{header.x}' is not known") && found.contains("2:16: '{path}'"),
            "{found}"
        );
    }
}
