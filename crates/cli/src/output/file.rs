//! Output of results to the destination of a flag: a file, written completely or not at all, or
//! stdout.

use std::path::Path;

use serde::Serialize;

use super::print;
use crate::exit::Failure;
use crate::preflight::STDOUT;

pub(crate) fn write_json<T: Serialize>(value: &T, to: Option<&str>) -> Result<(), Failure> {
    match to {
        None => Ok(()),
        Some(STDOUT) => {
            let text =
                serde_json::to_string_pretty(value).map_err(|error| Failure::cannot("--json", error))?;
            print(&format!("{text}\n"));
            Ok(())
        }
        Some(path) => Ok(record::file::write_json(Path::new(path), value)?),
    }
}

pub(crate) fn write_text(text: &str, to: Option<&str>) -> Result<(), Failure> {
    match to {
        None => Ok(()),
        Some(STDOUT) => {
            print(text);
            Ok(())
        }
        Some(path) => Ok(record::file::write_atomically(Path::new(path), text.as_bytes())?),
    }
}
