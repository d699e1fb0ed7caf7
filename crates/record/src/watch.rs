//! Schema of a machine that was monitored on its own, `weir.watch/1`: the output of `weir watch
//! --json`. Together with the record of a run it shows the state of another machine meanwhile.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::file::{self, ReadError};
use crate::observed::MachineObservation;
use crate::run::WeirVersion;

pub const SCHEMA: &str = "weir.watch/1";

/// Observations of one machine for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchRecord {
    pub schema: String,
    pub weir: WeirVersion,
    pub command: Vec<String>,
    pub observed: MachineObservation,
}

/// Reads the output of `weir watch --json`.
///
/// # Errors
/// The file cannot be read, is not such a record, or has another schema.
pub fn read_watch(path: &Path) -> Result<WatchRecord, ReadError> {
    file::read_record(path, SCHEMA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_another_schema_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("watch.json");
        let watch = WatchRecord {
            schema: SCHEMA.to_owned(),
            weir: WeirVersion { version: "1".to_owned(), commit: "c".to_owned() },
            command: vec!["weir".to_owned()],
            observed: MachineObservation {
                host: "here".to_owned(),
                cpus: 2,
                ..MachineObservation::default()
            },
        };
        file::write_json(&path, &watch).unwrap();
        assert_eq!(read_watch(&path).unwrap(), watch);
        file::write_json(&path, &WatchRecord { schema: "weir.run/1".to_owned(), ..watch }).unwrap();
        let error = read_watch(&path).unwrap_err();
        let ReadError::Schema { actual, expected, .. } = &error else { panic!("{error:?}") };
        assert_eq!((actual.as_str(), *expected), ("weir.run/1", SCHEMA));
        assert!(error.to_string().contains("lab diagnose"), "{error}");
        for (path, kind) in [("/dev/zero", "device"), ("/", "directory")] {
            let error = read_watch(Path::new(path)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{path}: ")) && error.contains(kind), "{error}");
        }
        let error = file::read_run(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(error.contains("/no/such/file"), "{error}");
    }
}
