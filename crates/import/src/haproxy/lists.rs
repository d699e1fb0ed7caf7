//! Lists of patterns in files (`-f`) become lists of weir, or conditions on each pattern.

use std::rc::Rc;

use super::acl::{Expression, Manner, NoEquivalent, no_equivalent, plain_condition};
use super::files;
use super::keys::{Key, Use};
use crate::document::Origin;
use crate::draft::{Draft, MapEntries, MapSection};
use crate::left::Kind;
use crate::rules::{Condition, MapTest, Test, ValueTest};

/// Maximum number of patterns of files that become conditions of routes.
pub(super) const INLINE_MAX: usize = 100;

/// Returns the condition that a text of the request is in one of the files, or equals a pattern.
pub(super) fn condition(
    (fetch, converters): (&str, &[&str]),
    expression: &Expression<'_>,
    files: &[&str],
    origin: &Rc<Origin>,
    draft: &mut Draft<'_>,
) -> Result<Condition, NoEquivalent> {
    if fetch == "src" && expression.manner == Manner::Equals && converters.is_empty() {
        if !files.iter().all(|file| file.starts_with('/')) {
            return no_equivalent("a list in a file with a relative path");
        }
        let lists = Condition::tests(files.iter().map(|file| Test::SourceFile((*file).to_owned())));
        return match expression.patterns.is_empty() {
            true => Ok(lists),
            false => Ok(lists.or(plain_condition(fetch, converters, expression)?)),
        };
    }
    let key = Key::parse(fetch, converters, Use::Condition);
    let mut any = Vec::new();
    let mut patterns: Vec<String> = expression.patterns.iter().map(|text| (*text).to_owned()).collect();
    for file in files {
        let text = draft.read_file(file)?;
        draft.spend(text.len() / 4, origin);
        let content = files::patterns(&text);
        let kind = match expression.manner {
            Manner::Equals => Ok("exact"),
            Manner::Begins => Ok("prefix"),
            Manner::Ends => Ok("suffix"),
            _ => no_equivalent("this manner of comparison in a list"),
        };
        let usable = kind.and_then(|kind| {
            let key = key.clone()?;
            // An exact condition on each pattern is better than a list with a doubt.
            if key.doubt != Condition::Never && key.text != "host" && content.items.len() <= INLINE_MAX {
                return no_equivalent("the values of a list");
            }
            match fault(&content, &key, expression.ignores_case) {
                Some(fault) => no_equivalent(fault),
                None => Ok((kind, key)),
            }
        });
        match usable {
            Ok((kind, key)) => any.push(listed(file, kind, key, expression.ignores_case, origin, draft)),
            Err(reason) if content.items.len() > INLINE_MAX => return Err(reason),
            Err(_) => {
                let text =
                    format!("the patterns of {file} are in the routes: a change of it needs a new import");
                draft.leave(Kind::Differs, origin, text);
                patterns.extend(content.items);
            }
        }
    }
    if !patterns.is_empty() {
        let patterns = patterns.iter().map(String::as_str).collect();
        let expression =
            Expression { manner: expression.manner, ignores_case: expression.ignores_case, patterns };
        any.push(plain_condition(fetch, converters, &expression)?);
    }
    Ok(Condition::any(any))
}

/// Returns the reason why weir finds other keys in a file.
fn fault(content: &files::Content<String>, key: &Key, ignores_case: bool) -> Option<String> {
    if let Some(fault) = &content.fault {
        return Some(fault.clone());
    }
    let mut patterns = content.items.iter();
    patterns.find_map(|pattern| key_fault(pattern, key, ignores_case))
}

/// Returns the reason why weir finds a key of a file for other requests.
pub(super) fn key_fault(text: &str, key: &Key, ignores_case: bool) -> Option<String> {
    let has_upper = text.bytes().any(|byte| byte.is_ascii_uppercase());
    if key.is_lower && !ignores_case && has_upper {
        return Some(format!("the key '{text}' has letters in upper case, which HAProxy never finds"));
    }
    (key.text == "host" && text.contains('['))
        .then(|| format!("the key '{text}' is an address of IPv6, whose colons HAProxy takes for a port"))
}

fn listed(
    file: &str,
    kind: &'static str,
    key: Key,
    ignores_case: bool,
    origin: &Rc<Origin>,
    draft: &mut Draft<'_>,
) -> Condition {
    let map = MapSection {
        key: key.text.clone(),
        entries: MapEntries::File(file.to_owned()),
        kind,
        ignores_case: ignores_case || key.is_lower,
        default: None,
    };
    let name = draft.add_map(name_of(file), map, origin);
    let test = MapTest { name, key: key.text, value: ValueTest::Present };
    let condition = Condition::test(Test::Map(test));
    match key.doubt {
        Condition::Never => condition,
        // With `-i`, the case of a host does not count in HAProxy either.
        _ if ignores_case && test_is_host(&condition) => condition,
        doubt => condition.except(&doubt),
    }
}

fn test_is_host(condition: &Condition) -> bool {
    matches!(condition, Condition::Test(test) if matches!(&**test, Test::Map(map) if map.key == "host"))
}

/// Returns the name of a file without its directory and its ending.
pub(super) fn name_of(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split_once('.').map_or(name, |(name, _)| name)
}
