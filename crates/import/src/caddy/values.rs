//! Placeholders that a Caddyfile defines: `map` and `vars`. Their uses are replaced in the words of a block.

use std::borrow::Cow;

use super::matcher::{is_matcher, template};
use crate::directive::Directive;
use crate::draft::{Draft, EXPRESSIONS_MAX, MapEntries, MapFault, MapSection, is_map_text};
use crate::left::Kind;
use crate::paths::{is_aligned, is_portable_regex, is_unreserved_path};
use crate::rules::key_reads;
use crate::text::escape_regex;

/// Begins the name of a map in a placeholder, and separates it from the map's key. No word of a source has it.
pub(super) const MARKER: char = '\u{1}';

/// Returns a block with the values of its `map` and `vars` where their placeholders are. Those that weir cannot have
/// are reported, and their placeholders stay. `is_sorted`: they count also in front of their place.
pub(super) fn replaced<'b>(
    block: &'b [Directive],
    is_sorted: bool,
    draft: &mut Draft<'_>,
) -> Cow<'b, [Directive]> {
    let defines = |directive: &Directive| matches!(directive.name(), "map" | "vars");
    if !block.iter().any(defines) {
        return Cow::Borrowed(block);
    }
    let mut rest = block.to_vec();
    let mut at = 0;
    while at < rest.len() {
        let pairs = match rest[at].name() {
            "vars" => {
                let pairs = constants(&rest[at]);
                if pairs.is_none() {
                    let text = "with a matcher, or with several values, it is that of some requests";
                    draft.leave(Kind::NotSupported, &rest[at].origin, text);
                }
                pairs
            }
            "map" => mapped(&rest[at], draft),
            _ => None,
        };
        let Some(pairs) = pairs else {
            at += 1;
            continue;
        };
        let directive = rest.remove(at);
        let start = if is_sorted { 0 } else { at };
        let bytes: usize = rest[start..].iter().map(weight).sum();
        if !draft.spend((bytes + 64) * pairs.len().max(1), &directive.origin) {
            break;
        }
        for (name, value) in &pairs {
            rest[start..].iter_mut().for_each(|directive| replace(directive, name, value));
        }
    }
    Cow::Owned(rest)
}

fn weight(directive: &Directive) -> usize {
    let words: usize = directive.words.iter().map(String::len).sum();
    words + directive.inner().iter().map(weight).sum::<usize>()
}

fn replace(directive: &mut Directive, name: &str, value: &str) {
    for word in directive.words.iter_mut().filter(|word| word.contains(name)) {
        // Texts in texts may not grow without end.
        if word.len() + value.len() * word.matches(name).count() <= 64 << 10 {
            *word = word.replace(name, value);
        }
    }
    directive.block.iter_mut().flatten().for_each(|inner| replace(inner, name, value));
}

/// Returns the placeholders of `vars` with their values; `None`: they are those of some requests.
fn constants(directive: &Directive) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut add = |words: &[String]| match words {
        [name, value] if !name.contains(['{', '}']) && !is_matcher(name) => {
            pairs.push((format!("{{vars.{name}}}"), value.clone()));
            pairs.push((format!("{{http.vars.{name}}}"), value.clone()));
            Some(())
        }
        _ => None,
    };
    if !directive.arguments().is_empty() {
        add(directive.arguments())?;
    }
    for inner in directive.inner() {
        add(&inner.words)?;
    }
    Some(pairs)
}

/// Returns the placeholders of `map` with those of weir's maps; `None`: weir cannot have it, which is reported.
fn mapped(directive: &Directive, draft: &mut Draft<'_>) -> Option<Vec<(String, String)>> {
    let (source, names) = directive.arguments().split_first()?;
    let is_name = |name: &String| name.starts_with('{') && name.ends_with('}') && !name[1..].contains('{');
    if is_matcher(source) || names.is_empty() || !names.iter().all(is_name) {
        let text = "with a matcher, the values are those of some requests: weir has one map for all";
        draft.leave(Kind::NotSupported, &directive.origin, text);
        return None;
    }
    let mut pairs = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match section(directive, source, index) {
            Ok(section) => {
                let key = section.key.clone();
                let map = draft.add_map(name.trim_matches(['{', '}']), section, &directive.origin);
                if matches!(key.as_str(), "host" | "{host}") {
                    let text = "weir compares a host without case";
                    draft.leave(Kind::Differs, &directive.origin, text);
                }
                // Braces would end the placeholder.
                let key = key.replace('{', "\u{2}").replace('}', "\u{3}");
                pairs.push((name.clone(), format!("{{{MARKER}{map}{MARKER}{key}}}")));
            }
            Err(reason) => {
                let text = format!("weir cannot have {name}: {reason}");
                draft.leave(Kind::NotSupported, &directive.origin, text);
            }
        }
    }
    Some(pairs)
}

/// Returns the map and its key of a placeholder's name.
pub(super) fn map_of(name: &str) -> Option<(&str, String)> {
    let (map, key) = name.strip_prefix(MARKER)?.split_once(MARKER)?;
    Some((map, key.replace('\u{2}', "{").replace('\u{3}', "}")))
}

/// Returns the map of a destination, or the reason why weir cannot have it.
fn section(directive: &Directive, source: &str, index: usize) -> Result<MapSection, MapFault> {
    let key = template(source).and_then(|template| template.key()).ok_or(MapFault::Text)?;
    let has_path = key_reads(&key).any(|name| name == "path");
    let is_decoded = has_path && !key.contains("{query}");
    let mut default = String::new();
    let mut entries: Vec<(&str, &str)> = Vec::new();
    for inner in directive.inner() {
        let Some(value) = inner.arguments().get(index).map(String::as_str) else { continue };
        match inner.name() {
            "default" => value.clone_into(&mut default),
            // No value of this destination.
            _ if value == "-" => {}
            name => entries.push((name, value)),
        }
    }
    let values = entries.iter().map(|(_, value)| *value).chain([default.as_str()]);
    if values.into_iter().any(|value| value.contains('{') || !is_map_text(value)) {
        return Err(MapFault::Value);
    }
    let is_regex = entries.iter().any(|(input, _)| input.starts_with('~'));
    let mut written: Vec<(String, String)> = Vec::new();
    for (input, value) in entries {
        let text = match input.strip_prefix('~') {
            Some(regex) => {
                if !is_portable_regex(regex) || (is_decoded && !is_aligned(regex)) || value.contains('$') {
                    return Err(MapFault::Expression(regex.to_owned()));
                }
                regex.to_owned()
            }
            None if is_decoded && !is_unreserved_path(input) => {
                return Err(MapFault::Spellings(input.to_owned()));
            }
            None if is_regex => format!("^{}$", escape_regex(input)),
            None => input.to_owned(),
        };
        if text.is_empty() || !is_map_text(&text) {
            return Err(MapFault::Letters);
        }
        // The first one that matches counts.
        if !written.iter().any(|(known, _)| *known == text) {
            written.push((text, value.to_owned()));
        }
    }
    if written.len() > if is_regex { EXPRESSIONS_MAX } else { 4 * EXPRESSIONS_MAX } {
        return Err(MapFault::TooMany);
    }
    Ok(MapSection {
        key,
        kind: if is_regex { "regex" } else { "exact" },
        ignores_case: false,
        entries: MapEntries::Inline(written),
        default: Some(default),
    })
}

#[cfg(test)]
mod tests {
    use crate::fuzzing::NoSurroundings;
    use crate::{Program, convert};

    fn site(text: &str) -> (String, Vec<String>) {
        let text = format!(":8080 {{\n{text}\n}}\n");
        let import = convert(Program::Caddy, "Caddyfile", &text, &mut NoSurroundings).unwrap();
        let left = import.report.iter().filter(|left| left.kind.is_left()).map(ToString::to_string).collect();
        (import.config, left)
    }

    #[test]
    fn maps_and_variables_are_values() {
        let (text, left) = site(
            "map {method} {kind} {limit} {\n GET read 1\n ~^P write -\n default other 9\n}\n\
             vars name app\n vars {\n zone b\n}\n\
             header X-Kind \"{kind}-{limit}\"\n header X-Name {vars.name}{http.vars.zone}\n\
             @w vars {kind} write\n respond @w \"no\" 403\n reverse_proxy a:1",
        );
        for part in [
            "[map.kind]\n",
            "key = \"method\"",
            "match = \"regex\"",
            "default = \"other\"",
            "entries = { \"^GET$\" = \"read\", \"^P\" = \"write\" }",
            "entries = { GET = \"1\" }",
            "x-kind = \"{map.kind}-{map.limit}\"",
            "x-name = \"appb\"",
            "map = { kind = \"write\" }",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn maps_that_weir_cannot_have_are_left() {
        for (map, reason) in [
            ("map {http.error} {x} {\n a b\n}", "no such text"),
            ("map {path} {x} {\n ~(.*)20 b\n}", "the expression"),
            ("map {method} {x} {\n ~^(.*)$ a$1\n}", "the expression"),
            ("map {method} {x} {\n GET {host}\n}", "depends on the request"),
            ("map /a {method} {x} {\n GET a\n}", "those of some requests"),
        ] {
            let (text, left) = site(&format!(
                "{map}\n@x vars {{x}} a\nrespond @x no 403\nheader X-A {{x}}\nreverse_proxy a:1"
            ));
            assert!(left.iter().any(|line| line.contains(reason)), "{map}\n{left:?}");
            assert!(text.contains("deny = 501") && !text.contains("x-a ="), "{map}\n{text}");
        }
        // A marker of the source is none.
        let (text, _) = site("header X-A \"{\u{1}kind\u{1}method}\"\nrespond ok");
        assert!(!text.contains("{map."), "{text}");
    }
}
