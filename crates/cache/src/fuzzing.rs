//! Properties that hold for any input bytes, as functions that panic when one fails. For tests and fuzz targets only,
//! like `wire::fuzzing`.

use wire::{Header, Limits, Parsed, RequestKind, header_slots, parse_request, parse_response};

use crate::directives::SECONDS_MAX;
use crate::disk::format::{PREAMBLE_BYTES, Preamble, Slots, encode_head};
use crate::head::StoredHead;
use crate::policy::{ResponseTimes, TAGS_MAX, VARY_FIELDS_MAX, decide_storing};
use crate::request::RequestPolicy;
use crate::rules::CacheRules;
use crate::storable::{Freshness, Storable};
use crate::time::UnixTime;
use crate::variant::secondary_key;

/// Time of the responses.
const NOW: UnixTime = UnixTime::from_seconds(1_800_000_000);

/// Checks the policy for a request and the response to it: what is stored is bounded, is not private by a plain
/// reading of its fields, becomes stale once, and its head is the same after being read again. `true`: the
/// response is stored.
///
/// # Panics
/// A property does not hold.
pub fn policy(bytes: &[u8]) -> bool {
    with_heads(bytes, |method, request_headers, status, headers| {
        let request = RequestPolicy::parse(method, request_headers, false);
        let times = ResponseTimes { requested_at: NOW, received_at: NOW };
        let Ok(storable) = decide_storing(&request, status, headers, times, &CacheRules::default()) else {
            return false;
        };
        let forbidden = ["no-store", "private"].iter().any(|name| has_plain_directive(headers, name));
        let is_targeted = headers.iter().any(|header| header.name.eq_ignore_ascii_case("cdn-cache-control"));
        let is_understood = has_plain_directive(headers, "must-understand");
        assert!(!forbidden || is_targeted || is_understood, "stored in spite of its fields");
        assert!(wire::field_value(headers, "set-cookie").is_none(), "stored with a cookie");
        check_storable(&storable);
        let head = StoredHead::new(status, headers);
        assert_eq!(StoredHead::from_lines(status, head.field_lines()).as_ref(), Some(&head));
        let updated = head.update_by_304(headers);
        assert_eq!(updated.fields().count(), head.fields().count(), "the same fields again change nothing");
        let key = secondary_key(&storable.vary, request_headers);
        let reversed: Vec<Header<'_>> = request_headers.iter().rev().copied().collect();
        let has_repeated = storable.vary.iter().any(|name| {
            request_headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count() > 1
        });
        assert!(has_repeated || key == secondary_key(&storable.vary, &reversed));
        true
    })
}

fn check_storable(storable: &Storable) {
    assert!(storable.lifetime_s <= SECONDS_MAX && storable.initial_age_s <= SECONDS_MAX);
    assert!(storable.vary.len() <= VARY_FIELDS_MAX && storable.tags.len() <= TAGS_MAX);
    let plain = RequestPolicy::parse("GET", &[], false);
    let mut is_fresh = true;
    for after_s in [0, 1, 10, 1000, 1_000_000, SECONDS_MAX, 2 * SECONDS_MAX] {
        let now = NOW.plus_seconds(after_s);
        let was_fresh = std::mem::replace(&mut is_fresh, storable.freshness(now, &plain) == Freshness::Fresh);
        assert!(was_fresh || !is_fresh, "it became fresh again");
        assert!(storable.age_s(now) <= SECONDS_MAX);
    }
    assert!(!is_fresh, "fresh for ever");
}

/// Returns whether a field without quotes has a directive, by a reading of its own.
fn has_plain_directive(headers: &[Header<'_>], name: &str) -> bool {
    let values = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("cache-control"));
    let plain = values.map(|header| header.value).filter(|value| !value.contains(&b'"'));
    plain
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|element| element.trim_ascii().eq_ignore_ascii_case(name.as_bytes()))
}

/// Calls the policy for a request and its response, without checks, for measurements of its cost.
pub fn only_policy(bytes: &[u8]) {
    with_heads(bytes, |method, request_headers, status, headers| {
        let request = RequestPolicy::parse(method, request_headers, false);
        let times = ResponseTimes { requested_at: NOW, received_at: NOW };
        let storable = decide_storing(&request, status, headers, times, &CacheRules::default());
        if let Ok(storable) = &storable {
            let head = StoredHead::new(status, headers).update_by_304(headers);
            let key = secondary_key(&storable.vary, request_headers);
            return head.field_lines().len() > key.len();
        }
        storable.is_ok()
    });
}

/// Parses a request and a response behind it.
fn with_heads(bytes: &[u8], use_heads: impl FnOnce(&str, &[Header<'_>], u16, &[Header<'_>]) -> bool) -> bool {
    let limits = Limits::default();
    let (mut request_slots, mut slots) = (header_slots(), header_slots());
    let Ok(Parsed::Complete { head: request, bytes: used }) =
        parse_request(bytes, &limits, &mut request_slots)
    else {
        return false;
    };
    let Ok(Parsed::Complete { head, .. }) =
        parse_response(&bytes[used..], &limits, RequestKind::Other, &mut slots)
    else {
        return false;
    };
    use_heads(request.method, request.headers, head.status, head.headers)
}

/// Checks the head of a file of the disk: what is accepted is the same after being written again. `true`: it was
/// accepted.
///
/// # Panics
/// The property does not hold.
pub fn file(bytes: &[u8]) -> bool {
    let Some((preamble, slots)) = decode_file(bytes) else { return false };
    assert_eq!(preamble.encode(), bytes[..PREAMBLE_BYTES]);
    let head = encode_head(&slots.head.key, &slots.head.variant, &slots.head.head, &slots.head.storable);
    let slot = preamble.encode_slot(slots.sequence, &head);
    let offset = preamble.slot_offset(slots.newer) as usize;
    assert!(slot.is_some_and(|slot| bytes[offset..].starts_with(&slot)), "the head is written differently");
    true
}

/// Decodes the head of a file, for measurements of its cost.
pub fn only_file(bytes: &[u8]) {
    let _ = decode_file(bytes);
}

fn decode_file(bytes: &[u8]) -> Option<(Preamble, Slots)> {
    let preamble = Preamble::decode(bytes).ok()?;
    let body_offset = usize::try_from(preamble.body_offset()).ok()?;
    let slots = Slots::decode(&preamble, bytes.get(PREAMBLE_BYTES..body_offset)?).ok()?;
    Some((preamble, slots))
}

#[cfg(test)]
mod cost_tests;
