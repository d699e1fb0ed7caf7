//! Placeholders in the texts of a file: recognizes and replaces them. An experiment's parameters
//! and a trial's own values have the same rules.
//!
//! `{NAME}` is a placeholder, `{{NAME}}` is the literal text `{NAME}`, and `${NAME}` is a variable
//! of another program. Not for the values of the names.

/// Placeholders that a trial replaces; see `command` and `flags` in [`super::keys`].
pub(crate) const TRIAL_PLACEHOLDERS: &[&str] =
    &["weir", "dir", "subject", "origin", "client", "port", DURATION_PLACEHOLDER];
/// Placeholder that is replaced only where the load is started.
pub(crate) const DURATION_PLACEHOLDER: &str = "duration";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextPiece<'a> {
    Plain(&'a str),
    Placeholder(&'a str),
    /// Literal `{{NAME}}`, with all its braces.
    EscapedBraces(&'a str),
}

pub(crate) fn is_name(name: &str) -> bool {
    let fits = |character: char| {
        character.is_ascii_lowercase() || character.is_ascii_digit() || "-_".contains(character)
    };
    name.chars().all(fits) && name.starts_with(|character: char| character.is_ascii_lowercase())
}

pub(crate) fn split_pieces(text: &str) -> Vec<(usize, TextPiece<'_>)> {
    let mut pieces = Vec::new();
    let (mut plain_from, mut at) = (0, 0);
    while let Some(brace) = text[at..].find('{') {
        let open = at + brace;
        let name = |from: usize| {
            let end = from + text[from..].find('}')?;
            is_name(&text[from..end]).then_some(end)
        };
        let is_doubled = text[open..].starts_with("{{");
        let (piece, end) = match name(open + 1 + usize::from(is_doubled)) {
            Some(end) if is_doubled && text[end..].starts_with("}}") => {
                (TextPiece::EscapedBraces(&text[open..end + 2]), end + 2)
            }
            Some(end) if !is_doubled && !text[..open].ends_with('$') => {
                (TextPiece::Placeholder(&text[open + 1..end]), end + 1)
            }
            _ => {
                at = open + 1;
                continue;
            }
        };
        pieces.push((plain_from, TextPiece::Plain(&text[plain_from..open])));
        pieces.push((open, piece));
        (plain_from, at) = (end, end);
    }
    pieces.push((plain_from, TextPiece::Plain(&text[plain_from..])));
    pieces
}

/// Replaces the placeholders of a text by their values. Those without a value stay, and doubled
/// braces become single ones. Therefore it is done only once, when a text is used.
pub(crate) fn fill<'v>(text: &str, value: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut filled = String::new();
    for (_, piece) in split_pieces(text) {
        match piece {
            TextPiece::Plain(plain) => filled.push_str(plain),
            TextPiece::EscapedBraces(doubled) => filled.push_str(&doubled[1..doubled.len() - 1]),
            TextPiece::Placeholder(name) => match value(name) {
                Some(value) => filled.push_str(value),
                None => filled.push_str(&format!("{{{name}}}")),
            },
        }
    }
    filled
}

pub(crate) fn contains(name: &str, text: &str) -> bool {
    split_pieces(text).iter().any(|(_, piece)| *piece == TextPiece::Placeholder(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let show = |(_, piece)| match piece {
            TextPiece::Plain(text) => String::from(text),
            TextPiece::Placeholder(name) => format!("<{name}>"),
            TextPiece::EscapedBraces(text) => format!("[{text}]"),
        };
        split_pieces(text).into_iter().map(show).collect()
    }

    #[test]
    fn placeholders_are_distinguished_from_other_braces() {
        assert_eq!(shown("a {b} {c-1}{d_e}"), "a <b> <c-1><d_e>");
        assert_eq!(
            shown("events { x 1; } {} {a b} {2} \"{\"a\":1}"),
            "events { x 1; } {} {a b} {2} \"{\"a\":1}"
        );
        assert_eq!(shown("${a} {{a}} {{a}b {a"), "${a} [{{a}}] {<a>b {a");
        assert_eq!(shown("{é} é{a}é"), "{é} é<a>é");
    }

    #[test]
    fn a_text_is_filled_by_the_same_rules() {
        let fill_text = |text| fill(text, |name| ["dir", "port"].contains(&name).then_some("<x>"));
        assert_eq!(fill_text("dir=/data; ls ${dir} {dir}"), "dir=/data; ls ${dir} <x>");
        assert_eq!(fill_text("proxy_pass http://${port};"), "proxy_pass http://${port};");
        assert_eq!(fill_text("{{port}} {port} {other} {{other}}"), "{port} <x> {other} {other}");
        assert!(contains("port", "a {port}"));
        assert!(!contains("port", "${port} {{port}} {ports}"));
    }
}
