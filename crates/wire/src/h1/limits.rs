//! Limits of the cost of one message from a peer.
//!
//! They limit only memory and work. There is no time here, since nothing in this crate waits.

use super::head::HEADERS_CAP;
use super::refusal::{Refusal, RefusalKind};

/// Limits of one message. All of them are inclusive, and all of them are in bytes or in items.
///
/// [`Default`] is the tuned set. `..Limits::default()` keeps code compiling if a limit is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of one head, from its first byte to its empty line: 16,384. More is 431 (RFC
    /// 6585 §5).
    pub head_bytes_max: usize,
    /// Maximum field lines in one head, and in one trailer section: 100; never more than
    /// [`HEADERS_CAP`]. More is 431.
    pub headers_max: usize,
    /// Maximum bytes of a request target: 8,192. More is 414 (RFC 9110 §15.5.15).
    pub target_bytes_max: usize,
    /// Maximum bytes of one chunk-size line with its extensions and its CRLF: 1,024. More is 400.
    pub chunk_line_bytes_max: usize,
    /// Maximum bytes of all chunk extensions of one body: 16,384. More is 400. Without it a body of
    /// one-byte chunks makes us read a thousand bytes for each byte of content.
    pub chunk_extension_bytes_max: usize,
    /// Maximum bytes of one body's trailer section, without its last empty line: 8,192. More is
    /// 431.
    pub trailer_bytes_max: usize,
    /// Maximum interim (1xx) responses before the final one: 16. See [`Limits::check_interim`].
    pub interim_responses_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            target_bytes_max: TARGET_BYTES_MAX,
            chunk_line_bytes_max: 1_024,
            chunk_extension_bytes_max: 16_384,
            trailer_bytes_max: 8_192,
            interim_responses_max: 16,
        }
    }
}

const HEAD_BYTES_MAX: usize = 16_384;
const TARGET_BYTES_MAX: usize = 8_192;
const HEADERS_MAX: usize = 100;

const _: () = {
    // An allowed target must fit into an allowed head, with a few fields besides.
    assert!(TARGET_BYTES_MAX + 1_024 <= HEAD_BYTES_MAX);
    assert!(HEADERS_MAX <= HEADERS_CAP);
};

impl Limits {
    /// Checks the number of interim responses so far, `count`, which includes the current one.
    ///
    /// # Errors
    /// [`RefusalKind::TooManyInterim`] if a server keeps sending 1xx without a final response (RFC
    /// 9110 §15.2).
    pub fn check_interim(&self, count: u32) -> Result<(), Refusal> {
        if count > self.interim_responses_max {
            return Err(Refusal::from_server(RefusalKind::TooManyInterim));
        }
        Ok(())
    }
}
