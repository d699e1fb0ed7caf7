//! Placeholders in the texts of a file: which braces are one, and a text with what stands for them. The same
//! rules for an experiment's parameters and for what a trial fills in.
//!
//! `{NAME}` is a placeholder, `{{NAME}}` stands for `{NAME}` itself, and `${NAME}` is a variable of somebody
//! else's. Not for what stands for a name.

/// What a trial fills in; see `command` and `flags` in [`super::keys`].
pub(crate) const OF_THE_LAB: &[&str] =
    &["weir", "dir", "subject", "origin", "client", "port", DURATION];
/// What is filled in where the load is started, and nowhere else.
pub(crate) const DURATION: &str = "duration";

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// What is left as it is.
    Plain(&'a str),
    /// A placeholder's name.
    Placeholder(&'a str),
    /// `{{NAME}}`, with all its braces.
    Doubled(&'a str),
}

/// Whether it is a placeholder's name.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || "-_".contains(one);
    name.chars().all(fits) && name.starts_with(|one: char| one.is_ascii_lowercase())
}

/// A text in pieces, each with the byte at which it starts.
pub(crate) fn pieces(text: &str) -> Vec<(usize, Piece<'_>)> {
    let mut pieces = Vec::new();
    let (mut plain_from, mut at) = (0, 0);
    while let Some(found) = text[at..].find('{') {
        let open = at + found;
        let name = |from: usize| {
            let end = from + text[from..].find('}')?;
            is_name(&text[from..end]).then_some(end)
        };
        let is_doubled = text[open..].starts_with("{{");
        let (piece, end) = match name(open + 1 + usize::from(is_doubled)) {
            Some(end) if is_doubled && text[end..].starts_with("}}") => {
                (Piece::Doubled(&text[open..end + 2]), end + 2)
            }
            Some(end) if !is_doubled && !text[..open].ends_with('$') => {
                (Piece::Placeholder(&text[open + 1..end]), end + 1)
            }
            _ => {
                at = open + 1;
                continue;
            }
        };
        pieces.push((plain_from, Piece::Plain(&text[plain_from..open])));
        pieces.push((open, piece));
        (plain_from, at) = (end, end);
    }
    pieces.push((plain_from, Piece::Plain(&text[plain_from..])));
    pieces
}

/// A text with what stands for its placeholders. Those for which nothing does are left as they are, and
/// doubled braces are single ones from then on: it is done once, when a text is used.
pub(crate) fn filled<'v>(text: &str, value: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut filled = String::new();
    for (_, piece) in pieces(text) {
        match piece {
            Piece::Plain(plain) => filled.push_str(plain),
            Piece::Doubled(doubled) => filled.push_str(&doubled[1..doubled.len() - 1]),
            Piece::Placeholder(name) => match value(name) {
                Some(value) => filled.push_str(value),
                None => filled.push_str(&format!("{{{name}}}")),
            },
        }
    }
    filled
}

/// Whether a placeholder stands in a text.
pub(crate) fn stands_in(name: &str, text: &str) -> bool {
    pieces(text).iter().any(|(_, piece)| *piece == Piece::Placeholder(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let show = |(_, piece)| match piece {
            Piece::Plain(text) => String::from(text),
            Piece::Placeholder(name) => format!("<{name}>"),
            Piece::Doubled(text) => format!("[{text}]"),
        };
        pieces(text).into_iter().map(show).collect()
    }

    #[test]
    fn placeholders_are_told_from_other_braces() {
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
        let of = |text| filled(text, |name| ["dir", "port"].contains(&name).then_some("<x>"));
        assert_eq!(of("dir=/data; ls ${dir} {dir}"), "dir=/data; ls ${dir} <x>");
        assert_eq!(of("proxy_pass http://${port};"), "proxy_pass http://${port};");
        assert_eq!(of("{{port}} {port} {other} {{other}}"), "{port} <x> {other} {other}");
        assert!(stands_in("port", "a {port}"));
        assert!(!stands_in("port", "${port} {{port}} {ports}"));
    }
}
