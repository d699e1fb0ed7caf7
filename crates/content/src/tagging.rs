//! Entity tags from the content of files that are not in memory: a task of the core reads them a slice at a
//! time, between the turns of its connections. Until then their responses have no tag.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use rt::cores::yield_turn;
use rt::tokio::sync::Notify;

use crate::body::SLICE_BYTES;
use crate::etag::ContentDigest;
use crate::open_file::OpenFile;

/// Files of one core without a tag.
#[derive(Debug, Default)]
pub struct TagQueue {
    files: RefCell<VecDeque<Rc<OpenFile>>>,
    is_pushed: Notify,
}

/// Maximum number of files that wait. Others are queued by a later request.
const FILES_MAX: usize = 1024;

impl TagQueue {
    /// Adds a file that has no tag, unless it waits already or too many do.
    pub(crate) fn push(&self, file: &Rc<OpenFile>) {
        let mut files = self.files.borrow_mut();
        if files.len() < FILES_MAX && !files.iter().any(|waiting| Rc::ptr_eq(waiting, file)) {
            files.push_back(Rc::clone(file));
            self.is_pushed.notify_one();
        }
    }

    /// Reads the files in their order, for ever.
    pub async fn run(&self) {
        loop {
            self.tag_waiting_files().await;
            self.is_pushed.notified().await;
        }
    }

    /// Reads the files that wait.
    pub(crate) async fn tag_waiting_files(&self) {
        let mut slice = Vec::new();
        loop {
            // It stays in the queue meanwhile, so that it is not added again.
            let Some(file) = self.files.borrow().front().cloned() else { return };
            if let Some(tag) = digest_of(&file, &mut slice).await {
                file.set_etag(&tag);
            }
            self.files.borrow_mut().pop_front();
        }
    }
}

/// Reads a file; `None`: it cannot be read to its end, and gets no tag.
async fn digest_of(file: &OpenFile, slice: &mut Vec<u8>) -> Option<String> {
    let mut digest = ContentDigest::default();
    let mut offset = 0;
    while offset < file.size() {
        let bytes = (file.size() - offset).min(SLICE_BYTES as u64);
        slice.clear();
        file.append_to(offset, bytes as usize, slice).ok()?;
        digest.update(slice);
        offset += bytes;
        end_turn().await;
    }
    Some(digest.finish())
}

/// Lets the other connections of the core have their turn.
pub async fn end_turn() {
    let mut is_first = true;
    poll_fn(|cx| {
        if !std::mem::take(&mut is_first) {
            return Poll::Ready(());
        }
        yield_turn(cx);
        Poll::Pending
    })
    .await;
}
