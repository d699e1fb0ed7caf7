//! Properties of a file that distinguish its versions. Pure.

/// Properties that distinguish versions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) size: u64,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) modified_s: i64,
    pub(crate) modified_ns: u64,
    pub(crate) changed_s: i64,
    pub(crate) changed_ns: u64,
}

impl FileIdentity {
    pub(crate) fn from_stat(stat: &rustix::fs::Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            inode: stat.st_ino,
            modified_s: stat.st_mtime,
            modified_ns: stat.st_mtime_nsec,
            changed_s: stat.st_ctime,
            changed_ns: stat.st_ctime_nsec,
        }
    }

    /// Returns the second of the last modification since 1970; earlier ones are 0.
    pub(crate) fn modified_s(&self) -> u64 {
        u64::try_from(self.modified_s).unwrap_or(0)
    }
}
