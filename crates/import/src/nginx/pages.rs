//! `error_page` of nginx, and files with a fixed path, which weir has as pages and fixed responses.

use std::borrow::Cow;
use std::rc::Rc;

use super::location::{Location, LocationKind};
use super::phases::Converter;
use super::scope::{PageRule, Scope};
use crate::left::Kind;
use crate::rules::{Action, Change, Condition, ErrorPage, Rule, Test};

/// Reason for pages that are not files.
const NO_FILE: &str = "a page of weir is a file with a fixed path, and keeps the status of its response: the errors have \
                       weir's own texts";

impl Converter<'_, '_> {
    /// Returns the changes of the contents of errors in a scope.
    pub(super) fn page_rules(&mut self, scope: &Scope) -> Vec<Rule> {
        let pages = scope.pages.iter().filter_map(|page| self.page_rule(page, scope));
        pages.collect()
    }

    fn page_rule(&mut self, page: &PageRule, scope: &Scope) -> Option<Rule> {
        let is_jump = page.response == "=" && page.target.starts_with('@');
        let path = page.target.as_str();
        self.draft.spend(64 + 8 * self.server.locations.len(), &page.origin).then_some(())?;
        let location = self.location_of(path).filter(|location| {
            !location
                .directives
                .iter()
                .any(|inner| inner.name().ends_with("_pass") || inner.name() == "return")
        });
        let page_scope = location.as_ref().map(|location| location.scope.clone());
        let file = location.and_then(|location| location.file_of(path));
        let form = match path.rsplit_once('.') {
            Some((_, "html" | "htm")) => "html",
            Some((_, "json")) => "json",
            Some((_, "txt")) => "text",
            _ => "",
        };
        let statuses: Vec<String> =
            page.statuses.iter().filter(|status| (400..600).contains(*status)).map(u16::to_string).collect();
        let is_exact = page.response.is_empty() && !form.is_empty() && statuses.len() == page.statuses.len();
        let Some(file) = file.filter(|_| is_exact && !statuses.is_empty()) else {
            // A jump by `return` goes to its location; errors of weir do not.
            let kind = if is_jump { Kind::Differs } else { Kind::NotSupported };
            self.draft.leave(kind, &page.origin, NO_FILE);
            return None;
        };
        if !self.draft.surroundings.is_page(&file) {
            let text =
                format!("the page {file}, missing here: text in UTF-8 of up to 64 KiB, in `error-page`");
            self.draft.leave(Kind::Needs, &page.origin, text);
            return None;
        }
        let fields = |scope: &Scope| {
            let always = scope.add_headers.iter().filter(|field| field.is_always);
            always.map(|field| (field.name.clone(), field.value.clone())).collect::<Vec<_>>()
        };
        if page_scope.is_some_and(|page| fields(&page) != fields(scope)) {
            let text = "the page has the fields of the location of the error, not those of its own location";
            self.draft.leave(Kind::Differs, &page.origin, text);
        }
        let page_of_weir =
            ErrorPage { status: statuses.join(","), replaces_servers: scope.intercepts_errors, form, file };
        Some(Rule::Change(Condition::Always, Change::Page(page_of_weir), Rc::clone(&page.origin)))
    }

    /// Returns the location of a fixed path; `None`: an expression may match it.
    fn location_of(&self, path: &str) -> Option<Cow<'_, Location>> {
        let locations = &self.server.locations;
        if !path.starts_with('/') {
            return None;
        }
        if let Some(exact) =
            locations.iter().find(|other| other.kind == LocationKind::Exact && other.path == path)
        {
            return Some(Cow::Borrowed(exact));
        }
        let is_prefix = |other: &&Location| {
            matches!(other.kind, LocationKind::Prefix | LocationKind::Preferred)
                && path.starts_with(other.path.as_str())
        };
        let longest = locations.iter().filter(is_prefix).max_by_key(|other| other.path.len());
        let is_preferred = longest.is_some_and(|other| other.kind == LocationKind::Preferred);
        let has_regex = locations
            .iter()
            .any(|other| matches!(other.kind, LocationKind::Regex | LocationKind::RegexWithoutCase));
        match longest {
            _ if has_regex && !is_preferred => None,
            Some(location) => Some(Cow::Borrowed(location)),
            None => Some(Cow::Owned(Location::fallback(self.server))),
        }
    }

    /// Returns the rules of a location that has one file; `None`: it has others, or the file is missing here.
    pub(super) fn fixed_file(&mut self, location: &Location) -> Option<Vec<Rule>> {
        let file = location.file_of(&location.path).filter(|_| location.kind == LocationKind::Exact)?;
        let origins = vec![Rc::clone(&location.origin)];
        let content_type = match file.rsplit_once('.') {
            Some((_, "html" | "htm")) => "text/html",
            Some((_, "txt")) => "text/plain",
            _ => return None,
        };
        if !self.draft.surroundings.is_page(&file) {
            // Without a page, it may be a file of its directory.
            self.pages.iter().find(|page| page.target == location.path)?;
            let text =
                format!("the file {file}, missing here: text in UTF-8 of up to 64 KiB, in `body-file`");
            self.draft.leave(Kind::Needs, &location.origin, text);
            return Some(vec![Rule::Act(Action::Deny(404), origins)]);
        }
        let is_read = Condition::tests(["GET", "HEAD"].map(|method| Test::Method(method.to_owned())));
        let action = Action::ReturnFile { status: 200, content_type: content_type.to_owned(), file };
        Some(vec![
            Rule::When(is_read, [Rule::Act(action, Vec::new())].into(), origins),
            Rule::Act(Action::Deny(405), Vec::new()),
        ])
    }
}
