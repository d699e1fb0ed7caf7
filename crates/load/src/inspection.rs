//! Inspection of one response while it arrives: its checks, the values to capture and its cookies.
//! Pure. An inspector is used again for the next response, so it allocates nothing per request.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::plan::{
    CaptureSource, CheckKind, Expect, ExpectedHash, ExpectedHeader, RunPlan, SearchState, StreamPattern,
};
use crate::session::ClientSession;

/// Receiver of the parts of a response.
pub(crate) trait ResponseSink {
    /// False if the sink ignores everything, so that parsing need not split the content.
    const IS_ACTIVE: bool;

    fn field(&mut self, name: &str, value: &[u8]);

    fn data(&mut self, bytes: &[u8]);
}

/// Sink that ignores everything.
pub(crate) struct NoSink;

impl ResponseSink for NoSink {
    const IS_ACTIVE: bool = false;

    #[inline]
    fn field(&mut self, _name: &str, _value: &[u8]) {}

    #[inline]
    fn data(&mut self, _bytes: &[u8]) {}
}

/// Maximum number of bytes of a body that are kept for a sample.
const SAMPLE_BYTES_MAX: usize = 160;
/// Maximum number of bytes of a body that are searched for a value to capture.
pub(crate) const CAPTURE_BYTES_MAX: usize = 64 * 1024;

/// A check that a response failed, with what was found. Only a sample turns it into text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailedCheck<'p> {
    Status(u16),
    Length(u64),
    MissingHeader(&'p ExpectedHeader),
    Hash(ExpectedHash),
    MissingPattern(&'p StreamPattern),
}

impl FailedCheck<'_> {
    pub(crate) fn kind(&self) -> CheckKind {
        match self {
            Self::Status(_) => CheckKind::Status,
            Self::Length(_) => CheckKind::Length,
            Self::MissingHeader(_) => CheckKind::Header,
            Self::Hash(_) => CheckKind::Hash,
            Self::MissingPattern(_) => CheckKind::Body,
        }
    }
}

impl fmt::Display for FailedCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Length(bytes) => write!(f, "{bytes} B"),
            Self::MissingHeader(header) => write!(f, "no field '{header}'"),
            Self::Hash(found) => found.fmt(f),
            Self::MissingPattern(pattern) => write!(f, "'{pattern}' is not in the body"),
        }
    }
}

/// State of one inspection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseInspector {
    /// A bit for each expected header field that was found.
    headers_found: u64,
    crc32: crc32fast::Hasher,
    sha256: Sha256,
    search: Option<SearchState>,
    sample: Vec<u8>,
    body: Vec<u8>,
}

/// Inspector with the plan and the session that it serves.
pub(crate) struct Inspection<'a> {
    pub(crate) inspector: &'a mut ResponseInspector,
    pub(crate) plan: &'a RunPlan,
    pub(crate) session: &'a mut ClientSession,
}

impl ResponseSink for Inspection<'_> {
    const IS_ACTIVE: bool = true;

    fn field(&mut self, name: &str, value: &[u8]) {
        for (index, expected) in self.plan.expect.headers.iter().enumerate() {
            if expected.matches(name, value) {
                self.inspector.headers_found |= 1 << index;
            }
        }
        if self.plan.session.needs_fields() {
            self.session.handle_field(&self.plan.session, name, value, rt::clock::unix_ns());
        }
    }

    fn data(&mut self, bytes: &[u8]) {
        let inspector = &mut *self.inspector;
        let room = SAMPLE_BYTES_MAX.saturating_sub(inspector.sample.len());
        inspector.sample.extend_from_slice(&bytes[..bytes.len().min(room)]);
        match &self.plan.expect.hash {
            Some(ExpectedHash::Sha256(_)) => inspector.sha256.update(bytes),
            Some(_) => inspector.crc32.update(bytes),
            None => {}
        }
        if let Some(pattern) = &self.plan.expect.body {
            pattern.search(inspector.search.get_or_insert_with(|| pattern.begin()), bytes);
        }
        if self.plan.session.needs_body() {
            let room = CAPTURE_BYTES_MAX.saturating_sub(inspector.body.len());
            inspector.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}

impl ResponseInspector {
    pub(crate) fn reset(&mut self) {
        self.headers_found = 0;
        self.crc32.reset();
        self.sha256.reset();
        self.search = None;
        self.sample.clear();
        self.body.clear();
    }

    pub(crate) fn capture(&self, plan: &RunPlan, session: &mut ClientSession) {
        for (index, capture) in plan.session.captures.iter().enumerate() {
            if let CaptureSource::Body(pattern) = &capture.source {
                session.capture_body(index, pattern, &self.body);
            }
        }
    }

    /// Returns the first check of fields and content that failed, with what was found. `first_body` is
    /// the CRC-32 of the first response to the same request, as `FirstBodies` has it.
    pub(crate) fn failed_check<'p>(
        &self,
        expect: &'p Expect,
        body_bytes: u64,
        is_same_body: impl FnOnce(u32) -> bool,
    ) -> Option<FailedCheck<'p>> {
        let missing = (0..expect.headers.len()).find(|index| self.headers_found & (1 << index) == 0);
        if let Some(index) = missing {
            return Some(FailedCheck::MissingHeader(&expect.headers[index]));
        }
        if expect.body_bytes.is_some_and(|bytes| bytes != body_bytes) {
            return None;
        }
        if let Some(expected) = &expect.hash {
            let found = match expected {
                ExpectedHash::Sha256(_) => ExpectedHash::Sha256(self.sha256.clone().finalize().into()),
                _ => ExpectedHash::Crc32(self.crc32.clone().finalize()),
            };
            let is_good = match (expected, &found) {
                (ExpectedHash::Same, ExpectedHash::Crc32(hash)) => is_same_body(*hash),
                _ => *expected == found,
            };
            if !is_good {
                return Some(FailedCheck::Hash(found));
            }
        }
        let pattern = expect.body.as_ref()?;
        let search = self.search.unwrap_or_else(|| pattern.begin());
        (!pattern.finish(search)).then_some(FailedCheck::MissingPattern(pattern))
    }

    pub(crate) fn sample_text(&self) -> String {
        String::from_utf8_lossy(&self.sample).into_owned()
    }
}

/// CRC-32 of the first response to each request of a plan.
#[derive(Debug)]
pub(crate) struct FirstBodies(Vec<std::sync::atomic::AtomicU64>);

/// Bit of a hash that is set.
const IS_KNOWN: u64 = 1 << 32;

impl FirstBodies {
    pub(crate) fn new(requests: usize) -> Self {
        Self((0..requests).map(|_| std::sync::atomic::AtomicU64::new(0)).collect())
    }

    /// Returns whether a body is the same as the first one for this request; the first one always is.
    pub(crate) fn is_same(&self, request: usize, crc32: u32) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let this = IS_KNOWN | u64::from(crc32);
        let Some(first) = self.0.get(request) else { return true };
        match first.compare_exchange(0, this, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(known) => known == this,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::LoadFlags;

    fn inspect(plan: &RunPlan, parts: &[&[u8]]) -> Option<(CheckKind, String)> {
        let mut inspector = ResponseInspector::default();
        let mut session = ClientSession::new(plan, 1);
        let (mut result, first) = (None, FirstBodies::new(1));
        // The second response proves that nothing is left of the first.
        for _ in 0..2 {
            inspector.reset();
            let mut inspection = Inspection { inspector: &mut inspector, plan, session: &mut session };
            inspection.field("Content-Type", b"text/plain");
            parts.iter().for_each(|part| inspection.data(part));
            result = inspector.failed_check(&plan.expect, 6, |hash| first.is_same(0, hash));
        }
        result.map(|failed| (failed.kind(), failed.to_string()))
    }

    #[test]
    fn each_check_fails_for_its_own_reason() {
        let plan = |change: fn(&mut LoadFlags)| {
            let mut flags = LoadFlags { urls: vec!["http://a/".to_owned()], ..LoadFlags::default() };
            change(&mut flags);
            RunPlan::parse(&flags, 1).unwrap()
        };
        let parts: [&[u8]; 2] = [b"foo", b"bar"];
        let hash = "sha256:c3ab8ff13720e8ad9047dd39466b3c8974e592c2fa383d4a3960714caef0c4f2";
        let good: [fn(&mut LoadFlags); 5] = [
            |flags| flags.expect.body = Some("oba".to_owned()),
            |flags| flags.expect.hash = Some("crc32:9ef61f95".to_owned()),
            |flags| flags.expect.hash = Some("same".to_owned()),
            |flags| flags.expect.headers = vec!["content-type: ~^text/".to_owned()],
            |flags| flags.expect.headers = vec!["Content-Type".to_owned()],
        ];
        for change in good {
            assert_eq!(inspect(&plan(change), &parts), None);
        }
        let mut sha256 = plan(good[1]);
        sha256.expect.hash = Some(plan_hash(hash));
        assert_eq!(inspect(&sha256, &parts), None);
        let failed = inspect(&sha256, &[b"foo"]).unwrap();
        assert!(failed.0 == CheckKind::Hash && failed.1.starts_with("sha256:"), "{failed:?}");
        assert_eq!(inspect(&plan(good[0]), &[b"foo"]).unwrap().0, CheckKind::Body);
        let header = plan(|flags| flags.expect.headers = vec!["content-type: text".to_owned()]);
        assert_eq!(inspect(&header, &parts).unwrap().0, CheckKind::Header);
    }

    fn plan_hash(text: &str) -> ExpectedHash {
        let mut flags = LoadFlags { urls: vec!["http://a/".to_owned()], ..LoadFlags::default() };
        flags.expect.hash = Some(text.to_owned());
        RunPlan::parse(&flags, 1).unwrap().expect.hash.unwrap()
    }
}
