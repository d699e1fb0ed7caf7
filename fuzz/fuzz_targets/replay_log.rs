//! See `load_plan::fuzzing::replay_log`.
#![no_main]

weir_fuzz::target!("replay_log", load_plan::fuzzing::replay_log);
