//! Contents as weir has them: media types and directories of files.

use crate::Surroundings;

/// Types of every content.
pub(crate) const ALL_TYPES: &str =
    "text/* application/* image/* font/* audio/* video/* message/* model/* multipart/*";

/// Maximum number of types of one directive.
const TYPES_MAX: usize = 64;

/// Returns media types in weir's form, with `*` for all; `None`: there are too many. What is no type is left out, as no
/// content has it.
pub(crate) fn media_types(words: &[String]) -> Option<Vec<String>> {
    let lower = words.iter().map(|word| word.to_ascii_lowercase());
    let types: Vec<String> = lower.filter(|word| word == "*" || is_media_type(word)).collect();
    (types.len() <= TYPES_MAX).then_some(types)
}

fn is_media_type(text: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    text.len() <= 100 && text.split_once('/').is_some_and(|(kind, subtype)| is_name(kind) && is_name(subtype))
}

/// Returns whether a path is that of a directory of this machine, complete and without variables.
pub(crate) fn is_directory(path: &str, surroundings: &mut dyn Surroundings) -> bool {
    // A slash at the end of a file names nothing.
    is_fixed_path(path) && surroundings.exists(&format!("{}/", path.trim_end_matches('/')))
}

/// Returns whether a path is complete and without variables.
pub(crate) fn is_fixed_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= 1_024
        && !path.contains(['$', '{', '}'])
        && !path.contains(char::is_control)
        && !path.split('/').any(|segment| segment == "..")
}

/// Returns whether a text is the name of a file that weir serves as an index.
pub(crate) fn is_index_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    !name.is_empty() && name.len() <= 200 && !name.starts_with('.') && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_weirs_form() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let types = media_types(&words("Text/CSS * text/* x a/b;c font/woff2")).unwrap();
        assert_eq!(types, ["text/css", "*", "font/woff2"]);
        assert!(media_types(&vec!["a/b".to_owned(); 65]).is_none());
    }

    #[test]
    fn names_and_paths_are_fixed() {
        for (name, expected) in
            [("index.html", true), (".x", false), ("a/b", false), ("", false), ("$a", false)]
        {
            assert_eq!(is_index_name(name), expected, "{name}");
        }
        for (path, expected) in [("/srv", true), ("srv", false), ("/a/../b", false), ("/$host", false)] {
            assert_eq!(is_fixed_path(path), expected, "{path}");
        }
    }
}
