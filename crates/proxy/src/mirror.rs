//! State of the copies of a request for other pools, and their comparison with the request. `exchange::mirroring`
//! makes and sends them.

use std::cell::Cell;
use std::rc::Rc;

use rt::clock::MonotonicTime;

use crate::config_generation::ConfigGeneration;
use crate::metrics::{MirrorDrop, MirrorSide};
use crate::plan::MirrorPlan;

/// Copies of a core that are in progress: from the head of their request to the end of their response.
#[derive(Debug, Default)]
pub(crate) struct MirrorLoad {
    pub(crate) copies: Cell<usize>,
    /// Maximum size of these copies.
    pub(crate) bytes: Cell<usize>,
}

/// Slot of a copy, and its memory.
#[derive(Debug)]
pub(crate) struct MirrorPermit {
    load: Rc<MirrorLoad>,
    bytes: usize,
}

/// Copies of one request.
#[derive(Debug)]
pub(crate) struct MirroredRequest {
    /// Copies that wait for the end of the request.
    pub(crate) copies: Vec<MirrorCopy>,
    /// Content of the request so far.
    pub(crate) body: Vec<u8>,
    /// True if the head announces chunks, and no length.
    pub(crate) is_chunked: bool,
    /// Copies that were sent.
    pub(crate) sent: Vec<Rc<Comparison>>,
}

#[derive(Debug)]
pub(crate) struct MirrorCopy {
    pub(crate) comparison: Rc<Comparison>,
    pub(crate) head: Vec<u8>,
    pub(crate) permit: MirrorPermit,
}

/// A request and its copy, of which each may end first.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) generation: Rc<ConfigGeneration>,
    /// Route, and index of the mirror in it.
    pub(crate) mirror: (usize, usize),
    /// Time when the request was complete, and its copy began.
    pub(crate) sent_at: Cell<MonotonicTime>,
    original: Cell<Option<MirrorSide>>,
    copy: Cell<Option<MirrorSide>>,
}

/// Maximum memory of the copies of a core in bytes.
pub(crate) const MIRROR_BYTES_MAX: usize = 16 << 20;

impl MirrorPermit {
    /// Takes a slot for a copy of at most this size.
    ///
    /// # Errors
    /// The bound that is reached.
    pub(crate) fn take(
        load: &Rc<MirrorLoad>,
        in_flight_max: usize,
        bytes: usize,
    ) -> Result<Self, MirrorDrop> {
        if load.copies.get() >= in_flight_max {
            return Err(MirrorDrop::InFlight);
        }
        if load.bytes.get() + bytes > MIRROR_BYTES_MAX {
            return Err(MirrorDrop::Memory);
        }
        load.copies.set(load.copies.get() + 1);
        load.bytes.set(load.bytes.get() + bytes);
        Ok(Self { load: Rc::clone(load), bytes })
    }
}

impl Drop for MirrorPermit {
    fn drop(&mut self) {
        self.load.copies.set(self.load.copies.get() - 1);
        self.load.bytes.set(self.load.bytes.get() - self.bytes);
    }
}

impl Comparison {
    pub(crate) fn new(generation: Rc<ConfigGeneration>, mirror: (usize, usize)) -> Rc<Self> {
        Rc::new(Self {
            generation,
            mirror,
            sent_at: Cell::new(MonotonicTime::ZERO),
            original: Cell::new(None),
            copy: Cell::new(None),
        })
    }

    /// Notes the response to the request, once it has ended. `head_time` is 0 without a response.
    pub(crate) fn note_original(&self, status: u16, head_time: MonotonicTime) {
        self.original.set(Some(self.side(status, head_time)));
        self.record_if_complete();
    }

    /// Notes the response to the copy; status 0: there is none.
    pub(crate) fn note_copy(&self, status: u16, head_time: MonotonicTime) {
        self.copy.set(Some(self.side(status, head_time)));
        self.record_if_complete();
    }

    fn side(&self, status: u16, head_time: MonotonicTime) -> MirrorSide {
        // A server may respond before its request is complete.
        let time_ns = head_time.since(self.sent_at.get());
        MirrorSide { status, time_ns: (head_time != MonotonicTime::ZERO).then_some(time_ns) }
    }

    fn record_if_complete(&self) {
        if let (Some(original), Some(copy)) = (self.original.get(), self.copy.get()) {
            self.generation.metrics.record_mirrored(self.mirror, original, copy);
        }
    }

    pub(crate) fn count_drop(&self, reason: MirrorDrop) {
        self.generation.metrics.count_mirror_drop(self.mirror, reason);
    }
}

impl MirroredRequest {
    /// Copies content, and drops the copies for which it is too large: `body_max` returns their maximum.
    pub(crate) fn push(&mut self, piece: &[u8], body_max: impl Fn(&Comparison) -> usize) {
        let bytes = self.body.len() + piece.len();
        self.copies.retain(|copy| {
            let is_small = bytes <= body_max(&copy.comparison);
            if !is_small {
                copy.comparison.count_drop(MirrorDrop::BodyTooLarge);
            }
            is_small
        });
        match self.copies.is_empty() {
            true => self.body = Vec::new(),
            false => self.body.extend_from_slice(piece),
        }
    }

    /// Returns the message of a copy.
    pub(crate) fn message(&self, mut head: Vec<u8>) -> Vec<u8> {
        if !self.is_chunked {
            head.extend_from_slice(&self.body);
            return head;
        }
        if !self.body.is_empty() {
            wire::encode::chunk_head(&mut head, self.body.len() as u64);
            head.extend_from_slice(&self.body);
            wire::encode::chunk_end(&mut head);
        }
        head.extend_from_slice(b"0\r\n\r\n");
        head
    }
}

/// Returns the head of a copy: that of the request, with another host if the mirror has one, with its mark, and
/// without an expectation, because the body follows at once.
pub(crate) fn copied_head(head: &[u8], plan: &MirrorPlan) -> Vec<u8> {
    let added_bytes = 64 + plan.host.as_ref().map_or(0, |host| host.len());
    let mut copy = Vec::with_capacity(head.len() + added_bytes);
    // The head is the proxy's own, so that its lines end in CRLF, and an empty one ends it.
    let lines = head.strip_suffix(b"\r\n").unwrap_or(head);
    for (index, line) in lines.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let name_end = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let is = |name: &str| index > 0 && line[..name_end].eq_ignore_ascii_case(name.as_bytes());
        if is("expect") || plan.mark.as_deref().is_some_and(is) || plan.host.is_some() && is("host") {
            continue;
        }
        copy.extend_from_slice(line);
        if let Some(host) = plan.host.as_ref().filter(|_| index == 0) {
            wire::encode::field(&mut copy, "Host", host.as_bytes());
        }
    }
    if let Some(mark) = &plan.mark {
        wire::encode::field(&mut copy, mark, b"1");
    }
    wire::encode::end_of_head(&mut copy);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PoolId;

    fn plan(host: Option<&str>, mark: Option<&str>) -> MirrorPlan {
        MirrorPlan {
            pool: PoolId(0),
            pool_name: "shadow".into(),
            percent: 100.0,
            named: None,
            key: None,
            host: host.map(Into::into),
            mark: mark.map(Into::into),
            in_flight_max: 1,
            body_bytes_max: 4,
            timeout_ns: 1,
        }
    }

    #[test]
    fn a_copy_has_its_mark_and_may_have_another_host() {
        let head = b"POST /a:b HTTP/1.1\r\nHost: a\r\nX-MIRROR: forged\r\nExpect: 100-continue\r\n\
                     Content-Length: 3\r\n\r\n";
        let copy = |host, mark| String::from_utf8(copied_head(head, &plan(host, mark))).unwrap();
        assert_eq!(
            copy(None, Some("x-mirror")),
            "POST /a:b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nx-mirror: 1\r\n\r\n"
        );
        assert_eq!(
            copy(Some("b:1"), None),
            "POST /a:b HTTP/1.1\r\nHost: b:1\r\nX-MIRROR: forged\r\nContent-Length: 3\r\n\r\n"
        );
    }

    #[test]
    fn slots_and_memory_are_bounded_and_returned() {
        let load = Rc::<MirrorLoad>::default();
        let take = |bytes| MirrorPermit::take(&load, 2, bytes);
        let first = take(MIRROR_BYTES_MAX - 1).unwrap();
        assert_eq!(take(2).unwrap_err(), MirrorDrop::Memory);
        let second = take(1).unwrap();
        assert_eq!(take(0).unwrap_err(), MirrorDrop::InFlight);
        drop((first, second));
        assert_eq!((load.copies.get(), load.bytes.get()), (0, 0));
    }

    #[test]
    fn content_of_unknown_length_is_sent_in_one_chunk() {
        let copies = Vec::new();
        let mut mirrored =
            MirroredRequest { copies, body: b"abc".to_vec(), is_chunked: true, sent: Vec::new() };
        assert_eq!(mirrored.message(b"H".to_vec()), b"H3\r\nabc\r\n0\r\n\r\n");
        mirrored.push(b"d", |_| 0);
        assert_eq!(mirrored.message(Vec::new()), b"0\r\n\r\n", "nobody needs it");
        mirrored.is_chunked = false;
        assert!(mirrored.message(Vec::new()).is_empty());
    }
}
