//! See `cache::fuzzing::file`.
#![no_main]

weir_fuzz::target!("cache_file", cache::fuzzing::file, cache::fuzzing::only_file);
