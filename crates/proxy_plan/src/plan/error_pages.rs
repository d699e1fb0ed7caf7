//! Contents of error responses instead of the proxy's own line, and of the contents of servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Statuses, Text};

/// Pages in the order in which they are tried: those of a route, and then those of the proxy.
pub type ErrorPages = Arc<[ErrorPage]>;

/// `[[error-page]]`: content of responses with certain statuses, in one or more forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    pub statuses: Statuses,
    /// True if it also replaces the content of servers' responses.
    pub replaces_servers: bool,
    /// Content by [`PageForm`]; at least one.
    pub contents: [Option<PageContent>; PageForm::COUNT],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageContent {
    /// File that it was read from.
    pub file: PathBuf,
    pub text: Text,
}

/// Form of a page, of which a client chooses one with `Accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageForm {
    Html,
    Json,
    Text,
}

impl PageForm {
    pub const COUNT: usize = 3;
    /// All forms; among those that a client accepts equally, the first one is sent.
    pub const ALL: [Self; Self::COUNT] = [Self::Html, Self::Json, Self::Text];

    /// Returns the key of its file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Text => "text",
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::Text => "text/plain; charset=utf-8",
        }
    }
}

impl ErrorPage {
    /// Returns the page for a status, and true if it replaces the content of servers, too.
    pub fn find(pages: &[Self], status: u16) -> Option<&Self> {
        pages.iter().find(|page| page.statuses.contains(status))
    }

    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        self.contents.iter().flatten().map(|content| &content.text)
    }

    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.contents.iter().flatten().map(|content| &*content.file)
    }
}
