//! `cache`: caches of responses, what they have, and purges.

use std::sync::Arc;

use cache::{Cache, CacheStats};

use super::table::{Cell, OutputTable, render};
use super::{CommandError, CommandRequest, CommandResult};
use crate::caching::unix_now;

/// Number of responses that are printed, the largest ones.
const RESPONSES_SHOWN_MAX: usize = 50;

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    match request.args {
        [] => list(request),
        ["show", name] => show(request, name),
        ["purge", name, "all"] => purge(request, name, Cache::purge_all),
        // A key may have spaces.
        ["purge", name, "key", words @ ..] if !words.is_empty() => {
            let text = words.join(" ");
            purge(request, name, |cache| cache.purge(&cache.key(text.as_bytes())))
        }
        ["purge", name, "prefix", words @ ..] if !words.is_empty() => {
            let text = words.join(" ");
            purge(request, name, |cache| cache.purge_prefix(text.as_bytes()))
        }
        ["purge", name, "tag", tag] => purge(request, name, |cache| cache.purge_tag(tag.as_bytes())),
        _ => Err(request.usage_error("cache")),
    }
}

fn list(request: &CommandRequest<'_>) -> CommandResult {
    let columns = &[
        "name",
        "responses",
        "memory_bytes",
        "memory_max_bytes",
        "disk_responses",
        "disk_bytes",
        "stored",
        "evicted",
        "purged",
        "arriving",
        "waiting",
        "disk_errors",
        "disk_state",
    ];
    let mut table = OutputTable::new("caches", columns);
    for plan in &*request.context.active_config()?.plan.caches {
        let Some(stats) = plan.store.get().map(|cache| cache.stats()) else { continue };
        let CacheStats { objects, memory_bytes, fills, waiters, stored, evicted, purged, disk, .. } = stats;
        table.rows.push(vec![
            (&*plan.name).into(),
            objects.into(),
            Cell::Bytes(memory_bytes as f64),
            Cell::Bytes(plan.memory_bytes_max as f64),
            disk.map_or(Cell::Empty, |disk| disk.objects.into()),
            disk.map_or(Cell::Empty, |disk| Cell::Bytes(disk.bytes as f64)),
            stored.into(),
            evicted.into(),
            purged.into(),
            fills.into(),
            waiters.into(),
            disk.map_or(Cell::Empty, |disk| {
                (disk.errors + disk.no_space + disk.damaged + disk.queue_full).into()
            }),
            match disk {
                None => Cell::Empty,
                Some(disk) if !disk.is_active => "used by another process".into(),
                Some(disk) if disk.is_scanning => "scanning".into(),
                Some(_) => "ready".into(),
            },
        ]);
    }
    Ok(Some(render(&[table], request.wants_json)))
}

fn show(request: &CommandRequest<'_>, name: &str) -> CommandResult {
    let mut table = OutputTable::new("responses", &["key", "status", "bytes", "age_s", "ttl_s"]);
    for summary in find_cache(request, name)?.largest(RESPONSES_SHOWN_MAX, unix_now()) {
        table.rows.push(vec![
            summary.key.into(),
            u64::from(summary.status).into(),
            Cell::Bytes(summary.bytes as f64),
            summary.age_s.into(),
            Cell::Number(summary.ttl_s as f64),
        ]);
    }
    Ok(Some(render(&[table], request.wants_json)))
}

fn purge(request: &CommandRequest<'_>, name: &str, purge: impl FnOnce(&Cache) -> u64) -> CommandResult {
    let purged = purge(&*find_cache(request, name)?);
    request.log_change(&format!("cache {}", request.args.join(" ")));
    let noun = if purged == 1 { "response" } else { "responses" };
    Ok(Some(format!("cache {name}: {purged} {noun} purged\n")))
}

fn find_cache(request: &CommandRequest<'_>, name: &str) -> Result<Arc<Cache>, CommandError> {
    let active = request.context.active_config()?;
    let plans = &active.plan.caches;
    let found = plans.iter().find(|plan| *plan.name == *name).and_then(|plan| plan.store.get());
    found.cloned().ok_or_else(|| {
        let hint = crate::config::suggestion(name, plans.iter().map(|plan| &*plan.name));
        CommandError::Invalid(format!("unknown cache '{name}'{hint} (`cache` lists them)"))
    })
}
