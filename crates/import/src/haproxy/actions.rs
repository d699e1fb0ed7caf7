//! Actions on requests and responses: `http-request`, `http-response`, `redirect`.

use std::rc::Rc;

use super::acl::{Acls, NoEquivalent};
use super::lexer::Line;
use super::settings::Step;
use crate::draft::{fixed_response, is_changeable, is_normal_path, redirect};
use crate::rules::{Action, Change, Condition, PathTest, Rule, Test};
use crate::text::{Template, Variable};

fn no_equivalent<T>(reason: impl Into<String>) -> Result<T, NoEquivalent> {
    Err(NoEquivalent(reason.into()))
}

/// Returns the position of `if` or `unless`, or the end.
fn end_of_options(words: &[String]) -> usize {
    words.iter().position(|word| word == "if" || word == "unless").unwrap_or(words.len())
}

/// Converts a line with an action, of which the table has the directive.
pub(super) fn step(directive: &str, line: &Line, acls: &Acls) -> Result<Vec<Step>, NoEquivalent> {
    let first = directive.split(' ').count();
    let words = line.rest(first);
    let end = end_of_options(words);
    let (options, condition) = (&words[..end], acls.condition(&words[end..])?);
    let origin = &line.origin;
    let act = |action: Action| {
        let inner = vec![Rule::Act(action, Vec::new())];
        Ok(vec![Step::Rule(Rule::When(condition.clone(), inner, vec![Rc::clone(origin)]))])
    };
    let change =
        |change: Change| Ok(vec![Step::Rule(Rule::Change(condition.clone(), change, Rc::clone(origin)))]);
    match directive {
        "http-request allow" => Ok(vec![Step::Allow(condition.clone(), Rc::clone(origin))]),
        "http-request deny" | "block" => act(Action::Deny(status_option(options, "deny_status")?)),
        "http-request tarpit" => {
            act(Action::Tarpit { delay_ms: None, status: status_option(options, "deny_status")? })
        }
        "http-request auth" => act(Action::Deny(501)),
        "http-request silent-drop" | "http-request reject" => act(Action::SilentDrop),
        "http-request return" => act(returned(options)?),
        "http-request redirect" | "redirect" => act(redirected(options)?),
        "http-request set-header" => change(changed(options, Change::SetRequest)?),
        "http-request add-header" => change(changed(options, Change::AddRequest)?),
        "http-request del-header" => change(Change::RemoveRequest(removed(options)?)),
        "http-request replace-path" => {
            let prefix = stripped_prefix(options)?;
            let (condition, change) = (condition.clone().and(prefix.0), prefix.1);
            Ok(vec![Step::Rule(Rule::Change(condition, change, Rc::clone(origin)))])
        }
        "http-request set-path" => match options {
            [path] if is_normal_path(path) => change(Change::RewritePath(path.clone())),
            _ => no_equivalent("a new path is a fixed one: it has no values of the request"),
        },
        "http-response set-header" if condition == Condition::Always => {
            change(changed(options, Change::SetResponse)?)
        }
        "http-response add-header" if condition == Condition::Always => {
            change(changed(options, Change::AddResponse)?)
        }
        "http-response del-header" if condition == Condition::Always => {
            change(Change::RemoveResponse(removed(options)?))
        }
        _ => no_equivalent("a field of a response is changed for all requests of a route"),
    }
}

fn status_option(options: &[String], name: &str) -> Result<u16, NoEquivalent> {
    match options {
        [] => Ok(403),
        [option, status, ..] if option == name || option == "status" => {
            let status = status.parse::<u16>().ok().filter(|status| (400..600).contains(status));
            match (status, options.len()) {
                (Some(status), 2) => Ok(status),
                _ => no_equivalent("only a status: the page of an error is weir's"),
            }
        }
        _ => no_equivalent("only a status: the page of an error is weir's"),
    }
}

fn returned(options: &[String]) -> Result<Action, NoEquivalent> {
    let (mut status, mut content_type, mut body) = (200, None, "");
    let mut words = options.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word {
            "status" => status = value.parse().unwrap_or_default(),
            "content-type" => content_type = Some(value),
            "string" | "lf-string" if !value.contains('%') || word == "string" => body = value,
            other => return no_equivalent(format!("'{other}' of a fixed response")),
        }
    }
    fixed_response(status, content_type, body).map_or_else(|| no_equivalent("this status"), Ok)
}

fn redirected(options: &[String]) -> Result<Action, NoEquivalent> {
    let (mut status, mut location, mut drops_query) = (302, None, false);
    let mut words = options.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "drop-query" => drops_query = true,
            "append-slash" | "ignore-empty" => return no_equivalent(format!("'{word}' of a redirect")),
            "code" => status = words.next().and_then(|code| code.parse().ok()).unwrap_or_default(),
            "location" | "prefix" | "scheme" => location = Some((word, words.next().unwrap_or_default())),
            other => return no_equivalent(format!("'{other}' of a redirect")),
        }
    }
    let Some((kind, text)) = location else { return no_equivalent("the redirect has no destination") };
    let mut template = parse_format(text)?;
    if kind == "scheme" {
        template.push_text("://");
        template.push(Variable::Host);
    }
    if kind != "location" && template.literal() != Some("/") {
        template.push(Variable::Path);
    } else if kind != "location" {
        template = Template::default();
        template.push(Variable::Path);
    }
    if kind != "location" && !drops_query {
        template.push(Variable::Query);
    }
    redirect(status, template)
        .map_or_else(|| no_equivalent("the redirect needs another value of the request"), Ok)
}

fn changed(options: &[String], change: fn(String, Template) -> Change) -> Result<Change, NoEquivalent> {
    let [name, value] = options else { return no_equivalent("a name and a value of a field are expected") };
    if !is_changeable(name) {
        return no_equivalent(format!("weir sets the field '{name}' itself"));
    }
    let value = parse_format(value)?;
    match (name.eq_ignore_ascii_case("host"), change(name.clone(), value.clone())) {
        (true, Change::AddRequest(..)) => no_equivalent("a request has one Host"),
        (_, change) => Ok(change),
    }
}

fn removed(options: &[String]) -> Result<String, NoEquivalent> {
    match options {
        [name] if is_changeable(name) && !name.eq_ignore_ascii_case("host") => Ok(name.clone()),
        [name, flag, kind] if flag == "-m" && kind == "str" && is_changeable(name) => Ok(name.clone()),
        _ => no_equivalent("a field is removed by its name"),
    }
}

/// Converts `replace-path ^/api/(.*) /\1`, which removes or replaces a prefix.
fn stripped_prefix(options: &[String]) -> Result<(Condition, Change), NoEquivalent> {
    let reason =
        "paths are rewritten by a prefix (`/api/(.*)` to `/\\1`) or as a whole, not by an expression";
    let [pattern, replacement] = options else { return no_equivalent(reason) };
    // Without the anchor, the expression matches in the middle of a path, too.
    let Some(pattern) = pattern.strip_prefix('^') else { return no_equivalent(reason) };
    let pattern = pattern.trim_end_matches('$');
    let prefix = pattern.strip_suffix("/(.*)").or_else(|| pattern.strip_suffix("(/.*)?"));
    let target = replacement.strip_suffix("/\\1").or_else(|| replacement.strip_suffix("\\1"));
    match (prefix, target) {
        (Some(prefix), Some(target))
            if is_normal_path(prefix) && (target.is_empty() || is_normal_path(target)) =>
        {
            // Requests for the prefix itself have no slash to match.
            let with_slash = format!("{prefix}/");
            let target = if target.is_empty() { "/" } else { target };
            let condition = Condition::test(Test::Path(PathTest::Prefix(with_slash.clone())));
            Ok((condition, Change::RewritePrefix(with_slash, target.to_owned())))
        }
        _ => no_equivalent(reason),
    }
}

/// Converts a log format of HAProxy with values of the request.
fn parse_format(text: &str) -> Result<Template, NoEquivalent> {
    let mut template = Template::default();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        template.push_text(before);
        if let Some(after) = after.strip_prefix('%') {
            template.push_text("%");
            rest = after;
            continue;
        }
        if let Some(inner) = after.strip_prefix('[') {
            let Some((expression, after)) = inner.split_once(']') else {
                return no_equivalent("a bracket is not closed");
            };
            push_expression(expression, &mut template)?;
            rest = after;
            continue;
        }
        rest = match after.strip_prefix("ci") {
            Some(after) => {
                template.push(Variable::Source);
                after
            }
            None => return no_equivalent("this variable of a log format"),
        };
    }
    template.push_text(rest);
    Ok(template)
}

fn push_expression(expression: &str, template: &mut Template) -> Result<(), NoEquivalent> {
    match expression.to_ascii_lowercase().as_str() {
        "src" => template.push(Variable::Source),
        "dst_port" | "fc_dst_port" => template.push(Variable::Port),
        "hdr(host)" | "req.hdr(host)" => template.push(Variable::Host),
        "path" => template.push(Variable::Path),
        "capture.req.uri" | "url" | "pathq" => {
            template.push(Variable::Path);
            template.push(Variable::Query);
        }
        _ => return no_equivalent(format!("the value '%[{expression}]'")),
    }
    Ok(())
}
