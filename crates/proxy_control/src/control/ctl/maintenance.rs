//! `maintenance`: all pools in maintenance, with a page of the operator, and back.

use record::units::format_plural;

use super::table::{Cell, OutputTable, render};
use super::{CommandError, CommandRequest, CommandResult, ControlCommand, MaintenanceChange};
use crate::maintenance::{MaintenancePage, PageFault};
use crate::pool::AdminState;

pub(super) fn run(request: &CommandRequest<'_>) -> CommandResult {
    let (change, state) = match request.args {
        [] => return show(request),
        ["on"] => (MaintenanceChange::On(None), AdminState::Maintenance),
        ["on", "page", words @ ..] => {
            (MaintenanceChange::On(Some(parse_page(words)?)), AdminState::Maintenance)
        }
        ["off"] => (MaintenanceChange::Off, AdminState::Ready),
        _ => return Err(request.usage_error("maintenance")),
    };
    let page = match &change {
        MaintenanceChange::On(Some(page)) => format!("; page: {}", describe(page)),
        MaintenanceChange::On(None) | MaintenanceChange::Off => String::new(),
    };
    let count = request.context.run_command(|reply| ControlCommand::Maintenance(change, reply))?;
    request.log_change(&format!("maintenance {}{page}", request.args[0]));
    request.context.save_state()?;
    let count = format_plural(count.parse().unwrap_or_default(), "pool");
    Ok(Some(format!("{count}: {}{page}\n", state.word())))
}

/// Parses the words of a page: `html [values] BASE64`.
pub(super) fn parse_page(words: &[&str]) -> Result<MaintenancePage, CommandError> {
    MaintenancePage::parse(words).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(PageFault::to_string).collect();
        CommandError::Invalid(lines.join("\n"))
    })
}

fn describe(page: &MaintenancePage) -> String {
    let values = if page.has_values { ", with values" } else { "" };
    format!("{}, {}{values}", page.form.key(), format_plural(page.bytes() as u64, "byte"))
}

fn show(request: &CommandRequest<'_>) -> CommandResult {
    let active = request.context.active_config()?;
    let mut table = OutputTable::new(
        "maintenance",
        &["maintenance", "pools", "pools_in_maintenance", "page_form", "page_bytes", "page_values"],
    );
    let pools = active.plan.pools.len();
    let states = active.shared.pools.iter().map(|pool| pool.operator_state());
    let in_maintenance = states.filter(|state| *state == AdminState::Maintenance).count();
    let state = match in_maintenance {
        0 => "off",
        some if some < pools => "some pools",
        _ => "on",
    };
    let page = active.maintenance_page.as_deref();
    table.is_vertical = true;
    table.rows.push(vec![
        state.into(),
        pools.into(),
        in_maintenance.into(),
        page.map_or(Cell::Empty, |page| page.form.key().into()),
        page.map_or(Cell::Empty, |page| Cell::Bytes(page.bytes() as f64)),
        page.map_or(Cell::Empty, |page| if page.has_values { "yes" } else { "no" }.into()),
    ]);
    Ok(Some(render(&[table], request.wants_json)))
}
