//! Heads and trailer sections while they are decoded: references, limits, and the rules about several
//! fields (RFC 9113 §8.2 and §8.3).
//!
//! [`super::fields`] checks single fields. After the first problem nothing is stored any more, but
//! the block is decoded on, for the state of the table.

use super::event::{Fields, RequestHead, ResponseHead};
use super::fault::FaultKind;
use super::fields::{FieldKind, NameKind, is_valid_text};
use super::table::{ENTRY_OVERHEAD, FieldRef, TextRef, Texts};
use crate::RefusalKind;
use crate::h1::{parse_content_length, split_host_port};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Request,
    Response,
    Trailers,
    /// Of a stream that is ignored: nothing is stored.
    Ignored,
}

/// Reason why a section is not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadProblem {
    /// It is malformed (RFC 9113 §8.1.1).
    Malformed(FaultKind),
    /// It may be answered.
    Refused(RefusalKind),
    Ignored,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes_max: usize,
    pub(super) fields_max: usize,
    pub(super) target_bytes_max: usize,
    /// Allows `:protocol` (RFC 8441).
    pub(super) allows_protocol: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct HeadParts {
    method: Option<TextRef>,
    scheme: Option<TextRef>,
    authority: Option<TextRef>,
    path: Option<TextRef>,
    protocol: Option<TextRef>,
    host: Option<TextRef>,
    status: Option<u16>,
    content_length: Option<u64>,
}

/// Maximum size of a section that is decoded although it is over the limit, as a multiple of the limit.
const DECODED_FACTOR: usize = 2;

/// Size after a problem, at most: any further field is over the limit.
const SIZE_OVER: usize = usize::MAX / 2;

/// Head or trailer section that was decoded last. Its texts are in the decoder.
#[derive(Debug)]
pub(super) struct Head {
    refs: Vec<FieldRef>,
    section: Section,
    /// Size by RFC 9113 §6.5.2; beyond the limit after any problem.
    size: usize,
    /// Size of all fields after a problem, stored or not.
    decoded_bytes: usize,
    parts: HeadParts,
    problem: Option<HeadProblem>,
    limits: HeadLimits,
    /// Version of the table, if this section was a valid request that did not change the table.
    repeatable: Option<u32>,
    block: Vec<u8>,
    /// Method and target of the last request that was rejected, with a space between them, as far as they
    /// were decoded: for logs, never for a decision.
    pub(super) request_line: Vec<u8>,
}

/// Maximum length of a target that is kept of a request with a problem.
const REQUEST_LINE_TARGET_MAX: usize = 2_048;

/// Maximum size of a block that is compared with the next one.
const REPEATABLE_BYTES_MAX: usize = 256;

impl Head {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self {
            refs: Vec::new(),
            section: Section::Ignored,
            size: 0,
            decoded_bytes: 0,
            parts: HeadParts::default(),
            problem: None,
            limits,
            repeatable: None,
            block: Vec::new(),
            request_line: Vec::new(),
        }
    }

    /// Removes the last section and frees its memory.
    pub(super) fn release(&mut self) {
        *self = Self::new(self.limits);
    }

    #[inline]
    pub(super) fn begin(&mut self, section: Section) {
        self.refs.clear();
        self.size = 0;
        self.repeatable = None;
        self.section = section;
        self.parts = HeadParts::default();
        self.problem = None;
        if section == Section::Ignored {
            self.stop(HeadProblem::Ignored, Texts { table: &[], literals: &[] });
        }
    }

    /// Returns true if this block has the meaning of the last section, which was a valid request: the
    /// bytes and the table are the same. A load repeats its requests.
    #[inline]
    pub(super) fn is_repeated(&self, block: &[u8], version: Option<u32>) -> bool {
        self.repeatable.is_some() && self.repeatable == version && self.block == block
    }

    /// Keeps the block of a valid request; `before` and `after` are the versions of the table.
    #[inline]
    pub(super) fn keep_block(&mut self, block: &[u8], before: Option<u32>, after: Option<u32>) {
        if before == after && block.len() <= REPEATABLE_BYTES_MAX {
            self.block.clear();
            self.block.extend_from_slice(block);
            self.repeatable = after;
        }
    }

    /// Returns whether no further fields are stored.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.problem.is_some()
    }

    /// Adds a field without a meaning here, whose name and value have `len` bytes. Returns false if it
    /// must be passed to [`Head::add_special`].
    #[inline(always)]
    pub(super) fn add_regular(&mut self, kind: FieldKind, field: FieldRef, len: usize) -> bool {
        // Both are far less than 2^63.
        let size = self.size + len + ENTRY_OVERHEAD;
        if size > self.limits.bytes_max || self.refs.len() >= self.limits.fields_max || !kind.is_regular() {
            return false;
        }
        self.size = size;
        self.refs.push(field);
        true
    }

    /// Adds a field with a meaning here, or with an invalid name or value, or beyond a limit.
    ///
    /// # Errors
    /// The section decodes to more than [`DECODED_FACTOR`] times the limit: the peer does not stop at the
    /// limit that it knows.
    #[inline(never)]
    pub(super) fn add_special(
        &mut self,
        kind: FieldKind,
        field: FieldRef,
        len: usize,
        texts: Texts<'_>,
    ) -> Result<(), FaultKind> {
        if self.is_over() {
            return self.discard(len + ENTRY_OVERHEAD);
        }
        self.size = self.size.saturating_add(len + ENTRY_OVERHEAD).min(SIZE_OVER);
        let result = if self.size > self.limits.bytes_max {
            Err(HeadProblem::Refused(RefusalKind::HeadTooLarge))
        } else if kind.is_regular() {
            self.keep(field)
        } else {
            self.keep_special(kind, field, texts)
        };
        match result {
            Ok(()) => Ok(()),
            Err(problem) => {
                match kind.name {
                    NameKind::Method => self.parts.method = self.parts.method.or(Some(field.value)),
                    NameKind::Path => self.parts.path = self.parts.path.or(Some(field.value)),
                    _ => {}
                }
                self.stop(problem, texts);
                self.discard(0)
            }
        }
    }

    /// Stores no further fields.
    #[cold]
    fn stop(&mut self, problem: HeadProblem, texts: Texts<'_>) {
        self.keep_request_line(texts);
        self.problem = Some(problem);
        self.decoded_bytes = self.size;
        self.size = self.limits.bytes_max.saturating_add(1).min(SIZE_OVER);
        self.refs.clear();
        self.parts = HeadParts::default();
    }

    /// Keeps what was decoded of a request's method and target, for logs.
    #[cold]
    pub(super) fn keep_request_line(&mut self, texts: Texts<'_>) {
        self.request_line.clear();
        let Some(method) = self.parts.method.filter(|_| self.section == Section::Request) else { return };
        self.request_line.extend_from_slice(texts.value(method));
        self.request_line.push(b' ');
        if let Some(target) = self.parts.path.or(self.parts.authority) {
            let target = texts.value(target);
            self.request_line.extend_from_slice(&target[..target.len().min(REQUEST_LINE_TARGET_MAX)]);
        }
    }

    /// Counts a field after a problem, which is decoded only for the table.
    #[cold]
    fn discard(&mut self, size: usize) -> Result<(), FaultKind> {
        self.decoded_bytes = self.decoded_bytes.saturating_add(size);
        let is_excessive = self.decoded_bytes > self.limits.bytes_max.saturating_mul(DECODED_FACTOR);
        if is_excessive { Err(FaultKind::BlockTooLarge) } else { Ok(()) }
    }

    pub(super) fn replace_texts(&mut self, mut replace: impl FnMut(TextRef) -> TextRef) {
        for field in &mut self.refs {
            *field = FieldRef { name: replace(field.name), value: replace(field.value) };
        }
        let parts = &mut self.parts;
        let texts = [
            &mut parts.method,
            &mut parts.scheme,
            &mut parts.authority,
            &mut parts.path,
            &mut parts.protocol,
            &mut parts.host,
        ];
        for text in texts.into_iter().flatten() {
            *text = replace(*text);
        }
    }

    /// Returns the bytes of memory of the references and the kept block.
    pub(super) fn memory_bytes(&self) -> usize {
        self.refs.capacity() * size_of::<FieldRef>() + self.block.capacity() + self.request_line.capacity()
    }

    fn keep(&mut self, field: FieldRef) -> Result<(), HeadProblem> {
        if self.refs.len() >= self.limits.fields_max {
            return Err(HeadProblem::Refused(RefusalKind::TooManyFields));
        }
        self.refs.push(field);
        Ok(())
    }

    /// Handles a field with a meaning here, or with an invalid name or value.
    fn keep_special(
        &mut self,
        kind: FieldKind,
        field: FieldRef,
        texts: Texts<'_>,
    ) -> Result<(), HeadProblem> {
        use NameKind as Name;
        let malformed = |fault| Err(HeadProblem::Malformed(fault));
        match kind.name {
            Name::Invalid => malformed(FaultKind::FieldNameInvalid),
            Name::Connection => malformed(FaultKind::ConnectionField),
            Name::Other => malformed(FaultKind::FieldValueInvalid),
            Name::Te if !kind.is_value_valid => malformed(FaultKind::ConnectionField),
            Name::Te => self.keep(field),
            Name::Host | Name::Expect if self.section != Section::Request => {
                self.keep_foreign(kind, field, texts)
            }
            Name::Expect if !kind.is_value_valid => Err(HeadProblem::Refused(RefusalKind::ExpectationFailed)),
            Name::Expect => self.keep(field),
            Name::Host => self.keep_host(kind, field),
            Name::ContentLength => self.keep_content_length(texts.value(field.value)),
            Name::UnknownPseudo
            | Name::Method
            | Name::Scheme
            | Name::Authority
            | Name::Path
            | Name::Protocol
            | Name::Status => self.keep_pseudo(kind, field, texts).map_err(HeadProblem::Malformed),
        }
    }

    /// Handles a field that has its meaning only in requests.
    fn keep_foreign(
        &mut self,
        kind: FieldKind,
        field: FieldRef,
        texts: Texts<'_>,
    ) -> Result<(), HeadProblem> {
        if self.section == Section::Trailers && kind.name == NameKind::Host {
            return Err(HeadProblem::Malformed(FaultKind::TrailerForbidden));
        }
        if !is_valid_text(texts.value(field.value)) {
            return Err(HeadProblem::Malformed(FaultKind::FieldValueInvalid));
        }
        self.keep(field)
    }

    fn keep_host(&mut self, kind: FieldKind, field: FieldRef) -> Result<(), HeadProblem> {
        if !kind.is_value_valid || self.parts.host.is_some() {
            return Err(HeadProblem::Malformed(FaultKind::HostInvalid));
        }
        self.parts.host = Some(field.value);
        Ok(())
    }

    fn keep_content_length(&mut self, value: &[u8]) -> Result<(), HeadProblem> {
        if self.section == Section::Trailers {
            // It is too late to have a meaning, and some peers send it (RFC 9110 §6.5.1): it is dropped.
            let invalid = HeadProblem::Malformed(FaultKind::FieldValueInvalid);
            return if is_valid_text(value) { Ok(()) } else { Err(invalid) };
        }
        let invalid = HeadProblem::Malformed(FaultKind::ContentLengthInvalid);
        // Some servers parse a number that starts with 0 as octal.
        if self.section == Section::Request && matches!(value, [b'0', _, ..]) {
            return Err(invalid);
        }
        let length = parse_content_length(value).map_err(|_| invalid)?;
        match self.parts.content_length.replace(length) {
            None => Ok(()),
            Some(_) => Err(invalid),
        }
    }

    #[inline]
    fn keep_pseudo(&mut self, kind: FieldKind, field: FieldRef, texts: Texts<'_>) -> Result<(), FaultKind> {
        let parts = &self.parts;
        let has_regular = !self.refs.is_empty() || parts.host.is_some() || parts.content_length.is_some();
        if has_regular || self.section != Section::Request {
            return self.keep_status(kind, field.value, texts, has_regular);
        }
        let part = match kind.name {
            NameKind::Method => &mut self.parts.method,
            NameKind::Scheme => &mut self.parts.scheme,
            NameKind::Authority => &mut self.parts.authority,
            NameKind::Path => &mut self.parts.path,
            NameKind::Protocol if self.limits.allows_protocol => &mut self.parts.protocol,
            _ => return Err(FaultKind::PseudoUnknown),
        };
        match part.replace(field.value) {
            _ if !kind.is_value_valid => Err(FaultKind::PseudoInvalid),
            None => Ok(()),
            Some(_) => Err(FaultKind::PseudoRepeated),
        }
    }

    /// Handles a pseudo-header field outside of a request: only `:status` is allowed.
    fn keep_status(
        &mut self,
        kind: FieldKind,
        value: TextRef,
        texts: Texts<'_>,
        has_regular: bool,
    ) -> Result<(), FaultKind> {
        if has_regular || self.section != Section::Response {
            return Err(FaultKind::PseudoMisplaced);
        }
        if kind.name != NameKind::Status {
            return Err(FaultKind::PseudoUnknown);
        }
        let &[hundreds, tens, ones] = texts.value(value) else { return Err(FaultKind::PseudoInvalid) };
        if !kind.is_value_valid {
            return Err(FaultKind::PseudoInvalid);
        }
        let digit = |byte: u8| u16::from(byte - b'0');
        let status = digit(hundreds) * 100 + digit(tens) * 10 + digit(ones);
        match self.parts.status.replace(status) {
            // Upgrades do not exist (RFC 9113 §8.6).
            None if status == 101 => Err(FaultKind::PseudoInvalid),
            None => Ok(()),
            Some(_) => Err(FaultKind::PseudoRepeated),
        }
    }

    /// Checks a complete request head (RFC 9113 §8.3.1 and §8.5).
    pub(super) fn finish_request(&self, texts: Texts<'_>) -> Result<(), HeadProblem> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let malformed = |fault| Err(HeadProblem::Malformed(fault));
        let Some(method) = self.parts.method.map(|method| texts.value(method)) else {
            return malformed(FaultKind::PseudoMissing);
        };
        let is_connect = method == b"CONNECT";
        if is_connect && self.parts.content_length.is_some() {
            return malformed(FaultKind::ContentLengthMismatch);
        }
        let is_tunnel = is_connect && self.parts.protocol.is_none();
        if is_tunnel {
            if self.parts.scheme.is_some() || self.parts.path.is_some() {
                return malformed(FaultKind::PseudoUnknown);
            }
            let authority =
                self.parts.authority.and_then(|authority| split_host_port(texts.value(authority)));
            match authority {
                None => return malformed(FaultKind::PseudoMissing),
                Some((_, None)) => return malformed(FaultKind::PseudoInvalid),
                Some((_, Some(_))) => {}
            }
        } else {
            let path = self.parts.path.map(|path| texts.value(path));
            let (Some(path), Some(_)) = (path, self.parts.scheme) else {
                return malformed(FaultKind::PseudoMissing);
            };
            if self.parts.protocol.is_some() && !is_connect {
                return malformed(FaultKind::PseudoUnknown);
            }
            if path == b"*" && method != b"OPTIONS" {
                return malformed(FaultKind::PseudoInvalid);
            }
            if path.len() > self.limits.target_bytes_max {
                return Err(HeadProblem::Refused(RefusalKind::TargetTooLong));
            }
        }
        self.check_host(texts)
    }

    fn check_host(&self, texts: Texts<'_>) -> Result<(), HeadProblem> {
        match (self.parts.authority, self.parts.host) {
            (Some(authority), Some(host))
                if !texts.value(authority).eq_ignore_ascii_case(texts.value(host)) =>
            {
                Err(HeadProblem::Malformed(FaultKind::HostInvalid))
            }
            (None, None) => Err(HeadProblem::Refused(RefusalKind::HostMissing)),
            _ => Ok(()),
        }
    }

    /// Checks a complete response head (RFC 9113 §8.3.2).
    pub(super) fn finish_response(&self) -> Result<u16, HeadProblem> {
        match (self.problem, self.parts.status) {
            (Some(problem), _) => Err(problem),
            (None, None) => Err(HeadProblem::Malformed(FaultKind::PseudoMissing)),
            (None, Some(status)) => Ok(status),
        }
    }

    /// Checks a complete trailer section.
    pub(super) fn finish_trailers(&self) -> Result<(), HeadProblem> {
        self.problem.map_or(Ok(()), Err)
    }

    pub(super) fn content_length(&self) -> Option<u64> {
        self.parts.content_length
    }

    /// Number of bytes of the fields (RFC 9113 §6.5.2).
    pub(super) fn size(&self) -> usize {
        if self.is_over() { 0 } else { self.size }
    }

    #[inline]
    pub(super) fn fields<'e>(&'e self, texts: Texts<'e>) -> Fields<'e> {
        Fields { texts, refs: &self.refs }
    }

    /// Head of a request that [`Head::finish_request`] accepted.
    #[inline]
    pub(super) fn request<'e>(&'e self, texts: Texts<'e>) -> RequestHead<'e> {
        let text = |value: Option<TextRef>| value.map(|value| texts.ascii(value));
        RequestHead {
            method: text(self.parts.method).unwrap_or_default(),
            scheme: text(self.parts.scheme),
            authority: text(self.parts.authority.or(self.parts.host)),
            path: text(self.parts.path),
            protocol: text(self.parts.protocol),
            content_length: self.parts.content_length,
            fields: self.fields(texts),
        }
    }

    /// Head of a response that [`Head::finish_response`] accepted.
    #[inline]
    pub(super) fn response<'e>(&'e self, texts: Texts<'e>) -> ResponseHead<'e> {
        ResponseHead {
            status: self.parts.status.unwrap_or_default(),
            content_length: self.parts.content_length,
            fields: self.fields(texts),
        }
    }
}
