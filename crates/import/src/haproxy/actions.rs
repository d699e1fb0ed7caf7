//! Actions on requests and responses: `http-request`, `http-response`, `tcp-request`, `redirect`. A line that weir
//! cannot do refuses the requests of its condition.

use std::rc::Rc;

use super::acl::{Acls, NoEquivalent, no_equivalent};
use super::formats::Formats;
use super::lexer::Line;
use super::pages;
use crate::draft::{Draft, fixed_response, is_changeable, is_hidden, redirect};
use crate::left::Kind;
use crate::paths::is_normal_path;
use crate::rules::{Action, Change, Condition, PathTest, Rule, Test};
use crate::text::{Template, Variable};

/// Rules of one kind in their order; `allow` skips those behind it.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) rules: Vec<Rule>,
    allowed: Vec<Condition>,
}

/// Maximum number of `allow` of one kind in a section: each is a part of the conditions behind it.
const ALLOWS_MAX: usize = 64;

impl Steps {
    /// Adds a rule for the requests that are not allowed yet. Returns whether they are known.
    fn push(&mut self, condition: &Condition, then: impl FnOnce(Condition) -> Rule) -> bool {
        let rest = Condition::any(self.allowed.iter().cloned()).negate();
        let condition = rest.and(condition);
        let is_exact = condition.is_exact();
        self.rules.push(then(condition));
        is_exact
    }

    /// Allows the requests of a condition. Returns false if there are too many.
    fn allow(&mut self, condition: Condition) -> bool {
        self.allowed.push(condition);
        self.allowed.len() <= ALLOWS_MAX
    }
}

/// Rules of a section by the order in which HAProxy applies them.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    pub(super) monitor: Steps,
    /// `tcp-request connection`, `session` and `content`.
    pub(super) tcp: [Steps; 3],
    pub(super) block: Steps,
    pub(super) request: Steps,
    pub(super) redirects: Steps,
    /// Paths of the status page.
    pub(super) statistics: Steps,
    /// `http-response`: of servers only.
    responses: Steps,
    /// `http-after-response`: of all responses.
    after: Steps,
    /// A line that may refuse connections, which a listener of mode tcp cannot do.
    pub(super) refuses_connections: Option<Rc<crate::document::Origin>>,
}

impl Phases {
    /// Returns all rules of requests in their order, after the changes of all responses.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        let [connection, session, content] = &self.tcp;
        let [content_switching, last] = [[&self.block, &self.request], [&self.statistics, &self.redirects]];
        let first = [&self.after, &self.monitor, connection, session, content];
        first.into_iter().chain(content_switching).chain(last).flat_map(|steps| &steps.rules)
    }

    /// Returns the changes of servers' responses. Those of all responses come last.
    pub(super) fn response_rules(&self) -> impl Iterator<Item = &Rule> {
        let is_repeated = |rule: &&Rule| {
            matches!(rule, Rule::Change(_, Change::SetResponse(..) | Change::RemoveResponse(_), _))
        };
        self.responses.rules.iter().chain(self.after.rules.iter().filter(is_repeated))
    }

    fn of(&mut self, line: &Line) -> &mut Steps {
        match (line.word(0), line.word(1)) {
            ("tcp-request", "connection") => &mut self.tcp[0],
            ("tcp-request", "session") => &mut self.tcp[1],
            ("tcp-request", _) => &mut self.tcp[2],
            ("block", _) => &mut self.block,
            ("redirect", _) => &mut self.redirects,
            ("http-response", _) => &mut self.responses,
            ("http-after-response", _) => &mut self.after,
            _ => &mut self.request,
        }
    }

    /// Applies a line whose row begins with these words. One that weir cannot do refuses its requests.
    pub(super) fn apply(&mut self, directive: &str, line: &Line, acls: &Acls, draft: &mut Draft<'_>) {
        let first = directive.split(' ').count();
        let words = line.rest(first);
        let end = words.iter().position(|word| word == "if" || word == "unless").unwrap_or(words.len());
        let origin = &line.origin;
        if !draft.spend(acls.weight(words), origin) {
            return;
        }
        if let Some(status) = replaced_status(line) {
            let text = format!(
                "a page for responses of servers: [[error-page]] with status = \"{status}\" and replace = \"all\""
            );
            return draft.leave(Kind::Needs, origin, text);
        }
        let mut reasons = Vec::new();
        let condition = acls.condition(&words[end..], (origin, &mut *draft), &mut reasons);
        let is_response = directive.starts_with("http-response") || directive.starts_with("http-after");
        let mut formats = Formats::new(origin, &mut *draft, is_response);
        let effect = effect(directive, &words[..end], &mut formats);
        let condition = match std::mem::replace(&mut formats.doubt, Condition::Never) {
            Condition::Never => condition,
            doubt => condition.except(&doubt),
        };
        if directive.starts_with("tcp-request") && !matches!(effect, Ok(Effect::Nothing | Effect::Allow)) {
            self.refuses_connections.get_or_insert_with(|| Rc::clone(origin));
        }
        let is_known = match self.add(effect, condition, line, &mut reasons) {
            Added::Nothing => return,
            Added::Rule { is_known } => is_known,
            Added::Allow { is_within } => {
                if !is_within {
                    draft.too_long(origin, format!("a section has more than {ALLOWS_MAX} lines with allow"));
                }
                true
            }
        };
        if reasons.is_empty() && !is_known {
            reasons.push("a condition in front of it is not known for every request".to_owned());
        }
        if !reasons.is_empty() {
            draft.leave(Kind::NotSupported, origin, reasons.join("; "));
        }
    }

    /// Adds the rule of an effect. What is not known of it has its reason in `reasons`.
    fn add(
        &mut self,
        effect: Result<Effect, NoEquivalent>,
        condition: Condition,
        line: &Line,
        reasons: &mut Vec<String>,
    ) -> Added {
        let (directive, origin) = (line.word(0), &line.origin);
        let is_response = directive.starts_with("http-response") || directive.starts_with("http-after");
        let steps = self.of(line);
        let is_known = match effect {
            Ok(Effect::Nothing) => return Added::Nothing,
            Ok(Effect::Act(action)) => steps.push(&condition, |when| Rule::act_when(when, action, origin)),
            Ok(Effect::Rules(rules)) => {
                steps.push(&condition, |when| Rule::When(when, rules.into(), vec![Rc::clone(origin)]))
            }
            Ok(Effect::Change(_, Change::RemoveRequest(name))) if is_never_forwarded(&name, &steps.rules) => {
                return Added::Nothing;
            }
            Ok(Effect::Change(own, change)) if is_of_connection(directive, &condition) => {
                steps.push(&condition.and(&own), |when| Rule::Change(when, change, Rc::clone(origin)))
            }
            Ok(Effect::Change(..)) => {
                reasons.push("a field of a response is changed for all requests of a route".to_owned());
                true
            }
            Ok(Effect::Allow) => {
                // The rules behind it are reported, if there are any.
                reasons.clear();
                return Added::Allow { is_within: steps.allow(condition) };
            }
            // A field that a client does not get opens nothing.
            Err(reason) if is_response && line.word(1).ends_with("-header") => {
                reasons.push(reason.to_string());
                true
            }
            Err(reason) => {
                let condition = if directive == "http-response" { Condition::Always } else { condition };
                reasons.push(format!("{reason}: the requests get 501"));
                steps.push(&condition, |when| Rule::refuse(when, origin))
            }
        };
        Added::Rule { is_known }
    }
}

/// Returns whether clients' lines of a field never reach a server, and no rule in front sets one: to remove it would
/// only remove the line of weir itself, which HAProxy adds behind its rules.
fn is_never_forwarded(name: &str, before: &[Rule]) -> bool {
    let name = name.to_ascii_lowercase();
    is_hidden(&name) && !before.iter().any(|rule| rule.touches_field(&name))
}

/// Returns the status of responses whose content a line replaces: `http-response return … if { status 404 }`.
fn replaced_status(line: &Line) -> Option<&str> {
    let [response, action, options @ .., keyword, open, fetch, status, close] = &line.words[..] else {
        return None;
    };
    let is_return = response == "http-response" && action == "return";
    let is_status = keyword == "if" && open == "{" && fetch == "status" && close == "}";
    let keeps_status = options.windows(2).any(|pair| pair[0] == "status" && pair[1] == *status);
    (is_return && is_status && keeps_status).then_some(status)
}

/// Returns whether a condition may be one of a change: that of a response does not see the request.
fn is_of_connection(directive: &str, condition: &Condition) -> bool {
    directive.starts_with("http-request")
        || !condition.contains(&|part| matches!(part, Condition::Test(_) | Condition::Unknown))
}

/// Result of a line.
enum Added {
    Nothing,
    Rule {
        is_known: bool,
    },
    /// An `allow`, of which a section has a limited number.
    Allow {
        is_within: bool,
    },
}

/// Effect of a line on the requests of its condition.
enum Effect {
    /// None that weir needs to know.
    Nothing,
    Act(Action),
    /// A response with fields of its own.
    Rules(Vec<Rule>),
    /// A change of the requests of a further condition.
    Change(Condition, Change),
    Allow,
}

fn effect(
    directive: &str,
    options: &[String],
    formats: &mut Formats<'_, '_>,
) -> Result<Effect, NoEquivalent> {
    let change = |change: Change| Ok(Effect::Change(Condition::Always, change));
    match directive {
        "http-request allow" => Ok(Effect::Allow),
        "http-request deny" | "block" => denied(options, formats),
        "http-request tarpit" => {
            Ok(Effect::Act(Action::Tarpit { delay_ms: None, status: status_option(options)? }))
        }
        "http-request silent-drop" | "http-request reject" => Ok(Effect::Act(Action::SilentDrop)),
        "http-request return" => returned(200, options, formats),
        "http-request redirect" | "redirect" => redirected(options, formats).map(Effect::Act),
        "http-request set-header" => change(changed(options, Change::SetRequest, formats)?),
        // weir sends one line of its own of these, which this one replaces.
        "http-request add-header" if options.first().is_some_and(|name| is_forwarded(name)) => {
            change(changed(options, Change::SetRequest, formats)?)
        }
        "http-request add-header" => change(changed(options, Change::AddRequest, formats)?),
        "http-request del-header" => change(Change::RemoveRequest(removed(options)?)),
        "http-request replace-header" | "http-request replace-value" => match options.first() {
            Some(name) if is_changeable(name) && !name.eq_ignore_ascii_case("host") => {
                change(Change::LoseRequest(name.clone()))
            }
            _ => no_equivalent("this field is not changed by an expression"),
        },
        "http-request replace-path" => {
            let (condition, change) = stripped_prefix(options)?;
            Ok(Effect::Change(condition, change))
        }
        "http-request set-path" if options.len() == 1 && options[0].starts_with("%[path,regsub(") => {
            let (condition, change) = replaced_prefix(&options[0])?;
            Ok(Effect::Change(condition, change))
        }
        "http-request set-path" => match options {
            [path] if is_normal_path(path) => change(Change::RewritePath(path.clone())),
            _ => no_equivalent("a new path is a fixed one: it has no values of the request"),
        },
        "http-response set-header" | "http-after-response set-header" => {
            change(changed(options, Change::SetResponse, formats)?)
        }
        "http-response add-header" | "http-after-response add-header" => {
            change(changed(options, Change::AddResponse, formats)?)
        }
        "http-response del-header" | "http-after-response del-header" => {
            change(Change::RemoveResponse(removed(options)?))
        }
        _ => other_effect(directive, options),
    }
}

/// Returns the effect of a line of which the table has only the first word.
fn other_effect(directive: &str, options: &[String]) -> Result<Effect, NoEquivalent> {
    /// Actions that change neither the request nor its way.
    const HARMLESS: &str = "set-log-level set-nice set-tos set-mark set-priority-class set-priority-offset track-sc0 \
        track-sc1 track-sc2 sc-inc-gpc sc-inc-gpc0 sc-inc-gpc1 sc-set-gpt sc-set-gpt0 sc-add-gpc capture \
        set-var set-var-fmt unset-var cache-use wait-for-body wait-for-handshake disable-l7-retry \
        do-resolve early-hint set-timeout send-spoe-group normalize-uri set-status cache-store";
    let words: Vec<&str> = directive.split(' ').skip(1).chain(options.iter().map(String::as_str)).collect();
    let skipped = usize::from(
        directive.starts_with("tcp-re")
            && matches!(words.first(), Some(&("connection" | "session" | "content"))),
    );
    let action = words.get(skipped).copied().unwrap_or_default();
    let bare = action.split('(').next().unwrap_or_default();
    match (directive.split(' ').next().unwrap_or_default(), bare) {
        (_, action) if HARMLESS.split(' ').any(|other| other == action) => Ok(Effect::Nothing),
        ("tcp-request", "inspect-delay" | "expect-netscaler-cip") | ("tcp-response", "inspect-delay") => {
            Ok(Effect::Nothing)
        }
        ("tcp-request", "accept") => Ok(Effect::Allow),
        ("tcp-request", "reject" | "silent-drop") => Ok(Effect::Act(Action::SilentDrop)),
        ("tcp-response", "accept") => Ok(Effect::Nothing),
        ("http-response", "allow" | "replace-header" | "replace-value") => Ok(Effect::Nothing),
        ("http-response", "set-header" | "add-header" | "del-header") => Ok(Effect::Nothing),
        (_, action) => no_equivalent(format!("weir has no action '{action}'")),
    }
}

/// Returns whether weir sends a field about the client's request itself.
fn is_forwarded(name: &str) -> bool {
    ["x-forwarded-proto", "x-forwarded-host"].iter().any(|own| own.eq_ignore_ascii_case(name))
}

fn status_option(options: &[String]) -> Result<u16, NoEquivalent> {
    match options {
        [] => Ok(403),
        [option, status] if option == "deny_status" || option == "status" => {
            let status = status.parse::<u16>().ok().filter(|status| (400..600).contains(status));
            status.map_or_else(|| no_equivalent("a status of a refusal is 400 to 599"), Ok)
        }
        _ => no_equivalent("only a status: the page of an error is weir's"),
    }
}

/// Converts a refusal, with its content if it has one.
fn denied(options: &[String], formats: &mut Formats<'_, '_>) -> Result<Effect, NoEquivalent> {
    let is_plain = options.len() <= 2;
    match options.first().map(String::as_str) {
        Some("content-type" | "string" | "file" | "errorfile" | "lf-string") => {
            returned(403, options, formats)
        }
        Some("deny_status" | "status") if !is_plain => returned(403, options, formats),
        _ => status_option(options).map(|status| Effect::Act(Action::Deny(status))),
    }
}

/// Converts a fixed response.
fn returned(status: u16, options: &[String], formats: &mut Formats<'_, '_>) -> Result<Effect, NoEquivalent> {
    let (mut status, mut content_type, mut body) = (status, None, String::new());
    let mut words = options.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_default();
        match word {
            "status" | "deny_status" => status = value.parse().unwrap_or_default(),
            "content-type" => content_type = Some(value.to_owned()),
            "string" | "lf-string" if !value.contains('%') || word == "string" => value.clone_into(&mut body),
            "file" => body = formats.draft.read_file(value)?.to_string(),
            "errorfile" => {
                let text = formats.draft.read_file(value)?;
                return pages::response(&text).map(Effect::Rules);
            }
            other => return no_equivalent(format!("'{other}' of a fixed response")),
        }
    }
    let action = fixed_response(status, content_type.as_deref(), &body);
    action.map_or_else(|| no_equivalent("this status"), |action| Ok(Effect::Act(action)))
}

fn redirected(options: &[String], formats: &mut Formats<'_, '_>) -> Result<Action, NoEquivalent> {
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
    let mut template = formats.parse(text)?;
    if kind == "scheme" || text.contains("hdr(host)]") {
        formats.draft.leave(Kind::Differs, formats.origin, "the location has the host without its port");
    }
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

fn changed(
    options: &[String],
    change: fn(String, Template) -> Change,
    formats: &mut Formats<'_, '_>,
) -> Result<Change, NoEquivalent> {
    let [name, value] = options else { return no_equivalent("a name and a value of a field are expected") };
    if !is_changeable(name) {
        return no_equivalent(format!("weir sets the field '{name}' itself"));
    }
    let value = formats.parse(value);
    let is_host = name.eq_ignore_ascii_case("host");
    match (is_host, change(name.clone(), value.clone().unwrap_or_default())) {
        (true, Change::AddRequest(..)) => no_equivalent("a request has one Host"),
        // A client must not set the field in its place.
        (false, Change::SetRequest(..)) if value.is_err() => Ok(Change::LoseRequest(name.clone())),
        (_, change) => value.map(|_| change),
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

/// Converts `set-path %[path,regsub(^/api/,/)]`, which replaces a prefix.
fn replaced_prefix(text: &str) -> Result<(Condition, Change), NoEquivalent> {
    let arguments = text.strip_prefix("%[path,regsub(").and_then(|rest| rest.strip_suffix(")]"));
    let parts: Vec<&str> = arguments.unwrap_or_default().split(',').collect();
    let unquoted = |text: &str| text.trim_matches(['"', '\'']).to_owned();
    let (prefix, target) = match parts[..] {
        [prefix, target] | [prefix, target, "g" | ""] => (unquoted(prefix), unquoted(target)),
        _ => return no_equivalent("a path that an expression changes"),
    };
    let prefix = prefix.strip_prefix('^').filter(|prefix| prefix.ends_with('/') && is_normal_path(prefix));
    let is_literal = |text: &str| !text.contains(['.', '*', '+', '?', '(', '[', '{', '|', '$', '\\']);
    match prefix {
        Some(prefix) if is_literal(prefix) && target.ends_with('/') && is_normal_path(&target) => {
            let condition = Condition::test(Test::Path(PathTest::Prefix(prefix.to_owned())));
            Ok((condition, Change::RewritePrefix(prefix.to_owned(), target)))
        }
        _ => no_equivalent("paths are rewritten by a prefix that ends with a slash, or as a whole"),
    }
}
