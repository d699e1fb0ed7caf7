//! Which allocator a process really calls: the one within its executable, one that was put before the
//! C library (jemalloc, mimalloc, tcmalloc), or the library's own. A probe at another one's `malloc`
//! counts nothing.

use std::fs::File;

use super::elf::Image;
use super::maps::{self, Mapping, Space};

/// The calls of allocators that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorCall {
    /// New memory.
    Malloc,
    /// New memory, all zero.
    Calloc,
    /// Memory of another size.
    Realloc,
    /// Memory given back.
    Free,
    /// New memory, or memory of another size, by whichever function: what compares between allocators.
    /// One function alone does not: glibc's `posix_memalign` passes a small alignment on to its
    /// `malloc`, and those of other allocators do the work themselves.
    Any,
}

/// An allocator, by what it is known by.
struct Kind {
    name: &'static str,
    /// How the file names of its library begin.
    library: &'static str,
    /// Names that only it has: one of these in an executable says that it is in there.
    mark: &'static [&'static str],
    malloc: &'static [&'static str],
    calloc: &'static [&'static str],
    realloc: &'static [&'static str],
    free: &'static [&'static str],
    /// Those of its functions that pass on to another of them, where they are counted.
    passing_on: &'static [&'static str],
}

/// What C's libraries call the functions for aligned memory.
const ALIGNED: &[&str] = &["posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc"];

/// Those that are told apart, those with marks of their own first.
const KINDS: &[Kind] = &[
    Kind {
        name: "mimalloc",
        library: "libmimalloc",
        mark: &["mi_malloc", "mi_malloc_aligned"],
        malloc: &["malloc", "mi_malloc", "mi_malloc_aligned"],
        calloc: &["calloc", "mi_calloc", "mi_zalloc", "mi_zalloc_aligned"],
        realloc: &["realloc", "mi_realloc", "mi_realloc_aligned"],
        free: &["free", "mi_free"],
        // To `mi_malloc` or `mi_malloc_aligned`: `mi_posix_memalign` in its src/alloc-posix.c.
        passing_on: ALIGNED,
    },
    Kind {
        name: "jemalloc",
        library: "libjemalloc",
        mark: &["_rjem_malloc", "je_malloc", "mallocx"],
        malloc: &["malloc", "_rjem_malloc", "je_malloc", "_rjem_mallocx", "mallocx"],
        calloc: &["calloc", "_rjem_calloc", "je_calloc"],
        realloc: &["realloc", "_rjem_realloc", "je_realloc", "_rjem_rallocx"],
        free: &["free", "_rjem_free", "je_free", "_rjem_sdallocx", "sdallocx"],
        passing_on: &[],
    },
    Kind {
        name: "tcmalloc",
        library: "libtcmalloc",
        mark: &["tc_malloc"],
        malloc: &["malloc", "tc_malloc"],
        calloc: &["calloc", "tc_calloc"],
        realloc: &["realloc", "tc_realloc"],
        free: &["free", "tc_free"],
        passing_on: &[],
    },
    Kind {
        name: "musl",
        library: "ld-musl",
        mark: &[],
        malloc: &["malloc"],
        calloc: &["calloc"],
        realloc: &["realloc"],
        free: &["free"],
        // Its src/malloc/{calloc,posix_memalign,memalign}.c.
        passing_on: &["calloc", "posix_memalign", "memalign"],
    },
    Kind {
        name: "libc",
        library: "libc.so",
        mark: &["malloc"],
        malloc: &["malloc"],
        calloc: &["calloc"],
        realloc: &["realloc"],
        free: &["free"],
        // With an alignment of at most 16; a larger one is rare, and not counted: `_mid_memalign` in
        // glibc's malloc/malloc.c.
        passing_on: ALIGNED,
    },
];

/// The allocator of a process.
pub(super) struct Allocator {
    /// In words: "jemalloc in libjemalloc.so.2".
    pub(super) words: String,
    /// A file that can be opened.
    pub(super) file: String,
    image: Image,
    kind: &'static Kind,
}

impl Allocator {
    /// Finds it.
    ///
    /// # Errors
    /// The process's files cannot be read, or none of them is an allocator that we know, in words.
    pub(super) fn of(pid: i32) -> Result<Self, String> {
        let space = Space::of(pid);
        let executable = std::fs::read_link(format!("/proc/{pid}/exe"));
        let executable = executable.map_err(|error| format!("/proc/{pid}/exe: {error}"))?;
        let is_own = |mapping: &&Mapping| executable.as_os_str() == mapping.path.as_str();
        let own = space.mappings().iter().find(is_own);
        let opened = own.and_then(|mapping| open(pid, mapping));
        let stripped = opened.as_ref().is_none_or(|(_, image)| !image.is_complete);
        if let Some((file, image)) = opened
            && let Some(kind) = within(&image)
        {
            let name = if kind.name == "libc" { "its own malloc" } else { kind.name };
            return Ok(Self { words: format!("{name} in the program itself"), file, image, kind });
        }
        let library = |kind: &'static Kind| {
            let mapping =
                space.mappings().iter().find(|one| one.module().starts_with(kind.library))?;
            let (file, image) = open(pid, mapping)?;
            let unsure = match stripped {
                true => " (one within the program would not be seen: it is stripped)",
                false => "",
            };
            let words = format!("{} in {}{unsure}", kind.name, mapping.module());
            Some(Self { words, file, image, kind })
        };
        let found = KINDS.iter().find_map(library);
        found.ok_or_else(|| "none of its files is an allocator that weir knows".to_owned())
    }

    /// Where in the file a call can be counted; empty where the allocator has no such function.
    pub(super) fn offsets(&self, call: AllocatorCall) -> Vec<u64> {
        let kind = self.kind;
        let names = match call {
            AllocatorCall::Malloc => vec![kind.malloc],
            AllocatorCall::Calloc => vec![kind.calloc],
            AllocatorCall::Realloc => vec![kind.realloc],
            AllocatorCall::Free => vec![kind.free],
            AllocatorCall::Any => vec![kind.malloc, kind.calloc, kind.realloc, ALIGNED],
        };
        let is_counted =
            |name: &&&str| call != AllocatorCall::Any || !kind.passing_on.contains(*name);
        let names = names.into_iter().flatten().filter(is_counted);
        let mut offsets: Vec<u64> = names.filter_map(|name| self.image.offset_of(name)).collect();
        // Several names of one function are one function.
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}

/// The allocator that an executable holds.
fn within(image: &Image) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.mark.iter().any(|name| image.offset_of(name).is_some()))
}

fn open(pid: i32, mapping: &Mapping) -> Option<(String, Image)> {
    let root = format!("/proc/{pid}/root");
    maps::places(pid, mapping).into_iter().find_map(|place| {
        let image = Image::read(File::open(&place).ok()?, &root).ok()?;
        Some((place.to_string_lossy().into_owned(), image))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_libraries_are_told_apart() {
        for (at, kind) in KINDS.iter().enumerate() {
            assert!(KINDS[..at].iter().all(|other| !kind.library.starts_with(other.library)));
            assert!(!kind.malloc.is_empty() && !kind.free.is_empty(), "{}", kind.name);
        }
    }

    #[test]
    fn this_process_has_an_allocator() {
        match Allocator::of(std::process::id() as i32) {
            Ok(found) => {
                let malloc = found.offsets(AllocatorCall::Malloc);
                let any = found.offsets(AllocatorCall::Any);
                assert!(!malloc.is_empty(), "{}", found.words);
                assert!(malloc.iter().all(|offset| any.contains(offset)), "{}", found.words);
                assert!(any.len() > malloc.len(), "{}", found.words);
                assert!(File::open(&found.file).is_ok(), "{}", found.file);
            }
            Err(why) => println!("skipped: {why}"),
        }
        assert!(Allocator::of(i32::MAX).is_err());
    }
}
