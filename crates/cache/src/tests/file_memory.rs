//! Long bodies in memory that the kernel can send from.

use rt::file_memory::FileMemory;

use super::*;

const LONG: usize = 100_000;
const FRESH: (&str, &str) = ("Cache-Control", "max-age=60");

fn file_cache(memory_bytes_max: u64, file_bytes: usize) -> Arc<Cache> {
    let memory = FileMemory::create("test", file_bytes).unwrap();
    Cache::with_file_memory(plan(memory_bytes_max), Some(memory)).unwrap()
}

fn is_in_file(object: &Object) -> bool {
    object.body().chunks().unwrap()[0].file_offset().is_some()
}

#[test]
fn a_long_body_is_one_piece_in_the_file_and_counts_until_its_last_reader() {
    let cache = file_cache(8 * MIB, 1 << 40);
    let content: Vec<u8> = (0..LONG).map(|at| (at % 251) as u8).collect();
    let long = store(&cache, "long", &[FRESH], &content);
    let short = store(&cache, "short", &[FRESH], &content[..60_000]);
    assert!(is_in_file(&long) && !is_in_file(&short));
    assert_eq!(long.body().chunks().unwrap().len(), 1);
    for range in [None, Some(0..1), Some(5_000..99_999)] {
        let expected = range.clone().map_or(0..LONG, |range| range.start as usize..range.end as usize);
        assert!(read(&long, range).unwrap() == content[expected]);
    }
    let mut reader = BodyReader::new(long.body(), Some(5_000..99_999));
    let piece = reader.next_present().unwrap();
    let (_, offset) = long.body().chunks().unwrap()[0].file_offset().unwrap();
    assert_eq!(piece.file_offset().map(|(_, start)| start), Some(offset + 5_000));
    assert_eq!((piece.len(), reader.next_present().is_none()), (94_999, true));
    drop((long, short, reader));
    cache.purge_all();
    let bytes = cache.stats().memory_bytes;
    assert!((LONG as u64..LONG as u64 + 70_000).contains(&bytes), "a client still has the piece: {bytes}");
    assert!(*piece == content[5_000..99_999]);
    drop(piece);
    assert_eq!(cache.stats().memory_bytes, 0);
}

#[test]
fn evicted_bodies_make_room_in_the_file() {
    // The file has room for two and a half.
    let cache = file_cache(MIB / 4 + 20_000, MIB as usize / 4);
    for number in 0..20_u8 {
        let object = store(&cache, &format!("{number}"), &[FRESH], &[number; LONG]);
        assert!(read(&object, None).unwrap() == [number; LONG]);
        assert!(cache.stats().memory_bytes <= MIB / 4 + 20_000 || number < 3);
    }
    assert!(cache.stats().evicted >= 17);
}

#[test]
fn a_body_that_does_not_fit_into_the_file_is_in_memory_alone() {
    let cache = file_cache(8 * MIB, MIB as usize / 4);
    let objects: Vec<_> =
        (0..4_u8).map(|number| store(&cache, &format!("{number}"), &[FRESH], &[number; LONG])).collect();
    assert_eq!(
        objects.iter().map(|object| is_in_file(object)).collect::<Vec<_>>(),
        [true, true, false, false]
    );
    assert!(objects.iter().zip(0_u8..).all(|(object, number)| read(object, None).unwrap() == [number; LONG]));
}

#[test]
fn readers_of_an_arriving_body_share_its_pages() {
    let cache = file_cache(8 * MIB, 1 << 40);
    let mut fill = lead(&cache, &cache.key(b"k"), &[]);
    let head = StoredHead::new(200, &headers(&[FRESH]));
    let object = fill.store_head(head, decide(&[FRESH]).unwrap(), &[], None).unwrap();
    let mut readers = [BodyReader::new(object.body(), None), BodyReader::new(object.body(), None)];
    let content: Vec<u8> = (0..500_000).map(|at| (at % 251) as u8).collect();
    let mut received = [Vec::new(), Vec::new()];
    let (mut in_file, mut alone) = (0, 0);
    for (number, pushed) in content.chunks(50_000).enumerate() {
        fill.push(pushed).unwrap();
        // The readers come for 100 kB, and for 250 kB.
        if number % 5 != 1 {
            continue;
        }
        let offsets = readers.each_mut().map(|reader| {
            let pieces: Vec<_> = std::iter::from_fn(|| reader.next_present()).collect();
            pieces.iter().map(|piece| piece.file_offset().map(|(_, offset)| offset)).collect::<Vec<_>>()
        });
        assert_eq!(offsets[0], offsets[1]);
        in_file += offsets[0].iter().flatten().count();
        alone += offsets[0].iter().filter(|offset| offset.is_none()).count();
    }
    fill.push(b"end").unwrap();
    let stored = fill.finish().unwrap();
    assert!(in_file == 2 && alone == 0, "{in_file} {alone}");
    assert!(is_in_file(&stored) && stored.body().chunks().unwrap().len() == 1);
    for (reader, received) in readers.iter_mut().zip(&mut received) {
        received.extend(std::iter::from_fn(|| reader.next_present()).flat_map(|piece| piece.to_vec()));
        assert!(content.ends_with(&received[..received.len() - 3]) && received.ends_with(b"end"));
    }
    assert!(read(&object, None).unwrap() == [&content[..], b"end"].concat());
    drop((object, readers, stored));
    cache.purge_all();
    assert_eq!(cache.stats().memory_bytes, 0);
}
