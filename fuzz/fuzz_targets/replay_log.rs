//! See `load::fuzzing::replay_log`.
#![no_main]

weir_fuzz::target!("replay_log", load::fuzzing::replay_log);
