//! Texts with values as they become for a request. The values of a response are not known: their names stay.

use content::plan::FilesPlan;

use crate::key_digest::digest;
use crate::plan::{
    ErrorPage, Fact, PageForm, Plan, ResponseRule, RouteChange, SplitKey, SplitPlan, SplitShare, Template,
    Text, Variable,
};
use crate::request_view::ClientFacts;
use crate::route::RouteRequest;
use crate::route::conditions::ComparedPath;
use crate::route::values::RequestValues;
use crate::route::when::mismatch;
use crate::template::{Escape, Values};

/// Maximum number of bytes of a body that is printed.
const BODY_BYTES_SHOWN_MAX: usize = 1024;

/// Values of a request whose response is not known.
struct UnansweredValues<'a>(&'a RequestValues<'a>);

impl Values for UnansweredValues<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        match variable {
            Variable::Fact(fact @ (Fact::Status | Fact::Reason | Fact::Server)) => {
                out.extend_from_slice(format!("{{{}}}", fact.name()).as_bytes());
            }
            _ => self.0.append(variable, out),
        }
    }

    fn note_overflow(&self) {}
}

/// Describes a change. `None`: the new target already shows it.
pub(super) fn describe_change(change: &RouteChange, values: &RequestValues<'_>) -> Option<String> {
    let field = |what: &str, name: &str, text: &Text| match render(text, Escape::Field, values) {
        Some(value) if value.is_empty() && matches!(text, Text::Template(_)) => {
            format!("{what} {name}: not sent, because {} has no value", text.source())
        }
        Some(value) => format!("{what} {name}: {value}"),
        None => format!("{what} {name}: not sent, because it is longer than 64 KiB"),
    };
    Some(match change {
        RouteChange::ReplacePrefix { .. } | RouteChange::ReplacePath(_) => return None,
        RouteChange::SetRequestHeader(name, text) => field("request: set", name, text),
        RouteChange::AddRequestHeader(name, text) => field("request: add", name, text),
        RouteChange::RemoveRequestHeader(name) => format!("request: remove {name}"),
        RouteChange::RemoveRequestCookie(name) => format!("request: remove cookie {name}"),
        RouteChange::SetResponseHeader(name, text) => field("response: set", name, text),
        RouteChange::AddResponseHeader(name, text) => field("response: add", name, text),
        RouteChange::RemoveResponseHeader(name) => format!("response: remove {name}"),
    })
}

/// Describes the files of a route.
pub(super) fn files_lines(files: &FilesPlan) -> Vec<String> {
    let root = files.root().map_or_else(String::new, |root| root.display().to_string());
    let mut line = format!("files       {root}, index {}", files.index.join(" "));
    for (is_on, text) in [
        (files.lists, ", directories are listed"),
        (files.is_spa, ", the index for missing pages"),
        (files.serves_hidden, ", hidden names"),
        (!files.follows_symlinks, ", no symbolic links"),
        (files.uses_precompressed, ", precompressed files"),
    ] {
        line += if is_on { text } else { "" };
    }
    if files.compression.is_any() {
        line += &format!(", {}, from {} B", files.compression, files.compress_bytes_min);
    }
    vec![line]
}

pub(super) fn rule_lines(
    rule: &ResponseRule,
    (request, client, path): (&RouteRequest<'_>, &dyn ClientFacts, ComparedPath<'_>),
    values: &RequestValues<'_>,
    lines: &mut Vec<String>,
) {
    let statuses =
        rule.statuses.as_ref().map_or_else(|| "any status".to_owned(), |set| format!("status {set}"));
    if let Some(reason) = rule.when.as_ref().and_then(|when| mismatch(when, request, client, path)) {
        lines.push(format!("no match    rule for {statuses}: {reason}"));
        return;
    }
    let descriptions = rule.changes.iter().filter_map(|change| describe_change(change, values));
    lines.extend(descriptions.map(|description| format!("change      {statuses}: {description}")));
}

/// Returns the line about a redirect.
pub(super) fn location_line(status: u16, location: &Text, values: &RequestValues<'_>) -> String {
    match location.location(values) {
        Ok(location) => format!("response    {status} to {}", String::from_utf8_lossy(&location)),
        Err(_) => "response    431: the location is longer than 64 KiB".to_owned(),
    }
}

/// Returns the lines about a response of the route.
pub(super) fn body_lines(
    status: u16,
    content_type: &str,
    body: &Text,
    values: &RequestValues<'_>,
) -> Vec<String> {
    let Some(content) = render(body, Escape::from_content_type(content_type), values) else {
        return vec!["response    431: the body is longer than 64 KiB".to_owned()];
    };
    let mut lines = vec![format!("response    {status}, {} bytes of {content_type}", content.len())];
    if matches!(body, Text::Template(_)) {
        let shown = &content[..content.floor_char_boundary(BODY_BYTES_SHOWN_MAX)];
        lines.extend(shown.lines().map(|line| format!("body        {line}")));
    }
    lines
}

/// Describes an error page that responses of a route may have. The first one for a status counts.
pub(super) fn page_line(page: &ErrorPage) -> String {
    let form = |form: PageForm| Some((form, page.contents[form as usize].as_ref()?));
    let files = PageForm::ALL.into_iter().filter_map(form);
    let files: Vec<String> =
        files.map(|(form, content)| format!("{} {}", form.key(), content.file.display())).collect();
    let servers = if page.replaces_servers { ", also instead of servers' content" } else { "" };
    format!("error page  {}: {}{servers}", page.statuses, files.join(", "))
}

/// Returns the index of the pool of a split that a request gets while all have servers; without a key, of the first one.
pub(super) fn split_share(split: &SplitPlan, values: &RequestValues<'_>) -> usize {
    let Some(template) = &split.key else { return 0 };
    let mut key = Vec::new();
    template.render_key(values, &mut key);
    let key = if key.is_empty() { SplitKey::Missing } else { SplitKey::Digest(digest(&key)) };
    split.choose(key, |_| true).0
}

/// Appends the pools of a split, and the one that a request gets.
pub(super) fn split_lines(
    plan: &Plan,
    (split, share): (&SplitPlan, usize),
    values: &RequestValues<'_>,
    lines: &mut Vec<String>,
) {
    let name = split.name.as_ref().map_or_else(String::new, |name| format!(" (name {name})"));
    let pool = |share: &SplitShare| &*plan.pools[share.pool].name;
    let shares: Vec<String> =
        split.shares.iter().map(|share| format!("{} {}", pool(share), share.current())).collect();
    let fallback = if split.falls_back { ", fallback to another pool" } else { "" };
    lines.push(format!("split       {}{name}{fallback}", shares.join(", ")));
    lines.push(match &split.key {
        None => format!("split       each request by itself; shown is pool {}", pool(&split.shares[share])),
        Some(template) => {
            format!("split       key {}: pool {}", describe_key(template, values), pool(&split.shares[share]))
        }
    });
}

pub(super) fn describe_key(key: &Template, values: &RequestValues<'_>) -> String {
    let mut text = Vec::new();
    key.render_key(values, &mut text);
    format!("{} = '{}'", key.source(), String::from_utf8_lossy(&text).escape_debug())
}

/// Returns a text with its values. `None`: it is too long.
fn render(text: &Text, escape: Escape, values: &RequestValues<'_>) -> Option<String> {
    match text {
        Text::Literal(text) => Some(text.to_string()),
        Text::Template(template) => {
            let mut out = Vec::new();
            template.render(&UnansweredValues(values), escape, &mut out).ok()?;
            Some(String::from_utf8_lossy(&out).into_owned())
        }
    }
}
