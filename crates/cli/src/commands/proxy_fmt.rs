//! `weir proxy fmt`: one layout for configs.

use std::path::Path;

use record::document::format_toml;
use record::problem::InputProblem;

use super::text_file::decode_text;
use crate::exit::{Exit, Failure};
use crate::flags::{CommandArgs, CommandFlags, FmtFlags};
use crate::input_file;
use crate::output::print;
use crate::preflight::STDOUT;

/// Maximum size of a config.
const BYTES_MAX: u64 = 64 << 20;

struct FormattedFile {
    path: String,
    text: String,
    is_changed: bool,
}

pub(super) fn run(args: CommandArgs<'_>) -> Result<Exit, Failure> {
    let paths = args.values();
    if paths.is_empty() {
        return Err(vec![InputProblem::new("FILE", "name a config file, or - for stdin")].into());
    }
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        match format_file(&path) {
            Ok(file) => files.push(file),
            Err(file_problems) => problems.extend(file_problems),
        }
    }
    // Nothing is written before all files are valid.
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let is_check = FmtFlags::parse(args)?.check;
    for file in &files {
        if is_check && file.is_changed {
            print(&format!("{}\n", file.path));
        } else if !is_check && file.path == STDOUT {
            print(&file.text);
        } else if !is_check && file.is_changed {
            record::file::write_atomically(Path::new(&file.path), file.text.as_bytes())?;
        }
    }
    let is_unformatted = is_check && files.iter().any(|file| file.is_changed);
    Ok(if is_unformatted { Exit::CannotRun } else { Exit::Done })
}

fn format_file(path: &str) -> Result<FormattedFile, Vec<InputProblem>> {
    let name = if path == STDOUT { "stdin" } else { path };
    let bytes = input_file::read_bytes(path, BYTES_MAX)
        .map_err(|error| vec![InputProblem::new(name, format!("cannot be read: {error}"))])?;
    let length = bytes.len();
    let text = decode_text(name, bytes).map_err(|problem| vec![problem])?;
    let formatted = format_toml(name, &text)?;
    // The text is without the byte order mark of the file.
    let is_changed = formatted != text || text.len() != length;
    Ok(FormattedFile { path: path.to_owned(), text: formatted, is_changed })
}
