//! Properties of texts with values, and of conditions.

use std::cell::Cell;

use regex::Regex;
use wire::encode;

use crate::plan::{LogTemplate, Text, Variable};
use crate::template::{Escape, KnownValues, Scope, TEXT_BYTES_MAX, Values, parse, parse_value};
use crate::{ExplainRequest, config, explain, log};

const VALUE_BYTES_MAX: usize = 4096;

/// Checks a text, the first line, with a value for all of its names, the rest: the results are bounded, a field
/// and a location are valid, and a location stays on the host that the text names. `true`: the text has values.
///
/// # Panics
/// The property does not hold.
pub fn template(bytes: &[u8]) -> bool {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let (text, value) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let values = OneValue { value: &value[..value.len().min(VALUE_BYTES_MAX)], overflows: Cell::new(0) };
    // Compiling costs more than everything else.
    let has_group = ["{1", "{2", "{name"].iter().any(|start| text.contains(start));
    let regex = if has_group { Regex::new("^/(?P<name>[^/]*)(/.*)?$").ok() } else { None };
    if let Ok(key) = parse_value(text, Scope::Key, KnownValues::default()) {
        let mut out = Vec::new();
        key.render_key(&values, &mut out);
        assert!(out.len() <= TEXT_BYTES_MAX);
    }
    check_log_format(text, values.value);
    config::check_variables(text);
    let Ok(parsed) = parse(text, Scope::Response, KnownValues { regex: regex.as_ref(), maps: &[] }) else {
        return false;
    };
    let Text::Template(template) = &parsed else { return false };
    let is_field_text = encode::check_field_value(text.as_bytes()).is_ok();
    for escape in [Escape::Field, Escape::Plain, Escape::Html, Escape::Json] {
        let mut out = Vec::new();
        if template.render(&values, escape, &mut out).is_err() {
            assert!(out.is_empty() && values.overflows.get() > 0);
            continue;
        }
        assert!(out.len() <= TEXT_BYTES_MAX);
        let has_line_end = out.iter().any(|byte| b"\r\n\0".contains(byte));
        assert!(!has_line_end || !is_field_text, "{}", out.escape_ascii());
    }
    check_escapes(&values);
    let is_location = encode::check_target(text.split('#').collect::<String>().as_str()).is_ok();
    if is_location && let Ok(location) = parsed.location(&values) {
        check_location(text, &location);
    }
    true
}

/// Checks that a value stays inside a string of JSON, and inside an attribute of HTML.
fn check_escapes(values: &OneValue<'_>) {
    let Ok(Text::Template(template)) = parse("{path}", Scope::Message, KnownValues::default()) else {
        return;
    };
    let mut out = b"\"".to_vec();
    if template.render(values, Escape::Json, &mut out).is_ok() {
        out.push(b'"');
        assert!(serde_json::from_slice::<String>(&out).is_ok(), "{}", out.escape_ascii());
    }
    out.clear();
    let is_rendered = template.render(values, Escape::Html, &mut out).is_ok();
    assert!(!is_rendered || !out.iter().any(|byte| b"<>\"'".contains(byte)), "{}", out.escape_ascii());
}

fn check_location(text: &str, location: &[u8]) {
    let shown = location.escape_ascii();
    assert!(location.is_ascii() && !location.iter().any(u8::is_ascii_control), "{shown}");
    assert!(!location.starts_with(b"//") || text.starts_with("//"), "{text} becomes {shown}");
}

struct OneValue<'a> {
    value: &'a [u8],
    overflows: Cell<u32>,
}

impl Values for OneValue<'_> {
    fn append(&self, _: &Variable, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }

    fn note_overflow(&self) {
        self.overflows.set(self.overflows.get() + 1);
    }
}

/// Checks a format of a log: a line is complete and bounded, and has no other end of a line.
fn check_log_format(text: &str, value: &[u8]) {
    if encode::check_field_value(text.as_bytes()).is_err() {
        return;
    }
    for is_json in [false, true] {
        let format = parse(text, Scope::Log, KnownValues::default())
            .ok()
            .and_then(|text| LogTemplate::new(text, is_json).ok());
        let Some(format) = format else { return };
        let line = log::line_of_values(&format, value);
        assert!(line.ends_with(b"\n"), "{}", line.escape_ascii());
        let has_control = line[..line.len() - 1].iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
        assert!(!has_control, "{}", line.escape_ascii());
    }
}

/// Checks a condition in TOML: it is valid, or each of its problems has a message; and it holds for a request,
/// or its opposite does. `true`: it was valid.
///
/// # Panics
/// The property does not hold.
pub fn condition(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let config = |condition: &str| {
        format!("[listener.web]\nbind = \"127.0.0.1:0\"\n[[route]]\nwhen = {condition}\ndeny = true\n")
    };
    let parsed = match config::parse("weir.toml", &config(text)) {
        Ok(parsed) => parsed,
        Err(problems) => {
            assert!(problems.iter().all(|problem| problem.to_string().starts_with("weir.toml:")));
            return false;
        }
    };
    let Ok(opposite) = config::parse("weir.toml", &config(&format!("{{ not = {text} }}"))) else {
        return true;
    };
    for request in ["GET http://a.example/x/y?q=1", "POST http://b.example/", "GET /x/y;a=b"] {
        let fields = ["X-A: v".to_owned(), "Cookie: user=7".to_owned()];
        let Ok(request) = ExplainRequest::parse(request, &fields, "10.1.2.3") else { continue };
        let holds = |plan| explain(plan, &request).is_ok_and(|explanation| explanation.route().is_some());
        // A text that closes its table continues with other keys.
        let is_one_table = opposite.plan.routes.len() == 1 && parsed.plan.routes.len() == 1;
        let is_exact = is_one_table && text.trim_end().ends_with('}') && !text.contains(['\n', '\r', '#']);
        assert!(!is_exact || holds(&parsed.plan) != holds(&opposite.plan), "{text}");
    }
    true
}
