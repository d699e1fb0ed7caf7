//! Description of the files of an origin, for people: `weir serve --check`.

use std::fmt::Write;

use record::units::{format_bytes, format_duration_ns, format_plural};

use super::body::SLICE_BYTES;
use super::listing::NAMES_MAX;
use super::open_file::MEMORY_FILE_BYTES_MAX;
use super::plan::{FilesPlan, FilesSource};
use super::ranges::RANGES_MAX;
use super::root::{Confinement, Root};
use super::site::LIST_BYTES_MAX;

impl FilesPlan {
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = match &self.source {
            FilesSource::Directory(directory) => writeln!(text, "files: {}", directory.display()),
            FilesSource::File { path, name } => writeln!(text, "file: {} at / and /{name}", path.display()),
            FilesSource::Memory(memory) => {
                let size = format_bytes(memory.content.len() as f64);
                writeln!(text, "standard input: {size} at /, as {}", memory.content_type)
            }
        };
        if let Some(root) = self.root() {
            let _ = writeln!(text, "paths: {}", self.confinement(root));
            let _ = writeln!(text, "index: {}", self.index.join(", "));
            let hidden = if self.serves_hidden { "served" } else { "404, except /.well-known" };
            let _ = writeln!(text, "names with a dot at their start: {hidden}");
            let listing = match self.lists {
                true => format!(
                    "listed, max {NAMES_MAX} names; 503 beyond {} MiB of lists that clients of a thread have not read",
                    LIST_BYTES_MAX >> 20
                ),
                false => "404".to_owned(),
            };
            let _ = writeln!(text, "directories without an index: {listing}");
            if self.is_spa {
                text += "missing paths: the index of the root, for pages\n";
            }
        }
        self.describe_codings(&mut text);
        let _ = writeln!(text, "entity tags: {}", self.etags.name());
        let users = self.credentials.len();
        if users > 0 {
            let _ = writeln!(text, "access: Basic, {}", format_plural(users as u64, "user"));
        }
        if !self.cors.is_empty() {
            let _ = writeln!(text, "other origins: {}", self.cors.join(", "));
        }
        for line in [&self.cache_control, &self.fields] {
            for field in String::from_utf8_lossy(line).lines() {
                let _ = writeln!(text, "field: {field}");
            }
        }
        let _ = match self.cache_entries {
            0 => writeln!(text, "cache: off; each request opens its file"),
            entries => writeln!(
                text,
                "cache: {} per thread, valid for {}; files up to {} in memory",
                format_plural(entries as u64, "lookup"),
                format_duration_ns(self.cache_valid_ns),
                format_bytes(MEMORY_FILE_BYTES_MAX as f64)
            ),
        };
        let slice = format_bytes(SLICE_BYTES as f64);
        let _ = writeln!(text, "limits: {RANGES_MAX} ranges per request, {slice} per read from a disk");
        text
    }

    fn confinement(&self, root: &std::path::Path) -> String {
        match Root::open(root, self.follows_symlinks).map(|root| root.confinement()) {
            Ok(Confinement::Kernel) if self.follows_symlinks => {
                "confined by the kernel (openat2); symbolic links within the root are followed".to_owned()
            }
            Ok(Confinement::Kernel) => {
                "confined by the kernel (openat2); symbolic links are refused".to_owned()
            }
            Ok(Confinement::Walk) => {
                "checked name by name, because openat2 is not available; symbolic links are refused"
                    .to_owned()
            }
            Err(error) => error.to_string(),
        }
    }

    fn describe_codings(&self, text: &mut String) {
        if self.uses_precompressed && self.root().is_some() {
            *text += "precompressed: .br, .zst and .gz beside a file, unless older than it\n";
        }
        if self.compression.is_any() {
            let min = format_bytes(self.compress_bytes_min as f64);
            let memory = format_bytes(self.compress_memory_bytes as f64);
            let _ = writeln!(
                text,
                "compressed on the fly: {}, from {min}; encoders: max {memory} per thread, without a coding \
                 beyond it",
                self.compression
            );
        }
    }
}
