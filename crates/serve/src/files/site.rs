//! Files of one core: the root, the cache, and the lookups.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::cache::{Cached, FileCache};
use super::listing::{self, DirectoryList};
use super::open_file::{Lookup, OpenFile, look_up};
use super::plan::{FilesPlan, FilesSource};
use super::root::Root;

/// Files that one core serves.
#[derive(Debug)]
pub(crate) struct FileSite {
    pub(crate) plan: Arc<FilesPlan>,
    source: SiteSource,
    cache: RefCell<FileCache>,
}

/// Source of the files, opened by a core.
#[derive(Debug)]
enum SiteSource {
    Root(Root),
    Memory(Rc<OpenFile>),
}

impl FileSite {
    /// Opens the root in the descriptor table of the core.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub(crate) fn open(plan: &Arc<FilesPlan>) -> io::Result<Self> {
        let source = match &plan.source {
            FilesSource::Memory(memory) => SiteSource::Memory(Rc::new(OpenFile::from_memory(
                Arc::clone(&memory.content),
                memory.modified_s,
                memory.etag.clone(),
                memory.content_type,
            ))),
            FilesSource::Directory(directory) | FilesSource::File { directory, .. } => {
                SiteSource::Root(Root::open(directory, plan.follows_symlinks)?)
            }
        };
        let cache = RefCell::new(FileCache::new(plan.cache_entries, plan.cache_valid_ns));
        Ok(Self { plan: Arc::clone(plan), source, cache })
    }

    /// Returns whether identical requests may get the same response for a while.
    pub(crate) fn is_cached(&self) -> bool {
        self.cache.borrow().is_enabled()
    }

    /// Looks up the path of a request.
    pub(crate) fn look_up_target(&self, path: &[u8], now_ns: u64) -> Lookup {
        match (&self.plan.source, &self.source) {
            (_, SiteSource::Memory(file)) if path.is_empty() => Lookup::File(Rc::clone(file)),
            (_, SiteSource::Memory(_)) => Lookup::Failed(404),
            (FilesSource::File { name, .. }, _) if path.is_empty() || path == name.as_bytes() => {
                self.look_up(name.as_bytes(), now_ns)
            }
            (FilesSource::File { .. }, _) => Lookup::Failed(404),
            _ => self.look_up(path, now_ns),
        }
    }

    /// Looks up a path from the root: in the cache, or in the file system.
    pub(crate) fn look_up(&self, path: &[u8], now_ns: u64) -> Lookup {
        let SiteSource::Root(root) = &self.source else { return Lookup::Failed(404) };
        let mut cache = self.cache.borrow_mut();
        let known = match cache.find(path, now_ns) {
            Cached::Fresh(lookup) => return lookup.clone(),
            Cached::Stale(Lookup::File(file)) => Some(Rc::clone(file)),
            Cached::Stale(_) | Cached::Missing => None,
        };
        let lookup = look_up(root, path, known.as_ref());
        // Exhaustion passes; it is no property of the path.
        if !matches!(lookup, Lookup::Failed(500..)) {
            cache.store(path, lookup.clone(), now_ns);
        }
        lookup
    }

    /// Reads the names of a directory.
    pub(crate) fn list(&self, path: &[u8]) -> Option<DirectoryList> {
        let SiteSource::Root(root) = &self.source else { return None };
        let directory = root.open_beneath(path).ok()?;
        listing::read(root, path, directory, self.plan.serves_hidden).ok()
    }
}
