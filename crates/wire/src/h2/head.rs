//! Heads and trailer sections while they are decoded: storage, limits, and the rules about several
//! fields (RFC 9113 §8.2 and §8.3).
//!
//! [`super::fields`] checks single fields. After the first problem nothing is stored any more, but
//! the block is decoded on, for the state of the table.

use super::event::{FieldRange, Fields, RequestHead, ResponseHead};
use super::fault::FaultKind;
use super::fields::{FieldKind, NameKind, is_valid_text, is_valid_value, name_kind};
use super::table::ENTRY_OVERHEAD;
use crate::RefusalKind;
use crate::h1::{parse_content_length, split_host_port};

/// Kind of a field section.
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

/// Limits of a section.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadLimits {
    pub(super) bytes_max: usize,
    pub(super) fields_max: usize,
    pub(super) target_bytes_max: usize,
    /// Allows `:protocol` (RFC 8441).
    pub(super) allows_protocol: bool,
}

/// Part of the text that is ASCII: names, and values of pseudo-header fields.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct HeadParts {
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
    host: Option<Span>,
    status: Option<u16>,
    content_length: Option<u64>,
    has_regular: bool,
}

/// Storage of the section that was decoded last.
#[derive(Debug)]
pub(super) struct HeadScratch {
    /// Names, and values of pseudo-header fields: ASCII.
    pub(super) names: Vec<u8>,
    /// Values of regular fields.
    pub(super) values: Vec<u8>,
    ranges: Vec<FieldRange>,
    /// End of the stored fields; behind it is the field that is being decoded.
    names_kept: usize,
    values_kept: usize,
    section: Section,
    size: usize,
    parts: HeadParts,
    problem: Option<HeadProblem>,
    limits: HeadLimits,
}

impl HeadScratch {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self {
            names: Vec::new(),
            values: Vec::new(),
            ranges: Vec::new(),
            names_kept: 0,
            values_kept: 0,
            section: Section::Ignored,
            size: 0,
            parts: HeadParts::default(),
            problem: None,
            limits,
        }
    }

    /// Removes the last section and frees its memory.
    pub(super) fn release(&mut self) {
        *self = Self::new(self.limits);
    }

    /// Begins a section.
    pub(super) fn begin(&mut self, section: Section) {
        self.names.clear();
        self.values.clear();
        self.ranges.clear();
        (self.names_kept, self.values_kept, self.size) = (0, 0, 0);
        self.section = section;
        self.parts = HeadParts::default();
        self.problem = (section == Section::Ignored).then_some(HeadProblem::Ignored);
    }

    /// Adds a field of a table.
    #[inline]
    pub(super) fn add_checked(&mut self, kind: FieldKind, name: &[u8], value: &[u8]) {
        if self.is_within_limits(name.len() + value.len()) {
            self.names.extend_from_slice(name);
            self.values.extend_from_slice(value);
            self.keep(kind);
        }
    }

    /// Returns the name and the value that were decoded last.
    #[inline]
    pub(super) fn last_text(&self) -> (&[u8], &[u8]) {
        (&self.names[self.names_kept..], &self.values[self.values_kept..])
    }

    /// Checks the field that was decoded last.
    #[inline]
    pub(super) fn classify(&self, known_name: Option<NameKind>) -> FieldKind {
        let (name, value) = self.last_text();
        let name = known_name.unwrap_or_else(|| name_kind(name));
        FieldKind { name, is_value_valid: is_valid_value(name, value) }
    }

    /// Adds the field that was decoded last.
    #[inline]
    pub(super) fn add_last(&mut self, kind: FieldKind) {
        let (name, value) = self.last_text();
        if self.is_within_limits(name.len() + value.len()) {
            self.keep(kind);
        } else {
            self.names.truncate(self.names_kept);
            self.values.truncate(self.values_kept);
        }
    }

    #[inline]
    fn is_within_limits(&mut self, len: usize) -> bool {
        if self.problem.is_some() {
            return false;
        }
        self.size += len + ENTRY_OVERHEAD;
        if self.size > self.limits.bytes_max {
            self.problem = Some(HeadProblem::Refused(RefusalKind::HeadTooLarge));
            return false;
        }
        true
    }

    #[inline]
    fn keep(&mut self, kind: FieldKind) {
        if kind == FieldKind::OTHER {
            return self.keep_regular();
        }
        if let Err(problem) = self.keep_special(kind) {
            self.problem = Some(problem);
        }
        self.names.truncate(self.names_kept);
        self.values.truncate(self.values_kept);
    }

    #[inline]
    fn keep_regular(&mut self) {
        if self.ranges.len() >= self.limits.fields_max {
            self.problem = Some(HeadProblem::Refused(RefusalKind::TooManyFields));
            return;
        }
        // Heads are limited to `bytes_max`, which is far less than 4 GiB.
        self.ranges.push(FieldRange {
            name_start: self.names_kept as u32,
            name_end: self.names.len() as u32,
            value_start: self.values_kept as u32,
            value_end: self.values.len() as u32,
        });
        self.names_kept = self.names.len();
        self.values_kept = self.values.len();
        self.parts.has_regular = true;
    }

    /// Handles a field with a meaning here, or with an invalid name or value.
    fn keep_special(&mut self, kind: FieldKind) -> Result<(), HeadProblem> {
        use NameKind as Name;
        let malformed = |fault| Err(HeadProblem::Malformed(fault));
        match kind.name {
            Name::Invalid => malformed(FaultKind::FieldNameInvalid),
            Name::Connection => malformed(FaultKind::ConnectionField),
            Name::Other => malformed(FaultKind::FieldValueInvalid),
            Name::Te if !kind.is_value_valid => malformed(FaultKind::ConnectionField),
            Name::Te => Ok(self.keep_regular()),
            Name::Host | Name::Expect if self.section != Section::Request => self.keep_foreign(kind.name),
            Name::Expect if !kind.is_value_valid => Err(HeadProblem::Refused(RefusalKind::ExpectationFailed)),
            Name::Expect => Ok(self.keep_regular()),
            Name::Host => self.keep_host(kind),
            Name::ContentLength => self.keep_content_length(),
            Name::UnknownPseudo
            | Name::Method
            | Name::Scheme
            | Name::Authority
            | Name::Path
            | Name::Protocol
            | Name::Status => self.keep_pseudo(kind).map_err(HeadProblem::Malformed),
        }
    }

    /// Handles a field that has its meaning only in requests.
    fn keep_foreign(&mut self, name: NameKind) -> Result<(), HeadProblem> {
        if self.section == Section::Trailers && name == NameKind::Host {
            return Err(HeadProblem::Malformed(FaultKind::TrailerForbidden));
        }
        if !is_valid_text(self.last_text().1) {
            return Err(HeadProblem::Malformed(FaultKind::FieldValueInvalid));
        }
        self.keep_regular();
        Ok(())
    }

    fn keep_host(&mut self, kind: FieldKind) -> Result<(), HeadProblem> {
        if !kind.is_value_valid || self.parts.host.is_some() {
            return Err(HeadProblem::Malformed(FaultKind::HostInvalid));
        }
        self.parts.has_regular = true;
        self.parts.host = Some(self.keep_value_as_text());
        Ok(())
    }

    fn keep_content_length(&mut self) -> Result<(), HeadProblem> {
        if self.section == Section::Trailers {
            return Err(HeadProblem::Malformed(FaultKind::TrailerForbidden));
        }
        let value = self.last_text().1;
        let invalid = HeadProblem::Malformed(FaultKind::ContentLengthInvalid);
        // Some servers parse a number that starts with 0 as octal.
        if self.section == Section::Request && matches!(value, [b'0', _, ..]) {
            return Err(invalid);
        }
        let length = parse_content_length(value).map_err(|_| invalid)?;
        self.parts.has_regular = true;
        match self.parts.content_length.replace(length) {
            None => Ok(()),
            Some(_) => Err(invalid),
        }
    }

    fn keep_pseudo(&mut self, kind: FieldKind) -> Result<(), FaultKind> {
        if self.section == Section::Trailers || self.parts.has_regular {
            return Err(FaultKind::PseudoMisplaced);
        }
        let is_response = self.section == Section::Response;
        match kind.name {
            NameKind::UnknownPseudo => return Err(FaultKind::PseudoUnknown),
            NameKind::Status if !is_response => return Err(FaultKind::PseudoUnknown),
            NameKind::Protocol if !self.limits.allows_protocol => return Err(FaultKind::PseudoUnknown),
            NameKind::Status => return self.keep_status(kind),
            _ if is_response => return Err(FaultKind::PseudoUnknown),
            _ if !kind.is_value_valid => return Err(FaultKind::PseudoInvalid),
            _ => {}
        }
        let span = self.keep_value_as_text();
        let part = match kind.name {
            NameKind::Method => &mut self.parts.method,
            NameKind::Scheme => &mut self.parts.scheme,
            NameKind::Authority => &mut self.parts.authority,
            NameKind::Path => &mut self.parts.path,
            _ => &mut self.parts.protocol,
        };
        match part.replace(span) {
            None => Ok(()),
            Some(_) => Err(FaultKind::PseudoRepeated),
        }
    }

    fn keep_status(&mut self, kind: FieldKind) -> Result<(), FaultKind> {
        let &[hundreds, tens, ones] = self.last_text().1 else { return Err(FaultKind::PseudoInvalid) };
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

    /// Moves the value that was decoded last to the text, in place of its name.
    #[inline]
    fn keep_value_as_text(&mut self) -> Span {
        self.names.truncate(self.names_kept);
        self.names.extend_from_slice(&self.values[self.values_kept..]);
        let span = Span { start: self.names_kept as u32, end: self.names.len() as u32 };
        self.names_kept = self.names.len();
        span
    }

    fn bytes_of(&self, span: Option<Span>) -> Option<&[u8]> {
        span.map(|span| &self.names[span.start as usize..span.end as usize])
    }

    /// Checks a complete request head (RFC 9113 §8.3.1 and §8.5).
    pub(super) fn finish_request(&mut self) -> Result<(), HeadProblem> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let malformed = |fault| Err(HeadProblem::Malformed(fault));
        let Some(method) = self.bytes_of(self.parts.method) else {
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
            let authority = self.bytes_of(self.parts.authority).and_then(split_host_port);
            match authority {
                None => return malformed(FaultKind::PseudoMissing),
                Some((_, None)) => return malformed(FaultKind::PseudoInvalid),
                Some((_, Some(_))) => {}
            }
        } else {
            let path = self.bytes_of(self.parts.path);
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
        self.check_host()
    }

    fn check_host(&mut self) -> Result<(), HeadProblem> {
        match (self.bytes_of(self.parts.authority), self.bytes_of(self.parts.host)) {
            (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
                Err(HeadProblem::Malformed(FaultKind::HostInvalid))
            }
            (None, None) => Err(HeadProblem::Refused(RefusalKind::HostMissing)),
            _ => Ok(()),
        }
    }

    /// Checks a complete response head (RFC 9113 §8.3.2).
    pub(super) fn finish_response(&mut self) -> Result<u16, HeadProblem> {
        match (self.problem, self.parts.status) {
            (Some(problem), _) => Err(problem),
            (None, None) => Err(HeadProblem::Malformed(FaultKind::PseudoMissing)),
            (None, Some(status)) => Ok(status),
        }
    }

    /// Checks a complete trailer section.
    pub(super) fn finish_trailers(&mut self) -> Result<(), HeadProblem> {
        self.problem.map_or(Ok(()), Err)
    }

    /// Value of `content-length`.
    pub(super) fn content_length(&self) -> Option<u64> {
        self.parts.content_length
    }

    /// Number of bytes of the stored fields.
    pub(super) fn stored_bytes(&self) -> usize {
        self.names_kept + self.values_kept
    }

    fn text(&self) -> &str {
        // Only ASCII is stored: tokens, and values that were checked.
        std::str::from_utf8(&self.names[..self.names_kept]).unwrap_or_default()
    }

    /// Fields of the section.
    pub(super) fn fields(&self) -> Fields<'_> {
        Fields { names: self.text(), values: &self.values, ranges: &self.ranges }
    }

    /// Head of a request that [`HeadScratch::finish_request`] accepted.
    pub(super) fn request(&self) -> RequestHead<'_> {
        let fields = self.fields();
        let text = |span: Option<Span>| {
            span.map(|span| fields.names.get(span.start as usize..span.end as usize).unwrap_or_default())
        };
        RequestHead {
            method: text(self.parts.method).unwrap_or_default(),
            scheme: text(self.parts.scheme),
            authority: text(self.parts.authority.or(self.parts.host)),
            path: text(self.parts.path),
            protocol: text(self.parts.protocol),
            content_length: self.parts.content_length,
            fields,
        }
    }

    /// Head of a response that [`HeadScratch::finish_response`] accepted.
    pub(super) fn response(&self) -> ResponseHead<'_> {
        ResponseHead {
            status: self.parts.status.unwrap_or_default(),
            content_length: self.parts.content_length,
            fields: self.fields(),
        }
    }
}
