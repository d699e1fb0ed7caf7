//! Converts `split` of a route.

use std::sync::Arc;

use record::document::Problems;

use crate::key_digest::digest;
use crate::plan::{Action, NamedWeight, PoolId, SplitPlan, SplitShare};
use crate::split::parse_weight;
use crate::template::{KnownValues, Scope};

use super::listeners::find_pool;
use super::routes::KnownNames;
use super::templates::parse_key;
use super::validate;
use super::value::{Matcher, Section};

/// Maximum number of pools of a split.
const POOLS_MAX: usize = 16;

pub(super) fn parse_split(
    table: &Section,
    names: &KnownNames<'_>,
    known: KnownValues<'_>,
    problems: &mut Problems,
) -> Action {
    let name = table.text("name");
    if let Some(name) = &name {
        problems.ok_or_report(name.offset, validate::check_name(&name.value));
    }
    let name = name.map(|name| name.value);
    let key = table.text("key").and_then(|text| parse_key(&text, Scope::Key, known, problems));
    let pairs = table.pairs("pools");
    let mut shares: Vec<SplitShare> = Vec::new();
    for pair in &pairs {
        let pool = find_pool(&pair.name, names.pools, problems);
        let Matcher::Text(weight) = &pair.matcher.value else { continue };
        let Some(weight) = parse_weight(weight) else { continue };
        shares.push(SplitShare {
            // An unknown pool is an error, so there is no plan.
            pool: pool.unwrap_or(PoolId(0)),
            name_digest: digest(pair.name.value.as_bytes()),
            weight,
            named: name.as_ref().map(|name| NamedWeight::open(name, &pair.name.value)),
        });
    }
    let offset = table.value_offset("pools");
    if pairs.is_empty() && table.key_offset("pools").is_some() {
        problems.add_error(offset, "the split has no pool: write { stable = 90, canary = 10 }");
    } else if !shares.is_empty() && shares.iter().all(|share| share.weight == 0) {
        problems.add_error(offset, "all weights are 0: give one of the pools a weight");
    }
    if let Some(extra) = pairs.get(POOLS_MAX) {
        problems.add_error(extra.name.offset, format!("a split has at most {POOLS_MAX} pools"));
    }
    Action::Split(Arc::new(SplitPlan { name, key, falls_back: table.flag("fallback"), shares }))
}

#[cfg(test)]
mod tests {
    use crate::config::parse;
    use crate::plan::{Action, Plan};

    const REST: &str = "[listener.web]\nbind = '127.0.0.1:0'\n\
        [pool.stable]\nservers = ['127.0.0.1:9001']\ntimeouts = { idle = '7s' }\n\
        [pool.canary]\nservers = ['127.0.0.1:9002']\n";

    fn plan(split: &str, rest: &str) -> Result<Plan, Vec<String>> {
        let text = format!("{REST}[[route]]\nsplit = {split}\n{rest}\n");
        match parse("t", &text) {
            Ok(parsed) if parsed.warnings.is_empty() => Ok(parsed.plan),
            Ok(parsed) => Err(parsed.warnings.iter().map(ToString::to_string).collect()),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn each_pool_has_the_settings_of_its_own() {
        let split =
            "{ pools = { stable = 90, canary = 10 }, key = 'cookie.user', name = 'web', fallback = true }";
        let plan = plan(split, "timeouts = { connect = '1s' }").unwrap();
        let Action::Split(split) = &plan.routes[0].action else { panic!() };
        let weights: Vec<_> = split.shares.iter().map(|share| (share.pool.0, share.current())).collect();
        assert_eq!((weights, split.falls_back), (vec![(0, 90), (1, 10)], true));
        let idle: Vec<u64> = plan.routes[0]
            .settings
            .by_listener
            .iter()
            .map(|settings| settings.server.idle_ns / 1_000_000_000)
            .collect();
        assert_eq!(idle, [7, 30]);
        assert!(
            plan.routes[0]
                .settings
                .by_listener
                .iter()
                .all(|settings| settings.server.connect_ns == 1_000_000_000)
        );
    }

    #[test]
    fn wrong_splits_have_a_place() {
        for (split, part) in [
            ("{ pools = { stable = 0, canary = 0 } }", "all weights are 0"),
            ("{ pools = {} }", "no pool"),
            ("{ pools = { stable = 1, canry = 1 } }", "unknown pool 'canry' (did you mean 'canary'?)"),
            ("{ pools = { stable = 'x', canary = 1 } }", "'stable' is"),
            ("{ pools = { stable = 1, canary = 1 }, key = 'cookie' }", "'cookie'"),
            ("{ pools = { stable = 1, canary = 1 }, name = 'a b' }", "'a b'"),
            ("{ key = 'source' }", "'pools' is missing"),
        ] {
            let problems = plan(split, "").unwrap_err();
            assert!(problems.iter().any(|problem| problem.contains(part)), "{split}: {problems:?}");
        }
        let problems = plan("{ pools = { stable = 1, canary = 1 } }", "pool = 'stable'").unwrap_err();
        assert!(problems[0].contains("exactly one action"), "{problems:?}");
    }
}
