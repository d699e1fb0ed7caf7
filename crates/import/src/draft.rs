//! The config under construction: listeners, pools and routes with their names, the report, and checks of values that
//! all sources share.

use std::rc::Rc;

use crate::document::{Document, Names, Origin, Origins, Section, Value};
use crate::left::{Kind, Report};
use crate::rules::{Action, Change, CompiledRoute, Compiler, Match, PathTest, Rule, ValueTest};
use crate::text::Template;
use crate::{Program, Surroundings};

/// Number of pools, the last ones, with which a new one is compared.
const POOLS_COMPARED: usize = 200;
/// Maximum number of rules of all listeners: those of a server are repeated for each of its listeners.
pub(crate) const RULES_MAX: usize = 10_000;

/// Parts of the new config.
pub(crate) struct Draft<'a> {
    pub(crate) document: Document,
    pub(crate) report: Report,
    pub(crate) surroundings: &'a mut dyn Surroundings,
    rules: Vec<(Vec<String>, Vec<Rule>)>,
    /// Number of these rules with all inside of them.
    rule_count: usize,
    names: Names,
    pub(crate) pool_names: Names,
    /// Names of the pools of the document, in its order.
    pool_order: Vec<String>,
    /// Paths are compared without case, as in Caddy.
    pub(crate) ignores_path_case: bool,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(program: Program, surroundings: &'a mut dyn Surroundings) -> Self {
        let mut document = Document::default();
        document.head.push(format!("Made by `weir proxy import` from a config of {}.", program.title()));
        document.head.push("docs/import.md lists each directive, and what differs in any case.".to_owned());
        Self {
            document,
            report: Report::default(),
            surroundings,
            rules: Vec::new(),
            rule_count: 0,
            names: Names::default(),
            pool_names: Names::default(),
            pool_order: Vec::new(),
            ignores_path_case: false,
        }
    }

    /// Returns a new name of a listener.
    pub(crate) fn listener_name(&mut self, wanted: &str) -> String {
        self.names.add(wanted)
    }

    /// Adds a pool, unless there is the same one, and returns its name.
    pub(crate) fn add_pool(
        &mut self,
        wanted: &str,
        origins: Origins,
        fill: impl FnOnce(&mut Section),
    ) -> String {
        let mut section = Section::named("pool", "", origins);
        fill(&mut section);
        let recent = self.document.pools.iter().rev().zip(self.pool_order.iter().rev()).take(POOLS_COMPARED);
        let is_same = |(pool, name): &(&Section, &String)| {
            pool.equals(&section) && name.starts_with(clean_start(wanted))
        };
        if let Some((_, name)) = { recent }.find(is_same) {
            return name.clone();
        }
        let name = self.pool_names.add(wanted);
        section.rename(&name);
        self.push_pool(section, &name);
        name
    }

    /// Adds a pool with a name of `pool_names`.
    pub(crate) fn push_pool(&mut self, section: Section, name: &str) {
        self.document.pools.push(section);
        self.pool_order.push(name.to_owned());
    }

    /// Adds the rules of listeners; listeners with the same rules share their routes.
    pub(crate) fn add_routes(&mut self, listeners: &[String], rules: Vec<Rule>) {
        if let Some((names, _)) = self.rules.iter_mut().find(|(_, known)| *known == rules) {
            return names.extend_from_slice(listeners);
        }
        self.rule_count += count_rules(&rules);
        if self.rule_count > RULES_MAX {
            let origin = Origin { file: "config".into(), line: 1, text: listeners.join(" ") };
            let text = format!(
                "the listener has no routes: all listeners together have more than {RULES_MAX} rules"
            );
            return self.report.not_supported(&origin, text);
        }
        self.rules.push((listeners.to_vec(), rules));
    }

    /// Returns the text of the config, and the report.
    pub(crate) fn finish(mut self) -> (String, Vec<crate::Left>) {
        let mut compiler = Compiler::default();
        for (listeners, rules) in std::mem::take(&mut self.rules) {
            compiler.compile(&listeners, &rules, &mut self.report);
        }
        let routes = compiler.routes;
        let single = self.document.listeners.len() == 1;
        for route in routes {
            let section = self.route_section(route, single);
            self.document.routes.push(section);
        }
        if self.document.listeners.is_empty() {
            let mut listener = Section::named("listener", "web", Vec::new());
            listener.note("The source has no listener: this is a default.");
            listener.set("bind", Value::text("127.0.0.1:8080"), &[]);
            self.document.listeners.push(listener);
        }
        let left = self.report.into_lines();
        let open: Vec<String> =
            left.iter().filter(|left| left.kind.is_left()).map(ToString::to_string).collect();
        if !open.is_empty() {
            self.document.tail.push("Left to do:".to_owned());
            self.document.tail.extend(open);
        }
        (self.document.into_text(), left)
    }

    fn route_section(&mut self, route: CompiledRoute, is_single_listener: bool) -> Section {
        let mut section = Section::of_array("route", route.origins);
        write_conditions(&route.conditions, is_single_listener, self.ignores_path_case, &mut section);
        for (change, origin) in &route.changes {
            self.write_change(change, origin, &mut section);
        }
        write_action(&route.action, &mut section);
        section
    }

    fn write_change(&mut self, change: &Change, origin: &Rc<Origin>, section: &mut Section) {
        let origins = std::slice::from_ref(origin);
        let (key, name, template) = match change {
            Change::RemoveRequest(name) => return section.append("remove-request-header", name, origins),
            Change::RemoveResponse(name) => return section.append("remove-response-header", name, origins),
            Change::RewritePrefix(_, to) => return section.set("rewrite-prefix", Value::text(to), origins),
            Change::RewritePath(to) => return section.set("rewrite-path", Value::text(to), origins),
            Change::SetRequest(name, template) => ("set-request-header", name, template),
            Change::AddRequest(name, template) => ("add-request-header", name, template),
            Change::SetResponse(name, template) => ("set-response-header", name, template),
            Change::AddResponse(name, template) => ("add-response-header", name, template),
        };
        match template.literal() {
            Some(text) if is_field_value(text) => {
                // A brace begins a value of the request.
                let text = text.replace('{', "{{").replace('}', "}}");
                section.set_in(key, &name.to_ascii_lowercase(), Value::text(text), origins);
            }
            Some(_) => self.report.not_supported(origin, "the text is no valid value of a field"),
            None => self.report.not_supported(origin, VALUE_OF_REQUEST),
        }
    }

    /// Reports a directive that has no equivalent.
    pub(crate) fn leave(&mut self, kind: Kind, origin: &Origin, reason: impl Into<String>) {
        self.report.add(kind, origin, reason);
    }

    /// Returns a file as it is named if it exists; else reports that it is missing.
    pub(crate) fn existing_file(&mut self, path: &str, origin: &Origin) -> bool {
        let exists = self.surroundings.exists(path);
        if !exists {
            let text = format!("the file {path}, which is missing here: the config does without it");
            self.report.needs(origin, text);
        }
        exists
    }
}

/// Returns the number of rules with those inside of them.
pub(crate) fn count_rules(rules: &[Rule]) -> usize {
    let inner = |rule: &Rule| match rule {
        Rule::When(_, inner, _) => count_rules(inner),
        _ => 0,
    };
    rules.len() + rules.iter().map(inner).sum::<usize>()
}

/// Reason for a field whose value depends on the request.
pub(crate) const VALUE_OF_REQUEST: &str =
    "fields of a route have fixed values: this one depends on the request";

fn clean_start(wanted: &str) -> &str {
    let end = wanted.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(wanted.len());
    &wanted[..end]
}

fn write_conditions(conditions: &Match, is_single_listener: bool, ignores_case: bool, section: &mut Section) {
    let mut set = |key: &str, texts: Vec<&str>| {
        if !texts.is_empty() {
            section.set(key, Value::texts(texts), &[]);
        }
    };
    if !is_single_listener {
        set("listener", conditions.listeners.iter().map(String::as_str).collect());
    }
    set("host", conditions.hosts.iter().map(String::as_str).collect());
    let (mut exact, mut prefixes, mut expressions) = (Vec::new(), Vec::new(), Vec::new());
    for path in &conditions.paths {
        let has_letters = |path: &str| path.bytes().any(|byte| byte.is_ascii_alphabetic());
        match path {
            PathTest::Exact(path) if ignores_case && has_letters(path) => {
                expressions.push(format!("(?i)^{}$", crate::rules::escape_regex(path)));
            }
            PathTest::Begins(path) if ignores_case && has_letters(path) => {
                expressions.push(format!("(?i)^{}", crate::rules::escape_regex(path)));
            }
            PathTest::Exact(path) => exact.push(path.as_str()),
            PathTest::Prefix(path) => prefixes.push(path.as_str()),
            // Nothing is between such a prefix and what is below it.
            PathTest::Begins(path) if path.ends_with('/') => prefixes.push(path.as_str()),
            PathTest::Begins(path) => expressions.push(format!("^{}", crate::rules::escape_regex(path))),
            PathTest::Regex(text) => expressions.push(text.clone()),
        }
    }
    set("path", exact);
    set("path-prefix", prefixes);
    set("path-regex", expressions.iter().map(String::as_str).collect());
    set("method", conditions.methods.iter().map(String::as_str).collect());
    set("source", conditions.sources.iter().map(String::as_str).collect());
    for (key, tests) in [("header", &conditions.headers), ("query", &conditions.query)] {
        for (name, test) in tests {
            let value = match test {
                ValueTest::Equals(text) => Value::text(text),
                ValueTest::Present => Value::Bool(true),
                ValueTest::Absent => Value::Bool(false),
                ValueTest::Regex(text) => Value::table([("regex", Value::text(text))]),
            };
            section.set_in(key, name, value, &[]);
        }
    }
}

fn write_action(action: &Action, section: &mut Section) {
    let (key, value) = match action {
        Action::Pool(name) => ("pool", Value::text(name)),
        Action::Deny(403) => ("deny", Value::Bool(true)),
        Action::Deny(status) => ("deny", Value::Number(u64::from(*status))),
        Action::SilentDrop => ("silent-drop", Value::Bool(true)),
        Action::Tarpit { delay_ms, status } => {
            let mut entries = Vec::new();
            entries.extend(delay_ms.map(|delay| ("delay".to_owned(), Value::text(duration(delay)))));
            entries.push(("status".to_owned(), Value::Number(u64::from(*status))));
            ("tarpit", Value::Table(entries))
        }
        Action::Redirect { status, location } => {
            let location = location.location().unwrap_or_default();
            let status = Value::Number(u64::from(*status));
            ("redirect", Value::table([("status", status), ("location", Value::text(location))]))
        }
        Action::Return { status, content_type, body } => {
            let mut entries = vec![("status".to_owned(), Value::Number(u64::from(*status)))];
            entries.extend(content_type.iter().map(|text| ("content-type".to_owned(), Value::text(text))));
            if !body.is_empty() {
                entries.push(("body".to_owned(), Value::text(body)));
            }
            ("return", Value::Table(entries))
        }
    };
    section.set(key, value, &[]);
}

/// Returns a response with a fixed status, in the form that weir has for it.
pub(crate) fn fixed_response(status: u16, content_type: Option<&str>, body: &str) -> Option<Action> {
    let content_type = content_type.filter(|_| !body.is_empty()).map(str::to_owned);
    match status {
        400..=599 if body.is_empty() => Some(Action::Deny(status)),
        204 | 205 | 304 => Some(Action::Return { status, content_type: None, body: String::new() }),
        200..=599 if body.len() <= 64 << 10 => {
            Some(Action::Return { status, content_type, body: body.to_owned() })
        }
        _ => None,
    }
}

/// Returns a redirect if weir can send it.
pub(crate) fn redirect(status: u16, location: Template) -> Option<Action> {
    let text = location.location()?;
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    let is_valid = is_visible && !text.is_empty() && [301, 302, 303, 307, 308].contains(&status);
    is_valid.then_some(Action::Redirect { status, location })
}

/// Returns a time in the largest unit without a fraction.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        ms if ms > 0 && ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms > 0 && ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

/// Returns a time as a value, within the limits of weir (1 ms to 24 h).
pub(crate) fn time_value(ms: u64) -> Value {
    Value::text(duration(ms.clamp(1, 24 * 3_600_000)))
}

/// Returns whether a text is a host that weir compares: a name, perhaps with `*.` in front, or an address.
pub(crate) fn is_host(text: &str) -> bool {
    let rest = text.strip_prefix("*.").unwrap_or(text);
    if let Some(address) = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return rest == text && address.parse::<std::net::Ipv6Addr>().is_ok();
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !rest.is_empty()
        && rest.len() <= 253
        && !rest.starts_with('.')
        && !rest.ends_with('.')
        && rest.bytes().all(is_allowed)
}

/// Returns whether a text is a path in normal form, so that weir compares it unchanged.
pub(crate) fn is_normal_path(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte);
    let segments = text.get(1..).unwrap_or_default().split('/');
    text.starts_with('/')
        && text.len() <= 4_096
        && text.bytes().all(is_allowed)
        && !text.contains("//")
        && segments.into_iter().all(|segment| segment != "." && segment != "..")
}

/// Returns whether a text is a network without host bits, or an address.
pub(crate) fn network(text: &str) -> Option<String> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse::<u8>().ok()?)),
        None => (text, None),
    };
    match address.parse::<std::net::IpAddr>().ok()? {
        std::net::IpAddr::V4(address) => {
            let prefix = prefix.unwrap_or(32);
            let mask = u32::MAX.checked_shl(32_u32.checked_sub(u32::from(prefix))?).unwrap_or(0);
            Some(format!("{}/{prefix}", std::net::Ipv4Addr::from_bits(address.to_bits() & mask)))
        }
        std::net::IpAddr::V6(address) if address.to_ipv4_mapped().is_none() => {
            let prefix = prefix.unwrap_or(128);
            let mask = u128::MAX.checked_shl(128_u32.checked_sub(u32::from(prefix))?).unwrap_or(0);
            Some(format!("{}/{prefix}", std::net::Ipv6Addr::from_bits(address.to_bits() & mask)))
        }
        std::net::IpAddr::V6(_) => None,
    }
}

/// Returns whether a text is the name of a field.
pub(crate) fn is_field_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 200
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Returns whether a route may change a field.
pub(crate) fn is_changeable(name: &str) -> bool {
    const KEPT: [&str; 9] = [
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "proxy-authenticate",
    ];
    is_field_name(name) && !KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name))
}

fn is_field_value(text: &str) -> bool {
    text.trim() == text && !text.bytes().any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f)
}

/// Returns whether a method is one that weir accepts.
pub(crate) fn is_method(text: &str) -> bool {
    is_field_name(text) && text.len() <= 32
}
