//! Paths and regular expressions of other programs, as weir compares them: paths are in normal form there, so triplets
//! of unreserved characters are decoded, and no others.

use crate::rules::{Condition, PathTest};
use crate::text::escape_regex;

/// Returns whether a text is a path in normal form, so that weir compares it unchanged.
pub(crate) fn is_normal_path(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte);
    let segments = text.get(1..).unwrap_or_default().split('/');
    text.starts_with('/')
        && text.len() <= 4_096
        && text.bytes().all(is_allowed)
        && !text.contains("//")
        && segments.into_iter().all(|segment| segment != "." && segment != "..")
}

/// Returns whether all characters of a path are unreserved, so that each has one spelling.
fn is_unreserved(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte))
}

/// Returns whether a text is a path that has one spelling, so that a key of a map is enough for it.
pub(crate) fn is_unreserved_path(text: &str) -> bool {
    is_normal_path(text) && is_unreserved(text)
}

/// Returns an expression that matches a decoded text in all its spellings in a normal path.
fn spellings(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        let letter = char::from(byte);
        match byte {
            b'/' => out.push('/'),
            _ if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                out.push_str(&escape_regex(letter.encode_utf8(&mut [0; 4])));
            }
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' => {
                let plain = escape_regex(letter.encode_utf8(&mut [0; 4]));
                out.push_str(&format!("(?:{plain}|%{byte:02X})"));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Returns the condition that a decoded path is this one. Unknown: weir cannot compare it.
pub(crate) fn decoded_exact(text: &str) -> Condition {
    match is_normal_path(text) {
        true if is_unreserved(text) => Condition::path(PathTest::Exact(text.to_owned())),
        true => Condition::path(PathTest::Regex(format!("^{}$", spellings(text)))),
        false if is_spelled(text) => Condition::path(PathTest::Regex(format!("^{}$", spellings(text)))),
        false => Condition::Unknown,
    }
}

/// Returns the condition that a decoded path begins with these bytes. Unknown: weir cannot compare it.
pub(crate) fn decoded_begins(text: &str) -> Condition {
    match is_normal_path(text) {
        _ if text == "/" => Condition::Always,
        true if is_unreserved(text) => Condition::path(PathTest::Begins(text.to_owned())),
        _ if is_spelled(text) => Condition::path(PathTest::Regex(format!("^{}", spellings(text)))),
        _ => Condition::Unknown,
    }
}

/// Returns the condition of a pattern of Caddy, which compares decoded paths without case: a path, or with `*` at its
/// end, at its begin or at both. Unknown: weir cannot compare it.
pub(crate) fn caddy_pattern(pattern: &str) -> Condition {
    let (bare, is_end) = pattern.strip_suffix('*').map_or((pattern, true), |bare| (bare, false));
    let (bare, is_start) = bare.strip_prefix('*').map_or((bare, true), |bare| (bare, false));
    if bare.contains(['*', '?', '[', '\\', '{', '%'])
        || (is_start && !bare.starts_with('/'))
        || bare.contains("//")
    {
        return if pattern == "*" { Condition::Always } else { Condition::Unknown };
    }
    let text = bare.to_ascii_lowercase();
    let is_plain = is_unreserved(&text) && !text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let is_known = !text.bytes().any(|byte| byte < b' ' || byte == 0x7f || byte == b';');
    let is_whole = text.split('/').all(|segment| segment != "." && segment != "..");
    match (is_start, is_end) {
        _ if !is_known || !is_whole || bare.is_empty() => Condition::Unknown,
        (true, false) if text == "/" => Condition::Always,
        (true, true) if is_plain => Condition::path(PathTest::Exact(text)),
        (true, false) if is_plain => Condition::path(PathTest::Begins(text)),
        (true, _) => {
            let end = if is_end { "$" } else { "" };
            Condition::path(PathTest::Regex(format!("(?i)^{}{end}", spellings(&text))))
        }
        (false, _) => {
            let end = if is_end { "$" } else { "" };
            let condition = Condition::path(PathTest::Regex(format!("(?i){}{end}", spellings(&text))));
            let is_digit = text.starts_with(|letter: char| letter.is_ascii_hexdigit());
            if is_digit { condition.except(&has_triplet()) } else { condition }
        }
    }
}

/// Returns whether a path that is not in normal form has only characters that need a triplet.
fn is_spelled(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= 4_096
        && !text.contains("//")
        && !text.bytes().any(|byte| byte < b' ' || byte == 0x7f || b"\\%;".contains(&byte))
        && text.split('/').all(|segment| segment != "." && segment != "..")
}

/// Condition for the requests whose path has a triplet that weir does not decode.
pub(crate) fn has_triplet() -> Condition {
    Condition::path(PathTest::Regex("%".to_owned()))
}

/// Returns the condition that an expression matches the decoded path. With a triplet in the path it may be unknown.
pub(crate) fn decoded_regex(text: &str, ignores_case: bool) -> Option<Condition> {
    let regex = portable(text, ignores_case)?;
    let condition = Condition::path(PathTest::Regex(regex));
    Some(match is_aligned(text) {
        true => condition,
        false => condition.except(&has_triplet()),
    })
}

/// Returns an expression with the same meaning in weir.
pub(crate) fn portable(text: &str, ignores_case: bool) -> Option<String> {
    is_portable_regex(text).then(|| if ignores_case { format!("(?i){text}") } else { text.to_owned() })
}

/// Returns whether an expression cannot tell a triplet from the character that it stands for: it has literals that need
/// no triplet, and wildcards of any length, behind which no literal is a hexadecimal digit.
pub(crate) fn is_aligned(text: &str) -> bool {
    let mut letters = text.chars().peekable();
    // True where the next literal may be a digit of a triplet, and where the last one could.
    let (mut is_loose, mut was_loose) = (true, true);
    // Of each group: whether it begins at such a place, and whether one of its alternatives ends there.
    let mut groups = vec![(true, false)];
    while let Some(letter) = letters.next() {
        let is_digit = match letter {
            '^' => {
                is_loose = false;
                continue;
            }
            '$' => continue,
            '(' => {
                if letters.next_if_eq(&'?').is_some() && letters.next() != Some(':') {
                    return false;
                }
                groups.push((is_loose, false));
                continue;
            }
            '|' => {
                let Some((start, end)) = groups.last_mut() else { return false };
                *end |= is_loose;
                is_loose = *start;
                continue;
            }
            ')' => {
                let Some((start, end)) = groups.pop() else { return false };
                was_loose = start;
                is_loose |= end;
                continue;
            }
            '?' | '*' | '+' => {
                if is_loose && letter != '?' {
                    return false;
                }
                is_loose |= was_loose && letter != '+';
                continue;
            }
            '.' | '[' if letter == '.' || letters.peek() == Some(&'^') => {
                let is_segment = letter == '.'
                    || [Some('^'), Some('/'), Some(']')].map(|expected| letters.next() == expected)
                        == [true; 3];
                if !is_segment || letters.next_if(|next| matches!(next, '*' | '+')).is_none() {
                    return false;
                }
                (was_loose, is_loose) = (is_loose, true);
                continue;
            }
            '[' => {
                let is_class = letters.by_ref().take_while(|letter| *letter != ']').all(is_plain);
                if !is_class {
                    return false;
                }
                true
            }
            '\\' => match letters.next() {
                Some('.' | '-' | '/' | '_' | '~') => false,
                Some('d' | 'w') => true,
                _ => return false,
            },
            literal if is_plain(literal) || literal == '/' => literal.is_ascii_hexdigit(),
            _ => return false,
        };
        if is_loose && is_digit {
            return false;
        }
        (was_loose, is_loose) = (is_loose, false);
    }
    groups.len() == 1
}

/// Returns whether a character has one spelling in a path.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-._~".contains(letter)
}

/// Returns whether a group, of which this is the text behind its parenthesis, only captures, groups or ignores case.
fn is_portable_group(text: &str) -> bool {
    match text.strip_prefix('?') {
        Some(kind) => {
            let is_lookbehind = kind.starts_with("<=") || kind.starts_with("<!");
            let known = ["P<", "<", ":", "i)", "i:"];
            known.iter().any(|start| kind.starts_with(start)) && !is_lookbehind
        }
        None => !text.starts_with('*'),
    }
}

/// Returns whether an expression of PCRE has the same meaning in weir: it uses neither assertions about the
/// surroundings, nor references to groups, nor atomic or recursive groups.
pub(crate) fn is_portable_regex(text: &str) -> bool {
    let mut rest = text;
    let mut in_class = false;
    let mut after_quantifier = false;
    let mut depth = 0_i32;
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return false;
    }
    while let Some(letter) = rest.chars().next() {
        let after = &rest[letter.len_utf8()..];
        let mut quantifier = false;
        match letter {
            '\\' => {
                let Some(escaped) = after.chars().next() else { return false };
                let is_known = "dDwWsSbB.-/\\+*?()|[]{}^$_~#&@!,:;=% \"'".contains(escaped);
                if !is_known {
                    return false;
                }
                rest = &after[escaped.len_utf8()..];
                after_quantifier = false;
                continue;
            }
            '[' if in_class => return false,
            '[' => {
                in_class = true;
                // A bracket at the start of a class is literal in PCRE, and not in weir.
                if after.starts_with(']') || after.starts_with("^]") {
                    return false;
                }
            }
            ']' if in_class => in_class = false,
            '&' | '-' | '~' if in_class && after.starts_with(letter) => return false,
            '(' if !in_class => {
                depth += 1;
                if !is_portable_group(after) {
                    return false;
                }
            }
            ')' if !in_class => {
                depth -= 1;
                if depth < 0 {
                    return false;
                }
            }
            // A brace that is no quantifier is literal in PCRE, and an error in weir.
            '{' if !in_class => {
                let Some((count, _)) = after.split_once('}') else { return false };
                let is_count = count.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
                if !is_count || count.is_empty() || count.starts_with(',') {
                    return false;
                }
            }
            '*' | '?' | '}' if !in_class => quantifier = true,
            '+' if !in_class => {
                if after_quantifier {
                    return false;
                }
                quantifier = true;
            }
            _ => {}
        }
        // The question mark of a lazy quantifier ends it.
        after_quantifier = quantifier && !(after_quantifier && letter == '?');
        rest = after;
    }
    !in_class && depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_with_another_meaning_are_found() {
        for text in
            ["\\.php$", "^/(a|b)/[0-9]+?$", "(?i)x", "(?<name>.+)", "^(www\\.)?(.+)$", "[^/]+", "a{2,3}"]
        {
            assert!(is_portable_regex(text), "{text}");
        }
        for text in [
            "(?!a)", "(?<=a)b", "(a)\\1", "a++", "(?>a)", "[]a]", "[a[b]", "a)", "(", "[a&&b]", "\\", "a{x}",
            "\\h", "a\nb",
        ] {
            assert!(!is_portable_regex(text), "{text}");
        }
    }

    #[test]
    fn expressions_that_a_triplet_may_change_are_found() {
        for text in [
            "\\.php$",
            "^/v1/.*\\.png$",
            "^/(api|static)/",
            "/[^/]+/x",
            "^/a/(?:b|c)/",
            "\\.html?$",
            "^/v[0-9]+/",
            "^/w/?$",
        ] {
            assert!(is_aligned(text), "{text}");
        }
        for text in [
            "admin",
            "^/.{3}$",
            "[!]",
            "\\s",
            "^/x/.*20$",
            "^/a[^b]",
            "(png|css)$",
            "^/(.*)b",
            "(?i)x",
            "^/x.*[0-9]",
        ] {
            assert!(!is_aligned(text), "{text}");
        }
    }

    #[test]
    fn patterns_of_caddy_are_paths_begins_ends_or_parts() {
        let regex = |text: &str| Condition::path(PathTest::Regex(text.into()));
        assert_eq!(caddy_pattern("/Api/*"), regex("(?i)^/api/"));
        assert_eq!(caddy_pattern("/x"), regex("(?i)^/x$"));
        assert_eq!(caddy_pattern("*.php"), regex("(?i)\\.php$"));
        assert_eq!(caddy_pattern("*/x/*"), regex("(?i)/x/"));
        assert_eq!(caddy_pattern("/1"), Condition::path(PathTest::Exact("/1".into())));
        assert_eq!((caddy_pattern("/*"), caddy_pattern("*")), (Condition::Always, Condition::Always));
        for unknown in ["/a/*/b", "/a?", "x", "", "/a//b", "/%2F", "/a;b"] {
            assert_eq!(caddy_pattern(unknown), Condition::Unknown, "{unknown}");
        }
        assert!(!caddy_pattern("*css").is_exact());
    }

    #[test]
    fn a_decoded_path_has_all_spellings() {
        assert_eq!(decoded_exact("/a"), Condition::path(PathTest::Exact("/a".into())));
        assert_eq!(decoded_exact("/a!b c"), Condition::path(PathTest::Regex("^/a(?:!|%21)b%20c$".into())));
        assert_eq!(decoded_begins("/é"), Condition::path(PathTest::Regex("^/%C3%A9".into())));
        for unknown in ["/a//b", "/../a", "/a;b", "x", "/%2F"] {
            assert_eq!(decoded_begins(unknown), Condition::Unknown, "{unknown}");
        }
    }
}
