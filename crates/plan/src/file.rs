//! Plan files: TOML with the names of the flags as keys. All problems are reported at once, each with
//! its line and column.

use record::document::{Problems, TomlDocument, line_and_column, text_or_number};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use toml::de::DeValue;

use crate::inputs::{INPUTS, InputKind, Inputs, spec};

/// Reads the text of a plan file into `inputs`, which keep the values that they have.
///
/// # Errors
/// Every problem of the file, with its position.
pub fn read(name: &str, text: &str, inputs: &mut Inputs) -> Result<(), Vec<InputProblem>> {
    let document = TomlDocument::parse(text);
    let mut problems = Problems::default();
    for (key, value) in document.table() {
        let key_name: &str = key.get_ref();
        let Some(row) = spec(key_name) else {
            problems.add_unknown_key(key, INPUTS.iter().map(|row| row.name));
            continue;
        };
        let start = value.span().start;
        let source = format!("{name}:{}: {key_name}", line_and_column(text, start).0);
        let result =
            texts(value.get_ref(), row.kind).and_then(|texts| inputs.give_texts(row.name, &texts, &source));
        if let Err(why) = result {
            problems.add_error(start, format!("{key_name}: {why}"));
        }
    }
    let problems = document.all_problems(name, problems);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Returns the texts of a value: a text, a number, or a list of backends.
fn texts(value: &DeValue<'_>, kind: InputKind) -> Result<Vec<String>, InvalidValue> {
    match value {
        DeValue::String(text) => Ok(vec![text.to_string()]),
        DeValue::Integer(_) | DeValue::Float(_) if kind == InputKind::Backends => {
            Err(invalid_value!("write a list of texts: [\"app=18x2\"]"))
        }
        DeValue::Array(entries) if kind == InputKind::Backends => {
            let entries = entries.iter().map(|entry| match entry.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                _ => Err(invalid_value!("each backend is a text: \"app=18x2\"")),
            });
            entries.collect()
        }
        _ if kind == InputKind::Backends => Err(invalid_value!("write a list of texts: [\"app=18x2\"]")),
        other => {
            let text = text_or_number(other);
            text.map(|text| vec![text])
                .ok_or_else(|| invalid_value!("write a text or a number, as for the flag"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_words_of_the_flags() {
        let mut inputs = Inputs::default();
        let text = "rate = \"4k\"\nservice = 20\nbackend = [\"app=18x2\", \"240x1\"]\n";
        read("plan.toml", text, &mut inputs).unwrap();
        assert_eq!((inputs.number("rate"), inputs.number("service")), (Some(4000.0), Some(0.02)));
        assert_eq!(inputs.backends().len(), 2);
        assert_eq!(inputs.get("service").unwrap().source, "plan.toml:2: service");
    }

    #[test]
    fn all_problems_have_their_position() {
        let text = "rat = 1\nservice = \"x\"\nbackend = 3\nslo = [1]\nx =\n";
        let problems = read("p.toml", text, &mut Inputs::default()).unwrap_err();
        let locations: Vec<_> = problems.iter().map(|problem| problem.location.as_str()).collect();
        // The key without a value is one problem.
        assert_eq!(locations, ["p.toml:1:1", "p.toml:2:11", "p.toml:3:11", "p.toml:4:7", "p.toml:5:4"]);
        assert!(problems[0].text.contains("'rate'"), "{}", problems[0].text);
    }
}
