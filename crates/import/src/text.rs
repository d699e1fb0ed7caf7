//! Texts with values of the request in them, in a form that all sources share.

/// Value of a request in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
                (Part::Variable(variable), _) => result.push(*variable),
            }
        }
        result
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
                Part::Variable(_) => return None,
            }
        }
        Some(text)
    }
}
