//! Whether a queue stands, or only takes up a burst: it stands when it has not been short for a
//! while. The window of CoDel (RFC 8289 §3), as in Facebook's "Fail at Scale". Pure.
//!
//! ```text
//! oldest one's age |    short     ________________   short again
//!                  |    ____.----'                \____
//!                  |---'    |<-- stands_after -->|stands|
//! ```

/// What is remembered of a queue's length in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// When it was short last.
    short_ns: u64,
    /// When it began to stand; 0: it does not.
    since_ns: u64,
}

/// A queue is short when its oldest has waited for less than this part of the window.
const SHORT_PART: u64 = 10;

impl Window {
    /// Of a queue that is empty.
    pub(super) fn new() -> Self {
        Self { short_ns: 0, since_ns: 0 }
    }

    /// Looks at the queue: `oldest_ns` is when its oldest came, `None` when it is empty. Whether it
    /// stands.
    pub(super) fn look(
        &mut self,
        oldest_ns: Option<u64>,
        stands_after_ns: u64,
        now_ns: u64,
    ) -> bool {
        let short_ns = stands_after_ns / SHORT_PART;
        let is_short = oldest_ns.is_none_or(|came_ns| now_ns.saturating_sub(came_ns) < short_ns);
        if is_short {
            *self = Self { short_ns: now_ns, since_ns: 0 };
            return false;
        }
        // It was short as long as its oldest was young, also when nobody looked.
        let was_short_ns = oldest_ns.map_or(now_ns, |came_ns| came_ns + short_ns);
        if self.short_ns == 0 {
            self.short_ns = was_short_ns;
        }
        let stands = now_ns.saturating_sub(self.short_ns) >= stands_after_ns;
        if stands && self.since_ns == 0 {
            self.since_ns = self.short_ns + stands_after_ns;
        }
        stands
    }

    /// For how long it has stood.
    pub(super) fn stood_ns(&self, now_ns: u64) -> u64 {
        if self.since_ns == 0 { 0 } else { now_ns.saturating_sub(self.since_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: u64 = 100;

    #[test]
    fn it_stands_once_it_was_not_short_for_the_window() {
        let mut window = Window::new();
        assert!(!window.look(None, AFTER, 1_000));
        // The oldest came at 1000, so it was short until 1010.
        assert!(!window.look(Some(1_000), AFTER, 1_005));
        assert!(!window.look(Some(1_000), AFTER, 1_104));
        assert!(window.look(Some(1_000), AFTER, 1_105));
        assert!(window.look(Some(1_090), AFTER, 1_150));
        assert_eq!(window.stood_ns(1_150), 45);
    }

    #[test]
    fn one_look_at_a_short_queue_ends_it() {
        let mut window = Window::new();
        assert!(!window.look(None, AFTER, 1_000));
        assert!(window.look(Some(1_000), AFTER, 2_000));
        assert!(!window.look(Some(1_995), AFTER, 2_000));
        assert_eq!(window.stood_ns(2_000), 0);
        assert!(!window.look(Some(1_995), AFTER, 2_050));
        assert!(!window.look(None, AFTER, 2_060));
        assert!(!window.look(Some(2_060), AFTER, 2_100));
    }
}
