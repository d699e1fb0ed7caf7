//! Routes from rules: the first match decides. Rules are run symbolically: a world is the set of requests that have the
//! same changes, so a test behind a change sees the changed value. Requests for which a rule only possibly holds are
//! refused with 501 in front of the rules behind it.

use std::rc::Rc;

use super::write::{DEPTH_MAX, depth};
use super::{Action, Change, Condition, PathTest, Rule, StatusField, Test, ValueTest, key_reads};
use crate::document::{Origin, Origins, Value, add_origin};
use crate::left::{Kind, Report};
use crate::text::escape_regex;

/// Maximum number of sets of changes that requests may have at one rule.
const WORLDS_MAX: usize = 32;
/// Maximum number of routes of an import.
const ROUTES_MAX: usize = 4_000;
/// Maximum number of expressions in the conditions of all routes; weir needs about 20 KiB for each.
const EXPRESSIONS_MAX: usize = 8_000;
/// Bytes of routes that any config may become, and further bytes for each byte of the source.
pub(crate) const OUTPUT_BYTES: usize = 1 << 20;
pub(crate) const OUTPUT_FACTOR: usize = 16;

/// A route, before it has the form of a section. Its condition is known for every request.
#[derive(Clone, Debug)]
pub(crate) struct CompiledRoute {
    pub(crate) listeners: Vec<String>,
    pub(crate) condition: Condition,
    pub(crate) action: Action,
    pub(crate) changes: Vec<(Change, Rc<Origin>)>,
    pub(crate) origins: Origins,
    pub(crate) note: Option<&'static str>,
}

/// Config that would become too long, with the directive at which that was found.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct TooLong {
    pub(crate) origin: Option<Rc<Origin>>,
    pub(crate) reason: String,
}

/// Requests that have reached a rule with the same changes.
#[derive(Clone, Debug)]
struct World {
    guard: Condition,
    changes: Vec<(Change, Rc<Origin>)>,
}

/// Compiler of rules, with its result so far.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub(crate) routes: Vec<CompiledRoute>,
    listeners: Vec<String>,
    expressions: usize,
    /// Bytes that the routes may still have.
    room: usize,
}

impl Compiler {
    /// Creates a compiler for a source of this length.
    pub(crate) fn new(source_bytes: usize) -> Self {
        Self {
            routes: Vec::new(),
            listeners: Vec::new(),
            expressions: 0,
            room: OUTPUT_BYTES + OUTPUT_FACTOR * source_bytes,
        }
    }

    /// Compiles the rules of listeners. The last rule must be one for all requests.
    pub(crate) fn compile(
        &mut self,
        listeners: &[String],
        rules: &[Rule],
        report: &mut Report,
    ) -> Result<(), TooLong> {
        self.listeners = listeners.to_vec();
        let world = World { guard: Condition::Always, changes: Vec::new() };
        self.run(rules, vec![world], &Vec::new(), report).map(drop)
    }

    /// Runs rules. Returns the worlds that reach their end.
    fn run(
        &mut self,
        rules: &[Rule],
        mut worlds: Vec<World>,
        outer: &Origins,
        report: &mut Report,
    ) -> Result<Vec<World>, TooLong> {
        for rule in rules {
            if worlds.is_empty() {
                break;
            }
            self.charge(worlds.iter().map(World::weight).sum::<usize>(), rule.origin())?;
            worlds = match rule {
                Rule::Act(action, own) => {
                    let mut origins = outer.clone();
                    own.iter().for_each(|origin| add_origin(&mut origins, origin));
                    for world in &worlds {
                        self.emit(action, &origins, world, report)?;
                    }
                    Vec::new()
                }
                Rule::Change(condition, change, origin) => change_worlds(worlds, condition, change, origin),
                Rule::When(condition, inner, own) => {
                    let mut origins = outer.clone();
                    own.iter().for_each(|origin| add_origin(&mut origins, origin));
                    self.run_when(condition, inner, worlds, &origins, report)?
                }
                Rule::Scope(mark, inner) => self.run_scope(*mark, inner, worlds, outer, report)?,
            };
            if worlds.len() > WORLDS_MAX {
                let reason = format!(
                    "more than {WORLDS_MAX} combinations of changes: a change with a condition doubles the routes behind it"
                );
                return Err(TooLong { origin: rule.origin().cloned(), reason });
            }
        }
        Ok(worlds)
    }

    fn run_when(
        &mut self,
        condition: &Condition,
        inner: &[Rule],
        worlds: Vec<World>,
        origins: &Origins,
        report: &mut Report,
    ) -> Result<Vec<World>, TooLong> {
        let mut rest = Vec::new();
        for world in worlds {
            self.charge(condition.weight(), origins.last())?;
            let condition = resolve(condition, &world.changes);
            let guard = world.guard.and(&condition);
            if guard == Condition::Never {
                rest.push(world);
                continue;
            }
            let inner_world = World { guard, changes: world.changes.clone() };
            let ended = self.run(inner, vec![inner_world], origins, report)?;
            if condition == Condition::Always {
                rest.extend(ended);
                continue;
            }
            // Requests that ended inside have their routes in front of those behind.
            if ended.iter().all(|inner| inner.changes == world.changes) {
                rest.push(world);
            } else {
                rest.extend(ended);
                let guard = world.guard.and(&condition.negate());
                rest.push(World { guard, changes: world.changes });
            }
        }
        Ok(rest)
    }

    fn run_scope(
        &mut self,
        mark: usize,
        inner: &[Rule],
        worlds: Vec<World>,
        origins: &Origins,
        report: &mut Report,
    ) -> Result<Vec<World>, TooLong> {
        let mut rest: Vec<World> = Vec::new();
        for world in worlds {
            let mut ended = self.run(inner, vec![world.clone()], origins, report)?;
            let is_other = |(change, _): &(Change, Rc<Origin>)| *change != Change::Mark(mark);
            ended.iter_mut().for_each(|end| end.changes.retain(is_other));
            if !ended.is_empty() && ended.iter().all(|end| end.changes == world.changes) {
                rest.push(world);
                continue;
            }
            for end in ended {
                match rest.iter_mut().find(|other| other.changes == end.changes) {
                    Some(other) => other.guard = other.guard.clone().or(end.guard),
                    None => rest.push(end),
                }
            }
        }
        Ok(rest)
    }

    /// Counts bytes of routes.
    fn charge(&mut self, bytes: usize, origin: Option<&Rc<Origin>>) -> Result<(), TooLong> {
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                Ok(())
            }
            None => {
                let reason = format!(
                    "the routes become too long here: they may have {OUTPUT_BYTES} bytes, and {OUTPUT_FACTOR} for each byte of the config"
                );
                Err(TooLong { origin: origin.cloned(), reason })
            }
        }
    }

    fn emit(
        &mut self,
        action: &Action,
        origins: &Origins,
        world: &World,
        report: &mut Report,
    ) -> Result<(), TooLong> {
        let (mut sure, mut possible) = (world.guard.bound(false), world.guard.bound(true));
        if depth(&sure) > DEPTH_MAX || depth(&possible) > DEPTH_MAX {
            if let Some(origin) = origins.last() {
                let text = "conditions are inside each other more than 8 times: the requests get 501";
                report.add(Kind::NotSupported, origin, text);
            }
            (sure, possible) = (Condition::Never, Condition::Always);
        }
        let mut changes: Vec<(Change, Rc<Origin>)> = Vec::new();
        for (change, origin) in &world.changes {
            let is_used =
                !change.is_of_request() || action.forwards() || (action.uses_path() && change.is_rewrite());
            let is_idle = matches!(change, Change::Mark(_) | Change::FileRoot(_))
                || (matches!(change, Change::Compress(_)) && !action.forwards());
            if is_used && !is_idle {
                let change = &without_nosniff(change, action);
                add_change(&mut changes, change, origin, report);
            }
        }
        let prefix = changes.iter().find_map(|(change, _)| match change {
            Change::RewritePrefix(prefix, _) => Some(prefix.clone()),
            _ => None,
        });
        if let Some(prefix) = prefix {
            // weir replaces a prefix of requests with exactly this prefix: the others are refused.
            sure = match has_prefix(&sure, &prefix) {
                true => sure,
                false => sure.and(&Condition::path(PathTest::Prefix(prefix))),
            };
        }
        if action.uses_path() && world.changes.iter().any(|(change, _)| *change == Change::Refuse) {
            sure = Condition::Never;
        }
        let action = match completed(action, &world.changes) {
            Ok(action) => Some(action),
            Err((origin, reason)) => {
                if let Some(origin) = origin.or_else(|| origins.last()) {
                    report.add(Kind::NotSupported, origin, reason);
                }
                sure = Condition::Never;
                None
            }
        };
        if let Some(action) = action.filter(|_| sure != Condition::Never) {
            self.push(sure.clone(), action, changes, origins, None)?;
        }
        if possible != sure {
            self.push(possible, Action::Deny(501), Vec::new(), origins, Some(REFUSED))?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        condition: Condition,
        action: Action,
        changes: Vec<(Change, Rc<Origin>)>,
        origins: &Origins,
        note: Option<&'static str>,
    ) -> Result<(), TooLong> {
        self.expressions += condition.expressions();
        if self.routes.len() >= ROUTES_MAX || self.expressions > EXPRESSIONS_MAX {
            let reason = format!(
                "more than {ROUTES_MAX} routes, or {EXPRESSIONS_MAX} expressions in their conditions: divide the config"
            );
            return Err(TooLong { origin: origins.last().cloned(), reason });
        }
        let texts = origins.iter().map(|origin| origin.text.len().min(200) + 40).sum::<usize>();
        let own = changes.iter().map(|(change, _)| change.weight()).sum::<usize>() + action.weight();
        self.charge(64 + condition.weight() + texts + own, origins.last())?;
        let listeners = self.listeners.clone();
        self.routes.push(CompiledRoute {
            listeners,
            condition,
            action,
            changes,
            origins: origins.clone(),
            note,
        });
        Ok(())
    }
}

/// Comment of a route that refuses what is not known.
const REFUSED: &str =
    "weir cannot tell whether the rule holds for these requests, or cannot do what it says: it refuses them.";

impl CompiledRoute {
    /// Returns whether the value of a map is a part of its condition or of its texts.
    pub(crate) fn uses_map(&self, name: &str) -> bool {
        let is_tested = |part: &Condition| match part {
            Condition::Test(test) => matches!(&**test, Test::Map(test) if test.name == name),
            _ => false,
        };
        self.condition.contains(&is_tested)
            || self.action.template().is_some_and(|text| text.maps().any(|map| map == name))
            || self
                .changes
                .iter()
                .any(|(change, _)| change.text().is_some_and(|text| text.maps().any(|map| map == name)))
    }
}

impl World {
    fn weight(&self) -> usize {
        let parts = match &self.guard {
            Condition::All(parts) | Condition::Any(parts) => parts.len(),
            _ => 0,
        };
        16 + self.changes.len() * 16 + parts * 16
    }
}

/// Returns the change as it is behind others: a second rewrite of a path is joined with the first, or refused.
fn joined(change: &Change, changes: &[(Change, Rc<Origin>)]) -> Change {
    use Change::{Refuse, RewritePath, RewritePrefix};
    let first = changes.iter().map(|(change, _)| change).rfind(|change| change.is_rewrite());
    match (first, change) {
        (Some(RewritePrefix(outer, root)), RewritePrefix(inner, to)) if root == "/" => {
            RewritePrefix(format!("{}{inner}", outer.trim_end_matches('/')), to.clone())
        }
        (Some(RewritePath(_)), RewritePrefix(..)) | (Some(RewritePrefix(..)), RewritePrefix(..)) => Refuse,
        _ => change.clone(),
    }
}

fn change_worlds(
    worlds: Vec<World>,
    condition: &Condition,
    change: &Change,
    origin: &Rc<Origin>,
) -> Vec<World> {
    let mut changed = Vec::new();
    for world in worlds {
        let condition = resolve(condition, &world.changes);
        let guard = world.guard.and(&condition);
        if guard != Condition::Never {
            let mut changes = world.changes.clone();
            changes.push((joined(change, &changes), Rc::clone(origin)));
            changed.push(World { guard, changes });
        }
        let guard = world.guard.and(&condition.negate());
        if guard != Condition::Never {
            changed.push(World { guard, changes: world.changes });
        }
    }
    changed
}

/// Returns a change that does not repeat the field `X-Content-Type-Options` of files.
fn without_nosniff(change: &Change, action: &Action) -> Change {
    let is_own = |name: &str| name.eq_ignore_ascii_case("x-content-type-options");
    match change {
        _ if !matches!(action, Action::Files(..)) => change.clone(),
        Change::AddResponse(name, text) if is_own(name) => Change::SetResponse(name.clone(), text.clone()),
        Change::ResponseOf(field) if is_own(&field.name) => {
            Change::ResponseOf(StatusField { is_added: false, ..field.clone() })
        }
        other => other.clone(),
    }
}

/// Returns an action with what changes say of it. An error is the reason why they refuse it, and its place.
fn completed<'c>(
    action: &Action,
    changes: &'c [(Change, Rc<Origin>)],
) -> Result<Action, (Option<&'c Rc<Origin>>, &'static str)> {
    let Action::Files(entries, settings) = action else { return Ok(action.clone()) };
    let mut entries = entries.clone();
    if !entries.iter().any(|(key, _)| key == "root") {
        let mut root = None;
        for (change, origin) in changes {
            match change {
                Change::FileRoot(Ok(path)) => root = Some(path),
                Change::FileRoot(Err(reason)) => return Err((Some(origin), reason)),
                _ => {}
            }
        }
        let root = root.ok_or((None, "files without a known `root` are 501"))?;
        entries.insert(0, ("root".to_owned(), Value::text(root)));
    }
    let compression = changes.iter().rev().find_map(|(change, _)| match change {
        Change::Compress(Value::Table(keys)) => Some(keys),
        _ => None,
    });
    if let Some(keys) = compression {
        let is_of_files =
            |(key, _): &&(String, Value)| !["types", "with-credentials"].contains(&key.as_str());
        let keys = keys.iter().filter(is_of_files).cloned().collect();
        entries.push(("compression".to_owned(), Value::Table(keys)));
    }
    Ok(Action::Files(entries, settings.clone()))
}

/// Returns whether all requests of a condition have exactly this prefix, because one of its parts says so.
fn has_prefix(condition: &Condition, prefix: &str) -> bool {
    let is_prefix = |part: &Condition| match part {
        Condition::Test(test) => match &**test {
            Test::Path(PathTest::Prefix(path)) => path == prefix,
            Test::Path(PathTest::Begins(path)) => path == prefix && path.ends_with('/'),
            _ => false,
        },
        _ => false,
    };
    match condition {
        _ if prefix == "/" => true,
        Condition::All(parts) => parts.iter().any(is_prefix),
        part => is_prefix(part),
    }
}

/// Returns a condition as it is for requests with these changes, in terms of the request before them.
fn resolve(condition: &Condition, changes: &[(Change, Rc<Origin>)]) -> Condition {
    condition.map(&mut |test| match test {
        Test::Header(name, value) => resolve_field(name, value, changes),
        Test::Host(_) => resolve_field("host", &ValueTest::Present, changes).map(|_| Condition::Unknown),
        Test::Cookie(..) => resolve_field("cookie", &ValueTest::Present, changes).map(|_| Condition::Unknown),
        Test::Path(path) => resolve_path(path, changes),
        Test::Map(map) => map.reads().any(|name| is_changed(name, changes)).then_some(Condition::Unknown),
        Test::Percent(_, key) => {
            key_reads(key).any(|name| is_changed(name, changes)).then_some(Condition::Unknown)
        }
        Test::Marked(mark) => {
            let is_marked = changes.iter().any(|(change, _)| *change == Change::Mark(*mark));
            Some(if is_marked { Condition::Always } else { Condition::Never })
        }
        _ => None,
    })
}

/// Returns whether changes touch a value of the request, such as `path` or `header.x-a`.
fn is_changed(value: &str, changes: &[(Change, Rc<Origin>)]) -> bool {
    let field = match value.split_once('.') {
        Some(("header", field)) => field,
        Some(("cookie", _)) => "cookie",
        _ => value,
    };
    changes.iter().any(|(change, _)| match field {
        "path" => change.is_rewrite(),
        field => change.touches_field(field),
    })
}

/// Returns the value of a field's test behind changes; `None`: they do not change the field.
fn resolve_field(name: &str, value: &ValueTest, changes: &[(Change, Rc<Origin>)]) -> Option<Condition> {
    let last = changes.iter().rev().find(|(change, _)| change.touches_field(name))?;
    let known = |holds: bool| if holds { Condition::Always } else { Condition::Never };
    Some(match &last.0 {
        Change::RemoveRequest(_) => known(*value == ValueTest::Absent),
        Change::SetRequest(_, text) => text
            .literal()
            .filter(|text| !text.is_empty())
            .and_then(|text| value.is_met_by(text))
            .map_or(Condition::Unknown, known),
        // A line more: what holds for it holds.
        Change::AddRequest(_, text) => match text.literal().and_then(|text| value.is_met_by(text)) {
            Some(true) if text.literal() != Some("") => Condition::Always,
            _ => Condition::Unknown,
        },
        _ => Condition::Unknown,
    })
}

/// Returns the condition of a path behind rewrites; `None`: there is none.
fn resolve_path(test: &PathTest, changes: &[(Change, Rc<Origin>)]) -> Option<Condition> {
    let rewrites: Vec<&Change> =
        changes.iter().map(|(change, _)| change).filter(|change| change.is_rewrite()).collect();
    let last = rewrites.last()?;
    let known = |holds: bool| if holds { Condition::Always } else { Condition::Never };
    Some(match (last, test) {
        (Change::RewritePath(path), PathTest::Exact(wanted)) => known(path == wanted),
        (Change::RewritePath(path), PathTest::Begins(start)) => known(path.starts_with(start.as_str())),
        (Change::RewritePath(path), PathTest::Prefix(prefix)) => {
            let rest = path.strip_prefix(prefix.trim_end_matches('/'));
            known(path == prefix || rest.is_some_and(|rest| rest.starts_with('/')))
        }
        // A prefix that was removed is in front of what is behind it.
        (Change::RewritePrefix(prefix, to), test) if to == "/" && rewrites.len() == 1 => {
            let bare = prefix.trim_end_matches('/');
            match test {
                PathTest::Exact(path) if path == "/" => Condition::any([
                    Condition::path(PathTest::Exact(bare.to_owned())),
                    Condition::path(PathTest::Exact(format!("{bare}/"))),
                ]),
                PathTest::Begins(path) if path == "/" => Condition::Always,
                PathTest::Exact(path) => Condition::path(PathTest::Exact(format!("{bare}{path}"))),
                PathTest::Begins(path) => Condition::path(PathTest::Begins(format!("{bare}{path}"))),
                PathTest::Regex(text) => match text.strip_prefix("(?i)^/") {
                    Some(rest) if !rest.contains(['|', '^']) => {
                        let regex = format!("(?i)^{}/{rest}", escape_regex(bare));
                        Condition::path(PathTest::Regex(regex))
                    }
                    _ => Condition::Unknown,
                },
                PathTest::Prefix(_) => Condition::Unknown,
            }
        }
        _ => Condition::Unknown,
    })
}

/// Adds a change; a field that is set again, or a second rewrite, replaces the first.
fn add_change(
    kept: &mut Vec<(Change, Rc<Origin>)>,
    change: &Change,
    origin: &Rc<Origin>,
    report: &mut Report,
) {
    use Change::{AddRequest, AddResponse, Compress, RemoveRequest, RemoveResponse, SetRequest, SetResponse};
    let is_replaced = |old: &Change| match (change, old) {
        (
            SetRequest(new, _) | RemoveRequest(new),
            SetRequest(name, _) | AddRequest(name, _) | RemoveRequest(name),
        )
        | (
            SetResponse(new, _) | RemoveResponse(new),
            SetResponse(name, _) | AddResponse(name, _) | RemoveResponse(name),
        ) => new.eq_ignore_ascii_case(name),
        (Compress(_), Compress(_)) => true,
        (new, old) => new.is_rewrite() && old.is_rewrite(),
    };
    if matches!(change, Change::Page(_) | Change::ResponseOf(_)) && kept.iter().any(|(old, _)| old == change)
    {
        return;
    }
    kept.retain(|(old, _)| !is_replaced(old));
    let is_duplicate = |old: &Change| match (change, old) {
        (AddRequest(new, _), AddRequest(name, _)) | (AddResponse(new, _), AddResponse(name, _)) => {
            new.eq_ignore_ascii_case(name)
        }
        _ => false,
    };
    if kept.iter().any(|(old, _)| is_duplicate(old)) {
        report.not_supported(origin, "a route of weir adds one line of a field");
        return;
    }
    kept.push((change.clone(), Rc::clone(origin)));
}
