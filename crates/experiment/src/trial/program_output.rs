//! Output of programs in files of the run's directory: opens the files, and reads them with a size
//! limit.

use std::fmt::Display;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::tools::TrialError;

/// Maximum number of bytes of a program's output in an error message.
const TAIL_BYTES_MAX: u64 = 2_000;
/// Maximum output of a driver: the longest prints a line a second, and a load lasts an hour.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

pub(super) fn open_for_append(path: &Path) -> Result<fs::File, TrialError> {
    let open = fs::File::options().create(true).append(true).open(path);
    open.map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))
}

pub(super) fn create_empty(path: &Path) -> Result<fs::File, TrialError> {
    fs::File::create(path).map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))
}

pub(super) fn read_output(path: &Path) -> Result<String, TrialError> {
    let explain = |reason: &dyn Display| TrialError::Load(format!("{}: {reason}", path.display()));
    let file = fs::File::open(path).map_err(|error| explain(&error))?;
    let mut bytes = Vec::new();
    let read = file.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| explain(&error))?;
    if bytes.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(explain(&format_args!("more than {OUTPUT_BYTES_MAX} bytes were printed")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the end of a program's output as the end of a sentence.
pub(super) fn output_suffix(path: &Path) -> String {
    match output_tail(path) {
        text if text.is_empty() => "; no output".to_owned(),
        text => format!(": {text}"),
    }
}

/// Returns the end of a program's output.
pub(super) fn output_tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // It is only part of an error message: a file that cannot be read counts as empty.
    String::from_utf8_lossy(&read().unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_printed_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("load.out");
        fs::write(&path, "ab\n").unwrap();
        assert_eq!(read_output(&path).unwrap(), "ab\n");
        assert_eq!(output_tail(&path), "ab");
        fs::write(&path, vec![b'x'; OUTPUT_BYTES_MAX as usize + 1]).unwrap();
        assert!(read_output(&path).unwrap_err().to_string().contains("more than"));
        assert_eq!(output_tail(&path).len() as u64, TAIL_BYTES_MAX);
    }

    #[test]
    fn empty_output_leaves_no_trailing_colon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("subject.log");
        assert_eq!(output_suffix(&path), "; no output");
        fs::write(&path, "no such port\n").unwrap();
        assert_eq!(output_suffix(&path), ": no such port");
    }
}
