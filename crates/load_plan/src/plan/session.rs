//! State that a connection keeps between its requests, as far as the plan asks for it: cookies, and
//! values captured from responses. Parsed from the flags; no I/O.

use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use regex::bytes::Regex;
use serde::{Serialize, Serializer};

const CAPTURES_MAX: usize = 32;

/// Settings of the state of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionPlan {
    /// True if each connection stores cookies and sends them back.
    pub cookies: bool,
    pub captures: Vec<Capture>,
}

/// A value taken from responses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capture {
    pub name: String,
    pub source: CaptureSource,
}

#[derive(Clone, Debug)]
pub enum CaptureSource {
    /// Header field, by its name in lower case.
    Header(String),
    Cookie(String),
    /// First group of a pattern in the body, or its match if it has no group.
    Body(Regex),
}

impl SessionPlan {
    /// Parses the flags. Returns the settings and every problem.
    pub(super) fn parse(cookies: bool, captures: &[String]) -> (Self, Vec<InputProblem>) {
        let (mut plan, mut problems) = (Self { cookies, captures: Vec::new() }, Vec::new());
        for text in captures {
            match Capture::parse(text) {
                Ok(capture) if plan.captures.iter().any(|other| other.name == capture.name) => {
                    problems.push(InputProblem::new("--capture", format!("'{}' twice", capture.name)));
                }
                Ok(capture) => plan.captures.push(capture),
                Err(why) => problems.push(InputProblem::new("--capture", why)),
            }
        }
        if plan.captures.len() > CAPTURES_MAX {
            problems.push(InputProblem::new("--capture", format!("more than {CAPTURES_MAX} captures")));
        }
        (plan, problems)
    }

    #[inline]
    pub fn needs_fields(&self) -> bool {
        self.cookies || self.captures.iter().any(|capture| !matches!(capture.source, CaptureSource::Body(_)))
    }

    #[inline]
    pub fn needs_body(&self) -> bool {
        self.captures.iter().any(|capture| matches!(capture.source, CaptureSource::Body(_)))
    }

    #[inline]
    pub fn needs_inspection(&self) -> bool {
        self.cookies || !self.captures.is_empty()
    }
}

impl Capture {
    fn parse(text: &str) -> Result<Self, InvalidValue> {
        let wrong = || {
            invalid_value!(
                "'{text}' is not a capture (write NAME=header:FIELD, NAME=cookie:NAME or NAME=body:REGEX)"
            )
        };
        let (name, source) = text.split_once('=').ok_or_else(wrong)?;
        let (kind, argument) = source.split_once(':').ok_or_else(wrong)?;
        if name.is_empty() || argument.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(wrong());
        }
        let source = match kind {
            "header" => CaptureSource::Header(argument.to_ascii_lowercase()),
            "cookie" => CaptureSource::Cookie(argument.to_owned()),
            "body" => CaptureSource::Body(Regex::new(argument).map_err(|error| {
                let reason = error.to_string();
                let reason = reason.lines().last().unwrap_or_default();
                invalid_value!(
                    "'{argument}' is not a regular expression: {}",
                    reason.trim_start_matches("error: ")
                )
            })?),
            _ => return Err(wrong()),
        };
        Ok(Self { name: name.to_owned(), source })
    }
}

/// Returns whether a name in templates may have this byte.
pub(super) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

impl PartialEq for CaptureSource {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header(left), Self::Header(right)) | (Self::Cookie(left), Self::Cookie(right)) => {
                left == right
            }
            (Self::Body(left), Self::Body(right)) => left.as_str() == right.as_str(),
            _ => false,
        }
    }
}

impl Serialize for CaptureSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Header(name) => serializer.collect_str(&format_args!("header:{name}")),
            Self::Cookie(name) => serializer.collect_str(&format_args!("cookie:{name}")),
            Self::Body(pattern) => serializer.collect_str(&format_args!("body:{pattern}")),
        }
    }
}
