//! Converts the `[map.NAME]` sections, and opens their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use record::document::{Located, Problems};
use record::sorted::sort_by_key;

use crate::maps::{MapStore, MatchKind, TEXT_BYTES_MAX, TableForm};
use crate::plan::{Fact, MapPlan, Variable};
use crate::template::{KnownValues, Scope};

use super::templates::parse_key;
use super::validate;
use super::value::{Matcher, Section};

/// Reads the maps of a config.
pub(super) fn parse_maps(root: &Section, problems: &mut Problems) -> Vec<Arc<MapPlan>> {
    let sections = root.tables("map");
    let maps = sections.iter().filter_map(|section| parse_map(section, problems));
    maps.map(Arc::new).collect()
}

fn parse_map(section: &Section, problems: &mut Problems) -> Option<MapPlan> {
    problems.ok_or_report(section.offset, validate::check_name(&section.name));
    let text = section.text("key")?;
    // A value of another map would need an order of maps.
    let key = parse_key(&text, Scope::Key, KnownValues::default(), problems);
    if key
        .as_ref()
        .is_some_and(|key| key.variables().any(|variable| *variable == Variable::Fact(Fact::Listener)))
    {
        let message = "a map is the same for all listeners: use the key listener of a route or a condition";
        problems.add_error(text.offset, message);
    }
    let kind = section.text("match").and_then(|kind| MatchKind::from_name(&kind.value)).unwrap_or_default();
    let compares_names = key
        .as_ref()
        .and_then(|key| key.single_variable())
        .is_some_and(|variable| matches!(variable, Variable::Fact(Fact::Host | Fact::TlsSni)));
    // Names of hosts are compared without case everywhere.
    let ignores_case = section.flag("ignore-case") || compares_names || kind == MatchKind::Domain;
    if let Some(offset) = section.key_offset("ignore-case").filter(|_| kind == MatchKind::Network) {
        problems.warn(offset, "'ignore-case' has no effect with match = \"network\"");
    }
    let form = TableForm { kind, ignores_case: ignores_case && kind != MatchKind::Network };
    let store = match (section.text("file"), section.key_offset("entries")) {
        (Some(file), None) => open(&file, form, false, problems)?,
        (None, Some(_)) => parse_entries(section, form, problems)?,
        (Some(file), Some(_)) => {
            problems.add_error(file.offset, "`file` and `entries` exclude each other: remove one of them");
            return None;
        }
        (None, None) => {
            // A key that is present but invalid has already been reported.
            if section.key_offset("file").is_none() {
                problems.add_error(section.offset, "a map needs its entries: add file = \"FILE\" or entries");
            }
            return None;
        }
    };
    let default = section.text("default").and_then(|text| {
        let is_valid = text.value.len() <= TEXT_BYTES_MAX && !text.value.contains(char::is_control);
        if !is_valid {
            let message = format!("a value has at most {TEXT_BYTES_MAX} bytes, and no control characters");
            problems.add_error(text.offset, message);
        }
        is_valid.then_some(text.value)
    });
    Some(MapPlan { name: section.name.clone(), key: key?, store, default })
}

/// Opens a file, or reports all of its faults at the place of its name.
fn open(
    file: &Located<Box<str>>,
    form: TableForm,
    has_comments: bool,
    problems: &mut Problems,
) -> Option<Arc<MapStore>> {
    match MapStore::open(Path::new(&*file.value), form, has_comments) {
        Ok(store) => Some(store),
        Err(faults) => {
            faults.into_iter().for_each(|fault| problems.add_error(file.offset, fault));
            None
        }
    }
}

fn parse_entries(section: &Section, form: TableForm, problems: &mut Problems) -> Option<Arc<MapStore>> {
    let mut pairs = section.pairs("entries");
    // As they are written: the first expression that matches decides.
    sort_by_key(&mut pairs, |pair| pair.name.offset);
    let entries = pairs.iter().map(|pair| match &pair.matcher.value {
        Matcher::Text(value) => (&*pair.name.value, &**value),
        // The kind of the key has only texts.
        Matcher::Present(_) | Matcher::Regex(_) => (&*pair.name.value, ""),
    });
    match MapStore::from_entries(form, entries) {
        Ok(store) => Some(store),
        Err(faults) => {
            for (position, fault) in faults {
                let offset = pairs.get(position).map_or(section.offset, |pair| pair.name.offset);
                problems.add_error(offset, fault);
            }
            None
        }
    }
}

/// Opens a list of networks, which has comments anywhere in a line.
pub(super) fn open_networks(
    file: &Located<Box<str>>,
    problems: &mut Problems,
) -> Option<(PathBuf, Arc<MapStore>)> {
    let form = TableForm { kind: MatchKind::Network, ignores_case: false };
    Some((PathBuf::from(&*file.value), open(file, form, true, problems)?))
}

#[cfg(test)]
mod tests {
    /// Returns the errors of a config with these lines, or its warnings.
    fn messages(maps: &str, route: &str) -> Vec<String> {
        let config =
            format!("{maps}\n[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\n{route}\ndeny = true\n");
        let parsed = crate::config::parse("t", &config);
        let messages = parsed.map_or_else(|problems| problems, |parsed| parsed.warnings);
        messages.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn faults_of_maps_have_a_place() {
        let path = "[map.m]\nkey = 'path'\n";
        for (maps, route, expected) in [
            (format!("{path}entries = {{ a = '1' }}"), "when = { map = { m = true } }", ""),
            (path.to_owned(), "", "t:1:6: a map needs its entries"),
            (format!("{path}entries = {{ a = '1' }}\nfile = '/x'"), "", "exclude each other"),
            (format!("{path}file = '/no/such/file'"), "", "t:3:8: /no/such/file: No such file"),
            (format!("{path}file = '/tmp'"), "", "t:3:8: /tmp: not a file"),
            (
                format!("{path}match = 'network'\nentries = {{ '10.0.0.1/8' = '' }}"),
                "",
                "t:4:13: '10.0.0.1/8' has bits set after its prefix: write 10.0.0.0/8",
            ),
            ("[map.m]\nkey = '{listener}'\nentries = { a = '1' }".to_owned(), "", "t:2:7: a map is the same"),
            ("[map.m]\nkey = 'map.m'\nentries = { a = '1' }".to_owned(), "", "not the name of a map"),
            (
                "[map.m]\nkey = 'host'\nentries = { 'A.b' = '1', 'a.B' = '2' }".to_owned(),
                "",
                "t:3:26: the key is another one's",
            ),
            (
                format!("{path}entries = {{ a = '1' }}"),
                "when = { map = { n = true } }",
                "unknown map 'n' (did you mean 'm'?)",
            ),
            (
                format!("{path}entries = {{ a = '1' }}"),
                "set-response-header = { x = '{map.mm}' }",
                "'mm' is not the name of a map (did you mean 'm'?)",
            ),
        ] {
            let messages = messages(&maps, route);
            let is_expected = match expected {
                "" => messages.is_empty(),
                part => messages.len() == 1 && messages[0].contains(part),
            };
            assert!(is_expected, "{maps} {route}: {messages:#?}");
        }
    }

    #[test]
    fn expressions_are_compared_in_the_order_of_the_config() {
        let config = "[map.m]\nkey = 'path'\nmatch = 'regex'\ndefault = 'd'\n\
                      entries = { '^/b' = '1', '^/' = '2', '^/a' = '3' }\n[listener.web]\nbind = '127.0.0.1:0'\n";
        let plan = crate::config::parse("t", config).unwrap().plan;
        let mut entries = Vec::new();
        plan.maps[0].store.visit(&mut |key, _| entries.push(key.to_owned()));
        assert_eq!(entries, ["^/b", "^/", "^/a"]);
        assert_eq!(plan.maps[0].default.as_deref(), Some("d"));
        for (keys, expected) in [
            ("entries = { '^/(' = '1' }", "t:4:13: '^/(' is not a regular expression: unclosed group"),
            ("entries = { '/' = '1' }\ndefault = \"a\\u0001\"", "t:5:11: a value has at most 4096 bytes"),
        ] {
            let messages = messages(&format!("[map.m]\nkey = 'path'\nmatch = 'regex'\n{keys}"), "");
            assert!(messages.len() == 1 && messages[0].contains(expected), "{messages:?}");
        }
    }

    #[test]
    fn all_faults_of_a_file_are_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "10.0.0.0/8\nx\n\n10.0.0.1/8\n").unwrap();
        let path = file.path().display();
        let messages = messages("", &format!("when = {{ source-file = '{path}' }}"));
        assert_eq!(messages.len(), 2, "{messages:#?}");
        let [first, second] = [2, 4].map(|line| format!("t:5:24: {path}:{line}:1: "));
        assert!(messages[0].contains(&first) && messages[1].contains(&second), "{messages:#?}");
    }
}
