//! Tests of open caches, and of the fields for clients.

use std::path::Path;
use std::sync::Arc;

use cache::NotStored;

use super::{Forwarded, StatusField, open_caches, unix_now};
use crate::plan::Plan;

fn plan(caches: &str) -> Plan {
    let text = format!(
        "{caches}[listener.web]\nbind = '127.0.0.1:0'\npool = 'app'\n[pool.app]\nservers = ['127.0.0.1:9001']\n"
    );
    crate::config::parse("t", &text).unwrap_or_else(|problems| panic!("{problems:#?}")).plan
}

#[test]
fn an_unchanged_cache_is_the_same_for_the_next_plan() {
    let first = plan("[cache.unit-kept]\nmemory = '2m'\nobject-max = '4k'\n");
    assert!(first.caches[0].store.get().is_none(), "a plan that is only checked opens nothing");
    open_caches(&first).unwrap();
    let next = plan("[cache.unit-kept]\nmemory = '2m'\nobject-max = '4k'\n");
    open_caches(&next).unwrap();
    let store = |plan: &Plan| Arc::clone(plan.caches[0].store.get().unwrap());
    assert!(Arc::ptr_eq(&store(&first), &store(&next)));
    let changed = plan("[cache.unit-kept]\nmemory = '3m'\nobject-max = '4k'\n");
    open_caches(&changed).unwrap();
    assert!(!Arc::ptr_eq(&store(&first), &store(&changed)));
}

fn disk_plan(directory: &Path, size: &str) -> Plan {
    let disk = format!("disk = {{ directory = '{}', size = '{size}' }}", directory.display());
    plan(&format!("[cache.unit-disk]\n{disk}\n"))
}

#[test]
fn a_directory_belongs_to_one_open_cache() {
    let directory = tempfile::tempdir().unwrap();
    let first = disk_plan(directory.path(), "2m");
    open_caches(&first).unwrap();
    let error = open_caches(&disk_plan(directory.path(), "3m")).unwrap_err().to_string();
    assert!(error.contains("its directory is in use by cache 'unit-disk' with other settings"), "{error}");
    open_caches(&disk_plan(directory.path(), "2m")).unwrap();
    drop(first);
    open_caches(&disk_plan(directory.path(), "3m")).unwrap();
}

#[test]
fn the_status_field_names_reasons() {
    let text = |field: StatusField| String::from_utf8(field.as_bytes().to_vec()).unwrap();
    let forwarded =
        |reason, status, stored| text(StatusField::forwarded(reason, status, Err(stored), unix_now()));
    assert_eq!(forwarded(Forwarded::UriMiss, None, None), "weir; fwd=uri-miss");
    assert_eq!(
        forwarded(Forwarded::Stale, Some(503), Some(NotStored::Private)),
        "weir; fwd=stale; fwd-status=503; detail=private"
    );
    assert_eq!(forwarded(Forwarded::Method, None, None), "weir; fwd=method");
}
