//! Entity tags of files (RFC 9110 §8.8.3): from the content, from the time and the size, or from the inode.
//!
//! ```text
//! mtime-size: the same on replicas, if their copies keep the times of the files
//! content:    the same wherever the content is; each file is read once
//! inode:      as mtime-size, and different for a file that replaces another with the same time and size
//! ```

use record::invalid_value;
use record::problem::InvalidValue;
use sha2::{Digest, Sha256};

use crate::codings::Coding;
use crate::file_identity::FileIdentity;

/// Source of the entity tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EtagSource {
    Content,
    /// Time of the last modification, and the size.
    #[default]
    MtimeSize,
    Inode,
}

impl EtagSource {
    /// Parses the name in the flag; an empty one is the default.
    ///
    /// # Errors
    /// It is unknown.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        match text {
            "" | "mtime-size" => Ok(Self::MtimeSize),
            "content" => Ok(Self::Content),
            "inode" => Ok(Self::Inode),
            other => Err(invalid_value!("'{other}' is not content, mtime-size or inode")),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::MtimeSize => "mtime-size",
            Self::Inode => "inode",
        }
    }
}

/// Seconds after which a time in whole seconds distinguishes the versions of a file: a file that changed before
/// that may change again within the same second.
const SETTLED_S: i64 = 2;

/// Returns whether the time of a file in whole seconds identifies its version.
pub(crate) fn is_settled(identity: &FileIdentity, unix_s: u64) -> bool {
    let now_s = i64::try_from(unix_s).unwrap_or(i64::MAX);
    identity.modified_s.saturating_add(SETTLED_S) <= now_s
}

/// Returns the tag from the properties of a file. Many tools copy the time of a file in whole seconds, so
/// fractions count only until the file is settled. A coded file differs from the file that it stands for.
pub(crate) fn from_properties(
    source: EtagSource,
    identity: &FileIdentity,
    path: &[u8],
    unix_s: u64,
) -> String {
    let mut tag = String::from("\"");
    if source == EtagSource::Inode {
        tag += &format!("{:x}-", identity.inode);
    }
    tag += &format!("{:x}", identity.modified_s);
    if source == EtagSource::Inode || !is_settled(identity, unix_s) {
        tag += &format!(".{:x}", identity.modified_ns);
    }
    tag += &format!("-{:x}", identity.size);
    if let Some(coding) = Coding::ALL.into_iter().find(|coding| path.ends_with(coding.extension())) {
        tag += &format!("-{}", coding.name());
    }
    tag + "\""
}

/// Digest of content that is read in pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContentDigest(Sha256);

/// Number of bytes of the digest in a tag: two contents of any size never share 128 bits by accident.
const DIGEST_BYTES: usize = 16;

impl ContentDigest {
    /// Adds the next piece.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> String {
        let digest = self.0.finalize();
        let mut tag = String::from("\"");
        for byte in digest.iter().take(DIGEST_BYTES) {
            tag += &format!("{byte:02x}");
        }
        tag + "\""
    }
}

pub fn from_content(content: &[u8]) -> String {
    let mut digest = ContentDigest::default();
    digest.update(content);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_000_000;

    fn identity(modified_s: i64, modified_ns: u64, size: u64) -> FileIdentity {
        FileIdentity { size, device: 1, inode: 7, modified_s, modified_ns, changed_s: 0, changed_ns: 0 }
    }

    fn tag(source: EtagSource, identity: &FileIdentity) -> String {
        from_properties(source, identity, b"a.js", NOW_S)
    }

    #[test]
    fn a_settled_file_has_the_tag_of_its_copies() {
        let original = identity(1_000, 123, 16);
        let copy = FileIdentity { device: 2, inode: 8, changed_s: 5, modified_ns: 0, ..original };
        assert_eq!(tag(EtagSource::MtimeSize, &original), "\"3e8-10\"");
        assert_eq!(tag(EtagSource::MtimeSize, &copy), "\"3e8-10\"");
        assert_ne!(tag(EtagSource::Inode, &original), tag(EtagSource::Inode, &copy));
        for other in [identity(1_001, 123, 16), identity(1_000, 123, 17)] {
            assert_ne!(tag(EtagSource::MtimeSize, &original), tag(EtagSource::MtimeSize, &other));
        }
    }

    #[test]
    fn a_file_that_may_change_again_in_its_second_has_fractions() {
        let now_s = NOW_S as i64;
        for (age_s, settled) in [(0, false), (1, false), (2, true), (-100, false)] {
            let [first, second] =
                [1, 2].map(|ns| tag(EtagSource::MtimeSize, &identity(now_s - age_s, ns, 5)));
            assert_eq!(first == second, settled, "{age_s} s");
        }
    }

    #[test]
    fn a_coded_file_differs_from_its_original() {
        let identity = identity(1_000, 0, 16);
        let tags = [&b"a.js"[..], b"a.js.gz", b"a.js.br", b"a.js.zst"]
            .map(|path| from_properties(EtagSource::MtimeSize, &identity, path, NOW_S));
        let distinct: std::collections::BTreeSet<&String> = tags.iter().collect();
        assert_eq!(distinct.len(), 4, "{tags:?}");
    }

    #[test]
    fn content_has_one_tag_whatever_its_pieces() {
        let content = b"weir ".repeat(1000);
        let mut digest = ContentDigest::default();
        content.chunks(77).for_each(|piece| digest.update(piece));
        assert_eq!(digest.finish(), from_content(&content));
        assert_eq!(from_content(b""), "\"e3b0c44298fc1c149afbf4c8996fb924\"");
        assert_ne!(from_content(b"a"), from_content(b"b"));
    }

    #[test]
    fn sources_have_names() {
        for source in [EtagSource::Content, EtagSource::MtimeSize, EtagSource::Inode] {
            assert_eq!(EtagSource::parse(source.name()).ok(), Some(source));
        }
        assert_eq!(EtagSource::parse("").ok(), Some(EtagSource::MtimeSize));
        assert!(EtagSource::parse("size").is_err());
    }
}
