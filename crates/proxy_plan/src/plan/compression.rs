//! Compression of the responses of servers.

use content::codings::Coding;
use content::media_types::is_compressible;

/// Rules for the responses that get a content coding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionPlan {
    /// Codings in the order of preference among those that a client accepts equally.
    pub codings: Vec<Coding>,
    /// Level of each coding, by [`Coding::index`].
    pub levels: [u8; Coding::ALL.len()],
    /// Media types in lower case, `text/*` for all of a kind; `None`: text, and formats of text.
    pub types: Option<Vec<Box<str>>>,
    /// Minimum size of content whose length is known.
    pub bytes_min: u64,
    /// Memory of the encoders of a thread, beyond which a response has no coding.
    pub encoder_bytes_max: u64,
    /// True if responses to requests with credentials get a coding, whatever their type.
    pub with_credentials: bool,
    /// True if content is decoded for clients that do not accept its coding.
    pub decodes: bool,
}

impl CompressionPlan {
    /// Returns whether content of a type is compressed; the type is in lower case and without parameters.
    pub fn covers(&self, media_type: &str) -> bool {
        let Some(types) = &self.types else { return is_compressible(media_type) };
        types.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(kind) => media_type.starts_with(kind),
            None => **pattern == *media_type,
        })
    }

    pub fn level(&self, coding: Coding) -> u8 {
        self.levels[coding.index()]
    }
}

impl std::fmt::Display for CompressionPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for coding in &self.codings {
            write!(f, "{} level {}, ", coding.name(), self.level(*coding))?;
        }
        write!(f, "from {} B, encoders {} B", self.bytes_min, self.encoder_bytes_max)?;
        if let Some(types) = &self.types {
            write!(f, ", {}", types.join(" "))?;
        }
        for (is_on, text) in [(self.with_credentials, ", with credentials"), (self.decodes, ", decodes")] {
            f.write_str(if is_on { text } else { "" })?;
        }
        Ok(())
    }
}
