//! Description of the files of an origin, for people: `weir serve --check`.

use std::fmt::Write;

use content::body::SLICE_BYTES;
use content::listing::NAMES_MAX;
use content::open_file::MEMORY_FILE_BYTES_MAX;
use content::plan::{FilesPlan, FilesSource};
use content::ranges::RANGES_MAX;
use content::root::{Confinement, Root};
use content::site::LIST_BYTES_MAX;
use record::units::{format_bytes, format_duration_ns, format_plural};

pub(crate) fn describe(files: &FilesPlan) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match &files.source {
        FilesSource::Directory(directory) => writeln!(text, "files: {}", directory.display()),
        FilesSource::File { path, name } => writeln!(text, "file: {} at / and /{name}", path.display()),
        FilesSource::Memory(memory) => {
            let size = format_bytes(memory.content.len() as f64);
            writeln!(text, "standard input: {size} at /, as {}", memory.content_type)
        }
    };
    if let Some(root) = files.root() {
        let _ = writeln!(text, "paths: {}", confinement(files, root));
        let _ = writeln!(text, "index: {}", files.index.join(", "));
        let hidden = if files.serves_hidden { "served" } else { "404, except /.well-known" };
        let _ = writeln!(text, "names with a dot at their start: {hidden}");
        let listing = match files.lists {
            true => format!(
                "listed, max {NAMES_MAX} names; 503 beyond {} MiB of lists that clients of a thread have not read",
                LIST_BYTES_MAX >> 20
            ),
            false => "404".to_owned(),
        };
        let _ = writeln!(text, "directories without an index: {listing}");
        if files.is_spa {
            text += "missing paths: the index of the root, for pages\n";
        }
    }
    describe_codings(files, &mut text);
    let _ = writeln!(text, "entity tags: {}", files.etags.name());
    let users = files.credentials.len();
    if users > 0 {
        let _ = writeln!(text, "access: Basic, {}", format_plural(users as u64, "user"));
    }
    if !files.cors.is_empty() {
        let _ = writeln!(text, "other origins: {}", files.cors.join(", "));
    }
    for line in [&files.cache_control, &files.fields] {
        for field in String::from_utf8_lossy(line).lines() {
            let _ = writeln!(text, "field: {field}");
        }
    }
    let _ = match files.cache_entries {
        0 => writeln!(text, "cache: off; each request opens its file"),
        entries => writeln!(
            text,
            "cache: {} per thread, valid for {}; files up to {} in memory",
            format_plural(entries as u64, "lookup"),
            format_duration_ns(files.cache_valid_ns),
            format_bytes(MEMORY_FILE_BYTES_MAX as f64)
        ),
    };
    let slice = format_bytes(SLICE_BYTES as f64);
    let _ = writeln!(text, "limits: {RANGES_MAX} ranges per request, {slice} per read from a disk");
    text
}

fn confinement(files: &FilesPlan, root: &std::path::Path) -> String {
    match Root::open(root, files.follows_symlinks).map(|root| root.confinement()) {
        Ok(Confinement::Kernel) if files.follows_symlinks => {
            "confined by the kernel (openat2); symbolic links within the root are followed".to_owned()
        }
        Ok(Confinement::Kernel) => "confined by the kernel (openat2); symbolic links are refused".to_owned(),
        Ok(Confinement::Walk) => {
            "checked name by name, because openat2 is not available; symbolic links are refused".to_owned()
        }
        Err(error) => error.to_string(),
    }
}

fn describe_codings(files: &FilesPlan, text: &mut String) {
    if files.uses_precompressed && files.root().is_some() {
        *text += "precompressed: .br, .zst and .gz beside a file, unless older than it\n";
    }
    if files.compression.is_any() {
        let min = format_bytes(files.compress_bytes_min as f64);
        let memory = format_bytes(files.compress_memory_bytes as f64);
        let _ = writeln!(
            text,
            "compressed on the fly: {}, from {min}; encoders: max {memory} per thread, without a coding \
             beyond it",
            files.compression
        );
    }
}
