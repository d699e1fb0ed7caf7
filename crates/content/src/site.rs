//! Files of one core: the root, the cache, and the lookups.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use crate::cache::{Cached, FileCache};
use crate::etag::EtagSource;
use crate::followed_root::{FollowedRoot, RootChange};
use crate::listing::{self, DirectoryList};
use crate::memory_budget::MemoryBudget;
use crate::open_file::{Lookup, OpenFile, look_up};
use crate::plan::{FilesPlan, FilesSource};
use crate::request::RequestTime;
use crate::tagging::TagQueue;

/// Maximum memory of the lists of directories that the clients of a thread have not read.
pub const LIST_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug)]
pub struct FileSite {
    pub(crate) plan: Arc<FilesPlan>,
    source: SiteSource,
    cache: RefCell<FileCache>,
    pub encoders: Rc<MemoryBudget>,
    pub lists: Rc<MemoryBudget>,
    /// Files that wait for a tag from their content.
    pub untagged: TagQueue,
    roots_replaced: Cell<u64>,
    roots_removed: Cell<u64>,
}

/// Source of the files, opened by a core.
#[derive(Debug)]
enum SiteSource {
    Root(RefCell<FollowedRoot>),
    Memory(Rc<OpenFile>),
}

impl FileSite {
    /// Opens the root in the descriptor table of the core.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub fn open(plan: &Arc<FilesPlan>) -> io::Result<Self> {
        let follow = |path, is_file| FollowedRoot::open(path, is_file, plan.follows_symlinks);
        let source = match &plan.source {
            FilesSource::Memory(memory) => SiteSource::Memory(Rc::new(OpenFile::from_memory(
                Arc::clone(&memory.content),
                memory.modified_s,
                &memory.etag,
                memory.content_type,
            ))),
            FilesSource::Directory(directory) => SiteSource::Root(RefCell::new(follow(directory, false)?)),
            FilesSource::File { path, .. } => SiteSource::Root(RefCell::new(follow(path, true)?)),
        };
        Ok(Self {
            source,
            cache: RefCell::new(FileCache::new(plan.cache_entries, plan.cache_valid_ns)),
            encoders: Rc::new(MemoryBudget::new(plan.compress_memory_bytes)),
            lists: Rc::new(MemoryBudget::new(LIST_BYTES_MAX)),
            untagged: TagQueue::default(),
            roots_replaced: Cell::new(0),
            roots_removed: Cell::new(0),
            plan: Arc::clone(plan),
        })
    }

    /// Returns whether identical requests may get the same response for a while.
    pub fn is_cached(&self) -> bool {
        self.cache.borrow().is_enabled()
    }

    /// Returns how often the path of the root named another directory, and none any more.
    pub fn root_changes(&self) -> (u64, u64) {
        (self.roots_replaced.get(), self.roots_removed.get())
    }

    pub(crate) fn look_up_target(&self, path: &[u8], time: RequestTime) -> Lookup {
        match (&self.plan.source, &self.source) {
            (_, SiteSource::Memory(file)) if path.is_empty() => Lookup::File(Rc::clone(file)),
            (_, SiteSource::Memory(_)) => Lookup::Failed(404),
            // A single file is in the cache by an empty path.
            (FilesSource::File { name, .. }, _) if path.is_empty() || path == name.as_bytes() => {
                self.look_up(b"", time)
            }
            (FilesSource::File { .. }, _) => Lookup::Failed(404),
            _ => self.look_up(path, time),
        }
    }

    /// Looks up a path from the root: in the cache, or in the file system.
    pub(crate) fn look_up(&self, path: &[u8], time: RequestTime) -> Lookup {
        let SiteSource::Root(root) = &self.source else { return Lookup::Failed(404) };
        let mut cache = self.cache.borrow_mut();
        let known = match cache.find(path, time.now_ns) {
            Cached::Fresh(lookup) => return lookup.clone(),
            Cached::Stale(Lookup::File(file)) => Some(Rc::clone(file)),
            Cached::Stale(_) | Cached::Missing => None,
        };
        self.follow_root(&mut root.borrow_mut(), &mut cache, time.now_ns);
        let lookup = self.look_up_now(&root.borrow(), path, known.as_ref(), time.unix_s);
        // Exhaustion passes; it is no property of the path.
        if !matches!(lookup, Lookup::Failed(500..)) {
            cache.store(path, lookup.clone(), time.now_ns);
        }
        lookup
    }

    fn look_up_now(
        &self,
        followed: &FollowedRoot,
        path: &[u8],
        known: Option<&Rc<OpenFile>>,
        unix_s: u64,
    ) -> Lookup {
        let root = match followed.root() {
            Ok(root) => root,
            Err(status) => return Lookup::Failed(status),
        };
        let path = followed.file_name().filter(|_| path.is_empty()).unwrap_or(path);
        let etags = self.plan.etags;
        let lookup = look_up(root, path, known, etags, unix_s);
        if let Lookup::File(file) = &lookup
            && etags == EtagSource::Content
            && file.etag().is_empty()
        {
            self.untagged.push(file);
        }
        lookup
    }

    /// Opens the root again if its path names another directory. The lookups of the old one are forgotten.
    fn follow_root(&self, root: &mut FollowedRoot, cache: &mut FileCache, now_ns: u64) {
        let counter = match root.check(now_ns) {
            RootChange::Unchanged => return,
            RootChange::Replaced => &self.roots_replaced,
            RootChange::Removed => &self.roots_removed,
        };
        counter.set(counter.get() + 1);
        cache.clear();
    }

    pub(crate) fn list(&self, path: &[u8]) -> Option<DirectoryList> {
        let SiteSource::Root(followed) = &self.source else { return None };
        let followed = followed.borrow();
        let root = followed.root().ok()?;
        let directory = root.open_beneath(path).ok()?;
        listing::read(root, path, directory, self.plan.serves_hidden).ok()
    }
}
