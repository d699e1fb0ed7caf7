//! `map`: maps and lists, their entries, and changes of them in memory.

use std::sync::Arc;

use rt::clock::unix_ns;

use super::table::{Cell, OutputTable, render};
use super::{CommandError, CommandRequest, CommandResult};
use crate::maps::{EntryChange, Key};
use crate::plan::MapStore;

/// Maximum number of entries that are printed. The note below them has the number of the others.
const ENTRIES_SHOWN_MAX: usize = 100_000;

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    match request.args {
        ["list"] => list(request),
        ["show", name] => show(request, name),
        ["show", name, key @ ..] => show_key(request, name, &key.join(" ")),
        // A value may have spaces.
        ["set", name, key, value @ ..] => change(request, name, key, Some(&value.join(" "))),
        ["delete", name, key] => change(request, name, key, None),
        ["reload", name] => reload(request, name),
        _ => Err(request.usage_error("map")),
    }
}

fn list(request: &CommandRequest<'_>) -> CommandResult {
    let columns = &[
        "name",
        "file",
        "match",
        "entries",
        "memory_bytes",
        "changes",
        "loads",
        "failures",
        "loaded_age_ns",
        "last_error",
    ];
    let mut table = OutputTable::new("maps", columns);
    for (name, store) in request.context.active_config()?.plan.stores() {
        let statistics = store.statistics();
        let loaded_ns = statistics.loaded_unix_ns;
        table.rows.push(vec![
            name.into_owned().into(),
            store.path().map_or(Cell::Empty, |path| path.display().to_string().into()),
            store.kind().code().into(),
            statistics.entries.into(),
            Cell::Bytes(statistics.memory_bytes as f64),
            statistics.changes.into(),
            statistics.loads.into(),
            statistics.failures.into(),
            Cell::time((loaded_ns > 0).then(|| unix_ns().saturating_sub(loaded_ns))),
            if statistics.last_error.is_empty() { Cell::Empty } else { (&*statistics.last_error).into() },
        ]);
    }
    Ok(Some(render(&[table], request.wants_json)))
}

fn show(request: &CommandRequest<'_>, name: &str) -> CommandResult {
    let store = find_store(request, name)?;
    let mut table = OutputTable::new("entries", &["key", "value"]);
    let mut more = 0_usize;
    store.visit(&mut |key, value| match table.rows.len() {
        ENTRIES_SHOWN_MAX => more += 1,
        _ => table.rows.push(vec![key.into(), value_cell(value)]),
    });
    if more > 0 {
        table.note = format!("{more} more entries\n");
    }
    Ok(Some(render(&[table], request.wants_json)))
}

/// Prints the value that a request with this key would get.
fn show_key(request: &CommandRequest<'_>, name: &str, key: &str) -> CommandResult {
    let value = find_store(request, name)?.find(Key::Text(key.as_bytes()), value_cell);
    let Some(value) = value else {
        return Err(CommandError::Invalid(format!("map '{name}' has no entry that matches '{key}'")));
    };
    let mut table = OutputTable::new("entries", &["key", "value"]);
    table.rows.push(vec![key.into(), value]);
    Ok(Some(render(&[table], request.wants_json)))
}

fn value_cell(value: &[u8]) -> Cell {
    // Values were text.
    if value.is_empty() { Cell::Empty } else { String::from_utf8_lossy(value).into_owned().into() }
}

fn change(request: &CommandRequest<'_>, name: &str, key: &str, value: Option<&str>) -> CommandResult {
    let store = find_store(request, name)?;
    store.change(&EntryChange { key, value }).map_err(CommandError::invalid)?;
    request.log_change(&format!("map {}", request.args.join(" ")));
    let note = match store.path() {
        Some(path) => format!(" (in memory, until {} is read again)", path.display()),
        None => " (in memory, until a reload)".to_owned(),
    };
    let action = if value.is_some() { "set" } else { "deleted" };
    Ok(Some(format!("map {name}: {key} {action}{note}\n")))
}

fn reload(request: &CommandRequest<'_>, name: &str) -> CommandResult {
    let store = find_store(request, name)?;
    if store.path().is_none() {
        let text = format!("map '{name}' has no file: its entries are in the config");
        return Err(CommandError::Invalid(text));
    }
    let result = store.load();
    request.log_change(&format!("map reload {name}{}", if result.is_ok() { "" } else { ": refused" }));
    let entries = store.statistics().entries;
    match result {
        Ok(()) => Ok(Some(format!("map {name}: {entries} entries\n"))),
        Err(faults) => Err(CommandError::Invalid(format!("{}\nmap {name} is unchanged", faults.join("\n")))),
    }
}

fn find_store(request: &CommandRequest<'_>, name: &str) -> Result<Arc<MapStore>, CommandError> {
    let active = request.context.active_config()?;
    let stores = active.plan.stores();
    let found = stores.iter().find(|(known, _)| known == name);
    found.map(|(_, store)| Arc::clone(store)).ok_or_else(|| {
        let hint = crate::config::suggestion(name, stores.iter().map(|(known, _)| &**known));
        CommandError::Invalid(format!("unknown map '{name}'{hint} (`map list` lists them)"))
    })
}
