//! Variables of a section: what a variable is set to once, for all requests, is in the place of each of its uses.

use std::rc::Rc;

use super::lexer::Line;

/// A variable with its expression.
struct Variable {
    name: String,
    expression: String,
}

/// Returns the lines of a section with the expressions of its variables. A variable stays if its value may be another
/// one where it is used.
pub(super) fn replaced(lines: &[Line]) -> Vec<Line> {
    let variables = variables(lines);
    let mut room = GROWTH_BYTES_MAX;
    let replaced = lines.iter().map(|line| {
        if room == 0 || variables.is_empty() || !line.words.iter().any(|word| word.contains("var(")) {
            return line.clone();
        }
        let words: Vec<String> = line.words.iter().map(|word| replaced_word(word, &variables)).collect();
        room = room.saturating_sub(words.iter().map(String::len).sum());
        Line { words, is_complete: line.is_complete, origin: Rc::clone(&line.origin) }
    });
    replaced.collect()
}

fn replaced_word(word: &str, variables: &[Variable]) -> String {
    let mut text = word.to_owned();
    // A variable may have been set to another one.
    for variable in variables.iter().rev() {
        let name = format!("var({})", variable.name);
        if text.starts_with(&name) {
            text.replace_range(..name.len(), &variable.expression);
        }
        text = text.replace(&format!("%[{name}"), &format!("%[{}", variable.expression));
    }
    text
}

/// Bytes of lines of a section with variables; further lines stay as they are.
const GROWTH_BYTES_MAX: usize = 1 << 20;
/// Maximum number of variables of a section, and of bytes of an expression.
const VARIABLES_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 512;

/// Returns the variables that have one value in the whole section: set once, without a condition, in front of all
/// conditions, and from values that the section does not change.
fn variables(lines: &[Line]) -> Vec<Variable> {
    let mut variables = Vec::new();
    let is_rule =
        |line: &&Line| line.word(0).starts_with("http-request") || line.word(0).starts_with("tcp-request");
    for line in lines.iter().filter(is_rule) {
        let name = line.word(1).strip_prefix("set-var(").and_then(|name| name.strip_suffix(')'));
        let has_condition = line.words.iter().any(|word| word == "if" || word == "unless");
        let Some(name) = name.filter(|_| line.word(0) == "http-request") else {
            if has_condition || line.words.iter().any(|word| word.contains("var(")) {
                break;
            }
            continue;
        };
        let is_set_again = lines.iter().filter(|other| sets(other, name)).count() > 1;
        let expression = replaced_word(line.word(2), &variables);
        let is_plain = line.words.len() == 3 && expression.len() <= EXPRESSION_BYTES_MAX;
        if is_plain && !is_set_again && !lines.iter().any(|line| changes(line, &expression)) {
            variables.push(Variable { name: name.to_owned(), expression });
        }
        if has_condition || variables.len() == VARIABLES_MAX {
            break;
        }
    }
    variables
}

fn sets(line: &Line, name: &str) -> bool {
    let setters = ["set-var", "unset-var", "set-var-fmt"];
    line.words.iter().take(3).any(|word| setters.iter().any(|setter| *word == format!("{setter}({name})")))
}

/// Returns whether a line changes what an expression reads.
fn changes(line: &Line, expression: &str) -> bool {
    let expression = expression.to_ascii_lowercase();
    match line.word(1) {
        "set-path" | "replace-path" | "set-uri" | "replace-uri" | "set-pathq" | "set-query"
        | "normalize-uri" | "replace-pathq" | "set-method" | "set-src" => {
            line.word(0) == "http-request" && !expression.contains("hdr(") && !expression.contains("cook(")
        }
        "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value" => {
            let field = line.word(2).to_ascii_lowercase();
            let is_read = expression.contains(&format!("({field}"))
                || (field == "host" && expression.starts_with("base"))
                || (field == "cookie" && expression.contains("cook"));
            line.word(0) == "http-request" && (is_read || line.words.iter().any(|word| word == "-m"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::NoSurroundings;
    use crate::haproxy::lexer;

    /// Returns the last line of a section with its variables replaced.
    fn last(text: &str) -> String {
        let (lines, _) = lexer::lines("a", text, &mut NoSurroundings).unwrap();
        replaced(&lines).last().unwrap().words.join(" ")
    }

    #[test]
    fn variables_with_one_value_are_replaced() {
        let host = "http-request set-var(txn.h) req.hdr(host),lower\n";
        assert_eq!(
            last(&format!("{host}use_backend %[var(txn.h),map(/a)]")),
            "use_backend %[req.hdr(host),lower,map(/a)]"
        );
        assert_eq!(last(&format!("{host}acl a var(txn.h) -m str x")), "acl a req.hdr(host),lower -m str x");
        let second = "http-request set-var(txn.k) var(txn.h),field(1,:)\n";
        assert_eq!(
            last(&format!("{host}{second}use_backend %[var(txn.k)]")),
            "use_backend %[req.hdr(host),lower,field(1,:)]"
        );
        for text in [
            "http-request set-var(txn.h) path if x\nuse_backend %[var(txn.h)]",
            "http-request set-var(txn.h) path\nhttp-request set-var(txn.h) src\nuse_backend %[var(txn.h)]",
            "http-request deny if x\nhttp-request set-var(txn.h) path\nuse_backend %[var(txn.h)]",
            "http-request set-var(txn.h) path\nhttp-request set-path /x\nuse_backend %[var(txn.h)]",
            "http-request set-var(txn.h) hdr(Host)\nhttp-request set-header host x\nuse_backend %[var(txn.h)]",
            "http-request set-var(txn.h) path\nhttp-request unset-var(txn.h)\nuse_backend %[var(txn.h)]",
            "http-request set-var(txn.g) path\nuse_backend %[var(txn.h)]",
        ] {
            assert!(last(text).contains("var(txn.h)"), "{text}");
        }
    }
}
