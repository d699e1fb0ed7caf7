//! The schema of a machine that was watched on its own, `weir.watch/1`: what `weir watch --json`
//! writes. Beside the record of a run it says what another machine did meanwhile.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::file::{self, ReadError};
use crate::observed::Observed;
use crate::run::Weir;

/// The name of this schema.
pub const SCHEMA: &str = "weir.watch/1";

/// One machine, watched for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which weir wrote it.
    pub weir: Weir,
    /// The command line.
    pub command: Vec<String>,
    /// What was seen.
    pub observed: Observed,
}

/// Reads what `weir watch --json` wrote.
///
/// # Errors
/// The file cannot be read, is not such a record, or has another schema.
pub fn read(path: &Path) -> Result<Watch, ReadError> {
    file::read(path, SCHEMA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_no_other_schema_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("watch.json");
        let watch = Watch {
            schema: SCHEMA.to_owned(),
            weir: Weir { version: "1".to_owned(), commit: "c".to_owned() },
            command: vec!["weir".to_owned()],
            observed: Observed { host: "here".to_owned(), cpus: 2, ..Observed::default() },
        };
        file::write_json(&path, &watch).unwrap();
        assert_eq!(read(&path).unwrap(), watch);
        file::write_json(&path, &Watch { schema: "weir.run/1".to_owned(), ..watch }).unwrap();
        let why = read(&path).unwrap_err().to_string();
        assert!(why.contains("'weir.run/1', this weir reads 'weir.watch/1'"), "{why}");
        assert!(why.contains("weir lab diagnose FILE"), "{why}");
        for (what, kind) in [("/dev/zero", "a device"), ("/", "a folder")] {
            let why = read(Path::new(what)).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{what}: it is {kind}")), "{why}");
        }
        let why = file::read_run(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(why.contains("/no/such/file"), "{why}");
    }
}
