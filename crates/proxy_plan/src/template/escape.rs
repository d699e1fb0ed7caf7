//! Escaping of values for the place of their text, so that a value cannot end it or change its structure.

/// Rule for the values of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// A field: control characters, CR, LF and NUL among them, are dropped.
    Field,
    /// Plain text: the same.
    Plain,
    /// HTML or XML: also, `& < > " '` become character references.
    Html,
    /// JSON, inside a string: `"`, `\` and control characters are escaped, invalid UTF-8 becomes U+FFFD.
    Json,
}

impl Escape {
    /// Returns the rule for content of a media type.
    pub fn from_content_type(content_type: &str) -> Self {
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match &*media_type {
            "text/html" | "text/xml" => Self::Html,
            "application/json" => Self::Json,
            other if other.ends_with("xml") => Self::Html,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Plain,
        }
    }

    /// Escapes the value that starts at `at` and ends the buffer.
    #[inline]
    pub(super) fn apply(self, at: usize, out: &mut Vec<u8>) {
        let needs_escape = |byte: &u8| match self {
            Self::Field | Self::Plain => is_dropped(*byte),
            Self::Html => is_dropped(*byte) || b"&<>\"'".contains(byte),
            Self::Json => is_dropped(*byte) || b"\"\\\t".contains(byte) || !byte.is_ascii(),
        };
        if !out[at..].iter().any(needs_escape) {
            return;
        }
        let value = out.split_off(at);
        match self {
            Self::Field | Self::Plain => out.extend(value.iter().filter(|byte| !is_dropped(**byte))),
            Self::Html => value.iter().for_each(|&byte| append_html(byte, out)),
            Self::Json => append_json(&String::from_utf8_lossy(&value), out),
        }
    }
}

/// Returns whether a byte is a control character, except for the tab.
#[inline]
fn is_dropped(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

fn append_html(byte: u8, out: &mut Vec<u8>) {
    let reference: &[u8] = match byte {
        b'&' => b"&amp;",
        b'<' => b"&lt;",
        b'>' => b"&gt;",
        b'"' => b"&quot;",
        b'\'' => b"&#39;",
        _ if is_dropped(byte) => b"",
        _ => return out.push(byte),
    };
    out.extend_from_slice(reference);
}

fn append_json(value: &str, out: &mut Vec<u8>) {
    for character in value.chars() {
        match character {
            '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
            control if control.is_ascii_control() => {
                out.extend_from_slice(format!("\\u{:04x}", control as u32).as_bytes());
            }
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}
