//! A directive of nginx or Caddy: words, and a block of further directives.

use std::rc::Rc;

use crate::document::Origin;

/// A directive, with its block if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Directive {
    pub(crate) words: Vec<String>,
    pub(crate) block: Option<Vec<Self>>,
    pub(crate) origin: Rc<Origin>,
}

impl Directive {
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(crate) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Returns the argument at a position, from 0, or an empty text.
    pub(crate) fn argument(&self, index: usize) -> &str {
        self.words.get(index + 1).map_or("", String::as_str)
    }

    pub(crate) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }
}
