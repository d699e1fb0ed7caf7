//! Converts the `[map.NAME]` sections, and opens their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use record::document::{Located, Problems};

use crate::maps::{MapStore, MatchKind, TableForm};
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
    if key.as_ref().is_some_and(|key| key.variables().any(|one| *one == Variable::Fact(Fact::Listener))) {
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
    Some(MapPlan { name: section.name.clone(), key: key?, store })
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
    let pairs = section.pairs("entries");
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
