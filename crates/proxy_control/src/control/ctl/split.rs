//! `split`: weights of pools of routes, changed while the proxy runs.

use record::sorted::sort_by_key;

use super::table::{Cell, OutputTable, render};
use super::{CommandError, CommandRequest, CommandResult};
use crate::config::suggestion;
use crate::control::ctl::change::KeptChange;
use crate::plan::{Plan, SplitShare};
use crate::split::{SPLIT_WEIGHT_MAX, parse_weight};

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    if request.args.is_empty() {
        return list(request);
    }
    let words: Vec<&str> = std::iter::once("split").chain(request.args.iter().copied()).collect();
    let Some(change) = KeptChange::parse(&words)? else { return Err(request.usage_error("split")) };
    request.context.run_on_owner(move |active| change.apply(active))??;
    let text = words.join(" ");
    request.log_change(&text);
    request.context.save_state()?;
    Ok(Some(format!("{text}\n")))
}

fn list(request: &CommandRequest<'_>) -> CommandResult {
    let active = request.context.active_config()?;
    let mut table = OutputTable::new("splits", &["name", "pool", "weight", "configured", "percent", "key"]);
    let mut names = Vec::new();
    for (name, split) in active.plan.named_splits() {
        if names.contains(&name) {
            continue;
        }
        names.push(name);
        let sum: u32 = split.shares.iter().map(SplitShare::current).sum();
        for share in &split.shares {
            table.rows.push(vec![
                name.into(),
                (&*active.plan.pools[share.pool].name).into(),
                Cell::Count(share.current().into()),
                Cell::Count(share.weight.into()),
                Cell::Number(100.0 * f64::from(share.current()) / f64::from(sum.max(1))),
                split.key.as_ref().map_or(Cell::Empty, |key| key.source().into()),
            ]);
        }
    }
    Ok(Some(render(&[table], request.wants_json)))
}

/// Parses weights, each as `POOL=WEIGHT`.
pub(super) fn parse_weights(words: &[&str]) -> Result<Vec<(Box<str>, u32)>, CommandError> {
    let parse = |word: &&str| {
        let (pool, weight) = word.split_once('=')?;
        Some((pool.into(), parse_weight(weight)?))
    };
    let parsed = words.iter().map(|word| {
        parse(word).ok_or_else(|| {
            let form = format!("POOL=WEIGHT, with a weight from 0 to {SPLIT_WEIGHT_MAX}");
            CommandError::Invalid(format!("'{word}' is not {form}"))
        })
    });
    parsed.collect()
}

/// Sets the weights of all splits with a name.
pub(super) fn change(plan: &Plan, name: &str, weights: &[(Box<str>, u32)]) -> Result<(), CommandError> {
    let shares: Vec<&SplitShare> = plan
        .named_splits()
        .filter(|(known, _)| *known == name)
        .flat_map(|(_, split)| &split.shares)
        .collect();
    if shares.is_empty() {
        let hint = suggestion(name, plan.named_splits().map(|(known, _)| known));
        return Err(CommandError::Invalid(format!("no route has a split with the name '{name}'{hint}")));
    }
    let pool_name = |share: &SplitShare| &*plan.pools[share.pool].name;
    for (pool, _) in weights {
        if !shares.iter().any(|share| pool_name(share) == &**pool) {
            let hint = suggestion(pool, shares.iter().map(|share| pool_name(share)));
            return Err(CommandError::Invalid(format!("split '{name}' has no pool '{pool}'{hint}")));
        }
    }
    let new_weight = |share: &SplitShare| {
        let given = weights.iter().rev().find(|(pool, _)| **pool == *pool_name(share));
        match given {
            Some((_, weight)) => Some(*weight),
            None if weights.is_empty() => None,
            None => share.named.as_ref().and_then(|named| named.changed()),
        }
    };
    for (_, split) in plan.named_splits().filter(|(known, _)| *known == name) {
        if split.shares.iter().all(|share| new_weight(share).unwrap_or(share.weight) == 0) {
            let text = "all weights would be 0: give one of the pools a weight";
            return Err(CommandError::Invalid(text.to_owned()));
        }
    }
    // Larger weights first, so that the requests in between find one that is not 0.
    let mut changes: Vec<_> = shares.iter().map(|share| (new_weight(share), share)).collect();
    sort_by_key(&mut changes, |(weight, share)| std::cmp::Reverse(weight.unwrap_or(share.weight)));
    for (weight, share) in changes {
        if let Some(named) = &share.named {
            named.change(weight);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn weights_change_in_all_routes_with_the_name_and_never_become_all_zero() {
        let text = "[listener.web]\nbind = '127.0.0.1:0'\n[pool.a]\nservers = ['127.0.0.1:1']\n\
            [pool.b]\nservers = ['127.0.0.1:2']\n\
            [[route]]\nhost = 'x'\nsplit = { pools = { a = 90, b = 10 }, name = 'unit-test' }\n\
            [[route]]\nsplit = { pools = { b = 10, a = 90 }, name = 'unit-test' }\n";
        let plan = parse("t", text).unwrap().plan;
        let current = || -> Vec<u32> {
            plan.named_splits().flat_map(|(_, split)| split.shares.iter().map(SplitShare::current)).collect()
        };
        let set = |words: &[&str]| change(&plan, "unit-test", &parse_weights(words).unwrap());
        set(&["b=20"]).unwrap();
        assert_eq!(current(), [90, 20, 20, 90]);
        set(&["a=0", "b=100"]).unwrap();
        assert_eq!(current(), [0, 100, 100, 0]);
        for (words, part) in [(&["b=0"][..], "all weights"), (&["c=1"], "no pool 'c'")] {
            let error = set(words).unwrap_err();
            assert!(format!("{error:?}").contains(part), "{error:?}");
        }
        assert!(
            change(&plan, "unit-tes", &[]).is_err_and(|error| format!("{error:?}").contains("unit-test"))
        );
        set(&[]).unwrap();
        assert_eq!(current(), [90, 10, 10, 90]);
        for wrong in ["a", "a=", "a=-1", "a=1000001", "a=1%"] {
            assert!(parse_weights(&[wrong]).is_err(), "{wrong}");
        }
    }
}
