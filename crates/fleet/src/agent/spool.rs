//! Records on the disk of an agent: one directory per run with the record and its description. A record is
//! deleted only after its acknowledgement.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use record::digest::sha256_base64;
use record::file::write_json;

use crate::message::{PART_BYTES, RECORD_BYTES_MAX, RunId, StoredRun};

#[derive(Clone, Debug)]
pub struct Spool {
    directory: PathBuf,
}

const RECORD: &str = "record.json";
/// Name of its description; it is written last, so that a record without it is incomplete.
const DESCRIPTION: &str = "stored.json";

impl Spool {
    /// Opens the spool; creates the directory if it is missing.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", directory.display())))?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Returns the path of the record of a run; its directory exists afterwards.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn record_path(&self, run: &RunId) -> io::Result<PathBuf> {
        let directory = self.run_directory(run);
        fs::create_dir_all(&directory)?;
        Ok(directory.join(RECORD))
    }

    /// Describes the complete record of a run.
    ///
    /// # Errors
    /// The record is missing, too large, or cannot be described.
    pub fn store(&self, run: &RunId, start_ns: Option<u64>) -> io::Result<StoredRun> {
        let directory = self.run_directory(run);
        let path = directory.join(RECORD);
        let bytes = fs::metadata(&path)?.len();
        if bytes > RECORD_BYTES_MAX {
            let text = format!("the record has {bytes} bytes; the limit is {RECORD_BYTES_MAX}");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let digest = sha256_base64(&fs::read_to_string(&path)?);
        let stored = StoredRun { run: run.clone(), start_ns, bytes, digest };
        write_json(&directory.join(DESCRIPTION), &stored)?;
        Ok(stored)
    }

    /// Returns the complete records. Incomplete ones, of a process that was killed, are deleted.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn scan(&self) -> io::Result<Vec<StoredRun>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let directory = entry?.path();
            let name = directory.file_name().and_then(|name| name.to_str()).map(RunId::parse);
            let Some(Ok(run)) = name else { continue };
            let description = fs::read(directory.join(DESCRIPTION)).ok();
            let stored = description.and_then(|bytes| serde_json::from_slice::<StoredRun>(&bytes).ok());
            match stored.filter(|stored| stored.run == run) {
                Some(stored) => all.push(stored),
                None if directory.join(RECORD).exists() || is_empty(&directory) => {
                    fs::remove_dir_all(&directory)?
                }
                // Not a directory of this spool.
                None => {}
            }
        }
        Ok(all)
    }

    /// Reads a part of a record.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn read_part(&self, run: &RunId, part: u32) -> io::Result<Vec<u8>> {
        let mut file = fs::File::open(self.run_directory(run).join(RECORD))?;
        file.seek(SeekFrom::Start(u64::from(part) * PART_BYTES as u64))?;
        let mut bytes = Vec::new();
        file.take(PART_BYTES as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Deletes a record.
    ///
    /// # Errors
    /// Those of the file system; a missing record is none.
    pub fn delete(&self, run: &RunId) -> io::Result<()> {
        match fs::remove_dir_all(self.run_directory(run)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn run_directory(&self, run: &RunId) -> PathBuf {
        self.directory.join(run.as_str())
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_stays_until_it_is_deleted_and_an_incomplete_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::open(&directory.path().join("state")).unwrap();
        let [complete, killed] = ["complete", "killed"].map(|name| RunId::parse(name).unwrap());
        let text = "x".repeat(PART_BYTES + 3);
        fs::write(spool.record_path(&complete).unwrap(), &text).unwrap();
        let stored = spool.store(&complete, Some(5)).unwrap();
        assert_eq!((stored.parts(), stored.bytes), (2, text.len() as u64));
        fs::write(spool.record_path(&killed).unwrap(), "half").unwrap();
        let foreign = directory.path().join("state/foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("notes"), "").unwrap();
        assert_eq!(spool.scan().unwrap(), [stored]);
        assert!(foreign.exists() && !spool.run_directory(&killed).exists());
        let parts = [0, 1, 2].map(|part| spool.read_part(&complete, part).unwrap().len());
        assert_eq!(parts, [PART_BYTES, 3, 0]);
        spool.delete(&complete).unwrap();
        spool.delete(&complete).unwrap();
        assert!(spool.scan().unwrap().is_empty());
    }
}
