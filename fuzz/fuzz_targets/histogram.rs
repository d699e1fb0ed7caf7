//! See `record::fuzzing::histogram`.
#![no_main]

weir_fuzz::target!("histogram", record::fuzzing::histogram, record::fuzzing::decode_histogram);
