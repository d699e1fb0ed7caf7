//! Arms and loads: patches from the file, factors with their levels, and all combinations of both.
//!
//! [`super::cells`] combines an arm with a load.

use std::borrow::Cow;
use std::collections::BTreeMap;

use record::document::table::NamedTable;
use record::document::{Located, Problems, text_or_number};
use record::experiment::{LeftOutLoad, ONLY_LOAD};
use record::problem::{InputProblem, suggestion};
use record::sorted::{CollectSorted, sort_by_key};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::DEFAULT_ARM;
use super::file::{FileParts, PARAMETERS_KEY, invalid_name_text, is_valid_name, slug};
use super::left_out::LeaveOutRule;
use super::patch::{apply_patch, key_values};
use crate::scenario::keys::FILE;

/// Maximum number of arms, and of loads: more would take days, and nobody could read the result.
const VARIANTS_MAX: usize = 32;

/// Kind of a variant: arms are compared, each under all loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariantAxis {
    Arms,
    Loads,
}

impl VariantAxis {
    fn key(self) -> &'static str {
        match self {
            Self::Arms => "arms",
            Self::Loads => "loads",
        }
    }

    /// Name of the only variant of a file that has none.
    fn default_name(self) -> &'static str {
        match self {
            Self::Arms => DEFAULT_ARM,
            Self::Loads => ONLY_LOAD,
        }
    }
}

/// An arm or a load.
#[derive(Clone, Debug, Default)]
pub(super) struct Variant<'t> {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) offset: usize,
    /// Patches, applied in order.
    pub(super) patches: Vec<DeTable<'t>>,
    pub(super) levels: BTreeMap<String, String>,
    /// Reason why it is not run, if it is not.
    pub(super) left_out: Option<LeftOutLoad>,
}

/// Name of the level that tells the loads of a file apart under each level of a factor.
const LOAD_LEVEL: &str = "load";

impl<'t> Variant<'t> {
    pub(super) fn applied_to(&self, base: &DeTable<'t>) -> DeTable<'t> {
        let mut table = base.clone();
        self.patches.iter().for_each(|patch| apply_patch(patch, &mut table));
        table
    }

    /// Returns every key that the variant sets, with its position.
    pub(super) fn key_offsets(&self) -> BTreeMap<String, usize> {
        let all = self.patches.iter().flat_map(key_values);
        all.map(|(key, value)| (key, value.offset)).collect_map()
    }

    fn with_level(&self, factor: &str, at: usize, level: &str) -> Self {
        let join = |prefix: &str, between: &str, other: String| match prefix {
            "" => other,
            _ => format!("{prefix}{between}{other}"),
        };
        let mut variant = self.clone();
        variant.name = join(&self.name, "-", format!("{}-{}", slug(factor), slug(level)));
        variant.title = join(&self.title, ", ", format!("{factor} = {level}"));
        variant.offset = self.offset.max(at);
        variant.patches.push(parameter_patch(factor, at, level));
        variant.levels.insert(factor.to_owned(), level.to_owned());
        variant
    }
}

fn parameter_patch<'t>(name: &str, at: usize, text: &str) -> DeTable<'t> {
    let key = |name: &str| Spanned::new(at..at, Cow::Owned(name.to_owned()));
    let value = |value| Spanned::new(at..at, value);
    let (mut inner, mut patch) = (DeTable::default(), DeTable::default());
    inner.insert(key(name), value(DeValue::String(Cow::Owned(text.to_owned()))));
    patch.insert(key(PARAMETERS_KEY), value(DeValue::Table(inner)));
    patch
}

/// Returns the arms, or the loads, of a file, in its order.
pub(super) fn read_variants<'t>(
    side: VariantAxis,
    parts: &FileParts<'t>,
    rule: &LeaveOutRule<'_>,
    problems: &mut Problems,
) -> Vec<Variant<'t>> {
    let mut variants = patch_variants(side, parts, rule, problems);
    let factors = factors(side, parts, &variants, problems);
    let levels = |factor: &NamedTable| factor.values.list("levels").map_or(1, <[_]>::len);
    let base_count = variants.len().max(1);
    let count = factors.iter().fold(base_count, |count, factor| count.saturating_mul(levels(factor)));
    if count > VARIANTS_MAX {
        let at = factors.last().map_or_else(|| variants[VARIANTS_MAX].offset, |factor| factor.offset);
        let key = side.key();
        problems.add_error(at, format!("at most {VARIANTS_MAX} {key} are allowed, and this makes {count}"));
        return Vec::new();
    }
    if variants.is_empty() {
        variants.push(Variant::default());
    }
    let run = variants.iter().filter(|variant| variant.left_out.is_none()).count();
    if side == VariantAxis::Loads && run > 1 && !factors.is_empty() {
        for variant in &mut variants {
            variant.levels.insert(LOAD_LEVEL.to_owned(), variant.name.clone());
        }
    }
    for factor in factors {
        let levels = factor.values.list("levels").unwrap_or_default();
        let along = |variant: &Variant<'t>| -> Vec<Variant<'t>> {
            let at = |level: &Located<String>| variant.with_level(&factor.name, level.offset, &level.value);
            levels.iter().map(at).collect()
        };
        variants = variants.iter().flat_map(along).collect();
    }
    for variant in &mut variants {
        if variant.name.is_empty() {
            variant.name = side.default_name().to_owned();
            variant.title = "as in the file".to_owned();
        }
        if !is_valid_name(&variant.name) {
            problems
                .add_error(variant.offset, format!("{}: {}", side.key(), invalid_name_text(&variant.name)));
        }
    }
    report_duplicates(side, &variants, problems);
    variants
}

fn report_duplicates(side: VariantAxis, variants: &[Variant<'_>], problems: &mut Problems) {
    for (at, variant) in variants.iter().enumerate() {
        if variants[..at].iter().any(|other| other.name == variant.name) {
            let text = format!("two {} would be named '{}'", side.key(), variant.name);
            problems.add_error(variant.offset, text);
        }
    }
}

fn factors<'a>(
    side: VariantAxis,
    parts: &'a FileParts<'_>,
    by_hand: &[Variant<'_>],
    problems: &mut Problems,
) -> Vec<&'a NamedTable> {
    let side_of = |factor: &NamedTable| match factor.values.text("of") {
        Some("loads") => VariantAxis::Loads,
        _ => VariantAxis::Arms,
    };
    let all = parts.experiment.tables("factors").iter();
    let factors: Vec<&NamedTable> = all.filter(|factor| side_of(factor) == side).collect();
    for factor in &factors {
        if !parts.parameters.contains_key(&factor.name) {
            problems.add_error(factor.offset, parts.unknown_parameter_text(&factor.name));
        }
        let key = format!("{PARAMETERS_KEY}.{}", factor.name);
        for variant in by_hand {
            if let Some(&at) = variant.key_offsets().get(&key) {
                let text = format!("'{}' is a factor: its levels would override this value", factor.name);
                problems.add_error(at, text);
            }
        }
    }
    factors
}

fn patch_variants<'t>(
    side: VariantAxis,
    parts: &FileParts<'t>,
    rule: &LeaveOutRule<'_>,
    problems: &mut Problems,
) -> Vec<Variant<'t>> {
    let given = match side {
        VariantAxis::Arms => &parts.arms,
        VariantAxis::Loads => &parts.loads,
    };
    let Some(given) = given.as_ref().and_then(|given| given.get_ref().as_table()) else {
        return Vec::new();
    };
    let mut variants = Vec::new();
    for (key, value) in given {
        let (name, at) = (key.get_ref().to_string(), key.span().start);
        let path = format!("{}.{name}", side.key());
        let Some(inner) = value.get_ref().as_table() else {
            problems.add_error(at, format!("'{path}' takes a table of changed keys"));
            continue;
        };
        let mut patch = inner.clone();
        let title = patch.remove("title");
        let title = title.map(|title| match title.get_ref().as_str() {
            Some(title) => title.to_owned(),
            None => {
                problems.add_error(title.span().start, format!("'{path}.title' takes a string"));
                String::new()
            }
        });
        let left_out = match side {
            VariantAxis::Arms => None,
            VariantAxis::Loads => rule.take(&name, &mut patch, parts, problems),
        };
        remove_unknown_keys(&mut patch, &path, parts, problems);
        let title = title.unwrap_or_else(|| name.clone());
        let (patches, levels) = (vec![patch], BTreeMap::new());
        variants.push(Variant { name, title, offset: at, patches, levels, left_out });
    }
    sort_by_key(&mut variants, |variant| variant.offset);
    variants
}

/// Removes the keys of a patch that cannot be changed, and reports them.
fn remove_unknown_keys(patch: &mut DeTable<'_>, path: &str, parts: &FileParts<'_>, problems: &mut Problems) {
    let names = || FILE.iter().map(|row| row.name).filter(|name| *name != "title").chain([PARAMETERS_KEY]);
    let unknown: Vec<_> =
        patch.keys().filter(|key| names().all(|name| name != *key.get_ref())).cloned().collect();
    for key in unknown {
        let name: &str = key.get_ref();
        let hint = suggestion(name, names());
        let names: Vec<&str> = names().collect();
        let text = format!("'{path}' cannot change '{name}'{hint}; there are: {}", names.join(", "));
        problems.add_error(key.span().start, text);
        patch.remove(name);
    }
    let Some(given) = patch.get_mut(PARAMETERS_KEY).map(Spanned::get_mut) else { return };
    let DeValue::Table(given) = given else {
        problems.add_error(parts.experiment.offset, format!("'{path}.{PARAMETERS_KEY}' takes a table"));
        return;
    };
    for (key, value) in given.iter() {
        if !parts.parameters.contains_key(&**key.get_ref()) {
            problems.add_error(key.span().start, parts.unknown_parameter_text(key.get_ref()));
        }
        if text_or_number(value.get_ref()).is_none() {
            let text = format!("'{path}.{PARAMETERS_KEY}.{}' takes a string or a number", key.get_ref());
            problems.add_error(value.span().start, text);
        }
    }
}

pub(super) fn baseline_index(parts: &FileParts<'_>, arms: &[Variant<'_>], problems: &mut Problems) -> usize {
    let Some(measure) = parts.experiment.table("measure") else { return 0 };
    let Some(name) = measure.text("baseline") else { return 0 };
    let index = arms.iter().position(|arm| arm.name == name);
    if index.is_none() && !arms.is_empty() {
        let names = || arms.iter().map(|arm| &*arm.name);
        let hint = suggestion(name, names());
        let names: Vec<&str> = names().collect();
        let text = format!("there is no arm '{name}'{hint}; there are: {}", names.join(", "));
        problems.add_error(measure.offset_of("baseline"), text);
    }
    index.unwrap_or(0)
}

/// Returns the problems of given parameters without effect: every arm or every load has its own.
pub(super) fn ineffective_parameters(
    given: &[(String, String)],
    arms: &[Variant<'_>],
    loads: &[Variant<'_>],
) -> Vec<InputProblem> {
    let sides = [("arm", arms), ("load", loads)];
    let mut problems = Vec::new();
    for (name, _) in given {
        let key = format!("{PARAMETERS_KEY}.{name}");
        for (side, variants) in sides {
            if !variants.is_empty() && variants.iter().all(|variant| variant.key_offsets().contains_key(&key))
            {
                let text = format!("'{name}' has no effect: every {side} has its own");
                problems.push(InputProblem::new("--set", text));
            }
        }
    }
    problems
}
