//! Directives of a site, in Caddy's order, as rules.

use std::rc::Rc;

use super::matcher::{Matchers, is_matcher, template};
use super::proxy;
use super::sites::leave_directive;
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{
    Draft, RULES_MAX, VALUE_OF_REQUEST, count_rules, fixed_response, is_changeable, is_normal_path, redirect,
};
use crate::left::Kind;
use crate::rules::{Action, Change, Condition, PathTest, Rule, Test};

/// Order in which Caddy applies directives.
const ORDER: [&str; 40] = [
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "log_name",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
    "handle_errors",
    "log",
];
/// Reason for authentication.
const PROTECTED: &str = "weir has no authentication: the route refuses all requests with 501";

/// Rules and settings of a site.
#[derive(Debug, Default)]
pub(super) struct SiteRules {
    /// Rules, the last one for all requests.
    pub(super) rules: Vec<Rule>,
    pub(super) tls: Option<(Vec<String>, Rc<Origin>)>,
    pub(super) binds: Vec<(String, Rc<Origin>)>,
    pub(super) body_max: Option<(u64, Rc<Origin>)>,
}

/// Converts the directives of a site.
pub(super) fn site_rules(block: &[Directive], draft: &mut Draft<'_>) -> SiteRules {
    let mut site = SiteRules::default();
    let mut inner: Vec<Directive> = Vec::new();
    for directive in block {
        match directive.name() {
            "tls" => {
                site.tls = Some((directive.arguments().to_vec(), Rc::clone(&directive.origin)));
                if directive.block.is_some() {
                    draft.leave(
                        Kind::NotSupported,
                        &directive.origin,
                        "of `tls`, a certificate with its key, and `internal`",
                    );
                }
            }
            "bind" => site.binds.extend(
                directive.arguments().iter().map(|host| (host.clone(), Rc::clone(&directive.origin))),
            ),
            "request_body" => match body_max(directive) {
                Some(bytes) => site.body_max = Some((bytes, Rc::clone(&directive.origin))),
                None => leave_directive(directive, draft),
            },
            "log" => add_log(directive, draft),
            _ => inner.push(directive.clone()),
        }
    }
    let mut converter = Converter { draft };
    let context = Context { matchers: Matchers::default(), prefix: String::new(), is_rewritten: false };
    site.rules = converter.block(&inner, &context, true);
    let nothing = Action::Return { status: 200, content_type: None, body: String::new() };
    site.rules.push(Rule::Act(nothing, Vec::new()));
    site
}

fn body_max(directive: &Directive) -> Option<u64> {
    if !directive.arguments().is_empty() {
        return None;
    }
    let size =
        directive.inner().iter().find(|inner| inner.name() == "max_size")?.argument(0).to_ascii_lowercase();
    let end = size.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(size.len());
    let number: u64 = size[..end].parse().ok()?;
    let factor = match size[end..].trim() {
        "" | "b" => 1,
        "kb" | "k" => 1_000,
        "mb" | "m" => 1_000_000,
        "gb" | "g" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn add_log(directive: &Directive, draft: &mut Draft<'_>) {
    let output = directive.inner().iter().find(|inner| inner.name() == "output");
    let target = match output.map(|output| (output.argument(0), output.argument(1))) {
        None | Some(("stdout" | "stderr", _)) => "stdout".to_owned(),
        Some(("file", path)) => {
            let parent_directory = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
            if !path.starts_with('/') || !draft.surroundings.exists(parent_directory) {
                let text = format!("[[log]] with to = \"file:{path}\": the directory is missing here");
                return draft.leave(Kind::Needs, &directive.origin, text);
            }
            format!("file:{path}")
        }
        Some(("discard", _)) => return,
        Some(_) => return leave_directive(directive, draft),
    };
    let mut section = crate::document::Section::of_array("log", vec![Rc::clone(&directive.origin)]);
    section.set("to", crate::document::Value::text(target), &[]);
    match draft.document.logs.first() {
        None => draft.document.logs.push(section),
        Some(known) if known.equals(&section) => {}
        Some(_) => draft.leave(
            Kind::NotSupported,
            &directive.origin,
            "a log has the requests of all listeners: there is one",
        ),
    }
}

/// Surroundings of a block.
#[derive(Clone, Debug)]
struct Context {
    matchers: Matchers,
    /// Prefix that `handle_path` has removed.
    prefix: String,
    /// The path has been changed in another way.
    is_rewritten: bool,
}

/// Converts blocks.
struct Converter<'a, 'd> {
    draft: &'a mut Draft<'d>,
}

impl Converter<'_, '_> {
    /// Returns the rules of a block; `is_sorted`: in Caddy's order.
    fn block(&mut self, block: &[Directive], outer: &Context, is_sorted: bool) -> Vec<Rule> {
        let mut context = outer.clone();
        context.matchers = outer.matchers.inner(block, &outer.prefix);
        let mut ordered: Vec<&Directive> =
            block.iter().filter(|directive| !directive.name().starts_with('@')).collect();
        if is_sorted {
            ordered.sort_by_key(|directive| sort_key(directive));
        }
        // A handle excludes the others, and goes on behind them.
        let is_handle = |directive: &&Directive| matches!(directive.name(), "handle" | "handle_path");
        let last_handle = ordered.iter().rposition(is_handle);
        let mut rules = Vec::new();
        let mut tail: Option<Vec<Rule>> = None;
        let mut count = 0;
        for (index, directive) in ordered.iter().enumerate() {
            if is_handle(directive) {
                let rest = match &tail {
                    Some(rest) => rest.clone(),
                    None => {
                        let mut behind = context.clone();
                        let start = last_handle.map_or(0, |last| last + 1);
                        let rest = self.directives(&ordered[start..], &mut behind);
                        tail.insert(rest).clone()
                    }
                };
                count += count_rules(&rest);
                if count > RULES_MAX {
                    self.draft.leave(
                        Kind::NotSupported,
                        &directive.origin,
                        "the rules behind all handles are too many",
                    );
                    continue;
                }
                self.handle(directive, &context, rest, &mut rules);
            } else if last_handle.is_some_and(|last| index > last) {
                rules.extend(tail.take().unwrap_or_default());
                break;
            } else {
                self.directive(directive, &mut context, &mut rules);
            }
        }
        rules
    }

    fn directives(&mut self, directives: &[&Directive], context: &mut Context) -> Vec<Rule> {
        let mut rules = Vec::new();
        directives.iter().for_each(|directive| self.directive(directive, context, &mut rules));
        rules
    }

    /// Returns the condition of a directive's matcher, and its other arguments; `None`: it is reported.
    fn matched<'w>(
        &mut self,
        directive: &'w Directive,
        context: &Context,
    ) -> Option<(Condition, &'w [String])> {
        let arguments = directive.arguments();
        let Some((first, rest)) = arguments.split_first().filter(|(first, _)| is_matcher(first)) else {
            return Some((Condition::Always, arguments));
        };
        let uses_path = first.starts_with('/');
        if context.is_rewritten && uses_path {
            self.draft.leave(
                Kind::NotSupported,
                &directive.origin,
                "the matcher is one of the changed path: weir compares that of the request",
            );
            return None;
        }
        match context.matchers.condition(first, &context.prefix) {
            Some(condition) => Some((condition, rest)),
            None => {
                let text = format!("weir has no condition for the matcher {first}");
                self.draft.leave(Kind::NotSupported, &directive.origin, text);
                None
            }
        }
    }

    fn handle(&mut self, directive: &Directive, context: &Context, rest: Vec<Rule>, rules: &mut Vec<Rule>) {
        let origins = vec![Rc::clone(&directive.origin)];
        let Some((condition, _)) = self.matched(directive, context) else { return };
        let mut inner_context = context.clone();
        let mut inner = Vec::new();
        let mut condition = condition;
        if directive.name() == "handle_path" {
            let prefix =
                directive.argument(0).trim_end_matches('*').trim_end_matches('/').to_ascii_lowercase();
            let prefix = format!("{}{prefix}", context.prefix);
            if !is_normal_path(&prefix) {
                return self.draft.leave(
                    Kind::NotSupported,
                    &directive.origin,
                    "the prefix is not in normal form",
                );
            }
            // Also the prefix itself matches `/api*`, and nothing that only begins with its bytes is stripped here.
            let with_slash = directive.argument(0).ends_with("/*");
            let path = if with_slash { format!("{prefix}/") } else { prefix.clone() };
            condition = Condition::test(Test::Path(PathTest::Prefix(path.clone())));
            inner.push(Rule::Change(
                Condition::Always,
                Change::RewritePrefix(path, "/".into()),
                Rc::clone(&directive.origin),
            ));
            inner_context.prefix = prefix;
        }
        inner.extend(self.block(directive.inner(), &inner_context, true));
        inner.extend(rest);
        rules.push(Rule::When(condition, inner, origins));
    }

    fn directive(&mut self, directive: &Directive, context: &mut Context, rules: &mut Vec<Rule>) {
        let origin = &directive.origin;
        if matches!(
            directive.name(),
            "root" | "vars" | "log_skip" | "skip_log" | "log_append" | "log_name" | "fs" | "tracing"
        ) {
            return leave_directive(directive, self.draft);
        }
        let Some((condition, arguments)) = self.matched(directive, context) else { return };
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut act = |action: Action| {
            rules.push(Rule::When(
                condition.clone(),
                vec![Rule::Act(action, Vec::new())],
                vec![Rc::clone(origin)],
            ))
        };
        match directive.name() {
            "respond" => match responded(&words, directive) {
                Some(action) => act(action),
                None => self.draft.leave(
                    Kind::NotSupported,
                    origin,
                    "the response depends on the request, or its status is none",
                ),
            },
            "abort" => act(Action::SilentDrop),
            "error" => act(Action::Deny(error_status(&words))),
            "redir" => match redirected(&words) {
                Some(action) => act(action),
                None => self.draft.leave(
                    Kind::NotSupported,
                    origin,
                    "the redirect needs another value of the request, or another status",
                ),
            },
            "basic_auth" | "basicauth" | "forward_auth" => {
                self.draft.leave(Kind::NotSupported, origin, PROTECTED);
                act(Action::Deny(501));
            }
            "php_fastcgi" | "file_server" | "metrics" | "acme_server" => {
                leave_directive(directive, self.draft);
                act(Action::Deny(501));
            }
            "reverse_proxy" => {
                let inner = proxy::rules(directive, arguments, &context.prefix, self.draft);
                rules.push(Rule::When(condition, inner, vec![Rc::clone(origin)]));
            }
            "route" => {
                let inner = self.block(directive.inner(), context, false);
                rules.push(Rule::When(condition, inner, vec![Rc::clone(origin)]));
            }
            "header" | "request_header" => self.fields(directive, &condition, &words, rules),
            "rewrite" | "uri" => self.rewrite(directive, &condition, &words, context, rules),
            _ => leave_directive(directive, self.draft),
        }
    }

    /// Converts `header` and `request_header`.
    fn fields(
        &mut self,
        directive: &Directive,
        condition: &Condition,
        words: &[&str],
        rules: &mut Vec<Rule>,
    ) {
        let is_request = directive.name() == "request_header";
        let mut lines: Vec<(Vec<&str>, &Rc<Origin>)> = Vec::new();
        if !words.is_empty() {
            lines.push((words.to_vec(), &directive.origin));
        }
        for inner in directive.inner() {
            lines.push((inner.words.iter().map(String::as_str).collect(), &inner.origin));
        }
        for (words, origin) in lines {
            match proxy::field_change(&words, is_request) {
                Some(change) => rules.push(Rule::Change(condition.clone(), change, Rc::clone(origin))),
                None if words == ["defer"] => {}
                None => self.draft.leave(Kind::NotSupported, origin, VALUE_OF_REQUEST),
            }
        }
    }

    /// Converts `rewrite` and `uri`.
    fn rewrite(
        &mut self,
        directive: &Directive,
        condition: &Condition,
        words: &[&str],
        context: &mut Context,
        rules: &mut Vec<Rule>,
    ) {
        let (condition, change) = match words {
            ["strip_prefix", prefix] => {
                let prefix =
                    format!("{}{}", context.prefix, prefix.trim_end_matches('/').to_ascii_lowercase());
                let test = Condition::test(Test::Path(PathTest::Prefix(prefix.clone())));
                (condition.clone().and(test), Change::RewritePrefix(prefix, "/".to_owned()))
            }
            [target]
                if directive.name() == "rewrite"
                    && target.ends_with("{uri}")
                    && context.prefix.is_empty() =>
            {
                let start = target.trim_end_matches("{uri}");
                let test = Condition::test(Test::Path(PathTest::Prefix("/".to_owned())));
                (condition.clone().and(test), Change::RewritePrefix("/".to_owned(), start.to_owned()))
            }
            [target] if directive.name() == "rewrite" => {
                (condition.clone(), Change::RewritePath((*target).to_owned()))
            }
            _ => (Condition::Never, Change::RewritePath(String::new())),
        };
        let paths = match &change {
            Change::RewritePrefix(prefix, target) => [prefix.as_str(), target.as_str()],
            Change::RewritePath(target) => ["/", target.as_str()],
            _ => ["", ""],
        };
        if condition == Condition::Never || !paths.into_iter().all(is_normal_path) {
            return leave_directive(directive, self.draft);
        }
        context.is_rewritten = true;
        rules.push(Rule::Change(condition, change, Rc::clone(&directive.origin)));
    }
}

/// Rank of a directive: its place in Caddy's order, then longer paths, then matchers, then none.
fn sort_key(directive: &Directive) -> (usize, u8, std::cmp::Reverse<usize>) {
    let name = directive.name();
    // These two are one group.
    let name = if name == "handle_path" { "handle" } else { name };
    let place = ORDER.iter().position(|other| *other == name).unwrap_or(ORDER.len());
    match directive.words.get(1).map(String::as_str) {
        Some(path) if path.starts_with('/') => (
            place,
            0,
            std::cmp::Reverse(2 * path.trim_end_matches('*').len() + usize::from(!path.ends_with('*'))),
        ),
        Some(matcher) if is_matcher(matcher) && matcher != "*" => (place, 1, std::cmp::Reverse(0)),
        _ => (place, 2, std::cmp::Reverse(0)),
    }
}

fn error_status(words: &[&str]) -> u16 {
    let statuses = words.iter().filter_map(|word| word.parse::<u16>().ok());
    statuses.into_iter().find(|status| (400..600).contains(status)).unwrap_or(500)
}

fn responded(words: &[&str], directive: &Directive) -> Option<Action> {
    let (mut status, mut body) = (200, String::new());
    match words {
        [] => {}
        [one] => match one.parse::<u16>().ok().filter(|_| one.len() == 3) {
            Some(number) => status = number,
            None => body = (*one).to_owned(),
        },
        [text, number] => {
            body = (*text).to_owned();
            status = number.parse().ok()?;
        }
        _ => return None,
    }
    for inner in directive.inner() {
        match inner.name() {
            "body" => inner.argument(0).clone_into(&mut body),
            "close" => {}
            _ => return None,
        }
    }
    let text = template(&body.replace("{$", "")).and_then(|template| template.literal().map(str::to_owned));
    // JSON has braces, which are no placeholders.
    let text = text.or_else(|| body.contains("{\"").then(|| body.clone()))?;
    fixed_response(status, Some("text/plain; charset=utf-8"), &text)
}

fn redirected(words: &[&str]) -> Option<Action> {
    let (target, status) = match words {
        [target] => (*target, 302),
        [target, "permanent"] => (*target, 301),
        [target, "temporary"] => (*target, 302),
        [target, number] => (*target, number.parse::<u16>().ok()?),
        _ => return None,
    };
    redirect(status, template(target)?)
}

/// Returns a change of a field if a route may make it.
pub(super) fn checked_change(name: &str, change: Change) -> Option<Change> {
    is_changeable(name).then_some(change)
}
