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
    /// The id of the request, another one for each.
    RequestId,
    /// The name of the server that responded; in fields of responses.
    Server,
    /// The value that a map has for the request.
    Map(String),
    /// The same, with a text for a request without a value.
    MapOr(String, String),
}

/// Part of a text.
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

    /// Returns a measure of its text, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) | Part::Variable(Variable::Header(text) | Variable::Map(text)) => {
                text.len() + 16
            }
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
                Part::Variable(Variable::Host) => text.push_str("{host}"),
                Part::Variable(Variable::Path) => text.push_str("{path}"),
                Part::Variable(Variable::Query) => text.push_str("{query}"),
                Part::Variable(Variable::Source) => text.push_str("{source}"),
                Part::Variable(Variable::Scheme) => text.push_str("{scheme}"),
                Part::Variable(Variable::Header(name)) => text.push_str(&format!("{{header.{name}}}")),
                Part::Variable(Variable::RequestId) => text.push_str("{request-id}"),
                Part::Variable(Variable::Server) => text.push_str("{server}"),
                Part::Variable(Variable::Map(name)) => text.push_str(&format!("{{map.{name}}}")),
                Part::Variable(Variable::MapOr(name, default)) => text.push_str(&map_or(name, default)?),
                Part::Variable(Variable::Port) => return None,
            }
        }
        Some(text)
    }

    /// Returns the text of a redirect's `location`; `None`: it has a value that a redirect of weir does not have.
    pub(crate) fn location(&self) -> Option<String> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                // A brace has a meaning there.
                Part::Text(literal) if literal.contains(['{', '}']) => return None,
                Part::Text(literal) => text.push_str(literal),
                Part::Variable(Variable::Host) => text.push_str("{host}"),
                Part::Variable(Variable::Path) => text.push_str("{path}"),
                Part::Variable(Variable::Query) => text.push_str("{query}"),
                Part::Variable(Variable::Header(name)) if name == "host" => text.push_str("{host}"),
                Part::Variable(Variable::Map(name)) => text.push_str(&format!("{{map.{name}}}")),
                Part::Variable(Variable::MapOr(name, default)) => text.push_str(&map_or(name, default)?),
                Part::Variable(_) => return None,
            }
        }
        Some(text)
    }
}

/// Returns the value of a map with a default, which cannot have braces.
fn map_or(name: &str, default: &str) -> Option<String> {
    match default {
        "" => Some(format!("{{map.{name}}}")),
        default => (!default.contains(['{', '}'])).then(|| format!("{{map.{name}:-{default}}}")),
    }
}
