//! Converts `cors` of a listener and of a route.

use std::sync::Arc;

use record::document::{Located, Problems};
use regex::Regex;

use crate::plan::{CorsOrigins, CorsPlan, OriginPattern};

use super::validate;
use super::value::Section;

/// Reads the key of a listener or a route; `None`: it was not given. `None` inside: it is switched off.
pub(super) fn parse_cors(owner: &Section, problems: &mut Problems) -> Option<Option<Arc<CorsPlan>>> {
    owner.key_offset("cors")?;
    if owner.is_switched_off("cors") {
        return Some(None);
    }
    let section = owner.table("cors");
    let origins = section.texts("origins");
    if origins.is_empty() {
        // A table without its required key has been reported.
        if section.is_empty_table() {
            problems.add_error(
                section.offset,
                "`cors` needs its origins: write cors = { origins = ['https://app.example.org'] }",
            );
        }
        return Some(None);
    }
    let credentials = section.flag("credentials");
    check_any(&origins, credentials, problems);
    let is_any = origins.iter().any(|origin| &*origin.value == "*");
    let patterns: Vec<_> = origins
        .iter()
        .filter(|origin| &*origin.value != "*")
        .filter_map(|origin| parse_origin(origin, problems))
        .collect();
    let names = |key: &str, problems: &mut Problems| {
        let texts = section.texts(key);
        for text in &texts {
            if &*text.value != "*" {
                problems.ok_or_report(text.offset, validate::check_field_name(&text.value));
            }
        }
        let names: Vec<&str> = texts.iter().map(|text| &*text.value).collect();
        names.join(", ").into_boxed_str()
    };
    let headers = section.key_offset("headers").map(|_| names("headers", problems));
    let (methods, expose) = (names("methods", problems), names("expose", problems));
    for key in ["headers", "expose"] {
        for text in section.texts(key).iter().filter(|text| credentials && &*text.value == "*") {
            let message = format!("'*' in `{key}` is only a name with credentials: list the names");
            problems.add_error(text.offset, message);
        }
    }
    Some(Some(Arc::new(CorsPlan {
        origins: if is_any { CorsOrigins::Any } else { CorsOrigins::Listed(patterns) },
        methods,
        headers,
        expose,
        credentials,
        max_age_s: section.integer_or_zero("max-age") / 1_000_000_000,
    })))
}

/// Checks `*` beside credentials and other origins.
fn check_any(origins: &[Located<Box<str>>], credentials: bool, problems: &mut Problems) {
    if let Some(any) = origins.iter().find(|origin| &*origin.value == "*") {
        if credentials {
            let text =
                "'*' with credentials would let every page read what a user may read: list the origins";
            problems.add_error(any.offset, text);
        }
        if origins.len() > 1 {
            problems.warn(any.offset, "'*' is every origin, so the others have no effect");
        }
    }
}

fn parse_origin(origin: &Located<Box<str>>, problems: &mut Problems) -> Option<OriginPattern> {
    let text = &*origin.value;
    if let Some(regex) = text.strip_prefix("regex:") {
        // The complete origin: a part of it could be a part of another name.
        let complete = format!("^(?:{regex})$");
        let compiled: Option<Regex> =
            problems.ok_or_report(origin.offset, validate::compile_regex(&complete));
        return compiled.map(OriginPattern::Regex);
    }
    let lower = text.to_ascii_lowercase();
    let parsed = lower.split_once("://").and_then(|(scheme, rest)| {
        let is_scheme = !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        let below = rest.strip_prefix("*.");
        let name = below.unwrap_or(rest);
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
        if !is_scheme || !is_name {
            return None;
        }
        Some(match below {
            Some(name) => OriginPattern::Below(format!("{scheme}://").into(), format!(".{name}").into()),
            None => OriginPattern::Exact(lower.clone().into()),
        })
    });
    match parsed {
        Some(pattern) => Some(pattern),
        // Of pages without an address, such as files.
        None if text == "null" => Some(OriginPattern::Exact("null".into())),
        None => {
            let message = format!(
                "'{text}' is not an origin: write https://app.example.org (no path), https://*.example.org, regex:PATTERN or *"
            );
            problems.add_error(origin.offset, message);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;
    use crate::plan::CorsPlan;
    use std::sync::Arc;

    fn cors(keys: &str) -> Result<Arc<CorsPlan>, Vec<String>> {
        let text =
            format!("[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\nreturn = {{}}\ncors = {{ {keys} }}\n");
        let parsed = parse("t", &text)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let settings = parsed.plan.routes[0].settings.for_listener(0).unwrap();
        Ok(settings.access.as_ref().unwrap().cors.clone().unwrap())
    }

    #[test]
    fn origins_are_exact_below_or_regular_expressions() {
        let plan = cors("origins = ['https://A.example', 'https://*.b.example:8443', 'regex:https://c[0-9]\\.example', 'null']").unwrap();
        for origin in [
            "https://a.example",
            "HTTPS://A.example",
            "https://x.b.example:8443",
            "https://x.y.b.example:8443",
            "https://c1.example",
            "null",
        ] {
            assert!(plan.allows(origin.as_bytes()), "{origin}");
        }
        for origin in [
            "",
            "http://a.example",
            "https://a.example:443",
            "https://a.example.evil",
            "https://b.example:8443",
            "https://.b.example:8443",
            "https://evil/x.b.example:8443",
            "https://evil@x.b.example:8443",
            "https://x.b.example",
            "https://xb.example:8443",
            "https://c1.example.evil",
            "https://c12.example",
            "\u{e9}",
        ] {
            assert!(!plan.allows(origin.as_bytes()), "{origin}");
        }
        assert!(!plan.allows(b"\xff") && cors("origins = '*'").unwrap().allows(b"https://any.example"));
    }

    #[test]
    fn faults_have_a_place() {
        for (keys, part) in [
            ("origins = '*', credentials = true", "t:5:20: '*' with credentials would let every page"),
            ("origins = 'a.example'", "'a.example' is not an origin"),
            ("origins = 'https://a.example/'", "is not an origin"),
            ("origins = 'https://*'", "is not an origin"),
            ("origins = 'regex:('", "unclosed group"),
            ("credentials = true", "'origins' is missing"),
            ("origins = 'https://a.example', headers = 'a b'", "'a b'"),
            (
                "origins = 'https://a.example', credentials = true, expose = '*'",
                "is only a name with credentials",
            ),
        ] {
            let problems = cors(keys).map(drop).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(part), "{keys}: {problems:?}");
        }
    }
}
