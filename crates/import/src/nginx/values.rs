//! Texts and conditions with variables that the config itself defines: those of `map`, `geo`, `split_clients` and `set`.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::maps::Resolved;
use super::phases::Converter;
use super::variables::{Known, positive_condition, push_variable, split_name};
use crate::directive::Directive;
use crate::document::Origin;
use crate::left::Kind;
use crate::paths::portable;
use crate::rules::{Change, Condition, MapTest, Rule, Test, ValueTest};
use crate::text::{Template, Variable};

/// Maximum number of texts that one text may become.
const ALTERNATIVES_MAX: usize = 64;
/// Maximum number of combinations of changes in a location.
const WORLDS_MAX: usize = 24;
/// Maximum number of variables whose values are in the values of others.
const DEPTH_MAX: usize = 4;

/// Values of `set`; `None`: it is set several times, or in `if`.
pub(super) type Constants = BTreeMap<String, Option<String>>;

/// Texts with their conditions, of which the first one that holds counts; the last one holds for all requests.
pub(super) type Alternatives = Vec<(Condition, Template)>;

/// Form of a text, and number of the texts around it.
#[derive(Clone, Copy)]
struct Form {
    /// True if it may have values of maps; otherwise each value makes a text of its own.
    has_maps: bool,
    depth: usize,
}

impl Form {
    /// Returns the form of a value in the text; `None`: too many are in each other.
    fn inner(self) -> Option<Self> {
        (self.depth < DEPTH_MAX).then_some(Self { depth: self.depth + 1, ..self })
    }
}

/// Adds the variables that a block sets.
pub(super) fn add_constants(directives: &[Directive], constants: &mut Constants) {
    for directive in directives {
        match directive.name() {
            "set" => {
                let name = directive.argument(0).trim_start_matches('$').to_owned();
                let value = directive.argument(1).to_owned();
                constants.entry(name).and_modify(|value| *value = None).or_insert(Some(value));
            }
            "if" => {
                for inner in directive.inner().iter().filter(|inner| inner.name() == "set") {
                    constants.insert(inner.argument(0).trim_start_matches('$').to_owned(), None);
                }
            }
            _ => {}
        }
    }
}

impl Converter<'_, '_> {
    /// Returns a text with the values of variables, if it is one for all requests.
    pub(super) fn template(&mut self, text: &str) -> Option<Template> {
        let mut alternatives = self.alternatives(text)?;
        (alternatives.len() == 1).then(|| alternatives.swap_remove(0).1)
    }

    /// Returns the texts that a text may become; `None`: it has a variable that is not known.
    pub(super) fn alternatives(&mut self, text: &str) -> Option<Alternatives> {
        let mut all = vec![(Condition::Always, Template::default())];
        self.append(text, &mut all, Form { has_maps: true, depth: 0 })?;
        Some(all)
    }

    /// Returns the texts that a text may become, of which none has the value of a map.
    pub(super) fn expanded(&mut self, text: &str) -> Option<Alternatives> {
        let mut all = vec![(Condition::Always, Template::default())];
        self.append(text, &mut all, Form { has_maps: false, depth: 0 })?;
        Some(all)
    }

    /// Appends a text to each of these texts.
    fn append(&mut self, text: &str, all: &mut Alternatives, form: Form) -> Option<()> {
        let known = Known { is_key: !form.has_maps, ..Known::of(self.server) };
        // A text may have others that have others.
        self.draft.spend(16 + text.len() * all.len(), &self.server.origin).then_some(())?;
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            all.iter_mut().for_each(|(_, template)| template.push_text(before));
            let (name, after) = split_name(after)?;
            if let Some(constant) = self.constants.get(name) {
                let value = constant.clone()?;
                self.append(&value, all, form.inner()?)?;
                rest = after;
                continue;
            }
            if let Some(value) = self.value_without_hidden_field(name) {
                self.append(&value, all, form.inner()?)?;
                rest = after;
                continue;
            }
            let Some(resolved) = self.resolved(name) else {
                let mut next = after;
                for (_, template) in all.iter_mut() {
                    next = push_variable(name, after, known, template)?;
                }
                rest = next;
                continue;
            };
            let resolved = resolved?;
            match resolved.literal_map() {
                Some(map) if form.has_maps => {
                    all.iter_mut().for_each(|(_, template)| template.push(Variable::Map(map.to_owned())));
                }
                _ => self.append_alternatives(&resolved, all, form)?,
            }
            rest = after;
        }
        all.iter_mut().for_each(|(_, template)| template.push_text(rest));
        Some(())
    }

    fn append_alternatives(&mut self, resolved: &Resolved, all: &mut Alternatives, form: Form) -> Option<()> {
        if all.len() * resolved.alternatives.len() > ALTERNATIVES_MAX {
            return None;
        }
        let mut joined = Vec::new();
        for (outer, template) in std::mem::take(all) {
            for (condition, value) in resolved.alternatives.iter() {
                let mut inner = vec![(outer.and(condition), template.clone())];
                self.append(value, &mut inner, form.inner()?)?;
                joined.extend(inner);
            }
        }
        *all = joined;
        (all.len() <= ALTERNATIVES_MAX).then_some(())
    }

    /// Returns the value of a variable that depends on a field of a proxy in front, for requests without it.
    fn value_without_hidden_field(&mut self, name: &str) -> Option<String> {
        let variables = Rc::clone(&self.server.scope.variables);
        let variable = variables.get(name)?;
        let value = variable.value_without_hidden_field()?;
        let text =
            "such a field counts from `trusted` peers only: the value is the one of requests without it";
        self.draft.leave(Kind::Differs, variable.origin(), text);
        Some(value.to_owned())
    }

    /// Returns a variable of a block; `None`: there is no such block. The inner `None`: weir cannot have it.
    fn resolved(&mut self, name: &str) -> Option<Option<Resolved>> {
        let variables = Rc::clone(&self.server.scope.variables);
        let variable = variables.get(name)?;
        Some(match variable.resolve(Known::of(self.server), &variables, self.draft) {
            Ok(resolved) => Some(resolved),
            Err(reason) => {
                let text = format!("weir cannot have the variable ${name}: {reason}");
                self.draft.leave(Kind::NotSupported, variable.origin(), text);
                None
            }
        })
    }

    /// Converts the test of a variable; `None`: weir has no such condition.
    pub(super) fn variable_condition(
        &mut self,
        name: &str,
        operator: &str,
        value: &str,
    ) -> Option<Condition> {
        if let Some(constant) = self.constants.get(name) {
            let constant = constant.as_deref().filter(|text| !text.contains('$'))?;
            return is_met(constant, operator, value).map(known_condition);
        }
        match self.resolved(name) {
            None => positive_condition(name, operator, value, self.server.knows_source()),
            Some(resolved) => {
                let resolved = resolved.filter(|resolved| resolved.is_exact)?;
                condition_of(&resolved, operator, value)
            }
        }
    }

    /// Returns the texts of a change; `None`: weir has no such text, or they are too many.
    pub(super) fn changes(&mut self, text: &str) -> Option<Alternatives> {
        let alternatives = self.alternatives(text)?;
        let worlds = self.worlds * alternatives.len();
        if worlds > WORLDS_MAX {
            return None;
        }
        self.worlds = worlds;
        Some(alternatives)
    }

    /// Returns the rules of a change whose text depends on the request.
    pub(super) fn change_rules(
        &mut self,
        mut alternatives: Alternatives,
        change: &dyn Fn(Template) -> Change,
        origin: &Rc<Origin>,
    ) -> Vec<Rule> {
        let always = |change| Rule::Change(Condition::Always, change, Rc::clone(origin));
        if alternatives.len() == 1 {
            return vec![always(change(alternatives.swap_remove(0).1))];
        }
        self.marks += 1;
        let mark = self.marks;
        let unmarked = Condition::test(Test::Marked(mark)).negate();
        let rules = alternatives.into_iter().map(|(condition, template)| {
            let inner = vec![always(change(template)), always(Change::Mark(mark))];
            Rule::When(unmarked.and(&condition), inner.into(), Vec::new())
        });
        vec![Rule::Scope(mark, rules.collect())]
    }
}

fn known_condition(holds: bool) -> Condition {
    if holds { Condition::Always } else { Condition::Never }
}

/// Returns whether a fixed text passes a test of `if`; `None`: an expression decides.
fn is_met(text: &str, operator: &str, value: &str) -> Option<bool> {
    match operator {
        "" => Some(!matches!(text, "" | "0")),
        "=" => Some(text == value),
        _ => None,
    }
}

fn condition_of(resolved: &Resolved, operator: &str, value: &str) -> Option<Condition> {
    let (_, default) = resolved.alternatives.last()?;
    let is_long = operator.is_empty() && resolved.alternatives.len() > 8;
    if let (Some(map), true) = (resolved.literal_map(), is_long || operator.starts_with('~')) {
        let regex = match operator {
            // Neither empty nor 0.
            "" => "..|[^0]".to_owned(),
            operator => portable(value, operator == "~*")?,
        };
        // Of all entries, one has the key.
        let Some((Condition::Test(first), _)) = resolved.alternatives.first() else { return None };
        let Test::Map(MapTest { key, .. }) = &**first else { return None };
        let test = MapTest { name: map.to_owned(), key: key.clone(), value: ValueTest::Regex(regex) };
        return Some(Condition::test(Test::Map(test)));
    }
    let met = |text: &str| match text.contains('$') {
        true => Condition::Unknown,
        false => is_met(text, operator, value).map_or(Condition::Unknown, known_condition),
    };
    let last = met(default);
    let inner = &resolved.alternatives[..resolved.alternatives.len() - 1];
    if resolved.map.is_none() {
        // Shares include each other.
        return Some(inner.iter().rev().fold(last, |rest, (condition, text)| {
            let outside = condition.clone().negate().and(&rest);
            condition.and(&met(text)).or(outside)
        }));
    }
    // A request has one value of a map.
    let with = |wanted: &Condition| {
        let parts = inner.iter().filter(|(_, text)| met(text) == *wanted);
        Condition::any(parts.map(|(condition, _)| condition.clone()))
    };
    let unknown = with(&Condition::Unknown);
    let certain = match last {
        Condition::Always => with(&Condition::Never).negate(),
        Condition::Never => with(&Condition::Always),
        _ => {
            let known = with(&Condition::Always);
            let others = known.clone().or(with(&Condition::Never)).negate();
            return Some(known.or(others.and(&Condition::Unknown)));
        }
    };
    Some(match unknown {
        Condition::Never => certain,
        unknown => certain.except(&unknown),
    })
}
