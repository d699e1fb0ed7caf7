//! The config under construction: listeners, pools and routes with their names, the report, and checks of values that
//! all sources share.

use std::collections::HashMap;
use std::rc::Rc;

use crate::document::{Document, Names, Origin, Origins, Section, Value};
use crate::left::{Kind, Report};
use crate::rules::{
    Action, Change, CompiledRoute, Compiler, Condition, ErrorPage, PathTest, RouteSetting, Rule, StatusField,
    TooLong, count_rules, has_path_test, write_condition,
};
use crate::text::Template;
use crate::{Import, IncludeError, ParseError, Program, Surroundings};

/// Number of pools, the last ones, with which a new one is compared.
const POOLS_COMPARED: usize = 200;
/// Maximum number of rules of all listeners: those of a server are repeated for each of its listeners.
pub(crate) const RULES_MAX: usize = 10_000;

/// Array of the rules for responses, and its maximum length.
const RESPONSE: &str = "route.response";
const RESPONSES_MAX: usize = 6;

/// Maximum length of the conditions of all directives together: an ACL has its length in each of them.
const WORK_MAX: usize = 16 << 20;
/// Maximum length of all files that directives refer to, and that the import reads.
const FILES_BYTES_MAX: usize = 16 << 20;

/// Failure to read a file that a directive refers to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileError {
    #[error("'{0}' is no complete path of a file")]
    Relative(String),
    #[error("the file {0} is missing here")]
    Missing(String),
    #[error("the files of the config are too long together")]
    Long,
    #[error(transparent)]
    Include(#[from] IncludeError),
}

/// Parts of the new config.
pub(crate) struct Draft<'a> {
    pub(crate) document: Document,
    pub(crate) report: Report,
    pub(crate) surroundings: &'a mut dyn Surroundings,
    rules: Vec<(Vec<String>, Vec<Rule>)>,
    /// Number of these rules with all inside of them.
    rule_count: usize,
    too_long: Option<TooLong>,
    /// Bytes of the conditions of all directives.
    work: usize,
    names: Names,
    pub(crate) pool_names: Names,
    /// Texts of files, or the reasons why there are none.
    files: HashMap<String, Result<Rc<str>, FileError>>,
    /// Names of the pools of the document, in its order.
    pool_order: Vec<String>,
    map_names: Names,
    /// Names of the maps of the document, in its order.
    map_order: Vec<String>,
    map_keys: Vec<String>,
    kept_maps: Vec<String>,
    program: Program,
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
            too_long: None,
            work: 0,
            names: Names::default(),
            pool_names: Names::default(),
            files: HashMap::new(),
            pool_order: Vec::new(),
            map_names: Names::default(),
            map_order: Vec::new(),
            map_keys: Vec::new(),
            kept_maps: Vec::new(),
            program,
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

    /// Adds a map, unless there is the same one, and returns its name.
    pub(crate) fn add_map(&mut self, wanted: &str, map: MapSection, origin: &Rc<Origin>) -> String {
        let key = map.key.clone();
        let section = map.into_section(origin);
        let known = self.document.maps.iter().zip(&self.map_order);
        let mut same = known.rev().take(POOLS_COMPARED).filter(|(other, _)| other.equals(&section));
        if let Some((_, name)) = same.next() {
            return name.clone();
        }
        let name = self.map_names.add(wanted);
        let mut section = section;
        section.rename(&name);
        self.document.maps.push(section);
        self.map_order.push(name.clone());
        self.map_keys.push(key);
        name
    }

    /// Keeps a map that no route has, because a log has it.
    pub(crate) fn keep_map(&mut self, name: &str) {
        self.kept_maps.push(name.to_owned());
    }

    /// Removes the maps that nothing has.
    fn remove_unused_maps(&mut self, routes: &[CompiledRoute]) {
        let names = std::mem::take(&mut self.map_order);
        let is_used =
            |name: &String| self.kept_maps.contains(name) || routes.iter().any(|route| route.uses_map(name));
        let mut used = names.iter().map(is_used).collect::<Vec<_>>().into_iter();
        self.document.maps.retain(|_| used.next().unwrap_or(true));
    }

    /// Adds a pool with a name of `pool_names`.
    pub(crate) fn push_pool(&mut self, section: Section, name: &str) {
        self.document.pools.push(section);
        self.pool_order.push(name.to_owned());
    }

    /// Returns whether a map has such a key.
    pub(crate) fn has_map_of(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        self.map_keys.iter().any(|key| is_wanted(key))
    }

    /// Returns the text of a file that a directive refers to.
    pub(crate) fn read_file(&mut self, path: &str) -> Result<Rc<str>, FileError> {
        if let Some(known) = self.files.get(path) {
            return known.clone();
        }
        let result = self.read_new_file(path);
        self.files.insert(path.to_owned(), result.clone());
        result
    }

    fn read_new_file(&mut self, path: &str) -> Result<Rc<str>, FileError> {
        if !path.starts_with('/') || path.contains(['*', '?', '[']) {
            return Err(FileError::Relative(path.to_owned()));
        }
        if self.files.values().flatten().map(|text| text.len()).sum::<usize>() > FILES_BYTES_MAX {
            return Err(FileError::Long);
        }
        if !self.surroundings.exists(path) {
            return Err(FileError::Missing(path.to_owned()));
        }
        let (_, text) = self
            .surroundings
            .include(path)?
            .into_iter()
            .next()
            .ok_or_else(|| FileError::Missing(path.to_owned()))?;
        Ok(Rc::from(text))
    }

    /// Adds the rules of listeners; listeners with the same rules share their routes.
    pub(crate) fn add_routes(&mut self, listeners: &[String], rules: Vec<Rule>) {
        if let Some((names, _)) = self.rules.iter_mut().find(|(_, known)| *known == rules) {
            return names.extend_from_slice(listeners);
        }
        self.rule_count += count_rules(&rules, RULES_MAX);
        if self.rule_count > RULES_MAX {
            let reason = format!("all listeners together have more than {RULES_MAX} rules");
            let origin = rules.iter().rev().find_map(Rule::origin).cloned();
            self.too_long.get_or_insert(TooLong { origin, reason });
            return;
        }
        self.rules.push((listeners.to_vec(), rules));
    }

    /// Returns the config with the report. `source` is the name of the file, and its length.
    pub(crate) fn finish(mut self, source: (&str, usize)) -> Result<Import, ParseError> {
        let too_long = |error: TooLong| {
            let (file, line) = match error.origin {
                Some(origin) => (origin.file.to_string(), origin.line),
                None => (source.0.to_owned(), 1),
            };
            ParseError { file, line, reason: error.reason }
        };
        if let Some(error) = self.too_long.take() {
            return Err(too_long(error));
        }
        let mut compiler = Compiler::new(source.1);
        for (listeners, mut rules) in std::mem::take(&mut self.rules) {
            if has_path_test(&rules) {
                rules.insert(0, self.ambiguous_paths());
            }
            compiler.compile(&listeners, &rules, &mut self.report).map_err(too_long)?;
        }
        self.remove_unused_maps(&compiler.routes);
        let single = self.document.listeners.len() == 1;
        for route in compiler.routes {
            let section = self.route_section(route, single);
            self.document.routes.push(section);
        }
        if self.document.listeners.is_empty() {
            let mut listener = Section::named("listener", "web", Vec::new());
            listener.note("The source has no listener that weir can have: this is a default.");
            listener.set("bind", Value::text("127.0.0.1:8080"), &[]);
            self.document.listeners.push(listener);
        }
        let report = self.report.into_lines();
        let open: Vec<String> =
            report.iter().filter(|left| left.kind.is_left()).map(ToString::to_string).collect();
        if !open.is_empty() {
            self.document.tail.push("Left to do:".to_owned());
            self.document.tail.extend(open);
        }
        Ok(Import { config: self.document.into_text(), report })
    }

    /// Returns the rule for the paths that weir compares in another way than the source's program.
    fn ambiguous_paths(&self) -> Rule {
        let regex = match self.program {
            Program::Haproxy => ";",
            Program::Nginx | Program::Caddy => ";|%[01][0-9A-F]|%7F",
        };
        let text =
            "weir compares a path with and without its parameters (;…), the other program only with them";
        let origin = Rc::new(Origin { file: "import".into(), line: 0, text: text.to_owned() });
        Rule::refuse(Condition::path(PathTest::Regex(regex.to_owned())), &origin)
    }

    fn route_section(&mut self, route: CompiledRoute, is_single_listener: bool) -> Section {
        let mut section = Section::new_array("route", route.origins);
        if let Some(note) = route.note {
            section.note(note);
        }
        if !is_single_listener && !route.listeners.is_empty() {
            section.set("listener", Value::texts(route.listeners.iter().map(String::as_str)), &[]);
        }
        let prefix = route.changes.iter().find_map(|(change, _)| match change {
            Change::RewritePrefix(prefix, _) => Some(prefix.as_str()),
            _ => None,
        });
        write_condition(&route.condition, prefix, &mut section);
        for (change, origin) in &route.changes {
            self.write_change(change, origin, &mut section);
        }
        write_action(&route.action, &mut section);
        section
    }

    fn write_change(&mut self, change: &Change, origin: &Rc<Origin>, section: &mut Section) {
        let origins = std::slice::from_ref(origin);
        let (key, name, template) = match change {
            Change::Refuse | Change::Mark(_) | Change::FileRoot(_) => return,
            Change::ResponseOf(field) => return self.write_status_field(field, origins, section),
            Change::Page(page) => {
                let mut table = Section::new_array("route.error-page", origins.to_vec());
                page.write(&mut table);
                return section.push_table(table);
            }
            Change::RemoveRequest(name) | Change::LoseRequest(name) => {
                return section.append("remove-request-header", name, origins);
            }
            Change::RemoveResponse(name) => return section.append("remove-response-header", name, origins),
            Change::RewritePrefix(_, to) => return section.set("rewrite-prefix", Value::text(to), origins),
            Change::Compress(value) => return section.set("compression", value.clone(), origins),
            Change::RewritePath(to) => return section.set("rewrite-path", Value::text(to), origins),
            Change::SetRequest(name, template) => ("set-request-header", name, template),
            Change::AddRequest(name, template) => ("add-request-header", name, template),
            Change::SetResponse(name, template) => ("set-response-header", name, template),
            Change::AddResponse(name, template) => ("add-response-header", name, template),
        };
        match template.field() {
            Some(text) if is_field_value(&text) => {
                section.set_in(key, &name.to_ascii_lowercase(), Value::text(text), origins);
            }
            Some(_) => self.report.not_supported(origin, "the text is no valid value of a field"),
            None => self.report.not_supported(origin, VALUE_OF_REQUEST),
        }
    }

    /// Writes a field of some statuses to the rules of responses, of which each has one line of a field.
    fn write_status_field(&mut self, field: &StatusField, origins: &[Rc<Origin>], section: &mut Section) {
        let StatusField { status, is_added, name, text } = field;
        let Some(text) = text.field().filter(|text| is_field_value(text)) else {
            return origins.iter().for_each(|origin| self.report.not_supported(origin, VALUE_OF_REQUEST));
        };
        let (name, key) = (name.to_ascii_lowercase(), if *is_added { "add-header" } else { "set-header" });
        let tables = section.tables_mut();
        let count = tables.iter().filter(|table| table.is_of(RESPONSE, "status", status)).count();
        let is_free =
            |table: &&mut Section| table.is_of(RESPONSE, "status", status) && !table.has_in(key, &name);
        if let Some(table) = tables.iter_mut().find(is_free) {
            return table.set_in(key, &name, Value::text(text), origins);
        }
        if count >= RESPONSES_MAX {
            let reason = "a route of weir has up to 6 rules for responses, each with one line of a field";
            return origins.iter().for_each(|origin| self.report.not_supported(origin, reason));
        }
        let mut table = Section::new_array(RESPONSE, Vec::new());
        table.set("status", Value::text(*status), &[]);
        table.set_in(key, &name, Value::text(text), origins);
        section.push_table(table);
    }

    /// Counts work of a directive, as bytes of its conditions. Returns whether the import goes on.
    pub(crate) fn spend(&mut self, bytes: usize, origin: &Rc<Origin>) -> bool {
        self.work += bytes;
        if self.work > WORK_MAX {
            self.too_long(
                origin,
                format!("the conditions become too long here: all may have {WORK_MAX} bytes"),
            );
        }
        self.too_long.is_none()
    }

    /// Ends the import with an error: a limit was reached.
    pub(crate) fn too_long(&mut self, origin: &Rc<Origin>, reason: impl Into<String>) {
        let error = TooLong { origin: Some(Rc::clone(origin)), reason: reason.into() };
        self.too_long.get_or_insert(error);
    }

    /// Reports a directive that has no equivalent.
    pub(crate) fn leave(&mut self, kind: Kind, origin: &Origin, reason: impl Into<String>) {
        self.report.add(kind, origin, reason);
    }

    /// Reports a file that is missing here. Returns whether it is there.
    pub(crate) fn existing_file(&mut self, path: &str, origin: &Origin) -> bool {
        let exists = self.surroundings.exists(path);
        if !exists {
            let text = format!("the file {path}, which is missing here");
            self.report.needs(origin, text);
        }
        exists
    }
}

#[derive(Clone, Debug)]
pub(crate) enum MapEntries {
    /// In the config, in their order.
    Inline(Vec<(String, String)>),
    /// In a file.
    File(String),
}

/// A section `[map.NAME]` without its name.
#[derive(Clone, Debug)]
pub(crate) struct MapSection {
    /// Key as weir has it: the name of a value, or a text with values.
    pub(crate) key: String,
    /// Rule by which a key matches, as weir names it.
    pub(crate) kind: &'static str,
    pub(crate) ignores_case: bool,
    pub(crate) entries: MapEntries,
    /// Value of requests without an entry.
    pub(crate) default: Option<String>,
}

/// Reason why a variable of the source is no map of weir.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MapFault {
    #[error("'{0}' in it")]
    Part(String),
    #[error("weir has no such text of a request")]
    Text,
    #[error("its text is the value of a variable that weir cannot join with it")]
    Joined,
    #[error("the import becomes too long")]
    TooLong,
    #[error("it has too many entries, or more than {EXPRESSIONS_MAX} expressions")]
    TooMany,
    #[error("a key or value has more than {TEXT_BYTES_MAX} bytes, or other letters")]
    Letters,
    #[error("the paths are compared decoded, and '{0}' has several spellings")]
    Spellings(String),
    #[error("weir does not compare with the expression '{0}' in the same way, or has no groups of it")]
    Expression(String),
    #[error("it has keys of several kinds")]
    Kinds,
    #[error("a value depends on the request")]
    Value,
}

/// Maximum number of expressions of a map of weir.
pub(crate) const EXPRESSIONS_MAX: usize = 256;
/// Maximum length of keys and values of a map of weir.
const TEXT_BYTES_MAX: usize = 4_096;

/// Returns whether a text can be a key or a value of a map.
pub(crate) fn is_map_text(text: &str) -> bool {
    text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control) && !text.contains("${")
}

impl MapSection {
    fn into_section(self, origin: &Rc<Origin>) -> Section {
        let mut section = Section::named("map", "", vec![Rc::clone(origin)]);
        section.set("key", Value::text(&self.key), &[]);
        if let MapEntries::File(file) = &self.entries {
            section.set("file", Value::text(file), &[]);
        }
        if self.kind != "exact" {
            section.set("match", Value::text(self.kind), &[]);
        }
        // A host, and the name of a handshake, are compared without case in any case.
        if self.ignores_case && !["host", "tls.sni"].contains(&self.key.as_str()) {
            section.set("ignore-case", Value::Bool(true), &[]);
        }
        if let Some(default) = self.default {
            section.set("default", Value::text(default), &[]);
        }
        if let MapEntries::Inline(entries) = self.entries {
            let entries = entries.into_iter().map(|(key, value)| (key, Value::text(value)));
            section.set("entries", Value::Table(entries.collect()), &[]);
        }
        section
    }
}

impl ErrorPage {
    /// Writes the keys of a page.
    pub(crate) fn write(&self, section: &mut Section) {
        section.set("status", Value::text(&self.status), &[]);
        if self.replaces_servers {
            section.set("replace", Value::text("all"), &[]);
        }
        section.set(self.form, Value::text(&self.file), &[]);
    }
}

/// Reason for a field whose value weir does not have.
pub(crate) const VALUE_OF_REQUEST: &str =
    "weir has no such value of a field: a field of requests is removed, so that clients cannot set it";

fn clean_start(wanted: &str) -> &str {
    let end = wanted.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(wanted.len());
    &wanted[..end]
}

fn write_settings(settings: &[RouteSetting], section: &mut Section) {
    for RouteSetting { table, key, value, origin } in settings {
        let origins = std::slice::from_ref(origin);
        match *table {
            "" => section.set(key, value.clone(), origins),
            table => section.set_in(table, key, value.clone(), origins),
        }
    }
}

fn write_action(action: &Action, section: &mut Section) {
    let (key, value) = match action {
        Action::Pool(name, settings) => {
            section.set("pool", Value::text(name), &[]);
            return write_settings(settings, section);
        }
        Action::Files(entries, settings) => {
            section.set("files", Value::Table(entries.clone()), &[]);
            return write_settings(settings, section);
        }
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
        Action::ReturnText { status, content_type, body } => {
            let mut entries = vec![("status".to_owned(), Value::Number(u64::from(*status)))];
            entries.extend(content_type.iter().map(|text| ("content-type".to_owned(), Value::text(text))));
            let body = body.field().unwrap_or_default();
            entries.push(("body-template".to_owned(), Value::text(body)));
            ("return", Value::Table(entries))
        }
        Action::ReturnFile { status, content_type, file } => {
            let entries = [
                ("status", Value::Number(u64::from(*status))),
                ("content-type", Value::text(content_type)),
                ("body-file", Value::text(file)),
            ];
            ("return", Value::table(entries))
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

pub(crate) fn is_field_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 200
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Returns whether conditions of weir do not see a field as a client sends it.
pub(crate) fn is_hidden(field: &str) -> bool {
    const HIDDEN: &str = "connection keep-alive proxy-connection te trailer transfer-encoding expect proxy-authenticate \
        forwarded x-forwarded x-real-ip x-client-ip true-client-ip cf-connecting-ip x-cluster-client-ip \
        x-original-url x-rewrite-url content-length";
    HIDDEN.split(' ').any(|hidden| hidden == field)
        || field.starts_with("x-forwarded-")
        || field.contains('_')
}

/// Returns whether a route may change a field.
pub(crate) fn is_changeable(name: &str) -> bool {
    const KEPT: &str = "connection content-length keep-alive proxy-connection te trailer transfer-encoding upgrade \
        proxy-authenticate";
    is_field_name(name) && !KEPT.split(' ').any(|kept| kept.eq_ignore_ascii_case(name))
}

fn is_field_value(text: &str) -> bool {
    text.trim() == text && !text.bytes().any(|byte| (byte < 0x20 && byte != b'\t') || byte == 0x7f)
}

/// Returns whether a method is one that weir accepts.
pub(crate) fn is_method(text: &str) -> bool {
    is_field_name(text) && text.len() <= 32
}
