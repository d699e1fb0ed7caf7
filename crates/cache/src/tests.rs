//! Tests of the store in memory, and what tests of other modules share.

mod eviction;
mod file_memory;
mod fills;
mod inputs;
mod policy;
mod responses;
mod selection;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use wire::Header;

use crate::*;

/// A time far from 1970: Sun, 06 Nov 1994 08:49:37 GMT.
pub(crate) const NOW: UnixTime = UnixTime::from_seconds(784_111_777);
pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
pub(crate) const MIB: u64 = 1024 * 1024;

pub(crate) fn headers<'h>(fields: &[(&'h str, &'h str)]) -> Vec<Header<'h>> {
    fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect()
}

pub(crate) fn request(fields: &[(&str, &str)]) -> RequestPolicy {
    RequestPolicy::parse("GET", &headers(fields), false)
}

pub(crate) fn times(at: UnixTime) -> ResponseTimes {
    ResponseTimes { requested_at: at, received_at: at }
}

/// Decides on a 200 to a GET with these fields.
pub(crate) fn decide(fields: &[(&str, &str)]) -> Result<Storable, NotStored> {
    decide_storing(&request(&[]), 200, &headers(fields), times(NOW), &CacheRules::default())
}

pub(crate) fn plan(memory_bytes_max: u64) -> CachePlan {
    CachePlan {
        name: "test".to_owned(),
        memory_bytes_max,
        object_bytes_max: MIB,
        waiters_max: 1000,
        fills_max: 1000,
        disk: None,
    }
}

pub(crate) fn cache(memory_bytes_max: u64) -> Arc<Cache> {
    Cache::new(plan(memory_bytes_max)).unwrap()
}

pub(crate) fn lead(cache: &Arc<Cache>, key: &Key, request: &[(&str, &str)]) -> Fill {
    match cache.begin_fill(key, &headers(request), true) {
        BeginFill::Leader(fill) => fill,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn wait(cache: &Arc<Cache>, key: &Key, request: &[(&str, &str)]) -> FillWaiter {
    match cache.begin_fill(key, &headers(request), true) {
        BeginFill::Filling(waiter) => waiter,
        other => panic!("{other:?}"),
    }
}

/// Stores a response to a GET without fields.
pub(crate) fn store(cache: &Arc<Cache>, key: &str, fields: &[(&str, &str)], body: &[u8]) -> Arc<Object> {
    store_for(cache, key, &[], fields, body)
}

pub(crate) fn store_for(
    cache: &Arc<Cache>,
    key: &str,
    request: &[(&str, &str)],
    fields: &[(&str, &str)],
    body: &[u8],
) -> Arc<Object> {
    let mut fill = lead(cache, &cache.key(key.as_bytes()), request);
    let head = StoredHead::new(200, &headers(fields));
    fill.store_head(head, decide(fields).unwrap(), &headers(request), Some(body.len() as u64)).unwrap();
    fill.push(body).unwrap();
    fill.finish().unwrap()
}

pub(crate) fn hit(cache: &Arc<Cache>, key: &str, request: &[(&str, &str)]) -> Option<Arc<Object>> {
    match cache.look_up(&cache.key(key.as_bytes()), &headers(request), NOW) {
        Lookup::Hit(object) => Some(object),
        Lookup::Miss { .. } => None,
        Lookup::OnDisk(mut open) => loop {
            // A thread reads it.
            match open.poll_object(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(object) => break object,
                Poll::Pending => std::thread::yield_now(),
            }
        },
    }
}

/// Reads all pieces of a body that is complete, or the error.
pub(crate) fn read(object: &Object, range: Option<std::ops::Range<u64>>) -> Result<Vec<u8>, BodyError> {
    let mut reader = BodyReader::new(object.body(), range);
    let mut bytes = Vec::new();
    loop {
        match reader.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(chunk))) => bytes.extend_from_slice(&chunk),
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(None) => return Ok(bytes),
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
