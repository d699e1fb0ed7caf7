//! Caches of responses, and the use of one by a route.

use std::path::PathBuf;
use std::sync::Arc;

use cache::CacheRules;

use super::{Condition, Statuses, Template};
use crate::cache_store::StoreCell;

/// A cache of responses, `[cache.NAME]`.
#[derive(Debug)]
pub struct CachePlan {
    pub name: Box<str>,
    pub memory_bytes_max: u64,
    /// Maximum size of the content of a response that is stored.
    pub object_bytes_max: u64,
    /// Maximum number of requests that wait for one response.
    pub waiters_max: usize,
    /// Maximum number of responses that arrive and may be stored, at a time.
    pub fills_max: usize,
    /// `None`: only memory.
    pub disk: Option<CacheDiskPlan>,
    /// The open cache; a plan that is only checked has none.
    pub store: StoreCell,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDiskPlan {
    pub directory: PathBuf,
    pub bytes_max: u64,
    pub threads: usize,
    pub files_max: u64,
}

/// `cache` of a route.
#[derive(Clone, Debug)]
pub struct RouteCachePlan {
    pub cache: Arc<CachePlan>,
    /// Key of a response; `None`: pool, scheme, host and target.
    pub key: Option<Template>,
    /// Freshness by status, of responses that do not state their own.
    pub valid: Vec<(Statuses, u64)>,
    /// Rules for storing responses.
    pub rules: CacheRules,
    /// Maximum time for which a request waits for an equal one; 0: it does not.
    pub coalesce_ns: u64,
    pub bypass: Option<Box<Condition>>,
    pub no_store: Option<Box<Condition>>,
    /// True if responses get `Cache-Status`.
    pub status_field: bool,
}

impl PartialEq for RouteCachePlan {
    /// Returns whether both are the same plan. Conditions cannot be compared, so those of two configs differ.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl std::fmt::Display for RouteCachePlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.key.as_ref().map_or("pool, scheme, host and target", Template::source);
        write!(f, "{} (key {key}", self.cache.name)?;
        for (statuses, valid_ns) in &self.valid {
            write!(f, ", {statuses} for {}", super::route_settings::duration(*valid_ns))?;
        }
        match self.coalesce_ns {
            0 => f.write_str(", no coalescing)"),
            wait_ns => write!(f, ", coalescing for {})", super::route_settings::duration(wait_ns)),
        }
    }
}
