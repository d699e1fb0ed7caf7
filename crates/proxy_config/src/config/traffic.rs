//! Converts `mirror` and `hedge` of a route.

use std::sync::Arc;

use record::document::Problems;

use crate::percent::NamedPercent;
use crate::plan::{HedgeDelay, MapPlan, MirrorPlan};
use crate::template::{KnownValues, Scope};

use super::errors::ValueError;
use super::listeners::find_pool;
use super::routes::KnownNames;
use super::templates::parse_key;
use super::validate;
use super::value::{Section, parse_time_in_seconds};

/// Maximum number of mirrors of a route.
const MIRRORS_MAX: usize = 4;

/// Reads the mirrors of a route.
pub(super) fn parse_mirrors(
    route: &Section,
    names: &KnownNames<'_>,
    problems: &mut Problems,
) -> Arc<[MirrorPlan]> {
    let sections = route.tables("mirror");
    if let Some(extra) = sections.get(MIRRORS_MAX) {
        problems.add_error(extra.offset, format!("a route has at most {MIRRORS_MAX} mirrors"));
    }
    let mirrors = sections.iter().take(MIRRORS_MAX);
    mirrors.filter_map(|section| parse_mirror(section, names, problems)).collect()
}

fn parse_mirror(section: &Section, names: &KnownNames<'_>, problems: &mut Problems) -> Option<MirrorPlan> {
    let pool = section.text("pool").and_then(|name| find_pool(&name, names.pools, problems));
    let named = section.text("name").map(|name| {
        problems.ok_or_report(name.offset, validate::check_name(&name.value));
        NamedPercent::open(&name.value)
    });
    let host = section.text("host").map(|host| {
        problems.ok_or_report(host.offset, validate::check_authority(&host.value));
        host.value
    });
    let mark = section.text("mark").map(|mark| {
        problems.ok_or_report(mark.offset, validate::check_changed_field(&mark.value, false));
        mark.value
    });
    let key = parse_mirror_key(section, names.maps, problems);
    let pool = pool?;
    Some(MirrorPlan {
        pool,
        pool_name: names.pools[pool].into(),
        percent: section.float("percent").unwrap_or(100.0),
        named,
        key: key.ok()?,
        host,
        mark,
        in_flight_max: section.size("in-flight"),
        body_bytes_max: section.size("body-max"),
        timeout_ns: section.integer_or_zero("timeout"),
    })
}

/// Reads the key of a percentage; `None`: it has none.
///
/// # Errors
/// It has a fault, which is reported.
fn parse_mirror_key(
    section: &Section,
    maps: &[Arc<MapPlan>],
    problems: &mut Problems,
) -> Result<Option<crate::plan::Template>, ()> {
    let Some(text) = section.text("key") else { return Ok(None) };
    let known = KnownValues { regex: None, maps };
    parse_key(&text, Scope::Key, known, problems).map(Some).ok_or(())
}

/// Reads the second attempt of slow requests; `None`: there is none.
pub(super) fn parse_hedge(route: &Section, problems: &mut Problems) -> Option<HedgeDelay> {
    route.key_offset("hedge")?;
    let section = route.table("hedge");
    let after = section.text("after")?;
    let delay = problems.ok_or_report(after.offset, parse_delay(&after.value, &section))?;
    if let HedgeDelay::Fixed { .. } = delay {
        for key in ["samples-min", "after-min"] {
            if let Some(offset) = section.key_offset(key) {
                problems.warn(offset, format!("'{key}' has no effect: `after` is a time, not a percentile"));
            }
        }
    }
    Some(delay)
}

fn parse_delay(text: &str, section: &Section) -> Result<HedgeDelay, ValueError> {
    let Some(percentile) = text.strip_prefix('p') else {
        let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
        let delay_ns = parse_time_in_seconds(text).ok().filter(|_| has_unit);
        let delay_ns = delay_ns.ok_or_else(|| ValueError::HedgeDelay(text.into()))?;
        return Ok(HedgeDelay::Fixed { delay_ns });
    };
    let is_number = percentile.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let percentile = percentile.parse().ok().filter(|percentile| (50.0..=99.9).contains(percentile));
    Ok(HedgeDelay::Percentile {
        percentile: percentile.filter(|_| is_number).ok_or_else(|| ValueError::HedgeDelay(text.into()))?,
        // At most 4294967295 by its kind.
        samples_min: u32::try_from(section.integer_or_zero("samples-min")).unwrap_or(u32::MAX),
        delay_min_ns: section.integer_or_zero("after-min"),
    })
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    const REST: &str = "[pool.app]\nservers = ['127.0.0.1:9001', '127.0.0.1:9002']\n\
                        [pool.shadow]\nservers = ['127.0.0.1:9003']\n";

    /// Returns both settings of the route as `--explain` prints them; an error: all problems and warnings.
    fn settings(route: &str) -> Result<(String, String), Vec<String>> {
        let text = format!(
            "[listener.web]\nbind = '127.0.0.1:0'\n[[route]]\nhost = 'h'\npool = 'app'\n{route}\n\
             [[route]]\npool = 'shadow'\n{REST}"
        );
        match parse("t", &text) {
            Ok(parsed) if parsed.warnings.is_empty() => {
                let settings = parsed.plan.routes[0].settings.for_listener(0).unwrap();
                let show =
                    |key| crate::plan::SETTINGS.iter().find(|setting| setting.key == key).unwrap().show;
                Ok((show("mirror")(settings), show("hedge")(settings)))
            }
            Ok(parsed) => Err(parsed.warnings.iter().map(ToString::to_string).collect()),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn mirrors_and_hedges_have_defaults() {
        for (route, mirror, hedge) in [
            (
                "mirror = { pool = 'shadow' }",
                "shadow (100 % of each request, bodies up to 65536 B, 64 in flight)",
                "false",
            ),
            (
                "mirror = [{ pool = 'shadow', percent = 5, key = 'source', host = 'h:1' }, { pool = 'app', in-flight = 1 }]",
                "shadow (5 % of source, host h:1, bodies up to 65536 B, 64 in flight), \
                 app (100 % of each request, bodies up to 65536 B, 1 in flight)",
                "false",
            ),
            ("hedge = {}", "none", "p95 of at least 100 response times, at least 1ms"),
            ("hedge = { after = '50ms' }", "none", "50ms"),
            (
                "hedge = { after = 'p99.5', samples-min = 7, after-min = '2s' }",
                "none",
                "p99.5 of at least 7 response times, at least 2s",
            ),
        ] {
            assert_eq!(settings(route), Ok((mirror.into(), hedge.into())), "{route}");
        }
    }

    #[test]
    fn wrong_and_useless_values_have_a_place() {
        for (route, part) in [
            ("mirror = { pool = 'shadw' }", "t:6:19: unknown pool 'shadw'"),
            ("mirror = { percent = 5 }", "pool"),
            ("mirror = { pool = 'shadow', mark = 'connection' }", "'connection' belongs to the connection"),
            ("mirror = { pool = 'shadow', host = 'a b' }", "'a b'"),
            ("mirror = { pool = 'shadow', key = 'nothing' }", "nothing"),
            ("hedge = { after = 'p49' }", "'p49' is neither a time nor a percentile"),
            ("hedge = { after = 'p+95' }", "'p+95'"),
            ("hedge = { after = '50' }", "'50'"),
            ("hedge = { after = '1s', samples-min = 3 }", "'samples-min' has no effect"),
        ] {
            let problems = settings(route).unwrap_err();
            assert!(problems.iter().any(|problem| problem.contains(part)), "{route}: {problems:?}");
        }
        let mirrors = ["{ pool = 'shadow' }"; 5].join(", ");
        let problems = settings(&format!("mirror = [{mirrors}]")).unwrap_err();
        assert!(problems[0].contains("at most 4 mirrors"), "{problems:?}");
    }
}
