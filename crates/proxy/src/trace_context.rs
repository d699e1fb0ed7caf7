//! Trace context of a request: `traceparent` and `tracestate` (W3C Trace Context). Pure: bytes in, bytes out.

use std::num::NonZero;

use wire::Header;

use crate::plan::TraceSample;
use crate::request_view::RequestView;

/// Length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;
/// Flag of a request whose caller records it.
const SAMPLED: u8 = 1;

/// Id of a trace, which is not 0. In two parts, because the alignment of a `u128` makes an allocation expensive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceId {
    high: u64,
    low: u64,
}

impl TraceId {
    pub(crate) const fn new(id: NonZero<u128>) -> Self {
        Self { high: (id.get() >> 64) as u64, low: id.get() as u64 }
    }

    pub(crate) fn get(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// Identity of a request among those of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace_id: TraceId,
    /// Span of this proxy: the parent of the server's.
    pub(crate) span_id: NonZero<u64>,
    /// Span of the caller; `None`: the trace begins here.
    pub(crate) parent_id: Option<NonZero<u64>>,
    /// True if the trace was chosen at its beginning.
    pub(crate) is_sampled: bool,
    /// True if the request has a field of a context, valid or not.
    pub(crate) replaces_fields: bool,
}

impl TraceContext {
    /// Continues the trace of the caller if it `is_continued`, or begins one. Of the traces whose caller is not trusted,
    /// or that begin here, the fraction `sample` is chosen.
    pub(crate) fn from_request(
        view: &RequestView<'_>,
        replaces_fields: bool,
        is_continued: bool,
        sample: TraceSample,
        rng: &mut fastrand::Rng,
    ) -> Self {
        // One in 2^64 is zero, which is no id.
        let span_id = NonZero::new(rng.u64(..)).unwrap_or(NonZero::<u64>::MIN);
        if replaces_fields
            && is_continued
            && let Some(received) = received(view)
        {
            let is_sampled = match view.is_trusted {
                true => received.flags & SAMPLED != 0,
                // A stranger chooses its trace, but not how much work that is.
                false => sample.contains(received.trace_id.low),
            };
            let parent_id = Some(received.parent_id);
            return Self { trace_id: received.trace_id, span_id, parent_id, is_sampled, replaces_fields };
        }
        let trace_id = TraceId::new(NonZero::new(rng.u128(..)).unwrap_or(NonZero::<u128>::MIN));
        let is_sampled = sample.contains(trace_id.low);
        Self { trace_id, span_id, parent_id: None, is_sampled, replaces_fields }
    }

    pub(crate) fn trace_id_text(&self) -> [u8; 32] {
        let mut text = [0; 32];
        write_hexadecimal(self.trace_id.high, &mut text[..16]);
        write_hexadecimal(self.trace_id.low, &mut text[16..]);
        text
    }

    pub(crate) fn span_id_text(&self) -> [u8; 16] {
        let mut text = [0; 16];
        write_hexadecimal(self.span_id.get(), &mut text);
        text
    }

    /// Replaces the fields of the context in a head for a server, which ends with an empty line. `tracestate` stays
    /// in a trace that is continued (W3C Trace Context §3.3). `has_changes`: the route may have added such fields.
    pub(crate) fn write_fields(&self, has_changes: bool, head: &mut Vec<u8>) {
        if self.replaces_fields || has_changes {
            self.remove_fields(head);
        }
        // The writer of heads has ended it.
        head.truncate(head.len() - 2);
        let mut line = *b"traceparent: 00-00000000000000000000000000000000-0000000000000000-00\r\n\r\n";
        write_hexadecimal(self.trace_id.high, &mut line[16..32]);
        write_hexadecimal(self.trace_id.low, &mut line[32..48]);
        write_hexadecimal(self.span_id.get(), &mut line[49..65]);
        line[67] += u8::from(self.is_sampled);
        head.extend_from_slice(&line);
    }

    #[cold]
    fn remove_fields(&self, head: &mut Vec<u8>) {
        remove_field(head, b"traceparent");
        if self.parent_id.is_none() {
            remove_field(head, b"tracestate");
        }
    }
}

/// Context that a caller sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Received {
    trace_id: TraceId,
    parent_id: NonZero<u64>,
    flags: u8,
}

/// Returns the context that a caller sent: one valid field.
fn received(view: &RequestView<'_>) -> Option<Received> {
    let is_parent = |header: &&Header<'_>| header.name.eq_ignore_ascii_case("traceparent");
    let mut lines = view.ordinary_lines("traceparent").iter().filter(is_parent);
    match (lines.next(), lines.next()) {
        (Some(line), None) => parse(line.value),
        _ => None,
    }
}

/// Parses a `traceparent`; later versions have more behind the flags (W3C Trace Context §3.2).
fn parse(value: &[u8]) -> Option<Received> {
    let (known, rest) = value.split_at_checked(TRACEPARENT_BYTES)?;
    let version = hexadecimal(&known[..2])?;
    let is_length_valid = rest.is_empty() || version > 0 && rest[0] == b'-';
    if version == 0xff || !is_length_valid || [2, 35, 52].iter().any(|&dash| known[dash] != b'-') {
        return None;
    }
    Some(Received {
        trace_id: TraceId::new(NonZero::new(hexadecimal(&known[3..35])?)?),
        // 16 and 2 digits fit.
        parent_id: NonZero::new(hexadecimal(&known[36..52])? as u64)?,
        flags: hexadecimal(&known[53..55])? as u8,
    })
}

/// Returns a number of up to 32 digits; capitals are no digits here.
fn hexadecimal(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// Writes the 16 digits of a number.
fn write_hexadecimal(number: u64, digits: &mut [u8]) {
    let (high, low) = ((number >> 32) as u32, number as u32);
    let digits = digits.as_chunks_mut::<8>().0;
    for (out, half) in digits.iter_mut().zip([high, low]) {
        *out = hexadecimal_digits(half);
    }
}

/// Returns the 8 digits of a number, all at once: each byte becomes a digit of 4 bits, and then its letter.
fn hexadecimal_digits(number: u32) -> [u8; 8] {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let spread = u64::from(number);
    let spread = (spread | spread << 16) & 0x0000_ffff_0000_ffff;
    let spread = (spread | spread << 8) & 0x00ff_00ff_00ff_00ff;
    let spread = (spread | spread << 4) & (EACH * 0xf);
    // 1 for digits from 10 on, which carry into the next four bits.
    let is_letter = ((spread + EACH * 6) >> 4) & EACH;
    let to_letter = u64::from(b'a' - b'0' - 10);
    (spread + EACH * u64::from(b'0') + is_letter * to_letter).to_be_bytes()
}

/// Removes the lines of a field, whose name is in lower case, from a head.
fn remove_field(head: &mut Vec<u8>, name: &[u8]) {
    let mut start = 0;
    while let Some(length) = memchr::memchr(b'\n', &head[start..]) {
        let line = &head[start..start + length + 1];
        let is_field = line.len() > name.len()
            && line[name.len()] == b':'
            && line[..name.len()].eq_ignore_ascii_case(name);
        match is_field {
            true => drop(head.drain(start..start + length + 1)),
            false => start += length + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECEIVED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn context(is_continued: bool, fields: &str, is_trusted: bool) -> TraceContext {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut slots = wire::header_slots();
        let parsed = wire::parse_request(bytes.as_bytes(), &wire::Limits::default(), &mut slots);
        let wire::Parsed::Complete { head, .. } = parsed.unwrap() else { panic!("incomplete") };
        let view = RequestView { is_trusted, ..crate::request_view::fixtures::view(&head) };
        let has_fields = view.noted_fields().has_trace_context;
        TraceContext::from_request(
            &view,
            has_fields,
            is_continued,
            TraceSample::new(0.0),
            &mut fastrand::Rng::with_seed(1),
        )
    }

    #[test]
    fn only_valid_contexts_are_read() {
        let parsed = parse(RECEIVED.as_bytes()).unwrap();
        assert_eq!(parsed.trace_id.get(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((parsed.parent_id.get(), parsed.flags), (0xb7ad_6b71_6920_3331, 1));
        let later = RECEIVED.replacen("00", "cc", 1) + "-more";
        assert!(parse(later.as_bytes()).is_some());
        for wrong in [
            "",
            "00",
            &RECEIVED[1..],
            &RECEIVED.to_uppercase(),
            &format!("{RECEIVED}-more"),
            &format!("{RECEIVED}0"),
            &RECEIVED.replacen("00", "ff", 1),
            &RECEIVED.replacen("00", "0g", 1),
            &RECEIVED.replace('-', "_"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            &(RECEIVED.replacen("00", "01", 1) + "more"),
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn callers_are_believed_by_the_setting() {
        let fields = format!("traceparent: {RECEIVED}\r\n");
        let trace_id = parse(RECEIVED.as_bytes()).unwrap().trace_id;
        for (is_continued, is_trusted) in [(true, true), (true, false), (false, true)] {
            let context = context(is_continued, &fields, is_trusted);
            assert_eq!(context.trace_id == trace_id, is_continued);
            assert_eq!(context.parent_id.is_some(), is_continued);
            // The flag of a stranger decides nothing.
            assert_eq!(context.is_sampled, is_continued && is_trusted);
        }
        assert_eq!(context(true, &fields.repeat(2), true).parent_id, None);
    }

    #[test]
    fn digits_are_those_of_the_standard_library() {
        let mut rng = fastrand::Rng::with_seed(3);
        for number in [0, 0x0123_4567, 0x89ab_cdef, 0x9a9a_f0f0, u32::MAX]
            .into_iter()
            .chain((0..1_000).map(|_| rng.u32(..)))
        {
            assert_eq!(hexadecimal_digits(number), format!("{number:08x}").as_bytes());
        }
    }

    #[test]
    fn servers_get_one_context() {
        let received = "GET / HTTP/1.1\r\nHost: traceparent: x\r\nTraceParent: a\r\ntracestate: b=1\r\n\
                        X-Traceparent: c\r\ntraceparent:d\r\n\r\n";
        let mut context = TraceContext {
            trace_id: TraceId::new(NonZero::new(0xabc).unwrap()),
            span_id: NonZero::new(0x12).unwrap(),
            parent_id: None,
            is_sampled: true,
            replaces_fields: true,
        };
        let written = |context: &TraceContext| {
            let mut head = received.as_bytes().to_vec();
            context.write_fields(false, &mut head);
            String::from_utf8(head).unwrap()
        };
        let kept = "GET / HTTP/1.1\r\nHost: traceparent: x\r\n";
        let own = "traceparent: 00-00000000000000000000000000000abc-0000000000000012-01\r\n\r\n";
        assert_eq!(written(&context), format!("{kept}X-Traceparent: c\r\n{own}"));
        context.parent_id = NonZero::new(5);
        assert_eq!(written(&context), format!("{kept}tracestate: b=1\r\nX-Traceparent: c\r\n{own}"));
    }
}
