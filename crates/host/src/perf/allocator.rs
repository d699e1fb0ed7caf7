//! Detects the allocator that a process really calls: one within its executable, one loaded before
//! the C library (jemalloc, mimalloc, tcmalloc), or the C library's own. A probe at another
//! allocator's `malloc` counts nothing.

use std::fs::File;
use std::os::fd::AsRawFd as _;

use super::elf::{ChecksumBudget, Image};
use super::maps::{self, AddressSpace, Mapping};
use crate::kernel_file::NotObservable;
use crate::process::printable;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllocatorCall {
    Malloc,
    /// New memory, all zero.
    Calloc,
    /// Memory of another size.
    Realloc,
    Free,
    /// New memory, or memory of another size, by any function: this is comparable between
    /// allocators. One function alone is not: glibc's `posix_memalign` passes a small alignment on
    /// to its `malloc`, and those of other allocators do the work themselves.
    Any,
}

/// An allocator, with its distinguishing features.
struct AllocatorKind {
    name: &'static str,
    /// Prefix of its library's file name.
    library: &'static str,
    /// Names that only this allocator has: an executable with one of them contains the allocator.
    unique_symbols: &'static [&'static str],
    malloc: &'static [&'static str],
    calloc: &'static [&'static str],
    realloc: &'static [&'static str],
    free: &'static [&'static str],
    /// Functions that call another counted function of the same allocator.
    forwarding: &'static [&'static str],
}

/// Names of the functions for aligned memory in C libraries.
const ALIGNED_FUNCTIONS: &[&str] = &["posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc"];

/// Known allocators, those with marks of their own first.
const ALLOCATORS: &[AllocatorKind] = &[
    AllocatorKind {
        name: "mimalloc",
        library: "libmimalloc",
        unique_symbols: &["mi_malloc", "mi_malloc_aligned"],
        malloc: &["malloc", "mi_malloc", "mi_malloc_aligned"],
        calloc: &["calloc", "mi_calloc", "mi_zalloc", "mi_zalloc_aligned"],
        realloc: &["realloc", "mi_realloc", "mi_realloc_aligned"],
        free: &["free", "mi_free"],
        // They call `mi_malloc` or `mi_malloc_aligned`: `mi_posix_memalign` in its
        // src/alloc-posix.c.
        forwarding: ALIGNED_FUNCTIONS,
    },
    AllocatorKind {
        name: "jemalloc",
        library: "libjemalloc",
        unique_symbols: &["_rjem_malloc", "je_malloc", "mallocx"],
        malloc: &["malloc", "_rjem_malloc", "je_malloc", "_rjem_mallocx", "mallocx"],
        calloc: &["calloc", "_rjem_calloc", "je_calloc"],
        realloc: &["realloc", "_rjem_realloc", "je_realloc", "_rjem_rallocx"],
        free: &["free", "_rjem_free", "je_free", "_rjem_sdallocx", "sdallocx"],
        forwarding: &[],
    },
    AllocatorKind {
        name: "tcmalloc",
        library: "libtcmalloc",
        unique_symbols: &["tc_malloc"],
        malloc: &["malloc", "tc_malloc"],
        calloc: &["calloc", "tc_calloc"],
        realloc: &["realloc", "tc_realloc"],
        free: &["free", "tc_free"],
        forwarding: &[],
    },
    AllocatorKind {
        name: "musl",
        library: "ld-musl",
        unique_symbols: &[],
        malloc: &["malloc"],
        calloc: &["calloc"],
        realloc: &["realloc"],
        free: &["free"],
        // See its src/malloc/{calloc,posix_memalign,memalign}.c.
        forwarding: &["calloc", "posix_memalign", "memalign"],
    },
    AllocatorKind {
        name: "libc",
        library: "libc.so",
        unique_symbols: &["malloc"],
        malloc: &["malloc"],
        calloc: &["calloc"],
        realloc: &["realloc"],
        free: &["free"],
        // With an alignment of at most 16. A larger one is rare, and not counted: `_mid_memalign`
        // in glibc's malloc/malloc.c.
        forwarding: ALIGNED_FUNCTIONS,
    },
];

const FIGURE: &str = "allocator";

pub(super) struct Allocator {
    /// Description: "jemalloc in libjemalloc.so.2".
    pub(super) description: String,
    /// Path of the open file: the kernel probes the file whose symbols were read, also if another one has its name.
    pub(super) path: String,
    /// Keeps [`Allocator::path`] valid.
    pub(super) file: File,
    image: Image,
    kind: &'static AllocatorKind,
}

impl Allocator {
    /// Finds the allocator.
    ///
    /// # Errors
    /// The process's files cannot be read, or none of them is a known allocator.
    pub(super) fn detect(pid: i32) -> Result<Self, NotObservable> {
        let address_space = AddressSpace::read(pid);
        let link = format!("/proc/{pid}/exe");
        let executable = std::fs::read_link(&link);
        let executable = executable.map_err(|error| NotObservable::io(FIGURE, &link, &error))?;
        let is_own = |mapping: &&Mapping| executable.as_os_str() == mapping.path.as_str();
        let own_mapping = address_space.mappings().iter().find(is_own);
        let opened = own_mapping.and_then(|mapping| open_image(pid, mapping));
        let stripped = opened.as_ref().is_none_or(|(_, image)| !image.is_complete);
        if let Some((file, image)) = opened
            && let Some(kind) = find_in_executable(&image)
        {
            let name = if kind.name == "libc" { "its own malloc" } else { kind.name };
            return Ok(Self::new(format!("{name} in the executable"), file, image, kind));
        }
        let find_library = |kind: &'static AllocatorKind| {
            let mapping =
                address_space.mappings().iter().find(|mapping| mapping.module().starts_with(kind.library))?;
            let (file, image) = open_image(pid, mapping)?;
            let caveat = match stripped {
                true => " (an allocator inside the executable would not be found: it is stripped)",
                false => "",
            };
            let description = format!("{} in {}{caveat}", kind.name, printable(&mapping.module()));
            Some(Self::new(description, file, image, kind))
        };
        let allocator = ALLOCATORS.iter().find_map(find_library);
        allocator.ok_or_else(|| NotObservable::new(FIGURE, "no known allocator in its mapped files"))
    }

    fn new(description: String, file: File, image: Image, kind: &'static AllocatorKind) -> Self {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Self { description, path, file, image, kind }
    }

    /// Returns the file offsets where a call can be counted; empty if the allocator has no such
    /// function.
    pub(super) fn probe_offsets(&self, call: AllocatorCall) -> Vec<u64> {
        let kind = self.kind;
        let names = match call {
            AllocatorCall::Malloc => vec![kind.malloc],
            AllocatorCall::Calloc => vec![kind.calloc],
            AllocatorCall::Realloc => vec![kind.realloc],
            AllocatorCall::Free => vec![kind.free],
            AllocatorCall::Any => vec![kind.malloc, kind.calloc, kind.realloc, ALIGNED_FUNCTIONS],
        };
        let is_counted = |name: &&&str| call != AllocatorCall::Any || !kind.forwarding.contains(*name);
        let names = names.into_iter().flatten().filter(is_counted);
        let mut offsets: Vec<u64> = names.filter_map(|name| self.image.offset_of(name)).collect();
        // Several names of one function count as one function.
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }
}

fn find_in_executable(image: &Image) -> Option<&'static AllocatorKind> {
    ALLOCATORS.iter().find(|kind| kind.unique_symbols.iter().any(|name| image.offset_of(name).is_some()))
}

fn open_image(pid: i32, mapping: &Mapping) -> Option<(File, Image)> {
    let mut checksums = ChecksumBudget::default();
    maps::open_candidates(pid, mapping).find_map(|file| {
        let image =
            Image::read(file.try_clone().ok()?, Some(pid), mapping.plain_path(), &mut checksums).ok()?;
        Some((file, image))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_the_table_are_distinct() {
        for (at, kind) in ALLOCATORS.iter().enumerate() {
            assert!(ALLOCATORS[..at].iter().all(|other| !kind.library.starts_with(other.library)));
            assert!(!kind.malloc.is_empty() && !kind.free.is_empty(), "{}", kind.name);
        }
    }

    #[test]
    fn this_process_has_an_allocator() {
        match Allocator::detect(std::process::id() as i32) {
            Ok(allocator) => {
                let malloc = allocator.probe_offsets(AllocatorCall::Malloc);
                let any = allocator.probe_offsets(AllocatorCall::Any);
                assert!(!malloc.is_empty(), "{}", allocator.description);
                assert!(malloc.iter().all(|offset| any.contains(offset)), "{}", allocator.description);
                assert!(any.len() > malloc.len(), "{}", allocator.description);
                assert!(File::open(&allocator.path).is_ok(), "{}", allocator.path);
            }
            Err(why) => test_needs::skip(test_needs::PERF, why),
        }
        assert!(Allocator::detect(i32::MAX).is_err());
    }
}
