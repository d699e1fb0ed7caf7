//! Fills, the requests that wait for them, and their bounds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;
use crate::body::EAGER_READERS_MAX;

const FRESH: (&str, &str) = ("Cache-Control", "max-age=60");

/// Removes responses, and returns their number.
type Purge = fn(&Arc<Cache>) -> u64;

/// Counts its wake-ups.
#[derive(Default)]
struct CountedWaker(AtomicUsize);

impl Wake for CountedWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(waiter: &mut FillWaiter, request: &[(&str, &str)]) -> Poll<FillResult> {
    waiter.poll_result(&headers(request), &mut Context::from_waker(Waker::noop()))
}

fn begin(fill: &mut Fill, fields: &[(&str, &str)], length: Option<u64>) -> Arc<Object> {
    fill.store_head(StoredHead::new(200, &headers(fields)), decide(fields).unwrap(), &[], length).unwrap()
}

#[test]
fn waiting_requests_read_a_body_while_it_arrives() {
    let cache = cache(MIB);
    let key = cache.key(b"k");
    let mut fill = lead(&cache, &key, &[]);
    let mut waiters: Vec<_> = (0..3).map(|_| wait(&cache, &key, &[])).collect();
    assert_eq!(cache.stats().waiters, 3);
    let counted = Arc::new(CountedWaker::default());
    let waker = Waker::from(Arc::clone(&counted));
    let mut context = Context::from_waker(&waker);
    assert!(waiters[0].poll_result(&[], &mut context).is_pending());
    begin(&mut fill, &[FRESH], None);
    assert_eq!(counted.0.load(Ordering::SeqCst), 1);
    let Poll::Ready(FillResult::Object(object)) = poll(&mut waiters[0], &[]) else { panic!() };
    assert_eq!(object.body_bytes(), None);
    let mut reader = BodyReader::new(object.body(), None);
    assert!(reader.poll_next(&mut context).is_pending());
    fill.push(b"one").unwrap();
    assert!(fill.wake_readers(MIB));
    assert_eq!(counted.0.load(Ordering::SeqCst), 2);
    let Poll::Ready(Some(Ok(chunk))) = reader.poll_next(&mut context) else { panic!() };
    assert_eq!(&*chunk, b"one");
    assert!(reader.poll_next(&mut context).is_pending());
    fill.push(b"two").unwrap();
    fill.finish().unwrap();
    let Poll::Ready(Some(Ok(chunk))) = reader.poll_next(&mut context) else { panic!() };
    assert_eq!(&*chunk, b"two");
    assert!(matches!(reader.poll_next(&mut context), Poll::Ready(None)));
    // Those that come late read everything.
    let Poll::Ready(FillResult::Object(object)) = poll(&mut waiters[1], &[]) else { panic!() };
    assert_eq!(read(&object, None).unwrap(), b"onetwo");
    assert_eq!(read(&object, Some(2..4)).unwrap(), b"et");
    drop(waiters);
    assert_eq!((cache.stats().waiters, cache.stats().fills), (0, 0));
    assert_eq!(read(&hit(&cache, "k", &[]).unwrap(), Some(1..5)).unwrap(), b"netw");
}

/// Reads what is there, and waits for more.
fn drain(reader: &mut BodyReader, context: &mut Context<'_>) -> usize {
    let mut bytes = 0;
    while let Poll::Ready(Some(piece)) = reader.poll_next(context) {
        bytes += piece.unwrap().len();
    }
    bytes
}

#[test]
fn many_readers_are_woken_for_many_bytes_at_a_time() {
    const PIECE: usize = 1024;
    const WAKE_BYTES: u64 = 256 * 1024;
    // A body of 1,024 pieces: each of them wakes a few readers; many ones the first, and then each 256 of them. All are
    // woken by the end.
    for (count, wake_ups) in [(EAGER_READERS_MAX, 1025), (100, 5)] {
        let cache = cache(8 * MIB);
        let mut fill = lead(&cache, &cache.key(b"k"), &[]);
        let object = begin(&mut fill, &[FRESH], None);
        let counted = Arc::new(CountedWaker::default());
        let waker = Waker::from(Arc::clone(&counted));
        let mut context = Context::from_waker(&waker);
        let mut readers: Vec<_> = (0..count).map(|_| BodyReader::new(object.body(), None)).collect();
        readers.iter_mut().for_each(|reader| assert_eq!(drain(reader, &mut context), 0));
        let mut received = 0;
        for number in 1..=MIB as usize / PIECE {
            fill.push(&[1; PIECE]).unwrap();
            let before = counted.0.load(Ordering::SeqCst);
            if fill.wake_readers(WAKE_BYTES) {
                assert_eq!(counted.0.load(Ordering::SeqCst), before + count, "piece {number}");
                received += drain(&mut readers[0], &mut context);
                readers[1..].iter_mut().for_each(|reader| _ = drain(reader, &mut context));
                assert_eq!(received, number * PIECE);
            }
        }
        fill.finish().unwrap();
        assert_eq!(counted.0.load(Ordering::SeqCst), wake_ups * count);
        readers
            .iter_mut()
            .for_each(|reader| assert!(matches!(reader.poll_next(&mut context), Poll::Ready(_))));
    }
}

#[test]
fn a_slow_server_keeps_no_byte_from_many_readers() {
    let cache = cache(MIB);
    let mut fill = lead(&cache, &cache.key(b"k"), &[]);
    let object = begin(&mut fill, &[FRESH], None);
    let counted = Arc::new(CountedWaker::default());
    let waker = Waker::from(Arc::clone(&counted));
    let mut context = Context::from_waker(&waker);
    let mut readers: Vec<_> = (0..100).map(|_| BodyReader::new(object.body(), None)).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(drain(reader, &mut context), 0));
    for (text, bytes_min, is_known) in [("first", MIB, true), ("second", MIB, false), ("", 0, true)] {
        let before = counted.0.load(Ordering::SeqCst);
        fill.push(text.as_bytes()).unwrap();
        assert_eq!(fill.wake_readers(bytes_min), is_known, "{text}");
        let woken = counted.0.load(Ordering::SeqCst) - before;
        assert_eq!(woken, if is_known { 100 } else { 0 }, "{text}");
        if is_known {
            readers.iter_mut().for_each(|reader| assert_eq!(drain(reader, &mut context) > 0, woken > 0));
        }
    }
    assert!(fill.wake_readers(0), "there is nothing that they do not know of");
}

#[test]
fn an_abandoned_fill_stores_nothing() {
    let cache = cache(MIB);
    let key = cache.key(b"k");
    for abandon in [(|fill: Fill| drop(fill)) as fn(Fill), |fill| fill.abandon(NotStored::Private)] {
        let fill = lead(&cache, &key, &[]);
        let mut waiter = wait(&cache, &key, &[]);
        abandon(fill);
        assert!(matches!(poll(&mut waiter, &[]), Poll::Ready(FillResult::NotStored(_))));
    }
    let mut fill = lead(&cache, &key, &[]);
    let object = begin(&mut fill, &[FRESH], Some(10));
    fill.push(b"half").unwrap();
    drop(fill);
    assert_eq!(read(&object, None), Err(BodyError::Incomplete));
    drop(object);
    // The server ended early.
    let mut fill = lead(&cache, &key, &[]);
    begin(&mut fill, &[FRESH], Some(10));
    fill.push(b"half").unwrap();
    assert_eq!(fill.finish().err(), Some(NotStored::Incomplete));
    assert!(hit(&cache, "k", &[]).is_none());
    let stats = cache.stats();
    assert_eq!((stats.fills, stats.memory_bytes, stats.stored), (0, 0, 0));
    assert!(stats.not_stored.contains(&(NotStored::Incomplete, 3)));
    assert!(stats.not_stored.contains(&(NotStored::Private, 1)));
}

#[test]
fn a_fill_for_another_variant_is_not_waited_for() {
    let cache = cache(MIB);
    let key = cache.key(b"k");
    let vary = [FRESH, ("Vary", "Accept-Language")];
    let (german, english) = ([("Accept-Language", "de")], [("Accept-Language", "en")]);
    let mut fill = lead(&cache, &key, &german);
    // Nobody knows the Vary yet.
    let mut waiter = wait(&cache, &key, &english);
    fill.store_head(StoredHead::new(200, &headers(&vary)), decide(&vary).unwrap(), &headers(&german), None)
        .unwrap();
    assert!(matches!(poll(&mut waiter, &english), Poll::Ready(FillResult::OtherVariant)));
    assert!(matches!(poll(&mut waiter, &german), Poll::Ready(FillResult::Object(_))));
    drop(lead(&cache, &key, &english));
    fill.finish().unwrap();
    // Now it is known before the head.
    let _fill = lead(&cache, &key, &[("Accept-Language", "fr")]);
    drop(lead(&cache, &key, &english));
    drop(wait(&cache, &key, &[("accept-language", "fr")]));
}

#[test]
fn a_purge_covers_what_is_arriving() {
    let cache = cache(MIB);
    let key = cache.key(b"k");
    let tagged = [FRESH, ("Cache-Tag", "x")];
    let cases: [(Purge, bool); 6] = [
        (|cache| cache.purge(&cache.key(b"k")), false),
        (|cache| cache.purge(&cache.key(b"other")), true),
        (|cache| cache.purge_prefix(b"k"), false),
        (|cache| cache.purge_all(), false),
        (|cache| cache.purge_tag(b"x"), false),
        (|cache| cache.purge_tag(b"y"), true),
    ];
    for (number, (purge, is_stored)) in cases.into_iter().enumerate() {
        cache.purge_all();
        let mut fill = lead(&cache, &key, &[]);
        begin(&mut fill, &tagged, None);
        purge(&cache);
        assert_eq!(fill.finish().is_ok(), is_stored, "case {number}");
        assert_eq!(hit(&cache, "k", &[]).is_some(), is_stored, "case {number}");
    }
    // A response without a head may have any tag.
    cache.purge_all();
    let mut fill = lead(&cache, &key, &[]);
    cache.purge_tag(b"y");
    begin(&mut fill, &tagged, None);
    // A request that comes after the purge does not get what was requested before it.
    drop(lead(&cache, &key, &[]));
    assert_eq!(fill.finish().err(), Some(NotStored::Purged));
}

#[test]
fn a_body_that_becomes_too_large_is_still_read() {
    let cache = cache(8 * MIB);
    let key = cache.key(b"k");
    let mut fill = lead(&cache, &key, &[]);
    let mut waiter = wait(&cache, &key, &[]);
    let object = begin(&mut fill, &[FRESH], None);
    let mut reader = BodyReader::new(object.body(), None);
    let mut slow = BodyReader::new(object.body(), None);
    let mut context = Context::from_waker(Waker::noop());
    let piece = vec![7; 64 * 1024];
    let mut received = 0;
    for number in 0..64 {
        let result = fill.push(&piece);
        assert_eq!(result.is_err(), number >= 16, "piece {number}");
        while let Poll::Ready(Some(chunk)) = reader.poll_next(&mut context) {
            received += chunk.unwrap().len();
        }
    }
    assert_eq!(received, 64 * piece.len());
    assert!(matches!(slow.poll_next(&mut context), Poll::Ready(Some(Err(BodyError::Overtaken)))));
    assert!(object.body.memory_bytes() < 2 * MIB, "only a window stays");
    // Those that come later go to the server.
    assert!(matches!(poll(&mut waiter, &[]), Poll::Ready(FillResult::NotStored(NotStored::TooLarge))));
    drop(lead(&cache, &key, &[]));
    assert_eq!(fill.finish().err(), Some(NotStored::TooLarge));
    assert!(matches!(reader.poll_next(&mut context), Poll::Ready(None)));
    assert!(cache.stats().memory_bytes > MIB, "what its readers hold counts");
    drop((reader, slow, waiter, object));
    assert_eq!(cache.stats().memory_bytes, 0);
    // A length that is too large is refused at once.
    let mut fill = lead(&cache, &key, &[]);
    let result = fill.store_head(StoredHead::new(200, &[]), decide(&[FRESH]).unwrap(), &[], Some(MIB + 1));
    assert_eq!(result.err(), Some(NotStored::TooLarge));
}

#[test]
fn arriving_bodies_share_the_memory() {
    let cache = Cache::new(CachePlan { object_bytes_max: 4 * MIB, ..plan(MIB) }).unwrap();
    store(&cache, "old", &[FRESH], &[1; 1000]);
    let mut fill = lead(&cache, &cache.key(b"k"), &[]);
    begin(&mut fill, &[FRESH], None);
    let mut pushed = 0;
    while fill.push(&[1; 64 * 1024]).is_ok() {
        pushed += 64 * 1024;
        assert!(cache.stats().memory_bytes <= MIB);
    }
    assert!(pushed > MIB - 128 * 1024, "all that is stored was evicted for it: {pushed}");
    assert!(hit(&cache, "old", &[]).is_none());
    assert_eq!(fill.finish().err(), Some(NotStored::Busy));
    assert_eq!(cache.stats().memory_bytes, 0);
}

#[test]
fn waiting_requests_and_fills_are_bounded() {
    let cache = Cache::new(CachePlan { waiters_max: 2, fills_max: 3, ..plan(MIB) }).unwrap();
    let key = cache.key(b"k");
    let fills: Vec<_> = [b"k", b"l", b"m"].map(|text| lead(&cache, &cache.key(text), &[])).into();
    let waiters = [wait(&cache, &key, &[]), wait(&cache, &key, &[])];
    assert!(matches!(cache.begin_fill(&key, &[], true), BeginFill::Busy));
    assert!(matches!(cache.begin_fill(&cache.key(b"n"), &[], true), BeginFill::Busy));
    drop((fills, waiters));
    let fills: Vec<_> = (0..3).map(|_| cache.begin_fill(&key, &[], false)).collect();
    assert!(
        fills.iter().all(|fill| matches!(fill, BeginFill::Leader(_))),
        "nobody waits that does not want to"
    );
    drop(fills);
    assert_eq!(cache.stats().fills, 0);
}

#[test]
fn small_pieces_are_joined() {
    let cache = cache(4 * MIB);
    let key = cache.key(b"k");
    let mut fill = lead(&cache, &key, &[]);
    let object = begin(&mut fill, &[FRESH], None);
    let mut reader = BodyReader::new(object.body(), None);
    for number in 0..10_000_u32 {
        fill.push(&number.to_le_bytes()).unwrap();
        // A reader that is as fast as the server makes small pieces.
        let _ = reader.poll_next(&mut Context::from_waker(Waker::noop()));
    }
    let stored = fill.finish().unwrap();
    assert_eq!(stored.body().chunks().unwrap().len(), 1);
    let expected: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(read(&stored, None).unwrap(), expected);
}

#[test]
fn a_validation_is_one_request_for_all() {
    let cache = cache(MIB);
    let key = cache.key(b"k");
    let object = store(&cache, "k", &[FRESH, ("ETag", "\"a\"")], b"body");
    let fill = lead(&cache, &key, &[]);
    let mut waiter = wait(&cache, &key, &[]);
    let fields = headers(&[FRESH]);
    let updated = cache.refresh(&object, &request(&[]), &fields, times(NOW), &CacheRules::default());
    fill.finish_with(&updated);
    let Poll::Ready(FillResult::Object(answer)) = poll(&mut waiter, &[]) else { panic!() };
    assert!(Arc::ptr_eq(&answer, &updated));
    assert_eq!(cache.stats().fills, 0);
}
