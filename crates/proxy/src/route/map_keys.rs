//! Keys of a request for a map. A key that is one value is compared as conditions compare that value: a host
//! without case and port, a path in its normal form, and each of several fields, cookies or parameters.

use std::cell::Cell;

use super::RouteRequest;
use super::conditions::{ComparedPath, decode_form, parameters};
use super::values::RequestValues;
use crate::cookies::cookies;
use crate::maps::Key;
use crate::plan::{Fact, MapPlan, Variable};
use crate::request_view::ClientFacts;
use crate::uri::{normalise_host, split_target};

thread_local! {
    /// Buffer for keys that are not a part of the request, so that a lookup allocates nothing.
    static KEY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Maximum capacity of the buffer that is kept.
const KEY_BYTES_RETAINED: usize = 4_096;

/// Calls `test` with the keys of a request, until it returns true for one. Returns whether it did. An expression may
/// match an empty text, so for a map of expressions a request without a key has an empty one.
pub(crate) fn any_key(
    map: &MapPlan,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
    test: &mut dyn FnMut(Key<'_>) -> bool,
) -> bool {
    let mut has_key = false;
    let mut test_key = |key: Key<'_>| {
        has_key = true;
        test(key)
    };
    any_present_key(map, request, client, &mut test_key)
        || !has_key && map.store.kind().is_ordered() && test(Key::Text(b""))
}

fn any_present_key(
    map: &MapPlan,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
    test: &mut dyn FnMut(Key<'_>) -> bool,
) -> bool {
    let mut test_text = |text: &[u8]| !text.is_empty() && test(Key::Text(text));
    match map.key.single_variable() {
        Some(Variable::Fact(Fact::Source)) if map.store.kind().is_network() => {
            request.source.is_some_and(|source| test(Key::Address(source)))
        }
        Some(Variable::Fact(Fact::Host)) => {
            let mut buffer = String::new();
            test_text(normalise_host(request.host.unwrap_or_default(), &mut buffer).as_bytes())
        }
        Some(Variable::Fact(Fact::Path)) => {
            let (mut buffer, mut stripped_buffer) = (String::new(), String::new());
            let forms = ComparedPath::new(request.target, &mut buffer, &mut stripped_buffer);
            let has_parameters = forms.without_parameters.len() != forms.path.len();
            test_text(forms.path.as_bytes())
                || has_parameters && test_text(forms.without_parameters.as_bytes())
        }
        Some(Variable::Header(name)) => request.view.values(name).any(test_text),
        Some(Variable::Cookie(name)) => {
            let lines = request.view.ordinary_lines("cookie");
            cookies(lines)
                .filter(|cookie| cookie.name == name.as_bytes())
                .any(|cookie| test_text(cookie.value))
        }
        Some(Variable::Parameter(name)) => {
            let (_, query) = split_target(request.target);
            let named = parameters(query.strip_prefix('?').unwrap_or_default())
                .filter(|(own_name, _)| decode_form(own_name).eq(name.bytes()));
            with_buffer(|key| {
                named.map(|(_, value)| value).any(|value| {
                    key.clear();
                    key.extend(decode_form(value));
                    test_text(key)
                })
            })
        }
        _ => with_buffer(|key| {
            map.key.render_key(&RequestValues::without_plan(request, client), key);
            test_text(key)
        }),
    }
}

/// Appends the value of the first key that is in the map, or the default.
pub(super) fn append_mapped(
    map: &MapPlan,
    request: &RouteRequest<'_>,
    client: &dyn ClientFacts,
    out: &mut Vec<u8>,
) {
    let is_found = any_key(map, request, client, &mut |key| {
        map.store.find(key, |value| out.extend_from_slice(value)).is_some()
    });
    if let Some(default) = map.default.as_ref().filter(|_| !is_found) {
        out.extend_from_slice(default.as_bytes());
    }
}

fn with_buffer<R>(run: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = KEY.take();
    let result = run(&mut buffer);
    if buffer.capacity() <= KEY_BYTES_RETAINED {
        KEY.set(buffer);
    }
    result
}
