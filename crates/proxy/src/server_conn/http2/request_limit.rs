//! Limit of the requests of one connection, for servers that end connections after a number of requests:
//! they announce it only with GOAWAY, when more requests are on their way (nginx `keepalive_requests`).
//!
//! ```text
//! GOAWAY that left requests unprocessed: limit of the server = requests processed on that connection
//! connection at its limit: PING; GOAWAY first: the limit holds; acknowledgement first: twice as many;
//!     neither in time: no limit
//! ```
//! So a server that ended one connection early for another reason gets as many requests as before after a
//! few round trips.

use std::cell::Cell;

/// Limit without a meaning: no server has ended a connection early.
const UNLIMITED: u32 = u32::MAX;

/// Evidence that a server does not end a connection at its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitEvidence {
    /// The acknowledgement of PING, or the responses to all requests.
    Answer,
    /// Neither an acknowledgement nor GOAWAY in time. The server cannot be asked at another number either.
    NoAnswer,
}

/// Number of requests after which a server ends its connections.
#[derive(Debug)]
pub(super) struct LearnedLimit(Cell<u32>);

impl Default for LearnedLimit {
    fn default() -> Self {
        Self(Cell::new(UNLIMITED))
    }
}

impl LearnedLimit {
    pub(super) fn get(&self) -> u32 {
        self.0.get()
    }

    /// Learns from the last stream of a GOAWAY frame on a connection with `begun` requests. Returns whether
    /// requests were lost. A server that processes none would reject those on further connections, too.
    pub(super) fn learn(&self, last_stream: u32, begun: u32) -> bool {
        let processed = last_stream.div_ceil(2);
        let has_lost = (1..begun).contains(&processed);
        if has_lost {
            self.0.set(processed);
        }
        has_lost
    }

    /// Notes that a connection with `limit` requests did not end. Returns its next limit.
    fn disprove(&self, limit: u32, evidence: LimitEvidence) -> u32 {
        let next = match evidence {
            LimitEvidence::Answer => limit.saturating_mul(2),
            LimitEvidence::NoAnswer => UNLIMITED,
        };
        // Another connection may have ended after fewer meanwhile.
        if self.get() == limit {
            self.0.set(next);
        }
        next
    }
}

/// Requests of one connection against its limit.
#[derive(Debug)]
pub(super) struct RequestCount {
    begun: Cell<u32>,
    /// Number of stream connections that were given to a request, which has not begun.
    reserved: Cell<u32>,
    limit: Cell<u32>,
}

impl RequestCount {
    pub(super) fn new() -> Self {
        Self { begun: Cell::new(0), reserved: Cell::new(0), limit: Cell::new(UNLIMITED) }
    }

    pub(super) fn begun(&self) -> u32 {
        self.begun.get()
    }

    /// Returns whether another request may begin or be reserved.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Returns the number of requests that may begin or be reserved.
    pub(super) fn room(&self) -> usize {
        self.limit.get().saturating_sub(self.begun.get() + self.reserved.get()) as usize
    }

    /// Returns whether as many requests have begun as the limit allows.
    pub(super) fn is_exhausted(&self) -> bool {
        self.begun.get() >= self.limit.get()
    }

    pub(super) fn reserve(&self) {
        self.reserved.set(self.reserved.get() + 1);
    }

    pub(super) fn cancel_reservation(&self) {
        self.reserved.set(self.reserved.get() - 1);
    }

    /// Begins a request that has a reservation.
    pub(super) fn begin(&self) {
        self.begun.set(self.begun.get() + 1);
        self.cancel_reservation();
    }

    /// Sets the limit. Requests that are reserved may begin.
    pub(super) fn set_limit(&self, limit: u32) {
        self.limit.set(limit.max(self.begun.get() + self.reserved.get()));
    }

    /// Raises the limit, because the server has not ended the connection.
    pub(super) fn raise(&self, learned: &LearnedLimit, evidence: LimitEvidence) {
        self.limit.set(learned.disprove(self.limit.get(), evidence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `requests` at a time to a server that processes `per_connection[n]` requests of its nth connection,
    /// and returns how often the unluckiest request was lost.
    fn losses(requests: u32, per_connection: impl Fn(u32) -> u32) -> u32 {
        let learned = LearnedLimit::default();
        let (mut waiting, mut rounds) = (vec![0_u32; requests as usize], 0);
        let mut connection = 0;
        while !waiting.is_empty() {
            rounds += 1;
            assert!(rounds < 10_000);
            let count = RequestCount::new();
            count.set_limit(learned.get());
            let mut sent = Vec::new();
            while count.has_room() && !waiting.is_empty() {
                count.reserve();
                count.begin();
                sent.push(waiting.remove(0));
            }
            let processed = per_connection(connection).min(sent.len() as u32);
            connection += 1;
            if learned.learn(2 * processed.max(1) - 1, count.begun()) {
                waiting.extend(sent[processed as usize..].iter().map(|lost| lost + 1));
            } else if count.is_exhausted() && processed < per_connection(connection - 1) {
                count.raise(&learned, LimitEvidence::Answer);
            }
            if let Some(most) = waiting.iter().max()
                && *most > 16
            {
                return *most;
            }
            if waiting.iter().all(|lost| *lost == 0) && connection > 3 {
                return 1;
            }
        }
        1
    }

    #[test]
    fn a_request_is_lost_once_before_the_limit_is_known() {
        for limit in [1, 2, 10, 100, 1_000] {
            for requests in [1, 10, 100, 500] {
                assert_eq!(losses(requests, |_| limit), 1, "{limit} {requests}");
            }
        }
    }

    #[test]
    fn limits_that_differ_lose_few() {
        for requests in [100, 500] {
            assert!(losses(requests, |at| 1 + at * 7 % 20) <= 16);
            assert!(losses(requests, |at| if at % 2 == 0 { 1 } else { 50 }) <= 16);
        }
    }

    #[test]
    fn only_lost_requests_teach() {
        let learned = LearnedLimit::default();
        for (last_stream, begun) in [(0x7fff_ffff, 5), (9, 5), (0, 5), (0, 0), (19, 5)] {
            assert!(!learned.learn(last_stream, begun), "{last_stream} {begun}");
            assert_eq!(learned.get(), UNLIMITED);
        }
        assert!(learned.learn(7, 5));
        assert_eq!(learned.get(), 4);
    }

    #[test]
    fn a_limit_that_does_not_hold_grows() {
        let learned = LearnedLimit::default();
        learned.learn(5, 9);
        let (first, second) = (RequestCount::new(), RequestCount::new());
        first.set_limit(learned.get());
        second.set_limit(learned.get());
        first.raise(&learned, LimitEvidence::Answer);
        assert_eq!((first.room(), learned.get()), (6, 6));
        second.raise(&learned, LimitEvidence::Answer);
        assert_eq!((second.room(), learned.get()), (6, 6), "both had the same limit");
        for _ in 0..40 {
            first.raise(&learned, LimitEvidence::Answer);
        }
        assert_eq!(learned.get(), UNLIMITED);
        learned.learn(3, 9);
        second.raise(&learned, LimitEvidence::Answer);
        assert_eq!(learned.get(), 2, "a lower limit was learned meanwhile");
    }

    #[test]
    fn a_limit_that_is_not_confirmed_in_time_ends() {
        let learned = LearnedLimit::default();
        learned.learn(1, 9);
        let (first, second) = (RequestCount::new(), RequestCount::new());
        first.set_limit(learned.get());
        second.set_limit(learned.get());
        first.raise(&learned, LimitEvidence::Answer);
        second.raise(&learned, LimitEvidence::NoAnswer);
        assert_eq!(
            (learned.get(), second.room()),
            (2, UNLIMITED as usize),
            "twice as many were learned meanwhile"
        );
        first.raise(&learned, LimitEvidence::NoAnswer);
        assert_eq!((learned.get(), first.room()), (UNLIMITED, UNLIMITED as usize));
    }

    #[test]
    fn a_reservation_is_kept_below_a_new_limit() {
        let count = RequestCount::new();
        (0..3).for_each(|_| count.reserve());
        count.begin();
        count.set_limit(1);
        assert!(!count.has_room() && !count.is_exhausted());
        count.begin();
        count.cancel_reservation();
        assert!(count.has_room() && !count.is_exhausted());
        count.reserve();
        assert!(!count.has_room() && !count.is_exhausted());
        count.begin();
        assert!(!count.has_room() && count.is_exhausted());
    }
}
