//! Messages of one client that have no response yet, and the echoes that belong to them. Pure.

use std::collections::VecDeque;

use crate::plan::{NUMBER_BYTES, WebSocketPlan};

/// A message without its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentMessage {
    pub(super) number: u64,
    /// Index of the request in the plan.
    pub(super) request: usize,
    pub(super) due_ns: u64,
    pub(super) begun_ns: u64,
    pub(super) sent_ns: u64,
    pub(super) deadline_ns: u64,
    /// Position of its end in the output of the connection.
    pub(super) output_end: u64,
    /// True if an echo of a later message has come.
    is_overtaken: bool,
}

/// Meaning of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    /// Echo of a message in flight. `lost` messages before it had timed out and have no echo.
    Answered { message: SentMessage, is_reordered: bool, lost: u64 },
    /// Echo of a message in flight, with other content.
    Altered(SentMessage),
    /// Echo of a message that has its echo.
    Duplicate,
    /// Echo of a message that has timed out.
    Late,
    /// No echo of this connection.
    Unknown,
}

/// Maximum number of timed-out messages whose echoes are still recognized.
const TIMED_OUT_MAX: usize = 1024;
/// Bits of a number that count the messages of a client; the others are its own number.
const COUNT_BITS: u32 = 40;

/// Messages in flight of one connection, in the order of their numbers.
#[derive(Debug)]
pub(super) struct EchoTracker {
    next_number: u64,
    /// First number of this connection.
    first_number: u64,
    pub(super) in_flight: VecDeque<SentMessage>,
    timed_out: VecDeque<u64>,
}

impl EchoTracker {
    pub(super) fn new(client: u64) -> Self {
        let first = client << COUNT_BITS;
        Self {
            next_number: first,
            first_number: first,
            in_flight: VecDeque::new(),
            timed_out: VecDeque::new(),
        }
    }

    /// Begins another connection.
    pub(super) fn begin_connection(&mut self) {
        self.first_number = self.next_number;
        self.timed_out.clear();
    }

    pub(super) fn next_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Adds a message that was written: its number, its request, due, begin and send time, its deadline and its end
    /// in the output.
    pub(super) fn add(
        &mut self,
        (number, request): (u64, usize),
        (due_ns, begun_ns, sent_ns): (u64, u64, u64),
        deadline_ns: u64,
        output_end: u64,
    ) {
        let is_overtaken = false;
        let message =
            SentMessage { number, request, due_ns, begun_ns, sent_ns, deadline_ns, output_end, is_overtaken };
        self.in_flight.push_back(message);
    }

    /// Finds the message of an echo and takes it out.
    pub(super) fn take_echo(&mut self, plan: &WebSocketPlan, is_binary: bool, content: &[u8]) -> Echo {
        let Some(number) = content.get(..NUMBER_BYTES).and_then(parse_number) else {
            return self.without_number(plan, content);
        };
        if number < self.first_number || number >= self.next_number {
            return self.without_number(plan, content);
        }
        let Ok(position) = self.in_flight.binary_search_by_key(&number, |message| message.number) else {
            if let Some(at) = self.timed_out.iter().position(|timed_out| *timed_out == number) {
                self.timed_out.remove(at);
                return Echo::Late;
            }
            return Echo::Duplicate;
        };
        // Found above.
        let Some(message) = self.in_flight.remove(position) else { return Echo::Unknown };
        self.in_flight.iter_mut().take(position).for_each(|earlier| earlier.is_overtaken = true);
        if content[NUMBER_BYTES..] != *plan.message || is_binary != plan.binary {
            return Echo::Altered(message);
        }
        let before = self.timed_out.len();
        self.timed_out.retain(|timed_out| *timed_out > number);
        let lost = (before - self.timed_out.len()) as u64;
        Echo::Answered { message, is_reordered: message.is_overtaken, lost }
    }

    /// Returns the meaning of a message whose number is none of this connection. One of the right length is the echo
    /// of the oldest message, because messages keep their order.
    fn without_number(&mut self, plan: &WebSocketPlan, content: &[u8]) -> Echo {
        let has_length = content.len() as u64 == plan.message_bytes;
        let oldest = if has_length { self.in_flight.pop_front() } else { None };
        oldest.map_or(Echo::Unknown, Echo::Altered)
    }

    /// Takes the messages that are older than their timeout, and the number of those that are lost.
    pub(super) fn take_expired(&mut self, now_ns: u64) -> (Vec<SentMessage>, u64) {
        let mut expired = Vec::new();
        self.in_flight.retain(|message| {
            let is_expired = message.deadline_ns <= now_ns;
            if is_expired {
                expired.push(*message);
            }
            !is_expired
        });
        let is_lost = |message: &&SentMessage| message.is_overtaken;
        let lost = expired.iter().filter(is_lost).count() as u64;
        let waiting = expired.iter().filter(|message| !message.is_overtaken);
        self.timed_out.extend(waiting.map(|message| message.number));
        let excess = self.timed_out.len().saturating_sub(TIMED_OUT_MAX);
        self.timed_out.drain(..excess);
        (expired, lost)
    }

    /// Takes all messages at the end of a connection, and the number of those that are lost.
    pub(super) fn take_all(&mut self) -> (Vec<SentMessage>, u64) {
        let all: Vec<SentMessage> = self.in_flight.drain(..).collect();
        let lost = all.iter().filter(|message| message.is_overtaken).count() as u64;
        (all, lost)
    }

    /// Returns the earliest deadline.
    pub(super) fn next_deadline_ns(&self) -> Option<u64> {
        self.in_flight.iter().map(|message| message.deadline_ns).min()
    }
}

pub(super) fn number_digits(number: u64) -> [u8; NUMBER_BYTES] {
    std::array::from_fn(|at| {
        let digit = number >> (4 * (NUMBER_BYTES - 1 - at)) & 0xf;
        b"0123456789abcdef"[digit as usize]
    })
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number: u64, digit| match digit {
        b'0'..=b'9' => Some(number << 4 | u64::from(digit - b'0')),
        b'a'..=b'f' => Some(number << 4 | u64::from(digit - b'a' + 10)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::WebSocketMode;

    fn plan() -> WebSocketPlan {
        let message = (*b"tail").into();
        WebSocketPlan { mode: WebSocketMode::Echo, binary: false, message_bytes: 20, message }
    }

    fn tracker(count: u64) -> EchoTracker {
        let mut tracker = EchoTracker::new(3);
        for _ in 0..count {
            let number = tracker.next_number();
            tracker.add((number, 0), (1, 1, 1), 100 + (number & 0xff), 0);
        }
        tracker
    }

    fn echo(number: u64, tail: &str) -> Vec<u8> {
        [&number_digits((3 << COUNT_BITS) + number)[..], tail.as_bytes()].concat()
    }

    fn take(tracker: &mut EchoTracker, content: &[u8]) -> Echo {
        tracker.take_echo(&plan(), false, content)
    }

    fn answered(echo: Echo) -> (u64, bool, u64) {
        match echo {
            Echo::Answered { message, is_reordered, lost } => (message.number & 0xff, is_reordered, lost),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn echoes_in_order_answer_their_messages() {
        let mut tracker = tracker(3);
        for number in 0..3 {
            assert_eq!(answered(take(&mut tracker, &echo(number, "tail"))), (number, false, 0));
        }
        assert_eq!(take(&mut tracker, &echo(1, "tail")), Echo::Duplicate);
    }

    #[test]
    fn a_late_place_is_a_reorder_and_no_place_a_loss() {
        let mut tracker = tracker(4);
        assert_eq!(answered(take(&mut tracker, &echo(2, "tail"))), (2, false, 0));
        assert_eq!(answered(take(&mut tracker, &echo(0, "tail"))), (0, true, 0));
        assert_eq!(answered(take(&mut tracker, &echo(3, "tail"))), (3, false, 0));
        let (expired, lost) = tracker.take_expired(500);
        assert_eq!((expired.len(), lost), (1, 1));
        assert_eq!(take(&mut tracker, &echo(1, "tail")), Echo::Duplicate, "a lost one is counted");
    }

    #[test]
    fn a_timed_out_message_is_late_or_lost() {
        let mut tracker = tracker(2);
        let (expired, lost) = tracker.take_expired(500);
        assert_eq!((expired.len(), lost), (2, 0), "nothing has overtaken them");
        assert_eq!(take(&mut tracker, &echo(0, "tail")), Echo::Late);
        let number = tracker.next_number();
        tracker.add((number, 0), (1, 1, 1), 900, 0);
        assert_eq!(answered(take(&mut tracker, &echo(2, "tail"))), (2, false, 1));
    }

    #[test]
    fn other_content_is_altered_and_other_messages_are_unknown() {
        let mut tracker = tracker(5);
        assert!(
            matches!(take(&mut tracker, &echo(0, "tbil")), Echo::Altered(message) if message.number & 1 == 0)
        );
        assert!(matches!(tracker.take_echo(&plan(), true, &echo(1, "tail")), Echo::Altered(_)));
        assert_eq!(take(&mut tracker, b"welcome"), Echo::Unknown);
        let other_client = [&number_digits(7 << COUNT_BITS)[..], b"tail and more"].concat();
        assert_eq!(take(&mut tracker, &other_client), Echo::Unknown);
        assert!(
            matches!(take(&mut tracker, &[b'X'; 20]), Echo::Altered(message) if message.number & 0xff == 2)
        );
        assert_eq!(tracker.in_flight.len(), 2);
        tracker.begin_connection();
        assert_eq!(take(&mut tracker, &echo(4, "tail!")), Echo::Unknown, "an older connection");
    }

    #[test]
    fn numbers_are_read_as_written() {
        for number in [0, 1, 0xabcd_ef01_2345_6789, u64::MAX] {
            assert_eq!(parse_number(&number_digits(number)), Some(number));
        }
        assert_eq!(parse_number(b"00000000000000 1"), None);
    }
}
