//! Arms and loads: patches by hand, factors with their levels, and all combinations of both.
//!
//! Not for what an arm under a load is in the end: that is [`super::cells`]'s.

use std::borrow::Cow;
use std::collections::BTreeMap;

use record::experiment::ONLY_LOAD;
use record::problem::{Problem, suggestion};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ONLY_ARM;
use super::file::{PARAMETERS, Parts, is_name_of_file, no_name, slug};
use super::patch::{lay, leaves};
use crate::scenario::keys::FILE;
use crate::scenario::read::{Entry, Problems, plain};

/// Arms, or loads: more would take days, and nobody could read what came of it.
const SIDE_MAX: usize = 32;

/// What is compared, or under what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Arms,
    Loads,
}

impl Side {
    fn key(self) -> &'static str {
        match self {
            Self::Arms => "arms",
            Self::Loads => "loads",
        }
    }

    /// The one that there is when a file has none.
    fn only(self) -> &'static str {
        match self {
            Self::Arms => ONLY_ARM,
            Self::Loads => ONLY_LOAD,
        }
    }
}

/// An arm or a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Variant<'t> {
    pub(super) name: String,
    pub(super) title: String,
    /// Where it stands.
    pub(super) at: usize,
    /// What it changes, one after the other.
    pub(super) patches: Vec<DeTable<'t>>,
    /// Its place along factors.
    pub(super) levels: BTreeMap<String, String>,
}

impl<'t> Variant<'t> {
    /// A file with it.
    pub(super) fn over(&self, base: &DeTable<'t>) -> DeTable<'t> {
        let mut whole = base.clone();
        self.patches.iter().for_each(|patch| lay(patch, &mut whole));
        whole
    }

    /// Every key that it sets, and where.
    pub(super) fn keys(&self) -> BTreeMap<String, usize> {
        let all = self.patches.iter().flat_map(leaves);
        all.map(|(key, leaf)| (key, leaf.at)).collect()
    }

    fn at_level(&self, factor: &str, at: usize, level: &str) -> Self {
        let join = |one: &str, between: &str, other: String| match one {
            "" => other,
            _ => format!("{one}{between}{other}"),
        };
        let mut variant = self.clone();
        variant.name = join(&self.name, "-", format!("{}-{}", slug(factor), slug(level)));
        variant.title = join(&self.title, ", ", format!("{factor} = {level}"));
        variant.at = self.at.max(at);
        variant.patches.push(one_parameter(factor, at, level));
        variant.levels.insert(factor.to_owned(), level.to_owned());
        variant
    }
}

/// A patch that sets one parameter.
fn one_parameter<'t>(name: &str, at: usize, text: &str) -> DeTable<'t> {
    let key = |name: &str| Spanned::new(at..at, Cow::Owned(name.to_owned()));
    let value = |value| Spanned::new(at..at, value);
    let (mut inner, mut patch) = (DeTable::default(), DeTable::default());
    inner.insert(key(name), value(DeValue::String(Cow::Owned(text.to_owned()))));
    patch.insert(key(PARAMETERS), value(DeValue::Table(inner)));
    patch
}

/// The arms, or the loads, of a file, in its order.
pub(super) fn of<'t>(side: Side, parts: &Parts<'t>, problems: &mut Problems) -> Vec<Variant<'t>> {
    let mut variants = by_hand(side, parts, problems);
    let factors = factors(side, parts, &variants, problems);
    let levels = |factor: &Entry| factor.values.list("levels").map_or(1, <[_]>::len);
    let one = variants.len().max(1);
    let count = factors.iter().fold(one, |count, factor| count.saturating_mul(levels(factor)));
    if count > SIDE_MAX {
        let at = factors.last().map_or_else(|| variants[SIDE_MAX].at, |factor| factor.at);
        let what = side.key();
        problems
            .add(at, format!("there may be {SIDE_MAX} {what}, and with this there are {count}"));
        return Vec::new();
    }
    if variants.is_empty() {
        variants.push(Variant::default());
    }
    for factor in factors {
        let levels = factor.values.list("levels").unwrap_or_default();
        let along = |variant: &Variant<'t>| -> Vec<Variant<'t>> {
            let at = |(at, level): &(usize, String)| variant.at_level(&factor.name, *at, level);
            levels.iter().map(at).collect()
        };
        variants = variants.iter().flat_map(along).collect();
    }
    for variant in &mut variants {
        if variant.name.is_empty() {
            variant.name = side.only().to_owned();
            variant.title = "what the file says".to_owned();
        }
        if !is_name_of_file(&variant.name) {
            problems.add(variant.at, format!("{}: {}", side.key(), no_name(&variant.name)));
        }
    }
    twice(side, &variants, problems);
    variants
}

fn twice(side: Side, variants: &[Variant<'_>], problems: &mut Problems) {
    for (at, variant) in variants.iter().enumerate() {
        if variants[..at].iter().any(|other| other.name == variant.name) {
            let text = format!("two {} would be named '{}'", side.key(), variant.name);
            problems.add(variant.at, text);
        }
    }
}

fn factors<'a>(
    side: Side,
    parts: &'a Parts<'_>,
    by_hand: &[Variant<'_>],
    problems: &mut Problems,
) -> Vec<&'a Entry> {
    let side_of = |factor: &Entry| match factor.values.text("of") {
        Some("loads") => Side::Loads,
        _ => Side::Arms,
    };
    let all = parts.own.each("factors").iter();
    let factors: Vec<&Entry> = all.filter(|factor| side_of(factor) == side).collect();
    for factor in &factors {
        if !parts.parameters.contains_key(&factor.name) {
            problems.add(factor.at, parts.no_parameter(&factor.name));
        }
        let key = format!("{PARAMETERS}.{}", factor.name);
        for variant in by_hand {
            if let Some(&at) = variant.keys().get(&key) {
                let text = format!(
                    "'{}' is a factor: its levels would take this one's place",
                    factor.name
                );
                problems.add(at, text);
            }
        }
    }
    factors
}

/// Those that stand in the file as patches.
fn by_hand<'t>(side: Side, parts: &Parts<'t>, problems: &mut Problems) -> Vec<Variant<'t>> {
    let given = match side {
        Side::Arms => &parts.arms,
        Side::Loads => &parts.loads,
    };
    let Some(given) = given.as_ref().and_then(|given| given.get_ref().as_table()) else {
        return Vec::new();
    };
    let mut variants = Vec::new();
    for (key, value) in given {
        let (name, at) = (key.get_ref().to_string(), key.span().start);
        let path = format!("{}.{name}", side.key());
        let Some(inner) = value.get_ref().as_table() else {
            problems.add(at, format!("'{path}' takes a table of what it changes"));
            continue;
        };
        let mut patch = inner.clone();
        let title = patch.remove("title");
        let title = title.map(|title| match title.get_ref().as_str() {
            Some(title) => title.to_owned(),
            None => {
                problems.add(title.span().start, format!("'{path}.title' takes a text"));
                String::new()
            }
        });
        keep_known(&mut patch, &path, parts, problems);
        let title = title.unwrap_or_else(|| name.clone());
        variants.push(Variant { name, title, at, patches: vec![patch], levels: BTreeMap::new() });
    }
    variants.sort_by_key(|variant| variant.at);
    variants
}

/// Takes out of a patch what nothing is to be changed by, and says so.
fn keep_known(patch: &mut DeTable<'_>, path: &str, parts: &Parts<'_>, problems: &mut Problems) {
    let known =
        || FILE.iter().map(|row| row.name).filter(|name| *name != "title").chain([PARAMETERS]);
    let unknown: Vec<_> =
        patch.keys().filter(|key| known().all(|name| name != *key.get_ref())).cloned().collect();
    for key in unknown {
        let name: &str = key.get_ref();
        let near = suggestion(name, known());
        let known: Vec<&str> = known().collect();
        let text =
            format!("'{path}' cannot change '{name}'{near}; there are: {}", known.join(", "));
        problems.add(key.span().start, text);
        patch.remove(name);
    }
    let Some(given) = patch.get_mut(PARAMETERS).map(Spanned::get_mut) else { return };
    let DeValue::Table(given) = given else {
        problems.add(parts.own.at, format!("'{path}.{PARAMETERS}' takes a table"));
        return;
    };
    for (key, value) in given.iter() {
        if !parts.parameters.contains_key(&**key.get_ref()) {
            problems.add(key.span().start, parts.no_parameter(key.get_ref()));
        }
        if plain(value.get_ref()).is_none() {
            let text = format!("'{path}.{PARAMETERS}.{}' takes a text or a number", key.get_ref());
            problems.add(value.span().start, text);
        }
    }
}

/// Which of the arms is the baseline.
pub(super) fn baseline(parts: &Parts<'_>, arms: &[Variant<'_>], problems: &mut Problems) -> usize {
    let Some(measure) = parts.own.table("measure") else { return 0 };
    let Some(name) = measure.text("baseline") else { return 0 };
    let found = arms.iter().position(|arm| arm.name == name);
    if found.is_none() && !arms.is_empty() {
        let names = || arms.iter().map(|arm| &*arm.name);
        let near = suggestion(name, names());
        let names: Vec<&str> = names().collect();
        let text = format!("there is no arm '{name}'{near}; there are: {}", names.join(", "));
        problems.add(measure.place("baseline"), text);
    }
    found.unwrap_or(0)
}

/// Parameters that were given and stand nowhere, because every arm or every load has its own.
pub(super) fn without_effect(
    given: &[(String, String)],
    arms: &[Variant<'_>],
    loads: &[Variant<'_>],
) -> Vec<Problem> {
    let sides = [("arm", arms), ("load", loads)];
    let mut problems = Vec::new();
    for (name, _) in given {
        let key = format!("{PARAMETERS}.{name}");
        for (side, variants) in sides {
            if !variants.is_empty() && variants.iter().all(|one| one.keys().contains_key(&key)) {
                let text = format!("'{name}' has no effect: every {side} has its own");
                problems.push(Problem::new("--set", text));
            }
        }
    }
    problems
}
