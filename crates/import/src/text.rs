//! Texts with values of the request in them, in a form that all sources share, and texts in expressions.

/// Returns an expression that matches exactly this text.
pub(crate) fn escape_regex(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if "\\.+*?()|[]{}^$".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Value of a request in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    /// The host without its port.
    Host,
    /// The path.
    Path,
    /// The query with its `?`, or nothing.
    Query,
    /// The client's address.
    Source,
    /// `http` or `https`.
    Scheme,
    /// The port that the client connected to.
    Port,
    /// The first value of a field.
    Header(String),
    /// The value of a cookie.
    Cookie(String),
    /// The first value of a parameter of the query.
    Parameter(String),
    /// The value of a map.
    Map(String),
    /// The same, with a text for a request without a value.
    MapOr(String, String),
    /// Another value of weir, by its name, which all texts have.
    Fact(&'static str),
}

impl Variable {
    /// Returns the name of the value in weir; `None`: it has none.
    fn name(&self) -> Option<String> {
        Some(match self {
            Self::Host => "host".to_owned(),
            Self::Path => "path".to_owned(),
            Self::Query => "query".to_owned(),
            Self::Source => "source".to_owned(),
            Self::Scheme => "scheme".to_owned(),
            Self::Port => return None,
            Self::Header(name) => format!("header.{name}"),
            Self::Cookie(name) => format!("cookie.{name}"),
            Self::Parameter(name) => format!("query.{name}"),
            Self::Map(name) => format!("map.{name}"),
            Self::MapOr(name, default) => map_or(name, default)?,
            Self::Fact(name) => (*name).to_owned(),
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Variable(Variable),
}

/// Text with values of the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Template(pub(crate) Vec<Part>);

impl From<&str> for Template {
    fn from(text: &str) -> Self {
        let mut template = Self::default();
        template.push_text(text);
        template
    }
}

impl Template {
    pub(crate) fn push_text(&mut self, text: &str) {
        if let Some(Part::Text(last)) = self.0.last_mut() {
            last.push_str(text);
        } else if !text.is_empty() {
            self.0.push(Part::Text(text.to_owned()));
        }
    }

    pub(crate) fn push(&mut self, variable: Variable) {
        self.0.push(Part::Variable(variable));
    }

    /// Returns the text if it has no values of the request.
    pub(crate) fn literal(&self) -> Option<&str> {
        match &self.0[..] {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the text for a listener, of which the scheme and the port are known.
    pub(crate) fn specialised(&self, has_tls: bool, port: Option<u16>) -> Self {
        let mut result = Self::default();
        for part in &self.0 {
            match (part, port) {
                (Part::Text(text), _) => result.push_text(text),
                (Part::Variable(Variable::Scheme), _) => {
                    result.push_text(if has_tls { "https" } else { "http" })
                }
                (Part::Variable(Variable::Port), Some(port)) => result.push_text(&port.to_string()),
                (Part::Variable(variable), _) => result.push(variable.clone()),
            }
        }
        result
    }

    /// Returns the text as a key: the name of a value, or a text with values; `None`: it has a value that a key does not
    /// have, or no value.
    pub(crate) fn key(&self) -> Option<String> {
        let is_variable = |part: &Part| matches!(part, Part::Variable(_));
        let is_map = |part: &Part| matches!(part, Part::Variable(Variable::Map(_) | Variable::MapOr(..)));
        if self.0.iter().any(is_map) || !self.0.iter().any(is_variable) {
            return None;
        }
        match &self.0[..] {
            [Part::Variable(variable)] => variable.name(),
            _ => self.field(),
        }
    }

    /// Returns the names of the maps whose values are parts of it.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Variable(Variable::Map(map) | Variable::MapOr(map, _)) => Some(map.as_str()),
            _ => None,
        })
    }

    /// Returns a measure of its text, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text)
            | Part::Variable(
                Variable::Header(text)
                | Variable::Cookie(text)
                | Variable::Parameter(text)
                | Variable::Map(text),
            ) => text.len() + 16,
            Part::Variable(Variable::MapOr(name, text)) => name.len() + text.len() + 16,
            Part::Variable(_) => 16,
        });
        parts.sum()
    }

    /// Returns the text of a field; `None`: it has a value that a field of weir does not have.
    pub(crate) fn field(&self) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                // A brace begins a value of the request.
                Part::Text(literal) => text.push_str(&literal.replace('{', "{{").replace('}', "}}")),
                Part::Variable(variable) => text.push_str(&format!("{{{}}}", variable.name()?)),
            }
        }
        Some(text)
    }

    /// Returns the text of a redirect's `location`; `None`: it has a value that a redirect of weir does not have.
    pub(crate) fn location(&self) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                // A brace begins a value of the request.
                Part::Text(literal) => text.push_str(&literal.replace('{', "{{").replace('}', "}}")),
                Part::Variable(Variable::Host) => text.push_str("{host}"),
                Part::Variable(Variable::Path) => text.push_str("{path}"),
                Part::Variable(Variable::Query) => text.push_str("{query}"),
                Part::Variable(Variable::Header(name)) if name == "host" => text.push_str("{host}"),
                // weir keeps letters, digits and `-._~` of other values; a scheme and a method have no others.
                Part::Variable(Variable::Scheme) => text.push_str("{scheme}"),
                Part::Variable(Variable::Fact("method")) => text.push_str("{method}"),
                Part::Variable(Variable::Map(name)) => text.push_str(&format!("{{map.{name}}}")),
                Part::Variable(Variable::MapOr(name, default)) => {
                    text.push_str(&format!("{{{}}}", map_or(name, default)?));
                }
                Part::Variable(_) => return None,
            }
        }
        Some(text)
    }
}

/// Returns the name of a map's value with a default, which cannot have braces.
fn map_or(name: &str, default: &str) -> Option<String> {
    match default {
        "" => Some(format!("map.{name}")),
        default => (!default.contains(['{', '}'])).then(|| format!("map.{name}:-{default}")),
    }
}
