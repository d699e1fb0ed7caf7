//! Directives of a site, in Caddy's order, as rules.

use std::rc::Rc;

use super::leave;
use super::matcher::{Matchers, is_matcher, template};
use super::{compression, files, pages, proxy, values};
use crate::directive::Directive;
use crate::document::Origin;
use crate::draft::{Draft, VALUE_OF_REQUEST, fixed_response, is_changeable, redirect};
use crate::left::Kind;
use crate::paths::{caddy_pattern, is_normal_path};
use crate::row;
use crate::rules::{Action, Change, Condition, Rule, Rules, Test};

/// Order in which Caddy applies directives.
pub(super) const ORDER: &str = "tracing map vars fs root log_append skip_log log_skip log_name header copy_response_headers \
    request_body redir method rewrite uri try_files basicauth basic_auth forward_auth request_header \
    encode push intercept templates invoke handle handle_path route abort error copy_response \
    respond metrics reverse_proxy php_fastcgi file_server acme_server handle_errors log";
/// Reason for authentication.
const PROTECTED: &str = "weir has no authentication: the route refuses all requests with 501";

/// Parts of `tls` that let in everybody.
const OPEN_TLS: &str = "protocols ciphers curves alpn load ca ca_root dns dns_ttl dns_challenge_override_domain \
    on_demand issuer get_certificate propagation_delay propagation_timeout resolvers eab key_type \
    reuse_private_keys";
/// Maximum number of directives of one name in a block, which Caddy sorts by their matchers.
const SAME_MAX: usize = 1_000;

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
pub(super) fn site_rules(
    block: &[Directive],
    order: &[String],
    has_trusted_proxies: bool,
    draft: &mut Draft<'_>,
) -> SiteRules {
    let mut site = SiteRules::default();
    let mut inner: Vec<Directive> = Vec::new();
    for directive in block {
        match directive.name() {
            "tls" => {
                site.tls = Some((directive.arguments().to_vec(), Rc::clone(&directive.origin)));
                for inner in directive.inner() {
                    let restricts = !OPEN_TLS.split(' ').any(|name| name == inner.name());
                    let end = if restricts { ": all requests of the site get 501" } else { "" };
                    let text = format!("of `tls`, a certificate with its key, and `internal`{end}");
                    draft.leave(Kind::NotSupported, &inner.origin, text);
                    if restricts {
                        site.rules.push(Rule::refuse(Condition::Always, &inner.origin));
                    }
                }
            }
            "bind" => site.binds.extend(
                directive.arguments().iter().map(|host| (host.clone(), Rc::clone(&directive.origin))),
            ),
            "request_body" => match body_max(directive) {
                Some(bytes) => site.body_max = Some((bytes, Rc::clone(&directive.origin))),
                None => leave(directive, draft),
            },
            "log" => add_log(directive, draft),
            _ => inner.push(directive.clone()),
        }
    }
    // Errors of weir have pages; those of `error` have the texts of the block.
    let handlers: Vec<Directive> =
        inner.iter().filter(|directive| directive.name() == "handle_errors").cloned().collect();
    inner.retain(|directive| directive.name() != "handle_errors");
    let errors = pages::Errors::read(&handlers, &inner, draft);
    site.rules.extend(errors.changes());
    let mut converter = Converter { draft, order, groups: 0, errors, page: None };
    let rules = converter.block(&inner, &Matchers::new(has_trusted_proxies), true);
    converter.errors.report(converter.draft);
    site.rules.extend(rules);
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
        Some(_) => return leave(directive, draft),
    };
    let mut section = crate::document::Section::new_array("log", vec![Rc::clone(&directive.origin)]);
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

/// Converts blocks.
struct Converter<'a, 'd> {
    draft: &'a mut Draft<'d>,
    /// Names of directives in the order of their application.
    order: &'a [String],
    /// Number of groups so far of directives that exclude each other.
    groups: usize,
    errors: pages::Errors,
    /// Page of missing files in the block.
    page: Option<String>,
}

impl Converter<'_, '_> {
    /// Returns the rules of a block; `is_sorted`: in Caddy's order.
    fn block(&mut self, block: &[Directive], outer: &Rc<Matchers>, is_sorted: bool) -> Vec<Rule> {
        let block = &*values::replaced(block, is_sorted, self.draft);
        let matchers = outer.inner(block);
        let mut ordered: Vec<&Directive> =
            block.iter().filter(|directive| !directive.name().starts_with('@')).collect();
        if is_sorted {
            ordered = self.sorted(ordered, &matchers);
        }
        self.page = files::fallback_page(&ordered);
        if self.page.is_some() {
            ordered.retain(|directive| directive.name() != "try_files");
        }
        // Of the handles, and of the rewrites, only the first one that matches is applied. Directives with the same
        // matcher behind each other are one route: it is compared once.
        let is_handle = |directive: &&Directive| matches!(directive.name(), "handle" | "handle_path");
        let has_handles = ordered.iter().copied().filter(|directive| is_handle(directive)).count() > 1;
        let group = |directive: &Directive| match directive.name() {
            "rewrite" => 2,
            "handle" | "handle_path" if has_handles => 1,
            _ => 0,
        };
        let key = |directive: &Directive| {
            let token = directive.arguments().first().filter(|_| has_matcher(directive));
            (group(directive), token.map_or_else(String::new, |token| matchers.key(token)))
        };
        let mut marks = [None, None];
        let mut rules = Vec::new();
        let mut rest = ordered.as_slice();
        while let [first, ..] = rest {
            let same = rest.iter().take_while(|directive| key(directive) == key(first)).count();
            let (route, behind) = rest.split_at(same);
            rest = behind;
            let mut inner = Vec::new();
            let mut condition = Condition::Never;
            for directive in route {
                condition = match directive.name() {
                    // Their uses are replaced, or the report has them.
                    "map" | "vars" | "handle_errors" => Condition::Never,
                    _ => self.directive(directive, &matchers, &mut inner),
                };
            }
            let origins: Vec<Rc<Origin>> =
                route.iter().take(4).map(|directive| Rc::clone(&directive.origin)).collect();
            if let Some(mark) = marks.get_mut(usize::wrapping_sub(group(first), 1)) {
                let mark = *mark.get_or_insert_with(|| {
                    self.groups += 1;
                    self.groups
                });
                inner
                    .insert(0, Rule::Change(Condition::Always, Change::Mark(mark), Rc::clone(&first.origin)));
                condition = Condition::test(Test::Marked(mark)).negate().and(&condition);
            }
            rules.push(Rule::When(condition, inner.into(), origins));
        }
        for mark in marks.into_iter().flatten() {
            rules = vec![Rule::Scope(mark, rules.into())];
        }
        rules
    }

    /// Sorts directives as Caddy does: by the order of their names, and those of a name by their matchers.
    fn sorted<'b>(&mut self, mut directives: Vec<&'b Directive>, matchers: &Matchers) -> Vec<&'b Directive> {
        let place = |directive: &Directive| {
            // These two are one group. What is not known comes first: it refuses requests.
            let name = if directive.name() == "handle_path" { "handle" } else { directive.name() };
            self.order.iter().position(|other| other == name).map_or(0, |place| place + 1)
        };
        directives.sort_by_cached_key(|directive| place(directive));
        let places: Vec<usize> = directives.iter().map(|directive| place(directive)).collect();
        let mut start = 0;
        while start < directives.len() {
            let end = start + places[start..].iter().take_while(|place| **place == places[start]).count();
            let group = &mut directives[start..end];
            if group.len() > SAME_MAX {
                let text = format!("a block has more than {SAME_MAX} directives of one name");
                self.draft.too_long(&group[0].origin, text);
                break;
            }
            // Caddy's order of matchers is no total one, so the algorithm counts.
            let keys: Vec<(Option<String>, bool)> =
                group.iter().map(|directive| matcher_key(directive, matchers)).collect();
            let mut positions: Vec<usize> = (0..group.len()).collect();
            for at in 1..positions.len() {
                let mut to = at;
                while to > 0 && comes_first(&keys[positions[to]], &keys[positions[to - 1]]) {
                    positions.swap(to, to - 1);
                    to -= 1;
                }
            }
            let sorted: Vec<&Directive> = positions.into_iter().map(|position| group[position]).collect();
            group.copy_from_slice(&sorted);
            start = end;
        }
        directives
    }

    /// Returns the condition of a directive's matcher, and its other arguments.
    fn matched<'w>(&mut self, directive: &'w Directive, matchers: &Matchers) -> (Condition, &'w [String]) {
        let arguments = directive.arguments();
        let Some((first, rest)) = arguments.split_first().filter(|_| has_matcher(directive)) else {
            return (Condition::Always, arguments);
        };
        let condition = matchers.condition(first);
        if !condition.is_exact() {
            let text = format!(
                "weir does not know the matcher {first} for every request: those for which it may hold get 501"
            );
            self.draft.leave(Kind::NotSupported, &directive.origin, text);
        }
        (condition, rest)
    }

    /// Adds the rules of a directive, for the requests of the returned condition.
    fn directive(
        &mut self,
        directive: &Directive,
        matchers: &Rc<Matchers>,
        rules: &mut Vec<Rule>,
    ) -> Condition {
        let origin = &directive.origin;
        if matches!(
            directive.name(),
            "log_skip"
                | "skip_log"
                | "log_append"
                | "log_name"
                | "fs"
                | "tracing"
                | "push"
                | "templates"
                | "intercept"
                | "request_body"
        ) {
            leave(directive, self.draft);
            rules.extend(files::refusal(directive));
            return self.matched(directive, matchers).0;
        }
        let (condition, arguments) = self.matched(directive, matchers);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let action = match directive.name() {
            "handle" => {
                rules.extend(self.block(directive.inner(), matchers, true));
                return condition;
            }
            "handle_path" => {
                let prefix = directive.argument(0).trim_end_matches('*');
                let bare = prefix.trim_end_matches('/');
                if is_normal_path(bare) && !bare.contains(';') {
                    let path = if prefix.ends_with('/') { prefix } else { bare };
                    let change = Change::RewritePrefix(path.to_owned(), "/".to_owned());
                    rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)));
                    rules.extend(self.block(directive.inner(), matchers, true));
                } else {
                    let text = "the prefix is not in normal form: the requests get 501";
                    self.draft.leave(Kind::NotSupported, origin, text);
                    rules.push(Rule::refuse(Condition::Always, origin));
                }
                return condition;
            }
            "rewrite" | "uri" => {
                let change = self.rewrite(directive, &words, rules);
                if directive.name() == "uri"
                    && let Some(own) = change
                {
                    let inner: Rules = std::mem::take(rules).into();
                    rules.push(Rule::When(own, inner, vec![Rc::clone(origin)]));
                }
                return condition;
            }
            "reverse_proxy" => {
                rules.extend(proxy::rules(directive, arguments, self.draft));
                return condition;
            }
            "route" => {
                rules.extend(self.block(directive.inner(), matchers, false));
                return condition;
            }
            "header" | "request_header" => {
                self.fields(directive, &words, rules);
                return condition;
            }
            "root" | "file_server" | "encode" => {
                rules.extend(self.content(directive, &words));
                return condition;
            }
            "respond" => responded(&words, directive)
                .ok_or("the response depends on the request, or its status is none: it is 501"),
            "abort" => Ok(Action::SilentDrop),
            "error" => Ok(self.errors.action(error_status(&words))),
            "redir" => redirected(&words)
                .ok_or("the redirect needs another value of the request, or another status: it is 501"),
            "basic_auth" | "basicauth" | "forward_auth" => Err(PROTECTED),
            _ => {
                leave(directive, self.draft);
                Ok(Action::Deny(501))
            }
        };
        let action = action.unwrap_or_else(|reason| {
            self.draft.leave(Kind::NotSupported, origin, reason);
            Action::Deny(501)
        });
        // The order of an unknown directive is not known, and neither is its first argument.
        let is_known = row::find(super::TABLE, &[directive.name()]).is_some();
        rules.push(Rule::Act(action, vec![Rc::clone(origin)]));
        if is_known { condition } else { Condition::Always }
    }

    /// Converts `root`, `file_server` and `encode`.
    fn content(&mut self, directive: &Directive, words: &[&str]) -> Vec<Rule> {
        let change = match directive.name() {
            "root" => Some(files::root(words.first().unwrap_or(&""), &directive.origin, self.draft)),
            "encode" => compression::compression(directive, words, self.draft).map(Change::Compress),
            _ => return files::rules(directive, words, self.page.take().as_deref(), self.draft),
        };
        let rule = |change| Rule::Change(Condition::Always, change, Rc::clone(&directive.origin));
        change.map(rule).into_iter().collect()
    }

    /// Converts `header` and `request_header`.
    fn fields(&mut self, directive: &Directive, words: &[&str], rules: &mut Vec<Rule>) {
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
                Some(change) => rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin))),
                None if words == ["defer"] => {}
                None => {
                    self.draft.leave(Kind::NotSupported, origin, VALUE_OF_REQUEST);
                    if is_request {
                        let change = proxy::lost_field(&words);
                        rules.push(Rule::Change(Condition::Always, change, Rc::clone(origin)));
                    }
                }
            }
        }
    }

    /// Converts `rewrite` and `uri`. Returns the condition of the change; `None`: it is reported, and refuses requests.
    fn rewrite(&mut self, directive: &Directive, words: &[&str], rules: &mut Vec<Rule>) -> Option<Condition> {
        let is_rewrite = directive.name() == "rewrite";
        let (condition, change) = match words {
            ["strip_prefix", prefix] if !is_rewrite => {
                let prefix = format!("/{}", prefix.trim_matches('/'));
                (caddy_pattern(&format!("{prefix}*")), Change::RewritePrefix(prefix, "/".to_owned()))
            }
            [target] if is_rewrite && target.ends_with("{uri}") => {
                let start = target.trim_end_matches("{uri}");
                (Condition::Always, Change::RewritePrefix("/".to_owned(), start.to_owned()))
            }
            [target] if is_rewrite => (Condition::Always, Change::RewritePath((*target).to_owned())),
            _ => (Condition::Unknown, Change::RewritePath(String::new())),
        };
        let paths = match &change {
            Change::RewritePrefix(prefix, target) => [prefix.as_str(), target.as_str()],
            Change::RewritePath(target) => ["/", target.as_str()],
            _ => ["", ""],
        };
        if condition == Condition::Unknown
            || !paths.into_iter().all(|path| is_normal_path(path) && !path.contains(';'))
        {
            leave(directive, self.draft);
            let text = "weir has no such change of a path: the requests get 501";
            self.draft.leave(Kind::NotSupported, &directive.origin, text);
            rules.push(Rule::refuse(Condition::Always, &directive.origin));
            return (!is_rewrite).then_some(Condition::Always);
        }
        rules.push(Rule::Change(Condition::Always, change, Rc::clone(&directive.origin)));
        Some(condition)
    }
}

/// Returns whether the first argument of a directive is a matcher.
fn has_matcher(directive: &Directive) -> bool {
    let is_value = match directive.name() {
        "rewrite" | "method" | "root" => directive.arguments().len() == 1,
        "try_files" => true,
        _ => false,
    };
    !is_value && directive.arguments().first().is_some_and(|word| is_matcher(word))
}

/// Returns the only pattern of a path of a directive's matcher, and whether it has a matcher.
fn matcher_key(directive: &Directive, matchers: &Matchers) -> (Option<String>, bool) {
    match directive.words.get(1).filter(|word| has_matcher(directive) && *word != "*") {
        Some(token) => (matchers.only_path(token), true),
        None => (None, false),
    }
}

/// Returns whether Caddy applies a directive with the matcher `left` before one with the matcher `right`.
fn comes_first(left: &(Option<String>, bool), right: &(Option<String>, bool)) -> bool {
    match (&left.0, &right.0) {
        (Some(path), Some(known)) => {
            let bare = |path: &str| path.strip_suffix('*').unwrap_or(path).to_owned();
            match bare(path) == bare(known) {
                true => path.len() < known.len(),
                false => path.len() > known.len(),
            }
        }
        _ => left.1 && !right.1,
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
        [word] => match word.parse::<u16>().ok().filter(|_| word.len() == 3) {
            Some(number) => status = number,
            None => body = (*word).to_owned(),
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
    let content_type = "text/plain; charset=utf-8";
    let template = template(&body.replace("{$", ""));
    let text = template.as_ref().and_then(|template| template.literal().map(str::to_owned));
    // JSON has braces, which are no placeholders.
    let text = text.or_else(|| body.contains("{\"").then(|| body.clone()));
    match (text, template) {
        (Some(text), _) => fixed_response(status, Some(content_type), &text),
        (None, Some(body)) if body.field().is_some() && (200..600).contains(&status) => {
            Some(Action::ReturnText { status, content_type: Some(content_type.to_owned()), body })
        }
        _ => None,
    }
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
