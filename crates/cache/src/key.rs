//! Primary keys: a text that the route's template gives, with a keyed hash.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// Maximum length of the text of a key; a request with a longer one does not use the cache.
pub const KEY_BYTES_MAX: usize = 16 * 1024;

/// The key of a response: the text decides, the hash finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    text: Arc<[u8]>,
    hash: u128,
}

impl Key {
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn hash(&self) -> u128 {
        self.hash
    }
}

/// Random keys of the hashes of one cache, so that nobody can choose URLs that collide.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher {
    high: RandomState,
    low: RandomState,
}

impl KeyHasher {
    pub(crate) fn key(&self, text: &[u8]) -> Key {
        let hash = u128::from(self.high.hash_one(text)) << 64 | u128::from(self.low.hash_one(text));
        Key { text: text.into(), hash }
    }
}
