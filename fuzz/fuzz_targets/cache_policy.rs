//! See `cache::fuzzing::policy`.
#![no_main]

weir_fuzz::target!("cache_policy", cache::fuzzing::policy, cache::fuzzing::only_policy);
