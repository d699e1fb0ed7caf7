//! Reads a parsed document by its table of keys. All problems are found at once, each with its place.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::scalar::read_scalar;
use super::values::{GivenKey, NamedTable, NamedTexts, TableValues, Value};
use super::{KeySpec, ListForm, ValueForm};
use crate::document::{Located, Problems, TomlDocument, text_or_number};
use crate::problem::suggestion;
use crate::sorted::sort_by_key;

/// Maximum number of keys that a message lists; more would hide the message.
const KEYS_SHOWN_MAX: usize = 32;

/// Reads a document by its keys. Keys that are missing from one with syntax errors are no problems: they may be
/// where the errors are.
pub fn read_document(document: &TomlDocument<'_>, keys: &[KeySpec], problems: &mut Problems) -> TableValues {
    let mut reader = TableReader { problems, reports_missing: document.is_valid(), explain: |_| None };
    reader.table(document.table(), 0, "", keys)
}

/// Reads the top-level table of a document without syntax errors by its keys. `explain` returns the message about a
/// key that another kind of file has.
pub fn read_table(
    table: &DeTable<'_>,
    keys: &[KeySpec],
    explain: fn(&str) -> Option<String>,
    problems: &mut Problems,
) -> TableValues {
    TableReader { problems, reports_missing: true, explain }.table(table, 0, "", keys)
}

/// Returns the message about a key that is none of the known ones. `path` is before its name: empty, or `load.`.
pub fn unknown_key_text(path: &str, name: &str, known: &[&str]) -> String {
    let hint = suggestion(name, known.iter().copied());
    let listed = match known.len() <= KEYS_SHOWN_MAX {
        true => format!("; there are: {}", known.join(", ")),
        false => String::new(),
    };
    format!("unknown key '{path}{name}'{hint}{listed}")
}

struct TableReader<'p> {
    problems: &'p mut Problems,
    reports_missing: bool,
    /// Returns the message about a key of the top level that another kind of file has.
    explain: fn(&str) -> Option<String>,
}

impl TableReader<'_> {
    fn table(&mut self, table: &DeTable<'_>, at: usize, path: &str, keys: &[KeySpec]) -> TableValues {
        let mut values = TableValues::new(at);
        for (name, value) in table {
            let key_offset = name.span().start;
            let Some(key) = keys.iter().find(|key| key.name == &**name.get_ref()) else {
                let explained = if path.is_empty() { (self.explain)(name.get_ref()) } else { None };
                let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
                let text = explained.unwrap_or_else(|| unknown_key_text(path, name.get_ref(), &names));
                self.problems.add_error(key_offset, text);
                continue;
            };
            let value_offset = value.span().start;
            let value = self.value(key.form, value, &format!("{path}{}", key.name));
            values.insert(key.name, GivenKey { key_offset, value_offset, value });
        }
        let is_missing = |key: &&KeySpec| key.is_required && !values.is_given(key.name);
        for key in keys.iter().filter(is_missing).filter(|_| self.reports_missing) {
            let (name, form, doc) = (key.name, key.form.describe(), key.doc);
            self.problems.add_error(at, format!("missing key '{path}{name}' ({form}): {doc}"));
        }
        values
    }

    /// Reads a value; `None`: it does not fit, or is read later.
    fn value(&mut self, form: ValueForm, value: &Spanned<DeValue<'_>>, name: &str) -> Option<Value> {
        let at = value.span().start;
        match (form, value.get_ref()) {
            (ValueForm::Table(keys), DeValue::Table(inner)) => {
                Some(Value::Table(self.table(inner, at, &format!("{name}."), keys)))
            }
            (ValueForm::TableList(keys), DeValue::Array(inner)) => {
                Some(Value::TableList(self.table_list(inner, name, keys)))
            }
            (ValueForm::Tables(keys) | ValueForm::ShortTables(keys), DeValue::Table(inner)) => {
                let has_short = matches!(form, ValueForm::ShortTables(_));
                Some(Value::Tables(self.named_tables(inner, name, keys, has_short)))
            }
            (ValueForm::Patches(_), DeValue::Table(_)) => None,
            (ValueForm::List(list), DeValue::Array(inner)) => {
                self.list(inner, at, name, list).map(Value::List)
            }
            (ValueForm::Texts, DeValue::Table(inner)) => {
                let mut texts = NamedTexts::default();
                self.collect_texts(inner, "", name, &mut texts);
                Some(Value::Texts(texts))
            }
            (form, value) => match read_scalar(form, value) {
                Ok(value) => Some(value),
                Err(reason) => {
                    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
                    self.problems.add_error(at, format!("'{name}' takes {}{reason}", form.describe()));
                    None
                }
            },
        }
    }

    fn table_list(
        &mut self,
        array: &[Spanned<DeValue<'_>>],
        name: &str,
        keys: &[KeySpec],
    ) -> Vec<TableValues> {
        let tables = array.iter().filter_map(|entry| {
            let at = entry.span().start;
            match entry.get_ref() {
                DeValue::Table(inner) => Some(self.table(inner, at, &format!("{name}."), keys)),
                _ => {
                    self.problems.add_error(at, format!("'{name}' takes tables here: write [[{name}]]"));
                    None
                }
            }
        });
        tables.collect()
    }

    /// Reads tables by any name. With `has_short`, a value other than a table is the value of their first key.
    fn named_tables(
        &mut self,
        table: &DeTable<'_>,
        path: &str,
        keys: &[KeySpec],
        has_short: bool,
    ) -> Vec<NamedTable> {
        let mut entries = Vec::new();
        for (name, inner) in table {
            let (at, name) = (name.span().start, name.get_ref().to_string());
            let path = format!("{path}.{name}");
            let values = match (inner.get_ref(), keys.first()) {
                (DeValue::Table(inner), _) => self.table(inner, at, &format!("{path}."), keys),
                (_, Some(first)) if has_short => {
                    let value_offset = inner.span().start;
                    let value = self.value(first.form, inner, &path);
                    let mut values = TableValues::new(at);
                    values.insert(first.name, GivenKey { key_offset: at, value_offset, value });
                    values
                }
                _ => {
                    self.problems.add_error(inner.span().start, format!("'{path}' takes a table"));
                    continue;
                }
            };
            entries.push(NamedTable { name, offset: at, values });
        }
        sort_by_key(&mut entries, |entry| entry.offset);
        entries
    }

    fn list(
        &mut self,
        array: &[Spanned<DeValue<'_>>],
        at: usize,
        name: &str,
        form: ListForm,
    ) -> Option<Vec<Located<String>>> {
        let (min, max) = (form.min, form.max);
        if !(min..=max).contains(&array.len()) {
            self.problems.add_error(at, format!("'{name}' takes {min} to {max} entries"));
            return None;
        }
        let texts = array.iter().map(|entry| {
            let at = entry.span().start;
            let text = entry_text(form, entry.get_ref());
            if text.is_none() {
                self.problems.add_error(at, format!("'{name}' takes {} here", form.entry().describe()));
            }
            text.map(|text| Located::new(text, at))
        });
        // All entries are read, for the problems of each.
        texts.collect::<Vec<_>>().into_iter().collect()
    }

    /// Collects texts by name. `net.ipv4.x = "…"` without quotes is nested tables, whose names are
    /// joined again.
    fn collect_texts(&mut self, table: &DeTable<'_>, prefix: &str, name: &str, texts: &mut NamedTexts) {
        for (key, value) in table {
            let full = format!("{prefix}{}", key.get_ref());
            match value.get_ref() {
                DeValue::String(text) => texts.add(full, key.span().start, text.to_string()),
                DeValue::Integer(number) => texts.add(full, key.span().start, number.to_string()),
                DeValue::Table(inner) => self.collect_texts(inner, &format!("{full}."), name, texts),
                _ => {
                    let text = format!("'{name}.{full}' takes {}", ValueForm::Text.describe());
                    self.problems.add_error(value.span().start, text);
                }
            }
        }
    }
}

/// Returns the text of an entry of a list, if it is one.
fn entry_text(form: ListForm, value: &DeValue<'_>) -> Option<String> {
    if form.has_numbers { text_or_number(value) } else { value.as_str().map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::super::{key, required};
    use super::*;

    const ARGUMENTS: ListForm =
        ListForm { min: 0, max: 2, has_numbers: false, takes_one: false, example: "[\"-c\"]" };
    const STEP: &[KeySpec] =
        &[required("command", ValueForm::Text, "Command"), key("wait", ValueForm::Time, "Pause")];
    const KEYS: &[KeySpec] = &[
        required("name", ValueForm::Plain, "Short name"),
        key("arguments", ValueForm::List(ARGUMENTS), "Arguments"),
        key(
            "header",
            ValueForm::List(ListForm { has_numbers: true, takes_one: true, ..ARGUMENTS }),
            "Fields",
        ),
        key("step", ValueForm::TableList(STEP), "Steps"),
        key("machine", ValueForm::Tables(STEP), "Machines"),
        key("level", ValueForm::ShortTables(STEP), "Levels"),
    ];

    fn read(text: &str) -> (TableValues, Vec<String>) {
        let (document, mut problems) = (TomlDocument::parse(text), Problems::default());
        let values = read_document(&document, KEYS, &mut problems);
        (values, document.all_problems("f", problems).iter().map(ToString::to_string).collect())
    }

    #[test]
    fn values_are_read_by_their_forms() {
        let (values, problems) = read(
            "name = 7\narguments = []\nheader = \"a\"\n[[step]]\ncommand = \"x\"\nwait = \"2s\"\n[[step]]\n\
             command = \"y\"\n[machine.z]\ncommand = \"z\"\n[machine.a]\ncommand = \"a\"\n[level]\nl = \"first\"\n",
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!((values.text("name"), values.list("arguments")), (Some("7"), Some(&[][..])));
        assert_eq!(values.text_or_list("header"), Some(vec!["a".to_owned()]));
        assert_eq!((values.offset_of("header"), values.value_offset("header")), (24, 33));
        let commands: Vec<_> = values.table_list("step").iter().map(|step| step.text("command")).collect();
        assert_eq!(commands, [Some("x"), Some("y")]);
        assert_eq!(values.table_list("step")[0].integer("wait"), Some(2_000_000_000));
        let machines: Vec<_> = values.tables("machine").iter().map(|machine| &*machine.name).collect();
        assert_eq!(machines, ["z", "a"]);
        assert_eq!(values.tables("level")[0].values.text("command"), Some("first"));
    }

    #[test]
    fn every_problem_has_its_position() {
        let (values, problems) = read(
            "nam = 1\narguments = [1, true]\nheader = [true]\nstep = [1, { wait = 3 }]\nlevel.l = 5\n\
             machine.m = \"z\"\n",
        );
        let expected = [
            "f:1:1: missing key 'name' (a string or a number): Short name",
            "f:1:1: unknown key 'nam' (did you mean 'name'?); there are: name, arguments, header, step, machine, level",
            "f:2:14: 'arguments' takes a string here",
            "f:2:17: 'arguments' takes a string here",
            "f:3:11: 'header' takes a string or a number here",
            "f:4:9: 'step' takes tables here: write [[step]]",
            "f:4:12: missing key 'step.command' (a string): Command",
            "f:4:21: 'step.wait' takes a time: \"20ms\"",
            "f:5:11: 'level.l' takes a string",
            "f:6:13: 'machine.m' takes a table",
        ];
        assert_eq!(problems, expected);
        assert!(values.is_given("header") && !values.is_given("name"));
        let (_, problems) = read("name = true\narguments = \"-c\"\nheader = false\nstep = 1\nmachine = 1\n");
        let expected = [
            "f:1:8: 'name' takes a string or a number",
            "f:2:13: 'arguments' takes an array of strings: [\"-c\"]",
            "f:3:10: 'header' takes a string or a number, or an array of them: [\"-c\"]",
            "f:4:8: 'step' takes an array of tables: write [[NAME]]",
            "f:5:11: 'machine' takes named tables: NAME = { KEY = value }",
        ];
        assert_eq!(problems, expected);
        let (_, problems) = read("name = 1\narguments = [\"a\", \"b\", \"c\"]\n");
        assert_eq!(problems, ["f:2:13: 'arguments' takes 0 to 2 entries"]);
    }

    #[test]
    fn of_a_file_with_syntax_errors_no_key_is_missing() {
        let (_, problems) = read("arguments = 1\nname =\n");
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(
            problems[0].starts_with("f:1:13: 'arguments'") && problems[1].starts_with("f:2:"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_key_of_another_file_is_explained() {
        let document = TomlDocument::parse("name = 1\narms = 1\nsteps = 1\n");
        let explain = |name: &str| (name == "arms").then(|| "of experiments".to_owned());
        let mut problems = Problems::default();
        read_table(document.table(), KEYS, explain, &mut problems);
        let texts: Vec<_> = problems.into_errors().into_iter().map(|problem| problem.value).collect();
        assert_eq!((texts.len(), &*texts[0]), (2, "of experiments"));
        assert!(texts[1].contains("did you mean 'step'"), "{texts:?}");
    }
}
