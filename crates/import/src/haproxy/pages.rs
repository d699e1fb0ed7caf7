//! Pages of errors: `errorfile`, `errorfiles`, `errorloc`, `http-error` and sections `http-errors`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::acl::{NoEquivalent, no_equivalent};
use super::lexer::Line;
use super::settings::{Proxy, Set};
use crate::document::{Origin, Section, Value};
use crate::draft::{Draft, fixed_response, is_changeable, redirect};
use crate::left::Kind;
use crate::rules::{Action, Change, Condition, RouteSetting, Rule};
use crate::text::Template;

/// Content for a status.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Page {
    /// A complete response, with its head.
    Raw(String),
    /// A file with the content alone, and its type.
    File(String, String),
    Text(String, String),
    Redirect(u16, String),
}

/// Pages of a section, by their status.
pub(super) type Pages = BTreeMap<u16, Set<Page>>;

/// Reason for a page that weir cannot send.
const UNFIT: &str = "this status or length of a page";
/// Maximum length of a page of weir.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// Reads a line of `errorfile`, `errorloc…` or `http-error`; fails with the reason.
fn page(line: &Line) -> Result<(u16, Page), NoEquivalent> {
    let words = line.rest(1);
    let status = |text: &str| {
        let status = text.parse::<u16>().ok().filter(|status| (200..600).contains(status));
        status.ok_or_else(|| NoEquivalent(format!("'{text}' is no status")))
    };
    match (line.word(0), words) {
        ("errorfile", [code, file, ..]) => Ok((status(code)?, Page::Raw(file.clone()))),
        ("errorloc" | "errorloc302", [code, url, ..]) => {
            Ok((status(code)?, Page::Redirect(302, url.clone())))
        }
        ("errorloc303", [code, url, ..]) => Ok((status(code)?, Page::Redirect(303, url.clone()))),
        ("http-error", words) => {
            let (mut code, mut media_type, mut page) = (0, "text/plain".to_owned(), None);
            let mut words = words.iter().map(String::as_str);
            while let Some(word) = words.next() {
                let value = words.next().unwrap_or_default();
                match word {
                    "status" => code = status(value)?,
                    "content-type" => value.clone_into(&mut media_type),
                    "errorfile" => page = Some(Page::Raw(value.to_owned())),
                    "file" => page = Some(Page::File(value.to_owned(), media_type.clone())),
                    "string" => page = Some(Page::Text(value.to_owned(), media_type.clone())),
                    "lf-string" if !value.contains('%') => {
                        page = Some(Page::Text(value.to_owned(), media_type.clone()));
                    }
                    other => {
                        return no_equivalent(format!(
                            "'{other}' of a page: weir's own page is in its place"
                        ));
                    }
                }
            }
            let page = page.unwrap_or(Page::Text(String::new(), media_type));
            Ok((status(&code.to_string())?, page))
        }
        _ => no_equivalent("a status and a page are expected"),
    }
}

pub(super) fn add(pages: &mut Pages, line: &Line, draft: &mut Draft<'_>) {
    match page(line) {
        Ok((status, page)) => drop(pages.insert(status, (page, Rc::clone(&line.origin)))),
        Err(reason) => draft.leave(Kind::NotSupported, &line.origin, reason.to_string()),
    }
}

/// Adds the pages that a section takes with `errorfiles` from sections `http-errors`.
pub(super) fn add_shared(proxy: &mut Proxy, sections: &BTreeMap<String, Pages>, draft: &mut Draft<'_>) {
    for (words, origin) in std::mem::take(&mut proxy.shared_pages) {
        let Some(pages) = words.first().and_then(|name| sections.get(name)) else {
            draft.leave(Kind::NotSupported, &origin, "there is no section http-errors of this name");
            continue;
        };
        let is_wanted = |status: &u16| words.len() == 1 || words[1..].contains(&status.to_string());
        for (status, (page, _)) in pages.iter().filter(|(status, _)| is_wanted(status)) {
            proxy.pages.insert(*status, (page.clone(), Rc::clone(&origin)));
        }
    }
}

/// A complete response of HAProxy, a file with a head, in its parts.
struct Head<'a> {
    status: u16,
    media_type: Option<&'a str>,
    /// Fields but those that weir sets itself, with names in lower case.
    fields: Vec<(String, &'a str)>,
    body: &'a str,
}

impl<'a> Head<'a> {
    fn parse(text: &'a str) -> Result<Self, NoEquivalent> {
        let end = text.find("\r\n\r\n").map(|at| (at, at + 4));
        let end = [end, text.find("\n\n").map(|at| (at, at + 2))].into_iter().flatten().min();
        let Some((end, start)) = end else { return no_equivalent("the page has no complete head") };
        let mut lines = text[..end].lines();
        let status =
            lines.next().and_then(|line| line.strip_prefix("HTTP/")?.split(' ').nth(1)?.parse().ok());
        let Some(status) = status else { return no_equivalent("the page has no status") };
        let mut head = Self { status, media_type: None, fields: Vec::new(), body: &text[start..] };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                return no_equivalent(format!("'{line}' is no field"));
            };
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            match name.as_str() {
                "content-type" => head.media_type = Some(value),
                "content-length" | "connection" | "date" | "server" => {}
                _ => head.fields.push((name, value)),
            }
        }
        Ok(head)
    }
}

/// Returns the rules that send a complete response of HAProxy, a file with a head; fails with the reason.
pub(super) fn response(text: &str) -> Result<Vec<Rule>, NoEquivalent> {
    let Head { status, media_type, fields, body } = Head::parse(text)?;
    let mut rules = Vec::new();
    for (name, value) in fields {
        match name.as_str() {
            name if is_changeable(name) => {
                let change = Change::SetResponse(name.to_owned(), Template::from(value));
                let origin =
                    Origin { file: "import".into(), line: 0, text: "A field of the page.".to_owned() };
                rules.push(Rule::Change(Condition::Always, change, Rc::new(origin)));
            }
            name => return no_equivalent(format!("the field '{name}' of a page")),
        }
    }
    let action = fixed_response(status, media_type, body).ok_or_else(|| NoEquivalent(UNFIT.to_owned()))?;
    rules.push(Rule::Act(action, Vec::new()));
    Ok(rules)
}

/// Returns the rules that send a page for a status.
fn page_rules(status: u16, page: &Page, draft: &mut Draft<'_>) -> Result<Vec<Rule>, NoEquivalent> {
    let text_rules = |media_type: &str, text: &str| {
        let action =
            fixed_response(status, Some(media_type), text).ok_or_else(|| NoEquivalent(UNFIT.to_owned()))?;
        Ok(vec![Rule::Act(action, Vec::new())])
    };
    match page {
        Page::Raw(file) => response(&draft.read_file(file)?),
        Page::File(file, media_type) => text_rules(media_type, &draft.read_file(file)?),
        Page::Text(text, media_type) => text_rules(media_type, text),
        Page::Redirect(code, url) => {
            let action = redirect(*code, Template::from(url.as_str()))
                .ok_or_else(|| NoEquivalent("this location of a redirect".to_owned()))?;
            Ok(vec![Rule::Act(action, Vec::new())])
        }
    }
}

/// Returns rules whose refusals have the pages of a section.
pub(super) fn with_pages(rules: Vec<Rule>, pages: &Pages, draft: &mut Draft<'_>) -> Vec<Rule> {
    if pages.is_empty() {
        return rules;
    }
    let mut result = Vec::new();
    for rule in rules {
        match rule {
            // That of the import itself.
            Rule::Act(Action::Deny(status), origins) if status != 501 => {
                let page = pages.get(&status).map(|(page, _)| page_rules(status, page, draft));
                match page {
                    Some(Ok(page)) => result.push(Rule::When(Condition::Always, page.into(), origins)),
                    _ => result.push(Rule::Act(Action::Deny(status), origins)),
                }
            }
            Rule::When(condition, inner, origins) => {
                let inner = with_pages(inner.to_vec(), pages, draft);
                result.push(Rule::When(condition, inner.into(), origins));
            }
            other => result.push(other),
        }
    }
    result
}

/// Returns the pages that weir has for its own errors, as `error-page` has them, with their lines.
fn own_pages(pages: &Pages, draft: &mut Draft<'_>) -> Vec<(Value, Rc<Origin>)> {
    let mut own = Vec::new();
    for (status, (page, origin)) in pages.iter().filter(|(status, _)| **status >= 400) {
        let left = match page {
            Page::File(file, media_type) => match (form(media_type), draft.read_file(file)) {
                (_, Err(reason)) => format!("{reason}: weir's own page is in its place"),
                (_, Ok(text)) if text.len() > PAGE_BYTES_MAX => "a page has at most 64 KiB".to_owned(),
                (None, _) => format!("weir has pages in HTML, JSON and plain text, not {media_type}"),
                (Some(form), Ok(_)) => {
                    let status = Value::text(status.to_string());
                    own.push((
                        Value::table([("status", status), (form, Value::text(file))]),
                        Rc::clone(origin),
                    ));
                    continue;
                }
            },
            Page::Raw(file) => match draft
                .read_file(file)
                .map_err(NoEquivalent::from)
                .and_then(|text| raw_form(*status, &text))
            {
                Ok(form) => {
                    let text = "the head of the page is weir's own, with the type of its content";
                    draft.leave(Kind::Differs, origin, text);
                    let status = Value::text(status.to_string());
                    let pairs =
                        [("status", status), (form, Value::text(file)), ("skip-head", Value::Bool(true))];
                    own.push((Value::table(pairs), Rc::clone(origin)));
                    continue;
                }
                Err(reason) => format!(
                    "{reason}: a file with the content behind the head of {file}, as html = \"FILE\" of an \
                     [[error-page]] with status = \"{status}\""
                ),
            },
            Page::Text(..) => format!(
                "a file with this text, as text = \"FILE\" of an [[error-page]] with status = \"{status}\""
            ),
            Page::Redirect(..) => {
                let text = "an error of weir itself has a page, no redirect";
                draft.leave(Kind::NotSupported, origin, text);
                continue;
            }
        };
        draft.leave(Kind::Needs, origin, left);
    }
    own
}

/// Returns the key for a file with a head, if the response in it is one of that status; fails with the reason.
fn raw_form(status: u16, text: &str) -> Result<&'static str, NoEquivalent> {
    if text.len() > PAGE_BYTES_MAX {
        return no_equivalent("a page has at most 64 KiB");
    }
    let Head { status: own, media_type, .. } = Head::parse(text)?;
    if own != status {
        return no_equivalent(format!("the page has the status {own}"));
    }
    match form(media_type.unwrap_or("text/html")) {
        Some(form) => Ok(form),
        None => no_equivalent("weir has pages in HTML, JSON and plain text"),
    }
}

/// Returns the key of a page with this type.
fn form(media_type: &str) -> Option<&'static str> {
    match media_type.split(';').next().unwrap_or_default().trim() {
        "text/html" => Some("html"),
        "application/json" => Some("json"),
        "text/plain" => Some("text"),
        _ => None,
    }
}

/// Adds the pages for weir's own errors to the whole config, if all sections have the same ones. Returns whether they
/// are those of routes.
pub(super) fn add_top(proxies: &[Proxy], draft: &mut Draft<'_>) -> bool {
    let Some(first) = proxies.first() else { return false };
    let contents = |proxy: &Proxy| {
        proxy.pages.iter().map(|(status, (page, _))| (*status, page.clone())).collect::<Vec<_>>()
    };
    if !proxies.iter().all(|proxy| contents(proxy) == contents(first)) {
        return true;
    }
    for (value, origin) in own_pages(&first.pages, draft) {
        let Value::Table(entries) = value else { continue };
        let mut section = Section::new_array("error-page", vec![origin]);
        entries.into_iter().for_each(|(key, value)| section.set(&key, value, &[]));
        draft.document.error_pages.push(section);
    }
    false
}

/// Returns the setting with the pages of the routes from a frontend to a backend.
pub(super) fn route_setting(
    backend: &Proxy,
    frontend: &Proxy,
    draft: &mut Draft<'_>,
) -> Option<RouteSetting> {
    let mut pages = frontend.pages.clone();
    pages.extend(backend.pages.clone());
    let own = own_pages(&pages, draft);
    let (_, origin) = own.first()?.clone();
    let values = own.into_iter().map(|(value, _)| value).collect();
    Some(RouteSetting::new("error-page", Value::List(values), &origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_a_head_is_a_response() {
        let rules = response("HTTP/1.0 403 No\r\nCache-Control: no-cache\r\nConnection: close\r\nContent-Type: text/html\r\n\r\n<b>no</b>\n").unwrap();
        let [Rule::Change(_, Change::SetResponse(name, value), _), Rule::Act(action, _)] = &rules[..] else {
            panic!("{rules:?}")
        };
        assert_eq!((name.as_str(), value.literal()), ("cache-control", Some("no-cache")));
        let body = "<b>no</b>\n".to_owned();
        assert_eq!(*action, Action::Return { status: 403, content_type: Some("text/html".into()), body });
        assert_eq!(response("HTTP/1.1 503\n\nx").unwrap().len(), 1);
        for text in [
            "",
            "HTTP/1.0 403 No\r\n",
            "no\n\nx",
            "HTTP/1.0 403\nx\n\ny",
            "HTTP/1.0 403\nUpgrade: a\n\ny",
            "HTTP/1.0 99\n\nx",
        ] {
            assert!(response(text).is_err(), "{text:?}");
        }
    }
}
