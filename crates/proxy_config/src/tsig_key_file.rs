//! File with the key of dynamic updates.

use std::io;
use std::path::PathBuf;

use crate::dns_codec::tsig::{KEY_FILE_BYTES_MAX, KeyFault, TsigKey};
use crate::plan::TsigKeySource;
use crate::private_file::check_unchangeable;

/// Fault of the file with the key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("{path}: {error}", path = path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{path}: {fault}", path = path.display())]
    Key { path: PathBuf, fault: KeyFault },
}

/// Reads the key of dynamic updates.
///
/// # Errors
/// The file cannot be read, others can write it, or it has no usable key.
pub fn read_tsig_key(source: &TsigKeySource) -> Result<TsigKey, KeyFileError> {
    let path = source.path();
    let failed = |error| KeyFileError::Io { path: path.into(), error };
    let read = || {
        use std::io::Read as _;
        let file = std::fs::File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("not a file"));
        }
        check_unchangeable(&metadata)?;
        let mut text = String::new();
        file.take(KEY_FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
        match text.len() <= KEY_FILE_BYTES_MAX {
            true => Ok(text),
            false => Err(io::Error::other("longer than 64 KiB")),
        }
    };
    let text = read().map_err(failed)?;
    let key = match source {
        TsigKeySource::File(_) => TsigKey::parse_file(&text),
        TsigKeySource::Secret { name, algorithm, .. } => TsigKey::new(name, *algorithm, &text),
    };
    key.map_err(|fault| KeyFileError::Key { path: path.into(), fault })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::plan::TsigAlgorithm;

    #[test]
    fn a_key_file_that_others_can_write_is_not_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("key");
        std::fs::write(&path, "AQIDBAUGBwgJCgsMDQ4PEA==\n").unwrap();
        let source = TsigKeySource::Secret {
            name: "weir".into(),
            algorithm: TsigAlgorithm::HmacSha256,
            file: path.clone(),
        };
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o600, 0o644, 0o400] {
            set_mode(mode);
            assert!(read_tsig_key(&source).is_ok(), "{mode:o}");
        }
        for mode in [0o620, 0o602] {
            set_mode(mode);
            let text = read_tsig_key(&source).unwrap_err().to_string();
            assert!(text.contains("others can write it"), "{text}");
        }
        set_mode(0o600);
        let text = read_tsig_key(&TsigKeySource::File(path)).unwrap_err().to_string();
        assert!(text.contains("tsig-keygen"), "{text}");
        let text = read_tsig_key(&TsigKeySource::File(home.path().into())).unwrap_err().to_string();
        assert!(text.contains("not a file"), "{text}");
    }
}
