//! Syntax of texts with values: `{name}`, `{name:-default}`, and doubled braces for literal ones.

use std::fmt;
use std::sync::Arc;

use record::problem::suggestion;
use regex::Regex;

use crate::auth::claims::is_claim_path;

use super::{DurationForm, ExchangePart, FAMILIES, Fact, MapPlan, Part, Template, Text, Variable};

/// Constructor of a value with a name of its own.
type WithName = fn(Box<str>) -> Variable;

/// Part of the proxy in which a text is rendered. Each scope knows the facts of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Keys of conditions and of pools.
    Key,
    Route,
    /// Fields of requests, and the proxy's own responses.
    Message,
    Response,
    /// Lines of a log.
    Log,
}

/// Maximum number of faults of one text that are reported at a time: each quotes the text.
const FAULTS_MAX: usize = 16;

/// Fault of a text.
#[derive(Debug)]
pub struct TemplateError {
    /// Position in the text, in bytes.
    pub at: usize,
    pub fault: TemplateFault,
}

/// Kind of such a fault.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    #[error("'{{{name}}}' is not a value{hint}; for literal braces, double them: {doubled}")]
    Unknown { name: Box<str>, hint: String, doubled: String },
    #[error("'{name}' is not the name of a value{hint}")]
    UnknownKey { name: Box<str>, hint: String },
    #[error("'{{' has no '}}'; for literal braces, double them: {doubled}")]
    Unclosed { doubled: String },
    #[error("'}}' has no '{{'; for literal braces, double them: {doubled}")]
    Unopened { doubled: String },
    #[error("'{{{name}}}' is not known here: only {place}")]
    NotKnownHere { name: Box<str>, place: &'static str },
    #[error("'{{{name}}}' needs a name behind its dot: {{{family}}}")]
    NoName { name: Box<str>, family: &'static str },
    #[error("'{{{name}}}': '{text}' is not the name of a field or cookie")]
    BadName { name: Box<str>, text: Box<str> },
    #[error("'{{{name}}}' needs a route with exactly one path-regex")]
    NoRegex { name: Box<str> },
    #[error("'{{{name}}}': '{map}' is not the name of a map{hint}")]
    UnknownMap { name: Box<str>, map: Box<str>, hint: String },
    #[error("'{{{name}}}': the path-regex has {}", record::units::format_plural(*groups as u64, "group"))]
    NoGroup { name: Box<str>, groups: usize },
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fact(fact) => f.write_str(fact.name()),
            Self::Parameter(name) => write!(f, "query.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Cookie(name) => write!(f, "cookie.{name}"),
            Self::Capture(group) => write!(f, "{group}"),
            Self::Duration(part, form) => write!(f, "duration.{}.{}", part.code(), form.code()),
            Self::Map(map) => write!(f, "map.{}", map.name),
            Self::Claim(path) => write!(f, "jwt.{path}"),
        }
    }
}

/// Values that a config defines.
#[derive(Clone, Copy, Default)]
pub struct KnownValues<'a> {
    /// The route's only `path-regex`, whose groups are values.
    pub regex: Option<&'a Regex>,
    pub maps: &'a [Arc<MapPlan>],
}

impl KnownValues<'_> {
    /// Finds the map of a name like `map.NAME`.
    fn find_map(&self, name: &str, map: &str) -> Result<Variable, TemplateFault> {
        let found = self.maps.iter().find(|known| *known.name == *map);
        found.map(|plan| Variable::Map(Arc::clone(plan))).ok_or_else(|| TemplateFault::UnknownMap {
            name: name.into(),
            map: map.into(),
            hint: suggestion(map, self.maps.iter().map(|known| &*known.name)),
        })
    }
}

/// Parses a text of a scope.
///
/// # Errors
/// Returns the faults of all names, at most `FAULTS_MAX`, up to the first brace without its other one.
pub fn parse(text: &str, scope: Scope, known: KnownValues<'_>) -> Result<Text, Vec<TemplateError>> {
    let (mut parts, mut literal, mut at) = (Vec::new(), String::new(), 0);
    let mut errors = Vec::new();
    while let Some(brace) = text[at..].find(['{', '}']).map(|found| at + found) {
        literal.push_str(&text[at..brace]);
        let rest = &text[brace..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push_str(&rest[..1]);
            at = brace + 2;
            continue;
        }
        if rest.starts_with('}') {
            errors
                .push(TemplateError { at: brace, fault: TemplateFault::Unopened { doubled: doubled(text) } });
            return Err(errors);
        }
        let Some(end) =
            rest[1..].find(['{', '}']).map(|end| end + 1).filter(|&end| rest[end..].starts_with('}'))
        else {
            errors
                .push(TemplateError { at: brace, fault: TemplateFault::Unclosed { doubled: doubled(text) } });
            return Err(errors);
        };
        let (name, default) = rest[1..end].split_once(":-").unwrap_or_else(|| (&rest[1..end], ""));
        match parse_name(name, scope, known, text) {
            Ok(variable) => {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal).into()));
                }
                parts.push(Part::Value(variable, default.into()));
            }
            Err(fault) => errors.push(TemplateError { at: brace, fault }),
        }
        if errors.len() == FAULTS_MAX {
            return Err(errors);
        }
        at = brace + end + 1;
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    literal.push_str(&text[at..]);
    if parts.is_empty() {
        return Ok(Text::Literal(literal.into()));
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal.into()));
    }
    Ok(Text::Template(Template { source: text.into(), parts: parts.into() }))
}

/// Parses a key: the name of a value without braces, or a text with values.
///
/// # Errors
/// Returns the faults of all names.
pub fn parse_value(text: &str, scope: Scope, known: KnownValues<'_>) -> Result<Template, Vec<TemplateError>> {
    if text.contains(['{', '}'])
        && let Text::Template(template) = parse(text, scope, known)?
    {
        return Ok(template);
    }
    let variable =
        parse_name(text, scope, known, "").map_err(|fault| vec![TemplateError { at: 0, fault }])?;
    Ok(Template { source: text.into(), parts: [Part::Value(variable, "".into())].into() })
}

fn parse_name(
    name: &str,
    scope: Scope,
    known: KnownValues<'_>,
    text: &str,
) -> Result<Variable, TemplateFault> {
    if let Some(&fact) = Fact::ALL.iter().find(|fact| fact.name() == name) {
        return match fact.scope() <= scope {
            true => Ok(Variable::Fact(fact)),
            false => Err(TemplateFault::NotKnownHere { name: name.into(), place: place_of(fact.scope()) }),
        };
    }
    let families: [(&str, &str, WithName); 3] = [
        ("query.", "query.NAME", Variable::Parameter),
        ("header.", "header.NAME", Variable::Header),
        ("cookie.", "cookie.NAME", Variable::Cookie),
    ];
    for (prefix, family, variable) in families {
        match name.strip_prefix(prefix) {
            Some("") => return Err(TemplateFault::NoName { name: name.into(), family }),
            Some(own) if prefix != "query." && wire::encode::check_field_name(own).is_err() => {
                return Err(TemplateFault::BadName { name: name.into(), text: own.into() });
            }
            Some(own) => return Ok(variable(own.into())),
            None => {}
        }
    }
    if let Some((part, form)) = name.strip_prefix("duration.").and_then(|rest| rest.rsplit_once('.')) {
        let part = ExchangePart::ALL.iter().find(|known| known.code() == part);
        let form = DurationForm::ALL.iter().find(|known| known.code() == form);
        match (part, form) {
            (Some(part), Some(form)) if scope == Scope::Log => return Ok(Variable::Duration(*part, *form)),
            (Some(_), Some(_)) => {
                return Err(TemplateFault::NotKnownHere { name: name.into(), place: place_of(Scope::Log) });
            }
            _ => {}
        }
    }
    if let Some(map) = name.strip_prefix("map.").filter(|map| !map.is_empty()) {
        return known.find_map(name, map);
    }
    if let Some(path) = name.strip_prefix("jwt.") {
        return match (is_claim_path(path), scope < Scope::Route) {
            (false, _) => Err(TemplateFault::NoName { name: name.into(), family: "jwt.CLAIM" }),
            (true, true) => {
                Err(TemplateFault::NotKnownHere { name: name.into(), place: place_of(Scope::Route) })
            }
            (true, false) => Ok(Variable::Claim(path.into())),
        };
    }
    parse_capture(name, scope, known.regex, text)
}

/// Parses the name of a group, or reports an unknown name. Without a `text`, the name is a key of its own.
fn parse_capture(
    name: &str,
    scope: Scope,
    regex: Option<&Regex>,
    text: &str,
) -> Result<Variable, TemplateFault> {
    let mut groups = regex.into_iter().flat_map(|regex| regex.capture_names().flatten());
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    match (regex, is_number) {
        (_, true) if scope < Scope::Route => {
            Err(TemplateFault::NotKnownHere { name: name.into(), place: place_of(Scope::Route) })
        }
        (None, true) => Err(TemplateFault::NoRegex { name: name.into() }),
        (Some(regex), true) => match name.parse() {
            Ok(group) if group < regex.captures_len() => Ok(Variable::Capture(group)),
            _ => Err(TemplateFault::NoGroup { name: name.into(), groups: regex.captures_len() - 1 }),
        },
        (Some(regex), false) if groups.any(|group| group == name) => {
            let index = regex.capture_names().position(|group| group == Some(name));
            Ok(Variable::Capture(index.unwrap_or_default()))
        }
        _ => {
            let groups = regex.into_iter().flat_map(|regex| regex.capture_names().flatten());
            let families = FAMILIES.iter().map(|(name, ..)| *name);
            let known = Fact::ALL.iter().map(|fact| fact.name()).chain(families).chain(groups);
            let (name, hint) = (name.into(), suggestion(name, known));
            Err(match text.is_empty() {
                true => TemplateFault::UnknownKey { name, hint },
                false => TemplateFault::Unknown { name, hint, doubled: doubled(text) },
            })
        }
    }
}

/// Returns the places that know facts of a scope.
fn place_of(scope: Scope) -> &'static str {
    match scope {
        Scope::Key => "everywhere",
        Scope::Route => "in the texts of a route",
        Scope::Message => "in fields, locations and bodies",
        Scope::Response => "in fields of responses",
        Scope::Log => "in the format of a log",
    }
}

/// Maximum length of a text that a message repeats.
const SHOWN_BYTES_MAX: usize = 200;

fn doubled(text: &str) -> String {
    if text.len() > SHOWN_BYTES_MAX {
        return "{{ and }}".to_owned();
    }
    format!("\"{}\"", text.replace('{', "{{").replace('}', "}}").escape_debug())
}
