//! Tests of the disk: restarts, torn files, purges and bounds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::tests::{MIB, NOW, decide, headers, hit, lead, read, request, store, store_for, times};
use crate::*;

const FRESH: (&str, &str) = ("Cache-Control", "max-age=60");
const TAGGED: [(&str, &str); 3] = [FRESH, ("ETag", "\"a\""), ("Cache-Tag", "x, y")];

/// Removes responses, and returns their number.
type Purge = fn(&Arc<Cache>) -> u64;

/// Memory that holds no object: what is found is on disk.
const NO_MEMORY: u64 = 1;

fn plan(directory: &Path, memory_bytes_max: u64) -> CachePlan {
    CachePlan {
        memory_bytes_max,
        object_bytes_max: 8 * MIB,
        disk: Some(DiskPlan {
            directory: directory.to_owned(),
            bytes_max: 64 * MIB,
            files_max: 1000,
            threads: 2,
            queue_max: 1000,
        }),
        ..crate::tests::plan(memory_bytes_max)
    }
}

fn start(plan: CachePlan) -> Arc<Cache> {
    let cache = Cache::new(plan).unwrap();
    wait_until(|| cache.stats().disk.is_some_and(|disk| !disk.is_scanning));
    cache
}

fn wait_until(mut is_true: impl FnMut() -> bool) {
    while !is_true() {
        std::thread::yield_now();
    }
}

fn disk(cache: &Cache) -> DiskStats {
    cache.stats().disk.unwrap()
}

/// Ends a cache, and waits until its lock is free.
fn end(cache: Arc<Cache>) {
    cache.wait_for_disk();
    cache.release_disk();
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let subdirectories =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let mut files: Vec<_> = subdirectories
        .flat_map(|path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>())
        .collect();
    files.sort();
    files
}

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index / 7) as u8).collect()
}

/// Stores an object while the memory is too small for it: it is stored on disk only.
fn store_large(cache: &Arc<Cache>, key: &str, fields: &[(&str, &str)], body: &[u8]) {
    let mut fill = lead(cache, &cache.key(key.as_bytes()), &[]);
    fill.store_head(StoredHead::new(200, &headers(fields)), decide(fields).unwrap(), &[], None).unwrap();
    body.chunks(10_000).for_each(|piece| fill.push(piece).unwrap());
    fill.finish().unwrap();
    cache.wait_for_disk();
}

#[test]
fn objects_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    let sizes = [0, 1, 5, 65_535, 65_536, 65_537, 262_144, 262_145, 1_000_000];
    for size in sizes {
        store(&cache, &format!("k{size}"), &TAGGED, &body(size));
    }
    let vary = [FRESH, ("Vary", "X-A")];
    store_for(&cache, "v", &[("X-A", "1")], &vary, b"one");
    store_for(&cache, "v", &[("X-A", "2")], &vary, b"two");
    end(cache);
    let cache = start(plan(directory.path(), 16 * MIB));
    assert_eq!((disk(&cache).objects, cache.stats().objects), (11, 0));
    for size in sizes {
        let object = hit(&cache, &format!("k{size}"), &[]).unwrap();
        assert_eq!((object.head().status(), object.head().get("etag")), (200, Some(&b"\"a\""[..])));
        assert_eq!(*object.storable(), decide(&TAGGED).unwrap());
        assert_eq!(object.body_bytes(), Some(size as u64));
        assert!(read(&object, None).unwrap() == body(size), "{size} bytes");
        let (start, end) = (size / 3, size - size / 3);
        assert!(
            read(&object, Some(start as u64..end as u64)).unwrap() == body(size)[start..end],
            "{size} bytes"
        );
    }
    assert_eq!(cache.stats().objects, 7, "small ones are in memory again");
    assert_eq!(read(&hit(&cache, "v", &[("X-A", "2")]).unwrap(), None).unwrap(), b"two");
    assert!(hit(&cache, "v", &[("X-A", "3")]).is_none());
    assert_eq!(disk(&cache).damaged + disk(&cache).errors, 0);
}

#[test]
fn a_large_body_is_read_to_its_end_without_its_cache() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    store_large(&cache, "k", &[FRESH], &body(2_000_000));
    end(cache);
    let cache = start(plan(directory.path(), 16 * MIB));
    let object = hit(&cache, "k", &[]).unwrap();
    // Its section is gone from the config.
    drop(cache);
    assert!(read(&object, None).unwrap() == body(2_000_000));
    drop(object);
    // The directory is free then.
    let cache = start(plan(directory.path(), 16 * MIB));
    assert!(disk(&cache).is_active);
}

#[test]
fn an_evicted_object_is_read_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 2 * MIB));
    for number in 0..100 {
        store(&cache, &number.to_string(), &[FRESH], &body(100_000));
        cache.wait_for_disk();
    }
    assert!(cache.stats().evicted > 50 && cache.stats().memory_bytes <= 2 * MIB);
    for number in 0..100 {
        let object = hit(&cache, &number.to_string(), &[]).unwrap();
        assert!(read(&object, None).unwrap() == body(100_000));
    }
    assert!(cache.stats().memory_bytes <= 2 * MIB);
    assert_eq!((disk(&cache).written, disk(&cache).objects), (100, 100));
}

#[test]
fn torn_and_changed_files_are_never_served() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    store(&cache, "k", &TAGGED, &body(200_000));
    end(cache);
    let path = files(directory.path()).remove(0);
    let content = fs::read(&path).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut served = 0;
    for round in 0..150 {
        let mut changed = content.clone();
        match round % 3 {
            0 => changed.truncate(random.usize(0..content.len())),
            1 => {
                let at = random.usize(0..content.len());
                changed[at] ^= 1 << random.u32(0..8);
            }
            // A block of zeros, as a crash of the machine leaves them.
            _ => {
                let at = random.usize(0..content.len());
                let end = (at + 4096).min(content.len());
                changed[at..end].fill(0);
            }
        }
        fs::write(&path, &changed).unwrap();
        let cache = start(plan(directory.path(), 16 * MIB));
        if let Some(object) = hit(&cache, "k", &[]) {
            assert_eq!(object.head().get("etag"), Some(&b"\"a\""[..]));
            if let Ok(read) = read(&object, None) {
                assert!(read == body(200_000), "round {round}");
                // Only the unused parts of the slots differ.
                served += 1;
            }
        }
        end(cache);
        let _ = fs::remove_file(&path);
    }
    assert!(served < 30, "{served}");
}

#[test]
fn blocks_of_another_file_are_not_served() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    store(&cache, "a", &TAGGED, &body(300_000));
    end(cache);
    let first = files(directory.path()).remove(0);
    let old = fs::read(&first).unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    store(&cache, "a", &TAGGED, &vec![9; 300_000]);
    end(cache);
    // The head of the new file, and the end of the old one: a file system that lost some writes.
    let mut mixed = fs::read(&first).unwrap();
    let middle = mixed.len() / 2;
    mixed[middle..].copy_from_slice(&old[middle..]);
    fs::write(&first, &mixed).unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    let object = hit(&cache, "a", &[]).unwrap();
    assert_eq!(read(&object, None), Err(BodyError::Disk));
    cache.wait_for_disk();
    assert_eq!((disk(&cache).damaged, disk(&cache).objects), (1, 0));
    assert!(files(directory.path()).is_empty());
    assert!(hit(&cache, "a", &[]).is_none());
}

#[test]
fn files_of_a_killed_process_and_foreign_ones_are_handled() {
    let directory = tempfile::tempdir().unwrap();
    let subdirectory = directory.path().join("ab");
    fs::create_dir(&subdirectory).unwrap();
    let half = subdirectory.join("00112233445566778899aabbccddee.0123456789abcdef-7.new");
    let foreign = subdirectory.join("00112233445566778899aabbccddee");
    let other = subdirectory.join("notes.txt");
    for path in [&half, &foreign, &other] {
        fs::write(path, "half of it").unwrap();
    }
    let cache = start(plan(directory.path(), MIB));
    assert_eq!(files(directory.path()), [other], "what has no name of a cache stays");
    assert_eq!(disk(&cache).damaged, 1);
    // A file with the name of another one.
    store(&cache, "k", &TAGGED, b"body");
    end(cache);
    let file = files(directory.path()).into_iter().find(|path| !path.ends_with("notes.txt")).unwrap();
    fs::rename(&file, &foreign).unwrap();
    let cache = start(plan(directory.path(), MIB));
    assert!(hit(&cache, "k", &[]).is_none() && !foreign.exists());
}

#[test]
fn purges_remove_files() {
    let directory = tempfile::tempdir().unwrap();
    let cases: [(&str, Purge); 4] = [
        ("key", |cache| cache.purge(&cache.key(b"a/1"))),
        ("prefix", |cache| cache.purge_prefix(b"a/")),
        ("tag", |cache| cache.purge_tag(b"x")),
        ("all", |cache| cache.purge_all()),
    ];
    for memory in [16 * MIB, NO_MEMORY] {
        for (name, purge) in cases {
            let cache = start(plan(directory.path(), memory));
            if memory == NO_MEMORY {
                end(cache);
                let writer = start(plan(directory.path(), 16 * MIB));
                store(&writer, "a/1", &TAGGED, b"body");
                end(writer);
                let cache = start(plan(directory.path(), memory));
                assert_eq!(purge(&cache), 1, "{name}");
                end(cache);
            } else {
                store(&cache, "a/1", &TAGGED, b"body");
                assert_eq!(purge(&cache), 1, "{name}");
                end(cache);
            }
            assert_eq!(files(directory.path()), [] as [PathBuf; 0], "{name}");
        }
    }
}

#[test]
fn a_purge_covers_what_a_scan_has_not_read_yet() {
    let directory = tempfile::tempdir().unwrap();
    let cases: [(&str, Purge, bool); 5] = [
        ("key", |cache| cache.purge(&cache.key(b"a/1")), false),
        ("prefix", |cache| cache.purge_prefix(b"a/"), false),
        ("tag", |cache| cache.purge_tag(b"x"), false),
        ("all", |cache| cache.purge_all(), false),
        ("other", |cache| cache.purge(&cache.key(b"a/2")), true),
    ];
    for (name, purge, stays) in cases {
        let writer = start(plan(directory.path(), 16 * MIB));
        store(&writer, "a/1", &TAGGED, b"body");
        // The next process starts before this one gives up the directory, so its scan waits.
        let cache = Cache::new(plan(directory.path(), 16 * MIB)).unwrap();
        purge(&cache);
        assert!(hit(&cache, "a/1", &[]).is_none() && !disk(&cache).is_active);
        end(writer);
        wait_until(|| !disk(&cache).is_scanning);
        cache.wait_for_disk();
        assert_eq!(hit(&cache, "a/1", &[]).is_some(), stays, "{name}");
        assert_eq!(files(directory.path()).len(), usize::from(stays), "{name}");
        end(cache);
    }
}

#[test]
fn a_validation_changes_the_head_of_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    let later = NOW.plus_seconds(100);
    let rules = CacheRules::default();
    for size in [1000, 600_000] {
        store(&cache, &size.to_string(), &TAGGED, &body(size));
    }
    end(cache);
    for round in 0..3 {
        let cache = start(plan(directory.path(), 16 * MIB));
        for size in [1000, 600_000] {
            let object = hit(&cache, &size.to_string(), &[]).unwrap();
            let round = round.to_string();
            let fields = headers(&[FRESH, ("X-Round", &round), ("ETag", "\"a\"")]);
            cache.refresh(&object, &request(&[]), &fields, times(later), &rules);
        }
        end(cache);
        let cache = start(plan(directory.path(), 16 * MIB));
        for size in [1000, 600_000] {
            let object = hit(&cache, &size.to_string(), &[]).unwrap();
            assert_eq!(object.head().get("x-round"), Some(round.to_string().as_bytes()));
            assert_eq!(object.storable().freshness(later, &request(&[])), Freshness::Fresh);
            assert!(read(&object, None).unwrap() == body(size));
        }
        end(cache);
    }
    // A head that does not fit ends the file.
    let cache = start(plan(directory.path(), 16 * MIB));
    let object = hit(&cache, "1000", &[]).unwrap();
    let long = "x".repeat(2000);
    let fields = headers(&[FRESH, ("X-Long", &long), ("ETag", "\"a\"")]);
    cache.refresh(&object, &request(&[]), &fields, times(later), &rules);
    cache.wait_for_disk();
    assert_eq!(files(directory.path()).len(), 1);
    assert!(hit(&cache, "1000", &[]).is_some(), "it is in memory");
    // One that may not be stored any more, too.
    let object = hit(&cache, "600000", &[]).unwrap();
    cache.refresh(&object, &request(&[]), &headers(&[("Cache-Control", "private")]), times(later), &rules);
    cache.wait_for_disk();
    assert!(files(directory.path()).is_empty() && hit(&cache, "600000", &[]).is_none());
}

#[test]
fn the_disk_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = plan(directory.path(), 16 * MIB);
    if let Some(disk) = &mut plan.disk {
        (disk.bytes_max, disk.files_max) = (MIB, 20);
    }
    let cache = start(plan.clone());
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..300 {
        store(&cache, &(number % 70).to_string(), &[FRESH], &body(random.usize(0..200_000)));
        if number % 5 == 0 {
            cache.wait_for_disk();
            let size: u64 = files(directory.path())
                .iter()
                .map(|path| fs::metadata(path).unwrap().len().next_multiple_of(4096))
                .sum();
            assert!(size <= MIB && files(directory.path()).len() <= 20, "{size}");
            assert_eq!(
                (disk(&cache).bytes, disk(&cache).objects),
                (size, files(directory.path()).len() as u64)
            );
        }
    }
    assert!(disk(&cache).evicted > 100);
    // A smaller bound holds after a restart, too.
    end(cache);
    if let Some(disk) = &mut plan.disk {
        disk.files_max = 3;
    }
    let cache = start(plan);
    cache.wait_for_disk();
    assert_eq!(files(directory.path()).len() as u64, disk(&cache).objects);
    assert!(disk(&cache).objects <= 3);
}

#[test]
fn an_object_that_is_not_written_leaves_no_older_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = plan(directory.path(), 16 * MIB);
    let cache = start(plan.clone());
    store(&cache, "k", &[FRESH], b"old");
    end(cache);
    if let Some(disk) = &mut plan.disk {
        disk.queue_max = 0;
    }
    let cache = start(plan.clone());
    store(&cache, "k", &[FRESH], b"new");
    assert_eq!(disk(&cache).queue_full, 1);
    assert_eq!(read(&hit(&cache, "k", &[]).unwrap(), None).unwrap(), b"new");
    end(cache);
    assert!(files(directory.path()).is_empty());
}

#[test]
fn a_directory_that_cannot_be_written_costs_only_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 16 * MIB));
    // A file is where a directory should be; modes do not stop root.
    for byte in 0..=u8::MAX {
        fs::write(directory.path().join(format!("{byte:02x}")), "").unwrap();
    }
    store(&cache, "k", &[FRESH], b"body");
    cache.wait_for_disk();
    assert_eq!((disk(&cache).errors, disk(&cache).objects, disk(&cache).written), (1, 0, 0));
    assert_eq!(read(&hit(&cache, "k", &[]).unwrap(), None).unwrap(), b"body");
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cache");
    drop(Cache::new(plan(&path, MIB)).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
    let error = Cache::new(plan(&path, MIB)).unwrap_err().to_string();
    assert!(error.contains("others can write it") && error.contains(&path.display().to_string()), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Cache::new(plan(&file, MIB)), Err(CacheError::Directory { .. })));
}

#[test]
fn two_processes_do_not_use_one_directory() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(plan(directory.path(), MIB));
    store(&first, "k", &[FRESH], b"body");
    first.wait_for_disk();
    let second = Cache::new(plan(directory.path(), MIB)).unwrap();
    store(&second, "k", &[FRESH], b"other");
    second.wait_for_disk();
    assert!(!disk(&second).is_active && disk(&second).written == 0);
    first.release_disk();
    wait_until(|| !disk(&second).is_scanning);
    assert!(disk(&second).is_active);
    // What this process has stored meanwhile is newer than the file.
    second.wait_for_disk();
    assert_eq!(read(&hit(&second, "k", &[]).unwrap(), None).unwrap(), b"other");
    assert!(files(directory.path()).is_empty());
    // The first one keeps its memory, and writes nothing.
    store(&first, "l", &[FRESH], b"body");
    assert!(hit(&first, "k", &[]).is_some() && files(directory.path()).is_empty());
}

#[test]
fn an_object_that_waits_to_be_written_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let cache = start(plan(directory.path(), 4 * MIB));
    store_large(&cache, "large", &[FRESH], &body(3_000_000));
    for number in 0..200 {
        store(&cache, &number.to_string(), &[FRESH], &body(50_000));
        assert!(hit(&cache, &number.to_string(), &[]).is_some());
    }
    cache.wait_for_disk();
    assert!(read(&hit(&cache, "large", &[]).unwrap(), None).unwrap() == body(3_000_000));
}

/// Works on a few keys at random, and checks that each body is one of its key.
fn work(cache: &Arc<Cache>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..400 {
        let key = random.u32(0..20);
        let text = key.to_string();
        match random.u32(0..12) {
            0 => _ = cache.purge(&cache.key(text.as_bytes())),
            1 => _ = cache.purge_prefix(text.as_bytes()),
            2 => _ = cache.purge_tag(b"x"),
            3..6 => {
                let length = random.usize(0..400_000);
                let BeginFill::Leader(mut fill) = cache.begin_fill(&cache.key(text.as_bytes()), &[], false)
                else {
                    continue;
                };
                let head = StoredHead::new(200, &headers(&TAGGED));
                if fill.store_head(head, decide(&TAGGED).unwrap(), &[], None).is_err() {
                    continue;
                }
                let _ = fill.push(&vec![key as u8; length]);
                if random.u32(0..10) > 0 {
                    let _ = fill.finish();
                }
            }
            6 => {
                if let Some(object) = hit(cache, &text, &[]) {
                    let fields = headers(&TAGGED);
                    cache.refresh(&object, &request(&[]), &fields, times(NOW), &CacheRules::default());
                }
            }
            _ => {
                if let Some(object) = hit(cache, &text, &[]) {
                    // A file may be removed while it is read; its descriptor stays.
                    let bytes = read(&object, None).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == key as u8), "{key}");
                    assert_eq!(object.body_bytes(), Some(bytes.len() as u64));
                }
            }
        }
    }
}

#[test]
fn threads_share_a_cache() {
    for seed in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let mut plan = plan(directory.path(), 2 * MIB);
        if let Some(disk) = &mut plan.disk {
            disk.bytes_max = 3 * MIB;
        }
        let cache = start(plan.clone());
        std::thread::scope(|scope| {
            for number in 0..4 {
                let cache = &cache;
                scope.spawn(move || work(cache, 10 * seed + number));
            }
        });
        cache.wait_for_disk();
        let listed: u64 = cache.largest(usize::MAX, NOW).iter().map(|object| object.bytes).sum();
        assert_eq!(cache.stats().memory_bytes, listed, "seed {seed}");
        assert_eq!((cache.stats().fills, cache.stats().waiters), (0, 0));
        let paths = files(directory.path());
        let size: u64 =
            paths.iter().map(|path| fs::metadata(path).unwrap().len().next_multiple_of(4096)).sum();
        let stats = disk(&cache);
        assert_eq!((stats.bytes, stats.objects), (size, paths.len() as u64), "seed {seed}: {paths:?}");
        assert_eq!((stats.errors, stats.damaged, stats.no_space), (0, 0, 0), "seed {seed}");
        // The next process finds the same.
        end(cache);
        let cache = start(plan);
        assert_eq!((disk(&cache).bytes, disk(&cache).damaged), (size, 0));
        (0..20).filter_map(|key| Some((key, hit(&cache, &key.to_string(), &[])?))).for_each(
            |(key, object)| {
                assert!(read(&object, None).unwrap().iter().all(|byte| *byte == key as u8));
            },
        );
        cache.purge_all();
        cache.wait_for_disk();
        assert!(files(directory.path()).is_empty() && cache.stats().memory_bytes == 0, "seed {seed}");
    }
}
