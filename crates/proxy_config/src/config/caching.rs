//! Converts the `[cache.NAME]` sections, and `cache` of a route.

use std::path::PathBuf;
use std::sync::Arc;

use cache::{CacheRules, DefaultLifetime, Heuristic};
use record::document::Problems;
use record::invalid_value;
use record::problem::{InvalidValue, suggestion};
use rt::clock::SECOND_NS;

use crate::cache_store::StoreCell;
use crate::plan::{CacheDiskPlan, CachePlan, Condition, RouteCachePlan, Statuses};
use crate::template::{KnownValues, Scope};

use super::conditions::parse_condition;
use super::errors::ValueError;
use super::health::parse_statuses;
use super::routes::KnownNames;
use super::templates::parse_key;
use super::validate;
use super::value::{Section, parse_time_in_seconds};

/// Maximum number of entries of `valid`.
const VALID_MAX: usize = 16;

/// Reads the caches of a config.
pub(super) fn parse_caches(root: &Section, problems: &mut Problems) -> Vec<Arc<CachePlan>> {
    let sections = root.tables("cache");
    let mut caches: Vec<Arc<CachePlan>> = Vec::new();
    for section in &sections {
        problems.ok_or_report(section.offset, validate::check_name(&section.name));
        let memory_bytes_max = section.integer_or_zero("memory");
        let object_bytes_max = section.integer_or_zero("object-max");
        // A default is lowered.
        let fits = object_bytes_max <= memory_bytes_max / 4 || section.key_offset("object-max").is_none();
        let plan = CachePlan {
            name: section.name.clone(),
            memory_bytes_max,
            object_bytes_max: object_bytes_max.min(memory_bytes_max / 4),
            waiters_max: section.size("waiters-max"),
            fills_max: section.size("fills-max"),
            disk: section.key_offset("disk").and_then(|_| parse_disk(&section.table("disk"), problems)),
            store: StoreCell::default(),
        };
        if !fits {
            let text = "'object-max' is more than a quarter of `memory`: raise memory, or lower object-max";
            problems.add_error(section.value_offset("object-max"), text);
        }
        let has_same_directory = |other: &&Arc<CachePlan>| {
            let directory = plan.disk.as_ref().map(|disk| &disk.directory);
            directory.is_some() && other.disk.as_ref().map(|disk| &disk.directory) == directory
        };
        if let Some(other) = caches.iter().find(has_same_directory) {
            let text = format!("the directory is that of cache '{}': give each cache its own", other.name);
            problems.add_error(section.table("disk").value_offset("directory"), text);
        }
        caches.push(Arc::new(plan));
    }
    caches
}

fn parse_disk(section: &Section, problems: &mut Problems) -> Option<CacheDiskPlan> {
    let text = section.text("directory")?;
    let directory = problems.ok_or_report(text.offset, parse_directory(&text.value))?;
    Some(CacheDiskPlan {
        directory,
        bytes_max: section.integer_or_zero("size"),
        threads: section.size("threads"),
        files_max: section.integer_or_zero("files-max"),
    })
}

fn parse_directory(text: &str) -> Result<PathBuf, InvalidValue> {
    let path = PathBuf::from(text);
    match path.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(invalid_value!("{text}: not a directory")),
        Err(error) => Err(invalid_value!("{text}: {error}; create the directory")),
    }
}

/// Reads `cache` of a route; `None`: it has none, or one with faults.
pub(super) fn parse_cache(
    route: &Section,
    names: &KnownNames<'_>,
    problems: &mut Problems,
) -> Option<Arc<RouteCachePlan>> {
    route.key_offset("cache")?;
    let section = route.table("cache");
    let name = section.text("use")?;
    let cache = names.caches.iter().find(|cache| cache.name == name.value).cloned();
    if cache.is_none() {
        let hint = suggestion(&name.value, names.caches.iter().map(|cache| &*cache.name));
        let text = format!("unknown cache '{}'{hint}: add [cache.{}]", name.value, name.value);
        problems.add_error(name.offset, text);
    }
    let known = KnownValues { regex: None, maps: names.maps };
    let key = match section.text("key") {
        None => None,
        Some(text) => Some(parse_key(&text, Scope::Route, known, problems)?),
    };
    let mut condition = |key: &str| -> Option<Box<Condition>> {
        section.key_offset(key)?;
        parse_condition(&section.table(key), names, 1, problems).map(Box::new)
    };
    let (bypass, no_store) = (condition("bypass"), condition("no-store"));
    let valid = parse_valid(&section, problems);
    let coalesce_ns = parse_coalesce(&section, problems);
    let cache = cache?;
    Some(Arc::new(RouteCachePlan {
        key,
        rules: rules_of(&section, &valid, cache.object_bytes_max),
        cache,
        valid,
        coalesce_ns,
        bypass,
        no_store,
        status_field: section.flag("status-field"),
    }))
}

/// Returns the rules of a route in the form of the crate that follows them, whose times are complete seconds.
fn rules_of(section: &Section, valid: &[(Statuses, u64)], object_bytes_max: u64) -> CacheRules {
    let seconds = |key: &str| section.integer(key).unwrap_or_default().div_ceil(SECOND_NS);
    let lifetime = |(statuses, valid_ns): &(Statuses, u64)| DefaultLifetime {
        statuses: statuses.0.iter().cloned().flatten().collect(),
        seconds: valid_ns.div_ceil(SECOND_NS),
    };
    // From 0 to 100 by its kind.
    let percent = (section.float("heuristic").unwrap_or_default() * 100.0).round() as u8;
    CacheRules {
        valid: valid.iter().map(lifetime).collect(),
        heuristic: (percent > 0).then(|| Heuristic { percent, seconds_max: seconds("heuristic-max") }),
        ignores_request_cache_control: section.flag("ignore-request-directives"),
        stale_while_revalidate_s: seconds("stale-while-revalidate"),
        stale_if_error_s: seconds("stale-if-error"),
        stores_set_cookie: section.flag("remove-set-cookie"),
        object_bytes_max,
        ..CacheRules::default()
    }
}

fn parse_coalesce(section: &Section, problems: &mut Problems) -> u64 {
    let Some(text) = section.text("coalesce") else { return 0 };
    problems.ok_or_report(text.offset, parse_time_with_unit(&text.value)).unwrap_or_default()
}

fn parse_time_with_unit(text: &str) -> Result<u64, ValueError> {
    match text.ends_with(|last: char| last.is_ascii_alphabetic()) {
        true => parse_time_in_seconds(text),
        false => Err(ValueError::NoUnit(text.into())),
    }
}

fn parse_valid(section: &Section, problems: &mut Problems) -> Vec<(Statuses, u64)> {
    let entries = section.tables("valid");
    if let Some(extra) = entries.get(VALID_MAX) {
        problems.add_error(extra.offset, format!("`valid` has at most {VALID_MAX} entries"));
    }
    let parse = |entry: &Section| {
        let text = entry.text("status")?;
        let statuses = problems.ok_or_report(text.offset, parse_statuses(&text.value))?;
        Some((statuses, entry.integer("for")?))
    };
    entries.iter().take(VALID_MAX).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    const REST: &str = "[listener.web]\nbind = '127.0.0.1:0'\n[pool.app]\nservers = ['127.0.0.1:9001']\n\
                        [cache.c]\nmemory = '8m'\n";

    /// Returns the cache of the route as `--explain` prints it; an error: all problems and warnings.
    fn cache(rest: &str, route: &str) -> Result<String, Vec<String>> {
        let text = format!("[[route]]\npool = 'app'\n{route}\n{REST}{rest}");
        match parse("t", &text) {
            Ok(parsed) if parsed.warnings.is_empty() => {
                let settings = parsed.plan.routes[0].settings.for_listener(0);
                Ok(settings
                    .and_then(|own| own.cache.as_ref())
                    .map_or_else(String::new, |plan| plan.to_string()))
            }
            Ok(parsed) => Err(parsed.warnings.iter().map(ToString::to_string).collect()),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_route_names_its_cache() {
        for (route, expected) in [
            ("", ""),
            ("cache = { use = 'c' }", "c (key pool, scheme, host and target, coalescing for 5s)"),
            (
                "cache = { use = 'c', key = '{host}{path}', coalesce = false, valid = [{ status = '200,3xx', for = '10m' }] }",
                "c (key {host}{path}, 200,300-399 for 10m, no coalescing)",
            ),
        ] {
            assert_eq!(cache("", route).as_deref(), Ok(expected), "{route}");
        }
    }

    #[test]
    fn wrong_values_have_a_place() {
        for (rest, route, part) in [
            ("", "cache = { use = 'd' }", "t:3:17: unknown cache 'd'"),
            ("", "cache = { use = 'c', key = '{nothing}' }", "nothing"),
            ("", "cache = { use = 'c', coalesce = '5' }", "t:3:33: "),
            ("", "cache = { use = 'c', valid = [{ status = '1', for = '1s' }] }", "'1'"),
            ("", "cache = { use = 'c', bypass = { cookie = {} } }", "'cookie' is empty"),
            ("object-max = '4m'\n", "", "more than a quarter of `memory`"),
            ("disk = { directory = '/dev/null' }\n", "", "/dev/null: not a directory"),
            (
                "disk = { directory = '/tmp' }\n[cache.d]\ndisk = { directory = '/tmp/.' }\n",
                "",
                "the directory is that of cache 'c'",
            ),
        ] {
            let problems = cache(rest, route).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains(part), "{rest} {route}: {problems:?}");
        }
        let text = "[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\nreturn = {}\ncache = { use = 'c' }\n[cache.c]\n";
        let warnings = parse("t", text).unwrap().warnings;
        assert!(warnings[0].to_string().contains("'cache' has no effect with return"), "{warnings:?}");
    }
}
