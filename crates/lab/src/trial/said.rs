//! What programs said and printed, in files of the run's folder: opened for them, and read with a bound.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::TrialError;

/// The most of a program's complaints that is repeated, in bytes.
const SAID_BYTES_MAX: u64 = 2_000;
/// The most that a driver may print: the longest prints a line a second, and a load lasts an hour.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// A file that what is written is added to.
pub(super) fn opened(path: &Path) -> Result<fs::File, TrialError> {
    let open = fs::File::options().create(true).append(true).open(path);
    open.map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))
}

/// A file that holds nothing yet.
pub(super) fn emptied(path: &Path) -> Result<fs::File, TrialError> {
    fs::File::create(path)
        .map_err(|error| TrialError::Scenario(format!("{}: {error}", path.display())))
}

/// What a program printed, all of it.
pub(super) fn output(path: &Path) -> Result<String, TrialError> {
    let explain = |why: String| TrialError::Load(format!("{}: {why}", path.display()));
    let file = fs::File::open(path).map_err(|error| explain(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| explain(error.to_string()))?;
    if bytes.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(explain(format!("more than {OUTPUT_BYTES_MAX} bytes were printed")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The same in words, for the end of a sentence.
pub(super) fn said_by(path: &Path) -> String {
    match tail(path) {
        said if said.is_empty() => "; it said nothing".to_owned(),
        said => format!(": {said}"),
    }
}

/// The end of what a program said.
pub(super) fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SAID_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(SAID_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // It is only for an error's words: a file that cannot be read has none.
    String::from_utf8_lossy(&read().unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_printed_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("load.out");
        fs::write(&path, "ab\n").unwrap();
        assert_eq!(output(&path).unwrap(), "ab\n");
        assert_eq!(tail(&path), "ab");
        fs::write(&path, vec![b'x'; OUTPUT_BYTES_MAX as usize + 1]).unwrap();
        assert!(output(&path).unwrap_err().to_string().contains("more than"));
        assert_eq!(tail(&path).len() as u64, SAID_BYTES_MAX);
    }

    #[test]
    fn who_said_nothing_leaves_no_colon_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("subject.log");
        assert_eq!(said_by(&path), "; it said nothing");
        fs::write(&path, "no such port\n").unwrap();
        assert_eq!(said_by(&path), ": no such port");
    }
}
