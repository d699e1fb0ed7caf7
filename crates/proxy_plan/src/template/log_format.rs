//! Format of a line of a log by a text with values.

use super::{Template, Text};

/// Maximum length of the text of a format in bytes.
pub const FORMAT_BYTES_MAX: usize = 4_096;
/// Maximum number of values of a format.
pub(super) const FORMAT_VALUES_MAX: usize = 64;

/// Format of a line of a log by a text with values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTemplate {
    pub template: Template,
    pub value_count: usize,
    /// True if values are parts of strings in JSON.
    pub is_json: bool,
}

/// Fault of the text of a format as a whole.
#[derive(Debug, thiserror::Error)]
pub enum LogFormatFault {
    #[error("a format has at most {FORMAT_BYTES_MAX} bytes")]
    Long,
    #[error("a format has at most {FORMAT_VALUES_MAX} values")]
    ManyValues,
    #[error(
        "a format without a value writes the same line for each request: add a value, such as {{status}}"
    )]
    NoValue,
}

impl LogTemplate {
    /// Creates the format from a parsed text.
    ///
    /// # Errors
    /// The text is too long, or has no value or too many.
    pub fn new(text: Text, is_json: bool) -> Result<Self, LogFormatFault> {
        let template = match text {
            Text::Literal(_) => return Err(LogFormatFault::NoValue),
            Text::Template(template) => template,
        };
        let value_count = template.variables().count();
        match template.source().len() {
            0..=FORMAT_BYTES_MAX if value_count > FORMAT_VALUES_MAX => Err(LogFormatFault::ManyValues),
            0..=FORMAT_BYTES_MAX => Ok(Self { template, value_count, is_json }),
            _ => Err(LogFormatFault::Long),
        }
    }
}
