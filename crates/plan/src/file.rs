//! Plan files: TOML with the names of the flags as keys. All problems are reported at once, each with
//! its line and column.

use record::document::table::{KeySpec, ListForm, ValueForm, key, read_document};
use record::document::{Problems, TomlDocument, line_and_column};
use record::problem::InputProblem;

use crate::inputs::{INPUTS, InputKind, InputSpec, Inputs};

/// Texts of backends.
const BACKENDS: ValueForm = ValueForm::List(ListForm {
    min: 0,
    max: usize::MAX,
    has_numbers: false,
    takes_one: true,
    example: "[\"app=18x2\"]",
});

/// Reads the text of a plan file into `inputs`, which keep the values that they have.
///
/// # Errors
/// Every problem of the file, with its position.
pub fn read(name: &str, text: &str, inputs: &mut Inputs) -> Result<(), Vec<InputProblem>> {
    let document = TomlDocument::parse(text);
    let mut problems = Problems::default();
    let keys: Vec<KeySpec> = INPUTS.iter().map(file_key).collect();
    let values = read_document(&document, &keys, &mut problems);
    for key in keys {
        let Some(texts) = values.text_or_list(key.name) else { continue };
        let start = values.value_offset(key.name);
        let source = format!("{name}:{}: {}", line_and_column(text, start).0, key.name);
        if let Err(why) = inputs.give_texts(key.name, &texts, &source) {
            problems.add_error(start, format!("{}: {why}", key.name));
        }
    }
    let problems = document.all_problems(name, problems);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Returns the key of an input, whose text is that of the flag.
fn file_key(row: &InputSpec) -> KeySpec {
    let form = if row.kind == InputKind::Backends { BACKENDS } else { ValueForm::Plain };
    key(row.name, form, row.doc)
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
