//! See `record::fuzzing::run_record`.
#![no_main]

weir_fuzz::target!("run_record", record::fuzzing::run_record);
