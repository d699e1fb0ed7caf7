//! Names of the environment variables that set defaults: `WEIR_LOAD_RATE` for `weir load --rate`.

use super::{CommandInfo, Flag};

/// Returns the variable that sets the default of a flag.
pub(crate) fn variable_name(row: &CommandInfo, flag: &Flag) -> String {
    format!("{}{}", variable_prefix(row), upper(flag.long))
}

pub(crate) fn variable_prefix(row: &CommandInfo) -> String {
    format!("WEIR_{}_", upper(row.name))
}

fn upper(name: &str) -> String {
    name.replace(['-', ' '], "_").to_ascii_uppercase()
}
